"""
A hidden angle, followed through noisy glimpses
===============================================

A point runs around a circle, and all that is seen of it is a noisy shadow on one axis: left and right look alike. One
embedding has learned where a point goes next, another what is seen of it. The sum rule moves the belief on, Bayes' rule
corrects it with what is seen: a filter of two lines, learned from samples alone.
"""

import matplotlib.pyplot as plt
import numpy as np

from representer import ConditionalMeanEmbedding, OperatorRidge, herd
from representer.kernels import Gaussian

rng = np.random.default_rng(0)


def places(angle):
    return np.stack([np.cos(angle), np.sin(angle)], -1)


def steps(angle):
    return angle + 0.4 + 0.1 * rng.normal(size=np.shape(angle))


def glimpses(angle):
    return np.cos(angle) + 0.2 * rng.normal(size=np.shape(angle))


angles = rng.uniform(0, 2 * np.pi, size=200)
X, seen = places(angles), glimpses(angles)
motion = ConditionalMeanEmbedding(Gaussian(0.5), Gaussian(0.5)).fit(X, places(steps(angles)))
sight = ConditionalMeanEmbedding(Gaussian(0.5), Gaussian(0.3)).fit(X, seen)

truth = [0.0]
while len(truth) < 30:
    truth.append(float(steps(truth[-1])))
shadow = glimpses(np.array(truth))

belief, found = X, []
for y in shadow:
    found.append(sight.posterior(belief).sample([[y]], 40)[0])  # Bayes' rule
    belief = herd(motion.embedding(found[-1]).mixture(), 40)  # the sum rule

estimate = np.array([samples.mean(0) for samples in found])
alone = OperatorRidge().fit(seen[:, None], X).predict(shadow[:, None])
errors = [np.sqrt(((guess - places(np.array(truth))) ** 2).sum(1).mean()) for guess in (estimate, alone)]
print(f"error, distance from the truth: filter {errors[0]:.2f}, from each glimpse alone {errors[1]:.2f}")

figure, axes = plt.subplots(1, 3, figsize=(11, 3.5))
for axis, t in zip(axes[:2], (0, 12), strict=True):
    axis.scatter(*X.T, s=4, c="0.8")
    axis.scatter(*found[t].T, s=14, c="C0")
    axis.scatter(*places(truth[t]), marker="*", s=150, c="C3")
    axis.axvline(shadow[t], c="0.5", ls=":")
    axis.set(title=f"belief after {t + 1} glimpse{'s' * (t > 0)}", aspect="equal", xlabel="seen, with noise")
for guess, name in ((places(np.array(truth)), "truth"), (estimate, "filter"), (alone, "each glimpse alone")):
    axes[2].plot(guess[:, 1], "k-" if name == "truth" else "-", label=name)
axes[2].set(title="the coordinate that is never seen", xlabel="time")
axes[2].legend(fontsize=8, loc="lower left")
figure.tight_layout()
figure.savefig("filter.png")
