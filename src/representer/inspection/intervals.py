"""Intervals and sets with a guarantee, from predictions by fits without some samples: jackknife+ and CV+, on arrays.

Barber, Candès, Ramdas and Tibshirani, 2021: let μ₋ᵢ be the fit without sample i, or without its fold, R_i the size of
its error at sample i, and all samples exchangeable. Then the interval between quantiles of μ₋ᵢ(x) − R_i and
μ₋ᵢ(x) + R_i contains a new target with a probability of at least 1 − 2a, and about 1 − a, if fits treat samples alike.
Errors may be divided by a deviation that the same fit gives at sample i, and multiplied by the one that it gives at x.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from representer.notices import warn
from representer.values import is_real


def check_coverage(coverage: object) -> float:
    """A number between 0 and 1, or a ValueError."""
    if not (is_real(coverage) and 0.0 < coverage < 1.0):  # type: ignore[operator]
        raise ValueError(
            f"coverage must be a number between 0 and 1, such as 0.9 for nine of ten new targets; got {coverage!r}."
        )
    return float(coverage)  # type: ignore[arg-type]


def sample_masses(errors: Tensor, groups: Tensor | None = None) -> Tensor:
    """The mass (n, p) of each error: a group has 1/(G + 1) of G groups, which its samples share; NaN have none.

    So a quantile of the masses is one for a new sample of a new group; what is missing to one stands for it.

    Examples
    --------
    >>> import torch
    >>> from representer.inspection.intervals import sample_masses
    >>> sample_masses(torch.zeros(4, 1), torch.tensor([0, 1, 1, 2]))[:, 0].tolist()
    [0.25, 0.125, 0.125, 0.25]
    """
    known = (~errors.isnan()).double()
    members = torch.arange(len(errors)) if groups is None else groups.unique(return_inverse=True)[1].cpu()
    sizes = torch.zeros(int(members.max()) + 1, errors.shape[1], dtype=torch.float64).index_add_(0, members, known)
    shares = known / sizes[members].clamp(min=1.0)
    return shares / ((sizes > 0).sum(0) + 1.0)


def upper_quantile(values: Tensor, masses: Tensor, level: float) -> Tensor:
    """The least value (m, p) of values (m, n, p) up to which the masses (n, p) are ``level``; ∞ where they are less."""
    finite = torch.where((masses > 0).expand_as(values), values, torch.inf)
    ordered, order = finite.sort(dim=1)
    reached = masses.expand_as(values).gather(1, order).cumsum(1) >= level - 1e-12
    place = reached.to(torch.uint8).argmax(1, keepdim=True)
    return torch.where(reached.any(1), ordered.gather(1, place)[:, 0], torch.inf)


def jackknife_plus(centres: Tensor, radii: Tensor, masses: Tensor, coverage: float) -> Tensor:
    """The intervals (m, p, 2) of jackknife+ or CV+ at m new points.

    Parameters
    ----------
    centres : tensor (m, n, p)
        Predictions at the new points by the fit without each of n samples.
    radii : tensor (m, n, p) or (n, p)
        The sizes of the samples' errors; in the locally weighted form, in units of deviations at the new points.
    masses : tensor (n, p)
        What ``sample_masses`` gives.
    coverage : float
        1 − a.

    Examples
    --------
    >>> import torch
    >>> from representer.inspection.intervals import jackknife_plus, sample_masses
    >>> errors = torch.arange(1.0, 10.0)[:, None]
    >>> jackknife_plus(torch.zeros(1, 9, 1), errors, sample_masses(errors), 0.8).tolist()
    [[[-8.0, 8.0]]]
    """
    low = -upper_quantile(radii - centres, masses, coverage)
    return torch.stack([low, upper_quantile(centres + radii, masses, coverage)], -1)


# The powers of deviations by which errors may be divided.
POWERS = (0.0, 0.5, 1.0)


def local_power(sizes: Tensor, deviations: Tensor, masses: Tensor, coverage: float) -> Tensor:
    """The power (p,) of deviations (n, p) with which intervals at the samples themselves would be the narrowest.

    Errors of these sizes (n, p) are divided by it at the samples, and multiplied by it at new points: 0 leaves them as
    they are, 1 trusts the deviations.

    Examples
    --------
    >>> import torch
    >>> from representer.inspection.intervals import local_power, sample_masses
    >>> sizes = torch.arange(1.0, 21.0)[:, None]
    >>> masses = sample_masses(sizes)
    >>> local_power(sizes, sizes, masses, 0.9).tolist(), local_power(sizes, sizes.flip(0), masses, 0.9).tolist()
    ([1.0], [0.0])
    """
    known, widths = ~sizes.isnan(), []
    for power in POWERS:
        scales = torch.where(known, deviations.clamp(min=torch.finfo(deviations.dtype).tiny) ** power, torch.nan)
        radius = upper_quantile((sizes / scales)[None], masses, min(coverage, float(masses.sum(0).min())))[0]
        widths.append(radius * scales.nanmean(0))
    return torch.tensor(POWERS, dtype=sizes.dtype)[torch.stack(widths).argmin(0)]


def conformal_sets(scores: Tensor, own: Tensor, masses: Tensor, coverage: float) -> Tensor:
    """Which of c candidates at m new points cannot be excluded, (m, c): by jackknife+ or CV+ (Romano et al., 2020).

    Parameters
    ----------
    scores : tensor (m, n, c)
        How little each candidate fits the new points by the fit without each of n samples.
    own : tensor (n,)
        How little the targets of these samples fit them, by the fits without them.
    masses : tensor (n,)
        What ``sample_masses`` gives.
    coverage : float
        1 − a: a candidate is excluded if the masses of samples that fit better exceed it. The best candidate stays.
    """
    better = (own[:, None] < scores).to(masses) * masses[:, None]
    kept = better.sum(1) < coverage
    best = scores.mean(1).argmin(1)
    kept[torch.arange(len(kept)), best] = True
    return kept


def warn_of_few(masses: Tensor, coverage: float) -> None:
    """Say so where there are too few samples, or groups, for a coverage: intervals are infinite."""
    total = float(masses.sum(0).min())
    if total < coverage - 1e-12:
        needed = math.ceil(coverage / (1.0 - coverage) - 1e-9)
        have = round(total / (1.0 - total))
        warn(
            f"{have} samples (or groups) that were left out are too few for a coverage of {coverage:g}, which takes "
            f"{needed}: nothing can be excluded, and intervals are infinite. Ask for less, or fit to more samples."
        )
