"""Public sets from where they are published, turned into the files that loaders read, and checked.

What is downloaded is checked by its contents: a signature that does not depend on the order of rows, nor on the last
digits that were printed. Where the files themselves have known checksums, these are checked first.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from representer.datasets.files import Source
from representer.datasets.images import MNIST, load_mnist
from representer.datasets.uci import (
    BANKNOTE,
    BUPA,
    CLEVELAND,
    ECOLI,
    IONOSPHERE,
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
    load_robot,
    load_segment,
    load_wine,
    load_yacht,
    load_yeast,
)

UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/"
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
    md5: tuple[str, ...] = ()


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
    download, path = DOWNLOADS[file], Path(folder) / file
    if path.is_file() and not again:
        return path
    contents = [_read(address) for address in download.addresses]
    for address, content, expected in zip(download.addresses, contents, download.md5, strict=False):
        found = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if found != expected:
            raise ValueError(
                f"{address} was not received whole: its MD5 sum is {found}, {expected} was expected. Try again."
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
    weights cos(1), cos(2), …. The third number is the entropy of the target's values.
    """
    values, codes = np.unique(np.asarray(bunch.target), return_inverse=True)
    data = np.asarray(bunch.data, dtype=np.float64).reshape(len(codes), -1)
    table = np.column_stack([data, codes if values.dtype.kind in "US" else bunch.target])
    mean, deviation = np.nanmean(table, 0), np.nanstd(table, 0)
    varies = deviation > 0
    weights = np.cos(np.arange(1, table.shape[1] + 1))[varies]
    standard = (table[:, varies] - mean[varies]) / deviation[varies]
    shares = np.bincount(codes) / len(codes)
    return (
        float(weights @ (mean[varies] / deviation[varies])),
        float(weights @ np.nanmean(standard**3, 0)),
        float(-(shares * np.log(shares)).sum()),
    )


def _read(address: str) -> bytes:
    try:
        with urllib.request.urlopen(address, timeout=SECONDS) as answer:
            return bytes(answer.read())
    except OSError as error:
        raise OSError(
            f"{address} could not be read: {error}. Check the connection, and try again."
        ) from error


def _table(
    header: str, *, delimiter: str | None = ",", names: Mapping[str, str] | None = None
) -> Callable[[list[bytes], Path], None]:
    """A converter of lines of values without a header; ``names`` replaces the values of the last column."""

    def convert(contents: list[bytes], path: Path) -> None:
        lines = contents[0].decode("latin-1").splitlines()
        rows = [[cell.strip() for cell in line.split(delimiter)] for line in lines if line.strip()]
        rows = [["" if cell == "?" else cell for cell in row] for row in rows]
        if names:
            rows = [[*row[:-1], names.get(row[-1], row[-1])] for row in rows]
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([header.split(","), *rows])

    return convert


def _wine(contents: list[bytes], path: Path) -> None:
    """The class stands first."""
    lines = [line.split(b",", 1) for line in contents[0].splitlines() if line.strip()]
    header = (
        "alcohol,malic_acid,ash,alcalinity_of_ash,magnesium,total_phenols,flavanoids,nonflavanoid_phenols,"
        "proanthocyanins,color_intensity,hue,od280_od315,proline,class"
    )
    _table(header)([b"\n".join(rest + b"," + label for label, rest in lines)], path)


def _mnist(contents: list[bytes], path: Path) -> None:
    """The four files of the original, in the IDX format."""
    arrays = []
    for content in contents:
        raw = gzip.decompress(content)
        shape = [int.from_bytes(raw[4 + 4 * k : 8 + 4 * k], "big") for k in range(raw[3])]
        arrays.append(np.frombuffer(raw, np.uint8, offset=4 + 4 * len(shape)).reshape(shape))
    names = ("X_train", "y_train", "X_test", "y_test")
    stream = io.BytesIO()
    np.savez_compressed(stream, **dict(zip(names, arrays, strict=True)))  # type: ignore[arg-type]
    path.write_bytes(stream.getvalue())


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
            _table("variance,skewness,curtosis,entropy,class"),
            load_banknote,
            (0.24964, -0.2626, 0.687),
        ),
        _uci(
            BUPA,
            "liver-disorders/bupa.data",
            _table("mcv,alkphos,sgpt,sgot,gammagt,drinks,selector"),
            load_bupa,
            (9.91778, -2.99134, 0.68039),
        ),
        _uci(
            CLEVELAND,
            "heart-disease/processed.cleveland.data",
            _table("age,sex,cp,trestbps,chol,fbs,restecg,thalach,exang,oldpeak,slope,ca,thal,num"),
            load_cleveland,
            (0.81705, 0.39277, 4.88397),
        ),
        _uci(
            ECOLI,
            "ecoli/ecoli.data",
            _table("sequence,mcg,gvh,lip,chg,aac,alm1,alm2,class", delimiter=None),
            load_ecoli,
            (-12.52884, -17.36466, 1.51712),
        ),
        _uci(
            IONOSPHERE,
            "ionosphere/ionosphere.data",
            _table(",".join(f"a{k:02d}" for k in range(1, 35)) + ",class"),
            load_ionosphere,
            (-0.41086, -0.21881, 0.65283),
        ),
        _uci(
            ROBOT,
            "00194/sensor_readings_24.data",
            _table(",".join(f"S{k}" for k in range(1, 25)) + ",class"),
            load_robot,
            (-1.00224, 1.34222, 1.18849),
        ),
        _uci(
            SEGMENT,
            "statlog/segment/segment.dat",
            _table(
                "region_centroid_col,region_centroid_row,region_pixel_count,short_line_density_5,short_line_density_2,"
                "vedge_mean,vedge_sd,hedge_mean,hedge_sd,intensity_mean,rawred_mean,rawblue_mean,rawgreen_mean,"
                "exred_mean,exblue_mean,exgreen_mean,value_mean,saturation_mean,hue_mean,class",
                delimiter=None,
                names={str(k): name for k, name in enumerate(SEGMENTS, 1)},
            ),
            load_segment,
            (1.72394, 1.5969, 1.94591),
        ),
        _uci(WINE, "wine/wine.data", _wine, load_wine, (3.3002, -0.81726, 1.08604)),
        _uci(
            YACHT,
            "00243/yacht_hydrodynamics.data",
            _table(
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
            _table("sequence,mcg,gvh,alm,mit,erl,pox,vac,nuc,class", delimiter=None),
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
            _mnist,
            load_mnist,
            (1.49109, -442.83793, 2.30116),
            md5=(
                "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "d53e105ee54ea40749a09fcbcd1e9432",
                "9fb629c4189551a2d022fa330f9573f3",
                "ec29112dd5afa0611ce80d1b7f02629c",
            ),
        ),
    )
}
