"""Short names: a string works wherever a decoder does."""

from __future__ import annotations

from typing import Any

from representer.preimage.base import Custom, Decoder
from representer.preimage.candidates import Candidates
from representer.preimage.direct import Direct
from representer.preimage.labels import LabelSet
from representer.preimage.sequences import Sequence
from representer.preimage.vectors import FixedPoint, Gradient

NAMES: dict[str, type[Decoder]] = {
    "candidates": Candidates,
    "direct": Direct,
    "sequence": Sequence,
    "labels": LabelSet,
    "gradient": Gradient,
    "fixed_point": FixedPoint,
}


def as_decoder(decoder: Any) -> Decoder:
    """A decoder from a decoder, a name (``"candidates"``, ``"direct"`` …) or a function of (embedding, X).

    Examples
    --------
    >>> from representer.preimage import as_decoder
    >>> as_decoder("direct")
    Direct()
    """
    if isinstance(decoder, Decoder):
        return decoder
    if isinstance(decoder, str) and decoder in NAMES:
        return NAMES[decoder]()
    if callable(decoder) and not isinstance(decoder, type):
        return Custom(decoder)
    raise ValueError(
        f"decoder={decoder!r} is not a decoder. Give an object from representer.preimage, a function of (embedding, X) "
        f"or one of the names {', '.join(map(repr, NAMES))}."
    )
