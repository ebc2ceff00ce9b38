"""The name under which a search over embeddings knows ``threads_for``."""

from representer.linalg.threads import threads_for as blas_threads_for

__all__ = ["blas_threads_for"]
