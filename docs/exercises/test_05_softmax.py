"""Grades exercise 5."""

import numpy as np
from grading import close, exercise, expect, finite_differences, needs, of_copies, run

yours = exercise("ex_05_softmax")
rng = np.random.default_rng(5)


def right(x: np.ndarray) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


def test_rows_sum_to_1() -> None:
    x = rng.standard_normal((3, 4))
    out = of_copies(yours.softmax, x)
    expect(np.shape(out) == (3, 4), f"softmax of (3, 4) has shape (3, 4), yours {np.shape(out)}")
    expect(not close(out.sum(), 1), "all weights together sum to 1: take the sum of each row")
    expect(not close(out.sum(0), np.ones(4)), "columns sum to 1: sum over the last axis")
    expect(not close(out, np.log(right(x))), "these are logarithms of the weights: leave log out")
    expect(
        not close(out, right(-x)), "the largest score gets the smallest weight: exp(x), not exp(-x)"
    )
    expect(
        close(out.sum(-1), np.ones(3)) or not close(out.sum(-1), np.ones(3), 1e-3),
        "the weights of a row sum to nearly 1: add no small number to their sum",
    )
    expect(close(out.sum(-1), np.ones(3)), "the weights of a row do not sum to 1")
    expect(
        close(out, right(x)),
        "rows sum to 1, but the weights are not exp(x) / sum(exp(x))",
    )


def test_any_scores() -> None:
    out = run(yours.softmax, np.array([[1000.0, 0.0], [-1000.0, -1001.0]]))
    needs(test_rows_sum_to_1)
    expect(
        np.isfinite(out[0]).all(),
        "rows sum to 1, but a score of 1000 gives nan: subtract the maximum first",
    )
    expect(
        np.isfinite(out[1]).all(),
        "scores of -1000 give nan: subtract the maximum of each row, not that of the array",
    )
    expect(
        close(out[1], [0.7310586, 0.2689414]),
        "a row far below 0 has wrong weights: subtract the maximum, do not clip",
    )
    far = run(yours.softmax, np.array([900.0, -900.0, -900.0]))
    expect(
        np.isfinite(far).all(),
        "a score far above the mean gives nan: subtract the maximum, not another number",
    )
    hidden = run(yours.softmax, np.array([0.0, -np.inf]))
    expect(np.array_equal(hidden, [1, 0]), f"scores 0 and -inf have weights 1 and 0, not {hidden}")


def test_more_dimensions() -> None:
    x = rng.standard_normal((2, 3, 4))
    found = of_copies(yours.softmax, x)
    if not close(found, right(x)):
        needs(test_rows_sum_to_1)
    expect(
        close(found, right(x)),
        "softmax of (2, 3, 4) is wrong: take maximum and sum over the last axis, axis=-1",
    )


def test_input_is_not_changed() -> None:
    x = rng.standard_normal((2, 3))
    before = x.copy()
    run(yours.softmax, x)
    expect(np.array_equal(x, before), "softmax changed its argument: write x - max, not x -= max")


def test_backward() -> None:
    x, grad = rng.standard_normal((2, 2, 4))
    out = right(x)
    given = [grad.copy(), out.copy()]
    found = run(yours.softmax_backward, *given)
    expect(
        all(map(np.array_equal, given, (grad, out))),
        "softmax_backward changed grad or out: write to a new array",
    )
    slopes = finite_differences(right, x, grad)
    ones = run(yours.softmax_backward, np.ones_like(out), out)
    if close(ones, np.zeros_like(out)):
        hint = "a cotangent of ones cannot see it, because rows sum to 1 whatever x is"
    else:
        hint = "a cotangent of ones must give 0: subtract sum(grad * out) of each row"
    expect(np.shape(found) == x.shape, f"the gradient of x has x's shape, not {np.shape(found)}")
    expect(
        not close(found, grad * out * (1 - out)),
        "this is the diagonal alone: a score changes all weights of its row, not its own only",
    )
    inner = (grad * out).sum(-1, keepdims=True)
    expect(not close(found, grad - inner), "the factor out is missing: out * (grad - sum)")
    expect(not close(found, out * (grad + inner)), "the sum is added: subtract sum(grad * out)")
    expect(
        not close(found, out * (grad - (grad * out).sum())),
        "the sum is that of the whole array: take sum(grad * out) of each row",
    )
    expect(
        not close(found, out * (grad - grad.sum(-1, keepdims=True))),
        "the sum is that of grad alone: take sum(grad * out) of each row",
    )
    expect(close(found, slopes), f"the gradient is not that of finite differences; {hint}")
    three = [array.reshape(2, 1, 4) for array in (grad, out)]
    expect(
        close(run(yours.softmax_backward, *three), slopes.reshape(2, 1, 4)),
        "the gradient of (2, 1, 4) is not that of its rows: sum over the last axis, axis=-1",
    )
