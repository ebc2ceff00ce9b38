"""The generalisation bound of a kernel autoencoder (Laforgue et al., theorem 5)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from representer.functions import Expansion
from representer.operators import Decomposable
from representer.values import is_real

# Codes between which the decoder's kernel is compared to estimate how fast it changes.
SOME_CODES = 500


@dataclass(frozen=True)
class GeneralizationBound:
    """ε(ĥ) − ε* ≤ C₀ · complexity + confidence, with probability 1 − delta.

    ``complexity`` = L M s t √(K p / n), ``confidence`` = 24 M² √(log(2/δ) / (2n)). The paper proves that a universal C₀
    exists but not how large it is; the other constants are estimated on the training data.

    Attributes
    ----------
    complexity, confidence : float
        The two terms, the first without C₀.
    M : float
        The largest norm of a sample in the target space.
    K : float
        The largest Tr K₁(x, x)/p of the encoder's kernel.
    L : float
        How fast the decoder's kernel changes: the largest Tr(K₂(z, z) − 2K₂(z, z') + K₂(z', z'))/‖z − z'‖², as a root.
        The trace is over the coordinates of the target space that the training data span.
    s, t : float
        The norms of encoder and decoder; a constant that was fitted with it is not counted.
    p, n : int
        The size of the code and the number of samples.
    delta : float
        The probability that the bound fails.
    """

    complexity: float
    confidence: float
    M: float
    K: float
    L: float
    s: float
    t: float
    p: int
    n: int
    delta: float

    def __call__(self, C0: float) -> float:
        """The bound for a value of the unknown constant."""
        return C0 * self.complexity + self.confidence


@dataclass(frozen=True)
class BoundData:
    """What the bound needs of the training data."""

    n: int
    M: float
    K: float
    L: float

    @classmethod
    def of(cls, functions: Sequence[Expansion], images: Sequence[Any], norms: Tensor, r: int) -> BoundData | None:
        """The estimates; None for more than two functions, of which the theorem does not speak."""
        if len(functions) != 2:
            return None
        encoder, decoder = functions
        p = encoder.coefficients.shape[-1]
        K = encoder.kernel.diag(images[0], p).mean(1).max().item()
        return cls(len(norms), norms.max().clamp(min=0.0).sqrt().item(), K, _lipschitz(decoder, images[1], r))


def _lipschitz(decoder: Expansion, codes: Tensor, r: int) -> float:
    Z = codes[:: max(1, len(codes) // SOME_CODES)]
    kernel = decoder.kernel
    if not isinstance(kernel, Decomposable):
        return math.nan
    gram = kernel.kernel._gram(Z, None)
    diagonal = gram.diagonal()
    change = diagonal[:, None] + diagonal - 2.0 * gram
    apart = torch.cdist(Z, Z).square()
    usable = apart > torch.finfo(Z.dtype).eps ** 0.5 * apart.max()
    if not bool(usable.any()):
        return math.nan
    trace = kernel._operator.as_matrix(r, gram).trace().item()
    return math.sqrt(trace * (change[usable] / apart[usable]).max().clamp(min=0.0).item())


def estimated_bound(functions: Sequence[Expansion], data: BoundData | None, delta: float) -> GeneralizationBound:
    """The bound of fitted functions."""
    if not (is_real(delta) and 0 < delta < 1):
        raise ValueError(f"delta must be a probability between 0 and 1; got {delta!r}.")
    if data is None:
        raise ValueError(
            "The bound is a theorem on one encoder and one decoder; this autoencoder has more layers. Give "
            "n_components as a number."
        )
    encoder, decoder = functions
    s, t = (math.sqrt(max(f.squared_norm().item(), 0.0)) for f in (encoder, decoder))
    p, n, M = encoder.coefficients.shape[-1], data.n, data.M
    complexity = data.L * M * s * t * math.sqrt(data.K * p / n)
    confidence = 24.0 * M**2 * math.sqrt(math.log(2.0 / delta) / (2.0 * n))
    return GeneralizationBound(complexity, confidence, M, data.K, data.L, s, t, p, n, float(delta))
