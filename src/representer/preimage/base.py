"""The decoder contract, and the score of a candidate."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from representer.functions import Embedding
from representer.kernels import Kernel
from representer.linalg import row_blocks
from representer.samples import Data, count
from representer.values import Value, argument_repr


class Decoder(Value, ABC):
    """The map from an element g of the RKHS of an output kernel l to an object: argmin_y ‖g − l(·, y)‖², over a set.

    A decoder is made from its options only, so it is a value: printable, comparable, copied by ``clone``. A learner
    calls ``resolve`` once, when it is fitted, and ``decode`` with every batch of predictions. A new decoder implements
    ``decode``, and ``_learn`` if it depends on the training outputs; a ``short_name`` is what users may write for it.
    """

    short_name: ClassVar[str | None] = None
    named: ClassVar[dict[str, type[Decoder]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__dict__.get("short_name"):
            Decoder.named[cls.__dict__["short_name"]] = cls

    def resolve(self, kernel: Kernel, Y: Data) -> Self:
        """The decoder for the RKHS of a kernel (with numbers) and training outputs; an error where it does not suit."""
        new = copy.copy(self)
        new._learn(kernel, Y)
        return new

    def _learn(self, kernel: Kernel, Y: Data) -> None:
        """Check that the decoder suits the outputs, and keep what it needs of them in attributes of this copy."""

    def calibrate(self, embedding: Embedding, Y: Data) -> Self:
        """The decoder with thresholds chosen on held-out predictions and their true outputs; by default itself."""
        return self

    @abstractmethod
    def decode(self, embedding: Embedding, X: Data | None = None) -> Data:
        """One object for each element; X holds the inputs of the predictions, for decoders that need them."""

    def _state(self, name: str) -> Any:
        """An attribute that ``resolve`` has set, or an error that asks for that call."""
        try:
            return getattr(self, name)
        except AttributeError:
            raise ValueError(
                f"{self!r} knows no training outputs yet. Call decoder.resolve(kernel, Y) first; a learner does so "
                "when it is fitted."
            ) from None


class Custom(Decoder):
    """A function ``function(embedding, X)`` that returns one object for each element.

    Examples
    --------
    >>> from representer import mean_embedding
    >>> from representer.preimage import Custom
    >>> Custom(lambda embedding, X: ["yes"] * len(embedding)).decode(mean_embedding([[1.0]], "linear"))
    ['yes']
    """

    def __init__(self, function: Any):
        self.function = function

    def decode(self, embedding: Embedding, X: Data | None = None) -> Data:
        """The objects that the function returns, after their number is checked."""
        if not callable(self.function):
            raise TypeError(
                "function of Custom must be a function of an embedding and of X that returns one object for each "
                f"element; got {argument_repr(self.function):.60}."
            )
        return _one_each(self.function(embedding, X), len(embedding), "The decoder function")


def _one_each(objects: Data, n: int, source: str) -> Data:
    """The objects, if there is one for each of n predictions; an error names their source."""
    if not hasattr(objects, "__len__") or len(objects) != n:
        got = f"{len(objects)} objects" if hasattr(objects, "__len__") else type(objects).__name__
        raise ValueError(f"{source} must return one object for each of the {n} predictions; it returned {got}.")
    return objects


def as_decoder(decoder: object) -> Decoder:
    """A decoder from a decoder, a name (``"candidates"``, ``"direct"`` …) or a function of (embedding, X).

    Examples
    --------
    >>> from representer.preimage import as_decoder
    >>> as_decoder("direct")
    Direct()
    """
    if isinstance(decoder, Decoder):
        return decoder
    if isinstance(decoder, str) and decoder in Decoder.named:
        return Decoder.named[decoder]()
    if callable(decoder) and not isinstance(decoder, type):
        return Custom(decoder)
    raise ValueError(
        f"decoder={decoder!r} is not a decoder. Give an object from representer.preimage, a function of (embedding, X) "
        f"or one of the names {', '.join(map(repr, Decoder.named))}."
    )


# -- scores -----------------------------------------------------------------------------------------------------------
def candidate_scores(embedding: Embedding, candidates: Data, *, diagonal: Data | None = None) -> Tensor:
    """The scores 2⟨g, φ(y)⟩ − ‖φ(y)‖² (q, c): ‖g‖² minus the squared distance of candidate y from g; higher is better.

    They cost the kernel between candidates and anchors, and one matrix product, in blocks of candidates.

    Parameters
    ----------
    embedding : Embedding
        q elements g.
    candidates : data
        c outputs, as the kernel takes them; with a precomputed kernel rows of l(candidates, training outputs).
    diagonal : array (c,), optional
        The l(y, y) of precomputed candidates. Not needed for the training outputs themselves, nor where l(y, y) is the
        same for all of these.

    Examples
    --------
    >>> from representer import mean_embedding
    >>> from representer.preimage import candidate_scores
    >>> candidate_scores(mean_embedding([[1.0], [3.0]], "linear"), [[0.0], [2.0], [3.0]]).tolist()
    [[0.0, 4.0, 3.0]]
    """
    prepared = prepared_like(embedding, candidates)
    norms = squared_norms(embedding, prepared, diagonal)
    all_scores = norms.new_empty(len(norms), len(embedding))
    for rows, scores in score_blocks(embedding, prepared, norms):
        all_scores[rows] = scores.mT
    return all_scores.mT


def prepared_like(embedding: Embedding, Y: Data) -> Data:
    """Outputs as the kernel takes them; vectors have the width, the precision and the device of an embedding."""
    Y = embedding.kernel.prepare(Y)
    if not isinstance(Y, Tensor):
        return Y
    if isinstance(embedding.anchors, Tensor):
        check_width(embedding.kernel, Y, embedding.anchors.shape[-1])
    return Y.to(embedding.weights)


def check_width(kernel: Kernel, Y: Data, width: int) -> None:
    """Refuse vectors that have not as many numbers as the training outputs."""
    if Y.shape[-1] != width:
        what = "columns" if kernel.domain == "gram" else "features"
        raise ValueError(f"These outputs have {Y.shape[-1]} {what}, but the training outputs have {width}.")


def squared_norms(embedding: Embedding, Y: Data, diagonal: Data | None = None) -> Tensor:
    """The values l(y, y) of prepared outputs."""
    kernel, like = embedding.kernel, embedding.weights
    if kernel.domain != "gram":
        if diagonal is not None:
            raise ValueError(f"diagonal= is for a precomputed output kernel; {kernel!r} computes l(y, y) itself.")
        return kernel._diag(Y).to(like)
    if diagonal is not None:
        values = torch.as_tensor(np.asarray(diagonal, dtype=np.float64)).to(like)
        if values.shape != (count(Y),) or not bool((values >= 0).all()):  # also where it is NaN
            raise ValueError(
                f"diagonal must hold l(y, y) ≥ 0 of each of the {count(Y)} candidates; got shape "
                f"{tuple(values.shape)}{'' if values.shape != (count(Y),) else ' with negative or missing entries'}."
            )
        return values
    gram = embedding.anchors.to(like)
    norms = gram.diagonal()
    if Y.shape == gram.shape and torch.equal(Y, gram):
        return norms
    if norms.max() - norms.min() > torch.finfo(norms.dtype).eps * len(norms) * norms.abs().max():
        raise ValueError(
            "With a precomputed output kernel, l(y, y) of candidates is not in l(candidates, training outputs), and "
            "the training outputs do not all have the same. Pass diagonal=, or an output kernel object."
        )
    return norms.mean().expand(count(Y))


def score_blocks(embedding: Embedding, Y: Data, norms: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """The scores (q, b) of prepared candidates, b of them at a time."""
    weights = embedding.weights
    for rows in row_blocks(count(Y), sum(weights.shape) * weights.element_size()):
        inner = embedding.kernel._product(Y[rows], embedding.anchors, weights.mT).to(weights)
        yield rows, inner.mul_(2.0).sub_(norms[rows, None]).mT
