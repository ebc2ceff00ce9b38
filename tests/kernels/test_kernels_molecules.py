"""Molecules against RDKit's own fingerprints and similarities; the transformers; what cannot be read."""

from __future__ import annotations

import builtins
import pickle
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks

from representer import OperatorRidge
from representer.estimators.fingerprints import MACCS, AtomPairs, Morgan, Paths, Torsions
from representer.kernels import Tanimoto, molecules
from representer.kernels.molecules import Descriptors, MinMax, Molecule
from representer.kernels.vectors import Linear
from representer.testing import check_kernel

Chem = pytest.importorskip("rdkit.Chem")
DataStructs = pytest.importorskip("rdkit.DataStructs")
generators = pytest.importorskip("rdkit.Chem.rdFingerprintGenerator")

SMILES = [
    "CCO",
    "c1ccccc1O",
    "CC(=O)Oc1ccccc1C(=O)O",
    "C[C@H](N)C(=O)O",
    "C[C@@H](N)C(=O)O",
    "C",
    "CCCCCCCCCC",
    "[Na+].[Cl-]",
    "CN1C=NC2=C1C(=O)N(C(=O)N2C)C",
]
SHARING = ["CC(=O)Oc1ccccc1C(=O)O", "OC(=O)c1ccccc1O", "CCCCCCCCCC", "CN1C=NC2=C1C(=O)N(C(=O)N2C)C"]
Y = np.array([Chem.MolFromSmiles(s).GetNumHeavyAtoms() for s in SMILES], dtype=float)
TRANSFORMERS = [
    (Morgan(), generators.GetMorganGenerator(radius=2)),
    (
        Morgan(3, 512, chirality=True),
        generators.GetMorganGenerator(radius=3, fpSize=512, includeChirality=True),
    ),
    (Paths(5), generators.GetRDKitFPGenerator(maxPath=5)),
    (AtomPairs(4, 100), generators.GetAtomPairGenerator(maxDistance=4, fpSize=100)),
    (Torsions(), generators.GetTopologicalTorsionGenerator()),
]
every_transformer = pytest.mark.parametrize("transformer", [*(t for t, _ in TRANSFORMERS), MACCS()], ids=repr)


def read(smiles: list[str]) -> list[Any]:
    return [Chem.MolFromSmiles(s) for s in smiles]


# -- the kernel -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("arguments", [{}, {"radius": 0}, {"radius": 3, "n_bits": 64}, {"chirality": True}])
@pytest.mark.parametrize("counts", [False, True])
def test_equals_the_similarity_of_rdkit(arguments: dict[str, Any], counts: bool) -> None:
    generator = generators.GetMorganGenerator(
        radius=arguments.get("radius", 2),
        fpSize=arguments.get("n_bits", 2048),
        includeChirality=arguments.get("chirality", False),
    )
    make = generator.GetCountFingerprint if counts else generator.GetFingerprint
    theirs = [make(molecule) for molecule in read(SMILES)]
    expected = np.array([[DataStructs.TanimotoSimilarity(a, b) for b in theirs] for a in theirs])
    kernel = Molecule(counts=counts, **arguments)
    np.testing.assert_allclose(kernel(SMILES), expected, rtol=1e-14)
    np.testing.assert_allclose(kernel(read(SMILES)), expected, rtol=1e-14)
    np.testing.assert_allclose(kernel(SMILES[:2], read(SMILES)), expected[:2], rtol=1e-14)


@pytest.mark.parametrize(
    ("substructures", "generator"),
    [
        ("pairs", generators.GetAtomPairGenerator(fpSize=512)),
        ("torsions", generators.GetTopologicalTorsionGenerator(fpSize=512)),
        ("paths", generators.GetRDKitFPGenerator(maxPath=5, fpSize=512)),
    ],
)
def test_other_substructures_equal_the_similarity_of_rdkit(substructures: str, generator: Any) -> None:
    theirs = [generator.GetCountFingerprint(molecule) for molecule in read(SHARING)]
    expected = [[DataStructs.TanimotoSimilarity(a, b) for b in theirs] for a in theirs]
    kernel = Molecule(n_bits=512, counts=True, substructures=substructures)
    np.testing.assert_allclose(kernel(SHARING), expected, rtol=1e-14)
    assert eval(repr(kernel)) == kernel


def test_descriptors_are_those_of_rdkit() -> None:
    descriptors = pytest.importorskip("rdkit.Chem.Descriptors")
    names = ("ExactMolWt", "LabuteASA", "TPSA", "MolLogP", "MolMR", "FractionCSP3", "NumHDonors", "NumHAcceptors")
    names += ("NumRotatableBonds", "NumHeteroatoms", "RingCount", "NumAromaticRings")
    expected = np.array([[getattr(descriptors, name)(molecule) for name in names] for molecule in read(SMILES)])
    for given in (SMILES, read(SMILES)):
        np.testing.assert_allclose(Descriptors(Linear())(given), expected @ expected.T, rtol=1e-12)
    with pytest.raises(ValueError, match="1 of 2 molecules cannot be read"):
        Descriptors(Linear())(["CCO", "C(("])


KERNELS = [Molecule(), Molecule(counts=True), 0.5 * Molecule(1) * Molecule() + 1.0, Descriptors(Linear())]


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_contract(kernel: Any) -> None:
    check_kernel(kernel, SMILES, SMILES[3:6])


def test_the_same_molecule_written_differently() -> None:
    assert Molecule()(["OCC", "CCO"]).tolist() == [[1.0, 1.0], [1.0, 1.0]]
    mirrored = SMILES[3:5]
    assert Molecule()(mirrored)[0, 1] == 1.0
    assert Molecule(chirality=True)(mirrored)[0, 1] < 1.0


def test_any_collection_of_molecules() -> None:
    pandas = pytest.importorskip("pandas")
    expected = Molecule()(SMILES)
    frame = pandas.DataFrame({"smiles": SMILES})
    for given in (tuple(SMILES), np.array(SMILES), np.array(SMILES, dtype=object), frame, frame["smiles"]):
        np.testing.assert_array_equal(Molecule()(given), expected)
    mixed = [*SMILES[:4], *read(SMILES[4:])]
    np.testing.assert_array_equal(Molecule()(mixed), expected)


def test_ridge_on_smiles() -> None:
    model = OperatorRidge(Molecule(counts=True), alpha=1e-6).fit(SMILES, Y)
    np.testing.assert_allclose(model.predict(SMILES[:3]), Y[:3], atol=0.1)
    fitted = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(fitted.predict(read(SMILES)), model.predict(SMILES))
    pipeline = make_pipeline(Morgan(counts=True), OperatorRidge(MinMax(), alpha=1e-6)).fit(SMILES, Y)
    np.testing.assert_allclose(pipeline.predict(SMILES), model.predict(SMILES), rtol=1e-8)
    assert np.isfinite(model.predict(["[Xe]", "CCBr"])).all()  # substructures that were never seen


def test_grid_search_over_the_radius() -> None:
    grid = {"kernel__radius": [0, 1], "kernel__counts": [False, True]}
    search = GridSearchCV(OperatorRidge(Molecule()), grid, cv=3, scoring="neg_mean_squared_error")
    search.fit(np.array(SMILES, dtype=object), Y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.kernel_ == Molecule().set_params(
        **{name.removeprefix("kernel__"): value for name, value in search.best_params_.items()}
    )
    pipeline = make_pipeline(Morgan(), OperatorRidge("tanimoto"))
    assert np.isfinite(cross_val_score(pipeline, SMILES, Y, cv=3, scoring="neg_mean_squared_error")).all()


# -- the transformers -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("transformer", "generator"), TRANSFORMERS)
def test_transformers_equal_rdkit(transformer: Any, generator: Any) -> None:
    bits = np.stack([generator.GetFingerprintAsNumPy(m) for m in read(SMILES)])
    counts = np.stack([generator.GetCountFingerprintAsNumPy(m) for m in read(SMILES)])
    np.testing.assert_array_equal(transformer.fit_transform(SMILES), bits)
    np.testing.assert_array_equal(transformer.transform(read(SMILES)), bits)
    counting = clone(transformer).set_params(counts=True)
    np.testing.assert_array_equal(counting.transform(SMILES), counts)
    np.testing.assert_array_equal(counting.set_params(output="sparse").transform(SMILES).toarray(), counts)


def test_maccs_keys_equal_rdkit() -> None:
    keys = pytest.importorskip("rdkit.Chem.MACCSkeys")
    expected = [list(keys.GenMACCSKeys(m)) for m in read(SMILES)]
    np.testing.assert_array_equal(MACCS().transform(SMILES), expected)


@every_transformer
def test_forms_of_output(transformer: Any) -> None:
    dense = transformer.transform(SMILES)
    in_form = {form: clone(transformer).set_params(output=form).fit(SMILES) for form in ("sparse", "packed")}
    rows, packed = (in_form[form].transform(SMILES) for form in ("sparse", "packed"))
    assert dense.dtype == packed.dtype == np.uint8
    assert isinstance(rows, sparse.csr_array)
    np.testing.assert_array_equal(rows.toarray(), dense)
    np.testing.assert_array_equal(packed, np.packbits(dense, axis=1))
    expected = Tanimoto()(dense)
    np.testing.assert_array_equal(Tanimoto()(rows), expected)
    np.testing.assert_array_equal(Tanimoto(packed=True)(packed), expected)
    for one, columns in ((transformer, dense), (in_form["packed"], packed)):
        names = one.get_feature_names_out()
        assert len(set(names)) == columns.shape[1]
        assert names[1].startswith(type(transformer).__name__.lower())


@every_transformer
def test_scikit_learn_checks_that_apply(transformer: Any) -> None:
    """``check_estimator`` itself does no more than clone what takes strings; these need no data of numbers."""
    name = type(transformer).__name__
    with pytest.warns(match="Can't test estimator"):
        estimator_checks.check_estimator(transformer)
    estimator_checks.check_parameters_default_constructible(name, type(transformer)())
    estimator_checks.check_no_attributes_set_in_init(name, transformer)
    estimator_checks.check_get_params_invariance(name, transformer)
    estimator_checks.check_set_params(name, transformer)
    estimator_checks.check_estimator_repr(name, transformer)
    before = vars(transformer).copy()
    transformer.fit(SMILES).transform(SMILES)
    assert vars(transformer) == before
    assert np.array_equal(pickle.loads(pickle.dumps(transformer)).transform(SMILES), transformer.transform(SMILES))


def test_frames_out_and_column_transformers() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"smiles": SMILES, "size": Y})
    out = Morgan(n_bits=16).set_output(transform="pandas").fit_transform(frame["smiles"])
    assert list(out.columns[:2]) == ["morgan0", "morgan1"]
    both = ColumnTransformer([("bits", Morgan(n_bits=16), "smiles"), ("size", "passthrough", ["size"])])
    assert both.fit_transform(frame).shape == (9, 17)
    assert both.get_feature_names_out()[0] == "bits__morgan0"


# -- bad input --------------------------------------------------------------------------------------------------------
TAKERS = [Molecule(), Morgan().transform, OperatorRidge(Molecule(), alpha=1.0).fit(SMILES, Y).predict]
every_taker = pytest.mark.parametrize("take", TAKERS, ids=["kernel", "transformer", "learner"])


@every_taker
def test_invalid_smiles_are_listed(take: Any, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match=r"2 of 4 molecules cannot be read.*position 1 \('C1CC'\), 3 \('CX'\)\."):
        take(["C", "C1CC", "CC", "CX"])
    with pytest.raises(ValueError, match=r"7 of 8 .*position 0 \('q0'\), .*4 \('q4'\), …\. Correct"):
        take([*(f"q{i}" for i in range(7)), "C"])
    with pytest.raises(ValueError, match=r"1 of 2 .*no atoms.*position 1 \(''\)"):
        take(["C", ""])
    with pytest.raises(ValueError, match=r"position 0 \('no atoms'\)"):
        take([Chem.Mol(), "C"])
    assert capfd.readouterr().err == ""  # RDKit says nothing beside it


@every_taker
def test_what_is_no_molecule(take: Any) -> None:
    with pytest.raises(ValueError, match=r"2 of 3 are something else, at position 1 \(NoneType\), 2 \(float\)\."):
        take(["C", None, 1.5])
    with pytest.raises(ValueError, match=r"6 of 6 are something else.*…"):
        take([1, 2, 3, 4, 5, 6])


def test_one_string_is_no_collection() -> None:
    for take in TAKERS[:2]:
        with pytest.raises(ValueError, match=r"got one string. Pass \['CCO'\]"):
            take("CCO")
        with pytest.raises(ValueError, match="Found 0 molecules"):
            take([])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"radius": -1}, "radius must be an integer, 0 or more; got -1"),
        ({"radius": 1.5}, "radius must be"),
        ({"radius": True}, "radius must be"),
        ({"n_bits": 0}, "n_bits must be a positive integer; got 0"),
        ({"n_bits": "many"}, "n_bits must be"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Molecule(**arguments)(SMILES)
    with pytest.raises(ValueError, match=message):
        Morgan(**arguments).fit(SMILES)


def test_bad_substructures() -> None:
    with pytest.raises(ValueError, match="got 'rings'"):
        Molecule(substructures="rings")(SMILES)
    with pytest.raises(ValueError, match="chirality=True is for surroundings"):
        Molecule(chirality=True, substructures="pairs")(SMILES)
    with pytest.raises(ValueError, match="radius=3 is for surroundings"):
        Molecule(3, substructures="torsions")(SMILES)


def test_bad_arguments_of_transformers() -> None:
    for wrong, message in (
        (Paths(0), "max_length must be a positive integer"),
        (AtomPairs(n_bits=0), "n_bits must be a positive integer"),
        (Torsions(1), "n_atoms must be an integer of at least 2"),
        (MACCS(output="list"), "output must be one of 'dense', 'sparse', 'packed'; got 'list'"),
        (Morgan(counts=True, output="packed"), "'packed' is for bits"),
    ):
        for method in (wrong.fit, wrong.transform, wrong.get_feature_names_out):
            with pytest.raises(ValueError, match=message):
                method(SMILES)


def test_without_rdkit_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("rdkit"):
            raise ImportError(name)
        return original(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    for take in (Molecule(), Morgan().transform):
        with pytest.raises(ModuleNotFoundError, match=r'pip install "representer\[molecules\]"'):
            take(SMILES)


def test_a_molecule_is_read_once() -> None:
    molecules._remembered.cache_clear()
    kernel = Molecule()
    kernel(SMILES)
    kernel(SMILES, SMILES[:2])
    assert molecules._remembered.cache_info().misses == len(SMILES)


def test_one_number_is_no_collection_of_molecules() -> None:
    with pytest.raises(ValueError, match=r"got one int\. Pass \[5\]"):
        Molecule()(5)
