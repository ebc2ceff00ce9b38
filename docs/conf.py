"""Sphinx settings. The pages of the API are written from the package itself, so that new names appear by themselves."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import pkgutil
import re
import sys
import warnings
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # for gallery

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
html_theme_options = {"show_toc_level": 1, "navigation_with_keys": False, "navbar_center": []}
html_sidebars = {"**": ["globaltoc.html"]}
html_show_sourcelink = False

# --- examples/plot_*.py become a gallery -----------------------------------------------------------------------------

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"/plot_",
    "within_subsection_order": "FileNameSortKey",
    "image_scrapers": ("gallery.saved_pictures",),
    "abort_on_example_error": True,
    "download_all_examples": False,
}
warnings.filterwarnings("ignore", message=".*non-interactive.*", category=UserWarning)

# --- the API ---------------------------------------------------------------------------------------------------------


def public_modules() -> list[str]:
    """The package, then each room that has public names."""
    package = importlib.import_module(project)
    rooms = [found.name for found in pkgutil.iter_modules(package.__path__) if not found.name.startswith("_")]
    return [project, *(f"{project}.{room}" for room in rooms)]


def public_names(module: ModuleType) -> list[str]:
    """What a module offers: its __all__, or else what it defines; modules are left out."""
    defined = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    names = getattr(module, "__all__", [name for name in defined if not name.startswith("_")])
    return [name for name in names if not inspect.ismodule(getattr(module, name)) and not name.startswith("_")]


def api_page(name: str) -> str:
    """A Markdown page: a table of the names, each in full, and the constants; learners are on the first only."""
    module, package = importlib.import_module(name), importlib.import_module(project)
    names = [n for n in public_names(module) if name == project or n not in package.__all__]
    functions = [n for n in names if callable(getattr(module, n))]
    constants = [n for n in names if n not in functions]
    if not names:
        return ""
    title = "Learners" if name == project else name.removeprefix(project + ".")
    inherited = "   :inherited-members: object\n" if name == project else ""  # a kernel's are those of Kernel
    page = f"# {title}\n"
    if functions:
        entries = "\n   ".join(functions)
        page += f"""
```{{eval-rst}}
.. currentmodule:: {name}

.. autosummary::
   :nosignatures:

   {entries}

.. automodule:: {name}
   :members: {", ".join(functions)}
{inherited}   :member-order: bysource
```
"""
    if constants:
        page += "\n## Constants\n\n"
        page += "".join(f"- `{n}`: {constant_text(getattr(module, n))}\n" for n in constants)
    return page


def constant_text(value: object) -> str:
    """What a constant is: a set of data by its description, anything else by its type."""
    return getattr(value, "description", f"a {type(value).__name__}")


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


def skip_foreign_members(app: object, what: str, name: str, member: object, skip: bool, options: object) -> bool:
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
