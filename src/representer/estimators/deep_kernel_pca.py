"""Kernel principal components in several levels that are learned together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from representer.approximation import SAMPLING, choose_samples
from representer.approximation.sampling import candidate_rows, sample_rows
from representer.data import plain, take
from representer.estimators._callbacks import CallbackSupportMixin, fitting, iteration_callback
from representer.estimators._deep_pca import (
    FirstLevel,
    KernelsPerLevel,
    Levels,
    check_varies,
    sample_count,
    shares,
)
from representer.estimators._deep_pca_analysis import DeepPCAAnalysis
from representer.estimators._deep_pca_extension import NewSamples
from representer.estimators._deep_pca_fit import Settings, Solution, canonical, check_init, solve
from representer.estimators._deep_pca_generation import Generation, check_preimage
from representer.estimators._lazy import keep_columns
from representer.estimators.validation import (
    check_counts,
    check_device,
    check_inputs,
    check_options,
    seed_of,
    warn_unconverged,
)
from representer.kernels import Kernel
from representer.linalg.memory import recycling
from representer.objectives.multilevel import MultiLevel
from representer.operators.adapted import Representation, original, takes_sparse
from representer.parameters import is_real
from representer.samples.on_dask import OnDask, is_dask

SOLVERS = ("auto", "scf", "riemannian", "projected_gradient", "riemannian_adam", "levelwise")


class DeepKernelPCA(
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    CallbackSupportMixin,
    NewSamples,
    Generation,
    DeepPCAAnalysis,
    KernelsPerLevel,
):
    """Kernel principal components in several levels, where the levels above shape those below.

    Level j has orthonormal hidden features H_j, one row a sample, and the Gram matrix K_j of the features of the level
    below; K_1 is that of the data. They make the energy E = Σ_j Tr(H_jᵀ K_j(H_{j−1}) H_j) / (2 η_j) stationary (Tonin,
    Tao, Patrinos and Suykens, 2024): each H_j holds eigenvectors of a matrix M_j that depends on the levels below and
    above: as a rule the leading ones, which ``"scf"`` looks for, but neither stationary points nor maxima of E, which
    ``"riemannian"`` finds, need to have that property. With one level it is kernel PCA.

    Parameters
    ----------
    n_components : int, float or list of these, default=(2, 2)
        For each level, the number of components, or the share of the level's variance (between 0 and 1) that they are
        to hold in kernel PCA of one level after the other. This argument and the next two are lists with one entry a
        level; what is no list holds for all of them.
    kernels : Kernel, str or list of these, default="rbf"
        The first sees the data (``"precomputed"``: their Gram matrix), the others hidden features, which have columns
        of unit length. A word (``"median"``) in a kernel is given its number by the data, or by the hidden features
        where the search starts; a name (``"rbf"``) above the first level stands for a lengthscale of 1.
    eta : float or list of float, default=1.0
        η_j: a small |η_j| gives a level more weight. With a negative η_j the level keeps its leading variance, but the
        level below works against it: a saddle, where the kept eigenvectors need not be the leading ones
        (see ``leading_``), and which the search may miss (it warns), above all with three nonlinear levels.
    center : bool, default=True
        Centre the features of the data (level 1), as kernel PCA does; False is the problem of the paper.
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
        a mean of the training samples' own, weighted by the first kernel.
    preimage : {"auto", "direct", "ridge", "gradient", "weighted", "nearest"} or Network, default="auto"
        How ``inverse_transform`` finds the inputs of a level from its components. ``"direct"``: the features themselves
        (linear kernels). ``"ridge"``: kernel ridge regression from components to inputs. ``"weighted"``: the mean of
        the 10 training inputs whose features are nearest; ``"gradient"``: the input that minimises the distance in
        feature space, from there. ``"nearest"``: the training input. ``"auto"``: direct for linear kernels, ridge for
        other vectors, nearest for anything else. ``Network(module)`` (of ``representer.preimage``) trains a network
        back from the features of the first level, together with the one in ``kernels=[Neural(module, Linear()), …]``.
    max_samples : int or float, default=None
        Fit to so many samples, or such a share of them, and find the hidden features of the others by ``extension``.
    sampling : {"uniform", "leverage", "entropy"}, default="uniform"
        Which ones: at random, at random by leverage scores, or spread by quadratic Rényi entropy; of more than 20,000
        samples (and four times ``max_samples``), among as many random ones.
    max_iter : int, default=200
        Most iterations of the search.
    tol : float, default=1e-9
        The search ends when the relative residual of the equations (6) is as small.
    learning_rate : float, default=1e-3
        Of ``"riemannian_adam"``.
    random_state : int, RandomState instance or None, default=None
        Seed of random starts.
    verbose : int, default=0
        1: a progress bar for long searches. 2: also why they stopped.
    device : str, default=None
        Where to compute, as in ``torch.device``.

    Attributes
    ----------
    hidden_ : list of ndarray of shape (n_samples, n_components_[j])
        H_j, with orthonormal columns, leading components first.
    eigenvalues_ : list of ndarray of shape (n_components_[j],)
        The diagonal of Λ_j = H_jᵀ M_j H_j. (Where the kernel above sees rotations, as with ℓ₁ distances or one
        lengthscale a feature, Λ_j is symmetric but not diagonal.)
    explained_variance_ratio_ : list of ndarray of shape (n_components_[j],)
        Eigenvalues over the sum of all eigenvalues of M_j. With η of both signs some eigenvalues may be negative, and
        so their shares; NaN if they cancel in the sum, which then says nothing of a part of it.
    leading_ : list of bool
        Of each level, whether the eigenvectors of sign(η_j) M_j that it keeps are the leading ones (found when asked).
    energy_ : float
        E.
    residual_ : float
        The largest ‖M_j H_j − H_j Λ_j‖ / ‖M_j H_j‖ of all levels: how well equations (6) hold.
    solver_ : str
        What found the solution: ``"closed_form"``, ``"levelwise"``, or the name of a solver.
    history_ : list of HistoryEntry
        The search: iteration, seconds, energy (value), relative residual (gradient_norm).
    n_iter_ : int
        Iterations of the search.
    n_components_ : list of int
        Components of each level.
    kernels_ : list of Kernel
        With the numbers that were used.
    eta_ : list of float
        η_j of each level.
    decoder_ : torch.nn.Module or None
        The trained network of a ``Network``; that of the encoder is in ``kernels_[0]``.
    training_history_ : list of HistoryEntry
        The passes of its training.
    X_fit_ : ndarray or list
        The training data, those of ``subset_``.
    subset_ : ndarray of int
        The row numbers of the samples that were fitted to.
    n_features_in_ : int
        Number of features seen during fit (vectors and Gram matrices).
    feature_names_in_ : ndarray of str
        Names of the features, if X had string names.

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

    def __init__(
        self,
        n_components: Any = (2, 2),
        kernels: Any = "rbf",
        *,
        eta: Any = 1.0,
        center: bool = True,
        solver: str = "auto",
        init: Any = "levelwise",
        extension: str = "exact",
        preimage: Any = "auto",
        max_samples: int | float | None = None,
        sampling: str = "uniform",
        max_iter: int = 200,
        tol: float = 1e-9,
        learning_rate: float = 1e-3,
        random_state: Any = None,
        verbose: int = 0,
        device: str | None = None,
    ):
        self.n_components = n_components
        self.kernels = kernels
        self.eta = eta
        self.center = center
        self.solver = solver
        self.init = init
        self.extension = extension
        self.preimage = preimage
        self.max_samples = max_samples
        self.sampling = sampling
        self.max_iter = max_iter
        self.tol = tol
        self.learning_rate = learning_rate
        self.random_state = random_state
        self.verbose = verbose
        self.device = device

    # -- arguments ----------------------------------------------------------------------------------------------------
    def _check_arguments(self) -> None:
        check_preimage(self.preimage)
        check_init(self.init)
        if not isinstance(self.center, bool | np.bool_):
            raise ValueError(f"center must be True or False; got {self.center!r}.")
        check_options(self, {"solver": SOLVERS, "extension": ("exact", "smoother"), "sampling": SAMPLING})
        check_counts(self, {"max_iter": 1, "verbose": 0})
        check_device(self.device)
        for name in ("tol", "learning_rate"):
            value = getattr(self, name)
            if not is_real(value) or not np.isfinite(value) or value <= 0:
                raise ValueError(f"{name} must be a positive number; got {value!r}.")

    # -- fitting ------------------------------------------------------------------------------------------------------
    @fitting
    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the hidden features of all levels.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the first kernel takes
            Training data; with a precomputed kernel, their Gram matrix. With ``max_samples``, also a Dask array or
            DataFrame.
        y : Ignored
            Not used, present for API consistency.

        Returns
        -------
        self : DeepKernelPCA
            The fitted transformer.
        """
        context = self._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=self)
        self._check_arguments()
        levels = Levels.of(self.n_components, self.kernels, self.eta)
        first = levels.kernels[0]
        X = self.X_fit_ = self._samples(first, X)
        data = self._form.inputs(first, X)
        levels.check_samples(len(X))
        settings = Settings(
            self.solver,
            self.tol,
            self.max_iter,
            self.learning_rate,
            seed_of(self.random_state),
            self.verbose,
            iteration_callback(self, context),
        )
        first = self._first_kernel_trained(levels, X, settings)
        self._first, gram = FirstLevel.of(first, data, self._form, center=self.center)
        check_varies(gram, self._first)
        problem = MultiLevel(gram, levels.kernels[1:], levels.etas)
        with recycling():  # of the Gram matrices of upper levels, which every step makes anew
            self._keep(problem, solve(problem, levels.sizes, settings, self.init))
        context.call_on_fit_task_end(estimator=self)
        return self

    def _samples(self, kernel: Kernel, X: Any) -> Any:
        """The samples to fit to, checked; of a Dask collection, brought here."""
        if is_dask(X):
            if self.max_samples is None:
                raise ValueError(
                    "Samples in Dask collections need max_samples=: the components are those of so many samples, and "
                    "transform finds the others' hidden features, a chunk at a time."
                )
            if kernel.domain != "vectors":
                raise ValueError(f"Dask collections hold vectors, but {kernel!r} takes {kernel.domain}.")
            source = OnDask(X, None, None, dtype=torch.float64)
            keep_columns(self, X, source)
            self._form = Representation(torch.float64, self.device)
            self.subset_ = self._subset(kernel, source.n, lambda rows: source.rows(rows).X)
            return plain(source.rows(self.subset_).X)
        X = check_inputs(self, X, kernel.domain, reset=True, sparse=takes_sparse(kernel))
        if len(X) < 2:
            raise ValueError(f"Found {len(X)} sample (n_samples = {len(X)}): components need at least 2.")
        self._form = Representation(torch.float64, self.device, hasattr(X, "toarray"))

        def read(rows: np.ndarray) -> Any:
            return self._form.inputs(kernel, X if len(rows) == len(X) else take(X, torch.from_numpy(rows)))

        self.subset_ = self._subset(kernel, len(X), read)
        return X if len(self.subset_) == len(X) else take(X, torch.from_numpy(self.subset_))

    def _subset(self, kernel: Kernel, n: int, read: Callable[[np.ndarray], Any]) -> np.ndarray:
        """The numbers of the samples to fit to, by a look at some of them."""
        wanted = sample_count(self.max_samples, n)
        if wanted == n:
            return np.arange(n)
        if kernel.domain == "gram":
            raise ValueError(
                "max_samples needs a kernel that can be evaluated on a part of the data; a precomputed Gram matrix is "
                "n × n already. Pass the Gram matrix of a part, or a kernel object."
            )
        seed = seed_of(self.random_state)
        if self.sampling == "uniform":
            return sample_rows(n, wanted, seed)
        rows = candidate_rows(n, wanted, seed)
        data = read(rows)
        return rows[
            plain(choose_samples(kernel.resolve(data), data, wanted, sampling=self.sampling, seed=seed))
        ]

    def _keep(self, problem: MultiLevel, solution: Solution) -> None:
        coupled = solution.solver != "levelwise"
        state = canonical(problem, solution.state, coupled=coupled)
        self._multipliers = [plain(multiplier) for multiplier in state.multipliers]
        self._variances = [plain(variance) for variance in state.variances]
        self._forward = plain(state.forward)
        self.hidden_ = [plain(H) for H in state.hidden]
        self.eigenvalues_ = [np.diagonal(multiplier).copy() for multiplier in self._multipliers]
        self.explained_variance_ratio_ = [
            shares(values, total, len(H))
            for values, total, H in zip(self.eigenvalues_, state.totals, self.hidden_, strict=True)
        ]
        self.energy_ = state.energy
        self.residual_ = state.residual if coupled else problem.at(state.hidden).residual
        if not np.isfinite([self.energy_, self.residual_]).all():
            raise ValueError(
                "The energy of the levels overflows. Choose a larger |eta| or other kernels, or scale the data."
            )
        self.solver_, self.history_, self.n_iter_ = solution.solver, solution.history, solution.n_iter
        self.n_components_ = [H.shape[1] for H in self.hidden_]
        self._n_features_out = sum(self.n_components_)
        self.kernels_ = [original(self._first.kernel), *problem.kernels]
        self.eta_ = list(problem.etas)
        self._warn_of_collapse(state, coupled)
        self._has_twins_apart = self._tells_twins_apart(problem.gram)
        if not solution.converged:
            warn_unconverged(
                f"Deep kernel PCA has not converged: {solution.message}. The best point is kept (residual_ = "
                f"{self.residual_:.1e}). Raise max_iter, or choose a larger lengthscale or |eta| for the upper levels."
            )

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Fit, and return the hidden features of the training samples, all levels side by side.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the first kernel takes
            Training data; with a precomputed kernel, their Gram matrix.
        y : Ignored
            Not used, present for API consistency.

        Returns
        -------
        H : ndarray of shape (n_samples, number of components of all levels)
            ``hidden_``, side by side; with ``max_samples``, the smoother, components without variance, or equal
            samples with different ``hidden_``, what ``transform`` gives.
        """
        self.fit(X)
        differs = self._has_null_directions or self._has_twins_apart
        if self.max_samples is not None or self.extension == "smoother" or differs:
            return self._features_of(X, None)
        return np.concatenate(self.hidden_, 1)
