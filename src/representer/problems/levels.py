"""Deep kernel PCA as a problem (Tonin et al., 2023): an energy over levels, its stationary points, and their solvers.

Level j has orthonormal hidden features H_j (N × s_j) and K_j = k_j(H_{j−1}), K_1 the Gram matrix of the data. The
multi-level equations (6) of the paper,

    K_j H_j / η_j + G_j / η_{j+1} = H_j Λ_j,     G_j = ∇_{H_j} ½ Tr(H_{j+1}ᵀ K_{j+1}(H_j) H_{j+1}),

are the stationarity conditions of E = Σ_j Tr(H_jᵀ K_j H_j) / (2 η_j) on the product of Stiefel manifolds. Level j keeps
the leading eigenvectors of sign(η_j) M_j, where M_j is symmetric with M_j H_j equal to the left-hand side. A level
whose features are centred has C K_j C for K_j, with C = I − 11ᵀ/N, so that Tr(H_jᵀ C K_j C H_j) is the energy of a
level that is not, at C H_j: G_{j−1} is that of C H_j.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from representer.approximation import Nystroem
from representer.functions.levels import (
    DataLevel,
    Levels,
    Recovery,
    deviations,
    is_constant,
    slope,
    smoothed,
    weighed,
)
from representer.kernels import (
    Gaussian,
    Kernel,
    Linear,
    Mapped,
    Training,
    as_kernel,
    has_statistics,
    in_training,
    with_statistics,
)
from representer.linalg import Product, RitzPairs, leading, orthonormal, recycling, row_blocks
from representer.operators import Representation, silent_repairs
from representer.optimize import (
    HistoryEntry,
    Monitor,
    OptimizeResult,
    Problem,
    SearchSettings,
    adam,
    keep_going,
    with_gradient,
)
from representer.optimize.stiefel import (
    ManifoldResult,
    SearchLimits,
    adam_steps,
    ascent,
    follow,
    is_closer,
    is_later,
    is_no_lower,
    newton_steps,
    projected_steps,
    sweeps,
    symmetric,
)
from representer.preimage import Network
from representer.samples import Block, Data, InMemory, Samples, digest, plain, remembered, take
from representer.samples import rows as limits
from representer.values import Real, argument_repr, is_count, is_real, number, packing, same

Hidden = list[Tensor]

# The Ritz pairs in a preconditioner are this accurate. The smallest gap that it divides by is a share of the smallest
# eigenvalue, and of what coupling adds to it.
PRECONDITIONER_ACCURACY = 1e-6
SMALLEST_GAP = 1e-3
COUPLING_PART = 0.01
# Eigenvalues that are kept are compared with others to this accuracy, relative to the largest one.
COMPARED = 1e-6
# A sweep solves an eigenvalue problem to this share of the residual that its start has.
SHARE = 0.05
# Autograd holds so many temporaries of the size of a block of Gram rows.
TEMPORARIES = 6
# A block of so many bytes is used at once, while it is in the processor's cache.
CACHED = 2**20
# The levels' own eigenvectors are found to this accuracy where they are a start, and where they are the answer.
START_ACCURACY, EXACT = 1e-6, 1e-12
# A component of little variance is extended to new samples this accurately, a tenth of what is promised for samples.
EXTENDED = 1e-7
# During training the features will move, so that their components are solved for to this accuracy only.
TRAINING_ACCURACY = 1e-4
# In units of rounding, the residual where a search ends at the latest, and the one where energies tell no steps apart.
LEAST_RESIDUAL, UNRESOLVED = 100.0, 4096.0


# -- the model --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class LevelModel:
    """The sizes, kernels and weights of all levels, from the data on."""

    sizes: tuple[int | float, ...]  # numbers of components, or shares of the variance
    kernels: tuple[Kernel, ...]
    etas: tuple[float, ...]
    center: bool | str = True  # Are features centred, at all levels or, "data", at the first?
    extension: str = "exact"  # how new samples get hidden features, or "smoother"
    approximation: Nystroem | None = None  # chooses the samples that stand for all; None: each for itself
    decoder: Network | None = None  # a network to train, together with the one in the first kernel
    learns_width: bool = False  # Is the width of the first kernel chosen by what is recovered of held-out samples?
    trim: float = 0.0  # the share of samples that are left out as outliers

    @staticmethod
    def of(
        n_components: float | Sequence[float],
        kernel: Kernel | str | Sequence[Kernel | str],
        eta: float | Sequence[float],
        *,
        center: bool | str = True,
        extension: str = "exact",
        approximation: Nystroem | None = None,
        decoder: Network | None = None,
        trim: float = 0.0,
    ) -> LevelModel:
        """Make a model from lists with one entry for each level; what is no list holds for all levels."""
        arguments: dict[str, Any] = {"n_components": n_components, "kernel": kernel, "eta": eta}
        lengths = {name: len(v) for name, v in arguments.items() if isinstance(v, list | tuple | np.ndarray)}
        if len(set(lengths.values())) > 1:
            raise ValueError(
                "n_components, kernel and eta have one entry for each level (or are no list: the same for all levels), "
                f"but there are {' and '.join(f'{length} {name}' for name, length in lengths.items())}."
            )
        depth = next(iter(lengths.values()), 1)
        if depth == 0:
            raise ValueError(f"{', '.join(lengths)}: an empty list. There must be at least one level.")
        columns = (value if name in lengths else [value] * depth for name, value in arguments.items())
        levels = [
            (_size(j, size), _checked_kernel(j, k), _eta(j, weight))
            for j, (size, k, weight) in enumerate(zip(*columns, strict=True))
        ]
        sizes, kernels, etas = zip(*levels, strict=True)
        center = center if isinstance(center, str) else bool(center)
        first = kernel[0] if "kernel" in lengths else kernel  # type: ignore[index]
        learned = isinstance(first, str) and first == "auto"
        return LevelModel(sizes, kernels, etas, center, extension, approximation, decoder, learned, float(trim))

    @property
    def centers_data(self) -> bool:
        """Are the features of the data centred?"""
        return self.center is not False

    @property
    def centers_upper(self) -> bool:
        """Are the features of hidden features centred, at all levels above the first?"""
        return self.center is True

    def check_samples(self, n: int) -> None:
        """Refuse more orthonormal columns than samples, in one level or in nonlinear levels together.

        Each of several linear levels may have N components: lemma 4.2 of Tonin et al. is about them.
        """
        for j, size in enumerate(self.sizes):
            if isinstance(size, int) and size > n:
                raise ValueError(
                    f"n_components of level {j} is {size}, but there are only {n} samples (n_samples = {n}): its "
                    "components are orthonormal vectors with one entry for each sample."
                )
        total = sum(size for size in self.sizes if isinstance(size, int))
        if total > n and not all(isinstance(kernel, Linear) for kernel in self.kernels[1:]):
            raise ValueError(
                f"n_components are {total} in all levels together, but there are only {n} samples (n_samples = {n}): "
                "nonlinear levels then fit anything. Ask for fewer components or levels, or for linear upper levels."
            )


def _size(level: int, size: float) -> int | float:
    if is_count(size):
        return int(size)
    if is_real(size) and not isinstance(size, int | np.integer) and 0.0 < size < 1.0:
        return float(size)
    raise ValueError(
        f"n_components of level {level} must be a positive integer or a share of the variance between 0 and 1; got "
        f"{size!r}."
    )


def _checked_kernel(level: int, kernel: Kernel | str) -> Kernel:
    numbers = level_kernel(level, kernel).numbers()
    if level and numbers.domain != "vectors":
        raise ValueError(
            f"The kernel of level {level}, {numbers!r}, takes data of the kind {numbers.domain!r}, but it gets hidden "
            "features, which are vectors. Only the first kernel sees the data themselves."
        )
    return numbers


def level_kernel(level: int, kernel: Kernel | str) -> Kernel:
    """A copy of a level's kernel; the words of a name above the first level stand for 1, the scale of the features."""
    kernel = "rbf" if isinstance(kernel, str) and kernel == "auto" else kernel
    copy = as_kernel(kernel).__sklearn_clone__()
    if level and isinstance(kernel, str):
        words = [name for name in copy.hyperparameters if isinstance(getattr(copy, name), str)]
        copy = copy.set_params(**dict.fromkeys(words, 1.0))
    return copy


def _eta(level: int, eta: float) -> float:
    if not is_real(eta) or not np.isfinite(eta) or eta == 0 or abs(eta) < 1.0 / np.finfo(float).max:
        raise ValueError(
            f"eta of level {level} must be a finite number other than 0, and 1/eta, which weighs the level, must "
            f"be finite, too; got {argument_repr(eta)}."
        )
    return float(eta)


# -- the energy -------------------------------------------------------------------------------------------------------
def coupling(kernel: Kernel, H: Tensor, above: Tensor, gram: Tensor | None = None) -> Tensor:
    """G_j of equation (7), for the kernel k_{j+1}, H_j and H_{j+1}, in blocks of rows."""
    if isinstance(kernel, Linear):
        return above @ (above.mT @ H)
    if isinstance(kernel, Gaussian) and gram is not None:
        return _gaussian_coupling(kernel, H, above, gram)
    G = torch.empty_like(H)
    for rows in row_blocks(len(H), TEMPORARIES * len(H) * H.element_size()):
        block = None if gram is None else gram[rows]
        G[rows] = slope(kernel, H[rows], H, above[rows] @ above.mT, block)
    return G


def _gaussian_coupling(kernel: Gaussian, H: Tensor, above: Tensor, gram: Tensor) -> Tensor:
    """The sums of ``slope`` for all points at once, by the symmetry of K ∘ H_{j+1}H_{j+1}ᵀ."""
    points = torch.cat([H, torch.ones_like(H[:, :1])], 1)
    sums = torch.zeros_like(points.mT)
    for rows in row_blocks(len(H), len(H) * H.element_size(), CACHED):
        sums.addmm_(points[rows].mT, (above[rows] @ above.mT).mul_(gram[rows]))
    return (sums[:-1].mT - sums[-1:].mT * H) / number(kernel, "lengthscale", H) ** 2


def times(gram: Tensor, V: Tensor) -> Tensor:
    """The product K V = (Vᵀ K)ᵀ, in the order that is twice as fast for few columns."""
    return (V.mT @ gram).mT


@dataclass(frozen=True)
class Stationarity:
    """A point and how far it is from solving equations (6)."""

    hidden: Hidden
    gradients: list[Tensor]  # ∇_{H_j} E
    multipliers: list[Tensor]  # Λ_j: the symmetric part of H_jᵀ ∇_j
    energies: list[float]  # Tr(H_jᵀ K_j H_j) / (2 η_j)
    totals: list[float]  # Tr M_j: the sum of all eigenvalues of level j
    variances: list[Tensor]  # H_jᵀ K_j H_j / η_j: what the components hold of their own level
    forward: Tensor  # K_1 H_1 / η_1

    @property
    def energy(self) -> float:
        """The energy of all levels."""
        return sum(self.energies)

    @property
    def residual(self) -> float:
        """The largest ‖∇_j − H_j Λ_j‖ / ‖∇_j‖ of all levels."""
        tiny = torch.finfo(self.gradients[0].dtype).tiny
        shares = []
        for H, gradient, multiplier in zip(self.hidden, self.gradients, self.multipliers, strict=True):
            scale = gradient.abs().max().clamp(min=tiny)  # Squares of huge entries would overflow.
            defect = (gradient - H @ multiplier) / scale
            shares.append((defect.norm() / (gradient / scale).norm().clamp(min=tiny)).item())
        return max(shares)

    def explained_variance(self) -> list[np.ndarray]:
        """Eigenvalues of each level over their sum; NaN where eigenvalues of both signs cancel to rounding."""
        ratios = []
        for H, multiplier, total in zip(self.hidden, self.multipliers, self.totals, strict=True):
            values = multiplier.diagonal().cpu().numpy()
            rounding = len(H) * np.finfo(values.dtype).eps * np.abs(values).sum()
            ratios.append(np.full_like(values, np.nan) if abs(total) <= rounding else values / total)
        return ratios


@dataclass
class LevelEnergy:
    """The energy of levels above one Gram matrix; it remembers the subspaces where it last found eigenvectors."""

    gram: Tensor  # K_1
    kernels: list[Kernel]  # k_2, …, k_L
    etas: Sequence[float]  # η_1, …, η_L
    center: bool = False  # Are the features of the levels above the first centred? K_1 is as it is given.
    ritz: dict[int, RitzPairs] = field(default_factory=dict)  # the last Ritz pairs of each level's field
    own: dict[int, RitzPairs] = field(default_factory=dict)  # the last Ritz pairs of K_j alone

    def __len__(self) -> int:
        return len(self.etas)

    @property
    def ascends(self) -> bool:
        """Does every level raise the energy? With a negative η a stationary point is a saddle."""
        return all(eta > 0 for eta in self.etas)

    @property
    def has_closed_form(self) -> bool:
        """Above linear kernels Tr(P_j P_{j−1}) ≤ min(s_j, s_{j−1}), which nested leading subspaces reach."""
        return len(self) > 1 and self.ascends and all(isinstance(kernel, Linear) for kernel in self.kernels)

    def gram_of(self, level: int, hidden: Hidden) -> Tensor:
        """K_j, of upper levels before they are centred; levels count from 0 here."""
        return self.gram if level == 0 else self.kernels[level - 1]._gram(hidden[level - 1], None)

    def around_mean(self, level: int, V: Tensor) -> Tensor:
        """C V at a level that is centred here, otherwise V."""
        return deviations(V) if self.center and level else V

    def times(self, level: int, gram: Tensor, V: Tensor) -> Tensor:
        """K_j V, or C K_j C V at a level that is centred: no centred Gram matrix is formed."""
        return self.around_mean(level, times(gram, self.around_mean(level, V)))

    def trace(self, level: int, gram: Tensor) -> float:
        """Tr K_j, or Tr C K_j C."""
        mean = gram.sum().item() / len(gram) if self.center and level else 0.0
        return float(gram.diagonal().sum().item()) - mean

    def at(self, hidden: Hidden, *, coupled: bool = True) -> Stationarity:
        """Energy, gradients and multipliers at a point; not ``coupled``: as if no level felt the one above."""
        return self.sweep(hidden, None, coupled=coupled)[0]

    def sweep(self, hidden: Hidden, tol: float | None, *, coupled: bool = True) -> tuple[Stationarity, Hidden]:
        """What ``swept`` gives, which a fit that was killed need not compute again."""

        def question() -> str:
            return f"levels at {digest(plain(torch.cat(hidden, 1)))} {tol} {coupled}"

        def answer() -> tuple[Stationarity, Hidden, list[tuple[int, Tensor, Tensor, float]]]:
            state, proposals = self.swept(hidden, tol, coupled=coupled)
            return state, proposals, [(j, p.vectors, p.values, p.residual) for j, p in self.ritz.items()]

        state, proposals, pairs = remembered(question, answer)
        self.ritz = {j: RitzPairs(vectors, values, residual) for j, vectors, values, residual in pairs}
        return state, proposals

    def swept(self, hidden: Hidden, tol: float | None, *, coupled: bool = True) -> tuple[Stationarity, Hidden]:
        """The state where the last level is solved, and there the leading eigenvectors of every level's field.

        They are only as accurate as a sweep deserves, and at most to ``tol``; without it nothing is solved. From the
        last level to the first, one Gram matrix beside that of the data is alive at a time.
        """
        hidden, proposals = list(hidden), list(hidden)
        gradients, energies, totals, variances = [], [], [], []
        G: Tensor | None = None
        for j in reversed(range(len(self))):
            K = self.gram_of(j, hidden)
            if tol is not None:
                H = hidden[j]
                proposals[j] = self.solve(j, self.field(j, K, H, G), H, H.shape[1], tol, SHARE)
                if G is None:
                    hidden[j] = proposals[j]
            H = hidden[j]
            own = self.times(j, K, H) / self.etas[j]
            backward = torch.zeros_like(own) if G is None else G / self.etas[j + 1]
            gradients.append(own + backward)
            variances.append(symmetric(H.mT @ own))
            energies.append(0.5 * (own * H).sum().item())
            totals.append(self.trace(j, K) / self.etas[j] + (backward * H).sum().item())
            if j and coupled:
                G = coupling(self.kernels[j - 1], hidden[j - 1], self.around_mean(j, H), K)
        gradients.reverse()
        multipliers = [symmetric(H.mT @ g) for H, g in zip(hidden, gradients, strict=True)]
        sums = energies[::-1], totals[::-1], variances[::-1]
        return Stationarity(hidden, gradients, multipliers, *sums, own), proposals

    def field(self, level: int, gram: Tensor, H: Tensor, G: Tensor | None) -> Product:
        """V ↦ sign(η_j) M_j V, M_j = K_j/η_j + (G_j H_jᵀ + H_j G_jᵀ − H_j sym(H_jᵀG_j) H_jᵀ)/η_{j+1}."""
        sign = 1.0 if self.etas[level] > 0 else -1.0
        scale = sign / self.etas[level]
        if G is None:
            return lambda V: scale * self.times(level, gram, V)
        left = (sign / self.etas[level + 1]) * G
        inner = symmetric(H.mT @ left)

        def product(V: Tensor) -> Tensor:
            inside = H.mT @ V
            return scale * self.times(level, gram, V) + left @ inside + H @ (left.mT @ V - inner @ inside)

        return product

    def solve(self, level: int, product: Product, H: Tensor, size: int, tol: float, share: float = 0.0) -> Tensor:
        """Leading eigenvectors of a field, from where the last search for this level ended.

        They have a residual of ``tol``, or the ``share`` of the first residual that is left, whichever is larger.
        """
        start = torch.cat([H, self.ritz[level].vectors[:, H.shape[1] :]], 1) if level in self.ritz else H
        self.ritz[level] = leading(product, start, size, tol=tol, share=share)
        return self.ritz[level].vectors[:, :size]

    def levelwise(self, sizes: Sequence[int | float], start: Tensor, tol: float) -> Hidden:
        """Kernel PCA of each level after the one below (Deng et al., 2019); a fraction is a share of the trace.

        Kernels with words for hyperparameters are given their numbers by the hidden features of the level below.
        """
        hidden: Hidden = []
        for j, size in enumerate(sizes):
            if j:
                self.kernels[j - 1] = self.kernels[j - 1].resolve(hidden[-1])
            K = self.gram_of(j, hidden)
            if not bool(torch.isfinite(K.abs().max() / self.etas[j])):
                what = f"{self.kernels[j - 1]!r} gives" if j else "The kernel of the data gives"
                raise ValueError(
                    f"{what} values at level {j} that overflow, or do so when divided by eta={self.etas[j]!r}. Choose "
                    "another kernel or a larger |eta|, or scale the data."
                )
            spread = (K.max() - K.min()).item()
            if j and spread <= len(K) * torch.finfo(K.dtype).eps * K.diagonal().abs().max().item():
                raise ValueError(
                    f"Level {j} has collapsed: {self.kernels[j - 1]!r} gives the same value for every pair of the "
                    f"hidden features of level {j - 1}, to rounding. Choose a kernel that depends on its input, or a "
                    "smaller lengthscale."
                )
            n = size if isinstance(size, int) else components_for(self.around_mean(j, self.around_mean(j, K).mT), size)
            columns = torch.cat([start, start.new_zeros(len(K), max(0, n - start.shape[1]))], 1)[:, :n]
            hidden.append(self.solve(j, self.field(j, K, columns, None), columns, n, tol))
        return hidden

    def nested(self, sizes: Sequence[int | float], start: Tensor) -> Hidden:
        """The closed form of linear upper levels: H_j holds the s_j leading eigenvectors of K_1."""
        hidden = self.levelwise(sizes, start, START_ACCURACY)
        counts = [H.shape[1] for H in hidden]
        # The search begins with the leading vectors: beside the guards, others would seem to have converged.
        widest = self.solve(0, self.field(0, self.gram, start, None), hidden[0], max(counts), EXACT)
        return [widest[:, :s].contiguous() for s in counts]

    def are_leading(self, state: Stationarity, *, coupled: bool = True) -> list[bool]:
        """For each level, is no other eigenvalue of sign(η_j) M_j larger than those that are kept?"""
        answers: list[bool] = []
        G: Tensor | None = None
        for j in reversed(range(len(self))):
            H, K = state.hidden[j], self.gram_of(j, state.hidden)
            sign = 1.0 if self.etas[j] > 0 else -1.0
            values = torch.linalg.eigvalsh(sign * state.multipliers[j])
            shift = values.abs().max().item() + abs(state.totals[j])
            complement = _deflated(self.field(j, K, H, G), H, shift)
            others = leading(complement, H.new_ones(len(H), 1), 1, tol=COMPARED)
            answers.append(bool(others.values[0] <= values[0] + COMPARED * values.abs().max()))
            if j and coupled:
                G = coupling(self.kernels[j - 1], state.hidden[j - 1], self.around_mean(j, H), K)
        return answers[::-1]

    def residual_objective(self, hidden: Hidden, eigenvalues: Hidden) -> Tensor:
        """Equation (9), differentiable: ½ Σ_j ‖K_j H_j / η_j + G_j / η_{j+1} − H_j Λ_j‖² with diagonal Λ_j."""
        with torch.enable_grad():
            points = [H if H.requires_grad else H.detach().requires_grad_(True) for H in hidden]
            grams = [self.gram_of(j, points) for j in range(len(points))]
            total = points[0].new_zeros(())
            for j, (H, values) in enumerate(zip(points, eigenvalues, strict=True)):
                left = self.times(j, grams[j], H) / self.etas[j]
                if j + 1 < len(points):
                    above = self.around_mean(j + 1, points[j + 1])
                    energy = 0.5 * (grams[j + 1] * (above @ above.mT)).sum()
                    left = left + torch.autograd.grad(energy, H, create_graph=True)[0] / self.etas[j + 1]
                total = total + 0.5 * (left - H * values).square().sum()
        return total

    def preconditioner(self, state: Stationarity) -> Callable[[Hidden], Hidden]:
        """The inverse of V ↦ V Λ − K_j V / η_j, the Hessian of each level without coupling.

        Coupling adds to Λ_j what its second derivative takes away where levels move together, so it is left out; but
        no gap counts for less than a part of what coupling adds.
        """
        inverses = []
        for j, H in enumerate(state.hidden):
            if j or not self.own:  # K_1 stays the same.
                product = self.field(j, self.gram_of(j, state.hidden), H, None)
                last = self.own.get(j, self.ritz.get(j))
                start = H if last is None else last.vectors
                self.own[j] = leading(product, start, H.shape[1], tol=PRECONDITIONER_ACCURACY)
            coupling_energy = state.multipliers[j].trace().item() - 2.0 * state.energies[j]
            inverses.append(_inverse_gaps(H, self.own[j], COUPLING_PART * abs(coupling_energy) / H.shape[1]))
        return lambda vectors: [inverse(V) for inverse, V in zip(inverses, vectors, strict=True)]


def _inverse_gaps(H: Tensor, pairs: RitzPairs, least: float) -> Callable[[Tensor], Tensor]:
    """Division by |λ_i − θ_a| on the Ritz vector a, and by |λ_i| outside of their span and within that of H."""
    Q, theta = pairs.vectors, pairs.values
    overlap = Q.mT @ H
    values, rotation = torch.linalg.eigh(symmetric(overlap.mT @ (theta[:, None] * overlap)))
    sizes = values.abs()
    rounding = torch.finfo(H.dtype).eps ** 0.5 * theta[0].item()
    floor = max(least, SMALLEST_GAP * max(sizes.min().item(), rounding))
    gaps, sizes = (values - theta[:, None]).abs().clamp(min=floor), sizes.clamp(min=floor)
    Q = Q - H @ (H.mT @ Q)

    def inverse(V: Tensor) -> Tensor:
        V = V @ rotation
        within = H @ (H.mT @ V)
        V = V - within
        inside = Q.mT @ V
        result = Q @ (inside / gaps - inside / sizes) + V / sizes
        return (result - H @ (H.mT @ result) + within / sizes.mean()) @ rotation.mT

    return inverse


def _deflated(product: Product, H: Tensor, shift: float) -> Product:
    """The product on the complement of H, the span of H sent to −shift."""

    def deflated(V: Tensor) -> Tensor:
        within = H @ (H.mT @ V)
        image = product(V - within)
        return image - H @ (H.mT @ image) - shift * within

    return deflated


def components_for(gram: Tensor, share: float) -> int:
    """The least number of eigenvectors that hold a share of the trace."""
    values = torch.linalg.eigvalsh(gram).flip(0)
    ratios = values.cumsum(0) / values.sum()
    return int((ratios < share * (1.0 - torch.finfo(ratios.dtype).eps * len(ratios))).sum().item()) + 1


# -- the solvers ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class LevelSearch:
    """How to search: which solver, from where, and how long."""

    solver: str  # "auto", "scf", "riemannian", "projected_gradient", "riemannian_adam" or "levelwise"
    settings: SearchSettings
    init: str | Sequence[ArrayLike] | Levels = "levelwise"  # of levels, their features of the samples
    learning_rate: float = 1e-3

    @property
    def solves_equations(self) -> bool:
        """Is the solver one of those that end at a stationary point, and not one of the paper's?"""
        return self.solver in ("auto", "scf", "riemannian")

    def tolerance(self, like: Tensor) -> float:
        """The residual where the search ends, no smaller than what the precision of the Gram matrix allows."""
        return max(self.settings.tol, LEAST_RESIDUAL * torch.finfo(like.dtype).eps)


@dataclass(frozen=True)
class LevelSolution:
    """Hidden features of all levels, and how they were found."""

    state: Stationarity
    solver: str  # the solver that found them
    converged: bool
    message: str
    n_iter: int
    history: list[HistoryEntry]
    interrupted: bool = False

    @property
    def coupled(self) -> bool:
        """Do the levels feel those above them?"""
        return self.solver != "levelwise"


def find(energy: LevelEnergy, sizes: Sequence[int | float], search: LevelSearch) -> LevelSolution:
    """Find the hidden features of all levels."""
    exact = search.solver == "levelwise" or len(energy) == 1
    widest = max([int(size) for size in sizes if isinstance(size, int)], default=1)
    # Eigenvectors are first looked for in random directions, which decide nothing.
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(len(energy.gram), widest, generator=generator, dtype=energy.gram.dtype).to(energy.gram)
    if search.solver == "auto" and energy.has_closed_form:
        state = energy.at(energy.nested(sizes, noise))
        return LevelSolution(state, "closed_form", True, "closed form", 1, [])
    start = energy.levelwise(sizes, noise, EXACT if exact else START_ACCURACY)
    if exact:
        name = "levelwise" if len(energy) > 1 else "closed_form"
        state = energy.at(start, coupled=False)
        return LevelSolution(state, name, True, "one eigenvalue energy for each level", 1, [])
    from_levelwise = isinstance(search.init, str) and search.init == "levelwise"
    assert not isinstance(search.init, Levels)  # its features have taken its place
    first = start if from_levelwise else initial(search.init, start, search.settings.seed)
    _check_range(energy)
    settings = search.settings
    with Monitor(
        settings.callback, settings.verbose, settings.max_iter, "deep kernel PCA", settings.deadline
    ) as monitor:
        solution = _search(energy, first, search, monitor)
        again = search.solves_equations and first is not start and energy.ascends and not solution.interrupted
        if again and solution.state.energy < energy.at(start).energy:
            solution = _search(energy, start, search, monitor)
    if not search.solves_equations:
        return solution
    return _with_exact_last_level(energy, solution, search.tolerance(energy.gram))


def _with_exact_last_level(energy: LevelEnergy, solution: LevelSolution, tol: float) -> LevelSolution:
    """The last level solved exactly where it has components of little variance.

    A residual is relative to its level: beside it, such a component may be wrong by λ_1/λ_s as much, and so would be
    its extension to new samples.
    """
    hidden, state = list(solution.state.hidden), solution.state
    values = state.multipliers[-1].diagonal().abs()
    if not state.residual * values.max() > EXTENDED * values.min():
        return solution
    last, H = len(hidden) - 1, hidden[-1]
    product = energy.field(last, energy.gram_of(last, hidden), H, None)
    hidden[-1] = energy.solve(last, product, H, H.shape[1], EXACT)
    state = energy.at(hidden)
    # Another solution than the one that was found would not be stationary with the levels below.
    return replace(solution, state=state) if state.residual <= max(tol, solution.state.residual) else solution


def _check_range(energy: LevelEnergy) -> None:
    """A search multiplies squares of eigenvalues: they must leave room for that."""
    limit = torch.finfo(energy.gram.dtype).max ** 0.25
    for j, pairs in energy.ritz.items():
        largest = pairs.values.abs().max().item()
        if not largest < limit:
            raise ValueError(
                f"Level {j} has eigenvalues up to {largest:.1e} (divided by eta={energy.etas[j]!r}), too large for a "
                "search. Choose a larger |eta| or another kernel, or scale the data."
            )


def initial(init: str | Sequence[ArrayLike], like: Hidden, seed: int) -> Hidden:
    """Orthonormal columns where a search starts: random ones, or those of a user's arrays."""
    generator = torch.Generator().manual_seed(seed)
    if isinstance(init, str):
        return [orthonormal(torch.randn(H.shape, generator=generator, dtype=H.dtype).to(H)) for H in like]
    if len(init) != len(like):
        raise ValueError(f"init must have one array for each level, {len(like)}; got {len(init)}.")
    return [orthonormal(_independent(j, columns, H)) for j, (columns, H) in enumerate(zip(init, like, strict=True))]


def _independent(level: int, columns: ArrayLike, like: Tensor) -> Tensor:
    """A user's start of one level as a tensor, checked to have independent columns."""
    try:
        start = torch.as_tensor(columns).to(like)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"init of level {level} must be an array of numbers: {error}") from error
    if start.shape != like.shape:
        raise ValueError(
            f"init of level {level} must have one row for each sample and one column for each component, "
            f"{tuple(like.shape)}; got shape {tuple(start.shape)}."
        )
    if not bool(torch.isfinite(start).all()):
        raise ValueError(f"init of level {level} must not hold NaN or infinite numbers.")
    start = start / start.abs().max().clamp(min=torch.finfo(start.dtype).tiny)
    rank = int(torch.linalg.matrix_rank(start).item())
    if rank < start.shape[1]:
        raise ValueError(f"init of level {level} has {start.shape[1]} columns, but only rank {rank}.")
    return start


def _search(energy: LevelEnergy, start: Hidden, search: LevelSearch, monitor: Monitor) -> LevelSolution:
    """Search from one start, by self-consistent fields and then by Newton's method unless a solver is named."""
    limits = SearchLimits(search.tolerance(energy.gram), search.settings.max_iter, monitor)
    runs: dict[str, ManifoldResult[Stationarity]] = {}
    if search.solver == "projected_gradient":
        states = projected_steps(energy.residual_objective, energy.at, start, limits.tol)
        runs[search.solver] = follow(states, limits, is_later)
    elif search.solver == "riemannian_adam":
        states = adam_steps(energy.residual_objective, energy.at, start, search.learning_rate)
        runs[search.solver] = follow(states, limits, is_closer)
    elif search.solver != "riemannian":
        states = sweeps(energy.sweep, start, limits.tol, ascending=energy.ascends)
        runs["scf"] = follow(states, limits, is_no_lower if energy.ascends else is_closer)
        start = runs["scf"].state.hidden
    if search.solves_equations and not any(run.converged or run.interrupted for run in runs.values()):
        if energy.ascends:
            states, is_better = ascent(energy.at, start, energy.preconditioner, limits.tol), is_later
        else:
            states, is_better = newton_steps(energy.at, start, energy.preconditioner), is_closer
        try:
            runs["riemannian"] = follow(states, limits, is_better)
        except KeyboardInterrupt:  # before its first state, which is where the sweeps have ended
            if not runs:
                raise
            runs["scf"] = replace(runs["scf"], interrupted=True)
    solver = list(runs)[-1]
    if not energy.ascends:  # No energy says which of two points is better, only the residual.
        solver = min(reversed(runs), key=lambda name: runs[name].state.residual)
    state = runs[solver].state
    return LevelSolution(
        state,
        solver,
        runs[solver].converged or state.residual <= UNRESOLVED * torch.finfo(energy.gram.dtype).eps,
        "; ".join(f"{name}: {run.message}" for name, run in runs.items()),
        sum(run.n_iter for run in runs.values()),
        monitor.history,
        any(run.interrupted for run in runs.values()),
    )


# -- order and signs --------------------------------------------------------------------------------------------------
def canonical(energy: LevelEnergy, solution: LevelSolution) -> LevelSolution:
    """The same solution with diagonal Λ_j, leading components first, and in each column the largest entry positive.

    A kernel above that does not see a rotation or a sign allows it; another one (ARD, ℓ₁ distances) keeps its columns.
    """
    hidden = list(solution.state.hidden)
    for j, H in enumerate(hidden):
        above = energy.kernels[j] if j < len(energy.kernels) else None
        sign = 1.0 if energy.etas[j] > 0 else -1.0
        rotated = _diagonal(H, sign * solution.state.multipliers[j])
        candidates = (_with_positive_peaks(rotated), rotated, _with_positive_peaks(H))
        hidden[j] = next((columns for columns in candidates if _is_unseen(above, H, columns)), H).contiguous()
    return replace(solution, state=energy.at(hidden, coupled=solution.coupled))


def _diagonal(H: Tensor, multiplier: Tensor) -> Tensor:
    """Columns with diagonal Λ, largest first; as they are where they have that to rounding.

    Equal eigenvalues, as of a linear level above a linear one, leave columns in the order in which they were found.
    """
    rounding = len(H) * torch.finfo(H.dtype).eps * multiplier.abs().max()
    values = multiplier.diagonal()
    if bool(((multiplier - values.diag()).abs() <= rounding).all() and (values.diff() <= rounding).all()):
        return H
    return H @ torch.linalg.eigh(multiplier).eigenvectors.flip(1)


def _with_positive_peaks(H: Tensor) -> Tensor:
    """The columns with the signs that make the largest entry of each positive."""
    peaks = H.gather(0, H.abs().argmax(0, keepdim=True)).sign()
    return H * torch.where(peaks == 0, 1.0, peaks)


def _is_unseen(kernel: Kernel | None, before: Tensor, after: Tensor) -> bool:
    """Is the kernel of the next level the same for the new columns?"""
    if kernel is None:
        return True
    for rows in (slice(0, 200), slice(-200, None)):
        old, new = kernel._gram(before[rows], before), kernel._gram(after[rows], after)
        if (old - new).abs().max() > torch.finfo(old.dtype).eps ** 0.75 * old.abs().max():
            return False
    return True


# -- encoder and decoder networks around the first level (section 3.3) -------------------------------------------------
@dataclass(frozen=True)
class TrainedNetworks:
    """Networks with learned weights, and how the training went."""

    kernel: Kernel
    decoder: torch.nn.Module
    result: OptimizeResult


def train(model: LevelModel, decoder: Network, X: Data, search: LevelSearch, device: str | None) -> TrainedNetworks:
    """Train the network in the first kernel and the decoder, for components of all levels."""
    first = model.kernels[0]
    if not (isinstance(first, Mapped) and isinstance(first.kernel, Linear)):
        raise ValueError(
            f"preimage=Network(…) goes from features back to data: the first kernel must be Neural(module, Linear()), "
            f"or Pullback(Linear(), function); got {first!r}."
        )
    decoder, first = decoder.__sklearn_clone__(), first.__sklearn_clone__()
    modules = [decoder.module, *([first.module] if hasattr(first, "module") else [])]
    weights = [weight for module in modules for weight in module.parameters()]
    dtype = weights[0].dtype if weights else torch.float32
    samples = torch.as_tensor(np.asarray(X), dtype=dtype, device=device)
    for module in modules:
        module.to(samples)
    settings = search.settings
    quiet = replace(
        search,
        settings=replace(settings, tol=max(settings.tol, TRAINING_ACCURACY), verbose=0, callback=keep_going),
    )
    last: Hidden | str = "levelwise"

    def components(features: Tensor) -> Tensor:
        nonlocal last
        features = features.to(torch.float64)
        energy = LevelEnergy(features @ features.mT, list(model.kernels[1:]), model.etas, model.centers_upper)
        size = model.sizes[0]
        if (len(energy) == 1 or energy.has_closed_form) and isinstance(size, int):
            # The thin decomposition is far cheaper than the N × N problem.
            return torch.linalg.svd(features, full_matrices=False).U[:, :size]
        last = find(energy, model.sizes, replace(quiet, init=last)).state.hidden
        return last[0]

    return Alternation(first, decoder, samples, components, eta=model.etas[0], center=model.centers_data).run(settings)


class Alternation:
    """Equation (11): residuals of the levels plus γ times the error of reconstructions, minimised by turns.

    At the beginning of a pass over the data the components are solved for, exactly: H_1, and the directions
    W = ΦᵀH_1/η_1 of the first level, for the features Φ as they are. During the pass both are fixed, and of all
    residuals (9) only that of the first level depends on the networks. As it was zero, it is how far features have
    moved along the directions, (φ(x) − φ_before(x)) W. Data are reconstructed from what the components keep of φ(x),
    its projection on the span of W: that is what the decoder will be given. ``components`` maps features, centred or
    not, to H_1.
    """

    def __init__(
        self,
        kernel: Mapped,
        decoder: Network,
        X: Tensor,
        components: Callable[[Tensor], Tensor],
        *,
        eta: float,
        center: bool,
    ):
        self.kernel, self.decoder, self.X, self.components = kernel, decoder, X, components
        self.eta, self.center = eta, center
        values = kernel.hyperparameter_values()
        encoder = {name: values[name] for name in kernel.free()}
        back = {name: w.detach() for name, w in decoder.module.named_parameters() if w.requires_grad}
        self.packings = [packing(weights, dict.fromkeys(weights, Real())) for weights in (encoder, back)]
        vectors = (pack.pack(weights) for pack, weights in zip(self.packings, (encoder, back), strict=True))
        self.start = torch.cat([vector.to(X) for vector in vectors])
        self.seen = 0  # the number of samples of the pass under way
        self.features = self.directions = self.basis = self.mean = X.new_empty(0, 0)

    def weights(self, point: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The weights of the encoder and those of the decoder, out of one vector."""
        encoder, decoder = point.split([pack.size for pack in self.packings])
        return self.packings[0].unpack(encoder), self.packings[1].unpack(decoder)

    def encoder(self, weights: dict[str, Tensor]) -> Mapped:
        """The first kernel with these weights, and with statistics of all samples, if its network keeps some."""
        kernel = self.kernel.replace(weights)
        return with_statistics(kernel, self._features) if has_statistics(kernel) else kernel

    def _features(self, kernel: Mapped) -> Tensor:
        """φ of all samples."""
        blocks = row_blocks(len(self.X), 8 * self.X[0].numel() * 64)
        return torch.cat([kernel._image(self.X[rows]) for rows in blocks])

    def decode(self, weights: dict[str, Tensor], features: Tensor, training: Training) -> Tensor:
        """The data ψ that the decoder makes of what the components keep of centred features."""
        kept = (features @ self.basis) @ self.basis.mT + self.mean
        try:
            images = training.output(self.decoder.module, weights, kept.to(self.start))
        except (RuntimeError, ValueError) as error:
            raise ValueError(f"The decoder does not take features of shape {tuple(features.shape)}: {error}") from error
        expected = (len(features), *self.X.shape[1:])
        if images.numel() != math.prod(expected):
            raise ValueError(f"The decoder gave {tuple(images.shape)}; data of shape {expected} are expected.")
        return images.reshape(expected)

    @torch.no_grad()
    def begin(self, point: Tensor) -> None:
        """Solve for the components of the features as they are."""
        features = self._features(self.encoder(self.weights(point)[0]))
        self.mean = features.mean(0) if self.center else torch.zeros_like(features[0])
        self.features = features - self.mean
        self.directions = self.features.mT @ self.components(self.features).to(features) / self.eta
        left, size, _ = torch.linalg.svd(self.directions, full_matrices=False)
        self.basis = left[:, size > size.max() * len(left) * torch.finfo(size.dtype).eps]

    def loss(self, point: Tensor, rows: Tensor) -> Tensor:
        """The mean of the objective over a batch."""
        encoder, decoder = self.weights(point)
        X, seed = self.X[rows], int(digest(plain(point)), 16)
        features = in_training(self.kernel.replace(encoder), seed)._image(X) - self.mean
        residual = (features - self.features[rows]) @ self.directions
        error = (self.decode(decoder, features, Training(seed)) - X).flatten(1)
        return 0.5 * residual.square().sum(1).mean() + self.decoder.weight * error.square().sum(1).mean()

    def __call__(self, point: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Value and gradient on a batch; the first batch of a pass begins it."""
        if self.seen == 0:
            self.begin(point)
        self.seen = (self.seen + len(rows)) % len(self.X)
        loss = with_gradient(self.loss)
        return remembered(lambda: f"networks at {digest(plain(point))}", lambda: loss(point, rows))

    def run(self, settings: SearchSettings) -> TrainedNetworks:
        """Train, and keep the best pass."""
        result = adam(
            self,
            self.start,
            n_samples=len(self.X),
            batch_size=min(self.decoder.batch_size, len(self.X)),
            learning_rate=self.decoder.learning_rate,
            max_iter=self.decoder.max_iter,
            random_state=settings.seed,
            callback=settings.callback,
            verbose=settings.verbose,
            description="encoder and decoder",
            deadline=settings.deadline,
        )
        encoder, decoder = self.weights(result.point)
        module, settled = self.decoder.module, Training(None)
        with torch.no_grad():
            if any(True for _ in module.buffers()):
                self.begin(result.point)
                self.decode(decoder, self.features, settled)
            for name, own in (*module.named_parameters(), *module.named_buffers()):
                if name in (values := decoder | settled.statistics):
                    own.copy_(values[name])
        return TrainedNetworks(self.encoder(encoder).numbers(), module.eval(), result)


# -- widths -----------------------------------------------------------------------------------------------------------
# Multiples of the median distance that are tried for the width of the first kernel, and folds that judge them.
WIDTHS, WIDTH_FOLDS = (0.5, 1.0, 2.0, 4.0), 3
# Powers of the first kernel that are tried for a smoother.
SHARPNESS = tuple(2.0**k for k in range(-4, 17))


def narrowest(errors: dict[float, Tensor]) -> float:
    """The least width whose errors (n,) are, in the mean, within a standard error of those of the best one."""
    best = min(errors.values(), key=lambda error: float(error.mean()))
    for width in sorted(errors):
        difference = errors[width] - best
        if difference.mean() <= difference.std() / len(difference) ** 0.5:
            return width
    raise AssertionError("the best width is as good as itself")


def best_sharpness(level: DataLevel, hidden: Tensor) -> float:
    """The power of the first kernel with which the smoother is nearest to hidden features (N, S) that it leaves out."""
    numbers = torch.from_numpy(limits.evenly_spaced(len(hidden), limits.SMOOTHER_ROWS))
    rows = level.rows(take(level.loaded.anchors, numbers)).clamp(min=0.0)
    rows[torch.arange(len(numbers)), numbers] = 0.0
    near = rows.amax(1) > 0  # The others have no neighbour to be smoothed from.
    rows, truth = rows[near], hidden[numbers][near]
    if not len(rows):
        return 1.0
    return min(SHARPNESS, key=lambda power: float((smoothed(rows, hidden, power) - truth).square().sum()))


# -- outliers ---------------------------------------------------------------------------------------------------------
def least_trimmed(gram: Tensor, kept: int, size: int | float, *, center: bool) -> Tensor:
    """The ``kept`` samples that kernel PCA describes best: min over S and P of Σ_{n∈S} ‖(I − P)(φ(x_n) − m_S)‖².

    P projects on ``size`` components (or as many as hold that share of the variance), and m_S is the mean of S, or 0 if
    features are not centred. Concentration steps find a local minimum (Rousseeuw and Van Driessen, 2006): components of
    S, and then the samples nearest to them. They start from samples that are near most others, and from all samples.
    """
    diagonal = gram.diagonal()
    order = (diagonal + (diagonal - 2.0 * gram).median(1).values).argsort(stable=True)
    typical = order[:kept]
    if not isinstance(size, int):
        within = gram[typical[:, None], typical]
        size = components_for(deviations(deviations(within).mT) if center else within, size)
    size = min(size, kept)
    ends = [_concentrated(gram, start, order, kept, size, center) for start in (typical, order)]
    return min(ends, key=lambda end: end[0])[1]


def _concentrated(
    gram: Tensor, start: Tensor, order: Tensor, kept: int, size: int, center: bool
) -> tuple[float, Tensor]:
    """Where concentration steps end, and the sum of squared distances there; the first in ``order`` win draws."""
    rows, value = start.sort().values, math.inf
    while True:
        distances, nearest = squared_distances(gram, rows, size, center=center)[order].sort(stable=True)
        lower = distances[:kept].sum().item()
        if not lower < value:  # No step raises it, but for rounding.
            return value, rows
        rows, value = order[nearest[:kept]].sort().values, lower


def squared_distances(gram: Tensor, rows: Tensor, size: int, *, center: bool) -> Tensor:
    """‖(I − P)(φ(x) − m)‖² of all samples, where P and m are the components and the mean of some ``rows``."""
    columns, norms, precision = gram[:, rows], gram.diagonal(), torch.finfo(gram.dtype).eps
    rounding = precision**0.75 * (norms + norms[rows].max())  # An outlier's own is no measure of the others'.
    if center:
        means = columns.mean(1)
        mean = means[rows].mean()
        columns, norms = columns - means[:, None] - means[rows] + mean, norms - 2.0 * means + mean
    within, generator = columns[rows], torch.Generator().manual_seed(0)
    noise = torch.randn(len(rows), size, generator=generator, dtype=gram.dtype).to(gram)
    pairs = leading(lambda V: times(within, V), noise, size, tol=START_ACCURACY)
    vectors, values = pairs.vectors[:, :size], pairs.values[:size]
    varies = values > precision**0.5 * values.max()
    left = norms - ((columns @ vectors[:, varies]).square() / values[varies]).sum(1)
    return torch.where(left > rounding, left, 0.0)


# -- the problem ------------------------------------------------------------------------------------------------------
class LevelsProblem(Problem):
    """Deep kernel PCA of samples, in memory or on Dask: a search over hidden features, which make a function.

    Which samples stand for all, whether a network is trained first, and what the Gram matrix of the data is, is decided
    here: beyond it, exact fits, those to landmarks and those with networks are the same.

    Parameters
    ----------
    samples : Samples
        With inputs as users pass them, checked.
    model : LevelModel
    search : LevelSearch
        How hidden features are found and networks are trained.
    representation : Representation
    """

    model: LevelModel

    def __init__(self, samples: Samples, model: LevelModel, search: LevelSearch, representation: Representation):
        super().__init__(samples, model, representation, seed=search.settings.seed)
        self.search = search

    @cached_property
    def subset(self) -> np.ndarray:
        """The numbers of the samples that are fitted to, chosen by a look at some of them."""
        kernel = self.model.kernels[0]
        chosen = self.scope.subset(self.samples, kernel, lambda X: self._represented(X).inputs(kernel, X), self.seed)
        rows = self._typical(chosen)
        if len(rows) < 2:
            n = self.samples.n
            raise ValueError(
                f"Found {n} sample (n_samples = {n}): components need at least 2."
                if n < 2
                else f"Components need at least 2 samples that differ, and of {n} samples {len(rows)} is left: to the "
                "kernel the others are equal to it, or approximation= or trim= leave them out. Check X, take more "
                "landmarks, or trim fewer samples."
            )
        self.model.check_samples(len(rows))
        return rows

    def _typical(self, rows: np.ndarray) -> np.ndarray:
        """The numbers of samples without those of the outliers among them, if some are to be left out."""
        model, outliers = self.model, round(self.model.trim * len(rows))
        if not outliers:
            return rows
        if self.pairwise:
            raise ValueError(
                "trim= fits to some of the samples, and a precomputed Gram matrix has a column for each of them. Pass "
                "the kernel and the data, or the Gram matrix without the outliers and trim=0."
            )
        X = plain(self.samples.rows(rows).X)
        with silent_repairs():  # The fit will speak of a repair.
            gram = DataLevel.of(model.kernels[0], X, self._represented(X), center=False)[1]
        return rows[plain(least_trimmed(gram, len(rows) - outliers, model.sizes[0], center=model.centers_data))]

    @cached_property
    def anchors(self) -> Data:
        """The samples that are fitted to."""
        return plain(self.samples.rows(self.subset).X)

    @cached_property
    def networks(self) -> TrainedNetworks | None:
        """The trained networks, if there is a decoder to train."""
        model = self.model
        if model.decoder is None:
            return None
        return train(model, model.decoder, self.anchors, self.search, self.representation.device)

    @cached_property
    def _data(self) -> tuple[DataLevel, Tensor]:
        kernel = self.model.kernels[0] if self.networks is None else self.networks.kernel
        how, weighs = self._represented(self.anchors), self.model.extension == "smoother"
        return DataLevel.of(kernel, self.anchors, how, center=self.model.centers_data, weighs=weighs)

    @cached_property
    def energy(self) -> LevelEnergy:
        """The energy that is made stationary."""
        model, (level, gram) = self.model, self._data
        etas = (model.etas[0] / level.unit, *model.etas[1:])
        return LevelEnergy(gram, list(model.kernels[1:]), etas, model.centers_upper)

    @cached_property
    def weighed(self) -> LevelEnergy:
        """The energy that is searched, whose levels do not outweigh each other by more than numbers can tell."""
        etas = weighed(self.model.etas, self._data[0].unit, self.energy.gram.dtype)
        return self.energy if etas == self.energy.etas else replace(self.energy, etas=etas, ritz={}, own={})

    def _represented(self, X: Data) -> Representation:
        return replace(self.representation, sparse=hasattr(X, "toarray"))

    @property
    def free(self) -> list[str]:
        """What the search moves: the hidden features of each level. Words in kernels are decided by the data."""
        return [f"hidden__{j}" for j in range(len(self.model.sizes))]

    def value_and_gradient(self, points: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Minus the energy (b,) and its gradient (b, m) at hidden features, row after row and level after level.

        All levels have numbers of components here, and all kernels have numbers.
        """
        energy = self.energy
        if rows is not None:
            energy = LevelEnergy(energy.gram[rows[:, None], rows], energy.kernels, energy.etas, energy.center)
        n, sizes = len(energy.gram), [int(size) for size in self.model.sizes]
        states = [energy.at([H.reshape(n, -1) for H in point.split([n * size for size in sizes])]) for point in points]
        values = points.new_tensor([-state.energy for state in states])
        return values, torch.stack([-torch.cat([g.flatten() for g in state.gradients]) for state in states])

    def settled(self) -> LevelsProblem:
        """The problem with a number for the width of the first kernel, if that is to be learned.

        It is the narrowest of some multiples of the median distance by which kernel PCA of one level after the other
        recovers samples of other folds as well as by the best one, within a standard error of the difference: wide
        kernels see a straight line, of which linear components recover most.
        """
        model, search = self.model, self.search
        if not model.learns_width:
            return self
        rows = self._typical(self.samples.random_rows(limits.WIDTH_ROWS, 0))  # A fit to all samples has no seed.
        X = plain(self.samples.rows(rows).X)
        median = model.kernels[0].resolve(self._represented(X).inputs(model.kernels[0], X))
        length = number(median, "lengthscale", self.representation.tensor(np.zeros(1))).item()
        unit = 2.0 ** math.floor(math.log2(length))  # In it, errors of held-out samples have squares in range.
        X = X / unit
        candidates = {width: (Gaussian(width * length / unit), *model.kernels[1:]) for width in WIDTHS}
        model = replace(model, learns_width=False)
        counts = sum(size for size in model.sizes if isinstance(size, int))
        if len(rows) * (WIDTH_FOLDS - 1) // WIDTH_FOLDS <= max(counts, WIDTH_FOLDS):  # too few to hold some of them out
            return LevelsProblem(self.samples, model, search, self.representation)
        parts = np.array_split(np.random.default_rng(0).permutation(len(rows)), WIDTH_FOLDS)
        folds = [(np.concatenate([*parts[:i], *parts[i + 1 :]]), part) for i, part in enumerate(parts)]
        few = InMemory(Block(X, torch.zeros(len(rows), 0)))
        quiet = replace(search, solver="levelwise", settings=replace(search.settings, verbose=0, callback=keep_going))
        errors = {}
        for width, kernels in candidates.items():
            levelwise = replace(model, kernels=kernels, approximation=None, decoder=None, trim=0.0)
            refits = LevelsProblem(few, levelwise, quiet, self.representation).held_out(folds, quiet.settings)
            errors[width] = torch.cat([recovery.errors for recovery in refits])
        kernels = (Gaussian(narrowest(errors) * length), *model.kernels[1:])
        return LevelsProblem(self.samples, replace(model, kernels=kernels), search, self.representation)

    def choose(self, settings: SearchSettings | None = None) -> LevelSolution:
        """The hidden features that a search finds, with settings of its own or with those of the problem."""
        search = self.search if settings is None else replace(self.search, settings=settings)
        if isinstance(search.init, Levels):
            search = replace(search, init=self._features_of(search.init))
        with recycling():  # Every step makes the Gram matrices of the upper levels anew.
            solution = canonical(self.weighed, find(self.weighed, self.model.sizes, search))
            return solution if self.weighed is self.energy else self._checked(solution, search)

    def _checked(self, solution: LevelSolution, search: LevelSearch) -> LevelSolution:
        """The solution of levels that outweigh each other, which has to solve the equations as they are."""
        state = self.stated(solution)
        times = max(1.0, state.energy / solution.state.energy) if solution.state.energy else 1.0
        history = [entry._replace(value=entry.value * times) for entry in solution.history]
        exact = not solution.coupled or state.residual <= max(search.tolerance(state.forward), solution.state.residual)
        if not (exact or not solution.converged):
            message = "its levels outweigh each other by more than numbers can tell"
            return replace(solution, history=history, converged=False, message=message)
        return replace(solution, history=history)

    def stated(self, choice: LevelSolution) -> Stationarity:
        """The state of a choice with the weights as they are given."""
        if self.weighed is self.energy:
            return choice.state
        return self.energy.at(choice.state.hidden, coupled=choice.coupled)

    def _features_of(self, last: Levels) -> list[np.ndarray]:
        """The hidden features of the samples by levels that were found before; their own, where these are the same."""
        sizes, kernels = last.sizes, len(self.model.kernels)
        own = [size if isinstance(size, int) else found for size, found in zip(self.model.sizes, sizes, strict=False)]
        if len(sizes) != kernels or own != sizes:
            raise ValueError(
                f"warm_start=True goes on from the last fit, whose levels have {sizes} components, and these have "
                f"{list(self.model.sizes)}. Fit with warm_start=False to begin anew."
            )
        if same(last.data.anchors, self.anchors):
            return list(last.hidden)
        before, now = (getattr(X, "shape", (0, 0))[1] for X in (last.data.anchors, self.anchors))
        if before != now:
            raise ValueError(
                f"warm_start=True goes on from the last fit, whose data had {before} columns, and these have {now}. "
                "Fit with warm_start=False to begin anew."
            )
        features = plain(last(self.anchors))
        return [np.ascontiguousarray(features[:, last.columns(level)]) for level in range(len(sizes))]

    def solve(self, choice: LevelSolution) -> Levels:
        """The function whose values at the samples are the hidden features."""
        state, level = choice.state, self._data[0]
        lists = (state.hidden, state.multipliers, state.variances)
        hidden, multipliers, variances = (tuple(plain(a, copy=True) for a in tensors) for tensors in lists)
        smooth = self.model.extension == "smoother"
        return Levels(
            level,
            tuple(self.energy.kernels),
            self.model.etas,
            hidden,
            multipliers,
            variances,
            plain(state.forward, copy=True),
            coupled=choice.coupled,
            extension=self.model.extension,
            center=self.model.centers_upper,
            sharpness=best_sharpness(level, torch.cat(state.hidden, 1)) if smooth else 1.0,
        )

    # -- refits -------------------------------------------------------------------------------------------------------
    @property
    def pairwise(self) -> bool:
        """Are the inputs a Gram matrix, whose columns are samples, too?"""
        return self.model.kernels[0].domain == "gram"

    def with_samples(self, samples: Samples, inputs: Data, rows: np.ndarray) -> LevelsProblem:
        """The same problem for samples that are these rows of its own, from levelwise kernel PCA if not from a word."""
        init = self.search.init if isinstance(self.search.init, str) else "levelwise"
        return LevelsProblem(samples, self.model, replace(self.search, init=init), self.representation)

    def answer(self, solution: Levels, X: Data) -> Recovery:
        """How well new samples are recovered from their hidden features."""
        return solution.recovery(X)


class Architecture(NamedTuple):
    """Numbers of components, what they explain, and why there are no more levels."""

    n_components: list[int]
    explained_variance_ratio: list[np.ndarray]
    reason: str


class FittedLevels(NamedTuple):
    """What levels that were fitted together explain, and their hidden features."""

    ratios: list[np.ndarray]
    hidden: list[np.ndarray]

    @property
    def sizes(self) -> list[int]:
        """The number of components of each level."""
        return [H.shape[1] for H in self.hidden]


Fit = Callable[[list[float]], FittedLevels]  # of the numbers of components, or shares of the variance


def suggested(fit: Fit, variance: float, max_levels: int, min_gain: float, *, center: bool | str) -> Architecture:
    """Add levels until the last one holds a share of its variance in its first component, or gains too little."""
    levels, reason = fit([variance]), f"max_levels={max_levels}"
    while len(levels.sizes) < max_levels:
        before = levels.ratios[-1][0]
        deeper = _adjusted(fit, fit([*levels.sizes, variance]), variance, min_gain, center)
        first = deeper.ratios[-1][0]
        if first < before + min_gain:
            reason = f"the first component of one more level holds {first:.1%}, that of the last {before:.1%}"
            break
        levels = deeper
        if first >= variance:
            reason = f"the first component of the last level holds {first:.1%} of its variance"
            break
    return Architecture(levels.sizes, levels.ratios, reason)


def _adjusted(fit: Fit, levels: FittedLevels, variance: float, min_gain: float, center: bool | str) -> FittedLevels:
    """Fit with the components that the levels need together: those that hold the share, and vary.

    A level that holds less than its share (negative η take from the levels below) gets one component more, as long as
    that adds ``min_gain``; a level that has grown does not shrink again.
    """
    least = [1] * len(levels.hidden)
    held = [0.0] * len(least)  # the variance of each level when it last grew
    while True:
        needed = []
        for j, (ratios, H) in enumerate(zip(*levels, strict=True)):
            centered = center if isinstance(center, bool) else j == 0
            varying = ratios[~is_constant(H)] if centered else ratios
            enough = int((varying.cumsum() < variance).sum()) + 1
            if enough > len(varying):
                room = len(varying) == len(ratios) and sum(levels.sizes) < len(H)
                grows = room and varying.sum() >= held[j] + min_gain
                enough = max(1, len(varying) + int(grows))
                if grows:
                    least[j], held[j] = enough, float(varying.sum())
            needed.append(max(enough, least[j]))
        if needed == levels.sizes:
            return levels
        levels = fit(list(needed))
