"""Deep kernel regression and interpolation."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from representer.approximation import Nystroem
from representer.data import plain
from representer.problems import losses as _losses
from representer.estimators._callbacks import fitting
from representer.problems.composition import Composition
from representer.estimators._deep import DeepKernelMachine
from representer.problems.deep import DeepFit, Settings
from representer.problems.outer import SummedSpread, fit_outer, regression_part
from representer.problems.fixed_gram import precompute
from representer.estimators._lazy import lazily
from representer.problems.losses import Loss
from representer.problems.spread import PredictiveSpread
from representer.estimators.validation import as_operator_kernel, warn_unconverged
from representer.linalg import repair_gram
from representer.operators.adapted import silent_repairs
from representer.parameters import is_real
from representer.samples.on_dask import is_dask

# An interpolant that misses the data by more than this share of the largest target is reported.
INTERPOLATED = 1e-6
LOSSES = ("squared", "interpolate", "epsilon_insensitive", "huber")


class DeepKernelRegressor(MultiOutputMixin, RegressorMixin, DeepKernelMachine):
    """Regression on data whose features have to be transformed first, by a transformation that is learned with it.

    A kernel machine is as good as its kernel: a function with a kink along a diagonal, or one that depends on a few
    combinations of many features, is out of reach of an ordinary one. Here f = f_1 ∘ f_2 ∘ … ∘ f_L, each f_l in the
    RKHS of a kernel of its own, minimises mean loss + Σ_l α_l ‖f_l‖² (Bohn, Griebel and Rieger, 2019). The outer
    function is eliminated in closed form or by a convex solver; the inner ones are searched in orthonormal coordinates
    by L-BFGS with raced restarts. What ``"auto"`` leaves open (the α_l, kernel parameters) is learned by gradients of
    the error on new data.

    Parameters
    ----------
    layers : "auto" or list, default="auto"
        The inner layers from the input on. Each is a size (an affine map to so many dimensions), a pair
        ``(kernel, size)``, or ``Layer(kernel, size, alpha=…, operator=…, penalty=…)``; a kernel may be operator-valued,
        such as ``Separate``. An empty list is the single-layer machine. ``"auto"``: one affine map of all features, to
        at most 20 dimensions; none if ``kernel`` does not take vectors.
    kernel : Kernel, OperatorKernel or str, default="rbf"
        The outer kernel. A number in a kernel stays; a word lets the data decide it (``"median"``, at the images where
        the search starts), ``"auto"`` and ``"ard"`` by the criterion.
    loss : {"squared", "interpolate", "epsilon_insensitive", "huber"} or callable, default="squared"
        ``"interpolate"`` meets the data exactly and minimises α_1‖f_1‖² + Σ α_l‖f_l‖² (every ``"auto"`` is 1, as in the
        paper). A callable ``loss(F, Y)`` takes the values and the targets of all samples, tensors (n, p), and returns a
        differentiable scalar; then all alphas are numbers.
    alpha : float or "auto", default="auto"
        The weight of ‖f_1‖² beside the mean loss: n·alpha is the λ of Bohn et al. and scikit-learn's
        ``KernelRidge(alpha=)``; 1/(2n·alpha) is the C of ``SVR`` and ``SVC``. ``"auto"`` learns it, and likewise
        that of every layer.
    epsilon : float, default=0.1
        Half-width of the tube of ``loss="epsilon_insensitive"``, in units of y.
    delta : float, default=1.35
        Where ``loss="huber"`` turns from squared to absolute errors, in units of y.
    separation : float, default=0.0
        For ``loss="interpolate"``: the weight γ of Σ_{i<j} coth(‖z_i − z_j‖²), which keeps the images of samples apart.
    penalty : callable, default=None
        For squared loss or one of your own: a strictly increasing Θ that replaces ‖f_1‖² by Θ(‖f_1‖²).
    fit_intercept : bool, default=True
        Add a constant that costs nothing. False is the problem of the paper.
    criterion : {"auto", "validation", "loo", "gcv"}, default="auto"
        What chooses what is left to be learned: the error on held-out folds, for which the inner layers are fitted
        anew; or, for squared loss, a closed form for the outer function with the inner layers held fixed, which is
        cheaper and too optimistic for large inner layers or noisy targets. ``"auto"``: leave-one-out if the inner
        layers have fewer than one unknown for four samples and explain most of the variance, otherwise validation. At
        most 500 random samples are used.
    cv : int or splitter, default=5
        The folds of ``criterion="validation"``, as in scikit-learn; fewer where there are too few samples for so many.
    approximation : Nystroem, default=None
        For large data and squared loss: the outer function, and every inner one, is spanned by so many samples. Of more
        than 10,000 samples, inner layers see as many random ones; the outer function is then fitted to all, by sums
        over blocks, also on Dask, and its alpha chosen again.
    memory_limit : int, str or None, default=None
        What these sums may take beside the data, in bytes or as ``"2GB"``; None: what they need.
    n_restarts : int, default=4
        Starts of the search over the inner layers: kernel PCA, and random ones. They race: 64 cost a few times as much
        as one.
    max_iter : int, default=200
        Most iterations of that search.
    tol : float, default=1e-6
        It ends when the objective falls by less than this share, or its gradient is as small.
    random_state : int, RandomState instance or None, default=None
        Seed of the restarts, folds and subsets.
    verbose : int, default=0
        1: a progress bar for long searches. 2: also why they stopped.
    device : str, default=None
        Where to compute, as in ``torch.device``.
    dtype : {"float64", "float32"}, default="float64"
        Precision of the computation.

    Attributes
    ----------
    kernel_ : Kernel or OperatorKernel
        The outer kernel with the numbers that were used.
    layers_ : list of Layer
        The inner layers with the numbers that were used.
    alpha_ : float
        The weight of ‖f_1‖² that was used.
    deep_kernel_ : Kernel
        The learned kernel K_1(f_2 ∘ … ∘ f_L(x), f_2 ∘ … ∘ f_L(y)), for ``SVC(kernel=model.deep_kernel_)``,
        ``KernelPCA``, Gaussian processes (by ``estimators.GaussianProcessKernel``) and every learner of this library.
    dual_coef_ : ndarray of shape (n_anchors, n_outputs)
        The coefficients of f_1 on the images of the training samples (or landmarks).
    intercept_ : ndarray of shape (n_outputs,)
        The constant b.
    layer_norms_ : list of float
        ‖f_l‖ of every function from the input on, the outer one last.
    objective_value_ : float
        The objective that the search minimised, at its end.
    criterion_value_ : float or None
        The criterion at the chosen hyperparameters, None if nothing was chosen.
    history_ : list of HistoryEntry
        The search over the inner layers: iteration, seconds, objective, gradient norm, restarts alive.
    search_history_ : list of HistoryEntry
        The search over hyperparameters: the same, with the criterion.
    n_iter_ : int
        Iterations of the search over the inner layers; 1 if there are none.
    X_fit_ : ndarray or list
        The training inputs.
    n_features_in_ : int
        Number of features seen during fit (vectors and Gram matrices).
    feature_names_in_ : ndarray of str
        Names of the features, if X had string names.

    See Also
    --------
    OperatorRidge : One layer, with output operators and missing targets.
    DeepKernelClassifier : The same for class labels.

    Examples
    --------
    >>> import numpy as np
    >>> from representer import DeepKernelRegressor
    >>> from representer.kernels import Polynomial, TensorMatern
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (100, 2))
    >>> y = 1 / (0.1 + abs(X[:, 0] - X[:, 1]))  # a kink along the diagonal
    >>> one = DeepKernelRegressor([], TensorMatern(1, 1.0)).fit(X[:80], y[:80])
    >>> two = DeepKernelRegressor([(Polynomial(1), 2)], TensorMatern(1, 1.0), random_state=0).fit(X[:80], y[:80])
    >>> bool(two.score(X[80:], y[80:]) > 0.95 > one.score(X[80:], y[80:]))
    True
    """

    def __init__(
        self,
        layers: Any = "auto",
        kernel: Any = "rbf",
        loss: Any = "squared",
        alpha: Any = "auto",
        *,
        epsilon: float = 0.1,
        delta: float = 1.35,
        separation: float = 0.0,
        penalty: Any = None,
        fit_intercept: bool = True,
        criterion: str = "auto",
        cv: Any = 5,
        approximation: Nystroem | None = None,
        memory_limit: int | str | None = None,
        n_restarts: int = 4,
        max_iter: int = 200,
        tol: float = 1e-6,
        random_state: Any = None,
        verbose: int = 0,
        device: str | None = None,
        dtype: str = "float64",
    ):
        self.layers = layers
        self.kernel = kernel
        self.loss = loss
        self.alpha = alpha
        self.epsilon = epsilon
        self.delta = delta
        self.separation = separation
        self.penalty = penalty
        self.fit_intercept = fit_intercept
        self.criterion = criterion
        self.cv = cv
        self.approximation = approximation
        self.memory_limit = memory_limit
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose
        self.device = device
        self.dtype = dtype

    @fitting
    def fit(self, X: Any, y: Any) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the first kernel takes
            Training inputs; with a precomputed kernel, their Gram matrix. Fingerprints may be sparse. With an
            approximation, also a Dask array or DataFrame.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.

        Returns
        -------
        self : DeepKernelRegressor
            The fitted model.
        """
        context = self._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=self)
        self._check_arguments(LOSSES)
        composition = self._composition()
        loss = self._loss(composition)
        first = composition.input_kernel
        part = regression_part(self, first, X, y)
        X, targets = part.X, part.Y
        self.__dict__.pop("_cached_spread", None)
        self.X_fit_, self._targets = X, targets
        fit, solution = self._solve(composition, X, targets, loss, None, context)
        self._landmarks = solution.problem.landmarks
        self._squared, self._has_intercept = loss.squared, loss.intercept
        # Leave-one-out holds the inner layers fixed, and would not see that large ones adapt to samples: standard
        # deviations then take refits, which wait until somebody asks for them. What those need is kept here.
        self._refits: Settings | None = None
        if loss.squared and not fit.inner_is_small and len(targets) > 1:
            self._refits = replace(fit.settings, cv=fit.folds(), verbose=0, callback=None)
        if self.loss == "interpolate":
            self._check_interpolation(X, targets)
        if part.source is not None:
            fit_outer(self, part, solution)
        context.call_on_fit_task_end(estimator=self)
        return self

    def _check_interpolation(self, X: Any, targets: np.ndarray) -> None:
        """Warn if the data are not met, as happens when inner layers map samples too close together."""
        reached = plain(self._decide(self._image(self._prepared(self._functions[0].kernel, X))))
        gap, size = np.abs(reached - targets).max(), np.abs(targets).max()
        if not gap <= INTERPOLATED * size:
            warn_unconverged(
                f"The interpolant misses the data by up to {gap:.2g} (largest target {size:.2g}): the inner layers map "
                "samples too close together. Lower their alpha, rescale y, or use separation=."
            )

    def _loss(self, composition: Composition) -> Loss:
        """The loss that the arguments describe."""
        for name in ("epsilon", "separation", "delta"):
            value = getattr(self, name)
            if not (is_real(value) and 0 <= value < math.inf) or (name == "delta" and value == 0):
                least = "positive" if name == "delta" else "not negative"
                raise ValueError(f"{name} must be a finite number that is {least}; got {value!r}.")
        if self.separation > 0 and self.loss != "interpolate":
            raise ValueError(
                f"separation={self.separation!r} is for loss='interpolate'; got loss={self.loss!r}. Leave it at 0."
            )
        if callable(self.loss) or self.penalty is not None:
            return self._custom(composition)
        if self.loss == "squared":
            return _losses.squared(self.fit_intercept)
        if self.loss == "interpolate":
            return _losses.interpolation(self.fit_intercept, self.separation)
        options = {"epsilon": self.epsilon} if self.loss == "epsilon_insensitive" else {"delta": self.delta}
        return _losses.convex(self.loss, self.fit_intercept, **options)

    def _custom(self, composition: Composition) -> Loss:
        function = self.loss if callable(self.loss) else mean_squared_error
        if not callable(self.loss) and self.loss != "squared":
            raise ValueError(
                f"penalty= is for loss='squared' or a loss of your own; loss={self.loss!r} is penalised by alpha·‖f‖²."
            )
        if self.penalty is None:
            return _losses.custom(function, self.fit_intercept, None)
        if not callable(self.penalty):
            raise ValueError(f"penalty must be None or a function of the squared norm; got {self.penalty!r}.")
        alpha, penalty = composition.alpha, self.penalty
        if isinstance(alpha, str):
            raise ValueError(
                "alpha='auto' cannot be learned together with a penalty of your own; give a number."
            )
        return _losses.custom(
            function, self.fit_intercept, lambda squared_norm: alpha * penalty(squared_norm)
        )

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict targets.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the first kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).
        return_std : bool, default=False
            Also return the standard deviation of a new observation, noise included (squared loss only): f_1 is seen as
            a Gaussian process on the images of the inner layers. Its scale comes from leave-one-out residuals, or, if
            the inner layers are large enough to adapt to single samples, from those of refits without each fold, which
            the first call makes.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Predictions.
        std : ndarray like y
            Only with ``return_std``.
        """
        if is_dask(X):
            if return_std:
                raise ValueError("return_std=True is for data in memory; map it over the chunks yourself.")
            check_is_fitted(self)
            width = None if self._flat else self.dual_coef_.shape[1]
            return lazily(self, "predict", X, width, self.dual_coef_.dtype)
        image = self._image(self._inputs(X))
        mean = self._shaped(self._decide(image))
        return (mean, self._shaped(self._spread()(image))) if return_std else mean

    def _shaped(self, values: Tensor) -> np.ndarray:
        return plain(values)[:, 0] if self._flat else plain(values)

    def _spread(self) -> PredictiveSpread | SummedSpread:
        """Made at first use and kept."""
        if not self._squared:
            raise ValueError("return_std=True needs a fit with loss='squared' and no penalty=.")
        if "_cached_spread" not in self.__dict__ and self._outer_sums is not None:
            self._cached_spread: PredictiveSpread | SummedSpread = SummedSpread(self)
        if "_cached_spread" not in self.__dict__:
            outer = self._placed()[-1]
            if outer.kernel.domain == "gram":
                raise ValueError(
                    "return_std=True is impossible with a precomputed outer kernel: k(x, x) of new points is unknown."
                )
            data = self._prepared(self._functions[0].kernel, self.X_fit_)
            Z = self._image(data)
            targets = self._tensor(self._targets - self.intercept_)
            landmarks = None if self._landmarks is None else outer.anchors
            self._cached_spread = PredictiveSpread(
                outer.kernel,
                Z,
                targets,
                self.alpha_,
                intercept=self._has_intercept,
                landmarks=landmarks,
                residuals=self._held_out_residuals(data),
            )
        return self._cached_spread

    def _held_out_residuals(self, data: Any) -> Tensor | None:
        """Those of refits without each fold, if the inner layers are large; NaN for samples that no fold holds out."""
        if self._refits is None:
            return None
        Y = self._tensor(self._targets)
        images: list[Tensor] = []
        for function in self._placed()[:-1]:
            images.append(function(images[-1] if images else data))
        composition = Composition(list(self.layers_), as_operator_kernel(self.kernel_, None), self.alpha_)
        if composition.input_kernel.domain == "gram":
            data = repair_gram(data)
        once = self._refits.approximation is None
        with silent_repairs():  # fit has spoken of it
            composition, data, _ = precompute(composition, data, Y, once=once)
        fit = DeepFit(composition, data, Y, _losses.squared(self._has_intercept), None, self._refits)
        residuals = torch.full_like(Y, torch.nan)
        for decisions, rows in fit.held_out(composition, images):
            residuals[rows] = Y[rows] - decisions
        return residuals


def mean_squared_error(F: Any, Y: Any) -> Any:
    """1/n Σ‖y_i − f_i‖²."""
    return ((F - Y) ** 2).sum() / len(Y)
