"""
Data from deep components
=========================

The way back: from components to data, level by level. Digits are reconstructed from ten components of a Gaussian
first level, and from ten of a second one; then one component at a time is moved while the others stay, and new digits
are drawn from a density fitted to the components. No network is trained: inputs are found by kernel ridge regression
from components. Figures 5 and 6 of Tonin et al., where networks are trained; :doc:`/deep_kernel_pca` has
both.
"""

from sklearn.datasets import load_digits

from representer import DeepKernelPCA, plotting

X = load_digits().data / 16.0
train, test = X[:300], X[300:308]
model = DeepKernelPCA([10, 10], random_state=0).fit(train)
variance = ((X[300:500] - train.mean(0)) ** 2).sum()
for level in (0, 1):
    error = ((X[300:500] - model.reconstruct(X[300:500], level)) ** 2).sum()
    print(f"level {level}: R² of reconstructed new digits {1 - error / variance:.2f}")

rows = {
    "new": test,
    "level 0": model.reconstruct(test, 0),
    "level 1": model.reconstruct(test, 1),
    "0: first": model.traverse(0, level=0, steps=8, start=test[:1]),
    "0: second": model.traverse(1, level=0, steps=8, start=test[:1]),
    "1: first": model.traverse(0, level=1, steps=8, start=test[:1]),
    "1: second": model.traverse(1, level=1, steps=8, start=test[:1]),
    "samples": model.sample(8, level=0, density="kde", random_state=0),
}
figure, axes = plotting.panels(len(rows), 8, size=0.95, row_labels=list(rows))
for row, pictures in zip(axes, rows.values(), strict=True):
    for ax, picture in zip(row, pictures, strict=True):
        ax.imshow(picture.reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
        ax.set(xticks=[], yticks=[])
figure.savefig("deep_generation.png")
