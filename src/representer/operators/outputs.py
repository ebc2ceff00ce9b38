"""Output operators: the positive semi-definite A in K(x, y) = k(x, y) A."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from representer.linalg import Eigenpairs, factorize, shifted
from representer.values import Hyperparameter, NonNegative, Positive, SemiDefinite, Value, Word, is_count, number


class Operator(Value, ABC):
    """A positive semi-definite operator on the output space ℝᵖ."""

    diagonal: ClassVar[bool] = False  # are the outputs uncoupled?
    needs_gram: ClassVar[bool] = False  # does ``resolve`` read the inputs' Gram matrix?

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
        """The operator that the targets Y (n, p) and the inputs' Gram matrix give; a fixed operator is itself."""
        self.check_hyperparameters()
        self.as_matrix(Y.shape[-1], Y)  # raises if the sizes do not match
        return self


def clipped_spectrum(matrix: Tensor) -> Eigenpairs:
    """Eigenvalues and eigenvectors of an operator, whose entries may be rounded: negative eigenvalues count as 0."""
    values, vectors = torch.linalg.eigh(matrix)
    return Eigenpairs(vectors, values.clamp(min=0.0))


class Identity(Operator):
    """A = I: outputs that share a kernel and nothing else.

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
    """A = diag(weights): each output is smoothed by alpha divided by its weight.

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
    """A = a given p × p positive semi-definite matrix: how the outputs vary together.

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
        """The matrix (p, p) that was given."""
        matrix = number(self, "matrix", like)
        if matrix.shape != (p, p):
            raise ValueError(f"Dense has a matrix of shape {tuple(matrix.shape)}, but there are {p} outputs.")
        return matrix


class DataDriven(Operator, ABC):
    """An operator that the training targets decide; ``resolve`` turns it into a Dense one."""

    def as_matrix(self, p: int, like: Tensor) -> Tensor:
        """Known only after ``resolve``."""
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
        """Yᵀ Y / n."""
        return Dense((Y.mT @ Y / len(Y)).cpu().numpy())


class ConditionalCovariance(DataDriven):
    """C_YY − C_YX (C_XX + ε)⁻¹ C_XY: what the inputs do not explain of the outputs' covariance (Kadri et al., eq. 7).

    On n samples this is (1/n) Yᵀ nε (K + nεI)⁻¹ Y.

    Parameters
    ----------
    epsilon : float or "auto"
        ε; a large one leaves the covariance of the outputs as it is. ``"auto"`` is for ``StructuredPredictor``, whose
        criterion compares some multiples of the mean k(x, x).

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
        """From the targets and the inputs' Gram matrix."""
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
        How many; more than there are is all of them. ``"auto"`` is for ``StructuredPredictor``, which takes as many as
        its criterion likes best.

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
        """V Vᵀ of the leading eigenvectors V."""
        V = clipped_spectrum(Y.mT @ Y).vectors[:, -min(self.checked(), Y.shape[1]) :]
        return Dense((V @ V.mT).cpu().numpy())

    def checked(self) -> int:
        """The number of components, if it is one."""
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


def as_operator(operator: Any, n_components: int | Literal["auto"] = "auto") -> Operator | None:
    """An operator from an operator, a name or None, which is the identity; ``"auto"`` in it is left to a criterion.

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
        own = operator.n_components if operator.n_components == "auto" else operator.checked()
        if n_components not in ("auto", own):
            raise ValueError(f"n_components={n_components!r} contradicts operator={operator!r}; give it once.")
        return PrincipalComponents(own)
    if isinstance(operator, ConditionalCovariance):
        operator.check_hyperparameters()
    if isinstance(operator, Operator):
        return operator.__sklearn_clone__()
    raise ValueError(
        f"operator must be None, one of {', '.join(map(repr, NAMES))} or an object from representer.operators; got "
        f"{operator!r}."
    )
