"""Conditional mean embeddings: expectations and distributions of any target given any input."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import clone
from sklearn.utils.metaestimators import available_if

from representer.approximation import input_output_pair
from representer.estimators.base import KernelLearner, KernelLike, RandomState, fitting
from representer.estimators.base import predict_interval as intervals_of
from representer.estimators.validation import (
    Check,
    check_both,
    check_bound,
    check_inputs,
    check_outputs,
    check_weights,
    columns_of_fit,
    needs_approximation,
    only_one_alpha,
    seed_of,
    takes_batches,
    warn_unconverged,
)
from representer.functions import ConditionalEmbedding, Embedding, FeatureFunction, Function
from representer.functions.embedding import as_values, own_copy
from representer.inspection import fold_intervals
from representer.kernels import Gaussian, Kernel, as_kernel, is_bounded
from representer.objectives.risk import embedding_risk_bound
from representer.operators import left_out_together, original
from representer.problems.conditional_embedding import (
    ConditionalModel,
    ConditionalProblem,
    ConditionalSolution,
    best_solution,
    settled,
)
from representer.problems.embedding import (
    EmbeddingSettings,
    require_groups,
)
from representer.samples import (
    Block,
    Data,
    InMemory,
    OnDask,
    Samples,
    as_rows,
    check_groups,
    check_lengths,
    in_memory,
    is_dask,
    plain,
    take,
)
from representer.systems.conditional import TargetSource, with_targets
from representer.values import NONE, NOT_NEGATIVE, argument_repr, as_floats, is_count, is_real, one_of


class ConditionalMeanEmbedding(KernelLearner):
    """The distribution of Y given X = x, for any inputs and targets that have kernels, as weights of the samples.

    The embedding μ_x = E[l(Y, ·) | X = x] in the RKHS of the output kernel l is estimated by the function f + b of
    least (1/n) Σ_i ‖l(y_i, ·) − b − f(x_i)‖² + alpha ‖f‖² (Song et al., 2009; Grünewälder et al., 2012). The solution
    is μ_x = Σ_i w_i(x) l(y_i, ·), so that E[g(Y) | X = x] = Σ_i w_i(x) g(y_i) for *every* function g: one fit, and
    means, variances, quantiles, densities and samples follow.

    Parameters
    ----------
    kernel : Kernel, str or callable, default="auto"
        The kernel of the inputs. ``"auto"`` learns several kernels for data like X, and takes the one of least
        ``criterion`` (without one, ``"rbf"``); ``"molecules"``, ``"strings"``, ``"graphs"``, ``"curves"`` and
        ``"bags"`` do so with kernels of that kind. ``"rbf"`` is ``Gaussian("ard")``. A number stays; ``"auto"`` and
        ``"ard"`` in a kernel are learned by the ``criterion``.
    output_kernel : Kernel, str or callable, default="auto"
        The kernel l of the targets: it says which differences between distributions count. ``"auto"`` is, for targets
        of one dimension, a wide Laplacian kernel, whose loss is CRPS, or a Gaussian one of a quarter of the median
        distance where that has more log density for left-out samples, by two standard errors; with an approximation,
        without a ``criterion`` and for other vectors it is ``"rbf"``, the median heuristic. ``"delta"`` for labels,
        ``"precomputed"`` for a Gram matrix. Words in a kernel are heuristics.
    alpha : float or "auto", default="auto"
        The weight of ‖f‖² beside the mean loss; ``"auto"`` learns it by the ``criterion``.
    criterion : {"loo", "validation", "penalized_validation", "rademacher"} or None, default="loo"
        The loss in the RKHS of l for samples left out: one by one, in closed form, or a share of them at once, the
        latter also with alpha ‖f‖² beside it (Song et al., 2013). Or the bound of ``risk_bound``, without confidence:
        the loss of the samples themselves plus 2(2√κ r + r²)/√n with the complexity r, which is cautious. None: nothing
        is learned, words are heuristics and ``alpha="auto"`` is the mean k(x, x) over n. Beside an intercept, a linear
        kernel counts x from the mean of the samples.
    validation_fraction : float, default=0.25
        The share that the criteria of validation hold out.
    fit_intercept : bool, default=True
        Add a constant b that costs nothing: weights then sum to one, and far from all samples (where ``support`` is a
        hundredth of what any left-out sample has, unless k(x, x) is unbounded) they become equal, or with an
        approximation the shares of the cells: the distribution is that of all of Y. False is the estimator of the
        literature, whose weights fade to zero there.
    shrinkage : float, default=1.0
        How strongly lengthscales of features (``"ard"``) are drawn to their mean, as in ``EmbeddingClassifier``.
    n_restarts : int, default=1
        Starts of the search over hyperparameters; all but the first are random.
    max_iter : int, default=100
        Its most iterations.
    max_time : float, str or None, default=None
        Seconds after which the search ends with the best point so far, or a text such as "90s", "5m" or "1h".
    tol : float, default=1e-5
        Relative decrease of the criterion at which it stops.
    approximation : Nystroem, Landmarks, RandomFeatures, TensorSketch, pair of these or None, default=None
        None is exact, with n × n matrices. With an approximation of m features of the inputs the fit is a sum over
        blocks of samples, also on Dask, and a distribution is weights of few targets (``output_landmarks_``): the sums
        of the weights in cells around them. The second of a pair, ``Nystroem(r)`` or ``Landmarks(Z)``, says which; one
        ``Nystroem`` is meant for both. Means and variances of vectors are exact.
    memory_limit : int, str or None, default=None
        What the sums over blocks of an approximate fit may take beside the data, in bytes or as ``"2GB"``; None: what
        they need. It bounds neither an exact fit nor the search for hyperparameters on some of the samples, which takes
        about 0.25 GB for 1,500 of them.
    random_state : int, RandomState instance or None, default=None
        Seed of restarts, held-out samples, landmarks and of ``sample``.
    verbose : int, default=0
        1: a progress bar for long searches. 2: also why they stopped.
    device : str or None, default=None
        Where to compute, as in ``torch.device``.
    dtype : {"float64", "float32"}, default="float64"
        Precision of the computation.

    Attributes
    ----------
    kernel_, output_kernel_ : Kernel
        The kernels with the numbers that were used.
    alpha_ : float
        The weight of ‖f‖² that was used.
    criterion_value_ : float or None
        The criterion at the chosen hyperparameters, None if nothing was chosen.
    history_ : list of HistoryEntry
        The search over hyperparameters; its values are criterion · exp(penalty on the spread of lengthscales).
    n_iter_ : int
        Its iterations.
    function_ : ConditionalEmbedding
        x ↦ μ_x as a value that evaluates itself.
    system_ : WeightSystem or CellSystem
        The regression behind it: leave-one-out weights, leverages, variances, its backward error.
    X_fit_, Y_fit_ : ndarray, list or None
        The training data; not kept after ``partial_fit`` or a fit on Dask.
    landmarks_, output_landmarks_ : ndarray, list or None
        The landmarks of an approximate fit among inputs, if it has some, and the targets that its weights belong to.
    approximation_error_ : float
        ‖K − ΦΦᵀ‖/‖K‖ of an approximate fit in the Frobenius norm, from sampled columns.
    n_samples_seen_ : int
        Of all batches, after ``partial_fit``.
    n_features_in_ : int
        Number of features seen during fit (vectors and Gram matrices).
    feature_names_in_ : ndarray of str
        Names of the features, if X had string names.

    See Also
    --------
    EmbeddingClassifier : The same for class labels.
    OperatorRidge : Means of vectors only, with operator-valued kernels.

    Examples
    --------
    >>> import numpy as np
    >>> from representer import ConditionalMeanEmbedding
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-2, 2, size=(300, 1))
    >>> y = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=300)
    >>> model = ConditionalMeanEmbedding().fit(X, y)
    >>> model.expect(lambda y: y > 0, [[0.8], [-0.8]]).round(1) + 0.0  # probabilities
    array([1., 0.])
    >>> low, high = model.quantile([[0.0]], [0.1, 0.9])[0]
    >>> bool(-0.8 < low < -0.1 and 0.1 < high < 0.8), model.sample([[0.0]], 5).shape
    (True, (1, 5))
    """

    kernel_: Kernel
    output_kernel_: Kernel
    function_: ConditionalEmbedding
    system_: Any
    X_fit_: Data
    Y_fit_: Data
    training_data = ("X_fit_", "Y_fit_", "system_")
    needs_targets = True

    constraints: ClassVar[dict[str, Check]] = {
        "alpha": only_one_alpha,
        "approximation": lambda name, value: value is None or input_output_pair(value),
        "criterion": one_of("loo", "validation", "penalized_validation", "rademacher") | NONE,
        "tol": NOT_NEGATIVE,
    }

    def __init__(
        self,
        kernel: KernelLike = "auto",
        output_kernel: KernelLike = "auto",
        alpha: float | str = "auto",
        *,
        criterion: str | None = "loo",
        validation_fraction: float = 0.25,
        fit_intercept: bool = True,
        shrinkage: float = 1.0,
        approximation: Any = None,
        memory_limit: int | str | None = None,
        n_restarts: int = 1,
        max_iter: int = 100,
        max_time: float | str | None = None,
        tol: float = 1e-5,
        random_state: RandomState = None,
        verbose: int = 0,
        device: str | None = None,
        dtype: str = "float64",
    ):
        self.kernel = kernel
        self.output_kernel = output_kernel
        self.alpha = alpha
        self.criterion = criterion
        self.validation_fraction = validation_fraction
        self.fit_intercept = fit_intercept
        self.shrinkage = shrinkage
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

    # -- fitting ------------------------------------------------------------------------------------------------------
    @fitting
    def fit(self, X: Data, y: Data, sample_weight: Data = None, groups: Data = None) -> Self:
        """Fit the embedding.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Training inputs; with a precomputed kernel, their Gram matrix; with an approximation, also in Dask.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), or a sequence of what the output kernel takes
            Training targets; with a precomputed output kernel, their Gram matrix.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples in the mean loss and in the criterion; None: all equal.
        groups : array-like of shape (n_samples,), default=None
            Labels of what belongs together: samples of one group are left out, or held out, together.

        Returns
        -------
        self : ConditionalMeanEmbedding
            The fitted model. An interrupted search (Ctrl-C) keeps its best point, once there is one.
        """
        self._check()
        self.__dict__.pop("n_samples_seen_", None)
        self._fit_whole(X, y, sample_weight, groups)
        return self

    @available_if(takes_batches)
    @fitting
    def partial_fit(self, X: Data, y: Data, sample_weight: Data = None) -> Self:
        """Fit to more samples: with ``approximation=``, and the same as one fit to all of them.

        The first batch decides what the data decide: words in the kernels, landmarks, anchors, what is learned. So
        where these are given (numbers in the kernels, ``Landmarks`` or random features with a ``random_state``, and
        ``Landmarks`` of the targets), it equals ``fit`` on all batches at once; alpha is chosen anew after each.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Inputs of the batch.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), or a sequence of what the output kernel takes
            Their targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples of the batch.

        Returns
        -------
        self : ConditionalMeanEmbedding
            The fitted model.
        """
        self._check()
        X, y = in_memory(X), in_memory(y)
        if hasattr(self, "n_samples_seen_"):
            model = self._model(self.kernel_, self.output_kernel_)
            samples, targets, flat = self._samples(model, X, y, sample_weight, None)
            if flat != self.function_.flat:
                raise ValueError(f"y is {'' if flat else 'not '}of one dimension, other than before.")
            self._new_targets(y)
            with torch.no_grad():
                self._keep(settled(model, self.system_.joined(samples, targets), self.criterion_value_))
        else:
            self._fit_whole(X, y, sample_weight, None)
            self.system_ = replace(self.system_, samples=None)
            self._training_samples = None
        self.n_samples_seen_ = self.system_.n
        self.X_fit_ = self.Y_fit_ = None
        return self

    def _fit_whole(self, X: Data, y: Data, sample_weight: Data, groups: Data) -> None:
        """Fit to all samples, however many."""
        self.__dict__.pop("approximation_error_", None)
        kernels = self._compared_kernels(X, compared=self.criterion is not None)
        output, seed = self._given_output_kernel(), seed_of(self.random_state)
        model = self._model(kernels[0], output)
        samples, targets, flat = self._samples(model, X, y, sample_weight, groups, reset=True)
        require_groups(samples.groups)
        how = self._representation(self.X_fit_)
        options: dict[str, Any] = {"flat": flat, "seed": seed, "inputs": self._kept_inputs(samples)}
        problems = [ConditionalProblem(samples, targets, self._model(k, output), how, **options) for k in kernels]
        shared, learned = self._search_settings(seed, self.criterion), self._learns_output_kernel()
        settings = EmbeddingSettings(**vars(shared), shrinkage=float(self.shrinkage))
        problem, choice, solution = best_solution(problems, settings, learned=learned)
        warn_unconverged(choice.unconverged)
        self.history_, self.n_iter_ = choice.history, choice.n_iter
        self.kernel_, self.output_kernel_ = original(choice.model), problem.embedding.kernel
        self._training_samples = None
        if self.Y_fit_ is not None and len(self.X_fit_) == samples.n:
            y, pairwise = self.Y_fit_[:, 0] if flat else self.Y_fit_, self.kernel_.domain == "gram"
            self._training_samples = samples.recalled(self.X_fit_, lambda _: y, pairwise=pairwise)
        self._keep(solution)
        if self.system_.approximation_error is not None:
            self.approximation_error_ = self.system_.approximation_error

    def _kept_inputs(self, samples: Samples) -> Data:
        """The stored inputs of the samples: all, or those of positive weight."""
        if self.X_fit_ is None or len(self.X_fit_) == samples.n:
            return self.X_fit_
        return plain(samples.rows(np.arange(samples.n)).X, copy=True)

    def _keep(self, solution: ConditionalSolution) -> None:
        """Keep the solution of a fit."""
        self.function_, self.system_ = solution.function, solution.system
        self.alpha_, self.criterion_value_ = solution.system.alpha, solution.value

    # -- samples ------------------------------------------------------------------------------------------------------
    def named_kernel(self, name: str) -> Kernel:
        """The kernel that a short name means: ``"rbf"`` has a learned lengthscale for each feature."""
        return Gaussian("ard") if name in ("rbf", "gaussian") else as_kernel(name)

    def _learns_output_kernel(self) -> bool:
        return isinstance(self.output_kernel, str) and self.output_kernel == "auto"

    def _given_output_kernel(self) -> Kernel:
        kernel = "rbf" if self._learns_output_kernel() else self.output_kernel
        return as_kernel(kernel, argument="output_kernel").__sklearn_clone__().numbers()

    def _samples(
        self, model: ConditionalModel, X: Data, y: Data, sample_weight: Data, groups: Data, *, reset: bool = False
    ) -> tuple[Samples, TargetSource, bool]:
        """Inputs, their targets, and whether each of these is one number; sums are over samples of positive weight."""
        kernel, output, exact = model.kernel, model.output_kernel, self.approximation is None and not is_dask(X)
        if output.domain == "gram" and not exact:
            raise ValueError(
                "approximation= needs an output kernel that can be evaluated; a precomputed one is already n × n."
            )
        how = self._representation()
        self.X_fit_ = self.Y_fit_ = None
        if is_dask(X):
            return self._on_dask(model, X, y, sample_weight, groups)
        X = check_inputs(self, X, kernel, reset=reset)
        values, flat = self._targets(output, np.asarray(y) if is_dask(y) else y)
        self._check_lengths(len(X), len(values))
        own = plain(X, copy=True) if reset else X
        inputs = self._representation(X).inputs(kernel, own)
        weights, numbers = check_weights(sample_weight, X), check_groups(groups, len(X))
        numbers = left_out_together(kernel, inputs, numbers) if reset else numbers
        block = how.block(inputs, np.zeros((len(X), 0)), weights, numbers)
        if reset:
            values = plain(values, copy=True)
            self.X_fit_, self.Y_fit_ = own, values
        if not exact and block.weights is not None and bool((block.weights == 0).any()):
            positive = np.flatnonzero(plain(block.weights))
            block = block.rows(positive)
            values = take(values, torch.from_numpy(positive))
        return InMemory(block), TargetSource(values, output, how, partial(_checked, output)), flat

    def _on_dask(
        self, model: ConditionalModel, X: Data, y: Data, sample_weight: Data, groups: Data
    ) -> tuple[OnDask, TargetSource, bool]:
        """Inputs of positive weight in a Dask collection, and their targets."""
        needs_approximation(self, model.kernel, model.kernel.domain)
        how, (values, flat) = self._representation(), self._targets(model.output_kernel, y)
        self._check_lengths(OnDask(X, None, None, dtype=how.dtype).n, len(values))
        if sample_weight is not None:
            weights = np.asarray(sample_weight.compute() if is_dask(sample_weight) else sample_weight)
            if weights.shape == (len(values),) and (weights == 0).any():  # those of other lengths are refused below
                values = values[np.flatnonzero(weights)]
        inputs, output = self._dask_samples(model.kernel, X, None, sample_weight, groups), model.output_kernel
        return inputs, TargetSource(values, output, how, partial(_checked, output)), flat

    def _targets(self, output: Kernel, y: Data) -> tuple[Any, bool]:
        """Checked targets, or those of a Dask collection, and whether each is one number."""
        if not is_dask(y):
            return check_outputs(output, y, reset=True, dtype=self.dtype)
        values = as_rows(y, "y")
        return values, values.ndim == 1 and output.domain == "vectors"

    def _check_lengths(self, n: int, n_targets: int) -> None:
        check_lengths(n, n_targets)
        if n < 2 and self.criterion is not None:
            raise ValueError(
                f"Found n_samples=1: criterion={self.criterion!r} leaves samples out, so that at least 2 are needed."
            )

    def _new_targets(self, y: Data) -> Data:
        """Targets of new inputs, of the kind and width of those that were fitted."""
        targets, _ = check_outputs(self.output_kernel_, y, reset=False)
        if self.output_kernel_.domain in ("vectors", "gram"):
            width = self.function_.anchors.shape[1]
            if targets.shape[1] != width:
                raise ValueError(f"y has {targets.shape[1]} columns, but the targets that were fitted have {width}.")
        return targets

    def _model(self, kernel: Kernel, output: Kernel) -> ConditionalModel:
        """What is minimised, from checked arguments."""
        alpha = only_one_alpha("alpha", self.alpha)
        options = (self.criterion, alpha, bool(self.fit_intercept), float(self.validation_fraction))
        return ConditionalModel(kernel, output, *options, self.approximation, self.memory_limit)

    def risk_bound(self, beta: float = 0.05, prior: bool = True) -> float:
        """With probability 1 − beta the expected ‖l(Y, ·) − μ_X‖² of new samples is below this, whatever the targets.

        It is the counterpart of Theorem 4 of Hsu et al., who have it for class labels, and holds for any alpha, if f is
        a function of the RKHS alone (``fit_intercept=False``), both kernels are bounded and given with numbers, and the
        samples are independent and count alike. It is refused where that is not so.

        Parameters
        ----------
        beta : float, default=0.05
            The risk of being wrong, between 0 and 1.
        prior : bool, default=True
            Structural risk minimisation: r is rounded up to r_j = 2ʲ√κ with the prior 2^(−|j|)/3, which multiplies
            beta, so that r may follow from the samples. False: for an r that was given before them.

        Returns
        -------
        bound : float
            Mean loss + 2(2√κ r + r²)/√n + (√κ + r)²√(log(1/beta)/(2n)), κ = sup l(y, y), r = ‖f‖√(sup k(x, x)).
        """
        loss, r, supremum, n = self.system_.risk()
        given = (self.kernel, self.output_kernel)
        unbounded = [kernel for kernel in (self.kernel_, self.output_kernel_) if not is_bounded(kernel)]
        reasons = {
            "has no intercept beside the function: fit with fit_intercept=False": bool(self.function_.total_is_one),
            "takes a mean in which all samples count alike: fit without weights": self.function_.shares is not None,
            "is for independent samples: fit without groups": getattr(self.system_, "groups", None) is not None,
            f"needs k(x, x) bounded for all x, which that of {unbounded[:1]} is not known to be: take "
            "kernel.normalized()": bool(unbounded),
            "is for kernels that do not follow from the samples: give both with numbers, such as Gaussian(1.0)": given
            != (self.kernel_, self.output_kernel_),
        }
        check_bound(beta, reasons)
        return embedding_risk_bound(loss, r, supremum=supremum, n=n, beta=beta, prior=prior)

    # -- expectations -------------------------------------------------------------------------------------------------
    def weights(self, X: Data) -> np.ndarray:
        """The weights w_i(x) of the training samples, or of ``output_landmarks_``, in the distribution given x.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).

        Returns
        -------
        weights : ndarray of shape (n_queries, n_samples) or (n_queries, n_anchors)
            Some may be negative; with an intercept they sum to one.
        """
        if is_dask(X):
            return self._lazily("weights", X, len(self.function_.anchors))
        return plain(self.function_(self._new_inputs(X)))

    def embedding(self, X: Data) -> Embedding:
        """The conditional mean embeddings as elements of the output RKHS.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).

        Returns
        -------
        embedding : Embedding
            With inner products (``inner``), distances (``distance``, the MMD between conditional distributions), values
            and expectations.
        """
        return self.function_.embedding(self._new_inputs(X))

    def posterior(self, prior: Data, prior_weight: Data = None) -> ConditionalMeanEmbedding:
        """Bayes' rule: the distribution of X given Y = y where X is distributed as another sample says.

        The model says what Y is given X. Its weights, averaged over the prior sample, make the training pairs a sample
        of the joint distribution under that prior (the kernel sum rule); negative ones are clipped, and X is regressed
        on Y with them as sample weights (Fukumizu et al., 2013; Xu et al., 2022). Where the prior has mass but no
        training sample lies, the answer is that of the nearest training samples.

        Parameters
        ----------
        prior : array-like of shape (n_prior, n_features), or a sequence of what the kernel takes
            A sample of X.
        prior_weight : array-like of shape (n_prior,), default=None
            Weights of its members, not negative; None: all equal.

        Returns
        -------
        model : ConditionalMeanEmbedding
            Fitted; its inputs are values of Y and its distributions are those of X. The kernels change places and keep
            their numbers; alpha is chosen anew unless it is a number.
        """
        if self.X_fit_ is None or self.Y_fit_ is None or "gram" in (self.kernel_.domain, self.output_kernel_.domain):
            raise ValueError(
                "posterior needs the training pairs themselves, which precomputed kernels, batches and Dask do not "
                "leave behind. Fit with kernels that can be evaluated, at once and in memory."
            )
        weights = self.weights(prior)
        shares = check_weights(prior_weight, prior)
        mean = weights.mean(0) if shares is None else shares @ weights / shares.sum()
        joint = np.maximum(mean, 0.0)
        reversed_model = clone(self).set_params(kernel=self.output_kernel_, output_kernel=self.kernel_)
        return reversed_model.fit(self.Y_fit_, self.X_fit_, sample_weight=joint * (len(joint) / joint.sum()))

    def expect(self, g: object, X: Data, samples: object = None) -> np.ndarray:
        """E[g(Y) | X = x].

        Parameters
        ----------
        g : callable or array-like of shape (n_samples,) or (n_samples, p)
            A function of the training targets as a whole, as they were given, that returns one value or one vector for
            each; or these values. With an approximation, of ``output_landmarks_``: each stands for its cell.
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).
        samples : pair of inputs and targets, default=None
            With an approximation: samples to go through once more, in memory or on Dask, for an expectation without
            the error of cells. g, a function, is called with all targets, or with those of one chunk.

        Returns
        -------
        expectations : ndarray of shape (n_queries,) or (n_queries, p)
            One for each input.
        """
        function = self.function_
        if samples is not None:
            regression, width = self._regressed(g, samples)
            if is_dask(X):
                return self._lazily("_regression", X, width, regression, width is None)
            return self._regression(regression, width is None, X)
        targets = function.anchors[:, 0] if function.flat else function.anchors
        values = g(own_copy(targets)) if callable(g) else g
        array = plain(as_values(values, function.anchors, torch.zeros((), dtype=function.representation.dtype)))
        if is_dask(X):
            return self._lazily("_expectation", X, None if array.ndim == 1 else array.shape[1], array)
        return self._expectation(array, X)

    def _expectation(self, values: np.ndarray, X: Data) -> np.ndarray:
        """The expectation of a function that is known at the anchors."""
        return plain(self.function_.expect(self.function_.representation.tensor(values), self._new_inputs(X)))

    def _regression(self, regression: FeatureFunction, flat: bool, X: Data) -> np.ndarray:
        """The expectation of a function that was regressed on the features."""
        values = plain(regression(self._new_inputs(X)))
        return values[:, 0] if flat else values

    def _regressed(self, g: Any, samples: Data) -> tuple[FeatureFunction, int | None]:
        """E[g(Y) | X = x] from samples: Σ_i w_i(x) g(y_i) is the ridge regression of g(y)."""
        if not isinstance(self.function_.weights, FeatureFunction):
            raise ValueError("samples= is for a fit with an approximation; an exact one sums over its own samples.")
        if not (isinstance(samples, tuple | list) and len(samples) == 2):
            raise ValueError("samples must be a pair of inputs and targets, (X, y).")
        X, y = samples
        how = self.function_.representation
        inputs: Samples
        if is_dask(X):
            inputs = OnDask(columns_of_fit(self, X), None, None, dtype=how.dtype)
        else:
            X = self._new_inputs(X)
            inputs = InMemory(Block(how.inputs(self.kernel_, X), torch.zeros(len(X), 0)))
        values = g
        if callable(g):
            values = as_rows(y, "y").map_blocks(g, dtype=float) if is_dask(y) else g(plain(y))
        values = values if is_dask(values) else np.asarray(plain(values), dtype=float)
        if values.ndim not in (1, 2) or len(values) != inputs.n:
            raise ValueError(
                f"g must give one value, or one vector, for each of the {inputs.n} samples; got {values.shape}."
            )
        width = None if values.ndim == 1 else values.shape[1]
        source = with_targets(inputs, values[:, None] if width is None else values)
        return self.system_.regressed(source, getattr(self.function_.weights, "trust", None)), width

    def score(self, X: Data, y: Data, sample_weight: Data = None) -> float:
        """Minus the mean squared distance ‖l(y, ·) − μ_x‖² in the output RKHS (Grünewälder et al., 2012).

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).
        y : targets
            Their targets; with a precomputed output kernel l(Y, Y_train), and the terms l(y, y) are left out.
        sample_weight : array-like of shape (n_queries,), default=None
            Weights of the samples in the mean.

        Returns
        -------
        score : float
            The higher the better.
        """
        check_both("score", X, y)
        targets = self._new_targets(y)
        inputs, new = self._new_inputs(X), self.function_.prepared(targets)
        check_lengths(len(inputs), len(targets))
        errors, weights = plain(self.function_.squared_errors(inputs, new)), check_weights(sample_weight, inputs)
        return -float(np.average(errors, weights=weights))

    # -- distributions of vectors -------------------------------------------------------------------------------------
    def mean(self, X: Data) -> np.ndarray:
        """E[Y | X = x].

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).

        Returns
        -------
        mean : ndarray of shape (n_queries,) or (n_queries, n_outputs)
            One for each input.
        """
        return self._moment("mean", X)

    predict = mean  # for targets that are vectors

    def var(self, X: Data) -> np.ndarray:
        """Var[Y_j | X = x], clipped at zero.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).

        Returns
        -------
        var : ndarray of shape (n_queries,) or (n_queries, n_outputs)
            One for each input.
        """
        return self._moment("var", X)

    def _moment(self, what: str, X: Data) -> np.ndarray:
        flat = self.function_.flat
        if is_dask(X):
            return self._lazily(what, X, None if flat else self.function_.vectors(what).shape[1])
        moments = self.function_.distribution_moments(self._new_inputs(X), what)
        values = plain(moments.mean() if what == "mean" else moments.variance())
        return values[:, 0] if flat else values

    def cdf(self, X: Data, y: Data) -> np.ndarray:
        """P[Y ≤ y | X = x], made monotone and between 0 and 1.

        Where the weights have no positive sum, far from all samples without an intercept, it is that of all targets.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).
        y : float or array-like of shape (m,)
            Where, for targets of one dimension.

        Returns
        -------
        probabilities : ndarray of shape (n_queries, m)
            One row for each input.
        """
        if is_dask(X):
            return self._lazily("cdf", X, np.size(y), y=y)
        return self.function_.cdf(self._new_inputs(X), _numbers(y, "y"))

    def quantile(self, X: Data, q: Any = (0.05, 0.5, 0.95)) -> np.ndarray:
        """The smallest y with P[Y ≤ y | X = x] ≥ q (see ``cdf``), among the training targets or anchors.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).
        q : float or array-like of shape (m,), default=(0.05, 0.5, 0.95)
            Probabilities.

        Returns
        -------
        quantiles : ndarray of shape (n_queries, m)
            One row for each input.
        """
        if is_dask(X):
            return self._lazily("quantile", X, np.size(q), q=q)
        levels = _numbers(q, "q")
        if not bool(((levels >= 0) & (levels <= 1)).all()):
            raise ValueError(f"q must lie between 0 and 1; got {levels.tolist()}.")
        return self.function_.quantile(self._new_inputs(X), levels)

    predict_interval = intervals_of

    def _interval_ends(self, inputs: Data, coverage: float) -> np.ndarray:
        """Around the means, of targets that are vectors."""
        self.function_.vectors("predict_interval")
        return plain(fold_intervals(self._fold_fits(), inputs, coverage, _moments))

    def density(self, X: Data, y: Data, bandwidth: float | None = None) -> np.ndarray:
        """The density of Y given X = x, smoothed by a Gaussian, clipped at zero and divided by its integral.

        With negative weights the integral is a numerical one, of several outputs good to about three digits. Where the
        weights have no positive sum, far from all samples without an intercept, the density is that of all targets.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).
        y : array-like of shape (m,) or (m, n_outputs)
            Where; with several outputs also one point (n_outputs,).
        bandwidth : float or None, default=None
            Standard deviation of the Gaussian. None: for targets of one dimension the one of most log density for
            left-out samples (of an exact fit to at most 2,500); otherwise Scott's rule for the conditional standard
            deviations and the effective number of samples 1/Σ_i w_i², at least a hundredth of the marginal ones.

        Returns
        -------
        density : ndarray of shape (n_queries, m)
            One row for each input.
        """
        if bandwidth is not None and not (is_real(bandwidth) and 0 < bandwidth < np.inf):
            raise ValueError(f"bandwidth must be positive; got {argument_repr(bandwidth)}.")
        inputs, d = self._new_inputs(X), self.function_.vectors("density").shape[1]
        return plain(self.function_.density(inputs, _points(y, d), bandwidth))

    def sample(self, X: Data, n_samples: int = 1, method: str = "herding") -> Data:
        """Samples of Y given X = x, among the training targets or, with an approximation, the anchors.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).
        n_samples : int, default=1
            How many for each input.
        method : {"herding", "resampling"}, default="herding"
            Kernel herding: deterministic samples whose mean embedding approaches the conditional one. Or independent
            draws with the weights as probabilities, negative ones clipped; their seed is that of the fit
            (``random_state``), so that the same call gives the same draws.

        Returns
        -------
        samples : ndarray of shape (n_queries, n_samples) or (n_queries, n_samples, n_outputs), or list of lists
            One row for each input.
        """
        if not is_count(n_samples):
            raise ValueError(f"n_samples must be a positive integer; got {n_samples!r}.")
        if method not in ("herding", "resampling"):
            raise ValueError(f"method must be 'herding' or 'resampling'; got {method!r}.")
        inputs, function = self._new_inputs(X), self.function_
        draw = function.herded if method == "herding" else function.drawn
        return function.chosen(draw(inputs, n_samples))

    # -- why ----------------------------------------------------------------------------------------------------------
    def _explained_function(self) -> Function:
        return self.function_.mean_function()

    def _has_flat_answers(self) -> bool:
        return self.function_.flat

    def _influences(self, X: Data) -> np.ndarray:
        """Influences on conditional means: w_i(x) times the error of the mean that does without the sample."""
        return plain(self.system_.influence(X, self.function_.vectors("influence")))

    def _misfits(self) -> np.ndarray:
        """How far, in the RKHS of the output kernel, each target is from the embedding that does without it."""
        return plain(self.system_.left_out_distances())

    # -- attributes ---------------------------------------------------------------------------------------------------
    @property
    def landmarks_(self) -> Data:
        """The landmarks of an approximate fit among inputs, or None where it has none."""
        weights = self.function_.weights
        return weights.features.landmarks if isinstance(weights, FeatureFunction) else None

    @property
    def output_landmarks_(self) -> Data:
        """The targets that the weights of an approximate fit belong to; None for an exact one."""
        return self.function_.anchors if isinstance(self.function_.weights, FeatureFunction) else None


def _moments(model: ConditionalMeanEmbedding, X: Data) -> np.ndarray:
    """Means and standard deviations, of at least a hundredth of the targets' own, (2, m, p)."""
    moments = model.function_.distribution_moments(model._new_inputs(X), "predict_interval")
    marginal = (model.function_.vectors("predict_interval") / moments.unit).std(0, correction=0) * moments.unit
    return plain(torch.stack([moments.mean(), torch.maximum(moments.deviation(), 0.01 * marginal)]))


def _checked(kernel: Kernel, values: object) -> Any:
    return check_outputs(kernel, values, reset=False)[0]


def _points(y: Data, d: int) -> np.ndarray:
    """Where a density is wanted: (m, d), or numbers if d is 1, or one point of d entries."""
    wanted = "(m,)" if d == 1 else f"(m, {d})"
    points = as_floats(y, "y")
    if points.ndim < 2 and (d == 1 or points.shape == (d,)):
        points = points.reshape(-1, d)
    if points.ndim != 2 or points.shape[1] != d or not np.isfinite(points).all():
        raise ValueError(
            f"y must be a finite array of shape {wanted} for targets with {d} outputs; got shape {np.shape(y)}"
            f"{'' if np.isfinite(points).all() else ', with NaN or infinity'}."
        )
    return points


def _numbers(value: object, name: str) -> np.ndarray:
    """One number or an array (m,) of them, none NaN."""
    numbers = np.atleast_1d(as_floats(value, name))
    if numbers.ndim != 1 or np.isnan(numbers).any():
        raise ValueError(
            f"{name} must be a number or an array of shape (m,) without NaN; got "
            f"{'NaN' if numbers.ndim == 1 else f'shape {numbers.shape}'}."
        )
    return numbers
