"""A solution of exercise 22."""

from collections import Counter
from itertools import pairwise

import numpy as np


def most_frequent_pair(ids: list[int]) -> tuple[int, int]:
    pairs = Counter(pairwise(ids))
    return max(pairs, key=pairs.__getitem__)


def merge(ids: list[int], pair: tuple[int, int], new: int) -> list[int]:
    found, i = [], 0
    while i < len(ids):
        is_pair = tuple(ids[i : i + 2]) == pair
        found.append(new if is_pair else ids[i])
        i += 2 if is_pair else 1
    return found


def windows(ids: np.ndarray, starts: np.ndarray, context: int) -> tuple[np.ndarray, np.ndarray]:
    pieces = ids[starts[:, None] + np.arange(context + 1)]
    return pieces[:, :-1], pieces[:, 1:]


def bits_a_byte(losses: np.ndarray, text: str) -> float:
    return float(losses.sum() / np.log(2) / len(text.encode("utf-8")))


def rate(step: int, steps: int, warmup: int, highest: float) -> float:
    if step <= warmup:
        return highest * step / warmup
    progress = (step - warmup) / (steps - warmup)
    return highest * (1 + np.cos(np.pi * progress)) / 2
