"""Kernels of transformed data: k(f(x), f(y)) for any function, and for a neural network whose weights are learned."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Self, TypeVar, get_args

import torch
from torch import Tensor

from representer.kernels.base import Columns, Domain, ExplicitFeatures, Kernel
from representer.samples import Data, as_vectors, count
from representer.values import (
    Constraint,
    Real,
    Setting,
    Value,
    all_values,
    argument_repr,
    as_tensor,
    instance_of,
    map_children,
    one_of,
    same,
)

V = TypeVar("V", bound=Value)
LAYERS_OF_ARRAYS = (
    *(torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d, torch.nn.BatchNorm2d, torch.nn.MaxPool2d, torch.nn.AvgPool2d),
    *(torch.nn.RNNBase, torch.nn.Flatten),
)


class Mapped(Kernel, ABC):
    """A kernel of images of the data."""

    bounded_with_parts = True
    kernel: Kernel
    domain: Domain
    rules = {"kernel": instance_of("a kernel object", Kernel), "domain": one_of(*get_args(Domain))}

    @abstractmethod
    def _image(self, X: Data) -> Data:
        """The data that the inner kernel sees, prepared."""

    @property
    def _inner(self) -> Kernel:
        """The kernel that is evaluated on the images."""
        return self.kernel

    def _resolve(self, X: Data) -> Self:
        new = self._fitted(X)
        return new._with_arguments(kernel=self.kernel._resolve(new._image(X)))

    def _fitted(self, X: Data) -> Self:
        """The same map of the data with what they decide of it."""
        return self

    def addends(self) -> list[tuple[str, Kernel]]:
        """The addends of the kernel of the images, each on the same images."""
        addends = self.kernel.addends()
        if len(addends) == 1:
            return [(addends[0][0], self)]
        return [(name, self._with_arguments(kernel=addend)) for name, addend in addends]

    def _gram(self, X: Data, Y: Data | None) -> Tensor:
        return self._inner._gram(self._image(X), None if Y is None else self._image(Y))

    def _diag(self, X: Data) -> Tensor:
        return self._inner._diag(self._image(X))

    def features(self, X: Data) -> Tensor | None:
        """The features of the images."""
        return self._inner.features(self._image(X))

    def _explicit_features(self, X: Data, columns: Columns | None) -> ExplicitFeatures:
        return self._inner._explicit_features(self._image(X), columns)


def seen_inside(kernel: Kernel, X: Data = None) -> tuple[Kernel, Data]:
    """The kernel inside all maps, and the images of prepared data that it sees.

    Examples
    --------
    >>> import torch
    >>> from representer.kernels import Gaussian, Standardized, seen_inside
    >>> kernel, X = seen_inside(Standardized(Gaussian(1.0), [1.0], [2.0]), torch.tensor([[5.0]]))
    >>> kernel, X.tolist()
    (Gaussian(lengthscale=1.0), [[2.0]])
    """
    while isinstance(kernel, Mapped):
        X = None if X is None else kernel._image(X)
        kernel = kernel._inner
    return kernel, X


class Pullback(Mapped):
    """k(f(x), f(y)): the deep kernel when f is a learned function.

    Parameters
    ----------
    kernel : Kernel
        The kernel on the images.
    function : callable
        Maps data to what ``kernel`` takes. A ``torch`` function lets gradients through.
    domain : {"vectors", "labels", "gram", "objects", "records"}
        The kind of data that the function takes.

    Examples
    --------
    >>> from representer.kernels import Linear, Pullback
    >>> Pullback(Linear(), lambda X: X**2)([[1.0], [2.0]]).tolist()
    [[1.0, 4.0], [4.0, 16.0]]
    >>> word_length = Pullback(Linear(), lambda words: [[len(w)] for w in words], domain="objects")
    >>> word_length(["a", "bcd"]).tolist()
    [[1.0, 3.0], [3.0, 9.0]]
    """

    def __init__(self, kernel: Kernel, function: Callable[[Any], Data], domain: Domain = "vectors"):
        self.kernel = kernel
        self.function = function
        self.domain = domain

    def _image(self, X: Data) -> Data:
        if not callable(self.function):
            raise TypeError(f"function of Pullback must be a function of data; got {argument_repr(self.function):.60}.")
        image = self.function(X)
        if not (isinstance(image, Tensor) and image.is_floating_point() and image.ndim > 1):
            image = self.kernel.prepare(image)  # tensors are not checked: an optimiser that strays must see its NaN
        if count(image) != count(X):
            raise ValueError(f"The function of Pullback made {count(image)} samples of {count(X)}.")
        return image


class Neural(Mapped):
    """k(φ(x), φ(y)) with features φ by a ``torch.nn.Module``, whose weights are hyperparameters to be learned.

    The module is never changed: learned weights live in a copy (``numbers``), so a fitted learner's ``kernel_`` holds
    them. The module is evaluated in the precision of its weights and in evaluation mode, without dropout and batch
    statistics, because a kernel sees two points only. Only the batches from which Adam learns the weights pass it in
    training mode, with dropout masks that the seed of the fit decides; submodules that are in evaluation mode stay in
    it. After the fit, running statistics are those of the samples at the learned weights. L-BFGS, which needs a
    function without noise, sees the module in evaluation mode with the statistics that it came with. Weights that do
    not require a gradient are not learned.

    Parameters
    ----------
    module : torch.nn.Module
        Maps a tensor (n, d), or (n, …) with ``domain="objects"``, to features (n, q).
    kernel : Kernel
        The kernel on the features; linear gives a conditional embedding network.
    domain : {"vectors", "objects"}, default="vectors"
        ``"objects"``: arrays of any shape, one for each sample. A module that begins with a layer of such arrays (a
        convolution, a pooling, a recurrent layer, ``Flatten``) takes objects in any case. Images are (n, channels,
        height, width); a module that begins with ``Conv2d`` takes grey ones (n, height, width), too.

    Examples
    --------
    >>> import torch
    >>> from representer.kernels import Gaussian, Neural
    >>> k = Neural(torch.nn.Linear(2, 1), Gaussian("auto"))
    >>> k.free()
    ['module__weight', 'module__bias', 'kernel__lengthscale']
    """

    rules = {**Mapped.rules, "module": instance_of("a torch.nn.Module", torch.nn.Module)}

    def __init__(self, module: torch.nn.Module, kernel: Kernel, domain: Domain = "vectors"):
        self.module = module
        self.kernel = kernel
        self.domain = domain

    @property
    def domain(self) -> Domain:
        """The kind of data that the module takes: the stated one, unless its first layer is one of arrays."""
        if self._stated == "vectors" and isinstance(_first_layer(self.module), LAYERS_OF_ARRAYS):
            return "objects"
        return self._stated

    @domain.setter
    def domain(self, domain: Domain) -> None:
        self._stated = domain

    def prepare(self, X: Data) -> Data:
        """The samples as a tensor (..., n, d), or, if they are objects or have more axes, as a list of n tensors."""
        tensors = isinstance(X, list) and bool(X) and all(isinstance(item, Tensor) for item in X)
        tensor = as_vectors(torch.stack(X) if tensors else X)
        if self.domain == "objects" or tensor.ndim > 3:
            return X if tensors else list(tensor.unbind())
        return tensor

    # -- features ---------------------------------------------------------------------------------------------------
    # Weights and buffers that stand in the place of the module's own.
    _exchanged: Mapping[str, Tensor] = MappingProxyType({})
    _statistics: Mapping[str, Tensor] = MappingProxyType({})
    _training: Training | None = None

    def _weights(self) -> dict[str, Tensor]:
        """The weights by name: those of the module, or the ones exchanged for them."""
        weights = {name: weight.detach() for name, weight in self.module.named_parameters()}
        return weights | {name: weight.to(weights[name]) for name, weight in self._exchanged.items()}

    def _image(self, X: Tensor | list[Tensor]) -> Tensor:
        samples = torch.stack(X) if isinstance(X, list) else X
        if samples.ndim == 3 and isinstance(_first_layer(self.module), torch.nn.Conv2d):
            samples = samples[:, None]  # one channel
        if self._training is not None:
            return self._training_image(samples, self._training)
        members = self._members()
        if members is None:
            return self._outputs(self._weights(), samples)
        first = self._outputs(members[0], samples)
        if first.ndim == 2:
            return torch.stack([first, *(self._outputs(member, samples) for member in members[1:])])
        samples = samples.expand(len(members), *samples.shape[1:])  # a batch of samples, one for each network
        return torch.stack([self._outputs(*pair) for pair in zip(members, samples, strict=True)])

    def _members(self) -> list[dict[str, Tensor]] | None:
        """The weights of each network, if weights are a batch, with one axis (a vector two) more; None otherwise."""
        weights, shapes = self._weights(), {name: p.shape for name, p in self.module.named_parameters()}
        batched = [name for name, weight in weights.items() if weight.ndim > len(shapes[name])]
        if not batched:
            return None
        members = zip(*(weights[name].reshape(-1, *shapes[name]) for name in batched), strict=True)
        return [weights | dict(zip(batched, member, strict=True)) for member in members]

    def _training_image(self, X: Tensor, training: Training) -> Tensor:
        """The features of a batch in training mode; held-out rows pass in evaluation mode, as new samples do."""
        weights, held_out = self._weights(), training.held_out
        if held_out is None or len(held_out) != len(X):
            return self._outputs(weights, X, training)
        seen = self._outputs(weights, X[~held_out], training)
        unseen = self._outputs(weights | training.statistics, X[held_out])
        features = seen.new_empty(len(X), seen.shape[1])
        return features.index_put((~held_out,), seen).index_put((held_out,), unseen)

    def _outputs(self, weights: dict[str, Tensor], X: Tensor, training: Training | None = None) -> Tensor:
        """The features of samples by the module with these weights, checked."""
        like = next(iter(weights.values()), X)
        try:
            if training is not None:
                features = training.output(self.module, weights, X.to(like, copy=True))
            else:
                with _holding(self.module.modules(), "training", False):
                    values = {**self._statistics, **weights}
                    features = torch.func.functional_call(self.module, values, (X.to(like, copy=True),))
        except (RuntimeError, ValueError) as error:
            raise ValueError(
                f"The module of Neural does not take samples of shape {tuple(X.shape)}: {error}"
            ) from error
        allowed = (X.shape[:1], X.shape[:-1]) if X.ndim < 4 else (X.shape[:1],)
        if not (isinstance(features, Tensor) and features.shape[:-1] in allowed):
            got = f"shape {tuple(features.shape)}" if isinstance(features, Tensor) else repr(type(features))
            raise ValueError(
                f"The module of Neural must map {tuple(X.shape)} to features of shape ({len(X)}, n_features); it gave "
                f"{got}. End it with torch.nn.Flatten(), or pick the output that is meant."
            )
        return features.to(X.dtype)

    # -- hyperparameters: the weights join the inner kernel's under the names module__<weight> ----------------------
    def constraints(self) -> dict[str, Constraint]:
        """The constraints of the inner kernel, and none for the weights."""
        return {f"module__{name}": Real() for name in self._weights()} | super().constraints()

    def hyperparameter_values(self) -> dict[str, Tensor]:
        """The weights, and the hyperparameters of the inner kernel."""
        return {f"module__{name}": w for name, w in self._weights().items()} | super().hyperparameter_values()

    def free(self) -> list[str]:
        """The names of all weights that require a gradient, and of what the inner kernel leaves free."""
        learned = [f"module__{name}" for name, w in self.module.named_parameters() if w.requires_grad]
        return learned + super().free()

    def replace(self, values: Mapping[str, Setting]) -> Self:
        """The kernel with other weights, and other hyperparameters of the inner kernel."""
        weights = {
            name.removeprefix("module__"): as_tensor(v) for name, v in values.items() if name.startswith("module__")
        }
        unknown = set(weights) - set(self._weights())
        if unknown:
            raise ValueError(f"The module has no weights {sorted(unknown)}; it has: {', '.join(self._weights())}.")
        new = super().replace({name: v for name, v in values.items() if not name.startswith("module__")})
        new._exchanged = {**self._exchanged, **weights}
        return new

    def numbers(self) -> Self:
        """The same kernel with the exchanged weights and statistics written into a copy of the module."""
        new = super().numbers().__sklearn_clone__()
        with torch.no_grad():
            for name, tensor in (*new.module.named_parameters(), *new.module.named_buffers()):
                if name in (exchanged := {**new._exchanged, **new._statistics}):
                    tensor.copy_(exchanged[name])
        new._exchanged, new._statistics = {}, {}
        return new

    def __sklearn_clone__(self) -> Self:
        new = super().__sklearn_clone__()
        new._exchanged = {name: weight.detach().clone() for name, weight in self._exchanged.items()}
        new._statistics = {name: buffer.clone() for name, buffer in self._statistics.items()}
        return new

    @property
    def _is_learned(self) -> bool:
        return any(weight.requires_grad for weight in self.module.parameters())

    def _with(self, training: Training | None, statistics: Mapping[str, Tensor]) -> Self:
        new = copy.copy(self)
        new._training, new._statistics = training, statistics
        return new

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or not isinstance(other, Neural):
            return NotImplemented
        return super().__eq__(other) and same(self._weights(), other._weights())

    __hash__ = Mapped.__hash__


# -- training ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Training:
    """The training mode of networks for a batch from which their weights are learned.

    Parameters
    ----------
    seed : int or None
        The seed of the noise, such as dropout masks. None: no noise, only statistics of the batch.
    held_out : tensor (n,) of bool or None
        The rows of a batch of n samples that are seen in evaluation mode, with statistics of the others.
    statistics : dict
        The buffers of the network, such as running statistics, as means over the batches that it has seen.
    """

    seed: int | None
    held_out: Tensor | None = None
    statistics: dict[str, Tensor] = field(default_factory=dict)

    def output(self, module: torch.nn.Module, weights: dict[str, Tensor], X: Tensor) -> Any:
        """The output of the module in the mode that its owner left it in; the global random state stays as it was."""
        if not self.statistics:
            for name, buffer in module.named_buffers():
                counter = name.endswith("num_batches_tracked")  # counted from zero, the old statistics have no weight
                self.statistics[name] = torch.zeros_like(buffer) if counter else buffer.detach().clone()
        members = list(module.modules())
        with ExitStack() as stack:
            # Cumulative means, as in torch.optim.swa_utils.update_bn: the weights do not move meanwhile.
            norms = [m for m in members if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
            stack.enter_context(_holding(norms, "momentum", None))
            if self.seed is None:
                noisy = [m for m in members if not dict(m.named_buffers(recurse=False))]
                stack.enter_context(_holding(noisy, "training", False))
            else:
                stack.enter_context(_seeded(self.seed, X.device))
            return torch.func.functional_call(module, {**self.statistics, **weights}, (X,))


def in_training(kernel: V, seed: int, held_out: Tensor | None = None) -> V:
    """The kernel with its learned networks in training mode, for one batch."""
    return _with_networks(kernel, lambda network: network._with(Training(seed, held_out), network._statistics))


def with_statistics(kernel: V, evaluate: Callable[[V], object]) -> V:
    """The kernel whose learned networks have the running statistics of all samples that they see in ``evaluate``."""
    gathering = _with_networks(kernel, lambda network: network._with(Training(None), network._statistics))
    with torch.no_grad():
        evaluate(gathering)
    return _with_networks(gathering, lambda network: network._with(None, _gathered(network)))


def _gathered(network: Neural) -> Mapping[str, Tensor]:
    return {} if network._training is None else network._training.statistics


def has_statistics(kernel: Value) -> bool:
    """Does the kernel learn networks with buffers, such as running statistics?"""
    networks = [value for value in all_values(kernel) if isinstance(value, Neural) and value._is_learned]
    return any(True for network in networks for _ in network.module.buffers())


def differs_in_training(kernel: Value) -> bool:
    """Does the kernel learn networks with dropout or batch statistics that their owner has left in training mode?"""
    networks = [value for value in all_values(kernel) if isinstance(value, Neural) and value._is_learned]
    members = [member for network in networks for member in network.module.modules() if member.training]
    dropped = [member.p for member in members if isinstance(member, torch.nn.modules.dropout._DropoutNd)]
    return any(dropped) or any(isinstance(m, torch.nn.modules.batchnorm._BatchNorm) for m in members)


def _with_networks(value: V, change: Callable[[Neural], Any]) -> V:
    """The value with ``change`` applied to each learned network in it."""
    new = value._rebuild(lambda name, v: map_children(name, v, lambda _, child: _with_networks(child, change)))
    return change(new) if isinstance(new, Neural) and new._is_learned else new


def _first_layer(module: object) -> torch.nn.Module | None:
    """The first registered layer that contains no other layers."""
    if not isinstance(module, torch.nn.Module):
        return None  # it is refused where it is asked for images
    return next((member for member in module.modules() if not any(True for _ in member.children())), None)


@contextmanager
def _holding(members: Iterable[torch.nn.Module], name: str, value: object) -> Iterator[None]:
    """A context in which an attribute of these modules has another value."""
    before = [(member, getattr(member, name)) for member in members]
    for member, _ in before:
        setattr(member, name, value)
    try:
        yield
    finally:
        for member, old in before:
            setattr(member, name, old)


def on_device(kernel: Kernel, device: str) -> Kernel:
    """The kernel (a copy of the user's) with its networks moved to a device."""
    for value in all_values(kernel):
        if isinstance(value, Neural):
            value.module.to(device)
    return kernel


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """A context in which torch's global random numbers begin with a seed; afterwards they go on as before."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.default_generator.manual_seed(seed)
        if devices:
            torch.cuda.manual_seed(seed)
        yield
