"""Sets of molecules."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.utils import Bunch

from representer.datasets.files import (
    Source,
    make_bunch,
    number_columns,
    read_arrays,
    read_table,
    text_column,
)

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


def load_esol(*, folder: str | Path | None = None) -> Bunch:
    """Load ESOL, the solubility of 1128 molecules.

    Parameters
    ----------
    folder : path or None, default=None
        Where ``esol.csv`` lies; None is the folder that the environment variable REPRESENTER_DATA names.

    Returns
    -------
    bunch : Bunch
        ``data`` (1128,) of SMILES strings, ``target`` (1128,), ``feature_names``, ``DESCR``, ``filename``.
    """
    return _load_smiles(ESOL, folder, "log_solubility", 1128)


def load_freesolv(*, folder: str | Path | None = None) -> Bunch:
    """Load FreeSolv, the hydration free energy of 642 molecules.

    Parameters
    ----------
    folder : path or None, default=None
        Where ``freesolv.csv`` lies; None is the folder that the environment variable REPRESENTER_DATA names.

    Returns
    -------
    bunch : Bunch
        ``data`` (642,) of SMILES strings, ``target`` (642,), ``feature_names``, ``DESCR``, ``filename``.
    """
    return _load_smiles(FREESOLV, folder, "expt", 642)


def load_bace(*, folder: str | Path | None = None) -> Bunch:
    """Load BACE, the strength of 1513 inhibitors of an enzyme.

    Parameters
    ----------
    folder : path or None, default=None
        Where ``bace.csv`` lies; None is the folder that the environment variable REPRESENTER_DATA names.

    Returns
    -------
    bunch : Bunch
        ``data`` (1513,) of SMILES strings, ``target`` (1513,), ``feature_names``, ``DESCR``, ``filename``.
    """
    return _load_smiles(BACE, folder, "pIC50", 1513)


def load_nci60(*, folder: str | Path | None = None) -> Bunch:
    """Load NCI-60, the activity of 4690 molecules in 60 cancer cell lines.

    Parameters
    ----------
    folder : path or None, default=None
        Where ``nci60_activity.npz`` lies; None is the folder that the environment variable REPRESENTER_DATA names.

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
        Where ``metabolite_fingerprints.npz`` lies; None is the folder that the environment variable REPRESENTER_DATA
        names.

    Returns
    -------
    bunch : Bunch
        ``data`` (490, 490), the Gram matrix of the spectra; ``target`` (490, 286) of 0 and 1, the fingerprints;
        ``feature_names``, ``DESCR``, ``filename``.
    """
    path, (gram, bits) = read_arrays(METABOLITES, folder, ["K_spectra", "fingerprints"])
    names = [f"spectrum_{i}" for i in range(490)]
    return make_bunch(
        METABOLITES, path, gram.astype(float), bits.astype(float), names, (490, 490), (490, 286)
    )


def _load_smiles(source: Source, folder: str | Path | None, target: str, n: int) -> Bunch:
    path, table = read_table(source, folder, n)
    values = number_columns(path, table, [target])[:, 0]
    smiles = np.array(text_column(path, table, "smiles"), dtype=object)
    return make_bunch(source, path, smiles, values, ["smiles"], (n,))
