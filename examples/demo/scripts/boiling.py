"""A table with molecules, and answers that say how sure they are

96 organic compounds with name, molecule, family and weight: `OperatorRidge()` takes each column for what it is, with no
encoder and no scaler, learns from 72 and predicts the boiling points of the others. An interval says where the truth
lies, and `influence` which known compound stands behind an answer. A forest on the same fingerprints, families and
weights is the rival; its intervals are those of the same method, CV+, with five forests.
"""

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import KFold, train_test_split

from representer import Morgan, OperatorRidge
from representer.datasets import load_boiling_points
from representer.metrics import coverage

table = load_boiling_points(as_frame=True)
X, X_new, y, y_new = train_test_split(table.data, table.target, random_state=0)
model = OperatorRidge().fit(X, y)
mean, intervals = model.predict(X_new), model.predict_interval(X_new, coverage=0.9)
most = np.abs(model.influence(X_new)).argmax(1)  # the known compound without which an answer would change the most

counts = np.column_stack([Morgan(counts=True).fit_transform(table.data["smiles"]), table.data["weight"]])
columns = np.column_stack([counts, pd.get_dummies(table.data["family"])])
A, A_new = columns[X.index], columns[X_new.index]
forest = RandomForestRegressor(random_state=0).fit(A, y)
low, high = [], []
for rest, fold in KFold(5, shuffle=True, random_state=0).split(A):
    part = RandomForestRegressor(random_state=0).fit(A[rest], y[rest])
    radius = np.abs(y[fold] - part.predict(A[fold]))
    low.append(part.predict(A_new)[:, None] - radius)
    high.append(part.predict(A_new)[:, None] + radius)
rival = np.column_stack([np.quantile(np.hstack(low), 0.1, axis=1), np.quantile(np.hstack(high), 0.9, axis=1)])

results = {}
for name, answer, ends in (("OperatorRidge", mean, intervals), ("forest", forest.predict(A_new), rival)):
    error, width = np.sqrt(np.mean((answer - y_new) ** 2)), np.mean(ends[:, 1] - ends[:, 0])
    results[f"{name}: error on 24 new compounds"] = f"{error:.0f} °C"
    results[f"{name}: truths inside of 90 % intervals, mean width"] = f"{coverage(y_new, ends):.0%}, {width:.0f} °C"
