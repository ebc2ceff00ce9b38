"""Public sets of square pictures: digits and faces."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from sklearn.utils import Bunch

from representer.datasets.files import Source, make_bunch, read_arrays

USPS = Source(
    "usps.npz",
    "USPS handwritten digits: 7291 for training and 2007 for testing, 16 × 16 grey values in [0, 1].",
    "'ZIP code' data of The Elements of Statistical Learning (USPS, Y. LeCun et al.); grey value = (original + 1) / 2",
)
MNIST = Source(
    "mnist.npz",
    "MNIST handwritten digits: 60000 for training and 10000 for testing, 28 × 28 grey values in [0, 1].",
    "Y. LeCun, C. Cortes, C. Burges, 'The MNIST database of handwritten digits'; grey value = original / 255",
)
FACES = Source(
    "olivetti_faces.npz",
    "Olivetti faces: 10 pictures of each of 40 people, 64 × 64 grey values in [0, 1].",
    "AT&T Laboratories Cambridge, 'The Database of Faces', as prepared by S. Roweis; 8-bit grey values",
)
ISOMAP_FACES = Source(
    "isomap_faces.npz",
    "Isomap faces: 698 pictures of one sculpted face from different sides and in different light, 32 × 32 grey values.",
    "J. Tenenbaum, V. de Silva and J. Langford 2000, doi:10.1126/science.290.5500.2319",
)


def load_usps(subset: Literal["train", "test", "all"] = "all", *, folder: str | Path | None = None) -> Bunch:
    """Load the USPS digits.

    Parameters
    ----------
    subset : {"train", "test", "all"}, default="all"
        The 7291 digits of the published training set, the 2007 digits of the test set, or both in this order.
    folder : path or None, default=None
        The folder of ``usps.npz``; None: the one that REPRESENTER_DATA names, or the user's cache.

    Returns
    -------
    bunch : Bunch
        ``data`` (n, 256), ``images`` (n, 16, 16), ``target`` (n,) of digits, ``feature_names``, ``DESCR``,
        ``filename``.
    """
    sizes = {"train": 7291, "test": 2007}
    if subset not in (*sizes, "all"):
        raise ValueError(f"subset must be 'train', 'test' or 'all'; got {subset!r}.")
    subsets = list(sizes) if subset == "all" else [subset]
    path, arrays = read_arrays(USPS, folder, [f"{axis}_{name}" for axis in "Xy" for name in subsets])
    data = np.concatenate(arrays[: len(subsets)]).astype(float)
    target = np.concatenate(arrays[len(subsets) :]).astype(int)
    return _with_images(USPS, path, data, target, sum(sizes[name] for name in subsets))


def load_faces(*, folder: str | Path | None = None) -> Bunch:
    """Load the Olivetti faces.

    Parameters
    ----------
    folder : path or None, default=None
        The folder of ``olivetti_faces.npz``; None: the one that REPRESENTER_DATA names, or the user's cache.

    Returns
    -------
    bunch : Bunch
        ``data`` (400, 4096), ``images`` (400, 64, 64), ``target`` (400,) of people, ``feature_names``, ``DESCR``,
        ``filename``.
    """
    path, (images, people) = read_arrays(FACES, folder, ["images", "target"])
    return _with_images(FACES, path, images.reshape(len(images), -1) / 255.0, people.astype(int), 400)


def load_mnist(subset: Literal["train", "test"] = "train", *, folder: str | Path | None = None) -> Bunch:
    """Load the MNIST digits.

    Parameters
    ----------
    subset : {"train", "test"}, default="train"
        The 60000 digits of the published training set, or the 10000 digits of the test set.
    folder : path or None, default=None
        The folder of ``mnist.npz``; None: the one that REPRESENTER_DATA names, or the user's cache.

    Returns
    -------
    bunch : Bunch
        ``data`` (n, 784) in single precision, ``images`` (n, 28, 28), ``target`` (n,) of digits, ``feature_names``,
        ``DESCR``, ``filename``.
    """
    sizes = {"train": 60000, "test": 10000}
    if subset not in sizes:
        raise ValueError(f"subset must be 'train' or 'test'; got {subset!r}.")
    path, (images, digits) = read_arrays(MNIST, folder, [f"X_{subset}", f"y_{subset}"])
    data = images.reshape(len(images), -1).astype(np.float32) / np.float32(255.0)
    return _with_images(MNIST, path, data, digits.astype(int), sizes[subset])


def load_isomap_faces(*, folder: str | Path | None = None) -> Bunch:
    """Load the Isomap faces, one face from many sides.

    Parameters
    ----------
    folder : path or None, default=None
        The folder of ``isomap_faces.npz``; None: the one that REPRESENTER_DATA names, or the user's cache.

    Returns
    -------
    bunch : Bunch
        ``data`` (698, 1024), ``images`` (698, 32, 32), ``target`` (698, 3) of the direction of the light, the pose from
        left to right and the pose up and down, each standardised; ``target_names``, ``feature_names``, ``DESCR``,
        ``filename``.
    """
    path, (images, poses) = read_arrays(ISOMAP_FACES, folder, ["images", "light_pan_tilt"])
    data = images.reshape(len(images), -1).astype(float)
    bunch = _with_images(ISOMAP_FACES, path, data, poses.astype(float), 698, (698, 3))
    bunch.target_names = np.array(["light", "pan", "tilt"])
    return bunch


def _with_images(
    source: Source,
    path: Path,
    data: np.ndarray,
    target: np.ndarray,
    n: int,
    target_shape: tuple[int, ...] | None = None,
) -> Bunch:
    """The bunch of n square pictures, whose pixels are the rows of the data."""
    side = round(data.shape[1] ** 0.5)
    names = [f"pixel_{row}_{column}" for row in range(side) for column in range(side)]
    bunch = make_bunch(source, path, data, target, names, (n, side * side), target_shape)
    bunch.images = bunch.data.reshape(-1, side, side)
    return bunch
