"""Targets of an objective, checked once: vectors, elements known by their Gram matrix, labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from representer.linalg import eigh

ArrayLike = Tensor | npt.ArrayLike


@dataclass(frozen=True)
class Targets:
    """n elements of a Hilbert space with Gram matrix G = R Rᵀ; R is n × q with q ≤ n.

    Norms and errors of anything linear in the targets follow from R: it *is* the targets, up to a rotation.

    Attributes
    ----------
    factor : tensor (n, q)
        R. For p ≤ n given vectors, the vectors themselves.
    vectors : tensor (n, p), optional
        The vectors as given, where p > n made R the smaller matrix.
    abstract : bool
        Only G was given, so that dual coefficients are coefficients on the targets (an n × n matrix).
    """

    factor: Tensor
    vectors: Tensor | None = None
    abstract: bool = False

    def map(self, function: Callable[[Tensor], Tensor]) -> Targets:
        """The same targets after a change of rows, precision or device."""
        vectors = None if self.vectors is None else function(self.vectors)
        return Targets(function(self.factor), vectors, self.abstract)


def hilbert_targets(targets: ArrayLike | None, target_gram: ArrayLike | None) -> Targets:
    """Targets from vectors (n,), (n, p) or from their Gram matrix (n, n): exactly one of the two."""
    if (targets is None) == (target_gram is None):
        raise ValueError(
            "Expected either targets= (an array (n,) or (n, p)) or target_gram= (an array (n, n)), "
            f"got {'neither' if targets is None else 'both'}."
        )
    if target_gram is not None:
        return Targets(_gram_factor(_finite(target_gram, "target_gram")), abstract=True)
    vectors = columns(targets)
    n, p = vectors.shape
    if p <= n:
        return Targets(vectors)
    return Targets(torch.linalg.qr(vectors.mT, mode="r").R.mT, vectors)


def columns(targets: ArrayLike | None) -> Tensor:
    """Finite targets as a matrix (n, p); a vector is one column."""
    values = _finite(targets, "targets")
    if values.ndim not in (1, 2) or values.numel() == 0:
        raise ValueError(f"targets must be an array (n,) or (n, p) with n, p ≥ 1, got {tuple(values.shape)}.")
    return values[:, None] if values.ndim == 1 else values


def positive_weights(sample_weight: ArrayLike | None, n: int) -> Tensor | None:
    """Weights of n samples, all positive; None where there are none."""
    if sample_weight is None:
        return None
    weights = _finite(sample_weight, "sample_weight")
    if weights.shape != (n,) or not bool((weights > 0).all()):
        raise ValueError(
            f"sample_weight must have one positive number for each of the {n} targets; got shape "
            f"{tuple(weights.shape)} and the values {some_values(weights)}. Leave samples of weight zero out."
        )
    return weights


def sign_columns(targets: ArrayLike, *, name: str) -> Tensor:
    """Labels −1, +1 as a matrix (n, p), one column a binary problem."""
    values = columns(targets)
    if not bool((values.abs() == 1.0).all()):
        raise ValueError(
            f"{name} expects labels −1 and +1, got the values {some_values(values)}. Map two classes to −1 "
            "and +1; for more, give one column a class (+1 in the class, −1 outside)."
        )
    return values


def one_hot(targets: ArrayLike, *, name: str) -> Tensor:
    """One-hot labels (n, k): a single 1 in each row, 0 elsewhere."""
    values = columns(targets)
    indicator = bool(((values == 0) | (values == 1)).all()) and bool((values.sum(1) == 1).all())
    if not indicator or values.shape[1] < 2:
        raise ValueError(
            f"{name} expects one-hot targets (n, k), k ≥ 2, with a single 1 a row; got {tuple(values.shape)} "
            f"with the values {some_values(values)}. Encode: (labels[:, None] == classes).astype(float)."
        )
    return values


def _finite(values: ArrayLike | None, name: str) -> Tensor:
    tensor = (
        values.detach() if isinstance(values, Tensor) else torch.as_tensor(np.require(values, requirements=["C", "W"]))
    )
    tensor = tensor if tensor.is_floating_point() else tensor.to(torch.float64)
    bad = torch.nonzero(~torch.isfinite(tensor))
    if len(bad):
        raise ValueError(
            f"{name} must be finite, got {len(bad)} NaN or infinite entries, the first at "
            f"{tuple(bad[0].tolist())}. Remove or impute these rows."
        )
    return tensor


def _gram_factor(gram: Tensor) -> Tensor:
    """R with R Rᵀ = G: a triangle if G has full rank, otherwise as many columns as its rank."""
    if gram.ndim != 2 or gram.shape[0] != gram.shape[1]:
        raise ValueError(
            f"target_gram must be square (n, n), the inner products of the targets; got {tuple(gram.shape)}. "
            "Vector targets belong in targets=."
        )
    factor, info = torch.linalg.cholesky_ex(gram)
    if not info.item():
        return factor
    spectrum = eigh(gram, name="target_gram")
    rounding = len(gram) * torch.finfo(gram.dtype).eps * spectrum.values[-1]
    return spectrum.root()[:, spectrum.values > rounding]


def some_values(values: Tensor) -> list[float]:
    """A few of the values, for an error message."""
    return torch.unique(values)[:5].tolist()
