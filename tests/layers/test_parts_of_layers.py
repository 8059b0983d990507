"""What a layer is told reaches each of its parts, and each part has the size that it needs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common import assert_close, random_parameters, rng_of, signed

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn
from tinyattn.errors import ShapeError

D = 8
LAYERS: dict[str, Callable[..., nn.Module]] = {
    "encoder": lambda **options: nn.EncoderLayer(
        D, nn.MultiHeadedAttention(2, D, 0.3), nn.PositionwiseFeedForward(D, 6, 0.3), **options
    ),
    "decoder": lambda **options: nn.DecoderLayer(
        D,
        *(nn.MultiHeadedAttention(2, D, 0.3) for _ in range(2)),
        nn.PositionwiseFeedForward(D, 6, 0.3),
        **options,
    ),
}
STACKS = {"encoder": nn.Encoder, "decoder": nn.Decoder}


def of_kind(module: nn.Module, *kinds: type) -> list[Any]:
    return [part for part in module.modules() if isinstance(part, kinds)]


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("order", ["pre", "post"])
@pytest.mark.parametrize("norm_layer", [nn.LayerNorm, nn.RMSNorm])
@pytest.mark.parametrize("kind", LAYERS)
def test_options_of_a_layer_reach_all_norms_and_dropouts(
    kind: str, norm_layer: Any, order: str, stacked: bool
) -> None:
    """That at the end of a stack too."""
    for eps in (None, 0.25):
        module = LAYERS[kind](dropout=0.3, norm=order, eps=eps, norm_layer=norm_layer)
        connections = 2 if kind == "encoder" else 3
        if stacked:
            module, connections = STACKS[kind](module, 2), 2 * connections
        norms = of_kind(module, nn.LayerNorm, nn.RMSNorm)
        assert len(norms) == connections + (stacked and order == "pre")
        assert {type(norm) for norm in norms} == {norm_layer}
        assert {norm.eps for norm in norms} == {norm_layer(D).eps if eps is None else eps}
        assert {part.order for part in of_kind(module, nn.SublayerConnection)} == {order}
        assert {part.p for part in of_kind(module, nn.Dropout)} == {0.3}


# How each module with a dropout is made; the probability is given by name.
WITH_DROPOUT: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "DotProductAttention": (nn.DotProductAttention, ()),
    "AdditiveAttention": (nn.AdditiveAttention, (3, 4, 5)),
    "MultiHeadAttention": (nn.MultiHeadAttention, (3, 4, 5, 6, 2)),
    "MultiHeadedAttention": (nn.MultiHeadedAttention, (2, D)),
    "PositionalEncoding": (nn.PositionalEncoding, (D,)),
    "LearnedPositionalEncoding": (nn.LearnedPositionalEncoding, (D,)),
    "PositionwiseFeedForward": (nn.PositionwiseFeedForward, (D, 6)),
    "SwiGLU": (nn.SwiGLU, (D, 6)),
    "SublayerConnection": (nn.SublayerConnection, (D,)),
    "EncoderLayer": (nn.EncoderLayer, (D, nn.Identity(), nn.ReLU())),
    "DecoderLayer": (nn.DecoderLayer, (D, nn.Identity(), nn.GELU(), nn.ReLU())),
    "LoRA": (nn.LoRA, (nn.Linear(D, 6),)),
}


def test_each_module_with_a_dropout_is_tried() -> None:
    takes = {
        name
        for name, kind in vars(nn).items()
        if isinstance(kind, type) and issubclass(kind, nn.Module) and kind is not nn.Module
        if "dropout" in inspect.signature(kind.__init__).parameters
    }
    assert takes == set(WITH_DROPOUT)


@pytest.mark.parametrize("name", WITH_DROPOUT)
def test_a_probability_reaches_each_dropout(name: str) -> None:
    make, arguments = WITH_DROPOUT[name]
    default = inspect.signature(make.__init__).parameters["dropout"].default
    for p, options in ((default, {}), (0.7, {"dropout": 0.7}), (0.0, {"dropout": 0.0})):
        assert {part.p for part in of_kind(make(*arguments, **options), nn.Dropout)} == {p}


# All sizes of a layer differ, so none can stand in the place of another: how it is made, the shapes
# of its matrices in the order of parameters(), inputs, and the shape of the result.
SIZES: dict[str, tuple[Callable[[], nn.Module], list[tuple[int, ...]], list[Any], Any]] = {
    "SelfAttention": (
        lambda: nn.SelfAttention(6, 4),
        [(4, 6), (4, 6), (4, 6)],
        [(2, 5, 6)],
        (2, 5, 4),
    ),
    "AdditiveAttention": (
        lambda: nn.AdditiveAttention(3, 4, 5),
        [(5, 3), (5, 4), (1, 5)],
        [(2, 7, 4), (2, 8, 3), (2, 8, 9)],
        (2, 7, 9),
    ),
    "DotProductAttention": (
        lambda: nn.DotProductAttention(),
        [],
        [(2, 7, 4), (2, 8, 4), (2, 8, 9)],
        (2, 7, 9),
    ),
    "MultiHeadAttention": (
        lambda: nn.MultiHeadAttention(3, 4, 5, 12, 2, num_kv_heads=1),
        [(12, 4), (6, 3), (6, 5), (12, 12)],
        [(2, 7, 4), (2, 8, 3), (2, 8, 5)],
        (2, 7, 12),
    ),
    "MultiHeadedAttention": (
        lambda: nn.MultiHeadedAttention(2, 12, num_kv_heads=1),
        [(12, 12), (6, 12), (6, 12), (12, 12)],
        [(2, 7, 12), (2, 8, 12), (2, 8, 12)],
        (2, 7, 12),
    ),
    "PositionwiseFeedForward": (
        lambda: nn.PositionwiseFeedForward(6, 4),
        [(4, 6), (6, 4)],
        [(2, 5, 6)],
        (2, 5, 6),
    ),
    "SwiGLU": (lambda: nn.SwiGLU(6, 4), [(4, 6), (6, 4), (4, 6)], [(2, 5, 6)], (2, 5, 6)),
    "LoRA": (
        lambda: nn.LoRA(nn.Linear(6, 4), 3),
        [(3, 6), (4, 3), (4, 6)],
        [(2, 5, 6)],
        (2, 5, 4),
    ),
    "Linear": (lambda: nn.Linear(6, 4), [(4, 6)], [(2, 5, 6)], (2, 5, 4)),
    "LearnedPositionalEncoding": (
        lambda: nn.LearnedPositionalEncoding(6, max_len=9),
        [(9, 6)],
        [(2, 5, 6)],
        (2, 5, 6),
    ),
}


@pytest.mark.parametrize("name", SIZES)
def test_each_matrix_has_the_size_of_what_it_stands_between(name: str) -> None:
    make, matrices, inputs, result = SIZES[name]
    module = make()
    assert [p.shape for p in module.parameters() if p.ndim == 2] == matrices
    assert module(*(ta.ones(*shape) for shape in inputs)).shape == result


@pytest.mark.parametrize("change", [-1, 1])
@pytest.mark.parametrize("name", SIZES)
def test_a_width_that_is_too_large_is_refused_as_one_that_is_too_small(
    name: str, change: int
) -> None:
    """With the shape that was given, and without those that the layer makes of it."""
    make, _, inputs, _ = SIZES[name]
    module = make()
    for i, shape in enumerate(inputs):
        if name in ("DotProductAttention", "AdditiveAttention") and i == 2:
            continue  # values of any width
        wrong = (*shape[:-1], shape[-1] + change)
        given = [*inputs[:i], wrong, *inputs[i + 1 :]]
        with pytest.raises(ShapeError) as caught:
            module(*(ta.ones(*sizes) for sizes in given))
        assert str(wrong) in str(caught.value)


@pytest.mark.parametrize(
    ("activation", "function"),
    [
        ("relu", F.relu),
        ("gelu", F.gelu),
        ("gelu_tanh", lambda x: F.gelu(x, approximate="tanh")),
    ],
)
def test_each_name_of_an_activation_is_its_function(activation: str, function: Any) -> None:
    module = nn.PositionwiseFeedForward(D, 6, activation=activation).eval().to(ta.float64)
    x = ta.tensor(3 * signed(rng_of(0), 4, D))
    right = module.w_2(function(module.w_1(x)))
    assert_close(module(x).numpy(), right.numpy(), 1e-14)
    others = {"relu", "gelu", "gelu_tanh"} - {activation}
    for other in others:
        copy = nn.PositionwiseFeedForward(D, 6, activation=other).eval().to(ta.float64)
        copy.load_state_dict(module.state_dict())
        assert np.abs(copy(x).numpy() - right.numpy()).max() > 1e-6


NO_NORM: list[Any] = [
    "Pre",
    "POST",
    " pre",
    "",
    "p",
    "layer",
    None,
    True,
    1,
    nn.LayerNorm,
    nn.RMSNorm,
]


@pytest.mark.parametrize("wrong", NO_NORM, ids=[str(i) for i in range(len(NO_NORM))])
def test_the_order_of_a_norm_is_one_of_two_words(wrong: Any) -> None:
    message = f'norm must be "pre" or "post", got {wrong!r}: the class of the norm is norm_layer'
    for make in (lambda **options: nn.SublayerConnection(D, **options), *LAYERS.values()):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            make(norm=wrong)


class Thrice(nn.Module):
    """In the place of a Dropout, which would be random."""

    def forward(self, x: ta.Tensor) -> ta.Tensor:
        return 3 * x


def attended(q: ta.Tensor, k: ta.Tensor, v: ta.Tensor) -> ta.Tensor:
    return 3 * (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v


def heads_attended(m: Any, q: ta.Tensor, k: ta.Tensor, v: ta.Tensor) -> ta.Tensor:
    split = [y.reshape(2, 3, 2, D // 2).transpose(1, 2) for y in (m.W_q(q), m.W_k(k), m.W_v(v))]
    return m.W_o(attended(*split).transpose(1, 2).flatten(2))


def added(q: ta.Tensor, k: ta.Tensor, v: ta.Tensor, m: Any) -> ta.Tensor:
    scores = m.w_v((m.W_q(q).unsqueeze(2) + m.W_k(k).unsqueeze(1)).tanh()).squeeze(-1)
    return 3 * scores.softmax(-1) @ v


# What each module gives if its dropout multiplies by 3: the place of the dropout in its formula.
DROPPED: dict[str, tuple[tuple[Any, ...], int, Callable[..., ta.Tensor]]] = {
    "DotProductAttention": ((), 3, lambda m, q, k, v: attended(q, k, v)),
    "AdditiveAttention": ((D, D, 5), 3, lambda m, q, k, v: added(q, k, v, m)),
    "MultiHeadAttention": ((D, D, D, D, 2), 3, heads_attended),
    "MultiHeadedAttention": ((2, D), 3, heads_attended),
    "PositionalEncoding": ((D,), 1, lambda m, x: 3 * (x + m.P[:, :3])),
    "LearnedPositionalEncoding": ((D,), 1, lambda m, x: 3 * (x + m.weight[:3])),
    "PositionwiseFeedForward": ((D, 6), 1, lambda m, x: m.w_2(3 * F.relu(m.w_1(x)))),
    "SwiGLU": ((D, 6), 1, lambda m, x: m.w_2(3 * F.silu(m.w_1(x)) * m.w_3(x))),
    "LoRA": ((nn.Linear(D, 6), 2, 0.5), 1, lambda m, x: m.linear(x) + 1.5 * (x @ m.A.T) @ m.B.T),
}


@pytest.mark.parametrize("name", DROPPED)
def test_a_dropout_stands_at_its_place_in_the_formula(name: str) -> None:
    arguments, count, right = DROPPED[name]
    module = random_parameters(getattr(nn, name)(*arguments), rng_of(0)).double()
    xs = [ta.tensor(signed(rng_of(i), 2, 3, D)) for i in range(1, count + 1)]
    module.dropout = Thrice()
    assert_close(module(*xs).detach().numpy(), right(module, *xs).detach().numpy(), 1e-12)


@pytest.mark.parametrize("norm_layer", [nn.LayerNorm, nn.RMSNorm])
@pytest.mark.parametrize("order", ["pre", "post"])
def test_a_connection_has_its_norm_and_its_dropout_in_order(order: str, norm_layer: Any) -> None:
    connection = nn.SublayerConnection(D, norm=order, norm_layer=norm_layer)
    connection = random_parameters(connection, rng_of(0)).double()
    connection.dropout = Thrice()
    x, norm = ta.tensor(signed(rng_of(1), 2, 3, D)), connection.norm
    right = x + 3 * norm(x).sin() if order == "pre" else norm(x + 3 * x.sin())
    assert_close(connection(x, ta.Tensor.sin).detach().numpy(), right.detach().numpy(), 1e-13)


@pytest.mark.parametrize("order", ["pre", "post"])
@pytest.mark.parametrize("kind", LAYERS)
def test_each_connection_of_a_layer_drops_what_its_part_gives(kind: str, order: str) -> None:
    """With probability 1 nothing of a part is left: x alone, or its norms, in training only."""
    layer = LAYERS[kind](dropout=1.0, norm=order).double()
    x = ta.tensor(signed(rng_of(2), 2, 3, D))
    given = (x,) if kind == "encoder" else (x, x + 1)
    right = x
    if order == "post":
        for connection in layer.sublayer:
            right = connection.norm(right)
    assert_close(layer.train()(*given).numpy(), right.numpy(), 1e-13)
    assert np.abs(layer.eval()(*given).numpy() - right.numpy()).max() > 0.01
