"""English words as phonemes, each vowel labelled with its stress, from the CMU dictionary.

The task: given the phonemes of a word without stress digits (D EH M AH K R AE T), say for each
vowel whether it is unstressed (0), carries the primary stress (1) or a secondary one (2).
Shapes: N words, T = 16 phonemes.
"""

from __future__ import annotations

import difflib
import hashlib
import lzma
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

DATA = Path(__file__).parent / "data" / "cmudict_stress.txt.xz"

VOWELS = str.split("AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW")
CONSONANTS = str.split("B CH D DH F G HH JH K L M N NG P R S SH T TH V W Y Z ZH")
PHONEMES = ["<pad>", *VOWELS, *CONSONANTS]  # the index is the id; vowels are 1 to 15
PAD = 0
IGNORE = -100  # target of consonants and padding, the default ignore_index of cross_entropy
MAX_LENGTH = 16

_ID = {phoneme: index for index, phoneme in enumerate(PHONEMES)}


class Words(NamedTuple):
    """N encoded words: ``ids`` and ``targets`` (N, 16) int64, ``lengths`` (N,) int64."""

    words: list[str]
    ids: np.ndarray
    targets: np.ndarray
    lengths: np.ndarray


@cache
def read(path: Path = DATA) -> dict[str, list[str]]:
    """Every word of the file with its phonemes, stress digits included."""
    lines = lzma.decompress(path.read_bytes()).decode("ascii").splitlines()
    return {line.partition(" ")[0]: line.split()[1:] for line in lines}


def in_test(word: str) -> bool:
    """Whether a word is held out. Five letters decide, so word families mostly stay together."""
    digest = hashlib.md5(word[:5].encode(), usedforsecurity=False).hexdigest()
    return int(digest, 16) % 10 == 0


def encode(words: list[str], entries: dict[str, list[str]]) -> Words:
    """Encode words that ``entries`` holds; the stress digits become the targets."""
    ids = np.full((len(words), MAX_LENGTH), PAD, dtype=np.int64)  # (N, T)
    targets = np.full((len(words), MAX_LENGTH), IGNORE, dtype=np.int64)  # (N, T)
    for row, phonemes in enumerate(entries[word] for word in words):
        ids[row, : len(phonemes)] = [_ID[p.rstrip("012")] for p in phonemes]
        targets[row, : len(phonemes)] = [int(p[-1]) if p[-1] in "012" else IGNORE for p in phonemes]
    return Words(words, ids, targets, (ids != PAD).sum(axis=1))


def load(path: Path = DATA) -> tuple[Words, Words]:
    """The train split (91,777 words) and the test split (10,498 words)."""
    entries = read(path)
    train = [word for word in entries if not in_test(word)]
    test = [word for word in entries if in_test(word)]
    return encode(train, entries), encode(test, entries)


def encode_words(words: list[str], path: Path = DATA) -> Words:
    """Look words up in the dictionary and encode them, in the order given."""
    entries, words = read(path), [word.lower() for word in words]
    for word in words:
        if word not in entries:
            close = ", ".join(difflib.get_close_matches(word, entries)) or "none"
            raise ValueError(f"{word!r} is not among the words of 2 or more vowels; close: {close}")
    return encode(words, entries)


def render(ids: np.ndarray, stress: np.ndarray, marks: bool = False) -> str:
    """One word's phonemes with its stress, true or predicted: ``D EH1 M AH0 K R AE2 T``.

    ``ids`` and ``stress`` are (T,); stress counts at vowels only. ``marks=True`` writes
    ``D ˈEH M AH K R ˌAE T``: the mark stands before the vowel, not before its syllable, since
    the dictionary does not say where syllables begin.
    """
    parts = []
    for i, s in zip(ids.tolist(), stress.tolist(), strict=True):
        if 0 < i <= len(VOWELS):
            parts.append(("", "ˈ", "ˌ")[s] + PHONEMES[i] if marks else f"{PHONEMES[i]}{s}")
        elif i != PAD:
            parts.append(PHONEMES[i])
    return " ".join(parts)


def score(predicted: np.ndarray, targets: np.ndarray) -> tuple[float, float]:
    """Share of vowels right, and of words with every vowel right. Both arguments are (N, T)."""
    vowel = targets != IGNORE
    right = predicted == targets
    return float(right[vowel].mean()), float((right | ~vowel).all(axis=1).mean())


def sounds_known(train: Words, test: Words) -> np.ndarray:
    """Whether a held-out word has the same phonemes as a word to learn from, (N,)."""
    known = {row.tobytes() for row in train.ids}
    return np.array([row.tobytes() in known for row in test.ids])


def majority_baseline(train: Words, test: Words) -> tuple[float, float]:
    """Vowel and word accuracy when each vowel always gets its most frequent training stress."""
    counts = np.zeros((len(PHONEMES), 3), dtype=np.int64)
    vowel = train.targets != IGNORE
    np.add.at(counts, (train.ids[vowel], train.targets[vowel]), 1)
    return score(counts.argmax(axis=1)[test.ids], test.targets)
