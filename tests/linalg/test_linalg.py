"""Every factorisation and solve against a dense oracle, in both precisions, alone and in batches."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from representer.linalg import (
    Cholesky,
    Eigenpairs,
    IndefiniteGramWarning,
    NotPositiveDefiniteError,
    conjugate_gradient,
    eigh,
    factorize,
    factorize_products,
    is_finite,
    kronecker_solve,
    leading,
    nearest_kronecker,
    orthonormal,
    pivoted_cholesky,
    power_of_two,
    repair_gram,
    spectrum_of_factor,
    symmetric_products,
)
from representer.testing import check_gradient

EPS = {torch.float64: 1e-10, torch.float32: 2e-3}
dtypes = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)


def matrix(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape)).to(dtype)


def psd(
    *shape: int,
    rank: int | None = None,
    shift: float = 0.0,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """A random positive semi-definite matrix (..., n, n)."""
    n = shape[-1]
    factor = matrix(*shape, n if rank is None else rank, seed=seed)
    return (factor @ factor.mT / n + shift * torch.eye(n, dtype=torch.float64)).to(dtype)


def close(actual: Tensor, expected: Tensor, tol: float | None = None) -> None:
    tol = EPS[actual.dtype] if tol is None else tol
    torch.testing.assert_close(actual, expected.to(actual.dtype), rtol=tol, atol=tol)


# -- factorize --------------------------------------------------------------------------------------------------------
@dtypes
@given(
    n=st.integers(1, 6),
    p=st.integers(1, 3),
    batch=st.lists(st.integers(1, 3), max_size=2),
    in_place=st.booleans(),
)
def test_factorize(dtype: torch.dtype, n: int, p: int, batch: list[int], in_place: bool) -> None:
    A, B = psd(*batch, n, shift=1.0, dtype=dtype), matrix(*batch, n, p, dtype=dtype)
    kept = A.clone()
    cholesky = factorize(A.clone if in_place else A)
    assert torch.equal(A, kept)
    close(cholesky.factor @ cholesky.factor.mT, kept)
    assert torch.equal(cholesky.factor, cholesky.factor.tril())
    close(cholesky.solve(B), torch.linalg.solve(kept, B))
    close(cholesky.half_solve(B).mT @ cholesky.half_solve(B), B.mT @ torch.linalg.solve(kept, B))
    for rows in (B.mT.clone(memory_format=torch.contiguous_format), B.clone().mT):
        close(cholesky.half_solve_rows(rows), cholesky.half_solve(B).mT)
    close(cholesky.inverse(), torch.linalg.inv(kept))
    assert cholesky.jitter.shape == tuple(batch)
    assert not cholesky.jitter.any()


def test_an_inverse_is_symmetric() -> None:
    A = psd(300, shift=1.0)
    v = matrix(300, 1)
    for cholesky in (
        factorize(A),
        factorize(A.clone),
        Cholesky(factorize(A).factor.contiguous(), A.new_zeros(())),
    ):
        close(cholesky.solve(v), torch.linalg.solve(A, v))
        inverse = cholesky.inverse()
        close(inverse, torch.linalg.inv(A))
        torch.testing.assert_close(inverse, inverse.mT, rtol=0.0, atol=0.0)


def test_factorize_in_place_uses_the_memory() -> None:
    for A in (psd(50, shift=1.0), psd(3, 50, shift=1.0)):
        pointer = A.data_ptr()
        assert factorize(lambda matrix=A: matrix).factor.data_ptr() == pointer


@dtypes
@pytest.mark.parametrize("in_place", [False, True])
def test_a_singular_matrix_gets_a_little_jitter(dtype: torch.dtype, in_place: bool) -> None:
    A = psd(30, rank=5, dtype=dtype)
    kept = A.clone()
    cholesky = factorize(A.clone if in_place else A)
    limit = torch.finfo(dtype).eps ** (1 / 3)
    assert 0 < cholesky.jitter < limit * kept.diagonal().mean()
    shifted = kept + cholesky.jitter * torch.eye(30, dtype=dtype)
    close(cholesky.factor @ cholesky.factor.mT, shifted)


def test_jitter_only_where_it_is_needed_and_no_more() -> None:
    indefinite = torch.diag(torch.tensor([1.0, 1.0, -1e-9], dtype=torch.float64))
    A = torch.stack([psd(3, shift=1.0), psd(3, rank=1), indefinite])
    cholesky = factorize(A)
    assert cholesky.jitter[0] == 0
    assert 0 < cholesky.jitter[1] < 1e-12
    assert 1e-9 < cholesky.jitter[2] < 1e-6
    close(cholesky.factor[0] @ cholesky.factor[0].mT, A[0])


@pytest.mark.parametrize("negative", [-1e-3, -1.0])
@pytest.mark.parametrize("in_place", [False, True])
@dtypes
def test_an_indefinite_matrix_is_refused_with_advice(dtype: torch.dtype, in_place: bool, negative: float) -> None:
    n = 40
    values = torch.ones(n, dtype=dtype)
    values[0] = 30 * negative
    with pytest.raises(
        NotPositiveDefiniteError, match=r"The Gram \(40 × 40\) is not positive definite.*increase alpha"
    ):
        factorize((lambda: torch.diag(values)) if in_place else torch.diag(values), name="The Gram")


def test_failure_in_place_rebuilds_the_matrix_for_the_message() -> None:
    A = psd(20, shift=0.1)
    A[10, 10] = -5.0
    lowest = torch.linalg.eigvalsh(A)[0].item()
    with pytest.raises(NotPositiveDefiniteError, match=f"smallest eigenvalue is {lowest:.3g} against"):
        factorize(A.clone)


@pytest.mark.parametrize("in_place", [False, True])
def test_nan_is_named(in_place: bool) -> None:
    A = psd(20, shift=1.0)
    A[7, 3] = A[3, 7] = math.nan
    with pytest.raises(NotPositiveDefiniteError, match="NaN or infinite entries"):
        factorize(A.clone if in_place else A)


def test_not_strict_marks_the_members_that_fail() -> None:
    A = torch.stack([psd(3, shift=1.0), -torch.eye(3, dtype=torch.float64), psd(3, rank=1)])
    cholesky = factorize(A, strict=False)
    assert torch.isnan(cholesky.factor).flatten(1).all(1).tolist() == [False, True, False]
    close(cholesky.factor[0] @ cholesky.factor[0].mT, A[0])
    nothing = factorize(torch.full((2, 2), math.nan, dtype=torch.float64), strict=False)
    assert bool(torch.isnan(nothing.factor).all())


def test_factorize_is_differentiable_even_with_jitter() -> None:
    for A in (psd(4, shift=1.0), psd(4, rank=4)):
        check_gradient(lambda M: (factorize((M + M.mT) / 2).factor ** 2 * matrix(4, 4)).sum(), A, "the matrix")
    assert factorize(lambda: psd(4, shift=1.0).requires_grad_()).factor.requires_grad


def test_zeros_have_a_tiny_factor() -> None:
    cholesky = factorize(torch.zeros(3, 3, dtype=torch.float64))
    assert 0 < cholesky.jitter < 1e-14
    assert cholesky.factor.abs().max() < 1e-7


def test_an_empty_matrix_has_an_empty_factor() -> None:
    empty = torch.zeros(0, 0, dtype=torch.float64)
    for argument in (empty, empty.clone):
        assert factorize(argument).factor.shape == (0, 0)


# -- eigen ------------------------------------------------------------------------------------------------------------
@dtypes
@given(
    n=st.integers(1, 6),
    batch=st.lists(st.integers(1, 3), max_size=2),
    rank=st.integers(0, 6),
    p=st.integers(1, 3),
)
def test_eigh(dtype: torch.dtype, n: int, batch: list[int], rank: int, p: int) -> None:
    A = psd(*batch, n, rank=rank, dtype=dtype)
    spectrum = eigh(A)
    assert bool((spectrum.values >= 0).all())
    assert bool((spectrum.values.diff(dim=-1) >= 0).all())
    close(spectrum.root() @ spectrum.root().mT, A)
    close(spectrum.vectors.mT @ spectrum.vectors, torch.eye(n).expand(*batch, n, n))
    B = matrix(*batch, n, p, dtype=dtype)
    close(spectrum.solve(B, 0.5), torch.linalg.solve(A + 0.5 * torch.eye(n, dtype=dtype), B))


@pytest.mark.parametrize("overwrite", [False, True])
def test_eigh_keeps_or_reuses_its_argument(overwrite: bool) -> None:
    A = psd(30, shift=0.1)
    kept = A.clone()
    spectrum = eigh(A, overwrite=overwrite)
    assert overwrite or torch.equal(A, kept)
    close((spectrum.vectors * spectrum.values) @ spectrum.vectors.mT, kept)
    close(eigh(kept.mT.contiguous().mT).values, spectrum.values)


def test_eigh_has_gradients() -> None:
    check_gradient(lambda M: (eigh((M + M.mT) / 2).values ** 2).sum(), psd(4, shift=1.0), "the matrix")


def test_eigh_refuses() -> None:
    with pytest.raises(NotPositiveDefiniteError, match=r"The Gram has an eigenvalue of -1 against a largest of 1"):
        eigh(torch.diag(torch.tensor([1.0, -1.0])), name="The Gram")
    A = psd(6, shift=1.0)
    A[2, 1] = A[1, 2] = math.nan
    for bad in (A, A.expand(2, 6, 6), A.clone().requires_grad_()):
        with pytest.raises(NotPositiveDefiniteError, match="NaN or infinite"):
            eigh(bad)


def test_eigh_of_nothing() -> None:
    assert eigh(torch.zeros(0, 0)).values.shape == (0,)
    assert bool((eigh(torch.zeros(3, 3)).values == 0).all())


@dtypes
@pytest.mark.parametrize("rank", [0, 1, 3, 6])
def test_a_thin_spectrum_knows_the_rest_of_the_space(dtype: torch.dtype, rank: int) -> None:
    factor = matrix(6, rank, dtype=dtype)
    spectrum = spectrum_of_factor(factor)
    assert spectrum.vectors.shape == (6, rank)
    A = factor @ factor.mT
    B = matrix(6, 2, seed=1, dtype=dtype)
    shifts = torch.tensor([0.1, 1.0, 10.0], dtype=dtype)
    identity = torch.eye(6, dtype=dtype)
    for shift in shifts:
        close(spectrum.solve(B, shift), torch.linalg.solve(A + shift * identity, B))
        close(spectrum.solve(B, float(shift)), torch.linalg.solve(A + shift * identity, B))
    expected = torch.stack([torch.linalg.inv(A + shift * identity).diagonal() for shift in shifts])
    close(spectrum.inverse_diagonal(shifts), expected)
    close(eigh(A).inverse_diagonal(shifts), expected)
    close(spectrum.root() @ spectrum.root().mT, A)


def test_directions_that_vanish_are_left_out() -> None:
    thin = matrix(8, 2)
    spectrum = spectrum_of_factor(torch.cat([thin, thin @ matrix(2, 3), torch.zeros(8, 1)], 1))
    assert spectrum.vectors.shape == (8, 2)
    close(spectrum.vectors.mT @ spectrum.vectors, torch.eye(2))


# -- repair -----------------------------------------------------------------------------------------------------------
@dtypes
@pytest.mark.parametrize("rank", [1, 5, 40, 60])
def test_a_semi_definite_gram_matrix_is_left_alone(dtype: torch.dtype, rank: int) -> None:
    A = psd(40, rank=rank, dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert repair_gram(A) is A
        assert repair_gram(torch.zeros(3, 3, dtype=dtype)).sum() == 0


def test_an_indefinite_gram_matrix_is_projected() -> None:
    vectors = torch.linalg.qr(matrix(10, 10)).Q
    values = torch.linspace(-0.1, 2.0, 10, dtype=torch.float64)
    A = (vectors * values) @ vectors.mT
    share = -values.clamp(max=0).sum() / values.abs().sum()
    kept = A.clone()
    with pytest.warns(IndefiniteGramWarning, match=rf"\({share:.2%} of the absolute spectrum, smallest -0.1\)"):
        repaired = repair_gram(A, tolerance=0.2)
    assert torch.equal(A, kept)
    close(repaired, (vectors * values.clamp(min=0)) @ vectors.mT)
    assert repair_gram(repaired) is repaired
    for seed in range(3):  # no other positive semi-definite matrix is nearer
        other = repaired + 0.01 * psd(10, seed=seed) - 0.01 * repaired
        assert torch.linalg.norm(A - repaired) <= torch.linalg.norm(A - other)


@pytest.mark.parametrize("values", [[-0.2, -0.1, 0.3, 1.0, 2.0], [-0.2, -0.2, 0.5, 2.0, 2.0]])
def test_gradients_pass_through_a_repair(values: list[float]) -> None:
    vectors = torch.linalg.qr(matrix(5, 5)).Q
    A = (vectors * torch.tensor(values, dtype=torch.float64)) @ vectors.mT

    def repaired(point: torch.Tensor) -> torch.Tensor:
        return (matrix(5, 5, seed=7) * repair_gram(A + point + point.mT, tolerance=0.5)).sum()

    with pytest.warns(IndefiniteGramWarning):
        check_gradient(repaired, torch.zeros(5, 5, dtype=torch.float64), "the matrix")


def test_a_gram_matrix_that_is_too_indefinite_is_refused() -> None:
    A = torch.diag(torch.tensor([3.0, 1.0, -1.0], dtype=torch.float64))
    with pytest.raises(NotPositiveDefiniteError, match=r"The Gram matrix is indefinite: .* hold 20.0% .* the 10%"):
        repair_gram(A)
    with pytest.warns(IndefiniteGramWarning):
        repair_gram(A, tolerance=0.21)
    with pytest.raises(NotPositiveDefiniteError, match="NaN"):
        repair_gram(torch.full((3, 3), math.nan))
    with pytest.raises(ValueError, match="K is not symmetric"):
        repair_gram(torch.tensor([[1.0, 0.2], [0.1, 1.0]]), name="K")


# -- pivoted Cholesky -------------------------------------------------------------------------------------------------
@dtypes
@given(n=st.integers(1, 12), rank=st.integers(0, 12), seed=st.integers(0, 5))
def test_pivoted_cholesky_finds_the_rank(dtype: torch.dtype, n: int, rank: int, seed: int) -> None:
    A = psd(n, rank=rank, seed=seed, dtype=dtype)
    tol = 1e-12 if dtype == torch.float64 else 1e-5
    factor, pivots = pivoted_cholesky(A, tol=tol)
    assert factor.shape == (n, len(pivots))
    assert len(pivots) <= min(n, rank)
    assert len(set(pivots.tolist())) == len(pivots)
    close(factor @ factor.mT, A)
    if dtype == torch.float64:
        assert len(pivots) == min(n, rank) == torch.linalg.matrix_rank(A)


def test_pivots_are_those_of_lapack() -> None:
    A = psd(30, shift=0.01)
    expected, pivots, rank, _ = scipy.linalg.lapack.dpstrf(A.numpy(), lower=1)
    factor, found = pivoted_cholesky(A)
    assert rank == 30
    assert found.tolist() == (pivots - 1).tolist()
    np.testing.assert_allclose(factor[found], np.tril(expected), atol=1e-12)


def test_pivoted_cholesky_by_columns() -> None:
    A = psd(200, rank=70)
    asked: list[int] = []

    def column(index: int) -> Tensor:
        asked.append(index)
        return A[:, index]

    factor, pivots = pivoted_cholesky(column, diagonal=A.diagonal())
    assert asked == pivots.tolist()
    assert len(asked) == 70
    close(factor, pivoted_cholesky(A)[0])
    with pytest.raises(ValueError, match="needs diagonal="):
        pivoted_cholesky(column)


@pytest.mark.parametrize("tol", [1e-1, 1e-3, 1e-6])
def test_the_tolerance_bounds_the_diagonal_that_is_left(tol: float) -> None:
    x = torch.linspace(0, 1, 80, dtype=torch.float64)[:, None]
    A = torch.exp(-((x - x.T) ** 2) / 0.02)
    factor, pivots = pivoted_cholesky(A, tol=tol)
    rest = A - factor @ factor.mT
    assert rest.diagonal().max() <= tol
    shorter, _ = pivoted_cholesky(A, max_rank=len(pivots) - 1, tol=tol)
    assert (A - shorter @ shorter.mT).diagonal().max() > tol
    close(shorter, factor[:, :-1])


def test_pivoted_cholesky_at_the_edges() -> None:
    for A, cap in ((torch.zeros(4, 4), None), (psd(4), 0), (torch.zeros(0, 0), None)):
        factor, pivots = pivoted_cholesky(A, max_rank=cap)
        assert factor.shape == (len(A), 0)
        assert len(pivots) == 0
    factor, pivots = pivoted_cholesky(psd(4).requires_grad_(), max_rank=2)
    assert factor.shape == (4, 2)
    assert not factor.requires_grad
    kept = psd(4)
    pivoted_cholesky(kept)
    assert torch.equal(kept, psd(4))
    low = psd(4, rank=2)
    _, pivots = pivoted_cholesky(low, diagonal=low.diagonal() + 1e-6)  # columns and diagonal by different formulas
    assert len(set(pivots.tolist())) == len(pivots)
    small = 1e-200 * psd(4)
    assert pivoted_cholesky(small)[0].shape == (4, 4)


@pytest.mark.parametrize("place", [(0, 0), (3, 1)])
def test_pivoted_cholesky_refuses_nan(place: tuple[int, int]) -> None:
    A = psd(5, shift=1.0)
    A[place] = A[place[::-1]] = math.nan
    with pytest.raises(NotPositiveDefiniteError, match="NaN or infinite"):
        pivoted_cholesky(A)


# -- Kronecker --------------------------------------------------------------------------------------------------------
@dtypes
@given(n=st.integers(1, 5), p=st.integers(1, 4))
def test_kronecker_solve(dtype: torch.dtype, n: int, p: int) -> None:
    A, B, R = psd(n, dtype=dtype), psd(p, seed=1, dtype=dtype), matrix(n, p, seed=2, dtype=dtype)
    dense = torch.kron(A, B) + 0.3 * torch.eye(n * p, dtype=dtype)
    expected = torch.linalg.solve(dense, R.reshape(-1)).reshape(n, p)
    close(kronecker_solve(eigh(A), eigh(B), R, 0.3), expected)


@pytest.mark.parametrize(("left_rank", "right_rank"), [(2, 3), (4, 1), (2, 1), (0, 3)])
def test_kronecker_solve_with_thin_spectra(left_rank: int, right_rank: int) -> None:
    left, right, R = matrix(4, left_rank), matrix(3, right_rank, seed=1), matrix(4, 3, seed=2)
    dense = torch.kron(left @ left.mT, right @ right.mT) + 0.3 * torch.eye(12, dtype=torch.float64)
    expected = torch.linalg.solve(dense, R.reshape(-1)).reshape(4, 3)
    close(kronecker_solve(spectrum_of_factor(left), spectrum_of_factor(right), R, 0.3), expected)


def test_kronecker_solve_in_batches() -> None:
    A, B, R = psd(2, 4), psd(2, 3, seed=1), matrix(2, 4, 3, seed=2)
    batched = kronecker_solve(eigh(A), eigh(B), R, 0.3)
    for i in range(2):
        close(batched[i], kronecker_solve(eigh(A[i]), eigh(B[i]), R[i], 0.3))


@pytest.mark.parametrize("definite", [True, False])
@given(n=st.integers(1, 4), p=st.integers(1, 3), q=st.integers(1, 4))
def test_nearest_kronecker(definite: bool, n: int, p: int, q: int) -> None:
    make = psd if definite else (lambda m, seed: matrix(m, m, seed=seed))
    terms = [(make(n, seed=10 + i), make(p, seed=20 + i)) for i in range(q)]
    K, A = nearest_kronecker(terms)
    # Van Loan & Pitsianis: the leading singular pair of the rearrangement, whose rows are vec(K), columns vec(A).
    rearranged = torch.stack([torch.outer(k.reshape(-1), a.reshape(-1)) for k, a in terms]).sum(0)
    U, s, V = torch.linalg.svd(rearranged)
    best = s[0] * torch.outer(U[:, 0], V[0])
    if len(s) == 1 or s[0] > 1.001 * s[1]:
        close(torch.outer(K.reshape(-1), A.reshape(-1)), best, 1e-8)
    total = torch.stack([torch.kron(k, a) for k, a in terms]).sum(0)
    error = torch.linalg.norm(total - torch.kron(K, A))
    assert error.item() == pytest.approx(torch.linalg.norm(s[1:]).item(), abs=1e-7 * s[0].item())
    if definite:
        assert torch.linalg.eigvalsh(K)[0] >= -1e-9 * K.abs().max()
        assert torch.linalg.eigvalsh(A)[0] >= -1e-9 * A.abs().max()


def test_nearest_kronecker_of_one_term_and_of_zero() -> None:
    K, A = nearest_kronecker([(psd(3), psd(2, seed=1))])
    close(torch.kron(K, A), torch.kron(psd(3), psd(2, seed=1)))
    K, A = nearest_kronecker([(torch.zeros(3, 3), torch.zeros(2, 2))])
    assert not torch.kron(K, A).any()


# -- conjugate gradients ----------------------------------------------------------------------------------------------
@dtypes
@pytest.mark.parametrize("preconditioned", [False, True])
@given(n=st.integers(1, 8), p=st.integers(1, 3))
def test_conjugate_gradient(dtype: torch.dtype, preconditioned: bool, n: int, p: int) -> None:
    A = psd(n, shift=0.5, dtype=dtype) * torch.logspace(0, 1, n, dtype=dtype).outer(
        torch.logspace(0, 1, n, dtype=dtype)
    )
    B = matrix(n, p, seed=1, dtype=dtype)
    scale = A.diagonal()[:, None]
    x = conjugate_gradient(
        lambda v: A @ v,
        B,
        precondition=(lambda r: r / scale) if preconditioned else (lambda r: r),
        tol=1e-12 if dtype == torch.float64 else 1e-5,
    )
    close(x, torch.linalg.solve(A, B), 1e-8 if dtype == torch.float64 else 1e-2)


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_conjugate_gradient_takes_matrices_and_right_sides_of_any_size(size: float) -> None:
    A, B = psd(8, shift=0.5), matrix(8, 2, seed=1)
    expected = torch.linalg.solve(A, B)
    for columnwise in (False, True):
        close(conjugate_gradient(lambda v: size * (A @ v), size * B, columnwise=columnwise), expected, 1e-8)
        close(conjugate_gradient(lambda v: A @ v, size * B, columnwise=columnwise) / size, expected, 1e-8)


def test_a_good_preconditioner_saves_steps() -> None:
    A = psd(60, shift=1e-4)
    b = matrix(60, seed=1)
    counts = []
    for factor in (torch.eye(60, dtype=torch.float64), torch.linalg.cholesky(A + 1e-6 * torch.eye(60))):
        steps: list[int] = []
        inverse = torch.cholesky_inverse(factor)
        conjugate_gradient(
            lambda v, s=steps: (s.append(1), A @ v)[1], b, precondition=lambda r, m=inverse: m @ r, tol=1e-8
        )
        counts.append(len(steps))
    assert counts[1] < 10 < counts[0]


@pytest.mark.parametrize("shape", [(4,), (4, 2), (0,)])
def test_nothing_to_solve(shape: tuple[int, ...]) -> None:
    zero = torch.zeros(shape, dtype=torch.float64)
    assert torch.equal(conjugate_gradient(lambda v: 2.0 * v, zero), zero)


def test_conjugate_gradient_says_when_it_fails() -> None:
    A, b = psd(40, shift=1e-6), matrix(40)
    with pytest.raises(
        RuntimeError, match=r"on the ridge system stopped after 3 iterations .* \(wanted 1e-12\). Increase"
    ):
        conjugate_gradient(lambda v: A @ v, b, max_iter=3, name="the ridge system")
    with pytest.raises(RuntimeError, match="not positive definite: a direction has the curvature -"):
        conjugate_gradient(lambda v: -v, b)
    with pytest.raises(RuntimeError, match=r"stopped after 0 iterations at a relative residual of 1 .* curvature nan"):
        conjugate_gradient(lambda v: v * math.nan, b)
    with pytest.raises(RuntimeError, match="nan"):
        conjugate_gradient(lambda v: v, b * math.nan)


# -- small things -----------------------------------------------------------------------------------------------------
def test_is_finite() -> None:
    assert is_finite(torch.ones(3, 3))
    assert is_finite(torch.full((3,), 1e308, dtype=torch.float64))  # the sum overflows, the entries do not
    assert is_finite(torch.zeros(0))
    for bad in (math.nan, math.inf, -math.inf):
        assert not is_finite(torch.tensor([1.0, bad]))
    assert not is_finite(torch.tensor([math.inf, -math.inf], requires_grad=True))


def test_a_spectrum_can_be_made_by_hand() -> None:
    spectrum = Eigenpairs(torch.eye(3)[:, :1], torch.tensor([2.0]))
    close(spectrum.solve(torch.ones(3, 1), 1.0), torch.tensor([[1 / 3], [1.0], [1.0]]))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_pivoted_cholesky_in_blocks_is_that_by_columns(dtype):
    rng = np.random.default_rng(0)
    for rank in (1, 7, 90, 150):
        B = torch.from_numpy(rng.normal(size=(150, rank)) * np.logspace(0, -2, rank)).to(dtype)
        A = B @ B.mT
        tol = 1e-4 if dtype == torch.float32 else 1e-10
        factor, pivots = pivoted_cholesky(A, tol=tol)
        columns, others = pivoted_cholesky(lambda i, A=A: A[:, i], diagonal=A.diagonal(), tol=tol)
        assert torch.equal(pivots, others) and factor.dtype == dtype
        torch.testing.assert_close(factor, columns, atol=1e-2 if dtype == torch.float32 else 1e-8, rtol=0)
        assert (factor @ factor.mT - A).abs().max() <= 150 * tol * A.diagonal().max()
    zero, none = pivoted_cholesky(torch.zeros(3, 3))
    assert zero.shape == (3, 0) and len(none) == 0


# -- leading eigenvectors ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("case", ["decay", "cluster", "low rank", "indefinite", "small"])
def test_leading_eigenpairs_are_those_of_eigh(case):
    generator = torch.Generator().manual_seed(0)
    N, n = (20, 5) if case == "small" else (150, 5)
    U = torch.linalg.qr(torch.randn(N, N, generator=generator, dtype=torch.float64)).Q
    values = {
        "decay": 1000.0 * 0.8 ** torch.arange(N, dtype=torch.float64),
        "cluster": torch.cat([torch.tensor([500.0]), 1.0 - 1e-4 * torch.arange(9), torch.full((N - 10,), 1e-3)]),
        "low rank": torch.cat([torch.tensor([3.0, 2.0, 1.0]), torch.zeros(N - 3)]),
        "indefinite": torch.linspace(3.0, -5.0, N),
        "small": torch.linspace(3.0, 0.0, N),
    }[case].to(torch.float64)
    A = (U * values) @ U.mT
    start = torch.randn(N, 1, generator=generator, dtype=torch.float64)
    pairs = leading(lambda V: A @ V, start, n, tol=1e-10)
    V = pairs.vectors[:, :n]
    assert torch.allclose(pairs.values[:n], values[:n], atol=1e-9 * values.abs().max())
    assert torch.allclose(V.mT @ V, torch.eye(n, dtype=torch.float64), atol=1e-12)
    assert (A @ V - V * pairs.values[:n]).norm() <= 1e-8 * values.abs().max()


def test_flat_spectra_are_solved_to_rounding():
    """A round may gain little, which is no sign of rounding; but where rounding is reached, no product is wasted."""
    products = 0

    def found(values):
        nonlocal products
        products = 0

        def product(V):
            nonlocal products
            products += 1
            return values[:, None] * V

        return leading(product, torch.ones(400, 1, dtype=torch.float64), 5, tol=1e-14)

    assert found(torch.linspace(2.0, 1.0, 400, dtype=torch.float64)).residual <= 1e-12
    assert found(0.5 ** torch.arange(400, dtype=torch.float64)).residual <= 1e-12 and products <= 10


def test_a_share_of_the_residual_is_enough():
    A = torch.diag(torch.linspace(2.0, 1.0, 150, dtype=torch.float64))
    start = torch.eye(150, 5, dtype=torch.float64) + 1e-3
    products = []

    def found(**accuracy: float):
        products.append(0)

        def product(V):
            products[-1] += 1
            return A @ V

        return leading(product, start, 5, **accuracy)

    at_first, half, exact = (
        found(tol=1e-10, max_iter=0),
        found(tol=1e-10, share=0.1),
        found(tol=1e-10, share=1e-12),
    )
    assert 1e-10 < half.residual <= 0.1 * at_first.residual
    assert exact.residual <= 1e-10 and products[0] < products[1] < products[2]


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-8, 1e-14])
def test_orthonormal_blocks_stay_so_near_dependence(scale):
    generator = torch.Generator().manual_seed(0)
    against = orthonormal(torch.randn(60, 6, generator=generator, dtype=torch.float64))
    noise = torch.randn(60, 5, generator=generator, dtype=torch.float64)
    noise[:, 3] = noise[:, 2] + scale * noise[:, 3]
    block = orthonormal(against[:, :5] + scale * noise, against)
    both = torch.cat([against, block], 1)
    assert torch.allclose(both.mT @ both, torch.eye(11, dtype=torch.float64), atol=1e-13)
    if scale == 1.0:  # the same span
        inside = noise - against @ (against.mT @ noise)
        assert torch.allclose(block @ (block.mT @ inside), inside, atol=1e-12)


def test_orthonormal_blocks_stay_so_where_columns_vanish_or_repeat():
    generator = torch.Generator().manual_seed(0)
    against = torch.linalg.qr(torch.randn(40, 5, generator=generator, dtype=torch.float64)).Q
    block = torch.randn(40, 4, generator=generator, dtype=torch.float64)
    block[:, 1], block[:, 2], block[:, 3] = 0.0, block[:, 0], against[:, 0]
    both = torch.cat([against, orthonormal(block, against)], 1)
    assert torch.allclose(both.mT @ both, torch.eye(9, dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize("shape", [(1, 1), (7, 300), (300, 5), (3, 6, 4), (0, 3)])
def test_symmetric_products(shape: tuple[int, ...]) -> None:
    rows, weights = matrix(*shape), matrix(*shape[:-1], seed=3)
    left, right = (matrix(*shape[:-2], shape[-1], 3, seed=seed) for seed in (1, 2))
    expected = left @ right.mT + right @ left.mT
    close(symmetric_products(left, right), expected)
    expected = expected + torch.einsum("...i,...ij,...ik->...jk", weights, rows, rows)
    close(symmetric_products(left, right, rows, weights), expected)


# -- scales ------------------------------------------------------------------------------------------------------------
def test_powers_of_two_are_those_below() -> None:
    sizes = torch.tensor([5.0, 4.0, 0.3, 0.0, torch.inf, 1e-300, 1e300], dtype=torch.float64)
    expected = [4.0, 4.0, 0.25, 1.0, 1.0, 2.0 ** math.floor(math.log2(1e-300)), 2.0 ** math.floor(math.log2(1e300))]
    assert power_of_two(sizes).tolist() == expected


def test_the_spectrum_of_a_factor_keeps_what_its_products_lose() -> None:
    Q, _ = torch.linalg.qr(matrix(30, 3))
    factor = Q * torch.tensor([1e9, 1.0, 1e-3], dtype=torch.float64)
    spectrum = spectrum_of_factor(factor)
    relative = spectrum.values.sqrt() / torch.tensor([1e-3, 1.0, 1e9], dtype=torch.float64)
    close(relative, torch.ones(3), 1e-3)  # 1e9 is rounded by 1e-7
    close(spectrum.vectors.mT @ spectrum.vectors, torch.eye(3))


def test_the_factor_of_products_plus_a_shift_keeps_what_the_products_lose() -> None:
    Q, _ = torch.linalg.qr(matrix(30, 2))
    rows = Q * torch.tensor([1e6, 1e-3], dtype=torch.float64)
    factor = factorize_products(rows, torch.tensor(1e-9, dtype=torch.float64)).factor
    relative = factor.diagonal() / torch.tensor([1e6, math.sqrt(1e-6 + 1e-9)], dtype=torch.float64)
    close(relative, torch.ones(2), 1e-6)
    batch = torch.stack([matrix(5, 3), matrix(5, 3)])
    shifts = torch.tensor([0.5, 2.0], dtype=torch.float64)
    found = factorize_products(batch, shifts)
    close(found.factor @ found.factor.mT, batch.mT @ batch + shifts[:, None, None] * torch.eye(3))
