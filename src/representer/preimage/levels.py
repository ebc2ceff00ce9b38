"""The way back through the levels of deep kernel PCA, equation (10) of Tonin et al."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from representer.functions.levels import Levels
from representer.kernels import Kernel, Linear, Mapped
from representer.preimage.neighbours import nearest, refined, weighted
from representer.preimage.network import Network
from representer.samples import Data, plain

METHODS = ("auto", "direct", "ridge", "gradient", "weighted", "nearest")


def check_method(method: object) -> None:
    """Refuse what is neither the name of a pre-image map nor a network."""
    if isinstance(method, Network):
        method.check()
    elif not (isinstance(method, str) and method in METHODS):
        raise ValueError(f"preimage must be one of {', '.join(map(repr, METHODS))} or a Network; got {method!r}.")


@dataclass(frozen=True)
class LevelPreimages:
    """Data that have given components.

    Level j sees inputs z (the data, or h of the level below) as φ_j(z). Its components h stand for the element
    Σ_n ⟨h_n, h⟩ φ_j(z_n): for h = h_i and all N components that is φ_j(z_i). It is η_j W_j h of the paper, which has
    η_j = 1. The element becomes an input by a pre-image map, and that is what the level below stands for.
    """

    levels: Levels
    method: str | Network  # the pre-image map of all levels, or the network whose training has made the decoder
    ridge: Callable[[int, np.ndarray], np.ndarray]  # the learned map of a level: its number and components to inputs
    decoder: torch.nn.Module | None = None  # the trained network from features of the first level back to data

    def __call__(self, codes: np.ndarray, level: int) -> Data:
        """Data for components of a level, through all levels below it."""
        inputs: Data = self._tensor(codes)
        for j in reversed(range(level + 1)):
            inputs = self._inputs(inputs, j)
        return plain(inputs)

    def _tensor(self, array: np.ndarray) -> Tensor:
        return self.levels.data.representation.tensor(array)

    def _inputs(self, codes: Tensor, j: int) -> Data:
        """Inputs of level j that have the components, as nearly as its pre-image map can."""
        method, data = self._method_of(j), self.levels.data
        if method == "ridge":
            return self._tensor(self.ridge(j, plain(codes)))
        weights = codes @ self._tensor(self.levels.hidden[j]).mT
        if j == 0 and data.means is not None:
            weights = weights - weights.mean(1, keepdim=True) + 1.0 / weights.shape[1]
        if method == "decoder":
            return self._decoded(weights @ self._images())
        kernel: Kernel = self.levels.kernels[j - 1] if j else data.loaded.kernel
        inputs = self._tensor(self.levels.hidden[j - 1]) if j else data.loaded.anchors
        if method == "direct":
            return weights @ inputs
        gram = inputs if kernel.domain == "gram" else kernel._gram(inputs, None)
        values = weights @ gram
        distances = (gram.diagonal() + (values * weights).sum(1, keepdim=True) - 2.0 * values).clamp(min=0.0)
        if method == "nearest":
            chosen = nearest(distances)
            if j:
                return inputs[chosen]
            return chosen if kernel.domain == "gram" else _rows(data.anchors, plain(chosen))
        means = weighted(distances) @ inputs
        if method == "weighted":
            return means
        return refined(lambda X: kernel._diag(X) - 2.0 * (weights * kernel._gram(X, inputs)).sum(1), means)

    def _method_of(self, j: int) -> str:
        """How level j finds its inputs: by what was asked for, where its kernel allows it."""
        kernel = self.levels.kernels[j - 1] if j else self.levels.data.kernel
        vectors = j > 0 or (kernel.domain == "vectors" and isinstance(self.levels.data.anchors, np.ndarray))
        method = self.method
        if isinstance(method, Network):
            if j == 0:
                return "decoder"
            method = "auto"
        if method == "auto":
            return "direct" if isinstance(kernel, Linear) else "ridge" if vectors else "nearest"
        if method == "direct" and not isinstance(kernel, Linear):
            raise ValueError(
                f"preimage='direct' is for linear kernels, whose features are their inputs; level {j} has {kernel!r}. "
                "Choose 'auto'."
            )
        if method != "nearest" and not vectors:
            raise ValueError(
                f"preimage={method!r} makes new vectors, but the data of {kernel!r} are none that can be averaged. "
                "Choose 'auto' or 'nearest': training samples."
            )
        return method

    def _images(self) -> Tensor:
        """The features of the training samples under the network in the first kernel."""
        kernel = self.levels.data.kernel
        assert isinstance(kernel, Mapped)  # as the training of a decoder asks for
        with torch.no_grad():
            return self._tensor(plain(kernel._image(kernel.prepare(self.levels.data.anchors))))

    def _decoded(self, features: Tensor) -> Tensor:
        """What the decoder makes of features, as rows of the shape of the data."""
        assert self.decoder is not None
        weight = next(self.decoder.parameters(), features)
        with torch.no_grad():
            images = self.decoder(features.to(weight)).to(features)
        return images.reshape(len(features), *np.shape(self.levels.data.anchors)[1:])


def _rows(X: Data, rows: np.ndarray) -> Data:
    """Samples by number, of an array or of a list."""
    return X[rows] if hasattr(X, "shape") else [X[i] for i in rows]
