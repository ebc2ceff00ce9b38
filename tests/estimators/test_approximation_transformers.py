"""Approximations as transformers of their own: scikit-learn's contract, and what a learner makes of them."""

from __future__ import annotations

import itertools
import pickle
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from operator_cases import WORDS
from scipy import sparse
from sklearn.base import clone
from sklearn.ensemble import BaggingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks
from tiers import tiers

from representer import (
    ConditionalMeanEmbedding,
    DeepKernelClassifier,
    DeepKernelPCA,
    DeepKernelRegressor,
    EmbeddingClassifier,
    KernelAutoencoder,
    KernelFeatures,
    OperatorRidge,
    StructuredPredictor,
)
from representer.approximation import Approximation, Landmarks, Nystroem, RandomFeatures, TensorSketch
from representer.kernels import Gaussian, Linear, Polynomial, Spectrum, Tanimoto

GRID = np.random.default_rng(5).normal(size=(15, 3))
TRANSFORMERS: Any = [
    Nystroem(20, random_state=0),
    Landmarks(GRID),
    RandomFeatures(20, random_state=0),
    TensorSketch(20, random_state=0),
]


@pytest.fixture
def X(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(120, 3))


# Not Landmarks: its points fix the number of features, and scikit-learn's checks come with data of several widths.
@parametrize_with_checks(
    [
        Nystroem(),
        Nystroem(sampling="pivots", kernel="laplacian", random_state=0),
        RandomFeatures(10, random_state=0),
        TensorSketch(10, random_state=0),
    ]
)
def test_scikit_learn_contract(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


CASES: Any = [
    (Nystroem(20, "leverage", kernel=Gaussian("median"), random_state=1), "median"),
    (Nystroem(20, "kmeans", kernel=Gaussian(2.0), random_state=1), 2.0),
    (Landmarks(GRID, kernel=Gaussian("median")), "median"),
    (RandomFeatures(20, orthogonal=False, kernel=Gaussian("median"), random_state=1), "median"),
    (TensorSketch(20, kernel=Polynomial(2, "scale"), random_state=1), None),
]


@pytest.mark.parametrize(("transformer", "lengthscale"), CASES, ids=[repr(case[0])[:30] for case in CASES])
def test_is_what_kernel_features_are(X, transformer, lengthscale):
    arguments = transformer.get_params(deep=False)
    kernel, seed = arguments.pop("kernel"), arguments.pop("random_state", None)
    expected = KernelFeatures(kernel, type(transformer)(**arguments), random_state=seed).fit(X)
    written = clone(transformer)
    fitted = transformer.fit(X)
    assert fitted is transformer and transformer == written and repr(transformer) == repr(written)
    np.testing.assert_array_equal(fitted.transform(X), expected.transform(X))
    assert fitted.approximation_error_ == expected.approximation_error_
    assert fitted.kernel_ == expected.kernel_ and fitted.n_features_in_ == 3
    if lengthscale == "median":
        assert isinstance(fitted.kernel_.lengthscale, float) and fitted.kernel.lengthscale == "median"
    if expected.landmarks_ is None:
        assert fitted.landmarks_ is None
    else:
        np.testing.assert_array_equal(fitted.landmarks_, expected.landmarks_)
    stored = pickle.loads(pickle.dumps(fitted))
    assert stored == fitted
    np.testing.assert_allclose(stored.transform(X), fitted.transform(X), atol=1e-10)


def test_defaults(X):
    assert Nystroem().fit(X).transform(X).shape == (120, 120)  # all samples: there are fewer than 1000
    assert isinstance(RandomFeatures(4).fit(X).kernel_, Gaussian)
    assert isinstance(TensorSketch(4).fit(X).kernel_, Polynomial)
    with pytest.raises(ValueError, match="from 1 to the number of samples, 120; got 121"):
        Nystroem(121).fit(X)
    with pytest.raises(ValueError, match=r"RandomFeatures takes Gaussian.*Nystroem takes any kernel"):
        RandomFeatures(4, kernel=Linear()).fit(X)
    with pytest.raises(ValueError, match="already n × n"):
        Nystroem(kernel="precomputed").fit(np.eye(5))
    with pytest.raises(NotFittedError, match="This Nystroem instance is not fitted"):
        Nystroem(5).transform(X)


def test_clones_and_changes_carry_nothing_that_was_fitted(X):
    fitted = Nystroem(10, kernel=Gaussian("median"), random_state=0).set_output(transform="pandas").fit(X)
    for copied in (clone(fitted), fitted.replace({"kernel__lengthscale": 2.0}), fitted.numbers()):
        assert set(vars(copied)) - {"_sklearn_output_config"} == set(fitted._argument_names())
        with pytest.raises(NotFittedError):
            copied.transform(X)
    assert isinstance(clone(fitted).fit_transform(X), pd.DataFrame)  # as scikit-learn's own clone
    fitted.fit(pd.DataFrame(X, columns=list("abc")))
    assert list(fitted.feature_names_in_) == ["a", "b", "c"]
    assert not hasattr(fitted.fit(X[:, :2]), "feature_names_in_") and fitted.n_features_in_ == 2


def test_pipelines_and_searches(X):
    y = np.sin(X[:, 0])
    model = make_pipeline(Nystroem(30, random_state=0), Ridge(1e-3))  # the kernel is None
    grid = {"nystroem__n_components": [2, 30], "nystroem__kernel__lengthscale": [0.05, 2.0]}
    search = GridSearchCV(model, grid, cv=3).fit(X, y)
    assert search.best_params_ == {"nystroem__n_components": 30, "nystroem__kernel__lengthscale": 2.0}
    assert model[0].kernel is None  # a search changes clones
    best = search.best_estimator_[0]
    assert best.kernel == Gaussian(2.0) and len(best.landmarks_) == 30
    assert Nystroem(kernel="rbf").get_params()["kernel__lengthscale"] == "median"
    assert Nystroem(kernel="rbf").set_params(kernel__lengthscale=3.0).kernel == Gaussian(3.0)


def test_names_and_frames(X):
    frame = pd.DataFrame(X, columns=list("abc"))
    transformer = RandomFeatures(4, random_state=0).set_output(transform="pandas")
    found = transformer.fit_transform(frame)
    assert list(found.columns) == list(transformer.get_feature_names_out())
    assert list(found.columns) == [f"randomfeatures{i}" for i in range(4)]
    with pytest.raises(ValueError, match="feature names should match"):
        transformer.transform(frame.rename(columns={"a": "z"}))


def test_other_data(X):
    words = Nystroem(4, kernel=Spectrum(1), random_state=0).fit(WORDS)
    assert words.transform(WORDS).shape == (len(WORDS), 4) and len(words.landmarks_) == 4
    rows = sparse.csr_array(np.abs(X) * (X > 0))
    found = Nystroem(5, kernel="minmax", random_state=0).fit(rows).transform(rows)
    expected = Nystroem(5, kernel="minmax", random_state=0).fit(rows.toarray()).transform(rows.toarray())
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-10)


def test_dask(X):
    da = pytest.importorskip("dask.array")
    chunks = da.from_array(X, chunks=(50, -1))
    for transformer in (
        Nystroem(20, kernel=Gaussian(1.0), random_state=0),
        RandomFeatures(20, random_state=0),
    ):
        local = clone(transformer).fit(X)
        remote = clone(transformer).fit(chunks)
        lazy = remote.transform(chunks)
        assert type(lazy) is da.Array and lazy.shape == (120, 20)
        np.testing.assert_allclose(lazy.compute(), local.transform(X), atol=1e-8)
        assert remote.approximation_error_ == pytest.approx(local.approximation_error_, rel=1e-8)


# -- as values --------------------------------------------------------------------------------------------------------
def test_a_fitted_transformer_is_still_a_value(X):
    y = np.sin(X[:, 0])
    fitted = Nystroem(20).fit(X)
    learner = OperatorRidge(Gaussian(1.0), alpha=1e-3, approximation=fitted, random_state=0).fit(X, y)
    expected = clone(learner).set_params(approximation=Nystroem(20)).fit(X, y)
    np.testing.assert_array_equal(learner.predict(X), expected.predict(X))
    assert not hasattr(clone(learner).approximation, "kernel_")


LEARNERS: Any = [
    (OperatorRidge("rbf"), lambda a: a),
    (EmbeddingClassifier("rbf"), lambda a: a),
    (ConditionalMeanEmbedding("rbf"), lambda a: a),
    (ConditionalMeanEmbedding("rbf"), lambda a: (Nystroem(20), a)),
    (StructuredPredictor("rbf"), lambda a: a),
    (StructuredPredictor("rbf"), lambda a: (Nystroem(20), a)),
    (DeepKernelRegressor(), lambda a: a),
    (DeepKernelClassifier(loss="squared"), lambda a: a),
    (KernelAutoencoder(), lambda a: a),
    (KernelFeatures(), lambda a: a),
]


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize(("learner", "placed"), LEARNERS, ids=[type(case[0]).__name__ for case in LEARNERS])
def test_learners_refuse_what_they_have_themselves(X, learner, placed, method):
    y = (X[:, 0] > 0).astype(int)
    model = clone(learner).set_params(approximation=placed(Nystroem(20, kernel="rbf")))
    if not hasattr(model, method):
        pytest.skip("no batches")
    with pytest.raises(ValueError, match=r"has a kernel of its own.*Give kernel= to the learner"):
        getattr(model, method)(X, y)


def test_sparse_points_are_landmarks_of_sparse_samples():
    rows = sparse.random_array((60, 40), density=0.2, rng=np.random.default_rng(0), format="csr")
    y = np.asarray(rows.sum(1)).ravel()
    options = {"alpha": 1e-3, "random_state": 0}
    found = OperatorRidge("minmax", approximation=Landmarks(rows[:20]), **options).fit(rows, y)
    dense = OperatorRidge("minmax", approximation=Landmarks(rows[:20].toarray()), **options).fit(rows.toarray(), y)
    np.testing.assert_allclose(found.predict(rows), dense.predict(rows.toarray()), atol=1e-8)


def test_ensembles_may_set_every_random_state(X):
    learner = OperatorRidge(Gaussian(1.0), approximation=Nystroem(20), alpha=1e-3)
    ensemble = BaggingRegressor(learner, n_estimators=2, random_state=0).fit(X, X[:, 0])
    assert ensemble.score(X, X[:, 0]) > 0.5


@pytest.mark.parametrize("transformer", [Nystroem(10, random_state=0), KernelFeatures("rbf", Nystroem(10))])
def test_frames_of_dask_collections_are_refused(X, transformer):
    da = pytest.importorskip("dask.array")
    model = clone(transformer).set_output(transform="pandas").fit(X)
    with pytest.raises(ValueError, match=r"lazy.*set_output"):
        model.transform(da.from_array(X, chunks=(20, -1)))


def test_deep_learners_take_the_default(X):
    model = DeepKernelRegressor([1], Gaussian(1.0), approximation=Nystroem(), alpha=1e-3, max_iter=2, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert len(model.fit(X, X[:, 0]).dual_coef_) == len(X)
        with pytest.raises(ValueError, match="an integer from 1 to the number of samples, 120; got 0"):
            model.set_params(approximation=Nystroem(0)).fit(X, X[:, 0])


def test_every_approximation_is_a_transformer():
    assert Approximation.transformer is KernelFeatures


@pytest.mark.parametrize("transformer", TRANSFORMERS, ids=lambda t: type(t).__name__)
def test_errors_name_the_class_that_was_written(X, transformer):
    name = type(transformer).__name__
    holes = X.copy()
    holes[3, 1] = np.nan
    fitted = clone(transformer).fit(pd.DataFrame(X, columns=["a", "b", "c"]))
    assert fitted.n_features_in_ == 3 and list(fitted.feature_names_in_) == ["a", "b", "c"]
    for call in (
        lambda: clone(transformer).fit(holes),
        lambda: clone(transformer).fit(X[:0]),
        lambda: clone(transformer).fit(X).transform(X[:, :2]),
        lambda: clone(transformer).fit(X).transform(holes),
    ):
        with pytest.raises(ValueError, match=name) as caught:
            call()
        assert "KernelFeatures" not in str(caught.value)
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.transform(pd.DataFrame(X, columns=["a", "b", "d"]))


def test_too_many_landmarks(X):
    with pytest.raises(ValueError, match="Choose at most 120") as caught:
        Nystroem(121).fit(X)
    assert "approximation" not in str(caught.value)


@pytest.mark.parametrize("transformer", TRANSFORMERS, ids=lambda t: type(t).__name__)
def test_parameters_are_set_together_or_not_at_all(transformer):
    kernel = Gaussian(1.0)
    for changed in (
        transformer,
        clone(transformer).set_params(kernel=kernel),
        KernelFeatures(kernel),
        OperatorRidge("rbf"),  # "auto" is several kernels, without parameters of their own
    ):
        before = changed.get_params()
        for wrong in ({"kernel__foo": 1.0}, {"kernel": "laplacian", "foo": 1.0}):
            with pytest.raises(ValueError, match="foo"):
                changed.set_params(**wrong)
        if changed is not transformer:
            with pytest.raises(ValueError, match="foo"):
                changed.set_params(kernel__lengthscale=5.0, kernel__foo=1.0)
        assert changed.get_params() == before and kernel == Gaussian(1.0)


def test_landmarks_of_sparse_samples_are_scipys():
    rows = sparse.csr_array(np.abs(np.random.default_rng(0).normal(size=(60, 4))).round())
    y = np.arange(60.0)
    learners = [
        Nystroem(10, kernel=Tanimoto(), random_state=0).fit(rows),
        OperatorRidge(Tanimoto(), approximation=Nystroem(10), random_state=0).fit(rows, y),
        EmbeddingClassifier(Tanimoto(), approximation=Nystroem(10), random_state=0).fit(rows, y > 30),
        StructuredPredictor(Tanimoto(), "linear", approximation=Nystroem(10), random_state=0).fit(rows, y[:, None]),
    ]
    for learner in learners:
        assert type(learner.landmarks_) is sparse.csr_array
        again = pickle.loads(pickle.dumps(learner))
        for one, two in zip(*(_answers(which, rows) for which in (learner, again)), strict=True):
            np.testing.assert_allclose(one, two, atol=1e-8)


def _answers(learner: Any, rows: Any) -> list[np.ndarray]:
    return [
        getattr(learner, name)(rows) for name in ("transform", "predict_proba", "predict") if hasattr(learner, name)
    ]


# -- a share of the samples ------------------------------------------------------------------------------------------
SHARED: dict[str, tuple[Any, Any]] = {
    "OperatorRidge": (OperatorRidge(Gaussian(1.0), alpha=1e-3, random_state=0), lambda m: len(m.landmarks_)),
    "EmbeddingClassifier": (
        EmbeddingClassifier(Gaussian(1.0), alpha=1e-3, random_state=0),
        lambda m: len(m.landmarks_),
    ),
    "ConditionalMeanEmbedding": (
        ConditionalMeanEmbedding(Gaussian(1.0), alpha=1e-3, random_state=0),
        lambda m: len(m.landmarks_),
    ),
    "DeepKernelRegressor": (DeepKernelRegressor([2], tol=0.1, random_state=0), None),
    "KernelAutoencoder": (KernelAutoencoder(2, tol=0.1, random_state=0), None),
    "DeepKernelPCA": (DeepKernelPCA([2, 1], random_state=0), lambda m: len(m.X_fit_)),
    "KernelFeatures": (KernelFeatures(random_state=0), lambda m: len(m.landmarks_)),
}


@pytest.mark.parametrize(
    ("name", "sampling"),
    tiers(
        itertools.product(SHARED, ["uniform", "pivots", "leverage"]),
        lambda case: (
            case[0] == "OperatorRidge"
            or (case[1] == "uniform" and case[0] not in ("KernelAutoencoder", "DeepKernelRegressor"))
        ),
    ),
)
def test_a_share_of_the_samples_is_the_number_that_it_means(X: np.ndarray, name: str, sampling: Any) -> None:
    learner, landmarks = SHARED[name]
    y = np.arange(len(X)) % 2
    answers = []
    for size in (0.25, 30):
        model = clone(learner).set_params(approximation=Nystroem(size, sampling)).fit(X, y)
        assert landmarks is None or landmarks(model) == 30
        method = "predict" if hasattr(model, "predict") else "transform"
        answers.append(getattr(model, method)(X[:5] + 0.1))
    np.testing.assert_allclose(*answers, atol=1e-6)


def test_a_share_among_more_samples_than_are_looked_at() -> None:
    X = np.random.default_rng(0).normal(size=(30_000, 1))
    features = Nystroem(0.001, "pivots", kernel=Gaussian(0.1), random_state=0).fit(X)
    assert len(features.landmarks_) == 30


def test_shares_of_a_transformer(X: np.ndarray) -> None:
    assert Nystroem(0.25, random_state=0).fit(X).transform(X).shape == (120, 30)
    assert len(Nystroem(1.0).fit(X).landmarks_) == 120 and len(Nystroem(1e-6).fit(X).landmarks_) == 2
    for share in (0.0, 1.5, -0.5, float("nan")):
        with pytest.raises(ValueError, match=r"a share of the samples up to 1\.0"):
            Nystroem(share).fit(X)


@pytest.mark.slow
def test_an_approximation_is_a_transformer_where_no_learner_was_imported_before():
    script = (
        "import numpy as np; from representer.approximation import RandomFeatures; X = np.eye(3)\n"
        "print(RandomFeatures(4, kernel='rbf', random_state=0).fit(X).transform(X).shape)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.stdout.strip() == "(3, 4)", result.stderr


@pytest.mark.parametrize("question", ["explain", "influence", "sensitivity"])
def test_features_say_that_they_predict_nothing_that_could_be_explained(X: np.ndarray, question: str) -> None:
    model = KernelFeatures("rbf", Nystroem(5), random_state=0).fit(X)
    with pytest.raises(ValueError, match=r"features and predicts nothing.*OperatorRidge|fit without|influence"):
        getattr(model, question)(X)
