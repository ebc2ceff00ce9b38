"""Values: small objects that are made from their constructor's arguments and are not changed by computations.

Kernels, output operators and operator-valued kernels are values. A value is comparable, prints as the code that makes
it, can be cloned and pickled, names its nested parameters as scikit-learn does (``left__lengthscale``), and can
exchange any continuous hyperparameter for a tensor that carries a gradient.

A hyperparameter has a constraint. An optimiser moves its raw form freely; ``value(raw)`` is admissible however far a
line search strays, so a kernel that is learned by gradient never goes out of range.
"""

from __future__ import annotations

import copy
import functools
import inspect
import math
import numbers
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from typing import Any, ClassVar, Self, TypeGuard

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor


@dataclass(frozen=True)
class Real:
    """Any real number: raw and value are the same."""

    def value(self, raw: Tensor) -> Tensor:
        """The admissible value of a raw parameter."""
        return raw

    def raw(self, value: Tensor) -> Tensor:
        """The raw parameter of an admissible value."""
        return value

    def problem(self, value: Tensor) -> str | None:
        """The reason why a value is inadmissible, or None."""
        return None if bool(torch.isfinite(value).all()) else "must be finite"


@dataclass(frozen=True)
class Positive:
    """A positive number, whose raw form is its logarithm.

    The logarithm is confined to a quarter of the floating-point range, so that squares, and products of two squares,
    of a value are still finite and positive. ``power`` leaves this room to values that are raised to that power; 0.6
    leaves room for sums of single squares.
    """

    power: float = 1

    def _limit(self, dtype: torch.dtype) -> float:
        return 0.99 * math.log(torch.finfo(dtype).max) / (4.0 * self.power)

    def value(self, raw: Tensor) -> Tensor:
        """The value exp(raw), which is never 0 or infinite."""
        limit = self._limit(raw.dtype)
        return raw.clamp(-limit, limit).exp()

    def raw(self, value: Tensor) -> Tensor:
        """The raw number log(value), which is finite even for 0."""
        limit = self._limit(value.dtype)
        return value.log().clamp(-limit, limit)

    def problem(self, value: Tensor) -> str | None:
        """The reason why a value is inadmissible, or None."""
        return None if bool(((value > 0) & torch.isfinite(value)).all()) else "must be positive and finite"


@dataclass(frozen=True)
class Far(Positive):
    """A positive number in units of data far from one: its logarithm is confined around where a search starts.

    A start next to the ends of the floating-point range is refused. Confined, it would make all data equal, or unlike.

    Parameters
    ----------
    first, last : float
        The logarithms between which the search starts.
    """

    first: float = 0.0
    last: float = 0.0

    def _limits(self, dtype: torch.dtype) -> tuple[float, float]:
        room, end = self._limit(dtype), 0.92 * math.log(torch.finfo(dtype).max)
        return max(self.first - room, -end), min(self.last + room, end)

    def value(self, raw: Tensor) -> Tensor:
        """The value exp(raw), which is never 0 or infinite."""
        return raw.clamp(*self._limits(raw.dtype)).exp()

    def raw(self, value: Tensor) -> Tensor:
        """The raw number log(value)."""
        raw, (least, largest) = value.log(), self._limits(value.dtype)
        if bool(((raw < least) | (raw > largest)).any()):
            far = value.reshape(-1)[raw.abs().argmax()].item()
            raise ValueError(
                f"A learned lengthscale would start at {far:.1e}, as large as the differences of the data are, and "
                f"numbers have no room beside it to be searched in. Scale X, for example by StandardScaler."
            )
        return raw


@dataclass(frozen=True)
class NonNegative(Positive):
    """A number of at least 0, whose learned values are positive."""

    def problem(self, value: Tensor) -> str | None:
        """The reason why a value is inadmissible, or None."""
        admissible = bool(((value >= 0) & torch.isfinite(value)).all())
        return None if admissible else "must not be negative, and finite"


@dataclass(frozen=True)
class Below(Positive):
    """A number above 0 and at most ``limit``, whose raw form is its log-odds; learned values stay below the limit."""

    limit: float = 1.0

    def value(self, raw: Tensor) -> Tensor:
        """The number limit / (1 + exp(−raw)), never 0, and at least a ten-thousandth below the limit."""
        return self.limit * raw.clamp(-30.0, 9.0).sigmoid()

    def raw(self, value: Tensor) -> Tensor:
        """The number log(value / (limit − value)), bounded at both ends so that a search can move."""
        return (value / self.limit).logit().clamp(-29.0, 8.0)

    def problem(self, value: Tensor) -> str | None:
        """The reason why a value is inadmissible, or None."""
        inside = bool(((value > 0) & (value <= self.limit)).all())
        return None if inside else f"must be above 0 and at most {self.limit:.6g}"


@dataclass(frozen=True)
class SemiDefinite:
    """A symmetric positive semi-definite p × p matrix F Fᵀ, whose raw form is the factor F."""

    def value(self, raw: Tensor) -> Tensor:
        """The matrix F Fᵀ, which is never infinite."""
        limit = torch.finfo(raw.dtype).max ** 0.25
        raw = raw.clamp(-limit, limit)
        return raw @ raw.mT

    def raw(self, value: Tensor) -> Tensor:
        """The symmetric square root of the matrix, which may be singular."""
        values, vectors = torch.linalg.eigh(value)
        return (vectors * values.clamp(min=0.0).sqrt()[..., None, :]) @ vectors.mT

    def problem(self, value: Tensor) -> str | None:
        """The reason why a value is inadmissible, or None."""
        if value.ndim < 2 or value.shape[-1] != value.shape[-2]:
            return "must be a square matrix"
        if not bool(torch.isfinite(value).all()):
            return "must be finite"
        scale = value.abs().max().clamp(min=torch.finfo(value.dtype).tiny)
        rounding = math.sqrt(torch.finfo(value.dtype).eps)
        if bool((value - value.mT).abs().max() > rounding * scale):
            return "must be symmetric"
        if bool(torch.linalg.eigvalsh(value).min() < -rounding * scale):
            return "must be positive semi-definite"
        return None


Constraint = Real | Positive | SemiDefinite


@dataclass(frozen=True)
class Packing:
    """One flat raw vector for a set of named, constrained values, and the way back.

    A batch of raw vectors (b, m) unpacks to values that broadcast over a batch of Gram matrices: a scalar becomes
    (b, 1, 1), a vector of length d becomes (b, 1, d).

    Examples
    --------
    >>> import torch
    >>> from representer.kernels import Gaussian
    >>> pack, raw = (2.0 * Gaussian([1.0, 3.0])).packing(["scale", "kernel__lengthscale"])
    >>> raw.round(decimals=2).tolist()
    [0.69, 0.0, 1.1]
    >>> {name: value.tolist() for name, value in pack.unpack(torch.zeros(3)).items()}
    {'scale': 1.0, 'kernel__lengthscale': [1.0, 1.0]}
    """

    constraints: Mapping[str, Constraint]
    shapes: Mapping[str, torch.Size]

    @property
    def size(self) -> int:
        """The length of the flat vector."""
        return sum(shape.numel() for shape in self.shapes.values())

    def pack(self, values: Mapping[str, Tensor]) -> Tensor:
        """The flat raw vector of these values."""
        raw = [self.constraints[name].raw(values[name].detach()).reshape(-1) for name in self.shapes]
        return torch.cat(raw) if raw else torch.zeros(0, dtype=torch.float64)

    def unpack(self, raw: Tensor) -> dict[str, Tensor]:
        """The named values of a raw vector, or of a batch of them."""
        values = {}
        pieces = raw.split([shape.numel() for shape in self.shapes.values()], dim=-1)
        for piece, (name, shape) in zip(pieces, self.shapes.items(), strict=True):
            batched = raw.ndim > 1 and len(shape) < 2
            shaped = piece[..., None, :] if batched else piece.reshape((*raw.shape[:-1], *shape))
            values[name] = self.constraints[name].value(shaped)
        return values


def packing(values: Mapping[str, Tensor], constraints: Mapping[str, Constraint]) -> Packing:
    """The packing of values in their order, each with its constraint."""
    return Packing({name: constraints[name] for name in values}, {name: v.shape for name, v in values.items()})


# A hyperparameter as a user writes it: a number, an array or a tensor of them, or a word that the data replace.
Setting = npt.ArrayLike | Tensor


def is_real(value: object) -> TypeGuard[float]:
    """Is a value one real number of Python or NumPy, and not a truth value?"""
    return type(value) is float or (isinstance(value, numbers.Real) and not isinstance(value, bool))


def is_scalar(value: object) -> bool:
    """Can a value stand for one hyperparameter: a number, a tensor, an array of no dimension, or a word?"""
    array = isinstance(value, np.ndarray) and value.ndim == 0
    return is_real(value) or array or isinstance(value, Tensor | str)


def is_count(value: object) -> TypeGuard[int]:
    """Is a value a positive integer of Python or NumPy?"""
    return isinstance(value, numbers.Integral) and is_real(value) and int(value) > 0


def is_whole(value: object) -> TypeGuard[int]:
    """Is a value an integer of at least 0, of Python or NumPy?"""
    return isinstance(value, numbers.Integral) and is_real(value) and int(value) >= 0


def as_tensor(value: object) -> Tensor:
    """A number, list or array as a tensor of its own, in double precision if it held integers; a tensor as it is."""
    tensor = value if isinstance(value, Tensor) else torch.tensor(np.asarray(value, order="C"))
    is_integer = not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)
    return tensor.to(torch.float64) if is_integer else tensor


@dataclass(frozen=True)
class Rule:
    """A rule for an argument: admissible values in words, a test of a value, and advice for errors."""

    words: str
    holds: Callable[[Any], bool]
    advice: str = ""

    def __call__(self, name: str, value: object) -> None:
        """Refuse an inadmissible value of the argument with this name."""
        if not self.holds(value):
            raise ValueError(f"{name} must be {self.words}; got {argument_repr(value)}.{self.advice}")

    def __or__(self, other: Rule) -> Rule:
        words = f"{self.words.replace(' or ', ', ')} or {other.words}"
        return Rule(words, lambda value: self.holds(value) or other.holds(value))


def one_of(*words: str) -> Rule:
    """The rule that a value is one of several words."""
    named = ", ".join(map(repr, words))
    return Rule(f"one of {named}" if len(words) > 1 else named, lambda value: isinstance(value, str) and value in words)


def instance_of(words: str, *kinds: type) -> Rule:
    """The rule that a value is an object of one of several classes, which ``words`` describe."""
    return Rule(words, lambda value: isinstance(value, kinds))


def integer(least: int, *, truth: bool = False) -> Rule:
    """The rule that a value is an integer of at least ``least``; ``truth`` allows True and False for 1 and 0."""
    return Rule(
        f"an integer of at least {least}",
        lambda value: (
            isinstance(value, int | np.integer) and (truth or not isinstance(value, bool)) and bool(value >= least)
        ),
    )


NONE = Rule("None", lambda value: value is None)
COUNT = Rule("a positive integer", is_count)
WHOLE = Rule("an integer, 0 or more", is_whole)
POSITIVE = Rule("a positive, finite number", lambda value: is_real(value) and 0 < value < math.inf)
NOT_NEGATIVE = Rule("a finite number of at least 0", lambda value: is_real(value) and 0 <= value < math.inf)
SHARE = Rule("a share between 0 and 1", lambda value: is_real(value) and 0 < value < 1)
TRUTH = instance_of("True or False", bool, np.bool_)


@dataclass(frozen=True)
class Word:
    """A word that may stand for a number, such as ``lengthscale="median"``, with the function that gives its value."""

    value: Callable[[Any], Tensor]  # a function of prepared data
    learned: bool = False  # is the value the start of a search?


@functools.lru_cache(maxsize=1024)
def _problem_of(constraint: Constraint, value: float) -> str | None:
    """Why a plain number is not admissible, or None; it is cached, because every Gram matrix asks."""
    return constraint.problem(torch.tensor(value, dtype=torch.float64))


@dataclass(frozen=True)
class Hyperparameter:
    """The specification of a continuous hyperparameter: its constraint, and the words that may stand for a value.

    A ``scalar`` is one number, or a batch that broadcasts over Gram matrices (..., 1, 1); others have any shape.
    """

    constraint: Constraint
    words: Mapping[str, Word] = field(default_factory=dict)
    scalar: bool = False

    def problem(self, value: object) -> str | None:
        """The reason why a value or a word is inadmissible, or None."""
        if isinstance(value, str):
            words = f" or one of: {', '.join(map(repr, self.words))}" if self.words else ""
            return None if value in self.words else f"must be a number{words}"
        if type(value) is float:
            return _problem_of(self.constraint, value)
        try:
            tensor = as_tensor(value).detach()
        except (TypeError, ValueError, RuntimeError):
            return "must be a number, an array or a tensor"
        if tensor.dtype == torch.bool or tensor.is_complex():
            return "must be a real number, an array or a tensor"
        if not tensor.numel():
            return "must not be empty"
        if self.scalar and tensor.numel() > 1 and tensor.shape[-2:] != (1, 1):
            return f"must be one number (or a batch of shape (..., 1, 1)), not an array of shape {tuple(tensor.shape)}"
        return self.constraint.problem(tensor)


# Longer arrays are summarised in a repr, which does not evaluate back to the value then.
REPR_LIMIT = 1000
DOUBLE = torch.zeros((), dtype=torch.float64)


@contextmanager
def unchanged_by_errors(*holders: object) -> Iterator[None]:
    """A context in which an error restores these objects, and all values that they hold."""
    states: dict[int, tuple[object, dict[str, object]]] = {}
    waiting = list(holders)
    while waiting:
        holder = waiting.pop()
        if isinstance(holder, list | tuple):
            waiting.extend(holder)
        elif (isinstance(holder, Value) or holder is holders[0]) and id(holder) not in states:
            states[id(holder)] = (holder, dict(vars(holder)))
            waiting.extend(vars(holder).values())
    try:
        yield
    except Exception:
        for holder, state in states.values():
            vars(holder).clear()
            vars(holder).update(state)
        raise


LONGEST_SHOWN = 80  # the largest number of characters of an argument in a notebook


class Value:
    """The base class of objects made from hyperparameters; a subclass's constructor only stores its arguments."""

    hyperparameters: ClassVar[Mapping[str, Hyperparameter]] = {}
    rules: ClassVar[Mapping[str, Rule]] = {}  # the rules of the other arguments

    # -- the constructor's arguments --------------------------------------------------------------------------------
    @classmethod
    def _argument_names(cls) -> tuple[str, ...]:
        return tuple(_defaults(cls.__init__))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments; with ``deep``, also those of nested values as ``name__nested``."""
        params = {name: getattr(self, name) for name in self._argument_names()}
        if deep:
            for name, child in self._children():
                params |= {f"{name}__{key}": value for key, value in child.get_params().items()}
        return params

    def set_params(self, **params: object) -> Self:
        """Change arguments in place, nested ones by ``name__nested=value``; an error changes none. Returns self."""
        nested: dict[str, dict[str, object]] = {}
        with unchanged_by_errors(self, *params.values()):
            for name, value in params.items():
                head, _, rest = name.partition("__")
                if head not in self._argument_names():
                    names = ", ".join(self.get_params())
                    raise ValueError(f"{type(self).__name__} has no parameter {name!r}; it has: {names}.")
                if rest:
                    nested.setdefault(head, {})[rest] = value
                else:
                    setattr(self, name, value)
            for head, values in nested.items():
                self._set_nested(head, values)
        return self

    def _set_nested(self, head: str, values: dict[str, object]) -> None:
        """Change arguments of the children in the argument ``head``."""
        children = dict(self._children())
        for rest, value in values.items():
            key, inner = _split_child(head, rest, children)
            if key is None:
                names = ", ".join(self.get_params())
                raise ValueError(f"{type(self).__name__} has no parameter {f'{head}__{rest}'!r}; it has: {names}.")
            children[key].set_params(**{inner: value})

    def _children(self) -> Iterator[tuple[str, Value]]:
        """The values among the arguments, and in lists among them, by name."""
        for name in self._argument_names():
            argument = getattr(self, name)
            if isinstance(argument, Value):
                yield name, argument
            elif isinstance(argument, list | tuple):
                yield from ((f"{name}__{i}", v) for i, v in enumerate(argument) if isinstance(v, Value))

    def _rebuild(self, change: Callable[[str, Any], Any]) -> Self:
        """A new value of the same class with the arguments ``change(name, argument)``."""
        new = object.__new__(type(self))
        vars(new).update(vars(self))
        for name in self._argument_names():
            setattr(new, name, change(name, getattr(self, name)))
        return new

    def _with_arguments(self, **arguments: object) -> Self:
        """A new value with these arguments in place of its own."""
        return self._rebuild(lambda name, argument: arguments.get(name, argument))

    def __sklearn_clone__(self) -> Self:
        return self._rebuild(lambda _, argument: _copy_argument(argument))

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(same(getattr(self, name), getattr(other, name)) for name in self._argument_names())

    def __hash__(self) -> int:
        return hash(type(self))  # equal values have equal types; parameters may be arrays

    def __repr__(self) -> str:
        shown = [
            f"{name}={argument_repr(argument)}"
            for name, default in _defaults(type(self).__init__).items()
            if not same(argument := getattr(self, name), default)
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    def _repr_html_(self) -> str:
        """The value as a small tree in a notebook, each nested value with its own arguments."""
        return f"<div style='font-size:.9em'>{tree_html(self)}</div>"

    # -- continuous hyperparameters ---------------------------------------------------------------------------------
    def _own_specification(self, name: str) -> Hyperparameter:
        return type(self).hyperparameters[name]

    def check_hyperparameters(self) -> None:
        """Raise a ValueError that names the first argument, nested ones included, with an inadmissible value."""
        for name, rule in self.rules.items():
            rule(f"{name} of {type(self).__name__}", getattr(self, name))
        for name in self.hyperparameters:
            value = getattr(self, name)
            if problem := self._own_specification(name).problem(value):
                raise ValueError(f"{name} of {type(self).__name__} {problem}; got {argument_repr(value)}.")
        for _, child in self._children():
            child.check_hyperparameters()

    def constraints(self) -> dict[str, Constraint]:
        """The constraint of every continuous hyperparameter, nested names included."""
        constraints = {name: self._own_specification(name).constraint for name in self.hyperparameters}
        for prefix, child in self._children():
            constraints |= {f"{prefix}__{name}": c for name, c in child.constraints().items()}
        return constraints

    def _hyperparameter_names(self) -> list[str]:
        """The names of all continuous hyperparameters, nested ones included."""
        nested = [(prefix, child._hyperparameter_names()) for prefix, child in self._children()]
        return [*self.hyperparameters, *(f"{prefix}__{name}" for prefix, names in nested for name in names)]

    def hyperparameter_values(self) -> dict[str, Tensor]:
        """The value of every continuous hyperparameter that is no word (see ``resolve``)."""
        values = {}
        for name in self.hyperparameters:
            value = getattr(self, name)
            if not isinstance(value, str):
                values[name] = as_tensor(value)
        for prefix, child in self._children():
            values |= {f"{prefix}__{name}": v for name, v in child.hyperparameter_values().items()}
        return values

    def free(self) -> list[str]:
        """The names of the hyperparameters that are to be learned (``"auto"``, ``"ard"``); numbers are not."""
        free = [
            name
            for name in self.hyperparameters
            if isinstance(value := getattr(self, name), str)
            and (word := self._own_specification(name).words.get(value)) is not None
            and word.learned
        ]
        return free + [f"{prefix}__{name}" for prefix, child in self._children() for name in child.free()]

    def replace(self, values: Mapping[str, Setting]) -> Self:
        """A new value with some hyperparameters exchanged, for instance for tensors that carry gradients."""
        unknown = set(values) - set(self._hyperparameter_names())
        if unknown and (unknown := unknown - set(self.constraints())):
            names = ", ".join(self.constraints()) or "none"
            raise ValueError(f"{self!r} has no hyperparameter {sorted(unknown)}; it has: {names}.")

        def change(name: str, argument: object) -> Any:
            if name in values and name in self.hyperparameters:
                return values[name]
            return map_children(name, argument, lambda prefix, child: child.replace(_below(prefix, values)))

        return self._rebuild(change)

    def numbers(self) -> Self:
        """The value with plain floats and arrays in place of tensors, as a fitted learner keeps it."""

        def change(name: str, argument: object) -> Any:
            if name in self.hyperparameters and isinstance(argument, Tensor):
                array = argument.detach().cpu().numpy()
                return float(array) if array.ndim == 0 else array.copy()
            return map_children(name, argument, lambda _, child: child.numbers())

        return self._rebuild(change)

    def packing(self, names: list[str]) -> tuple[Packing, Tensor]:
        """The packing of these hyperparameters into a flat raw vector, and the vector of their present values."""
        current = self.hyperparameter_values()
        missing = [name for name in names if name not in current]
        if missing:
            raise ValueError(
                f"{self!r} has no number for {missing}; it has: {', '.join(current) or 'none'}. A word gets its number "
                "from data: call resolve first."
            )
        packed = {name: current[name] for name in names}
        pack = packing(packed, self.constraints())
        return pack, pack.pack(packed)


def number(value: Value, name: str, like: Tensor = DOUBLE) -> Tensor:
    """A hyperparameter of a value as a checked tensor, with the dtype and device of ``like``."""
    setting = getattr(value, name)
    specification = value._own_specification(name)
    compiling = torch.compiler.is_compiling()  # a compiler's tensors are symbols, which must not be cached
    if type(setting) is float and not compiling:  # the usual case, for every Gram matrix
        tensor = _plain_number(specification.constraint, setting, like.dtype, like.device)
        if tensor is not None:
            return tensor
    problem = None if compiling else specification.problem(setting)
    if problem is None and isinstance(setting, str):
        raise ValueError(
            f"{name}={setting!r} of {type(value).__name__} has no number yet: the data decide it. Call "
            f"kernel.resolve(X) first, or give a number."
        )
    if problem:
        raise ValueError(f"{name} of {type(value).__name__} {problem}; got {argument_repr(setting)}.")
    return as_tensor(setting).to(dtype=like.dtype, device=like.device)


@functools.lru_cache(maxsize=1024)
def _plain_number(constraint: Constraint, value: float, dtype: torch.dtype, device: torch.device) -> Tensor | None:
    """A plain number as a tensor; None if it is inadmissible."""
    return None if _problem_of(constraint, value) else torch.tensor(value, dtype=dtype, device=device)


def tree_html(value: Value, name: str = "") -> str:
    """A value and its nested values as HTML lists; texts are escaped, and numbers have few digits.

    Examples
    --------
    >>> from representer.kernels import Gaussian
    >>> from representer.values import tree_html
    >>> tree_html(Gaussian(0.123456))
    '<b>Gaussian</b> <code>lengthscale=0.1235</code>'
    """
    children = list(value._children())
    inner = {place.partition("__")[0] for place, _ in children}
    arguments = [
        f"{argument}={_few_digits(getattr(value, argument))}"
        for argument, default in _defaults(type(value).__init__).items()
        if argument not in inner and not same(getattr(value, argument), default)
    ]
    head = f"{escape(name)}: " if name else ""
    text = f"{head}<b>{escape(type(value).__name__)}</b>"
    text += f" <code>{escape(', '.join(arguments))}</code>" if arguments else ""
    rows = "".join(f"<li>{tree_html(child, place.rpartition('__')[2])}</li>" for place, child in children)
    return f"{text}<ul style='margin:0;padding-left:1.4em'>{rows}</ul>" if rows else text


def _few_digits(argument: Any) -> str:
    """An argument in few characters: numbers with four digits, long arrays by their range."""
    if isinstance(argument, float | np.floating):
        return f"{argument:.4g}"
    numbers = argument if isinstance(argument, np.ndarray | Tensor | list | tuple) else None
    array = None if numbers is None else np.asarray(numbers.detach().cpu() if isinstance(numbers, Tensor) else numbers)
    if array is None or array.dtype.kind not in "biuf" or not array.size:
        text = argument_repr(argument)
        return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 1]}…"
    if array.size <= 3:
        return str([float(f"{number:.4g}") for number in array.ravel()])
    return f"[{array.min():.4g} … {array.max():.4g}], shape {tuple(array.shape)}"


@functools.cache  # every step of a search asks, and signatures are slow to read
def _defaults(constructor: Callable[..., None]) -> dict[str, Any]:
    """The arguments of a constructor, each with its default."""
    if constructor is object.__init__:
        return {}
    parameters = inspect.signature(constructor).parameters
    return {name: parameter.default for name, parameter in parameters.items() if name != "self"}


def _split_child(head: str, rest: str, children: Mapping[str, Value]) -> tuple[str | None, str]:
    """The child that ``head__rest`` names, ``head`` or ``head__i`` of a list, and the name of its argument."""
    if head in children:
        return head, rest
    index, _, inner = rest.partition("__")
    key = f"{head}__{index}"
    return (key, inner) if key in children and inner else (None, "")


def _below(prefix: str, values: Mapping[str, Setting]) -> dict[str, Setting]:
    """The hyperparameters of the child ``prefix``, by the child's own names."""
    start = f"{prefix}__"
    return {name[len(start) :]: value for name, value in values.items() if name.startswith(start)}


def map_children(name: str, argument: object, change: Callable[[str, Value], Value]) -> Any:
    """An argument with ``change(name, child)`` in place of each value: the argument itself, or items of a list."""
    if isinstance(argument, Value):
        return change(name, argument)
    if isinstance(argument, list | tuple):
        return type(argument)(change(f"{name}__{i}", v) if isinstance(v, Value) else v for i, v in enumerate(argument))
    return argument


def _copy_argument(argument: object) -> object:
    """A deep copy; functions stay, because they have no state that a value could change."""
    if isinstance(argument, Value):
        return argument.__sklearn_clone__()
    if isinstance(argument, list | tuple):
        return type(argument)(_copy_argument(item) for item in argument)
    if isinstance(argument, Tensor):
        return argument.detach().clone()
    is_function = callable(argument) and not isinstance(argument, torch.nn.Module)
    return argument if is_function else copy.deepcopy(argument)


def same(a: Any, b: Any) -> bool:
    """Are two arguments equal? Arrays, tensors and lists are compared by their entries, modules by their weights."""
    if a is b:
        return True
    if isinstance(a, torch.nn.Module):
        return type(a) is type(b) and repr(a) == repr(b) and same(a.state_dict(), b.state_dict())
    if sparse.issparse(a) or sparse.issparse(b):
        return sparse.issparse(a) and sparse.issparse(b) and a.shape == b.shape and not (a != b).nnz
    if hasattr(a, "__array__") or hasattr(b, "__array__"):
        return not (isinstance(a, str | type) or isinstance(b, str | type)) and _same_entries(a, b)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return bool(a == b)


def _same_entries(a: object, b: object) -> bool:
    """Are arrays, frames, tensors, or the lists that could be written for them, equal entry by entry?"""
    try:
        one, two = _plain(a), _plain(b)
    except ValueError:  # a ragged list
        return False
    numbers = one.dtype.kind == two.dtype.kind == "f"  # NaN equals NaN
    return one.shape == two.shape and np.array_equal(one, two, equal_nan=numbers)


def _plain(argument: object) -> np.ndarray:
    """A tensor, or anything else, as a NumPy array."""
    return argument.detach().cpu().numpy() if isinstance(argument, Tensor) else np.asarray(argument)


def argument_repr(argument: object) -> str:
    """An argument as code: arrays and tensors as lists."""
    if hasattr(argument, "__array__") and not isinstance(argument, type):
        array = _plain(argument)
        if array.size > REPR_LIMIT:
            return f"<array of shape {array.shape}>"
        return argument_repr(array.tolist())
    if isinstance(argument, list):
        return f"[{', '.join(map(argument_repr, argument))}]"
    if isinstance(argument, tuple):
        return f"({', '.join(map(argument_repr, argument))}{',' if len(argument) == 1 else ''})"
    if isinstance(argument, float) and not math.isfinite(argument):
        return f"float('{argument}')"
    if inspect.isroutine(argument):
        return argument.__name__
    if type(argument).__repr__ is object.__repr__:  # which shows a place in memory
        return f"<{type(argument).__name__}>"
    return repr(argument)


def as_floats(values: object, name: str) -> np.ndarray:
    """Numbers as an array of double precision; texts, dates and other objects are refused by the argument's name.

    Examples
    --------
    >>> from representer.values import as_floats
    >>> as_floats([1, None], "mean").tolist()
    [1.0, nan]
    """
    try:
        array = np.asarray(values.detach() if isinstance(values, Tensor) else values)
        if array.dtype.kind not in "fiubO" or hasattr(values, "toarray"):
            raise TypeError(f"these are of the type {type(values).__name__}, {array.dtype}")
        return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"{name} must be a number or an array of numbers; got {argument_repr(values):.60} ({error}). Convert it "
            "first."
        ) from error


def as_generator(random_state: Any) -> np.random.Generator:
    """NumPy's generator of random numbers from a seed; an error says what a seed may be.

    Examples
    --------
    >>> from representer.values import as_generator
    >>> bool(as_generator(0).random() == as_generator(0).random())
    True
    """
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "random_state must be an integer of at least 0, a numpy.random.Generator or None; got "
            f"{argument_repr(random_state):.60}."
        ) from error


def per_row(value: Tensor) -> Tensor:
    """A hyperparameter that broadcasts over matrices (..., 1, 1), made to broadcast over vectors (..., 1)."""
    return value if value.ndim < 2 else value.squeeze(-1)


def all_values(value: Value) -> list[Value]:
    """The value and all nested values."""
    return [value, *(v for _, child in value._children() for v in all_values(child))]
