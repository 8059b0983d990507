"""Grades exercise 7."""

from collections.abc import Callable
from typing import Any

import numpy as np
from grading import close, exercise, expect, finite_differences, run

yours = exercise("ex_07_scoring")
rng = np.random.default_rng(7)
shapes = ((2, 3, 4), (2, 5, 6), (7, 4), (7, 6), (7,))  # B=2, Q=3, K=5, m=4, n=6, h=7
queries, keys, W_q, W_k, w_v = arguments = [rng.standard_normal(shape) for shape in shapes]


def right(
    queries: np.ndarray, keys: np.ndarray, W_q: np.ndarray, W_k: np.ndarray, w_v: np.ndarray
) -> np.ndarray:
    """One query and one key after the other."""
    scores = np.empty((len(queries), queries.shape[1], keys.shape[1]))
    for b, i, j in np.ndindex(scores.shape):
        scores[b, i, j] = w_v @ np.tanh(W_q @ queries[b, i] + W_k @ keys[b, j])
    return scores


def call(function: Callable[..., Any], *args: np.ndarray) -> Any:
    """What your function returns for copies of the arguments, which it must not change."""
    given = [array.copy() for array in args]
    found = run(function, *given)
    names = ("queries", "keys", "W_q", "W_k", "w_v")
    if function is yours.additive_backward:
        names = ("grad", *names)
    for name, array, before in zip(names, given, args, strict=False):
        expect(close(array, before), f"your function changes {name}: write to a new array")
    return found


def expect_scores(found: np.ndarray, samples: int, queries: int, keys: int) -> None:
    shape = (samples, queries, keys)
    expect(
        np.shape(found) != (samples, keys, queries),
        f"rows are keys, and columns are queries: scores are (B, Q, K), here {shape}",
    )
    expect(np.shape(found) == shape, f"scores are (B, Q, K), here {shape}, not {np.shape(found)}")


def test_all_sizes_equal() -> None:
    q, k = rng.standard_normal((3, 3, 3)), rng.standard_normal((3, 3, 3))
    found = call(yours.dot_product_scores, q, k)
    expect(
        not close(found, q @ k.T / np.sqrt(3)),
        "keys.T turns (B, K, d) into (d, K, B): exchange the last two axes only",
    )


def test_dot_product() -> None:
    q, k = rng.standard_normal((2, 3, 16)), rng.standard_normal((2, 5, 16))
    found = call(yours.dot_product_scores, q, k)
    expect_scores(found, 2, 3, 5)
    raw = np.einsum("bqd,bkd->bqk", q, k)
    expect(not close(found, raw), "the products are not divided by sqrt(d)")
    expect(not close(found, raw / 16), "the products are divided by d, not by sqrt(d)")
    e = np.exp(raw / 4)
    expect(
        not close(found, e / e.sum(-1, keepdims=True)),
        "softmax is taken: the scores come before it",
    )
    expect(
        not close(found, raw / 5**0.5), "the scores are divided by the root of the number of keys"
    )
    expect(not close(found, raw * 4), "the products are multiplied by sqrt(d): divide")
    expect(close(found, raw / 4), "the scores are not q . k / sqrt(d) with d the width of a query")
    expect_scores(call(yours.dot_product_scores, q[:1, :1], k[:1]), 1, 1, 5)


def test_size_of_scores() -> None:
    q, k = rng.standard_normal((1, 200, 400)), rng.standard_normal((1, 200, 400))
    size = np.std(call(yours.dot_product_scores, q, k))
    expect(0.9 < size < 1.1, f"vectors of 400 numbers have scores of size 1, yours {size:.3f}")


def test_each_query_meets_each_key() -> None:
    """As many queries as keys, so that they can be added without new axes."""
    q, k = rng.standard_normal((2, 5, 4)), rng.standard_normal((2, 5, 6))
    expect(
        np.shape(call(yours.additive_scores, q, k, W_q, W_k, w_v)) != (2, 5),
        "query i is added to key i alone: q[:, :, None] + k[:, None] adds each to each",
    )


def test_additive() -> None:
    found = call(yours.additive_scores, *arguments)
    expect_scores(found, 2, 3, 5)
    far = found - found[..., :1]  # what softmax sees: differences of the scores of one query
    expect(
        not close(far, np.broadcast_to(far[:, :1], far.shape)),
        "all queries have the same weights: without a tanh of the sum a query has no influence",
    )
    q, k = (queries @ W_q.T)[:, :, None], (keys @ W_k.T)[:, None]
    expect(not close(found, np.tanh(q * k) @ w_v), "projections are multiplied: add them")
    expect(not close(found, np.tanh(q + k).sum(-1)), "w_v is missing: tanh(...) @ w_v, not a sum")
    expect(not close(found, np.tanh((q + k) @ w_v)), "tanh is taken before w_v, not after it")
    expect(not close(found, np.tanh(q - k) @ w_v), "projections are subtracted: add them")
    expect(
        not close(found, np.tanh(q + k) @ w_v / 7**0.5),
        "the additive score is not divided by a root",
    )
    expect(close(found, right(*arguments)), "the scores are not w_v . tanh(W_q q + W_k k)")
    one = call(yours.additive_scores, queries[:1, :1], keys[:1], W_q, W_k, w_v)
    expect_scores(one, 1, 1, 5)


def test_as_many_queries_as_keys() -> None:
    """An exchanged axis does not change the shape here. `test_additive` tells of wrong shapes."""
    if np.shape(call(yours.additive_scores, *arguments)) != (2, 3, 5):
        return
    q, k = rng.standard_normal((3, 3, 4)), rng.standard_normal((3, 3, 4))
    expected = right(q, k, W_q, W_q, w_v)
    found = call(yours.additive_scores, q, k, W_q, W_q, w_v)
    expect(
        not close(found, expected.swapaxes(1, 2)),
        "rows are keys, and columns are queries: scores are (B, Q, K)",
    )


def test_backward() -> None:
    grad = rng.standard_normal((2, 3, 5))
    found = call(yours.additive_backward, grad, *arguments)
    expect(
        isinstance(found, (tuple, list)) and len(found) == 2,
        "return two gradients: queries and w_v",
    )
    of_queries, of_w_v = found
    expect(
        (np.shape(of_queries), np.shape(of_w_v)) != (w_v.shape, queries.shape),
        "the two gradients are in the wrong order: first the queries, then w_v",
    )
    expect(
        np.shape(of_queries) == queries.shape,
        f"the gradient of the queries is (B, Q, m), not {np.shape(of_queries)}: each query was "
        "used for all keys, so sum over the keys",
    )
    expect(
        np.shape(of_w_v) == w_v.shape,
        f"the gradient of w_v is (h,), not {np.shape(of_w_v)}: sum over samples, queries and keys",
    )
    expected = finite_differences(lambda w: right(queries, keys, W_q, W_k, w), w_v, grad)
    expect(
        not close(of_w_v * grad.size, expected, 1e-6),
        "the gradient of w_v is a mean over samples, queries and keys: take the sum",
    )
    f = np.tanh((queries @ W_q.T)[:, :, None] + (keys @ W_k.T)[:, None])
    expect(
        not close(of_w_v, f.sum((0, 1, 2)), 1e-6),
        "grad is missing in the gradient of w_v: multiply by it before the sum",
    )
    expect(close(of_w_v, expected, 1e-6), "the gradient of w_v is not that of finite differences")
    expected = finite_differences(lambda q: right(q, keys, W_q, W_k, w_v), queries, grad)
    mistakes = {
        "the derivative of tanh is missing: 1 - tanh^2": grad[..., None] * w_v,
        "the derivative of tanh is 1 - tanh^2, not 1 - tanh": grad[..., None] * w_v * (1 - f),
        "w_v is missing in the gradient of the queries": grad[..., None] * (1 - f**2),
        "grad is missing in the gradient of the queries": w_v * (1 - f**2),
    }
    expect(
        not close(of_queries * 5, expected, 1e-6),
        "the gradient of a query is a mean over the keys: take the sum",
    )
    expect(not close(-of_queries, expected, 1e-6), "the gradient of the queries has a wrong sign")
    for sentence, value in mistakes.items():
        expect(not close(of_queries, value.sum(2) @ W_q, 1e-6), sentence)
    expect(
        close(of_queries, expected, 1e-6),
        "the gradient of the queries is not that of finite differences: w_v, then the derivative "
        "of tanh, 1 - tanh^2, then W_q",
    )
