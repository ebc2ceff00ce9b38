"""How many levels and components the data deserve, without labels (section 5.2 of Tonin et al.)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from representer.functions.levels import is_constant


class Architecture(NamedTuple):
    """Numbers of components, what they explain, and why there are no more levels."""

    n_components: list[int]
    explained_variance_ratio: list[np.ndarray]
    reason: str


class FittedLevels(NamedTuple):
    """What levels that were fitted together explain, and their hidden features."""

    ratios: list[np.ndarray]
    hidden: list[np.ndarray]

    @property
    def sizes(self) -> list[int]:
        """The number of components of each level."""
        return [H.shape[1] for H in self.hidden]


Fit = Callable[[list[float]], FittedLevels]  # of the numbers of components, or shares of the variance


def suggested(fit: Fit, variance: float, max_levels: int, min_gain: float, *, center: bool | str) -> Architecture:
    """Add levels until the last one holds a share of its variance in its first component, or gains too little."""
    levels, reason = fit([variance]), f"max_levels={max_levels}"
    while len(levels.sizes) < max_levels:
        before = levels.ratios[-1][0]
        deeper = _adjusted(fit, fit([*levels.sizes, variance]), variance, min_gain, center)
        first = deeper.ratios[-1][0]
        if first < before + min_gain:
            reason = f"the first component of one more level holds {first:.1%}, that of the last {before:.1%}"
            break
        levels = deeper
        if first >= variance:
            reason = f"the first component of the last level holds {first:.1%} of its variance"
            break
    return Architecture(levels.sizes, levels.ratios, reason)


def _adjusted(fit: Fit, levels: FittedLevels, variance: float, min_gain: float, center: bool | str) -> FittedLevels:
    """Fit with the components that the levels need together: those that hold the share, and vary.

    A level that holds less than its share (negative η take from the levels below) gets one component more, as long as
    that adds ``min_gain``; a level that has grown does not shrink again.
    """
    least = [1] * len(levels.hidden)
    held = [0.0] * len(least)  # the variance of each level when it last grew
    while True:
        needed = []
        for j, (ratios, H) in enumerate(zip(*levels, strict=True)):
            centered = center if isinstance(center, bool) else j == 0
            varying = ratios[~is_constant(H)] if centered else ratios
            enough = int((varying.cumsum() < variance).sum()) + 1
            if enough > len(varying):
                room = len(varying) == len(ratios) and sum(levels.sizes) < len(H)
                grows = room and varying.sum() >= held[j] + min_gain
                enough = max(1, len(varying) + int(grows))
                if grows:
                    least[j], held[j] = enough, float(varying.sum())
            needed.append(max(enough, least[j]))
        if needed == levels.sizes:
            return levels
        levels = fit(list(needed))
