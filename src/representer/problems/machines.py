"""Deep machines as users state them, and what is made of that: layers, compositions, stacks of shallow fits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from representer.functions import Composed, Layer, Stacked
from representer.kernels import Kernel, Matern, Polynomial, Stack, as_kernel, stack_of
from representer.operators import Decomposable, OperatorKernel, Representation, as_operator_kernel, takes_gaps
from representer.optimize import SearchSettings
from representer.problems.composition import (
    Composition,
    Loss,
    convex_loss,
    custom_loss,
    interpolation_loss,
    mean_squared_error,
    squared_loss,
)
from representer.problems.deep import DeepModel, SeenSamples, Splits
from representer.problems.depth import LARGEST_LAYER, DepthProblem, LightRegression, deepened
from representer.problems.ridge import RidgeModel, RidgeProblem, warn_of_raised
from representer.problems.separate import separate_problems
from representer.problems.stack import (
    SHRINKAGE,
    FittedMember,
    LeastSquares,
    Stacking,
    StackProblem,
    StackSolution,
    by_likelihood,
)
from representer.samples import Data, Samples, SparseRows, is_dask, plain
from representer.systems import Criterion, interpolation_error
from representer.values import argument_repr, is_count, is_real

# An interpolant that misses the data by more than this share of the largest target is reported.
INTERPOLATED = 1e-6


# -- layers -----------------------------------------------------------------------------------------------------------
def as_layer(stated: object) -> Layer:
    """A layer from a layer, a size (of an affine map), or a pair of kernel and size."""
    if isinstance(stated, Layer):
        return stated
    if is_count(stated):
        return Layer(Polynomial(1, gamma="scale"), int(stated))
    if isinstance(stated, tuple | list) and len(stated) == 2:
        kernel, size = stated
        function = callable(kernel) and not isinstance(kernel, Kernel | OperatorKernel)
        return Layer(as_kernel(kernel) if function else kernel, size)
    raise ValueError(
        f"layers lists sizes, pairs (kernel, size) or Layer(kernel, size, …) from the input on; got {stated!r}."
    )


def checked_layer(stated: object) -> Layer:
    """A copy of a layer with an operator-valued kernel."""
    layer = as_layer(stated).__sklearn_clone__()
    layer.check()
    return layer.replaced(kernel=as_operator_kernel(layer.kernel, layer.operator), operator=None)


def scalar_kernel(kernel: OperatorKernel) -> Kernel | OperatorKernel:
    """A scalar kernel as such."""
    return kernel.kernel if isinstance(kernel, Decomposable) and kernel.operator is None else kernel


def scalar_layer(layer: Layer) -> Layer:
    """A layer with a scalar kernel shown as such."""
    kernel = layer.kernel
    if isinstance(kernel, Decomposable):
        return layer.replaced(kernel=kernel.kernel, operator=kernel.operator, alpha=float(layer.alpha))
    return layer.replaced(alpha=float(layer.alpha))


# -- compositions -----------------------------------------------------------------------------------------------------
def in_target_units(composition: Composition, unit: float) -> Composition:
    """The composition for targets y / unit: penalties of inner layers, beside a squared loss, are in units of y²."""
    layers = [
        layer if isinstance(layer.alpha, str) else layer.replaced(alpha=float(layer.alpha) / unit / unit)
        for layer in composition.layers
    ]
    alphas = [layer.alpha for layer in layers if not isinstance(layer.alpha, str)]
    if not all(0.0 < alpha < math.inf for alpha in alphas):
        raise ValueError(
            f"The targets are of the size {unit:.1g}, and penalties of inner layers are in units of their squares: "
            "beside these they are beyond the range of numbers. Divide y by its deviation, or give layers alpha='auto'."
        )
    return Composition(layers, composition.kernel, composition.alpha)


def without_search(composition: Composition, loss: object) -> Composition:
    """What words stand for where no error on new data can choose: interpolation takes 1 for every alpha."""
    alphas = [name for name in composition.free() if name == "alpha" or name.endswith("__alpha")]
    stuck = [name for name in composition.free() if name not in alphas]
    if stuck or loss != "interpolate":
        raise ValueError(
            f"loss={loss!r} has no criterion by which {', '.join(stuck or alphas)} could be learned. Give "
            "numbers for all of them, those of the layers by Layer(kernel, size, alpha=…)."
        )
    return composition.replace(dict.fromkeys(alphas, 1.0))


# -- machines ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Machine:
    """What a user says of a deep machine.

    Parameters
    ----------
    layers : "auto" or list
        The inner layers from the input on.
    kernel : Kernel, OperatorKernel, Stack or str
        The outer kernel, or several.
    alpha : float or "auto"
        The penalty of the outer function.
    loss : str or callable
    has_own_penalty : bool
        Is ‖f‖² replaced by a function of the user?
    is_approximate : bool
    intercept : bool
    criterion : str
    goes_on : bool
        Does a search begin where the last one has ended?
    """

    layers: str | list[object] | tuple[object, ...]
    kernel: object
    alpha: float | str
    loss: object
    has_own_penalty: bool = False
    is_approximate: bool = False
    intercept: bool = True
    criterion: str = "auto"
    goes_on: bool = False

    def check_layers(self) -> None:
        """Refuse what is neither "auto" nor a list."""
        layers = self.layers
        if not (isinstance(layers, list | tuple) or (isinstance(layers, str) and layers == "auto")):
            raise ValueError(f"layers must be 'auto' or a list, such as [2] or [('rbf', 3), 2]; got {layers!r}.")

    @property
    def may_stack(self) -> bool:
        """May a fit be one of shallow kernels, in which the data decide on inner layers?"""
        layers = self.layers
        unlayered = layers == "auto" if isinstance(layers, str) else isinstance(layers, list | tuple) and not layers
        return unlayered and self.loss == "squared" and not (self.has_own_penalty or self.is_approximate)

    def stack(self, X: Data) -> Stack | None:
        """The shallow kernels of a fit in which the data decide on inner layers; None of a fit of one composition."""
        self.check_layers()
        if is_dask(X) or not self.may_stack:
            return None
        if self.goes_on:
            raise ValueError(
                "warm_start=True goes on from the inner layers of the last fit, and here the data decide on layers "
                f"anew at every fit; got layers={self.layers!r}. Give them, layers=[2] for instance, or "
                "warm_start=False."
            )
        stack = stack_of(self.kernel, X)
        if stack is None and self.layers == "auto":
            kernel = as_operator_kernel(self.kernel, None)
            scalar = isinstance(kernel, Decomposable) and kernel.operator is None and kernel.domain == "vectors"
            return Stack([kernel]) if scalar else None
        return stack and Stack([as_operator_kernel(k, None) for k in stack.kernels], stack.weights, stack.alphas)

    def composition(self) -> Composition:
        """The machine as one value, with copies of all kernels; an automatic layer has its largest size."""
        layers, kernel = self.layers, self.kernel
        if isinstance(kernel, Stack):
            raise ValueError(
                f"A Stack of outer kernels needs layers='auto' or [], loss='squared' and no approximation or penalty; "
                f"got layers={layers!r}, loss={self.loss!r}. Give one outer kernel."
            )
        if isinstance(kernel, str) and kernel == "auto":
            kernel = Matern(0.5) if self.loss == "interpolate" else "rbf"
        outer = as_operator_kernel(kernel, None)
        if isinstance(layers, str):
            layers = [LARGEST_LAYER] if outer.domain == "vectors" else []
        inner = [checked_layer(layer) for layer in layers]
        later = [(f"Layer {i} of layers", layer.domain) for i, layer in enumerate(inner)][1:]
        for who, domain in [*later, ("The outer kernel", outer.domain)] if inner else []:
            if domain != "vectors":
                raise ValueError(
                    f"{who} takes data of the kind {domain!r}, but it gets the values of the layer before it, which "
                    "are vectors. Only the first kernel sees the data themselves."
                )
        return Composition(inner, outer, self.alpha)

    def stated_loss(self, alpha: float | str, epsilon: float, delta: float, separation: float, penalty: object) -> Loss:
        """The loss that a user states: by its name and its numbers, or as a function, with a penalty of their own."""
        for name, value in (("epsilon", epsilon), ("separation", separation), ("delta", delta)):
            if not (is_real(value) and 0 <= value < math.inf) or (name == "delta" and value == 0):
                least = "positive" if name == "delta" else "not negative"
                raise ValueError(f"{name} must be a finite number that is {least}; got {argument_repr(value)}.")
        if separation > 0 and self.loss != "interpolate":
            raise ValueError(
                f"separation={separation!r} is for loss='interpolate'; got loss={self.loss!r}. Leave it at 0."
            )
        if callable(self.loss) or penalty is not None:
            return self._own_loss(alpha, penalty)
        if self.loss == "squared":
            return squared_loss(self.intercept)
        if self.loss == "interpolate":
            return interpolation_loss(self.intercept, separation)
        options = {"epsilon": epsilon} if self.loss == "epsilon_insensitive" else {"delta": delta}
        return convex_loss(str(self.loss), self.intercept, **options)

    def _own_loss(self, alpha: float | str, penalty: object) -> Loss:
        """A loss or a penalty that is a function of the user."""
        if not callable(self.loss) and self.loss != "squared":
            raise ValueError(
                f"penalty= is for loss='squared' or a loss of your own; loss={self.loss!r} is penalised by alpha·‖f‖²."
            )
        function = self.loss if callable(self.loss) else mean_squared_error
        if penalty is None:
            return custom_loss(function, self.intercept, None)
        if not callable(penalty):
            raise ValueError(f"penalty must be None or a function of the squared norm; got {penalty!r}.")
        if isinstance(alpha, str):
            raise ValueError("alpha='auto' cannot be learned together with a penalty of your own; give a number.")
        return custom_loss(function, self.intercept, lambda squared_norm: alpha * penalty(squared_norm))

    def solve_stack(
        self,
        stack: Stack,
        samples: Samples,
        inputs: Data,
        stacking: Stacking,
        representation: Representation,
        splits: Callable[[SeenSamples], Splits],
        settings: SearchSettings,
        n_features: int | None,
    ) -> StackSolution:
        """Shallow fits with the kernels of a stack, and a composition beside them where ``layers="auto"`` lets it be.

        ``splits`` are the folds by which a composition is judged, ``settings`` those of its search.
        """
        criterion: Criterion = "gcv" if self.criterion == "gcv" else "loo"
        shallow_settings = SearchSettings(
            criterion,
            min(SearchSettings.max_iter, settings.max_iter),
            max(SearchSettings.tol, settings.tol),
            seed=settings.seed,
            verbose=settings.verbose,
            callback=settings.callback,
            deadline=settings.deadline,
        )
        # The members of a word are the library's choice; classes are decided by all of their codes.
        chosen = isinstance(self.kernel, str) and isinstance(stacking, LeastSquares)
        problems = self._shallow(stack, samples, inputs, representation, criterion, settings.seed, balanced=chosen)
        problems = [*by_likelihood(problems), *separate_problems(problems)] if chosen else problems
        # An inner layer is a function of all entries of a vector: sparse rows and gaps stay as they are.
        shallow_data = stack.domain != "vectors" or isinstance(inputs, SparseRows) or takes_gaps(stack)
        if self.layers != "auto" or shallow_data:
            weights = None if isinstance(stack.weights, str) else np.asarray(stack.weights, dtype=np.float64)
            shallow = StackProblem(problems, stacking, weights)
            solution = shallow.solve(shallow.choose(shallow_settings))
            warn_of_raised(solution.solutions)
            return solution
        assert n_features is not None
        loss = squared_loss(self.intercept)

        def deepen(samples: Samples, inputs: Data, members: list[FittedMember]) -> list[LightRegression]:
            return [
                LightRegression(
                    samples,
                    DeepModel(composition, loss, splits, metric=metric),
                    representation,
                    seed=settings.seed,
                    inputs=inputs,
                )
                for composition, metric in deepened(members, stacking, n_features, self.alpha)
            ]

        problem = DepthProblem(problems, stacking, deepen, settings)
        solution = problem.solve(problem.choose(shallow_settings))
        warn_of_raised(solution.solutions)
        return solution

    def _shallow(
        self,
        stack: Stack,
        samples: Samples,
        inputs: Data,
        representation: Representation,
        criterion: Criterion,
        seed: int,
        *,
        balanced: bool,
    ) -> list[RidgeProblem]:
        """The ridge problems of the kernels of a stack."""
        alpha = None if isinstance(self.alpha, str) else float(self.alpha)
        alphas = [alpha] * len(stack.kernels) if stack.alphas is None else list(map(float, stack.alphas))
        shrinkage = SHRINKAGE if len(stack.kernels) > 1 else 0.0
        return [
            RidgeProblem(
                samples,
                RidgeModel(kernel, own, criterion, intercept=self.intercept, shrinkage=shrinkage, balanced=balanced),
                representation,
                seed=seed,
                inputs=inputs,
            )
            for kernel, own in zip(stack.kernels, alphas, strict=True)
        ]


# -- interpolants -----------------------------------------------------------------------------------------------------
class Doubt(NamedTuple):
    """What speaks against an interpolant, and whether it ``misses`` the data."""

    message: str
    misses: bool


def interpolation_doubt(function: Composed | Stacked, seen: SeenSamples) -> Doubt | None:
    """What speaks against an interpolant: images too close together, or a kernel that is too smooth."""
    targets = plain(seen.block.Y)
    gap, size = np.abs(plain(function(seen.inputs)) - targets).max(), np.abs(targets).max()
    if not gap <= INTERPOLATED * size:
        reason = "the inner layers map samples too close together. Lower their alpha, rescale y, or use separation="
        if not (isinstance(function, Composed) and function.inner):
            reason = "the kernel is too smooth to tell them apart. Use kernel='auto' or Matern(0.5)"
        message = f"The interpolant misses the data by up to {gap:.2g} (largest target {size:.2g}): {reason}."
        return Doubt(message, misses=True)
    error = interpolation_error(function)
    spread = float(((targets - targets.mean(0)) ** 2).sum(1).mean())
    if error is None or not error > spread > 0:
        return None
    message = (
        f"The interpolant predicts a sample that is left out worse than the mean of the others does (R² "
        f"{1.0 - error / spread:.2g}): the outer kernel is too smooth for these targets. Use kernel='auto' or "
        "Matern(0.5), or loss='squared' if the targets are noisy."
    )
    return Doubt(message, misses=False)
