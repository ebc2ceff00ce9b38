"""Which kernels suit data, and why; and what to do with data that a kernel of numbers does not take."""

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
    as_numbers,
    as_seconds_since_1970,
    is_period,
    is_word_for_gap,
)
from representer.kernels.time_series import GlobalAlignment, Signature
from representer.kernels.vectors import Gaussian, Laplacian, Linear, Matern, Polynomial
from representer.notices import warn
from representer.samples import Column, Data, as_items, frame_columns, in_seconds, is_dask, is_missing, plain
from representer.values import Value, all_values, is_real

# Kernels with a lengthscale for each feature join the family of vectors up to so many features.
ARD_FEATURES = 40


FeatureKind = Literal["frequencies", "sketch"]  # of random Fourier features, or of a sketch


def _molecules() -> list[Kernel]:
    """Substructures of several kinds, as they are counted and as they occur, and physical properties."""
    members: list[Kernel] = [Molecule(1, counts=True)]
    for kind in ("surroundings", "pairs", "torsions", "paths"):
        members += [Molecule(substructures=kind), Molecule(counts=True, substructures=kind)]
    # A lengthscale that is not searched: residuals of members that learn nothing but alpha are honest.
    return [*members, Descriptors(Standardized(Matern(1.5, "median")))]


def _strings() -> list[Kernel]:
    """Common substrings of several lengths, with a mismatch, and with gaps."""
    members: list[Kernel] = [Spectrum(length) for length in (1, 2, 3, 5)]
    members += [Mismatch(4, 1), Subsequence(3, 0.5)]
    return [member.normalized() for member in members]


def _graphs() -> list[Kernel]:
    """Subtrees of several depths, and shortest paths."""
    members: list[Kernel] = [WeisfeilerLehman(depth) for depth in (1, 2, 4)]
    return [*(member.normalized() for member in members), ShortestPath().normalized()]


def _curves() -> list[Kernel]:
    """Rough and smooth functions of curves given as pairs (times, values), of their slopes, and a linear one."""
    curve, slope = {"domain": "objects"}, {"domain": "objects", "derivative": 1}
    members: list[Kernel] = [Functional(kernel, **curve) for kernel in (Gaussian("auto"), Matern(0.5, "auto"))]  # type: ignore[arg-type]
    return [*members, Functional(Gaussian("auto"), **slope), Functional(Linear(), **curve)]  # type: ignore[arg-type]


def _bags() -> list[Kernel]:
    """Means of bags in the spaces of rough and smooth kernels, and functions of these means."""
    points: tuple[Kernel, ...] = (Gaussian("auto"), Laplacian("auto"))
    return [MeanMap(kernel, outer) for outer in ("linear", Gaussian("auto")) for kernel in points]


_OBJECTS: tuple[Callable[[], list[Kernel]], ...] = (_molecules, _strings, _graphs, _curves, _bags)


def family(kind: str, n_features: int = 1, *, features: FeatureKind | None = None) -> Stack:
    """The kernels that are stacked for a kind of data, where none is given.

    Parameters
    ----------
    kind : {"vectors", "sparse", "molecules", "strings", "graphs", "curves", "bags"}
        Of vectors these are rough and smooth kernels and a straight line; of sparse rows, shares of what they count.
    n_features : int, default=1
        Of vectors: a lengthscale for each is learned up to 40 of them.
    features : {"frequencies", "sketch"} or None, default=None
        Of vectors, only kernels with such features: stationary ones, or polynomials.

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
        columns = [] if array.ndim != 2 else list(getattr(data, "columns", ()))
        raise ValueError(_strangers_refused(name, array, strange, kernel, columns))


def _has_rows(data: Iterable[object]) -> bool:
    """Does the collection have a length and numbered entries, or a way to become an array?"""
    return hasattr(data, "__array__") or (hasattr(data, "__len__") and hasattr(data, "__getitem__"))


def _strangers_refused(
    name: str, array: np.ndarray, strange: list[object], kernel: object, columns: list[object]
) -> str:
    """What to do with strings or dates where numbers are expected; ``array`` has at least one of them."""
    return _advice_on_strangers(name, array, strange, kernel, columns) + (
        " Or let the data decide: kernel='auto' takes columns and objects for what they are." if name == "X" else ""
    )


def _advice_on_strangers(
    name: str, array: np.ndarray, strange: list[object], kernel: object, columns: list[object]
) -> str:
    """What converts strings or dates, and the kernels that take them as they are."""

    def refused(kind: str, entry: object = strange[0]) -> str:
        held = (own for own, values in zip(columns, array.T, strict=False) if any(v is entry for v in values))
        where = "".join(f" in column {own!r}" for own in list(held)[:1])
        return f"{name} holds {kind} such as {str(entry)!r:.60}{where}, where numbers are expected. "

    texts = [entry for entry in strange if isinstance(entry, str)]
    other = [entry for entry in strange if not isinstance(entry, str)]
    if other:
        return refused("dates or bytes", other[0]) + (
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


# A column of texts is one of categories if each level has so many entries in the mean, or if there are few levels.
ENTRIES_A_LEVEL, FEW_LEVELS = 2.0, 10
# A text has so many words in the middle; below, it is a name or a code.
WORDS_OF_TEXT = 4
# A sequence over a small alphabet has so many symbols in the middle.
SYMBOLS_OF_SEQUENCE = 8
# An array is a picture if both of its sides have so many entries.
SIDE_OF_PICTURE = 6
# Texts are molecules if there are so many, such a share has more than a chain of atoms, and such a share can be read.
FEW_MOLECULES, SHARE_WITH_STRUCTURE, SHARE_OF_MOLECULES = 4, 0.2, 0.8
# Texts of which such a share begins and ends like numbers were meant as numbers, but for some entries.
SHARE_OF_NUMBERS = 0.5
# Words for gaps are at most such a share of a column that has at least so many different numbers.
SHARE_OF_WORDS, FEWEST_NUMBERS = 0.5, 3
# A column with so many other numbers shows how far they reach; a code for a gap stands in so many rows.
FEW_NUMBERS, ROWS_OF_CODE = 10, 2
# How many samples are looked at.
LOOKED_AT = 2000

NUCLEOTIDES, AMINO_ACIDS = set("ACGTUN-"), set("ACDEFGHIKLMNPQRSTVWYXBZUOJ*-")
DATE = re.compile(r"\s*\d{4}-\d{1,2}-\d{1,2}([T ]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?\s*")
LIKE_DATE = re.compile(r"\s*(\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{1,2}[ -][A-Za-z]{3,9}[ -]\d{2,4})(\s.*)?")
# What identifiers look like: a word and a running number, or many hexadecimal digits.
NUMBERED, HEXADECIMAL = re.compile(r"([^\W\d][^\W\d_]*[ _#.:/-]?)\d+"), re.compile(r"(?=.*\d)[0-9a-fA-F-]{8,}")
STRUCTURE = re.compile(r"[()=#\[\]@/\\%+]|[A-Za-z]\d")  # what SMILES of more than a chain have, and words have not


@dataclass(frozen=True)
class Finding:
    """What a column, or all samples, were taken for.

    Parameters
    ----------
    column : str or None
        The name of the column; None for samples without columns.
    kind : str
        What its entries are.
    why : str
        What was seen.
    part : Encoding, Kernel or None
        Its part of the kernel; None if it is left out.
    family : tuple of Kernel
        Kernels for such objects, where they are all that there is.
    doubt : str or None
        Why this may be wrong, and how to overrule it.
    association : float or None
        The adjusted share of the variance of y that it explains by itself, linearly in its coordinates.
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
        What supervised learners take: kernels whose fits they average.
    single : Kernel
        One kernel, for learners that take one.
    findings : tuple of Finding
        What each column was taken for.
    """

    kernel: Stack
    single: Kernel
    findings: tuple[Finding, ...]

    @property
    def doubts(self) -> list[str]:
        """What may be wrong, in sentences that say how to overrule it."""
        return [finding.doubt for finding in self.findings if finding.doubt is not None]

    def _rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [("column", "taken for", "because", "kernel", "explains")]
        for own in self.findings:
            share = "" if own.association is None else f"{own.association:.2f}"
            part = "left out" if own.part is None else repr(own.part)
            rows.append((own.column or "(all)", own.kind, own.why, part, share))
        known = any(own.association is not None for own in self.findings)
        return rows if known else [row[:-1] for row in rows]

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
        Of vectors, only kernels with such features: stationary ones, or polynomials.

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
    refuse_unordered(X, "X")
    if issparse(X):
        return _of_sparse(X)
    if is_dask(X):
        return _of_vectors(X, features)
    if not (hasattr(X, "__len__") or hasattr(X, "__array__")):
        raise TypeError(
            f"X should be an array, a frame or a list with one object for each sample; got {type(X).__name__}, "
            f"{X!r:.40}. Make a list of what is read one by one, list(X); a lazy frame is read by X.collect()."
        )
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
    """A matrix of numbers; one of words is refused, because its columns have no names to speak of."""
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
    """Do samples have columns with names: a frame, a dictionary of columns, a structured array, dictionaries?"""
    return frame_columns(X) is not None


def _as_rows(X: Data) -> np.ndarray | None:
    """Lists of numbers, all of the same length, as a matrix; None for anything else."""
    if not all(isinstance(row, list | tuple) and row and all(map(_is_number_or_gap, row)) for row in X):
        return None
    if len({len(row) for row in X}) != 1:
        return None
    return np.array([[np.nan if is_missing(entry) else entry for entry in row] for row in X], dtype=np.float64)


def are_vectors(X: Data, *, incomplete: bool = False) -> bool:
    """Are the samples rows of numbers, frames of numbers included; with ``incomplete`` also if sparse, or with gaps?

    A matrix of anything is one of vectors: what its entries should be is said where it is checked.
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
    """Numbers: the family of vectors, in units of the columns, with gaps where there are some (unknown on Dask)."""
    gaps = not is_dask(X) and bool(np.isnan(X).any())
    if gaps and bool(np.isnan(X).all()):
        raise ValueError("X contains NaN only: there is nothing to learn from. Look at how it was read.")
    seen = f"an array of {X.shape[1]} columns" + (", with gaps" if gaps else "")

    def dressed(kernel: Kernel) -> Kernel:
        return Standardized(Missing(kernel) if gaps else kernel)

    members = family("vectors", X.shape[1], features=features).kernels
    if not is_dask(X) and X.size and not np.ptp(np.nan_to_num(X), axis=0).any():  # points that are all the same
        members = [kernel for kernel in members if not isinstance(kernel, Linear)]
    stack = Stack([dressed(kernel) for kernel in members])
    single = dressed(Gaussian("auto"))
    return Suggestion(stack, single, (Finding(None, "numbers", seen, single),))


def _of_sparse(X: Data) -> Suggestion:
    """Sparse rows: how much they have in common."""
    why, members = f"a sparse matrix of {X.shape[1]} columns", family("sparse").kernels
    entries = csr_array(X).data
    if entries.dtype.kind in "if" and (entries < 0).any():
        why, members = f"{why}, with negative entries", [k for k in members if not isinstance(k, MinMax)]
    return _of_family(Finding(None, "sparse rows", why, members[0], tuple(members)))


def _of_objects(entries: Column) -> Suggestion:
    """One object a sample."""
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
    """A frame: coordinates of numbers, categories and dates together, and a kernel for each column of objects."""
    columns = frame_columns(X)
    assert columns is not None
    if not columns or not len(next(iter(columns.values()))):
        size = f"{len(columns)} columns and no rows" if columns else "no columns"
        raise ValueError(f"The frame has {size}: there is nothing to learn from. Look at how it was read.")
    findings = [kind_of_column(name, column) for name, column in columns.items()]
    if y is not None:
        findings = [_associated(own, columns[own.column], y) for own in findings]
    encodings = {own.column: own.part for own in findings if isinstance(own.part, Encoding)}
    objects = [own for own in findings if isinstance(own.part, Kernel)]
    if not encodings and not objects:
        named = ", ".join(f"{own.column!r} ({own.kind})" for own in findings)
        raise ValueError(f"No column has anything to learn from: {named}.")
    kernel, single = _frame_kernels(encodings, objects)
    return Suggestion(kernel, single, tuple(findings))


def _frame_kernels(encodings: dict[Any, Encoding], objects: list[Finding]) -> tuple[Stack, Kernel]:
    """The kernels of a frame, to be stacked, and one for all: coordinates, objects, sums and products of both."""
    tables = [Table(kernel, encodings) for kernel in family("vectors", len(encodings)).kernels] if encodings else []
    if not objects:
        return Stack(tables), Table(Gaussian("auto"), encodings)
    if not encodings and len(objects) == 1:
        members = [Columns({str(own.column): kernel}) for own in objects for kernel in own.family]
        return Stack(members), members[0]
    parts: dict[Any, Any] = {own.column: own.part for own in objects}
    total = Columns(parts, weights="auto")
    if not encodings:
        return Stack([total, Columns(parts, "product")]), total
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
    known = np.isfinite(Y).all(1)
    Z, Y = np.column_stack([Z, np.ones(len(Z))])[known], Y[known] - Y[known].mean(0)
    rank = np.linalg.matrix_rank(Z)
    left = Y - Z @ np.linalg.lstsq(Z, Y, rcond=None)[0]
    total = float((Y**2).sum())
    if not total > 0 or len(Y) <= rank:
        return finding
    share = 1.0 - float((left**2).sum()) / total * (len(Y) - 1) / (len(Y) - rank)
    return replace(finding, association=max(0.0, share))


# -- one column -------------------------------------------------------------------------------------------------------
def kind_of_column(name: str | None, column: Column) -> Finding:
    """What the entries of a column are, from their type and a look at them."""
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
    """Entries of several types: categories where they are words and numbers, else an error."""
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
    """Numbers or dates beside words that say that nothing is known; codes and columns of few numbers are none."""
    words = sorted({entry for entry in present if is_word_for_gap(entry)})
    rest = [entry for entry in present if not is_word_for_gap(entry)]
    if name is None or not words or len(rest) < (1.0 - SHARE_OF_WORDS) * len(present):
        return None
    seen = list(dict.fromkeys(entry for entry in rest if isinstance(entry, str)))
    looks = [_numbers(name, rest), _dates(name, rest)] if not seen else [_written_dates(name, seen, rest)]
    if seen and all(isinstance(entry, str) or is_real(entry) for entry in rest):
        looks.append(_written_numbers(name, seen, rest))
    finding = next((own for own in looks if own is not None and isinstance(own.part, Number | Date)), None)
    if finding is None or len(set(rest)) < FEWEST_NUMBERS:
        return None
    told = ", ".join(map(repr, words))
    doubt = (
        f"Column {name!r} has {finding.kind}, and {told} in {len(present) - len(rest)} row(s), taken for gaps. If this "
        "is a level of its own, make it a categorical column: astype('category')."
    )
    return replace(finding, why=f"{finding.why}, with {told} for gaps", doubt=doubt)


def _with_gaps(finding: Finding, *, gaps: bool) -> Finding:
    """The finding for a column that has gaps, or may have some in new data: a kernel of objects is told what one is."""
    why = f"{finding.why}, with gaps" if gaps else finding.why
    if isinstance(finding.part, Kernel):
        return replace(finding, why=why, part=Optional(finding.part), family=tuple(map(Optional, finding.family)))
    return replace(finding, why=why)


def _declared(name: str | None, column: Column) -> Finding | None:
    """What a frame itself says of a column: categories of pandas, polars or pyarrow."""
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
    """Numbers and truth values."""
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
    """A warning about a repeated -999, 9999 or lonely negative number, farther from all others than these reach."""
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
    """A column of dates and times, or None where an entry is none."""
    if not all(isinstance(entry, datetime.date | np.datetime64) or is_period(entry) for entry in present):
        return None
    if len(set(map(str, present))) == 1:
        return Finding(name, "a constant", f"always {present[0]}")
    return Finding(name, "dates", "datetime objects", Date())


# -- texts ------------------------------------------------------------------------------------------------------------
def _texts(name: str | None, present: list[Any]) -> Finding | None:
    """Texts: numbers and dates that are written out, codes, molecules, sequences, names, sentences."""
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
        kernels: tuple[Kernel, ...] = (Words(1), Words((1, 2)), Spectrum((3, 5)).normalized())
        return Finding(name, "text", f"{words:.0f} words in the middle", kernels[0], kernels)
    kernels = (Spectrum((1, 3)).normalized(), *family("strings").kernels, Words(1))
    why = f"{len(levels)} different short texts of {len(present)}"
    return Finding(name, "names", why, kernels[0], kernels, doubt=doubt)


def _are_identifiers(present: list[str]) -> bool:
    """Are at least ten texts all different: the same word before different numbers, or codes of one length?"""
    if len(present) < FEW_LEVELS or len(set(present)) < len(present):
        return False
    numbered = [NUMBERED.fullmatch(text) for text in present]
    if all(numbered) and len({match[1] for match in numbered if match}) == 1:
        return True
    return len(set(map(len, present))) == 1 and all(HEXADECIMAL.fullmatch(text) for text in present)


def _doubt_about_numbers(name: str | None, seen: list[str]) -> str | None:
    """A warning about texts most of which are numbers with a comma, a sign or a unit, or beside a word."""
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
    """Is it a number, perhaps with a comma, a percent sign, a sign of comparison or a unit?"""
    parts = text.replace(",", ".").strip("<>≤≥~% ").split()
    try:
        return len(parts) in (1, 2) and np.isfinite(float(parts[0]))
    except ValueError:
        return False


def _written_numbers(name: str | None, seen: list[str], present: list[str]) -> Finding | None:
    """Numbers that are stored as text, unless zeros in front say that they are codes."""
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
    """Dates that are stored as text: ISO dates are read, others are a matter of convention."""
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
    """Molecules: at least a few texts, some with brackets, bonds or rings, nearly all of which RDKit can read.

    Measurements of a molecule may be repeated, so that it does not matter how often each of them stands there. The
    kernel names those that cannot be read, in an error: they are typing errors more likely than names.
    """
    structured = sum(STRUCTURE.search(text) is not None for text in seen)
    if len(seen) < FEW_MOLECULES or structured < SHARE_WITH_STRUCTURE * len(seen):
        return None
    share = 0.0 if any(" " in text.strip() for text in seen) else share_of_smiles(seen)
    if share < SHARE_OF_MOLECULES:
        return None
    if not has_rdkit():
        kernel = Spectrum((1, 4)).normalized()
        hint = f"Column {name!r} looks like SMILES, but RDKit is not installed: pip install 'representer[molecules]'."
        return Finding(name, "names", "texts like SMILES, without RDKit", kernel, (kernel,), doubt=hint)
    return _member_of("molecules", name, "molecules", f"SMILES: RDKit reads {share:.0%} of {len(seen)}")


def _sequences(name: str | None, seen: list[str], present: list[str]) -> Finding | None:
    """Sequences over a small alphabet, in any case: DNA, RNA; proteins, which words in small letters may look like."""
    symbols = set("".join(seen).upper())
    middle = float(np.median([len(text) for text in seen]))
    upper = sum(map(str.isupper, seen)) >= 0.9 * len(seen)
    if middle < SYMBOLS_OF_SEQUENCE or not symbols <= (AMINO_ACIDS if upper else NUCLEOTIDES):
        return None
    kind = "DNA or RNA sequences" if symbols <= NUCLEOTIDES else "protein sequences"
    lengths = ((3, 6), (2, 4), (1, 3)) if symbols <= NUCLEOTIDES else ((1, 3), (2, 3), (1, 2))
    kernels: list[Kernel] = [AnyCase(Spectrum(own).normalized()) for own in lengths]
    if len({len(text) for text in seen}) == 1:
        kernels.append(AnyCase(WeightedDegree((1, 3)).normalized()))
    why = f"{len(symbols)} symbols, {middle:.0f} letters in the middle"
    return Finding(name, kind, why, kernels[0], tuple(kernels))


def _member_of(family_name: str, name: str | None, kind: str, why: str, doubt: str | None = None) -> Finding:
    """A column whose kernels are a family; the third is the one to take alone, or the first of few."""
    kernels = tuple(family(family_name).kernels)
    return Finding(name, kind, why, kernels[min(2, len(kernels) - 1)], kernels, doubt)


# -- other objects ----------------------------------------------------------------------------------------------------
def _things(name: str | None, present: list[Any]) -> Finding | None:
    """Graphs, molecules, arrays, sets, records."""
    if all(map(is_molecule, present)):
        return _member_of("molecules", name, "molecules", "molecules of RDKit")
    if all(map(is_graph, present)):
        return _member_of("graphs", name, "graphs", f"objects of type {type(present[0]).__name__}")
    if all(isinstance(entry, Mapping) for entry in present):
        inner = suggest(list(present))
        return Finding(name, "records", "dictionaries", inner.single, (inner.single,))
    if all(isinstance(e, set | frozenset | list | tuple) and all(isinstance(w, str) for w in e) for e in present):
        kernels: tuple[Kernel, ...] = (Words(1), Words((1, 2)))
        return Finding(name, "words", "lists of words", kernels[0], kernels)
    return _arrays(name, present)


def _arrays(name: str | None, present: list[Any]) -> Finding | None:
    """Curves, series, bags of points and pictures."""
    if all(isinstance(entry, tuple) and len(entry) == 2 and np.ndim(entry[0]) == 1 for entry in present):
        return _member_of("curves", name, "curves", "pairs (times, values)")
    try:
        arrays = [np.asarray(plain(entry), dtype=np.float64) for entry in present]
    except (TypeError, ValueError):
        return None
    shapes = {array.shape for array in arrays}
    if len({array.ndim for array in arrays}) > 1 or arrays[0].ndim == 0:
        return None
    if len(shapes) == 1 and (arrays[0].ndim > 2 or (arrays[0].ndim == 2 and min(arrays[0].shape) >= SIDE_OF_PICTURE)):
        kernels: tuple[Kernel, ...] = (Pixels(Gaussian("auto")), Pixels(Laplacian("auto")))
        return Finding(name, "pictures", f"arrays of shape {arrays[0].shape}", kernels[0], kernels)
    if arrays[0].ndim == 1 and len(shapes) == 1:
        kernels = (Pixels(Gaussian("auto")), Pixels(Laplacian("auto")))
        return Finding(name, "curves", f"{arrays[0].shape[0]} numbers each", kernels[0], kernels)
    if arrays[0].ndim == 1:
        kernels = (GlobalAlignment(), Signature(3).normalized())
        return Finding(name, "series", "numbers in series of different lengths", kernels[0], kernels)
    if arrays[0].ndim == 2 and len({shape[1] for shape in shapes}) == 1:
        doubt = None
        if arrays[0].shape[1] <= SIDE_OF_PICTURE and len(shapes) > 1 and name is not None:
            doubt = f"Column {name!r} has bags of points, without an order. For series in time use GlobalAlignment()."
        return _member_of("bags", name, "bags of points", f"arrays of {arrays[0].shape[1]} columns", doubt)
    return None


# -- what learners make of a word -------------------------------------------------------------------------------------
def stack_of(kernel: object, X: Data, features: FeatureKind | None = None) -> Stack | None:
    """The kernels that a learner stacks: those of a ``Stack``, of the family that a word names, or for ``"auto"`` of
    the family of data like X.

    A copy with plain numbers, and None where there is one kernel. ``features`` are those that they must have.
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
    suggestion = suggest(X, features=features)
    for doubt in suggestion.doubts:
        warn(doubt, UserWarning)
    return suggestion.kernel


def kernels_of(word: str, X: Data, features: FeatureKind | None = None, *, compared: bool = True) -> list[Kernel]:
    """The kernels of which a learner of one kernel takes the best, or, where they are not ``compared``, one of them."""
    several = stack_of(word, X, features)
    assert several is not None  # a word of several kernels
    kernels = list(several.kernels) if isinstance(several, Stack) else [several]
    smooth = [kernel for kernel in kernels if getattr(kernel, "kernel", kernel) == Gaussian("auto")]
    return kernels if compared else (smooth or kernels)[:1]


def one_kernel(kernel: object, width: str = "auto") -> Any:
    """What ``"auto"`` is where there is no target to stack kernels on: a Gaussian one, whose width is learned."""
    return Gaussian(width) if isinstance(kernel, str) and kernel == "auto" else kernel


def single_kernel(kernel: object, X: Data, vectors: object, *, incomplete: bool = True) -> Any:
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
