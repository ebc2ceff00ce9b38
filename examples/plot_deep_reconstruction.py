"""
Back from linear levels
=======================

With linear kernels in both levels, components go back to data as far as the smaller level allows: as many components
as the data have directions reconstruct them exactly. Points on a square have two directions (figure 10 of Tonin et
al.); 100 small pictures, in place of 3DShapes, have 100 (figure 11). :doc:`plot_deep_generation` shows the way back
from nonlinear levels.
"""

import numpy as np

from representer import DeepKernelPCA, plotting
from representer.datasets import make_shapes, make_synth1

shapes = make_shapes(100, random_state=0)
sets = {
    "points on a square": (make_synth1(random_state=0), (1, 2)),
    "pictures of shapes": (shapes.data, (1, 2, 5, 10, 20, 50, 100)),
}
figure, axes = plotting.panels(1, 3, column_labels=[*sets, "from 100, 20, 5 and 1 components"])
for ax, (name, (X, sizes)) in zip(axes[0], sets.items(), strict=False):
    pictures, errors = [], []
    for size in sizes:
        model = DeepKernelPCA([sizes[-1], size], ["linear", "linear"], center=False, random_state=0).fit(X)
        pictures.append(model.reconstruct(X))
        errors.append(100 * ((X - pictures[-1]) ** 2).sum() / (X**2).sum())
    print(f"{name}: an error of {errors[0]:.0f} % with one component, of {errors[-1]:.0g} % with {sizes[-1]}")
    ax.plot(sizes, errors, "o-")
    ax.set(xlabel="components of the second level", ylabel="error, % of ‖X‖²", xscale="log")
some = np.stack([picture[:3].reshape(3, *shapes.images.shape[1:]) for picture in pictures[::-2]], axis=1)
n_rows, n_columns, side = some.shape[:3]
axes[0, 2].imshow(some.transpose(0, 2, 1, 3, 4).reshape(n_rows * side, n_columns * side, 3).clip(0, 1))
axes[0, 2].set_axis_off()
figure.savefig("deep_reconstruction.png")
