"""Look into a model while it computes, and take heads out of it, by hooks that end."""

from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from . import nn
from .base.checks import check_choice, check_type, is_integer
from .ops.arithmetic import where
from .tensors.tensor import Tensor


class Observation:
    """What `observed` saw in the last call: `hidden_states`, a list, and `weights`, a dict."""

    def __init__(self) -> None:
        self.hidden_states: list[Tensor] = []
        self.weights: dict[int | tuple[int, int], Tensor] = {}


@contextmanager
def observed(
    model: nn.Module, weights: Collection[int | tuple[int, int]] = ()
) -> Iterator[Observation]:
    """A with-block that sees the hidden states of a model, and chosen attention weights.

        x_0 = what the first layer gets,  x_(i + 1) = layer_i(x_i)
        weights = softmax(q k^T / sqrt(d) + bias) over the visible keys, before dropout

    model: an nn.Encoder, or a module with one inside, such as a CausalLM.
    weights: layers i, for all their heads, and pairs (layer, head); both count from 0.

    It gives an object with `hidden_states`, the L + 1 Tensors x_0 to x_L, (B, N, D) or packed, and
    `weights`, a dict: weights[i] is (B, H, Q, K), and weights[i, h] is (B, Q, K), both detached.
    They are of the last call in the block, and stay after it. The norm after the last layer is not
    in x_L. In the block the model has hooks, and a copy of it would keep them. One thread at a time
    may use it.

    Raises IndexError for a layer or head that the model lacks, TypeError for other numbers, for a
    model without exactly one Encoder, and for a layer without a MultiHeadAttention, ValueError for
    layers that share modules.
    Source: Elhage et al., "A Mathematical Framework for Transformer Circuits", 2021.
    Differs from transformers: output_attentions and output_hidden_states are arguments of a call
    there, give the weights of all layers, and their last hidden state has gone through the norm.

        >>> sizes = 8, nn.MultiHeadedAttention(2, 8), nn.PositionwiseFeedForward(8, 16)
        >>> encoder = nn.Encoder(nn.EncoderLayer(*sizes), 3)
        >>> with ta.models.observed(encoder, weights=[0, (2, 1)]) as seen:
        ...     _ = encoder(ta.randn(1, 4, 8), is_causal=True)
        >>> len(seen.hidden_states), seen.weights[0].shape, seen.weights[2, 1].shape
        (4, (1, 2, 4, 4), (1, 4, 4))
    """
    layers, seen = encoder_of(model).layers, Observation()
    chosen = check_type("weights is a list of layers and heads", weights, Iterable)
    wanted = [(key, *checked_place(layers, key)) for key in chosen]

    def see(number: int, x: Tensor, out: Tensor) -> None:
        if number == 0:
            seen.hidden_states, seen.weights = [x], {}
        seen.hidden_states.append(out)
        for key, _, head in (place for place in wanted if place[1] == number):
            found = layers[number].self_attn.attention_weights
            seen.weights[key] = found if head is None else found[:, head]

    with ExitStack() as hooks:
        for i, layer in enumerate(layers):
            hook = layer.register_forward_hook(lambda _, args, out, i=i: see(i, args[0], out))
            hooks.callback(hook.remove)
        yield seen


@contextmanager
def ablated(
    model: nn.Module, heads: Collection[tuple[int, int]], to: str = "zero"
) -> Iterator[None]:
    """A with-block in which chosen heads give nothing, or always the same.

        out = W_o [head_1, ..., head_H], with 0, or the mean, in the place of each chosen head_h

    What a model can no longer do in the block needs these heads, because nothing else has changed.

    model: as `observed` takes it. heads: pairs (layer, head), which count from 0. to: "zero", or
    "mean": that of the head's output over all samples and positions of the call, padding included.
    In the block the model has hooks, as in `observed`: do not copy, quantize or change it there.
    Errors: as `observed`, ValueError for another `to`, and RuntimeError for a W_o that has a hook
    already, such as that of another block, because this one would undo what it does.
    Source: Michel et al., "Are Sixteen Heads Really Better than One?", 2019. PyTorch and
    transformers have no such function.

        >>> sizes = 8, nn.MultiHeadedAttention(2, 8), nn.PositionwiseFeedForward(8, 16)
        >>> encoder, x = nn.Encoder(nn.EncoderLayer(*sizes), 3).eval(), ta.randn(1, 4, 8)
        >>> whole = encoder(x)
        >>> with ta.models.ablated(encoder, [(0, 1), (2, 0)]):
        ...     without = encoder(x)
        >>> whole.equal(without), whole.equal(encoder(x))
        (False, True)
    """
    check_choice("to", to, "zero", "mean")
    layers = encoder_of(model).layers
    chosen = check_type("heads is a list of pairs (layer, head)", heads, Iterable)
    places = [checked_place(layers, key) for key in chosen]
    if any(head is None for _, head in places):
        raise TypeError(f"heads are pairs (layer, head), got {heads!r:.60}")

    def replace(gone: np.ndarray, projection: nn.Module, joined: Tensor) -> Tensor:
        """W_o of the joined heads (B, N, H * d), or packed, without those that are gone, (H,)."""
        columns = gone.repeat(joined.shape[-1] // len(gone))
        rows = tuple(range(joined.ndim - 1))
        other = joined.mean(rows, keepdim=True) if to == "mean" else 0.0
        return projection.forward(where(columns, other, joined))

    with ExitStack() as hooks:
        for number in {layer for layer, _ in places}:
            attention: Any = layers[number].self_attn
            if attention.W_o._hooks:
                raise RuntimeError(
                    f"W_o of layer {number} has a hook, and this block would undo what it does: "
                    "name all heads in one block, and register hooks of your own inside it"
                )
            gone = np.array([(number, h) in places for h in range(attention.num_heads)])
            hook = attention.W_o.register_forward_hook(
                lambda module, args, _, gone=gone: replace(gone, module, args[0])
            )
            hooks.callback(hook.remove)
        yield


def encoder_of(model: nn.Module) -> nn.Encoder:
    modules = model.modules() if isinstance(model, nn.Module) else ()
    found = [m for m in modules if isinstance(m, nn.Encoder)]
    if len(found) != 1:
        raise TypeError(f"a model with one nn.Encoder, got {type(model).__name__} of {len(found)}")
    parts = [part for layer in found[0].layers for part in (layer, layer.self_attn)]
    if len(set(map(id, parts))) < len(parts):
        raise ValueError("layers that are one module, or share their attention, are not told apart")
    return found[0]


def checked_place(layers: Any, key: Any) -> tuple[int, int | None]:
    """(layer, head) of a pair, or (layer, None) of a number, if the model has them."""
    layer, head = key if isinstance(key, tuple) and len(key) == 2 else (key, None)
    if not is_integer(layer) or not (head is None or is_integer(head)):
        raise TypeError(f"a layer is a number, and a head a pair (layer, head), got {key!r:.60}")
    if not 0 <= layer < len(layers):
        raise IndexError(f"the model has the layers 0 to {len(layers) - 1}, got {layer}")
    attention = layers[layer].self_attn
    needed = f"layer {layer} has heads if it has a MultiHeadAttention"
    check_type(needed, attention, nn.MultiHeadAttention)
    if head is not None and not 0 <= head < attention.num_heads:
        raise IndexError(f"layer {layer} has the heads 0 to {attention.num_heads - 1}, got {head}")
    return layer, head
