"""The experiments on autoencoders: small forms of them run, and what they measure is what they say."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from tiers import tiers

from papers import EXPERIMENTS, reproduce, select
from papers.claims import lower_in_most
from papers.laforgue import labelled, molecules, pictures
from papers.results import Measurements
from representer import KernelAutoencoder
from representer.kernels import Graph, WeisfeilerLehman


def silent() -> Console:
    return Console(file=io.StringIO(), width=150)


def test_figure_3_on_few_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = pictures.circle_models

    def quick_models(seed: int) -> dict[str, object]:
        chosen = everything(seed)
        learned = [name for name in chosen if "learned" in name]
        return {name: model for name, model in chosen.items() if name not in learned}

    monkeypatch.setattr(pictures, "circle_models", quick_models)
    monkeypatch.setattr(pictures, "POINTS", (60, 40))
    outcome = reproduce(["laforgue-figure3"], tmp_path, quick=True, console=silent()).outcomes["laforgue-figure3"]
    assert outcome.status == "finished", outcome.reason
    assert outcome.claims[0]["verdict"] == "reached", outcome.claims[0]
    assert (tmp_path / next(iter(outcome.figures))).read_bytes().startswith(b"\x89PNG")
    found = outcome.measurements()
    assert found.mean(pictures.CIRCLES, pictures.KAE, pictures.TRAINING) > 0
    assert pictures.TRAINING not in found[pictures.CIRCLES, "KPCA, width 1"]


@pytest.mark.slow
def test_figures_5_to_7(tmp_path: Path) -> None:
    name = "laforgue-figures5-7"
    outcome = reproduce([name], tmp_path, quick=True, console=silent()).outcomes[name]
    assert outcome.status == "finished", outcome.reason
    found = outcome.measurements()
    # Clusters that are 20 and 9 standard deviations apart have codes apart.
    for case in (pictures.LINE_CLUSTERS, pictures.CLUSTERS):
        assert found.mean(case, pictures.ONE, pictures.NEIGHBOUR) <= 0.02
    assert (tmp_path / next(iter(outcome.figures))).read_bytes().startswith(b"\x89PNG")


def test_what_lacks_its_data_is_not_run(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    lacking = [experiment.name for experiment in select(["laforgue"]) if experiment.data]
    assert {"laforgue-usps", "laforgue-table1", "laforgue-nci60", "laforgue-table2"} <= set(lacking)
    results = reproduce(lacking, tmp_path / "out", quick=True, data=empty, console=silent())
    for name in lacking:
        outcome = results.outcomes[name]
        assert outcome.status == outcome.verdict == "not run"
        (source, *_) = next(e for e in EXPERIMENTS if e.name == name).data
        assert source.file in outcome.reason
    assert "not run" in (tmp_path / "out" / "report.md").read_text(encoding="utf-8")


def test_rivals_of_the_autoencoder_on_pictures(rng: np.random.Generator) -> None:
    t = rng.uniform(0, 3, 120)
    X = np.column_stack([np.cos(t), np.sin(t), t]) + 0.01 * rng.standard_normal((120, 3))
    line = pictures.pca_error(X[:80], X[80:], 1, 0)[pictures.TEST]
    ridge = pictures.ridge_error(X[:80], X[80:], 1, 0)[pictures.TEST]
    assert 0 < ridge < 0.5 * line


def test_strategies_predict_from_gram_matrices(rng: np.random.Generator) -> None:
    bits = (rng.random((60, 20)) < 0.4).astype(float)
    gram, y = molecules.tanimoto(bits), bits[:, :6].sum(1)
    train, cross, seen, unseen = molecules.split_of(gram, y, 0)
    assert train.shape == (48, 48) and cross.shape == (12, 48) and len(unseen) == 12
    for name, strategy in molecules.strategies([3]).items():
        predictions = strategy(train, cross, seen)
        assert predictions.shape == (12,), name
        assert np.isfinite(predictions).all()
    several = molecules.forest((train, cross), np.column_stack([seen, -seen]))
    assert several.shape == (12, 2)


def test_codes_that_know_labels_serve_them(rng: np.random.Generator) -> None:
    X = rng.normal(size=(150, 6)) * [2.0, 2.0, 2.0, 2.0, 2.0, 1.0]  # what varies least is what y is made of
    gram, y = X @ X.T, X[:, 5] + 0.01 * rng.normal(size=150)
    train, cross, seen, unseen = molecules.split_of(gram, y, 0)
    few = np.where(np.arange(len(seen)) % 2 == 0, seen, np.nan)
    blind, *others = (
        float(molecules.nmse(strategy(train, cross, labels, 5), unseen))
        for strategy, labels in (
            (labelled.with_principal, seen),
            (labelled.with_labels, seen),
            (labelled.with_labels, few),
            (labelled.with_the_labelled, few),
        )
    )
    assert max(others) < 0.5 * blind


def nodes_with_neighbours(ring: list[int]) -> list[tuple[int, tuple[int, ...]]]:
    """The label of each node of a ring together with those of the node before it and the one after it, in order."""
    return [(label, tuple(sorted((ring[i - 1], ring[(i + 1) % len(ring)])))) for i, label in enumerate(ring)]


def test_codes_of_graphs_are_those_of_their_histograms(rng: np.random.Generator) -> None:
    """Rings with labels: codes by the kernel of graphs, and by the counts of labels with those of their neighbours."""
    rings = [rng.integers(0, 3, size=6).tolist() for _ in range(40)]
    histograms = [Counter(ring) + Counter(nodes_with_neighbours(ring)) for ring in rings]
    names = sorted({name for histogram in histograms for name in histogram}, key=str)
    H = np.array([[histogram[name] for name in names] for histogram in histograms], dtype=float)
    edges = [(i, (i + 1) % 6) for i in range(6)]
    gram = WeisfeilerLehman(1)([Graph(edges, node_labels=ring) for ring in rings]).numpy()
    np.testing.assert_allclose(gram, H @ H.T)
    train, cross, seen, _ = molecules.split_of(gram, np.arange(40) % 2, 0)
    order = np.random.default_rng(0).permutation(40)
    encoder, decoder = labelled.PENALTIES
    vectors = KernelAutoencoder(10, "linear", alpha=decoder, encoder_alpha=encoder, n_restarts=1, random_state=0)
    vectors.fit(H[order[:32]])
    codes, new = labelled.graph_codes(molecules.k2ae(10), train, cross, seen)
    for ours, X in ((codes, H[order[:32]]), (new, H[order[32:]])):
        expected = vectors.transform(X)
        np.testing.assert_allclose(ours @ ours.T, expected @ expected.T, atol=1e-3 * np.abs(expected).max() ** 2)
    supervised = labelled.graph_codes(labelled.GRAPH_SUPERVISED, train, cross, seen)
    assert [part.shape for part in supervised] == [(32, 10), (8, 10)]


def test_nmse_is_one_for_the_mean() -> None:
    y = np.array([[0.0, 1.0], [2.0, 5.0], [1.0, 0.0]])
    assert np.allclose(molecules.nmse(np.broadcast_to(y.mean(0), y.shape), y), 1.0)
    assert np.allclose(molecules.nmse(y, y), 0.0)


@pytest.mark.parametrize("activation", tiers(["sigmoid", "relu"], lambda activation: activation == "relu"))
def test_a_dense_autoencoder_learns(activation: str, rng: np.random.Generator) -> None:
    factors = (rng.random((120, 3)) < 0.5).astype(float)
    X = factors[:, [0, 0, 1, 1, 2, 2]]
    error = molecules.dense_error(X[:100], X[100:], 4, activation, 100)[molecules.MSRE]
    assert error < 0.3 * X.var(0).sum()


def test_lower_in_most() -> None:
    measured = Measurements(
        {
            (case, method): {"error": [value]}
            for case, ours, theirs in (("a", 1.0, 2.0), ("b", 1.0, 1.0), ("c", 3.0, 1.0))
            for method, value in (("ours", ours), ("theirs", theirs))
        }
    )

    def verdict(cases: list[str], at_least: int) -> str:
        return lower_in_most("text", "error", cases, "ours", "theirs", at_least).judge(measured)[0]

    assert verdict(["a", "b", "c"], 2) == "reached"
    assert verdict(["a", "b", "c"], 3) == "not reached"
    assert verdict(["a", "b"], 3) == "ordering kept"
