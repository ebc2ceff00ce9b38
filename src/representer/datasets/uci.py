"""Sets of numbers from the UCI Machine Learning Repository."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.utils import Bunch

from representer.datasets.files import Source, make_bunch, number_columns, read_table, text_column

YACHT = Source(
    "yacht.csv",
    "Yacht hydrodynamics: the residuary resistance of 308 hull forms and speeds, from 6 dimensionless numbers.",
    "UCI Machine Learning Repository, 'Yacht Hydrodynamics' (J. Gerritsma, R. Onnink, A. Versluis)",
)
SEGMENT = Source(
    "segment.csv",
    "Image segmentation: 2310 regions of 3 × 3 pixels of outdoor pictures, 19 features (region_pixel_count is "
    "constant), 7 classes of 330.",
    "UCI Machine Learning Repository, 'Statlog (Image Segmentation)' (Vision Group, University of Massachusetts)",
)


def load_yacht(*, folder: str | Path | None = None) -> Bunch:
    """Load yacht hydrodynamics, a regression set of 308 × 6 numbers.

    Parameters
    ----------
    folder : path or None, default=None
        Where ``yacht.csv`` lies; None is the folder that the environment variable REPRESENTER_DATA names.

    Returns
    -------
    bunch : Bunch
        ``data`` (308, 6), ``target`` (308,), ``feature_names``, ``DESCR``, ``filename``.
    """
    path, table = read_table(YACHT, folder, 308)
    target = number_columns(path, table, ["resistance"])[:, 0]
    names = [name for name in table if name != "resistance"]
    return make_bunch(YACHT, path, number_columns(path, table, names), target, names, (308, 6))


def load_segment(*, folder: str | Path | None = None) -> Bunch:
    """Load image segmentation, a classification set of 2310 × 19 numbers in 7 classes.

    Parameters
    ----------
    folder : path or None, default=None
        Where ``segment.csv`` lies; None is the folder that the environment variable REPRESENTER_DATA names.

    Returns
    -------
    bunch : Bunch
        ``data`` (2310, 19), ``target`` (2310,) of class names, ``target_names``, ``feature_names``, ``DESCR``,
        ``filename``. The feature ``region_pixel_count`` is constant.
    """
    path, table = read_table(SEGMENT, folder, 2310)
    target = np.array(text_column(path, table, "class"))
    names = [name for name in table if name != "class"]
    bunch = make_bunch(SEGMENT, path, number_columns(path, table, names), target, names, (2310, 19))
    bunch.target_names = np.unique(target)
    return bunch
