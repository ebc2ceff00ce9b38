"""Deep learners on objects: one Gram matrix for a fit, its repair, its precision, and sparse fingerprints."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from naive_deep import functions_of
from scipy import sparse
from sklearn.svm import SVC
from sklearn.utils import get_tags

from representer import DeepKernelClassifier, DeepKernelRegressor, Layer, OperatorRidge
from representer.approximation import Nystroem, landmark_features
from representer.functions import Expansion
from representer.kernels import (
    Callable,
    Columns,
    Delta,
    Edit,
    Functional,
    Gaussian,
    GlobalAlignment,
    GraKeL,
    Graph,
    Kernel,
    Match,
    MeanMap,
    MinMax,
    Mismatch,
    Molecule,
    Parallel,
    Precomputed,
    RandomWalk,
    ShortestPath,
    Signature,
    Spectrum,
    Subsequence,
    Tanimoto,
    VertexHistogram,
    WeisfeilerLehman,
)
from representer.linalg import IndefiniteGramWarning, NotPositiveDefiniteError
from representer.operators import Decomposable, Dense, Separate
from representer.operators.adapted import Adapted
from representer.problems.composition import Composition
from representer.problems.deep import Restore, precompute

RNG = np.random.default_rng(0)
WORDS = sorted({"".join(RNG.choice(list("abc"), n)) for n in RNG.integers(1, 9, 40)})
N_OF_A = np.array([word.count("a") + 0.1 * len(word) for word in WORDS])
TIMES = [np.sort(RNG.uniform(0, 1, n)) for n in RNG.integers(5, 12, 16)]
GRAPHS = [
    Graph([(i, i + 1) for i in range(n)], ["C", *RNG.choice(["C", "O"], n)]) for n in [*range(1, 9), *range(1, 9)]
]
BAGS = [RNG.normal(RNG.uniform(-1, 1), 1.0, (n, 2)) for n in RNG.integers(2, 9, 16)]
BITS = (RNG.random((40, 32)) < 0.3).astype(float)
SHARED = BITS[:, :5].sum(1)
SMILES = ["C" * n + end for n in range(1, 6) for end in ("O", "N", "Cl")]

ANY_DATA: dict[str, tuple[Kernel, Any]] = {
    "spectrum": (Spectrum((1, 2)), WORDS),
    "mismatch": (Mismatch(2, 1), WORDS),
    "subsequence": (Subsequence(2), WORDS),
    "edit": (Edit(), WORDS),
    "wl": (WeisfeilerLehman(2), GRAPHS),
    "assignment": (WeisfeilerLehman(2, "assignment"), GRAPHS),
    "paths": (ShortestPath(), GRAPHS),
    "walks": (RandomWalk(0.05), GRAPHS),
    "histogram": (VertexHistogram(), GRAPHS),
    "grakel": (GraKeL("vertex_histogram"), GRAPHS),
    "molecule": (Molecule(counts=True), SMILES),
    "mean map": (MeanMap(Gaussian(1.0), Gaussian("median")), BAGS),
    "match": (Match(Gaussian(1.0)), BAGS),
    "functional": (
        Functional(Gaussian(1.0), interval="hull", domain="objects"),
        [(t, np.sin(3 * t)) for t in TIMES],
    ),
    "alignment": (GlobalAlignment(), [np.sin(3 * t) for t in TIMES]),
    "signature": (Signature(2), [np.sin(3 * t) for t in TIMES]),
    "columns": (
        Columns({"word": Spectrum(1), "size": Gaussian(2.0)}),
        [{"word": w, "size": len(w)} for w in WORDS],
    ),
    "delta": (Delta(), [w[0] for w in WORDS]),
    "parallel": (0.5 * Parallel(Spectrum(1)).centered() + 1.0, WORDS),
    "tanimoto": (Tanimoto(), sparse.csr_array(BITS)),
    "min max": (MinMax(), sparse.csr_array(BITS)),
}


def needs(name: str) -> None:
    pytest.importorskip({"grakel": "grakel", "molecule": "rdkit"}.get(name, "numpy"))


# -- every kernel in every learner ------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ANY_DATA)
@pytest.mark.filterwarnings("ignore::representer.linalg.IndefiniteGramWarning")
def test_a_machine_without_inner_layers_is_ridge_regression(name: str) -> None:
    needs(name)
    kernel, X = ANY_DATA[name]
    n = X.shape[0] if sparse.issparse(X) else len(X)
    y = np.sin(np.arange(n))
    model = DeepKernelRegressor([], kernel=kernel, alpha=0.1, fit_intercept=False).fit(X, y)
    ridge = OperatorRidge(kernel, alpha=0.1, fit_intercept=False).fit(X, y)
    assert model.kernel_ == ridge.kernel_ and repr(model.kernel_) == repr(ridge.kernel_)
    mean, std = model.predict(X[:7], return_std=True)
    expected, spread = ridge.predict(X[:7], return_std=True)
    np.testing.assert_allclose(mean, expected, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(std, spread, rtol=1e-6, atol=1e-8)
    copied = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copied.predict(X[:7]), mean)


@pytest.mark.parametrize("name", ANY_DATA)
@pytest.mark.filterwarnings("ignore::representer.linalg.IndefiniteGramWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_kernel_as_an_inner_layer(name: str) -> None:
    needs(name)
    kernel, X = ANY_DATA[name]
    n = X.shape[0] if sparse.issparse(X) else len(X)
    y = np.sin(np.arange(n))
    layers = [Layer(kernel, 2, alpha=0.1)]
    options: dict[str, Any] = {"alpha": 0.01, "n_restarts": 1, "max_iter": 5, "random_state": 0}
    model = DeepKernelRegressor(layers, Gaussian(1.0), **options).fit(X, y)
    assert model.layers_[0].kernel == OperatorRidge(kernel, alpha=1.0, fit_intercept=False).fit(X, y).kernel_
    assert np.isfinite(model.predict(X[:5])).all() and model.score(X, y) > -1.0
    new = X[:5].toarray() if sparse.issparse(X) else X[:5]
    images = model.transform_layers(X[:5])[0]
    np.testing.assert_allclose(model.deep_kernel_(new), Gaussian(1.0)(images), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", ANY_DATA)
@pytest.mark.filterwarnings("ignore::representer.linalg.IndefiniteGramWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_kernel_in_a_classifier(name: str) -> None:
    needs(name)
    kernel, X = ANY_DATA[name]
    n = X.shape[0] if sparse.issparse(X) else len(X)
    y = np.arange(n) % 3 == 0
    options: dict[str, Any] = {"alpha": 0.01, "max_iter": 3, "n_restarts": 1, "random_state": 0}
    for layers, outer in (([], kernel), ([Layer(kernel, 1, alpha=0.1)], Gaussian(1.0))):
        model = DeepKernelClassifier(layers, outer, loss="squared", calibration=None, **options).fit(X, y)
        assert model.score(X, y) > 0.5
    probabilities = DeepKernelClassifier([], kernel, cv=2, **options).fit(X, y).predict_proba(X[:4])
    np.testing.assert_allclose(probabilities.sum(1), 1.0)


@pytest.mark.parametrize("name", ANY_DATA)
def test_every_kernel_is_a_function_for_support_vector_machines(name: str) -> None:
    needs(name)
    kernel, X = ANY_DATA[name]
    resolved = kernel.resolve(X)
    gram = resolved(X)
    y = np.arange(len(gram)) % 2
    given = SVC(kernel="precomputed").fit(gram, y).decision_function(gram)
    np.testing.assert_allclose(SVC(kernel=resolved).fit(X, y).decision_function(X), given, atol=1e-8)


# -- one Gram matrix --------------------------------------------------------------------------------------------------
def counted() -> tuple[Callable, list[tuple[int, int]]]:
    calls: list[tuple[int, int]] = []

    def matrix(X: Any, Y: Any) -> np.ndarray:
        calls.append((len(X), len(Y)))
        return (Spectrum((1, 2)) + 1.0)(X, Y).numpy()

    return Callable(matrix, batched=True), calls


def test_the_gram_matrix_of_a_fit_is_computed_once() -> None:
    kernel, calls = counted()
    model = DeepKernelClassifier([], kernel=kernel, cv=3, random_state=0).fit(WORDS, N_OF_A > 1)
    matrices = [call for call in calls if call != (1, 1)]  # support asks for k(x, x) of each sample
    # Alpha and the calibration have taken folds of it; two rows tell what cancels between the terms of the function.
    assert matrices == [(len(WORDS), len(WORDS)), (2, len(WORDS)), (2, len(WORDS))]
    calls.clear()
    model.predict(WORDS[:3])
    assert [call for call in calls if call != (1, 1)] == [(3, len(WORDS))]


def test_only_anchors_with_a_coefficient_are_kept() -> None:
    model = DeepKernelClassifier([], kernel=Spectrum(1).normalized(), loss="hinge", alpha=0.01, calibration=None).fit(
        WORDS, N_OF_A > 1
    )
    anchors = functions_of(model)[0].anchors
    assert len(anchors) == len(model.dual_coef_) < len(WORDS) and set(anchors) < set(WORDS)
    full = DeepKernelClassifier([], kernel="precomputed", loss="hinge", alpha=0.01, calibration=None).fit(
        Spectrum(1).normalized()(WORDS), N_OF_A > 1
    )
    np.testing.assert_allclose(
        model.decision_function(WORDS), full.decision_function(Spectrum(1).normalized()(WORDS)), atol=1e-8
    )


def test_the_way_there_and_back() -> None:
    operator = Dense([[2.0, 1.0], [1.0, 2.0]])
    given = Composition([], Decomposable(Edit(5.0), operator), 0.1)
    like = torch.zeros(1, dtype=torch.float32)
    with pytest.warns(IndefiniteGramWarning):
        fitted, gram, restore = precompute(given, WORDS, like)
    assert fitted.kernel == Decomposable(Precomputed(), operator) and fitted.alpha == 0.1
    assert gram.dtype == torch.float32 and torch.linalg.eigvalsh(gram.double())[0] > -1e-5
    assert restore.composition(fitted) == given
    c = torch.randn(len(WORDS), 2, generator=torch.Generator().manual_seed(0))
    first = Expansion(fitted.kernel, gram, c)
    (restored,) = restore.functions([first])
    torch.testing.assert_close(restored(WORDS), first(gram), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(restored.squared_norm(), first.squared_norm(), rtol=1e-3, atol=1e-3)
    zero = Expansion(fitted.kernel, gram, 0.0 * c)
    assert restore.functions([zero])[0](WORDS[:2]).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_vectors_gram_matrices_and_landmarks_are_left_alone() -> None:
    like = torch.zeros(1, dtype=torch.float64)
    for kernel, data in ((Gaussian(1.0), like.new_zeros(3, 2)), (Precomputed(), torch.eye(3).double())):
        composition = Composition([], Decomposable(kernel), 0.1)
        same, unchanged, restore = precompute(composition, data, like)
        assert same is composition and unchanged is data and restore.composition(same) == composition
    many = Composition([], Separate([Spectrum(1), Spectrum(2)]), 0.1)
    fitted, data, restore = precompute(many, WORDS, like)
    assert data is WORDS and restore.composition(fitted) == many
    single = Composition([], Decomposable(Spectrum(1)), 0.1)
    fitted, data, _ = precompute(single, WORDS, like, once=False)
    assert data is WORDS and isinstance(fitted.kernel.kernel, Adapted)  # type: ignore[attr-defined]


def test_objects_in_single_precision() -> None:
    for kernel in (Spectrum((1, 2)), Spectrum((1, 2), weights="auto"), Separate([Spectrum(1)])):
        options: dict[str, Any] = {"kernel": kernel, "alpha": 0.1, "random_state": 0}
        single = DeepKernelRegressor([], dtype="float32", **options).fit(WORDS, N_OF_A)
        double = DeepKernelRegressor([], **options).fit(WORDS, N_OF_A)
        assert single.predict(WORDS).dtype == np.float32
        np.testing.assert_allclose(single.predict(WORDS), double.predict(WORDS), atol=0.02)
        assert type(single.kernel_) is type(kernel)


# -- indefinite kernels -----------------------------------------------------------------------------------------------
def indefinite_bags() -> tuple[list[np.ndarray], np.ndarray]:
    rng = np.random.default_rng(5)
    bags = [rng.normal(size=(rng.integers(1, 6), 1)) for _ in range(40)]
    return bags, np.array([bag.max() for bag in bags])


def test_an_indefinite_kernel_is_repaired_once_with_a_warning() -> None:
    for layers, outer in (([], Edit()), ([Layer(Edit(), 1, alpha=0.1)], Gaussian(1.0))):
        model = DeepKernelRegressor(layers, outer, alpha=0.1, n_restarts=1, random_state=0)
        with pytest.warns(IndefiniteGramWarning, match="were set to zero") as caught:
            model.fit(WORDS, N_OF_A)
        assert sum(issubclass(w.category, IndefiniteGramWarning) for w in caught) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # said once
            mean, std = model.predict(WORDS, return_std=True)
        assert np.isfinite(mean).all() and np.isfinite(std).all()


def test_the_layer_of_a_repaired_kernel_is_that_of_the_repaired_matrix() -> None:
    bags, y = indefinite_bags()
    kernel = Match(Gaussian(2.0))
    options: dict[str, Any] = {"alpha": 0.01, "n_restarts": 1, "max_iter": 20, "random_state": 0}
    with pytest.warns(IndefiniteGramWarning):
        model = DeepKernelRegressor([Layer(kernel, 2, alpha=1e-3)], Gaussian(1.0), **options).fit(bags, y)
    values, vectors = np.linalg.eigh(kernel(bags).numpy())
    repaired = (vectors * values.clip(min=0.0)) @ vectors.T
    given = DeepKernelRegressor([Layer("precomputed", 2, alpha=1e-3)], Gaussian(1.0), **options)
    np.testing.assert_allclose(model.predict(bags), given.fit(repaired, y).predict(repaired), atol=1e-6)
    assert model.objective_value_ == pytest.approx(given.objective_value_)
    np.testing.assert_allclose(model.layer_norms_, given.layer_norms_, rtol=1e-6)
    moved = [bag + 1e-3 for bag in bags]
    assert np.abs(model.predict(moved) - model.predict(bags)).max() < 0.1


def test_learning_may_end_at_an_indefinite_kernel_which_is_then_repaired() -> None:
    with pytest.warns(IndefiniteGramWarning) as caught:
        model = DeepKernelRegressor([], kernel=Edit("auto"), random_state=0).fit(WORDS, N_OF_A)
    assert sum(issubclass(w.category, IndefiniteGramWarning) for w in caught) == 1
    assert torch.linalg.eigvalsh(model.kernel_(WORDS))[0] < -1e-3
    assert model.score(WORDS, N_OF_A) > 0.9 and len(model.search_history_) > 1
    assert np.isfinite(model.predict(WORDS, return_std=True)[1]).all()


def test_learning_does_not_start_from_an_indefinite_kernel() -> None:
    bags, y = indefinite_bags()
    for layers, outer in (([], Match(Gaussian("auto"))), ([(Match(Gaussian("auto")), 2)], "rbf")):
        with pytest.raises(NotPositiveDefiniteError, match=r"give numbers .* or use OperatorRidge"):
            DeepKernelRegressor(layers, outer).fit(bags, y)


def test_an_indefinite_matrix_within_a_search_is_explained() -> None:
    error = NotPositiveDefiniteError("use repair_gram")
    for learned, message in ((True, r"^The search met .* use OperatorRidge"), (False, "use repair_gram")):
        restore = Restore(WORDS, learned=learned)
        with pytest.raises(NotPositiveDefiniteError, match=message), restore.advice():
            raise error


@pytest.mark.parametrize("kernel", [Match(Gaussian(2.0)), Match(Gaussian("auto"))])
def test_landmarks_of_an_indefinite_kernel_are_repaired(kernel: Kernel) -> None:
    bags, y = indefinite_bags()
    model = OperatorRidge(kernel, alpha=1e-2, approximation=Nystroem(30), random_state=0, fit_intercept=False)
    with pytest.warns(IndefiniteGramWarning, match="landmarks") as caught:
        model.fit(bags, y)
    assert sum(issubclass(w.category, IndefiniteGramWarning) for w in caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mean, std = model.predict(bags, return_std=True)
        assert np.abs(model.loo_predict_ - y).mean() < 0.5
    assert model.score(bags, y) > 0.7 and np.isfinite(std).all()
    K = model.kernel_(model.landmarks_).numpy()
    values, vectors = np.linalg.eigh(K)
    kept = values > 1e-10
    phi = model.kernel_(bags, model.landmarks_).numpy() @ (vectors[:, kept] / np.sqrt(values[kept]))
    weights = np.linalg.solve(phi.T @ phi + len(y) * 1e-2 * np.eye(kept.sum()), phi.T @ y)
    np.testing.assert_allclose(mean, phi @ weights, rtol=1e-6, atol=1e-8)


def test_all_samples_as_landmarks_give_the_repaired_matrix() -> None:
    bags, _ = indefinite_bags()
    kernel = Match(Gaussian(2.0))
    with pytest.warns(IndefiniteGramWarning):
        phi = landmark_features(kernel, bags)(bags)
    values, vectors = torch.linalg.eigh(kernel(bags))
    torch.testing.assert_close(phi @ phi.mT, (vectors * values.clamp(min=0.0)) @ vectors.mT)


# -- sparse fingerprints ----------------------------------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "kernel", [Tanimoto(), "tanimoto", pytest.param("auto" * Tanimoto() + 0.5, marks=pytest.mark.slow)]
)
def test_sparse_fingerprints_give_what_dense_ones_do(kernel: Any) -> None:
    X = sparse.csr_matrix(BITS)
    options: dict[str, Any] = {"alpha": 0.1, "n_restarts": 1, "max_iter": 10, "random_state": 0}
    for layers, outer in (([], kernel), ([Layer(kernel, 2, alpha=0.1)], Gaussian(1.0))):
        model = DeepKernelRegressor(layers, outer, **options)
        assert get_tags(model).input_tags.sparse
        thin, dense = model.fit(X, SHARED), DeepKernelRegressor(layers, outer, **options).fit(BITS, SHARED)
        for new in (X[:7], BITS[:7]):  # the form may change
            np.testing.assert_allclose(thin.predict(new), dense.predict(BITS[:7]), atol=1e-3)
            np.testing.assert_allclose(dense.predict(new), dense.predict(BITS[:7]), atol=1e-12)
        assert thin.n_features_in_ == BITS.shape[1]


def test_other_first_kernels_refuse_sparse_vectors() -> None:
    for model in (
        DeepKernelRegressor(kernel=Tanimoto(), loss="huber"),  # with an inner layer
        DeepKernelRegressor([], kernel="rbf"),
        DeepKernelRegressor([2], kernel=Tanimoto()),
    ):
        assert not get_tags(model).input_tags.sparse
        with pytest.raises(TypeError, match=r"[Ss]parse data was passed"):
            model.fit(sparse.csr_array(BITS), SHARED)


def test_sparse_vectors_stay_shallow_where_the_data_decide_on_layers() -> None:
    X = sparse.csr_array(BITS)
    model = DeepKernelRegressor(kernel=Tanimoto(), random_state=0)
    assert get_tags(model).input_tags.sparse
    assert model.fit(X, SHARED).layers_ == []
    np.testing.assert_allclose(model.predict(BITS[:7]), model.predict(X[:7]), atol=1e-12)
