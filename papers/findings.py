"""What was found, a sentence for each paper, with numbers that are those of the measurements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

Origin = Literal["papers", "beyond", "defaults"]
# Whose claims there are: those of the papers, those of experiments that are not in them, and goals for our defaults.
ORIGINS: dict[Origin, str] = {
    "papers": "claims of the papers",
    "beyond": "claims beyond the papers",
    "defaults": "goals for our defaults",
}


def origin(paper: str, place: str, claim: str) -> Origin:
    """Whose claim it is, by what its experiment and its text say.

    Parameters
    ----------
    paper, place : str
        Of the experiment.
    claim : str
        Its text.

    Returns
    -------
    origin : {"papers", "beyond", "defaults"}
        Of a paper, of an experiment that is not in it, or a goal for what our learners do by default.
    """
    if "default" in claim or place == "the choice of the default":
        return "defaults"
    return "beyond" if place.startswith("beyond the paper") or "," not in paper else "papers"


def tally(experiments: Iterable[Mapping[str, Any]]) -> dict[Origin, tuple[int, int]]:
    """How many claims of each origin were reached, and of how many.

    Parameters
    ----------
    experiments : iterable of dict
        As in ``summary.json``.

    Returns
    -------
    counts : dict
        By origin.
    """
    judged = Counter(
        (origin(e["paper"], e["place"], claim["claim"]), claim["verdict"] == "reached")
        for e in experiments
        for claim in e["claims"]
    )
    return {kind: (judged[kind, True], judged[kind, True] + judged[kind, False]) for kind in ORIGINS}


def tally_in_words(experiments: Iterable[Mapping[str, Any]]) -> str:
    """The counts as half a sentence: "3 of 4 claims of the papers, … were reached".

    Parameters
    ----------
    experiments : iterable of dict
        As in ``summary.json``.

    Returns
    -------
    text : str
        Without a full stop.
    """
    counts = [f"{k} of {n} {ORIGINS[kind]}" for kind, (k, n) in tally(experiments).items() if n]
    return f"{', '.join(counts[:-1])} and {counts[-1]}" if len(counts) > 1 else "".join(counts)


class Record:
    """The experiments of a run by name, as in ``summary.json``.

    Parameters
    ----------
    experiments : iterable of dict
        Their entries.
    """

    def __init__(self, experiments: Iterable[Mapping[str, Any]]) -> None:
        self.experiments = {e["name"]: e for e in experiments}

    def mean(self, name: str, case: str, method: str, measure: str) -> float:
        """The mean of a measure over the repeats; ``KeyError`` if it was not measured."""
        means = {(r["case"], r["method"], r["measure"]): r["mean"] for r in self.experiments[name]["rows"]}
        return float(means[case, method, measure])

    def reached(self, prefix: str, text: str) -> str:
        """Of the claims with a text in experiments whose names begin so, how many were reached: "5 of 6"."""
        names = [name for name in self.experiments if name.startswith(prefix)]
        verdicts = [c["verdict"] for name in names for c in self.experiments[name]["claims"] if text in c["claim"]]
        if not verdicts:
            raise KeyError(prefix)
        return f"{sum(verdict == 'reached' for verdict in verdicts)} of {len(verdicts)}"


def _bohn(record: Record) -> str:
    def error(figure: int, case: str, method: str) -> float:
        return record.mean(f"bohn-figure{figure}", case, method, "RMSE / ‖h‖∞")

    one, two = (error(3, "h₁", method) for method in ("single layer", "two layers, p = 1"))
    flat, bent = (error(3, "h₂", method) for method in ("single layer", "two layers, p = 2"))
    linear, matern = (
        error(5, "h₂", f"setting {outer}") for outer in ("(1): linear outer kernel", "(2): outer tensor Matérn")
    )
    return (
        f"a second layer changes the error from {one:.3f} to {two:.3f} on the turned kink and from {flat:.3f} to "
        f"{bent:.3f} on the jump; the nonlinear outer kernel of figure 5 has {matern:.3f} on h₂, the linear one "
        f"{linear:.3f}: there a better minimum is no better fit."
    )


def _laforgue(record: Record) -> str:
    def error(method: str) -> float:
        return record.mean("laforgue-labels", "esol", method, "NMSE")

    below = record.reached("laforgue-table2", "KAE is below")
    labelled, principal, ridge = (error(method) for method in ("supervised codes + RF", "KPCA 50 + RF", "KRR"))
    plain, other = (record.mean("laforgue-table1", "esol", f"{codes} 50 + RF", "NMSE") for codes in ("K²AE", "KPCA"))
    return (
        f"kernel autoencoders are below dense ones in {below} comparisons of table 2; on ESOL a forest has an NMSE of "
        f"{plain:.3f} from their codes and {other:.3f} from kernel PCA's, and {labelled:.3f} from codes that know "
        f"labels (on those splits kernel PCA {principal:.3f}, kernel ridge without codes {ridge:.3f})."
    )


def _hsu(record: Record) -> str:
    published = record.reached("hsu-table1", "GMCE has the published error")
    ours, softmax = (
        record.mean("hsu-figure2-dropout", "10 epochs", method, "error rate") for method in ("CEN", "softmax")
    )
    plain, other = (
        record.mean("hsu-figure2-networks", "10 epochs", method, "error rate") for method in ("CEN", "softmax")
    )
    return (
        f"GMCE has the published error on {published} sets of table 1, with the weight of the published code, not the "
        f"printed one; on a small network an embedding has {plain:.1f} % error and a softmax {other:.1f} %, with half "
        f"of 32 features dropped {ours:.1f} and {softmax:.1f} %."
    )


def _kadri(record: Record) -> str:
    def loss(method: str) -> float:
        return record.mean("kadri-usps", "USPS, bottom half", method, "RBF loss, width 12")

    def wrong(method: str) -> float:
        return record.mean("kadri-ocr", "OCR, whole words", method, "wrong letters (%)")

    forms = "identity (Cortes)", "covariance", "conditional covariance"
    losses, letters = (
        [f"{score(form):{digits}f}" for form in forms] for score, digits in ((loss, ".3"), (wrong, ".1"))
    )
    return (
        f"{record.reached('kadri-usps', 'published')} published losses of USPS are reached; tuned alike, identity, "
        f"covariance and conditional covariance lose {', '.join(losses)} there and get {', '.join(letters)} % of "
        "letters wrong: the published order of the operators is gone."
    )


def _tonin(record: Record) -> str:
    def error(name: str, method: str) -> float:
        return record.mean(name, "yacht", method, "test error")

    split, smoothed = error("tonin-table1", "PCA"), error("tonin-table1", "DKPCA, all codes smoothed")
    ours, principal = error("tonin-yacht", "DKPCA"), error("tonin-yacht", "PCA")
    cost = record.mean("tonin-table-b3", "ionosphere", "self-consistent field", "cost (9)")
    return (
        f"the equations are solved to a cost of {cost:.0e}, but the order of table 1 is that of one split: on the "
        f"authors' own, PCA of yacht has {split:.2f} (published 8.41) and two levels {smoothed:.2f} (published "
        f"8.02), over ten splits PCA {principal:.2f} and two levels {ours:.2f}."
    )


SENTENCES: dict[str, Callable[[Record], str]] = {
    "Bohn": _bohn,
    "Laforgue": _laforgue,
    "Hsu": _hsu,
    "Kadri": _kadri,
    "Tonin": _tonin,
}


def findings(experiments: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """What was found: a sentence for each paper of which all that it names was measured.

    Parameters
    ----------
    experiments : iterable of dict
        As in ``summary.json``.

    Returns
    -------
    sentences : dict of str
        By the first author, without it.
    """
    record, found = Record(experiments), {}
    for author, sentence in SENTENCES.items():
        try:
            found[author] = sentence(record)
        except KeyError:
            continue
    return found
