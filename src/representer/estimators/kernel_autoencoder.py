"""Autoencoders for any data that has a kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_array
from torch import Tensor

from representer import preimage
from representer.approximation import Nystroem
from representer.estimators.base import KernelLearner, KernelLike, RandomState, fitting
from representer.estimators.deep_regressor import (
    DEEP_ARGUMENTS,
    DeepKernelRegressor,
    FoldRule,
    dask_samples,
    deep_attributes,
    last_solution,
)
from representer.estimators.validation import POSITIVE_OR_AUTO, Check, check_codes, check_inputs, seed_of
from representer.functions import Composed, Expansion, Layer
from representer.kernels import Kernel, as_kernel, is_frame, one_kernel, single_kernel
from representer.notices import warn
from representer.operators import OperatorKernel, as_operator_kernel, takes_gaps, takes_sparse
from representer.problems.autoencoder import (
    AutoencoderModel,
    AutoencoderProblem,
    FeatureSpace,
    GeneralizationBound,
    KernelSpace,
    TargetSpace,
    estimated_bound,
    explained,
)
from representer.problems.composition import Composition, squared_loss
from representer.problems.machines import as_layer, checked_layer
from representer.samples import Data, Samples, as_frame, frame_library, is_dask, label_columns, plain
from representer.values import COUNT, NONE, NOT_NEGATIVE, instance_of, is_count, is_real, one_of

# Landmarks of a fit in batches that has not been given any.
BATCH_LANDMARKS = 500
# What the conditions of a solution with bounded norms may miss, over the mean squared norm of the data.
OPTIMALITY_TOLERANCE = 1e-2


class KernelAutoencoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelLearner):
    """Short codes for data of any kind, from which the data can be recovered.

    Vectors, molecules, graphs, strings, curves, or only a Gram matrix: an encoder into few dimensions and a decoder
    back, each a function in the RKHS of a kernel, minimise mean ‖x − f_L ∘ … ∘ f_1(x)‖² + Σ_l α_l ‖f_l‖² (Laforgue,
    Clémençon and d'Alché-Buc, 2019). Vectors are reconstructed as they are (KAE); anything else in the RKHS of its
    kernel (K²AE), where ⟨φ(x), φ(x')⟩ = k(x, x') is all that is needed. The decoder is eliminated in closed form; the
    encoder starts from kernel PCA and is searched in orthonormal coordinates by L-BFGS. The penalties are learned by
    the error on held-out data.

    Parameters
    ----------
    n_components : int, float or list, default=2
        The size of the code. A fraction between 0 and 1: as many components as (kernel) PCA needs to keep that share of
        the variance. A list: the inner layers from the input on, each a size, a pair ``(kernel, size)`` or
        ``Layer(kernel, size, alpha=…, operator=…)``; the narrowest holds the code.
    kernel : Kernel, OperatorKernel or str, default="auto"
        The kernel of the data, in whose RKHS the encoder lies; ``"precomputed"`` for Gram matrices. A number in a
        kernel stays; a word lets the data decide it. ``"auto"``, for vectors, is ``Gaussian("auto")``: its width is
        learned by the ``criterion``, together with the penalties; where both of them are numbers, it is ``"rbf"``,
        whose width is the median distance of the data. For gaps, frames with words, and objects, it is what
        ``kernels.suggest(X).single`` says.
    decoder_kernel : Kernel, OperatorKernel or str, default="auto"
        The kernel on codes, also of inner layers after the first that are given as sizes; ``"auto"`` as for ``kernel``.
    target : {"auto", "features", "kernel"} or Kernel, default="auto"
        Where reconstructions live: in the space of the vectors themselves, in the RKHS of ``kernel``, or in that of
        another kernel. ``"auto"``: ``"features"`` for vectors without gaps, L² for ``Functional`` kernels of curves,
        otherwise ``"kernel"``. What is learned of ``kernel`` does not move its space: there it has the numbers of the
        start.
    alpha : float or "auto", default="auto"
        The weight of the decoder's squared norm beside the mean distortion; ``"auto"`` learns it.
    encoder_alpha : float or "auto", default="auto"
        That of every inner layer that is not a ``Layer`` with a number of its own.
    norm_bounds : list of float or None, default=None
        Instead of penalties, bounds of the norms of all functions from the input on, the decoder last: the problem (7)
        to which the paper's generalisation bound applies, of any depth. ``alpha_`` and the penalties of ``layers_`` are
        its multipliers: zero for an inner function whose norm stays below its bound, next to zero for such a decoder.
        With ``supervision`` the decoder's bound is also one of what predicts y. ``alpha``, ``encoder_alpha`` and
        penalties of a ``Layer`` do not count; words in kernels are decided with penalties of 0.001 in the place of the
        bounds. A warning says where the conditions of a solution are not met.
    fit_intercept : bool, default=True
        Let reconstructions vary around a constant that costs nothing. False is the problem of the paper.
    supervision : float or "auto", default=0.0
        How much codes serve the ``y`` given to fit: the decoder also predicts y, whose variance counts this many times
        that of the data. With 0, y is ignored. Floats are numbers; integers, booleans and strings are classes. What is
        missing (NaN or None) is left out. ``"auto"``: that of 0.3, 1, 3 and 10 with whose codes a linear ridge
        regression predicts y of held-out samples (those of ``cv``) best, and 0 unless that pays.
    preimage : {"auto", "nearest", "weighted", "direct"}, default="auto"
        What ``inverse_transform`` makes of an element of an RKHS: the nearest candidate; the mean of the 10 nearest,
        weighted by 1/distance² (vectors); or the element itself (linear kernels). ``"auto"``: ``"direct"`` where it can
        be, otherwise ``"nearest"``.
    criterion : {"auto", "validation", "loo", "gcv"}, default="auto"
        What chooses what is left to be learned: the distortion of held-out samples, or a closed form for the decoder
        that holds the encoder fixed. ``"auto"``: leave-one-out if the encoder has fewer than one unknown for four
        samples, otherwise validation. At most 500 random samples are used; the search ends when the error stops
        falling.
    cv : int, splitter or iterable, default=None
        The folds of ``criterion="validation"``, as in scikit-learn. None: one random part is held out once.
    validation_fraction : float, default=0.2
        The share of the samples in that part; of groups, whole ones.
    approximation : Nystroem, default=None
        For large data: encoder, decoder and target space are spanned by so many samples. Of more than 10,000 samples
        the search sees as many random ones (with ``batch_size``, all that are in memory); a decoder into vectors is
        then fitted to all, by sums over blocks, also on Dask.
    memory_limit : int, str or None, default=None
        What the sums over blocks of an approximate fit may take beside the data, in bytes or as ``"2GB"``; None: what
        they need. It bounds neither an exact fit nor the search for hyperparameters on some of the samples, which takes
        about 0.25 GB for 1,500 of them.
    batch_size : int, default=None
        Samples in each step of Adam, each with the best decoder for them; the last decoder is fitted to all. None: all
        samples in each step of L-BFGS. Without ``approximation``, 500 landmarks are taken.
    n_restarts : int, default=4
        Starts of the search: kernel PCA, and random ones, which race; batches take the best of them.
    max_iter : int, default=200
        Most iterations (of Adam: passes over the data).
    max_time : float, str or None, default=None
        Seconds after which the search ends with the best point so far, or a text such as "90s", "5m" or "1h".
    tol : float, default=1e-5
        The search ends when the objective falls by less than this share, or its gradient is as small.
    random_state : int, RandomState instance or None, default=None
        Seed of restarts, folds, subsets and batches.
    verbose : int, default=0
        1: a progress bar for long searches. 2: also why they stopped.
    device : str, default=None
        Where to compute, as in ``torch.device``.
    dtype : {"float64", "float32"}, default="float64"
        Precision of the computation.
    warm_start : bool, default=False
        Does the next ``fit`` go on from what the last one has found, hyperparameters and inner layers, instead of
        beginning anew with all restarts?

    Attributes
    ----------
    function_ : Composed
        The fitted f_L ∘ … ∘ f_1, with values in coordinates of the target space: of vectors, their differences from
        ``space_.origin``, unless that is None.
    space_ : FeatureSpace or StoredSpace
        The target space.
    statistics_ : TargetStatistics
        The mean, the variance and the norms of the training data in the target space.
    kernel_, decoder_kernel_ : Kernel or OperatorKernel
        With the numbers that were used.
    target_kernel_ : Kernel or None
        The kernel whose RKHS holds the reconstructions; None for vectors as they are.
    layers_ : list of Layer
        The inner layers with the numbers that were used.
    code_layer_ : int
        Which of them gives the codes.
    n_components_ : int
        The size of the code.
    alpha_ : float
        The weight of the decoder's norm that was used.
    supervision_ : float
        The weight of y that was used.
    explained_variance_ratio_ : float
        The share of the training data's variance (in the target space) that reconstructions keep. With landmarks and an
        RKHS it is a little too high: the mean is known on the landmarks only.
    layer_norms_ : list of float
        ‖f_l‖ of every function from the input on, the decoder last.
    dual_coef_ : ndarray of shape (n_anchors, n_coordinates)
        The decoder's coefficients on the codes of the training samples (or landmarks).
    intercept_ : ndarray of shape (n_coordinates,)
        The constant around which reconstructions vary: that of ``function_``, moved by the ``origin`` of ``space_``.
    objective_value_, criterion_value_ : float
        The objective at the end; the error that chose the hyperparameters (None if nothing was chosen).
    history_, search_history_ : list of HistoryEntry
        The search over the encoder, and over hyperparameters: iteration, seconds, value, gradient norm.
    n_iter_ : int
        Iterations of the search over the encoder.
    X_fit_ : ndarray or list
        The training inputs.
    n_features_in_ : int
        Number of features seen during fit (vectors and Gram matrices).
    feature_names_in_ : ndarray of str
        Names of the features, if X had string names.

    See Also
    --------
    DeepKernelRegressor : The same composition with targets of its own.

    Examples
    --------
    >>> import numpy as np
    >>> from representer import KernelAutoencoder
    >>> rng = np.random.default_rng(0)
    >>> t = rng.uniform(0, 2, 120)
    >>> X = np.column_stack([t, np.sin(3 * t), np.cos(3 * t)])  # a curve in space
    >>> X += 0.05 * rng.normal(size=X.shape)
    >>> model = KernelAutoencoder(1, random_state=0).fit(X[:100])
    >>> model.transform(X[100:]).shape
    (20, 1)
    >>> bool(model.score(X[100:]) > 0.95)  # the share of variance that one number keeps
    True

    Any data with a kernel:

    >>> from representer.kernels import Spectrum
    >>> words = ["banana", "bananas", "ananas", "cabana", "ferret", "ferrets", "merit", "ferrite"]
    >>> model = KernelAutoencoder(1, Spectrum(2).normalized(), alpha=0.01, encoder_alpha=0.01).fit(words)
    >>> model.reconstruct(["bandana"])
    ['banana']
    """

    kernel_arguments = ("kernel", "decoder_kernel")
    list_arguments = ("n_components",)
    function_: Composed
    alpha_: float
    intercept_: np.ndarray
    supervision_: float
    criterion_value_: float | None
    layer_norms_: list[float]
    layers_: list[Layer]
    kernel_: Kernel | OperatorKernel
    training_data = ("X_fit_",)

    _frame_library: str | None = None  # whose frame the training data were
    constraints: ClassVar[dict[str, Check]] = {
        **DEEP_ARGUMENTS,
        "batch_size": NONE | COUNT,
        "encoder_alpha": POSITIVE_OR_AUTO,
        "norm_bounds": NONE | instance_of("a list of numbers", list, tuple, np.ndarray),
        "preimage": one_of("auto", "nearest", "weighted", "direct"),
        "supervision": NOT_NEGATIVE | one_of("auto"),
        "target": instance_of("a kernel", Kernel) | one_of("auto", "features", "kernel"),
    }

    def __init__(
        self,
        n_components: Any = 2,
        kernel: KernelLike = "auto",
        decoder_kernel: KernelLike = "auto",
        *,
        target: Any = "auto",
        alpha: float | str = "auto",
        encoder_alpha: float | str = "auto",
        norm_bounds: Sequence[float] | None = None,
        fit_intercept: bool = True,
        supervision: float | str = 0.0,
        preimage: str = "auto",
        criterion: str = "auto",
        cv: Any = None,
        validation_fraction: float = 0.2,
        approximation: Nystroem | None = None,
        memory_limit: int | str | None = None,
        batch_size: int | None = None,
        n_restarts: int = 4,
        max_iter: int = 200,
        max_time: float | str | None = None,
        tol: float = 1e-5,
        random_state: RandomState = None,
        verbose: int = 0,
        device: str | None = None,
        dtype: str = "float64",
        warm_start: bool = False,
    ):
        self.n_components = n_components
        self.kernel = kernel
        self.decoder_kernel = decoder_kernel
        self.target = target
        self.alpha = alpha
        self.encoder_alpha = encoder_alpha
        self.norm_bounds = norm_bounds
        self.fit_intercept = fit_intercept
        self.supervision = supervision
        self.preimage = preimage
        self.criterion = criterion
        self.cv = cv
        self.validation_fraction = validation_fraction
        self.approximation = approximation
        self.memory_limit = memory_limit
        self.batch_size = batch_size
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.max_time = max_time
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose
        self.device = device
        self.dtype = dtype
        self.warm_start = warm_start

    # -- arguments ----------------------------------------------------------------------------------------------------
    def named_kernel(self, name: str) -> Kernel:
        """The kernel that a short name means here."""
        return as_kernel(self._one_kernel(name))

    def _one_kernel(self, kernel: object) -> Any:
        """The kernel that ``"auto"`` is here: widths are learned where penalties are."""
        learned = isinstance(self.alpha, str) or isinstance(self.encoder_alpha, str)
        return one_kernel(kernel, "auto" if learned else "median")

    def _layers(self, first: OperatorKernel) -> list[Layer]:
        """The inner layers that n_components describes, of which the first sees the data; a share of the variance
        decides the size of one.
        """
        sizes = self.n_components
        if self._share is not None:
            sizes = 1
        if not (is_count(sizes) or isinstance(sizes, list | tuple)):
            raise ValueError(
                "n_components must be a positive integer, a share of the variance between 0 and 1, or a list of inner "
                f"layers; got {sizes!r}."
            )
        entries = list(sizes) if isinstance(sizes, list | tuple) else [sizes]
        if not entries:
            raise ValueError("n_components is an empty list: an autoencoder needs at least one inner layer.")
        layers = []
        for i, entry in enumerate(entries):
            kernel = first if i == 0 else self._one_kernel(self.decoder_kernel)
            short = is_count(entry)
            layer = Layer(kernel, int(entry), alpha=self.encoder_alpha) if short else as_layer(entry)
            if isinstance(layer.alpha, str):
                layer = layer.replaced(alpha=self.encoder_alpha)
            layers.append(checked_layer(layer))
        return layers

    @property
    def _share(self) -> float | None:
        share = self.n_components
        return float(share) if is_real(share) and not is_count(share) and 0 < share < 1 else None

    def _approximation(self) -> Nystroem | None:
        if self.batch_size is None or self.approximation is not None:
            return self.approximation
        return Nystroem(BATCH_LANDMARKS)

    def _first_kernel(self, X: Data = None) -> OperatorKernel:
        """The kernel that sees the data; without them, that of vectors."""
        entries = self.n_components if isinstance(self.n_components, list | tuple) else ()
        if not entries or is_count(entries[0]):
            kernel = self.kernel if X is None else single_kernel(self.kernel, X, incomplete=not issparse(X))
            return as_operator_kernel(self._one_kernel(kernel), None)
        layer = as_layer(entries[0])
        layer.check()
        kernel = as_operator_kernel(layer.kernel, layer.operator)
        by_default = isinstance(self.kernel, str) and self.kernel == "auto"
        if not by_default and as_operator_kernel(self.kernel, layer.operator) != kernel:
            raise ValueError(
                f"Both kernel={self.kernel!r} and the first entry of n_components, {entries[0]!r}, name the kernel of "
                "the data. Leave kernel at its default, or give a size in the list."
            )
        return kernel

    # -- fitting ------------------------------------------------------------------------------------------------------
    @fitting
    def fit(self, X: Data, y: Data = None, sample_weight: Data = None, groups: Data = None) -> Self:
        """Fit encoder and decoder.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Training data; with a precomputed kernel, their Gram matrix; with an approximation, also in Dask.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), default=None
            Numbers or class labels that the codes shall serve, if ``supervision`` is not 0; otherwise ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights in the mean distortion: a sample of weight 2 counts as two, one of weight 0 as none.
        groups : array-like of shape (n_samples,), default=None
            Labels of what belongs together: samples of one group are held out together.

        Returns
        -------
        self : KernelAutoencoder
            The fitted autoencoder.
        """
        self._check()
        first = self._first_kernel(X)
        samples, inputs = self._samples(first, X, sample_weight, groups)
        problem = self._problem(first, samples, inputs, y)
        settings = self._search_settings(problem.seed, self.criterion)
        problem = problem.settled(settings)
        solution = problem.solve(problem.choose(settings))
        self.supervision_ = problem.model.label_weight
        if solution.collapsed:
            cause, advice = "encoder_alpha outweighs what codes could explain", "Lower encoder_alpha or alpha"
            if self.norm_bounds is not None:
                cause, advice = "norm_bounds leave them next to no room", "Raise norm_bounds"
            warn(
                f"The codes have collapsed to a constant, also from other starts: {cause}. {advice}, or standardise "
                "the data.",
                ConvergenceWarning,
            )
        if solution.optimality_gap > OPTIMALITY_TOLERANCE:
            advice = "Lower tol or raise max_iter"
            if self.batch_size is not None:
                advice = "Steps of Adam stay near a solution, not at it: leave batch_size=None if there is memory"
            warn(
                "The functions obey their norm_bounds, but they miss the conditions of a solution (Karush, Kuhn and "
                f"Tucker) by {solution.optimality_gap:.1e} of the mean squared norm of the data, more than "
                f"{OPTIMALITY_TOLERANCE}. {advice}.",
                ConvergenceWarning,
            )
        self._keep_attributes(deep_attributes(solution))
        self._keep(problem, solution.code_layer)
        self._frame_library = frame_library(X)
        self.X_fit_ = plain(problem.seen.inputs, copy=True)
        return self

    def _samples(self, kernel: OperatorKernel, X: Data, sample_weight: Data, groups: Data) -> tuple[Samples, Data]:
        """The checked samples, which are their own targets, and their inputs as they are stored if in memory."""
        if is_dask(X):
            return dask_samples(self, kernel, X, X, sample_weight, groups), None
        X, weights, groups = self._checked_inputs(kernel, X, sample_weight, groups)
        vectors = isinstance(X, np.ndarray) and kernel.domain == "vectors"
        numbers = X if vectors else np.zeros((len(X), 0))  # only decoders into vectors are fitted by sums
        return self._memory_samples(kernel, X, numbers, weights, groups), X

    def _problem(self, first: OperatorKernel, samples: Samples, inputs: Data, y: Data) -> AutoencoderProblem:
        """The problem that the arguments describe."""
        seed, cv = seed_of(self.random_state), self.cv
        if cv is None:
            from sklearn.model_selection import GroupShuffleSplit, ShuffleSplit  # here, because its import takes long

            split = ShuffleSplit if samples.groups is None else GroupShuffleSplit
            cv = split(1, test_size=self.validation_fraction, random_state=seed)
        layers, gaps = self._layers(first), first.domain == "vectors" and takes_gaps(first)
        model = AutoencoderModel(
            Composition(layers, as_operator_kernel(self._one_kernel(self.decoder_kernel), None), self.alpha),
            squared_loss(self.fit_intercept),
            FoldRule(cv, seed),
            self.criterion,
            self._approximation(),
            self.memory_limit,
            last=last_solution(self),
            target="kernel" if gaps and isinstance(self.target, str) and self.target == "auto" else self.target,
            share=self._share,
            supervision="auto" if isinstance(self.supervision, str) else float(self.supervision),
            batch_size=self.batch_size,
        )
        if self.norm_bounds is not None:
            model = model.bounded(self.norm_bounds)
        later = [(f"Layer {i} of n_components", layer.domain) for i, layer in enumerate(layers)][1:]
        for who, domain in [*later, ("decoder_kernel", model.composition.kernel.domain)]:
            if domain != "vectors":
                raise ValueError(
                    f"{who} takes data of the kind {domain!r}, but it gets codes, which are vectors. Only the first "
                    "kernel sees the data themselves."
                )
        how = self._representation(inputs)
        if model.supervision == "auto" and inputs is None:
            raise ValueError("supervision='auto' compares fits to samples in memory; got Dask. Give a number.")
        wanted = y is not None if model.supervision == "auto" else model.label_weight > 0
        labels = partial(label_columns, y) if wanted else None
        problem = AutoencoderProblem(samples, model, how, seed=seed, inputs=inputs, labels=labels)
        if (n := len(problem.seen)) < 2:
            raise ValueError(f"Found {n} sample (n_samples = {n}): an autoencoder needs at least 2.")
        return problem

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        try:
            first = self._first_kernel()
        except (ValueError, TypeError):  # fit will say what is wrong
            return tags
        tags.input_tags.pairwise = first.domain == "gram"
        tags.input_tags.sparse = takes_sparse(first)
        return tags

    def _keep(self, problem: AutoencoderProblem, code: int) -> None:
        """What is known of codes and reconstructions of the training samples."""
        space = problem.space
        self.decoder_kernel_ = self.kernel_
        self.kernel_ = self.layers_[0].kernel
        self.target_kernel_ = space.kernel if isinstance(space, KernelSpace) else None
        self.space_ = space.stored(self._representation(problem.data))
        if isinstance(space, FeatureSpace):
            self.intercept_ = plain(space.vectors(torch.as_tensor(self.intercept_)))
        self.code_layer_ = code
        self.n_components_ = self._n_features_out = self.layers_[code].size
        self.statistics_, self.explained_variance_ratio_, self._bound_data = problem.judged(self.function_)

    def _size_that_matters(self) -> float:
        """The deviation of vectors around the origin of their space."""
        around_origin = isinstance(self.space_, FeatureSpace) and self.space_.origin is not None
        return math.sqrt(self.statistics_.variance) if around_origin else 0.0

    # -- the fitted functions -----------------------------------------------------------------------------------------
    @property
    def _space(self) -> TargetSpace:
        """The target space of tensors."""
        return self.space_ if isinstance(self.space_, FeatureSpace) else self.space_.loaded

    def _inputs(self, X: Data) -> Data:
        """Checked inputs of a fitted autoencoder, prepared."""
        return self.function_.inputs(self._new_inputs(X))

    @property
    def _encoder(self) -> Composed:
        """The function from data to codes."""
        layers = self.function_.inner
        return Composed(layers[: self.code_layer_], layers[self.code_layer_])

    def _network(self) -> torch.nn.Module:
        return self._encoder.network()

    def _check_codes(self, Z: Data) -> Tensor:
        codes = check_codes(Z, "Z")
        if codes.shape[1] != self.n_components_:
            raise ValueError(f"Z has {codes.shape[1]} columns, but codes have {self.n_components_} components.")
        return self._representation().tensor(codes)

    def _distortion(self, X: Data, norms: Tensor) -> Tensor:
        """‖φ(x) − f(x)‖², up to rounding, which may make it negative."""
        return self._space.squared_distances(X, self.function_.from_image(X, 0), norms)

    def _squared_norms(self, X: Data, diagonal: object, *, strict: bool = True) -> Tensor:
        """k(x, x), or ‖x‖²; of Gram rows as far as it is known, or with ``strict=False`` that of the average sample."""
        domain = self.function_.kernel.domain
        if diagonal is not None:
            if domain != "gram":
                raise ValueError("diagonal= is for kernel='precomputed'; this kernel computes k(x, x) itself.")
            values = check_array(
                np.atleast_1d(plain(diagonal)), ensure_2d=False, dtype=np.float64, input_name="diagonal"
            )
            if values.shape != (len(X),):
                raise ValueError(f"diagonal must have shape ({len(X)},), one k(x, x) a sample; got {values.shape}.")
            if (values < 0).any():
                raise ValueError("diagonal holds k(x, x), which cannot be negative.")
            return self._representation().tensor(values)
        if domain != "gram":
            return self._space.squared_norms(X)
        if X.shape[0] == X.shape[1] and np.array_equal(plain(X), self.X_fit_):
            return X.diagonal()
        statistics = self.statistics_
        squared_norm = statistics.constant_norm if strict else statistics.mean_squared_norm
        if squared_norm is None:
            raise ValueError(
                "With kernel='precomputed', k(x, x) of new samples is not in k(X, X_train), and the training samples "
                "do not all have the same. Pass diagonal=, or a kernel object in the place of 'precomputed'."
            )
        return X.new_full((len(X),), squared_norm)

    # -- pre-images ---------------------------------------------------------------------------------------------------
    def _preimage(self, values: Tensor, candidates: Data, diagonal: object) -> Data:
        """Objects for elements of the RKHS."""
        space = self._space
        assert isinstance(space, KernelSpace)
        domain = space.kernel.domain
        how = self.preimage
        if how == "auto":
            how = "direct" if space.is_linear and candidates is None else "nearest"
        if how == "direct":
            if not space.is_linear or candidates is not None:
                raise ValueError(
                    f"preimage='direct' is for linear kernels and without candidates; {space.kernel!r} has "
                    "elements that are the image of nothing. Use preimage='nearest' or, for vectors, 'weighted'."
                )
            return plain(space.combine(values))
        if how == "weighted" and domain != "vectors":
            raise ValueError(
                f"preimage='weighted' is a mean of vectors, but the data are {domain!r}: they have no mean. Use "
                "preimage='nearest', the closest of the training data or of candidates=."
            )
        if candidates is None:
            objects = self.X_fit_
        else:
            objects = check_inputs(self, candidates, space.kernel, reset=False)
        prepared = self._representation(objects).inputs(space.kernel, objects)
        norms = self._squared_norms(prepared, diagonal)
        distance = preimage.distances(values, space.coordinates(prepared), norms)
        if how == "weighted":
            return plain(preimage.weighted(distance) @ prepared.to(values))
        numbers = preimage.nearest(distance)
        if domain == "gram":
            return plain(numbers)
        return objects[plain(numbers)] if isinstance(objects, np.ndarray) else [objects[int(i)] for i in numbers]

    # -- codes and back -----------------------------------------------------------------------------------------------
    def transform(self, X: Data) -> np.ndarray:
        """Encode data.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Data; with a precomputed kernel, k(X, X_train). For a Dask collection, so are the codes: lazy.

        Returns
        -------
        codes : ndarray of shape (n_samples, n_components)
            In order of variance where the decoder's kernel is invariant under rotations.
        """
        if is_dask(X):
            return self._lazily("transform", X, self._n_features_out)
        return plain(self._encoder(self._new_inputs(X)))

    def inverse_transform(self, Z: Data, candidates: Data = None, diagonal: object = None) -> Data:
        """Decode codes.

        Parameters
        ----------
        Z : array-like of shape (n_samples, n_components)
            Codes.
        candidates : array-like or sequence of what the kernel takes, default=None
            Where reconstructions are elements of an RKHS: the objects among which those that come closest are chosen;
            the training data by default.
        diagonal : array-like of shape (n_candidates,), default=None
            For a precomputed kernel: k(c, c) of each candidate, as for ``reconstruction_error``.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features), list of objects, or frame of the library of the fit
            Reconstructions. With a precomputed kernel, the row numbers of training samples, or of the candidates, which
            are then given as k(candidates, X_train).
        """
        values = self.function_.from_image(self._check_codes(Z), self.code_layer_ + 1)
        if isinstance(self._space, FeatureSpace):
            if candidates is not None:
                raise ValueError(
                    "candidates= are for reconstructions in an RKHS; these are vectors, which the decoder gives by "
                    "itself. Leave candidates=None, or fit with target='kernel'."
                )
            return plain(self._space.vectors(values))
        objects = self._preimage(values, candidates, diagonal)
        library = frame_library(candidates) or self._frame_library
        return as_frame(objects, library) if library is not None and is_frame(objects) else objects

    def reconstruct(self, X: Data, candidates: Data = None, diagonal: object = None) -> Data:
        """Encode and decode data: ``inverse_transform(transform(X))``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Data; with a precomputed kernel, k(X, X_train).
        candidates, diagonal : array-like, default=None
            As for ``inverse_transform``.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features), list of objects, or frame of the library of the fit
            Reconstructions.
        """
        if is_dask(X):
            if not isinstance(self._space, FeatureSpace):
                raise ValueError("Only reconstructions that are vectors are lazy; these are elements of an RKHS.")
            return self._lazily("reconstruct", X, self.n_features_in_)
        return self.inverse_transform(plain(self._encoder(self._new_inputs(X))), candidates, diagonal)

    # -- how well -----------------------------------------------------------------------------------------------------
    def reconstruction_error(self, X: Data, diagonal: object = None) -> np.ndarray:
        """Distortion of each sample, ‖x − f(x)‖² in the target space (appendix B.7 of the paper).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Data; with a precomputed kernel, k(X, X_train).
        diagonal : array-like of shape (n_samples,), default=None
            For a precomputed kernel: k(x, x) of each sample, which the rows k(X, X_train) do not hold. Not needed for
            the training data themselves, nor where all training samples have the same k(x, x).

        Returns
        -------
        errors : ndarray of shape (n_samples,)
            Squared distances. ``mean()`` is the test distortion.
        """
        if is_dask(X):
            return self._lazily("reconstruction_error", X, None)
        X = self._inputs(X)
        return plain(self._distortion(X, self._squared_norms(X, diagonal)).clamp(min=0.0))

    def score(self, X: Data, y: Data = None) -> float:
        """Share of the variance of X around the training mean that reconstructions keep; higher is better.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Data; with a precomputed kernel, k(X, X_train). If k(x, x) differs between samples, that of new ones is not
            known: the training samples' mean and variance stand for theirs, which ranks models on the same X as the
            true score does.
        y : Ignored
            Not used, present for API consistency.

        Returns
        -------
        score : float
            1 − distortion / variance: 1 for perfect reconstructions, 0 for a constant.
        """
        X = self._inputs(X)
        statistics, norms = self.statistics_, self._squared_norms(X, None, strict=False)
        if self.function_.kernel.domain == "gram" and statistics.constant_norm is None:
            variance = statistics.variance
        else:
            centre = self._representation().tensor(statistics.centre)
            variance = self._space.squared_distances(X, centre[None], norms).mean().item()
        distortion = self._distortion(X, norms).mean().item()
        return explained(self._space, distortion, variance, norms)

    def generalization_bound(self, delta: float = 0.05) -> GeneralizationBound:
        """Excess distortion on new data that theorem 5 of the paper allows, up to its unknown constant C₀.

        Parameters
        ----------
        delta : float, default=0.05
            The bound holds with probability 1 − delta.

        Returns
        -------
        bound : GeneralizationBound
            Its two terms and the constants in them, estimated on the training data; ``bound(C0)`` is the sum for a C₀.
        """
        functions = [*self.function_.inner, self.function_.outer_expansion()]
        return estimated_bound(functions, self._bound_data, delta)

    # -- why ----------------------------------------------------------------------------------------------------------
    def _explained_function(self) -> Composed:
        """The codes, which are sums over the samples (or landmarks) that the encoder has seen."""
        return self._encoder

    # -- the fitted composition ---------------------------------------------------------------------------------------
    transform_layers = DeepKernelRegressor.transform_layers

    def _data_kernel(self) -> OperatorKernel:
        return self.function_.kernel

    def _supported_function(self) -> Expansion:
        return self.function_.first

    deep_kernel_ = DeepKernelRegressor.deep_kernel_
