"""The ranking of confident learning by its formula."""

from __future__ import annotations

import numpy as np

from benchmarks.suspects import confident_order


def test_the_formula_ranks_flipped_labels_first():
    """Issues are those off the diagonal of the confident joint, by their margin; a double loop says the same."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 60)
    probabilities = rng.dirichlet(np.ones(3), 60)
    probabilities[np.arange(60), labels] += 1.0
    probabilities /= probabilities.sum(1, keepdims=True)
    told = labels.copy()
    told[:4] = (told[:4] + 1) % 3
    order = confident_order(told, probabilities)
    assert set(order[:4]) == set(range(4)) and sorted(order) == list(range(60))
    thresholds = [np.mean([p[j] for p, own in zip(probabilities, told, strict=True) if own == j]) for j in range(3)]
    issues = []
    for i in range(60):
        above = [j for j in range(3) if probabilities[i, j] >= thresholds[j]]
        if above and max(above, key=lambda j: probabilities[i, j]) != told[i]:
            issues.append(i)
    assert set(order[: len(issues)]) == set(issues)
