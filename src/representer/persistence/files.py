"""Fitted learners in files: written, described, and read back without running code from a file."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors import numpy as tensors

from representer.persistence.container import ABOUT, AGAIN, ARRAYS, STATE, ModelFileError, model_path, read_members
from representer.persistence.container import write_members as write_members
from representer.persistence.light import Compression, WithoutSystem
from representer.persistence.records import FitRecord
from representer.persistence.state import PACKAGE, Known, Reader, Writer, known, name_of

# The number of the format, which grows with changes of it; a reader knows all formats up to its own.
FORMAT = 1
DEPENDENCIES = ("numpy", "scipy", "scikit-learn", "torch", "safetensors", "rdkit", "networkx")


def write_model(
    model: Any,
    path: str | os.PathLike[str],
    *,
    learners: Iterable[type],
    record: FitRecord | None,
    compress: bool | int = False,
) -> Path:
    """Write a fitted learner to a file.

    Parameters
    ----------
    model : learner
        The fitted learner, whose whole state is written.
    path : path
        A file, or a folder for a file ``model.representer``.
    learners : classes
        The learners, which a reader knows beside the rest of the library.
    record : FitRecord or None
        The record of the fit.
    compress : bool or int
        Are the bytes compressed (deflate), and at which level from 1 to 9?

    Returns
    -------
    path : Path
        The file.
    """
    writer = Writer(known((*learners, FitRecord, Compression, WithoutSystem)))
    try:
        root = writer.value(model)
    except RecursionError:
        raise ModelFileError("The model is nested too deeply to be written.") from None
    state = {"root": root, "nodes": writer.nodes}
    about = {
        "format": FORMAT,
        "library": library_version(),
        "learner": name_of(type(model)),
        "parameters": {name: repr(value) for name, value in model.get_params(deep=False).items()},
        "random_state": repr(getattr(model, "random_state", None)),
        "python": platform.python_version(),
        "dependencies": installed(),
        "fit": None if record is None else vars(record),
        "trusted": sorted(writer.foreign),
    }
    members = {
        ABOUT: _text(about, indent=1),
        STATE: _text(state),
        ARRAYS: tensors.save(writer.arrays),
    }
    file = model_path(path)
    write_members(file, members, compress)
    return file


def _text(content: object, indent: int | None = None) -> bytes:
    return json.dumps(content, indent=indent, ensure_ascii=False, allow_nan=False).encode("utf-8", "surrogatepass")


def installed() -> dict[str, str]:
    """The versions of the dependencies that are installed."""
    versions = {}
    for package in DEPENDENCIES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def library_version() -> str:
    """The version of this library."""
    return version(PACKAGE)


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Describe a model file by what it says about itself: versions, inputs, the fit. Nothing else is read.

    Parameters
    ----------
    path : path
        A file that ``save`` has written, or its folder.

    Returns
    -------
    about : dict
        ``format``, ``library``, ``learner``, ``parameters``, ``python``, ``dependencies``, ``fit``, ``trusted``.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from representer import OperatorRidge
    >>> from representer.persistence import describe
    >>> X = np.arange(5.0)[:, None]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     OperatorRidge("rbf", alpha=0.1).fit(X, X[:, 0]).save(folder).name
    ...     describe(folder)["learner"]
    'model.representer'
    'representer.OperatorRidge'
    """
    file = model_path(path)
    return _about(read_members(file, (ABOUT,))[ABOUT], file)


def _about(text: bytes, file: Path) -> dict[str, Any]:
    about = _json(text, file)
    if not isinstance(about, dict) or type(about.get("format")) is not int:
        raise ModelFileError(f"{ABOUT} in {str(file)!r} names no format. {AGAIN}")
    return about


def _json(text: bytes, file: Path) -> Any:
    try:
        return json.loads(text.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{str(file)!r} is damaged ({error}). {AGAIN}") from error


def read_model(path: str | os.PathLike[str], *, learners: Iterable[type], trusted: Iterable[Any] = ()) -> Any:
    """Read a fitted learner from a file, which may construct classes of a closed list and of ``trusted`` only."""
    file = model_path(path)
    members = read_members(file)
    about = _about(members[ABOUT], file)
    if not 1 <= about["format"] <= FORMAT:
        writer = about.get("library")
        raise ModelFileError(
            f"{str(file)!r} has format {about['format']}; {PACKAGE} {library_version()} reads formats up to {FORMAT}. "
            f"Install the version that wrote it: pip install '{PACKAGE}>={writer}'."
        )
    names = known((*learners, FitRecord, Compression, WithoutSystem), trusted)
    model = _read_state(_json(members[STATE], file), members[ARRAYS], names, file)
    if name_of(type(model)) != about.get("learner") or not hasattr(model, "get_params"):
        raise ModelFileError(f"{str(file)!r} holds a {type(model).__name__} and says that it is another. {AGAIN}")
    return model


def _read_state(state: Any, arrays: bytes, names: Known, file: Path) -> Any:
    try:
        reader = Reader(state["nodes"], tensors.load(arrays), names)
        return reader.value(state["root"])
    except ModelFileError:
        raise
    except SafetensorError as error:
        raise ModelFileError(f"{ARRAYS} in {str(file)!r} is damaged ({error}). {AGAIN}") from error
    except ModuleNotFoundError as error:
        raise ModelFileError(
            f"{str(file)!r} needs {error.name}, which is not installed: pip install {error.name}."
        ) from error
    except Exception as error:  # a state that the library has not written may raise anything
        raise ModelFileError(f"The state in {str(file)!r} is none of a model ({error!r:.200}). {AGAIN}") from error
