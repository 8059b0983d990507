"""Modules: layers, losses, attention, the encoder and the decoder. In the order of reading:

init.py         starting values
module.py       Module, Parameter: how a module finds its parameters, and is saved
containers.py   ModuleList, ModuleDict, Sequential
layers.py       Linear, LayerNorm, RMSNorm, Dropout, Embedding
functions.py    activations and losses of `functional` as modules
position.py     positions: added to the inputs, learned, or rotary
attention.py    attention, from one scoring function to many heads
cache.py        keys and values that attention keeps from call to call
transformer.py  decoder.py  the encoder, the decoder, and both together
lora.py         a low-rank correction of a frozen Linear
"""

import sys

from .. import functional as functional
from ..base.names import offer, own_names
from . import init as init
from .attention import AdditiveAttention as AdditiveAttention
from .attention import DotProductAttention as DotProductAttention
from .attention import MultiHeadAttention as MultiHeadAttention
from .attention import MultiHeadedAttention as MultiHeadedAttention
from .attention import SelfAttention as SelfAttention
from .containers import ModuleDict as ModuleDict
from .containers import ModuleList as ModuleList
from .containers import Sequential as Sequential
from .decoder import Decoder as Decoder
from .decoder import DecoderLayer as DecoderLayer
from .decoder import EncoderDecoder as EncoderDecoder
from .functions import GELU as GELU
from .functions import CrossEntropyLoss as CrossEntropyLoss
from .functions import Identity as Identity
from .functions import KLDivLoss as KLDivLoss
from .functions import MSELoss as MSELoss
from .functions import ReLU as ReLU
from .functions import Sigmoid as Sigmoid
from .functions import SiLU as SiLU
from .functions import Softmax as Softmax
from .functions import Tanh as Tanh
from .layers import Dropout as Dropout
from .layers import Embedding as Embedding
from .layers import LayerNorm as LayerNorm
from .layers import Linear as Linear
from .layers import RMSNorm as RMSNorm
from .lora import LoRA as LoRA
from .module import Module as Module
from .module import Parameter as Parameter
from .position import LearnedPositionalEncoding as LearnedPositionalEncoding
from .position import PositionalEncoding as PositionalEncoding
from .position import RotaryEmbedding as RotaryEmbedding
from .transformer import Encoder as Encoder
from .transformer import EncoderLayer as EncoderLayer
from .transformer import PositionwiseFeedForward as PositionwiseFeedForward
from .transformer import SublayerConnection as SublayerConnection
from .transformer import SwiGLU as SwiGLU
from .transformer import clones as clones

# So that `import tinyattn.nn.functional as F` works, as in PyTorch; it is tinyattn.functional.
sys.modules[f"{__name__}.functional"] = functional

offer(globals(), "nn", sorted([*own_names(globals()), "functional", "init"]))
