"""Bad input gets an error that says what was wrong, what was expected and what to do: no raw one, no wrong hint."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.model_selection import cross_val_score

from representer import DeepKernelClassifier, DeepKernelRegressor, EmbeddingClassifier, OperatorRidge
from representer.approximation import Nystroem
from representer.kernels import Molecule, Tanimoto, WeisfeilerLehman
from representer.operators import Diagonal

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
y = np.sin(X[:, 0])
SMILES = ["CCO", "CCC", "c1ccccc1", "CCN", "CC(=O)O", "CCCC"]


# -- raw exceptions ---------------------------------------------------------------------------------------------------
def test_constant_inputs_have_one_pivot():
    model = OperatorRidge(approximation=Nystroem(5, sampling="pivots")).fit(np.ones((20, 2)), y[:20])
    assert np.isfinite(model.predict(np.ones((2, 2)))).all()


def test_zero_targets_with_landmarks_are_fitted_by_zero():
    assert (OperatorRidge(approximation=Nystroem(5)).fit(X, 0.0 * y).predict(X) == 0.0).all()


@pytest.mark.parametrize("sampling", ["uniform", "leverage", "pivots", "kmeans"])
def test_sampling_of_huge_inputs_answers_or_refuses(sampling):
    model = OperatorRidge(approximation=Nystroem(5, sampling=sampling), random_state=0)
    try:
        assert np.isfinite(model.fit(X * 1e300, y).predict(X * 1e300)).all()
    except ValueError as error:
        assert "scale" in str(error).lower()


@pytest.mark.parametrize("collection", [{1.0, 2.0, 3.0}, {"a": [1.0, 2.0, 3.0]}, (i for i in range(3)), 3.0, None])
def test_collections_that_are_no_arrays_are_named(collection):
    with pytest.raises((ValueError, TypeError)) as caught:
        OperatorRidge().fit(collection, [1.0, 2.0, 3.0])
    message = str(caught.value)
    assert "float()" not in message
    assert any(word in message for word in ("array", "Expected", "requires"))


def test_a_wrong_number_of_weights_comes_with_advice():
    with pytest.raises(ValueError, match=r"3.*2 outputs.*(one weight|give 2)"):
        OperatorRidge(operator=Diagonal([1.0, 2.0, 3.0])).fit(X, np.c_[y, y])


@pytest.mark.parametrize("target", ["sparse", "text"])
def test_dask_inputs_with_targets_of_the_wrong_kind(target):
    da = pytest.importorskip("dask.array")
    from scipy import sparse

    wrong = sparse.csr_array(y[:, None]) if target == "sparse" else np.array(["a"] * len(y))
    with pytest.raises((ValueError, TypeError), match=r"y "):
        OperatorRidge(approximation=Nystroem(5)).fit(da.from_array(X, chunks=20), wrong)


def test_losses_that_do_not_converge_say_so_and_answer():
    hard = DeepKernelClassifier([], "linear", "hinge", 1e-10, calibration=None, random_state=0)
    labels = (y + 0.5 * rng.normal(size=len(y)) > 0).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert set(hard.fit(X * 1e3, labels).predict(X)) <= {0, 1}


# -- hints ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kernel", [Tanimoto(), "rbf"])
def test_smiles_are_recognised(kernel):
    pytest.importorskip("rdkit")
    with pytest.raises(ValueError, match=r"Molecule\(\)") as caught:
        OperatorRidge(kernel).fit(SMILES, np.arange(6.0))
    assert "OrdinalEncoder" not in str(caught.value)
    if isinstance(kernel, Tanimoto):
        assert "Morgan" in str(caught.value)


def test_other_text_is_told_of_kernels_for_text():
    with pytest.raises(ValueError, match=r"Spectrum"):
        OperatorRidge().fit(["hello world", "good bye", "see you"], [1.0, 2.0, 3.0])


def test_a_function_of_matrices_as_kernel_is_told_what_to_do():
    def product(A, B):
        return np.atleast_2d(A) @ np.atleast_2d(B).T

    with pytest.raises((ValueError, TypeError), match=r"precomputed|one number"):
        OperatorRidge(product).fit(X, y)


def test_pictures_given_to_a_network_are_told_the_way():
    torch = pytest.importorskip("torch")
    from representer.kernels import Gaussian, Neural

    network = Neural(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 2)), Gaussian(1.0))
    with pytest.raises(ValueError, match=r"reshape|Unflatten"):
        EmbeddingClassifier(network).fit(rng.normal(size=(10, 1, 4, 4)), [0, 1] * 5)


def test_molecules_and_graphs_of_molecules_add():
    Chem = pytest.importorskip("rdkit.Chem")
    molecules = [Chem.MolFromSmiles(text) for text in SMILES]
    model = OperatorRidge(Molecule() + WeisfeilerLehman(2).normalized(), alpha=0.1).fit(molecules, np.arange(6.0))
    gram = Molecule()(molecules) + WeisfeilerLehman(2).normalized()(molecules)
    expected = gram.numpy() @ np.linalg.solve(gram.numpy() + 0.6 * np.eye(6), np.arange(6.0))
    np.testing.assert_allclose(model.predict(molecules), expected, atol=1e-10)


def test_a_bound_is_refused_where_its_theorem_does_not_hold():
    labels = (y > 0).astype(int)
    model = EmbeddingClassifier(random_state=0).fit(X, labels)
    with pytest.raises(ValueError, match=r"risk_bound"):
        model.risk_bound()


# -- missing targets --------------------------------------------------------------------------------------------------
def _with_gaps() -> np.ndarray:
    Y = np.c_[y, X[:, 1], X[:, 2] ** 2]
    Y[rng.random(Y.shape) < 0.2] = np.nan
    return Y


def test_missing_targets_are_scored_on_what_is_known():
    from sklearn.metrics import r2_score

    Y = _with_gaps()
    model = OperatorRidge(alpha=1e-3).fit(X, Y)
    known = ~np.isnan(Y)
    predictions = model.predict(X)
    expected = np.mean([r2_score(Y[k, j], predictions[k, j]) for j, k in enumerate(known.T)])
    assert model.score(X, Y) == pytest.approx(expected)
    weights = rng.uniform(size=len(X))
    expected = np.mean([r2_score(Y[k, j], predictions[k, j], sample_weight=weights[k]) for j, k in enumerate(known.T)])
    assert model.score(X, Y, sample_weight=weights) == pytest.approx(expected)


def test_missing_targets_are_cross_validated():
    assert np.isfinite(cross_val_score(OperatorRidge(alpha=1e-3), X, _with_gaps(), cv=3)).all()


# -- time -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("budget", [-1.0, 0.0, "soon", "5 parsecs", True, np.nan])
def test_budgets_that_are_no_times_are_refused(budget):
    with pytest.raises(ValueError, match="max_time"):
        DeepKernelRegressor(max_time=budget).fit(X, y)
