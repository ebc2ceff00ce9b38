"""Factor and solve: the one place where a positive semi-definite matrix is taken apart.

Every routine accepts leading batch dimensions unless it says otherwise, and never changes its arguments
unless ``overwrite=True`` is passed to ``eigh``.
"""

from representer.linalg.blas import hadamard_products, symmetric_product, symmetric_products
from representer.linalg.cholesky import (
    Cholesky,
    NotPositiveDefiniteError,
    Woodbury,
    factorize,
    is_finite,
    shifted,
    woodbury,
)
from representer.linalg.leading import RitzPairs, leading, orthonormal
from representer.linalg.pivots import pivoted_cholesky
from representer.linalg.rowwise import row_product
from representer.linalg.spectral import IndefiniteGramWarning, Spectrum, eigh, repair_gram, spectrum_of_factor
from representer.linalg.structured import (
    conjugate_gradient,
    kronecker_solve,
    nearest_kronecker,
    rotated_factor,
    self_product,
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
    "hadamard_products",
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
