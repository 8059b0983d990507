"""How a module, an optimizer and a large tensor are shown: short, and with what one looks for."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import nn, optim
from tinyattn.errors import ShapeError
from tinyattn.torch_names import nn as torch_nn


def encoder(layers: int = 6) -> nn.Encoder:
    attention, network = nn.MultiHeadedAttention(4, 64), nn.PositionwiseFeedForward(64, 256)
    return nn.Encoder(nn.EncoderLayer(64, attention, network), layers)


class Tied(nn.Module):
    """The output has the weight of the embedding; a part is frozen, one has only a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.positions = nn.PositionalEncoding(4, 0.0, max_len=7)
        self.dropout = nn.Dropout(0.1)
        self.output = nn.Linear(4, 10, bias=False)
        self.output.weight = self.embedding.weight
        self.frozen = nn.Linear(2, 2).requires_grad_(False)


def test_a_summary_counts_each_parameter_once() -> None:
    assert str(Tied().summary()) == "\n".join(
        [
            "part                             parameters  tensors",
            "Tied                                     46",
            "  embedding: Embedding                   40  weight (10, 4)",
            "  positions: PositionalEncoding           0  P (1, 7, 4) buffer",
            "  output: Linear                          0  weight (10, 4) shared",
            "  frozen: Linear                          6  weight (2, 2) frozen, bias (2,) frozen",
            "46 parameters, 40 of them trainable; 0.2 KiB",
        ]
    )


@pytest.mark.parametrize("layers", [1, 2, 6])
def test_a_summary_has_the_numbers_of_the_model(layers: int) -> None:
    model = encoder(layers)
    text, total = str(model.summary()), sum(x.numel() for x in model.parameters())
    assert f"Encoder  {total:,}" in re.sub(" +", "  ", text.splitlines()[1])
    assert text.splitlines()[-1].startswith(f"{total:,} parameters, {total:,} of them trainable;")
    one = sum(x.numel() for x in model.layers[0].parameters())
    name, number = ("0", f"{one:,}") if layers == 1 else (f"0-{layers - 1}", f"{layers} x {one:,}")
    kind = "EncoderLayer" if layers == 1 else f"{layers} x EncoderLayer"
    assert re.search(rf"^    {name}: {kind} +{number}$", text, re.MULTILINE)
    assert text.count("self_attn: MultiHeadedAttention") == 1
    assert "Dropout" not in text


def test_parts_that_differ_have_lines_of_their_own() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 3), nn.Linear(2, 2))
    lines = [line.split("  ")[1] for line in str(model.summary()).splitlines()[2:-1]]
    assert lines == ["0-1: 2 x Linear", "2: Linear", "3: Linear"]
    model[1].requires_grad_(False)  # the shapes are equal, and what is trained is not
    assert "2 x" not in str(model.summary())
    twice = nn.Linear(2, 2)
    text = str(nn.ModuleList([twice, twice]).summary())
    assert "weight (2, 2) shared, bias (2,) shared" in text
    assert "6 parameters, 6 of them trainable" in text


def test_depth_leaves_out_parts_of_parts() -> None:
    model = encoder()
    names = [line.split()[0] for line in str(model.summary(depth=1)).splitlines()]
    assert names == ["part", "Encoder", "layers:", "norm:", "300,032"]
    assert len(str(model.summary(depth=2)).splitlines()) == 6
    assert str(model.summary(depth=9)) == str(model.summary())
    for wrong in (0, -1, 1.5, "all"):
        with pytest.raises(ShapeError, match="depth must be an integer >= 1"):
            model.summary(depth=wrong)


def test_a_module_without_parameters_has_a_summary() -> None:
    text = str(nn.ReLU().summary())
    assert text.splitlines()[1].split() == ["ReLU", "0"]
    assert text.endswith("0 parameters, 0 of them trainable; 0.0 KiB")


def test_a_large_model_counts_in_mebibytes() -> None:
    assert str(nn.Linear(1024, 512, bias=False).summary()).endswith("trainable; 2.0 MiB")


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
