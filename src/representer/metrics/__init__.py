"""Measures beside error rates: distances, dependence, calibration, rankings, uncertainty, disentanglement."""

from representer.metrics.dependence import conditional_independence_test, conditional_mmd, hsic, hsic_test
from representer.metrics.disentanglement import DCI, dci, irs, mig, sap, windin
from representer.metrics.distributions import (
    KernelTest,
    Reliability,
    expected_calibration_error,
    mmd,
    mmd_test,
    reliability_curve,
)
from representer.metrics.predictions import brier, coverage, crps, nlpd, pinball, reciprocal_rank, top_k

__all__ = [
    "DCI",
    "KernelTest",
    "Reliability",
    "brier",
    "conditional_independence_test",
    "conditional_mmd",
    "coverage",
    "crps",
    "dci",
    "expected_calibration_error",
    "hsic",
    "hsic_test",
    "irs",
    "mig",
    "mmd",
    "mmd_test",
    "nlpd",
    "pinball",
    "reciprocal_rank",
    "reliability_curve",
    "sap",
    "top_k",
    "windin",
]
