"""Short names: a string works wherever a kernel does."""

from __future__ import annotations

from collections.abc import Callable as Function

from representer.kernels.base import Kernel
from representer.kernels.fingerprints import MinMax, Tanimoto
from representer.kernels.objects import Callable, Delta, Precomputed
from representer.kernels.stack import FAMILIES, is_several
from representer.kernels.vectors import AdditiveChi2, Chi2, Gaussian, Laplacian, Linear, Matern, Polynomial, Sigmoid

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
