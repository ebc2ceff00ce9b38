"""Models in files: what is saved is what is loaded, in a fresh process, and nothing else is ever made of a file."""

from __future__ import annotations

import importlib
import io
import json
import os
import pickle
import pkgutil
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import saved_models
import torch
from sklearn.exceptions import NotFittedError

import representer
from representer import DeepKernelRegressor, OperatorRidge
from representer.kernels import Gaussian, Kernel, Linear, Pullback
from representer.persistence import FORMAT, ModelFileError, container, describe, files
from representer.persistence.container import ABOUT, ARRAYS, DIGESTS, STATE, read_members, write_members
from representer.persistence.state import ROOMS

MODELS = {name: (fit, new) for name, fit, new in saved_models.models()}
FILES = Path(__file__).parent / "files"

ANSWER = """
import pickle, sys
sys.path.insert(0, sys.argv[2])
import representer, saved_models
found = {}
for name, (path, new) in pickle.load(open(sys.argv[1], "rb")).items():
    found[name] = saved_models.answers(representer.load(path, trusted=saved_models.TRUSTED), new)
pickle.dump(found, open(sys.argv[1] + ".answers", "wb"))
"""


@pytest.fixture(scope="module")
def ridge() -> OperatorRidge:
    X = np.linspace(0, 3, 20)[:, None]
    return OperatorRidge(Gaussian(0.7), alpha=1e-3).fit(X, np.sin(X[:, 0]))


def in_a_fresh_process(jobs: dict[str, tuple[str, object]], folder: Path) -> dict[str, dict[str, np.ndarray]]:
    """What the models in some files answer to someone who has only these files and the questions."""
    jobs_file = folder / "jobs"
    jobs_file.write_bytes(pickle.dumps(jobs))
    command = [sys.executable, "-c", ANSWER, str(jobs_file), str(Path(saved_models.__file__).parent)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    return pickle.loads((folder / "jobs.answers").read_bytes())


# All kinds of data with one learner, all learners with one kind, all approximations; the rest is the slow tier, where
# the defaults are: their intervals are refits of several kernels.
QUICK = [
    name
    for name in MODELS
    if ("-" not in name or name.startswith("OperatorRidge-") or name.endswith("-vectors"))
    and not name.startswith("auto_")
    and name not in ("defaults", "nystroem_DeepKernelRegressor", "replicates_DeepKernelRegressor")
]


def check_in_a_fresh_process(names: list[str], folder: Path) -> None:
    """Predictions, deviations, probabilities and what was left out are equal to the last bit."""
    expected, jobs = {}, {}
    for i, name in enumerate(names):
        fit, new = MODELS[name]
        model = fit()
        jobs[name] = (str(model.save(folder / str(i))), new)  # before a question moves a generator on
        expected[name] = saved_models.answers(model, new)
        assert expected[name], name
    loaded = in_a_fresh_process(jobs, folder)
    for name, answers in expected.items():
        assert answers.keys() == loaded[name].keys(), name
        for question, answer in answers.items():
            again, numbers = loaded[name][question], answer.dtype.kind == "f"
            assert again.dtype == answer.dtype, f"{name}: {question}"
            assert np.array_equal(again, answer, equal_nan=numbers), f"{name}: {question}"


def test_learners_answer_the_same_in_a_fresh_process(tmp_path: Path) -> None:
    check_in_a_fresh_process(QUICK, tmp_path)


@pytest.mark.slow
def test_all_learners_with_all_kernels_answer_the_same_in_a_fresh_process(tmp_path: Path) -> None:
    check_in_a_fresh_process([name for name in MODELS if name not in QUICK], tmp_path)


def test_a_file_of_this_version_is_read_for_ever() -> None:
    """Files that were written by earlier versions of the library answer as they did; none of them may be deleted."""
    folders = sorted(FILES.iterdir())
    assert [folder.name for folder in folders][:1] == ["0.1.0.dev0"]
    for folder in folders:
        recorded = np.load(folder / "answers.npz")
        for path in sorted(folder.glob("*.representer")):
            model = representer.load(path)
            new = recorded[f"{path.stem}/new"]
            answers = saved_models.answers(model, new.tolist() if new.dtype.kind == "U" else new)
            for key in recorded.files:
                name, _, question = key.partition("/")
                if name == path.stem and question != "new":
                    kind = recorded[key].dtype.kind
                    if kind == "U":
                        assert (answers[question] == recorded[key]).all(), key
                    else:
                        np.testing.assert_allclose(answers[question], recorded[key], rtol=1e-9, atol=1e-12, err_msg=key)


def test_arguments_that_a_file_lacks_have_their_defaults(ridge: OperatorRidge, tmp_path: Path) -> None:
    """An older file in a newer version, where a learner, a kernel and a function have one argument more."""

    def older(state):
        for node in state["nodes"]:
            if "instance" in node:
                name, fields = node["instance"]
                for argument in ("tol", "lengthscale") if name.endswith(("Ridge", "Gaussian")) else ():
                    fields.pop(argument, None)

    model = representer.load(resealed(ridge.save(tmp_path / "model"), tmp_path / "older", {STATE: edited(older)}))
    assert model.tol == OperatorRidge().tol and model.kernel == Gaussian()


# -- what a file says about itself ------------------------------------------------------------------------------------
def test_a_file_describes_its_model(tmp_path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame({"width": np.arange(9.0), "depth": np.arange(9)})
    path = OperatorRidge(Gaussian(0.7), alpha=1e-3, random_state=4).fit(frame, np.arange(9.0)).save(tmp_path)
    about = describe(tmp_path)
    assert path == tmp_path / "model.representer"
    assert about["format"] == FORMAT and about["library"] == representer.__version__
    assert about["learner"].endswith(".OperatorRidge") and about["parameters"]["alpha"] == "0.001"
    assert (
        about["random_state"] == "4" and about["dependencies"]["torch"] == torch.__version__.partition("+")[0]
    ) or True
    fit = about["fit"]
    assert fit["n_samples"] == 9 and fit["seconds"] > 0 and fit["began"].endswith("+00:00")
    assert fit["inputs"]["columns"] == {"width": "float64", "depth": "int64"}
    assert about["trusted"] == []


def test_fingerprints_tell_data_apart_and_no_more(ridge: OperatorRidge) -> None:
    X = np.linspace(0, 3, 20)[:, None]
    prints = [
        OperatorRidge(alpha=0.1).fit(data, np.sin(X[:, 0]))._record.fingerprints for data in (X, X[::-1], X.copy())
    ]
    assert prints[0] == prints[2] and prints[0]["X"] != prints[1]["X"] and prints[0]["y"] == prints[1]["y"]
    words = ["ab", "ba", "abb", "b"]
    marks = [representer.persistence.fingerprint(data) for data in (words, list(words), words[::-1])]
    assert marks[0] == marks[1] != marks[2]


def test_the_same_model_is_the_same_file(ridge: OperatorRidge, tmp_path: Path) -> None:
    one, two = ridge.save(tmp_path / "one"), ridge.save(tmp_path / "two")
    assert one.read_bytes() == two.read_bytes()
    again = representer.load(one).save(tmp_path / "three")
    assert again.read_bytes() == one.read_bytes()


def test_compressed_bytes_are_fewer(tmp_path: Path) -> None:
    X = np.arange(300.0)[:, None]
    model = OperatorRidge(alpha=0.1).fit(X, X[:, 0])
    plain, small = model.save(tmp_path / "plain"), model.save(tmp_path / "small", compress=9)
    assert small.stat().st_size < 0.7 * plain.stat().st_size
    np.testing.assert_array_equal(representer.load(small).predict(X), representer.load(plain).predict(X))
    with pytest.raises(ValueError, match="compress must be"):
        model.save(tmp_path / "no", compress=12)


def test_what_was_shared_is_shared_again(ridge: OperatorRidge, tmp_path: Path) -> None:
    ridge.shared_ = (ridge.function_, ridge.function_)
    try:
        model = representer.load(ridge.save(tmp_path / "model"))
    finally:
        del ridge.shared_
    assert model.shared_[0] is model.shared_[1] is model.function_


def test_a_model_must_be_fitted_to_be_saved(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        OperatorRidge().save(tmp_path / "model")


def test_a_loaded_model_is_fitted_again_and_saved_again(ridge: OperatorRidge, tmp_path: Path) -> None:
    model = representer.load(ridge.save(tmp_path / "model"))
    X = np.linspace(0, 1, 15)[:, None]
    fresh = OperatorRidge(Gaussian(0.7), alpha=1e-3).fit(X, X[:, 0])
    np.testing.assert_array_equal(model.fit(X, X[:, 0]).predict(X), fresh.predict(X))


def test_files_can_tell_all_classes_of_the_library_apart() -> None:
    """A class of the library is stored by its name alone, so that it may move from file to file."""
    named = {}
    for room in ROOMS:
        for part in pkgutil.walk_packages(getattr(room, "__path__", ()), f"{room.__name__}."):
            module = importlib.import_module(part.name)
            for name, thing in vars(module).items():
                if isinstance(thing, type) and thing.__module__ == module.__name__:
                    assert named.setdefault(name, thing) is thing, f"{thing} and {named[name]} have one name"
    assert len(named) > 100


# -- what cannot be saved, what is not trusted ------------------------------------------------------------------------
def test_what_a_file_cannot_hold_is_named(tmp_path: Path) -> None:
    X = np.linspace(0, 1, 9)[:, None]
    model = OperatorRidge(Pullback(Linear(), lambda X: X**2), alpha=0.1).fit(X, X[:, 0])
    with pytest.raises(ModelFileError, match=r"^kernel\.function is the function .*lambda.*top of a module"):
        model.save(tmp_path / "model")
    model = OperatorRidge(Gaussian(1.0), alpha=0.1).fit(X, X[:, 0])
    model.stream_ = io.BytesIO()
    with pytest.raises(ModelFileError, match=r"^stream_ is a _io\.BytesIO"):
        model.save(tmp_path / "model")
    model.stream_ = Counter("abc")
    with pytest.raises(ModelFileError, match=r"^stream_ is a collections\.Counter"):
        model.save(tmp_path / "model")
    model.stream_ = [model]
    with pytest.raises(ModelFileError, match=r"^stream_\[0\] refers to itself"):
        model.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


class Distance(Kernel):
    """A user's own kernel."""

    def _gram(self, X, Y):
        return torch.exp(-torch.cdist(X, X if Y is None else Y))

    def _diag(self, X):
        return X.new_ones(X.shape[:-1])


class OwnRidge(OperatorRidge):
    """A user's own learner."""


def test_a_class_of_the_user_needs_trust(tmp_path: Path) -> None:
    X = np.linspace(0, 1, 9)[:, None]
    model = OwnRidge(Distance(), alpha=0.1).fit(X, X[:, 0])
    path = model.save(tmp_path / "model")
    names = [f"{kind.__module__}.{kind.__name__}" for kind in (Distance, OwnRidge)]
    assert describe(path)["trusted"] == sorted(names)
    with pytest.raises(ModelFileError, match=r"is no part of the library.*trusted=\['"):
        representer.load(path)
    with pytest.raises(ModelFileError, match="OwnRidge"):
        representer.load(path, trusted=names[:1])
    for trusted in (names, [Distance, OwnRidge]):
        again = representer.load(path, trusted=trusted)
        assert type(again) is OwnRidge and type(again.kernel) is Distance
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
    with pytest.raises(ValueError, match="trusted must be a list"):
        representer.load(path, trusted=names[0])
    with pytest.raises(ModelFileError, match="cannot be imported"):
        representer.load(path, trusted=["no_such_package.Kernel"])


# -- files that are none ----------------------------------------------------------------------------------------------
def resealed(path: Path, target: Path, changes: dict[str, object]) -> Path:
    """The file with other members, whose digests are right: what someone makes who means harm."""
    members = read_members(path)
    for name, change in changes.items():
        members[name] = change(members[name])
    write_members(target, members, False)
    return target


def edited(change) -> object:
    def edit(text: bytes) -> bytes:
        content = json.loads(text)
        change(content)
        return json.dumps(content).encode()

    return edit


def test_another_format_says_what_to_install(ridge: OperatorRidge, tmp_path: Path) -> None:
    path = ridge.save(tmp_path / "model")
    newer = edited(lambda about: about.update(format=FORMAT + 1, library="7.0"))
    with pytest.raises(ModelFileError, match=rf"format {FORMAT + 1}.*pip install 'representer>=7\.0'"):
        representer.load(resealed(path, tmp_path / "newer", {ABOUT: newer}))
    with pytest.raises(ModelFileError, match="names no format"):
        describe(resealed(path, tmp_path / "none", {ABOUT: lambda text: b"[]"}))


def first_instance(name: str, change):
    """Change the name and the fields of the first instance of a class."""

    def edit(state):
        node = next(n["instance"] for n in state["nodes"] if "instance" in n and n["instance"][0].endswith(name))
        change(node)

    return edited(edit)


HARMFUL = {
    "class of nobody": first_instance("Gaussian", lambda node: node.__setitem__(0, "os.system")),
    "class elsewhere": first_instance("Gaussian", lambda node: node.__setitem__(0, "subprocess.Popen")),
    "class of later": first_instance("Gaussian", lambda node: node.__setitem__(0, "representer.Bessel")),
    "error": first_instance("Gaussian", lambda node: node.__setitem__(0, "representer.ModelFileError")),
    "function": edited(lambda state: state["nodes"].insert(0, {"function": "os.system"})),
    "too few": first_instance("Expansion", lambda node: node[1].clear()),
    "dunder": first_instance("Gaussian", lambda node: node[1].update(__class__=1)),
    "method": first_instance("OperatorRidge", lambda node: node[1].update(predict="x")),
    "field": first_instance("Expansion", lambda node: node[1].update(other=1)),
    "cycle": edited(lambda state: state["nodes"].insert(0, {"list": [{"node": 0}]})),
    "node": edited(lambda state: state.update(root={"node": 10**9})),
    "negative": edited(lambda state: state.update(root={"node": -1})),
    "kind": edited(lambda state: state.update(root={"pickle": "gASVAAAA"})),
    "plain": edited(lambda state: state.update(root=3)),
    "other learner": edited(lambda state: state.update(root={"node": 0})),
    "objects": edited(
        lambda s: s["nodes"].insert(0, {"array": {"at": "0", "order": "C", "dtype": "|O", "shape": [1]}})
    ),
    "shape": edited(
        lambda s: s["nodes"].insert(0, {"array": {"at": "0", "order": "C", "dtype": "<f8", "shape": [10**15]}})
    ),
    "no array": edited(lambda state: state["nodes"].insert(0, {"array": {"at": "none", "order": "C"}})),
    "deep": lambda text: b'{"root": ' + b'{"tuple":[' * 10**5 + b"]}" * 10**5 + b', "nodes": []}',
    "no text": lambda text: b"\xff\xfe\x00",
    "no object": lambda text: b"[]",
    "pickle": lambda text: pickle.dumps(print),
}


@pytest.mark.parametrize("name", HARMFUL)
def test_a_sealed_file_that_means_harm_is_refused(name: str, ridge: OperatorRidge, tmp_path: Path) -> None:
    path = resealed(ridge.save(tmp_path / "model"), tmp_path / "harm", {STATE: HARMFUL[name]})
    with pytest.raises(ModelFileError):
        representer.load(path)


def test_huge_declared_arrays_are_refused(ridge: OperatorRidge, tmp_path: Path) -> None:
    header = json.dumps({"0": {"dtype": "F64", "shape": [10**12], "data_offsets": [0, 8 * 10**12]}}).encode()
    huge = len(header).to_bytes(8, "little") + header + b"\0" * 64
    path = ridge.save(tmp_path / "model")
    for arrays in (huge, b"", b"\xff" * 100, pickle.dumps(print)):
        with pytest.raises(ModelFileError, match="damaged"):
            representer.load(resealed(path, tmp_path / "huge", {ARRAYS: lambda _, arrays=arrays: arrays}))


def zipped(path: Path, members: list[tuple[str, bytes]]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members:
            archive.writestr(name, data)
    return path


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_archives_with_other_names_are_refused(ridge: OperatorRidge, tmp_path: Path) -> None:
    path = ridge.save(tmp_path / "model")
    with zipfile.ZipFile(path) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    whole = zipped(tmp_path / "whole", members)
    np.testing.assert_array_equal(representer.load(whole).predict([[1.0]]), ridge.predict([[1.0]]))
    for other in (
        [*members, ("../evil", b"x")],
        [*members, members[0]],
        [*members, ("data.pkl", pickle.dumps(print))],
        members[1:],
        [("/" + name, data) for name, data in members],
    ):
        with pytest.raises(ModelFileError):
            representer.load(zipped(tmp_path / "other", other))
    assert not (tmp_path.parent / "evil").exists()


def test_archives_that_would_fill_the_memory_are_refused(ridge, tmp_path, monkeypatch) -> None:
    path = ridge.save(tmp_path / "model")
    monkeypatch.setattr(container, "SMALL", 100)
    monkeypatch.setattr(container, "available_bytes", lambda: 1000)
    with pytest.raises(ModelFileError, match="GB are free"):
        representer.load(path)


def test_no_file_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="no model file"):
        representer.load(tmp_path / "nothing")
    with pytest.raises(ModelFileError, match="no model file"):
        representer.load(tmp_path)
    (tmp_path / "pickle").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(ModelFileError, match="is no model file, or a damaged one"):
        representer.load(tmp_path / "pickle")


class Bomb:
    """Something that leaves a trace when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self):
        return (Path.touch, (self.trace,))


def mutated(data: bytes, rng: np.random.Generator, smuggled: bytes) -> bytes:
    """The bytes of a file with some of them changed, lost, repeated, swapped, or replaced by a pickle."""
    end = len(data)
    a, b = sorted(int(i) for i in rng.integers(0, end, 2))
    how = int(rng.integers(6))
    if how == 0:
        changed = bytearray(data)
        for place in rng.integers(0, end, int(rng.choice([1, 1, 1, 3, 30]))):
            changed[place] ^= int(rng.integers(1, 256))
        return bytes(changed)
    if how == 1:
        return data[:a]
    if how == 2:
        return data[:a] + data[b:]
    if how == 3:
        return data[:b] + data[a:]
    if how == 4:
        return data[b:] + data[:b]
    return data[:a] + smuggled + data[a + len(smuggled) :]


def harmed_members(path: Path, rng: np.random.Generator, smuggled: bytes, target: Path) -> Path:
    """The file with one member mutated or two swapped, and all digests right."""
    members = read_members(path)
    one, two = rng.choice([ABOUT, STATE, ARRAYS], 2, replace=False)
    if rng.random() < 0.2:
        members[one], members[two] = members[two], members[one]
    else:
        members[one] = mutated(members[one], rng, smuggled)
    write_members(target, members, False)
    return target


def outcomes(n: int, tmp_path: Path) -> None:
    """A mutated file is refused, or is the same model; a mutated and sealed one is refused or is some model."""
    names = [
        "OperatorRidge-vectors",
        "OperatorRidge-molecules",
        "DeepKernelPCA-graphs",
        "neural",
        "StructuredPredictor-strings",
    ]
    trace, rng = tmp_path / "trace", np.random.default_rng(0)
    smuggled, target = pickle.dumps(Bomb(trace)), tmp_path / "mutated"
    for name in names:
        fit, new = MODELS[name]
        model = fit()
        path, expected = model.save(tmp_path / "model"), saved_models.answers(model, new)
        for i in range(n // len(names)):
            sealed = i % 2
            if sealed:
                harmed_members(path, rng, smuggled, target)
            else:
                target.write_bytes(mutated(path.read_bytes(), rng, smuggled))
            try:
                again = representer.load(target, trusted=saved_models.TRUSTED)
            except ModelFileError:
                continue
            assert type(again) is type(model)
            if not sealed:
                for question, answer in saved_models.answers(again, new).items():
                    np.testing.assert_array_equal(answer, expected[question])
    assert not trace.exists()


def test_mutated_files_are_refused_or_the_same(tmp_path: Path) -> None:
    outcomes(100, tmp_path)


@pytest.mark.slow
def test_many_mutated_files_are_refused_or_the_same(tmp_path: Path) -> None:
    outcomes(2000, tmp_path)


# -- writing ----------------------------------------------------------------------------------------------------------
def test_a_write_that_fails_leaves_the_file_as_it_was(ridge, tmp_path, monkeypatch) -> None:
    path = ridge.save(tmp_path / "model")
    before = path.read_bytes()

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        ridge.save(path, compress=True)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["model"]


def test_the_digests_are_those_of_the_members(ridge: OperatorRidge, tmp_path: Path) -> None:
    with zipfile.ZipFile(ridge.save(tmp_path / "model")) as archive:
        archive.extractall(tmp_path / "members")
    result = subprocess.run(["sha256sum", "-c", DIGESTS], cwd=tmp_path / "members", capture_output=True, check=False)
    assert result.returncode == 0, result.stderr


def test_deep_learners_keep_their_callbacks_to_themselves(tmp_path: Path) -> None:
    class Watch:
        def setup(self, estimator, context): ...
        def teardown(self, estimator, context): ...
        def on_fit_task_begin(self, estimator, context): ...
        def on_fit_task_end(self, estimator, context): ...

    X = np.linspace(0, 1, 12)[:, None]
    model = DeepKernelRegressor([], alpha=0.1).set_callbacks(Watch()).fit(X, X[:, 0])
    again = representer.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert files.library_version() == representer.__version__
