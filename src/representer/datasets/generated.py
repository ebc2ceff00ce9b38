"""Sets of strings and of curves that are made, not measured: two classes that a kernel can tell apart."""

from __future__ import annotations

from typing import Any

import numpy as np

MOTIF = "GATTACAGCT"
LETTERS = list("ACGT")


def make_strings(
    n_samples: int = 400, *, length: int = 60, random_state: Any = None
) -> tuple[list[str], np.ndarray]:
    """Make random strings over ACGT, half of which hold a motif of ten letters, two of them drawn anew.

    Parameters
    ----------
    n_samples : int, default=400
        The number of strings.
    length : int, default=60
        The length of each, at least 10.
    random_state : int, numpy.random.Generator or None, default=None
        The seed.

    Returns
    -------
    strings : list of str
        The strings.
    classes : ndarray of shape (n_samples,)
        1 where the motif is in, 0 elsewhere, by turns.

    Examples
    --------
    >>> from representer.datasets import make_strings
    >>> strings, classes = make_strings(4, length=12, random_state=0)
    >>> [len(s) for s in strings], classes.tolist()
    ([12, 12, 12, 12], [0, 1, 0, 1])
    """
    if length < len(MOTIF):
        raise ValueError(f"length must be at least {len(MOTIF)}, that of the motif; got {length!r}.")
    rng = np.random.default_rng(random_state)
    classes = np.arange(n_samples) % 2
    strings = []
    for has_motif in classes:
        letters = rng.choice(LETTERS, length)
        if has_motif:
            motif = np.array(list(MOTIF))
            motif[rng.choice(len(MOTIF), 2, replace=False)] = rng.choice(LETTERS, 2)
            start = rng.integers(0, length - len(MOTIF) + 1)
            letters[start : start + len(MOTIF)] = motif
        strings.append("".join(letters))
    return strings, classes


def make_bumps(
    n_samples: int = 200, *, noise: float = 0.2, random_state: Any = None
) -> tuple[list[tuple[np.ndarray, np.ndarray]], np.ndarray]:
    """Make curves with two bumps, the first or the second the higher one, at irregular times, warped and noisy.

    Parameters
    ----------
    n_samples : int, default=200
        The number of curves.
    noise : float, default=0.2
        The standard deviation of what is added to each value.
    random_state : int, numpy.random.Generator or None, default=None
        The seed.

    Returns
    -------
    curves : list of pairs (times, values)
        27 to 46 times from 0 to 1 each.
    classes : ndarray of shape (n_samples,)
        1 where the second bump is the higher one, 0 elsewhere, by turns.

    Examples
    --------
    >>> from representer.datasets import make_bumps
    >>> curves, classes = make_bumps(4, random_state=0)
    >>> len(curves), classes.tolist()
    (4, [0, 1, 0, 1])
    """
    rng = np.random.default_rng(random_state)
    classes = np.arange(n_samples) % 2
    curves = []
    for second in classes:
        times = np.sort(np.r_[0.0, rng.uniform(0, 1, rng.integers(25, 45)), 1.0])
        warped = times ** rng.uniform(0.6, 1.7)
        heights = (0.8, 1.2) if second else (1.2, 0.8)
        bumps = [np.exp(-0.5 * ((warped - centre) / 0.07) ** 2) for centre in (0.3, 0.7)]
        values = heights[0] * bumps[0] + heights[1] * bumps[1]
        curves.append((times, values + noise * rng.normal(size=len(times))))
    return curves, classes
