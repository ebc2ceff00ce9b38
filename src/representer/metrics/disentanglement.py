"""Disentanglement: does each code answer to one factor of variation, and each factor to one code?

Codes are a matrix (n_samples, n_codes) of numbers, factors a matrix (n_samples, n_factors) with few values in a column.
No score changes, beyond rounding, if codes are reordered, shifted or multiplied by a common positive number (``dci``
with a fixed ``random_state``). The scores are estimates from the samples, and too high where a value of a factor has
only a handful of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.metrics import balanced_accuracy_score, r2_score
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.tree import DecisionTreeClassifier

from representer.values import COUNT, as_floats, is_real, is_whole

# The share of a bin within which codes are equal: the rounding of single precision.
EDGE = 1e-6


def irs(codes: npt.ArrayLike, factors: npt.ArrayLike, *, quantile: float = 0.99) -> float:
    """The interventional robustness score (Suter et al., 2019).

    While one factor is kept, how far do interventions on all others move a code from its mean? The distance is a
    quantile over the samples of each value of the factor, averaged over the values. The robustness of a code is one
    minus this distance in units of the code's largest deviation, for the factor where it is highest. The score is the
    mean over codes, weighted by their largest deviations; constant codes do not count.

    Parameters
    ----------
    codes : array-like of shape (n_samples, n_codes)
        The learned codes.
    factors : array-like of shape (n_samples, n_factors)
        The factors of variation; all combinations of their values should be about equally frequent.
    quantile : float, default=0.99
        The quantile of the distances; 1 is the largest distance, as published, 0.99 that of public implementations.

    Returns
    -------
    score : float
        Between 0 and 1: 1 if each code is a function of one factor. A value that only one sample has counts as
        perfectly robust, so that small samples flatter.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.metrics import irs
    >>> factors = np.array([[a, b] for a in range(4) for b in range(4)])
    >>> irs(factors, factors), irs(factors.sum(1, keepdims=True), factors)
    (1.0, 0.5)
    """
    Z, F = _checked(codes, factors)
    if not (is_real(quantile) and 0.0 < quantile <= 1.0):
        raise ValueError(f"quantile must be above 0 and at most 1; got {quantile!r}.")
    Z = Z / max(np.abs(Z).max(), np.finfo(float).tiny)  # sums of deviations neither overflow nor vanish
    largest = np.abs(Z - Z.mean(0)).max(0)
    Z, largest = Z[:, largest > 0], largest[largest > 0]
    if not len(largest):
        return 0.0
    moved = np.empty((F.shape[1], len(largest)))
    for row, factor in zip(moved, F.T, strict=True):
        groups = [Z[factor == value] for value in np.unique(factor)]
        row[:] = np.mean([np.quantile(np.abs(g - g.mean(0)), quantile, axis=0) for g in groups], axis=0)
    return float(np.average(np.clip(1.0 - moved / largest, 0.0, 1.0).max(0), weights=largest))


def mig(codes: npt.ArrayLike, factors: npt.ArrayLike, *, n_bins: int = 20) -> float:
    """The mutual information gap (Chen et al., 2018).

    It is the mean over factors v of (I(z₁, v) − I(z₂, v)) / H(v), where z₁ and z₂ are the two codes with the largest
    mutual information with v.

    Parameters
    ----------
    codes, factors
        As for ``irs``, with at least 2 codes.
    n_bins : int, default=20
        The number of bins of equal width into which each code is sorted.

    Returns
    -------
    score : float
        Between 0 and 1: 1 if each factor is a function of one code and independent of the others.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.metrics import mig
    >>> factors = np.array([[a, b] for a in range(4) for b in range(4)])
    >>> round(mig(factors, factors), 6), round(mig(factors[:, [0, 0]], factors), 6)
    (1.0, 0.0)
    """
    Z, F = _checked(codes, factors, min_codes=2)
    Z = _binned(Z, n_bins)
    gaps = []
    for factor in F.T:
        entropy = _entropy(factor)
        second, first = np.sort([_entropy(z) + entropy - _entropy(z, factor) for z in Z.T])[-2:]
        gaps.append((first - second) / entropy)
    return float(np.mean(gaps))


def sap(codes: npt.ArrayLike, factors: npt.ArrayLike, *, categorical: Sequence[int] = ()) -> float:
    """The separated attribute predictability (Kumar et al., 2018).

    It is the mean over factors of the gap between the two codes that predict the factor best: by a line (R²) if its
    values are numbers, by thresholds (balanced accuracy) if they are names.

    Parameters
    ----------
    codes, factors
        As for ``irs``, with at least 2 codes.
    categorical : sequence of int, default=()
        The factors whose values are names.

    Returns
    -------
    score : float
        Between 0 and 1. A factor of c names adds at most 1 − 1/c, the gap to a code that guesses.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.metrics import sap
    >>> factors = np.array([[a, b] for a in range(4) for b in range(4)])
    >>> round(sap(factors, factors), 6), round(sap(factors, factors, categorical=[0, 1]), 6)
    (1.0, 0.75)
    """
    Z, F = _checked(codes, factors, min_codes=2)
    named = _named(categorical, F.shape[1])
    gaps = []
    for j, factor in enumerate(F.T):
        score = _threshold_accuracies(Z, factor) if named[j] else _squared_correlations(Z, _values(factor, j))
        second, first = np.sort(score)[-2:]
        gaps.append(first - second)
    return float(np.mean(gaps))


@dataclass(frozen=True)
class DCI:
    """Disentanglement, completeness and informativeness.

    Attributes
    ----------
    disentanglement : float
        Does a code matter to one factor only? One minus the entropy of its importances for the factors, as a mean over
        codes that is weighted by their importance.
    completeness : float
        Is a factor known from one code only? The mean over factors of one minus the entropy of importances of codes.
    informativeness : float
        Can factors be predicted from codes? The mean over factors of R², or balanced accuracy, on held-out halves.
    importance : ndarray of shape (n_codes, n_factors)
        The importance of each code for each factor; columns sum to 1.
    """

    disentanglement: float
    completeness: float
    informativeness: float
    importance: np.ndarray


def dci(
    codes: npt.ArrayLike,
    factors: npt.ArrayLike,
    *,
    categorical: Sequence[int] = (),
    n_trees: int = 50,
    random_state: int | None = None,
) -> DCI:
    """Disentanglement, completeness and informativeness (Eastwood and Williams, 2018), by random forests.

    Parameters
    ----------
    codes, factors
        As for ``irs``, with at least 2 of each.
    categorical : sequence of int, default=()
        The factors whose values are names.
    n_trees : int, default=50
        The number of trees in each forest; there is one forest for each factor.
    random_state : int or None, default=None
        The seed of the forests and of the halves.

    Returns
    -------
    scores : DCI
        Three numbers, at most 1 each, and the importances behind them.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.metrics import dci
    >>> factors = np.array([[a, b] for a in range(8) for b in range(8)])
    >>> scores = dci(factors, factors, random_state=0)
    >>> min(scores.disentanglement, scores.completeness, scores.informativeness) > 0.8
    True
    """
    Z, F = _checked(codes, factors, min_codes=2, min_factors=2)
    COUNT("n_trees", n_trees)
    named = _named(categorical, F.shape[1])
    if len(Z) < 4:
        raise ValueError(f"Halves of the samples are held out: at least 4 are needed; got {len(Z)}.")
    # Forests round to single precision and break ties by the order of columns: a common range and order remove both.
    Z = _unit_range(Z)
    order = np.lexsort(Z)
    Z = Z[:, order]
    halves = KFold(2, shuffle=True, random_state=random_state)
    importance = np.zeros((Z.shape[1], F.shape[1]))
    scores = []
    for j, factor in enumerate(F.T):
        forest: type[RandomForestClassifier | RandomForestRegressor] = (
            RandomForestClassifier if named[j] else RandomForestRegressor
        )
        model = forest(n_trees, max_features=1.0, random_state=random_state)
        factor = factor if named[j] else _values(factor, j)
        importance[order, j] = model.fit(Z, factor).feature_importances_
        score = balanced_accuracy_score if named[j] else r2_score
        scores.append(score(factor, cross_val_predict(model, Z, factor, cv=halves)))
    by_code = importance.sum(1)
    return DCI(
        float(np.average(_concentration(importance), weights=by_code)) if by_code.any() else 0.0,
        float(_concentration(importance.T).mean()),
        float(np.mean(scores)),
        importance,
    )


def windin(codes: npt.ArrayLike, *, n_bins: int = 10) -> float:
    """The weighted informativeness and independence of codes (Do and Tran, 2020), which needs no factors.

    It is Σ_i ρ_i (I(x, z_i) − I(z_i, z_≠i)) with ρ_i = I(x, z_i) / Σ_j I(x, z_j): the information of code i about the
    input x, less that of all other codes about code i, in a weighted mean. Codes are functions of the input here,
    sorted into bins, so that I(x, z_i) is the entropy of z_i, and the difference is H(z) − H(z_≠i).

    Parameters
    ----------
    codes : array-like of shape (n_samples, n_codes)
        The learned codes.
    n_bins : int, default=10
        The number of bins of equal width into which each code is sorted.

    Returns
    -------
    score : float
        In nats, between 0 and log(n_bins). Entropies are estimated from the sample: where almost every sample already
        has its own combination of bins of the other codes, code i adds nothing, and the score is near 0. Compare only
        equally many codes, on samples of the same size, with the same bins.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.metrics import windin
    >>> codes = np.array([[a, b] for a in range(4) for b in range(4)])
    >>> round(float(windin(codes) / np.log(4)), 6), windin(codes[:, [0, 0]])
    (1.0, 0.0)
    """
    Z = _binned(_numbers(codes), n_bins)
    entropies = np.array([_entropy(z) for z in Z.T])
    if not entropies.any():
        return 0.0
    others = np.array([_entropy(*np.delete(Z, i, axis=1).T) for i in range(Z.shape[1])])
    return float(max(np.average(_entropy(*Z.T) - others, weights=entropies), 0.0))


# -- checks, bins, entropies and predictors ---------------------------------------------------------------------------
def _checked(
    codes: npt.ArrayLike, factors: npt.ArrayLike, *, min_codes: int = 1, min_factors: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Codes as numbers, and factors with at least two values, of as many samples; an error otherwise."""
    Z, F = _numbers(codes), np.asarray(factors)
    if F.ndim != 2 or len(F) != len(Z):
        raise ValueError(f"factors must be a matrix with one row a sample, ({len(Z)}, n_factors); got shape {F.shape}.")
    if Z.shape[1] < min_codes or F.shape[1] < max(min_factors, 1):
        raise ValueError(
            f"At least {min_codes} codes and {min_factors} factors are compared; got {Z.shape[1]} and {F.shape[1]}."
        )
    if F.dtype.kind in "fc" and not np.isfinite(F).all():
        raise ValueError("factors must not be NaN or infinite.")
    if F.dtype == object and any(value is None or value != value for value in F.flat):
        raise ValueError("factors must not hold None or NaN.")
    for j, factor in enumerate(F.T):
        values = len(np.unique(factor))
        if values == 1:
            raise ValueError(f"Factor {j} does not vary; leave it out.")
        if values == len(F) and len(F) > 2:
            raise ValueError(
                f"Factor {j} has another value for every sample; sort it into a few values (numpy.digitize) first."
            )
    return Z, F


def _numbers(codes: npt.ArrayLike) -> np.ndarray:
    """Codes as a matrix of finite numbers."""
    Z = as_floats(codes, "codes")
    if Z.ndim != 2 or 0 in Z.shape:
        raise ValueError(f"codes must be a matrix (n_samples, n_codes) that is not empty; got shape {Z.shape}.")
    if not np.isfinite(Z).all():
        raise ValueError("codes must not be NaN or infinite.")
    return Z


def _named(categorical: Sequence[int], n_factors: int) -> np.ndarray:
    """A mask of the factors whose values are names rather than numbers."""
    named = np.zeros(n_factors, dtype=bool)
    for j in categorical if np.ndim(categorical) == 1 else [None]:
        if not (is_whole(j) and j < n_factors):
            raise ValueError(
                f"categorical must be a list of factors by their number, from 0 to {n_factors - 1}; got "
                f"{categorical!r}. (numpy.flatnonzero makes one of a mask.)"
            )
        named[j] = True
    return named


def _values(factor: np.ndarray, j: int) -> np.ndarray:
    """The values of a factor as numbers."""
    try:
        return factor.astype(float)
    except ValueError as error:
        raise ValueError(f"Factor {j} holds names; list it in categorical=.") from error


def _binned(Z: np.ndarray, n_bins: int) -> np.ndarray:
    """The bin of each code, of equal width between its smallest and largest value."""
    COUNT("n_bins", n_bins)
    share = _unit_range(Z)
    # A code at an edge, up to rounding, belongs to the bin above it, so that shifts and scales change no bin.
    return np.minimum((share * n_bins + EDGE).astype(int), n_bins - 1)


def _unit_range(Z: np.ndarray) -> np.ndarray:
    """Codes on the range from 0 to 1, constant codes at 0; halves are subtracted, which cannot overflow."""
    low, width = Z.min(0) / 2.0, Z.max(0) / 2.0 - Z.min(0) / 2.0
    return (Z / 2.0 - low) / np.where(width > 0, width, 1.0)


def _entropy(*columns: np.ndarray) -> float:
    """The entropy H of the joint distribution of columns of values, in nats; 0 for no columns."""
    joint = np.zeros(len(columns[0]) if columns else 1, dtype=int)
    for column in columns:
        _, values = np.unique(column, return_inverse=True)
        _, joint = np.unique(joint * (values.max() + 1) + values, return_inverse=True)
    p = np.bincount(joint) / len(joint)
    return float(-(p * np.log(p)).sum())


def _squared_correlations(Z: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """R² of a line from each code to the factor; 0 for a constant code."""
    Z, v = _unit_range(Z), _unit_range(factor[:, None])[:, 0]
    Z, v = Z - Z.mean(0), v - v.mean()
    scale = (Z**2).sum(0) * (v @ v)
    return (v @ Z) ** 2 / np.where(scale > 0, scale, 1.0)


def _threshold_accuracies(Z: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """The balanced accuracy with which each code predicts names, by one interval for each name."""
    Z, n_names = _unit_range(Z), len(np.unique(factor))
    tree = DecisionTreeClassifier(max_leaf_nodes=n_names, class_weight="balanced", random_state=0)
    return np.array([balanced_accuracy_score(factor, tree.fit(z, factor).predict(z)) for z in Z.T[:, :, None]])


def _concentration(importance: np.ndarray) -> np.ndarray:
    """One minus the entropy of each row, in units of that of equal entries: 1 if only one entry is not zero."""
    total = importance.sum(1, keepdims=True)
    p = importance / np.where(total > 0, total, 1.0)
    logarithm = np.log(np.where(p > 0, p, 1.0)) / np.log(importance.shape[1])
    return np.where(total[:, 0] > 0, 1.0 + (p * logarithm).sum(1), 0.0)
