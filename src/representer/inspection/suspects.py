"""Which samples a fit does not expect, each judged by a fit that has not seen it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from representer.systems import StackedSystem
from representer.systems.ridge import FittedSystem, robust_scale

# Probabilities count as at least this one: a sample has a misfit that can be compared.
LEAST_PROBABILITY = 1e-12


def class_misfits(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """−log p (n,) of each sample's own class, by probabilities (n, c) of a fit without it.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.inspection.suspects import class_misfits
    >>> class_misfits(np.array([[0.5, 0.5], [0.9, 0.1]]), np.array([1, 1])).round(2).tolist()
    [0.69, 2.3]
    """
    own = probabilities[np.arange(len(labels)), labels]
    return -np.log(np.maximum(own, LEAST_PROBABILITY))


def relative_errors(errors: Tensor, variances: Tensor | None = None) -> np.ndarray:
    """The sizes (n,) of errors (n, p) in standard deviations, the largest of the outputs; missing targets are NaN.

    Without variances (n, p), each output has the deviation of its errors, of which outliers count as five.
    """
    scale = robust_scale(errors**2) if variances is None else variances
    sizes = errors.abs() / scale.clamp(min=torch.finfo(errors.dtype).tiny).sqrt()
    largest = sizes.nan_to_num(-torch.inf).amax(1)
    return torch.where(largest.isinf(), torch.nan, largest).cpu().numpy()


def left_out_misfits(system: FittedSystem | StackedSystem) -> np.ndarray:
    """The sizes (n,) of leave-one-out errors in standard deviations, for all samples; NaN for those of weight zero."""
    samples = system.samples
    if samples is None:
        raise ValueError(
            "Misfits need the training samples, and a fit by batches or on Dask keeps none. Fit in memory."
        )
    left = system.with_all_samples().observed_left_out()
    errors = relative_errors((left.Y.to(left.mean) - left.mean).double(), left.variance.double())
    if samples.weights is None:
        return errors
    misfits = np.full(len(samples.Y), np.nan)
    misfits[samples.weights > 0] = errors
    return misfits
