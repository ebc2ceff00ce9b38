"""scikit-learn's own tests of KernelRidge, with OperatorRidge inside: alpha/n, no intercept, its kernels by name."""

from __future__ import annotations

import inspect
import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.tests import test_kernel_ridge as theirs

from representer import OperatorRidge
from representer.kernels import Chi2, Gaussian, as_kernel


class Adapter(BaseEstimator):
    """KernelRidge's arguments, answered by OperatorRidge."""

    def __init__(self, alpha=1, *, kernel="linear"):
        self.alpha = alpha
        self.kernel = kernel

    def fit(self, X, y, sample_weight=None):
        X = X.toarray() if hasattr(X, "toarray") else X
        n = len(X) if sample_weight is None else np.sum(sample_weight)
        kernel = {"rbf": Gaussian(np.sqrt(X.shape[1] / 2)), "poly": as_kernel("poly").replace({"gamma": 0.1})}
        kernel = kernel.get(self.kernel, self.kernel)
        self.model_ = OperatorRidge(kernel, alpha=self.alpha / n, fit_intercept=False).fit(X, y, sample_weight)
        return self

    def predict(self, X):
        return self.model_.predict(X.toarray() if hasattr(X, "toarray") else X)


CASES = [name for name, test in vars(theirs).items() if name.startswith("test_") and inspect.isfunction(test)]


@pytest.mark.parametrize("name", CASES)
def test_of_scikit_learn(name, monkeypatch):
    monkeypatch.setattr(theirs, "KernelRidge", Adapter)
    test = getattr(theirs, name)
    containers = [*theirs.CSR_CONTAINERS, *theirs.CSC_CONTAINERS]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for container in containers if inspect.signature(test).parameters else [None]:
            test(*([] if container is None else [container]))


def test_alpha_zero_interpolates(rng):
    X, y = rng.normal(size=(15, 2)), rng.normal(size=15)
    model = OperatorRidge(Gaussian(0.3), alpha=0, fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(model.predict(X), y, atol=1e-6)
    with pytest.raises(ValueError, match=r"alpha=0 interpolates.*alpha='auto'"):
        OperatorRidge(Gaussian("auto"), alpha=0).fit(X, y)


def test_histograms_have_no_negative_numbers():
    with pytest.raises(ValueError, match=r"row 1 has some"):
        Chi2()([[0.1, 0.2], [-0.1, 0.3]])
