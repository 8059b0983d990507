"""A solution of exercise 14."""

import numpy as np


def next_token_loss(logits: np.ndarray, ids: np.ndarray, pad: int) -> float:
    scores, targets = logits[:, :-1], ids[:, 1:]
    shifted = scores - scores.max(axis=-1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    losses = -np.take_along_axis(logs, targets[..., None], axis=-1)[..., 0]
    return float(losses[targets != pad].mean())


def causal_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    length, d = q.shape[1:]
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(d)
    seen = np.where(np.tri(length, dtype=bool), scores, -np.inf)
    e = np.exp(seen - seen.max(axis=-1, keepdims=True))
    weights = e / e.sum(axis=-1, keepdims=True)
    return weights @ v


def draw_top_k(logits: np.ndarray, k: int, temperature: float, u: float) -> int:
    best = np.argsort(-logits)[:k]
    p = np.zeros(len(logits))
    p[best] = np.exp((logits[best] - logits.max()) / temperature)
    c = np.cumsum(p)
    return int((c <= u * c[-1]).sum())
