"""Approximations of a kernel by finitely many features, for data too large for an n × n matrix."""

from representer.approximation.base import Approximation, FeatureMap, approximation_error, check_bare

# Names for the rooms below, which are no part of the room's pages.
from representer.approximation.landmarks import (
    Falkon,
    LandmarkFeatures,
    Landmarks,
    Nystroem,
    PositivePart,
    for_part,
    independent,
    input_output_pair,
    landmark_features,
)
from representer.approximation.random_features import FourierFeatures, RandomFeatures, SketchFeatures, TensorSketch

__all__ = [
    "Approximation",
    "Falkon",
    "FeatureMap",
    "FourierFeatures",
    "LandmarkFeatures",
    "Landmarks",
    "Nystroem",
    "PositivePart",
    "RandomFeatures",
    "SketchFeatures",
    "TensorSketch",
    "approximation_error",
    "check_bare",
    "for_part",
    "independent",
    "input_output_pair",
    "landmark_features",
]
