"""Generated data: functions with a kink or a jump, points, strings, curves, pictures with known factors."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
from sklearn.utils import Bunch, check_random_state

from representer.values import argument_repr, as_floats, as_generator, is_count, is_real

Seed = int | np.random.Generator | None
RADII = (0.5, 1.5, 2.5)
MOTIF = "GATTACAGCT"
LETTERS = list("ACGT")
# The default number of values of each factor of a picture, which make 3456 pictures.
N_VALUES = {"x": 4, "y": 4, "size": 3, "orientation": 4, "hue": 6, "background": 1, "shape": 3}
SHAPES = ("ellipse", "rectangle", "triangle")
BACKGROUND = 0.4  # the brightness of a coloured background


def kink(X: npt.ArrayLike) -> np.ndarray:
    """h₁(x, y) = 1 / (0.1 + |x − y|): a kink along the diagonal.

    Parameters
    ----------
    X : array-like of shape (n_samples, 2)
        Points of the plane.

    Returns
    -------
    values : ndarray of shape (n_samples,)
        h₁ at the points.

    Examples
    --------
    >>> from representer.datasets import kink
    >>> kink([[0.5, 0.5], [0.4, 0.0]]).tolist()
    [10.0, 2.0]
    """
    x, y = _coordinates(X)
    return 1.0 / (0.1 + np.abs(x - y))


def straight_kink(X: npt.ArrayLike) -> np.ndarray:
    """g₁(x, y) = 1 / (0.1 + |x|): a kink along an axis.

    Parameters
    ----------
    X : array-like of shape (n_samples, 2)
        Points of the plane.

    Returns
    -------
    values : ndarray of shape (n_samples,)
        g₁ at the points.

    Examples
    --------
    >>> from representer.datasets import straight_kink
    >>> straight_kink([[0.0, 0.5], [0.4, 0.0]]).tolist()
    [10.0, 2.0]
    """
    x, _ = _coordinates(X)
    return 1.0 / (0.1 + np.abs(x))


def jump(X: npt.ArrayLike) -> np.ndarray:
    """h₂(x, y) = 1 where x·y > 3/20, else 0: a jump along two hyperbolas.

    Parameters
    ----------
    X : array-like of shape (n_samples, 2)
        Points of the plane.

    Returns
    -------
    values : ndarray of shape (n_samples,)
        h₂ at the points.

    Examples
    --------
    >>> from representer.datasets import jump
    >>> jump([[0.5, 0.5], [0.1, 0.5]]).tolist()
    [1.0, 0.0]
    """
    x, y = _coordinates(X)
    return (x * y > 3 / 20).astype(float)


def make_kink(
    n_samples: int = 100, *, noise: float = 0.01, random_state: int | np.random.RandomState | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Sample ``kink`` at uniform points of [−1, 1]².

    Parameters
    ----------
    n_samples : int, default=100
        The number of points.
    noise : float, default=0.01
        The standard deviation of the Gaussian noise on the values.
    random_state : int, RandomState instance or None, default=None
        The seed of points and noise.

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
    n_samples: int = 100, *, noise: float = 0.01, random_state: int | np.random.RandomState | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Sample ``jump`` at uniform points of [−1, 1]².

    Parameters
    ----------
    n_samples, noise, random_state
        As for ``make_kink``.

    Returns
    -------
    X, y : ndarrays of shape (n_samples, 2) and (n_samples,)
        The points and the noisy values.

    Examples
    --------
    >>> from representer.datasets import jump, make_jump
    >>> X, y = make_jump(50, noise=0.0, random_state=0)
    >>> X.shape, bool((y == jump(X)).all())
    ((50, 2), True)
    """
    return _sample(jump, n_samples, noise, random_state)


def square_grid(size: int = 101) -> np.ndarray:
    """The points of a uniform grid on [−1, 1]², the first coordinate running fastest.

    Parameters
    ----------
    size : int, default=101
        The number of points on a side; 101 gives the mesh width 1/50 of the paper.

    Returns
    -------
    grid : ndarray of shape (size², 2)
        The points; values on them become a picture by ``values.reshape(size, size)``, y running down the rows.

    Examples
    --------
    >>> from representer.datasets import square_grid
    >>> square_grid(2).tolist()
    [[-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0], [1.0, 1.0]]
    """
    if not (is_count(size) and size >= 2):
        raise ValueError(f"A grid needs at least 2 points on a side; got size={argument_repr(size):.60}.")
    side = np.linspace(-1.0, 1.0, size)
    return np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)


def _coordinates(X: npt.ArrayLike) -> np.ndarray:
    """The coordinates x and y of points of the plane."""
    points = as_floats(X, "X")
    if points.ndim != 2 or points.shape[1] != 2:
        raise ValueError(f"Points of the plane are expected, an array (n_samples, 2); got shape {points.shape}.")
    return points.T


def _sample(
    function: Callable[[npt.ArrayLike], np.ndarray],
    n_samples: int,
    noise: float,
    random_state: int | np.random.RandomState | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Values of a function at random points of the square, with noise."""
    _check_size(n_samples, noise)
    rng = check_random_state(random_state)
    X = rng.uniform(-1.0, 1.0, (n_samples, 2))
    return X, function(X) + noise * rng.standard_normal(n_samples)


def make_circles3(
    n_samples: int = 300, *, noise: float = 0.1, random_state: Seed = None
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
        The circle of each point: 0, 1 or 2.

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


def make_synth1(n_samples: int = 100, *, noise: float = 0.05, random_state: Seed = None) -> np.ndarray:
    """Make points on the sides of the square [−1, 1]² (Tonin et al., Synth 1).

    Parameters
    ----------
    n_samples : int, default=100
        The number of points.
    noise : float, default=0.05
        The standard deviation of the Gaussian noise on each coordinate.
    random_state : int, numpy.random.Generator or None, default=None
        The seed.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
        The points.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.datasets import make_synth1
    >>> X = make_synth1(20, noise=0.0, random_state=0)
    >>> np.allclose(np.abs(X).max(axis=1), 1.0)
    True
    """
    rng = _generator(n_samples, noise, random_state)
    return _square(rng.random(n_samples)) + noise * rng.standard_normal((n_samples, 2))


def make_synth2(
    n_samples: int = 100, *, noise: float = 0.1, random_state: Seed = None
) -> tuple[np.ndarray, np.ndarray]:
    """Make points on a square, two spirals and a ring (Tonin et al., Synth 2).

    Parameters
    ----------
    n_samples : int, default=100
        The number of points; a fifth lies on the square, on each spiral, and on each of the two edges of the ring.
    noise : float, default=0.1
        The standard deviation of the Gaussian noise on each coordinate.
    random_state : int, numpy.random.Generator or None, default=None
        The seed.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
        The points.
    curve : ndarray of shape (n_samples,)
        0 on the square, 1 and 2 on the spirals, 3 on the ring.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.datasets import make_synth2
    >>> X, curve = make_synth2(10, random_state=0)
    >>> X.shape, np.bincount(curve).tolist()
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


def make_synth3(n_samples: int = 100, *, n_features: int = 140, random_state: Seed = None) -> np.ndarray:
    """Make normal vectors with zero mean and a random covariance matrix A Aᵀ (Tonin et al., Synth 3).

    The entries of A are standard normal. (The paper's section 5 speaks of mixed Gaussian distributions, its appendix B
    of one distribution with zero mean and fixed covariance, which this is.) A training and a test set of the same
    distribution are parts of the vectors of one call.

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

    Examples
    --------
    >>> from representer.datasets import make_synth3
    >>> make_synth3(10, n_features=3, random_state=0).shape
    (10, 3)
    """
    rng = _generator(n_samples, 0.0, random_state)
    if not is_count(n_features):
        raise ValueError(f"n_features must be positive, an integer; got {n_features!r}.")
    mixing = rng.standard_normal((n_features, n_features))
    return rng.standard_normal((n_samples, n_features)) @ mixing.T


def _generator(n_samples: int, noise: float, random_state: Seed) -> np.random.Generator:
    """The random number generator of a set; an error if its size or its noise is inadmissible."""
    _check_size(n_samples, noise)
    return as_generator(random_state)


def _check_size(n_samples: int, noise: float) -> None:
    """Refuse an inadmissible size or noise of a set."""
    if not is_count(n_samples) or not (is_real(noise) and 0.0 <= noise < np.inf):
        raise ValueError(
            "n_samples must be positive, an integer, and noise at least 0, a finite number; got "
            f"{argument_repr(n_samples):.60} and {argument_repr(noise):.60}."
        )


def _square(t: np.ndarray) -> np.ndarray:
    """The points on the sides of the square [−1, 1]² at the shares t of the way round it."""
    side, along = np.divmod(4.0 * t, 1.0)
    corners = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0]])
    start, end = corners[side.astype(int)], corners[side.astype(int) + 1]
    return start + along[:, None] * (end - start)


def _direction(angle: np.ndarray) -> np.ndarray:
    """The unit vectors at these angles."""
    return np.column_stack([np.cos(angle), np.sin(angle)])


def make_strings(n_samples: int = 400, *, length: int = 60, random_state: Seed = None) -> tuple[list[str], np.ndarray]:
    """Make random strings over ACGT, half of which hold a motif of ten letters, two of which are drawn anew.

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
        1 for strings with the motif, 0 for others, in turns.

    Examples
    --------
    >>> from representer.datasets import make_strings
    >>> strings, classes = make_strings(4, length=12, random_state=0)
    >>> [len(s) for s in strings], classes.tolist()
    ([12, 12, 12, 12], [0, 1, 0, 1])
    """
    if not (is_count(length) and length >= len(MOTIF)):
        raise ValueError(f"length must be at least {len(MOTIF)}, that of the motif; got {argument_repr(length):.60}.")
    rng = _generator(n_samples, 0.0, random_state)
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
    n_samples: int = 200, *, noise: float = 0.2, random_state: Seed = None
) -> tuple[list[tuple[np.ndarray, np.ndarray]], np.ndarray]:
    """Make warped and noisy curves at irregular times with two bumps, of which the first or the second is higher.

    Parameters
    ----------
    n_samples : int, default=200
        The number of curves.
    noise : float, default=0.2
        The standard deviation of the Gaussian noise on each value.
    random_state : int, numpy.random.Generator or None, default=None
        The seed.

    Returns
    -------
    curves : list of pairs (times, values)
        Each curve has 27 to 46 times from 0 to 1.
    classes : ndarray of shape (n_samples,)
        1 where the second bump is higher, 0 elsewhere, in turns.

    Examples
    --------
    >>> from representer.datasets import make_bumps
    >>> curves, classes = make_bumps(4, random_state=0)
    >>> len(curves), classes.tolist()
    (4, [0, 1, 0, 1])
    """
    rng = _generator(n_samples, noise, random_state)
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


def make_shapes(
    n_samples: int | None = None,
    *,
    n_values: Mapping[str, int] | None = None,
    image_size: int = 16,
    random_state: Seed = None,
) -> Bunch:
    """Make small colour pictures of one shape each, with known position, size, orientation, hue and kind.

    Parameters
    ----------
    n_samples : int or None, default=None
        The number of different combinations of the factors, drawn at random; None: all of them, in order.
    n_values : mapping or None, default=None
        The number of values of each factor, where it is not that of ``{"x": 4, "y": 4, "size": 3, "orientation": 4,
        "hue": 6, "background": 1, "shape": 3}``. A factor with one value is constant, and not among the factors that
        are returned; a background of one value is black, of more values coloured.
    image_size : int, default=16
        Pixels on a side.
    random_state : int, numpy.random.Generator or None, default=None
        The seed of the drawn combinations.

    Returns
    -------
    bunch : Bunch
        ``images`` (n, image_size, image_size, 3) in [0, 1], ``data``, the same as rows of numbers, ``factors``
        (n, n_factors), the number of the value of each factor that varies, ``factor_names``, ``factor_values``, a list
        with the values themselves (positions and sizes in units of half a side, orientations in degrees, hues from 0 to
        1, names of shapes), and ``categorical``, which of the factors are names.

    Examples
    --------
    >>> from representer.datasets import make_shapes
    >>> shapes = make_shapes(100, n_values={"shape": 1}, random_state=0)
    >>> shapes.images.shape, shapes.factor_names
    ((100, 16, 16, 3), ['x', 'y', 'size', 'orientation', 'hue'])
    """
    counts = _counts(n_values)
    if not is_count(image_size) or image_size < 8:
        raise ValueError(f"image_size must be an integer of at least 8; got {image_size!r}.")
    total = int(np.prod(list(counts.values())))
    if n_samples is None:
        combination = np.arange(total)
    elif is_count(n_samples) and n_samples <= total:
        combination = np.sort(np.random.default_rng(random_state).choice(total, n_samples, replace=False))
    else:
        raise ValueError(f"n_samples must be None or from 1 to {total}, the number of combinations; got {n_samples!r}.")
    number = dict(zip(counts, np.unravel_index(combination, list(counts.values())), strict=True))
    values = _values(counts)
    images = _draw({name: values[name][number[name]] for name in counts}, image_size)
    varied = [name for name in counts if counts[name] > 1]
    return Bunch(
        images=images,
        data=images.reshape(len(images), -1),
        factors=np.column_stack([number[name] for name in varied]) if varied else np.empty((len(images), 0), int),
        factor_names=varied,
        factor_values=[values[name] for name in varied],
        categorical=[j for j, name in enumerate(varied) if name == "shape"],
    )


def _counts(n_values: Mapping[str, int] | None) -> dict[str, int]:
    """The number of values of each factor."""
    if n_values is not None and not isinstance(n_values, Mapping):
        raise ValueError(f"n_values must map names of factors to numbers of values, as {{'hue': 3}}; got {n_values!r}.")
    counts = {**N_VALUES, **(n_values or {})}
    for name, n in counts.items():
        if name not in N_VALUES:
            raise ValueError(f"There is no factor {name!r}; there are {', '.join(N_VALUES)}.")
        if not is_count(n) or (name == "shape" and n > len(SHAPES)):
            limit = f"from 1 to {len(SHAPES)}" if name == "shape" else "a positive integer"
            raise ValueError(f"The number of values of {name!r} must be {limit}; got {n!r}.")
    return counts


def _values(counts: Mapping[str, int]) -> dict[str, np.ndarray]:
    """The values of each factor, evenly spread; a constant factor has the value in the middle of its range."""

    def spread(low: float, high: float, n: int) -> np.ndarray:
        return np.linspace(low, high, n) if n > 1 else np.array([(low + high) / 2.0])

    return {
        "x": spread(-0.4, 0.4, counts["x"]),
        "y": spread(-0.4, 0.4, counts["y"]),
        "size": spread(0.3, 0.55, counts["size"]),
        "orientation": 180.0 * np.arange(counts["orientation"]) / counts["orientation"],
        "hue": np.arange(counts["hue"]) / counts["hue"],
        "background": np.arange(counts["background"]) / counts["background"]
        if counts["background"] > 1
        else np.array([np.nan]),
        "shape": np.array(SHAPES[: counts["shape"]]),
    }


def _draw(values: Mapping[str, np.ndarray], image_size: int) -> np.ndarray:
    """Pictures (n, side, side, 3), with smooth edges."""
    axis = (np.arange(image_size) + 0.5) / image_size * 2.0 - 1.0
    dx = axis[None, None, :] - values["x"][:, None, None]
    dy = axis[None, :, None] - values["y"][:, None, None]
    angle = np.deg2rad(values["orientation"])[:, None, None]
    size = values["size"][:, None, None]
    along = (dx * np.cos(angle) + dy * np.sin(angle)) / size
    across = (dy * np.cos(angle) - dx * np.sin(angle)) / size
    # The distance outside the outline, in units of the size; all shapes are twice as long as wide.
    outside = {
        "ellipse": 0.5 * (np.hypot(along, 2.0 * across) - 1.0),
        "rectangle": np.maximum(np.abs(along) - 1.0, np.abs(across) - 0.5),
        "triangle": np.maximum(-along - 1.0, (along - 1.0 + 4.0 * np.abs(across)) / np.sqrt(17.0)),
    }
    distance = np.select([values["shape"][:, None, None] == name for name in SHAPES], [outside[s] for s in SHAPES])
    pixel = 2.0 / image_size
    cover = np.clip(0.5 - distance * size / pixel, 0.0, 1.0)[..., None]
    foreground = _colour(values["hue"])[:, None, None]
    background = BACKGROUND * _colour(values["background"])[:, None, None]
    return cover * foreground + (1.0 - cover) * background


def _colour(hue: np.ndarray) -> np.ndarray:
    """Red, green and blue of a hue, which is red at 0, green at 1/3 and blue at 2/3; NaN is black."""
    offset = np.abs((hue[:, None] - np.array([0.0, 1.0, 2.0]) / 3.0 + 0.5) % 1.0 - 0.5)
    return np.nan_to_num(np.clip(2.0 - 6.0 * offset, 0.0, 1.0))
