"""Kernel principal components in several levels that are learned together."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils._set_output import _wrap_data_with_container
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from representer import inspection
from representer.approximation import Nystroem
from representer.estimators.base import KernelLearner, fitting
from representer.estimators.operator_ridge import OperatorRidge
from representer.estimators.validation import Check, approximated_by, check_codes, seed_of, warn_unconverged
from representer.functions.levels import Levels
from representer.inspection import ApproximationBounds
from representer.kernels import Gaussian, Kernel, single_kernel
from representer.notices import NumericalWarning, warn
from representer.operators import kernel_domain, takes_sparse
from representer.optimize import HistoryEntry
from representer.preimage import Network
from representer.preimage.levels import METHODS, LevelPreimages
from representer.problems.levels import (
    Architecture,
    FittedLevels,
    LevelModel,
    LevelSearch,
    LevelSolution,
    LevelsProblem,
    level_kernel,
    suggested,
)
from representer.samples import Block, Data, InMemory, Samples, is_dask, plain
from representer.values import COUNT, NOT_NEGATIVE, SHARE, TRUTH, Rule, instance_of, is_count, is_real, one_of

# A learned map back is exact up to so many samples, and spanned by so many landmarks beyond.
EXACT_RIDGE, RIDGE_LANDMARKS = 2000, 1000


class CollapsedComponentWarning(NumericalWarning):
    """A component explains nothing: it is constant, or without variance, or the data weigh less than rounding."""


class DeepKernelPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelLearner):
    """Kernel principal components in several levels, where the levels above shape those below.

    Level j has orthonormal hidden features H_j, one row a sample, and the Gram matrix K_j of the features of the level
    below; K_1 is that of the data. They make the energy E = Σ_j Tr(H_jᵀ K_j(H_{j−1}) H_j) / (2 η_j) stationary (Tonin,
    Tao, Patrinos and Suykens, 2024): each H_j holds eigenvectors of a matrix M_j that depends on the levels below and
    above. As a rule they are the leading ones, which ``"scf"`` looks for, but neither stationary points nor maxima of
    E, which ``"riemannian"`` finds, need to have that property. With one level it is kernel PCA.

    Parameters
    ----------
    n_components : int, float or list of these, default=(2, 2)
        For each level, the number of components, or the share of the level's variance (between 0 and 1) that they are
        to hold in kernel PCA of one level after the other. This argument, ``kernel`` and ``eta`` are lists with one
        entry for each level; what is no list holds for all of them.
    kernel : Kernel, str or list of these, default="auto"
        The first sees the data (``"precomputed"``: their Gram matrix), the others hidden features, which have columns
        of unit length. A word (``"median"``) in a kernel is given its number by the data, or by the hidden features
        where the search starts; a name (``"rbf"``) above the first level stands for a lengthscale of 1. ``"auto"``, for
        vectors, is a Gaussian kernel: the first has the narrowest width, of some multiples of the median distance, with
        which as much of held-out samples is recovered as with the best, within a standard error (see ``score``).
        For gaps, frames and objects the first ``"auto"`` is what ``kernels.suggest(X).single`` says.
    eta : float or list of float, default=1.0
        The weights η_j: a small |η_j| gives a level more weight. Where the first kernel grows with the data, as a
        linear one does, so does the weight of its level: beside levels above, eta is in squared units of the data. Data
        that outweigh them beyond rounding have the components of levelwise kernel PCA; data that are outweighed so by
        nonlinear levels decide nothing (a warning says it). With a negative η_j the level keeps its leading
        variance, but the level below works against it: a saddle, where the kept eigenvectors need not be the leading
        ones (see ``leading_``), and which the search may miss (it warns), above all with three nonlinear levels.
    center : {True, "data", False}, default=True
        Are features centred, as in kernel PCA? True: at every level. ``"data"``: only those of the data, level 0; the
        first component of each level above then is nearly a constant, and holds most of what the level calls its
        variance. False: nowhere, the problem of the paper.
    solver : {"auto", "scf", "riemannian", "projected_gradient", "riemannian_adam", "levelwise"}, default="auto"
        ``"scf"``: self-consistent eigenvectors, and where that does not contract the Riemannian method. ``"auto"``: the
        same, or the closed form if all kernels but the first are linear and ``eta`` is positive. ``"riemannian"``: a
        trust region on the energy (with a negative ``eta``, Newton's method for its critical points).
        ``"projected_gradient"`` and ``"riemannian_adam"``: those of the paper on its residual (9), for comparison.
        ``"levelwise"``: kernel PCA of one level after the other (Deng et al., 2019).
    init : {"levelwise", "random"} or list of ndarray, default="levelwise"
        Where the search starts. With positive ``eta``, what ends below the energy of levelwise kernel PCA starts again
        from there.
    extension : {"exact", "smoother"}, default="exact"
        How ``transform`` finds hidden features of new samples: from the equations that training samples satisfy, or as
        a mean of the training samples' own, weighted by a power of the first kernel. The power is a width (k^p of a
        Gaussian kernel has the lengthscale ℓ/√p): the one that comes nearest to samples that are left out.
    preimage : {"auto", "direct", "ridge", "gradient", "weighted", "nearest"} or Network, default="auto"
        How ``inverse_transform`` finds the inputs of a level from its components. ``"direct"``: the features themselves
        (linear kernels). ``"ridge"``: kernel ridge regression from components to inputs. ``"weighted"``: the mean of
        the 10 training inputs whose features are nearest; ``"gradient"``: the input that minimises the distance in
        feature space, from there. ``"nearest"``: the training input. ``"auto"``: direct for linear kernels, ridge for
        other vectors, nearest for anything else. ``Network(module)`` (of ``representer.preimage``) trains a network
        back from the features of the first level, together with the one in ``kernel=[Neural(module, Linear()), …]``.
    approximation : Nystroem, default=None
        The samples that stand for all: ``Nystroem(m, sampling="entropy")`` fits to m of them (or to a share, as in
        ``Nystroem(0.5)``), and ``extension`` finds the hidden features of the others. None fits to all samples.
    trim : float, default=0.0
        The share of samples, less than a half, that are left out as outliers: those whose removal leaves the least
        squared distance of the others from the components of the first level. The levels are fitted to the others,
        ``subset_``, and ``extension`` finds the hidden features of the outliers.
    max_iter : int, default=200
        Most iterations of the search.
    max_time : float, str or None, default=None
        Seconds after which the search ends with the best point so far, or a text such as "90s", "5m" or "1h".
    tol : float, default=1e-9
        The search ends when the relative residual of the equations (6) is as small.
    learning_rate : float, default=1e-3
        The step size of ``"riemannian_adam"``.
    random_state : int, RandomState instance or None, default=None
        Seed of random starts and of the samples that stand for all.
    verbose : int, default=0
        1: a progress bar for long searches. 2: also why they stopped.
    dtype : {"float64", "float32"}, default="float64"
        Precision of the computations; in single precision the search ends at a residual of 1e-5 to 5e-4.
    device : str, default=None
        Where to compute, as in ``torch.device``.
    warm_start : bool, default=False
        Does the next ``fit`` start from the hidden features that the last one has found, instead of ``init``?

    Attributes
    ----------
    function_ : Levels
        The hidden features of all levels as a function of the data.
    hidden_ : list of ndarray of shape (n_samples, n_components_[j])
        H_j, with orthonormal columns, leading components first.
    eigenvalues_ : list of ndarray of shape (n_components_[j],)
        The diagonal of Λ_j = H_jᵀ M_j H_j. (Where the kernel above sees rotations, as with ℓ₁ distances or one
        lengthscale a feature, Λ_j is symmetric but not diagonal.)
    explained_variance_ratio_ : list of ndarray of shape (n_components_[j],)
        Eigenvalues over the sum of all eigenvalues of M_j. With η of both signs some eigenvalues may be negative, and
        so their shares; NaN if they cancel in the sum, which then says nothing of a part of it.
    leading_ : list of bool
        For each level, whether the eigenvectors of sign(η_j) M_j that it keeps are the leading ones.
    energy_, residual_ : float
        The energy E, and the largest ‖M_j H_j − H_j Λ_j‖ / ‖M_j H_j‖ of all levels: how well equations (6) hold.
    solver_ : str
        What found the solution: ``"closed_form"``, ``"levelwise"``, or the name of a solver.
    history_, n_iter_ : list of HistoryEntry, int
        The iterations of the search: number, seconds, energy (value), relative residual (gradient_norm).
    n_components_, kernel_, eta_ : list of int, of Kernel and of float
        The numbers of components, the kernels (with the numbers that were used) and the η_j of all levels.
    decoder_, training_history_ : torch.nn.Module or None, list of HistoryEntry
        The trained network of a ``Network``, and the passes of its training; the encoder is in ``kernel_[0]``.
    X_fit_, subset_ : ndarray or list, ndarray of int
        The samples that were fitted to, and their row numbers.
    n_features_in_, feature_names_in_ : int, ndarray of str
        Number of features seen during fit (vectors and Gram matrices), and their names, if X had string names.

    See Also
    --------
    KernelAutoencoder : Codes from which the data can be recovered.

    Examples
    --------
    >>> import numpy as np
    >>> from representer import DeepKernelPCA
    >>> X = np.random.default_rng(0).normal(size=(100, 4))
    >>> model = DeepKernelPCA([3, 2]).fit(X[:80])
    >>> model.transform(X[80:]).shape
    (20, 5)
    >>> bool(model.residual_ < 1e-8)
    True
    """

    constraints: ClassVar[dict[str, Check]] = {
        "approximation": approximated_by("Nystroem(m), which chooses the samples that stand for all", Nystroem),
        "center": TRUTH | one_of("data"),
        "extension": one_of("exact", "smoother"),
        "init": one_of("levelwise", "random") | instance_of("a list of arrays, one for each level", list, tuple),
        "preimage": one_of(*METHODS) | instance_of("a Network", Network),
        "solver": one_of("auto", "scf", "riemannian", "projected_gradient", "riemannian_adam", "levelwise"),
        "trim": Rule("a share from 0 to less than a half", lambda trim: is_real(trim) and 0 <= trim < 0.5),
    }
    function_: Levels
    decoder_: torch.nn.Module | None
    training_history_: list[HistoryEntry]
    subset_: np.ndarray
    explained_variance_ratio_: list[np.ndarray]

    def __init__(
        self,
        n_components: float | Sequence[float] = (2, 2),
        kernel: Kernel | str | Sequence[Kernel | str] = "auto",
        *,
        eta: float | Sequence[float] = 1.0,
        center: bool | str = True,
        solver: str = "auto",
        init: str | Sequence[np.ndarray] = "levelwise",
        extension: str = "exact",
        preimage: str | Network = "auto",
        approximation: Nystroem | None = None,
        trim: float = 0.0,
        max_iter: int = 200,
        max_time: float | str | None = None,
        tol: float = 1e-9,
        learning_rate: float = 1e-3,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        dtype: str = "float64",
        device: str | None = None,
        warm_start: bool = False,
    ):
        self.n_components = n_components
        self.kernel = kernel
        self.eta = eta
        self.center = center
        self.solver = solver
        self.init = init
        self.extension = extension
        self.preimage = preimage
        self.approximation = approximation
        self.trim = trim
        self.max_iter = max_iter
        self.max_time = max_time
        self.tol = tol
        self.learning_rate = learning_rate
        self.random_state = random_state
        self.verbose = verbose
        self.dtype = dtype
        self.device = device
        self.warm_start = warm_start

    # -- arguments ----------------------------------------------------------------------------------------------------
    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Get parameters, with ``deep`` also those of the kernels, as ``kernel__0__lengthscale``."""
        params = super().get_params(deep)
        for j, kernel in enumerate(self.kernel if deep and isinstance(self.kernel, list | tuple) else ()):
            if isinstance(kernel, Kernel):
                params |= {f"kernel__{j}__{name}": value for name, value in kernel.get_params().items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters, those of one level's kernel by ``kernel__0__lengthscale``, also where it is a name.

        If ``kernel`` is no list, it becomes one for this, with as many entries as there are levels.
        ``kernel__lengthscale`` is for one kernel of all levels.
        """
        kernel = params.get("kernel", self.kernel)
        listed = isinstance(kernel, list | tuple)
        places = {name: name.split("__", 2)[1:] for name in params if name.startswith("kernel__")}
        if not listed and not any(place[0].isdigit() for place in places.values()):
            return super().set_params(**params)
        others = (params.get(name, getattr(self, name)) for name in ("n_components", "eta"))
        depth = next((len(entries) for entries in others if np.ndim(entries)), 1)
        entries = list(kernel) if listed else [kernel] * depth
        changed: dict[int, Kernel] = {}
        for name, (index, *rest) in places.items():
            if not (index.isdigit() and int(index) < len(entries)) or not rest:
                raise ValueError(
                    f"Invalid parameter {name!r} for DeepKernelPCA: the parameters of a kernel in a list are set by "
                    f"kernel__0__lengthscale and the like; kernel={kernel!r}, {len(entries)} levels."
                )
            j = int(index)
            changed[j] = changed.get(j) or level_kernel(j, entries[j])
            changed[j].set_params(**{rest[0]: params.pop(name)})
        if changed:
            entries = [changed.get(j, entry) for j, entry in enumerate(entries)]
            params["kernel"] = tuple(entries) if isinstance(kernel, tuple) else entries
        return super().set_params(**params)

    def __sklearn_tags__(self) -> Tags:
        tags, kernel = super().__sklearn_tags__(), self.kernel
        first = kernel[0] if isinstance(kernel, list | tuple) and len(kernel) else kernel
        tags.input_tags.pairwise, tags.input_tags.sparse = kernel_domain(first) == "gram", takes_sparse(first)
        return tags

    # -- fitting ------------------------------------------------------------------------------------------------------
    @fitting
    def fit(self, X: Data, y: object = None) -> Self:
        """Find the hidden features of all levels.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the first kernel takes
            Training data; with a precomputed kernel, their Gram matrix. With ``approximation``, also in Dask.
        y : Ignored
            Not used, present for API consistency.

        Returns
        -------
        self : DeepKernelPCA
            The fitted transformer.
        """
        self._check()
        decoder = self.preimage if isinstance(self.preimage, Network) else None
        if decoder is not None:
            decoder.check()
        model = LevelModel.of(
            self.n_components,
            self._stated_kernels(X),
            self.eta,
            center=self.center,
            extension=self.extension,
            approximation=self.approximation,
            decoder=decoder,
            trim=self.trim,
        )
        samples = self._samples(model.kernels[0], X)
        problem = LevelsProblem(samples, model, self._search(), self._representation()).settled()
        choice = problem.choose()
        self._keep(problem, choice, problem.solve(choice))
        return self

    def _stated_kernels(self, X: Data) -> Any:
        """The kernels of the levels; the first ``"auto"`` is what is suggested for data that are no vectors."""
        listed = isinstance(self.kernel, list | tuple)
        first = self.kernel[0] if listed and len(self.kernel) else self.kernel
        suggested = single_kernel(first, X)
        if suggested is first or isinstance(suggested, str):
            return self.kernel
        if listed:
            return [suggested, *self.kernel[1:]]
        depth = next((np.size(entries) for entries in (self.n_components, self.eta) if np.ndim(entries)), 1)
        return [suggested, *["auto"] * (depth - 1)]

    def _samples(self, kernel: Kernel, X: Data) -> Samples:
        """The samples, checked, without targets."""
        if is_dask(X):
            return self._dask_samples(kernel, X, None)
        X, _, _ = self._checked_inputs(kernel, X)
        return InMemory(Block(X, torch.zeros(len(X), 0)))

    def _search(self) -> LevelSearch:
        settings = self._search_settings(seed_of(self.random_state), "loo")
        last = self.function_ if self.warm_start and hasattr(self, "function_") else self.init
        return LevelSearch(self.solver, settings, last, self.learning_rate)

    def _keep(self, problem: LevelsProblem, choice: LevelSolution, function: Levels) -> None:
        """Keep what was found, and warn of what it is not."""
        state, networks = problem.stated(choice), problem.networks
        self._cached_ridges: dict[int, OperatorRidge] = {}
        self.function_, self.subset_ = function, problem.subset
        self.X_fit_, self.hidden_ = function.data.anchors, list(function.hidden)
        self.eigenvalues_ = [plain(multiplier.diagonal(), copy=True) for multiplier in state.multipliers]
        self.kernel_, self.eta_ = [function.data.kernel, *function.kernels], list(function.etas)
        self.n_components_ = function.sizes
        self.explained_variance_ratio_ = state.explained_variance()
        self.energy_ = state.energy
        self.residual_ = state.residual if choice.coupled else problem.energy.at(state.hidden).residual
        if not np.isfinite([self.energy_, self.residual_]).all():
            raise ValueError(
                "The energy of the levels overflows. Choose a larger |eta| or other kernels, or scale the data."
            )
        self.solver_, self.history_, self.n_iter_ = choice.solver, choice.history, choice.n_iter
        self.decoder_ = None if networks is None else networks.decoder
        self.training_history_ = [] if networks is None else networks.result.history
        if networks is not None and networks.result.interrupted and not self._deadline.was_missed:
            what = "The training of encoder and decoder was interrupted: the best pass so far is kept."
            warn(what, ConvergenceWarning)
        for message in inspection.defects(function, problem.energy.gram, self.subset_):
            warn(message, CollapsedComponentWarning)
        if self._deadline.was_missed:  # of which the fit itself speaks
            return
        if choice.interrupted:
            what = "The search over hidden features was interrupted: the best point so far is kept"
            warn_unconverged(f"{what} (residual_ = {self.residual_:.1e}).")
        elif not choice.converged:
            warn(
                f"Deep kernel PCA has not converged: {choice.message}. The best point is kept (residual_ = "
                f"{self.residual_:.1e}). Raise max_iter, or choose a larger lengthscale or |eta| for the upper levels.",
                ConvergenceWarning,
            )

    # -- hidden features ----------------------------------------------------------------------------------------------
    @property
    def leading_(self) -> list[bool]:
        """For each level, whether the eigenvectors of sign(η_j) M_j that it keeps are the leading ones."""
        check_is_fitted(self)
        return inspection.are_leading(self.function_)

    @property
    def _n_features_out(self) -> int:
        return sum(self.n_components_)

    def transform(self, X: Data, level: int | None = None) -> Data:
        """Find the hidden features of samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the first kernel takes
            Data; with a precomputed kernel, k(X, X_train). For a Dask collection, the features are lazy, too.
        level : int, default=None
            Only those of one level, counted from 0; None: all levels side by side.

        Returns
        -------
        H : ndarray of shape (n_samples, n_components), or what ``set_output`` asks for
            Training samples get the rows of ``hidden_`` (with ``extension="exact"``), but 0 along directions without
            variance.
        """
        j = None if level is None else self._level(level)
        if is_dask(X):
            width = self._n_features_out if j is None else self.n_components_[j]
            return self._lazily("_features_of", X, width, level=j)
        features = _wrap_data_with_container("transform", self._features_of(X), X, self)
        columns = self.function_.columns(j)
        if isinstance(features, np.ndarray):
            return np.ascontiguousarray(features[:, columns])
        return features.iloc[:, columns] if hasattr(features, "iloc") else features[:, columns]

    def _features_of(self, X: Data, level: int | None = None) -> np.ndarray:
        """Hidden features before they are put into the container that ``set_output`` asks for."""
        H = plain(self._hidden(self._new_inputs(X)))
        return H if level is None else np.ascontiguousarray(H[:, self.function_.columns(level)])

    def _hidden(self, X: Data) -> Tensor:
        """Hidden features of checked inputs, with a warning if their equations were not solved."""
        values, solved = self.function_.extended(X)
        failed = int((~solved).sum())
        if failed:
            warn(
                f"The equations of {failed} of {len(solved)} new samples were not solved; these keep the hidden "
                "features of the training sample nearest to them. extension='smoother' needs no equations.",
                ConvergenceWarning,
            )
        return values

    def _data_kernel(self) -> Kernel:
        return self.function_.data.kernel

    def _level(self, level: int | None) -> int:
        """The number of a level, the last by default."""
        last = len(self.function_.hidden) - 1
        if level is None:
            return last
        if isinstance(level, bool) or not (isinstance(level, int | np.integer) and 0 <= level <= last):
            raise ValueError(f"level must be None or an integer from 0 to {last}; got {level!r}.")
        return int(level)

    # -- from components back to data ---------------------------------------------------------------------------------
    def inverse_transform(self, H: Data, level: int | None = None) -> Data:
        """Find data that have the given components.

        Parameters
        ----------
        H : array-like of shape (n_samples, n_components of the level)
            Components of one level. For the last level, also what ``transform`` returns of all levels side by side: its
            last columns count.
        level : int or None, default=None
            Whose components they are, from 0; None is the last.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features), or list of objects
            Data; with a precomputed kernel, the row numbers of the training samples that come closest.
        """
        j, sizes = self._level(level), self.n_components_
        codes = check_codes(H, "H")
        if level is None and codes.shape[1] == sum(sizes):
            codes = codes[:, self.function_.columns(j)]
        if codes.shape[1] != sizes[j]:
            raise ValueError(
                f"Level {j} has {sizes[j]} components; H has {codes.shape[1]} columns. The levels have {sizes} "
                "components: say with level= which of them H holds."
            )
        return self._generated(codes, j)

    def reconstruct(self, X: Data, level: int | None = None) -> Data:
        """Show what the components of one level keep of data: ``inverse_transform(transform(X, level), level)``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Data; with a precomputed kernel, k(X, X_train).
        level : int or None, default=None
            Which level; None is the last.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features), or list of objects
            Reconstructions.
        """
        j = self._level(level)
        return self._generated(self._features_of(X, j), j)

    def sample(
        self,
        n_samples: int = 1,
        level: int | None = None,
        *,
        density: str = "gaussian",
        random_state: int | np.random.Generator | None = None,
    ) -> Data:
        """Draw new data: components from a density fitted to those of the training samples, and their way back.

        Parameters
        ----------
        n_samples : int, default=1
            How many.
        level : int or None, default=None
            The level whose components are drawn; None is the last.
        density : {"gaussian", "kde"}, default="gaussian"
            One normal distribution, or one around each training sample, its covariance scaled by Scott's rule.
        random_state : int, numpy.random.Generator or None, default=None
            The seed.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features), or list of objects
            New data.
        """
        j = self._level(level)
        COUNT("n_samples", n_samples)
        one_of("gaussian", "kde")("density", density)
        try:
            rng = np.random.default_rng(random_state)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"random_state must be an integer from 0, a numpy.random.Generator or None; got {random_state!r}."
            ) from error
        return self._generated(self.function_.draw(j, n_samples, density, rng), j)

    def traverse(
        self,
        component: int,
        level: int | None = None,
        steps: int = 7,
        *,
        span: float = 2.0,
        start: Data | None = None,
    ) -> Data:
        """Show data along one component of a level, while its other components stay.

        Parameters
        ----------
        component : int
            The number of the component, from 0.
        level : int or None, default=None
            Its level; None is the last.
        steps : int, default=7
            How many data, evenly spread; 1: the middle alone.
        span : float, default=2.0
            How far to each side, in standard deviations of the component over the training samples.
        start : array-like of shape (1, n_features), or list with one object, default=None
            The sample whose components are the middle; None is their mean over the training samples.

        Returns
        -------
        X : ndarray of shape (steps, n_features), or list of objects
            Data.
        """
        j = self._level(level)
        H = self.function_.hidden[j]
        if not (component == 0 or is_count(component)) or component >= H.shape[1]:
            raise ValueError(f"component must be from 0 to {H.shape[1] - 1} at level {j}; got {component!r}.")
        COUNT("steps", steps)
        NOT_NEGATIVE("span", span)
        middle = H.mean(0, keepdims=True) if start is None else self._features_of(start, j)
        if len(middle) != 1:
            raise ValueError(f"start must be one sample; got {len(middle)}.")
        codes = np.repeat(middle, steps, axis=0)
        codes[:, component] += (np.linspace(-span, span, steps) if steps > 1 else 0.0) * H[:, component].std()
        return self._generated(codes, j)

    def _generated(self, codes: np.ndarray, level: int) -> Data:
        """Data for components of a level, through all levels below it."""
        return LevelPreimages(self.function_, self.preimage, self._by_ridge, self.decoder_)(codes, level)

    def _by_ridge(self, level: int, codes: np.ndarray) -> np.ndarray:
        """Inputs of a level by the function of components of least leave-one-out error, fitted when first needed.

        Components have no origin that inputs would share: the data are taken around their mean.
        """
        ridges: dict[int, OperatorRidge] = self.__dict__.setdefault("_cached_ridges", {})
        H, inputs = self.function_.hidden[level], self.function_.hidden[level - 1] if level else self.X_fit_
        origin, middle = (0.0, 0.0) if level else (inputs[0], (inputs - inputs[0]).mean(0))
        unit = len(H) ** 0.5  # On this scale the components of the training samples have unit size.
        if level not in ridges:
            landmarks = Nystroem(RIDGE_LANDMARKS) if len(H) > EXACT_RIDGE else None
            ridge = OperatorRidge(
                Gaussian("auto"), fit_intercept=False, approximation=landmarks, random_state=0, device=self.device
            )
            ridges[level] = ridge.fit(unit * H, inputs - origin - middle)
        return ridges[level].predict(unit * codes) + middle + origin

    # -- analysis -----------------------------------------------------------------------------------------------------
    def score(self, X: Data, y: object = None) -> float:
        """Return the share of the variance of X that a linear map recovers from the hidden features.

        The map is fitted to the training samples by least squares. Vectors are recovered as they are, so that the score
        compares models with any kernels; other data are recovered in the feature space of the first kernel.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the first kernel takes
            Data; with a precomputed kernel, k(X, X_train), where the training samples' mean of k(x, x) stands for that
            of new ones.
        y : Ignored
            Not used, present for API consistency.

        Returns
        -------
        score : float
            1 − squared error / squared distance from the training mean: 1 for what is recovered completely.
        """
        X = self._new_inputs(X)
        return self.function_.recovery(X, self._hidden(X)).share

    def approximation_bounds(self) -> ApproximationBounds:
        """Say how well the first level approximates the Gram matrix of the data, and between which bounds (Lemma 4.1).

        M_1 = K_1/η_1 + B has the eigenvectors H_1, so ‖M_1 − H_1Λ_1H_1ᵀ‖_F = τ is known from the eigenvalues that are
        left out, and the error ‖K_1/η_1 − H_1Λ_1H_1ᵀ‖_F lies between τ ∓ ‖B‖_F. With two levels and a linear second
        one, B = H_2H_2ᵀ/η_2 and the upper bound is that of the lemma, with von Neumann's inequality for its last trace:
        sharper than the paper's for η_2 > 0, and valid for η_2 < 0 also if Λ_1 has negative entries.

        Returns
        -------
        bounds : ApproximationBounds
            ``lower``, ``error``, ``upper``.
        """
        return inspection.approximation_bounds(self.function_)

    def eta_for_explained_variance(self, n_components: int | None = None, ratio: float | None = None) -> float:
        """Find the η_2 of a linear second level with which the first explains more in fewer components (Lemma 4.2).

        With s components at both levels, a linear second level adds 1/η_2 to the s eigenvalues λ_i of K_1/η_1. If η_2
        is negative, the first n of them hold a larger share of their sum than in kernel PCA, for every n < s; they stay
        non-negative if η_2 ≤ −1/λ_s. The lemma is the case of s = n_samples.

        Parameters
        ----------
        n_components : int, default=None
            The n components that are to hold ``ratio``.
        ratio : float, default=None
            The share of the s eigenvalues' sum that they are to hold; None: as much as can be.

        Returns
        -------
        eta : float
            η_2; the largest negative one that is allowed, −1/λ_s, if no ratio is given.
        """
        return inspection.eta_for_explained_variance(self.function_, n_components, ratio)

    def suggest_architecture(
        self, X: Data, *, variance: float = 0.9, max_levels: int = 4, min_gain: float = 0.01
    ) -> Architecture:
        """Suggest numbers of components and levels for data (section 5.2 of the paper), without labels.

        Each level gets as many components as hold a share of its variance: first in kernel PCA, then, fewer or more,
        once all levels are fitted together. Levels are added until the last one holds that share in its first
        component, or its first component holds no more than that of the level below.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the first kernel takes
            Data; with a precomputed kernel, their Gram matrix.
        variance : float, default=0.9
            The share of its variance that a level's components are to hold.
        max_levels : int, default=4
            Most levels. Those beyond the lists given to the constructor take their last kernel and eta.
        min_gain : float, default=0.01
            A level whose first component does not hold this share more than that of the level below is not added, and
            neither is one more component to a level if the one before it has not added as much.

        Returns
        -------
        architecture : Architecture
            ``n_components`` (for the constructor), ``explained_variance_ratio`` of each level, ``reason`` to stop.
        """
        SHARE("variance", variance)
        COUNT("max_levels", max_levels)
        if not (is_real(min_gain) and np.isfinite(min_gain)):
            raise ValueError(f"min_gain must be a finite number, a share of the variance; got {min_gain!r}.")
        return suggested(
            lambda sizes: self._with_levels(sizes, X),
            variance,
            max_levels,
            min_gain,
            center=self.center if isinstance(self.center, str) else bool(self.center),
        )

    def _with_levels(self, n_components: list[float], X: Data) -> FittedLevels:
        """What a copy with so many levels finds; what collapses is left out of an architecture, without a warning."""
        depth = len(n_components)
        model = clone(self).set_params(n_components=n_components, init="levelwise")
        for name in ("kernel", "eta"):
            entries = getattr(self, name)
            if isinstance(entries, list | tuple | np.ndarray):
                model.set_params(**{name: [*entries, *[entries[-1]] * depth][:depth]})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CollapsedComponentWarning)
            model.fit(X)
        return FittedLevels(model.explained_variance_ratio_, model.hidden_)


# scikit-learn's wrapper would give the columns of one level the names of all; transform itself names them.
DeepKernelPCA.transform = DeepKernelPCA.transform.__wrapped__  # type: ignore[method-assign,attr-defined]
