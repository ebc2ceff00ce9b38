"""The relevance of columns for a learner's answers, and the effects of changes of an input on a function.

Changes are gradients for vectors, and removals of parts of objects and of columns.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.functions import Function, function_network
from representer.kernels import Descriptors, Graph, Kernel, Molecule, Stack, as_graph, is_frame, is_graph, is_molecule
from representer.linalg import by_rows
from representer.operators import Decomposable, OperatorKernel, Representation
from representer.samples import Data, Records, as_records, evenly_spaced, plain
from representer.values import Value

# Up to FEW_COLUMNS columns Shapley values are sums over all sets of columns; above, they are means over ORDERS orders,
# half of them the reverse of the others.
FEW_COLUMNS, ORDERS = 8, 32
# Numbers that the gradient of a sum over anchors keeps for each of the anchors and coefficients, and how many times as
# many for each feature of an explicit map.
GRADIENT_NUMBERS, FEATURE_NUMBERS = 2, 4
# The number of samples that stand for unknown columns.
BACKGROUND = 20


def sensitivities(
    function: Function, X: Data, kernel: Kernel | OperatorKernel | Stack, how: Representation
) -> np.ndarray | list[np.ndarray]:
    """The gradients ∂f/∂x (n, d, p) at vectors; for objects, the effects (parts, p) of the parts of each."""
    if kernel.domain == "vectors" and isinstance(X, np.ndarray):
        network, points = function_network(function), how.tensor(X)
        return gradients(network, points, network_bytes(network, points))
    return _of_objects(function, X, kernel)


def part_effects(
    function: Function, X: Data, kernel: Kernel | OperatorKernel | Stack, fitted: Data
) -> tuple[tuple[np.ndarray, ...], tuple[str, ...] | None, np.ndarray | None]:
    """The effects (parts, p) of the parts of each input; for columns also their names, and the mean (p,).

    ``fitted`` are the training inputs.
    """
    if not isinstance(X, np.ndarray | Records) or kernel.domain == "gram":
        return tuple(_of_objects(function, X, kernel)), None, None
    if not isinstance(fitted, np.ndarray | Records):
        raise ValueError(
            "parts=True compares columns with those of training samples, which this model has not kept. Fit it in "
            "memory, or ask sensitivity(X)."
        )
    shares = column_shares(lambda points: plain(function(points)), X, fitted)
    columns = list(X.columns) if isinstance(X, Records) else range(shares.shape[1])
    return tuple(shares), tuple(map(str, columns)), plain(function(background(fitted))).mean(0)


def _of_objects(function: Function, X: Data, kernel: Kernel | OperatorKernel | Stack) -> list[np.ndarray]:
    """The effects (parts, p) of the parts of each object."""
    if isinstance(X, Records):
        raise ValueError(
            "sensitivity(X) is for vectors, strings, molecules and graphs; these are records. Ask "
            "explain(X, parts=True), which says what each column adds."
        )
    molecules, items = reads_molecules(kernel), list(X)
    without = [without_parts(item, molecules=molecules) for item in items]
    if kernel.domain == "gram" or any(rest is None for rest in without):
        raise ValueError(
            "What parts of an input add is known of dense vectors, strings, molecules and graphs; these "
            f"inputs are {kernel.domain}. Ask explain(X), which says what each training sample contributes."
        )
    pairs = zip(items, without, strict=True)
    return [removal_effects(lambda points: plain(function(points)), item, rest or []) for item, rest in pairs]


def gradients(function: Callable[[Tensor], Tensor], X: Tensor, bytes_per_row: int = 0) -> np.ndarray:
    """The gradients ∂f_j/∂x (n, d, p) at vectors (n, d), by automatic differentiation in blocks of rows.

    A row of f must depend on the same row of X only. What its gradient keeps for it takes ``bytes_per_row``.

    Examples
    --------
    >>> import torch
    >>> from representer.inspection.relevance import gradients
    >>> gradients(lambda X: X**2, torch.tensor([[3.0], [4.0]])).tolist()
    [[[6.0]], [[8.0]]]
    """

    def of_rows(rows: slice) -> Tensor:
        points = X[rows].detach().clone().requires_grad_()
        values = function(points)
        columns = [torch.autograd.grad(v.sum(), points, retain_graph=True)[0] for v in values.unbind(1)]
        return torch.stack(columns, -1).flatten(1)

    return plain(by_rows(of_rows, len(X), bytes_per_row)).reshape(*X.shape, -1)


def network_bytes(network: torch.nn.Module, X: Tensor) -> int:
    """What the gradient of a network keeps for a row of X: a few numbers for each anchor, landmark or feature.

    Of kernels whose outputs are coupled it keeps a matrix for each of them.
    """
    numbers = 0
    for module in network.modules():
        tensors = [t for t in (*module.parameters(recurse=False), *module.buffers(recurse=False)) if t.ndim]
        terms = sum(map(len, tensors)) + FEATURE_NUMBERS * getattr(getattr(module, "features", None), "n_features", 0)
        coupled = any(not isinstance(kernel, Decomposable) for kernel in getattr(module, "kernels", ()))
        numbers += terms * max(t.shape[-1] for t in tensors) ** 2 if coupled else terms
    return GRADIENT_NUMBERS * numbers * X.element_size()


# -- parts of objects -------------------------------------------------------------------------------------------------
def removal_effects(answer: Callable[[Sequence[Any]], np.ndarray], item: Any, without: Sequence[Any]) -> np.ndarray:
    """The effects f(x) − f(x without part i) of all parts of x, (parts,) or (parts, p).

    Examples
    --------
    >>> import numpy as np
    >>> from representer.inspection.relevance import characters_removed, removal_effects
    >>> def count(texts):
    ...     return np.array([text.count("a") for text in texts])
    >>> removal_effects(count, "banana", characters_removed("banana")).tolist()
    [0, 1, 0, 1, 0, 1]
    """
    values = answer([item, *without])
    return values[0] - values[1:]


def characters_removed(text: str) -> list[str]:
    """The texts that lack one character of a text each."""
    return [text[:i] + text[i + 1 :] for i in range(len(text))]


def atoms_masked(molecule: Any) -> list[Any]:
    """The molecules that have an unknown atom (``*``) in place of one atom of a molecule, in the same form.

    Such a change is local: it affects bits of a fingerprint whose neighbourhoods hold the atom, for instance. Without
    the atom, the molecule would fall apart.

    Examples
    --------
    >>> from representer.inspection.relevance import atoms_masked
    >>> atoms_masked("CCO")
    ['*CO', 'C*O', '*CC']
    """
    from rdkit import Chem

    whole = Chem.MolFromSmiles(molecule) if isinstance(molecule, str) else Chem.Mol(molecule)
    Chem.Kekulize(whole, clearAromaticFlags=True)  # a ring with an unknown atom is not aromatic
    masked = []
    for number in range(whole.GetNumAtoms()):
        changed = Chem.RWMol(whole)
        atom = changed.GetAtomWithIdx(number)
        atom.SetAtomicNum(0)
        atom.SetFormalCharge(0)
        atom.SetNumExplicitHs(0)
        atom.SetNoImplicit(True)
        rest = changed.GetMol()
        Chem.SanitizeMol(rest)
        masked.append(Chem.MolToSmiles(rest) if isinstance(molecule, str) else rest)
    return masked


def nodes_removed(item: Any) -> list[Graph]:
    """The graphs that lack one node of a graph, with its edges; a graph of one node stays as it is.

    Examples
    --------
    >>> from representer.kernels import Graph
    >>> from representer.inspection.relevance import nodes_removed
    >>> nodes_removed(Graph([(0, 1), (1, 2)], node_labels=["C", "C", "O"]))[0]
    Graph([(0, 1)], node_labels=['C', 'O'])
    """
    graph = as_graph(item)
    smaller = []
    for node in range(graph.n_nodes if graph.n_nodes > 1 else 0):
        others = [i for i, ends in enumerate(graph.edges) if node not in ends]
        edges = [tuple(int(end) - (end > node) for end in graph.edges[i]) for i in others]
        labels = [label for i, label in enumerate(graph.node_labels) if i != node]
        smaller.append(Graph(edges, labels, [graph.edge_labels[i] for i in others]))
    return smaller or [graph]


def without_parts(item: Any, *, molecules: bool) -> list[Any] | None:
    """The objects that lack one atom, node or character of an object each; None for objects without such parts."""
    if is_molecule(item) or (molecules and isinstance(item, str)):
        return atoms_masked(item)
    if isinstance(item, str):
        return characters_removed(item)
    return nodes_removed(item) if is_graph(item) else None


def reads_molecules(kernel: Any) -> bool:
    """Does a kernel, or a kernel inside it, read SMILES strings as molecules?"""
    return has_inside(kernel, Molecule) or has_inside(kernel, Descriptors)


def has_inside(kernel: Any, kind: type) -> bool:
    """Is a kernel, or a kernel inside it, of this class?"""
    if isinstance(kernel, kind):
        return True
    inside = [child for _, child in kernel._children()] if isinstance(kernel, Value) else []
    return any(has_inside(child, kind) for child in inside)


# -- columns ----------------------------------------------------------------------------------------------------------
def background(samples: Data) -> Data:
    """A few evenly spaced samples, which stand for unknown columns."""
    rows = np.unique(np.linspace(0, len(samples) - 1, min(BACKGROUND, len(samples))).astype(int))
    return samples.take(rows) if isinstance(samples, Records) else samples[rows]


def column_shares(answer: Callable[[Any], np.ndarray], X: Data, samples: Data) -> np.ndarray:
    """The Shapley values (q, d, p) of the columns of inputs, which with the mean over the samples sum to f(x).

    The value v(S) of a set S of columns is the mean of f at x with all other columns taken from samples. The Shapley
    value of a column is the mean of its increments of v over all orders in which columns become known. If f is a sum of
    functions of one column each, it is the function minus its mean; products are shared among their columns.

    Parameters
    ----------
    answer : callable
        f, from samples to an array (n,) or (n, p).
    X, samples : array (q, d) and (n, d), or Records
        Inputs, and samples, of which a few are used.

    Returns
    -------
    shares : ndarray of shape (q, d, p)
        The Shapley values.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.inspection.relevance import column_shares
    >>> samples = np.array([[-1.0, -1.0], [1.0, 1.0]])
    >>> column_shares(lambda X: 3 * X[:, 0] + X[:, 0] * X[:, 1], np.array([[2.0, 4.0]]), samples)[..., 0].tolist()
    [[9.5, 3.5]]
    """
    names = list(X.columns) if isinstance(X, Records) else list(range(X.shape[1]))
    samples = background(samples)

    def value(columns: tuple[int, ...]) -> np.ndarray:
        """The value v(S) (q, p), the mean answer if only the columns S are known."""
        mixed = _mixed(X, samples, {names[c] for c in columns})
        values = np.asarray(answer(mixed), dtype=np.float64)
        return values.reshape(len(X), len(samples), -1).mean(1)

    d = len(names)
    return _exact_shares(value, d) if d <= FEW_COLUMNS else _sampled_shares(value, d)


def _exact_shares(value: Callable[[tuple[int, ...]], np.ndarray], d: int) -> np.ndarray:
    """The sums Σ_S |S|! (d − |S| − 1)! / d! (v(S ∪ c) − v(S)) over all sets S without c, for each column c."""
    sets = [columns for size in range(d + 1) for columns in itertools.combinations(range(d), size)]
    values = {columns: value(columns) for columns in sets}
    shares = []
    for c in range(d):
        increments = [
            math.factorial(len(S)) * math.factorial(d - len(S) - 1) * (values[tuple(sorted((*S, c)))] - values[S])
            for S in sets
            if c not in S
        ]
        shares.append(sum(increments) / math.factorial(d))
    return np.stack(shares, 1)


def _sampled_shares(value: Callable[[tuple[int, ...]], np.ndarray], d: int) -> np.ndarray:
    """The mean increments over random orders and their reverses, which sum to v(all) − v(none)."""
    rng = np.random.default_rng(0)
    orders = [rng.permutation(d) for _ in range(ORDERS // 2)]
    nothing, everything = value(()), value(tuple(range(d)))
    total = np.zeros((len(nothing), d, nothing.shape[1]))
    for order in [*orders, *(order[::-1] for order in orders)]:
        before = nothing
        for i, c in enumerate(order):
            after = everything if i == d - 1 else value(tuple(order[: i + 1]))
            total[:, c] += after - before
            before = after
    return total / (2 * len(orders))


def _mixed(X: Data, samples: Data, names: set[Any]) -> Data:
    """All pairs (q·b) of inputs and samples, mixed: columns with these names are the input's, others the sample's."""
    q, b = len(X), len(samples)
    inputs, others = np.repeat(np.arange(q), b), np.tile(np.arange(b), q)
    if isinstance(X, Records):
        of_inputs, of_samples = X.take(inputs).columns, samples.take(others).columns
        return Records({name: (of_inputs if name in names else of_samples)[name] for name in of_inputs})
    mixed = samples[others].copy()
    columns = sorted(names)
    mixed[:, columns] = X[inputs][:, columns]
    return mixed


# The number of samples at which a function is evaluated, and of others that lend an entry to each of them.
ASKED, LENT = 200, 8


def total_effects(answer: Callable[[Any], np.ndarray], X: Data) -> np.ndarray:
    """The total effects E‖f(x) − f(x′)‖² / (2 E‖f(x) − E f‖²) of columns; x′ is x with that entry of another sample.

    It is Sobol's total effect in Jansen's form, for samples whose columns are exchanged independently: the share of the
    variance of f that is lost if the column is unknown, which is 0 if f does not depend on it. Interactions count for
    each of their columns, so that the sum may exceed one. The effects on a constant function are 0.

    Parameters
    ----------
    answer : callable
        f, from samples to an array (n,) or (n, p).
    X : array (n, d) or Records
        Samples, of which a few hundred are used.

    Returns
    -------
    effects : ndarray of shape (d,)
        The total effect of each column.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.inspection.relevance import total_effects
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> total_effects(lambda X: 2.0 * X[:, 0], X).round(1).tolist()
    [1.0, 0.0, 0.0]
    """
    rows = evenly_spaced(len(X), ASKED)
    X = X.take(rows) if isinstance(X, Records) else X[rows]
    columns = list(X.columns) if isinstance(X, Records) else list(range(X.shape[1]))
    values = _as_matrix(answer(X))
    spread = float(((values - values.mean(0)) ** 2).sum(1).mean())
    if not spread > 0:
        return np.zeros(len(columns))
    # Steps around the circle of samples: the same for every column, and no sample lends to itself.
    steps = sorted({1 + (len(rows) - 1) * k // LENT for k in range(LENT)})
    changes = [[values - _as_matrix(answer(_lent(X, name, step))) for step in steps] for name in columns]
    return np.array([np.mean([(change**2).sum(1).mean() for change in column]) for column in changes]) / (2.0 * spread)


def columns_to_ask(X: Data) -> np.ndarray | Records:
    """The training samples of a model as columns; an AttributeError if they have none."""
    X = as_records(X) if isinstance(X, Records) or is_frame(X) else plain(X)
    if isinstance(X, Records) or (isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "biuf"):
        return X
    raise AttributeError(
        "relevance_ is one of columns, and this model has no columns of its training samples: they are objects, a Gram "
        "matrix, or were not kept (fits on Dask, partial_fit)."
    )


def _as_matrix(values: Any) -> np.ndarray:
    return np.asarray(values, dtype=np.float64).reshape(len(values), -1)


def _lent(X: Data, name: object, step: int) -> Data:
    """The samples with the entries of one column moved ``step`` samples on."""
    rows = np.roll(np.arange(len(X)), step)
    if isinstance(X, Records):
        return Records({**X.columns, name: X.take(rows).columns[name]})
    changed = X.copy()
    changed[:, name] = X[rows, name]
    return changed
