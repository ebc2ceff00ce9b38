"""Structured outputs: regression into the RKHS of an output kernel, and back to objects by a decoder."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from representer.data import count, plain
from representer.estimators._callbacks import CallbackSupportMixin, fitting, iteration_callback
from representer.estimators._lazy import in_memory, takes_batches
from representer.estimators._structured import Problem
from representer.estimators._structured_fit import StructuredFit
from representer.estimators._structured_large import chosen_again, first_batch, many_samples, next_batch


class StructuredPredictor(CallbackSupportMixin, StructuredFit):
    """Predict objects of any kind: regression into the RKHS of an output kernel l, then a decoder (Kadri et al., 2013).

    Solves ::

        min_g  (1/n) Σ_i ‖l(·, y_i) − g(x_i)‖² + alpha ‖g‖²

    over the functions into the RKHS of l whose operator-valued kernel is k(x, x') A, and predicts the y whose l(·, y)
    the ``decoder`` finds next to g(x) = Σ_i w_i(x) l(·, y_i). Exact in O(n³) for all operators A: no system of size
    n² × n² exists. Kadri's λ is ``n * alpha``.

    Parameters
    ----------
    kernel : Kernel, str or callable, default="rbf"
        The kernel k of the inputs. A number in it stays; ``"median"`` (what ``"rbf"`` means) is a heuristic, ``"auto"``
        and ``"ard"`` are learned by leave-one-out.
    output_kernel : Kernel, str or callable, default="rbf"
        The kernel l of the outputs: it says which outputs are alike, and is the loss that is minimised. Words are
        heuristics, but for ``"auto"`` with ``criterion="validation"``. ``"precomputed"``: y is their Gram matrix, and
        predictions are numbers of training outputs.
    operator : {"identity", "kpca", "covariance", "conditional_covariance"} or Operator, default="identity"
        A: the identity (input-output kernel regression); the projection on the leading principal components of the
        outputs; their covariance; their covariance given the inputs. Or, for a linear l on vectors, any operator of
        ``representer.operators``.
    alpha : float, array-like or "auto", default="auto"
        The weight of ‖g‖²; several candidates, or all positive numbers, are compared by the ``criterion``.
    epsilon : float or "auto", default="auto"
        The ridge of the regression inside the conditional covariance; ``"auto"`` compares some multiples of k(x, x).
        Where ``operator=ConditionalCovariance(epsilon)`` has one, it may not be another.
    n_components : int or "auto", default="auto"
        The number of components of ``operator="kpca"``, at most as many as have a variance above rounding error (see
        ``n_components_``); ``"auto"``: that of least leave-one-out error.
    center : bool, default=False
        Regress on what distinguishes outputs from their mean, and add the mean: principal components and covariances
        are then centred ones, as in Weston et al. (2003).
    decoder : Decoder, str or callable, default="candidates"
        How g(x) becomes an object: one of ``representer.preimage``, its name, or a function of (embedding, X). The
        default chooses among the training outputs.
    criterion : {"loo", "validation"}, default="loo"
        The exact leave-one-out error in the RKHS of l, in closed form; or the ``task_loss`` of decoded predictions.
    task_loss : callable or None, default=None
        For ``criterion="validation"``: ``task_loss(y_true, y_pred)``, a number or one for each sample, the lower the
        better. None: the squared distance in the RKHS of l.
    cv : int or cross-validation splitter, default=5
        The folds of ``criterion="validation"``.
    approximation : Nystroem, pair of Nystroem or Landmarks, or None, default=None
        None is exact, with n × n matrices. ``Nystroem(m)`` takes m landmarks of inputs and of outputs, a pair some of
        each: the fit is a sum over blocks of samples, also on Dask, and of more than 20,000 samples kernels and
        decoders see as many random ones.
    memory_limit : int, str or None, default=None
        What an approximate fit may take beside the data, in bytes or as ``"2GB"``; None: what the landmarks need.
    max_iter, tol, n_restarts
        Of the search over hyperparameters of ``kernel``, as in ``OperatorRidge``.
    random_state : int, RandomState instance or None, default=None
        Seeds landmarks, folds and random starts.
    verbose : int, default=0
        1 shows progress of long searches, 2 also how they ended.
    device : str or None, default=None
        Where tensors live, ``"cpu"`` by default.
    dtype : {"float64", "float32"}, default="float64"
        The precision of the computation.

    Attributes
    ----------
    kernel_, output_kernel_ : Kernel
        The kernels with the numbers that were used.
    decoder_ : Decoder
        The decoder, with what it knows of the training outputs.
    alpha_ : float
        The weight of ‖g‖² that was used.
    epsilon_ : float or None
        Of the conditional covariance.
    n_components_ : int or None
        Of ``operator="kpca"``: how many were used.
    dual_coef_ : ndarray of shape (n_input_anchors, n_output_anchors)
        The D in w_j(x) = Σ_i k(x, x_i) D_ij (plus ``offset_``).
    offset_ : ndarray of shape (n_output_anchors,) or None
        With ``center``, the weights of the mean output.
    X_fit_, Y_fit_ : ndarray or list
        The training inputs, and the outputs of those that have one; of an approximate fit to more than 20,000 samples,
        as many random ones.
    landmarks_, output_landmarks_ : ndarray, list or None
        The anchors of an approximate fit.
    criterion_value_ : float or None
        The criterion at the chosen numbers. None if it has chosen nothing; ``kernel`` is always learned by
        leave-one-out, so that with ``criterion="validation"`` it does not count.
    history_ : list of HistoryEntry
        The search over hyperparameters of ``kernel``.
    n_iter_ : int
        Its iterations, 1 if there was none.
    n_samples_seen_ : int
        Of all batches, after ``partial_fit``.
    n_features_in_ : int
        Number of features seen during fit (vectors and Gram matrices).
    feature_names_in_ : ndarray of str
        Names of the features, if X had string names.

    See Also
    --------
    ConditionalMeanEmbedding : The same regression for distributions of outputs.
    OperatorRidge : Vectors as outputs, as they are.

    Examples
    --------
    >>> import numpy as np
    >>> from representer import StructuredPredictor
    >>> from representer.kernels import Spectrum
    >>> angles = np.linspace(0, 6, 60)
    >>> X = np.column_stack([np.cos(angles), np.sin(angles)])
    >>> words = ["north", "northeast", "east", "southeast", "south"]
    >>> y = [words[int(a) % 5] for a in angles]
    >>> model = StructuredPredictor("rbf", Spectrum(2).normalized()).fit(X, y)
    >>> model.predict([[np.cos(2.5), np.sin(2.5)]])
    ['east']
    >>> model.predict_topk([[np.cos(2.5), np.sin(2.5)]], 2)[0]
    [['east', 'southeast']]
    """

    def __init__(
        self,
        kernel: Any = "rbf",
        output_kernel: Any = "rbf",
        operator: Any = "identity",
        alpha: Any = "auto",
        *,
        epsilon: Any = "auto",
        n_components: Any = "auto",
        center: bool = False,
        decoder: Any = "candidates",
        criterion: str = "loo",
        task_loss: Any = None,
        cv: Any = 5,
        approximation: Any = None,
        memory_limit: int | str | None = None,
        max_iter: int = 100,
        tol: float = 1e-5,
        n_restarts: int = 1,
        random_state: Any = None,
        verbose: int = 0,
        device: str | None = None,
        dtype: str = "float64",
    ):
        self.kernel = kernel
        self.output_kernel = output_kernel
        self.operator = operator
        self.alpha = alpha
        self.epsilon = epsilon
        self.n_components = n_components
        self.center = center
        self.decoder = decoder
        self.criterion = criterion
        self.task_loss = task_loss
        self.cv = cv
        self.approximation = approximation
        self.memory_limit = memory_limit
        self.max_iter = max_iter
        self.tol = tol
        self.n_restarts = n_restarts
        self.random_state = random_state
        self.verbose = verbose
        self.device = device
        self.dtype = dtype

    # -- fitting ------------------------------------------------------------------------------------------------------
    @fitting
    def fit(self, X: Any, y: Any) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Training inputs; with a precomputed kernel, their Gram matrix; with an approximation, also in Dask.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), or a sequence of what the output kernel takes
            Training outputs; with a precomputed output kernel, their Gram matrix. None, or a row of NaN, marks an
            input without output: it takes part in the conditional covariance. Of a Gram matrix, the row and the
            column; predictions are then numbers among the outputs that are there.

        Returns
        -------
        self : StructuredPredictor
            The fitted model.
        """
        context = self._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=self)
        self._fit_whole(X, y, iteration_callback(self, context))
        context.call_on_fit_task_end(estimator=self)
        return self

    def _fit_whole(self, X: Any, y: Any, callback: Any) -> Problem:
        """Fit to all samples, however many; the problem that was solved."""
        for name in ("n_samples_seen_", "_batches"):
            self.__dict__.pop(name, None)
        many = many_samples(self, X, y)
        if many is None:
            return self._choose(*self._prepare(X, y, callback))
        return self._choose(*self._prepare(*many.known, callback, many.seed), many.source(self))

    @available_if(takes_batches)
    def partial_fit(self, X: Any, y: Any) -> Self:
        """Fit to more samples: with ``approximation=``, and the same as one fit to all of them.

        The first batch decides what the data decide: words in the kernels, landmarks, what is learned, and with
        ``criterion="validation"`` all numbers. So where these are given (numbers in the kernels and pairs of
        ``Landmarks``), it equals ``fit`` on all batches at once, operator and chosen numbers included.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Inputs of the batch.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), or a sequence of what the output kernel takes
            Their outputs, all of them known.

        Returns
        -------
        self : StructuredPredictor
            The fitted model.
        """
        X, y = in_memory(X), in_memory(y)
        if hasattr(self, "n_samples_seen_"):
            self._check()
            again, self._batches = next_batch(self, X, y)
            self._use_outputs(self.output_kernel_)  # the decoder learns of new outputs
            self._solve(again, chosen_again(self, again))
        else:
            problem = self._fit_whole(X, y, lambda entry: False)
            self._batches = first_batch(self, problem)
        self.n_samples_seen_ = self._batches.seen
        return self

    # -- pairs --------------------------------------------------------------------------------------------------------
    def joint_kernel(self, X1: Any, Y1: Any, X2: Any, Y2: Any) -> np.ndarray:
        """The joint kernel ⟨K(x, x') l(·, y), l(·, y')⟩ = k(x, x') ⟨A l(·, y), l(·, y')⟩ of pairs (Kadri et al., 5.2).

        For the identity operator it is the tensor product k(x, x') l(y, y'). See ``operators.joint_kernel`` for that of
        any operator-valued kernel.

        Parameters
        ----------
        X1, Y1 : inputs and outputs
            n pairs.
        X2, Y2 : inputs and outputs
            m pairs.

        Returns
        -------
        joint : ndarray of shape (n, m)
            One row for each of the first pairs.
        """
        check_is_fitted(self)
        if "gram" in (self.kernel_.domain, self.output_kernel_.domain):
            raise ValueError("joint_kernel needs kernels that can be evaluated; a precomputed one cannot.")
        kernel = self._adapted(self.kernel_, repair=False)
        one, two = (self._inputs(kernel, self._checked(X)) for X in (X1, X2))
        left, right = self._new_outputs(Y1, "Y1"), self._new_outputs(Y2, "Y2")
        for X, Y in ((one, left), (two, right)):
            if count(X) != count(Y):
                raise ValueError(f"Pairs have as many inputs as outputs; got {count(X)} and {count(Y)}.")
        output, root = self.output_kernel_, self._operator_root()
        if root is None:
            inner = output._gram(left, right)
        else:
            anchors = self._output_anchors()
            inner = (output._gram(left, anchors).to(root) @ root) @ (
                output._gram(right, anchors).to(root) @ root
            ).mT
        return plain(kernel._gram(one, two) * inner.to(self._like))
