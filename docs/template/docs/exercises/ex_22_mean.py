"""Exercise 22: the mean of words.

Write the function, then `pytest docs/exercises/test_22_mean.py` says what is wrong. About 5
minutes. The page is docs/course/22_mean.md, with a hint at its end.
"""

import numpy as np


def mean_of_words(words: np.ndarray) -> np.ndarray:
    """The mean of the rows."""
    raise NotImplementedError
