"""Deep kernel classification."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags

from representer.approximation import Nystroem
from representer.estimators.base import KernelLearner, KernelLike, RandomState, fitting, score_of_classes
from representer.estimators.base import predict as most_probable_classes
from representer.estimators.base import predict_set as class_sets_of
from representer.estimators.deep_regressor import (
    DEEP_ARGUMENTS,
    DeepKernelRegressor,
    checked_machine,
    dask_samples,
    deep_attributes,
    deep_regression,
    deep_tags,
    forget,
    stack_attributes,
    stack_solution,
)
from representer.estimators.validation import (
    Check,
    encode,
    encode_on_dask,
    lazy_weights_by_class,
    needs_approximation,
    weights_by_class,
)
from representer.functions import Composed, Stacked
from representer.inspection import class_misfits, class_probabilities
from representer.kernels import Stack
from representer.notices import warn
from representer.operators import OperatorKernel
from representer.preimage.probabilities import (
    SAME,
    Calibration,
    CodesCalibration,
    FarField,
    calibrate_codes,
)
from representer.problems.composition import convex_loss, squared_loss
from representer.problems.deep import DeepSolution, LeftOutDecisions
from representer.problems.spread import DeepSpread, deep_spread
from representer.problems.stack import CodesLogLoss, Members
from representer.samples import (
    Data,
    Samples,
    check_left_out,
    is_dask,
    plain,
    require_targets,
)
from representer.systems import StackedSystem, SummedSystem
from representer.values import NONE, one_of

LOSSES = ("logistic", "hinge", "squared_hinge", "squared")


class DeepKernelClassifier(ClassifierMixin, KernelLearner):
    """Classification of data whose features have to be transformed first, by a transformation that is learned with it.

    f = f_1 ∘ f_2 ∘ … ∘ f_L, each f_l in the RKHS of a kernel of its own, minimises mean loss + Σ_l α_l ‖f_l‖² (Bohn,
    Griebel and Rieger, 2019): a support vector machine or logistic regression that learns its kernel. Several classes
    are one problem with a column for each; the probabilities are calibrated on data that the model has not seen.
    Restarts and hyperparameters of the inner layers are found with squared loss on the class indicators, which is
    cheap; another loss then chooses its alpha itself and minimises the objective from there.

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
        (so does ``Stack([k1, k2, …])``); otherwise it is a Gaussian.
    loss : {"squared", "logistic", "hinge", "squared_hinge"}, default="squared"
        Squared errors of codes −1 and 1 of the classes, whose calibrated probabilities had the least log loss where it
        was measured, in the least time; cross entropy (softmax for several classes); or a margin loss summed over the
        classes against their rests. ``"squared"`` is the one for ``approximation=``.
    alpha : float or "auto", default="auto"
        The weight of ‖f_1‖² beside the mean loss: n·alpha is the λ of Bohn et al. and scikit-learn's
        ``KernelRidge(alpha=)``; 1/(2n·alpha) is the C of ``SVR`` and ``SVC``. ``"auto"`` learns it, and likewise
        that of every layer.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, by which those of their samples are multiplied. ``"balanced"`` gives all classes the
        same total weight.
    calibration : {"cv", None}, default="cv"
        Calibrate probabilities on the decisions of models refitted without each of the folds, or without each sample
        where the data decide on layers. None saves the refits; then only ``loss="logistic"`` has probabilities.
    fit_intercept : bool, default=True
        Add a constant that costs nothing. False is the problem of the paper.
    criterion : {"auto", "validation", "loo", "gcv"}, default="auto"
        What chooses what is left to be learned: the error on held-out folds, for which the inner layers are fitted
        anew; or, for squared loss, a closed form for the outer function with the inner layers held fixed, which is
        cheaper and too optimistic for large inner layers or noisy targets. ``"auto"``: leave-one-out if the inner
        layers have fewer than one unknown for four samples and explain most of the variance, otherwise validation. At
        most 500 random samples are used.
    cv : int, splitter or iterable, default=5
        The folds of ``criterion="validation"`` and of the calibration, as in scikit-learn; fewer where there are too
        few samples for so many. Samples of one group are held out together.
    approximation : Nystroem, default=None
        For large data and squared loss: the outer function, and every inner one, is spanned by so many samples. Of more
        than 10,000 samples, inner layers see as many random ones; the outer function is then fitted to all, by sums
        over blocks, also on Dask, its alpha chosen again, and probabilities calibrated on samples that are left out.
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
        The clock is read between evaluations. With ``loss="hinge"`` one of them is a solution by libsvm
        for each restart or fold and each class, some seconds at most up to 7,000 samples; a last fit follows.
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
    classes_ : ndarray of shape (n_classes,)
        The class labels.
    class_count_ : ndarray of shape (n_classes,)
        How many samples each class has.
    function_ : Composed or Stacked
        The fitted f_1 ∘ … ∘ f_L + b; where the data decide on layers, the weighted sum of shallow functions and,
        if it is accepted, of a composition, which is the last.
    calibration_ : Calibration, CodesCalibration or None
        The probabilities of decisions; None where there are no probabilities.
    system_ : DeepSpread, SummedSystem, StackedSystem or None
        What influences of samples are computed from; None for other losses than the squared one.
    members_ : Members
        Where the data decide on layers: the shallow fits and the composition, with their weights, alphas and cross
        entropies for held-out samples, printed as a table.
    weights_ : ndarray of shape (n_members,)
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
    n_features_in_ : int
        Number of features seen during fit (vectors and Gram matrices).
    feature_names_in_ : ndarray of str
        Names of the features, if X had string names.

    See Also
    --------
    DeepKernelRegressor : The same for numbers.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from representer import DeepKernelClassifier
    >>> X, y = make_moons(120, noise=0.15, random_state=0)
    >>> model = DeepKernelClassifier(random_state=0).fit(X[:80], y[:80])
    >>> bool(model.score(X[80:], y[80:]) > 0.9), model.predict_proba(X[80:]).shape
    (True, (40, 2))
    """

    list_arguments = ("layers",)
    function_: Composed | Stacked
    alpha_: Any
    criterion_value_: float | None
    layer_norms_: list[float]
    dual_coef_: np.ndarray
    intercept_: np.ndarray
    members_: Members
    weights_: np.ndarray
    calibration_: Calibration | CodesCalibration | None
    far_field_: FarField | None = None
    system_: DeepSpread | SummedSystem | StackedSystem | None
    training_data = ("system_", "members_")

    constraints: ClassVar[dict[str, Check]] = {
        **DEEP_ARGUMENTS,
        "calibration": one_of("cv") | NONE,
        "loss": one_of(*LOSSES),
    }

    def __init__(
        self,
        layers: str | list[Any] | tuple[Any, ...] = "auto",
        kernel: KernelLike = "auto",
        loss: str = "squared",
        alpha: float | str = "auto",
        *,
        class_weight: dict[Any, float] | str | None = None,
        calibration: str | None = "cv",
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
        self.class_weight = class_weight
        self.calibration = calibration
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
    def fit(self, X: Data, y: Data, sample_weight: Data = None, groups: Data = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the first kernel takes
            Training inputs; with a precomputed kernel, their Gram matrix. Fingerprints may be sparse. With an
            approximation, also a Dask array or DataFrame.
        y : array-like of shape (n_samples,)
            Class labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights in the mean loss: a sample of weight 2 counts as two, one of weight 0 as none.
        groups : array-like of shape (n_samples,), default=None
            Labels of what belongs together: samples of one group are left out together by leave-one-out and folds.

        Returns
        -------
        self : DeepKernelClassifier
            The fitted model.
        """
        self._check()
        machine = checked_machine(self)
        forget(self)
        self.system_ = None
        stack = machine.stack(X)
        if stack is not None:
            return self._fit_stack(stack, X, y, sample_weight, groups)
        composition = machine.composition()
        samples, inputs = self._samples(composition.input_kernel, X, y, sample_weight, groups)
        squared = self.loss == "squared"
        loss = squared_loss(self.fit_intercept) if squared else convex_loss(self.loss, self.fit_intercept)
        self.far_field_ = None
        # Cross entropy has probabilities of its own.
        self.calibration_ = Calibration(1.0) if self.loss == "logistic" else None
        problem = deep_regression(self, composition, samples, inputs, loss, self._labels)
        solution = problem.solve(problem.choose(self._search_settings(problem.seed, self.criterion)))
        self._keep_attributes(deep_attributes(solution))
        own, seen = plain(problem.seen.inputs, copy=True), problem.seen
        labels = self.classes_[self._labels(plain(seen.block.Y))]
        self._training_samples = seen.recalled(own, labels, pairwise=problem.pairwise)
        if solution.outer is not None:
            self.system_ = solution.outer.system
        elif squared:
            self.system_ = deep_spread(solution, own)
        if self.calibration is not None:
            self._calibrate(solution)
        return self

    def _fit_stack(self, stack: Stack, X: Data, y: Data, sample_weight: Data, groups: Data) -> Self:
        """Shallow fits, and a composition where the data accept it; both by squared loss on the classes' codes."""
        samples, inputs = self._samples(stack, X, y, sample_weight, groups)
        check_left_out(samples.n, None)
        solution = stack_solution(self, stack, samples, inputs, CodesLogLoss(), self._labels)
        self._keep_attributes(stack_attributes(solution))
        self.system_ = solution.system
        self.calibration_ = self.far_field_ = None
        if self.calibration is not None:
            block, values = solution.system.left_out_sample() if solution.left_out is None else solution.left_out
            self.calibration_ = calibrate_codes(values.cpu(), block.Y.cpu(), block.weights)
            classes = torch.from_numpy(self._labels(plain(block.Y)))
            decisions = LeftOutDecisions(values.cpu(), classes, block.weights)
            self.far_field_ = decisions.far_field(self.calibration_, solution.function, self.alpha_, inputs)
        own, pairwise = plain(inputs, copy=True), stack.domain == "gram"
        self._training_samples = samples.recalled(own, lambda Y: self.classes_[self._labels(Y)], pairwise=pairwise)
        return self

    def _samples(
        self, kernel: OperatorKernel | Stack, X: Data, y: Data, sample_weight: Data, groups: Data
    ) -> tuple[Samples, Data]:
        """The checked samples with codes as targets, and their inputs as they are stored if they are in memory."""
        if is_dask(X):
            assert isinstance(kernel, OperatorKernel)
            needs_approximation(self, kernel, kernel.domain)
            require_targets(y)
            self.classes_, indicators = encode_on_dask(y)
            self.class_count_ = indicators.sum(0).compute().astype(int)
            sample_weight = lazy_weights_by_class(self.class_weight, self.classes_, indicators, sample_weight)
            codes = indicators[:, 1:] if len(self.classes_) == 2 else indicators
            return dask_samples(self, kernel, X, 2.0 * codes - 1.0, sample_weight, groups), None
        X, weights, groups = self._checked_inputs(kernel, X, sample_weight, groups)
        self.classes_, labels = encode(X, y)
        if weights is not None and len(present := np.unique(labels[weights > 0])) < len(self.classes_):
            weights = np.where(np.isin(labels, present), weights, 0.0)
            if len(present) < 2:
                raise ValueError(
                    "Classifier can't train when only one class is present: every sample with a positive weight has "
                    f"the label {self.classes_.tolist()[present[0]]!r}. At least two classes are needed."
                )
            self.classes_, labels = (
                self.classes_[present],
                np.searchsorted(present, labels).clip(max=len(present) - 1),
            )
        self.class_count_ = np.bincount(labels if weights is None else labels[weights > 0])
        weights = weights_by_class(self.class_weight, self.classes_, labels, weights)
        return self._memory_samples(kernel, X, self._codes(labels), weights, groups), X

    def _labels(self, codes: np.ndarray) -> np.ndarray:
        """The classes' numbers of codes."""
        return codes.argmax(1) if codes.shape[1] > 1 else (codes[:, 0] > 0).astype(np.int64)

    def _codes(self, labels: np.ndarray) -> np.ndarray:
        """Targets: a column for each class, or one for two classes; 0 and 1 for cross entropy, −1 and 1 otherwise."""
        indicators = (labels[:, None] == np.arange(len(self.classes_))).astype(np.float64)
        codes = indicators[:, 1:] if len(self.classes_) == 2 else indicators
        return codes if self.loss == "logistic" else 2.0 * codes - 1.0

    def _calibrate(self, solution: DeepSolution) -> None:
        """From decisions of models that have not seen the samples they decide on."""
        decisions, problem = LeftOutDecisions.of(solution, self._labels), solution.regression
        if decisions.missing:
            n_folds = len(problem.splits.folds(None))
            warn(
                f"The fit was interrupted before the end of the calibration; probabilities rest on "
                f"{n_folds - decisions.missing} folds of {n_folds} (on none: what the loss itself says, or there are "
                "none).",
                ConvergenceWarning,
            )
        if not len(decisions.values):
            return
        self.calibration_ = decisions.calibration(len(self.classes_))
        if not (decisions.missing or decisions.constant):
            seen = problem.seen.inputs
            self.far_field_ = decisions.far_field(self.calibration_, self.function_, self.alpha_, seen)

    # -- the fitted function ------------------------------------------------------------------------------------------
    def decision_function(self, X: Data) -> np.ndarray:
        """Values of f_1 ∘ … ∘ f_L + b, the larger the surer.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the first kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).

        Returns
        -------
        decisions : ndarray of shape (n_samples,) for two classes, otherwise (n_samples, n_classes)
            For two classes, positive values speak for the second.
        """
        if is_dask(X):
            width = None if len(self.classes_) == 2 else len(self.classes_)
            return self._lazily("decision_function", X, width, dtype=self.intercept_.dtype)
        decisions = plain(self.function_(self._new_inputs(X)))
        return decisions[:, 0] if decisions.shape[1] == 1 else decisions

    def _class_numbers(self, decisions: np.ndarray) -> np.ndarray:
        """The number of the class of the largest decision value, of the most frequent one of several."""
        if decisions.shape[1] == 1:
            return (decisions[:, 0] > 0).astype(int)
        largest = decisions.max(1, keepdims=True)
        tied = decisions >= largest - SAME * np.abs(decisions).max(1, keepdims=True)
        return np.where(tied, self.class_count_, -1).argmax(1)

    predict = most_probable_classes
    predict_set = class_sets_of
    score = score_of_classes

    def predict_proba(self, X: Data) -> np.ndarray:
        """Predict class probabilities.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the first kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``.
        """
        if is_dask(X):
            return self._lazily("predict_proba", X, len(self.classes_), dtype=np.float64)
        inputs = self._new_inputs(X)
        decisions = plain(self.function_(inputs))
        if self.calibration_ is None:
            raise AttributeError(
                "The model was not calibrated, and its loss has no probabilities of its own. Fit with "
                "calibration='cv', or use loss='logistic'."
            )
        probabilities = self.calibration_(decisions)
        return probabilities if self.far_field_ is None else self.far_field_(probabilities, inputs)

    _data_kernel = DeepKernelRegressor._data_kernel
    _supporting_samples = DeepKernelRegressor._supporting_samples

    # -- why ----------------------------------------------------------------------------------------------------------
    _system_inputs = DeepKernelRegressor._system_inputs

    def _has_flat_answers(self) -> bool:
        return len(self.classes_) == 2

    def _output_names(self) -> tuple[str, ...]:
        return tuple(map(str, self.classes_[1:] if len(self.classes_) == 2 else self.classes_))

    def _left_out_answers(self) -> tuple[np.ndarray, np.ndarray] | None:
        system = self.system_
        if not isinstance(system, StackedSystem) or system.samples is None or self.calibration_ is None:
            return None
        decisions = plain(system.left_out()).astype(np.float64)
        return self._labels(system.samples.Y), self.calibration_(decisions)

    def _misfits(self) -> np.ndarray:
        """−log p of each sample's class: by leave-one-out of a stack, or by refits without folds."""
        answers_left_out = self._left_out_answers()
        if answers_left_out is not None:
            return class_misfits(answers_left_out[1], answers_left_out[0])
        fits, classes = self._fold_fits(), self.classes_
        held_out = fits.of_held_out(lambda learner, inputs, rows: class_probabilities(learner, inputs, classes))
        return class_misfits(plain(held_out), np.asarray(np.searchsorted(classes, fits.samples.y)))

    # -- the fitted composition ---------------------------------------------------------------------------------------
    transform_layers = DeepKernelRegressor.transform_layers
    deep_kernel_ = DeepKernelRegressor.deep_kernel_
