"""Searches on Stiefel manifolds, on problems that are made to behave badly."""

from __future__ import annotations

from itertools import islice
from types import SimpleNamespace

import pytest
import torch

from representer.optimize import stiefel
from representer.optimize.stiefel import NEWTON_PATIENCE, StalledError, ascent

START = [torch.eye(4, 2, dtype=torch.float64)]
SLOPE = [torch.eye(4, 2, dtype=torch.float64).roll(2, 0)]  # a tangent of the start


def state_of(point, energy, residual):
    multipliers = [H.mT @ H for H in point]
    return SimpleNamespace(hidden=START, energy=energy, residual=residual, gradients=SLOPE, multipliers=multipliers)


def identity(state):
    return lambda vectors: vectors


def test_the_trust_region_does_not_grow_beyond_the_manifold(monkeypatch):
    """Each step rises by more than its model says: a radius that doubles with each of them leaves the numbers."""
    monkeypatch.setattr(stiefel, "hessian", lambda evaluate, state: lambda vectors: [-v for v in vectors])
    energies = iter(range(10**6))
    states = ascent(lambda point: state_of(point, 1e3 * next(energies), 1.0), START, identity, 1e-6)
    assert len(list(islice(states, 600))) == 600


def test_an_ascent_ends_where_rounding_hides_its_steps():
    """Energies that no step changes, and a residual that stays above the tolerance."""
    flat = [1e-12 * slope for slope in SLOPE]

    def evaluate(point):
        found = state_of(point, 1.0, 1e-13)
        found.gradients = flat
        return found

    states = ascent(evaluate, START, identity, 1e-15)
    with pytest.raises(StalledError, match="stays near"):
        for _ in range(NEWTON_PATIENCE + 2):
            next(states)
