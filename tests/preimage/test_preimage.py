"""Decoders against enumeration: all candidates, all strings, all subsets; climbs against finite differences."""

from __future__ import annotations

import pickle
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics import accuracy_score, f1_score, hamming_loss

from representer import preimage
from representer.functions import Embedding
from representer.kernels import (
    Callable,
    Constant,
    Delta,
    Functional,
    Gaussian,
    Kernel,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    Precomputed,
    Pullback,
    RationalQuadratic,
    Spectrum,
    Tanimoto,
    WeightedDegree,
    WeisfeilerLehman,
    as_graph,
)
from representer.linalg import resources as memory
from representer.preimage import (
    Candidates,
    Custom,
    Decoder,
    Direct,
    FixedPoint,
    Gradient,
    LabelSet,
    Sequence,
    as_decoder,
    candidate_scores,
)
from representer.preimage.labels import best_threshold, best_thresholds
from representer.preimage.probabilities import far_field
from representer.testing import check_kernel

RNG = np.random.default_rng(0)
WORDS = ["abc", "abca", "bb", "cab", "ccab", "a"]


def elements(kernel: Kernel, Y: object, q: int = 5, seed: int = 0, scale: float = 0.5) -> Embedding:
    """q random elements of the span of the training outputs."""
    prepared = kernel.prepare(Y)
    n = len(prepared)
    weights = scale * torch.randn(q, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Embedding(kernel.resolve(prepared), prepared, weights)


def score(element: Embedding, row: int, y: object) -> float:
    """2⟨g, φ(y)⟩ − ‖φ(y)‖² by a loop."""
    kernel = element.kernel
    total = 0.0
    for weight, anchor in zip(element.weights[row].tolist(), element.anchors, strict=True):
        total += weight * kernel([anchor] if not torch.is_tensor(anchor) else anchor[None], [y]).item()
    return 2.0 * total - kernel.diag([y]).item()


def resolved(decoder: Decoder, element: Embedding, Y: object | None = None) -> Decoder:
    return decoder.resolve(element.kernel, element.anchors if Y is None else Y)


# --- scores and candidates -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kernel", "Y", "candidates"),
    [
        (Gaussian(1.5), RNG.normal(size=(7, 2)), RNG.normal(size=(4, 2))),
        (Linear(), RNG.normal(size=(7, 2)), RNG.normal(size=(4, 2))),
        (Polynomial(3), RNG.normal(size=(7, 2)), RNG.normal(size=(4, 2))),
        (Spectrum((1, 2)), WORDS, ["abab", "", "zz"]),
        (Delta(), ["x", "y", "x"], ["y", "z"]),
    ],
    ids=str,
)
def test_scores_are_those_of_the_definition(kernel: Kernel, Y: object, candidates: list) -> None:
    element = elements(kernel, Y)
    found = candidate_scores(element, candidates)
    assert found.shape == (5, len(candidates))
    for i in range(5):
        for j, y in enumerate(candidates):
            assert found[i, j].item() == pytest.approx(score(element, i, y), abs=1e-10)


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    element = elements(Gaussian(1.0), RNG.normal(size=(30, 3)))
    candidates = RNG.normal(size=(41, 3))
    whole, top = candidate_scores(element, candidates), resolved(Candidates(candidates), element)
    before = top.decode(element), top.topk(element, 6)
    monkeypatch.setattr(memory, "BLOCK_BYTES", 8 * 35 * 4)  # four candidates at a time
    assert torch.allclose(candidate_scores(element, candidates), whole, atol=1e-12)
    np.testing.assert_array_equal(top.decode(element), before[0])
    np.testing.assert_array_equal(top.topk(element, 6)[0], before[1][0])
    np.testing.assert_allclose(top.topk(element, 6)[1], before[1][1], atol=1e-12)


def test_candidates_are_the_nearest_ones() -> None:
    Y = RNG.normal(size=(20, 3))
    element = elements(Gaussian(2.0), Y)
    scores = candidate_scores(element, Y).numpy()
    decoder = resolved(Candidates(), element, Y)
    np.testing.assert_array_equal(decoder.decode(element), Y[scores.argmax(1)])
    objects, values = decoder.topk(element, 3)
    order = np.argsort(-scores, axis=1)[:, :3]
    np.testing.assert_array_equal(objects, Y[order])
    np.testing.assert_allclose(values, np.take_along_axis(scores, order, 1), rtol=1e-12)


def test_equal_training_outputs_are_one_candidate_and_come_back_as_they_were_given() -> None:
    labels = np.array(["x", "y", "x", "z"])
    element = elements(Delta(), labels)
    objects, _ = resolved(Candidates(), element, labels).topk(element, 3)
    assert [sorted(row) for row in objects.tolist()] == [["x", "y", "z"]] * 5
    rows = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    vectors = elements(Linear(), rows)
    assert resolved(Candidates(), vectors, rows).topk(vectors, 2)[0].shape == (5, 2, 2)
    words = elements(Spectrum(1), ["ab", "ab", "b"])
    with pytest.raises(ValueError, match="There are 2 candidates, not k=3"):
        resolved(Candidates(), words).topk(words, 3)


def test_unhashable_outputs_are_compared_by_their_kernel_only() -> None:
    objects = [{"size": 1.0}, {"size": 2.0}, {"size": 2.0}]
    kernel = Callable(lambda a, b: a["size"] * b["size"])
    element = elements(kernel, objects)
    assert resolved(Candidates(), element, objects).decode(element)[0] in objects


def test_candidates_of_each_input() -> None:
    Y = RNG.normal(size=(10, 2))
    element = elements(Gaussian(1.0), Y)
    sets = {i: RNG.normal(size=(i + 1, 2)) for i in range(5)}
    decoder = resolved(Candidates(lambda x: sets[int(x[0])]), element)
    X = np.arange(5.0)[:, None]
    best = decoder.decode(element, X)
    objects, values = decoder.topk(element, 3, X)
    for i in range(5):
        scores = candidate_scores(element[i : i + 1], sets[i])[0].numpy()
        np.testing.assert_array_equal(best[i], sets[i][scores.argmax()])
        np.testing.assert_array_equal(objects[i], sets[i][np.argsort(-scores)[:3]])
        np.testing.assert_allclose(values[i, : i + 1], np.sort(scores)[::-1][:3], rtol=1e-12)
        assert np.isneginf(values[i, i + 1 :]).all()
    with pytest.raises(ValueError, match="one input for each of the 5 predictions; got None"):
        decoder.decode(element)


@pytest.mark.parametrize(
    ("decoder", "match"),
    [
        (Candidates([]), "Candidates are empty"),
        (Candidates(np.zeros((0, 2))), "Candidates are empty"),
        (Candidates(lambda x: []), "The candidates of input 0 are empty"),
        (Candidates(lambda x: None), "must be a collection of outputs; got None"),
        (Candidates(3.0), "must be a collection of outputs"),
        (Candidates([[1.0]]), "1 features, but the training outputs have 2"),
        (Candidates([[1.0, np.nan]]), "NaN"),
        (Candidates([[1.0, 1.0]], diagonal=[1.0]), "precomputed"),
        (Candidates(diagonal=[1.0]), "belongs to candidates="),
        (Candidates(lambda x: [], diagonal=[1.0]), "pairs"),
    ],
)
def test_bad_candidates(decoder: Candidates, match: str) -> None:
    element = elements(Linear(), RNG.normal(size=(4, 2)), q=2)
    with pytest.raises(ValueError, match=match):
        resolved(decoder, element).decode(element, [[0.0], [0.0]])
    with pytest.raises(ValueError, match="k must be a positive integer"):
        resolved(Candidates(), element).topk(element, 0)
    with pytest.raises(ValueError, match="resolve"):
        Candidates().decode(element)


def test_precomputed_outputs() -> None:
    Y, new = RNG.normal(size=(8, 2)), RNG.normal(size=(5, 2))
    kernel = Polynomial(2)
    element = elements(kernel, Y)
    gram = kernel(Y)
    given = Embedding(Precomputed(), gram, element.weights)
    assert torch.allclose(candidate_scores(given, gram), candidate_scores(element, Y))
    expected = candidate_scores(element, new)
    rows, diagonal = kernel(new, Y).numpy(), kernel.diag(new).numpy()
    assert torch.allclose(candidate_scores(given, rows, diagonal=diagonal), expected)
    with pytest.raises(ValueError, match=r"l\(y, y\) of candidates is not in"):
        candidate_scores(given, rows)
    with pytest.raises(ValueError, match="diagonal must hold"):
        candidate_scores(given, rows, diagonal=diagonal[:2])
    with pytest.raises(ValueError, match="negative or missing"):
        candidate_scores(given, rows, diagonal=-diagonal)
    with pytest.raises(ValueError, match="3 columns, but the training outputs have 8"):
        candidate_scores(given, rows[:, :3], diagonal=diagonal)
    np.testing.assert_array_equal(
        resolved(Candidates(rows, diagonal=diagonal), given).decode(given), expected.argmax(1)
    )
    own = resolved(Candidates(), given)
    np.testing.assert_array_equal(own.decode(given), candidate_scores(element, Y).argmax(1))
    each = resolved(Candidates(lambda x: (rows[: int(x)], diagonal[: int(x)])), given)
    np.testing.assert_array_equal(each.decode(given, [5] * 5), expected.argmax(1))
    # where all training outputs have the same norm, so has every candidate
    normal = kernel.normalized()
    unit = Embedding(Precomputed(), normal(Y), element.weights)
    same = candidate_scores(Embedding(normal, element.anchors, element.weights), new)
    assert torch.allclose(candidate_scores(unit, normal(new, Y)), same)


# --- direct ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "kernel",
    [
        Linear(),
        3.0 * Linear(),
        Linear() + 2.0,
        Constant(2.0) + Linear(),
        Linear().centered(),
        2.0 * Linear().centered() + 1.0,
    ],
    ids=str,
)
def test_direct_is_the_stationary_point_of_the_score(kernel: Kernel) -> None:
    element = elements(kernel, RNG.normal(size=(6, 3)))
    found = resolved(Direct(), element).decode(element)
    best = candidate_scores(element, found).diagonal()
    for step in 0.01 * np.vstack([np.eye(3), -np.eye(3)]):
        assert (candidate_scores(element, found + step).diagonal() < best).all()
    if kernel == Linear():
        np.testing.assert_allclose(found, element.weights.numpy() @ element.anchors.numpy())


def test_direct_curves() -> None:
    curves = [([0.0, 1.0], [1.0, 1.0]), ([0.0, 0.5, 1.0], [0.0, 1.0, 0.0])]
    for kernel in (Functional(Linear(), domain="objects"), Functional(Linear(), domain="objects").centered()):
        prepared = kernel.prepare(curves)
        weights = torch.tensor([[0.25, 0.75], [0.5, -1.0]], dtype=torch.float64)
        element = Embedding(kernel.resolve(prepared), prepared, weights)
        found = resolved(Direct(), element).decode(element)
        expected = weights.numpy() @ np.array([[1.0, 1.0, 1.0], [0.0, 1.0, 0.0]])
        if kernel != Functional(Linear(), domain="objects"):
            expected = expected + (1.0 - weights.numpy().sum(1, keepdims=True)) * [0.5, 1.0, 0.5]
        for (times, values), row in zip(found, expected, strict=True):
            np.testing.assert_allclose(times, [0.0, 0.5, 1.0])
            np.testing.assert_allclose(values, row)


def test_direct_inverse_sees_the_features() -> None:
    kernel = WeightedDegree()
    element = elements(kernel, WORDS)
    features = kernel.explicit_features(WORDS)
    seen = []
    decoder = resolved(Direct(lambda values: seen.append(values) or ["w"] * len(values)), element)
    assert decoder.decode(element) == ["w"] * 5
    np.testing.assert_allclose(seen[0], element.weights.numpy() @ features.matrix.toarray())
    with pytest.raises(ValueError, match="one object for each of the 5 predictions; it returned 1 objects"):
        resolved(Direct(lambda values: [0]), element).decode(element)
    with pytest.raises(ValueError, match="no explicit features"):
        resolved(Direct(len), elements(Gaussian(1.0), RNG.normal(size=(3, 2))))


@pytest.mark.parametrize(
    "kernel", [Gaussian(1.0), Polynomial(2), Functional(Linear(), derivative=1), Linear() * Linear()], ids=str
)
def test_direct_refuses_what_is_not_linear(kernel: Kernel) -> None:
    with pytest.raises(ValueError, match=r"Direct\(\) is for a linear output kernel"):
        Direct().resolve(kernel, RNG.normal(size=(4, 3)))


# --- strings ---------------------------------------------------------------------------------------------------------
def log_probability(string: str, training: list[str]) -> float:
    """The smoothed Markov chain, by counting."""
    symbols = [*sorted(set("".join(training))), None]
    total = 0.0
    for a, b in zip([None, *string], [*string, None], strict=True):
        pairs = [pair for word in training for pair in zip([None, *word], [*word, None], strict=True)]
        seen = sum(pair == (a, b) for pair in pairs) + 1
        total += np.log(seen / (sum(pair[0] == a for pair in pairs) + len(symbols)))
    return total


POSITIONAL = [
    WeightedDegree(),
    WeightedDegree((1, 2), [1.0, 0.7]),
    WeightedDegree((2, 3)),
    3.0 * WeightedDegree((1, 2)),
    WeightedDegree((1, 2)).normalized(),
    2.0 * WeightedDegree().normalized(),
]


@pytest.mark.parametrize("kernel", POSITIONAL, ids=str)
@pytest.mark.parametrize("transitions", [None, "training"])
@pytest.mark.parametrize("lengths", [None, 1, 3, 4])
def test_sequences_against_all_strings(kernel: Kernel, transitions: str | None, lengths: int | None) -> None:
    element = elements(kernel, WORDS, scale=1.0)
    weight = 0.3
    decoder = resolved(Sequence(lengths=lengths, transitions=transitions, weight=weight), element)
    sizes = range(1, 5) if lengths is None else [lengths]
    everything = ["".join(s) for size in sizes for s in product("abc", repeat=size)]
    scores = candidate_scores(element, everything).numpy()
    if transitions:
        scores = scores + weight * np.array([log_probability(s, WORDS) for s in everything])
    found = decoder.decode(element)
    for i, string in enumerate(found):
        assert scores[i, everything.index(string)] == pytest.approx(scores[i].max(), abs=1e-10)


def test_sequences_with_transitions_of_ones_own() -> None:
    element = elements(WeightedDegree(), WORDS)
    never_twice = Sequence(lengths=4, transitions=lambda a, b: -np.inf if a == b else 0.0)
    everything = [s for s in map("".join, product("abc", repeat=4)) if all(a != b for a, b in pairwise(s))]
    scores = candidate_scores(element, everything)
    best = [everything[i] for i in scores.argmax(1)]
    assert resolved(never_twice, element).decode(element) == best


def test_sequences_of_other_symbols() -> None:
    strings = [(1, "x"), (1, 2.5), ("x",)]
    element = elements(WeightedDegree(), strings, q=1)
    element = Embedding(element.kernel, element.anchors, torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.float64))
    assert resolved(Sequence(), element).decode(element) == [(1, 2.5)]
    binary = elements(WeightedDegree(), [b"ab", b"b"], q=1)
    binary = Embedding(binary.kernel, binary.anchors, torch.tensor([[1.0, 0.0]], dtype=torch.float64))
    assert resolved(Sequence(), binary).decode(binary) == [b"ab"]


def test_lengths_of_the_inputs() -> None:
    element = elements(WeightedDegree(), WORDS)
    X = [[0] * n for n in (1, 2, 3, 4, 2)]
    found = resolved(Sequence(lengths="input"), element).decode(element, X)
    assert [len(s) for s in found] == [1, 2, 3, 4, 2]
    for n in (1, 2, 3, 4):
        alone = resolved(Sequence(lengths=n), element).decode(element)
        assert [s for s, m in zip(found, map(len, X), strict=True) if m == n] == [
            s for s, m in zip(alone, map(len, X), strict=True) if m == n
        ]
    by_function = resolved(Sequence(lengths=lambda x: len(x)), element).decode(element, X)
    assert by_function == found


def test_strings_longer_than_any_in_training() -> None:
    element = elements(WeightedDegree(), WORDS)
    with pytest.warns(UserWarning, match=r"longer \(up to 6\) than the longest training output \(4\)"):
        found = resolved(Sequence(lengths=6), element).decode(element)
    short = resolved(Sequence(lengths=4), element).decode(element)
    commonest = max("abc", key="".join(WORDS).count)
    assert found == [s + 2 * commonest for s in short]
    with pytest.warns(UserWarning, match="the transition scores decide"):
        longer = resolved(Sequence(lengths=5, transitions="training"), element).decode(element)
    everything = ["".join(s) for s in product("abc", repeat=5)]
    scores = candidate_scores(element, everything).numpy() + [log_probability(s, WORDS) for s in everything]
    for i, string in enumerate(longer):
        assert scores[i, everything.index(string)] == pytest.approx(scores[i].max(), abs=1e-10)


@pytest.mark.parametrize(
    ("decoder", "kernel", "Y", "match"),
    [
        (Sequence(), Spectrum(2), WORDS, "compares strings place by place"),
        (Sequence(), Gaussian(1.0), [[1.0]], "compares strings place by place"),
        (Sequence(lengths=0), WeightedDegree(), WORDS, "lengths must be"),
        (Sequence(lengths="long"), WeightedDegree(), WORDS, "lengths must be"),
        (Sequence(lengths=np.array([1, 2])), WeightedDegree(), WORDS, "lengths must be None, a positive"),
        (Sequence(transitions="none"), WeightedDegree(), WORDS, "transitions must be"),
        (Sequence(transitions=np.zeros(2)), WeightedDegree(), WORDS, "transitions must be None, 'training'"),
        (Sequence(transitions=lambda a, b: np.nan), WeightedDegree(), WORDS, "must give numbers"),
        (Sequence(weight=-1.0), WeightedDegree(), WORDS, "weight must be"),
        (Sequence(), WeightedDegree(), ["", ""], "empty strings"),
        (Sequence(), WeightedDegree((1, 9)), ["abcdefghij", "klmnopqrst"], "too many to search"),
    ],
)
def test_bad_sequences(decoder: Sequence, kernel: Kernel, Y: list, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        decoder.resolve(kernel, Y)


def test_lengths_must_be_lengths() -> None:
    element = elements(WeightedDegree(), WORDS)
    with pytest.raises(ValueError, match="needs the 5 inputs; got None"):
        resolved(Sequence(lengths="input"), element).decode(element)
    with pytest.raises(ValueError, match="must give integers"):
        resolved(Sequence(lengths=lambda x: -1), element).decode(element, [0] * 5)


def test_weighted_degree() -> None:
    check_kernel(WeightedDegree((1, 2), [1.0, 0.5]), [*WORDS, ""])
    kernel = WeightedDegree((1, 2), [1.0, 0.5])
    for x in WORDS:
        for y in [*WORDS, "", "zzzz"]:
            singles = sum(a == b for a, b in zip(x, y, strict=False))
            pairs = sum(x[j : j + 2] == y[j : j + 2] for j in range(min(len(x), len(y)) - 1))
            assert kernel([x], [y]).item() == pytest.approx(singles + 0.5 * pairs)
    features = kernel.explicit_features(WORDS)
    assert torch.allclose(torch.from_numpy((features.matrix @ features.matrix.T).toarray()), kernel(WORDS))


# --- sets of labels --------------------------------------------------------------------------------------------------
SETS = (np.random.default_rng(1).random((12, 5)) < 0.4).astype(int)


@pytest.mark.parametrize("kernel", [Linear(), 2.0 * Linear() + 1.0, Gaussian(1.3), Tanimoto(), Polynomial(2)], ids=str)
@pytest.mark.parametrize("max_labels", [None, 2])
def test_label_sets_against_all_subsets(kernel: Kernel, max_labels: int | None) -> None:
    element = elements(kernel, SETS, scale=0.7)
    everything = np.array([s for s in product((0, 1), repeat=5) if max_labels is None or sum(s) <= max_labels])
    scores = candidate_scores(element, everything).numpy()
    for search in ("auto", "exact"):
        found = resolved(LabelSet(search=search, max_labels=max_labels), element, SETS).decode(element)
        assert found.dtype == SETS.dtype
        np.testing.assert_allclose(candidate_scores(element, found).diagonal(), scores.max(1), atol=1e-10)


def test_local_search_ends_where_no_single_label_helps() -> None:
    kernel = Gaussian(1.3)
    element = elements(kernel, SETS, q=20, scale=0.7)
    found = resolved(LabelSet(search="local"), element, SETS).decode(element)
    own = candidate_scores(element, found).diagonal().numpy()
    for label in range(5):
        changed = found.copy()
        changed[:, label] = 1 - changed[:, label]
        assert (candidate_scores(element, changed).diagonal().numpy() <= own + 1e-10).all()
    training = candidate_scores(element, SETS).max(1).values.numpy()
    assert (own >= training - 1e-10).all()
    small = resolved(LabelSet(search="local", max_labels=1), element, SETS).decode(element)
    assert (small.sum(1) <= 1).all()
    many = (np.random.default_rng(2).random((9, 20)) < 0.3).astype(int)
    wide = elements(kernel, many)
    np.testing.assert_array_equal(
        resolved(LabelSet(), wide, many).decode(wide),
        resolved(LabelSet(search="local"), wide, many).decode(wide),
    )


def test_thresholds() -> None:
    element = elements(Tanimoto(), SETS)
    values = element.weights.numpy() @ SETS
    np.testing.assert_array_equal(resolved(LabelSet(0.2), element, SETS).decode(element), values > 0.2)
    sparse_sets = sparse.csr_array(SETS)
    np.testing.assert_array_equal(resolved(LabelSet(0.2), element, sparse_sets).decode(element), values > 0.2)
    few = resolved(LabelSet(-1.0, max_labels=2), element, SETS).decode(element)
    for row, chosen in zip(values, few, strict=True):
        assert set(np.flatnonzero(chosen)) <= set(np.argsort(-row)[:2])


@pytest.mark.parametrize("measure", ["f1", "hamming", "subset"])
def test_a_threshold_chosen_on_held_out_predictions_is_the_best_one(measure: str) -> None:
    element = elements(Linear(), SETS, q=12)
    decoder = resolved(LabelSet("auto", measure=measure), element, SETS)
    with pytest.raises(ValueError, match="has no number yet"):
        decoder.decode(element)
    found = decoder.calibrate(element, SETS)
    measures = {
        "f1": lambda p: f1_score(SETS, p, average="micro", zero_division=0),
        "hamming": lambda p: -hamming_loss(SETS, p),
        "subset": lambda p: accuracy_score(SETS, p),
    }
    values = element.weights.numpy() @ SETS
    edges = np.sort(values, axis=None)
    thresholds = [edges[0] - 1.0, *(edges[1:] + edges[:-1]) / 2.0, edges[-1]]
    best = max(measures[measure]((values > t).astype(int)) for t in thresholds)
    assert measures[measure](found.decode(element)) == pytest.approx(best, abs=1e-12)
    assert decoder.calibrate(element, SETS) == decoder  # the same options
    assert resolved(LabelSet(), element, SETS).calibrate(element, SETS) == LabelSet()


def _micro_f1(labels: np.ndarray, decided: np.ndarray) -> float:
    """Of all entries at once, as ``f1_score(labels, decided, average="micro", zero_division=0)``, a thousand times."""
    total = labels.sum() + decided.sum()
    return float(2.0 * (labels * decided).sum() / total) if total else 0.0


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("measure", ["f1", "hamming", "subset"])
def test_a_threshold_for_each_label_against_all_of_them(measure: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = (rng.random((9, 3)) < 0.4).astype(int)
    values = np.round(0.5 * labels + rng.normal(size=labels.shape), 1)  # with ties
    quality = {
        "f1": lambda p: _micro_f1(labels, p),
        "hamming": lambda p: -float((labels != p).mean()),
        "subset": lambda p: float((labels == p).all(1).mean()),
    }[measure]
    thresholds = best_thresholds(values, labels, measure)
    decided = (values > thresholds).astype(int)
    named = {
        "f1": f1_score(labels, decided, average="micro", zero_division=0),
        "hamming": -hamming_loss(labels, decided),
        "subset": accuracy_score(labels, decided),
    }[measure]
    assert quality(decided) == pytest.approx(named, abs=1e-12)
    cuts = [[*column, column.min() - 1.0] for column in values.T]
    if measure == "subset":  # no single change is better, and the common threshold is not better either
        tried = [np.where(np.arange(3) == j, t, thresholds) for j in range(3) for t in cuts[j]]
        tried += [np.full(3, t) for column in cuts for t in column]
    else:
        tried = [np.array(cut) for cut in product(*cuts)]
    best = max(quality((values > t).astype(int)) for t in tried)
    assert quality((values > thresholds).astype(int)) == pytest.approx(best, abs=1e-12)


def test_each_label_has_a_threshold_of_its_own() -> None:
    Y = np.array([[1, 0], [1, 0], [0, 1], [0, 0], [0, 0], [0, 1]])
    weights = torch.diag(torch.tensor([1.0, 1.0, 0.2, 1.0, 1.0, 0.2], dtype=torch.float64))  # the second is shrunk
    weights[3, 0] = 0.4  # more than the second label ever has, and still not the first
    element = Embedding(Linear(), torch.from_numpy(Y).double(), weights)
    decoder = resolved(LabelSet("auto", per_label=True), element, Y).calibrate(element, Y)
    np.testing.assert_array_equal(decoder.decode(element), Y)
    np.testing.assert_allclose(decoder._decide, [0.7, 0.1])


def test_extreme_thresholds() -> None:
    assert best_threshold(np.array([[0.2, 0.1]]), np.array([[0, 0]]), "hamming") == 0.2  # nothing
    assert best_threshold(np.array([[0.2, 0.1]]), np.array([[1, 1]])) < 0.1  # everything
    tied = best_threshold(np.array([[0.5, 0.5, 0.1]]), np.array([[1, 0, 0]]))
    assert 0.1 < tied < 0.5


@pytest.mark.parametrize(
    ("decoder", "kernel", "Y", "match"),
    [
        (LabelSet(), Linear(), [[0.0, 2.0]], "rows of zeros and ones"),
        (LabelSet(), Delta(), ["a"], "rows of zeros and ones"),
        (LabelSet(search="exact"), Gaussian(1.0), np.eye(20), "Give max_labels="),
        (LabelSet("best"), Linear(), SETS, "threshold must be"),
        (LabelSet(np.nan), Linear(), SETS, "threshold must be"),
        (LabelSet(np.array([0.1, 0.2])), Linear(), SETS, "threshold must be None, a number or 'auto'"),
        (LabelSet(measure="accuracy"), Linear(), SETS, "measure must be one of"),
        (LabelSet("auto", per_label=2), Linear(), SETS, "per_label must be"),
        (LabelSet(search="all"), Linear(), SETS, "search must be one of"),
        (LabelSet(max_labels=0), Linear(), SETS, "max_labels must be"),
    ],
)
def test_bad_label_sets(decoder: LabelSet, kernel: Kernel, Y: object, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        decoder.resolve(kernel, Y)


# --- vectors ---------------------------------------------------------------------------------------------------------
def slopes(element: Embedding, points: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """∂ score / ∂ y by central differences, (q, d)."""
    columns = []
    for unit in step * np.eye(points.shape[1]):
        up, down = (candidate_scores(element, points + s * unit).diagonal() for s in (1.0, -1.0))
        columns.append((up - down).numpy() / (2.0 * step))
    return np.stack(columns, 1)


@pytest.mark.parametrize(
    ("decoder", "kernel"),
    [
        (Gradient(tol=1e-12), Gaussian(1.5)),
        (Gradient(tol=1e-12), Matern(2.5, 2.0)),
        (Gradient(tol=1e-12), RationalQuadratic(1.5)),
        (Gradient(tol=1e-12), 2.0 * Gaussian(1.0) + 0.5 * Linear()),
        (FixedPoint(max_iter=2000), Gaussian(1.5)),
        (FixedPoint(max_iter=5000), 3.0 * Gaussian([1.0, 2.0, 0.7])),
    ],
    ids=str,
)
def test_climbs_end_at_stationary_points_that_beat_all_training_outputs(decoder: Decoder, kernel: Kernel) -> None:
    Y = np.random.default_rng(3).normal(size=(15, 3))
    element = elements(kernel, Y, q=6, scale=0.4)
    found = resolved(decoder, element).decode(element)
    assert found.shape == (6, 3)
    np.testing.assert_allclose(slopes(element, found), 0.0, atol=5e-4 if isinstance(decoder, Gradient) else 1e-5)
    assert (candidate_scores(element, found).diagonal() >= candidate_scores(element, Y).max(1).values - 1e-9).all()


@pytest.mark.parametrize("unit", [1e-100, 1e-6, 1e6, 1e100])
@pytest.mark.parametrize("kernel", [lambda unit: Gaussian(0.8 * unit), lambda unit: Linear()], ids=["rbf", "linear"])
def test_a_climb_ends_at_the_same_vector_in_any_unit(unit, kernel) -> None:
    rng = np.random.default_rng(0)
    points, weights = rng.normal(size=(8, 2)), torch.tensor(rng.normal(size=(3, 8)))
    found = []
    for u in (1.0, unit):
        element = Embedding(kernel(u), torch.tensor(u * points), weights)
        found.append(resolved(Gradient(), element).decode(element) / u)
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-5)


def test_fixed_point_is_the_end_of_the_gradient() -> None:
    Y = np.random.default_rng(4).normal(size=(25, 2))
    element = elements(Gaussian(2.0), Y, q=10)
    element = Embedding(element.kernel, element.anchors, element.weights.softmax(-1))
    by_gradient = resolved(Gradient(tol=1e-12), element).decode(element)
    by_iteration = resolved(FixedPoint(tol=1e-10), element).decode(element)
    np.testing.assert_allclose(by_gradient, by_iteration, atol=1e-5)
    weights = element.weights * element.kernel(torch.from_numpy(by_iteration), element.anchors)
    np.testing.assert_allclose(weights @ element.anchors / weights.sum(-1, keepdim=True), by_iteration, atol=1e-7)


def test_climbs_recover_the_image_of_a_vector() -> None:
    """g = φ(y) has the pre-image y; blocks and the number of elements do not matter."""
    Y = np.random.default_rng(5).normal(size=(9, 2))
    kernel = Gaussian(1.0)
    element = Embedding(kernel, kernel.prepare(Y), torch.eye(9, dtype=torch.float64))
    for decoder in (Gradient(), FixedPoint()):
        np.testing.assert_allclose(resolved(decoder, element).decode(element), Y, atol=1e-6)


def test_climbs_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    Y = np.random.default_rng(6).normal(size=(9, 2))
    element = elements(Gaussian(1.0), Y, q=3)
    before = [resolved(decoder, element).decode(element) for decoder in (Gradient(), FixedPoint())]
    monkeypatch.setattr(memory, "BLOCK_BYTES", 1)
    after = [resolved(decoder, element).decode(element) for decoder in (Gradient(), FixedPoint())]
    np.testing.assert_allclose(before, after, atol=1e-5)


@pytest.mark.parametrize(
    ("decoder", "kernel", "Y", "match"),
    [
        (Gradient(), Laplacian(1.0), [[1.0]], "smooth output kernel"),
        (Gradient(), Matern(0.5, 1.0), [[1.0]], "smooth output kernel"),
        (Gradient(), Tanimoto(), [[1.0]], "smooth output kernel|dense vectors"),
        (Gradient(), Spectrum(2), WORDS, "dense vectors"),
        (FixedPoint(), Linear(), [[1.0]], "Gaussian output kernel"),
        (Gradient(max_iter=0), Gaussian(1.0), [[1.0]], "max_iter"),
        (FixedPoint(tol=-1.0), Gaussian(1.0), [[1.0]], "tol"),
    ],
)
def test_bad_climbs(decoder: Decoder, kernel: Kernel, Y: object, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        decoder.resolve(kernel, Y)


# --- all decoders ----------------------------------------------------------------------------------------------------
def test_names_and_functions() -> None:
    names = ["candidates", "direct", "sequence", "labels", "gradient", "fixed_point"]
    kinds = [Candidates, Direct, Sequence, LabelSet, Gradient, FixedPoint]
    assert [type(as_decoder(name)) for name in names] == kinds
    assert as_decoder(Direct()) == Direct()
    with pytest.raises(ValueError, match=r"'nearest' is not a decoder.*'candidates'"):
        as_decoder("nearest")
    with pytest.raises(ValueError, match="is not a decoder"):
        as_decoder(Direct)
    element = elements(Linear(), [[1.0], [2.0]])
    decoder = as_decoder(lambda embedding, X: [X] * len(embedding))
    assert isinstance(decoder, Custom)
    assert resolved(decoder, element).decode(element, "x") == ["x"] * 5
    with pytest.raises(ValueError, match="it returned int"):
        as_decoder(lambda embedding, X: 3).decode(element)


@pytest.mark.parametrize(
    ("decoder", "kernel", "Y"),
    [
        (Candidates([[1.0, 0.0], [0.0, 1.0]]), Gaussian(1.0), SETS[:, :2].astype(float)),
        (Direct(), Linear(), SETS),
        (Sequence(lengths=2, transitions="training", weight=0.5), WeightedDegree(), WORDS),
        (LabelSet(0.25, max_labels=3), Linear(), SETS),
        (Gradient(max_iter=7), Gaussian(1.0), SETS),
        (FixedPoint(tol=1e-3), Gaussian(1.0), SETS),
    ],
    ids=str,
)
def test_decoders_are_values(decoder: Decoder, kernel: Kernel, Y: object) -> None:
    names = {name: getattr(preimage, name) for name in preimage.__all__}
    assert eval(repr(decoder), names) == decoder == clone(decoder)
    before = repr(decoder)
    element = elements(kernel, Y)
    fitted = resolved(decoder, element, Y)
    assert repr(decoder) == before == repr(fitted)
    assert not hasattr(decoder, "_prepared")
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.decode(element), fitted.decode(element))
    assert len(fitted.decode(element)) == 5


def test_graphs_come_back() -> None:
    networkx = pytest.importorskip("networkx")
    graphs = [as_graph(networkx.path_graph(n)) for n in (2, 3, 4)]
    element = elements(WeisfeilerLehman(1), graphs)
    best = candidate_scores(element, graphs).argmax(1)
    assert resolved(Candidates(), element, graphs).decode(element) == [graphs[i] for i in best]


# -- what an answer must not be ---------------------------------------------------------------------------------------
def test_sequences_that_transitions_rule_out_are_refused() -> None:
    element = elements(WeightedDegree(), ["aa"] * 3, q=2)
    for lengths in (None, 2):
        decoder = Sequence(lengths=lengths, transitions=lambda a, b: -np.inf if a == b else 0.0)
        with pytest.raises(ValueError, match=r"rule out every string of lengths? 2.* for input 0 and 1 more"):
            resolved(decoder, element).decode(element)
    later = Sequence(lengths=len, transitions=lambda a, b: -np.inf if a == b else 0.0)
    with pytest.raises(ValueError, match="every string of length 2 for input 1:"):
        resolved(later, element).decode(element, ["x", "xy"])
    assert resolved(later, element).decode(element, ["x", "y"]) == ["a", "a"]
    with pytest.raises(ValueError, match=r"transitions must give numbers .*; got None for 'a' after 'a'"):
        resolved(Sequence(transitions=lambda a, b: None), element)


@pytest.mark.parametrize("max_labels", [None, 1])
def test_label_sets_of_centred_linear_kernels(max_labels: int | None) -> None:
    Y = (np.random.default_rng(1).random((12, 3)) < [0.9, 0.5, 0.2]).astype(float)
    for kernel in (
        Linear().centered(),
        2.0 * Linear().centered(),
        (3.0 * Linear() + Constant(2.0)).centered(),
    ):
        element = elements(kernel, Y, q=8)
        found = resolved(LabelSet(max_labels=max_labels), element).decode(element)
        for i, row in enumerate(found):
            sets = [s for s in product((0.0, 1.0), repeat=3) if sum(s) <= (max_labels or 3)]
            best = max(score(element, i, list(s)) for s in sets)
            np.testing.assert_allclose(score(element, i, row.tolist()), best, atol=1e-9)


def test_label_sets_of_a_linear_kernel_with_another_metric() -> None:
    Y = np.random.default_rng(1).integers(0, 2, (12, 4)).astype(float)
    element = elements(Functional(Linear(), derivative=(0, 1)), Y, q=20)
    found = resolved(LabelSet(), element).decode(element)
    for i, row in enumerate(found):
        best = max(score(element, i, list(s)) for s in product((0.0, 1.0), repeat=4))
        np.testing.assert_allclose(score(element, i, row.tolist()), best, atol=1e-9)


def test_topk_begins_with_the_prediction_and_keeps_the_order_of_equals() -> None:
    candidates = ["ab", "ba", "ab", "bab", "ab", "a", "ba"] * 5
    element = elements(Spectrum(1), ["ab", "b", "aab"], q=4)
    decoder = resolved(Candidates(candidates), element)
    scores = candidate_scores(element, candidates).numpy()
    order = np.argsort(-scores, axis=1, kind="stable")
    for k in (1, 2, 3, 12, 20, 35):
        objects, values = decoder.topk(element, k)
        assert objects == [[candidates[i] for i in row[:k]] for row in order]
        np.testing.assert_array_equal(values, np.take_along_axis(scores, order[:, :k], 1))
        assert [row[0] for row in objects] == decoder.decode(element)


def test_direct_inverse_of_features_of_ones_own() -> None:
    words = ["a", "bbb", "bb"]
    kernel = Pullback(Linear(), lambda items: [[w.count("a"), w.count("b")] for w in items], domain="objects")
    element = Embedding(kernel, words, torch.tensor([[1.0, 0.0, 0.5], [0.0, 1.0, 0.0]], dtype=torch.float64))
    decoder = Direct(lambda sums: ["a" * round(a) + "b" * round(b) for a, b in sums])
    assert resolved(decoder, element).decode(element) == ["ab", "bbb"]


@pytest.mark.parametrize("measure", ["f1", "hamming"])
def test_a_threshold_is_chosen_with_the_cap_on_labels(measure: str) -> None:
    Y = (np.random.default_rng(2).random((15, 3)) < 0.6).astype(float)
    noise = elements(Linear(), Y, q=15, seed=2, scale=0.15)
    element = Embedding(noise.kernel, noise.anchors, noise.weights + 0.5 * torch.eye(15, dtype=torch.float64))
    decoder = LabelSet("auto", measure=measure, max_labels=1)
    chosen = resolved(decoder, element, Y).calibrate(element, Y)

    def quality(found: np.ndarray) -> float:
        return f1_score(Y, found, average="micro") if measure == "f1" else -hamming_loss(Y, found)

    values = (element.weights @ element.anchors).numpy()
    tried = [resolved(LabelSet(t, max_labels=1), element, Y).decode(element) for t in np.unique(values) + 1e-9]
    np.testing.assert_allclose(quality(chosen.decode(element)), max(map(quality, tried)))
    uncapped = best_threshold(values, Y, measure)
    assert quality(chosen.decode(element)) > quality(
        resolved(LabelSet(uncapped, max_labels=1), element, Y).decode(element)
    )


# -- far from the samples ---------------------------------------------------------------------------------------------
class _Told:
    """A support that says what it is told of left-out samples, and of new ones that they are what they are."""

    bounded = True

    def __init__(self, left_out):
        self._left_out = torch.tensor(left_out, dtype=torch.float64)
        self.asked = 0

    def __call__(self, X):
        self.asked += len(X)
        return torch.as_tensor(X)

    def at_least(self, X):
        return torch.as_tensor(X) / 2

    def left_out(self):
        return self._left_out

    def at_rest(self):
        return self


def test_left_out_samples_are_doubted_only_where_that_is_better():
    support = np.linspace(0.02, 1.0, 99)
    Y = torch.zeros(99, 2, dtype=torch.float64)
    Y[:, 0] = 1.0
    Y[::9] = torch.tensor([0.0, 1.0])
    right = np.where(Y.numpy() > 0, 0.9, 0.1)
    trusting = far_field(_Told(support), right, Y)
    np.testing.assert_allclose((trusting.reference, trusting.shares[0]), (0.01, 88 / 99))
    np.testing.assert_allclose(
        trusting(right[:3], np.array([0.0, 0.01, 1.0])), [[88 / 99, 11 / 99], right[1], right[2]]
    )
    wrong = np.where((support < 0.06)[:, None], right[:, ::-1], right)
    doubting = far_field(_Told(support), wrong, Y)
    assert doubting.reference == np.quantile(support, 0.05)


def test_classes_far_away_are_the_most_probable_ones_of_the_mixture():
    rng = np.random.default_rng(0)
    p, X = rng.dirichlet(np.ones(3), 400), rng.uniform(size=400)
    Y = torch.nn.functional.one_hot(torch.from_numpy(rng.choice(3, 400, p=[0.6, 0.3, 0.1])), 3)
    support = _Told(np.full(400, 1.6))  # all that is below 0.8 is far away
    far = far_field(support, p, Y)
    found = far.classes(p.argmax(1), p, torch.from_numpy(X))
    assert 0 < support.asked < 200  # where the bound is enough, the support is not asked for
    np.testing.assert_array_equal(found, far(p, X).argmax(1))
    assert np.any(found != p.argmax(1))


def test_the_far_field_has_the_least_cross_entropy_of_what_it_compares():
    rng = np.random.default_rng(0)
    support, Y = rng.uniform(size=60), torch.nn.functional.one_hot(torch.from_numpy(rng.integers(0, 3, 60)), 3)
    p, w = rng.dirichlet(np.ones(3), 60), torch.from_numpy(rng.uniform(0.5, 2, 60))
    found = far_field(_Told(support), p, Y, w)
    shares = np.average(Y.numpy(), axis=0, weights=w)
    losses = {}
    for reference in [support.min() / 2, *np.quantile(support, [0.01, 0.05])]:
        for power in (0.25, 1.0, 4.0):
            trust = np.minimum(1, support / reference)[:, None] ** power
            mixed = trust * p + (1 - trust) * shares
            losses[reference, power] = -np.average(np.log((mixed * Y.numpy()).sum(1)), weights=w)
    np.testing.assert_allclose((found.reference, found.power), min(losses, key=losses.get))
    np.testing.assert_allclose(found.shares, shares)
