"""Public sets from where they are published, turned into the files that loaders read, and checked.

What is downloaded is checked by its contents: a signature that does not depend on the order of rows, nor on the last
digits that were printed. Where the files themselves have known checksums, these are checked first.
"""

from __future__ import annotations

import hashlib
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from representer.datasets import converters
from representer.datasets.files import Source
from representer.datasets.graphs import MUTAG, NCI1, load_mutag, load_nci1
from representer.datasets.images import FACES, MNIST, USPS, load_faces, load_mnist, load_usps
from representer.datasets.molecules import BACE, ESOL, FREESOLV, load_bace, load_esol, load_freesolv
from representer.datasets.structured import OCR, SCENE, load_ocr, load_scene
from representer.datasets.uci import (
    BANKNOTE,
    BUPA,
    CLEVELAND,
    ECOLI,
    IONOSPHERE,
    PIMA,
    ROBOT,
    SEGMENT,
    WINE,
    YACHT,
    YEAST,
    load_banknote,
    load_bupa,
    load_cleveland,
    load_ecoli,
    load_ionosphere,
    load_pima,
    load_robot,
    load_segment,
    load_wine,
    load_yacht,
    load_yeast,
)
from representer.kernels.graphs import Graph

UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/"
TU = "https://www.chrsmrrs.com/graphkerneldatasets/"
MOLECULENET = "https://deepchemdata.s3-us-west-1.amazonaws.com/datasets/"
ZIP_CODE = "https://hastie.su.domains/ElemStatLearn/datasets/"
MULAN = "https://raw.githubusercontent.com/tsoumakas/mulan/master/data/multi-label/"
MNIST_FILES = "https://ossci-datasets.s3.amazonaws.com/mnist/"
SECONDS = 60.0  # without an answer
SAME = 1e-3  # copies of a set differ in the last digits they print


@dataclass(frozen=True)
class Download:
    """How a set is got: its addresses, how their contents become the file, its loader, and what must be in it."""

    source: Source
    addresses: tuple[str, ...]
    convert: Callable[[list[bytes], Path], None]
    load: Callable[..., Any]
    signature: tuple[float, float, float]
    checksums: tuple[str, ...] = ()  # MD5 or SHA-256


def fetch(source: Source | str, folder: str | Path, *, again: bool = False) -> Path:
    """Download a set into a folder, where its loader finds it.

    Parameters
    ----------
    source : Source or str
        The set, or the name of its file; ``DOWNLOADS`` has those that can be fetched.
    folder : path
        Where to; let the environment variable REPRESENTER_DATA name it. Made if it is not there.
    again : bool, default=False
        Download a file that is there already.

    Returns
    -------
    path : Path
        The file. It appears only when its contents are those that were published.
    """
    file = source if isinstance(source, str) else source.file
    if file not in DOWNLOADS:
        raise ValueError(f"{file!r} cannot be fetched; these can: {', '.join(DOWNLOADS)}.")
    download, path = DOWNLOADS[file], Path(folder).expanduser() / file
    if path.is_file() and not again:
        return path
    contents = [_read(address) for address in download.addresses]
    for address, content, expected in zip(download.addresses, contents, download.checksums, strict=False):
        method = "md5" if len(expected) == 32 else "sha256"
        found = hashlib.new(method, content, usedforsecurity=False).hexdigest()
        if found != expected:
            raise ValueError(
                f"{address} was not received whole: its {method} sum is {found}, {expected} was expected. Try again."
            )
    unchecked = path.parent / f".{file}.unchecked"
    unchecked.mkdir(parents=True, exist_ok=True)
    try:
        download.convert(contents, unchecked / file)
        found_signature = signature(download.load(folder=unchecked))
        if not np.allclose(found_signature, download.signature, rtol=SAME, atol=SAME):
            raise ValueError(
                f"What {download.addresses[0]} sent is not the set that was published: its signature is "
                f"{found_signature}, {download.signature} was expected. Get it from {download.source.origin}."
            )
        (unchecked / file).replace(path)
    finally:
        (unchecked / file).unlink(missing_ok=True)
        unchecked.rmdir()
    return path


def signature(bunch: Any) -> tuple[float, float, float]:
    """Three numbers that any order of the rows leaves as they are, and any change in the contents changes.

    Every column (targets last) has a mean in units of its standard deviation and a skewness; they are summed with
    weights cos(1), cos(2), …. The third number is the entropy of the target's values. Of graphs, the columns are the
    numbers of edges and of nodes with each label, the most frequent label first; of strings, which copies of a set
    write differently, there are only the targets.
    """
    values, codes = np.unique(np.asarray(bunch.target), return_inverse=True)
    target = (codes if values.dtype.kind in "US" else np.asarray(bunch.target)).reshape(len(bunch.target), -1)
    columns = np.column_stack([_numbers(bunch.data), target])
    mean, deviation = np.nanmean(columns, 0), np.nanstd(columns, 0)
    varies = deviation > 0
    weights = np.cos(np.arange(1, columns.shape[1] + 1))[varies]
    standard = (columns[:, varies] - mean[varies]) / deviation[varies]
    shares = np.bincount(codes.ravel()) / codes.size
    return (
        float(weights @ (mean[varies] / deviation[varies])),
        float(weights @ np.nanmean(standard**3, 0)),
        float(-(shares * np.log(shares)).sum()),
    )


def _numbers(data: Any) -> np.ndarray:
    """What a signature sees of the data, a row for each sample."""
    if isinstance(data[0], Graph):
        labels, counts = np.unique(
            [label for graph in data for label in graph.node_labels], return_counts=True
        )
        frequent = labels[np.argsort(-counts, kind="stable")]
        return np.array(
            [[len(g.edges), *(np.array(g.node_labels)[:, None] == frequent).sum(0)] for g in data],
            dtype=float,
        )
    if isinstance(data[0], str):
        return np.empty((len(data), 0))
    return np.asarray(data, dtype=float).reshape(len(data), -1)


def _read(address: str) -> bytes:
    try:
        with urllib.request.urlopen(address, timeout=SECONDS) as answer:
            return bytes(answer.read())
    except OSError as error:
        raise OSError(
            f"{address} could not be read: {error}. Check the connection, and try again."
        ) from error


SEGMENTS = ("brickface", "sky", "foliage", "cement", "window", "path", "grass")


def _uci(
    source: Source,
    address: str,
    convert: Callable[[list[bytes], Path], None],
    load: Callable[..., Any],
    signed: tuple[float, float, float],
) -> Download:
    return Download(source, (UCI + address,), convert, load, signed)


DOWNLOADS: dict[str, Download] = {
    download.source.file: download
    for download in (
        _uci(
            BANKNOTE,
            "00267/data_banknote_authentication.txt",
            converters.table("variance,skewness,curtosis,entropy,class"),
            load_banknote,
            (0.24964, -0.2626, 0.687),
        ),
        _uci(
            BUPA,
            "liver-disorders/bupa.data",
            converters.table("mcv,alkphos,sgpt,sgot,gammagt,drinks,selector"),
            load_bupa,
            (9.91778, -2.99134, 0.68039),
        ),
        _uci(
            CLEVELAND,
            "heart-disease/processed.cleveland.data",
            converters.table("age,sex,cp,trestbps,chol,fbs,restecg,thalach,exang,oldpeak,slope,ca,thal,num"),
            load_cleveland,
            (0.81705, 0.39277, 4.88397),
        ),
        _uci(
            ECOLI,
            "ecoli/ecoli.data",
            converters.table("sequence,mcg,gvh,lip,chg,aac,alm1,alm2,class", delimiter=None),
            load_ecoli,
            (-12.52884, -17.36466, 1.51712),
        ),
        _uci(
            IONOSPHERE,
            "ionosphere/ionosphere.data",
            converters.table(",".join(f"a{k:02d}" for k in range(1, 35)) + ",class"),
            load_ionosphere,
            (-0.41086, -0.21881, 0.65283),
        ),
        _uci(
            ROBOT,
            "00194/sensor_readings_24.data",
            converters.table(",".join(f"S{k}" for k in range(1, 25)) + ",class"),
            load_robot,
            (-1.00224, 1.34222, 1.18849),
        ),
        _uci(
            SEGMENT,
            "statlog/segment/segment.dat",
            converters.table(
                "region_centroid_col,region_centroid_row,region_pixel_count,short_line_density_5,short_line_density_2,"
                "vedge_mean,vedge_sd,hedge_mean,hedge_sd,intensity_mean,rawred_mean,rawblue_mean,rawgreen_mean,"
                "exred_mean,exblue_mean,exgreen_mean,value_mean,saturation_mean,hue_mean,class",
                delimiter=None,
                names={str(k): name for k, name in enumerate(SEGMENTS, 1)},
            ),
            load_segment,
            (1.72394, 1.5969, 1.94591),
        ),
        _uci(WINE, "wine/wine.data", converters.wine, load_wine, (3.3002, -0.81726, 1.08604)),
        _uci(
            YACHT,
            "00243/yacht_hydrodynamics.data",
            converters.table(
                "buoyancy_center_pos,prismatic_coeff,length_displacement_ratio,beam_draught_ratio,length_beam_ratio,"
                "froude_number,resistance",
                delimiter=None,
            ),
            load_yacht,
            (-27.47836, 1.41692, 5.49316),
        ),
        _uci(
            YEAST,
            "yeast/yeast.data",
            converters.table("sequence,mcg,gvh,alm,mit,erl,pox,vac,nuc,class", delimiter=None),
            load_yeast,
            (1.29455, 10.82725, 1.72623),
        ),
        Download(
            MNIST,
            tuple(
                MNIST_FILES + name
                for name in (
                    "train-images-idx3-ubyte.gz",
                    "train-labels-idx1-ubyte.gz",
                    "t10k-images-idx3-ubyte.gz",
                    "t10k-labels-idx1-ubyte.gz",
                )
            ),
            converters.mnist,
            load_mnist,
            (1.49109, -442.83793, 2.30116),
            checksums=(
                "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "d53e105ee54ea40749a09fcbcd1e9432",
                "9fb629c4189551a2d022fa330f9573f3",
                "ec29112dd5afa0611ce80d1b7f02629c",
            ),
        ),
        Download(
            USPS,
            (ZIP_CODE + "zip.train.gz", ZIP_CODE + "zip.test.gz"),
            converters.zip_code,
            load_usps,
            (1.0818, -29.39789, 2.26853),
        ),
        Download(
            FACES,
            ("https://ndownloader.figshare.com/files/5976027",),
            converters.olivetti,
            load_faces,
            (-9.80455, 1.00106, 3.68888),
            checksums=("b612fb967f2dc77c9c62d3e1266e0c73d5fca46a4b8906c18e454d41af987794",),
        ),
        Download(
            OCR,
            ("https://ai.stanford.edu/~btaskar/ocr/letter.data.gz",),
            converters.ocr,
            load_ocr,
            (-1.34259, -2.34712, 3.00005),
        ),
        Download(
            SCENE,
            (MULAN + "scene/scene-train.arff", MULAN + "scene/scene-test.arff"),
            converters.multilabel(6),
            load_scene,
            (0.70156, 4.39338, 0.46986),
        ),
        Download(
            PIMA,
            ("https://www.openml.org/data/v1/download/37/diabetes.arff",),
            converters.arff_table(
                "preg,plas,pres,skin,insu,mass,pedi,age,class",
                {"tested_negative": "0", "tested_positive": "1"},
            ),
            load_pima,
            (-1.24538, 3.09961, 0.6468),
        ),
        Download(MUTAG, (TU + "MUTAG.zip",), converters.graphs, load_mutag, (-2.68538, 11.38708, 0.63774)),
        Download(NCI1, (TU + "NCI1.zip",), converters.graphs, load_nci1, (-0.81772, 73.75843, 0.69315)),
        Download(
            ESOL,
            (MOLECULENET + "delaney-processed.csv",),
            converters.renamed({"measured log solubility in mols per litre": "log_solubility"}),
            load_esol,
            (-0.78643, -0.26567, 6.45155),
        ),
        Download(
            FREESOLV,
            (MOLECULENET + "SAMPL.csv",),
            converters.renamed({}),
            load_freesolv,
            (-0.53443, -0.63392, 6.09242),
        ),
        Download(
            BACE,
            (MOLECULENET + "bace.csv",),
            converters.renamed({"mol": "smiles"}),
            load_bace,
            (2.62587, -0.26651, 6.01224),
        ),
    )
}
