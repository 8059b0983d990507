"""Grades exercise 22."""

from typing import Any

import numpy as np
from grading import close, exercise, expect, needs, run

yours = exercise("ex_22_own_language_model")
rng = np.random.default_rng(22)
IDS = rng.permutation(60)  # no id stands twice, so each window tells where it began
STARTS = np.array([5, 0, 40])
TEXT = "Bär,熊"  # 5 signs, 8 bytes
LOSSES = rng.random(6) + 0.5


def test_pair() -> None:
    found = run(yours.most_frequent_pair, [7, 8, 3, 5, 7, 8, 5, 3, 5, 3, 5])
    expect(
        isinstance(found, (tuple, list)) and len(found) == 2,
        "most_frequent_pair returns two ids: (first, second)",
    )
    expect(np.ndim(found[0]) == 0, "that is a pair with its count: return the pair alone")
    found = tuple(map(int, found))
    expect(found != (5, 3), "(3, 5) stands there three times: a pair has an order")
    expect(found == (3, 5), f"(3, 5) stands there three times, and you return {found}")
    found = tuple(map(int, run(yours.most_frequent_pair, [9, 2, 5, 9, 2, 7])))
    expect(found != (2, 9), "a pair has the order of the text: do not sort its two ids")
    expect(found == (9, 2), f"(9, 2) stands there twice, and you return {found}")
    shorter = tuple(map(int, run(yours.most_frequent_pair, [1, 2, 4, 4, 4, 9])))
    expect(
        shorter != (1, 2),
        "in 4, 4, 4 the pair (4, 4) stands at two places: count all neighbours",
    )
    expect(shorter == (4, 4), f"(4, 4) stands there twice, and you return {shorter}")
    for first, second in (((8, 9), (1, 2)), ((1, 2), (8, 9))):
        ids = [*first, 0, *second, *first, 3, *second]
        found = tuple(map(int, run(yours.most_frequent_pair, ids)))
        expect(
            found == first,
            f"{first} and {second} are equally frequent, and {first} comes first, not {found}",
        )


def merged(ids: list[int], pair: tuple[int, int], new: int) -> list[int]:
    given = list(ids)
    found: Any = run(yours.merge, given, pair, new)
    expect(given == ids, "merge changes the list that it is given: begin a new list")
    return [int(i) for i in found]


def test_merge() -> None:
    found = merged([3, 5, 7, 3, 5], (3, 5), 9)
    expect(found != [9, 5, 7, 9, 5], "the second id of a pair is still there: skip it")
    expect(found != [9, 7, 3, 5], "the first place alone is merged: merge all places")
    expect(found != [9, 7], "a pair at the end of the list is lost or is not merged")
    expect(
        found != [3, 5, 7, 3, 5],
        "nothing is merged: a list and a tuple are never equal, so compare two tuples",
    )
    expect(found == [9, 7, 9], f"3 5 7 3 5 becomes 9 7 9, and yours is {found}")
    found = merged([7, 3, 5, 4], (3, 5), 9)
    expect(found != [7, 9], "the last id is lost: it has no neighbour behind it")
    expect(found == [7, 9, 4], f"7 3 5 4 becomes 7 9 4, and yours is {found}")
    found = merged([5, 3, 3, 7], (3, 5), 9)
    expect(found == [5, 3, 3, 7], f"(5, 3) is not the pair (3, 5), and yours is {found}")
    found = merged([4, 4, 4, 4, 4], (4, 4), 9)
    expect(found != [4, 9, 9], "the list is read from left to right: the pairs begin at its start")
    expect(9 not in found[2:], "an id belongs to two pairs: go on behind the merged pair")
    expect(found == [9, 9, 4], f"4 4 4 4 4 becomes 9 9 4, and yours is {found}")
    found = merged([1, 23, 311, 2, 1, 2], (1, 2), 300)
    expect(
        found == [1, 23, 311, 2, 300],
        "with the pair (1, 2), 1 23 311 2 1 2 becomes 1 23 311 2 300, because 23 and 311 are whole "
        f"ids, and yours is {found}",
    )


def test_windows() -> None:
    found = run(yours.windows, IDS.copy(), STARTS.copy(), 4)
    expect(
        isinstance(found, (tuple, list)) and len(found) == 2,
        "windows returns two arrays: the inputs and the targets",
    )
    inputs, targets = map(np.asarray, found)
    expect(
        inputs.shape == targets.shape == (3, 4),
        f"both arrays have the shape (3, 4), not {inputs.shape} and {targets.shape}",
    )
    right = IDS[STARTS[:, None] + np.arange(6)]
    expect(
        not np.array_equal(inputs, targets),
        "the targets are the inputs: a model would learn to copy; move them by one place",
    )
    expect(
        not (np.array_equal(inputs, right[:, 1:5]) and np.array_equal(targets, right[:, :4])),
        "the two are exchanged: the target is the id after the input",
    )
    expect(np.array_equal(inputs, right[:, :4]), "window i has the ids from starts[i] on")
    expect(
        not np.array_equal(targets, right[:, 2:]), "the targets are two places later, and not one"
    )
    circle = np.roll(right[:, :4], -1, axis=1)
    expect(
        not np.array_equal(targets, circle),
        "the last target of a window is its first id: it is the id behind the window",
    )
    expect(np.array_equal(targets, right[:, 1:5]), "a target is the id after that of the input")


def test_the_last_window() -> None:
    needs(test_windows)
    start = len(IDS) - 5
    inputs, targets = map(np.asarray, run(yours.windows, IDS.copy(), np.array([start]), 4))
    expect(
        np.array_equal(inputs, IDS[None, start : start + 4])
        and np.array_equal(targets, IDS[None, start + 1 :]),
        "the last window is another one: its last target is the last id of the text",
    )


def test_bits() -> None:
    found = run(yours.bits_a_byte, LOSSES.copy(), TEXT)
    expect(np.ndim(found) == 0, "bits_a_byte is one number")
    total, bytes_, signs = LOSSES.sum(), len(TEXT.encode()), len(TEXT)
    mistakes = {
        "these are nats: divide by log 2": total / bytes_,
        "the logarithm of 2 is a divisor, and not a factor": total * np.log(2) / bytes_,
        "these are bits a sign: some signs have several bytes in UTF-8": total / np.log(2) / signs,
        "these are bits a token: divide by the bytes of the text": total / np.log(2) / 6,
        "the mean of the losses is divided by the bytes: take their sum": (
            total / 6 / np.log(2) / bytes_
        ),
        "these are the bits of the whole text: divide by its bytes": total / np.log(2),
    }
    for sentence, value in mistakes.items():
        expect(not close(found, value), sentence)
    expect(close(found, total / np.log(2) / bytes_), "this is not sum(losses) / log 2 / bytes")


def rates(steps: int, warmup: int) -> np.ndarray:
    return np.array([run(yours.rate, n, steps, warmup, 0.5) for n in range(1, steps + 1)])


def test_warmup() -> None:
    found = rates(20, 4)[:4]
    expect(
        not close(found, np.arange(4) / 4 * 0.5),
        "the rate of step 1 is 0, so the step does nothing: steps are counted from 1",
    )
    expect(
        not close(found, np.arange(1, 5) / 5 * 0.5),
        "`highest` is reached one step after the warm-up: step `warmup` has it",
    )
    expect(not close(found, np.arange(1, 5) / 4), "`highest` has no influence on the warm-up")
    expect(close(found, np.arange(1, 5) / 4 * 0.5), "in the warm-up it is highest * step / warmup")


def test_cosine() -> None:
    found, progress = rates(20, 4)[4:], np.arange(1, 17) / 16
    mistakes = {
        "this falls along a line: take half a cosine": 1 - progress,
        "it falls and grows again: half a cosine ends at cos(pi)": np.cos(np.pi * progress) ** 2,
        "the rate becomes negative: add 1 to the cosine, and halve": np.cos(np.pi * progress),
        "the rate is twice as high as `highest`: halve 1 + cos": 1 + np.cos(np.pi * progress),
        "the rate stays at `highest` after the warm-up": np.ones(16),
        "the cosine begins at step 0: it begins where the warm-up ends": (
            (1 + np.cos(np.pi * np.arange(5, 21) / 20)) / 2
        ),
        "the cosine is not at its end in the last step: divide by steps - warmup": (
            (1 + np.cos(np.pi * np.arange(1, 17) / 20)) / 2
        ),
        "the angle ends at 1: half a cosine ends at pi": (1 + np.cos(progress)) / 2,
    }
    for sentence, value in mistakes.items():
        expect(not close(found, 0.5 * value), sentence)
    expect(abs(found[-1]) < 1e-12, "the rate of the last step is 0")
    right = 0.25 * (1 + np.cos(np.pi * progress))
    expect(close(found, right), "it is not highest * (1 + cos(pi * progress)) / 2")


def test_no_warmup() -> None:
    found, progress = rates(8, 0), np.arange(1, 9) / 8
    if not close(found, 0.25 * (1 + np.cos(np.pi * progress))):
        needs(test_cosine)
    expect(
        close(found, 0.25 * (1 + np.cos(np.pi * progress))),
        "without a warm-up the cosine begins at once: nothing is divided by 0",
    )
