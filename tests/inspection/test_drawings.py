"""Objects drawn as what they are, in HTML in which nothing of a user's text runs."""

from __future__ import annotations

from html import escape

import numpy as np
import pytest
import saved_models
from sklearn.base import clone
from sklearn.datasets import load_digits

from representer import DeepKernelPCA, OperatorRidge, StructuredPredictor
from representer.inspection.drawings import Gallery, are_pictures, curve_html, graph_html, item_html, string_html
from representer.kernels import Gaussian, Graph, Linear, Molecule, Spectrum
from representer.values import tree_html

HOSTILE = "<script>alert('1')</script>"


@pytest.mark.parametrize(
    "item",
    [
        HOSTILE,
        {HOSTILE: HOSTILE},
        Graph([(0, 1)], node_labels=["<b>", "C"]),
        [HOSTILE],
        object(),
    ],
    ids=["string", "record", "graph", "list", "object"],
)
def test_hostile_text_is_escaped(item) -> None:
    html = item_html(item, HOSTILE)
    assert "<script" not in html and "<b>C" not in html and "<b><" not in html.replace("<b>&lt;", "")
    assert "&lt;" in html or isinstance(item, object)


def test_strings_are_marked_where_they_match() -> None:
    assert string_html("xxabcxx", "yyabcyy") == "<code>xx<mark>abc</mark>xx</code>"
    assert string_html("ab", "cd") == "<code>ab</code>" and string_html("", "a") == "<code></code>"
    coloured = string_html("ab", values=np.array([1.0, -0.5]))
    assert coloured.count("<span") == 2 and "0,114,178,0.65" in coloured and "213,94,0,0.3" in coloured


def test_pictures_are_told_from_other_squares() -> None:
    digits = load_digits().data
    assert are_pictures(digits) and not are_pictures(digits[:, :60])
    assert not are_pictures(np.random.default_rng(0).normal(size=(100, 64)))
    shuffled = digits[:, np.random.default_rng(0).permutation(64)]
    assert not are_pictures(shuffled)


def test_curves_and_graphs_have_their_points() -> None:
    html = curve_html(np.arange(3.0), np.array([[0.0], [1.0], [np.nan]]))
    assert html.count(",") == 2 and "nan" not in html
    assert graph_html(Graph([(0, 1), (1, 2)])).count("<circle") == 3


def test_a_notebook_shows_neighbours_and_parts() -> None:
    X, y = load_digits(return_X_y=True)
    why = OperatorRidge(Gaussian(20.0), alpha=1e-3).fit(X[:60], y[:60]).explain(X[60:62])
    html = why._repr_html_()
    assert html.count("<img") == 2 * 6 and why[1]._repr_html_().count("<img") == 6
    words = ["ab", "abb", "bba", "b<b>", "aa"]
    model = OperatorRidge(Spectrum((1, 2)), alpha=1e-2).fit(words, [1.0, 2.0, 2.0, 1.0, 0.0])
    html = model.explain(["b<b>b"], parts=True)._repr_html_()
    assert "<mark>" in html and "<span" in html and "b<b>" not in html
    assert Gallery(words, words)[[1]].queries == ["abb"]


def test_molecules_have_coloured_atoms() -> None:
    pytest.importorskip("rdkit")
    smiles = ["CCO", "CCCO", "c1ccccc1", "Cc1ccccc1", "CC(=O)O", "CCN"]
    model = OperatorRidge(Molecule(), alpha=1e-2).fit(smiles, [1.0, 1.1, 0.0, 0.1, 2.0, 0.7])
    why = model.explain(["CCCCO"], parts=True)
    assert why.parts is not None and why.parts[0].shape == (5,) and why.parts_baseline is None
    html = why._repr_html_()
    assert html.count("<svg") == 7 and "<rect" not in html.split("</svg>")[1]  # no white card behind a molecule
    np.testing.assert_array_equal(model.sensitivity(["CCCCO"])[0], why.parts[0])
    np.testing.assert_allclose(why.parts[0][-1], model.predict(["CCCCO"])[0] - model.predict(["CCCC*"])[0])
    ring = model.explain(["Cc1ccccc1"], parts=True).parts[0]
    np.testing.assert_allclose(ring[0], model.predict(["Cc1ccccc1"])[0] - model.predict(["*c1ccccc1"])[0])
    assert model.sensitivity(["[Na+]"])[0].shape == (1,)


def test_nodes_of_graphs_are_removed() -> None:
    from representer.kernels import WeisfeilerLehman

    graphs = [Graph([(i, i + 1) for i in range(n)], node_labels=["C"] * n + ["O"]) for n in range(1, 6)]
    model = OperatorRidge(WeisfeilerLehman(1).normalized(), alpha=1e-2).fit(graphs, np.arange(5.0))
    (effects,) = model.sensitivity([graphs[2]])
    shorter = Graph([(0, 1), (1, 2)], node_labels=["C"] * 3)
    np.testing.assert_allclose(effects[-1], model.predict([graphs[2]])[0] - model.predict([shorter])[0])


def test_columns_share_a_product() -> None:
    """They sum to the prediction; of a sum of kernels they are its members; equal columns have equal shares."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    y = X[:, 0] * X[:, 1]
    model = OperatorRidge(Gaussian(1.0), alpha=1e-2).fit(X, y)
    why = model.explain(X[:4], parts=True)
    parts = np.stack(why.parts)
    rows = np.unique(np.linspace(0, 39, 20).astype(int))
    np.testing.assert_allclose(why.parts_baseline, model.predict(X[rows]).mean())
    np.testing.assert_allclose(why.parts_baseline + parts.sum(1), model.predict(X[:4]))
    linear = OperatorRidge(Linear(), alpha=1e-3).fit(X, X @ [1.0, -2.0, 0.5])
    slopes = linear.sensitivity(X[:1])[0]
    np.testing.assert_allclose(np.stack(linear.explain(X[:4], parts=True).parts), slopes * (X[:4] - X[rows].mean(0)))
    wide = np.concatenate([X, X, X], 1)  # nine columns: orders are sampled
    many = OperatorRidge(Linear(), alpha=1e-3).fit(wide, y)
    shares = np.stack(many.explain(wide[:3], parts=True).parts)
    slopes = many.sensitivity(wide[:1])[0]
    np.testing.assert_allclose(shares, slopes * (wide[:3] - wide[rows].mean(0)), atol=1e-12)
    assert "columns: mean" in why._repr_html_() and why.part_names == ("0", "1", "2")


def test_records_and_scores_have_columns() -> None:
    import pandas as pd

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"width": rng.normal(size=30), "<colour>": rng.choice(["red", "blue"], 30)})
    target = frame["width"] + (frame["<colour>"] == "red")
    model = OperatorRidge(random_state=0).fit(frame, target)
    why = model.explain(frame[:2], parts=True)
    assert why.part_names == ("width", "<colour>") and "<colour>" not in why._repr_html_()
    rows = np.unique(np.linspace(0, 29, 20).astype(int))
    expected = model.predict(frame[:2]) - model.predict(frame.iloc[rows]).mean()
    np.testing.assert_allclose(np.stack(why.parts).sum(1), expected, atol=1e-9)
    X = rng.normal(size=(20, 2))
    scores = StructuredPredictor(Gaussian(1.0), Gaussian(1.0), alpha=0.1).fit(X, X[:, 0])
    why = scores.explain(X[:2], X[:3, 0], parts=True)
    assert why.parts[0].shape == (2, 3)
    np.testing.assert_allclose(why[1:].parts_baseline + why.parts[1].sum(0), why.prediction[1])


def test_components_follow_their_features() -> None:
    """∂h/∂x of hidden features is that of differences."""
    X = np.random.default_rng(0).normal(size=(30, 3))
    for model in (DeepKernelPCA([2, 1], Gaussian(2.0)), DeepKernelPCA([2], Gaussian(2.0))):
        model.fit(X)
        new = 0.9 * X[:2] + 0.1 * X[2:4]
        found = model.sensitivity(new)
        for d in range(3):
            step = 1e-5 * np.eye(3)[d]
            expected = (model.transform(new + step) - model.transform(new - step)) / 2e-5
            np.testing.assert_allclose(found[:, d], expected, atol=1e-6)


LEARNERS = {name: fit for name, fit, _ in saved_models.models() if name.endswith("-vectors") or name == "defaults"}


@pytest.mark.parametrize("name", LEARNERS)
def test_a_notebook_shows_fitted_learners_with_details(name: str) -> None:
    model = LEARNERS[name]()
    html = model._repr_html_()
    # What is kept is shown, and what takes a while is not asked.
    assert all(attribute in html for attribute in vars(model) if attribute.endswith("_"))
    assert "suspects_" not in html.partition("<details>")[0] and "_cached_folds" not in vars(model)
    assert html.count("<summary>details</summary>") == 1 and "How to reproduce it" in html
    assert "<summary>details</summary>" not in clone(model)._repr_html_()
    function = getattr(model, "function_", None)
    if function is not None:
        assert type(function).__name__ in function._repr_html_()


def test_a_report_has_what_twins_and_warnings_say() -> None:
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(20, 2)), 2, axis=0)
    noise = rng.normal(size=40)
    y = X[:, 0] + noise
    model = OperatorRidge(Gaussian(1.0), alpha=1e-13)
    with pytest.warns(UserWarning):
        model.fit(X, y)
    html = model.report().html()
    pairs = y.reshape(20, 2)
    deviation = np.sqrt(np.mean(np.var(pairs, axis=1, ddof=1)))
    assert f"{deviation:.4g}" in html and "samples with a twin" in html
    assert model._record.warnings and all(escape(text) in html for text in model._record.warnings)


def test_kernels_are_trees() -> None:
    html = (2.0 * Gaussian(0.123456) + Linear() * Gaussian([1.0, 2.0, 3.0, 4.0]))._repr_html_()
    assert "lengthscale=0.1235" in html and "[1 … 4]" in html and html.count("<li>") == 5
    assert "&lt;x&gt;" in tree_html(Gaussian("median"), "<x>")
