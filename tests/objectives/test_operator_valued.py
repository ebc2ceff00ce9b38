"""Cross-validation of operator-valued ridge regression: its definition by refits, its gradients, its path in alpha."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import naive_operators as no
import numpy as np
import pytest
import torch
from operator_cases import CASES, TARGETS, A, B, Case, X
from tiers import tiers
from torch import Tensor

from representer.kernels import Gaussian, Linear, Matern, Precomputed, RationalQuadratic
from representer.linalg import eigh
from representer.objectives import operator_valued
from representer.objectives.operator_valued import _weighted_moments, cross_validation, restricted_likelihood
from representer.operators import (
    CurlFree,
    Decomposable,
    Dense,
    Diagonal,
    OperatorKernel,
    Separate,
    Transformable,
)
from representer.optimize.search import log_spaced
from representer.systems import RidgeData, factor_system
from representer.systems.exact import CoupledOutputs, gram_spectrum

DOUBLE = torch.float64
WEIGHTS = np.random.default_rng(1).uniform(0.3, 3.0, 8)
WEIGHTS /= WEIGHTS.mean()
MISSING = np.array([[1, 1, 1], [0, 1, 1], [1, 0, 0], [1, 1, 1], [0, 0, 0], [1, 1, 0], [0, 1, 1], [1, 0, 1]], dtype=bool)
EVERYTHING = np.ones_like(MISSING)
ALPHA = 0.03

weightings = pytest.mark.parametrize("weighted", [False, True], ids=["uniform", "weighted"])


def tensor(values: Any) -> Tensor:
    return torch.tensor(np.asarray(values), dtype=DOUBLE)


class Score:
    """The error of some samples as a function of a kernel and alpha, alone and along a path."""

    def __init__(self, X: Any, Y: Tensor, *, weights: Tensor | None = None, criterion: Any = "loo", **options: Any):
        self.X, self.Y, self.criterion, self.options = X, Y, criterion, options
        self.weights = Y.new_ones(len(Y)) if weights is None else weights
        self.root = self.weights.sqrt()

    def data(self, kernel: OperatorKernel) -> RidgeData:
        return RidgeData(kernel, self.X, self.Y, self.weights, **self.options)

    def __call__(self, kernel: OperatorKernel, alpha: Tensor, known: Any = None) -> Tensor:
        return cross_validation(self.data(kernel), alpha, self.criterion, known=known)

    def path(self, kernel: OperatorKernel, alphas: Tensor) -> Tensor:
        return self.data(kernel).path(alphas, self.criterion)


def score_of(data: Any, Y: np.ndarray, *, weighted: bool, missing: bool, criterion: Any) -> Score:
    p = Y.shape[1]
    observed = torch.from_numpy(MISSING[:, :p]) if missing else None
    targets = np.where(MISSING[:, :p], Y, np.nan) if missing else Y  # what is missing is not read
    weights = tensor(WEIGHTS) if weighted else None
    return Score(data, tensor(targets), weights=weights, observed=observed, criterion=criterion)


# -- values -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("missing", [False, True], ids=["complete", "missing"])
@weightings
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_leave_one_out_is_refitting(case: Case, weighted: bool, missing: bool) -> None:
    score = score_of(case.data, case.targets, weighted=weighted, missing=missing, criterion="loo")
    weights = WEIGHTS if weighted else np.ones(8)
    observed = (MISSING if missing else EVERYTHING)[:, : case.p]
    alphas = [ALPHA, 1.0]
    expected = [no.loo_error(case.block, case.targets, alpha, weights, observed) for alpha in alphas]
    found = [score(case.kernel, tensor(alpha)) for alpha in alphas]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    np.testing.assert_allclose(score.path(case.kernel, tensor(alphas)), expected, rtol=1e-8)


@weightings
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_generalised_cross_validation_is_its_definition(case: Case, weighted: bool) -> None:
    score = score_of(case.data, case.targets, weighted=weighted, missing=False, criterion="gcv")
    weights = WEIGHTS if weighted else np.ones(8)
    expected = [no.gcv_error(case.block, case.targets, alpha, weights) for alpha in (ALPHA, 1.0)]
    found = [score(case.kernel, tensor(alpha)) for alpha in (ALPHA, 1.0)]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    np.testing.assert_allclose(score.path(case.kernel, tensor([ALPHA, 1.0])), expected, rtol=1e-8)


@weightings
def test_generalised_cross_validation_with_missing_targets(weighted: bool) -> None:
    """Each uncoupled output has its own rows, and its share of the error."""
    weights = WEIGHTS if weighted else np.ones(8)
    kernel = Decomposable(Gaussian(1.3), Diagonal([1.0, 2.0, 0.5]))
    score = score_of(tensor(X), TARGETS, weighted=weighted, missing=True, criterion="gcv")
    expected = 0.0
    for j, weight in enumerate([1.0, 2.0, 0.5]):
        rows = np.flatnonzero(MISSING[:, j])
        gram = weight * Gaussian(1.3)(X[rows]).numpy()
        share = len(rows) / 8
        expected += share * no.gcv_error(gram, TARGETS[rows, j : j + 1], ALPHA / share, weights[rows])
    np.testing.assert_allclose(score(kernel, tensor(ALPHA)), expected, rtol=1e-9)
    np.testing.assert_allclose(score.path(kernel, tensor([ALPHA])), [expected], rtol=1e-8)


def test_generalised_cross_validation_needs_all_targets_of_coupled_outputs() -> None:
    for kernel in (Decomposable(Gaussian(1.0), Dense(A)), CurlFree(1.0)):
        score = score_of(tensor(X), TARGETS, weighted=False, missing=True, criterion="gcv")
        with pytest.raises(ValueError, match=r"criterion='gcv' needs all targets.*use criterion='loo'"):
            score(kernel, tensor(ALPHA))
        with pytest.raises(ValueError, match="criterion='gcv' needs all targets"):
            score.path(kernel, tensor([ALPHA]))


def test_an_output_that_is_never_observed_counts_for_nothing() -> None:
    observed = torch.ones(8, 3, dtype=torch.bool)
    observed[:, 1] = False
    kernel = Decomposable(Gaussian(1.3))
    for criterion in ("loo", "gcv"):
        score = Score(tensor(X), tensor(TARGETS), observed=observed, criterion=criterion)
        others = Score(tensor(X), tensor(TARGETS[:, [0, 2]]), criterion=criterion)
        torch.testing.assert_close(score(kernel, tensor(ALPHA)), others(kernel, tensor(ALPHA)))
        torch.testing.assert_close(score.path(kernel, tensor([ALPHA]))[0], others(kernel, tensor(ALPHA)))


def test_weights_are_repetitions() -> None:
    """A sample of weight two, left out as a whole, is a sample that is there twice, left out as a pair."""
    weights = np.array([2.0, 1.0, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0])
    total = weights.sum()
    rows = np.repeat(np.arange(8), weights.astype(int))
    kernel = Decomposable(Gaussian(1.3), Dense(A))
    # n·alpha/w with weights of mean 1: the weight of the penalty is that of the repeated data.
    score = Score(tensor(X), tensor(TARGETS), weights=tensor(weights / weights.mean()))
    error = 0.0
    for i in range(8):
        kept = rows[rows != i]
        block = kernel.dense(tensor(X[kept]), None, 3).numpy()
        c = np.linalg.solve(block + total * ALPHA * np.eye(len(block)), TARGETS[kept].reshape(-1))
        prediction = kernel.dense(tensor(X[i : i + 1]), tensor(X[kept]), 3).numpy() @ c
        error += weights[i] / total * ((TARGETS[i] - prediction) ** 2).sum()
    np.testing.assert_allclose(score(kernel, tensor(ALPHA)), error, rtol=1e-9)


# -- gradients --------------------------------------------------------------------------------------------------------
STRUCTURES: dict[str, OperatorKernel] = {
    "identity": Decomposable(0.7 * Gaussian([1.0, 2.0, 0.8])),
    "diagonal": Decomposable(Gaussian(1.3), Diagonal([1.0, 2.0, 1.0])),
    "dense": Decomposable(Matern(1.5, 2.0), Dense(A)),
    "dense with ties": Decomposable(Matern(1.5, 2.0), Dense(np.eye(3) + np.ones((3, 3)))),
    "separate": Separate([Gaussian(1.3), Matern(1.5, 2.0), RationalQuadratic(1.0, 2.0)]),
    "commuting": Decomposable(Gaussian(1.0), Dense(A)) + Decomposable(2.0 * Gaussian(2.0)),
    "diagonal sum": Decomposable(Gaussian(1.0), Diagonal([1.0, 2.0, 0.5])) + Separate([Gaussian(2.0)] * 3),
    "sum": Decomposable(Gaussian(1.0), Dense(A)) + Decomposable(Matern(1.5, 1.0), Dense(B)),
    "curl-free": CurlFree(1.2),
    "sum with a field": Decomposable(Gaussian(1.0), Diagonal([1.0, 2.0, 0.5])) + CurlFree(1.2),
    "transformable": Transformable(Gaussian([1.0, 2.0]), [X[:2], X[2:4], X[4:6]]),
}


def check_gradients(score: Score, kernel: OperatorKernel, names: list[str], **options: Any) -> None:
    pack, raw = kernel.packing(names)

    def value(point: Tensor) -> Tensor:
        return score(kernel.replace(pack.unpack(point[:-1])), point[-1].exp(), **options)

    point = torch.cat([raw, tensor([ALPHA]).log()]).requires_grad_()
    (gradient,) = torch.autograd.grad(value(point), point)
    numeric = no.numeric_gradient(lambda z: value(tensor(z)).item(), point.detach().numpy())
    assert np.abs(gradient.numpy() - numeric).max() <= 1e-6 * np.abs(numeric).max()


@pytest.mark.parametrize("criterion", ["loo", "gcv"])
@pytest.mark.parametrize("missing", [False, True], ids=["complete", "missing"])
@pytest.mark.parametrize("name", STRUCTURES)
def test_gradients_in_every_hyperparameter_and_alpha(name: str, missing: bool, criterion: Any) -> None:
    kernel = STRUCTURES[name]
    form = kernel.diagonal_form(3, tensor(0.0))
    coupled = form is None or form.rotation is not None
    if coupled and missing and criterion == "gcv":
        return  # refused; tested above
    score = score_of(tensor(X), TARGETS, weighted=True, missing=missing, criterion=criterion)
    check_gradients(score, kernel, list(kernel.constraints()))


@pytest.mark.parametrize("criterion", ["loo", "gcv"])
@pytest.mark.parametrize("name", ["dense", "commuting"])
def test_gradients_in_the_scalar_kernel_only(name: str, criterion: Any) -> None:
    """The operators are fixed: other routes than when they move."""
    kernel = STRUCTURES[name]
    names = [name for name in kernel.constraints() if "matrix" not in name]
    score = score_of(tensor(X), TARGETS, weighted=True, missing=False, criterion=criterion)
    check_gradients(score, kernel, names)


@pytest.mark.parametrize("criterion", ["loo", "gcv"])
def test_only_the_operator_with_a_known_spectrum(criterion: Any) -> None:
    kernel = Decomposable(Gaussian(1.3), Dense(A))
    score = score_of(tensor(X), TARGETS, weighted=True, missing=False, criterion=criterion)
    known = gram_spectrum(Gaussian(1.3), tensor(X), score.root)
    torch.testing.assert_close(
        score(kernel, tensor(ALPHA), known=known), score(kernel, tensor(ALPHA)), rtol=1e-10, atol=0
    )
    check_gradients(score, kernel, ["operator__matrix"], known=known)
    errors = score.path(kernel, tensor([ALPHA, 1.0]))
    torch.testing.assert_close(errors[0], score(kernel, tensor(ALPHA)), rtol=1e-9, atol=0)


GROUPS = torch.tensor([0, 1, 1, 2, 0, 3, 1, 2])


@pytest.mark.parametrize(
    ("missing", "grouped"),
    tiers(
        {
            "complete-alone": (False, False),
            "complete-grouped": (False, True),
            "missing-alone": (True, False),
            "missing-grouped": (True, True),
        },
        lambda name: name in ("complete-grouped", "missing-alone"),
    ),
)
@pytest.mark.parametrize("name", STRUCTURES)
def test_intercepts_and_groups_equal_the_system(name: str, missing: bool, grouped: bool) -> None:
    """The error is that of the system's own predictions, which are compared with refits; its gradient is right."""
    kernel = STRUCTURES[name]
    observed = torch.from_numpy(MISSING) if missing else None
    groups, weights, Y = GROUPS if grouped else None, tensor(WEIGHTS), tensor(TARGETS)
    for intercept in (False, True):
        options: Any = {"weights": weights, "observed": observed, "groups": groups, "intercept": intercept}
        score = Score(tensor(X), Y, **options)
        left_out = factor_system(RidgeData(kernel, tensor(X), Y, **options), ALPHA).left_out()
        residuals = Y - left_out if observed is None else torch.where(observed, Y - left_out, 0.0)
        expected = (weights[:, None] * residuals**2).sum() / 8
        torch.testing.assert_close(score(kernel, tensor(ALPHA)), expected, rtol=1e-8, atol=0)
        path = score.path(kernel, tensor([ALPHA, 1.0]))
        torch.testing.assert_close(path[0], expected, rtol=1e-8, atol=0)
        check_gradients(score, kernel, list(kernel.constraints()))


@pytest.mark.parametrize("grouped", [False, True], ids=["alone", "grouped"])
def test_only_the_operator_with_a_known_spectrum_beside_constants(grouped: bool) -> None:
    kernel = Decomposable(Gaussian(1.3), Dense(A))
    groups = GROUPS if grouped else None
    for criterion in ("loo",) if grouped else ("loo", "gcv"):
        score = Score(
            tensor(X),
            tensor(TARGETS),
            weights=tensor(WEIGHTS),
            groups=groups,
            intercept=True,
            criterion=criterion,
        )
        known = gram_spectrum(Gaussian(1.3), tensor(X), score.root, intercept=True)
        torch.testing.assert_close(score(kernel, tensor(ALPHA), known=known), score(kernel, tensor(ALPHA)))
        check_gradients(score, kernel, ["operator__matrix"], known=known)


@pytest.mark.parametrize("name", ["identity", "dense", "separate", "curl-free"])
def test_generalised_cross_validation_with_an_intercept(name: str) -> None:
    kernel = STRUCTURES[name]
    score = Score(tensor(X), tensor(TARGETS), criterion="gcv", intercept=True)
    torch.testing.assert_close(score.path(kernel, tensor([ALPHA]))[0], score(kernel, tensor(ALPHA)), rtol=1e-8, atol=0)
    check_gradients(score, kernel, list(kernel.constraints()))
    if name == "identity":
        P = torch.linalg.inv(kernel.kernel(X) + 8 * ALPHA * torch.eye(8))  # type: ignore[attr-defined]
        P = P - P.sum(1, keepdim=True) @ P.sum(0, keepdim=True) / P.sum()
        expected = (P @ tensor(TARGETS)).square().sum() / 8 / (P.trace() / 8) ** 2
        torch.testing.assert_close(score(kernel, tensor(ALPHA)), expected, rtol=1e-8, atol=0)


def test_gradients_pass_through_the_inputs() -> None:
    """Anything that shapes the Gram matrix is learned through the same door."""
    for kernel in (Decomposable(Gaussian(1.3), Dense(A)), Decomposable(Linear()), CurlFree(1.2)):

        def value(Z: Tensor, kernel: OperatorKernel = kernel) -> Tensor:
            return Score(Z, tensor(TARGETS))(kernel, tensor(ALPHA))

        points = tensor(X).requires_grad_()
        (gradient,) = torch.autograd.grad(value(points), points)
        numeric = no.numeric_gradient(lambda z: value(tensor(z.reshape(X.shape))).item(), X.reshape(-1))
        assert np.abs(gradient.numpy().reshape(-1) - numeric).max() <= 1e-6 * np.abs(numeric).max()


# -- many values of alpha ---------------------------------------------------------------------------------------------
def test_a_path_takes_one_eigendecomposition(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def counted(matrix: Tensor, **options: Any) -> Any:
        sizes.append(matrix.shape[-1])
        return eigh(matrix, **options)

    monkeypatch.setattr("representer.systems.exact.eigh", counted)
    monkeypatch.setattr(operator_valued, "eigh", counted)
    score = Score(tensor(X), tensor(TARGETS))
    alphas = tensor(np.logspace(-4, 1, 30))
    for kernel, expected in (
        (Decomposable(Gaussian(1.3)), [8]),
        (Decomposable(Gaussian(1.3), Dense(A)), [8]),
        (Decomposable(Gaussian(1.3), Diagonal([1.0, 2.0, 3.0])), [8]),
        (Separate([Gaussian(1.0), Gaussian(2.0), Gaussian(3.0)]), [8, 8, 8]),
        (CurlFree(1.0), [24]),
    ):
        sizes.clear()
        errors = score.path(kernel, alphas)
        assert sizes == expected
        each = torch.stack([score(kernel, alpha) for alpha in alphas])
        torch.testing.assert_close(errors, each, rtol=1e-7, atol=0)


def test_the_spectrum_of_a_path_serves_the_final_fit() -> None:
    kernel = Decomposable(Gaussian(1.3), Dense(A))
    score = score_of(tensor(X), TARGETS, weighted=True, missing=False, criterion="loo")
    data = score.data(kernel)
    data.path(tensor([ALPHA]))
    assert "spectrum" in vars(data)
    fitted, fresh = factor_system(data, ALPHA), CoupledOutputs(score.data(kernel), ALPHA)
    torch.testing.assert_close(fitted.coefficients(), fresh.coefficients())
    torch.testing.assert_close(fitted.variance(tensor(X)), fresh.variance(tensor(X)), rtol=1e-6, atol=1e-9)


def test_a_path_over_precomputed_gram_matrices() -> None:
    gram, alphas = Gaussian(1.3)(X), tensor([ALPHA, 1.0])
    nothing = torch.full((8, 8), torch.nan, dtype=DOUBLE)  # not read where the Gram matrix is given
    for missing in (False, True):
        options: dict[str, Any] = {"weighted": True, "missing": missing, "criterion": "loo"}
        expected = score_of(tensor(X), TARGETS, **options).path(Decomposable(Gaussian(1.3)), alphas)
        kernel = Decomposable(Precomputed())
        torch.testing.assert_close(score_of(gram, TARGETS, **options).path(kernel, alphas), expected)
        score = score_of(nothing, TARGETS, **options)
        score.options["gram"] = gram
        torch.testing.assert_close(score.path(kernel, alphas), expected)
        torch.testing.assert_close(gram, Gaussian(1.3)(X))  # not overwritten


def test_the_range_of_alpha() -> None:
    """From where rounding decides to where the fit is zero, whatever the scale of the kernel."""
    unscaled = Score(tensor(X), tensor(TARGETS)).data(Decomposable(Gaussian(1.3), Dense(A))).alpha_range()[0]
    for scale in (1e-6, 1.0, 1e6):
        kernel = Decomposable(scale * Gaussian(1.3), Dense(A))
        score = Score(tensor(X), tensor(TARGETS))
        smallest, largest = score.data(kernel).alpha_range()
        torch.testing.assert_close(smallest, scale * unscaled)
        grid = log_spaced(smallest, largest)
        assert len(grid) == 30
        assert bool((grid[1:] > grid[:-1]).all())
        torch.testing.assert_close(grid[0], smallest)
        block = kernel.dense(tensor(X), None, 3)
        condition = torch.linalg.eigvalsh(block)[-1] / (8 * smallest)
        assert 1e8 < condition < 1e12
        shrunk = torch.linalg.eigvalsh(block)[-1] / (8 * grid[-1])
        assert shrunk < 1.0  # even the leading direction is at most half fitted
        errors = score.path(kernel, grid)
        assert bool(torch.isfinite(errors).all())
        each = torch.stack([score(kernel, alpha) for alpha in grid])
        torch.testing.assert_close(errors, each, rtol=1e-3, atol=0)


def test_a_kernel_that_vanishes_still_has_a_range() -> None:
    score = Score(torch.zeros(5, 2, dtype=DOUBLE), tensor(TARGETS[:5]))
    smallest, largest = score.data(Decomposable(Linear())).alpha_range()
    assert smallest > 0
    grid = log_spaced(smallest, largest)
    assert bool(torch.isfinite(grid).all())
    errors = score.path(Decomposable(Linear()), grid)
    np.testing.assert_allclose(errors, np.full(30, (TARGETS[:5] ** 2).sum() / 5))


def test_a_rounded_operator_counts_as_semidefinite() -> None:
    kernel = Decomposable(Gaussian(1.3), Dense([[1.0, 1.0 + 1e-9], [1.0 + 1e-9, 1.0]]))
    exact = Decomposable(Gaussian(1.3), Dense(np.ones((2, 2))))
    score = Score(tensor(X), tensor(TARGETS[:, :2]))
    torch.testing.assert_close(score(kernel, tensor(ALPHA)), score(exact, tensor(ALPHA)), rtol=1e-6, atol=0)


@pytest.mark.parametrize("shift", [1e-8, 1e-3, 1.0])
@pytest.mark.parametrize("spectrum", ["spread", "ties", "clusters"])
def test_the_moments_of_the_gradient_by_a_loop(spectrum, shift):
    rng = np.random.default_rng(0)
    n, p = 30, 8
    U = torch.linalg.qr(torch.from_numpy(rng.normal(size=(n, n)))).Q
    t, d = torch.from_numpy(rng.random((n, p))), torch.from_numpy(np.logspace(-12, 1, p))
    e = {
        "spread": np.logspace(-14, 2, n),
        "ties": np.repeat([0.0, 1e-12, 1.0], n // 3),
        "clusters": 1.0 + np.concatenate([np.zeros(n // 2), np.logspace(-15, -3, n // 2)]),
    }[spectrum]
    e = torch.from_numpy(e)
    g = 1.0 / (e[:, None] * d + shift)
    expected = sum(d[k] * torch.outer(g[:, k], g[:, k]) * (U.mT @ (t[:, k, None] * U)) for k in range(p))
    found = _weighted_moments(U, t, e, d, g)
    assert (found - expected).abs().max() <= 1e-8 * expected.abs().max()


@pytest.mark.parametrize("intercept", [False, True])
def test_groups_at_alphas_beyond_all_data_have_the_limit_and_no_lapack_error(intercept):
    """A search may step that far: f is zero, beside the constant of the samples that are left."""
    inputs, Y = torch.arange(6.0, dtype=torch.float64)[:, None], torch.arange(6.0, dtype=torch.float64)[:, None] ** 2
    groups, ones = torch.tensor([0, 0, 1, 2, 3, 4]), torch.ones(6, dtype=torch.float64)
    data = RidgeData(Decomposable(Gaussian(1.0)), inputs, Y, ones, groups=groups, intercept=intercept)
    means = torch.stack([Y[groups != g].mean() if intercept else Y.new_zeros(()) for g in groups])
    expected = ((Y[:, 0] - means) ** 2).mean()
    for alpha in (1e12, 1e100):
        found = cross_validation(data, torch.tensor(alpha, dtype=torch.float64))
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=0.0)


# -- the restricted likelihood ----------------------------------------------------------------------------------------
def naive_restricted_likelihood(K: np.ndarray, y: np.ndarray, weights: np.ndarray, noise: float) -> tuple[float, int]:
    """−2 log of the greatest likelihood over amplitudes of contrasts of y, and their number, by dense matrices."""
    C = K + noise * np.diag(1.0 / weights)
    contrasts = np.linalg.qr(np.column_stack([np.ones(len(y)), np.eye(len(y))[:, 1:]]))[0][:, 1:]  # orthogonal to 1
    S, z = contrasts.T @ C @ contrasts, contrasts.T @ y
    m = len(z)
    return m * np.log(z @ np.linalg.solve(S, z) / m) + np.linalg.slogdet(S)[1], m


@pytest.mark.parametrize("missing", [False, True], ids=["complete", "missing"])
@weightings
def test_the_restricted_likelihood_is_that_of_contrasts(weighted: bool, missing: bool) -> None:
    """Weighted samples have other units, which shift the logarithm by a constant: differences are compared."""
    score = score_of(torch.from_numpy(X), np.array(TARGETS), weighted=weighted, missing=missing, criterion="loo")
    kernel, values, expected = Decomposable(Gaussian(1.3)), [], []
    K = np.asarray(kernel.kernel(X))
    for alpha in (0.01, ALPHA, 0.5):
        data = RidgeData(kernel, score.X, score.Y, score.weights, intercept=True, **score.options)
        values.append(restricted_likelihood(data, tensor(alpha)).log().item())
        terms = []
        for j in range(score.Y.shape[1]):
            rows = np.flatnonzero(MISSING[:, j]) if missing else np.arange(len(X))
            own = score.weights.numpy()[rows]
            terms.append(naive_restricted_likelihood(K[rows[:, None], rows], TARGETS[rows, j], own, len(X) * alpha))
        expected.append(sum(value for value, _ in terms) / sum(m for _, m in terms))
    if not weighted:
        np.testing.assert_allclose(values, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(np.diff(values), np.diff(expected), rtol=1e-8)


@pytest.mark.parametrize("intercept", [False, True])
def test_gradients_of_the_restricted_likelihood(intercept: bool) -> None:
    def value(lengthscale: Tensor, alpha: Tensor) -> Tensor:
        kernel = Decomposable(Gaussian("auto")).replace({"kernel__lengthscale": lengthscale})
        data = RidgeData(kernel, tensor(X), tensor(TARGETS), tensor(WEIGHTS), intercept=intercept)
        return restricted_likelihood(data, alpha)

    lengthscale, alpha = tensor(np.linspace(0.8, 1.4, X.shape[1])).requires_grad_(), tensor(ALPHA).requires_grad_()
    assert torch.autograd.gradcheck(value, (lengthscale, alpha))


def test_merged_samples_make_repetitions_the_same_as_weights() -> None:
    """A sample twice is one of weight two; different targets of equal inputs are their mean."""
    index, groups = torch.tensor([0, 0, 1, 2, 2, 2, 3, 4, 5, 6, 7]), torch.tensor([7, 7, 1, 2, 2, 2, 3, 4, 5, 6, 0])
    kernel, Y = Decomposable(Gaussian(1.3)), tensor(TARGETS)
    repeated = RidgeData(kernel, tensor(X)[index], Y[index], torch.ones(11).double(), groups=groups, intercept=True)
    counts = torch.bincount(index).double()
    weighted = RidgeData(kernel, tensor(X), Y, counts / counts.mean(), intercept=True)
    one, two = (restricted_likelihood(data, tensor(ALPHA)).item() for data in (repeated.merged(), weighted))
    np.testing.assert_allclose(one, two)
    assert weighted.merged() is weighted
    spread = repeated.Y + torch.tensor([1.0, -1.0, 0, 2.0, -1.0, -1.0, 0, 0, 0, 0, 0]).double()[:, None]
    torch.testing.assert_close(replace(repeated, Y=spread).merged().Y, repeated.merged().Y)
