"""Bags against double loops over their points; weights, order, duplicates; learning; what is no bag."""

from __future__ import annotations

import itertools
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import naive
from representer import OperatorRidge
from representer.kernels import (
    Delta,
    Gaussian,
    Linear,
    Matern,
    Polynomial,
    Precomputed,
    RationalQuadratic,
    Tanimoto,
    bags,
)
from representer.kernels.bags import Match, MeanMap
from representer.linalg import IndefiniteGramWarning
from representer.testing import check_kernel

RNG = np.random.default_rng(0)
BAGS: list[Any] = [RNG.standard_normal((m, 2)) for m in (3, 1, 4, 2, 6)]
WEIGHTED = [*BAGS[:2], (BAGS[2], RNG.random(4)), (BAGS[3], [0, 3]), BAGS[4]]
WORDS = [["a", "b"], ["b"], ["c", "a", "a"], (["a", "b", "c"], [1, 2, 5])]


# -- definitions ------------------------------------------------------------------------------------------------------
def atoms(bag: Any) -> list[tuple[float, Any]]:
    """The points of a bag, each with its share; those without one are not in it."""
    points, weights = bag if isinstance(bag, tuple) else (bag, [1] * len(bag))
    return [(w / sum(weights), x) for w, x in zip(weights, points, strict=True) if w]


def mean_map(k: naive.Pairwise) -> naive.Pairwise:
    return lambda P, Q: sum(p * q * k(x, y) for p, x in atoms(P) for q, y in atoms(Q))


def radial(k: naive.Pairwise, profile: Callable[[float], float]) -> naive.Pairwise:
    """A function of the maximum mean discrepancy."""
    m = mean_map(k)
    return lambda P, Q: profile(math.sqrt(max(0.0, m(P, P) + m(Q, Q) - 2.0 * m(P, Q))))


def match(k: naive.Pairwise) -> naive.Pairwise:
    def of(P: Any, Q: Any) -> float:
        return sum(p * max(k(x, y) for _, y in atoms(Q)) for p, x in atoms(P))

    return lambda P, Q: 0.5 * of(P, Q) + 0.5 * of(Q, P)


gauss = naive.gaussian(1.3)
CASES = [
    (MeanMap(Gaussian(1.3)), mean_map(gauss), BAGS),
    (MeanMap(Gaussian(1.3)), mean_map(gauss), WEIGHTED),
    (MeanMap(Linear() + 1.0), mean_map(naive.add(naive.linear(), naive.constant(1.0))), WEIGHTED),
    (MeanMap(Delta()), mean_map(naive.delta()), WORDS),
    (
        MeanMap(Gaussian(1.3), Gaussian(0.7)),
        radial(gauss, lambda r: math.exp(-(r**2) / (2 * 0.49))),
        WEIGHTED,
    ),
    (MeanMap(Delta(), outer=Gaussian(0.7)), radial(naive.delta(), lambda r: math.exp(-(r**2) / 0.98)), WORDS),
    (
        MeanMap(Polynomial(2), RationalQuadratic(3.0, 0.5)),
        radial(naive.polynomial(2, 1.0, 1.0), lambda r: (1 + r**2 / 9.0) ** -0.5),
        WEIGHTED,
    ),
    (
        MeanMap(Gaussian(1.3), Matern(1.5, 0.7)),
        radial(gauss, lambda r: naive.matern(1.5, 0.7)([r], [0.0])),
        WEIGHTED,
    ),
    (MeanMap(MeanMap(Gaussian(1.3))), mean_map(mean_map(gauss)), [BAGS[:2], BAGS[2:], [WEIGHTED[2]]]),
    (Match(Gaussian(1.3)), match(gauss), WEIGHTED),
    # Indefinite from here on.
    (Match(Delta()), match(naive.delta()), WORDS),
    (Match(Linear()), match(naive.linear()), BAGS),
]
every_case = pytest.mark.parametrize(("kernel", "oracle", "data"), CASES, ids=[repr(case[0]) for case in CASES])


@every_case
@pytest.mark.parametrize("points", [10**6, 5, 1])
def test_definition(
    kernel: Any, oracle: naive.Pairwise, data: list[Any], points: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bags, "BLOCK_POINTS", points)  # in one block, in several, bag by bag
    monkeypatch.setattr(bags, "DIAGONAL_POINTS", points)
    close = {"rtol": 1e-7, "atol": 1e-10} if isinstance(getattr(kernel, "outer", None), Matern) else {"rtol": 1e-10}
    np.testing.assert_allclose(kernel(data), naive.gram(oracle, data), **close)
    np.testing.assert_allclose(kernel(data, data[1:3]), naive.gram(oracle, data, data[1:3]), **close)
    np.testing.assert_allclose(kernel.diag(data), [oracle(b, b) for b in data], **close)


@pytest.mark.parametrize(("kernel", "data"), [(kernel, data) for kernel, _, data in CASES[:-2]], ids=repr)
def test_contract(kernel: Any, data: list[Any]) -> None:
    check_kernel(kernel, data)  # on these, Match of Gaussians happens to be positive semi-definite


@pytest.mark.parametrize(
    "kernel",
    [
        MeanMap(Gaussian()),
        MeanMap(Gaussian("ard"), Gaussian("auto")),
        "auto" * MeanMap(Gaussian("auto"), "rbf") + MeanMap(Polynomial(2, "auto", "auto")),
        MeanMap(Gaussian("auto"), RationalQuadratic("auto", "auto")).centered(),
        MeanMap(Gaussian("auto")).normalized() * Match(Gaussian("auto")),
    ],
    ids=lambda kernel: " ".join(repr(kernel).split())[:60],
)
@pytest.mark.parametrize("points", [10**6, 5])
def test_contract_with_words(kernel: Any, points: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bags, "BLOCK_POINTS", points)
    check_kernel(kernel, WEIGHTED, BAGS[:2])


def test_what_the_data_decide() -> None:
    resolved = MeanMap(Gaussian(), "rbf").resolve(WEIGHTED)
    points = np.concatenate([*BAGS[:3], BAGS[3][1:], BAGS[4]])  # one has weight 0
    assert resolved.kernel == Gaussian().resolve(points)
    distance = radial(naive.gaussian(resolved.kernel.lengthscale), lambda r: r)
    distances = [distance(P, Q) for P, Q in itertools.combinations(WEIGHTED, 2)]
    assert resolved.outer.lengthscale == pytest.approx(naive.lower_median(distances))
    assert MeanMap(Gaussian("auto"), Gaussian("auto")).free() == ["kernel__lengthscale", "outer__lengthscale"]
    many = [RNG.standard_normal((2, 1)) for _ in range(bags.MEDIAN_BAGS + 50)]
    index = np.linspace(0, len(many) - 1, bags.MEDIAN_BAGS).round().astype(int)
    kernel = MeanMap(Gaussian(1.0), "rbf")
    assert kernel.resolve(many) == kernel.resolve([many[i] for i in index])  # a large sample is thinned


# -- invariances ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "kernel", [MeanMap(Gaussian(1.3)), MeanMap(Gaussian(1.3), Gaussian(1.0)), Match(Gaussian(1.3))]
)
def test_what_does_not_matter(kernel: Any) -> None:
    expected = kernel(WEIGHTED)
    order = [RNG.permutation(len(bag)) for bag in BAGS]
    shuffled = [
        (bag[0][i], np.asarray(bag[1])[i]) if isinstance(bag, tuple) else bag[i]
        for bag, i in zip(WEIGHTED, order, strict=True)
    ]
    torch.testing.assert_close(kernel(shuffled), expected)
    scaled = [
        (bag[0], 7.0 * np.asarray(bag[1])) if isinstance(bag, tuple) else (bag, [2] * len(bag)) for bag in WEIGHTED
    ]
    torch.testing.assert_close(kernel(scaled), expected)
    doubled = [np.repeat(bag, 2, axis=0) for bag in BAGS]
    torch.testing.assert_close(kernel(doubled), kernel(BAGS))
    merged = [([*bag[:1], *bag], [1, 1, *[2] * (len(bag) - 1)]) for bag in BAGS]  # a point in two halves
    torch.testing.assert_close(kernel(merged), kernel(BAGS))
    torch.testing.assert_close(kernel([*BAGS[:3], (BAGS[3], [0, 3])])[3], kernel([*BAGS[:3], BAGS[3][1:]])[3])


def test_bags_in_any_form() -> None:
    kernel = MeanMap(Gaussian(1.3))
    expected = kernel(BAGS)
    for form in (
        lambda b: b.tolist(),
        torch.from_numpy,
        lambda b: [list(row) for row in b],
        np.asfortranarray,
    ):
        torch.testing.assert_close(kernel([form(bag) for bag in BAGS]), expected)
    regular = RNG.standard_normal((4, 3, 2))
    torch.testing.assert_close(kernel(regular), kernel(list(regular)))
    ragged = np.empty(len(BAGS), dtype=object)
    ragged[:] = BAGS
    torch.testing.assert_close(kernel(ragged), expected)
    torch.testing.assert_close(kernel(tuple(BAGS)), expected)
    assert kernel([torch.from_numpy(bag).float() for bag in BAGS]).dtype == torch.float32


def test_bags_of_packed_fingerprints() -> None:
    bits = [(RNG.random((m, 16)) < 0.4).astype(int) for m in (2, 3, 1)]
    packed = [np.packbits(bag, axis=1) for bag in bits]
    torch.testing.assert_close(MeanMap(Tanimoto(packed=True))(packed), MeanMap(Tanimoto())(bits))


def test_gradients_reach_the_points() -> None:
    points = torch.from_numpy(BAGS[0]).requires_grad_()
    MeanMap(Gaussian(1.3), Gaussian(1.0))([points, *map(torch.from_numpy, BAGS[1:])]).sum().backward()
    assert points.grad is not None
    assert bool((points.grad != 0).all())


# -- learners ---------------------------------------------------------------------------------------------------------
def samples(n: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Samples of normal distributions, and their means."""
    rng = np.random.default_rng(n)
    means = rng.uniform(-2, 2, n)
    return [m + rng.standard_normal((rng.integers(5, 30), 1)) for m in means], means


def test_ridge_learns_the_mean_of_a_sample() -> None:
    train, y = samples(60)
    test, truth = samples(30)
    baseline = np.mean((truth - y.mean()) ** 2)
    for kernel in (MeanMap(Gaussian()), MeanMap(Gaussian("auto"), Gaussian("auto"))):
        model = OperatorRidge(kernel).fit(train, y)
        assert np.mean((model.predict(test) - truth) ** 2) < 0.15 * baseline
        copied = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(copied.predict(test[:2]), model.predict(test[:2]))
    assert model.kernel_.free() == []


def test_distances_that_are_lost_in_rounding_are_refused() -> None:
    train, y = samples(20)
    with pytest.raises(ValueError, match="lost in rounding"):
        OperatorRidge(MeanMap(Gaussian(1e7), Gaussian(1e-6)), alpha=1e-3).fit(train, y)
    assert OperatorRidge(MeanMap(Gaussian(1e3), Gaussian(1e-3)), alpha=1e-3).fit(train, y).score(train, y) > 0.5


def test_grid_search_over_the_lengthscale_of_the_points() -> None:
    train, y = samples(30)
    search = GridSearchCV(OperatorRidge(MeanMap(Gaussian())), {"kernel__kernel__lengthscale": [0.1, 1.0]}, cv=3)
    assert np.isfinite(search.fit(train, y).cv_results_["mean_test_score"]).all()
    assert clone(search.best_estimator_).kernel == search.best_estimator_.kernel


def test_match_may_be_indefinite_and_is_repaired() -> None:
    groups = [["a", "b"], ["a", "c"], ["b", "c"], ["a"], ["b"], ["c"], ["a", "b", "c"]] * 3
    gram = Match(Delta())(groups)
    assert torch.linalg.eigvalsh(gram)[0] < -1e-3
    with pytest.warns(IndefiniteGramWarning, match="negative eigenvalues"):
        model = OperatorRidge(Match(Delta()), alpha=0.1).fit(groups, np.arange(21.0))
    assert np.isfinite(model.predict(groups[:4])).all()


# -- bad input --------------------------------------------------------------------------------------------------------
POINTS = [[0.0, 1.0]]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "Found 0 bags"),
        ([POINTS, []], "Bag 1 is empty: a bag needs at least one point"),
        ([POINTS, np.zeros((0, 2))], "Bag 1 is empty"),
        ([POINTS, ([], [])], "Bag 1 is empty"),
        ([POINTS, "points"], "Bag 1 must be an array or a list of points; got str"),
        ([POINTS, 3.0], "Bag 1 must be an array or a list of points; got float"),
        (
            [POINTS, (POINTS, [1.0], 2)],
            r"Bag 1 is a tuple of 3: give a list of points, or \(points, weights\)",
        ),
        ([POINTS, [0.0, 1.0]], "Bag 1: Expected a 2D array"),
        ([POINTS, [["a", "b"]]], "Bag 1: This kernel takes real vectors"),
        ([POINTS, [[0.0, np.nan]]], "Bag 1: The data contain NaN.*row 0, column 1"),
        (
            [POINTS, np.zeros((2, 2, 2))],
            r"Bag 1 must be an array \(n_points, n_features\); got shape \(2, 2, 2\)",
        ),
        ([POINTS, [[0.0]]], "bag 1 have 1 features, those of bag 0 have 2"),
        ([POINTS, (POINTS, [1.0, 2.0])], r"Bag 1 has 1 points, but weights of shape \(2,\)"),
        ([POINTS, (POINTS, 1.0)], r"weights of shape \(\)"),
        ([POINTS, (POINTS, [-1.0])], "weights of bag 1 must be finite and not negative"),
        ([POINTS, (POINTS, [np.nan])], "weights of bag 1"),
        ([POINTS, (POINTS, [0.0])], "not all zero"),
    ],
)
def test_what_is_no_bag(data: Any, message: str) -> None:
    for kernel in (MeanMap(Gaussian(1.0)), Match(Gaussian(1.0))):
        for call in (kernel, kernel.diag, kernel.resolve):
            with pytest.raises(ValueError, match=message):
                call(data)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (MeanMap("rbf"), "kernel of MeanMap must be a kernel of points; got 'rbf'"),
        (Match(Precomputed()), "kernel of Match must be a kernel of points"),
        (MeanMap(Gaussian(1.0), Polynomial(2)), "outer of MeanMap must be 'linear' or a radial kernel"),
        (MeanMap(Gaussian(1.0), "nonsense"), "not a kernel"),
        (MeanMap(Gaussian(1.0), Gaussian("ard")), "must have one lengthscale"),
        (MeanMap(Gaussian(1.0), Gaussian([1.0, 2.0])), "must have one lengthscale"),
        (MeanMap(Gaussian(-1.0)), "lengthscale of Gaussian must be positive"),
        (MeanMap(Gaussian(1.0), Gaussian(0.0)), "lengthscale of Gaussian must be positive"),
    ],
)
def test_bad_arguments(kernel: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kernel(BAGS)


def test_new_bags_have_the_same_features() -> None:
    with pytest.raises(ValueError, match="features"):
        MeanMap(Gaussian(1.0))(BAGS, [np.zeros((2, 3))])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (5, "MeanMap takes a sequence of bags; got int"),
        (sparse.eye_array(3), "MeanMap takes a sequence of bags; got dia_array"),
        ([np.eye(2), sparse.csr_array(np.eye(2))], "Bag 1 is a sparse matrix"),
        ([(np.eye(2), ["a", "b"])], "The weights of bag 0 must be numbers"),
        ([np.eye(2), {"a": 1}], "Bag 1 must be an array or a list of points; got dict"),
    ],
)
def test_what_is_no_bag_is_named(data: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MeanMap(Gaussian(1.0))(data)
