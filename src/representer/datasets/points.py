"""Sets of points that are made: three circles, and the synthetic sets of deep kernel PCA."""

from __future__ import annotations

from typing import Any

import numpy as np

from representer.parameters import is_count, is_real

RADII = (0.5, 1.5, 2.5)


def make_circles3(
    n_samples: int = 300, *, noise: float = 0.1, random_state: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Make points on three concentric circles of radius 0.5, 1.5 and 2.5 (Laforgue et al., figure 3).

    Parameters
    ----------
    n_samples : int, default=300
        The number of points.
    noise : float, default=0.1
        The standard deviation of the radius.
    random_state : int, numpy.random.Generator or None, default=None
        The seed.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
        The points.
    circle : ndarray of shape (n_samples,)
        From which circle each is: 0, 1 or 2.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.datasets import make_circles3
    >>> X, circle = make_circles3(4, noise=0.0, random_state=0)
    >>> np.allclose(np.linalg.norm(X, axis=1), 0.5 + circle)
    True
    """
    rng = _generator(n_samples, noise, random_state)
    circle = rng.integers(0, len(RADII), n_samples)
    angle = rng.uniform(0.0, 2.0 * np.pi, n_samples)
    radius = np.array(RADII)[circle] + noise * rng.standard_normal(n_samples)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]), circle


def make_synth1(n_samples: int = 100, *, noise: float = 0.05, random_state: Any = None) -> np.ndarray:
    """Make points on the sides of the square [−1, 1]² (Tonin et al., Synth 1).

    Parameters
    ----------
    n_samples : int, default=100
        The number of points.
    noise : float, default=0.05
        The standard deviation of what is added to each coordinate.
    random_state : int, numpy.random.Generator or None, default=None
        The seed.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
        The points.
    """
    rng = _generator(n_samples, noise, random_state)
    return _square(rng.random(n_samples)) + noise * rng.standard_normal((n_samples, 2))


def make_synth2(
    n_samples: int = 100, *, noise: float = 0.1, random_state: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Make points on a square, two spirals and a ring (Tonin et al., Synth 2).

    Parameters
    ----------
    n_samples : int, default=100
        The number of points; square and spirals have a fifth each, the two edges of the ring as well.
    noise : float, default=0.1
        The standard deviation of what is added to each coordinate.
    random_state : int, numpy.random.Generator or None, default=None
        The seed.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
        The points.
    part : ndarray of shape (n_samples,)
        0 on the square, 1 and 2 on the spirals, 3 on the ring.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.datasets import make_synth2
    >>> X, part = make_synth2(10, random_state=0)
    >>> X.shape, np.bincount(part).tolist()
    ((10, 2), [2, 2, 2, 4])
    """
    rng = _generator(n_samples, noise, random_state)
    curve = np.arange(n_samples) % 5
    t = rng.random(n_samples)
    X = np.empty((n_samples, 2))
    X[curve == 0] = 2.0 * _square(t[curve == 0]) + [-3.0, 2.5]
    for number, centre, width in ((1, (5.0, 0.0), 0.2), (2, (-4.0, -2.0), 0.15)):
        angle = 8.0 * np.pi * t[curve == number]
        X[curve == number] = (width * angle)[:, None] * _direction(angle) + centre
    for number, radius in ((3, 1.2), (4, 2.8)):
        X[curve == number] = radius * _direction(2.0 * np.pi * t[curve == number]) + (14.0, 0.0)
    return X + noise * rng.standard_normal(X.shape), np.minimum(curve, 3)


def make_synth3(n_samples: int = 100, *, n_features: int = 140, random_state: Any = None) -> np.ndarray:
    """Make normal vectors with zero mean and a random covariance matrix A Aᵀ (Tonin et al., Synth 3).

    The entries of A are standard normal. (The paper's section 5 speaks of mixed Gaussian distributions, its appendix B
    of one distribution with zero mean and fixed covariance: these are the latter.) Training and test sets of the same
    distribution are parts of what one call returns.

    Parameters
    ----------
    n_samples : int, default=100
        The number of vectors.
    n_features : int, default=140
        Their dimension.
    random_state : int, numpy.random.Generator or None, default=None
        The seed of covariance matrix and vectors.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
        The vectors.
    """
    rng = _generator(n_samples, 0.0, random_state)
    if not is_count(n_features):
        raise ValueError(f"n_features must be positive, an integer; got {n_features!r}.")
    mixing = rng.standard_normal((n_features, n_features))
    return rng.standard_normal((n_samples, n_features)) @ mixing.T


def _generator(n_samples: int, noise: float, random_state: Any) -> np.random.Generator:
    if not is_count(n_samples) or not (is_real(noise) and 0.0 <= noise < np.inf):
        raise ValueError(
            "n_samples must be positive, an integer, and noise at least 0, a finite number; got "
            f"{n_samples!r} and {noise!r}."
        )
    return np.random.default_rng(random_state)


def _square(t: np.ndarray) -> np.ndarray:
    """The point of the square [−1, 1]² that lies t of the way round it."""
    side, along = np.divmod(4.0 * t, 1.0)
    corners = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0]])
    start, end = corners[side.astype(int)], corners[side.astype(int) + 1]
    return start + along[:, None] * (end - start)


def _direction(angle: np.ndarray) -> np.ndarray:
    return np.column_stack([np.cos(angle), np.sin(angle)])
