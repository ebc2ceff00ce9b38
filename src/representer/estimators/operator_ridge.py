"""Vector-valued ridge regression with an operator-valued kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
import torch
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from representer.approximation import Approximation, Falkon, approximation_error
from representer.data import SparseRows, count, take
from representer.estimators._callbacks import CallbackSupportMixin, fitting, iteration_callback
from representer.estimators._large_ridge import LargeRidge
from representer.estimators._lazy import lazily
from representer.estimators._ridge import (
    OPERATOR,
    Choice,
    RidgeProblem,
    check_arguments,
    choose,
    choose_alpha,
    guard_memory,
    prior_scale,
    resolve_operator,
    ridge_system,
)
from representer.estimators.validation import (
    check_alpha,
    check_inputs,
    check_targets,
    check_weights,
    seed_of,
)
from representer.functions import Expansion
from representer.kernels import Linear
from representer.linalg import Spectrum
from representer.linalg.memory import row_blocks
from representer.objectives.operator_valued import Criterion
from representer.operators import Decomposable, Operator, OperatorKernel
from representer.operators.adapted import original, silent_repairs, takes_sparse
from representer.samples.on_dask import is_dask
from representer.systems import System


class OperatorRidge(CallbackSupportMixin, MultiOutputMixin, RegressorMixin, LargeRidge):
    """Vector-valued ridge regression with any operator-valued kernel.

    Solves ::

        min_f  (1/n) Σ_i ‖y_i − f(x_i)‖² + alpha ‖f‖²

    over the ℝᵖ-valued functions of the space whose kernel is K(x, y) = k(x, y) A, or any kernel of
    ``representer.operators``. The solution f = Σ_i K(·, x_i) c_i is found by the cheapest exact route that the kernel's
    structure allows. ``alpha`` multiplies the norm beside the *mean* loss: scikit-learn's ``KernelRidge(alpha=a)`` is
    ``OperatorRidge(operator=None, alpha=a / n)``.

    Parameters
    ----------
    kernel : Kernel, OperatorKernel, str or callable, default="rbf"
        A scalar kernel k, or an operator-valued kernel such as ``CurlFree()`` or ``Separate([k1, k2])``. A number in it
        stays; a word lets the data decide: ``Gaussian("median")`` (what ``"rbf"`` means) by the median heuristic,
        ``Gaussian("auto")`` and ``Gaussian("ard")`` by the ``criterion``, with gradients.
    operator : Operator, "learn" or None, default=None
        The output operator A of a scalar kernel. None is the identity; ``"learn"`` learns a dense one by the
        ``criterion``.
    alpha : float, array-like or "auto", default="auto"
        The weight of ‖f‖²; several candidates, or all positive numbers, are compared by the ``criterion`` for the price
        of one eigendecomposition (on a random subset, with a warning, where more than 8,000 outputs are coupled).
    criterion : {"loo", "gcv"}, default="loo"
        Closed-form leave-one-out error, or generalised cross-validation.
    approximation : Nystroem, Landmarks, RandomFeatures, TensorSketch or None, default=None
        None is exact, with an n × n matrix. With an approximation of m features the fit is a sum over blocks of
        samples: memory m², also for Dask arrays and frames; the kernel is learned on 1,500 random samples.
    solver : {"auto", "direct", "cg"} or Falkon, default="auto"
        How an approximate fit solves for its coefficients: by normal equations (``"direct"``), or by preconditioned
        conjugate gradients (``"cg"`` is ``Falkon()``), which ``"auto"`` takes for more than 6,000 features.
    memory_limit : int, str or None, default=None
        What an approximate fit may take beside the data, in bytes or as ``"2GB"``; None: what m features need.
    max_iter : int, default=100
        Iterations of the search over hyperparameters.
    tol : float, default=1e-5
        Relative decrease of the criterion at which that search stops.
    n_restarts : int, default=1
        Starts of that search; the first is data-driven, the others random around it.
    random_state : int, RandomState instance or None, default=None
        Seeds random starts and landmarks.
    verbose : int, default=0
        1 shows progress of long searches, 2 also how they ended.
    device : str or None, default=None
        Where tensors live, ``"cpu"`` by default.
    dtype : {"float64", "float32"}, default="float64"
        The precision of the computation.

    Attributes
    ----------
    kernel_ : Kernel or OperatorKernel
        The kernel with the numbers that were used.
    operator_ : Operator or None
        The output operator that was used; None if ``kernel`` is operator-valued.
    alpha_ : float
        The weight of ‖f‖² that was used.
    dual_coef_ : ndarray of shape (n_anchors,) or (n_anchors, n_outputs)
        The coefficients c_i.
    X_fit_ : ndarray, csr_array, list or None
        The training inputs; not kept after ``partial_fit`` or a fit on Dask.
    landmarks_ : ndarray, list or None
        The anchors of an approximate fit, if it has some; None if the training inputs are the anchors.
    approximation_error_ : float
        ‖K − ΦΦᵀ‖/‖K‖ of an approximate fit in the Frobenius norm, from sampled columns.
    n_samples_seen_ : int
        Of all batches, after ``partial_fit``.
    criterion_value_ : float or None
        The criterion at the chosen hyperparameters, None if nothing was chosen.
    history_ : list of HistoryEntry
        The search over hyperparameters: iteration, seconds, criterion, gradient norm of its logarithm.
    n_iter_ : int
        Iterations of that search; 1 if there was none.
    n_features_in_ : int
        Number of features seen during fit (vectors and Gram matrices).
    feature_names_in_ : ndarray of str
        Names of the features, if X had string names.
    loo_predict_ : ndarray like y
        Exact leave-one-out predictions, computed at first use.

    See Also
    --------
    sklearn.kernel_ridge.KernelRidge : The special case of the identity operator and a fixed alpha.

    Examples
    --------
    >>> import numpy as np
    >>> from representer import OperatorRidge
    >>> from representer.kernels import Gaussian
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, size=(80, 1))
    >>> Y = np.column_stack([np.sin(X[:, 0]), np.cos(X[:, 0])]) + 0.05 * rng.normal(size=(80, 2))
    >>> Y[::7, 0] = np.nan  # missing targets are allowed
    >>> model = OperatorRidge(kernel=Gaussian("auto"), operator="learn").fit(X, Y)
    >>> mean, std = model.predict([[0.5]], return_std=True)
    >>> bool(np.all(np.abs(mean - [[0.479, 0.878]]) < 3 * std))
    True
    """

    def __init__(
        self,
        kernel: Any = "rbf",
        operator: Operator | Literal["learn"] | None = None,
        alpha: Any = "auto",
        *,
        criterion: Criterion = "loo",
        approximation: Approximation | None = None,
        solver: str | Falkon = "auto",
        memory_limit: int | str | None = None,
        max_iter: int = 100,
        tol: float = 1e-5,
        n_restarts: int = 1,
        random_state: Any = None,
        verbose: int = 0,
        device: str | None = None,
        dtype: str = "float64",
    ):
        self.kernel = kernel
        self.operator = operator
        self.alpha = alpha
        self.criterion = criterion
        self.approximation = approximation
        self.solver = solver
        self.memory_limit = memory_limit
        self.max_iter = max_iter
        self.tol = tol
        self.n_restarts = n_restarts
        self.random_state = random_state
        self.verbose = verbose
        self.device = device
        self.dtype = dtype

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = takes_sparse(self.kernel)
        return tags

    # -- fitting ----------------------------------------------------------------------------------------------------
    @fitting
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Training inputs; with a precomputed kernel, their Gram matrix. Fingerprints may be sparse. With an
            approximation, also a Dask array or DataFrame.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets. Among several outputs, NaN marks a missing entry.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples in the mean loss.

        Returns
        -------
        self : OperatorRidge
            The fitted model.
        """
        context = self._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=self)
        callback = iteration_callback(self, context)
        check_arguments(self)
        given = self._given()
        self._forget()
        if is_dask(X):
            self._fit_source(self._dask_source(given, X, y, sample_weight), given, callback)
        else:
            problem = self._validate(given, X, y, sample_weight)
            self._missing = problem.observed is not None and self._by_outputs(given)
            if self.approximation is not None and (problem.observed is None or self._missing):
                self._fit_source(self._memory_source(problem), given, callback)
            else:
                self._fit_exactly(problem, given, callback)
        context.call_on_fit_task_end(estimator=self)
        return self

    def _fit_exactly(self, problem: RidgeProblem, given: OperatorKernel, callback: Any) -> None:
        """With a system of all samples; of their features, where coupled outputs are missing for an approximation."""
        learn_operator = isinstance(self.operator, str)
        given = self._represented.adapted(given, repair=True)
        free = given.free() + ([OPERATOR] if learn_operator else [])
        guard_memory(given, problem, free, check_alpha(self.alpha), self.approximation)
        if not isinstance(given, Decomposable):
            problem = problem.repaired()
        kernel = given.resolve(problem.X)
        if not given.free():
            problem = self._with_gram(kernel, problem)
        kernel = resolve_operator(kernel, problem, learn=learn_operator)
        seed = seed_of(self.random_state)
        with silent_repairs():  # fit speaks of the last Gram matrix
            choice = choose(self, kernel, free, problem, seed, callback)
        self._finish(choice, problem, seed)

    def _validate(
        self, kernel: OperatorKernel, X: Any, y: Any, sample_weight: Any, *, reset: bool = True
    ) -> RidgeProblem:
        X = check_inputs(self, X, kernel.domain, reset=reset, sparse=takes_sparse(kernel))
        targets, flat = check_targets(y, len(X))
        weights = check_weights(sample_weight, X)
        self.X_fit_, self._flat, self._targets, self._weights = X, flat, targets, weights
        self._sparse = isinstance(X, SparseRows)
        problem = self._problem(kernel)
        expected = kernel.n_outputs(problem.X)
        if expected is not None and expected != targets.shape[1]:
            raise ValueError(
                f"{kernel!r} has {expected} outputs on these inputs, but y has {targets.shape[1]}. Give y one column "
                "for each output of the kernel."
            )
        return problem

    def _with_gram(self, kernel: OperatorKernel, problem: RidgeProblem) -> RidgeProblem:
        if isinstance(kernel, Decomposable) and self.approximation is None:
            return problem.with_fixed_gram(kernel.kernel)
        return problem

    def _problem(self, kernel: OperatorKernel) -> RidgeProblem:
        """The training data as tensors, without the samples of weight zero."""
        missing = np.isnan(self._targets)
        tensor = self._represented.tensor
        Y = tensor(np.where(missing, 0.0, self._targets))
        observed = torch.from_numpy(~missing).to(Y.device) if missing.any() else None
        weights = torch.ones(len(Y), dtype=Y.dtype, device=Y.device)
        if self._weights is not None:
            weights = tensor(self._weights)
        X = self._represented.inputs(kernel, self.X_fit_)
        problem = RidgeProblem(X, Y, weights, observed, kernel.domain == "gram")
        return problem if self._weights is None else problem.rows(self._kept())

    # -- the fitted function ------------------------------------------------------------------------------------------
    def _finish(self, choice: Choice, problem: RidgeProblem, seed: int) -> None:
        kernel: Any = choice.kernel
        scalar, history = isinstance(kernel, Decomposable), choice.history
        self.kernel_ = original(kernel.kernel if scalar else kernel)
        self.operator_ = kernel._operator if scalar else None
        self.landmarks_: Any = None
        if self.approximation is not None:
            adapted: Any = self._operator_kernel()
            features = self.approximation.features(adapted.kernel, problem.X, seed=seed)
            self._keep_features(features)
            self.approximation_error_ = approximation_error(features, problem.X)
            problem = replace(problem, X=features(problem.X), gram=None)
            if not isinstance(alpha := check_alpha(self.alpha), float):
                subset = problem.subset(self._system_kernel(), len(problem.Y), seed)
                best = choose_alpha(self._system_kernel(), subset, alpha, self.criterion)
                choice = best if subset is problem else replace(best, spectrum=None)
        problem = self._with_gram(self._operator_kernel(), problem)
        self.alpha_ = choice.alpha
        self.criterion_value_ = choice.value
        self.history_ = history
        self.n_iter_ = max(1, len(history) - 1)  # the first entry is the start
        coefficients = self._factor(problem, choice.spectrum).solve(problem.Y)
        if self.approximation is not None:
            dual = features.coefficients(problem.X.mT @ coefficients)
        else:
            dual = problem.Y.new_zeros(len(self._targets), problem.Y.shape[1])
            dual[self._kept()] = problem.known(coefficients)
        self.dual_coef_ = self._shaped(dual)

    def _system_kernel(self) -> OperatorKernel:
        """The kernel of the ridge system: linear in the features under an approximation."""
        return self._operator_kernel() if self._state is None else Decomposable(Linear(), self.operator_)

    def _factor(self, problem: RidgeProblem, spectrum: Spectrum | None = None) -> System:
        return ridge_system(self._system_kernel(), problem, self.alpha_, spectrum)

    def _system(self) -> tuple[System, RidgeProblem, Tensor]:
        """The factored system of the fitted model with its data and coefficients, made at first use and kept."""
        if "_cached_system" not in self.__dict__:
            problem = self._problem(self._operator_kernel())
            if self._state is not None:
                problem = replace(problem, X=self._feature_map()(problem.X))
            with silent_repairs():  # fit has said it
                problem = problem if self.operator_ is not None else problem.repaired()
                problem = self._with_gram(self._operator_kernel(), problem)
                system = self._factor(problem)
            self._cached_system = (system, problem, system.solve(problem.Y))
        return self._cached_system

    @property
    def loo_predict_(self) -> np.ndarray:
        """Exact leave-one-out predictions for the training samples, at the chosen hyperparameters."""
        check_is_fitted(self)
        if self.X_fit_ is None:
            raise ValueError(
                "loo_predict_ needs the training samples, and a fit by batches or on Dask keeps none."
            )
        if self._held is not None:
            return self._large_loo()
        system, problem, coefficients = self._system()
        predictions = np.empty(self._targets.shape)
        kept = self._kept().numpy()
        predictions[kept] = system.loo_predictions(problem.Y, coefficients).cpu().numpy()
        ignored = np.setdiff1d(np.arange(len(predictions)), kept)
        if len(ignored):
            rows = take(self.X_fit_, torch.from_numpy(ignored))
            predictions[ignored] = self.predict(rows).reshape(len(ignored), -1)
        return predictions[:, 0] if self._flat else predictions

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict targets.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train). For a Dask collection, so are the predictions: lazy.
        return_std : bool, default=False
            Also return the standard deviation of a new observation, noise included: f is seen as a Gaussian process
            of covariance s²K with noise of variance s²·n·alpha (n the total weight), where s², for each output, gives
            leave-one-out residuals the size they should have.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Predictions.
        std : ndarray like y
            Only with ``return_std``.
        """
        check_is_fitted(self)
        if is_dask(X):
            if return_std:
                raise ValueError("return_std=True is for data in memory; map it over the chunks yourself.")
            width = None if self._flat else self.dual_coef_.shape[1]
            return lazily(self, "predict", X, width, self.dual_coef_.dtype)
        kernel = self._operator_kernel()
        X = check_inputs(self, X, kernel.domain, reset=False, sparse=takes_sparse(kernel))
        inputs = self._represented.inputs(kernel, X)
        if self._by_features:
            mean = self._shaped(self._large_mean(inputs))
        else:
            coefficients = self._represented.tensor(self.dual_coef_.reshape(len(self.dual_coef_), -1))
            anchors = self.X_fit_ if self.landmarks_ is None else self.landmarks_
            mean = self._shaped(
                Expansion(kernel, self._represented.inputs(kernel, anchors), coefficients)(inputs)
            )
        return (mean, self._shaped(self._std(inputs))) if return_std else mean

    def _std(self, inputs: Any) -> Tensor:
        if self._held is not None:
            return self._large_std(inputs)
        system, problem, coefficients = self._system()
        noise = self.alpha_ * (len(self._targets) if self._weights is None else float(self._weights.sum()))
        rows = row_blocks(count(inputs), problem.Y.numel() * problem.Y.element_size())
        variance = torch.cat([self._variance(system, inputs[block], problem.Y.shape[1]) for block in rows])
        return ((variance + noise) * prior_scale(system, problem, coefficients)).sqrt()

    def _variance(self, system: System, inputs: Any, p: int) -> Tensor:
        if self._state is None:
            return system.variance(inputs)
        features = self._feature_map()(inputs)
        kernel: Any = self._operator_kernel()
        missed = (kernel.kernel._diag(inputs) - (features**2).sum(1)).clamp(min=0.0)  # what no landmark sees
        assert self.operator_ is not None  # an approximate fit has a scalar kernel
        return system.variance(features) + missed[:, None] * self.operator_.as_matrix(p, features).diagonal()
