"""What fitted levels say of themselves: the bounds of lemma 4.1, the negative eta of lemma 4.2 of Tonin et al."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from representer import CollapsedComponentWarning, DeepKernelPCA
from representer.kernels import Gaussian, Polynomial


@pytest.fixture
def X(rng):
    return rng.standard_normal((60, 4)) * [2.0, 1.0, 1.0, 0.5]


def bounds_as_printed(K, model):
    """Equation (14)."""
    s1, s2 = model.n_components_
    eta, values = model.eta_[1], model.eigenvalues_[0]
    H2 = model.hidden_[1]
    M = K + H2 @ H2.T / eta
    tail = np.sqrt(max(0.0, (M**2).sum() - (values**2).sum()))
    shallow = np.linalg.eigvalsh(K)[::-1]
    inside = (
        tail**2 - (s2 / eta + 2 * shallow[:s2].sum()) / eta
        if eta < 0
        else tail**2 - (1 / eta - 2 * s1 * values.sum()) * s2 / eta
    )
    return tail - np.sqrt(s2) / abs(eta), np.sqrt(max(0.0, inside))


@pytest.mark.parametrize("eta", [-30.0, -3.0, 0.3, 1.0, 20.0])
@pytest.mark.parametrize("sizes", [[4, 4], [6, 2], [2, 5], [30, 30]])
@pytest.mark.filterwarnings("ignore::representer.CollapsedComponentWarning")
def test_lemma_4_1_bounds_hold(rng, eta, sizes):
    """Figure 4, on random data. The bounds here lie within those of the paper."""
    X = rng.standard_normal((30, 5)) * rng.uniform(0.5, 3.0, 5)
    model = DeepKernelPCA(sizes, [Gaussian(1.0), "linear"], eta=[1.0, eta], center=False).fit(X)
    K = Gaussian(1.0)(X).numpy()
    bounds = model.approximation_bounds()
    H1 = model.hidden_[0]
    assert bounds.error == pytest.approx(np.linalg.norm(K - (H1 * model.eigenvalues_[0]) @ H1.T))
    rounding = 1e-9
    assert bounds.lower <= bounds.error + rounding <= bounds.upper + 2 * rounding
    lower, upper = bounds_as_printed(K, model)
    assert bounds.lower == pytest.approx(max(lower, 0.0), abs=1e-6)
    if (model.eigenvalues_[0] >= 0).all():
        assert bounds.upper <= upper + 1e-6


def test_bounds_of_nonlinear_levels_hold(X):
    for kernels, eta in ((["rbf", Gaussian(1.0)], 1.0), (["rbf", Polynomial(2), "rbf"], [1.0, 5.0, 2.0])):
        sizes = [4, 3, 2][: len(kernels)]
        bounds = DeepKernelPCA(sizes, kernels, eta=eta).fit(X).approximation_bounds()
        assert bounds.lower <= bounds.error <= bounds.upper
    one = DeepKernelPCA(3).fit(X).approximation_bounds()
    assert one.lower == one.error == one.upper


def test_lemma_4_2_negative_eta_explains_more(rng):
    """Figure 9(b): strictly more for every n < N, with the largest η₂ that is allowed."""
    X = rng.standard_normal((25, 6))
    shallow = DeepKernelPCA(25, Gaussian(1.0), center=False).fit(X)
    eta = DeepKernelPCA([25, 25], [Gaussian(1.0), "linear"], center=False).fit(X).eta_for_explained_variance()
    assert eta == pytest.approx(-1.0 / np.linalg.eigvalsh(Gaussian(1.0)(X).numpy())[0])
    deep = DeepKernelPCA([25, 25], [Gaussian(1.0), "linear"], eta=[1.0, eta], center=False).fit(X)
    gains = np.cumsum(deep.explained_variance_ratio_[0]) - np.cumsum(shallow.explained_variance_ratio_[0])
    assert (gains[:-1] > 0).all()
    assert gains[-1] == pytest.approx(0.0, abs=1e-9)
    n, total, head = 5, shallow.eigenvalues_[0].sum(), shallow.eigenvalues_[0][:5].sum()
    assert gains[4] == pytest.approx((n - 25 * head / total) / (eta * total + 25))  # printed as (n − N)/(η₂ Tr K₁ + N)


def test_eta_reaches_a_given_ratio(X):
    model = DeepKernelPCA([5, 5], ["rbf", "linear"]).fit(X)
    eta = model.eta_for_explained_variance(2, 0.65)
    deep = DeepKernelPCA([5, 5], ["rbf", "linear"], eta=[1.0, eta]).fit(X)
    values = deep.eigenvalues_[0]
    assert eta < 0
    assert values[:2].sum() / values.sum() == pytest.approx(0.65)
    with pytest.raises(ValueError, match="out of reach"):
        model.eta_for_explained_variance(2, 0.999)
    with pytest.raises(ValueError, match="Give both n_components"):
        model.eta_for_explained_variance(5, 0.5)
    with pytest.warns(CollapsedComponentWarning, match="only 59 components with variance"):
        full = DeepKernelPCA([60, 60], ["rbf", "linear"]).fit(X)
    with pytest.raises(ValueError, match="no 60 positive eigenvalues"):
        full.eta_for_explained_variance()
    for n, ratio in ((3, "a"), ("a", 0.5), (3, None), (3, True)):
        with pytest.raises(ValueError, match="Give both n_components"):
            model.eta_for_explained_variance(n, ratio)
    with pytest.raises(ValueError, match=r"eta of level 0 is -1\.0"):
        DeepKernelPCA([5, 5], ["rbf", "linear"], eta=[-1.0, 1.0]).fit(X).eta_for_explained_variance()


def test_bounds_hold_for_any_signs_of_eta(rng):
    """Of K_1/η_1 with η_1 < 0, which is negative, the lemma's dropped trace must stay."""
    for trial in range(12):
        X = rng.standard_normal((20, 4)) * rng.uniform(0.5, 3.0, 4)
        eta = rng.uniform(0.3, 3.0, 2) * ([-1, 1] if trial % 2 else [-1, -1])
        sizes = rng.integers(1, 4, 2).tolist()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = DeepKernelPCA(sizes, ["rbf", "linear"], eta=list(eta), max_iter=30).fit(X)
        bounds = model.approximation_bounds()
        assert bounds.lower <= bounds.error * (1 + 1e-9) <= bounds.upper * (1 + 2e-9)
