"""Ridge systems: (K + diag(noise))⁻¹ of a squared loss, with or without a constant beside f."""

from representer.systems.base import System
from representer.systems.exact import RidgeData, factor_system

__all__ = ["RidgeData", "System", "factor_system"]
