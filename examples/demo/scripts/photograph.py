"""A photograph from a twentieth of its pixels

The places and colours of 5 % of the pixels are all that is known: `OperatorRidge` fills in the others, three colours at
once, with a lengthscale and a penalty that left-out pixels choose. The rivals take the colour of the nearest known
pixel, or interpolate between three of them.
"""

import numpy as np
from scipy.interpolate import griddata
from sklearn.datasets import load_sample_image

from representer import OperatorRidge
from representer.kernels import Matern

picture = load_sample_image("flower.jpg")[40:400:4, 110:590:4] / 255.0
height, width, _ = picture.shape
places = np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij"), -1).reshape(-1, 2) / height
known = np.random.default_rng(0).choice(len(places), len(places) // 20, replace=False)
colours = picture.reshape(-1, 3)

model = OperatorRidge(Matern(1.5, "auto")).fit(places[known], colours[known])
fills = {
    "OperatorRidge": model.predict(places),
    "nearest pixel": griddata(places[known], colours[known], places, "nearest"),
    "triangles": griddata(places[known], colours[known], places, "linear", fill_value=colours[known].mean()),
}
unknown = np.setdiff1d(np.arange(len(places)), known)
results = {
    f"{name}: error of the unknown pixels, of 255": f"{255 * np.sqrt(np.mean((fill - colours)[unknown] ** 2)):.1f}"
    for name, fill in fills.items()
}
