"""The layers of a chain: what they are made from, and how coordinates become values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from representer.kernels import Domain, Kernel, as_kernel
from representer.operators import DataDriven, Decomposable, Identity, Operator, OperatorKernel
from representer.samples import Data
from representer.values import Hyperparameter, Positive, Value, Word, argument_repr, is_count

# Where learning alpha starts is for the learner to say: it knows the size of the loss.
ALPHA = Hyperparameter(
    Positive(), {"auto": Word(lambda X: torch.ones((), dtype=torch.float64), learned=True)}, scalar=True
)


class Layer(Value):
    """One function of a composition, with values in ℝ^size, and the weight of its penalty α Θ(‖f‖²).

    Parameters
    ----------
    kernel : Kernel, str or OperatorKernel
        The scalar kernel k of K(x, y) = k(x, y) A, or an operator-valued kernel such as ``Separate``.
    size : int
        The dimension of the values.
    alpha : float or "auto"
        The weight of the penalty beside the mean loss; ``"auto"`` lets a learner choose it.
    operator : Operator, optional
        A; the identity by default.
    penalty : callable, optional
        Θ, a strictly increasing differentiable function of the squared norm (a tensor); by default ‖f‖² itself.

    Examples
    --------
    >>> from representer import Layer
    >>> from representer.kernels import Gaussian
    >>> Layer(Gaussian(1.0), size=2, alpha=1e-3)
    Layer(kernel=Gaussian(lengthscale=1.0), size=2, alpha=0.001)
    """

    hyperparameters: ClassVar[Mapping[str, Hyperparameter]] = {"alpha": ALPHA}

    def __init__(
        self,
        kernel: Any,
        size: int,
        alpha: Any = "auto",
        operator: Operator | None = None,
        penalty: Callable[[Tensor], Tensor] | None = None,
    ):
        self.kernel = kernel
        self.size = size
        self.alpha = alpha
        self.operator = operator
        self.penalty = penalty

    @property
    def operator_kernel(self) -> OperatorKernel:
        """The layer's operator-valued kernel K."""
        if isinstance(self.kernel, OperatorKernel):
            return self.kernel
        return Decomposable(as_kernel(self.kernel), self.operator)

    @property
    def domain(self) -> Domain:
        """The kind of data it takes."""
        return self.operator_kernel.domain

    def check(self) -> None:
        """Raise a ValueError that says which argument is not admissible."""
        if not is_count(self.size):
            raise ValueError(f"The size of a layer must be a positive integer; got {self.size!r}.")
        if not isinstance(self.kernel, Kernel | OperatorKernel | str):
            raise ValueError(
                f"The kernel of a layer must be a kernel, a name or an operator-valued kernel; got {self.kernel!r}."
            )
        if isinstance(self.kernel, OperatorKernel) and self.operator is not None:
            raise ValueError(
                f"The kernel of a layer is operator-valued already ({self.kernel!r}), so operator="
                f"{self.operator!r} has no place. Leave operator=None, or give a scalar kernel."
            )
        if isinstance(self.operator, DataDriven):
            raise ValueError(
                f"{self.operator!r} is computed from targets, which an inner layer does not have. Use Dense(A)."
            )
        if self.penalty is not None and not callable(self.penalty):
            raise ValueError(
                f"The penalty of a layer must be None or a function of the squared norm; got {self.penalty!r}."
            )
        if self.penalty is not None:
            self._check_penalty()
        self.check_hyperparameters()
        if isinstance(self.operator_kernel, Decomposable):
            self.operator_kernel._operator.as_matrix(self.size, torch.zeros(1, dtype=torch.float64))

    def _check_penalty(self) -> None:
        assert self.penalty is not None
        with torch.enable_grad():
            norms = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64, requires_grad=True)
            values = self.penalty(norms)
            if not (isinstance(values, Tensor) and values.shape == norms.shape and values.requires_grad):
                raise ValueError(
                    "The penalty of a layer must take a tensor of squared norms to one of the same shape, entry by "
                    f"entry and by torch operations; got {values!r}."
                )
            (slopes,) = torch.autograd.grad(values.sum(), norms)
        if not bool((slopes > 0).all()):
            raise ValueError(
                f"The penalty of a layer must increase strictly with ‖f‖²; its derivatives at {norms.tolist()} are "
                f"{slopes.tolist()}. Without that, no representer theorem holds."
            )

    def check_size(self, X: Data) -> None:
        """Raise if the kernel implies another number of outputs on these inputs."""
        implied = self.operator_kernel.n_outputs(X)
        if implied is not None and implied != self.size:
            raise ValueError(
                f"A layer of size {self.size} has the kernel {argument_repr(self.kernel)}, which has {implied} "
                "outputs on these inputs. Make them equal."
            )

    def replaced(self, **arguments: Any) -> Layer:
        """The layer with some arguments exchanged."""
        return Layer(**{**self.get_params(deep=False), **arguments})

    def penalized(self, squared_norm: Tensor) -> Tensor:
        """The penalty α Θ(‖f‖²)."""
        shape = squared_norm if self.penalty is None else self.penalty(squared_norm)
        return torch.as_tensor(self.alpha, dtype=shape.dtype, device=shape.device) * shape

    def penalty_slope(self, squared_norm: Tensor) -> Tensor | float:
        """The derivative of the penalty in ‖f‖²."""
        if self.penalty is None:
            return self.alpha
        with torch.enable_grad():
            norm = squared_norm.detach().requires_grad_()
            return torch.autograd.grad(self.penalized(norm).sum(), norm)[0]


@dataclass(frozen=True)
class OutputBlock:
    """Outputs of a layer that share one scalar Gram matrix, and so one factor.

    A kernel without a diagonal form is a single part with one row for each entry of the output: ``coupled``.
    """

    gram: Callable[[Any, Any], Tensor]
    diag: Callable[[Any], Tensor]
    outputs: Tensor
    coupled: bool = False
    kernel: Kernel | None = None  # where it is one, and not a combination

    @property
    def width(self) -> int:
        """The number of columns of coordinates that its factor multiplies."""
        return 1 if self.coupled else len(self.outputs)

    @property
    def rows_per_sample(self) -> int:
        """Rows of the Gram matrix for each sample."""
        return len(self.outputs) if self.coupled else 1

    def entries(self, samples: Tensor) -> Tensor:
        """The rows of the Gram matrix that belong to these samples."""
        step = self.rows_per_sample
        return (samples[:, None] * step + torch.arange(step)).reshape(-1)

    def locate(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The samples that some rows of the Gram matrix belong to, and where the rows are in *their* matrix."""
        if not self.coupled:
            return rows, torch.arange(len(rows))
        step = self.rows_per_sample
        samples, inverse = torch.unique(rows // step, return_inverse=True)
        return samples, inverse * step + rows % step


class Outputs:
    """How the coordinates of a layer become its values.

    With K = V diag_j(k_j) Vᵀ and k_j(X, X) = B_j B_jᵀ, f(X) V = [B_1 θ_1, …, B_p θ_p] and ‖f‖² = Σ‖θ_j‖²; equal k_j
    share a factor. If all k_j are multiples of one kernel, K = k A, the coordinates are instead a matrix Θ with
    f(X) = B Θ A^½.
    """

    def __init__(self, layer: Layer, like: Tensor):
        kernel, size = layer.operator_kernel, layer.size
        every = torch.arange(size)
        self.size = size
        self.root: Tensor | None = None
        self.inverse_root: Tensor | None = None
        self.rotation: Tensor | None = None
        form = kernel.diagonal_form(size, like)
        if isinstance(kernel, Decomposable):
            self.parts = [OutputBlock(kernel.kernel._gram, kernel.kernel._diag, every, kernel=kernel.kernel)]
            if not isinstance(kernel._operator, Identity):
                self.root, self.inverse_root = (_power(kernel._operator, size, like, s) for s in (0.5, -0.5))
        elif form is not None:
            self.rotation = form.rotation
            self.parts = [
                OutputBlock(partial(form.gram, weights), partial(form.diag, weights), outputs)
                for weights, outputs in form.groups()
            ]
        else:
            self.parts = [
                OutputBlock(
                    partial(block_matrix, kernel, size),
                    lambda X: kernel.diag(X, size).reshape(-1),
                    every,
                    coupled=True,
                )
            ]

    @cached_property
    def plain(self) -> bool:
        """Are values the factor times the coordinates, and nothing else?"""
        only = len(self.parts) == 1 and not self.parts[0].coupled
        return only and self.rotation is None and self.root is None

    def shape(self, ranks: list[int]) -> tuple[int, int]:
        """The shape of the coordinates: a matrix if there is one factor, a column of several parts otherwise."""
        if len(self.parts) == 1:
            return ranks[0], self.parts[0].width
        return sum(rank * part.width for rank, part in zip(ranks, self.parts, strict=True)), 1

    def split(self, theta: Tensor, ranks: list[int]) -> list[Tensor]:
        """The coordinates of each part, (..., rank, width)."""
        if len(self.parts) == 1:
            return [theta]
        sizes = [rank * part.width for rank, part in zip(ranks, self.parts, strict=True)]
        pieces = theta[..., 0].split(sizes, dim=-1)
        return [
            piece.reshape(*piece.shape[:-1], rank, part.width)
            for piece, rank, part in zip(pieces, ranks, self.parts, strict=True)
        ]

    def join(self, pieces: list[Tensor]) -> Tensor:
        """Coordinates of the parts as those of the layer."""
        if len(pieces) == 1:
            return pieces[0]
        return torch.cat([piece.flatten(-2) for piece in pieces], dim=-1)[..., None]

    def values(self, factors: list[Tensor], theta: Tensor) -> Tensor:
        """f at the points of the factors, (..., n, size)."""
        pieces = self.split(theta, [factor.shape[-1] for factor in factors])
        return self._assemble([factor @ piece for factor, piece in zip(factors, pieces, strict=True)], self.root)

    def coefficients(self, pieces: list[Tensor]) -> Tensor:
        """The c of Σ_j K(·, z_j) c_j from what the parts give each anchor."""
        return self._assemble(pieces, self.inverse_root)

    def _assemble(self, columns: list[Tensor], root: Tensor | None) -> Tensor:
        if self.parts[0].coupled:
            return columns[0].reshape(*columns[0].shape[:-2], -1, self.size)
        if len(columns) > 1:
            order = torch.cat([part.outputs for part in self.parts]).argsort()
            values = torch.cat(columns, dim=-1)[..., order]
        else:
            values = columns[0]
        if self.rotation is not None:
            return values @ self.rotation.mT
        return values if root is None else values @ root

    def columns(self, values: Tensor) -> list[Tensor]:
        """What the factors of the parts should give, so that these are the values."""
        if self.parts[0].coupled:
            return [values.reshape(*values.shape[:-2], -1, 1)]
        if self.rotation is not None:
            values = values @ self.rotation
        elif self.inverse_root is not None:
            values = values @ self.inverse_root
        return [values[..., part.outputs] for part in self.parts]


def _power(operator: Operator, size: int, like: Tensor, power: float) -> Tensor:
    """A^power, on the range of A."""
    spectrum = operator.spectrum(size, like)
    vanishing = spectrum.values <= spectrum.values.max() * torch.finfo(like.dtype).eps * size
    powers = torch.where(vanishing, 0.0, torch.where(vanishing, 1.0, spectrum.values) ** power)
    return (spectrum.vectors * powers) @ spectrum.vectors.mT


def block_matrix(kernel: OperatorKernel, size: int, X: Data, Y: Data | None) -> Tensor:
    """The block matrix, member by member of a batch."""
    if isinstance(X, Tensor) and X.ndim > 2:
        others = [None] * len(X) if Y is None else Y
        return torch.stack([block_matrix(kernel, size, x, y) for x, y in zip(X, others, strict=True)])
    return kernel.dense(X, Y, size)
