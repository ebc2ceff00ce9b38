"""What a structured predictor can do once it is fitted: embeddings, objects, scores, losses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from representer.approximation import LandmarkFeatures, landmark_features
from representer.data import SparseRows, count, is_single, plain, take
from representer.estimators._lazy import lazily, without_data
from representer.estimators.validation import DTYPES, KernelEstimator, check_inputs, check_outputs
from representer.functions import Embedding
from representer.kernels import Kernel
from representer.kernels.columns import as_records
from representer.linalg import row_product
from representer.linalg.memory import row_blocks
from representer.operators.adapted import Adapted, Representation, silent_repairs, takes_sparse
from representer.preimage import Decoder, as_decoder, candidate_scores
from representer.preimage.base import check_width, prepared_like, squared_norms
from representer.samples.on_dask import is_dask

# The features of inputs, and those of outputs that are not in coordinates of their own.
Maps = tuple[LandmarkFeatures, LandmarkFeatures | None]
# l(y, ŷ) of pairs is the diagonal of a Gram matrix of so many of them at once.
PAIRS = 64


class Answers(KernelEstimator):
    """A fitted g(x) = Σ_j w_j(x) l(·, y_j) with w(x) = k(x, X) D + offset, and its decoder."""

    _kernel_arguments = ("kernel", "output_kernel")

    kernel_: Kernel
    output_kernel_: Kernel
    decoder_: Decoder
    X_fit_: Any
    Y_fit_: Any
    dual_coef_: np.ndarray
    offset_: np.ndarray | None
    landmarks_: Any
    output_landmarks_: Any
    device: str | None
    dtype: str
    decoder: Any
    _flat: bool
    _on_axes: bool
    _cached_features: Maps
    _feature_coef: np.ndarray | None = None  # of a fit by sums, where g is known better by features of x

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = takes_sparse(self.kernel)
        tags.target_tags.required = True
        return tags

    def set_params(self, **params: Any) -> Any:
        """Set parameters, ``decoder__max_iter`` also where the decoder is given by its name."""
        if any(name.startswith("decoder__") for name in params):
            decoder = params.get("decoder", self.decoder)
            if not isinstance(decoder, str | Decoder):
                raise ValueError(
                    f"decoder={decoder!r} has no parameters; give an object of representer.preimage."
                )
            params["decoder"] = as_decoder(decoder)
        return super().set_params(**params)

    # -- data and kernels ---------------------------------------------------------------------------------------------
    @property
    def _represented(self) -> Representation:
        return Representation(DTYPES[self.dtype], self.device, isinstance(self.X_fit_, SparseRows))

    @property
    def _like(self) -> Tensor:
        return torch.zeros((), dtype=DTYPES[self.dtype], device=self.device)

    def _inputs(self, kernel: Kernel, X: Any) -> Any:
        return self._represented.inputs(kernel, X)

    def _outputs(self, kernel: Kernel, Y: Any) -> Any:
        """Outputs as their kernel takes them, numbers in the learner's precision."""
        numeric = kernel.domain in ("vectors", "gram")
        return kernel.prepare(self._represented.tensor(Y) if numeric else Y)

    def _adapted(self, kernel: Kernel, *, repair: bool = True) -> Kernel:
        """In the learner's precision; an indefinite kernel of objects is repaired."""
        if kernel.domain == "vectors" and not self._represented.sparse:
            return kernel
        return Adapted(kernel, DTYPES[self.dtype], self.device, repair=repair)

    def _output_anchors(self) -> Any:
        if self._on_axes:
            return torch.eye(self.dual_coef_.shape[1], dtype=self._like.dtype, device=self.device)
        anchors = self.Y_fit_ if self.output_landmarks_ is None else self.output_landmarks_
        return self._outputs(self.output_kernel_, anchors)

    def _output_adapted(self) -> Kernel:
        """The output kernel, as features of outputs take it."""
        output = self.output_kernel_
        return output if output.domain == "vectors" else self._adapted(output, repair=False)

    # -- features -----------------------------------------------------------------------------------------------------
    @property
    def _by_features(self) -> bool:
        return self._feature_coef is not None

    def _feature_maps(self) -> Maps:
        """Of a fit by sums: the features of inputs and outputs, made again after unpickling."""
        if "_cached_features" in self.__dict__:
            return self._cached_features
        kernel = self._adapted(self.kernel_)
        with silent_repairs():  # fit has said it
            features = landmark_features(kernel, self._inputs(kernel, self.landmarks_))
            known = (
                None if self._on_axes else landmark_features(self._output_adapted(), self._output_anchors())
            )
        if self._by_features:
            self._cached_features = features, known
        return features, known

    def _keep_features(self, theta: Tensor | None, maps: Maps | None) -> None:
        """φ(·)ᵀΘ has the coordinates of g from now on; None: g is a sum over the landmarks."""
        self.__dict__.pop("_cached_features", None)
        self._feature_coef = None if theta is None else plain(theta)
        if theta is not None and maps is not None:
            self._cached_features = maps

    # -- g ------------------------------------------------------------------------------------------------------------
    def _checked(self, X: Any) -> Any:
        check_is_fitted(self)
        return check_inputs(self, X, self.kernel_.domain, reset=False, sparse=takes_sparse(self.kernel_))

    def _embedding(self, X: Any) -> Embedding:
        """Of checked inputs, block by block."""
        kernel = self._adapted(self.kernel_, repair=False)
        inputs = self._inputs(kernel, X)
        anchors = self._inputs(kernel, self.X_fit_ if self.landmarks_ is None else self.landmarks_)
        dual = self._represented.tensor(self.dual_coef_)
        weights = dual.new_empty(count(inputs), dual.shape[1])
        with torch.no_grad():
            for rows in row_blocks(len(weights), 2 * len(dual) * dual.element_size()):
                by_features = self._weights_by_features(inputs[rows])
                weights[rows] = (
                    kernel._product(inputs[rows], anchors, dual) if by_features is None else by_features
                )
            if self.offset_ is not None:
                weights += self._represented.tensor(self.offset_)
        return Embedding(self.output_kernel_, self._output_anchors(), weights)

    def _weights_by_features(self, inputs: Any) -> Tensor | None:
        """The weights of the coordinates φ(x)ᵀΘ; None where the landmarks have coefficients."""
        if self._feature_coef is None:
            return None
        features, outputs = self._feature_maps()
        coordinates = row_product(features(inputs), self._represented.tensor(self._feature_coef))
        return coordinates if outputs is None else outputs.coefficients(coordinates.mT).mT

    def decision_embedding(self, X: Any) -> Embedding:
        """The predictions g(x) as elements of the output RKHS, before decoding.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).

        Returns
        -------
        embedding : Embedding
            Sums Σ_j w_j l(·, y_j) of training outputs (of landmarks after an approximate fit, of the axes for vectors
            with a linear kernel), with values, inner products and distances.
        """
        return self._embedding(self._checked(X))

    # -- objects ------------------------------------------------------------------------------------------------------
    def predict(self, X: Any) -> Any:
        """Predict outputs.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train). For a Dask collection, so are the predictions: lazy.

        Returns
        -------
        y : ndarray or list
            One object for each input, of the kind of the training outputs (integers and truth values where the decoder
            chooses from them, floats where it makes new vectors); with a precomputed output kernel, numbers of
            candidates.
        """
        if is_dask(X):
            return self._predict_lazily(X)
        X = self._checked(X)
        return self._shaped(self.decoder_.decode(self._embedding(X), X))

    def _predict_lazily(self, X: Any) -> Any:
        """Chunk by chunk: vectors, or one object each."""
        check_is_fitted(self)
        kind, width = np.dtype(object), None
        if isinstance(self.Y_fit_, np.ndarray) and self.output_kernel_.domain in ("vectors", "labels"):
            example = np.asarray(without_data(self).predict(np.zeros((1, self.n_features_in_))))
            kind, width = example.dtype, None if example.ndim == 1 else example.shape[1]
        return lazily(self, "_predict_objects" if kind.hasobject else "predict", X, width, kind)

    def _predict_objects(self, X: Any) -> np.ndarray:
        """Predictions as an array of objects."""
        found = self.predict(X)
        objects = np.empty(len(found), dtype=object)
        objects[:] = found
        return objects

    def predict_topk(self, X: Any, k: int) -> tuple[Any, np.ndarray]:
        """The k best candidates for each input.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).
        k : int
            How many.

        Returns
        -------
        objects : ndarray of shape (n_queries, k, …), or list of lists
            Best first.
        scores : ndarray of shape (n_queries, k)
            2⟨g(x), l(·, y)⟩ − l(y, y): ‖g(x)‖² minus the squared distance.
        """
        X = self._checked(X)
        topk = getattr(self.decoder_, "topk", None)
        if topk is None:
            raise ValueError(
                f"predict_topk needs a decoder that ranks candidates; {self.decoder_!r} does not. Use "
                "decoder=Candidates(…), or score_candidates(X, candidates)."
            )
        objects, scores = topk(self._embedding(X), k, X)
        if self._flat and isinstance(objects, np.ndarray):
            objects = objects[..., 0]
        elif self._flat and self.output_kernel_.domain == "vectors":
            objects = [[item[0] for item in row] for row in objects]
        return objects, scores

    def score_candidates(self, X: Any, candidates: Any, *, diagonal: Any = None) -> np.ndarray:
        """How well each candidate fits each input.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).
        candidates : outputs
            What the output kernel takes; with a precomputed one, rows l(candidates, Y_train). A label that a ``Delta``
            kernel has not seen scores −1: no input is near it.
        diagonal : array-like of shape (n_candidates,), default=None
            With a precomputed output kernel, their l(y, y), unless it is the same for all training outputs.

        Returns
        -------
        scores : ndarray of shape (n_queries, n_candidates)
            2⟨g(x), l(·, y)⟩ − l(y, y), the higher the better.
        """
        X = self._checked(X)
        candidates = self._new_outputs(candidates, "candidates")
        return plain(candidate_scores(self._embedding(X), candidates, diagonal=diagonal))

    def _shaped(self, objects: Any) -> Any:
        one_column = isinstance(objects, np.ndarray) and objects.ndim == 2 and objects.shape[1] == 1
        return objects[:, 0] if self._flat and one_column else objects

    def _new_outputs(self, Y: Any, name: str) -> Any:
        """Checked outputs; among vectors of one number each, numbers will do."""
        if isinstance(Y, Iterator):
            Y = list(Y)
        if self.output_kernel_.domain == "records":
            Y = as_records(Y)
        if Y is not None and is_single(Y):
            raise ValueError(
                f"{name} must be a collection of outputs; got {Y!r:.80}. Put one output in a list."
            )
        if hasattr(Y, "__len__") and len(Y) == 0:
            raise ValueError(f"{name} is empty; at least one output is needed.")
        outputs = check_outputs(self.output_kernel_, Y, reset=False)[0]
        if self.output_kernel_.domain in ("vectors", "gram"):
            check_width(self.output_kernel_, outputs, self.Y_fit_.shape[1])
        return self._outputs(self.output_kernel_, outputs)

    # -- how well -----------------------------------------------------------------------------------------------------
    def loss(self, Y: Any, Y_pred: Any) -> np.ndarray:
        """The squared distances ‖l(·, y) − l(·, ŷ)‖² in the output RKHS.

        Parameters
        ----------
        Y : outputs
            True ones; with a precomputed output kernel, numbers of training outputs.
        Y_pred : outputs
            Predicted ones, as many.

        Returns
        -------
        losses : ndarray of shape (n_samples,)
            One for each pair; the loss of Kadri et al. is their mean.
        """
        check_is_fitted(self)
        kernel = self.output_kernel_
        if kernel.domain == "gram":
            gram = self.Y_fit_
            one, two = (_numbers(outputs, len(gram)) for outputs in (Y, Y_pred))
            _same_length(one, two)
            return np.maximum(gram[one, one] + gram[two, two] - 2.0 * gram[one, two], 0.0)
        one, two = self._new_outputs(Y, "Y"), self._new_outputs(Y_pred, "Y_pred")
        _same_length(one, two)
        cross = []
        for start in range(0, count(one), PAIRS):
            rows = torch.arange(start, min(start + PAIRS, count(one)))
            cross.append(kernel._gram(take(one, rows), take(two, rows)).diagonal())
        squares = kernel._diag(one) + kernel._diag(two) - 2.0 * torch.cat(cross)
        return plain(squares.clamp(min=0.0))

    def score(self, X: Any, y: Any) -> float:
        """The share of the outputs' variance in the RKHS of l that g explains: R² there.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).
        y : outputs
            Their true outputs.

        Returns
        -------
        score : float
            1 − Σ‖l(·, y_i) − g(x_i)‖² / Σ‖l(·, y_i) − mean‖²: 1 is perfect, 0 no better than the mean output. For a
            linear l it is scikit-learn's ``r2_score(..., multioutput="variance_weighted")`` of the undecoded vectors.
        """
        X = self._checked(X)
        new = self._new_outputs(y, "y")
        if count(new) != count(X):
            raise ValueError(f"X and y have inconsistent numbers of samples: {count(X)} and {count(new)}.")
        if self.output_kernel_.domain == "gram":
            raise ValueError(
                "score needs l(y, y') of new outputs, which a precomputed output kernel does not have. Use an output "
                "kernel object, such as Callable(lambda i, j: gram[i, j]) with numbers of outputs as y."
            )
        embedding = self._embedding(X)
        new = prepared_like(embedding, new)
        norms, kernel = squared_norms(embedding, new), self.output_kernel_
        error, total, q = embedding.squared_norms().sum() + norms.sum(), norms.sum(), count(new)
        for rows in row_blocks(q, 2 * (q + embedding.weights.shape[1]) * embedding.weights.element_size()):
            cross = kernel._gram(new[rows], embedding.anchors).to(embedding.weights)
            error -= 2.0 * (cross * embedding.weights[rows]).sum()
            total -= kernel._gram(new[rows], new).to(embedding.weights).sum() / q
        if float(total) <= q * torch.finfo(total.dtype).eps * float(norms.sum()):
            return float(float(error) <= q * torch.finfo(total.dtype).eps * float(norms.sum()))
        return 1.0 - float(error / total)


def _same_length(one: Any, two: Any) -> None:
    if count(one) != count(two):
        raise ValueError(f"There must be one prediction for each output; got {count(two)} for {count(one)}.")


def _numbers(outputs: Any, n: int) -> np.ndarray:
    """Numbers of training outputs."""
    numbers = np.asarray(plain(outputs))
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or not ((numbers >= 0) & (numbers < n)).all():
        raise ValueError(
            f"With a precomputed output kernel, outputs are numbers from 0 to {n - 1}; got {outputs!r:.80}."
        )
    return numbers
