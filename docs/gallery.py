"""How the gallery finds the pictures of an example: those that it saves, each for light and for dark pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from runs.figures import save_dark

save_light = Figure.savefig


def save_twice(figure: Figure, target: Any, **options: Any) -> None:
    """Save a figure as the example says, and beside it a picture for dark pages."""
    save_light(figure, target, **options)
    if isinstance(target, str) and target.endswith(".png"):
        Figure.savefig = save_light  # type: ignore[method-assign]
        try:
            save_dark(figure, f"{target.removesuffix('.png')}.dark", **options)
        finally:
            Figure.savefig = save_twice  # type: ignore[method-assign]


def both_schemes(gallery_conf: dict[str, Any], name: str) -> None:
    """Before each example: figures that it saves are saved twice."""
    Figure.savefig = save_twice  # type: ignore[method-assign]


def saved_pictures(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """The reStructuredText of the pictures that lie beside an example; they move to its page."""
    text = ""
    for path in sorted(Path(block_vars["src_file"]).parent.glob("*.png")):
        for source, scheme in ((path, "only-light"), (path.with_suffix(".dark"), "only-dark")):
            if source.exists():
                place = Path(next(block_vars["image_path_iterator"]))
                place.parent.mkdir(parents=True, exist_ok=True)
                source.replace(place)
                name = place.relative_to(gallery_conf["src_dir"]).as_posix()
                text += f"\n.. image:: /{name}\n   :alt: {path.stem.replace('_', ' ')}\n   :class: {scheme}\n\n"
    return text
