"""What learners accept: data of the kernel's kind, targets, weights, options; and what they say otherwise."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import assert_all_finite, check_array, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, _num_samples, column_or_1d, validate_data
from torch import Tensor

from representer.approximation import Approximation, RandomFeatures, TensorSketch, check_bare
from representer.kernels import (
    FAMILIES,
    Domain,
    Gaussian,
    Kernel,
    Neural,
    Overlap,
    Stack,
    are_smiles,
    are_vectors,
    as_kernel,
    family,
    is_frame,
    is_several,
    suggest,
)
from representer.linalg import as_bytes
from representer.notices import warn
from representer.operators import Decomposable, Operator, OperatorKernel, takes_gaps, takes_sparse
from representer.optimize import as_seconds
from representer.samples import (
    Data,
    Records,
    SparseRows,
    as_items,
    as_records,
    as_rows,
    is_dask,
    is_single,
    plain,
    remembered,
    require_dask,
    sample_groups,
)
from representer.values import (
    NONE,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    TRUTH,
    Rule,
    Value,
    all_values,
    instance_of,
    integer,
    is_count,
    is_real,
    one_of,
)

FEATURES_OF: dict[type[Approximation], Any] = {RandomFeatures: "frequencies", TensorSketch: "sketch"}
DTYPES = {"float64": torch.float64, "float32": torch.float32}


def kernel_domain(kernel: Any) -> Domain:
    """The kind of data of a kernel, or of what may become one."""
    if isinstance(kernel, Kernel | OperatorKernel | Stack):
        return kernel.domain
    if isinstance(kernel, str) and kernel in FAMILIES:
        return "objects"
    return "gram" if kernel == "precomputed" else "vectors"


def stack_of(kernel: Any, X: Data, approximation: Approximation | None) -> Stack | None:
    """The kernels that a learner stacks: those of a ``Stack``, of the family that a word names, or for ``"auto"`` of
    the family of data like X.

    A copy with plain numbers, and None where there is one kernel.
    """
    if isinstance(kernel, Stack):
        kernel.check_hyperparameters()
        return kernel.__sklearn_clone__().numbers()
    if not is_several(kernel):
        return None
    if kernel in FAMILIES:
        return family(kernel)
    X = plain(X)
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.names is None:
        refuse_non_numbers(X, "X", kernel)
    features = next((word for kind, word in FEATURES_OF.items() if isinstance(approximation, kind)), None)
    suggestion = suggest(X, features=features)
    for doubt in suggestion.doubts:
        warn(doubt, UserWarning)
    return suggestion.kernel


def kernels_of(word: str, X: Data, approximation: Any, *, compared: bool = True) -> list[Kernel]:
    """The kernels of which a learner of one kernel takes the best, or, where they are not ``compared``, one of them.

    ``approximation`` is one of the inputs, or a pair for inputs and outputs.
    """
    inputs = approximation[0] if isinstance(approximation, tuple | list) else approximation
    several = stack_of(word, X, inputs)
    assert several is not None  # a word of several kernels
    kernels = list(several.kernels) if isinstance(several, Stack) else [several]
    smooth = [kernel for kernel in kernels if getattr(kernel, "kernel", kernel) == Gaussian("auto")]
    return kernels if compared else (smooth or kernels)[:1]


def one_kernel(kernel: Any, width: str = "auto") -> Any:
    """What ``"auto"`` is where there is no target to stack kernels on: a Gaussian one, whose width is learned."""
    return Gaussian(width) if isinstance(kernel, str) and kernel == "auto" else kernel


def single_kernel(kernel: Any, X: Data, vectors: Any, *, incomplete: bool = True) -> Any:
    """What ``"auto"`` is for data like X in a learner of one kernel: its own kernel of vectors, or what is suggested.

    ``incomplete`` says whether the learner takes sparse rows, and rows of numbers with gaps.
    """
    if not (isinstance(kernel, str) and kernel == "auto"):
        return kernel
    if is_dask(X) or are_vectors(X, incomplete=not incomplete):
        return vectors
    suggestion = suggest(X)
    for doubt in suggestion.doubts:
        warn(doubt, UserWarning)
    return suggestion.single


def as_operator_kernel(kernel: Any, operator: Operator | str | None) -> OperatorKernel:
    """K(x, y) = k(x, y) A from a scalar kernel and an output operator; an operator-valued kernel is itself.

    A copy with plain numbers: nothing that happens to the arguments later reaches a fitted learner.
    """
    learn = isinstance(operator, str)
    if isinstance(kernel, OperatorKernel):
        undecided = isinstance(kernel, Decomposable) and kernel.operator is None
        if operator is not None and not (learn and undecided):
            raise ValueError(
                f"kernel={kernel!r} is operator-valued already, so operator={operator!r} has no place. Leave "
                "operator=None, or give a scalar kernel."
            )
        return kernel.__sklearn_clone__().numbers()
    if not (operator is None or isinstance(operator, Operator) or (learn and operator == "learn")):
        raise ValueError(
            "operator must be None, 'learn' or an object from representer.operators, such as Dense(matrix); got "
            f"{operator!r}."
        )
    return Decomposable(as_kernel(kernel), None if learn else operator).__sklearn_clone__().numbers()  # type: ignore[arg-type]


def check_inputs(estimator: Any, X: Data, kernel: Kernel | OperatorKernel | Stack, *, reset: bool) -> Any:
    """Inputs of the kernel's kind: checked arrays for vectors and Gram matrices, a sequence for other objects."""
    X, domain = plain(X), kernel.domain
    refuse_unordered(X, "X")
    if domain in ("vectors", "gram"):
        stated = getattr(estimator, "kernel", None)
        refuse_non_numbers(X, "X", stated)
        refuse_pictures(X, stated)
        accepted = "csr" if takes_sparse(kernel) and domain == "vectors" else False
        finite = "allow-nan" if domain == "vectors" and takes_gaps(kernel) else True
        X = validate_data(estimator, X, reset=reset, dtype=np.float64, accept_sparse=accepted, ensure_all_finite=finite)
        if domain == "gram" and reset:
            check_gram(X)
        return SparseRows(X) if issparse(X) else X
    if is_single(X) and not (domain == "records" and is_frame(X)):
        raise ValueError(
            f"Expected a list with one object for each sample; got one {type(X).__name__}, {X!r:.60}. Put a single "
            "object in a list."
        )
    if domain == "labels":
        labels = check_array(X, dtype=None, ensure_2d=False, ensure_all_finite=False)
        return validate_data(estimator, labels.reshape(len(labels), -1), reset=reset, dtype=None)
    if domain == "records":
        return _named_columns(estimator, X, reset=reset)
    # Of a list it would take the length of the first object for the number of features.
    if hasattr(X, "shape"):
        validate_data(estimator, X, reset=reset, skip_check_array=True)
    rows = as_items(X)
    objects = rows if isinstance(rows, np.ndarray) else list(rows)
    if len(objects) == 0:
        raise ValueError("Found 0 samples; at least one object is needed.")
    return objects


def _named_columns(estimator: Any, X: Data, *, reset: bool) -> Records:
    """Records, whose names a fit remembers; an array at predict time has the columns of the fit in their order."""
    names = getattr(estimator, "feature_names_in_", None)
    if not reset and names is not None and isinstance(X, np.ndarray) and X.ndim == 2:
        validate_data(estimator, X, reset=False, skip_check_array=True)
        return as_records({name: X[:, j] for j, name in enumerate(names)})
    records = as_records(X)
    if reset:
        estimator._keep_columns(records)
    return records


def refuse_unordered(data: Data, name: str) -> None:
    """A set has no order: which target belongs to which of its samples?"""
    if isinstance(data, set | frozenset):
        raise TypeError(
            f"{name} is a {type(data).__name__}, whose samples have no order. Expected a list or an array with one "
            "entry for each sample, in the order of the targets."
        )


def refuse_non_numbers(data: Data, name: str, kernel: Any = None) -> None:
    """Strings of digits and dates would be converted to numbers without a word; and collections are no arrays."""
    if hasattr(data, "toarray"):  # sparse: scikit-learn has the words for it
        return
    if isinstance(data, Mapping):
        raise TypeError(
            f"{name} should be an array with one row for each sample; got {type(data).__name__}. A dictionary of "
            f"columns is pandas.DataFrame({name}), or data of the kernel Columns."
        )
    if isinstance(data, Iterator) or (isinstance(data, Iterable) and not _has_rows(data)):
        raise TypeError(
            f"{name} should be an array with one row for each sample; got {type(data).__name__}. Make a list of it "
            f"first: list({name})."
        )
    if isinstance(data, str | bytes):
        raise TypeError(f"{name} should be an array with one row for each sample; got one text, {data!r:.40}.")
    try:
        array = np.asarray(data)
    except ValueError as error:  # rows of different lengths
        raise ValueError(
            f"{name} is no array of numbers ({error}). Objects of different sizes need a kernel for their kind, which "
            "kernel='auto' finds; pairs (times, values) need Functional(…, domain='objects')."
        ) from error
    strangers = (str, bytes, datetime.date, np.datetime64, np.timedelta64)
    if array.dtype.kind in "SUMm":
        strange = list(array.ravel()[:MANY_STRANGERS])
    elif array.dtype == object:
        rows = array if array.ndim == 1 and name == "X" else ()
        collection = next((row for row in rows if isinstance(row, Set | Mapping)), None)
        if collection is not None:
            raise TypeError(
                f"{name} holds collections without an order, like the {type(collection).__name__} {collection!r:.40}, "
                "where numbers are expected. sklearn.preprocessing.MultiLabelBinarizer (sets) and "
                "sklearn.feature_extraction.DictVectorizer (dictionaries) make rows of numbers of them."
            )
        strange = [entry for entry in array.ravel() if isinstance(entry, strangers)][:MANY_STRANGERS]
    else:
        return
    if strange:
        raise ValueError(_strangers_refused(name, array, strange, kernel))


MANY_STRANGERS = 20  # so many strings show what they are


def _has_rows(data: Iterable[Any]) -> bool:
    """Does the collection have a length and numbered entries, or a way to become an array?"""
    return hasattr(data, "__array__") or (hasattr(data, "__len__") and hasattr(data, "__getitem__"))


def _strangers_refused(name: str, array: np.ndarray, strange: list[Any], kernel: Any) -> str:
    """What to do with strings or dates where numbers are expected; ``array`` has at least one of them."""
    return _advice_on_strangers(name, array, strange, kernel) + (
        " Or let the data decide: kernel='auto' takes columns and objects for what they are." if name == "X" else ""
    )


def _advice_on_strangers(name: str, array: np.ndarray, strange: list[Any], kernel: Any) -> str:
    """What converts strings or dates, and the kernels that take them as they are."""

    def refused(kind: str) -> str:
        return f"{name} holds {kind} such as {str(strange[0])!r:.60}, where numbers are expected. "

    if not all(isinstance(entry, str) for entry in strange):
        return refused("dates or bytes") + (
            f"Make numbers of dates first, for example {name}.astype('datetime64[s]').astype(float)."
        )
    if all(_is_number(entry) for entry in strange):
        return refused("strings") + f"If they are meant as numbers, pass {name}.astype(float)."
    if name == "y":
        return refused("strings") + (
            "Labels are for a classifier; other outputs need a StructuredPredictor with an output kernel of their kind."
        )
    one_column = array.ndim == 1 or array.shape[-1] == 1
    if one_column and are_smiles(strange):
        fingerprints = _takes_fingerprints(kernel)
        return refused("SMILES strings") + (
            "The kernel Molecule(), or 'molecules' for several of its kind, takes them as they are"
            + (
                ", or put the transformer Morgan() before this kernel, which takes fingerprints."
                if fingerprints
                else "."
            )
        )
    if one_column:
        return refused("strings") + (
            "Kernels of text take them as they are: 'strings' (several), Spectrum(3), Mismatch or Subsequence; Delta() "
            "takes categories."
        )
    return refused("strings") + (
        "For a table give each column its kernel, Columns({'colour': Delta(), 'size': Gaussian()}), or encode the "
        "strings first (for example with sklearn.preprocessing.OneHotEncoder)."
    )


def _takes_fingerprints(kernel: Any) -> bool:
    """Is it a kernel of fingerprints, or made from one?"""
    kernel = as_kernel(kernel) if isinstance(kernel, str) and not is_several(kernel) else kernel
    return isinstance(kernel, Value) and any(isinstance(value, Overlap) for value in all_values(kernel))


def _is_number(text: str) -> bool:
    """Could the text be read as a number?"""
    try:
        float(text)
    except ValueError:
        return False
    return True


def refuse_pictures(X: Data, kernel: Any) -> None:
    """Arrays with more than two axes are no vectors; a network may take them all the same."""
    shape = tuple(X.shape if hasattr(X, "shape") else np.asarray(X).shape)
    if len(shape) < 3:
        return
    if isinstance(kernel, Value) and any(isinstance(value, Neural) for value in all_values(kernel)):
        raise ValueError(
            f"X has the shape {shape}, where Neural(…) takes rows of numbers. Give Neural(module, kernel, "
            "domain='objects'), which takes arrays of any shape; or pass X.reshape(len(X), -1) and begin the "
            f"module with torch.nn.Unflatten(1, {shape[1:]})."
        )
    if kernel_domain(kernel) == "gram":
        raise ValueError(f"X has the shape {shape}, where a Gram matrix (n_samples, n_samples) is expected.")
    raise ValueError(
        f"X has the shape {shape}, where rows of numbers (n_samples, n_features) are expected. Pass "
        "X.reshape(len(X), -1), or a kernel that takes such arrays: Neural(module, kernel, domain='objects') for "
        "pictures, GlobalAlignment(…) or Signature(…) for series; kernel='auto' finds one."
    )


def check_gram(gram: np.ndarray) -> None:
    """A Gram matrix for fitting is square and symmetric to rounding."""
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


def require_targets(y: Data) -> None:
    """Refuse to fit without targets."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None.")


def check_targets(y: Data, n: int) -> tuple[np.ndarray, bool]:
    """Targets as (n, p), and whether they came as a vector; NaN marks a missing entry if there are several outputs."""
    require_targets(y)
    if hasattr(y, "toarray"):
        raise ValueError("y is sparse, where a dense array is expected. Pass y.toarray().")
    y = np.asarray(plain(y))
    refuse_non_numbers(y, "y")
    if y.dtype == object:
        y = check_array(y, dtype=np.float64, ensure_2d=False, ensure_all_finite=False, input_name="y")
    y = y.astype(np.float64) if y.dtype.kind != "c" else check_array(y, ensure_2d=False)
    if y.ndim not in (1, 2):
        raise ValueError(
            f"y should be an array of shape (n_samples,) or (n_samples, n_outputs); got {y.shape}. Pass "
            "y.reshape(len(y), -1), and give predictions their shape again."
        )
    if len(y) != n:
        raise ValueError(f"X and y have inconsistent numbers of samples: {n} and {len(y)}.")
    flat = y.ndim == 1
    targets = y.reshape(n, -1)
    if targets.shape[1] == 0:
        raise ValueError(f"y has no outputs: shape {y.shape}.")
    if np.isinf(targets).any():
        row = int(np.argwhere(np.isinf(targets))[0][0])
        raise ValueError(f"Input y contains infinity, first in row {row}. Leave those samples out.")
    missing = np.isnan(targets)
    if missing.any() and targets.shape[1] == 1:
        raise ValueError(
            f"Input y contains NaN, first in row {int(np.argwhere(missing)[0][0])}. Missing targets are allowed among "
            "several outputs; with one output, leave those samples out."
        )
    empty = np.flatnonzero(missing.all(0))
    if len(empty):
        raise ValueError(
            f"Output {int(empty[0])} of y has no observed value: every entry is NaN. Leave that column out."
        )
    return targets, flat


# Beyond these sizes of targets, squares of what is made of them leave the range of numbers.
SQUARED_SIZES = (2.0**-300, 2.0**300)


def target_unit(targets: np.ndarray, dtype: str) -> float:
    """What targets (n, p) are divided by, so that their squares are in range: 1, or a power of two, which rounds none.

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


def check_outputs(kernel: Kernel, Y: Data, *, reset: bool) -> tuple[Any, bool]:
    """Outputs of an output kernel's kind, and whether vectors came as one number each."""
    require_targets(Y)
    Y = plain(Y)
    if kernel.domain in ("vectors", "gram"):
        if hasattr(Y, "toarray"):
            raise ValueError("y is sparse, where a dense array is expected. Pass y.toarray().")
        refuse_non_numbers(Y, "y")
        objects = isinstance(Y, Iterable) and getattr(Y, "dtype", np.dtype(object)).kind == "O"
        if objects and any(isinstance(item, set | frozenset) for item in Y):
            raise ValueError(
                f"y holds sets, but {kernel!r} takes vectors. sklearn.preprocessing.MultiLabelBinarizer makes rows of "
                "zeros and ones from sets."
            )
        loose = {"ensure_2d": False, "allow_nd": True, "ensure_all_finite": False}
        array = check_array(Y, dtype=np.float64, input_name="y", **loose)
        if array.ndim not in (1, 2):
            raise ValueError(
                f"y must have shape (n_samples,) or (n_samples, n_outputs); got {array.shape}. Pass "
                "y.reshape(len(y), -1), or an output kernel that takes such arrays."
            )
        refuse_unknown(array)
        if kernel.domain == "gram" and reset:
            check_gram(array)
        return array.reshape(len(array), -1), array.ndim == 1
    if kernel.domain == "records":
        return as_records(Y), False
    rows = Y.to_numpy() if hasattr(Y, "to_numpy") else Y
    objects = rows if isinstance(rows, np.ndarray) else list(rows)
    if len(objects) == 0:
        raise ValueError("Found 0 targets; at least one is needed.")
    return objects, False


def refuse_unknown(y: np.ndarray) -> None:
    """Refuse numbers (n,) or (n, p) that are not finite, with the first row that has one."""
    rows = np.flatnonzero(~np.isfinite(y.reshape(len(y), -1)).all(1))
    if not len(rows):
        return
    missing = bool(np.isnan(y[rows[0]]).any())
    raise ValueError(
        f"Input y contains {'NaN' if missing else 'infinity'}, first in row {int(rows[0])} ({len(rows)} of {len(y)} "
        "rows). Leave those samples out"
        + ("; OperatorRidge takes several outputs of which some entries are missing." if missing else ".")
    )


def as_collection(Y: Data, kernel: Kernel, message: str) -> Any:
    """Outputs as a collection with one for each sample; ``message`` refuses a single object."""
    if not hasattr(Y, "__len__") and hasattr(Y, "__array__"):
        Y = np.asarray(Y)
    if isinstance(Y, Iterator):
        return list(Y)
    if kernel.domain == "records" and not (Y is None or isinstance(Y, list)):
        return as_records(Y)
    if Y is not None and is_single(Y):
        raise ValueError(f"{message}; got {Y!r:.80}. Put one output in a list.")
    return Y


def labelled_outputs(kernel: Kernel, Y: Data) -> tuple[Any, np.ndarray | None]:
    """The outputs without gaps, and the numbers of the samples that have one; None if all have.

    A gap is None, or among numbers a row of NaN (of a Gram matrix, with its column).
    """
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
        raise ValueError(f"None of the {len(gap)} samples has an output: nothing can be learned.")
    labelled = np.flatnonzero(~gap)
    there = items[labelled] if isinstance(items, np.ndarray) else [items[i] for i in labelled]
    if kernel.domain == "gram" and isinstance(there, np.ndarray):
        there = there[:, labelled]
    elif kernel.domain == "vectors" and not (isinstance(there, np.ndarray) and there.dtype != object):
        there = [plain(item) for item in there]
    return there, labelled


def integer_type(Y: Data) -> np.dtype | None:
    """The type of outputs that are integers or truth values; None for others."""
    dtype = np.asarray(plain(Y)).dtype
    return dtype if dtype.kind in "iub" else None


def check_numbers(outputs: Data, n: int) -> np.ndarray:
    """Numbers of training outputs."""
    numbers = np.asarray(plain(outputs))
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or not ((numbers >= 0) & (numbers < n)).all():
        raise ValueError(
            f"With a precomputed output kernel, outputs are numbers from 0 to {n - 1}; got {outputs!r:.80}."
        )
    return numbers


def check_left_out(n: int, groups: Tensor | None) -> None:
    """Refuse one sample, or one group, where a criterion leaves it out."""
    if (n if groups is None else len(groups.unique())) < 2:
        raise ValueError(
            f"Found n_{'samples' if groups is None else 'groups'}=1: the criterion leaves samples out, so that at "
            "least 2 are needed. Give numbers for alpha and the rest to fit one sample."
        )


def check_weights(sample_weight: Any, X: Data) -> np.ndarray | None:
    """Non-negative sample weights, not all zero; None where all are equal to one."""
    if sample_weight is None:
        return None
    rows = np.empty((_num_samples(X), 1))
    weights = _check_sample_weight(plain(sample_weight), rows, dtype=np.float64, ensure_non_negative=True)
    if not weights.max() > 0:
        raise ValueError("Sample weights must contain at least one non-zero number.")
    low, high = SQUARED_SIZES
    return weights if low < weights.max() < high else weights / weights.max()  # they matter up to a common factor


def check_noise(noise: Any, targets: np.ndarray) -> np.ndarray:
    """Standard deviations (n, 1) or (n, p) of measurements of targets (n, p): positive, where a target is known."""
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
            f"noise must be positive and finite, in the units of y; got {values[row, column]!r} in row {row}. Measure "
            "it, estimate it from replicates, or leave noise=None: then all targets have the same."
        )
    return np.where(missing, np.nanmedian(values, 0), values)


def noise_weights(noise: np.ndarray) -> np.ndarray:
    """Weights in inverse proportion to the variances of measurements, one for the median of each column."""
    return (np.median(noise, 0) / noise) ** 2


def check_groups(groups: Any, n: int, numbers: dict[Any, int] | None = None) -> np.ndarray | None:
    """The number of each sample's group, from labels of any kind; None where there are none.

    ``numbers`` are those of the labels in earlier batches, to which new labels are added.
    """
    if groups is None:
        return None
    labels = np.asarray(plain(groups))
    if labels.shape != (n,):
        raise ValueError(
            f"groups must have one label for each of the {n} samples; got an array of shape {labels.shape}."
        )
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise ValueError(
            f"groups contains NaN, first in row {int(np.argwhere(np.isnan(labels))[0][0])}. Give such samples labels "
            "of their own."
        )
    if numbers is None:
        return np.unique(labels, return_inverse=True)[1]
    return np.array([numbers.setdefault(label, len(numbers)) for label in labels.tolist()])


def is_flat(y: Data) -> bool:
    """Is each target one number? Lists are asked through NumPy, which would import Dask to ask its collections."""
    return (y.ndim if hasattr(y, "ndim") else np.ndim(y)) == 1


def in_memory(batch: Any) -> Any:
    """A batch as it is; a Dask collection is refused."""
    if is_dask(batch):
        raise ValueError("partial_fit takes batches in memory; fit takes a Dask collection as a whole.")
    return batch


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


def encode(X: Data, y: Data) -> tuple[np.ndarray, np.ndarray]:
    """The classes, and the position of each label among them."""
    require_targets(y)
    y = column_or_1d(plain(y), warn=True)
    refuse_missing_labels(y)
    assert_all_finite(y, input_name="y")
    if len(y) != _num_samples(X):
        raise ValueError(f"X and y have inconsistent numbers of samples: {_num_samples(X)} and {len(y)}.")
    try:
        check_classification_targets(y)
        classes, labels = np.unique(y, return_inverse=True)
    except TypeError as error:
        kinds = ", ".join(sorted({type(label).__name__ for label in y}))
        raise TypeError(
            f"Labels must be of one kind that can be sorted; y has {kinds}. Convert them to str."
        ) from error
    return check_classes(classes), labels


def refuse_missing_labels(y: np.ndarray) -> None:
    """Refuse labels that are not known: NaN, None or pandas' NA."""
    if y.dtype.kind not in "fO":
        return
    unknown = np.isnan(y) if y.dtype.kind == "f" else [label is None or not _equals_itself(label) for label in y]
    missing = np.flatnonzero(unknown)
    if len(missing):
        raise ValueError(
            f"Input y contains NaN, first in row {int(missing[0])}: the labels of {len(missing)} of {len(y)} samples "
            "are not known. Leave those samples out, or give them a label of their own."
        )


def _equals_itself(value: Any) -> bool:
    """False of NaN, NaT and pandas' NA, whose comparison is NA again."""
    equal = value == value
    return isinstance(equal, bool | np.bool_) and bool(equal)


def check_classes(classes: np.ndarray) -> np.ndarray:
    """At least two classes."""
    if len(classes) < 2:
        raise ValueError(
            f"Classifier can't train when only one class is present: every label is {classes[0]!r}. At least two "
            "classes are needed."
        )
    return classes


def one_hot(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """A column of zeros and ones for each class."""
    return (np.asarray(labels).reshape(-1, 1) == classes).astype(float)


def one_hot_on_dask(y: Data) -> tuple[np.ndarray, Any]:
    """The classes of labels, and these as a Dask array of zeros and ones."""
    require_targets(y)
    dask = require_dask()
    if hasattr(y, "toarray"):
        raise ValueError("y is sparse, where labels are expected. Pass y.toarray().")
    labels = as_rows(y if is_dask(y) else dask.array.from_array(np.asarray(y), chunks=-1), "y")
    classes = check_classes(dask.array.unique(labels.ravel()).compute())
    chunks = (labels.chunks[0], (len(classes),))
    return classes, labels.map_blocks(one_hot, classes=classes, dtype=float, new_axis=1, chunks=chunks)


def check_columns(learner: Any, X: Data) -> None:
    """Refuse a Dask collection with other columns than those of the fit."""
    names = getattr(learner, "feature_names_in_", None)
    if names is not None and hasattr(X, "columns") and list(X.columns) != list(names):
        raise ValueError(f"The columns of X should be those of fit, {list(names)}; got {list(X.columns)}.")
    if X.ndim == 2 and X.shape[1] != learner.n_features_in_:
        raise ValueError(f"X has {X.shape[1]} features, but the fit has seen {learner.n_features_in_}.")


# -- arguments --------------------------------------------------------------------------------------------------------
Check = Callable[[str, Any], object]  # raises if an argument, named and given, is not what it may be


POSITIVE_OR_AUTO = Rule("positive and finite (mean loss + alpha·‖f‖²),", POSITIVE.holds) | one_of("auto")


def approximated_by(words: str, kind: type) -> Check:
    """None or an approximation of a kind, without a kernel of its own."""
    rule = NONE | instance_of(words, kind)

    def check(name: str, value: Any) -> None:
        rule(name, value)
        if value is not None:
            check_bare(value)

    return check


def only_one_alpha(name: str, alpha: Any) -> None:
    """A positive number or "auto": no candidates."""
    if isinstance(check_alpha(alpha), np.ndarray):
        raise ValueError(f"{name} must be a positive number or 'auto'; got {alpha!r}. Compare by GridSearchCV.")


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


def check_alpha(alpha: Any, *, interpolates: bool = False) -> float | np.ndarray | None:
    """A positive number, an array of candidates, or None for ``"auto"``; 0 where ``interpolates`` allows it."""
    if isinstance(alpha, float) and 0.0 < alpha < math.inf:
        return float(alpha)
    if interpolates and is_real(alpha) and alpha == 0:
        return 0.0
    if isinstance(alpha, str):
        if alpha == "auto":
            return None
        raise ValueError(f"alpha must be a positive number, an array of candidates or 'auto'; got {alpha!r}.")
    try:
        if np.asarray(alpha).dtype.kind == "b":
            raise TypeError
        values = np.asarray(alpha, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"alpha must be a positive number, an array of candidates or 'auto'; got {alpha!r}."
        ) from error
    if values.size == 0 or values.ndim > 1 or not np.all(np.isfinite(values)) or not np.all(values > 0):
        raise ValueError(
            f"alpha must be positive and finite (mean loss + alpha·‖f‖²); got {alpha!r}. For interpolation choose a "
            "tiny value such as 1e-10."
        )
    return float(values) if values.ndim == 0 else np.ascontiguousarray(values)


def score_of_known(y: Data, predictions: np.ndarray, sample_weight: Any = None) -> float:
    """The mean over outputs of R², each of the samples whose target is known; NaN where fewer than two are."""
    from sklearn.metrics import r2_score  # here, because its import takes long

    targets = np.asarray(plain(y), dtype=np.float64)
    known = ~np.isnan(targets)
    if known.all() or targets.ndim == 1:
        return float(r2_score(y, predictions, sample_weight=sample_weight))
    weights = None if sample_weight is None else np.asarray(plain(sample_weight))
    scores = [
        r2_score(targets[rows, j], predictions[rows, j], sample_weight=None if weights is None else weights[rows])
        for j, rows in enumerate(known.T)
        if rows.sum() > 1
    ]
    return float(np.mean(scores)) if scores else math.nan


def check_lengths(n: int, n_targets: int) -> None:
    """There is one target for each sample."""
    if n_targets != n:
        raise ValueError(f"X and y have inconsistent numbers of samples: {n} and {n_targets}.")


def seed_of(random_state: Any) -> int:
    """An integer for torch generators, from whatever scikit-learn takes as ``random_state``."""
    return remembered(lambda: "a seed", lambda: int(check_random_state(random_state).randint(np.iinfo(np.int32).max)))


def warn_unconverged(message: str) -> None:
    """A search that ended early keeps its best point, and says so."""
    warn(message, ConvergenceWarning)


# -- folds ------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Folds:
    """Which samples a search looks at, and which of them are held out, by scikit-learn's conventions.

    Parameters
    ----------
    n : int
        The number of samples.
    cv : int, splitter or iterable
        A number of folds, shuffled; or splits of all n samples that somebody made.
    seed : int
    labels : array (n,), optional
        The classes, from 0 on, which folds and subsets keep in proportion: each has a training row in every fold.
    groups : array (n,), optional
        What is held out together.
    kept : array of int (n,), optional
        The numbers of the samples among those that a user has passed, which a list of splits counts.
    """

    n: int
    cv: Any
    seed: int
    labels: np.ndarray | None = None
    groups: np.ndarray | None = None
    kept: np.ndarray | None = None
    total: int = 0  # how many samples the user has passed

    def some(self, most: int) -> Tensor:
        """All rows, or as many random ones as a search can afford: whole groups, or the classes in proportion."""
        if self.groups is not None:
            return torch.from_numpy(sample_groups(self.groups, most, self.seed))
        order = torch.randperm(self.n, generator=torch.Generator().manual_seed(self.seed))
        if self.labels is not None:
            place = np.empty(self.n)
            shuffled = self.labels[order.numpy()]
            for label in np.unique(shuffled):
                members = np.flatnonzero(shuffled == label)
                place[members] = (np.arange(len(members)) + 0.5) / len(members)
            order = order[torch.from_numpy(np.argsort(place, kind="stable"))]
        return order[:most].sort().values

    def __call__(self, rows: Tensor | None = None) -> list[tuple[Tensor, Tensor]]:
        """Training and held-out rows of all samples; with ``rows`` as positions among these.

        A number of folds splits the rows; of splits that somebody made, the rows have a part.
        """
        if rows is not None and is_count(self.cv):
            index = rows.numpy()
            labels, groups = (None if a is None else a[index] for a in (self.labels, self.groups))
            return Folds(len(rows), self.cv, self.seed, labels, groups)()
        splits, labels = self._splits(), self.labels
        if rows is not None:
            place = np.full(self.n, -1)
            place[rows.numpy()] = np.arange(len(rows))
            splits = [(place[training], place[held_out]) for training, held_out in splits]
            splits = [(training[training >= 0], held_out[held_out >= 0]) for training, held_out in splits]
            labels = None if labels is None else labels[rows.numpy()]
        splits = [_with_all_classes(labels, *split) for split in splits if len(split[0])]
        splits = [(training, held_out) for training, held_out in splits if len(held_out)]
        if not splits:
            used = self.n if rows is None else len(rows)
            raise ValueError(
                f"No split of cv={self.cv!r} has both training and held-out samples among the {used} that are used. "
                "Give larger parts, or a number of folds."
            )
        return [(torch.from_numpy(training), torch.from_numpy(held_out)) for training, held_out in splits]

    def _splits(self) -> list[tuple[np.ndarray, np.ndarray]]:
        n, labels, groups = self.n, self.labels, self.groups
        most = n if labels is None else int(np.bincount(labels).max())
        if n < 2:
            raise ValueError("Found 1 sample (n_samples = 1), of which none can be held out.")
        if most < 2:
            raise ValueError(
                "No class has two samples, so that none can be held out to choose hyperparameters or to calibrate. "
                "Give numbers for all of them and calibration=None, or more samples."
            )
        if groups is not None and groups.max() == 0:
            raise ValueError("All samples are in one group, of which none can be held out. Give at least two groups.")
        if is_count(self.cv):
            splitter = self._folds(min(self.cv, max(2, most)))
        elif not hasattr(self.cv, "split") and self.kept is not None:
            return [(self._places(training), self._places(held_out)) for training, held_out in self.cv]
        else:
            from sklearn.model_selection import check_cv  # here, because its import takes long

            splitter = check_cv(self.cv, labels, classifier=labels is not None)
        blank = np.zeros((n, 1))
        parts = splitter.split(blank, blank[:, 0] if labels is None else labels, groups)
        every = np.arange(n)
        try:
            return [(every[training], every[held_out]) for training, held_out in parts]
        except IndexError as error:
            raise ValueError(f"cv={self.cv!r} does not fit to {n} samples: {error}.") from error

    def _places(self, rows: Any) -> np.ndarray:
        """Where the samples that a user has numbered stand among those that are kept."""
        assert self.kept is not None
        numbers = np.arange(len(rows))[rows] if np.asarray(rows).dtype == bool else np.asarray(rows)
        if len(numbers) and not (numbers.max() < self.total and numbers.min() >= -self.total):
            raise ValueError(f"cv={self.cv!r} does not fit to {self.total} samples: it numbers more of them.")
        place = np.full(self.total, -1)
        place[self.kept] = np.arange(self.n)
        return place[numbers][place[numbers] >= 0]

    def _folds(self, k: int) -> Any:
        """Shuffled folds, of whole groups and of classes in proportion where there are some."""
        from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold

        options: dict[str, Any] = {"shuffle": True, "random_state": self.seed}
        if self.groups is not None:
            k = min(k, int(self.groups.max()) + 1)
            return GroupKFold(k, **options) if self.labels is None else StratifiedGroupKFold(k, **options)
        return KFold(k, **options) if self.labels is None else StratifiedKFold(k, **options)


def _with_all_classes(
    labels: np.ndarray | None, training: np.ndarray, held_out: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Samples of a class that is held out entirely move to the training part."""
    if labels is None:
        return training, held_out
    alone = ~np.isin(labels[held_out], labels[training])
    return np.append(training, held_out[alone]), held_out[~alone]
