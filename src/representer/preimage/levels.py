"""Pre-images through the levels of deep kernel PCA, equation (10) of Tonin et al., or by a network that learns them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from representer.functions.levels import Levels
from representer.kernels import Kernel, Linear, Mapped
from representer.linalg import power_of_two
from representer.preimage.vectors import nearest, refined, spread, weighted
from representer.samples import Data, plain
from representer.values import COUNT, POSITIVE, Value


class Network(Value):
    """A network from features back to data, and the options of its training together with the encoder.

    Parameters
    ----------
    module : torch.nn.Module
        Maps features (n, q) to data (n, …). It is never changed: learned weights live in a copy.
    weight : float
        The weight of the squared error of reconstructions, γ in equation (11) of Tonin et al.
    max_iter : int
        The largest number of passes over the data.
    batch_size : int
        The number of samples in each step of Adam.
    learning_rate : float
        The learning rate of Adam.

    Examples
    --------
    >>> import torch
    >>> from representer.preimage import Network
    >>> Network(torch.nn.Linear(2, 3), weight=10.0).weight
    10.0
    """

    def __init__(
        self,
        module: torch.nn.Module,
        weight: float = 1.0,
        max_iter: int = 100,
        batch_size: int = 64,
        learning_rate: float = 3e-3,
    ):
        self.module = module
        self.weight = weight
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate

    def check(self) -> None:
        """Raise a ValueError unless the module and the options can be trained."""
        if not isinstance(self.module, torch.nn.Module):
            raise ValueError(f"module of Network must be a torch.nn.Module; got {self.module!r}.")
        for name, rule in (
            ("weight", POSITIVE),
            ("learning_rate", POSITIVE),
            ("max_iter", COUNT),
            ("batch_size", COUNT),
        ):
            rule(f"{name} of Network", getattr(self, name))


METHODS = ("auto", "direct", "ridge", "gradient", "weighted", "nearest")


@dataclass(frozen=True)
class LevelPreimages:
    """The pre-image maps of all levels: data for given components.

    The inputs z of level j are the data, or the components of the level below. Components h of level j stand for the
    element Σ_n ⟨h_n, h⟩ φ_j(z_n), which is φ_j(z_i) for h = h_i and all N components. The paper has η_j W_j h with
    η_j = 1. Where features are centred, the sum is one of φ_j(z_n) − m around their mean m. A pre-image map makes an
    input of the element; that input is what the level below goes on with.
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
        if self.levels.is_centered(j):
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
            closest = nearest(distances)
            if j:
                return inputs[closest]
            return closest if kernel.domain == "gram" else _rows(data.anchors, plain(closest))
        means = weighted(distances) @ inputs
        if method == "weighted":
            return means
        size = power_of_two(gram.diagonal().abs().max())
        return refined(
            lambda X: (kernel._diag(X) - 2.0 * (weights * kernel._gram(X, inputs)).sum(1)) / size,
            means,
            unit=spread(inputs),
        )

    def _method_of(self, j: int) -> str:
        """The pre-image map of level j: the one that was asked for, if its kernel allows it."""
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
        assert isinstance(kernel, Mapped)  # the training of a decoder requires it
        with torch.no_grad():
            return self._tensor(plain(kernel._image(kernel.prepare(self.levels.data.anchors))))

    def _decoded(self, features: Tensor) -> Tensor:
        """The output of the decoder network for features, in the shape of the data."""
        assert self.decoder is not None
        weight = next(self.decoder.parameters(), features)
        with torch.no_grad():
            images = self.decoder(features.to(weight)).to(features)
        return images.reshape(len(features), *np.shape(self.levels.data.anchors)[1:])


def _rows(X: Data, rows: np.ndarray) -> Data:
    """Samples of an array or of a list, by their numbers."""
    return X[rows] if hasattr(X, "shape") else [X[i] for i in rows]
