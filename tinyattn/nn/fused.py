"""A narrow encoder layer as one operation.

`ops.encoder_layer`, whose kernel does at once what are sixteen operations otherwise. The modules
stay what they are and hold the parameters; only the way through them is shorter. The numbers are
the same up to rounding, the dropout bit by bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import masks, ops
from ..backend import is_finite
from ..graph import wrap
from ..ops.encoder_layer import fits, shapes_of
from ..random import dropout_seed
from ..tensor import Tensor
from .attention import MultiHeadAttention, MultiHeadedAttention
from .layers import Dropout, LayerNorm, Linear, ReLU
from .module import are_own

if TYPE_CHECKING:
    from .transformer import EncoderLayer


class Parts(NamedTuple):
    """What an encoder layer is made of."""

    attention: Any
    feed_forward: Any
    first: Any
    second: Any

    @property
    def parameters(self) -> list[Any]:
        """In the order of the operation."""
        attention, feed_forward, first, second = self
        return [
            parameter
            for part in (
                first.norm, attention.W_q, attention.W_k, attention.W_v, attention.W_o,
                second.norm, feed_forward.w_1, feed_forward.w_2,
            )
            for parameter in (part.weight, part.bias)
        ]  # fmt: skip

    @property
    def dropouts(self) -> list[Dropout]:
        """In the order in which they are computed."""
        attention, feed_forward, first, second = self
        return [attention.dropout, first.dropout, feed_forward.dropout, second.dropout]


def parts_of(layer: EncoderLayer) -> Parts:
    first, second, *_ = layer.sublayer
    return Parts(layer.self_attn, layer.feed_forward, first, second)


def is_fusible(parts: Parts, x: Tensor, hides: bool) -> bool:
    """Whether a layer has the form that is computed here, and its arrays `fit`.

    It is pre-norm, with relu, and projects x with one product; and what it is made of are the
    library's own classes, not others derived from them, nor objects with a `forward` of their own.
    hides: whether some of x is hidden from the rest. A NaN there is for the modules to keep apart.
    """
    from .transformer import PositionwiseFeedForward, SublayerConnection

    if type(x._data) is not np.ndarray:  # as on a GPU: not worth looking further
        return False
    attention, feed_forward, first, second = parts
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
    if not (
        are_own(Linear, attention.W_o, feed_forward.w_1, feed_forward.w_2)
        and are_own(LayerNorm, first.norm, second.norm)
        and are_own(Dropout, *parts.dropouts)
        and are_own(ReLU, feed_forward.activation)
    ):
        return False
    arrays = [p if p is None else p._data for p in parts.parameters]
    if any(weight is None for weight in arrays[::2]):
        return False  # what is wrong with it, if anything is, the modules say best
    for array, shape in zip(arrays, shapes_of(x._data, arrays), strict=True):
        if array is not None and array.shape != shape:
            return False
    rates = [dropout.p for dropout in parts.dropouts]
    return fits(x._data, arrays, rates) and (not hides or x.ndim == 2 or is_finite(x._data))


def fused(parts: Parts, x: Tensor, mask: Any, valid_lens: Any, is_causal: bool) -> Tensor:
    """What the layer of these parts computes, of an x for which it `is_fusible`."""
    attention, _, first, second = parts
    if x.ndim == 2:
        lengths, limits = attention.within_samples(len(x), valid_lens, mask, is_causal)
        seen = None
    else:
        shape = (len(x), attention.num_heads, x.shape[1], x.shape[1])
        lengths, (limits, seen) = None, masks.canonical(shape, valid_lens, mask, is_causal)
    rates = tuple(dropout.p if dropout.training else 0.0 for dropout in parts.dropouts)
    projections: list[Any] = []
    out = ops.encoder_layer(
        x, *parts.parameters, heads=attention.num_heads, lengths=lengths, limits=limits,
        mask=seen, eps=(first.norm.eps, second.norm.eps), rates=rates,
        seeds=tuple(dropout_seed() if p else 0 for p in rates), projections=projections,
    )  # fmt: skip
    attention.remember(wrap(projections[0]), lengths, limits, seen)
    return out
