"""Output operators A, operator-valued kernels K(x, y) ∈ L(ℝᵖ), and the diagonal form of the separable ones."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from representer.kernels import FAMILIES, Domain, Kernel, Stack, Wrapped, as_kernel, prepare_for_each, unscaled, views
from representer.linalg import Eigenpairs, factorize, shifted
from representer.samples import Data, as_vectors, count
from representer.values import (
    Hyperparameter,
    NonNegative,
    Positive,
    SemiDefinite,
    Value,
    Word,
    argument_repr,
    is_count,
    map_children,
    number,
)


class Operator(Value, ABC):
    """A positive semi-definite operator on the output space ℝᵖ."""

    diagonal: ClassVar[bool] = False  # are the outputs uncoupled?
    needs_gram: ClassVar[bool] = False  # does ``resolve`` need the inputs' Gram matrix?

    @abstractmethod
    def as_matrix(self, p: int, like: Tensor) -> Tensor:
        """The p × p matrix, in the dtype and on the device of ``like``."""

    def spectrum(self, p: int, like: Tensor) -> Eigenpairs:
        """Eigenvalues and eigenvectors; a diagonal operator keeps the outputs in their order."""
        matrix = self.as_matrix(p, like)
        if self.diagonal:
            return Eigenpairs(torch.eye(p, dtype=like.dtype, device=like.device), matrix.diagonal())
        return clipped_spectrum(matrix)

    def resolve(self, Y: Tensor, gram: Tensor | None) -> Operator:
        """The operator that the targets Y (n, p) and the inputs' Gram matrix decide; a fixed operator is itself."""
        self.check_hyperparameters()
        self.as_matrix(Y.shape[-1], Y)  # raises if the sizes do not match
        return self


def clipped_spectrum(matrix: Tensor) -> Eigenpairs:
    """Eigenvalues and eigenvectors of an operator; negative eigenvalues, which come from rounding, become 0.

    Examples
    --------
    >>> import torch
    >>> from representer.operators.base import clipped_spectrum
    >>> clipped_spectrum(torch.diag(torch.tensor([2.0, -1e-9]))).values.tolist()
    [0.0, 2.0]
    """
    values, vectors = torch.linalg.eigh(matrix)
    return Eigenpairs(vectors, values.clamp(min=0.0))


class Identity(Operator):
    """A = I: the outputs share a kernel and are not coupled otherwise.

    Examples
    --------
    >>> from representer.kernels import Gaussian
    >>> from representer.operators import Decomposable, Identity
    >>> Decomposable(Gaussian(1.0))._operator == Identity()
    True
    """

    diagonal = True

    def as_matrix(self, p: int, like: Tensor) -> Tensor:
        """The identity matrix (p, p)."""
        return torch.eye(p, dtype=like.dtype, device=like.device)


class Diagonal(Operator):
    """A = diag(weights): the regularisation of each output is alpha divided by its weight.

    Examples
    --------
    >>> import torch
    >>> from representer.operators import Diagonal
    >>> Diagonal([1.0, 0.5]).as_matrix(2, torch.zeros(1)).tolist()
    [[1.0, 0.0], [0.0, 0.5]]
    """

    diagonal = True
    hyperparameters: ClassVar[Mapping[str, Hyperparameter]] = {"weights": Hyperparameter(NonNegative())}

    def __init__(self, weights: Any):
        self.weights = weights

    def as_matrix(self, p: int, like: Tensor) -> Tensor:
        """The diagonal matrix (p, p) of the weights."""
        weights = number(self, "weights", like)
        if weights.shape != (p,):
            raise ValueError(
                f"Diagonal has {weights.numel()} weights (shape {tuple(weights.shape)}), but there are {p} outputs: "
                f"give one weight for each output, {p} in all."
            )
        return torch.diag(weights)


class Dense(Operator):
    """A is a fixed positive semi-definite matrix (p, p), which says how the outputs vary together.

    Examples
    --------
    >>> from representer.kernels import Gaussian
    >>> from representer.operators import Decomposable, Dense
    >>> Decomposable(Gaussian(1.0), Dense([[1.0, 0.9], [0.9, 1.0]])).get_params()["operator__matrix"]
    [[1.0, 0.9], [0.9, 1.0]]
    """

    hyperparameters: ClassVar[Mapping[str, Hyperparameter]] = {"matrix": Hyperparameter(SemiDefinite())}

    def __init__(self, matrix: Any):
        self.matrix = matrix

    def as_matrix(self, p: int, like: Tensor) -> Tensor:
        """The matrix (p, p), checked for its shape."""
        matrix = number(self, "matrix", like)
        if matrix.shape != (p, p):
            raise ValueError(f"Dense has a matrix of shape {tuple(matrix.shape)}, but there are {p} outputs.")
        return matrix


class DataDriven(Operator, ABC):
    """An operator that the training targets decide; ``resolve`` turns it into a Dense one."""

    def as_matrix(self, p: int, like: Tensor) -> Tensor:
        """Raise an error, because the operator has no matrix before ``resolve``."""
        raise ValueError(f"{self!r} has no matrix yet: the targets decide it. Call operator.resolve(Y, gram) first.")

    @abstractmethod
    def resolve(self, Y: Tensor, gram: Tensor | None) -> Dense:
        """The matrix that the targets decide."""


class Covariance(DataDriven):
    """A = (1/n) Σ y_i y_iᵀ, the empirical (uncentred) covariance operator of the outputs (Kadri et al., eq. 6).

    Examples
    --------
    >>> import torch
    >>> from representer.operators import Covariance
    >>> Covariance().resolve(torch.tensor([[2.0, 0.0], [2.0, 4.0]]), None)
    Dense(matrix=[[4.0, 4.0], [4.0, 8.0]])
    """

    def resolve(self, Y: Tensor, gram: Tensor | None) -> Dense:
        """The dense operator Yᵀ Y / n."""
        return Dense((Y.mT @ Y / len(Y)).cpu().numpy())


class ConditionalCovariance(DataDriven):
    """The covariance of the outputs given the inputs, C_YY − C_YX (C_XX + ε)⁻¹ C_XY (Kadri et al., eq. 7).

    On n samples it is (1/n) Yᵀ nε (K + nεI)⁻¹ Y.

    Parameters
    ----------
    epsilon : float or "auto"
        ε; in the limit ε → ∞ it is the covariance of the outputs. ``"auto"`` is for ``StructuredPredictor``, whose
        criterion compares multiples of the mean k(x, x).

    Examples
    --------
    >>> import torch
    >>> from representer.operators import ConditionalCovariance
    >>> Y = torch.tensor([[2.0, 0.0], [2.0, 4.0]])
    >>> A = ConditionalCovariance(epsilon=0.5).resolve(Y, gram=torch.eye(2))
    >>> A.matrix.round(4).tolist()
    [[2.0, 2.0], [2.0, 4.0]]
    """

    needs_gram = True
    hyperparameters: ClassVar[Mapping[str, Hyperparameter]] = {
        "epsilon": Hyperparameter(Positive(), {"auto": Word(lambda X: X.new_tensor(1e-2))}, scalar=True)
    }

    def __init__(self, epsilon: float | Literal["auto"] = 1e-2):
        self.epsilon = epsilon

    def resolve(self, Y: Tensor, gram: Tensor | None) -> Dense:
        """The dense operator (1/n) Yᵀ nε (K + nεI)⁻¹ Y of the targets Y and the inputs' Gram matrix K."""
        if gram is None:
            raise ValueError("ConditionalCovariance needs the inputs' Gram matrix: resolve(Y, gram).")
        if isinstance(self.epsilon, str) and self.epsilon == "auto":
            raise ValueError(
                f"{self!r} is chosen by the criterion of StructuredPredictor only. Give a number, such as "
                "ConditionalCovariance(1e-2)."
            )
        n = len(Y)
        shift = n * number(self, "epsilon", Y)
        half = factorize(lambda: shifted(gram, shift), name="The Gram matrix of the inputs").half_solve(Y)
        return Dense((half.mT @ half * (shift / n)).cpu().numpy())


class PrincipalComponents(DataDriven):
    """The projection on the leading eigenvectors of (1/n) Σ y_i y_iᵀ: kernel PCA of the outputs (Weston et al., 2003).

    Parameters
    ----------
    n_components : int or "auto"
        The number of eigenvectors; at most all of them. ``"auto"`` is for ``StructuredPredictor``, whose criterion
        chooses the number.

    Examples
    --------
    >>> import torch
    >>> from representer.operators import PrincipalComponents
    >>> PrincipalComponents(1).resolve(torch.tensor([[2.0, 0.0], [0.0, 4.0]]), None)
    Dense(matrix=[[0.0, 0.0], [0.0, 1.0]])
    """

    def __init__(self, n_components: int | Literal["auto"]):
        self.n_components = n_components

    def resolve(self, Y: Tensor, gram: Tensor | None) -> Dense:
        """The projection V Vᵀ on the leading eigenvectors V."""
        V = clipped_spectrum(Y.mT @ Y).vectors[:, -min(self.checked(), Y.shape[1]) :]
        return Dense((V @ V.mT).cpu().numpy())

    def checked(self) -> int:
        """The number of components, or an error if it is no positive integer."""
        if not is_count(self.n_components):
            raise ValueError(
                f"n_components of PrincipalComponents must be a positive integer; got {self.n_components!r}."
            )
        return int(self.n_components)


NAMES: dict[str, Operator] = {
    "kpca": PrincipalComponents("auto"),
    "covariance": Covariance(),
    "conditional_covariance": ConditionalCovariance("auto"),
}


def as_operator(operator: object, n_components: int | Literal["auto"] = "auto") -> Operator | None:
    """The operator that an operator or a name means; None is the identity, and ``"auto"`` is left to a criterion.

    Examples
    --------
    >>> from representer.operators import as_operator
    >>> as_operator("kpca", 3)
    PrincipalComponents(n_components=3)
    """
    if operator is None or isinstance(operator, Identity):
        return None
    if isinstance(operator, str) and operator in NAMES:
        return PrincipalComponents(n_components) if operator == "kpca" else NAMES[operator]
    if isinstance(operator, PrincipalComponents):
        rank = operator.n_components if operator.n_components == "auto" else operator.checked()
        if n_components not in ("auto", rank):
            raise ValueError(f"n_components={n_components!r} contradicts operator={operator!r}; give it once.")
        return PrincipalComponents(rank)
    if isinstance(operator, ConditionalCovariance):
        operator.check_hyperparameters()
    if isinstance(operator, Operator):
        return operator.__sklearn_clone__()
    raise ValueError(
        f"operator must be None, one of {', '.join(map(repr, NAMES))} or an object from representer.operators; got "
        f"{operator!r}."
    )


@dataclass(frozen=True)
class DiagonalForm:
    """K(x, y) = V diag_k(Σ_t w_tk k_t(x, y)) Vᵀ: in the coordinates Vᵀ y, every output has a scalar kernel of its own.

    Identity and diagonal operators, a dense operator (V its eigenvectors), a diagonal of different kernels, and sums
    of such kernels whose operators commute all have this form.
    """

    rotation: Tensor | None  # V (p, p); None means the outputs themselves
    kernels: tuple[Kernel, ...]
    weights: Tensor  # (number of kernels, p)

    def groups(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The distinct columns of the weights, each with the outputs that share it: one factorisation a group."""
        p = self.weights.shape[1]
        if p == 1 or self.weights.requires_grad:  # learned weights may move apart, even if they are equal now
            members = torch.arange(p)
        else:
            _, members = torch.unique(self.weights, dim=1, return_inverse=True)
        for g in range(int(members.max()) + 1):
            outputs = torch.nonzero(members == g)[:, 0]
            yield self.weights[:, outputs[0]], outputs

    def gram(self, weights: Tensor, X: Data, Y: Data | None = None) -> Tensor:
        """The Gram matrix Σ_t w_t k_t(X, Y) of the outputs with these weights."""
        total = None
        for kernel, weight in zip(self.kernels, weights, strict=True):
            if bool(weight != 0) or weight.requires_grad:
                term = kernel._gram(X, Y)
                term = term * weight if term.requires_grad or weight.requires_grad else term.mul_(weight)
                total = term if total is None else total + term
        return total if total is not None else self.kernels[0]._gram(X, Y) * 0.0

    def operator(self, t: int) -> Tensor:
        """The operator V diag(w_t) Vᵀ of the t-th kernel."""
        if self.rotation is None:
            return torch.diag(self.weights[t])
        return (self.rotation * self.weights[t]) @ self.rotation.mT

    def product(self, weights: Tensor, X: Data, Y: Data, coefficients: Tensor) -> Tensor:
        """The product Σ_t w_t k_t(X, Y) C, without the Gram matrix."""
        terms = [w * k._product(X, Y, coefficients) for k, w in zip(self.kernels, weights, strict=True) if w != 0]
        return torch.stack(terms).sum(0) if terms else coefficients.new_zeros(count(X), coefficients.shape[1])

    def diag(self, weights: Tensor, X: Data) -> Tensor:
        """The diagonal Σ_t w_t k_t(x_i, x_i) of the Gram matrix."""
        return sum((w * k._diag(X) for k, w in zip(self.kernels, weights, strict=True)), torch.zeros(()))


class OperatorKernel(Value, ABC):
    """A positive semi-definite kernel K(x, y) whose values are p × p matrices.

    ``dense`` is the definition that everything else must equal: rows and columns run over samples first, outputs
    second, so that Decomposable(k, A) is the Kronecker product k(X, Y) ⊗ A. All methods but ``prepare`` and ``resolve``
    take prepared data. ``representer.testing.check_operator`` tests a new one.
    """

    @property
    @abstractmethod
    def domain(self) -> Domain:
        """The kind of data that the kernel takes."""

    @abstractmethod
    def prepare(self, X: Data) -> Data:
        """The data, checked, in the form that the other methods take."""

    def resolve(self, X: Data) -> Self:
        """The kernel with words such as ``"median"`` replaced by the numbers that X gives them."""
        self.check_hyperparameters()
        return self._resolve(self.prepare(X))

    def _resolve(self, X: Data) -> Self:
        """The same as ``resolve`` for prepared data."""
        return self._rebuild(lambda name, argument: map_children(name, argument, lambda _, k: _resolved(k, X)))

    def n_outputs(self, X: Data) -> int | None:
        """The number of outputs that the kernel implies, or None if any number will do."""
        return None

    @abstractmethod
    def dense(self, X: Data, Y: Data | None, p: int) -> Tensor:
        """The (n·p) × (m·p) block matrix."""

    @abstractmethod
    def apply(self, X: Data, anchors: Data, coefficients: Tensor) -> Tensor:
        """Σ_j K(x_i, z_j) c_j (n, p), without the block matrix."""

    @abstractmethod
    def diag(self, X: Data, p: int) -> Tensor:
        """The diagonals of K(x_i, x_i), (n, p)."""

    def squared_norm(self, anchors: Data, coefficients: Tensor) -> Tensor:
        """The squared norm ‖f‖² = Σ_ij ⟨c_i, K(z_i, z_j) c_j⟩ of f = Σ_j K(·, z_j) c_j."""
        return (coefficients * self.apply(anchors, anchors, coefficients)).sum((-2, -1))

    def diagonal_form(self, p: int, like: Tensor) -> DiagonalForm | None:
        """The form in which the outputs are uncoupled, or None if the kernel has none."""
        return None

    def __add__(self, other: OperatorKernel) -> OperatorSum:
        return OperatorSum([self, other]) if isinstance(other, OperatorKernel) else NotImplemented


def _resolved(value: Value, X: Data) -> Value:
    """A kernel resolved on X; any other value as it is."""
    return value._resolve(X) if isinstance(value, Kernel | OperatorKernel) else value


def common_domain(
    owner: OperatorKernel, kernels: Sequence[Kernel | OperatorKernel], kind: type[Kernel | OperatorKernel]
) -> Domain:
    """The kind of data that all kernels inside another one take; an error if they disagree or are no kernels."""
    name = type(owner).__name__
    if not isinstance(kernels, list | tuple):
        raise ValueError(f"{name} takes a list of kernels; got {kernels!r}.")
    strangers = [kernel for kernel in kernels if not isinstance(kernel, kind)]
    if strangers or not kernels:
        room = "kernels" if kind is Kernel else "operators, where a scalar kernel k is Decomposable(k)"
        got = repr(strangers[0]) if strangers else "none"
        raise ValueError(f"{name} is made from one or more kernels; got {got}. See representer.{room}.")
    kinds = {kernel.domain for kernel in kernels}
    if len(kinds) > 1:
        raise ValueError(f"The kernels of {name} must take one kind of data; they take {sorted(kinds)}.")
    return kinds.pop()


class VectorOperatorKernel(OperatorKernel):
    """An operator-valued kernel on vectors, with an output for each coordinate."""

    @property
    def domain(self) -> Domain:
        """The kind of data: vectors."""
        return "vectors"

    def prepare(self, X: Data) -> Tensor:
        """The data as a floating tensor (n, d)."""
        return as_vectors(X)

    def n_outputs(self, X: Tensor) -> int:
        """The number of coordinates: there is an output for each."""
        return X.shape[-1]


class Decomposable(OperatorKernel):
    """K(x, y) = k(x, y) A.

    Parameters
    ----------
    kernel : Kernel
        The scalar kernel k.
    operator : Operator, optional
        A; the identity by default.

    Examples
    --------
    >>> from representer.kernels import Linear
    >>> from representer.operators import Decomposable, Dense
    >>> K = Decomposable(Linear(), Dense([[2.0, 1.0], [1.0, 2.0]]))
    >>> K.dense(K.prepare([[3.0]]), None, p=2).tolist()
    [[18.0, 9.0], [9.0, 18.0]]
    """

    def __init__(self, kernel: Kernel, operator: Operator | None = None):
        self.kernel = kernel
        self.operator = operator

    @property
    def _operator(self) -> Operator:
        """A, checked; None is the identity."""
        if self.operator is None:
            return Identity()
        if not isinstance(self.operator, Operator):
            raise ValueError(
                f"operator of Decomposable must be None or one of representer.operators; got "
                f"{argument_repr(self.operator)}. A matrix A is Dense(A)."
            )
        return self.operator

    @property
    def domain(self) -> Domain:
        """The kind of data that the scalar kernel takes."""
        return self.kernel.domain if isinstance(self.kernel, Kernel) else common_domain(self, [self.kernel], Kernel)

    def prepare(self, X: Data) -> Data:
        """The data, checked by the scalar kernel."""
        self.domain  # noqa: B018  it raises if k is no kernel
        return self.kernel.prepare(X)

    def dense(self, X: Data, Y: Data | None, p: int) -> Tensor:
        """The Kronecker product k(X, Y) ⊗ A."""
        gram = self.kernel._gram(X, Y)
        return torch.kron(gram, self._operator.as_matrix(p, gram))

    def apply(self, X: Data, anchors: Data, coefficients: Tensor) -> Tensor:
        """The product k(X, Z) C A for anchors Z and coefficients C."""
        return self.mixed(self.kernel._product(X, anchors, coefficients))

    def mixed(self, rows: Tensor) -> Tensor:
        """The product C A for rows C (..., p), which costs nothing for the identity."""
        operator = self._operator
        return rows if isinstance(operator, Identity) else rows @ operator.as_matrix(rows.shape[-1], rows)

    def diag(self, X: Data, p: int) -> Tensor:
        """The products k(x_i, x_i) A_jj."""
        diagonal = self.kernel._diag(X)
        if self.operator is None:
            return diagonal[:, None].repeat(1, p)
        return diagonal[:, None] * self._operator.as_matrix(p, diagonal).diagonal()

    def diagonal_form(self, p: int, like: Tensor) -> DiagonalForm:
        """The form in the eigenvectors of A, weighted by its eigenvalues and by the number that multiplies k."""
        kernel, factor = unscaled(self.kernel)
        if self.operator is None:
            return DiagonalForm(None, (kernel,), like.new_full((1, p), factor))
        spectrum = self._operator.spectrum(p, like)
        rotation = None if self._operator.diagonal else spectrum.vectors
        return DiagonalForm(rotation, (kernel,), factor * spectrum.values[None])


class Compound(OperatorKernel, ABC):
    """An operator-valued kernel made from several kernels on the same data.

    Objects that these kernels represent differently, such as a molecule and its graph, are prepared for each of them.
    """

    @property
    @abstractmethod
    def parts(self) -> Sequence[Kernel | OperatorKernel]:
        """The kernels inside, in order."""

    def prepare(self, X: Data) -> Data:
        """The data, checked by every kernel."""
        return prepare_for_each(self.parts, X, self.domain)  # the domain raises if the kinds differ

    def views(self, *data: Data) -> list[tuple[Data, ...]]:
        """For each kernel inside, the prepared collections in its representation."""
        return list(zip(*(views(X, len(self.parts)) for X in data), strict=True))

    def _resolve(self, X: Data) -> Self:
        resolved = iter([part._resolve(*view) for part, view in zip(self.parts, self.views(X), strict=True)])
        return self._rebuild(lambda name, argument: map_children(name, argument, lambda _, kernel: next(resolved)))

    def _of_views(self, kernels: Sequence[Kernel], i: int) -> Sequence[Kernel]:
        """Scalar kernels of the i-th kernel inside, made to take the data of the whole kernel."""
        if self.domain != "objects" or len(self.parts) == 1:
            return kernels
        return [_OfView(kernel, i, len(self.parts)) for kernel in kernels]


class _OfView(Wrapped):
    """A kernel that sees the i-th of n representations of each object."""

    def __init__(self, kernel: Kernel, index: int, number: int):
        self.kernel = kernel
        self.index = index
        self.number = number

    def _view(self, X: Data | None) -> Data:
        return views(X, self.number)[self.index]

    def prepare(self, X: Data) -> Data:
        """The data as they are: the whole kernel has prepared them."""
        return X

    def _gram(self, X: Data, Y: Data | None) -> Tensor:
        return self.kernel._gram(self._view(X), self._view(Y))

    def _diag(self, X: Data) -> Tensor:
        return self.kernel._diag(self._view(X))

    def _product(self, X: Data, Y: Data, coefficients: Tensor, middle: Tensor | None = None) -> Tensor:
        return self.kernel._product(self._view(X), self._view(Y), coefficients, middle)

    def __repr__(self) -> str:
        return repr(self.kernel)


def diagonal_blocks(grams: Tensor) -> Tensor:
    """The block matrix (n·p, m·p) whose blocks are diagonal, from the Gram matrices (n, m, p) of the outputs."""
    n, m, p = grams.shape
    return torch.diag_embed(grams).permute(0, 2, 1, 3).reshape(n * p, m * p)


class Separate(Compound):
    """K(x, y) = diag(k₁(x, y), …, k_p(x, y)): a scalar kernel of its own for each output.

    Examples
    --------
    >>> from representer.kernels import Constant, Linear
    >>> from representer.operators import Separate
    >>> K = Separate([Linear(), Constant(1.0)])
    >>> K.dense(K.prepare([[3.0]]), None, p=2).tolist()
    [[9.0, 0.0], [0.0, 1.0]]
    """

    def __init__(self, kernels: list[Kernel]):
        self.kernels = kernels

    @property
    def domain(self) -> Domain:
        """The kind of data that all kernels take."""
        return common_domain(self, self.kernels, Kernel)

    @property
    def parts(self) -> Sequence[Kernel]:
        """One kernel for each output, in order."""
        return self.kernels

    def n_outputs(self, X: Data) -> int:
        """The number of kernels: there is one for each output."""
        return len(self.kernels)

    def dense(self, X: Data, Y: Data | None, p: int) -> Tensor:
        """The block matrix, in which every block is diagonal."""
        grams = torch.stack([k._gram(*view) for k, view in zip(self.kernels, self.views(X, Y), strict=True)], -1)
        return diagonal_blocks(grams)

    def apply(self, X: Data, anchors: Data, coefficients: Tensor) -> Tensor:
        """The products of the outputs, each with its own kernel."""
        outputs = zip(self.kernels, self.views(X, anchors), strict=True)
        columns = [k._product(x, z, coefficients[:, j : j + 1]) for j, (k, (x, z)) in enumerate(outputs)]
        return torch.cat(columns, -1)

    def diag(self, X: Data, p: int) -> Tensor:
        """The diagonals k_j(x_i, x_i) of the kernels."""
        return torch.stack([k._diag(*view) for k, view in zip(self.kernels, self.views(X), strict=True)], -1)

    def diagonal_form(self, p: int, like: Tensor) -> DiagonalForm:
        """The kernel itself, which is diagonal."""
        kernels = tuple(view for i, kernel in enumerate(self.kernels) for view in self._of_views([kernel], i))
        return DiagonalForm(None, kernels, torch.eye(p, dtype=like.dtype, device=like.device))


class OperatorSum(Compound):
    """K₁(x, y) + K₂(x, y) + …, written ``K1 + K2 + …``.

    Examples
    --------
    >>> from representer.operators import CurlFree, DivergenceFree, OperatorSum
    >>> CurlFree(1.0) + DivergenceFree(2.0) == OperatorSum([CurlFree(1.0), DivergenceFree(2.0)])
    True
    """

    def __init__(self, terms: list[OperatorKernel]):
        self.terms = terms

    @property
    def domain(self) -> Domain:
        """The kind of data that all terms take."""
        return common_domain(self, self.terms, OperatorKernel)

    @property
    def parts(self) -> Sequence[OperatorKernel]:
        """The operator-valued kernels that are added."""
        return self.terms

    def n_outputs(self, X: Data) -> int | None:
        """The number of outputs on which the terms agree."""
        sizes = {size for term in self.terms if (size := term.n_outputs(X)) is not None}
        if len(sizes) > 1:
            raise ValueError(f"Terms of a sum imply different numbers of outputs: {sorted(sizes)}.")
        return sizes.pop() if sizes else None

    def dense(self, X: Data, Y: Data | None, p: int) -> Tensor:
        """The sum of the terms' matrices."""
        terms = zip(self.terms, self.views(X, Y), strict=True)
        return torch.stack([term.dense(x, y, p) for term, (x, y) in terms]).sum(0)

    def apply(self, X: Data, anchors: Data, coefficients: Tensor) -> Tensor:
        """The sum of Σ_j K(x_i, z_j) c_j over the terms."""
        terms = zip(self.terms, self.views(X, anchors), strict=True)
        return torch.stack([term.apply(x, z, coefficients) for term, (x, z) in terms]).sum(0)

    def diag(self, X: Data, p: int) -> Tensor:
        """The sum of the terms' diagonals."""
        return torch.stack([term.diag(x, p) for term, (x,) in zip(self.terms, self.views(X), strict=True)]).sum(0)

    def diagonal_form(self, p: int, like: Tensor) -> DiagonalForm | None:
        """The form by simultaneous diagonalisation, which exists if and only if the terms' operators commute."""
        forms = [form for term in self.terms if (form := term.diagonal_form(p, like)) is not None]
        if len(forms) < len(self.terms):
            return None
        kernels = tuple(kernel for i, form in enumerate(forms) for kernel in self._of_views(form.kernels, i))
        if all(form.rotation is None for form in forms):
            return DiagonalForm(None, kernels, torch.cat([form.weights for form in forms]))
        matrices = [form.operator(t) for form in forms for t in range(len(form.kernels))]
        rotation = common_eigenvectors(matrices)
        if rotation is None:
            return None
        weights = torch.stack([((rotation.mT @ A) * rotation.mT).sum(1) for A in matrices])
        return DiagonalForm(rotation, kernels, weights.clamp(min=0.0))

    def __add__(self, other: OperatorKernel) -> OperatorSum:
        return OperatorSum([*self.terms, other]) if isinstance(other, OperatorKernel) else NotImplemented

    def __repr__(self) -> str:
        if len(self.terms) < 2 or isinstance(self.terms[0], OperatorSum):  # in code, + would make another sum
            return super().__repr__()
        return " + ".join(f"({t!r})" if isinstance(t, OperatorSum) else repr(t) for t in self.terms)


def common_eigenvectors(matrices: list[Tensor]) -> Tensor | None:
    """An orthogonal V that diagonalises all the symmetric matrices, or None if they do not commute.

    The eigenvectors of a linear combination diagonalise commuting matrices if it has no eigenvalue in common that they
    have not. Its weights e^(1/t) are linearly independent over the algebraic numbers, so that no simple relation
    between eigenvalues makes such a tie.
    """
    scaled = [A / A.abs().max().clamp(min=torch.finfo(A.dtype).tiny) for A in matrices]
    combination = torch.stack([A * math.exp(1.0 / t) for t, A in enumerate(scaled, start=1)]).sum(0)
    vectors = torch.linalg.eigh(combination)[1]
    # Eigenvectors of near ties lose some digits.
    rounding = len(vectors) * torch.finfo(vectors.dtype).eps ** 0.75
    for A in scaled:
        rotated = vectors.mT @ A @ vectors
        if bool((rotated - torch.diag(rotated.diagonal())).abs().max() > rounding):
            return None
    return vectors


def kernel_domain(kernel: object) -> Domain:
    """The kind of data that a kernel takes, which may also be given by a name or as a function."""
    if isinstance(kernel, Kernel | OperatorKernel | Stack):
        return kernel.domain
    if isinstance(kernel, str) and kernel in FAMILIES:
        return "objects"
    return "gram" if kernel == "precomputed" else "vectors"


def as_operator_kernel(kernel: object, operator: Operator | str | None) -> OperatorKernel:
    """The kernel k(x, y) A of a scalar kernel k and an output operator A, or an operator-valued kernel itself.

    It is a copy with plain numbers, so that later changes of the arguments do not reach a fitted learner.
    """
    learn = isinstance(operator, str)
    if isinstance(kernel, OperatorKernel):
        undecided = isinstance(kernel, Decomposable) and kernel.operator is None
        if operator is not None and not (learn and undecided):
            raise ValueError(
                f"kernel={kernel!r} is operator-valued already, so operator={operator!r} has no place. Leave "
                "operator=None, or give a scalar kernel."
            )
        return kernel.__sklearn_clone__().numbers()
    if not (operator is None or isinstance(operator, Operator) or (learn and operator == "learn")):
        raise ValueError(
            "operator must be None, 'learn' or an object from representer.operators, such as Dense(matrix); got "
            f"{operator!r}."
        )
    return Decomposable(as_kernel(kernel), None if learn else operator).__sklearn_clone__().numbers()  # type: ignore[arg-type]
