"""The rooms of the library: imports go downwards, scikit-learn and the extras stay where they belong.

Each rule is a function over source text that returns its complaints, so that the second half of this file can show that
every rule does complain.
"""

from __future__ import annotations

import ast
import functools
import graphlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "representer"

# From the ground up: a room may import the rooms before it, never those after it.
ROOMS = (
    "notices",
    "linalg",
    "values",
    "samples",
    "kernels",
    "operators",
    "approximation",
    "functions",
    "systems",
    "optimize",
    "objectives",
    "preimage",
    "problems",
    "plotting",
    "inspection",
    "persistence",
    "estimators",
    # the leaves
    "metrics",
    "datasets",
    "comparison",
    "explorer",
    "cli",
    "__main__",
    # the batteries, which may look at everything
    "testing",
)

# Who may import scikit-learn, and what of it. Approximations are transformers, too: they need the mixins.
SKLEARN: dict[str, str | tuple[str, ...]] = {
    "samples": ("sklearn.utils._set_output",),
    "approximation": ("sklearn.base", "sklearn.utils.validation", "sklearn.utils._set_output"),
    "estimators": "sklearn",
    "datasets": "sklearn",
    "metrics": "sklearn",
    "comparison": "sklearn",
    "testing": "sklearn",
    "objectives": "sklearn.svm",
}


# Who tells fits apart: the data, what makes features, and systems. Stored features know whether they are those of the
# kernel itself, which no approximation has made.
TELL_APART = ("samples", "approximation", "systems", "representer.functions.features")
KINDS_OF_FITS = {
    *("InMemory", "OnDask", "Nystroem", "Landmarks", "RandomFeatures", "TensorSketch"),
    *("ExactSystem", "SummedSystem", "FalkonSystem", "FeatureSystem", "WeightSystem", "CellSystem"),
}


@dataclass(frozen=True)
class Import:
    """One imported name: `from a.b import c` is a.b.c."""

    target: str
    line: int
    on_import: bool  # executed when the module is imported, not inside a function or under TYPE_CHECKING

    def within(self, package: str) -> bool:
        return self.target == package or self.target.startswith(package + ".")


def called(node: ast.Call) -> str:
    """The last part of the name of the function that is called."""
    return ast.unparse(node.func).rpartition(".")[2]


def stated(name: ast.expr) -> str:
    """A module's name as it is written; of f"package.{name}" the part that is known."""
    known = name.values[0] if isinstance(name, ast.JoinedStr) else name
    return str(known.value).rstrip(".") if isinstance(known, ast.Constant) else ast.unparse(known)


parsed = functools.cache(ast.parse)


@functools.cache
def imports(source: str, module: str, *, is_package: bool = False) -> tuple[Import, ...]:
    """Every import in a source text, relative ones resolved, importlib.import_module("x") included."""
    anchor = module.split(".") if is_package else module.split(".")[:-1]

    def visit(node: ast.AST, on_import: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, on_import)
        elif isinstance(node, ast.ImportFrom):
            base = anchor[: len(anchor) - node.level + 1] if node.level else []
            prefix = ".".join([*base, *(node.module.split(".") if node.module else [])])
            for alias in node.names:
                yield Import(f"{prefix}.{alias.name}", node.lineno, on_import)
        elif isinstance(node, ast.Call) and called(node) in ("import_module", "__import__") and node.args:
            yield Import(stated(node.args[0]), node.lineno, on_import)
        if isinstance(node, ast.If) and ast.unparse(node.test).split(".")[-1] == "TYPE_CHECKING":
            for child in node.body:
                yield from visit(child, False)
            for child in node.orelse:
                yield from visit(child, on_import)
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            on_import = False
        for child in ast.iter_child_nodes(node):
            yield from visit(child, on_import)

    return tuple(visit(parsed(source), True))


def room_of(module: str) -> str:
    """The room of a module: the first name below the package; empty for the package itself."""
    return [*module.split("."), ""][1]


def unknown_room(module: str) -> list[str]:
    room = room_of(module)
    if room and room not in ROOMS:
        return [f"{module}: no room is called {room!r}; find the room it belongs to, or add it to ROOMS in its place"]
    return []


def upward_imports(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """Imports of the package root, of a later room, or of a sibling by kernels.base."""
    room = room_of(module)
    if not room:
        return []  # the package's own __init__ gathers the public names
    complaints = []
    for found in imports(source, module, is_package=is_package):
        if not found.within("representer"):
            continue
        where, other = f"{module}:{found.line}", room_of(found.target)
        if other not in ROOMS:
            complaints.append(f"{where} imports {found.target} from the package root; import it from its room")
        elif room in ROOMS and ROOMS.index(other) > ROOMS.index(room):
            complaints.append(f"{where} imports {found.target}: {other} stands above {room}")
        elif module == "representer.kernels.base" and other == "kernels":
            complaints.append(f"{where} imports {found.target}: the other kernels stand on base")
    return complaints


def allowed(room: str) -> tuple[str, ...]:
    parts = SKLEARN[room]
    return (parts,) if isinstance(parts, str) else parts


def misplaced_sklearn(source: str, module: str, *, is_package: bool = False) -> list[str]:
    room = room_of(module)
    return [
        f"{module}:{found.line} imports {found.target}; only {', '.join(SKLEARN)} know scikit-learn"
        for found in imports(source, module, is_package=is_package)
        if found.within("sklearn") and not (room in SKLEARN and any(map(found.within, allowed(room))))
    ]


def misplaced_extras(source: str, module: str, extras: set[str], *, is_package: bool = False) -> list[str]:
    """matplotlib outside plotting, or any optional package that is needed as soon as the module is imported."""
    complaints: list[str] = []
    for found in imports(source, module, is_package=is_package):
        where = f"{module}:{found.line} imports {found.target}"
        if found.within("matplotlib") and room_of(module) != "plotting":
            complaints.append(f"{where}; only plotting draws")
        elif found.on_import and found.target.split(".")[0] in extras:
            complaints.append(f"{where} at the top; an extra is imported by the function that needs it")
    return complaints


def undeclared(source: str, module: str, declared: set[str], *, is_package: bool = False) -> list[str]:
    """Imports of packages that an installation need not bring; papers, examples and benchmarks are among them."""
    known = declared | set(sys.stdlib_module_names) | {"representer"}
    return [
        f"{module}:{found.line} imports {found.target}, which pyproject.toml does not name"
        for found in imports(source, module, is_package=is_package)
        if found.target.split(".")[0] not in known
    ]


def fits_told_apart(source: str, module: str) -> list[str]:
    """Questions outside of the rooms that know the answer: is it exact, by landmarks, on Dask, from sums, iterative?

    Others ask samples, an approximation, a scope or a system for what they need. A learner may ask whether its user has
    given ``approximation=``, to refuse what cannot be combined.
    """
    room = room_of(module)
    if room in TELL_APART or module in TELL_APART:
        return []
    complaints = []
    for node in ast.walk(parsed(source)):
        asked = None
        if isinstance(node, ast.Call) and called(node) == "isinstance":
            names = {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}
            asked = ", ".join(sorted(names & KINDS_OF_FITS)) or None
        elif isinstance(node, ast.Compare) and any(ast.unparse(part) == "None" for part in node.comparators):
            asked = named_approximation(node.left, room)
        elif isinstance(node, ast.BoolOp | ast.If | ast.IfExp):
            tests = node.values if isinstance(node, ast.BoolOp) else [node.test]
            asked = next(filter(None, (named_approximation(test, room) for test in tests)), None)
        if asked is not None:
            complaints.append(f"{module}:{node.lineno} asks what kind of fit it is ({asked}); ask a scope or a system.")
    return complaints


def named_approximation(node: ast.expr, room: str) -> str | None:
    """The name of an approximation that is looked at, unless it is the argument of a user."""
    name = ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""
    if room == "estimators" and name in ("self.approximation", "learner.approximation"):
        return None
    return name if name.rpartition(".")[2] in ("approximation", "pair") else None


def cycle(sources: Mapping[str, tuple[str, bool]]) -> list[str]:
    """The modules of an import cycle, if there is one; sources maps a module to its text and is_package."""
    graph: dict[str, set[str]] = {}
    for module, (source, is_package) in sources.items():
        graph[module] = set()
        for found in imports(source, module, is_package=is_package):
            target = found.target
            while target and target not in sources:  # a name in a module: the module
                target = target.rpartition(".")[0]
            if target and target != module:
                graph[module].add(target)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def listed_rooms(page: str) -> list[str]:
    """The rooms that the table of a page names, in its order: what is in backticks in the first column."""
    table = re.search(r"^\| room \|.*\n\|[ |-]*\n((?:\|.*\n)+)", page, re.MULTILINE)
    rows = table[1].splitlines() if table else []
    return [name.rstrip("/") for row in rows for name in re.findall(r"`([\w/]+)`", row.split("|")[1])]


def existing_rooms(modules: Iterable[str]) -> list[str]:
    """The rooms of some modules in the order of ROOMS; the package's own files are no rooms."""
    return sorted({room_of(module) for module in modules} - {"", "__main__"}, key=ROOMS.index)


# --- the library -----------------------------------------------------------------------------------------------------

PATHS = sorted(SOURCE.rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def declared_packages() -> tuple[set[str], set[str]]:
    """The import names of the core dependencies and of those that only an extra brings."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    def names(requirements: list[str]) -> set[str]:
        found = {re.split(r"[^A-Za-z0-9_.-]", entry)[0].lower().replace("-", "_") for entry in requirements}
        return {"sklearn" if name == "scikit_learn" else name for name in found}

    core = names(project["dependencies"])
    return core, set().union(*map(names, project["optional-dependencies"].values())) - core


CORE, EXTRAS = declared_packages()


def test_there_is_a_library_to_look_at() -> None:
    assert SOURCE / "__init__.py" in PATHS
    assert {"matplotlib", "dask", "rdkit", "grakel", "typer", "pandas"} <= EXTRAS
    assert {
        "numpy",
        "scipy",
        "sklearn",
        "joblib",
        "threadpoolctl",
        "torch",
        "rich",
        "pooch",
        "filelock",
        "jinja2",
        "safetensors",
    } == CORE


@pytest.mark.parametrize("path", PATHS, ids=[str(path.relative_to(SOURCE)) for path in PATHS])
def test_rules_hold(path: Path) -> None:
    source, module, is_package = (
        path.read_text(encoding="utf-8"),
        module_name(path),
        path.name == "__init__.py",
    )
    complaints = [
        *unknown_room(module),
        *upward_imports(source, module, is_package=is_package),
        *misplaced_sklearn(source, module, is_package=is_package),
        *misplaced_extras(source, module, EXTRAS, is_package=is_package),
        *undeclared(source, module, CORE | EXTRAS, is_package=is_package),
        *fits_told_apart(source, module),
    ]
    assert not complaints, "\n".join(complaints)


def test_contributing_lists_the_rooms_that_exist_in_their_order() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert listed_rooms(page) == existing_rooms(map(module_name, PATHS))
    folders = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").is_file()}
    with_a_slash = {name for row in re.findall(r"^\| `.*", page, re.M) for name in re.findall(r"`(\w+)/`", row)}
    assert with_a_slash == folders


def test_the_words_of_a_room_stand_in_it() -> None:
    """What CONTRIBUTING says one meets in a room is there: code in backticks, as it is written."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)/?` \|[^|]*\| ([^|]*) \|$", page, re.M)
    assert len(rows) == len(listed_rooms(page))
    for room, words in rows:
        paths = [path for path in PATHS if module_name(path).split(".")[1:2] == [room]]
        source = "".join(path.read_text(encoding="utf-8") for path in paths)
        for word in re.findall(r"`([^`]*)`", words):
            assert word.removeprefix("self.").rstrip("…") in source, f"{word} is not in {room}"


def test_every_room_has_its_tests() -> None:
    """A folder of the package has a folder of tests with the same name, a file ``room.py`` has ``test_room.py``."""
    tests = ROOT / "tests"
    folders = {path.name for path in tests.iterdir() if any(path.glob("test_*.py"))}
    files = {path.stem.removeprefix("test_") for path in tests.glob("test_*.py")}
    rooms = set(existing_rooms(map(module_name, PATHS))) - {"__main__"}
    assert rooms <= folders | files
    assert folders <= rooms | {"benchmarks", "examples", "fuzz", "papers", "runs"}


def test_every_public_name_is_where_the_package_looks_for_it() -> None:
    import representer

    assert all(getattr(representer, name) is not None for name in representer.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Learner'"):
        _ = representer.Learner  # type: ignore[attr-defined]


def test_no_import_cycles() -> None:
    sources = {module_name(path): (path.read_text(encoding="utf-8"), path.name == "__init__.py") for path in PATHS}
    found = cycle(sources)
    assert not found, "import cycle: " + " <- ".join(found)


IMPORT_LEAVES_NO_TRACE = """
import os, random, sys, threading
import numpy, rich.style, sklearn.base, torch  # scikit-learn imports pandas where there is one; rich draws a number

def state():
    return {
        "default dtype": torch.get_default_dtype(),
        "threads": torch.get_num_threads(),
        "torch seed": torch.initial_seed(),
        "torch generator": torch.get_rng_state().tolist(),
        "numpy generator": str(numpy.random.get_state()),
        "random generator": random.getstate(),
        "gradient mode": torch.is_grad_enabled(),
        "numpy printing": str(numpy.get_printoptions()),
        "numpy errors": numpy.geterr(),
        "running threads": threading.active_count(),
        "environment": dict(os.environ),
    }

before, modules = state(), set(sys.modules)
import representer.estimators
after = state()
changed = [name for name in before if before[name] != after[name]]
extras = sorted(set(sys.argv[1:]) & (set(sys.modules) - modules))
print("changed:", changed, "imported:", extras)
sys.exit(bool(changed or extras))
"""


IMPORT_WITHOUT_EXTRAS = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in sys.argv[1:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import representer.estimators
"""


def in_a_fresh_process(script: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *sorted(EXTRAS)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_importing_does_no_work_and_no_extra_is_imported() -> None:
    result = in_a_fresh_process(IMPORT_LEAVES_NO_TRACE)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.slow  # it adds to the test above only imports that expect their own failure
def test_importing_works_where_no_extra_is_installed() -> None:
    result = in_a_fresh_process(IMPORT_WITHOUT_EXTRAS)
    assert result.returncode == 0, result.stdout + result.stderr


# --- the rules can fail ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("representer.linalg", "from representer.kernels.base import Kernel"),
        ("representer.linalg", "from .kernels import Gaussian"),
        ("representer.linalg", "import representer.kernels as k"),
        ("representer.kernels.base", "from ..operators import Identity"),
        ("representer.kernels.base", "from .vectors import Gaussian"),
        ("representer.kernels.base", "def f():\n    from . import vectors"),
        ("representer.optimize", "class A:\n    def f(self):\n        from representer.preimage import g"),
        ("representer.optimize", "import importlib\nx = importlib.import_module('representer.estimators')"),
        ("representer.optimize", "import importlib\nx = importlib.import_module(f'representer.{room}')"),
        (
            "representer.objectives",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import preimage",
        ),
        ("representer.cli", "import representer"),
        ("representer.cli", "from representer import OperatorRidge"),
        ("representer.cli", "from . import *"),
        ("representer.estimators.ridge", "from .. import OperatorRidge"),
    ],
)
def test_upward_imports_are_found(module: str, source: str) -> None:
    assert len(upward_imports(source, module)) == 1


@pytest.mark.parametrize(
    ("module", "source", "is_package"),
    [
        ("representer", "from .estimators import OperatorRidge\nfrom . import kernels", True),
        ("representer.kernels", "from .base import Kernel\nfrom .vectors import Gaussian", True),
        (
            "representer.kernels.vectors",
            "from . import base\nfrom .base import Kernel\nfrom .. import linalg",
            False,
        ),
        (
            "representer.estimators.ridge",
            "from representer import kernels\nfrom ..optimize import minimize",
            False,
        ),
        (
            "representer.testing",
            "import representer.cli\nfrom representer.estimators import OperatorRidge",
            False,
        ),
        ("representer.linalg", "import torch\nfrom representers.kernels import x", False),
    ],
)
def test_downward_imports_are_free(module: str, source: str, is_package: bool) -> None:
    assert upward_imports(source, module, is_package=is_package) == []


def test_a_table_of_rooms_is_read_in_its_order() -> None:
    page = "| a |\n| - |\n| `no` |\n\n| room | line |\n| --- | --- |\n| `b/`, `a` | `c` |\n| `d` | |\n\n| `e` |\n"
    assert listed_rooms(page) == ["b", "a", "d"]
    assert listed_rooms("no table") == []
    modules = ["representer", "representer.__main__", "representer.values", "representer.linalg.cholesky"]
    assert existing_rooms(modules) == ["linalg", "values"]


def test_unknown_rooms_are_found() -> None:
    assert "add it to ROOMS" in unknown_room("representer.utils")[0]
    assert unknown_room("representer.kernels.new_family") == unknown_room("representer") == []


@pytest.mark.parametrize(
    ("module", "source", "count"),
    [
        ("representer.kernels.base", "from sklearn.base import clone", 1),
        ("representer.optimize", "def f():\n    import sklearn.svm", 1),
        ("representer.objectives", "from sklearn.linear_model import Ridge\nfrom sklearn.svm import SVC", 1),
        ("representer.estimators.ridge", "from sklearn.base import BaseEstimator", 0),
        ("representer.datasets", "import sklearn.datasets", 0),
        ("representer.linalg", "import sklearnex", 0),
    ],
)
def test_misplaced_sklearn_is_found(module: str, source: str, count: int) -> None:
    assert len(misplaced_sklearn(source, module)) == count


@pytest.mark.parametrize(
    ("module", "source", "count"),
    [
        ("representer.metrics", "def f():\n    import matplotlib.pyplot as plt", 1),
        ("representer.plotting", "import matplotlib.pyplot as plt", 1),
        (
            "representer.plotting",
            "try:\n    from matplotlib import pyplot\nexcept ImportError:\n    pyplot = None",
            1,
        ),
        ("representer.kernels.graphs", "class A:\n    import grakel", 1),
        ("representer.plotting", "def f():\n    import matplotlib.pyplot as plt", 0),
        (
            "representer.plotting",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from matplotlib.axes import Axes",
            0,
        ),
        ("representer.approximation", "def f():\n    import dask.array", 0),
    ],
)
def test_misplaced_extras_are_found(module: str, source: str, count: int) -> None:
    assert len(misplaced_extras(source, module, EXTRAS)) == count


@pytest.mark.parametrize(
    ("module", "source", "count"),
    [
        ("representer.problems.ridge", "if self.approximation is None: pass", 1),
        ("representer.problems.ridge", "x = approximation is not None", 1),
        ("representer.problems.ridge", "x = approximation and approximation.sized(n)", 1),
        ("representer.problems.ridge", "x = 1 if model.approximation else 2", 1),
        ("representer.problems.deep", "assert isinstance(samples, Block | InMemory)", 1),
        ("representer.inspection.explanation", "isinstance(system, (SummedSystem, ExactSystem))", 1),
        ("representer.estimators.deep_regressor", "if problem.approximation is None: pass", 1),
        ("representer.estimators.deep_regressor", "if learner.approximation is None and loss != 'squared': pass", 0),
        ("representer.estimators.deep_regressor", "isinstance(self.approximation, Nystroem)", 1),
        ("representer.systems.ridge", "if approximation is None: pass", 0),
        ("representer.problems.ridge", "x = self.scope.spans_all; isinstance(kernel, Decomposable)", 0),
    ],
)
def test_questions_about_the_kind_of_a_fit_are_found(module: str, source: str, count: int) -> None:
    assert len(fits_told_apart(source, module)) == count


def test_undeclared_packages_are_found() -> None:
    source = "import os\nimport torch.nn\nfrom .base import Kernel\ndef f():\n    import psutil"
    assert undeclared(source, "representer.kernels.learned", {"torch"}) == [
        "representer.kernels.learned:5 imports psutil, which pyproject.toml does not name"
    ]
    for beside in ("papers", "examples", "benchmarks", "runs"):
        assert len(undeclared(f"import {beside}", "representer.cli", {"torch"})) == 1


def test_cycles_are_found() -> None:
    package = ("from .vectors import Gaussian", True)
    kernels = {"representer.kernels": package, "representer.kernels.base": ("", False)}
    fine = kernels | {"representer.kernels.vectors": ("from .base import Kernel", False)}
    assert cycle(fine) == []
    through_the_package = kernels | {"representer.kernels.vectors": ("def f():\n    from . import Kernel", False)}
    assert "representer.kernels" in cycle(through_the_package)
    siblings = fine | {"representer.kernels.base": ("from representer.kernels.vectors import Gaussian", False)}
    assert {"representer.kernels.base", "representer.kernels.vectors"} <= set(cycle(siblings))


@pytest.mark.slow
def test_traces_of_an_import_are_found() -> None:
    bad = "torch.set_default_dtype(torch.float64); torch.set_num_threads(3); torch.manual_seed(0); import typer"
    bad += "; os.environ['OMP_NUM_THREADS'] = '7'"
    result = in_a_fresh_process(IMPORT_LEAVES_NO_TRACE.replace("import representer.estimators", bad))
    assert result.returncode == 1, result.stdout + result.stderr
    for trace in ("default dtype", "threads", "torch seed", "torch generator", "environment", "typer"):
        assert repr(trace) in result.stdout


def test_needing_an_extra_is_found() -> None:
    result = in_a_fresh_process(IMPORT_WITHOUT_EXTRAS.replace("import representer.estimators", "import typer"))
    assert result.returncode == 1
    assert "typer" in result.stderr
