"""The other half of a digit

The bottom half of a handwritten digit from its top half. `StructuredPredictor` maps the top into the space of a kernel
of bottoms, and a decoder finds its way back: to the bottom of a known digit, or to new pixels.
"""

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

spread = bottom[test].var(0).mean()
results = {
    f"decoder {name!r}: R² of the pixels of 400 new digits": f"{1 - ((a - bottom[test]) ** 2).mean() / spread:.2f}"
    for name, a in answers.items()
    if name != "true"
}
