"""Generation by DeepKernelPCA: exact where it can be, the training of networks against loops, samples, traversals."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import config_context
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from representer import DeepKernelPCA
from representer.approximation import RandomFeatures
from representer.kernels import Gaussian, Linear, Neural, Pullback, Spectrum
from representer.preimage import Network, refined
from representer.problems.levels import Alternation

WORDS = ["banana", "bananas", "ananas", "cabana", "ferret", "ferrets", "merit", "ferrite"]


@pytest.fixture
def X(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(40, 6)) @ rng.normal(size=(6, 6)) + rng.normal(size=6)


@pytest.fixture
def circle(rng: np.random.Generator) -> np.ndarray:
    t = rng.uniform(0, 2 * np.pi, 80)
    return np.column_stack([np.cos(t), np.sin(t), np.cos(2 * t)])


# --- linear levels ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("center", [True, False])
def test_all_linear_components_reconstruct_exactly(X: np.ndarray, center: bool) -> None:
    model = DeepKernelPCA([6, 6], "linear", center=center).fit(X[:30])
    for level in (0, 1):
        assert np.allclose(model.reconstruct(X[:30], level), X[:30])
        assert np.allclose(model.reconstruct(X[30:], level), X[30:])


def test_the_closed_form_finds_the_leading_components_from_any_seed(circle: np.ndarray) -> None:
    expected = DeepKernelPCA([4], [Gaussian(1.0)]).fit(circle).eigenvalues_[0]
    for seed in range(30):
        model = DeepKernelPCA([4, 2], [Gaussian(1.0), "linear"], random_state=seed).fit(circle)
        assert np.allclose(model.eigenvalues_[0], expected + np.array([1.0, 1.0, 0.0, 0.0]))


@pytest.mark.parametrize(("sizes", "kept"), [([2], 2), ([3, 2], 2), ([2, 3], 2), ([4, 3, 2], 2)])
@pytest.mark.filterwarnings("ignore::representer.CollapsedComponentWarning")
def test_linear_levels_reconstruct_as_pca(X: np.ndarray, sizes: list[int], kept: int) -> None:
    model = DeepKernelPCA(sizes, "linear").fit(X[:30])
    pca = PCA(kept).fit(X[:30])
    assert np.allclose(model.reconstruct(X[30:]), pca.inverse_transform(pca.transform(X[30:])))


def test_eta_does_not_scale_reconstructions(X: np.ndarray) -> None:
    pca = PCA(2).fit(X)
    expected = pca.inverse_transform(pca.transform(X))
    for eta in (1.0, 7.0, [0.5, 3.0]):
        assert np.allclose(DeepKernelPCA([2, 2], "linear", eta=eta).fit(X).reconstruct(X), expected)
    model = DeepKernelPCA([2], "linear", eta=-4.0).fit(X)  # a negative one keeps the leading variance
    assert np.allclose(model.reconstruct(X), expected)


def test_equation_10_in_loops(X: np.ndarray) -> None:
    """Both levels back, by sums over training samples, for η = 1 and features that are not centred."""
    model = DeepKernelPCA([3, 2], ["linear", "linear"], center=False).fit(X)
    H1, H2 = model.hidden_
    code = np.array([0.3, -0.2])
    W2 = sum(np.outer(h1, h2) for h1, h2 in zip(H1, H2, strict=True))
    W1 = sum(np.outer(x, h1) for x, h1 in zip(X, H1, strict=True))
    assert np.allclose(model.inverse_transform(code[None]), W1 @ (W2 @ code))
    assert np.allclose(model.inverse_transform(code[None], level=1), W1 @ (W2 @ code))
    assert np.allclose(model.inverse_transform(np.array([[1.0, 2.0, 3.0]]), level=0), W1 @ [1.0, 2.0, 3.0])


def test_what_transform_returns_is_decoded_from_the_last_level(X: np.ndarray) -> None:
    model = DeepKernelPCA([3, 2], ["rbf", "linear"]).fit(X)
    assert np.array_equal(model.inverse_transform(model.transform(X)), model.reconstruct(X))
    # transform finds training samples to rounding, and pre-images are found to a tolerance.
    assert np.allclose(
        model.inverse_transform(torch.as_tensor(model.hidden_[1])), model.reconstruct(X), rtol=1e-6, atol=1e-6
    )


# --- pre-images ------------------------------------------------------------------------------------------------------


def test_preimages_by_brute_force(X: np.ndarray) -> None:
    model = DeepKernelPCA([4], [Gaussian(4.0)], preimage="nearest").fit(X)
    code = model.hidden_[0][:5] + 0.01
    K = Gaussian(4.0)(X).numpy()
    weights = np.array([[h @ c for h in model.hidden_[0]] for c in code])
    weights += (1.0 - weights.sum(1, keepdims=True)) / len(X)  # around the mean of the features
    distances = np.array([[1.0 - 2.0 * w @ K[:, n] + w @ K @ w for n in range(len(X))] for w in weights])
    assert np.array_equal(model.inverse_transform(code), X[distances.argmin(1)])

    model.preimage = "weighted"
    for row, got in zip(distances, model.inverse_transform(code), strict=True):
        near = row.argsort()[:10]
        assert np.allclose(got, np.average(X[near], axis=0, weights=1.0 / row[near]))

    model.preimage = "gradient"
    found = model.inverse_transform(code)

    def value(points: np.ndarray) -> np.ndarray:
        return -2.0 * (weights * Gaussian(4.0)(points, X).numpy()).sum(1)

    assert (value(found) <= distances.min(1) - 1.0 - np.einsum("in,nm,im->i", weights, K, weights) + 1e-9).all()
    for step in np.vstack([np.eye(6), -np.eye(6)]):  # a local minimum
        assert (value(found + 1e-2 * step) >= value(found) - 1e-9).all()


def test_a_search_ends_where_the_slope_vanishes() -> None:
    target = torch.tensor([[1.0, -2.0], [3.0, 0.5]], dtype=torch.float64)
    found = refined(lambda points: (points - target).square().sum(1).square(), torch.zeros_like(target))
    assert torch.allclose(found, target, atol=0.05)


def test_learned_maps_come_close_on_a_curve(circle: np.ndarray) -> None:
    train, test = circle[:60], circle[60:]
    errors = {}
    model = DeepKernelPCA([6, 6], [Gaussian(1.0), Gaussian(1.0)]).fit(train)
    auto = ((model.reconstruct(test) - test) ** 2).sum(1).mean()
    for how in ("ridge", "gradient", "weighted", "nearest"):
        model.preimage = how
        errors[how] = [((model.reconstruct(test, level) - test) ** 2).sum(1).mean() for level in (0, 1)]
    variance = test.var(0).sum()
    assert max(errors["ridge"]) < 0.02 * variance
    assert all(max(error) < 0.25 * variance for error in errors.values())
    assert errors["ridge"][0] < errors["nearest"][0]
    assert auto == errors["ridge"][1]


def test_objects_and_gram_matrices_come_back_as_training_samples() -> None:
    kernel = Spectrum(2).normalized()
    model = DeepKernelPCA([7, 7], [kernel, "linear"]).fit(WORDS)
    assert model.reconstruct(WORDS) == WORDS
    assert model.reconstruct(["bandana"]) == ["banana"]
    gram = kernel(WORDS).numpy()
    given = DeepKernelPCA([7, 7], ["precomputed", "linear"]).fit(gram)
    assert given.reconstruct(gram).tolist() == list(range(8))
    assert set(model.sample(3, random_state=0)) <= set(WORDS)
    assert len(model.traverse(0, steps=3)) == 3


def test_explicit_random_features(circle: np.ndarray) -> None:
    features = RandomFeatures(4000).features(Gaussian(1.0), circle, seed=0)
    explicit = DeepKernelPCA([4, 2], [Pullback(Linear(), features), "linear"]).fit(circle)
    exact = DeepKernelPCA([4, 2], [Gaussian(1.0), "linear"]).fit(circle)
    assert np.allclose(explicit.eigenvalues_[0], exact.eigenvalues_[0], rtol=0.1)
    assert ((explicit.reconstruct(circle, 0) - circle) ** 2).mean() < 0.05


# --- samples and traversals ------------------------------------------------------------------------------------------


def test_samples_have_the_moments_of_what_is_kept(rng: np.random.Generator) -> None:
    X = rng.normal(size=(200, 3)) @ np.array([[2.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.5, 0.3]]) + [
        1.0,
        2.0,
        3.0,
    ]
    model = DeepKernelPCA([3, 3], "linear").fit(X)
    for density, widened in (("gaussian", 1.0), ("kde", 1.0 + 200 ** (-2 / 7))):
        S = model.sample(8000, density=density, random_state=0)
        assert np.allclose(S.mean(0), X.mean(0), atol=0.1)
        assert np.allclose(np.cov(S.T), widened * np.cov(X.T, bias=True), atol=0.3)
    assert np.array_equal(model.sample(5, random_state=3), model.sample(5, random_state=3))
    assert not np.array_equal(model.sample(5, random_state=3), model.sample(5, random_state=4))
    few = DeepKernelPCA([1, 1], "linear").fit(X).sample(50, random_state=0)
    assert np.linalg.matrix_rank(few - X.mean(0)) == 1


def test_density_estimates_keep_clusters_apart(rng: np.random.Generator) -> None:
    X = np.vstack([rng.normal(-5, 0.1, (40, 2)), rng.normal(5, 0.1, (40, 2))])
    model = DeepKernelPCA([2], "linear").fit(X)
    # Scott's width for two codes and 80 samples is 0.48 of the spread of all: narrower than one normal distribution.
    gaussian, kde = (model.sample(2000, density=d, random_state=0) for d in ("gaussian", "kde"))
    assert np.mean(np.abs(kde[:, 0]) < 2) < 0.6 * np.mean(np.abs(gaussian[:, 0]) < 2)


def test_traversals(X: np.ndarray) -> None:
    model = DeepKernelPCA([4, 3], "linear").fit(X)
    path = model.traverse(1, level=0, steps=5, span=1.5)
    assert np.allclose(path[2], X.mean(0))
    pca = PCA(4).fit(X)
    direction = pca.components_[1] * np.sqrt(pca.explained_variance_[1] * (len(X) - 1) / len(X))
    steps = np.linspace(-1.5, 1.5, 5)[:, None] * direction
    assert np.allclose(path - X.mean(0), steps) or np.allclose(path - X.mean(0), -steps)
    from_sample = model.traverse(2, steps=3, start=X[:1])
    assert np.allclose(from_sample[1], model.reconstruct(X[:1])[0])
    assert np.ptp(model.traverse(0, span=0.0), axis=0).max() < 1e-12
    assert np.allclose(model.traverse(0, steps=1), X.mean(0))  # the middle, not an end
    assert np.allclose(model.traverse(0, steps=1, start=X[:1]), model.reconstruct(X[:1]))


def test_a_component_without_variance_leads_nowhere(X: np.ndarray) -> None:
    """Features that are not centred, of a kernel that is nearly one: the first component is a constant."""
    model = DeepKernelPCA([3], [Gaussian(1e6)], center=False).fit(X)
    assert model.hidden_[0][:, 0].std() < 1e-9
    path = model.traverse(0, steps=4, span=2.0)
    assert np.ptp(path, axis=0).max() < 1e-4 * np.ptp(model.traverse(1, steps=4), axis=0).max()


# --- networks --------------------------------------------------------------------------------------------------------


def networks(n_features: int = 3, seed: int = 0) -> tuple[torch.nn.Module, torch.nn.Module]:
    nn = torch.nn
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        encoder = nn.Sequential(nn.Linear(n_features, 16), nn.Tanh(), nn.Linear(16, 8))
        decoder = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, n_features))
    return encoder, decoder


def generative(max_iter: int = 60, **options: Any) -> DeepKernelPCA:
    encoder, decoder = networks()
    trained = Network(decoder, max_iter=max_iter, batch_size=20, learning_rate=0.01)
    return DeepKernelPCA([4, 3], [Neural(encoder, Linear()), "linear"], preimage=trained, random_state=0, **options)


@pytest.fixture(scope="module")
def trained() -> tuple[DeepKernelPCA, np.ndarray]:
    t = np.random.default_rng(0).uniform(0, 2 * np.pi, 80)
    circle = np.column_stack([np.cos(t), np.sin(t), np.cos(2 * t)])
    return generative().fit(circle), circle


def test_networks_learn_to_reconstruct(trained: tuple[DeepKernelPCA, np.ndarray]) -> None:
    model, circle = trained
    untrained = generative(max_iter=1).fit(circle)
    t = np.linspace(0, 6, 50)
    new = np.column_stack([np.cos(t), np.sin(t), np.cos(2 * t)])
    error, before = (((m.reconstruct(new, 0) - new) ** 2).sum(1).mean() for m in (model, untrained))
    assert error < 0.1 * before and error < 0.1
    values = [entry.value for entry in model.training_history_]
    assert len(values) == 60 and values[-1] < 0.05 * values[0]
    assert ((model.reconstruct(new) - new) ** 2).sum(1).mean() < 0.6  # three components, level by level
    assert model.residual_ < 1e-8 and model.sample(7, random_state=0).shape == (7, 3)


def test_networks_are_deterministic_and_arguments_unchanged(
    trained: tuple[DeepKernelPCA, np.ndarray],
) -> None:
    model, circle = trained
    encoder, decoder = networks()
    given = model.get_params()
    for module, original in ((given["kernel"][0].module, encoder), (given["preimage"].module, decoder)):
        for mine, theirs in zip(module.parameters(), original.parameters(), strict=True):
            assert torch.equal(mine, theirs)
    short = [clone(generative(max_iter=3)).fit(circle) for _ in range(2)]
    assert np.array_equal(short[0].hidden_[0], short[1].hidden_[0])
    assert np.array_equal(short[0].reconstruct(circle), short[1].reconstruct(circle))
    copy = pickle.loads(pickle.dumps(model))
    assert np.array_equal(copy.reconstruct(circle), model.reconstruct(circle))
    assert not any(name.startswith("_cached") for name in model.__getstate__())


def test_dropout_and_batch_statistics_are_those_of_training(circle: np.ndarray) -> None:
    """They are active while Adam trains, by seeds of its own, and off in what the fitted model says."""
    nn, (encoder, decoder) = torch.nn, networks()
    encoder = nn.Sequential(encoder, nn.BatchNorm1d(8), nn.Dropout(0.2))
    decoder = nn.Sequential(nn.BatchNorm1d(8), decoder, nn.Dropout(0.1))

    def fitted() -> DeepKernelPCA:
        network = Network(decoder, max_iter=3, batch_size=20)
        model = DeepKernelPCA([4, 3], [Neural(encoder, Linear()), "linear"], preimage=network, random_state=0)
        return model.fit(circle)

    before = torch.random.get_rng_state()
    model, again = fitted(), fitted()
    assert torch.equal(torch.random.get_rng_state(), before)
    assert np.array_equal(model.reconstruct(circle), again.reconstruct(circle))
    first, norm, _ = model.kernel_[0].module
    seen = first(torch.as_tensor(circle, dtype=torch.float32)).detach()
    torch.testing.assert_close(norm.running_mean, seen.mean(0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(norm.running_var, seen.var(0), rtol=1e-4, atol=1e-5)
    assert model.decoder_ is not None and not model.decoder_[0].training
    assert int(model.decoder_[0].num_batches_tracked) == 1  # one pass at the learned weights
    assert encoder[1].num_batches_tracked == decoder[0].num_batches_tracked == 0


def test_the_objective_of_training_in_loops(circle: np.ndarray) -> None:
    """Equation (11) for a batch: residuals of the first level with H and W as they were, and errors of what is kept."""
    encoder, decoder = networks()
    X = torch.as_tensor(circle, dtype=torch.float32)

    def components(features: torch.Tensor) -> torch.Tensor:
        return torch.linalg.svd(features, full_matrices=False).U[:, :3]

    problem = Alternation(Neural(encoder, Linear()), Network(decoder, weight=2.5), X, components, eta=2.0, center=True)
    problem.begin(problem.start)
    moved = problem.start + 0.05 * torch.randn(len(problem.start), generator=torch.Generator().manual_seed(0))
    rows = torch.tensor([3, 10, 11])
    with torch.no_grad():
        before = encoder(X)
        mean = before.mean(0)
        H = components(before - mean)
        W = (before - mean).T @ H / 2.0
        size = sum(p.numel() for p in encoder.parameters())
        torch.nn.utils.vector_to_parameters(moved[:size], encoder.parameters())
        torch.nn.utils.vector_to_parameters(moved[size:], decoder.parameters())
        total = 0.0
        for i in rows:
            features = encoder(X[i : i + 1])[0] - mean
            # K H / η + G/η₂ − H Λ was zero: K_i H / η is what has changed, with K_i the row of the batch.
            total += 0.5 * float(((features - (before[i] - mean)) @ W).square().sum())
            kept = W @ torch.linalg.lstsq(W, features[:, None]).solution[:, 0] + mean
            total += 2.5 * float((decoder(kept[None])[0] - X[i]).square().sum())
    assert float(problem.loss(moved, rows)) == pytest.approx(total / 3, rel=1e-4)
    value, gradient = problem(problem.start, rows)
    assert value.isfinite() and gradient.shape == problem.start.shape


def test_a_network_below_a_nonlinear_level(circle: np.ndarray) -> None:
    encoder, decoder = networks()
    model = DeepKernelPCA(
        [3, 2],
        [Neural(encoder, Linear()), Gaussian(1.0)],
        preimage=Network(decoder, max_iter=4, batch_size=40),
        random_state=0,
    ).fit(circle[:40])
    assert model.residual_ < 1e-8 and model.reconstruct(circle[40:45]).shape == (5, 3)


def test_pictures(rng: np.random.Generator) -> None:
    nn = torch.nn
    images = rng.random((30, 1, 6, 6))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 5))
        decoder = nn.Sequential(nn.Linear(5, 36), nn.Sigmoid(), nn.Unflatten(1, (1, 6, 6)))
    kernel = Neural(encoder, Linear(), domain="objects")
    model = DeepKernelPCA([3, 2], [kernel, "linear"], preimage=Network(decoder, max_iter=3), random_state=0)
    assert model.fit(images).reconstruct(images[:4]).shape == (4, 1, 6, 6)
    assert model.traverse(0, level=0, steps=3).shape == (3, 1, 6, 6)


def test_an_interrupted_training_keeps_what_it_has(circle: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    real = Alternation.begin

    def interrupting(self: Alternation, point: torch.Tensor) -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        real(self, point)

    monkeypatch.setattr(Alternation, "begin", interrupting)
    with pytest.warns(ConvergenceWarning, match="interrupted: the best pass so far is kept"):
        model = generative().fit(circle)
    assert len(model.training_history_) == 3 and model.reconstruct(circle).shape == circle.shape


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["inverse_transform", "reconstruct", "sample", "traverse"])
def test_not_fitted(method: str) -> None:
    argument: Any = 0 if method in ("sample", "traverse") else [[1.0, 2.0]]
    with pytest.raises(NotFittedError):
        getattr(DeepKernelPCA([1]), method)(argument)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda m: m.inverse_transform(np.ones((2, 4))),
            r"Level 1 has 2 components; H has 4 columns.*\[3, 2\]",
        ),
        (lambda m: m.inverse_transform(np.ones((2, 5)), level=0), "Level 0 has 3 components; H has 5"),
        (
            lambda m: m.inverse_transform(np.ones((2, 2)), level=2),
            "level must be None or an integer from 0 to 1",
        ),
        (lambda m: m.inverse_transform(np.full((2, 2), np.nan)), "NaN"),
        (lambda m: m.sample(0), "n_samples must be a positive integer"),
        (lambda m: m.sample(2, density="normal"), "density must be one of 'gaussian', 'kde'"),
        (lambda m: m.traverse(2), "component must be from 0 to 1 at level 1; got 2"),
        (lambda m: m.traverse(-1), "component must be from 0"),
        (lambda m: m.traverse(0, steps=0), "steps must be a positive integer"),
        (lambda m: m.traverse(0, span=-1.0), "span must be a finite number"),
        (lambda m: m.traverse(0, start=np.ones((2, 6))), "start must be one sample; got 2"),
        (lambda m: m.reconstruct(np.ones((2, 5))), "features"),
    ],
)
def test_bad_calls(X: np.ndarray, call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(DeepKernelPCA([3, 2], "linear").fit(X))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preimage": "best"}, "preimage must be one of 'auto', 'direct'.* or a Network; got 'best'"),
        ({"preimage": Network(networks()[1], weight=0.0)}, "weight of Network must be a positive"),
        ({"preimage": Network(networks()[1], max_iter=0)}, "max_iter of Network must be a positive integer"),
        ({"preimage": Network("module")}, "module of Network must be a torch.nn.Module"),  # type: ignore[arg-type]
        ({"preimage": Network(networks()[1])}, "first kernel must be Neural"),
    ],
)
def test_bad_arguments(X: np.ndarray, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DeepKernelPCA([2, 2], **options).fit(X)


def test_maps_that_a_kernel_does_not_allow(X: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"'direct' is for linear kernels.*level 0 has Gaussian"):
        DeepKernelPCA([2], preimage="direct").fit(X).reconstruct(X)
    with pytest.raises(ValueError, match="none that can be averaged"):
        DeepKernelPCA([2], [Spectrum(2)], preimage="weighted").fit(WORDS).reconstruct(WORDS)


def test_networks_whose_shapes_do_not_fit(circle: np.ndarray) -> None:
    encoder, _ = networks()
    wrong = torch.nn.Linear(5, 3)
    model = DeepKernelPCA([2], [Neural(encoder, Linear())], preimage=Network(wrong, max_iter=1))
    with pytest.raises(ValueError, match=r"The decoder does not take features of shape \(80, 8\)"):
        model.fit(circle)
    model.set_params(preimage=Network(torch.nn.Linear(8, 4), max_iter=1))
    with pytest.raises(ValueError, match=r"gave \(80, 4\); data of shape \(80, 3\) are expected"):
        model.fit(circle)


def test_containers_of_set_output_are_for_the_caller_only(X: np.ndarray) -> None:
    plain = DeepKernelPCA([3, 2], random_state=0).fit(X)
    framed = DeepKernelPCA([3, 2], random_state=0).set_output(transform="pandas").fit(X)
    assert list(framed.transform(X).columns) == [f"deepkernelpca{i}" for i in range(5)]
    for level, names in enumerate((range(3), range(3, 5))):
        frame = framed.transform(X, level=level)
        assert list(frame.columns) == [f"deepkernelpca{i}" for i in names]
        assert np.array_equal(frame.to_numpy(), plain.transform(X, level=level))
    assert np.array_equal(framed.reconstruct(X), plain.reconstruct(X))
    assert np.array_equal(framed.traverse(0, start=X[:1]), plain.traverse(0, start=X[:1]))
    with config_context(transform_output="pandas"):
        assert plain.transform(X, level=1).shape == (len(X), 2)
        assert np.array_equal(plain.reconstruct(X), framed.reconstruct(X))


def test_seeds_of_samples_are_checked(X: np.ndarray) -> None:
    for seed in ("a", -1, 1.5):
        with pytest.raises(ValueError, match="random_state must be an integer"):
            DeepKernelPCA([2, 2]).fit(X).sample(random_state=seed)
