"""The pictures of `viz` stay as they were approved: texts, places, sizes and colours.

pictures.json holds them. After a change that is meant, look at the new pictures, and write it anew:

    python tests/layers/test_pictures.py
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.ticker import FixedLocator

import tinyattn as ta
from tinyattn import nn, viz

APPROVED = Path(__file__).with_name("pictures.json")


def weights(*shape: int) -> np.ndarray:
    return np.linspace(0, 1, int(np.prod(shape))).reshape(shape)


def heatmap() -> Figure:
    return viz.show_heatmaps(weights(2, 3))


def heatmaps_with_a_mask() -> Figure:
    mask = np.tril(np.ones((2, 3), dtype=bool), 1)
    return viz.show_heatmaps(
        weights(2, 2, 2, 3),
        mask=mask,
        titles=["first head", "second head"],
        xticks=["the", "dog", "sleeps"],
        yticks=[["a", "b"], ["c", "d"]],
        xlabel="Memory",
        ylabel="Query",
    )


def wide_heatmaps() -> Figure:
    return viz.show_heatmaps(weights(1, 4, 3, 20) * 3, xticks=["symbols"] * 20, vmin=-1, vmax=4)


def curves() -> Figure:
    values = np.array([4.0, 2, 3, 1, 2, 1, 1, 0, 1, 0, 1, 0])
    return viz.plot_curves(
        {"training": values, "held-out": ([3, 6, 9], [3.0, 2.0, 1.5]), "short": values[:2]},
        xlabel="Epoch",
        ylabel="Error",
        smooth=3,
    )


def gradient_norms() -> Figure:
    layers = [nn.Linear(2, 2), nn.Linear(2, 2)]
    for number, layer in enumerate(layers, 1):
        layer.weight.grad = ta.full((2, 2), 10.0**-number)
    return viz.plot_gradient_norms({"linear": layers})


def shapes() -> Figure:
    return viz.show_shapes(("Q", 3, 2), "·", ("Kᵀ", 2, 5), "=", ("scores", 3, 5), scale=0.3)


def graph() -> Figure:
    """With a residual, whose arrow goes beside the boxes between, and a product of two leaves."""
    x, w = ta.ones(2, 3), ta.ones(3, 3, requires_grad=True)
    hidden = (x @ w).tanh()
    return viz.show_graph((hidden @ w + hidden).exp().sum(), {"weight": w})


def graph_of_a_leaf() -> Figure:
    return viz.show_graph(ta.ones(2, requires_grad=True))


PICTURES: list[Callable[[], Figure]] = [
    heatmap, heatmaps_with_a_mask, wide_heatmaps, curves, gradient_norms, shapes, graph,
    graph_of_a_leaf,
]  # fmt: skip


def text_of(text: Any, with_place: bool = True) -> dict[str, Any]:
    box = text.get_bbox_patch()
    arrow = text.arrow_patch if isinstance(text, Annotation) else None
    return {
        "text": text.get_text(),
        "place": list(text.get_position()) if with_place else None,
        "size": text.get_fontsize(),
        "aligned": [text.get_ha(), text.get_va()],
        "color": to_hex(text.get_color()),
        "family": text.get_fontfamily()[0],
        "turned": text.get_rotation(),
        "box": box and [to_hex(box.get_facecolor()), type(box.get_boxstyle()).__name__],
        "arrow": arrow and [list(text.xy), to_hex(arrow.get_edgecolor()), arrow.shrinkA,
                            arrow.shrinkB, type(arrow.get_arrowstyle()).__name__],
    }  # fmt: skip


def drawn(picture: Callable[[], Figure]) -> dict[str, Any]:
    """What a picture says, without what matplotlib chooses itself, such as the room of a title."""
    figure = picture()
    panels = []
    for panel in figure.axes:
        legend = panel.get_legend()
        panels.append({
            "titles": [text_of(text, False) for text in (panel.title, panel.xaxis.label,
                                                         panel.yaxis.label)],
            "is seen": panel.axison,
            "limits": [*panel.get_xlim(), *panel.get_ylim()],
            "scales": [panel.get_xscale(), panel.get_yscale(), str(panel.get_aspect())],
            "background": to_hex(panel.get_facecolor()),
            "ticks": [[text_of(label, False) for label in axis.get_ticklabels() if label.get_text()]
                      for axis in (panel.xaxis, panel.yaxis)
                      if isinstance(axis.get_major_locator(), FixedLocator)],
            "lines": [{"x": list(line.get_xdata()), "y": list(line.get_ydata()),
                       "look": [to_hex(line.get_color()), line.get_linewidth(), line.get_alpha()]}
                      for line in panel.lines],
            "patches": [{"corners": patch.get_path().vertices.tolist(),
                         "colors": [to_hex(patch.get_facecolor()), to_hex(patch.get_edgecolor())]}
                        for patch in panel.patches],
            "images": [{"values": np.ma.filled(image.get_array(), -9).tolist(),
                        "scale": [*image.get_clim()], "colors": image.get_cmap().name}
                       for image in panel.images],
            "hatched": [{"cells": [path.vertices.tolist() for path in cells.get_paths()],
                         "look": [cells.get_hatch(), cells.get_linewidth()[0],
                                  to_hex(cells.get_edgecolor()[0])]}
                        for cells in panel.collections if cells.get_hatch()],
            "texts": [text_of(text) for text in panel.texts],
            "names": legend and [text.get_text() for text in legend.get_texts()],
        })  # fmt: skip
    return {"inches": list(figure.get_size_inches()), "panels": panels}


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """The values of nested dicts and lists by their path, numbers as float."""
    if isinstance(value, (dict, list, tuple)):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        return {k: x for name, part in parts for k, x in flat(part, f"{path}/{name}").items()}
    return {path: float(value) if isinstance(value, (int, float, np.number)) else value}


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.__name__)
def test_a_picture_is_as_approved(picture: Callable[[], Figure]) -> None:
    approved = flat(json.loads(APPROVED.read_text(encoding="utf-8"))[picture.__name__])
    found = flat(drawn(picture))
    assert found.keys() == approved.keys()
    differs = {
        path: (x, approved[path])
        for path, x in found.items()
        if (x != pytest.approx(approved[path], 1e-3, 1e-3) if isinstance(x, float)
            else x != approved[path])
    }  # fmt: skip
    assert not differs


if __name__ == "__main__":
    lines = [
        f'"{x.__name__}": ' + json.dumps(drawn(x), ensure_ascii=False, default=lambda x: x.item())
        for x in PICTURES
    ]
    APPROVED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
