"""The source distribution makes a wheel, the wheel installs into an empty environment, and an example runs there."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLE = """
import sys, importlib.metadata, representer
from representer import OperatorRidge
from representer.datasets import load_boiling_points
assert representer.__file__.startswith(sys.prefix), representer.__file__
table = load_boiling_points()
weights = [[row["weight"]] for row in table.data]
print(OperatorRidge("rbf").fit(weights, table.target).predict(weights[:1]), importlib.metadata.version("representer"))
"""


def run(*command: str | Path, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """The interpreter of an environment that has hatchling, and sees the dependencies (torch!) of the one that runs."""
    run(sys.executable, "-m", "venv", tmp_path / "empty", cwd=tmp_path)
    python = tmp_path / "empty" / "bin" / "python"
    try:
        run(python, "-m", "pip", "install", "-q", "--retries", "0", "--timeout", "15", "hatchling>=1.26", cwd=tmp_path)
    except AssertionError as error:
        pytest.skip(f"pip finds no hatchling here, so nothing is built: {str(error).strip()[-200:]}")
    # A path in a .pth file is searched, but its own .pth files, such as that of an editable install, are not.
    packages = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip()
    Path(packages, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return python


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="the folders of an environment have other names there")
def test_the_distributions_are_built_installed_and_run(environment: Path, tmp_path: Path) -> None:
    build = "import sys; from hatchling import build; print(build.build_sdist(sys.argv[1]))"
    archive = tmp_path / run(environment, "-c", build, tmp_path, cwd=ROOT).strip().splitlines()[-1]
    with tarfile.open(archive) as sources:
        names = {name.partition("/")[2] for name in sources.getnames()}
        sources.extractall(tmp_path, filter="data")
    assert {"pyproject.toml", "README.md", "LICENSE", "tests/test_packaging.py", "src/representer/py.typed"} <= names
    folder = tmp_path / archive.name.removesuffix(".tar.gz")
    install = (environment, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation")
    run(environment, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", folder, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        held = set(files.namelist())
    assert {"representer/py.typed", "representer/datasets/boiling_points.csv"} <= held
    assert all(name.startswith("representer") for name in held)  # neither tests nor papers
    run(*install, wheel, cwd=tmp_path)
    assert "0.1" in run(environment, "-c", EXAMPLE, cwd=tmp_path)
    assert "Usage" in run(environment, "-m", "representer", "--help", cwd=tmp_path)
