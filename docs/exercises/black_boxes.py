"""The five attentions of exercise 15. Find them out before you open this file: it says how a box of
each kind is made. Which kind a box has does not stand here; HASHES has a hash of it.

A box is called as box(q, k, v, causal=False), with arrays (B, N, D) that are already projected; it
returns (B, N, D). It has two heads of D / 2 columns each.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable

import numpy as np

Attention = Callable[..., np.ndarray]
HEADS = 2
DEFECTS = (
    "none",
    "dropout",
    "samples mixed",
    "softmax over queries",
    "mask after softmax",
    "causal off by one",
    "heads split by reshape",
    "no root of d",
)


def softmax(scores: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(scores - scores.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


class Box:
    """A box has no attribute, so nothing but its outputs says of which kind it is."""

    __slots__ = ("__weakref__",)

    def __call__(
        self, q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool = False
    ) -> np.ndarray:
        return INSIDE[self](q, k, v, causal)


INSIDE: weakref.WeakKeyDictionary[Box, Attention] = weakref.WeakKeyDictionary()


def attention_of(defect: str, seed: int = 0) -> Box:
    """A box with one of DEFECTS."""
    box = Box()
    INSIDE[box] = inside_of(defect, seed)
    return box


def inside_of(defect: str, seed: int) -> Attention:
    rng = np.random.default_rng(seed)

    def split(x: np.ndarray) -> np.ndarray:
        batch, n, width = x.shape
        if defect == "heads split by reshape":
            return x.reshape(batch, HEADS, n, width // HEADS)
        return x.reshape(batch, n, HEADS, width // HEADS).swapaxes(1, 2)

    def weights_of(scores: np.ndarray, causal: bool) -> np.ndarray:
        n = scores.shape[-1]
        visible = np.ones((n, n), bool)
        if causal:
            visible = np.tri(n, k=int(defect == "causal off by one"), dtype=bool)
        if defect == "mask after softmax":
            return softmax(scores, -1) * visible
        axis = -2 if defect == "softmax over queries" else -1
        return softmax(np.where(visible, scores, -np.inf), axis)

    def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool) -> np.ndarray:
        q, k, v = (split(np.asarray(x, np.float64)) for x in (q, k, v))  # (B, H, N, D/H)
        root = 1.0 if defect == "no root of d" else np.sqrt(q.shape[-1])
        weights = weights_of(q @ k.swapaxes(-2, -1) / root, causal)
        if defect == "dropout":
            weights = weights * (rng.random(weights.shape) < 0.9) / 0.9
        out = weights @ v
        if defect == "samples mixed":  # (B, H, ...) is read as (H, B, ...)
            out = out.reshape(HEADS, len(out), *out.shape[2:]).swapaxes(0, 1)
        return out.swapaxes(1, 2).reshape(len(out), out.shape[2], -1)

    return attend


HASHES = {
    "box_1": "235c4b28da89",
    "box_2": "8267d68b842b",
    "box_3": "718e143fe038",
    "box_4": "ef08056f8130",
    "box_5": "0f6467c40575",
}


def defect_of(name: str) -> str:
    """The defect of a box: the one with the hash."""
    hashes = {hashlib.sha256(f"{name}: {x}".encode()).hexdigest()[:12]: x for x in DEFECTS}
    return hashes[HASHES[name]]


ANSWERS = {name: defect_of(name) for name in HASHES}
BOXES = {name: attention_of(defect, seed) for seed, (name, defect) in enumerate(ANSWERS.items())}
