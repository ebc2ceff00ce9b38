"""Kernels are values: made from hyperparameters, called with data, composed with ``+`` and ``*``."""

from representer.kernels.alignments import Edit, Subsequence
from representer.kernels.bags import Match, MeanMap
from representer.kernels.base import Centered, Constant, Kernel, Normalized, Product, Scaled, Sum
from representer.kernels.columns import Columns
from representer.kernels.curves import Functional
from representer.kernels.fingerprints import MinMax, Tanimoto
from representer.kernels.given import Callable, Precomputed
from representer.kernels.grakel import GraKeL
from representer.kernels.graph_kernels import ShortestPath, VertexHistogram, WeisfeilerLehman
from representer.kernels.graphs import Graph, as_graph
from representer.kernels.labels import Delta
from representer.kernels.learned import Neural, Pullback
from representer.kernels.molecules import Molecule
from representer.kernels.names import as_kernel
from representer.kernels.parallel import Parallel, pairwise_blocks
from representer.kernels.products import Linear, Polynomial
from representer.kernels.random_walk import RandomWalk
from representer.kernels.signatures import Signature
from representer.kernels.stationary import Gaussian, Laplacian, Matern, RationalQuadratic, TensorMatern
from representer.kernels.strings import Mismatch, Spectrum, WeightedDegree
from representer.kernels.time_series import GlobalAlignment

__all__ = [
    "Callable",
    "Centered",
    "Columns",
    "Constant",
    "Delta",
    "Edit",
    "Functional",
    "Gaussian",
    "GlobalAlignment",
    "GraKeL",
    "Graph",
    "Kernel",
    "Laplacian",
    "Linear",
    "Match",
    "Matern",
    "MeanMap",
    "MinMax",
    "Mismatch",
    "Molecule",
    "Neural",
    "Normalized",
    "Parallel",
    "Polynomial",
    "Precomputed",
    "Product",
    "Pullback",
    "RandomWalk",
    "RationalQuadratic",
    "Scaled",
    "ShortestPath",
    "Signature",
    "Spectrum",
    "Subsequence",
    "Sum",
    "Tanimoto",
    "TensorMatern",
    "VertexHistogram",
    "WeightedDegree",
    "WeisfeilerLehman",
    "as_graph",
    "as_kernel",
    "pairwise_blocks",
]
