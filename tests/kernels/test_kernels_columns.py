"""Kernels of records: sums and products over the fields of a frame."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from tiers import tiers

import naive
from representer import OperatorRidge
from representer.approximation import Nystroem
from representer.kernels import Callable, Delta, Gaussian, Kernel, Linear, Precomputed
from representer.kernels.tables import Columns
from representer.kernels.time_series import GlobalAlignment
from representer.samples import as_records
from representer.testing import check_kernel


def common_letters(x: str, y: str) -> float:
    return float(len(set(x) & set(y)))


def make_frame(n: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "name": ["".join(rng.choice(list("abcdef"), 3)) for _ in range(n)],
            "age": rng.uniform(20.0, 60.0, n),
            "colour": rng.choice(["red", "blue"], n),
            "width": rng.integers(0, 5, n),
            "height": rng.standard_normal(n),
            "series": [rng.standard_normal(int(length)) for length in rng.integers(2, 5, n)],
            "unused": [None] * n,
        },
        index=np.arange(n)[::-1],
    )


FRAME, OTHER = make_frame(7), make_frame(4, 1)
KERNELS = {
    "name": Callable(common_letters),
    "age": Gaussian(9.0),
    "colour": Delta(),
    ("width", "height"): Gaussian([2.0, 1.0]),
    "series": GlobalAlignment(1.5),
}
WEIGHTS = [0.1, 1.0, 0.5, 2.0, 0.3]


def oracle(combine: str, weights: list[float]) -> naive.Pairwise:
    """The formula, record by record."""

    def k(x: dict[str, Any], y: dict[str, Any]) -> float:
        parts = [
            common_letters(x["name"], y["name"]),
            math.exp(-((x["age"] - y["age"]) ** 2) / (2 * 81.0)),
            float(x["colour"] == y["colour"]),
            naive.gaussian([2.0, 1.0])([x["width"], x["height"]], [y["width"], y["height"]]),
            float(GlobalAlignment(1.5)([x["series"]], [y["series"]])),
        ]
        weighted = [w * part for w, part in zip(weights, parts, strict=True)]
        return sum(weighted) if combine == "sum" else math.prod(weighted)

    return k


@pytest.mark.parametrize("combine", ["sum", "product"])
@pytest.mark.parametrize("weights", tiers([1.0, 0.7, WEIGHTS], lambda weights: weights is WEIGHTS))
def test_columns_is_the_sum_or_product_over_fields(combine: Any, weights: Any) -> None:
    k = oracle(combine, np.broadcast_to(weights, 5).tolist())
    kernel = Columns(KERNELS, combine, weights=weights)
    X, Y = FRAME.to_dict("records"), OTHER.to_dict("records")
    np.testing.assert_allclose(kernel(FRAME), naive.gram(k, X), rtol=1e-10)
    np.testing.assert_allclose(kernel(FRAME, OTHER), naive.gram(k, X, Y), rtol=1e-10)
    np.testing.assert_allclose(kernel.diag(FRAME), [k(x, x) for x in X], rtol=1e-10)


@pytest.mark.parametrize(
    "kernel",
    [
        Columns(KERNELS),
        Columns(KERNELS, "product", weights="auto"),
        Columns({"age": Gaussian("auto"), ("width", "height"): "auto" * Gaussian("ard")}, weights="auto"),
        Columns({"age": Linear()}) * Columns({"colour": Delta()}, weights=2.0) + 0.5,
        Columns({"series": GlobalAlignment("auto"), "age": Gaussian()}, weights=[0.5, 2.0]).normalized(),
        Columns({"age__in__years": Gaussian("auto"), "name": Callable(common_letters)}),
    ],
    ids=lambda kernel: repr(kernel)[:60],
)
def test_contract(kernel: Kernel) -> None:
    X, Y = (frame.rename(columns={}) for frame in (FRAME, OTHER))
    for frame in (X, Y):
        frame["age__in__years"] = frame["age"]
    check_kernel(kernel, X.to_dict("records"), Y.to_dict("records"))
    kernel(X)  # a frame as well


def test_nested_names() -> None:
    kernel = Columns(
        {"age": Gaussian("auto"), ("width", "height"): 2.0 * Gaussian("ard"), "a__b": Gaussian("auto")},
        weights="auto",
    )
    assert kernel.free() == [
        "weights",
        "kernels__age__lengthscale",
        "kernels__width+height__kernel__lengthscale",
        "kernels__2__lengthscale",
    ]
    changed = clone(kernel).set_params(kernels__age__lengthscale=3.0, kernels__2__lengthscale=4.0)
    assert changed.kernels["age"] == Gaussian(3.0)
    assert changed.kernels["a__b"] == Gaussian(4.0)
    assert kernel.kernels["age"] == Gaussian("auto")
    with pytest.raises(ValueError, match="no parameter 'kernels__nobody__lengthscale'"):
        clone(kernel).set_params(kernels__nobody__lengthscale=3.0)


def test_every_form_of_the_same_data() -> None:
    numbers = FRAME[["age", "width", "height", "colour"]]
    kernel = Columns({k: v for k, v in KERNELS.items() if k not in ("name", "series")})
    expected = kernel(numbers)
    forms: list[Any] = [
        numbers.to_dict("records"),
        tuple(numbers.to_dict("records")),
        {name: numbers[name].to_numpy() for name in numbers},
        {name: numbers[name].tolist() for name in numbers},
        numbers.to_records(),
        numbers.astype({"colour": "category"}),
    ]
    for form in forms:
        torch.testing.assert_close(kernel(form), expected)
    assert as_records(numbers)[0]["age"] == FRAME["age"].iloc[0]


def test_entries_may_be_vectors() -> None:
    table = {"point": [[0.0, 1.0], [2.0, 3.0]], "more": [1.0, 0.0]}
    torch.testing.assert_close(
        Columns({("point", "more"): Linear()})(table), Linear()([[0.0, 1.0, 1.0], [2.0, 3.0, 0.0]])
    )
    with pytest.raises(ValueError, match="X has 2 features, but Y has 3"):
        Columns({"point": Linear()})(table, {"point": [[1.0, 2.0, 3.0]]})


# -- bad input --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (FRAME.drop(columns="age"), "The data have no column 'age'; there are: 'name'"),
        ([{"age": 1.0}, {"size": 1.0}], r"Records \[1\] have no column 'age'"),
        ({"age": [1.0, np.nan]}, r"Column 'age' has no value in row\(s\) 1 .*Impute"),
        ({"age": [None, 1.0]}, r"Column 'age' has no value in row\(s\) 0"),
        (pd.DataFrame({"age": pd.array([1, None], dtype="Int64")}), r"no value in row\(s\) 1"),
        ({"age": [1.0, np.inf]}, "Column 'age': The data contain NaN or infinity, first at row 1"),
        ({"age": ["1", "2"]}, "Column 'age': This kernel takes real vectors"),
        ({"age": [[1.0], [1.0, 2.0]]}, "Column 'age'"),
        ({"age": [1.0], "size": [1.0, 2.0]}, "same length; got {'age': 1, 'size': 2}"),
        (np.ones((3, 2)), r"data frame.*got ndarray with a ndarray at position 0.*columns="),
        ([{"age": 1.0}, 3], "got list with a int at position 1"),
        ("age", "got str"),
        (3, "got int"),
        ([], "Found 0 records"),
        (FRAME[:0], "Found 0 records"),
        (pd.concat([FRAME, FRAME], axis=1), "different names"),
    ],
)
def test_bad_data(data: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Columns({"age": Gaussian(1.0)})(data)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (Columns({}), "must be a dictionary"),
        (Columns([Linear()]), "must be a dictionary"),  # type: ignore[arg-type]
        (Columns({"age": "rbf"}), "'age' has 'rbf'"),  # type: ignore[dict-item]
        (Columns({"age": Precomputed()}), "kernel of field 'age'"),
        (Columns({"age": Gaussian(-1.0)}), "lengthscale of Gaussian must be positive"),
        (Columns({"age": Linear()}, "mean"), "'sum' or 'product'"),  # type: ignore[arg-type]
        (Columns({"age": Linear(), "width": Linear()}, weights=[1.0, 2.0, 3.0]), "2 fields, but weights"),
        (Columns({"age": Linear()}, weights=-1.0), "weights of Columns must not be negative"),
    ],
)
def test_bad_arguments(kernel: Kernel, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kernel(FRAME)


def test_records_do_not_mix_with_other_data() -> None:
    with pytest.raises(ValueError, match="same kind of data"):
        (Columns({"age": Linear()}) + Linear())(FRAME)


# -- learners ---------------------------------------------------------------------------------------------------------
def target(frame: pd.DataFrame) -> np.ndarray:
    return np.asarray(np.sin(frame["age"] / 10.0) + (frame["colour"] == "red"))


def test_learners_take_frames() -> None:
    train, test = make_frame(80), make_frame(30, 1)
    kernel = Columns({"age": Gaussian("auto"), "colour": Delta(), "height": Gaussian(1.0)}, weights="auto")
    model = OperatorRidge(kernel, fit_intercept=False).fit(train, target(train))
    assert np.abs(model.predict(test) - target(test)).max() < 0.2
    weights = model.kernel_.weights
    assert weights[2] < 0.1 * weights[:2].min()  # the height tells nothing
    shuffled = test[test.columns[::-1]].drop(columns="unused")
    np.testing.assert_allclose(model.predict(shuffled), model.predict(test))
    np.testing.assert_allclose(model.predict(test.to_dict("records")), model.predict(test))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(again.predict(test), model.predict(test))
    mean, std = model.predict(test, return_std=True)
    assert mean.shape == std.shape == (30,)
    with pytest.raises(ValueError, match="no column 'age'"):
        model.predict(test.drop(columns="age"))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(train, target(test))


def test_rows_are_selected() -> None:
    train, test = make_frame(40), make_frame(10, 1)
    kernel = Columns({"age": Gaussian(10.0), "colour": Delta()}, "product")
    weight = np.r_[np.ones(30), np.zeros(10)]
    weighted = OperatorRidge(kernel, alpha=1e-3).fit(train, target(train), sample_weight=weight)
    fewer = OperatorRidge(kernel, alpha=1e-3).fit(train[:30], target(train[:30]))
    np.testing.assert_allclose(weighted.predict(test), fewer.predict(test), rtol=1e-6)
    np.testing.assert_allclose(weighted.loo_predict_[:30], fewer.loo_predict_, rtol=1e-6)
    for sampling in ("uniform", "pivots"):
        approximate = OperatorRidge(kernel, alpha=1e-3, approximation=Nystroem(30, sampling), random_state=0)
        np.testing.assert_allclose(
            approximate.fit(train[:30], target(train[:30])).predict(test), fewer.predict(test), atol=1e-4
        )


def identity(frame: pd.DataFrame) -> pd.DataFrame:
    return frame


def test_pipelines_and_grid_search() -> None:
    frame = make_frame(60)
    model = make_pipeline(FunctionTransformer(identity), OperatorRidge(Columns({"age": Gaussian(), "colour": Delta()})))
    name = "operatorridge__kernel__"
    search = GridSearchCV(
        model,
        {f"{name}kernels__age__lengthscale": [0.01, 8.0], f"{name}combine": ["sum", "product"]},
        cv=3,
    ).fit(frame, target(frame))
    assert search.best_params_[f"{name}kernels__age__lengthscale"] == 8.0
    records = frame.to_dict("records")
    np.testing.assert_allclose(
        cross_val_predict(search.best_estimator_, records, target(frame), cv=3),
        cross_val_predict(search.best_estimator_, frame, target(frame), cv=3),
    )


@pytest.mark.parametrize(
    "fields", [("1", 1), ("a+b", ("a", "b")), ("0", "1", "a__b", "3", "2"), ("a__b", "0")], ids=str
)
def test_fields_that_would_share_a_parameter_name_are_refused(fields: Any) -> None:
    kernel = Columns({field: Gaussian(1.0) for field in fields})
    with pytest.raises(ValueError, match="would share the parameter name"):
        kernel([{name: 0.0 for field in fields for name in (field if isinstance(field, tuple) else (field,))}])


def test_one_record_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'name' is one str\. Put a single record in a list"):
        Columns({"name": Delta(), "size": Linear()})({"name": "ab", "size": 2.0})
