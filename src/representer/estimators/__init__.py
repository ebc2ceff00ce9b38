"""Learners: the only room that knows scikit-learn."""

from typing import TYPE_CHECKING, Any

from representer.estimators.base import load
from representer.estimators.conditional_mean_embedding import ConditionalMeanEmbedding
from representer.estimators.deep_classifier import DeepKernelClassifier
from representer.estimators.deep_kernel_pca import CollapsedComponentWarning, DeepKernelPCA
from representer.estimators.deep_regressor import DeepKernelRegressor
from representer.estimators.embedding_classifier import EmbeddingClassifier
from representer.estimators.fingerprints import MACCS, AtomPairs, Morgan, Paths, Torsions
from representer.estimators.kernel_autoencoder import KernelAutoencoder
from representer.estimators.kernel_features import KernelFeatures
from representer.estimators.operator_ridge import OperatorRidge
from representer.estimators.structured_predictor import StructuredPredictor

if TYPE_CHECKING:
    from representer.estimators.gaussian_process import GaussianProcessKernel

__all__ = [
    "MACCS",
    "AtomPairs",
    "CollapsedComponentWarning",
    "ConditionalMeanEmbedding",
    "DeepKernelClassifier",
    "DeepKernelPCA",
    "DeepKernelRegressor",
    "EmbeddingClassifier",
    "GaussianProcessKernel",
    "KernelAutoencoder",
    "KernelFeatures",
    "Morgan",
    "OperatorRidge",
    "Paths",
    "StructuredPredictor",
    "Torsions",
    "load",
]


def __getattr__(name: str) -> Any:
    """Import the adapter to Gaussian processes when it is first asked for: scikit-learn's take long."""
    if name == "GaussianProcessKernel":
        from representer.estimators.gaussian_process import GaussianProcessKernel

        return GaussianProcessKernel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
