"""The page of the explorer: a file of HTML, one of style and one of script, or all in one with the data."""

from __future__ import annotations

import base64
import hashlib
import json
from importlib import resources

import numpy as np

HEADER = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
POLICY = f"{HEADER}base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def part(name: str) -> str:
    """The text of a file of the page."""
    return resources.files("representer.explorer").joinpath(name).read_text(encoding="utf-8")


def as_json(value: object) -> str:
    """Records of arrays and numbers as JSON, with null for NaN and infinity.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.explorer.page import as_json
    >>> as_json({"a": np.array([1.0, np.nan]), "b": np.int64(2)})
    '{"a": [1.0, null], "b": 2}'
    """
    return json.dumps(_plain(value), allow_nan=False)


def _plain(value: object) -> object:
    """A value of the types of JSON."""
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if isinstance(value, str | int | bool | None) else str(value)


def standalone(data: dict[str, object]) -> str:
    """The page in one file, with style, script and data inside, and a policy that allows nothing else."""
    style, script = part("page.css"), part("page.js")
    allowed = f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; img-src data:"
    policy = f'<meta http-equiv="Content-Security-Policy" content="{allowed}">'
    # Only "<" could end the script element; JSON may write it as an escape.
    text = as_json(data).replace("<", "\\u003c")
    page = part("page.html").replace('<link rel="stylesheet" href="page.css">', f"{policy}<style>{style}</style>")
    inline = f'<script type="application/json" id="data">{text}</script><script type="module">{script}</script>'
    return page.replace('<script type="module" src="page.js"></script>', inline)


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
