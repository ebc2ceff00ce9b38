"""Deep machines as users state them: what is made of layers, kernels and losses, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from representer.functions import Layer
from representer.kernels import Gaussian, Linear, Polynomial, Spectrum, Stack
from representer.operators import Decomposable
from representer.problems.machines import Machine, as_layer, in_target_units, without_search

X = np.zeros((5, 2))


def test_a_layer_is_stated_by_its_size_by_a_pair_or_by_itself() -> None:
    layer = Layer(Gaussian(1.0), 3)
    assert as_layer(layer) is layer
    assert as_layer(2) == Layer(Polynomial(1, gamma="scale"), 2)
    assert as_layer((Gaussian(1.0), 3)) == layer
    with pytest.raises(ValueError, match="layers lists sizes, pairs"):
        as_layer("rbf")


def test_the_composition_of_a_machine_has_copies_of_its_kernels() -> None:
    kernel = Gaussian(2.0)
    composition = Machine([2, (Gaussian(1.0), 3)], kernel, 0.1, "squared").composition()
    assert [layer.size for layer in composition.layers] == [2, 3] and composition.alpha == 0.1
    assert composition.kernel == Decomposable(kernel) and composition.kernel.kernel is not kernel
    assert Machine("auto", Spectrum(2), "auto", "squared").composition().layers == []  # strings have no inner layer
    with pytest.raises(ValueError, match="The outer kernel takes data of the kind"):
        Machine([2], Spectrum(2), 0.1, "squared").composition()


@pytest.mark.parametrize(
    ("changes", "stacks"),
    [
        ({}, True),
        ({"layers": []}, True),
        ({"layers": [2]}, False),
        ({"loss": "huber"}, False),
        ({"has_own_penalty": True}, False),
        ({"is_approximate": True}, False),
    ],
)
def test_a_machine_stacks_where_the_data_may_decide_on_layers(changes: dict[str, Any], stacks: bool) -> None:
    stated: dict[str, Any] = {"layers": "auto", "kernel": "auto", "alpha": "auto", "loss": "squared", **changes}
    machine = Machine(**stated)
    assert machine.may_stack == stacks
    assert isinstance(machine.stack(X), Stack) == stacks


def test_a_machine_that_goes_on_needs_layers() -> None:
    with pytest.raises(ValueError, match="warm_start=True goes on"):
        Machine("auto", "auto", "auto", "squared", goes_on=True).stack(X)


def test_penalties_of_inner_layers_are_in_units_of_squared_targets() -> None:
    composition = Machine([Layer(Linear(), 2, alpha=3.0), 2], "rbf", 0.1, "squared").composition()
    scaled = in_target_units(composition, 10.0)
    assert scaled.layers[0].alpha == pytest.approx(0.03) and scaled.layers[1].alpha == composition.layers[1].alpha
    with pytest.raises(ValueError, match="beyond the range of numbers"):
        in_target_units(composition, 1e200)


def test_interpolation_takes_one_for_every_alpha_and_other_losses_want_numbers() -> None:
    composition = Machine([(Gaussian(1.0), 2)], Gaussian(1.0), "auto", "interpolate").composition()
    assert without_search(composition, "interpolate").alpha == 1.0
    with pytest.raises(ValueError, match="has no criterion by which"):
        without_search(composition, print)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": -1.0}, "epsilon must be a finite number that is not negative"),
        ({"delta": 0.0}, "delta must be a finite number that is positive"),
        ({"separation": 1.0}, "is for loss='interpolate'"),
        ({"penalty": 3.0}, "penalty must be None or a function"),
    ],
)
def test_losses_that_mean_nothing_are_refused(options: dict[str, Any], message: str) -> None:
    numbers = {"epsilon": 0.1, "delta": 1.35, "separation": 0.0, "penalty": None, **options}
    with pytest.raises(ValueError, match=message):
        Machine([], "rbf", 0.1, "squared").stated_loss(0.1, **numbers)
