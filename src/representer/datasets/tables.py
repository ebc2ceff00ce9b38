"""Tables in users' files, such as csv, parquet, feather, JSON lines and sdf, as frames of pandas."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

SEPARATORS = (",", ";", "\t", "|")
MOLECULE = "molecule"  # the column of an sdf file that holds its molecules
CODE = re.compile(r"\s*[+-]?0\d+\s*")  # digits with zeros in front are no numbers


class UnreadableTableError(ValueError):
    """A file cannot be read as a table; the message says why, and what to do."""


def read_table(path: str | Path, *, texts: Collection[str] = ()) -> pd.DataFrame:
    """Read a table from a file, whose suffix names its format.

    In csv files empty cells and words such as ``NA`` are gaps; a column whose cells are numbers is one of numbers,
    unless one of them has zeros in front, like a zip code; everything else is text. The separator is the most frequent
    one in the first line.

    Parameters
    ----------
    path : path
        A file ``.csv``, ``.tsv``, ``.txt``, ``.parquet``, ``.feather``, ``.jsonl``, ``.ndjson`` or ``.sdf``.
    texts : names
        The columns of a csv or sdf file that are text, even if they look like numbers.

    Returns
    -------
    frame : pandas.DataFrame
        At least one row. The molecules of an sdf file are a column ``"molecule"`` beside their properties.
    """
    path = Path(path)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise UnreadableTableError(f"{path} is of no known kind; the names of tables end with {', '.join(READERS)}.")
    if not path.is_file():
        raise UnreadableTableError(f"There is no file {path}.")
    if importlib.util.find_spec("pandas") is None:
        raise UnreadableTableError("Tables in files need pandas; install it with: pip install 'representer[cli]'.")
    try:
        frame = reader(path, texts)
    except UnreadableTableError:
        raise
    except (OSError, ValueError, TypeError) as error:  # the errors of pandas and pyarrow are of these classes
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise UnreadableTableError(f"{path} cannot be read as {path.suffix.lower()[1:]}: {reason}.") from error
    if not len(frame.columns) or not len(frame):
        raise UnreadableTableError(f"{path} has {len(frame)} rows and {len(frame.columns)} columns: there are no data.")
    twice = sorted({str(name) for name in frame.columns[frame.columns.duplicated()]})
    if twice:
        raise UnreadableTableError(f"{path} has several columns of the name {', '.join(map(repr, twice))}.")
    return frame


def _read_csv(path: Path, texts: Collection[str]) -> pd.DataFrame:
    import pandas as pd

    with path.open(encoding="utf-8-sig", errors="strict") as lines:
        head = re.sub(r'"[^"]*"', "", lines.readline())
    separator = max(SEPARATORS, key=head.count)
    # The header is read as a row like the others, because pandas would add numbers to equal names.
    cells = pd.read_csv(path, sep=separator, header=None, dtype=str, encoding="utf-8-sig", skipinitialspace=True)
    names = [f"column {j + 1}" if name != name else str(name).strip() for j, name in enumerate(cells.iloc[0])]
    frame = cells[1:].reset_index(drop=True).set_axis(names, axis=1)
    if frame.columns.duplicated().any():
        return frame
    return frame.apply(lambda column: column if column.name in texts else _as_numbers(column))


def _as_numbers(column: pd.Series[Any]) -> pd.Series[Any]:
    """The column as numbers if all of its texts are numbers and none of them is a code."""
    import pandas as pd

    if column.notna().any() and column.dropna().map(CODE.fullmatch).notna().any():
        return column
    try:
        return pd.to_numeric(column)
    except (ValueError, TypeError):
        return column


def _read_json_lines(path: Path, texts: Collection[str]) -> pd.DataFrame:
    import pandas as pd

    with path.open(encoding="utf-8-sig") as lines:
        rows = [json.loads(line) for line in lines if line.strip()]
    if not all(isinstance(row, dict) for row in rows):
        raise UnreadableTableError(f'{path} has lines that are no JSON objects, like {{"size": 1.5}}.')
    return pd.DataFrame(rows)


def _read_parquet(path: Path, texts: Collection[str]) -> pd.DataFrame:
    import pandas as pd

    _require("pyarrow", "Parquet files need pyarrow; install it with: pip install 'pandas[parquet]'.")
    return pd.read_parquet(path)


def _read_feather(path: Path, texts: Collection[str]) -> pd.DataFrame:
    import pandas as pd

    _require("pyarrow", "Feather files need pyarrow; install it with: pip install 'pandas[feather]'.")
    return pd.read_feather(path)


def _read_sdf(path: Path, texts: Collection[str]) -> pd.DataFrame:
    import pandas as pd

    _require("rdkit", "Files of molecules need RDKit; install it with: pip install 'representer[molecules]'.")
    from rdkit import Chem, rdBase

    with rdBase.BlockLogs():  # the error below takes the place of RDKit's log
        molecules = list(Chem.SDMolSupplier(str(path)))
    faulty = [i for i, molecule in enumerate(molecules) if molecule is None]
    if faulty:
        raise UnreadableTableError(
            f"{path}: RDKit cannot read molecule {faulty[0] + 1} of {len(molecules)} ({len(faulty)} in all). Correct "
            "or delete it."
        )
    properties = pd.DataFrame([{name: m.GetProp(name) for name in m.GetPropNames()} for m in molecules], dtype=str)
    frame = properties.apply(lambda column: column if column.name in texts else _as_numbers(column))
    frame.insert(0, MOLECULE, pd.Series(molecules, dtype=object))
    return frame


def _require(package: str, message: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise UnreadableTableError(message)


READERS: dict[str, Callable[[Path, Collection[str]], Any]] = {
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".txt": _read_csv,
    ".parquet": _read_parquet,
    ".feather": _read_feather,
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".sdf": _read_sdf,
}


def split_target(
    frame: pd.DataFrame, target: str, ignored: Collection[str] = ()
) -> tuple[pd.DataFrame, pd.Series[Any]]:
    """The features and the target of the rows whose target is not missing, without the ignored columns."""
    unknown = [name for name in (target, *ignored) if name not in frame.columns]
    if unknown:
        there = ", ".join(map(repr, frame.columns))
        raise UnreadableTableError(f"There is no column {unknown[0]!r}; there are: {there}.")
    if target in ignored:
        raise UnreadableTableError(f"{target!r} is the target, and ignored.")
    labelled = frame[frame[target].notna()].reset_index(drop=True)
    if not len(labelled):
        raise UnreadableTableError(f"All entries of {target!r} are missing.")
    features = labelled.drop(columns=[target, *ignored])
    if not len(features.columns):
        raise UnreadableTableError(f"There is no column beside {target!r} to predict it from.")
    return features, labelled[target]
