"""
Records
=======

A data frame with a text, a category and numbers: ``Columns`` gives each field the kernel of its kind, and the learner
weights them. Sums say that fields add up, products that they act together.
"""

import numpy as np
import pandas as pd
from sklearn.model_selection import cross_val_score

from representer import OperatorRidge
from representer.kernels import Columns, Delta, Gaussian, Spectrum

rng = np.random.default_rng(0)
texts = [" ".join(rng.choice(["sunny", "quiet", "small", "new", "old"], 4)) for _ in range(200)]
towns = rng.choice(["Leeds", "York", "Hull"], 200)
adverts = pd.DataFrame({"text": texts, "town": towns, "area": rng.uniform(20, 120, 200)})
rent = 8 * adverts["area"] * adverts["town"].map({"Leeds": 1.3, "York": 1.6, "Hull": 1.0})
rent = rent + 90 * adverts["text"].str.count("sunny") + 20 * rng.normal(size=200)
rent = (rent - rent.mean()) / rent.std()

words, place = Spectrum((1, 4)).normalized(), Columns({"town": Delta(), "area": Gaussian("auto")}, "product")
for kernel in (place, "auto" * place + Columns({"text": words}, weights="auto")):
    print(f"R² = {cross_val_score(OperatorRidge(kernel), adverts, rent, cv=5).mean():.2f}   {kernel}")
