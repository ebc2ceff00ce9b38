"""Global alignment and signature kernels against enumeration, invariances, and the contract."""

from __future__ import annotations

import itertools
import math
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from tiers import tiers

import naive
import representer.kernels.time_series
from representer import OperatorRidge
from representer.kernels import Constant, Delta, Gaussian, Kernel, Linear, Parallel
from representer.kernels.time_series import GlobalAlignment, Signature
from representer.testing import check_kernel

RNG = np.random.default_rng(0)
SERIES = [RNG.standard_normal((length, 2)) for length in (1, 2, 4, 5, 3, 5)]
OTHERS = [RNG.standard_normal((length, 2)) for length in (3, 1, 4)]
SINGLE = [RNG.standard_normal(length).tolist() for length in (4, 2, 5, 3)]


# -- global alignment -------------------------------------------------------------------------------------------------
def alignments(n: int, m: int) -> Iterator[list[tuple[int, int]]]:
    """All paths from (0, 0) to (n − 1, m − 1) by steps (1, 0), (0, 1) and (1, 1)."""
    if n == m == 1:
        yield [(0, 0)]
        return
    for a, b in ((1, 0), (0, 1), (1, 1)):
        if n > a and m > b:
            yield from ([*path, (n - 1, m - 1)] for path in alignments(n - a, m - b))


def global_alignment(lengthscale: float, triangular: int | None = None) -> naive.Pairwise:
    """The sum over all alignments of products of local kernels, written out."""

    def k(x: Any, y: Any) -> float:
        x, y = (np.asarray(series, dtype=float).reshape(len(series), -1) for series in (x, y))

        def local(i: int, j: int) -> float:
            g = math.exp(-float(((x[i] - y[j]) ** 2).sum()) / (2.0 * lengthscale**2))
            g *= 1.0 if triangular is None else max(0.0, 1.0 - abs(i - j) / triangular)
            return g / (2.0 - g)

        return sum(math.prod(local(i, j) for i, j in path) for path in alignments(len(x), len(y)))

    return k


def test_the_number_of_alignments_is_delannoy() -> None:
    assert [sum(1 for _ in alignments(n, n)) for n in (1, 2, 3, 4)] == [1, 3, 13, 63]


@pytest.mark.parametrize(
    ("lengthscale", "triangular"),
    tiers(
        itertools.product([0.3, 1.3], [None, 1, 2, 3, 9]),
        lambda case: case in ((0.3, None), (1.3, 1), (0.3, 2), (1.3, 9)),
    ),
)
def test_global_alignment_is_the_sum_over_all_alignments(triangular: int | None, lengthscale: float) -> None:
    oracle = global_alignment(lengthscale, triangular)
    kernel = GlobalAlignment(lengthscale, triangular, normalize=False)
    np.testing.assert_allclose(kernel(SERIES), naive.gram(oracle, SERIES), rtol=1e-10)
    np.testing.assert_allclose(kernel(SERIES, OTHERS), naive.gram(oracle, SERIES, OTHERS), rtol=1e-10)
    np.testing.assert_allclose(kernel.diag(SERIES), [oracle(x, x) for x in SERIES], rtol=1e-10)
    cosine = naive.normalized(oracle)
    kernel = GlobalAlignment(lengthscale, triangular)
    np.testing.assert_allclose(kernel(SERIES), naive.gram(cosine, SERIES), rtol=1e-10)
    np.testing.assert_allclose(kernel(SERIES, OTHERS), naive.gram(cosine, SERIES, OTHERS), rtol=1e-10)
    assert bool((kernel(SERIES).diagonal() == 1.0).all())


def test_lengths_beyond_the_band_have_similarity_zero() -> None:
    kernel = GlobalAlignment(1.0, triangular=3)
    gram = kernel([[0.0], [0.0] * 3, [0.0] * 4])
    assert gram[0, 1] > 0
    assert gram[0, 2] == 0
    assert kernel([[0.0]], [[0.0] * 9]).tolist() == [[0.0]]


@pytest.mark.parametrize(
    "kernel",
    [
        GlobalAlignment(1.3),
        GlobalAlignment("auto", triangular=3),
        GlobalAlignment(0.8, normalize=False),
        "auto" * Parallel(GlobalAlignment("median"), 2, block_size=4) + 0.5,
        GlobalAlignment(1.3) * Signature(2, scale=0.5),
    ],
    ids=repr,
)
def test_contract_of_global_alignment(kernel: Kernel) -> None:
    check_kernel(kernel, SERIES, OTHERS)
    check_kernel(kernel, SINGLE)


def test_long_and_distant_series_stay_in_range() -> None:
    long = [RNG.standard_normal(400).cumsum() for _ in range(3)] + [np.full(300, 1e4)]
    for lengthscale in (0.01, 1.0, 100.0):
        gram = GlobalAlignment(lengthscale)(long)
        assert bool(torch.isfinite(gram).all())
        assert float(torch.linalg.eigvalsh(gram)[0]) > -1e-12
    with pytest.raises(ValueError, match="Use normalize=True"):
        GlobalAlignment(1.0, normalize=False)([[0.0] * 500])
    scale = torch.tensor(0.01, dtype=torch.float64, requires_grad=True)
    GlobalAlignment(scale)(long).sum().backward()
    assert scale.grad is not None
    assert bool(torch.isfinite(scale.grad))


def test_the_bandwidth_is_cuturis() -> None:
    pooled = np.concatenate(SERIES)
    expected = naive.median_distance(pooled, 2) * math.sqrt(np.median([len(x) for x in SERIES]))
    assert GlobalAlignment().resolve(SERIES).lengthscale == pytest.approx(expected)


def test_blocks_of_pairs_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [RNG.standard_normal((int(length), 2)) for length in RNG.integers(1, 9, 30)]
    expected = GlobalAlignment(1.0)(many), GlobalAlignment(1.0)(many, many[:7])
    signature = Signature(2, Gaussian(1.0), scale=1.0)(many)
    monkeypatch.setattr(representer.kernels.time_series, "BLOCK_ENTRIES", 100)
    torch.testing.assert_close(GlobalAlignment(1.0)(many), expected[0])
    torch.testing.assert_close(Parallel(GlobalAlignment(1.0), 2, block_size=8)(many, many[:7]), expected[1])
    torch.testing.assert_close(Parallel(Signature(2, Gaussian(1.0), scale=1.0), 2, block_size=8)(many), signature)


# -- signatures -------------------------------------------------------------------------------------------------------
def signature_level(path: np.ndarray, order: int) -> np.ndarray:
    """∫_{t₁<…<t_m} dx ⊗ … ⊗ dx by nested loops: pieces i₁ ≤ … ≤ i_m, a run of r equal ones counting 1/r!."""
    steps = np.diff(path, axis=0)
    total = np.zeros((path.shape[1],) * order)
    for pieces in itertools.combinations_with_replacement(range(len(steps)), order):
        term = np.array(1.0)
        for i in pieces:
            term = np.multiply.outer(term, steps[i])
        total += term / math.prod(math.factorial(pieces.count(i)) for i in set(pieces))
    return total


def signature(depth: int, scale: float, *, time: bool, basepoint: bool) -> naive.Pairwise:
    def path(x: Any) -> np.ndarray:
        points = np.asarray(x, dtype=float).reshape(len(x), -1)
        if time:
            clock = [i / (len(points) - 1) if len(points) > 1 else 0.0 for i in range(len(points))]
            points = np.column_stack([clock, points])
        return scale * (np.vstack([np.zeros(points.shape[1]), points]) if basepoint else points)

    def k(x: Any, y: Any) -> float:
        levels = range(1, depth + 1)
        return 1.0 + sum(float((signature_level(path(x), m) * signature_level(path(y), m)).sum()) for m in levels)

    return k


@pytest.mark.parametrize(("time", "basepoint"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("inner", [None, Linear()])
def test_signature_is_its_iterated_integrals(depth: int, time: bool, basepoint: bool, inner: Kernel | None) -> None:
    oracle = signature(depth, 0.7, time=time, basepoint=basepoint)
    kernel = Signature(depth, inner, scale=0.7, time=time, basepoint=basepoint)
    np.testing.assert_allclose(kernel(SERIES), naive.gram(oracle, SERIES), rtol=1e-9)
    np.testing.assert_allclose(kernel(SERIES, OTHERS), naive.gram(oracle, SERIES, OTHERS), rtol=1e-9)
    np.testing.assert_allclose(kernel.diag(SERIES), [oracle(x, x) for x in SERIES], rtol=1e-9)


def test_paths_in_a_feature_space() -> None:
    """A polynomial kernel of points has explicit features: the paths can be mapped by hand."""

    def quadratic(x: np.ndarray) -> np.ndarray:
        return np.stack([np.outer(point, point).ravel() for point in x])

    square = Linear() * Linear()
    kernel = Signature(3, square, scale=0.5, time=False)
    mapped = Signature(3, scale=0.5, time=False)([quadratic(x) for x in SERIES])
    torch.testing.assert_close(kernel(SERIES), mapped, rtol=1e-9, atol=1e-9)


def test_many_channels_are_compared_pair_by_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    written = Signature(3, scale=0.5)(SERIES, OTHERS)
    monkeypatch.setattr(representer.kernels.time_series, "EXPLICIT_LIMIT", 5)
    torch.testing.assert_close(Signature(3, scale=0.5)(SERIES, OTHERS), written, rtol=1e-10, atol=1e-10)


def test_invariances_of_signatures() -> None:
    def refined(x: np.ndarray) -> np.ndarray:
        """More points on the same path, and some points twice."""
        if len(x) == 1:
            return np.repeat(x, 3, axis=0)
        middle = x[:-1] + RNG.uniform(0.0, 1.0, (len(x) - 1, 1)) * np.diff(x, axis=0)
        return np.concatenate([np.stack([x[:-1], x[:-1], middle], 1).reshape(-1, 2), x[-1:]])

    for inner in (None, Linear()):
        kernel = Signature(4, inner, scale=0.5, time=False)
        gram = kernel(SERIES)
        torch.testing.assert_close(kernel([refined(x) for x in SERIES]), gram, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(kernel([x + 7.0 for x in SERIES]), gram, rtol=1e-9, atol=1e-9)
    moved = Signature(4, scale=0.5, time=False, basepoint=True)
    assert not torch.allclose(moved([x + 7.0 for x in SERIES]), moved(SERIES))
    clocked = Signature(4, scale=0.5)
    assert not torch.allclose(clocked([refined(x) for x in SERIES]), clocked(SERIES))
    # A path and its reverse have inverse signatures; run through one after the other they cancel.
    there_and_back = [np.concatenate([x, x[::-1]]) for x in SERIES]
    torch.testing.assert_close(
        Signature(4, scale=0.5, time=False)(there_and_back), torch.ones(6, 6, dtype=torch.float64)
    )


def test_explicit_features_are_the_signature() -> None:
    kernel = Signature(3, scale=0.7)
    features = kernel.explicit_features(SERIES)
    assert features.matrix.shape == (6, 1 + 3 + 9 + 27) == (6, len(features.columns))
    np.testing.assert_allclose(features.matrix @ features.matrix.T, kernel(SERIES))
    rise = kernel.explicit_features([[[0.0, 0.0], [1.0, 2.0]]], features.columns).matrix[0]  # time runs from 0 to 1
    assert rise[features.columns[()]] == 1.0
    assert rise[features.columns[0, 2]] == pytest.approx(0.7**2 * 1.0 * 2.0 / 2)
    with pytest.raises(ValueError, match="columns are not those of series with 2 channels"):
        kernel.explicit_features([[0.0, 1.0]], features.columns)
    with pytest.raises(ValueError, match="kernel=None"):
        Signature(2, Gaussian(1.0), scale=1.0).explicit_features(SERIES)


def test_the_scale_gives_the_median_path_length_one() -> None:
    lengths = sorted(float(np.linalg.norm(np.diff(x, axis=0), axis=1).sum()) for x in SERIES)
    assert Signature(time=False).resolve(SERIES).scale == pytest.approx(1 / lengths[2])
    assert Signature(2, Linear(), time=False).resolve(SERIES).scale == pytest.approx(1 / lengths[2])
    assert Signature(time=False).resolve([[1.0, 1.0]]).scale == 1.0
    assert Signature(kernel=Gaussian(), time=False).resolve(SERIES).kernel == Gaussian().resolve(np.concatenate(SERIES))


@pytest.mark.parametrize(
    "kernel",
    [
        Signature(3, scale=0.6),
        Signature(2, Gaussian(1.1), scale=0.8),
        Parallel(Signature(3, "auto" * Gaussian("auto"), scale="auto", basepoint=True), 2, block_size=4),
        Signature(4, scale="auto", time=False).normalized(),
    ],
    ids=repr,
)
def test_contract_of_signatures(kernel: Kernel) -> None:
    check_kernel(kernel, SERIES, OTHERS)
    check_kernel(kernel, SINGLE)


# -- bad input --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kernel", [GlobalAlignment(1.0), Signature(2, scale=1.0)], ids=repr)
@pytest.mark.parametrize(
    ("series", "message"),
    [
        ([], "Found 0 time series"),
        ("abc", "takes a sequence of time series; got str"),
        (3, "takes a sequence of time series; got int"),
        ([[1.0], []], r"Series 1 has shape \(0,\)"),
        ([[1.0], [[[1.0]]]], r"Series 1 has shape \(1, 1, 1\)"),
        ([[1.0, 2.0], [0.0, np.nan]], "Series 1 contains NaN.*time 1"),
        ([[1.0], "abc"], "Series 1 is not an array of real numbers"),
        ([[1.0], ["2.0"]], "Series 1 is not an array of real numbers"),
        ([[1.0], [[1.0, 2.0]]], r"series 0 has 1, but series \[1\] have \[2\]"),
    ],
)
def test_bad_series(kernel: Kernel, series: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kernel(series)


@pytest.mark.parametrize(
    "kernel", [GlobalAlignment(1.0), Signature(2, scale=1.0), Signature(2, Linear(), scale=1.0)], ids=repr
)
def test_channels_of_both_must_agree(kernel: Kernel) -> None:
    with pytest.raises(ValueError, match="same channels"):
        kernel([[1.0, 2.0]], [[[1.0, 2.0], [3.0, 4.0]]])


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (GlobalAlignment(-1.0), "lengthscale of GlobalAlignment must be positive"),
        (GlobalAlignment([1.0, 2.0]), "must be one number"),
        (GlobalAlignment(1.0, triangular=0), "triangular of GlobalAlignment"),
        (GlobalAlignment(1.0, triangular=1.5), "triangular of GlobalAlignment"),  # type: ignore[arg-type]
        (Signature(0), "depth of Signature"),
        (Signature(2, Delta()), "kernel of Signature"),
        (Signature(2, scale=0.0), "scale of Signature must be positive"),
    ],
)
def test_bad_arguments(kernel: Kernel, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kernel(SERIES)


def test_arrays_are_series() -> None:
    rows = RNG.standard_normal((4, 6))
    torch.testing.assert_close(GlobalAlignment(1.0)(rows), GlobalAlignment(1.0)(list(rows[:, :, None])))
    torch.testing.assert_close(
        Signature(2, scale=1.0)(torch.from_numpy(rows)), Signature(2, scale=1.0)(rows[:, :, None])
    )


# -- learners ---------------------------------------------------------------------------------------------------------
def warped_waves(n: int) -> tuple[list[np.ndarray], np.ndarray]:
    rng = np.random.default_rng(1)
    size = rng.uniform(0.5, 2.0, n)
    lengths = rng.integers(12, 20, n)
    return [a * np.sin(np.linspace(0, 5, m) ** 1.2) for a, m in zip(size, lengths, strict=True)], size


# A signature that is scaled by the search has Gram matrices beside which a given alpha is small: jitter is told of.
@pytest.mark.filterwarnings("ignore::representer.notices.NumericalWarning")
@pytest.mark.parametrize(
    "kernel",
    [
        GlobalAlignment("auto"),
        Signature(3, scale="auto"),
        Signature(2, Gaussian("auto")) + Constant(1.0),
    ],
    ids=repr,
)
def test_learners_take_series(kernel: Kernel) -> None:
    series, y = warped_waves(36)
    model = OperatorRidge(kernel, alpha=1e-5, max_iter=10, tol=1e-3).fit(series[:24], y[:24])
    assert np.abs(model.predict(series[24:]) - y[24:]).max() < 0.2
    again = pickle.loads(pickle.dumps(clone(model).fit(series[:24], y[:24])))
    np.testing.assert_allclose(again.predict(series[24:]), model.predict(series[24:]), rtol=1e-6)


def identity(series: list[np.ndarray]) -> list[np.ndarray]:
    return series


def test_series_in_pipelines_and_grid_search() -> None:
    series, y = warped_waves(24)
    model = make_pipeline(FunctionTransformer(identity), OperatorRidge(GlobalAlignment(), alpha=1e-4))
    name = "operatorridge__kernel__"
    grid = {f"{name}lengthscale": [0.001, 3.0], f"{name}triangular": [None, 9]}
    search = GridSearchCV(model, grid, cv=3).fit(series, y)
    assert search.best_params_[f"{name}lengthscale"] == 3.0


@pytest.mark.parametrize("kernel", [GlobalAlignment(1.0), Signature(2, scale=1.0)], ids=repr)
def test_pairs_of_times_and_values_are_no_series(kernel: Kernel) -> None:
    pairs = [(np.arange(4.0), np.ones(4)), (np.arange(4.0), np.zeros(4))]
    with pytest.raises(ValueError, match="Series 0 is a tuple of two sequences"):
        kernel(pairs)
    assert kernel([[[0.0, 1.0], [1.0, 1.0]], (0.0, 1.0, 2.0)][:1]).shape == (1, 1)
    assert kernel([(0.0, 1.0), (1.0, 2.0)]).shape == (2, 2)  # two observations of one channel
