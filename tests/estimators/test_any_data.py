"""Any data under the default kernel: every learner, what does not matter, what is new at predict time, bad input."""

from __future__ import annotations

import functools
import os
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from tiers import tiers

from representer import (
    ConditionalMeanEmbedding,
    DeepKernelClassifier,
    DeepKernelPCA,
    DeepKernelRegressor,
    EmbeddingClassifier,
    KernelAutoencoder,
    KernelFeatures,
    OperatorRidge,
    StructuredPredictor,
    load,
)
from representer.datasets import load_yacht
from representer.datasets.files import data_folder
from representer.kernels import Category, Columns, Gaussian, Number, Stack, Table, UnknownCategoryWarning, suggest
from representer.samples import as_records, frame_columns

pd = pytest.importorskip("pandas")

N = 24
LEARNERS = {
    "OperatorRidge": OperatorRidge(),
    "EmbeddingClassifier": EmbeddingClassifier(random_state=0),
    "DeepKernelRegressor": DeepKernelRegressor(random_state=0),
    "DeepKernelClassifier": DeepKernelClassifier(random_state=0),
    "ConditionalMeanEmbedding": ConditionalMeanEmbedding(random_state=0),
    "StructuredPredictor": StructuredPredictor(random_state=0),
    "KernelAutoencoder": KernelAutoencoder(2, random_state=0),
    "DeepKernelPCA": DeepKernelPCA([3, 2], "auto", random_state=0),
    "KernelFeatures": KernelFeatures(random_state=0),
}
RNG = np.random.default_rng(0)
LABELS = np.array(["a", "b"] * (N // 2))
FRAME = pd.DataFrame(
    {
        "size": np.where(np.arange(N) % 5 == 0, np.nan, RNG.normal(size=N)),
        "colour": [None if i % 7 == 0 else ("red", "green", "blue")[i % 3] for i in range(N)],
        "weight": RNG.normal(size=N),
    }
)
NUMBERS = np.where(FRAME["colour"] == "red", 1.0, -1.0) * np.sign(FRAME["weight"] - 0.2) + 0.3 * RNG.normal(size=N)


def graphs() -> list[Any]:
    networkx = pytest.importorskip("networkx")
    return [networkx.gnp_random_graph(5 + i % 4, 0.5, seed=i) for i in range(N)]


def smiles() -> list[str]:
    pytest.importorskip("rdkit")
    return [f"{'C' * (1 + i)}c1ccc({'N' if i % 2 else 'O'})cc1" for i in range(N)]


def with_gaps() -> np.ndarray:
    X = np.random.default_rng(1).normal(size=(N, 3))
    X[::5, 1] = np.nan
    return X


DATA: dict[str, Any] = {
    "frame": lambda: FRAME,
    "SMILES": smiles,
    "strings": lambda: ["".join(np.random.default_rng(i).choice(list("abcdefgh"), 6)) for i in range(N)],
    "graphs": graphs,
    "array with gaps": with_gaps,
    "pictures": lambda: np.random.default_rng(2).normal(size=(N, 8, 8)),
}


def fitted(name: str, X: Any) -> Any:
    return clone(LEARNERS[name]).fit(X, LABELS if "Classifier" in name else NUMBERS)


@functools.cache
def fitted_to_frame(name: str) -> Any:
    return fitted(name, FRAME)


def answers(model: Any, X: Any) -> np.ndarray:
    for question in ("predict_proba", "transform", "predict"):
        if hasattr(model, question):
            return getattr(model, question)(X)
    raise AssertionError(model)


# -- every learner, one line ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "kind"),
    tiers(
        [(name, kind) for name in LEARNERS for kind in DATA],
        lambda case: case[1] == "frame" or case[0] == "OperatorRidge",
    ),
)
def test_every_learner_takes_any_data(name: str, kind: str) -> None:
    X = DATA[kind]()
    if kind == "array with gaps":
        assert LEARNERS[name].__sklearn_tags__().input_tags.allow_nan
    model = fitted_to_frame(name) if kind == "frame" else fitted(name, X)
    whole = answers(model, X)
    assert len(whole) == N and np.isfinite(whole).all()
    np.testing.assert_allclose(answers(model, X[:5]), whole[:5], rtol=1e-6, atol=1e-8)


def test_codes_of_rows_with_gaps_keep_what_is_known_of_them() -> None:
    X = np.random.default_rng(0).normal(size=(N, 3))
    X[:, 2] = X[:, 0] - X[:, 1]
    gaps = X.copy()
    gaps[::5, 1] = np.nan
    model = KernelAutoencoder(2, random_state=0).fit(gaps)
    assert model.score(gaps) > 0.8  # in the RKHS of the kernel
    near = model.reconstruct(gaps)  # training rows, with the gaps that they have
    assert np.nanmean((near - X)[1::5] ** 2) < 0.2 * X.var()
    frame = pd.DataFrame(gaps, columns=["a", "b", "c"]).astype("Float64")
    np.testing.assert_allclose(clone(model).fit(frame).transform(frame), model.transform(gaps), atol=1e-6)


def test_kernels_of_vectors_name_the_word_that_takes_other_data() -> None:
    for X in (DATA["strings"](), FRAME.dropna(), DATA["graphs"](), DATA["pictures"]()):
        with pytest.raises(ValueError, match="kernel='auto'"):
            DeepKernelPCA(2, "rbf").fit(X)


def test_features_of_plain_vectors_have_the_kernel_that_they_say() -> None:
    X = np.random.default_rng(0).normal(size=(N, 2))
    for table in (X, X.tolist(), pd.DataFrame(X, columns=["a", "b"])):
        assert KernelFeatures().fit(table).kernel_ == KernelFeatures("rbf").fit(X).kernel_


# -- what does not matter ---------------------------------------------------------------------------------------------
def renamed(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(colour=frame["colour"].map({"red": "z", "green": "0 a", "blue": "ß"}))


def rescaled(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(size=frame["size"] * -3.7e6 + 11.0, weight=frame["weight"] * 2.5e-7)


def in_polars(frame: pd.DataFrame) -> Any:
    polars = pytest.importorskip("polars")
    return polars.DataFrame({name: [None if v != v else v for v in frame[name]] for name in frame})


def in_pyarrow(frame: pd.DataFrame) -> Any:
    return pytest.importorskip("pyarrow").Table.from_pandas(frame, preserve_index=False)


CHANGES: dict[str, Any] = {
    "columns permuted": lambda frame: frame[["weight", "colour", "size"]],
    "levels renamed": renamed,
    "columns rescaled": rescaled,
    "polars": in_polars,
    "pyarrow": in_pyarrow,
    "dictionaries": lambda frame: frame.to_dict("records"),
    "all": lambda frame: rescaled(renamed(frame))[["weight", "colour", "size"]],
}


@pytest.mark.parametrize(
    ("name", "change"),
    tiers(
        [*(("OperatorRidge", change) for change in CHANGES if change != "all"), *((name, "all") for name in LEARNERS)],
        # The first three are parts of "all".
        lambda case: (
            case[1] not in list(CHANGES)[:3]
            and case[0]
            in ("OperatorRidge", "StructuredPredictor", "KernelAutoencoder", "DeepKernelPCA", "KernelFeatures")
        ),
    ),
)
def test_what_does_not_matter(name: str, change: str) -> None:
    changed = CHANGES[change](FRAME)
    expected = answers(fitted_to_frame(name), FRAME)
    np.testing.assert_allclose(answers(fitted(name, changed), changed), expected, rtol=1e-8, atol=1e-8)


TARGETS = {
    "linear": lambda X: X @ [1.0, -2.0, 0.5],
    "without noise": lambda X: np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2],
    "noise": lambda X: np.random.default_rng(2).normal(size=len(X)),
}


@pytest.mark.parametrize("target", tiers(list(TARGETS), lambda name: name == "noise"))
def test_units_do_not_matter_where_the_data_leave_hyperparameters_open(target: str) -> None:
    X = np.random.default_rng(1).normal(size=(60, 3))
    y = TARGETS[target](X)
    predictions = [
        OperatorRidge().fit(inputs[:40], y[:40]).predict(inputs[40:])
        for inputs in (X, (X * [0.3, 7.0, 1e4] + [2.0, -1.0, 5e4])[:, [2, 0, 1]])
    ]
    np.testing.assert_allclose(*predictions, rtol=0, atol=1e-8 * y.std())


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("REPRESENTER_DATA"), reason="REPRESENTER_DATA names no folder of data sets")
@pytest.mark.parametrize("name", ["bodyfat", "servo", "lowbwt", "fishcatch", "yacht", "vote"])
def test_units_and_names_do_not_matter_on_real_tables(name: str) -> None:
    rng = np.random.default_rng(0)
    if name == "yacht":
        bunch = load_yacht()
        frame, y = pd.DataFrame(bunch.data, columns=list("abcdef")), bunch.target
    else:
        frame = pd.read_csv(data_folder() / "tables" / f"{name}.csv").sample(frac=1.0, random_state=0)
        frame, y = frame.iloc[:, :-1], frame.iloc[:, -1].to_numpy()
    rows, new = np.split(rng.permutation(len(frame))[:180], [150])
    changed = pd.DataFrame(index=frame.index)
    for column in rng.permutation(frame.columns):
        values = frame[column]
        if pd.api.types.is_numeric_dtype(values):
            changed[column] = rng.uniform(0.1, 10.0) * values + rng.normal()
        else:
            levels = sorted(values.dropna().unique())
            names = rng.permutation([f"L{i}" for i in range(len(levels))])
            changed[column] = values.map(dict(zip(levels, names, strict=True)))
    learner = EmbeddingClassifier(random_state=0) if name == "vote" else OperatorRidge()
    answer = "predict_proba" if name == "vote" else "predict"
    answers = [
        getattr(clone(learner).fit(table.iloc[rows], y[rows]), answer)(table.iloc[new]) for table in (frame, changed)
    ]
    # Targets without noise put alpha so low that the equations themselves lose digits.
    digits = 1e-6 if name == "yacht" else 1e-8
    np.testing.assert_allclose(*answers, rtol=0, atol=digits * (1.0 if name == "vote" else y.std()))


# -- what is new at predict time --------------------------------------------------------------------------------------
def test_columns_are_found_by_name() -> None:
    model = fitted_to_frame("OperatorRidge")
    expected = model.predict(FRAME)
    other = FRAME[["weight", "colour", "size"]].assign(more="x")
    np.testing.assert_array_equal(model.predict(other), expected)
    np.testing.assert_array_equal(model.predict(in_pyarrow(other)), expected)
    with pytest.raises(ValueError, match="no column 'colour'; there are: 'size', 'weight'"):
        model.predict(FRAME.drop(columns="colour"))
    with pytest.raises(ValueError, match=r"Column 'weight': Row\(s\) 0, 1.*are no numbers.*'heavy'"):
        model.predict(FRAME.assign(weight="heavy"))


@pytest.mark.parametrize("name", LEARNERS)
def test_unseen_categories_are_all_alike(name: str) -> None:
    model = fitted_to_frame(name)
    with pytest.warns(UnknownCategoryWarning, match="No entry of column 'colour'") as told:
        new = [answers(model, FRAME[:3].assign(colour=colour)) for colour in ("violet", "orange")]
    assert len(told) == 2  # one a call
    assert np.isfinite(new[0]).all()
    np.testing.assert_array_equal(*new)


def test_some_new_categories_are_no_reason_to_warn() -> None:
    """As in folds of a cross-validation, some of which hold a level that the others do not."""
    model = fitted_to_frame("OperatorRidge")
    for colours in (["violet", "violet", "red"], ["violet", None, None], [None] * 3):
        assert np.isfinite(model.predict(FRAME[:3].assign(colour=colours))).all()


@pytest.mark.parametrize(
    "name",
    tiers(list(LEARNERS), lambda name: not name.startswith("Deep") and name != "ConditionalMeanEmbedding"),
)
def test_gaps_that_the_array_of_the_fit_had_not_are_the_means_of_their_columns(name: str) -> None:
    X = np.random.default_rng(1).normal(size=(N, 2))
    model = clone(LEARNERS[name])
    if name == "KernelAutoencoder":
        model.set_params(tol=0.1)
    model.fit(X, LABELS if "Classifier" in name else X[:, 0])
    gaps, filled = X[:3].copy(), X[:3].copy()
    gaps[0, 1], filled[0, 1] = np.nan, X.mean(0)[1]
    np.testing.assert_array_equal(answers(model, gaps), answers(model, filled))
    assert np.isnan(gaps[0, 1])


def test_gaps_are_refused_by_kernels_that_take_none() -> None:
    X = RNG.normal(size=(N, 2))
    model = OperatorRidge("rbf").fit(X, X[:, 0])
    with pytest.raises(ValueError, match="NaN"):
        model.predict(np.full((1, 2), np.nan))


def test_dictionaries_in_cells_are_answered() -> None:
    frame = pd.DataFrame({"part": [{"size": float(i), "colour": "ab"[i % 2]} for i in range(N)], "x": np.arange(N) % 7})
    y = np.array([part["size"] for part in frame["part"]]) + np.random.default_rng(0).normal(size=N)
    new = np.arange(N) % 6 == 0
    assert OperatorRidge().fit(frame[~new], y[~new]).score(frame[new], y[new]) > 0.5


def test_what_pyarrow_says_of_levels_is_heard() -> None:
    pa = pytest.importorskip("pyarrow")
    grades = pd.Categorical(["low", "mid", "high"] * (N // 3), ["low", "mid", "high"], ordered=True)
    codes = pd.Categorical([str(i % 5) for i in range(N)])  # would be numbers that are stored as text
    frame = pd.DataFrame({"grade": grades, "code": codes, "x": np.arange(N)})  # no equal rows
    y = np.arange(N) % 3 + RNG.normal(size=N)
    table = pa.Table.from_pandas(frame)
    kinds = [[own.kind for own in suggest(data).findings] for data in (frame, table, table.to_batches()[0])]
    assert kinds == [["ordered categories", "categories", "numbers"]] * 3
    expected = OperatorRidge().fit(frame, y).predict(frame)
    np.testing.assert_allclose(OperatorRidge().fit(table, y).predict(frame), expected, rtol=1e-8)


def test_arrays_have_the_columns_of_a_frame_whose_names_are_numbers() -> None:
    X = RNG.normal(size=(N, 3))
    model = OperatorRidge().fit(pd.DataFrame(X), X[:, 0])
    np.testing.assert_array_equal(model.predict(X), model.predict(pd.DataFrame(X)[[2, 1, 0]]))


def test_one_row_with_a_new_category_is_told() -> None:
    model = fitted_to_frame("OperatorRidge")
    with pytest.warns(UnknownCategoryWarning, match="No entry of column 'colour'"):
        model.predict(FRAME[:1].assign(colour="violet"))
    assert np.isfinite(model.predict(FRAME[:1].assign(colour=None))).all()


def test_sequences_are_the_same_in_small_letters() -> None:
    rng = np.random.default_rng(0)
    DNA = ["".join(rng.choice(list("ACGT"), 12)) for _ in range(20)]
    small, counts = [text.lower() for text in DNA], np.array([float(text.count("A")) for text in DNA])
    model = OperatorRidge().fit(DNA, counts)
    np.testing.assert_array_equal(model.predict(small), model.predict(DNA))
    np.testing.assert_allclose(OperatorRidge().fit(small, counts).predict(DNA), model.predict(DNA), rtol=1e-10)
    model = OperatorRidge().fit(pd.DataFrame({"gene": DNA}), counts)
    np.testing.assert_array_equal(model.predict({"gene": small}), model.predict({"gene": DNA}))


@pytest.mark.parametrize(
    "kernel, message",
    [
        (Table(Gaussian(), {"weight": "number"}), r"Number\(\), Category\(\), Ordered.* or Date\(\), for each column"),
        (Columns({"weight": Number()}), r"'weight' has Number\(\).*are for Table"),
        (Columns({"weight": "gaussian"}), r"such as Gaussian\('auto'\).*'weight' has 'gaussian'"),
    ],
)
def test_what_columns_may_have_is_said_before_the_data_are_looked_at(kernel: object, message: str) -> None:
    for name in ("OperatorRidge", "KernelAutoencoder"):
        with pytest.raises(ValueError, match=message):
            clone(LEARNERS[name]).set_params(kernel=kernel).fit(FRAME, FRAME["weight"])


def test_a_frame_of_numbers_is_refused_by_to_torch_with_what_gives_the_same_network() -> None:
    frame, y = FRAME[["weight"]].assign(other=np.arange(N) % 5), FRAME["weight"] ** 2
    model = OperatorRidge().fit(frame, y)
    with pytest.raises(ValueError, match=r"fit it to X.to_numpy\(\)"):
        model.to_torch()
    network = OperatorRidge().fit(frame.to_numpy(), y).to_torch()
    values = network(torch.from_numpy(frame.to_numpy())).detach().numpy()
    np.testing.assert_allclose(values[:, 0], model.predict(frame), rtol=1e-6)


def test_gaps_in_texts_where_the_training_samples_had_none_have_nothing_in_common_with_texts() -> None:
    rng = np.random.default_rng(0)
    names = ["".join(rng.choice(list("abcdef"), 6)) for _ in range(20)]
    frame = pd.DataFrame({"x": rng.normal(size=20), "name": names})
    model = OperatorRidge(Columns({"x": Gaussian(1.0), "name": suggest(frame).findings[1].part}), alpha=0.1)
    model.fit(frame, frame["x"] + frame["name"].str.count("a"))
    gap, other = (model.predict(frame[:4].assign(name=value)) for value in (None, "zzzz"))
    np.testing.assert_allclose(gap, other, rtol=1e-10)
    assert np.isfinite(OperatorRidge().fit(frame, frame["x"]).predict(frame[:4].assign(name=None))).all()


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_durations_are_numbers_of_seconds_in_every_library(library: str, tmp_path) -> None:
    hours = np.random.default_rng(0).integers(1, 100, N)
    seconds = FRAME[["colour"]].assign(time=3600.0 * hours)
    frame = FRAME[["colour"]].assign(time=pd.to_timedelta(hours, unit="h"))
    frame = {"pandas": lambda own: own, "polars": in_polars, "pyarrow": in_pyarrow}[library](frame)
    kernel = Table(Gaussian(1.0), {"time": Number(), "colour": Category()})
    model = OperatorRidge(kernel, alpha=0.1).fit(frame, NUMBERS)
    expected = OperatorRidge(kernel, alpha=0.1).fit(seconds, NUMBERS).predict(seconds)
    np.testing.assert_allclose(model.predict(frame), expected, rtol=1e-12)
    np.testing.assert_array_equal(load(model.save(tmp_path / "new" / "folder")).predict(frame), model.predict(frame))


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_autoencoders_give_frames_of_the_library_that_they_were_given(library: str) -> None:
    frame = {"pandas": lambda own: own, "polars": in_polars, "pyarrow": in_pyarrow}[library](FRAME)
    model = KernelAutoencoder(2, max_iter=5, random_state=0, tol=1.0).fit(frame)
    again = model.inverse_transform(model.transform(frame))
    assert type(again) is type(frame) and type(model.reconstruct(frame)) is type(frame)
    assert list(frame_columns(again)) == list(FRAME) and len(again) == N
    rows = {tuple(map(str, row.values())) for row in as_records(frame)}
    assert {tuple(map(str, row.values())) for row in as_records(again)} <= rows  # training rows, gaps included


def test_relevances_of_a_frame_have_names() -> None:
    model = fitted_to_frame("OperatorRidge")
    named = dict(zip(model.feature_names_in_, model.relevance_, strict=True))
    assert named.keys() == set(FRAME) and max(named, key=named.get) in ("colour", "weight")


def test_every_kernel_of_a_stack_learns_an_operator() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 2))
    y = np.column_stack([X[:, 0], X[:, 0] + X[:, 1]]) + 0.3 * rng.normal(size=(20, 2))
    model = OperatorRidge(Stack([Gaussian(1.0), Gaussian(3.0)]), operator="learn", alpha=0.1).fit(X, y)
    alone = [OperatorRidge(Gaussian(s), operator="learn", alpha=0.1).fit(X, y).operator_ for s in (1.0, 3.0)]
    for own, expected in zip(model.operator_, alone, strict=True):
        np.testing.assert_allclose(own.matrix, expected.matrix, rtol=1e-6)
    again = OperatorRidge(model.kernel_).fit(X, y)
    np.testing.assert_allclose(again.predict(X), model.predict(X), rtol=1e-8)


@pytest.mark.parametrize("name", ["OperatorRidge", "EmbeddingClassifier", "DeepKernelRegressor", "StructuredPredictor"])
def test_progress_of_a_stack_is_told_line_by_line(name: str, capsys) -> None:
    X, y = np.random.default_rng(0).normal(size=(20, 2)), LABELS[:20] if "Classifier" in name else NUMBERS[:20]
    clone(LEARNERS[name]).set_params(verbose=1, max_iter=2, tol=1.0).fit(X, y)
    lines = capsys.readouterr().err.splitlines()
    assert sum(line.endswith("of 6") or "of 6, " in line for line in lines) == 6
    assert all(line.split(" s: ")[0].replace(".", "").isdigit() for line in lines if "of 6" in line)


def test_gaps_where_the_training_samples_had_none_are_means() -> None:
    model = fitted_to_frame("OperatorRidge")
    gap, mean = (FRAME[:4].assign(weight=value) for value in (np.nan, FRAME["weight"].mean()))
    np.testing.assert_allclose(model.predict(gap), model.predict(mean), rtol=1e-10)


# -- bad input --------------------------------------------------------------------------------------------------------
def with_column(values: list[Any]) -> pd.DataFrame:
    return FRAME[["weight"]].assign(odd=pd.Series(values, dtype=object))


BAD: dict[str, tuple[Any, str]] = {
    "duplicate names": (lambda: FRAME.set_axis(["a", "b", "a"], axis=1), "different names; 'a' stand"),
    "all missing": (lambda: pd.DataFrame({"odd": [None] * N}), "'odd' .nothing."),
    "all constant": (lambda: pd.DataFrame({"odd": ["x"] * N}), "'odd' .a constant."),
    "mixed objects": (lambda: with_column([object(), "x"] * (N // 2)), "Column 'odd' has entries that are object, str"),
    "mixed lists": (lambda: with_column([[1.0], ["x"]] * (N // 2)), "Column 'odd' .*list of different kinds"),
    "infinite numbers": (lambda: FRAME.assign(weight=[np.inf, *range(1, N)]), "Column 'weight': .*infinite"),
    "no rows": (lambda: FRAME[:0], "3 columns and no rows"),
    "no columns": (lambda: FRAME[[]], "no columns"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("name", LEARNERS)
def test_bad_frames_are_named(name: str, case: str) -> None:
    make, message = BAD[case]
    frame = make()
    with pytest.raises(ValueError, match=message):
        clone(LEARNERS[name]).fit(frame, (LABELS if "Classifier" in name else NUMBERS)[: len(frame)])


def test_columns_without_information_are_left_out() -> None:
    expected = fitted_to_frame("OperatorRidge").predict(FRAME)
    constant = FRAME.assign(odd=3)
    np.testing.assert_array_equal(fitted("OperatorRidge", constant).predict(constant), expected)
    with pytest.warns(UserWarning, match="Column 'odd' is empty and is left out"):
        np.testing.assert_array_equal(fitted("OperatorRidge", FRAME.assign(odd=None)).predict(FRAME), expected)


def test_mixed_words_and_numbers_are_categories_with_a_warning() -> None:
    frame = with_column([1, "one"] * (N // 2))
    with pytest.warns(UserWarning, match="Column 'odd' mixes int and str and is taken for categories"):
        assert np.isfinite(fitted("OperatorRidge", frame).predict(frame)).all()


@pytest.mark.parametrize("X", [None, 3.0, (i for i in range(N))], ids=["None", "a number", "a generator"])
def test_what_is_no_collection_is_named(X: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"array.*got|one number|requires"):
        OperatorRidge().fit(X, NUMBERS)


# -- scikit-learn -----------------------------------------------------------------------------------------------------
def test_frames_go_through_pipelines_searches_clones_and_pickles() -> None:
    own = OperatorRidge(Table(Gaussian(1.0), {"size": Number(), "weight": Number()}), alpha=0.1)
    search = GridSearchCV(own, {"kernel__kernel__lengthscale": [1.0, 3.0], "alpha": [0.01, 0.1]}, cv=2)
    search.fit(FRAME, NUMBERS)
    assert set(search.best_params_) == {"kernel__kernel__lengthscale", "alpha"}
    model = make_pipeline("passthrough", OperatorRidge(alpha=0.1)).fit(FRAME, NUMBERS)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(FRAME), model.predict(FRAME))
    np.testing.assert_array_equal(clone(model).fit(FRAME, NUMBERS).predict(FRAME), model.predict(FRAME))
    assert len(cross_val_score(model, FRAME, NUMBERS, cv=2)) == 2
    again = OperatorRidge(model[-1].kernel_).fit(FRAME, NUMBERS)
    np.testing.assert_allclose(again.predict(FRAME), model.predict(FRAME), rtol=1e-6)


def test_dates_and_gaps_of_every_library_are_explained_and_saved(tmp_path) -> None:
    """Gaps are equal to gaps: members of a stack are sums over the same samples, whatever stands for nothing."""
    rng, n = np.random.default_rng(0), 30
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=n),
            "moment": pd.date_range("2020-01-01", periods=n, tz="Europe/Rome"),
            "hour": pd.date_range("2020-01-01", periods=n, freq="h"),
            "letter": pd.array(rng.choice(["a", "b"], n), dtype="string"),
            "count": pd.array(rng.integers(0, 5, n), dtype="Int64"),
        }
    )
    y = frame["size"].to_numpy() + 0.1 * rng.normal(size=n)
    for i, column in enumerate(frame):
        frame.loc[i, column] = pd.NA if column in ("letter", "count") else None
    model = OperatorRidge().fit(frame, y)
    told = model.explain(frame[:3])
    np.testing.assert_allclose(told.contributions.sum(1) + told.baseline, told.prediction, rtol=1e-6)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(frame), model.predict(frame))


@pytest.mark.parametrize("gap", tiers([None, float("nan"), pd.NA], lambda gap: gap is pd.NA))
def test_texts_with_gaps_are_fitted_and_predicted(gap) -> None:
    rng = np.random.default_rng(0)
    x, names = rng.normal(size=24), ["".join(rng.choice(list("abcdef"), 6)) for _ in range(24)]
    frame = pd.DataFrame({"x": x, "name": [gap, *names[1:]]})
    model = OperatorRidge().fit(frame, x)
    assert np.isfinite(model.predict(frame)).all() and model.score(frame, x) > 0.8


def test_infinity_is_refused_at_predict_as_at_fit() -> None:
    frame = pd.DataFrame({"x": np.arange(20.0), "letter": list("ab") * 10})
    model = OperatorRidge().fit(frame, np.arange(20.0))
    with pytest.raises(ValueError, match=r"'x'.*infinite entries, in row\(s\) 1"):
        model.predict(frame[:2].assign(x=[0.0, np.inf]))
