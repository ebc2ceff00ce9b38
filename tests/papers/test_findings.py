"""What a report says was found has the numbers of the measurements, and claims are counted by whose they are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from papers import EXPERIMENTS
from papers.claims import at_most
from papers.findings import SENTENCES, findings, origin, tally, tally_in_words
from papers.report import sections
from papers.results import Results
from papers.runner import Experiment, Run, run_experiment


def entry(paper: str, place: str, **verdicts: str) -> dict[str, Any]:
    claims = [{"claim": text.replace("_", " "), "verdict": verdict} for text, verdict in verdicts.items()]
    return {"name": place, "paper": paper, "place": place, "claims": claims, "rows": []}


def test_claims_are_counted_by_whose_they_are() -> None:
    found = [
        entry("A, B: Title", "table 1", below="reached", our_default="not reached"),
        entry("A, B: Title", "beyond the paper: digits", below="reached"),
        entry("Real tables", "yacht", below="not reached"),
    ]
    assert tally(found) == {"papers": (1, 1), "beyond": (1, 2), "defaults": (0, 1)}
    words = "1 of 1 claims of the papers, 1 of 2 claims beyond the papers and 0 of 1 goals for our defaults"
    assert tally_in_words(found) == words
    assert {origin(e.paper, e.place, "below") for e in EXPERIMENTS} == {"papers", "beyond", "defaults"}


def test_sentences_have_the_numbers_of_the_measurements() -> None:
    """The numbers are the means; without a row that it names there is no sentence."""
    methods = ["single layer", "two layers, p = 1", "two layers, p = 2"]
    methods += ["setting (1): linear outer kernel", "setting (2): outer tensor Matérn"]
    cells = [(case, method) for case in ("h₁", "h₂") for method in methods]
    rows = [{"case": c, "method": m, "measure": "RMSE / ‖h‖∞", "mean": 0.1234} for c, m in cells]
    measured = [{**entry("Bohn, B", "", below="reached"), "name": f"bohn-figure{i}", "rows": rows} for i in (3, 5)]
    (sentence,) = findings(measured).values()
    assert re.findall(r"0\.\d+", sentence) == ["0.123"] * 6
    assert findings(measured[:1]) == {}
    assert set(SENTENCES) == {e.paper.partition(",")[0] for e in EXPERIMENTS if "," in e.paper}


def test_the_first_section_counts_where_there_is_no_sentence(tmp_path: Path) -> None:
    def function(run: Run) -> None:
        run.part("case", "method", 0, lambda: {"error": 1.0})

    claims = (at_most("below", "error", "case", "method", 2.0), at_most("our default", "error", "case", "method", 0.5))
    experiment = Experiment("toy", "Bohn, Griebel: Title", "table 1", "Done.", claims, function)
    results = Results(tmp_path)
    results.outcomes["toy"] = run_experiment(experiment, results)
    reached = "Reached: 1 of 1 claims of the papers and 0 of 1 goals for our defaults."
    assert sections([experiment], results)[0].text == ["Bohn, Griebel: 1 of 1 claims are reached.", reached]
