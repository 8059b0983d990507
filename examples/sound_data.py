"""English words as letters and as phonemes, from the CMU dictionary, and rules to compare with.

The task: given the letters of a word (n a t i o n), say its phonemes without stress (N EY SH AH N).
The held-out words are those of stress_data.py. Shapes: N words, S = 16 letters, T = 18 symbols of
the target: START, at most 16 phonemes, STOP.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

import numpy as np
import stress_data
from stress_data import MAX_LENGTH, PAD, PHONEMES

LETTERS = "-abcdefghijklmnopqrstuvwxyz"  # the index is the id; 0 is padding
SYMBOLS = [*PHONEMES, "<start>", "<stop>"]
START, STOP = len(PHONEMES), len(PHONEMES) + 1

_SOUND_ID = {phoneme: index for index, phoneme in enumerate(SYMBOLS)}


class Pairs(NamedTuple):
    """N words: ``letters`` (N, 16) and ``sounds`` (N, 18) int64, ``lengths`` (N,) in letters."""

    words: list[str]
    letters: np.ndarray
    sounds: np.ndarray
    lengths: np.ndarray


def encode_letters(words: Sequence[str]) -> np.ndarray:
    """The ids of the letters: (N, 16)."""
    letters = np.full((len(words), MAX_LENGTH), PAD, np.int64)
    for row, word in zip(letters, words, strict=True):
        if not word or not set(word) <= set(LETTERS[1:]) or len(word) > MAX_LENGTH:
            raise ValueError(f"{word!r} is not a word of 1 to {MAX_LENGTH} letters a to z")
        row[: len(word)] = [LETTERS.index(letter) for letter in word]
    return letters


def encode(words: list[str]) -> Pairs:
    """Words of the dictionary, with their sounds between START and STOP."""
    entries, letters = stress_data.read(), encode_letters(words)
    sounds = np.full((len(words), MAX_LENGTH + 2), PAD, np.int64)
    for row, word in zip(sounds, words, strict=True):
        ids = [_SOUND_ID[phoneme.rstrip("012")] for phoneme in entries[word]]
        row[: len(ids) + 2] = [START, *ids, STOP]
    return Pairs(words, letters, sounds, (letters != PAD).sum(axis=1))


def each(n: int, pairs: Pairs) -> Pairs:
    """Every n-th word."""
    return Pairs(pairs.words[::n], pairs.letters[::n], pairs.sounds[::n], pairs.lengths[::n])


def load() -> tuple[Pairs, Pairs]:
    """The train split (91,777 words) and the test split (10,498 words)."""
    words = list(stress_data.read())
    train = [word for word in words if not stress_data.in_test(word)]
    return encode(train), encode([word for word in words if stress_data.in_test(word)])


def phonemes_of(ids: Sequence[int]) -> list[str]:
    """The phonemes between START and STOP."""
    until_stop = takewhile(lambda i: i != STOP, ids)
    return [SYMBOLS[i] for i in until_stop if i not in (START, PAD)]


def distance(a: Sequence[str], b: Sequence[str]) -> int:
    """The fewest insertions, deletions and exchanges that make one sequence the other."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        above, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (x != y))
    return row[-1]


def error_rates(said: Sequence[Sequence[str]], pairs: Pairs) -> tuple[float, float]:
    """Phoneme error rate (distances over the number of right phonemes), and word error rate."""
    right = [phonemes_of(row) for row in pairs.sounds.tolist()]
    distances = [distance(f, r) for f, r in zip(said, right, strict=True)]
    return sum(distances) / sum(map(len, right)), float(np.mean([d > 0 for d in distances]))


# Rules: the sounds that a letter has most often between the letters around it.
#
# A letter has no sound, one or two (the x of box is K S). A code says which: 0 for none, the id of
# one, or SOUNDS * (1 + first) + second.

SOUNDS = len(SYMBOLS)
CODES = SOUNDS * (1 + SOUNDS)
ROUNDS = 4


def codes_at(sounds: np.ndarray) -> np.ndarray:
    """The codes of the last none, one and two of the first j sounds: (3, N, 17)."""
    one = sounds[:, :-1]  # START stands before the sounds
    two = np.pad(one, ((0, 0), (1, 0)))[:, :-1]
    return np.stack([np.zeros_like(one), one, SOUNDS * (1 + two) + one])


def align(pairs: Pairs) -> np.ndarray:
    """The code of each letter, (N, 16), such as explains all words best; -1 for padding.

    It begins with the sounds spread evenly over the letters. Then it counts how often each letter
    has which sounds, takes for each word the likeliest alignment by these counts, and counts again;
    for every fifth word, because these are enough to learn from, and then once for all.
    """
    some = each(5, pairs)
    number = np.where(some.sounds < START, some.sounds, PAD).astype(bool).sum(axis=1)[:, None]
    reached = np.minimum(np.arange(MAX_LENGTH + 1), some.lengths[:, None])
    found = codes_between(some, reached * number // some.lengths[:, None])
    for again in range(ROUNDS):
        counts = np.full((len(LETTERS), CODES), 0.01)
        real = some.letters != PAD
        np.add.at(counts, (some.letters[real], found[real]), 1)
        costs = -np.log(counts / counts.sum(axis=1, keepdims=True))
        some = some if again < ROUNDS - 1 else pairs
        found = codes_between(some, cheapest(some, costs.astype(np.float32)))
    return np.where(pairs.letters != PAD, found, -1)


def codes_between(pairs: Pairs, ends: np.ndarray) -> np.ndarray:
    """The code of each letter, (N, 16), if ends (N, 17) sounds are said up to each letter."""
    taken = np.minimum(np.diff(ends, axis=1), 2)
    return codes_at(pairs.sounds)[taken, np.arange(len(ends))[:, None], ends[:, 1:]]


def cheapest(pairs: Pairs, costs: np.ndarray) -> np.ndarray:
    """How many sounds are said up to each letter, (N, 17), for the least sum of costs (27, CODES).

    A search over all alignments: least[n, j] is the least cost of the first j sounds by the letters
    so far, of none to begin with.
    """
    codes, rows = codes_at(pairs.sounds), np.arange(len(pairs.words))
    least = np.where(np.arange(MAX_LENGTH + 1) == 0, 0.0, np.inf).astype(np.float32)
    least = np.tile(least, (len(rows), 1))
    choices = []
    for letter in pairs.letters.T[:, :, None]:
        ways = [least + costs[letter, codes[0]]]
        for n in (1, 2):
            before = np.pad(least, ((0, 0), (n, 0)), constant_values=np.inf)[:, :-n]
            ways.append(before + costs[letter, codes[n]])
        if not letter.all():
            for n, way in enumerate(ways):  # padding says nothing
                ways[n] = np.where(letter == PAD, np.inf if n else least, way)
        choices.append(np.argmin(ways, axis=0))
        least = np.min(ways, axis=0)
    ends = [(pairs.sounds != PAD).sum(axis=1) - 2]
    for choice in reversed(choices):
        ends.append(np.maximum(ends[-1] - choice[rows, ends[-1]], 0))
    return np.stack(ends[::-1], axis=1)


def windows(letters: np.ndarray, radius: int) -> np.ndarray:
    """One number for the letters at distances -radius to radius of each letter: (N, 16)."""
    padded = np.pad(letters, ((0, 0), (radius, radius)))
    numbers = np.zeros_like(letters)
    for i in range(2 * radius + 1):
        numbers = numbers * len(LETTERS) + padded[:, i : i + MAX_LENGTH]
    return numbers


def say_by_rules(train: Pairs, codes: np.ndarray, test: Pairs, radius: int) -> list[list[str]]:
    """Each letter's most frequent sounds in the widest window, up to the radius, that was seen."""
    said = np.zeros_like(test.letters)
    for r in range(radius + 1):
        used = codes >= 0
        both = windows(train.letters, r)[used] * CODES + codes[used]
        both, counts = np.unique(both, return_counts=True)
        keys, order = both // CODES, np.argsort(counts, kind="stable")
        best = dict(zip(keys[order].tolist(), (both[order] % CODES).tolist(), strict=True))
        keys = windows(test.letters, r)
        found = np.reshape([best.get(key, -1) for key in keys.ravel().tolist()], said.shape)
        said = np.where(found >= 0, found, said)
    said[test.letters == PAD] = 0
    pairs = np.stack([np.maximum(said // SOUNDS - 1, PAD), said % SOUNDS], axis=2)
    return [phonemes_of(row) for row in pairs.reshape(len(said), -1).tolist()]
