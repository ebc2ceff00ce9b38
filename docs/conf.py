"""Sphinx settings. The pages of the API are written from the package itself, so that new names appear by themselves."""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
import re
import warnings
from pathlib import Path

HERE = Path(__file__).parent

project = "representer"
author = "the representer developers"
project_copyright = f"2026, {author}"
version = release = importlib.metadata.version(project)

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "measured/*"]
html_static_path = ["_static"]
nitpicky = False

myst_enable_extensions = ["amsmath", "deflist", "dollarmath"]
myst_heading_anchors = 3

autosummary_generate = False
autodoc_typehints = "none"  # the docstrings name the types
numpydoc_show_class_members = False

html_theme = "pydata_sphinx_theme"
html_title = project
html_theme_options = {"show_toc_level": 2, "navigation_with_keys": False}
html_show_sourcelink = False

# --- examples/plot_*.py become a gallery -----------------------------------------------------------------------------

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"/plot_",
    "abort_on_example_error": True,
    "download_all_examples": False,
}
warnings.filterwarnings("ignore", message=".*non-interactive.*", category=UserWarning)

# --- the API ---------------------------------------------------------------------------------------------------------

# The learners are shown where users import them from: the package itself.
HIDDEN = {"estimators"}


def public_modules() -> list[str]:
    """The package, then each room that has public names."""
    package = importlib.import_module(project)
    rooms = [found.name for found in pkgutil.iter_modules(package.__path__) if not found.name.startswith("_")]
    return [project, *(f"{project}.{room}" for room in rooms if room not in HIDDEN)]


def public_names(module: object) -> list[str]:
    """What a module offers: its __all__, or else what it defines; modules and constants are left out."""
    defined = [
        name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__
    ]
    names = getattr(module, "__all__", [name for name in defined if not name.startswith("_")])
    return [name for name in names if callable(getattr(module, name))]


def api_page(name: str) -> str:
    """A Markdown page: a table of the names, then each in full."""
    module = importlib.import_module(name)
    names = public_names(module)
    if not names:
        return ""
    title = "Learners" if name == project else f"{name.removeprefix(project + '.')}"
    entries = "\n   ".join(names)
    members = ", ".join(names)
    inherited = "   :inherited-members: object\n" if name == project else ""  # a kernel's are those of Kernel
    return f"""# {title}

```{{eval-rst}}
.. currentmodule:: {name}

.. autosummary::
   :nosignatures:

   {entries}

.. automodule:: {name}
   :members: {members}
{inherited}   :member-order: bysource
```
"""


def write_api_pages(*_: object) -> None:
    """Write api/*.md, touching only what has changed so that rebuilding is quick."""
    folder = HERE / "api"
    folder.mkdir(exist_ok=True)
    pages = {name: api_page(name) for name in public_modules()}
    wanted = {folder / f"{name}.md": page for name, page in pages.items() if page}
    for path in set(folder.glob("*.md")) - set(wanted):
        path.unlink()
    for path, page in wanted.items():
        if not path.exists() or path.read_text(encoding="utf-8") != page:
            path.write_text(page, encoding="utf-8")


def skip_foreign_members(
    app: object, what: str, name: str, member: object, skip: bool, options: object
) -> bool:
    """What a learner inherits from scikit-learn is documented there."""
    return skip or not str(getattr(member, "__module__", project)).startswith((project, "builtins"))


def keep_bars(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Formulas in docstrings are plain text: |t| is an absolute value, not a reStructuredText substitution."""
    for i, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            parts = re.split(r"(`+[^`]+`+)", line)  # every other part is quoted code
            parts[::2] = [part.replace("|", r"\|") for part in parts[::2]]
            lines[i] = "".join(parts)


def setup(app) -> None:
    """The API pages are written before Sphinx looks for pages."""
    app.connect("config-inited", write_api_pages)
    app.connect("autodoc-process-docstring", keep_bars, priority=400)  # before numpydoc
    app.connect("autodoc-skip-member", skip_foreign_members)
