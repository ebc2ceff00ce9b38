"""Checks of fitted levels: leading components, the bounds of lemmas 4.1 and 4.2, components that collapsed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from representer.functions.levels import Levels, is_constant, resolved, same_share
from representer.kernels import Linear
from representer.optimize.stiefel import symmetric
from representer.problems.levels import LevelEnergy, coupling
from representer.samples import plain
from representer.values import is_count, is_real


class ApproximationBounds(NamedTuple):
    """The error ‖K_1/η_1 − H_1 Λ_1 H_1ᵀ‖_F between its bounds."""

    lower: float
    error: float
    upper: float


def are_leading(levels: Levels) -> list[bool]:
    """Does each level have the leading eigenvectors of sign(η_j) M_j?"""
    energy = LevelEnergy(levels.data.gram(), list(levels.kernels), levels.weights, levels.center)
    return energy.are_leading(energy.at(levels.equations.hidden, coupled=levels.coupled), coupled=levels.coupled)


# -- lemmas -----------------------------------------------------------------------------------------------------------
def approximation_bounds(levels: Levels) -> ApproximationBounds:
    """The error of the first level's approximation of the Gram matrix of the data, and its bounds (lemma 4.1)."""
    weights, times = levels.weights, levels.outweighs
    K = levels.data.gram() / weights[0]
    hidden = levels.equations.hidden
    H, values = hidden[0], levels.equations.multipliers[0].diagonal()
    low_rank = (H * values) @ H.mT
    error = (K - low_rank).norm().item()
    if len(hidden) == 1:
        return ApproximationBounds(times * error, times * error, times * error)
    above, eta, kernel = levels.equations.around_means[1], weights[1], levels.kernels[0]
    lemma = len(hidden) == 2 and isinstance(kernel, Linear)
    if lemma:
        B = above @ above.mT / eta
    else:
        G = coupling(kernel, H, above)
        B = (G @ H.mT + H @ G.mT - H @ symmetric(H.mT @ G) @ H.mT) / eta
    tail, size = (K + B - low_rank).norm().item(), B.norm().item()
    lower, upper = max(0.0, tail - size), tail + size
    if lemma:
        s2, spectrum = above.shape[1], torch.linalg.eigvalsh(K).flip(0)
        if eta > 0:  # K is positive semi-definite; it is negative for η_1 < 0
            positive = values.clamp(min=0.0).sort(descending=True).values[:s2].sum()
            extra = 2.0 / eta * (positive - spectrum[-s2:].sum().clamp(max=0.0)).item()
        else:
            negative = (-values).clamp(min=0.0).sort(descending=True).values[:s2].sum()
            extra = -2.0 / eta * (spectrum[:s2].sum() + negative).item()
        upper = min(upper, max(0.0, tail**2 - size**2 + extra) ** 0.5)
    return ApproximationBounds(times * lower, times * error, times * upper)


def eta_for_explained_variance(levels: Levels, n_components: int | None, ratio: float | None) -> float:
    """The η_2 of a linear second level at which n components of the first hold a share of s eigenvalues (lemma 4.2).

    Without both numbers it is −1/λ_s, the largest negative η_2 that keeps all eigenvalues positive.
    """
    eta, s = levels.etas[0], levels.sizes[0]
    if eta < 0:
        raise ValueError(
            f"eta of level 0 is {eta!r}: with a negative one all eigenvalues of K_1/η_1 are negative, and the lemma "
            "says nothing. Fit with a positive eta of level 0."
        )
    values = (torch.linalg.eigvalsh(levels.data.gram()).flip(0)[:s] / (eta / levels.data.unit)).cpu().numpy()
    if values[-1] <= len(levels.hidden[0]) * np.finfo(values.dtype).eps * values[0]:
        raise ValueError(
            f"The Gram matrix of the data has no {s} positive eigenvalues, to rounding, so that no negative eta "
            "keeps all of them positive. Lower n_components (a centred Gram matrix has rank n_samples − 1)."
        )
    if ratio is None and n_components is None:
        return -1.0 / float(values[-1])
    if (
        n_components is None
        or ratio is None
        or not (is_count(n_components) and n_components < s and is_real(ratio) and 0 < ratio < 1)
    ):
        raise ValueError(
            f"Give both n_components, from 1 to {s - 1}, and ratio, between 0 and 1; got {n_components!r} and "
            f"{ratio!r}."
        )
    head, total, least = values[:n_components].sum(), values.sum(), values[-1]
    slope, width = ratio * total - head, n_components - ratio * s
    shift = slope / width if width != 0 else np.inf
    if shift == 0:
        raise ValueError(f"Kernel PCA holds exactly {ratio} already: no finite eta is needed.")
    beyond = shift < -least * (1.0 + 1e-9) or (shift > 0 and ratio > head / total)
    if not np.isfinite(shift) or beyond:
        largest = (head - n_components * least) / (total - s * least) if total > s * least else 1.0
        raise ValueError(
            f"{n_components} components hold {head / total:.3f} in kernel PCA and {largest:.3f} with the largest "
            f"negative eta, {-1.0 / least:.3g}; ratio={ratio!r} is out of reach."
        )
    return float(1.0 / shift)


# -- collapsed components ---------------------------------------------------------------------------------------------
def defects(levels: Levels, gram: Tensor, subset: np.ndarray) -> list[str]:
    """The defects of the components of fitted levels, as sentences."""
    texts = _unheard(levels), _collapse(levels), _parted_twins(levels, gram, subset)
    return [text for text in texts if text is not None]


def _unheard(levels: Levels) -> str | None:
    """A sentence for data that weigh less than rounding beside the nonlinear levels above them, else None."""
    equations = levels.equations
    if equations.is_linear or not equations.coupled:  # Linear levels keep the components of the data at any weight.
        return None
    own, total = (matrices[0].abs().max() for matrices in (equations.variances, equations.multipliers))
    if own > torch.finfo(own.dtype).eps * total:
        return None
    return (
        "The kernel of the data weighs less than rounding beside the levels above: hidden_ solves the equations, but "
        "the data decide only where the search began. Scale the data, for example by StandardScaler, or choose a "
        "smaller |eta| for level 0."
    )


def _collapse(levels: Levels) -> str | None:
    """A sentence about components without variance; None if all have some."""
    training, sizes = plain(levels.equations.training), levels.sizes
    hidden = np.concatenate(levels.hidden, 1)
    away = np.abs(hidden - training).max(0) > same_share(hidden) * np.abs(training).max()
    arbitrary = np.split(away, np.cumsum(sizes)[:-1])
    resolved_ranks = [int(resolved(torch.linalg.eigvalsh(v)).sum()) for v in levels.equations.variances]
    ranks = np.minimum(resolved_ranks, levels.equations.ranks)
    missing = np.asarray(sizes) - ranks
    constant = is_constant(levels.hidden[0])
    outweighed = levels.coupled and len(sizes) > 1 and sizes[0] < len(hidden)
    centered = levels.data.means is not None
    if centered and outweighed and constant.any() and missing[0] <= constant.sum():
        j = int(np.flatnonzero(constant)[0])
        zero = ", and 0 in transform" if arbitrary[0][j] else ""
        return (
            f"Component {j} of level 0 is the same for all samples{zero}: the levels above outweigh it. Choose a "
            "larger eta or lengthscale for level 1, or fewer components for level 0."
        )
    if (missing > 0).any():
        j = int(np.flatnonzero(missing > 0)[0])
        zero = "arbitrary in hidden_ and 0 in transform" if arbitrary[j].any() else "made by the levels above"
        return (
            f"Level {j} has only {ranks[j]} components with variance; the others are {zero}, and levels above may "
            f"depend on them. Ask for fewer than n_components={sizes[j]}."
        )
    return None


def _parted_twins(levels: Levels, gram: Tensor, subset: np.ndarray) -> str | None:
    """A sentence about equal samples with different hidden features, which no function has; None if there are none."""
    H, twins = plain(levels.equations.training), plain(levels.data.twins(gram))
    apart = np.abs(H - H[twins]).max(1) > same_share(H) * np.abs(H).max()
    if not apart.any():
        return None
    i = int(np.flatnonzero(apart)[0])
    return (
        f"Samples {subset[twins[i]]} and {subset[i]} are the same to the first kernel, but have different hidden_ "
        f"({apart.sum()} such samples): the levels above tell them apart. transform gives both the same. Leave "
        "duplicates out, or choose a larger lengthscale or |eta| for the upper levels."
    )
