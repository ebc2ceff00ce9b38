"""Learners on data that are not dense vectors: precision, indefinite kernels, sparse fingerprints, linear models."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge, SGDClassifier
from sklearn.model_selection import KFold, cross_val_predict, cross_val_score
from sklearn.svm import SVC
from sklearn.utils import get_tags
from tiers import tiers

from representer import OperatorRidge
from representer.approximation import Nystroem
from representer.kernels import (
    Callable,
    Columns,
    Constant,
    Delta,
    Edit,
    Functional,
    Gaussian,
    GlobalAlignment,
    Graph,
    Kernel,
    Linear,
    Match,
    MeanMap,
    MinMax,
    Mismatch,
    Neural,
    Parallel,
    Pullback,
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
from representer.notices import NumericalWarning
from representer.operators import Covariance, Decomposable, Dense, Identity, Separate
from representer.operators.adapted import ANCHORS, Adapted, takes_sparse

RNG = np.random.default_rng(0)
WORDS = sorted({"".join(RNG.choice(list("abc"), n)) for n in RNG.integers(1, 9, 60)})
N_OF_A = np.array([word.count("a") + 0.1 * len(word) for word in WORDS])
LABELS = [word[0] for word in WORDS]
GRAPHS = [Graph([(i, i + 1) for i in range(n)], ["C", *RNG.choice(["C", "O"], n)]) for n in range(1, 13)]
BAGS = [RNG.normal(RNG.uniform(-1, 1), 1.0, (n, 2)) for n in RNG.integers(2, 9, 25)]
RECORDS = [{"word": word, "size": len(word)} for word in WORDS]
CURVES = [(np.linspace(0, 1, n), RNG.normal(size=n)) for n in range(4, 12)]
SERIES = [values for _, values in CURVES]


# -- precision --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kernel", "X"),
    tiers(
        [
            (Delta(), LABELS),
            (Spectrum(2).normalized(), WORDS),
            (Edit("auto"), WORDS),
            (Callable(lambda x, y: float(x == y)), LABELS),
            (RandomWalk("auto"), GRAPHS),
            (MeanMap(Gaussian("auto"), Gaussian("median")), BAGS),
            (Columns({"word": Spectrum(1), "size": Gaussian(2.0)}, weights="auto"), RECORDS),
            ("auto" * Spectrum(1).centered() + 1.0, WORDS),
            (Separate([Spectrum(1), Spectrum((1, 2))]), WORDS),
            (Decomposable(Spectrum(1), Dense([[2.0, 1.0], [1.0, 2.0]])) + Decomposable(Spectrum(2)), WORDS),
        ],
        lambda case: not isinstance(case[0], Callable | RandomWalk | Columns),
    ),
    ids=lambda value: repr(value)[:40] if isinstance(value, Kernel) else "",
)
def test_single_precision(kernel: Any, X: Any) -> None:
    y = np.sin(np.arange(len(X)))
    Y = np.column_stack([y, np.cos(np.arange(len(X)))])
    targets = y if isinstance(kernel, Kernel) else Y
    double = OperatorRidge(kernel, alpha=0.1, max_iter=20, fit_intercept=False).fit(X, targets)
    single = OperatorRidge(double.kernel_, alpha=0.1, dtype="float32", fit_intercept=False).fit(X, targets)
    assert single.predict(X).dtype == np.float32 == single.dual_coef_.dtype
    assert repr(single.kernel_) == repr(double.kernel_)
    (mean, std), (expected, spread) = (model.predict(X[:5], return_std=True) for model in (single, double))
    np.testing.assert_allclose(mean, expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(std, spread, rtol=1e-2, atol=1e-3)
    np.testing.assert_allclose(single.loo_predict_, double.loo_predict_, rtol=1e-2, atol=1e-2)
    OperatorRidge(kernel, dtype="float32", max_iter=3, tol=0.1, fit_intercept=False).fit(X, targets).predict(X[:2])


def test_single_precision_with_landmarks_and_operators() -> None:
    Y = np.column_stack([N_OF_A, -N_OF_A])
    for operator in (Covariance(), Identity(), "learn"):
        model = OperatorRidge(Spectrum(1) + 1.0, operator, dtype="float32", max_iter=5, tol=0.1, fit_intercept=False)
        assert model.fit(WORDS, Y).score(WORDS, Y) > 0.9
    model = OperatorRidge(
        Spectrum((1, 2)), approximation=Nystroem(20), dtype="float32", random_state=0, alpha=1e-3, fit_intercept=False
    )
    mean, std = model.fit(WORDS, N_OF_A).predict(WORDS, return_std=True)
    assert mean.dtype == std.dtype == np.float32
    assert model.score(WORDS, N_OF_A) > 0.9


def test_landmarks_need_no_whole_gram_matrix() -> None:
    seen = []

    def matrix(X: Any, Y: Any) -> np.ndarray:
        seen.append((len(X), len(Y)))
        return Spectrum(1)(X, Y).numpy()

    many = WORDS * 5
    OperatorRidge(Callable(matrix, batched=True), approximation=Nystroem(10), random_state=0, fit_intercept=False).fit(
        many, np.tile(N_OF_A, 5)
    )
    # Landmarks, or the anchors with which samples are compared to find those that are equal.
    assert max(min(shape) for shape in seen) <= max(10, ANCHORS) < len(many)


# -- kernels that are not positive semi-definite ----------------------------------------------------------------------
def indefinite_bags() -> tuple[list[np.ndarray], np.ndarray]:
    rng = np.random.default_rng(5)
    bags = [rng.normal(size=(rng.integers(1, 6), 1)) for _ in range(40)]
    return bags, np.array([bag.max() for bag in bags])


def test_a_learned_match_kernel_is_repaired_in_the_end() -> None:
    bags, y = indefinite_bags()
    start = Match(Gaussian("auto")).resolve(bags)
    assert torch.linalg.eigvalsh(start(bags))[0] < -1e-3  # the search starts from an indefinite matrix
    with pytest.warns(IndefiniteGramWarning, match="were set to zero") as caught:
        model = OperatorRidge(Match(Gaussian("auto")), alpha=1e-2, max_iter=30, fit_intercept=False).fit(bags, y)
    assert sum(issubclass(w.category, IndefiniteGramWarning) for w in caught) == 1
    assert len(model.history_) > 1 and model.history_[-1].value < model.history_[0].value
    clipped = OperatorRidge("precomputed", alpha=1e-2, fit_intercept=False).fit(_clipped(model.kernel_(bags)), y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        np.testing.assert_allclose(model.loo_predict_, clipped.loo_predict_, rtol=1e-6)
        mean, std = model.predict(bags, return_std=True)
    expected, spread = clipped.predict(_clipped(model.kernel_(bags))), _spread(clipped, model, bags)
    np.testing.assert_allclose(mean, expected, rtol=1e-6)
    np.testing.assert_allclose(std, spread, rtol=1e-6)
    assert model.kernel_ != start


def _spread(clipped: OperatorRidge, model: OperatorRidge, bags: Any) -> np.ndarray:
    """The standard deviations at the training points, from k(x, x), and from K₊ in the place of k(x, X)."""
    K = _clipped(model.kernel_(bags))
    noise = len(K) * model.alpha_
    variance = model.kernel_.diag(bags).numpy() - np.sum(K * np.linalg.solve(K + noise * np.eye(len(K)), K), 0)
    inverse = np.linalg.inv(K + noise * np.eye(len(K)))
    residuals = inverse @ clipped.system_.samples.Y[:, 0] / np.diag(inverse)
    scale = np.mean(residuals**2 * np.diag(inverse))
    return np.sqrt((variance.clip(min=0.0) + noise) * scale)


@pytest.mark.parametrize("kernel", [Match(Gaussian(2.0)), 0.5 * Match(Gaussian(2.0)) + 1.0])
def test_a_repair_means_the_same_for_new_points(kernel: Kernel) -> None:
    """f at the training points is that of the repaired matrix, however small the ridge, and tame beside them."""
    bags, y = indefinite_bags()
    gram = kernel(bags)
    precomputed, objects = (
        OperatorRidge("precomputed", alpha=1e-9, fit_intercept=False),
        OperatorRidge(kernel, alpha=1e-9, fit_intercept=False),
    )
    with pytest.warns(IndefiniteGramWarning):
        objects.fit(bags, y)
    with pytest.warns(IndefiniteGramWarning):
        precomputed.fit(gram, y)
    K = _clipped(gram)
    fitted = K @ np.linalg.solve(K + len(K) * 1e-9 * np.eye(len(K)), y)
    np.testing.assert_allclose(objects.predict(bags), fitted, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(precomputed.predict(gram), fitted, rtol=1e-3, atol=1e-3)
    moved = [bag + 1e-3 for bag in bags]
    assert np.abs(objects.predict(moved) - fitted).max() < 1.0
    both = objects.predict(moved, return_std=True), precomputed.predict(kernel(moved, bags))
    np.testing.assert_allclose(both[0][0], both[1], rtol=1e-4, atol=1e-4)
    assert np.isfinite(both[0][1]).all()


def _clipped(gram: torch.Tensor) -> np.ndarray:
    values, vectors = np.linalg.eigh(gram.numpy())
    return (vectors * values.clip(min=0.0)) @ vectors.T


@pytest.mark.parametrize("alpha", ["auto", [1e-3, 1e-1], 1e-2])
def test_the_criterion_is_that_of_the_repaired_matrix(alpha: Any) -> None:
    bags, y = indefinite_bags()
    with pytest.warns(IndefiniteGramWarning):
        model = OperatorRidge(Match(Gaussian("auto")), alpha=alpha, tol=1e-2, fit_intercept=False).fit(bags, y)
    gram = _clipped(model.kernel_(bags))
    refitted = OperatorRidge("precomputed", alpha=[model.alpha_], fit_intercept=False).fit(gram, y)
    assert model.criterion_value_ == pytest.approx(refitted.criterion_value_, rel=1e-5)


@pytest.mark.slow
def test_an_edit_kernel_is_learned_through_indefinite_matrices() -> None:
    strings = [word * k for word in WORDS[:20] for k in (1, 2)]
    y = np.array([float(len(s)) for s in strings])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IndefiniteGramWarning)
        # Beside an indefinite matrix alpha may be nothing, and the criterion of one fold falls for ever.
        warnings.simplefilter("ignore", NumericalWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = OperatorRidge(Edit("auto") + 1.0, n_restarts=3, random_state=0, fit_intercept=False).fit(strings, y)
        folds = KFold(4, shuffle=True, random_state=0)
        assert (
            cross_val_score(OperatorRidge(Edit("auto") + 1.0, fit_intercept=False), strings, y, cv=folds).mean() > 0.5
        )
    assert model.score(strings, y) > 0.8  # alpha is not at its least: left-out errors are smaller than there


def test_a_kernel_that_is_far_from_definite_is_refused() -> None:
    kernel = "auto" * Callable(lambda x, y: -float(abs(len(x) - len(y))))
    with pytest.raises(NotPositiveDefiniteError, match="more than the 10% that may be clipped"):
        OperatorRidge(kernel, fit_intercept=False).fit(WORDS, N_OF_A)


def test_adapted_is_the_kernel() -> None:
    kernel = Adapted(Spectrum(2), torch.float32)
    assert repr(kernel) == "Spectrum(length=2)"
    torch.testing.assert_close(kernel(WORDS, WORDS[:3]), Spectrum(2)(WORDS, WORDS[:3]).float())
    torch.testing.assert_close(kernel.diag(WORDS), Spectrum(2).diag(WORDS).float())


# -- sparse fingerprints ----------------------------------------------------------------------------------------------
BITS = (RNG.random((50, 64)) < 0.2).astype(float)
COUNTS = BITS * RNG.integers(1, 4, BITS.shape)
SHARED = BITS[:, :5].sum(1) + 0.1 * BITS.sum(1)
FORMS = [sparse.csr_array, sparse.csr_matrix, sparse.csc_array, sparse.coo_array]


@pytest.mark.parametrize(
    ("kernel", "data"),
    tiers(
        {
            "tanimoto": (Tanimoto(), BITS),
            "word": ("tanimoto", BITS),
            "minmax": (MinMax(), COUNTS),
            "learned": ("auto" * Tanimoto() + 0.5, BITS),
            "centred": (Tanimoto().centered() * Tanimoto(), BITS),
            "separate": (Separate([Tanimoto(), 2.0 * MinMax()]), COUNTS),
        },
        lambda name: name in ("word", "minmax", "separate"),
    ),
)
@pytest.mark.filterwarnings("ignore:Standard deviations have few digits")  # of a scale that single precision lets grow
def test_sparse_fingerprints_give_what_dense_ones_do(kernel: Any, data: np.ndarray) -> None:
    y = np.column_stack([SHARED, -SHARED]) if isinstance(kernel, Separate) else SHARED
    weights = np.r_[0.0, np.ones(len(y) - 1)]
    for model in (
        OperatorRidge(kernel, fit_intercept=False),
        OperatorRidge(kernel, alpha=0.1, dtype="float32", fit_intercept=False),
    ):
        assert get_tags(model).input_tags.sparse
        tolerance = 1e-8 if model.dtype == "float64" else 1e-3
        dense = clone(model).fit(data, y, sample_weight=weights)
        for form in FORMS:
            X = form(data)
            thin = clone(model).fit(X, y, sample_weight=weights)
            assert thin.n_features_in_ == 64
            for new in (form(data[:7]), data[:7]):  # the form may change
                np.testing.assert_allclose(thin.predict(new), dense.predict(data[:7]), atol=tolerance)
                np.testing.assert_allclose(dense.predict(new), dense.predict(data[:7]), atol=tolerance)
            spread = [one.predict(new, return_std=True)[1] for one, new in ((thin, X), (dense, data))]
            np.testing.assert_allclose(*spread, atol=tolerance)
            np.testing.assert_allclose(thin.loo_predict_, dense.loo_predict_, atol=tolerance)


def test_sparse_fingerprints_in_folds_and_with_landmarks() -> None:
    X = sparse.csr_array(BITS)
    dense = cross_val_predict(OperatorRidge("tanimoto", fit_intercept=False), BITS, SHARED, cv=4)
    np.testing.assert_allclose(
        cross_val_predict(OperatorRidge("tanimoto", fit_intercept=False), X, SHARED, cv=4), dense
    )
    for sampling in ("uniform", "pivots"):
        model = OperatorRidge("tanimoto", approximation=Nystroem(40, sampling), random_state=0, fit_intercept=False)
        assert model.fit(X, SHARED).score(X, SHARED) > 0.7


def test_other_kernels_refuse_sparse_vectors() -> None:
    for kernel in (
        Gaussian(1.0),
        Tanimoto() * Gaussian(1.0),
        Pullback(Tanimoto(), torch.abs),
        Neural(torch.nn.Tanh(), Tanimoto()),
        "rbf",
        "precomputed",
    ):
        assert not takes_sparse(kernel)
        assert not get_tags(OperatorRidge(kernel, fit_intercept=False)).input_tags.sparse
        with pytest.raises(TypeError, match=r"[Ss]parse data was passed"):
            OperatorRidge(kernel, fit_intercept=False).fit(sparse.csr_array(BITS @ BITS.T), SHARED)
    assert takes_sparse(Constant() + Tanimoto())


# -- explicit features in linear models -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kernel", "X"),
    [
        (Spectrum((1, 3), weights=[1.0, 0.5, 0.25]), WORDS),
        (Mismatch(2, 1), WORDS),
        (WeisfeilerLehman(2), GRAPHS),
        (WeisfeilerLehman(2, "assignment"), GRAPHS),
        (ShortestPath(), GRAPHS),
        (Signature(3, scale=0.5), [RNG.normal(size=int(n)) for n in RNG.integers(2, 9, 30)]),
    ],
    ids=lambda value: repr(value)[:40] if isinstance(value, Kernel) else "",
)
def test_ridge_on_explicit_features_is_the_kernel_machine(kernel: Any, X: Any) -> None:
    y = np.cos(np.arange(len(X)))
    train, test = X[::2], X[1::2]
    kernel = kernel.resolve(train)
    features = kernel.explicit_features(train)
    known, new = features.matrix, kernel.explicit_features(test, features.columns).matrix
    alpha = 0.1
    linear = Ridge(alpha=alpha, fit_intercept=False, tol=1e-12, solver="sparse_cg", max_iter=10_000)
    dual = OperatorRidge(kernel, alpha=alpha / len(train), fit_intercept=False).fit(train, y[::2])
    expected = linear.fit(known, y[::2]).predict(new)
    np.testing.assert_allclose(dual.predict(test), expected, rtol=1e-5, atol=1e-6)


def test_stochastic_gradients_on_explicit_features() -> None:
    rng = np.random.default_rng(1)
    strings = ["".join(rng.choice(list("acgt"), 40)) for _ in range(300)]
    classes = np.array(["gatt" in s or "cata" in s for s in strings])
    features = Spectrum(4).explicit_features(strings[:200])
    model = SGDClassifier(loss="log_loss", random_state=0).fit(features.matrix, classes[:200])
    new = Spectrum(4).explicit_features(strings[200:], features.columns)
    assert model.score(new.matrix, classes[200:]) > 0.85


def test_support_vector_machines_take_gram_matrices() -> None:
    classes = np.array(["b" in word for word in WORDS])
    k = Spectrum((1, 2)).normalized()
    model = SVC(kernel="precomputed", C=10.0).fit(k(WORDS[::2]), classes[::2])
    assert model.score(k(WORDS[1::2], WORDS[::2]), classes[1::2]) > 0.85


@pytest.mark.parametrize(
    ("kernel", "X"),
    [
        (2.0 * Spectrum(2), WORDS),
        (Spectrum(1) + (0.5 * Spectrum(2).normalized() + 1.0), WORDS),
        (Parallel(Mismatch(2, 1)).normalized(), WORDS),
        (WeisfeilerLehman(2).normalized() + ShortestPath(), GRAPHS),
        (Signature(3), SERIES),
        (Signature(2).normalized() + 1.0, SERIES),
        (Linear() + 1.0, RNG.normal(size=(9, 3))),
        (Functional(Linear()), RNG.normal(size=(9, 5))),
        (Functional(Linear(), np.linspace(0, 1, 7), derivative=(0, 1), domain="objects"), CURVES),
        (MeanMap(Linear()), BAGS),
        (MeanMap(Spectrum(2)), [[word, word[::-1]] for word in WORDS]),
    ],
    ids=lambda value: repr(value)[:60] if isinstance(value, Kernel) else "",
)
def test_explicit_features_of_compositions(kernel: Kernel, X: Any) -> None:
    train, test = X[::2], X[1::2]
    first = kernel.explicit_features(train)  # words are given their numbers
    resolved = kernel.resolve(train)
    features = resolved.explicit_features(train)
    new = resolved.explicit_features(test, features.columns)
    assert list(first.columns) == list(features.columns) == list(new.columns)
    assert list(features.columns.values()) == list(range(features.matrix.shape[1]))
    known, rows = (sparse.csr_array(part.matrix).toarray() for part in (features, new))
    np.testing.assert_allclose(known @ known.T, resolved(train), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(rows @ known.T, resolved(test, train), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("kernel", "X", "message"),
    [
        (Edit(1.0), WORDS, "no explicit features"),
        (Spectrum(1) * Spectrum(2), WORDS, "no explicit features"),
        (Spectrum(1).centered(), WORDS, "no explicit features"),
        (Gaussian(1.0) + 1.0, BAGS[0], "no explicit features"),
        (MeanMap(Linear(), Gaussian(1.0)), BAGS, "only with outer='linear'"),
        (Functional(Linear(), interval="hull", domain="objects"), CURVES, "Give it a grid"),
    ],
    ids=lambda value: repr(value)[:40] if isinstance(value, Kernel) else "",
)
def test_kernels_without_explicit_features_say_so(kernel: Kernel, X: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kernel.explicit_features(X)


def test_words_need_their_numbers_before_features_share_columns() -> None:
    columns = Signature(2).explicit_features(SERIES).columns
    with pytest.raises(ValueError, match="resolve"):
        Signature(2).explicit_features(SERIES, columns)


# -- bad input, through learners --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "X", "strange"),
    [
        (Spectrum(2), WORDS, ["", "a", "xyz"]),
        (Mismatch(2, 1), WORDS, ["", "a", "xyz"]),
        (Subsequence(2), WORDS, ["", "a", "xyz"]),
        (Edit(0.1), WORDS, ["xyz" * 90]),
        (Delta(), LABELS, ["z"]),
        (WeisfeilerLehman(2), GRAPHS, [Graph(), Graph([(0, 1)]), Graph(node_labels=["Xe"])]),
        (ShortestPath(), GRAPHS, [Graph(), Graph([(0, 1)]), Graph(node_labels=["Xe"])]),
        (RandomWalk(0.05), GRAPHS, [Graph(), Graph([(0, 1)]), Graph(node_labels=["Xe"])]),
        (VertexHistogram(), GRAPHS, [Graph(), Graph([(0, 1)]), Graph(node_labels=["Xe"])]),
        (Columns({"word": Spectrum(1)}), RECORDS, [{"word": ""}, {"word": "xyz"}]),
        (MeanMap(Spectrum(1)), [[word] for word in WORDS], [["", "xyz"]]),
    ],
    ids=lambda value: repr(value)[:40] if isinstance(value, Kernel) else "",
)
def test_what_shares_nothing_with_the_training_data_is_predicted_as_zero(kernel: Kernel, X: Any, strange: Any) -> None:
    model = OperatorRidge(kernel, alpha=0.1, fit_intercept=False).fit(X, 1.0 + np.arange(len(X)))
    np.testing.assert_allclose(model.predict(strange), 0.0, atol=1e-12)
    assert np.abs(model.predict(X)).max() > 0.1


@pytest.mark.parametrize(
    ("kernel", "X", "bad", "message"),
    [
        (Spectrum(2), WORDS, ["ab", 3, None], "positions 1, 2"),
        (Edit(1.0), WORDS, ["ab", ("a", "b")], "different kinds"),
        (Subsequence(2), WORDS, [["a", np.nan]], "not equal to itself"),
        (WeisfeilerLehman(2), GRAPHS, [GRAPHS[0], "CCO"], "got str at position 1"),
        (RandomWalk(0.05), GRAPHS, [None, GRAPHS[0]], "NoneType at position 0"),
        (MeanMap(Gaussian(1.0)), BAGS, [BAGS[0], np.empty((0, 2))], "Bag 1 is empty"),
        (Match(Linear()), BAGS[:2], [BAGS[0], "a string"], "Bag 1 must be an array"),
        (MeanMap(Gaussian(1.0)), BAGS, [[[np.nan, 1.0]]], "NaN"),
        (
            Functional(Gaussian(1.0), domain="objects"),
            CURVES,
            [([0, 1], [0, np.nan])],
            "Curve 0 contains NaN",
        ),
        (Functional(Gaussian(1.0), domain="objects"), CURVES, [CURVES[0], 3.0], "Curve 1 is not a pair"),
        (GlobalAlignment(1.0), SERIES, [[0.0, np.nan]], "Series 0 contains NaN"),
        (Signature(2, scale=1.0), SERIES, [[0.0, 1.0], "up and down"], "Series 1 is not an array"),
        (Columns({"word": Spectrum(1)}), RECORDS, [{"word": None}], "no value in row"),
        (Columns({"word": Spectrum(1)}), RECORDS, [{"size": 1}], "no column 'word'"),
    ],
    ids=lambda value: repr(value)[:40] if isinstance(value, Kernel) else "",
)
def test_what_cannot_be_compared_is_named(kernel: Kernel, X: Any, bad: Any, message: str) -> None:
    model = OperatorRidge(kernel, alpha=0.1, fit_intercept=False).fit(X, np.arange(len(X)))
    for call in (lambda: model.predict(bad), lambda: clone(model).fit(bad, np.zeros(len(bad)))):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize(
    ("kernel", "X", "one"),
    [
        (Spectrum(1), WORDS, "abc"),
        (Spectrum(1), [word.encode() for word in WORDS], b"abc"),
        (Callable(lambda x, y: float(x == y)), WORDS, "abc"),
        (Delta(), LABELS, "abc"),
        (WeisfeilerLehman(1), GRAPHS, GRAPHS[0]),
        (Columns({"word": Spectrum(1)}), RECORDS, "abc"),
        (MeanMap(Gaussian(1.0)), BAGS, 5.0),
        (Spectrum(1), WORDS, {"a": "b"}),
    ],
    ids=lambda value: repr(value)[:40] if isinstance(value, Kernel) else "",
)
def test_one_object_is_no_collection_of_objects(kernel: Kernel, X: Any, one: Any) -> None:
    model = OperatorRidge(kernel, alpha=0.1, fit_intercept=False).fit(X, np.arange(len(X)))
    message = f"Expected a list with one object for each sample; got one {type(one).__name__}"
    for call in (lambda: model.predict(one), lambda: clone(model).fit(one, np.zeros(3))):
        with pytest.raises(ValueError, match=message):
            call()


def test_one_record_is_no_dictionary_of_columns() -> None:
    model = OperatorRidge(Columns({"word": Spectrum(1)}), alpha=0.1, fit_intercept=False).fit(RECORDS, N_OF_A)
    with pytest.raises(ValueError, match="Put a single record in a list"):
        model.predict(RECORDS[0])
    np.testing.assert_array_equal(model.predict({"word": WORDS}), model.predict(RECORDS))


def test_one_graph_of_other_libraries_is_no_collection() -> None:
    model = OperatorRidge(WeisfeilerLehman(1), alpha=0.1, fit_intercept=False).fit(GRAPHS, np.arange(len(GRAPHS)))
    with pytest.raises(ValueError, match="got one Graph"):
        model.predict(pytest.importorskip("networkx").path_graph(3))
    with pytest.raises(ValueError, match="got one Mol"):
        model.predict(pytest.importorskip("rdkit.Chem").MolFromSmiles("CCO"))


@pytest.mark.parametrize(
    ("kernel", "X"),
    [
        (Spectrum(1), WORDS),
        (WeisfeilerLehman(1), GRAPHS),
        (RandomWalk(0.05), GRAPHS),
        (MeanMap(Gaussian(1.0)), BAGS),
        (MeanMap(Spectrum(1)), [([word], [2.0]) for word in WORDS]),
        (GlobalAlignment(1.0), SERIES),
        (Signature(2, scale=1.0), SERIES),
        (Functional(Gaussian(1.0), domain="objects"), CURVES),
        (Callable(lambda x, y: float(len(x) == len(y))), WORDS),
    ],
    ids=lambda value: repr(value)[:40] if isinstance(value, Kernel) else "",
)
def test_a_frame_of_one_column_is_that_column(kernel: Kernel, X: Any) -> None:
    pandas = pytest.importorskip("pandas")
    column = np.empty(len(X), dtype=object)
    column[:] = [*X]
    frame = pandas.DataFrame({"object": column})
    y = np.arange(len(X))
    model = OperatorRidge(kernel, alpha=0.1, fit_intercept=False)
    expected = clone(model).fit(X, y).predict(X)
    np.testing.assert_array_equal(model.fit(frame, y).predict(frame), expected)
    np.testing.assert_array_equal(model.predict([*frame["object"]]), expected)
    torch.testing.assert_close(kernel.resolve(X)(frame), kernel.resolve(X)(X))


def test_the_kind_of_new_strings_is_compared_with_that_of_the_training_strings() -> None:
    model = OperatorRidge(Spectrum(1), alpha=0.1, fit_intercept=False).fit(WORDS, N_OF_A)
    with pytest.raises(ValueError, match=r"\(in learners, the training data\).*different kinds, bytes and str"):
        model.predict([b"abc"])
    with pytest.raises(ValueError, match=r"^Curves \[1\] have no times"):
        OperatorRidge(Functional(Linear(), domain="objects"), alpha=0.1, fit_intercept=False).fit(
            CURVES, range(8)
        ).predict([CURVES[0], ([2.0, 3.0], [0.0, 1.0])])


def test_pairs_where_rows_are_expected() -> None:
    with pytest.raises(ValueError, match=r"X is no array of numbers.*domain='objects'"):
        OperatorRidge(Functional(Gaussian(1.0)), fit_intercept=False).fit(CURVES, np.arange(len(CURVES)))


def test_nan_in_rows_of_curves_is_named() -> None:
    with pytest.raises(ValueError, match="contains NaN"):
        OperatorRidge(Functional(Gaussian(1.0)), fit_intercept=False).fit([[0.0, np.nan], [0.0, 1.0]], [0.0, 1.0])
