"""Ridge regression on features: sums over blocks, conjugate gradients, batches; against the exact fit and loops."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from operator_cases import WORDS
from peak_memory import PeakMemory
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from representer import DeepKernelRegressor, EmbeddingClassifier, KernelFeatures, OperatorRidge
from representer.approximation import (
    Falkon,
    Landmarks,
    Nystroem,
    RandomFeatures,
    TensorSketch,
    approximation_error,
)
from representer.estimators.validation import seed_of
from representer.kernels import Gaussian, Laplacian, Linear, Matern, Polynomial, RationalQuadratic, Spectrum
from representer.linalg.resources import as_bytes
from representer.operators import Covariance, CurlFree, Dense, Diagonal
from representer.samples import Block, HeldSamples, InMemory
from representer.samples import rows as limits
from representer.samples.rows import sample_rows
from representer.systems import ridge as systems_ridge
from representer.systems.falkon import solve_falkon
from representer.systems.ridge import FalkonSystem, SummedSystem
from representer.systems.sums import CentredFeatures, Frame, NormalRidge, NormalStep, SeparateStep, frame_of

OPERATORS: Any = [None, Diagonal([1.0, 0.5, 0.0]), Dense(np.eye(3) + 0.5)]


@pytest.fixture
def data(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X = rng.normal(size=(200, 3))
    Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2], np.cos(X[:, 1])])
    return X, Y + 0.1 * rng.normal(size=Y.shape), rng.uniform(0.2, 2.0, size=200)


# -- the exact fit ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("operator", OPERATORS, ids=repr)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("alpha", "criterion"), [(0.02, "loo"), ("auto", "loo"), ("auto", "gcv")])
def test_all_samples_as_landmarks_are_exact(data, operator, weighted, alpha, criterion):
    X, Y, w = data
    X, Y, w = X[:80], Y[:80], w[:80] if weighted else None
    options: Any = {"alpha": alpha, "criterion": criterion, "random_state": 0, "fit_intercept": False}
    exact = OperatorRidge(Gaussian(1.0), operator, **options).fit(X, Y, w)
    model = OperatorRidge(Gaussian(1.0), operator, approximation=Nystroem(80), **options).fit(X, Y, w)
    assert model.alpha_ == pytest.approx(exact.alpha_, rel=1e-6)
    for a, b in zip(model.predict(X + 0.1, True), exact.predict(X + 0.1, True), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    np.testing.assert_allclose(model.loo_predict_, exact.loo_predict_, atol=1e-6)
    if alpha == "auto":
        assert model.criterion_value_ == pytest.approx(exact.criterion_value_, rel=1e-6)
    assert model.approximation_error_ < 1e-6


@pytest.mark.parametrize("approximation", [Nystroem(30), RandomFeatures(50), Landmarks(np.eye(3))], ids=repr)
def test_is_ridge_regression_on_the_features(data, approximation):
    X, Y, w = data
    model = OperatorRidge(
        Gaussian(1.0), alpha=0.01, approximation=approximation, random_state=0, fit_intercept=False
    ).fit(X, Y, w)
    features = KernelFeatures(Gaussian(1.0), approximation, random_state=0)
    linear = Ridge(alpha=0.01 * w.sum(), fit_intercept=False)
    theirs = make_pipeline(features, linear).fit(X, Y, ridge__sample_weight=w)
    np.testing.assert_allclose(model.predict(X), theirs.predict(X), rtol=1e-7, atol=1e-8)


def test_leave_one_out_is_a_loop(data):
    X, Y, w = (a[:25] for a in data)
    points = Landmarks(data[0][100:110])
    model = OperatorRidge(
        Gaussian(1.0), Dense(np.eye(3) + 0.5), alpha=0.02, approximation=points, fit_intercept=False
    ).fit(X, Y, w)
    for i in range(25):
        rest = np.delete(np.arange(25), i)
        shift = 0.02 * w.sum() / w[rest].sum()  # without i the ridge stays what it was
        left = clone(model).set_params(alpha=shift).fit(X[rest], Y[rest], w[rest])
        np.testing.assert_allclose(model.loo_predict_[i], left.predict(X[i : i + 1])[0], atol=1e-9)


def test_generalised_cross_validation_is_its_formula(data):
    X, Y, _ = data
    features = Nystroem(20).features(Gaussian(1.0), X, seed=0)
    tensors = Block(torch.from_numpy(X), torch.from_numpy(Y))
    for intercept in (False, True):
        ridge = NormalRidge(InMemory(tensors).total(NormalStep(features)), torch.ones(3).double(), intercept=intercept)
        B = features(X)
        alpha, n = 0.03, len(X)
        centre = torch.eye(n, dtype=torch.float64) - (1.0 / n if intercept else 0.0)
        C = centre @ B
        H = C @ torch.linalg.solve(C.T @ C + n * alpha * torch.eye(20).double(), C.T) + (torch.eye(n).double() - centre)
        expected = ((tensors.Y - H @ tensors.Y) ** 2).sum() / n / (1 - H.trace() / n) ** 2
        assert ridge.generalised(torch.tensor([alpha]).double()).item() == pytest.approx(expected.item())
        theta = ridge.coefficients(alpha)
        fitted = B @ theta + ridge.intercepts(theta)
        torch.testing.assert_close(fitted, H @ tensors.Y, rtol=1e-8, atol=1e-8)


def test_a_direction_may_stand_alone_in_the_sums(data):
    """The same function, errors and variances from ψ = Tᵀ(φ − a) as from φ, at an alpha where both have all digits."""
    X, Y, w = (torch.from_numpy(part) for part in data)
    features = Nystroem(20).features(Gaussian(3.0), X, seed=0)
    frame = frame_of(features, X)
    assert frame.direction is not None and frame.direction[frame.place] == 1.0
    seen, block = CentredFeatures(features, frame), Block(X, Y, w)
    ones, alphas = torch.ones(Y.shape[1]).double(), torch.tensor([1e-4, 1e-2]).double()
    sums = [InMemory(block).total(NormalStep(each)) for each in (features, seen)]
    one = NormalRidge(sums[0], ones, intercept=True)
    two = NormalRidge(sums[1], ones, intercept=True, frame=frame)
    for spectral in (False, True):
        if spectral:
            values = [r.leave_one_out(r.coordinates(f(X)), block, alphas) for r, f in ((one, features), (two, seen))]
            torch.testing.assert_close(values[1], values[0], rtol=1e-8, atol=0)
        theta = one.coefficients(1e-3)
        torch.testing.assert_close(two.coefficients(1e-3), theta, rtol=1e-7, atol=1e-7)
        torch.testing.assert_close(two.intercepts(theta), one.intercepts(theta), rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(two.variance(seen(X), 1e-3), one.variance(features(X), 1e-3), rtol=1e-7, atol=0)
        for a, b in zip(two.left_out_at(seen(X), block, 1e-3), one.left_out_at(features(X), block, 1e-3), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)
    narrow = Nystroem(20).features(Gaussian(0.05), X, seed=0)
    assert frame_of(narrow, X).direction is None  # nothing there is nearly constant
    assert isinstance(frame.map(lambda array: array.numpy()), Frame)


# -- blocks -----------------------------------------------------------------------------------------------------------
def test_blocks_of_any_size_give_the_same(data):
    X, Y, w = data
    model = OperatorRidge(Gaussian(1.0), approximation=Nystroem(30), random_state=0, fit_intercept=False)
    whole = clone(model).fit(X, Y, w).predict(X)
    # 30 features: 5 · 8 · 30² of sums, 8 · 3² of squared targets, 8 · 30 for each row that is left out, and
    # 8 · 3 · 30 for each row of a block.
    limit = 8 * (5 * 900 + 2 * 90 + 9 + len(X) * 30) + 64 * 720
    small = clone(model).set_params(memory_limit=limit).fit(X, Y, w)
    np.testing.assert_allclose(small.predict(X), whole, atol=1e-9)


def test_no_matrix_of_all_samples_exists(rng, monkeypatch):
    sizes: list[int] = []
    original = Gaussian._gram

    def watched(self: Any, X: Any, Y: Any) -> Any:
        gram = original(self, X, Y)
        sizes.append(gram.numel())
        return gram

    monkeypatch.setattr(Gaussian, "_gram", watched)
    X = rng.normal(size=(5000, 2))
    limit = 8 * (5 * 400 + 40) + 100 * 3 * 8 * 20  # alpha is given: no sample is left out
    model = OperatorRidge(
        Gaussian(1.0), alpha=0.1, approximation=Nystroem(20), memory_limit=limit, random_state=0, fit_intercept=False
    )
    monkeypatch.setattr(systems_ridge, "approximation_error", lambda features, X: 0.0)
    model.fit(X, X[:, 0])
    assert max(sizes) <= 100 * 20 + 20 * 20


def test_memory_limits(data):
    X, Y, _ = data
    assert (as_bytes("1.5 gb"), as_bytes(10), as_bytes(None)) == (1_500_000_000, 10, None)
    for wrong in ("much", "-1GB", 0, -5, True, [1]):
        with pytest.raises(ValueError, match="memory_limit must be a positive number of bytes"):
            OperatorRidge("rbf", approximation=Nystroem(5), memory_limit=wrong, fit_intercept=False).fit(X, Y)
    with pytest.raises(MemoryError, match="leaves no room for a fit with 100 features"):
        OperatorRidge("rbf", approximation=Nystroem(100), memory_limit="50KB", fit_intercept=False).fit(X, Y)
    with pytest.raises(MemoryError, match="leaves no room for a fit with 100 features"):
        OperatorRidge(
            "rbf", approximation=Nystroem(100), alpha=0.1, solver="cg", memory_limit="50KB", fit_intercept=False
        ).fit(X, Y)


# Both take 1.06 of a limit: some temporaries of blocks are not in its account.
@pytest.mark.slow
@pytest.mark.parametrize("solver", ["direct", "cg"])
@pytest.mark.filterwarnings("ignore")
def test_a_memory_limit_bounds_the_peak(solver):
    X = np.random.default_rng(0).normal(size=(6000, 5))
    options = {"memory_limit": 10**8, "solver": solver, "random_state": 0}
    with PeakMemory() as memory:
        OperatorRidge(Gaussian(2.0), approximation=Nystroem(1000), **options).fit(X, X[:, 0])
    assert memory.peak < 1.2 * 10**8


def test_single_precision_blocks_are_summed_in_double(data):
    X, Y, _ = data
    options: Any = {"alpha": 0.01, "approximation": Nystroem(30), "random_state": 0}
    double = OperatorRidge(Gaussian(1.0), **options).fit(X, Y)
    single = OperatorRidge(Gaussian(1.0), dtype="float32", **options).fit(X, Y)
    assert single.dual_coef_.dtype == np.float32 and single.system_.sums.gram.dtype == np.float64
    np.testing.assert_allclose(single.predict(X), double.predict(X), atol=2e-3)


def test_leave_one_out_on_a_sample_of_large_data(data, monkeypatch):
    X, Y, _ = data
    model = OperatorRidge(Gaussian(1.0), approximation=Nystroem(30), random_state=0, fit_intercept=False)
    whole = clone(model).fit(X, Y)
    monkeypatch.setattr(limits, "HELD_ROWS", 50)
    some = clone(model).fit(X, Y)
    held = sample_rows(200, 50, seed_of(0))
    expected = np.sum((Y - some.loo_predict_)[held] ** 2) / 50
    assert some.criterion_value_ == pytest.approx(expected)
    assert 0.3 < some.alpha_ / whole.alpha_ < 3.0


# -- conjugate gradients ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("operator", OPERATORS, ids=repr)
@pytest.mark.parametrize("approximation", [Nystroem(60), Nystroem(40, "kmeans"), RandomFeatures(40)], ids=repr)
def test_conjugate_gradients_equal_the_direct_solve(data, operator, approximation):
    X, Y, w = data
    options: Any = {"alpha": 1e-3, "approximation": approximation, "random_state": 0}
    direct = OperatorRidge(Gaussian(1.0), operator, solver="direct", **options).fit(X, Y, w)
    iterative = OperatorRidge(Gaussian(1.0), operator, solver=Falkon(tol=1e-11), **options).fit(X, Y, w)
    np.testing.assert_allclose(iterative.predict(X), direct.predict(X), atol=1e-6)


def test_the_preconditioner_saves_iterations(data, monkeypatch):
    X, Y, _ = data
    passes: list[int] = []
    total = InMemory.total

    def without(settings: Any, features: Any, source: Any, standing: Any, **options: Any) -> Any:
        return solve_falkon(settings, features, source, 0.0 * standing, **options)

    monkeypatch.setattr(InMemory, "total", lambda *a, **o: passes.append(1) or total(*a, **o))
    options: Any = {"alpha": 1e-4, "approximation": Nystroem(100), "random_state": 0, "fit_intercept": False}
    model = OperatorRidge(Gaussian(0.7), solver=Falkon(1e-6, max_iter=1000), **options)
    model.fit(X, Y)
    few = len(passes)
    monkeypatch.setattr("representer.systems.ridge.solve_falkon", without)
    model.fit(X, Y)
    assert len(passes) - few > 3 * few


def test_alpha_with_conjugate_gradients_comes_from_fewer_landmarks(data, monkeypatch):
    X, Y, _ = data
    monkeypatch.setattr(limits, "PILOT_LANDMARKS", 40)
    direct = OperatorRidge(Gaussian(1.0), approximation=Nystroem(60), random_state=0, fit_intercept=False).fit(X, Y)
    model = OperatorRidge(
        Gaussian(1.0), approximation=Nystroem(60), random_state=0, solver="cg", fit_intercept=False
    ).fit(X, Y)
    assert 0.1 < model.alpha_ / direct.alpha_ < 10
    assert model.criterion_value_ is not None
    with pytest.raises(ValueError, match=r"this fit went by conjugate gradients\. Use solver='direct'"):
        model.predict(X, return_std=True)


def test_many_landmarks_go_by_conjugate_gradients(data, monkeypatch):
    X, Y, _ = data
    monkeypatch.setattr(limits, "DIRECT_LIMIT", 30)
    options: Any = {"alpha": 1e-3, "random_state": 0}
    for m, kind in ((30, SummedSystem), (31, FalkonSystem)):
        model = OperatorRidge(Gaussian(1.0), approximation=Nystroem(m), **options).fit(X, Y)
        assert isinstance(model.system_, kind)


def test_too_few_iterations_are_announced(data):
    X, Y, _ = data
    model = OperatorRidge(
        Gaussian(1.0),
        alpha=1e-6,
        approximation=Nystroem(60),
        solver=Falkon(1e-12, max_iter=2),
        random_state=0,
        fit_intercept=False,
    )
    with pytest.warns(ConvergenceWarning, match=r"have not reached Falkon.* after 2 iterations"):
        model.fit(X, Y)
    assert eval(repr(model.solver)) == clone(model).solver == Falkon(1e-12, 2)


@pytest.mark.parametrize("approximation", [Nystroem(60), RandomFeatures(40)], ids=repr)
@pytest.mark.parametrize("operator", OPERATORS, ids=repr)
def test_every_solver_has_an_intercept(data, operator, approximation):
    """Ridge regression with a constant at no cost, by sums, by conjugate gradients, and exactly."""
    X, Y, w = data
    options: Any = {"alpha": 1e-3, "approximation": approximation, "random_state": 0, "fit_intercept": True}
    direct = OperatorRidge(Gaussian(1.0), operator, **options).fit(X, Y + 5.0, w)
    features = KernelFeatures(Gaussian(1.0), approximation, random_state=0).fit(X)
    B = features.transform(X)
    A = np.eye(3) if operator is None else operator.as_matrix(3, torch.zeros(1).double()).numpy()
    values, V = np.linalg.eigh(A)
    expected = np.zeros_like(Y)
    for a, v in zip(values.clip(0.0), V.T, strict=True):
        linear = Ridge(alpha=1e-3 * w.sum()).fit(np.sqrt(a) * B, (Y + 5.0) @ v, sample_weight=w)
        expected += np.outer(linear.predict(np.sqrt(a) * B), v)
    np.testing.assert_allclose(direct.predict(X), expected, atol=1e-7)
    iterative = clone(direct).set_params(solver=Falkon(tol=1e-12)).fit(X, Y + 5.0, w)
    np.testing.assert_allclose(iterative.predict(X), expected, atol=1e-6)
    assert iterative.system_.residual() < 1e-8 and direct.system_.residual() < 1e-10


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("missing", [False, True])
def test_groups_by_sums_equal_refits(data, intercept, missing):
    X, Y, w = (a[:30] for a in data)
    if missing:
        Y = np.where(np.random.default_rng(0).random(Y.shape) < 0.2, np.nan, Y)
    groups = np.arange(30) // 4
    w = w.copy()
    w[3] = 0.0
    operator = Diagonal([1.0, 0.5, 2.0]) if missing else Dense(np.eye(3) + 0.5)
    points = Landmarks(data[0][100:110])
    options: Any = {"approximation": points, "fit_intercept": intercept}
    model = OperatorRidge(Gaussian(1.0), operator, alpha=0.02, **options).fit(X, Y, w, groups=groups)
    assert isinstance(model.system_, SummedSystem)
    for group in np.unique(groups):
        rest = groups != group
        alpha = 0.02 * w.sum() / w[rest].sum()  # without the group the ridge stays what it was
        left = clone(model).set_params(alpha=alpha).fit(X[rest], Y[rest], w[rest])
        np.testing.assert_allclose(model.loo_predict_[~rest], left.predict(X[~rest]), atol=1e-8)
    chosen = clone(model).set_params(alpha="auto").fit(X, Y, w, groups=groups)
    error = np.nansum(w[:, None] * (Y - chosen.loo_predict_) ** 2) / w.sum()
    assert chosen.criterion_value_ == pytest.approx(error)


# -- batches ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kernel", "approximation"),
    [
        (Gaussian(1.0), RandomFeatures(40)),
        (Gaussian(1.0), Landmarks(np.eye(3))),
        (Polynomial(2), TensorSketch(30)),
    ],
    ids=repr,
)
@pytest.mark.parametrize("criterion", ["loo", "gcv"])
def test_batches_equal_one_fit(data, kernel, approximation, criterion, monkeypatch):
    monkeypatch.setattr(limits, "HELD_ROWS", 70)  # so that batches compete for a place
    X, Y, w = data
    model = OperatorRidge(
        kernel,
        Dense(np.eye(3) + 0.5),
        approximation=approximation,
        criterion=criterion,
        random_state=0,
        fit_intercept=False,
    )
    whole, batches = clone(model).fit(X, Y, w), clone(model)
    for start in range(0, 200, 60):
        rows = slice(start, start + 60)
        batches.partial_fit(X[rows], Y[rows], w[rows])
    assert batches.n_samples_seen_ == 200
    assert batches.alpha_ == pytest.approx(whole.alpha_, rel=1e-9)
    for a, b in zip(batches.predict(X, True), whole.predict(X, True), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)
    again = pickle.loads(pickle.dumps(batches)).partial_fit(X, Y)
    assert again.n_samples_seen_ == 400
    with pytest.raises(ValueError, match="loo_predict_ needs the training samples"):
        batches.loo_predict_  # noqa: B018
    batches.fit(X[:50], Y[:50])  # forgets
    assert not hasattr(batches, "n_samples_seen_")


def test_batches_of_objects_and_sparse_rows():
    y = np.arange(len(WORDS), dtype=float)
    words = OperatorRidge(Spectrum(1), alpha=0.1, approximation=Landmarks(WORDS[:4]), fit_intercept=False)
    whole = clone(words).fit(WORDS, y)
    half = len(WORDS) // 2
    batches = clone(words).partial_fit(WORDS[:half], y[:half]).partial_fit(WORDS[half:], y[half:])
    np.testing.assert_allclose(batches.predict(WORDS), whole.predict(WORDS), atol=1e-9)
    bits = sparse.csr_array(np.random.default_rng(0).integers(0, 2, (40, 12)).astype(float))
    y = np.arange(40.0)
    model = OperatorRidge("tanimoto", approximation=Nystroem(8), random_state=0, fit_intercept=False)
    model.partial_fit(bits[:20], y[:20]).partial_fit(bits[20:], y[20:])
    assert np.isfinite(model.predict(bits)).all()


def test_bad_batches(data):
    X, Y, _ = data
    assert not hasattr(OperatorRidge("rbf", fit_intercept=False), "partial_fit")
    with pytest.raises(AttributeError, match="has no attribute 'partial_fit'") as error:
        OperatorRidge("rbf", fit_intercept=False).partial_fit(X, Y)
    assert "partial_fit needs approximation=" in str(error.value.__cause__)
    with pytest.raises(AttributeError, match="has no attribute 'partial_fit'"):
        OperatorRidge("rbf", approximation=Nystroem(5), solver="cg", fit_intercept=False).partial_fit(X, Y)
    model = OperatorRidge("rbf", approximation=Nystroem(5), random_state=0, fit_intercept=False).partial_fit(X, Y)
    with pytest.raises(ValueError, match="2 features"):
        model.partial_fit(X[:, :2], Y)
    with pytest.raises(ValueError, match="y has 2 outputs, but 3 before"):
        model.partial_fit(X, Y[:, :2])
    holes = Y.copy()
    holes[0, 0] = np.nan
    with pytest.raises(ValueError, match="partial_fit needs all targets"):
        model.partial_fit(X, holes)
    with pytest.raises(ValueError, match="y has 1 outputs, but 3 before"):
        model.partial_fit(X, Y[:, 0])
    assert model.n_samples_seen_ == 200 and model.predict(X).shape == Y.shape  # nothing has changed


# -- missing targets --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("operator", [None, Diagonal([1.0, 2.0, 0.5]), Dense(np.eye(3) + 0.4)], ids=repr)
def test_missing_targets_have_sums_of_their_own(rng, operator):
    X = rng.normal(size=(120, 2))
    Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] ** 2, X[:, 0] * X[:, 1]]) + 0.1 * rng.normal(size=(120, 3))
    holes, w, Q = (
        np.where(rng.random(Y.shape) < 0.3, np.nan, Y),
        rng.uniform(0.5, 2.0, 120),
        rng.normal(size=(9, 2)),
    )
    for criterion, alpha in (("loo", [1e-4, 1e-2]), ("gcv", [1e-4, 1e-2]), ("loo", 1e-3)):
        if criterion == "gcv" and isinstance(operator, Dense):
            continue  # refused: outputs are coupled
        options = {"operator": operator, "alpha": alpha, "criterion": criterion, "fit_intercept": False}
        exact = OperatorRidge(Gaussian(1.0), **options).fit(X, holes, w)
        found = OperatorRidge(Gaussian(1.0), approximation=Nystroem(120), random_state=0, **options).fit(X, holes, w)
        assert found.alpha_ == exact.alpha_
        if exact.criterion_value_ is not None:
            assert found.criterion_value_ == pytest.approx(exact.criterion_value_, rel=1e-6)
        for one, two in zip(found.predict(Q, True), exact.predict(Q, True), strict=True):
            np.testing.assert_allclose(one, two, atol=1e-6)
        np.testing.assert_allclose(found.loo_predict_, exact.loo_predict_, atol=1e-6)
        again = pickle.loads(pickle.dumps(found))
        np.testing.assert_allclose(again.predict(Q, True)[1], found.predict(Q, True)[1], atol=1e-12)


def test_missing_targets_in_blocks(rng):
    X = torch.from_numpy(rng.normal(size=(90, 2)))
    Y = torch.from_numpy(np.where(rng.random((90, 2)) < 0.3, np.nan, rng.normal(size=(90, 2))))
    features = Nystroem(10).features(Gaussian(1.0), X, seed=0)
    found = InMemory(Block(X, Y)).total(SeparateStep(features), limit=2000)
    for j, part in enumerate(found.parts):
        seen = ~Y[:, j].isnan()
        B = features(X[seen])
        torch.testing.assert_close(part.gram.tril(), (B.mT @ B).tril())
        torch.testing.assert_close(part.cross[:, 0], B.mT @ Y[seen, j])
        assert part.n == int(seen.sum())
    assert found.weight == 90.0
    learned = OperatorRidge(Gaussian("ard"), approximation=Nystroem(10), random_state=0, fit_intercept=False).fit(X, Y)
    assert len(learned.history_) > 1
    with pytest.raises(ValueError, match="solver='direct'"):
        OperatorRidge(Gaussian(1.0), approximation=Nystroem(10), solver="cg", fit_intercept=False).fit(X, Y)
    with pytest.raises(MemoryError, match="leaves no room"):
        OperatorRidge(Gaussian(1.0), approximation=Nystroem(90), memory_limit="200kB", fit_intercept=False).fit(X, Y)


def test_conjugate_gradients_say_why_they_ended(data):
    X, Y, _ = (torch.from_numpy(array) for array in data)
    features = Nystroem(20).features(Gaussian(1.0), X, seed=0)

    class Wrong(InMemory):
        """Products with the wrong sign, as rounding may make them."""

        def total(self, step, *, limit=None):
            sign = 1.0 if step.coefficients is None else -1.0
            return sign * super().total(step, limit=limit)

    def solve(falkon: Falkon, source: InMemory) -> str | None:
        options: Any = {"alpha": 1e-3, "scales": torch.ones(3).double(), "rotation": None}
        return solve_falkon(falkon, features, source, features(X[:40]), **options).problem

    assert solve(Falkon(), InMemory(Block(X, Y))) is None
    assert "have not reached" in str(solve(Falkon(1e-12, 2), InMemory(Block(X, Y))))
    assert "without positive curvature in iteration 1" in str(solve(Falkon(), Wrong(Block(X, Y))))


# -- choices ----------------------------------------------------------------------------------------------------------
def test_hyperparameters_are_learned_on_a_part(rng, monkeypatch):
    monkeypatch.setattr(limits, "SEARCH_ROWS", 100)
    X = rng.uniform(-1, 1, (800, 2))
    y = np.sin(6 * X[:, 0]) + 0.1 * rng.normal(size=800)
    model = OperatorRidge(
        Gaussian("ard"), approximation=Nystroem(60), random_state=0, tol=1e-3, fit_intercept=False
    ).fit(X, y)
    assert model.kernel_.lengthscale[1] > 3 * model.kernel_.lengthscale[0]
    assert model.score(X, y) > 0.97 and len(model.history_) > 1


def test_operators_that_the_targets_decide(data):
    X, Y, _ = data
    for operator in (Covariance(), "learn"):
        model = OperatorRidge(
            Gaussian(1.0), operator, approximation=Nystroem(40), random_state=0, fit_intercept=False
        ).fit(X, Y)
        assert model.operator_.as_matrix(3, torch.zeros(1)).shape == (3, 3) and model.score(X, Y) > 0.8


def test_bad_choices(data):
    X, Y, _ = data
    cases: Any = [
        ({"approximation": 100}, "approximation must be None or Nystroem"),
        ({"approximation": Nystroem(201)}, "from 1 to the number of samples, 200"),
        ({"approximation": Nystroem(5), "solver": "lu"}, "solver must be one of 'auto', 'direct', 'cg' or Falkon"),
        (
            {"kernel": Linear(), "approximation": RandomFeatures(5)},
            "RandomFeatures takes .* Nystroem takes any",
        ),
        ({"kernel": "rbf", "approximation": TensorSketch(5)}, "TensorSketch takes Polynomial"),
        ({"approximation": RandomFeatures(0)}, "n_components of RandomFeatures must be a positive integer"),
        ({"approximation": Landmarks(np.ones((2, 5)))}, "5 features"),
        ({"kernel": CurlFree(1.0), "approximation": Nystroem(5)}, "needs a scalar kernel"),
    ]
    for arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            OperatorRidge(**arguments).fit(X, Y)


# -- random features and sketches -------------------------------------------------------------------------------------
KERNELS = [
    Gaussian([1.0, 2.0, 0.5]),
    Laplacian(1.5),
    Matern(1.5, [1.0, 2.0, 1.0]),
    RationalQuadratic(1.0, 0.7),
    2.0 * Gaussian(1.0) * Matern(1.5, 1.0) + 0.5 * Laplacian(1.0) + 1.5,
    (Gaussian(1.0) + 1.0) * (Laplacian(2.0) + 2.0),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("orthogonal", [True, False])
def test_random_features_are_unbiased(kernel, orthogonal, rng):
    X = rng.normal(size=(30, 3))
    K, total = kernel(X), torch.zeros(30, 30, dtype=torch.float64)
    errors = []
    for seed in range(40):
        features = RandomFeatures(400, orthogonal).features(kernel, X, seed=seed)
        B = features(X)
        assert B.shape == (30, features.n_features) and abs(features.n_features - 400) <= 6
        torch.testing.assert_close((B**2).sum(1), kernel.diag(X))
        total += B @ B.T
        errors.append(float((B @ B.T - K).norm() / K.norm()))
    # The mean of 40 draws has 1/√40 of the error of one.
    assert float((total / 40 - K).norm() / K.norm()) < 3.0 * np.mean(errors) / np.sqrt(40)


def test_the_error_of_random_features_falls_with_the_root(rng):
    X = rng.normal(size=(60, 20))  # a sketch of few coordinates has no collisions
    for kernel, approximation in (
        (Gaussian(4.0) * Matern(2.5, 8.0), RandomFeatures),
        (Polynomial(3, 0.1), TensorSketch),
    ):
        sizes = [64, 256, 1024, 4096]
        errors = [
            np.mean([approximation_error(approximation(m).features(kernel, X, seed=s), X) for s in range(8)])
            for m in sizes
        ]
        rate = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
        assert -0.6 < rate < -0.4


def test_sketches_are_unbiased(rng):
    X = rng.normal(size=(20, 4))
    kernel = 0.5 * Polynomial(2, 0.5, 2.0)
    K, total, errors = kernel(X), torch.zeros(20, 20, dtype=torch.float64), []
    for seed in range(200):
        B = TensorSketch(50).features(kernel, X, seed=seed)(X)
        total += B @ B.T
        errors.append(float((B @ B.T - K).norm()))
    assert float((total / 200 - K).norm()) < 3.0 * np.mean(errors) / np.sqrt(200)


def test_leverage_scores_find_what_is_rare(rng):
    """One sample in a hundred is where the kernel has most of its rank."""
    X = np.concatenate([0.1 * rng.standard_normal((1980, 2)), rng.uniform(-3, 3, (20, 2))])
    kernel = Gaussian(1.0)

    def missed(sampling: Any, seed: int) -> float:
        B = Nystroem(40, sampling).features(kernel, X, seed=seed)(X)
        return float((kernel.diag(X) - (B**2).sum(1)).mean())

    uniform, leverage, means = (
        np.mean([missed(s, seed) for seed in range(4)]) for s in ("uniform", "leverage", "kmeans")
    )
    assert leverage < 0.4 * uniform and means < 0.8 * uniform


def test_leverage_scores_against_the_whole_matrix(rng, monkeypatch):
    """With all rows chosen the estimate is the ridge leverage score itself."""
    from representer.approximation import landmarks as sampling

    X = torch.from_numpy(rng.normal(size=(40, 2)))
    kernel, rank = Gaussian(1.0), 5
    rows = torch.arange(40)
    scores = sampling._leverage(kernel, X, rows, rows, torch.ones(40).double(), rank)
    K = kernel(X)
    ridge = torch.linalg.eigvalsh(K)[:-rank].sum() / rank
    expected = (K @ torch.linalg.inv(K + ridge * torch.eye(40).double())).diagonal()
    torch.testing.assert_close(scores, expected, rtol=1e-8, atol=1e-10)


def test_cluster_centres_are_means(rng):
    X = np.concatenate([rng.normal(c, 0.01, (50, 2)) for c in ([0, 0], [1000.0, 0], [0, 3])])
    Z = Nystroem(3, "kmeans").features(Gaussian([1000.0, 1.0]), X, seed=1).landmarks.numpy()
    expected = np.array([X[i * 50 : (i + 1) * 50].mean(0) for i in range(3)])
    np.testing.assert_allclose(Z[np.lexsort(Z.T)], expected[np.lexsort(expected.T)], atol=1e-6)
    with pytest.raises(ValueError, match="must be dense vectors"):
        Nystroem(2, "kmeans").features(Spectrum(1), WORDS, seed=0)


# -- embeddings -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("intercept", [True, False])
def test_a_classifier_on_all_landmarks_is_exact(intercept):
    X, y = make_moons(120, noise=0.25, random_state=0)
    exact = EmbeddingClassifier(Gaussian(0.5), alpha=1e-3, fit_intercept=intercept).fit(X, y)
    model = clone(exact).set_params(approximation=Nystroem(120), memory_limit="1MB", random_state=0).fit(X, y)
    for name in ("complexity_", "loo_estimates_", "intercept_", "_training_loss"):
        np.testing.assert_allclose(getattr(model, name), getattr(exact, name), rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(model.predict_proba(X + 0.1), exact.predict_proba(X + 0.1), atol=1e-6)


def test_batches_of_a_classifier_equal_one_fit(monkeypatch):
    monkeypatch.setattr(limits, "HELD_ROWS", 70)
    X, y = make_moons(200, noise=0.25, random_state=0)
    names = np.array(["up", "down"])[y]
    model = EmbeddingClassifier(Gaussian(0.5), alpha=1e-3, approximation=RandomFeatures(60), random_state=0)
    whole, batches = clone(model).fit(X, names), clone(model)
    with pytest.raises(ValueError, match="classes= must be given to the first call"):
        clone(model).partial_fit(X, names)
    for rows in np.array_split(np.arange(200), 3):
        batches.partial_fit(X[rows], names[rows], classes=["up", "down"])
    assert batches.n_samples_seen_ == 200 and batches.X_fit_ is None
    assert batches.complexity_ == pytest.approx(whole.complexity_)
    np.testing.assert_allclose(batches.predict_proba(X), whole.predict_proba(X), atol=1e-8)
    np.testing.assert_allclose(batches.loo_estimates_, whole.loo_estimates_, atol=1e-9)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(batches)).predict(X), whole.predict(X))
    with pytest.raises(ValueError, match=r"risk_bound needs .* fit"):
        batches.risk_bound()
    with pytest.raises(ValueError, match="y has labels that are not among the classes: 'sideways'"):
        batches.partial_fit(X[:1], ["sideways"])
    one = clone(model).partial_fit(X[y == 0], names[y == 0], classes=["down", "up"])  # a class may come later
    one.partial_fit(X[y == 1], names[y == 1])
    np.testing.assert_allclose(one.embedding(X), whole.embedding(X), atol=1e-9)
    assert not hasattr(EmbeddingClassifier("rbf"), "partial_fit")
    assert not hasattr(batches.fit(X, names), "n_samples_seen_")


def test_a_classifier_is_calibrated_on_a_sample(monkeypatch):
    X, y = make_moons(300, noise=0.25, random_state=0)
    monkeypatch.setattr(limits, "HELD_ROWS", 100)
    monkeypatch.setattr(limits, "SEARCH_LIMIT", 150)
    model = EmbeddingClassifier(Gaussian(0.5), approximation=Nystroem(40), random_state=0).fit(X, y)
    assert model.loo_estimates_.shape == (100, 2) and model.score(X, y) > 0.9
    whole = clone(model).set_params(alpha=model.alpha_)
    monkeypatch.setattr(limits, "HELD_ROWS", 300)
    np.testing.assert_allclose(whole.fit(X, y).embedding(X), model.embedding(X), atol=1e-8)


# -- deep learners ----------------------------------------------------------------------------------------------------
def test_landmarks_of_deep_learners_are_samples(rng):
    X = rng.uniform(-1, 1, (60, 2))
    y = np.sin(4 * (X[:, 0] - X[:, 1]))
    options: Any = {"alpha": 1e-3, "max_iter": 3, "n_restarts": 1, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = DeepKernelRegressor([1], Gaussian(1.0), approximation=Nystroem(20, "leverage"), **options).fit(X, y)
        assert len(model.dual_coef_) == 20
        with pytest.raises(ValueError, match=r"Here landmarks must be samples.*Use 'leverage'"):
            DeepKernelRegressor([1], Gaussian(1.0), approximation=Nystroem(20, "kmeans"), **options).fit(X, y)


# -- the transformer --------------------------------------------------------------------------------------------------
@parametrize_with_checks(
    [
        KernelFeatures(random_state=0),
        KernelFeatures(approximation=RandomFeatures(10), random_state=0),
        KernelFeatures("poly", TensorSketch(10), random_state=0),
        OperatorRidge(
            Gaussian(5.0), approximation=RandomFeatures(100), alpha=1e-3, random_state=0, fit_intercept=False
        ),
        EmbeddingClassifier(
            Gaussian(3.0),
            alpha=1e-3,
            approximation=RandomFeatures(60),
            calibration=None,  # a repeated sample would be left out without its twin
            random_state=0,
        ),
    ]
)
def test_scikit_learn_contract(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


def test_kernel_features(data):
    X, _, _ = data
    for kernel, approximation in (
        ("rbf", Nystroem(40, "leverage")),
        ("rbf", RandomFeatures(40)),
        ("poly", TensorSketch(40)),
        ("rbf", Landmarks(X[:40])),
    ):
        model = KernelFeatures(kernel, approximation, random_state=0).fit(X)
        B = model.transform(X)
        assert B.shape == (200, 40) and len(model.get_feature_names_out()) == 40
        K = model.kernel_(X).numpy()
        columns = np.linspace(0, 199, 40).round().astype(int)  # as many as features
        expected = np.linalg.norm((B @ B.T - K)[:, columns]) / np.linalg.norm(K[:, columns])
        assert model.approximation_error_ == pytest.approx(expected, rel=1e-6)
        copy = pickle.loads(pickle.dumps(model))
        np.testing.assert_allclose(copy.transform(X), B, atol=1e-10)
        assert (model.landmarks_ is None) == isinstance(approximation, RandomFeatures | TensorSketch)
    words = KernelFeatures(Spectrum(1), Nystroem(4), random_state=0).fit(WORDS)
    assert words.transform(WORDS).shape == (len(WORDS), 4) and len(words.landmarks_) == 4
    with pytest.raises(ValueError, match="approximation must be None or Nystroem"):
        KernelFeatures(approximation=5).fit(X)
    with pytest.raises(ValueError, match="already n × n"):
        KernelFeatures("precomputed").fit(np.eye(5))


# -- arguments that are no such thing ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"solver": Falkon(tol=-1.0)}, "tol of Falkon"),
        ({"solver": Falkon(tol="small")}, "tol of Falkon"),  # type: ignore[arg-type]
        ({"solver": Falkon(max_iter=0)}, "max_iter of Falkon"),
        ({"approximation": RandomFeatures(20, orthogonal="no")}, "orthogonal of RandomFeatures"),  # type: ignore[arg-type]
        ({"approximation": Landmarks(None)}, "points of Landmarks"),
        ({"operator": np.eye(3)}, r"such as Dense\(matrix\)"),
    ],
)
def test_arguments_are_refused_by_name(data, options, message):
    X, Y, _ = data
    with pytest.raises(ValueError, match=message):
        OperatorRidge(Gaussian(1.0), **{"approximation": Nystroem(20), **options}).fit(X, Y)


@pytest.mark.parametrize("solver", ["direct", "cg"])
def test_single_precision_of_features_with_less_rank(data, solver):
    X, Y, _ = data  # 10 polynomials, 80 features: rounding makes eigenvalues of their products negative
    options: Any = {
        "alpha": [1e-3, 1.0],
        "approximation": TensorSketch(80),
        "solver": solver,
        "random_state": 0,
    }
    exact = OperatorRidge(Polynomial(2), **options).fit(X, Y)
    single = OperatorRidge(Polynomial(2), dtype="float32", **options).fit(X, Y)
    np.testing.assert_allclose(single.predict(X), exact.predict(X), atol=1e-3)
    assert single.predict(X).dtype == pickle.loads(pickle.dumps(single)).predict(X).dtype == np.float32


def test_a_first_batch_is_refused_for_what_is_wrong_with_it(data):
    X, Y, _ = data
    for batch, message in (((np.where(X > 2, np.nan, X), Y), "contains NaN"), ((X, Y[:3]), "inconsistent")):
        with pytest.raises(ValueError, match=message):
            OperatorRidge(
                Gaussian(1.0), approximation=RandomFeatures(20), random_state=0, fit_intercept=False
            ).partial_fit(*batch)


@pytest.mark.parametrize("first", [1, 3])
@pytest.mark.filterwarnings("ignore:The terms of the fitted function:representer.notices.NumericalWarning")
def test_a_tiny_first_batch_gives_the_fit_to_all_samples(first):
    rng = np.random.default_rng(0)
    X = np.sort(rng.normal(size=(900, 1)), 0)
    y = (np.sin(3 * X[:, 0]) + 0.1 * rng.normal(size=900) > 0).astype(int)
    landmarks = Landmarks(X[:: 900 // 150][:150])
    model = EmbeddingClassifier(Gaussian(0.5), alpha=1e-11, approximation=landmarks, calibration=None)
    whole, stream = clone(model).fit(X, y), clone(model)
    for rows in np.split(np.arange(900), [first, 300, 600]):
        stream.partial_fit(X[rows], y[rows], classes=[0, 1])
    expected = whole.decision_function(X)
    np.testing.assert_allclose(stream.decision_function(X), expected, rtol=0, atol=1e-4 * np.abs(expected).max())


# -- groups in batches ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("intercept", [False, True])
def test_groups_in_batches_equal_one_fit(rng, intercept):
    X, labels = rng.normal(size=(90, 2)), rng.permutation(np.repeat(["a", "b", "c", "d", "e", "f"], 15))
    y = np.sin(X[:, 0]) + 0.5 * rng.normal(size=6)[np.unique(labels, return_inverse=True)[1]]
    options = {"approximation": Landmarks(X[:20]), "fit_intercept": intercept, "random_state": 0}
    batches, model = OperatorRidge(Gaussian(1.0), **options), OperatorRidge(Gaussian(1.0), **options)
    for rows in (slice(0, 20), slice(20, 70), slice(70, 90)):
        batches.partial_fit(X[rows], y[rows], groups=labels[rows])
    model.fit(X, y, groups=labels)
    assert batches.alpha_ == pytest.approx(model.alpha_) and batches.criterion_value_ == pytest.approx(
        model.criterion_value_
    )
    np.testing.assert_allclose(batches.predict(X), model.predict(X), atol=1e-8)
    alone = OperatorRidge(Gaussian(1.0), **options).fit(X, y)
    assert abs(np.log(alone.alpha_ / model.alpha_)) > 0.1  # groups matter here
    with pytest.raises(ValueError, match="with all batches of partial_fit, or with none"):
        batches.partial_fit(X, y)
    classes = (y > 0).astype(int)
    options |= {"alpha": 0.01, "fit_intercept": True}
    parts, whole = EmbeddingClassifier(Gaussian(1.0), **options), EmbeddingClassifier(Gaussian(1.0), **options)
    for rows in (slice(0, 40), slice(40, 90)):
        parts.partial_fit(X[rows], classes[rows], classes=[0, 1], groups=labels[rows])
    whole.fit(X, classes, groups=labels)
    np.testing.assert_allclose(parts.loo_estimates_, whole.loo_estimates_, atol=1e-8)
    np.testing.assert_allclose(parts.predict_proba(X), whole.predict_proba(X), atol=1e-6)


def test_held_groups_are_complete(rng):
    groups = rng.integers(40, size=400)
    X = rng.normal(size=(400, 1))
    block = Block(torch.from_numpy(X), torch.from_numpy(X), None, torch.from_numpy(groups))
    held = HeldSamples.of(block.rows(np.arange(100)), np.arange(100), 0)
    for start in range(100, 400, 50):
        held = held.joined(block.rows(np.arange(start, start + 50)), start, 120, 0)
        seen = groups[: start + 50]
        assert held.groups is not None and 0 < len(held) <= 120
        assert all((held.groups == g).sum() == (seen == g).sum() for g in np.unique(held.groups))
    assert len(held) > 90


def test_leverages_of_sums_are_derivatives(rng):
    X, Y, w = rng.normal(size=(30, 2)), rng.normal(size=(30, 2)), rng.uniform(0.5, 2.0, size=30)
    options = {"alpha": 0.05, "approximation": Landmarks(X[:8]), "fit_intercept": True}
    operator = Dense([[1.0, 0.4], [0.4, 0.6]])
    model = OperatorRidge(Gaussian(1.0), operator, **options).fit(X, Y, sample_weight=w)
    leverage = model.system_.leverage()
    for i, j in ((0, 0), (7, 1), (29, 0)):
        moved = Y.copy()
        moved[i, j] += 1.0
        other = OperatorRidge(Gaussian(1.0), operator, **options).fit(X, moved, sample_weight=w)
        assert leverage[i, j].item() == pytest.approx((other.predict(X) - model.predict(X))[i, j], abs=1e-8)
