"""Grades exercise 21."""

from collections import Counter
from typing import Any

import numpy as np
from grading import close, exercise, expect, run

yours = exercise("ex_21_own_texts")
rng = np.random.default_rng(21)
# the 4 times, cat and dog 3, saw 2, a 1
TEXTS = [
    ["the", "cat", "saw", "the", "dog"],
    ["the", "dog", "saw", "a", "cat"],
    ["cat", "dog"],
    ["the"],
]
NAMES = ["<pad>", "<unknown>", "the", "cat", "dog", "saw"]
LABELS = rng.permutation(np.repeat([0, 1, 2], [100, 59, 20]))


def test_vocabulary() -> None:
    found = run(yours.vocabulary_of, [list(text) for text in TEXTS], 2)
    expect(isinstance(found, list), "vocabulary_of returns a list of words")
    expect(
        found[:2] == NAMES[:2],
        'the list begins with "<pad>" and "<unknown>", because their ids are 0 and 1',
    )
    expect(len(set(found)) == len(found), "a word stands in the vocabulary twice")
    expect("a" not in found, '"a" occurs once: with least = 2 it is left out')
    expect("saw" in found, '"saw" occurs twice: least = 2 means 2 or more')
    expect(
        set(found) == set(NAMES), f"the words are {sorted(NAMES)}, not {sorted(map(str, found))}"
    )
    expect(found[2] == "the", '"the" is the most frequent word, so it is the first after the two')
    expect(found[-1] == "saw", '"saw" is the rarest word of the list, so it is the last one')


def test_vocabulary_counts_all_places() -> None:
    found = run(yours.vocabulary_of, [["b", "b", "b"], ["c"], ["c"]], 3)
    expect("b" in found, "a word counts at each of its places: b occurs three times in one text")
    expect(found == [*NAMES[:2], "b"], f"b alone occurs three times, and the list is {found}")


def test_batch() -> None:
    # The longest text is neither the first nor the last one.
    texts = [["the", "dog"], ["cat", "saw", "the", "fox"], ["dog"]]
    found = run(yours.batch_of, texts, list(NAMES))
    right = np.array([[2, 4, 0, 0], [3, 5, 2, 1], [4, 0, 0, 0]])
    expect(isinstance(found, np.ndarray), "batch_of returns an array")
    expect(found.shape != (3, 1), "the batch is as long as the shortest text: words are cut off")
    expect(
        found.shape == (3, 4),
        f"3 texts, of which the longest has 4 words, have the shape (3, 4), not {found.shape}",
    )
    expect(found.dtype.kind in "iu", f"ids are integers, and yours are {found.dtype}")
    expect(
        not np.array_equal(found, np.where(right == 1, 0, right)),
        "a word that the vocabulary lacks is UNKNOWN, which is 1, and not padding",
    )
    expect(
        not np.array_equal(found, np.where(right == 0, 1, right)),
        "behind the end of a text stands PAD, which is 0, and not UNKNOWN",
    )
    before = np.array([[0, 0, 2, 4], [3, 5, 2, 1], [0, 0, 0, 4]])
    expect(not np.array_equal(found, before), "the padding stands before the words: put it behind")
    expect(
        not np.array_equal(found, np.where(right > 1, right - 2, right)),
        "the id of a word is its place in the whole list, with the two special ones",
    )
    expect(np.array_equal(found, right), f"the ids are\n{right}\nand yours are\n{found}")


def test_mean() -> None:
    ids = np.array([[3, 5, 2, 1], [4, 0, 0, 0], [2, 4, 0, 0]])
    x = rng.standard_normal((3, 4, 2))
    keep = (ids != 0)[:, :, None]
    right = np.array([x[0].mean(0), x[1, 0], x[2, :2].mean(0)])
    found = run(yours.mean_of_words, x.copy(), ids.copy())
    expect(
        np.shape(found) == (3, 2),
        f"3 texts of vectors with 2 numbers have means of shape (3, 2), not {np.shape(found)}",
    )
    known = ids > 1
    mistakes = {
        "the vectors of padding are in the mean": x.mean(1),
        "the sum leaves padding out, but it is divided by T and not by the number of words": (
            (x * keep).sum(1) / 4
        ),
        "this is the sum: divide it by the number of words": (x * keep).sum(1),
        "the sum is divided by the words of all texts: divide it by those of its own text": (
            (x * keep).sum(1) / keep.sum()
        ),
        "unknown words are words too: leave out padding alone": (
            (x * known[:, :, None]).sum(1) / known.sum(1, keepdims=True)
        ),
        "this is the first word of each text, and not a mean": x[:, 0],
    }
    for sentence, value in mistakes.items():
        expect(not close(found, value), sentence)
    expect(close(found, right), "these are not the means of the words")


def test_mean_beside_nan() -> None:
    ids = np.array([[3, 5, 2], [4, 0, 0], [0, 0, 0]])
    x = rng.standard_normal((3, 3, 2))
    x[1, 1:] = np.nan
    found = np.asarray(run(yours.mean_of_words, x.copy(), ids.copy()))
    expect(
        not np.isnan(found[1]).any(),
        "padding with NaN makes the mean NaN: 0 * NaN is NaN, so choose with np.where",
    )
    expect(close(found[1], x[1, 0]), "the mean is another one if padding has NaN")
    expect(
        close(found[2], np.zeros(2)), "the mean of a text without words is 0: divide by 1 at least"
    )


def divided(labels: np.ndarray, seed: int) -> list[np.ndarray]:
    found: Any = run(yours.parts, labels.copy(), seed)
    expect(
        isinstance(found, (tuple, list)) and len(found) == 3,
        "parts returns three arrays: for learning, for choices, for the test",
    )
    rows = [np.asarray(part) for part in found]
    flat = all(part.ndim == 1 and part.dtype.kind in "iu" for part in rows)
    expect(flat, "each of the three is an array (n,) of the numbers of texts")
    return rows


def test_parts() -> None:
    for seed in range(40):  # chance puts a text into a part twice for some seeds only
        compare_parts(*divided(LABELS, seed))


def compare_parts(learning: np.ndarray, choices: np.ndarray, test: np.ndarray) -> None:
    together = np.concatenate([learning, choices, test])
    expect(
        not set(choices) & set(test),
        "texts for choices are in the test too: the model is chosen by them, and looks too good",
    )
    expect(
        not set(learning) & {*choices, *test},
        "texts for learning are in another part too: the model would know them by heart",
    )
    expect(set(together) == set(range(len(LABELS))), "some texts are in none of the three parts")
    expect(len(together) == len(LABELS), "a text is in one part twice")
    sizes = [np.bincount(LABELS[part], minlength=3).tolist() for part in (learning, choices, test)]
    right = [[80, 49, 16], [10, 5, 2], [10, 5, 2]]
    expect(
        sizes != [right[1], right[0], right[2]] and sizes != [right[1], right[1], right[0]],
        "the order is learning, choices, test: the largest part comes first",
    )
    expect(
        [sum(size) for size in sizes] != [145, 17, 17] or sizes == right,
        "the sizes are right, but not those of each label: divide the texts of each label alone",
    )
    expect(
        sizes == right, f"the texts of each label are {right} in the parts, and yours are {sizes}"
    )


def test_parts_are_by_chance() -> None:
    first, second, third = (divided(LABELS, seed) for seed in (0, 0, 1))
    expect(
        all(map(np.array_equal, first, second)),
        "the same seed gives other parts: use np.random.default_rng(seed)",
    )
    expect(
        not all(set(a) == set(b) for a, b in zip(first, third, strict=True)),
        "the parts do not depend on the seed: files are often sorted, so mix the texts of a label",
    )
    tests = [divided(LABELS, seed)[2] for seed in range(40)]
    often = Counter(np.concatenate(tests).tolist())
    expect(len(often) > 150, "some texts never come into the test, whatever the seed is")
