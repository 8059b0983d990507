"""Grades exercise 15.

A wrong answer is refuted by a law: one that the answer would break and the box keeps. If there is
none, then the box breaks a law that the answer would keep, and the sentence says of which kind.
"""

from collections.abc import Callable

import numpy as np
from black_boxes import ANSWERS, BOXES, DEFECTS, Attention, attention_of
from elsewhere import Elsewhere
from grading import close, expect, say

yours = Elsewhere("ex_15_bugs_that_train", BOXES)
ORDER = [3, 0, 4, 1, 2]


def inputs() -> np.ndarray:
    return np.random.default_rng(15).standard_normal((3, 3, 5, 8))


def two_calls(box: Attention) -> bool:
    return close(box(*inputs()), box(*inputs()))


def other_samples(box: Attention) -> bool:
    changed = inputs()
    changed[:, 1:] *= 2
    return close(box(*inputs())[0], box(*changed)[0])


def sums(box: Attention, causal: bool = False) -> bool:
    q, k, v = inputs()
    return close(box(q, k, np.ones_like(v), causal), np.ones_like(v))


def sums_with_mask(box: Attention) -> bool:
    return sums(box, causal=True)


def order(box: Attention) -> bool:
    return close(box(*inputs())[:, ORDER], box(*inputs()[:, :, ORDER]))


def future(box: Attention) -> bool:
    changed = inputs()
    changed[:, :, 3:] *= 2
    return close(box(*inputs(), causal=True)[:, :3], box(*changed, causal=True)[:, :3])


def known_weight(box: Attention) -> bool:
    key = np.zeros((2, 3, 8))
    key[:, 0] = 1.5
    right = 1 / (1 + 2 * np.exp(-1.5 * 4 / np.sqrt(4)))  # of the first key
    return close(box(np.ones_like(key), key, key / 1.5), np.full_like(key, right))


# Each law with the kind of its test.
NO_INFLUENCE = "something that must not matter has influence on its output"
NUMBERS = "a number that you can compute beforehand comes out different"
LAWS: dict[Callable[[Attention], bool], tuple[str, str]] = {
    two_calls: ("two calls give the same", NO_INFLUENCE),
    other_samples: ("a sample does not depend on the other samples", NO_INFLUENCE),
    sums: ("without a mask the weights of a query sum to 1", NUMBERS),
    sums_with_mask: ("with the causal mask the weights of a query sum to 1", NUMBERS),
    order: ("another order of the inputs gives the same outputs in that order", NO_INFLUENCE),
    future: ("in a causal call an output does not depend on what is behind it", NO_INFLUENCE),
    known_weight: ("a key with a known score has the weight that the formula gives", NUMBERS),
}


def overlooked(answer: str, box: Attention) -> str:
    """What a wrong answer overlooks."""
    supposed = attention_of(answer, 1)
    for law, (sentence, _) in LAWS.items():
        if law(box) and not law(supposed):
            return say(f"it would break this law, which the box keeps: {sentence}")
    for law, (_, kind) in LAWS.items():
        if law(supposed) and not law(box):
            return say(f"it does not explain one thing: {kind}")
    raise ValueError(f"nothing tells {answer!r} from this box")


def check(name: str, box: Attention, right: str) -> None:
    answer = yours.ask("diagnose", box)
    expect(answer in DEFECTS, f"diagnose returns one of {list(DEFECTS)}, not {answer!r}")
    if answer != right:
        expect(False, f"{name} is not {answer!r}: {overlooked(answer, box)}")


def test_box_1() -> None:
    check("box_1", BOXES["box_1"], ANSWERS["box_1"])


def test_box_2() -> None:
    check("box_2", BOXES["box_2"], ANSWERS["box_2"])


def test_box_3() -> None:
    check("box_3", BOXES["box_3"], ANSWERS["box_3"])


def test_box_4() -> None:
    check("box_4", BOXES["box_4"], ANSWERS["box_4"])


def test_box_5() -> None:
    check("box_5", BOXES["box_5"], ANSWERS["box_5"])


def test_other_boxes() -> None:
    """Those that are not among the five, and the five with other random numbers."""
    for seed, defect in enumerate(DEFECTS, 7):
        check("a box outside the five", attention_of(defect, seed), defect)
