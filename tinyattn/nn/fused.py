"""A narrow encoder layer as three operations: before attention, attention, after it.

What happens to each position by itself goes through `ops.positionwise`, whose kernel does at once
what are ten operations otherwise. The modules stay what they are and hold the parameters; only the
way through them is shorter. The numbers are the same up to rounding, the dropout bit by bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import masks, ops
from ..backend import is_finite
from ..ops.positionwise import fits
from ..random import dropout_seed
from ..tensor import Tensor
from .attention import MultiHeadAttention, MultiHeadedAttention
from .layers import Dropout, LayerNorm, Linear, ReLU
from .module import are_own

if TYPE_CHECKING:
    from .transformer import EncoderLayer


def is_fusible(layer: EncoderLayer, x: Tensor, hides: bool) -> bool:
    """Whether a layer has the form that is computed here, and its arrays `fit`.

    It is pre-norm, with relu, and projects x with one product; and what it is made of are the
    library's own classes, not others derived from them, nor objects with a `forward` of their own.
    hides: whether some of x is hidden from the rest. A NaN there is for the modules to keep apart.
    """
    from .transformer import PositionwiseFeedForward, SublayerConnection

    if not fits(x._data, (), (0.0,)):  # as on a GPU: not worth looking further
        return False
    attention, feed_forward, first, second = parts_of(layer)
    multi_head = (
        MultiHeadAttention if type(attention) is MultiHeadAttention else MultiHeadedAttention
    )
    if not (
        are_own(multi_head, attention)
        and are_own(PositionwiseFeedForward, feed_forward)
        and are_own(SublayerConnection, first, second)
        and first.order == second.order == "pre"
        and attention.projects_alike()
    ):
        return False
    norms, drops = (first.norm, second.norm), (first.dropout, feed_forward.dropout, second.dropout)
    linear = (attention.W_o, feed_forward.w_1, feed_forward.w_2)
    if not (
        are_own(Linear, *linear)
        and are_own(LayerNorm, *norms)
        and are_own(Dropout, *drops)
        and are_own(ReLU, feed_forward.activation)
    ):
        return False
    width, wide = x.shape[-1:], attention.W_q.weight.shape[:1]
    hidden = feed_forward.w_1.weight.shape[:1]
    shapes = (
        width, width, wide + width, wide + width, wide + width, width + wide, hidden + width,
        width + hidden,
    )  # fmt: skip
    arrays = []
    projections = (attention.W_q, attention.W_k, attention.W_v)
    for part, shape in zip((*norms, *projections, *linear), shapes, strict=True):
        weight, bias = part.weight, part.bias
        if weight is None or weight.shape != shape or not (bias is None or bias.shape == shape[:1]):
            return False  # what is wrong with it, if anything is, the modules say best
        arrays.append(weight._data)
        arrays.append(None if bias is None else bias._data)
    rates = [dropout.p for dropout in drops]
    return fits(x._data, arrays, rates) and (not hides or x.ndim == 2 or is_finite(x._data))


def parts_of(layer: EncoderLayer) -> tuple[Any, Any, Any, Any]:
    first, second, *_ = layer.sublayer
    return layer.self_attn, layer.feed_forward, first, second


def fused(layer: EncoderLayer, x: Tensor, mask: Any, valid_lens: Any, is_causal: bool) -> Tensor:
    """What the layer computes, of an x for which it `is_fusible`."""
    attention, feed_forward, first, second = parts_of(layer)
    if x.ndim == 2:
        lengths, limits = attention.within_samples(len(x), valid_lens, mask, is_causal)
        seen = None
    else:
        shape = (len(x), attention.num_heads, x.shape[1], x.shape[1])
        lengths, (limits, seen) = None, masks.canonical(shape, valid_lens, mask, is_causal)
    norm = first.norm
    qkv = ops.norm_linear(x, norm.weight, norm.bias, *attention.joined(), eps=norm.eps)
    heads = attention.attend_to_itself(qkv, lengths, limits, seen)
    w_o, w_1, w_2, norm = attention.W_o, feed_forward.w_1, feed_forward.w_2, second.norm
    drops = [rate_and_seed(part.dropout) for part in (first, feed_forward, second)]
    rates, seeds = zip(*drops, strict=True)
    return ops.add_norm_feed_forward(
        x, heads, w_o.weight, w_o.bias, norm.weight, norm.bias, w_1.weight, w_1.bias, w_2.weight,
        w_2.bias, eps=norm.eps, rates=rates, seeds=seeds,
    )  # fmt: skip


def rate_and_seed(dropout: Dropout) -> tuple[float, int]:
    """p, and the seed that a call of the module would draw."""
    p = dropout.p if dropout.training else 0.0
    return p, dropout_seed() if p else 0
