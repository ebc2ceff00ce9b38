"""The kernels that are stacked where none is given: a family for each kind of data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from representer.kernels.alignments import Subsequence
from representer.kernels.bags import MeanMap
from representer.kernels.base import Kernel
from representer.kernels.curves import Functional
from representer.kernels.fingerprints import MinMax, Tanimoto
from representer.kernels.graph_kernels import ShortestPath, WeisfeilerLehman
from representer.kernels.molecules import Molecule
from representer.kernels.stack import FAMILIES, Stack
from representer.kernels.strings import Mismatch, Spectrum
from representer.kernels.vectors import Gaussian, Laplacian, Linear, Matern, Polynomial

# Kernels with a lengthscale for each feature join the family of vectors up to so many features.
ARD_FEATURES = 40


FeatureKind = Literal["frequencies", "sketch"]  # of random Fourier features, or of a sketch


def _molecules() -> list[Kernel]:
    """Substructures up to several radii, as they are counted and as they occur."""
    return [Molecule(radius, counts=counts) for radius in (1, 2, 3) for counts in (True, False)]


def _strings() -> list[Kernel]:
    """Common substrings of several lengths, with a mismatch, and with gaps."""
    members: list[Kernel] = [Spectrum(length) for length in (1, 2, 3, 5)]
    members += [Mismatch(4, 1), Subsequence(3, 0.5)]
    return [member.normalized() for member in members]


def _graphs() -> list[Kernel]:
    """Subtrees of several depths, and shortest paths."""
    members: list[Kernel] = [WeisfeilerLehman(depth) for depth in (1, 2, 4)]
    return [*(member.normalized() for member in members), ShortestPath().normalized()]


def _curves() -> list[Kernel]:
    """Rough and smooth functions of curves given as pairs (times, values), of their slopes, and a linear one."""
    curve, slope = {"domain": "objects"}, {"domain": "objects", "derivative": 1}
    members: list[Kernel] = [Functional(kernel, **curve) for kernel in (Gaussian("auto"), Matern(0.5, "auto"))]  # type: ignore[arg-type]
    return [*members, Functional(Gaussian("auto"), **slope), Functional(Linear(), **curve)]  # type: ignore[arg-type]


def _bags() -> list[Kernel]:
    """Means of bags in the spaces of rough and smooth kernels, and functions of these means."""
    points: tuple[Kernel, ...] = (Gaussian("auto"), Laplacian("auto"))
    return [MeanMap(kernel, outer) for outer in ("linear", Gaussian("auto")) for kernel in points]


_OBJECTS: tuple[Callable[[], list[Kernel]], ...] = (_molecules, _strings, _graphs, _curves, _bags)


def family(kind: str, n_features: int = 1, *, features: FeatureKind | None = None) -> Stack:
    """The kernels that are stacked for a kind of data, where none is given.

    Parameters
    ----------
    kind : {"vectors", "sparse", "molecules", "strings", "graphs", "curves", "bags"}
        Of vectors these are rough and smooth kernels and a straight line; of sparse rows, shares of what they count.
    n_features : int, default=1
        Of vectors: a lengthscale for each is learned up to 40 of them.
    features : {"frequencies", "sketch"} or None, default=None
        Of vectors, only kernels with such features: stationary ones, or polynomials.

    Returns
    -------
    stack : Stack

    Examples
    --------
    >>> from representer.kernels import family
    >>> len(family("vectors", 3).kernels), len(family("vectors", 100).kernels)
    (6, 4)
    >>> family("sparse")
    Stack(kernels=[MinMax(), Tanimoto()])
    """
    if kind == "sparse":
        return Stack([MinMax(), Tanimoto()])
    if kind != "vectors":
        return Stack(_OBJECTS[FAMILIES.index(kind)]())
    if features == "sketch":
        return Stack([Polynomial(degree, "auto", "auto") for degree in (1, 2, 3)])
    members: list[Kernel] = [Laplacian("auto"), Gaussian("auto")]
    if n_features > 1:  # of one feature, Matérn's kernel is Laplace's
        members.insert(1, Matern(0.5, "auto"))
    if features is None:
        members.append(Linear())
    if 1 < n_features <= ARD_FEATURES:
        members += [Laplacian("ard"), Gaussian("ard")]
    return Stack(members)
