"""Formulas as MathML, which browsers draw by themselves: no script, no font and no network."""

from __future__ import annotations

import re

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

SYNONYMS = {r"\\dots\b": r"\\ldots", r"\\[dt]frac\b": r"\\frac", r"\\frac(\d)(\d)": r"\\frac{\1}{\2}"}


def formula(tex: str, *, display: bool) -> str:
    """The MathML of a formula in TeX; what docutils does not know by one name is given another."""
    for pattern, name in SYNONYMS.items():
        tex = re.sub(pattern, name, tex)
    return tex2mathml(tex.strip(), as_block=display)


def visit(writer, node: nodes.math | nodes.math_block) -> None:
    """Write a formula; one that cannot be read is a warning with its place, and stands there as TeX."""
    display = isinstance(node, nodes.math_block)
    try:
        text = formula(node.astext(), display=display)
        writer.body.append(f'<div class="formula">{text}</div>' if display else text)  # wide ones scroll
    except (MathError, SyntaxError, ValueError) as error:
        logging.getLogger(__name__).warning("formula %r: %s", node.astext(), error, location=node)
        writer.body.append(f"<code>{writer.encode(node.astext())}</code>")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """The renderer ``html_math_renderer = "mathml"``."""
    app.add_html_math_renderer("mathml", (visit, None), (visit, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
