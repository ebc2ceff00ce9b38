"""Files of long runs: whole or not there, whoever writes them at the same time."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from runs.long_runs import write_json


def test_records_that_are_written_at_the_same_time_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "record.json"
    records = [{"values": [float(k)] * 20_000} for k in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda record: write_json(path, record), records))
    assert json.loads(path.read_text(encoding="utf-8")) in records
    assert [entry.name for entry in path.parent.iterdir()] == ["record.json"]
