"""Squared loss with the function eliminated: ridge, interpolation, samples left out; on factors, with gaps."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from representer.objectives.base import (
    ArrayLike,
    Evaluation,
    Objective,
    Targets,
    _ClosedForm,
    columns,
    hilbert_targets,
    inner,
    positive_weights,
)
from representer.systems import Groups
from representer.systems.scalar import BlockDiagonal, DenseSystem, FactorSystem, RidgeSystem


@dataclass(frozen=True)
class Score:
    """A function of a fit by squared loss, with ∂/∂K = left Cᵀ + C leftᵀ + P B P + diag(diagonal)."""

    value: Tensor
    left: Tensor
    weights: Tensor | BlockDiagonal | None = None  # B, or its diagonal
    root: Tensor | None = None  # R, where left Cᵀ + C leftᵀ = −RRᵀ
    alpha_gradient: Tensor | float = 0.0  # beside what alpha changes through W
    diagonal: Tensor | None = None  # what depends on the diagonal of K itself


class SquaredLoss(Objective, ABC):
    """A function of the fit that minimises 1/n Σ‖y_i − f(x_i) − b‖² + α‖f‖² over f and, with ``intercept``, over b.

    All comes from the system W = K + nαI of the fit, in whichever form K is given. With weights w the mean is
    Σ w_i‖y_i − f(x_i) − b‖²/Σ w_i and W = K + α Σ w_i · diag(1/w).
    """

    training: Tensor | None = None  # the rows that are fitted, if not all
    # Is a constant that all targets share a matter of the intercept alone?
    centres_targets: ClassVar[bool] = True
    leaves_out: ClassVar[bool] = False  # Are single samples left out?

    def __init__(
        self,
        targets: ArrayLike | None = None,
        *,
        target_gram: ArrayLike | None = None,
        alpha: float | Tensor | None,
        intercept: bool = False,
        sample_weight: ArrayLike | None = None,
    ) -> None:
        self.constant: Tensor | None = None  # what the intercept is beside that of the centred targets
        if intercept and self.centres_targets and targets is not None:
            targets, self.constant = _near_zero(columns(targets))
        self.targets = self._encoded(targets, target_gram)
        self.intercept = intercept
        self.sample_weight = positive_weights(sample_weight, len(self.targets.factor))
        super().__init__(n=len(self.targets.factor), alpha=alpha)
        if self.leaves_out and intercept and self.n < 2:
            raise ValueError(
                f"{type(self).__name__} with an intercept needs at least 2 samples, got 1: without it nothing "
                "is left to fit. Give more samples, or intercept=False."
            )

    def _encoded(self, targets: ArrayLike | None, target_gram: ArrayLike | None) -> Targets:
        """The targets as elements of a Hilbert space."""
        return hilbert_targets(targets, target_gram)

    def _hold_out(self, validation: ArrayLike) -> Tensor:
        """The numbers of rows that are held out; the others are fitted."""
        held_out = held_out_indices(validation, self.n)
        kept = torch.ones(self.n, dtype=torch.bool)
        kept[held_out] = False
        self.training = torch.nonzero(kept)[:, 0]
        return held_out

    def _weights(self, like: Tensor, rows: Tensor | None = None) -> Tensor | None:
        """The weights of all samples, or of some, where they are needed; None for ones."""
        if self.sample_weight is None:
            return None
        weights = self.sample_weight.to(like)
        return weights if rows is None else weights[rows]

    def _shares(self, like: Tensor, rows: Tensor | None = None) -> Tensor:
        """The weights of all samples, or of some, with sum one."""
        weights = self._weights(like, rows)
        if weights is None:
            n = self.n if rows is None else len(rows)
            return like.new_full((n,), 1.0 / n)
        return weights / weights.sum()

    def _total(self) -> float:
        """The sum of the weights of the samples that are fitted: n, if all are and there are no weights."""
        if self.sample_weight is None:
            return float(self.n if self.training is None else len(self.training))
        weights = self.sample_weight if self.training is None else self.sample_weight[self.training.cpu()]
        return float(weights.sum())

    @abstractmethod
    def _score(self, system: RidgeSystem, Y: Tensor, C: Tensor, alpha: Tensor) -> Score:
        """Score the fit to targets Y (n, q) with dual coefficients C (..., n, q), which are zero in rows not fitted."""

    def _evaluate(self, gram: Tensor, alpha: Tensor, *, gradient: bool, dual: bool) -> Evaluation:
        return self._evaluate_by(DenseSystem, gram, alpha, gradient=gradient, dual=dual)

    def _system(self, form: type[RidgeSystem], matrix: Tensor, alpha: Tensor, *, gradient: bool = True) -> RidgeSystem:
        rows = None if self.training is None else self.training.to(matrix.device)
        weights = self._weights(matrix, rows)
        return form(
            matrix,
            self._total() * alpha,
            rows=rows,
            intercept=self.intercept,
            sample_weight=weights,
            with_gradient=gradient,
        )

    def _evaluate_by(
        self, form: type[RidgeSystem], matrix: Tensor, alpha: Tensor, *, gradient: bool, dual: bool
    ) -> Evaluation:
        """The evaluation for K in this form: its gradient is that in ``matrix``, its dual the form's coefficients."""
        system = self._system(form, matrix, alpha, gradient=gradient)
        own = self.targets.factor
        moved = own.dtype != matrix.dtype or own.device != matrix.device
        targets = self.targets.map(lambda y: y.to(matrix)) if moved else self.targets
        training = targets if system.rows is None else targets.map(lambda y: y[system.rows])
        solution = system.solve(training.factor)
        C = _spread(solution, system.rows, self.n, dim=-2)
        matrix_gradient = alpha_gradient = coefficients = intercept = None
        if dual:  # before a score, which may leave less accurate solutions behind
            coefficients = _coefficients(system, training, solution, self.n)
            intercept = _intercept(system, training, self.n)
            if intercept is not None and self.constant is not None:
                intercept = intercept + self.constant.to(intercept)
        score = self._score(system, targets.factor, C, alpha)
        if gradient:
            matrix_gradient = system.gradient(score.left, C, score.weights, root=score.root)
            if self.alpha is not None:
                trace = system.trace(matrix_gradient, score.left, C, score.weights)
                alpha_gradient = score.alpha_gradient + self._total() * trace
            if score.diagonal is not None:
                system.add_diagonal(matrix_gradient, score.diagonal)
        return Evaluation(score.value, matrix_gradient, alpha_gradient, coefficients, intercept)


# Targets are far from zero if their median is so many times larger than all differences from it.
FAR_TARGETS = 16.0


def _near_zero(targets: Tensor) -> tuple[Tensor, Tensor | None]:
    """The targets without what columns far from zero share, which squares would round, and this constant (p,).

    It is a number of the data, from which differences are exact. None: no column is far from zero.
    """
    middle = targets.median(0).values
    far = middle.abs() > FAR_TARGETS * (targets - middle).abs().amax(0)
    if not bool(far.any()):
        return targets, None
    constant = middle * far
    return targets - constant, constant


def _coefficients(system: RidgeSystem, training: Targets, solution: Tensor, n: int) -> Tensor:
    if training.abstract:
        coefficients = _spread(system.unit_coefficients, system.rows, n, dim=-1)
    elif training.vectors is None:
        coefficients = system.coefficients(training.factor, solution)
    else:
        coefficients = system.coefficients(training.vectors)
    return _spread(coefficients, system.rows, n, dim=-2) if system.by_row else coefficients


def _intercept(system: RidgeSystem, training: Targets, n: int) -> Tensor | None:
    """b, or its coefficients on the targets where these are known by their Gram matrix only."""
    if system.g is None:
        return None
    if training.abstract:
        return _spread(system.g[..., 0], system.rows, n, dim=-1)
    vectors = training.factor if training.vectors is None else training.vectors
    return (system.g.mT @ vectors)[..., 0, :]


def _spread(tensor: Tensor, rows: Tensor | None, n: int, *, dim: int) -> Tensor:
    """What belongs to some rows as what belongs to all n, zero elsewhere."""
    if rows is None:
        return tensor
    shape = list(tensor.shape)
    shape[dim] = n
    return tensor.new_zeros(shape).index_copy_(dim, rows, tensor)


class Ridge(SquaredLoss):
    """min_f 1/n Σ‖y_i − f(x_i)‖² + α‖f‖² = α tr(PG), P = W⁻¹, W = K + nαI.

    n times this is the data part of (19) in Bohn et al. with λ = nα, and nα is the alpha of scikit-learn's
    KernelRidge. ∂/∂K = −α PGP. With p-dimensional targets one Cholesky and O(n²p).

    Parameters
    ----------
    targets : array (n,) or (n, p), optional
    target_gram : array (n, n), optional
        Instead of ``targets``: the inner products G of targets in any Hilbert space.
    alpha : float
    intercept : bool
        Fit f + b with an unpenalised constant b: the same with P = W⁻¹ − W⁻¹11ᵀW⁻¹/(1ᵀW⁻¹1). With
        ``target_gram`` an evaluation has the coefficients of b on the targets.
    sample_weight : array (n,), optional
        Positive weights of the samples: those of a weighted mean in the place of 1/n Σ.
    """

    def envelope(self, gram: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """α tr(PG) and −α PGP by one factorisation and one solve; where rounding spoils that, by a system."""
        solve = self._solver(gram, alpha)
        if solve is None:
            return super().envelope(gram, alpha)
        Y = self.targets.factor
        C = solve(Y.expand(len(gram), -1, -1))
        return alpha * (Y * C).sum((-2, -1)), (-alpha[:, None, None] * C) @ C.mT

    def response(self, gram: Tensor, alpha: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]] | None:
        """∂value/∂K, and how it follows a change dK: from dC = −P dK C. None where rounding spoils the factor."""
        solve = self._solver(gram, alpha)
        if solve is None:
            return None
        scale = alpha[:, None, None]
        C = solve(self.targets.factor.expand(len(gram), -1, -1))

        def change(dK: Tensor) -> Tensor:
            half = scale * solve(dK @ C) @ C.mT
            return half + half.mT

        return (-scale * C) @ C.mT, change

    def _solver(self, gram: Tensor, alpha: Tensor) -> Callable[[Tensor], Tensor] | None:
        """R ↦ PR of a batch of Gram matrices; None if one of them cannot be factored, or the targets are elsewhere."""
        Y = self.targets.factor
        weights = self._weights(gram)
        noise = self.n * alpha[:, None] if weights is None else alpha[:, None] * (weights.sum() / weights)
        W = gram.clone()
        W.diagonal(dim1=-2, dim2=-1).add_(noise)
        factor, info = torch.linalg.cholesky_ex(W)
        if bool(info.any()) or Y.dtype != gram.dtype or Y.device != gram.device:
            return None
        if not self.intercept:
            return lambda right: torch.cholesky_solve(right, factor)
        ones = gram.new_ones(1, self.n, 1).expand(len(gram), -1, -1)

        def solve(right: Tensor) -> Tensor:
            C, u = torch.cholesky_solve(torch.cat([right, ones], -1), factor).split([right.shape[-1], 1], -1)
            return C - u * (C.sum(-2, keepdim=True) / u.sum(-2, keepdim=True))

        return solve

    def _score(self, system: RidgeSystem, Y: Tensor, C: Tensor, alpha: Tensor) -> Score:
        fit = inner(system.centred(Y).expand_as(C), C)  # tr(PG)
        scale = alpha[..., None, None]
        return Score(alpha * fit, left=-0.5 * scale * C, root=scale.sqrt() * C, alpha_gradient=fit)


class Interpolation(SquaredLoss):
    """min_f ‖f‖² over f(x_i) = y_i, which is tr(K⁻¹G), plus γ Σ_{i<j} coth(‖z_i − z_j‖²): (15) in Bohn et al.

    The limit α → 0 of Ridge divided by α. ∂/∂K = −K⁻¹GK⁻¹.

    Parameters
    ----------
    targets, target_gram, intercept
        As for ``Ridge``: with an intercept, the minimum is over f(x_i) + b = y_i.
    separation : float
        γ ≥ 0. If positive, a call needs ``points=``, the inner images z_i (..., n, D) behind K, through which
        the penalty is differentiated. ``evaluate`` gives tr(K⁻¹G) alone, which is all that depends on K.
    """

    centres_targets = False  # equal targets are told apart by their size

    def __init__(
        self,
        targets: ArrayLike | None = None,
        *,
        target_gram: ArrayLike | None = None,
        separation: float = 0.0,
        intercept: bool = False,
    ) -> None:
        if not (separation >= 0 and math.isfinite(separation)):
            raise ValueError(f"separation must be finite and ≥ 0, got {separation}. Zero means no penalty.")
        self.separation = separation
        super().__init__(targets, target_gram=target_gram, alpha=None, intercept=intercept)

    def __call__(self, gram: Tensor, alpha: float | Tensor | None = None, *, points: Tensor | None = None) -> Tensor:
        """The value (...), differentiable once in ``gram`` and in ``points``."""
        if self.separation == 0.0:
            return super().__call__(gram, alpha)
        if points is None:
            raise ValueError(
                f"Interpolation with separation={self.separation} penalises close points: pass points=, the "
                "(..., n, D) inner images behind the Gram matrix, or set separation=0."
            )
        return super().__call__(gram, alpha) + self.separation * separation_penalty(points)

    def _system(self, form: type[RidgeSystem], matrix: Tensor, alpha: Tensor, *, gradient: bool = True) -> RidgeSystem:
        if matrix.ndim == 2:
            _refuse_contradictions(matrix, self.targets.factor.to(matrix))
        name = "The Gram matrix of an interpolation"
        return DenseSystem(matrix, torch.zeros_like(alpha), intercept=self.intercept, name=name)

    def _score(self, system: RidgeSystem, Y: Tensor, C: Tensor, alpha: Tensor) -> Score:
        return Score(inner(system.centred(Y).expand_as(C), C), left=-0.5 * C, root=C)


def separation_penalty(points: Tensor) -> Tensor:
    """Σ_{i<j} coth(‖z_i − z_j‖²) of points (..., n, D): the penalty of (15) in Bohn et al., differentiable.

    Infinite when two points coincide; such a pair adds nothing to the gradient.
    """
    # Differences, not inner products: cancellation would spoil the smallest distances, which matter most.
    distance = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    itself = torch.eye(points.shape[-2], dtype=torch.bool, device=points.device)
    x = distance.square().masked_fill(itself, torch.inf)  # coth(∞) = 1, subtracted below
    # This form of coth neither overflows for large x, nor cancels for small ones, nor do its derivatives.
    coth = (1.0 + torch.exp(-2.0 * x)) / -torch.expm1(-2.0 * x)
    return 0.5 * (coth.sum((-2, -1)) - points.shape[-2])


def _refuse_contradictions(gram: Tensor, factor: Tensor) -> None:
    """Raise when two equal points (equal rows of K) are asked to have different values."""
    eps = torch.finfo(gram.dtype).eps
    diagonal = gram.diagonal()
    scale = diagonal.max()
    # Equal points are at distance zero: a cheap necessary condition that leaves few pairs to compare in full.
    close = torch.nonzero((diagonal[:, None] + diagonal - 2.0 * gram <= 64 * eps * scale).tril(-1))
    apart = torch.linalg.vector_norm(factor[close[:, 0]] - factor[close[:, 1]], dim=-1)
    # A factor of target_gram knows equal targets only to the root of the rounding.
    for i, j in close[apart > 8 * math.sqrt(eps) * torch.linalg.vector_norm(factor, dim=-1).max()].tolist():
        if bool(((gram[i] - gram[j]).abs() <= 64 * eps * scale).all()):
            raise ValueError(
                f"No function interpolates these targets: rows {j} and {i} of the Gram matrix are equal (the same "
                "point, or points that inner layers map to one) but their targets differ. Remove one, average the two, "
                "use squared loss, or lower the penalties of the inner layers."
            )


# -- errors on samples that a fit has not seen ------------------------------------------------------------------------
class LeaveOneOut(SquaredLoss):
    """1/n Σ‖y_i − f₋ᵢ(x_i)‖² = 1/n Σ N_ii/(P_ii)²: f₋ᵢ is the ridge fit without i and with the same shift nα.

    Exact for targets in any Hilbert space; P = (K + nαI)⁻¹, N = PGP. One Cholesky, one inverse, one product. With
    groups, the residuals of a group S are (P_SS)⁻¹C_S, C = PY.

    Parameters
    ----------
    targets : array (n,) or (n, p), optional
    target_gram : array (n, n), optional
        Instead of ``targets``: the inner products of targets in any Hilbert space.
    alpha : float
    intercept : bool
        As for ``Ridge``: every f₋ᵢ has a constant b₋ᵢ of its own, and it remains exact.
    sample_weight : array (n,), optional
        As for ``Ridge``; the mean over the samples is weighted, too.
    groups : array (n,), optional
        Labels of groups of samples that are left out together. Default: each sample alone.
    """

    leaves_out = True

    def __init__(
        self,
        targets: ArrayLike | None = None,
        *,
        target_gram: ArrayLike | None = None,
        alpha: float | Tensor,
        intercept: bool = False,
        sample_weight: ArrayLike | None = None,
        groups: Any = None,
    ) -> None:
        super().__init__(
            targets, target_gram=target_gram, alpha=alpha, intercept=intercept, sample_weight=sample_weight
        )
        self.groups = groups_of(groups, self.n, intercept)

    def _score(self, system: RidgeSystem, Y: Tensor, C: Tensor, alpha: Tensor) -> Score:
        left_out = system.left_out(C, self._groups_on(C))
        weighted = self._shares(C)[:, None] * left_out.errors
        Z, weights = left_out.pulled(2.0 * weighted)
        return Score(inner(weighted, left_out.errors), system.solve(-0.5 * Z), weights)

    def _groups_on(self, like: Tensor) -> Groups | None:
        return None if self.groups is None else self.groups.to(like.device)

    def residuals(self, gram: Tensor, *, alpha: float | Tensor | None = None) -> Tensor:
        """y_i − f₋ᵢ(x_i), (..., n, p); with ``target_gram`` its coefficients on the targets, (..., n, n)."""
        self._check_gram(gram)
        with torch.no_grad():
            system = self._system(DenseSystem, gram, self._alpha_for(gram, alpha))
            Y = self.targets.factor if self.targets.vectors is None else self.targets.vectors
            dual = system.unit_coefficients if self.targets.abstract else system.solve(Y.to(gram))
            return system.left_out(dual, self._groups_on(gram)).errors


class GeneralizedCrossValidation(SquaredLoss):
    """1/n tr(N)/(tr(P)/n)²: leave-one-out with every P_ii replaced by their mean; it ignores rotations.

    With weights w it is the weighted mean of the squared residuals over (tr(I − H)/n)², H the matrix of the fit.

    Parameters
    ----------
    targets, target_gram, alpha, intercept, sample_weight
        As for ``Ridge``.
    """

    leaves_out = True

    def _score(self, system: RidgeSystem, Y: Tensor, C: Tensor, alpha: Tensor) -> Score:
        """From dP = −P dW P and dN_ii = −2[P dW N]_ii, N = CCᵀ."""
        unit = 1.0 / self._total()
        scaled = system.per_weight(C)  # C/w
        N = unit * inner(scaled, C)
        s = system.per_weight(system.diagonal()[..., None])[..., 0].sum(-1) / self.n
        w = (2.0 * N / s**3 / self.n)[..., None]
        weights = w.expand(*w.shape[:-1], self.n)
        left = system.solve((-unit / s**2)[..., None, None] * scaled)
        return Score(N / s**2, left, system.per_weight(weights[..., None])[..., 0])


class HeldOut(SquaredLoss):
    """1/m Σ_{i∈v}‖y_i − f(x_i)‖², v the m validation rows, f the ridge fit to the others t: W = K_tt + |t|αI.

    One Cholesky of size |t| and O(n²p). The dual coefficients of validation rows are zero.

    Parameters
    ----------
    targets, target_gram, alpha, intercept, sample_weight
        As for ``Ridge``; the rows of K and the targets are those of both parts. Both means are weighted.
    validation : array of int, or bool (n,)
        The rows held out.
    penalized : bool
        Add α‖f‖², as Song et al. (2013, p. 15) do.
    """

    def __init__(
        self,
        targets: ArrayLike | None = None,
        *,
        target_gram: ArrayLike | None = None,
        alpha: float | Tensor,
        validation: ArrayLike,
        intercept: bool = False,
        sample_weight: ArrayLike | None = None,
        penalized: bool = False,
    ) -> None:
        super().__init__(
            targets, target_gram=target_gram, alpha=alpha, intercept=intercept, sample_weight=sample_weight
        )
        self.penalized = penalized
        self.validation = self._hold_out(validation)

    def _score(self, system: RidgeSystem, Y: Tensor, C: Tensor, alpha: Tensor) -> Score:
        """E = Y_v − H Y_t with H = K_vt P + 1gᵀ: dE = −dK_vt C + H dW C, so that left_v = −E/m, left_t = HᵀE/m."""
        t, v = system.rows, self.validation.to(C.device)
        assert t is not None  # the rows of the fit are those not held out
        E = Y - system.apply(C)
        if system.g is not None:
            E -= system.g.mT @ Y[t]
        shares = C.new_zeros(self.n).index_copy_(0, v, self._shares(C, v))[:, None]
        weighted = shares * E
        HE = system.solve(system.apply(weighted)[..., t, :])
        if system.g is not None:
            HE += system.g @ weighted.sum(-2, keepdim=True)
        score = Score(inner(weighted, E), left=(-weighted).index_copy_(-2, t, HE))
        return self._penalized(score, system, Y, C, alpha) if self.penalized else score

    def _penalized(self, score: Score, system: RidgeSystem, Y: Tensor, C: Tensor, alpha: Tensor) -> Score:
        """Add αρ², ρ² = tr(CᵀKC): from KC = Y − 1bᵀ − NC follows ∂ρ²/∂K = CCᵀ − 2 sym((C − PNC)Cᵀ)."""
        t = system.rows
        assert t is not None  # the rows of the fit are those not held out
        own = C[..., t, :]
        squares = inner(own, system.centred(Y[t]) - system.noise(own))
        solved = system.solve(system.noise(own)) - 0.5 * own
        left = score.left.index_add(-2, t, alpha[..., None, None] * solved)
        in_shift = -alpha * inner(own, system.per_weight(own))
        return Score(score.value + alpha * squares, left, alpha_gradient=squares + self._total() * in_shift)


def groups_of(labels: object, n: int, intercept: bool) -> Groups | None:
    """The partition of n samples by labels, None for no labels; without a group something must be left to fit."""
    if labels is None:
        return None
    values = labels.cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if values.shape != (n,):
        raise ValueError(f"groups must have one label for each of the {n} targets; got shape {values.shape}.")
    if len(np.unique(values)) < 2 and intercept:
        raise ValueError(
            "groups must have at least two different labels: a group is judged by a fit to the others, and all "
            f"{n} samples are of the group {values.tolist()[0]!r}."
        )
    return Groups.of(values)


def held_out_indices(validation: ArrayLike, n: int) -> Tensor:
    """Row numbers of samples that are held out, from numbers or a mask."""
    rows = torch.as_tensor(validation if isinstance(validation, Tensor) else np.asarray(validation))
    if rows.dtype == torch.bool and rows.shape == (n,):
        rows = torch.nonzero(rows)[:, 0]
    elif rows.dtype == torch.bool or rows.is_floating_point() or rows.ndim != 1:
        raise ValueError(
            f"validation must be row numbers or a boolean mask of length {n}; got {rows.dtype} of shape "
            f"{tuple(rows.shape)}."
        )
    in_range = bool(((rows >= 0) & (rows < n)).all())
    if not 0 < len(rows) < n or len(torch.unique(rows)) != len(rows) or not in_range:
        raise ValueError(
            f"validation must be between 1 and {n - 1} different row numbers from 0 to {n - 1}; got "
            f"{len(rows)} rows, starting with {rows[:5].tolist()}. At least one row must stay for training."
        )
    return rows.long()


@dataclass(frozen=True)
class FactorEvaluation:
    """One evaluation of an objective on a factor B (..., n, m), or on a batch (...) of them.

    Attributes
    ----------
    value : tensor (...)
        NaN for a member of a batch that could not be evaluated.
    factor_gradient : tensor (..., n, m), optional
        ∂value/∂B.
    alpha_gradient : tensor (...), optional
    coefficients : tensor (..., m, p), optional
        The θ of f(x) = φ(x)ᵀθ + intercept, φ(x_i) the rows of B; with ``target_gram`` it maps to coefficients
        on the targets, p = n.
    intercept : tensor (..., p), optional
        None where f has no intercept.
    """

    value: Tensor
    factor_gradient: Tensor | None
    alpha_gradient: Tensor | None
    coefficients: Tensor | None
    intercept: Tensor | None


class OnFactor:
    """An objective of squared loss as a function of a factor B (..., n, m) of K = BBᵀ, m ≪ n.

    Through the m × m matrix BᵀB + nαI: O(nm²) and memory O(nm), where the objective on K costs O(n³) and O(n²).
    For Ridge with C = W⁻¹Y, ∂/∂B = −2α C(CᵀB).

    Parameters
    ----------
    objective : Ridge, LeaveOneOut, GeneralizedCrossValidation or HeldOut
        With its targets, alpha, rows held out, and intercept or none.

    Examples
    --------
    >>> import torch
    >>> from representer.objectives import LeaveOneOut
    >>> from representer.objectives.squared import OnFactor
    >>> x = torch.linspace(0, 1, 2000, dtype=torch.float64)[:, None]
    >>> B = torch.cat([x, x**2, x**3], 1).requires_grad_()
    >>> error = OnFactor(LeaveOneOut(torch.exp(x), alpha=1e-9, intercept=True))
    >>> error(B).backward()
    >>> B.grad.shape
    torch.Size([2000, 3])
    >>> error.evaluate(B).intercept
    tensor([0.9991], dtype=torch.float64)
    """

    def __init__(self, objective: SquaredLoss) -> None:
        if not isinstance(objective, SquaredLoss) or isinstance(objective, Interpolation):
            raise TypeError(
                "OnFactor expects Ridge, LeaveOneOut, GeneralizedCrossValidation or HeldOut; got "
                f"{type(objective).__name__}. Interpolation needs a Gram matrix of full rank; use Ridge with a "
                "small alpha."
            )
        self.objective = objective

    @property
    def intercept(self) -> bool:
        """Has the function a constant that costs nothing?"""
        return self.objective.intercept

    def evaluate(
        self, factor: Tensor, *, alpha: float | Tensor | None = None, gradient: bool = True, dual: bool = True
    ) -> FactorEvaluation:
        """Value, gradients and coefficients at once, detached from autograd; see ``Objective.evaluate``."""
        self._check_factor(factor)
        with torch.no_grad():
            alphas = self.objective._alpha_for(factor, alpha)
            e = self._evaluate(factor.detach(), alphas, gradient=gradient, dual=dual)
        return FactorEvaluation(e.value, e.gram_gradient, e.alpha_gradient, e.dual, e.intercept)

    def envelope(self, factor: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """The values (b,) and ∂value/∂B (b, n, m), as ``Objective.envelope``."""
        evaluation = self._evaluate(factor, alpha, gradient=True, dual=False)
        assert evaluation.gram_gradient is not None
        return evaluation.value, evaluation.gram_gradient

    def __call__(self, factor: Tensor, alpha: float | Tensor | None = None) -> Tensor:
        """The value (...), differentiable once in ``factor`` and ``alpha`` through torch's autograd."""
        self._check_factor(factor)
        value: Tensor = _ClosedForm.apply(self, factor, self.objective._alpha_for(factor, alpha))
        return value

    def _evaluate(self, factor: Tensor, alpha: Tensor, *, gradient: bool, dual: bool) -> Evaluation:
        """The objective's own evaluation, with ∂/∂B and θ in the places of ∂/∂K and the dual coefficients."""
        return self.objective._evaluate_by(FactorSystem, factor, alpha, gradient=gradient, dual=dual)

    def _check_factor(self, factor: Tensor) -> None:
        if not isinstance(factor, Tensor):
            raise TypeError(f"The factor must be a torch tensor; got {type(factor).__name__}.")
        if factor.ndim < 2 or factor.shape[-2] != self.objective.n:
            raise ValueError(
                f"The factor must be (..., n, m) with a row for each of the {self.objective.n} targets of "
                f"{type(self.objective).__name__}; got {tuple(factor.shape)}. Compute both from the same rows."
            )


@dataclass(frozen=True)
class ObservedPart:
    """Columns of the targets that are known in the same rows, and their objective."""

    columns: Tensor
    rows: Tensor
    objective: Any


class Observed:
    """Σ over groups of columns of an objective on the rows in which they are known.

    Each group is a fit of its own, with its own mean over samples: a few labels beside many unlabelled samples weigh as
    much as all labels would.

    Parameters
    ----------
    parts : sequence of ObservedPart
        With objectives of squared loss.
    n, p : int
        Samples and columns in all.
    on_factor : bool
        Are the parts functions of a factor of the Gram matrix?
    """

    penalty = None

    def __init__(self, parts: Sequence[ObservedPart], n: int, p: int, *, on_factor: bool = False):
        self.parts, self.n, self.p, self._on_factor = list(parts), n, p, on_factor
        self.alpha = self.parts[0].objective.alpha if not on_factor else 1.0
        self.intercept = any(getattr(part.objective, "intercept", False) for part in self.parts)

    def _restricted(self, matrix: Tensor, part: ObservedPart) -> Tensor:
        if len(part.rows) == self.n:
            return matrix
        return matrix[..., part.rows, :] if self._on_factor else matrix[..., part.rows[:, None], part.rows]

    def __call__(self, matrix: Tensor, alpha: object = None) -> Tensor:
        """The value (...), differentiable in the matrix and in alpha."""
        values = [part.objective(self._restricted(matrix, part), alpha) for part in self.parts]
        return torch.stack(values).sum(0)

    def envelope(self, matrix: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """The values (b,) and gradients of a batch of matrices, as ``Objective.envelope``."""
        total, gradient = matrix.new_zeros(len(matrix)), torch.zeros_like(matrix)
        for part in self.parts:
            value, slope = part.objective.envelope(self._restricted(matrix, part), alpha)
            total = total + value
            if self._on_factor:
                gradient[..., part.rows, :] += slope
            else:
                gradient[..., part.rows[:, None], part.rows] += slope
        return total, gradient

    def evaluate(self, matrix: Tensor, *, alpha: object = None, gradient: bool = False) -> Any:
        """The value, coefficients and intercepts of one matrix, each in the columns of its group."""
        if gradient:
            raise ValueError("Observed has its gradients through autograd: call it instead.")
        coefficients = matrix.new_zeros(matrix.shape[-1] if self._on_factor else self.n, self.p)
        intercept = matrix.new_zeros(self.p)
        total = matrix.new_zeros(())
        for part in self.parts:
            found = part.objective.evaluate(self._restricted(matrix, part), alpha=alpha, gradient=False)
            total = total + found.value
            if self._on_factor:
                coefficients[:, part.columns] = found.coefficients
            else:
                coefficients[part.rows[:, None], part.columns] = found.dual
            if found.intercept is not None:
                intercept[part.columns] = found.intercept
        b = intercept if self.intercept else None
        if self._on_factor:
            return FactorEvaluation(total, None, None, coefficients, b)
        return Evaluation(total, dual=coefficients, intercept=b)

    def on_factor(self) -> Observed:
        """The same as a function of a factor of the Gram matrix."""
        parts = [ObservedPart(part.columns, part.rows, OnFactor(part.objective)) for part in self.parts]
        return Observed(parts, self.n, self.p, on_factor=True)


def observed(Y: Tensor, make: Callable[[Tensor, Tensor], Any | None]) -> Any:
    """The objective ``make(targets, rows)`` of targets without gaps, or the sum over columns with the same gaps (NaN).

    ``make`` gets the targets that are known, and their rows among all; None leaves a group out, which has nothing to
    fit or nothing to be measured by.
    """
    missing = Y.isnan()
    everything = torch.arange(len(Y), device=Y.device)
    if not bool(missing.any()):
        return make(Y, everything)
    patterns, group = torch.unique(missing, dim=1, return_inverse=True)
    parts = []
    for index, pattern in enumerate(patterns.unbind(1)):
        columns = torch.nonzero(group == index)[:, 0]
        rows = everything[~pattern]
        objective = make(Y[rows][:, columns], rows) if len(rows) else None
        if objective is not None:
            parts.append(ObservedPart(columns, rows, objective))
    return Observed(parts, len(Y), Y.shape[1])
