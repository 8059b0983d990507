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


ENTRIES = {"box": "B AA1 K S", "so": "S OW1", "knew": "N UW1", "aye": "AY1", "ox": "AA1 K S"}
ENTRIES = {word: phonemes.split() for word, phonemes in ENTRIES.items()}


@pytest.fixture
def pairs_of(data, monkeypatch):
    monkeypatch.setattr(data.stress_data, "read", lambda: ENTRIES)
    return data.encode


def test_words_are_divided_as_for_stress(data, pairs_of, monkeypatch):
    monkeypatch.setattr(data.stress_data, "in_test", lambda word: word in ("so", "aye"))
    assert [pairs.words for pairs in data.load()] == [["box", "knew", "ox"], ["so", "aye"]]


def test_a_word_is_encoded_with_its_sounds_between_start_and_stop(data, pairs_of):
    pairs = pairs_of(["knew", "so", "box"])
    assert pairs.letters.shape == (3, 16)
    assert pairs.lengths.tolist() == [4, 2, 3]
    ids = [data.PHONEMES.index(x) for x in ("B", "AA", "K", "S")]
    assert pairs.sounds[2].tolist() == [data.START, *ids, data.STOP, *[0] * 12]
    second = data.each(2, pairs)
    assert second.words == ["knew", "box"]
    for found, whole in zip(second[1:], pairs[1:], strict=True):
        np.testing.assert_array_equal(found, whole[::2])


def test_a_code_is_that_of_the_last_sounds(data, pairs_of):
    none, one, two = data.codes_at(pairs_of(["so"]).sounds)
    s, ow = (data.PHONEMES.index(x) for x in ("S", "OW"))
    assert not none.any()
    assert one.shape == two.shape == (1, 17)
    assert one[0, :4].tolist() == [data.START, s, ow, data.STOP]
    before = [0, data.START, s, ow]
    assert two[0, :4].tolist() == [
        data.SOUNDS * (1 + x) + y for x, y in zip(before, one[0, :4].tolist(), strict=True)
    ]


def test_a_code_lies_between_two_ends(data, pairs_of):
    """More than two sounds of a letter are its last two."""
    pairs = pairs_of(["box", "so"])
    ends = np.array([[0, 1, 1, 4, *[4] * 13], [0, 0, 2, *[2] * 14]])
    b, k, s, ow = (data.PHONEMES.index(x) for x in ("B", "K", "S", "OW"))
    both = [data.SOUNDS * (1 + x) + y for x, y in ((k, s), (s, ow))]
    right = [[b, 0, both[0], *[0] * 13], [0, both[1], *[0] * 14]]
    assert data.codes_between(pairs, ends).tolist() == right


def test_the_cheapest_alignment_is_the_best_of_all(data, pairs_of):
    pairs = pairs_of([*ENTRIES])
    rng = np.random.default_rng(0)
    costs = rng.uniform(size=(len(data.LETTERS), data.CODES)).astype(np.float32)
    found = data.cheapest(pairs, costs)
    assert found.shape == (5, 17)
    for row, (word, sounds) in enumerate(ENTRIES.items()):
        one = data.Pairs(*(column[row : row + 1] for column in pairs))
        sums = {}
        for taken in np.ndindex(*[3] * len(word)):
            if sum(taken) == len(sounds):
                ends = np.pad(np.cumsum([0, *taken]), (0, 16 - len(word)), "edge")
                codes = data.codes_between(one, ends[None])[0, : len(word)]
                sums[tuple(ends)] = costs[one.letters[0, : len(word)], codes].sum()
        assert tuple(found[row]) == min(sums, key=sums.get)


def test_the_alignment_begins_evenly_and_counts_again(data, pairs_of, monkeypatch):
    """Every fifth word three times, then all."""
    pairs = pairs_of(["box", "so", "so", "so", "so", "ox"])
    b, a, k, s, ow = (data.PHONEMES.index(x) for x in ("B", "AA", "K", "S", "OW"))
    both, asked = data.SOUNDS * (1 + k) + s, []
    unusual = np.array([[0, 1, 1, 4, *[4] * 13], [0, 2, 3, *[3] * 14]])

    def cheapest(some, costs):
        asked.append((some.words, costs))
        if len(some.words) == 2:
            return unusual
        return np.array([[0, 1, 2, 4, *[4] * 13], *[[0, 1, *[2] * 15]] * 4, [0, 1, *[3] * 15]])

    monkeypatch.setattr(data, "cheapest", cheapest)
    found = data.align(pairs)
    assert [words for words, _ in asked] == [["box", "ox"]] * 3 + [pairs.words]

    def right(letters_and_codes):
        counts = np.full((27, data.CODES), 0.01)
        for letter, code in letters_and_codes:
            counts[data.LETTERS.index(letter), code] += 1
        return -np.log(counts / counts.sum(1, keepdims=True))

    even = [("b", b), ("o", a), ("x", both), ("o", a), ("x", both)]
    odd = [("b", b), ("o", 0), ("x", both), ("o", data.SOUNDS * (1 + a) + k), ("x", s)]
    assert asked[0][1].dtype == np.float32
    np.testing.assert_allclose(asked[0][1], right(even), rtol=1e-5)
    for _, costs in asked[1:]:
        np.testing.assert_allclose(costs, right(odd), rtol=1e-5)
    expected = np.full((6, 16), -1)
    expected[0, :3], expected[1:5, :2], expected[5, :2] = [b, a, both], [s, ow], [a, both]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("radius", [0, 1, 3])
def test_a_window_is_one_number_for_the_letters_around(data, radius):
    letters = np.random.default_rng(0).integers(0, 27, (2, 16))
    padded = np.pad(letters, ((0, 0), (radius, radius)))
    found = data.windows(letters, radius)
    for row in range(2):
        for place in range(16):
            number = 0
            for letter in padded[row, place : place + 2 * radius + 1].tolist():
                number = 27 * number + letter
            assert found[row, place] == number


def test_rules_say_what_is_most_frequent_in_the_widest_window(data):
    """A letter that was never seen is silent, and padding too."""
    learned = ["ab", "ab", "ab", "cb", "cb", "cb", "cb", "b"]
    letters = data.encode_letters(learned)
    s, k = (data.PHONEMES.index(x) for x in ("S", "K"))
    both = data.SOUNDS * (1 + k) + s
    codes = np.full((8, 16), -1)
    codes[:3, :2] = [[1, s], [1, s], [1, both]]
    codes[3:7, :2] = [[2, k], [2, k], [3, k], [2, k]]
    codes[7, 0] = both
    train = data.Pairs(learned, letters, None, None)
    words = ["ab", "cb", "b", "db", "cc"]
    test = data.Pairs(words, data.encode_letters(words), None, None)
    names = data.PHONEMES
    # After a b is S most often, after c it is K; alone it is both, and of all b most are K.
    assert data.say_by_rules(train, codes, test, 1) == [
        [names[1], "S"], [names[2], "K"], ["K", "S"], ["K"], [names[2]] * 2,
    ]  # fmt: skip
    assert data.say_by_rules(train, codes, test, 0) == [
        [names[1], "K"], [names[2], "K"], ["K"], ["K"], [names[2]] * 2,
    ]  # fmt: skip
