"""Functions in a reproducing kernel Hilbert space: Σ_j K(·, z_j) c_j, their norms, and chains of them."""

from representer.functions.base import Expansion, FieldState, Function, Span
from representer.functions.chain import Chain, Layer
from representer.functions.composed import (
    Composed,
    CompositionNetwork,
    FeatureNetwork,
    Stacked,
    StackedNetwork,
    function_network,
)
from representer.functions.conditional import ConditionalEmbedding
from representer.functions.embedding import (
    Embedding,
    EmbeddingFunction,
    OutputFunction,
    herd,
    herd_rows,
    mean_embedding,
)
from representer.functions.features import FadingFeatures, FeatureFunction, KernelMap, StoredFeatures

__all__ = [
    "Chain",
    "Composed",
    "CompositionNetwork",
    "ConditionalEmbedding",
    "Embedding",
    "EmbeddingFunction",
    "Expansion",
    "FadingFeatures",
    "FeatureFunction",
    "FeatureNetwork",
    "FieldState",
    "Function",
    "KernelMap",
    "Layer",
    "OutputFunction",
    "Span",
    "Stacked",
    "StackedNetwork",
    "StoredFeatures",
    "function_network",
    "herd",
    "herd_rows",
    "mean_embedding",
]
