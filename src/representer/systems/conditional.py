"""The regressions of conditional embeddings: weights of all samples, or sums over cells of targets around landmarks."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from representer.approximation import Approximation, FeatureMap, Landmarks, Nystroem, approximation_error
from representer.functions import ConditionalEmbedding, FadingFeatures, FeatureFunction, FieldState, StoredFeatures
from representer.functions.conditional import best_bandwidth, middle, proper
from representer.kernels import Kernel, is_bounded
from representer.linalg import (
    by_rows,
    note_residual,
    pivoted_cholesky,
    power_of_two,
    room_beside_sums,
    row_blocks,
    solve_blocks,
)
from representer.operators import (
    Adapted,
    Identity,
    Representation,
    original,
    repaired_gram,
)
from representer.samples import Block, Data, HeldSamples, InMemory, OnDask, Samples, Step, count, is_dask, plain, take
from representer.samples import rows as limits
from representer.systems.base import Criterion, Groups, System, probes, relative_norm
from representer.systems.ridge import AlphaRule, SummedSystem, normal_equations, summed_system
from representer.systems.scalar import DenseSystem, SampleWeights
from representer.systems.sums import NormalStep, NormalSums, add_gram
from representer.systems.support import FadingWeights, PointSupport, Trust, point_support

# The share of the Gram matrix of many targets that a search may miss: hyperparameters keep four digits, and where all
# eigenvalues count, as those of a Laplacian do, a third of the time is saved.
SEARCHED = 1e-3


class EmbeddingRisk(NamedTuple):
    """What a bound of the risk of an embedding is made of."""

    loss: float  # the mean ‖l(·, y_i) − f(x_i)‖²
    complexity: float  # r = ‖f‖√(sup k(x, x))
    supremum: float  # sup l(y, y)
    n: int


# -- weights of all samples -------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class WeightSystem(FieldState, System):
    """The exact regression of unit targets: what it says of sample i is a row of weights of all samples.

    Parameters
    ----------
    targets : ConditionalEmbedding
        The targets and their kernel, without weights.
    weights : SampleWeights
        The function of the weights, which has the factored system.
    alpha : float
    groups : array (n,) or None
        What is left out together.
    """

    targets: ConditionalEmbedding
    weights: SampleWeights
    alpha: float
    groups: np.ndarray | None = None

    def function(self) -> ConditionalEmbedding:
        """The fitted embedding x ↦ μ_x with the weights of this system."""
        w = self.weights.sample_weight
        shares = None if w is None else w / w.sum()
        return replace(self.targets, weights=self.weights, total_is_one=self.weights.intercept, shares=shares)

    @property
    def _system(self) -> DenseSystem:
        return self.weights.solved.system

    @property
    def value(self) -> float | None:
        """None: alpha was chosen before the system."""
        return None

    def settled(self, alpha: float | AlphaRule) -> WeightSystem:
        """The system itself, which has its alpha; what its equations miss is noted."""
        note_residual("the equations of the fit", self.residual)
        return self

    def judged(self, criterion: str | None) -> tuple[ConditionalEmbedding, Tensor | None]:
        """The fitted embedding with what left-out samples decide: where it fades far from all samples, its bandwidth.

        Without a criterion nothing is decided, of many samples no bandwidth. The second value has the log densities of
        the samples that decided on it.
        """
        function, weights, log_densities = self.function(), self.weights, None
        few = len(weights.anchors) <= limits.HELD_ROWS // 2
        if criterion is not None and fades(weights.kernel, intercept=weights.intercept):
            support = PointSupport(weights, groups=self.groups)
            trust = Trust.of(support if few else support.some(limits.SUPPORT_ROWS))
            function = replace(function, weights=FadingWeights(weights, trust))
        if not few or criterion is None:
            return function, None
        if function.kernel.domain == "vectors" and function.vectors("density").shape[1] == 1:
            left_out, w = self.left_out(), weights.sample_weight
            rows = np.arange(len(left_out)) if w is None else np.flatnonzero(w > 0)
            some = torch.from_numpy(rows[limits.evenly_spaced(len(rows), limits.MIDDLE_ROWS)])
            shares = None if w is None else torch.from_numpy(w / w.sum()).to(left_out)
            width, log_densities = best_bandwidth(proper(left_out[some], shares), function.vectors("density"), some)
            function = replace(function, bandwidth=width)
        self.forget_inverse()
        return function, log_densities

    def at_rest(self) -> WeightSystem:
        """The system itself, which holds nothing beside its arrays."""
        return self

    def forget_inverse(self) -> None:
        """Free P, an n × n matrix: solutions go by the factor again, to the last bit as those of a stored model."""
        vars(self._system).pop("unit_coefficients", None)

    @property
    def _counted(self) -> Tensor:
        """The numbers of the samples that have a weight."""
        w = self._system.sample_weight
        return torch.arange(len(self._system.matrix)) if w is None else w.nonzero()[:, 0].cpu()

    def coefficients(self) -> Tensor:
        """P (n, n), symmetric: w(x) = P k(X, x) + g."""
        return self._system.unit_coefficients

    def intercept(self) -> Tensor | None:
        """The constant g (n,), or None where there is none."""
        return None if self._system.g is None else self._system.g[:, 0]

    def residual(self) -> float:
        """‖(K P + N P + 1gᵀ − I) S‖ / ‖S‖ for few random signs S; the noise is N, samples without weight no part."""
        rows, matrix, g = self._counted, self._system.matrix, self.intercept()
        signs = matrix.new_zeros(len(matrix), limits.PROBES)
        signs[rows] = probes(len(rows), like=matrix)
        solved = self._system.solve(signs)
        w = matrix.new_ones(len(matrix)) if self._system.sample_weight is None else self._system.sample_weight
        missing = (matrix @ solved)[rows] + self.weights.shift * solved[rows] / w[rows, None] - signs[rows]
        missing = missing if g is None else missing + g @ signs
        return relative_norm(missing, signs)

    def left_out(self, groups: Tensor | None = None) -> Tensor:
        """The weights (n, n) that the fit without a sample, or without its group, gives it; its own are zero."""
        rows, P = self._counted, self.coefficients()
        labels = self.groups if groups is None else groups.cpu().numpy()
        parts = Groups.of(np.arange(len(rows)) if labels is None else labels[rows.numpy()], P.device)
        inside = P[rows][:, rows]
        blocks = [solve_blocks(own, part) for own, part in zip(parts.blocks(inside), parts.parts(inside), strict=True)]
        weights = P.new_zeros(len(P), len(P))
        if len(rows) < len(P):  # the fit has not seen the others
            weights = self.weights(self.weights.anchors)
        weights[rows] = 0.0
        for members, block in zip(parts.members, blocks, strict=True):
            own = rows[members.cpu()]
            weights[own[:, :, None], rows] = -block
            weights[own[:, :, None], own[:, None, :]] = 0.0
        return weights

    def influence(self, X: Data, values: Tensor | None = None) -> Tensor:
        """What each sample, with its group, does to w(x)ᵀV (q, n, p) for values V (n, p) of the targets."""
        if values is None:
            raise ValueError("Influences on the weights of all samples are many: give values= of the targets.")
        errors = (values - self.left_out() @ values)[None]
        terms = self.weights(X)[:, :, None] * errors
        if self.groups is None:
            return terms
        members = torch.from_numpy(np.unique(self.groups, return_inverse=True)[1])
        totals = terms.new_zeros(len(terms), int(members.max()) + 1, terms.shape[2]).index_add_(1, members, terms)
        return totals[:, members]

    def left_out_distances(self) -> Tensor:
        """‖l(·, y_i) − μ₋ᵢ‖ (n,) in the RKHS of the output kernel, by the embedding without sample i or its group."""
        return self._squared_distances(self.left_out()).sqrt()

    def _target_gram(self) -> Tensor:
        """L: the output kernel of the targets."""
        return self.targets.output_kernel._gram(self.targets.prepared_anchors, None).to(self._system.matrix)

    def _squared_distances(self, W: Tensor) -> Tensor:
        """‖l(·, y_i) − Σ_j W_ij l(·, y_j)‖² (n,)."""
        gram = self._target_gram()
        product = W @ gram
        return (gram.diagonal() - 2.0 * product.diagonal() + (product * W).sum(1)).clamp(min=0.0)

    def risk(self) -> EmbeddingRisk:
        """The mean squared distance of the embeddings to the samples, and the complexity of f, without an intercept."""
        P, K, L = self.coefficients(), self._system.matrix, self._target_gram()
        fitted = K @ P
        squared_norm, largest = (P @ fitted * L).sum().clamp(min=0.0), K.diagonal().max()
        loss = self._squared_distances(fitted).mean()
        self.forget_inverse()
        r = float((squared_norm * largest).sqrt())
        return EmbeddingRisk(float(loss), r, float(L.diagonal().max()), len(K))

    def leverage(self) -> Tensor:
        """The own weight w_i(x_i) (n, 1) of each sample: 1 − noise·P_ii; zero without a weight."""
        diagonal, w = self.coefficients().diagonal(), self._system.sample_weight
        noise = self.weights.shift / (torch.ones_like(diagonal) if w is None else torch.where(w > 0, w, torch.inf))
        own = 1.0 - noise * diagonal
        return (own if w is None else torch.where(w > 0, own, 0.0))[:, None]

    def variance(self, X: Data) -> Tensor:
        """The variance (m, 1) of each coordinate of f + b at checked inputs, in units of the prior's scale."""
        solved, system = self.weights.solved, self._system
        inputs = self.weights.representation.inputs(solved.kernel, X)

        def variances(rows: slice) -> Tensor:
            cross, x = solved.cross(inputs[rows]), inputs[rows]
            inverse = system._solve(cross.mT).mT  # k_xᵀW⁻¹
            own = solved.diagonal(x) - (inverse * cross).sum(1)
            if system.u is not None:
                own = own + (1.0 - inverse.sum(1)).square() / system.u.sum()
            return own.clamp(min=0.0)[:, None]

        with torch.no_grad():
            return by_rows(variances, count(inputs), 3 * len(system.matrix) * system.matrix.element_size())


# -- cells of targets -------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Cells:
    """Each output belongs to the landmark that is nearest to it in the RKHS of its kernel, the first of equals.

    Examples
    --------
    >>> import torch
    >>> from representer.systems.conditional import Cells
    >>> from representer.kernels import Gaussian
    >>> cells = Cells(Gaussian(1.0), torch.tensor([[0.0], [10.0]]))
    >>> cells(torch.tensor([[1.0], [6.0], [-2.0], [500.0]])).tolist()
    [0, 1, 0, 1]
    """

    kernel: Kernel
    landmarks: Data  # prepared

    def __len__(self) -> int:
        return count(self.landmarks)

    @cached_property
    def _halves(self) -> Tensor:
        return 0.5 * self.kernel._diag(self.landmarks)

    def __call__(self, Y: Data) -> Tensor:
        """The number of its landmark for each of some prepared outputs, in blocks."""
        blocks = row_blocks(count(Y), 2 * self._halves.element_size() * len(self))
        return torch.cat([self._block(Y[rows]) for rows in blocks])

    def _block(self, Y: Data) -> Tensor:
        similar = self.kernel._gram(Y, self.landmarks)
        found = (similar - self._halves).argmax(1)  # of least l(y, y) − 2 l(y, z) + l(z, z)
        if isinstance(Y, Tensor):
            eps = torch.finfo(similar.dtype).eps
            far = (similar <= eps * self._halves).all(1)  # too far for digits of the difference
            if bool(far.any()):
                found[far] = torch.cdist(Y[far], self.landmarks).argmin(1)
        return found


@dataclass(frozen=True)
class CellStep(Step):
    """Adds to the sums of a ridge regression of cells, as columns of zeros and ones, and of the outputs' moments.

    The fit to the columns is the sum of the samples' weights in each cell, and that to (y − c)/u and its square is the
    mean and the variance of all samples: so the moments are exact, however large the cells.

    Parameters
    ----------
    features : FeatureMap
        Of the inputs.
    n_cells : int
    cells : Cells or None
        Of the outputs in blocks; None: blocks hold the numbers of cells.
    centre : tensor (d,) or None
        The c of the moments; None: there are no moments.
    unit : float
        The u of the moments, so that their squares are in range.
    """

    features: FeatureMap
    n_cells: int
    cells: Cells | None
    centre: Tensor | None
    unit: float = 1.0

    @property
    def width(self) -> int:
        """How many columns the cells and the moments have together."""
        return self.n_cells + (0 if self.centre is None else 2 * len(self.centre))

    @property
    def bytes_per_row(self) -> int:  # type: ignore[override]
        """Columns, features, those in double, and the similarities of outputs."""
        return 8 * 2 * (self.features.n_features + self.width) + self.features.bytes_per_row

    def numbers(self, Y: Tensor) -> Tensor:
        """The number of the cell that each of some outputs falls into."""
        return Y[:, 0].long() if self.cells is None else self.cells(Y)

    def moments(self, Y: Tensor) -> Tensor:
        """(y − c)/u and its square of some outputs, (n, 2d)."""
        if self.centre is None:
            return Y.new_zeros(len(Y), 0, dtype=torch.float64)
        centred = (Y.double() - self.centre.double()) / self.unit
        return torch.cat([centred, centred.square()], 1)

    def columns(self, Y: Tensor) -> Tensor:
        """The columns (n, width) whose regression is that of the sums: zeros and ones of the cells, and moments."""
        cells = torch.nn.functional.one_hot(self.numbers(Y), self.n_cells)
        return torch.cat([cells.double(), self.moments(Y)], 1)

    def __call__(self, block: Block, total: NormalSums | None) -> NormalSums:
        B, moments = self.features(block.X), self.moments(block.Y)
        m, r, d = B.shape[1], self.n_cells, moments.shape[1]
        if total is None:
            total = NormalSums.zeros(m, r + d, like=moments)
        n, ones = len(B), moments.new_ones(len(B), 1)
        w = ones if block.weights is None else block.weights.double()[:, None]
        add_gram(total.gram, B if block.weights is None else B * w.sqrt().to(B))
        B = B.double()
        rows = torch.cat([B, moments, ones], 1)
        if block.weights is not None:
            n, rows = int((w > 0).sum()), w * rows
        sums = rows.new_zeros(r, m + d + 1).index_add_(0, self.numbers(block.Y), rows)
        weighted = rows[:, m : m + d]
        counts = sums[:, -1]
        total.cross[:, :r].add_(sums[:, :m].mT)
        total.cross[:, r:].add_(B.mT @ weighted)
        total.squares.diagonal()[:r].add_(counts)
        total.squares[:r, r:].add_(sums[:, m:-1])
        total.squares[r:, :r].add_(sums[:, m:-1].mT)
        total.squares[r:, r:].add_(moments.mT @ weighted)
        total.feature_sum.add_(rows[:, :m].sum(0))
        total.target_sum.add_(torch.cat([counts, weighted.sum(0)]))
        return replace(total, n=total.n + n, weight=total.weight + float(w.sum()))


@dataclass(frozen=True, kw_only=True)
class CellSystem(SummedSystem):
    """The regression of the cells of targets and of their moments, from sums over the samples.

    Parameters
    ----------
    targets : ConditionalEmbedding
        The anchors of the cells and their kernel, without weights.
    scale : float or None
        The mean k(x, x), where alpha is that over the number of samples.
    first_alpha : float or None
        An alpha that was chosen with the kernel, and that more samples keep.
    """

    sums: NormalSums
    targets: ConditionalEmbedding
    scale: float | None = None
    first_alpha: float | None = None

    def risk(self) -> EmbeddingRisk:
        """Refused: the embeddings are sums over cells, whose distance to the samples is not known."""
        raise ValueError("risk_bound rests on a theorem that is for exact fits: fit without an approximation.")

    @cached_property
    def step(self) -> CellStep:
        """The sums of the fit."""
        return cell_step(self.targets, self.map)

    def block(self, held: HeldSamples) -> Block:
        """Stored samples, whose targets are columns of cells and moments."""
        block = super().block(held)
        return replace(block, Y=self.step.columns(block.Y))

    @cached_property
    def in_rkhs(self) -> SummedSystem:
        """The regression of the same samples whose targets, in the RKHS of l, are those of their anchors."""
        gram, _ = repaired_gram(self.targets.output_kernel, self.targets.prepared_anchors)
        anchors = target_factor(gram.double(), like=gram)
        moments = anchors.new_zeros(self.step.width - self.step.n_cells, anchors.shape[1])
        sums = self.sums.map(torch.from_numpy).combined(torch.cat([anchors, moments]))
        held = replace(self.held, Y=plain(anchors[self.step.numbers(super().block(self.held).Y)]))
        own = {field.name: getattr(self, field.name) for field in fields(SummedSystem)}
        return SummedSystem(**{**own, "sums": sums.map(plain), "held": held})

    def settled(self, alpha: float | AlphaRule) -> Self:
        """The system at an alpha: the one given or, before a rule, the one chosen with the kernel or by its scale."""
        if not isinstance(alpha, float):
            alpha = alpha if self.scale is None else self.scale / self.n
            alpha = alpha if self.first_alpha is None else self.first_alpha
        return super().settled(alpha)

    def judged(self, criterion: str | None) -> tuple[ConditionalEmbedding, Tensor | None]:
        """The fitted embedding, which fades far from all samples; of cells, left-out samples decide no more."""
        function, sums = self.function(), self.sums
        if criterion is None or not fades(self.features.kernel, intercept=self.fit_intercept):
            return function, None
        points = point_support(self.features.span(), self.alpha, None, self.held, intercept=True, most_noise=np.inf)
        trust, far = Trust.of(points.some(limits.SUPPORT_ROWS)), sums.target_sum / sums.weight
        moments, r = function.moments, self.step.n_cells
        if isinstance(moments, FeatureFunction):
            moments = fading(moments, trust, self.step.unit * far[r:])
        return replace(function, weights=fading(function.weights, trust, far[:r].copy()), moments=moments), None

    def influence(self, X: Data, values: Tensor | None = None) -> Tensor:
        """Refused: samples are summed."""
        raise self._unavailable("Influences of samples")

    def left_out_distances(self) -> Tensor:
        """Refused: targets are summed."""
        raise self._unavailable("Misfits of targets")

    def _unavailable(self, what: str) -> ValueError:
        return ValueError(
            f"{what} need all samples, and a fit with cells of targets has sums of them. Fit without approximation=."
        )

    def alpha_range(self) -> tuple[Tensor, Tensor]:
        """The alphas that the criterion in the RKHS of l can tell apart."""
        return self.in_rkhs.alpha_range()

    def alpha_unit(self) -> tuple[Tensor, float]:
        """The alpha with which a sample has as much noise as k(x, x) on average, and the number of samples."""
        return self.in_rkhs.alpha_unit()

    def path(self, alphas: Tensor, criterion: Criterion = "loo") -> Tensor:
        """The criterion of the held samples in the RKHS of l for many alphas."""
        return self.in_rkhs.path(alphas, criterion)

    def function(self) -> ConditionalEmbedding:  # type: ignore[override]
        """The fitted embedding: weights of the cells, and moments of vectors."""
        theta, r = self.coefficients(), self.step.n_cells
        C, b = plain(theta), plain(self.ridge.intercepts(theta))
        weights = FeatureFunction(self.features, C[:, :r].copy(), b[:r].copy())
        moments = None
        if self.targets.centre is not None:
            moments = FeatureFunction(self.features, self.step.unit * C[:, r:], self.step.unit * b[r:])
        shares = (self.sums.target_sum[:r] / self.sums.weight).copy()
        intercept = self.fit_intercept
        parts = {"weights": weights, "moments": moments, "shares": shares, "unit": self.step.unit}
        return replace(self.targets, **parts, total_is_one=intercept)

    def regressed(self, samples: Samples, trust: Trust | None = None) -> FeatureFunction:
        """E[g(Y) | X = x] as a function of x from samples whose targets are g(y): their ridge regression.

        With a trust, it goes to the mean of all g(y) where an input is not trusted.
        """
        width = samples.rows(np.arange(1)).Y.shape[1]
        limit = room_beside_sums(self.memory_limit, self.map.n_features, width, held=0)
        sums = samples.total(NormalStep(self.map), limit=limit)
        ridge = normal_equations(sums, self.operator, self.fit_intercept, self._frame)
        theta = ridge.coefficients(self.alpha)
        f = FeatureFunction(self.features, plain(theta, copy=True), plain(ridge.intercepts(theta), copy=True))
        return f if trust is None else fading(f, trust, plain(sums.target_sum / sums.weight, copy=True))

    def joined(self, samples: Samples, source: TargetSource) -> Self:
        """The system with more samples in memory and their targets, at the same alpha."""
        cells = with_targets(samples, source.column(Cells(cell_kernel(self.targets), self.targets.prepared_anchors)))
        assert isinstance(cells, InMemory)
        return self.added(cells.samples, self.step)

    def at_rest(self) -> Self:
        """The system as a learner keeps it, without matrices of the held samples."""
        return replace(self)


def fades(kernel: Kernel, *, intercept: bool) -> bool:
    """Can a distribution go to that of all targets far from all samples: does k fade, and do weights sum to one?"""
    return intercept and kernel.domain != "gram" and is_bounded(kernel)


def fading(function: FeatureFunction, trust: Trust, far: np.ndarray) -> FadingFeatures:
    """The function where inputs are trusted, a constant (p,) where they are not."""
    return FadingFeatures(function.features, function.coefficients, function.intercept, trust=trust, far=far)


def target_factor(gram: Tensor, like: Tensor | None = None, tol: float = 0.0) -> Tensor:
    """R with RRᵀ = L: to this tolerance the RKHS is spanned by few of the samples, which is what the criteria cost."""
    dtype = (gram if like is None else like).dtype
    factor, _ = pivoted_cholesky(gram, tol=max(tol, torch.finfo(dtype).eps ** 0.75))
    return factor.contiguous()


def searched_factor(targets: ConditionalEmbedding, source: TargetSource, rows: Tensor) -> Tensor:
    """R with RRᵀ ≈ L at some rows: of the targets of an exact fit, rows of the factor of all of them."""
    exact = targets.anchors is not None
    values = targets.prepared_anchors if exact else source.prepared(source.rows(rows.numpy()))
    tol = SEARCHED if count(values) > limits.WHOLE_FACTOR_ROWS else 0.0
    factor = target_factor(repaired_gram(targets.output_kernel, values)[0], tol=tol)
    return factor[rows] if exact else factor


def cell_kernel(function: ConditionalEmbedding) -> Kernel:
    """The output kernel as cells take it: nothing is repaired, for no Gram matrix is formed."""
    kernel, how = function.kernel, function.representation
    return kernel if kernel.domain == "vectors" else Adapted(kernel, how.dtype, how.device)


def cell_step(targets: ConditionalEmbedding, features: FeatureMap) -> CellStep:
    """The sums of a fit with these features of inputs and these anchors of targets."""
    cells = Cells(cell_kernel(targets), targets.prepared_anchors)
    if targets.centre is None:
        return CellStep(features, len(cells), None, None)
    centre = targets.representation.tensor(targets.centre)
    unit = float(power_of_two((targets.vectors("predict") - centre).abs().max()))
    return CellStep(features, len(cells), cells, centre, unit)


# -- targets of many samples ------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class TargetSource:
    """Targets in memory, checked, or in a Dask array, to be checked where they are read.

    Parameters
    ----------
    values : array, list or Dask array
    kernel : Kernel
        That takes them.
    representation : Representation
    check : callable
        Raw targets -> checked ones.
    """

    values: Any
    kernel: Kernel
    representation: Representation
    check: Any

    def __len__(self) -> int:
        return len(self.values)

    def rows(self, index: np.ndarray) -> Data:
        """Some of them, here and checked."""
        if is_dask(self.values):
            return self.check(self.values[index].compute())
        return take(self.values, torch.from_numpy(index))

    def prepared(self, values: Any) -> Data:
        """As the kernel takes them."""
        numeric = self.kernel.domain == "vectors"
        return self.kernel.prepare(self.representation.tensor(values) if numeric else values)

    def column(self, cells: Cells) -> Any:
        """What blocks of samples hold: vectors, or the numbers (n, 1) of the cells of anything else."""
        if not is_dask(self.values):
            prepared = self.prepared(self.values)
            return prepared if self.kernel.domain == "vectors" else cells(prepared)[:, None]
        if self.kernel.domain == "vectors":
            return self.values
        form: dict[str, Any] = {"new_axis": 1} if self.values.ndim == 1 else {}
        form["chunks"] = (self.values.chunks[0], (1,))
        reader = replace(self, values=None)
        return self.values.map_blocks(_numbers, reader, cells, dtype=float, meta=np.empty((0, 0)), **form)

    def fold(self, rows: np.ndarray) -> TargetSource:
        """Some of the targets in memory; of a Gram matrix also the columns."""
        values = self.rows(rows)
        return replace(self, values=values[:, rows] if self.kernel.domain == "gram" else values)

    def anchors(self, kernel: Kernel, approximation: Nystroem | Landmarks, seed: int) -> Data:
        """Targets that stand for all, as they were given."""
        if isinstance(approximation, Landmarks):
            return self.check(approximation.points)
        some = self.rows(approximation.rows(len(self), seed))
        if kernel.domain == "vectors":  # means, perhaps
            return plain(approximation.choose(kernel, self.prepared(some), seed).landmarks, copy=True)
        return take(some, approximation.samples(kernel, self.prepared(some), seed=seed))


def _numbers(chunk: np.ndarray, reader: TargetSource, cells: Cells) -> np.ndarray:
    return plain(cells(reader.prepared(reader.check(chunk))))[:, None].astype(float)


def with_targets(samples: Samples, Y: Data) -> Samples:
    """The same inputs, weights and groups, with targets in memory or on Dask."""
    if isinstance(samples, OnDask):
        return OnDask(samples.X, plain(Y), samples.weights, dtype=samples.dtype, groups=samples.groups)
    assert isinstance(samples, InMemory)
    values = Y if isinstance(Y, Tensor) else torch.as_tensor(np.asarray(Y.compute() if is_dask(Y) else Y))
    return InMemory(replace(samples.samples, Y=values))


# -- the choice -------------------------------------------------------------------------------------------------------
def conditional_system(
    kernel: Kernel,
    samples: Samples,
    source: TargetSource,
    targets: ConditionalEmbedding,
    alpha: float,
    *,
    intercept: bool,
    pair: tuple[Approximation, Nystroem | Landmarks] | None,
    inputs: Data = None,
    memory_limit: object = None,
    scale: float | None = None,
    first_alpha: float | None = None,
) -> WeightSystem | CellSystem:
    """The regression into the RKHS of the targets: exact without an approximation, by sums over cells with one.

    Parameters
    ----------
    kernel : Kernel
        Of the inputs, adapted, with numbers for all hyperparameters.
    samples : Samples
        The inputs; an exact fit has them in memory, those of weight zero among them.
    source : TargetSource
        Their targets.
    targets : ConditionalEmbedding
        The output kernel with numbers; for an exact fit the targets, too. It has no weights.
    alpha : float
    intercept : bool
    pair : pair of approximations or None
        Of inputs and targets.
    inputs : data or None
        The inputs of samples in memory as they are stored.
    memory_limit : int, str or None
        What a fit by sums may take beside the data.
    scale, first_alpha : float or None
        What a fit by sums remembers of its alpha.
    """
    if pair is None:
        block = samples.rows(np.arange(samples.n))
        w, groups = (plain(a, copy=True) for a in (block.weights, block.groups))
        total = float(samples.n if block.weights is None else block.weights.sum())
        how = targets.representation
        weights = SampleWeights(original(kernel), inputs, total * alpha, intercept, how, w).with_system(kernel)
        return WeightSystem(targets, weights, alpha, groups)
    seed, how = targets.seed, targets.representation
    anchors = source.anchors(cell_kernel(targets), pair[1], seed)
    centre = plain(middle(how.tensor(anchors))) if targets.kernel.domain == "vectors" else None
    targets = replace(targets, anchors=anchors, centre=centre)
    columns = source.column(Cells(cell_kernel(targets), targets.prepared_anchors))
    cells = with_targets(samples, columns)
    numbers = cells.random_rows(limits.HELD_ROWS, seed)
    held = cells.rows(numbers)
    features = pair[0].choose(kernel, samples.rows(pair[0].rows(samples.n, seed)).X, seed)
    stored = None
    if inputs is not None and isinstance(cells, InMemory):
        block = cells.samples
        arrays = (plain(a) for a in (block.Y, block.weights, block.groups))
        stored = HeldSamples(np.empty(0, dtype=np.uint64), inputs, *arrays)
    system = summed_system(
        cells,
        StoredFeatures.of(pair[0], features, how),
        HeldSamples.of(held, numbers, seed),
        held,
        operator=Identity(),
        intercept=intercept,
        memory_limit=memory_limit,
        seed=seed,
        step=lambda seen: cell_step(targets, seen),
        width=cell_step(targets, features).width,
    )
    error = approximation_error(features, held.X)
    own = system.__getstate__() | {"alpha": alpha, "samples": stored, "approximation_error": error}
    return CellSystem(**own, targets=targets, scale=scale, first_alpha=first_alpha)
