"""Approximations of a kernel by finitely many features, for data too large for an n × n matrix."""

from representer.approximation.base import Approximation, FeatureMap, approximation_error
from representer.approximation.falkon import Falkon
from representer.approximation.fourier import FourierFeatures, RandomFeatures
from representer.approximation.landmarks import (
    LandmarkFeatures,
    Landmarks,
    Nystroem,
    PositivePart,
    independent,
    landmark_features,
)
from representer.approximation.pairs import input_output_pair
from representer.approximation.sketch import SketchFeatures, TensorSketch

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
    "independent",
    "input_output_pair",
    "landmark_features",
]
