"""Experiments side by side: processes that are given one experiment after the other.

A process writes the file of its experiment part by part (``Results``), so that what was finished survives whatever
happens to it. One that dies takes its experiment with it and nothing else.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from papers.display import Display
from papers.results import Results
from papers.runner import Experiment, run_experiment
from representer.cli import Stopped

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
PATIENCE = 10.0  # seconds that processes are given to leave


def run_side_by_side(
    names: Sequence[str],
    jobs: int,
    find: Callable[[], Sequence[Experiment]],
    results: Results,
    display: Display,
) -> None:
    """Run experiments in processes; their outcomes are in ``results`` afterwards, also after an interruption.

    Parameters
    ----------
    names : sequence of str
        The experiments, those that take longest first.
    jobs : int
        How many processes, each with one thread.
    find : callable
        Returns the experiments that there are; a function of a module.
    results : Results
        What was measured before, and where to write.
    display : Display
        Told what is being done.
    """
    waiting = list(reversed(names))
    options = (find, results.folder, results.quick, results.data)
    workers: dict[Connection, Worker] = {}
    try:
        while waiting or workers:
            while waiting and len(workers) < jobs:
                worker = Worker(options)
                workers[worker.connection] = worker
                worker.begin(waiting.pop(), display)
            for connection in wait(list(workers), timeout=1.0):
                worker = workers[connection]  # type: ignore[index]
                message = worker.receive()
                if message is not None and message[0] == "say":
                    display.say(worker.name, message[1])
                    continue
                _close(worker, message, results)
                display.ended(worker.name)
                if message is not None and waiting:
                    worker.begin(waiting.pop(), display)
                else:
                    del workers[worker.connection]
                    worker.leave()
            display.tick()
    finally:  # an interruption, or nothing is left
        for worker in workers.values():
            worker.process.terminate()
        for worker in workers.values():
            worker.leave()
            results.load(worker.name)


def _close(worker: Worker, message: tuple[str, str] | None, results: Results) -> None:
    """Read what the process has measured; if it has died, say so."""
    outcome = results.load(worker.name)
    if message is None:
        worker.process.join(PATIENCE)
        message = "failed", f"Its process ended with exit code {worker.process.exitcode} (-9: memory may be short)."
    if message[0] == "failed":
        outcome.status, outcome.reason, outcome.claims = "failed", message[1], []
        results.save(worker.name)


class Worker:
    """A process, the connection to it, and the experiment that it has."""

    def __init__(self, options: tuple[Any, ...]):
        context = multiprocessing.get_context("spawn")  # threads of torch do not survive a fork
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, *options))
        self.name = ""
        with _one_thread():
            self.process.start()
        theirs.close()

    def begin(self, name: str, display: Display) -> None:
        """Give it an experiment."""
        self.name = name
        display.started(name)
        with suppress(OSError):  # it has died; receive() will tell
            self.connection.send(name)

    def receive(self) -> tuple[str, str] | None:
        """What it says, or None if it has died."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            return None

    def leave(self) -> None:
        """Let it go; kill it if it does not."""
        self.connection.close()
        self.process.join(PATIENCE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Processes that are started here use one thread each: they share the cores already."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _serve(
    connection: Connection,
    find: Callable[[], Sequence[Experiment]],
    folder: Path,
    quick: bool,
    data: Path | None,
) -> None:
    """Run experiments until the other side closes the connection, or ends us by SIGTERM.

    Ctrl-C in a terminal goes to all processes of its group: we wait for what the first of them makes of it.
    """

    def stop(*_: Any) -> None:
        raise Stopped

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, stop)

    def say(text: str) -> None:
        try:
            connection.send(("say", text))
        except OSError:  # nobody is there any more
            raise Stopped from None

    try:
        experiments = {experiment.name: experiment for experiment in find()}
        while True:
            experiment = experiments[connection.recv()]
            try:
                run_experiment(experiment, Results(folder, quick=quick, data=data), say)
            except (OSError, ValueError) as error:  # nothing can be written to the folder, or it holds another run
                connection.send(("failed", str(error)))
            else:
                connection.send(("ended", experiment.name))
    except (EOFError, OSError, Stopped):
        return
