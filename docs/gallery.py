"""How the gallery finds the pictures of an example: those that it saves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sphinx_gallery.scrapers import figure_rst


def saved_pictures(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """The reStructuredText of the pictures that lie beside an example; they move to its page."""
    found = []
    for path in sorted(Path(block_vars["src_file"]).parent.glob("*.png")):
        place = Path(next(block_vars["image_path_iterator"]))
        place.parent.mkdir(parents=True, exist_ok=True)
        path.replace(place)
        found.append(str(place))
    return figure_rst(found, gallery_conf["src_dir"])
