"""Constraints and packing of hyperparameters; cloning, comparing, printing and checking values."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone

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
    Value,
    Word,
    argument_repr,
    as_tensor,
    is_count,
    is_real,
    map_children,
    number,
    packing,
    same,
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


ONE = Word(lambda X: torch.ones(()), learned=True)


class Leaf(Value):
    hyperparameters: ClassVar[Mapping[str, Hyperparameter]] = {
        "size": Hyperparameter(Positive(), {"auto": ONE, "fixed": Word(lambda X: torch.ones(()))}),
        "shift": Hyperparameter(Real()),
    }

    def __init__(self, size: Any = 1.0, shift: Any = 0.0, kind: str = "plain"):
        self.size = size
        self.shift = shift
        self.kind = kind


class Pair(Value):
    def __init__(self, left: Value, parts: Any = (), note: Any = None):
        self.left = left
        self.parts = parts
        self.note = note


class Empty(Value):
    pass


def tree() -> Pair:
    return Pair(Leaf(2.0), [Leaf("auto"), Leaf(3.0, [1.0, 2.0])], note={"a": 1})


def test_parameters_are_named_through_nesting_and_lists() -> None:
    params = tree().get_params()
    assert params["left__size"] == 2.0
    assert params["parts__0__size"] == "auto"
    assert params["parts__1__shift"] == [1.0, 2.0]
    assert set(tree().get_params(deep=False)) == {"left", "parts", "note"}
    assert Empty().get_params() == {}


def test_set_params_changes_in_place() -> None:
    value = tree()
    assert value.set_params(left__size=5.0, parts__1__kind="other", note=3) is value
    assert (value.left.size, value.parts[1].kind, value.note) == (5.0, "other", 3)
    value.set_params(left__shift=1.0, left=Leaf(7.0))  # the new part first, then what is inside
    assert value.left == Leaf(7.0, 1.0)


@pytest.mark.parametrize(
    "name", ["nothing", "left__nothing", "parts__7__size", "parts__0", "note__a", "parts__x__size"]
)
def test_unknown_parameters_are_named(name: str) -> None:
    with pytest.raises(ValueError, match="has no parameter"):
        tree().set_params(**{name: 1.0})


def test_set_params_changes_all_or_nothing() -> None:
    value, new = tree(), Leaf(7.0)
    for wrong in (
        {"left__size": 5.0, "left__nothing": 1.0},
        {"note": 3, "nothing": 1.0},
        {"left": new, "left__nothing": 1},
    ):
        with pytest.raises(ValueError, match="nothing"):
            value.set_params(**wrong)
        assert value == tree() and new == Leaf(7.0)


def test_equality() -> None:
    assert tree() == tree()
    assert tree() != tree().set_params(parts__1__shift=[1.0, 3.0])
    assert Leaf() != Empty()
    assert Leaf() != 1.0
    assert hash(tree()) == hash(tree())


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (1.0, 1, True),
        (np.ones(2), [1.0, 1.0], True),
        ([1.0, 1.0], torch.ones(2), True),
        (np.ones(2), np.ones(3), False),
        (np.ones(2), "ab", False),
        (np.ones(2), None, False),
        (np.ones(2), int, False),
        (torch.ones(1, requires_grad=True), np.ones(1), True),
        ([1, [2, np.ones(1)]], (1, (2, [1.0])), True),
        ([np.ones(1)], [np.ones(1), 2], False),
        (np.ones(2), [[1.0], [1.0, 2.0]], False),
        ({"a": np.ones(2)}, {"a": [1.0, 1.0]}, True),
        ({"a": 1}, {"b": 1}, False),
        ("a", "a", True),
        (None, 0, False),
        (len, len, True),
        (torch.nn.ReLU(), torch.nn.ReLU(), True),
        (torch.nn.ReLU(), torch.nn.Tanh(), False),
        (torch.nn.ReLU(), 3, False),
    ],
)
def test_same(a: Any, b: Any, equal: bool) -> None:
    assert same(a, b) is equal
    assert same(b, a) is equal


def test_sparse_matrices_are_equal_by_their_entries() -> None:
    A = sparse.csr_array([[0.0, 1.0], [2.0, 0.0]])
    assert same(A, A.copy()) and same(A, A.tocoo())
    for other in (2 * A, A[:1], A.toarray(), None, "A"):
        assert not same(A, other)
        assert not same(other, A)


def test_frames_are_compared_by_their_entries() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2]})
    assert same(frame, frame.copy())
    assert not same(frame, pandas.DataFrame({"a": [1, 3]}))
    assert not same(frame, pandas.DataFrame({"a": [1]}))


@pytest.mark.parametrize(
    "argument",
    [
        1,
        1.5,
        "a",
        None,
        True,
        [1.0, "a"],
        (1.0,),
        (1, 2),
        (),
        {"a": 1},
        math.inf,
        -math.inf,
        [math.inf],
        np.float64(2.0),
    ],
    ids=repr,
)
def test_arguments_are_printed_as_code(argument: Any) -> None:
    assert eval(argument_repr(argument)) == argument


def test_arrays_are_printed_as_lists() -> None:
    assert argument_repr(np.array([1.0, np.inf])) == "[1.0, float('inf')]"
    assert argument_repr(torch.tensor([[1, 2]])) == "[[1, 2]]"
    assert argument_repr(torch.tensor(2.0, requires_grad=True)) == "2.0"
    assert argument_repr(np.zeros((100, 100))) == "<array of shape (100, 100)>"
    assert argument_repr(math.sqrt) == "sqrt"
    assert repr(tree()) == (
        "Pair(left=Leaf(size=2.0), parts=[Leaf(size='auto'), Leaf(size=3.0, shift=[1.0, 2.0])], note={'a': 1})"
    )
    assert repr(Empty()) == "Empty()"


def test_copies() -> None:
    value = tree()
    value.note = np.zeros(2)
    for copied in (clone(value), pickle.loads(pickle.dumps(value)), copy.deepcopy(value)):
        assert copied == value
        copied.set_params(left__size=9.0, parts__0__size=9.0)
        copied.note[0] = 9.0
        assert value.left.size == 2.0
        assert value.parts[0].size == "auto"
        assert value.note[0] == 0.0
    assert type(clone(Pair(Leaf(), (Leaf(), 2))).parts) is tuple


def test_a_function_is_shared_by_copies_and_a_module_is_not() -> None:
    module = torch.nn.Linear(1, 1)
    value = Pair(Leaf(), [math.sqrt], note=module)
    copied = clone(value)
    assert copied.parts[0] is math.sqrt
    assert copied.note is not module
    assert copied == value


def test_hyperparameters_of_the_whole_tree() -> None:
    value = tree()
    assert list(value.constraints()) == [
        "left__size",
        "left__shift",
        "parts__0__size",
        "parts__0__shift",
        "parts__1__size",
        "parts__1__shift",
    ]
    assert value.free() == ["parts__0__size"]
    assert Leaf("fixed").free() == []
    values = value.hyperparameter_values()
    assert "parts__0__size" not in values  # a word still
    assert values["parts__1__shift"].tolist() == [1.0, 2.0]
    assert all(v.dtype == torch.float64 for v in values.values())


def test_replace_and_numbers() -> None:
    value = tree()
    size, shift = torch.tensor(4.0, requires_grad=True), torch.tensor([5.0, 6.0], requires_grad=True)
    changed = value.replace({"left__size": size, "parts__1__shift": shift})
    assert changed.left.size is size
    assert changed.parts[1].shift is shift
    assert value == tree()
    assert type(changed.parts) is list
    plain = changed.numbers()
    assert type(plain.left.size) is float
    assert plain.parts[1].shift.tolist() == [5.0, 6.0]
    assert plain == tree().set_params(left__size=4.0, parts__1__shift=[5.0, 6.0])
    with pytest.raises(ValueError, match=r"no hyperparameter \['left__kind'\]; it has: left__size"):
        value.replace({"left__kind": "other"})
    with pytest.raises(ValueError, match="it has: none"):
        Empty().replace({"size": 1.0})


def test_packing() -> None:
    value = tree()
    pack, raw = value.packing(["left__size", "parts__1__shift"])
    torch.testing.assert_close(raw, torch.tensor([math.log(2.0), 1.0, 2.0], dtype=torch.float64))
    assert value.replace(pack.unpack(raw)).numbers() == value
    with pytest.raises(ValueError, match=r"no number for \['parts__0__size'\].*call resolve first"):
        value.packing(["parts__0__size"])
    with pytest.raises(ValueError, match=r"no number for \['nothing'\]"):
        value.packing(["nothing"])


def test_number_is_checked_and_follows_the_data() -> None:
    like = torch.zeros(2, dtype=torch.float32)
    assert number(Leaf(2), "size", like).dtype == torch.float32
    leaf = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    assert number(Leaf(leaf), "size", like).requires_grad
    with pytest.raises(ValueError, match=r"size='auto' of Leaf has no number yet"):
        number(Leaf("auto"), "size", like)
    with pytest.raises(ValueError, match=r"size of Leaf must be positive and finite; got -1"):
        number(Leaf(-1), "size", like)
    with pytest.raises(ValueError, match="must be a number or one of: 'auto', 'fixed'"):
        number(Leaf("atuo"), "size", like)


def test_check_hyperparameters_looks_everywhere() -> None:
    tree().check_hyperparameters()
    with pytest.raises(ValueError, match=r"size of Leaf must be positive and finite; got -3\.0"):
        tree().set_params(parts__1__size=-3.0).check_hyperparameters()


def test_map_children() -> None:
    seen: list[str] = []

    def change(name: str, child: Value) -> Value:
        seen.append(name)
        return Empty()

    assert map_children("a", Leaf(), change) == Empty()
    assert map_children("b", (Leaf(), 3), change) == (Empty(), 3)
    assert map_children("c", 5, change) == 5
    assert seen == ["a", "b__0"]


def test_a_notebook_shows_a_value_as_it_is_now() -> None:
    value = Leaf(size=2.5)
    assert "size=2.5" in value._repr_html_()
    assert "size=3.5" in value.set_params(size=3.5)._repr_html_()
