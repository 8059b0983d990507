"""What the pictures of `viz` show; `show_graph` is in tests/engine/test_show_graph.py."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

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
    with pytest.raises(TypeError, match=r"a dict of names to layers.*got tinyattn\.Sequential"):
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
