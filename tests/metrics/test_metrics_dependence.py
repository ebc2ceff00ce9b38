"""Dependence: double loops, permutations that must find nothing, and known answers."""

import numpy as np
import pytest

from representer import ConditionalMeanEmbedding, OperatorRidge, herd, mean_embedding
from representer.kernels import Gaussian, Linear
from representer.metrics import conditional_independence_test, conditional_mmd, hsic, hsic_test, reciprocal_rank, top_k


def _grams(n=9):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(n, 2)), rng.normal(size=(n, 1))
    K, L = (k(Z).numpy() for k, Z in ((Gaussian(0.8), X), (Gaussian(1.3), Y)))
    return X, Y, K, L


def test_hsic_is_the_distance_of_the_joint_distribution_from_the_product():
    X, Y, K, L = _grams()
    n = len(K)
    joint = sum(K[i, j] * L[i, j] for i in range(n) for j in range(n)) / n**2
    product = K.mean() * L.mean()
    cross = sum(K[i, j] * L[i, q] for i in range(n) for j in range(n) for q in range(n)) / n**3
    assert hsic(X, Y, Gaussian(0.8), Gaussian(1.3)) == pytest.approx(joint + product - 2 * cross, rel=1e-12)
    assert hsic(K, L, "precomputed", "precomputed") == pytest.approx(joint + product - 2 * cross, rel=1e-12)


def test_the_unbiased_hsic_is_the_mean_over_distinct_samples():
    X, Y, K, L = _grams(6)
    numbers = range(6)
    terms = [
        K[i, j] * (L[i, j] + L[q, r] - 2 * L[i, q])
        for i in numbers
        for j in numbers
        for q in numbers
        for r in numbers
        if len({i, j, q, r}) == 4
    ]
    assert hsic(X, Y, Gaussian(0.8), Gaussian(1.3), unbiased=True) == pytest.approx(np.mean(terms), rel=1e-10)


def test_independent_samples_are_found_dependent_as_often_as_the_level_says():
    rng = np.random.default_rng(1)
    p = [hsic_test(*rng.normal(size=(2, 20, 1)), n_permutations=59, random_state=i).p_value for i in range(150)]
    assert 0.02 < np.mean(np.array(p) <= 0.1) < 0.19  # three standard errors about 0.1


def test_what_goes_through_z_alone_is_independent_given_z():
    rng, found = np.random.default_rng(2), []
    for i in range(40):
        z, one, two = rng.normal(size=(3, 80, 1))
        x, y = np.sin(z) + 0.5 * one, z**2 + 0.5 * two
        through = conditional_independence_test(x, y, z, n_permutations=99, random_state=i).p_value
        direct = conditional_independence_test(x, y + x, z, n_permutations=99, random_state=i).p_value
        found.append((through <= 0.05, direct <= 0.05))
    false, true = np.mean(found, 0)
    assert false < 0.17 and true > 0.8


def test_conditional_mmd_is_the_distance_of_embeddings_at_each_input():
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(2, 40, 1))
    one, two = (ConditionalMeanEmbedding("rbf", Linear()).fit(X, g[:, 0]) for g in (y, 3 * y + X))
    got = conditional_mmd(one, two, X[:5])
    np.testing.assert_allclose(got, np.abs(one.mean(X[:5]) - two.mean(X[:5])), atol=1e-8)
    np.testing.assert_allclose(got, one.embedding(X[:5]).distance(two.embedding(X[:5])).diagonal(), atol=1e-7)
    with pytest.raises(ValueError, match="different spaces"):
        conditional_mmd(one, ConditionalMeanEmbedding("rbf", Gaussian(1.0)).fit(X, y[:, 0]), X)


def test_words_for_samples_that_do_not_belong_together():
    with pytest.raises(ValueError, match="belongs to one of the other"):
        hsic(np.ones((3, 1)), np.ones((4, 1)))
    with pytest.raises(ValueError, match="at least 4 samples"):
        hsic(np.ones((3, 1)), np.ones((3, 1)), unbiased=True)
    with pytest.raises(ValueError, match="one kernel, or three"):
        conditional_independence_test(*np.ones((3, 5, 1)), kernels=("rbf", "rbf"))
    with pytest.raises(ValueError, match="candidates of each"):
        top_k(["a"], [])


def test_ranks_of_vectors():
    y, ranked = np.eye(2), [np.eye(2)[[1, 0]], np.eye(2)[[1, 0]]]
    assert top_k(y, ranked) == 0.5 and top_k(y, ranked, 2) == 1.0 and reciprocal_rank(y, ranked) == 0.75


# -- rules of embeddings ----------------------------------------------------------------------------------------------
def _gaussian_pairs(n=300):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(n, 1))
    return X, X[:, 0] + 0.5 * rng.normal(size=n)


def test_the_sum_rule_gives_the_marginal_under_another_distribution_of_x():
    X, y = _gaussian_pairs()
    model = ConditionalMeanEmbedding().fit(X, y)
    prior = 0.8 + 0.5 * np.random.default_rng(5).normal(size=(400, 1))
    marginal = model.embedding(prior).mixture()
    mean, second = (float(marginal.expect(lambda y, power=power: y[:, 0] ** power)) for power in (1, 2))
    assert mean == pytest.approx(0.8, abs=0.06) and second - mean**2 == pytest.approx(0.5, abs=0.08)
    weights = np.linspace(0, 1, 400)
    weighted = model.embedding(prior).mixture(weights / weights.sum())
    expected = mean_embedding(
        model.Y_fit_, model.output_kernel_, weights=weights @ model.weights(prior) / weights.sum()
    )
    assert float(weighted.distance(expected)) < 1e-7


def test_the_product_rule_is_the_conditional_operator_on_the_prior():
    """Σ_j π_j μ(Y | x_j) ⊗ k(x_j, ·) = C_YX (C_XX + λ)⁻¹ C_π in explicit features; its marginal is the sum rule."""
    rng = np.random.default_rng(0)
    X, prior, at = rng.normal(size=(30, 2)), rng.normal(size=(12, 2)), rng.normal(size=(5, 2))
    Y, targets = rng.normal(size=(30, 3)), rng.normal(size=(4, 3))
    shares = rng.dirichlet(np.ones(12))
    model = ConditionalMeanEmbedding(Linear(), Linear(), 0.1, criterion=None, fit_intercept=False).fit(X, Y)
    means = model.embedding(prior)
    pair = (means(targets).numpy().T * shares) @ Linear()(prior, at).numpy()  # at (y, x)

    operator = (Y.T @ X / 30) @ np.linalg.inv(X.T @ X / 30 + 0.1 * np.eye(2))  # C_YX (C_XX + λ)⁻¹
    joint = operator @ (prior.T * shares) @ prior
    np.testing.assert_allclose(pair, targets @ joint @ at.T, atol=1e-10)
    np.testing.assert_allclose(
        means.mixture(shares)(targets).numpy()[0], targets @ operator @ prior.T @ shares, atol=1e-10
    )


def test_a_filter_of_two_rules_follows_that_of_kalman():
    """A linear system with normal noise, whose filter is known, followed by embeddings that have samples only."""
    rng = np.random.default_rng(0)
    states = rng.uniform(-3, 3, size=(200, 1))
    following, seen = 0.8 * states + 0.4 * rng.normal(size=(200, 1)), states + 0.5 * rng.normal(size=(200, 1))
    options = {"alpha": 1e-3, "criterion": None}
    motion = ConditionalMeanEmbedding(Gaussian(0.7), Gaussian(0.5), **options).fit(states, following)
    sight = ConditionalMeanEmbedding(Gaussian(0.7), Gaussian(0.5), **options).fit(states, seen)
    belief, mean, variance, ours, known = rng.normal(size=(100, 1)), 0.0, 1.0, [], []
    for y in (0.5, 1.0, 1.5, 1.0, 0.0, -1.0, -1.5, -1.0):
        samples = sight.posterior(belief).sample([[y]], 40)[0]
        belief = herd(motion.embedding(samples).mixture(), 40)
        mean, variance = mean + variance / (variance + 0.25) * (y - mean), 0.25 * variance / (variance + 0.25)
        ours.append(samples.mean())
        known.append(mean)
        mean, variance = 0.8 * mean, 0.64 * variance + 0.16
    np.testing.assert_allclose(ours, known, atol=0.25)


def test_bayes_rule_has_the_posterior_means_of_normal_variables():
    X, y = _gaussian_pairs()
    prior = 0.7 + 0.5 * np.random.default_rng(6).normal(size=(400, 1))
    posterior = ConditionalMeanEmbedding().fit(X, y).posterior(prior)
    at = np.array([[0.0], [0.7], [1.4]])
    np.testing.assert_allclose(posterior.mean(at)[:, 0], (0.7 + at[:, 0]) / 2, atol=0.12)  # equal precisions
    own = ConditionalMeanEmbedding().fit(X, y).posterior(X)
    np.testing.assert_allclose(own.mean(at)[:, 0], at[:, 0] * 0.8, atol=0.12)  # the training distribution itself


def test_bayes_rule_weighs_the_prior():
    X, y = _gaussian_pairs(80)
    model = ConditionalMeanEmbedding("rbf", alpha=1e-2).fit(X, y)
    twice = model.posterior(np.repeat(X[:10], 2, axis=0))
    np.testing.assert_allclose(model.posterior(X[:10]).mean([[0.5]]), twice.mean([[0.5]]), rtol=1e-6)
    only = model.posterior(X[:20], prior_weight=np.repeat([1.0, 0.0], 10))
    np.testing.assert_allclose(model.posterior(X[:10]).mean([[0.5]]), only.mean([[0.5]]), rtol=1e-6)


def test_bayes_rule_needs_pairs():
    gram = Gaussian(1.0)(np.arange(5.0)[:, None]).numpy()
    with pytest.raises(ValueError, match="training pairs themselves"):
        ConditionalMeanEmbedding("precomputed").fit(gram, np.arange(5.0)).posterior(gram)


def test_regressions_on_embeddings_see_through_a_confounder():
    """Instruments: E[y | z] = ⟨f, μ(x | z)⟩. Proxies: E[y | a, z] = ⟨h, k(a, ·) ⊗ μ(w | a, z)⟩."""
    rng = np.random.default_rng(0)
    z, u = rng.uniform(-2, 2, size=(600, 1)), rng.normal(size=600)
    x = z + 0.9 * u[:, None]
    y = np.sin(x[:, 0]) + u
    means = ConditionalMeanEmbedding("rbf", Gaussian(1.0)).fit(z[:300], x[:300]).embedding(z[300:])
    cause = OperatorRidge("precomputed", alpha=0.01).fit(means.inner().numpy(), y[300:])
    at = np.linspace(-1.5, 1.5, 7)[:, None]
    error = np.abs(cause.predict(means(at).mT.numpy()) - np.sin(at[:, 0])).mean()
    confounded = np.abs(OperatorRidge("rbf").fit(x, y).predict(at) - np.sin(at[:, 0])).mean()
    assert error < 0.12 < 0.2 < confounded

    rng = np.random.default_rng(0)  # as on the page on embeddings
    u = rng.uniform(-1, 1, size=600)
    a, z, w = (u + noise * rng.normal(size=600) for noise in (0.5, 0.2, 0.2))
    y = np.cos(a) + 2 * u + 0.1 * rng.normal(size=600)
    a, given, kernel = a[:, None], np.c_[a, z], Gaussian(0.7)
    means = ConditionalMeanEmbedding("rbf", Gaussian(0.5)).fit(given[:300], w[:300]).embedding(given[300:])
    bridge = OperatorRidge("precomputed").fit((means.inner() * kernel(a[300:])).numpy(), y[300:])
    at, everyone = np.linspace(-1, 1, 7)[:, None], mean_embedding(w[:, None], Gaussian(0.5))
    effect = bridge.predict((kernel(at, a[300:]) * means.inner(everyone).mT).numpy())
    confounded = np.abs(OperatorRidge().fit(a, y).predict(at) - np.cos(at[:, 0])).mean()
    assert np.abs(effect - np.cos(at[:, 0])).mean() < 0.2 < 0.5 < confounded
