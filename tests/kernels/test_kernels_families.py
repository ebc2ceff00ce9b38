"""Families: which kernels are stacked for which data, and that every member is a kernel of them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from tiers import tiers

from representer import EmbeddingClassifier, OperatorRidge
from representer.approximation import Nystroem, RandomFeatures, TensorSketch
from representer.kernels import FAMILIES, Gaussian, Graph, Linear, as_kernel, family, is_several, suggest
from representer.testing import check_kernel

WORDS = ["gattaca", "tacagatt", "attac", "cattag", "gagaga", "tttacg", "acgt", "ccattac"]
SMILES = ["CCO", "CCN", "CCC", "c1ccccc1", "CC(=O)O", "CCCl", "OCC(O)CO", "CC#N"]


def graphs():
    ring = [(0, 1), (1, 2), (2, 3), (3, 0)]
    return [Graph(ring[: 1 + i % 4], node_labels=["abc"[(i + j) % 3] for j in range(4)]) for i in range(8)]


def curves(rng):
    return [(np.linspace(0.0, 1.0, 4 + i % 3), rng.normal(size=4 + i % 3)) for i in range(8)]


def bags(rng):
    return [rng.normal(size=(2 + i % 3, 2)) for i in range(8)]


@pytest.fixture
def samples(rng):
    return {"molecules": SMILES, "strings": WORDS, "graphs": graphs(), "curves": curves(rng), "bags": bags(rng)}


@pytest.mark.parametrize("kind", FAMILIES)
def test_members_are_kernels_of_their_data(kind, samples):
    if kind == "molecules":
        pytest.importorskip("rdkit")
    X = samples[kind]
    members = family(kind).kernels
    assert len(members) >= 3 and len({repr(member) for member in members}) == len(members)
    for member in members:
        check_kernel(member.resolve(member.prepare(X)), X)


@pytest.mark.parametrize("kind", tiers(list(FAMILIES), lambda kind: kind != "bags"))
def test_words_and_types_of_objects_are_stacked(kind, samples):
    if kind == "molecules":
        pytest.importorskip("rdkit")
    X, y = samples[kind] * 3, np.arange(24.0) % 8
    model = OperatorRidge(kind, tol=1e-2)
    model.fit(X, y)
    assert len(model.members_) == len(family(kind).kernels) and np.isfinite(model.predict(X)).all()
    if kind not in ("molecules", "strings"):  # these are all strings
        same = OperatorRidge(tol=1e-2).fit(X, y)
        np.testing.assert_allclose(same.predict(X), model.predict(X))


def test_vectors_have_fewer_kernels_where_features_are_many_or_random(rng):
    assert [len(family("vectors", d).kernels) for d in (1, 2, 40, 41)] == [3, 6, 6, 4]
    X = rng.normal(size=(30, 2))
    assert suggest(X).kernel == suggest(X.tolist()).kernel
    assert [member.kernel for member in suggest(X).kernel.kernels] == family("vectors", 2).kernels
    stationary = suggest(X, features="frequencies").kernel.kernels
    assert Linear() not in [member.kernel for member in stationary]
    y = X[:, 0] + 0.1 * rng.normal(size=30)
    for approximation in (Nystroem(10), RandomFeatures(20), TensorSketch(20)):
        model = OperatorRidge(approximation=approximation, random_state=0, tol=1e-2).fit(X, y)
        assert model.score(X, y) > 0.5


def test_sparse_rows_have_a_family(rng):
    X = scipy.sparse.random_array((40, 20), density=0.2, rng=rng, format="csr")
    y = X.toarray() @ rng.normal(size=20)
    regression, classes = OperatorRidge().fit(X, y), EmbeddingClassifier().fit(X, y > np.median(y))
    assert regression.members_[0].kernel == as_kernel("minmax") and len(classes.members_) == 2
    np.testing.assert_allclose(regression.predict(X[:5]), regression.predict(X)[:5])


def test_words_of_families_are_several_kernels():
    assert all(map(is_several, ("auto", *FAMILIES, family("sparse")))) and not is_several("rbf")
    with pytest.raises(ValueError, match="several kernels"):
        as_kernel("molecules")
    with pytest.raises(ValueError, match="'molecules'"):
        as_kernel("molecule")
    assert not is_several(Gaussian())
