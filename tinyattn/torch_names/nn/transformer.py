"""PyTorch's Transformer: its arguments, its masks, and the names of its parameters.

In the masks of these modules True means "ignored", see `MultiheadAttention`. Inputs are (N, B, D),
or with batch_first=True (B, N, D), or of one sample (N, D).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.checks import DTypeLike, check_size
from ...nn import LayerNorm, Linear, Module, ModuleList, init
from ...nn.module import copied
from ...tensors.tensor import Tensor
from . import functional as F
from .attention import MultiheadAttention
from .modules import Dropout, takes

__all__ = ["Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder"]
__all__ += ["TransformerEncoderLayer"]


class Layer(Module):
    """What both layers share: attentions and a feed-forward network, each with a norm.

    activation: "relu", "gelu" or a function.
    norm_first=False: norm(x + dropout(sublayer(x))); True: x + dropout(sublayer(norm(x))).
    """

    attentions: tuple[str, ...]
    norm1: Module

    @takes(
        "d_model, nhead, dim_feedforward=2048, dropout=0.1, activation='relu', "
        "layer_norm_eps=1e-5, batch_first=False, norm_first=False, bias=True"
    )
    def __init__(self, given: Any) -> None:
        width, bias, activation = given.d_model, given.bias, given.activation
        for name in self.attentions:
            sizes = width, given.nhead, given.dropout, bias
            setattr(self, name, MultiheadAttention(*sizes, batch_first=given.batch_first))
        self.linear1 = Linear(width, given.dim_feedforward, bias)
        self.dropout = Dropout(given.dropout)
        self.linear2 = Linear(given.dim_feedforward, width, bias)
        numbers = range(1, len(self.attentions) + 2)
        for i in numbers:
            setattr(self, f"norm{i}", LayerNorm(width, given.layer_norm_eps, bias=bias))
        for i in numbers:
            setattr(self, f"dropout{i}", Dropout(given.dropout))
        self.norm_first = given.norm_first
        if isinstance(activation, str) and activation not in ("relu", "gelu"):
            raise ValueError(f'activation is "relu", "gelu" or a function, got {activation!r}')
        self.activation = getattr(F, activation) if isinstance(activation, str) else activation

    def sublayer(self, number: int, block: Any, x: Tensor, *inputs: Any) -> Tensor:
        norm = getattr(self, f"norm{number}")
        return x + block(norm(x), *inputs) if self.norm_first else norm(x + block(x, *inputs))

    def attend(self, number, x, memory, attn_mask, key_padding_mask, is_causal=False):
        """The attention of this number and its dropout."""
        attention, dropout = self.attentions[number - 1], getattr(self, f"dropout{number}")
        options = {"attn_mask": attn_mask, "key_padding_mask": key_padding_mask}
        options |= {"is_causal": is_causal, "need_weights": False}
        return dropout(getattr(self, attention)(x, memory, memory, **options)[0])

    # The blocks have PyTorch's names, because programs override them.

    def _sa_block(self, x: Tensor, *masks: Any, **named: Any) -> Tensor:
        return self.attend(1, x, x, *masks, **named)

    def _ff_block(self, x: Tensor) -> Tensor:
        x = self.linear2(self.dropout(self.activation(self.linear1(x))))
        return getattr(self, f"dropout{len(self.attentions) + 1}")(x)


class TransformerEncoderLayer(Layer):
    """Self-attention, then a feed-forward network. Call: src -> a Tensor of its shape.

    In tinyattn: write nn.EncoderLayer(..., norm="post"); the default is "pre"

    >>> import tinyattn.torch_names.nn as nn
    >>> layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> layer(ta.randn(3, 5, 8), src_key_padding_mask=ta.zeros(3, 5).bool()).shape
    (3, 5, 8)
    """

    attentions = ("self_attn",)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        x = self.sublayer(1, self._sa_block, src, src_mask, src_key_padding_mask, is_causal)
        return self.sublayer(2, self._ff_block, x)


class TransformerDecoderLayer(Layer):
    """Self-attention, attention to a memory, and a feed-forward network. Call: tgt, memory.

    It is causal only with a tgt_mask. tgt_* are the masks of the self-attention, memory_* those of
    the attention to the memory.

    In tinyattn: write nn.DecoderLayer(..., norm="post"); the default is "pre"
    """

    attentions = ("self_attn", "multihead_attn")

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        of_memory = memory_mask, memory_key_padding_mask, memory_is_causal
        x = self.sublayer(1, self._sa_block, tgt, tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        x = self.sublayer(2, self._mha_block, x, memory, *of_memory)
        return self.sublayer(3, self._ff_block, x)

    def _mha_block(self, x: Tensor, mem: Tensor, *masks: Any, **named: Any) -> Tensor:
        return self.attend(2, x, mem, *masks, **named)


class TransformerDecoder(Module):
    """num_layers deep copies of a layer, which begin with equal values, and a norm if one is given.

    Call: as the layers.

    In tinyattn: write nn.Decoder(layer, N)
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        copies = range(check_size("num_layers", num_layers))
        self.layers: ModuleList[Any] = ModuleList(copied(decoder_layer) for _ in copies)
        self.num_layers, self.norm = num_layers, norm

    def forward(self, tgt: Tensor, *inputs: Any, **masks: Any) -> Tensor:
        for layer in self.layers:
            tgt = layer(tgt, *inputs, **masks)
        return tgt if self.norm is None else self.norm(tgt)


class TransformerEncoder(TransformerDecoder):
    """The same for encoder layers. enable_nested_tensor and mask_check change nothing.

    Differs from PyTorch: the output of padding is computed in evaluation too, where there it is 0.

    In tinyattn: write nn.Encoder(layer, N)
    """

    @takes("encoder_layer, num_layers, norm=None, enable_nested_tensor=True, mask_check=True")
    def __init__(self, given: Any) -> None:
        super().__init__(given.encoder_layer, given.num_layers, given.norm)

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        masks = {"src_mask": mask, "src_key_padding_mask": src_key_padding_mask}
        return super().forward(src, **masks, is_causal=bool(is_causal))


class Transformer(Module):
    """Encoder and decoder. Call: src, tgt and masks -> the output, of the shape of tgt.

    The further arguments are those of the layers; src_*, tgt_* and memory_* are masks, see there.
    There is no custom_encoder and no custom_decoder: give the modules to a class of your own.

    In tinyattn: write nn.EncoderDecoder(encoder, decoder, src_embed, tgt_embed, generator)

        >>> import tinyattn.torch_names.nn as nn
        >>> model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
        >>> mask = model.generate_square_subsequent_mask(4)
        >>> model(ta.randn(3, 5, 8), ta.randn(3, 4, 8), tgt_mask=mask).shape
        (3, 4, 8)
    """

    @takes(
        "d_model=512, nhead=8, num_encoder_layers=6, num_decoder_layers=6, dim_feedforward=2048, "
        "dropout=0.1, activation='relu', layer_norm_eps=1e-5, batch_first=False, "
        "norm_first=False, bias=True"
    )
    def __init__(self, g: Any) -> None:
        sizes = g.d_model, g.nhead, g.dim_feedforward, g.dropout, g.activation, g.layer_norm_eps
        options = g.batch_first, g.norm_first, g.bias
        encoder_layer = TransformerEncoderLayer(*sizes, *options)
        decoder_layer = TransformerDecoderLayer(*sizes, *options)
        norms = copied(encoder_layer.norm1), copied(decoder_layer.norm1)
        self.encoder = TransformerEncoder(encoder_layer, g.num_encoder_layers, norms[0])
        self.decoder = TransformerDecoder(decoder_layer, g.num_decoder_layers, norms[1])
        self.d_model, self.nhead, self.batch_first = g.d_model, g.nhead, g.batch_first
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        *masks: Any,
        src_is_causal: bool = False,
        **named: Any,
    ) -> Tensor:
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        return self.decoder(tgt, memory, tgt_mask, memory_mask, *masks, **named)

    @staticmethod
    def generate_square_subsequent_mask(
        sz: int, device: str | None = None, dtype: DTypeLike = None
    ) -> Tensor:
        """(sz, sz): -inf where the key comes after the query, else 0."""
        numbers = np.where(np.tri(sz) == 0, -np.inf, 0.0)
        return Tensor(numbers, np.float32 if dtype is None else dtype, device)
