"""Laforgue, Clémençon, d'Alché-Buc: Autoencoding any data through kernel autoencoders (2019): figures, pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.datasets import load_digits, make_moons
from sklearn.decomposition import PCA, KernelPCA
from sklearn.kernel_ridge import KernelRidge
from sklearn.neighbors import KNeighborsClassifier

from papers.claims import at_most, lower
from papers.runner import Experiment, Result, Run
from representer import KernelAutoencoder, plotting
from representer.datasets import FACES, USPS, Source, load_faces, load_usps, make_circles3
from representer.kernels import Gaussian

PAPER = "Laforgue, Clémençon, d'Alché-Buc: Autoencoding any data through kernel autoencoders"
TRAINING, TEST, NEIGHBOUR = "training distortion", "test distortion", "1-NN error of the code"
LINE = "PCA"

# -- figure 3 ---------------------------------------------------------------------------------------------------------
CIRCLES = "three circles"
WIDTH = 0.5  # of the encoder's kernel
POINTS = (300, 100)  # of a full run, of a quick one
DRAWS = 5
SMALL = 1e-3  # both penalties, "small" as in the paper
KAE, KAE2 = "KAE 2-1-2", "KAE 2-2-2"


def circle_models(seed: int) -> dict[str, Any]:
    """PCA, kernel PCA with two widths, and the autoencoders."""
    fixed: dict[str, Any] = {"alpha": SMALL, "encoder_alpha": SMALL, "random_state": seed}
    return {
        LINE: PCA(1),
        "KPCA, width 0.5": KernelPCA(1, kernel="rbf", gamma=0.5 / WIDTH**2),
        "KPCA, width 1": KernelPCA(1, kernel="rbf", gamma=0.5),
        KAE: KernelAutoencoder(1, Gaussian(WIDTH), **fixed),
        f"{KAE}, penalties learned": KernelAutoencoder(1, Gaussian(WIDTH), "rbf", random_state=seed),
        # The widths are those of the recorded run, median distances; today's default learns them.
        f"{KAE}, defaults": KernelAutoencoder(1, "rbf", "rbf", random_state=seed),
        KAE2: KernelAutoencoder(2, Gaussian(WIDTH), **fixed),
    }


def circles(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Points on three circles, and the circle of each."""
    return make_circles3(n, random_state=rng)


def toy_result(
    make: Callable[[int, np.random.Generator], tuple[np.ndarray, np.ndarray]], model: Any, n: int, seed: int
) -> Result:
    """Distortion on the training points, and the error of 1-NN on the codes of as many new points."""
    rng = np.random.default_rng(seed)
    X, label = make(n, rng)
    new, truth = make(n, rng)
    codes = model.fit(X).transform(X)
    neighbour = KNeighborsClassifier(1).fit(codes, label)
    result: dict[str, Any] = {NEIGHBOUR: float(1.0 - neighbour.score(model.transform(new), truth))}
    if not isinstance(model, KernelPCA):
        result[TRAINING] = distortion(X, model.inverse_transform(codes))
        result[TEST] = distortion(new, model.inverse_transform(model.transform(new)))
        line = np.linspace(codes.min(), codes.max(), 2000)[:, None]
        result["curve"] = model.inverse_transform(line if codes.shape[1] == 1 else codes)
    return {**result, "X": X, "label": label, "codes": codes}


def distortion(X: np.ndarray, reconstructions: np.ndarray) -> float:
    """The mean of ‖x − x̂‖²."""
    return float(((X - reconstructions) ** 2).sum(1).mean())


def figure3(run: Run) -> None:
    """The curve through three circles, and the codes of their points."""
    n, seeds = (POINTS[1], 1) if run.quick else (POINTS[0], DRAWS)
    first: dict[str, Result] = {}
    for seed in range(seeds):
        for method, model in circle_models(seed).items():
            result = run.part(CIRCLES, method, seed, toy_result, circles, model, n, seed)
            if seed == 0:
                first[method] = result
    titles = ["points", "PCA 2-1-2", f"{KAE}, reconstructions", f"{KAE}, codes", f"{KAE2}, codes"]
    figure, axes = plotting.panels(1, len(titles), column_labels=titles)
    X, label = first[KAE]["X"], first[KAE]["label"]
    for ax in axes[0, :3]:
        ax.scatter(*X.T, c=label, s=8, cmap="viridis")
    for ax, method in zip(axes[0, 1:3], (LINE, KAE), strict=True):
        ax.plot(*first[method]["curve"].T, color="red", linewidth=0.8)
    axes[0, 3].scatter(first[KAE]["codes"][:, 0], label, c=label, s=8, cmap="viridis")
    axes[0, 3].set(xlabel="code", ylabel="circle", yticks=range(3))
    axes[0, 4].scatter(*first[KAE2]["codes"].T, c=label, s=8, cmap="viridis")
    run.figure(
        "circles",
        figure,
        "Points on three circles, the line of PCA and the curve of the autoencoder through them, and codes by circle.",
    )


# -- figures 5 to 7 ---------------------------------------------------------------------------------------------------
LINE_CLUSTERS, CLUSTERS, MOONS = "clusters on a line", "clusters in the plane", "two moons"
ONE, TWO, OFF = "KAE, code of 1", "KAE, code of 2", "share of the codes' variance off their first axis"


def clusters(centres: Sequence[Sequence[float]], deviation: float) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """Normal clusters around two centres, and the cluster of each point."""

    def make(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        label = np.arange(n) % 2
        return np.array(centres)[label] + deviation * rng.standard_normal((n, len(centres[0]))), label

    return make


def moons(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two moons with noise of 0.05."""
    return make_moons(n, noise=0.05, random_state=int(rng.integers(2**31)))


TOYS: dict[str, Callable[..., tuple[np.ndarray, np.ndarray]]] = {
    LINE_CLUSTERS: clusters([[0.0], [2.0]], 0.1),
    CLUSTERS: clusters([[0.0, 0.0], [2.0, 2.0]], 0.3),
    MOONS: moons,
}


def coded(make: Callable[..., tuple[np.ndarray, np.ndarray]], model: Any, n: int, seed: int) -> Result:
    """What ``toy_result`` measures, and of two codes how much of their variance is off one axis."""
    result = toy_result(make, model, n, seed)
    if (codes := result["codes"]).shape[1] == 1:
        return result
    values = np.linalg.eigvalsh(np.cov(codes.T))
    return {**result, OFF: float(values[0] / values.sum())}


def figures5to7(run: Run) -> None:
    """Codes of clusters and moons, by an autoencoder with a code of one and of two numbers."""
    n, seeds = (60, 1) if run.quick else (200, DRAWS)
    fixed: dict[str, Any] = {"alpha": SMALL, "encoder_alpha": SMALL}
    figure, axes = plotting.panels(2, len(TOYS), column_labels=list(TOYS), row_labels=[ONE, TWO])
    for column, (case, make) in zip(axes.T, TOYS.items(), strict=True):
        for seed in range(seeds):
            run.part(case, LINE, seed, coded, make, PCA(1), n, seed)
            for ax, method, size in ((column[0], ONE, 1), (column[1], TWO, 2)):
                model = KernelAutoencoder(size, Gaussian(WIDTH), **fixed, random_state=seed)
                result = run.part(case, method, seed, coded, make, model, n, seed)
                if seed == 0:
                    codes = result["codes"]
                    places = (result["X"][:, 0], codes[:, 0]) if size == 1 else codes.T
                    ax.scatter(*places, c=result["label"], s=8, cmap="viridis")
    run.figure("toys", figure, "Above, codes of one number against the first coordinate; below, codes of two numbers.")


# -- pictures ---------------------------------------------------------------------------------------------------------
SIZES = (2, 10)
DEFAULTS, RIDGE = "KAE, defaults", "KPCA + kernel ridge, tuned"
FIRST_SEED = 10


def digits(run: Run) -> np.ndarray:
    """1,797 digits of 8 × 8."""
    return np.asarray(load_digits().data)


def usps(run: Run) -> np.ndarray:
    """The digits of 16 × 16 of the published training set."""
    return np.asarray(load_usps("train", folder=run.data).data)


def faces(run: Run) -> np.ndarray:
    """400 faces of 64 × 64."""
    return np.asarray(load_faces(folder=run.data).data)


def pca_error(X: np.ndarray, T: np.ndarray, size: int, seed: int) -> Result:
    """Principal components."""
    model = PCA(size).fit(X)
    return {TEST: distortion(T, model.inverse_transform(model.transform(T)))}


def autoencoder_error(X: np.ndarray, T: np.ndarray, size: int, seed: int) -> Result:
    """The autoencoder with nothing but its code size."""
    model = KernelAutoencoder(size, "rbf", "rbf", random_state=seed).fit(X)
    return {TEST: float(model.reconstruction_error(T).mean())}


def ridge_error(X: np.ndarray, T: np.ndarray, size: int, seed: int) -> Result:
    """Kernel PCA and a ridge decoder; widths and penalty have the least error on a fifth of the training set."""
    rows = np.random.default_rng(seed).permutation(len(X))
    inner, held_out = X[rows[len(X) // 5 :]], X[rows[: len(X) // 5]]
    mean, best = inner.mean(0), (np.inf, 0.0, 0.0, 0.0)
    for width in np.array([0.1, 0.3, 1.0]) / (X.shape[1] * X.var()):
        encoder = KernelPCA(size, kernel="rbf", gamma=width).fit(inner)
        codes, new = encoder.transform(inner), encoder.transform(held_out)
        for gamma in np.geomspace(1.0, 300.0, 6):
            for alpha in np.geomspace(1e-4, 1e-1, 4):
                decoder = KernelRidge(kernel="rbf", gamma=gamma, alpha=alpha).fit(codes, inner - mean)
                best = min(best, (distortion(held_out, decoder.predict(new) + mean), width, gamma, alpha))
    _, width, gamma, alpha = best
    encoder, mean = KernelPCA(size, kernel="rbf", gamma=width).fit(X), X.mean(0)
    decoder = KernelRidge(kernel="rbf", gamma=gamma, alpha=alpha).fit(encoder.transform(X), X - mean)
    return {TEST: distortion(T, decoder.predict(encoder.transform(T)) + mean)}


def case_of(name: str, size: int) -> str:
    """A row of the report."""
    return f"{name}, code of {size}"


def pictures(name: str) -> Callable[[Run], None]:
    """The experiment on one set of pictures."""

    def function(run: Run) -> None:
        task = PICTURES[name]
        X = task.load(run)
        X = X / X.std()
        n_train, n_test, splits = (100, 100, 1) if run.quick else (task.train, task.test, task.splits)
        for seed in range(FIRST_SEED, FIRST_SEED + splits):
            order = np.random.default_rng(seed).permutation(len(X))
            train, test = X[order[:n_train]], X[order[n_train : n_train + n_test]]
            for size in SIZES:
                methods = {LINE: pca_error, RIDGE: ridge_error, DEFAULTS: autoencoder_error}
                for method, function in methods.items():
                    run.part(case_of(name, size), method, seed, function, train, test, size, seed)

    return function


@dataclass(frozen=True)
class Pictures:
    """A set, its random splits, and how far below PCA the distortion shall be by code size."""

    load: Callable[[Run], np.ndarray]
    source: Source | None
    train: int
    test: int
    splits: int
    factors: dict[int, float]


PICTURES = {
    "digits": Pictures(digits, None, 1000, 797, 5, {2: 0.75, 10: 0.5}),
    "usps": Pictures(usps, USPS, 1000, 1000, 3, {2: 1.0, 10: 1.0}),
    "faces": Pictures(faces, FACES, 300, 100, 3, {2: 1.0, 10: 1.0}),
}


def picture_experiment(name: str) -> Experiment:
    """One set of pictures: its claims are those of the library, since the paper has none."""
    task = PICTURES[name]
    claims = []
    for size, factor in task.factors.items():
        case = case_of(name, size)
        goal = f"at most {factor} × PCA's" if factor < 1 else "below PCA's"
        claims.append(lower(f"{case}: test distortion {goal}", TEST, case, DEFAULTS, LINE, factor))
        if factor < 1:
            text = f"{case}: below kernel PCA with a tuned kernel-ridge decoder"
            claims.append(lower(text, TEST, case, DEFAULTS, RIDGE))
    return Experiment(
        f"laforgue-{name}",
        PAPER,
        f"beyond the paper: {name}",
        f"{task.load.__doc__} Grey values divided by their standard deviation over all pictures; {task.train} to train "
        f"on, {task.test} to test, random splits of seeds {FIRST_SEED} to {FIRST_SEED + task.splits - 1} (quick: 100 "
        f"and 100, one split). The autoencoder has its defaults. Kernel PCA + kernel ridge: widths and penalty of "
        f"least error on a fifth of the training set. Distortion is the mean of ‖x − x̂‖².",
        tuple(claims),
        pictures(name),
        () if task.source is None else (task.source,),
    )


EXPERIMENTS = (
    Experiment(
        "laforgue-figure3",
        PAPER,
        "Figure 3",
        f"{POINTS[0]} points (quick: {POINTS[1]}) on three circles of radius 0.5, 1.5 and 2.5 with radial "
        f"noise of standard deviation 0.1; the encoder has a Gaussian kernel of width {WIDTH}, both penalties are "
        f"{SMALL:g}, as many new points for 1-NN on the codes; {DRAWS} draws (quick: one). Published: a curve through "
        f"the circles in the place of a line, codes that tell the circles apart; no numbers. Beside it: penalties "
        f"learned, and all defaults; kernel PCA.",
        (
            lower("2-1-2: at most 0.2 × the training distortion of a line", TRAINING, CIRCLES, KAE, LINE, 0.2),
            lower("2-1-2: codes tell circles apart better than a line", NEIGHBOUR, CIRCLES, KAE, LINE),
            lower("2-1-2, defaults: below the line", TRAINING, CIRCLES, f"{KAE}, defaults", LINE),
            lower("2-2-2: codes tell circles apart better than those of 2-1-2", NEIGHBOUR, CIRCLES, KAE2, KAE),
        ),
        figure3,
    ),
    Experiment(
        "laforgue-figures5-7",
        PAPER,
        "Figures 5 to 7",
        f"200 points (quick: 60): two normal clusters on a line (at 0 and 2, standard deviation 0.1), two in the plane "
        f"(at 0 and (2, 2), standard deviation 0.3), two moons with noise of 0.05; codes of one and two numbers, the "
        f"encoder's kernel and penalties as in figure 3, as many new points for 1-NN on the codes, {DRAWS} draws "
        f"(quick: one). Published: pictures of codes that tell clusters and moons apart; two codes of a line that are "
        f"highly correlated.",
        (
            at_most(f"{LINE_CLUSTERS}: codes tell clusters apart", NEIGHBOUR, LINE_CLUSTERS, ONE, 0.01),
            at_most(f"{CLUSTERS}: codes tell clusters apart", NEIGHBOUR, CLUSTERS, ONE, 0.01),
            lower(f"{MOONS}: codes of one tell moons apart better than a line", NEIGHBOUR, MOONS, ONE, LINE),
            at_most(f"{MOONS}: codes of two tell moons apart", NEIGHBOUR, MOONS, TWO, 0.01),
            at_most(f"{LINE_CLUSTERS}: two codes lie nearly on one axis", OFF, LINE_CLUSTERS, TWO, 0.1),
        ),
        figures5to7,
    ),
    *(picture_experiment(name) for name in PICTURES),
)
