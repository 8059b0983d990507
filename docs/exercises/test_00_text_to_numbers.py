"""Grades exercise 0."""

from collections.abc import Callable
from typing import Any

import numpy as np
from grading import close, exercise, expect, needs, run

yours = exercise("ex_00_text_to_numbers")
rng = np.random.default_rng(3)
logits, targets = rng.standard_normal((4, 5)), np.array([2, 0, 4, 2])
powers = np.exp(logits)
p = powers / powers.sum(axis=-1, keepdims=True)
whole = powers / powers.sum()
y = np.eye(5)[targets]
COLUMNS = "p[:, targets] takes columns of all rows: p[np.arange(N), targets] takes one of each row"
WHOLE = "all probabilities together sum to 1: those of each word must, so sum over axis=-1"

COLUMN_SUMS = "softmax is taken over the words of the text: take it over the vocabulary, axis=-1"


def with_1_less_in_columns() -> np.ndarray:
    less = p.copy()
    less[:, targets] -= 1
    return less


def unchanged(function: Callable[..., Any]) -> Any:
    """What your function returns for a copy of the logits, which it must not change."""
    given = logits.copy()
    found = run(function, given, targets)
    expect(np.array_equal(given, logits), "your function changes logits: write to a new array")
    return found


def test_ids() -> None:
    vocabulary = ["<unknown>", "a", "cat", "bird"]
    found = run(yours.encode, ["a", "cat", "a"], vocabulary, 0)
    kind = type(found).__name__
    expect(isinstance(found, np.ndarray), f"encode gives a {kind}: make an array, np.array(...)")
    expect(not close(found, [1, 3, 1]), "the vocabulary is sorted: keep its order")
    expect(close(found, [1, 2, 1]), "the id of a word is its place in the vocabulary, from 0")
    found = run(yours.encode, ["a", "fish", "cat"], vocabulary, 0)
    expect(close(found, [1, 0, 2]), "a word that is not in the vocabulary gets the id `unknown`")
    found = run(yours.encode, ["fish"], ["cat", "<unknown>"], 1)
    expect(close(found, [1]), "`unknown` may be another number than 0")
    found = run(yours.encode, ["cat"], ["cat", "<unknown>"], 1)
    expect(close(found, [0]), "the first word has the id 0, which is a number like others")


def test_the_loss() -> None:
    found = unchanged(yours.cross_entropy)
    expect(np.ndim(found) == 0, f"a loss is one number, not an array of shape {np.shape(found)}")
    losses = -np.log(p[np.arange(4), targets])
    mistakes = {
        "the sign of log p is missing: the logarithm of a probability is negative": -losses.mean(),
        "this is the sum of the losses: take the mean over the words": losses.sum(),
        "this is the mean of p: the loss is the mean of -log p": np.exp(-losses).mean(),
        "the logarithm is taken after the mean: take it of each word": -np.log(p[y > 0].mean()),
        "the logarithm has base 2: use np.log": losses.mean() / np.log(2),
        COLUMN_SUMS: (-np.log((powers / powers.sum(0))[np.arange(4), targets]).mean()),
        "the mean is taken over all words of the vocabulary: the right ones alone count": (
            -(y * np.log(p)).mean()
        ),
    }
    mistakes["softmax is not divided by its sum"] = -logits[np.arange(4), targets].mean()
    mistakes["all words count with their p: the right ones alone count, with y"] = (
        -(p * np.log(p)).sum(-1).mean()
    )
    mistakes[COLUMNS] = -np.log(p[:, targets]).mean()
    mistakes[WHOLE] = -np.log(whole[np.arange(4), targets]).mean()
    undivided = logits.max(-1) - logits[np.arange(4), targets]
    expect(not close(found, undivided.mean()), "softmax is not divided by its sum")
    stable = np.exp(logits - logits.max(-1, keepdims=True))[np.arange(4), targets]
    columns = np.exp(logits - logits.max(-1, keepdims=True)).sum(0)[targets]
    expect(not close(found, -np.log(stable / columns).mean()), COLUMN_SUMS)
    total = np.exp(logits - logits.max(-1, keepdims=True)).sum()
    expect(not close(found, -np.log(stable / total).mean()), WHOLE)
    for sentence, value in mistakes.items():
        expect(not close(found, value), sentence)
    expect(close(found, losses.mean()), "the loss is not the mean of -log p of the right words")


def test_large_logits() -> None:
    large = np.array([[1000.0, 0.0, 999.0], [-1000.0, -1001.0, -1002.0]])
    loss = run(yours.cross_entropy, large.copy(), np.array([0, 0]))
    slopes = run(yours.cross_entropy_gradient, large.copy(), np.array([0, 0]))
    needs(test_the_loss, test_the_gradient)
    expect(
        np.isfinite(loss).all() and np.isfinite(slopes).all(),
        "logits of 1000 give nan or inf: subtract the maximum of each row before exp",
    )
    right = (np.log(1 + np.exp(-1.0)) + np.log(1 + np.exp(-1.0) + np.exp(-2.0))) / 2
    expect(
        close(loss, right), "logits of 1000 give a wrong loss: change logits only by subtraction"
    )
    stable = np.exp(large - large.max(-1, keepdims=True))
    right = (stable / stable.sum(-1, keepdims=True) - [1, 0, 0]) / 2
    expect(
        close(slopes, right),
        "logits of 1000 give a wrong gradient: change logits only by subtraction",
    )
    unlikely = run(yours.cross_entropy, np.array([[30.0, 0.0]]), np.array([1]))
    expect(
        close(unlikely, 30.0),
        "a number is added to p or to its sum: a right word with the probability e**-30 has the "
        "loss 30",
    )


def test_the_gradient() -> None:
    found = unchanged(yours.cross_entropy_gradient)
    expect(
        np.shape(found) == (4, 5), f"logits (4, 5) have a gradient (4, 5), not {np.shape(found)}"
    )
    mistakes = {
        "the loss is a mean, so its gradient is divided by the number of words": p - y,
        "the gradient has the wrong sign: it is p - y, not y - p": (y - p) / 4,
        "y is missing: subtract 1 at the right word": p / 4,
        "the gradient is divided by the number of logits: divide it by that of words": (p - y) / 20,
        "the gradient is divided by the size of the vocabulary: divide it by N": (p - y) / 5,
        "1 is added at the right word: subtract it there": (p + y) / 4,
        "logits stand in place of probabilities: take their softmax": (logits - y) / 4,
        "this is the gradient by the probabilities: the derivative of softmax is missing": -y
        / p
        / 4,
        COLUMNS: with_1_less_in_columns() / 4,
        WHOLE: (whole - y) / 4,
    }
    for sentence, value in mistakes.items():
        expect(not close(found, value), sentence)
    expect(close(found, (p - y) / 4), "the gradient is not (p - y) / N")


def test_the_gradient_of_the_table() -> None:
    ids, gradient = np.array([2, 0, 2, 5]), rng.standard_normal((4, 3))
    found = run(yours.embedding_gradient, gradient, ids, 7)
    shape = np.shape(found)
    expect(shape == (7, 3), f"a table of 7 rows of 3 numbers has a gradient (7, 3), not {shape}")
    right = np.eye(7)[ids].T @ gradient
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
    in_order = np.zeros((7, 3))
    in_order[:4] = gradient
    expect(not close(found, in_order), "the rows have the order of the text: row i is that of id i")
    counts = np.repeat(np.bincount(ids, minlength=7)[:, None], 3, axis=1)
    expect(not close(found, counts), "ids are counted: add the gradients of their places")
    expect(close(found, right), "row i is not the sum of the gradients of the places with the id i")
