"""Tonin, Tao, Patrinos, Suykens (2023): disentanglement with few samples (figures 7 and 8), on shapes of our own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from papers.results import Measurements, Verdict
from papers.runner import Claim, Experiment, Result, Run
from papers.tonin.tables import PAPER
from representer import DeepKernelPCA, plotting
from representer.datasets import make_shapes
from representer.kernels import Gaussian, Linear
from representer.metrics import dci, irs, mig, sap, windin

N_TRAIN, SEEDS = 200, 10
IRS, SMALL_IRS = "IRS of all pictures", "IRS of the training pictures"
CASE = "shapes"
PCA_, KPCA, LINEAR, DEEP, VAE = "PCA", "KPCA", "DKPCA, linear", "DKPCA", "β-VAE"
FACTOR, TC, AUTHORS = "FactorVAE", "β-TCVAE", "DKPCA, linear, ½ K H"
HALF = ", half as many components"
BETA, TC_BETA, GAMMA = 4.0, 6.0, 10.0  # those of the paper
WIDTH = 40000.0  # σ² of the published smoother
DCI_SAMPLES = 1000  # of all pictures, for the forests


# -- variational autoencoders -----------------------------------------------------------------------------------------
class BetaVAE:
    """Higgins et al. (2017) with two small dense networks; pixels in [0, 1] by cross entropy, Adam.

    Parameters
    ----------
    n_codes : int
        The size of the code.
    beta : float, default=4.0
        The weight of the divergence from the prior.
    n_steps : int, default=2000
        Batches.
    batch_size : int, default=64
        Samples in each.
    random_state : int, default=0
        The seed.
    """

    def __init__(
        self,
        n_codes: int,
        beta: float = BETA,
        n_steps: int = 2000,
        batch_size: int = 64,
        random_state: int = 0,
    ):
        self.n_codes, self.beta, self.n_steps = n_codes, beta, n_steps
        self.batch_size, self.random_state = batch_size, random_state

    def fit(self, X: np.ndarray) -> Self:
        """Maximise the evidence bound, with more weight on independent codes."""
        generator = torch.Generator().manual_seed(self.random_state)
        data = torch.as_tensor(X, dtype=torch.float32)
        self.n_samples_ = len(data)
        with torch.random.fork_rng():
            torch.manual_seed(self.random_state)
            self.encoder_ = _network(X.shape[1], 2 * self.n_codes)
            self.decoder_ = _network(self.n_codes, X.shape[1])
            self.discriminator_ = _network(self.n_codes, 1)
        weights = [*self.encoder_.parameters(), *self.decoder_.parameters()]
        optimiser = torch.optim.Adam(weights, lr=1e-3)
        rival = torch.optim.Adam(self.discriminator_.parameters(), lr=1e-3)
        for _ in range(self.n_steps):
            batch = data[torch.randint(len(data), (min(self.batch_size, len(data)),), generator=generator)]
            optimiser.zero_grad()
            self._loss(batch, generator).backward()
            optimiser.step()
            self._contest(batch, generator, rival)
        return self

    def _coded(self, batch: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Means and logarithms of variances of the codes, and codes that are drawn."""
        mean, log_variance = self.encoder_(batch).chunk(2, -1)
        noise = torch.randn(mean.shape, generator=generator)
        return mean, log_variance, mean + noise * (0.5 * log_variance).exp()

    def _loss(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        mean, log_variance, codes = self._coded(batch, generator)
        logits = self.decoder_(codes)
        fit = torch.nn.functional.binary_cross_entropy_with_logits(logits, batch, reduction="sum") / len(batch)
        divergence = 0.5 * (mean**2 + log_variance.exp() - 1.0 - log_variance).sum() / len(batch)
        return fit + self._penalty(divergence, mean, log_variance, codes)

    def _penalty(self, divergence: Tensor, mean: Tensor, log_variance: Tensor, codes: Tensor) -> Tensor:
        return self.beta * divergence

    def _contest(self, batch: Tensor, generator: torch.Generator, rival: torch.optim.Optimizer) -> None:
        """What is learned beside the networks: nothing here."""

    def transform(self, X: np.ndarray) -> np.ndarray:
        """The means of the codes."""
        with torch.no_grad():
            return self.encoder_(torch.as_tensor(X, dtype=torch.float32)).chunk(2, -1)[0].double().numpy()


def total_correlation(mean: Tensor, log_variance: Tensor, codes: Tensor, n: int) -> Tensor:
    """log q(z) − Σ_d log q(z_d), the mean over a batch, each density a sum over the batch of n samples.

    This is minibatch-weighted sampling of Chen et al. (2018): q(z) ≈ Σ_j q(z | x_j) / (n · batch size).
    """
    log_densities = -0.5 * (
        (codes[:, None] - mean) ** 2 / log_variance.exp() + log_variance + math.log(2.0 * math.pi)
    )  # (batch, batch, codes)
    scale = math.log(n * len(mean))
    joint = log_densities.sum(-1).logsumexp(1) - scale
    marginals = (log_densities.logsumexp(1) - scale).sum(-1)
    return (joint - marginals).mean()


class BetaTCVAE(BetaVAE):
    """Chen et al. (2018): of the divergence, only the total correlation of the codes counts β times."""

    def _penalty(self, divergence: Tensor, mean: Tensor, log_variance: Tensor, codes: Tensor) -> Tensor:
        return divergence + (self.beta - 1.0) * total_correlation(mean, log_variance, codes, self.n_samples_)


class FactorVAE(BetaVAE):
    """Kim and Mnih (2018): γ (``beta``) times the total correlation, by a network that tells codes from shuffled."""

    def _penalty(self, divergence: Tensor, mean: Tensor, log_variance: Tensor, codes: Tensor) -> Tensor:
        return divergence + self.beta * self.discriminator_(codes).mean()

    def _contest(self, batch: Tensor, generator: torch.Generator, rival: torch.optim.Optimizer) -> None:
        with torch.no_grad():
            codes = self._coded(batch, generator)[2]
        rival.zero_grad()
        contest_loss(self.discriminator_, codes, generator).backward()
        rival.step()


def contest_loss(discriminator: Callable[[Tensor], Tensor], codes: Tensor, generator: torch.Generator) -> Tensor:
    """The cross entropy of telling codes from those whose columns are shuffled; its best logit is the log ratio."""
    columns = [column[torch.randperm(len(codes), generator=generator)] for column in codes.T]
    logits, shuffled = discriminator(codes), discriminator(torch.stack(columns, 1))
    return (torch.nn.functional.softplus(-logits) + torch.nn.functional.softplus(shuffled)).mean()


class Unnormalised:
    """Codes as the published evaluation makes them: ½ Σ_n k(x, x_n) h_n with k = exp(−d²/40000), without a denominator.

    Such a wide kernel is nearly one everywhere, so that codes are nearly half the sum of the training samples' own.
    """

    def __init__(self, model: DeepKernelPCA, width: float = WIDTH):
        self.model, self.kernel = model, Gaussian((0.5 * width) ** 0.5)

    def fit(self, X: np.ndarray) -> Self:
        """Fit the levels."""
        self.model.fit(X)
        self.X_fit_ = X
        return self

    def transform(self, X: np.ndarray) -> np.ndarray:
        """The codes of all levels."""
        return 0.5 * self.kernel(X, self.X_fit_).numpy() @ np.hstack(self.model.hidden_)


def _network(n_in: int, n_out: int) -> torch.nn.Module:
    nn = torch.nn
    return nn.Sequential(nn.Linear(n_in, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, n_out))


# -- disentanglement --------------------------------------------------------------------------------------------------
def models(n_factors: int, seed: int, quick: bool) -> dict[str, Any]:
    """All with twice as many components, or codes, as there are factors; of one level also half of them."""
    s, steps = n_factors, 200 if quick else 2000
    return {
        PCA_: DeepKernelPCA([2 * s], [Linear()], random_state=seed),
        KPCA: DeepKernelPCA([2 * s], [Gaussian("median")], random_state=seed),
        LINEAR: DeepKernelPCA([s, s], [Linear(), Linear()], center="data", random_state=seed),
        DEEP: DeepKernelPCA([s, s], [Gaussian("median"), Gaussian(1.0)], center="data", random_state=seed),
        PCA_ + HALF: DeepKernelPCA([s], [Linear()], random_state=seed),
        KPCA + HALF: DeepKernelPCA([s], [Gaussian("median")], random_state=seed),
        AUTHORS: Unnormalised(DeepKernelPCA([s, s], [Linear(), Linear()], center=False, random_state=seed)),
        VAE: BetaVAE(2 * s, BETA, steps, random_state=seed),
        TC: BetaTCVAE(2 * s, TC_BETA, steps, random_state=seed),
        FACTOR: FactorVAE(2 * s, GAMMA, steps, random_state=seed),
    }


def scores(model: Any, shapes: Any, rows: np.ndarray) -> Result:
    """Every score of the codes of all pictures, for a model that has seen some of them."""
    codes = model.fit(shapes.data[rows]).transform(shapes.data)
    named = {"categorical": shapes.categorical}
    some = np.random.default_rng(0).choice(len(codes), min(len(codes), DCI_SAMPLES), replace=False)
    trees = dci(codes[some], shapes.factors[some], n_trees=20, random_state=0, **named)
    return {
        IRS: irs(codes, shapes.factors),
        SMALL_IRS: irs(codes[rows], shapes.factors[rows]),
        "MIG": mig(codes, shapes.factors),
        "SAP": sap(codes, shapes.factors, **named),
        "DCI": trees.disentanglement,
        "completeness": trees.completeness,
        "informativeness": trees.informativeness,
        "WINDIN": windin(codes),
        "importance": trees.importance,
    }


def disentanglement(run: Run) -> None:
    """All methods on the same pictures, several choices of the training pictures."""
    shapes = make_shapes(n_values={"hue": 3, "shape": 1} if run.quick else None)
    importance: dict[str, np.ndarray] = {}
    for seed in range(2 if run.quick else SEEDS):
        rows = np.random.default_rng(seed).choice(len(shapes.data), N_TRAIN, replace=False)
        for method, model in models(len(shapes.factor_names), seed, run.quick).items():
            result = run.part(CASE, method, seed, scores, model, shapes, rows)
            importance.setdefault(method, result["importance"])
    figure, axes = plotting.panels(1, len(importance), size=2.2, column_labels=list(importance))
    for ax, values in zip(axes[0], importance.values(), strict=True):
        ax.imshow(values, vmin=0.0, vmax=1.0, cmap="viridis", aspect="auto")
        ax.set_xticks(range(len(shapes.factor_names)), shapes.factor_names, rotation=60, fontsize="small")
    axes[0, 0].set_ylabel("code")
    run.figure(
        "importance",
        figure,
        "For each method, how much each of its codes says about each factor of the pictures.",
    )


def higher(text: str, measure: str, method: str, than: str) -> Claim:
    """The mean of one method is above another's."""

    def judge(measurements: Measurements) -> tuple[Verdict, str]:
        ours, theirs = (measurements.values_of(CASE, name, measure) for name in (method, than))
        gap = ours - theirs
        spread = gap.std(ddof=1) / len(gap) ** 0.5
        numbers = f"{ours.mean():.3f} against {theirs.mean():.3f}, {gap.mean():+.3f} ± {spread:.3f}"
        return "reached" if gap.mean() > 0 else "not reached", numbers

    return Claim(text, judge)


def claims(measure: str) -> tuple[Claim, ...]:
    """What figures 7 and 8 say: deep components above kernel PCA with the same kernel, and above the networks.

    The networks of figure 8, whose scores are of all pictures, are trained on all of them in the paper, and not here.
    """
    told = f", trained on {N_TRAIN} pictures, not on all" if measure == IRS else ""
    networks = [(deep, vae, told) for vae in (VAE, TC, FACTOR) for deep in (DEEP, LINEAR)]
    pairs = [(DEEP, KPCA, ""), (LINEAR, PCA_, ""), *networks]
    return tuple(higher(f"{measure}: {a} above {b}{words}", measure, a, b) for a, b, words in pairs)


def _experiment(function: Callable[[Run], None]) -> Experiment:
    return Experiment(
        "tonin-shapes",
        PAPER,
        "Figures 7 and 8, on other pictures",
        f"{N_TRAIN} random pictures of make_shapes (quick: of fewer factors) to train on, {SEEDS} choices (quick: 2); "
        f"codes of all 3456. Two levels of as many components as there are factors, 6 each, side by side; one-level "
        f"(kernel) PCA with 12, and with 6; a β-VAE (β = {BETA:g}), a β-TCVAE (β = {TC_BETA:g}) and a FactorVAE "
        f"(γ = {GAMMA:g}) with 12, dense networks; linear levels with codes as the published evaluation makes them, "
        f"½ K H with a kernel exp(−d²/40000), not normalised and not claimed (an IRS of .65 has been found elsewhere "
        f"for such codes, with settings that are not known; of eight widths tried here only exp(−d²) gives it). "
        f"Gaussian kernels at the median distance, σ = 1 at the second level; the paper's levels are linear. All "
        f"models see the same {N_TRAIN} pictures, the networks, too, for both scores: as in figure 7, but in figure 8, "
        f"whose scores are of all pictures, the paper trains its networks on all of them. Published for 3DShapes, "
        f"Cars3D and SmallNORB, as a figure without numbers: deep components above all others.",
        (*claims(IRS), *claims(SMALL_IRS)),
        function,
    )


EXPERIMENTS = (_experiment(disentanglement),)
