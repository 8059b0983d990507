"""Grades exercise 30."""

import numpy as np
from grading import close, exercise, expect, run

yours = exercise("ex_30_mean")


def test_mean() -> None:
    words = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 9.0]])
    found = run(yours.mean_of_words, words)
    expect(not close(found, words.mean(1)), "the mean goes over the words: axis=0")
    expect(not close(found, words.sum(0)), "this is the sum: divide by the number of words")
    expect(close(found, words.mean(0)), "this is not the mean of the rows")
