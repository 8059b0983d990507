"""Functions of Tensors, without parameters of their own.

An op that takes what users have is a function here as it is: softmax, relu, linear and others. The
files here have functions that are made of several ops, or bring their arguments into another shape.

    layers.py       embedding, gelu, layer_norm, dropout, pad, one_hot
    losses.py       cross_entropy, mse_loss and others
    sequences.py    packed and padded sequences, and their means
    attention.py    scaled_dot_product_attention, masked_softmax
    positions.py    rotary_embedding, alibi_bias
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..base.names import UnknownNameError
from ..ops import linear, log_softmax, relu, sigmoid, silu, softmax, softplus, tanh
from .attention import masked_softmax, scaled_dot_product_attention, transpose_output, transpose_qkv
from .layers import dropout, embedding, gelu, layer_norm, normalize, one_hot, pad, rms_norm
from .losses import binary_cross_entropy_with_logits, cross_entropy, kl_div, mse_loss, nll_loss
from .positions import alibi_bias, rotary_embedding
from .sequences import masked_mean, pack_padded_sequence, pad_packed_sequence, sequence_mask

__all__ = [
    "alibi_bias",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "dropout",
    "embedding",
    "gelu",
    "kl_div",
    "layer_norm",
    "linear",
    "log_softmax",
    "masked_mean",
    "masked_softmax",
    "mse_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pack_padded_sequence",
    "pad",
    "pad_packed_sequence",
    "relu",
    "rms_norm",
    "rotary_embedding",
    "scaled_dot_product_attention",
    "sequence_mask",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "tanh",
    "transpose_output",
    "transpose_qkv",
]


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        raise UnknownNameError("F", name, __all__)
