"""A decoder that is learned: a network from features back to data."""

from __future__ import annotations

import torch

from representer.values import Value, is_count, is_real


class Network(Value):
    """A network from features back to data, and how it is trained together with the encoder that makes the features.

    Parameters
    ----------
    module : torch.nn.Module
        Maps features (n, q) to data (n, …). It is never changed: what is learned lives in a copy.
    weight : float
        Of the squared error of reconstructions, γ in equation (11) of Tonin et al.
    max_iter : int
        Most passes over the data.
    batch_size : int
        Samples in each step of Adam.
    learning_rate : float
        The size of a step.

    Examples
    --------
    >>> import torch
    >>> from representer.preimage import Network
    >>> Network(torch.nn.Linear(2, 3), weight=10.0).weight
    10.0
    """

    def __init__(
        self,
        module: torch.nn.Module,
        weight: float = 1.0,
        max_iter: int = 100,
        batch_size: int = 64,
        learning_rate: float = 3e-3,
    ):
        self.module = module
        self.weight = weight
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate

    def check(self) -> None:
        """Raise a ValueError unless the module and the options can be trained."""
        if not isinstance(self.module, torch.nn.Module):
            raise ValueError(f"module of Network must be a torch.nn.Module; got {self.module!r}.")
        for name in ("weight", "learning_rate"):
            value = getattr(self, name)
            if not (is_real(value) and 0 < value < float("inf")):
                raise ValueError(f"{name} of Network must be positive and finite; got {value!r}.")
        for name in ("max_iter", "batch_size"):
            if not is_count(getattr(self, name)):
                raise ValueError(f"{name} of Network must be a positive integer; got {getattr(self, name)!r}.")
