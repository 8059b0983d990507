"""Exercise 30: the mean of words.

Write the function, then `pytest docs/exercises/test_30_mean.py` says what is wrong. About 5
minutes. The page is docs/course/30_mean.md, with a hint at its end.
"""

import numpy as np


def mean_of_words(words: np.ndarray) -> np.ndarray:
    """The mean of the rows."""
    raise NotImplementedError
