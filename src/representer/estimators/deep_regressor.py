"""Deep kernel regression and interpolation, and what deep learners share: arguments, samples, fitted attributes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import torch
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.validation import _num_samples, check_is_fitted

from representer.approximation import Nystroem
from representer.estimators.base import KernelLearner, KernelLike, RandomState, fitting, score_of_numbers
from representer.estimators.base import predict_interval as intervals_of
from representer.estimators.validation import (
    POSITIVE_OR_AUTO,
    Check,
    approximated_by,
    check_targets,
    folds_of,
    noise_of,
    seed_of,
    warn_unconverged,
)
from representer.functions import Composed, Stacked
from representer.inspection import alone, fold_intervals, left_out_misfits, relative_errors, with_deviation
from representer.kernels import Kernel, Stack
from representer.notices import warn
from representer.operators import (
    OperatorKernel,
    Representation,
    as_operator_kernel,
    takes_gaps,
    takes_sparse,
)
from representer.optimize import SearchSettings, in_squared_units
from representer.problems.composition import (
    Composition,
    Loss,
)
from representer.problems.deep import DeepModel, DeepRegression, DeepSolution, LastSolution, SeenSamples, Splits
from representer.problems.depth import LARGEST_LAYER, accepted_composition
from representer.problems.machines import (
    Machine,
    as_layer,
    checked_layer,
    in_target_units,
    interpolation_doubt,
    scalar_kernel,
    scalar_layer,
    without_search,
)
from representer.problems.spread import DeepSpread, regression_spread
from representer.problems.stack import (
    LeastSquares,
    Members,
    Stacking,
    StackSolution,
)
from representer.samples import (
    Data,
    HeldSamples,
    OnDask,
    Samples,
    check_left_out,
    is_dask,
    is_flat,
    largest_target,
    noise_weights,
    plain,
    require_targets,
    target_unit,
)
from representer.samples import rows as limits
from representer.systems import FittedSystem, StackedSystem, SummedSystem
from representer.values import Rule, one_of

LOSSES = ("squared", "interpolate", "epsilon_insensitive", "huber")


# -- arguments --------------------------------------------------------------------------------------------------------


# What arguments may be that all deep learners have.
DEEP_ARGUMENTS: dict[str, Check] = {
    "alpha": POSITIVE_OR_AUTO,
    "approximation": approximated_by("Nystroem(...)", Nystroem),
    "criterion": one_of("auto", "validation", "loo", "gcv"),
    "cv": Rule(
        "at least 2 folds, or a splitter of scikit-learn",
        lambda cv: not isinstance(cv, int | np.integer) or bool(cv >= 2),
    ),
}


class DeepLearner(Protocol):
    """What deep learners have in common, whose arguments are read here."""

    layers: str | list[object] | tuple[object, ...]
    kernel: object
    alpha: float | str
    fit_intercept: bool
    criterion: str
    cv: object
    approximation: Nystroem | None
    memory_limit: int | str | None
    random_state: object
    warm_start: bool
    n_features_in_: int

    @property
    def loss(self) -> object:
        """The loss, or its name."""

    def _representation(self, X: Data = None) -> Representation: ...
    def _search_settings(self, seed: int, criterion: str) -> SearchSettings: ...
    def _dask_samples(
        self, kernel: OperatorKernel, X: Data, y: Data, sample_weight: Data = None, groups: Data = None
    ) -> OnDask: ...


def machine_of(learner: DeepLearner) -> Machine:
    """The arguments of a learner as one value."""
    return Machine(
        learner.layers,
        learner.kernel,
        learner.alpha,
        learner.loss,
        getattr(learner, "penalty", None) is not None,
        learner.approximation is not None,
        learner.fit_intercept,
        learner.criterion,
        learner.warm_start,
    )


def checked_machine(learner: DeepLearner) -> Machine:
    """The arguments as one value; an approximation of a problem whose loss is not squared is refused."""
    if learner.approximation is not None and learner.loss != "squared":
        raise ValueError(f"approximation= is for loss='squared'; got loss={learner.loss!r}.")
    return machine_of(learner)


def deep_tags(tags: Tags, learner: DeepLearner) -> Tags:
    """The tags of a learner whose first layer sees the data."""
    layers, first, pairwise = learner.layers, learner.kernel, tags.input_tags.pairwise
    gaps = tags.input_tags.allow_nan
    if isinstance(layers, list | tuple) and len(layers):
        try:
            layer = as_layer(layers[0])
            first, pairwise = layer.kernel, layer.domain == "gram"
        except ValueError:  # fit will say what is wrong
            first, pairwise = None, False
        gaps = isinstance(first, Kernel | OperatorKernel) and takes_gaps(first)
    # Sparse rows stay shallow where the data decide on layers; the "auto" of a fit that is no stack takes dense ones.
    decided = isinstance(layers, str) or (isinstance(first, str) and first == "auto")
    scalar = not isinstance(first, OperatorKernel)
    sparse = takes_sparse(first) and (not decided or (scalar and machine_of(learner).may_stack))
    return replace(tags, input_tags=replace(tags.input_tags, pairwise=pairwise, allow_nan=gaps, sparse=sparse))


# -- samples ----------------------------------------------------------------------------------------------------------


def dask_samples(
    learner: DeepLearner, kernel: OperatorKernel, X: Data, Y: Data, sample_weight: Data, groups: Data
) -> OnDask:
    """Samples in Dask collections, with numbers as targets."""
    samples = learner._dask_samples(kernel, X, Y, sample_weight, groups)
    require_targets(Y)
    assert learner.approximation is not None  # checked
    learner.approximation.size(samples.n)
    return samples


@dataclass(frozen=True)
class FoldRule:
    """How folds are made of the samples that inner layers see; ``labels`` takes their targets to classes."""

    cv: Any
    seed: int
    labels: Callable[[np.ndarray], np.ndarray] | None = None
    rows: int | None = None  # the most that a search looks at; None: what searches of deep machines look at

    def __call__(self, seen: SeenSamples) -> Splits:
        labels = None if self.labels is None else self.labels(plain(seen.block.Y))
        folds = folds_of(len(seen), self.cv, self.seed, labels, seen.groups, seen.numbers, seen.n)
        return Splits(folds.some(limits.DEEP_SEARCH_ROWS if self.rows is None else self.rows), folds)


# -- fits -------------------------------------------------------------------------------------------------------------


def last_solution(learner: Any) -> LastSolution | None:
    """What the last fit of a learner has found, in the unit of its targets now, where the next one is to go on."""
    if not learner.warm_start or not isinstance(getattr(learner, "function_", None), Composed):
        return None
    layers, outer = [checked_layer(layer) for layer in learner.layers_], as_operator_kernel(learner.kernel_, None)
    return LastSolution(in_target_units(Composition(layers, outer, learner.alpha_), learner._unit), learner.function_)


def deep_regression(
    learner: DeepLearner,
    composition: Composition,
    samples: Samples,
    inputs: Data,
    loss: Loss,
    labels: Callable[[np.ndarray], np.ndarray] | None = None,
) -> DeepRegression:
    """The problem that the arguments of a learner describe."""
    if isinstance(learner.layers, str) and composition.layers:
        first = composition.layers[0].replaced(size=min(LARGEST_LAYER, learner.n_features_in_))
        composition = Composition([first], composition.kernel, composition.alpha)
    if not loss.learnable and composition.free():
        composition = without_search(composition, learner.loss)
    seed = seed_of(learner.random_state)
    rule = FoldRule(learner.cv, seed, labels)
    model = DeepModel(
        composition,
        loss,
        rule,
        learner.criterion,
        learner.approximation,
        learner.memory_limit,
        last=last_solution(learner),
    )
    representation = learner._representation(inputs)
    return DeepRegression(samples, model, representation, seed=seed, inputs=inputs)


def stack_solution(
    learner: DeepLearner,
    stack: Stack,
    samples: Samples,
    inputs: Data,
    stacking: Stacking,
    labels: Callable[[np.ndarray], np.ndarray] | None = None,
) -> StackSolution:
    """Shallow fits with the kernels of a stack, and a composition beside them where the arguments let it be."""
    seed = seed_of(learner.random_state)
    representation = learner._representation(inputs)
    rule = FoldRule(learner.cv, seed, labels, limits.DEPTH_ROWS)
    settings = learner._search_settings(seed, learner.criterion)
    width = getattr(learner, "n_features_in_", None)
    return machine_of(learner).solve_stack(stack, samples, inputs, stacking, representation, rule, settings, width)


def stack_attributes(solution: StackSolution, unit: float = 1.0) -> dict[str, Any]:
    """What deep learners keep of a fit in which the data decide on inner layers, by name; targets are in a unit."""
    warn_unconverged(solution.choice.unconverged, solution.system.problem)
    deep, squared = accepted_composition(solution), unit * unit
    result = None if deep is None else deep.inner.result
    layers = [] if deep is None else [scalar_layer(layer) for layer in deep.composition.layers]
    members = (m._replace(score=None if m.score is None else m.score * squared) for m in solution.members)
    norms = [solution.system.norm() * unit] if deep is None else [*deep.norms[:-1], deep.norms[-1] * unit]
    value, history = solution.choice.value, [] if result is None else result.history
    return {
        "function_": solution.function.in_units(unit),
        "intercept_": solution.function.in_units(unit).constant,
        "kernel_": solution.kernel,
        "layers_": [layer.replaced(alpha=layer.alpha * squared) for layer in layers],
        "members_": Members(members),
        "weights_": solution.kernel.weights,
        "alpha_": solution.system.alpha,
        "layer_norms_": norms,
        "objective_value_": None if deep is None else deep.value * squared,
        "criterion_value_": None if value is None else value * squared,
        "search_history_": in_squared_units(solution.choice.history, unit),
        "history_": in_squared_units(history, unit),
        "n_iter_": 1 if result is None else max(1, result.n_iter),
    }


def forget(learner: DeepLearner) -> None:
    """Drop what only some fits have, of the fit before."""
    for name in ("members_", "weights_", "dual_coef_"):
        vars(learner).pop(name, None)


def warn_of_search(solution: DeepSolution) -> None:
    """A search that ended early keeps its best point, and says so; of its time the fit itself speaks."""
    choice, result = solution.choice, solution.inner.result
    if choice.settings.deadline.was_missed:
        return
    if solution.interrupted:
        stage = "hyperparameters" if choice.interrupted else "the inner layers"
        warn(
            f"The fit was interrupted during the search over {stage}; the best so far is kept.",
            ConvergenceWarning,
        )
    elif result is not None and not result.converged:
        warn(
            f"The search over the inner layers: {result.message}. The best restart is kept.",
            ConvergenceWarning,
        )


def deep_attributes(solution: DeepSolution, unit: float = 1.0) -> dict[str, Any]:
    """What deep learners keep of a fit to targets in some unit, by name."""
    warn_of_search(solution)
    if solution.inner.problem.unconverged is not None:
        warn_unconverged(f"{solution.inner.problem.unconverged} The best solution so far is kept.")
    composition, result = solution.composition, solution.inner.result
    function, criterion = solution.function.in_units(unit), solution.criterion
    outer = function.outer_expansion()
    layers = [scalar_layer(layer) for layer in composition.layers]
    return {
        "function_": function,
        "kernel_": scalar_kernel(composition.kernel),
        "layers_": [layer.replaced(alpha=layer.alpha * unit * unit) for layer in layers],
        "alpha_": solution.alpha,
        "layer_norms_": [*solution.norms[:-1], solution.norms[-1] * unit],
        "objective_value_": solution.value * unit * unit,
        "criterion_value_": None if criterion is None else criterion * unit * unit,
        "search_history_": in_squared_units(solution.choice.history, unit),
        "history_": [] if result is None else in_squared_units(result.history, unit),
        "n_iter_": 1 if result is None else max(1, result.n_iter),
        "dual_coef_": outer.coefficients,
        "intercept_": outer.intercept,
    }


class DeepKernelRegressor(MultiOutputMixin, RegressorMixin, KernelLearner):
    """Regression on data whose features have to be transformed first, by a transformation that is learned with it.

    A kernel machine is as good as its kernel: a function with a kink along a diagonal, or one that depends on a few
    combinations of many features, is out of reach of an ordinary one. Here f = f_1 ∘ f_2 ∘ … ∘ f_L, each f_l in the
    RKHS of a kernel of its own, minimises mean loss + Σ_l α_l ‖f_l‖² (Bohn, Griebel and Rieger, 2019). The outer
    function is eliminated in closed form or by a convex solver; the inner ones are searched in orthonormal coordinates
    by L-BFGS with raced restarts. What ``"auto"`` leaves open (the α_l, kernel parameters) is learned by gradients of
    the error on new data.

    Parameters
    ----------
    layers : "auto" or list, default="auto"
        The inner layers from the input on. Each is a size (an affine map to so many dimensions), a pair
        ``(kernel, size)``, or ``Layer(kernel, size, alpha=…, operator=…, penalty=…)``; a kernel may be operator-valued,
        such as ``Separate``. An empty list is the single-layer machine. ``"auto"``: the data decide. With squared loss
        the shallow machine is fitted first; an affine layer of all features (to at most 20 dimensions) starts from its
        learned lengthscales, and is added to it with a weight if refits without each fold of ``cv`` say that this
        predicts better. With another loss or an approximation it is such a layer, without that question; if ``kernel``
        does not take vectors, no layer.
    kernel : Kernel, OperatorKernel, Stack or str, default="auto"
        The outer kernel. A number in a kernel stays; a word lets the data decide it (``"median"``, at the images where
        the search starts), ``"auto"`` and ``"ard"`` by the criterion. ``"auto"`` instead of a kernel: where
        ``layers`` is ``"auto"`` or empty, and the loss squared, several kernels are stacked as in ``OperatorRidge``
        (so does ``Stack([k1, k2, …])``); otherwise it is a Gaussian, and a Matérn kernel (ν = 1/2) for
        interpolation.
    loss : {"squared", "interpolate", "epsilon_insensitive", "huber"} or callable, default="squared"
        ``"interpolate"`` meets the data exactly and minimises α_1‖f_1‖² + Σ α_l‖f_l‖² (every ``"auto"`` is 1, as in the
        paper). A callable ``loss(F, Y)`` takes the values and the targets of all samples, tensors (n, p), and returns a
        differentiable scalar; then all alphas are numbers. Where ``fit`` gets sample weights, it is called as
        ``loss(F, Y, weights)`` with a column (n, 1) of mean one. An interpolant that predicts left-out samples worse
        than their mean does is reported.
    alpha : float or "auto", default="auto"
        The weight of ‖f_1‖² beside the mean loss: n·alpha is the λ of Bohn et al. and scikit-learn's
        ``KernelRidge(alpha=)``; 1/(2n·alpha) is the C of ``SVR`` and ``SVC``. ``"auto"`` learns it, and likewise
        that of every layer.
    epsilon : float, default=0.1
        Half-width of the tube of ``loss="epsilon_insensitive"``, in units of y.
    delta : float, default=1.35
        Where ``loss="huber"`` turns from squared to absolute errors, in units of y.
    separation : float, default=0.0
        For ``loss="interpolate"``: the weight γ of Σ_{i<j} coth(‖z_i − z_j‖²), which keeps the images of samples apart.
    penalty : callable, default=None
        For squared loss or one of your own: a strictly increasing Θ that replaces ‖f_1‖² by Θ(‖f_1‖²).
    fit_intercept : bool, default=True
        Add a constant that costs nothing. False is the problem of the paper.
    criterion : {"auto", "validation", "loo", "gcv"}, default="auto"
        What chooses what is left to be learned: the error on held-out folds, for which the inner layers are fitted
        anew; or, for squared loss, a closed form for the outer function with the inner layers held fixed, which is
        cheaper and too optimistic for large inner layers or noisy targets. ``"auto"``: leave-one-out if the inner
        layers have fewer than one unknown for four samples and explain most of the variance, otherwise validation. At
        most 500 random samples are used.
    cv : int, splitter or iterable, default=5
        The folds of ``criterion="validation"``, as in scikit-learn; fewer where there are too few samples for so many.
        Samples of one group are held out together.
    approximation : Nystroem, default=None
        For large data and squared loss: the outer function, and every inner one, is spanned by so many samples. Of more
        than 10,000 samples, inner layers see as many random ones; the outer function is then fitted to all, by sums
        over blocks, also on Dask, and its alpha chosen again.
    memory_limit : int, str or None, default=None
        What the sums over blocks of an approximate fit may take beside the data, in bytes or as ``"2GB"``; None: what
        they need. It bounds neither an exact fit nor the search for hyperparameters on some of the samples, which takes
        about 0.25 GB for 1,500 of them.
    n_restarts : int, default=32
        Starts of the search over the inner layers: the lengthscales of the best shallow kernel or kernel PCA, and
        random ones. They race: 64 cost a few times as much as one.
    max_iter : int, default=200
        Most iterations of that search.
    max_time : float, str or None, default=None
        Seconds after which the search ends with the best point so far, or a text such as "90s", "5m" or "1h".
        The clock is read between evaluations. With ``loss="epsilon_insensitive"`` one of them is a solution by libsvm
        for each restart or fold and each column of y, some seconds at most up to 7,000 samples; a last fit follows.
    tol : float, default=1e-6
        It ends when the objective falls by less than this share, or its gradient is as small.
    random_state : int, RandomState instance or None, default=None
        Seed of the restarts, folds and subsets.
    verbose : int, default=0
        1: a progress bar for long searches. 2: also why they stopped.
    device : str, default=None
        Where to compute, as in ``torch.device``.
    dtype : {"float64", "float32"}, default="float64"
        Precision of the computation.
    warm_start : bool, default=False
        Does the next ``fit`` go on from what the last one has found, hyperparameters and inner layers, instead of
        beginning anew with all restarts? It is for ``layers`` that are given.

    Attributes
    ----------
    function_ : Composed or Stacked
        The fitted f_1 ∘ … ∘ f_L + b; where the data decide on layers, the weighted sum of shallow functions and,
        if it is accepted, of a composition, which is the last.
    system_ : DeepSpread, SummedSystem, StackedSystem or None
        What standard deviations of predictions are made from; None for other losses than the squared one.
    members_ : Members
        Where the data decide on layers: the shallow fits and the composition, with their weights, alphas and errors for
        held-out samples, printed as a table.
    weights_ : ndarray of shape (n_members,) or (n_members, n_outputs)
        Their weights, at least 0 with the sum one.
    kernel_ : Kernel, OperatorKernel or Stack
        The outer kernel with the numbers that were used; of several, a ``Stack`` of the members.
    layers_ : list of Layer
        The inner layers with the numbers that were used; empty where the data have not accepted one.
    alpha_ : float or ndarray of shape (n_members,)
        The weight of ‖f_1‖² that was used.
    deep_kernel_ : Kernel
        The learned kernel K_1(f_2 ∘ … ∘ f_L(x), f_2 ∘ … ∘ f_L(y)), for ``SVC(kernel=model.deep_kernel_)``,
        ``KernelPCA``, Gaussian processes (by ``estimators.GaussianProcessKernel``) and every learner of this library;
        of several members, the weighted sum of their kernels.
    dual_coef_ : ndarray of shape (n_anchors, n_outputs)
        The coefficients of f_1 on the images of the training samples (or landmarks); members have their own in
        ``function_.functions``.
    intercept_ : ndarray of shape (n_outputs,)
        The constant b.
    layer_norms_ : list of float
        ‖f_l‖ of every function from the input on, the outer one last.
    objective_value_ : float
        The objective that the search over inner layers minimised, at its end; None where the data have accepted none.
    criterion_value_ : float or None
        The criterion at the chosen hyperparameters, None if nothing was chosen.
    history_ : list of HistoryEntry
        The search over the inner layers: iteration, seconds, objective, gradient norm, restarts alive.
    search_history_ : list of HistoryEntry
        The search over hyperparameters: the same, with the criterion.
    n_iter_ : int
        Iterations of the search over the inner layers; 1 if there are none.
    X_fit_ : ndarray or list
        The training inputs; with an approximation, those from which the inner layers were learned.
    n_features_in_ : int
        Number of features seen during fit (vectors and Gram matrices).
    feature_names_in_ : ndarray of str
        Names of the features, if X had string names.

    See Also
    --------
    OperatorRidge : One layer, with output operators and missing targets.
    DeepKernelClassifier : The same for class labels.

    Examples
    --------
    >>> import numpy as np
    >>> from representer import DeepKernelRegressor
    >>> from representer.kernels import Polynomial, TensorMatern
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (100, 2))
    >>> y = 1 / (0.1 + abs(X[:, 0] - X[:, 1]))  # a kink along the diagonal
    >>> one = DeepKernelRegressor([], TensorMatern(1, 1.0)).fit(X[:80], y[:80])
    >>> two = DeepKernelRegressor([(Polynomial(1), 2)], TensorMatern(1, 1.0), random_state=0).fit(X[:80], y[:80])
    >>> bool(two.score(X[80:], y[80:]) > 0.95 > one.score(X[80:], y[80:]))
    True
    """

    list_arguments = ("layers",)
    function_: Composed | Stacked
    system_: DeepSpread | SummedSystem | StackedSystem | None
    alpha_: Any
    criterion_value_: float | None
    layer_norms_: list[float]
    dual_coef_: np.ndarray
    intercept_: np.ndarray
    members_: Members
    weights_: np.ndarray
    training_data = ("X_fit_", "system_", "members_")

    constraints: ClassVar[dict[str, Check]] = {
        **DEEP_ARGUMENTS,
        "loss": one_of(*LOSSES) | Rule("a function of your own", callable),
    }

    def __init__(
        self,
        layers: str | list[Any] | tuple[Any, ...] = "auto",
        kernel: KernelLike = "auto",
        loss: Any = "squared",
        alpha: float | str = "auto",
        *,
        epsilon: float = 0.1,
        delta: float = 1.35,
        separation: float = 0.0,
        penalty: Any = None,
        fit_intercept: bool = True,
        criterion: str = "auto",
        cv: Any = 5,
        approximation: Nystroem | None = None,
        memory_limit: int | str | None = None,
        n_restarts: int = 32,
        max_iter: int = 200,
        max_time: float | str | None = None,
        tol: float = 1e-6,
        random_state: RandomState = None,
        verbose: int = 0,
        device: str | None = None,
        dtype: str = "float64",
        warm_start: bool = False,
    ):
        self.layers = layers
        self.kernel = kernel
        self.loss = loss
        self.alpha = alpha
        self.epsilon = epsilon
        self.delta = delta
        self.separation = separation
        self.penalty = penalty
        self.fit_intercept = fit_intercept
        self.criterion = criterion
        self.cv = cv
        self.approximation = approximation
        self.memory_limit = memory_limit
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.max_time = max_time
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose
        self.device = device
        self.dtype = dtype
        self.warm_start = warm_start

    def __sklearn_tags__(self) -> Tags:
        return deep_tags(super().__sklearn_tags__(), self)

    @fitting
    def fit(self, X: Data, y: Data, sample_weight: Data = None, groups: Data = None, noise: Data = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the first kernel takes
            Training inputs; with a precomputed kernel, their Gram matrix. Fingerprints may be sparse. With an
            approximation, also a Dask array or DataFrame.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights in the mean loss: a sample of weight 2 counts as two, one of weight 0 as none.
        groups : array-like of shape (n_samples,), default=None
            Labels of what belongs together: samples of one group are left out together by leave-one-out and folds.
        noise : array-like of shape (n_samples,), default=None
            The standard deviation of each measurement, where it is known: precise targets count more, in inverse
            proportion to its square.

        Returns
        -------
        self : DeepKernelRegressor
            The fitted model.
        """
        self._check()
        if noise is not None:
            sample_weight = self._noise_weights(X, noise, sample_weight)
        machine = checked_machine(self)
        forget(self)
        stack = machine.stack(X)
        if stack is not None:
            return self._fit_stack(stack, X, y, sample_weight, groups)
        composition = machine.composition()
        loss = machine.stated_loss(composition.alpha, self.epsilon, self.delta, self.separation, self.penalty)
        samples, inputs = self._samples(composition.input_kernel, X, y, sample_weight, groups)
        problem = deep_regression(self, in_target_units(composition, self._unit), samples, inputs, loss)
        solution = problem.solve(problem.choose(self._search_settings(problem.seed, self.criterion)))
        self._keep_attributes(deep_attributes(solution, self._unit))
        self.X_fit_ = plain(problem.seen.inputs, copy=True)
        self.system_ = None
        if solution.outer is not None:
            self.system_ = solution.outer.system
        elif loss.squared:
            self.system_ = regression_spread(solution, self.X_fit_)
        doubt = interpolation_doubt(self.function_, problem.seen) if self.loss == "interpolate" else None
        if doubt is not None:
            warn(doubt.message, ConvergenceWarning if doubt.misses else UserWarning)
        y = self._shaped(self._unit * plain(problem.seen.block.Y))
        self._training_samples = problem.seen.recalled(self.X_fit_, y, pairwise=problem.pairwise)
        return self

    def _fit_stack(self, stack: Stack, X: Data, y: Data, sample_weight: Data, groups: Data) -> Self:
        """Shallow fits, and a composition where the data accept it."""
        X, weights, groups = self._checked_inputs(stack, X, sample_weight, groups)
        targets = self._targets(y, len(X))
        check_left_out(len(X), None)
        self._unit = target_unit(targets, self.dtype)
        samples = self._memory_samples(stack, X, targets / self._unit, weights, groups)
        solution = stack_solution(self, stack, samples, X, LeastSquares())
        self._keep_attributes(stack_attributes(solution, self._unit))
        self.system_ = solution.system
        self.X_fit_ = plain(X, copy=True)
        own, pairwise = self._shaped(targets), stack.domain == "gram"  # with all digits, in single precision, too
        self._training_samples = samples.recalled(self.X_fit_, lambda _: own, pairwise=pairwise)
        return self

    def _samples(
        self, kernel: OperatorKernel, X: Data, y: Data, sample_weight: Data, groups: Data
    ) -> tuple[Samples, Data]:
        """The checked samples, and their inputs as they are stored if they are in memory."""
        if is_dask(X):
            samples = dask_samples(self, kernel, X, y, sample_weight, groups)
            self._flat, self._unit = is_flat(y), self._target_unit(np.array([[largest_target(y)]]))
            if self._unit != 1.0:
                samples = dask_samples(self, kernel, X, y / self._unit, sample_weight, groups)
            return samples, None
        X, weights, groups = self._checked_inputs(kernel, X, sample_weight, groups)
        targets = self._targets(y, len(X))
        self._unit = self._target_unit(targets)
        return self._memory_samples(kernel, X, targets / self._unit, weights, groups), X

    def _noise_weights(self, X: Data, noise: Data, sample_weight: Data) -> np.ndarray:
        """The weights of samples whose measurements have these standard deviations."""
        if is_dask(X):
            raise ValueError("noise= is for samples in memory. On Dask, give sample_weight = 1 / noise**2 instead.")
        if np.ndim(noise) > 1 and np.shape(noise)[1] > 1:
            raise ValueError(
                f"noise= of each output, of shape {np.shape(noise)}, has no place in inner layers, which all outputs "
                "share. Give one standard deviation a sample, or use OperatorRidge."
            )
        weights = noise_weights(noise_of(noise, np.zeros((_num_samples(X), 1))))[:, 0]
        return weights if sample_weight is None else weights * np.asarray(plain(sample_weight), dtype=np.float64)

    def _targets(self, y: Data, n: int) -> np.ndarray:
        """The checked targets (n, p), none of which is missing."""
        targets, self._flat = check_targets(y, n)
        if np.isnan(targets).any():
            raise ValueError(
                f"Input y contains NaN, first in row {int(np.argwhere(np.isnan(targets))[0][0])}. Leave those samples "
                "out, or use OperatorRidge, which takes missing targets."
            )
        return targets

    def _target_unit(self, targets: np.ndarray) -> float:
        """What targets are divided by so that their squares are in range; other losses than the squared have none."""
        unit = target_unit(targets, self.dtype)  # what the precision cannot hold is refused
        if unit == 1.0 or (self.loss == "squared" and self.penalty is None):
            return unit
        if len(self.layers):
            raise ValueError(
                f"The targets are of the size {unit:.1g}, and penalties of inner layers are in units of the loss: what "
                "is learned would be beyond the range of numbers. Divide y by its deviation, or use loss='squared'."
            )
        return 1.0

    def predict(self, X: Data, return_std: bool = False) -> Any:
        """Predict targets.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the first kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).
        return_std : bool, default=False
            Also return the standard deviation of a new observation, noise included (squared loss only): f_1 is seen as
            a Gaussian process on the images of the inner layers. Its scale comes from leave-one-out residuals, or, if
            the inner layers are large enough to adapt to single samples, from those of refits without each fold, which
            the first call makes.

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
            width = None if self._flat else len(self.intercept_)
            return self._lazily("predict", X, width, dtype=self.intercept_.dtype)
        f, points = self.function_, self._system_inputs(self._new_inputs(X))
        mean = self._shaped(f(points) if isinstance(f, Stacked) else f.at_image(points))
        if not return_std:
            return mean
        if self.system_ is None:
            raise ValueError("return_std=True needs a fit with loss='squared' and no penalty=.")
        return mean, self._shaped(self._unit * self.system_.deviation(points))

    predict_interval = intervals_of
    score = score_of_numbers

    def _interval_ends(self, inputs: Data, coverage: float) -> np.ndarray:
        """By folds, for any loss."""
        fits = self._fold_fits()
        has_deviations = self.function_.kernel.domain != "gram" and all(
            model._has_deviations for model in (self, *fits.learners)
        )
        ends = plain(fold_intervals(fits, inputs, coverage, with_deviation if has_deviations else alone))
        return ends.astype(self.intercept_.dtype)

    @property
    def _has_deviations(self) -> bool:
        """Are standard deviations known without refits?"""
        systems = self.system_.systems if isinstance(self.system_, StackedSystem) else (self.system_,)
        return all(isinstance(s, FittedSystem) or (isinstance(s, DeepSpread) and s.refits is None) for s in systems)

    # -- why ----------------------------------------------------------------------------------------------------------
    def _system_inputs(self, X: Data) -> Data:
        return X if isinstance(self.function_, Stacked) else self.function_.images(X)[-1]

    def _deviations(self, X: Data) -> np.ndarray | None:
        if self.system_ is None or not self._has_deviations:
            return None
        return self._shaped(self._unit * self.system_.deviation(self._system_inputs(X)))

    def _left_out_answers(self) -> tuple[np.ndarray, np.ndarray] | None:
        system = self.system_
        if not isinstance(system, StackedSystem) or system.samples is None:
            return None
        return self._as_targets(system.samples.Y), self._as_targets(system.left_out())

    def _misfits(self) -> np.ndarray:
        """Leave-one-out errors of a stack; of a composition, errors of refits without folds."""
        if isinstance(self.system_, StackedSystem) and self.system_.samples is not None:
            return left_out_misfits(self.system_)
        fits = self._fold_fits()
        held_out = fits.of_held_out(lambda learner, inputs, rows: learner.predict(inputs).reshape(len(rows), -1))
        return relative_errors(torch.from_numpy(np.asarray(fits.samples.y, float)).reshape(held_out.shape) - held_out)

    def _data_kernel(self) -> OperatorKernel:
        return self.function_.kernel

    def _supporting_samples(self) -> dict[str, HeldSamples]:
        """The samples that the inner layers have seen; those that a fit by sums holds are images."""
        X = getattr(self, "X_fit_", None) if self._training_samples is None else self._training_samples.X
        return {} if X is None else {"held": HeldSamples(np.empty(0), X, None, None)}

    # -- the fitted composition ---------------------------------------------------------------------------------------
    def transform_layers(self, X: Data) -> list[np.ndarray]:
        """Image of X under each inner layer, from the input on.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the first kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).

        Returns
        -------
        images : list of ndarray of shape (n_samples, size)
            What each layer but the outer one makes of X.
        """
        f = self.function_.functions[-1] if isinstance(self.function_, Stacked) else self.function_
        images = f.images(self._new_inputs(X)) if isinstance(f, Composed) else []
        return [plain(image) for image in images[1:]]

    @property
    def deep_kernel_(self) -> Kernel:
        """The learned kernel K_1(f_2 ∘ … ∘ f_L(x), f_2 ∘ … ∘ f_L(y)): a kernel like any other."""
        check_is_fitted(self)
        return self.function_.kernel_of_data()
