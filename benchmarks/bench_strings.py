"""Gram matrices of 5,000 strings of 100 symbols, against counts and a sparse product by scikit-learn and SciPy."""

from __future__ import annotations

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from benchmarks._timing import Row, compare, scaled
from representer.kernels import Edit, Mismatch, Spectrum, Subsequence


def strings(n: int, length: int, letters: str) -> list[str]:
    """Random strings."""
    symbols = np.random.default_rng(0).choice(list(letters), (n, length))
    return ["".join(row) for row in symbols]


def rows() -> list[Row]:
    """The spectrum kernel against its peer; the dearer kernels against the spectrum kernel."""
    found = []
    for letters, length in (("ACGT", 5), ("ACDEFGHIKLMNPQRSTVWY", 3)):
        X = strings(scaled(5000), 100, letters)

        def counted(X: list[str] = X, length: int = length) -> np.ndarray:
            vectorizer = CountVectorizer(
                analyzer="char", ngram_range=(length, length), lowercase=False, dtype=np.float64
            )
            counts = vectorizer.fit_transform(X)
            return (counts @ counts.T).toarray()

        kernel = Spectrum(length)
        np.testing.assert_array_equal(kernel(X), counted())
        found.append(
            compare(
                f"{kernel!r}, against CountVectorizer and product",
                f"{len(X):,} × 100, {len(letters)} letters",
                ours=lambda kernel=kernel, X=X: kernel(X),
                reference=counted,
                goal=1.0,
                repeats=3,
            )
        )
    X = strings(scaled(5000), 100, "ACGT")
    found.append(_beside(Mismatch(5, 1, "ACGT"), X))
    return found + [_beside(kernel, X[: scaled(500)]) for kernel in (Edit(30.0), Subsequence(3, 0.5))]


def _beside(kernel: Mismatch | Edit | Subsequence, X: list[str]) -> Row:
    return compare(
        f"{type(kernel).__name__}, against Spectrum(5)",
        f"{len(X):,} × 100, 4 letters",
        ours=lambda: kernel(X),
        reference=lambda: Spectrum(5)(X),
        repeats=3,
    )
