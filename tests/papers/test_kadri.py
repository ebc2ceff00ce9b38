"""The experiments on structured outputs: small forms of them run, and what they measure is what they say."""

from __future__ import annotations

import io
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console
from sklearn.linear_model import Ridge, RidgeCV

from benchmarks.literal_structured import incomplete_cholesky, literal_scores
from papers import (
    EXPERIMENTS,
    reproduce,
    select,
)
from papers.claims import at_most, not_worse
from papers.kadri import faces, labels, operators, table2
from papers.kadri.margin import features, margin_chain
from papers.results import Measurements
from representer import OperatorRidge, StructuredPredictor
from representer.kernels import Gaussian, Positionwise
from representer.operators import Patchwise, square_patches
from representer.preimage import markov_scores, viterbi


def silent() -> Console:
    return Console(file=io.StringIO(), width=150)


def test_operators_on_one_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "SIZES", (15, 80))
    monkeypatch.setattr(operators, "WIDTHS", (1.0,))
    names = dict(list(operators.CASES.items())[1:3])
    monkeypatch.setattr(operators, "CASES", names)
    outcome = reproduce(["kadri-operators"], tmp_path, quick=True, console=silent()).outcomes["kadri-operators"]
    assert outcome.status == "finished", outcome.reason
    found = outcome.measurements()
    assert len(found) == 2 * 5
    factors = operators.FACTORS
    errors = {m: found.mean(factors, m, operators.RELATIVE) for m in (table2.IDENTITY, table2.COVARIANCE)}
    assert errors[table2.COVARIANCE] < errors[table2.IDENTITY] < 1.0


def test_what_lacks_its_data_is_not_run(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    lacking = [experiment.name for experiment in select(["kadri"]) if experiment.data]
    assert {
        "kadri-usps",
        "kadri-ocr",
        "kadri-faces",
        "kadri-figure2",
        "kadri-bibtex",
        "kadri-metabolites",
    } <= set(lacking)
    results = reproduce(lacking, tmp_path / "out", quick=True, data=empty, console=silent())
    for name in lacking:
        (source, *_) = next(e for e in EXPERIMENTS if e.name == name).data
        assert results.outcomes[name].verdict == "not run" and source.file in results.outcomes[name].reason


def test_claims_against_a_number_and_with_one_repeat() -> None:
    found = Measurements({("c", "a"): {"m": [1.0]}, ("c", "b"): {"m": [2.0]}})
    assert at_most("", "m", "c", "a", 1.0).judge(found)[0] == "reached"
    assert at_most("", "m", "c", "b", 1.9).judge(found) == ("not reached", "2 against 1.9")
    assert not_worse("", "m", "c", "a", ["b"]).judge(found)[0] == "reached"
    assert not_worse("", "m", "c", "b", ["a"]).judge(found)[0] == "not reached"


# --- digits and words ------------------------------------------------------------------------------------------------
def test_the_loss_of_halves() -> None:
    rng = np.random.default_rng(0)
    Y, Z = rng.normal(size=(2, 6, 4))
    kernel = Gaussian(12.0)
    expected = np.mean([(kernel([y]) + kernel([z]) - 2.0 * kernel([y], [z])).item() for y, z in zip(Y, Z, strict=True)])
    assert table2.rbf_loss(Y, Z) == pytest.approx(expected, abs=1e-12)


def test_digit_results_on_a_few() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    halves = X[:20], np.sin(X[:20]), X[20:], np.sin(X[20:])
    learned = table2.digit_result(None, halves, 0)[table2.LOSS]
    by_chance = table2.simple_digit_result(table2.RANDOM, halves, 0)[table2.LOSS]
    nearest = table2.simple_digit_result(table2.NEIGHBOUR, halves, 0)[table2.LOSS]
    assert learned < by_chance and nearest < by_chance
    assert set(table2.published_digit_result(table2.CONDITIONAL, halves)) == {table2.LOSS, table2.LOSS_10}


def words(n: int, seed: int = 0) -> SimpleNamespace:
    """Words of the letters a, b, c with pictures that tell them apart, as the loader gives them."""
    rng = np.random.default_rng(seed)
    spelled = [rng.integers(0, 3, rng.integers(2, 5)) for _ in range(n)]
    letters = np.concatenate(spelled)
    data = np.zeros((len(letters), 128))
    data[np.arange(len(letters)), 40 * letters] = 5.0
    data += 0.1 * rng.standard_normal(data.shape)
    names = np.array(["".join("abc"[i] for i in word) for word in spelled])
    return SimpleNamespace(
        data=data, target=letters, target_names=names, word=np.repeat(np.arange(n), list(map(len, spelled)))
    )


def test_words_are_represented_as_in_the_paper() -> None:
    bunch = words(8)
    pictures = np.split(bunch.data, np.flatnonzero(np.diff(bunch.word)) + 1)
    training, new = pictures[:5], pictures[5:]
    anchors = [(word[j], j) for word in training for j in range(len(word))]

    def feature(word: np.ndarray) -> np.ndarray:
        return np.array([table2.LETTER_KERNEL([c], [word[j]]).item() if j < len(word) else 0.0 for c, j in anchors])

    gram = Positionwise(table2.LETTER_KERNEL, "data").resolve(training)(new, training).numpy()
    expected = np.array([[feature(a) @ feature(b) for b in training] for a in new])
    np.testing.assert_allclose(gram, expected, rtol=1e-10)


def test_easy_words_are_read_by_a_max_margin_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table2, "PASSES", 5)
    assert table2.margin_result(words(40), np.arange(30), np.arange(30, 40))[table2.ERROR] < 5.0


@pytest.mark.parametrize("alpha", [None, 0.01])
def test_easy_words_are_read(alpha: float | None) -> None:
    bunch = words(60)
    train, test = np.arange(40), np.arange(40, 60)
    assert table2.word_result(table2.COVARIANCE, alpha, bunch, train, test)[table2.ERROR] < 15.0
    rows = [np.flatnonzero(np.isin(bunch.word, part)) for part in (train, test)]
    result = table2.letter_result(bunch, *rows)
    assert result[table2.ERROR] == result[table2.CHAIN_ERROR] == 0.0


def test_viterbi_against_all_paths() -> None:
    rng = np.random.default_rng(0)
    scores, transitions = rng.normal(size=(4, 3, 3)), rng.normal(size=(4, 4))
    found = viterbi(scores, transitions)
    for own, path in zip(scores, found, strict=True):
        totals = {
            p: own[range(3), list(p)].sum() + sum(transitions[a, b] for a, b in zip((3, *p), (*p, 3), strict=True))
            for p in product(range(3), repeat=3)
        }
        assert tuple(path) == max(totals, key=totals.__getitem__)
    np.testing.assert_allclose(np.exp(markov_scores([[0, 1, 1]], 2)).sum(1), 1.0)


def test_the_max_margin_chain_minimises_its_objective() -> None:
    """Against the maximum over all paths: the gap between the primal objective and the dual one closes."""
    rng = np.random.default_rng(0)
    paths = [rng.integers(0, 3, 3) for _ in range(8)]
    words = [np.eye(3)[path] + 0.3 * rng.standard_normal((3, 3)) for path in paths]
    decay = 0.1
    chain, gap = margin_chain(words, paths, 3, decay, passes=60)
    w = np.concatenate([chain.symbols.ravel(), chain.transitions.ravel()])

    def objective(w: np.ndarray) -> float:
        losses = [
            max((path != p).mean() - w @ (features(word, path, 3) - features(word, p, 3)) for p in every)
            for word, path in zip(words, paths, strict=True)
        ]
        return 0.5 * decay * float(w @ w) + float(np.mean(losses))

    every = [np.array(p) for p in product(range(3), repeat=3)]
    assert 0 <= gap < 1e-2
    for _ in range(20):
        assert objective(w + 0.1 * rng.standard_normal(w.shape)) > objective(w) - gap


# --- faces -----------------------------------------------------------------------------------------------------------
def test_the_joint_kernel_of_patches_is_a_ridge_regression_with_a_diagonal_operator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Against the dense system of n·p unknowns, with one width and the alpha that leave-one-out has chosen."""
    rng = np.random.default_rng(0)
    n, side = 4, 12
    X, Y, new, truth = rng.random((4, n, side * side))
    monkeypatch.setattr(faces, "PATCH_WIDTHS", (2.0,))
    measured = faces.joint_result((X, Y, new, truth))[faces.MSE]
    pixels, windows = side * side, square_patches(side, side, faces.PATCH, faces.PATCH - faces.OVERLAP)
    assert len(windows) == 4 and all(len(w) == 64 for w in windows)
    kernel = Patchwise(Gaussian(2.0), windows)
    alpha = OperatorRidge(kernel, alpha=faces.ALPHAS, fit_intercept=False).fit(X, Y - Y.mean(0)).alpha_

    def operator(x: np.ndarray, z: np.ndarray) -> np.ndarray:
        diagonal = np.zeros(pixels)
        for w in windows:
            diagonal[w] += np.exp(-((x[w] - z[w]) ** 2).sum() / 8.0)
        return np.diag(diagonal)

    mean = Y.mean(0)
    K = np.block([[operator(x, z) for z in X] for x in X])
    c = np.linalg.solve(K + n * alpha * np.eye(n * pixels), (Y - mean).ravel()).reshape(n, pixels)
    predicted = np.array([sum(operator(x, z) @ ci for z, ci in zip(X, c, strict=True)) for x in new]) + mean
    assert measured == pytest.approx(((truth - predicted) ** 2).mean(), rel=1e-10)


def test_pairs_of_views() -> None:
    poses = np.random.default_rng(0).uniform(-1.7, 1.7, (300, 3))
    turned, front = faces.one_to_one(poses, 20)
    assert len(set(turned)) == len(set(front)) == 20
    assert (np.abs(poses[front, 1]) < 0.3).all() and (poses[turned, 1] > 0.7).all()
    assert np.linalg.norm(poses[turned][:, [0, 2]] - poses[front][:, [0, 2]], axis=1).max() < 1.0
    many, targets = faces.many_to_one(poses)
    assert len(many) == len(targets) == (np.abs(poses[:, 1]) > 0.5).sum()


# --- sets of labels --------------------------------------------------------------------------------------------------
def test_label_methods_on_a_few() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 4))
    Y = (np.column_stack([X[:, 0], X[:, 0] + X[:, 1], X[:, 2]]) + 0.2 * rng.normal(size=(120, 3)) > 0).astype(int)
    Y = np.column_stack([Y, np.zeros(120, dtype=int)])  # a label that nobody has
    split = labels.Split((Gaussian(2.0),), X[:80], X[80:], X[:80], X[80:], Y[:80], Y[80:])
    for result in (
        labels.regression_result("covariance", split),
        labels.ridge_result(split),
        labels.chain_result(split),
    ):
        assert result[labels.HAMMING] < 0.15
        assert result[labels.MICRO] < 0.3 and result[labels.EACH] < 0.3
    assert labels.nearest_set_result(split)[labels.HAMMING] < 0.15


def test_thresholds_are_those_of_label_sets() -> None:
    """The rule of the rivals gives the answers of the decoder, which has the same held-out values."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 3))
    Y = (X @ rng.normal(size=(3, 4)) + 0.5 * rng.normal(size=(90, 4)) > 0.8).astype(int)
    split = labels.Split((Gaussian(2.0),), X[:60], X[60:], X[:60], X[60:], Y[:60], Y[60:])
    model = StructuredPredictor(Gaussian(2.0), "linear", fit_intercept=True, decoder="direct").fit(X[:60], Y[:60])
    held_out = model.decoder_.decode(model.function_.element(model.system_.left_out()))
    answers = labels.above_thresholds(held_out, Y[:60], model.predict(X[60:]))
    assert labels.regression_result(None, split) == labels.measures(Y[60:], answers)


def test_independent_ridge_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    X, Y, new = rng.normal(size=(30, 4)), rng.normal(size=(30, 3)), rng.normal(size=(6, 4))
    Y[:, 0] += X[:, 0]
    reference = RidgeCV(np.geomspace(1e-3, 1e3, 13), alpha_per_target=True).fit(X, Y)
    values, held_out = labels.independent_ridge(X, Y, new)
    np.testing.assert_allclose(values, reference.predict(new), atol=1e-8)
    for j, alpha in enumerate(reference.alpha_):
        rows = np.arange(1, 30)
        refit = Ridge(alpha).fit(X[rows], Y[rows, j])
        assert held_out[0, j] == pytest.approx(refit.predict(X[:1])[0], abs=1e-8)


# --- formula (15) ----------------------------------------------------------------------------------------------------
def test_the_literal_formula_is_exact_with_all_columns() -> None:
    rng = np.random.default_rng(0)
    n, lam = 12, 0.05
    X, Y, new = rng.normal(size=(n, 2)), rng.normal(size=(n, 2)), rng.normal(size=(5, 2))
    kernel = Gaussian(1.0)
    k, L, k_new = kernel(X).numpy(), kernel(Y).numpy(), kernel(new, X).numpy()
    system = np.kron(k, L) + n * lam * np.eye(n * n)
    C = np.linalg.solve(system, np.eye(n).ravel(order="F")).reshape(n, n, order="F")
    dense = 2.0 * (L @ L @ C @ k_new.T).T  # equation (8)
    np.testing.assert_allclose(literal_scores(k, L, k_new, L, lam, n), dense, rtol=1e-8, atol=1e-10)
    model = StructuredPredictor(kernel, kernel, "covariance", alpha=lam / n).fit(X, Y)
    np.testing.assert_allclose(model.score_candidates(new, Y) + 1.0, dense, rtol=1e-8, atol=1e-10)
    factor = incomplete_cholesky(k, n)
    np.testing.assert_allclose(factor @ factor.T, k, atol=1e-10)
