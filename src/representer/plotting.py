"""Figures of errors, inner layers, contributions and spectra, which need matplotlib (the extra ``plot``)."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Okabe and Ito's colours: orange, blue, green, purple, sky blue, vermilion, yellow, black.
CLASSES = (
    np.array(
        [
            (230, 159, 0),
            (0, 114, 178),
            (0, 158, 115),
            (204, 121, 167),
            (86, 180, 233),
            (213, 94, 0),
            (240, 228, 66),
            (0, 0, 0),
        ]
    )
    / 255.0
)


def panels(
    n_rows: int,
    n_columns: int,
    *,
    size: float = 3.2,
    row_labels: Sequence[str] = (),
    column_labels: Sequence[str] = (),
    title: str = "",
) -> tuple[Figure, np.ndarray]:
    """Make a figure of equal square panels that no window shows; ``figure.savefig`` saves it.

    Parameters
    ----------
    n_rows, n_columns : int
        The numbers of rows and columns of panels.
    size : float, default=3.2
        The side of a panel in inches.
    row_labels, column_labels : sequence of str, default=()
        The texts at the left and above.
    title : str, default=""
        The text above everything.

    Returns
    -------
    figure : Figure
        The figure.
    axes : ndarray of Axes, shape (n_rows, n_columns)
        Its panels.

    Examples
    --------
    >>> from representer.plotting import panels
    >>> figure, axes = panels(1, 2, column_labels=["before", "after"])
    >>> axes.shape, axes[0, 1].get_title()
    ((1, 2), 'after')
    """
    figure_class = _matplotlib("figure").Figure
    figure = figure_class(figsize=(size * n_columns + 1.0, size * n_rows + 0.6), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False)
    for ax, label in zip(axes[0], column_labels, strict=False):
        ax.set_title(label)
    for ax, label in zip(axes[:, 0], row_labels, strict=False):
        ax.annotate(
            label,
            (0.0, 0.5),
            (-72, 0),  # left of ticks and axis label
            xycoords="axes fraction",
            textcoords="offset points",
            rotation=90,
            ha="center",
            va="center",
            fontsize="large",
        )
    if title:
        figure.suptitle(title)
    return figure, axes


def surface_map(
    values: npt.ArrayLike,
    *,
    limits: tuple[float, float] | None = None,
    colors: str = "viridis",
    points: npt.ArrayLike | None = None,
    label: str = "",
    colorbar: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Draw a function on [−1, 1]² as a picture.

    Parameters
    ----------
    values : array-like of shape (size²,) or (size, size)
        The values on the points of ``datasets.square_grid(size)``.
    limits : pair of float or None, default=None
        The ends of the colour scale; None is the range of the values.
    colors : str, default="viridis"
        A colour map of matplotlib.
    points : array-like of shape (n, 2) or None, default=None
        Points that are drawn as dots.
    label : str, default=""
        The text beside the colour scale.
    colorbar : bool, default=True
        Is the colour scale drawn beside the panel?
    ax : Axes or None, default=None
        The axes to draw on; None: the current axes of pyplot.

    Returns
    -------
    ax : Axes
        The axes with the drawing.

    Examples
    --------
    >>> from representer.datasets import jump, square_grid
    >>> from representer.plotting import panels, surface_map
    >>> _, axes = panels(1, 1)
    >>> surface_map(jump(square_grid(11)), label="value", ax=axes[0, 0]).get_xlabel()
    'x'
    """
    ax = ax or _matplotlib("pyplot").gca()
    picture = _square(values)
    low, high = limits or (float(picture.min()), float(picture.max()))
    image = ax.imshow(
        picture,
        origin="lower",
        extent=(-1, 1, -1, 1),
        vmin=low,
        vmax=high,
        cmap=colors,
        interpolation="nearest",
    )
    if points is not None:
        x, y = np.asarray(points).T
        ax.scatter(x, y, s=5, c="black", linewidths=0)
    ax.set(xticks=(-1, 0, 1), yticks=(-1, 0, 1), xlabel="x", ylabel="y", xlim=(-1, 1), ylim=(-1, 1))
    if colorbar:
        extend = "max" if picture.max() > high else "neither"
        ax.figure.colorbar(image, ax=ax, label=label, extend=extend)
    return ax


def error_map(
    error: npt.ArrayLike,
    *,
    limit: float = 0.1,
    points: npt.ArrayLike | None = None,
    colorbar: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Draw pointwise errors on [−1, 1]², from blue (none) to red (``limit`` and above).

    Parameters
    ----------
    error : array-like of shape (size²,) or (size, size)
        Errors relative to ‖h‖_∞ on the points of ``datasets.square_grid(size)``.
    limit : float, default=0.1
        The upper end of the colour scale.
    points : array-like of shape (n, 2) or None, default=None
        The training points, drawn as dots.
    colorbar, ax
        As for ``surface_map``.

    Returns
    -------
    ax : Axes
        The axes with the drawing, labelled by the share of the square with an error above ``limit``.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.plotting import error_map, panels
    >>> _, axes = panels(1, 1)
    >>> error_map(np.array([0.0, 0.05, 0.2, 0.3]), ax=axes[0, 0]).get_xlabel()
    'above 10%: 50.0% of the square'
    """
    percent = 100.0 * _square(error)
    ax = surface_map(
        percent,
        limits=(0.0, 100.0 * limit),
        colors="turbo",
        points=points,
        label="error in % of the largest value",
        colorbar=colorbar,
        ax=ax,
    )
    ax.set_xlabel(f"above {limit:.0%}: {np.mean(percent > 100.0 * limit):.1%} of the square")
    return ax


def grid_transformation(
    images: npt.ArrayLike,
    values: npt.ArrayLike,
    *,
    label: str = "",
    colorbar: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Draw the points of a grid at their images under a function into the plane.

    Parameters
    ----------
    images : array-like of shape (n, 2)
        The points g(x_i).
    values : array-like of shape (n,)
        The colours: the value of the target function at x_i.
    label, colorbar, ax
        As for ``surface_map``.

    Returns
    -------
    ax : Axes
        The axes with the drawing.

    Examples
    --------
    >>> from representer.datasets import kink, square_grid
    >>> from representer.plotting import grid_transformation, panels
    >>> _, axes = panels(1, 1)
    >>> grid = square_grid(11)
    >>> grid_transformation(grid**3, kink(grid), ax=axes[0, 0]).get_ylabel()
    'second coordinate'
    """
    ax = ax or _matplotlib("pyplot").gca()
    places = np.asarray(images, dtype=float)
    if places.ndim != 2 or places.shape[1] != 2:
        raise ValueError(f"Only points of the plane, an array (n, 2), can be drawn; got shape {places.shape}.")
    cloud = ax.scatter(places[:, 0], places[:, 1], c=np.asarray(values), s=6, linewidths=0, cmap="turbo")
    ax.set(xlabel="first coordinate", ylabel="second coordinate")
    ax.set_box_aspect(1)
    if colorbar:
        ax.figure.colorbar(cloud, ax=ax, label=label)
    return ax


def contribution_bars(
    names: Sequence[str],
    values: npt.ArrayLike,
    *,
    title: str = "",
    label: str = "contribution",
    ax: Axes | None = None,
) -> Axes:
    """Draw signed contributions as horizontal bars, the first one on top.

    Parameters
    ----------
    names : sequence of str
        The names of the terms.
    values : array-like of shape (n,)
        The contributions.
    title : str, default=""
        The text above.
    label : str, default="contribution"
        The text below.
    ax : Axes or None, default=None
        The axes to draw on; None: the current axes of pyplot.

    Returns
    -------
    ax : Axes
        The axes with the drawing.

    Examples
    --------
    >>> from representer.plotting import contribution_bars, panels
    >>> _, axes = panels(1, 1)
    >>> len(contribution_bars(["sample 3", "sample 1"], [0.7, -0.2], ax=axes[0, 0]).patches)
    2
    """
    if ax is None:
        pyplot = _matplotlib("pyplot")
        ax = pyplot.gca()
        pyplot.gcf().set_layout_engine("constrained")  # names are long
    heights = np.asarray(values, dtype=float)
    colors = [CLASSES[1] if value > 0 else CLASSES[5] for value in heights]
    places = np.arange(len(heights))
    ax.barh(places, heights, color=colors)
    ax.set_yticks(places, [name.replace("$", r"\$") for name in names])
    ax.invert_yaxis()
    ax.axvline(0.0, color="0.5", linewidth=0.8)
    ax.set_xlabel(label)
    if title:
        ax.set_title(title.replace("$", r"\$"), fontsize="medium")
    return ax


def spectrum_line(values: npt.ArrayLike, alpha: float, *, ax: Axes | None = None) -> Axes:
    """Draw eigenvalues, the largest first, on a logarithmic scale, with a line at alpha.

    Parameters
    ----------
    values : array-like of shape (n,)
        Eigenvalues over the number of samples.
    alpha : float
        The penalty.
    ax : Axes or None, default=None
        The axes to draw on; None: the current axes of pyplot.

    Returns
    -------
    ax : Axes
        The axes with the drawing.

    Examples
    --------
    >>> from representer.plotting import panels, spectrum_line
    >>> _, axes = panels(1, 1)
    >>> spectrum_line([1.0, 0.1, 0.01], alpha=0.05, ax=axes[0, 0]).get_yscale()
    'log'
    """
    ax = ax or _matplotlib("pyplot").gca()
    heights = np.asarray(values, dtype=float)
    heights = heights[heights > 1e-17 * heights[0]]
    ax.semilogy(np.arange(1, len(heights) + 1), heights, color=CLASSES[4])
    ax.axhline(alpha, color=CLASSES[0], linestyle="--", label="alpha")
    ax.set(xlabel="direction", ylabel="eigenvalue / n")
    ax.legend(frameon=False)
    return ax


def prediction_scatter(targets: npt.ArrayLike, predictions: npt.ArrayLike, *, ax: Axes | None = None) -> Axes:
    """Draw predictions over targets, with the line on which they are equal.

    Parameters
    ----------
    targets, predictions : array-like of shape (n,)
        The targets, and the predictions of them.
    ax : Axes or None, default=None
        The axes to draw on; None: the current axes of pyplot.

    Returns
    -------
    ax : Axes
        The axes with the drawing.

    Examples
    --------
    >>> from representer.plotting import panels, prediction_scatter
    >>> _, axes = panels(1, 1)
    >>> prediction_scatter([1.0, 2.0, 3.0], [1.1, 1.9, 3.2], ax=axes[0, 0]).get_ylabel()
    'prediction'
    """
    ax = ax or _matplotlib("pyplot").gca()
    x, y = np.asarray(targets, dtype=float), np.asarray(predictions, dtype=float)
    ends = [float(np.nanmin([x, y])), float(np.nanmax([x, y]))]
    ax.plot(ends, ends, color="0.5", linewidth=0.8)
    ax.scatter(x, y, s=12, color=CLASSES[4], linewidths=0, alpha=0.7)
    ax.set(xlabel="target", ylabel="prediction")
    return ax


# The placeholder for the colour of texts while a figure is drawn, which no other part of a figure has.
_INK = "#0a0b0c"


def figure_svg(draw: Callable[[Axes], object], *, width: float = 6.0, height: float = 3.4) -> str | None:
    """A figure as SVG in the colours of the page around it: transparent, with lines and texts in ``currentColor``.

    Parameters
    ----------
    draw : callable
        A function that draws on axes.
    width, height : float
        The size in inches.

    Returns
    -------
    svg : str or None
        The figure; None if matplotlib is not installed (the extra ``plot``).

    Examples
    --------
    >>> from representer.plotting import figure_svg, spectrum_line
    >>> figure_svg(lambda ax: spectrum_line([1.0, 0.1], alpha=0.05, ax=ax))[:4]
    '<svg'
    """
    try:
        new_figure, rc_context = _matplotlib("figure").Figure, _matplotlib("rc_context")
    except ModuleNotFoundError:
        return None
    names = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    style = {**dict.fromkeys(names, _INK), "svg.fonttype": "none", "svg.hashsalt": "representer"}
    with rc_context(style):
        figure = new_figure(figsize=(width, height), layout="constrained")
        ax = figure.subplots()
        draw(ax)
        ax.spines[["top", "right"]].set_visible(False)
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg = text.getvalue()
    return svg[svg.index("<svg") :].replace(_INK, "currentColor")


def class_colors(probabilities: npt.ArrayLike) -> np.ndarray:
    """The colours of samples: the colours of the classes, mixed by their probabilities.

    Parameters
    ----------
    probabilities : array-like of shape (n, n_classes), n_classes ≤ 8
        Rows that sum to 1; the rows of an identity matrix give the colours of the classes themselves.

    Returns
    -------
    colors : ndarray of shape (n, 3)
        Red, green and blue in [0, 1], which people with colour-blindness can tell apart, too.

    Examples
    --------
    >>> from representer.plotting import class_colors
    >>> class_colors([[1.0, 0.0], [0.5, 0.5]]).round(2).tolist()
    [[0.9, 0.62, 0.0], [0.45, 0.54, 0.35]]
    """
    p = np.asarray(probabilities, dtype=float)
    if p.ndim != 2 or p.shape[1] > len(CLASSES):
        raise ValueError(f"An array (n, n_classes) of at most {len(CLASSES)} classes is expected; got shape {p.shape}.")
    return (p @ CLASSES[: p.shape[1]]).clip(0.0, 1.0)


def _square(values: npt.ArrayLike) -> np.ndarray:
    """Values on a square grid as a picture."""
    picture = np.asarray(values, dtype=float)
    size = round(picture.size**0.5)
    if size * size != picture.size or picture.ndim > 2:
        raise ValueError(f"Values on a square grid are expected, size² of them; got shape {picture.shape}.")
    return picture.reshape(size, size)


def _matplotlib(module: str) -> Any:
    """A module of matplotlib, which is imported only for drawing."""
    try:
        import matplotlib.figure
        import matplotlib.pyplot
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "Drawing needs matplotlib; install it with: pip install 'representer[plot]'.", name="matplotlib"
        ) from error
    return getattr(matplotlib, module)
