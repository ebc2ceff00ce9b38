"""Transformers of molecules into fingerprints, by RDKit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags

from representer.estimators.validation import check_arguments
from representer.kernels import Fingerprint, as_molecules, morgan
from representer.samples import Data
from representer.values import COUNT, integer, one_of

Output = Literal["dense", "sparse", "packed"]
CONSTRAINTS = {
    "output": one_of("dense", "sparse", "packed"),
    "max_length": COUNT,
    "max_distance": COUNT,
    "n_atoms": integer(2),
    "n_bits": COUNT,
}


class MolecularFingerprint(TransformerMixin, BaseEstimator, ABC):
    """A transformer of SMILES strings or RDKit molecules that learns nothing; a subclass names its fingerprint."""

    output: Output

    @abstractmethod
    def _fingerprint(self) -> Fingerprint:
        """The fingerprint that the arguments describe."""

    def _checked(self) -> Fingerprint:
        """The fingerprint that checked arguments describe."""
        check_arguments(self, CONSTRAINTS)
        fingerprint = self._fingerprint()
        if self.output == "packed" and fingerprint.counts:
            raise ValueError("output='packed' is for bits; with counts=True choose 'dense' or 'sparse'.")
        return fingerprint

    def fit(self, X: Data, y: object = None) -> Self:
        """Check the arguments.

        Parameters
        ----------
        X : sequence of str or rdkit.Chem.Mol
            Not looked at.
        y : None
            Ignored.

        Returns
        -------
        self : object
            The transformer.
        """
        self._checked()
        return self

    def transform(self, X: Data) -> np.ndarray | sparse.csr_array:
        """Compute fingerprints.

        Parameters
        ----------
        X : sequence of str or rdkit.Chem.Mol
            The molecules: a list, an array, or one column of a frame.

        Returns
        -------
        fingerprints : ndarray or csr_array of shape (n_samples, n_bits)
            Packed: uint8 of shape (n_samples, ⌈n_bits / 8⌉), for ``Tanimoto(packed=True)``.
        """
        fingerprint = self._checked()
        rows = fingerprint(as_molecules(X))
        if self.output == "sparse":
            return sparse.csr_array(rows)
        if fingerprint.counts:
            return rows.toarray()
        bits = rows.astype(np.uint8).toarray()
        return np.packbits(bits, axis=1) if self.output == "packed" else bits

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
        """Names of the columns: the name of the class and a number.

        Parameters
        ----------
        input_features : None
            Ignored.

        Returns
        -------
        names : ndarray of str
            As many as ``transform`` makes columns.
        """
        n_bits = self._checked().n_bits
        name, number = type(self).__name__.lower(), n_bits
        if self.output == "packed":
            name, number = f"{name}_byte", -(-n_bits // 8)
        return np.array([f"{name}{i}" for i in range(number)], dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        tags.requires_fit = False
        return tags


class Morgan(MolecularFingerprint):
    """Morgan (extended-connectivity) fingerprints: the surroundings of each atom, hashed into ``n_bits`` bins.

    Parameters
    ----------
    radius : int, default=2
        The largest radius of a surrounding, in bonds; 2 is known as ECFP4.
    n_bits : int, default=2048
        The number of bins.
    counts : bool, default=False
        Count how often a substructure occurs, or only say whether it does?
    chirality : bool, default=False
        Tell mirror images of a substructure apart?
    output : {"dense", "sparse", "packed"}, default="dense"
        An array, a sparse matrix, or bits packed into bytes.

    Examples
    --------
    >>> from representer.estimators.fingerprints import Morgan
    >>> Morgan(n_bits=16).fit_transform(["CCO", "c1ccccc1"]).sum(axis=1).tolist()
    [6, 3]
    """

    def __init__(
        self,
        radius: int = 2,
        n_bits: int = 2048,
        counts: bool = False,
        *,
        chirality: bool = False,
        output: Output = "dense",
    ):
        self.radius = radius
        self.n_bits = n_bits
        self.counts = counts
        self.chirality = chirality
        self.output = output

    def _fingerprint(self) -> Fingerprint:
        return morgan(self.radius, self.n_bits, self.counts, self.chirality)


class Paths(MolecularFingerprint):
    """RDKit's topological fingerprints: paths and branched paths of bonds, hashed into ``n_bits`` bins.

    Parameters
    ----------
    max_length : int, default=7
        The most bonds of a path.
    n_bits : int, default=2048
        The number of bins.
    counts : bool, default=False
        Count how often a substructure occurs, or only say whether it does?
    output : {"dense", "sparse", "packed"}, default="dense"
        An array, a sparse matrix, or bits packed into bytes.

    Examples
    --------
    >>> from representer.estimators.fingerprints import Paths
    >>> Paths().transform(["CCOC"]).shape
    (1, 2048)
    """

    def __init__(self, max_length: int = 7, n_bits: int = 2048, counts: bool = False, *, output: Output = "dense"):
        self.max_length = max_length
        self.n_bits = n_bits
        self.counts = counts
        self.output = output

    def _fingerprint(self) -> Fingerprint:
        return Fingerprint("RDKitFP", int(self.n_bits), bool(self.counts), (("maxPath", int(self.max_length)),))


class AtomPairs(MolecularFingerprint):
    """Atom-pair fingerprints: pairs of atoms and their distance in bonds, hashed into ``n_bits`` bins.

    Parameters
    ----------
    max_distance : int, default=30
        The largest distance, in bonds.
    n_bits : int, default=2048
        The number of bins.
    counts : bool, default=False
        Count how often a substructure occurs, or only say whether it does?
        Without, RDKit sets more bits for more occurrences.
    output : {"dense", "sparse", "packed"}, default="dense"
        An array, a sparse matrix, or bits packed into bytes.

    Examples
    --------
    >>> from representer.estimators.fingerprints import AtomPairs
    >>> AtomPairs().transform(["CCOC"]).shape
    (1, 2048)
    """

    def __init__(self, max_distance: int = 30, n_bits: int = 2048, counts: bool = False, *, output: Output = "dense"):
        self.max_distance = max_distance
        self.n_bits = n_bits
        self.counts = counts
        self.output = output

    def _fingerprint(self) -> Fingerprint:
        return Fingerprint("AtomPair", int(self.n_bits), bool(self.counts), (("maxDistance", int(self.max_distance)),))


class Torsions(MolecularFingerprint):
    """Topological torsions: chains of atoms, hashed into ``n_bits`` bins.

    Parameters
    ----------
    n_atoms : int, default=4
        The number of atoms of a chain.
    n_bits : int, default=2048
        The number of bins.
    counts : bool, default=False
        Count how often a substructure occurs, or only say whether it does?
        Without, RDKit sets more bits for more occurrences.
    output : {"dense", "sparse", "packed"}, default="dense"
        An array, a sparse matrix, or bits packed into bytes.

    Examples
    --------
    >>> from representer.estimators.fingerprints import Torsions
    >>> Torsions().transform(["CCOC"]).shape
    (1, 2048)
    """

    def __init__(self, n_atoms: int = 4, n_bits: int = 2048, counts: bool = False, *, output: Output = "dense"):
        self.n_atoms = n_atoms
        self.n_bits = n_bits
        self.counts = counts
        self.output = output

    def _fingerprint(self) -> Fingerprint:
        options = (("torsionAtomCount", int(self.n_atoms)),)
        return Fingerprint("TopologicalTorsion", int(self.n_bits), bool(self.counts), options)


class MACCS(MolecularFingerprint):
    """The 166 MACCS keys: answers to fixed questions about a molecule; bit 0 is never set.

    Parameters
    ----------
    output : {"dense", "sparse", "packed"}, default="dense"
        An array, a sparse matrix, or bits packed into bytes.

    Examples
    --------
    >>> from representer.estimators.fingerprints import MACCS
    >>> MACCS().transform(["CCO"]).shape
    (1, 167)
    """

    def __init__(self, *, output: Output = "dense"):
        self.output = output

    def _fingerprint(self) -> Fingerprint:
        return Fingerprint("MACCS", 167)
