"""Factor and solve: the one place where a positive semi-definite matrix is taken apart.

Every routine accepts leading batch dimensions unless it says otherwise, and never changes its arguments.
"""

from representer.linalg.cholesky import (
    Cholesky,
    NotPositiveDefiniteError,
    Woodbury,
    factorize,
    is_finite,
    pivoted_cholesky,
    shifted,
    woodbury,
)
from representer.linalg.leading import RitzPairs, leading, orthonormal
from representer.linalg.spectral import IndefiniteGramWarning, Spectrum, eigh, repair_gram, spectrum_of_factor
from representer.linalg.structured import (
    conjugate_gradient,
    kronecker_solve,
    nearest_kronecker,
    rotated_factor,
    row_product,
    self_product,
    symmetric_product,
    symmetric_products,
)

__all__ = [
    "Cholesky",
    "IndefiniteGramWarning",
    "NotPositiveDefiniteError",
    "RitzPairs",
    "Spectrum",
    "Woodbury",
    "conjugate_gradient",
    "eigh",
    "factorize",
    "is_finite",
    "kronecker_solve",
    "leading",
    "nearest_kronecker",
    "orthonormal",
    "pivoted_cholesky",
    "repair_gram",
    "rotated_factor",
    "row_product",
    "self_product",
    "shifted",
    "spectrum_of_factor",
    "symmetric_product",
    "symmetric_products",
    "woodbury",
]
