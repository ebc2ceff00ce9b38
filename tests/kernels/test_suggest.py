"""What data are taken for: a table of small data sets of all kinds, made and adversarial."""

from __future__ import annotations

import datetime
import warnings

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from representer import OperatorRidge
from representer.kernels import Graph, suggest

rng = np.random.default_rng(0)
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "seven", "wizards", "brew"]
SMILES = ["CCO", "c1ccccc1", "CC(=O)O", "CCN(CC)CC", "C1CCCCC1", "CC(C)=O", "c1ccccc1O", "O=C(O)CC"]


def sentences(n: int) -> list[str]:
    return [" ".join(rng.choice(WORDS, 9)) for _ in range(n)]


def letters(n: int, alphabet: str, length: int) -> list[str]:
    return ["".join(rng.choice(list(alphabet), length)) for _ in range(n)]


COLUMNS = {
    "floats": (rng.normal(size=30), "numbers"),
    "integers": (rng.integers(0, 100, 30), "numbers"),
    "floats with gaps": ([1.0, None, 3.5, float("nan"), 2.0], "numbers"),
    "nullable integers": (pd.array([1, None, 3], dtype="Int64"), "numbers"),
    "years": ([1990, 1995, 2001, 2010, 1990] * 4, "numbers"),
    "numbers stored as text": (["1.5", "2", "-3e2", "4.25"] * 5, "numbers"),
    "durations of pandas": (pd.to_timedelta([1, 5, 2, None], unit="h"), "durations"),
    "durations of Python": ([datetime.timedelta(hours=i) for i in range(4)], "durations"),
    "identifiers": ([f"p{37 * i:05d}" for i in range(20)], "identifiers"),
    "hexadecimal identifiers": (letters(20, "0123456789abcdef", 12), "identifiers"),
    "numbers with units": ([f"{i}mm" for i in range(20)], "names"),
    "formulas": ([f"{a}{i}O{j}" for a in ("Fe", "Al", "Na", "Ti") for i in "23" for j in "345"], "names"),
    "truth values": ([True, False, True, True], "yes or no"),
    "constant": ([3.0] * 6, "a constant"),
    "constant text": (["x"] * 6, "a constant"),
    "nothing": ([None] * 5, "nothing"),
    "few levels": (["red", "blue", "red", "green"] * 6, "categories"),
    "many levels": ([f"city {i % 40}" for i in range(120)], "categories"),
    "levels with gaps": (["a", None, "b", "a", "b", "a"], "categories"),
    "zip codes as text": (["01234", "90210", "10001", "00501", "60614"] * 2, "categories"),
    "declared categories": (pd.Categorical(["a", "b", "a"]), "categories"),
    "declared order": (pd.Categorical(["lo", "hi", "lo"], ["lo", "hi"], ordered=True), "ordered categories"),
    "mixed types": (["a", 1, "b", 2, "a"] * 3, "categories"),
    "dates of pandas": (pd.date_range("2020-01-01", periods=9), "dates"),
    "dates of Python": ([datetime.date(2020, 1, i) for i in range(1, 9)], "dates"),
    "periods of pandas": (pd.period_range("2020-01", periods=9, freq="M"), "dates"),
    "frames in cells": ([pd.DataFrame(rng.normal(size=(3 + i, 2))) for i in range(6)], "bags of points"),
    "dates as text": ([f"2021-0{i}-1{i}" for i in range(1, 9)], "dates"),
    "times as text": ([f"2021-01-01 0{i}:30:00" for i in range(1, 9)], "dates"),
    "dates of an unclear form": ([f"{i}/{i + 1}/2020" for i in range(1, 10)], "names"),
    "sentences": (sentences(20), "text"),
    "names": ([f"{a} {b}" for a in ("Ada", "Bo", "Cy", "Di") for b in ("Lee", "May", "Ngo")], "names"),
    "molecules": (SMILES, "molecules"),
    "molecules, mostly chains, measured again and again": (
        [*SMILES[:3], "CCC", "CCCC", "CCN", "CCCl"] * 5,
        "molecules",
    ),
    "molecules with blanks": ([f"{text} " for text in SMILES], "molecules"),
    "numbers with odd entries": ([*map(str, np.arange(30) / 7), "<5", "n/a"], "names"),
    "numbers with words for gaps": ([*map(str, np.arange(30) / 7), "n.d.", " ?", "N/A"], "numbers"),
    "numbers beside a word for gaps": ([*rng.normal(size=20), "missing"], "numbers"),
    "dates with a word for gaps": ([*(f"2021-0{i}-1{i}" for i in range(1, 9)), "unknown"], "dates"),
    "two numbers and a word for gaps": (["0", "1", "?", "0"] * 5, "categories"),
    "codes with a word for gaps": (["01234", "90210", "10001", "?", "01234"] * 4, "categories"),
    "DNA in small letters": (letters(20, "acgt", 30), "DNA or RNA sequences"),
    "words of letters of proteins": (["kitten", "sitting", "flatten", "garden", "planets"] * 3, "categories"),
    "numbers with commas": ([f"{i},{i}5" for i in range(30)], "names"),
    "words that are SMILES, few": (["CO", "no", "I", "CO", "no", "I"] * 3, "categories"),
    "words that are SMILES, all different": (["CO", "I", "CC", "N", "OC", "CCO", "P", "S", "F", "CN"], "names"),
    "DNA": (letters(20, "ACGT", 30), "DNA or RNA sequences"),
    "proteins": (letters(20, "ACDEFGHIKLMNPQRSTVWY", 25), "protein sequences"),
    "shouted words": (["HELLO WORLD", "GOOD DAY", "NICE TO MEET", "BYE NOW", "SEE YOU"], "names"),
    "graphs of networkx": ([nx.path_graph(i) for i in range(2, 8)], "graphs"),
    "graphs": ([Graph([(0, 1), (1, 2)]), Graph([(0, 1)])], "graphs"),
    "curves on a grid": (list(rng.normal(size=(6, 50))), "curves"),
    "curves with times": ([(np.sort(rng.random(5 + i)), rng.normal(size=5 + i)) for i in range(5)], "curves"),
    "series": ([rng.normal(size=5 + i) for i in range(6)], "series"),
    "bags": ([rng.normal(size=(3 + i, 2)) for i in range(6)], "bags of points"),
    "pictures": (list(rng.random((5, 8, 8))), "pictures"),
    "colour pictures": (list(rng.random((5, 8, 8, 3))), "pictures"),
    "sets of words": ([{"a", "b"}, {"c"}, {"a"}], "words"),
    "dictionaries": ([{"a": 1.0, "b": "x"}, {"a": 2.0, "b": "y"}, {"a": 3.0, "b": "x"}], "records"),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_are_taken_for_what_they_are(name):
    column, kind = COLUMNS[name]
    if kind == "molecules":
        pytest.importorskip("rdkit", reason="molecules are read by RDKit")
    frame = {"own": column, "number": np.arange(len(column), dtype=float)}
    suggestion = suggest(frame)
    finding = suggestion.findings[0]
    assert finding.kind == kind
    assert finding.why and repr(suggestion) and suggestion._repr_html_()
    if finding.part is not None:
        gram = suggestion.single(frame)
        assert gram.shape == (len(column),) * 2 and np.isfinite(gram.numpy()).all()
    doubtful = (
        "numbers with words for gaps",
        "numbers stored as text",
        "numbers with odd entries",
        "numbers with commas",
        "mixed types",
    )
    if name in (*doubtful, "dates of an unclear form", "nothing") or kind == "identifiers":
        assert finding.doubt and "'own'" in finding.doubt


def test_words_for_gaps_are_named_and_become_gaps():
    column = [*map(str, range(20)), "n.d.", "-"]
    finding = suggest({"own": column}).findings[0]
    assert "with '-', 'n.d.' for gaps" in finding.why and "in 2 row(s), taken for gaps" in finding.doubt
    known = finding.part.fitted(column)
    assert known.gaps and known.center == 9.5
    assert known.coordinates([" N.D. "]).tolist() == known.coordinates([None]).tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize("code, doubtful", [(-999.0, True), (9999, True), (-1, True), (12.0, False), (0.0, False)])
def test_repeated_numbers_far_from_all_others_are_doubted(code, doubtful):
    column = [*np.linspace(0.5, 1.0, 20), code, code]
    doubt = suggest({"own": column}).findings[0].doubt
    assert (doubt is not None) == doubtful
    assert doubt is None or f"{code:g} in 2 rows" in doubt
    assert suggest({"own": column[:-1]}).findings[0].doubt is None  # once is a measurement


def test_arrays_are_numbers_with_or_without_gaps():
    X = rng.normal(size=(10, 3))
    assert suggest(X).findings[0].kind == "numbers" and "Missing" not in repr(suggest(X).kernel)
    X[0, 0] = np.nan
    assert "Missing" in repr(suggest(X).kernel)
    assert suggest(X.tolist()).kernel == suggest(X).kernel
    assert suggest(sparse.csr_array(np.eye(3))).findings[0].kind == "sparse rows"
    negative = sparse.csr_array(np.eye(3) - 2.0 * np.eye(3, k=1))
    assert "MinMax" not in repr(suggest(negative).kernel)
    assert np.isfinite(suggest(negative).single(negative).numpy()).all()
    assert suggest(rng.random((4, 8, 8))).findings[0].kind == "pictures"


@pytest.mark.parametrize("data, kind", [(["ab", "cd", "ef"], "names"), (["x", "y"] * 6, "categories")])
def test_lists_of_texts(data, kind):
    suggestion = suggest(data)
    assert suggestion.findings[0].kind == kind
    assert suggestion.single(data).shape == (len(data),) * 2


def test_how_much_a_column_explains_is_its_adjusted_r_squared():
    frame = pd.DataFrame({"x": rng.normal(size=60), "noise": rng.normal(size=60), "level": ["a", "b", "c"] * 20})
    y = 2.0 * frame["x"] + 0.3 * rng.normal(size=60)
    shares = {own.column: own.association for own in suggest(frame, y).findings}
    R2 = np.corrcoef(frame["x"], y)[0, 1] ** 2
    assert shares["x"] == pytest.approx(1 - (1 - R2) * 59 / 58, abs=1e-10)
    assert shares["noise"] < 0.1 and shares["level"] < 0.1
    labels = np.where(frame["level"] == "a", "yes", "no")
    assert suggest(frame, labels).findings[2].association == pytest.approx(1.0)


def test_code_makes_the_kernel_again():
    frame = pd.DataFrame({"x": [1.0, 2.0, 4.0], "level": ["a", "b", "a"], "text": ["ab", "cd", "ce"]})
    import representer.kernels as names

    kernel = suggest(frame).kernel
    assert eval(repr(kernel), vars(names)) == kernel
    fitted = suggest(frame).single.resolve(frame)
    assert eval(repr(fitted), vars(names)) == fitted


@pytest.mark.parametrize(
    "data, message",
    [
        ({"a": [None, None], "b": [1.0, 1.0]}, "No column has anything to learn from: 'a' .*'b'"),
        ({"a": [object(), object()]}, "Column 'a' .*no kernel is known.*Callable"),
        ({"a": [[1, 2], ["x"], {"b": 1}]}, "Column 'a'"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "different names; 'a'"),
        ([1.0, 2.0], "one column of numbers.*reshape"),
    ],
)
def test_bad_input(data, message):
    with pytest.raises(ValueError, match=message), warnings.catch_warnings():
        suggest(data)


def test_a_molecule_that_cannot_be_read_is_named_and_does_not_make_names_of_the_others():
    pytest.importorskip("rdkit", reason="molecules are read by RDKit")
    texts = [*SMILES, "C1CC"]
    assert suggest(texts).findings[0].kind == "molecules"
    with pytest.raises(ValueError, match=r"C1CC"):
        suggest(texts).single(texts)


def test_a_refused_frame_names_the_column_and_the_entry():
    frame = pd.DataFrame({"size": [1.0, 2.0], "colour": ["red", "blue"], "when": pd.date_range("2020", periods=2)})
    with pytest.raises(ValueError, match=r"dates or bytes such as '2020-01-01.*in column 'when'"):
        OperatorRidge("rbf").fit(frame, [0.0, 1.0])
    with pytest.raises(ValueError, match="strings such as 'red' in column 'colour'"):
        OperatorRidge("rbf").fit(frame[["size", "colour"]], [0.0, 1.0])


def test_gaps_in_new_rows_are_refused_with_a_kernel_that_takes_them():
    model = OperatorRidge("rbf", alpha=0.1).fit([[0.0], [1.0]], [0.0, 1.0])
    with pytest.raises(ValueError, match=r"contains NaN\. OperatorRidge with kernel='rbf' does not take gaps"):
        model.predict([[np.nan]])
