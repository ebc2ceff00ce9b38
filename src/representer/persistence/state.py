"""The state of a fitted learner as JSON and arrays, and back.

Values of JSON stand as they are: None, truth values, integers, finite floats and texts. Everything else is an object
with one key, its kind. Objects with an identity (arrays, lists, dicts, instances of classes) are *nodes* of one list;
``{"node": i}`` refers to a node, so that shared objects are shared again. A node refers only to nodes before it: there
are no cycles, and a file is read in one pass.

A file holds names, and only names on the closed list of classes and functions here have a meaning: a file cannot cause
an import. RDKit molecules are SMILES with the order of the atoms, because the reader of RDKit's own binary form does
not end on some damaged ones.
"""

from __future__ import annotations

import base64
import copy
import dataclasses
import inspect
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from functools import cache, cached_property, partial
from pkgutil import resolve_name, walk_packages
from types import BuiltinFunctionType, FunctionType, MappingProxyType, ModuleType
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

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
from representer.samples import ABSENT, Absent, SparseRows

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
# Types that are stored by their name, such as the kind of a decoder's labels.
PLAIN_TYPES = {kind.__name__: kind for kind in (str, int, float, bool, bytes, tuple, list)}
PACKAGE = __name__.partition(".")[0]


def name_of(thing: Any) -> str:
    """The name of a class or a function in a file.

    It includes the module, except for names of the library, which are unique and may move from file to file. Compiled
    functions of torch and NumPy have the names under which these packages offer them.
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
    """The meanings of names: the library's classes, torch's layers, and what the user trusts."""

    classes: Mapping[str, type]
    functions: Mapping[str, Callable[..., Any]]
    plugins: frozenset[str] = frozenset()  # the names that the user trusts

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
    """The closed list of names: the library, these learners, and trusted names, classes or functions."""
    if isinstance(trusted, str):
        raise ValueError(f"trusted must be a list of names; got {trusted!r}. Pass trusted=[{trusted!r}].")
    learner_classes = {name_of(kind): kind for kind in learners}
    things = {name if isinstance(name, str) else name_of(name): _resolved(name) for name in trusted}
    classes = {name: thing for name, thing in things.items() if isinstance(thing, type)}
    others = {name: thing for name, thing in things.items() if not isinstance(thing, type)}
    return Known(
        {**_library(), **_layers(), **learner_classes, **classes},
        {name_of(keep_going): keep_going, **others},
        frozenset(things),
    )


@cache
def _library() -> Mapping[str, type]:
    """The classes of the rooms, by name."""
    modules: list[ModuleType] = [*ROOMS]
    for room in ROOMS:
        files = walk_packages(getattr(room, "__path__", ()), f"{room.__name__}.")
        modules.extend(resolve_name(file.name) for file in files)
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
    """The class or function that a trusted name means."""
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


def molecule_state(value: Any) -> dict[str, Any] | None:
    """A molecule as SMILES with the order of its atoms; None for anything else."""
    if type(value).__module__ != "rdkit.Chem.rdchem":
        return None
    from rdkit import Chem

    molecule = Chem.Mol(value)  # a copy, because writing SMILES leaves a note in the molecule
    text = Chem.MolToSmiles(molecule, canonical=False)
    order = list(molecule.GetPropsAsDict(True, True).get("_smilesAtomOutputOrder", ()))
    content = [text, order]
    again = molecule_record(None, content)
    if _structure(again) != _structure(value):
        raise ModelFileError(
            f"A molecule ({text}) is another one after it was written as SMILES and read again. Fit to molecules that "
            "Chem.MolFromSmiles has made, or to SMILES."
        )
    return {"molecule": content}


def molecule_record(_: Any, content: Any) -> Any:
    """The molecule from SMILES and an order of atoms."""
    try:
        from rdkit import Chem
    except ImportError as error:
        raise ModelFileError('The model holds molecules: pip install "representer[molecules]".') from error
    text, order = content
    settings: Any = Chem.SmilesParserParams()
    settings.removeHs = False
    molecule = Chem.MolFromSmiles(str(text), settings)
    if molecule is None or sorted(order) != list(range(molecule.GetNumAtoms())):
        raise ModelFileError(f"{str(text)[:80]!r} is no molecule.")
    places = sorted(range(len(order)), key=order.__getitem__)
    return Chem.RenumberAtoms(molecule, places)


def _structure(molecule: Any) -> tuple[Any, ...]:
    """The structure that tells molecules apart: atoms and bonds in their order, and the isomeric SMILES."""
    from rdkit import Chem

    properties = ("AtomicNum", "FormalCharge", "Isotope", "TotalNumHs", "IsAromatic", "NumRadicalElectrons")
    atoms = [tuple(getattr(atom, f"Get{name}")() for name in properties) for atom in molecule.GetAtoms()]
    bonds = {(*sorted((b.GetBeginAtomIdx(), b.GetEndAtomIdx())), str(b.GetBondType())) for b in molecule.GetBonds()}
    return atoms, bonds, Chem.MolToSmiles(molecule)


Json = Any  # a value of JSON
Node = dict[str, Json]  # the description of one object in a file

SPARSE = {kind.__name__: kind for kind in (SparseRows, sparse.csr_array, sparse.csr_matrix)}
TENSOR_TYPES = {
    str(kind).removeprefix("torch."): kind
    for kind in (torch.float64, torch.float32, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool)
}
# Kinds of NumPy's types that safetensors has; the others are stored as bytes.
NUMBERS = "biuf"
CONTAINERS = (list, dict, set, frozenset, str, bytes, int, float, complex, np.ndarray, Tensor)
OMITTED = ("_skl_callbacks",)  # callbacks watch a fit, and are no part of the model


class Writer:
    """Writes values into nodes and arrays; an error gives the place of a value that a file cannot hold."""

    def __init__(self, known: Known) -> None:
        self.known = known
        self.nodes: list[Node] = []
        self.arrays: dict[str, np.ndarray] = {}
        self.foreign: set[str] = set()  # names that a reader of the file must trust
        self._places: dict[int, int] = {}
        self._alive: list[Any] = []  # kept alive, so that no id is used twice
        self._path: list[str] = []

    def value(self, value: Any) -> Any:
        """A value as JSON."""
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if kind in INLINE:
            return INLINE[kind](self, value)
        if isinstance(value, date):
            return _moment(value)
        return {"node": self._node(value)}

    def _node(self, value: object) -> int:
        """The number of the node of an object, which is written if it is new."""
        place = self._places.get(id(value))
        if place is None:
            self._places[id(value)] = -1
            self._alive.append(value)
            node = self._described(value)
            place = self._places[id(value)] = len(self.nodes)
            self.nodes.append(node)
        elif place < 0:
            raise self._refusal("refers to itself", "Break the cycle.")
        return place

    def _described(self, value: object) -> Node:
        """The node that describes an object, by its kind."""
        kind = type(value)
        for base, describe in NODES.items():
            if kind is base:
                return describe(self, value)
        if isinstance(value, torch.nn.Parameter):
            return {"parameter": [self._array(value.detach().cpu().numpy()), value.requires_grad]}
        if isinstance(value, np.generic):
            return {"scalar": self._array(np.asarray(value))}
        if isinstance(value, np.dtype):
            return {"dtype": value.str}
        if isinstance(value, type):
            return self._type(value)
        if isinstance(value, FunctionType | BuiltinFunctionType | np.ufunc):
            return {"function": self._named(value, "function")}
        if isinstance(value, tuple):
            return {"record": [self._named(kind, "class"), self._items(value)]}
        return molecule_state(value) or self._network(value) or self._instance(value)

    # -- kinds --------------------------------------------------------------------------------------------------------
    def _items(self, values: Any) -> list[Json]:
        entries = []
        for i, value in enumerate(values):
            with self._at(f"[{i}]"):
                entries.append(self.value(value))
        return entries

    def _pairs(self, values: dict[Any, Any]) -> list[Json]:
        pairs = []
        for key, value in values.items():
            with self._at(f"[{key!r}]"):
                pairs.append([self.value(key), self.value(value)])
        return pairs

    def _array(self, array: np.ndarray) -> Node:
        """The place and order of a stored array, with type and shape if safetensors does not have such a type."""
        if array.dtype.kind in "OV":
            raise self._refusal(f"is an array of type {array.dtype}", "")
        name = str(len(self.arrays))
        order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        stored = np.ascontiguousarray(array.T if order == "F" else array).reshape(
            array.T.shape if order == "F" else array.shape
        )
        entry: Node = {"at": name, "order": order}
        if array.dtype.kind not in NUMBERS or array.dtype.itemsize > 8 or not array.dtype.isnative:
            entry |= {"dtype": array.dtype.str, "shape": list(stored.shape)}
            stored = np.frombuffer(stored.tobytes(), dtype=np.uint8)
        self.arrays[name] = stored
        return entry

    def _ndarray(self, array: np.ndarray) -> Node:
        if array.dtype.kind == "O":
            return {"objects": [list(array.shape), self._items(array.ravel().tolist())]}
        return {"array": self._array(array)}

    def _sparse(self, rows: Any) -> Node:
        arrays = [self._array(array) for array in (rows.data, rows.indices, rows.indptr)]
        return {"sparse": [type(rows).__name__, list(rows.shape), *arrays]}

    def _random_state(self, generator: np.random.RandomState) -> Node:
        name, keys, *rest = tuple(generator.get_state(legacy=True))
        return {"random state": [name, self._array(np.asarray(keys)), *rest]}

    def _network(self, graph: Any) -> Node | None:
        """A networkx graph as its nodes and edges; None for anything else."""
        kind = type(graph)
        if kind.__module__ not in ("networkx.classes.graph", "networkx.classes.digraph"):
            return None
        edges = [(u, v, data) for u, v, data in graph.edges(data=True)]
        contents = (graph.graph, [(node, data) for node, data in graph.nodes(data=True)], edges)
        return {"network": [graph.is_directed(), *map(self.value, contents)]}

    def _type(self, kind: type) -> Node:
        if PLAIN_TYPES.get(kind.__name__) is kind:
            return {"type": kind.__name__}
        return {"type": self._named(kind, "class")}

    def _instance(self, value: object) -> Node:
        """An instance of a class as the name of the class and its attributes."""
        kind = type(value)
        name = self._named(kind, "class")
        plain = all(getattr(kind, name) is getattr(object, name) for name in ("__reduce_ex__", "__reduce__"))
        plain = plain and not isinstance(value, CONTAINERS)  # they have more than attributes
        state = value.__getstate__() if plain else 0
        state = {} if state is None else state  # no attributes
        if isinstance(state, tuple) and len(state) == 2:  # of slots
            state = (state[0] or {}) | (state[1] or {})
        if not isinstance(state, dict):
            raise self._refusal(f"is a {name}, whose state is no dict of attributes", "")
        fields: Node = {}
        for attribute, content in state.items():
            if attribute not in OMITTED and not is_cache(kind, attribute):
                with self._at(f".{attribute}"):
                    fields[attribute] = self.value(content)
        return {"instance": [name, fields]}

    # -- names --------------------------------------------------------------------------------------------------------
    def _named(self, thing: object, what: str) -> str:
        """The name of a class or a function, by which it can be found again."""
        name = name_of(thing)
        if "<" in name or name.startswith("None."):
            advice = f"A {what} is found again by its name: define it at the top of a module."
            raise self._refusal(
                f"is the {what} {getattr(thing, '__qualname__', thing)!r}, which has no name there", advice
            )
        table = self.known.classes if isinstance(thing, type) else self.known.functions
        if table.get(name) is not thing:
            self.foreign.add(name)
        return name

    @contextmanager
    def _at(self, step: str) -> Iterator[None]:
        """A context in which the path to the present value has one more step."""
        self._path.append(step)
        yield
        self._path.pop()

    def _refusal(self, what: str, advice: str) -> ModelFileError:
        """The error about the present value, with the path to it."""
        path = "".join(self._path).lstrip(".") or "the model"
        return ModelFileError(f"{path} {what}: a model file cannot hold it. {advice}".rstrip())


def _moment(value: date) -> dict[str, str]:
    """A date or a moment as text; a moment of pandas is rounded to Python's microseconds."""
    if not isinstance(value, datetime):
        return {"date": value.isoformat()}
    plain: datetime = value.to_pydatetime(warn=False) if hasattr(value, "to_pydatetime") else value
    return {"moment": plain.isoformat()}


def is_cache(kind: type, attribute: str) -> bool:
    """Is an attribute of a class a cached property, which need not be stored?"""
    return isinstance(getattr(kind, attribute, None), cached_property)


Describe = Callable[[Writer, Any], Node]
# Immutable values, which have no identity.
INLINE: dict[type, Describe] = {
    tuple: lambda writer, value: {"tuple": writer._items(value)},
    torch.Size: lambda writer, value: {"size": list(value)},
    bytes: lambda writer, value: {"bytes": base64.b64encode(value).decode()},
    complex: lambda writer, value: {"complex": [repr(value.real), repr(value.imag)]},
    slice: lambda writer, value: {"slice": writer._items((value.start, value.stop, value.step))},
    range: lambda writer, value: {"range": [value.start, value.stop, value.step]},
    torch.dtype: lambda writer, value: {"torch type": str(value).removeprefix("torch.")},
    Absent: lambda writer, value: {"absent": True},
    torch.device: lambda writer, value: {"device": str(value)},
}
NODES: dict[type, Describe] = {
    list: lambda writer, value: {"list": writer._items(value)},
    dict: lambda writer, value: {"dict": writer._pairs(value)},
    OrderedDict: lambda writer, value: {"ordered": writer._pairs(value)},
    set: lambda writer, value: {"set": writer._items(sorted(value, key=repr))},
    frozenset: lambda writer, value: {"frozenset": writer._items(sorted(value, key=repr))},
    np.ndarray: Writer._ndarray,
    Tensor: lambda writer, value: {"tensor": writer._array(value.detach().cpu().numpy())},
    np.random.RandomState: Writer._random_state,
    **dict.fromkeys(SPARSE.values(), Writer._sparse),
}


class Reader:
    """Makes values from nodes and arrays, by the closed list of names."""

    def __init__(self, nodes: list[Node], arrays: dict[str, np.ndarray], known: Known) -> None:
        self.arrays, self.known = arrays, known
        self._made: list[Any] = []
        for node in nodes:
            self._made.append(self.value(node))

    def value(self, entry: object) -> Any:
        """The value that JSON stands for."""
        if entry is None or isinstance(entry, bool | int | str | float):
            return entry
        if not isinstance(entry, dict) or len(entry) != 1:
            raise ModelFileError(f"The state holds {str(entry)[:60]!r}, which stands for nothing.")
        ((kind, content),) = entry.items()
        make = MAKERS.get(kind)
        if make is None:
            raise ModelFileError(f"The state holds something of the kind {kind!r}, which this version does not know.")
        return make(self, content)

    def values(self, entries: object) -> list[Json]:
        """The values of a list."""
        if not isinstance(entries, list):
            raise ModelFileError("The state lacks a list where one is expected.")
        return [self.value(entry) for entry in entries]

    def node(self, place: object) -> Any:
        """The object of an earlier node."""
        if type(place) is not int or not 0 <= place < len(self._made):
            raise ModelFileError(f"The state refers to node {place!r}, which does not come before.")
        return self._made[place]

    def array(self, entry: Node) -> np.ndarray:
        """A stored array, in memory of its own."""
        stored = self.arrays[entry["at"]]
        if "dtype" in entry:
            dtype = plain_type(entry["dtype"])
            stored = np.frombuffer(stored.tobytes(), dtype=dtype).reshape([int(n) for n in entry["shape"]])
        array = stored.copy()
        return array.T if entry["order"] == "F" else array

    def instance(self, content: Json) -> Any:
        """An instance of a class on the list, made without its constructor."""
        name, fields = content
        kind = self.known.class_called(name)
        state = {attribute: self.value(entry) for attribute, entry in fields.items()}
        made: Any = object.__new__(kind)
        if name in self.known.plugins or issubclass(kind, torch.nn.Module):
            restore = getattr(made, "__setstate__", None)
            vars(made).update(state) if restore is None else restore(state)
            return made
        for attribute, value in completed_state(kind, state).items():
            object.__setattr__(made, attribute, value)
        return made

    def record(self, content: Json) -> Any:
        """A tuple of a class on the list, such as a named one."""
        name, entries = content
        kind = self.known.class_called(name)
        values = self.values(entries)
        if not issubclass(kind, tuple) or len(values) != len(getattr(kind, "_fields", values)):
            raise ModelFileError(f"{name} is no tuple of {len(values)} entries.")
        return tuple.__new__(kind, values)


def completed_state(kind: type, state: Node) -> Node:
    """The state with defaults for arguments that it lacks, because an older version did not have them.

    A state is refused if it has attributes that the class does not have, or that would hide its methods.
    """
    defaults = _defaults(kind)
    state = {**{name: make() for name, make in defaults.items() if name not in state and make is not None}, **state}
    if dataclasses.is_dataclass(kind):
        wrong = set(defaults) ^ set(state)
    else:
        hidden = {name for name in state if _is_code(getattr(kind, name, None))}
        wrong = (set(defaults) - set(state)) | (hidden - set(defaults)) | {n for n in state if not n.isidentifier()}
    if wrong:
        raise ModelFileError(
            f"The state of a {kind.__name__} lacks or has too much: {', '.join(sorted(wrong))[:200]}. The file was "
            "written by another version of the library, or by none; `representer describe` says which one."
        )
    return state


def _defaults(kind: type) -> dict[str, Callable[[], Any] | None]:
    """The attributes that a class needs, each with a function that makes its default, or None without a default."""
    makers: dict[str, Callable[[], Any] | None] = {}
    if dataclasses.is_dataclass(kind):
        for field in dataclasses.fields(kind):
            plain = None if field.default is dataclasses.MISSING else partial(_itself, field.default)
            makers[field.name] = plain if field.default_factory is dataclasses.MISSING else field.default_factory
    elif hasattr(kind, "get_params"):  # values and learners store the arguments of their constructors
        for name, parameter in inspect.signature(kind).parameters.items():
            empty = parameter.default is inspect.Parameter.empty
            makers[name] = None if empty else partial(copy.deepcopy, parameter.default)
    return makers


def _itself(value: object) -> Any:
    return value


def _is_code(attribute: object) -> bool:
    """Is an attribute of a class a method or a property?"""
    return callable(attribute) or isinstance(attribute, property | cached_property)


def plain_type(text: object) -> np.dtype:
    """A NumPy type of fixed size, without objects."""
    dtype = np.dtype(text) if isinstance(text, str) else None
    if dtype is None or dtype.hasobject or dtype.names is not None or not dtype.itemsize:
        raise ModelFileError(f"The state holds an array of the type {text!r}.")
    return dtype


def _sparse_rows(reader: Reader, content: Json) -> Any:
    name, shape, *arrays = content
    data, indices, indptr = (reader.array(entry) for entry in arrays)
    rows = SPARSE[name]((data, indices, indptr), shape=tuple(int(n) for n in shape))
    rows.check_format(full_check=True)
    return rows


def _objects(reader: Reader, content: Json) -> np.ndarray:
    shape, entries = content
    values = reader.values(entries)
    array = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        array[i] = value
    return array.reshape([int(n) for n in shape])


def _random_generator(reader: Reader, content: Json) -> np.random.RandomState:
    name, keys, *rest = content
    generator = np.random.RandomState(0)
    generator.set_state((str(name), reader.array(keys), *map(reader.value, rest)))
    return generator


def _networkx_graph(reader: Reader, content: Json) -> Any:
    import networkx

    directed, attributes, nodes, edges = content
    graph = networkx.DiGraph() if directed else networkx.Graph()
    graph.graph.update(reader.value(attributes))
    graph.add_nodes_from(reader.value(nodes))
    graph.add_edges_from(reader.value(edges))
    return graph


def _type_called(reader: Reader, name: Json) -> type:
    return PLAIN_TYPES[name] if name in PLAIN_TYPES else reader.known.class_called(name)


def _parameter(reader: Reader, content: Json) -> torch.nn.Parameter:
    entry, learned = content
    return torch.nn.Parameter(torch.from_numpy(reader.array(entry)), requires_grad=bool(learned))


def _pairs(reader: Reader, content: Json) -> list[tuple[Any, Any]]:
    return [(reader.value(key), reader.value(value)) for key, value in content]


MAKERS: dict[str, Callable[[Reader, Any], Any]] = {
    "node": Reader.node,
    "float": lambda reader, text: {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[text],
    "tuple": lambda reader, content: tuple(reader.values(content)),
    "size": lambda reader, content: torch.Size([int(n) for n in content]),
    "bytes": lambda reader, text: base64.b64decode(text, validate=True),
    "complex": lambda reader, content: complex(*map(float, content)),
    "slice": lambda reader, content: slice(*reader.values(content)),
    "range": lambda reader, content: range(*map(int, content)),
    "torch type": lambda reader, name: TENSOR_TYPES[name],
    "absent": lambda reader, content: ABSENT,
    "date": lambda reader, text: date.fromisoformat(text),
    "moment": lambda reader, text: datetime.fromisoformat(text),
    "device": lambda reader, name: torch.device(name),
    "list": Reader.values,
    "dict": lambda reader, content: dict(_pairs(reader, content)),
    "ordered": lambda reader, content: OrderedDict(_pairs(reader, content)),
    "set": lambda reader, content: set(reader.values(content)),
    "frozenset": lambda reader, content: frozenset(reader.values(content)),
    "array": Reader.array,
    "objects": _objects,
    "tensor": lambda reader, entry: torch.from_numpy(reader.array(entry)),
    "parameter": _parameter,
    "scalar": lambda reader, entry: reader.array(entry)[()],
    "dtype": lambda reader, text: plain_type(text),
    "sparse": _sparse_rows,
    "random state": _random_generator,
    "type": _type_called,
    "function": lambda reader, name: reader.known.function_called(name),
    "record": Reader.record,
    "molecule": molecule_record,
    "network": _networkx_graph,
    "instance": Reader.instance,
}
