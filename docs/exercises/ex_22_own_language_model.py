"""Exercise 22: a merge of byte-pair encoding, a batch of windows, bits a byte, and the schedule.

Write the functions, then `pytest docs/exercises/test_22_own_language_model.py` says what is wrong.
About 30 minutes. The page is docs/course/22_own_language_model.md, with three hints at its end.
"""

import numpy as np


def most_frequent_pair(ids: list[int]) -> tuple[int, int]:
    """The two neighbours that stand in ids most often, in this order.

    Of pairs that are equally frequent, the one that comes first in ids. There are two ids or more.
    """
    raise NotImplementedError


def merge(ids: list[int], pair: tuple[int, int], new: int) -> list[int]:
    """A new list, in which each place of the pair has become the one id `new`.

    The list is read from left to right, and no id belongs to two pairs.
    """
    raise NotImplementedError


def windows(ids: np.ndarray, starts: np.ndarray, context: int) -> tuple[np.ndarray, np.ndarray]:
    """What a language model reads and what it learns to say, both (B, context).

    ids (N,) is a text, and starts (B,) are the places where B windows begin. A target is the id
    after the one that stands at the same place of the input.
    """
    raise NotImplementedError


def bits_a_byte(losses: np.ndarray, text: str) -> float:
    """The bits that a model needs for each byte of a text in UTF-8.

    losses (N,) are -log p of all tokens of the text, with the natural logarithm.
    """
    raise NotImplementedError


def rate(step: int, steps: int, warmup: int, highest: float) -> float:
    """The learning rate of a step, which is a number from 1 to `steps`.

    In the first `warmup` steps it grows by equal amounts, and reaches `highest` in step `warmup`.
    Then it falls along half a cosine, and is 0 in the last step. warmup may be 0.
    """
    raise NotImplementedError
