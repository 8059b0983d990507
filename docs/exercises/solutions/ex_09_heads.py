"""A solution of exercise 9."""

import numpy as np


def split_heads(x: np.ndarray, num_heads: int) -> np.ndarray:
    batch, n, width = x.shape
    x = x.reshape(batch, n, num_heads, width // num_heads)  # (B, N, H, d)
    return x.transpose(0, 2, 1, 3)


def merge_heads(x: np.ndarray) -> np.ndarray:
    batch, heads, n, width = x.shape
    x = x.transpose(0, 2, 1, 3)  # (B, N, H, d)
    return x.reshape(batch, n, heads * width)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def multi_head_attention(
    queries: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    W_q: np.ndarray,
    W_k: np.ndarray,
    W_v: np.ndarray,
    W_o: np.ndarray,
    num_heads: int,
) -> np.ndarray:
    q = split_heads(queries @ W_q.T, num_heads)
    k = split_heads(keys @ W_k.T, num_heads)
    v = split_heads(values @ W_v.T, num_heads)
    weights = softmax(q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1]))  # (B, H, Q, K)
    return merge_heads(weights @ v) @ W_o.T
