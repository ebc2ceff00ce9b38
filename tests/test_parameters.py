"""Values and raw parameters: every raw vector is a value, every value comes back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from representer.testing import check_gradient
from representer.values import (
    Below,
    Constraint,
    Hyperparameter,
    NonNegative,
    Packing,
    Positive,
    Real,
    SemiDefinite,
    Word,
    as_tensor,
    is_count,
    is_real,
    packing,
)

finite = st.floats(allow_nan=False, allow_infinity=False, width=32)
dtypes = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)


@dtypes
@given(raw=st.lists(finite, min_size=1, max_size=5))
def test_any_raw_number_is_a_positive_value(dtype: torch.dtype, raw: list[float]) -> None:
    for constraint in (Positive(), NonNegative(), Positive(5)):
        value = constraint.value(torch.tensor(raw, dtype=dtype))
        assert constraint.problem(value) is None
        squares = value.pow(2 * constraint.power)
        assert bool(torch.isfinite(squares * squares).all())
        assert bool((squares > 0).all())


@given(value=st.floats(1e-19, 1e19))
def test_positive_values_come_back(value: float) -> None:
    tensor = torch.tensor(value, dtype=torch.float64)
    torch.testing.assert_close(Positive().value(Positive().raw(tensor)), tensor)


def test_zero_has_a_finite_raw_value() -> None:
    raw = NonNegative().raw(torch.zeros(2, dtype=torch.float64))
    assert bool(torch.isfinite(raw).all())
    assert bool((NonNegative().value(raw) < 1e-70).all())


@dtypes
@given(data=st.data(), p=st.integers(1, 4))
def test_any_raw_matrix_is_semi_definite(dtype: torch.dtype, data: st.DataObject, p: int) -> None:
    raw = torch.tensor(data.draw(st.lists(finite, min_size=p * p, max_size=p * p)), dtype=dtype).reshape(p, p)
    assert SemiDefinite().problem(SemiDefinite().value(raw)) is None


@given(p=st.integers(1, 5), rank=st.integers(0, 5), batch=st.booleans())
def test_semi_definite_values_come_back(p: int, rank: int, batch: bool) -> None:
    factor = torch.from_numpy(np.random.default_rng(p + 10 * rank).standard_normal((2, p, rank)))
    value = factor @ factor.mT if batch else (factor @ factor.mT)[0]
    torch.testing.assert_close(SemiDefinite().value(SemiDefinite().raw(value)), value)


@pytest.mark.parametrize(
    ("constraint", "value", "message"),
    [
        (Real(), [1.0, float("nan")], "must be finite"),
        (Real(), -1.0, None),
        (Positive(), 0.0, "must be positive and finite"),
        (Positive(), float("inf"), "must be positive and finite"),
        (Positive(), [1.0, 1e-300], None),
        (NonNegative(), 0.0, None),
        (NonNegative(), [-1e-9, 1.0], "must not be negative"),
        (SemiDefinite(), 1.0, "must be a square matrix"),
        (SemiDefinite(), [[1.0, 2.0]], "must be a square matrix"),
        (SemiDefinite(), [[1.0, 0.5], [0.4, 1.0]], "must be symmetric"),
        (SemiDefinite(), [[1.0, 2.0], [2.0, 1.0]], "must be positive semi-definite"),
        (SemiDefinite(), [[float("inf"), 0.0], [0.0, 1.0]], "must be finite"),
        (SemiDefinite(), [[1.0, 1.0], [1.0, 1.0]], None),
        (SemiDefinite(), [[0.0]], None),
    ],
)
def test_problems(constraint: Constraint, value: object, message: str | None) -> None:
    problem = constraint.problem(torch.tensor(value, dtype=torch.float64))
    assert (problem is None) if message is None else (problem is not None and message in problem)


def test_packing_round_trip() -> None:
    values = {
        "a": torch.tensor(2.0, dtype=torch.float64),
        "b": torch.tensor([0.5, 3.0], dtype=torch.float64),
        "c": torch.tensor([[2.0, 1.0], [1.0, 2.0]], dtype=torch.float64),
        "d": torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64),
    }
    constraints: dict[str, Constraint] = {
        "a": Positive(),
        "b": NonNegative(),
        "c": SemiDefinite(),
        "d": Real(),
    }
    pack = packing(values, constraints)
    assert pack.size == 1 + 2 + 4 + 3
    raw = pack.pack(values)
    assert raw.shape == (10,)
    for name, value in pack.unpack(raw).items():
        torch.testing.assert_close(value, values[name])
    batch = pack.unpack(torch.stack([raw, raw, 0 * raw]))
    assert {name: tuple(v.shape) for name, v in batch.items()} == {
        "a": (3, 1, 1),
        "b": (3, 1, 2),
        "c": (3, 2, 2),
        "d": (3, 1, 3),
    }
    torch.testing.assert_close(batch["b"][1, 0], values["b"])
    assert batch["a"][2].item() == 1.0


def test_packing_nothing() -> None:
    pack = Packing({}, {})
    raw = pack.pack({})
    assert pack.size == 0
    assert raw.shape == (0,)
    assert pack.unpack(raw) == {}


def test_gradients_pass_through_a_packing() -> None:
    pack = packing({"a": torch.ones(()), "b": torch.ones(2)}, {"a": Positive(), "b": Real()})
    raw = torch.tensor([0.5, 1.0, 2.0], requires_grad=True)
    values = pack.unpack(raw)
    (values["a"] + (values["b"] ** 2).sum()).backward()
    torch.testing.assert_close(raw.grad, torch.tensor([float(np.exp(0.5)), 2.0, 4.0]))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (1.0, None),
        (np.float32(2), None),
        (3, None),
        (torch.ones(2, 1, 1), None),
        ("auto", None),
        ("other", "must be a number or one of: 'auto'"),
        ([1.0, 2.0], "must be one number"),
        (torch.ones(2, 1), "must be one number"),
        ([], "must not be empty"),
        (True, "must be a real number"),
        (np.array([True]), "must be a real number"),
        (1j, "must be a real number"),
        (None, "must be a number"),
        (sorted, "must be a number"),
        (["a"], "must be a number"),
    ],
    ids=repr,
)
def test_hyperparameter(value: object, message: str | None) -> None:
    spec = Hyperparameter(Positive(), {"auto": Word(lambda X: torch.ones(()), learned=True)}, scalar=True)
    problem = spec.problem(value)
    assert (problem is None) if message is None else (problem is not None and message in problem)
    assert Hyperparameter(Positive()).problem([1.0, 2.0]) is None
    assert Hyperparameter(Positive()).problem("auto") == "must be a number"


@pytest.mark.parametrize("limit", [1.0, 0.3])
def test_below(limit: float) -> None:
    below = Below(limit=limit)
    values = limit * torch.tensor([1e-9, 0.3, 0.999], dtype=torch.float64)
    torch.testing.assert_close(below.value(below.raw(values)), values)
    ends = below.value(torch.tensor([-1e9, 1e9], dtype=torch.float64))
    assert 0 < ends[0] < ends[1] < limit
    assert below.raw(torch.tensor([0.0, limit])).isfinite().all()
    assert below.problem(torch.tensor([limit / 2, limit], dtype=torch.float64)) is None
    for wrong in (0.0, 1.01 * limit, float("nan")):
        assert "above 0 and at most" in str(below.problem(torch.tensor(wrong)))
    check_gradient(lambda raw: below.value(raw).sum(), torch.tensor([0.5, -2.0]).double(), "raw")


def test_what_counts_as_a_number() -> None:
    assert all(map(is_real, (1, 1.5, np.float32(1), np.int8(1), float("inf"))))
    assert not any(map(is_real, (True, np.bool_(1), 1j, "1", None, [1.0], torch.tensor(1.0))))
    assert all(map(is_count, (1, np.int64(7))))
    assert not any(map(is_count, (0, -1, 1.0, True, "1", None)))


def test_as_tensor_never_shares_the_users_array() -> None:
    array = np.ones(3)
    tensor = as_tensor(array)
    tensor[0] = 5.0
    assert array[0] == 1.0
    assert as_tensor(2).dtype == torch.float64
    assert as_tensor(np.float32(2)).dtype == torch.float32
    leaf = torch.ones(2, requires_grad=True)
    assert as_tensor(leaf) is leaf
