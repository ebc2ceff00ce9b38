"""Suggestions of kernels for data, with reasons, and advice on data that a kernel of numbers does not take."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from decimal import Decimal
from html import escape
from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_array, issparse

from representer.kernels.alignments import Subsequence
from representer.kernels.bags import MeanMap
from representer.kernels.base import Kernel
from representer.kernels.curves import Functional
from representer.kernels.graphs import ShortestPath, WeisfeilerLehman, is_graph
from representer.kernels.learned import Neural
from representer.kernels.molecules import (
    Descriptors,
    MinMax,
    Molecule,
    Overlap,
    Tanimoto,
    are_smiles,
    has_rdkit,
    is_molecule,
    share_of_smiles,
)
from representer.kernels.named import FAMILIES, Stack, as_kernel, is_several
from representer.kernels.objects import Delta
from representer.kernels.strings import AnyCase, Mismatch, Spectrum, WeightedDegree
from representer.kernels.tables import (
    Category,
    Columns,
    Date,
    Encoding,
    Missing,
    Number,
    Optional,
    Ordered,
    Pixels,
    Standardized,
    Table,
    Words,
    as_level,
    as_number,
    as_numbers,
    as_seconds_since_1970,
    is_period,
    is_word_for_gap,
)
from representer.kernels.time_series import GlobalAlignment, Signature
from representer.kernels.vectors import Gaussian, Laplacian, Linear, Matern, Polynomial
from representer.notices import warn
from representer.samples import Column, Data, as_items, as_rows, frame_columns, in_seconds, is_dask, is_missing, plain
from representer.values import Value, all_values, is_real

# Kernels with a lengthscale for each feature join the family of vectors up to this many features.
ARD_FEATURES = 40


FeatureKind = Literal["frequencies", "sketch"]  # random Fourier features, or a sketch


def _molecules() -> list[Kernel]:
    """Kernels of substructures of several kinds, counted or not, and of physical properties."""
    members: list[Kernel] = [Molecule(1, counts=True)]
    for kind in ("surroundings", "pairs", "torsions", "paths"):
        members += [Molecule(substructures=kind), Molecule(counts=True, substructures=kind)]
    # The lengthscale is not searched, because leave-one-out is honest for members that learn nothing but alpha.
    return [*members, Descriptors(Standardized(Matern(1.5, "median")))]


def _strings() -> list[Kernel]:
    """Kernels of common substrings of several lengths, with a mismatch, and with gaps."""
    members: list[Kernel] = [Spectrum(length) for length in (1, 2, 3, 5)]
    members += [Mismatch(4, 1), Subsequence(3, 0.5)]
    return [member.normalized() for member in members]


def _graphs() -> list[Kernel]:
    """Kernels of subtrees of several depths, and of shortest paths."""
    members: list[Kernel] = [WeisfeilerLehman(depth) for depth in (1, 2, 4)]
    return [*(member.normalized() for member in members), ShortestPath().normalized()]


def _curves() -> list[Kernel]:
    """Rough, smooth and linear kernels of curves given as pairs (times, values), and one of their slopes."""
    curve, slope = {"domain": "objects"}, {"domain": "objects", "derivative": 1}
    members: list[Kernel] = [Functional(kernel, **curve) for kernel in (Gaussian("auto"), Matern(0.5, "auto"))]  # type: ignore[arg-type]
    return [*members, Functional(Gaussian("auto"), **slope), Functional(Linear(), **curve)]  # type: ignore[arg-type]


def _bags() -> list[Kernel]:
    """Kernels of the means of bags in the spaces of rough and smooth kernels, linear and Gaussian ones."""
    points: tuple[Kernel, ...] = (Gaussian("auto"), Laplacian("auto"))
    return [MeanMap(kernel, outer) for outer in ("linear", Gaussian("auto")) for kernel in points]


_OBJECTS: tuple[Callable[[], list[Kernel]], ...] = (_molecules, _strings, _graphs, _curves, _bags)


def family(kind: str, n_features: int = 1, *, features: FeatureKind | None = None) -> Stack:
    """The kernels that are stacked for a kind of data, where none is given.

    Parameters
    ----------
    kind : {"vectors", "sparse", "molecules", "strings", "graphs", "curves", "bags"}
        The kernels for vectors are rough, smooth and linear; those for sparse rows compare shares of counts.
    n_features : int, default=1
        The number of columns of vectors; from 2 to 40, kernels that learn a lengthscale for each of them join.
    features : {"frequencies", "sketch"} or None, default=None
        For vectors: only kernels with random Fourier features (stationary ones) or with a sketch (polynomials).

    Returns
    -------
    stack : Stack

    Examples
    --------
    >>> from representer.kernels import family
    >>> len(family("vectors", 3).kernels), len(family("vectors", 100).kernels)
    (6, 4)
    >>> family("sparse")
    Stack(kernels=[MinMax(), Tanimoto()])
    """
    if kind == "sparse":
        return Stack([MinMax(), Tanimoto()])
    if kind != "vectors":
        return Stack(_OBJECTS[FAMILIES.index(kind)]())
    if features == "sketch":
        return Stack([Polynomial(degree, "auto", "auto") for degree in (1, 2, 3)])
    members: list[Kernel] = [Laplacian("auto"), Gaussian("auto")]
    if n_features > 1:  # of one feature, Matérn's kernel is Laplace's
        members.insert(1, Matern(0.5, "auto"))
    if features is None:
        members.append(Linear())
    if 1 < n_features <= ARD_FEATURES:
        members += [Laplacian("ard"), Gaussian("ard")]
    return Stack(members)


MANY_STRANGERS = 20  # enough strings to tell what they are


def refuse_unordered(X: Data) -> None:
    """Refuse a set: its samples have no order that targets could follow."""
    if isinstance(X, set | frozenset):
        raise TypeError(
            f"X is a {type(X).__name__}, whose samples have no order. Expected a list or an array with one "
            "entry for each sample, in the order of the targets."
        )


def refuse_non_numbers(data: Data, name: str, kernel: object = None) -> None:
    """Refuse what is no array of numbers: collections, and strings and dates that NumPy would convert silently."""
    if hasattr(data, "toarray"):  # scikit-learn refuses sparse matrices itself
        return
    _refuse_no_array(data, name)
    refuse_masked(data, name)
    try:
        array = np.asarray(data)
    except ValueError as error:  # rows of different lengths
        advice = "Give rows of equal length."
        if name == "X":
            advice = (
                "Objects of different sizes need a kernel for their kind, which kernel='auto' finds; pairs (times, "
                "values) need Functional(…, domain='objects')."
            )
        raise ValueError(f"{name} is no array of numbers ({error}). {advice}") from error
    strangers = (str, bytes, datetime.date, np.datetime64, np.timedelta64)
    if array.dtype.kind in "SUMm":
        strange = list(array.ravel()[:MANY_STRANGERS])
    elif array.dtype.kind == "V":
        raise TypeError(
            f"{name} is a structured array with the fields {', '.join(array.dtype.names or ())}, where rows of numbers "
            f"are expected. Pass " + ("pandas.DataFrame(X)." if name == "X" else "the numbers of one field.")
        )
    elif array.dtype.kind == "c":
        raise ValueError(
            f"Complex data not supported: {name} has the type {array.dtype}. Pass real numbers; real and imaginary "
            f"parts are two columns, numpy.column_stack([{name}.real, {name}.imag])."
        )
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
        if not strange:
            _refuse_objects(array, name)
    else:
        return
    if strange:
        columns = [] if array.ndim != 2 else list(getattr(data, "columns", ()))
        advice = _advice_on_strangers(name, array, strange, kernel, columns)
        auto = "Or let the data decide: kernel='auto' takes columns and objects for what they are."
        raise ValueError(f"{advice} {auto}" if name == "X" else advice)


def refuse_masked(data: Data, name: str) -> None:
    """Refuse an array of which some entries are masked."""
    if np.ma.is_masked(data):
        raise ValueError(
            f"{name} is an array with masked entries, whose mask would be lost. Pass {name}.filled(numpy.nan) to make "
            "gaps of them, or leave those samples out."
        )


def _refuse_no_array(data: Data, name: str) -> None:
    """Refuse dictionaries, sets, texts, functions, single numbers and the like, with advice."""
    expected = f"{name} should be an array with one row for each sample; got"
    if isinstance(data, Mapping):
        advice = ", or data of the kernel Columns" if name == "X" else ""
        raise TypeError(
            f"{expected} {type(data).__name__}. A dictionary of columns is pandas.DataFrame({name}){advice}."
        )
    if isinstance(data, str | bytes):
        raise TypeError(f"{expected} one text, {data!r:.40}. Pass a list or an array of all samples.")
    if isinstance(data, Set):
        raise TypeError(f"{expected} a {type(data).__name__}, whose entries have no order. Pass a list or an array.")
    if isinstance(data, Iterator) or (isinstance(data, Iterable) and not _has_rows(data)):
        raise TypeError(f"{expected} {type(data).__name__}. Make a list of it first: list({name}).")
    if not (hasattr(data, "__array__") or isinstance(data, Iterable)) or getattr(data, "ndim", 1) == 0:
        raise TypeError(
            f"{expected} {_shown(data)}. Pass an array or a list, which of one sample has one row: [{name}]."
            if is_real(data) or getattr(data, "ndim", 1) == 0
            else f"{expected} {_shown(data)}. Pass an array, a frame or a list."
        )


def _shown(data: object) -> str:
    """What was passed, without the place in memory that objects print."""
    if data is None or is_real(data) or isinstance(data, bool | np.bool_):
        return repr(data)
    if getattr(data, "ndim", 1) == 0:
        return f"one entry, {np.asarray(data).tolist()!r:.40}"
    return f"the type {data.__name__}" if isinstance(data, type) else f"one object, a {type(data).__name__}"


def _refuse_objects(array: np.ndarray, name: str) -> None:
    """Refuse an array of objects that are no numbers, by the first of them; gaps stay for later checks."""
    try:
        array.astype(np.float64)
    except (TypeError, ValueError) as error:
        for row, entries in enumerate(array):
            for entry in entries if array.ndim > 1 else [entries]:
                if not (is_missing(entry) or (hasattr(entry, "__float__") and np.ndim(entry) == 0)):
                    raise TypeError(
                        f"{name} holds a {type(entry).__name__} in row {row}, where numbers are expected ({error}). "
                        f"{OBJECTS_ADVICE.get(name, 'Give one number for each sample.')}"
                    ) from error


# What to do with objects in the place of numbers, by the name of the argument.
OBJECTS_ADVICE = {
    "X": "Kernels of objects take them as they are: representer.kernels.suggest(X) names one, kernel=function is one.",
    "y": "Outputs of other kinds need a StructuredPredictor or ConditionalMeanEmbedding with an output_kernel.",
}


def refuse_flat(X: Data, name: str = "X") -> None:
    """Refuse rows of numbers that have no second axis."""
    shape = tuple(X.shape if hasattr(X, "shape") else np.asarray(X).shape)
    if len(shape) != 1:
        return
    if shape == (0,):
        raise ValueError(f"{name} is empty: at least one row is needed, in an array (n_samples, n_features).")
    column, row = ("to_frame()", "to_frame().T") if hasattr(X, "to_frame") else ("reshape(-1, 1)", "reshape(1, -1)")
    raise ValueError(
        f"{name} has the shape {shape}, where rows of numbers (n_samples, n_features) are expected. Reshape your "
        f"data: {name}.{column} if it is one feature of many samples, {name}.{row} if it is one sample."
    )


def _has_rows(data: Iterable[object]) -> bool:
    """Does the collection have a length and numbered entries, or a way to become an array?"""
    return hasattr(data, "__array__") or (hasattr(data, "__len__") and hasattr(data, "__getitem__"))


def _advice_on_strangers(
    name: str, array: np.ndarray, strange: list[object], kernel: object, columns: list[object]
) -> str:
    """Advice on converting strings or dates, and on kernels that take them as they are."""

    def refused(kind: str, entry: object = strange[0]) -> str:
        holders = (column for column, values in zip(columns, array.T, strict=False) if any(v is entry for v in values))
        where = "".join(f" in column {column!r}" for column in list(holders)[:1])
        return f"{name} holds {kind} such as {str(entry)!r:.60}{where}, where numbers are expected. "

    texts = [entry for entry in strange if isinstance(entry, str)]
    other = [entry for entry in strange if not isinstance(entry, str)]
    if other:
        return refused("dates or bytes", other[0]) + (
            f"Make numbers of dates first, for example {name}.astype('datetime64[s]').astype(float)."
        )
    if all(as_number(text) is not None for text in texts):
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
    """Is a kernel one of fingerprints, or made from one?"""
    kernel = as_kernel(kernel) if isinstance(kernel, str) and not is_several(kernel) else kernel
    return isinstance(kernel, Value) and any(isinstance(value, Overlap) for value in all_values(kernel))


def refuse_pictures(X: Data, kernel: object) -> None:
    """Refuse arrays with more than two axes where a kernel takes vectors; a network may take them as objects."""
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


# A column of texts holds categories if a level has this many entries on average, or if there are few levels.
ENTRIES_A_LEVEL, FEW_LEVELS = 2.0, 10
# A text has at least this median number of words; shorter ones are names or codes.
WORDS_OF_TEXT = 4
# Sequences over a small alphabet have at least this median number of symbols.
SYMBOLS_OF_SEQUENCE = 8
# An array is a picture if both of its sides have at least this many entries.
SIDE_OF_PICTURE = 6
# Texts are molecules if there are enough of them, enough have more than a chain of atoms, and RDKit reads enough.
FEW_MOLECULES, SHARE_WITH_STRUCTURE, SHARE_OF_MOLECULES = 4, 0.2, 0.8
# Texts were meant as numbers if at least this share of them look like numbers.
SHARE_OF_NUMBERS = 0.5
# Words stand for gaps if they are at most this share of a column, which has enough different numbers beside them.
SHARE_OF_WORDS, FEWEST_NUMBERS = 0.5, 3
# A number is a code for a gap only beside enough other numbers, and if it stands in enough rows.
FEW_NUMBERS, ROWS_OF_CODE = 10, 2
# The number of different texts of a column that are looked at.
LOOKED_AT = 2000

NUCLEOTIDES, AMINO_ACIDS = set("ACGTUN-"), set("ACDEFGHIKLMNPQRSTVWYXBZUOJ*-")
DATE = re.compile(r"\s*\d{4}-\d{1,2}-\d{1,2}([T ]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?\s*")
LIKE_DATE = re.compile(r"\s*(\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{1,2}[ -][A-Za-z]{3,9}[ -]\d{2,4})(\s.*)?")
# Identifiers are a word and a running number, or many hexadecimal digits.
NUMBERED, HEXADECIMAL = re.compile(r"([^\W\d][^\W\d_]*[ _#.:/-]?)\d+"), re.compile(r"(?=.*\d)[0-9a-fA-F-]{8,}")
STRUCTURE = re.compile(r"[()=#\[\]@/\\%+]|[A-Za-z]\d")  # signs of SMILES with more than a chain


@dataclass(frozen=True)
class Finding:
    """The kind of the entries of a column, or of all samples, with the kernels that it suggests.

    Parameters
    ----------
    column : str or None
        The name of the column; None for samples without columns.
    kind : str
        The kind of the entries, such as "numbers" or "categories".
    why : str
        The observation that decided the kind.
    part : Encoding, Kernel or None
        The part that the column has in the kernel; None if the column is left out.
    family : tuple of Kernel
        Kernels to be stacked if the samples are such objects and nothing else.
    doubt : str or None
        Why the kind may be wrong, and how to overrule it.
    association : float or None
        The adjusted share of the variance of y that the column explains by itself, linearly in its coordinates.
    """

    column: str | None
    kind: str
    why: str
    part: Encoding | Kernel | None = None
    family: tuple[Kernel, ...] = ()
    doubt: str | None = None
    association: float | None = None


@dataclass(frozen=True)
class Suggestion:
    """A kernel for some data, and what the data were taken for; printed as a table and as code.

    Parameters
    ----------
    kernel : Stack
        The kernels whose fits a supervised learner averages.
    single : Kernel
        The kernel for learners that take only one.
    findings : tuple of Finding
        The kind of each column.
    """

    kernel: Stack
    single: Kernel
    findings: tuple[Finding, ...]

    @property
    def doubts(self) -> list[str]:
        """Sentences about findings that may be wrong, which say how to overrule them."""
        return [finding.doubt for finding in self.findings if finding.doubt is not None]

    def _rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [("column", "taken for", "because", "kernel", "explains")]
        for finding in self.findings:
            share = "" if finding.association is None else f"{finding.association:.2f}"
            kernel = "left out" if finding.part is None else repr(finding.part)
            rows.append((finding.column or "(all)", finding.kind, finding.why, kernel, share))
        has_targets = any(finding.association is not None for finding in self.findings)
        return rows if has_targets else [row[:-1] for row in rows]

    def __repr__(self) -> str:
        rows = self._rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        notes = [f"Note: {doubt}" for doubt in self.doubts]
        return "\n".join([*lines, *notes, f"kernel = {self.kernel!r}"])

    def _repr_html_(self) -> str:
        head, *body = self._rows()
        cells = "".join(f"<th>{escape(cell)}</th>" for cell in head)
        lines = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in body)
        notes = "".join(f"<p>{escape(doubt)}</p>" for doubt in self.doubts)
        return f"<table><tr>{cells}</tr>{lines}</table>{notes}<pre>{escape(repr(self.kernel))}</pre>"


def suggest(X: Data, y: Data = None, *, features: FeatureKind | None = None) -> Suggestion:
    """The kernel that ``kernel="auto"`` means for some data, with what each column was taken for, and why.

    Parameters
    ----------
    X : array, sparse matrix, frame (pandas, polars, pyarrow), list of dictionaries, or list of objects
        The samples.
    y : array-like, default=None
        Targets: with them the table says how much of their variance each column explains by itself.
    features : {"frequencies", "sketch"} or None, default=None
        For vectors: only kernels with random Fourier features (stationary ones) or with a sketch (polynomials).

    Returns
    -------
    suggestion : Suggestion
        Its ``kernel`` prints as code that one can copy, change and pass to a learner.

    Examples
    --------
    >>> from representer.kernels import suggest
    >>> suggest({"size": [1.0, 2.5, None], "colour": ["red", "blue", "red"]}).findings[1].kind
    'categories'
    >>> suggest(["ACGTTGCAACGT", "ACGTTGGAACGA", "TTGTTGCAACGT"]).findings[0].kind
    'DNA or RNA sequences'
    """
    X = plain(X)
    refuse_unordered(X)
    if issparse(X):
        return _of_sparse(X)
    if is_dask(X):
        return _of_vectors(as_rows(X, "X", sizes=False, dimensions=(2,)), features)
    if not (hasattr(X, "__len__") or hasattr(X, "__array__")):
        raise TypeError(
            f"X should be an array, a frame or a list with one object for each sample; got {type(X).__name__}, "
            f"{X!r:.40}. Make a list of what is read one by one, list(X); a lazy frame is read by X.collect()."
        )
    if getattr(X, "ndim", 1) == 0:
        _refuse_no_array(X, "X")
    if is_frame(X):
        return _of_frame(X, y)
    X = X if hasattr(X, "__len__") else np.asarray(X)
    if not hasattr(X, "shape") and len(X) == 0:
        raise ValueError(f"Found 0 samples: X is {X!r}. Expected an array or a list with one object for each sample.")
    if hasattr(X, "shape") and len(X.shape) == 2:
        return _of_vectors(_as_floats(X), features)
    rows = None if hasattr(X, "shape") else _as_rows(X)
    return _of_objects(list(as_items(X))) if rows is None else _of_vectors(rows, features)


def _as_floats(X: Data) -> np.ndarray:
    """A matrix of numbers; one of words is refused, because it has no column names to say what they are."""
    if X.dtype.kind == "c":
        raise ValueError("Complex data not supported: give real and imaginary parts as columns.")
    reason: Exception = ValueError(f"entries of type {X.dtype}")
    try:
        if X.dtype.kind in "biufO":
            return np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        reason = error
    raise type(reason)(
        f"X is an array with entries that are no numbers ({reason}). Give its columns names, pandas.DataFrame(X, "
        "columns=[…]), so that each is taken for what it is, or convert it: X.astype(float)."
    )


def is_frame(X: Data) -> bool:
    """Do the columns of samples have names, as in a frame, a dictionary, a structured array or dictionaries?

    Examples
    --------
    >>> from representer.kernels import is_frame
    >>> is_frame({"size": [1.0, 2.0]}), is_frame([[1.0], [2.0]])
    (True, False)
    """
    return frame_columns(X) is not None


def _as_rows(X: Data) -> np.ndarray | None:
    """Lists of numbers, all of the same length, as a matrix; None for anything else."""
    if not all(isinstance(row, list | tuple) and row and all(map(_is_number_or_gap, row)) for row in X):
        return None
    if len({len(row) for row in X}) != 1:
        return None
    return np.array([[np.nan if is_missing(entry) else entry for entry in row] for row in X], dtype=np.float64)


def are_vectors(X: Data, *, incomplete: bool = False) -> bool:
    """Are the samples rows of numbers, or a frame of them; with ``incomplete`` also if sparse, or with gaps?

    A matrix holds vectors whatever its entries are; they are checked elsewhere.

    Examples
    --------
    >>> from representer.kernels import are_vectors
    >>> are_vectors([[1.0, 2.0], [3.0, 4.0]]), are_vectors(["ab", "c"])
    (True, False)
    """
    X = plain(X)
    if issparse(X):
        return incomplete
    if is_frame(X):
        columns = [np.asarray(c) for c in (frame_columns(X) or {}).values()] if hasattr(X, "to_numpy") else []
        return bool(columns) and all(c.dtype.kind in "biuf" and (incomplete or not np.isnan(c).any()) for c in columns)
    if isinstance(X, list | tuple):
        rows = _as_rows(X) if len(X) else None
    else:
        rows = X if hasattr(X, "shape") else np.asarray(X)
    if rows is None or len(rows.shape) != 2:
        return False
    return incomplete or getattr(rows.dtype, "kind", "") != "f" or not bool(np.isnan(rows).any())


def _is_number_or_gap(entry: object) -> bool:
    return is_real(entry) or is_missing(entry) or isinstance(entry, bool | np.bool_)


# -- samples without names --------------------------------------------------------------------------------------------
def _of_vectors(X: Data, features: FeatureKind | None) -> Suggestion:
    """The suggestion for numbers: the family of vectors, in units of the columns, and gaps if X in memory has some."""
    gaps = not is_dask(X) and bool(np.isnan(X).any())
    if gaps and bool(np.isnan(X).all()):
        raise ValueError("X contains NaN only: there is nothing to learn from. Look at how it was read.")
    why = f"an array of {X.shape[1]} columns" + (", with gaps" if gaps else "")

    def dressed(kernel: Kernel) -> Kernel:
        return Standardized(Missing(kernel) if gaps else kernel)

    members = family("vectors", X.shape[1], features=features).kernels
    if not is_dask(X) and X.size and not np.ptp(np.nan_to_num(X), axis=0).any():  # all points are the same
        members = [kernel for kernel in members if not isinstance(kernel, Linear)]
    stack = Stack([dressed(kernel) for kernel in members])
    single = dressed(Gaussian("auto"))
    return Suggestion(stack, single, (Finding(None, "numbers", why, single),))


def _of_sparse(X: Data) -> Suggestion:
    """The suggestion for sparse rows: kernels of what two rows have in common."""
    why, members = f"a sparse matrix of {X.shape[1]} columns", family("sparse").kernels
    entries = csr_array(X).data
    if entries.dtype.kind in "if" and (entries < 0).any():
        why, members = f"{why}, with negative entries", [k for k in members if not isinstance(k, MinMax)]
    return _of_family(Finding(None, "sparse rows", why, members[0], tuple(members)))


def _of_objects(entries: Column) -> Suggestion:
    """The suggestion for samples that are one object each."""
    finding = kind_of_column(None, entries)
    if isinstance(finding.part, Category):
        finding = replace(finding, part=Delta(), family=(Delta(),))
    if isinstance(finding.part, Encoding) or finding.part is None:
        raise ValueError(
            f"The samples are one column of {finding.kind} ({finding.why}). Give it a name, pandas.DataFrame({{'x': "
            "values}), or make it a matrix, np.reshape(values, (-1, 1))."
        )
    return _of_family(finding)


def _of_family(finding: Finding) -> Suggestion:
    single = finding.family[0]
    return Suggestion(Stack(list(finding.family)), single, (finding,))


# -- frames -----------------------------------------------------------------------------------------------------------
def _of_frame(X: Data, y: Data) -> Suggestion:
    """The suggestion for a frame: a table of numbers, categories and dates, and a kernel for each column of objects."""
    columns = frame_columns(X)
    assert columns is not None
    if not columns or not len(next(iter(columns.values()))):
        size = f"{len(columns)} columns and no rows" if columns else "no columns"
        raise ValueError(f"The frame has {size}: there is nothing to learn from. Look at how it was read.")
    findings = [kind_of_column(name, column) for name, column in columns.items()]
    if y is not None:
        findings = [_associated(finding, columns[finding.column], y) for finding in findings]
    encodings = {finding.column: finding.part for finding in findings if isinstance(finding.part, Encoding)}
    objects = [finding for finding in findings if isinstance(finding.part, Kernel)]
    if not encodings and not objects:
        named = ", ".join(f"{finding.column!r} ({finding.kind})" for finding in findings)
        raise ValueError(f"No column has anything to learn from: {named}.")
    kernel, single = _frame_kernels(encodings, objects)
    return Suggestion(kernel, single, tuple(findings))


def _frame_kernels(encodings: dict[Any, Encoding], objects: list[Finding]) -> tuple[Stack, Kernel]:
    """The kernels of a frame that are stacked, and the single one: tables, objects, sums and products of both."""
    tables = [Table(kernel, encodings) for kernel in family("vectors", len(encodings)).kernels] if encodings else []
    if not objects:
        return Stack(tables), Table(Gaussian("auto"), encodings)
    if not encodings and len(objects) == 1:
        members = [Columns({str(finding.column): kernel}) for finding in objects for kernel in finding.family]
        return Stack(members), members[0]
    kernels: dict[Any, Any] = {finding.column: finding.part for finding in objects}
    total = Columns(kernels, weights="auto")
    if not encodings:
        return Stack([total, Columns(kernels, "product")]), total
    mixed: list[Kernel] = [*tables, total]
    for kernel in (Gaussian("auto"), Laplacian("auto")):
        table = Table(kernel, encodings)
        mixed += [table + total, table * (total + 1.0)]
    return Stack(mixed), Table(Gaussian("auto"), encodings) + total


def _associated(finding: Finding, column: Column, y: Data) -> Finding:
    """The finding with the adjusted R² of y on the coordinates of its column."""
    if not isinstance(finding.part, Encoding):
        return finding
    Z = finding.part.fitted(column).coordinates(column)
    Y = np.asarray(plain(y))
    Y = Y.reshape(len(Y), -1) if Y.dtype.kind in "iuf" else (Y[:, None] == np.unique(Y)).astype(np.float64)
    if len(Y) != len(Z):
        raise ValueError(f"y has {len(Y)} entries, but the frame has {len(Z)} rows.")
    observed = np.isfinite(Y).all(1)
    Z, Y = np.column_stack([Z, np.ones(len(Z))])[observed], Y[observed] - Y[observed].mean(0)
    rank = np.linalg.matrix_rank(Z)
    residuals = Y - Z @ np.linalg.lstsq(Z, Y, rcond=None)[0]
    total = float((Y**2).sum())
    if not total > 0 or len(Y) <= rank:
        return finding
    share = 1.0 - float((residuals**2).sum()) / total * (len(Y) - 1) / (len(Y) - rank)
    return replace(finding, association=max(0.0, share))


# -- one column -------------------------------------------------------------------------------------------------------
def kind_of_column(name: str | None, column: Column) -> Finding:
    """The kind of the entries of a column, from what the frame declares, their types, and a look at them."""
    declared = _declared(name, column)
    if declared is not None:
        return declared
    entries = list(column)
    present = [entry for entry in entries if not is_missing(entry)]
    gaps = len(present) < len(entries)
    if not present:
        return Finding(name, "nothing", "all entries are missing", doubt=f"Column {name!r} is empty and is left out.")
    for look in (_with_words_for_gaps, _numbers, _dates, _texts, _things):
        finding = look(name, present)
        if finding is not None:
            return _with_gaps(finding, gaps=gaps) if gaps or name is not None else finding
    return _mixed(name, present)


def _mixed(name: str | None, present: list[Any]) -> Finding:
    """The finding for entries of several types: categories if they are words and numbers, else an error."""
    kinds = sorted({type(entry).__name__ for entry in present})
    if name is not None and all(isinstance(entry, str | bool) or is_real(entry) for entry in present):
        doubt = f"Column {name!r} mixes {' and '.join(kinds)} and is taken for categories. Convert it to one type."
        return Finding(name, "categories", f"entries of several types: {', '.join(kinds)}", Category(), doubt=doubt)
    what = "The samples are" if name is None else f"Column {name!r} has entries that are"
    within = " of different kinds or shapes" if kinds in (["list"], ["tuple"], ["ndarray"]) else ""
    raise ValueError(
        f"{what} {', '.join(kinds)}{within}, for which no kernel is known. Convert them to one kind of data (numbers, "
        "dates, texts: column.astype(str)), or give a kernel: Callable(function) takes any objects."
    )


def _with_words_for_gaps(name: str | None, present: list[Any]) -> Finding | None:
    """The finding for numbers or dates beside words for gaps; None for codes and for columns of few numbers."""
    words = sorted({entry for entry in present if is_word_for_gap(entry)})
    rest = [entry for entry in present if not is_word_for_gap(entry)]
    if name is None or not words or len(rest) < (1.0 - SHARE_OF_WORDS) * len(present):
        return None
    texts = list(dict.fromkeys(entry for entry in rest if isinstance(entry, str)))
    looks = [_numbers(name, rest), _dates(name, rest)] if not texts else [_written_dates(name, texts, rest)]
    if texts and all(isinstance(entry, str) or is_real(entry) for entry in rest):
        looks.append(_written_numbers(name, texts, rest))
    finding = next((look for look in looks if look is not None and isinstance(look.part, Number | Date)), None)
    if finding is None or len(set(rest)) < FEWEST_NUMBERS:
        return None
    quoted = ", ".join(map(repr, words))
    doubt = (
        f"Column {name!r} has {finding.kind}, and {quoted} in {len(present) - len(rest)} row(s), taken for gaps. If "
        "this is a level of its own, make it a categorical column: astype('category')."
    )
    return replace(finding, why=f"{finding.why}, with {quoted} for gaps", doubt=doubt)


def _with_gaps(finding: Finding, *, gaps: bool) -> Finding:
    """The finding for a column that has gaps, or may have some in new data: kernels of objects get ``Optional``."""
    why = f"{finding.why}, with gaps" if gaps else finding.why
    if isinstance(finding.part, Kernel):
        return replace(finding, why=why, part=Optional(finding.part), family=tuple(map(Optional, finding.family)))
    return replace(finding, why=why)


def _declared(name: str | None, column: Column) -> Finding | None:
    """The finding for a column that pandas, polars or pyarrow declare to hold categories; None for others."""
    dtype = getattr(column, "dtype", None)
    if type(dtype).__name__ not in ("CategoricalDtype", "Categorical", "Enum", "Dictionary"):
        return None
    present = set(map(as_level, column)) - {None}
    levels = [level for level in map(as_level, getattr(dtype, "categories", ())) if level is not None]
    if len(present) < 2:
        return Finding(name, "a constant", "one level")
    if getattr(dtype, "ordered", False) or type(dtype).__name__ == "Enum":
        return Finding(name, "ordered categories", f"{len(levels)} levels, declared in order", Ordered(levels))
    return Finding(name, "categories", f"{len(present)} levels, declared", Category())


def _numbers(name: str | None, present: list[Any]) -> Finding | None:
    """The finding for numbers, truth values or lengths of time; None for other entries."""
    if all(isinstance(entry, bool | np.bool_) for entry in present):
        if len(set(map(bool, present))) == 1:
            return Finding(name, "a constant", f"always {present[0]}")
        return Finding(name, "yes or no", "truth values", Category())
    if all(isinstance(entry, datetime.timedelta | np.timedelta64) for entry in present):
        if len({float(in_seconds(entry)) for entry in present}) == 1:
            return Finding(name, "a constant", f"always {present[0]}")
        return Finding(name, "durations", "lengths of time, in seconds", Number())
    if not all(is_real(entry) or isinstance(entry, Decimal | bool | np.bool_) for entry in present):
        return None
    numbers, counts = np.unique(np.array([float(entry) for entry in present]), return_counts=True)
    if len(numbers) == 1:
        return Finding(name, "a constant", f"always {present[0]}")
    doubt = None if name is None else _doubt_about_code(name, numbers, counts)
    return Finding(name, "numbers", f"{len(numbers)} different numbers", Number(), doubt=doubt)


def _doubt_about_code(name: str, numbers: np.ndarray, counts: np.ndarray) -> str | None:
    """A doubt about a repeated -999, 9999 or lone negative number that is far from all others."""
    for i, others in ((0, numbers[1:]), (-1, numbers[:-1])):
        code, n_rows = float(numbers[i]), int(counts[i])
        if len(others) < FEW_NUMBERS or n_rows < ROWS_OF_CODE or not np.isfinite(numbers).all():
            continue
        nines = re.fullmatch(r"-?9{2,}", f"{code:.10g}") is not None
        if (nines or code < 0.0 <= others[0]) and np.abs(others - code).min() > np.ptp(others):
            return (
                f"Column {name!r} has {code:.10g} in {n_rows} rows, far from its other numbers, which are from "
                f"{others[0]:.4g} to {others[-1]:.4g}. If it stands for what is not known, mark it as a gap: "
                f"column.replace({code:.10g}, float('nan'))."
            )
    return None


def _dates(name: str | None, present: list[Any]) -> Finding | None:
    """The finding for dates and times; None for other entries."""
    if not all(isinstance(entry, datetime.date | np.datetime64) or is_period(entry) for entry in present):
        return None
    if len(set(map(str, present))) == 1:
        return Finding(name, "a constant", f"always {present[0]}")
    return Finding(name, "dates", "datetime objects", Date())


# -- texts ------------------------------------------------------------------------------------------------------------
def _texts(name: str | None, present: list[Any]) -> Finding | None:
    """The finding for texts: written numbers and dates, categories, molecules, sequences, names, sentences."""
    if not all(isinstance(entry, str) for entry in present):
        return None
    levels = set(present)
    if len(levels) == 1 and name is not None:
        return Finding(name, "a constant", f"always {present[0]!r:.40}")
    seen = list(levels)[:LOOKED_AT]
    for look in (_written_numbers, _written_dates, _smiles):
        finding = look(name, seen, present)
        if finding is not None:
            return finding
    if len(levels) * ENTRIES_A_LEVEL <= len(present) or len(levels) < min(FEW_LEVELS, len(present)):
        return Finding(name, "categories", f"{len(levels)} levels of {len(present)} entries", Category())
    sequences = _sequences(name, seen, present)
    if sequences is not None:
        return sequences
    if name is not None and _are_identifiers(present):
        left_out = (
            f"Column {name!r} has a code of its own in each row, such as {present[0]!r:.40}: it says nothing of other "
            f"rows, and is left out. To compare its letters, give a kernel: Columns({{{name!r}: "
            "Spectrum((1, 3)).normalized(), …})."
        )
        return Finding(name, "identifiers", f"{len(levels)} different codes of {len(present)}", doubt=left_out)
    doubt = _doubt_about_numbers(name, seen)
    words = float(np.median([len(text.split()) for text in seen]))
    if words >= WORDS_OF_TEXT:
        kernels = [Words(1), Words((1, 2)), Spectrum((3, 5)).normalized()]
        return _objects(name, "text", f"{words:.0f} words in the middle", kernels)
    kernels = [Spectrum((1, 3)).normalized(), *family("strings").kernels, Words(1)]
    return _objects(name, "names", f"{len(levels)} different short texts of {len(present)}", kernels, doubt)


def _are_identifiers(present: list[str]) -> bool:
    """Are there at least ten texts, all different: a word with a running number, or hexadecimal codes of one length?"""
    if len(present) < FEW_LEVELS or len(set(present)) < len(present):
        return False
    numbered = [NUMBERED.fullmatch(text) for text in present]
    if all(numbered) and len({match[1] for match in numbered if match}) == 1:
        return True
    return len(set(map(len, present))) == 1 and all(HEXADECIMAL.fullmatch(text) for text in present)


def _doubt_about_numbers(name: str | None, seen: list[str]) -> str | None:
    """A doubt about texts most of which are numbers, perhaps with a comma, a sign or a unit."""
    odd = [text for text in seen if not _is_like_number(text)]
    if len(odd) > (1.0 - SHARE_OF_NUMBERS) * len(seen):
        return None
    example = odd[0] if odd else seen[0]
    return (
        f"Column {name!r} seems to have numbers that are stored as text, but for entries such as {example!r:.40}, and "
        "is taken for names. Convert it, after signs and units are gone and commas are points (column.str.replace): "
        "pandas.to_numeric(column, errors='coerce') makes gaps of what is no number then."
    )


def _is_like_number(text: str) -> bool:
    """Is a text a number, perhaps with a comma, a percent sign, a sign of comparison or a unit?"""
    words = text.replace(",", ".").strip("<>≤≥~% ").split()
    try:
        return len(words) in (1, 2) and np.isfinite(float(words[0]))
    except ValueError:
        return False


def _written_numbers(name: str | None, seen: list[str], present: list[str]) -> Finding | None:
    """The finding for numbers that are stored as text; zeros in front make them codes."""
    try:
        numbers = as_numbers(seen)
    except ValueError:
        return None
    if any(re.fullmatch(r"0\d+", text.strip()) for text in seen):
        return Finding(name, "categories", "digits with zeros in front: codes", Category())
    if not np.isfinite(numbers).all():
        return None
    return Finding(
        name,
        "numbers",
        "texts that are numbers",
        Number(),
        doubt=f"Column {name!r} has numbers that are stored as text, and is taken for numbers. For categories, make it "
        "a categorical column: astype('category').",
    )


def _written_dates(name: str | None, seen: list[str], present: list[str]) -> Finding | None:
    """The finding for dates that are stored as text: ISO dates are read, other formats raise a doubt."""
    if all(DATE.fullmatch(text) for text in seen):
        try:
            as_seconds_since_1970(seen)
        except ValueError:
            return None
        return Finding(name, "dates", "texts like 2024-03-31", Date())
    if sum(LIKE_DATE.fullmatch(text) is not None for text in seen) < 0.9 * len(seen):
        return None
    common = len(seen) * ENTRIES_A_LEVEL <= len(present)
    kernel = Spectrum((1, 3)).normalized()
    return Finding(
        name,
        "categories" if common else "names",
        f"texts that may be dates, such as {seen[0]!r}",
        Category() if common else kernel,
        () if common else (kernel,),
        doubt=f"Column {name!r} seems to have dates that are not in the form 2024-03-31. Convert it with "
        "pandas.to_datetime(column, format=...), or dayfirst=True where the day is first.",
    )


def _smiles(name: str | None, seen: list[str], present: list[str]) -> Finding | None:
    """The finding for molecules: at least a few texts, some with brackets, bonds or rings, most readable for RDKit.

    A molecule may have several rows, so that the number of its repetitions does not matter. Texts that RDKit cannot
    read are more likely typing errors than names: the kernel names them in an error.
    """
    structured = sum(STRUCTURE.search(text) is not None for text in seen)
    if len(seen) < FEW_MOLECULES or structured < SHARE_WITH_STRUCTURE * len(seen):
        return None
    share = 0.0 if any(" " in text.strip() for text in seen) else share_of_smiles(seen)
    if share < SHARE_OF_MOLECULES:
        return None
    if not has_rdkit():
        hint = f"Column {name!r} looks like SMILES, but RDKit is not installed: pip install 'representer[molecules]'."
        return _objects(name, "names", "texts like SMILES, without RDKit", [Spectrum((1, 4)).normalized()], hint)
    return _member_of("molecules", name, "molecules", f"SMILES: RDKit reads {share:.0%} of {len(seen)}")


def _sequences(name: str | None, seen: list[str], present: list[str]) -> Finding | None:
    """The finding for DNA and RNA in any case, and for proteins in capitals, which lower-case words may look like."""
    symbols = set("".join(seen).upper())
    middle = float(np.median([len(text) for text in seen]))
    upper = sum(map(str.isupper, seen)) >= 0.9 * len(seen)
    if middle < SYMBOLS_OF_SEQUENCE or not symbols <= (AMINO_ACIDS if upper else NUCLEOTIDES):
        return None
    kind = "DNA or RNA sequences" if symbols <= NUCLEOTIDES else "protein sequences"
    lengths = ((3, 6), (2, 4), (1, 3)) if symbols <= NUCLEOTIDES else ((1, 3), (2, 3), (1, 2))
    kernels: list[Kernel] = [AnyCase(Spectrum(length).normalized()) for length in lengths]
    if len({len(text) for text in seen}) == 1:
        kernels.append(AnyCase(WeightedDegree((1, 3)).normalized()))
    return _objects(name, kind, f"{len(symbols)} symbols, {middle:.0f} letters in the middle", kernels)


def _objects(name: str | None, kind: str, why: str, kernels: list[Any], doubt: str | None = None) -> Finding:
    """The finding for a column of objects with kernels that are stacked, the first of which is the single one."""
    return Finding(name, kind, why, kernels[0], tuple(kernels), doubt)


def _member_of(family_name: str, name: str | None, kind: str, why: str, doubt: str | None = None) -> Finding:
    """The finding for a column whose kernels are a family; its third kernel is the single one, or the last of fewer."""
    kernels = tuple(family(family_name).kernels)
    return Finding(name, kind, why, kernels[min(2, len(kernels) - 1)], kernels, doubt)


# -- other objects ----------------------------------------------------------------------------------------------------
def _things(name: str | None, present: list[Any]) -> Finding | None:
    """The finding for molecules, graphs, records, lists of words or arrays; None for other objects."""
    if all(map(is_molecule, present)):
        return _member_of("molecules", name, "molecules", "molecules of RDKit")
    if all(map(is_graph, present)):
        return _member_of("graphs", name, "graphs", f"objects of type {type(present[0]).__name__}")
    if all(isinstance(entry, Mapping) for entry in present):
        return _objects(name, "records", "dictionaries", [suggest(list(present)).single])
    if all(isinstance(e, set | frozenset | list | tuple) and all(isinstance(w, str) for w in e) for e in present):
        return _objects(name, "words", "lists of words", [Words(1), Words((1, 2))])
    return _arrays(name, present)


def _arrays(name: str | None, present: list[Any]) -> Finding | None:
    """The finding for curves, series, bags of points and pictures; None for other arrays."""
    if all(isinstance(entry, tuple) and len(entry) == 2 and np.ndim(entry[0]) == 1 for entry in present):
        return _member_of("curves", name, "curves", "pairs (times, values)")
    try:
        arrays = [np.asarray(plain(entry), dtype=np.float64) for entry in present]
    except (TypeError, ValueError):
        return None
    shapes = {array.shape for array in arrays}
    if len({array.ndim for array in arrays}) > 1 or arrays[0].ndim == 0:
        return None
    pixels = [Pixels(Gaussian("auto")), Pixels(Laplacian("auto"))]
    if len(shapes) == 1 and (arrays[0].ndim > 2 or (arrays[0].ndim == 2 and min(arrays[0].shape) >= SIDE_OF_PICTURE)):
        return _objects(name, "pictures", f"arrays of shape {arrays[0].shape}", pixels)
    if arrays[0].ndim == 1 and len(shapes) == 1:
        return _objects(name, "curves", f"{arrays[0].shape[0]} numbers each", pixels)
    if arrays[0].ndim == 1:
        series = [GlobalAlignment(), Signature(3).normalized()]
        return _objects(name, "series", "numbers in series of different lengths", series)
    if arrays[0].ndim == 2 and len({shape[1] for shape in shapes}) == 1:
        doubt = None
        if arrays[0].shape[1] <= SIDE_OF_PICTURE and len(shapes) > 1 and name is not None:
            doubt = f"Column {name!r} has bags of points, without an order. For series in time use GlobalAlignment()."
        return _member_of("bags", name, "bags of points", f"arrays of {arrays[0].shape[1]} columns", doubt)
    return None


# -- what learners make of a word -------------------------------------------------------------------------------------
def stack_of(kernel: object, X: Data, features: FeatureKind | None = None) -> Stack | None:
    """The kernels that a learner stacks; None where ``kernel`` is a single kernel.

    They are those of a ``Stack`` (a copy with plain numbers), of the family that a word names, or for ``"auto"`` the
    suggestion for X. ``features`` is the kind of features that the kernels must have.
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
    return _announced(X, features).kernel


def kernels_of(word: str, X: Data, features: FeatureKind | None = None, *, compared: bool = True) -> list[Kernel]:
    """The candidates of a learner that takes one kernel: all of a word's kernels, or one if none are ``compared``."""
    stack = stack_of(word, X, features)
    assert stack is not None  # a word names several kernels
    kernels = list(stack.kernels)
    smooth = [kernel for kernel in kernels if getattr(kernel, "kernel", kernel) == Gaussian("auto")]
    return kernels if compared else (smooth or kernels)[:1]


def one_kernel(kernel: object, width: str = "auto") -> Any:
    """The kernel of a learner without targets to stack kernels on: ``"auto"`` is a Gaussian whose width is learned."""
    return Gaussian(width) if isinstance(kernel, str) and kernel == "auto" else kernel


def single_kernel(kernel: object, X: Data, *, incomplete: bool = True) -> Any:
    """The kernel of a learner that takes one: ``"auto"`` stays for rows of numbers, and is else the suggestion for X.

    ``incomplete`` says whether the learner takes sparse rows, and rows of numbers with gaps.
    """
    if not (isinstance(kernel, str) and kernel == "auto"):
        return kernel
    if is_dask(X) or are_vectors(X, incomplete=not incomplete):
        return kernel
    return _announced(X).single


def _announced(X: Data, features: FeatureKind | None = None) -> Suggestion:
    """The suggestion for X, with a warning for each of its doubts."""
    suggestion = suggest(X, features=features)
    for doubt in suggestion.doubts:
        warn(doubt, UserWarning)
    return suggestion
