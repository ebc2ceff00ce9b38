"""
Where an inner layer puts the square
====================================

``transform_layers`` shows what each layer makes of its input. Points of the square are drawn where the inner layer of
:doc:`plot_deep_layers` puts them, coloured by the value of the function: the kink, or the jump, has become parallel
to an axis, which is what the outer kernel can follow (figure 6 of Bohn, Griebel and Rieger).
"""

from representer import DeepKernelRegressor, plotting
from representer.datasets import jump, kink, make_jump, make_kink, square_grid
from representer.kernels import Polynomial, TensorMatern

grid = square_grid(31)
figure, axes = plotting.panels(2, 2, column_labels=["the square", "after the inner layer"], row_labels=["kink", "jump"])
for row, make, function, degree in zip(axes, (make_kink, make_jump), (kink, jump), (1, 2), strict=True):
    X, y = make(random_state=1)
    model = DeepKernelRegressor(
        [(Polynomial(degree), 2)],
        kernel=TensorMatern(1, 1.0),
        loss="interpolate",
        alpha=1.0,
        fit_intercept=False,
    )
    inner = model.set_params(n_restarts=12, random_state=0).fit(X, y).transform_layers(grid)[-1]
    values = function(grid)
    print(f"{function.__name__}: R² of the whole model = {model.score(grid, values):.3f}")
    for ax, points in zip(row, (grid, inner), strict=True):
        plotting.grid_transformation(points, values, colorbar=ax is row[-1], ax=ax)
figure.savefig("deep_transformation.png")
