"""A kernel of this library in scikit-learn's Gaussian processes."""

from __future__ import annotations

import numpy as np
from sklearn.gaussian_process import kernels as gp

from representer.kernels import Kernel, as_kernel
from representer.samples import Data, plain


class GaussianProcessKernel(gp.Kernel):
    """Any kernel, such as a learned ``deep_kernel_``, for scikit-learn's Gaussian processes and their kernel algebra.

    Its numbers stay as they are; amplitude and noise are learned by the kernels it is combined with.

    Parameters
    ----------
    kernel : Kernel
        With numbers for all hyperparameters.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process import GaussianProcessRegressor
    >>> from sklearn.gaussian_process.kernels import ConstantKernel, WhiteKernel
    >>> from representer.estimators import GaussianProcessKernel
    >>> from representer.kernels import Gaussian
    >>> X = np.linspace(0, 1, 20)[:, None]
    >>> kernel = ConstantKernel() * GaussianProcessKernel(Gaussian(0.2)) + WhiteKernel(1e-3, "fixed")
    >>> model = GaussianProcessRegressor(kernel).fit(X, np.sin(6 * X[:, 0]))
    >>> bool(model.score(X, np.sin(6 * X[:, 0])) > 0.99)
    True
    """

    def __init__(self, kernel: Kernel):
        self.kernel = kernel

    def __call__(
        self, X: Data, Y: Data | None = None, eval_gradient: bool = False
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """The Gram matrix, and with ``eval_gradient`` its gradient in no hyperparameters."""
        gram = np.asarray(plain(as_kernel(self.kernel)(X, Y)), dtype=np.float64)
        return (gram, np.empty((*gram.shape, 0))) if eval_gradient else gram

    def diag(self, X: Data) -> np.ndarray:
        """The diagonal of the Gram matrix."""
        return np.asarray(plain(as_kernel(self.kernel).diag(X)), dtype=np.float64)

    def is_stationary(self) -> bool:
        """False, because it is not known whether the kernel depends on differences only."""
        return False

    def __repr__(self) -> str:
        return f"GaussianProcessKernel({self.kernel!r})"
