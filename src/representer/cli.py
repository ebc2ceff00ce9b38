"""The command ``representer``: fit a model to a file, predict with it, describe files, list and fetch data sets."""

# No `from __future__ import annotations`: typer reads annotations, and knows only what is imported here.
import json
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    import pandas as pd
    import typer

    from representer.comparison import Comparison
    from representer.datasets import Source

WIDTH = 150  # the width of tables without a terminal


def main() -> None:
    """Run the command ``representer``, or name the extra that it needs."""
    try:
        application = make_application()
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        sys.exit("The command needs typer; install it with: pip install 'representer[cli]'.")
    application()


def make_application() -> "typer.Typer":
    """The command ``representer`` with its subcommands."""
    import typer

    application = typer.Typer(
        help="Deep kernel machines for any data, with the scikit-learn interface.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    data = typer.Typer(help="Data sets: what there is, and where it comes from.", no_args_is_help=True)
    application.add_typer(data, name="data")

    as_json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]

    @application.callback(invoke_without_command=True)
    def root(
        show_version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
    ) -> None:
        if show_version:
            typer.echo(f"representer {version('representer')}")
            raise typer.Exit

    table_file = "A table: csv, tsv, parquet, feather, jsonl or sdf."
    model_file = "A folder that `fit` has written, or a file of `save`."

    @application.command("fit")
    def fit(
        data: Annotated[Path, typer.Argument(help=table_file)],
        target: Annotated[str, typer.Option(help="The column to predict from all others.")],
        out: Annotated[Path, typer.Option(help="The folder for the model.")],
        ignore: Annotated[
            list[str] | None, typer.Option(help="A column to leave out, such as numbers of rows.")
        ] = None,
        learner: Annotated[str | None, typer.Option(help="Default: by the target, numbers or classes.")] = None,
        budget: Annotated[
            str | None, typer.Option("--time", help="The time for all fits, such as 90s, 5m or 1h.")
        ] = None,
        folds: Annotated[int, typer.Option(min=2, help="Parts that are held out in turn.")] = 5,
        json_output: as_json = False,
    ) -> None:
        """Fit a model to a table, beside simple rivals on held-out rows, and save it."""
        raise typer.Exit(fit_table(data, target, ignore or [], out, learner, budget, folds, json_output))

    @application.command("predict")
    def predict(
        model: Annotated[Path, typer.Argument(help=model_file)],
        data: Annotated[Path, typer.Argument(help=table_file)],
        out: Annotated[Path | None, typer.Option(help="The csv file for predictions; printed by default.")] = None,
        interval: Annotated[
            float | None, typer.Option(help="The share of targets between the bounds, such as 0.9.")
        ] = None,
    ) -> None:
        """Predict the rows of a table with a model; columns are found by name."""
        raise typer.Exit(predict_table(model, data, out, interval))

    @application.command("report")
    def report(
        model: Annotated[Path, typer.Argument(help=model_file)],
        data: Annotated[
            Path | None, typer.Option(help=f"Rows that the fit has not seen, to judge it. {table_file}")
        ] = None,
        target: Annotated[str | None, typer.Option(help="Their column with what is to be predicted.")] = None,
        out: Annotated[Path, typer.Option(help="The page.")] = Path("report.html"),
    ) -> None:
        """Write what is known of a model to one HTML page."""
        raise typer.Exit(report_page(model, data, target, out))

    @application.command("describe")
    def describe(
        path: Annotated[Path, typer.Argument(help=f"{model_file} Or a table.")],
        target: Annotated[str | None, typer.Option(help="The target of a table, which columns explain.")] = None,
        json_output: as_json = False,
    ) -> None:
        """Print what a model file says about itself, or what the columns of a table are taken for."""
        raise typer.Exit(describe_file(path, target, console_for(json_output), json_output))

    @application.command("explore")
    def explore(
        model: Annotated[Path, typer.Argument(help=model_file)],
        data: Annotated[Path | None, typer.Option(help=f"Other samples than those of the fit. {table_file}")] = None,
        target: Annotated[str | None, typer.Option(help="The column of --data that holds targets.")] = None,
        shape: Annotated[
            str | None, typer.Option(help="The size of pictures, such as 28x28; squares are recognised.")
        ] = None,
        port: Annotated[int, typer.Option(min=0, max=65535, help="0: a free one.")] = 0,
        browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
        export: Annotated[
            Path | None, typer.Option(help="Write one file page.html that needs no server, and leave.")
        ] = None,
    ) -> None:
        """Explore a model in the browser: its map, its reasons, its kernel; for this machine only."""
        raise typer.Exit(explore_model(model, data, target, shape, port, browser, export))

    @data.command("list")
    def data_list(json_output: as_json = False) -> None:
        """List the data sets, and which of them are at hand."""
        raise typer.Exit(list_data(console_for(json_output), json_output))

    @data.command("fetch")
    def data_fetch(
        files: Annotated[
            list[str] | None, typer.Argument(help="Sets or files, as `data list` names them; all by default.")
        ] = None,
        folder: Annotated[
            Path | None, typer.Option(help="The folder; default: what REPRESENTER_DATA names, or your cache.")
        ] = None,
        json_output: as_json = False,
    ) -> None:
        """Download public sets that are not there yet, and check what is in them."""
        raise typer.Exit(fetch_data(files or [], folder, console_for(json_output), json_output))

    return application


def console_for(json_output: bool) -> Console:
    """The console of a subcommand, which keeps progress apart from JSON.

    Tables need a width, which a file or a pipe does not have.
    """
    console = Console(stderr=json_output)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDTH
    return console


def print_json(record: object) -> None:
    """Print a record as JSON on the standard output, for programs."""
    sys.stdout.write(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def answered(console: Console, question: Callable[[], None]) -> int:
    """Run a subcommand: the exit status is 0, or 1 with a printed reason if a file or its contents prevent it."""
    try:
        question()
    except (ValueError, TypeError, OSError) as error:
        console.print(str(error), style="red", markup=False, soft_wrap=True)
        return 1
    return 0


INTERRUPTED = 130  # the exit status after Ctrl-C


class Stopped(BaseException):
    """An interruption that no fit catches."""


@contextmanager
def stopped_by_interrupts() -> Iterator[None]:
    """A context that Ctrl-C ends: a fit would keep its best point, which would be taken for the result."""
    elsewhere = threading.current_thread() is not threading.main_thread()
    if elsewhere or signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        yield
        return

    def stop(*_: object) -> None:
        raise Stopped

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    except Stopped:
        raise KeyboardInterrupt from None
    finally:
        signal.signal(signal.SIGINT, before)


# -- fitting and predicting; each subcommand returns the exit status --------------------------------------------------
REPORT = "report.json"  # the report beside a model in its folder
CHECKPOINTS = "checkpoints"  # the folder of unfinished fits beside a model


class Steps:
    """The progress of work in steps of about the same length, with an estimate of the remaining time."""

    def __init__(self, console: Console, total: int) -> None:
        self.console, self.total, self.done, self.began = console, total, 0, time.perf_counter()

    def __call__(self, what: str) -> None:
        """Print that the next step begins."""
        left = ""
        if self.done:
            seconds = (time.perf_counter() - self.began) / self.done * (self.total - self.done)
            left = f", about {seconds:.0f} s left" if seconds < 100 else f", about {seconds / 60:.0f} min left"
        self.done += 1
        self.console.print(f"step {self.done} of {self.total}: {what}{left}", style="dim", markup=False)


def fit_table(
    data: Path,
    target: str,
    ignored: list[str],
    out: Path,
    learner: str | None,
    budget: str | None,
    folds: int,
    json_output: bool,
    every: float = 30.0,
) -> int:
    """Compare a learner with rivals on held-out rows, fit it to all of them, and write the model and a report."""
    console = console_for(json_output)
    notes: list[str] = []

    def work() -> None:
        from representer.comparison import compare, folds_for, learner_for
        from representer.datasets.files import writable_folder, write_whole
        from representer.datasets.tables import read_table, split_target
        from representer.kernels import suggest
        from representer.optimize import as_seconds
        from representer.persistence.checkpoints import resuming

        max_time = None if budget is None else as_seconds(budget) / (folds + 1)
        table = read_table(data)
        frame, y = split_target(table, target, ignored)
        model = learner_for(y, learner, max_time)
        suggestion = suggest(frame, y.to_numpy())
        _refuse_other_folders(out)
        is_new = not out.exists()
        writable_folder(out)  # before the work, not after it
        try:
            steps = Steps(console, folds_for(model, y, folds) + 2)
            task = (type(model).__name__, target, str(ignored), str(folds))
            with resuming(out / CHECKPOINTS, *task, data.read_bytes(), every=every):
                comparison = compare(model, frame, y, folds, steps)
                steps("fit to all rows")
                with noted(notes):
                    model.fit(frame, y.to_numpy())
            report = _report(data, target, len(table), len(y), model, comparison, suggestion, notes)
            (out / REPORT).unlink(missing_ok=True)  # an old report must not stand beside a new model
            model.save(out)
            write_whole(out / REPORT, json.dumps(report, indent=1, ensure_ascii=False) + "\n")
        except BaseException:
            if is_new and not any(out.iterdir()):
                out.rmdir()
            raise
        if json_output:
            print_json(report)
        else:
            _print_report(console, report, suggestion, out)

    try:
        with stopped_by_interrupts():
            return answered(console, work)
    except KeyboardInterrupt:
        resumable = f"What was computed is in {out / CHECKPOINTS}: the same command goes on from there."
        advice = resumable if (out / CHECKPOINTS).is_dir() else "The same command begins again."
        console.print(f"Interrupted: no model was written. {advice}", markup=False, soft_wrap=True)
        return INTERRUPTED


def _refuse_other_folders(out: Path) -> None:
    """Refuse to write a model into a folder that holds other files."""
    from representer.persistence.container import DEFAULT_NAME

    if out.is_file():
        raise ValueError(f"{out} is a file; --out is the folder for the model.")
    strange = (
        [path.name for path in out.iterdir() if path.name not in (DEFAULT_NAME, REPORT, CHECKPOINTS)]
        if out.is_dir()
        else []
    )
    if strange:
        raise ValueError(f"{out} holds other files, such as {strange[0]!r}. Give --out a folder that is empty or new.")


@contextmanager
def noted(notes: list[str]) -> Iterator[None]:
    """A context that gathers the texts of a learner's warnings, each once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        finally:
            texts = (str(entry.message) for entry in caught if issubclass(entry.category, UserWarning))
            notes += dict.fromkeys(texts)


def _print_notes(console: Console, notes: list[str]) -> None:
    for note in notes:
        console.print(f"Note: {note}", markup=False, soft_wrap=True)


def _report(
    data: Path,
    target: str,
    n_rows: int,
    n_known: int,
    model: Any,
    comparison: "Comparison",
    suggestion: Any,
    notes: Any,
) -> dict[str, Any]:
    """The results of a fit, as a record."""
    error, score = comparison.measures
    return {
        "data": data.name,
        "target": target,
        "rows": n_rows,
        "rows with a known target": n_known,
        "learner": type(model).__name__,
        "folds": len(next(iter(comparison.results.values()))),
        "held out": {name: {error: e, score: s} for name, (e, s) in comparison.means.items()},
        "columns": _column_records(suggestion),
        "error grows by, where a column is shuffled": comparison.mattered,
        "kernel": repr(model.kernel_) if hasattr(model, "kernel_") else None,
        "columns that rivals are not given": list(comparison.unseen),
        "notes": notes,
    }


def _column_records(suggestion: Any) -> list[dict[str, Any]]:
    """The findings about the columns of a table, as records."""
    return [
        {
            "column": str(finding.column),
            "taken for": finding.kind,
            "because": finding.why,
            "explains": finding.association,
        }
        for finding in suggestion.findings
    ]


def _print_report(console: Console, report: dict[str, Any], suggestion: object, out: Path) -> None:
    """Print the findings about columns, the errors for held-out rows, and the columns that mattered."""
    console.print(columns_table(suggestion))
    scores = Table("method", *report["held out"][report["learner"]], title=f"held-out rows, {report['folds']} folds")
    for name, values in report["held out"].items():
        scores.add_row(escape(name), *(f"{value:.4g}" for value in values.values()))
    console.print(scores)
    if unseen := report["columns that rivals are not given"]:
        why = "texts that are nearly all different, dates and objects, which they cannot use"
        console.print(f"The rivals are without {', '.join(unseen)}: {why}.", markup=False, soft_wrap=True)
    mattered = report["error grows by, where a column is shuffled"]
    if mattered:
        table = Table("column", "error grows by", title="what mattered: each column shuffled in held-out rows")
        for name, growth in mattered.items():
            table.add_row(escape(name), f"{growth:.1%}")
        console.print(table)
    _print_notes(console, report["notes"])
    unknown = report["rows"] - report["rows with a known target"]
    if unknown:
        console.print(f"{unknown} rows without a known {report['target']} were left out.", markup=False)
    console.print(f"The model is in {out}: representer predict {out} new.csv", markup=False, soft_wrap=True)


def columns_table(suggestion: Any) -> Table:
    """The findings about the columns of a table, with their reasons."""
    table = Table("column", "taken for", "because", "explains alone", title="columns")
    for finding in suggestion.findings:
        share = "" if finding.association is None else f"{finding.association:.0%}"
        kind = finding.kind if finding.part is not None else f"{finding.kind}: left out"
        table.add_row(escape(str(finding.column)), kind, escape(finding.why), share)
    return table


def predict_table(model: Path, data: Path, out: Path | None, interval: float | None) -> int:
    """Write the predictions of a model for the rows of a table."""
    console = Console(stderr=True)

    def work() -> None:
        from representer.datasets.files import write_whole
        from representer.datasets.tables import read_table
        from representer.estimators import load

        if out is not None and out.suffix.lower() != ".csv":
            raise ValueError(
                f"Predictions are written as csv; give --out a name that ends with .csv, not {out.name!r}."
            )
        if interval is not None and not 0.0 < interval < 1.0:
            raise ValueError(f"--interval is a share between 0 and 1, such as 0.9; got {interval}.")
        frame = read_table(data, texts=text_columns(model))
        notes: list[str] = []
        try:
            with noted(notes):
                learner = load(model)
                support = known_support(learner, frame)
                answers = predictions(learner, frame, interval, support).to_csv(index=False)
            if support is not None and (strange := int((support < learner.support_threshold_).sum())):
                notes.append(
                    f"{strange} of {len(frame)} rows are unlike the training data (support below "
                    f"{learner.support_threshold_:.2g}): do not trust their predictions; --interval adds their support."
                )
        finally:
            _print_notes(console, notes)
        if out is None:
            sys.stdout.write(answers)
        else:
            write_whole(out, answers)
            console.print(f"{len(frame)} predictions are in {out}.", markup=False, soft_wrap=True)

    return answered(console, work)


def text_columns(model: Path) -> list[str]:
    """The columns that were text when a model was fitted."""
    from representer.persistence import describe

    columns = describe(model)["fit"]["inputs"].get("columns", {})
    return [name for name, kind in columns.items() if kind in ("str", "object", "string", "category")]


def explore_model(
    model: Path, data: Path | None, target: str | None, shape: str | None, port: int, browser: bool, export: Path | None
) -> int:
    """Serve the page of a model, or write it to a file."""
    console = Console(stderr=True)

    def work() -> None:
        from representer.estimators import load
        from representer.explorer import Explorer, serve

        X, y = (None, None) if data is None else samples_in(data, model, target)
        try:
            explorer = Explorer(load(model), X, y, shape=None if shape is None else sides(shape))
            if export is None:
                serve(explorer, port=port, browser=browser)
            else:
                path = explorer.save(export)
                console.print(f"The page is in {path}.", markup=False, soft_wrap=True)
        except ModuleNotFoundError as error:
            raise ValueError(str(error)) from error

    return answered(console, work)


def samples_in(data: Path, model: Path, target: str | None) -> "tuple[Any, Any]":
    """The samples of a table, and their targets if a column is named here or by the report of the fit."""
    from representer.datasets.tables import read_table

    frame = read_table(data, texts=text_columns(model))
    if target is None and (reported := reported_target(model)) in frame.columns:
        target = reported
    if target is None:
        return frame, None
    if target not in frame.columns:
        raise ValueError(f"There is no column {target!r}; there are: {', '.join(map(repr, frame.columns))}.")
    return frame.drop(columns=[target]), frame[target].to_numpy()


def sides(shape: str) -> tuple[int, int]:
    """Height and width of pictures from a text such as 28x28."""
    numbers = shape.lower().split("x")
    if len(numbers) != 2 or not all(number.isdigit() and int(number) > 0 for number in numbers):
        raise ValueError(f"--shape is the height and the width of pictures, such as 28x28; got {shape!r}.")
    return int(numbers[0]), int(numbers[1])


def known_support(model: Any, frame: "pd.DataFrame") -> "pd.Series | None":
    """The support of each row by the training data; None if the model has none, or its kernel says little."""
    import pandas as pd

    doubts: list[str] = []
    try:
        with noted(doubts):
            support = pd.Series(model.support(frame))
    except (AttributeError, ValueError):
        return None
    return None if any("k(x, x)" in doubt for doubt in doubts) else support


def predictions(
    model: Any, frame: "pd.DataFrame", interval: float | None, support: "pd.Series | None" = None
) -> "pd.DataFrame":
    """The answers of a model: a prediction and its bounds, or a class, its probabilities and the classes in its set."""
    import pandas as pd

    support_column = {} if support is None or interval is None else {"support": support}
    if not hasattr(model, "classes_"):
        answers = {"prediction": model.predict(frame)}
        if interval is not None:
            answers["lower"], answers["upper"] = model.predict_interval(frame, interval).T
        return pd.DataFrame(answers | support_column)
    p = model.predict_proba(frame)
    answers = {"class": model.classes_[p.argmax(1)]}
    answers |= {f"probability of {label}": p[:, j] for j, label in enumerate(model.classes_)}
    answers |= support_column
    if interval is not None:
        inside = model.predict_set(frame, interval)
        answers["classes in the set"] = [" | ".join(map(str, model.classes_[row])) for row in inside]
    return pd.DataFrame(answers)


# -- describing -------------------------------------------------------------------------------------------------------
def report_page(model: Path, data: Path | None, target: str | None, out: Path) -> int:
    """Write the report of a model, with its scores on the rows of a table if one is given."""
    console = console_for(False)

    def work() -> None:
        from representer.datasets.tables import read_table, split_target
        from representer.estimators import load

        learner, X, y = load(model), None, None
        if data is not None:
            name = target or reported_target(model)
            if name is None:
                raise ValueError("--data needs --target, the column to predict: no report beside the model names it.")
            table = read_table(data)
            X, answers = split_target(table, name, [])
            present = [column for column in getattr(learner, "feature_names_in_", X.columns) if column in X.columns]
            X, y = X[present], answers.to_numpy()
        page = learner.report(X, y).save(out)
        console.print(f"{page} is the report.", markup=False)

    return answered(console, work)


def reported_target(model: Path) -> str | None:
    """The column that a model predicts, by the report of `fit` beside it; None if there is none."""
    report = model / REPORT
    return json.loads(report.read_text(encoding="utf-8")).get("target") if report.is_file() else None


def describe_file(path: Path, target: str | None, console: Console, json_output: bool) -> int:
    """Describe a table if the file has a suffix of tables, else a model."""
    from representer.datasets.tables import READERS

    if path.is_dir() or path.suffix.lower() not in READERS:
        return describe_model(path, console, json_output)
    return describe_table(path, target, console, json_output)


def describe_table(path: Path, target: str | None, console: Console, json_output: bool) -> int:
    """Print the findings about the columns of a table, and the suggested kernel."""

    def work() -> None:
        from representer.datasets.tables import read_table, split_target
        from representer.kernels import suggest

        frame = read_table(path)
        frame, y = (frame, None) if target is None else split_target(frame, target)
        suggestion = suggest(frame, None if y is None else y.to_numpy())
        if json_output:
            print_json(
                {"columns": _column_records(suggestion), "notes": suggestion.doubts, "kernel": repr(suggestion.kernel)}
            )
            return
        console.print(columns_table(suggestion))
        _print_notes(console, suggestion.doubts)
        console.print(f"kernel = {suggestion.kernel!r}", markup=False, soft_wrap=True)

    return answered(console, work)


def describe_model(model: Path, console: Console, json_output: bool) -> int:
    """Print the description in a model file; the exit status is 1 if it is no model file."""

    def work() -> None:
        from representer.persistence import describe

        about = describe(model)
        if json_output:
            print_json(about)
            return
        table = Table("what", "value", title=str(model), show_header=False)
        for name, value in about.items():
            for key, entry in value.items() if isinstance(value, dict) else [("", value)]:
                table.add_row(f"{name} {key}".rstrip(), escape(entry if isinstance(entry, str) else json.dumps(entry)))
        # A pipe gets whole values, such as fingerprints.
        wide = console if console.is_terminal else Console(file=console.file, width=max(console.width, WIDTH))
        wide.print(table)

    return answered(console, work)


# -- data sets --------------------------------------------------------------------------------------------------------
def list_data(console: Console, json_output: bool) -> int:
    """List every file that a loader reads, and whether it is there."""
    from representer import datasets
    from representer.datasets.files import data_folder

    rows = [
        {
            "file": s.file,
            "what": s.description,
            "origin": s.origin,
            "found": str(path) if (path := _path_of(s)) else None,
            "fetch": s.file in datasets.DOWNLOADS,
        }
        for s in datasets.sources()
    ]
    if json_output:
        print_json(rows)
        return 0
    table = Table("file", "what", "origin", "here", title=f"data sets in {data_folder()}")
    for row in rows:
        here = "yes" if row["found"] else "no; `data fetch` gets it" if row["fetch"] else "no"
        table.add_row(str(row["file"]), str(row["what"]), str(row["origin"]), here)
    console.print(table)
    return 0


def _path_of(source: "Source") -> Path | None:
    """The path of a set's file, or None if it is not there."""
    from representer.datasets.files import MissingDataError, find_file

    try:
        return find_file(source, None)
    except MissingDataError:
        return None


def fetch_data(files: list[str], folder: Path | None, console: Console, json_output: bool) -> int:
    """Download sets; the exit status is 1 if one failed, and 2 if nothing can be written to the folder."""
    from representer.datasets import DownloadError, fetch_all
    from representer.datasets.files import data_folder, writable_folder

    try:
        target = writable_folder(data_folder(folder))
    except OSError as error:
        console.print(str(error), style="red", markup=False)
        return 2
    errors: dict[str, str] = {}
    try:
        paths = fetch_all(files or None, target, console=console)
    except DownloadError as error:
        paths, errors = error.paths, error.failures
    if json_output:
        print_json({"found": {file: str(path) for file, path in paths.items()}, "failed": errors})
    else:
        for file, path in paths.items():
            console.print(f"{file}: {path}", markup=False, soft_wrap=True)
        for reason in errors.values():
            console.print(reason, style="red", markup=False, soft_wrap=True)
    return int(bool(errors))
