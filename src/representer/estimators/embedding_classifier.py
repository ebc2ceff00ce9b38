"""Classification by conditional mean embeddings with learned kernels."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from representer.approximation import Approximation
from representer.estimators.base import KernelLearner, KernelLike, RandomState, fitting, score_of_classes
from representer.estimators.base import predict as most_probable_classes
from representer.estimators.base import predict_set as class_sets_of
from representer.estimators.operator_ridge import OperatorRidge
from representer.estimators.validation import (
    Check,
    as_classes,
    as_labels,
    check_bound,
    check_inputs,
    check_weights,
    encode,
    encode_on_dask,
    lazy_weights_by_class,
    only_one_alpha,
    seed_of,
    takes_batches,
    warn_unconverged,
    weights_by_class,
)
from representer.functions import Expansion, FeatureFunction, Stacked
from representer.inspection import class_misfits
from representer.kernels import Gaussian, Kernel, Stack, as_kernel, is_bounded, stack_of
from representer.objectives.risk import radius_with_prior
from representer.operators import Representation, left_out_together, original
from representer.optimize import Choice
from representer.preimage.probabilities import (
    EmbeddingCalibration,
    FarField,
    clip_normalized,
    embedding_entropy,
    entropy_of,
)
from representer.problems.class_embedding import CRITERIA, ClassModel, ClassProblem, ClassSolution, solve_stack
from representer.problems.embedding import EmbeddingSettings, require_groups
from representer.problems.stack import Members
from representer.samples import (
    Data,
    InMemory,
    OnDask,
    Samples,
    check_groups,
    check_lengths,
    in_memory,
    is_dask,
    one_hot,
    plain,
)
from representer.systems import FittedSystem, StackedSystem
from representer.values import NONE, NOT_NEGATIVE, Rule, instance_of, integer, is_real, one_of

KINDS = ("calibrated", "clipped", "raw")


class EmbeddingClassifier(ClassifierMixin, KernelLearner):
    """Probabilities of classes as conditional expectations, with a kernel that is learned: any data with a kernel.

    f minimises (1/n) Σ_i ‖e(y_i) − b − f(x_i)‖² + alpha ‖f‖² for the one-hot labels e(y): f(x) + b is the embedding of
    the distribution of y given x, whose entries converge to the probabilities of the classes (Hsu, Nock & Ramos, 2018).
    Kernel and alpha minimise the ``criterion``, with gradients. The multiclass conditional embedding (MCE) of the paper
    is ``EmbeddingClassifier("rbf", "rademacher", fit_intercept=False, shrinkage=0, calibration=None)``, its conditional
    embedding network (CEN) the same with ``kernel=Neural(module, Linear())``.

    Parameters
    ----------
    kernel : Kernel, Stack, str or callable, default="auto"
        ``"auto"`` fits several kernels for data like X, ``Stack([k1, k2, …])`` those that are given, and averages their
        estimates, with more weight for those of less cross entropy for left-out samples. The words ``"molecules"``,
        ``"strings"``, ``"graphs"``, ``"curves"`` and ``"bags"`` mean several kernels of that kind. ``"rbf"`` is
        ``Gaussian("ard")``, one learned lengthscale a feature. A number in a kernel stays; ``"auto"`` and ``"ard"`` are
        learned, and so are the weights of the network in ``Neural(module, kernel)``. Of kernels of strings, graphs, and
        Gram matrices, alpha alone is learned unless they say ``"auto"`` somewhere.
    criterion : {"loo", "rademacher", "erm", "validation"} or None, default="loo"
        ``"loo"``: the cross entropy of calibrated leave-one-out predictions, in closed form; ``"rademacher"``: that of
        the training samples + complexity_weight · r, equation (12); ``"erm"``: without r; ``"validation"``: that of
        samples held out, by the calibrated probabilities, or with ``calibration=None`` as equation (13) has it, by
        clipped estimates and with ``complexity_weight`` as τ. None: nothing is learned, words are heuristics
        (``"rbf"`` is then the median heuristic) and ``alpha="auto"`` is the mean k(x, x) over n. Beside an intercept,
        criteria and this mean count x from the mean of the samples where the kernel is linear.
    alpha : float or "auto", default="auto"
        The weight of ‖f‖² beside the mean loss, λ of the paper; n·alpha is that of scikit-learn's ``KernelRidge``.
    complexity_weight : float or "auto", default="auto"
        The weight of the Rademacher complexity r beside the mean cross entropy. ``"auto"``: 4e/n for
        ``"rademacher"`` (4e, as printed in the paper, underfits; its code has 4e/n), 1/n for ``"loo"``, else 0.
    shrinkage : float, default=1.0
        How much the lengthscales of the features are drawn towards a common multiple of where the data put them: a
        normal prior on their logarithms with variance 1/shrinkage. 0 is the paper's.
    fit_intercept : bool, default=True
        Add a constant b that costs nothing: the estimates then sum to one. False is the paper's.
    calibration : {"loo", None}, default="loo"
        ``"loo"``: probabilities are softmax(τ asinh(f/δ)) with τ and δ fitted to leave-one-out estimates; far from all
        samples (where ``support`` is less than left-out samples have) they go to the shares of the classes, unless
        k(x, x) is unbounded. None: they are the clip-normalised estimates, equation (6).
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, by label, that multiply those of their samples; ``"balanced"`` gives all classes the
        same total weight.
    batch_size : int, "auto" or None, default="auto"
        How many samples hyperparameters are learned on at a time: by Adam on random batches of this size (Algorithm 1),
        by L-BFGS on one. None: all. ``"auto"``: all, or 1,500 of more. f is fitted to all samples in any case.
    validation_fraction : float, default=0.25
        The share of the samples, or of each batch, that ``criterion="validation"`` holds out.
    approximation : Nystroem, Landmarks, RandomFeatures, TensorSketch or None, default=None
        For large data, also in Dask arrays and frames: f is spanned by so many landmarks (the kernel is learned on as
        many random samples, or 500), or random features; the fit is a sum over blocks. Kernels with few explicit
        features (linear, a network with a linear kernel on top) need none: they are solved in their space.
    memory_limit : int, str or None, default=None
        What the sums over blocks of an approximate fit may take beside the data, in bytes or as ``"2GB"``; None: what
        they need. It bounds neither an exact fit nor the search for hyperparameters on some of the samples, which takes
        about 0.25 GB for 1,500 of them.
    solver : {"auto", "lbfgs", "adam"}, default="auto"
        ``"auto"``: L-BFGS, or Adam if ``batch_size`` is a number smaller than that of the samples.
    learning_rate : float, default=0.1
        Of Adam; 0.01 suits networks.
    start : dict or None, default=None
        Where the search of one kernel starts, by name: ``{"lengthscale": 1.0, "alpha": 1.0}``. None: the data decide.
        They also do what lies outside the range (announced), and all if L-BFGS ends on a plateau above the criterion at
        their start.
    n_restarts : int, default=1
        Starts of L-BFGS; all but the first are random.
    max_iter : int, default=200
        Most iterations of L-BFGS, or epochs of Adam.
    max_time : float, str or None, default=None
        Seconds after which the search ends with the best point so far, or a text such as "90s", "5m" or "1h".
    tol : float, default=1e-5
        The search ends when the criterion falls by less than this share.
    clip : float, default=1e-15
        Where the cross entropy of training samples, and of (13), is clipped, equation (7); below 1/e.
    random_state : int, RandomState instance or None, default=None
        Seed of batches, restarts, landmarks and frequencies.
    verbose : int, default=0
        1: a progress bar for long searches. 2: also why they stopped.
    device : str or None, default=None
        Where to compute, as in ``torch.device``; networks are copied there.
    dtype : {"float64", "float32"}, default="float64"
        Precision of the computation.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels.
    kernel_ : Kernel or Stack
        The kernel with the numbers, and the weights of the network, that were learned.
    members_ : Members
        The kernels of a stack, their alphas, weights and cross entropies for left-out samples: printed as a table.
    weights_ : ndarray of shape (n_kernels,)
        The weights of a stack: at least 0, with the sum one.
    alpha_ : float or ndarray of shape (n_kernels,)
        The weight of ‖f‖² that was used; in a stack each kernel has its own.
    complexity_ : float
        r = √(‖f‖² sup k(x, x)) of Theorem 4.
    calibration_ : EmbeddingCalibration or None
        What makes probabilities of estimates.
    far_field_ : FarField or None
        What brings probabilities to the shares of the classes where the samples do not support an input; None without
        a calibration, and for kernels with unbounded k(x, x) alone.
    dual_coef_ : ndarray of shape (n_anchors, n_classes)
        Coefficients of f on the samples or landmarks, or on the features if there are fewer of them; in a stack each of
        ``function_.functions`` has its own.
    intercept_ : ndarray of shape (n_classes,)
        The constant b.
    relevance_ : ndarray of shape (n_features,)
        How much each feature matters to the probabilities, computed at first use.
    loo_estimates_ : ndarray of shape (n_samples, n_classes) or None
        Estimates for each sample by the embedding of the others, or of other groups, with ``calibration="loo"``; with
        an approximation and more than 5,000 samples, for 5,000 random ones.
    criterion_value_ : float or None
        The criterion at its end, None if nothing was learned.
    history_ : list of EmbeddingEntry
        The search: iteration, seconds, value, loss, complexity, accuracy, gradient_norm.
    n_iter_ : int
        Its iterations.
    function_ : Expansion, FeatureFunction or Stacked
        f + b as a value that evaluates itself.
    system_ : FittedSystem or StackedSystem
        The ridge system that f solves: leave-one-out estimates, variances and leverages are asked of it.
    X_fit_ : ndarray, csr_array, list or None
        The training inputs; not kept after ``partial_fit`` or a fit on Dask.
    landmarks_ : ndarray, list or None
        Those of an approximation, if it has some.
    n_features_in_ : int
        Number of features seen during fit (vectors and Gram matrices).
    feature_names_in_ : ndarray of str
        Names of the features, if X had string names.

    See Also
    --------
    ConditionalMeanEmbedding : The same for targets of any kind.
    DeepKernelClassifier : Compositions of kernel machines.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from representer import EmbeddingClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = EmbeddingClassifier().fit(X[::2], y[::2])
    >>> bool(model.score(X[1::2], y[1::2]) > 0.93), model.predict_proba(X[1::2]).shape
    (True, (75, 3))
    >>> sorted(int(i) for i in model.relevance_.argsort()[-2:])  # the petals matter
    [2, 3]
    """

    classes_: np.ndarray
    function_: Expansion | FeatureFunction | Stacked
    system_: FittedSystem | StackedSystem
    members_: Members
    weights_: np.ndarray
    alpha_: Any
    calibration_: EmbeddingCalibration | None
    far_field_: FarField | None = None
    _training_loss: float | None
    _dependence: str | None  # what makes the samples of the fit other than independent and alike
    training_data = ("system_", "loo_estimates_", "history_", "members_")

    constraints: ClassVar[dict[str, Check]] = {
        "alpha": only_one_alpha,
        "batch_size": NONE | one_of("auto") | integer(2),
        "calibration": one_of("loo") | NONE,
        "clip": Rule(
            "a number between 0 and 1/e, as in Theorem 4: it clips the cross entropy",
            lambda clip: is_real(clip) and 0 < clip < 1 / math.e,
        ),
        "complexity_weight": NOT_NEGATIVE | one_of("auto"),
        "criterion": NONE | one_of(*CRITERIA),
        "solver": one_of("auto", "lbfgs", "adam"),
        "start": NONE | instance_of("a dict of values by name", dict),
        "tol": NOT_NEGATIVE,
    }

    def __init__(
        self,
        kernel: KernelLike = "auto",
        criterion: str | None = "loo",
        alpha: float | str = "auto",
        *,
        complexity_weight: Any = "auto",
        shrinkage: float = 1.0,
        fit_intercept: bool = True,
        calibration: str | None = "loo",
        class_weight: dict[Any, float] | str | None = None,
        batch_size: Any = "auto",
        validation_fraction: float = 0.25,
        approximation: Approximation | None = None,
        memory_limit: int | str | None = None,
        solver: str = "auto",
        learning_rate: float = 0.1,
        start: dict[str, Any] | None = None,
        n_restarts: int = 1,
        max_iter: int = 200,
        max_time: float | str | None = None,
        tol: float = 1e-5,
        clip: float = 1e-15,
        random_state: RandomState = None,
        verbose: int = 0,
        device: str | None = None,
        dtype: str = "float64",
    ):
        self.kernel = kernel
        self.criterion = criterion
        self.alpha = alpha
        self.complexity_weight = complexity_weight
        self.shrinkage = shrinkage
        self.fit_intercept = fit_intercept
        self.calibration = calibration
        self.class_weight = class_weight
        self.batch_size = batch_size
        self.validation_fraction = validation_fraction
        self.approximation = approximation
        self.memory_limit = memory_limit
        self.solver = solver
        self.learning_rate = learning_rate
        self.start = start
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.max_time = max_time
        self.tol = tol
        self.clip = clip
        self.random_state = random_state
        self.verbose = verbose
        self.device = device
        self.dtype = dtype

    # -- fitting ------------------------------------------------------------------------------------------------------
    @fitting
    def fit(self, X: Data, y: Data, sample_weight: Data = None, groups: Data = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Training inputs; with a precomputed kernel, their Gram matrix; with an approximation, also in Dask.
        y : array-like of shape (n_samples,)
            Class labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples in the mean loss and in the criterion; None: all equal.
        groups : array-like of shape (n_samples,), default=None
            Labels of what belongs together: samples of one group are left out, or held out, together.

        Returns
        -------
        self : EmbeddingClassifier
            The fitted model. An interrupted search (Ctrl-C) keeps its best point, once there is one.
        """
        self._check()
        kernel = self._stated_kernel(X)
        if is_dask(X):
            samples: Samples = self._samples_on_dask(kernel, X, y, sample_weight, groups)
            inputs, how = None, self._representation()
        else:
            inputs, samples = self._samples_in_memory(kernel, X, y, sample_weight, groups)
            how = self._representation(inputs)
        self._keep(self._solved(samples, kernel, how, inputs))
        self._n_samples = samples.n
        held, pairwise = self.system_.samples, kernel.domain == "gram"
        own = plain(inputs, copy=True) if held is None else held.X
        self._training_samples = samples.recalled(own, lambda Y: self.classes_[Y.argmax(1)], pairwise=pairwise)
        weighted = sample_weight is not None or self.class_weight is not None
        self._dependence = "weights" if weighted else "groups" if groups is not None else None
        self.__dict__.pop("n_samples_seen_", None)
        return self

    @available_if(takes_batches)
    @fitting
    def partial_fit(
        self, X: Data, y: Data, classes: Data = None, sample_weight: Data = None, groups: Data = None
    ) -> Self:
        """Fit to more samples: with ``approximation=``, and the same as one fit to all of them.

        The first batch decides what the data decide, and what is learned. So where all of that is given (numbers in
        the kernel and for alpha, ``Landmarks(Z)`` or random features with a ``random_state``), it equals ``fit`` on
        all batches at once.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Inputs of the batch.
        y : array-like of shape (n_samples,)
            Their class labels.
        classes : array-like of shape (n_classes,), default=None
            All labels that will come; needed in the first call, unless ``fit`` has seen them.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples of the batch.
        groups : array-like of shape (n_samples,), default=None
            Labels of what belongs together, also across batches: samples of one group are left out together.

        Returns
        -------
        self : EmbeddingClassifier
            The fitted model.
        """
        self._check()
        kernel, first = self._stated_kernel(X), not hasattr(self, "n_samples_seen_")
        if self.class_weight == "balanced":
            raise ValueError(
                "class_weight='balanced' needs the labels of all samples, which batches do not show. Give the weights "
                "of the classes as a dict."
            )
        X = check_inputs(self, in_memory(X), kernel, reset=first)
        labels = self._batch_labels(X, in_memory(y), classes)
        weights = weights_by_class(self.class_weight, self.classes_, labels, check_weights(sample_weight, X))
        how = self._representation(X)
        members = self._batch_groups(groups, len(labels), first=first)
        Y = one_hot(labels, np.arange(len(self.classes_)))
        block = how.block(how.inputs(kernel, X), Y, weights, members).positive_part()
        if first:
            solution = self._solved(InMemory(block), kernel, how, None)
            solution = replace(solution, system=solution.system.changed(samples=None))
        else:
            problem = ClassProblem(InMemory(block), self._model(self._kernels[0]), how)
            choice = Choice(self.kernel_, self.alpha_, self.criterion_value_, self.history_)
            solution = problem.add(self.system_, self._largest, block, choice)
        self._keep(replace(solution, training_loss=None))
        self.n_samples_seen_ = self._n_samples = self.system_.n
        return self

    def _solved(
        self, samples: Samples, kernel: Kernel | Stack, representation: Representation, inputs: Data
    ) -> ClassSolution:
        """Learn what is free, and fit to all samples."""
        seed = seed_of(self.random_state)
        require_groups(samples.groups)
        stack = kernel if isinstance(kernel, Stack) else Stack([kernel])
        models = [self._model(own) for own in stack.kernels]
        if stack.alphas is not None:
            models = [replace(model, alpha=float(alpha)) for model, alpha in zip(models, stack.alphas, strict=True)]
        own = [samples.prepared(model.kernel) for model in models] if isinstance(kernel, Stack) else [samples]
        problems = [
            ClassProblem(of_model, model, representation, seed=seed, inputs=inputs)
            for of_model, model in zip(own, models, strict=True)
        ]
        self._check_start(models[0].alpha, [name for problem in problems for name in problem.free])
        settings = self._settings(seed)
        if isinstance(kernel, Stack):
            solution = solve_stack(problems, settings, None if isinstance(stack.weights, str) else stack.weights)
        else:
            solution = problems[0].solve(problems[0].choose(settings))
        warn_unconverged(solution.choice.unconverged)
        return solution

    def _keep(self, solution: ClassSolution) -> None:
        self.function_, self.system_ = solution.function, solution.system
        self.calibration_, self.loo_estimates_ = solution.calibration, solution.loo_estimates
        self.far_field_ = solution.far_field
        self.complexity_, self._largest = solution.complexity, solution.largest
        self._training_loss, choice = solution.training_loss, solution.choice
        self.kernel_, self.alpha_ = choice.model, solution.system.alpha
        if isinstance(self.kernel_, Kernel):
            self.kernel_ = original(self.kernel_)
        if not isinstance(solution.system, StackedSystem):
            self.__dict__.pop("members_", None)
            self.__dict__.pop("weights_", None)
        elif solution.stack is not None:
            self.kernel_, self.members_ = solution.stack.kernel, solution.stack.members
            self.weights_ = solution.stack.kernel.weights
        self.criterion_value_, self.history_, self.n_iter_ = choice.value, choice.history, choice.n_iter

    # -- samples ------------------------------------------------------------------------------------------------------
    def named_kernel(self, name: str) -> Kernel:
        """The kernel that a short name means: ``"rbf"`` has a learned lengthscale for each feature."""
        if name in ("rbf", "gaussian"):
            return Gaussian("median" if self.criterion is None else "ard")
        return as_kernel(name)

    def _stated_kernel(self, X: Data) -> Kernel | Stack:
        """A copy of the kernel, or of those that are stacked, with plain numbers, which no later change reaches."""
        stack = stack_of(self.kernel, X, self._needed_features)
        if stack is not None:
            if self.start:
                raise ValueError(f"start={self.start!r} is where the search of one kernel starts; a stack has several.")
            return Stack([self._own_kernel(kernel) for kernel in stack.kernels], stack.weights, stack.alphas)
        return self._own_kernel(self.kernel)

    def _samples_in_memory(
        self, kernel: Kernel | Stack, X: Data, y: Data, sample_weight: Data, groups: Data
    ) -> tuple[Data, InMemory]:
        X = check_inputs(self, X, kernel, reset=True)
        self.classes_, labels = encode(X, y)
        weights = weights_by_class(self.class_weight, self.classes_, labels, check_weights(sample_weight, X))
        how = self._representation(X)
        inputs = how.inputs(kernel, X)
        numbers = left_out_together(kernel, inputs, check_groups(groups, len(labels)))
        return X, InMemory(how.block(inputs, one_hot(labels, np.arange(len(self.classes_))), weights, numbers))

    def _samples_on_dask(self, kernel: Kernel | Stack, X: Data, y: Data, sample_weight: Data, groups: Data) -> OnDask:
        self.classes_, indicators = encode_on_dask(y)
        weights = lazy_weights_by_class(self.class_weight, self.classes_, indicators, sample_weight)
        return self._dask_samples(kernel, X, indicators, weights, groups)

    def _batch_labels(self, X: Data, y: Data, classes: Data) -> np.ndarray:
        """The positions of a batch's labels among the classes, which the first batch gives to the learner."""
        if not hasattr(self, "n_samples_seen_"):
            classes = getattr(self, "classes_", None) if classes is None else classes  # those of a fit before
            if classes is None:
                raise ValueError("classes= must be given to the first call of partial_fit: all labels that will come.")
            self.classes_ = as_classes(as_labels(classes, "classes"), "classes")[0]
        elif classes is not None and not np.array_equal(
            as_classes(as_labels(classes, "classes"), "classes")[0], self.classes_
        ):
            raise ValueError(f"classes={classes!r} are not those of the first call, {self.classes_.tolist()}.")
        labels, known = as_labels(y), set(self.classes_.tolist())
        check_lengths(len(X), len(labels))
        strangers = [label for label in labels.tolist() if label not in known]
        if strangers:
            raise ValueError(
                f"y has labels that are not among the classes: {strangers[0]!r}. The first call got {known}; "
                "give it all classes that will come."
            )
        return np.searchsorted(self.classes_, labels)

    # -- arguments ----------------------------------------------------------------------------------------------------
    def _model(self, kernel: Kernel) -> ClassModel:
        """What is minimised, from checked arguments."""
        weight = self.complexity_weight
        return ClassModel(
            kernel=kernel,
            alpha=only_one_alpha("alpha", self.alpha),
            criterion=self.criterion,
            intercept=bool(self.fit_intercept),
            calibrated=self.calibration is not None,
            complexity_weight=None if isinstance(weight, str) else float(weight),
            validation_fraction=float(self.validation_fraction),
            clip=float(self.clip),
            approximation=self.approximation,
            batch_size=self.batch_size,
            memory_limit=self.memory_limit,
        )

    def _settings(self, seed: int) -> EmbeddingSettings:
        return EmbeddingSettings(
            **vars(self._search_settings(seed, self.criterion)),
            shrinkage=float(self.shrinkage),
            start=self.start or {},
            solver=self.solver,
            learning_rate=float(self.learning_rate),
        )

    def _check_start(self, alpha: float | None, free: list[str]) -> None:
        """Refuse a start where nothing is learned."""
        if self.start and (self.criterion is None or (alpha is not None and not free)):
            raise ValueError(
                f"start={self.start!r} is where a search starts, but nothing is learned with criterion="
                f"{self.criterion!r}, kernel={self.kernel!r} and alpha={self.alpha!r}. Leave start=None."
            )

    # -- answers ------------------------------------------------------------------------------------------------------
    def embedding(self, X: Data) -> np.ndarray:
        """The raw estimates of the probabilities, equation (5): not clipped, and without an intercept not normalised.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).

        Returns
        -------
        estimates : ndarray of shape (n_samples, n_classes)
            f(x) + b.
        """
        if is_dask(X):
            return self._lazily("embedding", X, len(self.classes_))
        return plain(self.function_(self._new_inputs(X)))

    def decision_function(self, X: Data) -> np.ndarray:
        """The raw estimates, or their difference for two classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).

        Returns
        -------
        decisions : ndarray of shape (n_samples,) for two classes, otherwise (n_samples, n_classes)
            For two classes, positive values speak for the second.
        """
        estimates = self.embedding(X)
        return estimates[:, 1] - estimates[:, 0] if len(self.classes_) == 2 else estimates

    def predict_proba(self, X: Data, kind: str | None = None) -> np.ndarray:
        """Predict class probabilities.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).
        kind : {"calibrated", "clipped", "raw"} or None, default=None
            Calibrated; clip-normalised, equation (6); or raw estimates, equation (5). None: calibrated if the model is.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``.
        """
        if is_dask(X):
            return self._lazily("predict_proba", X, len(self.classes_), kind=kind)
        inputs = self._new_inputs(X)
        estimates = plain(self.function_(inputs))
        if kind is None:
            kind = "clipped" if self.calibration_ is None else "calibrated"
        if kind not in KINDS:
            raise ValueError(f"kind must be None or one of {', '.join(map(repr, KINDS))}; got {kind!r}.")
        if kind == "raw":
            return estimates
        if kind == "clipped":
            return clip_normalized(estimates)
        if self.calibration_ is None:
            raise ValueError("kind='calibrated' needs a model that was fitted with calibration='loo'.")
        probabilities = self.calibration_(estimates)
        return probabilities if self.far_field_ is None else self.far_field_(probabilities, inputs)

    def _class_numbers(self, estimates: np.ndarray) -> np.ndarray:
        """The number of the class of the largest estimate."""
        return estimates.argmax(1)

    predict = most_probable_classes
    predict_set = class_sets_of
    score = score_of_classes

    def entropy(self, X: Data, kind: str | None = None) -> np.ndarray:
        """How uncertain the class of each input is, in nats.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).
        kind : {"calibrated", "clipped", "embedding"} or None, default=None
            The entropy of calibrated or clip-normalised probabilities, equation (33), or the expectation of the
            information by the embedding, equation (37). None: that of ``predict_proba``.

        Returns
        -------
        entropy : ndarray of shape (n_samples,)
            Between 0 and log(n_classes); with ``kind="embedding"`` at least 0, but it may exceed log(n_classes), as raw
            estimates need not sum to one.
        """
        if kind == "embedding":
            return embedding_entropy(self.embedding(X))
        if kind not in (None, "calibrated", "clipped"):
            raise ValueError(f"kind must be None, 'calibrated', 'clipped' or 'embedding'; got {kind!r}.")
        return entropy_of(self.predict_proba(X, kind))

    def _misfits(self) -> np.ndarray:
        """−log p of each sample's class, by leave-one-out estimates."""
        left_out = self._left_out_answers()
        if left_out is None:
            raise ValueError("misfit_ needs the training samples, and a fit by batches or on Dask keeps none.")
        return class_misfits(left_out[1], left_out[0])

    def _left_out_answers(self) -> tuple[np.ndarray, np.ndarray] | None:
        samples = self.system_.samples
        if samples is None:
            return None
        estimates = plain(self.system_.left_out()).astype(np.float64)
        probabilities = clip_normalized(estimates) if self.calibration_ is None else self.calibration_(estimates)
        return samples.Y.argmax(1), probabilities

    def risk_bound(self, beta: float = 0.05, prior: bool = True) -> float:
        """Theorem 4: with probability 1 − beta the expected cross entropy, clipped at ``clip`` < 1/e, is below this.

        It holds for the estimates of ``embedding``, before they are normalised or calibrated, and for any alpha, if f
        is a function of the RKHS alone (``fit_intercept=False``), k(x, x) is bounded for all x, and the samples are
        independent and count alike. It is refused where that is not so. The paper states it for any kernel; the proof
        is for one that does not follow from the samples.

        Parameters
        ----------
        beta : float, default=0.05
            The risk of being wrong, between 0 and 1.
        prior : bool, default=True
            Structural risk minimisation: r is rounded up to a power of two r_j = 2ʲ with the prior 2^(−|j|)/3, which
            multiplies beta, so that r may follow from the samples. False is the theorem as published, for r as it is.

        Returns
        -------
        bound : float
            Training cross entropy + 4e·r + √(8 log(2/beta)/n): valid, and far above 1 on real data.
        """
        if self._training_loss is None:
            raise ValueError("risk_bound needs the training loss, which a fit by batches does not have; use fit.")
        reasons = {
            "is for one kernel: fit with one instead of several that are stacked": isinstance(self.kernel_, Stack),
            "has no intercept beside the function: fit with fit_intercept=False": self.function_.intercept is not None,
            "takes a mean in which all samples count alike: fit without weights": self._dependence == "weights",
            "is for independent samples: fit without groups": self._dependence == "groups",
            f"needs k(x, x) bounded for all x, which that of {self.kernel_!r} is not known to be: take "
            "kernel.normalized()": not all(map(is_bounded, self._kernels)),
        }
        check_bound(beta, reasons)
        return self._bound(beta, prior)

    def _bound(self, beta: float, prior: bool = True) -> float:
        """The expression of Theorem 4, whether its conditions hold or not."""
        assert self._training_loss is not None
        r, surprise = radius_with_prior(self.complexity_, 1.0) if prior else (self.complexity_, 0.0)
        confidence = math.sqrt(8.0 / self._n_samples * (math.log(2.0 / beta) + surprise))
        return self._training_loss + 4.0 * math.e * r + confidence

    # -- attributes ---------------------------------------------------------------------------------------------------
    @property
    def _kernels(self) -> list[Kernel]:
        """The learned kernel, or those of a stack."""
        return self.kernel_.kernels if isinstance(self.kernel_, Stack) else [self.kernel_]

    @property
    def dual_coef_(self) -> np.ndarray:
        """Coefficients of f on the samples or landmarks, or on the features if there are fewer of them."""
        if isinstance(self.function_, Stacked):
            raise AttributeError(
                "A stack has coefficients for each of its kernels, and none of its own. Read those of the i-th one in "
                "function_.functions[i].coefficients."
            )
        return self.function_.coefficients

    @property
    def intercept_(self) -> np.ndarray:
        """The constant b beside f, one number a class."""
        check_is_fitted(self)
        b = self.function_.intercept
        return np.zeros(len(self.classes_), np.dtype(self.dtype)) if b is None else b

    X_fit_, landmarks_ = OperatorRidge.X_fit_, OperatorRidge.landmarks_
