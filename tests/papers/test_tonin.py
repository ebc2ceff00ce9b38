"""The experiments on deep kernel PCA: small forms of them run, and what they measure is what they say."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression

from papers import EXPERIMENTS, reproduce, select
from papers.results import Measurements, Outcome
from papers.tonin import shapes, solvers, tables
from representer import DeepKernelPCA
from representer.datasets import make_shapes, make_synth3
from representer.kernels import Gaussian


def silent() -> Console:
    return Console(file=io.StringIO(), width=150)


def quick(name: str, folder: Path, **options: Any) -> Outcome:
    outcome = reproduce([name], folder, quick=True, console=silent(), **options).outcomes[name]
    assert outcome.status == "finished", outcome.reason
    return outcome


@pytest.mark.parametrize("name", ["tonin-figure4", "tonin-figure9b", "tonin-figure10", "tonin-figure11"])
def test_quick_figures_keep_their_claims(name: str, tmp_path: Path) -> None:
    outcome = quick(name, tmp_path)
    assert outcome.verdict == "reached", outcome.claims
    assert (tmp_path / next(iter(outcome.figures))).read_bytes().startswith(b"\x89PNG")


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
    assert result == tables.chosen(iter([PCA(1)]), parts, False)
    assert tables.chosen(iter([collapsed]), parts, False) == {tables.CANDIDATES: 0}
    with pytest.raises(ValueError, match="n_components"):
        tables.chosen(iter([DeepKernelPCA([1000])]), parts, False)


def test_every_method_has_five_components_and_levelwise_its_solver() -> None:
    for method in tables.METHODS:
        models = list(tables.candidates(method))
        assert {int(np.sum(model.n_components)) for model in models} == {5}
        if method == tables.LEVELWISE:
            assert {model.solver for model in models} == {"levelwise"}
    assert {len(model.n_components) for model in tables.DEPTHS["4 levels"](True)} == {4}


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
