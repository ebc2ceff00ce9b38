"""A model file: a zip archive of a few members, each with its digest, written as a whole or not at all."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from representer.linalg.resources import available_bytes

# The members of a model file. The last one has the digests of the others, as `sha256sum -c SHA256SUMS` reads them.
ABOUT, STATE, ARRAYS, DIGESTS = "about.json", "state.json", "arrays.safetensors", "SHA256SUMS"
MEMBERS = (ABOUT, STATE, ARRAYS, DIGESTS)
DEFAULT_NAME = "model.representer"  # the name of a model file in a folder
AGAIN = "Fetch the file again, or save the model again."
# All members have the same date, so that the same model is the same file.
DATE = (1980, 1, 1, 0, 0, 0)
SMALL = 2**26  # bytes that are read without a check of the free memory


class ModelFileError(ValueError):
    """A model cannot be written to a file, or a file cannot be read as a model; the message says what to do."""


def model_path(path: str | os.PathLike[str]) -> Path:
    """The file of a model: the path itself, or the file inside of a folder."""
    folder = os.fspath(path).endswith(("/", os.sep)) or Path(path).is_dir()
    return Path(path) / DEFAULT_NAME if folder else Path(path)


def write_members(path: Path, members: Mapping[str, bytes], compress: bool | int) -> None:
    """Write the members and their digests; a reader sees the old or the new file, and nothing between them.

    Parameters
    ----------
    path : Path
        The file, whose folder is made if it is not there.
    members : mapping of names to bytes
        The members.
    compress : bool or int
        False stores the bytes as they are; True or a level from 1 to 9 compresses them (deflate).
    """
    if not isinstance(compress, bool) and compress not in range(10):
        raise ValueError(f"compress must be True, False or a level from 0 to 9; got {compress!r}.")
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    level = None if isinstance(compress, bool) else compress or None
    sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in members.items())

    def write(stream: BinaryIO) -> None:
        with zipfile.ZipFile(stream, "w") as archive:
            for name, data in {**members, DIGESTS: sums.encode()}.items():
                info = zipfile.ZipInfo(name, DATE)
                info.external_attr = 0o644 << 16
                archive.writestr(info, data, method, level)

    write_at_once(path, write)


def write_at_once(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Write a file beside its place, and move it there when all of it is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    """The permissions that new files of this process lack."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def read_members(path: Path, names: tuple[str, ...] = MEMBERS[:-1]) -> dict[str, bytes]:
    """Members of a model file, each checked against its digest."""
    try:
        with zipfile.ZipFile(path) as archive:
            _check_entries(archive, path)
            sums = _digests(archive.read(DIGESTS), path)
            members = {name: archive.read(name) for name in names}
    except ModelFileError:
        raise
    except FileNotFoundError:
        raise ModelFileError(f"There is no model file {str(path)!r}. Give the path that save was given.") from None
    except OSError as error:
        raise ModelFileError(f"{str(path)!r} cannot be read: {error}") from error
    except Exception as error:  # zipfile and zlib have a dozen errors for damaged bytes
        raise ModelFileError(f"{str(path)!r} is no model file, or a damaged one ({error}). {AGAIN}") from error
    for name, data in members.items():
        if hashlib.sha256(data).hexdigest() != sums[name]:
            raise ModelFileError(
                f"{name} in {str(path)!r} has changed since it was written: its digest is another. {AGAIN}"
            )
    return members


def _check_entries(archive: zipfile.ZipFile, path: Path) -> None:
    """Refuse unknown or repeated members, sizes beyond the memory, links and encryption."""
    entries = archive.infolist()
    if sorted(entry.filename for entry in entries) != sorted(MEMBERS):
        names = ", ".join(repr(entry.filename[:40]) for entry in entries[:6])
        raise ModelFileError(f"{str(path)!r} is no model file: it has {names}, and not {', '.join(MEMBERS)}. {AGAIN}")
    total = sum(entry.file_size for entry in entries)
    free = available_bytes()
    if total > SMALL and free is not None and total > free:
        raise ModelFileError(
            f"{str(path)!r} says that it holds {total / 1e9:.1f} GB; {free / 1e9:.1f} GB are free. Load it on a larger "
            "machine, or save a smaller model: model.compressed(tolerance)."
        )
    methods = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    for entry in entries:
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if entry.compress_type not in methods or entry.flag_bits & 1 or kind not in (0, stat.S_IFREG):
            raise ModelFileError(f"{entry.filename} in {str(path)!r} is stored as no model file stores it. {AGAIN}")


def _digests(text: bytes, path: Path) -> dict[str, str]:
    """The digests of the members by name."""
    lines = [line.split("  ") for line in text.decode("ascii").splitlines()]
    if sorted(line[-1] for line in lines) != sorted(MEMBERS[:-1]) or any(len(line) != 2 for line in lines):
        raise ModelFileError(f"{DIGESTS} in {str(path)!r} does not list the members. {AGAIN}")
    return {name: digest for digest, name in lines}
