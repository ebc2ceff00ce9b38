"""Kernels are values: made from hyperparameters, called with data, composed with ``+`` and ``*``."""

from representer.kernels.base import Centered, Constant, Kernel, Normalized, Product, Scaled, Sum
from representer.kernels.given import Callable, Precomputed
from representer.kernels.labels import Delta
from representer.kernels.learned import Neural, Pullback
from representer.kernels.names import as_kernel
from representer.kernels.products import Linear, Polynomial, Tanimoto
from representer.kernels.stationary import Gaussian, Laplacian, Matern, RationalQuadratic, TensorMatern

__all__ = [
    "Callable",
    "Centered",
    "Constant",
    "Delta",
    "Gaussian",
    "Kernel",
    "Laplacian",
    "Linear",
    "Matern",
    "Neural",
    "Normalized",
    "Polynomial",
    "Precomputed",
    "Product",
    "Pullback",
    "RationalQuadratic",
    "Scaled",
    "Sum",
    "Tanimoto",
    "TensorMatern",
    "as_kernel",
]
