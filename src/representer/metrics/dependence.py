"""Dependence of two variables, alone or given a third, measured and tested by kernels on each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import eigh

from representer.kernels import Kernel, as_kernel
from representer.metrics.distributions import KernelTest
from representer.samples import Data, count
from representer.values import COUNT, argument_repr, as_generator

if TYPE_CHECKING:
    from representer.estimators import ConditionalMeanEmbedding

# Candidate ridges of the regressions on the third variable, as multiples of the mean eigenvalue of its kernel.
RIDGES = np.geomspace(1e-5, 1e1, 25)


def hsic(
    X: Data, Y: Data, kernel: Kernel | str = "rbf", output_kernel: Kernel | str = "rbf", *, unbiased: bool = False
) -> float:
    """The Hilbert-Schmidt independence criterion ‖C_XY‖² of paired samples (Gretton et al., 2005; Song et al., 2012).

    It is the squared MMD between the joint distribution and the product of the marginal ones; with characteristic
    kernels such as ``"rbf"`` it is zero in the limit if and only if X and Y are independent.

    Parameters
    ----------
    X, Y : data
        Paired samples, as many of each, of the kinds that the kernels take.
    kernel, output_kernel : Kernel or str, default="rbf"
        Kernels of X and Y; words in them get their numbers from the samples. ``"precomputed"``: X or Y is a Gram
        matrix.
    unbiased : bool, default=False
        True: the U-statistic, which is zero on average under independence and may be negative; needs 4 samples.

    Returns
    -------
    criterion : float
        The larger, the more dependent; its unit is the product of the kernels' units.

    Examples
    --------
    >>> from representer.metrics import hsic
    >>> from representer.kernels import Linear
    >>> hsic([[0.0], [1.0]], [[0.0], [2.0]], Linear(), Linear())  # the squared covariance
    0.25
    """
    K, L = _paired_grams((X, kernel), (Y, output_kernel))
    n = len(K)
    if not unbiased:
        return float((_centred(K) * L).sum()) / n**2
    if n < 4:
        raise ValueError(f"The unbiased estimate needs at least 4 samples; got {n}.")
    K, L = K - np.diag(K.diagonal()), L - np.diag(L.diagonal())
    pairs, sums = (K * L).sum(), K.sum() * L.sum() / ((n - 1) * (n - 2))
    return float(pairs + sums - 2.0 * K.sum(0) @ L.sum(0) / (n - 2)) / (n * (n - 3))


def hsic_test(
    X: Data,
    Y: Data,
    kernel: Kernel | str = "rbf",
    output_kernel: Kernel | str = "rbf",
    *,
    n_permutations: int = 500,
    random_state: int | None = None,
) -> KernelTest:
    """Test whether X and Y are independent, by permutations of Y: valid at any sample size.

    Parameters
    ----------
    X, Y, kernel, output_kernel
        As for ``hsic``.
    n_permutations : int, default=500
        The number of permutations; the smallest p-value is 1/(n_permutations + 1).
    random_state : int or None, default=None
        The seed of the permutations.

    Returns
    -------
    test : KernelTest
        Statistic (``hsic``) and p-value.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.metrics import hsic_test
    >>> x, noise = np.random.default_rng(0).normal(size=(2, 100, 1))
    >>> hsic_test(x, x**2 + noise, random_state=0).p_value < 0.01  # uncorrelated, but not independent
    True
    """
    COUNT("n_permutations", n_permutations)
    K, L = _paired_grams((X, kernel), (Y, output_kernel))
    n, rng = len(K), as_generator(random_state)
    K = _centred(K) / n**2
    orders = [np.arange(n)] + [rng.permutation(n) for _ in range(n_permutations)]
    return KernelTest.of(np.array([(K * L[np.ix_(order, order)]).sum() for order in orders]))


def conditional_independence_test(
    X: Data,
    Y: Data,
    Z: Data,
    kernels: Kernel | str | tuple[Kernel | str, Kernel | str, Kernel | str] = "rbf",
    *,
    n_permutations: int = 500,
    random_state: int | None = None,
) -> KernelTest:
    """Test whether X and Y are independent given Z (Zhang et al., 2011).

    The features of (X, Z) and of Y are regressed on Z by kernel ridge regressions with the ridges of least
    leave-one-out error. The statistic is the HSIC of the residuals; random signs of their products give its
    distribution by chance. The p-value is right in the limit of many samples, if the regressions remove all that Z
    explains; otherwise it is too small.

    Parameters
    ----------
    X, Y, Z : data
        Samples that belong together, as many of each.
    kernels : Kernel, str or three of these, default="rbf"
        The kernels of X, Y and Z.
    n_permutations : int, default=500
        The number of draws of signs.
    random_state : int or None, default=None
        The seed of the signs.

    Returns
    -------
    test : KernelTest
        Statistic and p-value.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.metrics import conditional_independence_test, hsic_test
    >>> z, one, two = np.random.default_rng(0).normal(size=(3, 150, 1))
    >>> x, y = z + 0.5 * one, z**2 + 0.5 * two
    >>> hsic_test(x, y, random_state=0).p_value < 0.01  # through z alone
    True
    >>> conditional_independence_test(x, y, z, random_state=0).p_value > 0.05
    True
    """
    COUNT("n_permutations", n_permutations)
    kernels = kernels if isinstance(kernels, tuple) else (kernels,) * 3
    if len(kernels) != 3:
        raise ValueError(f"kernels must be one kernel, or three: of X, Y and Z; got {len(kernels)}.")
    K, L, M = _paired_grams((X, kernels[0]), (Y, kernels[1]), (Z, kernels[2]))
    residuals = [_residual_gram(_centred(gram), _centred(M)) for gram in (K * M, L)]
    products = residuals[0] * residuals[1] / len(K) ** 2
    signs = as_generator(random_state).choice([-1.0, 1.0], size=(n_permutations + 1, len(K)))
    signs[0] = 1.0
    return KernelTest.of(((signs @ products) * signs).sum(1))


def conditional_mmd(one: ConditionalMeanEmbedding, two: ConditionalMeanEmbedding, X: Data) -> np.ndarray:
    """The distances ‖μ_x − ν_x‖ of two conditional distributions of Y at the inputs x (Park & Muandet, 2020).

    Parameters
    ----------
    one, two : ConditionalMeanEmbedding
        Two fitted models whose output kernels are equal, with numbers: ``output_kernel=Gaussian(1.0)``, say.
    X : array-like of shape (n_queries, n_features), or a sequence of what the kernels take
        The inputs at which the distributions are compared.

    Returns
    -------
    distances : ndarray of shape (n_queries,)
        One for each input.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.base import clone
    >>> from representer import ConditionalMeanEmbedding
    >>> from representer.kernels import Gaussian
    >>> from representer.metrics import conditional_mmd
    >>> rng = np.random.default_rng(0)
    >>> X, noise = rng.uniform(-1, 1, size=(200, 1)), 0.1 * rng.normal(size=200)
    >>> model = ConditionalMeanEmbedding("rbf", Gaussian(0.5))
    >>> before, after = clone(model).fit(X, noise), clone(model).fit(X, X[:, 0] + noise)
    >>> same, other = conditional_mmd(before, after, [[0.0], [0.9]])
    >>> bool(same < 0.2 < 0.6 < other)
    True
    """
    for name, model in (("one", one), ("two", two)):
        if not hasattr(model, "embedding"):
            raise TypeError(f"{name} must be a fitted ConditionalMeanEmbedding; got {argument_repr(model):.60}.")
    first, second = one.embedding(X), two.embedding(X)
    cross = (first(second.anchors) * second.weights).sum(-1) if first.kernel == second.kernel else first.inner(second)
    squares = first.squared_norms() + second.squared_norms() - 2.0 * cross
    return squares.clamp(min=0.0).sqrt().detach().cpu().numpy()


def _paired_grams(*variables: tuple[Data, Kernel | str]) -> list[np.ndarray]:
    """The Gram matrices of variables that were observed together."""
    grams = []
    for samples, word in variables:
        kernel = as_kernel(word)
        prepared = kernel.prepare(samples)
        grams.append(kernel.resolve(prepared)(prepared).detach().cpu().numpy().astype(np.float64))
        if len(grams[-1]) != len(grams[0]):
            raise ValueError(
                f"Each sample of one variable belongs to one of the other: got {len(grams[0])} and {count(prepared)}."
            )
    if len(grams[0]) < 2:
        raise ValueError("Dependence needs at least 2 samples; got 1.")
    return grams


def _centred(gram: np.ndarray) -> np.ndarray:
    """The Gram matrix of features minus their mean."""
    return gram - gram.mean(0) - gram.mean(1)[:, None] + gram.mean()


def _residual_gram(gram: np.ndarray, condition_gram: np.ndarray) -> np.ndarray:
    """The Gram matrix of the residuals of features after a ridge regression on the features of the condition.

    Both matrices are centred. With R = λ(M + λ)⁻¹ it is R K R, and the leave-one-out residual of sample i has the
    squared norm (RKR)_ii / R_ii².
    """
    values, vectors = eigh(condition_gram)
    values = np.maximum(values, 0.0)
    best, least = gram, np.inf
    for ridge in RIDGES * max(values.mean(), np.finfo(float).tiny):
        R = (vectors * (ridge / (values + ridge))) @ vectors.T
        residual = R @ gram @ R
        error = float((residual.diagonal() / R.diagonal() ** 2).mean())
        if error < least:
            best, least = residual, error
    return best
