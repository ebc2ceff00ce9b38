"""What the documentation says is true: its code runs, its commands exist, its parameters are the real ones."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import inspect
import json
import re
import shlex
import shutil
import tomllib
import traceback
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tiers import tiers

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "representer"
README = ROOT / "README.md"
PAGES = [
    README,
    ROOT / "CONTRIBUTING.md",
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
MODULES = sorted(SOURCE.rglob("*.py"))
SECTIONS = ("Parameters", "Attributes", "Examples")


@dataclass(frozen=True)
class Block:
    """A fenced block of a Markdown page."""

    language: str
    text: str
    line: int  # of its first line of text


FENCE = re.compile(
    r"^(?P<indent>[ ]*)(?P<fence>`{3,}|~{3,})[ ]*(?P<language>[\w+-]*)[^\n]*\n"
    r"(?P<text>.*?)^(?P=indent)(?P=fence)[ ]*$",
    re.MULTILINE | re.DOTALL,
)


def blocks(page: str, *languages: str) -> list[Block]:
    """The fenced blocks in these languages, in order."""
    found = []
    for match in FENCE.finditer(page):
        if match["language"] in languages:
            text = re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
            found.append(Block(match["language"], text, page[: match.start("text")].count("\n") + 1))
    return found


# --- code ------------------------------------------------------------------------------------------------------------


def run_page(page: str, name: str, *, apart: bool = False) -> int:
    """Run the Python blocks of a page in one namespace; errors carry the page's name and line. Returns how many ran.

    ``apart`` runs each in a namespace of its own.
    """
    namespace: dict[str, object] = {"__name__": "__main__"}
    found = blocks(page, "python", "pycon")
    for block in found:
        if apart:
            namespace = {"__name__": "__main__"}
        if block.text.lstrip().startswith(">>>"):
            run_examples(doctest.DocTestParser().get_doctest(block.text, namespace, name, name, block.line - 1))
        else:
            try:
                exec(compile("\n" * (block.line - 1) + block.text, name, "exec"), namespace)
            except ImportError as error:
                skip_without_an_extra(str(error))
                raise
    return len(found)


def skip_without_an_extra(message: str) -> None:
    """Skip a test where the library has said which of its extras is missing."""
    if missing := re.search(r'pip install "representer\[(\w+)\]"', message):
        pytest.skip(f"the extra {missing[1]!r} is not installed")


def run_examples(test: doctest.DocTest) -> int:
    """Run one set of >>> examples in its own namespace, which is kept. Returns how many ran."""
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    namespace = test.globs
    runner.run(test, out=report.append, clear_globs=False)
    namespace.update(test.globs)
    if runner.failures:
        skip_without_an_extra("".join(report))
        pytest.fail("".join(report), pytrace=False)
    return runner.tries


def docstring_tests(module: object, name: str) -> list[doctest.DocTest]:
    """The docstrings of a module that hold examples, each with a namespace of its own that starts empty."""
    found = doctest.DocTestFinder(exclude_empty=True).find(module, name, globs={})
    return [test for test in found if test.examples]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Examples run in an empty folder, and their figures are closed after them."""
    monkeypatch.chdir(tmp_path)
    yield
    if importlib.util.find_spec("matplotlib"):
        importlib.import_module("matplotlib.pyplot").close("all")


# They fit until all digits are there, for seconds.
LONG = {
    f"docs/{name}.md"
    for name in (
        *("deep_kernel_pca", "deep_kernels", "embeddings", "explain", "getting_started", "large_data"),
        *("strings", "uncertainty"),
    )
}
LONG |= {f"docs/{name}.md" for name in ("own_network", "ridge", "saving")}


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    "path",
    tiers({str(path.relative_to(ROOT)): path for path in sorted({*PAGES} - {README})}, lambda name: name not in LONG),
)
def test_code_of_a_page_runs(path: Path) -> None:
    """That of the README runs where what it prints is looked at."""
    run_page(path.read_text(encoding="utf-8"), path.name)


def test_the_readme_is_short_and_begins_with_one_example() -> None:
    page = README.read_text(encoding="utf-8")
    assert len(page.split()) <= 700
    assert [len(block.text.splitlines()) <= 10 for block in blocks(page, "python", "pycon")] == [True]


@pytest.mark.usefixtures("elsewhere")
def test_the_readme_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = blocks(README.read_text(encoding="utf-8"), "python")
    code = re.sub(r"^(model\.score\(.*?\))", r'print(f"R² {\1:.2f}")', block.text, flags=re.MULTILINE)
    run_page(f"```python\n{code}\n```", "README.md")
    said = re.findall(r"#\s*(ethanol.*|R² \d\.\d\d)", block.text)
    assert capsys.readouterr().out.splitlines() == said


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("path", MODULES, ids=[str(path.relative_to(SOURCE)) for path in MODULES])
def test_docstring_examples_run(path: Path) -> None:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    for test in docstring_tests(importlib.import_module(name), name):
        run_examples(test)


# --- commands --------------------------------------------------------------------------------------------------------

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TARGETS = set(re.findall(r"^([a-z][\w-]*):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
SHELL = {"cd", "export", "source", "git"}  # git: may be absent where the tests run


def commands(block: Block) -> list[list[str]]:
    """The commands of a shell block as lists of words. In a console block only what follows a prompt."""
    lines = block.text.replace("\\\n", " ").splitlines()
    if block.language == "console" or any(line.startswith("$ ") for line in lines):
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    found = []
    for line in lines:
        lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;<>")
        lexer.whitespace_split = True
        command: list[str] = []
        for word in [*lexer, ";"]:
            if set(word) <= set("&|;"):
                found.append(command)
                command = []
            elif command or not re.match(r"\w+=", word):  # VARIABLE=value before a command
                command.append(word)
    return [command for command in found if command]


def command_problems(command: list[str]) -> list[str]:
    """Why a command would not work in a fresh clone."""
    program, arguments = command[0].rpartition("/")[2], command[1:]
    words = [word for word in arguments if not word.startswith("-") and "=" not in word]
    if program == "make":
        return [f"make has no target {word!r}" for word in words if word not in TARGETS]
    if program in ("python", "python3"):
        if "-m" in arguments:
            module = arguments[arguments.index("-m") + 1].split(".")[0]
            return [] if importlib.util.find_spec(module) else [f"there is no module {module!r}"]
        return [f"there is no file {word!r}" for word in words[:1] if not (ROOT / word).is_file()]
    if program in ("pip", "pip3"):
        extras = [
            name.strip() for word in words for group in re.findall(r"\[(.*?)\]", word) for name in group.split(",")
        ]
        return [f"there is no extra {name!r}" for name in extras if name not in PROJECT["optional-dependencies"]]
    if (
        program in SHELL
        or program in PROJECT.get("scripts", {})
        or (ROOT / command[0]).is_file()
        or shutil.which(program)
    ):
        return []
    return [f"there is no command {command[0]!r}"]


@pytest.mark.parametrize("path", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_commands_of_a_page_exist(path: Path) -> None:
    found = blocks(path.read_text(encoding="utf-8"), "bash", "sh", "shell", "console")
    problems = [
        f"{path.name}:{block.line}: {shlex.join(command)}: {problem}"
        for block in found
        for command in commands(block)
        for problem in command_problems(command)
    ]
    assert not problems, "\n".join(problems)


def test_the_readme_shows_how_to_start() -> None:
    found = blocks(README.read_text(encoding="utf-8"), "bash", "sh", "shell", "console")
    shown = {shlex.join(command) for block in found for command in commands(block)}
    assert {"make demo", "make test"} <= shown


# --- references ------------------------------------------------------------------------------------------------------


def missing_files(page: str) -> list[str]:
    """The files in backticks that are neither in the checkout nor in the package; outputs and patterns are left out."""
    named = set(re.findall(r"`((?:\w[\w.-]*/)+[\w.-]+\.(?:py|md|json|svg|txt))`", page))
    named = {name for name in named if "_output/" not in name and not name.startswith("experiments/")}
    return sorted(name for name in named if not ((ROOT / name).exists() or (SOURCE / name).exists()))


def decision_numbers(page: str) -> list[int]:
    """The numbers of the decisions that a text refers to."""
    return [int(number) for number in re.findall(r"[Dd]ecisions? (\d+)", page)]


@pytest.mark.parametrize("path", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_files_that_a_page_names_exist(path: Path) -> None:
    assert missing_files(path.read_text(encoding="utf-8")) == []


def missing_tests(page: str) -> list[str]:
    """The tests that a page names, as ``tests/room/test_file.py::test_name``, and that are not there.

    A name without a file, ``::test_name``, is of the file before it.
    """
    missing, file = [], ""
    for path, name in re.findall(r"(tests/[\w/]+\.py)?(?:::(test_\w+))?", page):
        file = path or file
        text = (ROOT / file).read_text(encoding="utf-8") if file and (ROOT / file).is_file() else ""
        if (path and not text) or (name and f"def {name}(" not in text):
            missing.append(f"{file}::{name}")
    return missing


def test_the_oracles_of_the_papers_exist() -> None:
    page = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    assert missing_tests(page) == []
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith(("| paper", "| ---"))]
    assert len(rows) >= 150
    assert [row for row in rows if "::test_" not in row and "tests/" not in row and "out of scope" not in row] == []


def test_missing_oracles_are_found() -> None:
    page = "`tests/test_documentation.py::test_missing_oracles_are_found`, `::test_nothing`, `tests/no.py::test_it`"
    assert missing_tests(page) == ["tests/test_documentation.py::test_nothing", "tests/no.py::test_it"]


def test_decisions_are_numbered_and_references_to_them_exist() -> None:
    page = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8")
    numbers = [int(number) for number in re.findall(r"^### (\d+)\. ", page, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    texts = [*PAGES, *MODULES, *(ROOT / "tests").rglob("*.py")]
    wrong = {
        path.name: unknown
        for path in texts
        if path != Path(__file__)
        and (unknown := set(decision_numbers(path.read_text(encoding="utf-8"))) - set(numbers))
    }
    assert not wrong


def test_wrong_references_are_found() -> None:
    page = "`kernels/base.py`, `docs/conf.py`, `docs/nothing.md`, `demo_output/index.md`; decision 3, decisions 40"
    assert missing_files(page) == ["docs/nothing.md"]
    assert decision_numbers(page) == [3, 40]


# --- the docstrings of learners --------------------------------------------------------------------------------------


def numpydoc_sections(docstring: str) -> dict[str, str]:
    """The sections of a numpydoc docstring by title."""
    parts = re.split(r"^([A-Z][A-Za-z ]*)\n-{3,}[ ]*\n", docstring + "\n", flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def documented(section: str) -> dict[str, str]:
    """The entries `name, name : type` of a section, each with its type."""
    entries = re.findall(r"^(\w[\w, ]*?)[ ]*(?::[ ]*(.*))?$", section, flags=re.MULTILINE)
    return {name.strip(): kind for names, kind in entries for name in names.split(",")}


def learner_problems(learner: type) -> list[str]:
    """What the docstring of a learner leaves out, or says about parameters and defaults that is not so."""
    sections = numpydoc_sections(inspect.cleandoc(learner.__doc__ or ""))
    learns = not hasattr(learner, "__sklearn_is_fitted__")  # a transformer that is always fitted has no attributes
    problems = [
        f"no section {title!r}" for title in SECTIONS if title not in sections and (learns or title != "Attributes")
    ]
    if not re.search(r"^>>> ", sections.get("Examples", ""), flags=re.MULTILINE):
        problems.append("no example that runs")
    described = documented(sections.get("Parameters", ""))
    actual = {name: parameter.default for name, parameter in inspect.signature(learner).parameters.items()}
    problems += [f"parameter {name!r} is not described" for name in actual if name not in described]
    problems += [f"{name!r} is described but is not a parameter" for name in described if name not in actual]
    for name in described.keys() & actual.keys():
        stated = re.search(r"default[ =:]+(.+?)\.?$", described[name])
        try:
            said = ast.literal_eval(stated[1].strip("`")) if stated else actual[name]
        except (ValueError, SyntaxError):
            continue  # the default is an object, or is told in words
        if said != actual[name]:
            problems.append(f"the default of {name!r} is {actual[name]!r}, not {said!r}")
    return problems


def learners() -> list[str]:
    package = importlib.import_module("representer")
    return [
        name
        for name in package.__all__
        if inspect.isclass(getattr(package, name)) and hasattr(getattr(package, name), "fit")
    ]


def test_public_names_exist_and_learners_say_what_they_do() -> None:
    package = importlib.import_module("representer")
    assert not [name for name in package.__all__ if not hasattr(package, name)]
    assert "OperatorRidge" in learners()
    problems = [f"{name}: {problem}" for name in learners() for problem in learner_problems(getattr(package, name))]
    assert not problems, "\n".join(problems)


def description(learner: str, parameter: str) -> str:
    """What the docstring of a learner says about a parameter; nothing where it has none of that name."""
    text = inspect.cleandoc(getattr(importlib.import_module("representer"), learner).__doc__)
    entry = re.search(rf"^{parameter} : .*\n((?: {{4}}.*\n)+)", text, flags=re.MULTILINE)
    return entry[1] if entry else ""


def test_learners_say_the_same_about_the_memory_that_is_not_bounded() -> None:
    (text,) = {description(name, "memory_limit") for name in learners()} - {""}
    assert "nor the search for hyperparameters" in text


def test_learners_by_libsvm_say_how_far_a_time_budget_may_be_exceeded() -> None:
    by_libsvm = {name for name in learners() if re.search("hinge|epsilon_insensitive", description(name, "max_time"))}
    assert by_libsvm == {"DeepKernelClassifier", "DeepKernelRegressor"}


# --- the API reference and notebooks ---------------------------------------------------------------------------------


def documentation_settings() -> types.ModuleType:
    """The settings of Sphinx, which write the pages of the API."""
    spec = importlib.util.spec_from_file_location("conf", ROOT / "docs" / "conf.py")
    assert spec is not None and spec.loader is not None
    conf = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(conf)
    return conf


def missing_entries(pages: dict[str, str], names: dict[str, list[str]]) -> list[str]:
    """The public names that no page of the API shows: in full by a directive, or in a list of constants."""
    shown = set(re.findall(r"^\.\. auto(?:class|function):: (\S+)", "\n".join(pages.values()), re.M))
    constants = {
        f"{module.removeprefix('rooms/')}.{name}"
        for module, page in pages.items()
        for line in re.findall(r"^Constants: (.*)", page, re.M)
        for name in re.findall(r"``(\w+)``", line)
    }
    return [f"{m}.{n}" for m in names for n in names[m] if f"{m}.{n}" not in shown | constants]


def test_every_public_name_is_in_the_api_reference() -> None:
    conf = documentation_settings()
    pages = conf.api_pages()
    names = {module: conf.public_names(importlib.import_module(module)) for module in conf.public_modules()}
    assert missing_entries(pages, names) == []
    assert "OperatorRidge" in names["representer"] and "ESOL" in names["representer.datasets"]
    assert not [name for module in names for name in [*module.split("."), *names[module]] if name.startswith("_")]
    assert "plot_boiling_points.py" in pages["representer.OperatorRidge"]  # the gallery
    del pages["representer.kernels.Gaussian"]
    assert missing_entries(pages, names) == ["representer.kernels.Gaussian"]


def test_pages_of_tasks_are_notebooks() -> None:
    conf = documentation_settings()
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for name in conf.TASKS:
        page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        cells = json.loads(conf.notebook(page))["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        assert code == [block.text.strip("\n") for block in blocks(page, "python")]
        assert f"\n{name}\n" in index


def test_pages_say_what_people_search_for() -> None:
    titles = {
        path.stem: " ".join(re.findall(r"^#+ .*", path.read_text(encoding="utf-8"), re.M)).lower()
        for path in (ROOT / "docs").glob("*.md")
    }
    for word in ("uncertainty", "gpu", "saving", "categories", "gaps", "molecules"):
        assert any(word in title for title in titles.values()), word


def test_pages_link_to_pages_that_exist() -> None:
    broken = []
    for path in PAGES:
        page = re.sub(r"```.*?```|\$+[^$]*\$+", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", page):
            file = target.partition("#")[0]
            if re.match(r"https://[\w.-]+\.\w+(/\S*)?$", target) or file.startswith("auto_examples/"):
                continue  # there is no network here; the gallery is made by Sphinx, which checks these
            if target.startswith("http") or (file and not (path.parent / file).exists()):
                broken.append(f"{path.name}: {target}")
    assert broken == []


# --- the checks can fail ---------------------------------------------------------------------------------------------

PAGE = """\
text
```python
x = 1
```
  ```python
  assert x == {value}
  ```
```text
not code
```
```pycon
>>> x + 1
{sum}
```
"""


def test_wrong_code_on_a_page_is_found() -> None:
    assert run_page(PAGE.format(value=1, sum=2), "page.md") == 3
    with pytest.raises(AssertionError) as caught:
        run_page(PAGE.format(value=2, sum=2), "page.md")
    place = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (place.filename, place.lineno) == ("page.md", 6)
    with pytest.raises(pytest.fail.Exception, match=r"Expected:\s+3\s+Got:\s+2"):
        run_page(PAGE.format(value=1, sum=3), "page.md")
    with pytest.raises(NameError):
        run_page(PAGE.format(value=1, sum=2), "page.md", apart=True)


def test_only_a_missing_extra_excuses_an_example() -> None:
    for message, excuse in (('Needs it: pip install "representer[graphs]".', True), ("No module 'x'", False)):
        page = f"```python\nraise ImportError({message!r})\n```\n"
        with pytest.raises(pytest.skip.Exception if excuse else ImportError):
            run_page(page, "page.md")
        examples = f"```pycon\n>>> raise ImportError({message!r})\n```\n"
        with pytest.raises(pytest.skip.Exception if excuse else pytest.fail.Exception):
            run_page(examples, "page.md")


def test_wrong_docstring_examples_are_found() -> None:
    def right() -> None:
        """>>> 1 + 1
        2
        >>> print("a    b", 1.23456)
        a b 1.23...
        """

    def wrong() -> None:
        """>>> 1 + 1
        3
        """

    assert [run_examples(test) for test in docstring_tests(right, "right")] == [2]
    with pytest.raises(pytest.fail.Exception, match=r"Expected:\s+3\s+Got:\s+2"):
        [run_examples(test) for test in docstring_tests(wrong, "wrong")]


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("make test demo", 0),
        ("cd representer && make nonsense  # comment", 1),
        ("OMP_NUM_THREADS=1 make test WORKERS=4 -j2", 0),
        ("make nonsense | tail; make other", 2),
        ("pip install '.[plot,cli]'", 0),
        ("pip install '.[plot,nonsense]'", 1),
        (".venv/bin/python docs/conf.py --out x", 0),
        ("python nonsense.py", 1),
        ("python -m pytest -k kernels", 0),
        ("python -m nonsense", 1),
        ("nonsense --help", 1),
        ("bash .ci/run", 0),
    ],
)
def test_wrong_commands_are_found(line: str, count: int) -> None:
    found = commands(Block("bash", line, 1))
    assert sum(len(command_problems(command)) for command in found) == count
    prompted = commands(Block("console", f"$ {line}\nnonsense that was printed\n", 1))
    assert prompted == found


class Documented:
    """min ‖y − f‖².

    Parameters
    ----------
    alpha : float or "auto", default="auto"
        The penalty:

        nested : not a parameter
    size, depth : int
        Sizes.

    Attributes
    ----------
    alpha_ : float
        The penalty used.

    Examples
    --------
    >>> 1 + 1
    2
    """

    def __init__(self, *, alpha: float | str = "auto", size: int = 1, depth: int = 1) -> None: ...

    def fit(self) -> None: ...


def test_wrong_docstrings_of_learners_are_found() -> None:
    assert learner_problems(Documented) == []

    class OtherParameters(Documented):
        __doc__ = Documented.__doc__

        def __init__(self, *, alpha: float = 1.0, size: int = 1, width: int = 2) -> None: ...

    assert learner_problems(OtherParameters) == [
        "parameter 'width' is not described",
        "'depth' is described but is not a parameter",
        "the default of 'alpha' is 1.0, not 'auto'",
    ]

    class Silent(Documented):
        """Nothing."""

    assert len(learner_problems(Silent)) == 3 + 1 + 3
