"""Functions made of fitted functions: compositions f_L ∘ … ∘ f_1 + b, also as networks, and averages Σ_m w_m f_m."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.approximation import FeatureMap
from representer.functions.base import Expansion, Function, Span
from representer.functions.features import FadingFeatures, FeatureFunction
from representer.kernels import Kernel, Pullback, unscaled
from representer.operators import Decomposable, OperatorKernel, Representation, Separate
from representer.samples import Data, count, evenly_spaced, plain, take
from representer.values import same


def _parameter(values: Tensor | None) -> torch.nn.Parameter | None:
    """A parameter of a network with these values, in memory of its own; None where there are none."""
    return None if values is None else torch.nn.Parameter(values.detach().clone())


class CompositionNetwork(torch.nn.Module):
    """f_1 ∘ … ∘ f_L + b as a ``torch.nn.Module``: a layer's neurons are its anchors, its weights the coefficients.

    Parameters
    ----------
    functions : sequence of Expansion
        From the input on.
    intercept : tensor (p,), optional

    Examples
    --------
    >>> import torch
    >>> from representer.functions import Expansion, CompositionNetwork
    >>> from representer.kernels import Linear
    >>> from representer.operators import Decomposable
    >>> double = Expansion(Decomposable(Linear()), torch.tensor([[1.0]]), torch.tensor([[2.0]]))
    >>> CompositionNetwork([double, double], intercept=torch.tensor([1.0]))(torch.tensor([[3.0]])).tolist()
    [[13.0]]
    """

    def __init__(self, functions: Sequence[Expansion], intercept: Tensor | None = None):
        super().__init__()
        self.kernels = [function.kernel for function in functions]
        self.objects: dict[int, Any] = {}  # anchors that are no tensors
        for i, function in enumerate(functions):
            if isinstance(function.anchors, Tensor):
                self.register_buffer(f"anchors_{i}", function.anchors.detach().clone())
            else:
                self.objects[i] = function.anchors
            self.register_parameter(f"coefficients_{i}", _parameter(function.coefficients))
            self.register_buffer(f"slopes_{i}", None if function.slopes is None else function.slopes.detach().clone())
        self.intercept = _parameter(intercept)

    def forward(self, X: Data) -> Tensor:
        """The values (n, p)."""
        for i, kernel in enumerate(self.kernels):
            anchors = self.objects[i] if i in self.objects else getattr(self, f"anchors_{i}")
            coefficients, slopes = getattr(self, f"coefficients_{i}"), getattr(self, f"slopes_{i}")
            if torch.compiler.is_compiling() and slopes is None:  # no checks and blocks, which depend on the numbers
                X = kernel.apply(X.to(coefficients), anchors, coefficients)
            else:
                X = Expansion(kernel, anchors, coefficients, slopes=slopes)(X)
        return X if self.intercept is None else X + self.intercept

    def extra_repr(self) -> str:
        """The kernels, which no weight or buffer shows."""
        return ", ".join(map(repr, self.kernels))


class FeatureNetwork(torch.nn.Module):
    """φ(·)ᵀΘ + b as a ``torch.nn.Module``; without Θ, the features φ themselves."""

    def __init__(self, features: FeatureMap, coefficients: Tensor | None = None, intercept: Tensor | None = None):
        super().__init__()
        self.features = features
        self.coefficients, self.intercept = _parameter(coefficients), _parameter(intercept)

    def forward(self, X: Tensor) -> Tensor:
        """The values (n, p), or the features (n, m)."""
        values = self.features(X.to(self.features.dtype))
        values = values if self.coefficients is None else values @ self.coefficients
        return values if self.intercept is None else values + self.intercept


def function_network(function: Function) -> torch.nn.Module:
    """The network of a function of any kind that has one: a layer, layers, features or a stack."""
    if isinstance(function, Expansion):
        return Composed((), function).network()
    if not isinstance(function, FeatureFunction):
        return function.network()
    if isinstance(function, FadingFeatures):
        return function.faded(function_network)
    if function.features.landmarks is not None and function.loaded[2]:
        return Composed((), function).network()
    how = function.features.representation
    b = None if function.intercept is None else how.tensor(function.intercept)
    return FeatureNetwork(function.features.map, how.tensor(function.coefficients), b).cpu()


class StackedNetwork(torch.nn.Module):
    """Σ_m w_m f_m of networks f_m as a ``torch.nn.Module``; the weights (m, p), or (m, 1), are a parameter."""

    def __init__(self, networks: Sequence[torch.nn.Module], weights: Tensor):
        super().__init__()
        self.networks = torch.nn.ModuleList(networks)
        self.weights = torch.nn.Parameter(weights.detach().clone())

    def forward(self, X: Data) -> Tensor:
        """The values (n, p)."""
        values = [network(X) for network in self.networks]
        return sum(w.to(value) * value for w, value in zip(self.weights, values, strict=True))


@dataclass(frozen=True)
class Composed(Function):
    """f_L ∘ … ∘ f_1 + b, each f_l in the RKHS of a kernel of its own.

    Parameters
    ----------
    inner : tuple of Expansion
        f_1, …, f_{L−1} as they are stored; there may be none.
    outer : Expansion or FeatureFunction
        f_L with its intercept, as it is stored.
    """

    inner: tuple[Expansion, ...]
    outer: Expansion | FeatureFunction

    @classmethod
    def of(cls, functions: Sequence[Expansion], representation: Representation) -> Composed:
        """The composition of functions from the input on, in memory of its own; only the first sees sparse vectors."""
        dense = replace(representation, sparse=False)
        stored = [f.stored(representation if i == 0 else dense) for i, f in enumerate(functions)]
        return cls(tuple(stored[:-1]), stored[-1])

    @property
    def kernel(self) -> OperatorKernel:
        """The kernel that sees the data."""
        return self.first.kernel

    @property
    def first(self) -> Expansion:
        """The function that sees the data."""
        first = self.inner[0] if self.inner else self.outer
        assert isinstance(first, Expansion)  # features are of images
        return first

    @property
    def intercept(self) -> Any:
        """The constant b (p,), None for zero."""
        return self.outer.intercept

    def inputs(self, X: Data) -> Data:
        """Checked inputs as the first kernel takes them."""
        first = self.first
        assert first.representation is not None
        return first.representation.inputs(first.loaded.kernel, X)

    def images(self, X: Data) -> list[Any]:
        """The prepared inputs, and their images under each inner function."""
        images = [self.inputs(X)]
        with torch.no_grad():
            for f in self.inner:
                images.append(f.loaded(images[-1]))
        return images

    def at_image(self, Z: Data) -> Tensor:
        """f_L + b at images, (n, p)."""
        with torch.no_grad():
            return self.outer.loaded(Z) if isinstance(self.outer, Expansion) else self.outer(Z)

    def from_image(self, Z: Data, layer: int) -> Tensor:
        """The values (n, p) at images under the first ``layer`` inner functions."""
        with torch.no_grad():
            for f in self.inner[layer:]:
                Z = f.loaded(Z)
        return self.at_image(Z)

    def first_columns(self, p: int) -> Composed:
        """The same inner functions, and the first p outputs."""
        b = None if self.outer.intercept is None else self.outer.intercept[:p]
        outer = replace(self.outer, coefficients=self.outer.coefficients[:, :p], intercept=b)
        if isinstance(outer, Expansion) and outer.slopes is not None:
            outer = replace(outer, slopes=outer.slopes[:, :p])
        return replace(self, outer=outer)

    def __call__(self, X: Data) -> Tensor:
        """The values (n, p)."""
        return self.at_image(self.images(X)[-1])

    def norm(self) -> float:
        """‖f_L‖, the norm of the outer function."""
        return self.outer.norm()

    def contributions(self, X: Data) -> Tensor:
        """The terms (n, terms, p) of the outer function at the images of X."""
        return self.outer.contributions(self.images(X)[-1])

    @property
    def terms_of(self) -> Data:
        """What the outer function is a sum over: images, where there are inner functions."""
        return self.outer.terms_of

    def is_over(self, X: Data) -> bool:
        """Are these the inputs whose images the outer function is a sum over? A few of them are looked at."""
        anchors = self.outer.terms_of
        if anchors is None or X is None or count(anchors) != count(X):
            return False
        rows = torch.from_numpy(evenly_spaced(count(X), 16))
        if not self.inner:
            return same(take(anchors, rows), take(X, rows))
        images = self.images(take(X, rows))[-1]
        expected = torch.as_tensor(plain(take(anchors, rows))).to(images)
        return torch.allclose(images, expected, rtol=1e-4, atol=1e-6 * float(expected.abs().max()))

    def in_units(self, unit: float) -> Composed:
        """The function unit·f: only the outer function changes."""
        return replace(self, outer=self.outer.in_units(unit))

    @property
    def data_kernel(self) -> Kernel | None:
        """That of the outer function, where it sees the data themselves."""
        return None if self.inner else self.outer.data_kernel

    def own_points(self, limit: int) -> Data:
        """Some of the first function's anchors."""
        return self.first.own_points(limit) if self.inner or isinstance(self.outer, Expansion) else None

    def magnitudes(self, X: Data) -> Tensor:
        """The sums (n, p) of the absolute values of the outer function's terms."""
        return self.outer.magnitudes(self.images(X)[-1])

    def spans(self) -> list[Span]:
        """The anchors of every layer, which are images under the layers before."""
        layers = (*self.inner, self.outer_expansion())
        return [replace(f.spans()[0], inner=self.inner[:i]) for i, f in enumerate(layers)]

    def kernel_of_data(self) -> Kernel:
        """K_L(f_{L−1} ∘ … ∘ f_1(x), f_{L−1} ∘ … ∘ f_1(y)): a kernel of the data like any other."""
        kernel = self.outer_expansion().kernel
        if not isinstance(kernel, Decomposable) or kernel.operator is not None:
            raise AttributeError(
                f"The outer kernel {kernel!r} is operator-valued: there is no scalar deep kernel. Its images are those "
                "of transform_layers."
            )
        if not self.inner:
            return kernel.kernel
        inner = CompositionNetwork([f.loaded for f in self.inner]).cpu().requires_grad_(False)
        return Pullback(kernel.kernel, inner, domain=self.kernel.domain)

    def outer_expansion(self) -> Expansion:
        """The outer function on its anchors."""
        if isinstance(self.outer, Expansion):
            return self.outer
        features = self.outer.features
        return Expansion(
            Decomposable(features.kernel),
            features.drawn,
            self.outer.dual_coef,
            self.outer.intercept,
            features.representation,
        )

    def cancellation(self, limit: int = 16, size: float = 0.0) -> float:
        """That of the outer function at a few of its own anchors, or what it makes of the rounding of inner terms."""
        outer, points = self.outer.cancellation(limit, size), self.own_points(limit)
        if points is None or not self.inner or np.isnan(outer):
            return outer
        values = self(points)
        gaps = (self.at_image(self._rounded_image(points)) - values).abs().amax(0)
        lost = gaps / values.abs().amax(0).clamp(min=size) / torch.finfo(values.dtype).eps
        return max(outer, float(torch.where(gaps == 0, 1.0, lost).nan_to_num(torch.inf, torch.inf).max()))

    def _rounded_image(self, X: Data) -> Tensor:
        """The image under the inner functions if each rounds as its terms may round, up and down in turn."""
        Z = X
        for f in self.inner:
            values, rounding = f(Z), f.magnitudes(Z)
            signs = 1.0 - 2.0 * (torch.arange(values.numel(), device=values.device) % 2).reshape(values.shape)
            Z = values + torch.finfo(values.dtype).eps * signs.to(values) * rounding
        return Z

    def network(self) -> CompositionNetwork:
        """The composition as a ``torch.nn.Module`` on the processor."""
        functions = [f.loaded for f in (*self.inner, self.outer_expansion())]
        return CompositionNetwork(functions, functions[-1].intercept).cpu()


def _weighted_kernels(function: Expansion | FeatureFunction | Composed, weights: np.ndarray) -> list[Kernel]:
    """The scalar kernels of a member of a stack, each times its weight; none of a member without one.

    A number that multiplies the kernel of one output only stands for an alpha of its own, and does not count.
    """
    if isinstance(function, Expansion) and isinstance(function.kernel, Separate):
        kernels = function.kernel.kernels
        shares = np.broadcast_to(weights, len(kernels)) / len(kernels)
        return [float(w) * unscaled(k)[0] for k, w in zip(kernels, shares, strict=True) if w]
    kernel = function.kernel_of_data() if isinstance(function, Composed) else Composed((), function).kernel_of_data()
    return [float(weights.mean()) * kernel] if weights.any() else []


@dataclass(frozen=True)
class Stacked(Function):
    """Σ_m w_m f_m, output by output.

    Parameters
    ----------
    functions : tuple of functions
        The members f_m, each of an RKHS of its own.
    weights : array (m, p), or (m, 1) for all outputs
        The w_m.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from representer.functions import Expansion, Stacked
    >>> from representer.kernels import Linear
    >>> from representer.operators import Decomposable
    >>> f, g = (Expansion(Decomposable(Linear()), torch.ones(1, 1), torch.tensor([[slope]])) for slope in (1.0, 3.0))
    >>> Stacked((f, g), np.array([[0.25], [0.75]]))([[2.0]]).tolist()
    [[5.0]]
    """

    functions: tuple[Expansion | FeatureFunction | Composed, ...]
    weights: np.ndarray

    @property
    def kernel(self) -> OperatorKernel:
        """The kernel of the first member that sees the data."""
        first = self.functions[0]
        return Decomposable(first.features.kernel) if isinstance(first, FeatureFunction) else first.kernel

    @property
    def constant(self) -> np.ndarray:
        """The intercept (p,), zeros where there is none."""
        first = self.functions[0]
        outer = first.outer_expansion() if isinstance(first, Composed) else first
        zeros = np.zeros_like(plain(outer.coefficients)[0])
        return zeros if self.intercept is None else zeros + self.intercept

    def kernel_of_data(self) -> Kernel:
        """Σ_m w_m k_m of the members' scalar kernels, with the mean weight of the outputs.

        Kernels of each output count by the weight that their member has for it.
        """
        members = zip(self.functions, self.weights, strict=True)
        return functools.reduce(operator.add, [term for f, w in members for term in _weighted_kernels(f, w)])

    def network(self) -> StackedNetwork:
        """The stack as a ``torch.nn.Module`` on the processor."""
        networks = [function_network(f) for f in self.functions]
        return StackedNetwork(networks, torch.as_tensor(self.weights))

    def __call__(self, X: Data) -> Tensor:
        """The weighted sum of the members' values (n, p); a member of weight zero is not evaluated."""
        return self._sum(lambda f: f(X))

    def contributions(self, X: Data) -> Tensor:
        """The weighted sum of the members' terms (n, terms, p), where these belong to the same samples or landmarks."""
        if self.terms_of is None:
            raise ValueError(
                "The members of this stack are sums over different samples, landmarks or features, so their terms have "
                "no common sum. Ask each member: function.functions[i].contributions(X)."
            )
        return self._sum(lambda f: f.contributions(X))

    def own_points(self, limit: int) -> Data:
        """Some of the points of the first member with a weight that has points."""
        own = (f.own_points(limit) for f, _ in self._weighed)
        return next((points for points in own if points is not None), None)

    def magnitudes(self, X: Data) -> Tensor:
        """The weighted sum of the members' magnitudes (n, p)."""
        return self._sum(lambda f: f.magnitudes(X))

    @property
    def terms_of(self) -> Data:
        """The points that all members with a weight are sums over; None where they are different ones."""
        members = [f for f, _ in self._weighed]
        plain_ones = [f.terms_of for f in members if not (isinstance(f, Composed) and f.inner)]
        if not plain_ones:
            return members[0].terms_of if len(members) == 1 else None
        points, others = plain_ones[0], [f for f in members if isinstance(f, Composed) and f.inner]
        if points is None or not all(same(points, other) for other in plain_ones[1:]):
            return None
        return points if all(f.is_over(points) for f in others) else None

    def norm(self) -> float:
        """Σ_m w_m ‖f_m‖, with the largest w_m of the outputs: a bound of the norm in the sum of the members' spaces."""
        return float(sum(w.max() * f.norm() for f, w in self._weighed))

    @property
    def intercept(self) -> np.ndarray | None:
        """The weighted sum of the members' constants (p,); None where none has one."""
        constants = [getattr(f, "intercept", None) for f in self.functions]
        if all(b is None for b in constants):
            return None
        return sum(w * (0.0 if b is None else b) for b, w in zip(constants, self.weights, strict=True))

    def in_units(self, unit: float) -> Stacked:
        """The function times a unit."""
        return replace(self, functions=tuple(f.in_units(unit) for f in self.functions))

    @property
    def _weighed(self) -> list[tuple[Any, np.ndarray]]:
        """The members that have a weight, each with its weights (p,)."""
        return [(f, w) for f, w in zip(self.functions, self.weights, strict=True) if w.any()]

    def _sum(self, values: Callable[[Any], Tensor]) -> Tensor:
        """The weighted sum of what the members with a weight give."""
        own = [(values(f), w) for f, w in self._weighed]
        return torch.stack([value * torch.as_tensor(w).to(value) for value, w in own]).sum(0)
