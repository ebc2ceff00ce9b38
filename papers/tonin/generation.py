"""Tonin, Tao, Patrinos, Suykens (2023): reconstructions and traversals (figures 5 and 6), on digits and faces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from papers.claims import lower
from papers.runner import Experiment, Result, Run
from papers.tonin.tables import PAPER
from representer import DeepKernelPCA, plotting
from representer.datasets import FACES, Source, load_faces
from representer.kernels import Gaussian, Linear, Neural
from representer.preimage import Network

ERROR = "test error"
LINE, NETWORKS = "PCA", "networks"
N_COMPONENTS, SEEDS, SHOWN = 10, 3, 8


@dataclass(frozen=True)
class Pictures:
    """Rows of grey values in [0, 1], how many to train on and to test, and the pre-images that are compared."""

    load: Callable[[Run], np.ndarray]
    side: int
    train: int
    test: int
    maps: tuple[str, ...]
    passes: int  # of the networks; 0: none
    source: Source | None = None


def digits(run: Run) -> np.ndarray:
    """scikit-learn's digits."""
    return load_digits().data / 16.0


def faces(run: Run) -> np.ndarray:
    """Olivetti faces."""
    return load_faces(folder=run.data).data


PICTURES = {
    "digits": Pictures(digits, 8, 400, 300, ("ridge", "gradient", "weighted", "nearest"), 300),
    "faces": Pictures(faces, 64, 300, 100, ("ridge",), 0, FACES),
}


def networks(n_pixels: int, seed: int) -> tuple[torch.nn.Module, torch.nn.Module]:
    """An encoder to 32 features and a decoder to pixels in [0, 1]."""
    nn = torch.nn
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        encoder = nn.Sequential(nn.Linear(n_pixels, 128), nn.PReLU(init=0.2), nn.Linear(128, 32))
        decoder = nn.Sequential(nn.Linear(32, 128), nn.PReLU(init=0.2), nn.Linear(128, n_pixels), nn.Sigmoid())
    return encoder, decoder


def reconstructed(model: Any, train: np.ndarray, test: np.ndarray, level: int | None) -> Result:
    """The squared error of new pictures, with some of them and, of a level, traversals from the first."""
    model = model.fit(train)
    if level is None:
        back = model.inverse_transform(model.transform(test))
        return {ERROR: float(((test - back) ** 2).sum(1).mean()), "pictures": back[:SHOWN]}
    back = model.reconstruct(test, level)
    paths = [model.traverse(c, level, SHOWN, start=test[:1]) for c in (0, 1, 2)]
    return {
        ERROR: float(((test - back) ** 2).sum(1).mean()),
        "pictures": back[:SHOWN],
        "paths": np.stack(paths),
    }


def models(task: Pictures, seed: int, quick: bool) -> dict[str, tuple[Any, int | None]]:
    """PCA, and both levels with every map back."""
    sizes = [N_COMPONENTS, N_COMPONENTS]
    chosen: dict[str, tuple[Any, int | None]] = {LINE: (PCA(N_COMPONENTS), None)}
    for how in task.maps[:1] if quick else task.maps:
        for level in (0, 1):
            levels: list[Any] = [Gaussian("median"), Gaussian(1.0)]
            model = DeepKernelPCA(sizes, levels, center="data", preimage=how, random_state=seed)
            chosen[f"{how}, level {level}"] = (model, level)
    if task.passes:
        encoder, decoder = networks(task.side**2, seed)
        trained = Network(decoder, max_iter=3 if quick else task.passes)
        networked: list[Any] = [Neural(encoder, Linear()), Linear()]
        model = DeepKernelPCA(sizes, networked, center="data", preimage=trained, random_state=seed)
        chosen[NETWORKS] = (model, 0)
    return chosen


def experiment(name: str) -> Experiment:
    """One set of pictures."""
    task = PICTURES[name]

    def function(run: Run) -> None:
        X = task.load(run)
        n_train, n_test = (80, 40) if run.quick else (task.train, task.test)
        first: dict[str, Result] = {}
        for seed in range(1 if run.quick else SEEDS):
            order = np.random.default_rng(seed).permutation(len(X))
            train, test = X[order[:n_train]], X[order[n_train : n_train + n_test]]
            for method, (model, level) in models(task, seed, run.quick).items():
                result = run.part(name, method, seed, reconstructed, model, train, test, level)
                if seed == 0:
                    first[method] = {**result, "truth": test[:SHOWN]}
        draw(run, first, task.side)

    ridge = "ridge, level 0"
    claims = [lower(f"{name}: ridge from level 0 below PCA", ERROR, name, ridge, LINE)]
    if task.passes:
        claims.append(lower(f"{name}: networks below PCA", ERROR, name, NETWORKS, LINE))
    return Experiment(
        f"tonin-{name}",
        PAPER,
        f"figures 5 and 6, on {name}",
        f"{task.load.__doc__} {task.train} to train on, {task.test} to test (quick: 80 and 40), {SEEDS} splits (quick: "
        f"one). {N_COMPONENTS} components in each of two Gaussian levels (median distance, and 1) and the pre-image "
        f"maps that are named; networks: dense ones of 128 hidden units around 32 features, {task.passes} passes. The "
        f"squared error of a picture. Published: pictures only.",
        tuple(claims),
        function,
        () if task.source is None else (task.source,),
    )


def draw(run: Run, first: dict[str, Result], side: int) -> None:
    """Pictures, their reconstructions, and traversals of three components of each level."""
    rows = {"new": first[LINE]["truth"], "PCA": first[LINE]["pictures"]}
    for method, result in first.items():
        if method.startswith("ridge") or method == NETWORKS:
            rows[method.replace("ridge, ", "")] = result["pictures"]
    for level in (0, 1):
        for c, path in enumerate(first[f"ridge, level {level}"]["paths"]):
            rows[f"{level}: {c}"] = path
    figure, axes = plotting.panels(len(rows), SHOWN, size=0.95, row_labels=list(rows))
    for row, pictures in zip(axes, rows.values(), strict=True):
        for ax, picture in zip(row, pictures, strict=True):
            ax.imshow(np.reshape(picture, (side, side)), cmap="gray", vmin=0.0, vmax=1.0)
            ax.set(xticks=[], yticks=[])
    run.figure(
        "pictures",
        figure,
        "New pictures, below them what each method makes of them, and traversals of three components of each level.",
    )


EXPERIMENTS = tuple(experiment(name) for name in PICTURES)
