"""From an element of an RKHS back to an object: decoders.

Few elements g of the RKHS of l are images φ(y) of anything; a decoder finds the y, in some set, whose image comes
closest: argmin_y ‖g − φ(y)‖² = argmax_y 2⟨g, φ(y)⟩ − l(y, y).
"""

from representer.preimage.base import Custom, Decoder, as_decoder, candidate_scores
from representer.preimage.candidates import Candidates
from representer.preimage.labels import LabelSet
from representer.preimage.levels import Network
from representer.preimage.sequences import Sequence, markov_scores, viterbi
from representer.preimage.vectors import (
    Direct,
    FixedPoint,
    Gradient,
    combination,
    distances,
    is_linear,
    nearest,
    refined,
    spread,
    weighted,
)

__all__ = [
    "Candidates",
    "Custom",
    "Decoder",
    "Direct",
    "FixedPoint",
    "Gradient",
    "LabelSet",
    "Network",
    "Sequence",
    "as_decoder",
    "candidate_scores",
    "combination",
    "distances",
    "is_linear",
    "markov_scores",
    "nearest",
    "refined",
    "spread",
    "viterbi",
    "weighted",
]
