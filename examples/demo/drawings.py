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
    figure, ((left, right),) = panels(1, 2, size=3.2)
    left.plot(*found["curve"].T, color="0.8", zorder=0)
    left.scatter(*X.T, c=codes, s=14)
    left.set(title="points by code", aspect="equal")
    right.scatter(codes, ring + np.random.default_rng(1).uniform(-0.2, 0.2, len(ring)), c=codes, s=14)
    right.set(title="codes", xlabel="code", ylabel="circle", yticks=(0, 1, 2))
    return Picture.of(
        figure,
        "Three concentric circles of points coloured by their code, with the decoded curve through them.",
    )


def kink(found: Names) -> Picture:
    """Errors of both models, and the square under the inner layer."""
    truth = found["truth"]
    figure, (axes,) = panels(1, 3, size=2.4, column_labels=(*found["errors"], "turned inside"))
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


def _rows_of_digits(rows: Mapping[str, np.ndarray], columns: int) -> Any:
    """A figure with one row of pictures for each name."""
    figure, axes = panels(len(rows), columns, size=0.9)
    figure.set_size_inches(0.8 * columns + 2.2, 0.9 * len(rows))
    for line, (name, digits) in zip(axes, rows.items(), strict=True):
        line[0].set_ylabel(name, rotation=0, ha="right", va="center")
        for ax, digit in zip(line, digits, strict=False):
            ax.imshow(np.asarray(digit).reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
            ax.set(xticks=[], yticks=[])
    return figure


def decisions(found: Names) -> Picture:
    """Probabilities as colours, and their entropy."""
    low, high = found["low"], found["high"]
    box = (low[0], high[0], low[1], high[1])
    figure, (axes,) = panels(1, 2, size=3.2)
    picture = class_colors(found["probabilities"]).reshape(100, 100, 3)
    axes[0].imshow(picture, origin="lower", extent=box, aspect="auto")
    axes[0].set_title("probabilities")
    image = axes[1].imshow(found["entropy"].reshape(100, 100), origin="lower", extent=box, aspect="auto", cmap="magma")
    figure.colorbar(image, ax=axes[1], label="entropy (nats)")
    axes[1].set_title("where to doubt them")
    for ax in axes:
        ax.scatter(*found["X"].T, c=class_colors(np.eye(3)[found["y"]]), edgecolor="white", s=16, linewidth=0.6)
        ax.set(xlabel="alcohol (%)", ylabel="flavanoids")
    return Picture.of(
        figure,
        "Maps over two attributes of wines: probabilities as colours, and an entropy that is high between vineyards.",
    )


def conditionals(found: Names) -> Picture:
    """Samples, density, and new samples."""
    x = found["x"][:, 0]
    figure, (axes,) = panels(1, 3, size=2.5)
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


def boiling(found: Names) -> Picture:
    """Predictions with their intervals, and the known compound behind each."""
    order = np.argsort(found["mean"])
    names = [
        f"{new}  ({known})"
        for new, known in zip(
            found["X_new"]["name"].to_numpy()[order],
            found["X"]["name"].to_numpy()[found["most"][order]],
            strict=True,
        )
    ]
    low, high = found["intervals"][order].T
    figure, ((ax,),) = panels(1, 1)
    figure.set_size_inches(5.8, 6.6)
    ax.hlines(names, low, high, color="C0", linewidth=5, alpha=0.35, label="90 % interval")
    ax.plot(found["mean"][order], names, "o", color="C0", markersize=5, label="prediction")
    ax.plot(found["y_new"][order], names, "D", color="C1", markersize=5, label="measured")
    ax.set(xlabel="boiling point, °C (in brackets: what it rests on most)")
    ax.legend(loc="lower right")
    return Picture.of(
        figure, "Intervals of the boiling points of 24 compounds, each with its prediction and what was measured."
    )


def photograph(found: Names) -> Picture:
    """What is known, two fills, and the truth."""
    shape = found["picture"].shape
    known = np.ones(shape).reshape(-1, 3)
    known[found["known"]] = found["colours"][found["known"]]
    pictures = {"known: 5 %": known, **found["fills"], "the photograph": found["colours"]}
    del pictures["triangles"]
    figure, axes = panels(2, 2)
    figure.set_size_inches(5.8, 4.8)
    for ax, (name, picture) in zip(axes.flat, pictures.items(), strict=True):
        ax.imshow(np.clip(picture.reshape(shape), 0, 1))
        ax.set_title(name)
        ax.axis("off")
    return Picture.of(figure, "A flower: known pixels, two ways to fill in the others, and the photograph.")


def strings(found: Names) -> Picture:
    """The letters of five stretches, with what each of them adds."""
    figure, ((ax,),) = panels(1, 1)
    figure.set_size_inches(7.0, 3.0)
    for row, (i, added) in enumerate(zip((1, 3, 5, 7, 9), found["added"], strict=True)):
        for column, (letter, value) in enumerate(zip(found["genes"][i], added / added.max(), strict=True)):
            ax.text(column, -row, letter, ha="center", va="center", family="monospace", fontsize=12, zorder=2)
            ax.barh(-row, 0.9, 0.8, column - 0.45, color="C1", alpha=float(np.clip(value, 0, 1)))
        place = found["places"][i]
        ax.plot([place - 0.5, place + 5.5], [-row - 0.45] * 2, color="C0", linewidth=2.5)
    ax.set(xlim=(-1, 26), ylim=(-4.8, 0.7), title="orange: what a letter adds; blue: where the box is")
    ax.axis("off")
    return Picture.of(figure, "Five stretches of DNA; the letters that the model points at lie in the box, mostly.")


def molecules(found: Names) -> Picture:
    """The map by family, with some names."""
    figure, ((ax,),) = panels(1, 1)
    figure.set_size_inches(5.6, 4.8)
    codes, labels, names = found["codes"], np.array(found["labels"]), found["table"]["name"].to_numpy()
    for number, family in enumerate(found["families"]):
        chosen = np.flatnonzero(labels == family)
        ax.scatter(*codes[chosen].T, label=family, s=30, color=f"C{number}")
        for i in chosen[:: max(1, len(chosen) // 3)]:
            ax.annotate(names[i], codes[i], (4, 3), textcoords="offset points", fontsize=8)
    ax.legend()
    ax.set(xlabel="first code", ylabel="second code")
    return Picture.of(figure, "Molecules on a plane of two codes; those of one family lie together.")


def graphs(found: Names) -> Picture:
    """Graphs with few and many spanning trees."""
    import networkx

    figure, axes = panels(2, 4)
    figure.set_size_inches(7.0, 4.0)
    for ax, i in zip(axes.flat, np.argsort(found["y"])[:: len(found["y"]) // 7], strict=True):
        networkx.draw_circular(found["graphs"][i], ax=ax, node_size=40, node_color="C0", edge_color="0.45")
        ax.set_title(f"{found['trees'][i]} trees,\npredicted {np.exp(found['learned'][i]):.0f}", fontsize=10)
    return Picture.of(figure, "Eight graphs of seven nodes, with their number of spanning trees and its prediction.")


def wind(found: Names) -> Picture:
    """The fields over the truth."""
    figure, (axes,) = panels(1, 3, size=2.5, column_labels=["unrelated", "curl-free", "divergence-free"])
    for ax, field in zip(axes, found["fields"].values(), strict=True):
        ax.quiver(*found["grid"].T, *found["truth"].T, color="0.75", scale=45, width=0.006)
        ax.quiver(*found["grid"].T, *field.T, color="C0", scale=45, width=0.004)
        ax.plot(*found["stations"].T, "k.", markersize=3)
    return Picture.of(
        figure,
        "Arrows of the true wind in grey and of three fits in blue; the divergence-free fit covers the truth.",
    )


# The strongest story first.
DRAWINGS: dict[str, Callable[[Names], Picture]] = {
    "boiling": boiling,
    "photograph": photograph,
    "molecules": molecules,
    "strings": strings,
    "graphs": graphs,
    "words": words,
    "decisions": decisions,
    "conditionals": conditionals,
    "wind": wind,
    "kink": kink,
    "circles": circles,
    "components": components,
}
