"""A solution of exercise 13."""

from typing import Any

import numpy as np

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn


def distance_numbers(queries: int, keys: int, farthest: int) -> np.ndarray:
    distance = np.arange(keys) - np.arange(queries)[:, None]
    return distance.clip(-farthest, farthest) + farthest


class RelativeKeys(nn.Module):
    def __init__(self, size: int, heads: int, farthest: int) -> None:
        super().__init__()
        self.heads = heads
        self.farthest = farthest
        self.W_q = nn.Linear(size, size)
        self.W_k = nn.Linear(size, size)
        self.W_v = nn.Linear(size, size)
        self.W_o = nn.Linear(size, size)
        self.r = nn.Parameter(0.02 * ta.randn(2 * farthest + 1, size // heads))

    def split(self, x: ta.Tensor) -> ta.Tensor:
        samples, length, size = x.shape
        return x.reshape(samples, length, self.heads, size // self.heads).transpose(1, 2)

    def position_scores(self, q: ta.Tensor, keys: int) -> ta.Tensor:
        with_each = q @ self.r.transpose(0, 1)  # (B, H, Q, 2 * farthest + 1)
        rows = np.arange(q.shape[2])[:, None]  # (Q, 1)
        return with_each[:, :, rows, distance_numbers(q.shape[2], keys, self.farthest)]

    def forward(
        self,
        queries: ta.Tensor,
        keys: ta.Tensor,
        values: ta.Tensor,
        mask: Any = None,
        valid_lens: Any = None,
        is_causal: bool = False,
    ) -> ta.Tensor:
        q, k, v = (
            self.split(self.W_q(queries)),
            self.split(self.W_k(keys)),
            self.split(self.W_v(values)),
        )
        out, self.weights = F.scaled_dot_product_attention(
            q,
            k,
            v,
            mask=mask,
            valid_lens=valid_lens,
            is_causal=is_causal,
            bias=self.position_scores(q, k.shape[2]) / q.shape[3] ** 0.5,
            return_weights=True,
        )  # (B, H, Q, d)
        return self.W_o(out.transpose(1, 2).flatten(2))
