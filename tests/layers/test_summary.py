"""How a module, an optimizer and a large tensor are shown: short, and with what one looks for."""

from __future__ import annotations

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import nn, optim
from tinyattn.torch_names import nn as torch_nn


def encoder(layers: int = 6) -> nn.Encoder:
    attention, network = nn.MultiHeadedAttention(4, 64), nn.PositionwiseFeedForward(64, 256)
    return nn.Encoder(nn.EncoderLayer(64, attention, network), layers)


def test_the_repr_shows_equal_parts_once() -> None:
    text = repr(encoder())
    assert len(text.splitlines()) == 26
    assert "    (0-5): 6 x EncoderLayer(\n      (self_attn): MultiHeadedAttention(" in text
    assert "        (0-1): 2 x SublayerConnection(norm='pre'\n          (norm): LayerNorm" in text
    layers = [nn.Dropout(0.1), nn.Dropout(0.1), nn.Dropout(0.2), nn.Dropout(0.1)]
    assert repr(nn.ModuleList(layers)) == "\n".join(
        [
            "ModuleList(",
            "  (0-1): 2 x Dropout(p=0.1)",
            "  (2): Dropout(p=0.2)",
            "  (3): Dropout(p=0.1)",
            ")",
        ]
    )
    named = nn.ModuleDict({"a": nn.ReLU(), "b": nn.ReLU()})
    assert repr(named) == "ModuleDict(\n  (a): ReLU()\n  (b): ReLU()\n)"


def test_an_optimizer_says_its_settings() -> None:
    layer = nn.Linear(3, 2)
    settings = "lr=0.5, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.1"
    adam = optim.AdamW(layer.parameters(), 0.5, weight_decay=0.1)
    assert repr(adam) == f"AdamW(tensors=2, parameters=8, {settings})"
    adam.lr = 0.25
    assert "lr=0.25" in repr(adam)
    groups = [{"params": [layer.weight]}, {"params": [layer.bias], "lr": 0.5}]
    lines = repr(optim.SGD(groups, lr=0.1)).splitlines()
    assert lines[1].startswith("  group 0: tensors=1, parameters=6, lr=0.1, ")
    assert lines[2].startswith("  group 1: tensors=1, parameters=2, lr=0.5, ")
    assert [lines[0], lines[3]] == ["SGD(", ")"]


def test_a_schedule_says_its_step_and_rate() -> None:
    adam = optim.Adam(nn.Linear(3, 2).parameters(), 0.5)
    schedule = optim.CosineSchedule(adam, total=4, warmup=2)
    assert repr(schedule) == "CosineSchedule(step_count=1, lr=[0.25])"
    schedule.step()
    assert repr(schedule) == "CosineSchedule(step_count=2, lr=[0.5])"


def test_recurrent_modules_are_shown_as_in_pytorch() -> None:
    torch = pytest.importorskip("torch")
    options = ({}, {"num_layers": 2, "bidirectional": True}, {"batch_first": True, "bias": False})
    for name in ("RNN", "GRU", "LSTM"):
        for named in options:
            ours, theirs = getattr(torch_nn, name), getattr(torch.nn, name)
            assert repr(ours(3, 4, **named)) == repr(theirs(3, 4, **named))


@pytest.mark.parametrize(
    ("shape", "lines"), [((200, 100), 7), ((20, 30, 40), 25), ((32, 8, 10, 10), 23), ((2000,), 1)]
)
def test_a_large_tensor_is_cut_and_says_its_shape(shape: tuple[int, ...], lines: int) -> None:
    text = repr(ta.zeros(*shape))
    assert len(text.splitlines()) == lines
    assert text.endswith(f", size={shape})")


def test_a_small_tensor_is_whole() -> None:
    assert "size" not in repr(ta.zeros(10, 100))
    assert "..." not in repr(ta.zeros(10, 100))


def test_the_options_of_numpy_hold() -> None:
    with np.printoptions(threshold=10**6):
        assert "..." not in repr(ta.zeros(40, 40))
    with np.printoptions(threshold=5, edgeitems=1):
        assert repr(ta.zeros(9)) == "tensor([0., ..., 0.], size=(9,))"


LAYERS = {
    "Linear": [(2, 3), (2, 3, False), (0, 1)],
    "LayerNorm": [(6,), ((2, 3),), (6, 0.0), (6, 1e-12), (6, 1 / 3), (6, 1e-5, False),
                  (6, 1e-5, True, False)],
    "RMSNorm": [(6,), ((2, 3),), (6, 0.0), (6, 1e-12), (6, 1 / 3), (6, None, False)],
    "Dropout": [(), (0.0,), (1 / 3,), (1.0,)],
    "Embedding": [(4, 3), (4, 3, 0), (4, 3, 3)],
    "Softmax": [(), (0,), (-2,)],
    "GELU": [(), ("tanh",)],
    "ReLU": [()], "SiLU": [()], "Sigmoid": [()], "Tanh": [()], "Identity": [()],
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_the_repr_of_a_layer_makes_one_like_it(name: str) -> None:
    """So it shows each option in full. Whether a layer is trained is no option."""
    for arguments in LAYERS[name]:
        layer = getattr(nn, name)(*arguments)
        layer.requires_grad_(False)
        made = eval(repr(layer), vars(nn).copy())
        assert repr(made) == repr(layer)
        for option, value in vars(layer).items():
            if not isinstance(value, ta.Tensor):
                assert getattr(made, option) == value, option
        shapes = [[(n, x.shape) for n, x in of.named_parameters()] for of in (layer, made)]
        assert shapes[0] == shapes[1]
