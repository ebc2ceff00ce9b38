"""Functions in a reproducing kernel Hilbert space: Σ_j K(·, z_j) c_j, their norms, and chains of them."""

from representer.expansions.chain import Chain
from representer.expansions.embedding import Embedding, mean_embedding
from representer.expansions.expansion import Expansion
from representer.expansions.layers import Layer
from representer.expansions.network import Network

__all__ = ["Chain", "Embedding", "Expansion", "Layer", "Network", "mean_embedding"]
