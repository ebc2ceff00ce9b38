"""Kernels by name: one of them, or several, each of which is fitted by itself while a learner averages the fits."""

from __future__ import annotations

from collections.abc import Callable as Function
from typing import Any, ClassVar

import numpy as np

from representer.kernels.base import Domain, Kernel
from representer.kernels.molecules import MinMax, Tanimoto
from representer.kernels.objects import Callable, Delta, Precomputed
from representer.kernels.vectors import AdditiveChi2, Chi2, Gaussian, Laplacian, Linear, Matern, Polynomial, Sigmoid
from representer.samples import Data
from representer.values import NONE, Rule, Value, one_of

# The words that name the kernels of a kind of objects, all of which a learner stacks.
FAMILIES = ("molecules", "strings", "graphs", "curves", "bags")


def _is_simplex(weights: object) -> bool:
    """Are they numbers of at least 0 whose sum over the first axis is one?"""
    try:
        array = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    return array.ndim in (1, 2) and bool((array >= 0).all()) and np.allclose(array.sum(0), 1.0, atol=1e-6)


def _are_positive(alphas: object) -> bool:
    """Are they positive, finite numbers?"""
    try:
        array = np.asarray(alphas, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    return array.ndim == 1 and bool((array > 0).all() and np.isfinite(array).all())


class Stack(Value):
    """Several kernels of which a learner makes one model: Σ_m weight_m f_m, where f_m is the fit with the m-th kernel.

    Every kernel has hyperparameters and an alpha of its own, as if it were alone. The weights, at least 0 with the sum
    one, are those of least error for samples that were left out. It is no kernel itself: a sum of kernels,
    ``k1 + k2``, is one function with one alpha. What a fitted learner keeps as ``kernel_`` has numbers everywhere, and
    gives the same model again.

    Parameters
    ----------
    kernels : list of Kernel
        The members; all take the same kind of data.
    weights : array-like of shape (n_kernels,) or (n_kernels, n_outputs), or "auto", default="auto"
        The weights of the members; ``"auto"`` lets samples that were left out decide.
    alphas : array-like of shape (n_kernels,) or None, default=None
        The weight of each member's ‖f_m‖². None: what the learner's ``alpha`` says, for each member.

    Examples
    --------
    >>> from representer.kernels import Gaussian, Laplacian, Stack
    >>> Stack([Gaussian("auto"), Laplacian(2.0)])
    Stack(kernels=[Gaussian(lengthscale='auto'), Laplacian(lengthscale=2.0)])
    >>> Stack([Gaussian("auto"), Laplacian(2.0)]).free()
    ['kernels__0__lengthscale']
    """

    rules: ClassVar[dict[str, Rule]] = {
        "kernels": Rule(
            "a list of kernels, at least one",
            lambda kernels: isinstance(kernels, list | tuple) and bool(kernels) and all(map(_is_member, kernels)),
            " A short name is written as_kernel(name).",
        ),
        "weights": one_of("auto") | Rule("numbers of at least 0 that sum to one over the kernels", _is_simplex),
        "alphas": NONE | Rule("positive numbers, one a kernel", _are_positive),
    }

    def __init__(self, kernels: list[Any], weights: Any = "auto", alphas: Any = None):
        self.kernels = kernels
        self.weights = weights
        self.alphas = alphas

    def check_hyperparameters(self) -> None:
        """Raise a ValueError that names the first argument, nested ones included, with an inadmissible value."""
        super().check_hyperparameters()
        for name, values in (("weights", self.weights), ("alphas", self.alphas)):
            if values is not None and not isinstance(values, str) and len(values) != len(self.kernels):
                raise ValueError(
                    f"{name} of Stack must have one number, or row, for each of the {len(self.kernels)} kernels; got "
                    f"{len(values)}."
                )

    @property
    def domain(self) -> Domain:
        """The kind of data that all kernels take."""
        kinds = {kernel.domain: kernel for kernel in self.kernels}
        if len(kinds) > 1:
            named = " and ".join(f"{kernel!r} takes {kind}" for kind, kernel in kinds.items())
            raise ValueError(f"{named}: the kernels of a Stack must take the same kind of data.")
        return next(iter(kinds))

    def prepare(self, X: Data) -> Data:
        """The data, checked by every kernel; objects as they are, because kernels may make different things of them."""
        if self.domain == "objects":
            return X
        for kernel in self.kernels:
            X = kernel.prepare(X)
        return X

    def n_outputs(self, X: Data) -> int | None:
        """The number of outputs of operator-valued members, or None if any number will do."""
        numbers = (kernel.n_outputs(X) for kernel in self.kernels if hasattr(kernel, "n_outputs"))
        return next((number for number in numbers if number is not None), None)


def _is_member(kernel: object) -> bool:
    """Is it a kernel, scalar or operator-valued?"""
    return isinstance(kernel, Value) and hasattr(kernel, "domain") and not isinstance(kernel, Stack)


def is_several(kernel: object) -> bool:
    """Is it several kernels, of which a learner makes one model: a stack, ``"auto"`` or the word of a family?

    Examples
    --------
    >>> from representer.kernels import is_several
    >>> is_several("auto"), is_several("rbf")
    (True, False)
    """
    return isinstance(kernel, Stack) or (isinstance(kernel, str) and (kernel == "auto" or kernel in FAMILIES))


NAMES: dict[str, Function[[], Kernel]] = {
    "rbf": Gaussian,
    "gaussian": Gaussian,
    "linear": Linear,
    "poly": lambda: Polynomial(degree=3, gamma="scale"),
    "polynomial": lambda: Polynomial(degree=3, gamma="scale"),
    "sigmoid": Sigmoid,
    "cosine": lambda: Linear().normalized(),
    "chi2": Chi2,
    "additive_chi2": AdditiveChi2,
    "laplacian": Laplacian,
    "matern": Matern,
    "tanimoto": Tanimoto,
    "minmax": MinMax,
    "delta": Delta,
    "precomputed": Precomputed,
}


def as_kernel(kernel: object, *, argument: str = "kernel") -> Kernel:
    """A kernel from a kernel, a name (``"rbf"``, ``"linear"`` …) or a function of two objects.

    ``argument`` is the name that an error gives it.

    Examples
    --------
    >>> from representer.kernels import as_kernel
    >>> as_kernel("poly")
    Polynomial(degree=3, gamma='scale')
    """
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, str) and kernel in NAMES:
        return NAMES[kernel]()
    if callable(kernel) and not isinstance(kernel, type):
        return Callable(kernel)
    if is_several(kernel):
        raise ValueError(
            f"{argument}={kernel!r} is several kernels, of which some learners make one model; here one kernel is "
            "needed. Give one of them, or their sum."
        )
    raise ValueError(
        f"{argument}={kernel!r} is not a kernel. Give an object from representer.kernels, a function of two objects, "
        f"or one of the names {', '.join(map(repr, [*NAMES, 'auto', *FAMILIES]))}."
    )
