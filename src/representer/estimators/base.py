"""The base class of all learners: arguments, inputs, fits that leave no trace when they fail, answers on Dask."""

from __future__ import annotations

import copy
import functools
import inspect
import os
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from representer.approximation import for_part
from representer.estimators.validation import (
    ARGUMENTS,
    DTYPES,
    Check,
    check_arguments,
    check_both,
    check_inputs,
    check_weights,
    columns_of_fit,
    needs_approximation,
    needs_vectors,
    score_of_known,
    score_of_labels,
    seed_of,
    targets_beside_dask,
    warn_unconverged,
)
from representer.functions import Function, function_network
from representer.inspection import (
    Explanation,
    FoldFits,
    Report,
    check_coverage,
    class_sets,
    columns_to_ask,
    explain_with_neighbours,
    flat,
    lost_digits,
    make_report,
    part_effects,
    sensitivities,
    total_effects,
)
from representer.kernels import NAMES, FeatureKind, Kernel, Stack, as_kernel, is_several, kernels_of, on_device
from representer.linalg import FEW_ROWS, RoundingNotes, noted_rounding, peak_bytes, row_blocks, threads_for
from representer.notices import NumericalWarning, noted_warnings, warn
from representer.operators import (
    OperatorKernel,
    Representation,
    kernel_domain,
    left_out_together,
    takes_gaps,
    takes_sparse,
)
from representer.optimize import Deadline, HistoryEntry, SearchSettings
from representer.persistence import FitRecord, lightened, model_card, read_model, write_model
from representer.samples import (
    Data,
    HeldSamples,
    InMemory,
    OnDask,
    SparseRows,
    TrainingSamples,
    check_groups,
    count,
    is_dask,
    map_rows,
    n_passed,
    plain,
    refuse_frames,
    refuse_unknown_sizes,
    refusing_huge_integers,
)
from representer.systems import StackedSystem, Support
from representer.values import Value, unchanged_by_errors

# What users pass as a kernel: a value (one kernel, or several), a short name, or a function of two samples.
KernelLike = Value | str | Callable[..., object]
RandomState = int | np.integer | np.random.RandomState | None

# Samples that have less support than this share of the training samples, each left out, are unlike them.
OUTLYING_SHARE = 0.05


def fitting(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a fit, which works on a copy of the learner and replaces it at its end, in one assignment.

    A fit that fails leaves the learner as it was, and whoever asks it meanwhile, in another thread, gets the answers of
    the model before. Callbacks see the fit begin and end, and the copy.
    """

    signature = inspect.signature(fit)

    @functools.wraps(fit)
    def announced(learner: Any, *args: Any, **kwargs: Any) -> Any:
        context = learner._init_callback_context(max_subtasks=None)
        passed = dict(signature.bind(learner, *args, **kwargs).arguments)
        X, y = passed.get("X"), passed.get("y")
        others = {name: value for name, value in passed.items() if name not in ("self", "X", "y")}
        context.call_on_fit_task_begin(estimator=learner, X=X, y=y, metadata=others)
        began, ticks, memory = datetime.now(UTC), time.perf_counter(), peak_bytes()
        with threads_for(n_passed(X)), noted_warnings() as warned, noted_rounding() as notes:
            result = fit(learner, *args, **kwargs)
            learner._report_rounding(X, notes)
        record = FitRecord.of(X, y, began, time.perf_counter() - ticks)
        grown = None if memory is None else (peak_bytes() or 0) - memory
        learner._keep_record(replace(record, warnings=tuple(warned), memory=grown), more=fit.__name__ == "partial_fit")
        context.call_on_fit_task_end(estimator=learner)
        return result

    managed = with_callbacks(announced)

    @functools.wraps(fit)
    def all_at_once(self: Any, *args: Any, **kwargs: Any) -> Any:
        draft = object.__new__(type(self))
        vars(draft).update({name: value for name, value in vars(self).items() if not name.startswith("_cached")})
        vars(draft).pop("_samples_support", None)
        deadline = draft._deadline = Deadline(getattr(draft, "max_time", None))
        with refusing_huge_integers([*args, *kwargs.values()]):
            managed(draft, *args, **kwargs)
        del draft._deadline
        self.__dict__ = vars(draft)
        if deadline.was_missed:
            warn_unconverged(
                f"max_time={deadline.max_time!r} ended the search: the best point so far is kept. Give it more time, "
                "or less to search."
            )
        return self

    return all_at_once


def answering(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a question to a fitted learner: one model answers, also where another thread fits it meanwhile."""

    @functools.wraps(method)
    def of_one_model(learner: object, *args: Any, **kwargs: Any) -> Any:
        check_is_fitted(learner)
        model = object.__new__(type(learner))
        model.__dict__ = learner.__dict__  # the same one, which a fit replaces and does not change
        passed = [*args, *kwargs.values()]
        if method.__name__.startswith("score"):
            refuse_unknown_sizes(passed)
        with refusing_huge_integers(passed), threads_for(_few_rows(model, passed)):
            return method(model, *args, **kwargs)

    return of_one_model


def _few_rows(model: Any, passed: list[Any]) -> int | None:
    """The number of rows of a question, or of the fit if that is larger; None where they are many, or not known."""
    record = model._record
    sizes = [None if record is None else record.n_samples, *(n_passed(X) for X in passed[:1])]
    known = [n for n in sizes if n is not None and n <= FEW_ROWS]
    return max(known) if len(known) == len(sizes) else None


# Methods whose names begin so change a learner, or are for one that need not be fitted; the others are questions.
NO_QUESTIONS = ("_", "fit", "partial_fit", "set_", "get_", "named_", "suggest_")


class KernelLearner(CallbackSupportMixin, BaseEstimator):
    """A learner with a ``kernel``: pairwise when that is precomputed, with nested names even through a short name.

    A subclass states its arguments, checks what its users pass, hands samples and a model to a problem, and keeps the
    ``function_`` that solves it. Attributes whose names begin with ``_cached`` only save time: they are not stored.
    """

    kernel: Any
    dtype: str = "float64"
    device: str | None = None
    constraints: ClassVar[dict[str, Check]] = {}  # what arguments may be, beside those that all learners share
    kernel_arguments: tuple[str, ...] = ("kernel",)  # the arguments that may be a short name of a kernel
    list_arguments: tuple[str, ...] = ()  # the arguments that may be lists of values with parameters of their own
    training_data: tuple[str, ...] = ()  # the attributes that no answer to new samples needs
    needs_targets: ClassVar[bool] = False  # of a learner that is neither a regressor nor a classifier of scikit-learn
    random_state: RandomState = None
    max_iter: int
    tol: float
    approximation: Any
    n_restarts: int = 1
    verbose: int
    _training_samples: TrainingSamples | None = None  # what fits without some of the samples are made from
    _record: FitRecord | None = None  # what is known of the fit
    _deadline: Deadline = Deadline()  # of a fit under way; elsewhere there is none
    function_: Any
    kernel_: Any
    classes_: np.ndarray  # of classifiers
    _samples_support: Support
    _column_means: np.ndarray | None = None  # of a fit to numbers: they stand in the gaps of new ones
    _flat: bool = False  # Did targets come as a vector?
    _unit: float = 1.0  # what targets are divided by, so that their squares are in range
    _column_names: list[Any]  # of a fit to records, also where they are no texts
    _group_numbers: dict[Any, int] | None  # of the labels in the batches of partial_fit

    # -- what scikit-learn asks ---------------------------------------------------------------------------------------
    def __init_subclass__(cls, **options: Any) -> None:
        """The questions to the library's own learners are answered by one model."""
        super().__init_subclass__(**options)
        own = vars(cls) if cls.__module__.startswith(f"{__package__}.") else {}
        for name, method in list(own.items()):
            if isinstance(method, FunctionType) and not name.startswith(NO_QUESTIONS):
                setattr(cls, name, answering(method))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = kernel_domain(self.kernel) == "gram"
        tags.input_tags.sparse = takes_sparse(self.kernel)
        is_value = isinstance(self.kernel, Kernel | OperatorKernel | Stack)
        tags.input_tags.allow_nan = takes_gaps(self.kernel) if is_value else self.kernel == "auto"
        tags.target_tags.required = tags.target_tags.required or self.needs_targets
        return tags

    def named_kernel(self, name: str) -> Kernel:
        """The kernel that a short name means to this learner."""
        return as_kernel(name)

    @classmethod
    @functools.cache
    def _get_param_names(cls) -> list[str]:
        """The names of the arguments: scikit-learn reads the signature, which is slow, at every question."""
        names: list[str] = super()._get_param_names()
        return names

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Get parameters, with ``deep`` also those of a kernel that is given by its name."""
        params = super().get_params(deep)
        for argument in self.kernel_arguments if deep else ():
            kernel = getattr(self, argument)
            if isinstance(kernel, str) and kernel in NAMES:
                nested = self.named_kernel(kernel).get_params()
                params |= {f"{argument}__{name}": value for name, value in nested.items()}
        for argument, i, value in self._listed() if deep else ():
            params |= {f"{argument}__{i}__{name}": own for name, own in value.get_params().items()}
        return params

    def _listed(self) -> list[tuple[str, int, Value]]:
        """The values in lists of arguments: the argument, the place and the value."""
        lists = [(name, getattr(self, name)) for name in self.list_arguments]
        return [
            (name, i, value)
            for name, values in lists
            if isinstance(values, list | tuple)
            for i, value in enumerate(values)
            if isinstance(value, Value)
        ]

    def set_params(self, **params: Any) -> Self:
        """Set parameters, ``kernel__lengthscale`` also where the kernel is given by its name. All of them, or none."""
        for argument in self.kernel_arguments:
            nested_names = [name for name in params if name.startswith(f"{argument}__")]
            if nested_names:
                kernel = params.get(argument, getattr(self, argument))
                params[argument] = self._named_by(nested_names[0], kernel) if isinstance(kernel, str) else kernel
        nested = {
            name: value
            for name, value in params.items()
            if any(name.startswith(f"{argument}__") for argument in self.list_arguments)
        }
        with unchanged_by_errors(self, *params.values()):
            super().set_params(**{name: value for name, value in params.items() if name not in nested})
            for name, value in nested.items():
                self._set_listed(name, value)
        return self

    def _named_by(self, parameter: str, name: str) -> Kernel:
        """The kernel that a short name means; an error says which parameter of it was to be set."""
        try:
            return self.named_kernel(name)
        except ValueError as error:
            raise ValueError(f"Invalid parameter {parameter!r} for {type(self).__name__}: {error}") from error

    def _set_listed(self, name: str, value: object) -> None:
        """Set the parameter of a value in a list, such as ``layers__0__alpha``."""
        argument, place, parameter = [*name.split("__", 2), "", ""][:3]
        listed = {(name, str(i)): value for name, i, value in self._listed()}
        if (argument, place) not in listed or not parameter:
            raise ValueError(
                f"Invalid parameter {name!r} for {type(self).__name__}: it is set by {argument}__0__alpha and the "
                f"like, where the entry is a Layer(kernel, size); {argument}={getattr(self, argument)!r}."
            )
        listed[argument, place].set_params(**{parameter: value})

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what is only kept to save time."""
        state = super().__getstate__()
        return {name: value for name, value in state.items() if not name.startswith("_cached")}

    def _get_fitted_attr_html(self, doc_link: str = "") -> Any:
        """The attributes that a fit has kept: a picture does not ask for those that are computed, some by refits."""
        bare = type(type(self).__name__, (BaseEstimator,), {"__doc__": type(self).__doc__})()
        vars(bare).update({name: value for name, value in vars(self).items() if name.endswith("_")})
        return bare._get_fitted_attr_html(doc_link)

    def _html_repr(self) -> str:
        """What a notebook shows: scikit-learn's picture, and of a fitted learner the light part of its report."""
        picture = str(BaseEstimator._html_repr(self))
        if self._record is None:
            return picture
        page = make_report(self, light=True).inline()
        return f"{picture}<details><summary>details</summary>{page}</details>"

    # -- files --------------------------------------------------------------------------------------------------------
    def save(self, path: str | os.PathLike[str], *, compress: bool | int = False) -> Path:
        """Write the fitted learner to a file, which :func:`representer.load` reads.

        The file holds numbers, texts and names, and no code. It is written at once: whoever reads meanwhile, or after a
        crash, finds the file before or the file after. Callbacks are not part of a model and stay behind.

        Parameters
        ----------
        path : str or path
            The file, ``"model.representer"`` for instance; in a folder it is given that name. Folders on the way to it
            that do not exist are made.
        compress : bool or int, default=False
            Are its bytes compressed (deflate), and at which level from 1 to 9?

        Returns
        -------
        path : Path
            The file.
        """
        check_is_fitted(self)
        return write_model(self, path, learners=library_learners(), record=self._record, compress=compress)

    def card(self, X: Data = None, y: Data = None) -> str:
        """What someone should know who is given the model, in Markdown.

        Parameters
        ----------
        X, y : data, optional
            Samples that the fit has not seen: the score, the coverage of 90 % intervals and the share of inputs unlike
            the training data are measured on them.

        Returns
        -------
        card : str
            The model and its arguments, its training data, scores, limits and versions.
        """
        check_is_fitted(self)
        if self.__sklearn_tags__().target_tags.required:
            check_both("card", X, y)
        return model_card(self, X, y)

    def compressed(self, tolerance: float = 1e-3) -> Any:
        """A light copy of the model: the projection of its function onto as few of its anchors as a tolerance allows.

        It keeps no training data and no system: it predicts, and deviations, intervals and left-out samples are asked
        of the model itself.

        Parameters
        ----------
        tolerance : float, default=1e-3
            The largest error at the anchors, relative to the largest value of the function there.

        Returns
        -------
        learner : of the same class
            Its ``compression_`` says how many anchors are left, and the error that was measured.
        """
        check_is_fitted(self)
        return lightened(self, tolerance, self.training_data)

    def to_torch(self) -> torch.nn.Module:
        """The fitted function of vectors as a ``torch.nn.Module``, for programs that know torch and not this library.

        Of a regressor it maps a tensor (n_samples, n_features) to the predictions, of a classifier to the values that
        ``decision_function`` or ``embedding`` gives for all classes, of a conditional embedding to the conditional
        mean, of a transformer to its features. Its parameters are the coefficients and the intercept.

        Returns
        -------
        network : torch.nn.Module
            Of values (n_samples, n_outputs). ``torch.export`` takes it for kernels of vectors.
        """
        check_is_fitted(self)
        needs_vectors(self._data_kernel())
        return self._network()

    def _network(self) -> torch.nn.Module:
        """The network of the fitted function."""
        return function_network(self.function_)

    # -- what a user passes -------------------------------------------------------------------------------------------
    def _check(self) -> None:
        """Refuse arguments that mean nothing, before the data are looked at."""
        check_arguments(self, {**ARGUMENTS, **self.constraints})
        for kernel in (getattr(self, name) for name in self.kernel_arguments):
            if isinstance(kernel, Value):
                kernel.check_hyperparameters()

    def _representation(self, X: Data = None) -> Representation:
        """The precision and the device of the learner's tensors, and the form of checked inputs."""
        return Representation(DTYPES[self.dtype], self.device, isinstance(X, SparseRows))

    @property
    def _needed_features(self) -> FeatureKind | None:
        """The explicit features that kernels of the inputs must have for the approximation, or for a pair of them."""
        inputs = self.approximation[0] if isinstance(self.approximation, tuple | list) else self.approximation
        return getattr(inputs, "needs", None)

    def _own_kernel(self, kernel: object) -> Kernel:
        """A copy of a kernel with plain numbers, which no later change reaches; names mean what they do here."""
        stated = self.named_kernel(kernel) if isinstance(kernel, str) else as_kernel(kernel)
        own = stated.__sklearn_clone__().numbers()
        return own if self.device is None else on_device(own, self.device)

    def _compared_kernels(self, X: Data, *, compared: bool = True) -> list[Kernel]:
        """The kernels of which the best one by the criterion is taken: those of the data's kind, or one.

        They are copies with plain numbers: nothing that happens to the arguments later reaches the learner.
        """
        if not (isinstance(self.kernel, str) and is_several(self.kernel)):
            return [self._own_kernel(self.kernel)]
        kernels = kernels_of(self.kernel, X, self._needed_features, compared=compared)
        return [self._own_kernel(kernel) for kernel in kernels]

    def _checked_inputs(
        self,
        kernel: Kernel | OperatorKernel | Stack,
        X: Data,
        sample_weight: Data = None,
        groups: Data = None,
        *,
        reset: bool = True,
    ) -> tuple[Data, np.ndarray | None, np.ndarray | None]:
        """Inputs in memory, their weights, and the numbers of their groups; None where there are none."""
        X = check_inputs(self, X, kernel, reset=reset)
        return X, check_weights(sample_weight, X), check_groups(groups, len(X))

    def _batch_groups(self, groups: Data, n: int, *, first: bool) -> np.ndarray | None:
        """The numbers of a batch's groups; a label has the same one in all batches."""
        numbers: dict[Any, int] | None = {} if groups is not None else None
        if not first:
            numbers = self._group_numbers
            if (numbers is None) != (groups is None):
                raise ValueError("groups must be given with all batches of partial_fit, or with none of them.")
        numbers = None if numbers is None else dict(numbers)
        members = check_groups(groups, n, numbers)
        self._group_numbers = numbers
        return members

    def _dask_samples(
        self, kernel: Kernel | OperatorKernel | Stack, X: Data, y: Data, sample_weight: Data = None, groups: Data = None
    ) -> OnDask:
        """Samples in Dask collections, whose columns are remembered; an exact fit to them is refused."""
        needs_approximation(self, kernel, kernel.domain)
        targets = None if y is None else targets_beside_dask(y)
        samples = OnDask(X, targets, sample_weight, dtype=DTYPES[self.dtype], groups=groups)
        self._keep_columns(X)
        return samples

    def _new_inputs(self, X: Data) -> Data:
        """Checked inputs of a fitted learner."""
        return check_inputs(self, X, self._data_kernel(), reset=False, means=self._column_means)

    def _memory_samples(
        self,
        kernel: OperatorKernel | Stack,
        X: Data,
        Y: np.ndarray,
        weights: np.ndarray | None,
        groups: np.ndarray | None,
    ) -> InMemory:
        """Checked samples, with numbers as targets; those with equal inputs are in one group."""
        if self.approximation is not None:
            self.approximation.size(len(Y) if weights is None else int(np.count_nonzero(weights)))
        how = self._representation(X)
        inputs = how.inputs(kernel, X)
        block = how.block(inputs, Y, None, left_out_together(kernel, inputs, groups))
        # In single precision, too, weights keep the digits that their sums need.
        return InMemory(replace(block, weights=None if weights is None else torch.from_numpy(weights)))

    def _search_settings(self, seed: int, criterion: str | None) -> SearchSettings:
        """The arguments that say how to search; callbacks of the learner see its iterations."""
        options = (int(self.max_iter), float(self.tol), int(self.n_restarts), seed, int(self.verbose))
        return SearchSettings(criterion, *options, self._iteration_callback(), self._deadline)

    def _keep_columns(self, X: Data) -> None:
        """Remember the columns of a Dask collection or of records, as scikit-learn does those of arrays and frames."""
        self._column_means = None
        names = None if not hasattr(X, "columns") else list(X.columns)
        self.n_features_in_ = X.shape[1] if names is None else len(names)
        self.__dict__.pop("feature_names_in_", None)
        if names is not None:
            self._column_names = names
        if names is not None and all(isinstance(name, str) for name in names):
            self.feature_names_in_ = np.array(names, dtype=object)

    def _keep_means(self, X: np.ndarray) -> None:
        """Remember the means of columns of numbers, where gaps are allowed: those in new data get them."""
        self._column_means = None
        if self.__sklearn_tags__().input_tags.allow_nan:
            with np.errstate(over="ignore", invalid="ignore"):
                means = X.mean(0)
            self._column_means = means if np.isfinite(means).all() else None

    def _report_rounding(self, X: Data, notes: RoundingNotes) -> None:
        """Warn, once a fit, where its answers may have fewer digits than usual."""
        function = getattr(self, "function_", None) or getattr(self, "features_", None)
        is_stated = isinstance(getattr(self, "alpha", 0.0), int | float)
        learned = None if is_stated else float(np.max(getattr(self, "alpha_", 0.0)))
        reason = lost_digits(function, X, notes, self.dtype, learned=learned, size=self._size_that_matters())
        if reason is not None:
            warn(reason, NumericalWarning)

    def _size_that_matters(self) -> float:
        """The size below which values of the fitted function say nothing: classes are targets of zeros and ones."""
        return 1.0 if hasattr(self, "classes_") else 0.0

    def _keep_record(self, record: FitRecord, *, more: bool) -> None:
        """Keep what is known of a fit, or of all batches up to this one."""
        self._record = self._record.joined(record) if more and self._record is not None else record

    def _keep_attributes(self, attributes: dict[str, Any]) -> None:
        """Keep what a fit has found, by name."""
        for name, value in attributes.items():
            setattr(self, name, value)

    def _iteration_callback(self) -> Callable[[HistoryEntry], bool]:
        """What a search calls after each iteration: a subtask of the fit begins and ends; True stops the search."""
        context = self._callback_fit_ctx

        def call(entry: HistoryEntry) -> bool:
            task = context.subcontext(task_name="iteration")
            task.call_on_fit_task_begin(estimator=self)
            return bool(task.call_on_fit_task_end(estimator=self))

        return call

    # -- how far from the samples -------------------------------------------------------------------------------------
    @answering
    def support(self, X: Data) -> np.ndarray:
        """How much of each input the training samples explain: near 1 among them, 0 far from all.

        s(x) = k_xᵀW⁻¹k_x / k(x, x), W = K + noise: one minus the variance that a Gaussian process has left at x, as a
        share of the one it began with. The noise is n·alpha, at most 3 % of the mean k(x, x), however noisy targets
        are. Of a stack it is the mean by its weights, and of layers the least of theirs; kernels with unbounded
        k(x, x), such as the linear one, do not count beside others, and alone they say which directions the samples
        explain, not how far away x is (with a warning). Landmarks stand for the samples of a fit that has some. Inputs
        with less than ``support_threshold_`` are unlike the training data.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Inputs.

        Returns
        -------
        support : ndarray of shape (n_samples,)
            Between 0 and 1.
        """
        support = self._support()
        if not support.bounded:
            warn(
                "k(x, x) of this kernel is not known to be bounded: its support says which directions the samples "
                "explain, not how far away an input is. Use kernel.normalized(), or a kernel such as Gaussian()."
            )
        if is_dask(X):
            return self._lazily("support", X, None, dtype=np.float64)
        return plain(support(self._new_inputs(X)))

    @property
    def support_threshold_(self) -> float:
        """The support that 5 % of the training samples, each left out with its group, do not reach."""
        return self._support().threshold(OUTLYING_SHARE)

    def _support(self) -> Support:
        """The support of the samples, which is made when it is first asked for."""
        check_is_fitted(self)
        if self._data_kernel().domain == "gram":
            raise ValueError(
                "The support of x needs k(x, x), which no Gram matrix of new with training samples holds. Use a kernel "
                "object instead of kernel='precomputed' (Callable wraps any function)."
            )
        if "_samples_support" not in vars(self):
            alpha = getattr(self, "alpha_", None)
            support = Support.of(self._supported_function(), alpha, **self._supporting_samples())
            self._samples_support = support
        return self._samples_support

    def _supported_function(self) -> Function:
        """The function whose points are the samples."""
        return self.function_

    def _supporting_samples(self) -> dict[str, HeldSamples]:
        """All samples of the fit, and those that a fit by sums holds, where there are some."""
        system = getattr(self, "system_", None)
        system = system.systems[0] if isinstance(system, StackedSystem) else system
        attributes = {name: getattr(system, name, None) for name in ("samples", "held")}
        return {name: value for name, value in attributes.items() if isinstance(value, HeldSamples)}

    # -- fits without folds -------------------------------------------------------------------------------------------
    def _fold_fits(self) -> FoldFits[Any]:
        """Fits without each of five folds, which repeat the search; the first call makes them."""
        fits: FoldFits[Any] | None = self.__dict__.get("_cached_folds")
        if fits is None:
            samples = self._training_samples
            if samples is None:
                raise ValueError(
                    "Fits without some of the samples need all of them with their targets, and a fit by batches, on "
                    "Dask or to more samples than inner layers see does not keep them. Fit to fewer ones in memory."
                )
            seed = seed_of(self.random_state)
            fits = self.__dict__["_cached_folds"] = FoldFits.of(partial(self._refitted, seed), samples, seed)
        return fits

    def _refitted(self, seed: int, samples: TrainingSamples) -> Self:
        """The same fit to other samples, without a word: warnings were those of the whole fit."""
        # The weights of samples are those of their classes, too.
        fixed = {"random_state": seed, "verbose": 0, "class_weight": None}
        fixed["approximation"] = for_part(getattr(self, "approximation", None), samples.n)
        bare = clone(self)
        bare.set_params(**{name: value for name, value in fixed.items() if name in bare.get_params(deep=False)})
        options = {name: values for name, values in samples.options.items() if values is not None}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted: Self = bare.fit(samples.X, samples.y, **options)
        return fitted

    def _check_question(self, X: Data, coverage: object) -> None:
        """Refuse to answer with intervals or sets before a fit, for no coverage, or on Dask."""
        check_coverage(coverage)
        if is_dask(X):
            raise ValueError("Intervals and sets are for data in memory; map them over the chunks yourself.")

    # -- why ----------------------------------------------------------------------------------------------------------
    @answering
    def explain(
        self,
        X: Data,
        *,
        top: int | None = None,
        coverage: float | None = None,
        support: bool = False,
        parts: bool = False,
    ) -> Explanation:
        """Say why: what each training sample, landmark or feature contributes to each prediction.

        Every prediction is a sum, f(x) = Σ_i k(x, x_i) c_i + b. What is explained are predictions of regressors, the
        values that a classifier compares (``decision_function``, or the raw estimates of ``embedding``), the means of
        conditional distributions, codes of autoencoders, and of deep learners the terms of the outer function.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).
        top : int or None, default=None
            Keep so many contributions to each prediction, the largest ones. None: all of them, unless they are more
            than 2·10⁷ numbers; then 50.
        coverage : float or None, default=None
            With a number such as 0.9, the explanation has intervals that contain so many of new targets.
        support : bool, default=False
            With True, it has the ``support`` of each query by the training samples.
        parts : bool, default=False
            With True, it has what each part of a query adds: the atoms of a molecule, the characters of a string, the
            nodes of a graph (each removed in turn), the columns of a vector or a record (their Shapley values, from
            some of the training samples).

        Returns
        -------
        explanation : Explanation
            Contributions, baseline, and what else is known of the predictions.
        """
        explanation = self._explanation(self._explained_function(), X, top, coverage, parts=parts)
        return replace(explanation, support=self.support(X)) if support else explanation

    def _explanation(
        self, function: Function, X: Data, top: int | None, coverage: float | None, *, parts: bool
    ) -> Explanation:
        """The values of a function at inputs of a user, explained."""
        inputs = self._asked(X)
        explanation = explain_with_neighbours(function, inputs, top, self._fitted_inputs())
        if explanation.terms == "samples" and getattr(self, "approximation", None) is not None:
            explanation = replace(explanation, terms="landmarks")
        if parts:
            effects, names, mean = part_effects(function, inputs, self._data_kernel(), self._fitted_inputs())
            names = names if names is None else tuple(map(str, getattr(self, "feature_names_in_", names)))
            explanation = replace(explanation, parts=effects, part_names=names, parts_baseline=mean)
        explanation = replace(explanation, outputs=self._output_names())
        return replace(
            flat(explanation) if self._has_flat_answers() else explanation,
            labels=self._labels_of_terms(explanation),
            std=self._deviations(inputs),
            interval=None if coverage is None else self._intervals(X, coverage),
        )

    @answering
    def influence(self, X: Data) -> np.ndarray:
        """What each training sample does to each prediction: the prediction now minus that of the fit without it.

        Hyperparameters, operator, stack weights, inner layers and n·alpha are held; then it is known in closed form,
        without a refit. Samples with equal inputs, or of one of the ``groups`` of the fit, are left out together: each
        of them has the influence of all.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).

        Returns
        -------
        influence : ndarray of shape (n_queries, n_samples) or (n_queries, n_samples, n_outputs)
            In units of the predictions that ``explain`` explains.
        """
        inputs = self._asked(X)
        n = count(inputs)
        first = self._influences(inputs[:1])
        result = np.empty((n, *first.shape[1:]), first.dtype)
        for rows in row_blocks(n, 8 * first.nbytes):
            result[rows] = self._influences(inputs[rows])
        return result[..., 0] if self._has_flat_answers() else result

    @answering
    def sensitivity(self, X: Data) -> np.ndarray | list[np.ndarray]:
        """How predictions change with their inputs: ∂f/∂x of vectors, and of objects what each of their parts adds.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of strings
            Inputs.

        Returns
        -------
        sensitivity : ndarray of shape (n_queries, n_features) or (n_queries, n_features, n_outputs), or list of ndarray
            Of the values that ``explain`` explains. Of strings, molecules and graphs, an array (n_parts,) or
            (n_parts, n_outputs) for each: the value now minus that without the character, atom or node.
        """
        inputs, function = self._asked(X), self._explained_function()
        effects = sensitivities(function, inputs, self._data_kernel(), self._representation())
        if not self._has_flat_answers():
            return effects
        return effects[..., 0] if isinstance(effects, np.ndarray) else [one[:, 0] for one in effects]

    @property
    def misfit_(self) -> np.ndarray:
        """How little the fit without it expects each training sample (n_samples,).

        Of classes it is −log p of the sample's own class, of numbers the size of the error in standard deviations, the
        largest of several outputs. Samples with equal inputs, or of one group, are left out together.
        """
        check_is_fitted(self)
        return self._misfits()

    @property
    def suspects_(self) -> np.ndarray:
        """The numbers of the training samples by their ``misfit_``: the first ones may have wrong targets."""
        misfit = self.misfit_
        return np.argsort(-np.where(np.isnan(misfit), -np.inf, misfit), kind="stable")

    @answering
    def report(self, X_test: Data = None, y_test: Data = None) -> Report:
        """A page about the fitted model: what was fitted, how well, what matters, what looks wrong.

        Figures need matplotlib (the extra ``plot``); without it the page has none.

        Parameters
        ----------
        X_test : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes, default=None
            Inputs that the fit has not seen.
        y_test : array-like of shape (n_queries,) or (n_queries, n_outputs), default=None
            Their targets.

        Returns
        -------
        report : Report
            ``report.save("report.html")`` writes one file that needs nothing else; notebooks show it.
        """
        if self.__sklearn_tags__().target_tags.required:
            check_both("report", X_test, y_test)
        return make_report(self, X_test, y_test)

    def _left_out_answers(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Targets, or numbers of classes, and what leave-one-out answers: predictions or probabilities (n, c)."""
        return None

    def _asked(self, X: Data) -> Data:
        """Checked inputs, in memory."""
        if is_dask(X):
            raise ValueError("Explanations are for data in memory: call X.compute(), or ask for a few of the chunks.")
        return self._new_inputs(X)

    def _data_kernel(self) -> Kernel | OperatorKernel | Stack:
        """The kernel that sees the data."""
        return self.kernel_

    def _explained_function(self) -> Function:
        """The function whose values are explained, as a sum over the samples where that is known."""
        if not hasattr(self, "function_"):
            raise ValueError(
                f"{type(self).__name__} makes features and predicts nothing that could be explained. Give its kernel "
                "and approximation to a learner such as OperatorRidge, and explain that."
            )
        system: Any = getattr(self, "system_", None)
        if self.function_.terms_of is not None or not hasattr(system, "sample_function"):
            return self.function_
        return system.sample_function().in_units(self._unit)

    def _fitted_inputs(self) -> Data:
        """The training inputs, where they are kept."""
        samples = self._training_samples
        return getattr(self, "X_fit_", None) if samples is None else samples.X

    def _output_names(self) -> tuple[str, ...] | None:
        """The names of the values that are explained: those of classes."""
        classes = getattr(self, "classes_", None)
        return None if classes is None else tuple(map(str, classes))

    def _has_flat_answers(self) -> bool:
        """Is there one output, without an axis?"""
        return self._flat

    def _shaped(self, values: Data) -> np.ndarray:
        """Values (..., p) of the outputs as an array, without their axis if targets came as a vector."""
        values = plain(values)
        return values[..., 0] if self._flat else values

    def _as_targets(self, values: Data) -> np.ndarray:
        """Values (n, p) in the units in which a fit counts, in those of the targets and in their shape."""
        return self._shaped(self._unit * plain(values).astype(np.float64))

    def _labels_of_terms(self, explanation: Explanation) -> np.ndarray | None:
        """The targets of the samples that the terms belong to, where they are known."""
        samples = self._training_samples
        if samples is None or explanation.terms != "samples" or samples.n != explanation.n_terms:
            return None
        y = samples.y
        return y if isinstance(y, np.ndarray) else None

    def _deviations(self, X: Data) -> np.ndarray | None:
        """The standard deviations of new observations at checked inputs; None where they are not known."""
        return None

    def _intervals(self, X: Data, coverage: float) -> np.ndarray:
        """Conformal intervals, or an error that says who has some."""
        if not hasattr(self, "predict_interval"):
            raise ValueError(
                f"coverage= asks for intervals, and {type(self).__name__} has none: they are for regressors "
                "(OperatorRidge, DeepKernelRegressor). Leave coverage=None."
            )
        return self.predict_interval(X, coverage)

    def _influences(self, X: Data) -> np.ndarray:
        """Influences (m, n, p) at checked inputs."""
        system: Any = getattr(self, "system_", None)
        if not hasattr(system, "influence"):
            raise ValueError(
                "Influences of samples are known in closed form for squared loss and targets: OperatorRidge, "
                "EmbeddingClassifier, ConditionalMeanEmbedding, deep learners with loss='squared'. Refit without a "
                "sample to see what it does here."
            )
        return self._unit * plain(system.influence(self._system_inputs(X)))

    def _system_inputs(self, X: Data) -> Data:
        """Checked inputs as the system takes them."""
        return X

    def _misfits(self) -> np.ndarray:
        """The misfits of all samples, from refits without folds where a system does not know them."""
        raise AttributeError(
            f"{type(self).__name__} has no targets that could be wrong: suspects_ and misfit_ are those of supervised "
            "learners."
        )

    # -- what matters -------------------------------------------------------------------------------------------------
    @property
    def relevance_(self) -> np.ndarray:
        """How much each column matters: the share of the variance of the answers that is lost without it (n_features,).

        The answers are predictions, probabilities of classes, or components. See ``inspection.relevance``. Of a frame,
        ``dict(zip(model.feature_names_in_, model.relevance_))`` gives them their names.
        """
        check_is_fitted(self)
        X = columns_to_ask(getattr(self, "X_fit_", None))
        nameless = copy.copy(self)
        if isinstance(X, np.ndarray):  # whose columns have no names any more
            nameless.__dict__.pop("feature_names_in_", None)
        methods = (getattr(nameless, name, None) for name in ("predict_proba", "predict", "transform"))
        return total_effects(next(method for method in methods if method is not None), X)

    # -- answers on Dask ----------------------------------------------------------------------------------------------
    def _lazily(self, method: str, X: Data, width: int | None, *first: Any, dtype: Any = None, **options: Any) -> Any:
        """Return ``method(chunk)`` for every chunk of a Dask collection: a Dask array (n, width), or (n,) for None.

        Arguments before the chunk are ``first``, those after it ``options``. The copy that travels to the workers has
        no training data.
        """
        assert is_dask(X)
        X = columns_of_fit(self, X)
        if method == "transform":
            refuse_frames(self)
        light = copy.copy(self)
        named = hasattr(X, "columns") and hasattr(self, "feature_names_in_")
        for name in (*self.training_data, "_training_samples", *(() if named else ("feature_names_in_",))):
            light.__dict__.pop(name, None)  # chunks of arrays have no names
        answer = partial(getattr(light, method), *first, **options)
        return map_rows(answer, X, width, np.dtype(self.dtype if dtype is None else dtype), named=named)


# -- what regressors and classifiers have ------------------------------------------------------------------------------
def predict_interval(self: KernelLearner, X: Data, coverage: float = 0.9) -> np.ndarray:
    """Intervals in which new targets lie, with a guarantee: CV+, or jackknife+ (Barber et al., 2021).

    They come from five fits without a fold each, which repeat the search, and which the first call makes; groups, equal
    inputs included, are left out together. An ``OperatorRidge`` that has learned at most two numbers for 100 samples
    takes exact leave-one-out instead, at the price of a few products. Errors are measured in standard deviations, where
    these need no more fits, if that makes the intervals narrower. Intervals of a conditional distribution are around
    its mean, and unlike its ``quantile`` they need not be right about the distribution.

    Proven, for exchangeable samples (or groups): five folds contain a new target with a probability of at least
    1 − 2a − √(2/n), where a = 1 − ``coverage``; leave-one-out does so with 1 − 2a where nothing was learned. None is
    proven where hyperparameters have seen the samples that are left out. Measured on tables for .9
    (``docs/uncertainty.md``): leave-one-out contained .898 of new targets, five folds .915 to .920. They are for new
    samples: most of the fits have seen the target of a training input, which is inside too often.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
        Inputs; with a precomputed kernel, k(X, X_train).
    coverage : float, default=0.9
        The share of new targets that shall lie in their intervals.

    Returns
    -------
    intervals : ndarray of shape (n_samples, 2) or (n_samples, n_outputs, 2)
        Lower and upper ends; infinite, with a warning, where there are too few samples for the coverage.
    """
    self._check_question(X, coverage)
    ends: np.ndarray = self._interval_ends(self._new_inputs(X), coverage)
    return ends[:, 0] if self._has_flat_answers() else ends


def predict(self: Any, X: Data) -> np.ndarray:
    """Predict class labels.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
        Inputs; with a precomputed kernel, k(X, X_train).

    Returns
    -------
    y : ndarray of shape (n_samples,)
        The class of the largest value; far from all samples, the most frequent class.
    """
    if is_dask(X):
        return self._lazily("predict", X, None, dtype=self.classes_.dtype)
    inputs = self._new_inputs(X)
    values = plain(self.function_(inputs))
    numbers = self._class_numbers(values)
    if self.calibration_ is not None and self.far_field_ is not None:
        numbers = self.far_field_.classes(numbers, self.calibration_(values), inputs)
    return self.classes_[numbers]


def predict_set(self: KernelLearner, X: Data, coverage: float = 0.9) -> np.ndarray:
    """Which classes cannot be excluded, with a guarantee: CV+ (Romano, Sesia and Candès, 2020).

    The classes are ranked by the probabilities of five fits without a fold each, which repeat the search, and which
    the first call makes; groups, equal inputs included, are left out together. The most probable class is always
    in the set.

    Proven, for exchangeable samples (or groups): sets contain the class of a new sample with a probability of at
    least 1 − 2a − √(2/n), where a = 1 − ``coverage``. Measured with ``EmbeddingClassifier`` on 16 tables: .947 for .9.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
        Inputs; with a precomputed kernel, k(X, X_train).
    coverage : float, default=0.9
        The share of new samples whose class shall be in its set.

    Returns
    -------
    sets : ndarray of bool of shape (n_samples, n_classes)
        In the order of ``classes_``; all classes, with a warning, where there are too few samples for the coverage.
    """
    self._check_question(X, coverage)
    try:
        self.predict_proba(X)
    except AttributeError as error:
        raise ValueError(f"Sets rank classes by their probabilities. {error}") from error
    inputs = self._new_inputs(X)
    return class_sets(self._fold_fits(), inputs, coverage, self.classes_)


def score_of_numbers(self: Any, X: Data, y: Data, sample_weight: Data = None) -> float:
    """R², the share of the variance that predictions explain: the mean over the outputs.

    Parameters
    ----------
    X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
        Inputs; with a precomputed kernel, k(X, X_train).
    y : array-like of shape (n_queries,) or (n_queries, n_outputs)
        Targets; among several outputs, NaN where one is missing: each output is scored where it is known.
    sample_weight : array-like of shape (n_queries,), default=None
        Weights of the samples.

    Returns
    -------
    score : float
        1 for perfect predictions, 0 for the mean of y.
    """
    check_both("score", X, y)
    return score_of_known(y, self.predict(X), sample_weight)


def score_of_classes(self: Any, X: Data, y: Data, sample_weight: Data = None) -> float:
    """The accuracy: the share of samples whose class is predicted.

    Parameters
    ----------
    X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
        Inputs; with a precomputed kernel, k(X, X_train).
    y : array-like of shape (n_queries,)
        The classes.
    sample_weight : array-like of shape (n_queries,), default=None
        Weights of the samples.

    Returns
    -------
    score : float
        1 if all classes are right.
    """
    check_both("score", X, y)
    return score_of_labels(y, self.predict(X), sample_weight)


def library_learners() -> list[type]:
    """The learners of the library, without those that users have derived."""
    learners, waiting = [], [KernelLearner]
    while waiting:
        for kind in waiting.pop().__subclasses__():
            waiting.append(kind)
            if kind.__module__.startswith(f"{__package__}."):
                learners.append(kind)
    return learners


def load(path: str | os.PathLike[str], trusted: Iterable[object] = ()) -> Any:
    """Read a learner from a file that its ``save`` has written.

    Nothing that a file says is run. It can name the library's own classes, those of ``torch.nn``, NumPy arrays and the
    like; a class or a function of your own, such as a kernel or a loss, only if you trust it here by its name.

    Parameters
    ----------
    path : str or path
        The file, or the folder in which it is.
    trusted : list of str, classes or functions, default=()
        What else the file may name: ``["my_package.kernels.Cosine"]``.

    Returns
    -------
    learner : KernelLearner
        The fitted learner, which answers as the saved one did.

    Raises
    ------
    ModelFileError
        If the file is damaged, names what it may not, or was written by a version whose files cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import representer
    >>> X = np.linspace(0, 3, 20)[:, None]
    >>> model = representer.OperatorRidge(alpha=0.01).fit(X, np.sin(X[:, 0]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = representer.load(model.save(folder))
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    """
    return read_model(path, learners=library_learners(), trusted=trusted)
