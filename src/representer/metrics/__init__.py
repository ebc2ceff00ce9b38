"""How good a result is where no error rate says it: distances between distributions, calibration, disentanglement."""

from representer.metrics.disentanglement import DCI, dci, irs, mig, sap, windin
from representer.metrics.distributions import (
    MMDTest,
    Reliability,
    expected_calibration_error,
    mmd,
    mmd_test,
    reliability_curve,
)
from representer.metrics.predictions import brier, coverage, crps, nlpd, pinball

__all__ = [
    "DCI",
    "MMDTest",
    "Reliability",
    "brier",
    "coverage",
    "crps",
    "dci",
    "expected_calibration_error",
    "irs",
    "mig",
    "mmd",
    "mmd_test",
    "nlpd",
    "pinball",
    "reliability_curve",
    "sap",
    "windin",
]
