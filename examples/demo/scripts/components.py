"""Components in two levels, and what they stand for

`DeepKernelPCA` finds principal components of kernel principal components, all levels at once. Every component can be
followed through the levels back to the data: here, the pictures that lie along four of them.
"""

from sklearn.datasets import load_digits

from representer import DeepKernelPCA
from representer.kernels import Gaussian

digits = load_digits(n_class=4).data[:400] / 16.0
model = DeepKernelPCA([6, 3], [Gaussian(2.0), Gaussian("median")]).fit(digits)
walks = {
    f"level {level + 1}, component {component + 1}": model.traverse(component, level=level, steps=9)
    for level, component in ((0, 0), (0, 1), (1, 0), (1, 1))
}

levelwise = DeepKernelPCA([6, 3], model.kernel_, solver="levelwise").fit(digits)
results = {
    "residual of the equations of both levels": f"{model.residual_:.0e}",
    "energy, both levels at once": f"{model.energy_:.2f}",
    "energy, one level after the other": f"{levelwise.energy_:.2f}",
}
