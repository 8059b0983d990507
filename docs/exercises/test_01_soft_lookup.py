"""Grades exercise 1."""

import numpy as np
from grading import close, exercise, expect, run

yours = exercise("ex_01_soft_lookup")
rng = np.random.default_rng(1)
queries, keys, values = (rng.standard_normal(shape) for shape in ((3, 4), (5, 4), (5, 2)))


def means(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores)
    return powers / powers.sum(axis=-1, keepdims=True) @ values


def shifted(scores: np.ndarray) -> np.ndarray:
    """The means if the maximum of a column is subtracted, which changes the weights of a row."""
    return means(scores - scores.max(0))


SHIFTED = "the maximum of each column is subtracted: subtract that of each row, axis=-1"
NO_EXP = "the scores themselves are the weights: softmax takes exp of them first"


def test_shapes() -> None:
    found = np.shape(run(yours.attention, queries, keys, values))
    expect(found == (3, 2), f"queries (3, 4), keys (5, 4), values (5, 2) give (3, 2), not {found}")


def test_a_query_finds_its_key() -> None:
    """Keys that are far apart, so that each query takes one value alone."""
    right = np.diag([1.0, 2.0, 3.0])
    found = run(yours.attention, 60 * np.eye(3), np.eye(3), right)
    expect(close(found, right), "query i is most like key i, so it gets value i; yours does not")


def test_the_formula() -> None:
    found = run(yours.attention, queries, keys, values)
    products = queries @ keys.T
    expect(not close(found, means(products)), "the scores are not divided by sqrt(d)")
    expect(not close(found, means(products / 4)), "the scores are divided by d, not by sqrt(d)")
    by_keys = "the scores are divided by the root of the number of keys, not by that of d"
    expect(not close(found, means(products / np.sqrt(5))), by_keys)
    by_queries = "the scores are divided by the root of the number of queries, not by that of d"
    expect(not close(found, means(products / np.sqrt(3))), by_queries)
    powers = np.exp(products / np.sqrt(4))
    over_queries = "softmax is taken over the queries: take it over the keys, axis=-1"
    expect(not close(found, powers / powers.sum(0) @ values), over_queries)
    over_all = "all weights together sum to 1: the weights of each query must, so sum over axis=-1"
    expect(not close(found, powers / powers.sum() @ values), over_all)
    expect(
        not close(found, means(products * np.sqrt(4))),
        "the scores are multiplied by sqrt(d): divide",
    )
    by_values = "the scores are divided by the root of the width of values, not by that of d"
    expect(not close(found, means(products / np.sqrt(2))), by_values)
    shares = products / products.sum(-1, keepdims=True)
    expect(not close(found, shares @ values), NO_EXP)
    best = "each query gets the value of its best key alone: take the mean with all weights"
    expect(not close(found, values[products.argmax(-1)]), best)
    no_softmax = "softmax is missing: the scores themselves are the weights"
    expect(not close(found, products / np.sqrt(4) @ values), no_softmax)
    late = "the weights are divided by sqrt(d): divide the scores, before softmax"
    expect(not close(found, means(products) / np.sqrt(4)), late)
    sigmoid = 1 / (1 + np.exp(-products / np.sqrt(4)))
    expect(
        not close(found, sigmoid @ values),
        "the weights of a query do not sum to 1: divide exp by its sum over the keys",
    )
    expect(not close(found, shifted(products / np.sqrt(4))), SHIFTED)
    right = means(products / np.sqrt(4))
    expect(close(found, right), "the means are not those of softmax(Q K^T / sqrt(d)) V")


def test_order_of_keys() -> None:
    order = [3, 0, 4, 2, 1]
    before = run(yours.attention, queries, keys, values)
    after = run(yours.attention, queries, keys[order], values[order])
    expect(close(before, after), "keys and values in another order must give the same means")


def test_kernel_regression() -> None:
    found = run(yours.kernel_regression, queries, keys[:4], values[:4], 0.7)
    expect(
        np.ndim(found) != 3,
        "each number has its own weights: a distance is one number for query and key, the sum of "
        "the squares over the last axis",
    )
    found = run(yours.kernel_regression, queries, keys, values, 0.7)
    shape = np.shape(found)
    expect(shape == (3, 2), f"kernel_regression of 3 queries gives (3, 2), not {shape}")
    squares = ((queries[:, None] - keys) ** 2).sum(-1)
    mistakes = {
        "a far key gets more weight than a near one: the scores are negative": squares / 0.98,
        "the distances are not squared": -np.sqrt(squares) / 0.98,
        "the width is not squared": -squares / 1.4,
        "the scores are not halved: divide them by 2 * width**2": -squares / 0.49,
        "the scores do not depend on the width": -squares,
        "/ 2 * width**2 divides by 2 alone: write / (2 * width**2)": -squares / 2 * 0.49,
    }
    mistakes |= {
        "the distances are sums of absolute differences: square the differences": (
            -np.abs(queries[:, None] - keys).sum(-1) / 0.98
        ),
        "the mean of the squares is taken: a distance has their sum": -squares / 4 / 0.98,
        "the scores are products of query and key: take squared distances": (
            queries @ keys.T / 0.98
        ),
        "the scores are half as large: divide by 2 * width**2, not by (2 * width)**2": -squares
        / 1.96,
        "the sum of absolute differences is squared: square each difference, then add": (
            -(np.abs(queries[:, None] - keys).sum(-1) ** 2) / 0.98
        ),
    }
    powers = np.exp(-squares / 0.98)
    no_sum = "the weights of a query do not sum to 1: divide exp by its sum over the keys"
    expect(not close(found, powers @ values), no_sum)
    over_queries = "softmax is taken over the queries: take it over the keys, axis=-1"
    expect(not close(found, powers / powers.sum(0) @ values), over_queries)
    expect(not close(found, shifted(-squares / 0.98)), SHIFTED)
    expect(not close(found, squares / squares.sum(-1, keepdims=True) @ values), NO_EXP)
    for sentence, scores in mistakes.items():
        expect(not close(found, means(scores)), sentence)
    right = means(-squares / 0.98)
    expect(close(found, right), "the means are not those of softmax(-distance^2 / (2 width^2))")
