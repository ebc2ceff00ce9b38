"""Figures for dark pages: greys are turned around, and the colours of data stay."""

from __future__ import annotations

import io

import numpy as np
import pytest

from runs.figures import DARKEST, LIGHTEST, on_dark, save_dark

pytest.importorskip("matplotlib")


def test_greys_are_turned_around_and_colours_stay() -> None:
    colours = np.array([[0, 0, 0, 1], [1, 1, 1, 0.5], [1, 0, 0, 1], [0.2, 0.25, 0.2, 1]], dtype=float)
    turned = on_dark(colours)
    assert np.allclose(turned[0], [LIGHTEST] * 3 + [1])
    assert np.allclose(turned[1], [DARKEST] * 3 + [0.5])
    assert np.array_equal(turned[2], colours[2])
    assert turned[3, 0] > 0.6


def test_a_dark_figure_has_light_text_on_no_ground() -> None:
    from matplotlib.colors import to_rgba
    from matplotlib.figure import Figure
    from matplotlib.image import imread

    figure = Figure(figsize=(3, 2))
    ax = figure.subplots()
    (line,) = ax.plot([0, 1], [0, 1], color="black", linewidth=4)
    points = ax.scatter([0, 1], [1, 0], c=["tab:red", "0.2"])
    mapped = ax.scatter([0.2, 0.5], [0.5, 0.5], c=[1.0, 2.0])
    title = ax.set_title("title")
    figure.savefig(io.BytesIO())
    colours = mapped.get_facecolor().copy()
    dark = io.BytesIO()
    save_dark(figure, dark)
    picture = imread(io.BytesIO(dark.getvalue()))
    assert picture[0, 0, 3] == 0.0  # no ground
    solid = picture[picture[..., 3] == 1.0]
    assert solid.max(0)[:3].min() > 0.9 and not (solid[:, :3].sum(1) < 0.3).any()  # nothing is black
    assert line.get_color()[0] == title.get_color()[0] == LIGHTEST
    assert np.allclose(points.get_facecolor(), on_dark(np.array([to_rgba("tab:red"), to_rgba("0.2")])))
    assert np.array_equal(mapped.get_facecolor(), colours)
