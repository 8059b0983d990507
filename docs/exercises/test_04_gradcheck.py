"""Grades exercise 4."""

import numpy as np
from grading import exercise, expect, run

yours = exercise("ex_04_gradcheck")
x = np.random.default_rng(4).standard_normal((2, 3))


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def softmax_rule(grad: np.ndarray, x: np.ndarray) -> np.ndarray:
    return softmax(x) * (grad - (grad * softmax(x)).sum(-1, keepdims=True))


def answer(function, rule, x=x) -> bool:
    found = run(yours.is_right, function, rule, x)
    expect(isinstance(found, (bool, np.bool_)), f"is_right returns True or False, not {found!r}")
    return bool(found)


def test_right_rules() -> None:
    expect(answer(np.exp, lambda g, x: g * np.exp(x)), "the right rule of exp is refused")
    expect(answer(softmax, softmax_rule), "the right rule of softmax is refused")
    expect(
        answer(lambda x: x @ x.T, lambda g, x: (g + g.T) @ x),
        "a right rule of a function with outputs of another shape is refused",
    )
    for factor in (1e6, -1e6):
        expect(
            answer(lambda x, c=factor: c * x, lambda g, x, c=factor: c * g, x[:1, :1]),
            "the right rule of one number is refused: the tolerance is relative to abs(slopes)",
        )
    large = lambda x: 1e6 * np.exp(x)  # noqa: E731
    expect(
        answer(large, lambda g, x: g * large(x)),
        "a right rule with slopes of a million is refused: make the tolerance relative",
    )


def test_float32() -> None:
    expect(
        answer(np.exp, lambda g, x: g * np.exp(x), x.astype(np.float32)),
        "a right rule is refused at a float32 x: compute in float64",
    )


def test_wrong_rules() -> None:
    wrong = {
        "exp plus 1: compare abs(difference)": (np.exp, lambda g, x: g * np.exp(x) + 1),
        "exp minus 1: compare abs(difference)": (np.exp, lambda g, x: g * np.exp(x) - 1),
        "softmax with the plain mean": (
            softmax,
            lambda g, x: softmax(x) * (g - g.mean(-1, keepdims=True)),
        ),
        "softmax that is always 0: take a cotangent with signs": (softmax, lambda g, x: 0 * g),
        "exp with the wrong sign": (np.exp, lambda g, x: -g * np.exp(x)),
        "exp without the chain rule": (np.exp, lambda g, x: np.exp(x)),
        "exp of which 1 in 1,000 is missing": (np.exp, lambda g, x: 0.999 * g * np.exp(x)),
        "exp that is wrong in one element": (
            np.exp,
            lambda g, x: g * np.exp(x) * (np.arange(6).reshape(2, 3) != 4),
        ),
        "a small function, 1e-7 sin(x), that is always 0: make the tolerance relative": (
            lambda x: 1e-7 * np.sin(x),
            lambda g, x: 0 * g,
        ),
        "exp with abs(grad): a cotangent has both signs": (
            np.exp,
            lambda g, x: np.abs(g) * np.exp(x),
        ),
        "exp with -abs(grad): a cotangent has both signs": (
            np.exp,
            lambda g, x: -np.abs(g) * np.exp(x),
        ),
        "exp that gives nan: a comparison with nan is False": (
            np.exp,
            lambda g, x: np.where(x == x[0, 0], np.nan, g * np.exp(x)),
        ),
    }
    for name, (function, rule) in wrong.items():
        expect(not answer(function, rule), f"a wrong rule is accepted: {name}")


def test_rules_that_mix_elements() -> None:
    x = np.random.default_rng(5).standard_normal((4, 6))
    wrong = {
        "exp with the rows of grad exchanged: a cotangent has rows that differ": np.flipud,
        "exp with the columns of grad exchanged: a cotangent has columns that differ": np.fliplr,
    }
    for name, flip in wrong.items():
        found = answer(np.exp, lambda g, x, flip=flip: flip(g) * np.exp(x), x)
        expect(not found, f"a wrong rule is accepted: {name}")


def test_input_is_not_changed() -> None:
    before = x.copy()
    answer(np.exp, lambda g, x: g * np.exp(x))
    expect(np.array_equal(x, before), "is_right changed x: change a copy")
