"""Factor and solve: the one place where a positive semi-definite matrix is taken apart.

Every routine accepts leading batch dimensions unless it says otherwise, and never changes its arguments unless
``overwrite=True`` is passed to ``eigh``.
"""

from representer.linalg.cholesky import (
    NOT_FINITE,
    Cholesky,
    NotPositiveDefiniteError,
    Woodbury,
    factorize,
    factorize_products,
    is_finite,
    noted_jitter,
    pivoted_cholesky,
    shifted,
    woodbury,
)
from representer.linalg.equations import Limits, broyden, jacobian, levenberg_marquardt
from representer.linalg.memory import (
    BLOCK_BYTES,
    MemoryWarning,
    as_bytes,
    by_rows,
    combine,
    empty_matrix,
    recycling,
    require,
    require_gram,
    room_beside_sums,
    row_blocks,
)
from representer.linalg.spectral import (
    Eigenpairs,
    IndefiniteGramWarning,
    Product,
    RitzPairs,
    eigh,
    gram_factor,
    leading,
    orthonormal,
    repair_gram,
    spectrum_of_factor,
    thin_svd,
)
from representer.linalg.structured import conjugate_gradient, kronecker_solve, nearest_kronecker, symmetric_products
from representer.linalg.units import power_of_two

__all__ = [
    "BLOCK_BYTES",
    "NOT_FINITE",
    "Cholesky",
    "Eigenpairs",
    "IndefiniteGramWarning",
    "Limits",
    "MemoryWarning",
    "NotPositiveDefiniteError",
    "Product",
    "RitzPairs",
    "Woodbury",
    "as_bytes",
    "broyden",
    "by_rows",
    "combine",
    "conjugate_gradient",
    "eigh",
    "empty_matrix",
    "factorize",
    "factorize_products",
    "gram_factor",
    "is_finite",
    "jacobian",
    "kronecker_solve",
    "leading",
    "levenberg_marquardt",
    "nearest_kronecker",
    "noted_jitter",
    "orthonormal",
    "pivoted_cholesky",
    "power_of_two",
    "recycling",
    "repair_gram",
    "require",
    "require_gram",
    "room_beside_sums",
    "row_blocks",
    "shifted",
    "spectrum_of_factor",
    "symmetric_products",
    "thin_svd",
    "woodbury",
]
