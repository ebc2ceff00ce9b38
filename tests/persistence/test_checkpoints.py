"""Fits that are killed and begin again: they end where they would have ended, and compute nothing twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from tiers import tiers

import representer
from representer import (
    Checkpoint,
    ConditionalMeanEmbedding,
    DeepKernelClassifier,
    DeepKernelPCA,
    DeepKernelRegressor,
    EmbeddingClassifier,
    KernelAutoencoder,
    OperatorRidge,
    StructuredPredictor,
    cli,
)
from representer.approximation import Landmarks, Nystroem
from representer.kernels import Gaussian
from representer.optimize import lbfgs, with_gradient
from representer.persistence import ModelFileError
from representer.persistence.checkpoints import FileJournal, identity, read_record
from representer.persistence.state import known
from representer.samples import Block, InMemory, close_journal, on_dask, open_journal

rng = np.random.default_rng(0)
X = rng.normal(size=(26, 2))
y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=26)

QUICKLY = {"max_iter": 3, "n_restarts": 2}
LEARNERS = {
    "ridge": OperatorRidge(Gaussian("ard")),
    "deep": DeepKernelRegressor([1], **QUICKLY),
    "three layers": DeepKernelRegressor([2, 1], criterion="validation", max_iter=2, n_restarts=1),
    "huber": DeepKernelRegressor([1], loss="huber", cv=2, **QUICKLY),
    "classifier": DeepKernelClassifier([1], cv=2, **QUICKLY),
    "autoencoder": KernelAutoencoder(1, **QUICKLY),
    "classes": EmbeddingClassifier(Gaussian("ard"), max_iter=5),
    "batches": EmbeddingClassifier(Gaussian("auto"), solver="adam", batch_size=20, max_iter=3),
    "structured": StructuredPredictor(Gaussian("auto"), Gaussian("auto"), max_iter=5),
    "conditional": ConditionalMeanEmbedding(Gaussian("auto"), max_iter=5),
    "levels": DeepKernelPCA([3, 2], Gaussian("median"), eta=[1.0, 0.2]),
    "levels by Newton": DeepKernelPCA([2, 2], Gaussian("median"), solver="riemannian"),
    "sums": OperatorRidge(Gaussian("auto"), approximation=Nystroem(10)),
}
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


class Killed(BaseException):
    """What ends a fit as a crash would, without a chance to keep anything."""


class Crash:
    """Raises after some iterations."""

    def __init__(self, after: int) -> None:
        self.after = after

    def setup(self, estimator, context): ...
    def teardown(self, estimator, context): ...
    def on_fit_task_begin(self, estimator, context): ...
    def on_fit_task_end(self, estimator, context):
        self.after -= 1
        if self.after == 0:
            raise Killed
        return False


def answer(model) -> np.ndarray:
    return model.predict(X) if hasattr(model, "predict") else model.transform(X)


def labels(name: str) -> np.ndarray:
    return (y > 0).astype(int) if name in ("batches", "classes", "classifier") else y


LONG = ("three layers", "huber", "deep", "classifier", "levels by Newton")


@pytest.mark.parametrize("name", tiers(list(LEARNERS), lambda name: name not in LONG))
def test_a_fit_goes_on_where_it_was_killed(name: str, tmp_path: Path, monkeypatch) -> None:
    """At any question: the answers before are those of the file, and the model is the same to the last digits."""
    model = clone(LEARNERS[name]).set_params(random_state=0)
    asked, ask = [], FileJournal.answer
    limit = np.inf

    def asked_or_killed(journal, question, compute):
        def computed():
            asked.append(question)
            if len(asked) > limit:
                raise Killed
            return compute()

        return ask(journal, question, computed)

    monkeypatch.setattr(FileJournal, "answer", asked_or_killed)
    monkeypatch.setattr(os, "fsync", lambda _: None)  # this process lives on, and so does what it has written
    checkpoint = Checkpoint(tmp_path, every=1e-9)
    expected = clone(model).set_callbacks(checkpoint).fit(X, labels(name))
    np.testing.assert_allclose(answer(expected), answer(clone(model).fit(X, labels(name))), rtol=1e-12)
    n_questions = len(asked)
    assert n_questions > 3 and not list(tmp_path.glob("*.journal"))
    for questions in (1, n_questions // 3, n_questions // 3):
        asked.clear()
        limit = questions
        with pytest.raises(Killed):
            clone(model).set_callbacks(checkpoint).fit(X, labels(name))
    limit = np.inf
    asked.clear()
    resumed = clone(model).set_callbacks(checkpoint).fit(X, labels(name))
    assert len(asked) < n_questions
    np.testing.assert_allclose(answer(resumed), answer(expected), rtol=1e-8, atol=1e-10)


def test_a_fit_without_a_seed_goes_on_with_the_one_it_had(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path, every=1e-9)
    model = DeepKernelRegressor([2], max_iter=4, n_restarts=2)
    seeds = []
    for crash in (Crash(1), Crash(2)):
        with pytest.raises(Killed):
            clone(model).set_callbacks(checkpoint, crash).fit(X, y)
        (path,) = tmp_path.glob("*.journal")
        with open(path, "rb") as file:
            seeds.append(read_record(file, known()))
    assert seeds[0] == seeds[1] and seeds[0][0] == "a seed"


def test_answers_are_read_and_not_computed_again(tmp_path: Path) -> None:
    calls = []

    def function(points):
        calls.append(len(points))
        return ((points - 3.0) ** 4).sum(-1)

    def run(stop):
        journal = FileJournal(tmp_path / "search.journal", 0.0)
        token = open_journal(journal)
        try:
            return lbfgs(with_gradient(function), torch.zeros(3, 2).double(), callback=lambda e: e.iteration == stop)
        finally:
            close_journal(token)
            journal.close()

    run(4)
    first = len(calls)
    result = run(8)
    both = len(calls)
    calls.clear()
    alone = lbfgs(with_gradient(function), torch.zeros(3, 2).double(), callback=lambda e: e.iteration == 8)
    assert both == len(calls) > first and torch.equal(result.point, alone.point)


class Count:
    """A step that adds up, and can be killed."""

    bytes_per_row = 2**20

    def __init__(self, limit: float = np.inf) -> None:
        self.limit, self.calls = limit, 0

    def __call__(self, block, total):
        self.calls += 1
        if self.calls > self.limit:
            raise Killed
        return block.X.sum(0) if total is None else total + block.X.sum(0)


def test_a_sum_goes_on_at_its_next_block(tmp_path: Path) -> None:
    samples = InMemory(Block(torch.from_numpy(rng.normal(size=(50, 3))), torch.zeros(50, 1)))
    expected = samples.total(Count(), limit=2**22)

    def run(step):
        journal = FileJournal(tmp_path / "sum.journal", 0.0)
        token = open_journal(journal)
        try:
            return samples.total(step, limit=2**22)
        finally:
            close_journal(token)
            journal.close()

    with pytest.raises(Killed):
        run(Count(5))
    last = Count()
    assert torch.equal(run(last), expected) and last.calls == 13 - 5
    again = Count()
    assert torch.equal(run(again), expected) and again.calls == 0


def test_a_sum_on_dask_goes_on_at_its_next_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    da = pytest.importorskip("dask.array")
    monkeypatch.setattr(on_dask, "RESUMED_CHUNKS", 3)
    data = rng.normal(size=(60, 2))
    target = np.sin(data[:, 0])
    model = OperatorRidge(Gaussian(1.0), alpha=1e-3, approximation=Landmarks(data[:15]), random_state=0)
    chunks, targets = da.from_array(data, chunks=(5, -1)), da.from_array(target, chunks=5)
    expected = clone(model).fit(chunks, targets).predict(data)
    checkpoint, keep = Checkpoint(tmp_path, every=1e-9), FileJournal.keep_sum
    kept = []

    def kept_or_killed(journal, question, n_terms, value):
        keep(journal, question, n_terms, value)
        kept.append(n_terms)
        if len(kept) in (2, 3):
            raise Killed

    monkeypatch.setattr(FileJournal, "keep_sum", kept_or_killed)
    for _ in range(2):
        with pytest.raises(Killed):
            clone(model).set_callbacks(checkpoint).fit(chunks, targets)
    resumed = clone(model).set_callbacks(checkpoint).fit(chunks, targets)
    assert kept[:4] == [1, 2, 3, 4]
    np.testing.assert_allclose(resumed.predict(data), expected, rtol=1e-10)


def test_other_data_on_dask_are_other_fits() -> None:
    da, dd = pytest.importorskip("dask.array"), pytest.importorskip("dask.dataframe")
    import pandas as pd

    model, data = OperatorRidge(), np.arange(600.0).reshape(300, 2)
    changed = data.copy()
    changed[-1, 0] += 1.0  # in the last chunk

    def told(X):
        return identity(model, X, None, {})

    arrays = [da.from_array(data, chunks=(c, -1)) for c in (100, 100, 150)] + [da.from_array(changed, chunks=(100, -1))]
    assert told(arrays[0]) == told(arrays[1]) and len({told(array) for array in arrays}) == 3
    frames = [pd.DataFrame(data, columns=list(names)) for names in ("ab", "ab", "ac")] + [pd.DataFrame(changed)]
    frames = [dd.from_pandas(frame, npartitions=3) for frame in frames]
    assert told(frames[0]) == told(frames[1]) and len({told(frame) for frame in frames}) == 3


@pytest.mark.slow
def test_a_fit_from_the_command_line_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "table.csv"
    np.savetxt(table, np.column_stack([X, y]), delimiter=",", header="a,b,y", comments="")
    asked, ask, limit = [], FileJournal.answer, np.inf

    def asked_or_killed(journal, question, compute):
        def computed():
            asked.append(question)
            if len(asked) > limit:
                raise Killed
            return compute()

        return ask(journal, question, computed)

    def fit(out: str) -> int:
        asked.clear()
        return cli.fit_table(table, "y", [], tmp_path / out, "OperatorRidge", None, 2, True, every=1e-9)

    monkeypatch.setattr(FileJournal, "answer", asked_or_killed)
    assert fit("alone") == 0
    n_questions = len(asked)
    assert n_questions > 10
    limit = n_questions // 3
    for _ in range(2):
        with pytest.raises(Killed):
            fit("killed")
    assert [path.name for path in (tmp_path / "killed").iterdir()] == ["checkpoints"]
    limit = np.inf
    assert fit("killed") == 0 and len(asked) <= n_questions - 2 * (n_questions // 3)
    assert {path.name for path in (tmp_path / "killed").iterdir()} == {"model.representer", "report.json"}
    one, two = (representer.load(tmp_path / name) for name in ("alone", "killed"))
    frame = two._training_samples.X
    np.testing.assert_allclose(one.predict(frame), two.predict(frame), rtol=1e-10)


def test_a_torn_file_is_read_up_to_the_tear(tmp_path: Path) -> None:
    path = tmp_path / "torn.journal"
    journal = FileJournal(path, 0.0)
    for i in range(4):
        assert journal.answer(f"question {i}", lambda i=i: np.arange(i))[-1:].tolist() == [i - 1][: bool(i)]
    journal.close()
    whole = path.read_bytes()
    for end in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:end])
        journal, asked = FileJournal(path, 0.0), []
        for i in range(4):
            value = journal.answer(f"question {i}", lambda i=i, asked=asked: (asked.append(i), np.arange(i))[1])
            np.testing.assert_array_equal(value, np.arange(i))
        journal.close()
        assert asked == list(range(4 - len(asked), 4)) and asked
        assert path.read_bytes() == whole


def test_other_data_and_arguments_are_other_fits(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path, every=1e-9)
    for model, data, target in [
        (LEARNERS["ridge"], X, y),
        (LEARNERS["ridge"], X + 1, y),
        (LEARNERS["ridge"], X, y + 1),
        (clone(LEARNERS["ridge"]).set_params(tol=1e-3), X, y),
    ]:
        with pytest.raises(Killed):
            clone(model).set_callbacks(checkpoint, Crash(2)).fit(data, target)
    with pytest.raises(Killed):
        clone(LEARNERS["ridge"]).set_callbacks(checkpoint, Crash(2)).fit(X, y, sample_weight=np.arange(26.0))
    assert len(list(tmp_path.glob("*.journal"))) == 5
    with pytest.raises(Killed):
        clone(LEARNERS["ridge"]).set_params(verbose=0).set_callbacks(checkpoint, Crash(2)).fit(X.copy(), y)
    assert len(list(tmp_path.glob("*.journal"))) == 5


def test_a_grid_search_keeps_checkpoints_of_its_fits(tmp_path: Path) -> None:
    model = OperatorRidge(Gaussian("auto"), random_state=0).set_callbacks(Checkpoint(tmp_path))
    search = GridSearchCV(model, {"alpha": [0.1, 1.0]}, cv=2).fit(X, y)
    assert search.best_params_ and not list(tmp_path.glob("*.journal"))


def test_two_fits_do_not_write_to_one_file(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "one.journal", 1.0)
    with pytest.raises(ModelFileError, match="Another fit"):
        FileJournal(tmp_path / "one.journal", 1.0)
    journal.close()
    with pytest.raises(ValueError, match=r"max_time|every"):
        Checkpoint(tmp_path, every="soon")


FIT = """
import os, signal, sys
import numpy as np
from representer import Checkpoint, DeepKernelRegressor, OperatorRidge
from representer.approximation import Landmarks
from representer.kernels import Gaussian
import warnings
warnings.simplefilter("ignore")
folder, kind, last, on_dask = sys.argv[1], sys.argv[2], int(sys.argv[3]), len(sys.argv) > 4
rng = np.random.default_rng(0)
if kind in ("deep", "short"):
    X = rng.normal(size=(150 if kind == "deep" else 50, 3))
    model = DeepKernelRegressor([2], max_iter=40 if kind == "deep" else 8, n_restarts=3, random_state=0)
else:
    X = rng.normal(size=(int(kind), 5))
    model = OperatorRidge(Gaussian(1.0), alpha=1e-3, approximation=Landmarks(X[:200]), random_state=0)
y = np.sin(X[:, 0])
if on_dask:
    import dask.array as da
    data, target = da.from_array(X, chunks=(len(X) // 200, -1)), da.from_array(y, chunks=len(X) // 200)
else:
    data, target = X, y

class Kill:
    def setup(self, estimator, context): ...
    def teardown(self, estimator, context): ...
    def on_fit_task_begin(self, estimator, context): ...
    def on_fit_task_end(self, estimator, context):
        if last and context.task_id == last:
            os.kill(os.getpid(), signal.SIGKILL)

print("ready", flush=True)
model.set_callbacks(Checkpoint(folder, every=1e-9 if last else 0.02), Kill()).fit(data, target)
np.save(folder + "/whole.npy", model.predict(X[:50]))
os.replace(folder + "/whole.npy", folder + "/answer.npy")
"""


def killed_fits(folder: Path, kind: str, n_kills: int, *dask: str) -> tuple[np.ndarray, int]:
    """What the fit answers that was killed at random moments, and how often it was."""
    moments, kills = np.random.default_rng(1), 0
    while True:
        command = [sys.executable, "-c", FIT, str(folder), kind, "0", *dask]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        if kills < n_kills:
            time.sleep(moments.uniform(0.0, 2.0))
            os.kill(process.pid, signal.SIGKILL)
            kills += process.wait() == -signal.SIGKILL
        else:
            assert process.wait() == 0
        process.stdout.close()
        if (folder / "answer.npy").exists():
            return np.load(folder / "answer.npy"), kills


@pytest.mark.slow
def test_a_fit_that_is_killed_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "alone").mkdir()
    monkeypatch.setattr(sys, "argv", ["fit", str(tmp_path / "alone"), "short", "0"])
    exec(FIT, {})
    (tmp_path / "killed").mkdir()
    for last, status in ((3, -signal.SIGKILL), (6, -signal.SIGKILL), (0, 0)):
        command = [sys.executable, "-c", FIT, str(tmp_path / "killed"), "short", str(last)]
        assert subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == status
    expected, found = (np.load(tmp_path / name / "answer.npy") for name in ("alone", "killed"))
    np.testing.assert_allclose(found, expected, rtol=1e-8)
    assert [path.name for path in (tmp_path / "killed").iterdir()] == ["answer.npy"]


# So many kills fit into continuous integration; fifty of each kind take a quarter of an hour.
KILLS = 10


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "dask"), [("deep", ()), ("1000000", ()), ("100000", ("dask",))])
def test_fits_that_are_killed_many_times_resume(kind: str, dask: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "alone").mkdir()
    expected, _ = killed_fits(tmp_path / "alone", kind, 0, *dask)
    kills, rounds = 0, 0
    while kills < KILLS:
        (tmp_path / str(rounds)).mkdir()
        found, more = killed_fits(tmp_path / str(rounds), kind, KILLS - kills, *dask)
        kills, rounds = kills + max(more, 1), rounds + 1
        np.testing.assert_allclose(found, expected, rtol=1e-10 if kind != "deep" else 1e-8)
