"""A figure for dark pages: what was black on white is light on nothing, and the colours of data stay."""

from __future__ import annotations

from typing import IO, Any

import numpy as np

COLOURS = ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor")
LIGHTEST, DARKEST = 0.93, 0.11  # of the greys on a dark page


def save_dark(figure: Any, target: str | IO[bytes], **options: Any) -> None:
    """Save a matplotlib figure for dark pages, as PNG with a transparent ground; the figure keeps these colours.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        A figure that has been saved for light pages, so that its ticks are there.
    target : str or file
        Where to write.
    **options
        What ``figure.savefig`` takes, such as ``dpi``.
    """
    for artist in figure.findobj():
        for name in COLOURS:
            _recolour(artist, name)
    figure.savefig(target, format="png", transparent=True, **options)


def _recolour(artist: Any, name: str) -> None:
    """Turn the greys among the colours of an artist around; colours that stand for numbers stay."""
    get, change = (getattr(artist, f"{verb}_{name}", None) for verb in ("get", "set"))
    mapped = getattr(artist, "get_array", lambda: None)() is not None
    if get is None or change is None or mapped:
        return
    colours = _rgba(get())
    if colours is None or not len(colours):
        return
    turned = on_dark(colours)
    if not np.array_equal(turned, colours):
        new = list(map(tuple, turned))
        change(new if hasattr(artist, "get_offsets") or len(new) > 1 else new[0])


def _rgba(colour: Any) -> np.ndarray | None:
    """Colours as an array (n, 4), or None for what is none, such as "auto"."""
    from matplotlib.colors import to_rgba_array

    try:
        return np.asarray(to_rgba_array(colour))
    except (ValueError, TypeError):
        return None


def on_dark(colours: np.ndarray) -> np.ndarray:
    """The same colours, but greys (red, green and blue differ by less than 0.1) with their lightness turned around."""
    turned = colours.copy()
    grey = np.ptp(colours[:, :3], axis=1) < 0.1
    turned[grey, :3] = LIGHTEST - (LIGHTEST - DARKEST) * colours[grey, :3]
    return turned
