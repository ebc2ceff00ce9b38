"""
The other half of a digit
=========================

The bottom half of a handwritten digit from its top half: ``StructuredPredictor`` maps the top into the RKHS of a
kernel of bottoms, and a decoder comes back from there. ``Candidates`` (the default) answers with the bottom of a
training digit; ``Gradient`` looks for the pixels whose image is nearest, and may mix.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from representer import StructuredPredictor
from representer.kernels import Gaussian

digits = load_digits().data / 16.0
digits = digits[np.random.default_rng(0).permutation(len(digits))]
top, bottom = digits[:, :32], digits[:, 32:]
train, test = slice(0, 400), slice(400, 800)

answers = {"true": bottom[test]}
for decoder in ("candidates", "gradient"):
    model = StructuredPredictor(Gaussian(1.5), Gaussian(1.5), decoder=decoder).fit(top[train], bottom[train])
    answers[decoder] = model.predict(top[test])
    error = ((answers[decoder] - bottom[test]) ** 2).mean() / bottom[test].var(0).mean()
    print(
        f"{decoder:11} R² of the pixels = {1 - error:.2f}, R² in the RKHS = {model.score(top[test], bottom[test]):.2f}"
    )

figure, axes = plt.subplots(len(answers), 10, figsize=(8, 3), layout="constrained")
for row, (name, halves) in zip(axes, answers.items(), strict=True):
    for ax, upper, lower in zip(row, top[test], halves, strict=False):
        ax.imshow(np.concatenate([upper, lower]).reshape(8, 8), cmap="gray_r")
        ax.axhline(3.5, color="red", linewidth=0.5)
        ax.set(xticks=[], yticks=[])
    row[0].set_ylabel(name)
figure.savefig("structured_digits.png")
