"""
Words from pictures of their letters
====================================

Words are strings of handwritten digits, in which a digit is followed by one of two others. A word is predicted as a
whole: the kernels ``Positionwise`` and ``WeightedDegree`` compare pictures and strings place by place, and the decoder
``Sequence`` finds the best string of the right length, exactly. With ``transitions="training"`` it also asks which
digits follow each other in the training words.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from representer import StructuredPredictor
from representer.kernels import Gaussian, Positionwise, WeightedDegree
from representer.preimage import Sequence

rng = np.random.default_rng(0)
images, labels = load_digits(return_X_y=True)
images = images / 16.0 + rng.normal(0, 0.2, images.shape)


def word(length):
    """Pictures of a word, and the word."""
    path = [rng.integers(10)]
    while len(path) < length:
        path.append((path[-1] + rng.choice([1, 3])) % 10)
    return images[[rng.choice(np.flatnonzero(labels == digit)) for digit in path]], "".join(map(str, path))


X, y = zip(*(word(rng.integers(3, 7)) for _ in range(500)), strict=True)
accuracies = {}
for name, transitions in (("position by position", None), ("with transitions", "training")):
    decoder = Sequence(lengths="input", transitions=transitions, weight=0.1)
    model = StructuredPredictor(Positionwise(Gaussian(2.0)), WeightedDegree(), decoder=decoder)
    found = model.fit(list(X[:300]), list(y[:300])).predict(list(X[300:]))
    right = [a == b for one, two in zip(y[300:], found, strict=True) for a, b in zip(one, two, strict=True)]
    accuracies[name] = np.mean(right)
    print(f"{name:21} accuracy of digits = {accuracies[name]:.2f}")

figure, axes = plt.subplots(4, 6, figsize=(6, 4), layout="constrained")
for row, pictures, truth, string in zip(axes, X[300:], y[300:], found, strict=False):
    for ax in row:
        ax.axis("off")
    for ax, picture, a, b in zip(row, pictures, truth, string, strict=False):
        ax.imshow(picture.reshape(8, 8), cmap="gray_r")
        ax.set_title(b, color="black" if a == b else "red")
figure.savefig("structured_words.png")
