"""Hsu, Nock, Ramos (2018), figure 2: MNIST by training size, the relevance of pixels, convolutional embeddings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.svm import SVC

from papers.claims import lower
from papers.hsu.table1 import ECE, ERROR, LOG_LOSS, PAPER, embedding
from papers.runner import Experiment, Result, Run
from representer import EmbeddingClassifier, plotting
from representer.datasets import MNIST, load_mnist
from representer.kernels import Gaussian, Linear, Neural
from representer.metrics import expected_calibration_error

SIZES = (50, 100, 250, 500, 1000, 2000, 5000)
EPOCHS = (2, 5, 10)
LARGEST_GPC = 100
GROUPS = {"0 and 1": (0, 1), "3 and 8": (3, 8), "4 and 9": (4, 9), "all digits": tuple(range(10))}
DEFAULT, BOUND, ERM, CEN, SOFTMAX = "our default", "MCE", "MCE without the bound", "CEN", "softmax"


def digits(run: Run, n_train: int, n_test: int, seed: int) -> tuple[np.ndarray, ...]:
    """Random digits of the training set, and the first of the test set."""
    train, test = (load_mnist(part, folder=run.data) for part in ("train", "test"))
    rows = np.random.default_rng(seed).permutation(len(train.data))[:n_train]
    A, B = (np.asarray(X, dtype=np.float64) for X in (train.data[rows], test.data[:n_test]))
    return A, B, train.target[rows], test.target[:n_test]


# -- accuracy by training size ----------------------------------------------------------------------------------------
def models(n: int) -> dict[str, Any]:
    """One lengthscale for all pixels; the paper's methods start at 1."""
    one = {"kernel": Gaussian("auto")}
    found: dict[str, Any] = {
        DEFAULT: EmbeddingClassifier(Gaussian("auto"), random_state=0),
        BOUND: embedding(**one),
        ERM: embedding(criterion="erm", max_iter=100, **one),
        "SVC": SVC(gamma=0.5, probability=False),
        "SVC, gamma='scale'": SVC(),
    }
    if n <= LARGEST_GPC:
        found["GPC"] = GaussianProcessClassifier(RBF(1.0), random_state=0)
    return found


def size_scores(model: Any, A: np.ndarray, B: np.ndarray, a: np.ndarray, b: np.ndarray) -> Result:
    """On the test digits."""
    model.fit(A, a)
    scores = {ERROR: 100.0 * float(np.mean(model.predict(B) != b))}
    if hasattr(model, "predict_proba"):
        p = np.clip(model.predict_proba(B), 1e-15, 1.0)
        p /= p.sum(1, keepdims=True)
        known = np.isin(b, model.classes_)
        scores[LOG_LOSS] = log_loss(b[known], p[known], labels=model.classes_)
        scores[ECE] = expected_calibration_error(b, p, model.classes_)
    return scores


def by_size(run: Run) -> None:
    """Test error against the number of training digits."""
    sizes = SIZES[:4] if run.quick else SIZES
    curves: dict[str, list[tuple[int, float]]] = {}
    for n in sizes:
        parts = digits(run, n, 1000 if run.quick else 10000, 0)
        for method, model in models(n).items():
            result = run.part(f"n = {n}", method, 0, size_scores, model, *parts)
            curves.setdefault(method, []).append((n, 100.0 - result[ERROR]))
    figure, axes = plotting.panels(1, 1, size=4.5)
    for method, points in curves.items():
        axes[0, 0].semilogx(*zip(*points, strict=True), "o-", label=method)
    axes[0, 0].set(xlabel="training digits", ylabel="% right")
    axes[0, 0].legend()
    run.figure(
        "accuracy",
        figure,
        "The share of test digits that each method gets right, against the number of training digits.",
    )


# -- the relevance of pixels ------------------------------------------------------------------------------------------
def relevance_of(group: tuple[int, ...], run: Run) -> Result:
    """Lengthscales of 784 pixels by the bound on batches, beside one for all."""
    A, B, a, b = digits(run, 8000, 4000, 1)
    A, a = A[np.isin(a, group)][:600], a[np.isin(a, group)][:600]
    B, b = B[np.isin(b, group)], b[np.isin(b, group)]
    steps = {"solver": "adam", "batch_size": 300, "max_iter": 40, "tol": 0.0}
    start = {"alpha": 0.01, "lengthscale": 7.0}
    ard = embedding(kernel=Gaussian("ard"), start=start, **steps).fit(A, a)
    one = embedding(kernel=Gaussian("auto"), start=start).fit(A, a)
    relevance = 1.0 / np.asarray(ard.kernel_.lengthscale)
    return {
        ERROR: 100.0 * (1.0 - ard.score(B, b)),
        "error rate of one lengthscale": 100.0 * (1.0 - one.score(B, b)),
        "share of the relevance in a tenth of the pixels": float(np.sort(relevance)[-78:].sum() / relevance.sum()),
        "relevance": relevance.astype(np.float32),
    }


def pixels(run: Run) -> None:
    """Maps of inverse lengthscales."""
    groups = dict(list(GROUPS.items())[: 2 if run.quick else None])
    figure, axes = plotting.panels(1, len(groups), column_labels=list(groups))
    for ax, (case, group) in zip(axes[0], groups.items(), strict=True):
        result = run.part(case, "ARD", 0, relevance_of, group, run)
        ax.imshow(result["relevance"].reshape(28, 28), cmap="magma")
        ax.set_axis_off()
    run.figure(
        "relevance",
        figure,
        "A map of the 28 × 28 pixels for each group of digits: the brighter a pixel, the smaller its lengthscale.",
    )


# -- convolutions -----------------------------------------------------------------------------------------------------
FEATURES, MANY_FEATURES = 32, 256
# Channels and features: the small network, and that of the tutorial which the paper names, on fewer digits.
CHANNELS, TUTORIAL_CHANNELS, TUTORIAL_FEATURES, TUTORIAL_DIGITS = (8, 16), (32, 64), 1024, 4000
TUTORIAL = f"{EPOCHS[-1]} epochs, the paper's network, {TUTORIAL_DIGITS:,} digits"
LOGISTIC_ERROR = "error rate of a logistic regression on its features"


def convolutions(seed: int, dropout: float = 0.0, features: int = FEATURES) -> torch.nn.Sequential:
    """Two convolutions with pooling and a layer of features, of weights that the seed decides, with dropout.

    With as many features as the tutorial it has its channels, too.
    """
    first, second = TUTORIAL_CHANNELS if features == TUTORIAL_FEATURES else CHANNELS
    module = torch.nn.Sequential(
        torch.nn.Conv2d(1, first, 5, padding=2),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(first, second, 5, padding=2),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(second * 49, features),
        torch.nn.ReLU(),
        torch.nn.Dropout(dropout),
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in module.parameters():
            fan_in = weight[0].numel() if weight.ndim > 1 else 0
            if fan_in:
                weight.copy_(torch.randn(weight.shape, generator=generator) * (2.0 / fan_in) ** 0.5)
            else:
                weight.fill_(0.1)
    return module


def embedding_network(
    epochs: int, batch: int, seed: int, data: tuple[np.ndarray, ...], dropout: float, features: int = FEATURES
) -> Result:
    """A linear kernel on the features, by the bound on batches; and what other than least squares makes of these."""
    A, B = (X.reshape(-1, 28, 28).astype(np.float32) for X in data[:2])
    kernel = Neural(convolutions(seed, dropout, features), Linear())
    options = {"solver": "adam", "learning_rate": 0.003, "max_iter": epochs, "batch_size": batch, "tol": 0.0}
    model = embedding(kernel=kernel, start={"alpha": 0.1}, dtype="float32", **options).fit(A, data[2])
    scores = size_scores_of(model.predict_proba(B), data[3])
    network = model.kernel_.module.eval()
    with torch.no_grad():
        seen, new = (network(torch.from_numpy(X)[:, None]).numpy() for X in (A, B))
    logistic = LogisticRegression(max_iter=300).fit(seen, data[2])
    return {**scores, LOGISTIC_ERROR: 100.0 * (1.0 - logistic.score(new, data[3]))}


def softmax_network(
    epochs: int, batch: int, seed: int, data: tuple[np.ndarray, ...], dropout: float, features: int = FEATURES
) -> Result:
    """The same features and a softmax layer, by cross entropy on as many batches."""
    A, B, a, b = data
    inner, head = convolutions(seed, dropout, features), torch.nn.Linear(features, 10)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        head.weight.copy_(torch.randn(head.weight.shape, generator=generator) * (1.0 / features) ** 0.5)
        head.bias.zero_()
    module = torch.nn.Sequential(inner, head)
    X, y = torch.from_numpy(A.reshape(-1, 1, 28, 28)).float(), torch.from_numpy(a)
    adam = torch.optim.Adam(module.parameters(), lr=0.003)
    torch.manual_seed(seed)  # of the masks
    for _ in range(epochs):
        for rows in torch.randperm(len(X), generator=generator).split(batch):
            loss = torch.nn.functional.cross_entropy(module(X[rows]), y[rows])
            adam.zero_grad()
            loss.backward()
            adam.step()
    module.eval()
    with torch.no_grad():
        p = torch.softmax(module(torch.from_numpy(B.reshape(-1, 1, 28, 28)).float()), 1).double().numpy()
    return size_scores_of(p, b)


def size_scores_of(p: np.ndarray, b: np.ndarray) -> Result:
    """Of probabilities of the ten digits."""
    p = np.clip(p, 1e-15, 1.0)
    p /= p.sum(1, keepdims=True)
    error = 100.0 * float(np.mean(p.argmax(1) != b))
    return {
        ERROR: error,
        LOG_LOSS: log_loss(b, p, labels=range(10)),
        ECE: expected_calibration_error(b, p, range(10)),
    }


def networks(n_train: int, n_test: int, batch: int, dropout: float) -> Callable[[Run], None]:
    """The same network with an embedding and with a softmax on top, after the same epochs.

    With dropout also, after the most epochs and for two seeds, the network without it and one of more features, and
    for one seed the network of the tutorial on fewer digits.
    """

    def function(run: Run) -> None:
        data = digits(run, 300 if run.quick else n_train, 500 if run.quick else n_test, 2)
        cases = [(f"{epochs} epochs", epochs, dropout, FEATURES, 3) for epochs in EPOCHS]
        if dropout:
            cases.append((f"{EPOCHS[-1]} epochs, no dropout", EPOCHS[-1], 0.0, FEATURES, 2))
            cases.append((f"{EPOCHS[-1]} epochs, {MANY_FEATURES} features", EPOCHS[-1], dropout, MANY_FEATURES, 2))
        for case, epochs, share, features, seeds in cases:
            for seed in range(1 if run.quick else seeds):
                for method, scores in ((CEN, embedding_network), (SOFTMAX, softmax_network)):
                    run.part(case, method, seed, scores, epochs, batch, seed, data, share, features)
        if dropout:
            A, B, a, b = data
            few = A[:TUTORIAL_DIGITS], B, a[:TUTORIAL_DIGITS], b
            epochs = 1 if run.quick else EPOCHS[-1]
            for method, scores in ((CEN, embedding_network), (SOFTMAX, softmax_network)):
                run.part(TUTORIAL, method, 0, scores, epochs, batch, 0, few, dropout, TUTORIAL_FEATURES)

    return function


EXPERIMENTS = (
    Experiment(
        "hsu-figure2-sizes",
        PAPER,
        "figure 2, top left",
        "50 to 5,000 random digits, the 10,000 test digits (quick: to 500, and 1,000). One lengthscale for all pixels; "
        "MCE and MCE without the bound from the paper's start. SVC with the lengthscale 1, as in the paper, and with "
        f"gamma='scale'; GPC up to {LARGEST_GPC} digits.",
        (
            lower("our default has less error than the MCE, 500 digits", ERROR, "n = 500", DEFAULT, BOUND),
            lower(
                "the MCE has less error than an SVC of the same start, 500 digits",
                ERROR,
                "n = 500",
                BOUND,
                "SVC",
            ),
        ),
        by_size,
        (MNIST,),
    ),
    Experiment(
        "hsu-figure2-relevance",
        PAPER,
        "figure 2, bottom",
        "Groups of digits, 600 for training; one lengthscale a pixel by Adam on batches of 300, 40 epochs, beside one "
        "lengthscale for all.",
        (),
        pixels,
        (MNIST,),
    ),
    Experiment(
        "hsu-figure2-networks",
        PAPER,
        "figure 2, top right",
        "2,000 digits for training, 5,000 for testing; two convolutions and 32 features, with an embedding or a "
        "softmax on top, from the same weights, by Adam (rate 0.003) on batches of 250, without dropout; 3 seeds "
        "(quick: 300 and 500 digits, one seed).",
        tuple(
            lower(f"less error than the softmax after {epochs} epochs", ERROR, f"{epochs} epochs", CEN, SOFTMAX)
            for epochs in EPOCHS
        ),
        networks(2000, 5000, 250, 0.0),
        (MNIST,),
    ),
    Experiment(
        "hsu-figure2-dropout",
        PAPER,
        "figure 2, top right, with dropout",
        "10,000 digits for training, all 10,000 test digits; the network of the experiment without dropout, now with "
        "half of its 32 features dropped while Adam trains (rate 0.003, batches of 250), in the embedding as in the "
        "softmax; 3 seeds (quick: 300 and 500 digits, one seed). Beside it, two seeds, the same without dropout, and "
        f"with {MANY_FEATURES} features; and, one seed, the network of the paper's tutorial (32 and 64 channels, "
        f"{TUTORIAL_FEATURES:,} features) on {TUTORIAL_DIGITS:,} digits (quick: one epoch). The paper: 60,000 digits "
        "in batches of 6,000 for 800 epochs.",
        (
            *(
                lower(f"less error than the softmax after {epochs} epochs", ERROR, f"{epochs} epochs", CEN, SOFTMAX)
                for epochs in EPOCHS
            ),
            lower(f"less error than the softmax: {TUTORIAL}", ERROR, TUTORIAL, CEN, SOFTMAX),
        ),
        networks(10000, 10000, 250, 0.5),
        (MNIST,),
    ),
)
