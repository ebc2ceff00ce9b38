"""Factor and solve: the one place where a positive semi-definite matrix is taken apart.

Every routine accepts leading batch dimensions unless it says otherwise, and never changes its arguments
unless ``overwrite=True`` is passed to ``eigh``; only ``add_weighted_gram`` is made to.
"""

from representer.linalg.cholesky import (
    Cholesky,
    NotPositiveDefiniteError,
    Woodbury,
    add_weighted_gram,
    factorize,
    is_finite,
    pivoted_cholesky,
    shifted,
    woodbury,
)
from representer.linalg.spectral import IndefiniteGramWarning, Spectrum, eigh, repair_gram, spectrum_of_factor
from representer.linalg.structured import conjugate_gradient, kronecker_solve, nearest_kronecker

__all__ = [
    "Cholesky",
    "IndefiniteGramWarning",
    "NotPositiveDefiniteError",
    "Spectrum",
    "Woodbury",
    "add_weighted_gram",
    "conjugate_gradient",
    "eigh",
    "factorize",
    "is_finite",
    "kronecker_solve",
    "nearest_kronecker",
    "pivoted_cholesky",
    "repair_gram",
    "shifted",
    "spectrum_of_factor",
    "woodbury",
]
