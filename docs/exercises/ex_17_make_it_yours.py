"""Exercise 17: an op with a kernel, a layer with the op, and a check that rejects wrong versions.

Write the four holes, then `pytest docs/exercises/test_17_make_it_yours.py` says what is wrong.
About 40 minutes. The page is docs/course/17_make_it_yours.md, with three hints at its end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

import tinyattn as ta
from tinyattn import nn


def reference(x: np.ndarray, cap: float) -> np.ndarray:
    """Scores that stay between -cap and cap."""
    return cap * np.tanh(x / cap)


@numba.njit
def kernel(x: np.ndarray, cap: float, out: np.ndarray) -> None:
    """The same in one loop: from x (N,) into out (N,)."""
    raise NotImplementedError


@ta.op
def softcap(x: np.ndarray, *, cap: float = 50.0) -> np.ndarray:
    if type(x) is not np.ndarray or x.dtype not in (np.float32, np.float64):
        return reference(x, cap)
    out = np.empty(x.shape, x.dtype)
    kernel(np.require(x, requirements=["C", "ALIGNED"]).reshape(-1), cap, out.reshape(-1))
    return out


@softcap.vjp("x")
def dx(grad: Any, out: Any, cap: float) -> Any:
    """The gradient of x; on Tensors too, so that there is a second derivative."""
    raise NotImplementedError


class CappedAttention(nn.Module):
    """softmax(softcap(Q K^T / sqrt(d))) V over the first `valid_lens` keys."""

    def __init__(self, cap: float = 50.0) -> None:
        super().__init__()
        self.cap = cap

    def forward(
        self, queries: ta.Tensor, keys: ta.Tensor, values: ta.Tensor, valid_lens: Any = None
    ) -> ta.Tensor:
        """(B, Q, d), (B, K, d), (B, K, v) -> (B, Q, v); valid_lens (B,)."""
        raise NotImplementedError


def check(softcap: Callable[..., ta.Tensor]) -> None:
    """Raise an error, of any kind, if the function is not a right softcap(x, cap=...)."""
    raise NotImplementedError
