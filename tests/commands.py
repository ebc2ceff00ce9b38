"""Commands run inside the tests: what they print, and their exit status."""

from __future__ import annotations

import contextlib
import io
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Finished:
    """How a command ended."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        """All that was printed."""
        return self.stdout + self.stderr


def invoke(main: Callable[[Sequence[str]], int], *arguments: str) -> Finished:
    """Run a command; argparse leaves by SystemExit."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        try:
            status = main(arguments)
        except SystemExit as leaving:
            status = int(leaving.code or 0)
    return Finished(status, stdout.getvalue(), stderr.getvalue())


def interrupted_fit(*_: object) -> None:
    """What a fit does on Ctrl-C: it keeps its best point."""
    with contextlib.suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
