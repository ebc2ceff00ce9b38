"""Bad input gets an error that says what was wrong, what was expected and what to do: no raw one, no wrong hint."""

from __future__ import annotations

import re
import signal
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, UndefinedMetricWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from tiers import tiers

from representer import (
    ConditionalMeanEmbedding,
    DeepKernelClassifier,
    DeepKernelPCA,
    DeepKernelRegressor,
    EmbeddingClassifier,
    KernelAutoencoder,
    KernelFeatures,
    Layer,
    OperatorRidge,
    StructuredPredictor,
)
from representer.approximation import Landmarks, Nystroem, RandomFeatures
from representer.kernels import (
    Gaussian,
    GlobalAlignment,
    Laplacian,
    MinMax,
    Molecule,
    Polynomial,
    Signature,
    Spectrum,
    Stack,
    Tanimoto,
    WeisfeilerLehman,
)
from representer.objectives import Hinge
from representer.operators import Diagonal
from representer.optimize import lbfgs
from representer.optimize.search import Deadline
from representer.preimage import refined
from representer.problems import deep, ridge, structured
from representer.problems.deep import DeepRegression, HyperparameterSearch
from representer.problems.embedding import EmbeddingSearch

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
y = np.sin(X[:, 0])
LABELS = (y > 0).astype(int)
SMILES = ["CCO", "CCC", "c1ccccc1", "CCN", "CC(=O)O", "CCCC"]


# -- raw exceptions ---------------------------------------------------------------------------------------------------
def test_constant_inputs_have_one_pivot():
    model = OperatorRidge(approximation=Nystroem(5, sampling="pivots")).fit(np.ones((20, 2)), y[:20])
    assert np.isfinite(model.predict(np.ones((2, 2)))).all()


def test_zero_targets_with_landmarks_are_fitted_by_zero():
    assert (OperatorRidge(approximation=Nystroem(5)).fit(X, 0.0 * y).predict(X) == 0.0).all()


def test_a_stack_of_zero_targets_has_no_deviation():
    mean, deviation = OperatorRidge("auto", max_iter=3).fit(X, np.zeros((60, 2))).predict(X, return_std=True)
    assert (mean == 0.0).all() and (deviation == 0.0).all()


@pytest.mark.parametrize("sampling", ["uniform", "leverage", "pivots", "kmeans"])
def test_sampling_of_huge_inputs_answers_or_refuses(sampling):
    model = OperatorRidge("rbf", approximation=Nystroem(5, sampling=sampling), random_state=0)
    try:
        assert np.isfinite(model.fit(X * 1e300, y).predict(X * 1e300)).all()
    except ValueError as error:
        assert "scale" in str(error).lower()


@pytest.mark.parametrize("collection", [{1.0, 2.0, 3.0}, {"a": [1.0, 2.0, 3.0]}, (i for i in range(3)), 3.0, None])
def test_collections_that_are_no_arrays_are_named(collection):
    with pytest.raises((ValueError, TypeError)) as caught:
        OperatorRidge("rbf").fit(collection, [1.0, 2.0, 3.0])
    message = str(caught.value)
    assert "float()" not in message
    assert any(word in message for word in ("array", "Expected", "requires"))


def test_a_wrong_number_of_weights_comes_with_advice():
    with pytest.raises(ValueError, match=r"3.*2 outputs.*(one weight|give 2)"):
        OperatorRidge(operator=Diagonal([1.0, 2.0, 3.0])).fit(X, np.c_[y, y])


@pytest.mark.parametrize("target", ["sparse", "text"])
def test_dask_inputs_with_targets_of_the_wrong_kind(target):
    da = pytest.importorskip("dask.array")
    from scipy import sparse

    wrong = sparse.csr_array(y[:, None]) if target == "sparse" else np.array(["a"] * len(y))
    with pytest.raises((ValueError, TypeError), match=r"y "):
        OperatorRidge(approximation=Nystroem(5)).fit(da.from_array(X, chunks=20), wrong)


def test_losses_that_do_not_converge_say_so_and_answer():
    hard = DeepKernelClassifier([], "linear", "hinge", 1e-10, calibration=None, random_state=0)
    labels = (y + 0.5 * rng.normal(size=len(y)) > 0).astype(int)
    with pytest.warns(ConvergenceWarning, match=r"libsvm stopped at a duality gap.*The best solution so far is kept"):
        assert set(hard.fit(X * 1e3, labels).predict(X)) <= {0, 1}


ON_DASK = {
    "OperatorRidge": OperatorRidge("rbf", approximation=Nystroem(5)),
    "DeepKernelRegressor": DeepKernelRegressor([1], "rbf", approximation=Nystroem(5), max_iter=2),
    "StructuredPredictor": StructuredPredictor("rbf", "linear", decoder="direct", approximation=Nystroem(5)),
    "ConditionalMeanEmbedding": ConditionalMeanEmbedding("rbf", approximation=Nystroem(5)),
    "EmbeddingClassifier": EmbeddingClassifier("rbf", approximation=Nystroem(5)),
    "DeepKernelClassifier": DeepKernelClassifier([1], "rbf", approximation=Nystroem(5), max_iter=2),
}
CLASSIFIERS = [name for name in ON_DASK if name.endswith("Classifier")]


@pytest.mark.parametrize(
    "wrong", [{"a": 1}, {1.0}, 3.0, np.array(1.0), "abc", iter([1.0])], ids=lambda y: type(y).__name__
)
@pytest.mark.parametrize("name", ON_DASK)
def test_targets_beside_dask_that_are_no_array_are_named(name, wrong):
    da = pytest.importorskip("dask.array")
    with pytest.raises(TypeError, match=r"y should be an array with one (row|label) for each sample; got"):
        clone(ON_DASK[name]).fit(da.from_array(X, chunks=(20, 3)), wrong)


@pytest.mark.parametrize("wrong", [{"a": 1}, {1.0}, 3.0], ids=lambda w: type(w).__name__)
@pytest.mark.parametrize("name", ON_DASK)
def test_weights_beside_dask_that_are_no_array_are_named(name, wrong):
    da = pytest.importorskip("dask.array")
    targets = LABELS if name in CLASSIFIERS else y
    with pytest.raises(
        TypeError, match=r"sample_weight should be an array with one row for each sample; got one.*Pass"
    ):
        clone(ON_DASK[name]).fit(da.from_array(X, chunks=(20, 3)), targets, sample_weight=wrong)


@pytest.mark.parametrize("where", ["memory", "Dask"])
@pytest.mark.parametrize("name", ON_DASK)
def test_targets_beside_dask_have_one_row_a_sample(name, where):
    da = pytest.importorskip("dask.array")
    points, model = da.from_array(X, chunks=(20, 3)), clone(ON_DASK[name])
    for shape in [(60, 2, 2), (60, 0)]:
        wrong = np.zeros(shape) if where == "memory" else da.zeros(shape)
        with pytest.raises(ValueError, match=r"^y (is|has|must).*(Reshape|Give|Pass|StructuredPredictor|needed)"):
            model.fit(points, wrong)
    with pytest.raises(ValueError, match=r"y is expected to be 1D or 2D.*shape \(\)"):
        model.fit(points, da.from_array(np.array(1.0)))


@pytest.mark.parametrize("where", ["memory", "Dask"])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_labels_beside_dask_are_those_that_a_fit_in_memory_takes(name, where):
    da = pytest.importorskip("dask.array")
    points, model = da.from_array(X, chunks=(20, 3)), clone(ON_DASK[name])
    missing, mixed = np.where(np.arange(60) == 3, np.nan, LABELS), np.array([1, "a"] * 30, dtype=object)
    for labels, reason in [(missing, "NaN, first in row 3.*1 of 60.*Leave"), (mixed, "of one kind"), (y, "continuous")]:
        with pytest.raises((ValueError, TypeError), match=reason):
            model.fit(points, labels if where == "memory" else da.from_array(labels, chunks=7))
    column = LABELS[:, None] if where == "memory" else da.from_array(LABELS[:, None], chunks=(7, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.set_params(random_state=0)
        answers = [clone(model).fit(points, labels).predict(X) for labels in (column, LABELS)]
    assert (answers[0] == answers[1]).all()


@pytest.mark.parametrize("approximation", [None, Nystroem(20)])
@pytest.mark.parametrize("learner", [StructuredPredictor, ConditionalMeanEmbedding, OperatorRidge])
def test_targets_on_dask_are_brought_to_inputs_in_memory(learner, approximation):
    da = pytest.importorskip("dask.array")
    model = learner(Gaussian(1.0), alpha=0.01, approximation=approximation, random_state=0)
    expected = clone(model).fit(X, y).predict(X)
    np.testing.assert_allclose(model.fit(X, da.from_array(y, chunks=7)).predict(X), expected)


EVERY_LEARNER = [
    *(OperatorRidge, DeepKernelRegressor, DeepKernelClassifier, KernelAutoencoder, StructuredPredictor),
    *(ConditionalMeanEmbedding, EmbeddingClassifier, DeepKernelPCA, KernelFeatures),
]


@pytest.mark.parametrize("kernel", ["rbf", "auto"])
@pytest.mark.parametrize("learner", EVERY_LEARNER)
def test_inputs_of_no_axis_and_infinite_ones_are_named_by_every_learner(learner, kernel):
    da = pytest.importorskip("dask.array")
    infinite = X.copy()
    infinite[[7, 5, 9], [1, 2, 1]] = np.inf
    model = learner(kernel=kernel)
    with pytest.raises(
        TypeError, match=r"X should be an array with one row for each sample; got one entry, 3\.0\. Pass"
    ):
        model.fit(np.array(3.0), LABELS)
    advice = r"row 7 \(in 3 rows altogether\)\. Leave those rows out"
    with pytest.raises(ValueError, match=rf"Input X contains infinity, first in column 1, {advice}"):
        model.fit(infinite, LABELS)
    with pytest.raises(ValueError, match=rf"infinity, first in column 'b', {advice}|Column 'b': .*infinite.*7, 9"):
        model.fit(pd.DataFrame(infinite, columns=list("abc")), LABELS)
    model.set_params(approximation=Nystroem(5))
    for shape in [(), (60,), (60, 2, 2)]:
        with pytest.raises(ValueError, match=r"X is expected to be 2D, with one row for each sample.*Reshape"):
            clone(model).set_params(**({"layers": [1]} if learner in DEEP else {})).fit(da.zeros(shape), LABELS)


DEEP = (DeepKernelRegressor, DeepKernelClassifier)


def test_infinity_in_sparse_inputs_and_in_gram_matrices_is_named():
    from scipy import sparse

    infinite = np.eye(60)
    infinite[7, 4] = infinite[3, 5] = np.inf
    with pytest.raises(ValueError, match=r"infinity, first in column 4, row 7 \(in 2 rows"):
        OperatorRidge(Tanimoto()).fit(sparse.csr_array(infinite), y)
    with pytest.raises(ValueError, match=r"infinity, first in column 4, row 7.*Check how the Gram matrix"):
        OperatorRidge("precomputed").fit(infinite, y)


def test_clusters_of_huge_inputs_have_centres():
    """Their sums and squares left the range of numbers: finite data "contain NaN or infinity"."""
    model = OperatorRidge(Laplacian(), alpha=0.1, approximation=Nystroem(5, sampling="kmeans"), random_state=0)
    assert np.isfinite(model.fit(np.full((60, 3), 1e307), y).predict(np.full((2, 3), 1e307))).all()
    np.testing.assert_allclose(model.fit(X * 1e300, y).predict(X * 1e300), model.fit(X, y).predict(X), atol=1e-8)


def test_components_of_equal_samples_are_refused_with_advice():
    model = DeepKernelPCA([1], "rbf", approximation=Nystroem(5, sampling="pivots"))
    with pytest.raises(ValueError, match=r"of 60 samples 1 is left.*Check X"):
        model.fit(np.ones((60, 2)))


def test_advice_on_gaps_does_not_name_the_kernel_that_was_given():
    gaps = np.where(X > 1.5, np.nan, X)
    with pytest.raises(ValueError, match=r"kernel='auto' does not take gaps: fit with Missing\(kernel\)"):
        DeepKernelRegressor([1], approximation=Nystroem(5)).fit(gaps, y)


def test_masked_labels_are_refused():
    with pytest.raises(ValueError, match=r"y is an array with masked entries.*Pass"):
        EmbeddingClassifier("rbf").fit(X, np.ma.masked_where(X[:, 0] > 1, LABELS))


# -- hints ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kernel", [Tanimoto(), "rbf"])
def test_smiles_are_recognised(kernel):
    pytest.importorskip("rdkit")
    with pytest.raises(ValueError, match=r"Molecule\(\)") as caught:
        OperatorRidge(kernel).fit(SMILES, np.arange(6.0))
    assert "OrdinalEncoder" not in str(caught.value)
    if isinstance(kernel, Tanimoto):
        assert "Morgan" in str(caught.value)


def test_other_text_is_told_of_kernels_for_text():
    with pytest.raises(ValueError, match=r"Spectrum"):
        OperatorRidge("rbf").fit(["hello world", "good bye", "see you"], [1.0, 2.0, 3.0])


def test_a_function_of_matrices_as_kernel_is_told_what_to_do():
    def product(A, B):
        return np.atleast_2d(A) @ np.atleast_2d(B).T

    with pytest.raises((ValueError, TypeError), match=r"precomputed|one number"):
        OperatorRidge(product).fit(X, y)


def test_pictures_given_to_a_network_are_told_the_way():
    torch = pytest.importorskip("torch")
    from representer.kernels import Gaussian, Neural

    network = Neural(torch.nn.Sequential(torch.nn.Linear(16, 2)), Gaussian(1.0))
    with pytest.raises(ValueError, match=r"reshape|Unflatten"):
        EmbeddingClassifier(network).fit(rng.normal(size=(10, 1, 4, 4)), [0, 1] * 5)


def test_molecules_and_graphs_of_molecules_add():
    Chem = pytest.importorskip("rdkit.Chem")
    molecules = [Chem.MolFromSmiles(text) for text in SMILES]
    model = OperatorRidge(Molecule() + WeisfeilerLehman(2).normalized(), alpha=0.1, fit_intercept=False).fit(
        molecules, np.arange(6.0)
    )
    gram = Molecule()(molecules) + WeisfeilerLehman(2).normalized()(molecules)
    expected = gram.numpy() @ np.linalg.solve(gram.numpy() + 0.6 * np.eye(6), np.arange(6.0))
    np.testing.assert_allclose(model.predict(molecules), expected, atol=1e-10)


@pytest.mark.parametrize("order", [1, -1])
def test_a_constant_beside_molecules_and_their_graphs_takes_either(order):
    Chem = pytest.importorskip("rdkit.Chem")
    molecules = [Chem.MolFromSmiles(text) for text in SMILES]
    first, second = [Molecule(), WeisfeilerLehman(2)][::order]
    expected = first(molecules) + second(molecules)
    for kernel in (first + second + 1.0, 1.0 + (first + second), (1.0 + first) + second):
        np.testing.assert_allclose(kernel(molecules), expected + 1.0)


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("learner", [OperatorRidge, EmbeddingClassifier])
def test_every_kernel_of_a_stack_gets_molecules_as_given(learner, order):
    """A stack of molecules and their graphs is the weighted mean of both fits, whatever their order."""
    Chem = pytest.importorskip("rdkit.Chem")
    molecules = [Chem.MolFromSmiles(text) for text in SMILES * 2]
    targets = np.arange(12.0) if learner is OperatorRidge else [0, 1] * 6
    parts = [Molecule(), WeisfeilerLehman(2).normalized()][::order]
    stack = learner(Stack(parts, weights=[0.3, 0.7]), alpha=0.1).fit(molecules, targets)
    alone = [learner(kernel, alpha=0.1).fit(molecules, targets) for kernel in parts]
    answer = "predict" if learner is OperatorRidge else "decision_function"
    expected = sum(w * getattr(one, answer)(molecules[:4]) for w, one in zip((0.3, 0.7), alone, strict=True))
    np.testing.assert_allclose(getattr(stack, answer)(molecules[:4]), expected, atol=1e-10)


def test_a_stack_of_different_views_takes_batches():
    Chem = pytest.importorskip("rdkit.Chem")
    molecules = [Chem.MolFromSmiles(text) for text in SMILES * 2]
    kernel = Stack([Molecule(), WeisfeilerLehman(2).normalized()], weights=[0.3, 0.7])
    options = {"alpha": 0.1, "approximation": Landmarks(molecules[:6])}
    whole = OperatorRidge(kernel, **options).fit(molecules, np.arange(12.0))
    batches = OperatorRidge(kernel, **options)
    for rows in (slice(0, 5), slice(5, 12)):
        batches.partial_fit(molecules[rows], np.arange(12.0)[rows])
    np.testing.assert_allclose(batches.predict(molecules), whole.predict(molecules), atol=1e-8)


PICTURE_LEARNERS = [
    *(OperatorRidge("rbf"), DeepKernelRegressor(kernel="rbf"), DeepKernelClassifier(kernel="rbf")),
    *(KernelAutoencoder(kernel="rbf"), StructuredPredictor("rbf"), ConditionalMeanEmbedding("rbf")),
    *(EmbeddingClassifier("rbf"), DeepKernelPCA(kernel="rbf"), KernelFeatures("rbf")),
]


@pytest.mark.parametrize("shape", [(60, 4, 4), (60, 4, 4, 3)])
@pytest.mark.parametrize("model", PICTURE_LEARNERS, ids=repr)
def test_pictures_given_to_kernels_of_vectors_are_told_the_way(model, shape):
    with pytest.raises(ValueError, match=r"shape \(60, 4, 4.*reshape\(len\(X\), -1\).*Neural"):
        model.fit(rng.normal(size=shape), LABELS)
    with pytest.raises(ValueError, match=r"shape \(60, 4, 4.*reshape"):
        clone(model).fit(rng.normal(size=shape).tolist(), LABELS)


def test_three_axes_are_no_gram_matrix():
    with pytest.raises(ValueError, match=r"shape \(6, 6, 2\).*Gram matrix \(n_samples, n_samples\)"):
        OperatorRidge("precomputed").fit(np.ones((6, 6, 2)), y[:6])


@pytest.mark.parametrize("kernel", [GlobalAlignment(1.0), Signature(2)], ids=repr)
def test_the_kernels_that_arrays_of_series_are_told_of_take_them(kernel):
    series = rng.normal(size=(10, 5, 2))
    assert np.isfinite(OperatorRidge(kernel, alpha=0.1).fit(series, y[:10]).predict(series)).all()


def test_a_bound_is_refused_where_its_theorem_does_not_hold():
    labels = (y > 0).astype(int)
    model = EmbeddingClassifier(random_state=0).fit(X, labels)
    with pytest.raises(ValueError, match=r"risk_bound"):
        model.risk_bound()


# -- missing targets --------------------------------------------------------------------------------------------------
def _with_gaps() -> np.ndarray:
    Y = np.c_[y, X[:, 1], X[:, 2] ** 2]
    Y[rng.random(Y.shape) < 0.2] = np.nan
    return Y


def test_missing_targets_are_scored_on_what_is_known():
    from sklearn.metrics import r2_score

    Y = _with_gaps()
    model = OperatorRidge(alpha=1e-3).fit(X, Y)
    known = ~np.isnan(Y)
    predictions = model.predict(X)
    expected = np.mean([r2_score(Y[k, j], predictions[k, j]) for j, k in enumerate(known.T)])
    assert model.score(X, Y) == pytest.approx(expected)
    weights = rng.uniform(size=len(X))
    expected = np.mean([r2_score(Y[k, j], predictions[k, j], sample_weight=weights[k]) for j, k in enumerate(known.T)])
    assert model.score(X, Y, sample_weight=weights) == pytest.approx(expected)


def test_missing_targets_are_cross_validated():
    Y = _with_gaps()
    assert np.isfinite(cross_val_score(OperatorRidge("rbf", alpha=1e-3), X, Y, cv=3)).all()
    grid = GridSearchCV(OperatorRidge("rbf"), {"alpha": [1e-3, 1.0]}, cv=3).fit(X, Y)
    assert np.isfinite(grid.cv_results_["mean_test_score"]).all() and grid.best_params_ == {"alpha": 1e-3}


SOME = np.flatnonzero(np.arange(60) % 5)
WORDS = ["high" if value > 0 else "low" for value in y]
PARTLY_LABELLED = {
    "vectors": ("linear", [None if i % 5 == 0 else [value, value**2] for i, value in enumerate(y)]),
    "an array": ("rbf", np.where((np.arange(60) % 5 > 0)[:, None], np.c_[y, y**2], np.nan)),
    "words": (Spectrum(2), [None if i % 5 == 0 else word for i, word in enumerate(WORDS)]),
}


@pytest.mark.parametrize("approximation", [None, Nystroem(20)])
@pytest.mark.parametrize("kind", PARTLY_LABELLED)
def test_inputs_without_outputs_are_scored_by_those_that_have_one(kind, approximation):
    kernel, outputs = PARTLY_LABELLED[kind]
    options = {"decoder": "candidates", "approximation": approximation, "random_state": 0}
    model = StructuredPredictor("rbf", kernel, "conditional_covariance", **options).fit(X, outputs)
    known = [outputs[i] for i in SOME]
    assert model.score(X, outputs) == pytest.approx(model.score(X[SOME], known))
    weights = rng.uniform(size=60)
    assert model.score(X, outputs, weights) == pytest.approx(model.score(X[SOME], known, weights[SOME]))
    if isinstance(outputs, np.ndarray):
        assert np.isfinite(cross_val_score(model, X, outputs, cv=3)).all()
    with pytest.raises(ValueError, match=r"None of the 60 samples has an output.*Give"):
        model.score(X, [None] * 60)


@pytest.mark.parametrize("kernel", ["linear", "rbf", "laplacian", Gaussian(0.5)], ids=str)
def test_a_weight_of_a_score_is_a_number_of_copies(kernel):
    copies = np.arange(60) % 3 + 1
    many = np.repeat(np.arange(60), copies)
    embedded = StructuredPredictor("rbf", kernel, alpha=0.01).fit(X, y)
    assert embedded.score(X, y, sample_weight=copies) == pytest.approx(embedded.score(X[many], y[many]))
    assert embedded.score(X, y, sample_weight=2.0) == pytest.approx(embedded.score(X, y))
    conditional = ConditionalMeanEmbedding(Gaussian(1.0), kernel, 0.01).fit(X, y)
    assert conditional.score(X, y, sample_weight=copies) == pytest.approx(conditional.score(X[many], y[many]))


@pytest.mark.parametrize(
    "model",
    [OperatorRidge("rbf"), DeepKernelRegressor([], "rbf"), StructuredPredictor("rbf", "linear")],
)
def test_a_score_of_one_known_target_is_none_with_a_warning_as_that_of_scikit_learn(model):
    model = clone(model).fit(X, np.c_[y, y])
    single = np.full((60, 2), np.nan)
    single[0] = y[0]
    for inputs, targets in ((X[:1], single[:1]), (X, single)):
        with pytest.warns(UndefinedMetricWarning, match=r"fewer than two known targets.*Give the") as caught:
            assert np.isnan(model.score(inputs, targets))
        assert {warning.filename for warning in caught} == {__file__}


@pytest.mark.parametrize("learner", [ConditionalMeanEmbedding, StructuredPredictor])
@pytest.mark.parametrize(("strange", "word"), [(np.nan, "NaN"), (np.inf, "infinity")])
def test_outputs_that_are_not_finite_are_named_with_advice(learner, strange, word):
    Y = np.c_[y, y]
    Y[3, 1] = strange
    with pytest.raises(ValueError, match=rf"Input y contains {word}, first in row 3.*Leave those samples out"):
        learner().fit(X, Y)


@pytest.mark.parametrize("learner", [EmbeddingClassifier, DeepKernelClassifier])
@pytest.mark.parametrize("kind", ["float", "None", "NaN among words", "pandas"])
def test_labels_that_are_missing_are_named_with_advice(learner, kind):
    pandas = pytest.importorskip("pandas")
    words = np.array(["low", "high"], dtype=object)[LABELS]
    words[3] = np.nan if kind == "NaN among words" else None
    numbers = np.where(np.arange(60) == 3, np.nan, LABELS)
    labels = {"float": numbers, "pandas": pandas.Series(words, dtype="string")}.get(kind, words)
    with pytest.raises(ValueError, match=r"Input y contains NaN, first in row 3.*1 of 60.*Leave those samples out"):
        learner().fit(X, labels)


# -- time -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("budget", [-1.0, 0.0, "soon", "5 parsecs", True, np.nan])
def test_budgets_that_are_no_times_are_refused(budget):
    with pytest.raises(ValueError, match="max_time"):
        DeepKernelRegressor(max_time=budget).fit(X, y)


SEARCHES = {
    "OperatorRidge": (OperatorRidge(Gaussian("ard"), n_restarts=3, random_state=0), y),
    "DeepKernelRegressor": (DeepKernelRegressor([2], n_restarts=3, random_state=0), y),
    "DeepKernelRegressor, huber": (DeepKernelRegressor([1], loss="huber", random_state=0), y),
    "DeepKernelClassifier": (DeepKernelClassifier([1], n_restarts=3, random_state=0), LABELS),
    "DeepKernelClassifier, hinge": (DeepKernelClassifier([1], loss="hinge", random_state=0), LABELS),
    "KernelAutoencoder": (KernelAutoencoder(1, "rbf", n_restarts=3, random_state=0), None),
    "StructuredPredictor": (StructuredPredictor(Gaussian("auto"), "rbf", n_restarts=3, random_state=0), y),
    "StructuredPredictor, task": (StructuredPredictor("rbf", "rbf", criterion="validation", random_state=0), y),
    "ConditionalMeanEmbedding": (ConditionalMeanEmbedding(Gaussian("auto"), n_restarts=3, random_state=0), y),
    "EmbeddingClassifier": (EmbeddingClassifier(Gaussian("ard"), n_restarts=3, random_state=0), LABELS),
    "EmbeddingClassifier, adam": (EmbeddingClassifier(Gaussian("ard"), solver="adam", random_state=0), LABELS),
    "DeepKernelPCA": (DeepKernelPCA([2, 1], "rbf", random_state=0), None),
}


def _answer(model):
    methods = ("predict_proba", "predict", "transform")
    return np.asarray(next(getattr(model, m) for m in methods if hasattr(model, m))(X), dtype=float)


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_search_ends_with_its_time_and_keeps_its_best_point(name, monkeypatch):
    model, targets = SEARCHES[name]
    looks, has_passed = [], Deadline.has_passed
    monkeypatch.setattr(Deadline, "has_passed", lambda self: looks.append(has_passed(self)) or looks[-1])
    with pytest.warns(ConvergenceWarning, match="max_time=1e-06 ended the search"):
        hasty = clone(model).set_params(max_time=1e-6).fit(X, targets)
    assert all(looks) and len(looks) <= 9  # each of its loops looks once, after its first evaluation
    assert np.isfinite(_answer(hasty)).all()


MANY_STARTS = {
    "OperatorRidge": (OperatorRidge(Gaussian("ard")), ridge, "_differentiate"),
    "StructuredPredictor": (StructuredPredictor("auto", "rbf"), ridge, "_differentiate"),
    "ConditionalMeanEmbedding": (ConditionalMeanEmbedding(Gaussian("ard")), EmbeddingSearch, "_evaluated"),
    "EmbeddingClassifier": (EmbeddingClassifier(Gaussian("ard")), EmbeddingSearch, "_evaluated"),
}


@pytest.mark.parametrize("name", MANY_STARTS)
def test_the_time_is_looked_at_between_starts(name, monkeypatch):
    (model, place, function), calls, trials = MANY_STARTS[name], [], []
    original, choose_numbers = getattr(place, function), structured.choose_numbers
    monkeypatch.setattr(place, function, lambda *arguments: calls.append(1) or original(*arguments))
    monkeypatch.setattr(structured, "choose_numbers", lambda *arguments: trials.append(1) or choose_numbers(*arguments))
    targets = LABELS if name == "EmbeddingClassifier" else y
    with pytest.warns(ConvergenceWarning, match="max_time=1e-06 ended the search"):
        clone(model).set_params(n_restarts=20, max_time=1e-6).fit(X, targets)
    assert len(calls) <= 2 and len(trials) <= 2  # the first start, and where it is rounded; a lengthscale, and the fit


def test_a_stack_whose_search_has_ended_early_takes_more_batches():
    """It keeps the members that it has searched, and so do the batches after the first."""
    model = OperatorRidge(Stack([Gaussian(1.0), Laplacian(1.0)]), approximation=Landmarks(X[:5]), max_time=1e-9)
    with pytest.warns(ConvergenceWarning, match="max_time"):
        model.partial_fit(X, y)
    assert len(model.partial_fit(X + 1.0, y).members_) == 1
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize("name", ["DeepKernelRegressor", "DeepKernelClassifier, hinge", "KernelAutoencoder"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_search_on_some_of_many_samples_ends_with_its_time(name):
    """Images of the samples that the search has looked at are no start for all of them."""
    model, targets = SEARCHES[name]
    many = rng.normal(size=(620, 3))
    targets = None if targets is None else np.resize(targets, 620)
    with pytest.warns(ConvergenceWarning, match="max_time=1e-06 ended the search"):
        hasty = clone(model).set_params(max_time=1e-6, n_restarts=1).fit(many, targets)
    assert np.isfinite(_answer(hasty)).all()


@pytest.mark.parametrize(
    "name",
    tiers(
        ["OperatorRidge", "DeepKernelClassifier", "EmbeddingClassifier", "DeepKernelPCA"],
        lambda name: name in ("EmbeddingClassifier", "DeepKernelPCA"),
    ),
)
def test_a_budget_that_suffices_changes_nothing(name):
    model, targets = SEARCHES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        free, limited = clone(model).fit(X, targets), clone(model).set_params(max_time="1h").fit(X, targets)
    np.testing.assert_array_equal(_answer(limited), _answer(free))


def test_a_long_search_prints_lines_where_there_is_no_terminal(capsys, monkeypatch):
    monkeypatch.setattr("representer.optimize.search.LINE_EVERY", 0.0)
    point = torch.full((2,), 2.0, dtype=torch.float64)

    lbfgs(lambda points: ((points**4).sum(-1), 4 * points**3), point, verbose=1, max_iter=12, description="criterion")
    lines = capsys.readouterr().err.splitlines()
    assert lines and all(re.match(r"criterion: \d+ s, iteration \d+ of 12, value \S+, 1 alive", line) for line in lines)


# -- fits that replace the model at their end -------------------------------------------------------------------------
def test_features_stay_after_a_refused_refit():
    features = KernelFeatures(random_state=0).fit(X)
    transformer = Nystroem(5, kernel="rbf", random_state=0).fit(X)
    expected, others = features.transform(X), transformer.transform(X)
    for model, before in ((features, expected), (transformer, others)):
        with pytest.raises(ValueError):
            model.fit(np.full((4, 2), np.nan))
        np.testing.assert_array_equal(model.transform(X), before)


def test_predictions_during_a_refit_are_those_of_the_old_model():
    """Another thread asks at each iteration, while the fit waits for its answer."""
    during = []

    class Ask:
        def setup(self, estimator, context): ...
        def teardown(self, estimator, context): ...
        def on_fit_task_begin(self, estimator, context): ...
        def on_fit_task_end(self, estimator, context):
            during.append(another.submit(model.predict_proba, X).result())

    model = DeepKernelClassifier([1], max_iter=3, n_restarts=2, random_state=0)
    with warnings.catch_warnings(), ThreadPoolExecutor(1) as another:
        warnings.simplefilter("ignore")
        before = model.fit(X, LABELS).predict_proba(X)
        model.set_callbacks(Ask()).fit(X[::-1], LABELS)
    assert len(during) > 3 and all(np.array_equal(answer, before) for answer in during)
    assert np.abs(model.predict_proba(X) - before).max() > 0.1


# -- Ctrl-C -----------------------------------------------------------------------------------------------------------
@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals are sent to threads")
def test_an_interrupt_of_a_solver_in_c_answers_at_once(monkeypatch):
    """The solver, which here ends only when told so, is still at work when the interrupt is answered."""
    told, threads, main = threading.Event(), [], threading.main_thread()

    def solve(machine, *arrays):
        threads.append(threading.current_thread())
        signal.pthread_kill(main.ident, signal.SIGINT)
        told.wait(60)
        return machine

    monkeypatch.setattr(SVC, "fit", solve)
    with pytest.raises(KeyboardInterrupt):
        Hinge(np.sign(rng.normal(size=20)), alpha=1e-9).evaluate(torch.eye(20, dtype=torch.float64))
    assert threads[0] is not main and threads[0].is_alive()  # nobody has waited for it
    told.set()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_calibration_after_an_interrupt_searches_no_inner_layers(monkeypatch):
    """Folds of an interrupted fit keep its inner layers, at which they solve for the outer function only."""
    searches = []
    original = DeepRegression.minimise

    def counted(self, problem, starts, settings, *, description):
        searches.append(description)
        result = original(self, problem, starts, settings, description=description)
        return replace(result, interrupted=True) if description == "objective" else result

    monkeypatch.setattr(DeepRegression, "minimise", counted)
    layers = [Layer(Gaussian(1.0), 1, alpha=0.01)]
    model = DeepKernelClassifier(layers, Gaussian(1.0), alpha=0.01, n_restarts=1, max_iter=3, cv=3, random_state=0)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        probabilities = model.fit(X, LABELS).predict_proba(X)
    assert searches == ["objective"] and np.isfinite(probabilities).all()


def test_after_an_interrupt_libsvm_solves_once_and_roughly_for_one_fold(monkeypatch):
    """The objective and the look at constant decisions come from the solution itself; no fold begins after a while."""
    tolerances, original = [], SVC.fit

    def counted(machine, *arrays):
        tolerances.append(machine.tol)
        return original(machine, *arrays)

    monkeypatch.setattr(SVC, "fit", counted)
    monkeypatch.setattr(HyperparameterSearch, "run", lambda self, settings: replace(self.tried(), interrupted=True))
    monkeypatch.setattr(deep, "PATIENCE", 1e-9, raising=False)
    options = {"loss": "hinge", "n_restarts": 1, "max_iter": 3, "cv": 3, "random_state": 0}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model = DeepKernelClassifier([Layer(Gaussian(1.0), 1)], Gaussian(1.0), **options).fit(X, LABELS)
    assert any("probabilities rest on 1 folds of 3" in str(warning.message) for warning in told)
    assert tolerances == [1e-6, 1e-3] and np.isfinite(model.predict_proba(X)).all()

    margins = (2.0 * LABELS - 1.0) * model.decision_function(X)
    penalties = model.layers_[0].alpha * model.layer_norms_[0] ** 2 + model.alpha_ * model.layer_norms_[1] ** 2
    assert model.objective_value_ == pytest.approx(np.maximum(0.0, 1.0 - margins).mean() + penalties, rel=1e-6)


KERNELS = {
    "OperatorRidge": (OperatorRidge("auto"), ridge.Search, "minimised"),
    "StructuredPredictor": (StructuredPredictor("auto", "rbf"), ridge.Search, "minimised"),
    "ConditionalMeanEmbedding": (ConditionalMeanEmbedding("auto"), EmbeddingSearch, "search"),
    "DeepKernelRegressor": (DeepKernelRegressor("auto", random_state=0), ridge.Search, "minimised"),
}


@pytest.mark.parametrize("when", ["with a value", "before"])
@pytest.mark.parametrize("name", KERNELS)
def test_an_interrupt_ends_a_search_over_kernels_with_a_notice(name, when, monkeypatch):
    (model, search, method), calls = KERNELS[name], []
    original = getattr(search, method)

    def interrupted(*arguments, **options):
        calls.append(1)
        if len(calls) > 1 and when == "before":
            raise KeyboardInterrupt
        return replace(original(*arguments, **options), interrupted=len(calls) > 1)

    monkeypatch.setattr(search, method, interrupted)
    with pytest.warns(ConvergenceWarning, match=r"kernels \(2 of \d\) was interrupted: the best so far is kept"):
        model = clone(model).set_params(max_iter=3).fit(X, y)
    assert len(calls) == 2 and np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize("when", ["with images", "before"])
def test_an_interrupt_ends_a_search_over_an_inner_layer_with_a_notice(when, monkeypatch):
    """One of the first layer that is tried is no reason to go on with the next one."""
    original, calls = DeepRegression._explore, []

    def interrupted(*arguments):
        calls.append(1)
        if when == "before":
            raise KeyboardInterrupt
        return original(*arguments)[0], True

    monkeypatch.setattr(DeepRegression, "_explore", interrupted)
    with pytest.warns(ConvergenceWarning, match="an inner layer was interrupted: the best so far is kept"):
        model = DeepKernelRegressor("auto", random_state=0, max_iter=3).fit(X, y)
    assert len(calls) == 1 and np.isfinite(model.predict(X)).all()


def test_after_an_interrupt_a_learned_operator_has_one_step(monkeypatch):
    original, steps = ridge.Search.minimised, []

    def interrupted(self, settings, criterion):
        steps.append(settings.max_iter)
        return replace(original(self, settings, criterion), interrupted=len(steps) == 1, unconverged="was interrupted")

    monkeypatch.setattr(ridge.Search, "minimised", interrupted)
    with pytest.warns(ConvergenceWarning, match="was interrupted"):
        OperatorRidge(Gaussian("auto"), "learn", max_iter=7).fit(X, np.column_stack([y, y**2]))
    assert steps == [7, 1]


def test_an_interrupt_of_a_search_for_pre_images_is_one():
    def distance(points):
        calls.append(len(points))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return (points - 2.0).square().square().sum(-1)

    calls = []
    with pytest.raises(KeyboardInterrupt):
        refined(distance, torch.zeros(4, 2, dtype=torch.float64))


# -- warnings ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("wrap", ["bare", "pipeline", "grid search", "frames"])
@pytest.mark.parametrize("name", ["OperatorRidge", "DeepKernelRegressor", "EmbeddingClassifier", "DeepKernelPCA"])
def test_warnings_name_the_line_of_the_user(name, wrap):
    model, targets = SEARCHES[name]
    model = clone(model).set_params(max_time=1e-6)
    if wrap == "pipeline":
        model = make_pipeline(StandardScaler(), model)
    elif wrap == "grid search":
        model = GridSearchCV(model, {"max_iter": [3]}, cv=2, n_jobs=1)
    elif wrap == "frames":
        model = make_pipeline(StandardScaler(), model).set_output(transform="pandas")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, targets)
    ours = [warning for warning in caught if issubclass(warning.category, ConvergenceWarning)]
    assert ours and {warning.filename for warning in ours} == {__file__}


ODD_LABELS = {
    "one column": LABELS[:, None],
    "a rare class": np.arange(60) == 0,
    "classes of one": np.arange(60) // 2 * 2,
}
ODD_LABELS["classes of one"][:40] = np.arange(40)


@pytest.mark.parametrize("where", ["memory", "Dask"])
@pytest.mark.parametrize("labels", ODD_LABELS)
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_warnings_of_scikit_learn_about_labels_name_the_line_of_the_user(name, labels, where):
    da = pytest.importorskip("dask.array")
    points = X if where == "memory" else da.from_array(X, chunks=(20, 3))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clone(ON_DASK[name]).set_params(random_state=0).fit(points, ODD_LABELS[labels])
    assert {warning.filename for warning in caught} <= {__file__}
    doubts = [str(warning.message) for warning in caught]
    if labels == "one column":
        assert any("column" in doubt for doubt in doubts)
    if labels == "classes of one":
        assert any("unique classes" in doubt for doubt in doubts)


def test_many_classes_on_dask_are_no_doubt():
    """Each of the classes that occur was once among them, which seemed to be a regression."""
    da = pytest.importorskip("dask.array")
    points, labels = rng.normal(size=(120, 2)), np.repeat(np.arange(30), 4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        EmbeddingClassifier("rbf", alpha=0.1, approximation=Nystroem(5), calibration=None, random_state=0).fit(
            da.from_array(points, chunks=(60, 2)), da.from_array(labels, chunks=60)
        )
    assert not [warning for warning in caught if "unique classes" in str(warning.message)]


# -- collections and scales that a first reader tried ----------------------------------------------------------------
@pytest.mark.parametrize("rows", [[{1, 2}, {3}] * 30, [{"a": 1}] * 60, "abc"])
def test_rows_without_an_order_are_told_what_makes_numbers_of_them(rows):
    with pytest.raises(TypeError, match=r"X (holds collections|should be an array)"):
        OperatorRidge("rbf").fit(rows, y)


def test_a_kernel_that_is_zero_has_no_pivots():
    model = OperatorRidge("linear", alpha=0.1, approximation=Nystroem(10, sampling="pivots"))
    with pytest.raises(ValueError, match="zero for all samples"):
        model.fit(np.zeros((60, 3)), y)


@pytest.mark.slow
def test_targets_of_any_size_have_inner_penalties_in_their_units():
    options = {"max_iter": 5, "n_restarts": 1, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        usual, *others = (
            DeepKernelRegressor(**options).fit(X, y * scale).predict(X) / scale for scale in (1.0, 1e-100, 1e100)
        )
    for other in others:
        np.testing.assert_allclose(other, usual, atol=1e-3)


@pytest.mark.parametrize("unit", [1e-200, 1e-150, 1e150, 1e200, 1e307])
def test_an_autoencoder_refuses_data_whose_squares_leave_the_range(unit):
    points = unit * np.random.default_rng(0).normal(size=(20, 2)) / 10.0
    with pytest.raises(ValueError, match=r"squares of such differences, which leave the range of numbers\. Scale X"):
        KernelAutoencoder(1, max_iter=2, n_restarts=1).fit(points)


@pytest.mark.parametrize("learner", [OperatorRidge(), DeepKernelPCA(2), KernelAutoencoder(1)], ids=str)
def test_the_default_kernel_refuses_sets_and_empty_lists_as_others_do(learner):
    with pytest.raises(TypeError, match="X is a set, whose samples have no order"):
        learner.fit({1.0, 2.0, 3.0}, np.arange(3.0))
    with pytest.raises(ValueError, match="Found 0 samples"):
        learner.fit([], np.zeros(0))


@pytest.mark.parametrize(("dtype", "size", "wider"), [("float64", 2e307, False), ("float32", 1e100, True)])
def test_advice_on_huge_targets_names_a_wider_type_only_where_there_is_one(dtype, size, wider):
    with pytest.raises(ValueError, match=r"largest target.*Rescale y") as caught:
        OperatorRidge(dtype=dtype).fit(X, y * size)
    assert ("use dtype='float64'" in str(caught.value)) == wider


def test_numbers_that_single_precision_cannot_hold_are_named():
    with pytest.raises(ValueError, match=r"up to 1e\+100.*float32.*float64"):
        ConditionalMeanEmbedding("rbf", dtype="float32").fit(X, np.full(60, 1e100))
    with pytest.raises(ValueError, match=r"float32.*float64"):
        OperatorRidge(dtype="float32").fit(X * 1e100, y)


LOST_INPUTS = {
    "ridge": lambda X: OperatorRidge("rbf", dtype="float32").fit(X, y),
    "embedding": lambda X: ConditionalMeanEmbedding("rbf", dtype="float32").fit(X, y),
    "classifier": lambda X: EmbeddingClassifier("rbf", dtype="float32").fit(X, LABELS),
    "structured": lambda X: StructuredPredictor("rbf", dtype="float32").fit(X, y),
    "deep": lambda X: DeepKernelClassifier([], "rbf", dtype="float32").fit(X, LABELS),
    "components": lambda X: DeepKernelPCA(2, "rbf", dtype="float32").fit(X),
}


@pytest.mark.parametrize("unit", [1e-100, 1e-40])
@pytest.mark.parametrize("name", LOST_INPUTS)
def test_inputs_that_are_lost_in_single_precision_are_refused_with_advice(name, unit):
    with pytest.raises(ValueError, match=r"X holds numbers up to .*float32.*Rescale X.*float64"):
        LOST_INPUTS[name](X * unit)


def test_sparse_inputs_that_are_lost_in_single_precision_are_refused_and_equal_rows_are_not():
    model = OperatorRidge(MinMax(), dtype="float32")
    with pytest.raises(ValueError, match="Rescale X"):
        model.fit(csr_array(np.abs(X) * 1e-60), y)
    for equal in (csr_array((60, 3)), np.full((60, 3), 1e-60)):
        assert np.ptp(model.fit(equal, y).predict(equal)) == 0.0


@pytest.mark.parametrize("unit", [1e-100, 1e-45])
@pytest.mark.parametrize("learner", [ConditionalMeanEmbedding, StructuredPredictor, OperatorRidge, DeepKernelRegressor])
def test_targets_that_are_lost_in_single_precision_are_refused_with_advice(learner, unit):
    with pytest.raises(ValueError, match=r"largest target.*float32.*Rescale y.*float64"):
        learner(kernel="rbf", dtype="float32").fit(X, y * unit)


LINEAR = {
    "ridge": lambda dtype: OperatorRidge("linear", dtype=dtype),
    "landmarks": lambda dtype: OperatorRidge("linear", dtype=dtype, approximation=Nystroem(3), random_state=0),
    "deep": lambda dtype: DeepKernelRegressor([], "linear", dtype=dtype),
    "deep classifier": lambda dtype: DeepKernelClassifier([], "linear", dtype=dtype),
    "structured": lambda dtype: StructuredPredictor("linear", "linear", decoder="direct", dtype=dtype),
    "embedding": lambda dtype: ConditionalMeanEmbedding("linear", dtype=dtype),
    "classifier": lambda dtype: EmbeddingClassifier("linear", dtype=dtype),
}


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize(
    ("dtype", "unit", "words"),
    [
        ("float64", 1e-163, r"Linear\(\) is zero on these data.*scale X"),
        ("float64", 1e-160, r"Linear\(\) is zero on these data.*scale X"),
        ("float64", 1e160, r"Linear\(\) overflows on these data.*Scale X"),
        ("float32", 1e-25, r"Linear\(\) is zero on these data.*scale X"),
        ("float32", 1e20, r"Linear\(\) overflows on these data.*Scale X"),
    ],
)
def test_a_kernel_of_products_that_leaves_the_range_of_numbers_is_refused_with_advice(name, dtype, unit, words):
    targets = LABELS if "classifier" in name else y
    with pytest.raises(ValueError, match=words):
        LINEAR[name](dtype).fit(X * unit, targets)


@pytest.mark.parametrize("name", ["ridge", "deep", "structured"])
def test_a_linear_kernel_takes_zeros_and_data_of_any_size_whose_squares_are_numbers(name):
    model = LINEAR[name]("float64")
    usual = model.fit(X, y).predict(X)
    for unit in (1e-140, 1e-100, 1e100, 1e150):
        np.testing.assert_allclose(model.fit(X * unit, y).predict(X * unit), usual, atol=1e-6)
    assert np.ptp(model.fit(np.zeros((60, 3)), y).predict(X)) == 0.0


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_losses_that_libsvm_cannot_solve_at_any_start_say_what_to_do():
    model = DeepKernelClassifier([1], Polynomial(2), "hinge", 1e-12, max_iter=5, random_state=0)
    with pytest.raises(ValueError, match=r"libsvm stopped.*Increase alpha, scale X.*squared_hinge"):
        model.fit(np.random.default_rng(0).normal(size=(60, 3)) * 1e6, LABELS)


HUGE = {
    "single precision": lambda: OperatorRidge(dtype="float32").fit(X, y * 1e100).predict(X),
    "deviations": lambda: OperatorRidge().fit(X, y * 1e200).predict(X, return_std=True),
    "weights": lambda: OperatorRidge().fit(X, y, sample_weight=np.full(60, 1e308)).predict(X),
    "weights of landmarks": lambda: (
        OperatorRidge(approximation=Nystroem(5), random_state=0).fit(X, y, sample_weight=np.full(60, 1e308)).predict(X)
    ),
    "one weight": lambda: ConditionalMeanEmbedding().fit(X, y, np.where(np.arange(60) == 0, 1e308, 1.0)).predict(X),
    "embedded": lambda: ConditionalMeanEmbedding().fit(X, y * 1.7e308).predict(X),
    "landmarks": lambda: (
        OperatorRidge(approximation=Nystroem(5), random_state=0).fit(X * 1e9, y * 1e307).predict(X * 1e9)
    ),
}


@pytest.mark.parametrize("name", HUGE)
def test_answers_to_huge_numbers_are_finite_or_refused_with_advice(name):
    try:
        assert np.isfinite(HUGE[name]()).all()
    except ValueError as error:
        assert re.search(r"scale", str(error), re.IGNORECASE), error


@pytest.mark.parametrize("approximation", [None, Nystroem(20)])
@pytest.mark.parametrize("power", [-307, -300, -200, -170, -140, 140, 154, 200, 300])
@pytest.mark.parametrize("output_kernel", ["linear", "rbf"])
def test_embedded_targets_of_any_size_are_fitted_right_or_refused_with_advice(output_kernel, power, approximation):
    """Squares of tiny targets were zero, and predictions wrong without a word."""
    options = {"decoder": "direct"} if output_kernel == "linear" else {}
    model = StructuredPredictor("rbf", output_kernel, approximation=approximation, random_state=0, **options)
    expected, unit = clone(model).fit(X, y[:, None]).predict(X), 10.0**power
    try:
        answer = model.fit(X, y[:, None] * unit).predict(X) / unit
    except ValueError as error:
        assert re.search(r"largest target.*Rescale y", str(error)), error
        assert abs(power) > 140
    else:
        np.testing.assert_allclose(answer, expected, atol=1e-9)


@pytest.mark.parametrize("approximation", [None, Nystroem(20)])
@pytest.mark.parametrize("power", [-307, -300, -170, -140, 140, 200, 300])
def test_variances_and_intervals_of_targets_of_any_size_are_right_or_refused_with_advice(power, approximation):
    noisy = y + 0.3 * np.random.default_rng(0).normal(size=60)
    model = ConditionalMeanEmbedding("rbf", approximation=approximation, random_state=0).fit(X, noisy)
    variance, interval, unit = model.var(X[:5]), model.predict_interval(X[:5]), 10.0**power
    try:
        model.fit(X, noisy * unit)
        np.testing.assert_allclose(model.predict_interval(X[:5]) / unit, interval, atol=1e-6)
        np.testing.assert_allclose(np.sqrt(model.var(X[:5])) / unit, np.sqrt(variance), atol=1e-6)
    except ValueError as error:
        assert power not in (-140, 140) and re.search(r"(Rescale|Scale) y", str(error)), error


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_constant_outputs_have_no_covariance_and_are_predicted(dtype):
    model = StructuredPredictor("linear", Gaussian(0.8), operator="covariance", fit_intercept=True, dtype=dtype)
    assert (np.asarray(model.fit(X, np.zeros((60, 2))).predict(X[:5])) == 0.0).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("constant", [1e9 / 3.0, 0.1, 3.0, 1e-10 / 7.0])
def test_the_rounding_of_a_constant_is_not_searched(constant):
    """Beside points on a grid a search of the rounding said that it had failed."""
    points = np.round(np.random.default_rng(0).normal(size=(60, 3)) * 2.0**20) / 2.0**20
    model = OperatorRidge(random_state=0).fit(points, np.full(60, constant))
    assert model.n_iter_ == 1
    np.testing.assert_allclose(model.predict(points), constant, rtol=1e-14)


@pytest.mark.parametrize("kernel", ["rbf", "auto"])
def test_columns_of_the_same_name_are_refused_by_name(kernel):
    frame = pd.DataFrame(rng.normal(size=(10, 2)), columns=["size", "size"])
    with pytest.raises(ValueError, match="different names; 'size'"):
        OperatorRidge(kernel).fit(frame, np.arange(10.0))


BEYOND = [10**400, *range(19)]
POINTS = np.random.default_rng(0).normal(size=(20, 2))


@pytest.mark.parametrize("container", [list, lambda rows: np.array(rows, dtype=object), pd.DataFrame])
def test_integers_beyond_the_range_of_numbers_are_refused(container):
    """They were an OverflowError of Python, which names no data."""
    for model in (OperatorRidge(), DeepKernelPCA([1]), StructuredPredictor("rbf", "linear")):
        with pytest.raises(ValueError, match="an integer with 400 digits"):
            model.fit(container([[number] for number in BEYOND]), POINTS)
    with pytest.raises(ValueError, match="an integer with 400 digits"):
        OperatorRidge().fit(POINTS, container([[number] for number in BEYOND]))
    with pytest.raises(ValueError, match="an integer with 400 digits"):
        OperatorRidge(alpha=0.1).fit(POINTS[:, :1], POINTS[:, 1]).predict(container([[number] for number in BEYOND]))


def test_scores_of_dask_arrays_of_unknown_sizes_are_refused():
    """They were told that ``len`` has failed."""
    da = pytest.importorskip("dask.array")
    X = da.from_array(POINTS, chunks=7)
    some, labels = X[X[:, 0] > -9.0], POINTS[:, 0] > 0
    classifier = EmbeddingClassifier(Gaussian(1.0), alpha=0.1, calibration=None)
    for model in (OperatorRidge(Gaussian(1.0), alpha=0.1), classifier):
        model.fit(POINTS, labels if hasattr(model, "calibration") else POINTS[:, 0])
        assert np.isfinite(model.score(X, da.from_array(labels, chunks=7)))
        with pytest.raises(ValueError, match=r"Call compute_chunk_sizes\(\)"):
            model.score(some, labels)
        with pytest.raises(ValueError, match=r"Call compute_chunk_sizes\(\)"):
            model.score(X, y=some[:, 0] > 0)


def test_no_quantiles_are_an_empty_answer_and_words_are_refused():
    model = ConditionalMeanEmbedding("linear", criterion=None, alpha=0.1).fit(POINTS, POINTS[:, 0])
    assert model.quantile(POINTS, []).shape == (20, 0)
    with pytest.raises(ValueError, match="q must be a number or an array"):
        model.quantile(POINTS, "median")


@pytest.mark.parametrize("learner", [DeepKernelClassifier([], calibration=None), EmbeddingClassifier()])
def test_labels_that_are_longer_than_integers_are_refused_with_advice(learner):
    labels = [10**400 + i % 2 for i in range(len(X))]
    with pytest.raises(ValueError, match=r"an integer of 400 digits\. Convert the labels to str"):
        learner.fit(X, labels)


@pytest.mark.parametrize(
    "fit",
    [
        lambda: EmbeddingClassifier(alpha=np.float64(-1.0)).fit(X, X[:, 0] > 0),
        lambda: OperatorRidge(alpha=0.1).fit(X, X[:, 0], noise=np.zeros(len(X))),
        lambda: DeepKernelClassifier([]).fit(X, np.zeros(len(X))),
        lambda: DeepKernelClassifier([]).fit(X, np.arange(len(X)) % 2, sample_weight=np.arange(len(X)) % 2),
        lambda: DeepKernelRegressor([], "rbf", "huber", 0.1, delta=np.float64(0.0)).fit(X, X[:, 0]),
        lambda: DeepKernelPCA([2, 1], eta=[np.float64(0.0), 1.0]).fit(X),
        lambda: OperatorRidge(Gaussian(1.0), alpha=0.1).fit(X, X[:, 0]).predict_interval(X, np.float64(2.0)),
    ],
)
def test_refusals_show_numbers_of_numpy_as_numbers(fit):
    with pytest.raises(ValueError, match=r"got|label") as refusal:
        fit()
    assert "np." not in str(refusal.value)


OWN = np.arange(60) // 3


def refusal_of_groups(name, inputs, groups):
    """What a fit says of groups that it refuses."""
    with pytest.raises(ValueError, match="groups") as refusal:
        clone(ON_DASK[name]).fit(inputs, OWN % 2, groups=groups)
    return str(refusal.value)


@pytest.mark.parametrize("name", ON_DASK)
@pytest.mark.parametrize(
    ("groups", "words"),
    [
        (np.where(OWN == 2, np.nan, OWN), "contains NaN or None, first in row 6"),
        (pd.Series([0, pd.NA] * 30, dtype="Int64"), "contains NaN or None, first in row 1"),
        ([0, pd.NA] * 30, "contains NaN or None, first in row 1"),
        (np.array(["2020-01-01", "NaT"] * 30, dtype="M8[D]"), "contains NaN or None, first in row 1"),
        ([None, *OWN[1:]], "contains NaN or None, first in row 0"),
        ([{"a": int(i)} for i in OWN], "mixes labels of the kinds dict"),
        (OWN[1:], r"each of the 60 samples; got an array of shape (59,). Pass a list or an array of 60 labels"),
        (OWN[:, None], "got an array of shape (60, 1)."),
        ({"a": 1}, "got one dict. Pass a list or an array of 60 labels"),
        (set(OWN.tolist()), "got one set. Pass"),
        (3, "got one int. Pass"),
        ("patients", "got one str. Pass"),
        (iter(OWN), "Pass a list or an array of 60 labels"),
    ],
)
def test_groups_on_dask_are_refused_in_the_words_of_those_in_memory(name, groups, words):
    da = pytest.importorskip("dask.array")
    told = refusal_of_groups(name, da.from_array(X, chunks=(20, 3)), groups)
    assert words in told and told == refusal_of_groups(name, X, groups)
    if isinstance(groups, np.ndarray):
        assert told == refusal_of_groups(name, da.from_array(X, chunks=(20, 3)), da.from_array(groups, chunks=13))


def test_labels_of_batches_that_cannot_be_compared_are_refused():
    with pytest.raises(ValueError, match="mixes labels of the kinds dict"):
        clone(ON_DASK["OperatorRidge"]).partial_fit(X, y, groups=[{"a": int(i)} for i in OWN])


ONE = [
    ({"groups": np.zeros(60)}, "Found n_groups=1: the criterion leaves .* at least 2 are needed.* to fit one group"),
    ({"sample_weight": np.eye(60)[0]}, "Found n_samples=1: the criterion leaves .* to fit one sample"),
    ({"sample_weight": np.repeat([1.0, 0.0], 30), "groups": np.repeat([3, 4], 30)}, "Found n_groups=1"),
]


@pytest.mark.parametrize("kernel", ["rbf", "auto", Gaussian("ard")], ids=str)
@pytest.mark.parametrize("approximation", [None, Nystroem(8), RandomFeatures(8)], ids=str)
@pytest.mark.parametrize(("options", "words"), ONE, ids=["groups", "weights", "both"])
def test_one_group_or_one_sample_of_positive_weight_cannot_be_left_out(kernel, approximation, options, words):
    model = OperatorRidge(kernel, approximation=approximation, random_state=0)
    with pytest.raises(ValueError, match=words):
        model.fit(X, y, **options)
    if approximation is not None:
        da = pytest.importorskip("dask.array")
        with pytest.raises(ValueError, match=words):
            model.fit(da.from_array(X, chunks=(20, 3)), y, **options)


def test_the_first_batch_may_be_one_group():
    model = OperatorRidge(Gaussian(1.0), approximation=Landmarks(X[:8]), random_state=0)
    for rows in np.split(np.arange(60), 3):
        model.partial_fit(X[rows], y[rows], groups=np.full(20, rows[0]))
    whole = clone(model).fit(X, y, groups=np.arange(60) // 20)
    assert model.alpha_ == pytest.approx(whole.alpha_)
