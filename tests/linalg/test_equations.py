"""Many small systems of equations at once: roots that are known, and rows that have none."""

from __future__ import annotations

import numpy as np
import torch

from representer.linalg.equations import Limits, broyden, least_squares, levenberg_marquardt


def test_rows_of_equations_are_solved_by_themselves():
    """Circles and lines, x² + y² = r² and y = a x: from afar, and from the other side of a fold."""
    generator = torch.Generator().manual_seed(0)
    radius, slope = (torch.rand(30, generator=generator, dtype=torch.float64) + 0.5 for _ in range(2))

    def equations(x, rows):
        circle = (x**2).sum(1) - radius[rows] ** 2
        return torch.stack([circle, x[:, 1] - slope[rows] * x[:, 0]], 1)

    exact = radius / (1 + slope**2).sqrt()
    exact = torch.stack([exact, slope * exact], 1)
    start = exact + 0.1
    inverse = torch.linalg.inv(torch.tensor([[1.5, 1.5], [-1.0, 1.0]], dtype=torch.float64))
    limits = {"scale": 1.0, "tol": 1e-12, "max_iter": 100}
    quick, safe = (
        broyden(equations, start, inverse, Limits(**limits)),
        levenberg_marquardt(equations, start, Limits(**limits)),
    )
    for solutions, converged in (quick, safe):
        assert converged.all()
        assert torch.allclose(solutions, exact, atol=1e-10)


def test_rows_without_a_solution_are_not_called_converged():
    def equations(x, rows):
        return x**2 + 1.0

    start = torch.full((3, 1), 0.7, dtype=torch.float64)
    limits = {"scale": 1.0, "tol": 1e-10, "max_iter": 40}
    assert not broyden(equations, start, torch.ones(1, 1, dtype=torch.float64), Limits(**limits))[1].any()
    assert not levenberg_marquardt(equations, start, Limits(**limits))[1].any()


def test_least_squares_do_not_depend_on_what_memory_held(rng):
    A, b = torch.from_numpy(rng.normal(size=(42, 3))), torch.from_numpy(rng.normal(size=(42, 1)))
    solutions = []
    for seed in range(50):
        stirred = [torch.full((int(n),), 7, dtype=torch.int32) for n in np.random.default_rng(seed).integers(1, 40, 5)]
        del stirred
        solutions.append(least_squares(A, b))
    assert all(bool((x == solutions[0]).all()) for x in solutions)
    np.testing.assert_allclose(solutions[0], np.linalg.lstsq(A.numpy(), b.numpy(), rcond=None)[0], rtol=1e-12)
    deficient = torch.cat([A, A], 1)
    np.testing.assert_allclose(least_squares(deficient, b), np.linalg.pinv(deficient.numpy()) @ b.numpy(), rtol=1e-9)
