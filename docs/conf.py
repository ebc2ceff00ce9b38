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
sys.path[:0] = [str(HERE), str(HERE.parent)]  # for the modules beside this file, and for runs

from pages import notebook  # noqa: E402  (beside this file)

project = "representer"
author = "the representer developers"
project_copyright = f"2026, {author}"
version = release = importlib.metadata.version(project)

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "mathml",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "measured/*"]
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_math_renderer = "mathml"
nitpicky = True  # a name in a role that leads nowhere is an error; docstrings have formulas and code, not roles
nitpick_ignore_regex = [("py:.*", r".*")]  # types in the docstrings are words for people

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath", "substitution"]
myst_substitutions = {"release": release}
myst_heading_anchors = 4

autosummary_generate = False
autodoc_typehints = "none"  # the docstrings name the types
numpydoc_show_class_members = False

html_theme = "pydata_sphinx_theme"
html_title = project
html_logo = html_favicon = "_static/logo.svg"
html_theme_options = {
    "logo": {"text": f"{project} {release}"},
    "show_toc_level": 1,
    "navigation_with_keys": False,
    "navbar_center": [],
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"**": ["globaltoc.html"], "index": []}
html_show_sourcelink = False

# --- pages of tasks ---------------------------------------------------------------------------------------------------

# Each of them can be downloaded as a notebook.
TASKS = [
    "getting_started",
    "choosing",
    "any_data",
    "molecules",
    "strings",
    "graphs",
    "curves",
    "outputs",
    "uncertainty",
    "explain",
    "explore",
    "saving",
    "large_data",
    "gpu",
    "own_kernel",
    "own_network",
    "concepts",
]

# --- examples/plot_*.py become a gallery -----------------------------------------------------------------------------

FACES = importlib.import_module(f"{project}.datasets.files").data_folder().joinpath("olivetti_faces.npz").exists()
IGNORED = r"__init__\.py" if FACES else r"__init__\.py|plot_faces"  # where the set is not at hand
sphinx_gallery_conf = {
    "ignore_pattern": IGNORED,
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"/plot_",
    "within_subsection_order": "FileNameSortKey",
    "image_scrapers": ("gallery.saved_pictures",),
    "reset_modules": ("gallery.both_schemes", "matplotlib"),
    "abort_on_example_error": True,
    "download_all_examples": False,
    "backreferences_dir": "auto_examples/uses",
    "doc_module": (project,),
    "plot_gallery": True,
    "show_signature": False,
}
warnings.filterwarnings("ignore", message=".*non-interactive.*", category=UserWarning)

# --- the API ---------------------------------------------------------------------------------------------------------

# What users import: each name of these has a page of its own. The other rooms are for people who extend the library.
USERS_ROOMS = ("kernels", "operators", "approximation", "preimage", "metrics", "datasets", "plotting", "testing")


def public_modules() -> list[str]:
    """The package, the rooms of users, then all other rooms that have public names."""
    package = importlib.import_module(project)
    rooms = [found.name for found in pkgutil.iter_modules(package.__path__) if not found.name.startswith("_")]
    rooms.sort(key=lambda room: (USERS_ROOMS.index(room) if room in USERS_ROOMS else len(USERS_ROOMS), room))
    return [project, *(f"{project}.{room}" for room in rooms)]


def public_names(module: ModuleType) -> list[str]:
    """What a module offers: its __all__, or else what it defines; without modules and names of the package itself."""
    defined = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    names = getattr(module, "__all__", [name for name in defined if not name.startswith("_")])
    package = importlib.import_module(project)
    elsewhere = [] if module is package else package.__all__
    names = [name for name in names if not name.startswith("_") and name not in elsewhere]
    return [name for name in names if not inspect.ismodule(getattr(module, name))]


def for_users(module: str) -> bool:
    """Whether the names of a module have a page each."""
    return module == project or module.removeprefix(f"{project}.") in USERS_ROOMS


def directive(module: str, name: str) -> str:
    """The reStructuredText of a class with its methods, or of a function."""
    thing = getattr(importlib.import_module(module), name)
    if not inspect.isclass(thing):
        return f".. autofunction:: {module}.{name}\n"
    inherited = "   :inherited-members: object\n" if module == project else ""  # a kernel's are those of Kernel
    return f".. autoclass:: {module}.{name}\n   :members:\n{inherited}   :member-order: bysource\n"


def name_page(module: str, name: str) -> str:
    """The page of one name, with the examples of the gallery that use it."""
    return f"{name}\n{'=' * len(name)}\n\n{directive(module, name)}\n{examples_of(module, name)}"


def examples_of(module: str, name: str) -> str:
    """Cards of the examples that import a name; nothing where there are none."""
    wanted = re.compile(rf"from {re.escape(module)} import [^\n]*\b{name}\b")
    examples = sorted((HERE.parent / "examples").glob("plot_*.py"))
    shown = [path for path in examples if not re.search(IGNORED, path.name)]
    using = [path for path in shown if wanted.search(path.read_text(encoding="utf-8"))]
    if not using:
        return ""
    paths = "\n   ".join(f"../examples/{path.name}" for path in using)
    return f"In the gallery\n--------------\n\n.. minigallery::\n\n   {paths}\n"


def api_page(name: str) -> str:
    """The page of a module: a table of its names, which have pages of their own or stand below, and its constants."""
    module = importlib.import_module(name)
    names = public_names(module)
    functions = [n for n in names if callable(getattr(module, n))]
    constants = [n for n in names if n not in functions]
    if not names:
        return ""
    title = "Learners" if name == project else name.removeprefix(project + ".")
    page = f"{title}\n{'=' * len(title)}\n\n{(inspect.getdoc(module) or '').splitlines()[0]}\n\n" if functions else ""
    if functions:
        table = "".join(f"   {name}.{n}\n" for n in functions)
        page += f".. autosummary::\n   :nosignatures:\n\n{table}\n"
    if constants:
        page += "Constants: " + "; ".join(f"``{n}``, {constant_text(getattr(module, n))}" for n in constants) + "\n\n"
    if for_users(name):
        entries = "".join(f"   {name}.{n}\n" for n in functions)
        return page + f".. toctree::\n   :hidden:\n\n{entries}"
    return page + "\n".join(directive(name, n) for n in functions)


def constant_text(value: object) -> str:
    """What a constant is: a set of data by its description, anything else by its type."""
    return getattr(value, "description", f"a {type(value).__name__}")


def api_pages() -> dict[str, str]:
    """The pages of the API by the names of their files."""
    pages = {name: api_page(name) for name in public_modules()}
    for name in filter(for_users, public_modules()):
        module = importlib.import_module(name)
        names = [n for n in public_names(module) if callable(getattr(module, n))]
        pages |= {f"{name}.{n}": name_page(name, n) for n in names}
    rooms = {name for name in public_modules() if not for_users(name)}
    return {f"rooms/{name}" if name in rooms else name: page for name, page in pages.items() if page}


def write_pages(*_: object) -> None:
    """Write api/*.rst and notebooks/*.ipynb, touching only what has changed so that rebuilding is quick."""
    texts = {HERE / "api" / f"{name}.rst": page for name, page in api_pages().items()}
    for name in TASKS:
        page = (HERE / f"{name}.md").read_text(encoding="utf-8")
        texts[HERE / "notebooks" / f"{name}.ipynb"] = notebook(page)
    for stale in {*HERE.glob("api/**/*.md"), *HERE.glob("api/**/*.rst"), *HERE.glob("notebooks/*.ipynb")} - set(texts):
        stale.unlink()
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def link_notebook(app: object, docname: str, source: list[str]) -> None:
    """A page of a task ends with itself as a notebook."""
    if docname in TASKS:
        source[0] += f"\n{{download}}`This page as a notebook <notebooks/{docname}.ipynb>`\n"


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
    """Pages of the API and notebooks are written before Sphinx looks for pages."""
    app.connect("config-inited", write_pages)
    app.connect("source-read", link_notebook)
    app.connect("autodoc-process-docstring", keep_bars, priority=400)  # before numpydoc
    app.connect("autodoc-skip-member", skip_foreign_members)
