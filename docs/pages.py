"""A Markdown page as a Jupyter notebook: its Python blocks are cells of code, the text between them cells of text."""

from __future__ import annotations

import json
import re

CODE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def notebook(page: str) -> str:
    """The notebook of a page, as the JSON of a file."""
    parts = CODE.split(page)  # text and code take turns
    cells = [_cell(part.strip("\n"), code=index % 2 == 1) for index, part in enumerate(parts) if part.strip()]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    book = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 4}
    return json.dumps(book, indent=1, ensure_ascii=False)


def _cell(text: str, *, code: bool) -> dict[str, object]:
    source = text.splitlines(keepends=True)
    if code:
        return {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": source}
    return {"cell_type": "markdown", "metadata": {}, "source": source}
