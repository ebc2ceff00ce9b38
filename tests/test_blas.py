"""Products of symmetric and triangular matrices against dense ones, in both precisions, alone and in batches."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from representer.linalg import blas, factorize, hadamard_products, symmetric_product
from representer.testing import check_gradient

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-4}
dtypes = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)


def matrix(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape)).to(dtype)


def close(actual: Tensor, expected: Tensor, share: float | None = None) -> None:
    """To a share of the largest entry."""
    share = TOLERANCE[actual.dtype] if share is None else share
    torch.testing.assert_close(actual, expected, rtol=0.0, atol=share * float(expected.abs().max()))


@dtypes
@pytest.mark.parametrize("n", [1, 5, blas.HADAMARD_ROWS, 2 * blas.HADAMARD_ROWS + 3])
@pytest.mark.parametrize("turned", [False, True])
def test_hadamard_products(dtype: torch.dtype, n: int, turned: bool) -> None:
    A, B, P = matrix(n, n, dtype=dtype), matrix(n, n, seed=1, dtype=dtype), matrix(n, 3, seed=2, dtype=dtype)
    A = A.mT if turned else A
    kept = A.clone(), B.clone(), P.clone()
    M = A * B
    close(hadamard_products(A, B, P), (M + M.mT) @ P)
    assert all(torch.equal(now, before) for now, before in zip((A, B, P), kept, strict=True))


def test_hadamard_products_of_a_batch_and_with_gradients() -> None:
    A, B, P = matrix(2, 4, 4), matrix(2, 4, 4, seed=1), matrix(2, 4, 3, seed=2)
    single = torch.stack([hadamard_products(*parts) for parts in zip(A, B, P, strict=True)])
    close(hadamard_products(A, B, P), single)
    check_gradient(lambda x: hadamard_products(x, B[0], P[0]).square().sum(), A[0], "hadamard_products")


@dtypes
@pytest.mark.parametrize("shape", [(1,), (7,), (300,), (3, 6)])
def test_symmetric_product(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    A, B = matrix(*shape, shape[-1], dtype=dtype), matrix(*shape, 4, seed=1, dtype=dtype)
    A = A + A.mT
    for left in (A, A.mT.contiguous().mT):
        close(symmetric_product(left, B), left @ B)


@dtypes
@pytest.mark.parametrize("n", [1, 2, blas.SMALL_TRIANGLE, blas.SMALL_TRIANGLE + 1, 611])
@pytest.mark.parametrize("by_address", [True, False])
def test_invert_triangle(
    dtype: torch.dtype, n: int, by_address: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by_address:
        assert blas._trmm() is not None  # SciPy has what is looked for
    else:
        monkeypatch.setattr(blas, "_trmm", lambda: None)
    L = (matrix(n, n, dtype=dtype) / n**0.5).tril(-1) + 2.0 * torch.eye(n, dtype=dtype)
    found = L.numpy().copy(order="F")
    found[np.triu_indices(n, 1)] = np.nan  # what stands there is not looked at
    blas.invert_triangle(found)
    product = L @ torch.from_numpy(np.tril(found))
    close(product, torch.eye(n, dtype=dtype))


def test_a_function_of_another_form_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    for signature in (
        b"void (char *, char *, char *, char *, long *, long *, d *, d *, long *, d *, long *)",
        b"void (char *, char *, char *, char *, int *, int *, d *, d *, int *, d *, int *, int)",
        b"",
    ):
        assert blas.TRMM.fullmatch(signature) is None
    monkeypatch.setattr(blas, "cython_blas", object())
    blas._trmm.cache_clear()
    try:
        assert blas._trmm() is None
    finally:
        blas._trmm.cache_clear()


@dtypes
def test_an_inverse_takes_the_place_of_its_factor_only_when_asked(dtype: torch.dtype) -> None:
    n = 300
    A = matrix(n, n, dtype=dtype)
    A = A @ A.mT / n + torch.eye(n, dtype=dtype)
    cholesky = factorize(A.clone)
    factor = cholesky.factor.clone()
    inverse = cholesky.inverse()
    assert torch.equal(cholesky.factor, factor)
    again = cholesky.inverse(overwrite=True)
    assert again.data_ptr() == cholesky.factor.data_ptr() != inverse.data_ptr()
    assert torch.equal(again, inverse)
    close(inverse @ A, torch.eye(n, dtype=dtype), 1e-3 if dtype == torch.float32 else 1e-11)
