"""Tables in files: what is read from each kind, and what is said of files that cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from representer.datasets.tables import UnreadableTableError, read_table, split_target

pd = pytest.importorskip("pandas")


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_csv(tmp_path: Path, separator: str) -> None:
    lines = ["size,zip,colour,", "1.5,01234,red,yes", ',22222,"a, b",no', "3,33333,NA,yes"]
    text = "\n".join(lines).replace("a, b", "a# b").replace(",", separator).replace("#", ",")
    frame = read_table(written(tmp_path / "homes.csv", "\ufeff" + text))
    assert list(frame.columns) == ["size", "zip", "colour", "column 4"]
    assert frame["size"].tolist()[::2] == [1.5, 3.0] and frame["size"].isna().tolist() == [False, True, False]
    assert frame["zip"].tolist() == ["01234", "22222", "33333"]
    assert frame["colour"].tolist()[:2] == ["red", "a, b"] and frame["colour"].isna()[2]


def test_columns_that_were_texts_stay_texts(tmp_path: Path) -> None:
    path = written(tmp_path / "new.csv", "zip,size\n22222,1\n")
    assert read_table(path)["zip"].tolist() == [22222]
    assert read_table(path, texts=["zip"])["zip"].tolist() == ["22222"]


def test_other_kinds_hold_the_same_frame(tmp_path: Path) -> None:
    frame = pd.DataFrame({"size": [1.5, None], "zip": ["01234", "2"], "day": ["2020-01-01", "2020-01-02"]})
    frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    paths = [tmp_path / "a.jsonl"]
    if pytest.importorskip("pyarrow"):
        frame.to_parquet(tmp_path / "a.parquet")
        frame.to_feather(tmp_path / "a.feather")
        paths += [tmp_path / "a.parquet", tmp_path / "a.feather"]
    for path in paths:
        pd.testing.assert_frame_equal(read_table(path), frame, check_dtype=False)


def test_molecules(tmp_path: Path) -> None:
    Chem = pytest.importorskip("rdkit.Chem")
    writer = Chem.SDWriter(str(tmp_path / "a.sdf"))
    for smiles, value in [("CCO", "1.5"), ("c1ccccc1", "2")]:
        molecule = Chem.MolFromSmiles(smiles)
        molecule.SetProp("solubility", value)
        writer.write(molecule)
    writer.close()
    frame = read_table(tmp_path / "a.sdf")
    assert [Chem.MolToSmiles(own) for own in frame["molecule"]] == ["CCO", "c1ccccc1"]
    assert frame["solubility"].tolist() == [1.5, 2.0]
    written(tmp_path / "b.sdf", "no molecule\n\n\nat all\n$$$$\n" + (tmp_path / "a.sdf").read_text())
    with pytest.raises(UnreadableTableError, match="RDKit cannot read molecule 1 of 3"):
        read_table(tmp_path / "b.sdf")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.xyz", "", "is of no known kind; the names of tables end with .csv"),
        ("a.csv", "", "cannot be read as csv: No columns to parse from file"),
        ("a.csv", "x,y\n", "has 0 rows and 2 columns"),
        ("a.csv", "x,y\n1,2\n1,2,3\n", "cannot be read as csv: .*line 3"),
        ("a.csv", "x,x\n1,2\n", "several columns of the name 'x'"),
        ("a.jsonl", '{"x": 1}\n{"x": ', "cannot be read as jsonl"),
        ("a.jsonl", "[1]", "lines that are no JSON objects"),
        ("a.parquet", "no parquet", "cannot be read as parquet"),
        ("a.sdf", "", "cannot be read|has 0 rows"),
    ],
)
def test_unreadable_files_are_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(UnreadableTableError, match=message):
        read_table(written(tmp_path / name, text))


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(UnreadableTableError, match="There is no file"):
        read_table(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("package", "name", "advice"),
    [
        ("pandas", "a.csv", r"representer\[cli\]"),
        ("pyarrow", "a.parquet", r"pandas\[parquet\]"),
        ("rdkit", "a.sdf", r"representer\[molecules\]"),
    ],
)
def test_packages_that_are_not_installed_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, name: str, advice: str
) -> None:
    from representer.datasets import tables

    def find_spec(wanted: str) -> Any:
        return None if wanted == package else object()

    monkeypatch.setattr(tables.importlib.util, "find_spec", find_spec)
    with pytest.raises(UnreadableTableError, match=advice):
        read_table(written(tmp_path / name, "x\n1\n"))


def test_the_target_is_split_off() -> None:
    frame = pd.DataFrame({"x": [1, 2, 3], "y": [1.0, None, 2.0]})
    X, y = split_target(frame, "y")
    assert X["x"].tolist() == [1, 3] and y.tolist() == [1.0, 2.0] and list(X.columns) == ["x"]
    assert list(split_target(frame.assign(row=1), "y", ["row"])[0].columns) == ["x"]
    for target, ignored, message in [
        ("z", [], "There is no column 'z'; there are: 'x', 'y'"),
        ("y", ["z"], "There is no column 'z'"),
        ("y", ["y"], "'y' is the target, and ignored"),
    ]:
        with pytest.raises(UnreadableTableError, match=message):
            split_target(frame, target, ignored)
    with pytest.raises(UnreadableTableError, match="no column beside 'y'"):
        split_target(frame[["y"]], "y")
    with pytest.raises(UnreadableTableError, match="All entries of 'y' are missing"):
        split_target(frame.assign(y=None), "y")
