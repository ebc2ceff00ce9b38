"""Features from landmarks, few points whose kernel functions span the space, and the choice of landmarks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from scipy import sparse
from scipy.linalg import qr
from torch import Tensor

from representer.approximation.base import Approximation, FeatureMap, check_bare
from representer.kernels import Kernel, Scaled, Stationary
from representer.linalg import (
    NOT_FINITE,
    Cholesky,
    NotPositiveDefiniteError,
    eigh,
    factorize,
    is_finite,
    nonzero_svd,
    pivoted_cholesky,
    power_of_two,
    repair_gram,
    row_blocks,
    shifted,
)
from representer.samples import Data, count, same_features, sample_rows, take
from representer.values import COUNT, Rule, Value, is_count, is_real, number

# A choice that visits every candidate for each landmark gets this many random candidates, or this many per landmark:
# more would cost as much as the fit, and would need all data in one place.
CANDIDATES, CANDIDATES_PER_LANDMARK = 20_000, 4
LLOYD_STEPS = 10
# A vector depends on others if what they leave of it is less than so many roundings for each coordinate.
DEPENDENT = 4.0


def candidate_rows(n: int, m: int, seed: int) -> np.ndarray:
    """The rows that are candidates for m landmarks, where a choice visits every candidate for each landmark."""
    return sample_rows(n, max(CANDIDATES, CANDIDATES_PER_LANDMARK * m), seed)


def pivots(kernel: Kernel, X: Data, m: int) -> Tensor:
    """The pivots of a pivoted Cholesky factorisation: m rows, each where the kernel is approximated worst so far.

    They are fewer than m if the rank of the Gram matrix is less. Of at most m explicit features, that is their own.
    """
    size = kernel.n_features(X) if kernel.domain == "vectors" and isinstance(X, Tensor) else None
    explicit = None if size is None or size > m else explicit_features(kernel, X)
    if explicit is not None and is_finite(explicit) and bool((explicit != 0).any()):
        return independent_rows(explicit)[:m]

    def column(index: int) -> Tensor:
        return kernel._gram(X, X[index : index + 1])[:, 0]

    rows = pivoted_cholesky(column, diagonal=kernel._diag(X), max_rank=m)[1]
    if not len(rows):
        raise ValueError(
            f"{kernel!r} is zero for all samples: no sample can be a landmark. Check and scale the data, add a "
            "constant (kernel + 1.0), or choose another kernel."
        )
    return rows


def entropy_sample(kernel: Kernel, X: Data, m: int, seed: int) -> Tensor:
    """m rows, each with the least Σ_z k(x, z) over the rows z before it, so that −log mean k(z, z') stays large.

    Examples
    --------
    >>> import torch
    >>> from representer.approximation.landmarks import entropy_sample
    >>> from representer.kernels import Gaussian
    >>> X = torch.tensor([[0.0], [0.1], [0.2], [5.0]])
    >>> 3 in entropy_sample(Gaussian(1.0), X, 2, seed=0).tolist()
    True
    """
    landmarks = [int(sample_rows(count(X), 1, seed)[0])]
    sums = kernel._diag(X).clone()
    for _ in range(m - 1):
        sums = sums + 2.0 * kernel._gram(X, take(X, torch.tensor(landmarks[-1:])))[:, 0]
        sums[landmarks[-1]] = torch.inf
        landmarks.append(int(sums.argmin()))
    return torch.tensor(landmarks).sort().values


# -- ridge leverage scores -------------------------------------------------------------------------------------------
def leverage_sample(kernel: Kernel, X: Data, m: int, seed: int) -> Tensor:
    """m rows drawn by recursive ridge leverage scores (Musco & Musco, 2017), in O(n m²) and without an n × n matrix.

    The scores [K(K + λI)⁻¹]_ii of a random half of the rows are estimated from rows drawn from a half of that half,
    and so on down to m rows; λ is chosen so that m rows suffice.
    """
    n = count(X)
    if m >= n:
        return torch.arange(n)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(n, generator=generator)
    oversampling = max(1.0, math.log(m))
    rank = max(1, math.ceil(m / (4.0 * oversampling)))
    sizes = [n]
    while sizes[-1] > m:
        sizes.append(-(-sizes[-1] // 2))
    sample, weights = torch.arange(sizes[-1]), torch.ones(sizes[-1], dtype=torch.float64)
    for size in sizes[-2:0:-1]:
        scores = _leverage(kernel, X, order[:size], order[sample], weights, rank)
        probabilities = (oversampling * scores).clamp(max=1.0)
        is_drawn = torch.rand(size, generator=generator, dtype=torch.float64) < probabilities
        sample = is_drawn.nonzero()[:, 0]
        if not len(sample):  # all rows are equal, and their scores are rounding
            sample = torch.arange(min(m, size))
            probabilities = torch.full((size,), len(sample) / size, dtype=torch.float64)
        weights = probabilities[sample].rsqrt()
    scores = _leverage(kernel, X, order, order[sample], weights, rank)
    floor = torch.finfo(scores.dtype).eps * scores.max().clamp(min=torch.finfo(scores.dtype).tiny)
    # m draws without replacement by exponential clocks (Efraimidis & Spirakis, 2006).
    clocks = torch.empty(n, dtype=torch.float64).exponential_(generator=generator) / scores.clamp(min=floor)
    return order[clocks.argsort()[:m]].sort().values


def _leverage(kernel: Kernel, X: Data, rows: Tensor, sample: Tensor, weights: Tensor, rank: int) -> Tensor:
    """The leverage (k(x, x) − k_xᵀ(K_SS + λ D⁻²)⁻¹ k_x)/λ of the rows x, from a sample S with weights D."""
    anchors = take(X, sample)
    gram = kernel._gram(anchors, None).double().cpu()
    weighted = gram * weights[:, None] * weights
    if not is_finite(weighted):
        raise NotPositiveDefiniteError(f"The Gram matrix of a sample of the rows {NOT_FINITE}")
    values = torch.linalg.eigvalsh(weighted).clamp(min=0.0)
    total = float(values.sum())
    tail = float(values[: max(0, len(values) - rank)].sum()) / rank
    ridge = max(tail, len(values) * torch.finfo(torch.float64).eps * max(total, 1e-300))
    factor = factorize(lambda: shifted(gram, ridge / weights**2), name="The Gram matrix of a sample of the rows")
    scores = torch.empty(len(rows), dtype=torch.float64)
    for block in row_blocks(len(rows), 3 * 8 * len(sample)):
        points = take(X, rows[block])
        cross = kernel._gram(points, anchors).double().cpu()
        explained = factor.half_solve(cross.mT).square().sum(0)
        scores[block] = (kernel._diag(points).double().cpu() - explained).clamp(min=0.0) / ridge
    return scores.clamp(max=1.0)


# -- clusters --------------------------------------------------------------------------------------------------------
def cluster_centres(kernel: Kernel, X: Tensor, m: int, seed: int) -> Tensor:
    """The centres of m clusters by Lloyd's algorithm from m random samples, in the units of the lengthscales.

    Points are counted from one of them: far from the origin, products of whole points would lose the distances.
    """
    inner = kernel.kernel if isinstance(kernel, Scaled) else kernel
    units = number(inner, "lengthscale", X) if isinstance(inner, Stationary) else X.new_ones(())
    origin = X[:1]
    points = (X - origin) / units
    size = power_of_two(points.abs().max())
    points = points / size  # squares and sums are in range, and the same wherever the origin is
    centres = points[torch.from_numpy(sample_rows(len(points), m, seed))]
    for _ in range(LLOYD_STEPS):
        sums, sizes = torch.zeros_like(centres), centres.new_zeros(m)
        half = 0.5 * (centres**2).sum(1)
        for block in row_blocks(len(points), 2 * m * points.element_size()):
            nearest = (points[block] @ centres.mT).sub_(half).argmax(1)
            sums.index_add_(0, nearest, points[block])
            sizes += torch.bincount(nearest, minlength=m).to(sizes)
        # A cluster without members keeps its centre.
        centres = torch.where(sizes[:, None] > 0, sums / sizes.clamp(min=1.0)[:, None], centres)
    return centres * size * units + origin


Sampling = Literal["uniform", "leverage", "kmeans", "pivots", "entropy"]
DEFAULT_LANDMARKS = 1000


@dataclass(frozen=True)
class PositivePart:
    """The factor B = U diag(√e) (m × r) of an indefinite matrix's positive part, with the solves of ``Cholesky``."""

    factor: Tensor

    def back_solve(self, right: Tensor) -> Tensor:
        """The product U diag(1/√e) C, which takes the place of L⁻ᵀC."""
        return (self.factor / (self.factor**2).sum(0)) @ right

    def half_solve(self, right: Tensor) -> Tensor:
        """The product diag(1/√e) Uᵀ C, which takes the place of L⁻¹C; the negative part is left out."""
        return (self.factor / (self.factor**2).sum(0)).mT @ right

    def half_solve_rows(self, rows: Tensor) -> Tensor:
        """The result of ``half_solve`` for each row, as rows."""
        return rows @ (self.factor / (self.factor**2).sum(0))


@dataclass(frozen=True)
class LandmarkFeatures(FeatureMap):
    """The features φ(x) = L⁻¹ k(Z, x) with L Lᵀ = k(Z, Z): φ(x)ᵀφ(y) ≈ k(x, y), exactly if x or y is a landmark.

    Examples
    --------
    >>> from representer.approximation import landmark_features
    >>> from representer.kernels import Linear
    >>> features = landmark_features(Linear(), Linear().prepare([[2.0]]))
    >>> features([[3.0], [-1.0]]).tolist()
    [[3.0], [-1.0]]
    """

    kernel: Kernel
    landmarks: Data
    factor: Cholesky | PositivePart
    basis: Tensor | None = None  # Q of explicit features ψ(Z)ᵀ = Q Lᵀ: φ(x) = Qᵀψ(x), without products of points

    @property
    def is_explicit(self) -> bool:  # type: ignore[override]
        """Are they computed from explicit features?"""
        return self.basis is not None

    @property
    def n_features(self) -> int:
        """The number of features: the rank of k(Z, Z)."""
        return self.factor.factor.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the landmarks' Gram matrix."""
        return self.factor.factor.dtype

    @property
    def state(self) -> Data:
        """The landmarks of the map."""
        return self.landmarks

    def __call__(self, X: Data) -> Tensor:
        """The features φ(x_i) as rows (n, r), computed block by block."""
        X = self._prepared(X)
        m, r = self.factor.factor.shape
        blocks = list(row_blocks(count(X), m * self.dtype.itemsize))
        if len(blocks) == 1:
            return self._block(X)
        features = torch.empty(count(X), r, dtype=self.dtype, device=self.factor.factor.device)
        for rows in blocks:
            features[rows] = self._block(X[rows])
        return features

    def _block(self, X: Data) -> Tensor:
        if self.basis is not None and (explicit := self.kernel.features(X)) is not None:
            return explicit.to(self.dtype) @ self.basis
        return self.factor.half_solve_rows(self.kernel._gram(X, self.landmarks))

    def magnitudes(self, X: Data) -> Tensor:
        """What the features by explicit ones at prepared inputs are sums of, without signs: |ψ(x)|ᵀ|Q|."""
        explicit = self.kernel.features(X)
        assert explicit is not None and self.basis is not None
        return explicit.to(self.dtype).abs() @ self.basis.abs()

    def _prepared(self, X: Data) -> Data:
        X = self.kernel.prepare(X)
        if isinstance(X, Tensor) and self.kernel.domain == "vectors":
            X, _ = same_features(X.to(self.factor.factor), self.landmarks)
        return X

    def columns(self, X: Data) -> Tensor:
        """The Gram matrix k(X, Z), which is cheaper than the features."""
        return self.kernel._gram(self._prepared(X), self.landmarks)

    def coefficients(self, theta: Tensor) -> Tensor:
        """The coefficients C on the landmarks with φ(·)ᵀΘ = Σ_j k(·, z_j) c_j."""
        return self.factor.back_solve(theta)

    def lost_share(self, theta: Tensor, constant: Tensor | float = 0.0) -> float:
        """The rounding error ε Σ_j |k(x, z_j) c_j| relative to the values of the function, which include the constant.

        It is large for nearly dependent landmarks, and for functions that nearly cancel the constant.
        """
        unit = power_of_two(theta.abs().amax(0))  # so that squares are in range
        theta, constant = theta / unit, constant / unit
        root = torch.linalg.vector_norm(self.factor.factor, dim=1)  # √k(z, z)
        lost = torch.finfo(self.dtype).eps * root.max() * (root @ self.coefficients(theta).abs())
        values = (self.factor.factor @ theta + constant).square().mean(0).sqrt()  # at the landmarks
        return float(torch.where(lost == 0, 0.0, lost / values).max())

    def constant(self) -> tuple[Tensor, int]:
        """The coefficients v of the least function vᵀφ that is constant on the landmarks, with the largest part 1.

        The second value is the place of that part.
        """
        ones = self.factor.factor.new_ones(len(self.factor.factor), 1)
        v = self.factor.half_solve(ones)[:, 0]
        place = int((v.abs() * self.factor.factor.square().sum(0).sqrt()).argmax())
        return v / v[place], place

    def transposed(self, sums: Tensor) -> Tensor:
        """The sums Σ_i φ(x_i) v_iᵀ from Σ_i k(Z, x_i) v_iᵀ."""
        return self.factor.half_solve(sums)

    def missed(self, X: Data, phi: Tensor) -> Tensor:
        """The residuals of k(x, x): where there are explicit features ψ, ‖ψ(x) − its projection on ψ(Z)‖².

        That keeps the digits which k(x, x) − ‖φ(x)‖² loses for points far from zero, where both numbers are large.
        """
        explicit = self.kernel.features(X) if isinstance(X, Tensor) else None
        at_landmarks = None if explicit is None else self.kernel.features(self.landmarks)
        if explicit is None or at_landmarks is None:
            return super().missed(X, phi)
        explicit, basis = explicit.double(), nonzero_svd(at_landmarks.double())[2]
        return (explicit - (explicit @ basis) @ basis.mT).square().sum(1)

    def missed_rounding(self, X: Data) -> float:
        """The rounding error of ``missed`` at prepared inputs; for explicit features it is the square of theirs."""
        rounding = super().missed_rounding(X)
        is_explicit = isinstance(X, Tensor) and self.kernel.features(X[:1]) is not None
        return torch.finfo(self.dtype).eps * rounding if is_explicit else rounding


def explicit_features(kernel: Kernel, points: Data) -> Tensor | None:
    """The kernel's own features (n, q) of prepared vectors, without a gradient; None where it has none."""
    if kernel.domain != "vectors" or not isinstance(points, Tensor) or points.ndim != 2:
        return None
    with torch.no_grad():
        return kernel.features(points)


def orthogonal_features(kernel: Kernel, landmarks: Data) -> LandmarkFeatures | None:
    """The features of landmarks by their explicit ones, ψ(Z)ᵀ = Q Lᵀ; None where there are none, or Z depend.

    They are those by k(Z, Z) = L Lᵀ, whose condition is the square of that of ψ(Z).
    """
    explicit = explicit_features(kernel, landmarks)
    if explicit is None or len(explicit) > explicit.shape[1] or not is_finite(explicit):
        return None
    Q, R = torch.linalg.qr(explicit.mT)
    signs = torch.where(R.diagonal() < 0, -1.0, 1.0).to(R)
    factor = (signs[:, None] * R).mT.contiguous()
    sizes = factor.diagonal()
    if not bool(sizes.min() > DEPENDENT * max(explicit.shape) * torch.finfo(R.dtype).eps * sizes.max()):
        return None
    return LandmarkFeatures(kernel, landmarks, Cholesky(factor, factor.new_zeros(())), Q * signs)


def landmark_features(kernel: Kernel, landmarks: Data) -> LandmarkFeatures:
    """The features of landmarks Z (prepared data); for an indefinite k(Z, Z), those of its positive part."""
    orthogonal = orthogonal_features(kernel, landmarks)
    if orthogonal is not None:
        return orthogonal
    name = "The Gram matrix of the landmarks"

    def gram() -> Tensor:
        matrix = kernel._gram(landmarks, None)
        if matrix.dtype == torch.float32:
            # Entries with a rounding of eps move eigenvalues by √m·eps: L⁻¹ must not magnify smaller eigenvalues.
            rounding = math.sqrt(len(matrix)) * torch.finfo(matrix.dtype).eps
            matrix.diagonal().add_(rounding * matrix.diagonal().mean())
        return matrix

    try:
        factor = factorize(gram, name=name)
        return LandmarkFeatures(kernel, landmarks, factor)
    except NotPositiveDefiniteError:
        spectrum = eigh(repair_gram(kernel._gram(landmarks, None), name=name))
    positive = spectrum.values > spectrum.values[-1:] * len(spectrum.values) * torch.finfo(spectrum.values.dtype).eps
    root = spectrum.root().mT[positive].mT  # in columns, as a stored one is read: products round the same way
    return LandmarkFeatures(kernel, landmarks, PositivePart(root))


def independent_rows(matrix: Tensor) -> Tensor:
    """The rows of a tall matrix that span all of them up to rounding, each the farthest from the span of those before.

    Examples
    --------
    >>> import torch
    >>> from representer.approximation.landmarks import independent_rows
    >>> independent_rows(torch.tensor([[1.0, 0.0], [3.0, 0.0], [2.0, 1.0]])).tolist()
    [1, 2]
    """
    R, order = qr(matrix.mT.double().cpu().numpy(), mode="r", pivoting=True)
    sizes = np.abs(np.diagonal(R))
    rounding = 2.0 * DEPENDENT * max(matrix.shape) * torch.finfo(matrix.dtype).eps * sizes.max(initial=0.0)
    return torch.from_numpy(order[: int((sizes > rounding).sum())].astype(np.int64))


def independent(features: FeatureMap) -> FeatureMap:
    """The features without landmarks that are, up to rounding, linear combinations of the others in the RKHS."""
    if not isinstance(features, LandmarkFeatures) or features.basis is not None:
        return features
    explicit = explicit_features(features.kernel, features.landmarks)
    if explicit is not None and explicit.shape[1] < len(explicit):
        rows = independent_rows(explicit)
        orthogonal = orthogonal_features(features.kernel, take(features.landmarks, rows)) if len(rows) else None
        if orthogonal is not None:
            return orthogonal
    gram = features.kernel._gram(features.landmarks, None)
    _, pivots = pivoted_cholesky(gram, tol=torch.finfo(gram.dtype).eps ** 0.75)
    if len(pivots) == len(gram):
        return features
    if not len(pivots):
        raise ValueError(f"{features.kernel!r} is zero at all landmarks: there is nothing to learn from.")
    return landmark_features(features.kernel, take(features.landmarks, pivots.sort().values))


class Landmarks(Approximation):
    """Replace k(x, y) by k(x, Z) k(Z, Z)⁻¹ k(Z, y) for chosen points Z, which need not be samples.

    Parameters
    ----------
    points : data
        The landmarks, of the kind that the kernel takes.
    kernel : Kernel, str, callable or None
        The kernel of the transformer; None is ``"rbf"``. A value of ``approximation=`` uses that of the learner.

    Attributes
    ----------
    kernel_, approximation_error_, landmarks_, n_features_in_, feature_names_in_
        The attributes of the fitted transformer, as in ``Nystroem``.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.approximation import Landmarks
    >>> from representer.kernels import Gaussian
    >>> grid = np.linspace(0, 1, 12)[:, None]
    >>> X = np.random.default_rng(0).uniform(size=(50, 1))
    >>> B = Landmarks(grid).features(Gaussian(0.5), X, seed=0)(X)
    >>> bool((B @ B.T - Gaussian(0.5)(X)).abs().max() < 1e-6)
    True
    >>> Landmarks(grid, kernel=Gaussian(0.5)).fit(X).approximation_error_ < 1e-6
    True
    """

    any_kernel = True

    def __init__(self, points: Data, *, kernel: Any = None):
        self.points = points
        self.kernel = kernel

    def size(self, n: int) -> int:
        """The number of points, whatever the number of samples."""
        if not hasattr(self.points, "__len__"):
            raise ValueError(f"points of Landmarks must be data, with a length; got {self.points!r}.")
        return int(self.points.shape[0]) if sparse.issparse(self.points) else len(self.points)

    def rows(self, n: int, seed: int) -> np.ndarray:
        """The first sample only, for the precision of the data."""
        return np.arange(1)

    def choose(self, kernel: Kernel, X: Data, seed: int) -> LandmarkFeatures:
        """The features with the points as landmarks."""
        points = kernel.prepare(self.points)
        if isinstance(points, Tensor) and isinstance(X, Tensor):
            points = same_features(points.to(X), X)[0]
        return landmark_features(kernel, points)

    def restore(self, kernel: Kernel, state: Data, prepare: Callable[[Data], Data]) -> LandmarkFeatures:
        """The features with these landmarks."""
        return landmark_features(kernel, prepare(state))


class Nystroem(Approximation):
    """Replace k(x, y) by k(x, Z) k(Z, Z)⁻¹ k(Z, y) for m landmarks Z: memory n·m instead of n².

    Parameters
    ----------
    n_components : int, float or "auto"
        The number of landmarks m; m = n is exact. A float is a share of the samples, at most 1.0; at least two samples
        are taken. ``"auto"`` is 1000, or all samples if there are fewer.
    sampling : {"uniform", "leverage", "kmeans", "pivots", "entropy"}
        ``"uniform"`` draws samples at random; ``"leverage"`` draws them by recursive ridge leverage scores (Musco &
        Musco, 2017), which favour rare samples; ``"kmeans"`` takes the centres of clusters, which exist for vectors
        only; ``"pivots"`` chooses samples one by one where the kernel is approximated worst so far (pivoted Cholesky);
        ``"entropy"`` chooses them so that the quadratic Rényi entropy stays largest. All but the first choose among
        random candidates of large data: 20,000 samples, or four times m.
    kernel : Kernel, str, callable or None
        The kernel of the transformer; None is ``"rbf"``. A value of ``approximation=`` uses that of the learner.
    random_state : int, RandomState instance or None
        The seed of the transformer's landmarks. A value of ``approximation=`` uses that of the learner.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel with numbers for all hyperparameters.
    approximation_error_ : float
        ‖K − ΦΦᵀ‖/‖K‖ in the Frobenius norm, from sampled columns of the training samples' Gram matrix.
    landmarks_ : ndarray or list
        The landmarks.
    n_features_in_ : int
        Number of features seen during fit (vectors).
    feature_names_in_ : ndarray of str
        Names of the features, if X had string names.

    Examples
    --------
    As a step of a pipeline:

    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import RidgeClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> from representer.approximation import Nystroem
    >>> from representer.kernels import Gaussian
    >>> X, y = load_digits(return_X_y=True)
    >>> step = Nystroem(300, kernel=Gaussian("median"), random_state=0)
    >>> model = make_pipeline(step, RidgeClassifier(alpha=1e-2)).fit(X[::2], y[::2])
    >>> bool(model.score(X[1::2], y[1::2]) > 0.97), bool(model[0].approximation_error_ < 0.05)
    (True, True)

    The features of a kernel with numbers:

    >>> import numpy as np
    >>> from representer.approximation import Nystroem
    >>> from representer.kernels import Gaussian
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> features = Nystroem(20, sampling="pivots").features(Gaussian(0.5), X, seed=0)
    >>> B = features(X)
    >>> bool((B @ B.T - Gaussian(0.5)(X)).abs().max() < 1e-6)
    True
    """

    any_kernel = True

    def __init__(
        self,
        n_components: int | float | Literal["auto"] = "auto",
        sampling: Sampling = "uniform",
        *,
        kernel: Any = None,
        random_state: Any = None,
    ):
        self.n_components = n_components
        self.sampling = sampling
        self.kernel = kernel
        self.random_state = random_state

    @property
    def _is_share(self) -> bool:
        """Is the number of landmarks a share of the samples?"""
        m = self.n_components
        return is_real(m) and not isinstance(m, int | np.integer | str) and 0.0 < m <= 1.0

    def at_most(self, n: int) -> int:
        """The number of landmarks among n samples, at most n."""
        if self._is_share:
            return min(n, max(2, round(float(self.n_components) * n)))
        return min(n, DEFAULT_LANDMARKS if self.n_components == "auto" else int(self.n_components))

    def size(self, n: int) -> int:
        """The number of landmarks, checked against the number of samples."""
        m = self.n_components
        auto = isinstance(m, str) and m == "auto"
        if not (auto or self._is_share or (is_count(m) and m <= n)):
            raise ValueError(
                f"n_components of Nystroem must be an integer from 1 to the number of samples, {n}; got {m!r}. "
                f"Choose at most {n}, which is exact, a share of the samples up to 1.0, or 'auto'."
            )
        return self.at_most(n)

    def sized(self, n: int) -> Nystroem:
        """The approximation with a number of landmarks instead of a share of n samples."""
        return Nystroem(self.size(n), self.sampling) if self._is_share else self

    def capped(self, n: int) -> Nystroem:
        """The approximation with at most n landmarks."""
        return Nystroem(self.at_most(n), self.sampling)

    def check(self, kernel: Kernel, n: int) -> None:
        """Refuse a precomputed kernel, which has no landmarks, and a number of landmarks that n samples cannot have."""
        if kernel.domain == "gram":
            raise ValueError(
                "Nystroem needs a kernel that can be evaluated; a precomputed Gram matrix is already n × n."
            )
        self.size(n)

    def rows(self, n: int, seed: int) -> np.ndarray:
        """The numbers of the samples that are candidates; uniform landmarks are all of them."""
        m = self.size(n)
        if not (isinstance(self.sampling, str) and self.sampling in get_args(Sampling)):
            words = ", ".join(map(repr, get_args(Sampling)))
            raise ValueError(f"sampling of Nystroem must be one of {words}; got {self.sampling!r}.")
        return sample_rows(n, m, seed) if self.sampling == "uniform" else candidate_rows(n, m, seed)

    def choose(self, kernel: Kernel, X: Data, seed: int) -> LandmarkFeatures:
        """Choose landmarks among the candidates X and factor their Gram matrix."""
        self.check(kernel, count(X))
        m = self.at_most(count(X))
        if self.sampling == "kmeans":
            if kernel.domain != "vectors" or not isinstance(X, Tensor):
                raise ValueError(
                    f"sampling='kmeans' takes means of samples, which must be dense vectors; {kernel!r} has "
                    f"{kernel.domain}. Use 'leverage', 'pivots', 'entropy' or 'uniform'."
                )
            return landmark_features(kernel, cluster_centres(kernel, X, m, seed))
        return landmark_features(kernel, take(X, self.chosen(kernel, X, seed)))

    def chosen(self, kernel: Kernel, X: Data, seed: int) -> Tensor:
        """Choose landmarks among candidates X, the samples that ``rows`` names, and return their numbers in order."""
        m = self.at_most(count(X))
        if self.sampling == "leverage":
            return leverage_sample(kernel, X, m, seed)
        if self.sampling == "pivots":
            return pivots(kernel, X, m)
        if self.sampling == "entropy":
            return entropy_sample(kernel, X, m, seed)
        if self.sampling == "kmeans":
            raise ValueError(
                "Here landmarks must be samples, and sampling='kmeans' gives means of them. Use 'leverage', "
                "'pivots', 'entropy' or 'uniform'."
            )
        return torch.arange(count(X))

    def samples(self, kernel: Kernel, X: Data, *, seed: int) -> Tensor:
        """The numbers of the rows of X (prepared data) that become landmarks."""
        rows = torch.from_numpy(self.rows(count(X), seed))
        return rows[self.chosen(kernel, take(X, rows), seed)]

    def restore(self, kernel: Kernel, state: Data, prepare: Callable[[Data], Data]) -> LandmarkFeatures:
        """The features with these landmarks."""
        return landmark_features(kernel, prepare(state))


def for_part(approximation: Any, n: int) -> Any:
    """A learner's argument ``approximation`` for a fit to n of its samples: landmarks are at most so many.

    Examples
    --------
    >>> from representer.approximation import Nystroem, RandomFeatures, for_part
    >>> for_part((RandomFeatures(200), Nystroem(90)), 80)
    (RandomFeatures(n_components=200), Nystroem(n_components=80))
    """
    if isinstance(approximation, tuple | list):
        return tuple(for_part(side, n) for side in approximation)
    return approximation.capped(n) if isinstance(approximation, Approximation) else approximation


def input_output_pair(
    approximation: object, n: int | None = None, *, vectors: bool = True
) -> tuple[Approximation, Nystroem | Landmarks] | None:
    """The approximations of inputs and outputs that a learner's argument ``approximation`` means; None is exact.

    A single ``Nystroem`` serves both sides. Beside another approximation of the inputs, or beside ``"kmeans"`` for
    outputs that are no vectors, the outputs have as many uniform random landmarks as the inputs have features, at most
    all samples. None for the inputs of a pair is exact: all samples are landmarks. ``vectors`` says whether the outputs
    are vectors; without a number n of samples, the argument is only checked.

    Examples
    --------
    >>> from representer.approximation import Nystroem, RandomFeatures, input_output_pair
    >>> input_output_pair(Nystroem(20), 100)
    (Nystroem(n_components=20), Nystroem(n_components=20))
    >>> input_output_pair(RandomFeatures(200), 100)
    (RandomFeatures(n_components=200), Nystroem(n_components=100))
    >>> input_output_pair((None, Nystroem(20)), 100)
    (Nystroem(n_components=100), Nystroem(n_components=20))
    """
    if approximation is None:
        return None
    pair = tuple(approximation) if isinstance(approximation, tuple | list) else (approximation, None)
    if len(pair) == 2 and pair[0] is None and pair[1] is not None:
        pair = Nystroem(1.0), pair[1]
    kinds = len(pair) == 2 and isinstance(pair[0], Approximation) and isinstance(pair[1], Nystroem | Landmarks | None)
    if not kinds:
        raise ValueError(
            "approximation must be None, Nystroem(...), Landmarks(...), RandomFeatures(...) or TensorSketch(...), or a "
            "pair: such a one for the inputs (None: exact), Nystroem(...) or Landmarks(...) for the outputs; got "
            f"{approximation!r}."
        )
    for approximation in pair:
        check_bare(approximation)
    inputs, outputs = (side if side is None or n is None else side.sized(n) for side in pair)
    if outputs is not None:
        return inputs, outputs
    if isinstance(inputs, Nystroem) and (vectors or inputs.sampling != "kmeans"):
        return inputs, inputs
    return inputs, Nystroem() if n is None else Nystroem(min(inputs.size(n), n))


class Falkon(Value):
    """Conjugate gradients for the normal equations of many landmarks (Rudi, Carratino & Rosasco, 2017).

    They solve (a_j S + alpha Σ w) u_j = B_j without the m × m matrix S = Σ w φφᵀ: each iteration passes over the
    samples once, for all outputs, in O(n m). The preconditioner replaces S by its estimate LᵀL·n/m from the landmarks,
    where L is the Cholesky factor of their Gram matrix.

    Parameters
    ----------
    tol : float
        Iterations end when the residual of every output, relative to the right-hand side, is below this. A larger value
        stops early, which regularises.
    max_iter : int
        The largest number of iterations; if it is reached, a warning says so.

    Examples
    --------
    >>> import numpy as np
    >>> from representer import OperatorRidge
    >>> from representer.approximation import Falkon, Nystroem
    >>> from representer.kernels import Gaussian
    >>> X = np.random.default_rng(0).uniform(-2, 2, size=(1000, 1))
    >>> y = np.sin(2 * X[:, 0])
    >>> options = {"alpha": 1e-4, "approximation": Nystroem(50), "random_state": 0}
    >>> direct = OperatorRidge(Gaussian(1.0), **options).fit(X, y).predict(X)
    >>> iterative = OperatorRidge(Gaussian(1.0), solver=Falkon(tol=1e-10), **options).fit(X, y).predict(X)
    >>> bool(np.abs(direct - iterative).max() < 1e-6)
    True
    """

    rules = {"tol": Rule("a positive number", lambda tol: is_real(tol) and tol > 0), "max_iter": COUNT}

    def __init__(self, tol: float = 1e-7, max_iter: int = 100):
        self.tol = tol
        self.max_iter = max_iter
