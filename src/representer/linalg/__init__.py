"""Factor and solve: the one place where a positive semi-definite matrix is taken apart.

Every routine accepts leading batch dimensions unless it says otherwise, and never changes its arguments unless
``overwrite=True`` is passed to ``eigh``.
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
from representer.linalg.spectral import (
    IndefiniteGramWarning,
    Spectrum,
    eigh,
    gram_factor,
    repair_gram,
    spectrum_of_factor,
)
from representer.linalg.structured import (
    conjugate_gradient,
    kronecker_solve,
    nearest_kronecker,
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
    "gram_factor",
    "is_finite",
    "kronecker_solve",
    "leading",
    "nearest_kronecker",
    "orthonormal",
    "pivoted_cholesky",
    "repair_gram",
    "shifted",
    "spectrum_of_factor",
    "symmetric_products",
    "woodbury",
]
