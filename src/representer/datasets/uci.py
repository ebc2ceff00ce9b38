"""Public tables of numbers from the UCI Machine Learning Repository."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import numpy as np
from sklearn.utils import Bunch

from representer.datasets.files import Source, class_column, loader, make_bunch, number_columns, read_table

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
BANKNOTE = Source(
    "banknote.csv",
    "Banknote authentication: 1372 pictures of genuine and forged banknotes, 4 wavelet features, 2 classes.",
    "UCI Machine Learning Repository, 'Banknote Authentication' (V. Lohweg)",
)
ECOLI = Source(
    "ecoli.csv",
    "Ecoli: the localisation sites of 336 proteins, 7 features, 8 classes, the smallest of 2 proteins.",
    "UCI Machine Learning Repository, 'Ecoli' (K. Nakai, P. Horton)",
)
ROBOT = Source(
    "wall_robot_24.csv",
    "Wall-following robot: 5456 readings of 24 ultrasound sensors, 4 movements.",
    "UCI Machine Learning Repository, 'Wall-Following Robot Navigation Data' (A. Freire, M. Veloso, G. Barreto)",
)
WINE = Source(
    "wine.csv",
    "Wine: 13 chemical measurements of 178 wines of 3 cultivars.",
    "UCI Machine Learning Repository, 'Wine' (M. Forina et al.)",
)
YEAST = Source(
    "yeast.csv",
    "Yeast: the localisation sites of 1484 proteins, 8 features, 10 classes, the smallest of 5 proteins.",
    "UCI Machine Learning Repository, 'Yeast' (K. Nakai, P. Horton)",
)
PIMA = Source(
    "pima.csv",
    "Pima Indians diabetes: 8 measurements of 768 women, 268 with diabetes; zeros stand for missing values.",
    "National Institute of Diabetes and Digestive and Kidney Diseases, 'Pima Indians Diabetes'",
)
IONOSPHERE = Source(
    "ionosphere.csv",
    "Ionosphere: 351 radar returns, 34 features (a02 is constant), good or bad.",
    "UCI Machine Learning Repository, 'Ionosphere' (V. Sigillito)",
)

BUPA = Source(
    "bupa_liver.csv",
    "BUPA liver disorders: 5 blood tests and the daily drinks of 345 men; the selector, used as a class since the set "
    "appeared, was made to split it.",
    "UCI Machine Learning Repository, 'Liver Disorders' (BUPA Medical Research Ltd.)",
)
CLEVELAND = Source(
    "cleveland_heart.csv",
    "Cleveland heart disease: 13 measurements of 303 patients, 6 values of them missing, and a diagnosis from 0 to 4.",
    "UCI Machine Learning Repository, 'Heart Disease' (R. Detrano et al.)",
)


def _load_table(
    source: Source,
    folder: str | Path | None,
    shape: tuple[int, int],
    target: str = "class",
    kind: type = str,
    gaps: Mapping[str, int] | None = None,
) -> Bunch:
    """The bunch of a table of numbers with a column of targets, which are classes unless they are floats.

    So many cells as ``gaps`` says are empty in a column; a column ``sequence`` names the samples, and is no feature.
    """
    path, table = read_table(source, folder, shape[0])
    if kind is str:
        values = np.array(class_column(path, table, target))
    else:
        values = number_columns(path, table, [target])[:, 0].astype(kind)
    names = [name for name in table if name not in (target, "sequence")]
    bunch = make_bunch(source, path, number_columns(path, table, names, gaps), values, names, shape)
    if kind is not float:
        bunch.target_names = np.unique(values)
    return bunch


def _loader(
    name: str, what: str, source: Source, shape: tuple[int, int], target: str = "class", kind: type = str
) -> Callable[..., Bunch]:
    """The function that loads a table; ``what`` describes it in the docstring."""
    rows, columns = shape
    contents = [f"``data`` {shape}", f"``target`` ({rows},)" + (" of class names" if kind is str else "")]
    contents += [*(["``target_names``"] if kind is not float else []), "``feature_names``"]
    description = what.format(size=f"{rows} × {columns} numbers")
    return loader(
        name, description, source, ", ".join(contents), lambda folder: _load_table(source, folder, shape, target, kind)
    )


load_yacht = _loader(
    "yacht", "yacht hydrodynamics, a regression set of {size}", YACHT, (308, 6), target="resistance", kind=float
)
load_segment = _loader(
    "segment",
    "image segmentation, {size} (the feature ``region_pixel_count`` is constant) in 7 classes",
    SEGMENT,
    (2310, 19),
)
load_banknote = _loader("banknote", "banknote authentication, {size} in 2 classes", BANKNOTE, (1372, 4), kind=int)
load_ecoli = _loader("ecoli", "ecoli, the localisation sites of proteins, {size} in 8 classes", ECOLI, (336, 7))
load_robot = _loader("robot", "the wall-following robot, {size} in 4 classes", ROBOT, (5456, 24))
load_wine = _loader("wine", "wine recognition, {size} in 3 classes", WINE, (178, 13), kind=int)
load_yeast = _loader("yeast", "yeast, the localisation sites of proteins, {size} in 10 classes", YEAST, (1484, 8))
load_pima = _loader("pima", "Pima Indians diabetes, {size} in 2 classes", PIMA, (768, 8), kind=int)
load_ionosphere = _loader(
    "ionosphere",
    "radar returns of the ionosphere, {size} (the feature ``a02`` is constant) in 2 classes",
    IONOSPHERE,
    (351, 34),
)


def load_bupa(*, folder: str | Path | None = None) -> Bunch:
    """Load BUPA liver disorders, 345 × 6 numbers in 2 classes.

    The usual class is the ``selector`` by which the donors split the set (McDermott and Forsyth, 2016); the measured
    outcome is the last feature, ``drinks``.

    Parameters
    ----------
    folder : path or None, default=None
        The folder of ``bupa_liver.csv``; None: the one that REPRESENTER_DATA names, or the user's cache.

    Returns
    -------
    bunch : Bunch
        ``data`` (345, 6), ``target`` (345,) of selectors 1 and 2, ``target_names``, ``feature_names``, ``DESCR``,
        ``filename``.
    """
    return _load_table(BUPA, folder, (345, 6), "selector", int)


def load_cleveland(
    target: Literal["cholesterol", "diagnosis"] = "cholesterol", *, folder: str | Path | None = None
) -> Bunch:
    """Load Cleveland heart disease: cholesterol as a regression target, or the diagnosis, 0 (healthy) to 4.

    Parameters
    ----------
    target : {"cholesterol", "diagnosis"}, default="cholesterol"
        Cholesterol is predicted from the 12 other measurements and the diagnosis, as in the regression set
        "cholesterol"; the diagnosis from all 13 measurements.
    folder : path or None, default=None
        The folder of ``cleveland_heart.csv``; None: the one that REPRESENTER_DATA names, or the user's cache.

    Returns
    -------
    bunch : Bunch
        ``data`` (303, 13), ``target`` (303,), ``feature_names``, ``DESCR``, ``filename``; ``target_names`` of
        diagnoses. 4 values of ``ca`` and 2 of ``thal`` are missing (NaN).
    """
    if target not in ("cholesterol", "diagnosis"):
        raise ValueError(f"target must be 'cholesterol' or 'diagnosis'; got {target!r}.")
    column, kind = ("chol", float) if target == "cholesterol" else ("num", int)
    return _load_table(CLEVELAND, folder, (303, 13), column, kind, gaps={"ca": 4, "thal": 2})
