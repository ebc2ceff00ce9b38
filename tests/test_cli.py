"""The command: every subcommand, its JSON, its exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import interrupted_fit

from representer import OperatorRidge, __version__, cli

typer_testing = pytest.importorskip("typer.testing")


def invoke(*arguments: str) -> Any:
    return typer_testing.CliRunner().invoke(cli.make_application(), list(arguments))


def test_version_and_help() -> None:
    assert invoke("--version").output.strip() == f"representer {__version__}"
    assert "data" in invoke("--help").output
    for name in ("list", "fetch"):
        assert name in invoke("data", "--help").output


def test_without_typer_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise ModuleNotFoundError("No module named 'typer'", name="typer")

    monkeypatch.setattr(cli, "make_application", absent)
    with pytest.raises(SystemExit, match=r"representer\[cli\]"):
        cli.main()


def test_describe_prints_what_a_model_file_says(tmp_path: Path) -> None:
    X = np.linspace(0, 1, 9)[:, None]
    path = OperatorRidge(alpha=0.1, random_state=3).fit(X, X[:, 0]).save(tmp_path)
    about = json.loads(invoke("describe", str(tmp_path), "--json").stdout)
    assert about["library"] == __version__ and about["fit"]["n_samples"] == 9
    printed = invoke("describe", str(path)).output
    assert about["fit"]["fingerprints"]["X"] in printed and "random_state" in printed
    path.write_bytes(path.read_bytes()[:100])
    refused = invoke("describe", str(path))
    assert refused.exit_code == 1 and "is no model file, or a damaged one" in refused.output


def test_explore_writes_a_page_and_refuses_in_words(tmp_path: Path) -> None:
    X = np.linspace(0, 1, 30).reshape(15, 2)
    frame = pytest.importorskip("pandas").DataFrame(X, columns=["a", "b"])
    model = OperatorRidge("rbf", alpha=0.1).fit(frame, X[:, 0])
    model.save(tmp_path)
    page = tmp_path / "page.html"
    done = invoke("explore", str(tmp_path), "--export", str(page))
    assert done.exit_code == 0 and "The page is in" in done.output
    assert '"total": 15' in page.read_text(encoding="utf-8")
    table = tmp_path / "new.csv"
    table.write_text("a,b,y\n" + "\n".join(f"{a},{b},{a}" for a, b in X[:12]), encoding="utf-8")
    with_data = ("explore", str(tmp_path), "--data", str(table), "--export", str(page))
    assert invoke(*with_data, "--target", "y").exit_code == 0
    assert '"total": 12' in page.read_text(encoding="utf-8") and '"error": {' in page.read_text(encoding="utf-8")
    for arguments, words in (
        ((*with_data, "--target", "z"), "There is no column 'z'"),
        (("explore", str(tmp_path), "--shape", "1x"), "such as 28x28"),
        (("explore", str(tmp_path), "--shape", "3x3", "--export", str(page)), "have 9 pixels, not 2"),
        (("explore", str(table)), "no model file"),
    ):
        refused = invoke(*arguments)
        assert refused.exit_code == 1 and words in " ".join(refused.output.split()), refused.output


def test_data_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRESENTER_DATA", str(tmp_path))
    (tmp_path / "yacht.csv").touch()
    rows = json.loads(invoke("data", "list", "--json").stdout)
    found, fetched = ({row["file"]: row[key] for row in rows} for key in ("found", "fetch"))
    assert fetched["mnist.npz"] and not fetched["isomap_faces.npz"]
    assert found["yacht.csv"] == str(tmp_path / "yacht.csv")
    assert found["mnist.npz"] is None
    assert "yacht.csv" in invoke("data", "list").output


# -- tables -----------------------------------------------------------------------------------------------------------
def homes(path: Path, n: int = 24) -> Path:
    rng, noise = np.random.default_rng(0), np.random.default_rng(1).normal(scale=5.0, size=n)
    lines = ["size,colour,zip,price,dear"]
    for i in range(n):
        size, colour = rng.normal(100, 30), ("red", "blue", "")[i % 3]
        price = size * (1 + (colour == "red")) + noise[i]  # a search without noise is a long one
        lines.append(f"{size:.1f},{colour},0{i % 2}111,{price:.1f},{'yes' if price > 120 else 'no'}")
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_help_imports_no_torch() -> None:
    code = (
        "import sys, representer.cli as c; c.make_application(); sys.exit(bool({'torch', 'sklearn'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_table_of_numbers_is_fitted_and_predicted(tmp_path: Path) -> None:
    data, model = homes(tmp_path / "homes.csv"), tmp_path / "model"
    options = ("--target", "price", "--ignore", "dear", "--folds", "2", "--time", "1h", "--out", str(model))
    fitted = invoke("fit", str(data), *options)
    assert fitted.exit_code == 0, fitted.output
    for words in ("size", "categories", "codes", "ridge on one-hot", "R²", "step 4 of 4: fit to all rows, about"):
        assert words in fitted.output
    report = json.loads((model / "report.json").read_text())
    assert report["learner"] == "OperatorRidge" and report["rows"] == 24 and report["folds"] == 2
    assert report["held out"]["OperatorRidge"]["RMSE"] < report["held out"]["mean"]["RMSE"]
    out = tmp_path / "predictions.csv"
    # columns in another order, one more of them, and a level that is new
    data.write_text("zip,extra,colour,size\n11111,1,green,90\n00111,2,red,90\n")
    done = invoke("predict", str(model), str(data), "--out", str(out), "--interval", "0.9")
    assert done.exit_code == 0, done.output
    header, *rows = [line.split(",") for line in out.read_text().splitlines()]
    assert header == ["prediction", "lower", "upper", "support"] and len(rows) == 2
    for prediction, lower, upper, support in (map(float, row) for row in rows):
        assert 0.0 <= support <= 1.0
        width = upper - lower  # CV+ is an interval around the fits without a fold, near the prediction
        assert width > 0 and lower - width < prediction < upper + width
    data.write_text("zip,size\n11111,90\n")
    refused = invoke("predict", str(model), str(data))
    assert refused.exit_code == 1 and "no column 'colour'" in refused.output
    data.write_text("zip,colour,size\n11111,red,large\n")
    refused = invoke("predict", str(model), str(data))
    assert "Note: No entry of column 'zip'" in refused.output
    assert refused.exit_code == 1 and "Column 'size': Row(s) 0 are no numbers" in refused.output


def test_an_interrupted_fit_writes_no_model_and_says_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, model = homes(tmp_path / "homes.csv"), tmp_path / "model"
    monkeypatch.setattr(OperatorRidge, "fit", interrupted_fit)
    stopped = invoke("fit", str(data), "--target", "price", "--folds", "2", "--out", str(model))
    assert stopped.exit_code == 130 and "Interrupted: no model was written" in stopped.output
    assert f"{model / 'checkpoints'}: the same command goes on" in stopped.output
    assert [path.name for path in model.iterdir()] == ["checkpoints"]


def test_a_table_of_classes_is_fitted_and_predicted(tmp_path: Path) -> None:
    data, model = homes(tmp_path / "homes.csv"), tmp_path / "model"
    arguments = (
        "fit",
        str(data),
        "--target",
        "dear",
        "--folds",
        "2",
        "--time",
        "0.000001",
        "--out",
        str(model),
        "--json",
    )
    report = json.loads(invoke(*arguments).stdout)
    assert report["learner"] == "EmbeddingClassifier" and "logistic regression on one-hot" in report["held out"]
    sets = invoke("predict", str(model), str(data), "--interval", "0.8").stdout.splitlines()
    assert sets[0].endswith("classes in the set") and sets[1].split(",")[0] in sets[1].split(",")[-1]
    lines = invoke("predict", str(model), str(data)).stdout.splitlines()
    assert lines[0] == "class,probability of no,probability of yes" and len(lines) == 25
    label, no, yes = lines[1].split(",")
    assert float(no) + float(yes) == pytest.approx(1.0) and label == ("yes" if float(yes) > float(no) else "no")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--target", "cost"), "There is no column 'cost'; there are: 'size', 'colour', 'zip', 'price', 'dear'"),
        (("--target", "price", "--ignore", "row"), "There is no column 'row'"),
        (("--target", "price", "--learner", "Ridge"), "There is no learner 'Ridge'"),
        (("--target", "dear", "--learner", "OperatorRidge"), "OperatorRidge predicts numbers"),
        (("--target", "price", "--time", "soon"), "max_time must be a positive number of seconds"),
        (("--target", "price", "--folds", "20"), "24 rows are too few for 20 folds"),
    ],
)
def test_fits_that_mean_nothing_write_nothing(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    data = homes(tmp_path / "homes.csv")
    refused = invoke("fit", str(data), *arguments, "--out", str(tmp_path / "model"))
    assert refused.exit_code == 1 and message in " ".join(refused.output.split())
    assert list(tmp_path.iterdir()) == [data]


def test_a_folder_with_other_files_is_not_written_to(tmp_path: Path) -> None:
    data = homes(tmp_path / "homes.csv")
    refused = invoke("fit", str(data), "--target", "price", "--out", str(tmp_path))
    assert refused.exit_code == 1 and "holds other files, such as 'homes.csv'" in refused.output


def test_rows_unlike_the_training_data_are_told(tmp_path: Path) -> None:
    X = np.linspace(0, 1, 30)[:, None]
    path = OperatorRidge("rbf", alpha=0.1).fit(X, X[:, 0]).save(tmp_path / "m.representer")
    data = tmp_path / "new.csv"
    data.write_text("a\n0.5\n90\n")
    plain = invoke("predict", str(path), str(data))
    assert "1 of 2 rows are unlike the training data" in " ".join(plain.stderr.split())
    assert plain.stdout.splitlines()[0] == "prediction"
    far = invoke("predict", str(path), str(data), "--interval", "0.8").stdout.splitlines()[-1]
    assert float(far.split(",")[-1]) < 0.01


def test_predictions_that_cannot_be_made_write_nothing(tmp_path: Path) -> None:
    data, X = homes(tmp_path / "homes.csv"), np.linspace(0, 1, 9)[:, None]
    path = OperatorRidge(alpha=0.1).fit(X, X[:, 0]).save(tmp_path / "m.representer")
    for model, more, message in [
        (tmp_path / "none", (), "There is no model file"),
        (path, ("--out", str(tmp_path / "a.xls")), "Predictions are written as csv"),
        (path, ("--interval", "90"), "--interval is a share between 0 and 1"),
    ]:
        refused = invoke("predict", str(model), str(data), *more)
        assert refused.exit_code == 1 and message in " ".join(refused.output.split())
    assert sorted(own.name for own in tmp_path.iterdir()) == ["homes.csv", "m.representer"]


def test_describe_says_what_the_columns_of_a_table_are_taken_for(tmp_path: Path) -> None:
    data = homes(tmp_path / "homes.csv")
    about = json.loads(invoke("describe", str(data), "--target", "price", "--json").stdout)
    kinds = {row["column"]: row["taken for"] for row in about["columns"]}
    assert kinds == {"size": "numbers", "colour": "categories", "zip": "categories", "dear": "categories"}
    assert about["kernel"].startswith("Stack(kernels=[Table(") and about["columns"][0]["explains"] > 0
    printed = invoke("describe", str(data)).output
    assert "digits with zeros in front: codes" in printed and "kernel = Stack(" in printed
    refused = invoke("describe", str(tmp_path / "none.csv"))
    assert refused.exit_code == 1 and "There is no file" in refused.output


def test_a_report_is_written_from_the_command_line(tmp_path: Path) -> None:
    """Of a model that `fit` has written, judged on rows that it has not seen; the target is that of the fit."""
    import pandas as pd

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"<a>": rng.normal(size=40), "b": rng.normal(size=40)})
    frame["y"] = np.sin(frame["<a>"]) + 0.1 * rng.normal(size=40)
    frame[:30].to_csv(tmp_path / "train.csv", index=False)
    frame[30:].to_csv(tmp_path / "new.csv", index=False)
    model, page = tmp_path / "model", tmp_path / "page.html"
    fitted = invoke("fit", str(tmp_path / "train.csv"), "--target", "y", "--out", str(model), "--folds", "2")
    assert fitted.exit_code == 0, fitted.output
    written = invoke("report", str(model), "--data", str(tmp_path / "new.csv"), "--out", str(page))
    assert written.exit_code == 0, written.output
    html = page.read_text()
    for words in ("score on test data", "Time, memory, warnings", "place of alpha", "&lt;a&gt;"):
        assert words in html
    assert "<a>" not in html
    assert invoke("report", str(model), "--out", str(page)).exit_code == 0
    (model / "report.json").unlink()
    refused = invoke("report", str(model), "--data", str(tmp_path / "new.csv"), "--out", str(page))
    assert refused.exit_code == 1 and "--data needs --target" in refused.output.replace("\n", " ")
