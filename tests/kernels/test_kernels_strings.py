"""Kernels on strings against enumeration; what they accept; in learners."""

from __future__ import annotations

import itertools
import math
import pickle
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from tiers import tiers

import naive
from representer import OperatorRidge
from representer.approximation import Nystroem
from representer.kernels import AnyCase, Kernel, WeightedDegree, base
from representer.kernels.alignments import Edit, Subsequence, edit_distances
from representer.kernels.base import inner_products
from representer.kernels.strings import MAX_CODE, Mismatch, Spectrum
from representer.linalg import IndefiniteGramWarning
from representer.testing import check_kernel


# -- definitions by enumeration ---------------------------------------------------------------------------------------
def spectrum(weights: dict[int, float]) -> naive.Pairwise:
    """Equal pairs of substrings, one by one."""

    def pieces(x: Any, length: int) -> list[list[Any]]:
        return [list(x[i : i + length]) for i in range(len(x) - length + 1)]

    def k(x: Any, y: Any) -> float:
        return sum(w * sum(a == b for a in pieces(x, n) for b in pieces(y, n)) for n, w in weights.items())

    return k


def weighted_degree(weights: dict[int, float]) -> naive.Pairwise:
    """Equal substrings in the same place, one by one."""

    def k(x: Any, y: Any) -> float:
        total = 0.0
        for length, weight in weights.items():
            for i in range(min(len(x), len(y)) - length + 1):
                total += weight * (list(x[i : i + length]) == list(y[i : i + length]))
        return total

    return k


def mismatch(length: int, mismatches: int, alphabet: Any) -> naive.Pairwise:
    """The feature of every word over the alphabet, one by one."""

    def feature(x: Any, word: Any) -> int:
        pieces = [list(x[i : i + length]) for i in range(len(x) - length + 1)]
        known = [piece for piece in pieces if all(symbol in list(alphabet) for symbol in piece)]
        return sum(sum(a != b for a, b in zip(piece, word, strict=True)) <= mismatches for piece in known)

    return lambda x, y: sum(feature(x, word) * feature(y, word) for word in itertools.product(alphabet, repeat=length))


def subsequence(length: int, decay: float) -> naive.Pairwise:
    """Every choice of positions in both strings."""

    def k(x: Any, y: Any) -> float:
        return sum(
            decay ** (i[-1] - i[0] + 1 + j[-1] - j[0] + 1)
            for i in itertools.combinations(range(len(x)), length)
            for j in itertools.combinations(range(len(y)), length)
            if all(x[a] == y[b] for a, b in zip(i, j, strict=True))
        )

    return k


def levenshtein(x: Any, y: Any) -> int:
    """The table of Wagner and Fischer."""
    above = list(range(len(y) + 1))
    for i, a in enumerate(x, start=1):
        row = [i]
        for j, b in enumerate(y, start=1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (a != b)))
        above = row
    return above[-1]


def edit(lengthscale: float) -> naive.Pairwise:
    return lambda x, y: math.exp(-levenshtein(x, y) / lengthscale)


def random_strings(n: int, longest: int, letters: str = "abc", seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    return ["".join(rng.choice(list(letters), rng.integers(0, longest + 1))) for _ in range(n)]


class Case(NamedTuple):
    """A kernel, its definition, and data of its kind."""

    kernel: Kernel
    oracle: Callable[[Any, Any], float]
    X: Any
    Y: Any


X = [*random_strings(9, 7), "", "a"]
Y = [*random_strings(4, 6, "abcd", seed=1), ""]
WORDS = [("a", 1), (1, "a", (2, 3), 1, "a"), (), [(2, 3), 1], ("a", 1, "a", 1), [None, "a", 1]]

CASES = [
    Case(Spectrum(1), spectrum({1: 1.0}), X, Y),
    Case(Spectrum(), spectrum({3: 1.0}), X, Y),
    Case(Spectrum(2, weights=0.5), spectrum({2: 0.5}), X, Y),
    Case(Spectrum((1, 3)), spectrum({1: 1.0, 2: 1.0, 3: 1.0}), X, Y),
    Case(Spectrum((2, 4), weights=[1.0, 0.3, 2.5]), spectrum({2: 1.0, 3: 0.3, 4: 2.5}), X, Y),
    Case(Spectrum((1, 2)), spectrum({1: 1.0, 2: 1.0}), [s.encode() for s in X], [b"ab\xff", b"abc"]),
    Case(Spectrum((1, 2)), spectrum({1: 1.0, 2: 1.0}), WORDS, [("a", 1), ["new"]]),
    Case(WeightedDegree(), weighted_degree({1: 1.0}), X, Y),
    Case(WeightedDegree((2, 3), [0.5, 2.0]), weighted_degree({2: 0.5, 3: 2.0}), X, Y),
    Case(WeightedDegree((1, 2)), weighted_degree({1: 1.0, 2: 1.0}), WORDS, [("a", 1), ["new"]]),
    Case(AnyCase(Spectrum(2)), lambda x, y: spectrum({2: 1.0})(x.upper(), y.upper()), ["abA", "Bab", "AB"], ["ba", ""]),
    Case(Mismatch(3, 1, "abc"), mismatch(3, 1, "abc"), X, Y),
    Case(Mismatch(3, 2, "abcdef"), mismatch(3, 2, "abcdef"), X, Y),
    Case(Mismatch(2, 0, "abc"), mismatch(2, 0, "abc"), X, Y),
    Case(Mismatch(4, 1, "ab"), mismatch(4, 1, "ab"), X, Y),
    Case(Mismatch(1, 0, "abc"), spectrum({1: 1.0}), X, ["ab", "c"]),
    Case(Mismatch(2, 1, b"abc"), mismatch(2, 1, b"abc"), [s.encode() for s in X], [b"ab\xff", b"abc"]),
    Case(Mismatch(2, 1, ["a", 1, (2, 3)]), mismatch(2, 1, ["a", 1, (2, 3)]), WORDS, [("a", 1), ["new"]]),
    *(Case(Subsequence(n, 0.6), subsequence(n, 0.6), X, Y) for n in (1, 2, 3, 4)),
    Case(Subsequence(2, 1.0), subsequence(2, 1.0), X, Y),
    Case(Subsequence(2, 0.3), subsequence(2, 0.3), WORDS, [("a", 1), ["new", "a"]]),
    Case(Edit(0.8), edit(0.8), X, Y),
    Case(Edit(0.8), edit(0.8), WORDS, [("a", 1), ["new"]]),
    Case(
        Spectrum(2).normalized() * 2.0 + Subsequence(2, 0.5) * Edit(1.0),
        naive.add(
            naive.multiply(naive.constant(2.0), naive.normalized(spectrum({2: 1.0}))),
            naive.multiply(subsequence(2, 0.5), edit(1.0)),
        ),
        ["abab", "ab", "bcab", "abc"],
        ["abc", "bab"],
    ),
]
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case.kernel)[:50])
every_kernel = pytest.mark.parametrize(
    "kernel", [Spectrum(2), Mismatch(2, 1, "abc"), Subsequence(2), Edit(1.0)], ids=repr
)


@every_case
def test_definition(case: Case) -> None:
    np.testing.assert_allclose(case.kernel(case.X), naive.gram(case.oracle, case.X), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(
        case.kernel(case.X, case.Y), naive.gram(case.oracle, case.X, case.Y), rtol=1e-12, atol=1e-14
    )
    np.testing.assert_allclose(case.kernel.diag(case.X), [case.oracle(x, x) for x in case.X], rtol=1e-12)


@every_case
def test_contract(case: Case) -> None:
    check_kernel(case.kernel, case.X, case.Y)


@pytest.mark.parametrize(
    "kernel",
    [
        Spectrum((1, 3), "auto"),
        Mismatch(3, 1),
        Subsequence(2, "auto").normalized(),
        "auto" * Subsequence(3, "auto") + Spectrum((1, 2), "auto").centered(),
        Edit(0.7) * Mismatch(2),
    ],
    ids=repr,
)
def test_contract_with_words(kernel: Kernel) -> None:
    check_kernel(kernel, X, Y)


@given(data=st.lists(st.text("ab", max_size=6), min_size=1, max_size=5), which=st.integers(0, 3))
def test_any_strings(data: list[str], which: int) -> None:
    pair = [
        (Spectrum((1, 3)), spectrum({1: 1.0, 2: 1.0, 3: 1.0})),
        (Mismatch(3, 1, "abx"), mismatch(3, 1, "abx")),
        (Subsequence(3, 0.4), subsequence(3, 0.4)),
        (Edit(1.5), edit(1.5)),
    ][which]
    np.testing.assert_allclose(pair[0](data), naive.gram(pair[1], data), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("seed", range(3))
def test_positive_semi_definite_on_random_strings(seed: int) -> None:
    strings = random_strings(60, 25, "ACGT", seed=seed)
    for kernel in (Spectrum((1, 4)), Mismatch(4, 1), Mismatch(5, 2), Subsequence(3, 0.7).normalized()):
        values = torch.linalg.eigvalsh(kernel(strings))
        assert values[0] >= -1e-12 * values[-1]


def test_reversal_and_renaming_change_nothing() -> None:
    renamed = [string.translate(str.maketrans("abc", "λ𝛼z")) for string in X]
    for kernel in (Spectrum((1, 3)), Mismatch(3, 1), Subsequence(3), Edit(1.0)):
        expected = kernel(X)
        torch.testing.assert_close(kernel([string[::-1] for string in X]), expected)
        torch.testing.assert_close(kernel(renamed), expected)
        torch.testing.assert_close(kernel([tuple(string) for string in X]), expected)
        torch.testing.assert_close(kernel([string.encode() for string in X]), expected)


# -- Spectrum and Mismatch --------------------------------------------------------------------------------------------
def test_long_substrings_over_a_large_alphabet_are_exact() -> None:
    rng = np.random.default_rng(0)
    base = rng.integers(0, 5000, size=(3, 30))
    strings = [*map(tuple, base), (*base[0][:20], *base[1][:12]), tuple(base[0])]
    assert MAX_CODE < 5000**12
    np.testing.assert_array_equal(Spectrum(12)(strings), naive.gram(spectrum({12: 1.0}), strings))
    assert Spectrum(12)(strings)[0, 4] == 19
    wide = [tuple(range(5000)), (0, 1, 2, 3, 4, 5, 4999, 4998, 4997, 4996, 4995, 4994)]
    assert MAX_CODE < 5000**6
    gram = Mismatch(6, 1, range(5000))(wide)
    of_self = 1 + 6 * 4999
    # The six in common, then one place that differs (5000 words are near both), then two (2 words).
    assert gram[0, 0] == 4995 * of_self
    assert gram[0, 1] == of_self + 5000 + 2


@pytest.mark.parametrize(("length", "mismatches"), [(5, 1), (5, 2), (6, 3), (4, 3)])
def test_mismatch_equals_its_explicit_features(length: int, mismatches: int) -> None:
    strings, others = random_strings(20, 30, "ACGT"), random_strings(7, 30, "ACGTN", seed=3)
    kernel = Mismatch(length, mismatches, "ACGT")
    features = kernel.explicit_features(strings)
    np.testing.assert_array_equal(kernel(strings), (features.matrix @ features.matrix.T).toarray())
    more = kernel.explicit_features(others, features.columns)
    np.testing.assert_array_equal(kernel(others, strings), (more.matrix @ features.matrix.T).toarray())


def test_mismatch_in_several_groups_of_places(monkeypatch: pytest.MonkeyPatch) -> None:
    strings = random_strings(15, 20, "ACGT")
    expected = Mismatch(5, 2)(strings)
    monkeypatch.setattr("representer.linalg.resources.BLOCK_BYTES", 1)
    np.testing.assert_array_equal(Mismatch(5, 2)(strings), expected)


def test_without_mismatches_it_is_the_spectrum() -> None:
    torch.testing.assert_close(Mismatch(3, 0)(X), Spectrum(3)(X))


def test_the_alphabet_of_the_data() -> None:
    kernel = Mismatch(2)
    assert kernel.resolve(["ba", "cab"]).alphabet == "abc"
    assert kernel.resolve([b"ba"]).alphabet == b"ab"
    assert kernel.resolve([(1, "a"), [2]]).alphabet == ["a", 1, 2]
    with pytest.raises(ValueError, match=r"no alphabet yet.*resolve\(X\).*ACGT"):
        kernel(["ab"], ["ba"])
    resolved = kernel.resolve(["ab", "ba"])
    assert resolved(["ab"], ["ab"]) == resolved(["ab", "xyz"], ["ab", "ca"])[0, 0] == 3.0
    assert kernel(["", ""]).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    # Only what is in the alphabet counts: "aNa" has no substring of two symbols left, "aNab" has "ab".
    assert resolved(["aNa", "aNab"], ["ab"]).tolist() == [[0.0], [3.0]]


def test_spectrum_features_are_those_of_the_kernel() -> None:
    kernel = Spectrum((1, 3), weights=[1.0, 0.5, 2.0])
    features = kernel.explicit_features(X)
    assert {"a", "ab"} <= set(features.columns)
    np.testing.assert_allclose((features.matrix @ features.matrix.T).toarray(), kernel(X))
    more = kernel.explicit_features(Y, features.columns)
    assert more.matrix.shape == (len(Y), features.matrix.shape[1])
    np.testing.assert_allclose((more.matrix @ features.matrix.T).toarray(), kernel(Y, X))
    assert list(Spectrum(2).explicit_features([[1, 2, 3]]).columns) == [(1, 2), (2, 3)]
    assert list(Spectrum(2).explicit_features([b"abc"]).columns) == [b"ab", b"bc"]


def test_a_linear_model_on_explicit_features_is_the_kernel_machine() -> None:
    strings = random_strings(40, 15, "ACGT")
    y = np.array([string.count("AC") + 0.1 * len(string) for string in strings])
    kernel = Spectrum((1, 2))
    features = kernel.explicit_features(strings)
    machine = OperatorRidge(kernel, alpha=0.01, fit_intercept=False).fit(strings, y)
    linear = Ridge(alpha=0.01 * len(y), fit_intercept=False).fit(features.matrix.toarray(), y)
    new = random_strings(5, 15, "ACGTN", seed=8)
    rows = kernel.explicit_features(new, features.columns).matrix
    np.testing.assert_allclose(machine.predict(new), linear.predict(rows), rtol=1e-9)


@pytest.mark.parametrize("advantage", [0, 5, 100, 10**9])
@pytest.mark.parametrize("block", [1, 2**26])
@pytest.mark.parametrize("weighted", [False, True])
def test_inner_products_by_any_route(
    advantage: int, block: int, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "DENSE_ADVANTAGE", advantage)
    monkeypatch.setattr("representer.linalg.resources.BLOCK_BYTES", block)
    rng = np.random.default_rng(0)
    densities = rng.uniform(size=30) ** 2
    left, right = (sparse.csr_array(np.where(rng.random((n, 30)) < densities, rng.random((n, 30)), 0)) for n in (9, 6))
    weights = rng.standard_normal(30) if weighted else None
    scale = np.eye(30) if weights is None else np.diag(weights)
    before = left.copy()
    np.testing.assert_allclose(inner_products(left, None, weights), left @ scale @ left.T.toarray())
    np.testing.assert_allclose(inner_products(left, right, weights), left @ scale @ right.T.toarray())
    assert (left != before).nnz == 0


def test_learned_weights_find_the_length_that_matters() -> None:
    strings = random_strings(60, 20, "ab", seed=5)
    y = np.array([float(string.count("aba") + string.count("bb")) for string in strings])
    model = OperatorRidge(Spectrum((1, 3), "auto")).fit(strings, y)
    assert model.kernel_.weights.shape == (3,)
    assert model.kernel_.weights[0] < 0.1 * model.kernel_.weights[1:].max()
    assert model.score(strings, y) > 0.95


def test_a_weight_of_zero_leaves_a_length_out() -> None:
    torch.testing.assert_close(Spectrum((1, 3), [1.0, 0.0, 2.0])(X), Spectrum(1)(X) + 2.0 * Spectrum(3)(X))


# -- Subsequence ------------------------------------------------------------------------------------------------------
def test_the_example_of_lodhi_et_al() -> None:
    decay = 0.5
    gram = Subsequence(2, decay)(["cat", "car"])
    assert gram[0, 1] == pytest.approx(decay**4)
    assert gram[0, 0] == pytest.approx(2 * decay**4 + decay**6)
    normalised = Subsequence(2, decay).normalized()(["cat", "car"])[0, 1]
    assert normalised == pytest.approx(1 / (2 + decay**2))


def test_a_small_decay_leaves_the_substrings() -> None:
    decay = 1e-4
    torch.testing.assert_close(Subsequence(3, decay)(X) / decay**6, Spectrum(3)(X), rtol=0, atol=0.01)


def test_decay_one_counts_subsequences() -> None:
    assert Subsequence(3, 1.0)(["a" * 10]).item() == math.comb(10, 3) ** 2


@pytest.mark.parametrize("decay", [1e-3, 0.5, 0.99])
def test_long_strings_neither_overflow_nor_vanish(decay: float) -> None:
    x = "ab" * 400
    value = Subsequence(1, decay)([x]).item()
    assert value == pytest.approx(2 * 400**2 * decay**2)
    assert Subsequence(2, decay)([x]).isfinite().all()
    # Far apart: one pair of positions each.
    far = "a" + "x" * 300 + "b"
    assert Subsequence(2, decay)([far], ["ab"]).item() == pytest.approx(decay ** (302 + 2))


def test_the_derivative_in_decay_is_exact() -> None:
    def derivative(x: str, y: str, decay: float) -> float:
        """Term by term."""
        spans = [
            i[-1] - i[0] + j[-1] - j[0] + 2
            for i in itertools.combinations(range(len(x)), 2)
            for j in itertools.combinations(range(len(y)), 2)
            if all(x[a] == y[b] for a, b in zip(i, j, strict=True))
        ]
        return sum(span * decay ** (span - 1) for span in spans)

    decay = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    kernel = Subsequence(2, decay)
    for i, j in ((0, 1), (2, 2), (3, 5)):
        (slope,) = torch.autograd.grad(kernel(X)[i, j], decay)
        assert slope.item() == pytest.approx(derivative(X[i], X[j], 0.7), rel=1e-13, abs=1e-15)
    with torch.no_grad():
        assert not kernel(X).requires_grad
    torch.testing.assert_close(kernel(X).detach(), Subsequence(2, 0.7)(X), rtol=1e-14, atol=0)


def test_decay_is_learned() -> None:
    strings = random_strings(40, 12, "ab", seed=2)
    y = Subsequence(2, 0.3).normalized()(strings, ["abab", "ba"]).sum(1).numpy()
    kernel = Subsequence(2, "auto").normalized()
    model = OperatorRidge(kernel, alpha=1e-8).fit(strings, y)
    assert model.kernel_.kernel.decay == pytest.approx(0.3, abs=0.05)
    assert kernel.free() == ["kernel__decay"]


# -- Edit -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("longest", tiers([0, 1, 5, 63, 64, 65, 130, 200], lambda longest: longest < 100))
def test_edit_distances_across_the_words_of_the_machine(longest: int) -> None:
    rng = np.random.default_rng(longest)
    full = ["".join(rng.choice(list("abc"), longest)) for _ in range(4)]
    strings = [*random_strings(8, longest, seed=longest), *full]
    others = random_strings(5, 2 * longest, "abcd", seed=longest + 1)
    np.testing.assert_array_equal(edit_distances(strings), naive.gram(levenshtein, strings))
    np.testing.assert_array_equal(edit_distances(strings, others), naive.gram(levenshtein, strings, others))


@given(st.lists(st.integers(0, 3), max_size=80), st.lists(st.integers(0, 3), max_size=150))
def test_edit_distance_of_any_two(x: list[int], y: list[int]) -> None:
    assert edit_distances([x], [y]).item() == edit_distances([y], [x]).item() == levenshtein(x, y)


@pytest.mark.parametrize(
    "sizes",
    [
        {"BLOCK_NUMBERS": 500, "LARGE_BLOCK_NUMBERS": 500},
        {"FEW_STRINGS": 4, "BLOCK_NUMBERS": 1},
        {"SHORT_VECTOR": 0},
        {"SHORT_VECTOR": 10**9},
    ],
)
def test_blocks_do_not_show(sizes: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    strings, others = random_strings(30, 12), random_strings(11, 20, seed=4)
    kernels = [Subsequence(2, 0.5), Edit(2.0)]
    expected = [(kernel(strings), kernel(strings, others), kernel.diag(strings)) for kernel in kernels]
    for name, value in sizes.items():
        monkeypatch.setattr(f"representer.kernels.alignments.{name}", value)
    for kernel, (gram, cross, diagonal) in zip(kernels, expected, strict=True):
        torch.testing.assert_close(kernel(strings), gram, rtol=1e-14, atol=0)
        torch.testing.assert_close(kernel(strings, others), cross, rtol=1e-14, atol=0)
        torch.testing.assert_close(kernel.diag(strings), diagonal, rtol=1e-14, atol=0)


def test_short_strings_with_long_ones() -> None:
    short, long = random_strings(20, 5), random_strings(4, 150, seed=9)
    torch.testing.assert_close(edit_distances(short, long), edit_distances(long, short).mT)
    np.testing.assert_array_equal(edit_distances(long, short), naive.gram(levenshtein, long, short))
    decay = torch.tensor(0.01, dtype=torch.float64, requires_grad=True)
    kernel = Subsequence(2, decay)
    torch.testing.assert_close(kernel(short, long), kernel(long, short).mT)
    torch.testing.assert_close(kernel(long).diagonal(), kernel.diag(long))
    assert torch.autograd.grad(kernel(long).sum(), decay)[0].isfinite()


def test_median_edit_distance() -> None:
    distances = [levenshtein(a, b) for a, b in itertools.combinations(X, 2)]
    assert Edit().resolve(X).lengthscale == np.sort(distances)[(len(distances) - 1) // 2]
    assert Edit("auto").free() == ["lengthscale"]
    assert Edit().resolve(["a", "a"]).lengthscale == Edit().resolve([""]).lengthscale == 1.0
    assert Edit().resolve(["a"] * 9 + ["abc"]).lengthscale == 2.0
    many = random_strings(500, 6)
    thinned = [many[i] for i in np.linspace(0, 499, 200).round().astype(int)]
    assert Edit().resolve(many) == Edit().resolve(thinned)


ALL_WORDS = ["".join(word) for n in range(5) for word in itertools.product("ab", repeat=n)]


def test_an_indefinite_edit_kernel_is_repaired_with_a_warning() -> None:
    assert torch.linalg.eigvalsh(Edit(2.0)(ALL_WORDS))[0] < -0.1
    y = np.array([word.count("ab") + 0.1 * len(word) for word in ALL_WORDS])
    with pytest.warns(IndefiniteGramWarning, match="indefinite"):
        model = OperatorRidge(Edit(2.0)).fit(ALL_WORDS, y)
    assert model.score(ALL_WORDS, y) > 0.8
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        OperatorRidge(Edit(0.5)).fit(ALL_WORDS, y)  # a small lengthscale is positive definite


def test_learning_starts_where_the_kernel_is_definite() -> None:
    assert Edit().resolve(ALL_WORDS).lengthscale == 2.0
    start = Edit("auto").resolve(ALL_WORDS).lengthscale
    assert start in (1.0, 0.5)
    assert torch.linalg.eigvalsh(Edit(start)(ALL_WORDS))[0] > -1e-12
    y = np.array([word.count("ab") + 0.1 * len(word) for word in ALL_WORDS])
    model = OperatorRidge(Edit("auto")).fit(ALL_WORDS, y)
    assert model.kernel_.lengthscale > 0
    duplicates = ["ab", "ab", "ba", "ab"]
    assert Edit("auto").resolve(duplicates).lengthscale > 0


def test_the_lengthscale_is_learned() -> None:
    strings = random_strings(40, 12, "abcd", seed=7)
    y = Edit(1.2)(strings, strings[:3]).sum(1).numpy()

    def fitted(lengthscale: Any) -> tuple[OperatorRidge, float]:
        model = OperatorRidge(Edit(lengthscale), alpha=1e-6).fit(strings, y)
        return model, float(np.mean((model.loo_predict_ - y) ** 2))

    model, least = fitted("auto")
    learned = model.kernel_.lengthscale
    assert learned != Edit("auto").resolve(strings).lengthscale
    assert least < min(fitted(0.95 * learned)[1], fitted(1.05 * learned)[1])


# -- what is accepted -------------------------------------------------------------------------------------------------
@every_kernel
def test_the_same_strings_in_any_form(kernel: Kernel) -> None:
    expected = kernel(X)
    for form in (
        tuple(X),
        np.array(X),
        np.array(X, dtype=object),
        pd.Series(X),
        pd.DataFrame({"s": X}),
        iter(X),
    ):
        torch.testing.assert_close(kernel(form), expected)
    assert kernel.prepare(X) is X


def test_rows_of_an_array_are_strings() -> None:
    array = np.random.default_rng(0).integers(0, 3, size=(4, 6))
    rows = array.tolist()
    for form in (array, torch.from_numpy(array), list(array), array.astype(np.uint8)):
        torch.testing.assert_close(Spectrum(2)(form), Spectrum(2)(rows))
        torch.testing.assert_close(Edit(1.0)(form), Edit(1.0)(rows))


@every_kernel
def test_empty_and_short_strings(kernel: Kernel) -> None:
    gram = kernel(["", "ab", ""])
    if isinstance(kernel, Edit):
        assert gram.tolist() == [
            [1.0, math.exp(-2), 1.0],
            [math.exp(-2), 1.0, math.exp(-2)],
            [1.0, math.exp(-2), 1.0],
        ]
    else:
        assert gram[0].tolist() == gram[2].tolist() == [0.0, 0.0, 0.0]
        assert kernel(["a"], ["ab"]).item() == 0.0
        assert kernel.normalized()(["", "ab"]).tolist() == [[0.0, 0.0], [0.0, 1.0]]
    assert kernel(["", ""]).shape == (2, 2)
    assert kernel.diag(["", ""]).shape == (2,)


@every_kernel
def test_unknown_symbols_have_nothing_in_common(kernel: Kernel) -> None:
    expected = math.exp(-3) if isinstance(kernel, Edit) else 0.0
    assert kernel(["xyz"], ["abc"]).item() == pytest.approx(expected)


@every_kernel
@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("abc", r"takes a list of strings; got one str\. Pass \['abc'\]"),
        (b"abc", r"got one bytes"),
        (3, "takes a list of strings; got int"),
        ([], "Found 0 strings"),
        (["a", None, "b", float("nan")], r"2 of 4 objects are not, at positions 1, 3 \(the first is None\)"),
        (["a"] + [1] * 7, r"7 of 8 objects are not, at positions 1, 2, 3, 4, 5 …"),
        (["a", b"b"], r"different kinds: str \(position 0\) and bytes \(position 1\)"),
        ([("a",), "b"], r"different kinds: tuple \(position 0\) and str \(position 1\)"),
        ([("a",), ("b", [1])], r"Symbol 1 of string 1, \[1\], is not hashable"),
        ([("a",), ("b", "c", float("nan"))], r"Symbol 2 of string 1, nan, is not equal to itself"),
        ([(pd.NA,)], r"Symbol 0 of string 0, <NA>, cannot be compared"),
        (np.zeros((3, 2)), "takes strings, but X is an array of real numbers"),
        (pd.Series(["a", None]), "1 of 2 objects are not, at positions 1"),
        ([np.zeros((2, 2))], "1 of 1 objects are not"),
    ],
)
def test_what_is_refused(kernel: Kernel, data: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kernel(data)


@every_kernel
def test_two_kinds_of_strings_are_refused(kernel: Kernel) -> None:
    with pytest.raises(ValueError, match="different kinds"):
        kernel(["abc"], [b"abc"])
    model = OperatorRidge(kernel, alpha=0.1).fit(["abc", "ab", "ca"], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="different kinds"):
        model.predict([("a", "b")])


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (Spectrum(0), "length of Spectrum must be a positive integer, or a pair"),
        (Spectrum(2.5), "length of Spectrum"),
        (Spectrum((3, 1)), r"length of Spectrum.*got \(3, 1\)"),
        (Spectrum((1, 2, 3)), "length of Spectrum"),
        (Spectrum(2, -1.0), "weights of Spectrum must not be negative"),
        (Spectrum((1, 3), [1.0, 2.0]), r"3 length\(s\), but weights has shape \(2,\)"),
        (Spectrum((1, 2), [[1.0, 2.0], [3.0, 4.0]]), r"weights has shape \(2, 2\)"),
        (Spectrum((1, 3), "median"), "weights of Spectrum must be a number or one of: 'auto'"),
        (Mismatch(0), "length of Mismatch must be a positive integer"),
        (Mismatch(3, 3), "mismatches of Mismatch must be an integer from 0 to length − 1 = 2; got 3"),
        (Mismatch(3, -1), "mismatches of Mismatch"),
        (Mismatch(3, 0.5), "mismatches of Mismatch"),
        (Mismatch(3, "1"), "mismatches of Mismatch"),
        (Mismatch(3, True), "mismatches of Mismatch"),
        (Mismatch(3, 1, "abca"), "sequence of distinct hashable symbols or None; got 'abca'"),
        (Mismatch(3, 1, ""), "sequence of distinct hashable symbols"),
        (Mismatch(3, 1, 4), "sequence of distinct hashable symbols"),
        (Mismatch(3, 1, [[1], [2]]), "sequence of distinct hashable symbols"),
        (Subsequence(0), "length of Subsequence must be a positive integer"),
        (Subsequence(2, 0.0), "decay of Subsequence must be above 0 and at most 1"),
        (Subsequence(2, 1.1), "decay of Subsequence"),
        (Subsequence(2, [0.1, 0.2]), "decay of Subsequence must be one number"),
        (Edit(0.0), "lengthscale of Edit must be positive"),
        (Edit("mean"), "lengthscale of Edit must be a number or one of: 'median', 'auto'"),
    ],
    ids=lambda value: repr(value) if isinstance(value, Kernel) else "",
)
def test_bad_hyperparameters(kernel: Kernel, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kernel(["abc", "ab"])


@every_kernel
def test_the_data_stay_as_they_are(kernel: Kernel) -> None:
    strings: list[Any] = [["a", "b"], ["b"], []]
    kernel(strings)
    kernel(strings, strings[:1])
    kernel.diag(strings)
    assert strings == [["a", "b"], ["b"], []]


# -- in learners ------------------------------------------------------------------------------------------------------
STRINGS = random_strings(40, 14, "ACGT", seed=11)
TARGETS = np.array([string.count("AC") + 0.2 * len(string) for string in STRINGS])


@pytest.mark.parametrize(
    "kernel",
    [Spectrum((1, 2)), Mismatch(2, 1), Subsequence(2, 0.5).normalized(), Edit(1.0), Spectrum(2).centered()],
    ids=repr,
)
def test_in_a_learner(kernel: Kernel) -> None:
    model = OperatorRidge(kernel).fit(STRINGS, TARGETS)
    new = ["ACAC", "", "NNNN", "GATTACA"]
    predicted = model.predict(new)
    assert np.isfinite(predicted).all()
    np.testing.assert_allclose(pickle.loads(pickle.dumps(model)).predict(new), predicted)
    np.testing.assert_allclose(clone(model).fit(pd.Series(STRINGS), TARGETS).predict(np.array(new)), predicted)
    gram = model.kernel_(STRINGS).numpy()
    given_gram = OperatorRidge("precomputed").fit(gram, TARGETS)
    np.testing.assert_allclose(given_gram.predict(gram), model.predict(STRINGS), rtol=1e-6, atol=1e-6)


def test_in_a_grid_search_and_a_pipeline() -> None:
    search = GridSearchCV(
        OperatorRidge(Spectrum(), alpha=1e-2, fit_intercept=False),
        {"kernel__length": [1, 2, (1, 2)]},
        cv=3,
        error_score="raise",
    ).fit(STRINGS, TARGETS)
    assert search.best_params_["kernel__length"] == (1, 2)
    upper = FunctionTransformer(lambda strings: [string.upper() for string in strings])
    pipeline = make_pipeline(upper, OperatorRidge(Spectrum((1, 2)), alpha=1e-3, fit_intercept=False))
    lower = [string.lower() for string in STRINGS]
    scores = cross_val_score(pipeline, lower, TARGETS, cv=3, error_score="raise")
    assert scores.mean() > 0.9
    grid = {"kernel__mismatches": [0, 1], "kernel__alphabet": [None, "ACGTN"]}
    GridSearchCV(OperatorRidge(Mismatch(2), alpha=1e-2, fit_intercept=False), grid, cv=2, error_score="raise").fit(
        STRINGS, TARGETS
    )
    grid_of_decays = {"kernel__decay": [0.2, 0.8]}
    GridSearchCV(
        OperatorRidge(Subsequence(2), alpha=1e-2, fit_intercept=False), grid_of_decays, cv=2, error_score="raise"
    ).fit(STRINGS, TARGETS)


def test_landmarks() -> None:
    exact = OperatorRidge(Spectrum((1, 2)), alpha=1e-2).fit(STRINGS, TARGETS)
    landmarks = OperatorRidge(
        Spectrum((1, 2)), alpha=1e-2, approximation=Nystroem(20, sampling="pivots"), random_state=0
    ).fit(STRINGS, TARGETS)
    np.testing.assert_allclose(landmarks.predict(STRINGS), exact.predict(STRINGS), rtol=1e-3, atol=1e-3)


# -- the range of numbers, and data of another form -------------------------------------------------------------------
def test_a_normalised_subsequence_kernel_needs_no_factor() -> None:
    strings = ["ab" * 60, "ab" * 50 + "ba" * 10, "ba" * 55, "a"]
    gram = Subsequence(100, 0.01).normalized()(strings)
    torch.testing.assert_close(gram.diagonal(), torch.tensor([1.0, 1.0, 1.0, 0.0], dtype=torch.float64))
    assert 0 < gram[0, 1] < 1 and torch.allclose(gram, gram.mT)
    short = [s[:12] for s in strings]
    k = Subsequence(3, 0.3)
    plain, roots = k(short), k.diag(short).sqrt()
    expected = plain / torch.where(roots > 0, roots, 1.0)[:, None] / torch.where(roots > 0, roots, 1.0)
    torch.testing.assert_close(k.normalized()(short), expected)
    torch.testing.assert_close(k.normalized()(short[:2], short), expected[:2])
    assert k.normalized() == Subsequence(3, 0.3).normalized()


@pytest.mark.parametrize(
    ("kernel", "string", "advice"),
    [
        (Subsequence(100, 0.01), "ab" * 60, r"Use \.normalized\(\)"),
        pytest.param(Subsequence(200, 1.0), "ab" * 500, "Use a smaller decay", marks=pytest.mark.slow),
        pytest.param(Subsequence(200, 1.0).normalized(), "ab" * 500, "Use a smaller decay", marks=pytest.mark.slow),
    ],
    ids=repr,
)
def test_what_leaves_the_range_of_numbers_is_refused(kernel: Kernel, string: str, advice: str) -> None:
    for call in (kernel, kernel.diag):
        with pytest.raises(ValueError, match=f"leaves the floating-point range.*{advice}"):
            call([string])


def test_other_forms_of_data_are_not_read_as_strings() -> None:
    for data, kind in (({"a": "b"}, "dict"), ({"ab", "c"}, "set")):
        with pytest.raises(ValueError, match=f"takes a list of strings; got {kind}"):
            Spectrum(1)(data)
    frame = pd.DataFrame({"first": ["ab", "b"], "second": ["c", "dd"]})
    for form in (frame, frame.to_numpy()):
        with pytest.raises(ValueError, match="X has 2 columns of them"):
            Spectrum(1)(form)
    with pytest.raises(ValueError, match="X has 2 columns of them"):
        OperatorRidge(Spectrum(1)).fit(frame, [0.0, 1.0])
    letters = np.array([list("abc"), list("bcd")])
    torch.testing.assert_close(Spectrum(2)(letters), Spectrum(2)(["abc", "bcd"]))


def test_the_alphabet_is_of_the_kind_of_the_strings() -> None:
    for alphabet, strings in ((b"ab", ["ab"]), ("ab", [b"ab"])):
        with pytest.raises(ValueError, match=r"alphabet of Mismatch.*different kinds"):
            Mismatch(2, 1, alphabet)(strings)
    assert Mismatch(2, 1, "ab")([("a", "b")]).item() == 3.0
