"""Deep kernel regression: raced restarts against one and against the coefficient form; the cost of one evaluation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from benchmarks._timing import Row, compare, medians, scaled
from benchmarks.coefficient_form import Array, CoefficientForm, Outer, gaussian, tensor_matern
from representer.functions import Chain, Layer
from representer.kernels import Gaussian, Kernel, Linear, Polynomial, TensorMatern
from representer.objectives import Ridge
from representer.optimize import OptimizeResult, lbfgs, with_gradient

RESTARTS = 64
SINGLE_RUNS = 8  # starts differ in how long they take: one run is the mean of these
ALPHA = 1e-5  # λ = μ = 1e-3 in the paper's convention: the middle of its grid, 2⁻¹ to 2⁻¹⁹


def rows() -> list[Row]:
    """The paper's problem for two outer kernels and two inner degrees; then one evaluation at n = 1,000."""
    problems = [
        Kink(degree, kernel, outer)
        for degree in (1, 2)
        for kernel, outer in ((TensorMatern(1, 1.0), tensor_matern), (Gaussian(0.1), gaussian(0.1)))
    ]
    return [row for problem in problems for row in against_one_and_all(problem)] + [one_evaluation(scaled(1000))]


@dataclass(frozen=True)
class Kink:
    """h₁ of Bohn et al. (section 4.2): 100 noisy points, a polynomial inner layer with two outputs, an outer kernel."""

    degree: int
    kernel: Kernel
    outer: Outer  # the same kernel, for the baseline

    @cached_property
    def data(self) -> tuple[Array, Array]:
        rng = np.random.default_rng(0)
        X = rng.uniform(-1, 1, (100, 2))
        return X, 1 / (0.1 + np.abs(X[:, 0] - X[:, 1])) + 0.01 * rng.normal(size=100)

    @cached_property
    def chain(self) -> Chain:
        return Chain([Layer(kernel=Polynomial(self.degree), size=2)], self.data[0])

    @cached_property
    def starts(self) -> Tensor:
        generator = torch.Generator().manual_seed(1)
        return torch.randn(scaled(RESTARTS, 4), self.chain.size, generator=generator, dtype=torch.float64)

    def solve(self, starts: Tensor) -> OptimizeResult:
        """The library's search, raced if there are several starts."""
        return lbfgs(two_layers(self.chain, self.kernel, self.data[1]), starts)

    def solve_coefficients(self, starts: Tensor) -> float:
        """The best value of (Reg) by sequential BFGS from the same functions, as a mean over the samples."""
        X, y = self.data
        inner = Polynomial(self.degree)(X).numpy()
        images = np.stack([self.chain.images(self.chain.split(start))[-1].numpy() for start in starts])
        # The coefficients of least norm; the cut-off is above rounding and below the kernel's own eigenvalues.
        coefficients = np.linalg.pinv(inner, rcond=1e-10) @ images
        form = CoefficientForm(inner, y, self.outer, len(y) * ALPHA, len(y) * ALPHA)
        return min(form.bfgs(coefficients.reshape(len(starts), -1)).values) / len(y)


def two_layers(chain: Chain, kernel: Kernel, y: Array) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Ridge with the outer layer eliminated, and its gradient in the coordinates of the inner layers."""
    ridge = Ridge(y, alpha=ALPHA)

    def objective(points: Tensor) -> Tensor:
        theta = chain.split(points)
        return ridge(kernel(chain.images(theta)[-1])) + ALPHA * chain.squared_norms(theta).sum(-1)

    return with_gradient(objective)


def against_one_and_all(problem: Kink) -> list[Row]:
    """64 raced restarts against one run to its end, and against 64 runs of BFGS on the coefficients."""
    reached: dict[str, float] = {}
    singles = problem.starts[:SINGLE_RUNS]
    restarts = len(problem.starts)

    def raced() -> None:
        reached["ours"] = problem.solve(problem.starts).value

    def single() -> None:
        for start in singles:
            problem.solve(start)

    def sequential() -> None:
        reached["reference"] = problem.solve_coefficients(problem.starts)

    seconds = medians({"raced": raced, "single": single}, repeats=3)
    seconds |= medians({"sequential": sequential}, repeats=1, warmup=0)
    name = f"degree {problem.degree}, outer {type(problem.kernel).__name__}"
    values = f"best {reached['ours']:.4e} / {reached['reference']:.4e}"
    n, unknowns = len(problem.data[1]), problem.chain.size
    return [
        Row(
            f"{name}: {restarts} raced restarts, against one to its end (mean of {len(singles)})",
            f"n = {n}, {unknowns} unknowns",
            seconds["raced"],
            seconds["single"] / len(singles),
            goal=8.0,
        ),
        Row(
            f"{name}: {restarts} raced restarts, against {restarts} BFGS runs on coefficients",
            f"n = {n}, {unknowns} / {2 * n} unknowns",
            seconds["raced"],
            seconds["sequential"],
            goal=0.1,
            note=values,
        ),
    ]


def one_evaluation(n: int) -> Row:
    """Value and gradient of two layers (20 → 5 → 1) against one Gram matrix and one Cholesky factorisation."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n, 20, generator=generator, dtype=torch.float64)
    y = torch.sin(X[:, 0]) + X[:, 1] * X[:, 2]
    chain = Chain([Layer(kernel=Linear(), size=5)], X)
    function = two_layers(chain, Gaussian(4.0), y.numpy())
    start = torch.randn(1, chain.size, generator=generator, dtype=torch.float64)
    images = chain.images(chain.split(start[0]))[-1]
    identity = torch.eye(n, dtype=torch.float64)

    def floor() -> Tensor:
        return torch.linalg.cholesky(Gaussian(4.0)(images) + identity)

    return compare(
        "two layers, value and gradient, against one Gram matrix and one Cholesky",
        f"n = {n}, {chain.size} unknowns",
        ours=lambda: function(start),
        reference=floor,
        goal=3.0,
        repeats=15,
    )
