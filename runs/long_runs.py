"""What a long run needs: records that are never half written, and a Ctrl-C that ends it, not only a fit."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from representer.datasets.files import write_whole


def write_json(path: Path, record: Any) -> None:
    """Write a record, at once or not at all; its folder is made if it is not there."""
    write_whole(path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")


class Stopped(BaseException):
    """An interruption under a name that no fit catches."""


@contextmanager
def stopped_by_interrupts() -> Iterator[None]:
    """Let Ctrl-C end what is measured here: a fit would keep its best point, and that would be taken for the result."""
    elsewhere = threading.current_thread() is not threading.main_thread()
    if elsewhere or signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        yield
        return

    def stop(*_: Any) -> None:
        raise Stopped

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    except Stopped:
        raise KeyboardInterrupt from None
    finally:
        signal.signal(signal.SIGINT, before)
