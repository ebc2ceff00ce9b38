"""Classification by conditional mean embeddings with learned kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils.metaestimators import available_if
from torch import Tensor

from representer.approximation import Approximation, RandomFeatures
from representer.data import plain
from representer.estimators._callbacks import fitting, iteration_callback
from representer.estimators._embedding_calibration import calibrate_embedding
from representer.estimators._embedding_classes import ClassEmbedding
from representer.estimators._embedding_large import (
    add_batch,
    fit_by_sums,
    keep_sums,
    known_labels,
    labels_on_dask,
    search_size,
    searched_rows,
)
from representer.estimators._embedding_problem import EmbeddingProblem, fourier, guard_memory
from representer.estimators._embedding_risk import Risk, check_classifier, check_start
from representer.estimators._embedding_search import EmbeddingSearch, Found
from representer.estimators._labels import encode
from representer.estimators._lazy import in_memory, takes_batches
from representer.estimators.validation import check_alpha, check_inputs, seed_of
from representer.kernels import Kernel
from representer.objectives.base import inner
from representer.operators.adapted import silent_repairs, takes_sparse
from representer.samples.in_memory import Block, InMemory, Samples
from representer.samples.on_dask import is_dask

# Beyond it, hyperparameters are learned on a subset: they are few, and a search costs many factorisations.
LARGEST_BATCH = 1500


class EmbeddingClassifier(ClassEmbedding):
    """Probabilities of classes as conditional expectations, with a kernel that is learned: any data with a kernel.

    f minimises (1/n) Σ_i ‖e(y_i) − b − f(x_i)‖² + alpha ‖f‖² for the one-hot labels e(y): f(x) + b is the embedding of
    the distribution of y given x, whose entries converge to the probabilities of the classes (Hsu, Nock & Ramos, 2018).
    Kernel and alpha minimise the ``objective``, with gradients. The multiclass conditional embedding (MCE) of the paper
    is ``EmbeddingClassifier(objective="rademacher", fit_intercept=False, shrinkage=0, calibration=None)``, its
    conditional embedding network (CEN) the same with ``kernel=Neural(module, Linear())``.

    Parameters
    ----------
    kernel : Kernel, str or callable, default="rbf"
        ``"rbf"`` is ``Gaussian("ard")``, one learned lengthscale a feature. A number in a kernel stays; ``"auto"`` and
        ``"ard"`` are learned, and so are the weights of the network in ``Neural(module, kernel)``. Of kernels of
        strings, graphs, and Gram matrices, alpha alone is learned unless they say ``"auto"`` somewhere.
    objective : {"loo", "rademacher", "erm", "validation"} or None, default="loo"
        ``"loo"``: the cross entropy of calibrated leave-one-out predictions, in closed form; ``"rademacher"``: that of
        the training samples + complexity_weight · r, equation (12); ``"erm"``: without r; ``"validation"``: that of
        samples held out, equation (13). None: nothing is learned, words are heuristics (``"rbf"`` is then the median
        heuristic) and ``alpha="auto"`` is the mean k(x, x) over n.
    alpha : float or "auto", default="auto"
        The weight of ‖f‖² beside the mean loss, λ of the paper; n·alpha is that of scikit-learn's ``KernelRidge``.
    complexity_weight : float or "auto", default="auto"
        The weight of the Rademacher complexity r beside the mean cross entropy. ``"auto"``: 4e/n for
        ``"rademacher"`` (4e, as printed in the paper, underfits; its code has 4e/n), 1/n for ``"loo"``, else 0.
    shrinkage : float, default=1.0
        How much the lengthscales of the features are drawn towards a common multiple of where the data put them: a
        normal prior on their logarithms with variance 1/shrinkage. 0 is the paper's.
    fit_intercept : bool, default=True
        Add a constant b that costs nothing: the estimates then sum to one, and far from all samples they are the shares
        of the classes instead of zero. False is the paper's.
    calibration : {"loo", None}, default="loo"
        ``"loo"``: probabilities are softmax(τ asinh(f/δ)) with τ and δ fitted to leave-one-out estimates. None: they
        are the clip-normalised estimates, equation (6).
    batch_size : int, "auto" or None, default="auto"
        How many samples hyperparameters are learned on at a time: by Adam on random batches of this size (Algorithm 1),
        by L-BFGS on one. None: all. ``"auto"``: all, or 1,500 of more. f is fitted to all samples in any case.
    validation_fraction : float, default=0.25
        The share of the samples, or of each batch, that ``objective="validation"`` holds out.
    approximation : Nystroem, Landmarks, RandomFeatures, TensorSketch or None, default=None
        For large data, also in Dask arrays and frames: f is spanned by so many landmarks (the kernel is learned on as
        many random samples, or 500), or random features; the fit is a sum over blocks. Kernels with few explicit
        features (linear, a network with a linear kernel on top) need none: they are solved in their space.
    memory_limit : int, str or None, default=None
        What the fit with an approximation may take beside the data, in bytes or as ``"2GB"``.
    solver : {"auto", "lbfgs", "adam"}, default="auto"
        ``"auto"``: L-BFGS, or Adam if ``batch_size`` is a number smaller than that of the samples.
    learning_rate : float, default=0.1
        Of Adam; 0.01 suits networks.
    start : dict or None, default=None
        Where the search starts, by name: ``{"lengthscale": 1.0, "alpha": 1.0}``. None: the data decide. They also do
        what lies outside the range (announced), and all if L-BFGS ends on a plateau above the objective at their start.
    n_restarts : int, default=1
        Starts of L-BFGS; all but the first are random.
    max_iter : int, default=200
        Most iterations of L-BFGS, or epochs of Adam.
    tol : float, default=1e-5
        The search ends when the objective falls by less than this share.
    epsilon : float, default=1e-15
        Where the cross entropy of ``"rademacher"`` and ``"erm"`` is clipped, equation (7); below 1/e.
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
    kernel_ : Kernel
        The kernel with the numbers, and the weights of the network, that were learned.
    alpha_ : float
        The weight of ‖f‖² that was used.
    complexity_ : float
        r = √(‖f‖² sup k(x, x)) of Theorem 4.
    calibration_ : EmbeddingCalibration or None
        What makes probabilities of estimates.
    dual_coef_ : ndarray of shape (n_anchors, n_classes)
        Coefficients of f on the samples, or on the features if there are fewer of them.
    intercept_ : ndarray of shape (n_classes,)
        The constant b.
    feature_relevance_ : ndarray of shape (n_features,)
        Inverse lengthscales, 0 for constant features; of sums and products those of the first part that has some. Not
        there for kernels without lengthscales of the features, such as ``Neural``.
    loo_estimates_ : ndarray of shape (n_samples, n_classes) or None
        Estimates for each sample by the embedding of the others, with ``calibration="loo"``; with an approximation
        and more than 5,000 samples, for 5,000 random ones.
    objective_value_ : float or None
        The objective at its end, None if nothing was learned.
    history_ : list of EmbeddingEntry
        The search: iteration, seconds, value, loss, complexity, accuracy, gradient_norm.
    n_iter_ : int
        Its iterations.
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
    >>> relevance = model.feature_relevance_ * X.std(0)
    >>> sorted(int(i) for i in relevance.argsort()[-2:])  # the petals matter
    [2, 3]
    """

    def __init__(
        self,
        kernel: Any = "rbf",
        objective: str | None = "loo",
        alpha: Any = "auto",
        *,
        complexity_weight: Any = "auto",
        shrinkage: float = 1.0,
        fit_intercept: bool = True,
        calibration: str | None = "loo",
        batch_size: Any = "auto",
        validation_fraction: float = 0.25,
        approximation: Approximation | None = None,
        memory_limit: int | str | None = None,
        solver: str = "auto",
        learning_rate: float = 0.1,
        start: dict[str, Any] | None = None,
        n_restarts: int = 1,
        max_iter: int = 200,
        tol: float = 1e-5,
        epsilon: float = 1e-15,
        random_state: Any = None,
        verbose: int = 0,
        device: str | None = None,
        dtype: str = "float64",
    ):
        self.kernel = kernel
        self.objective = objective
        self.alpha = alpha
        self.complexity_weight = complexity_weight
        self.shrinkage = shrinkage
        self.fit_intercept = fit_intercept
        self.calibration = calibration
        self.batch_size = batch_size
        self.validation_fraction = validation_fraction
        self.approximation = approximation
        self.memory_limit = memory_limit
        self.solver = solver
        self.learning_rate = learning_rate
        self.start = start
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.tol = tol
        self.epsilon = epsilon
        self.random_state = random_state
        self.verbose = verbose
        self.device = device
        self.dtype = dtype

    # -- fitting ------------------------------------------------------------------------------------------------------
    @fitting
    def fit(self, X: Any, y: Any) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Training inputs; with a precomputed kernel, their Gram matrix; with an approximation, also in Dask.
        y : array-like of shape (n_samples,)
            Class labels.

        Returns
        -------
        self : EmbeddingClassifier
            The fitted model. An interrupted search (Ctrl-C) keeps its best point, once there is one.
        """
        context = self._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=self)
        self._check_common()
        check_classifier(self)
        given = self._given_kernel()
        source = labels_on_dask(self, given, X, y) if is_dask(X) else self._memory_source(given, X, y)
        self._fit_source(given, source, iteration_callback(self, context))
        context.call_on_fit_task_end(estimator=self)
        return self

    @available_if(takes_batches)
    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
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

        Returns
        -------
        self : EmbeddingClassifier
            The fitted model.
        """
        self._check_common()
        check_classifier(self)
        given = self._given_kernel()
        first = not hasattr(self, "n_samples_seen_")
        X = check_inputs(self, in_memory(X), given.domain, reset=first, sparse=takes_sparse(given))
        self.X_fit_ = X if first else None
        Y = known_labels(self, X, in_memory(y), classes)
        block = Block(self._inputs(given, X), self._represented.tensor(Y))
        if first:
            sums = self._fit_source(given, InMemory(block), lambda entry: False)
            keep_sums(self, sums, len(block))
        else:
            with torch.no_grad():
                add_batch(self, self._adapted(self.kernel_), block)
        return self

    def _fit_source(self, given: Kernel, source: Samples, callback: Any) -> Any:
        """Learn what is free, on a part of the samples, and fit to all of them."""
        self.__dict__.pop("n_samples_seen_", None)
        self.__dict__.pop("_cached_features", None)
        self._seed, self._n_samples = seed_of(self.random_state), source.n
        block = searched_rows(source, given, self.approximation, self._seed)
        problem = self._problem(given, block.X)
        adapted = self._adapted(given)
        free = adapted.free() if self.objective is not None else []
        size = self._batch_size(problem)
        searched = min(size, search_size(self.approximation, problem.n)) if free else 0
        guard_memory(problem.n, searched, self.approximation, self._like.element_size())
        kernel = adapted.resolve(block.X)
        found = self._search(kernel, free, problem, block.Y, self._seed, callback)
        self._keep_kernel(found.kernel)
        self.alpha_, self.objective_value_, self.history_ = found.alpha, found.value, found.history
        self.n_iter_ = found.n_iter
        if self.approximation is None:
            return self._finish(found.kernel, problem, block.Y)
        with torch.no_grad():
            return fit_by_sums(self, found.kernel, source, self._seed)

    def _memory_source(self, kernel: Kernel, X: Any, y: Any) -> InMemory:
        self.X_fit_ = check_inputs(self, X, kernel.domain, reset=True, sparse=takes_sparse(kernel))
        self.classes_, labels = encode(self.X_fit_, y)
        Y = torch.nn.functional.one_hot(torch.from_numpy(labels)).to(self._like)
        return InMemory(Block(self._inputs(kernel, self.X_fit_), Y))

    def _given_kernel(self) -> Kernel:
        kernel = super()._given_kernel()
        if self.objective is None and isinstance(self.kernel, str) and self.kernel in ("rbf", "gaussian"):
            kernel.set_params(lengthscale="median")
        return kernel

    def _search(
        self, kernel: Kernel, free: list[str], problem: EmbeddingProblem, Y: Tensor, seed: int, callback: Any
    ) -> Found:
        """Learn what is free by the objective; what is fixed stays."""
        alpha = check_alpha(self.alpha)
        assert not isinstance(alpha, np.ndarray)  # checked
        check_start(self, alpha, free)
        if self.objective is None:
            return Found(kernel, problem.scale(kernel) / self._n_samples if alpha is None else alpha)
        if alpha is not None and not free:
            return Found(kernel, alpha)
        if isinstance(self.approximation, RandomFeatures):
            drawn = self.approximation.features(kernel, problem.X, seed=seed)
            problem = replace(problem, features=fourier(drawn))
        elif self.approximation is not None:
            chosen = torch.randperm(problem.n, generator=torch.Generator().manual_seed(seed))
            rows = chosen[: search_size(self.approximation, problem.n)].sort().values
            problem, Y = problem.rows(rows), Y[rows]
        size = self._batch_size(problem)
        problem = problem.with_features(kernel, limit=size)
        if (
            problem.features is not None and self.batch_size == "auto"
        ):  # features are cheap however many samples
            size = problem.n
        solver = self.solver
        if solver == "auto":
            solver = "lbfgs" if self.batch_size == "auto" or size == problem.n else "adam"
        if solver == "lbfgs" and size < problem.n:
            rows = (
                torch.randperm(problem.n, generator=torch.Generator().manual_seed(seed))[:size].sort().values
            )
            problem, Y = problem.rows(rows), Y[rows]
        if not free:
            with silent_repairs():  # fit speaks of the last Gram matrix
                problem = problem.with_fixed_gram(kernel)
        search = EmbeddingSearch(
            problem,
            kernel,
            free,
            alpha,
            Risk(self, kernel, Y, seed),
            self._like,
            start=self.start,
            shrinkage=float(self.shrinkage),
        )
        with silent_repairs():
            return search.run(
                solver=solver,
                max_iter=int(self.max_iter),
                tol=float(self.tol),
                n_restarts=int(self.n_restarts),
                batch_size=size if size < problem.n else None,
                learning_rate=float(self.learning_rate),
                seed=seed,
                callback=callback,
                verbose=int(self.verbose),
                description=f"objective {self.objective}",
            )

    def _batch_size(self, problem: EmbeddingProblem) -> int:
        limit = LARGEST_BATCH if self.batch_size == "auto" else self.batch_size
        return problem.n if limit is None else min(int(limit), problem.n)

    def _finish(self, kernel: Kernel, problem: EmbeddingProblem, Y: Tensor) -> None:
        n = problem.n
        self._state = self.landmarks_ = None
        problem = problem.with_features(kernel, limit=n)
        problem = problem.with_fixed_gram(kernel)
        with torch.no_grad():
            matrix = problem.matrix(kernel)
            shift = n * self.alpha_
            system = problem.system(matrix, shift, bool(self.fit_intercept))
            C = system.solve(Y)
            coefficients = system.coefficients(Y, C)
            b = Y.new_zeros(Y.shape[1]) if system.g is None else (system.g.mT @ Y)[0]
            squared_norm = inner(C, system.centred(Y) - shift * C).clamp(min=0.0)
            self.complexity_ = float((squared_norm * system.gram_diagonal().amax()).sqrt())
            fitted = ((Y - shift * C) * Y).sum(-1).clamp(self.epsilon, 1.0)
            self._training_loss = float(-fitted.log().mean())
            self.calibration_ = self.loo_estimates_ = None
            if self.calibration == "loo":
                loo = Y - C / system.diagonal()[:, None]
                self.calibration_ = calibrate_embedding(loo.double().cpu(), Y.double().cpu())
                self.loo_estimates_ = plain(loo)
        self._by_features = problem.features is not None
        self.dual_coef_ = plain(coefficients if self._by_features else problem.known(coefficients))
        self.intercept_ = plain(b)
