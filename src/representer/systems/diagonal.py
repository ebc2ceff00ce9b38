"""The ridge system (K + diag(noise)) C = Y of an operator-valued kernel, factored by the cheapest exact route.

``factor_system`` chooses. With Q = (K + diag(noise))⁻¹ on the observed entries, every system gives the coefficients
C = Q Y, the leave-one-out predictions and the variance K(x, x) − K_x Q K_xᵀ at new points. Samples carry their own
noise (alpha · total weight / weight), so weighting needs no case of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from representer.data import count, take
from representer.kernels import Kernel, Linear
from representer.linalg import Cholesky, Spectrum, eigh, factorize, spectrum_of_factor
from representer.operators.base import DiagonalForm, OperatorKernel
from representer.systems.block import DenseSystem
from representer.systems.block import IterativeSystem as IterativeSystem
from representer.systems.block import System as System

Solver = Literal["auto", "dense", "iterative"]

# Largest n·p for which the block matrix of a kernel without structure is factored (half a gigabyte, a few seconds);
# above it conjugate gradients never form it.
DENSE_LIMIT = 8000


# -- one scalar kernel ----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class ScalarCholesky:
    """Q = (G + diag(noise))⁻¹ by a Cholesky factor."""

    factor: Cholesky

    def solve(self, right: Tensor) -> Tensor:
        return self.factor.solve(right)

    @cached_property
    def inverse_diagonal(self) -> Tensor:
        return self.factor.inverse().diagonal().clone()

    def quadratic(self, cross: Tensor) -> Tensor:
        """k_xᵀ Q k_x for the rows k_x of ``cross``."""
        return (self.factor.half_solve(cross.mT) ** 2).sum(0)


@dataclass(frozen=True)
class ScalarSpectral:
    """Q = D (w·E + shift)⁻¹ D with E = U diag(e) Uᵀ the spectrum of D K D: every weight w shares one U."""

    spectrum: Spectrum
    weight: Tensor
    shift: Tensor
    root: Tensor  # D, (n,): square roots of the relative sample weights

    def _scaled(self) -> Spectrum:
        return Spectrum(self.spectrum.vectors, self.weight * self.spectrum.values)

    def solve(self, right: Tensor) -> Tensor:
        return self.root[:, None] * self._scaled().solve(self.root[:, None] * right, self.shift)

    @cached_property
    def inverse_diagonal(self) -> Tensor:
        return self.root**2 * self._scaled().inverse_diagonal(self.shift.reshape(1))[0]

    def quadratic(self, cross: Tensor) -> Tensor:
        weighted = (cross * self.root).mT
        return (weighted * self._scaled().solve(weighted, self.shift)).sum(0)


@dataclass(frozen=True)
class Group:
    """Outputs (in rotated coordinates) that share a scalar system and the rows they are observed at."""

    weights: Tensor
    outputs: Tensor
    rows: Tensor
    system: ScalarCholesky | ScalarSpectral


class DiagonalSystem(System):
    """The system of a kernel in diagonal form: one scalar system for each group of outputs."""

    def __init__(self, form: DiagonalForm, X: Any, groups: list[Group], shape: tuple[int, int]):
        self.form = form
        self.X = X
        self.groups = groups
        self.shape = shape

    def _rotate(self, values: Tensor) -> Tensor:
        return values if self.form.rotation is None else values @ self.form.rotation

    def _rotate_back(self, values: Tensor) -> Tensor:
        return values if self.form.rotation is None else values @ self.form.rotation.mT

    def solve(self, targets: Tensor) -> Tensor:
        """Group by group."""
        rotated = self._rotate(targets)
        coefficients = torch.zeros_like(rotated)
        for group in self.groups:
            index = (group.rows[:, None], group.outputs[None, :])
            coefficients[index] = group.system.solve(rotated[index])
        return self._rotate_back(coefficients)

    def loo_variance(self) -> Tensor:
        """1 / Q_ii in rotated coordinates; where a target is missing, the variance is not defined (NaN)."""
        variance = self.form.weights.new_full(self.shape, torch.nan)
        for group in self.groups:
            variance[group.rows[:, None], group.outputs[None, :]] = (
                1.0 / group.system.inverse_diagonal[:, None]
            )
        return variance if self.form.rotation is None else variance @ (self.form.rotation**2).mT

    def loo_predictions(self, targets: Tensor, coefficients: Tensor) -> Tensor:
        """y_i − c_i / Q_ii in rotated coordinates; where a target is missing, the sample is left out anyhow."""
        rotated, c = self._rotate(targets), self._rotate(coefficients)
        predictions = torch.empty_like(rotated)
        for group in self.groups:
            index = (group.rows[:, None], group.outputs[None, :])
            predictions[index] = rotated[index] - c[index] / group.system.inverse_diagonal[:, None]
            unseen = torch.ones(len(c), dtype=torch.bool, device=c.device)
            unseen[group.rows] = False
            if bool(unseen.any()):
                left_out = take(self.X, unseen.nonzero()[:, 0])
                fitted = self.form.product(group.weights, left_out, self.X, c[:, group.outputs])
                predictions[unseen.nonzero(), group.outputs[None, :]] = fitted
        return self._rotate_back(predictions)

    def variance(self, X: Any) -> Tensor:
        """Scalar variances, rotated back; the cross-Gram matrix of a kernel that all groups share is computed once."""
        variances = self.form.weights.new_zeros(count(X), self.shape[1])
        shared = self.form.kernels[0]._gram(X, self.X) if len(self.form.kernels) == 1 else None
        for group in self.groups:
            cross = self.form.gram(group.weights, X, self.X) if shared is None else shared * group.weights[0]
            scalar = self.form.diag(group.weights, X) - group.system.quadratic(cross[:, group.rows])
            variances[:, group.outputs] = scalar.clamp(min=0.0)[:, None]
        return variances if self.form.rotation is None else variances @ (self.form.rotation**2).mT


def has_few_features(kernel: Kernel, X: Any) -> bool:
    """Is the Gram matrix X Xᵀ with fewer features than samples, so that no n × n matrix is needed?"""
    return isinstance(kernel, Linear) and X.shape[-1] < X.shape[-2]


def gram_spectrum(kernel: Kernel, X: Any, root: Tensor, gram: Tensor | None = None) -> Spectrum:
    """The spectrum of D k(X, X) D: from the features if the kernel is linear and has fewer of them than samples."""
    if has_few_features(kernel, X):
        return spectrum_of_factor(root[:, None] * X)
    gram = kernel._gram(X, None) if gram is None else gram.clone()
    if not bool((root == 1.0).all()):
        gram.mul_(root[:, None]).mul_(root)
    return eigh(gram, name="The Gram matrix", overwrite=True)


def relative_weights(noise: Tensor) -> tuple[Tensor, Tensor]:
    """A common shift and the root weights D with diag(noise) = shift · D⁻²."""
    shift = 1.0 / (1.0 / noise).mean()
    return shift, (shift / noise).sqrt()


def observation_patterns(observed: Tensor | None, outputs: Tensor, n: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Outputs that are observed at the same rows, with those rows."""
    if observed is None:
        yield outputs, torch.arange(n)
        return
    columns, members = torch.unique(observed[:, outputs], dim=1, return_inverse=True)
    for g in range(columns.shape[1]):
        yield outputs[members == g], columns[:, g].nonzero()[:, 0]


def _diagonal_system(
    form: DiagonalForm,
    X: Any,
    noise: Tensor,
    observed: Tensor | None,
    spectrum: Spectrum | None,
    gram: Tensor | None,
) -> DiagonalSystem:
    n, p = len(noise), form.weights.shape[1]
    shift, root = relative_weights(noise)
    single = len(form.kernels) == 1
    thin = single and has_few_features(form.kernels[0], X)
    distinct = list(form.groups())
    if observed is None and spectrum is None and single and len(distinct) > 1:
        spectrum = gram_spectrum(form.kernels[0], X, root, gram)
    groups = []
    for weights, members in distinct:
        for outputs, rows in observation_patterns(observed, members, n):
            if spectrum is not None and observed is None:
                system: ScalarCholesky | ScalarSpectral = ScalarSpectral(spectrum, weights[0], shift, root)
            elif thin:
                system = ScalarSpectral(
                    spectrum_of_factor((root[:, None] * X)[rows]), weights[0], shift, root[rows]
                )
            else:
                build = partial(_regularised, form, weights, X, noise, rows, gram)
                system = ScalarCholesky(factorize(build, name="The Gram matrix plus n·alpha"))
            groups.append(Group(weights, outputs, rows, system))
    return DiagonalSystem(form, X, groups, (n, p))


def _regularised(
    form: DiagonalForm, weights: Tensor, X: Any, noise: Tensor, rows: Tensor, gram: Tensor | None
) -> Tensor:
    """Σ_t w_t k_t(X, X) + diag(noise) on some rows; ``gram`` is that of the only kernel, if it is known already."""
    matrix = form.gram(weights, X) if gram is None else gram * weights[0]
    matrix = matrix if len(rows) == len(noise) else matrix[rows[:, None], rows]
    matrix.diagonal().add_(noise[rows])
    return matrix


def factor_system(
    kernel: OperatorKernel,
    X: Any,
    noise: Tensor,
    p: int,
    *,
    observed: Tensor | None = None,
    spectrum: Spectrum | None = None,
    gram: Tensor | None = None,
    solver: Solver = "auto",
) -> System:
    """Factor K + diag(noise) by the cheapest exact route that the kernel's structure and the missing entries allow.

    Parameters
    ----------
    kernel : OperatorKernel
        With numbers for all hyperparameters.
    X : prepared data
        The n training inputs.
    noise : tensor (n,)
        What is added to the diagonal, the same for all outputs of a sample.
    p : int
        The number of outputs.
    observed : bool tensor (n, p), optional
        Which targets are known; all by default.
    spectrum : Spectrum, optional
        That of the weighted Gram matrix of the only scalar kernel, if it is known already.
    gram : tensor (n, n), optional
        That Gram matrix itself, if it is known already.
    solver : {"auto", "dense", "iterative"}
        ``"auto"`` uses structure where there is some, the block matrix up to ``DENSE_LIMIT``, and iterates above.

    Examples
    --------
    >>> import torch
    >>> from representer.kernels import Linear
    >>> from representer.operators import Decomposable
    >>> from representer.systems import factor_system
    >>> X, Y = torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [2.0]])
    >>> C = factor_system(Decomposable(Linear()), X, noise=torch.full((2,), 5.0), p=1).solve(Y)
    >>> (X.T @ C).tolist()  # the slope of ridge regression, xᵀy / (xᵀx + 5)
    [[0.5]]
    """
    if solver not in get_args(Solver):
        raise ValueError(f"solver must be one of {get_args(Solver)}; got {solver!r}.")
    expected = kernel.n_outputs(X)
    if expected not in (None, p):
        raise ValueError(f"{kernel!r} has {expected} outputs on these inputs, but p={p} were asked for.")
    mask = None if observed is None or bool(observed.all()) else observed
    if solver == "auto":
        form = kernel.diagonal_form(p, noise)
        if form is not None and (mask is None or form.rotation is None):
            return _diagonal_system(form, X, noise, mask, spectrum, gram)
    full = torch.ones(len(noise), p, dtype=torch.bool) if mask is None else mask
    dense = solver == "dense" or (solver == "auto" and full.numel() <= DENSE_LIMIT)
    return (DenseSystem if dense else IterativeSystem)(kernel, X, noise, full)
