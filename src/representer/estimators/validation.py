"""What learners accept: data of the kernel's kind, targets, weights, options; and what they say otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning, UndefinedMetricWarning
from sklearn.utils import assert_all_finite, check_array, check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _num_samples, column_or_1d, validate_data

from representer.approximation import Approximation, check_bare
from representer.kernels import (
    Domain,
    Kernel,
    Stack,
    is_frame,
    refuse_flat,
    refuse_masked,
    refuse_non_numbers,
    refuse_pictures,
    refuse_unordered,
    warn_of_unknown,
)
from representer.linalg import as_bytes
from representer.notices import relayed, warn
from representer.operators import OperatorKernel, takes_gaps, takes_sparse
from representer.optimize import as_seconds
from representer.samples import (
    SQUARED_SIZES,
    Data,
    Folds,
    Records,
    SparseRows,
    Splitter,
    as_items,
    as_records,
    as_rows,
    check_classes,
    check_gram,
    check_lengths,
    check_noise,
    finite_columns,
    is_dask,
    is_missing,
    is_single,
    one_hot_on_dask,
    plain,
    refuse_equal_names,
    refuse_sparse,
    refuse_strange_labels,
    refuse_unknown,
    remembered,
    require_dask,
    require_targets,
    target_columns,
)
from representer.values import (
    NONE,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    TRUTH,
    Rule,
    argument_repr,
    as_floats,
    instance_of,
    integer,
    is_count,
    is_real,
    one_of,
)

DTYPES = {"float64": torch.float64, "float32": torch.float32}


# Sums over samples and differences have this much room between the numbers that are taken and the ends of their range.
ROOM = 1e6


def check_inputs(
    estimator: Any,
    X: Data,
    kernel: Kernel | OperatorKernel | Stack,
    *,
    reset: bool,
    means: np.ndarray | None = None,
) -> Data:
    """Inputs of the kernel's kind: checked arrays for vectors and Gram matrices, a sequence for other objects.

    Numbers for each column of vectors, ``means``, stand in the gaps that a kernel does not take.
    """
    X, domain = plain(X), kernel.domain
    refuse_unordered(X)
    if domain in ("vectors", "gram"):
        refuse_equal_names(X)
        stated = getattr(estimator, "kernel", None)
        refuse_non_numbers(X, "X", stated)
        refuse_pictures(X, stated)
        refuse_flat(X)
        accepted = "csr" if takes_sparse(kernel) and domain == "vectors" else False
        gaps = domain == "vectors" and takes_gaps(kernel)
        finite = "allow-nan" if gaps or means is not None else True
        try:
            X = validate_data(
                estimator, X, reset=reset, dtype=np.float64, accept_sparse=accepted, ensure_all_finite=finite
            )
        except ValueError as error:
            if "Found array with 0" in str(error):
                raise ValueError(f"{error} Give at least one row of at least one number.") from error
            if "contains infinity" in str(error):
                raise ValueError(_infinity(X, domain)) from error
            if domain == "gram" or "contains NaN" not in str(error):
                raise
            with_kernel = "" if stated is None else f" with kernel={stated!r}"
            takers = "Missing(kernel), which does" if stated == "auto" else "kernel='auto' or Missing(kernel), which do"
            raise ValueError(
                f"{str(error).splitlines()[0]} {type(estimator).__name__}{with_kernel} does not take gaps: fit with "
                f"{takers}, or fill them first (sklearn.impute.SimpleImputer)."
            ) from error
        if domain == "gram" and reset:
            check_gram(X)
        if reset:
            _refuse_lost_numbers(X, getattr(estimator, "dtype", "float64"))
        if issparse(X):
            return SparseRows(X)
        if reset and hasattr(estimator, "_keep_means"):
            estimator._keep_means(X)
        if means is not None and not gaps and np.isnan(X).any():
            return np.where(np.isnan(X), means, X)
        return X
    if is_single(X) and not (domain == "records" and is_frame(X)):
        raise ValueError(
            f"Expected a list with one object for each sample; got one {type(X).__name__}, {X!r:.60}. Put a single "
            "object in a list."
        )
    if domain == "labels":
        labels = check_array(X, dtype=None, ensure_2d=False, ensure_all_finite=False)
        return validate_data(estimator, labels.reshape(len(labels), -1), reset=reset, dtype=None)
    if domain == "records":
        records = _named_columns(estimator, X, reset=reset)
        if not reset and records is not X:
            warn_of_unknown(kernel, records)
        return records
    # Of a list it would take the length of the first object for the number of features.
    if hasattr(X, "shape"):
        validate_data(estimator, X, reset=reset, skip_check_array=True)
    rows = as_items(X)
    objects = rows if isinstance(rows, np.ndarray) else list(rows)
    if len(objects) == 0:
        raise ValueError("Found 0 samples; at least one object is needed.")
    return objects


def _refuse_lost_numbers(X: Data, dtype: str) -> None:
    """Refuse rows of numbers that differ, but are zeros or have few digits in the single precision of a learner."""
    if dtype == "float64":
        return
    sizes, least = np.abs(X.data if issparse(X) else X), _least_size(dtype)
    largest = float(np.fmax.reduce(sizes, axis=None, initial=0.0))
    rows = X.toarray() if issparse(X) and 0 < largest < least else X
    if 0 < largest < least and bool((rows != rows[:1]).any()):
        raise ValueError(
            f"X holds numbers up to {largest:.3g}, and dtype={dtype!r} keeps the digits of data from {least:.0e} on. "
            "Rescale X (StandardScaler), or use dtype='float64'."
        )


def _least_size(dtype: str) -> float:
    """The least size of data whose smaller numbers keep their digits in a precision, too."""
    return float(ROOM * np.finfo(dtype).tiny)


def _infinity(X: Data, domain: Domain) -> str:
    """Where an array, a frame or a sparse matrix of numbers first holds infinity, and what to do about it."""
    if issparse(X):
        entries = X.tocoo()
        infinite = np.isinf(entries.data)
        rows, columns = entries.row[infinite], entries.col[infinite]
    else:
        rows, columns = np.nonzero(np.isinf(_numbers(X, "X")))
    first = np.lexsort((rows, columns))[0]
    names = list(getattr(X, "columns", ()))
    column = names[columns[first]] if names else int(columns[first])
    advice = "Leave those rows out, mark the entries as gaps (NaN), or cut them (numpy.clip)."
    advice = "Check how the Gram matrix was computed." if domain == "gram" else advice
    return (
        f"Input X contains infinity, first in column {column!r}, row {int(rows[first])} (in {len(np.unique(rows))} "
        f"rows altogether). {advice}"
    )


def _named_columns(estimator: Any, X: Data, *, reset: bool) -> Records:
    """Records, whose names a fit remembers; an array at predict time has the columns of the fit in their order."""
    names = getattr(estimator, "_column_names", getattr(estimator, "feature_names_in_", None))
    if not reset and names is not None and isinstance(X, np.ndarray) and X.ndim == 2:
        validate_data(estimator, X, reset=False, skip_check_array=True)
        return as_records({name: X[:, j] for j, name in enumerate(names)})
    records = as_records(X)
    if reset:
        estimator._keep_columns(records)
    return records


def check_targets(y: Data, n: int) -> tuple[np.ndarray, bool]:
    """Targets as (n, p), and whether they came as a vector; NaN marks a missing entry if there are several outputs."""
    require_targets(y)
    return target_columns(_numbers(y, "y"), n)


def _numbers(data: Data, name: str) -> np.ndarray:
    """An array of numbers of double precision, NaN where one is missing."""
    refuse_sparse(data, name)
    data = np.asarray(data) if is_dask(data) else plain(data)
    refuse_non_numbers(data, name)
    array = np.asarray(data)
    if array.dtype == object:
        array = np.where(np.frompyfunc(is_missing, 1, 1)(array).astype(bool), np.nan, array)
    return array.astype(np.float64)


def check_codes(codes: Data, name: str) -> np.ndarray:
    """Rows of finite numbers (n, m), such as codes and components."""
    rows = _numbers(codes, name)
    refuse_flat(rows, name)
    if rows.ndim != 2 or rows.size == 0:
        raise ValueError(f"{name} must have the shape (n_samples, n_components), without a 0; got {rows.shape}.")
    wrong = np.flatnonzero(~np.isfinite(rows).all(1))
    if len(wrong):
        raise ValueError(f"Input {name} contains NaN or infinity, first in row {int(wrong[0])}. Leave such rows out.")
    return rows


def check_outputs(kernel: Kernel, Y: Data, *, reset: bool, dtype: str = "float64") -> tuple[Any, bool]:
    """Outputs of an output kernel's kind, and whether vectors came as one number each.

    Those of a fit (``reset``) keep their digits in the precision of the learner, ``dtype``, or are refused.
    """
    require_targets(Y)
    Y = plain(Y)
    if kernel.domain in ("vectors", "gram"):
        objects = isinstance(Y, Iterable) and getattr(Y, "dtype", np.dtype(object)).kind == "O"
        if objects and any(isinstance(item, set | frozenset) for item in Y):
            raise ValueError(
                f"y holds sets, but {kernel!r} takes vectors. sklearn.preprocessing.MultiLabelBinarizer makes rows of "
                "zeros and ones from sets."
            )
        array = _numbers(Y, "y")
        if array.size == 0:
            raise ValueError(f"y is empty: its shape is {array.shape}. At least one output with one number is needed.")
        if array.ndim not in (1, 2):
            raise ValueError(
                f"y must have shape (n_samples,) or (n_samples, n_outputs); got {array.shape}. Pass "
                "y.reshape(len(y), -1), or an output kernel that takes such arrays."
            )
        refuse_unknown(array)
        if kernel.domain == "gram" and reset:
            check_gram(array)
        largest = float(np.abs(array).max())
        if kernel.domain == "vectors" and reset and 0 < largest < _least_size(dtype):
            raise ValueError(
                f"The largest target is {largest:.3g}: numbers so small have few digits with dtype={dtype!r}. Rescale "
                f"y (for example y / {largest:.0e})" + (", or use dtype='float64'." if dtype == "float32" else ".")
            )
        return array.reshape(len(array), -1), array.ndim == 1
    if kernel.domain == "records":
        return as_records(Y), False
    rows = Y.to_numpy() if hasattr(Y, "to_numpy") else Y
    objects = rows if isinstance(rows, np.ndarray) else list(rows)
    if len(objects) == 0:
        raise ValueError("Found 0 targets; at least one is needed.")
    return objects, False


def refuse_lost_outputs(kernel: Kernel, outputs: Data) -> None:
    """Refuse vectors with which an output kernel, such as the linear one, leaves the range of numbers."""
    if kernel.domain != "vectors" or not bool((sizes := outputs.abs()).any()):
        return
    largest, info = float(kernel._diag(outputs).max()), torch.finfo(outputs.dtype)
    if not ROOM * info.tiny < largest < info.max / ROOM:
        raise ValueError(
            f"The largest target is {float(sizes.max()):.3g}, and l(y, y) of the output kernel {kernel!r} is then "
            f"{largest:.3g}, at the end of the range of numbers of {outputs.element_size()} bytes. Rescale y: divide "
            "it by its largest absolute value before the fit."
        )


def check_weights(sample_weight: Data, X: Data) -> np.ndarray | None:
    """Non-negative sample weights, not all zero; None where all are equal to one."""
    if sample_weight is None:
        return None
    n = _num_samples(X)
    weights = np.full(n, float(sample_weight)) if is_real(sample_weight) else _numbers(sample_weight, "sample_weight")
    if weights.shape != (n,):
        raise ValueError(
            f"sample_weight must have one number for each of the {n} samples, an array of shape ({n},); got one of "
            f"shape {weights.shape}."
        )
    wrong = np.flatnonzero(~((weights >= 0) & (weights < np.inf)))
    if len(wrong):
        reason = "NaN" if np.isnan(weights[wrong[0]]) else "infinity" if weights[wrong[0]] > 0 else "negative values"
        raise ValueError(
            f"Input sample_weight contains {reason}, first in row {int(wrong[0])}. Weights are finite and at least 0, "
            "which leaves a sample out."
        )
    if not weights.max() > 0:
        raise ValueError("Sample weights must contain at least one non-zero number: there is nothing to learn from.")
    low, high = SQUARED_SIZES
    return weights if low < weights.max() < high else weights / weights.max()  # they matter up to a common factor


def check_bound(beta: object, reasons: Mapping[str, bool]) -> None:
    """Refuse a bound for a wrong probability, or where its theorem says nothing, for the first reason that holds."""
    if not (is_real(beta) and 0.0 < beta < 1.0):
        raise ValueError(f"beta must be a number between 0 and 1; got {argument_repr(beta)}.")
    for reason, holds in reasons.items():
        if holds:
            raise ValueError(f"risk_bound rests on a theorem that {reason}.")


def takes_batches(learner: Any) -> bool:
    """Is there a partial_fit? An AttributeError says why not."""
    if learner.approximation is None:
        raise AttributeError(
            "partial_fit needs approximation=Nystroem(m), Landmarks(Z), RandomFeatures(m) or TensorSketch(m): an exact "
            "fit needs all samples at once."
        )
    return True


def needs_approximation(learner: Any, kernel: Any, domain: Domain) -> None:
    """Refuse Dask collections where a fit is no sum, or where samples are no rows of numbers."""
    if learner.approximation is None:
        raise ValueError(
            f"Samples in Dask collections need approximation=Nystroem(m), or another one that {type(learner).__name__} "
            "takes: an exact fit needs all of them in one place. Call X.compute() if they fit."
        )
    if domain != "vectors":
        raise ValueError(f"Dask collections hold vectors, but {kernel!r} takes {domain}.")


def needs_vectors(kernel: Kernel | OperatorKernel | Stack) -> None:
    """Refuse to make a network of a kernel of records, which are no tensors; those of objects take lists."""
    if kernel.domain == "records":
        raise ValueError(
            "to_torch needs a kernel of vectors, and this model finds columns by their names. If all are numbers, fit "
            "it to X.to_numpy(): the function is the same, of columns in their order. Else save the model itself."
        )


def encode(X: Data, y: Data) -> tuple[np.ndarray, np.ndarray]:
    """The classes, and the position of each label among them."""
    y = as_labels(y)
    check_lengths(_num_samples(X), len(y))
    return as_classes(y, "y")


def encode_on_dask(y: Data) -> tuple[np.ndarray, Data]:
    """The classes of labels beside samples on Dask, and the one-hot labels as a Dask array."""
    require_targets(y)
    labels = as_rows(y if is_dask(y) else require_dask().array.from_array(as_labels(y), chunks=-1), "y")
    refuse_several_labels(labels, "y")
    column = labels if labels.ndim == 1 else labels[:, 0]
    if labels.ndim > 1:
        warn("y has one column where labels (n_samples,) are expected. Pass y.ravel().", DataConversionWarning)
    try:
        unique = as_labels(require_dask().array.unique(column).compute())
        # scikit-learn doubts that labels are classes if more than half of them are unique.
        classes = as_classes(np.repeat(unique, 2) if 2 * len(unique) <= len(column) else unique, "y")[0]
    except (TypeError, ValueError):  # all labels say which of them is the first wrong one
        classes = as_classes(as_labels(column.compute()), "y")[0]
    return classes, one_hot_on_dask(column, classes)


def targets_beside_dask(y: Data) -> Data:
    """Targets of samples on Dask: those in memory as a checked array of numbers, a lazy collection as it is."""
    require_targets(y)
    if is_dask(y):
        return y
    numbers, given = _numbers(y, "y"), np.asarray(plain(y))
    return given if given.dtype.kind in "biu" else numbers


def as_classes(y: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The classes that checked labels name, at least two, and the position of each label among them."""
    try:
        classes, labels = np.unique(y, return_inverse=True)
        relayed(lambda: check_classification_targets(y))
    except TypeError as error:
        kinds = ", ".join(sorted({type(label).__name__ for label in y}))
        raise TypeError(
            f"Labels must be of one kind that can be sorted; {name} has {kinds}. Convert them to str."
        ) from error
    return check_classes(classes), labels


def as_labels(y: Data, name: str = "y") -> np.ndarray:
    """Labels of classes (n,), none of which is missing."""
    require_targets(y)
    refuse_sparse(y, name)
    y = plain(y)
    refuse_masked(y, name)
    y = np.asarray(y) if hasattr(y, "__array__") and not hasattr(y, "shape") else y
    if is_single(y) or isinstance(y, Set | Iterator):
        raise TypeError(
            f"{name} should be an array with one label for each sample; got one {type(y).__name__}. Pass a list or "
            "an array."
        )
    try:
        labels = y if hasattr(y, "shape") else np.asarray(y)
    except ValueError as error:  # rows of different lengths
        raise ValueError(
            f"{name} must have one label for each sample, an array of shape (n_samples,); entries differ in "
            "length. Samples with several labels need a StructuredPredictor."
        ) from error
    refuse_several_labels(labels, name)
    if getattr(labels, "dtype", np.dtype(object)).kind == "c":
        raise ValueError(f"Complex data not supported: {name} holds {labels.dtype}. Labels are numbers or texts.")
    labels = relayed(lambda: column_or_1d(labels, warn=True))
    refuse_strange_labels(labels)
    assert_all_finite(labels, input_name="y")
    if labels.dtype == object and len(labels) and not any(isinstance(label, str) for label in labels):
        raise ValueError(
            f"Unknown label type: {name} holds objects such as a {type(labels[0]).__name__}. Labels are numbers or "
            "texts: convert them, for example by [str(label) for label in y] or y.astype(int)."
        )
    return labels


def refuse_several_labels(labels: Data, name: str) -> None:
    """Refuse an array that does not have one label for each sample."""
    if tuple(labels.shape[1:]) not in ((), (1,)):
        raise ValueError(
            f"{name} must have one label for each sample, an array of shape (n_samples,); got the shape "
            f"{labels.shape}. Of rows with a one for their class pass y.argmax(1); rows of several labels need "
            "a StructuredPredictor."
        )


def class_weights(class_weight: dict[Any, float] | str | None, classes: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """The weight of each class, from the total weight of its samples; 1 for a class that has no weight."""
    present = totals > 0
    weights = np.ones(len(classes))
    weights[present] = compute_class_weight(
        class_weight, classes=classes[present], y=classes[present], sample_weight=totals[present]
    )
    return weights


def weights_by_class(
    class_weight: dict[Any, float] | str | None, classes: np.ndarray, labels: np.ndarray, weights: np.ndarray | None
) -> np.ndarray | None:
    """The weights of samples times those of their classes; None where all are equal."""
    if class_weight is None:
        return weights
    of_classes = class_weights(class_weight, classes, np.bincount(labels, weights, len(classes)))
    return of_classes[labels] * (1.0 if weights is None else weights)


def lazy_weights_by_class(
    class_weight: dict[Any, float] | str | None, classes: np.ndarray, indicators: Data, sample_weight: Data
) -> Any:
    """``weights_by_class`` of indicators on Dask, lazily; the totals of the classes take one pass."""
    if class_weight is None:
        return sample_weight
    weights = 1.0 if sample_weight is None else sample_weight
    if hasattr(weights, "to_dask_array"):
        weights = weights.to_dask_array(lengths=True)
    column = weights if isinstance(weights, float) else weights[:, None]
    totals = (indicators * column).sum(0).compute()
    return (indicators * class_weights(class_weight, classes, totals)).sum(1) * weights


def columns_of_fit(learner: Any, X: Data) -> Data:
    """A Dask collection with the columns of the fit: those of a frame by their names, in any order, among others."""
    names = getattr(learner, "feature_names_in_", None)
    if names is not None and hasattr(X, "columns"):
        missing = [name for name in names if name not in X.columns]
        if missing:
            raise ValueError(
                f"X has no column {', '.join(map(repr, missing))}, which the fit has seen; there are: "
                f"{', '.join(map(repr, X.columns))}."
            )
        return X[list(names)]
    if X.ndim == 2 and X.shape[1] != learner.n_features_in_:
        raise ValueError(f"X has {X.shape[1]} features, but the fit has seen {learner.n_features_in_}.")
    return X


# -- arguments --------------------------------------------------------------------------------------------------------
Check = Callable[[str, Any], object]  # raises if an argument, named and given, is not what it may be


POSITIVE_OR_AUTO = Rule("positive and finite (mean loss + alpha·‖f‖²),", POSITIVE.holds) | one_of("auto")


def approximated_by(words: str, kind: type) -> Check:
    """None or an approximation of a kind, without a kernel of its own."""
    rule = NONE | instance_of(words, kind)

    def check(name: str, value: object) -> None:
        rule(name, value)
        if value is not None:
            check_bare(value)

    return check


def only_one_alpha(name: str, alpha: object) -> float | None:
    """A positive number, or None for "auto": no candidates."""
    number = check_alpha(alpha)
    if isinstance(number, np.ndarray):
        raise ValueError(
            f"{name} must be a positive number or 'auto'; got {argument_repr(alpha)}. Compare by GridSearchCV."
        )
    return number


def check_device(name: str, device: str | None) -> None:
    """A device that torch can use here."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise ValueError(
            f"{name}={device!r} is not to be had here ({error}). Use {name}=None for the processor."
        ) from error


def check_arguments(estimator: Any, rules: Mapping[str, Check]) -> None:
    """Each argument of an estimator is what its rule, if there is one, says."""
    for name, value in estimator.get_params(deep=False).items():
        if name in rules:
            rules[name](name, value)


# An argument has the same meaning in every learner that has it. A learner adds those that are its own.
ARGUMENTS: dict[str, Check] = {
    "alpha": lambda name, value: check_alpha(value),
    "class_weight": NONE
    | one_of("balanced")
    | Rule(
        "a dict from classes to weights of at least 0",
        lambda weights: isinstance(weights, dict) and all(is_real(w) and 0 <= w < math.inf for w in weights.values()),
    ),
    "approximation": approximated_by(
        "Nystroem(...), Landmarks(...), RandomFeatures(...) or TensorSketch(...)", Approximation
    ),
    "device": check_device,
    "dtype": one_of(*DTYPES),
    "fit_intercept": TRUTH,
    "learning_rate": POSITIVE,
    "max_iter": integer(1),
    "max_time": lambda name, value: as_seconds(value),
    "memory_limit": lambda name, value: as_bytes(value),
    "n_restarts": integer(1),
    "shrinkage": NOT_NEGATIVE,
    "tol": Rule("a positive number", lambda tol: is_real(tol) and tol > 0),
    "validation_fraction": SHARE,
    "verbose": integer(0, truth=True),  # verbose=True is a habit
    "warm_start": TRUTH,
}


def check_alpha(alpha: object, *, interpolates: bool = False) -> float | np.ndarray | None:
    """A positive number, an array of candidates, or None for ``"auto"``; 0 where ``interpolates`` allows it."""
    if isinstance(alpha, float) and 0.0 < alpha < math.inf:
        return float(alpha)
    if interpolates and is_real(alpha) and alpha == 0:
        return 0.0
    if isinstance(alpha, str) and alpha == "auto":
        return None
    try:
        if isinstance(alpha, str) or np.asarray(plain(alpha)).dtype.kind == "b":
            raise TypeError
        values = as_floats(alpha, "alpha")
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"alpha must be a positive number, an array of candidates or 'auto'; got {argument_repr(alpha)}."
        ) from error
    if values.size == 0 or values.ndim > 1 or not np.all(np.isfinite(values)) or not np.all(values > 0):
        raise ValueError(
            f"alpha must be positive and finite (mean loss + alpha·‖f‖²); got {argument_repr(alpha)}. For "
            "interpolation choose a tiny value such as 1e-10."
        )
    return float(values) if values.ndim == 0 else np.ascontiguousarray(values)


def check_both(question: str, X: Data, y: Data) -> None:
    """Refuse new inputs without their targets, or targets without inputs."""
    if (X is None) != (y is None):
        given, absent = ("X", "y") if y is None else ("y", "X")
        raise ValueError(
            f"{question}(X, y) needs both: the inputs of new samples, and their targets, which a score compares with "
            f"the predictions; got {given}, and {absent} is None."
        )


def can_be_scored(n: int) -> bool:
    """Is R² known of so many targets, at least two? A warning says otherwise."""
    if n < 2:
        warn(
            f"R² is not well-defined with fewer than two known targets, and y has {n}: the score is NaN. Give the "
            "targets of more samples, or take larger folds.",
            UndefinedMetricWarning,
        )
    return n > 1


def score_of_known(y: Data, predictions: np.ndarray, sample_weight: Data = None) -> float:
    """The mean over outputs of R², each of the samples whose target is known; NaN where fewer than two are."""
    from sklearn.metrics import r2_score  # here, because its import takes long

    predictions = np.asarray(predictions)
    targets = _numbers(y, "y")
    if targets.size and np.isnan(targets).all():
        raise ValueError(
            f"Input y contains NaN only: none of the {targets.size} targets is known, and a score compares predictions "
            "with known ones. Give the targets of some samples."
        )
    targets = finite_columns(targets, len(predictions))
    predictions = predictions.reshape(targets.shape[0], -1)
    if targets.shape != predictions.shape:
        raise ValueError(
            f"y has {targets.shape[1]} outputs, but the fit has seen {predictions.shape[1]}. Give those, in "
            "their order."
        )
    observed, weights = ~np.isnan(targets), check_weights(sample_weight, targets)
    if not can_be_scored(int(observed.sum(0).max(initial=0))):
        return math.nan
    if observed.all():
        return float(r2_score(targets, predictions, sample_weight=weights))
    scores = [
        r2_score(targets[rows, j], predictions[rows, j], sample_weight=None if weights is None else weights[rows])
        for j, rows in enumerate(observed.T)
        if rows.sum() > 1
    ]
    return float(np.mean(scores))


def score_of_labels(y: Data, predictions: np.ndarray, sample_weight: Data = None) -> float:
    """The share of the samples, by their weights, whose label is the predicted one."""
    from sklearn.metrics import accuracy_score  # here, because its import takes long

    labels, predictions = as_labels(np.asarray(y) if is_dask(y) else y), np.asarray(predictions)
    check_lengths(len(predictions), len(labels))
    weights = check_weights(sample_weight, labels)
    try:
        return float(accuracy_score(labels, predictions, sample_weight=weights))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"The labels in y, such as {labels[0]!r}, cannot be compared with the predicted ones, such as "
            f"{predictions[0]!r} ({error}). Give labels of the kind that the fit has seen."
        ) from error


def noise_of(noise: Data, targets: np.ndarray) -> np.ndarray:
    """Checked standard deviations of the noise of targets (n, p)."""
    return check_noise(_numbers(noise, "noise"), targets)


def seed_of(random_state: object) -> int:
    """An integer for torch generators, from whatever scikit-learn takes as ``random_state``."""
    try:
        generator = check_random_state(random_state)
    except ValueError as error:
        raise ValueError(
            "random_state must be an integer from 0 to 2³² − 1, a numpy.random.RandomState or None; got "
            f"{argument_repr(random_state):.60}."
        ) from error
    return remembered(lambda: "a seed", lambda: int(generator.randint(np.iinfo(np.int32).max)))


def warn_unconverged(*messages: str | None) -> None:
    """A search that ended early keeps its best point, and says so; None is nothing to say."""
    for message in messages:
        if message is not None:
            warn(message, ConvergenceWarning)


# -- folds ------------------------------------------------------------------------------------------------------------
def folds_of(
    n: int,
    cv: object,
    seed: int,
    labels: np.ndarray | None = None,
    groups: np.ndarray | None = None,
    kept: np.ndarray | None = None,
    total: int = 0,
) -> Folds:
    """Which of n samples a search looks at, and which are held out, by scikit-learn's conventions."""
    return Folds(n, cv, seed, labels, groups, kept, total, _splitter)


def _splitter(folds: Folds, most: int) -> Splitter:
    """Shuffled folds, of whole groups and of classes in proportion where there are some; or those of ``cv``.

    There are at most as many folds as the largest class has samples, ``most``.
    """
    from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold, check_cv

    if not is_count(folds.cv):
        splitter: Splitter = check_cv(folds.cv, folds.labels, classifier=folds.labels is not None)
        return splitter
    k, groups = min(folds.cv, max(2, most)), folds.groups
    k = k if groups is None else min(k, int(groups.max()) + 1)
    kinds = (KFold, StratifiedKFold) if groups is None else (GroupKFold, StratifiedGroupKFold)
    shuffled: Splitter = kinds[folds.labels is not None](k, shuffle=True, random_state=folds.seed)
    return shuffled
