"""Autoencoders as deep problems: batches of samples for large data, restarts where codes collapse, codes in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from representer.functions import Chain, Layer
from representer.operators import Decomposable, Identity, OperatorKernel
from representer.optimize import OptimizeResult, adam
from representer.problems.composition import DeepProblem
from representer.problems.deep import DeepFit, Solution
from representer.problems.hyperparameters import minimise
from representer.problems.starts import flat, random_starts

# Codes whose spread is this share of that of kernel PCA are a constant: the encoder's penalty has won.
COLLAPSED = 1e-3
# Starts of a second search from where the first has collapsed.
RESCUE_STARTS = 8
# A step of Adam moves a coordinate by about this share of the size that coordinates have at the start.
RELATIVE_STEP = 0.1


def rescued(fit: DeepFit, solution: Solution) -> tuple[Solution, bool]:
    """Where codes have collapsed, the better of the solution and another from random starts, of which some are wider;
    and whether that has collapsed, too."""
    if solution.interrupted or not has_collapsed(fit, solution):
        return solution, False
    assert solution.problem.chain is not None
    principal = fit.starts(solution.problem)[0]
    starts = random_starts(solution.problem.chain, principal, RESCUE_STARTS, fit.generator)
    result = fit.minimise(solution.problem, starts, callback=fit.settings.callback, description="restarts")
    if result.value < solution.value:
        solution = replace(solution, point=result.point, value=result.value, result=result)
    elif result.interrupted and solution.result is not None:  # not the better point, but worth a word
        solution = replace(solution, result=replace(solution.result, interrupted=True))
    return solution, has_collapsed(fit, solution)


def has_collapsed(fit: DeepFit, solution: Solution) -> bool:
    """Are all codes nearly the same, against those of kernel PCA?"""
    chain = solution.problem.chain
    assert chain is not None and fit.start is not None
    codes = chain.images(chain.split(solution.point))[-1]
    return bool(codes.std(0).max() <= COLLAPSED * fit.start.std(0).max())


def batch_minimiser(batch_size: int, seed: int) -> Callable[..., OptimizeResult]:
    """A search by Adam on so many samples at a time, each batch with the best decoder for it."""

    def search(problem: DeepProblem, starts: Tensor, *, max_iter: int, tol: float, **options: Any) -> OptimizeResult:
        if problem.landmarks is None or batch_size >= len(problem.rows):
            return minimise(problem, starts, max_iter=max_iter, tol=tol, **options)
        with torch.no_grad():  # Adam takes one start: the best for as many samples as a batch has
            some = problem.rows[:: max(1, len(problem.rows) // batch_size)]
            values = problem.restricted(some).value(starts)
        start = starts[torch.where(values.isfinite(), values, torch.inf).argmin()]

        def value_and_gradient(point: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            values, gradients = problem.restricted(rows).value_and_gradient(point[None])
            return values[0], gradients[0]

        result = adam(
            value_and_gradient,
            start,
            n_samples=len(problem.rows),
            batch_size=batch_size,
            learning_rate=RELATIVE_STEP * start.square().mean().sqrt().item(),
            max_iter=max_iter,
            tol=max(tol, 1e-4),
            random_state=seed,
            **options,
        )
        with torch.no_grad():  # of all samples: batches have decoders of their own
            return replace(result, value=problem.value(result.point[None]).item())

    return search


def ordered(chain: Chain, point: Tensor, layer: int, after: OperatorKernel) -> Tensor:
    """The same functions with the codes of a layer turned to their principal axes, in order of variance.

    Only where nothing depends on the turn: the layer's own kernel is scalar, and the kernel ``after`` it is invariant.
    The largest code in absolute value of each component is positive.
    """
    coordinates = chain.split(point)
    codes = chain.images(coordinates)[layer]
    kernel = chain.layers[layer].operator_kernel
    scalar = isinstance(kernel, Decomposable) and isinstance(kernel._operator, Identity)
    if not scalar or not _is_turned_freely(after, codes):
        return point
    _, _, Vt = torch.linalg.svd(codes - codes.mean(0), full_matrices=len(codes) < codes.shape[1])
    turned = codes @ Vt.mT
    signs = turned.gather(0, turned.abs().argmax(0, keepdim=True)).sign()
    coordinates[layer] = coordinates[layer] @ (Vt.mT * torch.where(signs == 0, 1.0, signs))
    # Explicit features of a later layer turn with the codes, and its coordinates would have to follow.
    before, behind = (images[layer + 1 :] for images in (chain.images(chain.split(point)), chain.images(coordinates)))
    same = all(_is_close(a, b) for a, b in zip(before, behind, strict=True))
    return flat(coordinates) if same else point


def _is_turned_freely(kernel: OperatorKernel, codes: Tensor) -> bool:
    """Is k(QZ) = k(Z) for an orthogonal Q? Asked of a few codes and one Q that mixes all axes and turns one over."""
    if not isinstance(kernel, Decomposable):
        return False
    some = codes[:: max(1, len(codes) // 20)]
    size = codes.shape[1]
    mixing = torch.ones(size, size, dtype=codes.dtype).cumsum(0).sin() + torch.eye(size, dtype=codes.dtype)
    Q = torch.linalg.qr(mixing).Q
    Q[:, 0] *= -torch.linalg.det(Q).sign()  # a reflection, too: signs are chosen freely
    return _is_close(kernel.kernel._gram(some, None), kernel.kernel._gram(some @ Q.to(codes), None))


def _is_close(a: Tensor, b: Tensor) -> bool:
    """Up to half the digits."""
    return bool((a - b).abs().max() <= torch.finfo(a.dtype).eps ** 0.5 * a.abs().max())


def narrowest(layers: list[Layer]) -> int:
    """The layer whose values are the codes: the first of least size."""
    return min(range(len(layers)), key=lambda i: layers[i].size)
