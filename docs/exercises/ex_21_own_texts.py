"""Exercise 21: from texts with labels to what an encoder reads, and one vector for each text.

Write the functions, then `pytest docs/exercises/test_21_own_texts.py` says what is wrong. About 25
minutes. The page is docs/course/21_own_texts.md, with three hints at its end.
"""

import numpy as np

PAD, UNKNOWN = 0, 1


def vocabulary_of(texts: list[list[str]], least: int) -> list[str]:
    """The words that occur `least` times or more in all texts, behind "<pad>" and "<unknown>".

    The most frequent word comes first; of words that are equally frequent, any may come first. The
    place of a word in the list is its id.
    """
    raise NotImplementedError


def batch_of(texts: list[list[str]], vocabulary: list[str]) -> np.ndarray:
    """The ids of N texts, (N, T). T is the length of the longest text.

    A word that the vocabulary lacks is UNKNOWN; behind the end of a text stands PAD.
    """
    raise NotImplementedError


def mean_of_words(x: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """The mean vector of each text, (N, D): of its words alone, not of padding.

    x (N, T, D) has NaN in some positions of padding. The mean of a text without words is 0.
    """
    raise NotImplementedError


def parts(labels: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which of N texts are for learning, for choices and for the test: three arrays of numbers.

    labels (N,) are numbers. Of the n texts of each label, n // 10 are for choices, n // 10 others
    for the test, and the rest for learning. Chance, from `seed`, decides which.
    """
    raise NotImplementedError
