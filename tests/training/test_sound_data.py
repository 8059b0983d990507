"""The data of examples/spell_to_sound.py: error rates, and letters aligned with their sounds."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def data():
    sys.path.insert(0, str(EXAMPLES))
    try:
        import sound_data
    finally:
        sys.path.remove(str(EXAMPLES))
    return sound_data


@pytest.mark.parametrize(
    ("a", "b", "steps"),
    [("", "", 0), ("", "ab", 2), ("abc", "abc", 0), ("abc", "axc", 1), ("kitten", "sitting", 3),
     ("ab", "ba", 2), ("abcd", "bcd", 1)],
)  # fmt: skip
def test_distance_is_the_fewest_changes(data, a, b, steps):
    assert data.distance(a, b) == data.distance(b, a) == steps


@pytest.mark.parametrize("word", ["a", "z", "abcdefghijklmnop"])
def test_a_word_has_1_to_16_letters(data, word):
    (ids,) = data.encode_letters([word]).tolist()
    assert "".join(data.LETTERS[i] for i in ids if i) == word
    assert ids[len(word) :] == [0] * (16 - len(word))


@pytest.mark.parametrize("word", ["", "abcdefghijklmnopq", "A", "it's", "é", "-"])
def test_a_word_of_other_signs_or_another_length_is_refused(data, word):
    with pytest.raises(ValueError, match="is not a word of 1 to 16 letters a to z"):
        data.encode_letters(["fine", word])


def test_error_rates_count_phonemes_and_words(data):
    pairs = data.encode(["nation", "castle"])  # N EY SH AH N, K AE S AH L
    right = [data.phonemes_of(row) for row in pairs.sounds.tolist()]
    assert right == [["N", "EY", "SH", "AH", "N"], ["K", "AE", "S", "AH", "L"]]
    assert data.error_rates(right, pairs) == (0.0, 0.0)
    assert data.error_rates([right[0], ["K", "AE", "S", "T", "AH", "L"]], pairs) == (0.1, 0.5)


def test_aligned_letters_have_the_sounds_of_their_word(data):
    train, _ = data.load()
    some = data.Pairs(*(column[::40] for column in train))
    codes = data.align(some)
    assert ((codes >= 0) == (some.letters != 0)).all()
    whole = 0
    for row, sounds, word in zip(codes, some.sounds.tolist(), some.words, strict=True):
        said = np.stack([row // data.SOUNDS - 1, row % data.SOUNDS], 1)[: len(word)]
        said = [data.SYMBOLS[i] for i in said.ravel() if i > 0]
        whole += said == data.phonemes_of(sounds)
    # All but abbreviations, whose letters have more than two sounds each.
    assert whole / len(codes) > 0.995
    first = codes[[word.startswith("s") for word in some.words], 0]
    names = [data.SYMBOLS[i % data.SOUNDS] for i in first]
    assert names.count("S") / len(names) > 0.7


def test_rules_take_the_widest_window_that_was_seen(data):
    train = data.encode(["nation", "castle", "beautiful"])
    codes = data.align(train)
    said = data.say_by_rules(train, codes, train, radius=3)
    assert said == [data.phonemes_of(row) for row in train.sounds.tolist()]
    narrow = data.say_by_rules(train, codes, train, radius=0)
    assert narrow != said
