"""OperatorRidge: scikit-learn's contract, KernelRidge, learning, weights, missing targets, uncertainty."""

from __future__ import annotations

import itertools
import pickle
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from contract import contract
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, LeaveOneOut, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tiers import tiers

from representer import KernelFeatures, OperatorRidge
from representer.approximation import Nystroem, RandomFeatures
from representer.kernels import (
    Callable,
    Constant,
    Delta,
    Gaussian,
    Laplacian,
    Linear,
    Matern,
    Neural,
    Polynomial,
    Precomputed,
)
from representer.linalg import IndefiniteGramWarning, NotPositiveDefiniteError
from representer.operators import (
    ConditionalCovariance,
    Covariance,
    CurlFree,
    Decomposable,
    Dense,
    Diagonal,
    DivergenceFree,
    Separate,
)

NOT_REPEATED = {
    "check_sample_weight_equivalence_on_dense_data": (
        "the median of distances does not know weights; test_weights_and_repetition_choose_the_same_alpha shows "
        "the equivalence for a given lengthscale"
    ),
}
NO_GRAM = {"check_positive_only_tag_during_fit": "a random matrix is no Gram matrix: it is refused as indefinite"}
CHECKED = {
    "auto": (OperatorRidge("rbf", fit_intercept=False), NOT_REPEATED),
    "fixed": (OperatorRidge(Gaussian(1.5), alpha=1e-2), {}),
    "precomputed": (OperatorRidge("precomputed"), NO_GRAM),
}


@contract(CHECKED, quick=CHECKED)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture
def data(rng):
    X = rng.normal(size=(40, 3))
    Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2], np.sin(X[:, 0]) + 0.3 * X[:, 1]])
    return X, Y + 0.1 * rng.normal(size=Y.shape)


# -- the same model elsewhere ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kernel", "reference"),
    [
        (Gaussian(1.3), {"kernel": "rbf", "gamma": 1 / (2 * 1.3**2)}),
        (Laplacian(2.0), {"kernel": "laplacian", "gamma": 0.5}),
        (Linear(), {"kernel": "linear"}),
        (Polynomial(2, 0.5, 1.5), {"kernel": "poly", "degree": 2, "gamma": 0.5, "coef0": 1.5}),
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("flat", [False, True])
def test_identity_operator_is_kernel_ridge(data, rng, kernel, reference, weighted, flat):
    X, Y = data
    Y = Y[:, 0] if flat else Y
    weights = rng.uniform(0.5, 2.0, len(X)) if weighted else None
    total = len(X) if weights is None else weights.sum()
    ours = OperatorRidge(kernel, alpha=0.03, fit_intercept=False).fit(X, Y, sample_weight=weights)
    theirs = KernelRidge(alpha=0.03 * total, **reference).fit(X, Y, sample_weight=weights)
    new = rng.normal(size=(15, 3))
    assert ours.predict(new).shape == theirs.predict(new).shape
    np.testing.assert_allclose(ours.predict(new), theirs.predict(new), atol=1e-10, rtol=1e-10)
    np.testing.assert_allclose(ours.dual_coef_, theirs.dual_coef_, atol=1e-9, rtol=1e-9)


def test_linear_kernel_is_ridge_in_either_regime(rng):
    for n, d in [(50, 4), (6, 20)]:
        X, y = rng.normal(size=(n, d)), rng.normal(size=n)
        ours = OperatorRidge("linear", alpha=0.1, fit_intercept=False).fit(X, y)
        theirs = Ridge(alpha=0.1 * n, fit_intercept=False).fit(X, y)
        np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=1e-10)


def test_standard_deviation_is_that_of_a_gaussian_process(data):
    X, Y = data
    y, alpha = Y[:, 0], 0.02
    ours = OperatorRidge(Gaussian(1.1), alpha=alpha, fit_intercept=False).fit(X, y)
    theirs = GaussianProcessRegressor(RBF(1.1), alpha=alpha * len(X), optimizer=None).fit(X, y)
    new = X[:7] + 0.1
    mean, std = ours.predict(new, return_std=True)
    gp_mean, gp_std = theirs.predict(new, return_std=True)
    np.testing.assert_allclose(mean, gp_mean, atol=1e-9)
    ratio = std**2 / (gp_std**2 + alpha * len(X))
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-8)
    # the factor makes standardised leave-one-out residuals have mean square one
    K = Gaussian(1.1)(X).numpy() + alpha * len(X) * np.eye(len(X))
    loo_variance = 1 / np.diag(np.linalg.inv(K))
    scale = np.mean((y - ours.loo_predict_) ** 2 / loo_variance)
    np.testing.assert_allclose(ratio[0], scale, rtol=1e-6)


def test_intervals_cover_new_observations(rng):
    X = rng.uniform(-3, 3, (300, 1))
    y = np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=300)
    model = OperatorRidge(Gaussian("auto")).fit(X[:100], y[:100])
    mean, std = model.predict(X[100:], return_std=True)
    inside = np.mean(np.abs(mean - y[100:]) < 1.96 * std)
    assert 0.88 < inside < 0.99


# -- leave-one-out --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "kernel",
    [
        Decomposable(Gaussian(1.0)),
        Decomposable(Gaussian(1.0), Dense([[2.0, 1.0, 0.0], [1.0, 2.0, 0.5], [0.0, 0.5, 1.0]])),
        Separate([Gaussian(1.0), Linear(), Matern(1.5, 2.0)]),
        Decomposable(Gaussian(1.0), Diagonal([1.0, 2.0, 1.0])) + Decomposable(Linear()),
        CurlFree(1.5),
    ],
    ids=lambda k: type(k).__name__,
)
def test_loo_predictions_are_refits(data, kernel):
    X, Y = data[0][:15], data[1][:15]
    model = OperatorRidge(kernel, alpha=0.02).fit(X, Y)
    for i in range(len(X)):
        rest = np.arange(len(X)) != i
        # the shift n·alpha stays that of all n samples
        other = OperatorRidge(kernel, alpha=0.02 * 15 / 14).fit(X[rest], Y[rest])
        np.testing.assert_allclose(model.loo_predict_[i], other.predict(X[i : i + 1])[0], atol=1e-9)


def test_auto_alpha_minimises_the_leave_one_out_error(data):
    X, Y = data
    model = OperatorRidge(Gaussian(1.5)).fit(X, Y)
    errors = {}
    for alpha in model.alpha_ * np.array([0.5, 0.9, 1.0, 1.1, 2.0]):
        fixed = OperatorRidge(Gaussian(1.5), alpha=alpha).fit(X, Y)
        errors[alpha] = np.sum((fixed.loo_predict_ - Y) ** 2) / len(X)
    best = min(errors, key=errors.get)
    assert best == pytest.approx(model.alpha_)
    assert model.criterion_value_ == pytest.approx(errors[best])


def test_candidate_alphas_agree_with_cross_validation(data):
    X, Y = (samples[:20] for samples in data)
    candidates = np.logspace(-4, 0, 5)
    model = OperatorRidge(Gaussian(1.5), alpha=candidates).fit(X, Y)
    scores = []
    for alpha in candidates:  # refits with the same shift n·alpha
        refit = OperatorRidge(Gaussian(1.5), alpha=alpha * len(X) / (len(X) - 1))
        scores.append(np.sum((cross_val_predict(refit, X, Y, cv=LeaveOneOut()) - Y) ** 2))
    assert model.alpha_ == candidates[np.argmin(scores)]


# -- learning -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kernel", "criterion"),
    tiers(
        itertools.product([Gaussian("auto"), "auto" * Gaussian("ard") + "auto", Matern(2.5, "auto")], ["loo", "gcv"]),
        lambda case: isinstance(case[0], Gaussian | Matern) or case[1] == "gcv",
    ),
)
def test_learning_lowers_the_criterion(data, criterion, kernel):
    X, Y = data
    start = OperatorRidge(clone(kernel).resolve(X), criterion=criterion).fit(X, Y)
    learned = OperatorRidge(kernel, criterion=criterion).fit(X, Y)
    assert learned.criterion_value_ < start.criterion_value_
    assert len(learned.history_) > 1
    values = [entry.value for entry in learned.history_]
    assert all(a >= b for a, b in itertools.pairwise(values))


@pytest.mark.parametrize("kernel", [Gaussian("ard"), "auto" * Matern(1.5, "auto")])
def test_units_of_the_targets_do_not_matter(data, kernel):
    X, Y = data
    reference = OperatorRidge(kernel, fit_intercept=False).fit(X, Y[:, 1])
    for unit in (1e-6, 1e6):
        other = OperatorRidge(kernel, fit_intercept=False).fit(X, unit * Y[:, 1])
        np.testing.assert_allclose(other.predict(X) / unit, reference.predict(X), atol=1e-3)
        assert other.criterion_value_ / unit**2 == pytest.approx(reference.criterion_value_, rel=1e-3)
    silent = OperatorRidge(kernel, fit_intercept=False).fit(X, np.zeros(len(X)))
    np.testing.assert_array_equal(silent.predict(X), 0.0)


def test_relevant_features_are_found(rng):
    X = rng.normal(size=(120, 4))
    y = np.sin(2 * X[:, 1]) + 0.05 * rng.normal(size=120)
    scales = OperatorRidge(Gaussian("ard")).fit(X, y).kernel_.lengthscale
    assert np.argmin(scales) == 1
    assert np.all(np.delete(scales, 1) > 2 * scales[1])


def test_numbers_are_not_learned(data):
    X, Y = data
    model = OperatorRidge(Gaussian(0.7) + "auto" * Linear(), alpha=0.1).fit(X, Y)
    assert model.kernel_.left.lengthscale == 0.7
    assert model.alpha_ == 0.1
    assert model.kernel_.right.scale != 1.0


def test_learned_operator_shares_strength_between_outputs(rng):
    X = rng.uniform(-2, 2, (60, 1))
    latent = np.sin(3 * X[:, 0])
    Y = np.column_stack([latent, latent, -latent]) + 0.5 * rng.normal(size=(60, 3))
    test = np.linspace(-2, 2, 100)[:, None]
    truth = np.sin(3 * test) * [1, 1, -1]
    alone = OperatorRidge(Gaussian(0.5)).fit(X, Y)
    joint = OperatorRidge(Gaussian(0.5), operator="learn").fit(X, Y)
    error = [np.mean((m.predict(test) - truth) ** 2) for m in (alone, joint)]
    assert error[1] < 0.7 * error[0]
    A = joint.operator_.matrix
    assert A[0, 1] > 0 > A[0, 2]
    np.testing.assert_allclose(np.trace(A), 3.0)
    assert joint.criterion_value_ < alone.criterion_value_


@pytest.mark.parametrize("criterion", ["loo", "gcv"])
def test_an_operator_is_learned_over_few_features_too(data, criterion):
    X, Y = data
    thin = OperatorRidge("linear", "learn", criterion=criterion).fit(X, Y)
    full = OperatorRidge(1.0 * Linear(), "learn", criterion=criterion).fit(X, Y)
    assert thin.criterion_value_ == pytest.approx(full.criterion_value_, rel=1e-4)
    np.testing.assert_allclose(thin.predict(X), full.predict(X), atol=1e-2)
    OperatorRidge("linear", "learn", approximation=Nystroem(20), random_state=0).fit(X, Y)


def test_nothing_to_learn_is_learned_at_once(data):
    X, Y = data
    kernel = Neural(torch.nn.Linear(3, 2), Constant(1.0))
    model = OperatorRidge(kernel, alpha=0.1, fit_intercept=False).fit(X, Y)
    np.testing.assert_allclose(model.predict(X), np.tile(Y.sum(0) / (40 + 0.1 * 40), (40, 1)))


def test_restarts_never_end_higher(data):
    X, Y = data
    one = OperatorRidge(Gaussian("ard"), random_state=0).fit(X, Y)
    many = OperatorRidge(Gaussian("ard"), random_state=0, n_restarts=4).fit(X, Y)
    assert many.criterion_value_ <= one.criterion_value_ * (1 + 1e-4)


def test_unconverged_search_warns_and_keeps_its_best(data):
    X, Y = data
    with pytest.warns(ConvergenceWarning, match="max_iter=1"):
        model = OperatorRidge(Gaussian("ard"), max_iter=1).fit(X, Y)
    assert np.isfinite(model.predict(X)).all()


def test_interruption_keeps_the_best_point(data):
    class Interrupt:
        def setup(self, estimator, context): ...
        def teardown(self, estimator, context): ...
        def on_fit_task_begin(self, estimator, context): ...

        def on_fit_task_end(self, estimator, context):
            if context.task_name == "iteration" and context.task_id == 3:
                raise KeyboardInterrupt

    X, Y = data
    model = OperatorRidge(Gaussian("ard")).set_callbacks(Interrupt())
    with pytest.warns(ConvergenceWarning, match="interrupt"):
        model.fit(X, Y)
    start = OperatorRidge(Gaussian("ard").resolve(X)).fit(X, Y)
    assert model.criterion_value_ < start.criterion_value_
    assert np.isfinite(model.predict(X)).all()


def test_callback_can_stop_the_search(data):
    class Stop:
        calls = 0

        def setup(self, estimator, context): ...
        def teardown(self, estimator, context): ...
        def on_fit_task_begin(self, estimator, context): ...

        def on_fit_task_end(self, estimator, context):
            if context.task_name == "iteration":
                self.calls += 1
                return self.calls == 2

    X, Y = data
    callback = Stop()
    with pytest.warns(ConvergenceWarning, match="callback"):
        OperatorRidge(Gaussian("ard")).set_callbacks(callback).fit(X, Y)
    assert callback.calls == 2


# -- weights and missing targets ------------------------------------------------------------------------------------
@pytest.mark.parametrize("operator", [None, Dense([[2.0, 1.0, 0.0], [1.0, 2.0, 0.5], [0.0, 0.5, 1.0]])])
def test_weights_equal_repetition(data, rng, operator):
    X, Y = data
    counts = rng.integers(0, 4, len(X))
    weighted = OperatorRidge(Gaussian(1.2), operator, alpha=0.01).fit(X, Y, sample_weight=counts)
    repeated = OperatorRidge(Gaussian(1.2), operator, alpha=0.01).fit(np.repeat(X, counts, 0), np.repeat(Y, counts, 0))
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), atol=1e-8)
    assert weighted.loo_predict_.shape == Y.shape


def test_missing_targets_of_uncoupled_outputs_are_left_out(data, rng):
    X, Y = data
    holes = np.where(rng.random(Y.shape) < 0.3, np.nan, Y)
    model = OperatorRidge(Gaussian(1.2), alpha=0.01, fit_intercept=False).fit(X, holes)
    for j in range(3):
        seen = ~np.isnan(holes[:, j])
        alone = KernelRidge(alpha=0.01 * len(X), kernel="rbf", gamma=1 / (2 * 1.2**2)).fit(X[seen], Y[seen, j])
        np.testing.assert_allclose(model.predict(X)[:, j], alone.predict(X), atol=1e-9)


def test_missing_targets_are_filled_in_through_the_operator(rng):
    X = rng.uniform(-2, 2, (80, 1))
    Y = np.sin(3 * X) * [1.0, 1.0] + 0.05 * rng.normal(size=(80, 2))
    holes = Y.copy()
    holes[X[:, 0] > 0, 1] = np.nan  # the second output is never seen on the right
    operator = Dense([[1.0, 0.98], [0.98, 1.0]])
    joint = OperatorRidge(Gaussian(0.5), operator, alpha=1e-4).fit(X, holes)
    alone = OperatorRidge(Gaussian(0.5), alpha=1e-4).fit(X, holes)
    right = X[:, 0] > 0.5
    errors = [np.mean((m.predict(X)[right, 1] - Y[right, 1]) ** 2) for m in (joint, alone)]
    assert errors[0] < 0.1 * errors[1]


@pytest.mark.parametrize("kernel", [Gaussian(1.0), CurlFree(1.5), Separate([Linear(), Gaussian(1.0), Linear()])])
def test_targets_marked_missing_are_never_read(data, rng, kernel):
    X, Y = data
    holes = rng.random(Y.shape) < 0.2
    reference = OperatorRidge(kernel).fit(X, np.where(holes, np.nan, Y))
    dense = Dense(np.eye(3) + 0.5)
    assert np.isfinite(reference.predict(X)).all()
    assert np.isfinite(reference.loo_predict_).all()
    if isinstance(kernel, Gaussian):
        coupled = OperatorRidge(kernel, dense, alpha=0.01).fit(X, np.where(holes, np.nan, Y))
        C = coupled.dual_coef_
        assert np.all(C[holes] == 0) and np.all(C[~holes] != 0)


# -- kinds of data --------------------------------------------------------------------------------------------------
def test_precomputed_equals_the_kernel(data):
    X, Y = data
    new = X[:5] + 0.2
    kernel = Gaussian(1.4)
    direct = OperatorRidge(kernel, alpha=0.01).fit(X, Y)
    given = OperatorRidge("precomputed", alpha=0.01).fit(kernel(X).numpy(), Y)
    np.testing.assert_allclose(given.predict(kernel(new, X).numpy()), direct.predict(new), atol=1e-10)
    np.testing.assert_allclose(given.loo_predict_, direct.loo_predict_, atol=1e-9)
    with pytest.raises(ValueError, match="Use a kernel object instead"):
        given.predict(kernel(new, X).numpy(), return_std=True)
    auto = [
        OperatorRidge("precomputed").fit(kernel(X).numpy(), Y).alpha_,
        OperatorRidge(kernel).fit(X, Y).alpha_,
    ]
    assert auto[0] == pytest.approx(auto[1])


def test_precomputed_is_split_by_rows_and_columns(data):
    X, Y = data
    direct = cross_val_score(OperatorRidge(Gaussian(1.4), alpha=0.01), X, Y, cv=4)
    given = cross_val_score(OperatorRidge("precomputed", alpha=0.01), Gaussian(1.4)(X).numpy(), Y, cv=4)
    np.testing.assert_allclose(given, direct, atol=1e-9)


def test_objects_through_a_callable(rng):
    words = ["".join(rng.choice(list("abc"), size=rng.integers(3, 9))) for _ in range(40)]
    y = np.array([w.count("a") - w.count("b") for w in words], dtype=float)

    def letters(u, v):
        return float(sum(u.count(c) * v.count(c) for c in "abc"))

    model = OperatorRidge(letters).fit(words, y)
    assert model.score(words, y) > 0.999
    mean, std = model.predict(["aab", "cccc"], return_std=True)
    np.testing.assert_allclose(mean, [1.0, 0.0], atol=1e-3)
    assert std.shape == (2,)
    scores = cross_val_score(OperatorRidge(Callable(letters)), words, y, cv=3)
    assert scores.min() > 0.99


def test_labels_give_shrunken_group_means(rng):
    groups = np.repeat(["u", "v", "w"], 10)
    y = rng.normal(size=30)
    model = OperatorRidge(Delta(), alpha=0.05, fit_intercept=False).fit(groups, y)
    means = [y[groups == g].sum() / (10 + 0.05 * 30) for g in "uvw"]
    np.testing.assert_allclose(model.predict(np.array(["u", "v", "w"])), means)


def test_numpy_pandas_torch_and_lists_agree(data):
    X, Y = data
    reference = OperatorRidge(Gaussian(1.0), alpha=0.1).fit(X, Y).predict(X)
    frames = [
        (pd.DataFrame(X, columns=["a", "b", "c"]), pd.DataFrame(Y)),
        (torch.tensor(X, requires_grad=True), torch.tensor(Y)),
        (X.tolist(), Y.tolist()),
        (np.asfortranarray(X), Y),
    ]
    for inputs, targets in frames:
        model = OperatorRidge(Gaussian(1.0), alpha=0.1).fit(inputs, targets)
        np.testing.assert_allclose(model.predict(inputs), reference, atol=1e-12)
    assert list(OperatorRidge(alpha=0.1).fit(*frames[0]).feature_names_in_) == ["a", "b", "c"]


def test_single_precision_follows_double(data):
    X, Y = data
    double = OperatorRidge(Gaussian(1.0), alpha=0.1).fit(X, Y)
    single = OperatorRidge(Gaussian(1.0), alpha=0.1, dtype="float32").fit(X, Y)
    assert single.dual_coef_.dtype == np.float32
    np.testing.assert_allclose(single.predict(X), double.predict(X), atol=1e-4)


# -- vector fields --------------------------------------------------------------------------------------------------
def _derivatives(model, point, h=1e-5):
    steps = np.eye(2) * h
    return np.array([(model.predict(point + s) - model.predict(point - s))[0] / (2 * h) for s in steps])


def test_fields_obey_their_physics(rng):
    X, Y = rng.normal(size=(30, 2)), rng.normal(size=(30, 2))
    J = _derivatives(OperatorRidge(CurlFree()).fit(X, Y), X[:1] + 0.3)
    assert abs(J[0, 1] - J[1, 0]) < 1e-6 * np.abs(J).max()
    J = _derivatives(OperatorRidge(DivergenceFree()).fit(X, Y), X[:1] + 0.3)
    assert abs(np.trace(J)) < 1e-6 * np.abs(J).max()


def test_kernels_with_a_fixed_number_of_outputs_say_so(data):
    X, Y = data
    with pytest.raises(ValueError, match="has 3 outputs on these inputs, but y has 2"):
        OperatorRidge(CurlFree()).fit(X, Y[:, :2])


# -- operators ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("operator", [Covariance(), ConditionalCovariance(0.1), Diagonal([1.0, 2.0, 3.0])])
def test_operators_solve_the_block_system(data, operator):
    X, Y = data
    model = OperatorRidge(Gaussian(1.0), operator, alpha=0.02, fit_intercept=False).fit(X, Y)
    A = model.operator_.as_matrix(3, torch.zeros((), dtype=torch.float64)).numpy()
    K = Gaussian(1.0)(X).numpy()
    C = np.linalg.solve(np.kron(K, A) + 0.02 * len(X) * np.eye(3 * len(X)), Y.ravel()).reshape(Y.shape)
    np.testing.assert_allclose(model.dual_coef_, C, atol=1e-7)


def test_operators_in_a_sum_are_resolved_too(data):
    X, Y = data
    given = Decomposable(Gaussian(1.0), Covariance()) + Decomposable(Linear(), ConditionalCovariance(0.1))
    model = OperatorRidge(given, alpha=0.02).fit(X, Y)
    first, second = (
        OperatorRidge(k, o, alpha=0.02).fit(X, Y).operator_
        for k, o in ((Gaussian(1.0), Covariance()), (Linear(), ConditionalCovariance(0.1)))
    )
    assert model.kernel_ == Decomposable(Gaussian(1.0), first) + Decomposable(Linear(), second)


def test_nystroem_with_all_landmarks_is_exact(data):
    X, Y = data
    exact = OperatorRidge(Gaussian(1.0), Dense(np.eye(3) + 0.5), alpha=0.02).fit(X, Y)
    approximate = OperatorRidge(
        Gaussian(1.0), Dense(np.eye(3) + 0.5), alpha=0.02, approximation=Nystroem(len(X)), random_state=0
    ).fit(X, Y)
    new = X + 0.1
    for a, b in zip(approximate.predict(new, True), exact.predict(new, True), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    np.testing.assert_allclose(approximate.loo_predict_, exact.loo_predict_, atol=1e-6)


def test_nystroem_with_coupled_and_missing_outputs(data, rng):
    X, Y = data
    holes = np.where(rng.random(Y.shape) < 0.2, np.nan, Y)
    operator = Dense(np.eye(3) + 0.5)
    exact = OperatorRidge(Gaussian(1.0), operator).fit(X, holes)
    for m in (15, len(X)):  # no warning: nothing is too large here
        model = OperatorRidge(Gaussian(1.0), operator, approximation=Nystroem(m), random_state=0).fit(X, holes)
    assert model.alpha_ == pytest.approx(exact.alpha_, rel=1e-3)


def test_nystroem_is_uncertain_where_landmarks_do_not_reach(rng):
    X = rng.uniform(-1, 1, (200, 1))
    y = np.sin(3 * X[:, 0]) + 0.1 * rng.normal(size=200)
    model = OperatorRidge(Gaussian(0.3), approximation=Nystroem(20), random_state=0).fit(X, y)
    _, std = model.predict([[0.0], [5.0]], return_std=True)
    assert std[1] > 2 * std[0]  # away from all data, the prior's own deviation


# -- the scikit-learn world -----------------------------------------------------------------------------------------
def test_grid_search_reaches_into_the_kernel(data):
    X, Y = data
    for kernel in (Gaussian(), "rbf"):
        search = GridSearchCV(OperatorRidge(kernel, alpha=0.01), {"kernel__lengthscale": [0.01, 1.5]}, cv=3).fit(X, Y)
        assert search.best_params_ == {"kernel__lengthscale": 1.5}
        assert len(set(search.cv_results_["mean_test_score"])) == 2
    nested = OperatorRidge(Gaussian() + 2.0 * Linear()).set_params(kernel__right__scale=3.0)
    assert nested.kernel == Gaussian() + 3.0 * Linear()


def test_pipeline_and_pickle_and_clone(data):
    X, Y = data
    model = make_pipeline(StandardScaler(), OperatorRidge(Gaussian("auto"), operator="learn")).fit(X, Y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_allclose(again[-1].loo_predict_, model[-1].loo_predict_)
    assert repr(clone(model)) == repr(model)


def test_fit_changes_neither_arguments_nor_data(data):
    X, Y = data
    holes = np.where(Y > 1, np.nan, Y)
    copies = X.copy(), holes.copy()
    kernel = "auto" * Gaussian("ard")
    model = OperatorRidge(kernel).fit(X, holes)
    assert model.kernel is kernel and kernel == "auto" * Gaussian("ard")
    np.testing.assert_array_equal(X, copies[0])
    np.testing.assert_array_equal(holes, copies[1])
    gram = Gaussian(1.0)(X).numpy()
    before = gram.copy()
    OperatorRidge("precomputed").fit(gram, Y).loo_predict_  # noqa: B018
    np.testing.assert_array_equal(gram, before)


def test_same_seed_same_model(data):
    X, Y = data
    for model in (
        OperatorRidge(Gaussian("ard"), n_restarts=2, random_state=1),
        OperatorRidge("rbf", approximation=Nystroem(10), random_state=1),
    ):
        np.testing.assert_array_equal(clone(model).fit(X, Y).predict(X), clone(model).fit(X, Y).predict(X))


def test_refit_forgets_the_first_fit(data):
    X, Y = data
    model = OperatorRidge(Gaussian(1.0)).fit(X, Y)
    model.loo_predict_  # noqa: B018
    model.fit(X[:20], Y[:20, 0])
    fresh = OperatorRidge(Gaussian(1.0)).fit(X[:20], Y[:20, 0])
    np.testing.assert_array_equal(model.loo_predict_, fresh.loo_predict_)


@pytest.mark.slow
def test_defaults_generalise():
    X, y = load_diabetes(return_X_y=True)
    y = y - y.mean()
    ours = cross_val_score(make_pipeline(StandardScaler(), OperatorRidge()), X, y, cv=3)
    grid = {"alpha": np.logspace(-2, 2, 5), "gamma": np.logspace(-3, 0, 4)}
    tuned = make_pipeline(StandardScaler(), GridSearchCV(KernelRidge(kernel="rbf"), grid, cv=3))
    theirs = cross_val_score(tuned, X, y, cv=3)
    assert ours.mean() > theirs.mean() - theirs.std() / np.sqrt(3)


# -- bad input ------------------------------------------------------------------------------------------------------
def _bad(data, message, error=ValueError, X=None, y=None, weights=None, **arguments):
    with pytest.raises(error, match=message), warnings.catch_warnings():
        warnings.simplefilter("error")
        OperatorRidge(**arguments).fit(data[0] if X is None else X, data[1] if y is None else y, weights)


def test_errors_say_what_and_what_to_do(data):
    X, Y = data
    y = Y[:, 0]
    _bad(data, "alpha must be positive", alpha=-1.0)
    _bad(data, "alpha=0 interpolates", alpha=0.0)
    _bad(data, "alpha must be a positive number", alpha="best")
    _bad(data, "alpha must be positive", alpha=[])
    _bad(data, "criterion must be one of 'loo', 'gcv'", criterion="aic")
    _bad(data, "dtype must be one of", dtype="float16")
    _bad(data, "is not a kernel", kernel="gausian")
    _bad(data, "lengthscale of Gaussian must be positive", kernel=Gaussian(-1.0))
    _bad(data, "2 lengthscales, but the data have 3", kernel=Gaussian([1.0, 2.0]))
    _bad(data, "operator must be None, 'learn'", operator="learned")
    _bad(data, "has no place", kernel=CurlFree(), operator=Covariance())
    _bad(data, "has no place", kernel=CurlFree(), operator="learn")
    _bad(data, "has no place", kernel=Decomposable(Gaussian(), Covariance()), operator="learn")
    _bad(data, "3 outputs", operator=Diagonal([1.0, 2.0]))
    _bad(data, "must be positive semi-definite", operator=Dense(-np.eye(3)))
    _bad(data, "approximation must be None or Nystroem", approximation=100)
    _bad(data, "from 1 to the number of samples, 40", approximation=Nystroem(41))
    _bad(data, "max_iter must be an integer", max_iter=0)
    _bad(data, "tol must be a positive number", tol=0)
    _bad(data, "NaN", X=np.where(X > 2, np.nan, X) + np.nan)
    _bad(data, "y contains NaN, first in row 3", y=np.where(np.arange(40) == 3, np.nan, y))
    _bad(data, "contains infinity", y=np.where(np.arange(40) == 3, np.inf, y))
    _bad(data, "Output 1 of y has no observed value", y=np.column_stack([y, np.full(40, np.nan)]))
    _bad(data, "inconsistent numbers of samples: 40 and 39", y=y[:-1])
    _bad(data, "at least one non-zero", weights=np.zeros(40))
    _bad(data, "computed from the targets", operator=Covariance(), y=np.where(Y > 1, np.nan, Y))
    _bad(data, "0 sample", X=np.empty((0, 3)), y=np.empty(0))


def test_bad_gram_matrices(data):
    X, Y = data
    K = Gaussian(1.0)(X).numpy()
    _bad(data, "should be square", X=K[:, :-1], kernel="precomputed")
    lopsided = K.copy()
    lopsided[0, 1] += 0.5
    _bad(data, "not symmetric", X=lopsided, kernel="precomputed")
    _bad(data, "is indefinite", NotPositiveDefiniteError, X=-K, kernel="precomputed")
    slightly = K - 0.02 * np.eye(len(K))
    with pytest.warns(IndefiniteGramWarning, match="% of the absolute spectrum"):
        OperatorRidge("precomputed").fit(slightly, Y)
    with pytest.raises(ValueError, match="expecting 40 features"):
        OperatorRidge("precomputed").fit(K, Y).predict(K[:, :10])


def test_memory_is_checked_before_it_is_taken(data, monkeypatch):
    monkeypatch.setattr("representer.linalg.resources.BLOCK_BYTES", 1_000)  # less is not worth the question
    monkeypatch.setattr("representer.linalg.resources.available_bytes", lambda: 10_000)
    with pytest.raises(MemoryError, match=r"GB.*approximation=Nystroem"):
        OperatorRidge(alpha=0.1).fit(*data)


def test_degenerate_data_give_finite_answers(rng):
    y = rng.normal(size=10)
    for X in (np.ones((10, 2)), np.repeat(rng.normal(size=(2, 2)), 5, 0), np.zeros((10, 1))):
        for kernel in ("rbf", Gaussian("auto"), "linear", Matern(0.5)):
            model = OperatorRidge(kernel, fit_intercept=False).fit(X, y)
            mean, std = model.predict(X, return_std=True)
            assert np.isfinite(mean).all() and np.isfinite(std).all()
    one = OperatorRidge("rbf", fit_intercept=False).fit([[1.0, 2.0]], [3.0])
    assert np.isfinite(one.predict([[1.0, 2.0]])).all()


def test_views_with_any_strides(data):
    X, Y = data
    model = OperatorRidge(Gaussian([1.0, 2.0, 3.0]), Dense(np.diag([1.0, 2.0, 3.0]) + 0.1), alpha=0.1)
    reference = model.fit(X.copy(), Y.copy()).predict(X)
    backwards = OperatorRidge(
        Gaussian(np.array([3.0, 2.0, 1.0])[::-1]),
        Dense((np.diag([3.0, 2.0, 1.0]) + 0.1)[::-1, ::-1]),
        alpha=0.1,
    ).fit(X[::-1], Y[::-1])
    np.testing.assert_allclose(backwards.predict(X[::-1])[::-1], reference, atol=1e-9)
    OperatorRidge("rbf", alpha=np.logspace(-3, 0, 5)[::-1]).fit(X, Y)
    frame = pd.DataFrame(X)
    OperatorRidge("rbf", alpha=0.1).fit(frame.iloc[::-1], Y[::-1]).predict(frame.iloc[::2])


def test_one_sample_of_weight_zero(data):
    X, Y = data
    weights = np.ones(len(X))
    weights[3] = 0.0
    rest = weights > 0
    for kernel, inputs in (
        (Gaussian(1.0), X),
        ("precomputed", Gaussian(1.0)(X).numpy()),
        (Delta(), np.arange(40) % 4),
    ):
        model = OperatorRidge(kernel, alpha=0.1).fit(inputs, Y, weights)
        fit_to_rest = inputs[rest][:, rest] if kernel == "precomputed" else inputs[rest]
        other = OperatorRidge(kernel, alpha=0.1).fit(fit_to_rest, Y[rest])
        seen = inputs[3:4, rest] if kernel == "precomputed" else inputs[3:4]
        np.testing.assert_allclose(model.loo_predict_[3], other.predict(seen)[0], atol=1e-9)


def test_rows_of_a_frame_are_objects(data):
    X, Y = data
    frame = pd.DataFrame(X, columns=list("abc"))

    def product(u, v):
        return float(u @ v)

    model = OperatorRidge(product, alpha=0.1).fit(frame, Y)
    np.testing.assert_allclose(model.predict(frame), OperatorRidge("linear", alpha=0.1).fit(X, Y).predict(X), atol=1e-8)


def test_a_fitted_model_is_independent_of_its_arguments(data):
    X, Y = data
    operator, scales = Dense(np.eye(3) + 0.5), np.array([1.0, 2.0, 3.0])
    kernel = Gaussian(scales)
    model = OperatorRidge(kernel, operator, alpha=0.1).fit(X, Y)
    before = model.predict(X)
    operator.set_params(matrix=np.eye(3))
    scales *= 5.0
    np.testing.assert_array_equal(model.predict(X), before)
    learnable = Gaussian(torch.tensor(1.0, dtype=torch.float64, requires_grad=True))
    with_tensor = OperatorRidge(learnable, alpha=0.1).fit(X, Y)
    np.testing.assert_allclose(with_tensor.predict(X), OperatorRidge(Gaussian(1.0), alpha=0.1).fit(X, Y).predict(X))


def test_kernels_by_name_have_parameters(data):
    X, Y = data
    assert OperatorRidge("rbf", fit_intercept=False).get_params()["kernel__lengthscale"] == "median"
    model = OperatorRidge("rbf", fit_intercept=False).set_params(kernel="matern", kernel__nu=2.5)
    assert model.kernel == Matern(2.5)
    grid = {"kernel": ["rbf", "matern"], "kernel__lengthscale": [0.5, 1.0]}
    search = GridSearchCV(OperatorRidge("rbf", alpha=0.1, fit_intercept=False), grid, cv=2).fit(X, Y)
    assert len(set(search.cv_results_["mean_test_score"])) == 4


def test_what_would_be_converted_silently_is_refused(data):
    X, Y = data
    dates = np.array(["2026-01-01"] * 40, dtype="datetime64[D]")
    _bad(data, r"X holds strings such as .*X.astype\(float\)", X=X.astype(str))
    _bad(data, "X holds dates or bytes such as", X=pd.DataFrame({"when": dates, "x": X[:, 0]}), kernel="rbf")
    _bad(data, "y holds dates or bytes such as '2026-01-01'", y=dates)
    _bad(data, r"y holds strings such as .*y.astype\(float\)", y=Y[:, 0].astype(str))
    _bad(data, r"X holds strings such as .*X.astype\(float\)", X=X.astype(str).astype(object))
    _bad(data, r"X holds strings such as .*X.astype\(float\)", X=pd.DataFrame(X).assign(a="3"), kernel="rbf")
    _bad(data, r"y holds strings such as .*y.astype\(float\)", y=pd.Series(["1"] * 40))
    _bad(data, "y holds dates or bytes such as", y=np.array([pd.Timestamp("2026-01-01")] * 40, dtype=object))
    _bad(data, "alpha must be a positive number", alpha=True)
    _bad(data, "is not to be had here", device="nowhere")
    OperatorRidge(verbose=True, tol=np.float32(1e-3)).fit(X, Y)
    labels = OperatorRidge("delta", alpha=0.1).fit(np.column_stack([X[:, 0] > 0, X[:, 1] > 0]), Y)
    with pytest.raises(ValueError, match="expecting 2 features"):
        labels.predict([[True, False, True]])


def test_indefinite_matrices_are_repaired_whatever_the_kernel(data):
    X, Y = data
    K = Gaussian(1.0)(X).numpy() - 0.02 * np.eye(len(X))
    for kernel in (Precomputed(), "auto" * Precomputed(), Separate([Precomputed()] * 3)):
        with pytest.warns(IndefiniteGramWarning):
            model = OperatorRidge(kernel).fit(K, Y)
        assert np.isfinite(model.loo_predict_).all()
        with pytest.raises(NotPositiveDefiniteError):
            OperatorRidge(kernel, alpha=5.0).fit(-K, Y)


def test_coupled_outputs_beyond_the_limit_are_chosen_on_a_subset(data, monkeypatch):
    for module in ("representer.samples.rows",):
        monkeypatch.setattr(f"{module}.DENSE_LIMIT", 60)
    with pytest.warns(UserWarning, match="chosen on 20 random samples"):
        model = OperatorRidge(CurlFree(1.0), random_state=0, fit_intercept=False).fit(*data)
    block = CurlFree(1.0).dense(torch.tensor(data[0]), None, 3).numpy()
    shift = model.alpha_ * 40 * np.eye(120)
    np.testing.assert_allclose(model.dual_coef_.ravel(), np.linalg.solve(block + shift, data[1].ravel()), atol=1e-8)
    with pytest.raises(ValueError, match="Use cross_val_predict"):
        model.loo_predict_  # noqa: B018
    assert np.isfinite(model.predict(data[0][:2], return_std=True)[1]).all()


def test_memory_estimates_follow_the_route(rng, monkeypatch):
    X = rng.normal(size=(400, 2))
    monkeypatch.setattr("representer.linalg.resources.BLOCK_BYTES", 50_000)  # less is not worth the question
    monkeypatch.setattr("representer.linalg.resources.available_bytes", lambda: 0.9 * 400 * 400 * 8)
    OperatorRidge("linear", fit_intercept=False).fit(X, X[:, 0])  # two features: nothing of size n × n
    with pytest.raises(MemoryError):
        OperatorRidge("rbf", alpha=0.1, fit_intercept=False).fit(X, X[:, 0])
    coupled = OperatorRidge("linear", Dense(np.eye(2) + 0.5), alpha=0.1, fit_intercept=False)
    coupled.fit(X, X)  # still only two features
    with pytest.raises(MemoryError):
        coupled.fit(X, np.where(rng.random(X.shape) < 0.1, np.nan, X))  # gaps in coupled outputs: the block matrix
    monkeypatch.setattr("representer.linalg.resources.available_bytes", lambda: 3.5 * 400 * 400 * 8)
    OperatorRidge("rbf", alpha=0.1, fit_intercept=False).fit(X, X)
    with pytest.raises(MemoryError):
        OperatorRidge(
            Separate([Gaussian(1.0), Linear(), Matern(0.5, 1.0), Laplacian(1.0)]), alpha=0.1, fit_intercept=False
        ).fit(X, np.hstack([X, X]))


def test_not_fitted():
    with pytest.raises(NotFittedError):
        OperatorRidge().predict([[1.0]])
    with pytest.raises(NotFittedError):
        OperatorRidge().loo_predict_  # noqa: B018


# -- intercepts and groups --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("missing", [False, True])
def test_groups_and_intercepts_equal_refits(data, rng, missing):
    X, Y = data
    Y = Y + 4.0
    if missing:
        Y = np.where(rng.random(Y.shape) < 0.2, np.nan, Y)
    w, groups = rng.uniform(0.5, 2.0, len(X)), np.array(list("abcdefgh"))[np.arange(len(X)) % 8]
    for operator in (None, Dense(np.eye(3) + 0.5)):
        model = OperatorRidge(Gaussian(1.0), operator, alpha=0.02, fit_intercept=True)
        model.fit(X, Y, w, groups=groups)
        for group in "abh":
            rest = groups != group
            alpha = 0.02 * w.sum() / w[rest].sum()  # without the group the ridge stays what it was
            left = clone(model).set_params(alpha=alpha).fit(X[rest], Y[rest], w[rest])
            np.testing.assert_allclose(model.loo_predict_[~rest], left.predict(X[~rest]), atol=1e-8)
        chosen = clone(model).set_params(alpha="auto").fit(X, Y, w, groups=groups)
        error = np.nansum(w[:, None] * (Y - chosen.loo_predict_) ** 2) / w.sum()
        assert chosen.criterion_value_ == pytest.approx(error)


def test_an_intercept_takes_a_shift_of_the_targets(data):
    X, Y = data
    options: Any = {"fit_intercept": True, "random_state": 0}
    for kernel, operator in (
        (Gaussian(1.0), None),
        (Gaussian("auto"), None),
        (Gaussian(1.0), "learn"),
        (CurlFree(1.0), None),
    ):
        one = OperatorRidge(kernel, operator, **options).fit(X, Y)
        two = OperatorRidge(kernel, operator, **options).fit(X, Y + 100.0)
        np.testing.assert_allclose(two.predict(X) - 100.0, one.predict(X), rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(two.intercept_ - 100.0, one.intercept_, rtol=1e-4, atol=1e-3)
    flat = OperatorRidge(Gaussian(1.0), **options).fit(X, Y[:, 0])
    assert np.ndim(flat.intercept_) == 0
    assert OperatorRidge(Gaussian(1.0), fit_intercept=False).fit(X, Y).intercept_.tolist() == [0.0, 0.0, 0.0]


def test_coefficients_where_targets_of_coupled_outputs_are_missing(data):
    """A system of the features of all samples: what a user sees are the coefficients of the features."""
    X, Y = data
    Y = Y.copy()
    Y[::5, 0] = np.nan
    for approximation in (RandomFeatures(15), Nystroem(12)):
        model = OperatorRidge(
            Gaussian(1.0),
            Dense(np.eye(3) + 0.5),
            alpha=0.02,
            approximation=approximation,
            random_state=0,
            fit_intercept=False,
        ).fit(X, Y)
        features = KernelFeatures(Gaussian(1.0), approximation, random_state=0).fit(X)
        B = features.transform(X)
        if model.landmarks_ is not None:
            B = Gaussian(1.0)(X, model.landmarks_).numpy()
        assert len(model.dual_coef_) == B.shape[1]
        np.testing.assert_allclose(B @ model.dual_coef_ @ (np.eye(3) + 0.5), model.predict(X), atol=1e-7)


def test_bad_groups_and_intercepts(data):
    X, Y = data
    cases: Any = [
        ({}, np.zeros(3), "one label for each"),
        ({"criterion": "gcv"}, np.zeros(len(X)), "knows no groups"),
        ({"fit_intercept": True}, np.zeros(len(X)), "n_groups=1: .* at least 2 are needed"),
        ({"fit_intercept": "yes"}, None, "fit_intercept must be True or False"),
    ]
    for options, groups, message in cases:
        with pytest.raises(ValueError, match=message):
            OperatorRidge(Gaussian(1.0), **options).fit(X, Y, groups=groups)


@pytest.mark.parametrize("approximation", [None, Nystroem(12), RandomFeatures(15)], ids=str)
def test_contributions_sum_to_predictions(data, approximation):
    """What each sample, landmark or feature adds to a prediction, beside the intercept."""
    X, Y = data
    model = OperatorRidge(
        Gaussian(1.0),
        Dense(np.eye(3) + 0.5),
        alpha=0.02,
        fit_intercept=True,
        approximation=approximation,
        random_state=0,
    ).fit(X, Y)
    terms = model.function_.contributions(X[:7]).numpy()
    assert terms.shape == (7, len(model.dual_coef_), 3)
    np.testing.assert_allclose(terms.sum(1) + model.intercept_, model.predict(X[:7]), atol=1e-9)


@pytest.mark.parametrize("kernel", [Gaussian(1.5), Gaussian("auto")], ids=repr)
def test_an_operator_is_learned_beside_the_kernel_and_then_with_the_gaps(rng, kernel, monkeypatch):
    """First by what the identity predicts in gaps; the steps that follow lower the error of known, left-out targets."""
    X = rng.normal(size=(60, 2))
    Y = np.sin(X[:, :1]) + [[0.0, 0.2, -0.3]] + 0.4 * rng.normal(size=(60, 3))
    gaps = rng.random(Y.shape) < 0.2
    missing = np.where(gaps, np.nan, Y)
    options = {"tol": 1e-10, "max_iter": 1000, "random_state": 0}
    identity = OperatorRidge(kernel, **options).fit(X, missing)
    completed = np.where(gaps, identity.predict(X), Y)
    complete = OperatorRidge(identity.kernel_, operator="learn", **options).fit(X, completed)
    learned = OperatorRidge(kernel, operator="learn", **options).fit(X, missing)
    with monkeypatch.context() as patch:
        patch.setattr("representer.problems.ridge.GAPPED_TARGETS", 0)
        first = OperatorRidge(kernel, operator="learn", **options).fit(X, missing)
    np.testing.assert_allclose(first.kernel_.lengthscale, identity.kernel_.lengthscale)
    np.testing.assert_allclose(first.operator_.matrix, complete.operator_.matrix, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(first.alpha_, complete.alpha_, rtol=1e-3)
    errors = [np.nanmean((model.loo_predict_ - missing) ** 2) for model in (learned, first)]
    assert errors[0] < errors[1]
    fixed = OperatorRidge(learned.kernel_, operator=learned.operator_, alpha=learned.alpha_).fit(X, missing)
    np.testing.assert_allclose(learned.predict(X), fixed.predict(X), atol=1e-8)  # the fit itself reads no prediction
