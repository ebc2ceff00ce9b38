"""Kernels on numeric vectors."""

from representer.kernels.products import Linear, Polynomial, Tanimoto
from representer.kernels.stationary import (
    Gaussian,
    Laplacian,
    Matern,
    Radial,
    RationalQuadratic,
    Stationary,
    TensorMatern,
)

__all__ = [
    "Gaussian",
    "Laplacian",
    "Linear",
    "Matern",
    "Polynomial",
    "Radial",
    "RationalQuadratic",
    "Stationary",
    "Tanimoto",
    "TensorMatern",
]
