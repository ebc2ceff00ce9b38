"""Small pictures of one shape, with known factors of variation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.utils import Bunch

from representer.parameters import is_count

# How many values each factor takes unless told otherwise: 3456 pictures.
N_VALUES = {"x": 4, "y": 4, "size": 3, "orientation": 4, "hue": 6, "background": 1, "shape": 3}
SHAPES = ("ellipse", "rectangle", "triangle")
BACKGROUND = 0.4  # how bright a coloured background is


def make_shapes(
    n_samples: int | None = None,
    *,
    n_values: Mapping[str, int] | None = None,
    image_size: int = 16,
    random_state: Any = None,
) -> Bunch:
    """Make small colour pictures of one shape each, with known position, size, orientation, hue and kind.

    Parameters
    ----------
    n_samples : int or None, default=None
        So many different combinations of the factors, at random; None: all of them, in order.
    n_values : mapping or None, default=None
        How many values each factor takes, where not as in ``{"x": 4, "y": 4, "size": 3, "orientation": 4, "hue": 6,
        "background": 1, "shape": 3}``. A factor with one value is constant, and not among the factors that are
        returned; a background of one value is black, of more values coloured.
    image_size : int, default=16
        Pixels on a side.
    random_state : int, numpy.random.Generator or None, default=None
        The seed of the choice.

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
        chosen = np.arange(total)
    elif is_count(n_samples) and n_samples <= total:
        chosen = np.sort(np.random.default_rng(random_state).choice(total, n_samples, replace=False))
    else:
        raise ValueError(
            f"n_samples must be None or from 1 to {total}, the number of combinations; got {n_samples!r}."
        )
    number = dict(zip(counts, np.unravel_index(chosen, list(counts.values())), strict=True))
    values = _values(counts)
    images = _draw({name: values[name][number[name]] for name in counts}, image_size)
    varied = [name for name in counts if counts[name] > 1]
    return Bunch(
        images=images,
        data=images.reshape(len(images), -1),
        factors=np.column_stack([number[name] for name in varied])
        if varied
        else np.empty((len(images), 0), int),
        factor_names=varied,
        factor_values=[values[name] for name in varied],
        categorical=[j for j, name in enumerate(varied) if name == "shape"],
    )


def _counts(n_values: Mapping[str, int] | None) -> dict[str, int]:
    if n_values is not None and not isinstance(n_values, Mapping):
        raise ValueError(
            f"n_values must map names of factors to numbers of values, as {{'hue': 3}}; got {n_values!r}."
        )
    counts = {**N_VALUES, **(n_values or {})}
    for name, n in counts.items():
        if name not in N_VALUES:
            raise ValueError(f"There is no factor {name!r}; there are {', '.join(N_VALUES)}.")
        if not is_count(n) or (name == "shape" and n > len(SHAPES)):
            limit = f"from 1 to {len(SHAPES)}" if name == "shape" else "a positive integer"
            raise ValueError(f"The number of values of {name!r} must be {limit}; got {n!r}.")
    return counts


def _values(counts: Mapping[str, int]) -> dict[str, np.ndarray]:
    """The values of each factor, evenly spread; that of a constant one is in the middle of its range."""

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
    # How far outside the outline, in units of the size: all are twice as long as wide.
    outside = {
        "ellipse": 0.5 * (np.hypot(along, 2.0 * across) - 1.0),
        "rectangle": np.maximum(np.abs(along) - 1.0, np.abs(across) - 0.5),
        "triangle": np.maximum(-along - 1.0, (along - 1.0 + 4.0 * np.abs(across)) / np.sqrt(17.0)),
    }
    distance = np.select(
        [values["shape"][:, None, None] == name for name in SHAPES], [outside[s] for s in SHAPES]
    )
    pixel = 2.0 / image_size
    cover = np.clip(0.5 - distance * size / pixel, 0.0, 1.0)[..., None]
    foreground = _colour(values["hue"])[:, None, None]
    background = BACKGROUND * _colour(values["background"])[:, None, None]
    return cover * foreground + (1.0 - cover) * background


def _colour(hue: np.ndarray) -> np.ndarray:
    """Red, green and blue of a hue, 0 being red, 1/3 green and 2/3 blue; black of NaN."""
    offset = np.abs((hue[:, None] - np.array([0.0, 1.0, 2.0]) / 3.0 + 0.5) % 1.0 - 0.5)
    return np.nan_to_num(np.clip(2.0 - 6.0 * offset, 0.0, 1.0))
