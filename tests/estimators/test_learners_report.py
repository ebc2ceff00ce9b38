"""Reports are whole pages that say what is true, and nothing that a user wrote is code in them."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from representer import (
    ConditionalMeanEmbedding,
    DeepKernelPCA,
    DeepKernelRegressor,
    EmbeddingClassifier,
    OperatorRidge,
    StructuredPredictor,
)
from representer.inspection.report import confusion, effective_dimension, gram_spectrum, reliability
from representer.kernels import Gaussian, Stack
from representer.operators import Representation

RNG = np.random.default_rng(2)
X = RNG.normal(size=(40, 2))
y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=40)
HOSTILE = "<script>alert('x')</script>"


class Tags(HTMLParser):
    """Counts what is open, and all tags and addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.addresses: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href") and not value.startswith("#")]
        if tag not in ("meta", "br", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def parsed(html):
    tags = Tags()
    tags.feed(html)
    assert not tags.open and not tags.addresses and "script" not in tags.seen
    return tags


def test_a_report_of_a_regression_says_what_the_model_says():
    pytest.importorskip("matplotlib").use("agg")
    model = OperatorRidge(Gaussian(1.0), alpha=0.01).fit(X[:30], y[:30])
    html = model.report(X[30:], y[30:]).html()
    assert "svg" in parsed(html).seen
    left_out = 1.0 - ((y[:30] - model.loo_predict_) ** 2).sum() / ((y[:30] - y[:30].mean()) ** 2).sum()
    for text in (f"{model.score(X[30:], y[30:]):.4f}", f"{left_out:.4f}", "Gaussian(lengthscale=1.0)", "Suspects"):
        assert text in html
    assert "#0a0b0c" not in html and "currentColor" in html  # figures have the colours of the page


def test_what_users_wrote_is_no_code():
    pytest.importorskip("matplotlib").use("agg")
    labels = np.where(y > 0, HOSTILE, "ok")
    frame = pd.DataFrame(X, columns=[f"{HOSTILE}$x_1", "b"])
    stack = Stack([Gaussian(1.0), Gaussian(2.0)], alphas=[0.1, 0.1])
    report = EmbeddingClassifier(stack, random_state=0).fit(frame, labels).report()
    parsed(report.html())
    assert HOSTILE not in report.html()
    assert HOSTILE not in report._repr_html_()


def test_a_report_is_saved_as_one_file(tmp_path):
    path = OperatorRidge(Gaussian(1.0), alpha=0.1).fit(X, y).report().save(tmp_path / "report.html")
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "learner",
    [
        DeepKernelRegressor([1], Gaussian(1.0), alpha=0.1, max_iter=3, random_state=0),
        DeepKernelPCA([2], random_state=0),
        ConditionalMeanEmbedding(Gaussian(1.0), alpha=0.1),
        StructuredPredictor(Gaussian(1.0), alpha=0.1),
    ],
)
def test_every_learner_has_a_report_of_what_it_knows(learner):
    learner.fit(X, None if isinstance(learner, DeepKernelPCA) else y)
    titles = [section.title for section in learner.report().sections]
    assert titles[0] == "What was fitted" and titles[-1] == "How to reproduce it"
    parsed(learner.report().html())


def test_precomputed_kernels_have_a_report():
    titles = [s.title for s in OperatorRidge("precomputed", alpha=0.1).fit(X @ X.T, y).report().sections]
    assert "Leave-one-out" in titles and "What matters" not in titles


def test_numbers_of_a_report():
    import torch

    spectrum = gram_spectrum(Gaussian(1.0), X, Representation(torch.float64))
    K = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(2))
    np.testing.assert_allclose(np.sort(spectrum), np.linalg.eigvalsh(K) / 40, atol=1e-12)
    smoother = K @ np.linalg.inv(K + 40 * 0.1 * np.eye(40))
    assert effective_dimension(spectrum, 0.1) == pytest.approx(np.trace(smoother))
    np.testing.assert_array_equal(confusion(np.array([0, 0, 1]), np.array([0, 1, 1]), 2), [[1, 1], [0, 1]])
    rows = reliability(np.array([[0.9, 0.1], [0.4, 0.6], [1.0, 0.0]]), np.array([0, 0, 0]), (0.0, 0.8, 1.0))
    assert [row[1:] for row in rows] == [("1", "0.600", "0.000"), ("2", "0.950", "1.000")]
    assert re.fullmatch(r"0\.00 – 0\.80", rows[0][0])


@pytest.mark.parametrize("learner", [OperatorRidge("rbf", alpha=0.1), EmbeddingClassifier("rbf", alpha=0.1)])
def test_inputs_without_targets_are_refused_in_words(learner):
    model = learner.fit(X, y > 0 if isinstance(learner, EmbeddingClassifier) else y)
    for question in ("report", "card"):
        with pytest.raises(ValueError, match=rf"{question}\(X, y\) needs both.*y is None"):
            getattr(model, question)(X)
        with pytest.raises(ValueError, match=rf"{question}\(X, y\) needs both.*X is None"):
            getattr(model, question)(None, y)
    if isinstance(model, OperatorRidge):
        with pytest.raises(ValueError, match=r"score\(X, y\) needs both"):
            model.score(X, None)


def test_a_card_counts_only_known_targets():
    model = OperatorRidge("rbf", alpha=0.1).fit(X, np.column_stack([y, y]))
    gaps = np.column_stack([y, np.where(np.arange(40) % 2, np.nan, y)])
    inside = model.predict_interval(X, 0.9)
    share = np.mean(((inside[..., 0] <= gaps) & (gaps <= inside[..., 1]))[~np.isnan(gaps)])
    assert f"| share within 90% intervals | {share:.1%} |" in model.card(X, gaps)
