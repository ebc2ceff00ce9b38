"""Structured outputs: regression into the RKHS of an output kernel, and back to objects by a decoder."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GroupKFold, KFold, check_cv
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from representer.approximation import input_output_pair
from representer.data import SparseRows, count, is_dask, is_single, plain, take
from representer.estimators.base import KernelLearner, fitting
from representer.estimators.validation import (
    DTYPES,
    check_alpha,
    check_counts,
    check_device,
    check_groups,
    check_inputs,
    check_options,
    check_outputs,
    check_weights,
    seed_of,
)
from representer.functions import Embedding, FeatureFunction
from representer.kernels import Kernel, as_kernel
from representer.kernels.columns import as_records
from representer.linalg.memory import as_bytes, row_blocks
from representer.notices import warn
from representer.operators import ConditionalCovariance, Covariance, Identity, Operator, PrincipalComponents
from representer.operators.adapted import Adapted, Representation, original, silent_repairs, takes_sparse
from representer.optimize import HistoryEntry
from representer.optimize.search import Choice, SearchSettings, keep_going
from representer.parameters import is_count, is_real
from representer.preimage import Candidates, Decoder, LabelSet, as_decoder, candidate_scores
from representer.preimage.base import check_width, prepared_like, squared_norms
from representer.problems.structured import (
    Pairs,
    StructuredModel,
    StructuredProblem,
    SummedSamples,
    Task,
    calibrated,
    choose_by_task,
    guard_memory,
    known_rows,
    learn_kernel,
    problem_of_sums,
    structured_problem,
    sum_samples,
)
from representer.samples import Block, InMemory, OnDask, Samples, rows
from representer.samples.held import chosen_of_both
from representer.samples.rows import sample_rows, sampling_keys
from representer.systems.structured import DiagonalRegression
from representer.systems.sums import NormalSums

# l(y, ŷ) of pairs is the diagonal of a Gram matrix of so many of them at once.
PAIRS = 64
OPERATORS = {
    "kpca": PrincipalComponents("auto"),
    "covariance": Covariance(),
    "conditional_covariance": ConditionalCovariance("auto"),
}
NO_GAPS = "partial_fit needs all outputs; some are None or NaN. Leave such samples out, or use fit."


@dataclass(frozen=True)
class StructuredFit:
    """What a fitted predictor knows beside its public attributes: its model as fitted, and how its data came."""

    model: StructuredModel
    flat: bool  # were outputs one number each?
    kind: np.dtype | None = None  # the type of outputs that are integers or truth values
    labelled: np.ndarray | None = None  # the inputs that have an output; None: all
    weights: np.ndarray | None = None  # of the inputs
    root: np.ndarray | None = None  # of a fit by sums, a root of the operator (see ``joint_kernel``)


def takes_batches(learner: Any) -> bool:
    """Is there a partial_fit? An AttributeError says why not."""
    if learner.approximation is None:
        raise AttributeError(
            "partial_fit needs approximation=Nystroem(m), or another one: an exact fit needs all samples at once."
        )
    return True


@dataclass(frozen=True)
class Batches:
    """What the next batch is added to: sums of NumPy arrays, and the keys and weights of the samples that are kept."""

    sums: NormalSums
    keys: np.ndarray
    weights: np.ndarray | None


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
                raise ValueError(
                    f"decoder={decoder!r} has no parameters; give an object of representer.preimage."
                )
            params["decoder"] = as_decoder(decoder)
        return super().set_params(**params)

    # -- fitting ------------------------------------------------------------------------------------------------------
    @fitting
    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
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
        self, X: Any, y: Any, sample_weight: Any, groups: Any, callback: Callable[[HistoryEntry], bool]
    ) -> StructuredProblem:
        """Fit to all samples, however many; the problem that was solved."""
        for name in ("n_samples_seen_", "_batches"):
            self.__dict__.pop(name, None)
        self._check()
        seed = seed_of(self.random_state)
        given, output = (
            as_kernel(getattr(self, name), argument=name).__sklearn_clone__().numbers()
            for name in ("kernel", "output_kernel")
        )
        if is_dask(X) or is_dask(y):
            on_dask, samples = self._read_dask(given, output, X, y, sample_weight, groups, seed)
            pairs, n = self._pairs(given, output, samples), on_dask.n
            source: Samples | None = on_dask
        else:
            samples = self._read(given, output, X, y, sample_weight, groups)
            pairs, n, source = self._pairs(given, output, samples), count(samples.inputs), None
            if self.approximation is not None and samples.labelled is None:
                source = InMemory(Block(pairs.X, pairs.Y, pairs.weights, pairs.groups))
                if n > rows.KNOWN_ROWS:
                    samples = samples.rows(known_rows(source, seed))
                    pairs = self._pairs(given, output, samples)
            pairs = replace(
                pairs, **{name: plain(getattr(pairs, name), copy=True) for name in ("inputs", "outputs")}
            )
        self.X_fit_, self.Y_fit_ = pairs.inputs, pairs.outputs
        pair = self.approximation
        if pair is not None:
            pair = input_output_pair(pair, n, vectors=output.domain == "vectors")
        how = self._representation(sparse=isinstance(pairs.inputs, SparseRows))
        model = StructuredModel(
            self._adapted(given, how, repair=True),
            output.resolve(pairs.Y),
            self._operator(),
            pair,
            bool(self.fit_intercept),
            how,
            seed,
            self.memory_limit,
        )
        self._fit = StructuredFit(model, samples.flat, samples.kind, samples.labelled, samples.weights)
        self._resolved_decoder(model.output_kernel)  # refuses a decoder before anything is computed
        self._refuse_one(pairs)
        guard_memory(model, pairs, chooses=self._chooses())
        settings = SearchSettings(
            "loo", self.max_iter, self.tol, self.n_restarts, seed, int(self.verbose), callback
        )
        model = self._learn_kernel(model, pairs, settings)
        problem, choice, system = self._choose(model, pairs, source)
        self._solve(problem, choice, system)
        return problem

    def _check(self) -> None:
        check_options(self, {"criterion": ("loo", "validation"), "dtype": tuple(DTYPES)})
        check_counts(self, {"max_iter": 1, "n_restarts": 1, "verbose": 0})
        check_alpha(self.alpha)
        check_device(self.device)
        if not (is_real(self.tol) and self.tol > 0):
            raise ValueError(f"tol must be a positive number; got {self.tol!r}.")
        if not _is_auto(self.n_components) and not is_count(self.n_components):
            raise ValueError(f"n_components must be a positive integer or 'auto'; got {self.n_components!r}.")
        if not isinstance(self.fit_intercept, bool | np.bool_):
            raise ValueError(f"fit_intercept must be True or False; got {self.fit_intercept!r}.")
        if self.task_loss is not None and self.criterion != "validation":
            raise ValueError(
                "task_loss= is what criterion='validation' minimises; set criterion='validation'."
            )
        if self.task_loss is not None and not callable(self.task_loss):
            raise ValueError(f"task_loss must be a function of (y_true, y_pred); got {self.task_loss!r}.")
        if self.criterion == "validation" and isinstance(self.cv, Iterator):
            raise ValueError(
                "cv is an iterator, which can be read once only. Pass the splitter itself, or list(…) of the splits."
            )
        if self.memory_limit is not None:
            as_bytes(self.memory_limit)
        if self.approximation is not None:
            input_output_pair(self.approximation)
        self._operator()

    def _operator(self) -> Operator | None:
        """The operator that the arguments mean, in memory of its own; ``"auto"`` in it is left to the criterion."""
        operator = self.operator
        if operator is None or isinstance(operator, Identity):
            return None
        if isinstance(operator, str) and operator in OPERATORS:
            return PrincipalComponents(self.n_components) if operator == "kpca" else OPERATORS[operator]
        if isinstance(operator, PrincipalComponents):
            own = operator.n_components if _is_auto(operator.n_components) else operator.checked()
            if not _is_auto(self.n_components) and self.n_components != own:
                raise ValueError(
                    f"n_components={self.n_components!r} contradicts operator={operator!r}; give it once."
                )
            return PrincipalComponents(own)
        if isinstance(operator, ConditionalCovariance):
            operator.check_hyperparameters()
        if isinstance(operator, Operator):
            return operator.__sklearn_clone__()
        raise ValueError(
            f"operator must be None, one of {', '.join(map(repr, OPERATORS))} or an object from representer.operators; "
            f"got {operator!r}."
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

    def _chooses(self) -> bool:
        """Is something left to the criterion?"""
        fixed = isinstance(check_alpha(self.alpha), float) and not self._fit.model.is_open
        return not fixed or bool(self._free_outputs())

    def _refuse_one(self, pairs: Pairs) -> None:
        """Refuse one sample, or one group, where the criterion leaves it out."""
        groups = count(pairs.Y) if pairs.groups is None else len(pairs.groups.unique())
        if groups < 2 and self._chooses():
            raise ValueError(
                f"Found n_{'samples' if pairs.groups is None else 'groups'}=1: the criterion leaves samples out, so "
                "that at least 2 are needed. Give numbers for alpha and the rest to fit one sample."
            )

    # -- samples ------------------------------------------------------------------------------------------------------
    def _read(
        self, given: Kernel, output: Kernel, X: Any, y: Any, sample_weight: Any, groups: Any
    ) -> GivenSamples:
        """Check samples in memory; those of weight zero are dropped, or where X is a Gram matrix have no output."""
        inputs = check_inputs(self, X, given.domain, reset=True, sparse=takes_sparse(given))
        N = count(inputs)
        if not hasattr(y, "__len__") and hasattr(y, "__array__"):
            y = np.asarray(y)
        if isinstance(y, Iterator):
            y = list(y)
        elif output.domain == "records" and not (y is None or isinstance(y, list)):
            y = as_records(y)
        elif y is not None and is_single(y):
            raise ValueError(f"y must hold one output for each sample; got {y!r:.80}.")
        there, labelled = labelled_outputs(output, y)
        outputs, flat = check_outputs(output, there, reset=True)
        n = len(outputs) if labelled is None else len(y)
        if n != N:
            raise ValueError(f"X and y have inconsistent numbers of samples: {N} and {n}.")
        if labelled is not None and not isinstance(self._operator(), ConditionalCovariance):
            raise ValueError(
                f"{n - len(labelled)} inputs have no output. They take part in operator='conditional_covariance' only; "
                f"leave them out for operator={self.operator!r}."
            )
        kind = counted(there) if output.domain == "vectors" else None
        weights, groups = check_weights(sample_weight, X), check_groups(groups, N)
        samples = GivenSamples(inputs, outputs, flat, kind, labelled, weights, groups)
        return samples.without_weightless(given, output)

    def _read_dask(
        self, given: Kernel, output: Kernel, X: Any, y: Any, sample_weight: Any, groups: Any, seed: int
    ) -> tuple[OnDask, GivenSamples]:
        """Samples in Dask collections, and those of them that the learner keeps."""
        if output.domain != "vectors":
            raise ValueError(
                f"On Dask, outputs must be vectors, but {output!r} takes {output.domain}. Give explicit features of "
                "them with output_kernel='linear', or call X.compute() and y.compute() if they fit."
            )
        if self.approximation is None:
            raise ValueError(
                "Samples in Dask collections need approximation=Nystroem(m), or another one that StructuredPredictor "
                "takes: an exact fit needs all of them in one place. Call X.compute() if they fit."
            )
        if given.domain != "vectors":
            raise ValueError(f"Dask collections hold vectors, but {given!r} takes {given.domain}.")
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None.")
        source = OnDask(X, y, sample_weight, dtype=DTYPES[self.dtype], groups=groups)
        index = known_rows(source, seed)
        flat = (y.ndim if hasattr(y, "ndim") else np.ndim(y)) == 1
        Y = source.Y[index].compute()
        inputs = check_inputs(self, source.X[index].compute(), given.domain, reset=True)
        outputs, _ = check_outputs(output, Y, reset=True)
        weights = None if source.weights is None else source.weights[index].compute()
        grouped = None if source.groups is None else source.groups[index]
        self._keep_columns(X)
        return source, GivenSamples(inputs, outputs, flat, counted(Y), None, weights, grouped)

    def _pairs(self, given: Kernel, output: Kernel, samples: GivenSamples) -> Pairs:
        """Checked samples as tensors and prepared objects."""
        how = self._representation(sparse=isinstance(samples.inputs, SparseRows))
        labelled, groups = (
            None if array is None else torch.from_numpy(array) for array in (samples.labelled, samples.groups)
        )
        return Pairs(
            how.inputs(given, samples.inputs),
            replace(how, sparse=False).inputs(output, samples.outputs),
            samples.inputs,
            samples.outputs,
            labelled,
            None if samples.weights is None else how.tensor(samples.weights),
            groups if groups is None or labelled is None else groups[labelled],
        )

    def _adapted(self, kernel: Kernel, how: Representation, *, repair: bool) -> Kernel:
        """The kernel in the learner's precision; with ``repair``, an indefinite one of objects is made definite."""
        if kernel.domain == "vectors" and not how.sparse:
            return kernel
        return Adapted(kernel, how.dtype, how.device, repair=repair)

    # -- the choice ---------------------------------------------------------------------------------------------------
    def _learn_kernel(
        self, model: StructuredModel, pairs: Pairs, settings: SearchSettings
    ) -> StructuredModel:
        """The model with numbers in its input kernel: what is free is learned by leave-one-out."""
        free, kernel = model.kernel.free(), model.kernel.resolve(pairs.X)
        self.history_, self.n_iter_ = [], 1
        if free:
            with silent_repairs():
                learned, ended = learn_kernel(
                    replace(model, kernel=kernel), pairs, check_alpha(self.alpha), free, settings
                )
            if ended is not None:
                warn(f"The search over hyperparameters: {ended}.", ConvergenceWarning)
            self.history_, self.n_iter_ = learned.history, learned.n_iter
            kernel = self._adapted(learned.model, model.representation, repair=True)
        return replace(model, kernel=kernel)

    def _choose(
        self, model: StructuredModel, pairs: Pairs, source: Samples | None
    ) -> tuple[StructuredProblem, Choice, DiagonalRegression | None]:
        """The problem and the numbers that are not given, with their system if the choice has made it."""
        alpha = check_alpha(self.alpha)
        if self.criterion == "validation" and self._chooses():
            task = Task(
                as_decoder(self.decoder), self._task_loss, self._splits(pairs, model.seed), int(self.verbose)
            )
            problem, choice, ended = choose_by_task(model, pairs, source, alpha, self._free_outputs(), task)
            if ended is not None:
                warn(ended, ConvergenceWarning)
            return problem, choice, None
        problem = structured_problem(model, pairs, source)
        if model.output_kernel.domain != "vectors" and source is None:
            problem.outputs.made  # noqa: B018  repairs, or raises, if the outputs' Gram matrix is indefinite
        if not self._chooses() and not (self.history_ and self.criterion == "loo"):
            assert isinstance(alpha, float)
            return problem, Choice(model.operator, alpha), None
        if model.approximation is None and count(pairs.Y) > rows.STRUCTURED_ROWS:
            with silent_repairs():
                part = structured_problem(model, pairs.sample(model, rows.STRUCTURED_ROWS))
                return problem, part.choose(alpha)[0], None
        return problem, *problem.choose(alpha)

    def _splits(self, pairs: Pairs, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
        n, cv = count(pairs.Y), self.cv
        groups = None if pairs.groups is None else pairs.groups.numpy()
        if is_count(cv) and cv > 1:
            if groups is None:
                cv = KFold(min(int(cv), n), shuffle=True, random_state=seed)
            else:
                cv = GroupKFold(min(int(cv), len(np.unique(groups))), shuffle=True, random_state=seed)
        return list(check_cv(cv).split(np.zeros((n, 1)), groups=groups))

    def _task_loss(self, kernel: Kernel, train: np.ndarray, test: np.ndarray, predicted: Any) -> Any:
        """The loss of predictions for some of the training samples by a fit to others."""
        if kernel.domain == "gram":
            true, predicted = test, train[predicted]
        else:
            true, predicted = self._shaped(take(self.Y_fit_, torch.from_numpy(test))), self._shaped(predicted)
        return (
            self._losses(kernel, true, predicted)
            if self.task_loss is None
            else self.task_loss(true, predicted)
        )

    def _resolved_decoder(self, output: Kernel) -> Decoder:
        """The decoder for an output kernel with numbers and the training outputs."""
        decoder, kind = as_decoder(self.decoder), self._fit.kind
        chooses = kind is not None and isinstance(decoder, Candidates | LabelSet)
        return decoder.resolve(
            output, self.Y_fit_.astype(kind) if chooses else self.Y_fit_
        )  # answers are what was given

    def _solve(self, problem: StructuredProblem, choice: Choice, system: DiagonalRegression | None) -> None:
        """Keep the fitted function at chosen numbers, and its decoder."""
        model = problem.model
        decoder = self._resolved_decoder(model.output_kernel)
        if system is None and not (choice.model is None and not problem.inputs.by_factor):
            system = problem.regression.under(choice.model)
        operator = choice.model
        if isinstance(operator, PrincipalComponents):
            assert system is not None and system.vectors is not None
            operator = PrincipalComponents(system.vectors.shape[1])
        function = problem.solve(choice, system)
        self.kernel_, self.output_kernel_ = original(model.kernel), model.output_kernel
        self.operator_, self.alpha_, self.criterion_value_ = operator, choice.alpha, choice.value
        self.function_ = function
        self.decoder_ = calibrated(decoder, problem, function, choice, system, self.Y_fit_)
        root = problem.operator_root(operator, system) if problem.summed is not None else None
        self._fit = replace(self._fit, model=model, root=None if root is None else plain(root, copy=True))
        self.__dict__.pop("_cached_root", None)

    # -- batches ------------------------------------------------------------------------------------------------------
    @available_if(takes_batches)
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
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
        if is_dask(X) or is_dask(y):
            raise ValueError("partial_fit takes batches in memory; fit takes a Dask collection as a whole.")
        if hasattr(self, "n_samples_seen_"):
            self._check()
            self._add_batch(X, y, sample_weight)
            return self
        problem = self._fit_whole(X, y, sample_weight, None, keep_going)
        if problem.summed is None:
            raise ValueError(NO_GAPS)
        sums, seed = problem.summed.sums, problem.model.seed
        keys = sampling_keys(sample_rows(sums.n, rows.KNOWN_ROWS, seed), seed)
        self._batches = Batches(sums.map(plain), keys, self._fit.weights)
        self.n_samples_seen_ = sums.n
        return self

    def _add_batch(self, X: Any, y: Any, sample_weight: Any) -> None:
        """Add the sums of another batch, choose which samples to keep, and solve again."""
        before, model, function = self._batches, self._fit.model, self.function_
        kernel, output = self.kernel_, self.output_kernel_
        inputs = self._new_inputs(X, kernel)
        if labelled_outputs(output, y)[1] is not None:
            raise ValueError(NO_GAPS)
        outputs, flat = check_outputs(output, y, reset=False)
        if len(inputs) != len(outputs) or flat != self._fit.flat:
            raise ValueError(
                f"X and y have {len(inputs)} and {len(outputs)} samples, or y has other dimensions than before."
            )
        self._new_outputs(y, "y")
        batch = GivenSamples(inputs, outputs, flat, None, None, check_weights(sample_weight, X))
        batch = batch.without_weightless(kernel, output)
        pairs = self._pairs(kernel, output, batch)
        assert isinstance(function.coordinates, FeatureFunction)
        features, targets = (
            function.coordinates.features.map,
            None if function.features is None else function.features.map,
        )
        sums = before.sums.map(torch.from_numpy) + sum_samples(
            model, InMemory(Block(pairs.X, pairs.Y, pairs.weights)), features, targets
        )
        keys = np.concatenate([before.keys, sampling_keys(np.arange(before.sums.n, sums.n), model.seed)])
        kept = np.sort(np.argsort(keys)[: rows.KNOWN_ROWS])
        weights = None
        if before.weights is not None or batch.weights is not None:
            parts = ((before.weights, self.X_fit_), (batch.weights, batch.inputs))
            weights = np.concatenate([np.ones(count(X)) if w is None else w for w, X in parts])[kept]
        self.X_fit_ = chosen_of_both(self.X_fit_, batch.inputs, kept)
        self.Y_fit_ = chosen_of_both(self.Y_fit_, batch.outputs, kept)
        held = np.sort(np.argsort(keys[kept])[: rows.HELD_ROWS])
        known = self._pairs(kernel, output, GivenSamples(self.X_fit_, self.Y_fit_, flat, None, None, weights))
        block = Block(known.X, known.Y, known.weights).rows(held)
        problem = problem_of_sums(model, SummedSamples(sums, features, targets, block, held))
        self._batches, self._fit = (
            Batches(sums.map(plain), keys[kept], weights),
            replace(self._fit, weights=weights),
        )
        self.n_samples_seen_ = sums.n
        if self.criterion == "loo" and self._chooses():
            self._solve(problem, *problem.choose(check_alpha(self.alpha)))
        else:
            self._solve(problem, Choice(self.operator_, self.alpha_, self.criterion_value_), None)

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
    def landmarks_(self) -> Any:
        """The landmarks among the inputs; None where there are none."""
        inner = self.function_.coordinates
        return inner.features.landmarks if isinstance(inner, FeatureFunction) else None

    @property
    def output_landmarks_(self) -> Any:
        """The landmarks among the outputs; None where there are none."""
        return None if self.function_.features is None else self.function_.features.landmarks

    # -- answers ------------------------------------------------------------------------------------------------------
    def decision_embedding(self, X: Any) -> Embedding:
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

    def predict(self, X: Any) -> Any:
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

    def _predict_lazily(self, X: Any) -> Any:
        """Predictions chunk by chunk: vectors, or one object each."""
        kind, width = np.dtype(object), None
        if isinstance(self.Y_fit_, np.ndarray) and self.output_kernel_.domain in ("vectors", "labels"):
            nameless = copy.copy(self)
            nameless.__dict__.pop("feature_names_in_", None)
            example = np.asarray(nameless.predict(np.zeros((1, self.n_features_in_))))
            kind, width = example.dtype, None if example.ndim == 1 else example.shape[1]
        return self._lazily("_predict_objects" if kind.hasobject else "predict", X, width, dtype=kind)

    def _predict_objects(self, X: Any) -> np.ndarray:
        """Predictions as an array of objects."""
        predictions = self.predict(X)
        objects = np.empty(len(predictions), dtype=object)
        objects[:] = predictions
        return objects

    def predict_topk(self, X: Any, k: int) -> tuple[Any, np.ndarray]:
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

    def score_candidates(self, X: Any, candidates: Any, *, diagonal: Any = None) -> np.ndarray:
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

    def _shaped(self, objects: Any) -> Any:
        """Vectors of one number each as numbers, if the training outputs came like that."""
        one_column = isinstance(objects, np.ndarray) and objects.ndim == 2 and objects.shape[1] == 1
        return objects[:, 0] if self._fit.flat and one_column else objects

    def _new_outputs(self, Y: Any, name: str, kernel: Kernel | None = None) -> Any:
        """Checked outputs; among vectors of one number each, numbers will do."""
        kernel = self.output_kernel_ if kernel is None else kernel
        if isinstance(Y, Iterator):
            Y = list(Y)
        if kernel.domain == "records":
            Y = as_records(Y)
        if Y is not None and is_single(Y):
            raise ValueError(
                f"{name} must be a collection of outputs; got {Y!r:.80}. Put one output in a list."
            )
        if hasattr(Y, "__len__") and len(Y) == 0:
            raise ValueError(f"{name} is empty; at least one output is needed.")
        outputs = check_outputs(kernel, Y, reset=False)[0]
        if kernel.domain in ("vectors", "gram"):
            check_width(kernel, outputs, self.Y_fit_.shape[1])
        return self._representation().inputs(kernel, outputs)

    # -- how well -----------------------------------------------------------------------------------------------------
    def loss(self, Y: Any, Y_pred: Any) -> np.ndarray:
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

    def _losses(self, kernel: Kernel, Y: Any, Y_pred: Any) -> np.ndarray:
        if kernel.domain == "gram":
            gram = self.Y_fit_
            one, two = (_numbers(outputs, len(gram)) for outputs in (Y, Y_pred))
            _same_length(one, two)
            return np.maximum(gram[one, one] + gram[two, two] - 2.0 * gram[one, two], 0.0)
        one, two = self._new_outputs(Y, "Y", kernel), self._new_outputs(Y_pred, "Y_pred", kernel)
        _same_length(one, two)
        cross = []
        for start in range(0, count(one), PAIRS):
            some = torch.arange(start, min(start + PAIRS, count(one)))
            cross.append(kernel._gram(take(one, some), take(two, some)).diagonal())
        squares = kernel._diag(one) + kernel._diag(two) - 2.0 * torch.cat(cross)
        return plain(squares.clamp(min=0.0))

    def score(self, X: Any, y: Any) -> float:
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
        check_is_fitted(self)
        X = self._new_inputs(X, self.kernel_)
        new = self._new_outputs(y, "y")
        if count(new) != count(X):
            raise ValueError(f"X and y have inconsistent numbers of samples: {count(X)} and {count(new)}.")
        if self.output_kernel_.domain == "gram":
            raise ValueError(
                "score needs l(y, y') of new outputs, which a precomputed output kernel does not have. Use an output "
                "kernel object, such as Callable(lambda i, j: gram[i, j]) with numbers of outputs as y."
            )
        embedding = self.function_.embedding(X)
        new = prepared_like(embedding, new)
        norms, kernel = squared_norms(embedding, new), self.output_kernel_
        error, total, q = embedding.squared_norms().sum() + norms.sum(), norms.sum(), count(new)
        for block in row_blocks(q, 2 * (q + embedding.weights.shape[1]) * embedding.weights.element_size()):
            cross = kernel._gram(new[block], embedding.anchors).to(embedding.weights)
            error -= 2.0 * (cross * embedding.weights[block]).sum()
            total -= kernel._gram(new[block], new).to(embedding.weights).sum() / q
        if float(total) <= q * torch.finfo(total.dtype).eps * float(norms.sum()):
            return float(float(error) <= q * torch.finfo(total.dtype).eps * float(norms.sum()))
        return 1.0 - float(error / total)

    # -- pairs --------------------------------------------------------------------------------------------------------
    def joint_kernel(self, X1: Any, Y1: Any, X2: Any, Y2: Any) -> np.ndarray:
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
        how = self._fit.model.representation
        kernel = self._adapted(self.kernel_, how, repair=False)
        one, two = (how.inputs(kernel, self._new_inputs(X, self.kernel_)) for X in (X1, X2))
        left, right = self._new_outputs(Y1, "Y1"), self._new_outputs(Y2, "Y2")
        for X, Y in ((one, left), (two, right)):
            if count(X) != count(Y):
                raise ValueError(f"Pairs have as many inputs as outputs; got {count(X)} and {count(Y)}.")
        output, root = self.output_kernel_, self._operator_root()
        if root is None:
            inner = output._gram(left, right)
        else:
            anchors = self.function_.prepared_anchors
            projected = [output._gram(Y, anchors).to(root) @ root for Y in (left, right)]
            inner = projected[0] @ projected[1].mT
        return plain(kernel._gram(one, two) * inner.to(self._fit.model.like))

    def _operator_root(self) -> Tensor | None:
        """A root of the fitted operator; that of an exact fit is made at first use and kept."""
        record = self._fit
        if self.operator_ is None:
            return None
        if record.root is not None:
            return record.model.outputs.tensor(record.root)
        if "_cached_root" not in self.__dict__:
            samples = GivenSamples(
                self.X_fit_, self.Y_fit_, record.flat, None, record.labelled, record.weights
            )
            with silent_repairs():  # the fit has said it
                problem = structured_problem(
                    record.model, self._pairs(self.kernel_, self.output_kernel_, samples)
                )
                self._cached_root = problem.operator_root(self.operator_)
        return self._cached_root


# -- samples ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class GivenSamples:
    """Checked samples in memory: outputs of those inputs that have one, weights and groups of all inputs."""

    inputs: Any
    outputs: Any
    flat: bool  # were outputs one number each?
    kind: np.dtype | None  # of outputs that are integers or truth values
    labelled: np.ndarray | None = None
    weights: np.ndarray | None = None
    groups: np.ndarray | None = None

    def rows(self, index: np.ndarray) -> GivenSamples:
        """Some of the samples, all of which have an output."""
        chosen = torch.from_numpy(index)
        inputs, outputs = take(self.inputs, chosen), take(self.outputs, chosen)
        weights, groups = (None if a is None else a[index] for a in (self.weights, self.groups))
        return replace(self, inputs=inputs, outputs=outputs, weights=weights, groups=groups)

    def without_weightless(self, given: Kernel, output: Kernel) -> GivenSamples:
        """The samples of positive weight; where inputs are a Gram matrix, the others stay as inputs without output."""
        if self.weights is None or (self.weights > 0).all():
            return self
        there = np.arange(len(self.weights)) if self.labelled is None else self.labelled
        counts = self.weights[there] > 0
        index = np.flatnonzero(counts)
        outputs = take(self.outputs, torch.from_numpy(index))
        outputs = outputs[:, index] if output.domain == "gram" else outputs
        if given.domain == "gram":
            return replace(self, outputs=outputs, labelled=there[counts])
        kept = np.flatnonzero(self.weights > 0)
        labelled = None if self.labelled is None else np.searchsorted(kept, there[counts])
        return replace(
            self,
            inputs=take(self.inputs, torch.from_numpy(kept)),
            outputs=outputs,
            labelled=None if labelled is None or len(labelled) == len(kept) else labelled,
            weights=self.weights[kept],
            groups=None if self.groups is None else self.groups[kept],
        )


def labelled_outputs(kernel: Kernel, Y: Any) -> tuple[Any, np.ndarray | None]:
    """The outputs without gaps, and the numbers of the samples that have one; None if all have.

    A gap is None, or among numbers a row of NaN (of a Gram matrix, with its column).
    """
    if Y is None or is_single(Y):
        return Y, None
    items = plain(Y)
    items = items.to_numpy() if hasattr(items, "to_numpy") else items
    if hasattr(items, "tocsr") or not len(items) or getattr(items, "size", 1) == 0:
        return Y, None
    if isinstance(items, np.ndarray) and items.dtype.kind in "fiub":
        gap = np.asarray(np.isnan(items.reshape(len(items), -1)).all(1), dtype=bool)
    else:
        items = items if isinstance(items, np.ndarray) else list(items)
        gap = np.array(
            [item is None or (isinstance(item, float) and item != item) for item in items], dtype=bool
        )
    if not gap.any():
        return Y, None
    if gap.all():
        raise ValueError(f"None of the {len(gap)} samples has an output: nothing can be learned.")
    labelled = np.flatnonzero(~gap)
    there = items[labelled] if isinstance(items, np.ndarray) else [items[i] for i in labelled]
    if kernel.domain == "gram" and isinstance(there, np.ndarray):
        there = there[:, labelled]
    elif kernel.domain == "vectors" and not (isinstance(there, np.ndarray) and there.dtype != object):
        there = [plain(item) for item in there]
    return there, labelled


def counted(Y: Any) -> np.dtype | None:
    """The type of outputs that are integers or truth values; None for others."""
    dtype = np.asarray(plain(Y)).dtype
    return dtype if dtype.kind in "iub" else None


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def _same_length(one: Any, two: Any) -> None:
    if count(one) != count(two):
        raise ValueError(f"There must be one prediction for each output; got {count(two)} for {count(one)}.")


def _numbers(outputs: Any, n: int) -> np.ndarray:
    """Numbers of training outputs."""
    numbers = np.asarray(plain(outputs))
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or not ((numbers >= 0) & (numbers < n)).all():
        raise ValueError(
            f"With a precomputed output kernel, outputs are numbers from 0 to {n - 1}; got {outputs!r:.80}."
        )
    return numbers
