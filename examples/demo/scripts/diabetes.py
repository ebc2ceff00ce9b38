"""Nothing tuned by hand, and honest intervals

The progression of diabetes a year later. `OperatorRidge` learns lengthscale and penalty by the exact leave-one-out
error, and says how far off it may be.
"""

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from representer import OperatorRidge
from representer.kernels import Gaussian

X, X_test, y, y_test = train_test_split(*load_diabetes(return_X_y=True), test_size=0.3, random_state=0)
centre = y.mean()
ridge = make_pipeline(StandardScaler(), KernelRidge(kernel="rbf"))
grid = {"kernelridge__alpha": np.logspace(-3, 2, 6), "kernelridge__gamma": np.logspace(-4, 0, 9)}
models = {
    "KernelRidge, a grid of 54": GridSearchCV(ridge, grid),
    "OperatorRidge, lengthscale and alpha learned": make_pipeline(StandardScaler(), OperatorRidge(Gaussian("auto"))),
}
results = {}
for name, model in models.items():
    error = model.fit(X, y - centre).predict(X_test) + centre - y_test
    results[f"{name}: error on unseen patients"] = f"{np.sqrt(np.mean(error**2)):.1f}"

mean, std = models["OperatorRidge, lengthscale and alpha learned"].predict(X_test, return_std=True)
mean += centre
inside = np.mean(np.abs(y_test - mean) < 1.96 * std)
results["unseen patients inside the 95 % interval"] = f"{inside:.0%}"
