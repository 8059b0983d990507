"""Modules: layers, losses, attention, the encoder and the decoder. In the order of reading:

summary.py      a module as a tree and as a table
module.py       Module, Parameter: how a module finds its parameters, and is saved
containers.py   ModuleList, ModuleDict, Sequential
init.py         starting values
layers.py       Linear, LayerNorm, RMSNorm, Dropout, Embedding
activations.py  losses.py   the functions of `functional` as modules
position.py     positions: added to the inputs, learned, or rotary
attention.py    attention, from one scoring function to many heads
cache.py        keys and values that attention keeps from call to call
transformer.py  decoder.py  the encoder, the decoder, and both together
lora.py         a low-rank correction of a frozen Linear
"""

import sys
from typing import TYPE_CHECKING, Any

from .. import functional
from ..base.names import UnknownNameError
from . import init
from .activations import GELU, Identity, ReLU, Sigmoid, SiLU, Softmax, Tanh
from .attention import (
    AdditiveAttention,
    DotProductAttention,
    MultiHeadAttention,
    MultiHeadedAttention,
    SelfAttention,
)
from .containers import ModuleDict, ModuleList, Sequential
from .decoder import Decoder, DecoderLayer, EncoderDecoder
from .layers import Dropout, Embedding, LayerNorm, Linear, RMSNorm
from .lora import LoRA
from .losses import CrossEntropyLoss, KLDivLoss, MSELoss
from .module import Module, Parameter
from .position import LearnedPositionalEncoding, PositionalEncoding, RotaryEmbedding
from .transformer import (
    Encoder,
    EncoderLayer,
    PositionwiseFeedForward,
    SublayerConnection,
    SwiGLU,
    clones,
)

# So that `import tinyattn.nn.functional as F` works, as in PyTorch; it is tinyattn.functional.
sys.modules[f"{__name__}.functional"] = functional

__all__ = [
    "GELU",
    "AdditiveAttention",
    "CrossEntropyLoss",
    "Decoder",
    "DecoderLayer",
    "DotProductAttention",
    "Dropout",
    "Embedding",
    "Encoder",
    "EncoderDecoder",
    "EncoderLayer",
    "Identity",
    "KLDivLoss",
    "LayerNorm",
    "LearnedPositionalEncoding",
    "Linear",
    "LoRA",
    "MSELoss",
    "Module",
    "ModuleDict",
    "ModuleList",
    "MultiHeadAttention",
    "MultiHeadedAttention",
    "Parameter",
    "PositionalEncoding",
    "PositionwiseFeedForward",
    "RMSNorm",
    "ReLU",
    "RotaryEmbedding",
    "SelfAttention",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "SublayerConnection",
    "SwiGLU",
    "Tanh",
    "clones",
    "functional",
    "init",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        raise UnknownNameError("nn", name, __all__)

    def __dir__() -> list[str]:
        return sorted(__all__)
