"""A warning names the line of the user's own code, through pipelines and searches, too."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import column_or_1d

from representer import CollapsedComponentWarning, DeepKernelPCA
from representer.notices import noted_warnings, relayed, warn

X = np.random.default_rng(0).standard_normal((8, 2))


def of_this_file() -> None:
    warn("look")


def of_a_learner() -> None:
    DeepKernelPCA([3, 3], ["linear", "linear"]).fit(X)


def of_a_pipeline() -> None:
    make_pipeline(StandardScaler(), DeepKernelPCA([3, 3], ["linear", "linear"])).fit_transform(X)


def of_another_package() -> None:
    relayed(lambda: column_or_1d(X[:, :1], warn=True))


@pytest.mark.parametrize("call", [of_another_package, of_this_file, of_a_learner, of_a_pipeline])
def test_the_line_of_the_user_is_named(call) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert caught
    first = call.__code__.co_firstlineno
    for warning in caught:
        assert (warning.filename, warning.lineno) == (__file__, first + 1)


def test_the_category_is_the_one_that_is_asked_for() -> None:
    with pytest.warns(CollapsedComponentWarning, match="a level"):
        warn("a level", CollapsedComponentWarning)
    with pytest.warns(UserWarning, match="look"):
        warn("look")


def test_a_fit_says_the_same_once() -> None:
    """Every kernel of a choice said that alpha was raised: the same warning up to six times in a fit."""
    with warnings.catch_warnings(record=True) as caught, noted_warnings() as notes:
        warnings.simplefilter("always")
        for _ in range(3):
            warn("alpha was raised")
        warn("another one")
    assert notes == ["alpha was raised", "another one"]
    assert [str(warning.message) for warning in caught] == notes
