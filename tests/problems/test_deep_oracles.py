"""The formulas of Bohn, Griebel & Rieger written out, against each other and against chains and objectives."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import naive_deep as nd
import numpy as np
import pytest
import torch
from naive_deep import Array, MatrixKernel, Pairwise
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from representer import DeepKernelRegressor
from representer.functions import Chain, Layer
from representer.kernels import Gaussian, Kernel, Linear, Polynomial, Pullback, TensorMatern
from representer.objectives import Interpolation, Ridge
from representer.operators import Dense, Diagonal, Operator, OperatorKernel, Separate, Transformable
from representer.testing import check_gradient

RNG = np.random.default_rng(3)
N, D = 10, 2
X, NEW = RNG.uniform(-1, 1, (N, 2)), RNG.uniform(-1, 1, (4, 2))
Y = 1 / (0.1 + np.abs(X[:, 0] - X[:, 1]))  # h₁ of section 4.2
ROOT = RNG.standard_normal((D, D))
FULL = ROOT @ ROOT.T
LAMBDA, MU, GAMMA = 0.3, 0.07, 0.2
# Through coefficients, a Gram matrix of condition 1e5 is inverted once and applied once.
CLOSE = {"rtol": 1e-8}

INNER: dict[str, MatrixKernel] = {
    "identity": nd.times(nd.polynomial(1), np.eye(D)),
    "diagonal": nd.times(nd.gaussian(0.5), np.diag([1.0, 0.3])),
    "dense": nd.times(nd.tensor_matern(2, 2), FULL),
    "mixture": nd.separate(nd.gaussian(0.5), nd.polynomial(2)),
}


def coefficients(*shapes: tuple[int, int], seed: int = 0, scale: float = 0.4) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [scale * rng.standard_normal(shape) for shape in shapes]


def block_gram(K: MatrixKernel, points: Array) -> Array:
    return np.block([[K(x, z) for z in points] for x in points])


# -- the oracles against each other -----------------------------------------------------------------------------------
def dot(u: Array, v: Array) -> float:
    return float(u @ v)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_linear_outer_kernel_learns_a_sum_of_kernels(seed: int) -> None:
    """RLS2: with w and g_m eliminated, λ‖w‖² + μ Σ_m ‖g_m‖² becomes the group lasso 2√(λμ) Σ_m ‖w_m g_m‖.

    Each problem is at most the other at a point made from it, for any point: so their minima are the same.
    """
    kernels = [nd.gaussian(0.5), nd.polynomial(1), nd.polynomial(2)]
    K, grams = nd.separate(*kernels), [nd.gram(k, X) for k in kernels]

    def norms(b: Array) -> Array:
        return np.sqrt([b_m @ gram @ b_m for b_m, gram in zip(b.T, grams, strict=True)])

    def group_lasso(b: Array) -> float:  # h_m = Σ_j b_jm k_m(x_j, ·)
        fit = sum(gram @ b_m for b_m, gram in zip(b.T, grams, strict=True))
        return float(np.sum((Y - fit) ** 2) + 2 * np.sqrt(LAMBDA * MU) * norms(b).sum())

    def reduced(c: Array) -> float:
        return nd.reg_objective(dot, K, X, Y, c, LAMBDA, MU)

    (c,) = coefficients((N, 3), seed=seed)
    Z = nd.evaluate([K], [c], X, X)[0]
    w = Z.T @ np.linalg.solve(Z @ Z.T + LAMBDA * np.eye(N), Y)
    assert group_lasso(c * w) <= reduced(c)
    (b,) = coefficients((N, 3), seed=seed + 10)
    balanced = (MU / LAMBDA) ** 0.25 * np.sqrt(norms(b))  # the w that splits h_m = w_m g_m at least cost
    assert reduced(b / balanced) <= group_lasso(b)


# -- what the paper prints and means ----------------------------------------------------------------------------------
@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_printed_matern_kernel_is_a_multiple_of_ours(order: int) -> None:
    """A factor s of the outer kernel turns (Reg) with λ into that with λ/s, and divides the data term of (Int) by s."""
    printed, scaled = nd.printed_tensor_matern(order), nd.tensor_matern(order, 2)
    s = printed(X[0], X[0])
    assert scaled(X[0], X[0]) == 1.0
    np.testing.assert_allclose(nd.gram(printed, X), s * TensorMatern(order, 1.0)(X).numpy(), rtol=1e-12)
    inner = INNER["identity"]
    (c,) = coefficients((N, D))
    np.testing.assert_allclose(
        nd.reg_objective(printed, inner, X, Y, c, LAMBDA, MU),
        nd.reg_objective(scaled, inner, X, Y, c, LAMBDA / s, MU),
        rtol=1e-9,
    )
    norm = nd.squared_norm(inner, X, c)
    np.testing.assert_allclose(
        nd.int_objective(printed, inner, X, Y, c) - norm,
        (nd.int_objective(scaled, inner, X, Y, c) - norm) / s,
        rtol=1e-7,
    )
    assert order != 1 or np.isclose(s, np.pi / 2)


@pytest.mark.parametrize("sigma", [0.1, 3.0])
def test_the_width_of_the_outer_kernel_is_the_inner_penalty(sigma: float) -> None:
    """The problem with σ and μ is the problem with 1 and μσ²: inner functions form a vector space."""
    (c,) = coefficients((N, D))
    for inner in INNER.values():
        np.testing.assert_allclose(
            nd.reg_objective(nd.gaussian(sigma), inner, X, Y, sigma * c, LAMBDA, MU),
            nd.reg_objective(nd.gaussian(1.0), inner, X, Y, c, LAMBDA, MU * sigma**2),
            rtol=1e-10,
        )


# -- chains and objectives of the library ------------------------------------------------------------------------------
@dataclass(frozen=True)
class Case:
    """Layers of the library and their definitions."""

    layers: Sequence[Layer]
    kernels: Sequence[MatrixKernel]
    outer: Kernel
    k: Pairwise

    @property
    def chain(self) -> Chain:
        return Chain(self.layers, X)

    @property
    def mus(self) -> list[float]:
        """μ_l, a different one for each inner layer."""
        return [MU * (l + 1) for l in range(len(self.layers))]


def layer(kernel: Kernel | OperatorKernel, size: int, operator: Operator | None = None) -> Layer:
    return Layer(kernel=kernel, size=size, operator=operator)


AFFINE = layer(Polynomial(1), D), nd.times(nd.polynomial(1), np.eye(D))
QUADRATIC = layer(Polynomial(2), D, Diagonal([1.0, 0.3])), nd.times(nd.polynomial(2), np.diag([1.0, 0.3]))
SMOOTH = layer(Gaussian(0.4), D, Dense(FULL)), nd.times(nd.gaussian(0.4), FULL)
ROUGH = layer(TensorMatern(2, 1.0), D), nd.times(nd.tensor_matern(2, D), np.eye(D))
WIDE = (
    layer(TensorMatern(1, 1.0), 3, Dense(np.diag([1.0, 2.0, 3.0]))),
    nd.times(nd.tensor_matern(1, D), np.diag([1.0, 2.0, 3.0])),
)
MIXED = layer(Separate([Gaussian(0.4), Polynomial(2)]), D), nd.separate(nd.gaussian(0.4), nd.polynomial(2))
ROUGH_MIXED = (
    layer(Separate([Gaussian(0.4), TensorMatern(1, 1.0)]), D),
    nd.separate(nd.gaussian(0.4), nd.tensor_matern(1, D)),
)
MAPS = RNG.standard_normal((D, 2, 2))
COUPLED = (
    layer(Transformable(Gaussian(0.4), list(MAPS)), D),
    lambda x, y: np.array([[nd.gaussian(0.4)(m @ x, o @ y) for o in MAPS] for m in MAPS]),
)
MATERN, GAUSS = (TensorMatern(1, 1.0), nd.tensor_matern(1, D)), (Gaussian(0.3), nd.gaussian(0.3))
WIDE_MATERN = TensorMatern(1, 1.0), nd.tensor_matern(1, 3)


def case(outer: tuple[Kernel, Pairwise], *parts: tuple[Layer, MatrixKernel]) -> Case:
    return Case([part for part, _ in parts], [K for _, K in parts], *outer)


CASES = {
    "affine, Matérn": case(MATERN, AFFINE),
    "quadratic with weights, Gaussian": case(GAUSS, QUADRATIC),
    "Gaussian with a dense operator, Matérn": case(MATERN, SMOOTH),
    "Matérn, Gaussian": case(GAUSS, ROUGH),
    "mixture, Matérn": case(MATERN, MIXED),
    "coupled outputs, Matérn": case(MATERN, COUPLED),
    "three layers: affine, Gaussian": case(MATERN, AFFINE, SMOOTH),
    "three layers: quadratic, Matérn of three outputs": case(WIDE_MATERN, QUADRATIC, WIDE),
    "three layers: mixture, mixture": case(MATERN, MIXED, ROUGH_MIXED),
    "three layers: affine, coupled outputs": case(MATERN, AFFINE, COUPLED),
}
CHAINS = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
FIRST_LAYERS = {"affine": AFFINE, "quadratic": QUADRATIC, "dense operator": SMOOTH, "mixture": MIXED}


def random_coordinates(chain: Chain, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 0.7 * torch.randn(chain.size, generator=generator, dtype=torch.float64)


def paper_coefficients(chain: Chain, flat: Tensor) -> list[Array]:
    """The N × d_l coefficients of every layer: zero for the points that are not its anchors."""
    theta = chain.split(flat)
    found = []
    points = X
    for function, image in zip(chain.expansions(theta), chain.images(theta), strict=True):
        anchors, c = (part.detach().numpy() for part in (function.anchors, function.coefficients))
        rows = [int(np.argmin(np.sum((points - z) ** 2, axis=1))) for z in anchors]
        assert len(set(rows)) == len(rows)
        np.testing.assert_allclose(points[rows], anchors, atol=1e-7)
        spread = np.zeros((N, c.shape[1]))
        spread[rows] = c
        found.append(spread)
        points = image.detach().numpy()
    return found


def coordinates_of(chain: Chain, values: Array) -> Tensor:
    """The coordinates of the function of least norm in the span of a chain of one layer with these values."""
    units = torch.eye(chain.size, dtype=torch.float64)
    basis = torch.stack([chain.images(chain.split(unit))[0].reshape(-1) for unit in units], 1)
    return torch.from_numpy(np.linalg.lstsq(basis.numpy(), values.reshape(-1), rcond=1e-9)[0])


def library_value(
    case: Case, objective: Callable[..., Tensor], mus: Sequence[float], *, points: bool = False
) -> Callable[[Tensor], Tensor]:
    """objective(outer Gram matrix) + Σ μ_l ‖Θ_l‖², a function of the flat coordinates."""
    chain = case.chain

    def function(flat: Tensor) -> Tensor:
        theta = chain.split(flat)
        Z = chain.images(theta)[-1]
        data = objective(case.outer(Z), points=Z) if points else objective(case.outer(Z))
        return data + (chain.squared_norms(theta) * torch.tensor(mus, dtype=torch.float64)).sum(-1)

    return function


def literal(case: Case, chain: Chain, flat: Tensor) -> tuple[Array, list[float]]:
    """The outer Gram matrix at the images and the norms of the inner layers, from coefficients by loops."""
    cs = paper_coefficients(chain, flat)
    M = nd.gram(case.k, nd.evaluate(case.kernels, cs, X, X)[-1])
    return M, nd.squared_norms(case.kernels, cs, X)


@CHAINS
def test_images_norms_and_new_points(case: Case) -> None:
    chain = case.chain
    flat = random_coordinates(chain)
    theta = chain.split(flat)
    cs = paper_coefficients(chain, flat)
    for points, images in ((X, chain.images(theta)), (NEW, chain.evaluate(theta, NEW))):
        for image, expected in zip(images, nd.evaluate(case.kernels, cs, X, points), strict=True):
            np.testing.assert_allclose(image, expected, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(chain.squared_norms(theta), nd.squared_norms(case.kernels, cs, X), rtol=1e-7)


def test_a_later_layer_of_low_rank() -> None:
    """Its coordinates may be redundant, so that only their images are determined, to the root of the rounding."""
    case_ = case(MATERN, SMOOTH, AFFINE)
    chain = case_.chain
    flat = random_coordinates(chain)
    images = chain.images(chain.split(flat))
    expected = nd.evaluate(case_.kernels, paper_coefficients(chain, flat), X, X)
    for image, other in zip(images, expected, strict=True):
        np.testing.assert_allclose(image, other, rtol=1e-5, atol=1e-5)


@CHAINS
@pytest.mark.parametrize("seed", [0, 1])
def test_ridge_on_a_chain_is_the_regression_objective(case: Case, seed: int) -> None:
    """n times the library's value is (19) and (Reg), with λ = n·alpha and μ_l = n·alpha_l."""
    chain = case.chain
    flat = random_coordinates(chain, seed)
    ours = N * library_value(case, Ridge(Y, alpha=LAMBDA / N), [mu / N for mu in case.mus])(flat)
    M, norms = literal(case, chain, flat)
    penalty = sum(mu * norm for mu, norm in zip(case.mus, norms, strict=True))
    np.testing.assert_allclose(ours, nd.equation_19(M, Y, LAMBDA, 1.0, penalty), **CLOSE)
    if len(case.layers) == 1:
        (c,) = paper_coefficients(chain, flat)
        reg = nd.reg_objective(case.k, case.kernels[0], X, Y, c, LAMBDA, case.mus[0])
        np.testing.assert_allclose(ours, reg, **CLOSE)


@CHAINS
def test_interpolation_on_a_chain_is_the_interpolation_objective(case: Case) -> None:
    chain = case.chain
    flat = random_coordinates(chain)
    ones = [1.0] * len(case.layers)
    plain = library_value(case, Interpolation(Y), ones)(flat)
    kept_apart = library_value(case, Interpolation(Y, separation=GAMMA), ones, points=True)(flat)
    M, norms = literal(case, chain, flat)
    expected = Y @ np.linalg.solve(M, Y) + sum(norms)
    np.testing.assert_allclose(plain, expected, **CLOSE)
    images = chain.images(chain.split(flat))[-1].numpy()
    np.testing.assert_allclose(kept_apart, expected + nd.coth_penalty(images, GAMMA), **CLOSE)
    if len(case.layers) == 1:
        (c,) = paper_coefficients(chain, flat)
        (K,) = case.kernels
        np.testing.assert_allclose(plain, nd.int_objective(case.k, K, X, Y, c), **CLOSE)
        penalised = nd.separated_int_objective(case.k, K, X, Y, c, GAMMA)
        np.testing.assert_allclose(kept_apart, penalised, **CLOSE)


@CHAINS
def test_gradients_are_differences_of_the_literal_objective(case: Case) -> None:
    """The closed-form gradient in orthonormal coordinates against differences of (19) through coefficients."""
    chain = case.chain
    flat = random_coordinates(chain).requires_grad_()
    ours = library_value(case, Ridge(Y, alpha=LAMBDA / N), [mu / N for mu in case.mus])
    (gradient,) = torch.autograd.grad(N * ours(flat), flat)

    def expected(point: Tensor) -> float:
        M, norms = literal(case, chain, point)
        penalty = sum(mu * norm for mu, norm in zip(case.mus, norms, strict=True))
        return nd.equation_19(M, Y, LAMBDA, 1.0, penalty)

    step = 1e-4
    for seed in range(2):
        direction = random_coordinates(chain, 20 + seed)
        direction /= direction.norm()
        with torch.no_grad():
            up, down = expected(flat + step * direction), expected(flat - step * direction)
        slope = float(gradient @ direction)
        np.testing.assert_allclose(slope, (up - down) / (2 * step), rtol=1e-5, atol=1e-5 * float(gradient.norm()))
    for objective, points in ((Interpolation(Y), False), (Interpolation(Y, separation=GAMMA), True)):
        value = library_value(case, objective, [1.0] * len(case.layers), points=points)
        check_gradient(value, flat.detach(), "the coordinates")


def test_a_batch_of_restarts_is_a_loop_over_literal_objectives() -> None:
    case = CASES["quadratic with weights, Gaussian"]
    chain = case.chain
    flats = torch.stack([random_coordinates(chain, seed) for seed in range(3)])
    ours = N * library_value(case, Ridge(Y, alpha=LAMBDA / N), [MU / N])(flats)
    (K,) = case.kernels
    expected = [nd.reg_objective(case.k, K, X, Y, paper_coefficients(chain, flat)[0], LAMBDA, MU) for flat in flats]
    np.testing.assert_allclose(ours, expected, **CLOSE)


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("n", [10, 100])
def test_an_affine_layer_on_the_plane_has_three_unknowns_for_each_output(size: int, n: int) -> None:
    """The paper counts N·D; the span has dimension 3·D, so that the Gram matrix of (18) is singular."""
    points = np.random.default_rng(0).uniform(-1, 1, (n, 2))
    chain = Chain([layer(Polynomial(1), size)], points)
    assert chain.shapes == [(3, size)]
    assert np.linalg.matrix_rank(nd.gram(nd.polynomial(1), points)) == 3


def test_every_coefficient_vector_has_coordinates() -> None:
    """Coordinates lose no function: any c has a Θ with the same images, norm and objective."""
    case = CASES["affine, Matérn"]
    chain = case.chain
    (K,) = case.kernels
    (c,) = coefficients((N, D))
    values = nd.evaluate([K], [c], X, X)[0]
    flat = coordinates_of(chain, values)
    np.testing.assert_allclose(chain.images(chain.split(flat))[0], values, rtol=1e-7)
    np.testing.assert_allclose(flat @ flat, nd.squared_norm(K, X, c), rtol=1e-9)
    ours = N * library_value(case, Ridge(Y, alpha=LAMBDA / N), [MU / N])(flat)
    np.testing.assert_allclose(ours, nd.reg_objective(case.k, K, X, Y, c, LAMBDA, MU), **CLOSE)


def test_the_deep_kernel_is_a_pullback() -> None:
    case = CASES["three layers: affine, Gaussian"]
    chain = case.chain
    flat = random_coordinates(chain)
    kernel = Pullback(case.outer, lambda points: chain.evaluate(chain.split(flat), points)[-1])
    k = nd.deep_kernel(case.k, case.kernels, paper_coefficients(chain, flat), X)
    np.testing.assert_allclose(kernel(NEW, X), nd.gram(k, NEW, X), rtol=1e-6)


def test_a_linear_outer_kernel() -> None:
    """Section 4.2.3: the outer kernel xᵀy, as in RLS2."""
    chain = Chain([AFFINE[0]], X)
    flat = random_coordinates(chain)
    (c,) = paper_coefficients(chain, flat)

    theta = chain.split(flat)
    ours = N * Ridge(Y, alpha=LAMBDA / N)(Linear()(chain.images(theta)[-1])) + MU * chain.squared_norms(theta)[0]
    np.testing.assert_allclose(ours, nd.reg_objective(dot, AFFINE[1], X, Y, c, LAMBDA, MU), **CLOSE)


@CHAINS
def test_the_regression_objective_is_the_least_value_over_outer_functions(case: Case) -> None:
    """n times the library's value is the least value of (7) over the outer coefficients, at (M + λI)⁻¹y."""
    chain = case.chain
    flat = random_coordinates(chain)
    ours = float(N * library_value(case, Ridge(Y, alpha=LAMBDA / N), [mu / N for mu in case.mus])(flat))
    cs = paper_coefficients(chain, flat)
    M, _ = literal(case, chain, flat)
    solution = np.linalg.solve(M + LAMBDA * np.eye(N), Y)

    def composed(a: Array) -> float:
        return nd.general(
            [*case.kernels, nd.times(case.k, [[1.0]])],
            [*cs, a[:, None]],
            X,
            loss=lambda values: float(np.sum((Y - values[:, 0]) ** 2)),
            penalties=[*(lambda t, mu=mu: mu * t for mu in case.mus), lambda t: LAMBDA * t],
        )

    np.testing.assert_allclose(ours, composed(solution), **CLOSE)
    for seed in range(3):
        assert composed(solution + 0.01 * np.random.default_rng(seed).standard_normal(N)) > ours


@pytest.mark.parametrize("name", ["affine, Matérn", "mixture, Matérn", "coupled outputs, Matérn"])
def test_interpolation_is_the_limit_of_regression(name: str) -> None:
    """(Reg)/λ with μ = λ → 0 is (Int), whose outer function is the interpolant of least norm."""
    case = CASES[name]
    chain = case.chain
    flat = random_coordinates(chain)
    exact = float(library_value(case, Interpolation(Y), [1.0])(flat))
    gaps = [
        float(N * library_value(case, Ridge(Y, alpha=s / N), [s / N])(flat)) / s / exact - 1 for s in (1e-4, 1e-5, 1e-6)
    ]
    assert -1e-2 < gaps[0] < gaps[1] < gaps[2] < 0
    np.testing.assert_allclose(gaps[1] / gaps[2], 10.0, rtol=0.05)  # the first order in λ

    (c,), (K,) = paper_coefficients(chain, flat), case.kernels
    Z = nd.evaluate([K], [c], X, X)[0]
    a = np.linalg.solve(nd.gram(case.k, Z), Y)
    scalar = nd.times(case.k, [[1.0]])
    np.testing.assert_allclose(nd.evaluate([scalar], [a[:, None]], Z, Z)[0][:, 0], Y, rtol=1e-8)
    np.testing.assert_allclose(sum(nd.squared_norms([K, scalar], [c, a[:, None]], X)), exact, **CLOSE)


@pytest.mark.parametrize("first", FIRST_LAYERS.values(), ids=FIRST_LAYERS)
def test_projecting_every_layer_on_its_span_changes_no_value_and_lowers_every_norm(
    first: tuple[Layer, MatrixKernel],
) -> None:
    """Theorem 1 and (8) for L = 3: functions with anchors anywhere, projected on Ṽ_l, are functions of a chain."""
    rng = np.random.default_rng(1)
    Z = X
    for part, K in (first, ROUGH, (layer(Gaussian(0.8), 1), nd.times(nd.gaussian(0.8), [[1.0]]))):
        anywhere, c = rng.standard_normal((5, 2)), rng.standard_normal((5, part.size))
        values = np.array([nd.value(K, anywhere, c, z) for z in Z])
        # The projection interpolates the values with least norm; a singular Gram matrix spans fewer directions.
        projected = np.linalg.lstsq(block_gram(K, Z), values.reshape(-1), rcond=1e-12)[0].reshape(-1, part.size)
        norm = nd.squared_norm(K, Z, projected)
        assert norm <= nd.squared_norm(K, anywhere, c) * (1 + 1e-9)
        chain = Chain([part], Z)
        flat = coordinates_of(chain, values)
        np.testing.assert_allclose(chain.images(chain.split(flat))[0], values, atol=1e-6)
        np.testing.assert_allclose(chain.squared_norms(chain.split(flat))[0], norm, rtol=1e-4)
        Z = values


def test_the_composition_is_an_expansion_in_the_deep_kernel() -> None:
    """h = Σ_j α_j 𝒦(x_j, ·) with the 𝒦 of a fitted regressor, which for two layers is (11)."""
    options = {"alpha": 1e-2, "fit_intercept": False, "n_restarts": 1, "max_iter": 5, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = DeepKernelRegressor([Layer(MIXED[0].kernel, D, 1e-2)], Gaussian(0.3), **options).fit(X, Y)
    inner, outer = nd.functions_of(model)
    anchors, c = inner.anchors.numpy(), inner.coefficients.numpy()

    def equation_11(x: Array, y: Array) -> float:
        of_x, of_y = np.zeros(D), np.zeros(D)
        for z, c_i in zip(anchors, c, strict=True):
            for ell in range(D):
                of_x += c_i[ell] * MIXED[1](z, x)[:, ell]
                of_y += c_i[ell] * MIXED[1](z, y)[:, ell]
        return nd.gaussian(0.3)(of_x, of_y)

    np.testing.assert_allclose(model.deep_kernel_(NEW, X), nd.gram(equation_11, NEW, X), rtol=1e-9)
    alpha = np.linalg.solve(nd.gram(equation_11, X) + N * 1e-2 * np.eye(N), Y)
    np.testing.assert_allclose(outer.coefficients[:, 0], alpha, rtol=1e-6)
    np.testing.assert_allclose(model.predict(NEW), nd.gram(equation_11, NEW, X) @ alpha, rtol=1e-7)


def test_multilayer_multiple_kernel_learning() -> None:
    """Section 3.3.2: a(|Σ_i ν_i (K₂(x_i, x) − K₂(x_i, y))|) is the deep kernel for D = 1 and c = ν."""
    chain, k2 = Chain([layer(Polynomial(2), 1)], X), nd.polynomial(2)
    flat = random_coordinates(chain)
    (nu,) = paper_coefficients(chain, flat)

    def mlmkl(x: Array, y: Array) -> float:
        inner = sum(float(v) * (k2(x_i, x) - k2(x_i, y)) for v, x_i in zip(nu[:, 0], X, strict=True))
        return float(np.exp(-abs(inner)))

    kernel = Pullback(TensorMatern(1, 1.0), lambda points: chain.evaluate(chain.split(flat), points)[-1])
    np.testing.assert_allclose(kernel(NEW, X), nd.gram(mlmkl, NEW, X), rtol=1e-8)


def test_the_norm_belongs_to_the_kernel_with_the_data_on_the_right() -> None:
    """For K(x, y) = Φ(x)Φ(y)ᵀ the function of w = Σ_j Φ(x_j)ᵀc_j is x ↦ Φ(x)w, of squared norm ‖w‖²."""

    def features(x: Array) -> Array:
        return np.stack([m @ x for m in MAPS])  # D × 2

    def K(x: Array, y: Array) -> Array:
        return features(x) @ features(y).T

    chain = Chain([layer(Transformable(Linear(), list(MAPS)), D)], X)
    theta = chain.split(random_coordinates(chain))
    (c,) = paper_coefficients(chain, random_coordinates(chain))
    w = sum(features(x).T @ c_j for x, c_j in zip(X, c, strict=True))
    assert not np.allclose(K(X[0], X[1]), K(X[0], X[1]).T)
    np.testing.assert_allclose(nd.squared_norm(K, X, c), w @ w, rtol=1e-8)
    np.testing.assert_allclose(chain.squared_norms(theta)[0], w @ w, rtol=1e-8)
    np.testing.assert_allclose(chain.evaluate(theta, NEW)[0], [features(x) @ w for x in NEW], rtol=1e-8)
    as_printed = sum(K(x, NEW[0]) @ c_j for x, c_j in zip(X, c, strict=True))
    assert not np.allclose(as_printed, features(NEW[0]) @ w, rtol=0.1)


@CHAINS
def test_the_value_of_the_regression_objective_cannot_choose_the_penalties(case: Case) -> None:
    """It grows with λ and with μ at every point, so its minimum does: section 4.2.2 must mean the validation error."""
    flat, grid = random_coordinates(case.chain), 2.0 ** np.array([-9, -5, -1])
    values = np.array(
        [[float(library_value(case, Ridge(Y, alpha=a), [b] * len(case.layers))(flat)) for b in grid] for a in grid]
    )
    assert bool((np.diff(values, axis=0) > 0).all())
    assert bool((np.diff(values, axis=1) > 0).all())


@CHAINS
def test_a_loss_of_intermediate_values_and_a_penalty_of_all_norms_together(case: Case) -> None:
    """What 3.1 allows beyond (7), as an objective of one's own on a chain: its value by loops, and its gradient."""
    chain = case.chain

    def objective(flat: Tensor) -> Tensor:
        theta = chain.split(flat)
        images = chain.images(theta)
        spread = sum((image**2).mean() for image in images)
        return Ridge(Y, alpha=LAMBDA)(case.outer(images[-1])) + spread + chain.squared_norms(theta).prod().sqrt()

    flat = random_coordinates(chain)
    M, norms = literal(case, chain, flat)
    images = nd.evaluate(case.kernels, paper_coefficients(chain, flat), X, X)
    expected = LAMBDA * Y @ np.linalg.solve(M + N * LAMBDA * np.eye(N), Y)
    expected += sum(np.mean(image**2) for image in images) + np.sqrt(np.prod(norms))
    np.testing.assert_allclose(objective(flat), expected, rtol=1e-7)
    check_gradient(objective, flat, "the coordinates")


def test_one_point_and_linear_kernels_have_an_objective_that_is_not_convex() -> None:
    """Figure 4 and A.4 of Laforgue et al.: P(φ, ψ) of one point at 1, its decoder eliminated.

    The decoder y ↦ φψy has the squared norm φ²ψ², which the paper prints as ψ².
    """
    alpha, encoder_alpha = 0.2, 0.1
    chain, psi = Chain([layer(Linear(), 1)], np.ones((1, 1))), np.linspace(-3, 9, 120_001)

    def value(phi: float) -> float:
        flat = torch.tensor([phi], dtype=torch.float64)
        (Z,) = chain.images(chain.split(flat))
        assert abs(float(Z)) == pytest.approx(abs(phi))
        norm = chain.squared_norms(chain.split(flat))[0]
        return float(Ridge(np.ones(1), alpha=alpha)(Linear()(Z)) + encoder_alpha * norm)

    for phi in (-1.2, -0.5, 0.0, 0.5, 0.9, 2.0):
        P = (1 - phi**2 * psi) ** 2 + encoder_alpha * phi**2 + alpha * phi**2 * psi**2
        assert value(phi) == pytest.approx(P.min(), abs=1e-7)
    assert value(0.0) == pytest.approx(1.0)
    assert value(-1.0) == pytest.approx(value(1.0)) and value(1.0) < alpha + encoder_alpha < value(0.0)


# -- the learned kernel in scikit-learn -------------------------------------------------------------------------------
def test_the_deep_kernel_serves_scikit_learn() -> None:
    from sklearn.base import clone
    from sklearn.decomposition import KernelPCA
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel
    from sklearn.svm import SVC

    from representer.estimators import GaussianProcessKernel

    rng = np.random.default_rng(0)
    X = rng.normal(size=(25, 3))
    y = np.sin(X[:, 0])
    model = DeepKernelRegressor([Layer(Polynomial(1), 2, 1e-3)], alpha=1e-3, fit_intercept=False).fit(X, y)
    k = model.deep_kernel_
    gram = k(X).numpy()
    pairs, whole = KernelPCA(2, kernel=k).fit(X), KernelPCA(2, kernel="precomputed").fit(gram)
    np.testing.assert_allclose(np.abs(pairs.transform(X)), np.abs(whole.transform(gram)), atol=1e-10)
    machine, other = SVC(kernel=k).fit(X, y > 0), SVC(kernel="precomputed").fit(gram, y > 0)
    np.testing.assert_allclose(machine.decision_function(X), other.decision_function(gram), atol=1e-8)
    process = GaussianProcessRegressor(GaussianProcessKernel(k), alpha=25 * 1e-3, optimizer=None)
    np.testing.assert_allclose(clone(process).fit(X, y).predict(X), model.predict(X), atol=1e-8)
    scaled = GaussianProcessRegressor(ConstantKernel(1.0, (1e-2, 1e2)) * GaussianProcessKernel(k), alpha=1e-3)
    assert scaled.fit(X, y).score(X, y) > 0.9
