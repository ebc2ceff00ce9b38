"""Ridge systems of operator-valued kernels: equal to the block matrix, by the cheapest route."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import naive_operators as no
import numpy as np
import pytest
import torch
from operator_cases import CASES, TARGETS, A, B, Case, X
from tiers import tiers
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from representer import OperatorRidge
from representer.kernels import Gaussian, Linear, Matern, Precomputed
from representer.linalg import Cholesky
from representer.operators import (
    CurlFree,
    Decomposable,
    Dense,
    Diagonal,
    OperatorKernel,
    Separate,
    Transformable,
)
from representer.samples import rows as limits
from representer.systems import RidgeData, System, exact, factor_system
from representer.systems.exact import CoupledOutputs, IterativeOutputs, SeparateOutputs

DOUBLE = torch.float64
WEIGHTS = np.random.default_rng(1).uniform(0.3, 3.0, 8)
MISSING = np.array([[1, 1, 1], [0, 1, 1], [1, 0, 0], [1, 1, 1], [0, 0, 0], [1, 1, 0], [0, 1, 1], [1, 0, 1]], dtype=bool)


def tensor(values: Any) -> Tensor:
    return torch.tensor(np.asarray(values), dtype=DOUBLE)


def of(case: Case, weighted: bool, missing: bool) -> tuple[no.Ridge, np.ndarray]:
    """The definition of a case's system, and its targets with NaN where they are missing."""
    observed = MISSING[:, : case.p] if missing else np.ones((8, case.p), dtype=bool)
    noise = 0.4 / WEIGHTS if weighted else np.full(8, 0.4)
    return no.Ridge(case.block, noise, observed), np.where(observed, case.targets, np.nan)


def data_of(kernel: OperatorKernel, points: Any, noise: Any, Y: Any, **options: Any) -> tuple[RidgeData, float]:
    """The data of a system with this noise, and the alpha that belongs to it."""
    inverse = 1.0 / torch.as_tensor(noise)
    Y = torch.as_tensor(Y)
    weights = (inverse / inverse.mean()).to(Y)
    return RidgeData(kernel, points, Y, weights, **options), float(1.0 / inverse.sum())


ROUTES: dict[str, Callable[[RidgeData, float], System]] = {
    "auto": factor_system,
    "dense": CoupledOutputs,
    "iterative": IterativeOutputs,
}


def system_of(
    kernel: OperatorKernel,
    points: Any,
    noise: Any,
    Y: Any,
    *,
    solver: str = "auto",
    **options: Any,
) -> System:
    return ROUTES[solver](*data_of(kernel, points, noise, Y, **options))


def factored(case: Case, ridge: no.Ridge, Y: np.ndarray, solver: Any, **options: Any) -> System:
    observed = None if ridge.observed.all() else torch.from_numpy(ridge.observed)
    return system_of(case.kernel, case.data, ridge.noise, tensor(Y), observed=observed, solver=solver, **options)


@pytest.mark.parametrize("solver", ["auto", "dense", "iterative"])
@pytest.mark.parametrize(
    ("weighted", "missing"),
    tiers(
        {
            "uniform-complete": (False, False),
            "uniform-missing": (False, True),
            "weighted-complete": (True, False),
            "weighted-missing": (True, True),
        },
        lambda name: name in ("uniform-complete", "weighted-missing"),
    ),
)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equals_the_block_matrix(case: Case, weighted: bool, missing: bool, solver: Any) -> None:
    ridge, Y = of(case, weighted, missing)
    system = factored(case, ridge, Y, solver)
    exactly = {"rtol": 1e-8, "atol": 1e-9}
    C = system.coefficients()
    np.testing.assert_allclose(C, ridge.solve(Y), **exactly)
    assert not np.any(C.numpy()[~ridge.observed])
    assert system.intercept() is None and system.residual() < 1e-8
    variance = ridge.variance(case.cross, case.new_block.diagonal())
    few = slice(1 if solver == "iterative" else None)  # there, each point and output is a solve
    np.testing.assert_allclose(system.variance(case.new[few]), variance[few], **exactly)
    if solver == "iterative":
        for unavailable in (system.left_out, system.left_out_variance, system.leverage):
            with pytest.raises(ValueError, match=r"need the inverse of a \d+ × \d+ matrix.*cross_val_predict"):
                unavailable()
    else:
        np.testing.assert_allclose(system.left_out(), ridge.loo(Y), **exactly)
        np.testing.assert_allclose(system.left_out_variance(), ridge.loo_variance(), **exactly)


GROUPS = np.array([0, 1, 1, 2, 0, 3, 1, 2])


def constants_of_entries(case: Case, observed: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """1 ⊗ I at the observed entries of some samples."""
    return np.tile(np.eye(case.p), (len(samples), 1))[observed[samples].reshape(-1)]


def refit(
    case: Case, ridge: no.Ridge, Y: np.ndarray, kept: np.ndarray, intercept: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Predictions (8, p) of the fit to some samples, and the variance of f + b there, by a dense solve."""
    observed, p = ridge.observed, case.p
    entries = np.flatnonzero((observed & np.isin(np.arange(8), kept)[:, None]).reshape(-1))
    W = case.block[np.ix_(entries, entries)] + np.diag(np.repeat(ridge.noise, p)[entries])
    E = constants_of_entries(case, observed, kept)
    E = E[:, E.any(0)] if intercept else E[:, :0]
    own = np.tile(np.eye(p), (8, 1))[:, constants_of_entries(case, observed, kept).any(0)]
    own = own if intercept else own[:, :0]
    system = np.block([[W, E], [E.T, np.zeros((E.shape[1], E.shape[1]))]])
    right = np.concatenate([Y.reshape(-1)[entries], np.zeros(E.shape[1])])
    cross = np.hstack([case.block[:, entries], own])
    variance = case.block.diagonal() - np.einsum("ij,ji->i", cross, np.linalg.solve(system, cross.T))
    return (cross @ np.linalg.solve(system, right)).reshape(8, p), variance.reshape(8, p)


@pytest.mark.parametrize("solver", ["auto", pytest.param("dense", marks=pytest.mark.slow), "iterative"])
@pytest.mark.parametrize(
    ("missing", "grouped"),
    tiers(
        {
            "complete-alone": (False, False),
            "complete-grouped": (False, True),
            "missing-alone": (True, False),
            "missing-grouped": (True, True),
        },
        lambda name: name in ("complete-alone", "missing-grouped"),
    ),
)
@pytest.mark.parametrize("intercept", tiers({"plain": False, "intercept": True}, lambda name: name == "intercept"))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_intercepts_and_groups_equal_refits(
    case: Case, intercept: bool, missing: bool, grouped: bool, solver: Any
) -> None:
    ridge, Y = of(case, True, missing)
    groups = torch.from_numpy(GROUPS) if grouped else None
    system = factored(case, ridge, Y, solver, intercept=intercept, groups=groups)
    everything = np.arange(8)
    expected, variance = refit(case, ridge, Y, everything, intercept)
    fitted = case.kernel.apply(case.data, case.data, system.coefficients())
    if intercept:
        fitted = fitted + system.intercept()
    close = {"rtol": 1e-6, "atol": 1e-7}
    np.testing.assert_allclose(fitted, expected, **close)
    assert system.residual() < 1e-8
    few = slice(1 if solver == "iterative" else None)
    np.testing.assert_allclose(system.variance(case.data[few]), variance[few], **close)
    if solver == "iterative":
        return
    labels = GROUPS if grouped else everything
    rows = [refit(case, ridge, Y, np.flatnonzero(labels != labels[i]), intercept)[0][i] for i in range(8)]
    np.testing.assert_allclose(system.left_out(), rows, **close)
    hat = np.full((8, case.p), np.nan)  # ∂f(x_i)/∂y_i by a difference
    base = np.where(ridge.observed, np.nan_to_num(Y), 0.0)
    for i, a in zip(*np.nonzero(ridge.observed), strict=True):
        moved = base.copy()
        moved[i, a] += 1.0
        change = [refit(case, ridge, values, everything, intercept)[0] for values in (moved, base)]
        hat[i, a] = (change[0] - change[1])[i, a]
    np.testing.assert_allclose(system.leverage(), hat, **close)


def test_one_group_leaves_nothing_to_an_intercept() -> None:
    one = torch.zeros(8, dtype=torch.long)
    for kernel in (Decomposable(Gaussian(1.3)), CurlFree(1.0)):
        system = system_of(kernel, tensor(X), np.full(8, 0.4), tensor(TARGETS), groups=one, intercept=True)
        with pytest.raises(ValueError, match=r"in one group.*Give at least two groups"):
            system.left_out()


def test_an_output_that_is_never_observed_keeps_its_prior() -> None:
    observed = np.ones((8, 3), dtype=bool)
    observed[:, 1] = False
    for kernel in (
        Decomposable(Gaussian(1.3)),
        Decomposable(Linear()),
        Decomposable(Gaussian(1.3), Dense(A)),
    ):
        block = kernel.dense(tensor(X), None, 3).numpy()
        ridge = no.Ridge(block, np.full(8, 0.4), observed)
        seen = torch.from_numpy(observed)
        system = system_of(kernel, tensor(X), ridge.noise, tensor(TARGETS), observed=seen)
        np.testing.assert_allclose(system.coefficients(), ridge.solve(TARGETS), atol=1e-10)
        np.testing.assert_allclose(system.left_out(), ridge.loo(TARGETS), atol=1e-10)
        np.testing.assert_allclose(system.variance(tensor(X)), ridge.variance(block, block.diagonal()), atol=1e-10)


def test_what_is_known_already_is_used() -> None:
    """A spectrum, or a Gram matrix, in the place of the kernel."""
    kernel, noise, Y = Decomposable(Precomputed(), Dense(A)), 0.4 / WEIGHTS, tensor(TARGETS)
    gram = Gaussian(1.3)(X)
    nothing = torch.full((8, 8), torch.nan, dtype=DOUBLE)  # not read
    for intercept in (False, True):
        expected = system_of(Decomposable(Gaussian(1.3), Dense(A)), tensor(X), noise, Y, intercept=intercept)
        unread, alpha = data_of(kernel, nothing, noise, Y, intercept=intercept)
        vars(unread)["spectrum"] = data_of(kernel, gram, noise, Y, intercept=intercept)[0].spectrum  # as a path does
        for system in (
            system_of(kernel, gram.clone(), noise, Y, intercept=intercept),
            system_of(kernel, nothing, noise, Y, gram=gram, intercept=intercept),
            factor_system(unread, alpha),
        ):
            torch.testing.assert_close(system.coefficients(), expected.coefficients())
            torch.testing.assert_close(system.left_out_variance(), expected.left_out_variance())
    same = system_of(Decomposable(Precomputed()), nothing, noise, Y, gram=gram)
    fresh = system_of(Decomposable(Gaussian(1.3)), tensor(X), noise, Y)
    torch.testing.assert_close(same.coefficients(), fresh.coefficients())
    torch.testing.assert_close(gram, Gaussian(1.3)(X))  # not overwritten


def test_precomputed_with_missing_targets() -> None:
    gram, observed = Gaussian(1.3)(X), torch.from_numpy(MISSING)
    noise, Y = 0.4 / WEIGHTS, tensor(TARGETS)
    one = system_of(Decomposable(Precomputed()), gram, noise, Y, observed=observed)
    two = system_of(Decomposable(Gaussian(1.3)), tensor(X), noise, Y, observed=observed)
    torch.testing.assert_close(one.coefficients(), two.coefficients())
    torch.testing.assert_close(one.left_out(), two.left_out())


def test_a_rounded_operator_counts_as_semidefinite() -> None:
    """Entries with nine digits: the eigenvalue −1e-9 is rounding, for every route."""
    kernel = Decomposable(Gaussian(1.3), Dense([[1.0, 1.0 + 1e-9], [1.0 + 1e-9, 1.0]]))
    Y = tensor(TARGETS[:, :2])
    found = [system_of(kernel, tensor(X), 0.4 / WEIGHTS, Y, solver=s).coefficients() for s in ROUTES]
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-7)
    torch.testing.assert_close(found[1], found[2], rtol=0, atol=1e-7)


def test_single_precision_stays() -> None:
    for kernel in (Decomposable(Gaussian(1.3)), Decomposable(Linear(), Dense(A)), CurlFree(1.0)):
        data, noise = tensor(X).float(), np.full(8, 0.4)
        for intercept in (False, True):
            system = system_of(kernel, data, noise, tensor(TARGETS).float(), intercept=intercept)
            exactly = system_of(kernel, tensor(X), noise, tensor(TARGETS), intercept=intercept)
            C = system.coefficients()
            assert C.dtype == system.variance(data).dtype == system.left_out_variance().dtype == torch.float32
            torch.testing.assert_close(C.double(), exactly.coefficients(), rtol=1e-3, atol=1e-3)


# -- routes -----------------------------------------------------------------------------------------------------------
class Largest(TorchDispatchMode):
    """The most entries that a tensor made by torch had."""

    entries = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.entries = max([self.entries, *sizes])
        return result


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What was factored: the routine and the size, in order; not what a routine calls in turn."""
    made: list[tuple[str, int]] = []
    inside = False

    def record(room: Any, name: str, label: str) -> None:
        function = getattr(room, name)

        def counted(matrix: Any, *args: Any, **options: Any) -> Any:
            nonlocal inside
            if inside:
                return function(matrix, *args, **options)
            made.append((label, (matrix() if callable(matrix) else matrix).shape[-1]))
            inside = True
            try:
                return function(matrix, *args, **options)
            finally:
                inside = False

        monkeypatch.setattr(room, name, counted)

    record(exact, "factorize", "cholesky")
    record(exact, "eigh", "eigh")
    record(exact, "spectrum_of_factor", "thin")
    record(torch.linalg, "eigh", "eigh")
    return made


N, P = 20, 6
GENERATOR = np.random.default_rng(3)
DATA, OUTPUTS = tensor(GENERATOR.standard_normal((N, 2))), tensor(GENERATOR.standard_normal((N, P)))
NOISE = torch.full((N,), 0.3, dtype=DOUBLE)
ROOT = GENERATOR.standard_normal((P, P))
OPERATOR = ROOT @ ROOT.T
SIX = [Gaussian(0.5 + j) for j in range(P)]


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (Decomposable(Gaussian(1.0)), [("cholesky", N)]),
        (Decomposable(Gaussian(1.0), Diagonal([2.0] * P)), [("cholesky", N)]),
        (Decomposable(Gaussian(1.0), Diagonal([1.0, 2.0] * 3)), [("eigh", N)]),
        (Decomposable(Gaussian(1.0), Dense(OPERATOR)), [("eigh", P), ("eigh", N)]),
        (Separate(SIX), [("cholesky", N)] * P),
        (Separate([Gaussian(1.0)] * P), [("cholesky", N)] * P),
        (
            Decomposable(Gaussian(1.0), Dense(OPERATOR)) + Decomposable(Matern(1.5, 1.0)),
            [("eigh", P), ("eigh", P), *[("cholesky", N)] * P],
        ),
        (Decomposable(Gaussian(1.0)) + Decomposable(Matern(1.5, 1.0)), [("cholesky", N)]),
        (Decomposable(Linear()), [("thin", 2)]),
        (Decomposable(Linear(), Dense(OPERATOR)), [("eigh", P), ("thin", 2)]),
    ],
    ids=[
        "identity",
        "equal weights",
        "weights",
        "dense",
        "separate",
        "separate, equal",
        "commuting sum",
        "sum of identities",
        "linear",
        "linear and dense",
    ],
)
def test_structure_is_used(
    kernel: OperatorKernel, expected: list[tuple[str, int]], calls: list[tuple[str, int]]
) -> None:
    with Largest() as largest:
        system = system_of(kernel, DATA, NOISE, OUTPUTS)
        factorisations = list(calls)
        system.coefficients()
        system.left_out()
        system.variance(DATA[:3])
    assert isinstance(system, SeparateOutputs)
    assert factorisations == calls == expected  # factored once, whatever is asked afterwards
    assert largest.entries <= N * N
    kinds = {isinstance(part.inverse.solver, Cholesky) for part in system.parts}
    assert kinds == {("cholesky", N) in expected}


def test_the_largest_tensor_is_seen() -> None:
    with Largest() as largest:
        system_of(CurlFree(1.0), DATA, NOISE, OUTPUTS[:, :2])
    assert largest.entries >= (2 * N) ** 2


@pytest.mark.parametrize(
    "kernel",
    [
        Decomposable(Gaussian(1.0), Dense(OPERATOR)) + Decomposable(Matern(1.5, 1.0), Dense(np.diag(np.arange(6.0)))),
        Transformable(Gaussian(1.0), [GENERATOR.standard_normal((2, 2)) for _ in range(P)]),
    ],
    ids=["sum that does not commute", "transformable"],
)
def test_without_structure_size_decides(
    kernel: OperatorKernel, monkeypatch: pytest.MonkeyPatch, calls: list[tuple[str, int]]
) -> None:
    system = system_of(kernel, DATA, NOISE, OUTPUTS)
    assert isinstance(system, CoupledOutputs)
    assert calls.count(("cholesky", N * P)) == 1
    calls.clear()
    monkeypatch.setattr(limits, "DENSE_LIMIT", N * P - 1)
    above = system_of(kernel, DATA, NOISE, OUTPUTS)
    assert isinstance(above, IterativeOutputs)
    assert ("cholesky", N * P) not in [call for call in calls if "Decomposable" in repr(kernel)]
    torch.testing.assert_close(above.coefficients(), system.coefficients(), rtol=1e-7, atol=1e-8)


def test_the_iterative_system_of_a_sum_never_forms_the_block_matrix() -> None:
    kernel = Decomposable(Gaussian(1.0), Dense(OPERATOR)) + Decomposable(Matern(1.5, 1.0), Diagonal(np.arange(6.0)))
    with Largest() as largest:
        system_of(kernel, DATA, NOISE, OUTPUTS, solver="iterative").coefficients()
    assert largest.entries <= 2 * N * N  # two Gram matrices, side by side


def test_missing_targets_keep_uncoupled_outputs_apart() -> None:
    observed = torch.ones(N, P, dtype=torch.bool)
    observed[:5, 1] = observed[:5, 2] = observed[3:9, 4] = False
    system = system_of(Decomposable(Gaussian(1.0)), DATA, NOISE, OUTPUTS, observed=observed)
    assert isinstance(system, SeparateOutputs)
    assert sorted(len(part.rows) for part in system.parts) == [N - 6, N - 5, N]  # one for each pattern
    coupled = system_of(Decomposable(Gaussian(1.0), Dense(OPERATOR)), DATA, NOISE, OUTPUTS, observed=observed)
    assert isinstance(coupled, CoupledOutputs)
    everything = torch.ones(N, P, dtype=torch.bool)  # a mask that masks nothing costs nothing
    kernel = Decomposable(Gaussian(1.0), Dense(OPERATOR))
    assert isinstance(system_of(kernel, DATA, NOISE, OUTPUTS, observed=everything), SeparateOutputs)


# -- conjugate gradients ----------------------------------------------------------------------------------------------
def applications(kernel: OperatorKernel, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often a solve applies the kernel."""
    made, noise = 0, 1e-3
    targets = OUTPUTS[:, : kernel.n_outputs(DATA)].contiguous()
    apply = type(kernel).apply

    def counted(self: Any, *args: Any) -> Tensor:
        nonlocal made
        made += self is kernel
        return apply(self, *args)

    system = system_of(kernel, DATA, np.full(N, noise), targets, solver="iterative")
    with monkeypatch.context() as patch:
        patch.setattr(type(kernel), "apply", counted)
        C = system.coefficients()
    image = kernel.dense(DATA, None, targets.shape[1]) @ C.reshape(-1) + noise * C.reshape(-1)
    assert (image - targets.reshape(-1)).norm() <= 1e-9 * targets.norm()
    return made


NEARBY = OPERATOR + 0.2 * np.diag(np.arange(6.0))


@pytest.mark.parametrize(
    ("kernel", "gain"),
    [
        (Decomposable(Matern(1.5, 1.0), Dense(OPERATOR)), 100),
        (Decomposable(Matern(1.5, 1.0), Dense(OPERATOR)) + Decomposable(Matern(1.5, 1.2), Dense(NEARBY)), 20),
        (
            Decomposable(Matern(1.5, 1.0), Dense(OPERATOR))
            + (Decomposable(Matern(1.5, 1.2), Dense(NEARBY)) + Decomposable(Linear())),
            8,
        ),
        (CurlFree(1.0) + CurlFree(1.2), 40),  # of full rank here: the pivoted Cholesky factor is exact
        (Separate(SIX) + Decomposable(Gaussian(2.0), Dense(OPERATOR)), 100),
    ],
    ids=["one product", "two products", "nested", "fields", "separate"],
)
def test_preconditioners_save_iterations(kernel: OperatorKernel, gain: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with_it = applications(kernel, monkeypatch)
    monkeypatch.setattr(exact, "_preconditioner", lambda *_: lambda residual: residual)
    without = applications(kernel, monkeypatch)
    assert gain * with_it <= without


def test_sums_of_products_in_sums_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def unwanted(*args: Any, **options: Any) -> Any:
        raise AssertionError("sums of Kronecker products have a preconditioner of their own")

    monkeypatch.setattr(exact, "pivoted_cholesky", unwanted)
    one, two = Decomposable(Gaussian(1.0), Dense(OPERATOR)), Decomposable(Linear(), Diagonal(np.arange(6.0)))
    assert applications(one + (two + (one + two)), monkeypatch) > 1
    with pytest.raises(AssertionError, match="of their own"):
        applications(one + Separate(SIX), monkeypatch)


def test_a_preconditioner_of_low_rank_still_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Separate(SIX) + Decomposable(Gaussian(2.0), Dense(OPERATOR))
    monkeypatch.setattr(exact, "PRECONDITIONER_RANK", 30)
    with_it = applications(kernel, monkeypatch)
    monkeypatch.setattr(exact, "_preconditioner", lambda *_: lambda residual: residual)
    assert 2 * with_it <= applications(kernel, monkeypatch)


# -- bad input --------------------------------------------------------------------------------------------------------
def test_bad_input() -> None:
    for kernel in (CurlFree(1.0), Separate([Linear()] * 2), Transformable(Linear(), [np.eye(2)] * 2)):
        with pytest.raises(ValueError, match="has 2 outputs on these inputs, but there are 3 targets"):
            system_of(kernel, DATA, NOISE, OUTPUTS[:, :3])
    with pytest.raises(ValueError, match="but there are 3 outputs"):
        system_of(Decomposable(Linear(), Diagonal([1.0, 2.0])), DATA, NOISE, OUTPUTS[:, :3])
    with pytest.raises(ValueError, match="The Gram matrix plus n·alpha has NaN or infinite entries"):
        nothing = torch.full((3, 4), torch.nan, dtype=DOUBLE)
        system_of(Decomposable(Linear()), nothing, NOISE[:3], OUTPUTS[:3, :1])


def test_matrices_that_are_not_positive_definite_are_named() -> None:
    gram, Y = -torch.eye(4, dtype=DOUBLE), OUTPUTS[:4, :3]
    with pytest.raises(ValueError, match=r"The Gram matrix plus n·alpha \(4 × 4\) is not positive definite"):
        system_of(Decomposable(Precomputed()), gram.clone(), NOISE[:4], Y)
    with pytest.raises(ValueError, match=r"The Gram matrix has an eigenvalue of -1"):
        system_of(Decomposable(Precomputed(), Dense(A)), gram.clone(), NOISE[:4], Y)
    with pytest.raises(ValueError, match=r"The block Gram matrix plus n·alpha \(12 × 12\) is not positive"):
        system_of(Decomposable(Precomputed(), Dense(B)), gram.clone(), NOISE[:4], Y, solver="dense")


def test_deviations_of_a_line_whose_squares_are_out_of_range(rng):
    X, Q = rng.normal(size=(20, 2)), rng.normal(size=(5, 2))
    y, alpha = X[:, 0] + 0.1 * rng.normal(size=20), 1e-2
    usual = OperatorRidge("linear", alpha=alpha).fit(X, y).predict(Q, return_std=True)[1]
    large = OperatorRidge("linear", alpha=alpha).fit(1e163 * X, y).predict(1e163 * Q, return_std=True)[1]
    assert np.isfinite(large).all()
    np.testing.assert_allclose(large, usual, rtol=0.1)  # the noise is another: alpha is nothing beside such squares
