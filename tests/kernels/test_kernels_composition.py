"""Sums, products, scaling, normalising, centring; kernels given as Gram matrices or functions."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.preprocessing import KernelCenterer

import naive
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
    Normalized,
    Polynomial,
    Precomputed,
    Product,
    Pullback,
    RationalQuadratic,
    Scaled,
    Sum,
    TensorMatern,
)
from representer.testing import check_kernel

RNG = np.random.default_rng(0)
X = RNG.standard_normal((6, 3))
Y = RNG.standard_normal((4, 3))
G, L = Gaussian(1.3), Laplacian(0.8)


# -- scalars ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "scalar",
    [
        2,
        2.0,
        np.float64(2.0),
        np.float32(2.0),
        np.int64(2),
        np.array(2.0),
        torch.tensor(2.0),
        torch.tensor(2),
    ],
    ids=lambda s: type(s).__name__,
)
def test_scalars_of_every_kind_on_both_sides(scalar: Any) -> None:
    for scaled in (scalar * G, G * scalar):
        assert isinstance(scaled, Scaled)
        torch.testing.assert_close(scaled(X), 2.0 * G(X))
        assert scaled == 2.0 * G
    for lifted in (scalar + G, G + scalar):
        assert isinstance(lifted, Sum)
        torch.testing.assert_close(lifted(X), 2.0 + G(X))
    assert scalar + G == Constant(2.0) + G
    assert G + scalar == G + Constant(2.0)


def test_nothing_is_flattened() -> None:
    mixed = G + L * Linear()
    assert isinstance(mixed, Sum)
    assert isinstance(mixed.right, Product)
    other = (G + L) * Linear()
    assert isinstance(other, Product)
    assert isinstance(other.left, Sum)
    assert mixed != other
    assert (G + L) + Linear() != G + (L + Linear())


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("operation", ["times", "plus"])
def test_gradients_pass_through_torch_scalars(side: str, operation: str) -> None:
    scalar = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    first, second = (scalar, G) if side == "left" else (G, scalar)
    kernel = first * second if operation == "times" else first + second
    assert isinstance(kernel, Kernel)
    weights = torch.from_numpy(RNG.standard_normal((6, 6)))
    (gradient,) = torch.autograd.grad((weights * kernel(X)).sum(), scalar)
    expected = (weights * G(X)).sum() if operation == "times" else weights.sum()
    torch.testing.assert_close(gradient, expected)


def test_a_learned_scale_deep_inside() -> None:
    scale = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    kernel = (1.0 + (scale * G) * L).normalized()
    (gradient,) = torch.autograd.grad(kernel(X)[0, 1], scale)
    step = 1e-6
    up, down = (((1.0 + ((0.7 + s) * G) * L).normalized())(X)[0, 1] for s in (step, -step))
    assert gradient.item() == pytest.approx(((up - down) / (2 * step)).item(), rel=1e-6)


@pytest.mark.parametrize("other", [True, [2.0], 1j, None, np.array([1.0, 2.0]), object()])
def test_other_things_do_not_combine(other: Any) -> None:
    for combine in (lambda a, b: a * b, lambda a, b: a + b):
        with pytest.raises(TypeError):
            combine(G, other)
        with pytest.raises(TypeError):
            combine(other, G)


def test_torch_functions_of_a_kernel_are_refused() -> None:
    with pytest.raises(TypeError):
        torch.exp(G)


def test_kernels_of_different_data_do_not_combine() -> None:
    with pytest.raises(ValueError, match=r"Gaussian.*takes vectors and Delta\(\) takes labels"):
        (G + Delta())(X)
    assert (2.0 * Constant(1.0) + Delta()).domain == "labels"
    torch.testing.assert_close((2.0 * Constant(1.0) + Delta())(["a", "b"]), 2.0 + torch.eye(2, dtype=torch.float64))


def test_a_batch_of_scales() -> None:
    scales = torch.tensor([0.5, 2.0], dtype=torch.float64).reshape(2, 1, 1)
    torch.testing.assert_close((scales * G)(X), torch.stack([0.5 * G(X), 2.0 * G(X)]))
    torch.testing.assert_close((G + scales).diag(X), torch.tensor([[1.5] * 6, [3.0] * 6], dtype=torch.float64))
    with pytest.raises(ValueError, match=r"scale of Scaled must be one number .* shape \(2,\)"):
        (scales.reshape(2) * G)(X)


# -- normalising and centring -----------------------------------------------------------------------------------------
def test_normalized_features_that_vanish() -> None:
    data = np.array([[0.0, 0.0], [1.0, 0.0], [3.0, 4.0]])
    expected = torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.0, 0.6], [0.0, 0.6, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(Linear().normalized()(data), expected)
    torch.testing.assert_close(Linear().normalized().diag(data), expected.diagonal())
    leaf = torch.from_numpy(data).requires_grad_()
    (gradient,) = torch.autograd.grad(Linear().normalized()(leaf).sum(), leaf)
    assert bool(torch.isfinite(gradient).all())


def test_centring_a_linear_kernel_centres_the_features() -> None:
    kernel = Linear().centered().resolve(X)
    mean = X.mean(axis=0)
    np.testing.assert_allclose(kernel(X), (X - mean) @ (X - mean).T, atol=1e-12)
    np.testing.assert_allclose(kernel(Y), (Y - mean) @ (Y - mean).T, atol=1e-12)
    np.testing.assert_allclose(kernel(Y, X), (Y - mean) @ (X - mean).T, atol=1e-12)
    np.testing.assert_allclose(kernel.diag(Y), ((Y - mean) ** 2).sum(axis=1), atol=1e-12)


@pytest.mark.parametrize("kernel", [G, Polynomial(3), 2.0 * L + 1.0], ids=repr)
def test_centring_equals_scikit_learn(kernel: Kernel) -> None:
    centerer = KernelCenterer().fit(kernel(X).numpy())
    centred = kernel.centered().resolve(X)
    np.testing.assert_allclose(centred(X), centerer.transform(kernel(X).numpy()), atol=1e-12)
    np.testing.assert_allclose(centred(Y, X), centerer.transform(kernel(Y, X).numpy()), atol=1e-12)
    np.testing.assert_allclose(kernel.centered()(X), centred(X), atol=1e-12)
    np.testing.assert_allclose(kernel.centered(X.tolist())(Y, X), centred(Y, X), atol=1e-12)


def test_centring_a_precomputed_gram_matrix() -> None:
    gram, cross = G(X), G(Y, X)
    centred, expected = Precomputed().centered().resolve(gram), G.centered().resolve(X)
    torch.testing.assert_close(centred(gram), expected(X))
    torch.testing.assert_close(centred(cross, gram), expected(Y, X))
    torch.testing.assert_close(centred(cross.numpy(), gram.numpy()), expected(Y, X))
    torch.testing.assert_close(centred.diag(gram), expected.diag(X))


def test_centring_computes_the_training_matrix_once() -> None:
    calls = []

    class Counting(Gaussian):
        def _gram(self, A: torch.Tensor, B: torch.Tensor | None) -> torch.Tensor:
            calls.append((len(A), len(A if B is None else B)))
            return super()._gram(A, B)

    Counting(1.0).centered()(X)
    assert calls == [(6, 6)]


@pytest.mark.parametrize("kernel", [Linear(), 4.0 * Linear() + 1.0], ids=repr)
def test_centring_keeps_the_digits_of_points_far_from_zero(kernel: Kernel) -> None:
    """A centred kernel of products does not see an offset: sums of points on a grid of 2⁻²⁰ are exact."""
    grid, new = (np.round(points * 2.0**20) / 2.0**20 for points in (RNG.standard_normal((8, 3)), Y))
    near, far = kernel.centered(grid), kernel.centered(grid + 2.0**27)
    torch.testing.assert_close(far(new + 2.0**27, grid + 2.0**27), near(new, grid), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(far.diag(new + 2.0**27), near.diag(new), rtol=1e-12, atol=1e-12)
    sizes = far._magnitudes(far.prepare(new + 2.0**27), far.prepare(grid + 2.0**27))
    assert 2.0**25 < float(sizes.max()) < 2.0**33  # as the offset, not as its square


def test_centred_monomials_have_more_digits_than_centred_products() -> None:
    """Against the products of features in extended precision."""
    points = RNG.standard_normal((12, 2)) + 1e4
    kernel = Polynomial(2, 1.0, 1.0).centered()
    x = points.astype(np.longdouble)
    monomials = [x[:, 0] ** 2, x[:, 1] ** 2, *(np.sqrt(np.longdouble(2)) * c for c in (x[:, 0] * x[:, 1], *x.T))]
    features = np.stack(monomials, 1)
    features -= features.mean(0)
    expected = (features @ features.T).astype(float)
    np.testing.assert_allclose(kernel(points), expected, rtol=0, atol=1e-10 * np.abs(expected).max())


def test_centring_is_of_the_data_before_a_map() -> None:
    inside = Pullback(G.centered(), torch.sin).resolve(X)
    outside = Pullback(G, torch.sin).centered().resolve(X)
    torch.testing.assert_close(inside(Y, X), outside(Y, X))


# -- given ------------------------------------------------------------------------------------------------------------
def test_precomputed() -> None:
    gram, cross = G(X).numpy(), G(Y, X).numpy()
    check_kernel(Precomputed(), gram)
    check_kernel(2.0 * Precomputed() * Precomputed() + 1.0, gram)
    np.testing.assert_array_equal(Precomputed()(gram), gram)
    np.testing.assert_array_equal(Precomputed()(cross, gram), cross)
    np.testing.assert_array_equal(Precomputed().diag(gram), np.ones(6))
    np.testing.assert_allclose((2.0 * Precomputed() + 1.0)(cross, gram), 2.0 * cross + 1.0)
    np.testing.assert_allclose(Precomputed().normalized()(9 * gram), gram)
    returned = Precomputed()(gram)
    returned.zero_()
    assert gram.any(), "the caller's matrix was overwritten"


def test_precomputed_refuses() -> None:
    gram = G(X).numpy()
    with pytest.raises(ValueError, match=r"must be square; got shape \(4, 6\)"):
        Precomputed()(gram[:4])
    with pytest.raises(ValueError, match="has 5 columns, but 6 samples were used for fitting"):
        Precomputed()(gram[:4, :5], gram)
    with pytest.raises(ValueError, match=r"k\(x, x\) is not contained.*\(4, 6\).*Callable"):
        Precomputed().normalized()(gram[:4], gram)
    with pytest.raises(ValueError, match="NaN or infinity, first at row 1, column 2"):
        Precomputed()(np.where(np.arange(36).reshape(6, 6) == 8, np.nan, gram))


def common(x: str, y: str) -> float:
    return float(len(set(x) & set(y)))


def test_callable_of_two_objects() -> None:
    words = ["kernel", "gram", "anchor", "gram"]
    kernel = kernels.Callable(common)
    np.testing.assert_array_equal(kernel(words), naive.gram(common, words))
    np.testing.assert_array_equal(kernel(words, ["grammar"]), naive.gram(common, words, ["grammar"]))
    np.testing.assert_array_equal(kernel(np.array(words)), naive.gram(common, words))
    check_kernel(0.5 * kernel.normalized() + kernel, words)


def test_callable_on_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    words = pandas.Series(["kernel", "gram", "anchor"], index=[2, 0, 1])
    np.testing.assert_array_equal(kernels.Callable(common)(words), naive.gram(common, list(words)))
    frame = pandas.DataFrame(X, index=range(5, -1, -1))
    of_rows = kernels.Callable(lambda x, y: float(np.dot(x, y)))
    np.testing.assert_allclose(of_rows(frame), X @ X.T)


def test_callable_of_two_collections() -> None:
    def matrix(A: Any, B: Any) -> np.ndarray:
        return np.asarray(A) @ np.asarray(B).T

    kernel = kernels.Callable(matrix, batched=True)
    np.testing.assert_allclose(kernel(X, Y), X @ Y.T)
    np.testing.assert_allclose(kernel.diag(X), (X**2).sum(axis=1))
    assert kernel(X.astype(np.float32)).dtype == torch.float64
    single = kernels.Callable(lambda A, B: A @ B.mT, batched=True)(torch.from_numpy(X).float())
    assert single.dtype == torch.float32
    leaf = torch.from_numpy(X).requires_grad_()
    gram = kernels.Callable(lambda A, B: A @ B.mT, batched=True)(leaf)
    torch.testing.assert_close(torch.autograd.grad(gram.trace(), leaf)[0], 2.0 * leaf.detach())


def test_callable_may_return_its_own_matrix() -> None:
    stored = torch.eye(6, dtype=torch.float64)
    kernel = kernels.Callable(lambda A, B: stored, batched=True)
    kernel(X).zero_()
    assert stored.trace() == 6


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (
            kernels.Callable(lambda A, B: np.zeros((2, 2)), batched=True),
            r"returned shape \(2, 2\) for 6 and 6 objects",
        ),
        (
            kernels.Callable(lambda x, y: float("nan") if x[0] != y[0] else 1.0),
            "is nan for object 0 and object 1",
        ),
        (
            kernels.Callable(lambda A, B: np.full((6, 6), np.inf), batched=True),
            "is inf for object 0 and object 0",
        ),
    ],
)
def test_callable_refuses(kernel: Kernel, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kernel(X)
    with pytest.raises(ValueError, match="0 objects"):
        kernel([])


# -- labels -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("labels", "others"),
    [
        (["a", "b", "a"], ["b", "c"]),
        ([1, 2, 1, 3], [3, 4]),
        (np.array([1, 2, 1]), np.array([2.0, 5.0])),
        (np.array(["x", "y"], dtype=object), np.array(["y"])),
        ([1, "1", None, ("a", 1), frozenset({2})], ["1", ("a", 1)]),
        (np.array([["a", "u"], ["a", "v"], ["a", "u"]]), np.array([["a", "u"]])),
        ([["a", 1], ["b", 1], ["a", 1]], [["a", 1]]),
        (torch.tensor([[0, 1], [1, 0], [0, 1]]), torch.tensor([[0, 1]])),
        (torch.tensor([3, 4, 3]), torch.tensor([4])),
        (np.array([[1], [2], [1]]), np.array([[2], [1]])),
    ],
    ids=str,
)
def test_delta(labels: Any, others: Any) -> None:
    def plain(values: Any) -> list[Any]:
        return values.tolist() if hasattr(values, "tolist") else list(values)

    expected = [[float(a == b) for b in plain(labels)] for a in plain(labels)]
    assert Delta()(labels).tolist() == expected
    assert Delta()(labels, others).tolist() == [[float(a == b) for b in plain(others)] for a in plain(labels)]
    assert Delta().diag(labels).tolist() == [1.0] * len(labels)


def test_delta_does_not_confuse_numbers_and_strings() -> None:
    assert Delta()([1, "1"]).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert Delta()(np.array([1]), np.array(["1"])).tolist() == [[0.0]]


def test_delta_on_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    series = pandas.Series(["a", "b", "a"], index=[7, 8, 9], dtype="category")
    assert Delta()(series).tolist() == Delta()(["a", "b", "a"]).tolist()
    frame = pandas.DataFrame({"u": [1, 1, 2], "v": ["x", "y", "x"]})
    assert Delta()(frame).tolist() == np.eye(3).tolist()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("abc", "takes a sequence of labels"),
        (np.zeros((2, 2, 2)), r"shape \(2, 2, 2\)"),
        ([], "0 labels"),
        ([1.0, float("nan")], "NaN"),
        (np.array([[1.0, np.nan]]), "NaN"),
        ([{"a": 1}], "hashable"),
    ],
    ids=str,
)
def test_delta_refuses(labels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Delta()(labels)


# -- kernels are values -----------------------------------------------------------------------------------------------
COMPOSED = [
    Gaussian([0.5, 2.0]),
    Matern(float("inf"), "ard"),
    G + L * Linear(),
    (G + L) * Linear(),
    G + (L + Linear()),
    G * (2.0 * L),
    (2.0 * G) * L,
    2.0 * (3.0 * G),
    2.0 * (G * L),
    2.0 * (G + L),
    "auto" * G + "auto",
    1.0 + G * 2 + 0.5,
    G * (L * Linear()),
    Linear().normalized().centered([[1.0, 2.0], [3.0, 4.0]]),
    Scaled(G, torch.full((2, 1, 1), 2.0)),
    Constant(3.0) * Polynomial(3, "scale", 0.0),
    RationalQuadratic("auto", 0.5) + TensorMatern(2),
    Precomputed() + Precomputed(),
    kernels.Callable(common, batched=True),
]


@pytest.mark.parametrize("kernel", COMPOSED, ids=repr)
def test_repr_is_the_code_that_makes_it(kernel: Kernel) -> None:
    namespace = {name: getattr(kernels, name) for name in kernels.__all__} | {"common": common}
    assert eval(repr(kernel), namespace) == kernel


def test_repr_is_short() -> None:
    assert repr(Gaussian()) == "Gaussian()"
    assert repr(2.0 * Gaussian(1.5) + Linear() * L) == (
        "2.0 * Gaussian(lengthscale=1.5) + Linear() * Laplacian(lengthscale=0.8)"
    )
    assert repr(Linear() * (2.0 * G)) == "Linear() * (2.0 * Gaussian(lengthscale=1.3))"
    for pair in ([1.0, 2.0], np.array([1.0, 2.0]), torch.tensor([1.0, 2.0])):
        assert repr(Gaussian(pair)) == "Gaussian(lengthscale=[1.0, 2.0])"
    assert "array of shape (2000, 1)" in repr(Linear().centered(np.zeros((2000, 1))))


def test_all_composed_kernels_differ() -> None:
    for i, one in enumerate(COMPOSED):
        for j, two in enumerate(COMPOSED):
            assert (one == two) == (i == j)


@pytest.mark.parametrize("kernel", COMPOSED, ids=repr)
def test_copies_are_equal_and_apart(kernel: Kernel) -> None:
    for copied in (clone(kernel), pickle.loads(pickle.dumps(kernel))):
        assert copied == kernel
        assert hash(copied) == hash(kernel)
        assert copied is not kernel


def test_clone_with_tensors_that_require_a_gradient() -> None:
    lengthscale = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    learned = (lengthscale * 2.0).sum() * Gaussian(lengthscale.exp()) + Linear()  # leaves and inner nodes of a graph
    copied = clone(learned)
    assert copied == learned
    assert not copied(X).requires_grad
    assert learned(X).requires_grad
    copied.left.kernel.lengthscale.zero_()
    assert bool((learned.left.kernel.lengthscale > 0).all())


class Estimator(BaseEstimator):
    def __init__(self, kernel: Any = None, size: int = 1) -> None:
        self.kernel = kernel
        self.size = size


def test_nested_parameters_through_an_estimator() -> None:
    estimator = Estimator(kernel=Gaussian() + 2.0 * Linear())
    assert estimator.get_params()["kernel__left__lengthscale"] == "median"
    assert estimator.get_params()["kernel__right__scale"] == 2.0
    estimator.set_params(kernel__left__lengthscale=2.0, kernel__right__scale=0.5)
    assert estimator.kernel == Gaussian(2.0) + 0.5 * Linear()
    estimator.set_params(kernel__left=Matern(), kernel__left__nu=2.5)
    assert estimator.kernel.left == Matern(2.5)
    copied = clone(estimator).set_params(kernel__right__kernel=Gaussian(9.0))
    assert estimator.kernel.right == 0.5 * Linear()
    assert copied.kernel.right == 0.5 * Gaussian(9.0)
    with pytest.raises(ValueError, match="no parameter 'middle__lengthscale'"):
        estimator.set_params(kernel__middle__lengthscale=1.0)
    with pytest.raises(ValueError, match=r"no parameter 'nu'.*lengthscale"):
        Gaussian().set_params(nu=1.5)


def test_equality_is_of_class_and_values() -> None:
    assert Gaussian(1.0) == Gaussian(1) == Gaussian(np.float32(1.0)) == Gaussian(torch.tensor(1.0))
    assert Gaussian([1.0, 2.0]) == Gaussian(np.array([1.0, 2.0])) == Gaussian((1.0, 2.0))
    assert Gaussian(1.0) != Gaussian([1.0, 1.0])
    assert Gaussian("median") != Gaussian(np.array([1.0, 2.0]))
    assert Gaussian(np.array([1.0, 2.0])) != Gaussian("median")
    assert Gaussian(1.0) != Laplacian(1.0)
    assert Normalized(G) != G
    assert len({Gaussian(1.0), Gaussian(np.float64(1.0)), Linear()}) == 2
    assert Centered(G, ["a", ["b"]]) != Centered(G, np.zeros(2))


@pytest.mark.parametrize("make", [lambda: G + L, lambda: 2.0 * G, lambda: G.centered(X)])
def test_calling_does_not_change_a_kernel(make: Callable[[], Kernel]) -> None:
    kernel, untouched = make(), make()
    kernel(X), kernel.diag(X), kernel.resolve(X), kernel.replace({})
    assert kernel == untouched
