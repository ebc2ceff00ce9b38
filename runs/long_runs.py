"""What a long run needs: records that are never half written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from representer.datasets.files import write_whole


def write_json(path: Path, record: Any) -> None:
    """Write a record, at once or not at all; its folder is made if it is not there."""
    write_whole(path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
