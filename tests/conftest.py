"""What every test gets: no screen, the same random numbers in any order, and a watch over torch's global state."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator

os.environ.setdefault("MPLBACKEND", "Agg")

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

# Exact arithmetic takes as long as it takes, and CI must not depend on luck, nor on how busy the machine is. To search
# for new counterexamples: HYPOTHESIS_PROFILE=thorough make test-all
WITHOUT_A_CLOCK = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("default", **WITHOUT_A_CLOCK, derandomize=True, max_examples=25)
settings.register_profile("thorough", **WITHOUT_A_CLOCK, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is imported and collected lives as long as the session: the garbage collector need not look at it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True, scope="session")
def ctrl_c_interrupts() -> Iterator[None]:
    """Also where the tests run in the background, which a shell starts with Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator that starts at the same place in every test."""
    return np.random.default_rng(0)


@pytest.fixture(autouse=True, scope="session")
def imported_generators(request: pytest.FixtureRequest) -> dict[str, list[tuple[np.random.Generator, dict]]]:
    """The generators that are global in modules of tests, and their states after the import, by module."""
    modules = {item.module.__name__: item.module for item in request.session.items if isinstance(item, pytest.Function)}
    return {
        name: [(own, own.bit_generator.state) for own in vars(module).values() if isinstance(own, np.random.Generator)]
        for name, module in modules.items()
    }


@pytest.fixture(autouse=True)
def tests_draw_the_same_in_any_order(request: pytest.FixtureRequest, imported_generators: dict[str, list]) -> None:
    """A test draws from the generator of its module what it draws when it runs alone."""
    for generator, state in imported_generators.get(request.node.module.__name__, ()):
        generator.bit_generator.state = state


def _torch_state() -> dict[str, object]:
    return {
        "default dtype": torch.get_default_dtype(),
        "number of threads": torch.get_num_threads(),
        "gradient mode": torch.is_grad_enabled(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
    }


@pytest.fixture(autouse=True)
def torch_state_is_left_alone() -> Iterator[None]:
    """The library never changes torch's global state; neither does a test."""
    before = _torch_state()
    yield
    after = _torch_state()
    changed = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
    assert not changed, f"torch's global state was changed and not put back: {changed}"
