"""Estimates of memory: refused, announced or silent; blocks of rows."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from representer.kernels import Gaussian
from representer.linalg import resources as memory
from representer.linalg.resources import (
    MemoryWarning,
    available_bytes,
    empty_matrix,
    recycling,
    require,
    row_blocks,
)

GB = 10**9


def free(monkeypatch: pytest.MonkeyPatch, size: int | None) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: size)


def test_the_smaller_of_machine_and_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_free_on_machine", lambda: 8 * GB)
    for container, expected in ((3 * GB, 3 * GB), (30 * GB, 8 * GB), (None, 8 * GB)):
        monkeypatch.setattr(memory, "_free_in_container", lambda size=container: size)
        assert available_bytes() == expected


def ask(size: int) -> None:
    require(size, what="An exact fit", advice="Use approximation=Nystroem(m).")


def test_more_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, 8 * GB)
    expected = r"An exact fit needs about 12\.3 GB; 8\.0 GB are free\. Use approximation=Nystroem\(m\)\."
    with pytest.raises(MemoryError, match=expected):
        ask(int(12.3 * GB))
    with pytest.raises(MemoryError):
        ask(8 * GB + 1)


def test_nearly_all_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, 10 * GB)
    for size in (10 * GB, int(7.1 * GB)):
        with pytest.warns(MemoryWarning, match=r"GB; 10\.0 GB are free\. Use approximation=") as caught:
            ask(size)
        assert caught[0].filename == __file__  # it points at the caller


def test_advice_where_half_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, 8 * GB)
    for size, advice in ((15 * GB, "Take half"), (17 * GB, "Take less")):
        with pytest.raises(MemoryError, match=advice):
            require(size, what="A fit", advice="Take less.", halved="Take half.")


def test_less_than_a_block_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, 1)
    ask(memory.BLOCK_BYTES)
    with pytest.raises(MemoryError):
        ask(memory.BLOCK_BYTES + 1)


@pytest.mark.parametrize(("size", "there_is"), [(7 * GB, 10 * GB), (0, 10 * GB), (10**15, None)])
def test_enough_or_unknown(monkeypatch: pytest.MonkeyPatch, size: int, there_is: int | None) -> None:
    free(monkeypatch, there_is)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ask(size)


def test_the_warning_is_seen_by_default() -> None:
    hidden = (ResourceWarning, DeprecationWarning, PendingDeprecationWarning, ImportWarning)
    assert not issubclass(MemoryWarning, hidden)  # what Python shows only if asked


def test_what_the_system_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_: "MemTotal: 9 kB\nMemAvailable:    1234 kB\n")
    assert available_bytes() == 1234 * 1024

    def missing(*_: Any) -> str:
        raise OSError

    monkeypatch.setattr(Path, "read_text", missing)
    monkeypatch.setattr(memory.os, "sysconf", lambda name: {"SC_PHYS_PAGES": 10, "SC_PAGE_SIZE": 4096}[name])
    assert available_bytes() == 40960
    monkeypatch.setattr(memory.os, "sysconf", missing)
    assert available_bytes() is None


def test_this_machine_has_memory() -> None:
    size = available_bytes()
    assert size is None or 10**6 < size < 10**15


@given(n=st.integers(0, 300), size=st.integers(0, 2000), block=st.integers(1, 5000))
def test_blocks_cover_the_rows_once(n: int, size: int, block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "BLOCK_BYTES", block)
        blocks = list(row_blocks(n, size))
    assert [row for rows in blocks for row in range(n)[rows]] == list(range(n))
    assert all(0 <= rows.start < rows.stop <= n for rows in blocks)
    lengths = [rows.stop - rows.start for rows in blocks]
    assert all(length == 1 or length * size <= block for length in lengths)
    assert len(set(lengths[:-1])) <= 1  # all but the last are equal


def test_a_gram_matrix_that_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, GB)
    X = torch.zeros(20_000, 1)
    with pytest.raises(MemoryError, match=r"20000 × 20000 samples needs about 3\.2 GB.*blocks of rows"):
        Gaussian(1.0)(X)
    assert Gaussian(1.0)(X[:3], X).shape == (3, 20_000)


def test_memory_is_recycled_only_when_nobody_holds_it() -> None:
    like = torch.zeros(1, dtype=torch.float64)
    with recycling():
        first = empty_matrix((30, 20), like)
        place = first.data_ptr()
        assert empty_matrix((30, 20), like).data_ptr() != place  # held by its name
        view = first.mT[3:].numpy()
        del first
        assert empty_matrix((30, 20), like).data_ptr() != place  # held by a view
        del view
        again = empty_matrix((30, 20), like)
        assert again.data_ptr() == place
        assert again.dtype == like.dtype
        assert empty_matrix((30, 20), like.float()).dtype == torch.float32
        assert empty_matrix((20, 30), like).shape == (20, 30)


def test_a_saved_matrix_keeps_its_memory_until_the_gradient_is_taken() -> None:
    X = torch.linspace(0.0, 1.0, 40, dtype=torch.float64)[:, None]

    def gram(lengthscale: float) -> tuple[torch.Tensor, torch.Tensor]:
        variable = torch.tensor(lengthscale, dtype=torch.float64, requires_grad=True)
        return variable, Gaussian(variable)._gram(X, None).square().sum()

    alone = [torch.autograd.grad(value, variable)[0] for variable, value in map(gram, (0.3, 0.7))]
    with recycling():
        both = [gram(0.3), gram(0.7)]
        gram(2.0)
        together = [torch.autograd.grad(value, variable)[0] for variable, value in both]
    torch.testing.assert_close(together, alone)
