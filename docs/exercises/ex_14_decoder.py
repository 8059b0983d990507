"""Exercise 14: three functions that make attention a language model.

Write all three, then `pytest docs/exercises/test_14_decoder.py` says what is wrong. About 30
minutes. The page is docs/course/14_decoder.md, with three hints at its end.
"""

import numpy as np


def next_token_loss(logits: np.ndarray, ids: np.ndarray, pad: int) -> float:
    """The mean of -log p(next id): logits (B, T, V), ids (B, T) -> a number.

    logits[b, t] are the scores of ids[b, t + 1], because the model has read the ids 0 to t. Nothing
    follows the last id. Where the next id is `pad`, the position is left out of the mean."""
    raise NotImplementedError


def causal_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """softmax(q k^T / sqrt(d)) v, in which position t sees the positions 0 to t.

    q, k (B, T, d), v (B, T, e) -> (B, T, e)."""
    raise NotImplementedError


def draw_top_k(logits: np.ndarray, k: int, temperature: float, u: float) -> int:
    """An id, drawn from the k likeliest: logits (V,), u a random number, 0 <= u < 1.

    The k largest scores have the probabilities softmax(scores / temperature), the others have 0.
    Add the probabilities up, from id 0 on: the result is the first id at which the sum exceeds u.
    """
    raise NotImplementedError
