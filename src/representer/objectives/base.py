"""What an objective is, a function of a Gram matrix with gradients and dual coefficients, and what its targets are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from representer.linalg import Cholesky, NotPositiveDefiniteError, eigh, factorize, shifted

ArrayLike = Tensor | npt.ArrayLike


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of an objective on a Gram matrix, or on a batch (...) of them.

    Attributes
    ----------
    value : tensor (...)
        NaN for a member of a batch that could not be evaluated.
    gram_gradient : tensor (..., n, n), optional
        The symmetric ∂value/∂K: the value changes by its inner product with a symmetric change of K.
    alpha_gradient : tensor (...), optional
        ∂value/∂alpha; None for an objective without alpha.
    dual : tensor (..., n, p), optional
        The coefficients of f = Σ_i k(·, x_i) dual_i + intercept; with ``target_gram``, dual_i are the
        coefficients of an element of the target space on the targets, p = n.
    intercept : tensor (..., p), optional
        None where f has no intercept.
    """

    value: Tensor
    gram_gradient: Tensor | None = None
    alpha_gradient: Tensor | None = None
    dual: Tensor | None = None
    intercept: Tensor | None = None


class Objective(ABC):
    """A function of a Gram matrix K (..., n, n) and of alpha, the λ in mean loss + λ‖f‖².

    A subclass gives ``_evaluate``: value and gradients in closed form. An inner problem is solved to its
    optimum and its gradients come from the envelope theorem; no factorisation is ever differentiated.

    Parameters
    ----------
    n : int
        The number of targets, to which K must fit.
    alpha : float or tensor, optional
        The default of every call; None for an objective without alpha.
    """

    def __init__(self, *, n: int, alpha: float | Tensor | None) -> None:
        if alpha is not None and not bool(_admissible(torch.as_tensor(alpha)).all()):
            raise ValueError(self._bad_alpha(alpha))
        self.n = n
        self.alpha = alpha

    @abstractmethod
    def _evaluate(self, gram: Tensor, alpha: Tensor, *, gradient: bool, dual: bool) -> Evaluation:
        """The evaluation for checked arguments without autograd; ``alpha`` has the shape of the batch."""

    def evaluate(
        self, gram: Tensor, *, alpha: float | Tensor | None = None, gradient: bool = True, dual: bool = True
    ) -> Evaluation:
        """Value, gradients and dual coefficients at once, detached from autograd.

        Parameters
        ----------
        gram : tensor (..., n, n)
            In a batch, a member that cannot be evaluated gets a NaN value; a single matrix raises.
        alpha : float or tensor, optional
            A scalar, or one for each member: (...) or (..., 1, 1). Default: the constructor's.
        gradient, dual : bool
            Leave them out to save their cost.
        """
        self._check_gram(gram)
        with torch.no_grad():
            return self._evaluate(gram.detach(), self._alpha_for(gram, alpha), gradient=gradient, dual=dual)

    def envelope(self, gram: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """The values (b,) and ∂value/∂K (b, n, n) of a batch of matrices with one alpha each, for a search that has
        checked its arguments once: no autograd, no coefficients."""
        evaluation = self._evaluate(gram, alpha, gradient=True, dual=False)
        assert evaluation.gram_gradient is not None
        return evaluation.value, evaluation.gram_gradient

    def __call__(self, gram: Tensor, alpha: float | Tensor | None = None) -> Tensor:
        """The value (...), differentiable once in ``gram`` and ``alpha`` through torch's autograd."""
        self._check_gram(gram)
        value: Tensor = _ClosedForm.apply(self, gram, self._alpha_for(gram, alpha))
        return value

    def _check_gram(self, gram: Tensor) -> None:
        """Refuse what is no Gram matrix of the targets' samples."""
        if not isinstance(gram, Tensor):
            raise TypeError(f"The Gram matrix must be a torch tensor; got {type(gram).__name__}.")
        if gram.ndim < 2 or gram.shape[-1] != gram.shape[-2]:
            raise ValueError(f"The Gram matrix must be square, (..., n, n); got {tuple(gram.shape)}.")
        if gram.shape[-1] != self.n:
            raise ValueError(
                f"The Gram matrix is {gram.shape[-1]} × {gram.shape[-1]} but {type(self).__name__} has "
                f"{self.n} targets. Compute both from the same rows, or make an objective of the sub-batch."
            )

    def _alpha_for(self, gram: Tensor, alpha: float | Tensor | None) -> Tensor:
        """The alpha of each member of the batch, differentiable; zero for an objective without alpha."""
        batch = gram.shape[:-2]
        if self.alpha is None:
            if alpha is not None:
                raise ValueError(f"{type(self).__name__} has no alpha, got alpha={alpha}. Leave it out, or use Ridge.")
            return gram.new_zeros(batch)
        value = torch.as_tensor(self.alpha if alpha is None else alpha, dtype=gram.dtype, device=gram.device)
        if value.numel() == 1:
            value = value.reshape(())
        elif value.shape == (*batch, 1, 1):
            value = value[..., 0, 0]
        elif value.shape != batch:
            raise ValueError(
                f"alpha must be a number or have the shape of the batch {tuple(batch)}, with or without two "
                f"trailing ones; got {tuple(value.shape)}."
            )
        admissible = _admissible(value.detach())
        if not bool(admissible.all()):
            if not batch:
                raise ValueError(self._bad_alpha(value.item()))
            value = torch.where(admissible, value, torch.nan)
        return value.expand(batch)

    def _bad_alpha(self, alpha: float | Tensor) -> str:
        """The message about an alpha that is not admissible."""
        return (
            f"{type(self).__name__} expects a finite alpha > 0, got {alpha}. alpha multiplies ‖f‖² beside "
            "the mean loss; for no regularisation at all use Interpolation."
        )


class _ClosedForm(torch.autograd.Function):
    """The door between autograd and an objective's own gradients."""

    @staticmethod
    def forward(ctx: Any, objective: Objective, gram: Tensor, alpha: Tensor) -> Tensor:
        evaluation = objective._evaluate(gram, alpha, gradient=any(ctx.needs_input_grad), dual=False)
        ctx.save_for_backward(evaluation.gram_gradient, evaluation.alpha_gradient)
        return evaluation.value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *weights: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
        (weight,) = weights
        gram_gradient, alpha_gradient = ctx.saved_tensors
        in_gram = gram_gradient if ctx.needs_input_grad[1] else None
        if in_gram is not None and not bool((weight == 1.0).all()):  # spares a pass over an n × n matrix
            in_gram = weight[..., None, None] * in_gram
        in_alpha = weight * alpha_gradient if ctx.needs_input_grad[2] else None
        return None, in_gram, in_alpha


def _admissible(alpha: Tensor) -> Tensor:
    """Which alphas are finite and positive."""
    return (alpha > 0) & torch.isfinite(alpha)


def factorize_shifted(gram: Tensor, shift: Tensor) -> Cholesky:
    """Cholesky of W = K + shift·I; a failure raises for one matrix and gives NaN inside a batch."""
    name = "The Gram matrix plus n·alpha"
    return factorize(lambda: shifted(gram, shift[..., None]), name=name, strict=gram.ndim == 2)


def trace(matrix: Tensor) -> Tensor:
    """The trace of each member of a batch."""
    return matrix.diagonal(dim1=-2, dim2=-1).sum(-1)


def inner(left: Tensor, right: Tensor) -> Tensor:
    """The inner product tr(AᵀB) for each member of a batch."""
    return (left * right).sum((-2, -1))


def symmetric_part(matrix: Tensor) -> Tensor:
    """The symmetric part (A + Aᵀ)/2 of each member of a batch."""
    return (matrix + matrix.mT).mul_(0.5)


class NotConvergedError(ValueError):
    """An inner solver ran out of iterations before reaching its tolerance; ``best`` is the best solution, if any."""

    def __init__(self, message: str, best: Fit | None = None) -> None:
        super().__init__(message)
        self.best = best


@dataclass(frozen=True)
class Fit:
    """The optimum of an inner problem: its value, and f = Σ_i k(·, x_i) β_i + b.

    Attributes
    ----------
    value : tensor ()
    beta : tensor (n, p)
    intercept : tensor (p,)
        Zero where f has none.
    slope : float
        Θ′(‖f‖²), the derivative of the penalty: α for α‖f‖².
    curvature : object
        What the solver has last factored, by column groups; the solution of a similar problem begins with it.
    """

    value: Tensor
    beta: Tensor
    intercept: Tensor
    slope: float
    curvature: tuple[Any, ...] = ()

    @classmethod
    def of_columns(cls, fits: Sequence[Self]) -> Self:
        """Independent problems with one alpha, side by side: their values add up."""
        return cls(
            value=torch.stack([fit.value for fit in fits]).sum(),
            beta=torch.cat([fit.beta for fit in fits], dim=1),
            intercept=torch.cat([fit.intercept for fit in fits]),
            slope=fits[0].slope,
            curvature=tuple(curvature for fit in fits for curvature in fit.curvature),
        )


class InnerProblem(Objective, ABC):
    """min_{f,b} L(f(x_1) + b, …, f(x_n) + b) + Θ(‖f‖²), solved in double precision.

    With f = Σ_i k(·, x_i) β_i, at the optimum 2Θ′ β = −∂L/∂F. By the envelope theorem, at fixed β,
    ∂/∂K = ∂L/∂F βᵀ + Θ′ ββᵀ = −Θ′ ββᵀ; and ∂/∂α = ‖f‖² = tr(βᵀKβ) for Θ(s) = αs.
    """

    def __init__(
        self,
        targets: Tensor,
        *,
        alpha: float | Tensor | None,
        intercept: bool,
        sample_weight: ArrayLike | None,
    ) -> None:
        self.targets = targets
        self.intercept = intercept
        self.sample_weight = positive_weights(sample_weight, len(targets))
        self._latest: list[Fit] = []
        super().__init__(n=len(targets), alpha=alpha)

    def _weights(self, like: Tensor) -> Tensor:
        """The weights of the samples as a column (n, 1) of mean one."""
        if self.sample_weight is None:
            return like.new_ones(self.n, 1)
        weights = self.sample_weight.to(like)[:, None]
        return weights / weights.mean()

    @abstractmethod
    def _fit(self, gram: Tensor, targets: Tensor, alpha: float, near: Fit | None) -> Fit:
        """Solve for one matrix (n, n) in double precision; ``near`` may solve a similar problem."""

    def _fit_members(self, gram: Tensor, alpha: Tensor) -> list[Fit]:
        """The optimum for each member of a batch, each near the one that had its place in the call before."""
        members = gram.reshape(-1, self.n, self.n)
        near = self._latest if len(self._latest) == len(members) else [None] * len(members)
        fits = [
            self._fit_member(member, a, start, strict=gram.ndim == 2)
            for member, a, start in zip(members, alpha.reshape(-1).tolist(), near, strict=True)
        ]
        # A batch of starts has no memory for a factorisation of each.
        self._latest = fits if len(fits) == 1 else [replace(fit, curvature=()) for fit in fits]
        return fits

    def _fit_member(self, gram: Tensor, alpha: float, near: Fit | None, *, strict: bool) -> Fit:
        """The optimum for one matrix; unless ``strict``, a failure is a fit of NaN."""
        targets = self.targets.to(device=gram.device, dtype=torch.float64)
        try:
            if not bool(torch.isfinite(gram).all()) or alpha != alpha:
                raise NotPositiveDefiniteError(
                    "The Gram matrix has NaN or infinite entries; check the data and the hyperparameters."
                )
            try:
                fit = self._fit(gram.double(), targets, alpha, near)
            except NotConvergedError:
                if near is None:
                    raise
                fit = self._fit(gram.double(), targets, alpha, None)
            _check_norm(gram.double(), fit.beta)
            return fit
        except (NotPositiveDefiniteError, NotConvergedError):
            if strict:
                raise
            nan = torch.full_like(targets, torch.nan)
            return Fit(nan[0, 0], nan, nan[0], torch.nan)

    def _evaluate(self, gram: Tensor, alpha: Tensor, *, gradient: bool, dual: bool) -> Evaluation:
        batch = gram.shape[:-2]
        fits = self._fit_members(gram, alpha)
        value = torch.stack([fit.value for fit in fits]).reshape(batch).to(gram)
        beta, b = stack_solutions(fits, gram)
        gram_gradient = alpha_gradient = None
        if gradient:
            slope = gram.new_tensor([fit.slope for fit in fits]).reshape(*batch, 1, 1)
            gram_gradient = (-slope * beta) @ beta.mT
            alpha_gradient = None if self.alpha is None else inner(beta, gram @ beta)
        return Evaluation(value, gram_gradient, alpha_gradient, beta, b if self.intercept else None)


def stack_solutions(fits: Sequence[Fit], gram: Tensor) -> tuple[Tensor, Tensor]:
    """The solutions β (..., n, p) and b (..., p) of the members of a batch of Gram matrices."""
    beta, b = (torch.stack(x).to(gram) for x in ([f.beta for f in fits], [f.intercept for f in fits]))
    batch = gram.shape[:-2]
    return beta.reshape(*batch, *beta.shape[1:]), b.reshape(*batch, *b.shape[1:])


def _check_norm(gram: Tensor, beta: Tensor) -> None:
    """Refuse a solution with a negative squared norm.

    A solver that never factors the Gram matrix does not notice that it is indefinite; its solution may.
    """
    norm, scale = inner(beta, gram @ beta), inner(beta.abs(), gram.abs() @ beta.abs())
    if norm < -len(gram) * torch.finfo(gram.dtype).eps * scale:
        raise NotPositiveDefiniteError(
            f"The Gram matrix is not positive semi-definite: the solution has a squared norm of {norm.item():.3g}. "
            "Check the kernel, or repair the matrix with representer.linalg.repair_gram."
        )


# -- targets ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Targets:
    """n elements of a Hilbert space with Gram matrix G = R Rᵀ; R is n × q with q ≤ n.

    Norms and errors of anything linear in the targets follow from R: it *is* the targets, up to a rotation.

    Attributes
    ----------
    factor : tensor (n, q)
        R. For p ≤ n given vectors, the vectors themselves.
    vectors : tensor (n, p), optional
        The vectors as given, where p > n made R the smaller matrix.
    abstract : bool
        Only G was given, so that dual coefficients are coefficients on the targets (an n × n matrix).
    """

    factor: Tensor
    vectors: Tensor | None = None
    abstract: bool = False

    def map(self, function: Callable[[Tensor], Tensor]) -> Targets:
        """The same targets after a change of rows, precision or device."""
        vectors = None if self.vectors is None else function(self.vectors)
        return Targets(function(self.factor), vectors, self.abstract)


def hilbert_targets(targets: ArrayLike | None, target_gram: ArrayLike | None) -> Targets:
    """Targets from vectors (n,), (n, p) or from their Gram matrix (n, n): exactly one of the two."""
    if (targets is None) == (target_gram is None):
        raise ValueError(
            "Expected either targets= (an array (n,) or (n, p)) or target_gram= (an array (n, n)), "
            f"got {'neither' if targets is None else 'both'}."
        )
    if target_gram is not None:
        return Targets(_gram_factor(_finite(target_gram, "target_gram")), abstract=True)
    vectors = columns(targets)
    n, p = vectors.shape
    if p <= n:
        return Targets(vectors)
    return Targets(torch.linalg.qr(vectors.mT, mode="r").R.mT, vectors)


def columns(targets: ArrayLike | None) -> Tensor:
    """Finite targets as a matrix (n, p); a vector is one column."""
    values = _finite(targets, "targets")
    if values.ndim not in (1, 2) or values.numel() == 0:
        raise ValueError(f"targets must be an array (n,) or (n, p) with n, p ≥ 1, got {tuple(values.shape)}.")
    return values[:, None] if values.ndim == 1 else values


def positive_weights(sample_weight: ArrayLike | None, n: int) -> Tensor | None:
    """Weights of n samples, all positive; None where there are none."""
    if sample_weight is None:
        return None
    weights = _finite(sample_weight, "sample_weight")
    if weights.shape != (n,) or not bool((weights > 0).all()):
        raise ValueError(
            f"sample_weight must have one positive number for each of the {n} targets; got shape "
            f"{tuple(weights.shape)} and the values {some_values(weights)}. Leave samples of weight zero out."
        )
    return weights


def sign_columns(targets: ArrayLike, *, name: str) -> Tensor:
    """Labels −1, +1 as a matrix (n, p), one column a binary problem."""
    values = columns(targets)
    if not bool((values.abs() == 1.0).all()):
        raise ValueError(
            f"{name} expects labels −1 and +1, got the values {some_values(values)}. Map two classes to −1 "
            "and +1; for more, give one column a class (+1 in the class, −1 outside)."
        )
    return values


def one_hot(targets: ArrayLike, *, name: str) -> Tensor:
    """One-hot labels (n, k): a single 1 in each row, 0 elsewhere."""
    values = columns(targets)
    indicator = bool(((values == 0) | (values == 1)).all()) and bool((values.sum(1) == 1).all())
    if not indicator or values.shape[1] < 2:
        raise ValueError(
            f"{name} expects one-hot targets (n, k), k ≥ 2, with a single 1 a row; got {tuple(values.shape)} "
            f"with the values {some_values(values)}. Encode: (labels[:, None] == classes).astype(float)."
        )
    return values


def _finite(values: ArrayLike | None, name: str) -> Tensor:
    tensor = (
        values.detach() if isinstance(values, Tensor) else torch.as_tensor(np.require(values, requirements=["C", "W"]))
    )
    tensor = tensor if tensor.is_floating_point() else tensor.to(torch.float64)
    bad = torch.nonzero(~torch.isfinite(tensor))
    if len(bad):
        raise ValueError(
            f"{name} must be finite, got {len(bad)} NaN or infinite entries, the first at "
            f"{tuple(bad[0].tolist())}. Remove or impute these rows."
        )
    return tensor


def _gram_factor(gram: Tensor) -> Tensor:
    """R with R Rᵀ = G: a triangle if G has full rank, otherwise as many columns as its rank."""
    if gram.ndim != 2 or gram.shape[0] != gram.shape[1]:
        raise ValueError(
            f"target_gram must be square (n, n), the inner products of the targets; got {tuple(gram.shape)}. "
            "Vector targets belong in targets=."
        )
    factor, info = torch.linalg.cholesky_ex(gram)
    if not info.item():
        return factor
    spectrum = eigh(gram, name="target_gram")
    rounding = len(gram) * torch.finfo(gram.dtype).eps * spectrum.values[-1]
    return spectrum.root()[:, spectrum.values > rounding]


def some_values(values: Tensor) -> list[float]:
    """A few of the values, for an error message."""
    return torch.unique(values)[:5].tolist()
