"""DeepKernelPCA: scikit-learn's contract, the equations of Tonin et al., their lemmas, new samples, bad input."""

from __future__ import annotations

import itertools
import pickle
import warnings
from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import torch
from contract import contract
from naive_deep_pca import extension_residual, residuals_9
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.decomposition import PCA, KernelPCA
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tiers import tiers

import representer
from representer import CollapsedComponentWarning, DeepKernelPCA
from representer.approximation import Nystroem, RandomFeatures
from representer.estimators.validation import seed_of
from representer.kernels import (
    Constant,
    Gaussian,
    Matern,
    Polynomial,
    Spectrum,
)
from representer.operators import Representation
from representer.optimize import SearchSettings, search
from representer.optimize.stiefel import StalledError
from representer.problems import levels
from representer.problems.levels import SHARPNESS, WIDTHS, LevelModel, LevelSearch, LevelsProblem
from representer.samples import Block, InMemory

NO_GRAM = {"check_positive_only_tag_during_fit": "a random matrix is no Gram matrix: it is refused as indefinite"}
CHECKED = {
    # blobs need no second component: nothing shall collapse
    "two levels": (DeepKernelPCA([2, 1], eta=[1.0, 100.0]), {}),
    "closed form": (DeepKernelPCA([2, 1], ["rbf", "linear"]), {}),
    "trimmed": (DeepKernelPCA(1, "linear", trim=0.1), {}),
    "precomputed": (DeepKernelPCA([1, 1], ["precomputed", "linear"]), NO_GRAM),
}


@contract(CHECKED, quick=["closed form", "trimmed"])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture
def X(rng):
    return rng.standard_normal((60, 4)) * [2.0, 1.0, 1.0, 0.5]


def gram_of(model, X):
    """K_1 as the model sees it."""
    K = model.kernel_[0](X).numpy()
    if model.center:
        C = np.eye(len(K)) - 1.0 / len(K)
        K = C @ K @ C
    return K


# -- the equations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernels", "eta", "sizes"),
    tiers(
        [
            (["rbf", Gaussian(1.0)], 1.0, [4, 3]),
            (["rbf", Gaussian("median")], 1.0, [3, 2]),
            (["rbf", Polynomial(2), Gaussian(1.0)], [1.0, 2.0, 3.0], [4, 3, 2]),
            (["linear", Gaussian(0.7)], [1.0, -2.0], [3, 2]),
            (["rbf", Matern(1.5, 1.0)], 1.0, [3, 2]),
        ],
        lambda case: not isinstance(case[0][1], Matern) and case[1:] != (1.0, [3, 2]),
    ),
    ids=str,
)
@pytest.mark.parametrize("center", tiers([True, "data"], lambda center: center is True))
def test_solutions_satisfy_equation_6_literally(X, kernels, eta, sizes, center):
    X = X[:25]  # the Jacobian in full is slow
    model = DeepKernelPCA(sizes, kernels, eta=eta, center=center).fit(X)
    equations = model.hidden_, model.eigenvalues_, model.kernel_[1:], model.eta_
    pairs = residuals_9(gram_of(model, X), *equations, center is True)
    relative = [defect / size for defect, size in pairs]
    assert max(relative) <= 1e-8
    assert model.residual_ == pytest.approx(max(relative), abs=1e-11)
    for H, values, sign in zip(model.hidden_, model.eigenvalues_, np.sign(model.eta_), strict=True):
        assert np.allclose(H.T @ H, np.eye(H.shape[1]), atol=1e-12)
        assert (np.diff(sign * values) <= 1e-9 * np.abs(values).max()).all()
        assert (H[np.abs(H).argmax(0), np.arange(H.shape[1])] > 0).all()


# -- special cases ----------------------------------------------------------------------------------------------------
def test_one_level_is_kernel_pca(X):
    model = DeepKernelPCA(4, Gaussian(1.3)).fit(X)
    reference = KernelPCA(4, kernel="rbf", gamma=1 / (2 * 1.3**2)).fit(X)
    assert np.allclose(model.eigenvalues_[0], reference.eigenvalues_, rtol=1e-10)
    signs = np.sign((model.hidden_[0] * reference.eigenvectors_).sum(0))
    assert np.allclose(model.hidden_[0], signs * reference.eigenvectors_, atol=1e-8)
    new = X[:7] + 0.1
    scores = model.transform(new) * np.sqrt(model.eigenvalues_[0])
    assert np.allclose(scores, signs * reference.transform(new), atol=1e-8)
    total = np.trace(gram_of(model, X))
    assert np.allclose(model.explained_variance_ratio_[0], reference.eigenvalues_ / total)


def test_one_level_is_kernel_pca_where_the_spectrum_is_flat(rng):
    X = rng.normal(size=(400, 1500))
    model = DeepKernelPCA(6, Gaussian(40.0)).fit(X)
    reference = KernelPCA(6, kernel="rbf", gamma=1 / (2 * 40.0**2), eigen_solver="dense").fit(X)
    signs = np.sign((model.hidden_[0] * reference.eigenvectors_).sum(0))
    assert np.abs(model.hidden_[0] - signs * reference.eigenvectors_).max() <= 1e-9


@pytest.mark.parametrize("init", ["levelwise", "random"])
@pytest.mark.parametrize("solver", ["scf", "riemannian"])
def test_a_linear_second_level_has_a_closed_form(X, solver, init):
    closed = DeepKernelPCA([4, 2], ["rbf", "linear"], eta=[1.0, 0.5]).fit(X)
    search = DeepKernelPCA([4, 2], ["rbf", "linear"], eta=[1.0, 0.5], solver=solver, init=init, random_state=3)
    search.fit(X)
    levelwise = DeepKernelPCA([4, 2], ["rbf", "linear"], eta=[1.0, 0.5], solver="levelwise").fit(X)
    assert (closed.solver_, search.residual_ <= 1e-8) == ("closed_form", True)
    assert search.energy_ == pytest.approx(closed.energy_, rel=1e-10)
    assert closed.energy_ >= levelwise.energy_ * (1 - 1e-12)
    values, vectors = np.linalg.eigh(gram_of(closed, X))
    leading = vectors[:, ::-1][:, :4]
    assert np.allclose(search.hidden_[0] @ search.hidden_[0].T, leading @ leading.T, atol=1e-6)
    assert closed.energy_ == pytest.approx(0.5 * values[-4:].sum() + 0.5 * 2 / 0.5)


def test_linear_levels_solve_the_alternating_eigenvalue_problems_13(X):
    for eta in (1.0, [1.0, -50.0]):
        model = DeepKernelPCA([3, 2], "linear", eta=eta, center=False).fit(X)
        H1, H2 = model.hidden_
        e1, e2 = model.eta_
        assert np.allclose((X @ X.T / e1 + H2 @ H2.T / e2) @ H1, H1 * model.eigenvalues_[0], atol=1e-8)
        assert np.allclose(H1 @ H1.T / e2 @ H2, H2 * model.eigenvalues_[1], atol=1e-8)


@pytest.mark.parametrize("sigma", [0.2, 1.0])
def test_the_energy_is_never_below_that_of_levelwise(X, sigma):
    kernels = ["rbf", Gaussian(sigma)]
    levelwise = DeepKernelPCA([3, 2], kernels, solver="levelwise").fit(X)
    for init in ("levelwise", "random"):
        model = DeepKernelPCA([3, 2], kernels, init=init, random_state=0).fit(X)
        assert model.residual_ <= 1e-8
        assert model.energy_ > levelwise.energy_
    assert levelwise.residual_ > 1e-6  # it does not know the level above


def test_the_first_sweep_moves_from_a_start_that_is_nearly_right(rng):
    model = DeepKernelPCA([5, 5], ["rbf", Gaussian(1.0)], eta=[1.0, 50.0], tol=1e-8)
    residuals = [entry.gradient_norm for entry in model.fit(rng.standard_normal((200, 20))).history_]
    assert residuals[0] < 1e-3 and residuals[1] < 0.1 * residuals[0] and residuals[-1] <= 1e-8


def test_newton_steps_end_at_the_tolerance(X):
    for tol in (1e-6, 1e-8):
        model = DeepKernelPCA([3, 3], ["rbf", Gaussian(1.0)], solver="riemannian", tol=tol).fit(X)
        assert 1e-2 * tol < model.residual_ <= tol


def test_small_bandwidths_fall_back_on_the_riemannian_method(X):
    wide = DeepKernelPCA([3, 2], ["rbf", Gaussian(1.0)], eta=[1.0, 20.0], solver="scf").fit(X)
    narrow = DeepKernelPCA([3, 2], ["rbf", Gaussian(0.15)], solver="scf").fit(X)
    assert (wide.solver_, narrow.solver_) == ("scf", "riemannian")
    assert max(wide.residual_, narrow.residual_) <= 1e-8
    same = DeepKernelPCA([3, 2], ["rbf", Gaussian(1.0)], eta=[1.0, 20.0], solver="riemannian").fit(X)
    assert same.energy_ == pytest.approx(wide.energy_, rel=1e-12)
    assert np.allclose(same.hidden_[1], wide.hidden_[1], atol=1e-5)


def test_newton_reaches_saddles_of_three_nonlinear_levels():
    """MINRES lowers the gradient in the norm of its preconditioner; in the Euclidean one the search stalls at 2e-4."""
    X = np.random.default_rng(0).standard_normal((30, 4)) * [2.0, 1.0, 1.0, 0.5]
    kernels, eta = ["rbf", Gaussian(1.0), Gaussian(0.5)], [1.0, -2.0, -1.0]
    model = DeepKernelPCA([3, 2, 1], kernels, eta=eta, center="data").fit(X)
    assert (model.solver_, model.residual_ <= 1e-8) == ("riemannian", True)


def test_a_component_that_the_level_above_outweighs_is_reported():
    X, _ = make_blobs(30, centers=[[0, 0, 0], [1, 1, 1]], cluster_std=0.1, random_state=0)
    with pytest.warns(CollapsedComponentWarning, match="Component 1 of level 0 is the same for all samples"):
        model = DeepKernelPCA([2, 1], center="data").fit(X)
    assert model.residual_ <= 1e-8
    DeepKernelPCA([2, 1]).fit(X)  # centred levels do not ask for a constant


@pytest.mark.parametrize("solver", ["projected_gradient", "riemannian_adam"])
def test_the_solvers_of_the_paper_descend_on_9_and_stall_above_ours(X, solver):
    arguments = {"n_components": [3, 2], "kernel": ["rbf", Gaussian(1.0)]}
    start = DeepKernelPCA(**arguments, solver="levelwise").fit(X)
    ours = DeepKernelPCA(**arguments).fit(X)
    with pytest.warns(ConvergenceWarning, match=f"{solver}: not converged"):
        theirs = DeepKernelPCA(**arguments, solver=solver, max_iter=60).fit(X)
    assert theirs.solver_ == solver
    assert ours.residual_ < 1e-8 < theirs.residual_ < start.residual_
    assert np.allclose(theirs.hidden_[0].T @ theirs.hidden_[0], np.eye(3), atol=1e-10)


def test_residual_minimisation_keeps_any_eigenvectors(X):
    """Slip (b): with linear k₂ and a random start, equation (9) is small at eigenvectors that are not leading."""
    arguments = {"n_components": [2, 2], "kernel": ["linear", "linear"], "init": "random", "random_state": 1}
    with pytest.warns(ConvergenceWarning):
        theirs = DeepKernelPCA(**arguments, solver="projected_gradient", max_iter=150).fit(X)
    assert theirs.energy_ < 0.9 * DeepKernelPCA(**arguments, solver="scf").fit(X).energy_


# -- choices ----------------------------------------------------------------------------------------------------------
def test_shares_of_a_variance_that_cancels_are_not_a_number(rng):
    # M_1 = K_1 − I: N eigenvalues of both signs, and the trace of K_1 is N.
    X = rng.standard_normal((12, 3))
    model = DeepKernelPCA([12, 12], ["rbf", "linear"], eta=[1.0, -1.0], center=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model.fit(X)
    assert np.isnan(model.explained_variance_ratio_[0]).all()
    assert np.allclose(model.eigenvalues_[0] + 1.0, np.linalg.eigvalsh(Gaussian("median")(X))[::-1])
    one_less = DeepKernelPCA([11, 11], ["rbf", "linear"], eta=[1.0, -1.0], center=False).fit(X)
    assert np.isfinite(one_less.explained_variance_ratio_[0]).all()


def test_the_score_is_that_of_pca_where_that_is_the_model(X):
    pca = PCA(3).fit(X[:40])
    held_out = X[40:]
    error = ((held_out - pca.inverse_transform(pca.transform(held_out))) ** 2).sum()
    expected = 1 - error / ((held_out - pca.mean_) ** 2).sum()
    assert DeepKernelPCA(3, "linear").fit(X[:40]).score(held_out) == pytest.approx(expected)
    K = X @ X.T
    by_gram = DeepKernelPCA(3, "precomputed").fit(K[:40, :40])
    assert by_gram.score(K[:40, :40]) == pytest.approx(DeepKernelPCA(3, "linear").fit(X[:40]).score(X[:40]))


def test_grids_over_nested_lengthscales(X):
    search = GridSearchCV(DeepKernelPCA([3, 2], ["rbf", "linear"]), {"kernel__0__lengthscale": [0.3, 2.0]}, cv=3)
    search.fit(X)
    assert search.best_params_ == {"kernel__0__lengthscale": 2.0}
    single = DeepKernelPCA([3, 2], "rbf").set_params(kernel__lengthscale=1.5)
    assert single.kernel == Gaussian(1.5)
    by_name = DeepKernelPCA([3, 2, 2], ["rbf", "rbf", "rbf"]).set_params(kernel__0__lengthscale=0.5)
    assert by_name.kernel == [Gaussian(0.5), "rbf", "rbf"]  # the others still stand for a lengthscale of 1
    assert by_name.fit(X).kernel_[1:] == [Gaussian(1.0), Gaussian(1.0)]
    one = DeepKernelPCA([3, 2], "matern").set_params(kernel__1__nu=1.5)
    assert one.kernel == ["matern", Matern(1.5, 1.0)]
    assert single.set_params(kernel__0__lengthscale=0.7).kernel == [Gaussian(0.7), Gaussian(1.5)]
    assert DeepKernelPCA(2).set_params(kernel__0__lengthscale=0.7).kernel == [Gaussian(0.7)]
    with pytest.raises(ValueError, match="Invalid parameter 'kernel__7__lengthscale'"):
        DeepKernelPCA([3, 2], ["rbf", "rbf"]).set_params(kernel__7__lengthscale=1.0)


def test_suggested_architectures_hold_the_variance(X):
    found = DeepKernelPCA([2, 2], "rbf").suggest_architecture(X, variance=0.8, max_levels=3)
    values = np.linalg.eigvalsh(gram_of(DeepKernelPCA(2, "rbf").fit(X), X))[::-1]
    alone = int((values.cumsum() / values.sum() < 0.8).sum()) + 1
    assert DeepKernelPCA(2, "rbf").suggest_architecture(X, variance=0.8, max_levels=1).n_components == [alone]
    assert len(found.n_components) == len(found.explained_variance_ratio) <= 3
    model = DeepKernelPCA(found.n_components, "rbf").fit(X)
    for ratios in model.explained_variance_ratio_:
        assert ratios.sum() >= 0.8
    assert "holds" in found.reason
    literal = DeepKernelPCA([2, 2], "rbf", center="data").suggest_architecture(X, variance=0.8, max_levels=3)
    assert literal.n_components == [alone + 1, 1]  # a constant holds the variance of levels that are not centred
    fewer = DeepKernelPCA([alone, 1], "rbf", center="data").fit(X)
    assert fewer.explained_variance_ratio_[0].sum() < 0.8
    assert literal.explained_variance_ratio[-1][0] >= 0.8
    with pytest.raises(ValueError, match="variance must be a share"):
        DeepKernelPCA([2, 2]).suggest_architecture(X, variance=2.0)


@pytest.mark.parametrize("sampling", ["uniform", "leverage", "entropy"])
def test_a_subset_and_the_rest_by_extension(X, sampling):
    model = DeepKernelPCA([2, 2], ["rbf", "linear"], approximation=Nystroem(30, sampling), random_state=0).fit(X)
    assert model.hidden_[0].shape == (30, 2)
    assert np.array_equal(model.X_fit_, X[model.subset_])
    full = DeepKernelPCA([2, 2], ["rbf", "linear"]).fit(X[model.subset_])
    H = DeepKernelPCA([2, 2], ["rbf", "linear"], approximation=Nystroem(30, sampling), random_state=0).fit_transform(X)
    assert np.allclose(H[model.subset_], np.concatenate(full.hidden_, 1), atol=1e-6)
    assert len(H) == 60


def test_rare_samples_are_chosen_more_often_by_leverage_and_entropy(rng):
    X = np.concatenate([rng.standard_normal((90, 2)) * 0.1, rng.uniform(-5, 5, (10, 2))])
    kernel = Gaussian(0.5)
    rare = {
        sampling: sum(
            int((Nystroem(12, sampling).samples(kernel, kernel.prepare(X), seed=seed) >= 90).sum()) for seed in range(5)
        )
        for sampling in ("uniform", "leverage", "entropy")
    }
    assert rare["uniform"] < rare["leverage"] < rare["entropy"]
    with pytest.raises(ValueError, match="from 1 to the number of samples, 100"):
        Nystroem(101).samples(kernel, kernel.prepare(X), seed=0)


# -- outliers ---------------------------------------------------------------------------------------------------------
def distances_written_out(X, rows, size):
    """‖(I − P)(x − m)‖² of all rows for the components P and the mean m of some of them, by a decomposition of X."""
    mean = X[rows].mean(0)
    V = np.linalg.svd(X[rows] - mean)[2][:size]
    return ((X - mean - (X - mean) @ V.T @ V) ** 2).sum(1)


def sine_of_angle(model, clean, X):
    """The sine of the largest angle between what two models find in clean samples."""
    bases = [np.linalg.qr(m.transform(X) - m.transform(X).mean(0))[0] for m in (model, clean)]
    return float(np.sqrt(max(0.0, 1.0 - np.linalg.svd(bases[0].T @ bases[1])[1].min() ** 2)))


@pytest.fixture(params=["scattered", "one direction"])
def contaminated(request, rng):
    """100 samples near a plane, of which the last ten are gross outliers."""
    X = rng.standard_normal((100, 6)) * [5.0, 3.0, 0.3, 0.3, 0.3, 0.3]
    away = rng.standard_normal((10, 6)) * [1, 1, 9, 9, 9, 9] if request.param == "scattered" else [0, 0, 30, 0, 0, 0]
    X[90:] = X[90:] + away
    return X


def test_trimmed_components_are_those_of_the_samples_without_outliers(contaminated):
    X, clean = contaminated, DeepKernelPCA(2, "linear").fit(contaminated[:90])
    trimmed, plain_fit = (DeepKernelPCA(2, "linear", trim=trim).fit(X) for trim in (0.1, 0.0))
    assert np.array_equal(trimmed.subset_, np.arange(90))
    assert sine_of_angle(trimmed, clean, X[:90]) < 1e-6
    assert sine_of_angle(plain_fit, clean, X[:90]) > 0.3
    far = np.concatenate([X[:90], 1e5 * X[90:]])
    assert np.array_equal(DeepKernelPCA(2, "linear", trim=0.1).fit(far).subset_, np.arange(90))
    more = DeepKernelPCA(2, "linear", trim=0.3).fit(X)
    assert more.subset_.max() < 90
    assert sine_of_angle(more, clean, X[:90]) < 0.05
    distances = distances_written_out(X, more.subset_, 2)
    assert np.array_equal(np.sort(np.argsort(distances)[:70]), more.subset_)  # no step of concentration is left


def test_trimming_reaches_the_least_sum_over_all_sets_where_outliers_are_gross(rng):
    for _ in range(5):
        X = rng.standard_normal((9, 3)) * [3.0, 1.0, 1.0]
        X[:2] += [[0, 12, 0], [0, 0, 12]]
        sums = {rows: distances_written_out(X, list(rows), 1)[list(rows)].sum() for rows in combinations(range(9), 7)}
        model = DeepKernelPCA(1, "linear", trim=0.2).fit(X)
        assert tuple(model.subset_) == min(sums, key=sums.get)


def test_without_outliers_trimmed_components_are_nearly_the_same(rng):
    X = rng.standard_normal((100, 6)) * [5.0, 3.0, 0.3, 0.3, 0.3, 0.3]
    models = [DeepKernelPCA(2, "linear", trim=trim).fit(X) for trim in (0.1, 0.0)]
    assert sine_of_angle(*models, X) < 0.05


@pytest.mark.parametrize("kernel", ["auto", ["rbf", Gaussian(1.0)], ["rbf", "linear"]], ids=str)
def test_trimmed_levels_are_levels_of_the_others(contaminated, kernel, tmp_path):
    model = DeepKernelPCA([2, 2], kernel, trim=0.1).fit(contaminated)
    assert (model.subset_ < 90).sum() >= 85  # A Gaussian kernel also sees samples at the rim as rare.
    alone = DeepKernelPCA([2, 2], [model.kernel_[0], model.kernel_[1]]).fit(contaminated[model.subset_])
    for own, others in zip(model.hidden_, alone.hidden_, strict=True):
        assert np.allclose(own, others, atol=1e-6)
    H = model.transform(contaminated)
    assert np.allclose(H[model.subset_], np.concatenate(model.hidden_, 1), atol=1e-6)
    model.save(tmp_path / "levels")
    assert np.array_equal(representer.load(tmp_path / "levels").transform(contaminated), H)


def test_trimming_knows_its_limits(X):
    assert np.array_equal(DeepKernelPCA(2, trim=0.0).fit(X).subset_, np.arange(60))
    flat = DeepKernelPCA(2, "linear", trim=0.1).fit(X[:, :2])  # Two components leave nothing of any sample:
    middle = np.quantile(((X[:, None, :2] - X[:, :2]) ** 2).sum(2), 0.5, axis=1, method="lower")
    assert np.array_equal(flat.subset_, np.sort(np.argsort(middle)[:54]))  # those near most others stay.
    assert len(DeepKernelPCA([0.8, 1], "rbf", trim=0.1, approximation=Nystroem(30)).fit(X).subset_) == 27
    for trim in (0.5, -0.1, True, "auto"):
        with pytest.raises(ValueError, match="trim must be a share from 0 to less than a half"):
            DeepKernelPCA(2, trim=trim).fit(X)
    with pytest.raises(ValueError, match="a precomputed Gram matrix has a column for each"):
        DeepKernelPCA(2, "precomputed", trim=0.1).fit(X @ X.T)


# -- new samples ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "model",
    [
        DeepKernelPCA([4, 3]),
        DeepKernelPCA([4, 3], ["rbf", Gaussian("median")]),
        DeepKernelPCA([4, 3], ["rbf", Gaussian(1.0)], center=False),
        DeepKernelPCA([4, 2], ["rbf", "linear"]),
        DeepKernelPCA([3, 3, 2], ["rbf", Polynomial(2), Gaussian(1.0)]),
        DeepKernelPCA([3, 2], ["rbf", Gaussian(1.0)], eta=[1.0, -2.0]),
        DeepKernelPCA([3, 2], solver="levelwise"),
    ],
    ids=str,
)
def test_training_samples_keep_their_hidden_features(X, model):
    model = clone(model).fit(X)
    together = np.concatenate(model.hidden_, 1)
    assert np.abs(model.transform(X) - together).max() <= 1e-6
    assert np.abs(model.transform(X[5:9]) - together[5:9]).max() <= 1e-6
    assert np.abs(model.transform(X, level=1) - model.hidden_[1]).max() <= 1e-6
    new = X[:10] + 0.05
    assert np.abs(model.transform(new) - together[:10]).max() < 0.2
    assert np.allclose(model.transform(new)[:3], model.transform(new[:3]), atol=1e-8)


def test_the_extension_with_linear_k2_is_the_formula_of_appendix_a2(X):
    """With 1/η₂² where the paper prints 1/η₂, and H₁ᵀH₂ where it prints its transpose."""
    e1, e2 = 1.5, 0.5
    model = DeepKernelPCA([4, 2], ["rbf", "linear"], eta=[e1, e2], center=False).fit(X)
    new = X[:5] + 0.3
    k = model.kernel_[0](new, X).numpy().T
    H1, H2 = model.hidden_
    L1, L2 = map(np.diag, model.eigenvalues_)
    inner = H2.T @ H1 @ np.linalg.inv(L1)
    h2 = np.linalg.solve(L2 - inner @ H1.T @ H2 / e2**2, inner @ H1.T @ k / (e1 * e2))
    h1 = np.linalg.solve(L1, H1.T @ k / e1 + H1.T @ H2 @ h2 / e2)
    assert np.allclose(model.transform(new), np.concatenate([h1, h2]).T, atol=1e-10)


@pytest.mark.parametrize(
    ("upper", "center"),
    tiers(
        itertools.product(
            [[Gaussian(0.3)], [Gaussian("median")], [Polynomial(2, 1.0), Gaussian(0.5)]], [True, "data", False]
        ),
        lambda case: (case[1] is True) != (case[0] == [Gaussian(0.3)]),  # each at least once
    ),
    ids=str,
)
def test_new_samples_satisfy_their_equations_written_out(X, upper, center):
    sizes = [3, 2, 2][: len(upper) + 1]
    model = DeepKernelPCA(sizes, ["rbf", *upper], eta=[1.0, 1.5, 2.0][: len(sizes)], center=center).fit(X)
    new = X[:3] + 0.15
    K, k = model.kernel_[0](X).numpy(), model.kernel_[0](new, X).numpy()
    if center:
        k = k - k.mean(1, keepdims=True) - K.mean(0) + K.mean()
    levels = [model.transform(new, level=j) for j in range(len(sizes))]
    equations = model.hidden_, model.eigenvalues_, model.kernel_[1:], model.eta_
    for i in range(3):
        sides = extension_residual(k[i], *equations, [h[i] for h in levels], center is True)
        for side, values in zip(sides, model.eigenvalues_, strict=True):
            assert np.abs(side).max() <= 1e-7 * np.abs(values).max()


def test_upper_levels_are_kernel_pca_of_the_level_below(X):
    model = DeepKernelPCA([4, 3], ["rbf", Gaussian(0.2)], solver="levelwise").fit(X)
    reference = KernelPCA(3, kernel="rbf", gamma=1 / (2 * 0.2**2)).fit(model.hidden_[0])
    assert np.allclose(model.eigenvalues_[1], reference.eigenvalues_, rtol=1e-8)
    signs = np.sign((model.hidden_[1] * reference.eigenvectors_).sum(0))
    assert np.allclose(model.hidden_[1], signs * reference.eigenvectors_, atol=1e-7)
    new = X[:7] + 0.1
    scores = model.transform(new, level=1) * np.sqrt(model.eigenvalues_[1])
    assert np.allclose(scores, signs * reference.transform(model.transform(new, level=0)), atol=1e-7)
    C = np.eye(60) - 1.0 / 60
    total = np.trace(C @ Gaussian(0.2)(model.hidden_[0]).numpy() @ C)
    assert np.allclose(model.explained_variance_ratio_[1], model.eigenvalues_[1] / total)
    by_share = DeepKernelPCA([4, 0.8], ["rbf", Gaussian(0.2)], solver="levelwise").fit(X)
    spectrum = np.linalg.eigvalsh(C @ Gaussian(0.2)(by_share.hidden_[0]).numpy() @ C)[::-1]
    assert by_share.n_components_[1] == int((spectrum.cumsum() / spectrum.sum() < 0.8).sum()) + 1


def test_no_component_of_a_centred_level_is_a_constant(X):
    centred, uncentred = (DeepKernelPCA([5, 3], ["rbf", Gaussian(1.0)], center=c).fit(X) for c in (True, "data"))
    constant = np.full(60, 60**-0.5)
    assert np.abs(constant @ np.hstack(centred.hidden_)).max() <= 1e-8
    assert np.abs(constant @ uncentred.hidden_[1][:, 0]) > 0.999
    assert uncentred.explained_variance_ratio_[1][0] > 0.9 > 0.5 > centred.explained_variance_ratio_[1][0]
    assert centred.traverse(0, level=1).std(0).max() > 3 * uncentred.traverse(0, level=1).std(0).max()


def test_features_of_centred_levels_are_rebuilt_around_their_mean(X):
    X = X[:20]
    model = DeepKernelPCA([1, 19], [Gaussian(1.3), Gaussian(0.02)], solver="levelwise", preimage="gradient").fit(X)
    assert np.allclose(model.hidden_[1] @ model.hidden_[1].T, np.eye(20) - 1 / 20, atol=1e-8)  # all that there is
    back = model.inverse_transform(model.hidden_[1]), model.inverse_transform(model.hidden_[0], level=0)
    assert np.allclose(*back, atol=1e-4)


def test_new_samples_satisfy_a1(X):
    model = DeepKernelPCA([3, 2], ["rbf", Gaussian(0.8)], eta=[1.0, 1.5], center=False).fit(X)
    new = X[:6] + 0.2
    h1, h2 = model.transform(new, level=0), model.transform(new, level=1)
    H1, H2 = model.hidden_
    for i in range(6):
        k1 = model.kernel_[0](new[i : i + 1], X).numpy()[0]
        k2 = np.array([np.exp(-((h1[i] - h) ** 2).sum() / (2 * 0.8**2)) for h in H1])
        slope = sum(-(h1[i] - h) / 0.8**2 * k * (g @ h2[i]) for h, k, g in zip(H1, k2, H2, strict=True))
        assert np.allclose(model.eigenvalues_[0] * h1[i], H1.T @ k1 + slope / 1.5, atol=1e-8)
        assert np.allclose(model.eigenvalues_[1] * h2[i], H2.T @ k2 / 1.5, atol=1e-8)


def test_the_smoother_has_the_width_that_is_best_for_samples_left_out(X):
    model = DeepKernelPCA([2, 2], Gaussian(3.0), extension="smoother").fit(X)
    H, errors = np.hstack(model.hidden_), {}
    for power in SHARPNESS:
        narrow = Gaussian(3.0 / np.sqrt(power))
        left_out = []
        for i in range(len(X)):
            others = np.delete(np.arange(len(X)), i)
            k = np.exp(-((X[others] - X[i]) ** 2).sum(1) / (2 * narrow.lengthscale**2) + 0.0)
            k = k if k.sum() > 0 else np.eye(len(others))[((X[others] - X[i]) ** 2).sum(1).argmin()]
            left_out.append(k @ H[others] / k.sum())
        errors[power] = ((np.array(left_out) - H) ** 2).sum()
    assert model.function_.sharpness == min(errors, key=errors.get)
    first = replace(model.function_, sharpness=1.0)
    exact = replace(model.function_, extension="exact")
    new = X[:20] + 0.1
    assert (model.function_(new) - exact(new)).norm() < 0.5 * (first(new) - exact(new)).norm()


def test_the_width_of_the_first_kernel_is_that_of_cross_validation(X):
    model = DeepKernelPCA([2, 2], "auto", random_state=0)
    problem = LevelsProblem(
        InMemory(Block(X, torch.zeros(60, 0))),
        LevelModel.of([2, 2], "auto", 1.0),
        LevelSearch("auto", SearchSettings(seed=seed_of(0))),
        Representation(torch.float64),
    ).settled()
    median = Gaussian("median").resolve(torch.from_numpy(X)).lengthscale
    parts = np.array_split(np.random.default_rng(0).permutation(60), 3)
    errors = {}
    for width in WIDTHS:
        by_hand = DeepKernelPCA([2, 2], [Gaussian(float(width * median)), "rbf"], solver="levelwise")
        found = []
        for i, test in enumerate(parts):
            rows = np.concatenate([*parts[:i], *parts[i + 1 :]])
            Z, Q = by_hand.fit(X[rows]).transform(X[rows]), by_hand.transform(X[test])
            line = LinearRegression().fit(Z, X[rows])
            found.append(((X[test] - line.predict(Q)) ** 2).sum(1))
        errors[width] = np.concatenate(found)
    best = min(errors.values(), key=np.mean)
    within = [w for w, e in errors.items() if (e - best).mean() <= (e - best).std(ddof=1) / np.sqrt(60)]
    assert problem.model.kernels[0].lengthscale == pytest.approx(float(min(within) * median))
    assert model.fit(X).kernel_ == [problem.model.kernels[0], Gaussian(1.0)]
    assert DeepKernelPCA([2, 2], "rbf").fit(X).kernel_[0].lengthscale == pytest.approx(float(median))


def test_the_smoother_is_a_weighted_mean(X):
    model = DeepKernelPCA([2, 2], Gaussian(1.0), extension="smoother").fit(X)
    new = X[:4] + 0.1
    power = model.function_.sharpness
    weights = Gaussian(1.0 / np.sqrt(power))(new, X).numpy()
    expected = weights @ np.concatenate(model.hidden_, 1) / weights.sum(1, keepdims=True)
    assert np.allclose(model.transform(new), expected)
    with pytest.raises(ValueError, match="negative for some samples"):
        DeepKernelPCA([2, 2], ["linear", "rbf"], extension="smoother").fit(X).transform(X)


def test_the_smoother_says_that_samples_are_too_far_away(X):
    model = DeepKernelPCA([2, 2], Gaussian(1.0), extension="smoother").fit(X)
    with pytest.raises(ValueError, match="between 3 of 4 new samples and all training samples: they are too far"):
        model.transform(np.concatenate([X[:3] + 1e4, X[:1]]))


@pytest.mark.filterwarnings("ignore:Samples .* are the same")  # arbitrary columns tell duplicates apart
@pytest.mark.parametrize("solver", ["auto", "scf", "levelwise"])
@pytest.mark.parametrize(
    ("sizes", "kernels", "message"),
    [
        ([6], "linear", "Level 0 has only 4 components with variance"),
        ([3, 6], "linear", "Level 1 has only 3 components with variance"),
        ([6, 6], "linear", "Level 0 has only 4"),
        ([8, 2], "rbf", "Level 0 has only 4"),
    ],
)
def test_components_without_variance_are_reported_and_zero(X, sizes, kernels, message, solver):
    X = np.repeat(X[:5], 6, axis=0) if kernels == "rbf" else X[:40]
    model = DeepKernelPCA(sizes, kernels, solver=solver)
    with pytest.warns(CollapsedComponentWarning, match=message):
        together = model.fit_transform(X)
    assert np.allclose(together, model.transform(X), atol=1e-6)
    for H in model.hidden_:
        assert np.allclose(H.T @ H, np.eye(H.shape[1]), atol=1e-10)
    if kernels == "linear":  # what has variance is kept
        s = min(*sizes, 4) if len(sizes) > 1 else 4
        kept = np.linalg.svd(X - X.mean(0), full_matrices=False).U[:, :s]
        assert np.allclose(together[:, :s], kept @ (kept.T @ model.hidden_[0][:, :s]), atol=1e-8)


@pytest.mark.parametrize(
    ("sizes", "kernels", "options", "scale"),
    [
        ([2, 4, 4], [Gaussian(2.0), "linear", "linear"], {}, 1.0),
        ([6, 5], "linear", {}, 1.0),
        ([6, 5], "linear", {"eta": [1.0, -3.0]}, 1.0),
        ([3, 2], ["linear", "rbf"], {"center": False}, 1e-7),
    ],
)
def test_what_transform_gives_otherwise_than_hidden_is_said(X, sizes, kernels, options, scale):
    X = scale * X[:, :4]
    model = DeepKernelPCA(sizes, kernels, **options)
    with pytest.warns(CollapsedComponentWarning, match="arbitrary in hidden_ and 0 in transform"):
        together = model.fit_transform(X)
    assert np.allclose(together, model.transform(X), atol=1e-10)
    assert not np.allclose(together, np.concatenate(model.hidden_, 1), atol=1e-3)
    if "eta" in options:  # between linear levels of opposite signs, what is arbitrary below is not told apart above
        return
    line = model.transform(X[0] + np.linspace(0.0, 1.0, 401)[:, None] * (X[1] - X[0]))
    assert np.abs(np.diff(line, axis=0)).max() < 0.05


def test_components_that_the_level_above_makes_are_in_transform(X):
    model = DeepKernelPCA([3, 2], ["rbf", "poly"], eta=[1.0, 1e-8])
    with pytest.warns(CollapsedComponentWarning, match="the others are made by the levels above"):
        model.fit(X)
    assert np.allclose(model.transform(X), np.concatenate(model.hidden_, 1), atol=1e-6)


def test_nonlinear_levels_have_no_more_components_than_samples_together(X):
    with pytest.raises(ValueError, match="are 50 in all levels together, but there are only 40 samples"):
        DeepKernelPCA([30, 20], ["rbf", "rbf"]).fit(X[:40])


def test_samples_that_overflow_keep_the_nearest_features(X):
    model = DeepKernelPCA([3, 2], ["poly", "poly"]).fit(X[:, :3])
    new = np.concatenate([X[:2, :3] * 1e30, X[:1, :3]])
    with pytest.warns(ConvergenceWarning, match="2 of 3 new samples were not solved"):
        features = model.transform(new)
    assert np.isfinite(features).all()
    assert np.allclose(features[2], np.concatenate(model.hidden_, 1)[0], atol=1e-6)


# -- searches ---------------------------------------------------------------------------------------------------------
def test_a_search_starts_from_given_arrays(X, rng):
    best = DeepKernelPCA([3, 2], ["rbf", Gaussian(1.0)]).fit(X)
    again = DeepKernelPCA([3, 2], ["rbf", Gaussian(1.0)], init=best.hidden_).fit(X)
    assert again.n_iter_ <= 1 < best.n_iter_
    start = [rng.standard_normal((60, s)) for s in (3, 2)]
    copies = [part.copy() for part in start]
    other = DeepKernelPCA([3, 2], ["rbf", Gaussian(1.0)], init=start).fit(X)
    assert other.residual_ <= 1e-8
    assert all(np.array_equal(a, b) for a, b in zip(start, copies, strict=True))


def test_interrupting_a_search_ends_the_fit(X, monkeypatch):
    calls = []
    real = levels._search

    def interrupted(problem, start, *rest):
        calls.append(1)
        return replace(real(problem, start, *rest), interrupted=True, state=problem.at(start))

    monkeypatch.setattr(levels, "_search", interrupted)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model = DeepKernelPCA([3, 2], ["rbf", Gaussian(1.0)], init="random", random_state=0).fit(X)
    assert len(calls) == 1  # though levelwise kernel PCA has the larger energy
    assert model.energy_ < DeepKernelPCA([3, 2], ["rbf", Gaussian(1.0)], solver="levelwise").fit(X).energy_


def test_without_convergence_the_smallest_residual_is_kept(X, monkeypatch):
    arguments = {"kernel": ["rbf", Gaussian(0.3)], "eta": [1.0, -1.0]}

    def worse(evaluate, start, preconditioner):
        generator = torch.Generator().manual_seed(0)
        yield evaluate([torch.linalg.qr(torch.randn(H.shape, generator=generator, dtype=H.dtype)).Q for H in start])
        raise StalledError("no step is better")

    monkeypatch.setattr(levels, "newton_steps", worse)
    with pytest.warns(ConvergenceWarning, match="The best point is kept"):
        model = DeepKernelPCA([3, 2], **arguments).fit(X)
    assert model.solver_ == "scf"
    residuals = [entry.gradient_norm for entry in model.history_]
    assert model.residual_ == pytest.approx(min(residuals), rel=1e-6)


def test_whether_eigenvectors_are_leading_is_known(X):
    for eta in (1.0, [1.0, -0.1], [1.0, -50.0]):
        model = DeepKernelPCA([3, 2], ["rbf", "linear"], eta=eta, center=False).fit(X)
        H1, H2 = model.hidden_
        M1 = gram_of(model, X) / model.eta_[0] + H2 @ H2.T / model.eta_[1]  # M_1 H_1, and on the complement of H_1:
        P = np.eye(len(X)) - H1 @ H1.T
        M1 = M1 - P @ H2 @ H2.T @ P / model.eta_[1]
        expected = np.linalg.eigvalsh(M1)[-3:].sum() <= model.eigenvalues_[0].sum() + 1e-8
        assert model.leading_[0] == expected
    assert not DeepKernelPCA([3, 2], ["rbf", "linear"], eta=[1.0, -0.1]).fit(X).leading_[0]
    assert DeepKernelPCA([3, 2], solver="levelwise").fit(X).leading_ == [True, True]


def test_architectures_leave_out_what_collapses_together():
    X, _ = make_blobs(30, centers=[[0, 0, 0], [1, 1, 1]], cluster_std=0.1, random_state=0)
    found = DeepKernelPCA().suggest_architecture(X, variance=0.9, max_levels=2, min_gain=-1.0)
    model = DeepKernelPCA(found.n_components).fit(X)  # no CollapsedComponentWarning
    for ratios, n in zip(model.explained_variance_ratio_, found.n_components, strict=True):
        assert (ratios.cumsum() < 0.9).sum() + 1 >= n
    for gain in ("a", np.nan, None):
        with pytest.raises(ValueError, match="min_gain must be a finite number"):
            DeepKernelPCA().suggest_architecture(X, min_gain=gain)


# -- data and contract ------------------------------------------------------------------------------------------------
def test_a_precomputed_gram_is_the_same_problem(X):
    direct = DeepKernelPCA([3, 2], [Gaussian(1.5), Gaussian(1.0)]).fit(X)
    K = Gaussian(1.5)(X).numpy()
    given = DeepKernelPCA([3, 2], ["precomputed", Gaussian(1.0)]).fit(K)
    assert np.allclose(given.hidden_[1], direct.hidden_[1], atol=1e-6)
    new = X[:4] + 0.1
    assert np.allclose(given.transform(Gaussian(1.5)(new, X).numpy()), direct.transform(new), atol=1e-6)
    with pytest.raises(ValueError, match="features"):
        given.transform(K[:, :-1])


def test_strings_have_deep_components():
    words = ["banana", "bananas", "ananas", "cabana", "ferret", "ferrets", "merit", "ferrite", "bandana"]
    model = DeepKernelPCA([2, 1], [Spectrum(2).normalized(), Gaussian(1.0)]).fit(words)
    assert np.allclose(model.transform(words), np.concatenate(model.hidden_, 1), atol=1e-6)
    assert model.transform(["bananna"]).shape == (1, 3)


def test_pipelines_frames_tensors_pickles(X):
    frame = pd.DataFrame(X, columns=list("abcd"))
    pipe = make_pipeline(StandardScaler(), DeepKernelPCA([2, 2])).set_output(transform="pandas").fit(frame)
    out = pipe.transform(frame)
    assert list(out.columns) == [f"deepkernelpca{i}" for i in range(4)]
    model = DeepKernelPCA([2, 2]).fit(X)
    assert np.allclose(model.transform(torch.tensor(X)), model.transform(X))
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.transform(X[:5]), model.transform(X[:5]))
    assert np.array_equal(model.fit_transform(X), np.concatenate(model.hidden_, 1))


def test_fractions_count_components(X):
    model = DeepKernelPCA([0.8, 2], ["rbf", "linear"]).fit(X)
    values = np.linalg.eigvalsh(gram_of(model, X))[::-1]
    expected = int((values.cumsum() / values.sum() < 0.8).sum()) + 1
    assert model.n_components_ == [expected, 2]


# -- bad input --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_components": [61, 2]}, "level 0 is 61, but there are only 60 samples"),
        ({"n_components": []}, "at least one level"),
        ({"n_components": [2, 1.5]}, "level 1 must be a positive integer"),
        ({"n_components": [2, 0]}, "level 1 must be a positive integer"),
        ({"n_components": [2, True]}, "level 1 must be a positive integer"),
        ({"eta": [1.0, 0.0]}, "eta of level 1 must be a finite number other than 0"),
        ({"eta": [1.0]}, "2 n_components and 1 eta"),
        ({"eta": "big"}, "eta of level 0"),
        ({"kernel": ["rbf"]}, "2 n_components and 1 kernel"),
        ({"kernel": ["rbf", "precomputed"]}, "Only the first kernel sees the data"),
        ({"kernel": ["rbf", Constant(1.0)]}, "Level 1 has collapsed"),
        ({"kernel": ["rbf", Gaussian(1e9)]}, "Level 1 has collapsed"),
        ({"kernel": [Constant(2.0), "rbf"]}, "nothing to find components of"),
        ({"kernel": "squared"}, "not a kernel"),
        ({"solver": "newton"}, "solver must be one of"),
        ({"extension": "magic"}, "extension must be one of"),
        ({"approximation": Nystroem(1.5)}, "n_components of Nystroem must be an integer"),
        ({"approximation": Nystroem(9, "best")}, "sampling of Nystroem must be one of"),
        ({"kernel": ["precomputed", "rbf"], "approximation": Nystroem(3)}, "square"),
        ({"tol": 0.0}, "tol must be a positive number"),
        ({"init": "foo"}, "init must be one of 'levelwise', 'random' or a list"),
        ({"init": 7}, "init must be one of 'levelwise'"),
        ({"init": None}, "init must be one of 'levelwise'"),
        ({"init": [np.eye(60, 2)]}, "one array for each level, 2; got 1"),
        (
            {"init": [np.eye(60, 2), np.eye(60, 3)]},
            r"init of level 1 must have one row .* got shape \(60, 3\)",
        ),
        ({"init": [np.full((60, 2), np.nan), np.eye(60, 2)]}, "init of level 0 must not hold NaN"),
        ({"init": [np.eye(60, 2), np.ones((60, 2))]}, "init of level 1 has 2 columns, but only rank 1"),
        ({"init": ["a", "b"]}, "init of level 0 must be an array of numbers"),
        ({"center": "no"}, "center must be True, False or 'data'"),
        ({"approximation": Nystroem(1)}, "Components need at least 2"),
        ({"eta": [1.0, 1e-320]}, "must be finite, too"),
        ({"eta": [1.0, 1e-200]}, "too large for a search"),
        ({"kernel": Polynomial(3000)}, "overflow"),
        ({"kernel": ["rbf", Polynomial(2, 1e-300, 1e308)]}, "overflow|nothing|collapsed"),
        ({"max_iter": 0}, "max_iter must be an integer of at least 1"),
    ],
    ids=str,
)
def test_bad_arguments_are_named(X, arguments, message):
    with pytest.raises(ValueError, match=message):
        DeepKernelPCA(**{"n_components": [2, 2], **arguments}).fit(X)


def test_bad_data_are_named(X):
    model = DeepKernelPCA([2, 2], "rbf")  # "auto" takes gaps
    with pytest.raises(NotFittedError):
        model.transform(X)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.where(X > 2, np.nan, X))
    with pytest.raises(ValueError, match="nothing to find components of"):
        model.fit(np.ones((10, 3)))
    with pytest.raises(ValueError, match="not symmetric"):
        DeepKernelPCA([2, 2], ["precomputed", "rbf"]).fit(X[:4, :4])
    for scale, message in ((1e160, "is not finite"), (1e-160, "lose their digits")):
        with pytest.raises(ValueError, match=message):
            DeepKernelPCA([2, 2], "linear").fit(X * scale)
    model.fit(X)
    for level in (2, True, "a"):
        with pytest.raises(ValueError, match="level must be None or an integer from 0 to 1"):
            model.transform(X, level=level)
    with pytest.raises(ValueError, match="features"):
        model.transform(X[:, :3])


def test_components_of_little_variance_are_extended() -> None:
    rng = np.random.default_rng(1088)
    (
        rng.choice(3),
        rng.integers(2, 4),
        [rng.integers(1, 5) for _ in range(3)],
    )  # before the case that was found
    X = rng.normal(size=(40, 4)) * [3, 2, 1, 1]
    kernels = ["rbf", *(Gaussian(np.exp(rng.uniform(-1.5, 0.7))) for _ in range(2))]
    model = DeepKernelPCA([2, 1, 3], kernels, center="data").fit(X)
    assert model.residual_ <= 1e-8 and model.eigenvalues_[2][2] < 1e-5 * model.eigenvalues_[2][0]
    np.testing.assert_allclose(model.transform(X), np.hstack(model.hidden_), atol=1e-6)


@pytest.mark.parametrize("scale", [1e-8, 1e-7, 1e-4, 1e6, 1e8])
@pytest.mark.parametrize("sizes", [[3, 2], [3, 2, 2], [3, 3, 1]], ids=str)
def test_levels_in_different_units_are_extended(scale, sizes):
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(60, 4)), rng.normal(size=(10, 4))
    model, at_one = DeepKernelPCA(sizes, "linear").fit(scale * X), DeepKernelPCA(sizes, "linear").fit(X)
    np.testing.assert_allclose(model.transform(scale * X), np.hstack(model.hidden_), atol=1e-6)
    for level in range(len(sizes)):  # the same but for a rotation: eigenvalues of linear levels are equal
        found = model.transform(scale * new, level) @ model.hidden_[level].T
        np.testing.assert_allclose(found, at_one.transform(new, level) @ at_one.hidden_[level].T, rtol=0, atol=1e-8)


def test_a_scale_that_eta_takes_back_changes_nothing():
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(40, 3)), rng.normal(size=(10, 3))
    expected = DeepKernelPCA([2, 2], ["linear", "rbf"]).fit(X).transform(new)
    for scale in (1e-100, 1e-8, 1e8, 1e100):
        model = DeepKernelPCA([2, 2], ["linear", "rbf"], eta=[scale**2, 1.0]).fit(scale * X)
        assert np.allclose(np.abs(model.transform(scale * new)), np.abs(expected), atol=1e-6)


# -- units ------------------------------------------------------------------------------------------------------------
UNITS = [1e-100, 1e-80, 1e-20, 1e20, 1e25, 1e80, 1e100]


class Unitless:
    """Linear kernel PCA by a singular value decomposition of data in units of one."""

    def __init__(self, X, size):
        self.middle = X.mean(0)
        U, S, Vt = np.linalg.svd(X - self.middle, full_matrices=False)
        signs = np.sign(U[np.abs(U).argmax(0), np.arange(U.shape[1])])
        self.variances = S**2
        self.H, self.S, self.V = (U * signs)[:, :size], S[:size], (Vt.T * signs)[:, :size]

    def transform(self, new):
        return (new - self.middle) @ self.V / self.S

    def reconstruct(self, new):
        return self.middle + (new - self.middle) @ self.V @ self.V.T


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("preimage", ["auto", "gradient"])
def test_one_linear_level_scales_with_its_data(X, unit, preimage):
    new, oracle = X[40:], Unitless(X[:40], 2)
    model = DeepKernelPCA(2, "linear", preimage=preimage).fit(unit * X[:40])
    np.testing.assert_allclose(model.hidden_[0], oracle.H, rtol=0, atol=1e-12)
    np.testing.assert_allclose(model.transform(unit * new), oracle.transform(new), rtol=0, atol=1e-12)
    np.testing.assert_allclose(model.eigenvalues_[0] / unit / unit, oracle.variances[:2], rtol=1e-12)
    shares = oracle.variances[:2] / oracle.variances.sum()
    np.testing.assert_allclose(model.explained_variance_ratio_[0], shares, rtol=1e-12)
    assert model.energy_ / unit / unit == pytest.approx(0.5 * oracle.variances[:2].sum(), rel=1e-12)
    error = np.linalg.norm(oracle.variances[2:])
    np.testing.assert_allclose(np.array(model.approximation_bounds()) / unit / unit, [error] * 3, rtol=1e-10)
    reconstructed = oracle.reconstruct(new)
    np.testing.assert_allclose(model.reconstruct(unit * new) / unit, reconstructed, rtol=0, atol=1e-6)
    left, all_of_it = ((new - other) ** 2 for other in (reconstructed, oracle.middle))
    assert model.score(unit * new) == pytest.approx(1.0 - left.sum() / all_of_it.sum(), abs=1e-12)
    assert model.leading_ == [True] and model.residual_ < 1e-12


@pytest.mark.parametrize("unit", UNITS)
def test_linear_levels_keep_their_components_in_any_unit(X, unit):
    new, oracle = X[40:], Unitless(X[:40], 3)
    model = DeepKernelPCA([3, 2], "linear", eta=[1.0, 2.0]).fit(unit * X[:40])
    for level, size in enumerate([3, 2]):
        np.testing.assert_allclose(model.hidden_[level], oracle.H[:, :size], rtol=0, atol=1e-8)
        np.testing.assert_allclose(model.transform(unit * new, level), oracle.transform(new)[:, :size], atol=1e-8)
    first = unit * unit * oracle.variances[:3] + [0.5, 0.5, 0.0]
    np.testing.assert_allclose(model.eigenvalues_[0], first, rtol=1e-8, atol=1e-14 * first.max())
    np.testing.assert_allclose(model.eigenvalues_[1], [0.5, 0.5], rtol=1e-8)
    assert model.residual_ < 1e-12


@pytest.mark.parametrize("unit", [1e10, *(unit for unit in UNITS if unit > 1)])
def test_data_that_outweigh_the_levels_above_have_levelwise_components(X, unit):
    new, oracle = X[40:], Unitless(X[:40], 2)
    model = DeepKernelPCA([2, 2], ["linear", "rbf"]).fit(unit * X[:40])
    np.testing.assert_allclose(model.hidden_[0], oracle.H, rtol=0, atol=1e-12)
    np.testing.assert_allclose(model.eigenvalues_[0] / unit / unit, oracle.variances[:2], rtol=1e-12)
    above = KernelPCA(2, kernel="rbf", gamma=0.5).fit(oracle.H)
    signs = np.sign((above.eigenvectors_ * model.hidden_[1]).sum(0))
    np.testing.assert_allclose(model.hidden_[1], signs * above.eigenvectors_, rtol=0, atol=1e-10)
    np.testing.assert_allclose(model.eigenvalues_[1], above.eigenvalues_, rtol=1e-10)
    expected = oracle.transform(new), above.transform(oracle.transform(new)) * signs / above.eigenvalues_**0.5
    np.testing.assert_allclose(model.transform(unit * new), np.hstack(expected), rtol=0, atol=1e-8)
    assert model.energy_ / unit / unit == pytest.approx(0.5 * oracle.variances[:2].sum(), rel=1e-10)
    assert [entry.value for entry in model.history_] == pytest.approx([model.energy_] * len(model.history_))
    assert model.residual_ < 1e-9


@pytest.mark.parametrize("unit", [unit for unit in UNITS if unit < 1])
def test_data_that_weigh_less_than_rounding_are_said_to_decide_nothing(X, unit):
    X = X[:25]
    with pytest.warns(CollapsedComponentWarning, match="weighs less than rounding beside the levels above"):
        model = DeepKernelPCA([2, 2], ["linear", "rbf"]).fit(unit * X)
    K = (X - X.mean(0)) @ (X - X.mean(0)).T * unit * unit
    pairs = residuals_9(K, model.hidden_, model.eigenvalues_, model.kernel_[1:], model.eta_, True)
    assert max(defect / size for defect, size in pairs) <= 1e-8
    assert np.isfinite(model.transform(unit * X + unit)).all()


def test_units_are_weighed_in_single_precision(X):
    new, oracle = X[40:], Unitless(X[:40], 2)
    for unit in (1e-12, 1e-6, 1e6, 1e12):
        model = DeepKernelPCA(2, "linear", dtype="float32").fit(unit * X[:40])
        np.testing.assert_allclose(model.transform(unit * new), oracle.transform(new), rtol=0, atol=1e-4)
        np.testing.assert_allclose(model.eigenvalues_[0] / unit / unit, oracle.variances[:2], rtol=1e-4)


@pytest.mark.parametrize("unit", [1e-160, 1e-100, 1e100, 1e140])
def test_the_learned_width_is_one_in_any_unit(X, unit):
    model, other = DeepKernelPCA([2]).fit(X), DeepKernelPCA([2]).fit(unit * X)
    assert other.kernel_[0].lengthscale / unit == pytest.approx(model.kernel_[0].lengthscale, rel=1e-12)
    assert other.score(unit * X) == pytest.approx(model.score(X), rel=1e-9)


def test_levels_in_a_unit_are_saved_and_asked_in_parts(X, tmp_path):
    unit = 1e90
    model = DeepKernelPCA([2, 2], ["linear", "rbf"]).fit(unit * X)
    expected = model.transform(unit * X[:3])
    model.save(tmp_path / "levels.rep")
    for same in (pickle.loads(pickle.dumps(model)), representer.load(tmp_path / "levels.rep")):
        np.testing.assert_array_equal(same.transform(unit * X[:3]), expected)
    rows = [model.transform(unit * X[i : i + 1]) for i in range(3)]
    np.testing.assert_allclose(np.vstack(rows), expected, rtol=0, atol=1e-12)
    network = model.to_torch()
    np.testing.assert_allclose(network(torch.tensor(unit * X[:3])).numpy(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", tiers(range(12), lambda seed: seed < 4))
def test_training_samples_solve_their_equations_to_rounding(seed):
    """Also where small eigenvalues of a level, or a fit that has not converged, leave much of them unsolved."""
    rng = np.random.default_rng(seed)
    sizes = [int(s) for s in rng.integers(1, 4, size=int(rng.integers(2, 4)))]
    X = rng.normal(size=(int(rng.choice([8, 30, 60])), 3))
    kernels = ["rbf", *(Gaussian(float(np.exp(rng.uniform(-1.2, 0.5)))) for _ in sizes[1:])]
    eta = [float(np.exp(rng.uniform(-1, 1))) for _ in sizes]
    if seed % 3 == 0:
        eta[-1] *= -1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DeepKernelPCA(sizes, kernels, eta=eta, max_iter=8).fit(X)
        if model.function_.equations.ranks != model.n_components_:
            return
        H = np.hstack(model.hidden_)
        assert np.abs(model.transform(X) - H).max() <= 1e-10
        # and close to them
        moved = model.transform(X + 1e-9 * rng.normal(size=X.shape))
    assert np.abs(moved - H).max() <= 1e-3


def test_twins_that_the_levels_above_tell_apart_are_reported():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(30, 4))
    X[:15] = X[15:]
    with pytest.warns(CollapsedComponentWarning, match="the same to the first kernel, but have different hidden_"):
        kernels, eta = [Gaussian(1.3), Gaussian(0.47), Gaussian(1.2)], [1.6, 4.0, 0.5]
        model = DeepKernelPCA([2, 5, 2], kernels, eta=eta, center="data").fit(X)
    found = model.transform(X)
    assert np.abs(found[:15] - found[15:]).max() <= 1e-8
    together = np.hstack(model.hidden_)
    apart = np.abs(together[:15] - together[15:]).max(1) > 1e-3
    assert apart.any() and np.abs(found - together)[:15].max() <= 1e-8
    assert np.abs(found - together)[15:][~apart].max() <= 1e-4
    with pytest.warns(CollapsedComponentWarning, match="transform gives both the same"):
        assert np.allclose(clone(model).fit_transform(X), found, atol=1e-8)


@pytest.mark.parametrize("upper", [Gaussian(1.0), Gaussian(0.5), "linear"], ids=str)
def test_single_precision_gives_the_same_components(X, upper):
    arguments = {"n_components": [3, 2], "kernel": [Gaussian(1.5), upper]}
    double, single = DeepKernelPCA(**arguments).fit(X), DeepKernelPCA(**arguments, dtype="float32").fit(X)
    new = X[:10] + 0.1
    assert single.hidden_[0].dtype == single.transform(new).dtype == np.float32
    assert single.residual_ < 1e-3 and single.energy_ == pytest.approx(double.energy_, rel=1e-5)
    for level in (0, 1):  # Inner products do not see rotations among equal eigenvalues.
        features = [model.transform(new, level) @ model.hidden_[level].T for model in (double, single)]
        np.testing.assert_allclose(features[1], features[0], atol=2e-3)
    np.testing.assert_allclose(single.reconstruct(new, 0), double.reconstruct(new, 0), atol=0.02)
    with pytest.raises(ValueError, match="dtype must be one of 'float64', 'float32'; got 'half'"):
        DeepKernelPCA(dtype="half").fit(X)


def test_the_same_call_gives_the_same_answer(X):
    model = DeepKernelPCA([3, 2], ["rbf", Gaussian(0.5)])
    together = model.fit_transform(X)
    assert np.array_equal(together, model.transform(X)) and np.array_equal(together, np.hstack(model.hidden_))
    new = X[:7] + 0.3
    assert np.array_equal(model.transform(new), model.transform(new))
    assert np.array_equal(model.reconstruct(new), pickle.loads(pickle.dumps(model)).reconstruct(new))


def test_a_fit_keeps_no_memory_of_the_caller(X):
    data = X.copy()
    model = DeepKernelPCA([3, 2]).fit(data)
    before = model.transform(X[:5] + 0.1)
    data[:] = 0.0
    assert np.array_equal(model.transform(X[:5] + 0.1), before) and np.array_equal(model.X_fit_, X)


def test_only_samples_can_stand_for_all(X):
    with pytest.raises(ValueError, match="landmarks must be samples"):
        DeepKernelPCA([2, 2], approximation=Nystroem(20, "kmeans")).fit(X)
    with pytest.raises(ValueError, match=r"approximation must be None or Nystroem\(m\)"):
        DeepKernelPCA([2, 2], approximation=RandomFeatures(20)).fit(X)


@pytest.mark.parametrize("at_rounding", [False, True])
def test_an_interrupted_search_says_so(rng, monkeypatch, at_rounding):
    """Also where what it keeps solves the equations to rounding, but not to a tolerance that is smaller."""

    def check(deadline):
        raise KeyboardInterrupt

    monkeypatch.setattr(search.Deadline, "check", check)
    monkeypatch.setattr(levels, "UNRESOLVED", 1e300 if at_rounding else 0.0)
    with pytest.warns(ConvergenceWarning, match="interrupted: the best point so far is kept"):
        model = DeepKernelPCA((2, 1), tol=1e-14).fit(rng.standard_normal((20, 2)))
    assert model.n_iter_ == 0


def test_an_interrupt_between_two_methods_keeps_what_the_first_has_found(rng, monkeypatch):
    def ascent(*arguments):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(levels, "ascent", ascent)
    with pytest.warns(ConvergenceWarning, match="interrupted: the best point so far is kept"):
        model = DeepKernelPCA((2, 1), max_iter=1, tol=1e-14).fit(rng.standard_normal((20, 2)))
    assert model.solver_ == "scf"
