"""Encoder and decoder networks around the first level of deep kernel PCA (Tonin et al., section 3.3)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from representer.kernels import Kernel, Linear, Mapped
from representer.linalg import row_blocks
from representer.optimize import OptimizeResult, adam, with_gradient
from representer.optimize.search import SearchSettings, keep_going
from representer.preimage import Network
from representer.problems.levels import Hidden, LevelModel, LevelSearch, LevelsProblem, solve
from representer.samples import Data
from representer.values import Real, packing

# During training the features will move, so that their components are solved for to this accuracy only.
TRAINING_ACCURACY = 1e-4


@dataclass(frozen=True)
class TrainedNetworks:
    """Networks with learned weights, and how the training went."""

    kernel: Kernel
    decoder: torch.nn.Module
    result: OptimizeResult


def train(
    model: LevelModel, decoder: Network, X: Data, search: LevelSearch, *, center: bool, device: str | None
) -> TrainedNetworks:
    """Train the network in the first kernel and the decoder, for components of all levels."""
    first = model.kernels[0]
    if not (isinstance(first, Mapped) and isinstance(first.kernel, Linear)):
        raise ValueError(
            f"preimage=Network(…) goes from features back to data: the first kernel must be Neural(module, Linear()), "
            f"or Pullback(Linear(), function); got {first!r}."
        )
    decoder, first = decoder.__sklearn_clone__(), first.__sklearn_clone__()
    modules = [decoder.module, *([first.module] if hasattr(first, "module") else [])]
    weights = [weight for module in modules for weight in module.parameters()]
    dtype = weights[0].dtype if weights else torch.float32
    samples = torch.as_tensor(np.asarray(X), dtype=dtype, device=device)
    for module in modules:
        module.to(samples)
    settings = search.settings
    quiet = replace(
        search,
        settings=replace(settings, tol=max(settings.tol, TRAINING_ACCURACY), verbose=0, callback=keep_going),
    )
    last: Hidden | str = "levelwise"

    def components(features: Tensor) -> Tensor:
        nonlocal last
        features = features.to(torch.float64)
        problem = LevelsProblem(features @ features.mT, list(model.kernels[1:]), model.etas)
        size = model.sizes[0]
        if (len(problem) == 1 or problem.has_closed_form) and isinstance(size, int):
            # The thin decomposition is far cheaper than the N × N problem.
            return torch.linalg.svd(features, full_matrices=False).U[:, :size]
        last = solve(problem, model.sizes, replace(quiet, init=last)).state.hidden
        return last[0]

    return Alternation(first, decoder, samples, components, eta=model.etas[0], center=center).run(settings)


class Alternation:
    """Equation (11): residuals of the levels plus γ times the error of reconstructions, minimised by turns.

    At the beginning of a pass over the data the components are solved for, exactly: H_1, and the directions
    W = ΦᵀH_1/η_1 of the first level, for the features Φ as they are. During the pass both are fixed, and of all
    residuals (9) only that of the first level depends on the networks. As it was zero, it is how far features have
    moved along the directions, (φ(x) − φ_before(x)) W. Data are reconstructed from what the components keep of φ(x),
    its projection on the span of W: that is what the decoder will be given. ``components`` maps features, centred or
    not, to H_1.
    """

    def __init__(
        self,
        kernel: Mapped,
        decoder: Network,
        X: Tensor,
        components: Callable[[Tensor], Tensor],
        *,
        eta: float,
        center: bool,
    ):
        self.kernel, self.decoder, self.X, self.components = kernel, decoder, X, components
        self.eta, self.center = eta, center
        values = kernel.hyperparameter_values()
        encoder = {name: values[name] for name in kernel.free()}
        back = {name: w.detach() for name, w in decoder.module.named_parameters() if w.requires_grad}
        self.packings = [packing(part, dict.fromkeys(part, Real())) for part in (encoder, back)]
        parts = (pack.pack(part) for pack, part in zip(self.packings, (encoder, back), strict=True))
        self.start = torch.cat([part.to(X) for part in parts])
        self.seen = 0  # the number of samples of the pass under way
        self.features = self.directions = self.basis = self.mean = X.new_empty(0, 0)

    def weights(self, point: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The weights of the encoder and those of the decoder, out of one vector."""
        encoder, decoder = point.split([pack.size for pack in self.packings])
        return self.packings[0].unpack(encoder), self.packings[1].unpack(decoder)

    def encode(self, weights: dict[str, Tensor], X: Tensor) -> Tensor:
        """The features φ(X) that the encoder makes of samples."""
        return self.kernel.replace(weights)._image(X)

    def decode(self, weights: dict[str, Tensor], features: Tensor) -> Tensor:
        """The data ψ that the decoder makes of features."""
        try:
            images = torch.func.functional_call(self.decoder.module, weights, (features.to(self.start),))
        except RuntimeError as error:
            raise ValueError(f"The decoder does not take features of shape {tuple(features.shape)}: {error}") from error
        expected = (len(features), *self.X.shape[1:])
        if images.numel() != math.prod(expected):
            raise ValueError(f"The decoder gave {tuple(images.shape)}; data of shape {expected} are expected.")
        return images.reshape(expected)

    @torch.no_grad()
    def begin(self, point: Tensor) -> None:
        """Solve for the components of the features as they are."""
        weights, _ = self.weights(point)
        blocks = [self.encode(weights, self.X[rows]) for rows in row_blocks(len(self.X), 8 * self.X[0].numel() * 64)]
        features = torch.cat(blocks)
        self.mean = features.mean(0) if self.center else torch.zeros_like(features[0])
        self.features = features - self.mean
        self.directions = self.features.mT @ self.components(self.features).to(features) / self.eta
        left, size, _ = torch.linalg.svd(self.directions, full_matrices=False)
        self.basis = left[:, size > size.max() * len(left) * torch.finfo(size.dtype).eps]

    def loss(self, point: Tensor, rows: Tensor) -> Tensor:
        """The mean of the objective over a batch."""
        encoder, decoder = self.weights(point)
        X = self.X[rows]
        features = self.encode(encoder, X) - self.mean
        residual = (features - self.features[rows]) @ self.directions
        kept = (features @ self.basis) @ self.basis.mT + self.mean
        error = (self.decode(decoder, kept) - X).flatten(1)
        return 0.5 * residual.square().sum(1).mean() + self.decoder.weight * error.square().sum(1).mean()

    def __call__(self, point: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Value and gradient on a batch; the first batch of a pass begins it."""
        if self.seen == 0:
            self.begin(point)
        self.seen = (self.seen + len(rows)) % len(self.X)
        return with_gradient(self.loss)(point, rows)

    def run(self, settings: SearchSettings) -> TrainedNetworks:
        """Train, and keep the best pass."""
        result = adam(
            self,
            self.start,
            n_samples=len(self.X),
            batch_size=min(self.decoder.batch_size, len(self.X)),
            learning_rate=self.decoder.learning_rate,
            max_iter=self.decoder.max_iter,
            random_state=settings.seed,
            callback=settings.callback,
            verbose=settings.verbose,
            description="encoder and decoder",
        )
        encoder, decoder = self.weights(result.point)
        module = self.decoder.module.eval()
        with torch.no_grad():
            for name, weight in module.named_parameters():
                if name in decoder:
                    weight.copy_(decoder[name])
        return TrainedNetworks(self.kernel.replace(encoder).numbers(), module, result)
