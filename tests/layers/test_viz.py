"""What the pictures of `viz` show; `show_graph` is in tests/engine/test_show_graph.py."""

from __future__ import annotations

import collections
import itertools
import types

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

import tinyattn as ta
from tinyattn import nn, viz


def test_gradient_norms_are_those_of_the_layers() -> None:
    layers = [nn.Linear(3, 3), nn.Linear(3, 3)]
    layers[0].bias.requires_grad_(False)
    out = nn.Sequential(*layers)(ta.randn(4, 3))
    out.backward(ta.randn(4, 3))
    line = viz.plot_gradient_norms({"linear": layers}).axes[0].lines[0]
    first = np.linalg.norm(layers[0].weight.grad.numpy())
    parts = [p.grad.numpy().ravel() for p in layers[1].parameters()]
    second = np.linalg.norm(np.concatenate(parts))
    np.testing.assert_array_equal(line.get_xdata(), [1, 2])
    np.testing.assert_allclose(line.get_ydata(), [first, second], rtol=1e-6)


def test_gradient_norms_have_a_line_for_each_stack_on_a_logarithmic_scale() -> None:
    stacks = {"small": [nn.Linear(2, 2)], "large": [nn.Linear(2, 2)]}
    for name, (layer,) in stacks.items():
        layer(ta.randn(1, 2)).backward(ta.randn(1, 2) * (1e-20 if name == "small" else 1e20))
    panel = viz.plot_gradient_norms(stacks).axes[0]
    assert panel.get_yscale() == "log"
    assert [line.get_label() for line in panel.lines] == ["small", "large"]
    assert 0 < panel.lines[0].get_ydata()[0] < 1e-15  # squares of float32 would be 0
    assert 1e15 < panel.lines[1].get_ydata()[0] < np.inf


def test_gradient_norms_before_backward() -> None:
    with pytest.raises(ValueError, match="layer 1 of 'encoder' has no gradient: call backward"):
        viz.plot_gradient_norms({"encoder": [nn.Linear(2, 2)]})


def test_gradient_norms_of_a_layer_without_parameters() -> None:
    layers = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    layers(ta.randn(1, 2)).backward(ta.randn(1, 2))
    with pytest.raises(ValueError, match=r"layer 2 of 'all' .*: it has no parameters"):
        viz.plot_gradient_norms({"all": layers})


def test_gradient_norms_take_a_dict() -> None:
    with pytest.raises(TypeError, match=r"a dict of names to layers.*got Sequential"):
        viz.plot_gradient_norms(nn.Sequential(nn.Linear(2, 2)))


def test_gradient_norms_count_layers() -> None:
    layers = [nn.Linear(2, 2) for _ in range(3)]
    nn.Sequential(*layers)(ta.randn(1, 2)).backward(ta.randn(1, 2))
    figure = viz.plot_gradient_norms({"linear": layers})
    figure.canvas.draw()
    assert all(tick == int(tick) for tick in figure.axes[0].get_xticks())


@pytest.mark.parametrize(
    "words", [["a", "bc", "def"], ["The", "animal", "didn't", "cross", "the", "street"]]
)
def test_symbols_of_keys_do_not_overlap(words: list[str]) -> None:
    figure = viz.show_heatmaps(np.full((1, 2, len(words), len(words)), 0.1), xticks=words)
    figure.canvas.draw()
    for panel in figure.axes[:2]:
        boxes = [label.get_window_extent() for label in panel.get_xticklabels()]
        assert all(a.x1 <= b.x0 for a, b in itertools.pairwise(boxes))
        assert panel.get_xticklabels()[0].get_rotation() == (90 if "animal" in words else 0)


def test_a_scale_below_0_takes_its_own_limits() -> None:
    viz.show_heatmaps(np.array([[[[-2.0, -1.0]]]]), vmin=-2, vmax=-1)
    with pytest.raises(ValueError, match="lie between -2 and -1"):
        viz.show_heatmaps(np.array([[[[-2.0, -0.9]]]]), vmin=-2, vmax=-1)


def letters_of(figure: Figure, room: float) -> float:
    """The height in pixels of the smallest letters, where a page has `room` pixels for a figure."""
    figure.canvas.draw()
    sizes = [text.get_fontsize() for text in figure.findobj(Text) if text.get_text()]
    return min(sizes) * 100 / 72 * min(1.0, room / (100 * figure.get_figwidth()))


def of_five_inches() -> list[Figure]:
    words = ["the", "cat", "sat"] * 3
    layers = [nn.Linear(2, 2)]
    layers[0](ta.randn(1, 2)).backward(ta.randn(1, 2))
    return [
        viz.plot_curves({"training": [3, 2, 1], "held out": [3, 2, 2]}),
        viz.plot_gradient_norms({"linear": layers}),
        viz.show_heatmaps(np.full((1, 2, 9, 9), 0.1), xticks=words, yticks=words, figsize=(5, 3)),
        viz.show_heatmaps(np.full((2, 2), 0.1), titles=["a"], figsize=(5, 3)),
        viz.show_shapes(("Q", 3, 6), "·", ("K", 6, 3), "=", ("scores", 3, 3)),
    ]


@pytest.mark.parametrize("number", range(5))
def test_letters_can_be_read_on_a_telephone(number: int) -> None:
    """Of figures of 5 inches, in a window of 390 pixels; wider ones are scrolled there."""
    figure = of_five_inches()[number]
    assert 4.4 < figure.get_figwidth() <= 5.05
    assert letters_of(figure, room=358) >= 9


@pytest.mark.parametrize("shape", [(3, 4, 10, 10), (2, 4, 9, 11), (1, 5, 6, 6)])
def test_letters_can_be_read_on_a_page(shape: tuple[int, ...]) -> None:
    """The text of a page is 736 pixels wide."""
    symbols = ["EH"] * shape[-1]
    figure = viz.show_heatmaps(np.full(shape, 0.1), titles=["head"] * shape[1], xticks=symbols)
    assert letters_of(figure, room=736) >= 9


def test_the_bar_says_what_the_colours_show() -> None:
    for names in ({}, {"zlabel": "a$b"}):
        figure = viz.show_heatmaps(np.full((1, 2, 3, 3), 0.1), **names)
        assert figure.axes[-1].get_ylabel() == names.get("zlabel", "Weight")


# What readers see who lack one kind of cones. Machado, Oliveira and Fernandes, 2009.
CONES = {
    "all": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
         [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
         [-0.011820, 0.042940, 0.968881]]
    ),
}  # fmt: skip


def lab(color: str, seen: np.ndarray) -> np.ndarray:
    """CIELAB of a colour, in which distances are about those that one sees."""
    rgb = np.array(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    relative = xyz @ np.clip(seen @ linear, 0, 1) / [0.9505, 1, 1.089]
    x, y, z = np.where(relative > 0.008856, np.cbrt(relative), 7.787 * relative + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("cones", CONES)
def test_who_confuses_red_and_green_sees_all_curves(cones: str) -> None:
    """matplotlib's own red and green are 5 apart for them."""
    curves = {f"curve {i}": [i, i] for i in range(7)}
    panel = viz.figure_class()().subplots()
    for curve in curves.values():
        panel.plot(curve)
    for axes in (panel, viz.plot_curves(curves).axes[0]):
        places = [lab(line.get_color(), CONES[cones]) for line in axes.lines]
        assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(places, 2)) > 15


@pytest.mark.parametrize("window", [2, 3, 4, 5])
def test_a_mean_is_drawn_at_the_middle_of_its_window(window):
    """So the means of a straight line lie on it, half a step beside it for an even window."""
    figure = viz.plot_curves({"line": np.arange(1.0, 31)}, smooth=window)
    pale, line = figure.axes[0].lines
    assert pale.get_ydata().tolist() == list(range(1, 31))
    assert len(line.get_xdata()) == 31 - window
    beside = line.get_xdata() - line.get_ydata()
    np.testing.assert_allclose(beside, (window % 2 == 0) / 2, atol=1e-12)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(0, 0, 1, 2), (1, 0, 0, 0), (1, 1, 1, 1)])
def test_the_bar_speaks_of_orange_only_where_a_reader_sees_it(
    place: tuple[int, ...], value: float
) -> None:
    """An invisible cell is hatched, whatever its number is: scores before a softmax hold -inf."""
    weights = np.full((2, 2, 2, 3), 0.25)
    weights[place] = value
    for is_visible in (True, False):
        mask = np.ones(weights.shape, bool)
        mask[place] = is_visible
        *panels, bar = viz.show_heatmaps(weights, mask=mask, zlabel="Score").axes
        assert bar.get_ylabel() == "Score" + " (orange: NaN or infinite)" * is_visible
        shown = np.stack([np.ma.getmaskarray(panel.images[0].get_array()) for panel in panels])
        assert np.argwhere(shown.reshape(weights.shape)).tolist() == [list(place)]
        hatched = [len(panel.collections) for panel in panels]
        assert sum(hatched) == (not is_visible)
        assert hatched[2 * place[0] + place[1]] == (not is_visible)


def test_the_numbers_of_invisible_cells_do_not_count_for_the_scale() -> None:
    mask = np.array([[[True, False], [True, True]]])
    for number in (-5.0, 7.0, np.nan, np.inf, -np.inf):
        weights = np.array([[0.0, number], [0.5, 1.0]])
        panel, bar = viz.show_heatmaps(weights, mask=mask).axes
        assert panel.images[0].get_clim() == (0, 1)
        assert bar.get_ylabel() == "Weight"
        if np.isfinite(number):
            with pytest.raises(ValueError, match=r"^weights lie between 0 and 1, got values from"):
                viz.show_heatmaps(weights)
    all_hidden = viz.show_heatmaps(np.full((2, 2), np.nan), mask=np.zeros((1, 2, 2), bool))
    assert all_hidden.axes[1].get_ylabel() == "Weight"


@pytest.mark.parametrize("place", [1, 2, 3])
def test_a_layer_without_gradients_is_named_with_what_to_do(place: int) -> None:
    for layer, hint in (
        (nn.Linear(2, 2), "call backward first"),
        (nn.ReLU(), "it has no parameters: leave it out"),
    ):
        trained = nn.Linear(2, 2)
        trained(ta.ones(1, 2)).sum().backward()
        layers = [trained] * 3
        layers[place - 1] = layer
        with pytest.raises(ValueError, match=f"^layer {place} of 'a' has no gradient: {hint}$"):
            viz.plot_gradient_norms({"b": [trained], "a": layers})


@pytest.mark.parametrize("kind", ["MappingProxyType", "ChainMap"])
def test_any_mapping_has_the_names_of_a_picture(kind: str) -> None:
    make = types.MappingProxyType if kind == "MappingProxyType" else getattr(collections, kind)
    layers = [nn.Linear(2, 2), nn.Linear(2, 2)]
    (out := nn.Sequential(*layers)(ta.ones(1, 2))).backward(ta.ones(1, 2), retain_graph=True)
    for draw, of in (
        (viz.plot_curves, {"a": [1.0, 0.5]}),
        (viz.plot_gradient_norms, {"a": layers}),
        (lambda names: viz.show_graph(out, names), {"a": layers[0].weight}),
    ):
        drawn = []
        for names in (of, make(of)):
            figure = draw(names)
            texts = [text.get_text() for text in figure.findobj(Text)]
            drawn.append((texts, [line.get_xydata().tolist() for line in figure.axes[0].lines]))
        assert drawn[0] == drawn[1]
        assert "a" in "\n".join(drawn[1][0]).split("\n")
        with pytest.raises(TypeError, match=r"takes a dict|is a dict"):
            draw(list(of.items()))
