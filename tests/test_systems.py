"""Ridge systems of operator-valued kernels: equal to the block matrix, by the cheapest route."""

from __future__ import annotations

from typing import Any

import naive_operators as no
import numpy as np
import pytest
import torch
from operator_cases import CASES, TARGETS, A, B, Case, X
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from representer.kernels import Gaussian, Linear, Matern, Precomputed
from representer.linalg import eigh
from representer.operators import (
    CurlFree,
    Decomposable,
    Dense,
    Diagonal,
    OperatorKernel,
    Separate,
    Transformable,
)
from representer.systems import System, factor_system
from representer.systems import block as block_systems
from representer.systems import diagonal as systems
from representer.systems.block import DenseSystem, IterativeSystem
from representer.systems.diagonal import DiagonalSystem, ScalarCholesky, ScalarSpectral, relative_weights

DOUBLE = torch.float64
WEIGHTS = np.random.default_rng(1).uniform(0.3, 3.0, 8)
MISSING = np.array(
    [[1, 1, 1], [0, 1, 1], [1, 0, 0], [1, 1, 1], [0, 0, 0], [1, 1, 0], [0, 1, 1], [1, 0, 1]], dtype=bool
)


def tensor(values: Any) -> Tensor:
    return torch.tensor(np.asarray(values), dtype=DOUBLE)


def of(case: Case, weighted: bool, missing: bool) -> tuple[no.Ridge, np.ndarray]:
    """The definition of a case's system, and its targets with NaN where they are missing."""
    observed = MISSING[:, : case.p] if missing else np.ones((8, case.p), dtype=bool)
    noise = 0.4 / WEIGHTS if weighted else np.full(8, 0.4)
    return no.Ridge(case.block, noise, observed), np.where(observed, case.targets, np.nan)


def factored(case: Case, ridge: no.Ridge, solver: Any) -> System:
    observed = None if ridge.observed.all() else torch.from_numpy(ridge.observed)
    return factor_system(
        case.kernel, case.data, tensor(ridge.noise), case.p, observed=observed, solver=solver
    )


@pytest.mark.parametrize("solver", ["auto", "dense", "iterative"])
@pytest.mark.parametrize("missing", [False, True], ids=["complete", "missing"])
@pytest.mark.parametrize("weighted", [False, True], ids=["uniform", "weighted"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equals_the_block_matrix(case: Case, weighted: bool, missing: bool, solver: Any) -> None:
    ridge, Y = of(case, weighted, missing)
    system = factored(case, ridge, solver)
    exact = {"rtol": 1e-8, "atol": 1e-9}
    C = system.solve(tensor(Y))
    np.testing.assert_allclose(C, ridge.solve(Y), **exact)
    assert not np.any(C.numpy()[~ridge.observed])
    variance = ridge.variance(case.cross, case.new_block.diagonal())
    few = slice(1 if solver == "iterative" else None)  # there, each point and output is a solve
    np.testing.assert_allclose(system.variance(case.new[few]), variance[few], **exact)
    if solver == "iterative":
        for unavailable in (lambda: system.loo_predictions(tensor(Y), C), system.loo_variance):
            with pytest.raises(
                ValueError, match=r"need the inverse of a \d+ × \d+ matrix.*cross_val_predict"
            ):
                unavailable()
    else:
        np.testing.assert_allclose(system.loo_predictions(tensor(Y), C), ridge.loo(Y), **exact)
        np.testing.assert_allclose(system.loo_variance(), ridge.loo_variance(), **exact)


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
        system = factor_system(kernel, tensor(X), tensor(ridge.noise), 3, observed=torch.from_numpy(observed))
        C = system.solve(tensor(TARGETS))
        np.testing.assert_allclose(C, ridge.solve(TARGETS), atol=1e-10)
        np.testing.assert_allclose(system.loo_predictions(tensor(TARGETS), C), ridge.loo(TARGETS), atol=1e-10)
        np.testing.assert_allclose(
            system.variance(tensor(X)), ridge.variance(block, block.diagonal()), atol=1e-10
        )


def test_what_is_known_already_is_used() -> None:
    """A spectrum, or a Gram matrix, in the place of the kernel."""
    kernel, noise = Decomposable(Precomputed(), Dense(A)), tensor(0.4 / WEIGHTS)
    gram = Gaussian(1.3)(X)
    expected = factor_system(Decomposable(Gaussian(1.3), Dense(A)), tensor(X), noise, 3)
    _, root = relative_weights(noise)
    spectrum = eigh(gram * root[:, None] * root)
    nothing = torch.full((8, 8), torch.nan, dtype=DOUBLE)  # not read
    for known in (
        factor_system(kernel, gram, noise, 3),
        factor_system(kernel, nothing, noise, 3, gram=gram),
        factor_system(kernel, nothing, noise, 3, spectrum=spectrum),
        factor_system(Decomposable(Precomputed(), Dense(A)), nothing, noise, 3, gram=gram, spectrum=spectrum),
    ):
        torch.testing.assert_close(known.solve(tensor(TARGETS)), expected.solve(tensor(TARGETS)))
        torch.testing.assert_close(known.loo_variance(), expected.loo_variance())
    same = factor_system(Decomposable(Precomputed()), nothing, noise, 3, gram=gram)
    fresh = factor_system(Decomposable(Gaussian(1.3)), tensor(X), noise, 3)
    torch.testing.assert_close(same.solve(tensor(TARGETS)), fresh.solve(tensor(TARGETS)))
    torch.testing.assert_close(gram, Gaussian(1.3)(X))  # not overwritten


def test_precomputed_with_missing_targets() -> None:
    gram, observed = Gaussian(1.3)(X), torch.from_numpy(MISSING)
    noise = tensor(0.4 / WEIGHTS)
    one = factor_system(Decomposable(Precomputed()), gram, noise, 3, observed=observed)
    two = factor_system(Decomposable(Gaussian(1.3)), tensor(X), noise, 3, observed=observed)
    C = one.solve(tensor(TARGETS))
    torch.testing.assert_close(C, two.solve(tensor(TARGETS)))
    torch.testing.assert_close(
        one.loo_predictions(tensor(TARGETS), C), two.loo_predictions(tensor(TARGETS), C)
    )


def test_a_rounded_operator_counts_as_semidefinite() -> None:
    """Entries with nine digits: the eigenvalue −1e-9 is rounding, for every route."""
    kernel = Decomposable(Gaussian(1.3), Dense([[1.0, 1.0 + 1e-9], [1.0 + 1e-9, 1.0]]))
    Y = tensor(TARGETS[:, :2])
    routes: list[Any] = ["auto", "dense", "iterative"]
    found = [factor_system(kernel, tensor(X), tensor(0.4 / WEIGHTS), 2, solver=s).solve(Y) for s in routes]
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-7)
    torch.testing.assert_close(found[1], found[2], rtol=0, atol=1e-7)


def test_single_precision_stays() -> None:
    for kernel in (Decomposable(Gaussian(1.3)), Decomposable(Linear(), Dense(A)), CurlFree(1.0)):
        data, noise = tensor(X).float(), torch.full((8,), 0.4)
        system = factor_system(kernel, data, noise, 3)
        exact = factor_system(kernel, tensor(X), noise.double(), 3)
        C = system.solve(tensor(TARGETS).float())
        assert C.dtype == system.variance(data).dtype == system.loo_variance().dtype == torch.float32
        torch.testing.assert_close(C.double(), exact.solve(tensor(TARGETS)), rtol=1e-3, atol=1e-3)


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

    record(systems, "factorize", "cholesky")
    record(systems, "eigh", "eigh")
    record(systems, "spectrum_of_factor", "thin")
    record(block_systems, "factorize", "cholesky")
    record(block_systems, "eigh", "eigh")
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
        system = factor_system(kernel, DATA, NOISE, P)
        factorisations = list(calls)
        C = system.solve(OUTPUTS)
        system.loo_predictions(OUTPUTS, C)
        system.variance(DATA[:3])
    assert isinstance(system, DiagonalSystem)
    assert factorisations == calls == expected  # factored once, whatever is asked afterwards
    assert largest.entries <= N * N
    if "Linear" in repr(kernel):
        assert largest.entries <= N * P
    kinds = {type(group.system) for group in system.groups}
    assert kinds == {ScalarCholesky if ("cholesky", N) in expected else ScalarSpectral}


def test_the_largest_tensor_is_seen() -> None:
    with Largest() as largest:
        factor_system(CurlFree(1.0), DATA, NOISE, 2)
    assert largest.entries >= (2 * N) ** 2


@pytest.mark.parametrize(
    "kernel",
    [
        Decomposable(Gaussian(1.0), Dense(OPERATOR))
        + Decomposable(Matern(1.5, 1.0), Dense(np.diag(np.arange(6.0)))),
        Transformable(Gaussian(1.0), [GENERATOR.standard_normal((2, 2)) for _ in range(P)]),
    ],
    ids=["sum that does not commute", "transformable"],
)
def test_without_structure_size_decides(
    kernel: OperatorKernel, monkeypatch: pytest.MonkeyPatch, calls: list[tuple[str, int]]
) -> None:
    system = factor_system(kernel, DATA, NOISE, P)
    assert isinstance(system, DenseSystem)
    assert calls.count(("cholesky", N * P)) == 1
    calls.clear()
    monkeypatch.setattr(systems, "DENSE_LIMIT", N * P - 1)
    above = factor_system(kernel, DATA, NOISE, P)
    assert isinstance(above, IterativeSystem)
    assert ("cholesky", N * P) not in [call for call in calls if "Decomposable" in repr(kernel)]
    torch.testing.assert_close(above.solve(OUTPUTS), system.solve(OUTPUTS), rtol=1e-7, atol=1e-8)


def test_the_iterative_system_of_a_sum_never_forms_the_block_matrix() -> None:
    kernel = Decomposable(Gaussian(1.0), Dense(OPERATOR)) + Decomposable(
        Matern(1.5, 1.0), Diagonal(np.arange(6.0))
    )
    with Largest() as largest:
        factor_system(kernel, DATA, NOISE, P, solver="iterative").solve(OUTPUTS)
    assert largest.entries <= 2 * N * N  # two Gram matrices, side by side


def test_missing_targets_keep_uncoupled_outputs_apart() -> None:
    observed = torch.ones(N, P, dtype=torch.bool)
    observed[:5, 1] = observed[:5, 2] = observed[3:9, 4] = False
    system = factor_system(Decomposable(Gaussian(1.0)), DATA, NOISE, P, observed=observed)
    assert isinstance(system, DiagonalSystem)
    assert sorted(len(group.rows) for group in system.groups) == [N - 6, N - 5, N]  # one for each pattern
    coupled = factor_system(Decomposable(Gaussian(1.0), Dense(OPERATOR)), DATA, NOISE, P, observed=observed)
    assert isinstance(coupled, DenseSystem)
    everything = torch.ones(N, P, dtype=torch.bool)  # a mask that masks nothing costs nothing
    kernel = Decomposable(Gaussian(1.0), Dense(OPERATOR))
    assert isinstance(factor_system(kernel, DATA, NOISE, P, observed=everything), DiagonalSystem)


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

    system = factor_system(
        kernel, DATA, torch.full((N,), noise, dtype=DOUBLE), targets.shape[1], solver="iterative"
    )
    with monkeypatch.context() as patch:
        patch.setattr(type(kernel), "apply", counted)
        C = system.solve(targets)
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
def test_preconditioners_save_iterations(
    kernel: OperatorKernel, gain: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_it = applications(kernel, monkeypatch)
    monkeypatch.setattr(block_systems, "_preconditioner", lambda *_: lambda residual: residual)
    without = applications(kernel, monkeypatch)
    assert gain * with_it <= without


def test_sums_of_products_in_sums_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def unwanted(*args: Any, **options: Any) -> Any:
        raise AssertionError("sums of Kronecker products have a preconditioner of their own")

    monkeypatch.setattr(block_systems, "pivoted_cholesky", unwanted)
    one, two = Decomposable(Gaussian(1.0), Dense(OPERATOR)), Decomposable(Linear(), Diagonal(np.arange(6.0)))
    assert applications(one + (two + (one + two)), monkeypatch) > 1
    with pytest.raises(AssertionError, match="of their own"):
        applications(one + Separate(SIX), monkeypatch)


def test_a_preconditioner_of_low_rank_still_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Separate(SIX) + Decomposable(Gaussian(2.0), Dense(OPERATOR))
    monkeypatch.setattr(block_systems, "PRECONDITIONER_RANK", 30)
    with_it = applications(kernel, monkeypatch)
    monkeypatch.setattr(block_systems, "_preconditioner", lambda *_: lambda residual: residual)
    assert 2 * with_it <= applications(kernel, monkeypatch)


# -- bad input --------------------------------------------------------------------------------------------------------
def test_bad_input() -> None:
    with pytest.raises(ValueError, match=r"solver must be one of \('auto', 'dense', 'iterative'\); got 'cg'"):
        factor_system(CurlFree(1.0), DATA, NOISE, 2, solver="cg")  # type: ignore[arg-type]
    for kernel in (CurlFree(1.0), Separate([Linear()] * 2), Transformable(Linear(), [np.eye(2)] * 2)):
        with pytest.raises(ValueError, match="has 2 outputs on these inputs, but p=3 were asked for"):
            factor_system(kernel, DATA, NOISE, 3)
    with pytest.raises(ValueError, match="but there are 3 outputs"):
        factor_system(Decomposable(Linear(), Diagonal([1.0, 2.0])), DATA, NOISE, 3)
    with pytest.raises(ValueError, match="The Gram matrix plus n·alpha has NaN or infinite entries"):
        factor_system(Decomposable(Linear()), torch.full((3, 4), torch.nan, dtype=DOUBLE), NOISE[:3], 1)


def test_matrices_that_are_not_positive_definite_are_named() -> None:
    gram = -torch.eye(4, dtype=DOUBLE)
    with pytest.raises(ValueError, match=r"The Gram matrix plus n·alpha \(4 × 4\) is not positive definite"):
        factor_system(Decomposable(Precomputed()), gram, NOISE[:4], 1)
    with pytest.raises(ValueError, match=r"The Gram matrix has an eigenvalue of -1"):
        factor_system(Decomposable(Precomputed(), Dense(A)), gram, NOISE[:4], 3)
    with pytest.raises(ValueError, match=r"The block Gram matrix plus n·alpha \(12 × 12\) is not positive"):
        factor_system(Decomposable(Precomputed(), Dense(B)), gram, NOISE[:4], 3, solver="dense")
