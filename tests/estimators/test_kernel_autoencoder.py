"""KernelAutoencoder: scikit-learn's contract, the formulas of Laforgue et al., data of all kinds, bad input."""

from __future__ import annotations

import pickle
import warnings
from itertools import pairwise
from math import log, sqrt

import numpy as np
import pandas as pd
import pytest
import torch
from contract import contract
from naive_deep import functions_of
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tiers import tiers

from representer import KernelAutoencoder, Layer
from representer.approximation import Nystroem
from representer.estimators.kernel_autoencoder import label_columns
from representer.kernels import (
    Edit,
    Functional,
    Gaussian,
    Graph,
    Laplacian,
    Linear,
    Polynomial,
    Spectrum,
    Tanimoto,
    WeisfeilerLehman,
)
from representer.linalg import IndefiniteGramWarning
from representer.operators import Decomposable, Dense
from representer.problems.autoencoder import best_weight, ridge_errors, scaled_labels
from representer.testing import check_gradient

# Short searches are enough for most of what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:The search over the inner layers")

FIXED = {"alpha": 1e-3, "encoder_alpha": 1e-3, "n_restarts": 1, "random_state": 0}

QUICK = {**FIXED, "alpha": 1e-2, "encoder_alpha": 1e-2, "max_iter": 30, "tol": 1e-2}
NOT_REPEATED = {"check_sample_weight_equivalence_on_dense_data": "the median of distances does not know weights"}
NO_GRAM = {"check_positive_only_tag_during_fit": "a random matrix is no Gram matrix: it is refused as indefinite"}
CHECKED = {
    "features": (KernelAutoencoder(1, **QUICK), NOT_REPEATED),
    "kernel": (KernelAutoencoder(1, target="kernel", **QUICK), NOT_REPEATED),
    "precomputed": (KernelAutoencoder(1, "precomputed", **QUICK), NO_GRAM),
}


@contract(CHECKED, quick=["features"])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def circles(n: int, noise: float = 0.05, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three noisy concentric circles (section 5.1)."""
    rng = np.random.default_rng(seed)
    ring = np.arange(n) % 3
    angle = rng.uniform(0, 2 * np.pi, n)
    X = (ring + 1.0)[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    return X + noise * rng.standard_normal((n, 2)), ring


@pytest.fixture
def curve(rng):
    t = rng.uniform(0, 2, 60)
    return np.column_stack([t, np.sin(3 * t), np.cos(3 * t)]) + 0.02 * rng.standard_normal((60, 3))


# -- formulas ---------------------------------------------------------------------------------------------------------
def rbf(a, b, ell):
    return np.exp(-sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) / (2 * ell**2))


def test_the_objective_is_equation_3_written_out(curve):
    model = KernelAutoencoder(
        2, Gaussian(1.0), Gaussian(0.8), alpha=1e-2, encoder_alpha=3e-3, fit_intercept=False, random_state=0
    ).fit(curve)
    n = len(curve)
    f = functions_of(model)[0]
    anchors, phi = f.anchors.numpy(), f.coefficients.numpy()
    codes = [sum(rbf(x, a, 1.0) * c for a, c in zip(anchors, phi, strict=True)) for x in curve]
    assert np.allclose(codes, model.transform(curve))
    norm_f = sum(rbf(a, b, 1.0) * (phi[i] @ phi[j]) for i, a in enumerate(anchors) for j, b in enumerate(anchors))
    dual = model.dual_coef_
    images = [sum(rbf(z, w, 0.8) * c for w, c in zip(codes, dual, strict=True)) for z in codes]
    norm_g = sum(rbf(z, w, 0.8) * (dual[i] @ dual[j]) for i, z in enumerate(codes) for j, w in enumerate(codes))
    distortion = sum(((x - y) ** 2).sum() for x, y in zip(curve, images, strict=True)) / n
    assert model.objective_value_ == pytest.approx(distortion + 3e-3 * norm_f + 1e-2 * norm_g, rel=1e-8)
    assert model.layer_norms_ == pytest.approx([sqrt(norm_f), sqrt(norm_g)])
    assert np.allclose(model.reconstruct(curve), images)
    assert np.allclose(model.reconstruction_error(curve).mean(), distortion)


def test_the_reduced_objective_has_the_gradient_of_its_differences(curve):
    from representer.problems.composition import Composition, DeepProblem, squared_loss

    X = torch.as_tensor(curve[:12])
    layers = [Layer(Gaussian(1.0), 2, alpha=1e-3), Layer(Gaussian(1.5), 1, alpha=1e-3)]
    problem = DeepProblem(Composition(layers, Decomposable(Gaussian(0.7)), 1e-2), X, X, squared_loss(True).fit())
    point = torch.randn(problem.size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    check_gradient(lambda theta: problem.value(theta[None])[0], point, "J")


def test_linear_kernels_give_kernel_pca(rng):
    """Section 3.2.1: for vanishing penalties the reconstruction is the truncated SVD and codes are multiples of u_i.

    The paper leaves their scale open and takes √σ_i. With penalties λ‖f‖² + μ‖g‖², a component with values d·u costs
    λd²/σ² + μ(qσ/d)² for a reconstruction qσ: at best d = σ√q (μ/λ)^¼ and q = 1 − n√(λμ)/σ².
    """
    X = rng.standard_normal((40, 6)) @ np.diag([5.0, 3.0, 2.0, 1.0, 0.5, 0.2])
    U, s, Vt = (part[..., :3, :] if i == 2 else part[..., :3] for i, part in enumerate(np.linalg.svd(X, False)))
    for mu, lam in ((1e-6, 1e-6), (1e-2, 1e-2), (0.16, 0.01)):
        model = KernelAutoencoder(
            3, "linear", "linear", alpha=mu, encoder_alpha=lam, fit_intercept=False, max_iter=3000, tol=1e-13
        ).fit(X)
        q = 1 - 40 * sqrt(lam * mu) / s**2
        assert np.allclose(model.reconstruct(X), (U * (q * s)) @ Vt, atol=1e-4)
        expected, codes = U * (s * np.sqrt(q) * (mu / lam) ** 0.25), model.transform(X)
        # The order by variance turns codes about their mean, the map about the origin: compare inner products.
        assert np.allclose(codes @ codes.T, expected @ expected.T, atol=1e-4 * s[0] ** 2)


def test_kae_with_a_linear_kernel_is_k2ae_on_its_gram_matrix(rng):
    """The authors' own check of their code."""
    X, new = rng.standard_normal((30, 4)), rng.standard_normal((7, 4))
    options = {"alpha": 1e-2, "encoder_alpha": 1e-2, "tol": 1e-12, "max_iter": 1000, "random_state": 0}
    vectors = KernelAutoencoder(2, "linear", Gaussian(1.0), **options).fit(X)
    gram = KernelAutoencoder(2, "precomputed", Gaussian(1.0), **options).fit(X @ X.T)
    assert np.allclose(vectors.transform(new), gram.transform(new @ X.T), atol=1e-6)
    error = gram.reconstruction_error(new @ X.T, diagonal=(new**2).sum(1))
    assert np.allclose(vectors.reconstruction_error(new), error, atol=1e-6)
    assert vectors.objective_value_ == pytest.approx(gram.objective_value_, rel=1e-8)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_test_distortion_is_appendix_b7(rng, fit_intercept):
    """‖φ(x)‖² − 2 Σ k_L(z, z_i) [W⁻¹]_ij k(x, x_j) + Σ k_L(z, z_i) k_L(z, z_j) N_ij, without coordinates."""
    X, new = rng.standard_normal((25, 3)), rng.standard_normal((6, 3))
    k, k2 = Gaussian(1.5), Gaussian(0.5)
    model = KernelAutoencoder(
        2, k, k2, target="kernel", alpha=1e-2, encoder_alpha=1e-2, fit_intercept=fit_intercept, random_state=0
    ).fit(X)
    G, cross = k(X).numpy(), k(new, X).numpy()
    Z, z = model.transform(X), model.transform(new)
    W = k2(Z).numpy() + len(X) * 1e-2 * np.eye(len(X))
    P, g = np.linalg.inv(W), np.zeros(len(X))
    if fit_intercept:
        u = P.sum(1)
        g = u / u.sum()
        P = P - np.outer(u, g)
    w = k2(z, Z).numpy() @ P + g
    expected = 1.0 - 2 * (w * cross).sum(1) + np.einsum("ij,jk,ik->i", w, G, w)
    assert np.allclose(model.reconstruction_error(new), expected, atol=1e-9)
    total = (1.0 - 2 * cross.mean(1) + G.mean()).mean()
    assert model.score(new) == pytest.approx(1 - expected.mean() / total)


def test_the_objective_never_increases_and_the_order_of_samples_does_not_matter(curve):
    model = KernelAutoencoder(1, **FIXED, tol=1e-10, max_iter=1000).fit(curve)
    values = [entry.value for entry in model.history_]
    assert len(values) > 3 and all(b <= a * (1 + 1e-12) for a, b in pairwise(values))
    order = np.random.default_rng(1).permutation(len(curve))
    other = KernelAutoencoder(1, **FIXED, tol=1e-10, max_iter=1000).fit(curve[order])
    assert other.objective_value_ == pytest.approx(model.objective_value_, rel=1e-4)
    assert np.allclose(other.transform(curve), model.transform(curve), atol=1e-2)


def test_the_objective_of_three_layers_is_equation_4_written_out(curve):
    X, lengthscales, alphas = curve[:20], (1.0, 0.7, 0.8), (3e-3, 2e-3, 1e-2)
    layers = [Layer(Gaussian(lengthscales[0]), 2, alphas[0]), Layer(Gaussian(lengthscales[1]), 1, alphas[1])]
    options = {"fit_intercept": False, "n_restarts": 1, "max_iter": 20, "random_state": 0}
    model = KernelAutoencoder(layers, decoder_kernel=Gaussian(lengthscales[2]), alpha=alphas[2], **options).fit(X)
    images, value = X, 0.0
    for f, ell, alpha in zip(functions_of(model), lengthscales, alphas, strict=True):
        anchors, phi = f.anchors.numpy(), f.coefficients.numpy()
        pairs = [(rbf(a, b, ell), phi[i] @ phi[j]) for i, a in enumerate(anchors) for j, b in enumerate(anchors)]
        value += alpha * sum(k * product for k, product in pairs)
        images = np.array([sum(rbf(z, a, ell) * c for a, c in zip(anchors, phi, strict=True)) for z in images])
    assert np.allclose(model.reconstruct(X), images)
    distortion = sum(((x - y) ** 2).sum() for x, y in zip(X, images, strict=True)) / 20
    assert model.objective_value_ == pytest.approx(distortion + value, rel=1e-8)


def test_a_solution_is_a_fixed_point_of_algorithm_1(rng):
    """Its objective and its errors are those of N_L by (54), and the inner step, at a fixed N_L, has no gradient."""
    X = rng.standard_normal((15, 3))
    gram, alpha, encoder_alpha = X @ X.T, 1e-2, 1e-2
    options = {"encoder_alpha": encoder_alpha, "fit_intercept": False, "tol": 1e-14, "max_iter": 2000}
    model = KernelAutoencoder(1, "precomputed", Gaussian(1.0), alpha=alpha, random_state=0, **options).fit(gram)
    phi = np.linalg.lstsq(gram, model.transform(gram), rcond=1e-10)[0]

    def decoder_gram(phi):
        codes = gram @ phi
        return np.array([[rbf(z, w, 1.0) for w in codes] for z in codes])

    def decoder(phi):  # (13), as coefficients of the samples
        return np.linalg.inv(decoder_gram(phi) + 15 * alpha * np.eye(15))

    def objective(phi, fixed):  # of the codes, with the decoder's coefficients held
        K, N = decoder_gram(phi), fixed @ gram @ fixed.T
        distortion = np.trace(gram - 2 * K @ fixed @ gram + K @ N @ K) / 15
        return distortion + alpha * np.trace(K @ N) + encoder_alpha * np.trace(phi.T @ gram @ phi)

    fixed = decoder(phi)
    assert objective(phi, fixed) == pytest.approx(model.objective_value_, rel=1e-6)
    error = np.diag(gram - 2 * decoder_gram(phi) @ fixed @ gram) + np.diag(
        decoder_gram(phi) @ fixed @ gram @ fixed.T @ decoder_gram(phi)
    )
    assert np.allclose(model.reconstruction_error(gram), error, atol=1e-8)
    for seed in range(3):
        step = 1e-4 * np.random.default_rng(seed).standard_normal(phi.shape)
        slope = (objective(phi + step, fixed) - objective(phi - step, fixed)) / 2
        away = phi + 0.5 * np.linalg.norm(phi) * step / np.linalg.norm(step)
        far = (objective(away + step, decoder(away)) - objective(away - step, decoder(away))) / 2
        assert abs(slope) < 1e-3 * abs(far)
        assert objective(away, decoder(away)) > model.objective_value_


def test_deeper_autoencoders_have_the_narrowest_layer_as_code(curve):
    model = KernelAutoencoder([4, 1, 3], **FIXED).fit(curve)
    assert model.code_layer_ == 1 and model.n_components_ == 1
    assert [layer.size for layer in model.layers_] == [4, 1, 3]
    assert model.transform(curve).shape == (60, 1)
    layers = model.transform_layers(curve)
    assert np.array_equal(layers[1], model.transform(curve))
    assert np.allclose(model.reconstruct(curve), model.inverse_transform(layers[1]))
    assert model.explained_variance_ratio_ > 0.9
    with pytest.raises(ValueError, match="one encoder and one decoder"):
        model.generalization_bound()
    own = KernelAutoencoder(
        [(Laplacian(1.0), 3), Layer(Polynomial(2), 2, alpha=1e-4, operator=Dense([[2.0, 0.5], [0.5, 1.0]]))],
        **FIXED,
    ).fit(curve)
    assert [type(layer.kernel) for layer in own.layers_] == [Laplacian, Polynomial]
    assert [layer.alpha for layer in own.layers_] == [1e-3, 1e-4] and own.code_layer_ == 1


def test_decoders_with_an_output_operator(curve):
    """The decoder of codes z is Σ_j k(·, z_j) A c_j with vec(c) = (k(Z) ⊗ A + nα)⁻¹ vec(X), solved as one system."""
    X, A = curve[:20], np.array([[2.0, 0.3, 0.0], [0.3, 1.0, 0.1], [0.0, 0.1, 0.5]])
    kernel = Decomposable(Gaussian(0.5), Dense(A))
    model = KernelAutoencoder(1, Gaussian(1.0), kernel, fit_intercept=False, **FIXED).fit(X)
    codes = model.transform(X)
    K = np.array([[rbf(z, w, 0.5) for w in codes] for z in codes])
    c = np.linalg.solve(np.kron(K, A) + 20 * 1e-3 * np.eye(60), X.ravel()).reshape(20, 3)
    assert np.allclose(model.reconstruct(X), K @ c @ A, atol=1e-8)
    norm = sum(K[i, j] * c[i] @ A @ c[j] for i in range(20) for j in range(20))
    distortion = ((X - K @ c @ A) ** 2).sum() / 20
    expected = distortion + 1e-3 * norm + 1e-3 * model.layer_norms_[0] ** 2
    assert model.layer_norms_[1] == pytest.approx(sqrt(norm)) and model.objective_value_ == pytest.approx(expected)
    with pytest.raises(ValueError, match="output operator, which is for vectors"):
        model.set_params(target="kernel").fit(curve)


def test_codes_are_in_order_of_variance_where_the_decoder_does_not_mind(curve):
    codes = KernelAutoencoder(3, **FIXED).fit_transform(curve)
    centred = codes - codes.mean(0)
    covariance = centred.T @ centred / len(codes)
    assert np.all(np.diff(np.diag(covariance)) <= 0)
    assert np.allclose(covariance, np.diag(np.diag(covariance)), atol=1e-8 * covariance[0, 0])
    assert np.all(np.take_along_axis(codes, abs(codes).argmax(0)[None], 0) > 0)
    ard = KernelAutoencoder(2, decoder_kernel=Gaussian([0.5, 2.0]), **FIXED).fit(curve)  # turning would change it
    covariance = np.cov(ard.transform(curve).T)
    assert ard.objective_value_ < np.inf and abs(covariance[0, 1]) > 1e-8 * covariance[0, 0]


@pytest.mark.parametrize("later", [("poly", 4), ("linear", 4), (Gaussian(1.0), 4)])
def test_turning_the_codes_changes_no_function(curve, later):
    """Explicit features of a layer after the code turn with it: then the codes stay as they are."""
    model = KernelAutoencoder([2, later], **FIXED).fit(curve)
    value = model.reconstruction_error(curve).mean() + 1e-3 * sum(norm**2 for norm in model.layer_norms_)
    assert model.objective_value_ == pytest.approx(value, rel=1e-6)


def test_codes_in_single_precision_are_in_order_too(curve):
    codes = KernelAutoencoder(2, Gaussian(1.0), dtype="float32", **FIXED).fit_transform(curve)
    assert abs(np.corrcoef(codes.T)[0, 1]) < 1e-3


def test_an_offset_of_the_data_does_not_spoil_the_distortion(curve):
    model = KernelAutoencoder(1, **FIXED).fit(curve)
    for offset, dtype in ((1e7, "float64"), (2e2, "float32")):
        moved = KernelAutoencoder(1, dtype=dtype, **FIXED).fit(curve + offset)
        assert moved.explained_variance_ratio_ == pytest.approx(model.explained_variance_ratio_, abs=1e-2)
        assert moved.score(curve + offset) == pytest.approx(moved.explained_variance_ratio_, abs=1e-3)


def test_scores_of_gram_rows_rank_models_as_true_scores_do(rng):
    Y = rng.standard_t(3, size=(45, 4)) @ rng.normal(size=(4, 4))
    train, test = Y[:30], 3 * Y[30:]  # k(x, x) of new samples is larger
    scores, truth = [], []
    for alpha in (1e-3, 1e-1, 1.0, 10.0):
        options = {**FIXED, "alpha": alpha}
        scores.append(KernelAutoencoder(1, "precomputed", **options).fit(train @ train.T).score(test @ train.T))
        truth.append(KernelAutoencoder(1, "linear", target="kernel", **options).fit(train).score(test))
    assert np.argsort(scores).tolist() == np.argsort(truth).tolist()


def test_layers_in_the_list(curve):
    gram = curve @ curve.T
    assert np.isfinite(cross_val_score(KernelAutoencoder([("precomputed", 1)], **FIXED), gram, cv=3)).all()
    own = KernelAutoencoder([Layer(Gaussian(1.0), 2)], **FIXED).fit(curve)
    assert own.layers_[0].alpha == 1e-3  # Layer leaves it open
    with pytest.raises(ValueError, match="name the kernel of the data"):
        KernelAutoencoder([(Gaussian(1.0), 1)], "precomputed", **FIXED).fit(curve)


def test_candidates_of_gram_rows_need_their_diagonal(curve):
    gram = curve @ curve.T
    model = KernelAutoencoder(1, "precomputed", **FIXED).fit(gram)
    vectors = KernelAutoencoder(1, "linear", target="kernel", preimage="nearest", **FIXED).fit(curve)
    codes = np.linspace(-1, 1, 5)[:, None]
    with pytest.raises(ValueError, match="Pass diagonal="):
        model.inverse_transform(codes, gram[:9])
    chosen = model.inverse_transform(codes, gram[:9], gram.diagonal()[:9])
    assert np.allclose(curve[chosen], vectors.inverse_transform(codes, curve[:9]))
    with pytest.raises(ValueError, match="cannot be negative"):
        model.inverse_transform(codes, gram[:9], -gram.diagonal()[:9])


def test_the_bound_is_theorem_5(curve):
    model = KernelAutoencoder(2, Gaussian(1.0), Gaussian(0.8), **FIXED).fit(curve)
    bound = model.generalization_bound(0.1)
    M = np.sqrt((curve**2).sum(1).max())
    s, t = model.layer_norms_
    assert (bound.M, bound.K, bound.p, bound.n, bound.delta) == (pytest.approx(M), 1.0, 2, 60, 0.1)
    assert pytest.approx(sqrt(3) / 0.8, rel=0.05) == bound.L  # Tr over ℝ³ of 2 − 2k ≤ d²/ℓ²
    assert bound.complexity == pytest.approx(bound.L * M * s * t * sqrt(2 / 60))
    assert bound.confidence == pytest.approx(24 * M**2 * sqrt(log(2 / 0.1) / 120))
    assert bound(2.0) == pytest.approx(2 * bound.complexity + bound.confidence)
    with pytest.raises(ValueError, match="delta must be a probability"):
        model.generalization_bound(1.0)


# -- what the paper and the library promise ---------------------------------------------------------------------------
def test_circles_become_a_curve_through_the_circles():
    X, _ = circles(150)
    model = KernelAutoencoder(1, Gaussian(0.5), alpha=1e-5, encoder_alpha=1e-5, max_iter=300, random_state=0).fit(X)
    line = PCA(1).fit(X)
    error = ((X - line.inverse_transform(line.transform(X))) ** 2).sum(1).mean()
    assert model.reconstruction_error(X).mean() <= 0.2 * error


def test_defaults_beat_pca_on_new_digits():
    X = load_digits().data[np.random.default_rng(0).permutation(1797)[:450]] / 16
    train, test = X[:250], X[250:]
    for size, share in ((10, 0.8), (2, 0.9)):
        model = KernelAutoencoder(size, n_restarts=1, random_state=0, max_iter=30).fit(train)
        pca = PCA(size).fit(train)
        error = ((test - pca.inverse_transform(pca.transform(test))) ** 2).sum(1).mean()
        assert model.reconstruction_error(test).mean() < share * error
        assert model.criterion_value_ > 0 and model.search_history_


def test_a_share_of_the_variance_chooses_the_size(curve):
    pca = PCA().fit(curve)
    share = pca.explained_variance_ratio_[:2].sum()
    assert KernelAutoencoder(share - 1e-9, **FIXED).fit(curve).n_components_ == 2
    assert KernelAutoencoder(share + 1e-9, **FIXED).fit(curve).n_components_ == 3


def test_held_out_labels_choose_how_much_codes_serve_them(rng):
    """Labels in a direction of little variance need a weight; labels that are noise, and those of nobody, get none."""
    y = 2.0 * (np.arange(80) % 2) - 1.0
    X = np.column_stack([3 * rng.standard_normal(80), 1.4 * y + 0.2 * rng.standard_normal(80), 3 * rng.random(80)])
    fixed = {"alpha": 0.1, "encoder_alpha": 1.0, "random_state": 0}
    auto = KernelAutoencoder(1, supervision="auto", cv=2, **fixed).fit(X[:60], y[:60])
    assert auto.supervision_ > 0
    codes = auto.transform(X)
    assert np.corrcoef(codes[60:, 0], y[60:])[0, 1] ** 2 > 0.6
    assert clone(auto).fit(X[:60], rng.standard_normal(60)).supervision_ == 0.0
    alone = clone(auto).fit(X)
    assert alone.supervision_ == 0.0
    np.testing.assert_allclose(alone.transform(X), KernelAutoencoder(1, **fixed).fit(X).transform(X), atol=1e-6)


def test_errors_of_labels_are_those_of_a_ridge_regression(rng):
    Z, Y, new, truth = (torch.from_numpy(rng.standard_normal(shape)) for shape in ((40, 3), (40, 2), (9, 3), (9, 2)))
    Y = Y + Z[:, :2]
    errors = ridge_errors(Z, Y, new, truth)
    references = [Ridge(alpha) for alpha in np.logspace(-4, 4, 400)]
    values = [((truth.numpy() - ridge.fit(Z, Y).predict(new)) ** 2).sum(1) for ridge in references]
    nearest = int(np.argmin([abs(value - errors.numpy()).sum() for value in values]))
    np.testing.assert_allclose(values[nearest], errors, rtol=0.02)
    left_out = [cross_val_score(r, Z, Y, cv=40, scoring="neg_mean_squared_error").mean() for r in references[::20]]
    own = cross_val_score(references[nearest], Z, Y, cv=40, scoring="neg_mean_squared_error").mean()
    assert own > 1.02 * max(left_out)  # errors are negative
    assert best_weight({0.0: errors + 1.0, 1.0: errors + 0.1, 3.0: errors}) == 3.0
    assert best_weight({0.0: errors + truth[:, 0] - truth[:, 0].mean() + 0.01, 1.0: errors}) == 0.0


def test_labels_shape_the_code(rng):
    """Two classes that differ in a direction of little variance."""
    y = np.arange(80) % 2
    X = np.column_stack([3 * rng.standard_normal(80), 1.4 * (2 * y - 1) + 0.2 * rng.standard_normal(80)])
    X = np.column_stack([X, 3 * rng.standard_normal(80)])
    partly = np.where(np.arange(80) < 60, y.astype(float), np.nan)
    scores = {}
    for weight in (0.0, 5.0):
        model = KernelAutoencoder(1, supervision=weight, alpha=0.1, encoder_alpha=1.0, random_state=0).fit(X, partly)
        codes = model.transform(X)
        scores[weight] = KNeighborsClassifier(3).fit(codes[:60], y[:60]).score(codes[60:], y[60:])
        assert model.inverse_transform(codes).shape == X.shape
    assert scores[5.0] >= 0.95 > 0.7 > scores[0.0]
    names = np.where(y == 1, "yes", "no").astype(object)
    names[70:] = None
    named = KernelAutoencoder(1, supervision=20.0, alpha=1e-2, encoder_alpha=1e-2, random_state=0).fit(X, names)
    assert np.isfinite(named.transform(X)).all()
    auto = KernelAutoencoder(1, supervision=1.0, random_state=0, max_iter=10, cv=2).fit(X, X[:, 1] ** 2)
    assert auto.criterion_value_ > 0
    two = np.column_stack([X[:, 1], np.where(np.arange(80) < 5, X[:, 0], np.nan)])  # gaps in one of two outputs
    everyone = np.arange(80)
    gaps = scaled_labels(label_columns(two, everyone), torch.as_tensor(X), 2.0)
    assert gaps.isnan().sum(0).tolist() == [0, 75]
    variance = ((X - X.mean(0)) ** 2).sum(1).mean()
    assert np.nanmean(gaps.numpy() ** 2, axis=0).sum() == pytest.approx(2.0 * variance)
    assert label_columns(everyone // 27, everyone).shape == (80, 3)  # integers are classes
    with pytest.raises(ValueError, match="of one type"):
        named.fit(X, np.array(["a", 1] * 40, dtype=object))
    with pytest.raises(ValueError, match="numbers or class labels"):
        named.fit(X, np.arange(80) * 1j)
    with pytest.raises(ValueError, match="fit got no y"):
        named.fit(X)
    with pytest.raises(ValueError, match="Every label in y is missing"):
        named.fit(X, np.full(80, np.nan))
    with pytest.raises(ValueError, match="All labels in y are equal"):
        named.fit(X, np.ones(80))
    with pytest.raises(ValueError, match=r"y must have shape \(80,\)"):
        named.fit(X, y[:5])


# -- any data ---------------------------------------------------------------------------------------------------------
WORDS = ["banana", "bananas", "ananas", "cabana", "ferret", "ferrets", "merit", "ferrite", "ban", "merits"]
GRAPHS = [
    Graph([(i, (i + 1) % n) for i in range(n - closed)], node_labels=["C"] * (n - 1) + ["N"])
    for n in (3, 4, 5, 6)
    for closed in (0, 1)
]


@pytest.mark.parametrize(
    ("kernel", "objects"),
    [(Spectrum(2).normalized(), WORDS), (WeisfeilerLehman(2).normalized(), GRAPHS)],
    ids=["strings", "graphs"],
)
def test_objects_are_encoded_and_found_again(kernel, objects):
    model = KernelAutoencoder(2, kernel, alpha=1e-3, encoder_alpha=1e-3, random_state=0).fit(objects)
    assert model.target_kernel_ == kernel and model.explained_variance_ratio_ > 0.5
    codes = model.transform(objects)
    assert model.inverse_transform(codes) == model.reconstruct(objects)
    assert np.mean([a is b for a, b in zip(model.reconstruct(objects), objects, strict=True)]) >= 0.5
    assert all(found in objects[:3] for found in model.reconstruct(objects, candidates=objects[:3]))
    gram = kernel(objects).numpy()
    other = clone(model).set_params(kernel="precomputed").fit(gram)
    assert np.allclose(other.transform(gram), codes, atol=1e-6)
    assert np.allclose(other.reconstruction_error(gram), model.reconstruction_error(objects), atol=1e-8)
    numbers = other.inverse_transform(codes)
    assert [objects[i] for i in numbers] == model.inverse_transform(codes)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.transform(objects), codes)


def test_curves_are_reconstructed_in_l2(rng):
    grid = np.sort(rng.uniform(0, 1, 30))
    phase = rng.uniform(0, 3, 40)
    X = np.sin(2 * np.pi * grid + phase[:, None])
    model = KernelAutoencoder(2, Functional(Gaussian("median"), grid), **FIXED).fit(X)
    assert model.target_kernel_ == Functional(Linear(), grid)
    back = model.reconstruct(X)  # a linear target: the curve itself
    assert back.shape == X.shape
    error = np.trapezoid((X - back) ** 2, grid, axis=1)
    assert np.allclose(error, model.reconstruction_error(X), atol=1e-8)
    assert model.score(X) == pytest.approx(model.explained_variance_ratio_) and model.score(X) > 0.95
    pairs = [(np.sort(rng.uniform(0, 1, 12)), None) for _ in range(20)]
    pairs = [(t, np.sin(2 * np.pi * t + p)) for (t, _), p in zip(pairs, phase, strict=False)]
    model = KernelAutoencoder(1, Functional(Gaussian("median"), domain="objects"), **FIXED).fit(pairs)
    assert isinstance(model.target_kernel_.kernel, Linear)
    back = model.reconstruct(pairs)  # on all times together
    times, values = back[0]
    distance = model.target_kernel_([pairs[0], (times, values)]).numpy()
    error = distance[0, 0] - 2 * distance[0, 1] + distance[1, 1]
    assert error == pytest.approx(model.reconstruction_error(pairs)[0], abs=1e-6)
    slopes = KernelAutoencoder(1, Functional(Gaussian("median"), grid, derivative=1), **FIXED).fit(X)
    assert any(np.array_equal(slopes.reconstruct(X[:1])[0], row) for row in X)  # the level is not known: nearest


def test_fingerprints_with_a_target_of_their_own(rng):
    X = (rng.uniform(size=(40, 64)) < 0.3).astype(float)
    model = KernelAutoencoder(3, Tanimoto(), target=Linear(), **FIXED).fit(X)
    assert model.reconstruct(X).shape == X.shape  # direct
    assert np.allclose(model.reconstruction_error(X), ((model.reconstruct(X) - X) ** 2).sum(1), atol=1e-8)
    model = KernelAutoencoder(3, Tanimoto(), target="kernel", preimage="weighted", **FIXED).fit(X)
    mean = model.reconstruct(X)
    assert mean.shape == X.shape and mean.min() >= 0 and mean.max() <= 1
    assert np.array_equal(np.unique(clone(model).set_params(preimage="nearest").fit(X).reconstruct(X)), [0.0, 1.0])


def test_sparse_fingerprints_and_indefinite_kernels(rng):
    X = (rng.uniform(size=(30, 64)) < 0.3).astype(float)
    dense = KernelAutoencoder(2, Tanimoto(), target="kernel", **FIXED).fit(X)
    sparse = KernelAutoencoder(2, Tanimoto(), **FIXED).fit(csr_matrix(X))
    assert np.allclose(sparse.transform(csr_matrix(X)), dense.transform(X), atol=1e-6)
    with pytest.raises(ValueError, match="takes sparse ones"):
        KernelAutoencoder(2, Tanimoto(), target="features", **FIXED).fit(csr_matrix(X))
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("acgt"), rng.integers(5, 15))) for _ in range(60)]
    with pytest.warns(IndefiniteGramWarning):
        model = KernelAutoencoder(2, Edit(), **FIXED).fit(words)
    assert np.isfinite(model.transform(words)).all() and 0 < model.explained_variance_ratio_ < 1


@pytest.mark.parametrize("convert", [pd.DataFrame, torch.as_tensor, np.asfortranarray])
def test_other_containers(curve, convert):
    model = KernelAutoencoder(1, **FIXED).fit(curve)
    other = KernelAutoencoder(1, **FIXED).fit(convert(curve))
    assert np.allclose(other.transform(convert(curve)), model.transform(curve))


def test_float32(curve):
    model = KernelAutoencoder(1, dtype="float32", **FIXED).fit(curve)
    assert model.transform(curve).dtype == np.float32
    assert model.explained_variance_ratio_ == pytest.approx(
        KernelAutoencoder(1, **FIXED).fit(curve).explained_variance_ratio_, abs=1e-2
    )


def test_pipelines_searches_and_frames(curve):
    pipe = make_pipeline(StandardScaler(), KernelAutoencoder(1, max_iter=20, **FIXED))
    assert cross_val_score(pipe, curve, cv=3).mean() > 0.5
    search = GridSearchCV(
        KernelAutoencoder(1, "rbf", "rbf", max_iter=20, **FIXED),
        {"kernel__lengthscale": [0.05, 1.0], "n_components": [1, 2]},
        cv=3,
    ).fit(curve)
    assert search.best_params_["kernel__lengthscale"] == 1.0
    nested = clone(search.estimator).set_params(decoder_kernel__lengthscale=0.3)
    assert (
        nested.decoder_kernel == Gaussian(0.3)
        and search.estimator.get_params()["decoder_kernel__lengthscale"] == "median"
    )
    assert KernelAutoencoder().set_params(kernel__lengthscale=0.3).kernel == Gaussian(0.3)
    gram = Gaussian(1.0)(curve).numpy()
    search = GridSearchCV(KernelAutoencoder(1, "precomputed", max_iter=20, **FIXED), {"n_components": [1, 2]}, cv=3)
    assert search.fit(gram).best_score_ > 0.5
    frame = KernelAutoencoder(2, **FIXED).set_output(transform="pandas").fit_transform(curve)
    assert list(frame.columns) == ["kernelautoencoder0", "kernelautoencoder1"]


def test_the_learned_kernel_is_that_of_the_codes(curve):
    model = KernelAutoencoder(1, **FIXED).fit(curve)
    codes = model.transform(curve)
    assert np.allclose(model.deep_kernel_(curve), model.decoder_kernel_(codes))
    with torch.no_grad():
        assert np.allclose(model.to_torch()(torch.as_tensor(curve)), codes)  # the network of a transformer


def test_fits_are_repeatable_and_leave_their_arguments_alone(curve):
    kernel, before = Gaussian("median"), curve.copy()
    model = KernelAutoencoder(1, kernel, n_restarts=2, max_iter=5, random_state=3)
    first, second = model.fit(curve).transform(curve), clone(model).fit(curve).transform(curve)
    assert np.array_equal(first, second) and np.array_equal(curve, before)
    assert kernel.lengthscale == "median" and model.kernel is kernel and model.kernel_.lengthscale > 0


def test_an_interrupted_fit_keeps_its_best_point(curve):
    class Interrupt:
        def setup(self, estimator, context): ...
        def on_fit_task_begin(self, estimator, context): ...
        def teardown(self, estimator, context): ...

        count = 0

        def on_fit_task_end(self, estimator, context):
            self.count += 1
            if self.count == 3:
                raise KeyboardInterrupt

    model = KernelAutoencoder(1, **FIXED, tol=1e-12, max_iter=500)
    model.set_callbacks(Interrupt())
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model.fit(curve)
    assert model.n_iter_ < 10 and np.isfinite(model.transform(curve)).all()


# -- large data -------------------------------------------------------------------------------------------------------
def test_landmarks_at_all_samples_are_exact(curve):
    exact = KernelAutoencoder(1, **FIXED, tol=1e-10, max_iter=500).fit(curve)
    all_of_them = KernelAutoencoder(1, **FIXED, tol=1e-10, max_iter=500, approximation=Nystroem(60)).fit(curve)
    assert all_of_them.objective_value_ == pytest.approx(exact.objective_value_, rel=1e-5)


@pytest.mark.parametrize("target", tiers(["features", "kernel"], lambda target: target == "features"))
def test_batches_come_close_to_all_samples_at_once(rng, target):
    t = rng.uniform(0, 2, 300)
    X = np.column_stack([t, np.sin(3 * t), np.cos(3 * t)]) + 0.02 * rng.standard_normal((300, 3))
    options = {"target": target, "alpha": 1e-4, "encoder_alpha": 1e-4, "random_state": 0, "max_iter": 60}
    full = KernelAutoencoder(1, approximation=Nystroem(40), **options).fit(X)
    batches = KernelAutoencoder(1, approximation=Nystroem(40), batch_size=100, **options).fit(X)
    assert batches.explained_variance_ratio_ > full.explained_variance_ratio_ - 0.05
    assert batches.history_[-1].value < batches.history_[0].value
    again = clone(batches).fit(X)
    assert np.array_equal(again.transform(X), batches.transform(X))


# -- bad input --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_components": 60}, "must be smaller than the number of samples, 60"),
        ({"n_components": 0}, "n_components must be a positive integer"),
        ({"n_components": 1.5}, "n_components must be a positive integer"),
        ({"n_components": []}, "empty list"),
        ({"n_components": ["two"]}, "sizes, pairs"),
        ({"target": "words"}, "target must be a kernel or one of"),
        ({"target": Spectrum(2)}, "both see the same data"),
        ({"preimage": "best"}, "preimage must be one of"),
        ({"supervision": -1.0}, "supervision must be"),
        ({"encoder_alpha": 0.0}, "encoder_alpha must be positive"),
        ({"alpha": -1.0}, "alpha must be positive"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"decoder_kernel": Spectrum(2)}, "decoder_kernel takes data of the kind"),
        ({"decoder_kernel": "rfb"}, "rfb"),
        ({"criterion": "aic"}, "criterion must be one of"),
    ],
)
def test_bad_arguments(curve, options, message):
    with pytest.raises(ValueError, match=message):
        KernelAutoencoder(**{**FIXED, **options}).fit(curve)


def test_bad_data(curve):
    model = KernelAutoencoder(1, **FIXED).fit(curve)
    with pytest.raises(ValueError, match="2 columns, but codes have 1"):
        model.inverse_transform(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="candidates= are for reconstructions in an RKHS"):
        model.inverse_transform(np.zeros((3, 1)), candidates=curve)
    with pytest.raises(ValueError, match="diagonal= is for kernel='precomputed'"):
        model.reconstruction_error(curve, diagonal=np.ones(60))
    with pytest.raises(ValueError, match="4 features"):
        model.transform(np.zeros((2, 4)))
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.full((5, 2), np.nan))
    with pytest.raises(NotFittedError):
        KernelAutoencoder().inverse_transform([[0.0, 0.0]])
    gram = curve @ curve.T
    rows = KernelAutoencoder(1, "precomputed", **FIXED).fit(gram)
    assert rows.reconstruction_error(gram).shape == (60,)  # the training data bring their diagonal
    with pytest.raises(ValueError, match="Pass diagonal="):
        rows.reconstruction_error(gram[:5])
    with pytest.raises(ValueError, match=r"shape \(5,\)"):
        rows.reconstruction_error(gram[:5], diagonal=np.ones(4))
    with pytest.raises(ValueError, match="not symmetric"):
        KernelAutoencoder(1, "precomputed", **FIXED).fit(np.triu(gram))
    with pytest.raises(ValueError, match="no mean"):
        KernelAutoencoder(1, Spectrum(2), preimage="weighted", **FIXED).fit(WORDS).reconstruct(WORDS)
    with pytest.raises(ValueError, match="image of nothing"):
        KernelAutoencoder(1, target="kernel", preimage="direct", **FIXED).fit(curve).reconstruct(curve)
    with pytest.raises(ValueError, match="target='features' reconstructs dense vectors"):
        KernelAutoencoder(1, Spectrum(2), target="features", **FIXED).fit(WORDS)


def test_degenerate_data(rng):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        with pytest.raises(ValueError, match="is zero for all samples"):
            KernelAutoencoder(1, "precomputed", **FIXED).fit(np.zeros((9, 9)))
        constant = KernelAutoencoder(1, n_restarts=1, random_state=0, max_iter=10).fit(np.ones((10, 2)))
        assert np.allclose(constant.reconstruct(np.ones((3, 2))), 1.0) and constant.score(np.ones((3, 2))) == 1.0
        doubled = np.repeat(rng.standard_normal((8, 3)), 3, axis=0)
        assert np.isfinite(KernelAutoencoder(2, n_restarts=1, random_state=0, max_iter=10).fit(doubled).score(doubled))
        flat = rng.standard_normal((20, 1)) @ np.ones((1, 4))  # a Gram matrix of rank one
        assert KernelAutoencoder(2, "linear", **FIXED).fit(flat).score(flat) > 0.9


def test_collapsed_codes_are_reported(curve):
    with pytest.warns(ConvergenceWarning, match="collapsed to a constant"):
        KernelAutoencoder(1, alpha=1e-2, encoder_alpha=1e3, random_state=0).fit(curve)


@pytest.mark.parametrize("layers", [1, [3, 1, 3]])
def test_codes_that_are_only_rounding_are_zero(layers):
    points = 1e-100 * np.random.default_rng(0).normal(size=(20, 2))
    options = {"alpha": 1e-2, "encoder_alpha": 1e-2, "n_restarts": 1, "max_iter": 4, "random_state": 0}
    with pytest.warns(ConvergenceWarning, match="collapsed to a constant"):
        model = KernelAutoencoder(layers, Laplacian(1e-100), Laplacian(1.0), **options).fit(points)
    assert not model.transform(points).any()
    np.testing.assert_allclose(model.reconstruct(points), np.tile(points.mean(0), (20, 1)), rtol=1e-12)


def test_widths_are_learned_by_default_where_penalties_are(curve):
    options = {"n_restarts": 1, "random_state": 0, "max_iter": 20}
    by_default = KernelAutoencoder(1, **options).fit(curve)
    named = KernelAutoencoder(1, Gaussian("auto"), Gaussian("auto"), **options).fit(curve)
    assert (by_default.kernel_, by_default.decoder_kernel_) == (named.kernel_, named.decoder_kernel_)
    median = KernelAutoencoder(1, "rbf", "rbf", **options).fit(curve)
    assert by_default.kernel_.lengthscale != median.kernel_.lengthscale
    assert by_default.criterion_value_ <= median.criterion_value_ * (1 + 1e-6)  # it starts from the median
    fixed = KernelAutoencoder(1, **FIXED).fit(curve)
    assert fixed.kernel_ == KernelAutoencoder(1, "rbf", "rbf", **FIXED).fit(curve).kernel_
    with pytest.warns(ConvergenceWarning, match="max_iter=2 reached"):
        KernelAutoencoder(1, **{**FIXED, "max_iter": 2, "tol": 1e-12}).fit(curve)


def test_memory_is_asked_for_before_it_is_taken(curve, monkeypatch):
    monkeypatch.setattr("representer.linalg.resources.BLOCK_BYTES", 500)  # less is not worth the question
    monkeypatch.setattr("representer.linalg.resources.available_bytes", lambda: 1_000)
    with pytest.raises(MemoryError, match=r"An exact fit of inner layers to \d+ samples.*approximation=Nystroem"):
        KernelAutoencoder(2).fit(curve)


def constrained(X, sizes, bounds):
    """The least distortion of linear functions W_1, …, W_L with Frobenius norms within bounds, by SLSQP.

    Its distortion, and the multipliers of KKT: ∇V = −2 λ W for each function.
    """
    widths = [X.shape[1], *sizes, X.shape[1]]
    shapes = [(after, before) for before, after in pairwise(widths)]
    ends = np.cumsum([0, *(a * b for a, b in shapes)])
    slices = [slice(first, last) for first, last in pairwise(ends)]

    def distortion(w):
        product = np.eye(X.shape[1])
        for place, shape in zip(slices, shapes, strict=True):
            product = w[place].reshape(shape) @ product
        return ((X - X @ product.T) ** 2).sum(1).mean()

    conditions = [
        {"type": "ineq", "fun": lambda w, place=place, s=s: s**2 - (w[place] ** 2).sum()}
        for place, s in zip(slices, bounds, strict=True)
    ]
    starts = np.random.default_rng(0).normal(scale=0.3, size=(6, ends[-1]))
    options = {"ftol": 1e-12, "maxiter": 500}
    fits = [minimize(distortion, w, method="SLSQP", constraints=conditions, options=options) for w in starts]
    best = min(fits, key=lambda fit: fit.fun)
    multipliers = [-(best.jac[p] @ best.x[p]) / (2.0 * (best.x[p] @ best.x[p])) for p in slices]
    return best.fun, np.array(multipliers)


@pytest.mark.parametrize(
    ("sizes", "bounds"),
    [
        ([1], (0.5, 0.5)),
        ([1], (0.3, 1.0)),
        ([1], (50.0, 50.0)),
        ([2, 1], (0.8, 0.9, 0.7)),
        ([2, 1], (50.0, 0.5, 0.01)),
        ([2, 1, 2], (0.9, 0.8, 1.0, 0.7)),
        ([2, 1, 2], (20.0, 20.0, 20.0, 20.0)),
    ],
)
def test_norm_bounds_solve_the_constrained_problem_of_theorem_1(sizes, bounds):
    X = np.random.default_rng(0).normal(size=(30, 3)) * [2.0, 1.0, 0.5]
    X -= X.mean(0)
    options = {"fit_intercept": False, "n_restarts": 1, "random_state": 0, "tol": 1e-9, "max_iter": 2000}
    model = KernelAutoencoder(sizes, "linear", "linear", norm_bounds=bounds, **options).fit(X)
    distortion, expected = constrained(X, sizes, bounds)
    assert model.reconstruction_error(X).mean() == pytest.approx(distortion, rel=1e-5)
    assert (np.array(model.layer_norms_) <= (1.0 + 1e-6) * np.array(bounds)).all()
    multipliers = np.array([*(layer.alpha for layer in model.layers_), model.alpha_])
    if min(bounds) > 10.0:  # No norm comes near to its bound, and there is next to no multiplier.
        assert not multipliers[:-1].any() and multipliers[-1] < 1e-6
    else:  # All bounds are reached: products of linear functions gain by every norm.
        np.testing.assert_allclose(model.layer_norms_, bounds, rtol=1e-4)
        np.testing.assert_allclose(multipliers, expected, rtol=1e-3)


@pytest.mark.filterwarnings("ignore:The codes have collapsed")  # where penalties are large
@pytest.mark.parametrize(("layers", "bounds"), [(1, (1.0, 1.5)), ([2, 1], (1.0, 1.5, 1.5)), ([3, 1, 3], (1.0,) * 4)])
def test_no_penalised_fit_within_the_norm_bounds_has_less_distortion(curve, layers, bounds):
    X, kernels = curve[:30], (Gaussian(1.0), Gaussian(0.7))
    options = {"n_restarts": 1, "random_state": 0, "tol": 1e-6, "max_iter": 1000}
    model = KernelAutoencoder(layers, *kernels, norm_bounds=bounds, **options).fit(X)
    norms, limits = np.array(model.layer_norms_), np.array(bounds)
    multipliers = np.array([*(layer.alpha for layer in model.layers_), model.alpha_])
    assert (norms <= (1.0 + 1e-6) * limits).all()
    np.testing.assert_allclose(norms[multipliers > 1e-6], limits[multipliers > 1e-6], rtol=1e-3)
    distortion, compared = model.reconstruction_error(X).mean(), 0
    for inner_factor, outer_factor in [(1.0, 1.0), (1.0, 1.3), (1.3, 1.0), (0.7, 1.3), (1.3, 1.3), (2.0, 2.0)]:
        *inner, alpha = np.maximum(multipliers, 1e-4) * [*np.full(len(bounds) - 1, inner_factor), outer_factor]
        encoder = [layer.replaced(alpha=a) for layer, a in zip(model.layers_, inner, strict=True)]
        penalised = KernelAutoencoder(encoder, decoder_kernel=kernels[1], alpha=alpha, **options).fit(X)
        if (np.array(penalised.layer_norms_) <= limits).all():
            compared += 1
            assert distortion <= penalised.reconstruction_error(X).mean() * (1.0 + 1e-4)
    assert compared >= 2


def test_a_norm_below_its_bound_has_no_multiplier_and_bad_bounds_are_refused(curve):
    model = KernelAutoencoder(1, norm_bounds=[3.0, 2.0], n_restarts=1, random_state=0).fit(curve[:40])
    assert model.layer_norms_[0] < 3.0 and model.layer_norms_[1] == pytest.approx(2.0, rel=1e-6)
    assert model.layers_[0].alpha == 0.0 < model.alpha_
    short, long, nested = [1.0], [1.0, 1.0, 1.0], [[1.0, 1.0]]
    for bounds in (short, long, nested, *([1.0, second] for second in (0.0, np.inf, -1.0, "a", True, 1e200))):
        with pytest.raises(ValueError, match="norm_bounds must be 2 positive numbers"):
            KernelAutoencoder(1, norm_bounds=bounds).fit(curve[:40])
    with pytest.raises(ValueError, match="norm_bounds must be 4 positive numbers"):
        KernelAutoencoder([3, 1, 3], norm_bounds=[1.0, 1.0]).fit(curve[:40])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_norm_bounds_that_are_out_of_reach_leave_next_to_no_distortion(curve, dtype):
    for bound in (1e3, 1e6, 1e90):
        model = KernelAutoencoder(1, Gaussian(1.0), Gaussian(0.7), norm_bounds=[bound] * 2, dtype=dtype, random_state=0)
        assert model.fit(curve[:40]).reconstruction_error(curve[:40]).mean() < 1e-4


@pytest.mark.parametrize("bounds", [(2.0, 2.0), (3.0, 30.0), (10.0, 100.0)])
def test_norm_bounds_hold_in_single_precision(curve, bounds):
    options = {"norm_bounds": bounds, "random_state": 0, "dtype": "float32"}
    model = KernelAutoencoder(1, Gaussian(1.0), Gaussian(0.7), **options).fit(curve[:40])
    assert (np.array(model.layer_norms_) <= 1.001 * np.array(bounds)).all()
    f = model.function_.outer_expansion().loaded
    Z, C = f.anchors.double(), f.coefficients.double()
    K = torch.exp(-(torch.cdist(Z, Z) ** 2) / (2.0 * 0.7**2))
    assert model.layer_norms_[-1] == pytest.approx((C * (K @ C)).sum().sqrt().item(), rel=1e-3)


def test_a_search_with_norm_bounds_that_ends_early_obeys_them_and_warns(curve):
    options = {"n_restarts": 1, "random_state": 0, "max_iter": 1}
    with pytest.warns(ConvergenceWarning, match="miss the conditions of a solution"):
        model = KernelAutoencoder([3, 1, 3], "rbf", "rbf", norm_bounds=[0.5, 1.0, 1.0, 2.0], **options).fit(curve[:40])
    assert (np.array(model.layer_norms_) <= (1.0 + 1e-6) * np.array([0.5, 1.0, 1.0, 2.0])).all()


def test_norm_bounds_hold_for_landmarks_strings_and_labels(curve):
    options = {"n_restarts": 1, "random_state": 0}
    words = ["banana", "bananas", "ananas", "cabana", "ferret", "ferrets", "merit", "ferrite"]
    models = [
        KernelAutoencoder([2, 1], Spectrum(2).normalized(), "rbf", norm_bounds=[1.0] * 3, **options).fit(words),
        KernelAutoencoder(1, "rbf", "rbf", norm_bounds=[1.0] * 2, approximation=Nystroem(10), **options).fit(curve),
        KernelAutoencoder(1, "rbf", "rbf", norm_bounds=[1.0] * 2, supervision=1.0, **options).fit(curve, curve[:, 0]),
    ]
    for model in models:
        assert (np.array(model.layer_norms_) <= 1.0 + 1e-6).all()
    assert [model.layer_norms_[-1] for model in models[:2]] == pytest.approx([1.0, 1.0])


def test_a_missing_label_takes_no_constant_from_decoders_on_landmarks() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2)) + 5.0
    y = X[:, 0].copy()
    options = {"alpha": 1e-3, "encoder_alpha": 1e-3, "supervision": 0.1, "max_iter": 5, "n_restarts": 1}
    options |= {"approximation": Nystroem(20), "random_state": 0}
    scores = []
    for missing in (0, 1):
        y[:missing] = np.nan
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            scores.append(KernelAutoencoder(1, "rbf", "rbf", **options).fit(X, y).score(X))
    assert scores[1] == pytest.approx(scores[0], abs=0.05)


def test_vectors_that_hardly_vary_beside_their_size_have_a_score() -> None:
    X = 1e6 + 1e-3 * np.random.default_rng(0).normal(size=(40, 2))
    model = KernelAutoencoder(1, "rbf", "rbf", alpha=1e-2, encoder_alpha=1e-8, max_iter=20, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        score = model.fit(X).score(X)
    assert 0.1 < score < 0.999
