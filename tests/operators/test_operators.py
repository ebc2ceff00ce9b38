"""Operator-valued kernels against their definitions, their structure, their behaviour as values, and bad input."""

from __future__ import annotations

import inspect
import pickle
from pathlib import Path
from typing import Any

import naive_operators as no
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from operator_cases import CASES, EPSILON, MAPS, PLANE, TARGETS, Case, first_two, last_two
from operator_cases import A as MATRIX
from operator_cases import B as OTHER
from operator_cases import X as POINTS
from sklearn.base import clone
from torch import Tensor

import naive
from representer import OperatorRidge, kernels, load, operators
from representer.kernels import Callable, Delta, Gaussian, Kernel, Linear, Matern, Polynomial, Precomputed
from representer.operators import (
    ConditionalCovariance,
    Covariance,
    CurlFree,
    Decomposable,
    Dense,
    Diagonal,
    DivergenceFree,
    Identity,
    Operator,
    OperatorKernel,
    OperatorSum,
    Patchwise,
    PrincipalComponents,
    Separate,
    Transformable,
    diagonal_regularization,
    joint_kernel,
    square_patches,
)
from representer.operators.base import common_eigenvectors
from representer.systems import RidgeData, factor_system
from representer.testing import check_operator
from representer.values import Value

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
DOUBLE = torch.zeros((), dtype=torch.float64)


def tensor(values: Any) -> Tensor:
    return torch.tensor(np.asarray(values), dtype=torch.float64)


def subclasses(kind: type) -> set[type]:
    found = {kind}.union(*map(subclasses, kind.__subclasses__()))
    return {k for k in found if k.__module__.startswith("representer.") and not inspect.isabstract(k)}


def parts(value: Value) -> set[type]:
    return {type(value)}.union(*(parts(child) for _, child in value._children()))


def test_every_operator_is_compared_with_its_definition() -> None:
    covered = set().union(*(parts(case.kernel) for case in CASES))
    resolved_to_dense = {Covariance, ConditionalCovariance, PrincipalComponents}
    assert {Decomposable, CurlFree, OperatorSum} <= subclasses(OperatorKernel)
    assert subclasses(OperatorKernel) - covered == set(), "add a case with an oracle to operator_cases.py"
    assert subclasses(Operator) - covered == resolved_to_dense, "add a case with an oracle"


def test_every_operator_is_public() -> None:
    found = {kind.__name__ for kind in subclasses(OperatorKernel) | subclasses(Operator)}
    assert found <= set(operators.__all__)


# -- definitions ------------------------------------------------------------------------------------------------------
@every_case
def test_block_matrix(case: Case) -> None:
    exact = {"rtol": 1e-10, "atol": 1e-12}
    np.testing.assert_allclose(case.kernel.dense(case.data, None, case.p), case.block, **exact)
    cross = no.block_matrix(case.oracle, case.Y, case.X)
    np.testing.assert_allclose(case.kernel.dense(case.new, case.data, case.p), cross, **exact)


@every_case
def test_routes_that_avoid_the_block_matrix(case: Case) -> None:
    exact = {"rtol": 1e-10, "atol": 1e-12}
    c = case.targets
    cross = no.block_matrix(case.oracle, case.Y, case.X)
    image = (cross @ c.reshape(-1)).reshape(-1, case.p)
    np.testing.assert_allclose(case.kernel.apply(case.new, case.data, tensor(c)), image, **exact)
    norm = c.reshape(-1) @ case.block @ c.reshape(-1)
    np.testing.assert_allclose(case.kernel.squared_norm(case.data, tensor(c)), norm, **exact)
    diagonal = np.stack([np.diag(case.oracle(x, x)) for x in case.Y])
    np.testing.assert_allclose(case.kernel.diag(case.new, case.p), diagonal, **exact)


# The logarithm of a zero weight is so far out that finite differences see nothing.
@pytest.mark.parametrize("case", [c for c in CASES if "zero" not in c.name], ids=lambda case: case.name)
def test_contract(case: Case) -> None:
    check_operator(case.kernel, case.X, case.Y, p=case.p)


@pytest.mark.parametrize(
    "kernel",
    [
        Decomposable(Gaussian("ard"), Dense(MATRIX)),
        Separate([Gaussian("auto"), "auto" * Matern(1.5, "median")]) + CurlFree("auto"),
        DivergenceFree(),
        Transformable("auto" * Gaussian("ard"), [first_two, last_two]),
    ],
    ids=["decomposable", "sum", "field", "transformable"],
)
def test_contract_with_words(kernel: OperatorKernel) -> None:
    check_operator(kernel, POINTS if isinstance(kernel, Decomposable | Transformable) else PLANE, p=3)


def test_precomputed_gram_matrices() -> None:
    gram = Gaussian(1.3)(POINTS)
    check_operator(Decomposable(Precomputed(), Dense(MATRIX)), gram, p=3)
    check_operator(Separate([Precomputed(), 2.0 * Precomputed()]), gram)
    kernel, same = Decomposable(Precomputed(), Dense(MATRIX)), Decomposable(Gaussian(1.3), Dense(MATRIX))
    torch.testing.assert_close(kernel.dense(gram, None, 3), same.dense(tensor(POINTS), None, 3))
    torch.testing.assert_close(
        kernel.apply(gram[:2], gram, tensor(TARGETS)),
        same.apply(tensor(POINTS[:2]), tensor(POINTS), tensor(TARGETS)),
    )


@given(n=st.integers(1, 4), m=st.integers(1, 4), p=st.integers(1, 4), d=st.integers(2, 4))
def test_shapes(n: int, m: int, p: int, d: int) -> None:
    generator = torch.Generator().manual_seed(n + 10 * m + 100 * p + 1000 * d)
    left, right = (torch.randn(k, d, generator=generator, dtype=torch.float64) for k in (n, m))
    fields = CurlFree(1.0) + DivergenceFree(2.0)
    free = Decomposable(Gaussian(1.0), Dense(np.eye(p))) + Separate([Linear()] * p)
    mapped = Transformable(Gaussian(1.0), [np.ones((2, d))] * p)
    for kernel, outputs in ((fields, d), (free, p), (mapped, p), (free + mapped, p)):
        assert kernel.n_outputs(left) in (None, outputs)
        assert kernel.dense(left, right, outputs).shape == (n * outputs, m * outputs)
        assert kernel.apply(left, right, torch.ones(m, outputs, dtype=torch.float64)).shape == (n, outputs)
        assert kernel.diag(left, outputs).shape == (n, outputs)


# -- vector fields ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("d", [2, 3])
def test_fitted_fields_have_no_curl_or_no_divergence(d: int, rng: np.random.Generator) -> None:
    X, Y = rng.standard_normal((10, d)), rng.standard_normal((10, d))
    curls, divergences = {}, {}
    for kernel in (CurlFree(1.2), DivergenceFree(1.2), CurlFree(1.2) + DivergenceFree(1.2)):
        data = RidgeData(kernel, tensor(X), tensor(Y), torch.ones(10, dtype=torch.float64))
        c = factor_system(data, 0.01).coefficients()

        def field(x: np.ndarray, kernel: OperatorKernel = kernel, c: Tensor = c) -> np.ndarray:
            return kernel.apply(tensor(x[None]), tensor(X), c)[0].numpy()

        jacobians = [no.jacobian(field, x) for x in rng.standard_normal((5, d))]
        curls[repr(kernel)] = max(np.abs(J - J.T).max() for J in jacobians)
        divergences[repr(kernel)] = max(abs(np.trace(J)) for J in jacobians)
    gradient, solenoidal, both = curls
    assert curls[gradient] < 1e-6 < 1e-2 < divergences[gradient]
    assert divergences[solenoidal] < 1e-6 < 1e-2 < curls[solenoidal]
    assert min(curls[both], divergences[both]) > 1e-2


def test_one_lengthscale_for_all_coordinates() -> None:
    for kernel in (CurlFree([1.0, 2.0]), DivergenceFree(np.array([1.0, 2.0]))):
        with pytest.raises(ValueError, match=r"lengthscale of .* must be one number"):
            kernel.resolve(PLANE)
    with pytest.raises(ValueError, match="must be a number or one of: 'median', 'auto'"):
        CurlFree("ard").resolve(PLANE)


def test_the_median_of_positions() -> None:
    assert CurlFree().resolve(PLANE).lengthscale == pytest.approx(naive.median_distance(PLANE, 2))
    assert CurlFree().free() == []
    assert DivergenceFree("auto").free() == ["lengthscale"]


# -- operators that the data decide -----------------------------------------------------------------------------------
def quadratic_features(X: np.ndarray) -> np.ndarray:
    """(1 + xᵀy)² = φ(x)ᵀφ(y)."""
    pairs = [(a, b) for a in range(X.shape[1]) for b in range(a)]
    products = [np.sqrt(2.0) * X[:, a] * X[:, b] for a, b in pairs]
    return np.column_stack([np.ones(len(X)), np.sqrt(2.0) * X, X**2, *products])


def test_covariance() -> None:
    found = Covariance().resolve(tensor(TARGETS), None)
    np.testing.assert_allclose(found.matrix, TARGETS.T @ TARGETS / len(TARGETS), rtol=1e-12)
    np.testing.assert_allclose(found.matrix, no.covariance(TARGETS), rtol=1e-12)


@pytest.mark.parametrize("epsilon", [1e-3, EPSILON, 10.0])
@pytest.mark.parametrize(
    ("kernel", "features"), [(Linear(), POINTS), (Polynomial(2), quadratic_features(POINTS))], ids=repr
)
def test_conditional_covariance(kernel: Kernel, features: np.ndarray, epsilon: float) -> None:
    gram = kernel(POINTS)
    np.testing.assert_allclose(gram, features @ features.T, rtol=1e-12)
    before = gram.clone()
    found = ConditionalCovariance(epsilon).resolve(tensor(TARGETS), gram)
    expected = no.conditional_covariance(TARGETS, features, epsilon)
    np.testing.assert_allclose(found.matrix, expected, rtol=1e-8, atol=1e-10)
    assert torch.equal(gram, before)


def test_the_covariance_that_nothing_explains() -> None:
    nothing = ConditionalCovariance(EPSILON).resolve(tensor(TARGETS), torch.zeros(8, 8, dtype=torch.float64))
    np.testing.assert_allclose(nothing.matrix, no.covariance(TARGETS), rtol=1e-12)


def test_what_is_not_decided_yet_has_no_matrix() -> None:
    for operator in (Covariance(), ConditionalCovariance()):
        with pytest.raises(ValueError, match=r"no matrix yet.*resolve\(Y, gram\)"):
            Decomposable(Linear(), operator).dense(tensor(POINTS), None, 3)
    with pytest.raises(ValueError, match="needs the inputs' Gram matrix"):
        ConditionalCovariance().resolve(tensor(TARGETS), None)
    with pytest.raises(ValueError, match="epsilon of ConditionalCovariance must be positive"):
        ConditionalCovariance(0.0).resolve(tensor(TARGETS), torch.eye(8, dtype=torch.float64))


# -- the form in which outputs come apart -----------------------------------------------------------------------------
@every_case
def test_diagonal_form_exists_exactly_where_operators_commute(case: Case) -> None:
    blocks = [case.oracle(x, y) for x in case.X for y in case.X]
    commute = all(
        np.abs(a @ b - b @ a).max() <= 1e-9 * np.abs(a).max() * np.abs(b).max() for a in blocks for b in blocks
    )
    form = case.kernel.diagonal_form(case.p, DOUBLE)
    assert (form is not None) == commute
    if form is not None:
        members = torch.cat([outputs for _, outputs in form.groups()])
        assert sorted(members.tolist()) == list(range(case.p))
        for weights, outputs in form.groups():
            for j in outputs:
                assert torch.equal(form.weights[:, j], weights)


def rotated(rotation: np.ndarray, *spectra: Any) -> list[Tensor]:
    return [tensor(rotation @ np.diag(values) @ rotation.T) for values in spectra]


def off_diagonal(vectors: Tensor, matrices: list[Tensor]) -> float:
    images = [vectors.mT @ A @ vectors for A in matrices]
    return max(float((M - torch.diag(M.diagonal())).abs().max()) for M in images)


@pytest.mark.parametrize(
    "spectra",
    [
        [(1.0, 2.0, 3.0, 4.0), (4.0, 1.0, 2.0, 0.0)],
        [(1.0, 1.0, 2.0, 2.0), (3.0, 5.0, 5.0, 5.0)],  # each has ties; together they have none
        [(1.0, 1.0, 1.0, 2.0), (5.0, 5.0, 0.0, 0.0)],  # a tie that both share
        [(1.0, 1.0, 1.0, 1.0), (0.0, 0.0, 0.0, 0.0)],
        [(1.0, 0.0, 0.5, 0.2), (0.3, 0.3, 1.0, 0.1), (0.5, 1.0, 0.2, 0.7)],  # 1·1 + 2·½ = 1·0 + 2·1
        [(1e-8, 2e-8, 0.0, 1e-8), (1e8, 1e8, 3e8, 2e8)],
        [(1.0, 2.0, 3.0, 4.0)],
    ],
)
def test_commuting_matrices_have_common_eigenvectors(
    spectra: list[tuple[float, ...]], rng: np.random.Generator
) -> None:
    for _ in range(5):
        rotation = np.linalg.qr(rng.standard_normal((4, 4)))[0]
        matrices = rotated(rotation, *spectra)
        vectors = common_eigenvectors(matrices)
        assert vectors is not None
        torch.testing.assert_close(vectors.mT @ vectors, torch.eye(4, dtype=torch.float64))
        assert off_diagonal(vectors, [A / A.abs().max().clamp(min=1e-300) for A in matrices]) < 1e-11


def test_the_weights_of_the_combination_make_no_ties(rng: np.random.Generator) -> None:
    """Commuting matrices with small integer eigenvalues: weights with simple relations would tie them together."""
    hadamard = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]) / 2.0
    for _ in range(200):
        spectra = rng.permuted(np.tile([0.0, 1.0, 1.0, 2.0], (3, 1)), axis=1)
        vectors = common_eigenvectors(rotated(hadamard, *spectra))
        assert vectors is not None
        assert off_diagonal(vectors, rotated(hadamard, *spectra)) < 1e-12


@pytest.mark.parametrize("size", [1.0, 1e-3, 1e-6, 1e-9])
def test_matrices_that_nearly_commute_do_not(size: float, rng: np.random.Generator) -> None:
    rotation = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    one, two = rotated(rotation, (1.0, 2.0, 4.0), (3.0, 1.0, 2.0))
    noise = tensor(rng.standard_normal((3, 3)))
    assert common_eigenvectors([one, two + size * (noise + noise.mT)]) is None


# -- values -----------------------------------------------------------------------------------------------------------
@every_case
def test_values(case: Case) -> None:
    kernel = case.kernel
    namespace = {**vars(kernels), **vars(operators), **globals()}
    if not any(callable(f) for f in getattr(kernel, "maps", [])) and "Callable" not in repr(kernel):
        assert eval(repr(kernel), namespace) == kernel
    assert pickle.loads(pickle.dumps(kernel)) == kernel
    copied = clone(kernel)
    assert copied == kernel
    assert copied is not kernel
    names, values = list(kernel.constraints()), kernel.hyperparameter_values()
    assert names == list(values)
    for name, value in values.items():
        other = kernel.replace({name: 2.0 * value})
        assert other != kernel
        torch.testing.assert_close(other.hyperparameter_values()[name], 2.0 * value)
        assert copied == kernel
        assert copied.set_params(**{name: (2.0 * value).numpy()}).numbers() == other.numbers()
        copied = clone(kernel)


def test_nested_parameters() -> None:
    kernel = Separate([Gaussian(1.0), Matern(1.5, 2.0)])
    assert kernel.get_params()["kernels__1__lengthscale"] == 2.0
    assert kernel.set_params(kernels__0__lengthscale=3.0) is kernel
    assert kernel == Separate([Gaussian(3.0), Matern(1.5, 2.0)])
    total = Decomposable(Gaussian(1.0), Diagonal([1.0, 2.0])) + Decomposable(2.0 * Gaussian(1.0))
    total.set_params(terms__1__kernel__kernel__lengthscale=5.0, terms__0__operator__weights=[3.0, 4.0])
    assert total == Decomposable(Gaussian(1.0), Diagonal([3.0, 4.0])) + Decomposable(2.0 * Gaussian(5.0))
    assert set(total.constraints()) == {
        "terms__0__kernel__lengthscale",
        "terms__0__operator__weights",
        "terms__1__kernel__scale",
        "terms__1__kernel__kernel__lengthscale",
    }
    with pytest.raises(ValueError, match="has no parameter 'terms__7__kernel'"):
        total.set_params(terms__7__kernel=Linear())
    with pytest.raises(ValueError, match="Gaussian has no parameter 'degree'"):
        kernel.set_params(kernels__0__degree=2)
    assert Transformable(Gaussian(1.0), MAPS).get_params()["kernel__lengthscale"] == 1.0


def test_free_names() -> None:
    kernel = Separate([Gaussian("auto"), Linear(), "auto" * Gaussian()]) + Decomposable(Gaussian("ard"))
    assert kernel.free() == [
        "terms__0__kernels__0__lengthscale",
        "terms__0__kernels__2__scale",
        "terms__1__kernel__lengthscale",
    ]


def test_resolve_leaves_the_kernel_alone() -> None:
    kernel = Separate([Gaussian("auto"), Gaussian()]) + Decomposable(Gaussian("ard"), Dense(np.eye(2)))
    kernel = kernel + Transformable(Gaussian(), [first_two, last_two])
    text = repr(kernel)
    resolved = kernel.resolve(POINTS)
    assert repr(kernel) == text
    assert resolved.free() == []
    assert resolved.resolve(10 * POINTS) == resolved
    assert resolved.terms[0].kernels[0] == Gaussian("auto").resolve(POINTS)
    # The images decide the lengthscale of a transformable kernel.
    images = np.concatenate([first_two(POINTS), last_two(POINTS)])
    assert resolved.terms[2].kernel.lengthscale == pytest.approx(naive.median_distance(images, 2))


def test_sums_are_written_as_they_print() -> None:
    a, b, c = CurlFree(1.0), DivergenceFree(2.0), CurlFree(3.0)
    assert repr(a + b + c) == "CurlFree(lengthscale=1.0) + DivergenceFree(lengthscale=2.0) + CurlFree(lengthscale=3.0)"
    for kernel in (
        a + b,
        a + b + c,
        a + (b + c),
        (a + b) + (b + c),
        OperatorSum([a]),
        OperatorSum([a + b, c]),
        OperatorSum([OperatorSum([a])]),
        OperatorSum([a, b + c]) + a,
    ):
        assert eval(repr(kernel), vars(operators)) == kernel
    for other in (1.0, Gaussian(1.0), None):
        for left in (a, a + b):
            with pytest.raises(TypeError):
                left + other


def test_packing_of_operators() -> None:
    """Raw parameters and back; every raw vector is admissible."""
    kernel = Decomposable(Gaussian([1.0, 2.0, 3.0]), Dense(MATRIX)) + Decomposable(Linear(), Diagonal([1.0, 0.5, 0.0]))
    names = list(kernel.constraints())
    pack, raw = kernel.packing(names)
    assert pack.size == len(raw) == 3 + 9 + 3
    back = kernel.replace(pack.unpack(raw)).numbers()
    torch.testing.assert_close(
        back.dense(tensor(POINTS), None, 3), kernel.dense(tensor(POINTS), None, 3), rtol=1e-10, atol=1e-12
    )
    for scale in (1.0, 100.0):
        noise = scale * torch.randn(len(raw), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        moved = kernel.replace(pack.unpack(raw + noise))
        moved.check_hyperparameters()
        assert bool(torch.isfinite(moved.dense(tensor(POINTS), None, 3)).all())
    singular = Dense(np.ones((3, 3)))
    pack, raw = singular.packing(["matrix"])
    np.testing.assert_allclose(pack.unpack(raw)["matrix"], np.ones((3, 3)), atol=1e-12)


def test_equality_is_of_contents() -> None:
    assert Dense(MATRIX) == Dense(MATRIX.tolist()) == Dense(tensor(MATRIX))
    assert Dense(MATRIX) != Dense(OTHER)
    assert Diagonal([1.0, 2.0]) != Diagonal([1.0, 2.0, 3.0])
    assert Identity() == Identity() != Covariance()
    assert Decomposable(Gaussian(1.0)) != Decomposable(Gaussian(1.0), Identity())  # as written
    assert CurlFree(1.0) != DivergenceFree(1.0)
    assert Transformable(Gaussian(1.0), MAPS) == Transformable(Gaussian(1.0), [S.tolist() for S in MAPS])
    assert Transformable(Gaussian(1.0), MAPS) != Transformable(Gaussian(1.0), MAPS[::-1])


# -- bad input --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("operator", "message"),
    [
        (Diagonal([1.0, 2.0]), r"shape \(2,\)\), but there are 3 outputs"),
        (Diagonal(np.ones((3, 1))), r"shape \(3, 1\)\), but there are 3 outputs"),
        (Diagonal([1.0, -2.0, 1.0]), "weights of Diagonal must not be negative"),
        (Diagonal([1.0, np.nan, 1.0]), "weights of Diagonal must not be negative, and finite"),
        (Diagonal("auto"), "weights of Diagonal must be a number"),
        (Dense(np.eye(2)), r"matrix of shape \(2, 2\), but there are 3 outputs"),
        (Dense([1.0, 2.0, 3.0]), "matrix of Dense must be a square matrix"),
        (Dense(np.ones((3, 2))), "matrix of Dense must be a square matrix"),
        (Dense([[1.0, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), "matrix of Dense must be symmetric"),
        (Dense([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), "must be positive semi-definite"),
        (Dense(np.full((3, 3), np.inf)), "matrix of Dense must be finite"),
        (Dense("learn"), "matrix of Dense must be a number"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_operators(operator: Operator, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        operator.resolve(tensor(TARGETS), None)
    with pytest.raises(ValueError, match=message):
        Decomposable(Gaussian(1.0), operator).dense(tensor(POINTS), None, 3)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (Decomposable(Gaussian(1.0), np.eye(3)), r"operator of Decomposable must be None.*A matrix A is Dense\(A\)"),
        (Decomposable("rbf"), "Decomposable is made from one or more kernels; got 'rbf'"),
        (Decomposable(Gaussian(-1.0)), "lengthscale of Gaussian must be positive"),
        (Separate([]), "Separate is made from one or more kernels; got none"),
        (Separate([Gaussian(1.0), "rbf"]), "Separate is made from one or more kernels; got 'rbf'"),
        (Separate([Gaussian(1.0), CurlFree(1.0)]), "Separate is made from one or more kernels; got CurlFree"),
        (Separate([Linear(), Callable(min)]), r"one kind of data; they take \['objects', 'vectors'\]"),
        (OperatorSum([]), "OperatorSum is made from one or more kernels; got none"),
        (OperatorSum([Gaussian(1.0)]), r"got Gaussian.*a scalar kernel k is Decomposable\(k\)"),
        (
            Decomposable(Linear()) + Decomposable(Precomputed()),
            r"The kernels of OperatorSum must take one kind of data; they take \['gram', 'vectors'\]",
        ),
        (Transformable(Callable(min), MAPS), "needs a kernel on vectors.*takes objects"),
        (Transformable(Gaussian(1.0), [np.eye(2)]), r"map of Transformable has shape \(2, 2\); expected \(q, 3\)"),
        (Transformable(Gaussian(1.0), [np.ones(3)]), r"shape \(3,\); expected \(q, 3\)"),
        (Transformable(Gaussian(1.0), []), "must give images of one shape"),
        (Transformable(Gaussian(1.0), [np.ones((1, 3)), np.ones((2, 3))]), r"they give \[\(8, 1\), \(8, 2\)\]"),
        (Transformable(Gaussian(1.0), [lambda X: X[:2]]), r"one shape \(8, q\); they give \[\(2, 3\)\]"),
        (Transformable(Gaussian(1.0), [lambda X: X / 0.0]), "The data contain NaN or infinity"),
        (CurlFree("medain"), "lengthscale of CurlFree must be a number or one of: 'median', 'auto'"),
        (CurlFree(0.0), "lengthscale of CurlFree must be positive"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_bad_kernels(kernel: OperatorKernel, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolved = kernel.resolve(POINTS)
        resolved.dense(resolved.prepare(POINTS), None, 3)


def test_a_divergence_needs_two_coordinates() -> None:
    with pytest.raises(ValueError, match="at least 2 features"):
        DivergenceFree(1.0).resolve(POINTS[:, :1])


def test_a_word_needs_data() -> None:
    for kernel in (CurlFree(), Decomposable(Gaussian()), Separate([Gaussian()] * 2)):
        with pytest.raises(ValueError, match=r"has no number yet.*resolve\(X\)"):
            kernel.dense(tensor(PLANE), None, 2)


def test_terms_disagree_on_the_number_of_outputs() -> None:
    kernel = Separate([Linear()] * 4) + CurlFree(1.0) + Decomposable(Linear())
    with pytest.raises(ValueError, match=r"different numbers of outputs: \[3, 4\]"):
        kernel.n_outputs(tensor(POINTS))
    assert (Separate([Linear()] * 3) + CurlFree(1.0)).n_outputs(tensor(POINTS)) == 3
    assert (Decomposable(Linear()) + Decomposable(Linear())).n_outputs(tensor(POINTS)) is None


def test_positions_are_checked() -> None:
    for kernel in (CurlFree(1.0), Transformable(Gaussian(1.0), MAPS), Decomposable(Linear())):
        with pytest.raises(ValueError, match="Expected a 2D array"):
            kernel.resolve([1.0, 2.0])
        with pytest.raises(ValueError, match="NaN or infinity"):
            kernel.resolve([[1.0, np.nan, 2.0]])


# -- the battery finds mistakes ---------------------------------------------------------------------------------------
class Forgetful(Decomposable):
    """apply leaves the operator out."""

    def apply(self, X: Any, anchors: Any, coefficients: Tensor) -> Tensor:
        return self.kernel._product(X, anchors, coefficients)


class Indefinite(Decomposable):
    def dense(self, X: Any, Y: Any | None, p: int) -> Tensor:
        return -super().dense(X, Y, p)


class Transposed(CurlFree):
    """A factor that breaks the symmetry in x and y."""

    def dense(self, X: Tensor, Y: Tensor | None, p: int) -> Tensor:
        return super().dense(X, Y, p) * (1.0 + X[:, :1]).repeat_interleave(p, 0)


class WrongDiagonal(CurlFree):
    def diag(self, X: Tensor, p: int) -> Tensor:
        return 2.0 * super().diag(X, p)


class WrongNorm(CurlFree):
    def squared_norm(self, anchors: Any, coefficients: Tensor) -> Tensor:
        return (coefficients**2).sum()


class WrongForm(Decomposable):
    def diagonal_form(self, p: int, like: Tensor) -> Any:
        return Decomposable(self.kernel).diagonal_form(p, like)


class Detached(CurlFree):
    """The gradient of apply is cut off."""

    def apply(self, X: Tensor, anchors: Tensor, coefficients: Tensor) -> Tensor:
        return super().apply(X, anchors, coefficients).detach()


class Meddler(CurlFree):
    def prepare(self, X: Any) -> Tensor:
        X += 1.0
        return super().prepare(X)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (Forgetful(Gaussian(1.0), Dense(MATRIX)), "apply is the product with K"),
        (Indefinite(Gaussian(1.0), Dense(MATRIX)), "not positive semi-definite"),
        (Transposed(1.0), "K\\(X\\) is symmetric"),
        (WrongDiagonal(1.0), "diag is the diagonal"),
        (WrongNorm(1.0), "squared_norm is that of"),
        (WrongForm(Gaussian(1.0), Dense(MATRIX)), "diagonal_form is the block matrix"),
        (Detached(1.0), "gradient in lengthscale of .* disagrees"),
        (Meddler(1.0), "has changed its input data"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, OperatorKernel) else "",
)
def test_the_battery_finds_mistakes(kernel: OperatorKernel, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_operator(kernel, POINTS.copy(), p=3)


# -- joint kernels ----------------------------------------------------------------------------------------------------
@every_case
def test_joint_kernels_are_the_inner_products_of_the_definition(case: Case) -> None:
    rng = np.random.default_rng(0)
    n, m = (len(x) for x in (case.X, case.Y))
    left, right = rng.normal(size=(n, case.p)), rng.normal(size=(m, case.p))
    blocks = no.block_matrix(case.oracle, case.X, case.Y).reshape(n, case.p, m, case.p)
    expected = [[left[i] @ blocks[i, :, j] @ right[j] for j in range(m)] for i in range(n)]
    joint = joint_kernel(case.kernel, case.X, left, case.Y, right)
    np.testing.assert_allclose(joint, expected, rtol=1e-9, atol=1e-11)


def test_tensor_product_and_diagonal_regularisation_of_the_paper() -> None:
    rng = np.random.default_rng(1)
    (X1, Y1), (X2, Y2) = ((rng.normal(size=(n, 4)), rng.normal(size=(n, 4))) for n in (5, 3))
    k, l = naive.gaussian(1.3), naive.gaussian(0.6)
    product = [[k(x, u) * l(y, v) for u, v in zip(X2, Y2, strict=True)] for x, y in zip(X1, Y1, strict=True)]
    ours = joint_kernel(Gaussian(1.3), X1, Y1, X2, Y2, output_kernel=Gaussian(0.6))
    np.testing.assert_allclose(ours, product, rtol=1e-12)
    regular = [
        [
            0.7 * k(x, u) * (y @ v) + 0.3 * sum(x[i] * u[i] * y[i] * v[i] for i in range(4))
            for u, v in zip(X2, Y2, strict=True)
        ]
        for x, y in zip(X1, Y1, strict=True)
    ]
    K = diagonal_regularization(Gaussian(1.3), 0.3)
    np.testing.assert_allclose(joint_kernel(K, X1, Y1, X2, Y2), regular, rtol=1e-12)
    # The same as an operator: ⟨K(x, x') y, y'⟩, in one coordinate after the other.
    blocks = K.dense(tensor(X1), tensor(X2), 4).reshape(5, 4, 3, 4).numpy()
    np.testing.assert_allclose(np.einsum("iajb,ia,jb->ij", blocks, Y1, Y2), regular, rtol=1e-12)


def test_the_joint_kernel_of_patches() -> None:
    X1, Y1, X2, Y2 = (np.random.default_rng(i).standard_normal((n, 12)) for i, n in enumerate((4, 4, 3, 3)))
    patches = square_patches(3, 4, size=2, step=1)
    assert len(patches) == 6
    k = naive.gaussian(1.3)
    expected = [
        [sum(k(x[w], u[w]) * (y[w] @ v[w]) for w in patches) for u, v in zip(X2, Y2, strict=True)]
        for x, y in zip(X1, Y1, strict=True)
    ]
    K = Patchwise(Gaussian(1.3), patches)
    np.testing.assert_allclose(joint_kernel(K, X1, Y1, X2, Y2), expected, rtol=1e-12)
    entries = np.concatenate([X1[:, w] for w in patches])
    assert Patchwise(Gaussian("median"), patches).resolve(X1).kernel == Gaussian("median").resolve(entries)
    with pytest.raises(ValueError, match="has the coordinate 11, but the samples have 6"):
        K.prepare(X1[:, :6])
    with pytest.raises(ValueError, match=r"patches of Patchwise must be an array \(n_patches, size\)"):
        Patchwise(Gaussian(1.0), [0, 1]).prepare(X1)


def test_joint_kernels_say_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="as many inputs as outputs; got 1 and 1 inputs, 2 and 1 outputs"):
        joint_kernel(Linear(), [[1.0]], [[1.0], [2.0]], [[1.0]], [[1.0]])
    with pytest.raises(ValueError, match="output_kernel= is for kernels k"):
        joint_kernel(diagonal_regularization(Linear(), 0.5), [[1.0]], ["a"], [[1.0]], ["a"], output_kernel=Delta())
    with pytest.raises(ValueError, match="weight must lie between 0 and 1; got 2"):
        diagonal_regularization(Linear(), 2)


def test_principal_components_are_a_projection() -> None:
    Y = tensor(np.random.default_rng(0).normal(size=(20, 4)) * [1.0, 3.0, 0.5, 2.0])
    A = PrincipalComponents(2).resolve(Y, None).as_matrix(4, Y)
    V = np.linalg.svd(Y.numpy())[2][:2].T
    np.testing.assert_allclose(A, V @ V.T, atol=1e-12)
    np.testing.assert_allclose(PrincipalComponents(9).resolve(Y, None).as_matrix(4, Y), np.eye(4), atol=1e-12)
    with pytest.raises(ValueError, match="n_components of PrincipalComponents must be a positive integer; got 0"):
        PrincipalComponents(0).resolve(Y, None)


def test_joint_kernels_of_unequal_widths() -> None:
    two, three = np.ones((4, 2)), np.ones((4, 3))
    for kernel in (Gaussian(1.0), CurlFree(1.0), diagonal_regularization(Linear(), 0.5)):
        with pytest.raises(ValueError, match="Y1 and Y2 must have as many columns; got 2 and 3"):
            joint_kernel(kernel, two, two, two, three)
        with pytest.raises(ValueError, match="X1 and X2 must have as many columns; got 2 and 3"):
            joint_kernel(kernel, two, two, three, two)
    with pytest.raises(ValueError, match="X1 and X2 must have as many columns"):
        joint_kernel(Linear(), two, ["a"] * 4, three, ["a"] * 4, output_kernel=Delta())
    for kernel in (CurlFree(1.0), diagonal_regularization(Linear(), 0.5)):
        with pytest.raises(ValueError, match="acts on vectors of 2 numbers; the outputs have 3"):
            joint_kernel(kernel, two, three, two, three)


# -- objects of which each kernel makes something else -----------------------------------------------------------------
SMILES = ["CCO", "CCN", "c1ccccc1", "CC(=O)O", "CCCl", "C1CCCCC1", "CC#N", "Cc1ccccc1", "OCCO"]
GRAPHS, MOLECULES = kernels.WeisfeilerLehman(2), kernels.Molecule()
BOTH = MOLECULES + GRAPHS
A2, B2 = Dense([[2.0, 1.0], [1.0, 2.0]]), Dense([[1.0, 0.2], [0.2, 3.0]])
# Each with the sum of k ⊗ A that it is.
OF_MOLECULES: dict[str, tuple[OperatorKernel, list[tuple[Kernel, Any]]]] = {
    "separate": (Separate([MOLECULES, GRAPHS]), [(MOLECULES, [[1, 0], [0, 0]]), (GRAPHS, [[0, 0], [0, 1]])]),
    "reversed": (Separate([GRAPHS, MOLECULES]), [(GRAPHS, [[1, 0], [0, 0]]), (MOLECULES, [[0, 0], [0, 1]])]),
    "sums in it": (Separate([BOTH, GRAPHS]), [(BOTH, [[1, 0], [0, 0]]), (GRAPHS, [[0, 0], [0, 1]])]),
    "sum": (Decomposable(MOLECULES, A2) + Decomposable(GRAPHS), [(MOLECULES, A2.matrix), (GRAPHS, np.eye(2))]),
    "coupled": (Decomposable(GRAPHS, A2) + Decomposable(MOLECULES, B2), [(GRAPHS, A2.matrix), (MOLECULES, B2.matrix)]),
    "three": (
        Decomposable(GRAPHS, A2) + Decomposable(BOTH) + Separate([GRAPHS, MOLECULES]),
        [(GRAPHS, A2.matrix), (BOTH, np.eye(2)), (GRAPHS, [[1, 0], [0, 0]]), (MOLECULES, [[0, 0], [0, 1]])],
    ),
    "one term": (OperatorSum([Separate([BOTH, BOTH])]), [(BOTH, np.eye(2))]),
}
of_molecules = pytest.mark.parametrize("name", OF_MOLECULES)


def molecules() -> list[Any]:
    return list(map(pytest.importorskip("rdkit.Chem").MolFromSmiles, SMILES))


@of_molecules
def test_each_kernel_takes_molecules_as_it_does_alone(name: str, rng: np.random.Generator) -> None:
    kernel, terms = OF_MOLECULES[name]
    raw, new = molecules(), molecules()[:4]
    expected = sum(np.kron(k(new, raw).numpy(), A) for k, A in terms)
    X, Y = kernel.prepare(raw), kernel.prepare(new)
    assert kernel.prepare(X) is X
    np.testing.assert_allclose(kernel.dense(Y, X, 2), expected, rtol=1e-12)
    coefficients = rng.standard_normal((len(raw), 2))
    np.testing.assert_allclose(
        kernel.apply(Y, X, tensor(coefficients)).reshape(-1), expected @ coefficients.reshape(-1), rtol=1e-10
    )
    np.testing.assert_allclose(kernel.diag(Y, 2), sum(np.outer(k.diag(new), np.diag(A)) for k, A in terms), rtol=1e-12)
    outputs = rng.standard_normal((len(raw), 2))
    joint = sum(k(new, raw).numpy() * (outputs[:4] @ A @ outputs.T) for k, A in terms)
    np.testing.assert_allclose(joint_kernel(kernel, new, outputs[:4], raw, outputs), joint, rtol=1e-10)
    form = kernel.diagonal_form(2, DOUBLE)
    assert (form is None) == (name == "coupled" or name == "three")
    if form is not None:
        by_form = sum(np.kron(k._gram(Y, X), form.operator(t)) for t, k in enumerate(form.kernels))
        np.testing.assert_allclose(by_form, expected, rtol=1e-12, atol=1e-12)


def test_words_of_kernels_on_molecules_get_their_numbers() -> None:
    kernel = Separate(["auto" * MOLECULES, "auto" * GRAPHS]) + Decomposable("auto" * GRAPHS)
    resolved = kernel.resolve(molecules())
    assert resolved == Separate([1.0 * MOLECULES, 1.0 * GRAPHS]) + Decomposable(1.0 * GRAPHS)


@of_molecules
def test_ridge_regression_of_molecules(name: str, rng: np.random.Generator, tmp_path: Path) -> None:
    kernel, terms = OF_MOLECULES[name]
    raw, targets = molecules(), rng.standard_normal((len(SMILES), 2))
    learner = OperatorRidge(kernel, alpha=0.5, fit_intercept=False).fit(raw, targets)
    gram = sum(np.kron(k(raw).numpy(), A) for k, A in terms)
    coefficients = np.linalg.solve(gram + 0.5 * len(raw) * np.eye(len(gram)), targets.reshape(-1))
    expected = sum(np.kron(k(raw[:3], raw).numpy(), A) for k, A in terms) @ coefficients
    np.testing.assert_allclose(learner.predict(raw[:3]).reshape(-1), expected, rtol=1e-8)
    learner.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(raw[:3]), learner.predict(raw[:3]))


def test_operators_of_a_sum_that_the_targets_decide(rng: np.random.Generator) -> None:
    raw, targets = molecules(), rng.standard_normal((len(SMILES), 2))
    learner = OperatorRidge(
        Decomposable(MOLECULES) + Decomposable(GRAPHS, ConditionalCovariance(0.1)), alpha=0.5, fit_intercept=False
    ).fit(raw, targets)
    expected = ConditionalCovariance(0.1).resolve(tensor(targets), GRAPHS(raw)).matrix
    np.testing.assert_allclose(learner.kernel_.terms[1].operator.matrix, expected, rtol=1e-10)
