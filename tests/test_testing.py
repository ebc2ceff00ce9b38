"""The battery for kernels finds what is wrong with a kernel, and says it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from representer.kernels import Delta, Gaussian, Kernel, Linear, Scaled
from representer.kernels.vectors import Radial
from representer.testing import check_gradient, check_kernel
from representer.values import Value, number

X = np.random.default_rng(0).standard_normal((6, 2))
STORED = torch.from_numpy(X @ X.T)


class Cauchy(Radial):
    """1 / (1 + ‖x − y‖²/(2ℓ²)): what a user's kernel looks like."""

    def __init__(self, lengthscale: Any = "median"):
        self.lengthscale = lengthscale

    def _profile(self, t: Tensor) -> Tensor:
        return 1.0 / (1.0 - t)


@pytest.mark.parametrize("kernel", [Cauchy(), Cauchy("ard"), 0.5 * Cauchy(1.0) + Linear() * Cauchy("auto")], ids=repr)
def test_a_good_kernel_passes(kernel: Kernel) -> None:
    check_kernel(kernel, X)
    check_kernel(kernel, X, X[:3] + 1.0)


class Asymmetric(Linear):
    def _gram(self, X: Tensor, Y: Tensor | None) -> Tensor:
        return super()._gram(X, Y).triu()


class Indefinite(Linear):
    def _gram(self, X: Tensor, Y: Tensor | None) -> Tensor:
        return -super()._gram(X, Y)

    def _diag(self, X: Tensor) -> Tensor:
        return -super()._diag(X)


class WrongDiagonal(Linear):
    def _diag(self, X: Tensor) -> Tensor:
        return X.sum(-1)


class WrongShape(Linear):
    def _gram(self, X: Tensor, Y: Tensor | None) -> Tensor:
        return super()._gram(X, Y)[..., :-1]


class NotANumber(Linear):
    def _gram(self, X: Tensor, Y: Tensor | None) -> Tensor:
        return super()._gram(X, Y) * float("nan")


class OrderMatters(Linear):
    def _gram(self, X: Tensor, Y: Tensor | None) -> Tensor:
        weights = torch.arange(1.0, X.shape[-2] + 1, dtype=X.dtype)[:, None]
        return super()._gram(weights * X, Y)

    def _diag(self, X: Tensor) -> Tensor:
        return super()._diag(torch.arange(1.0, X.shape[-2] + 1, dtype=X.dtype)[:, None] * X)


class DependsOnTheSet(Linear):
    def _gram(self, X: Tensor, Y: Tensor | None) -> Tensor:
        return super()._gram(X, Y) / X.shape[-2]

    def _diag(self, X: Tensor) -> Tensor:
        return super()._diag(X) / X.shape[-2]


class WrongTranspose(Linear):
    def _gram(self, X: Tensor, Y: Tensor | None) -> Tensor:
        gram = super()._gram(X, Y)
        return gram if Y is None or X.shape[-2] >= Y.shape[-2] else 2.0 * gram


class ChangesItsData(Linear):
    def _gram(self, X: Tensor, Y: Tensor | None) -> Tensor:
        gram = super()._gram(X, Y)
        X += 1e-12
        return gram


class ReturnsItsOwnMemory(Linear):
    def _gram(self, X: Tensor, Y: Tensor | None) -> Tensor:
        return STORED if Y is None and X.shape == (6, 2) else super()._gram(X, Y)


class ChangesItself(Gaussian):
    def _resolve(self, X: Any) -> Any:
        self.lengthscale = 1.0
        return super()._resolve(X)


class CutsGradients(Scaled):
    __repr__ = Value.__repr__

    def _gram(self, X: Tensor, Y: Tensor | None) -> Tensor:
        return self.kernel._gram(X, Y) * float(number(self, "scale", X).detach().reshape(-1)[0])


class WrongGradient(Gaussian):
    def _gram(self, X: Tensor, Y: Tensor | None) -> Tensor:
        gram = super()._gram(X, Y)
        return gram.detach() + 0.5 * (gram - gram.detach())


class CutsInputGradients(Linear):
    def _gram(self, X: Tensor, Y: Tensor | None) -> Tensor:
        return super()._gram(X.detach(), None if Y is None else Y.detach())

    def _diag(self, X: Tensor) -> Tensor:
        return super()._diag(X.detach())


class NoBatches(Linear):
    def _gram(self, X: Tensor, Y: Tensor | None) -> Tensor:
        gram = super()._gram(X, Y)
        return gram if gram.ndim == 2 else gram[0]


class NoBatchesOfHyperparameters(Scaled):
    __repr__ = Value.__repr__

    def _gram(self, X: Tensor, Y: Tensor | None) -> Tensor:
        return self.kernel._gram(X, Y) * number(self, "scale", X).mean()


class AlwaysDouble(Linear):
    def _gram(self, X: Tensor, Y: Tensor | None) -> Tensor:
        return super()._gram(X, Y).double()


class InaccurateInSingle(Linear):
    def _gram(self, X: Tensor, Y: Tensor | None) -> Tensor:
        return super()._gram(X, Y) * (1.01 if X.dtype == torch.float32 else 1.0)


class ForgetsAnArgument(Linear):
    def __init__(self, offset: float = 0.0):
        self.offset = offset + 1.0


class UnequalToItself(Linear):
    def __init__(self, offset: float = 1.0):
        self.offset = offset

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = Linear.__hash__


class BadRepr(Linear):
    def __init__(self, offset: float = 1.0):
        self.offset = offset

    def __repr__(self) -> str:
        return "BadRepr(offset=7.0)"


class NoRepr(Linear):
    def __repr__(self) -> str:
        return "<a kernel>"


class AcceptsAnything(Linear):
    def set_params(self, **params: Any) -> Any:
        return self


class BadHash(Linear):
    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BadHash)


def cannot_be_pickled() -> Kernel:
    class Local(Linear):
        pass

    return Local()


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (Asymmetric(), "symmetric"),
        (Indefinite(), "not positive semi-definite"),
        (WrongDiagonal(), "equals the diagonal"),
        (WrongShape(), "has shape"),
        (NotANumber(), "NaN"),
        (OrderMatters(), "symmetric|permutation"),
        (DependsOnTheSet(), "is a block of"),
        (WrongTranspose(), "transpose"),
        (ChangesItsData(), "has changed its input data"),
        (ReturnsItsOwnMemory(), "after the caller has overwritten"),
        (ChangesItself("median"), "The kernel has changed"),
        (CutsGradients(Gaussian(1.0), 2.0), "gradient in scale .* is cut off"),
        (WrongGradient(1.0), "gradient in lengthscale .* disagrees"),
        (CutsInputGradients(), "gradient in X .* is cut off"),
        (NoBatches(), r"k\(X\) of a batch of data"),
        (NoBatchesOfHyperparameters(Gaussian(1.0), 2.0), "batch of hyperparameters"),
        (AlwaysDouble(), "float32 data is torch.float64"),
        (InaccurateInSingle(), "in float32 is off by"),
        (ForgetsAnArgument(), "not made again from its get_params"),
        (UnequalToItself(), "is different|not made again"),
        (BadRepr(), "evaluates to something else"),
        (NoRepr(), "is not code"),
        (AcceptsAnything(), "does not exist"),
        (BadHash(), "hashes"),
        (cannot_be_pickled(), "cannot be pickled"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Kernel) else "",
)
def test_faults_are_found(kernel: Kernel, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_kernel(kernel, X.copy(), X[:3] + 1.0)
    STORED.copy_(torch.from_numpy(X @ X.T))


def test_a_word_that_is_missing_is_not_a_fault_of_the_contract() -> None:
    check_kernel(Delta(), ["a", "b", "a", "c"])


def test_check_gradient() -> None:
    point = torch.linspace(-1.0, 1.0, 40, dtype=torch.float64)
    check_gradient(lambda p: (p**3).sum(), point, "p")
    check_gradient(lambda p: torch.tensor(3.0, dtype=torch.float64), point, "p")  # a constant has gradient 0
    with pytest.raises(AssertionError, match="The gradient in p disagrees"):
        check_gradient(lambda p: (p.detach() ** 2 * p).sum(), point, "p")
    with pytest.raises(AssertionError, match="cut off"):
        check_gradient(lambda p: (p.detach() ** 2 * 3.0).sum(), point, "p")
    check_gradient(lambda p: (p.float() ** 3).sum().double(), point, "p", precision=torch.float32)
