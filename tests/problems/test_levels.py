"""The energy over levels: its coupling and gradients by the paper's formulas, written out, and by autograd."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from naive_deep_pca import coupling_7, energy, residuals_9
from sklearn.base import clone
from tiers import tiers

from representer import DeepKernelPCA
from representer.approximation import Nystroem
from representer.estimators.validation import seed_of
from representer.kernels import Gaussian, Laplacian, Linear, Matern, Polynomial, RationalQuadratic, Spectrum
from representer.operators import Representation
from representer.optimize.search import SearchSettings
from representer.problems.levels import LevelEnergy, LevelModel, LevelSearch, LevelsProblem, coupling
from representer.samples import Block, InMemory, plain, take

KERNELS = [
    Linear(),
    Gaussian(0.4),
    Polynomial(3, 0.5),
    Matern(2.5, 0.7),
    RationalQuadratic(0.5),
    Laplacian(0.6),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_coupling_is_the_khatri_rao_formula_and_a_gradient(rng, kernel):
    H, above = (torch.linalg.qr(torch.tensor(rng.standard_normal((12, s)))).Q for s in (3, 2))
    G = coupling(kernel, H, above)
    assert np.allclose(G.numpy(), coupling_7(kernel, H.numpy(), above.numpy()), atol=1e-12)
    leaf = H.clone().requires_grad_(True)
    (0.5 * (kernel(leaf) * (above @ above.mT)).sum()).backward()
    assert torch.allclose(G, leaf.grad, atol=1e-12)
    assert torch.allclose(G, coupling(kernel, H, above, kernel(H)), atol=1e-12)


@pytest.mark.parametrize("center", [True, False])
def test_gradients_of_the_energy_are_those_of_autograd(rng, center):
    gram = torch.tensor(np.cov(rng.standard_normal((15, 30))))
    problem = LevelEnergy(gram, [Gaussian(0.5), Polynomial(2)], [1.0, -0.7, 2.0], center)
    hidden = [torch.linalg.qr(torch.tensor(rng.standard_normal((15, s)))).Q for s in (4, 3, 2)]
    state = problem.at(hidden)
    leaves = [H.clone().requires_grad_(True) for H in hidden]
    grams = [gram, Gaussian(0.5)(leaves[0]), Polynomial(2)(leaves[1])]
    C = torch.eye(15, dtype=torch.float64) - (1.0 / 15 if center else 0.0)
    grams[1:] = [C @ K @ C for K in grams[1:]]
    parts = [(K * (H @ H.mT)).sum() / (2 * eta) for K, H, eta in zip(grams, leaves, problem.etas, strict=True)]
    sum(parts).backward()
    assert state.energies == pytest.approx([part.item() for part in parts])
    for gradient, leaf in zip(state.gradients, leaves, strict=True):
        assert torch.allclose(gradient, leaf.grad, atol=1e-12)
    totals = [K.trace() / eta for K, eta in zip(grams, problem.etas, strict=True)]
    backward = [leaf.grad - K @ leaf / eta for K, leaf, eta in zip(grams, leaves, problem.etas, strict=True)]
    for total, trace, G, H in zip(state.totals, totals, backward, hidden, strict=True):
        assert total == pytest.approx((trace + (G * H).sum()).item())  # the trace of M_j, symmetric with M_j H_j = ∇_j


@pytest.mark.parametrize("center", [True, False])
def test_the_energy_is_that_of_loops_and_its_gradient_their_differences(rng, center):
    gram, kernels, etas = np.cov(rng.standard_normal((7, 30))), [Gaussian(0.5), Polynomial(2)], [1.0, -0.7, 2.0]
    hidden = [np.linalg.qr(rng.standard_normal((7, s)))[0] for s in (3, 2, 2)]
    state = LevelEnergy(torch.tensor(gram), kernels, etas, center).at([torch.tensor(H) for H in hidden])
    assert state.energy == pytest.approx(energy(gram, hidden, kernels, etas, center), rel=1e-12)
    for j, gradient in enumerate(state.gradients):
        direction, step = rng.standard_normal(hidden[j].shape), 1e-5
        moved = ([*hidden[:j], hidden[j] + s * step * direction, *hidden[j + 1 :]] for s in (1, -1))
        ahead, behind = (energy(gram, levels, kernels, etas, center) for levels in moved)
        assert (ahead - behind) / (2 * step) == pytest.approx((gradient.numpy() * direction).sum(), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("center", [True, False])
def test_the_residual_objective_is_equation_9(rng, center):
    gram = torch.tensor(np.cov(rng.standard_normal((10, 30))))
    problem = LevelEnergy(gram, [Gaussian(0.5), Polynomial(2)], [1.0, -0.7, 2.0], center)
    hidden = [torch.linalg.qr(torch.tensor(rng.standard_normal((10, s)))).Q for s in (3, 3, 2)]
    values = [torch.tensor(rng.standard_normal(H.shape[1])) for H in hidden]
    arrays = [H.numpy() for H in hidden], [v.numpy() for v in values]
    pairs = residuals_9(gram.numpy(), *arrays, problem.kernels, problem.etas, center)
    assert problem.residual_objective(hidden, values).item() == pytest.approx(0.5 * sum(d**2 for d, _ in pairs))


# -- the problem ------------------------------------------------------------------------------------------------------
def make_problem(X, kernel, **options):
    model = LevelModel.of([3, 2], [kernel, Gaussian(0.8)], [1.0, 0.7], **options)
    search = LevelSearch("auto", SearchSettings(max_iter=200, tol=1e-9, seed=seed_of(0)))
    return LevelsProblem(InMemory(Block(X, torch.zeros(len(X), 0))), model, search, Representation(torch.float64))


@pytest.mark.parametrize("center", [True, "data", False])
def test_the_gradient_of_the_problem_equals_finite_differences(rng, center):
    problem = make_problem(rng.standard_normal((9, 3)), Gaussian(1.3), center=center)
    assert problem.free == ["hidden__0", "hidden__1"]
    points = torch.from_numpy(rng.standard_normal((2, 9 * 5)))
    for rows, m in ((None, 45), (torch.arange(0, 9, 2), 25)):
        values, gradients = problem.value_and_gradient(points[:, :m], rows)
        directions, step = torch.from_numpy(rng.standard_normal((2, m))), 1e-6
        ahead, behind = (
            problem.value_and_gradient(points[:, :m] + sign * step * directions, rows)[0] for sign in (1, -1)
        )
        assert values.shape == (2,)
        assert torch.allclose((ahead - behind) / (2 * step), (gradients * directions).sum(1), rtol=1e-6)


def test_a_solution_is_stationary_on_the_manifold(rng):
    problem = make_problem(rng.standard_normal((12, 3)), Gaussian(1.3))
    choice = problem.choose()
    (value,), (gradient,) = problem.value_and_gradient(torch.cat([H.flatten() for H in choice.state.hidden])[None])
    assert value.item() == pytest.approx(-choice.state.energy)
    for H, G in zip(choice.state.hidden, gradient.split([36, 24]), strict=True):
        G = G.reshape(H.shape)
        assert (G - H @ (H.mT @ G)).norm() <= 1e-8 * G.norm()


@pytest.mark.parametrize(
    "kind", tiers(["exact", "landmarks", "gram", "strings"], lambda kind: kind in ("exact", "gram"))
)
def test_held_out_recovery_equals_that_of_cloned_estimators(rng, kind):
    X = rng.standard_normal((30, 3))
    folds = [(torch.arange(10, 30), torch.arange(10)), (torch.arange(20), torch.arange(20, 30))]
    approximation = Nystroem(12) if kind == "landmarks" else None
    kernel = {"gram": "precomputed", "strings": Spectrum(2)}.get(kind, Gaussian(1.3))
    data = X
    if kind == "gram":
        data = plain(Gaussian(1.3)(X))
    elif kind == "strings":
        data = ["".join(rng.choice(list("abc"), 6)) for _ in range(30)]
    problem = make_problem(data, kernel, approximation=approximation)
    recoveries = problem.held_out([(a.numpy(), b.numpy()) for a, b in folds], problem.search.settings)
    options = {"eta": [1.0, 0.7], "approximation": approximation, "random_state": 0}
    model = DeepKernelPCA([3, 2], [kernel, Gaussian(0.8)], **options)
    for (training, held_out), recovery in zip(folds, recoveries, strict=True):
        inside, outside = (take(data, rows) for rows in (training, held_out))
        if kind == "gram":
            inside, outside = inside[:, training], outside[:, training]
        score = clone(model).fit(inside).score(outside)
        assert recovery.errors.shape == (10,)
        assert recovery.share == pytest.approx(score, rel=1e-7)
