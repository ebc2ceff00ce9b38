"""Functions with a kink or a jump on [−1, 1]², and samples of them (Bohn et al., sections 3 and 4.2)."""

from __future__ import annotations

from collections.abc import Callable as Function
from typing import Any

import numpy as np
from sklearn.utils import check_random_state


def kink(X: Any) -> np.ndarray:
    """h₁(x, y) = 1 / (0.1 + |x − y|): a kink along the diagonal.

    Parameters
    ----------
    X : array-like of shape (n_samples, 2)
        Points of the plane.

    Returns
    -------
    values : ndarray of shape (n_samples,)
        h₁ at the points.
    """
    x, y = _coordinates(X)
    return 1.0 / (0.1 + np.abs(x - y))


def straight_kink(X: Any) -> np.ndarray:
    """g₁(x, y) = 1 / (0.1 + |x|): a kink along an axis.

    Parameters
    ----------
    X : array-like of shape (n_samples, 2)
        Points of the plane.

    Returns
    -------
    values : ndarray of shape (n_samples,)
        g₁ at the points.
    """
    x, _ = _coordinates(X)
    return 1.0 / (0.1 + np.abs(x))


def jump(X: Any) -> np.ndarray:
    """h₂(x, y) = 1 where x·y > 3/20, else 0: a jump along two hyperbolas.

    Parameters
    ----------
    X : array-like of shape (n_samples, 2)
        Points of the plane.

    Returns
    -------
    values : ndarray of shape (n_samples,)
        h₂ at the points.
    """
    x, y = _coordinates(X)
    return (x * y > 3 / 20).astype(float)


def make_kink(
    n_samples: int = 100, *, noise: float = 0.01, random_state: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Sample ``kink`` at uniform points of [−1, 1]².

    Parameters
    ----------
    n_samples : int, default=100
        How many points.
    noise : float, default=0.01
        Standard deviation of the Gaussian noise on the values.
    random_state : int, RandomState instance or None, default=None
        Seeds points and noise.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
        The points.
    y : ndarray of shape (n_samples,)
        The noisy values.

    Examples
    --------
    >>> from representer.datasets import kink, make_kink
    >>> X, y = make_kink(50, noise=0.0, random_state=0)
    >>> X.shape, bool((y == kink(X)).all())
    ((50, 2), True)
    """
    return _sample(kink, n_samples, noise, random_state)


def make_jump(
    n_samples: int = 100, *, noise: float = 0.01, random_state: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Sample ``jump`` at uniform points of [−1, 1]².

    Parameters
    ----------
    n_samples : int, default=100
        How many points.
    noise : float, default=0.01
        Standard deviation of the Gaussian noise on the values.
    random_state : int, RandomState instance or None, default=None
        Seeds points and noise.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
        The points.
    y : ndarray of shape (n_samples,)
        The noisy values.
    """
    return _sample(jump, n_samples, noise, random_state)


def square_grid(size: int = 101) -> np.ndarray:
    """The points of a uniform grid on [−1, 1]², the first coordinate running fastest.

    Parameters
    ----------
    size : int, default=101
        Points on a side: 101 is the mesh width 1/50 of the paper.

    Returns
    -------
    grid : ndarray of shape (size², 2)
        The points; values on them become a picture by ``values.reshape(size, size)``, y running down the rows.
    """
    if size < 2:
        raise ValueError(f"A grid needs at least 2 points on a side; got size={size!r}.")
    side = np.linspace(-1.0, 1.0, size)
    return np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)


def _coordinates(X: Any) -> np.ndarray:
    X = np.asarray(X, dtype=float)
    if X.ndim != 2 or X.shape[1] != 2:
        raise ValueError(f"Points of the plane are expected, an array (n_samples, 2); got shape {X.shape}.")
    return X.T


def _sample(
    function: Function[[Any], np.ndarray], n_samples: int, noise: float, random_state: Any
) -> tuple[np.ndarray, np.ndarray]:
    if n_samples < 1 or noise < 0:
        raise ValueError(f"n_samples must be positive and noise at least 0; got {n_samples!r} and {noise!r}.")
    rng = check_random_state(random_state)
    X = rng.uniform(-1.0, 1.0, (n_samples, 2))
    return X, function(X) + noise * rng.standard_normal(n_samples)
