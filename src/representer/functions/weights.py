"""Functions into the RKHS of an output kernel: weights of outputs, as a function of the input."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.functions.base import Function
from representer.functions.embedding import Embedding
from representer.functions.expansion import Expansion
from representer.functions.features import FeatureFunction, StoredFeatures
from representer.kernels import Kernel
from representer.operators import Representation
from representer.samples import Data, plain


@dataclass(frozen=True)
class EmbeddingFunction(Function):
    """g(x) = Σ_j w_j(x) l(·, y_j), with values in the RKHS of l; called, it gives the weights w(x).

    Parameters
    ----------
    kernel : Kernel
        l, with numbers for all hyperparameters.
    anchors : data or None
        The y_j as they are stored; None: the axes of the vectors on which l is linear.
    coordinates : Expansion or FeatureFunction
        w; or, where outputs have features, the coordinates of g(x) in them.
    representation : Representation
        How stored outputs become tensors.
    features : StoredFeatures or None
        Those of outputs y_j that are landmarks: they turn coordinates into weights.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from representer.functions import EmbeddingFunction, Expansion
    >>> from representer.kernels import Linear
    >>> from representer.operators import Decomposable
    >>> from representer.operators import Representation
    >>> how = Representation(torch.float64)
    >>> w = Expansion(Decomposable(Linear()), np.array([[1.0]]), np.array([[0.5, 0.0]]), None, how)
    >>> g = EmbeddingFunction(Linear(), np.array([[10.0], [20.0]]), w, how)
    >>> g(np.array([[2.0]])).tolist(), g.embedding(np.array([[2.0]]))([[3.0]]).item()
    ([[1.0, 0.0]], 30.0)
    """

    kernel: Kernel
    anchors: Data
    coordinates: Expansion | FeatureFunction
    representation: Representation
    features: StoredFeatures | None = None

    def __call__(self, X: Data) -> Tensor:
        """w(x_i), (n, number of anchors), in blocks of rows."""
        return self._weighed(self.coordinates(X))

    def _weighed(self, coordinates: Tensor) -> Tensor:
        """Coordinates (n, r) as weights of the anchors."""
        if self.features is None:
            return coordinates
        return self.features.map.coefficients(coordinates.mT).mT

    def embedding(self, X: Data) -> Embedding:
        """The elements g(x_i) of the output RKHS, as sums of anchors."""
        return self.element(self(X))

    def element(self, weights: Tensor) -> Embedding:
        """The elements with given weights (n, number of anchors)."""
        return Embedding(self.kernel, self.prepared_anchors, weights)

    @cached_property
    def prepared_anchors(self) -> Any:
        """The y_j as their kernel takes them."""
        if self.anchors is None:
            how = self.representation
            return torch.eye(self.coordinates.coefficients.shape[1], dtype=how.dtype, device=how.device)
        return self.representation.inputs(self.kernel, self.anchors)

    @property
    def dual_coef(self) -> np.ndarray:
        """The D of w(x) = k(x, Z)ᵀ D + offset, (number of points z, number of anchors)."""
        inner = self.coordinates
        columns = inner.coefficients if isinstance(inner, Expansion) else inner.dual_coef
        return plain(self._weighed(self.representation.tensor(columns)))

    @property
    def offset(self) -> np.ndarray | None:
        """The weights of the constant part of g, (number of anchors,); None where there is none."""
        b = self.coordinates.intercept
        return None if b is None else plain(self._weighed(self.representation.tensor(b)[None])[0])

    def contributions(self, X: Data) -> Tensor:
        """The terms (n, number of points z, number of anchors) of w(x)."""
        terms = self.coordinates.contributions(X)
        return self._weighed(terms.flatten(0, 1)).unflatten(0, terms.shape[:2])
