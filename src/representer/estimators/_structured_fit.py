"""How a structured predictor is fitted: what it is given, the problem that makes, its solution."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.data import as_scipy, count, is_single, plain, take
from representer.estimators._structured import (
    FORMS,
    Problem,
    counted,
    exact_inputs,
    exact_outputs,
    has_axes,
    labelled_outputs,
    landmark_inputs,
    landmark_outputs,
)
from representer.estimators._structured_answers import Answers
from representer.estimators._structured_large import SummedProblem, as_pair, summed_problem
from representer.estimators._structured_search import (
    OUTPUT_FACTORS,
    Choice,
    choose,
    learn_kernel,
    rescaled,
    validate,
)
from representer.estimators.validation import (
    DTYPES,
    check_alpha,
    check_counts,
    check_device,
    check_inputs,
    check_options,
    check_outputs,
    seed_of,
    warn_unconverged,
)
from representer.functions import Embedding
from representer.kernels import Kernel, Linear, as_kernel
from representer.kernels.columns import as_records
from representer.linalg.memory import BLOCK_BYTES, as_bytes, require
from representer.operators import ConditionalCovariance, Covariance, Identity, Operator, PrincipalComponents
from representer.operators.adapted import original, silent_repairs, takes_sparse
from representer.operators.outputs import DataDriven
from representer.optimize import HistoryEntry
from representer.parameters import is_count, is_real
from representer.preimage import Candidates, Decoder, LabelSet, as_decoder
from representer.samples.in_memory import Block, InMemory, Samples

# Beyond it, an exact fit chooses its numbers on a random subset; kernels are learned on half as many.
LARGEST_SEARCH = 2000


class StructuredFit(Answers):
    """The fitting of ``StructuredPredictor``, whose arguments these are."""

    output_kernel: Any
    operator: Any
    alpha: Any
    epsilon: Any
    n_components: Any
    center: bool
    decoder: Any
    criterion: str
    task_loss: Any
    cv: Any
    approximation: Any
    memory_limit: Any
    tol: float
    random_state: Any
    history_: list[HistoryEntry]
    _settings: tuple[Any, tuple[Any, Any] | None, bool]

    def _prepare(
        self, X: Any, y: Any, callback: Any, seed: int | None = None
    ) -> tuple[Kernel, Any, Tensor | None, int]:
        """Check and keep the data, the kernels and the decoder; the input kernel and the inputs to compute with."""
        self._check()
        self._settings = copy.deepcopy((self._form()[0], self._approximations(), bool(self.center)))
        given, output = (
            as_kernel(getattr(self, name), argument=name).__sklearn_clone__().numbers()
            for name in ("kernel", "output_kernel")
        )
        self.X_fit_ = check_inputs(self, X, given.domain, reset=True, sparse=takes_sparse(given))
        labelled = self._keep_outputs(output, y)
        self._use_outputs(output.resolve(self._outputs(output, self.Y_fit_)))
        self._guard_memory()
        inputs, adapted = self._inputs(given, self.X_fit_), self._adapted(given)
        self._seed = seed = seed_of(self.random_state) if seed is None else seed
        self._labelled = None if labelled is None else labelled.numpy()
        self.__dict__.pop("_cached_root", None)
        kernel = adapted.resolve(inputs)
        self.history_, self.n_iter_ = [], 1
        if free := adapted.free():
            with silent_repairs():
                kernel = self._learned(kernel, free, inputs, labelled, seed, callback)
        self.kernel_ = original(kernel)
        return kernel, inputs, labelled, seed

    def _check(self) -> None:
        check_options(self, {"criterion": ("loo", "validation"), "dtype": tuple(DTYPES)})
        check_counts(self, {"max_iter": 1, "n_restarts": 1, "verbose": 0})
        check_alpha(self.alpha)
        check_device(self.device)
        if not (is_real(self.tol) and self.tol > 0):
            raise ValueError(f"tol must be a positive number; got {self.tol!r}.")
        if not (isinstance(self.epsilon, str) and self.epsilon == "auto") and not (
            is_real(self.epsilon) and 0 < self.epsilon < np.inf
        ):
            raise ValueError(f"epsilon must be a positive number or 'auto'; got {self.epsilon!r}.")
        if not (isinstance(self.n_components, str) and self.n_components == "auto") and not is_count(
            self.n_components
        ):
            raise ValueError(f"n_components must be a positive integer or 'auto'; got {self.n_components!r}.")
        if not isinstance(self.center, bool | np.bool_):
            raise ValueError(f"center must be True or False; got {self.center!r}.")
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
        as_bytes(self.memory_limit)
        self._approximations()
        self._form()

    def _form(self) -> tuple[Any, float | None, int | None]:
        """The operator's name, or the operator itself, with the epsilon and the components that are given."""
        operator = self.operator
        epsilon = None if isinstance(self.epsilon, str) else float(self.epsilon)
        components = None if isinstance(self.n_components, str) else int(self.n_components)
        if isinstance(operator, str) and operator in FORMS:
            conditional, some = operator == "conditional_covariance", operator == "kpca"
            return operator, epsilon if conditional else None, components if some else None
        if isinstance(operator, Identity):
            return "identity", None, None
        if isinstance(operator, Covariance):
            return "covariance", None, None
        if isinstance(operator, ConditionalCovariance):
            operator.check_hyperparameters()
            self._refuse_two("epsilon", epsilon, float(operator.epsilon))
            return "conditional_covariance", float(operator.epsilon), None
        if isinstance(operator, PrincipalComponents):
            self._refuse_two("n_components", components, operator.checked())
            return "kpca", None, operator.checked()
        if isinstance(operator, Operator) and not isinstance(operator, DataDriven):
            return operator, None, None
        raise ValueError(
            f"operator must be one of {', '.join(map(repr, FORMS))} or an object from representer.operators; got "
            f"{operator!r}."
        )

    def _refuse_two(self, name: str, given: float | None, own: float) -> None:
        if given is not None and given != own:
            raise ValueError(f"{name}={given!r} contradicts operator={self.operator!r}; give it once.")

    def _approximations(self) -> tuple[Any, Any] | None:
        return as_pair(self.approximation)

    def _keep_outputs(self, output: Kernel, y: Any) -> Tensor | None:
        """Check and keep the outputs; the samples that have one, None for all."""
        if isinstance(y, Iterator):
            y = list(y)
        elif output.domain == "records" and not (y is None or isinstance(y, list)):
            y = as_records(y)
        elif y is not None and is_single(y):
            raise ValueError(f"y must hold one output for each sample; got {y!r:.80}.")
        found, labelled = labelled_outputs(output, y)
        self.Y_fit_, self._flat = check_outputs(output, found, reset=True)
        self._counted = counted(found) if output.domain == "vectors" else None
        n = len(self.Y_fit_) if labelled is None else len(y)
        if n != count(self.X_fit_):
            raise ValueError(f"X and y have inconsistent numbers of samples: {count(self.X_fit_)} and {n}.")
        form = self._form()[0]
        if labelled is not None and form != "conditional_covariance":
            raise ValueError(
                f"{n - len(labelled)} inputs have no output. They take part in operator='conditional_covariance' only; "
                f"leave them out for operator={self.operator!r}."
            )
        if len(self.Y_fit_) < 2 and self._chooses():
            raise ValueError(
                "Found n_samples=1: the criterion leaves samples out, so that at least 2 are needed. Give numbers for "
                "alpha and the rest to fit one sample."
            )
        return labelled

    def _chooses(self) -> bool:
        """Is something left to the criterion?"""
        form, epsilon, components = self._form()
        undecided = (form == "conditional_covariance" and epsilon is None) or (
            form == "kpca" and components is None
        )
        return not isinstance(check_alpha(self.alpha), float) or undecided or bool(self._free_outputs())

    def _free_outputs(self) -> list[str]:
        """What is to be chosen of the output kernel."""
        free = as_kernel(self.output_kernel).free() if self.criterion == "validation" else []
        if free and self.task_loss is None:
            raise ValueError(
                f"{free[0]!r} of the output kernel cannot be chosen by the distance in its own RKHS, which changes "
                "with it. Give task_loss=, a function of (y_true, y_pred), or a number."
            )
        return free

    def _guard_memory(self) -> None:
        """Estimate what a fit needs before anything of size n × n exists."""
        n, pair = count(self.X_fit_), self._approximations()
        if pair is None:
            # Measured peaks, in matrices: a Cholesky factor and its inverse; two eigendecompositions with products.
            plain_vectors = self._form()[0] == "identity" and self.output_kernel_.domain == "vectors"
            matrices = 3 if plain_vectors and not self._chooses() else 10
            elements = matrices * n**2
            advice = "Use approximation=Nystroem(m), fewer samples or dtype='float32'."
        else:
            if len(self.Y_fit_) == n:  # by sums, which ask for themselves
                return
            elements, advice = 4 * n * sum(a.size(n) for a in pair), "Use fewer landmarks."
        needed = elements * DTYPES[self.dtype].itemsize
        if needed > BLOCK_BYTES:  # less is not worth the question
            require(needed, what=f"A fit to {n} samples", advice=advice)

    # -- the problem --------------------------------------------------------------------------------------------------
    def _problem(
        self,
        kernel: Kernel,
        X: Any,
        Y: Any,
        labelled: Tensor | None,
        seed: int,
        *,
        source: Samples | None = None,
        exact: bool = False,
    ) -> Problem:
        """Of prepared inputs and outputs, or of all samples of a source; ``exact``: without the approximation."""
        form, pair, centred = self._settings  # those of the fit, also after set_params
        output, pair = self.output_kernel_, None if exact else pair
        on_axes = has_axes(output, Y)
        if isinstance(form, Operator):
            if not (isinstance(Y, Tensor) and isinstance(output, Linear)):
                raise ValueError(
                    f"operator={form!r} acts on the features of the outputs, which must be vectors with "
                    f"output_kernel='linear'; got {output!r}."
                )
            on_axes = True
        if pair is not None and labelled is None:
            every = source or InMemory(Block(X, Y))
            return summed_problem(self, kernel, every, form, on_axes=on_axes, seed=seed)
        if pair is None:
            inputs = exact_inputs(kernel, X, labelled)
        else:
            inputs = landmark_inputs(kernel, X, pair[0], labelled, seed)
        if pair is None or on_axes:
            outputs = exact_outputs(output, Y, self._like, centred=centred, on_axes=on_axes)
        else:
            adapted = self._adapted(output, repair=False) if output.domain != "vectors" else output
            outputs = landmark_outputs(adapted, Y, pair[1], seed, centred=centred)
        return Problem(inputs, outputs, form)

    def _subset(
        self, kernel: Kernel, X: Any, Y: Any, labelled: Tensor | None, size: int, seed: int
    ) -> tuple[Any, Any]:
        """Inputs and outputs of at most ``size`` random samples that have an output."""
        rows = torch.arange(count(Y)) if labelled is None else labelled
        chosen = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:size].sort().values
        inputs, outputs = take(X, rows[chosen]), take(Y, chosen)
        inputs = inputs[:, rows[chosen]] if kernel.domain == "gram" else inputs
        return inputs, outputs[:, chosen] if self.output_kernel_.domain == "gram" else outputs

    def _learned(
        self, kernel: Kernel, free: list[str], X: Any, labelled: Tensor | None, seed: int, callback: Any
    ) -> Kernel:
        """The kernel with what is free learned by leave-one-out, on a random subset of many samples."""
        Y = self._outputs(self.output_kernel_, self.Y_fit_)
        X, Y = self._subset(kernel, X, Y, labelled, LARGEST_SEARCH // 2, seed)
        found = learn_kernel(self, kernel, free, X, Y, seed, callback)
        self.history_ = found.history
        self.n_iter_ = max(1, len(found.history) - 1)
        learned: Any = found.kernel
        return self._adapted(original(learned.kernel))

    def _choose(
        self, kernel: Kernel, X: Any, labelled: Tensor | None, seed: int, source: Samples | None = None
    ) -> Problem:
        """Choose what is not given, and solve; ``source`` has all samples, if X does not."""
        _, epsilon, components = self._form()
        alpha = check_alpha(self.alpha)
        Y = self._outputs(self.output_kernel_, self.Y_fit_)
        problem = self._problem(kernel, X, Y, labelled, seed, source=source)
        if self.output_kernel_.domain != "vectors":
            problem.outputs.coordinates  # noqa: B018  repairs, or raises, if the outputs' Gram matrix is indefinite
        if not self._chooses() and not (self.history_ and self.criterion == "loo"):
            assert isinstance(alpha, float)
            choice = Choice(alpha, epsilon, components)
        elif self.criterion == "validation":
            problem, choice = self._validated(kernel, X, Y, labelled, seed, source)
        elif self.approximation is None and count(Y) > LARGEST_SEARCH:
            with silent_repairs():
                part = self._problem(
                    kernel, *self._subset(kernel, X, Y, labelled, LARGEST_SEARCH, seed), None, seed
                )
            found = choose(part, alpha, epsilon, components)
            choice = Choice(found.alpha, found.epsilon, found.n_components, found.value)
        else:
            choice = choose(problem, alpha, epsilon, components)
        self._solve(problem, choice)
        return problem

    def _validated(
        self, kernel: Kernel, X: Any, Y: Any, labelled: Tensor | None, seed: int, source: Samples | None
    ) -> tuple[Problem, Choice]:
        """The numbers of least task loss, those of the output kernel included, and their problem."""
        _, epsilon, components = self._form()
        best: tuple[Kernel, Problem, Choice] | None = None
        for output in rescaled(self.output_kernel_, self._free_outputs(), OUTPUT_FACTORS):
            try:
                self._use_outputs(output)
                problem = self._problem(kernel, X, Y, labelled, seed, source=source)
                alpha, first = check_alpha(self.alpha), best is None
                choice = validate(
                    self, problem, alpha, epsilon, components, labelled, seed, keep_partial=first
                )
            except KeyboardInterrupt:
                if best is None:
                    raise
                warn_unconverged("The search over output kernels was interrupted: the best so far is kept.")
                break
            if best is None or choice.better(best[2]):
                best = output, problem, choice
            if choice.partial:
                break
        assert best is not None
        self._use_outputs(best[0])
        return best[1], best[2]

    def _use_outputs(self, output: Kernel) -> None:
        """An output kernel with numbers, and the decoder for it."""
        self.output_kernel_ = output
        decoder = as_decoder(self.decoder)
        chooses = self._counted is not None and isinstance(decoder, Candidates | LabelSet)
        known = self.Y_fit_.astype(self._counted) if chooses else self.Y_fit_  # answers are what was given
        self.decoder_ = decoder.resolve(output, known)

    def _solve(self, problem: Problem, choice: Choice) -> None:
        """The fitted function at chosen numbers."""
        self.alpha_, self.epsilon_, self.criterion_value_ = choice.alpha, choice.epsilon, choice.value
        self._on_axes = problem.outputs.on_axes
        diagonal = choice.diagonal
        by_cholesky = problem.operator == "identity" and problem.inputs.gram is not None and diagonal is None
        calibrated = type(self.decoder_).calibrate is not Decoder.calibrate
        if by_cholesky and not calibrated:
            dual, theta = problem.plain_dual(choice.alpha), None
        else:
            diagonal = diagonal or problem.under(choice.epsilon, choice.n_components)
            dual, theta = problem.dual(diagonal, choice.alpha)
        components = None if problem.operator != "kpca" or diagonal is None else diagonal.vectors
        self.n_components_ = None if components is None else components.shape[1]
        offset = problem.outputs.offset(dual)
        self.dual_coef_ = plain(dual)
        self.offset_ = None if offset is None else plain(offset)
        features = problem.inputs.features
        self.landmarks_ = None if features is None else as_scipy(plain(features.landmarks))
        self.output_landmarks_ = None if features is None or self._on_axes else plain(problem.outputs.anchors)
        self._by_sums = isinstance(problem, SummedProblem)
        root = problem.operator_root(diagonal) if self._by_sums and diagonal is not None else None
        self._root = None if root is None else plain(root)
        self._keep_features(theta, problem.features if isinstance(problem, SummedProblem) else None)
        if calibrated:
            assert diagonal is not None
            weights = problem.loo_weights(diagonal, choice.alpha)
            held_out = Embedding(self.output_kernel_, self._output_anchors(), weights)
            self.decoder_ = self.decoder_.calibrate(held_out, problem.left_out(self.Y_fit_))

    def _operator_root(self) -> Tensor | None:
        """Of the fitted operator, made at first use and kept."""
        if self._by_sums:
            return None if self._root is None else self._represented.tensor(self._root)
        if "_cached_root" not in self.__dict__:
            kernel = self._adapted(self.kernel_)
            labelled = None if self._labelled is None else torch.from_numpy(self._labelled)
            with silent_repairs():  # fit has said it
                inputs = self._inputs(kernel, self.X_fit_)
                outputs = self._outputs(self.output_kernel_, self.Y_fit_)
                problem = self._problem(kernel, inputs, outputs, labelled, self._seed)
                diagonal = problem.under(self.epsilon_, self.n_components_)
            self._cached_root = problem.operator_root(diagonal)
        return self._cached_root
