"""The energy over levels: its coupling and gradients by the paper's formulas, written out, and by autograd."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from naive_deep_pca import coupling_7, residuals_9

from representer.kernels import Gaussian, Laplacian, Linear, Matern, Polynomial, RationalQuadratic
from representer.problems.levels import LevelsProblem, coupling

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


def test_gradients_of_the_energy_are_those_of_autograd(rng):
    gram = torch.tensor(np.cov(rng.standard_normal((15, 30))))
    problem = LevelsProblem(gram, [Gaussian(0.5), Polynomial(2)], [1.0, -0.7, 2.0])
    hidden = [torch.linalg.qr(torch.tensor(rng.standard_normal((15, s)))).Q for s in (4, 3, 2)]
    state = problem.at(hidden)
    leaves = [H.clone().requires_grad_(True) for H in hidden]
    grams = [gram, Gaussian(0.5)(leaves[0]), Polynomial(2)(leaves[1])]
    parts = [(K * (H @ H.mT)).sum() / (2 * eta) for K, H, eta in zip(grams, leaves, problem.etas, strict=True)]
    sum(parts).backward()
    assert state.energies == pytest.approx([part.item() for part in parts])
    for gradient, leaf in zip(state.gradients, leaves, strict=True):
        assert torch.allclose(gradient, leaf.grad, atol=1e-12)


def test_the_residual_objective_is_equation_9(rng):
    gram = torch.tensor(np.cov(rng.standard_normal((10, 30))))
    problem = LevelsProblem(gram, [Gaussian(0.5), Polynomial(2)], [1.0, -0.7, 2.0])
    hidden = [torch.linalg.qr(torch.tensor(rng.standard_normal((10, s)))).Q for s in (3, 3, 2)]
    values = [torch.tensor(rng.standard_normal(H.shape[1])) for H in hidden]
    pairs = residuals_9(
        gram.numpy(), [H.numpy() for H in hidden], [v.numpy() for v in values], problem.kernels, problem.etas
    )
    assert problem.residual_objective(hidden, values).item() == pytest.approx(0.5 * sum(d**2 for d, _ in pairs))
