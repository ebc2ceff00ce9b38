"""Structured prediction: scores of candidates against one matrix product; the exact solve against formula (15)."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks._timing import Row, compare, scaled
from benchmarks.literal_structured import literal_scores
from representer import StructuredPredictor
from representer.functions import Embedding
from representer.kernels import Gaussian, Kernel
from representer.preimage import Candidates, candidate_scores


def rows() -> list[Row]:
    """10,000 candidates × 1,000 inputs; then formula (15) with 10, 30 and 50 columns at n = 500."""
    return [
        *candidate_rows(Gaussian(5.0)),
        *[literal_row(scaled(500, 60), rank) for rank in (10, 30, 50)],
    ]


def candidate_rows(kernel: Kernel) -> list[Row]:
    """Scores, and the best candidate, against a product of the same sizes; 2,000 anchors in 20 dimensions."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    anchors, inputs, count = scaled(2000), scaled(1000), scaled(10_000)
    embedding = Embedding(kernel, normal(anchors, 20), normal(inputs, anchors))
    candidates, gram = normal(count, 20), normal(anchors, count)
    decoder = Candidates(candidates).resolve(kernel, embedding.anchors)
    size = f"{count:,} candidates × {inputs:,} inputs, {anchors:,} training outputs"

    def product() -> torch.Tensor:
        return embedding.weights @ gram

    return [
        compare(
            "all scores, Gaussian output kernel, against one matrix product",
            size,
            ours=lambda: candidate_scores(embedding, candidates),
            reference=product,
            goal=1.5,
        ),
        compare(
            "best candidates, Gaussian output kernel, against one matrix product",
            size,
            ours=lambda: decoder.decode(embedding),
            reference=product,
            goal=1.5,
        ),
    ]


def literal_row(n: int, rank: int) -> Row:
    """Fit and scores of 100 inputs × n candidates; the name says how far (15) is from the exact scores."""
    rng = np.random.default_rng(0)
    X, new = rng.standard_normal((n, 3)), rng.standard_normal((100, 3))
    Y = np.sin(X @ rng.standard_normal((3, 5))) + 0.1 * rng.standard_normal((n, 5))
    kernels, lam = (Gaussian(1.5), Gaussian(1.5)), 0.1
    k, L, k_new = kernels[0](X).numpy(), kernels[1](Y).numpy(), kernels[0](new, X).numpy()
    model = StructuredPredictor(*kernels, "covariance", alpha=lam / n)

    def exact() -> np.ndarray:
        return model.fit(X, Y).score_candidates(new, Y) + 1.0  # l(y, y) = 1

    def literal() -> np.ndarray:
        return literal_scores(k, L, k_new, L, lam, rank)

    truth = exact()
    error = np.linalg.norm(literal() - truth) / np.linalg.norm(truth)
    what = f"exact covariance operator, against (15) with {rank} columns"
    note = f"relative error of (15): {error:.1e}"
    return compare(what, f"n = {n}", ours=exact, reference=literal, note=note)
