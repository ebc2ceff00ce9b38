"""Kernels are values: made from hyperparameters, called with data, composed with ``+`` and ``*``."""

# Names for the rooms below, which are no part of the room's pages.
from representer.kernels.alignments import Edit, Subsequence
from representer.kernels.bags import Match, MeanMap
from representer.kernels.base import (
    Centered,
    Constant,
    Domain,
    ExplicitFeatures,
    Kernel,
    Normalized,
    Pair,
    Product,
    Scaled,
    Sum,
    Tangent,
    Wrapped,
    has_products,
    is_bounded,
    unscaled,
)
from representer.kernels.base import prepare_for_each as prepare_for_each
from representer.kernels.base import views as views
from representer.kernels.curves import Functional
from representer.kernels.graphs import (
    GraKeL,
    Graph,
    RandomWalk,
    ShortestPath,
    VertexHistogram,
    WeisfeilerLehman,
    as_graph,
    is_graph,
)
from representer.kernels.learned import Mapped, Neural, Pullback, seen_inside
from representer.kernels.learned import Training as Training
from representer.kernels.learned import differs_in_training as differs_in_training
from representer.kernels.learned import has_statistics as has_statistics
from representer.kernels.learned import in_training as in_training
from representer.kernels.learned import on_device as on_device
from representer.kernels.learned import with_statistics as with_statistics
from representer.kernels.molecules import (
    Descriptors,
    Fingerprint,
    MinMax,
    Molecule,
    Overlap,
    Tanimoto,
    are_smiles,
    as_molecules,
    is_molecule,
    morgan,
)
from representer.kernels.named import FAMILIES, NAMES, Stack, as_kernel, is_several
from representer.kernels.objects import Callable, Delta, Precomputed
from representer.kernels.parallel import Parallel, pairwise_blocks
from representer.kernels.sequences import Positionwise, SoftAlignment, SoftSubsequence
from representer.kernels.strings import AnyCase, Mismatch, Spectrum, WeightedDegree, coded, one_kind
from representer.kernels.suggest import FeatureKind as FeatureKind
from representer.kernels.suggest import Finding, Suggestion, are_vectors, family, is_frame, suggest
from representer.kernels.suggest import kernels_of as kernels_of
from representer.kernels.suggest import one_kernel as one_kernel
from representer.kernels.suggest import refuse_flat as refuse_flat
from representer.kernels.suggest import refuse_masked as refuse_masked
from representer.kernels.suggest import refuse_non_numbers as refuse_non_numbers
from representer.kernels.suggest import refuse_pictures as refuse_pictures
from representer.kernels.suggest import refuse_unordered as refuse_unordered
from representer.kernels.suggest import single_kernel as single_kernel
from representer.kernels.suggest import stack_of as stack_of
from representer.kernels.tables import (
    Category,
    Columns,
    Date,
    Encoding,
    Missing,
    Number,
    Optional,
    Ordered,
    Pixels,
    Standardized,
    Table,
    UnknownCategoryWarning,
    Words,
    warn_of_unknown,
)
from representer.kernels.time_series import GlobalAlignment, Signature
from representer.kernels.vectors import (
    AdditiveChi2,
    Chi2,
    Gaussian,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    Radial,
    RationalQuadratic,
    Sigmoid,
    Stationary,
    TensorMatern,
)

__all__ = [
    "FAMILIES",
    "NAMES",
    "AdditiveChi2",
    "AnyCase",
    "Callable",
    "Category",
    "Centered",
    "Chi2",
    "Columns",
    "Constant",
    "Date",
    "Delta",
    "Descriptors",
    "Domain",
    "Edit",
    "Encoding",
    "ExplicitFeatures",
    "Finding",
    "Fingerprint",
    "Functional",
    "Gaussian",
    "GlobalAlignment",
    "GraKeL",
    "Graph",
    "Kernel",
    "Laplacian",
    "Linear",
    "Mapped",
    "Match",
    "Matern",
    "MeanMap",
    "MinMax",
    "Mismatch",
    "Missing",
    "Molecule",
    "Neural",
    "Normalized",
    "Number",
    "Optional",
    "Ordered",
    "Overlap",
    "Pair",
    "Parallel",
    "Pixels",
    "Polynomial",
    "Positionwise",
    "Precomputed",
    "Product",
    "Pullback",
    "Radial",
    "RandomWalk",
    "RationalQuadratic",
    "Scaled",
    "ShortestPath",
    "Sigmoid",
    "Signature",
    "SoftAlignment",
    "SoftSubsequence",
    "Spectrum",
    "Stack",
    "Standardized",
    "Stationary",
    "Subsequence",
    "Suggestion",
    "Sum",
    "Table",
    "Tangent",
    "Tanimoto",
    "TensorMatern",
    "UnknownCategoryWarning",
    "VertexHistogram",
    "WeightedDegree",
    "WeisfeilerLehman",
    "Words",
    "Wrapped",
    "are_smiles",
    "are_vectors",
    "as_graph",
    "as_kernel",
    "as_molecules",
    "coded",
    "family",
    "has_products",
    "is_bounded",
    "is_frame",
    "is_graph",
    "is_molecule",
    "is_several",
    "morgan",
    "one_kind",
    "pairwise_blocks",
    "seen_inside",
    "suggest",
    "unscaled",
    "warn_of_unknown",
]
