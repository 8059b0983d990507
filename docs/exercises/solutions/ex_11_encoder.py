"""A solution of exercise 11."""

from typing import Any

import tinyattn as ta
from tinyattn import nn


class EncoderLayer(nn.Module):
    def __init__(
        self,
        size: int,
        self_attn: nn.Module,
        feed_forward: nn.Module,
        dropout: float = 0.1,
        norm: str = "pre",
    ) -> None:
        super().__init__()
        self.self_attn = self_attn
        self.feed_forward = feed_forward
        self.norm_1 = nn.LayerNorm(size)
        self.norm_2 = nn.LayerNorm(size)
        self.dropout = nn.Dropout(dropout)
        self.order = norm

    def forward(self, x: ta.Tensor, mask: Any = None) -> ta.Tensor:
        if self.order == "pre":
            y = self.norm_1(x)
            x = x + self.dropout(self.self_attn(y, y, y, mask=mask))
            return x + self.dropout(self.feed_forward(self.norm_2(x)))
        x = self.norm_1(x + self.dropout(self.self_attn(x, x, x, mask=mask)))
        return self.norm_2(x + self.dropout(self.feed_forward(x)))


class Encoder(nn.Module):
    def __init__(self, layers: list[EncoderLayer], size: int, norm: str = "pre") -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(size) if norm == "pre" else nn.Identity()

    def forward(self, x: ta.Tensor, mask: Any = None) -> ta.Tensor:
        for layer in self.layers:
            x = layer(x, mask=mask)
        return self.norm(x)
