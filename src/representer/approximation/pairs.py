"""The approximations of learners with two kernels: one of the inputs, one of the outputs."""

from __future__ import annotations

from typing import Any

from representer.approximation.base import Approximation
from representer.approximation.landmarks import Landmarks, Nystroem


def input_output_pair(
    approximation: Any, n: int | None = None, *, vectors: bool = True
) -> tuple[Approximation, Nystroem | Landmarks] | None:
    """The approximations of inputs and outputs that a learner's argument ``approximation`` means; None is exact.

    One ``Nystroem`` is meant for both sides. With another approximation of the inputs, and where clusters of outputs
    would have no means, the outputs have as many uniform random landmarks as the inputs have features, but no more
    than there are samples.

    Parameters
    ----------
    approximation : Approximation, pair of approximations, or None
        The argument.
    n : int, optional
        The number of samples; without it, only the argument is checked.
    vectors : bool, default=True
        Are the outputs vectors?

    Examples
    --------
    >>> from representer.approximation import Nystroem, RandomFeatures, input_output_pair
    >>> input_output_pair(Nystroem(20), 100)
    (Nystroem(n_components=20), Nystroem(n_components=20))
    >>> input_output_pair(RandomFeatures(200), 100)
    (RandomFeatures(n_components=200), Nystroem(n_components=100))
    """
    if approximation is None:
        return None
    pair = tuple(approximation) if isinstance(approximation, tuple | list) else (approximation, None)
    kinds = len(pair) == 2 and isinstance(pair[0], Approximation) and isinstance(pair[1], Nystroem | Landmarks | None)
    if not kinds:
        raise ValueError(
            "approximation must be None, Nystroem(...), Landmarks(...), RandomFeatures(...) or TensorSketch(...), or a "
            "pair: such a one for the inputs, and Nystroem(...) or Landmarks(...) for the outputs; got "
            f"{approximation!r}."
        )
    for given in pair:
        if getattr(given, "kernel", None) is not None:
            raise ValueError(
                f"approximation={given!r} has kernel of its own, which is for the transformer. Give kernel= to the "
                "learner instead."
            )
    inputs, outputs = (given if given is None or n is None else given.sized(n) for given in pair)
    if outputs is not None:
        return inputs, outputs
    if isinstance(inputs, Nystroem) and (vectors or inputs.sampling != "kmeans"):
        return inputs, inputs
    return inputs, Nystroem() if n is None else Nystroem(min(inputs.size(n), n))
