"""Kernels of fingerprints, dense, sparse or bit-packed, and of molecules: common substructures, physical properties."""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from representer.kernels.base import Domain, Kernel
from representer.kernels.learned import Mapped
from representer.linalg import BLOCK_BYTES, combine, row_blocks
from representer.samples import Data, SparseRows, as_items, as_vectors, is_single, same_features
from representer.values import TRUTH, instance_of, is_count, is_whole

T = TypeVar("T")

# Blocks of the Gram matrix whose temporaries stay in the cache.
BLOCK_ROWS, BLOCK_COLUMNS = 256, 1024
# Beyond this share of non-zero entries, a dense product of single precision beats one of sparse integers.
DENSE_SHARE = 0.25
# With more columns than this, those that occur on one side only are dropped.
MANY_COLUMNS = 2**14
# Counts are written as bits if there are at most this many for each entry of the matrix.
MANY_BITS = 8


class Overlap(Kernel, ABC):
    """k(x, y) = s(x, y) / (s(x, x) + s(y, y) − s(x, y)), with s the common content; two empty objects are equal (1)."""

    bounded = True
    takes_sparse = True

    @abstractmethod
    def _common(self, X: Tensor, Y: Tensor) -> Tensor:
        """The common content s(x_i, y_j) of dense vectors."""

    @abstractmethod
    def _content(self, X: Tensor) -> Tensor:
        """The content s(x_i, x_i) of dense vectors."""

    @abstractmethod
    def _units(self, X: SparseRows) -> sparse.csr_array | None:
        """Sparse vectors whose inner products are s; None if there are none of a reasonable size."""

    def prepare(self, X: Data) -> Tensor | SparseRows | np.ndarray:
        """The vectors as a tensor, or as a sparse matrix with a length; all numbers are finite."""
        return _as_rows(X) if sparse.issparse(X) else as_vectors(X)

    def _gram(self, X: Data, Y: Data | None) -> Tensor:
        other = X if Y is None else Y
        if X.shape[-1] != other.shape[-1]:
            raise ValueError(f"X has {X.shape[-1]} features, but Y has {other.shape[-1]}: they must be the same.")
        left = self._as_units(X)
        right = left if Y is None or left is None else self._as_units(Y)
        if left is None or right is None:
            return self._dense(*same_features(_as_tensor(X), _as_tensor(other)))
        dtypes = {data.dtype for data in (X, other) if isinstance(data, Tensor)}
        return overlap(left, right, torch.float32 if dtypes == {torch.float32} else torch.float64)

    def _as_units(self, X: Data) -> sparse.csr_array | None:
        """Sparse vectors whose inner products are s, of dense or sparse data, or None."""
        if isinstance(X, Tensor):
            rows = _few_integers(X)
            return None if rows is None else self._units(rows)
        return self._units(X)

    def _dense(self, X: Tensor, Y: Tensor) -> Tensor:
        """The Gram matrix of dense vectors, differentiable."""
        common = self._common(X, Y)
        union = self._content(X)[..., :, None] + self._content(Y)[..., None, :]
        union = combine("sub", union, common)
        empty = union <= 0
        if common.requires_grad:
            return (common / union.masked_fill(empty, 1.0)).masked_fill(empty, 1.0)
        return common.div_(union.masked_fill_(empty, 1.0)).masked_fill_(empty, 1.0)

    def _diag(self, X: Data) -> Tensor:
        if isinstance(X, Tensor):
            return torch.ones(X.shape[:-1], dtype=X.dtype, device=X.device)
        return torch.ones(len(X), dtype=torch.float64)


class Tanimoto(Overlap):
    """k(x, y) = xᵀy / (‖x‖² + ‖y‖² − xᵀy), for fingerprints; two vectors of zeros are equal (1).

    On binary vectors it is the Jaccard similarity. It is positive semi-definite on all real vectors: the series
    Σ_r (xᵀy)^r / (‖x‖² + ‖y‖²)^r is a sum of products of positive semi-definite functions. Sparse matrices of SciPy
    are taken as they are.

    Parameters
    ----------
    packed : bool
        Are the bits packed into unsigned integers, as ``numpy.packbits`` does? The data are then an array of shape
        (n_samples, n_integers) of uint8 … uint64.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.kernels import Tanimoto
    >>> bits = np.array([[1, 1, 0, 0], [1, 0, 1, 1]])
    >>> Tanimoto()(bits).tolist()
    [[1.0, 0.25], [0.25, 1.0]]
    >>> Tanimoto(packed=True)(np.packbits(bits, axis=1)).tolist()
    [[1.0, 0.25], [0.25, 1.0]]
    """

    def __init__(self, packed: bool = False):
        self.packed = packed

    @property
    def domain(self) -> Domain:  # type: ignore[override]
        """The kind of data: vectors, or objects if they are packed bits, to which no arithmetic applies."""
        TRUTH(f"packed of {type(self).__name__}", self.packed)
        return "objects" if self.packed else "vectors"

    def prepare(self, X: Data) -> Tensor | SparseRows | np.ndarray:
        """The vectors as a tensor or a sparse matrix with a length; packed bits as unsigned integers."""
        return _as_packed(X) if self.packed else super().prepare(X)

    def _as_units(self, X: Data) -> sparse.csr_array | None:
        return _unpacked(X) if self.packed else super()._as_units(X)

    def _units(self, X: SparseRows) -> sparse.csr_array:
        return X

    def _common(self, X: Tensor, Y: Tensor) -> Tensor:
        return X @ Y.mT

    def _content(self, X: Tensor) -> Tensor:
        return (X**2).sum(-1)


class MinMax(Overlap):
    """k(x, y) = Σ_j min(x_j, y_j) / Σ_j max(x_j, y_j), for counts x, y ≥ 0; two vectors of zeros are equal (1).

    On binary vectors it is the Jaccard similarity, as is ``Tanimoto``; on counts it is that of multisets. Sparse
    matrices of SciPy are taken as they are. It is positive semi-definite (Ralaivola et al., 2005).

    Examples
    --------
    >>> from representer.kernels import MinMax
    >>> MinMax()([[2, 1, 0], [1, 0, 3]]).tolist()
    [[1.0, 0.16666666666666666], [0.16666666666666666, 1.0]]
    """

    def prepare(self, X: Data) -> Tensor | SparseRows | np.ndarray:
        """The counts as a tensor, or as a sparse matrix with a length; they are finite and not negative."""
        X = super().prepare(X)
        entries = X.detach() if isinstance(X, Tensor) else X.data
        if (entries < 0).any():
            raise ValueError(
                f"MinMax takes counts, which are not negative; the least entry is {float(entries.min()):.6g}. For real "
                "vectors use Tanimoto."
            )
        return X

    def _units(self, X: SparseRows) -> sparse.csr_array | None:
        """The counts as bits: a count c sets the first c bits of its column, so that x and y share min(x, y) bits."""
        most, total = X.data.max(initial=0), X.data.sum(dtype=np.float64)
        if not _is_integral(X) or total > MANY_BITS * X.shape[0] * X.shape[1]:
            return None
        if most <= 1:
            return X
        counts = X.data.astype(np.int64)
        starts = np.cumsum(counts) - counts
        bit = np.arange(counts.sum()) - np.repeat(starts, counts)
        columns = np.repeat(X.indices.astype(np.int64), counts) + X.shape[1] * bit
        ends = np.concatenate([[0], np.cumsum(counts)])[X.indptr]
        return sparse.csr_array((np.ones(len(bit)), columns, ends), shape=(len(X), X.shape[1] * int(most)))

    def _common(self, X: Tensor, Y: Tensor) -> Tensor:
        distance = torch.cdist(X, Y, p=1.0)
        both = X.sum(-1)[..., :, None] + Y.sum(-1)[..., None, :]
        return combine("mul", combine("sub", both, distance), distance.new_tensor(0.5))

    def _content(self, X: Tensor) -> Tensor:
        return X.sum(-1)


# -- data -------------------------------------------------------------------------------------------------------------
def _as_rows(X: sparse.sparray) -> SparseRows:
    """A sparse matrix in canonical form, checked."""
    if isinstance(X, SparseRows):
        return X
    if X.ndim != 2 or not all(X.shape):
        raise ValueError(f"Expected a sparse matrix of at least one sample and one feature; got shape {X.shape}.")
    if X.dtype.kind not in "biuf":
        raise ValueError(f"Expected a sparse matrix of real numbers; got entries of type {X.dtype}.")
    rows = SparseRows(X)
    if not rows.has_canonical_format:
        rows = rows.copy()  # the entries may be those of X
        rows.sum_duplicates()
    if not np.isfinite(rows.data).all():
        entries = rows.tocoo()
        first = int(np.flatnonzero(~np.isfinite(entries.data))[0])
        row, column = entries.row[first], entries.col[first]
        raise ValueError(f"The data contain NaN or infinity, first at row {row}, column {column}.")
    return rows


def _as_packed(X: Data) -> np.ndarray:
    """Packed bits as an array, checked."""
    array = X.detach().cpu().numpy() if isinstance(X, Tensor) else np.asarray(X)
    if array.dtype.kind != "u" or array.ndim != 2 or not array.size:
        raise ValueError(
            "Tanimoto(packed=True) takes an array (n_samples, n_integers) of unsigned integers, such as "
            f"numpy.packbits(bits, axis=1) gives; got {array.dtype} of shape {array.shape}."
        )
    return array


def _unpacked(X: np.ndarray) -> sparse.csr_array:
    """The bits of packed integers; their order within a sample does not matter as long as it is the same for all."""
    bits = np.unpackbits(np.ascontiguousarray(X).view(np.uint8), axis=1)
    return sparse.csr_array(bits.view(np.int8))


def _few_integers(X: Tensor) -> SparseRows | None:
    """The rows as a sparse matrix, if they are mostly empty, of integers, and no gradient is asked."""
    if X.ndim != 2 or X.requires_grad or X.device.type != "cpu":
        return None
    array = X.numpy()
    if np.count_nonzero(array) > DENSE_SHARE * array.size:
        return None
    rows = SparseRows(array)
    return rows if _is_integral(rows) else None


def _is_integral(rows: sparse.csr_array) -> bool:
    """Are all entries integers, of whatever type?"""
    return rows.dtype.kind in "biu" or np.array_equal(rows.data, np.rint(rows.data))


def _as_tensor(X: Tensor | sparse.csr_array) -> Tensor:
    """Dense or sparse vectors as a dense tensor."""
    return X if isinstance(X, Tensor) else torch.from_numpy(X.toarray().astype(np.float64))


# -- the Gram matrix --------------------------------------------------------------------------------------------------
def overlap(left: sparse.csr_array, right: sparse.csr_array, dtype: torch.dtype) -> Tensor:
    """The kernel xᵀy / (‖x‖² + ‖y‖² − xᵀy) of sparse rows, block by block; 1 for two empty rows.

    One factor of a block's product is sparse and the other dense: few additions for each pair, all of them to
    neighbours in memory. Integers are added in the shortest type that holds them.
    """
    contents = [(rows.astype(np.float64) ** 2).sum(axis=1) for rows in (left, right)]
    dense = left.nnz > DENSE_SHARE * left.shape[0] * left.shape[1]
    kind = _arithmetic(left, right, max(content.max() for content in contents), dense=dense)
    left, right = _shared_columns(left.astype(kind), right.astype(kind))
    left_content, right_content = (torch.from_numpy(content).to(dtype) for content in contents)
    gram = torch.empty(left.shape[0], right.shape[0], dtype=dtype)
    step = min(BLOCK_COLUMNS, max(1, BLOCK_BYTES // (8 * left.shape[1] + 1)))
    for columns in row_blocks(right.shape[0], 1, step):
        factor = right[columns].T.toarray(order="C")
        for rows in row_blocks(left.shape[0], 1, BLOCK_ROWS):
            product = (left[rows].toarray() if dense else left[rows]) @ factor
            common = torch.from_numpy(product).to(dtype)
            block = torch.add(left_content[rows, None], right_content[columns], out=gram[rows, columns])
            torch.div(common, block.sub_(common), out=block)
    empty = [torch.nonzero(content == 0)[:, 0] for content in (left_content, right_content)]
    gram[empty[0][:, None], empty[1]] = 1.0
    return gram


def _arithmetic(left: sparse.csr_array, right: sparse.csr_array, largest: float, *, dense: bool) -> type:
    """The fastest type in which inner products, none above the largest content, are exact; double for other numbers."""
    if not (_is_integral(left) and _is_integral(right)) or largest >= 2**31:
        return np.float64
    if dense:
        return np.float32 if largest < 2**24 else np.float64
    return np.int16 if largest < 2**15 else np.int32


def _shared_columns(left: sparse.csr_array, right: sparse.csr_array) -> tuple[sparse.csr_array, sparse.csr_array]:
    """The columns that occur on both sides, if there are many: the others are in no product."""
    if left.shape[1] == right.shape[1] <= MANY_COLUMNS:
        return left, right
    shared = np.intersect1d(left.indices, right.indices)
    return _restricted(left, shared), _restricted(right, shared)


def _restricted(rows: sparse.csr_array, columns: np.ndarray) -> sparse.csr_array:
    """The rows in a few columns, without memory for all of them."""
    inside = np.isin(rows.indices, columns)
    ends = np.concatenate([[0], np.cumsum(inside)])[rows.indptr]
    indices = np.searchsorted(columns, rows.indices[inside])
    return sparse.csr_array((rows.data[inside], indices, ends), shape=(rows.shape[0], len(columns)))


# An error names this many faulty molecules, and counts the others.
SHOWN = 5
# SMILES whose fingerprints are remembered (about 1 kB each): reading one costs more than comparing it with thousands.
REMEMBERED = 2**16
# Atoms, in brackets with any details, and between them bonds, branches and rings.
SMILES = re.compile(r"(?:Cl|Br|[BCNOPSFIbcnops*]|\[[^\]\s]+\]|[-=#$/\\%.:()\d])+")


class Molecule(Kernel):
    """The share of substructures that two molecules have in common: Σ_j min(c_j, c'_j) / Σ_j max(c_j, c'_j).

    c_j is 1 if a substructure falls into bin j, and the kernel is ``Tanimoto`` on bits; with ``counts`` c_j counts
    these substructures. By default they are the surroundings of atoms up to ``radius`` bonds (Morgan fingerprints). The
    data are a sequence of SMILES strings or RDKit molecules. Needs RDKit (``pip install "representer[molecules]"``).
    For other fingerprints, put a transformer of ``representer.estimators.fingerprints`` before ``Tanimoto`` or
    ``MinMax``.

    Parameters
    ----------
    radius : int
        The largest radius of a surrounding, in bonds; 2 is known as ECFP4. Pairs, torsions and paths have no radius and
        refuse another value.
    n_bits : int
        The number of bins that substructures are hashed into.
    counts : bool
        Does it count how often a substructure occurs?
    chirality : bool
        Are mirror images of a surrounding told apart?
    substructures : {"surroundings", "pairs", "torsions", "paths"}
        Surroundings of atoms; pairs of atoms with their distance of up to 30 bonds; chains of four atoms; paths and
        branches of up to five bonds.

    Examples
    --------
    >>> from representer.kernels import Molecule
    >>> Molecule()(["CCO", "CCN", "OCC"]).round(decimals=4).tolist()
    [[1.0, 0.3333, 1.0], [0.3333, 1.0, 0.3333], [1.0, 0.3333, 1.0]]
    """

    domain: Domain = "objects"
    bounded = True

    def __init__(
        self,
        radius: int = 2,
        n_bits: int = 2048,
        counts: bool = False,
        chirality: bool = False,
        substructures: str = "surroundings",
    ):
        self.radius = radius
        self.n_bits = n_bits
        self.counts = counts
        self.chirality = chirality
        self.substructures = substructures

    def check_hyperparameters(self) -> None:
        """Refuse what is inadmissible: the radius, the number of bins, unknown substructures."""
        self._fingerprint()
        super().check_hyperparameters()

    def _fingerprint(self) -> Fingerprint:
        """The fingerprint that the arguments describe, checked."""
        surroundings = morgan(self.radius, self.n_bits, self.counts, self.chirality)
        if isinstance(self.substructures, str) and self.substructures == "surroundings":
            return surroundings
        if not (isinstance(self.substructures, str) and self.substructures in SUBSTRUCTURES):
            kinds = ", ".join(map(repr, ("surroundings", *SUBSTRUCTURES)))
            raise ValueError(f"substructures must be one of {kinds}; got {self.substructures!r}.")
        for name, usual in (("radius", 2), ("chirality", False)):
            if getattr(self, name) != usual:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} is for surroundings; got substructures={self.substructures!r}. "
                    f"Leave {name} out."
                )
        name, options = SUBSTRUCTURES[self.substructures]
        return Fingerprint(name, surroundings.n_bits, surroundings.counts, options)

    def prepare(self, X: Data) -> list[Data]:
        """The molecules as a list, after each has been read."""
        molecules = as_molecules(X)
        self._fingerprint()(molecules)
        return molecules

    def _gram(self, X: Sequence[Data], Y: Sequence[Data] | None) -> Tensor:
        fingerprint = self._fingerprint()
        return MinMax()._gram(fingerprint(X), None if Y is None else fingerprint(Y))

    def _diag(self, X: Sequence[Data]) -> Tensor:
        return torch.ones(len(X), dtype=torch.float64)


class Descriptors(Mapped):
    """A kernel on vectors, applied to twelve numbers that RDKit computes for a molecule.

    They are its mass, surface, polar surface, lipophilicity (log P) and refractivity, the share of saturated carbon
    atoms, and the numbers of donors and acceptors of hydrogen bonds, rotatable bonds, hetero-atoms, rings and aromatic
    rings. Their units differ: put ``Standardized`` around the kernel. Needs RDKit.

    Parameters
    ----------
    kernel : Kernel
        On vectors.

    Examples
    --------
    >>> from representer.kernels import Descriptors, Gaussian, Standardized
    >>> Descriptors(Standardized(Gaussian("median")))(["CCO", "CCCO", "c1ccccc1"]).argsort(1)[:, 1].tolist()
    [1, 0, 1]
    """

    domain: Domain = "objects"
    rules = {"kernel": instance_of("a kernel on vectors", Kernel)}

    def __init__(self, kernel: Kernel):
        self.kernel = kernel

    def prepare(self, X: Data) -> list[Data]:
        """The molecules as a list, after each has been read."""
        molecules = as_molecules(X)
        self._image(molecules)
        return molecules

    def _image(self, X: Sequence[Data]) -> Tensor:
        return torch.tensor(_read(X, _remembered_properties, _properties), dtype=torch.float64)


PROPERTIES = (
    *("exactmw", "labuteASA", "tpsa", "CrippenClogP", "CrippenMR", "FractionCSP3"),
    *("NumHBD", "NumHBA", "NumRotatableBonds", "NumHeteroatoms", "NumRings", "NumAromaticRings"),
)


def _properties(molecule: Data) -> tuple[float, ...] | None:
    """The numbers of an RDKit molecule; None if it has no atoms."""
    if not molecule.GetNumAtoms():
        return None
    return tuple(_rdkit().Chem.rdMolDescriptors.Properties(PROPERTIES).ComputeProperties(molecule))


@functools.lru_cache(maxsize=REMEMBERED)
def _remembered_properties(smiles: str) -> tuple[float, ...] | None:
    """The numbers of a SMILES string, or None if it cannot be read."""
    molecule = _rdkit().Chem.MolFromSmiles(smiles)
    return None if molecule is None else _properties(molecule)


# -- fingerprints -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Fingerprint:
    """A fingerprint of RDKit: the function that makes its generator (or "MACCS"), its options, its length.

    Examples
    --------
    >>> from representer.kernels import Fingerprint
    >>> Fingerprint("AtomPair", n_bits=1024)(["CCO"]).shape
    (1, 1024)
    """

    name: str
    n_bits: int
    counts: bool = False
    options: tuple[tuple[str, int], ...] = ()

    def __call__(self, molecules: Sequence[Data]) -> SparseRows:
        """The fingerprints, one row a molecule; a ValueError names the molecules that cannot be read."""
        read = _read(molecules, functools.partial(_remembered, self), self.entries)
        ends = np.cumsum([0, *(len(columns) for columns, _ in read)], dtype=np.int32)
        columns, values = (np.concatenate(arrays) for arrays in zip(*read, strict=True))
        return SparseRows((values, columns, ends), shape=(len(read), self.n_bits))

    def entries(self, molecule: Data) -> tuple[np.ndarray, np.ndarray] | None:
        """The non-zero entries of an RDKit molecule's fingerprint, as columns and values; None if it has no atoms."""
        if not molecule.GetNumAtoms():
            return None
        if self.counts:
            counts = _generator(self).GetCountFingerprint(molecule).GetNonzeroElements()
            return _integers(counts.keys()), _integers(counts.values())
        if self.name == "MACCS":
            bits = _rdkit().Chem.rdMolDescriptors.GetMACCSKeysFingerprint(molecule)
        else:
            bits = _generator(self).GetFingerprint(molecule)
        columns = _integers(bits.GetOnBits())
        return columns, np.ones_like(columns)


def _integers(numbers: Collection[int]) -> np.ndarray:
    """The integers as an array of 32 bits each."""
    return np.fromiter(numbers, np.int32, len(numbers))


def morgan(radius: int, n_bits: int, counts: bool, chirality: bool) -> Fingerprint:
    """The Morgan fingerprint that these arguments describe, checked.

    Examples
    --------
    >>> from representer.kernels import morgan
    >>> morgan(2, 1024, counts=False, chirality=False)(["CCO"]).shape
    (1, 1024)
    """
    if not is_count(n_bits):
        raise ValueError(f"n_bits must be a positive integer; got {n_bits!r}.")
    if not is_whole(radius):
        raise ValueError(f"radius must be an integer, 0 or more; got {radius!r}.")
    TRUTH("counts", counts)
    TRUTH("chirality", chirality)
    options = (("radius", int(radius)), ("includeChirality", bool(chirality)))
    return Fingerprint("Morgan", int(n_bits), bool(counts), options)


# The generator of RDKit, and its options, for the kinds of substructures other than surroundings.
SUBSTRUCTURES = {
    "pairs": ("AtomPair", (("maxDistance", 30),)),
    "torsions": ("TopologicalTorsion", (("torsionAtomCount", 4),)),
    "paths": ("RDKitFP", (("maxPath", 5),)),
}


@functools.lru_cache(maxsize=REMEMBERED)
def _remembered(fingerprint: Fingerprint, smiles: str) -> tuple[np.ndarray, np.ndarray] | None:
    """The non-zero entries of a SMILES string's fingerprint, or None if it cannot be read."""
    molecule = _rdkit().Chem.MolFromSmiles(smiles)
    return None if molecule is None else fingerprint.entries(molecule)


@functools.lru_cache(maxsize=16)
def _generator(fingerprint: Fingerprint) -> Any:
    """RDKit's generator of a fingerprint."""
    make = getattr(_rdkit().Chem.rdFingerprintGenerator, f"Get{fingerprint.name}Generator")
    return make(fpSize=fingerprint.n_bits, **dict(fingerprint.options))


# -- molecules --------------------------------------------------------------------------------------------------------
def as_molecules(X: Data) -> list[Data]:
    """SMILES strings and RDKit molecules as a list, from any sequence, array or column of a frame.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.kernels import as_molecules
    >>> as_molecules(np.array(["CCO", "CCN"]))
    ['CCO', 'CCN']
    """
    if is_single(X):
        what = "string" if isinstance(X, str) else type(X).__name__
        raise ValueError(f"Expected a sequence of molecules, got one {what}. Pass [{X!r:.60}].")
    molecules = [str(item) if isinstance(item, np.str_) else item for item in as_items(X)]
    if not molecules:
        raise ValueError("Found 0 molecules: at least one is needed.")
    kind = _rdkit().Chem.Mol
    strangers = [i for i, item in enumerate(molecules) if not isinstance(item, str | kind)]
    if strangers:
        shown = ", ".join(f"{i} ({type(molecules[i]).__name__})" for i in strangers[:SHOWN])
        raise ValueError(
            f"Molecules are SMILES strings or RDKit molecules; {len(strangers)} of {len(molecules)} are something "
            f"else, at position {shown}{', …' if len(strangers) > SHOWN else ''}."
        )
    return molecules


def are_smiles(strings: Sequence[str]) -> bool:
    """Do all of these strings look like molecules, and can RDKit, where it is installed, read them?

    Examples
    --------
    >>> from representer.kernels import are_smiles
    >>> are_smiles(["CCO", "c1ccccc1"]), are_smiles(["red", "blue"])
    (True, False)
    """
    return all(SMILES.fullmatch(text.strip()) for text in strings) and share_of_smiles(strings) == 1.0


def share_of_smiles(strings: Sequence[str]) -> float:
    """The share of strings that look like molecules and that RDKit, where it is installed, can read."""
    texts = [text.strip() for text in strings]
    alike = [text for text in texts if SMILES.fullmatch(text)]
    if has_rdkit():
        rdkit = _rdkit()
        with rdkit.rdBase.BlockLogs():
            alike = [text for text in alike if rdkit.Chem.MolFromSmiles(text) is not None]
    return len(alike) / max(len(texts), 1)


def has_rdkit() -> bool:
    """Can RDKit be imported here?"""
    return importlib.util.find_spec("rdkit") is not None


def is_molecule(item: object) -> bool:
    """Is it a molecule of RDKit?

    Examples
    --------
    >>> from rdkit import Chem
    >>> from representer.kernels import is_molecule
    >>> is_molecule(Chem.MolFromSmiles("CCO")), is_molecule("CCO")
    (True, False)
    """
    chem = sys.modules.get("rdkit.Chem")
    return chem is not None and isinstance(item, chem.Mol)


def _read(
    molecules: Sequence[Data], of_text: Callable[[str], T | None], of_molecule: Callable[[Data], T | None]
) -> list[T]:
    """What two functions read from SMILES strings and from RDKit molecules; an error names those with nothing."""
    with _rdkit().rdBase.BlockLogs():  # the error names the molecules that RDKit would log
        read = [of_text(item) if isinstance(item, str) else of_molecule(item) for item in molecules]
    faulty = [(i, item) for i, (item, entry) in enumerate(zip(molecules, read, strict=True)) if entry is None]
    if faulty:
        shown = ", ".join(f"{i} ({item if isinstance(item, str) else 'no atoms'!r})" for i, item in faulty[:SHOWN])
        raise ValueError(
            f"{len(faulty)} of {len(molecules)} molecules cannot be read (invalid SMILES, or no atoms), at position "
            f"{shown}{', …' if len(faulty) > SHOWN else ''}. Correct or remove them."
        )
    return [entry for entry in read if entry is not None]


def _rdkit() -> ModuleType:
    """The package RDKit, or an error that says how to install it."""
    try:
        import rdkit.Chem.rdFingerprintGenerator
        import rdkit.Chem.rdMolDescriptors
        import rdkit.rdBase
    except ImportError as error:
        raise ModuleNotFoundError(
            'Molecules need RDKit: pip install "representer[molecules]".', name="rdkit"
        ) from error
    return rdkit
