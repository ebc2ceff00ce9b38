"""Batteries of tests for users' kernels; a failure is an AssertionError that names the property that does not hold."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Sequence

import numpy as np
import torch
from sklearn.base import clone
from torch import Tensor

import representer.kernels
from representer.kernels import Kernel
from representer.operators import OperatorKernel
from representer.samples import Data, count
from representer.systems import RidgeData, factor_system
from representer.values import Packing, Value, all_values, same

# A derivative is checked along this many directions: all axes if there are no more of them.
MAX_DIRECTIONS = 12


def check_kernel(kernel: Kernel, X: Data, Y: Data | None = None) -> None:
    """Test that a kernel keeps the contract of ``representer.kernels.Kernel`` on these data.

    Gram matrices are symmetric, positive semi-definite and consistent with each other (blocks, diagonal, order of the
    samples); the kernel is a value (clone, equality, pickle, ``repr``, parameters) and changes neither itself nor its
    data; gradients in every hyperparameter, and in X if it takes vectors, agree with finite differences; batches of
    data and of hyperparameters agree with a loop; float32 stays float32.

    Parameters
    ----------
    kernel : Kernel
        Its words (``"median"`` …) are resolved on X.
    X : data
        At least three samples of the kind that the kernel takes, in general position: ties in the data hide mistakes,
        and finite differences fail across the kinks of a kernel.
    Y : data, optional
        More samples, for k(X, Y).

    Raises
    ------
    AssertionError
        A property does not hold; the message names it and the size of the error.

    Examples
    --------
    >>> from representer.kernels import Gaussian, Linear
    >>> from representer.testing import check_kernel
    >>> check_kernel(0.5 * Gaussian("ard") + Linear(), [[0.0, 1.0], [2.0, 0.5], [1.0, 3.0]])
    """
    before, written = copy.deepcopy((X, Y)), clone(kernel)
    _check_value(kernel)
    resolved = kernel.resolve(X)
    data = resolved.prepare(X)
    others = _take(resolved, data, range(count(data) // 2 + 1)) if Y is None else resolved.prepare(Y)
    checks = [
        _check_gram,
        _check_blocks,
        _check_cross,
        _check_hyperparameter_gradients,
        _check_hyperparameter_batches,
    ]
    if kernel.domain == "vectors" and isinstance(data, Tensor) and data.ndim == 2:
        checks += [_check_input_gradients, _check_input_batches, _check_precision]
    for check in checks:
        check(resolved, data, others)
        assert same(before, (X, Y)), f"{kernel!r} has changed its input data."
    _close(kernel(X), resolved(data), "k(X) equals k.resolve(X)(X)")
    assert kernel == written, f"The kernel has changed: {written!r} became {kernel!r}."


# -- a kernel is a value ----------------------------------------------------------------------------------------------
def _check_value(value: Value) -> None:
    _check_parameters(value)
    copied = clone(value)
    assert copied is not value, f"clone({value!r}) is the object itself."
    assert copied == value, f"clone({value!r}) is different: {copied!r}."
    assert hash(copied) == hash(value), f"{value!r} and its clone are equal, but their hashes are not."
    assert value != object(), f"{value!r} equals an unrelated object."
    try:
        pickled = pickle.dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError):  # a lambda or a local function cannot be pickled
        assert _holds_code(value), f"{value!r} cannot be pickled."
    else:
        assert pickle.loads(pickled) == value, f"{value!r} changes when it is pickled."
    namespace = {**vars(representer.kernels), **{type(v).__name__: type(v) for v in all_values(value)}}
    try:
        evaluated = eval(repr(value), namespace)
    except Exception as error:
        assert _holds_code(value), f"repr gives {value!r}, which is not code that makes the kernel ({error})."
    else:
        assert evaluated == value or _holds_code(value), (
            f"repr gives {value!r}, which evaluates to something else: {evaluated!r}."
        )


def _holds_code(value: Value) -> bool:
    """Does a value hold a function or a module, which may have no name by which it is found again?"""
    arguments = [argument for v in all_values(value) for argument in vars(v).values()]
    items = [i for a in arguments for i in (a if isinstance(a, list | tuple) else [a])]
    return any(callable(item) and not isinstance(item, Kernel) for item in items)


def _check_parameters(value: Value) -> None:
    arguments = value.get_params(deep=False)
    rebuilt = type(value)(**arguments)
    assert rebuilt == value, f"{value!r} is not made again from its get_params: {rebuilt!r}."
    deep = value.get_params()
    for name, argument in deep.items():
        assert same(clone(value).set_params(**{name: argument}).get_params()[name], argument), (
            f"set_params({name}=…) of {value!r} does not set what get_params gives."
        )
    try:
        clone(value).set_params(no_such_parameter=1)
    except ValueError:
        return
    raise AssertionError(f"set_params of {value!r} accepts a parameter that does not exist.")


# -- Gram matrices ----------------------------------------------------------------------------------------------------
def _check_gram(kernel: Kernel, X: Data, Y: Data) -> None:
    gram = kernel(X).detach().clone()
    n = count(X)
    assert gram.shape == (n, n), f"k(X) of {n} samples has shape {tuple(gram.shape)}."
    assert bool(torch.isfinite(gram).all()), "k(X) has NaN or infinite entries."
    _close(gram, gram.mT, "k(X) is symmetric")
    values = torch.linalg.eigvalsh(gram)
    rounding = 100.0 * n * torch.finfo(gram.dtype).eps * values.abs().max()
    assert values[0] >= -rounding, f"k(X) is not positive semi-definite: it has the eigenvalue {values[0].item():.3g}."
    _close(kernel.diag(X), gram.diagonal(), "k.diag(X) equals the diagonal of k(X)")
    kernel(X).zero_()
    _close(kernel(X), gram, "k(X) is the same after the caller has overwritten the last one")


def _check_blocks(kernel: Kernel, X: Data, Y: Data) -> None:
    gram = kernel(X)
    n = count(X)
    order = np.random.default_rng(0).permutation(n)
    permuted = _take(kernel, X, order)
    _close(kernel(permuted), gram[order][:, order], "k(X) follows a permutation of the samples")
    half = order[: n // 2 + 1]
    _close(kernel(_take(kernel, X, half)), gram[half][:, half], "k of half of the samples is a block of k(X)")
    if kernel.domain != "gram":
        _close(kernel(permuted, _take(kernel, X, half)), gram[order][:, half], "k(X, Y) is a block of k(X)")


def _check_cross(kernel: Kernel, X: Data, Y: Data) -> None:
    if kernel.domain == "gram":
        _close(kernel(X, X), kernel(X), "k(X, X) equals k(X)")
        return
    cross = kernel(X, Y)
    assert cross.shape == (count(X), count(Y)), (
        f"k(X, Y) of {count(X)} and {count(Y)} samples has shape {tuple(cross.shape)}."
    )
    _close(kernel(Y, X), cross.mT, "k(Y, X) is the transpose of k(X, Y)")


# -- hyperparameters --------------------------------------------------------------------------------------------------
def _check_hyperparameter_gradients(kernel: Kernel, X: Data, Y: Data) -> None:
    for name in kernel.hyperparameter_values():
        pack, raw = kernel.packing([name])
        precision = _precision(kernel)

        def gram(point: Tensor, pack: Packing = pack) -> Tensor:
            return _weighted_sum(kernel.replace(pack.unpack(point))._gram(X, None))

        def diagonal(point: Tensor, pack: Packing = pack) -> Tensor:
            return _weighted_sum(kernel.replace(pack.unpack(point))._diag(X))

        check_gradient(gram, raw, f"{name} (in k(X) of {kernel!r})", precision=precision)
        check_gradient(diagonal, raw, f"{name} (in k.diag(X) of {kernel!r})", precision=precision)


def _check_hyperparameter_batches(kernel: Kernel, X: Data, Y: Data) -> None:
    pack, raw = kernel.packing(list(kernel.hyperparameter_values()))
    if not len(raw):
        return
    noise = torch.randn(3, len(raw), generator=torch.Generator().manual_seed(0), dtype=raw.dtype)
    members = raw + 0.1 * noise
    batched = kernel.replace(pack.unpack(members))
    kernels = [kernel.replace(pack.unpack(member)) for member in members]
    gram, other = batched._gram(X, None), None if kernel.domain == "gram" else batched._gram(X, Y)
    what = "with a batch of hyperparameters equals a loop over them"
    _close(gram, torch.stack([k._gram(X, None) for k in kernels]), f"k(X) {what}", kernel)
    _close(batched._diag(X), torch.stack([k._diag(X) for k in kernels]), f"k.diag(X) {what}", kernel)
    if other is not None:
        _close(other, torch.stack([k._gram(X, Y) for k in kernels]), f"k(X, Y) {what}", kernel)


# -- kernels on vectors -----------------------------------------------------------------------------------------------
def _check_input_gradients(kernel: Kernel, X: Tensor, Y: Tensor) -> None:
    precision = _precision(kernel)
    check_gradient(lambda Z: _weighted_sum(kernel._gram(Z, None)), X, "X in k(X)", precision=precision)
    check_gradient(lambda Z: _weighted_sum(kernel._gram(Z, Y)), X, "X in k(X, Y)", precision=precision)
    check_gradient(lambda Z: _weighted_sum(kernel._gram(X, Z)), Y, "Y in k(X, Y)", precision=precision)
    check_gradient(lambda Z: _weighted_sum(kernel._diag(Z)), X, "X in k.diag(X)", precision=precision)


def _check_input_batches(kernel: Kernel, X: Tensor, Y: Tensor) -> None:
    batch = torch.stack([X, 0.5 * X, X.flip(0)])
    what = "of a batch of data equals a loop over them"
    _close(kernel._gram(batch, None), torch.stack([kernel._gram(Z, None) for Z in batch]), f"k(X) {what}", kernel)
    _close(kernel._gram(batch, Y), torch.stack([kernel._gram(Z, Y) for Z in batch]), f"k(X, Y) {what}", kernel)
    _close(kernel._gram(Y, batch), torch.stack([kernel._gram(Y, Z) for Z in batch]), f"k(Y, X) {what}", kernel)
    _close(kernel._diag(batch), torch.stack([kernel._diag(Z) for Z in batch]), f"k.diag(X) {what}", kernel)


def _check_precision(kernel: Kernel, X: Tensor, Y: Tensor) -> None:
    single = kernel._gram(X.float(), None)
    assert single.dtype == torch.float32, f"k(X) of float32 data is {single.dtype}."
    assert kernel._diag(X.float()).dtype == torch.float32, "k.diag(X) of float32 data is not float32."
    assert kernel._gram(X.double(), Y.double()).dtype == torch.float64, "k(X, Y) of float64 data is not float64."
    scale = float(kernel._diag(X).abs().max())
    error = float((single.double() - kernel._gram(X.float().double(), None)).abs().max())
    assert error <= 1e-3 * scale, f"k(X) in float32 is off by {error:.2g} (entries up to {scale:.2g})."


# -- tools ------------------------------------------------------------------------------------------------------------
def check_gradient(
    function: Callable[[Tensor], Tensor], point: Tensor, what: str, *, precision: torch.dtype = torch.float64
) -> None:
    """Compare the derivative of a scalar function by autograd with central differences.

    ``precision`` is the least precision in which the function computes; it decides the step and the tolerance.

    Examples
    --------
    >>> import torch
    >>> from representer.testing import check_gradient
    >>> check_gradient(lambda x: (x**2).sum(), torch.tensor([1.0, 2.0], dtype=torch.float64), "x")
    """
    point = point.detach().clone().requires_grad_()
    value = function(point)
    gradient: Tensor | None = None
    if value.requires_grad:
        (gradient,) = torch.autograd.grad(value, point, allow_unused=True)
    gradient = torch.zeros_like(point) if gradient is None else gradient
    directions = torch.eye(point.numel(), dtype=point.dtype)
    if len(directions) > MAX_DIRECTIONS:
        generator = torch.Generator().manual_seed(0)
        directions = torch.randn(MAX_DIRECTIONS, point.numel(), generator=generator, dtype=point.dtype)
        directions /= directions.norm(dim=1, keepdim=True)
    eps = torch.finfo(precision).eps
    step = eps ** (1 / 3) * float(point.detach().abs().max().clamp(min=1.0))
    with torch.no_grad():
        ends = [
            (function(point + step * d.view_as(point)), function(point - step * d.view_as(point))) for d in directions
        ]
        numeric = torch.stack([(up - down) / (2.0 * step) for up, down in ends])
    scale = max(float(numeric.abs().max()), float(value.detach().abs()), 1e-8)
    error = float((directions @ gradient.reshape(-1) - numeric).abs().max())
    assert error <= 1e3 * eps ** (2 / 3) * scale, (
        f"The gradient in {what} disagrees with finite differences by {error:.2g} (derivatives up to "
        f"{float(numeric.abs().max()):.2g})"
        + ("." if value.requires_grad else ": it is cut off, so that autograd gives 0.")
    )


def _take(kernel: Kernel | OperatorKernel, X: Data, index: Sequence[int] | np.ndarray) -> Data:
    """The samples with these numbers of prepared data, which are a block of a Gram matrix."""
    rows = [int(i) for i in index]
    if kernel.domain == "gram":
        return X[rows][:, rows]
    return [X[i] for i in rows] if isinstance(X, list | tuple) else X[rows]


def _weighted_sum(matrix: Tensor) -> Tensor:
    """A linear functional of a matrix with fixed random weights, in which no symmetry hides a mistake."""
    weights = torch.randn(matrix.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return (weights.to(matrix) * matrix).sum()


def _precision(kernel: Kernel) -> torch.dtype:
    """The least precision among the hyperparameters, which is single for some modules."""
    kinds = {value.dtype for value in kernel.hyperparameter_values().values()}
    return torch.float32 if torch.float32 in kinds else torch.float64


def _close(actual: Tensor, expected: Tensor, what: str, kernel: Kernel | None = None) -> None:
    """Assert equality up to rounding, relative to the largest entry; a missing batch dimension is broadcast."""
    actual, expected = actual.detach().to(torch.float64), expected.detach().to(torch.float64)
    single = kernel is not None and _precision(kernel) == torch.float32
    try:
        error = float((actual - expected.clone()).abs().max())
        assert actual.expand_as(expected).shape == expected.shape
    except (RuntimeError, AssertionError):
        raise AssertionError(
            f"It does not hold that {what}: the shapes are {tuple(actual.shape)} and {tuple(expected.shape)}."
        ) from None
    scale = max(float(expected.abs().max()), float(actual.abs().max()), 1e-300)
    assert error <= (1e-4 if single else 1e-8) * scale, (
        f"It does not hold that {what}: the difference is {error:.2g} where entries are up to {scale:.2g}."
    )


# -- operator-valued kernels ------------------------------------------------------------------------------------------
def check_operator(kernel: OperatorKernel, X: Data, Y: Data | None = None, *, p: int = 2) -> None:
    """Test that an operator-valued kernel keeps the contract of ``OperatorKernel`` on these data.

    Its block matrix ``dense`` is symmetric and positive semi-definite; ``apply``, ``squared_norm``, ``diag``,
    ``diagonal_form`` and the ridge system are those of the block matrix; gradients in every hyperparameter, and in X if
    it takes vectors, agree with finite differences; it is a value and changes neither itself nor its data.

    Parameters
    ----------
    kernel : OperatorKernel
        Its words (``"median"`` …) are resolved on X; an operator that the targets decide must be resolved already.
    X, Y : data
        As for ``check_kernel``, which also describes the errors.
    p : int
        The number of outputs, if the kernel leaves it open.

    Examples
    --------
    >>> from representer.operators import CurlFree
    >>> from representer.testing import check_operator
    >>> check_operator(CurlFree("median"), [[0.0, 1.0], [2.0, 0.5], [1.0, 3.0]])
    """
    before, written = copy.deepcopy((X, Y)), clone(kernel)
    _check_value(kernel)
    resolved = kernel.resolve(X)
    data = resolved.prepare(X)
    others = _take(resolved, data, range(count(data) // 2 + 1)) if Y is None else resolved.prepare(Y)
    p = resolved.n_outputs(data) or p
    _check_block_matrix(resolved, data, others, p)
    _check_structure(resolved, data, p)
    for name in resolved.hyperparameter_values():
        pack, raw = resolved.packing([name])

        def score(point: Tensor, pack: Packing = pack) -> Tensor:
            return _all_routes(resolved.replace(pack.unpack(point)), data, others, p)

        check_gradient(score, raw, f"{name} of {kernel!r}")
    if kernel.domain == "vectors":
        check_gradient(lambda Z: _all_routes(resolved, Z, others, p), data, "X")
        check_gradient(lambda Z: _weighted_sum(resolved.dense(data, Z, p)), others, "Y")
        single = resolved.dense(data.float(), None, p)
        assert single.dtype == torch.float32, f"K(X) of float32 data is {single.dtype}."
    assert same(before, (X, Y)), f"{kernel!r} has changed its input data."
    assert kernel == written, f"The kernel has changed: {written!r} became {kernel!r}."


def _check_block_matrix(kernel: OperatorKernel, X: Data, Y: Data, p: int) -> None:
    block = kernel.dense(X, None, p).detach()
    n = count(X)
    assert block.shape == (n * p, n * p), f"K(X) has shape {tuple(block.shape)}, not {(n * p, n * p)}."
    _close(block, block.mT, "K(X) is symmetric")
    values = torch.linalg.eigvalsh(block)
    assert values[0] >= -1e-12 * n * p * values.abs().max(), (
        f"K(X) is not positive semi-definite: it has the eigenvalue {values[0].item():.3g}."
    )
    _close(kernel.diag(X, p).reshape(-1), block.diagonal(), "diag is the diagonal of K(X)")
    c = torch.randn(n, p, generator=torch.Generator().manual_seed(2), dtype=block.dtype)
    _close(kernel.apply(X, X, c).reshape(-1), block @ c.reshape(-1), "apply is the product with K(X)")
    _close(kernel.squared_norm(X, c), c.reshape(-1) @ block @ c.reshape(-1), "squared_norm is that of K(X)")
    if kernel.domain != "gram":
        cross = kernel.dense(Y, X, p)
        _close(kernel.dense(X, Y, p), cross.mT, "K(X, Y) is the transpose of K(Y, X)")
        _close(kernel.apply(Y, X, c).reshape(-1), cross @ c.reshape(-1), "apply is the product with K(Y, X)")


def _check_structure(kernel: OperatorKernel, X: Data, p: int) -> None:
    block = kernel.dense(X, None, p).detach()
    form = kernel.diagonal_form(p, block)
    if form is not None:
        terms = [torch.kron(k._gram(X, None), form.operator(t)) for t, k in enumerate(form.kernels)]
        _close(torch.stack(terms).sum(0), block, "diagonal_form is the block matrix")
    noise = torch.linspace(0.5, 1.0, count(X), dtype=block.dtype) * block.diagonal().mean()
    targets = torch.randn(count(X), p, generator=torch.Generator().manual_seed(3), dtype=block.dtype)
    weights = (1.0 / noise) / (1.0 / noise).mean()
    system = factor_system(RidgeData(kernel, X, targets, weights), float((weights * noise).mean() / count(X)))
    solved = system.coefficients().reshape(-1)
    ridge = block + torch.diag(noise.repeat_interleave(p))
    _close(ridge @ solved, targets.reshape(-1), "factor_system solves (K(X) + diag(noise)) C = Y")


def _all_routes(kernel: OperatorKernel, X: Data, Y: Data, p: int) -> Tensor:
    """A number that depends on all methods of a kernel."""
    c = torch.randn(count(X), p, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    total = _weighted_sum(kernel.dense(X, None, p)) + _weighted_sum(kernel.diag(X, p))
    total = total + _weighted_sum(kernel.apply(X, X, c)) + kernel.squared_norm(X, c)
    return total if kernel.domain == "gram" else total + _weighted_sum(kernel.apply(Y, X, c))
