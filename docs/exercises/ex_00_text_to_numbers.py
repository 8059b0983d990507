"""Exercise 0: from text to numbers and back.

Write the functions, then `pytest docs/exercises/test_00_text_to_numbers.py` says what is wrong.
About 25 minutes. The page is docs/course/00_text_to_numbers.md, with three hints at its end.
"""

import numpy as np


def encode(words: list[str], vocabulary: list[str], unknown: int) -> np.ndarray:
    """The place of each word in the vocabulary, (N,); a word that is not there gets `unknown`."""
    raise NotImplementedError


def cross_entropy(logits: np.ndarray, targets: np.ndarray) -> float:
    """The mean of -log p of the right words: logits (N, V), of any size, 1000
    too; ids of the right words (N,)."""
    raise NotImplementedError


def cross_entropy_gradient(logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The gradient of `cross_entropy` by the logits, (N, V)."""
    raise NotImplementedError


def embedding_gradient(gradient: np.ndarray, ids: np.ndarray, size: int) -> np.ndarray:
    """The gradient of a table (size, D) from that of its chosen rows, table[ids] (N, D)."""
    raise NotImplementedError
