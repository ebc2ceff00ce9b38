"""Kernels of molecules: SMILES or RDKit molecules, compared by the substructures that they share."""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.kernels.base import Domain, Kernel
from representer.kernels.fingerprints import MinMax
from representer.samples import Data, SparseRows, as_items, is_single
from representer.values import is_count, is_whole

# An error names this many faulty molecules, and counts the others.
SHOWN = 5
# SMILES whose fingerprints are remembered (about 1 kB each): reading one costs more than comparing it with thousands.
REMEMBERED = 2**16
# Atoms, those in brackets with anything about them, and between them bonds, branches and rings.
SMILES = re.compile(r"(?:Cl|Br|[BCNOPSFIbcnops*]|\[[^\]\s]+\]|[-=#$/\\%.:()\d])+")


class Molecule(Kernel):
    """The share of substructures that two molecules have in common: Σ_j min(c_j, c'_j) / Σ_j max(c_j, c'_j).

    c_j counts the atoms whose surroundings up to ``radius`` bonds fall into bin j (Morgan fingerprints), or says
    whether there are any; then it is ``Tanimoto`` on bits. The data are a sequence of SMILES strings or RDKit
    molecules. Needs RDKit (``pip install "representer[molecules]"``). For other fingerprints, put a transformer of
    ``representer.estimators.fingerprints`` before ``Tanimoto`` or ``MinMax``.

    Parameters
    ----------
    radius : int
        The largest radius of a surrounding, in bonds; 2 is known as ECFP4.
    n_bits : int
        The number of bins that substructures are hashed into.
    counts : bool
        Count how often a substructure occurs?
    chirality : bool
        Tell mirror images of a substructure apart?

    Examples
    --------
    >>> from representer.kernels import Molecule
    >>> Molecule()(["CCO", "CCN", "OCC"]).round(decimals=4).tolist()
    [[1.0, 0.3333, 1.0], [0.3333, 1.0, 0.3333], [1.0, 0.3333, 1.0]]
    """

    domain: Domain = "objects"
    bounded = True

    def __init__(self, radius: int = 2, n_bits: int = 2048, counts: bool = False, chirality: bool = False):
        self.radius = radius
        self.n_bits = n_bits
        self.counts = counts
        self.chirality = chirality

    def check_hyperparameters(self) -> None:
        """Refuse what is inadmissible: the radius and the number of bins."""
        self._fingerprint()
        super().check_hyperparameters()

    def _fingerprint(self) -> Fingerprint:
        """The fingerprint that the arguments describe, checked."""
        return morgan(self.radius, self.n_bits, self.counts, self.chirality)

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
        with _rdkit().rdBase.BlockLogs():  # the error says it
            entries = [
                _remembered(self, molecule) if isinstance(molecule, str) else self.entries(molecule)
                for molecule in molecules
            ]
        _refuse([(i, molecules[i]) for i, entry in enumerate(entries) if entry is None], len(molecules))
        read = [entry for entry in entries if entry is not None]
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
    """The Morgan fingerprint that these arguments describe, checked."""
    if not is_count(n_bits):
        raise ValueError(f"n_bits must be a positive integer; got {n_bits!r}.")
    if not is_whole(radius):
        raise ValueError(f"radius must be an integer, 0 or more; got {radius!r}.")
    options = (("radius", int(radius)), ("includeChirality", bool(chirality)))
    return Fingerprint("Morgan", int(n_bits), bool(counts), options)


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
    """SMILES strings and RDKit molecules as a list, from any sequence, array or column of a frame."""
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
    """Is it a molecule of RDKit?"""
    chem = sys.modules.get("rdkit.Chem")
    return chem is not None and isinstance(item, chem.Mol)


def _refuse(faulty: list[tuple[int, Data]], total: int) -> None:
    """Raise an error that names the molecules that cannot be read, if there are any."""
    if not faulty:
        return
    shown = ", ".join(f"{i} ({item if isinstance(item, str) else 'no atoms'!r})" for i, item in faulty[:SHOWN])
    raise ValueError(
        f"{len(faulty)} of {total} molecules cannot be read (invalid SMILES, or no atoms), at position "
        f"{shown}{', …' if len(faulty) > SHOWN else ''}. Correct or remove them."
    )


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
