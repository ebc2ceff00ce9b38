"""Small problems have one thread, and afterwards there are as many as before, whoever comes and goes in between."""

from __future__ import annotations

import threading

import pytest
import scipy.linalg  # noqa: F401  # its BLAS is one of those that are limited
from threadpoolctl import ThreadpoolController, threadpool_info

from representer.estimators.base import FEW_ROWS, threads_for


def n_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info()}


@pytest.fixture(autouse=True)
def three_threads():
    with ThreadpoolController().limit(limits=3):
        if n_threads() != {3}:
            pytest.skip("these libraries do not take more threads than there are processors")
        yield


@pytest.mark.parametrize(("n_rows", "expected"), [(1, {1}), (FEW_ROWS, {1}), (FEW_ROWS + 1, {3})])
def test_few_rows_have_one_thread(n_rows, expected):
    with threads_for(n_rows):
        assert n_threads() == expected
    assert n_threads() == {3}


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
