"""What kernels accept as data and hyperparameters, and what they say to what they do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from representer.kernels import (
    Constant,
    Gaussian,
    Kernel,
    Laplacian,
    Linear,
    Matern,
    Neural,
    Polynomial,
    Pullback,
    RationalQuadratic,
    Tanimoto,
    TensorMatern,
)
from representer.samples import as_vectors

RNG = np.random.default_rng(0)
X = RNG.standard_normal((6, 3))
VECTOR_KERNELS = [
    Linear(),
    Polynomial(2),
    Gaussian(1.0),
    Laplacian(1.0),
    Matern(0.5, 1.0),
    Matern(1.5, 1.0),
    RationalQuadratic(1.0),
    TensorMatern(2, 1.0),
    Tanimoto(),
    2.0 * Gaussian(1.0) + 1.0,
    Gaussian(1.0).normalized(),
    Linear().centered(),
    Pullback(Linear(), torch.sin),
    Neural(torch.nn.Tanh(), Linear()),
]
every_kernel = pytest.mark.parametrize("kernel", VECTOR_KERNELS, ids=repr)


# -- accepted ---------------------------------------------------------------------------------------------------------
def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "form",
    [
        lambda A: A.tolist(),
        lambda A: tuple(map(tuple, A)),
        lambda A: list(A),
        np.asfortranarray,
        read_only,
        lambda A: np.repeat(A, 2, axis=0)[::2],
        lambda A: A[::-1][::-1],
        lambda A: A[:, ::-1][:, ::-1],
        lambda A: A.astype(object),
        lambda A: A.astype(">f8"),
        torch.from_numpy,
        lambda A: torch.from_numpy(A).requires_grad_(),
        lambda A: torch.from_numpy(np.asfortranarray(A)),
        lambda A: [torch.from_numpy(row) for row in A],
    ],
)
def test_the_same_numbers_in_any_form(form: Any) -> None:
    given_data = form(X.copy())
    for kernel in (Gaussian(1.0), Linear() + 1.0):
        torch.testing.assert_close(kernel(given_data).detach(), kernel(X))
        torch.testing.assert_close(kernel(given_data, X).detach(), kernel(X, X))
        torch.testing.assert_close(kernel.diag(given_data).detach(), kernel.diag(X))
    assert np.array_equal(np.asarray(as_vectors(given_data).detach()), X)


def test_frames() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abc"), index=list("uvwxyz"))
    torch.testing.assert_close(Gaussian(1.0)(frame), Gaussian(1.0)(X))
    torch.testing.assert_close(Gaussian(1.0)(frame, X), Gaussian(1.0)(X, X))
    mixed = pandas.DataFrame({"a": [1, 2], "b": [0.5, 1.5], "c": [True, False]})
    assert as_vectors(mixed).tolist() == [[1.0, 0.5, 1.0], [2.0, 1.5, 0.0]]
    with pytest.raises(ValueError, match="DataFrame that does not convert"):
        Gaussian(1.0)(pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]}))


@pytest.mark.parametrize("dtype", [int, np.int8, np.uint8, bool, np.float32, np.float16])
def test_numbers_of_any_kind_become_double(dtype: Any) -> None:
    data = (np.abs(X) * 3).astype(dtype)
    for kernel in (Gaussian(1.0), Tanimoto()):
        gram = kernel(data)
        assert gram.dtype == torch.float64
        torch.testing.assert_close(gram, kernel(data.astype(float)))
        torch.testing.assert_close(
            kernel(torch.from_numpy((np.abs(X) * 3).astype(int))), kernel((np.abs(X) * 3).astype(int))
        )


def test_tensors_keep_their_precision_and_the_wider_one_wins() -> None:
    single = torch.from_numpy(X).float()
    for kernel in VECTOR_KERNELS:
        resolved = kernel.resolve(X)
        assert resolved(single).dtype == resolved(single, single).dtype == resolved.diag(single).dtype == torch.float32
        assert resolved(single, X).dtype == resolved(X, single).dtype == torch.float64


@every_kernel
def test_the_data_are_not_changed(kernel: Kernel) -> None:
    array, tensor = X.copy(), torch.from_numpy(X.copy())
    resolved = kernel.resolve(array)
    for data in (array, tensor):
        resolved(data).zero_()
        resolved(data, data).zero_()
        resolved.diag(data).zero_()
        assert np.array_equal(np.asarray(data), X)


def test_one_sample_and_one_feature_are_enough() -> None:
    for kernel in VECTOR_KERNELS:
        assert kernel([[0.5]]).shape == (1, 1)
        assert bool(torch.isfinite(kernel([[0.5]])).all())
    assert Gaussian()([[0.5]]).item() == 1.0


# -- refused data -----------------------------------------------------------------------------------------------------
@every_kernel
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (X[:, 0], r"Expected a 2D array .* got a 1D array of shape \(6,\).*X.reshape\(-1, 1\)"),
        (torch.zeros(3), "Expected a 2D array"),
        (3.0, "got a 0D array"),
        (["a", "b"], "takes real vectors.*got list"),
        ([["a"], ["b"]], "takes real vectors"),
        ([["1.0"], ["2.0"]], "entries of type <U3"),
        (np.array([["2020-01-01"]], dtype="M8[D]"), "entries of type datetime64"),
        ([[1.0, 2.0], [3.0]], "does not convert"),
        (X * 1j, "entries of type complex128"),
        (torch.zeros(2, 2, dtype=torch.complex64), "complex"),
        (np.zeros((0, 3)), r"0 sample\(s\)"),
        (np.zeros((3, 0)), r"0 feature\(s\)"),
        ({"a": 1}, "got dict"),
        (scipy.sparse.csr_matrix(X), r"dense arrays; got csr_matrix.*X.toarray\(\)"),
        (scipy.sparse.coo_array(X), r"X.toarray\(\)"),
        (torch.eye(3).to_sparse(), r"X.to_dense\(\)"),
    ],
)
def test_data_of_the_wrong_kind(kernel: Kernel, data: Any, message: str) -> None:
    if kernel.takes_sparse and scipy.sparse.issparse(data):
        pytest.skip("it takes sparse matrices")
    with pytest.raises(ValueError, match=message):
        kernel(data)
    with pytest.raises(ValueError, match=message):
        kernel.diag(data)
    with pytest.raises(ValueError, match=message):
        kernel.resolve(data)
    resolved = kernel.resolve(X)
    with pytest.raises(ValueError, match=message):
        resolved(data, X)
    with pytest.raises(ValueError, match=message):
        resolved(X, data)


@every_kernel
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_entries_that_are_not_finite_are_located(kernel: Kernel, bad: float) -> None:
    data = X.copy()
    data[4, 1] = bad
    data[5, 0] = bad
    for form in (
        data,
        torch.from_numpy(data),
        torch.from_numpy(data).float().requires_grad_(),
        data.tolist(),
    ):
        with pytest.raises(ValueError, match="NaN or infinity, first at row 4, column 1"):
            kernel(form)
    with pytest.raises(ValueError, match="row 4, column 1"):
        kernel.resolve(X)(X, data)


def test_no_data_at_all() -> None:
    with pytest.raises(ValueError, match="got a 0D array"):
        Gaussian()(None)
    with pytest.raises(ValueError, match="NaN or infinity, first at row 0, column 1"):
        Gaussian()([[1.0, None]])


@pytest.mark.parametrize("kernel", [k for k in VECTOR_KERNELS if not isinstance(k, Pullback | Neural)], ids=repr)
def test_features_that_do_not_match(kernel: Kernel) -> None:
    with pytest.raises(ValueError, match="X has 3 features, but Y has 2"):
        kernel.resolve(X)(X, X[:, :2])


@pytest.mark.parametrize("kernel", [Pullback(Linear(), torch.sin), Neural(torch.nn.Tanh(), Linear())])
def test_features_that_do_not_match_before_a_map(kernel: Kernel) -> None:
    with pytest.raises(ValueError, match="X has 3 features, but Y has 2"):
        kernel(X, X[:, :2])


@given(
    data=hnp.arrays(
        st.sampled_from([np.float64, np.float32, np.int64, np.bool_, np.complex128, object, "<U4", "M8[D]"]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
    ),
    kernel=st.sampled_from([Gaussian(1.0), Polynomial(3), Matern(2.5, 0.5) + Linear()]),
)
def test_any_array_gives_a_gram_matrix_or_a_value_error(data: np.ndarray, kernel: Kernel) -> None:
    try:
        gram = kernel(data)
    except ValueError as error:
        assert len(str(error)) > 20
    else:
        assert gram.shape == (*data.shape[:-1], data.shape[-2])
        assert not np.issubdtype(data.dtype, np.complexfloating)


# -- refused hyperparameters ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (Gaussian(-1.0), r"lengthscale of Gaussian must be positive and finite; got -1.0"),
        (Gaussian(0.0), "must be positive"),
        (Gaussian(float("nan")), "must be positive and finite"),
        (Gaussian(float("inf")), "must be positive and finite"),
        (Gaussian([1.0, -2.0, 1.0]), r"must be positive and finite; got \[1.0, -2.0, 1.0\]"),
        (Gaussian([1.0, 2.0]), "Gaussian has 2 lengthscales, but the data have 3 features"),
        (Laplacian(np.ones(4)), "Laplacian has 4 lengthscales, but the data have 3 features"),
        (Gaussian(np.ones((6, 3))), r"lengthscale of Gaussian has shape \(6, 3\)"),
        (Gaussian([]), "must not be empty"),
        (Gaussian("medain"), r"must be a number or one of: 'median', 'auto', 'ard'; got 'medain'"),
        (Gaussian(True), "must be a real number"),
        (Gaussian(1j), "must be a real number"),
        (Gaussian(torch.tensor(1j)), "must be a real number"),
        (Gaussian(np.array([1j, 1, 1])), "must be a real number"),
        (Gaussian(None), "must be a number"),
        (Gaussian({"a": 1}), "must be a number"),
        (Gaussian([[1.0], [1.0, 2.0]]), "must be a number"),
        (-1.0 * Gaussian(1.0), "scale of Scaled must not be negative"),
        (Gaussian(1.0) + (-1.0), "value of Constant must not be negative"),
        ("ard" * Gaussian(1.0), "scale of Scaled must be a number or one of: 'auto'"),
        (Polynomial(0), "degree of Polynomial must be a positive integer; got 0"),
        (Polynomial(1.5), "degree of Polynomial"),
        (Polynomial(True), "degree of Polynomial"),
        (Polynomial(2, gamma=0.0), "gamma of Polynomial must be positive"),
        (Polynomial(2, gamma=[1.0, 2.0, 3.0]), r"gamma of Polynomial must be one number"),
        (Polynomial(2, coef0=-1.0), "coef0 of Polynomial must not be negative"),
        (Matern(2.0, 1.0), "nu of Matern must be 0.5, 1.5, 2.5, … or inf; got 2.0"),
        (Matern("1.5", 1.0), "nu of Matern"),
        (Matern(float("nan"), 1.0), "nu of Matern"),
        (TensorMatern(0, 1.0), "order of TensorMatern"),
        (RationalQuadratic(1.0, -1.0), "mixture of RationalQuadratic"),
        (RationalQuadratic(1.0, np.ones(3)), "mixture of RationalQuadratic must be one number"),
        (1.0 + 2.0 * (Linear() * Gaussian(-1.0)).normalized(), "lengthscale of Gaussian"),
        (Pullback(Gaussian(-1.0), torch.sin), "lengthscale of Gaussian"),
        (Pullback(Linear(), torch.sin, "images"), "domain of Pullback"),
    ],
    ids=lambda value: repr(value)[:50] if isinstance(value, Kernel) else "",
)
def test_hyperparameters_that_are_not_admissible(kernel: Kernel, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kernel(X)
    with pytest.raises(ValueError, match=message):
        kernel(X, X)


@pytest.mark.parametrize(
    "kernel",
    [
        Gaussian(np.float32(2.0)),
        Gaussian(np.int64(2)),
        Gaussian(read_only(np.ones(3))),
        Gaussian((1, 2, 3)),
        Gaussian(torch.ones(3)),
        Gaussian([2.0]),
        Polynomial(np.int64(3)),
        TensorMatern(np.int32(2), 1.0),
        Matern(np.float32(2.5), 1.0),
        Constant(0),
        0 * Linear(),
    ],
    ids=repr,
)
def test_hyperparameters_of_any_numeric_type(kernel: Kernel) -> None:
    assert kernel(X).shape == (6, 6)
    kernel.resolve(X).packing(list(kernel.hyperparameter_values()))


def test_errors_come_when_used_not_when_made() -> None:
    kernel = Gaussian(-1.0)
    assert kernel.set_params(lengthscale=1.0)(X).shape == (6, 6)
