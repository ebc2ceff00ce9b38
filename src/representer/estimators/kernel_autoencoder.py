"""Autoencoders for any data that has a kernel."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from representer.approximation import Nystroem
from representer.data import plain
from representer.estimators._autoencoder import Autoencoder
from representer.problems.bound import GeneralizationBound, estimated_bound
from representer.estimators._callbacks import fitting
from representer.estimators._lazy import lazily
from representer.problems.target_space import FeatureSpace
from representer.samples.on_dask import is_dask


class KernelAutoencoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Autoencoder):
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
    kernel : Kernel, OperatorKernel or str, default="rbf"
        The kernel of the data, in whose RKHS the encoder lies; ``"precomputed"`` for Gram matrices. A number in a
        kernel stays; a word lets the data decide it.
    decoder_kernel : Kernel, OperatorKernel or str, default="rbf"
        The kernel on codes, also of inner layers after the first that are given as sizes.
    target : {"auto", "features", "kernel"} or Kernel, default="auto"
        Where reconstructions live: in the space of the vectors themselves, in the RKHS of ``kernel``, or in that of
        another kernel. ``"auto"``: ``"features"`` for vectors, L² for ``Functional`` kernels of curves, otherwise
        ``"kernel"``. What is learned of ``kernel`` does not move its space: there it has the numbers of the start.
    alpha : float or "auto", default="auto"
        The weight of the decoder's squared norm beside the mean distortion; ``"auto"`` learns it.
    encoder_alpha : float or "auto", default="auto"
        That of every inner layer that is not a ``Layer`` with a number of its own.
    fit_intercept : bool, default=True
        Let reconstructions vary around a constant that costs nothing. False is the problem of the paper.
    supervision : float, default=0.0
        How much codes serve the ``y`` given to fit: the decoder also predicts y, whose variance counts this many times
        that of the data. With 0, y is ignored. Floats are numbers; integers, booleans and strings are classes. What is
        missing (NaN or None) is left out.
    preimage : {"auto", "nearest", "weighted", "direct"}, default="auto"
        What ``inverse_transform`` makes of an element of an RKHS: the nearest candidate; the mean of the 10 nearest,
        weighted by 1/distance² (vectors); or the element itself (linear kernels). ``"auto"``: ``"direct"`` where it can
        be, otherwise ``"nearest"``.
    criterion : {"auto", "validation", "loo", "gcv"}, default="auto"
        What chooses what is left to be learned: the distortion of held-out samples, or a closed form for the decoder
        that holds the encoder fixed. ``"auto"``: leave-one-out if the encoder has fewer than one unknown for four
        samples, otherwise validation. At most 500 random samples are used; the search ends when the error stops
        falling.
    cv : float, int or splitter, default=0.2
        What ``criterion="validation"`` holds out: a share of the samples once, or folds as in scikit-learn.
    approximation : Nystroem, default=None
        For large data: encoder, decoder and target space are spanned by so many samples. Of more than 10,000 samples
        the search sees as many random ones (with ``batch_size``, all that are in memory); a decoder into vectors is
        then fitted to all, by sums over blocks, also on Dask.
    memory_limit : int, str or None, default=None
        What these sums may take beside the data, in bytes or as ``"2GB"``; None: what they need.
    batch_size : int, default=None
        Samples in each step of Adam, each with the best decoder for them; the last decoder is fitted to all. None: all
        samples in each step of L-BFGS. Without ``approximation``, 500 landmarks are taken.
    n_restarts : int, default=4
        Starts of the search: kernel PCA, and random ones, which race; batches take the best of them.
    max_iter : int, default=200
        Most iterations (of Adam: passes over the data).
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

    Attributes
    ----------
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
    explained_variance_ratio_ : float
        The share of the training data's variance (in the target space) that reconstructions keep. With landmarks and an
        RKHS it is a little too high: the mean is known on the landmarks only.
    layer_norms_ : list of float
        ‖f_l‖ of every function from the input on, the decoder last.
    dual_coef_ : ndarray of shape (n_anchors, n_coordinates)
        The decoder's coefficients on the codes of the training samples (or landmarks).
    intercept_ : ndarray of shape (n_coordinates,)
        The constant around which reconstructions vary.
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

    def __init__(
        self,
        n_components: Any = 2,
        kernel: Any = "rbf",
        decoder_kernel: Any = "rbf",
        *,
        target: Any = "auto",
        alpha: Any = "auto",
        encoder_alpha: Any = "auto",
        fit_intercept: bool = True,
        supervision: float = 0.0,
        preimage: str = "auto",
        criterion: str = "auto",
        cv: Any = 0.2,
        approximation: Nystroem | None = None,
        memory_limit: int | str | None = None,
        batch_size: int | None = None,
        n_restarts: int = 4,
        max_iter: int = 200,
        tol: float = 1e-5,
        random_state: Any = None,
        verbose: int = 0,
        device: str | None = None,
        dtype: str = "float64",
    ):
        self.n_components = n_components
        self.kernel = kernel
        self.decoder_kernel = decoder_kernel
        self.target = target
        self.alpha = alpha
        self.encoder_alpha = encoder_alpha
        self.fit_intercept = fit_intercept
        self.supervision = supervision
        self.preimage = preimage
        self.criterion = criterion
        self.cv = cv
        self.approximation = approximation
        self.memory_limit = memory_limit
        self.batch_size = batch_size
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose
        self.device = device
        self.dtype = dtype

    # -- fitting ------------------------------------------------------------------------------------------------------
    @fitting
    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit encoder and decoder.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Training data; with a precomputed kernel, their Gram matrix; with an approximation, also in Dask.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), default=None
            Numbers or class labels that the codes shall serve, if ``supervision`` is positive; otherwise ignored.

        Returns
        -------
        self : KernelAutoencoder
            The fitted autoencoder.
        """
        context = self._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=self)
        self._fit(X, y, context)
        context.call_on_fit_task_end(estimator=self)
        return self

    # -- codes and back -----------------------------------------------------------------------------------------------
    def transform(self, X: Any) -> np.ndarray:
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
            check_is_fitted(self)
            return self._lazily("transform", X, self._n_features_out)
        return plain(self._codes(self._inputs(X)))

    def inverse_transform(self, Z: Any, candidates: Any = None, diagonal: Any = None) -> Any:
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
        X : ndarray of shape (n_samples, n_features), or list of objects
            Reconstructions. With a precomputed kernel, the row numbers of training samples, or of the candidates, which
            are then given as k(candidates, X_train).
        """
        values = self._decode(self._check_codes(Z))
        if isinstance(self._space, FeatureSpace):
            if candidates is not None:
                raise ValueError(
                    "candidates= are for reconstructions in an RKHS; these are vectors, which the decoder gives by "
                    "itself. Leave candidates=None, or fit with target='kernel'."
                )
            return plain(values)
        return self._preimage(values, candidates, diagonal)

    def reconstruct(self, X: Any, candidates: Any = None, diagonal: Any = None) -> Any:
        """Encode and decode data: ``inverse_transform(transform(X))``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Data; with a precomputed kernel, k(X, X_train).
        candidates, diagonal : array-like, default=None
            As for ``inverse_transform``.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features), or list of objects
            Reconstructions.
        """
        if is_dask(X):
            check_is_fitted(self)
            if not isinstance(self._space, FeatureSpace):
                raise ValueError(
                    "Only reconstructions that are vectors are lazy; these are elements of an RKHS."
                )
            return self._lazily("reconstruct", X, self.n_features_in_)
        return self.inverse_transform(plain(self._codes(self._inputs(X))), candidates, diagonal)

    def _lazily(self, method: str, X: Any, width: int | None) -> Any:
        return lazily(self, method, X, width, self.dtype)

    # -- how well -----------------------------------------------------------------------------------------------------
    def reconstruction_error(self, X: Any, diagonal: Any = None) -> np.ndarray:
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
            check_is_fitted(self)
            return self._lazily("reconstruction_error", X, None)
        X = self._inputs(X)
        return plain(self._distortion(X, self._squared_norms(X, diagonal)).clamp(min=0.0))

    def score(self, X: Any, y: Any = None) -> float:
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
        unknown = self._functions[0].kernel.domain == "gram" and self._constant_norm is None
        variance = self._train_variance if unknown else None
        return self._explained(X, self._squared_norms(X, None, strict=False), variance)

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
        check_is_fitted(self)
        return estimated_bound(self._functions, self._bound_data, delta)
