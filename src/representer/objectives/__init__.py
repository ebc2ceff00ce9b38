"""Objectives: functions of a Gram matrix with gradients in the matrix and in alpha, and dual coefficients.

Anything that shapes the matrix (lengthscales, inner layers, network weights) is learned by this door:

>>> import torch
>>> from representer.objectives import LeaveOneOut
>>> x = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]
>>> lengthscale = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
>>> gram = torch.exp(-torch.cdist(x, x) ** 2 / (2 * lengthscale**2))
>>> error = LeaveOneOut(torch.sin(6 * x), alpha=1e-3)(gram)
>>> error.backward()  # closed form: nothing is differentiated through a factorisation
>>> bool(lengthscale.grad > 0)
True
"""

from representer.objectives.base import Evaluation, NotConvergedError, Objective
from representer.objectives.convex import EpsilonInsensitive, HeldOutLoss, Hinge, Huber, Logistic, SquaredHinge
from representer.objectives.custom import CustomLoss
from representer.objectives.risk import EmbeddingBound, HeldOutRisk, LeaveOneOutRisk, RademacherBound
from representer.objectives.squared import (
    GeneralizedCrossValidation,
    HeldOut,
    Interpolation,
    LeaveOneOut,
    Ridge,
    separation_penalty,
)

__all__ = [
    "CustomLoss",
    "EmbeddingBound",
    "EpsilonInsensitive",
    "Evaluation",
    "GeneralizedCrossValidation",
    "HeldOut",
    "HeldOutLoss",
    "HeldOutRisk",
    "Hinge",
    "Huber",
    "Interpolation",
    "LeaveOneOut",
    "LeaveOneOutRisk",
    "Logistic",
    "NotConvergedError",
    "Objective",
    "RademacherBound",
    "Ridge",
    "SquaredHinge",
    "separation_penalty",
]
