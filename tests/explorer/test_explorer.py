"""What the page asks of a learner: the numbers are those of the library, the drawings those of the objects."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import KernelPCA

from representer import DeepKernelPCA, EmbeddingClassifier, KernelAutoencoder, OperatorRidge, StructuredPredictor, load
from representer.approximation import Nystroem
from representer.explorer import Explorer
from representer.explorer.drawings import Drawings
from representer.explorer.page import as_json
from representer.kernels import Gaussian, Graph, Linear, Spectrum
from representer.samples import Records

HOSTILE = "<script>document.title='owned'</script>"
WORDS = ["banana", "bananas", "ananas", "cabana", "ferret", "ferrets", "merit", HOSTILE]


def made(n=40, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=n)


@pytest.fixture(scope="module")
def ridge():
    X, y = made()
    return OperatorRidge(Gaussian(1.5), alpha=0.01).fit(X, y)


@pytest.fixture(scope="module")
def digits():
    X = load_digits().data[:80] / 16.0
    return KernelAutoencoder(2, Gaussian(3.0), Gaussian(2.0), alpha=1e-3, encoder_alpha=1e-3).fit(X)


# -- the map ----------------------------------------------------------------------------------------------------------
def test_the_map_is_kernel_pca_of_the_fitted_kernel(ridge):
    explorer = Explorer(ridge)
    peer = KernelPCA(4, kernel="rbf", gamma=1 / (2 * 1.5**2)).fit(ridge.X_fit_)
    new = made(5, seed=1)[0]
    for ours, theirs in (
        (explorer.chart.codes, peer.transform(ridge.X_fit_)),
        (explorer.chart.place(new), peer.transform(new)),
    ):
        np.testing.assert_allclose(np.abs(ours[:, :4]), np.abs(theirs), atol=1e-8)


def test_samples_on_a_line_have_a_map_with_two_axes():
    X = np.linspace(0, 1, 9)[:, None]
    codes = Explorer(OperatorRidge(Linear(), alpha=0.1).fit(X, X[:, 0])).chart.codes
    assert codes.shape == (9, 2)
    np.testing.assert_allclose(codes[:, 1], 0.0, atol=1e-12)


def test_codes_and_decoded_places_are_the_autoencoders(digits):
    explorer = Explorer(digits)
    np.testing.assert_array_equal(explorer.chart.codes, digits.transform(digits.X_fit_))
    place = explorer.chart.codes[3] + 0.1
    expected = explorer.drawings.draw(digits.inverse_transform(place[None])[0])
    assert explorer.decode([place.tolist()]) == [expected]
    assert expected["kind"] == "picture"
    drawn = explorer.sample(2, 7)
    assert drawn["drawings"] == explorer.decode(drawn["places"].tolist())


def test_walks_are_those_of_deep_components():
    X = load_digits().data[:60] / 16.0
    model = DeepKernelPCA([4, 2], random_state=0).fit(X)
    explorer = Explorer(model)
    walk = explorer.traverse(1, None)
    expected = [explorer.drawings.draw(row) for row in model.traverse(1, 1, len(walk["places"]))]
    assert walk["drawings"] == expected
    np.testing.assert_allclose(explorer.chart.codes, model.transform(X, 1))


def test_the_way_back_from_kernel_pca_finds_the_samples(ridge):
    explorer = Explorer(ridge)
    back = explorer.chart.decode(explorer.chart.codes)
    assert np.mean((back - ridge.X_fit_) ** 2) < 0.1 * np.var(ridge.X_fit_)
    strings = Explorer(OperatorRidge(Spectrum(2).normalized(), alpha=0.01).fit(WORDS, np.arange(8.0)))
    assert strings.chart.decode(strings.chart.codes) == WORDS


def test_a_place_that_is_none_is_refused(ridge):
    explorer = Explorer(ridge)
    with pytest.raises(ValueError, match="finite coordinates"):
        explorer.decode([[0.0]])
    with pytest.raises(ValueError, match="There is no component 9"):
        explorer.traverse(9, None)
    with pytest.raises(ValueError, match="There is no sample 40"):
        explorer.explain(40)


# -- reasons ----------------------------------------------------------------------------------------------------------
def test_explanations_are_those_of_the_learner(ridge):
    explorer = Explorer(ridge)
    answer, why = explorer.explain(4), ridge.explain(ridge.X_fit_[4:5], support=True, coverage=0.9)
    assert answer["prediction"] == pytest.approx(ridge.predict(ridge.X_fit_[4:5])[0])
    assert answer["support"] == pytest.approx(why.support[0])
    assert answer["std"] == pytest.approx(why.std[0])
    for term in answer["terms"]:
        assert term["value"] == pytest.approx(why.contributions[0, term["i"]])
    parts = answer["baseline"] + sum(term["value"] for term in answer["terms"]) + answer["rest"]
    assert parts == pytest.approx(answer["prediction"], abs=1e-10)
    np.testing.assert_array_equal(answer["neighbours"], why.neighbours[0])
    np.testing.assert_allclose(explorer.interval(4)["ends"], why.interval[0])


def test_an_edited_input_is_predicted_and_placed(ridge):
    explorer = Explorer(ridge)
    edited = [0.3, "-1", 2.0]
    answer = explorer.ask(edited, 0)
    X = np.array([[0.3, -1.0, 2.0]])
    assert answer["prediction"] == pytest.approx(ridge.predict(X)[0])
    np.testing.assert_allclose(answer["place"], explorer.chart.place(X)[0])
    with pytest.raises(ValueError, match="Expected 3 values; got 2"):
        explorer.ask([1, 2], 0)
    with pytest.raises(ValueError, match="Expected a number; got 'x'"):
        explorer.ask([1, 2, "x"], 0)


def test_a_letter_and_a_cell_are_edited():
    words = OperatorRidge(Spectrum(2).normalized(), alpha=0.01).fit(WORDS, np.arange(8.0))
    assert Explorer(words).ask("bandana", 0)["prediction"] == pytest.approx(words.predict(["bandana"])[0])
    table = {"size": np.arange(12.0), "colour": ["red", "blue", "green"] * 4}
    model = OperatorRidge(random_state=0).fit(table, np.arange(12.0))
    answer = Explorer(model).ask([3.5, "blue"], 0)
    assert answer["prediction"] == pytest.approx(model.predict({"size": np.array([3.5]), "colour": ["blue"]})[0])


def test_classes_have_probabilities_and_errors():
    X, y = load_digits(return_X_y=True)
    model = EmbeddingClassifier(Gaussian(2.0)).fit(X[:90] / 16, y[:90])
    explorer = Explorer(model)
    np.testing.assert_allclose(explorer.explain(2)["probabilities"], model.predict_proba(X[2:3] / 16)[0])
    np.testing.assert_allclose(explorer.colours["error"]["numbers"], model.misfit_)
    assert explorer.colours["target"]["names"] == [str(k) for k in range(10)]
    other = Explorer(model, X[90:120] / 16, y[90:120])
    p = model.predict_proba(X[90:120] / 16)
    np.testing.assert_allclose(other.colours["error"]["numbers"], -np.log(p[np.arange(30), y[90:120]]), rtol=1e-8)
    assert other.explain(0)["neighbours"][0] < 90
    assert other.draw(0) != other.draw(0, anchor=True)


# -- the kernel -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("intercept", [True, False])
def test_sliders_show_the_left_out_error_of_a_refit(intercept):
    X, y = made(30)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, 30)
    model = OperatorRidge(Gaussian(1.5), alpha=0.01, fit_intercept=intercept).fit(X, y, sample_weight=weights)
    view = Explorer(model).tune(0, {"lengthscale": 0.5}, 0.2)
    again = OperatorRidge(Gaussian(0.75), alpha=0.2, fit_intercept=intercept).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(view["answers"], again.loo_predict_, atol=1e-9)
    assert view["error"] == pytest.approx(np.sqrt(np.mean((y - again.loo_predict_) ** 2)))
    assert view["errors"][20] == pytest.approx(Explorer(model).tune(0, {"lengthscale": 0.5})["error"])


def test_left_out_answers_are_those_of_fits_without_a_sample():
    X, y = made(12)
    model = OperatorRidge(Gaussian(1.5), alpha=0.05).fit(X, y)
    answers = Explorer(model).tune()["answers"]
    for i in range(3):
        rest = np.arange(12) != i
        alone = OperatorRidge(Gaussian(1.5), alpha=0.05 * 12 / 11).fit(X[rest], y[rest])
        assert answers[i] == pytest.approx(alone.predict(X[i : i + 1])[0], abs=1e-8)


def test_the_spectrum_and_the_order_of_the_gram_matrix(ridge):
    view = Explorer(ridge).tune()
    K = np.asarray(Gaussian(1.5)(ridge.X_fit_))
    H = np.eye(40) - 1 / 40
    expected = np.linalg.eigvalsh(H @ K @ H)[::-1] / 40
    np.testing.assert_allclose(view["spectrum"], expected[:39], atol=1e-10)
    assert sorted(view["order"]) == list(range(40))
    ordered = K[np.ix_(view["order"], view["order"])]
    assert np.diag(ordered, 1).mean() > np.diag(K, 1).mean()


def test_a_slider_that_is_none_is_refused(ridge):
    explorer = Explorer(ridge)
    for factors, alpha, words in (({"size": 2.0}, None, "no number 'size'"), ({"lengthscale": -1.0}, None, "positive")):
        with pytest.raises(ValueError, match=words):
            explorer.tune(0, factors, alpha)
    with pytest.raises(ValueError, match="alpha must be positive"):
        explorer.tune(0, {}, -1.0)


def test_many_samples_are_thinned_and_it_is_said(monkeypatch):
    monkeypatch.setattr("representer.explorer.tuning.ROWS", 20)
    monkeypatch.setattr("representer.explorer.explorer.MOST_POINTS", 30)
    X, y = made(40)
    explorer = Explorer(OperatorRidge(Gaussian(1.5), alpha=0.01, approximation=Nystroem(10)).fit(X, y))
    overview, view = explorer.overview(), explorer.tune()
    assert (overview["n"], overview["total"]) == (30, 40)
    assert (view["rows"], view["of"]) == (20, 30)
    kept = X[explorer.rows][explorer.tuning.numbers]
    again = OperatorRidge(Gaussian(1.5), alpha=0.01).fit(kept, y[explorer.rows][explorer.tuning.numbers])
    np.testing.assert_allclose(view["answers"], again.loo_predict_, atol=1e-9)
    assert len(explorer.explain(0)["terms"]) == 8


# -- drawings ---------------------------------------------------------------------------------------------------------
def test_objects_are_drawn_as_what_they_are():
    pictures = load_digits().data[:40]
    curves = np.sin(np.linspace(0, 6, 50) + np.arange(20)[:, None])
    assert Drawings.of(pictures, None, None, None).kind == "picture"
    assert Drawings.of(curves, None, None, None).kind == "curve"
    assert Drawings.of(made(30, 36)[0], None, None, None).kind == "row"
    assert Drawings.of(made(30, 6)[0], None, None, (2, 3)).kind == "picture"
    with pytest.raises(ValueError, match="have 9 pixels, not 6"):
        Drawings.of(made(30, 6)[0], None, None, (3, 3))
    graph = Drawings.of([Graph([(0, 1)], node_labels=["a", HOSTILE])], None, None, None)
    assert graph.draw(Graph([(0, 1)], node_labels=["a", "b"])) == {
        "kind": "graph",
        "labels": ["a", "b"],
        "edges": [[0, 1]],
    }
    assert Drawings.of(WORDS, Spectrum(2), None, None).draw(HOSTILE) == {"kind": "text", "text": HOSTILE}


def test_molecules_are_drawn_by_rdkit():
    pytest.importorskip("rdkit")
    from representer.kernels import Molecule

    drawings = Drawings.of(["CCO", "CCN"], Molecule(), None, None)
    assert drawings.draw("CCO")["address"].startswith("data:image/svg+xml;base64,")
    assert drawings.draw(HOSTILE) == {"kind": "text", "text": HOSTILE}  # no molecule: its text
    table = Drawings.of(Records({"smiles": ["CCO", "CCN"], "mass": [1.0, 2.0]}), None, None, None)
    assert table.draw({"smiles": "CCO", "mass": 1.0})["picture"]["kind"] == "molecule"


def test_learners_without_samples_say_what_to_do(ridge, tmp_path):
    light = load(ridge.compressed(1e-6).save(tmp_path / "light"))
    with pytest.raises(ValueError, match="Give some: --data file"):
        Explorer(light)
    assert Explorer(light, ridge.X_fit_).overview()["n"] == 40


def test_structured_outputs_are_explained_in_words():
    model = StructuredPredictor(Spectrum(2).normalized(), Spectrum(2).normalized(), alpha=0.1).fit(WORDS, WORDS)
    answer = Explorer(model).explain(1)
    assert answer["prediction"] == model.predict(WORDS[1:2])[0]
    assert not Explorer(model).overview()["interval"]


# -- one file ---------------------------------------------------------------------------------------------------------
def test_a_file_holds_the_page_and_no_text_of_users_as_markup(tmp_path):
    model = OperatorRidge(Spectrum(2).normalized(), alpha=0.01).fit(WORDS, np.arange(8.0))
    explorer = Explorer(model)
    page = explorer.save(tmp_path / "page.html").read_text(encoding="utf-8")
    assert HOSTILE not in page
    assert page.count("<script") == 2
    inside = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    data = json.loads(inside[1])
    assert data["drawings"][7]["text"] == HOSTILE
    assert data["reasons"][2]["prediction"] == pytest.approx(model.predict(WORDS[2:3])[0])
    assert len(data["grid"]["drawings"]) == 9 * 9
    assert not re.search(r"https?://", page.replace("http-equiv", ""))


def test_json_has_null_for_what_is_no_number():
    assert json.loads(as_json({"a": np.array([np.nan, np.inf, 1.0]), "b": (np.int64(2), np.bool_(True))})) == {
        "a": [None, None, 1.0],
        "b": [2, True],
    }
