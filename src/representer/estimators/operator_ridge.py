"""Vector-valued ridge regression with an operator-valued kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from representer.approximation import Approximation, Falkon
from representer.estimators.base import KernelLearner, KernelLike, RandomState, fitting, score_of_numbers
from representer.estimators.base import predict_interval as intervals_of
from representer.estimators.validation import (
    DTYPES,
    Check,
    check_alpha,
    check_targets,
    noise_of,
    seed_of,
    takes_batches,
    warn_unconverged,
)
from representer.functions import Composed, Expansion, FeatureFunction, Stacked
from representer.inspection import LEARNED, alone, fold_intervals, left_out_intervals, left_out_misfits, with_deviation
from representer.kernels import Stack, stack_of
from representer.operators import (
    Decomposable,
    Operator,
    OperatorKernel,
    Representation,
    as_operator_kernel,
    left_out_together,
    original,
)
from representer.optimize import in_squared_units, learned_numbers
from representer.problems.ridge import RidgeModel, RidgeProblem, RidgeSolution, warn_of_raised
from representer.problems.separate import separate_problems
from representer.problems.stack import (
    SHRINKAGE,
    LeastSquares,
    Members,
    StackProblem,
    StackSolution,
    by_likelihood,
)
from representer.samples import (
    Data,
    InMemory,
    OnDask,
    Samples,
    TrainingSamples,
    as_scipy,
    check_left_out,
    in_memory,
    is_dask,
    is_flat,
    largest_target,
    noise_weights,
    plain,
    require_targets,
    target_unit,
)
from representer.systems import Criterion, FittedSystem, StackedSystem
from representer.values import instance_of, one_of


def _takes_batches(learner: OperatorRidge) -> bool:
    """Is there a partial_fit? An AttributeError says why not."""
    if isinstance(learner.solver, Falkon) or learner.solver == "cg":
        raise AttributeError("partial_fit adds normal equations; use solver='direct'.")
    return takes_batches(learner)


class OperatorRidge(MultiOutputMixin, RegressorMixin, KernelLearner):
    """Vector-valued ridge regression with any operator-valued kernel.

    Solves ::

        min_f,b  (1/n) Σ_i ‖y_i − f(x_i) − b‖² + alpha ‖f‖²

    over the ℝᵖ-valued functions of the space whose kernel is K(x, y) = k(x, y) A, or any kernel of
    ``representer.operators``; b is zero with ``fit_intercept=False``. The solution
    f = Σ_i K(·, x_i) c_i is found by the cheapest exact route that the kernel's structure allows. ``alpha`` multiplies
    the norm beside the *mean* loss: scikit-learn's ``KernelRidge(alpha=a)`` is
    ``OperatorRidge("linear", alpha=a / n, fit_intercept=False)``.

    Parameters
    ----------
    kernel : Kernel, OperatorKernel, Stack, str or callable, default="auto"
        ``"auto"`` fits several kernels for data like X, ``Stack([k1, k2, …])`` those that are given, and averages the
        fits by what they say of left-out samples. With one output, some kernels of ``"auto"`` are learned by restricted
        likelihood; with two to eight, some are learned for each output, too. The words ``"molecules"``, ``"strings"``,
        ``"graphs"``, ``"curves"`` and ``"bags"`` mean several kernels of that kind. Otherwise a scalar kernel k, or an
        operator-valued kernel such as ``CurlFree()`` or ``Separate([k1, k2])``. A number in it stays; a word lets the
        data decide: ``Gaussian("median")`` (what ``"rbf"`` means) by the median heuristic, ``Gaussian("auto")`` and
        ``Gaussian("ard")`` by the ``criterion``, with gradients.
    operator : Operator, "learn" or None, default=None
        The output operator A of a scalar kernel. None is the identity; ``"learn"`` learns a dense one by the
        ``criterion``, beside the kernel that is best with the identity, for about the price of one more fit. It pays
        where noisy outputs share causes and samples are few; where outputs have little noise, or nothing in common, the
        identity is as good, and quicker.
    alpha : float, array-like or "auto", default="auto"
        The weight of ‖f‖²; several candidates, or all positive numbers, are compared by the ``criterion`` for the price
        of one eigendecomposition (on a random subset, with a warning, where more than 8,000 outputs are coupled). 0
        interpolates, for a kernel with numbers: it is the smallest alpha that leaves digits.
    criterion : {"loo", "gcv"}, default="loo"
        Closed-form leave-one-out error, or generalised cross-validation.
    fit_intercept : bool, default=True
        Is a constant b, at no cost, fitted beside f? Every leave-one-out fit then has a constant of its own.
    approximation : Nystroem, Landmarks, RandomFeatures, TensorSketch or None, default=None
        None is exact, with an n × n matrix. With an approximation of m features the fit is a sum over blocks of
        samples: memory m², also for Dask arrays and frames; the kernel is learned on 1,500 random samples.
    solver : {"auto", "direct", "cg"} or Falkon, default="auto"
        How an approximate fit solves for its coefficients: by normal equations (``"direct"``), or by preconditioned
        conjugate gradients (``"cg"`` is ``Falkon()``), which ``"auto"`` takes for more than 6,000 features.
    memory_limit : int, str or None, default=None
        What the sums over blocks of an approximate fit may take beside the data, in bytes or as ``"2GB"``; None: what
        they need. It bounds neither an exact fit nor the search for hyperparameters on some of the samples, which takes
        about 0.25 GB for 1,500 of them.
    max_iter : int, default=100
        Iterations of the search over hyperparameters.
    max_time : float, str or None, default=None
        Seconds after which the search ends with the best point so far, or a text such as "90s", "5m" or "1h".
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
    kernel_ : Kernel, OperatorKernel or Stack
        The kernel with the numbers that were used; given as ``kernel`` it makes the same model again.
    members_ : Members
        The kernels of a stack, their alphas, weights and errors for left-out samples: printed as a table.
    weights_ : ndarray of shape (n_kernels, n_outputs)
        The weights of a stack, at least 0; those of each output sum to one.
    operator_ : Operator, list of Operator or None
        The output operator that was used; those of the kernels of a stack, each of which learns its own; None if
        ``kernel``, or a member of a stack, is operator-valued.
    alpha_ : float or ndarray of shape (n_kernels,)
        The weight of ‖f‖² that was used; in a stack each kernel has its own.
    function_ : Function
        The fitted function f + b.
    system_ : System
        The linear system that f solves: leave-one-out predictions, variances and leverages are asked of it.
    dual_coef_ : ndarray of shape (n_anchors,) or (n_anchors, n_outputs)
        The coefficients c_i; in a stack each of ``function_.functions`` has its own.
    intercept_ : float or ndarray of shape (n_outputs,)
        The constant b, zero without ``fit_intercept``.
    X_fit_ : ndarray, csr_array, list or None
        The training inputs; not kept after ``partial_fit`` or a fit on Dask.
    landmarks_ : ndarray, list or None
        The anchors of an approximate fit, if it has some (of a stack, those of its first kernel); None if the training
        inputs are the anchors.
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
        Exact leave-one-out predictions, computed at first use; samples of one group are left out together.

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

    function_: Expansion | FeatureFunction | Stacked
    system_: FittedSystem | StackedSystem
    members_: Members
    weights_: np.ndarray
    _noise: np.ndarray | None = None  # the standard deviations of measurements, (n, 1) or (n, p), where they are known
    training_data = ("system_", "history_", "members_")

    constraints: ClassVar[dict[str, Check]] = {
        "alpha": lambda name, value: check_alpha(value, interpolates=True),
        "criterion": one_of("loo", "gcv"),
        "solver": one_of("auto", "direct", "cg") | instance_of("Falkon(...)", Falkon),
    }

    def __init__(
        self,
        kernel: KernelLike = "auto",
        operator: Operator | Literal["learn"] | None = None,
        alpha: ArrayLike = "auto",
        *,
        criterion: Criterion = "loo",
        fit_intercept: bool = True,
        approximation: Approximation | None = None,
        solver: str | Falkon = "auto",
        memory_limit: int | str | None = None,
        max_iter: int = 100,
        max_time: float | str | None = None,
        tol: float = 1e-5,
        n_restarts: int = 1,
        random_state: RandomState = None,
        verbose: int = 0,
        device: str | None = None,
        dtype: str = "float64",
    ):
        self.kernel = kernel
        self.operator = operator
        self.alpha = alpha
        self.criterion = criterion
        self.fit_intercept = fit_intercept
        self.approximation = approximation
        self.solver = solver
        self.memory_limit = memory_limit
        self.max_iter = max_iter
        self.max_time = max_time
        self.tol = tol
        self.n_restarts = n_restarts
        self.random_state = random_state
        self.verbose = verbose
        self.device = device
        self.dtype = dtype

    # -- fitting ------------------------------------------------------------------------------------------------------
    @fitting
    def fit(self, X: Data, y: Data, sample_weight: Data = None, groups: Data = None, noise: Data = None) -> Self:
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
        groups : array-like of shape (n_samples,), default=None
            Labels of what belongs together, such as patients: leave-one-out leaves out whole groups.
        noise : array-like of shape (n_samples,) or (n_samples, n_outputs), default=None
            The standard deviation of each measurement, in units of y, where it is known. Precise targets then count
            more, in the loss and in what is left out, and ``alpha="auto"`` stands for at least so much noise. Standard
            deviations and intervals are those of a new measurement with the median noise.

        Returns
        -------
        self : OperatorRidge
            The fitted model.
        """
        self._check()
        if isinstance(self.solver, Falkon):
            self.solver.check_hyperparameters()
        self._refuse_groups(groups)
        kernel, inputs, how = self._stated_kernel(X), None, self._representation()
        self.__dict__.pop("n_samples_seen_", None)
        samples: Samples
        self._noise = None
        if is_dask(X):
            if noise is not None:
                raise ValueError("noise= is for samples in memory. On Dask, give sample_weight = 1 / noise**2 instead.")
            samples = self._on_dask(kernel, X, y, sample_weight, groups)
        else:
            inputs, samples = self._in_memory(kernel, X, y, sample_weight, groups, reset=True)
            how = self._representation(inputs)
            if noise is not None:
                samples = self._with_noise(samples, noise)
        self._keep(self._solved(samples, kernel, how, inputs))
        return self

    @available_if(_takes_batches)
    @fitting
    def partial_fit(self, X: Data, y: Data, sample_weight: Data = None, groups: Data = None) -> Self:
        """Fit to more samples: with ``approximation=``, and the same as one fit to all of them.

        The first batch (also after ``fit``, which is forgotten) decides what the data decide: words in the kernel,
        landmarks, what is learned. So where these are given (numbers in the kernel, ``Landmarks(Z)`` or random features
        with a ``random_state``), it equals ``fit`` on all batches at once, ``alpha="auto"`` included.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Inputs of the batch.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets, all of them known.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples.
        groups : array-like of shape (n_samples,), default=None
            Labels of what belongs together, also across batches: leave-one-out leaves out whole groups.

        Returns
        -------
        self : OperatorRidge
            The fitted model.
        """
        self._check()
        self._refuse_groups(groups)
        kernel, first = self._stated_kernel(X), not hasattr(self, "n_samples_seen_")
        X, samples = self._in_memory(kernel, in_memory(X), in_memory(y), sample_weight, None, reset=first)
        members = self._batch_groups(groups, len(X), first=first)
        if samples.observed is not None:
            raise ValueError("partial_fit needs all targets; y contains NaN. Leave such samples out, or use fit.")
        block = replace(samples.samples, groups=None if members is None else torch.from_numpy(members)).positive_part()
        if first:
            solution = self._solved(InMemory(block), kernel, self._representation(X), None)
            self._keep(replace(solution, system=solution.system.changed(samples=None)))  # type: ignore[arg-type]
        else:
            rules = [model.alpha_rule for model in self._models(kernel)]
            added = self.system_.added(block)
            system = added.settled(rules) if isinstance(added, StackedSystem) else added.settled(rules[0])
            self.function_, self.system_ = system.function().in_units(self._unit), system
            self.alpha_, self.criterion_value_ = system.alpha, self._squared(system.value)
        self.n_samples_seen_ = self.system_.n
        return self

    def _refuse_groups(self, groups: Data) -> None:
        """Refuse groups where the criterion does not leave them out."""
        if groups is not None and self.criterion == "gcv":
            raise ValueError(
                "criterion='gcv' knows no groups: it averages over single samples. Use criterion='loo' with groups=."
            )

    def _stated_kernel(self, X: Data) -> OperatorKernel | Stack:
        """The kernel, or the kernels that are stacked, with the output operator."""
        stack = stack_of(self.kernel, X, self._needed_features)
        if stack is None:
            return as_operator_kernel(self.kernel, self.operator)
        return Stack([as_operator_kernel(k, self.operator) for k in stack.kernels], stack.weights, stack.alphas)

    def _models(self, kernel: OperatorKernel | Stack) -> list[RidgeModel]:
        """What is fitted: one model, or one for each kernel of a stack."""
        alpha = check_alpha(self.alpha, interpolates=True)
        kernels: list[OperatorKernel] = kernel.kernels if isinstance(kernel, Stack) else [kernel]
        alphas = [alpha] * len(kernels)
        if isinstance(kernel, Stack) and kernel.alphas is not None:
            alphas = [float(own) for own in kernel.alphas]
        for own in kernels:
            if self.approximation is not None and not isinstance(own, Decomposable):
                raise ValueError(f"approximation= needs a scalar kernel with an output operator; got {own!r}.")
        learn, intercept = isinstance(self.operator, str), bool(self.fit_intercept)
        options = (self.approximation, self.solver, self.memory_limit, SHRINKAGE if len(kernels) > 1 else 0.0)
        noise = self._noise
        variance = None if noise is None else (np.median(noise, 0) / self._unit) ** 2
        balanced = isinstance(self.kernel, str) and len(kernels) > 1 and not learn
        return [
            RidgeModel(own, a, self.criterion, learn, intercept, *options, variance, balanced)
            for own, a in zip(kernels, alphas, strict=True)
        ]

    def _on_dask(self, kernel: OperatorKernel | Stack, X: Data, y: Data, sample_weight: Data, groups: Data) -> OnDask:
        """Samples in Dask collections, and what is known of them without a look."""
        require_targets(y)
        samples = self._dask_samples(kernel, X, y, sample_weight, groups)
        self._refuse_one(kernel, samples)
        self._flat, self._unit = is_flat(y), target_unit(np.array([[largest_target(y)]]), self.dtype)
        return samples if self._unit == 1.0 else self._dask_samples(kernel, X, y / self._unit, sample_weight, groups)

    def _in_memory(
        self, kernel: OperatorKernel | Stack, X: Data, y: Data, sample_weight: Data, groups: Data, *, reset: bool
    ) -> tuple[Any, InMemory]:
        """Checked inputs, and the samples."""
        X, weights, numbers = self._checked_inputs(kernel, X, sample_weight, groups, reset=reset)
        targets, flat = check_targets(y, len(X))
        unit = target_unit(targets, self.dtype)
        if reset:  # later batches have the unit of the first
            self._flat, self._unit = flat, unit
        targets = targets / self._unit
        how = self._representation(X)
        inputs = how.inputs(kernel, X)
        expected = kernel.n_outputs(inputs)
        if expected is not None and expected != targets.shape[1]:
            raise ValueError(
                f"{kernel!r} has {expected} outputs on these inputs, but y has {targets.shape[1]}. Give y one column "
                "for each output of the kernel."
            )
        if self.criterion == "loo":
            numbers = left_out_together(kernel, inputs, numbers)
        samples = InMemory(how.block(inputs, targets, weights, numbers))
        if reset:
            self._refuse_one(kernel, samples)
        return X, samples

    def _refuse_one(self, kernel: OperatorKernel | Stack, samples: Samples) -> None:
        """Refuse one sample, or one group, where leaving it out leaves nothing to choose or to centre by."""
        centred = self.fit_intercept and not isinstance(check_alpha(self.alpha, interpolates=True), float)
        if centred or isinstance(kernel, Stack):
            rows, groups = samples.weighty(), samples.groups
            check_left_out(len(rows), None if groups is None else groups[rows])

    def _with_noise(self, samples: InMemory, noise: Data) -> InMemory:
        """The samples with weights in inverse proportion to the variance of their noise; the median has weight one."""
        block = samples.samples
        deviations = self._noise = noise_of(noise, plain(block.Y))
        if deviations.shape[1] > 1 and self.approximation is not None:
            raise ValueError(
                "noise= of each output is for exact fits; with approximation= give that of each sample, of shape "
                f"({len(block)},), or use approximation=None."
            )
        w = self._representation().tensor(noise_weights(deviations))
        w = w[:, 0] if w.shape[1] == 1 else w
        if block.weights is not None:
            w = w * (block.weights if w.ndim == 1 else block.weights[:, None])
        return InMemory(replace(block, weights=w))

    def _solved(
        self, samples: Samples, kernel: OperatorKernel | Stack, representation: Representation, inputs: Data
    ) -> RidgeSolution | StackSolution:
        """Learn what is free, and fit to all samples."""
        seed, models = seed_of(self.random_state), self._models(kernel)
        own = [samples.prepared(model.kernel) for model in models] if isinstance(kernel, Stack) else [samples]
        problems = [
            RidgeProblem(of_model, model, representation, seed=seed, inputs=inputs)
            for of_model, model in zip(own, models, strict=True)
        ]
        if isinstance(self.kernel, str) and isinstance(kernel, Stack):  # the members are the library's choice
            problems = [*by_likelihood(problems), *separate_problems(problems)]
        settings = self._search_settings(seed, self.criterion)
        solution: RidgeSolution | StackSolution
        if isinstance(kernel, Stack):
            weights = None if isinstance(kernel.weights, str) else np.asarray(kernel.weights, dtype=np.float64)
            stack = StackProblem(problems, LeastSquares(), weights)
            solution = stack.solve(stack.choose(settings))
        else:
            solution = problems[0].solve(problems[0].choose(settings))
        warn_unconverged(solution.choice.unconverged, solution.system.problem)
        warn_of_raised(solution.solutions if isinstance(solution, StackSolution) else [solution])
        if isinstance(solution, StackSolution):
            shares = [member.weights.max() * member.learned for member in solution.members]
            self._learned = float(sum(shares)) + len(shares) - 1.0
        else:
            self._learned = float(learned_numbers(problems[0], solution.choice))
        return solution

    # -- the fitted function ------------------------------------------------------------------------------------------
    def _keep(self, solution: RidgeSolution | StackSolution) -> None:
        """Keep the solution of a fit."""
        choice = solution.choice
        self.function_, self.system_ = solution.function.in_units(self._unit), solution.system
        kernel: Any = original(choice.model)
        scalar = isinstance(kernel, Decomposable)
        self.kernel_: Any = kernel.kernel if scalar else kernel
        self.operator_: Operator | list[Operator] | None = kernel._operator if scalar else None
        for name in ("approximation_error_", "members_", "weights_"):
            self.__dict__.pop(name, None)
        if isinstance(solution, StackSolution):
            self.kernel_, self.operator_ = solution.kernel, solution.operator
            if isinstance(self.operator, str):
                self.operator_ = [k._operator for k in solution.kernel.kernels if isinstance(k, Decomposable)] or None
            scores = [self._squared(member.score) for member in solution.members]
            scored = zip(solution.members, scores, strict=True)
            self.members_ = Members(member._replace(score=score) for member, score in scored)
            self.weights_ = solution.kernel.weights
        if self.system_.approximation_error is not None:
            self.approximation_error_ = self.system_.approximation_error
        self.alpha_, self.criterion_value_ = self.system_.alpha, self._squared(choice.value)
        self.history_ = in_squared_units(choice.history, self._unit)
        self.n_iter_ = choice.n_iter

    def _squared(self, value: Any) -> Any:
        """A squared error in the units of y, of one in the units in which the system counts."""
        return None if value is None else value * self._unit * self._unit

    @property
    def _first(self) -> Expansion | FeatureFunction:
        """The function, or the first of a stack."""
        f = self.function_
        first = f.functions[0] if isinstance(f, Stacked) else f
        assert not isinstance(first, Composed)
        return first

    @property
    def _width(self) -> int:
        """The number of outputs."""
        return self._first.coefficients.shape[1]

    @property
    def _precision(self) -> np.dtype:
        return self._first.coefficients.dtype

    @property
    def dual_coef_(self) -> np.ndarray:
        """The coefficients of the anchors, or of the features where there are no anchors."""
        if isinstance(self.function_, Stacked):
            raise AttributeError(
                "A stack has coefficients for each of its kernels, and none of its own. Read those of the i-th one in "
                "function_.functions[i].coefficients."
            )
        if isinstance(self.function_, Expansion):
            return self._shaped(self.function_.coefficients)
        assert self.system_.features is not None
        features = self.system_.features.map
        return self._shaped(self._unit * features.coefficients(self.system_.coefficients().to(features.dtype)))

    @property
    def intercept_(self) -> Any:
        """The constant b beside f, one number an output."""
        check_is_fitted(self)
        b = self.function_.intercept
        return self._shaped(np.zeros(self._width, self._precision) if b is None else b)

    @property
    def X_fit_(self) -> Data:  # noqa: N802
        """The training inputs, or None after ``partial_fit`` or a fit on Dask."""
        check_is_fitted(self)
        return None if self.system_.samples is None else as_scipy(self.system_.samples.X)

    @property
    def landmarks_(self) -> Data:
        """The anchors of an approximate fit, if it has some."""
        check_is_fitted(self)
        return None if self.system_.features is None else self.system_.features.landmarks

    @property
    def loo_predict_(self) -> np.ndarray:
        """Exact leave-one-out predictions for the training samples, at the chosen hyperparameters."""
        check_is_fitted(self)
        if self.system_.samples is None:
            raise ValueError("loo_predict_ needs the training samples, and a fit by batches or on Dask keeps none.")
        return self._as_targets(self.system_.left_out())

    score = score_of_numbers

    def predict(self, X: Data, return_std: bool = False) -> Any:
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
        if is_dask(X):
            if return_std:
                raise ValueError("return_std=True is for data in memory; map it over the chunks yourself.")
            return self._lazily("predict", X, None if self._flat else self._width, dtype=self._precision)
        X = self._new_inputs(X)
        mean = self._shaped(self.function_(X))
        if not return_std:
            return mean
        return mean, self._deviation(X)

    def _deviation(self, X: Data) -> np.ndarray:
        return self._shaped((self._unit * self.system_.deviation(X)).to(DTYPES[self.dtype]))

    # -- why ----------------------------------------------------------------------------------------------------------
    def _deviations(self, X: Data) -> np.ndarray | None:
        try:
            return self._deviation(X)
        except ValueError:  # of conjugate gradients, and where k(x, x) or the scale is not known
            return None

    def _misfits(self) -> np.ndarray:
        return left_out_misfits(self.system_)

    def _left_out_answers(self) -> tuple[np.ndarray, np.ndarray] | None:
        samples = self.system_.samples
        if samples is None or not self.system_.leaves_out:
            return None
        return self._as_targets(samples.Y), self.loo_predict_

    # -- intervals ----------------------------------------------------------------------------------------------------
    predict_interval = intervals_of

    def _interval_ends(self, inputs: Data, coverage: float) -> np.ndarray:
        """By leave-one-out where few numbers were learned, else by folds."""
        samples, pairwise = self.system_.samples, self.kernel_.domain == "gram"
        if samples is None or (self._learned <= LEARNED * len(samples.Y) and not pairwise):
            ends = self._unit * left_out_intervals(self.system_, inputs, coverage)
        else:
            ends = fold_intervals(self._fold_fits(), inputs, coverage, alone if pairwise else with_deviation)
        return plain(ends).astype(self._precision)

    @property
    def _training_samples(self) -> TrainingSamples | None:  # type: ignore[override]
        """The samples of a fit in memory, in the units of y."""
        samples = self.system_.samples
        if samples is None:
            return None
        y, pairwise, weights = self._as_targets(samples.Y), self.kernel_.domain == "gram", samples.weights
        noise = self._noise
        if noise is not None and weights is not None:
            weights = weights.reshape(len(y), -1)[:, 0] / noise_weights(noise)[:, 0]
        options = {"sample_weight": weights, "groups": samples.groups, "noise": noise}
        return TrainingSamples(samples.X, y, options, pairwise).positive()
