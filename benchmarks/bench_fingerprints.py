"""Gram matrices of fingerprints and bags, against the matrix product, RDKit, and loops over pairs."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy import sparse

from benchmarks._timing import Row, compare, not_run, scaled
from representer.kernels import Gaussian, Kernel, MeanMap, MinMax, Molecule, Tanimoto

BULK = "Molecule k(X), against RDKit in bulk"


def fingerprints(n: int, n_bits: int, share: float) -> np.ndarray:
    """Random bits, some common and most rare, as in molecules; about ``share`` of them if that is small."""
    rng = np.random.default_rng(0)
    frequency = rng.pareto(1.0, n_bits) + 0.2
    return (rng.random((n, n_bits)) < np.minimum(frequency * share / frequency.mean(), 0.95)).astype(np.uint8)


def rows() -> list[Row]:
    """Bits and counts at the size of the goal, then peers at smaller sizes."""
    found = []
    for share in (0.03, 3.0):  # surroundings of atoms set few bits, paths about half of them
        bits = fingerprints(scaled(10_000), 2048, share)
        single = torch.from_numpy(bits).float()
        size = f"{len(bits):,} × 2,048, {bits.mean():.0%} set"
        forms: list[tuple[str, Kernel, Any]] = [("packed", Tanimoto(packed=True), np.packbits(bits, axis=1))]
        if share < 0.1:
            counts = bits * np.random.default_rng(1).integers(1, 4, bits.shape)
            forms += [
                ("sparse", Tanimoto(), sparse.csr_array(bits)),
                ("dense", Tanimoto(), bits.astype(float)),
            ]
            forms += [("sparse counts", MinMax(), sparse.csr_array(counts))]
        for form, kernel, data in forms:
            found.append(
                compare(
                    f"{type(kernel).__name__} k(X), {form}, against the product in float32",
                    size,
                    ours=lambda kernel=kernel, data=data: kernel(data),
                    reference=lambda single=single: single @ single.mT,
                    goal=None if form == "sparse counts" else 2.0,
                    repeats=3,
                )
            )
    found += [_minmax(), _mean_map()]
    if importlib.util.find_spec("rdkit") is None:
        return [*found, not_run(BULK, 'rdkit is not installed: pip install "representer[molecules]"')]
    return [*found, _rdkit()]


def _agree(ours: Callable[[], Any], reference: Callable[[], Any]) -> dict[str, Callable[[], Any]]:
    np.testing.assert_allclose(ours(), reference(), rtol=1e-10, atol=1e-14)
    return {"ours": ours, "reference": reference}


def _minmax() -> Row:
    bits = fingerprints(scaled(1000), 1024, 0.03)
    counts = (bits * np.random.default_rng(1).integers(1, 4, bits.shape)).astype(float)
    X = torch.from_numpy(counts)

    def by_distances() -> torch.Tensor:
        distance, total = torch.cdist(X, X, p=1.0), X.sum(1)[:, None] + X.sum(1)
        return (total - distance) / (total + distance)

    pair = _agree(lambda: MinMax()(counts), by_distances)
    return compare("MinMax k(X), against ℓ₁ distances", f"{len(bits):,} × 1,024", **pair)


def _rdkit() -> Row:
    from rdkit import Chem, DataStructs
    from rdkit.Chem import rdFingerprintGenerator

    rng = np.random.default_rng(0)
    parts = ["C", "CC", "C(=O)", "N", "O", "c1ccccc1", "C(F)", "S", "C(C)", "c1ccncc1", "CC(C)C", "OC"]
    molecules = [Chem.MolFromSmiles("C" + "".join(rng.choice(parts, 8)) + "C") for _ in range(scaled(2000))]
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2)

    def bulk() -> np.ndarray:
        made = [generator.GetFingerprint(molecule) for molecule in molecules]
        return np.array([DataStructs.BulkTanimotoSimilarity(one, made) for one in made])

    return compare(BULK, f"{len(molecules):,} molecules", **_agree(lambda: Molecule()(molecules), bulk))


def _mean_map() -> Row:
    rng = np.random.default_rng(0)
    bags = [torch.from_numpy(rng.standard_normal((rng.integers(5, 40), 3))) for _ in range(scaled(150, 20))]
    kernel = Gaussian(1.0)

    def by_pairs() -> torch.Tensor:
        return torch.stack([torch.stack([kernel(one, two).mean() for two in bags]) for one in bags])

    return compare(
        "MeanMap k(X), against a call for each pair of bags",
        f"{len(bags)} bags",
        **_agree(lambda: MeanMap(kernel)(bags), by_pairs),
    )
