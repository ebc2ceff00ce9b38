"""Ridge regression on many landmarks by conjugate gradients with the preconditioner of Falkon."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from representer.approximation import Falkon, FeatureMap
from representer.linalg import Cholesky, conjugate_gradient, factorize, power_of_two, shifted
from representer.samples import Block, Samples, Step


@dataclass(frozen=True)
class ProductStep(Step):
    """Σ w c(x) c(x)ᵀV for the columns c of the features (k(Z, x) for landmarks).

    Without V, Σ w (c(x), 1) (y, 1)ᵀ: what the right side and a constant need.
    """

    features: FeatureMap
    coefficients: Tensor | None = None

    @property
    def bytes_per_row(self) -> int:  # type: ignore[override]
        """The columns, and what the kernel needs to make them."""
        return 2 * self.features.n_features * self.features.dtype.itemsize

    def __call__(self, block: Block, total: Tensor | None) -> Tensor:
        columns = self.features.columns(block.X)
        if self.coefficients is None:
            Y = block.Y.to(columns)
            values = torch.cat([Y, torch.ones_like(Y[:, :1])], 1)
        else:
            values = columns @ self.coefficients.to(columns)
        if block.weights is not None:
            values = values * block.weights.to(values)[:, None]
        product = (columns.mT @ values).double()
        if self.coefficients is None:
            product = torch.cat([product, values.double().sum(0, keepdim=True)])
        return product if total is None else total.add_(product)


@dataclass(frozen=True)
class FalkonSolution:
    """Coefficients U (m, p), the constant b (p,) or None, the backward error, and what kept it from the tolerance."""

    coefficients: Tensor
    intercept: Tensor | None
    residual: float
    problem: str | None


def solve_falkon(
    settings: Falkon,
    features: FeatureMap,
    samples: Samples,
    standing: Tensor,
    *,
    alpha: float,
    scales: Tensor,
    rotation: Tensor | None,
    intercept: bool = False,
    limit: int | None = None,
) -> FalkonSolution:
    """The U (m, p) that ``NormalRidge.coefficients`` gives, without the m × m matrix S.

    ``standing`` (r, m) are the features of samples that stand for all in the preconditioner. With an intercept the
    features are centred, by their sums over all samples.
    """
    weight = samples.weight
    shift = alpha * weight

    def transposed(sums: Tensor) -> Tensor:
        return features.transposed(sums.to(features.dtype)).double()

    def product(coefficients: Tensor) -> Tensor:
        columns = features.coefficients(coefficients.to(features.dtype))
        return transposed(samples.total(ProductStep(features, columns), limit=limit))

    first = samples.total(ProductStep(features), limit=limit)
    sides = transposed(first[:-1])
    right, mean, target_mean = sides[:, :-1], sides[:, -1] / weight, first[-1, :-1] / weight
    if intercept:
        right = right - weight * torch.outer(mean, target_mean)
        standing = standing - standing.mean(0)
    right = right if rotation is None else right @ rotation
    unit = power_of_two(right.abs().max())  # The squares of huge or tiny right sides would leave the range.
    right = right / unit
    solve = _preconditioner(standing, scales, shift, weight)
    iterations, curved, missed = 0, True, 1.0
    size = torch.linalg.vector_norm(right).clamp(min=torch.finfo(right.dtype).tiny)

    def precondition(residual: Tensor) -> Tensor:
        nonlocal missed
        missed = float(torch.linalg.vector_norm(residual) / size)
        return solve(residual)

    def apply(values: Tensor) -> Tensor:
        nonlocal iterations, curved
        iterations += 1
        inner = product(values)
        if intercept:
            inner = inner - weight * torch.outer(mean, mean @ values)
        image = scales * inner + shift * values
        curved = bool(((values * image).sum(0) >= 0).all())  # false also for NaN
        return image

    found = conjugate_gradient(
        apply,
        right,
        precondition=precondition,
        tol=float(settings.tol),
        max_iter=int(settings.max_iter),
        name="the normal equations of the landmarks",
        strict=False,
        columnwise=True,
    )
    found = found * unit
    problem = None
    if not curved:
        problem = (
            f"met a direction without positive curvature in iteration {iterations}: rounding errors of the blocks "
            "outweigh alpha. Use dtype='float64' or a larger alpha"
        )
    elif iterations >= int(settings.max_iter):
        problem = f"have not reached {settings!r} after {settings.max_iter} iterations. Increase alpha, max_iter or tol"
    b = None
    if intercept:
        weighted = found * scales
        b = target_mean - mean @ (weighted if rotation is None else weighted @ rotation.mT)
    coefficients = found if rotation is None else found @ rotation.mT
    return FalkonSolution(coefficients, b, missed, problem)


def _preconditioner(standing: Tensor, scales: Tensor, shift: float, weight: float) -> Callable[[Tensor], Tensor]:
    inner = (standing.mT @ standing).double() * (weight / len(standing))

    def factored(scale: float) -> Cholesky:
        return factorize(lambda: shifted(scale * inner, shift), name="The preconditioner of Falkon")

    factors = {scale: factored(scale) for scale in dict.fromkeys(scales.tolist())}
    members = {a: (scales == a).nonzero()[:, 0] for a in factors}

    def precondition(residual: Tensor) -> Tensor:
        solved = torch.empty_like(residual)
        for a, factor in factors.items():
            solved[:, members[a]] = factor.solve(residual[:, members[a]])
        return solved

    return precondition
