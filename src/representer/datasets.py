"""Data: functions with a kink or a jump to sample from, and loaders for public sets that lie in a folder.

Nothing is downloaded. A loader reads from the ``folder`` it is given, or from the one that the environment variable
``REPRESENTER_DATA`` names.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable as Function
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from sklearn.utils import Bunch, check_random_state

VARIABLE = "REPRESENTER_DATA"


# -- functions on [−1, 1]² (Bohn et al., sections 3 and 4.2) ----------------------------------------------------------


def kink(X: Any) -> np.ndarray:
    """h₁(x, y) = 1 / (0.1 + |x − y|): a kink along the diagonal.

    Parameters
    ----------
    X : array-like of shape (n_samples, 2)
        Points of the plane.

    Returns
    -------
    values : ndarray of shape (n_samples,)
        h₁ at the points.
    """
    x, y = _coordinates(X)
    return 1.0 / (0.1 + np.abs(x - y))


def straight_kink(X: Any) -> np.ndarray:
    """g₁(x, y) = 1 / (0.1 + |x|): a kink along an axis.

    Parameters
    ----------
    X : array-like of shape (n_samples, 2)
        Points of the plane.

    Returns
    -------
    values : ndarray of shape (n_samples,)
        g₁ at the points.
    """
    x, _ = _coordinates(X)
    return 1.0 / (0.1 + np.abs(x))


def jump(X: Any) -> np.ndarray:
    """h₂(x, y) = 1 where x·y > 3/20, else 0: a jump along two hyperbolas.

    Parameters
    ----------
    X : array-like of shape (n_samples, 2)
        Points of the plane.

    Returns
    -------
    values : ndarray of shape (n_samples,)
        h₂ at the points.
    """
    x, y = _coordinates(X)
    return (x * y > 3 / 20).astype(float)


def make_kink(
    n_samples: int = 100, *, noise: float = 0.01, random_state: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Sample ``kink`` at uniform points of [−1, 1]².

    Parameters
    ----------
    n_samples : int, default=100
        How many points.
    noise : float, default=0.01
        Standard deviation of the Gaussian noise on the values.
    random_state : int, RandomState instance or None, default=None
        Seeds points and noise.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
        The points.
    y : ndarray of shape (n_samples,)
        The noisy values.

    Examples
    --------
    >>> from representer.datasets import kink, make_kink
    >>> X, y = make_kink(50, noise=0.0, random_state=0)
    >>> X.shape, bool((y == kink(X)).all())
    ((50, 2), True)
    """
    return _sample(kink, n_samples, noise, random_state)


def make_jump(
    n_samples: int = 100, *, noise: float = 0.01, random_state: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Sample ``jump`` at uniform points of [−1, 1]².

    Parameters
    ----------
    n_samples : int, default=100
        How many points.
    noise : float, default=0.01
        Standard deviation of the Gaussian noise on the values.
    random_state : int, RandomState instance or None, default=None
        Seeds points and noise.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
        The points.
    y : ndarray of shape (n_samples,)
        The noisy values.
    """
    return _sample(jump, n_samples, noise, random_state)


def square_grid(size: int = 101) -> np.ndarray:
    """The points of a uniform grid on [−1, 1]², the first coordinate running fastest.

    Parameters
    ----------
    size : int, default=101
        Points on a side: 101 is the mesh width 1/50 of the paper.

    Returns
    -------
    grid : ndarray of shape (size², 2)
        The points; values on them become a picture by ``values.reshape(size, size)``, y running down the rows.
    """
    if size < 2:
        raise ValueError(f"A grid needs at least 2 points on a side; got size={size!r}.")
    side = np.linspace(-1.0, 1.0, size)
    return np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)


def _coordinates(X: Any) -> np.ndarray:
    X = np.asarray(X, dtype=float)
    if X.ndim != 2 or X.shape[1] != 2:
        raise ValueError(f"Points of the plane are expected, an array (n_samples, 2); got shape {X.shape}.")
    return X.T


def _sample(
    function: Function[[Any], np.ndarray], n_samples: int, noise: float, random_state: Any
) -> tuple[np.ndarray, np.ndarray]:
    if n_samples < 1 or noise < 0:
        raise ValueError(f"n_samples must be positive and noise at least 0; got {n_samples!r} and {noise!r}.")
    rng = check_random_state(random_state)
    X = rng.uniform(-1.0, 1.0, (n_samples, 2))
    return X, function(X) + noise * rng.standard_normal(n_samples)


# -- files ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """A file of a public set: its name, what is in it and where it came from."""

    file: str
    description: str
    origin: str


class MissingDataError(FileNotFoundError):
    """A data file is not where it was looked for; the message says how to get it."""


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
ESOL = Source(
    "esol.csv",
    "ESOL: measured aqueous solubility (logarithm of mol/l) of 1128 molecules given as SMILES.",
    "J. Delaney 2004, doi:10.1021/ci034243x; 'ESOL' in MoleculeNet",
)
USPS = Source(
    "usps.npz",
    "USPS handwritten digits: 7291 for training and 2007 for testing, 16 × 16 grey values in [0, 1].",
    "'ZIP code' data of The Elements of Statistical Learning (USPS, Y. LeCun et al.); grey value = (original + 1) / 2",
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
    path, table = _table(YACHT, folder, 308)
    target = _numbers(path, table, ["resistance"])[:, 0]
    names = [name for name in table if name != "resistance"]
    return _bunch(YACHT, path, _numbers(path, table, names), target, names, (308, 6))


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
    path, table = _table(SEGMENT, folder, 2310)
    target = np.array(_column(path, table, "class"))
    names = [name for name in table if name != "class"]
    bunch = _bunch(SEGMENT, path, _numbers(path, table, names), target, names, (2310, 19))
    bunch.target_names = np.unique(target)
    return bunch


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
    path, table = _table(ESOL, folder, 1128)
    target = _numbers(path, table, ["log_solubility"])[:, 0]
    smiles = np.array(_column(path, table, "smiles"), dtype=object)
    return _bunch(ESOL, path, smiles, target, ["smiles"], (1128,))


def load_usps(subset: Literal["train", "test", "all"] = "all", *, folder: str | Path | None = None) -> Bunch:
    """Load the USPS digits.

    Parameters
    ----------
    subset : {"train", "test", "all"}, default="all"
        The 7291 digits of the published training set, the 2007 of the test set, or the former and then the latter.
    folder : path or None, default=None
        Where ``usps.npz`` lies; None is the folder that the environment variable REPRESENTER_DATA names.

    Returns
    -------
    bunch : Bunch
        ``data`` (n, 256), ``images`` (n, 16, 16), ``target`` (n,) of digits, ``feature_names``, ``DESCR``,
        ``filename``.
    """
    sizes = {"train": 7291, "test": 2007}
    if subset not in (*sizes, "all"):
        raise ValueError(f"subset must be 'train', 'test' or 'all'; got {subset!r}.")
    parts = list(sizes) if subset == "all" else [subset]
    path = _find(USPS, folder)
    with np.load(path, allow_pickle=False) as arrays:
        absent = [f"{axis}_{part}" for axis in "Xy" for part in parts if f"{axis}_{part}" not in arrays]
        if absent:
            raise ValueError(f"{path} has no array {absent[0]!r}; it has {', '.join(arrays)}.")
        data = np.concatenate([arrays[f"X_{part}"] for part in parts]).astype(float)
        target = np.concatenate([arrays[f"y_{part}"] for part in parts]).astype(int)
    names = [f"pixel_{row}_{column}" for row in range(16) for column in range(16)]
    bunch = _bunch(USPS, path, data, target, names, (sum(sizes[part] for part in parts), 256))
    bunch.images = bunch.data.reshape(-1, 16, 16)
    return bunch


def _find(source: Source, folder: str | Path | None) -> Path:
    chosen = os.environ.get(VARIABLE) if folder is None else folder
    advice = (
        f"Nothing is downloaded: get the set from its source ({source.origin}), store it as {source.file} and let the "
        f"environment variable {VARIABLE} name the folder, or pass folder=."
    )
    if not chosen:
        raise MissingDataError(f"{source.file} was not looked for: {VARIABLE} is not set. {advice}")
    path = Path(chosen).expanduser() / source.file
    if not path.is_file():
        raise MissingDataError(f"There is no {source.file} in {Path(chosen)}. {advice}")
    return path


def _table(source: Source, folder: str | Path | None, n_rows: int) -> tuple[Path, dict[str, list[str]]]:
    """The columns of a CSV file by name."""
    path = _find(source, folder)
    with path.open(newline="", encoding="utf-8") as lines:
        header, *rows = csv.reader(lines)
    ragged = [line for line, row in enumerate(rows, start=2) if len(row) != len(header)]
    if ragged:
        raise ValueError(f"{path}, row {ragged[0]}: {len(header)} cells are expected, as in the header.")
    if len(rows) != n_rows:
        raise ValueError(f"{path} has {len(rows)} rows below the header; {n_rows} were published.")
    return path, {name: [row[j] for row in rows] for j, name in enumerate(header)}


def _column(path: Path, table: dict[str, list[str]], name: str) -> list[str]:
    if name not in table:
        raise ValueError(f"{path} has no column {name!r}; it has {', '.join(table)}.")
    return table[name]


def _numbers(path: Path, table: dict[str, list[str]], names: list[str]) -> np.ndarray:
    """Columns of numbers side by side."""
    columns = [_column(path, table, name) for name in names]
    try:
        return np.array(columns, dtype=float).T
    except ValueError as error:
        raise ValueError(f"{path}: {error}. Numbers are expected in {', '.join(names)}.") from error


def _bunch(
    source: Source,
    path: Path,
    data: np.ndarray,
    target: np.ndarray,
    feature_names: list[str],
    shape: tuple[int, ...],
) -> Bunch:
    if data.shape != shape or target.shape != shape[:1]:
        raise ValueError(
            f"{path}: the data have shape {data.shape} and the target {target.shape}; {shape} and {shape[:1]} are "
            f"the published sizes. Get the whole set from {source.origin}."
        )
    description = f"{source.description}\n\nSource: {source.origin}."
    return Bunch(data=data, target=target, feature_names=feature_names, DESCR=description, filename=str(path))
