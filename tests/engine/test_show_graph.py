"""`grad_fn`, what it shows of a recorded op, and the picture of a graph."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from test_engine import leaf

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn
from tinyattn.errors import GraphError

# What an op saves, and who its parents are


def test_leaves_have_no_op() -> None:
    assert leaf([1.0]).grad_fn is None
    assert ta.ones(2).grad_fn is None
    assert (ta.ones(2) * 2).grad_fn is None


def test_an_op_and_its_parents() -> None:
    x, y = leaf([[1.0, 2.0]]), leaf([[3.0], [4.0]])
    product = x @ y
    total = product + 1.0
    assert total.grad_fn.name == "add"
    assert total.grad_fn.parents == (product.grad_fn, None)
    assert product.grad_fn.name == "matmul"
    assert product.grad_fn.shape == (1, 1)
    assert [parent.shape for parent in product.grad_fn.parents] == [(1, 2), (2, 1)]


def test_saved_values_have_the_names_of_the_rules() -> None:
    x, y = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    saved = (x * y).grad_fn.saved_values()
    assert {name: value.tolist() for name, value in saved.items()} == {"x": [1, 2], "y": [3, 4]}
    assert list((x * ta.ones(2)).grad_fn.saved_values()) == ["y"]
    assert (x + y).grad_fn.saved_values() == {}
    out = x.exp()
    assert out.grad_fn.saved_values()["out"].tolist() == out.tolist()
    assert x.sum().grad_fn.saved_values()["shape"] == (2,)


def test_saved_values_cannot_be_written_to() -> None:
    x = leaf([1.0, 2.0])
    with pytest.raises(ValueError, match="read-only"):
        (x * x).grad_fn.saved_values()["x"][0] = 5.0


def test_saved_values_of_several_arguments_of_one_name() -> None:
    @ta.op
    def product(*xs):
        return xs[0] * xs[1]

    @product.vjp("xs")
    def _(grad, xs):
        raise AssertionError

    @ta.op
    def scaled(first, *xs, factor=2.0):
        return first * factor

    @scaled.vjp("first", "xs")
    def _(grad, xs, factor):
        raise AssertionError

    x, y = leaf([2.0]), leaf([3.0])
    node = scaled(x, y, x, factor=4.0).grad_fn
    assert list(node.saved_values()) == ["xs[0]", "xs[1]", "factor"]
    assert node.saved_values()["xs[1]"].tolist() == [2.0]
    assert node.saved_values()["factor"] == 4.0


def test_after_backward_nothing_is_left() -> None:
    x = leaf([3.0])
    y = x * x
    y.backward()
    assert y.grad_fn.name == "mul"
    assert y.grad_fn.parents is None
    assert y.grad_fn.saved_values() == {}


# The picture


@pytest.fixture
def viz() -> Any:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: nothing to draw with")
    from tinyattn import viz

    return viz


def texts(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts if text.get_text()]


def boxes(figure: Any) -> list[Any]:
    """The extent of each box, in pixels."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure).draw()
    panel = figure.axes[0]
    return [text.get_bbox_patch().get_window_extent() for text in panel.texts if text.get_text()]


def test_a_box_names_op_shape_and_saved_values(viz: Any) -> None:
    x, w = leaf(np.ones((2, 3))), leaf(np.ones((3, 4)))
    figure = viz.show_graph((x @ w).tanh().sum(), {"x": x, "w": w})
    found = texts(figure)
    assert found[0] == "sum\n()\nsaves shape (2, 4)"
    assert "tanh\n(2, 4)\nsaves out (2, 4)" in found
    assert "matmul\n(2, 4)\nsaves y (3, 4)\nsaves x (2, 3)\nsaves shapes [(2, 3), (3, 4)]" in found
    assert {"x\n(2, 3)", "w\n(3, 4)"} < set(found)
    assert len(found) == 5
    assert figure._repr_png_().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "join",
    [
        lambda a, s, c: a + c, lambda a, s, c: c + a, lambda a, s, c: (a + s) * c,
        lambda a, s, c: c * (s + a), lambda a, s, c: ta.stack([a, c, s]), lambda a, s, c: a * a + c,
    ],
)  # fmt: skip
def test_each_argument_is_below_all_its_results(viz: Any, join: Any) -> None:
    x = leaf([1.0, 2.0])
    a = x.exp()
    s = a.sin()
    c = s.cos()
    out = join(a, s, c)
    panel = viz.show_graph(out, {"x": x, "a": a, "s": s, "c": c, "out": out}).axes[0]
    shown = [text for text in panel.texts if text.get_text()]
    height = {text.get_text().split()[0]: text.get_position()[1] for text in shown}
    assert height["out"] > height["c"] > height["s"] > height["a"] > height["x"]


def test_leaves_have_one_color_and_results_another(viz: Any) -> None:
    x, w = leaf(np.ones((2, 3))), leaf(np.ones((3, 4)))
    panel = viz.show_graph((x @ w).tanh().sum(), {"x": x}).axes[0]
    colors: dict[bool, set[Any]] = {True: set(), False: set()}
    for text in panel.texts:
        if text.get_text():
            is_leaf = text.get_text().splitlines()[0] in ("x", "leaf")
            colors[is_leaf].add(text.get_bbox_patch().get_facecolor())
    ((red, green, blue, _),), ((r, g, b, _),) = colors[True], colors[False]
    assert green > max(red, blue)
    assert b > max(r, g)


def test_a_computed_tensor_can_be_named_and_a_constant_is_not_drawn(viz: Any) -> None:
    x = leaf([1.0, 2.0])
    y = x * ta.ones(2)
    assert texts(viz.show_graph(y + 1, {"y": y})) == [
        "add\n(2,)", "y = mul\n(2,)\nsaves y (2,)", "leaf\n(2,)"
    ]  # fmt: skip


def test_each_use_has_an_arrow(viz: Any) -> None:
    x = leaf([1.0])
    panel = viz.show_graph(x * x + x).axes[0]
    arrows = [text for text in panel.texts if hasattr(text, "arrow_patch")]
    assert len(arrows) == 4  # add to mul, add to x, and twice mul to x


@pytest.mark.parametrize("swapped", [False, True])
def test_results_stand_above_what_they_were_computed_from(viz: Any, swapped: bool) -> None:
    """One branch is longer than the other; the last user of x is not always the lowest."""
    x = leaf([1.0])
    short, long = x.exp(), x.tanh().sigmoid()
    figure = viz.show_graph(long + short if swapped else short + long, {"x": x})
    found = [text for text in figure.axes[0].texts if text.get_text()]
    height = {text.get_text().split("\n")[0]: text.get_position()[1] for text in found}
    assert all(height[one] > height[other] for one, other in pairwise(["add", "exp", "x"]))
    assert all(height[one] > height[other] for one, other in pairwise(["sigmoid", "tanh", "x"]))


@pytest.mark.parametrize("kind", ["encoder layer", "second derivative", "many users"])
def test_boxes_do_not_overlap_and_lie_inside(viz: Any, kind: str) -> None:
    ta.manual_seed(0)
    x = ta.randn(2, 3, 8, requires_grad=True)
    if kind == "encoder layer":
        attention = nn.MultiHeadAttention(8, 8, 8, 8, 2)
        layer = nn.EncoderLayer(8, attention, nn.PositionwiseFeedForward(8, 16), dropout=0.0)
        out = layer(x)
        figure = viz.show_graph(out, dict(layer.named_parameters()))
        assert len(texts(figure)) > 20
    elif kind == "second derivative":
        (slope,) = ta.grad(F.softmax(x * x).square().sum(), x, create_graph=True)
        figure = viz.show_graph(slope)
    else:
        figure = viz.show_graph(ta.stack([x * i for i in range(1, 7)]).sum())
    page = figure.bbox
    found = boxes(figure)
    for box in found:
        assert page.x0 <= box.x0 < box.x1 <= page.x1
        assert page.y0 <= box.y0 < box.y1 <= page.y1
    assert not any(one.overlaps(other) for one, other in combinations(found, 2))


def test_a_graph_without_an_op(viz: Any) -> None:
    x = leaf([1.0, 2.0])
    assert texts(viz.show_graph(x, {"x": x})) == ["x\n(2,)"]


@pytest.mark.parametrize("of", ["leaf", "result"])
def test_a_name_of_two_lines_has_room(viz: Any, of: str) -> None:
    x = leaf([1.0, 2.0])
    named = x if of == "leaf" else x * x
    short, long = (viz.show_graph(named * 2, {name: named}) for name in ("a", "a\nb"))
    assert long.get_figheight() > short.get_figheight()
    assert long.get_figwidth() == short.get_figwidth()


def test_what_cannot_be_drawn_is_told(viz: Any) -> None:
    x = leaf([1.0])
    y = x * x
    y.backward()
    with pytest.raises(GraphError, match="has been freed"):
        viz.show_graph(y)
    with pytest.raises(GraphError, match="was not recorded"):
        viz.show_graph(ta.ones(2))
    with pytest.raises(TypeError, match=r"takes a Tensor, got numpy\.ndarray"):
        viz.show_graph(np.ones(2))
    with pytest.raises(TypeError, match=r"names is a dict from names to tensors, got Tensor"):
        viz.show_graph(x * x, x)
    with pytest.raises(TypeError, match="the name 'five' is of a Tensor, got int"):
        viz.show_graph(x * x, {"five": 5})
    for _ in range(200):
        x = x + 1
    with pytest.raises(ValueError, match="at most 200 boxes, and this graph has 201"):
        viz.show_graph(x)


def test_labels_of_heatmaps_can_be_numbers(viz: Any) -> None:
    figure = viz.show_heatmaps(np.ones((2, 3, 3)), xticks=range(3), yticks=[[0, 1], [2, 3, 4]])
    found = [
        [label.get_text() for label in labels]
        for panel in figure.axes[:2]
        for labels in (panel.get_xticklabels(), panel.get_yticklabels())
    ]
    assert found == [["0", "1", "2"], ["0", "1"], ["0", "1", "2"], ["2", "3", "4"]]


def test_a_list_without_symbols_is_one_for_all_panels(viz: Any) -> None:
    figure = viz.show_heatmaps(np.ones((2, 3, 3)), xticks=[], yticks=[["a"], []])
    found = [[len(panel.get_xticks()), len(panel.get_yticks())] for panel in figure.axes[:2]]
    assert found == [[0, 1], [0, 0]]


def test_as_many_boxes_as_can_be_are_drawn(viz: Any) -> None:
    total = leaf([1.0])
    for _ in range(199):
        total = total * 2.0
    panel = viz.show_graph(total).axes[0]
    assert len(panel.texts) == 200 + 199  # boxes and arrows


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_arrows_begin_side_by_side_at_their_box_and_end_at_another(viz: Any, number: int) -> None:
    leaves = [leaf([[float(i)]]) for i in range(number)]
    figure = viz.show_graph(ta.cat(leaves), {f"the leaf {i}": x for i, x in enumerate(leaves)})
    panel = figure.axes[0]
    boxes = {t.get_text().split("\n")[0]: t for t in panel.texts if t.get_text()}
    (top,) = (text for name, text in boxes.items() if not name.startswith("the"))
    lines = top.get_text().split("\n")
    width, half = 0.25 + 0.067 * max(map(len, lines)), 0.075 * len(lines)
    x, y = top.get_position()
    starts = [line.get_xydata()[0].tolist() for line in panel.lines]
    ends = [text.xy for text in panel.texts if not text.get_text()]
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        part = (i + 1) / (number + 1) - 0.5
        assert start == pytest.approx([x + width * part, y - half - 0.07])
        below, level = boxes[f"the leaf {i}"].get_position()
        assert end == pytest.approx((below, level + 0.075 * 2 + 0.07))
        assert start[1] - end[1] == pytest.approx(0.4 + 2 * 0.1 - 2 * 0.07)  # between two rows
    places = [boxes[f"the leaf {i}"].get_position()[0] for i in range(number)]
    assert sum(places) / number == pytest.approx(x, abs=1e-3)
    gaps = np.diff(places) - (0.25 + 0.067 * len("the leaf 0"))
    np.testing.assert_allclose(gaps, 0.2, rtol=1e-6)
    assert panel.get_xlim()[1] - panel.get_xlim()[0] == pytest.approx(figure.get_size_inches()[0])
