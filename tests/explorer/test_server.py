"""The server: one token, one host, no other origin; texts are data."""

from __future__ import annotations

import builtins

import numpy as np
import pytest

from representer import OperatorRidge
from representer.explorer import Explorer
from representer.explorer.server import application, questions
from representer.kernels import Gaussian, Spectrum

pytest.importorskip("starlette")
pytest.importorskip("httpx2")
from starlette.testclient import TestClient

HOST = "127.0.0.1:8123"
TOKEN = "a-token"
HOSTILE = "<script>alert('x')</script>"


@pytest.fixture(scope="module")
def model():
    X = np.random.default_rng(0).normal(size=(30, 2))
    return OperatorRidge(Gaussian(1.0), alpha=0.01).fit(X, X[:, 0])


@pytest.fixture(scope="module")
def client(model):
    return TestClient(application(Explorer(model), TOKEN, (HOST,)), base_url=f"http://{HOST}")


def test_the_page_and_its_parts_are_served(client):
    page = client.get(f"/{TOKEN}/")
    assert page.status_code == 200
    assert "text/html" in page.headers["content-type"]
    for name in ("page.js", "page.css"):
        assert name in page.text
        assert client.get(f"/{TOKEN}/{name}").status_code == 200
    assert client.get(f"/{TOKEN}/server.py").status_code == 404
    assert client.get(f"/{TOKEN}/..%2fserver.py").status_code == 404


def test_headers_allow_own_resources_only(client):
    headers = client.get(f"/{TOKEN}/").headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert headers["referrer-policy"] == "no-referrer"
    assert not [name for name in headers if name.startswith("access-control")]


@pytest.mark.parametrize("token", ["wrong", "", "a-toke", "a-token2", "ä"])
def test_a_wrong_token_is_refused(client, token):
    for answer in (client.get(f"/{token}/page.js"), client.post(f"/{token}/ask/overview", json={})):
        assert answer.status_code in (403, 404, 405)
        assert "codes" not in answer.text
    assert client.get("/").status_code == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:8123"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_other_hosts_and_origins_are_refused(client, headers):
    assert client.post(f"/{TOKEN}/ask/overview", json={}, headers=headers).status_code == 403
    assert client.get(f"/{TOKEN}/", headers=headers).status_code == 403


def test_answers_are_the_explorers(client, model):
    overview = client.post(f"/{TOKEN}/ask/overview", json={}, headers={"Origin": f"http://{HOST}"}).json()
    np.testing.assert_allclose(overview["map"]["codes"], Explorer(model).chart.codes)
    view = client.post(f"/{TOKEN}/ask/tune", json={"which": 0, "factors": {"lengthscale": 2.0}, "alpha": 0.1}).json()
    again = OperatorRidge(Gaussian(2.0), alpha=0.1).fit(model.X_fit_, model.X_fit_[:, 0])
    np.testing.assert_allclose(view["answers"], again.loo_predict_, atol=1e-9)
    place = overview["map"]["codes"][0]
    for name, question in (
        ("drawing", {"i": 0}),
        ("explain", {"i": 0}),
        ("interval", {"i": 0}),
        ("ask", {"edited": [0.1, 0.2], "like": 0}),
        ("decode", {"places": [place]}),
        ("traverse", {"component": 0, "start": place}),
        ("sample", {"n": 3, "seed": 0}),
    ):
        answer = client.post(f"/{TOKEN}/ask/{name}", json=question)
        assert answer.status_code == 200, answer.text
    assert set(questions(Explorer(model))) >= {"overview", "tune"}


@pytest.mark.parametrize(
    ("name", "question", "words"),
    [
        ("explain", {"i": 99}, "no sample 99"),
        ("explain", {"i": "0"}, "whole number"),
        ("explain", {}, "whole number"),
        ("explain", [1], "JSON object"),
        ("decode", {"places": [["a"]]}, "numbers in lists"),
        ("decode", {"places": [[0.0, 0.0]] * 401}, "At most 400"),
        ("tune", {"which": 0, "factors": {"lengthscale": "x"}}, "numbers by name"),
        ("tune", {"which": 7, "factors": {}}, "no kernel 7"),
        ("ask", {"edited": HOSTILE, "like": 0}, "Expected a list"),
    ],
)
def test_bad_questions_are_answered_in_words(client, name, question, words):
    answer = client.post(f"/{TOKEN}/ask/{name}", json=question)
    assert answer.status_code == 400
    assert words in answer.json()["error"]


def test_what_is_no_question_is_refused(client):
    assert client.post(f"/{TOKEN}/ask/nothing", json={}).status_code == 404
    assert client.post(f"/{TOKEN}/ask/overview", content=b"{").status_code == 400
    assert client.post(f"/{TOKEN}/ask/overview", content=b" " * 1_000_001).status_code == 413
    assert client.get(f"/{TOKEN}/ask/overview").status_code in (404, 405)


def test_hostile_texts_are_data():
    words = ["banana", "ananas", "ferret", HOSTILE]
    model = OperatorRidge(Spectrum(2).normalized(), alpha=0.01).fit(words, np.arange(4.0))
    own = TestClient(application(Explorer(model), TOKEN, (HOST,)), base_url=f"http://{HOST}")
    answer = own.post(f"/{TOKEN}/ask/drawing", json={"i": 3})
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.json() == {"kind": "text", "text": HOSTILE}
    assert HOSTILE not in own.get(f"/{TOKEN}/").text


def test_the_error_names_the_extra(model, monkeypatch):
    true = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("starlette"):
            raise ModuleNotFoundError(f"No module named {name!r}", name="starlette")
        return true(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'representer\[app\]'"):
        application(Explorer(model), TOKEN, (HOST,))
