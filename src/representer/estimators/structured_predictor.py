"""Structured outputs: regression into the RKHS of an output kernel, and back to objects by a decoder."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from representer.approximation import input_output_pair
from representer.estimators import validation
from representer.estimators.base import KernelLearner, KernelLike, RandomState, fitting
from representer.functions import Embedding, EmbeddingFunction, Expansion, FeatureFunction, function_network
from representer.functions.embedding import squared_distances
from representer.inspection import Explanation, fold_sets
from representer.kernels import Kernel, as_kernel
from representer.operators import (
    ConditionalCovariance,
    Operator,
    PrincipalComponents,
    as_operator,
    left_out_together,
    original,
)
from representer.optimize import Choice, least_error
from representer.preimage import Candidates, Decoder, LabelSet, as_decoder, candidate_scores
from representer.preimage.base import check_width
from representer.problems.stack import SHRINKAGE
from representer.problems.structured import StructuredProblem, Task, add_batch, calibrated, gram_losses
from representer.samples import (
    Data,
    OnDask,
    TrainingSamples,
    as_collection,
    check_groups,
    check_left_out,
    check_lengths,
    check_numbers,
    count,
    in_memory,
    integer_type,
    is_dask,
    is_flat,
    labelled_outputs,
    plain,
    rows,
    take,
)
from representer.systems.structured import Pairs, StructuredModel, StructuredSystem
from representer.values import COUNT, NONE, Rule, one_of

NO_GAPS = "partial_fit needs all outputs; some are None or NaN. Leave such samples out, or use fit."


class StructuredPredictor(KernelLearner):
    """Predict objects of any kind: regression into the RKHS of an output kernel l, then a decoder (Kadri et al., 2013).

    Solves ::

        min_g  (1/n) Σ_i ‖l(·, y_i) − g(x_i)‖² + alpha ‖g‖²

    over the functions into the RKHS of l whose operator-valued kernel is k(x, x') A, and predicts the y whose l(·, y)
    the ``decoder`` finds next to g(x) = Σ_i w_i(x) l(·, y_i). Exact in O(n³) for all operators A: no system of size
    n² × n² exists. Kadri's λ is ``n * alpha``.

    Parameters
    ----------
    kernel : Kernel, str or callable, default="auto"
        The kernel k of the inputs. ``"auto"`` learns several kernels for data like X, and takes the one of least
        leave-one-out error; ``"molecules"``, ``"strings"``, ``"graphs"``, ``"curves"`` and ``"bags"`` do so with
        kernels of that kind. A number in a kernel stays; ``"median"`` (what ``"rbf"`` means) is a heuristic,
        ``Gaussian("auto")`` and ``Gaussian("ard")`` are learned by leave-one-out.
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
        ``n_components_``); ``"auto"``: the best of all by leave-one-out, of some by validation.
    fit_intercept : bool, default=False
        Regress on what distinguishes outputs from their mean, and add the mean: principal components and covariances
        are then centred ones, as in Weston et al. (2003).
    decoder : Decoder, str or callable, default="candidates"
        How g(x) becomes an object: one of ``representer.preimage``, its name, or a function of (embedding, X). The
        default chooses among the training outputs.
    criterion : {"loo", "validation"}, default="loo"
        The exact leave-one-out error in the RKHS of l, in closed form; or the ``task_loss`` of decoded predictions of
        refits without each fold. The closed form holds the operator of all samples fixed, which flatters covariances
        and components of fewer than some dozens of samples; refits compute it anew.
    task_loss : callable or None, default=None
        For ``criterion="validation"``: ``task_loss(y_true, y_pred)``, a number or one for each sample, the lower the
        better. None: the squared distance in the RKHS of l.
    cv : int or cross-validation splitter, default=5
        The folds of ``criterion="validation"``.
    approximation : Approximation, pair of approximations, or None, default=None
        None is exact, with n × n matrices. ``Nystroem(m)`` takes m landmarks of inputs and of outputs; another
        approximation is one of the inputs; the second of a pair, ``Nystroem`` or ``Landmarks``, is one of the outputs,
        and ``(None, Nystroem(s))`` is exact in the inputs.
        The fit is then a sum over blocks of samples, also on Dask, and of more than 20,000 samples kernels and decoders
        see as many random ones.
    memory_limit : int, str or None, default=None
        What the sums over blocks of an approximate fit may take beside the data, in bytes or as ``"2GB"``; None: what
        they need. It bounds neither an exact fit nor the search for hyperparameters on some of the samples, which takes
        about 0.25 GB for 1,500 of them.
    max_iter, tol, n_restarts
        Of the search over hyperparameters of ``kernel``, as in ``OperatorRidge``.
    max_time : float, str or None, default=None
        Seconds after which the search ends with the best point so far, or a text such as "90s", "5m" or "1h".
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
    system_ : StructuredSystem
        The regression behind it: leave-one-out predictions, leverages, variances, its backward error.
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
    training_data = ("system_", "history_")
    needs_targets = True

    constraints: ClassVar[dict[str, validation.Check]] = {
        "approximation": lambda name, value: value is None or input_output_pair(value),
        "criterion": one_of("loo", "validation"),
        "n_components": COUNT | one_of("auto"),
        "task_loss": Rule("a function of (y_true, y_pred)", callable) | NONE,
    }

    def __init__(
        self,
        kernel: KernelLike = "auto",
        output_kernel: KernelLike = "rbf",
        operator: Any = None,
        alpha: ArrayLike = "auto",
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
        max_time: float | str | None = None,
        tol: float = 1e-5,
        n_restarts: int = 1,
        random_state: RandomState = None,
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
        self.max_time = max_time
        self.tol = tol
        self.n_restarts = n_restarts
        self.random_state = random_state
        self.verbose = verbose
        self.device = device
        self.dtype = dtype

    def set_params(self, **params: Any) -> Self:
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
        self._fit_whole(X, y, sample_weight, groups)
        return self

    def _fit_whole(self, X: Data, y: Data, sample_weight: Data, groups: Data) -> None:
        """Fit to all samples, however many."""
        self.__dict__.pop("n_samples_seen_", None)
        self._check()
        kernels = self._compared_kernels(X)
        output = as_kernel(self.output_kernel, argument="output_kernel").__sklearn_clone__().numbers()
        seed = validation.seed_of(self.random_state)
        on_dask = None
        if is_dask(X):
            pairs, on_dask = self._read_dask(kernels[0], output, X, y, sample_weight, groups, seed)
        else:
            pairs = self._read(kernels[0], output, X, y, sample_weight, groups)
        problems = [
            StructuredProblem(
                self._model(own, output, pairs.inputs, seed),
                pairs,
                on_dask,
                self._task(seed),
                shrinkage=SHRINKAGE if len(kernels) > 1 else 0.0,
            )
            for own in kernels
        ]
        problem, pairs = problems[0], problems[0].pairs
        compares = problem.chooses or as_decoder(self.decoder) != as_decoder("direct")
        if compares or self.operator is not None:  # else nothing is made from l(y, y)
            validation.refuse_lost_outputs(problem.model.output_kernel, pairs.Y)
        self._resolved_decoder(problem.model.output_kernel, pairs.outputs)  # refuses it before anything is computed
        if problem.chooses:
            check_left_out(len(pairs), pairs.known(pairs.groups))
        problem, choice = least_error(problems, self._search_settings(seed, "loo"))
        self.history_, self.n_iter_ = choice.history, choice.n_iter
        self._keep(choice, *problem.solve(choice))

    def _keep(self, choice: Choice, function: EmbeddingFunction, system: StructuredSystem) -> None:
        """Keep the fitted function at chosen numbers, its system and its decoder."""
        validation.warn_unconverged(choice.unconverged)
        model = system.model
        self.kernel_, self.output_kernel_, self.operator_ = original(model.kernel), model.output_kernel, model.operator
        self.alpha_, self.criterion_value_ = system.alpha, choice.value
        decoder = self._resolved_decoder(model.output_kernel, system.samples.Y)
        self.decoder_ = calibrated(decoder, function, system)
        self.function_, self.system_ = function, system.at_rest()

    def _check(self) -> None:
        """Refuse arguments that mean nothing, before the data are looked at."""
        super()._check()
        if self.task_loss is not None and self.criterion != "validation":
            raise ValueError("task_loss= is what criterion='validation' minimises; set criterion='validation'.")
        if self.criterion == "validation" and isinstance(self.cv, Iterator):
            raise ValueError(
                "cv is an iterator, which can be read once only. Pass the splitter itself, or list(…) of the splits."
            )
        self._operator()

    def _operator(self) -> Operator | None:
        return None if self.operator is None else as_operator(self.operator, self.n_components)

    def _model(self, kernel: Kernel, output: Kernel, inputs: Data, seed: int) -> StructuredModel:
        """What the arguments mean for stored inputs of this kind."""
        how = self._representation(inputs)
        return StructuredModel(
            how.adapted(kernel, repair=True),
            output,
            self._operator(),
            validation.check_alpha(self.alpha),
            self.approximation,
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

    def _task(self, seed: int) -> Task | None:
        """How decoded predictions are judged, if the criterion is that."""
        if self.criterion != "validation":
            return None

        def splits(pairs: Pairs) -> list[tuple[np.ndarray, np.ndarray]]:
            numbers = pairs.known(pairs.groups)
            groups = None if numbers is None else np.unique(plain(numbers), return_inverse=True)[1]
            folds = validation.folds_of(len(pairs), self.cv, seed, groups=groups)()
            return [(train.numpy(), test.numpy()) for train, test in folds]

        loss = None if self.task_loss is None else self._task_loss
        return Task(as_decoder(self.decoder), loss, splits, self._free_outputs(), int(self.verbose), self._deadline)

    # -- samples ------------------------------------------------------------------------------------------------------
    def _read(self, kernel: Kernel, output: Kernel, X: Data, y: Data, sample_weight: Data, groups: Data) -> Pairs:
        """The samples in memory."""
        inputs = validation.check_inputs(self, X, kernel, reset=True)
        y = np.asarray(y) if is_dask(y) else y
        y = as_collection(y, output.domain, "y must hold one output for each sample")
        present, labelled = labelled_outputs(output.domain, y)
        outputs, self._flat = validation.check_outputs(output, present, reset=True, dtype=self.dtype)
        check_lengths(count(inputs), len(outputs) if labelled is None else len(y))
        if labelled is not None and not isinstance(self._operator(), ConditionalCovariance):
            raise ValueError(
                f"{len(y) - len(labelled)} inputs have no output. They take part in operator='conditional_covariance' "
                f"only; leave them out for operator={self.operator!r}."
            )
        self._kind = integer_type(present) if output.domain == "vectors" else None
        weights = validation.check_weights(sample_weight, X)
        prepared = self._representation(inputs).inputs(kernel, inputs)
        numbers = left_out_together(kernel, prepared, check_groups(groups, count(inputs)))
        return self._pairs(kernel, output, inputs, outputs, labelled, weights, numbers)

    def _read_dask(
        self, kernel: Kernel, output: Kernel, X: Data, y: Data, sample_weight: Data, groups: Data, seed: int
    ) -> tuple[Pairs, OnDask]:
        """The samples in Dask collections that the learner keeps, and all of them."""
        if output.domain != "vectors":
            raise ValueError(
                f"On Dask, outputs must be vectors, but {output!r} takes {output.domain}. Give explicit features of "
                "them with output_kernel='linear', or call X.compute() and y.compute() if they fit."
            )
        validation.needs_approximation(self, kernel, kernel.domain)
        y = validation.targets_beside_dask(y)
        source = OnDask(X, y, sample_weight, dtype=validation.DTYPES[self.dtype], groups=groups)
        index = source.random_rows(rows.KNOWN_ROWS, seed)
        Y = source.Y[index].compute()
        inputs = validation.check_inputs(self, source.X[index].compute(), kernel, reset=True)
        outputs, _ = validation.check_outputs(output, Y, reset=True, dtype=self.dtype)
        weights = None if source.weights is None else source.weights[index].compute()
        numbers = None if source.groups is None else source.groups[index]
        self._keep_columns(X)
        self._flat, self._kind = is_flat(y), integer_type(Y)
        return self._pairs(kernel, output, inputs, outputs, None, weights, numbers), source

    def _pairs(self, kernel: Kernel, output: Kernel, inputs: Data, outputs: Data, *arrays: np.ndarray | None) -> Pairs:
        """Checked samples of positive weight; the arrays are the numbers with an output, weights and groups."""
        how = self._representation(inputs)
        return Pairs.of(kernel, output, how, inputs, outputs, *arrays).positive()

    def _task_loss(self, outputs: Data, predicted: Data) -> float | np.ndarray:
        """The task's loss of predictions in the form that users see."""
        return self.task_loss(self._shaped(outputs), self._shaped(predicted))

    def _resolved_decoder(self, kernel: Kernel, outputs: Data) -> Decoder:
        """The decoder for an output kernel with numbers and the training outputs; answers are of their type."""
        decoder = as_decoder(self.decoder)
        chooses = self._kind is not None and isinstance(decoder, Candidates | LabelSet)
        return decoder.resolve(kernel, outputs.astype(self._kind) if chooses else outputs)

    # -- batches ------------------------------------------------------------------------------------------------------
    @available_if(validation.takes_batches)
    @fitting
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
        X, y = in_memory(X), in_memory(y)
        if hasattr(self, "n_samples_seen_"):
            self._check()
            self._add_batch(X, y, sample_weight)
            return self
        self._fit_whole(X, y, sample_weight, None)
        if self.system_.sums is None:
            raise ValueError(NO_GAPS)
        self.n_samples_seen_ = self.system_.sums.n
        return self

    def _add_batch(self, X: Data, y: Data, sample_weight: Data) -> None:
        """Add the sums of another batch, choose which samples to keep, and solve again."""
        kernel, output = self.kernel_, self.output_kernel_
        inputs = self._new_inputs(X)
        if labelled_outputs(output.domain, y)[1] is not None:
            raise ValueError(NO_GAPS)
        outputs, flat = validation.check_outputs(output, y, reset=False)
        if len(inputs) != len(outputs) or flat != self._flat:
            raise ValueError(
                f"X and y have {len(inputs)} and {len(outputs)} samples, or y has other dimensions than before."
            )
        self._new_outputs(y, "y")
        batch = self._pairs(kernel, output, inputs, outputs, None, validation.check_weights(sample_weight, X))
        before = Choice(self.operator_, self.alpha_, self.criterion_value_)
        operator, alpha = self._operator(), validation.check_alpha(self.alpha)
        choice = add_batch(self.system_, batch, before, operator, alpha, choose=self.criterion == "loo")
        assert choice.system is not None and choice.system.sums is not None
        self._keep(choice, choice.system.function(), choice.system)
        self.n_samples_seen_ = choice.system.sums.n

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
    def X_fit_(self) -> Data:  # noqa: N802
        """The training inputs that are kept."""
        check_is_fitted(self)
        return self.system_.samples.X

    @property
    def Y_fit_(self) -> Data:  # noqa: N802
        """The outputs of those training inputs that have one."""
        check_is_fitted(self)
        return self.system_.samples.Y

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
        return self.function_.embedding(self._new_inputs(X))

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
        if is_dask(X):
            return self._predict_lazily(X)
        X = self._new_inputs(X)
        return self._shaped(self.function_.answers(self.decoder_.decode, X))

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
        X = self._new_inputs(X)
        topk = getattr(self.decoder_, "topk", None)
        if topk is None:
            raise ValueError(
                f"predict_topk needs a decoder that ranks candidates; {self.decoder_!r} does not. Use "
                "decoder=Candidates(…), or score_candidates(X, candidates)."
            )
        objects, scores = self.function_.answers(lambda embedding, X: topk(embedding, k, X), X)
        if self._flat and isinstance(objects, np.ndarray):
            objects = objects[..., 0]
        elif self._flat and self.output_kernel_.domain == "vectors":
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
        X, new = self._new_inputs(X), self._new_outputs(candidates, "candidates")
        return self.function_.answers(lambda g, _: plain(candidate_scores(g, new, diagonal=diagonal)), X)

    def to_torch(self, candidates: Data = None) -> torch.nn.Module:
        """The scores of candidates as a ``torch.nn.Module`` of vectors; the largest belongs to the prediction.

        Parameters
        ----------
        candidates : outputs, default=None
            What the output kernel takes; None: those of the decoder, or the training outputs, equal ones once.

        Returns
        -------
        network : torch.nn.Module
            X (n_queries, n_features) to what ``score_candidates(X, candidates)`` gives.
        """
        validation.needs_vectors(self._data_kernel())
        outputs = self._candidates() if candidates is None else candidates
        return function_network(self._score_function(outputs))

    def predict_set(self, X: Data, coverage: float = 0.9, candidates: Data = None) -> np.ndarray:
        """Which candidates cannot be excluded, with a guarantee: CV+ (Romano, Sesia and Candès, 2020).

        The candidates are judged by how far their scores are behind that of the best one, by five fits without a fold
        each, which repeat the search, and which the first call makes; groups, equal inputs included, are left out
        together. The best candidate is always in the set.

        Proven, for exchangeable samples (or groups) whose outputs are among the candidates: sets contain a new output
        with a probability of at least 1 − 2a − √(2/n), where a = 1 − ``coverage``.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).
        coverage : float, default=0.9
            The share of new samples whose output shall be in its set.
        candidates : outputs, default=None
            What the output kernel takes; None: those of the decoder, or the training outputs, equal ones once.

        Returns
        -------
        sets : ndarray of bool of shape (n_queries, n_candidates)
            All candidates, with a warning, where there are too few samples for the coverage.
        """
        self._check_question(X, coverage)
        if self.output_kernel_.domain == "gram":
            raise ValueError(
                "predict_set compares candidates by fits without some of the outputs, and a precomputed output kernel "
                "knows no others than those that were fitted. Give the output kernel itself (Callable wraps any)."
            )
        chosen = self._candidates() if candidates is None else candidates

        def behind(model: StructuredPredictor, inputs: Data) -> np.ndarray:
            scores = model.score_candidates(inputs, chosen)
            return scores.max(1, keepdims=True) - scores

        def own(model: StructuredPredictor, inputs: Data, numbers: np.ndarray) -> np.ndarray:
            outputs = take(fits.samples.y, torch.from_numpy(numbers))
            each = np.diagonal(model.score_candidates(inputs, outputs))
            return model.score_candidates(inputs, chosen).max(1) - each

        fits = self._fold_fits()
        return fold_sets(fits, self._new_inputs(X), coverage, behind, own)

    def _candidates(self) -> Data:
        """The candidates of the decoder, or the training outputs, equal ones once."""
        resolved = self.decoder_ if isinstance(self.decoder_, Candidates) else None
        if resolved is None or callable(resolved.candidates):
            resolved = Candidates().resolve(self.output_kernel_, self.Y_fit_)
        return self._shaped(resolved._objects)

    @property
    def _training_samples(self) -> TrainingSamples | None:  # type: ignore[override]
        """The samples that are kept, if all of them have an output."""
        samples, pairwise = self.system_.samples, self.kernel_.domain == "gram"
        if len(samples.X) != len(samples.Y):
            return None
        y = self._shaped(samples.Y)
        return TrainingSamples.of(samples.X, y, samples.weights, samples.groups, pairwise=pairwise)

    def _shaped(self, objects: Data) -> Data:
        """Vectors of one number each as numbers, if the training outputs came like that."""
        one_column = isinstance(objects, np.ndarray) and objects.ndim == 2 and objects.shape[1] == 1
        return objects[:, 0] if self._flat and one_column else objects

    def _new_outputs(self, Y: Data, name: str) -> Data:
        """Checked outputs; among vectors of one number each, numbers will do."""
        kernel = self.output_kernel_
        Y = as_collection(Y, kernel.domain, f"{name} must be a collection of outputs")
        if hasattr(Y, "__len__") and len(Y) == 0:
            raise ValueError(f"{name} is empty; at least one output is needed.")
        outputs = validation.check_outputs(kernel, Y, reset=False)[0]
        if kernel.domain in ("vectors", "gram"):
            check_width(kernel, outputs, self.Y_fit_.shape[1])
        return self._representation().inputs(kernel, outputs)

    # -- why ----------------------------------------------------------------------------------------------------------
    def explain(
        self,
        X: Data,
        candidates: Data = None,
        *,
        top: int | None = None,
        coverage: float | None = None,
        support: bool = False,
        parts: bool = False,
    ) -> Explanation:
        """Say why: what each training input contributes to the score of each candidate.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).
        candidates : outputs
            What the output kernel takes; None: the predictions for X.
        top : int or None, default=None
            Keep so many contributions to each score, the largest ones. None: all of them, unless they are more than
            2·10⁷ numbers; then 50.
        coverage : None
            Outputs have sets instead of intervals (``predict_set``).
        support : bool, default=False
            With True, the explanation has the ``support`` of each query by the training samples.
        parts : bool, default=False
            With True, it has what each part of a query, an atom or a column for instance, adds to the scores.

        Returns
        -------
        explanation : Explanation
            Its predictions are the scores of ``score_candidates``, (n_queries, n_candidates).
        """
        function = self._score_function(self.predict(X) if candidates is None else candidates)
        explanation = self._explanation(function, X, top, coverage, parts=parts)
        return replace(explanation, support=self.support(X)) if support else explanation

    def _score_function(self, candidates: Data) -> Expansion | FeatureFunction:
        """The scores of candidates as a function of the inputs."""
        if self.output_kernel_.domain == "gram":
            raise ValueError(
                "Scores of candidates need their l(y, y), which a precomputed output kernel does not have. Use an "
                "output kernel object, such as Callable(lambda i, j: gram[i, j]) with numbers of outputs as y."
            )
        return self.function_.score_function(self._new_outputs(candidates, "candidates"))

    def _has_flat_answers(self) -> bool:
        return False

    def _misfits(self) -> np.ndarray:
        """How far, in the RKHS of the output kernel, each output is from what refits without its fold predict."""
        fits = self._fold_fits()

        def distances(learner: Any, inputs: Data, rows: np.ndarray) -> np.ndarray:
            outputs = learner._new_outputs(take(fits.samples.y, torch.from_numpy(rows)), "y")
            errors = learner.function_.squared_errors(learner._new_inputs(inputs), outputs)
            return np.sqrt(plain(errors.clamp(min=0.0)))

        return plain(fits.of_held_out(distances))

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
        gram = self.Y_fit_ if self.output_kernel_.domain == "gram" else None
        if gram is None:
            one, two = self._new_outputs(Y, "Y"), self._new_outputs(Y_pred, "Y_pred")
        else:
            one, two = (check_numbers(outputs, len(gram)) for outputs in (Y, Y_pred))
        if count(one) != count(two):
            raise ValueError(f"There must be one prediction for each output; got {count(two)} for {count(one)}.")
        return plain(squared_distances(self.output_kernel_, one, two)) if gram is None else gram_losses(gram, one, two)

    def score(self, X: Data, y: Data, sample_weight: Data = None) -> float:
        """The share of the outputs' variance in the RKHS of l that g explains: R² there.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).
        y : outputs
            Their true outputs. Inputs without one (None, or a row of NaN) are left out; NaN where fewer than two have
            one.
        sample_weight : array-like of shape (n_queries,), default=None
            Weights of the samples in the sums and in the mean.

        Returns
        -------
        score : float
            1 − Σ‖l(·, y_i) − g(x_i)‖² / Σ‖l(·, y_i) − mean‖²: 1 is perfect, 0 no better than the mean output. For a
            linear l it is scikit-learn's ``r2_score(..., multioutput="variance_weighted")`` of the undecoded vectors.
            Where l has no explicit features, the mean of more than 10,000 outputs is that of as many random ones, with
            which the score agrees to about four digits: its time grows in proportion to the rows.
        """
        validation.check_both("score", X, y)
        if self.output_kernel_.domain == "gram":
            raise ValueError(
                "score needs l(y, y') of new outputs, which a precomputed output kernel does not have. Use an output "
                "kernel object, such as Callable(lambda i, j: gram[i, j]) with numbers of outputs as y."
            )
        X, y = self._new_inputs(X), as_collection(y, self.output_kernel_.domain, "y must be a collection of outputs")
        present, labelled = labelled_outputs(self.output_kernel_.domain, y)
        new, weights = self._new_outputs(present, "y"), validation.check_weights(sample_weight, X)
        check_lengths(count(X), count(new) if labelled is None else count(y))
        if labelled is not None:
            X, weights = take(X, torch.from_numpy(labelled)), None if weights is None else weights[labelled]
        return self.function_.explained(X, new, weights) if validation.can_be_scored(count(new)) else math.nan

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
        if "gram" in (self.kernel_.domain, self.output_kernel_.domain):
            raise ValueError("joint_kernel needs kernels that can be evaluated; a precomputed one cannot.")
        output, root, how = self.output_kernel_, self.system_.operator_root, self.system_.model.representation
        kernel = how.adapted(self.kernel_, repair=False)
        one, two = (how.inputs(kernel, self._new_inputs(X)) for X in (X1, X2))
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
        return plain(kernel._gram(one, two) * inner.to(self.system_.model.like))
