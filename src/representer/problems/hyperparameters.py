"""Hyperparameters of a composition: the error on data that a fit has not seen, minimised by implicit gradients.

Θ(h) minimises J(Θ, h); the error is E(h) = C(Θ(h), h). By the implicit function theorem
dE/dh = ∂C/∂h − (∂²J/∂h∂Θ) u with (∂²J/∂Θ²) u = ∂C/∂Θ: one linear system by conjugate gradients, whose products with
the Hessian are differences of two gradients, whatever the number of hyperparameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from representer.linalg import conjugate_gradient
from representer.optimize import Callback, Choice, Deadline, OptimizeResult, lbfgs
from representer.problems.composition import Composition, DeepProblem
from representer.values import Packing

# A hypergradient only has to point downhill: two digits are enough.
SYSTEM_TOL, SYSTEM_ITERATIONS = 1e-2, 20
# Solutions of the folds have a tolerance, and may settle in another minimum nearby: so exactly, relatively, is E known.
NOISE = 1e-2
# Factors by which the penalties of all inner layers are multiplied to find where the search should begin.
PENALTY_FACTORS = (1.0, 0.1, 0.01, 1e-3, 1e-4)


def minimise(
    problem: DeepProblem,
    starts: Tensor,
    *,
    max_iter: int,
    tol: float,
    callback: Callback | None = None,
    verbose: int = 0,
    description: str = "",
    deadline: Deadline | None = None,
    strict: bool = True,
) -> OptimizeResult:
    """Minimise J from some starts, in units of its value at the first: tolerances do not depend on those of y.

    Where J is finite at no start, the value is NaN, or, if ``strict``, what is wrong is raised.
    """
    info = torch.finfo(starts.dtype)
    # Constant targets are met without error at no cost: what is then left of J is their rounding.
    floor = (info.eps * problem.Y.square().nanmean().item()) or info.tiny
    nowhere = OptimizeResult(starts[0], math.nan, torch.full_like(starts[:, 0], torch.nan), False, "", 0, 0, False, [])
    try:
        first = problem.value_and_gradient(starts)
    except KeyboardInterrupt:  # lbfgs would have kept its best point: this is it
        return replace(nowhere, message="interrupted", interrupted=True)
    finite = torch.isfinite(first[0])
    if not bool(finite.any()):
        if not strict:
            return nowhere
        problem.solve(starts[0])  # raises what is wrong; where it does not, the search says so
    unit = first[0][:1].abs().clamp(min=floor) if bool(finite[0]) else torch.ones_like(first[0][:1])
    evaluations = [first]  # the search begins with that of the starts

    def in_units(points: Tensor) -> tuple[Tensor, Tensor]:
        values, gradients = evaluations.pop() if evaluations else problem.value_and_gradient(points)
        return values / unit, gradients / unit

    options = {"callback": callback, "verbose": verbose, "description": description, "deadline": deadline}
    result = lbfgs(in_units, starts, max_iter=max_iter, tol=tol, **options)  # type: ignore[arg-type]
    factor = unit.item()
    vanished = result.value <= info.eps and not result.interrupted
    history = [e._replace(value=e.value * factor, gradient_norm=e.gradient_norm * factor) for e in result.history]
    return replace(
        result,
        value=result.value * factor,
        values=result.values * factor,
        converged=result.converged or vanished,
        history=history,
    )


@dataclass
class Fold:
    """A problem with a score, and the coordinates from which it is solved anew."""

    problem: DeepProblem
    point: Tensor


class HyperparameterSearch:
    """The mean error over folds as a function of the free hyperparameters' raw vector h."""

    def __init__(
        self,
        composition: Composition,
        free: Sequence[str],
        folds: Sequence[Fold],
        *,
        max_iter: int,
        tol: float,
        least_alpha: float = 0.0,
        frozen: bool = False,
        deadline: Deadline | None = None,
    ):
        self.composition, self.folds, self.least_alpha = composition, list(folds), least_alpha
        self.frozen = frozen  # inner layers stay as they are: only the outer function is fitted anew
        self.max_iter, self.tol, self.deadline = max_iter, tol, deadline
        packing, start = composition.packing(list(free))
        self.packing: Packing = packing
        self.start = start.to(folds[0].problem.Y)
        self.best = math.inf
        self.unit: float | None = None  # the first error, so that tolerances do not depend on the units of y

    def unpack(self, h: Tensor) -> Composition:
        """The composition of a raw vector, differentiable; the outer alpha stays above its least value."""
        values = self.packing.unpack(h)
        if "alpha" in values:
            values["alpha"] = values["alpha"] + self.least_alpha
        return self.composition.replace(values)

    def __call__(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """E and its gradient at one h, in units of the first E; the folds are solved anew from where the best h left
        them."""
        numbers, solved = self._solve_all(h)
        if solved is None:
            return h.new_tensor(torch.nan), torch.full_like(h, torch.nan)
        parts = [
            hypergradient(fold.problem, None if self.frozen else fold.problem.at(numbers), point, h, self.unpack)
            for fold, point in zip(self.folds, solved, strict=True)
        ]
        value = torch.stack([value for value, _ in parts]).mean()
        gradient = torch.stack([gradient for _, gradient in parts]).mean(0)
        if float(value) < self.best:
            self.best = float(value)
            self._keep(solved)
        if self.unit is None and math.isfinite(value):
            self.unit = max(float(value), torch.finfo(value.dtype).tiny)
        return value / (self.unit or 1.0), gradient / (self.unit or 1.0)

    def _solve_all(self, h: Tensor) -> tuple[Composition, list[Tensor] | None]:
        """The composition at h and the folds' solutions there; None where a fold has none (alpha too small, say)."""
        with torch.no_grad():
            numbers = self.unpack(h).numbers()
        points = []
        for fold in self.folds:
            if fold.problem.size == 0 or self.frozen:
                points.append(fold.point)
                continue
            problem = fold.problem.at(numbers)
            limits = {"max_iter": self.max_iter, "tol": self.tol, "deadline": self.deadline}
            result = minimise(problem, fold.point[None], **limits, strict=False)  # type: ignore[arg-type]
            if result.interrupted:
                raise KeyboardInterrupt
            if not math.isfinite(result.value):
                return numbers, None
            points.append(result.point)
        return numbers, points

    def _keep(self, points: Sequence[Tensor]) -> None:
        for fold, point in zip(self.folds, points, strict=True):
            fold.point = point

    def scan(self) -> None:
        """Move the start to where the error is least among some multiples of the inner layers' penalties.

        Downhill from the multiple in the middle, at which the folds' images were found from which each is solved.
        """
        inner = {name for name in self.packing.shapes if name.startswith("layers__") and name.endswith("__alpha")}
        if not inner:
            return
        sizes = {name: shape.numel() for name, shape in self.packing.shapes.items()}
        shift = self.start.new_tensor([float(name in inner) for name, size in sizes.items() for _ in range(size)])
        origin, middle = self.start, len(PENALTY_FACTORS) // 2
        best = self._tried(origin + math.log(PENALTY_FACTORS[middle]) * shift)
        for factors in (PENALTY_FACTORS[middle + 1 :], PENALTY_FACTORS[:middle][::-1]):
            first = best
            for factor in factors:
                found = self._tried(origin + math.log(factor) * shift)
                if not found[0] < best[0]:
                    break
                best = found
            if best is not first:  # downhill on this side
                break
        error, h, points = best
        self._keep(points)
        if math.isfinite(error):
            self.best, self.start = error, h

    def _tried(self, h: Tensor) -> tuple[float, Tensor, list[Tensor]]:
        """The error at h, infinite where there is none, and the folds' solutions."""
        numbers, points = self._solve_all(h)
        if points is None:
            return math.inf, h, [fold.point for fold in self.folds]
        with torch.no_grad():
            solved = zip(self.folds, points, strict=True)
            errors = [fold.problem.score(point[None], numbers)[0] for fold, point in solved]
        error = torch.stack(errors).mean().item()
        return error if math.isfinite(error) else math.inf, h, points

    def run(self, *, max_iter: int, tol: float, callback: Callback | None, verbose: int) -> Choice:
        """Minimise the error; what was found when it is interrupted is kept."""

        def function(points: Tensor) -> tuple[Tensor, Tensor]:
            values, gradients = zip(*(self(point) for point in points), strict=True)
            return torch.stack(values), torch.stack(gradients)

        description = "error of held-out data"
        options = {"callback": callback, "verbose": verbose, "description": description, "deadline": self.deadline}
        result = lbfgs(function, self.start, max_iter=max_iter, tol=tol, noise=NOISE, **options)  # type: ignore[arg-type]
        with torch.no_grad():
            chosen = self.unpack(result.point).numbers()
        unit = self.unit or 1.0
        history = [entry._replace(value=entry.value * unit) for entry in result.history]
        return Choice(chosen, chosen.alpha, result.value * unit, history, result.interrupted)


def hypergradient(
    problem: DeepProblem,
    fixed: DeepProblem | None,
    point: Tensor,
    h: Tensor,
    unpack: Callable[[Tensor], Composition],
) -> tuple[Tensor, Tensor]:
    """C(Θ, h) and dE/dh at the minimiser Θ = ``point`` of J(·, h); ``fixed``: the problem at h, None if Θ is given."""
    theta, raw = point.detach().requires_grad_(fixed is not None), h.detach().requires_grad_()
    with torch.enable_grad():
        value = problem.score(theta[None], unpack(raw))[0]
        if fixed is None:
            (in_h,) = torch.autograd.grad(value, [raw], allow_unused=True, materialize_grads=True)
            return value.detach(), in_h
        in_theta, in_h = torch.autograd.grad(value, [theta, raw], allow_unused=True, materialize_grads=True)
    if not bool(in_theta.any()) or not bool(torch.isfinite(in_theta).all()):
        return value.detach(), in_h

    limit = min(SYSTEM_ITERATIONS, 2 * point.numel())
    u = conjugate_gradient(hessian_of(fixed, point, in_theta), in_theta, tol=SYSTEM_TOL, max_iter=limit, strict=False)
    step = _step_along(u, point)
    raw = h.detach().requires_grad_()
    with torch.enable_grad():
        difference = problem.value(torch.stack([point + step * u, point - step * u]), unpack(raw))
        (mixed,) = torch.autograd.grad(difference[0] - difference[1], raw, allow_unused=True, materialize_grads=True)
    return value.detach(), in_h - mixed / (2.0 * step)


def hessian_of(problem: DeepProblem, point: Tensor, probe: Tensor) -> Callable[[Tensor], Tensor]:
    """Products with ∂²J/∂Θ²: exact ones if the problem has them, which a probe shows, otherwise central differences."""
    exact = problem.hessian(point)
    try:
        if exact is not None and bool(torch.isfinite(exact(probe)).all()):
            return exact
    except RuntimeError:  # a kernel's gradient that is not differentiable
        pass

    def differences(direction: Tensor) -> Tensor:
        step = _step_along(direction, point)
        ends = torch.stack([point + step * direction, point - step * direction])
        _, gradients = problem.value_and_gradient(ends)
        return (gradients[0] - gradients[1]) / (2.0 * step)

    return differences


def _step_along(direction: Tensor, point: Tensor) -> float:
    """Where a central difference of gradients loses as much by rounding as by curvature."""
    info = torch.finfo(direction.dtype)
    return info.eps ** (1.0 / 3.0) * max(1.0, point.norm().item()) / max(direction.norm().item(), info.tiny)
