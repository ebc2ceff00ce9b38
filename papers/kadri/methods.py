"""What all experiments of Kadri, Ghavamzadeh, Preux (2013) share: the forms of output operators, and their tuning."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from representer import StructuredPredictor

PAPER = "Kadri, Ghavamzadeh, Preux: A generalized kernel approach to structured output learning"
IDENTITY, KPCA = "identity (Cortes)", "kernel PCA (Weston)"
COVARIANCE, CONDITIONAL = "covariance", "conditional covariance"
OPERATORS: dict[str, str | None] = {
    IDENTITY: None,
    KPCA: "kpca",
    COVARIANCE: "covariance",
    CONDITIONAL: "conditional_covariance",
}
AS_PUBLISHED = ", as published"


def tuned(kernels: Iterable[Any], X: Any, Y: Any, **options: Any) -> StructuredPredictor:
    """The fitted model with the input kernel of least criterion; alpha, epsilon and components are chosen inside."""
    models = [StructuredPredictor(kernel, **options).fit(X, Y) for kernel in kernels]
    return min(models, key=lambda model: model.criterion_value_)
