"""Approximations of a kernel by finitely many features, for data too large for an n × n matrix."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from representer.data import count, same_features, take
from representer.expansions.embedding import Embedding
from representer.kernels.base import Kernel, Scaled
from representer.kernels.stationary import Gaussian, Laplacian, Matern, RationalQuadratic, Stationary
from representer.linalg import (
    Cholesky,
    NotPositiveDefiniteError,
    eigh,
    factorize,
    pivoted_cholesky,
    repair_gram,
    spectrum_of_factor,
)
from representer.memory import row_blocks
from representer.parameters import is_count
from representer.values import Value, number


@dataclass(frozen=True)
class PositivePart:
    """The factor B = U diag(√e) (m × r) of an indefinite matrix's positive part, with the solves of a Cholesky one."""

    factor: Tensor

    def back_solve(self, right: Tensor) -> Tensor:
        """U diag(1/√e) C."""
        return (self.factor / (self.factor**2).sum(0)) @ right

    def half_solve(self, right: Tensor) -> Tensor:
        """diag(1/√e) Uᵀ C: the part outside of the positive one is left out."""
        return (self.factor / (self.factor**2).sum(0)).mT @ right


@dataclass(frozen=True)
class LandmarkFeatures:
    """φ(x) = L⁻¹ k(Z, x) with L Lᵀ = k(Z, Z): k(x, y) ≈ φ(x)ᵀφ(y), exactly so when x or y is a landmark.

    Examples
    --------
    >>> from representer.approximation import landmark_features
    >>> from representer.kernels import Linear
    >>> features = landmark_features(Linear(), Linear().prepare([[2.0]]))
    >>> features([[3.0], [-1.0]]).tolist()
    [[3.0], [-1.0]]
    """

    kernel: Kernel
    landmarks: Any
    factor: Cholesky | PositivePart

    def __call__(self, X: Any) -> Tensor:
        """Features (n, m), filled block by block."""
        X = self.kernel.prepare(X)
        if isinstance(X, Tensor) and self.kernel.domain == "vectors":
            X, _ = same_features(X.to(self.factor.factor), self.landmarks)
        m, r = self.factor.factor.shape
        features = torch.empty(count(X), r, dtype=self.factor.factor.dtype)
        for rows in row_blocks(len(features), m * features.element_size()):
            features[rows] = self.factor.half_solve(self.kernel._gram(X[rows], self.landmarks).mT).mT
        return features

    def coefficients(self, theta: Tensor) -> Tensor:
        """The C of φ(·)ᵀΘ = Σ_j k(·, z_j) c_j: a function of the features as an expansion in the landmarks."""
        return self.factor.back_solve(theta)


def landmark_features(kernel: Kernel, landmarks: Any) -> LandmarkFeatures:
    """The features of given landmarks (prepared data); of an indefinite k(Z, Z), those of its positive part."""
    name = "The Gram matrix of the landmarks"
    try:
        factor = factorize(lambda: kernel._gram(landmarks, None), name=name)
        return LandmarkFeatures(kernel, landmarks, factor)
    except NotPositiveDefiniteError:
        repaired = repair_gram(kernel._gram(landmarks, None), name=name)
    return LandmarkFeatures(kernel, landmarks, PositivePart(spectrum_of_factor(eigh(repaired).root()).root()))


class Nystroem(Value):
    """Replace k(x, y) by k(x, Z) k(Z, Z)⁻¹ k(Z, y) for m landmarks Z: memory n·m instead of n².

    Parameters
    ----------
    n_components : int
        The number of landmarks m; at n it is exact.
    sampling : {"uniform", "pivots"}
        Landmarks drawn at random, or chosen one by one where the kernel is matched worst so far (pivoted Cholesky).

    Examples
    --------
    >>> import numpy as np
    >>> from representer.approximation import Nystroem
    >>> from representer.kernels import Gaussian
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> features = Nystroem(20, sampling="pivots").features(Gaussian(0.5), X, seed=0)
    >>> B = features(X)
    >>> bool((B @ B.T - Gaussian(0.5)(X)).abs().max() < 1e-6)
    True
    """

    def __init__(self, n_components: int = 1000, sampling: Literal["uniform", "pivots"] = "uniform"):
        self.n_components = n_components
        self.sampling = sampling

    def check(self, kernel: Kernel, n: int) -> None:
        """Refuse a kernel that cannot have landmarks, and what is no number of them among n samples."""
        if kernel.domain == "gram":
            raise ValueError(
                "Nystroem needs a kernel that can be evaluated; a precomputed Gram matrix is already n × n."
            )
        self._check_number(n)

    def _check_number(self, n: int) -> None:
        if not is_count(self.n_components) or self.n_components > n:
            raise ValueError(
                f"n_components of Nystroem must be an integer from 1 to the number of samples, {n}; got "
                f"{self.n_components!r}. Use approximation=None for an exact fit."
            )

    def features(self, kernel: Kernel, X: Any, *, seed: int) -> LandmarkFeatures:
        """Choose landmarks among X and factor their Gram matrix; the kernel has numbers for all hyperparameters."""
        X = kernel.prepare(X)
        self.check(kernel, count(X))
        chosen = self._choose(kernel, X, seed)
        return landmark_features(kernel, take(X, chosen))

    def _choose(self, kernel: Kernel, X: Any, seed: int) -> Tensor:
        n = count(X)
        self._check_number(n)
        if self.sampling == "uniform":
            generator = torch.Generator().manual_seed(seed)
            return torch.randperm(n, generator=generator)[: self.n_components].sort().values
        if self.sampling == "pivots":

            def column(index: int) -> Tensor:
                return kernel._gram(X, X[index : index + 1])[:, 0]

            return pivoted_cholesky(column, diagonal=kernel._diag(X), max_rank=self.n_components)[1]
        raise ValueError(f"sampling of Nystroem must be 'uniform' or 'pivots'; got {self.sampling!r}.")


# -- subsets ----------------------------------------------------------------------------------------------------------
SAMPLING = ("uniform", "leverage", "entropy")


def choose_samples(
    kernel: Kernel, X: Any, n_samples: int, *, sampling: str = "uniform", seed: int = 0
) -> Tensor:
    """The numbers of samples that stand for all of X, in order.

    Parameters
    ----------
    kernel : Kernel
        With numbers for all hyperparameters.
    X : prepared data
    n_samples : int
        How many, at most all.
    sampling : {"uniform", "leverage", "entropy"}
        At random; at random with probabilities that grow with the ridge leverage scores diag(K (K + nλI)⁻¹), for which
        λ is 1/n_samples of the mean of k(x, x) and K is replaced by its Nyström approximation on as many uniform
        samples, with what that misses of its diagonal; or one after the other the sample with the least Σ k(x, chosen),
        so that the quadratic Rényi entropy −log mean k(chosen, chosen) stays large.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.approximation import choose_samples
    >>> from representer.kernels import Gaussian
    >>> kernel = Gaussian(1.0)
    >>> X = kernel.prepare(np.array([[0.0], [0.1], [0.2], [5.0]]))
    >>> 3 in choose_samples(kernel, X, 2, sampling="entropy").tolist()
    True
    """
    n = count(X)
    if not is_count(n_samples) or n_samples > n:
        raise ValueError(
            f"n_samples must be an integer from 1 to the number of samples, {n}; got {n_samples!r}."
        )
    generator = torch.Generator().manual_seed(seed)
    if sampling == "uniform":
        chosen = torch.randperm(n, generator=generator)[:n_samples]
    elif sampling == "leverage":
        landmarks = torch.randperm(n, generator=generator)[:n_samples]
        B = landmark_features(kernel, take(X, landmarks))(X)
        inner = B.mT @ B
        diagonal = kernel._diag(X).to(B)
        ridge = n * diagonal.mean() / n_samples
        inner.diagonal().add_(ridge)
        missed = (diagonal - (B**2).sum(1)).clamp(min=torch.finfo(B.dtype).tiny)
        scores = (B * torch.linalg.solve(inner, B.mT).mT).sum(1) + missed / ridge
        chosen = torch.multinomial(scores.cpu(), n_samples, generator=generator)
    elif sampling == "entropy":
        chosen = _most_spread(kernel, X, n_samples, int(torch.randint(n, (1,), generator=generator)))
    else:
        raise ValueError(f"sampling must be one of {', '.join(map(repr, SAMPLING))}; got {sampling!r}.")
    return chosen.sort().values


def _most_spread(kernel: Kernel, X: Any, n_samples: int, first: int) -> Tensor:
    """Greedy choice of samples with small Σ k(x, chosen)."""
    chosen = [first]
    sums = kernel._diag(X).clone()
    for _ in range(n_samples - 1):
        sums = sums + 2.0 * kernel._gram(X, take(X, torch.tensor(chosen[-1:])))[:, 0]
        sums[chosen[-1]] = torch.inf
        chosen.append(int(sums.argmin()))
    return torch.tensor(chosen)


# -- random features --------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class FourierFeatures:
    """φ(x) = √(2/m) [cos(Ω x/ℓ), sin(Ω x/ℓ)]: k(x, y) ≈ φ(x)ᵀφ(y), and ‖φ(x)‖² = k(x, x).

    Differentiable in the lengthscale of the kernel (and its scale), with the same Ω.
    """

    kernel: Kernel
    frequencies: Tensor  # (d, m/2), for a lengthscale of 1

    def __call__(self, X: Any) -> Tensor:
        """Features (n, m)."""
        kernel, scale = _stationary(self.kernel)
        X = kernel.prepare(X)
        phases = kernel._scaled(X) @ self.frequencies.to(X)
        features = torch.cat([phases.cos(), phases.sin()], -1) / math.sqrt(self.frequencies.shape[1])
        return features if scale is None else features * number(scale, "scale", X).sqrt()


class RandomFeatures(Value):
    """Replace a stationary kernel by random Fourier features (Rahimi & Recht, 2008): memory n·m instead of n².

    Parameters
    ----------
    n_components : int
        The number of features m: a cosine and a sine for each of m/2 frequencies.
    orthogonal : bool
        Frequencies in orthogonal blocks, which have less variance (Yu et al., 2016); for the Gaussian kernel only,
        others draw them independently.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.approximation import RandomFeatures
    >>> from representer.kernels import Gaussian
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> B = RandomFeatures(2000).features(Gaussian(0.5), X, seed=0)(X)
    >>> bool((B @ B.T - Gaussian(0.5)(X)).abs().max() < 0.1)
    True
    """

    def __init__(self, n_components: int = 1000, orthogonal: bool = True):
        self.n_components = n_components
        self.orthogonal = orthogonal

    def features(self, kernel: Kernel, X: Any, *, seed: int) -> FourierFeatures:
        """Draw the frequencies of a kernel with numbers for all hyperparameters but those that scale its inputs."""
        if not is_count(self.n_components):
            raise ValueError(
                f"n_components of RandomFeatures must be a positive integer; got {self.n_components!r}."
            )
        base, _ = _stationary(kernel)
        X = base.prepare(X)
        generator = torch.Generator().manual_seed(seed)
        shape = X.shape[-1], -(-self.n_components // 2)
        return FourierFeatures(kernel, _frequencies(base, shape, generator, self.orthogonal).to(X))


def _stationary(kernel: Kernel) -> tuple[Stationary, Scaled | None]:
    base = kernel.kernel if isinstance(kernel, Scaled) else kernel
    if not isinstance(base, Gaussian | Laplacian | Matern | RationalQuadratic):
        raise ValueError(
            "RandomFeatures takes Gaussian, Laplacian, Matern or RationalQuadratic, or a multiple of one; got "
            f"{kernel!r}. Nystroem takes any kernel."
        )
    return base, kernel if isinstance(kernel, Scaled) else None


def _frequencies(
    kernel: Stationary, shape: tuple[int, int], generator: torch.Generator, orthogonal: bool
) -> Tensor:
    """Samples of the spectral density for a lengthscale of 1."""
    d, m = shape
    normal = torch.randn(d, m, generator=generator, dtype=torch.float64)
    if isinstance(kernel, Laplacian):  # Cauchy in each coordinate
        return normal / torch.randn(d, m, generator=generator, dtype=torch.float64)
    if isinstance(kernel, Matern) and not math.isinf(kernel.nu):  # Student's t with 2ν degrees of freedom
        return normal * (2.0 * kernel.nu / _chi_squared(2.0 * kernel.nu, m, generator)).sqrt()
    if isinstance(kernel, RationalQuadratic):  # a Gamma mixture of Gaussians
        mixture = float(number(kernel, "mixture", normal))
        return normal * (_chi_squared(2.0 * mixture, m, generator) / (2.0 * mixture)).sqrt()
    if not orthogonal:
        return normal
    blocks = []
    for _ in range(-(-m // d)):
        rotation = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64)).Q
        lengths = torch.randn(d, d, generator=generator, dtype=torch.float64).norm(dim=0)
        blocks.append(rotation * lengths)
    return torch.cat(blocks, 1)[:, :m]


def _chi_squared(freedom: float, m: int, generator: torch.Generator) -> Tensor:
    shape = torch.full((m,), 0.5 * freedom, dtype=torch.float64)
    return 2.0 * torch._standard_gamma(shape, generator=generator)


# -- herding ----------------------------------------------------------------------------------------------------------
def herd(embedding: Embedding, n_samples: int = 10, *, candidates: Any | None = None) -> Any:
    """Samples that represent a distribution better than random ones: kernel herding (Chen, Welling & Smola, 2010).

    Chooses y_1, y_2, … one after the other, each where μ(y) − 1/(t + 1) Σ_{s≤t} l(y, y_s) is greatest: so the mean of
    the l(·, y_s) approaches μ in the RKHS of l.

    Parameters
    ----------
    embedding : Embedding
        One element μ: of ``mean_embedding``, or one row of ``ConditionalMeanEmbedding.embedding``.
    n_samples : int, default=10
        How many; a candidate may be chosen more than once.
    candidates : data, default=None
        Where to look; None: the samples that the embedding is made of.

    Returns
    -------
    samples : ndarray of shape (n_samples, n_features), or list
        Of the kind of the candidates.

    Examples
    --------
    >>> import numpy as np
    >>> from representer import herd, mean_embedding
    >>> Y = np.random.default_rng(0).normal(size=(500, 1))
    >>> samples = herd(mean_embedding(Y), 20)
    >>> bool(abs(samples.mean()) < 0.1), bool(abs(samples.std() - 1) < 0.2)
    (True, True)
    """
    if len(embedding.weights) != 1:
        raise ValueError(
            f"herd takes one element; the embedding has {len(embedding.weights)}. Choose one: embedding[i]."
        )
    if not is_count(n_samples):
        raise ValueError(f"n_samples must be a positive integer; got {n_samples!r}.")
    kernel = embedding.kernel
    points = embedding.anchors if candidates is None else kernel.prepare(candidates)

    def similar(index: Tensor) -> Tensor:
        return kernel._gram(take(points, index), points)

    chosen = take(points, herd_rows(embedding(points), similar, n_samples)[0])
    return chosen.cpu().numpy() if isinstance(chosen, Tensor) else chosen


def herd_rows(values: Tensor, similar: Callable[[Tensor], Tensor], n_samples: int) -> Tensor:
    """Herding of q elements at once: the numbers (q, n_samples) of the candidates that are chosen.

    ``values`` (q, m) are the elements at the candidates; ``similar`` maps q numbers to their rows of the Gram matrix.
    """
    sums, chosen = torch.zeros_like(values), []
    for t in range(n_samples):
        best = ((t + 1) * values - sums).argmax(-1)
        chosen.append(best)
        sums = sums + similar(best).to(sums)
    return torch.stack(chosen, -1)
