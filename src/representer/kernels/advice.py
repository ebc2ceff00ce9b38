"""What to do with data that a kernel of numbers does not take: errors that name kernels and conversions."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Set

import numpy as np

from representer.kernels.fingerprints import Overlap
from representer.kernels.learned import Neural
from representer.kernels.molecules import are_smiles
from representer.kernels.names import as_kernel
from representer.kernels.stack import is_several
from representer.samples import Data
from representer.values import Value, all_values

MANY_STRANGERS = 20  # so many strings show what they are


def refuse_unordered(data: Data, name: str) -> None:
    """A set has no order: which target belongs to which of its samples?"""
    if isinstance(data, set | frozenset):
        raise TypeError(
            f"{name} is a {type(data).__name__}, whose samples have no order. Expected a list or an array with one "
            "entry for each sample, in the order of the targets."
        )


def refuse_non_numbers(data: Data, name: str, kernel: object = None) -> None:
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


def _has_rows(data: Iterable[object]) -> bool:
    """Does the collection have a length and numbered entries, or a way to become an array?"""
    return hasattr(data, "__array__") or (hasattr(data, "__len__") and hasattr(data, "__getitem__"))


def _strangers_refused(name: str, array: np.ndarray, strange: list[object], kernel: object) -> str:
    """What to do with strings or dates where numbers are expected; ``array`` has at least one of them."""
    return _advice_on_strangers(name, array, strange, kernel) + (
        " Or let the data decide: kernel='auto' takes columns and objects for what they are." if name == "X" else ""
    )


def _advice_on_strangers(name: str, array: np.ndarray, strange: list[object], kernel: object) -> str:
    """What converts strings or dates, and the kernels that take them as they are."""

    def refused(kind: str) -> str:
        return f"{name} holds {kind} such as {str(strange[0])!r:.60}, where numbers are expected. "

    texts = [entry for entry in strange if isinstance(entry, str)]
    if len(texts) < len(strange):
        return refused("dates or bytes") + (
            f"Make numbers of dates first, for example {name}.astype('datetime64[s]').astype(float)."
        )
    if all(map(_is_number, texts)):
        return refused("strings") + f"If they are meant as numbers, pass {name}.astype(float)."
    if name == "y":
        return refused("strings") + (
            "Labels are for a classifier; other outputs need a StructuredPredictor or ConditionalMeanEmbedding with an "
            "output_kernel of their kind: 'delta' for labels, Spectrum(3) for strings; representer.kernels.suggest(y) "
            "looks at them and names one."
        )
    one_column = array.ndim == 1 or array.shape[-1] == 1
    if one_column and are_smiles(texts):
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


def _takes_fingerprints(kernel: object) -> bool:
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


def refuse_pictures(X: Data, kernel: object) -> None:
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
    if kernel == "precomputed" or getattr(kernel, "domain", None) == "gram":
        raise ValueError(f"X has the shape {shape}, where a Gram matrix (n_samples, n_samples) is expected.")
    raise ValueError(
        f"X has the shape {shape}, where rows of numbers (n_samples, n_features) are expected. Pass "
        "X.reshape(len(X), -1), or a kernel that takes such arrays: Neural(module, kernel, domain='objects') for "
        "pictures, GlobalAlignment(…) or Signature(…) for series; kernel='auto' finds one."
    )
