"""The figures of the demo: one function for each script, of the names that the script leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from representer.plotting import class_colors, error_map, grid_transformation, panels
from runs.page import Picture

Names = Mapping[str, Any]


def circles(found: Names) -> Picture:
    """The points with their codes, and the codes by circle."""
    X, codes, ring = found["X"], found["codes"][:, 0], found["ring"]
    figure, ((left, right),) = panels(1, 2, size=4.0)
    left.plot(*found["curve"].T, color="0.8", zorder=0)
    left.scatter(*X.T, c=codes, s=14)
    left.set(title="points by code, and what codes stand for", aspect="equal")
    right.scatter(codes, ring + np.random.default_rng(1).uniform(-0.2, 0.2, len(ring)), c=codes, s=14)
    right.set(title="codes", xlabel="code", ylabel="circle", yticks=(0, 1, 2))
    return Picture.of(
        figure,
        "Three concentric circles of points coloured by their code, with the decoded curve through them.",
    )


def kink(found: Names) -> Picture:
    """Errors of both models, and the square under the inner layer."""
    truth = found["truth"]
    figure, (axes,) = panels(1, 3, column_labels=(*found["errors"], "the square, turned inside"))
    for ax, errors in zip(axes, found["errors"].values(), strict=False):
        error_map(errors / truth.max(), points=found["X"], colorbar=ax is axes[1], ax=ax)
    grid_transformation(found["inner"], truth, colorbar=False, ax=axes[2])
    return Picture.of(
        figure,
        "Error maps: one layer errs along the diagonal, two layers hardly anywhere; the inner layer turns the square.",
    )


def components(found: Names) -> Picture:
    """Pictures along components of both levels."""
    walks = found["walks"]
    return Picture.of(
        _rows_of_digits(walks, 9),
        "Rows of digits that change from left to right along one component of a level each.",
    )


def halves(found: Names) -> Picture:
    """True digits above those with a predicted bottom."""
    rows = {name: np.hstack([found["top"][found["test"]], bottom]) for name, bottom in found["answers"].items()}
    return Picture.of(
        _rows_of_digits(rows, 12, split=True),
        "True digits, and digits whose bottom half two decoders predicted.",
    )


def words(found: Names) -> Picture:
    """Pictures of words below what was read."""
    figure, axes = panels(4, 6, size=0.8)
    answers = zip(axes, found["pictures"][250:], found["words"][250:], found["found"], strict=False)
    for row, pictures, truth, answer in answers:
        for ax in row:
            ax.axis("off")
        for ax, picture, right, read in zip(row, pictures, truth, answer, strict=False):
            ax.imshow(picture.reshape(8, 8), cmap="gray_r")
            ax.set_title(read, color="black" if read == right else "red")
    return Picture.of(figure, "Pictures of four words, with the digits that were read above them; wrong ones are red.")


def _rows_of_digits(rows: Mapping[str, np.ndarray], columns: int, *, split: bool = False) -> Any:
    """A figure with one row of pictures for each name; ``split``: a line between top and bottom half."""
    figure, axes = panels(len(rows), columns, size=0.9)
    figure.set_size_inches(0.8 * columns + 2.2, 0.9 * len(rows))
    for line, (name, digits) in zip(axes, rows.items(), strict=True):
        line[0].set_ylabel(name, rotation=0, ha="right", va="center")
        for ax, digit in zip(line, digits, strict=False):
            ax.imshow(np.asarray(digit).reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
            ax.set(xticks=[], yticks=[])
            if split:
                ax.axhline(3.5, color="red", linewidth=0.6)
    return figure


def decisions(found: Names) -> Picture:
    """Probabilities as colours, and their entropy."""
    low, high = found["low"], found["high"]
    box = (low[0], high[0], low[1], high[1])
    figure, (axes,) = panels(1, 2, size=4.0)
    picture = class_colors(found["probabilities"]).reshape(100, 100, 3)
    axes[0].imshow(picture, origin="lower", extent=box, aspect="auto")
    axes[0].set_title("probabilities: the colours of species, mixed")
    image = axes[1].imshow(found["entropy"].reshape(100, 100), origin="lower", extent=box, aspect="auto", cmap="magma")
    figure.colorbar(image, ax=axes[1], label="entropy (nats)")
    axes[1].set_title("where to doubt them")
    for ax in axes:
        ax.scatter(*found["X"].T, c=class_colors(np.eye(3)[found["y"]]), edgecolor="white", s=16, linewidth=0.6)
        ax.set(xlabel="sepal length (cm)", ylabel="sepal width (cm)")
    return Picture.of(
        figure,
        "Maps over two attributes of iris: probabilities as colours, and an entropy that is high between species.",
    )


def conditionals(found: Names) -> Picture:
    """Samples, density, and new samples."""
    x = found["x"][:, 0]
    figure, (axes,) = panels(1, 3)
    axes[0].scatter(found["X"][:, 0], found["y"], s=5)
    axes[0].plot(x, found["mean"], "k")
    axes[0].set_title("data and mean")
    axes[1].pcolormesh(x, found["levels"], found["density"].T)
    axes[1].set_title("density given x")
    axes[2].plot(x, found["samples"].reshape(len(x), -1), "k.", markersize=2)
    axes[2].set_title("20 new samples for each x")
    for ax in axes:
        ax.set(xlabel="x", ylim=(-1.5, 1.5))
    return Picture.of(figure, "Two branches of data, a density that follows both, and samples drawn from it.")


def strings(found: Names) -> Picture:
    """Predicted against true counts."""
    predicted = found["predicted"]
    figure, (axes,) = panels(1, len(predicted), column_labels=list(predicted))
    lowest, highest = min(map(np.min, predicted.values())), max(map(np.max, predicted.values()))
    spread = np.random.default_rng(0).uniform(-0.15, 0.15, len(found["counts"]))
    for ax, values in zip(axes, predicted.values(), strict=True):
        ax.plot((0, 5), (0, 5), color="0.8")
        ax.scatter(found["counts"] + spread, values, s=12)
        ax.set(xlabel="motifs in the string", ylabel="predicted", ylim=(lowest - 0.3, highest + 0.3))
    return Picture.of(figure, "Predicted against true number of motifs for three string kernels.")


def molecules(found: Names) -> Picture:
    """Codes by family."""
    figure, ((ax,),) = panels(1, 1, size=4.6)
    for name in found["families"]:
        chosen = np.array(found["labels"]) == name
        ax.scatter(*found["codes"][chosen].T, label=name, s=22)
    ax.legend()
    ax.set(xlabel="first code", ylabel="second code")
    return Picture.of(figure, "Four families of molecules as four separate groups in the plane of two codes.")


def graphs(found: Names) -> Picture:
    """Three graphs of each class."""
    import networkx

    figure, axes = panels(2, 4, size=2.2, row_labels=("begins at C", "begins at O"))
    for row, label in zip(axes, "CO", strict=True):
        chosen = [g for g, c in zip(found["graphs"], found["classes"], strict=True) if c == label]
        for ax, graph in zip(row, chosen, strict=False):
            colors = ["#d65f4c" if graph.nodes[node]["label"] == "O" else "#8a939e" for node in graph]
            networkx.draw(graph, networkx.kamada_kawai_layout(graph), ax=ax, node_color=colors, node_size=70)
    return Picture.of(figure, "Rings with tails; nodes with the label O in red. The class is where the tail begins.")


def wind(found: Names) -> Picture:
    """The fields over the truth."""
    figure, (axes,) = panels(1, 3, size=3.6, column_labels=list(found["fields"]))
    for ax, field in zip(axes, found["fields"].values(), strict=True):
        ax.quiver(*found["grid"].T, *found["truth"].T, color="0.75", scale=45, width=0.006)
        ax.quiver(*found["grid"].T, *field.T, color="C0", scale=45, width=0.004)
        ax.plot(*found["stations"].T, "k.", markersize=3)
    return Picture.of(
        figure,
        "Arrows of the true wind in grey and of three fits in blue; the divergence-free fit covers the truth.",
    )


def diabetes(found: Names) -> Picture:
    """Sorted predictions with their intervals."""
    mean, std = found["mean"], found["std"]
    order, rank = np.argsort(mean), np.arange(len(mean))
    figure, ((ax,),) = panels(1, 1, size=4.2)
    figure.set_size_inches(8.5, 4.2)
    low, high = (mean - 1.96 * std)[order], (mean + 1.96 * std)[order]
    ax.fill_between(rank, low, high, alpha=0.25, label="95 % interval")
    ax.plot(rank, mean[order], label="prediction")
    ax.plot(rank, found["y_test"][order], "k.", markersize=4, label="truth")
    ax.set(xlabel="unseen patients, by prediction", ylabel="disease progression")
    ax.legend()
    return Picture.of(figure, "Predictions for unseen patients with 95 % intervals, and the true values around them.")


DRAWINGS: dict[str, Callable[[Names], Picture]] = {
    "circles": circles,
    "components": components,
    "kink": kink,
    "halves": halves,
    "words": words,
    "decisions": decisions,
    "conditionals": conditionals,
    "strings": strings,
    "molecules": molecules,
    "graphs": graphs,
    "wind": wind,
    "diabetes": diabetes,
}
