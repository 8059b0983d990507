"""Layers and models: everything with parameters."""

from typing import TYPE_CHECKING, Any

from ..names import missing
from . import init
from .attention import (
    AdditiveAttention,
    DotProductAttention,
    MultiHeadAttention,
    MultiHeadedAttention,
    SelfAttention,
)
from .layers import GELU, Dropout, Embedding, LayerNorm, Linear, ReLU
from .module import Module, ModuleList, Parameter, Sequential
from .position import LearnedPositionalEncoding, PositionalEncoding
from .transformer import (
    Encoder,
    EncoderLayer,
    PositionwiseFeedForward,
    SublayerConnection,
    clones,
)

__all__ = [
    "GELU",
    "AdditiveAttention",
    "DotProductAttention",
    "Dropout",
    "Embedding",
    "Encoder",
    "EncoderLayer",
    "LayerNorm",
    "LearnedPositionalEncoding",
    "Linear",
    "Module",
    "ModuleList",
    "MultiHeadAttention",
    "MultiHeadedAttention",
    "Parameter",
    "PositionalEncoding",
    "PositionwiseFeedForward",
    "ReLU",
    "SelfAttention",
    "Sequential",
    "SublayerConnection",
    "clones",
    "init",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        raise missing("nn", name, globals())
