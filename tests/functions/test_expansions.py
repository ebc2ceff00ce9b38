"""Functions in a reproducing kernel Hilbert space, and chains of them in orthonormal coordinates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from operator_cases import CASES, NEW_WORDS, WORDS, Case, common_letters
from torch import Tensor

import naive
from representer import OperatorRidge
from representer.functions import Chain, Composed, Expansion, Layer
from representer.kernels import Callable, Delta, Gaussian, Kernel, Laplacian, Linear, Matern, Polynomial, Precomputed
from representer.linalg import resources as memory
from representer.operators import (
    Covariance,
    CurlFree,
    Decomposable,
    Dense,
    Diagonal,
    Identity,
    Operator,
    Representation,
    Separate,
)
from representer.testing import check_gradient

DOUBLE = torch.float64
RNG = np.random.default_rng(5)
X, NEW = RNG.standard_normal((12, 2)), RNG.standard_normal((5, 2))
ROOT = RNG.standard_normal((2, 2))
FULL = ROOT @ ROOT.T
SINGULAR = np.array([[4.0, 2.0], [2.0, 1.0]])
EXACT = {"rtol": 1e-8, "atol": 1e-9}


def tensor(values: Any) -> Tensor:
    return torch.tensor(np.asarray(values), dtype=DOUBLE)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


# -- expansions -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_expansion_is_its_sum(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    c = case.targets
    f = Expansion(case.kernel, case.data, tensor(c))
    expected = [sum(case.oracle(x, z) @ c_j for z, c_j in zip(case.X, c, strict=True)) for x in case.Y]
    np.testing.assert_allclose(f(case.Y), expected, **EXACT)
    norm = sum(
        c_i @ case.oracle(x, z) @ c_j
        for x, c_i in zip(case.X, c, strict=True)
        for z, c_j in zip(case.X, c, strict=True)
    )
    np.testing.assert_allclose(f.squared_norm(), norm, **EXACT)
    whole = f(case.X)
    monkeypatch.setattr(memory, "BLOCK_BYTES", 3 * c.size * 8)
    assert len(list(memory.row_blocks(8, c.size * 8))) == 3
    torch.testing.assert_close(f(case.X), whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_contributions_of_anchors(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every term is the function of one anchor alone, however few rows a block has."""
    n = len(case.data)
    c = torch.from_numpy(RNG.normal(size=(n, case.p)))
    f = Expansion(case.kernel, case.data, c, torch.arange(case.p, dtype=DOUBLE))
    monkeypatch.setattr(memory, "BLOCK_BYTES", 1)
    terms = f.contributions(case.new)
    assert terms.shape == (len(case.new), n, case.p)
    torch.testing.assert_close(terms.sum(1) + f.intercept, f(case.new))
    for j in (0, n - 1):
        single = torch.zeros_like(c)
        single[j] = c[j]
        torch.testing.assert_close(terms[:, j], Expansion(case.kernel, case.data, single)(case.new))


@pytest.mark.parametrize("case", [c for c in CASES if c.kernel.domain == "vectors"], ids=lambda case: case.name)
def test_gradients_in_the_inputs(case: Case) -> None:
    f = Expansion(case.kernel, case.data, tensor(case.targets))
    weights = random(len(case.Y), case.p)
    check_gradient(lambda Z: (weights * f(Z)).sum(), tensor(case.Y), "X")


def test_gradients_in_the_coefficients_pass_through_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "BLOCK_BYTES", 5 * 24 * 8)
    kernel = Decomposable(Gaussian(1.0), Dense(FULL))
    check_gradient(lambda c: (Expansion(kernel, tensor(X), c)(NEW) ** 2).sum(), random(12, 2), "the coefficients")


def test_a_batch_of_inputs() -> None:
    f = Expansion(Decomposable(Gaussian(1.0), Dense(FULL)), tensor(X), random(12, 2))
    batch = random(3, 5, 2, seed=1)
    torch.testing.assert_close(f(batch), torch.stack([f(member) for member in batch]))


def test_new_inputs_take_the_precision_of_the_function() -> None:
    f = Expansion(Decomposable(Gaussian(1.0)), tensor(X).float(), random(12, 2).float())
    assert f(NEW).dtype == torch.float32
    exact = Expansion(Decomposable(Gaussian(1.0)), tensor(X), random(12, 2))
    torch.testing.assert_close(f(NEW).double(), exact(tensor(NEW).float()), rtol=1e-4, atol=1e-4)


def test_bad_inputs() -> None:
    f = Expansion(Decomposable(Gaussian(1.0)), tensor(X), random(12, 2))
    with pytest.raises(ValueError, match="X has 3 features, but Y has 2"):
        f(np.ones((4, 3)))
    with pytest.raises(ValueError, match="NaN or infinity"):
        f([[np.nan, 0.0]])
    given = Expansion(Decomposable(Precomputed()), torch.eye(3, dtype=DOUBLE), random(3, 1))
    with pytest.raises(ValueError, match="has 2 columns, but 3 samples were used for fitting"):
        given(np.ones((4, 2)))


# -- chains -----------------------------------------------------------------------------------------------------------
def coordinates_of(chain: Chain, seed: int = 0, scale: float = 0.5) -> list[Tensor]:
    return chain.split(scale * random(chain.size, seed=seed))


THREE_LAYERS = [
    Layer(Matern(0.5, 1.0), 2, operator=Dense(FULL)),
    Layer(Gaussian(0.3), 3),
    Layer(Matern(1.5, 1.0), 1),
]
ORACLES = [naive.matern(0.5, 1.0), naive.gaussian(0.3), naive.matern(1.5, 1.0)]


def test_shapes_of_the_coordinates() -> None:
    chain = Chain(THREE_LAYERS, X)
    assert chain.shapes == [(12, 2), (12, 3), (12, 1)]
    assert chain.size == 12 * 6
    parts = chain.split(torch.arange(72.0))
    assert [part.shape for part in parts] == [(12, 2), (12, 3), (12, 1)]
    assert torch.equal(torch.cat([part.reshape(-1) for part in parts]), torch.arange(72.0))
    assert chain.split(torch.zeros(4, 5, 72))[1].shape == (4, 5, 12, 3)


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_affine_functions_on_the_plane_have_three_unknowns(dimension: int) -> None:
    points = np.random.default_rng(0).standard_normal((100, 2))
    assert Chain([Layer(Polynomial(1), dimension)], points).size == 3 * dimension
    assert Chain([Layer(Linear(), dimension)], points).size == 2 * dimension
    assert Chain([Layer(Polynomial(2), dimension)], points).size == 6 * dimension


def test_images_are_the_functions_at_the_training_points() -> None:
    """f_l(X) = B_l Θ_l A_l^½, and the same by expansions, by their literal sums, and by interpolation."""
    chain = Chain(THREE_LAYERS, X)
    theta = coordinates_of(chain)
    images, everywhere = chain.images(theta), chain.evaluate(theta, X)
    Z, new = X, NEW
    for layer, k, f, image, other, outside in zip(
        chain.layers,
        ORACLES,
        chain.expansions(theta),
        images,
        everywhere,
        chain.evaluate(theta, NEW),
        strict=True,
    ):
        np.testing.assert_allclose(other, image, **EXACT)
        A = layer.operator_kernel._operator.as_matrix(layer.size, image).numpy()
        literal = [
            sum(k(x, z) * A @ c for z, c in zip(f.anchors.numpy(), f.coefficients.numpy(), strict=True)) for x in new
        ]
        np.testing.assert_allclose(outside, literal, **EXACT)
        interpolant = naive.gram(k, new, Z) @ np.linalg.solve(naive.gram(k, Z), image.numpy())
        np.testing.assert_allclose(outside, interpolant, rtol=1e-6, atol=1e-7)
        Z, new = image.numpy(), outside.numpy()


def test_norms() -> None:
    """‖Θ‖² = Σ k(x_i, x_j)⟨c_i, A c_j⟩ = tr(A⁻¹ Fᵀ K⁻¹ F) for the values F at the training points."""
    chain = Chain(THREE_LAYERS, X)
    theta = coordinates_of(chain)
    norms = chain.squared_norms(theta)
    assert norms.shape == (3,)
    Z = X
    for layer, k, f, F, norm in zip(
        chain.layers, ORACLES, chain.expansions(theta), chain.images(theta), norms, strict=True
    ):
        A = layer.operator_kernel._operator.as_matrix(layer.size, F).numpy()
        anchors, c = f.anchors.numpy(), f.coefficients.numpy()
        double = sum(k(anchors[i], anchors[j]) * c[i] @ A @ c[j] for i in range(len(c)) for j in range(len(c)))
        np.testing.assert_allclose(norm, double, rtol=1e-7)
        np.testing.assert_allclose(f.squared_norm(), norm, rtol=1e-7)
        spanned = np.trace(np.linalg.solve(A, F.numpy().T @ np.linalg.solve(naive.gram(k, Z), F.numpy())))
        np.testing.assert_allclose(norm, spanned, rtol=1e-6)
        Z = F.numpy()


@pytest.mark.parametrize(
    "operator",
    [Identity(), Diagonal([2.0, 0.5]), Dense(FULL), Diagonal([2.0, 0.0]), Dense(SINGULAR)],
    ids=repr,
)
def test_operators(operator: Operator) -> None:
    chain = Chain([Layer(Gaussian(0.5), 2, operator=operator), Layer(Gaussian(0.5), 2, operator=operator)], X)
    theta = coordinates_of(chain)
    A = operator.as_matrix(2, theta[0]).numpy()
    values, vectors = np.linalg.eigh(A)
    root = vectors @ np.diag(np.sqrt(values.clip(0.0))) @ vectors.T
    first = np.linalg.cholesky(naive.gram(naive.gaussian(0.5), X[chain.pivots[0]])) @ theta[0].numpy() @ root
    np.testing.assert_allclose(chain.images(theta)[0][chain.pivots[0]], first, **EXACT)
    for image, other in zip(chain.images(theta), chain.evaluate(theta, X), strict=True):
        np.testing.assert_allclose(other, image, rtol=1e-6, atol=1e-7)
        outside = image.numpy() @ (np.eye(2) - np.linalg.pinv(A) @ A)
        np.testing.assert_allclose(outside, 0.0, atol=1e-7)  # a singular operator confines the values
    # Coordinates that the operator does not see cost norm for nothing; without them the norms agree.
    projector = tensor(np.linalg.pinv(root) @ root)
    seen = [part @ projector for part in theta]
    for image, other in zip(chain.images(seen), chain.images(theta), strict=True):
        torch.testing.assert_close(image, other, rtol=1e-6, atol=1e-7)
    norms = [f.squared_norm() for f in chain.expansions(theta)]
    torch.testing.assert_close(torch.stack(norms), chain.squared_norms(seen), rtol=1e-5, atol=1e-6)
    assert bool((chain.squared_norms(theta) >= chain.squared_norms(seen) - 1e-12).all())


def test_a_batch_of_restarts_is_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = Chain(THREE_LAYERS, X)
    flat = 0.5 * random(4, chain.size)
    batch = chain.split(flat)
    each = [chain.split(member) for member in flat]
    monkeypatch.setattr(memory, "BLOCK_BYTES", 5 * 12 * 4 * 8)
    for together, alone in (
        (chain.images(batch), [chain.images(theta) for theta in each]),
        (chain.evaluate(batch, NEW), [chain.evaluate(theta, NEW) for theta in each]),
    ):
        for layer, image in enumerate(together):
            torch.testing.assert_close(image, torch.stack([images[layer] for images in alone]), **EXACT)
    norms = torch.stack([chain.squared_norms(theta) for theta in each])
    torch.testing.assert_close(chain.squared_norms(batch), norms)
    by_expansion = torch.stack([f.squared_norm() for f in chain.expansions(batch)], -1)
    torch.testing.assert_close(by_expansion, norms, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("max_rank", [None, 5])
@pytest.mark.parametrize("batched", [False, True], ids=["one", "batch"])
def test_gradients_of_images_in_the_coordinates(max_rank: int | None, batched: bool) -> None:
    layers = [Layer(Polynomial(1), 2, operator=Dense(FULL)), Layer(Gaussian(0.5), 2)]
    chain = Chain(layers, X, max_rank=max_rank)
    flat = random(*([3] if batched else []), chain.size)
    weights = [random(*image.shape, seed=9) for image in chain.images(chain.split(flat))]

    def functional(point: Tensor) -> Tensor:
        images = chain.images(chain.split(point))
        return sum(((w * image).sum() for w, image in zip(weights, images, strict=True)), tensor(0.0))

    check_gradient(functional, flat, "the coordinates")
    check_gradient(lambda z: chain.squared_norms(chain.split(z)).sum(), flat, "the coordinates")


@pytest.mark.parametrize("max_rank", [None, 5])
def test_a_member_of_a_batch_that_cannot_be_factored_is_nan(max_rank: int | None) -> None:
    """An inadmissible restart must not stop the others."""

    class Indefinite(Gaussian):
        """Positive semi-definite only if the first point is negative."""

        def _gram(self, X: Tensor, Y: Tensor | None) -> Tensor:
            gram = super()._gram(X, Y)
            return gram if Y is not None else gram - X[..., :1, :1].clamp(min=0.0) * torch.eye(gram.shape[-1])

    chain = Chain([Layer(Linear(), 1), Layer(Indefinite(0.3), 1)], 10.0 * X, max_rank=max_rank)
    flat = random(chain.size) * torch.tensor([[1.0], [-1.0]], dtype=DOUBLE)
    first = (chain.factors[0] @ flat[0, :2])[chain.later_rows[0]]
    flat = flat if first < 0 else -flat
    images = chain.images(chain.split(flat))[1]
    assert not bool(images[0].isnan().any())
    assert bool(images[1].isnan().all())
    with pytest.raises(ValueError, match=r"The Gram matrix of a layer's anchors .* is not positive definite"):
        chain.images(chain.split(flat[1]))


# -- a cap on the rank ------------------------------------------------------------------------------------------------
def test_a_cap_on_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = [Layer(Gaussian(0.5), 2), Layer(Gaussian(0.5), 2), Layer(Gaussian(0.5), 1)]
    grams: list[tuple[int, int]] = []
    gram = Gaussian._gram

    def recorded(self: Any, A: Tensor, B: Tensor | None) -> Tensor:
        result = gram(self, A, B)
        grams.append(tuple(result.shape))
        return result

    monkeypatch.setattr(Gaussian, "_gram", recorded)
    many = np.random.default_rng(0).uniform(-1, 1, (30, X.shape[1]))
    chain = Chain(layers, many, max_rank=5)
    assert chain.shapes == [(5, 2), (5, 2), (5, 1)]
    theta = coordinates_of(chain)
    images = chain.images(theta)
    for image, other in zip(images, chain.evaluate(theta, many), strict=True):
        np.testing.assert_allclose(other, image, **EXACT)
    torch.testing.assert_close(
        chain.squared_norms(theta), torch.stack([f.squared_norm() for f in chain.expansions(theta)]), **EXACT
    )
    assert (30, 30) not in grams and (20, 20) in grams


def test_a_cap_that_does_not_bind_changes_nothing_but_the_order() -> None:
    layers = [Layer(Gaussian(0.5), 2), Layer(Gaussian(0.5), 1)]
    free, capped = Chain(layers, X), Chain(layers, X, max_rank=100)
    assert free.shapes == capped.shapes
    theta = coordinates_of(free)
    torch.testing.assert_close(free.images(theta)[0], capped.images(theta)[0], **EXACT)
    for image, other in zip(capped.images(theta), capped.evaluate(theta, X), strict=True):
        np.testing.assert_allclose(other, image, rtol=1e-6, atol=1e-7)


def test_a_first_layer_of_low_rank_does_not_starve_the_next() -> None:
    """Three pivots determine an affine map, but a Gaussian layer deserves its eight anchors."""
    chain = Chain([Layer(Polynomial(1), 2), Layer(Gaussian(0.5), 1)], X, max_rank=8)
    assert chain.shapes == [(3, 2), (8, 1)]
    assert len(set(chain.later_rows.tolist())) == 8
    assert set(chain.pivots[0].tolist()) <= set(chain.later_rows.tolist())
    theta = coordinates_of(chain)
    for image, other in zip(chain.images(theta), chain.evaluate(theta, X), strict=True):
        np.testing.assert_allclose(other, image, **EXACT)


# -- any data ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("order", [np.arange(12), RNG.permutation(12)], ids=["sorted", "shuffled"])
@pytest.mark.parametrize("lengthscale", [0.3, 3.0], ids=["full rank", "low rank"])
def test_a_precomputed_first_layer(lengthscale: float, order: np.ndarray) -> None:
    """Given as Gram matrices, the chain is the same function."""
    points = X[order]
    gram, cross = Gaussian(lengthscale)(points), Gaussian(lengthscale)(NEW, points)
    later = Layer(Gaussian(0.5), 1)
    for max_rank in (None, 4):
        given = Chain([Layer(Precomputed(), 2, operator=Dense(FULL)), later], gram, tol=1e-6, max_rank=max_rank)
        known = Chain(
            [Layer(Gaussian(lengthscale), 2, operator=Dense(FULL)), later],
            points,
            tol=1e-6,
            max_rank=max_rank,
        )
        assert given.shapes == known.shapes
        theta = coordinates_of(given)
        for one, two in (
            (given.images(theta), known.images(theta)),
            (given.evaluate(theta, cross), known.evaluate(theta, NEW)),
            (given.evaluate(theta, gram), known.evaluate(theta, points)),
        ):
            for image, other in zip(one, two, strict=True):
                torch.testing.assert_close(image, other, rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(given.expansions(theta)[0].squared_norm(), given.squared_norms(theta)[0], **EXACT)
        batch = given.split(torch.stack([torch.cat([t.reshape(-1) for t in theta])] * 2))
        torch.testing.assert_close(given.evaluate(batch, cross)[1][1], given.evaluate(theta, cross)[1])


@pytest.mark.parametrize("max_rank", [None, 3])
@pytest.mark.parametrize(
    ("kernel", "k", "data", "new"),
    [
        (Callable(common_letters), common_letters, WORDS, NEW_WORDS),
        (Callable(common_letters) + 0.5, naive.add(common_letters, naive.constant(0.5)), WORDS, NEW_WORDS),
        (Delta(), naive.delta(), list("abacabcb"), list("adc")),
    ],
    ids=["letters", "letters and an offset", "labels"],
)
def test_a_first_layer_on_objects(
    kernel: Kernel, k: naive.Pairwise, data: list[Any], new: list[Any], max_rank: int | None
) -> None:
    chain = Chain([Layer(kernel, 2), Layer(Gaussian(0.7), 1)], data, max_rank=max_rank)
    rank = min(np.linalg.matrix_rank(naive.gram(k, data)), max_rank or 99)
    assert chain.shapes[0] == (rank, 2)
    theta = coordinates_of(chain)
    for image, other in zip(chain.images(theta), chain.evaluate(theta, data), strict=True):
        np.testing.assert_allclose(other, image, rtol=1e-4, atol=1e-5)
    first = chain.expansions(theta)[0]
    literal = [sum(k(x, z) * c for z, c in zip(first.anchors, first.coefficients, strict=True)) for x in new]
    np.testing.assert_allclose(chain.evaluate(theta, new)[0], torch.stack(literal), **EXACT)


def test_the_first_factor_matches_to_the_tolerance() -> None:
    for tol in (1e-2, 1e-6, 1e-12):
        chain = Chain([Layer(Gaussian(2.0), 1)], X, tol=tol)
        gap = (chain.factors[0] @ chain.factors[0].mT - Gaussian(2.0)(X)).abs().max()
        assert gap <= max(tol, 1e-14)
    assert Chain([Layer(Gaussian(2.0), 1)], X, tol=1e-2).size < Chain([Layer(Gaussian(2.0), 1)], X).size


# -- bad input --------------------------------------------------------------------------------------------------------
def test_bad_chains() -> None:
    with pytest.raises(ValueError, match="A chain needs at least one layer"):
        Chain([], X)
    for size in (0, -1, 2.0, None):
        with pytest.raises(ValueError, match="size of a layer must be a positive integer"):
            Chain([Layer(Gaussian(1.0), size)], X)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="lengthscale='median' of Gaussian has no number yet"):
        Chain([Layer(Gaussian(), 2)], X)
    with pytest.raises(ValueError, match="NaN or infinity"):
        Chain([Layer(Gaussian(1.0), 2)], [[np.nan, 1.0]])
    with pytest.raises(ValueError, match="must be square"):
        Chain([Layer(Precomputed(), 2)], np.ones((3, 2)))
    for operator, message in (
        (Diagonal([1.0]), "there are 2 outputs"),
        (Covariance(), "computed from targets"),
    ):
        with pytest.raises(ValueError, match=message):
            Chain([Layer(Gaussian(1.0), 2, operator=operator)], X)
    chain = Chain(THREE_LAYERS, X)
    with pytest.raises(ValueError, match="shorter"):
        chain.images(coordinates_of(chain)[:2])


def test_layers_are_compared_by_their_contents() -> None:
    assert Layer(Gaussian(1.0), 2) == Layer(Gaussian(1.0), 2)
    assert Layer(Gaussian(1.0), 2) != Layer(Gaussian(2.0), 2)


# -- operator-valued layers -------------------------------------------------------------------------------------------
OPERATOR_VALUED = {
    "separate": (Separate([Gaussian(0.5), Matern(1.5, 1.0), Gaussian(0.5)]), 3),
    "commuting sum": (Decomposable(Gaussian(0.5), Dense(FULL)) + Decomposable(Polynomial(2)), 2),
    "coupled": (CurlFree(0.7), 2),
}


@pytest.mark.parametrize("name", OPERATOR_VALUED)
@pytest.mark.parametrize("rows", [None, [0, 2, 3, 5, 7, 8, 11]], ids=["all", "some anchors"])
def test_operator_valued_layers(name: str, rows: list[int] | None) -> None:
    """Images, norms and expansions agree with the block matrix K: ‖f‖² = vec(F)ᵀ K⁻¹ vec(F) on the anchors."""
    kernel, size = OPERATOR_VALUED[name]
    chosen = None if rows is None else torch.tensor(rows)
    layers = [Layer(kernel, size), Layer(Gaussian(1.0), 2), Layer(kernel, size)]
    chain = Chain(layers, X, rows=chosen)
    theta = coordinates_of(chain)
    Z = tensor(X)
    anchors = slice(None) if rows is None else rows
    for layer, image, norm, f in zip(
        layers, chain.images(theta), chain.squared_norms(theta), chain.expansions(theta), strict=True
    ):
        torch.testing.assert_close(f(Z), image, rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(f.squared_norm(), norm, rtol=1e-6, atol=1e-7)
        K = layer.operator_kernel.dense(Z[anchors], None, layer.size)
        F = image[anchors].reshape(-1)
        torch.testing.assert_close(F @ torch.linalg.pinv(K, rtol=1e-10) @ F, norm, rtol=1e-5, atol=1e-6)
        if rows is not None:  # what is not an anchor is interpolated from those
            cross = layer.operator_kernel.dense(Z, Z[rows], layer.size)
            interpolant = (cross @ torch.linalg.pinv(K, rtol=1e-10) @ F).reshape(-1, layer.size)
            torch.testing.assert_close(image, interpolant, rtol=1e-4, atol=1e-5)
        Z = image
    batch = chain.split(0.5 * random(3, chain.size))
    each = [chain.images([part[i] for part in batch])[-1] for i in range(3)]
    torch.testing.assert_close(chain.images(batch)[-1], torch.stack(each), **EXACT)


def test_shapes_of_operator_valued_layers() -> None:
    chain = Chain([Layer(Separate([Gaussian(0.5), Polynomial(1)]), 2), Layer(CurlFree(1.0), 2)], X)
    assert chain.shapes == [(12 + 3, 1), (24, 1)]
    with pytest.raises(ValueError, match=r"size 3 has the kernel .* has 2 outputs"):
        Chain([Layer(Separate([Gaussian(0.5), Polynomial(1)]), 3)], X)
    with pytest.raises(ValueError, match="operator-valued already"):
        Chain([Layer(Separate([Gaussian(0.5)]), 1, operator=Identity())], X)


def test_projection_finds_the_coordinates_of_images() -> None:
    for layers in (THREE_LAYERS, [Layer(kernel, size) for kernel, size in OPERATOR_VALUED.values()]):
        chain = Chain(layers, X, rows=torch.arange(9))
        images = chain.images(coordinates_of(chain))
        for image, other in zip(chain.images(chain.project(images)), images, strict=True):
            torch.testing.assert_close(image, other, rtol=1e-4, atol=1e-4)


def test_gradients_in_the_hyperparameters_of_a_layer() -> None:
    chain = Chain([Layer(Gaussian(0.5), 2), Layer(Gaussian(0.7), 1)], X)
    theta = coordinates_of(chain)

    def last(lengthscales: Tensor) -> Tensor:
        layers = [Layer(Gaussian(lengthscales[0]), 2), Layer(Gaussian(lengthscales[1]), 1)]
        return (chain.with_layers(layers).images(theta)[-1] ** 2).sum()

    check_gradient(last, tensor([0.5, 0.7]), "the lengthscales")


@pytest.mark.parametrize("kernel", [Linear(), Polynomial(1), Polynomial(3, gamma=0.5, coef0=2.0)], ids=repr)
@pytest.mark.parametrize("max_rank", [None, 11])
def test_a_later_polynomial_layer_has_as_many_unknowns_as_features(kernel: Kernel, max_rank: int | None) -> None:
    chain = Chain([Layer(Matern(0.5, 1.0), 2), Layer(kernel, 2, operator=Dense(FULL))], X, max_rank=max_rank)
    rank = {"Linear()": 2, "Polynomial(degree=1)": 3}.get(repr(kernel), 10)
    assert chain.shapes[1] == (rank, 2)
    theta = coordinates_of(chain)
    images = chain.images(theta)
    Z, A = images[0], Dense(FULL).as_matrix(2, images[0])
    K = kernel(Z)
    torch.testing.assert_close(chain._later_factor(chain.outputs[1].parts[0], Z) @ theta[1] @ _root(A), images[1])
    F = images[1]
    norm = torch.trace(torch.linalg.solve(A, F.mT @ torch.linalg.pinv(K, rtol=1e-10) @ F))
    torch.testing.assert_close(chain.squared_norms(theta)[1], norm, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(chain.expansions(theta)[1].squared_norm(), norm, rtol=1e-5, atol=1e-6)
    for image, other in zip(chain.evaluate(theta, X), images, strict=True):
        torch.testing.assert_close(image, other, rtol=1e-5, atol=1e-6)
    flat = torch.cat([part.reshape(-1) for part in theta])
    check_gradient(lambda point: (chain.images(chain.split(point))[-1] ** 2).sum(), flat, "the coordinates")
    batch = chain.split(torch.stack([flat, 2.0 * flat]))
    torch.testing.assert_close(chain.images(batch)[-1][0], images[-1], **EXACT)
    torch.testing.assert_close(chain.evaluate(batch, NEW)[-1][0], chain.evaluate(theta, NEW)[-1], **EXACT)


def _root(A: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(A)
    return (vectors * values.sqrt()) @ vectors.mT


def test_terms_do_not_depend_on_a_constant_of_the_kernel_beside_a_free_one():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(2, 30, 2))
    told = [
        OperatorRidge(kernel, alpha=0.1).fit(X, y[:, 0]).function_.contributions(X[:4])
        for kernel in (Gaussian(1.0), Gaussian(1.0) + 5.0)
    ]
    np.testing.assert_allclose(told[0], told[1], atol=1e-10)
    wide = OperatorRidge(Laplacian(1e6), alpha=1e-9).fit(X, y[:, 0])
    terms = wide.function_.contributions(X[:4])
    lost = 1e-14 * float(wide.function_.magnitudes(X[:4]).max())  # what the sum over huge terms has lost
    np.testing.assert_allclose(terms.sum(1).numpy() + wide.function_.intercept, wide.function_(X[:4]), atol=lost)
    assert terms.abs().max() < 100 * np.abs(y).max() < 1e-2 * wide.function_.magnitudes(X[:4]).max()
    plain = OperatorRidge(Gaussian(1.0), alpha=0.1, fit_intercept=False).fit(X, y[:, 0]).function_
    np.testing.assert_allclose(
        plain.contributions(X[:4])[..., 0], Gaussian(1.0)(X[:4], X) * plain.coefficients[:, 0], atol=1e-12
    )


@pytest.mark.parametrize("size", [1.0, 1e3])
def test_rounding_of_inner_terms_that_cancel_is_part_of_what_a_composition_has_lost(size: float) -> None:
    """The error of single precision against double is within what is said to be lost, which is not far beyond it."""
    anchors, signs = random(40, 2), torch.tensor([1.0, -1.0], dtype=DOUBLE).repeat(20)[:, None]
    anchors[1::2] = anchors[::2] + 0.1 / size  # so that the sum is about as large for every size of the terms
    inner = Expansion(Decomposable(Matern(2.5, 2.0)), anchors.float().double(), (size * signs).float().double())
    Z = inner(anchors)
    outer = Expansion(Decomposable(Gaussian(0.3 * float(Z.std()))), Z.float().double(), random(40, 1, seed=1))
    single, exact = (Composed.of([inner, outer], Representation(t, None, False)) for t in (torch.float32, DOUBLE))
    values = exact(NEW)
    error = (single(NEW.astype(np.float32)) - exact(NEW.astype(np.float32))).abs().max() / values.abs().max()
    lost = single.cancellation() * torch.finfo(torch.float32).eps
    assert error <= lost <= 1e4 * error
    assert (lost > 1e-2) == (size > 1) and single.outer.cancellation() < 1e3
