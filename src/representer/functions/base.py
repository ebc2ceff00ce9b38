"""What a function of an RKHS is to a fitted learner: a frozen value that evaluates itself, in blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields
from typing import Any, Self

import torch
from torch import Tensor

from representer.samples import Data


class Function(ABC):
    """A function of an RKHS; a subclass is a frozen dataclass of kernels, other functions and arrays.

    A learner keeps functions of NumPy arrays with a ``Representation`` that says how they become tensors; inside of a
    problem the same classes hold tensors. What a function computes once to save time is a ``cached_property``, which is
    no part of the state.
    """

    @abstractmethod
    def __call__(self, X: Data) -> Tensor:
        """f(x_i) as rows, (n, p), in blocks of bounded memory."""

    def norm(self) -> float:
        """‖f‖ in the RKHS, without the intercept."""
        raise ValueError(f"The norm of {type(self).__name__} is not known.")

    def contributions(self, X: Data) -> Tensor:
        """The terms (n, terms, p) of the sum that f(x) is: with the intercept they sum to f(x)."""
        raise ValueError(f"{type(self).__name__} is no sum over samples, landmarks or features.")

    def magnitudes(self, X: Data) -> Tensor:
        """The sums (n, p) of the absolute values of the terms: the rounding of f(x) is relative to them."""
        return self.contributions(X).abs().sum(1)

    def own_points(self, limit: int) -> Data:
        """At most so many of the inputs that the function is made of; None where it has none."""
        return None

    def cancellation(self, limit: int = 16, size: float = 0.0) -> float:
        """How many times larger than f, or the least size that matters, the sum of its terms' absolute values is.

        A few of its own points are looked at. It is 1 where nothing cancels, or nothing is known of it; of several
        outputs it is the largest. NaN says that the function is not finite.
        """
        points = self.own_points(limit)
        if points is None:
            return 1.0
        terms, values = self.magnitudes(points).amax(0), self(points).abs().amax(0).clamp(min=size)
        return float(torch.where(terms == 0, 1.0, terms / values).max())

    def state(self) -> dict[str, Any]:
        """The fields, which make the function again (``from_state``)."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """The function with these fields."""
        return cls(**state)

    def __getstate__(self) -> dict[str, Any]:
        return self.state()

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
