"""What a run shows while it runs: what is being done, how far it is, and the time that is left."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from papers.clock import Clock, in_words
from papers.results import Results


class Display:
    """A bar that leaves no trace, and a line for each experiment that has ended.

    Parameters
    ----------
    console : rich.console.Console
        Where.
    clock : Clock
        Knows what is left.
    results : Results
        What came out.
    """

    def __init__(self, console: Console, clock: Clock, results: Results):
        self.console = console
        self.clock = clock
        self.results = results
        self._doing: dict[str, str] = {}
        self._ended = 0
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}"))
        self._progress = Progress(*columns, TimeElapsedColumn(), console=console, transient=True)
        self._bar = self._progress.add_task("", total=clock.total, left="")

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def started(self, name: str) -> None:
        """An experiment begins."""
        self.clock.start(name)
        self.say(name, name)

    def say(self, name: str, text: str) -> None:
        """What an experiment is doing."""
        self._doing[name] = text
        self.tick()

    def ended(self, name: str) -> None:
        """An experiment has ended: its verdict, and the time that is left."""
        self.clock.finish(name)
        self._doing.pop(name)
        self._ended += 1
        outcome, total = self.results.outcomes[name], len(self.clock.expected)
        left = f", about {in_words(self.clock.seconds_left)} left" if self._ended < total else ""
        text = f"{name}: {outcome.verdict}, {outcome.seconds:.0f} s ({self._ended} of {total}{left})"
        self.console.print(text, highlight=False, markup=False)
        if outcome.reason:
            self.console.print(f"  {outcome.reason}", highlight=False, markup=False)
        self.tick()

    def tick(self) -> None:
        """Bring the bar up to date."""
        left = f"about {in_words(self.clock.seconds_left)} left"
        doing = "\n".join(self._doing.values())
        self._progress.update(self._bar, completed=self.clock.done, description=doing, left=left)
