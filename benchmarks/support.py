"""``python -m benchmarks.support``: who knows what it does not know.

The area under the curve of scores that tell inputs like the training data from others: digits 0 to 4 from 5 to 9,
digits from letters, and molecules with scaffolds that were seen from others.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.ensemble import IsolationForest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

from representer import EmbeddingClassifier, OperatorRidge
from representer.cli import console_for, print_json
from representer.datasets.files import data_folder
from representer.estimators.fingerprints import Morgan
from representer.kernels import Gaussian
from runs.terminal import command, interrupted

SIZE = 400  # training samples


# -- inputs unlike the training data ----------------------------------------------------------------------------------
def digits_and_digits(seed: int) -> tuple[Any, ...]:
    """Training images and classes of the digits 0 to 4, more of them, and images of 5 to 9."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(X))
    X, y = X[order] / 16.0, y[order]
    known, labels = X[y < 5], y[y < 5]
    return known[:SIZE], labels[:SIZE], known[SIZE:], X[y >= 5]


def digits_and_letters(seed: int) -> tuple[Any, ...]:
    """Digits of 16 × 16 points, and letters in the same frame."""
    rng, folder = np.random.default_rng(seed), data_folder()
    usps, letters = np.load(folder / "usps.npz"), np.load(folder / "ocr_letters.npz")
    digits, labels = usps["X_train"].astype(float), usps["y_train"]
    digits /= digits.max()
    pixels = letters["pixels"].reshape(-1, 16, 8).astype(float)
    framed = np.pad(pixels / pixels.max(), ((0, 0), (0, 0), (4, 4))).reshape(len(pixels), -1)
    order, chosen = rng.permutation(len(digits)), rng.permutation(len(framed))[:SIZE]
    digits, labels = digits[order], labels[order]
    return digits[:SIZE], labels[:SIZE], digits[SIZE : 2 * SIZE], framed[chosen]


def scaffolds(seed: int) -> tuple[Any, ...]:
    """Fingerprints of molecules whose scaffolds are among the training ones, and of those with other ones."""
    from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

    table = pd.read_csv(data_folder() / "bace.csv")
    smiles, y = table["smiles"].to_numpy(), table["pIC50"].to_numpy(dtype=float)
    names = np.unique([MurckoScaffoldSmiles(smiles=each) for each in smiles], return_inverse=True)[1]
    rng = np.random.default_rng(seed)
    sizes = np.bincount(names)
    often = np.flatnonzero(sizes >= 3)
    seen = np.isin(names, rng.permutation(often)[: len(often) // 2])
    inside, outside = rng.permutation(np.flatnonzero(seen)), rng.permutation(np.flatnonzero(~seen))
    X = np.asarray(Morgan(counts=False).fit_transform(list(smiles)), dtype=float)
    size = min(SIZE, len(inside) * 2 // 3)
    return X[inside[:size]], y[inside[:size]], X[inside[size:]], X[outside[:SIZE]]


SETS = {"digits 0-4 | 5-9": digits_and_digits, "digits | letters": digits_and_letters, "scaffolds": scaffolds}


def scores(X: np.ndarray, y: np.ndarray, new: np.ndarray, *, classes: bool) -> dict[str, np.ndarray]:
    """How like the training data new inputs are, by each method."""
    ours = (EmbeddingClassifier() if classes else OperatorRidge("rbf")).fit(X, y)
    target = y.astype(float)
    found = {
        "support": ours.support(new),
        "GP variance": variance(X, target, new),
        "isolation forest": IsolationForest(random_state=0).fit(X).score_samples(new),
    }
    if classes:
        scale = StandardScaler().fit(X)
        found["max probability"] = ours.predict_proba(new).max(1)
        found["support, one lengthscale"] = EmbeddingClassifier(Gaussian("auto")).fit(X, y).support(new)
        found["GP variance, standardised"] = variance(scale.transform(X), target, scale.transform(new))
    return found


def variance(X: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Minus the deviations of a Gaussian process of greatest marginal likelihood."""
    process = GaussianProcessRegressor(RBF(np.sqrt(X.shape[1]) / 2.0) + WhiteKernel(0.1), normalize_y=True).fit(X, y)
    return -process.predict(new, return_std=True)[1]


def areas(name: str, splits: int) -> dict[str, list[float]]:
    """The area under the curve of each method, of each split."""
    found: dict[str, list[float]] = {}
    for seed in range(splits):
        X, y, like, unlike = SETS[name](seed)
        of_each = scores(X, y, np.vstack([like, unlike]), classes=name != "scaffolds")
        truth = np.repeat([1, 0], [len(like), len(unlike)])
        for method, score in of_each.items():
            found.setdefault(method, []).append(float(roc_auc_score(truth, score)))
    return found


# -- the command ------------------------------------------------------------------------------------------------------
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = command("python -m benchmarks.support", "Measure scores of unusual inputs.")
    parser.add_argument("--quick", action="store_true", help="one split of scikit-learn's digits")
    parser.add_argument("--splits", type=int, default=3)
    options = parser.parse_args(arguments)
    console, report = console_for(options.json_output), dict[str, Any]()
    files = [data_folder() / file for file in ("usps.npz", "ocr_letters.npz", "bace.csv")]
    names = list(SETS)[: 1 if options.quick or not all(file.is_file() for file in files) else None]
    splits = 1 if options.quick else options.splits
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            report["areas"] = {name: areas(name, splits) for name in names}
            console.print(table_of_areas(report["areas"]))
    except KeyboardInterrupt:
        return interrupted(console, "What was measured is above.")
    if options.json_output:
        print_json(report)
    return 0


def table_of_areas(results: dict[str, dict[str, list[float]]]) -> Table:
    """One row a set, one column a method."""
    methods = list(dict.fromkeys(method for result in results.values() for method in result))
    table = Table("area under the curve", *methods)
    for name, result in results.items():
        table.add_row(name, *(f"{np.mean(result[m]):.3f}" if m in result else "" for m in methods))
    return table


if __name__ == "__main__":
    sys.exit(main())
