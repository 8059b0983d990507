"""Grades exercise 0."""

import numpy as np
from grading import close, exercise, expect, run

yours = exercise("ex_00_text_to_numbers")
rng = np.random.default_rng(3)
logits, targets = rng.standard_normal((4, 5)), np.array([2, 0, 4, 2])
powers = np.exp(logits)
p = powers / powers.sum(axis=-1, keepdims=True)
whole = powers / powers.sum()
y = np.eye(5)[targets]
COLUMNS = "p[:, targets] takes columns of all rows: p[np.arange(N), targets] takes one of each row"
WHOLE = "all probabilities together sum to 1: those of each word must, so sum over axis=-1"


def with_1_less_in_columns() -> np.ndarray:
    less = p.copy()
    less[:, targets] -= 1
    return less


def test_ids() -> None:
    vocabulary = ["<unknown>", "a", "bird", "cat"]
    found = run(yours.encode, ["a", "cat", "a"], vocabulary, 0)
    kind = type(found).__name__
    expect(isinstance(found, np.ndarray), f"encode gives a {kind}: make an array, np.array(...)")
    expect(close(found, [1, 3, 1]), "the id of a word is its place in the vocabulary, from 0")
    found = run(yours.encode, ["a", "fish", "cat"], vocabulary, 0)
    expect(close(found, [1, 0, 3]), "a word that is not in the vocabulary gets the id `unknown`")
    found = run(yours.encode, ["fish"], ["cat", "<unknown>"], 1)
    expect(close(found, [1]), "`unknown` may be another number than 0")


def test_the_loss() -> None:
    found = run(yours.cross_entropy, logits, targets)
    expect(np.ndim(found) == 0, f"a loss is one number, not an array of shape {np.shape(found)}")
    losses = -np.log(p[np.arange(4), targets])
    mistakes = {
        "the sign of log p is missing: the logarithm of a probability is negative": -losses.mean(),
        "this is the sum of the losses: take the mean over the words": losses.sum(),
        "this is the mean of p: the loss is the mean of -log p": np.exp(-losses).mean(),
        "the logarithm is taken after the mean: take it of each word": -np.log(p[y > 0].mean()),
        "the logarithm has base 2: use np.log": losses.mean() / np.log(2),
        "softmax is taken over the words of the text: take it over the vocabulary, axis=-1": (
            -np.log((powers / powers.sum(0))[np.arange(4), targets]).mean()
        ),
        "the mean is taken over all words of the vocabulary: the right ones alone count": (
            -(y * np.log(p)).mean()
        ),
    }
    mistakes[COLUMNS] = -np.log(p[:, targets]).mean()
    mistakes[WHOLE] = -np.log(whole[np.arange(4), targets]).mean()
    for sentence, value in mistakes.items():
        expect(not close(found, value), sentence)
    expect(close(found, losses.mean()), "the loss is not the mean of -log p of the right words")


def test_the_gradient() -> None:
    found = run(yours.cross_entropy_gradient, logits, targets)
    expect(
        np.shape(found) == (4, 5), f"logits (4, 5) have a gradient (4, 5), not {np.shape(found)}"
    )
    mistakes = {
        "the loss is a mean, so its gradient is divided by the number of words": p - y,
        "the gradient has the wrong sign: it is p - y, not y - p": (y - p) / 4,
        "y is missing: subtract 1 at the right word": p / 4,
        "the gradient is divided by the number of logits: divide it by that of words": (p - y) / 20,
        COLUMNS: with_1_less_in_columns() / 4,
        WHOLE: (whole - y) / 4,
    }
    for sentence, value in mistakes.items():
        expect(not close(found, value), sentence)
    expect(close(found, (p - y) / 4), "the gradient is not (p - y) / N")


def test_the_gradient_of_the_table() -> None:
    ids, gradient = np.array([2, 0, 2, 5]), rng.standard_normal((4, 3))
    found = run(yours.embedding_gradient, gradient, ids, 6)
    shape = np.shape(found)
    expect(shape == (6, 3), f"a table of 6 rows of 3 numbers has a gradient (6, 3), not {shape}")
    right = np.eye(6)[ids].T @ gradient
    once = right.copy()
    once[2] = gradient[2]
    twice = "an id that comes twice gets the sum of both gradients, and yours gets the last one"
    expect(not close(found, once), twice)
    once[2] = gradient[0]
    expect(
        not close(found, once), "an id that comes twice gets the sum, and yours gets the first one"
    )
    once[2] = right[2] / 2
    expect(
        not close(found, once),
        "an id that comes twice gets the sum of both gradients, not the mean",
    )
    expect(close(found, right), "row i is not the sum of the gradients of the places with the id i")
