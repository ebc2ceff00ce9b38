"""Conditional mean embeddings: expectations and distributions of any target given any input."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from sklearn.utils.metaestimators import available_if
from torch import Tensor

from representer.estimators._callbacks import fitting, iteration_callback
from representer.estimators._conditional_large import (
    add_conditionals,
    both_approximations,
    fit_conditionals,
    keep_batch,
)
from representer.estimators._embedding_conditionals import Conditionals
from representer.estimators._embedding_problem import EmbeddingProblem, guard_memory
from representer.estimators._embedding_search import EmbeddingSearch, Found
from representer.estimators._labels import held_out_rows
from representer.estimators._lazy import in_memory, takes_batches
from representer.estimators.validation import (
    check_alpha,
    check_inputs,
    check_options,
    check_outputs,
    seed_of,
)
from representer.kernels import Kernel, as_kernel
from representer.linalg import pivoted_cholesky
from representer.objectives import HeldOut, LeaveOneOut
from representer.operators.adapted import repaired_gram, silent_repairs, takes_sparse
from representer.parameters import is_real
from representer.samples.on_dask import is_dask

# Beyond it, hyperparameters of an exact fit are learned on a random subset.
LARGEST_BATCH = 1500


class ConditionalMeanEmbedding(Conditionals):
    """The distribution of Y given X = x, for any inputs and targets that have kernels, as weights of the samples.

    The embedding μ_x = E[l(Y, ·) | X = x] in the RKHS of the output kernel l is estimated by the function f + b of
    least (1/n) Σ_i ‖l(y_i, ·) − b − f(x_i)‖² + alpha ‖f‖² (Song et al., 2009; Grünewälder et al., 2012). The solution
    is μ_x = Σ_i w_i(x) l(y_i, ·), so that E[g(Y) | X = x] = Σ_i w_i(x) g(y_i) for *every* function g: one fit, and
    means, variances, quantiles, densities and samples follow.

    Parameters
    ----------
    kernel : Kernel, str or callable, default="rbf"
        The kernel of the inputs. ``"rbf"`` is ``Gaussian("ard")``. A number stays; ``"auto"`` and ``"ard"`` are learned
        by the ``criterion``.
    output_kernel : Kernel, str or callable, default="rbf"
        The kernel l of the targets: it says which differences between distributions count, and is not learned; words
        are heuristics (``"rbf"``: the median heuristic). ``"delta"`` for labels, ``"precomputed"`` for a Gram matrix.
    alpha : float or "auto", default="auto"
        The weight of ‖f‖² beside the mean loss; ``"auto"`` learns it by the ``criterion``.
    criterion : {"loo", "validation"} or None, default="loo"
        The loss in the RKHS of l for samples left out: one by one, in closed form, or a share of them at once.
        None: nothing is learned, words are heuristics and ``alpha="auto"`` is the mean k(x, x) over n.
    validation_fraction : float, default=0.25
        The share that ``criterion="validation"`` holds out.
    fit_intercept : bool, default=True
        Add a constant b that costs nothing: weights then sum to one, and far from all samples the distribution is that
        of all of Y. False is the estimator of the literature, whose weights fade to zero there.
    shrinkage : float, default=1.0
        As in ``EmbeddingClassifier``.
    n_restarts : int, default=1
        Starts of the search over hyperparameters; all but the first are random.
    max_iter : int, default=100
        Its most iterations.
    tol : float, default=1e-5
        Relative decrease of the criterion at which it stops.
    approximation : Nystroem, Landmarks, RandomFeatures, TensorSketch, pair of these or None, default=None
        None is exact, with n × n matrices. With an approximation of m features of the inputs the fit is a sum over
        blocks of samples, also on Dask, and a distribution is weights of few targets (``output_landmarks_``): the sums
        of the weights in cells around them. The second of a pair, ``Nystroem(r)`` or ``Landmarks(Z)``, says which;
        else m random ones. Means and variances of vectors are exact.
    memory_limit : int, str or None, default=None
        What an approximate fit may take beside the data, in bytes or as ``"2GB"``; None: what m features need.
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

    def __init__(
        self,
        kernel: Any = "rbf",
        output_kernel: Any = "rbf",
        alpha: Any = "auto",
        *,
        criterion: str | None = "loo",
        validation_fraction: float = 0.25,
        fit_intercept: bool = True,
        shrinkage: float = 1.0,
        approximation: Any = None,
        memory_limit: int | str | None = None,
        n_restarts: int = 1,
        max_iter: int = 100,
        tol: float = 1e-5,
        random_state: Any = None,
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
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose
        self.device = device
        self.dtype = dtype

    # -- fitting ------------------------------------------------------------------------------------------------------
    @fitting
    def fit(self, X: Any, y: Any) -> Self:
        """Fit the embedding.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Training inputs; with a precomputed kernel, their Gram matrix; with an approximation, also in Dask.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), or a sequence of what the output kernel takes
            Training targets; with a precomputed output kernel, their Gram matrix.

        Returns
        -------
        self : ConditionalMeanEmbedding
            The fitted model. An interrupted search (Ctrl-C) keeps its best point, once there is one.
        """
        context = self._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=self)
        self._check_common()
        self._check_own()
        given = self._given_kernel()
        self._seed = seed_of(self.random_state)
        if self.approximation is not None or is_dask(X):
            fit_conditionals(self, given, X, y, iteration_callback(self, context))
        else:
            self._fit_exactly(given, X, y, iteration_callback(self, context))
        context.call_on_fit_task_end(estimator=self)
        return self

    @available_if(takes_batches)
    def partial_fit(self, X: Any, y: Any) -> Self:
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

        Returns
        -------
        self : ConditionalMeanEmbedding
            The fitted model.
        """
        self._check_common()
        self._check_own()
        X, y = in_memory(X), in_memory(y)
        if hasattr(self, "n_samples_seen_"):
            with torch.no_grad():
                add_conditionals(self, X, y)
        else:
            self._seed = seed_of(self.random_state)
            sums = fit_conditionals(self, self._given_kernel(), X, y, lambda entry: False)
            keep_batch(self, sums, len(self.X_fit_))
        return self

    def _fit_exactly(self, given: Kernel, X: Any, y: Any, callback: Any) -> None:
        """With n × n matrices."""
        self._state = self.landmarks_ = self.output_landmarks_ = None
        for name in ("n_samples_seen_", "approximation_error_", "_cached_features"):
            self.__dict__.pop(name, None)
        self.X_fit_ = check_inputs(self, X, given.domain, reset=True, sparse=takes_sparse(given))
        targets = self._validate_targets(y, len(self.X_fit_))
        inputs = self._inputs(given, self.X_fit_)
        problem = self._problem(given, inputs)
        adapted = self._adapted(given)
        free = adapted.free() if self.criterion is not None else []
        guard_memory(problem.n, min(problem.n, LARGEST_BATCH), None, self._like.element_size())
        kernel = adapted.resolve(inputs)
        found = self._search(kernel, free, problem, targets, self._seed, callback)
        self._finish(found, problem)

    @property
    def _by_features(self) -> bool:
        return self._state is not None

    @property
    def _input_approximation(self) -> Any:
        return both_approximations(self.approximation)[0]

    def _check_own(self) -> None:
        if self.criterion is not None:
            check_options(self, {"criterion": ("loo", "validation")})
        if isinstance(check_alpha(self.alpha), np.ndarray):
            raise ValueError(
                f"alpha must be a positive number or 'auto'; got {self.alpha!r}. Compare by GridSearchCV."
            )
        if not isinstance(self.fit_intercept, bool | np.bool_):
            raise ValueError(f"fit_intercept must be True or False; got {self.fit_intercept!r}.")
        if not (is_real(self.shrinkage) and 0 <= self.shrinkage < np.inf):
            raise ValueError(f"shrinkage must be a finite number of at least 0; got {self.shrinkage!r}.")
        if not (is_real(self.validation_fraction) and 0 < self.validation_fraction < 1):
            raise ValueError(
                f"validation_fraction must lie between 0 and 1; got {self.validation_fraction!r}."
            )

    def _validate_targets(self, Y: Any, n: int) -> Tensor:
        """Check and keep the targets; a factor R of their Gram matrix, whose rows stand for the l(y_i, ·)."""
        given = as_kernel(self.output_kernel, argument="output_kernel").__sklearn_clone__().numbers()
        self.Y_fit_, self._flat = check_outputs(given, Y, reset=True)
        if len(self.Y_fit_) != n:
            raise ValueError(f"X and y have inconsistent numbers of samples: {n} and {len(self.Y_fit_)}.")
        if n < 2 and self.criterion is not None:
            raise ValueError(
                f"Found n_samples=1: criterion={self.criterion!r} leaves samples out, so that at least 2 are needed."
            )
        prepared = self._targets(given, self.Y_fit_)
        self.output_kernel_ = given.resolve(prepared)
        return self._factor(repaired_gram(self._output_adapted(), prepared)[0])

    def _factor(self, gram: Tensor) -> Tensor:
        """To this tolerance the RKHS is spanned by few of the samples, which is what the criteria cost."""
        factor, _ = pivoted_cholesky(gram, tol=torch.finfo(gram.dtype).eps ** 0.75)
        return factor.contiguous()

    def _search(
        self, kernel: Kernel, free: list[str], problem: EmbeddingProblem, R: Tensor, seed: int, callback: Any
    ) -> Found:
        """Learn what is free by the criterion; what is fixed stays."""
        alpha = check_alpha(self.alpha)
        assert not isinstance(alpha, np.ndarray)  # checked
        if self.criterion is None:
            return Found(kernel, problem.scale(kernel) / problem.n if alpha is None else alpha)
        if alpha is not None and not free:
            return Found(kernel, alpha)
        if problem.n > LARGEST_BATCH:
            chosen = torch.randperm(problem.n, generator=torch.Generator().manual_seed(seed))[:LARGEST_BATCH]
            problem, R = problem.rows(chosen), R[chosen]
        problem = problem.with_features(kernel, limit=problem.n)
        options: dict[str, Any] = {"alpha": 1.0, "intercept": bool(self.fit_intercept)}
        objective: LeaveOneOut | HeldOut
        if self.criterion == "loo":
            objective = LeaveOneOut(R, **options)
        else:
            rows = held_out_rows(
                torch.zeros(problem.n, dtype=torch.long), float(self.validation_fraction), seed
            )
            objective = HeldOut(R, validation=rows, **options)
        with silent_repairs():
            if not free:
                problem = problem.with_fixed_gram(kernel)
            search = EmbeddingSearch(
                problem,
                kernel,
                free,
                alpha,
                lambda rows: objective,
                self._like,
                shrinkage=float(self.shrinkage),
                logarithm=True,
            )
            return search.run(
                solver="lbfgs",
                max_iter=int(self.max_iter),
                tol=float(self.tol),
                n_restarts=int(self.n_restarts),
                seed=seed,
                callback=callback,
                verbose=int(self.verbose),
                description="log criterion",
            )

    def _finish(self, found: Found, problem: EmbeddingProblem) -> None:
        self._keep_kernel(found.kernel)
        self.alpha_, self.criterion_value_ = found.alpha, found.value
        self.history_, self.n_iter_ = found.history, found.n_iter
        self.__dict__.pop("_cached_system", None)
        self._system(problem, found.kernel)
