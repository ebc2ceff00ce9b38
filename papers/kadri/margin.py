"""A max-margin Markov network (Taskar et al., 2004) on chains, the rival of table 2: its dual by blocks of words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from representer.preimage import viterbi


@dataclass(frozen=True)
class Chain:
    """The weights of features for each symbol (size, d), and of neighbours, start and end (size + 1, size + 1)."""

    symbols: np.ndarray
    transitions: np.ndarray

    def predict(self, word: np.ndarray, loss: np.ndarray | float = 0.0) -> np.ndarray:
        """The best path through the features (length, d) of a word; with a loss (length, size), the worst mistake."""
        scores = word @ self.symbols.T + loss
        return viterbi(scores[None], self.transitions)[0]


def features(word: np.ndarray, path: np.ndarray, size: int) -> np.ndarray:
    """ψ(x, y): the sums of the features of each symbol, and how often each pair of neighbours is there, as a vector."""
    symbols, transitions = np.zeros((size, word.shape[1])), np.zeros((size + 1, size + 1))
    np.add.at(symbols, path, word)
    ends = np.array([size, *path, size])
    np.add.at(transitions, (ends[:-1], ends[1:]), 1.0)
    return np.concatenate([symbols.ravel(), transitions.ravel()])


def margin_chain(
    words: Sequence[np.ndarray], paths: Sequence[np.ndarray], size: int, decay: float, *, passes: int, seed: int = 0
) -> tuple[Chain, float]:
    """min_w decay/2 ‖w‖² + mean_i max_y [share of wrong symbols − ⟨w, ψ(x_i, y_i) − ψ(x_i, y)⟩], and its duality gap.

    Block-coordinate Frank-Wolfe (Lacoste-Julien et al., 2013): each word in turn moves its part of w towards its worst
    mistake, by the step that is exactly best for the dual.
    """
    n, d = len(words), words[0].shape[1]
    parts, offsets = np.zeros((n, size * d + (size + 1) ** 2)), np.zeros(n)
    w, rng, gap = np.zeros(parts.shape[1]), np.random.default_rng(seed), np.inf
    for _ in range(passes):
        gap = 0.0
        for i in rng.permutation(n):
            word, path = words[i], paths[i]
            loss = np.full((len(path), size), 1.0 / len(path))
            loss[np.arange(len(path)), path] = 0.0
            worst = _chain(w, size, d).predict(word, loss)
            corner = (features(word, path, size) - features(word, worst, size)) / (decay * n)
            offset = float((worst != path).mean()) / n
            direction = parts[i] - corner
            own = decay * float(direction @ w) - offsets[i] + offset  # what the word adds to the duality gap
            gap += own
            square = decay * float(direction @ direction)
            step = min(max(own / square, 0.0), 1.0) if square > 0 else 0.0
            w -= step * direction
            parts[i] -= step * direction
            offsets[i] += step * (offset - offsets[i])
    return _chain(w, size, d), gap


def _chain(w: np.ndarray, size: int, d: int) -> Chain:
    return Chain(w[: size * d].reshape(size, d), w[size * d :].reshape(size + 1, size + 1))
