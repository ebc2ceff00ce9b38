"""What deep kernel machines share: their arguments, and what they can do once fitted."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from representer.approximation import LandmarkFeatures, Nystroem, landmark_features
from representer.data import SparseRows, plain
from representer.estimators._callbacks import CallbackSupportMixin, iteration_callback
from representer.problems.composition import Composition
from representer.problems.deep import DeepFit, Settings, Solution
from representer.problems.fixed_gram import Restore, precompute
from representer.problems.losses import Loss
from representer.estimators.validation import (
    DTYPES,
    KernelEstimator,
    as_operator_kernel,
    check_bare,
    check_counts,
    check_device,
    check_inputs,
    check_options,
    seed_of,
    warn_unconverged,
)
from representer.functions import Expansion, Layer, Network
from representer.kernels import Kernel, Polynomial, Pullback, as_kernel
from representer.linalg import repair_gram, row_product
from representer.linalg.memory import as_bytes, row_blocks
from representer.operators import Decomposable, OperatorKernel
from representer.operators.adapted import Representation, silent_repairs, takes_sparse
from representer.parameters import is_count, is_real

# The automatic layer is an affine map of all features, or to at most this many dimensions.
LARGEST_AUTO = 20


def as_layer(given: Any) -> Layer:
    """A layer from a layer, a size (of an affine map), or a pair of kernel and size."""
    if isinstance(given, Layer):
        return given
    if is_count(given):
        return Layer(Polynomial(1, gamma="scale"), int(given))
    if isinstance(given, tuple | list) and len(given) == 2:
        kernel, size = given
        function = callable(kernel) and not isinstance(kernel, Kernel | OperatorKernel)
        return Layer(as_kernel(kernel) if function else kernel, size)
    raise ValueError(
        f"layers lists sizes, pairs (kernel, size) or Layer(kernel, size, …) from the input on; got {given!r}."
    )


class DeepKernelMachine(CallbackSupportMixin, KernelEstimator):
    """f_1 ∘ … ∘ f_L with every f_l in the RKHS of a kernel: what the regressor and the classifier share."""

    layers: Any
    loss: Any
    alpha: Any
    fit_intercept: bool
    criterion: str
    cv: Any
    approximation: Nystroem | None
    memory_limit: Any = None
    _outer_sums: Any  # where the outer function was fitted by sums
    _feature_coef: np.ndarray | None = None  # where it is known better by its features
    n_restarts: int
    max_iter: int
    tol: float
    random_state: Any
    verbose: int
    device: str | None
    dtype: str

    # -- arguments ----------------------------------------------------------------------------------------------------
    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Get parameters, with ``deep`` also those of the layers, as ``layers__0__alpha``."""
        params = super().get_params(deep)
        if deep and isinstance(self.layers, list | tuple):
            for i, layer in enumerate(self.layers):
                if isinstance(layer, Layer):
                    params |= {f"layers__{i}__{name}": value for name, value in layer.get_params().items()}
        return params

    def set_params(self, **params: Any) -> Any:
        """Set parameters, those of a layer by ``layers__0__alpha``."""
        nested = {name: value for name, value in params.items() if name.startswith("layers__")}
        super().set_params(**{name: value for name, value in params.items() if name not in nested})
        for name, value in nested.items():
            _, index, rest = [*name.split("__", 2), ""][:3]
            layers = {str(i): layer for i, layer in enumerate(self.layers) if isinstance(layer, Layer)}
            if index not in layers or not rest:
                raise ValueError(
                    f"Invalid parameter {name!r} for {type(self).__name__}: it is set by layers__0__alpha and the "
                    f"like, where the layer is a Layer(kernel, size); layers={self.layers!r}."
                )
            layers[index].set_params(**{rest: value})
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        first = self.kernel
        if isinstance(self.layers, list | tuple) and len(self.layers):
            try:
                layer = as_layer(self.layers[0])
                first, tags.input_tags.pairwise = layer.kernel, layer.domain == "gram"
            except ValueError:  # fit will say what is wrong
                first, tags.input_tags.pairwise = None, False
        tags.input_tags.sparse = not isinstance(self.layers, str) and takes_sparse(first)
        return tags

    def _check_arguments(self, losses: tuple[str, ...]) -> None:
        check_options(self, {"criterion": ("auto", "validation", "loo", "gcv"), "dtype": tuple(DTYPES)})
        if not callable(self.loss):
            check_options(self, {"loss": losses})
        check_counts(self, {"max_iter": 1, "n_restarts": 1, "verbose": 0})
        check_device(self.device)
        as_bytes(self.memory_limit)
        if isinstance(self.cv, int | np.integer) and self.cv < 2:
            raise ValueError(f"cv must be at least 2 folds, or a splitter of scikit-learn; got {self.cv!r}.")
        if self.approximation is not None and self.loss != "squared":
            raise ValueError(f"approximation= is for loss='squared'; got loss={self.loss!r}.")
        if not (is_real(self.tol) and self.tol > 0):
            raise ValueError(f"tol must be a positive number; got {self.tol!r}.")
        auto = isinstance(self.alpha, str) and self.alpha == "auto"
        if not (auto or (is_real(self.alpha) and 0 < self.alpha < math.inf)):
            raise ValueError(
                f"alpha must be positive and finite (mean loss + alpha·‖f‖²), or 'auto'; got {self.alpha!r}."
            )
        if not isinstance(self.fit_intercept, bool | np.bool_):
            raise ValueError(f"fit_intercept must be True or False; got {self.fit_intercept!r}.")
        if self.approximation is not None and not isinstance(self.approximation, Nystroem):
            raise ValueError(f"approximation must be None or Nystroem(...); got {self.approximation!r}.")
        check_bare(self.approximation)
        m = "auto" if self.approximation is None else self.approximation.n_components
        if not (is_count(m) or (isinstance(m, str) and m == "auto")):
            raise ValueError(f"n_components of Nystroem must be a positive integer or 'auto'; got {m!r}.")
        if not (
            isinstance(self.layers, list | tuple) or (isinstance(self.layers, str) and self.layers == "auto")
        ):
            raise ValueError(
                f"layers must be 'auto' or a list, such as [2] or [('rbf', 3), 2]; got {self.layers!r}."
            )

    def _composition(self) -> Composition:
        """The arguments as one value, with copies of all kernels; an automatic layer has no size yet."""
        kernel = as_operator_kernel(self.kernel, None)
        given = self.layers
        if isinstance(given, str):
            given = [LARGEST_AUTO] if kernel.domain == "vectors" else []
        layers = [as_layer(each).__sklearn_clone__() for each in given]
        for layer in layers:
            layer.check()
            layer.kernel, layer.operator = as_operator_kernel(layer.kernel, layer.operator), None
        later = [(f"Layer {i} of layers", layer.domain) for i, layer in enumerate(layers)][1:]
        for who, domain in [*later, ("The outer kernel", kernel.domain)] if layers else []:
            if domain != "vectors":
                raise ValueError(
                    f"{who} takes data of the kind {domain!r}, but it gets the values of the layer before it, which "
                    "are vectors. Only the first kernel sees the data themselves."
                )
        return Composition(layers, kernel, self.alpha)

    # -- fitting ------------------------------------------------------------------------------------------------------
    def _tensor(self, array: Any) -> Tensor:
        writeable = np.require(array, requirements=["C", "W"])
        return torch.as_tensor(writeable, dtype=self._dtype, device=self.device)

    def _prepared(self, kernel: Any, X: Any) -> Any:
        return Representation(self._dtype, self.device, self._sparse).inputs(kernel, X)

    def _solve(
        self,
        composition: Composition,
        X: Any,
        Y: np.ndarray,
        loss: Loss,
        labels: np.ndarray | None,
        context: Any,
    ) -> tuple[DeepFit, Solution]:
        """Fit, and keep what is public of it."""
        self._dtype, self._outer_sums = DTYPES[self.dtype], None
        if isinstance(self.layers, str) and composition.layers:
            composition.layers[0].size = min(LARGEST_AUTO, X.shape[1])
        self._sparse = isinstance(X, SparseRows)
        data = self._prepared(composition.input_kernel, X)
        if composition.input_kernel.domain == "gram":
            data = repair_gram(data)
        if not loss.learnable and composition.free():
            composition = self._without_search(composition)
        targets = self._tensor(Y)
        composition, data, restore = precompute(composition, data, targets, once=self.approximation is None)
        settings = Settings(
            self.criterion,
            self.cv,
            self.approximation,
            self.n_restarts,
            self.max_iter,
            self.tol,
            seed_of(self.random_state),
            self.verbose,
            iteration_callback(self, context),
        )
        fit = DeepFit(composition, data, targets, loss, labels, settings)
        with restore.advice():
            solution = fit.run()
        if restore.needs_repair(learned := solution.problem.composition):
            composition, data, restore = precompute(restore.composition(learned), restore.data, targets)
            fit = replace(fit, composition=composition, X=data)
            solution = replace(fit.run(), choice=solution.choice)
        self._keep(solution, restore)
        return fit, solution

    def _without_search(self, composition: Composition) -> Composition:
        """What words stand for where no error on new data can choose: interpolation takes 1 for every alpha."""
        alphas = [name for name in composition.free() if name == "alpha" or name.endswith("__alpha")]
        stuck = [name for name in composition.free() if name not in alphas]
        if stuck or self.loss != "interpolate":
            raise ValueError(
                f"loss={self.loss!r} has no criterion by which {', '.join(stuck or alphas)} could be learned. Give "
                "numbers for all of them, those of the layers by Layer(kernel, size, alpha=…)."
            )
        return composition.replace(dict.fromkeys(alphas, 1.0))

    def _keep(self, solution: Solution, restore: Restore) -> None:
        problem, choice, result = solution.problem, solution.choice, solution.result
        if solution.interrupted:
            stage = "hyperparameters" if choice is not None and choice.interrupted else "the inner layers"
            warn_unconverged(
                f"The fit was interrupted during the search over {stage}; the best so far is kept."
            )
        elif result is not None and not result.converged:
            warn_unconverged(f"The search over the inner layers: {result.message}. The best restart is kept.")
        self._feature_coef = None
        self.__dict__.pop("_cached_features", None)
        outer, intercept, _ = problem.solve(solution.point)
        chain = problem.chain
        inner = [] if chain is None else chain.expansions(chain.split(solution.point))
        functions = [*inner, outer]
        self.layer_norms_ = [math.sqrt(max(f.squared_norm().item(), 0.0)) for f in functions]
        self._functions = [_moved(function, "cpu") for function in restore.functions(functions)]
        composition = restore.composition(problem.composition)
        self.kernel_ = _plain_kernel(composition.kernel)
        self.layers_ = [_plain_layer(layer) for layer in composition.layers]
        self.alpha_ = float(composition.alpha)
        self.dual_coef_ = plain(self._functions[-1].coefficients)
        self.intercept_ = plain(intercept)
        self.objective_value_ = solution.value
        self.criterion_value_ = None if choice is None or math.isnan(choice.value) else choice.value
        self.search_history_ = [] if choice is None else choice.history
        self.history_ = [] if result is None else result.history
        self.n_iter_ = 1 if result is None else max(1, result.n_iter)

    # -- the fitted composition ---------------------------------------------------------------------------------------
    def _inputs(self, X: Any) -> Any:
        check_is_fitted(self)
        kernel = self._functions[0].kernel
        sparse = takes_sparse(kernel)
        return self._prepared(kernel, check_inputs(self, X, kernel.domain, reset=False, sparse=sparse))

    def _placed(self) -> list[Expansion]:
        return [_moved(function, self.device) for function in self._functions]

    def _image(self, X: Any) -> Any:
        """What the outer function sees of checked inputs."""
        for function in self._placed()[:-1]:
            X = function(X)
        return X

    def _decide(self, image: Any) -> Tensor:
        """f_1 + b at images, (n, p)."""
        values = self._placed()[-1](image) if self._feature_coef is None else self._by_features_at(image)
        return values + self._tensor(self.intercept_)

    # -- the outer function of a fit by sums --------------------------------------------------------------------------
    @property
    def _by_features(self) -> bool:
        return self._feature_coef is not None

    def _outer_features(self) -> LandmarkFeatures:
        """Of images, on the landmarks of the outer function; made again after unpickling."""
        if "_cached_features" not in self.__dict__:
            outer = self._placed()[-1]
            assert isinstance(outer.kernel, Decomposable)  # as an approximation needs
            with silent_repairs():  # fit has said it
                self._cached_features = landmark_features(outer.kernel.kernel, outer.anchors)
        return self._cached_features

    def _keep_outer(self, theta: Tensor, intercept: Tensor) -> None:
        """φ(·)ᵀΘ + b is the outer function from now on."""
        features = self._outer_features()
        coefficients = features.coefficients(theta)
        self._functions[-1] = replace(self._functions[-1], coefficients=coefficients.cpu())
        self.dual_coef_, self.intercept_ = plain(coefficients), plain(intercept)
        self._feature_coef = plain(theta) if features.loses_digits(theta, intercept) else None

    def _by_features_at(self, image: Tensor) -> Tensor:
        """φ(z)ᵀΘ in blocks."""
        features, theta = self._outer_features(), self._tensor(self._feature_coef)
        rows = row_blocks(len(image), 3 * features.n_features * theta.element_size())
        return torch.cat([row_product(features(image[block]), theta) for block in rows])

    def transform_layers(self, X: Any) -> list[np.ndarray]:
        """Image of X under each inner layer, from the input on.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the first kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).

        Returns
        -------
        images : list of ndarray of shape (n_samples, size)
            What each layer but the outer one makes of X.
        """
        Z, images = self._inputs(X), []
        for function in self._placed()[:-1]:
            Z = function(Z)
            images.append(plain(Z))
        return images

    @property
    def deep_kernel_(self) -> Kernel:
        """The learned kernel K_1(f_2 ∘ … ∘ f_L(x), f_2 ∘ … ∘ f_L(y)): a kernel like any other."""
        check_is_fitted(self)
        outer = _plain_kernel(self._functions[-1].kernel)
        if not isinstance(outer, Kernel):
            raise AttributeError(
                f"The outer kernel {outer!r} is operator-valued: there is no scalar deep kernel. Its images are those "
                "of transform_layers."
            )
        if len(self._functions) == 1:
            return outer
        inner = Network(self._functions[:-1]).requires_grad_(False)
        return Pullback(outer, inner, domain=self._functions[0].kernel.domain)

    def to_torch(self) -> Network:
        """The fitted composition as a ``torch.nn.Module``, a network with one hidden layer for each layer.

        Returns
        -------
        network : torch.nn.Module
            Maps what the first kernel takes (a tensor of vectors, or Gram rows) to f_1 ∘ … ∘ f_L + b, of shape
            (n_samples, n_outputs). Its parameters are the coefficients and the intercept, its buffers the anchors.
        """
        check_is_fitted(self)
        return Network(self._functions, torch.as_tensor(self.intercept_))


def _moved(function: Expansion, device: str | None) -> Expansion:
    anchors = function.anchors.to(device) if isinstance(function.anchors, Tensor) else function.anchors
    return replace(function, anchors=anchors, coefficients=function.coefficients.detach().to(device))


def _plain_kernel(kernel: OperatorKernel) -> Kernel | OperatorKernel:
    """A scalar kernel as such."""
    return kernel.kernel if isinstance(kernel, Decomposable) and kernel.operator is None else kernel


def _plain_layer(layer: Layer) -> Layer:
    """With a scalar kernel shown as such."""
    kernel = layer.kernel
    if isinstance(kernel, Decomposable):
        return layer.replaced(kernel=kernel.kernel, operator=kernel.operator, alpha=float(layer.alpha))
    return layer.replaced(alpha=float(layer.alpha))
