"""Samples: what counts as vectors, which rows are drawn, and where they are."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from representer.samples import as_vectors, count, rows
from representer.samples.in_memory import Block, InMemory, Step
from representer.samples.on_dask import OnDask
from representer.samples.rows import evenly_spaced, sample_groups, sample_rows, sampling_keys

X = np.random.default_rng(0).standard_normal((6, 3))


def test_prepare_is_idempotent_and_shares_memory_where_it_can() -> None:
    prepared = as_vectors(X)
    assert as_vectors(prepared) is prepared
    assert prepared.data_ptr() == X.__array_interface__["data"][0]


def test_count() -> None:
    assert count(torch.zeros(4, 2)) == count(torch.zeros(7, 4, 2)) == count([0] * 4) == count(np.zeros((4, 2))) == 4


def test_large_finite_entries_are_not_mistaken_for_infinity() -> None:
    data = np.full((3, 2), 1e308)
    assert as_vectors(data).tolist() == data.tolist()


def test_samples_do_not_depend_on_blocks(monkeypatch):
    whole = sample_rows(1000, 30, seed=5)
    monkeypatch.setattr(rows, "KEY_BLOCK", 64)
    np.testing.assert_array_equal(sample_rows(1000, 30, seed=5), whole)
    keys = sampling_keys(np.arange(1000), 5)
    np.testing.assert_array_equal(np.sort(np.argsort(keys)[:30]), whole)
    assert not np.array_equal(sample_rows(1000, 30, seed=6), whole)
    counts = sum(np.bincount(sample_rows(50, 10, seed=s), minlength=50) for s in range(500))
    assert counts.min() > 60 and counts.max() < 145  # 100 ± 9


def test_groups_are_drawn_whole() -> None:
    groups = np.repeat(np.arange(20), 5)
    for seed in range(5):
        sample = sample_groups(groups, 23, seed)
        assert len(sample) == 20 and (np.diff(sample) > 0).all()
        assert (np.bincount(groups[sample], minlength=20) % 5 == 0).all()
    assert len(sample_groups(groups, 3, 0)) == 5  # one group is the least
    np.testing.assert_array_equal(sample_groups(groups, 100, 0), np.arange(100))


def test_evenly_spaced_rows_hold_both_ends() -> None:
    assert evenly_spaced(10, 4).tolist() == [0, 3, 6, 9]
    assert evenly_spaced(3, 4).tolist() == [0, 1, 2]


class Moments(Step):
    """The sum Σ w x yᵀ."""

    bytes_per_row = 100

    def __call__(self, block: Block, total: torch.Tensor | None) -> torch.Tensor:
        moments = block.X.mT @ (block.weights[:, None] * block.Y)
        return moments if total is None else total + moments


@pytest.fixture(params=["in memory", "on Dask"])
def samples(request):
    """Twenty samples with weights and groups, in memory or in three chunks."""
    rng = np.random.default_rng(1)
    X, Y, w, groups = (
        rng.standard_normal((20, 3)),
        rng.standard_normal((20, 2)),
        rng.uniform(1, 2, 20),
        np.arange(20) // 2,
    )
    if request.param == "in memory":
        tensors = map(torch.from_numpy, (X, Y, w, groups))
        return InMemory(Block(*tensors)), X, Y, w, groups
    array = pytest.importorskip("dask.array")
    chunked = (array.from_array(values, chunks=8) for values in (X, Y, w))
    return OnDask(*chunked, dtype=torch.float64, groups=groups), X, Y, w, groups


def test_samples_are_the_same_wherever_they_are(samples) -> None:
    source, X, Y, w, groups = samples
    assert (source.n, source.observed) == (20, None)
    assert source.weight == pytest.approx(w.sum())
    np.testing.assert_array_equal(source.groups, groups)
    index = np.array([1, 7, 8, 19])
    for _ in range(2):
        block = source.rows(index)
        for found, expected in zip((block.X, block.Y, block.weights, block.groups), (X, Y, w, groups), strict=True):
            np.testing.assert_array_equal(np.asarray(found), expected[index])
        source.read_ahead(index, np.array([3]))  # the second time they are at hand
    rows = source.random_rows(6, seed=0)
    assert len(rows) == 6 and (np.bincount(groups[rows])[groups[rows]] == 2).all()


def test_totals_are_sums_over_blocks(samples) -> None:
    source, X, Y, w, _ = samples
    for limit in (None, 300):  # three rows at a time
        np.testing.assert_allclose(source.total(Moments(), limit=limit), X.T @ (w[:, None] * Y), atol=1e-12)


def test_missing_targets_are_seen() -> None:
    Y = torch.tensor([[1.0, float("nan")], [2.0, 3.0]])
    assert Block(torch.zeros(2, 1), Y).observed.tolist() == [[True, False], [True, True]]
    assert Block(torch.zeros(2, 1), Y[1:]).observed is None
    assert Block(torch.zeros(2, 1), ["a", "b"]).observed is None
