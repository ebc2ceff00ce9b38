"""Small data sets of every kind, a function of a seed: inputs, queries and targets that depend on them."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from representer.kernels import Graph

N_QUERIES = 6
SMILES = [
    "CCO",
    "CCN",
    "CCC",
    "CCCC",
    "CCCO",
    "c1ccccc1",
    "c1ccccc1O",
    "c1ccccc1N",
    "CC(=O)O",
    "CC(=O)N",
    "CCOC",
    "CCOCC",
    "CC(C)O",
    "CC(C)C",
    "CCCl",
    "CCBr",
    "c1ccncc1",
    "Cc1ccccc1",
    "CC(=O)OC",
    "CC(=O)C",
    "CCC(=O)O",
    "C1CCCCC1",
    "C1CCCCC1O",
    "CCS",
    "CSC",
    "CC#N",
    "CCCN",
    "NCCO",
    "OCCO",
    "CC(C)(C)O",
    "CCCCO",
    "CCCCN",
    "c1ccsc1",
    "c1ccoc1",
    "CNC",
    "CN(C)C",
    "COC",
    "CO",
    "CN",
    "O=C(N)N",
    "OC(=O)CO",
    "ClC(Cl)Cl",
    "FC(F)F",
    "CCF",
    "CCI",
    "C=C",
    "C=CC",
    "CC=O",
    "CCC=O",
    "CCCC=O",
]
WORDS = ["north", "northeast", "east", "southeast", "south", "southwest", "west", "northwest"]


@dataclass(frozen=True)
class Data:
    """Training inputs X, queries Q, and the numbers behind both."""

    X: Any
    Q: Any
    latent: np.ndarray
    noise: np.ndarray
    seed: int

    @property
    def n(self) -> int:
        """The number of training samples."""
        return len(self.latent)

    @property
    def y(self) -> np.ndarray:
        """One number for each sample."""
        a, b = self.latent.T
        return np.sin(2.0 * a) + 0.5 * b**2 + 0.1 * self.noise[:, 0]

    @property
    def Y(self) -> np.ndarray:
        """Two numbers for each sample."""
        a, b = self.latent.T
        return np.column_stack([self.y, np.cos(2.0 * a) + b + 0.1 * self.noise[:, 1]])

    @property
    def missing(self) -> np.ndarray:
        """Two numbers for each sample, some of them missing."""
        Y = self.Y
        Y[::5, 0] = np.nan
        Y[2::7, 1] = np.nan
        return Y

    @property
    def gaps(self) -> np.ndarray:
        """One number for each sample, some of them missing."""
        return self.missing[:, 0]

    @property
    def labels(self) -> np.ndarray:
        """Three classes."""
        score = self.latent[:, 0] + 0.2 * self.noise[:, 0]
        return np.array(["high", "low", "mid"])[np.digitize(score, [-0.4, 0.4])]

    @property
    def pair(self) -> np.ndarray:
        """Two classes."""
        return (self.latent.sum(1) + 0.3 * self.noise[:, 0] > 0).astype(int)

    @property
    def words(self) -> list[str]:
        """One of eight words."""
        angles = np.arctan2(self.latent[:, 1], self.latent[:, 0]) + 0.1 * self.noise[:, 0]
        return [WORDS[int(4.0 * (angle / np.pi + 1.0)) % 8] for angle in angles]

    @property
    def tags(self) -> list[str]:
        """Words of five symbols that follow the inputs."""
        a, b = self.latent.T
        levels = np.stack([a, b, a + b, a - b, self.noise[:, 0]], 1)
        return ["".join("xyz"[i] for i in row) for row in np.digitize(levels, [-0.3, 0.3])]

    @property
    def sets(self) -> np.ndarray:
        """Sets of four labels, as indicators."""
        a, b = self.latent.T
        return (np.stack([a, b, a + b, a - b], 1) + 0.1 * self.noise[:, :1] > 0.1).astype(int)

    @property
    def ranks(self) -> np.ndarray:
        """Permutations of four items, as the signs of all comparisons."""
        a, b = self.latent.T
        scores = np.stack([a, b, a * b, -a], 1)
        one, two = np.triu_indices(4, 1)
        return np.sign(scores[:, one] - scores[:, two])

    @property
    def partial_words(self) -> list[str | None]:
        """Words, of which every sixth is missing."""
        return [None if i % 6 == 5 else word for i, word in enumerate(self.words)]

    @property
    def weight(self) -> np.ndarray:
        """Sample weights, one of which is zero."""
        weight = 0.5 + np.abs(self.noise[:, 2])
        weight[3] = 0.0
        return weight


def make_data(kind: str, n: int = 36, seed: int = 0, jitter: float = 0.0) -> Data:
    """Data of a kind that ``KINDS`` names, with relative errors of the size ``jitter``."""
    rng = np.random.default_rng(seed)
    latent = rng.uniform(-1.0, 1.0, (n + N_QUERIES, 2))
    noise = rng.normal(size=(n, 3))
    objects = KINDS[kind](latent, rng)
    if jitter:
        errors = np.random.default_rng(seed + 1)
        objects, noise = (_inexact(values, jitter, errors) for values in (objects, noise))
    if kind == "gram":
        X, Q = objects[:n, :n], objects[n:, :n]
    elif isinstance(objects, pd.DataFrame):
        X, Q = objects.iloc[:n], objects.iloc[n:].reset_index(drop=True)
    else:
        X, Q = objects[:n], objects[n:]
    return Data(X, Q, latent[:n], noise, seed)


def _inexact(values: Any, size: float, rng: np.random.Generator) -> Any:
    """Values whose numbers have relative errors; a symmetric matrix remains one."""
    if isinstance(values, list | tuple):
        return type(values)(_inexact(value, size, rng) for value in values)
    if isinstance(values, pd.DataFrame):
        numeric = values.select_dtypes("number")
        return values.assign(**{name: _inexact(numeric[name].to_numpy(), size, rng) for name in numeric})
    if not isinstance(values, np.ndarray):
        return values
    errors = rng.normal(size=values.shape)
    if values.ndim == 2 and values.shape[0] == values.shape[1] and np.array_equal(values, values.T):
        errors = (errors + errors.T) / 2.0
    return values * (1.0 + size * errors)


def _vectors(latent: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.column_stack([latent, 0.5 * rng.normal(size=len(latent))])


def _plane(latent: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return latent


def _strings(latent: np.ndarray, rng: np.random.Generator) -> list[str]:
    words = []
    for a, b in latent:
        weights = np.exp([a, b, -a, 0.0])
        words.append("".join(rng.choice(list("abcd"), rng.integers(5, 11), p=weights / weights.sum())))
    return words


def _graphs(latent: np.ndarray, rng: np.random.Generator) -> list[Graph]:
    graphs = []
    for a, b in latent:
        n = int(rng.integers(4, 8))
        edges = [(i, i + 1) for i in range(n - 1)]
        edges += [(i, j) for i in range(n) for j in range(i + 2, n) if rng.random() < 0.25 * (1 + b)]
        graphs.append(Graph(edges, ["C" if rng.random() < 0.5 * (1 + a) else "O" for _ in range(n)]))
    return graphs


def _molecules(latent: np.ndarray, rng: np.random.Generator) -> list[str]:
    order = rng.permutation(len(SMILES))
    return [SMILES[order[i % len(SMILES)]] for i in range(len(latent))]


def _bags(latent: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    return [rng.normal(row, 0.5, (int(rng.integers(2, 6)), 2)) for row in latent]


def _curves(latent: np.ndarray, rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
    curves = []
    for a, b in latent:
        times = np.sort(rng.uniform(0, 1, int(rng.integers(6, 11))))
        curves.append((times, a * np.sin(4 * times) + b * times + 0.05 * rng.normal(size=len(times))))
    return curves


def _series(latent: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    return [values for _, values in _curves(latent, rng)]


def _frame(latent: np.ndarray, rng: np.random.Generator) -> pd.DataFrame:
    colours = np.array(["red", "green", "blue"])[np.digitize(latent[:, 1], [-0.3, 0.3])]
    return pd.DataFrame(
        {
            "width": latent[:, 0] + 0.05 * rng.normal(size=len(latent)),
            "height": rng.normal(size=len(latent)),
            "colour": colours,
            "name": _strings(latent, rng),
        }
    )


def _records(latent: np.ndarray, rng: np.random.Generator) -> pd.DataFrame:
    """Numbers, categories, dates and texts, with gaps in all of them."""
    days = np.datetime64("2024-01-01") + np.round(200 * latent[:, 0]).astype("timedelta64[D]")
    rows = _frame(latent, rng).assign(day=days, text=[f"a {word} of things" for word in _strings(latent, rng)])
    return rows.assign(colour=rows["colour"].astype("category")).mask(rng.random(rows.shape) < 0.1)


def _gram(latent: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    X = _vectors(latent, rng)
    return np.exp(-((X[:, None] - X) ** 2).sum(-1)) + 0.1 * X @ X.T


def _fingerprints(latent: np.ndarray, rng: np.random.Generator) -> sparse.csr_array:
    weights = rng.normal(size=(2, 40))
    bits = rng.random((len(latent), 40)) < 1.0 / (1.0 + np.exp(1.0 - 2.0 * latent @ weights))
    bits[:, 0] = True
    return sparse.csr_array(bits.astype(float))


KINDS: dict[str, Any] = {
    "vectors": _vectors,
    "plane": _plane,
    "strings": _strings,
    "graphs": _graphs,
    "molecules": _molecules,
    "bags": _bags,
    "curves": _curves,
    "series": _series,
    "frame": _frame,
    "records": _records,
    "gram": _gram,
    "fingerprints": _fingerprints,
}


def numbers(values: Any) -> np.ndarray:
    """Values as floats: numbers as they are, any other object as a number that tells it from others."""
    if hasattr(values, "compute"):
        values = values.compute()
    if isinstance(values, list | tuple) and all(isinstance(value, np.ndarray) for value in values):
        return np.concatenate([numbers(value).ravel() for value in values])
    if isinstance(values, list) and values and isinstance(values[0], str | Graph | tuple | list | dict):
        return np.array([_code(value) for value in values])
    array = np.asarray(values)
    if array.dtype.kind in "OUS":
        return np.array([_code(value) for value in array.ravel().tolist()]).reshape(array.shape)
    return np.asarray(array, dtype=float)


def _code(value: Any) -> float:
    return float(zlib.crc32(repr(value).encode()))
