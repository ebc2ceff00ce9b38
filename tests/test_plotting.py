"""Figures: what they show, in which units."""

from __future__ import annotations

import numpy as np
import pytest

from representer import plotting


def test_error_map_shows_the_scale_of_the_paper() -> None:
    figure, axes = plotting.panels(1, 2, row_labels=["h₁"], column_labels=["left", "right"], title="all")
    error = np.linspace(0, 0.2, 25)
    ax = plotting.error_map(error, points=[[0.0, 0.5]], ax=axes[0, 0])
    image = ax.images[0]
    assert image.get_clim() == (0.0, 10.0)
    assert np.allclose(image.get_array(), 100 * error.reshape(5, 5))
    assert image.get_extent() == [-1, 1, -1, 1] or tuple(image.get_extent()) == (-1, 1, -1, 1)
    assert image.origin == "lower"
    assert "above 10%: 48.0% of the square" in ax.get_xlabel()  # 12 of 25
    assert ax.collections[0].get_offsets().tolist() == [[0.0, 0.5]]
    assert len(figure.axes) == 3  # two panels and a colour scale
    assert ax.get_title() == "left"


def test_grid_transformation_draws_the_images() -> None:
    figure, axes = plotting.panels(1, 1)
    images = np.arange(8.0).reshape(4, 2)
    ax = plotting.grid_transformation(images, np.arange(4.0), ax=axes[0, 0], colorbar=False)
    assert ax.collections[0].get_offsets().tolist() == images.tolist()
    assert ax.collections[0].get_array().tolist() == [0, 1, 2, 3]
    assert len(figure.axes) == 1
    with pytest.raises(ValueError, match=r"got shape \(4, 3\)"):
        plotting.grid_transformation(np.zeros((4, 3)), np.zeros(4), ax=ax)
    with pytest.raises(ValueError, match=r"size² of them; got shape \(5,\)"):
        plotting.error_map(np.zeros(5), ax=ax)


def test_colors_of_classes_are_mixed_by_probabilities() -> None:
    classes = plotting.class_colors(np.eye(8))
    assert classes.shape == (8, 3) and len(np.unique(classes, axis=0)) == 8
    np.testing.assert_allclose(plotting.class_colors([[0.25, 0.75]]), [0.25 * classes[0] + 0.75 * classes[1]])
    with pytest.raises(ValueError, match="at most 8 classes"):
        plotting.class_colors(np.eye(9))
