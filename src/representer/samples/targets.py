"""Targets, labels and noise as users pass them: their checks, and their form in a fit."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from representer.samples.in_memory import Array, is_dask, is_single, plain
from representer.samples.on_dask import as_rows
from representer.samples.records import Data, as_records, equals_itself, is_missing
from representer.values import argument_repr


def require_targets(y: Data) -> None:
    """Refuse to fit without targets."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None.")


def refuse_sparse(y: Data, name: str = "y") -> None:
    """Refuse targets in a sparse container, and say how to make them dense."""
    if hasattr(y, "toarray"):
        raise ValueError(f"{name} is sparse, where a dense array is expected. Pass {name}.toarray().")


def target_columns(y: np.ndarray, n: int) -> tuple[np.ndarray, bool]:
    """Targets of n samples as (n, p), and whether they came as a vector; NaN marks a missing one of several outputs."""
    targets = finite_columns(y, n)
    empty = np.flatnonzero(np.isnan(targets).all(0))
    if len(empty):
        raise ValueError(
            f"Output {int(empty[0])} of y has no observed value: every entry is NaN. Leave that column out."
        )
    return targets, y.ndim == 1


def finite_columns(y: np.ndarray, n: int) -> np.ndarray:
    """Targets of n samples as (n, p), finite or, among several outputs, NaN."""
    if y.ndim not in (1, 2):
        raise ValueError(
            f"y should be an array of shape (n_samples,) or (n_samples, n_outputs); got {y.shape}. Pass "
            "y.reshape(len(y), -1), and give predictions their shape again."
        )
    check_lengths(n, len(y))
    targets = y[:, None] if y.ndim == 1 else y
    if targets.shape[1] == 0:
        raise ValueError(f"y has no outputs: its shape is {y.shape}. Give one column at least, with a number a sample.")
    if np.isinf(targets).any():
        row = int(np.argwhere(np.isinf(targets))[0][0])
        raise ValueError(f"Input y contains infinity, first in row {row}. Leave those samples out.")
    missing = np.isnan(targets)
    if missing.any() and targets.shape[1] == 1:
        raise ValueError(
            f"Input y contains NaN, first in row {int(np.argwhere(missing)[0][0])}. Missing targets are allowed among "
            "several outputs; with one output, leave those samples out."
        )
    return targets


# Targets beyond these sizes are rescaled, because squares computed from them would leave the range of numbers.
SQUARED_SIZES = (2.0**-300, 2.0**300)


def target_unit(targets: np.ndarray, dtype: str) -> float:
    """The unit of targets (n, p) in which their squares are in range: 1, or a power of two, which rounds nothing.

    Targets that the precision of a learner cannot hold are refused.
    """
    largest = float(np.nanmax(np.abs(targets)))
    info = np.finfo(dtype)
    if largest > 0 and not float(info.tiny) <= largest <= float(info.max) / 16:
        raise ValueError(
            f"The largest target is {largest:.3g}, and dtype={dtype!r} holds numbers from {info.tiny:.1e} to "
            f"{info.max:.1e}: predictions would not fit. Rescale y (for example y / {largest:.0e})"
            + (", or use dtype='float64'." if dtype == "float32" else ".")
        )
    low, high = SQUARED_SIZES if dtype == "float64" else (2.0**-40, 2.0**40)
    return 1.0 if largest == 0 or low < largest < high else 2.0 ** math.floor(math.log2(largest))


@contextmanager
def refusing_huge_integers(data: Iterable[object]) -> Iterator[None]:
    """A context in which a conversion of the data refuses integers beyond the range of floating-point numbers."""
    try:
        yield
    except OverflowError as error:
        for values in data:
            items = np.asarray(plain(values), dtype=object).ravel()
            huge = next((v for v in items if isinstance(v, int) and abs(v) > sys.float_info.max), None)
            if huge is not None:
                raise ValueError(
                    f"The data hold an integer with {math.log10(abs(huge)):.0f} digits, and numbers are computed with "
                    f"up to {sys.float_info.max:.1e}. Leave that column out, take its logarithm, or read it as a text."
                ) from error
        raise


def refuse_unknown(y: np.ndarray) -> None:
    """Refuse numbers (n,) or (n, p) that are not finite; the error names the first such row."""
    rows = np.flatnonzero(~np.isfinite(y.reshape(len(y), -1)).all(1))
    if not len(rows):
        return
    missing = bool(np.isnan(y[rows[0]]).any())
    raise ValueError(
        f"Input y contains {'NaN' if missing else 'infinity'}, first in row {int(rows[0])} ({len(rows)} of {len(y)} "
        "rows). Leave those samples out"
        + ("; OperatorRidge takes several outputs of which some entries are missing." if missing else ".")
    )


def as_collection(Y: Data, domain: str, message: str) -> Data:
    """Outputs as a collection with one for each sample; ``message`` refuses a single object."""
    if not hasattr(Y, "__len__") and hasattr(Y, "__array__"):
        Y = np.asarray(Y)
    if isinstance(Y, Iterator):
        return list(Y)
    refuse_sparse(Y)
    if domain == "records" and not (Y is None or isinstance(Y, list)):
        return as_records(Y)
    if Y is not None and is_single(Y):
        raise ValueError(f"{message}; got {argument_repr(Y):.80}. Put one output in a list.")
    return Y


def labelled_outputs(domain: str, Y: Data) -> tuple[Data, np.ndarray | None]:
    """The outputs without gaps, and the numbers of the samples that have one; None if all have.

    A gap is None, or a row of NaN among numbers; a gap in a Gram matrix is dropped with its column.
    """
    Y = np.asarray(Y) if is_dask(Y) else Y
    if Y is None or is_single(Y):
        return Y, None
    items = plain(Y)
    items = items.to_numpy() if hasattr(items, "to_numpy") else items
    if hasattr(items, "tocsr") or not len(items) or getattr(items, "size", 1) == 0:
        return Y, None
    if isinstance(items, np.ndarray) and items.dtype.kind in "fiub":
        gap = np.asarray(np.isnan(items.reshape(len(items), -1)).all(1), dtype=bool)
    else:
        items = items if isinstance(items, np.ndarray) else list(items)
        gap = np.array([item is None or (isinstance(item, float) and item != item) for item in items], dtype=bool)
    if not gap.any():
        return Y, None
    if gap.all():
        raise ValueError(
            f"None of the {len(gap)} samples has an output: there is nothing to learn from, or to compare with. Give "
            "those of some."
        )
    labelled = np.flatnonzero(~gap)
    outputs = items[labelled] if isinstance(items, np.ndarray) else [items[i] for i in labelled]
    if domain == "gram" and isinstance(outputs, np.ndarray):
        outputs = outputs[:, labelled]
    elif domain == "vectors" and not (isinstance(outputs, np.ndarray) and outputs.dtype != object):
        outputs = [plain(item) for item in outputs]
    return outputs, labelled


def integer_type(Y: Data) -> np.dtype | None:
    """The type of outputs that are integers or truth values; None for others."""
    dtype = np.asarray(plain(Y)).dtype
    return dtype if dtype.kind in "iub" else None


def check_numbers(outputs: Data, n: int) -> np.ndarray:
    """The numbers of training outputs, checked to be below n."""
    numbers = np.asarray(plain(outputs))
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or not ((numbers >= 0) & (numbers < n)).all():
        raise ValueError(
            f"With a precomputed output kernel, outputs are numbers from 0 to {n - 1}; got {outputs!r:.80}."
        )
    return numbers


def check_lengths(n: int, n_targets: int) -> None:
    """Refuse numbers of samples and targets that differ."""
    if n_targets != n:
        raise ValueError(f"X and y have inconsistent numbers of samples: {n} and {n_targets}.")


def check_gram(gram: np.ndarray) -> None:
    """Refuse a Gram matrix that is not square, or not symmetric up to rounding."""
    if gram.shape[0] != gram.shape[1]:
        raise ValueError(
            f"Precomputed kernel matrix should be square for fitting, n_samples × n_samples; got {gram.shape}. "
            "Predicting takes k(X_new, X_train)."
        )
    scale = np.abs(gram).max()
    asymmetry = np.abs(gram - gram.T).max()
    if asymmetry > math.sqrt(np.finfo(gram.dtype).eps) * scale:
        raise ValueError(
            f"The precomputed Gram matrix is not symmetric: entries differ from their mirror image by up to "
            f"{asymmetry:.3g} (largest entry {scale:.3g}). Check how it was computed, or pass (K + K.T) / 2."
        )


def check_left_out(n: int, groups: Array | None) -> None:
    """Refuse a single sample of positive weight, or a single group, if a criterion leaves samples out."""
    if (n if groups is None else len(np.unique(plain(groups)))) < 2:
        kind = "sample" if groups is None else "group"
        raise ValueError(
            f"Found n_{kind}s=1: the criterion leaves samples out, so that at least 2 are needed. Give numbers for "
            f"alpha and the rest to fit one {kind}."
        )


def check_noise(noise: Data, targets: np.ndarray) -> np.ndarray:
    """Standard deviations (n, 1) or (n, p) of the noise of targets (n, p), positive where a target is observed."""
    values = np.asarray(plain(noise), dtype=np.float64)
    n, p = targets.shape
    if values.shape not in ((n,), (n, 1), (n, p)):
        raise ValueError(
            f"noise must have one standard deviation for each of the {n} samples, or for each of their {p} outputs: "
            f"an array of shape ({n},) or ({n}, {p}); got shape {values.shape}."
        )
    values = values.reshape(n, -1)
    missing = np.isnan(targets).all(1, keepdims=True) if values.shape[1] == 1 else np.isnan(targets)
    bad = np.argwhere(~missing & ~((values > 0) & (values < np.inf)))
    if len(bad):
        row, column = (int(i) for i in bad[0])
        raise ValueError(
            f"noise must be positive and finite, in the units of y; got {values[row, column]} in row {row}. Measure "
            "it, estimate it from replicates, or leave noise=None: then all targets have the same."
        )
    return np.where(missing, np.nanmedian(values, 0), values)


def noise_weights(noise: np.ndarray) -> np.ndarray:
    """Weights in inverse proportion to the noise variances; the median noise of a column has the weight 1."""
    return (np.median(noise, 0) / noise) ** 2


def is_flat(y: Data) -> bool:
    """Is each target one number? Lists are asked through NumPy, which would import Dask to ask its collections."""
    return (y.ndim if hasattr(y, "ndim") else np.ndim(y)) == 1


def refuse_strange_labels(y: np.ndarray) -> None:
    """Refuse labels that are not known (NaN, None or pandas' NA), and integers of more than 64 bits."""
    if y.dtype.kind not in "fO":
        return
    unknown = np.isnan(y) if y.dtype.kind == "f" else [label is None or not equals_itself(label) for label in y]
    missing = np.flatnonzero(unknown)
    if len(missing):
        raise ValueError(
            f"Input y contains NaN, first in row {int(missing[0])}: the labels of {len(missing)} of {len(y)} samples "
            "are not known. Leave those samples out, or give them a label of their own."
        )
    if y.dtype.kind == "f" and np.isinf(y).any():
        row = int(np.flatnonzero(np.isinf(y))[0])
        raise ValueError(f"Input y contains infinity, first in row {row}. Labels are finite numbers, or texts.")
    huge = next((label for label in y if isinstance(label, int) and label.bit_length() > 63), None)
    if huge is not None:
        raise ValueError(
            f"Labels that are numbers have at most 64 bits, and y has an integer of {math.log10(abs(huge)):.0f} "
            "digits. Convert the labels to str."
        )


def check_classes(classes: np.ndarray) -> np.ndarray:
    """The classes, or an error if there are fewer than two."""
    if not len(classes):
        raise ValueError("There are no labels: at least two classes are needed.")
    if len(classes) < 2:
        raise ValueError(
            f"Classifier can't train when only one class is present: every label is {classes.tolist()[0]!r}. At "
            "least two classes are needed."
        )
    return classes


def one_hot(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """A column of zeros and ones for each class."""
    return (np.asarray(labels).reshape(-1, 1) == classes).astype(float)


def one_hot_on_dask(labels: Data, classes: np.ndarray) -> Data:
    """A column of zeros and ones for each class, of labels (n,) in a Dask array."""
    chunks = (labels.chunks[0], (len(classes),))
    return labels.map_blocks(one_hot, classes=classes, dtype=float, new_axis=1, chunks=chunks)


def in_memory(batch: Data) -> Data:
    """A batch as it is; a Dask collection is refused."""
    if is_dask(batch):
        raise ValueError("partial_fit takes batches in memory; fit takes a Dask collection as a whole.")
    return batch


# -- labels as further targets -----------------------------------------------------------------------------------------
def label_columns(y: Data, rows: np.ndarray) -> np.ndarray:
    """The labels of these rows as columns: floats stay numbers, anything else becomes one column for each class.

    A missing label is NaN.
    """
    if y is None:
        raise ValueError("supervision is positive, but fit got no y. Pass labels, or set supervision=0.")
    y, n = np.asarray(plain(rows_of(y, rows))), len(rows)
    if y.ndim not in (1, 2) or len(y) != n:
        raise ValueError(f"y must have shape ({n},) or ({n}, n_outputs), one row a sample; got {y.shape}.")
    if y.dtype.kind not in "fiubUSO":
        raise ValueError(f"y must hold numbers or class labels; got entries of type {y.dtype}.")
    return np.concatenate([_columns(column) for column in y.reshape(n, -1).T], axis=1)


def rows_of(y: Data, rows: np.ndarray) -> Data:
    """The labels of these rows; labels of a wrong length stay as they are, for a later check to refuse."""
    if y is None:
        return y
    if is_dask(y):
        return np.asarray(as_rows(y, "y")[rows].compute())
    labels = np.asarray(plain(y))
    return labels[rows] if labels.ndim and len(labels) > max(len(rows), rows[-1]) else y


def _columns(column: np.ndarray) -> np.ndarray:
    """One output of y: numbers as they are, classes one-hot; NaN where it is missing."""
    missing = np.array([is_missing(entry) for entry in column])
    if missing.all():
        raise ValueError("Every label in y is missing (NaN or None): there is nothing for codes to serve.")
    labels = column[~missing]
    if labels.dtype == object and all(isinstance(entry, float) for entry in labels):
        labels = labels.astype(float)
    if labels.dtype.kind == "f":
        if np.isinf(labels).any():
            raise ValueError("Input y contains infinity.")
        values = labels[:, None].astype(float)
    else:
        try:
            values = (labels[:, None] == np.unique(labels)).astype(float)
        except TypeError as error:
            raise ValueError(f"The class labels in y must be of one type ({error}).") from error
    filled = np.full((len(column), values.shape[1]), np.nan)
    filled[~missing] = values
    return filled
