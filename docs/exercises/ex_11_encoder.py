"""Exercise 11: an encoder layer from its components, with the norm before or after a sublayer.

Write both classes, then `pytest docs/exercises/test_11_encoder.py` says what is wrong. About 30
minutes. The page is docs/course/11_encoder.md, with three hints at its end.
"""

from typing import Any

import tinyattn as ta
from tinyattn import nn


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network, each with dropout, a residual and a norm.

    self_attn is called as self_attn(y, y, y, mask=mask), feed_forward as feed_forward(y).
    norm: "pre" or "post". Make self.norm_1 for the attention and self.norm_2 for the feed-forward
    network, both nn.LayerNorm, and self.dropout, an nn.Dropout; keep the arguments that you need.
    """

    def __init__(
        self,
        size: int,
        self_attn: nn.Module,
        feed_forward: nn.Module,
        dropout: float = 0.1,
        norm: str = "pre",
    ) -> None:
        super().__init__()
        raise NotImplementedError

    def forward(self, x: ta.Tensor, mask: Any = None) -> ta.Tensor:
        """x (B, N, size) -> (B, N, size)."""
        raise NotImplementedError


class Encoder(nn.Module):
    """The layers, one after the other. With pre-norm, one more norm at the end, self.norm.

    layers: a list of EncoderLayers, all with the same size and norm.
    """

    def __init__(self, layers: list[EncoderLayer], size: int, norm: str = "pre") -> None:
        super().__init__()
        raise NotImplementedError

    def forward(self, x: ta.Tensor, mask: Any = None) -> ta.Tensor:
        """x (B, N, size) -> (B, N, size)."""
        raise NotImplementedError
