"""Tanimoto and MinMax: every form of fingerprint against sets and multisets, exactness, blocks, bad input."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import naive
from representer import OperatorRidge
from representer.kernels import Delta, Linear, Tanimoto, molecules
from representer.kernels.molecules import MinMax
from representer.testing import check_kernel

RNG = np.random.default_rng(0)
BITS = (RNG.random((9, 21)) < 0.3).astype(int)
BITS[3] = BITS[7] = 0
COUNTS = BITS * RNG.integers(1, 5, BITS.shape)


def multiset_jaccard(x: Any, y: Any) -> float:
    """|A ∩ B| / |A ∪ B| of multisets, element by element."""
    one, two = (Counter({i: int(c) for i, c in enumerate(v) if c}) for v in (x, y))
    union = (one | two).total()
    return (one & two).total() / union if union else 1.0


def minmax(x: Any, y: Any) -> float:
    top = sum(max(float(a), float(b)) for a, b in zip(x, y, strict=True))
    return sum(min(float(a), float(b)) for a, b in zip(x, y, strict=True)) / top if top else 1.0


def uint64(bits: np.ndarray) -> np.ndarray:
    padded = np.pad(bits, ((0, 0), (0, -bits.shape[1] % 64)))
    return np.packbits(padded, axis=1).view(np.uint64)


FORMS = {
    "array": lambda A: A,
    "list": lambda A: A.tolist(),
    "tensor": torch.from_numpy,
    "csr": sparse.csr_array,
    "csc": sparse.csc_matrix,
    "coo": sparse.coo_array,
    "csr of bytes": lambda A: sparse.csr_matrix(A.astype(np.uint8)),
    "csr of truths": lambda A: sparse.csr_array(A.astype(bool)),
}
every_form = pytest.mark.parametrize("form", [pytest.param(form, id=name) for name, form in FORMS.items()])


# -- values -----------------------------------------------------------------------------------------------------------
@every_form
@pytest.mark.parametrize("kernel", [Tanimoto(), MinMax()], ids=repr)
def test_bits_give_the_jaccard_index_of_sets(kernel: Any, form: Any) -> None:
    expected = naive.gram(naive.jaccard, BITS)
    assert np.array_equal(kernel(form(BITS)), expected)
    assert np.array_equal(kernel(form(BITS), form(BITS[:4])), expected[:, :4])
    assert np.array_equal(kernel(form(BITS), BITS[:4]), expected[:, :4])
    assert np.array_equal(kernel(BITS[:4], form(BITS)), expected[:4])
    assert kernel.diag(form(BITS)).tolist() == [1.0] * 9
    assert np.array_equal((2.0 * kernel + 1.0)(form(BITS)), 2.0 * expected + 1.0)


@pytest.mark.parametrize("pack", [lambda A: np.packbits(A, axis=1), uint64], ids=["uint8", "uint64"])
def test_packed_bits_give_the_jaccard_index_of_sets(pack: Any) -> None:
    kernel, expected = Tanimoto(packed=True), naive.gram(naive.jaccard, BITS)
    packed = pack(BITS)
    before = packed.copy()
    assert np.array_equal(kernel(packed), expected)
    assert np.array_equal(kernel(packed, packed[::-1][:4]), expected[:, ::-1][:, :4])
    assert np.array_equal(kernel(list(packed)), expected)
    assert np.array_equal(packed, before)
    check_kernel(kernel, packed)


def test_packed_tensors() -> None:
    packed = torch.from_numpy(np.packbits(BITS, axis=1))
    assert np.array_equal(Tanimoto(packed=True)(packed), naive.gram(naive.jaccard, BITS))


@pytest.mark.parametrize("form", [FORMS[name] for name in ("array", "tensor", "csr", "csc", "coo")])
def test_counts(form: Any) -> None:
    for kernel, oracle in ((MinMax(), multiset_jaccard), (Tanimoto(), naive.tanimoto())):
        expected = naive.gram(oracle, COUNTS)
        np.testing.assert_allclose(kernel(form(COUNTS)), expected, rtol=1e-15)
        np.testing.assert_allclose(kernel(form(COUNTS[:3]), form(COUNTS)), expected[:3], rtol=1e-15)
        np.testing.assert_allclose(kernel(form(COUNTS), BITS), naive.gram(oracle, COUNTS, BITS), rtol=1e-15)


@pytest.mark.parametrize("form", [FORMS["array"], FORMS["csr"]])
def test_real_numbers(form: Any) -> None:
    weights = BITS * RNG.random(BITS.shape)
    signed = BITS * RNG.standard_normal(BITS.shape)
    np.testing.assert_allclose(MinMax()(form(weights)), naive.gram(minmax, weights), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(
        MinMax()(form(weights), form(COUNTS)), naive.gram(minmax, weights, COUNTS), rtol=1e-12, atol=1e-15
    )
    for left, right in ((signed, signed), (signed, BITS), (weights, COUNTS)):
        np.testing.assert_allclose(
            Tanimoto()(form(left), form(right)), naive.gram(naive.tanimoto(), left, right), rtol=1e-12
        )


@given(st.lists(st.lists(st.sampled_from([0, 0, 0, 1, 2, 7]), min_size=4, max_size=4), min_size=1, max_size=5))
def test_sparse_dense_and_differentiable_agree(rows: list[list[int]]) -> None:
    array = np.array(rows, dtype=float)
    for kernel in (Tanimoto(), MinMax()):
        through_autograd = kernel(torch.from_numpy(array).requires_grad_()).detach()
        torch.testing.assert_close(kernel(array), through_autograd, rtol=1e-14, atol=0)
        torch.testing.assert_close(kernel(sparse.csr_array(array)), through_autograd, rtol=1e-14, atol=0)


def test_the_contract() -> None:
    weights, others = RNG.random((6, 4)) + 0.1, RNG.random((3, 4)) + 0.1  # no ties, where min has a kink
    check_kernel(MinMax(), weights, others)
    check_kernel(0.5 * MinMax() + Tanimoto() * MinMax(), weights, others)
    assert repr(Tanimoto()) == "Tanimoto()"
    assert repr(Tanimoto(packed=True)) == "Tanimoto(packed=True)"
    assert pickle.loads(pickle.dumps(Tanimoto(packed=True))) == clone(Tanimoto(packed=True)) != Tanimoto()


def test_positive_semi_definite_on_many_fingerprints() -> None:
    bits = (RNG.random((150, 64)) < 0.1).astype(int)
    counts = bits * RNG.integers(1, 9, bits.shape)
    for gram in (Tanimoto()(bits), Tanimoto()(counts), MinMax()(counts), MinMax()(sparse.csr_array(counts))):
        assert torch.equal(gram, gram.mT)
        assert torch.linalg.eigvalsh(gram)[0] > -1e-12


def test_the_order_of_the_columns_does_not_matter() -> None:
    order = RNG.permutation(BITS.shape[1])
    for kernel in (Tanimoto(), MinMax()):
        assert torch.equal(kernel(COUNTS[:, order]), kernel(COUNTS))


# -- arithmetic and blocks --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("share", [0.05, 0.6])
@pytest.mark.parametrize("size", [1, 90, 30_000, 2**20, 2.0**70])
def test_no_integer_overflows(share: float, size: float) -> None:
    counts = (RNG.random((5, 40)) < share) * RNG.integers(1, 10, (5, 40)) * float(size)
    expected = naive.gram(naive.tanimoto(), counts)
    np.testing.assert_allclose(Tanimoto()(sparse.csr_array(counts)), expected, rtol=1e-12)
    np.testing.assert_allclose(Tanimoto()(counts), expected, rtol=1e-12)
    np.testing.assert_allclose(MinMax()(sparse.csr_array(counts)), naive.gram(minmax, counts), rtol=1e-12)
    np.testing.assert_allclose(MinMax()(counts), naive.gram(minmax, counts), rtol=1e-12)


@pytest.mark.parametrize("share", [0.05, 0.6])
def test_blocks_make_the_whole(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = ((RNG.random((n, 50)) < share).astype(int) for n in (23, 17))
    packed = [np.packbits(bits, axis=1) for bits in (left, right)]
    whole = Tanimoto(packed=True)(*packed)
    for rows, columns, many in ((4, 5, 0), (1, 100, 10), (30, 1, 10**6)):
        monkeypatch.setattr(molecules, "BLOCK_ROWS", rows)
        monkeypatch.setattr(molecules, "BLOCK_COLUMNS", columns)
        monkeypatch.setattr(molecules, "MANY_COLUMNS", many)
        assert torch.equal(Tanimoto(packed=True)(*packed), whole)
        assert torch.equal(MinMax()(sparse.csr_array(left), sparse.csr_array(right)), whole)


def test_fingerprints_that_are_not_folded() -> None:
    columns = 2**40  # a dense row of this length would not fit
    indices = [[3, 2**39, 7], [2**39, 11], [5]]
    rows = sparse.csr_array((np.ones(6), np.concatenate(indices), [0, 3, 5, 6]), shape=(3, columns))
    expected = [[1.0, 0.25, 0.0], [0.25, 1.0, 0.0], [0.0, 0.0, 1.0]]
    assert Tanimoto()(rows).tolist() == MinMax()(rows).tolist() == expected
    assert Tanimoto()(rows[:1], rows[2:]).tolist() == [[0.0]]  # no column is shared


def test_single_precision_stays() -> None:
    bits = torch.from_numpy(BITS).float()
    for kernel in (Tanimoto(), MinMax()):
        assert kernel(bits).dtype == kernel.diag(bits).dtype == torch.float32
        assert kernel(bits, BITS).dtype == torch.float64
        torch.testing.assert_close(kernel(bits).double(), kernel(BITS), rtol=1e-6, atol=0)


def test_sparse_data_are_left_alone() -> None:
    raw = sparse.coo_array((np.ones(3), ([0, 0, 1], [1, 1, 0])), shape=(2, 3))  # an entry in two parts
    csr = sparse.csr_array((np.array([1.0, 1.0, 2.0]), np.array([2, 2, 0]), np.array([0, 2, 3])), shape=(2, 3))
    assert MinMax()(raw).tolist() == MinMax()(csr).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert MinMax()(csr, [[0, 0, 1], [0, 0, 2]]).tolist() == [[0.5, 1.0], [0.0, 0.0]]
    assert csr.data.tolist() == [1.0, 1.0, 2.0]
    assert raw.nnz == 3


# -- learners ---------------------------------------------------------------------------------------------------------
def test_ridge_on_bits_in_any_form() -> None:
    y = RNG.standard_normal(len(BITS))
    packed = np.packbits(BITS, axis=1)
    dense = OperatorRidge(Tanimoto(), alpha=0.1).fit(BITS, y)
    fitted = OperatorRidge(Tanimoto(packed=True), alpha=0.1).fit(packed, y)
    np.testing.assert_allclose(fitted.predict(packed[:3]), dense.predict(BITS[:3]), rtol=1e-10)
    np.testing.assert_allclose(fitted.loo_predict_, dense.loo_predict_, rtol=1e-10)
    search = GridSearchCV(OperatorRidge(Tanimoto(packed=True)), {"alpha": [0.1, 1.0]}, cv=3).fit(packed, y)
    assert np.isfinite(search.best_score_)


# -- bad input --------------------------------------------------------------------------------------------------------
def test_counts_are_not_negative() -> None:
    for data in (BITS - 0.5, sparse.csr_array(BITS - 2 * np.eye(9, 21))):
        with pytest.raises(ValueError, match=r"MinMax takes counts, which are not negative.*-.*Tanimoto"):
            MinMax()(data)
    with pytest.raises(ValueError, match="not negative"):
        MinMax().diag(-BITS)


@pytest.mark.parametrize("kernel", [Tanimoto(), MinMax()], ids=repr)
def test_bad_sparse_data(kernel: Any) -> None:
    rows = sparse.csr_array(BITS.astype(float))
    with pytest.raises(ValueError, match="X has 21 features, but Y has 5"):
        kernel(rows, rows[:, :5])
    with pytest.raises(ValueError, match="21 features"):
        kernel(rows, BITS[:, :5])
    with pytest.raises(ValueError, match=r"at least one sample.*\(0, 3\)"):
        kernel(sparse.csr_array((0, 3)))
    with pytest.raises(ValueError, match="complex"):
        kernel(rows * 1j)
    hole = rows.copy()
    place = hole.nonzero()
    hole.data[2] = np.nan
    hole.data[1] = 0.0  # stored all the same
    with pytest.raises(ValueError, match=f"first at row {place[0][2]}, column {place[1][2]}"):
        kernel(hole)
    with pytest.raises(ValueError, match="dense arrays"):
        (kernel + Linear())(rows)


@pytest.mark.parametrize(
    "data", [BITS, BITS.astype(float), np.packbits(BITS, axis=1)[0], np.zeros((0, 3), np.uint8), [["a"]]]
)
def test_packed_bits_are_unsigned(data: Any) -> None:
    with pytest.raises(ValueError, match=r"Tanimoto\(packed=True\) takes an array .*packbits.*got"):
        Tanimoto(packed=True)(data)


def test_packed_bits_of_different_lengths() -> None:
    packed = np.packbits(BITS, axis=1)
    with pytest.raises(ValueError, match="X has 3 features, but Y has 2"):
        Tanimoto(packed=True)(packed, packed[:, :2])
    with pytest.raises(ValueError, match="same kind of data"):
        (Tanimoto(packed=True) + Linear())(packed)
    with pytest.raises(ValueError, match="same kind of data"):
        (Tanimoto(packed=True) + Delta())(packed)
