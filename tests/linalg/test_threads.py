"""Small fits have one thread, larger ones one of torch; afterwards all have as many as before."""

from __future__ import annotations

import threading

import pytest
import scipy.linalg  # noqa: F401  # its BLAS is one of those that are limited
import torch
from threadpoolctl import ThreadpoolController, threadpool_info

from representer import OperatorRidge
from representer.linalg.resources import FACTORED_ROWS, FEW_ROWS, threads_for


def n_threads(user_api: str | None = None) -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if user_api in (None, pool["user_api"])}


@pytest.fixture(autouse=True)
def three_threads():
    with ThreadpoolController().limit(limits=3):
        if n_threads() != {3}:
            pytest.skip("these libraries do not take more threads than there are processors")
        yield


@pytest.mark.parametrize(
    ("n_rows", "of_torch", "of_blas"),
    [(1, 1, 1), (FEW_ROWS, 1, 1), (FEW_ROWS + 1, 1, 3), (FACTORED_ROWS, 1, 3), (FACTORED_ROWS + 1, 3, 3)],
)
def test_threads_of_a_fit(n_rows, of_torch, of_blas):
    with threads_for(n_rows):
        assert torch.get_num_threads() == of_torch
        assert n_threads("blas") == {of_blas}
    assert n_threads() == {torch.get_num_threads()} == {3}


def test_limits_may_be_nested_and_end_with_errors():
    with threads_for(10):
        with pytest.raises(RuntimeError), threads_for(10):
            raise RuntimeError
        assert n_threads() == {1}
    assert n_threads() == {3}


def test_the_limit_of_one_thread_is_not_set_again_by_another():
    inside, may_leave = threading.Event(), threading.Event()

    def other() -> None:
        with threads_for(10):
            inside.set()
            may_leave.wait(10)

    thread = threading.Thread(target=other)
    with threads_for(10):
        thread.start()
        assert inside.wait(10)
        assert n_threads() == {1}
    assert n_threads() == {3}  # also if the other one is still inside
    may_leave.set()
    thread.join()
    assert n_threads() == {3}


@pytest.mark.parametrize(("rows", "expected"), [(FEW_ROWS, 1), (FEW_ROWS + 1, 3)])
def test_threads_of_an_answer(rows, expected):
    seen = set()

    def product(x, y):
        seen.add(torch.get_num_threads())
        return x[0] * y[0]

    model = OperatorRidge(product, alpha=0.1).fit([[1.0], [2.0]], [1.0, 2.0])
    seen.clear()
    model.predict([[1.0]] * rows)
    assert seen == {expected} and n_threads() == {3}
