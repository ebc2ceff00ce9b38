"""Ridge regression on features: a sum over blocks of samples, in memory, on Dask, or one batch after another."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from representer.approximation import Falkon, FeatureMap, approximation_error
from representer.approximation.base import evenly_spaced
from representer.approximation.sampling import sample_rows
from representer.data import as_scipy, plain
from representer.estimators._large_parts import (
    HELD_ROWS,
    HEURISTIC_ROWS,
    SEARCH_ROWS,
    HeldSamples,
    block_limit,
    choose_alpha_by_sums,
    leave_one_out,
    pilot_alpha,
    predictive_std,
    search_problem,
)
from representer.estimators._lazy import in_memory, is_flat, source_on_dask, takes_batches
from representer.estimators._ridge import (
    OPERATOR,
    Choice,
    RidgeProblem,
    check_arguments,
    lbfgs_search,
    learn,
    resolve_operator,
)
from representer.estimators.validation import (
    DTYPES,
    KernelEstimator,
    as_operator_kernel,
    check_alpha,
    seed_of,
    warn_unconverged,
)
from representer.kernels import Kernel
from representer.linalg.memory import row_blocks
from representer.objectives.operator_valued import Criterion
from representer.operators import Decomposable, Diagonal, Identity, OperatorKernel
from representer.operators.adapted import Representation, original, silent_repairs
from representer.samples.in_memory import Block, InMemory, Samples
from representer.samples.on_dask import OnDask
from representer.systems.separate import SeparateRidge, SeparateStep, SeparateSums
from representer.systems.sums import NormalRidge, NormalStep, NormalSums

# Up to so many features the normal equations are formed; with more, conjugate gradients.
DIRECT_LIMIT = 6000


def _takes_batches(learner: Any) -> bool:
    """Is there a partial_fit? An AttributeError says why not."""
    if isinstance(learner.solver, Falkon) or learner.solver == "cg":
        raise AttributeError("partial_fit adds normal equations; use solver='direct'.")
    return takes_batches(learner)


class LargeRidge(KernelEstimator):
    """What ``OperatorRidge`` does with an approximation. Its state: what was chosen, the sums, and a few samples."""

    operator: Any
    alpha: Any
    approximation: Any
    criterion: Criterion
    dual_coef_: np.ndarray
    X_fit_: Any
    _targets: Any
    _weights: Any
    _validate: Any
    _sums: NormalSums | SeparateSums | None
    _missing: bool = False  # are there targets that are NaN?
    _held: HeldSamples | None
    _flat: bool
    _state: Any
    _feature_coef: np.ndarray | None = None  # where the function is known better by its features

    @property
    def _represented(self) -> Representation:
        return Representation(DTYPES[self.dtype], self.device, self._sparse)

    def _operator_kernel(self) -> OperatorKernel:
        kernel = self.kernel_ if self.operator_ is None else Decomposable(self.kernel_, self.operator_)
        return self._represented.adapted(
            kernel, repair=self.approximation is None
        )  # landmarks have their own

    def _shaped(self, values: Tensor) -> np.ndarray:
        return plain(values)[:, 0] if self._flat else plain(values)

    def _kept(self) -> Tensor:
        """The samples that count: those of positive weight."""
        if self._weights is None:
            return torch.arange(len(self._targets))
        return torch.from_numpy(np.flatnonzero(self._weights > 0))

    # -- features -----------------------------------------------------------------------------------------------------
    def _feature_map(self) -> FeatureMap:
        """The features of the fit, made again after unpickling."""
        if "_cached_features" not in self.__dict__:
            kernel, represented = self._scalar(), self._represented
            with silent_repairs():  # fit has said it
                self._cached_features = self._approximation.restore(
                    kernel, self._state, lambda points: represented.inputs(kernel, points)
                )
        return self._cached_features

    def _keep_features(self, features: FeatureMap) -> None:
        self._approximation, self._state = self.approximation, plain(features.state)
        self.landmarks_ = as_scipy(self._state) if hasattr(features, "landmarks") else None
        self._cached_features = features

    # -- fitting ------------------------------------------------------------------------------------------------------
    @available_if(_takes_batches)
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to more samples: with ``approximation=``, and the same as one fit to all of them.

        The first batch (also after ``fit``, which is forgotten) decides what the data decide: words in the kernel,
        landmarks, what is learned. So where these are given (numbers in the kernel, ``Landmarks(Z)`` or random features
        with a ``random_state``), it equals ``fit`` on all batches at once, ``alpha="auto"`` included.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Inputs of the batch.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets, all of them known.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples.

        Returns
        -------
        self : OperatorRidge
            The fitted model.
        """
        check_arguments(self)
        given = self._given()
        first = not hasattr(self, "n_samples_seen_")
        if first:
            self._forget()
        flat = None if first else self._flat
        try:
            problem = self._validate(given, in_memory(X), in_memory(y), sample_weight, reset=first)
            if problem.observed is not None:
                raise ValueError(
                    "partial_fit needs all targets; y contains NaN. Leave such samples out, or use fit."
                )
            source = self._memory_source(problem)
            if first:
                self._fit_source(source, given, lambda entry: False)
                self.n_samples_seen_ = source.n
            else:
                self._add_batch(source.samples, check_alpha(self.alpha))
        finally:  # a batch that was refused leaves no trace
            self.X_fit_ = self._targets = self._weights = None
            if flat is not None:
                self._flat = flat
        return self

    def _given(self) -> OperatorKernel:
        given = as_operator_kernel(self.kernel, self.operator)
        if self.approximation is not None and not isinstance(given, Decomposable):
            raise ValueError(f"approximation= needs a scalar kernel with an output operator; got {given!r}.")
        return given

    def _forget(self) -> None:
        for name in ("_cached_system", "_cached_features", "_cached_ridge"):
            self.__dict__.pop(name, None)
        self.__dict__.pop("approximation_error_", None)
        self._sums = self._held = self._state = self._feature_coef = None
        self._missing = False

    def _memory_source(self, problem: RidgeProblem) -> InMemory:
        """The samples, with their weights as they were given."""
        weights = None
        if self._weights is not None:
            weights = self._represented.tensor(self._weights)[self._kept()]
        Y = problem.Y if problem.observed is None else problem.Y.masked_fill(~problem.observed, torch.nan)
        return InMemory(Block(problem.X, Y, weights))

    def _by_outputs(self, given: OperatorKernel) -> bool:
        """Do the outputs come apart, so that each can have the sums of the samples that know it?"""
        return isinstance(given, Decomposable) and isinstance(given._operator, Identity | Diagonal)

    def _dask_source(self, given: OperatorKernel, X: Any, y: Any, sample_weight: Any) -> OnDask:
        """Samples in Dask collections, and what is known of them without a look."""
        source = source_on_dask(self, given, X, y, sample_weight, dtype=DTYPES[self.dtype])
        self._targets = self._weights = None
        self._flat, self._sparse = is_flat(y), False
        return source

    def _fit_source(self, source: Samples, given: OperatorKernel, callback: Any) -> None:
        """Hyperparameters on a random part of the samples, then the fit to all of them."""
        self.__dict__.pop("n_samples_seen_", None)
        learn_operator = isinstance(self.operator, str)
        alpha = check_alpha(self.alpha)
        self._seed = seed_of(self.random_state)
        self.approximation.size(source.n)
        given = self._represented.adapted(given, repair=False)
        free = given.free() + ([OPERATOR] if learn_operator else [])
        regular = evenly_spaced(source.n, HEURISTIC_ROWS)
        source.read_ahead(
            regular,
            self.approximation.rows(source.n, self._seed),
            sample_rows(source.n, max(SEARCH_ROWS, HELD_ROWS), self._seed),
        )
        kernel = given.resolve(source.rows(regular).X)
        problem = search_problem(source, self._seed)
        kernel = resolve_operator(kernel, problem, learn=learn_operator)
        choice = Choice(kernel, 0.0)
        if free:
            with silent_repairs():  # fit speaks of the last Gram matrix
                choice = learn(
                    kernel, free, problem, alpha, self.criterion, lbfgs_search(self, self._seed, callback)
                )
        self.history_ = choice.history
        self.n_iter_ = max(1, len(choice.history) - 1)  # the first entry is the start
        chosen: Any = choice.kernel
        self.kernel_, self.operator_ = original(chosen.kernel), chosen._operator
        self._solve_large(source, alpha)

    def _solver_for(self, m: int) -> Falkon | None:
        if isinstance(self.solver, Falkon):
            return self.solver
        return Falkon() if self.solver == "cg" or (self.solver == "auto" and m > DIRECT_LIMIT) else None

    def _solve_large(self, source: Samples, alpha: float | np.ndarray | None) -> None:
        """Landmarks or random features, sums over the samples, alpha, coefficients."""
        rows = self.approximation.rows(source.n, self._seed)
        features = self.approximation.choose(self._scalar(), source.rows(rows).X, self._seed)
        self._keep_features(features)
        held = sample_rows(source.n, HELD_ROWS, self._seed)
        sample = source.rows(held)
        self.approximation_error_ = approximation_error(features, sample.X)
        self._held = HeldSamples.of(sample, held, self._seed)
        self._sums = None
        falkon = self._solver_for(features.n_features)
        if self._missing:
            if falkon is not None:
                raise ValueError(
                    f"Missing targets (NaN) take normal equations; use solver='direct', and fewer than the "
                    f"{features.n_features} features."
                )
            p = sample.Y.shape[1]
            limit = block_limit(
                self.memory_limit, features.n_features, p, matrices=3 * p + 3, held=len(sample)
            )  # each output has sums, eigenvectors and a factor of its own
            self._solve_sums(source.total(SeparateStep(features), limit=limit), alpha, limit)
        elif falkon is None:
            limit = block_limit(self.memory_limit, features.n_features, sample.Y.shape[1], held=len(sample))
            self._solve_sums(source.total(NormalStep(features), limit=limit), alpha, limit)
        else:
            self._solve_iteratively(falkon, features, source, sample, alpha)

    def _outputs(self, like: Tensor) -> tuple[Tensor, Tensor | None]:
        """The eigenvalues and eigenvectors of the output operator."""
        form = Decomposable(self._scalar(), self.operator_).diagonal_form(like.shape[-1], like.double())
        assert form is not None  # K = k A
        return form.weights[0], form.rotation

    def _scalar(self) -> Kernel:
        kernel = self._operator_kernel()
        assert isinstance(kernel, Decomposable)  # as an approximation needs
        return kernel.kernel

    def _ridge_of(self, sums: NormalSums | SeparateSums) -> NormalRidge | SeparateRidge:
        """The normal equations, of tensors."""
        scales, rotation = self._outputs(sums.cross)
        if isinstance(sums, SeparateSums):
            return SeparateRidge(sums, scales)
        return NormalRidge(sums, scales, rotation)

    def _solve_sums(
        self, sums: NormalSums | SeparateSums, alpha: float | np.ndarray | None, limit: int | None
    ) -> None:
        """alpha and the coefficients from the sums."""
        if not sums.weight > 0:
            raise ValueError("Sample weights must contain at least one non-zero number.")
        features = self._feature_map()
        ridge = self._ridge_of(sums)
        self.criterion_value_: float | None = None
        if not isinstance(alpha, float):
            held = self._held_block()
            found = choose_alpha_by_sums(ridge, alpha, self.criterion, features, held, limit)
            alpha, self.criterion_value_ = found
        self.alpha_ = alpha
        theta = ridge.coefficients(alpha).to(features.dtype)
        self.dual_coef_ = self._shaped(features.coefficients(theta))
        weighted = theta @ self.operator_.as_matrix(theta.shape[1], theta)
        self._feature_coef = plain(theta) if features.loses_digits(weighted) else None
        self._sums = sums.map(plain)
        self._cached_ridge = ridge

    def _solve_iteratively(
        self, falkon: Falkon, features: FeatureMap, source: Samples, sample: Block, alpha: Any
    ) -> None:
        self.criterion_value_ = None
        scales, rotation = self._outputs(sample.Y)
        # The features' factor, the preconditioner with two of its steps, and a factor for each distinct scale.
        p, matrices = sample.Y.shape[1], 4 + len(scales.unique())
        limit = block_limit(self.memory_limit, features.n_features, p, matrices=matrices, held=0)
        if not isinstance(alpha, float):
            outputs = self._outputs(sample.Y)
            found = pilot_alpha(features, source, sample, outputs, alpha, self.criterion, self.memory_limit)
            alpha, self.criterion_value_ = found
        self.alpha_ = alpha
        standing = getattr(features, "landmarks", None)
        coefficients, problem = falkon.solve(
            features,
            source,
            features(sample.X if standing is None else standing),
            shift=alpha * source.weight,
            weight=source.weight,
            scales=scales,
            rotation=rotation,
            limit=limit,
        )
        if problem is not None:
            warn_unconverged(f"Conjugate gradients {problem}, or use solver='direct'.")
        self.dual_coef_ = self._shaped(features.coefficients(coefficients.to(features.dtype)))

    def _held_block(self) -> Block:
        """The samples that were kept, as tensors."""
        assert self._held is not None
        return self._held.block(self._operator_kernel(), self._represented)

    def _add_batch(self, block: Block, alpha: float | np.ndarray | None) -> None:
        """More samples: their sums are added, and the system is solved again."""
        assert isinstance(self._sums, NormalSums) and self._held is not None
        if (p := block.Y.shape[1]) != self._sums.cross.shape[1]:
            raise ValueError(f"y has {p} outputs, but {self._sums.cross.shape[1]} before.")
        features, seen = self._feature_map(), self.n_samples_seen_
        limit = block_limit(self.memory_limit, features.n_features, p)
        fresh = InMemory(block).total(NormalStep(features), limit=limit)
        self._held = self._held.joined(block, seen, HELD_ROWS, self._seed)
        self.n_samples_seen_ = seen + len(block)
        self._solve_sums(self._sums.map(torch.from_numpy) + fresh, alpha, limit)

    # -- the fitted function ------------------------------------------------------------------------------------------
    def _large_ridge(self) -> NormalRidge | SeparateRidge:
        """The normal equations of the fit, for leverages and variances."""
        check_is_fitted(self)
        if self._sums is None:
            raise ValueError(
                "Standard deviations and leave-one-out predictions need the normal equations, and this fit went by "
                "conjugate gradients. Use solver='direct', or fewer landmarks."
            )
        if "_cached_ridge" not in self.__dict__:
            self._cached_ridge = self._ridge_of(self._sums.map(torch.from_numpy))
        return self._cached_ridge

    @property
    def _by_features(self) -> bool:
        return self._state is not None and (self.landmarks_ is None or self._feature_coef is not None)

    def _large_mean(self, inputs: Any) -> Tensor:
        """φ(x)ᵀU A in blocks."""
        features = self._feature_map()
        known = self.dual_coef_ if self._feature_coef is None else self._feature_coef
        theta = self._represented.tensor(known.reshape(len(known), -1))
        weighted = theta @ self.operator_.as_matrix(theta.shape[1], theta)
        rows = row_blocks(len(inputs), 3 * features.n_features * theta.element_size())
        return torch.cat([features(inputs[block]) @ weighted for block in rows])

    def _left_out(self, block: Block) -> tuple[Tensor, Tensor]:
        """y_i − f₋ᵢ(x_i), and its variance in units of the prior's scale, for samples of the fit."""
        return leave_one_out(self._large_ridge(), self._feature_map(), block, self.alpha_)

    def _large_std(self, inputs: Any) -> Tensor:
        """The deviations of new observations, as for the exact fit."""
        ridge, features = self._large_ridge(), self._feature_map()
        held = self._held_block()
        kept = np.arange(len(held)) if held.weights is None else (held.weights > 0).nonzero()[:, 0].numpy()
        residuals, variances = self._left_out(held.rows(kept))
        scale = (residuals**2 / variances).nanmean(0)
        own = self.operator_.as_matrix(len(scale), scale).diagonal()
        return predictive_std(ridge, features, inputs, self.alpha_, scale, own).to(features.dtype)

    def _large_loo(self) -> np.ndarray:
        """Leave-one-out predictions of the training samples."""
        kernel, tensor = self._operator_kernel(), self._represented.tensor
        weights = None if self._weights is None else tensor(self._weights)
        block = Block(self._represented.inputs(kernel, self.X_fit_), tensor(self._targets), weights)
        found = plain(block.Y.double() - self._left_out(block)[0])
        if self._missing:  # a target that is not there is left out of the fit itself
            found = np.where(np.isnan(found), self.predict(self.X_fit_).reshape(found.shape), found)
        return found[:, 0] if self._flat else found
