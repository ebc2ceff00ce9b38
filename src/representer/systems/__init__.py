"""Systems: what is known of (K + diag(noise))⁻¹, the linear problem behind every fit by squared loss."""

from representer.systems.diagonal import System, factor_system

__all__ = ["System", "factor_system"]
