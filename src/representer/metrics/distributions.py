"""Distances between distributions, and the reliability of predicted probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from representer.kernels import Kernel, as_kernel
from representer.samples import Data, count, same_features
from representer.values import COUNT, as_floats, as_generator


# -- maximum mean discrepancy -----------------------------------------------------------------------------------------
def mmd(X: Data, Y: Data, kernel: Kernel | str = "rbf", *, unbiased: bool = False) -> float:
    """The maximum mean discrepancy of two samples: the distance of their mean embeddings.

    Parameters
    ----------
    X, Y : data
        Two samples of the kind that the kernel takes.
    kernel : Kernel or str, default="rbf"
        The kernel; a word in it (``"median"``) gets its number from both samples together.
    unbiased : bool, default=False
        False: ‖μ_X − μ_Y‖. True: the *squared* distance without the terms k(x, x), which is zero on average if both
        samples come from the same distribution, and may be negative.

    Returns
    -------
    distance : float
        The discrepancy; squared if ``unbiased``.

    Examples
    --------
    >>> from representer import mmd
    >>> from representer.kernels import Linear
    >>> mmd([[0.0], [2.0]], [[4.0]], Linear())
    3.0
    """
    gram, m = _joint_gram(X, Y, kernel)
    labels = np.zeros((1, len(gram)))
    labels[:, :m] = 1.0
    if unbiased and min(m, len(gram) - m) < 2:
        raise ValueError("The unbiased estimate needs at least 2 samples of each distribution; got 1.")
    (squared,) = _discrepancies(gram, labels, unbiased=unbiased)
    return float(squared) if unbiased else float(max(squared, 0.0) ** 0.5)


@dataclass(frozen=True)
class KernelTest:
    """The outcome of a test by resampling.

    Attributes
    ----------
    statistic : float
        The estimate of MMD² without bias, or of HSIC.
    p_value : float
        The share of statistics, ``statistic`` itself and the resampled ones, that are at least as large.
    null : ndarray of shape (n_permutations,)
        The resampled statistics.
    """

    statistic: float
    p_value: float
    null: np.ndarray

    @classmethod
    def of(cls, statistics: np.ndarray) -> KernelTest:
        """The test of the first statistic against the others, which were resampled under the null hypothesis.

        Permutations that only exchange equal samples must count as ties, whatever the rounding.
        """
        rounding = 1e-12 * max(1.0, float(np.abs(statistics).max()))
        p_value = float(np.mean(statistics >= statistics[0] - rounding))
        return cls(float(statistics[0]), p_value, statistics[1:])


def mmd_test(
    X: Data,
    Y: Data,
    kernel: Kernel | str = "rbf",
    *,
    n_permutations: int = 500,
    random_state: int | None = None,
) -> KernelTest:
    """Test whether two samples come from the same distribution (Gretton et al., 2012), by permutations.

    Parameters
    ----------
    X, Y : data
        Two samples of at least 2 each.
    kernel : Kernel or str, default="rbf"
        As for ``mmd``.
    n_permutations : int, default=500
        The number of permutations; the smallest p-value is 1/(n_permutations + 1).
    random_state : int or None, default=None
        The seed of the permutations.

    Returns
    -------
    test : KernelTest
        Statistic and p-value, which is valid at any sample size.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.metrics import mmd_test
    >>> rng = np.random.default_rng(0)
    >>> X, same, other = rng.normal(size=(3, 80, 2)) * [[[1]], [[1]], [[2]]]
    >>> mmd_test(X, same, random_state=0).p_value > 0.05, mmd_test(X, other, random_state=0).p_value < 0.01
    (True, True)
    """
    COUNT("n_permutations", n_permutations)
    gram, m = _joint_gram(X, Y, kernel)
    n = len(gram)
    if min(m, n - m) < 2:
        raise ValueError(f"The test needs at least 2 samples of each distribution; got {m} and {n - m}.")
    rng = as_generator(random_state)
    labels = np.zeros((n_permutations + 1, n))
    labels[0, :m] = 1.0
    for row in labels[1:]:
        row[rng.permutation(n)[:m]] = 1.0
    return KernelTest.of(_discrepancies(gram, labels, unbiased=True))


def _joint_gram(X: Data, Y: Data, kernel: Kernel | str) -> tuple[np.ndarray, int]:
    """The Gram matrix of both samples together, and the size of the first."""
    k = as_kernel(kernel)
    if k.domain == "gram":
        raise ValueError(
            "A precomputed kernel has no samples; pass a kernel that can be evaluated (Callable wraps any function)."
        )
    X, Y = k.prepare(X), k.prepare(Y)
    vectors = isinstance(X, Tensor) and isinstance(Y, Tensor)
    both: Data = torch.cat(same_features(X, Y)) if vectors else [*X, *Y]
    return k(both).detach().cpu().numpy(), count(X)


def _discrepancies(gram: np.ndarray, labels: np.ndarray, *, unbiased: bool) -> np.ndarray:
    """MMD² for each row of labels, which are 1 in the first sample and 0 in the second."""
    m, n = labels[0].sum(), (1.0 - labels[0]).sum()
    first = labels @ gram
    total = gram.sum(0)
    xx = (first * labels).sum(1)
    xy = (first * (1.0 - labels)).sum(1)
    yy = ((total - first) * (1.0 - labels)).sum(1)
    if not unbiased:
        return xx / m**2 + yy / n**2 - 2.0 * xy / (m * n)
    x_diagonal = labels @ gram.diagonal()
    y_diagonal = gram.trace() - x_diagonal
    return (xx - x_diagonal) / (m * (m - 1)) + (yy - y_diagonal) / (n * (n - 1)) - 2.0 * xy / (m * n)


# -- calibration ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Reliability:
    """The accuracy of predictions in bins of their confidence.

    Attributes
    ----------
    confidence, accuracy, share : ndarray of shape (n_bins,)
        Mean confidence and accuracy in each bin of confidence, NaN in an empty one, and its share of the samples.
    """

    confidence: np.ndarray
    accuracy: np.ndarray
    share: np.ndarray

    @property
    def error(self) -> float:
        """The expected calibration error Σ_b share_b |accuracy_b − confidence_b|."""
        return float(np.nansum(self.share * np.abs(self.accuracy - self.confidence)))


def reliability_curve(
    y: npt.ArrayLike, probabilities: npt.ArrayLike, classes: npt.ArrayLike | None = None, *, n_bins: int = 10
) -> Reliability:
    """The accuracy of the most probable class against the confidence in it, in bins of equal width.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        The true labels.
    probabilities : array-like of shape (n_samples, n_classes)
        Predicted probabilities.
    classes : array-like of shape (n_classes,), default=None
        The label of each column; None: the sorted labels of y.
    n_bins : int, default=10
        The number of bins of confidence.

    Returns
    -------
    curve : Reliability
        The curve; its ``error`` is the expected calibration error.

    Examples
    --------
    >>> from representer.metrics import reliability_curve
    >>> round(reliability_curve([0, 1], [[0.9, 0.1], [0.4, 0.6]]).error, 3)
    0.25
    """
    truth, p, labels = class_places(y, probabilities, classes)
    COUNT("n_bins", n_bins)
    confidence, right = p.max(1), labels[p.argmax(1)] == truth
    bins = np.minimum((confidence * n_bins).astype(int), n_bins - 1)
    sizes = np.bincount(bins, minlength=n_bins)
    with np.errstate(invalid="ignore"):
        means = [np.bincount(bins, values, n_bins) / sizes for values in (confidence, right)]
    return Reliability(means[0], means[1], sizes / len(truth))


def class_places(
    y: npt.ArrayLike, probabilities: npt.ArrayLike, classes: npt.ArrayLike | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, probabilities and the label of each column, of matching shapes."""
    truth, p = _labels("y", y), as_floats(probabilities, "probabilities")
    labels = _labels("classes", np.unique(truth) if classes is None else classes)
    if p.ndim != 2 or p.shape != (len(truth), len(labels)):
        raise ValueError(
            f"probabilities must have shape (n_samples, n_classes) = ({len(truth)}, {len(labels)}); got {p.shape}. "
            "Pass classes= if y lacks some of them."
        )
    return truth, p, labels


def _labels(name: str, labels: npt.ArrayLike) -> np.ndarray:
    """Labels (n,) of one kind."""
    try:
        array = np.asarray(labels)
        np.unique(array)
    except (TypeError, ValueError) as error:  # labels that have no order, or rows of different lengths
        raise ValueError(f"{name} must hold numbers or texts, one label a sample ({error}).") from error
    if array.ndim != 1:
        raise ValueError(f"{name} must have one label a sample, an array of shape (n,); got shape {array.shape}.")
    return array


def expected_calibration_error(
    y: npt.ArrayLike, probabilities: npt.ArrayLike, classes: npt.ArrayLike | None = None, *, n_bins: int = 10
) -> float:
    """The expected calibration error: the mean gap between confidence and accuracy over bins of confidence.

    Parameters
    ----------
    y, probabilities, classes, n_bins
        As for ``reliability_curve``.

    Returns
    -------
    error : float
        Between 0 and 1.

    Examples
    --------
    >>> from representer.metrics import expected_calibration_error
    >>> round(expected_calibration_error([0, 1], [[0.9, 0.1], [0.4, 0.6]]), 3)
    0.25
    """
    return reliability_curve(y, probabilities, classes, n_bins=n_bins).error
