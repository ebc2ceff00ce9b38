"""Structured outputs: regression into the RKHS of an output kernel, and back to objects by a decoder."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from representer.approximation import input_output_pair
from representer.estimators import validation
from representer.estimators.base import KernelLearner, fitting
from representer.functions import Embedding, FeatureFunction
from representer.functions.embedding import squared_distances
from representer.kernels import Kernel, as_kernel
from representer.operators import (
    ConditionalCovariance,
    Operator,
    PrincipalComponents,
    as_operator,
    original,
    silent_repairs,
    takes_sparse,
)
from representer.optimize import HistoryEntry
from representer.optimize.search import Choice, SearchSettings, keep_going
from representer.preimage import Candidates, Decoder, LabelSet, as_decoder, candidate_scores
from representer.preimage.base import check_width
from representer.problems.structured import (
    Pairs,
    StructuredModel,
    StructuredProblem,
    Task,
    add_samples,
    choose_by_loo,
    choose_by_task,
    guard_memory,
    learn_kernel,
    structured_problem,
)
from representer.samples import (
    Block,
    Data,
    HeldSamples,
    InMemory,
    OnDask,
    Samples,
    SparseRows,
    count,
    is_dask,
    plain,
    rows,
    sample_rows,
    sampling_keys,
    take,
)
from representer.systems.structured import DiagonalRegression
from representer.values import is_count

NO_GAPS = "partial_fit needs all outputs; some are None or NaN. Leave such samples out, or use fit."


@dataclass(frozen=True)
class StructuredFit:
    """What a fitted predictor knows beside its public attributes: its model as fitted, and how its data came."""

    model: StructuredModel
    flat: bool  # were outputs one number each?
    kind: np.dtype | None  # the type of outputs that are integers or truth values
    labelled: np.ndarray | None  # the inputs that have an output; None: all
    weights: np.ndarray | None  # of the inputs
    root: np.ndarray | None = None  # of a fit by sums, a root of the operator (see ``joint_kernel``)


class StructuredPredictor(KernelLearner):
    """Predict objects of any kind: regression into the RKHS of an output kernel l, then a decoder (Kadri et al., 2013).

    Solves ::

        min_g  (1/n) Σ_i ‖l(·, y_i) − g(x_i)‖² + alpha ‖g‖²

    over the functions into the RKHS of l whose operator-valued kernel is k(x, x') A, and predicts the y whose l(·, y)
    the ``decoder`` finds next to g(x) = Σ_i w_i(x) l(·, y_i). Exact in O(n³) for all operators A: no system of size
    n² × n² exists. Kadri's λ is ``n * alpha``.

    Parameters
    ----------
    kernel : Kernel, str or callable, default="rbf"
        The kernel k of the inputs. A number in it stays; ``"median"`` (what ``"rbf"`` means) is a heuristic, ``"auto"``
        and ``"ard"`` are learned by leave-one-out.
    output_kernel : Kernel, str or callable, default="rbf"
        The kernel l of the outputs: it says which outputs are alike, and is the loss that is minimised. Words are
        heuristics, but for ``"auto"`` with ``criterion="validation"``. ``"precomputed"``: y is their Gram matrix, and
        predictions are numbers of training outputs.
    operator : {"kpca", "covariance", "conditional_covariance"}, Operator or None, default=None
        A: the identity (None: input-output kernel regression); the projection on the leading principal components of
        the outputs; their covariance; their covariance given the inputs, which is ``ConditionalCovariance("auto")``:
        its epsilon is the best of some multiples of k(x, x). Or, for a linear l on vectors, any operator of
        ``representer.operators``.
    alpha : float, array-like or "auto", default="auto"
        The weight of ‖g‖²; several candidates, or all positive numbers, are compared by the ``criterion``.
    n_components : int or "auto", default="auto"
        The number of components of ``operator="kpca"``, at most as many as have a variance above rounding error (see
        ``n_components_``); ``"auto"``: that of least leave-one-out error.
    fit_intercept : bool, default=False
        Regress on what distinguishes outputs from their mean, and add the mean: principal components and covariances
        are then centred ones, as in Weston et al. (2003).
    decoder : Decoder, str or callable, default="candidates"
        How g(x) becomes an object: one of ``representer.preimage``, its name, or a function of (embedding, X). The
        default chooses among the training outputs.
    criterion : {"loo", "validation"}, default="loo"
        The exact leave-one-out error in the RKHS of l, in closed form; or the ``task_loss`` of decoded predictions.
    task_loss : callable or None, default=None
        For ``criterion="validation"``: ``task_loss(y_true, y_pred)``, a number or one for each sample, the lower the
        better. None: the squared distance in the RKHS of l.
    cv : int or cross-validation splitter, default=5
        The folds of ``criterion="validation"``.
    approximation : Approximation, pair of approximations, or None, default=None
        None is exact, with n × n matrices. ``Nystroem(m)`` takes m landmarks of inputs and of outputs; another
        approximation is one of the inputs; the second of a pair, ``Nystroem`` or ``Landmarks``, is one of the outputs.
        The fit is then a sum over blocks of samples, also on Dask, and of more than 20,000 samples kernels and decoders
        see as many random ones.
    memory_limit : int, str or None, default=None
        What an approximate fit may take beside the data, in bytes or as ``"2GB"``; None: what the landmarks need.
    max_iter, tol, n_restarts
        Of the search over hyperparameters of ``kernel``, as in ``OperatorRidge``.
    random_state : int, RandomState instance or None, default=None
        Seeds landmarks, folds and random starts.
    verbose : int, default=0
        1 shows progress of long searches, 2 also how they ended.
    device : str or None, default=None
        Where tensors live, ``"cpu"`` by default.
    dtype : {"float64", "float32"}, default="float64"
        The precision of the computation.

    Attributes
    ----------
    kernel_, output_kernel_ : Kernel
        The kernels with the numbers that were used.
    decoder_ : Decoder
        The decoder, with what it knows of the training outputs.
    function_ : EmbeddingFunction
        g: called with inputs, it gives the weights w(x).
    operator_ : Operator or None
        The operator with the numbers that were used; None is the identity.
    alpha_ : float
        The weight of ‖g‖² that was used.
    epsilon_ : float or None
        Of the conditional covariance.
    n_components_ : int or None
        Of ``operator="kpca"``: how many were used.
    dual_coef_ : ndarray of shape (n_input_anchors, n_output_anchors)
        The D in w_j(x) = Σ_i k(x, x_i) D_ij (plus ``offset_``); with random features, of these.
    offset_ : ndarray of shape (n_output_anchors,) or None
        With ``fit_intercept``, the weights of the mean output.
    X_fit_, Y_fit_ : ndarray or list
        The training inputs, and the outputs of those that have one; of an approximate fit to more than 20,000 samples,
        as many random ones.
    landmarks_, output_landmarks_ : ndarray, list or None
        The anchors of an approximate fit.
    criterion_value_ : float or None
        The criterion at the chosen numbers. None if it has chosen nothing; ``kernel`` is always learned by
        leave-one-out, so that with ``criterion="validation"`` it does not count.
    history_ : list of HistoryEntry
        The search over hyperparameters of ``kernel``.
    n_iter_ : int
        Its iterations, 1 if there was none.
    n_samples_seen_ : int
        Of all batches, after ``partial_fit``.
    n_features_in_ : int
        Number of features seen during fit (vectors and Gram matrices).
    feature_names_in_ : ndarray of str
        Names of the features, if X had string names.

    See Also
    --------
    ConditionalMeanEmbedding : The same regression for distributions of outputs.
    OperatorRidge : Vectors as outputs, as they are.

    Examples
    --------
    >>> import numpy as np
    >>> from representer import StructuredPredictor
    >>> from representer.kernels import Spectrum
    >>> angles = np.linspace(0, 6, 60)
    >>> X = np.column_stack([np.cos(angles), np.sin(angles)])
    >>> words = ["north", "northeast", "east", "southeast", "south"]
    >>> y = [words[int(a) % 5] for a in angles]
    >>> model = StructuredPredictor("rbf", Spectrum(2).normalized()).fit(X, y)
    >>> model.predict([[np.cos(2.5), np.sin(2.5)]])
    ['east']
    >>> model.predict_topk([[np.cos(2.5), np.sin(2.5)]], 2)[0]
    [['east', 'southeast']]
    """

    kernel_arguments = ("kernel", "output_kernel")
    training_data = ("X_fit_", "Y_fit_", "history_", "_batches")

    def __init__(
        self,
        kernel: Any = "rbf",
        output_kernel: Any = "rbf",
        operator: Any = None,
        alpha: Any = "auto",
        *,
        n_components: Any = "auto",
        fit_intercept: bool = False,
        decoder: Any = "candidates",
        criterion: str = "loo",
        task_loss: Any = None,
        cv: Any = 5,
        approximation: Any = None,
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
        self.output_kernel = output_kernel
        self.operator = operator
        self.alpha = alpha
        self.n_components = n_components
        self.fit_intercept = fit_intercept
        self.decoder = decoder
        self.criterion = criterion
        self.task_loss = task_loss
        self.cv = cv
        self.approximation = approximation
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
        tags.target_tags.required = True
        return tags

    def set_params(self, **params: Any) -> Any:
        """Set parameters, ``decoder__max_iter`` also where the decoder is given by its name."""
        if any(name.startswith("decoder__") for name in params):
            decoder = params.get("decoder", self.decoder)
            if not isinstance(decoder, str | Decoder):
                raise ValueError(f"decoder={decoder!r} has no parameters; give an object of representer.preimage.")
            params["decoder"] = as_decoder(decoder)
        return super().set_params(**params)

    # -- fitting ------------------------------------------------------------------------------------------------------
    @fitting
    def fit(self, X: Data, y: Data, sample_weight: Data = None, groups: Data = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Training inputs; with a precomputed kernel, their Gram matrix; with an approximation, also in Dask.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), or a sequence of what the output kernel takes
            Training outputs; with a precomputed output kernel, their Gram matrix. None, or a row of NaN, marks an
            input without output: it takes part in the conditional covariance. Of a Gram matrix, the row and the
            column; predictions are then numbers among the outputs that are there.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights in the mean loss: a sample of weight 2 counts as two, one of weight 0 as none.
        groups : array-like of shape (n_samples,), default=None
            Labels of what belongs together: samples of one group are left out together by the criterion.

        Returns
        -------
        self : StructuredPredictor
            The fitted model.
        """
        self._fit_whole(X, y, sample_weight, groups, self._iteration_callback())
        return self

    def _fit_whole(
        self, X: Data, y: Data, sample_weight: Data, groups: Data, callback: Callable[[HistoryEntry], bool]
    ) -> StructuredProblem:
        """Fit to all samples, however many; the problem that was solved."""
        for name in ("n_samples_seen_", "_batches"):
            self.__dict__.pop(name, None)
        self._check()
        seed = validation.seed_of(self.random_state)
        kernel, output = (
            as_kernel(getattr(self, name), argument=name).__sklearn_clone__().numbers()
            for name in self.kernel_arguments
        )
        read = self._read_dask if is_dask(X) or is_dask(y) else self._read
        pairs, source, flat, kind = read(kernel, output, X, y, sample_weight, groups, seed)
        self.X_fit_, self.Y_fit_ = (plain(data, copy=True) for data in (pairs.inputs, pairs.outputs))
        pairs = replace(pairs, inputs=self.X_fit_, outputs=self.Y_fit_)
        model = self._model(kernel, output.resolve(pairs.Y), pairs, source, seed)
        arrays = (None if a is None else plain(a, copy=True) for a in (pairs.labelled, pairs.weights))
        self._fit = StructuredFit(model, flat, kind, *arrays)
        self._resolved_decoder(model.output_kernel)  # refuses a decoder before anything is computed
        chooses = self._chooses(model)
        if chooses:
            validation.check_left_out(len(pairs), pairs.known(pairs.groups))
        guard_memory(model, pairs, chooses=chooses)
        verbose = int(self.verbose)
        settings = SearchSettings("loo", self.max_iter, self.tol, self.n_restarts, seed, verbose, callback)
        model, learned = learn_kernel(model, pairs, settings)
        self.history_, self.n_iter_ = ([], 1) if learned is None else (learned.history, learned.n_iter)
        if learned is not None and learned.message is not None:
            validation.warn_unconverged(learned.message)
        if self.criterion == "validation" and chooses:
            known = pairs.known(pairs.groups)
            groups = None if known is None else np.unique(plain(known), return_inverse=True)[1]
            folds = validation.Folds(len(pairs), self.cv, seed, groups=groups)()
            splits = [(train.numpy(), test.numpy()) for train, test in folds]
            task = Task(as_decoder(self.decoder), self._task_loss, splits, self._free_outputs(), verbose)
            problem, choice, system = choose_by_task(model, pairs, source, task)
        else:
            evaluate = learned is not None and self.criterion == "loo"
            problem, choice, system = choose_by_loo(model, pairs, source, evaluate=evaluate)
        self._solve(problem, choice, system)
        return problem

    def _check(self) -> None:
        """Refuse arguments that mean nothing, before the data are looked at."""
        validation.check_options(self, {"criterion": ("loo", "validation")})
        validation.check_ridge(self)
        n_components = self.n_components
        if not (is_count(n_components) or (isinstance(n_components, str) and n_components == "auto")):
            raise ValueError(f"n_components must be a positive integer or 'auto'; got {self.n_components!r}.")
        if self.task_loss is not None and self.criterion != "validation":
            raise ValueError("task_loss= is what criterion='validation' minimises; set criterion='validation'.")
        if self.task_loss is not None and not callable(self.task_loss):
            raise ValueError(f"task_loss must be a function of (y_true, y_pred); got {self.task_loss!r}.")
        if self.criterion == "validation" and isinstance(self.cv, Iterator):
            raise ValueError(
                "cv is an iterator, which can be read once only. Pass the splitter itself, or list(…) of the splits."
            )
        if self.approximation is not None:
            input_output_pair(self.approximation)
        self._operator()

    def _operator(self) -> Operator | None:
        return as_operator(self.operator, self.n_components)

    def _model(
        self, kernel: Kernel, output: Kernel, pairs: Pairs, source: Samples | None, seed: int
    ) -> StructuredModel:
        """What the arguments mean for these samples."""
        how = self._representation(sparse=isinstance(pairs.inputs, SparseRows))
        approximation = self.approximation
        if approximation is not None:
            n = count(pairs.X) if source is None else source.n
            approximation = input_output_pair(approximation, n, vectors=output.domain == "vectors")
        return StructuredModel(
            how.adapted(kernel, repair=True),
            output,
            self._operator(),
            validation.check_alpha(self.alpha),
            approximation,
            bool(self.fit_intercept),
            how,
            seed,
            self.memory_limit,
        )

    def _free_outputs(self) -> list[str]:
        """What is to be chosen of the output kernel."""
        free = as_kernel(self.output_kernel).free() if self.criterion == "validation" else []
        if free and self.task_loss is None:
            raise ValueError(
                f"{free[0]!r} of the output kernel cannot be chosen by the distance in its own RKHS, which changes "
                "with it. Give task_loss=, a function of (y_true, y_pred), or a number."
            )
        return free

    def _chooses(self, model: StructuredModel) -> bool:
        """Is something left to the criterion?"""
        return bool(self._free_outputs()) or model.is_open

    # -- samples ------------------------------------------------------------------------------------------------------
    def _read(
        self, kernel: Kernel, output: Kernel, X: Data, y: Data, sample_weight: Data, groups: Data, seed: int
    ) -> tuple[Pairs, Samples | None, bool, np.dtype | None]:
        """The samples in memory that the learner keeps, all of them if those are not, and how outputs came."""
        inputs = validation.check_inputs(self, X, kernel.domain, reset=True, sparse=takes_sparse(kernel))
        y = validation.as_collection(y, output, "y must hold one output for each sample")
        known, labelled = validation.labelled_outputs(output, y)
        outputs, flat = validation.check_outputs(output, known, reset=True)
        validation.check_lengths(count(inputs), len(outputs) if labelled is None else len(y))
        if labelled is not None and not isinstance(self._operator(), ConditionalCovariance):
            raise ValueError(
                f"{len(y) - len(labelled)} inputs have no output. They take part in operator='conditional_covariance' "
                f"only; leave them out for operator={self.operator!r}."
            )
        weights = validation.check_weights(sample_weight, X)
        numbers = validation.check_groups(groups, count(inputs))
        pairs = self._pairs(kernel, output, inputs, outputs, labelled, weights, numbers).positive()
        source = None
        if self.approximation is not None and pairs.labelled is None and len(pairs) > rows.KNOWN_ROWS:
            source = InMemory(pairs)
            pairs = pairs.rows(source.random_rows(rows.KNOWN_ROWS, seed))
        return pairs, source, flat, validation.integer_type(known) if output.domain == "vectors" else None

    def _read_dask(
        self, kernel: Kernel, output: Kernel, X: Data, y: Data, sample_weight: Data, groups: Data, seed: int
    ) -> tuple[Pairs, Samples, bool, np.dtype | None]:
        """The samples in Dask collections that the learner keeps, all of them, and how outputs came."""
        if output.domain != "vectors":
            raise ValueError(
                f"On Dask, outputs must be vectors, but {output!r} takes {output.domain}. Give explicit features of "
                "them with output_kernel='linear', or call X.compute() and y.compute() if they fit."
            )
        validation.needs_approximation(self, kernel, kernel.domain)
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None.")
        source = OnDask(X, y, sample_weight, dtype=validation.DTYPES[self.dtype], groups=groups)
        index = source.random_rows(rows.KNOWN_ROWS, seed)
        Y = source.Y[index].compute()
        inputs = validation.check_inputs(self, source.X[index].compute(), kernel.domain, reset=True)
        outputs, _ = validation.check_outputs(output, Y, reset=True)
        weights = None if source.weights is None else source.weights[index].compute()
        numbers = None if source.groups is None else source.groups[index]
        self._keep_columns(X)
        pairs = self._pairs(kernel, output, inputs, outputs, None, weights, numbers)
        return pairs, source, validation.is_flat(y), validation.integer_type(Y)

    def _pairs(
        self,
        kernel: Kernel,
        output: Kernel,
        inputs: Data,
        outputs: Data,
        labelled: np.ndarray | None = None,
        weights: np.ndarray | None = None,
        groups: np.ndarray | None = None,
    ) -> Pairs:
        """Checked samples, also as the tensors and objects that kernels take."""
        how = self._representation(sparse=isinstance(inputs, SparseRows))
        X, Y = how.inputs(kernel, inputs), replace(how, sparse=False).inputs(output, outputs)
        w = None if weights is None else how.tensor(weights)
        numbers, known = (None if a is None else torch.from_numpy(a) for a in (groups, labelled))
        return Pairs(X, Y, w, numbers, inputs, outputs, known, (kernel.domain == "gram", output.domain == "gram"))

    # -- the criterion ------------------------------------------------------------------------------------------------
    def _task_loss(self, kernel: Kernel, train: np.ndarray, test: np.ndarray, predicted: Data) -> float | np.ndarray:
        """The loss of predictions for some of the training samples by a fit to others."""
        if kernel.domain == "gram":
            true, predicted = test, train[predicted]
        else:
            true, predicted = self._shaped(take(self.Y_fit_, torch.from_numpy(test))), self._shaped(predicted)
        if self.task_loss is not None:
            return self.task_loss(true, predicted)
        return self._losses(kernel, true, predicted)

    def _resolved_decoder(self, output: Kernel) -> Decoder:
        """The decoder for an output kernel with numbers and the training outputs; answers are of their type."""
        decoder, kind = as_decoder(self.decoder), self._fit.kind
        chooses = kind is not None and isinstance(decoder, Candidates | LabelSet)
        return decoder.resolve(output, self.Y_fit_.astype(kind) if chooses else self.Y_fit_)

    def _solve(self, problem: StructuredProblem, choice: Choice, system: DiagonalRegression) -> None:
        """Keep the fitted function at chosen numbers, and its decoder."""
        if choice.unconverged is not None:
            validation.warn_unconverged(choice.unconverged)
        model, operator, root = problem.model, choice.model, None
        if isinstance(operator, PrincipalComponents):
            assert system.vectors is not None
            operator = PrincipalComponents(system.vectors.shape[1])
        self.kernel_, self.output_kernel_ = original(model.kernel), model.output_kernel
        self.operator_, self.alpha_, self.criterion_value_ = operator, choice.alpha, choice.value
        self.function_ = problem.solve(choice.alpha, system)
        decoder = self._resolved_decoder(model.output_kernel)
        self.decoder_ = problem.calibrated(decoder, self.function_, choice.alpha, system, self.Y_fit_)
        if operator is not None and problem.held_rows is not None:
            root = plain(system.operator_root(), copy=True)
        self._fit = replace(self._fit, model=model, root=root)
        self.__dict__.pop("_cached_root", None)

    # -- batches ------------------------------------------------------------------------------------------------------
    @available_if(validation.takes_batches)
    def partial_fit(self, X: Data, y: Data, sample_weight: Data = None) -> Self:
        """Fit to more samples: with ``approximation=``, and the same as one fit to all of them.

        The first batch decides what the data decide: words in the kernels, landmarks, what is learned, and with
        ``criterion="validation"`` all numbers. So where these are given (numbers in the kernels and pairs of
        ``Landmarks``), it equals ``fit`` on all batches at once, operator and chosen numbers included.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Inputs of the batch.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), or a sequence of what the output kernel takes
            Their outputs, all of them known.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights in the mean loss.

        Returns
        -------
        self : StructuredPredictor
            The fitted model.
        """
        X, y = validation.in_memory(X), validation.in_memory(y)
        if hasattr(self, "n_samples_seen_"):
            self._check()
            self._add_batch(X, y, sample_weight)
            return self
        problem = self._fit_whole(X, y, sample_weight, None, keep_going)
        sums, seed = problem.regression.sums, problem.model.seed
        if sums is None:
            raise ValueError(NO_GAPS)
        keys = sampling_keys(sample_rows(sums.n, rows.KNOWN_ROWS, seed), seed)
        self._batches = sums.map(plain), HeldSamples(keys, self.X_fit_, self.Y_fit_, self._fit.weights)
        self.n_samples_seen_ = sums.n
        return self

    def _add_batch(self, X: Data, y: Data, sample_weight: Data) -> None:
        """Add the sums of another batch, choose which samples to keep, and solve again."""
        (before, seen), kernel, output = self._batches, self.kernel_, self.output_kernel_
        model = replace(self._fit.model, alpha=validation.check_alpha(self.alpha))
        inputs = self._new_inputs(X, kernel)
        if validation.labelled_outputs(output, y)[1] is not None:
            raise ValueError(NO_GAPS)
        outputs, flat = validation.check_outputs(output, y, reset=False)
        if len(inputs) != len(outputs) or flat != self._fit.flat:
            raise ValueError(
                f"X and y have {len(inputs)} and {len(outputs)} samples, or y has other dimensions than before."
            )
        self._new_outputs(y, "y")
        weights = validation.check_weights(sample_weight, X)
        batch = self._pairs(kernel, output, inputs, outputs, None, weights).positive()
        stored = Block(batch.inputs, batch.outputs, batch.weights)
        seen = seen.joined(stored, before.n, rows.KNOWN_ROWS, model.seed)
        held = np.sort(np.argsort(seen.keys)[: rows.HELD_ROWS])
        left_out = self._pairs(kernel, output, seen.X, seen.Y, None, seen.weights).rows(held)
        problem = add_samples(model, self.function_, before, batch, left_out, held)
        sums = problem.regression.sums
        assert sums is not None
        self.X_fit_, self.Y_fit_, self._batches = seen.X, seen.Y, (sums.map(plain), seen)
        self.n_samples_seen_ = sums.n
        if self.criterion == "loo" and self._chooses(model):
            self._solve(problem, *problem.choose())
        else:
            choice = Choice(self.operator_, self.alpha_, self.criterion_value_)
            self._solve(problem, choice, problem.regression.under(self.operator_))

    # -- what was fitted ----------------------------------------------------------------------------------------------
    @property
    def epsilon_(self) -> float | None:
        """The ridge of the regression inside of the conditional covariance; None for other operators."""
        return float(self.operator_.epsilon) if isinstance(self.operator_, ConditionalCovariance) else None

    @property
    def n_components_(self) -> int | None:
        """The number of principal components; None for other operators."""
        return int(self.operator_.n_components) if isinstance(self.operator_, PrincipalComponents) else None

    @property
    def dual_coef_(self) -> np.ndarray:
        """The D of w(x) = k(x, Z)ᵀ D + offset."""
        return self.function_.dual_coef

    @property
    def offset_(self) -> np.ndarray | None:
        """The weights of the mean output; None without an intercept."""
        return self.function_.offset

    @property
    def landmarks_(self) -> Data:
        """The landmarks among the inputs; None where there are none."""
        inner = self.function_.coordinates
        return inner.features.landmarks if isinstance(inner, FeatureFunction) else None

    @property
    def output_landmarks_(self) -> Data:
        """The landmarks among the outputs; None where there are none."""
        return None if self.function_.features is None else self.function_.features.landmarks

    # -- answers ------------------------------------------------------------------------------------------------------
    def decision_embedding(self, X: Data) -> Embedding:
        """The predictions g(x) as elements of the output RKHS, before decoding.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).

        Returns
        -------
        embedding : Embedding
            Sums Σ_j w_j l(·, y_j) of training outputs (of landmarks after an approximate fit, of the axes for vectors
            with a linear kernel), with values, inner products and distances.
        """
        check_is_fitted(self)
        return self.function_.embedding(self._new_inputs(X, self.kernel_))

    def predict(self, X: Data) -> Data:
        """Predict outputs.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train). For a Dask collection, so are the predictions: lazy.

        Returns
        -------
        y : ndarray or list
            One object for each input, of the kind of the training outputs (integers and truth values where the decoder
            chooses from them, floats where it makes new vectors); with a precomputed output kernel, numbers of
            candidates.
        """
        check_is_fitted(self)
        if is_dask(X):
            return self._predict_lazily(X)
        X = self._new_inputs(X, self.kernel_)
        return self._shaped(self.decoder_.decode(self.function_.embedding(X), X))

    def _predict_lazily(self, X: Data) -> Data:
        """Predictions chunk by chunk: vectors, or one object each."""
        kind, width = np.dtype(object), None
        if isinstance(self.Y_fit_, np.ndarray) and self.output_kernel_.domain in ("vectors", "labels"):
            nameless = copy.copy(self)
            nameless.__dict__.pop("feature_names_in_", None)
            example = np.asarray(nameless.predict(np.zeros((1, self.n_features_in_))))
            kind, width = example.dtype, None if example.ndim == 1 else example.shape[1]
        return self._lazily("_predict_objects" if kind.hasobject else "predict", X, width, dtype=kind)

    def _predict_objects(self, X: Data) -> np.ndarray:
        """Predictions as an array of objects."""
        predictions = self.predict(X)
        objects = np.empty(len(predictions), dtype=object)
        objects[:] = predictions
        return objects

    def predict_topk(self, X: Data, k: int) -> tuple[Data, np.ndarray]:
        """The k best candidates for each input.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).
        k : int
            How many.

        Returns
        -------
        objects : ndarray of shape (n_queries, k, …), or list of lists
            Best first.
        scores : ndarray of shape (n_queries, k)
            2⟨g(x), l(·, y)⟩ − l(y, y): ‖g(x)‖² minus the squared distance.
        """
        check_is_fitted(self)
        X = self._new_inputs(X, self.kernel_)
        topk = getattr(self.decoder_, "topk", None)
        if topk is None:
            raise ValueError(
                f"predict_topk needs a decoder that ranks candidates; {self.decoder_!r} does not. Use "
                "decoder=Candidates(…), or score_candidates(X, candidates)."
            )
        objects, scores = topk(self.function_.embedding(X), k, X)
        if self._fit.flat and isinstance(objects, np.ndarray):
            objects = objects[..., 0]
        elif self._fit.flat and self.output_kernel_.domain == "vectors":
            objects = [[item[0] for item in row] for row in objects]
        return objects, scores

    def score_candidates(self, X: Data, candidates: Data, *, diagonal: Data = None) -> np.ndarray:
        """How well each candidate fits each input.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).
        candidates : outputs
            What the output kernel takes; with a precomputed one, rows l(candidates, Y_train). A label that a ``Delta``
            kernel has not seen scores −1: no input is near it.
        diagonal : array-like of shape (n_candidates,), default=None
            With a precomputed output kernel, their l(y, y), unless it is the same for all training outputs.

        Returns
        -------
        scores : ndarray of shape (n_queries, n_candidates)
            2⟨g(x), l(·, y)⟩ − l(y, y), the higher the better.
        """
        embedding = self.decision_embedding(X)
        candidates = self._new_outputs(candidates, "candidates")
        return plain(candidate_scores(embedding, candidates, diagonal=diagonal))

    def _shaped(self, objects: Data) -> Data:
        """Vectors of one number each as numbers, if the training outputs came like that."""
        one_column = isinstance(objects, np.ndarray) and objects.ndim == 2 and objects.shape[1] == 1
        return objects[:, 0] if self._fit.flat and one_column else objects

    def _new_outputs(self, Y: Data, name: str, kernel: Kernel | None = None) -> Data:
        """Checked outputs; among vectors of one number each, numbers will do."""
        kernel = self.output_kernel_ if kernel is None else kernel
        Y = validation.as_collection(Y, kernel, f"{name} must be a collection of outputs")
        if hasattr(Y, "__len__") and len(Y) == 0:
            raise ValueError(f"{name} is empty; at least one output is needed.")
        outputs = validation.check_outputs(kernel, Y, reset=False)[0]
        if kernel.domain in ("vectors", "gram"):
            check_width(kernel, outputs, self.Y_fit_.shape[1])
        return self._representation().inputs(kernel, outputs)

    # -- how well -----------------------------------------------------------------------------------------------------
    def loss(self, Y: Data, Y_pred: Data) -> np.ndarray:
        """The squared distances ‖l(·, y) − l(·, ŷ)‖² in the output RKHS.

        Parameters
        ----------
        Y : outputs
            True ones; with a precomputed output kernel, numbers of training outputs.
        Y_pred : outputs
            Predicted ones, as many.

        Returns
        -------
        losses : ndarray of shape (n_samples,)
            One for each pair; the loss of Kadri et al. is their mean.
        """
        check_is_fitted(self)
        return self._losses(self.output_kernel_, Y, Y_pred)

    def _losses(self, kernel: Kernel, Y: Data, Y_pred: Data) -> np.ndarray:
        gram = self.Y_fit_ if kernel.domain == "gram" else None
        if gram is None:
            one, two = self._new_outputs(Y, "Y", kernel), self._new_outputs(Y_pred, "Y_pred", kernel)
        else:
            one, two = (validation.check_numbers(outputs, len(gram)) for outputs in (Y, Y_pred))
        if count(one) != count(two):
            raise ValueError(f"There must be one prediction for each output; got {count(two)} for {count(one)}.")
        if gram is None:
            return plain(squared_distances(kernel, one, two))
        return np.maximum(gram[one, one] + gram[two, two] - 2.0 * gram[one, two], 0.0)

    def score(self, X: Data, y: Data) -> float:
        """The share of the outputs' variance in the RKHS of l that g explains: R² there.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).
        y : outputs
            Their true outputs.

        Returns
        -------
        score : float
            1 − Σ‖l(·, y_i) − g(x_i)‖² / Σ‖l(·, y_i) − mean‖²: 1 is perfect, 0 no better than the mean output. For a
            linear l it is scikit-learn's ``r2_score(..., multioutput="variance_weighted")`` of the undecoded vectors.
        """
        embedding, new = self.decision_embedding(X), self._new_outputs(y, "y")
        validation.check_lengths(len(embedding), count(new))
        if self.output_kernel_.domain == "gram":
            raise ValueError(
                "score needs l(y, y') of new outputs, which a precomputed output kernel does not have. Use an output "
                "kernel object, such as Callable(lambda i, j: gram[i, j]) with numbers of outputs as y."
            )
        return embedding.explained(new)

    # -- pairs --------------------------------------------------------------------------------------------------------
    def joint_kernel(self, X1: Data, Y1: Data, X2: Data, Y2: Data) -> np.ndarray:
        """The joint kernel ⟨K(x, x') l(·, y), l(·, y')⟩ = k(x, x') ⟨A l(·, y), l(·, y')⟩ of pairs (Kadri et al., 5.2).

        For the identity operator it is the tensor product k(x, x') l(y, y'). See ``operators.joint_kernel`` for that of
        any operator-valued kernel.

        Parameters
        ----------
        X1, Y1 : inputs and outputs
            n pairs.
        X2, Y2 : inputs and outputs
            m pairs.

        Returns
        -------
        joint : ndarray of shape (n, m)
            One row for each of the first pairs.
        """
        check_is_fitted(self)
        if "gram" in (self.kernel_.domain, self.output_kernel_.domain):
            raise ValueError("joint_kernel needs kernels that can be evaluated; a precomputed one cannot.")
        output, root, how = self.output_kernel_, self._operator_root(), self._fit.model.representation
        kernel = how.adapted(self.kernel_, repair=False)
        one, two = (how.inputs(kernel, self._new_inputs(X, self.kernel_)) for X in (X1, X2))
        left, right = self._new_outputs(Y1, "Y1"), self._new_outputs(Y2, "Y2")
        for X, Y in ((one, left), (two, right)):
            if count(X) != count(Y):
                raise ValueError(f"Pairs have as many inputs as outputs; got {count(X)} and {count(Y)}.")
        if root is None:
            inner = output._gram(left, right)
        else:
            anchors = self.function_.prepared_anchors
            projected = [output._gram(Y, anchors).to(root) @ root for Y in (left, right)]
            inner = projected[0] @ projected[1].mT
        return plain(kernel._gram(one, two) * inner.to(self._fit.model.like))

    def _operator_root(self) -> Tensor | None:
        """A root of the fitted operator, None for the identity; that of an exact fit is made at first use and kept."""
        record = self._fit
        if self.operator_ is None:
            return None
        if record.root is not None:
            return record.model.outputs.tensor(record.root)
        if "_cached_root" not in self.__dict__:
            with silent_repairs():  # the fit has said it
                samples = (self.X_fit_, self.Y_fit_, record.labelled, record.weights)
                pairs = self._pairs(self.kernel_, self.output_kernel_, *samples)
                system = structured_problem(record.model, pairs).regression.under(self.operator_)
                self._cached_root = system.operator_root()
        return self._cached_root
