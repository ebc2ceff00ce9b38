"""The closed list of classes and functions that a model file may name.

A file holds names, and a name means something only if it is on this list. Nothing is imported because a file says so.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pkgutil import resolve_name, walk_packages
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np
import torch

from representer import (
    approximation,
    functions,
    inspection,
    kernels,
    objectives,
    operators,
    optimize,
    preimage,
    problems,
    samples,
    systems,
    values,
)
from representer.optimize.search import keep_going
from representer.persistence.container import ModelFileError

# The rooms whose classes are parts of a fitted learner, beside the room of the learners.
ROOMS = (
    values,
    samples,
    kernels,
    operators,
    approximation,
    functions,
    systems,
    optimize,
    objectives,
    preimage,
    problems,
    inspection,
)
# Types that stand for themselves, such as the kind of the labels that a decoder has seen.
PLAIN_TYPES = {kind.__name__: kind for kind in (str, int, float, bool, bytes, tuple, list)}
PACKAGE = __name__.partition(".")[0]


def name_of(thing: Any) -> str:
    """The name of a class or a function in a file.

    It has its module, but for those of the library, whose names are used once: they may move from file to file. What is
    compiled into torch or NumPy is called as they offer it.
    """
    if str(getattr(thing, "__module__", None)).startswith(f"{PACKAGE}."):
        return f"{PACKAGE}.{thing.__qualname__}"
    name = getattr(thing, "__name__", "")
    for module in (torch, np):
        if not isinstance(thing, type) and getattr(module, name, None) is thing:
            return f"{module.__name__}.{name}"
    return f"{getattr(thing, '__module__', None)}.{getattr(thing, '__qualname__', name)}"


@dataclass(frozen=True)
class Known:
    """What names mean: the library's classes, torch's layers, and what the user trusts."""

    classes: Mapping[str, type]
    functions: Mapping[str, Callable[..., Any]]
    plugins: frozenset[str] = frozenset()  # the names that were trusted by the user

    def class_called(self, name: str) -> type:
        """The class with this name, if it is on the list."""
        return self._find(self.classes, name)

    def function_called(self, name: str) -> Callable[..., Any]:
        """The function with this name, if it is on the list."""
        return self._find(self.functions, name)

    @staticmethod
    def _find(table: Mapping[str, Any], name: str) -> Any:
        if not isinstance(name, str) or name not in table:
            if str(name).startswith(f"{PACKAGE}."):
                why = "which this version of the library does not have. `representer describe` says which one wrote it."
            else:
                why = f"which is no part of the library. If you know and trust it: load(path, trusted=[{name!r}])."
            raise ModelFileError(f"The file asks for {name!r}, {why}")
        return table[name]


def known(learners: Iterable[type] = (), trusted: Iterable[Any] = ()) -> Known:
    """The closed list: the library, these learners, and what is trusted, by name or as the thing itself."""
    if isinstance(trusted, str):
        raise ValueError(f"trusted must be a list of names; got {trusted!r}. Pass trusted=[{trusted!r}].")
    own = {name_of(kind): kind for kind in learners}
    things = {name if isinstance(name, str) else name_of(name): _resolved(name) for name in trusted}
    classes = {name: thing for name, thing in things.items() if isinstance(thing, type)}
    others = {name: thing for name, thing in things.items() if not isinstance(thing, type)}
    return Known(
        {**_library(), **_layers(), **own, **classes},
        {name_of(keep_going): keep_going, **others},
        frozenset(things),
    )


@cache
def _library() -> Mapping[str, type]:
    """The classes that the rooms define, by name."""
    modules: list[ModuleType] = [*ROOMS]
    for room in ROOMS:
        parts = walk_packages(getattr(room, "__path__", ()), f"{room.__name__}.")
        modules.extend(resolve_name(part.name) for part in parts)
    classes = [
        thing
        for module in modules
        for thing in vars(module).values()
        if isinstance(thing, type) and thing.__module__ == module.__name__ and not issubclass(thing, BaseException)
    ]
    return MappingProxyType({name_of(kind): kind for kind in classes if not inspect.isabstract(kind)})


@cache
def _layers() -> Mapping[str, type]:
    """The layers of torch.nn."""
    layers = [thing for thing in vars(torch.nn).values() if isinstance(thing, type)]
    return MappingProxyType({name_of(kind): kind for kind in layers if issubclass(kind, torch.nn.Module)})


def _resolved(name: object) -> Any:
    """What a name that the user trusts means."""
    if not isinstance(name, str):
        if isinstance(name, type) or callable(name):
            return name
        raise ValueError(
            f"trusted must hold names such as 'package.module.Kernel', classes or functions; got {name!r}."
        )
    try:
        return resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        message = f"trusted names {name!r}, which cannot be imported ({error}). Is its package installed?"
        raise ModelFileError(message) from error
