"""Every kernel against its textbook definition, scikit-learn, and the contract; what the data decide; memory."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peak_memory import PeakMemory
from sklearn.gaussian_process import kernels as gp
from sklearn.metrics import pairwise
from tiers import tiers

import naive
import representer.kernels
from representer import kernels
from representer.kernels import (
    Centered,
    Constant,
    Delta,
    Gaussian,
    Kernel,
    Laplacian,
    Linear,
    Matern,
    Neural,
    Normalized,
    Polynomial,
    Precomputed,
    Product,
    Pullback,
    RationalQuadratic,
    Scaled,
    Sum,
    Tanimoto,
    TensorMatern,
    as_kernel,
)
from representer.testing import check_kernel

RNG = np.random.default_rng(0)
X = RNG.standard_normal((7, 3))
Y = RNG.standard_normal((5, 3))
BITS = (RNG.random((8, 10)) < 0.4).astype(int)
LABELS = ["cat", "dog", "cat", 3, None, ("a", "tuple"), "dog"]
ARD = [0.5, 2.0, 1.3]
with torch.random.fork_rng():
    torch.manual_seed(0)
    NETWORK = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).double()


def network(x: np.ndarray) -> np.ndarray:
    """NETWORK, by hand."""
    first, second = ((layer.weight.detach().numpy(), layer.bias.detach().numpy()) for layer in NETWORK[::2])
    return second[0] @ np.tanh(first[0] @ np.asarray(x) + first[1]) + second[1]


def jaccard_bits(x: Any, y: Any) -> float:
    return naive.jaccard(x, y)


@dataclass
class Case:
    """A kernel, its definition, and data of its kind."""

    kernel: Kernel
    oracle: Callable[[Any, Any], float]
    X: Any = None
    Y: Any = None

    def __post_init__(self) -> None:
        self.X = X if self.X is None else self.X
        self.Y = Y if self.Y is None else self.Y


CASES = [
    Case(Linear(), naive.linear()),
    Case(Polynomial(), naive.polynomial(2, 1.0, 1.0)),
    Case(Polynomial(degree=3, gamma=0.7, coef0=0.0), naive.polynomial(3, 0.7, 0.0)),
    Case(Tanimoto(), naive.jaccard, BITS, BITS[::-1][:3]),
    Case(Tanimoto(), naive.tanimoto(), 3 * BITS, np.zeros((2, 10))),
    Case(Tanimoto(), naive.tanimoto()),
    Case(Gaussian(1.3), naive.gaussian(1.3)),
    Case(Gaussian(ARD), naive.gaussian(ARD)),
    Case(Laplacian(1.3), naive.laplacian(1.3)),
    Case(Laplacian(ARD), naive.laplacian(ARD)),
    *(Case(Matern(nu, 1.3), naive.matern(nu, 1.3)) for nu in (0.5, 1.5, 2.5, 3.5, 6.5)),
    Case(Matern(2.5, ARD), naive.matern(2.5, ARD)),
    Case(Matern(float("inf"), 1.3), naive.gaussian(1.3)),
    Case(RationalQuadratic(1.3, 0.6), naive.rational_quadratic(1.3, 0.6)),
    Case(RationalQuadratic(ARD, 4.0), naive.rational_quadratic(ARD, 4.0)),
    *(Case(TensorMatern(s, 1.3), naive.tensor_matern(s, 1.3)) for s in (1, 2, 3)),
    Case(TensorMatern(2, ARD), naive.tensor_matern(2, ARD)),
    Case(Delta(), naive.delta(), LABELS, ["dog", "cow", None]),
    Case(Constant(2.5), naive.constant(2.5)),
    Case(Sum(Gaussian(2.0), Linear()), naive.add(naive.gaussian(2.0), naive.linear())),
    Case(Product(Gaussian(2.0), Linear()), naive.multiply(naive.gaussian(2.0), naive.linear())),
    Case(Scaled(Linear(), 0.3), naive.multiply(naive.constant(0.3), naive.linear())),
    Case(Normalized(Linear()), naive.normalized(naive.linear())),
    Case(Normalized(Polynomial()), naive.normalized(naive.polynomial(2, 1.0, 1.0))),
    Case(Centered(Gaussian(1.3), Y), naive.centered(naive.gaussian(1.3), Y)),
    Case(Centered(Delta(), LABELS), naive.centered(naive.delta(), LABELS), LABELS, ["dog", "cow"]),
    Case(kernels.Callable(jaccard_bits), naive.jaccard, BITS, BITS[:2]),
    Case(kernels.Callable(pairwise.rbf_kernel, batched=True), naive.gaussian(np.sqrt(1.5)), X, Y),
    Case(Pullback(Gaussian(1.3), torch.abs), naive.pullback(naive.gaussian(1.3), np.abs)),
    Case(Neural(NETWORK, Gaussian(1.3)), naive.pullback(naive.gaussian(1.3), network)),
    # Composition: two real classes, nothing flattened, scalars on both sides.
    Case(
        Gaussian(1.0) + Linear() * Laplacian(2.0),
        naive.add(naive.gaussian(1.0), naive.multiply(naive.linear(), naive.laplacian(2.0))),
    ),
    Case(
        (Gaussian(1.0) + Linear()) * Laplacian(2.0),
        naive.multiply(naive.add(naive.gaussian(1.0), naive.linear()), naive.laplacian(2.0)),
    ),
    Case(
        1 + 2.0 * Gaussian(1.0) * (Linear() + 0.5) * 3 + 0.25,
        naive.add(
            naive.constant(1.25),
            naive.multiply(naive.constant(6.0), naive.gaussian(1.0), naive.add(naive.linear(), naive.constant(0.5))),
        ),
    ),
    Case(
        Linear() * (2.0 * Gaussian(1.0)) + (Constant(1.0) + 2.0) * Linear() * Linear(),
        naive.add(
            naive.multiply(naive.linear(), naive.constant(2.0), naive.gaussian(1.0)),
            naive.multiply(naive.constant(3.0), naive.linear(), naive.linear()),
        ),
    ),
    Case(
        (2.0 * Gaussian(1.0) + 1.0).normalized().centered(Y) * 0.5,
        naive.multiply(
            naive.constant(0.5),
            naive.centered(
                naive.normalized(
                    naive.add(naive.multiply(naive.constant(2.0), naive.gaussian(1.0)), naive.constant(1.0))
                ),
                Y,
            ),
        ),
    ),
    Case(
        2.0 * (Delta() + 0.5) * Delta(),
        naive.multiply(naive.constant(2.0), naive.add(naive.delta(), naive.constant(0.5)), naive.delta()),
        LABELS,
        ["dog", "cow"],
    ),
    Case(
        Pullback(2.0 * Neural(NETWORK, Linear()) + 1.0, torch.abs),
        naive.pullback(
            naive.add(
                naive.multiply(naive.constant(2.0), naive.pullback(naive.linear(), network)),
                naive.constant(1.0),
            ),
            np.abs,
        ),
    ),
]


def name_of(case: Case) -> str:
    text = " ".join(repr(case.kernel).split())
    return text if len(text) < 60 else text[:57] + "..."


every_case = pytest.mark.parametrize("case", CASES, ids=map(name_of, CASES))


def parts(kernel: Kernel) -> set[type]:
    return {type(kernel)}.union(*(parts(child) for _, child in kernel._children()))


def kernel_classes() -> set[type]:
    """Every concrete kernel that the package defines, public or not."""
    for module in pkgutil.iter_modules(representer.kernels.__path__, "representer.kernels."):
        importlib.import_module(module.name)

    def below(kind: type) -> set[type]:
        return {kind}.union(*map(below, kind.__subclasses__()))

    return {
        kind
        for kind in below(Kernel)
        if kind.__module__.startswith("representer.kernels.") and not inspect.isabstract(kind)
    }


# Whose oracles are not in a table: the test that compares each with its definition.
COMPARED = {
    "AdditiveChi2": "test_kernels_tables.py::test_names_mean_what_they_mean_in_scikit_learn",
    "Chi2": "test_kernels_tables.py::test_names_mean_what_they_mean_in_scikit_learn",
    "Columns": "test_kernels_columns.py::test_columns_is_the_sum_or_product_over_fields",
    "Descriptors": "test_kernels_molecules.py::test_descriptors_are_those_of_rdkit",
    "Functional": "test_kernels_curves.py::test_pairs_have_the_integrals_of_their_interpolants",
    "GlobalAlignment": "test_kernels_time_series.py::test_global_alignment_is_the_sum_over_all_alignments",
    "GraKeL": "test_kernels_graphs.py::test_equal_to_grakel",
    "MinMax": "test_kernels_fingerprints.py::test_counts",
    "Missing": "test_kernels_tables.py::test_missing_is_a_mean_and_a_sign",
    "Molecule": "test_kernels_molecules.py::test_equals_the_similarity_of_rdkit",
    "Optional": "test_kernels_tables.py::test_objects_that_are_missing",
    "Parallel": "test_kernels_parallel.py::test_parallel_is_the_kernel_itself",
    "Pixels": "test_kernels_tables.py::test_pictures_and_texts_by_their_definitions",
    "Precomputed": "test_kernels_composition.py::test_precomputed",
    "Sigmoid": "test_kernels_tables.py::test_names_mean_what_they_mean_in_scikit_learn",
    "Signature": "test_kernels_time_series.py::test_signature_is_its_iterated_integrals",
    "Standardized": "test_kernels_tables.py::test_standardized_with_gaps",
    "Table": "test_kernels_tables.py::test_table_is_the_kernel_of_its_coordinates",
    "Words": "test_kernels_tables.py::test_pictures_and_texts_by_their_definitions",
}


def test_every_kernel_is_compared_with_its_definition() -> None:
    others = [
        importlib.import_module(f"test_kernels_{kind}").CASES for kind in ("strings", "graphs", "bags", "sequences")
    ]
    tested = [case.kernel for case in CASES] + [case[0] for table in others for case in table]
    covered = {kind.__name__ for kernel in tested for kind in parts(kernel)} | set(COMPARED)
    assert {Gaussian, Neural, Centered, Delta} <= kernel_classes()
    missing = {kind.__name__ for kind in kernel_classes()} - covered
    assert not missing, "add a case with an oracle to CASES"
    for place in COMPARED.values():
        path, name = place.split("::")
        assert f"def {name}(" in (Path(__file__).parent / path).read_text(encoding="utf-8"), place


def test_every_kernel_is_public() -> None:
    assert {kind.__name__ for kind in kernel_classes()} <= set(kernels.__all__)


@every_case
def test_definition(case: Case) -> None:
    np.testing.assert_allclose(case.kernel(case.X), naive.gram(case.oracle, case.X), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(
        case.kernel(case.X, case.Y), naive.gram(case.oracle, case.X, case.Y), rtol=1e-10, atol=1e-12
    )
    np.testing.assert_allclose(case.kernel.diag(case.X), [case.oracle(x, x) for x in case.X], rtol=1e-10, atol=1e-12)


@every_case
def test_contract(case: Case) -> None:
    check_kernel(case.kernel, case.X, case.Y)


@pytest.mark.parametrize(
    "kernel",
    [
        Gaussian(),
        "auto" * Gaussian("ard") + Matern(1.5, "auto") * "auto",
        RationalQuadratic("auto", "auto") + "auto",
        Polynomial(3, "auto", "auto"),
        Polynomial(3, "scale"),
        TensorMatern(2, "ard"),
        Laplacian().normalized() * Linear().centered(),
        Pullback(Gaussian("ard"), torch.exp),
        Neural(NETWORK, "auto" * Gaussian("auto")),
        (1.0 + 2.0 * Gaussian("auto")).centered(),
    ],
    ids=lambda kernel: " ".join(repr(kernel).split())[:50],
)
def test_contract_with_words(kernel: Kernel) -> None:
    check_kernel(kernel, X, Y)


def test_contract_of_a_module_in_single_precision() -> None:
    check_kernel(Neural(torch.nn.Linear(3, 2), Gaussian(1.0)), X, Y)


# -- scikit-learn -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Linear(), pairwise.linear_kernel),
        (Gaussian(1.3), lambda A, B: pairwise.rbf_kernel(A, B, gamma=1 / (2 * 1.3**2))),
        (Gaussian(1.3), gp.RBF(1.3)),
        (Gaussian(ARD), gp.RBF(ARD)),
        (Laplacian(1.3), lambda A, B: pairwise.laplacian_kernel(A, B, gamma=1 / 1.3)),
        (
            Polynomial(3, 0.7, 0.2),
            lambda A, B: pairwise.polynomial_kernel(A, B, degree=3, gamma=0.7, coef0=0.2),
        ),
        (Matern(0.5, 1.3), gp.Matern(1.3, nu=0.5)),
        (Matern(1.5, 1.3), gp.Matern(1.3, nu=1.5)),
        (Matern(2.5, ARD), gp.Matern(ARD, nu=2.5)),
        (Matern(3.5, 1.3), gp.Matern(1.3, nu=3.5)),
        (Matern(float("inf"), 1.3), gp.Matern(1.3, nu=float("inf"))),
        (RationalQuadratic(1.3, 0.6), gp.RationalQuadratic(1.3, 0.6)),
        (Linear() + 2.25, gp.DotProduct(sigma_0=1.5)),
        (
            2.0 * Gaussian(1.3) + 0.5 * Matern(1.5, 0.7) * Linear(),
            gp.ConstantKernel(2.0) * gp.RBF(1.3)
            + gp.ConstantKernel(0.5) * gp.Matern(0.7, nu=1.5) * gp.DotProduct(sigma_0=0),
        ),
        (Linear().normalized(), pairwise.cosine_similarity),
    ],
    ids=lambda value: repr(value)[:40] if isinstance(value, Kernel) else "",
)
def test_equals_scikit_learn(ours: Kernel, theirs: Callable[[Any, Any], np.ndarray]) -> None:
    np.testing.assert_allclose(ours(X, Y), theirs(X, Y), rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(ours(X), theirs(X, X), rtol=1e-10, atol=1e-13)


# -- precision and scale ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kernel", [Gaussian(0.3), Matern(1.5, 0.3), Matern(0.5, 0.3), RationalQuadratic(0.3)])
def test_data_far_from_the_origin_lose_nothing(kernel: Kernel) -> None:
    far = np.round(X, 3) + 1e6
    expected = kernel(np.asarray(far) - 1e6)
    torch.testing.assert_close(kernel(far), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kernel", [Gaussian(0.7), Matern(2.5, 0.7), Laplacian(0.7), TensorMatern(2, 0.7)])
def test_many_rows_are_done_in_blocks(kernel: Kernel) -> None:
    many, others = (np.random.default_rng(1).standard_normal((n, 2)) for n in (600, 300))
    index = [0, 17, 255, 256, 511, 512, 599]
    gram, cross = kernel(many), kernel(many, others)
    torch.testing.assert_close(gram[index][:, index], kernel(many[index]))
    torch.testing.assert_close(cross[index], kernel(many[index], others))
    torch.testing.assert_close(gram, gram.mT, rtol=0, atol=1e-14)
    with_gradient = kernel(torch.from_numpy(many).requires_grad_())
    torch.testing.assert_close(gram, with_gradient.detach(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kernel", [Gaussian(7.0), RationalQuadratic(3.0, 2.0), Matern(2.5, 7.0)], ids=repr)
def test_a_row_does_not_depend_on_its_block(kernel: Kernel) -> None:
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(700, 7)) + 3.0, rng.normal(size=(40, 7))
    whole = kernel(X, Z)
    for rows in (1, 33, 250):
        blocks = torch.cat([kernel(X[i : i + rows], Z) for i in range(0, 700, rows)])
        torch.testing.assert_close(blocks, whole, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("symmetric", [True, False])
def test_the_gradient_of_the_gaussian_gram_matrix_is_that_of_autograd(symmetric: bool) -> None:
    """Of more rows than are handled at a time, for a gradient that is not symmetric."""
    rng = np.random.default_rng(0)
    left, right = (torch.from_numpy(rng.normal(size=(n, 3))) for n in (430, 50))
    weights = torch.from_numpy(rng.normal(size=(430, 430 if symmetric else 50)))
    scales = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)

    def gradients(gram: Callable[[Any, Any, torch.Tensor], torch.Tensor]) -> tuple[torch.Tensor, ...]:
        leaves = [left.clone().requires_grad_(), scales.clone().requires_grad_()]
        value = (weights * gram(leaves[0], None if symmetric else right, leaves[1])).sum()
        return torch.autograd.grad(value, leaves)

    def textbook(A: torch.Tensor, B: torch.Tensor | None, scale: torch.Tensor) -> torch.Tensor:
        differences = (A[:, None] - (A if B is None else B)) / scale
        return torch.exp(-0.5 * differences.square().sum(-1))

    found = gradients(lambda A, B, scale: Gaussian(scale)._gram(A, B))
    torch.testing.assert_close(found, gradients(textbook), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("symmetric", [True, False])
def test_the_gradient_of_the_laplacian_gram_matrix_is_that_of_autograd(symmetric: bool) -> None:
    """In a batch, with weights that are not symmetric, with points that coincide, and with a broadcast argument."""
    rng = np.random.default_rng(5)
    left = torch.from_numpy(rng.standard_normal((3, 6, 2)))
    left[:, 1] = left[:, 0]
    right = torch.from_numpy(rng.standard_normal((4, 2)))
    weights = torch.from_numpy(rng.standard_normal((3, 6, 6 if symmetric else 4)))

    def gradients(gram: Callable[[Any, Any], torch.Tensor]) -> tuple[torch.Tensor, ...]:
        leaves = [left.clone().requires_grad_(), right.clone().requires_grad_()][: 1 if symmetric else 2]
        value = (weights * gram(leaves[0], None if symmetric else leaves[1])).sum()
        return torch.autograd.grad(value, leaves)

    expected = gradients(lambda A, B: torch.exp(-torch.cdist(A, A if B is None else B, p=1.0) / 0.7))
    torch.testing.assert_close(gradients(Laplacian(0.7)._gram), expected)
    torch.testing.assert_close(gradients(TensorMatern(1, 0.7)._gram), expected)


@pytest.mark.parametrize(
    "kernel",
    [Gaussian(0.01), Matern(1.5, 0.01), Matern(0.5, 0.01), TensorMatern(1, 0.01), TensorMatern(2, 0.01)],
)
def test_the_diagonal_of_a_stationary_kernel_is_one_exactly(kernel: Kernel) -> None:
    data = 1e3 * torch.from_numpy(np.random.default_rng(4).standard_normal((6, 40)))
    for gram in (
        kernel(data),
        kernel(torch.stack([data, data + 1.0])),
        kernel(data.clone().requires_grad_()),
    ):
        assert bool((gram.diagonal(dim1=-2, dim2=-1) == 1.0).all())


@given(
    n=st.integers(1, 5),
    m=st.integers(1, 4),
    d=st.integers(1, 4),
    batch=st.lists(st.integers(1, 3), max_size=2),
    which=st.sampled_from(
        [
            Gaussian(1.0),
            Matern(0.5, 1.0),
            TensorMatern(2, 1.0),
            Polynomial(),
            Tanimoto(),
            Linear() + 1.0,
            Constant(),
        ]
    ),
)
def test_shapes(n: int, m: int, d: int, batch: list[int], which: Kernel) -> None:
    generator = torch.Generator().manual_seed(n + 10 * m + 100 * d)
    A = torch.randn(*batch, n, d, generator=generator, dtype=torch.float64)
    B = torch.randn(m, d, generator=generator, dtype=torch.float64)
    for kernel in (which, which.normalized(), which.centered(B)):
        assert kernel(A).shape == (*batch, n, n)
        assert kernel(A, B).shape == (*batch, n, m)
        assert kernel.diag(A).shape == (*batch, n)
        torch.testing.assert_close(kernel(A).diagonal(dim1=-2, dim2=-1), kernel.diag(A))


# -- words ------------------------------------------------------------------------------------------------------------
def test_median_is_the_median_distance() -> None:
    assert Gaussian().resolve(X).lengthscale == pytest.approx(naive.median_distance(X, 2))
    assert Matern(2.5, "median").resolve(X).lengthscale == pytest.approx(naive.median_distance(X, 2))
    assert RationalQuadratic().resolve(X).lengthscale == pytest.approx(naive.median_distance(X, 2))
    assert Laplacian().resolve(X).lengthscale == pytest.approx(naive.median_distance(X, 1))
    assert TensorMatern(2).resolve(X).lengthscale == pytest.approx(naive.median_distance(X, 1))


def test_auto_starts_at_the_heuristic() -> None:
    assert Gaussian("auto").resolve(X) == Gaussian("median").resolve(X)
    assert Polynomial(gamma="auto").resolve(X) == Polynomial(gamma="scale").resolve(X)
    assert ("auto" * Linear()).resolve(X) == 1.0 * Linear()
    assert (Linear() + "auto").resolve(X) == Linear() + 1.0
    resolved = RationalQuadratic(1.0, "auto").resolve(X)
    assert resolved.mixture == 1.0


def test_ard_and_scale_by_their_formulas() -> None:
    expected = np.sqrt(2 * 3) * X.std(axis=0)
    np.testing.assert_allclose(Gaussian("ard").resolve(X).lengthscale, expected)
    assert Polynomial(gamma="scale").resolve(X).gamma == pytest.approx(1 / (3 * X.var()))
    # On standardised features the ARD heuristic is the root-mean-square distance, near the median one.
    Z = np.random.default_rng(2).standard_normal((400, 6))
    np.testing.assert_allclose(Gaussian("ard").resolve(Z).lengthscale, Gaussian().resolve(Z).lengthscale, rtol=0.15)


def test_free_names_what_asks_to_be_learned() -> None:
    assert Gaussian().free() == []
    assert Gaussian(2.0).free() == []
    assert Gaussian("auto").free() == Gaussian("ard").free() == ["lengthscale"]
    assert RationalQuadratic("auto", "auto").free() == ["lengthscale", "mixture"]
    assert Polynomial(2, "scale", "auto").free() == ["coef0"]
    nested = "auto" * Gaussian("ard") + 1.0 * (Linear() + "auto")
    assert nested.free() == ["left__scale", "left__kernel__lengthscale", "right__kernel__right__value"]


def test_resolve_leaves_the_kernel_alone() -> None:
    kernel = "auto" * Gaussian("ard").centered() + Polynomial(gamma="scale")
    text = repr(kernel)
    resolved = kernel.resolve(X)
    assert repr(kernel) == text
    assert resolved != kernel
    assert resolved.free() == []
    assert resolved.resolve(10 * Y) == resolved  # numbers stay
    assert not isinstance(resolved.left.kernel.kernel.lengthscale, str)


@pytest.mark.parametrize(
    "data",
    [
        np.full((10, 3), 0.1),
        np.full((10, 3), 1e9 / 3),
        np.repeat(X[:2], [9, 1], axis=0),
        np.zeros((1, 3)),
        np.array([[1e200, 0.0, 0.0], [-1e200, 0.0, 0.0], [0.0, 1.0, 2.0]]),
    ],
    ids=["constant", "large constant", "duplicates", "one row", "huge"],
)
@pytest.mark.parametrize(
    "kernel", [Gaussian(), Gaussian("ard"), Laplacian(), TensorMatern(2, "ard"), Polynomial(2, "scale")]
)
def test_degenerate_data_give_finite_hyperparameters(kernel: Kernel, data: np.ndarray) -> None:
    resolved = kernel.resolve(data)
    values = torch.cat([value.reshape(-1) for value in resolved.hyperparameter_values().values()])
    assert bool(torch.isfinite(values).all())
    assert bool((values > 0).all())


def test_constant_features_do_not_amplify_rounding() -> None:
    data = np.column_stack([X[:, 0], np.full(len(X), 0.1 + 0.2)])
    assert Gaussian("ard").resolve(data).lengthscale[1] >= 1.0
    assert Polynomial(gamma="scale").resolve(np.full((9, 2), 0.7)).gamma == pytest.approx(1.0)


def test_the_median_of_mostly_equal_rows_is_of_the_others() -> None:
    data = np.zeros((10, 1))
    data[0] = 3.0
    assert Gaussian().resolve(data).lengthscale == 3.0


def test_a_large_sample_is_thinned() -> None:
    data = np.random.default_rng(3).standard_normal((5000, 2))
    thinned = data[np.linspace(0, 4999, 1000).round().astype(int)]
    assert Gaussian().resolve(data) == Gaussian().resolve(thinned)


def test_a_word_needs_data() -> None:
    with pytest.raises(ValueError, match=r"lengthscale='median' of Gaussian has no number yet.*resolve\(X\)"):
        Gaussian()(X, Y)
    with pytest.raises(ValueError, match="no anchors yet"):
        Linear().centered()(X, Y)
    with pytest.raises(ValueError, match="no number for"):
        Gaussian("auto").packing(["lengthscale"])


# -- names ------------------------------------------------------------------------------------------------------------
def test_as_kernel() -> None:
    assert as_kernel("rbf") == as_kernel("gaussian") == Gaussian()
    assert as_kernel("linear") == Linear()
    assert as_kernel("laplacian") == Laplacian()
    assert as_kernel("matern") == Matern()
    assert as_kernel("tanimoto") == Tanimoto()
    assert as_kernel("minmax") == kernels.MinMax()
    assert as_kernel("delta") == Delta()
    assert as_kernel("precomputed") == Precomputed()
    assert as_kernel("poly") == Polynomial(3, "scale")
    kernel = Gaussian(3.0)
    assert as_kernel(kernel) is kernel
    assert as_kernel(jaccard_bits) == kernels.Callable(jaccard_bits)


@pytest.mark.parametrize("wrong", ["rfb", Gaussian, None, 3])
def test_as_kernel_refuses(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"is not a kernel.*'rbf'"):
        as_kernel(wrong)


# -- memory -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("cross", tiers([False, True], bool))
@pytest.mark.parametrize(
    "kernel",
    [
        Gaussian(1.0),
        torch.tensor(1.0, requires_grad=True) * Gaussian(torch.tensor(1.0, requires_grad=True)),
        Matern(0.5, 1.0),
        2.0 * Matern(2.5, 1.0) + 1.0,
        1.0 + Linear(),
        Polynomial(3),
        TensorMatern(2, 1.0),
        Laplacian(1.0),
        RationalQuadratic(1.0),
    ],
    ids=repr,
)
def test_without_a_gradient_a_gram_matrix_takes_one_buffer(kernel: Kernel, cross: bool) -> None:
    n = 3000
    data = torch.randn(n, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.no_grad(), PeakMemory() as memory:
        kernel(data, data) if cross else kernel(data)
    assert 1.0 <= memory.peak / (8 * n * n) < 1.6


def test_the_count_of_buffers_counts() -> None:
    data = torch.randn(500, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with PeakMemory() as memory:
        gram = data @ data.mT
        gram = gram + 1.0
    assert 2.0 <= memory.peak / (8 * 500 * 500) < 2.1
    with torch.no_grad(), PeakMemory() as memory:
        (Gaussian(1.0) + Gaussian(2.0))(data)
    assert 2.0 <= memory.peak / (8 * 500 * 500) < 3.0


@pytest.mark.parametrize(
    "kernel",
    [Gaussian(0.7), Gaussian([0.7, 2.0]), *(Matern(nu, [0.7, 2.0]) for nu in (0.5, 1.5, 2.5, 3.5))],
    ids=repr,
)
def test_the_tangent_of_a_radial_kernel_has_its_derivatives(kernel):
    """First derivatives are those of autograd, second ones those of finite differences."""
    generator = torch.Generator().manual_seed(0)
    X, dX, G, dG = (
        torch.randn(3, 9, d, generator=generator, dtype=torch.float64) + shift
        for d, shift in ((2, 5.0), (2, 0.0), (9, 0.0), (9, 0.0))
    )
    G, dG = G + G.mT, dG + dG.mT
    leaf = X.clone().requires_grad_()
    gram = kernel(leaf)
    (gradient,) = torch.autograd.grad(gram, leaf, G)
    tangent = kernel.tangent(X)
    assert tangent is not None
    torch.testing.assert_close(tangent.gram, gram.detach())
    torch.testing.assert_close(tangent.pull(G), gradient)
    step = 1e-6
    above, below = kernel.tangent(X + step * dX), kernel.tangent(X - step * dX)
    assert above is not None and below is not None
    dK = tangent.push(dX)
    torch.testing.assert_close(dK, (above.gram - below.gram) / (2 * step), atol=1e-8, rtol=1e-6)
    change = (above.pull(G + step * dG) - below.pull(G - step * dG)) / (2 * step)
    torch.testing.assert_close(tangent.pull_change(G, dG, dX, dK), change, atol=1e-7, rtol=1e-6)


def test_a_subclass_of_a_gaussian_kernel_has_no_tangent():
    class Squared(Gaussian):
        def _profile(self, t):
            return (2 * t).exp()

    assert Squared(1.0).tangent(torch.zeros(3, 1)) is None


def test_the_tangent_of_a_matern_kernel_is_finite_where_points_meet_and_where_they_are_far_apart():
    X = torch.tensor([[0.0], [0.0], [1e-9], [1.0], [1e6]], dtype=torch.float64)
    G = torch.ones(5, 5, dtype=torch.float64)
    for nu in (0.5, 1.5, 2.5, 3.5):
        tangent = Matern(nu, 1.0).tangent(X)
        dK = tangent.push(X)
        for values in (tangent.gram, tangent.pull(G), dK, tangent.pull_change(G, G, X, dK)):
            assert values.isfinite().all()
