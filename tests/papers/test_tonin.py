"""The experiments on deep kernel PCA: small forms of them run, and what they measure is what they say."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from scipy.stats import norm
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression
from tiers import tiers

from papers import EXPERIMENTS, reproduce, select
from papers.results import Measurements, Outcome
from papers.tonin import authors, shapes, solvers, tables
from representer import DeepKernelPCA
from representer.datasets import make_shapes, make_synth3
from representer.kernels import Gaussian


def silent() -> Console:
    return Console(file=io.StringIO(), width=150)


def quick(name: str, folder: Path, **options: Any) -> Outcome:
    outcome = reproduce([name], folder, quick=True, console=silent(), **options).outcomes[name]
    assert outcome.status == "finished", outcome.reason
    return outcome


@pytest.mark.parametrize(
    "name", tiers([f"tonin-figure{number}" for number in ("4", "9b", "10", "11")], lambda name: name.endswith("11"))
)
def test_quick_figures_keep_their_claims(name: str, tmp_path: Path) -> None:
    outcome = quick(name, tmp_path)
    assert outcome.verdict == "reached", outcome.claims
    assert (tmp_path / next(iter(outcome.figures))).read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_quick_digits_are_drawn(tmp_path: Path) -> None:
    outcome = quick("tonin-digits", tmp_path)
    assert (tmp_path / next(iter(outcome.figures))).read_bytes().startswith(b"\x89PNG")
    found = outcome.measurements()
    assert 0 < found.mean("digits", "ridge, level 0", "test error") < found.mean("digits", "networks", "test error")


def test_table_b5_is_pca_with_the_smaller_number_of_components(tmp_path: Path) -> None:
    outcome = quick("tonin-table-b5", tmp_path)
    assert outcome.verdict == "reached", outcome.claims
    vectors = make_synth3(600, random_state=0)
    X, T = vectors[:100], vectors[100:]
    # Features are not centred there, so that the components are those of XᵀX.
    basis = np.linalg.svd(X, full_matrices=False)[2][:4]
    assert outcome.measurements().mean("s₂ = 4", "s₁ = 16", solvers.MSE) == pytest.approx(
        float(((T - T @ basis.T @ basis) ** 2).mean())
    )


def test_what_lacks_its_data_is_not_run(tmp_path: Path) -> None:
    lacking = [e.name for e in select(["tonin"]) if e.data]
    assert {"tonin-figure9c", "tonin-table-b3", "tonin-diabetes", "tonin-depth-yacht"} <= set(lacking)
    results = reproduce(lacking, tmp_path / "out", quick=True, data=tmp_path, console=silent())
    for name in lacking:
        (source, *_) = next(e for e in EXPERIMENTS if e.name == name).data
        assert results.outcomes[name].status == "not run" and source.file in results.outcomes[name].reason


def test_the_protocol_chooses_by_validation_only(rng: np.random.Generator) -> None:
    X = rng.normal(size=(100, 6)) * [3.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    y = X[:, 0] + 0.1 * rng.normal(size=100)
    X[0, 0] = np.nan
    parts = tables.split(X, y, False, 0)
    assert [len(part) for part in parts] == [60, 60, 20, 20, 20, 20]
    assert np.isfinite(np.vstack(parts[::2])).all()
    assert np.allclose(parts[0].mean(0), 0.0) and np.allclose(parts[0].std(0)[1:], 1.0)  # by the training part
    assert np.abs(parts[4].mean(0)).max() > 0.01
    models = [PCA(1), PCA(5)]
    errors = []
    for model in models:
        linear = LinearRegression().fit(model.fit(parts[0]).transform(parts[0]), parts[1])
        scores = [np.sqrt(np.mean((linear.predict(model.transform(parts[i])) - parts[i + 1]) ** 2)) for i in (2, 4)]
        errors.append(scores)
    best = min(errors)
    result = tables.chosen(iter([PCA(1), PCA(5)]), parts, False)
    assert result["validation error"] == pytest.approx(best[0])
    assert result[tables.ERROR] == pytest.approx(best[1])


def test_collapsed_candidates_are_passed_over(rng: np.random.Generator) -> None:
    parts = tables.split(rng.normal(size=(60, 6)), rng.normal(size=60), False, 0)
    collapsed = DeepKernelPCA([3, 2], [Gaussian(1.0), Gaussian(1e12)])
    result = tables.chosen(iter([collapsed, PCA(1)]), parts, False)
    assert result == {**tables.chosen(iter([PCA(1)]), parts, False), tables.FAILED: 1}
    assert tables.chosen(iter([collapsed]), parts, False) == {tables.CANDIDATES: 0, tables.FAILED: 1}
    with pytest.raises(ValueError, match="n_components"):
        tables.chosen(iter([DeepKernelPCA([1000])]), parts, False)


def test_every_method_has_five_components_and_levelwise_its_solver() -> None:
    for method in tables.METHODS:
        models = list(tables.candidates(method))
        assert {int(np.sum(model.n_components)) for model in models} == {5}
        if method == tables.LEVELWISE:
            assert {model.solver for model in models} == {"levelwise"}
    assert {len(model.n_components) for model in tables.DEPTHS["4 levels"](True)} == {4}


def test_widths_of_all_levels_are_learned_by_recovery_alone(rng: np.random.Generator) -> None:
    X, y = rng.normal(size=(40, 4)), rng.normal(size=40)
    (model,) = tables.learned(quick=True)
    searched = model.fit(X, y)[-1]
    assert {len(set(searched.cv_results_[f"param_kernel__{j}__lengthscale"])) for j in (0, 1)} == {2, 3}
    train, held_out = next(searched.cv.split(X))
    best = searched.best_estimator_
    assert searched.best_score_ == pytest.approx(clone(best).fit(X[train]).score(X[held_out]))
    assert best.kernel_[1].lengthscale == pytest.approx(searched.best_params_["kernel__1__lengthscale"])


def test_published_errors_within_a_standard_error() -> None:
    claim = tables.within_one_error("yacht", "DKPCA", 8.0)
    for values, verdict in (([8.0, 8.4], "reached"), ([8.5, 8.6], "not reached")):
        found = Measurements({("yacht", "DKPCA"): {tables.ERROR: values}})
        assert claim.judge(found)[0] == verdict


def test_cost_9_vanishes_at_a_solution_only(rng: np.random.Generator) -> None:
    X = rng.normal(size=(40, 3))
    kernels = [Gaussian(2.0), Gaussian(1.0)]
    solved = DeepKernelPCA([3, 2], kernels, center=False, random_state=0).fit(X)
    assert solvers.cost(solved, X) < 1e-12
    levelwise = DeepKernelPCA([3, 2], kernels, center=False, solver="levelwise", random_state=0).fit(X)
    assert solvers.cost(levelwise, X) > 1e-6


def test_the_objective_of_the_authors_is_its_loops_and_falls(rng: np.random.Generator) -> None:
    X, kernel, eta = torch.from_numpy(rng.normal(size=(12, 2))), Gaussian(0.8), -2.0
    gram = kernel(X)
    H, above = (np.linalg.qr(rng.normal(size=(12, s)))[0] for s in (3, 2))
    values, values_above = rng.random(3), rng.random(2)
    K = np.array([[np.exp(-((a - b) ** 2).sum() / (2 * 0.8**2)) for b in H] for a in H])
    G = np.zeros_like(H)
    for i in range(12):
        for n in range(12):
            G[i] -= (H[i] - H[n]) / 0.8**2 * K[i, n] * (above[i] @ above[n])
    first = gram.numpy() @ H + G / eta - H @ np.diag(values)
    last = K / eta - above @ np.diag(values_above) @ above.T
    blocks = [torch.from_numpy(block) for block in (H, above, values, values_above)]
    expected = 0.5 * np.linalg.norm(first) ** 2 + 0.5 * np.linalg.norm(last) ** 2
    assert float(authors.authors_cost(gram, kernel, eta, blocks)) == pytest.approx(expected)
    short, long = (authors.projected_descent(gram, kernel, (3, 2), n_steps=n) for n in (1, 15))
    costs = [float(authors.authors_cost(gram, kernel, 1.0, point)) for point in (short, long)]
    assert costs[1] < 0.9 * costs[0]
    for block in long[:2]:
        torch.testing.assert_close(block.mT @ block, torch.eye(block.shape[1], dtype=block.dtype))
    assert min(float(block.min()) for block in long[2:]) >= 0


def test_the_beta_vae_learns_and_is_deterministic() -> None:
    pictures = make_shapes(60, n_values={"shape": 1, "orientation": 1}, random_state=0)
    X = pictures.data
    short, long = (shapes.BetaVAE(4, beta=0.1, n_steps=n).fit(X) for n in (5, 150))
    batch, generator = torch.as_tensor(X, dtype=torch.float32), torch.Generator().manual_seed(0)
    with torch.no_grad():
        before, after = (float(model._loss(batch, generator.manual_seed(0))) for model in (short, long))
    assert after < 0.7 * before
    again = shapes.BetaVAE(4, beta=0.1, n_steps=5).fit(X)
    assert np.array_equal(again.transform(X), short.transform(X)) and short.transform(X).shape == (60, 4)
    # A huge weight of the divergence leaves nothing in the codes.
    silent_codes = shapes.BetaVAE(4, beta=1000.0, n_steps=150).fit(X).transform(X)
    assert silent_codes.std() < 0.2 * long.transform(X).std()


def test_total_correlation_is_its_double_loop(rng: np.random.Generator) -> None:
    mean, log_variance, codes = (torch.from_numpy(rng.normal(size=(5, 3))) for _ in range(3))
    points = [part.numpy() for part in (mean, log_variance, codes)]
    total, n = 0.0, 50
    for i in range(5):
        densities = np.array([norm.pdf(points[2][i], points[0][j], np.exp(0.5 * points[1][j])) for j in range(5)])
        joint, marginals = densities.prod(1).sum() / (n * 5), densities.sum(0) / (n * 5)
        total += (np.log(joint) - np.log(marginals).sum()) / 5
    assert float(shapes.total_correlation(mean, log_variance, codes, n)) == pytest.approx(total)


def test_the_best_discriminator_is_the_log_ratio_whose_mean_is_the_total_correlation() -> None:
    generator, rho = torch.Generator().manual_seed(0), 0.8
    covariance = torch.tensor([[1.0, rho], [rho, 1.0]])
    codes = torch.randn(20000, 2, generator=generator) @ torch.linalg.cholesky(covariance).T
    correlated = torch.distributions.MultivariateNormal(torch.zeros(2), covariance)
    independent = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))

    def loss(scale: float, shift: float) -> float:
        def logit(z: torch.Tensor) -> torch.Tensor:
            return scale * (correlated.log_prob(z) - independent.log_prob(z)) + shift

        return float(shapes.contest_loss(logit, codes, torch.Generator().manual_seed(1)))

    best = loss(1.0, 0.0)
    assert all(best < loss(scale, shift) for scale, shift in ((0.8, 0.0), (1.2, 0.0), (1.0, 0.2), (1.0, -0.2)))
    mean = float((correlated.log_prob(codes) - independent.log_prob(codes)).mean())
    assert mean == pytest.approx(-0.5 * np.log(1.0 - rho**2), rel=0.05)  # the total correlation


@pytest.mark.parametrize("model", [shapes.BetaTCVAE, shapes.FactorVAE])
def test_rivals_without_weight_on_the_correlation_are_the_vae(model: type[shapes.BetaVAE]) -> None:
    X = make_shapes(40, n_values={"shape": 1, "orientation": 1}, random_state=0).data
    neutral = 0.0 if model is shapes.FactorVAE else 1.0
    ours, weighted = (model(2, beta, 1).fit(X).transform(X) for beta in (neutral, 50.0))
    vae = shapes.BetaVAE(2, 1.0, 1).fit(X).transform(X)
    np.testing.assert_allclose(ours, vae, atol=1e-6)
    assert np.abs(weighted - vae).max() > 1e-4


def test_unnormalised_codes_are_half_a_sum(rng: np.random.Generator) -> None:
    X, T = rng.random((20, 3)), rng.random((4, 3))
    model = shapes.Unnormalised(DeepKernelPCA([2, 2], "linear", center=False)).fit(X)
    H = np.hstack(model.model.hidden_)
    expected = [sum(0.5 * np.exp(-((t - x) ** 2).sum() / 40000.0) * h for x, h in zip(X, H, strict=True)) for t in T]
    np.testing.assert_allclose(model.transform(T), expected)


def test_smoothed_codes_are_weighted_means(rng: np.random.Generator) -> None:
    H, X, T = rng.normal(size=(9, 2)), rng.normal(size=(9, 3)), rng.normal(size=(4, 3))
    weights = [[np.exp(-((t - x) ** 2).sum() / (2.0 * np.exp(1.5))) for x in X] for t in T]
    expected = [sum(w * h for w, h in zip(row, H, strict=True)) / sum(row) for row in weights]
    np.testing.assert_allclose(tables.smoothed(H, X, T, 1.5), expected)
    far = tables.smoothed(H, X, X[:1] + 1e3, -2.0)  # no weight underflows: the nearest sample's own
    assert np.isfinite(far).all()


def test_the_authors_levels_have_three_and_two_components_and_a_width_by_validation(rng: np.random.Generator) -> None:
    parts = tables.split(rng.normal(size=(60, 4)), rng.normal(size=60), False, 0)
    model = tables.deep(tables.AUTHORS_SIZES, 1.0, 1.0, 1.0, "levelwise", center=False)
    assert model.n_components == [3, 2]
    best = tables.validated(model, parts, False, (0.0, 2.0))
    single = [tables.validated(model, parts, False, (width,)) for width in (0.0, 2.0)]
    assert best is not None and best.error == min(found.error for found in single if found is not None)
    starts = tables.authors_starts(parts, False, (0.0, 2.0), False)
    errors = [
        tables.validated(tables.deep((3, 2), a, b, 1.0, "levelwise", center=False), parts, False, (0.0, 2.0))
        for a, b in starts
    ]
    assert len(starts) == 4 and (np.diff([found.error for found in errors if found is not None]) >= 0).all()


def test_the_linear_model_may_learn_from_smoothed_codes(rng: np.random.Generator) -> None:
    parts = tables.split(rng.normal(size=(60, 4)), rng.normal(size=60), False, 0)
    train, y, valid, y_valid, test, _ = parts
    model = tables.deep((3, 2), 1.0, 1.0, 1.0, "levelwise", center=False)
    H = model.fit_transform(train)
    codes = [tables.smoothed(H, train, X, 1.0) for X in (train, valid, test)]
    padded = [np.column_stack([np.ones(len(Z)), Z]) for Z in codes]
    solution = np.linalg.lstsq(padded[0], y, rcond=None)[0]
    alike = tables.validated(model, parts, False, (1.0,), True)
    assert alike is not None
    assert alike.error == pytest.approx(np.sqrt(np.mean((padded[1] @ solution - y_valid) ** 2)))
    np.testing.assert_allclose(alike.linear.predict(alike.codes), padded[2] @ solution)
    other = tables.validated(model, parts, False, (1.0,))
    assert other is not None and other.error != alike.error
