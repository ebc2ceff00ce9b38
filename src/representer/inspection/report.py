"""What is known of a fitted model, as one page of HTML that needs nothing else."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from representer.kernels import Kernel, seen_inside
from representer.operators import Adapted, Representation
from representer.samples import Data, count, plain, take
from representer.samples.rows import evenly_spaced

# Samples whose Gram matrix shows the spectrum.
SPECTRUM_ROWS = 500


@dataclass(frozen=True)
class Section:
    """A part of a report: sentences, facts in pairs, code, a figure (SVG), and a table."""

    title: str
    texts: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    code: str = ""
    figure: str | None = None
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """A page about a fitted model; texts of users are escaped when it is made into HTML.

    Examples
    --------
    >>> from representer.inspection.report import Report, Section
    >>> page = Report("<model>", "fitted today", (Section("Score", facts=(("R²", "0.9"),)),)).html()
    >>> "&lt;model&gt;" in page, "<model>" in page
    (True, False)
    """

    title: str
    subtitle: str
    sections: tuple[Section, ...]

    def html(self) -> str:
        """The page: one file, light and dark, for screens of any width, without scripts or addresses."""
        from jinja2 import Environment
        from markupsafe import Markup

        template = resources.files("representer.inspection").joinpath("report.html").read_text(encoding="utf-8")
        page = Environment(autoescape=True, trim_blocks=True).from_string(template)
        sections = [
            {**vars(section), "figure": None if section.figure is None else Markup(section.figure)}
            for section in self.sections
        ]
        return page.render(title=self.title, subtitle=self.subtitle, sections=sections)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file."""
        target = Path(path)
        target.write_text(self.html(), encoding="utf-8")
        return target

    def _repr_html_(self) -> str:
        """The page in a notebook, in a frame of its own: its style does not touch the notebook's."""
        return f'<iframe srcdoc="{escape(self.html())}" style="width:100%;height:40rem;border:0" sandbox=""></iframe>'


# -- numbers ----------------------------------------------------------------------------------------------------------
def short(value: Any) -> str:
    """A value in few characters."""
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def kernel_words(kernel: Any) -> str:
    """A kernel as code with few digits: without the maps to columns before it, and lists of numbers by their range.

    Examples
    --------
    >>> from representer.inspection.report import kernel_words
    >>> from representer.kernels import Gaussian, Standardized
    >>> kernel_words(Standardized(Gaussian([1.23456, 2.0, 4.0, 3.0, 9.87654]), [0.0] * 5, [1.0] * 5))
    'Gaussian(lengthscale=[1.235 … 9.877])'
    """
    inner = seen_inside(kernel)[0] if isinstance(kernel, Kernel) else kernel
    text = re.sub(r"\d+\.\d+(e[+-]?\d+)?", lambda found: f"{float(found.group(0)):.4g}", repr(inner))

    def range_of(found: re.Match[str]) -> str:
        numbers = [float(number) for number in found.group(1).split(",")]
        return found.group(0) if len(numbers) < 4 else f"[{min(numbers):.4g} … {max(numbers):.4g}]"

    return re.sub(r"\[([-+.\de]+(?:, [-+.\de]+)*)\]", range_of, text)


def gram_spectrum(kernel: Kernel, points: Data, how: Representation) -> np.ndarray:
    """The eigenvalues of the Gram matrix of some of the points over their number, the largest first."""
    rows = evenly_spaced(count(points), SPECTRUM_ROWS)
    sparse = kernel.domain != "vectors" or how.sparse
    adapted = Adapted(kernel, how.dtype, how.device, repair=False) if sparse else kernel
    with torch.no_grad():
        gram = adapted._gram(how.inputs(adapted, take(points, torch.from_numpy(rows))), None)
        values = torch.linalg.eigvalsh(gram.double()).flip(0).clamp(min=0.0)
    return plain(values) / len(rows)


def effective_dimension(spectrum: np.ndarray, alpha: float) -> float:
    """Σ λ / (λ + alpha): how many directions of the kernel's space a fit uses.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.inspection.report import effective_dimension
    >>> effective_dimension(np.array([1.0, 1.0, 0.0]), 1.0)
    1.0
    """
    return float((spectrum / (spectrum + alpha)).sum())


def confusion(labels: np.ndarray, answers: np.ndarray, n_classes: int) -> np.ndarray:
    """How often class i (row) was answered as class j (column)."""
    counts = np.zeros((n_classes, n_classes), dtype=int)
    np.add.at(counts, (labels, answers), 1)
    return counts


def reliability(probabilities: np.ndarray, labels: np.ndarray, edges: Sequence[float]) -> list[tuple[str, ...]]:
    """For answers with a probability between two edges: how many, their mean probability, the share that is right."""
    top, right = probabilities.max(1), probabilities.argmax(1) == labels
    rows: list[tuple[str, ...]] = []
    for low, high in pairwise(edges):
        inside = (top >= low) & ((top < high) | (high == edges[-1]))
        if inside.any():
            numbers = f"{int(inside.sum())}", f"{top[inside].mean():.3f}", f"{right[inside].mean():.3f}"
            rows.append((f"{low:.2f} – {high:.2f}", *numbers))
    return rows
