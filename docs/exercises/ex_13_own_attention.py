"""Exercise 13: an attention whose keys have a learned vector for each distance.

Write the function and the two methods, then `pytest docs/exercises/test_13_own_attention.py` says
what is wrong. About 35 minutes. The page is docs/course/13_own_attention.md, with three hints at
its end.
"""

from typing import Any

import numpy as np

import tinyattn as ta
from tinyattn import nn


def distance_numbers(queries: int, keys: int, farthest: int) -> np.ndarray:
    """Integers (queries, keys), from 0 to 2 * farthest: the distance j - i of key j from query i,
    plus farthest. Keys that are farther away than `farthest` count as `farthest`."""
    raise NotImplementedError


class RelativeKeys(nn.Module):
    """Multi-head attention of Shaw and others: each key has a vector r for its distance.

        weights = softmax over j of (q_i . k_j + q_i . r[j - i]) / sqrt(d)
        out = W_o [weights v of each head]

    self.r (2 * farthest + 1, d), d = size / heads, is shared by all heads; its row n is for the
    distance number n. self.weights are those of the last call, (B, H, Q, K), without a graph.
    """

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
        """(B, N, size) -> (B, H, N, d)."""
        samples, length, size = x.shape
        return x.reshape(samples, length, self.heads, size // self.heads).transpose(1, 2)

    def position_scores(self, q: ta.Tensor, keys: int) -> ta.Tensor:
        """q_i . r[j - i], not yet divided by sqrt(d): q (B, H, Q, d) -> (B, H, Q, keys)."""
        raise NotImplementedError

    def forward(
        self,
        queries: ta.Tensor,
        keys: ta.Tensor,
        values: ta.Tensor,
        mask: Any = None,
        valid_lens: Any = None,
        is_causal: bool = False,
    ) -> ta.Tensor:
        """queries (B, Q, size), keys and values (B, K, size) -> (B, Q, size)."""
        raise NotImplementedError
