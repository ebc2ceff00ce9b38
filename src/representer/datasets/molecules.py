"""Public sets of molecules, as strings, fingerprints or graphs."""

from __future__ import annotations

import csv
from collections.abc import Callable
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import Bunch

from representer.datasets.files import (
    Source,
    loader,
    make_bunch,
    number_columns,
    read_arrays,
    read_table,
    text_column,
)
from representer.kernels import Graph

ESOL = Source(
    "esol.csv",
    "ESOL: measured aqueous solubility (logarithm of mol/l) of 1128 molecules given as SMILES.",
    "J. Delaney 2004, doi:10.1021/ci034243x; 'ESOL' in MoleculeNet",
)
FREESOLV = Source(
    "freesolv.csv",
    "FreeSolv: measured hydration free energy (kcal/mol) of 642 molecules given as SMILES.",
    "D. Mobley and J. P. Guthrie 2014, doi:10.1007/s10822-014-9747-x; 'FreeSolv' in MoleculeNet",
)
BACE = Source(
    "bace.csv",
    "BACE: pIC50 of 1513 inhibitors of human β-secretase 1 given as SMILES.",
    "G. Subramanian et al. 2016, doi:10.1021/acs.jcim.6b00290; 'BACE' in MoleculeNet",
)
NCI60 = Source(
    "nci60_activity.npz",
    "NCI-60: activity (0 or 1) of 4690 molecules in 60 cancer cell lines, with 55 OpenBabel FP3 bits each.",
    "H. Su and J. Rousu 2014, doi:10.1007/s10994-014-5465-9; NCI Developmental Therapeutics Program",
)
METABOLITES = Source(
    "metabolite_fingerprints.npz",
    "Metabolites: 286 fingerprint bits of 490 molecules, and a Gram matrix of their tandem mass spectra.",
    "M. Heinonen et al. 2012, doi:10.1093/bioinformatics/bts437; H. Su and J. Rousu 2014",
)
MUTAG = Source(
    "mutag.npz",
    "MUTAG: 188 nitro compounds as graphs of their atoms and bonds, mutagenic (1) or not (-1).",
    "A. Debnath et al. 1991, doi:10.1021/jm00106a046; 'MUTAG' in TUDataset",
)
NCI1 = Source(
    "nci1.npz",
    "NCI1: 4110 compounds as graphs of their atoms, active against lung cancer cells (1) or not (0).",
    "N. Wale, I. Watson and G. Karypis 2008, doi:10.1007/s10115-007-0103-5; 'NCI1' in TUDataset",
)


def load_boiling_points(*, as_frame: bool = False) -> Bunch:
    """Load the boiling points of 96 organic compounds, a small mixed table that comes with the package.

    Parameters
    ----------
    as_frame : bool, default=False
        Is the table a pandas frame instead of a list of dictionaries?

    Returns
    -------
    bunch : Bunch
        ``data`` with the columns name, smiles, family (a word) and weight (g/mol), ``target`` (96,) in °C, ``DESCR``.

    Examples
    --------
    >>> from representer.datasets import load_boiling_points
    >>> table = load_boiling_points()
    >>> table.data[18]["smiles"], float(table.target[18])
    ('C=C', -103.7)
    """
    text = files("representer.datasets").joinpath("boiling_points.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    target = np.array([float(row.pop("boiling_point")) for row in rows])
    data: Any = [{**row, "weight": float(row["weight"])} for row in rows]
    if as_frame:
        import pandas as pd

        data = pd.DataFrame(data)
    about = "Boiling points (°C, 1 atm) of 96 common organic compounds, as tables of chemistry list them, to 0.1 °C."
    return Bunch(data=data, target=target, feature_names=["name", "smiles", "family", "weight"], DESCR=about)


def load_nci60(*, folder: str | Path | None = None) -> Bunch:
    """Load NCI-60, the activity of 4690 molecules in 60 cancer cell lines.

    Parameters
    ----------
    folder : path or None, default=None
        The folder of ``nci60_activity.npz``; None: the one that REPRESENTER_DATA names, or the user's cache.

    Returns
    -------
    bunch : Bunch
        ``data`` (4690, 55) of fingerprint bits, ``target`` (4690, 60) of 0 and 1, ``target_names``, ``feature_names``,
        ``DESCR``, ``filename``.
    """
    path, (bits, active, lines) = read_arrays(NCI60, folder, ["fp3", "active", "cell_line"])
    names = [f"fp3_{i}" for i in range(55)]
    bunch = make_bunch(NCI60, path, bits.astype(float), active.astype(float), names, (4690, 55), (4690, 60))
    bunch.target_names = lines
    return bunch


def load_metabolites(*, folder: str | Path | None = None) -> Bunch:
    """Load metabolites, the fingerprints of 490 molecules with a Gram matrix of their mass spectra.

    Parameters
    ----------
    folder : path or None, default=None
        The folder of ``metabolite_fingerprints.npz``; None: the one that REPRESENTER_DATA names, or the user's cache.

    Returns
    -------
    bunch : Bunch
        ``data`` (490, 490), the Gram matrix of the spectra; ``target`` (490, 286) of 0 and 1, the fingerprints;
        ``feature_names``, ``DESCR``, ``filename``.
    """
    path, (gram, bits) = read_arrays(METABOLITES, folder, ["K_spectra", "fingerprints"])
    names = [f"spectrum_{i}" for i in range(490)]
    return make_bunch(METABOLITES, path, gram.astype(float), bits.astype(float), names, (490, 490), (490, 286))


def load_mutag(*, edge_labels: bool = False, folder: str | Path | None = None) -> Bunch:
    """Load MUTAG, 188 compounds as graphs.

    Parameters
    ----------
    edge_labels : bool, default=False
        Are edges labelled by the kind of their bond? Published results of graph kernels use node labels only.
    folder : path or None, default=None
        The folder of ``mutag.npz``; None: the one that REPRESENTER_DATA names, or the user's cache.

    Returns
    -------
    bunch : Bunch
        ``data``, a list of 188 ``Graph``, ``target`` (188,) of -1 and 1, ``DESCR``, ``filename``.
    """
    return _load_graphs(MUTAG, folder, 188, edge_labels)


def _load_graphs(source: Source, folder: str | Path | None, n_graphs: int, edge_labels: bool) -> Bunch:
    """The bunch of graphs whose nodes and edges the file holds one graph after the other."""
    names = ["edges", "graph_of_node", "node_label", "graph_label", *(["edge_label"] if edge_labels else [])]
    path, (edges, owner, labels, target, *bonds) = read_arrays(source, folder, names)
    if len(target) != n_graphs or np.any(np.diff(owner) < 0) or len(np.unique(owner)) != n_graphs:
        raise ValueError(
            f"{path}: {n_graphs} graphs were published, with their nodes one graph after the other; the file has "
            f"{len(target)} classes and nodes of {len(np.unique(owner))} graphs. "
            f"Get the whole set from {source.origin}."
        )
    order = np.argsort(owner[edges[:, 0]], kind="stable")
    edges, bonds = edges[order], [bond[order] for bond in bonds]
    ends = np.arange(n_graphs + 1)
    nodes, arcs = np.searchsorted(owner, ends), np.searchsorted(owner[edges[:, 0]], ends)
    graphs = [
        Graph(edges[a:b] - first, labels[first:last], *(bond[a:b] for bond in bonds))
        for (first, last), (a, b) in zip(pairwise(nodes), pairwise(arcs), strict=True)
    ]
    return Bunch(data=graphs, target=target.astype(int), DESCR=source.text, filename=str(path))


def _load_smiles(source: Source, folder: str | Path | None, target: str, n: int) -> Bunch:
    """The bunch of a table with a column of SMILES strings and one of targets."""
    path, table = read_table(source, folder, n)
    values = number_columns(path, table, [target])[:, 0]
    smiles = np.array(text_column(path, table, "smiles"), dtype=object)
    return make_bunch(source, path, smiles, values, ["smiles"], (n,))


def _smiles_loader(name: str, what: str, source: Source, target: str, n: int) -> Callable[..., Bunch]:
    """The function that loads molecules with one number each."""
    contents = f"``data`` ({n},) of SMILES strings, ``target`` ({n},), ``feature_names``"
    return loader(name, what, source, contents, lambda folder: _load_smiles(source, folder, target, n))


load_esol = _smiles_loader("esol", "ESOL, the solubility of 1128 molecules", ESOL, "log_solubility", 1128)
load_freesolv = _smiles_loader(
    "freesolv", "FreeSolv, the hydration free energy of 642 molecules", FREESOLV, "expt", 642
)
load_bace = _smiles_loader("bace", "BACE, the strength of 1513 inhibitors of an enzyme", BACE, "pIC50", 1513)
load_nci1 = loader(
    "nci1",
    "NCI1, 4110 compounds as graphs",
    NCI1,
    "``data``, a list of 4110 ``Graph`` with node labels, ``target`` (4110,) of 0 and 1",
    lambda folder: _load_graphs(NCI1, folder, 4110, edge_labels=False),
)
