"""What generation says of wrong arguments, where its limits lie, and what a longer search finds."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tinyattn as ta
from tinyattn.errors import DtypeError, ShapeError
from tinyattn.generation import (
    Processed,
    beam_search,
    chances,
    check_drawing,
    generate,
    min_length,
    repetition_penalty,
)

V = 4


def uniform(ids):
    return ta.zeros(len(ids), V)


WRONG = [
    ({"max_len": 0}, ShapeError, "^max_len must be an integer >= 1, got 0"),
    (
        {"max_len": 1, "prompt": [[1, 2]]},
        ShapeError,
        r"^prompt has shape .*max_len=1, got \(1, 2\)",
    ),
    ({"prompt": [[1], [2, 3]]}, ShapeError, "^prompt: not a rectangular array"),
    ({"prompt": [[1.5]]}, DtypeError, "^prompt holds ids, integers, got float"),
    ({"prompt": [[-2]]}, ValueError, r"^prompt holds ids from 0 to 2\^63 - 1, then pad=0, got -2"),
    ({"prompt": [[0]]}, ValueError, "^each prompt has one id at least, and pad=0 only after"),
    ({"prompt": [[1]], "pad": 1}, ValueError, "^each prompt has one id at least, and pad=1"),
    ({"pad": 1.5}, DtypeError, "^pad must be an integer, got 1.5"),
    ({"pad": 2**63}, ValueError, "^prompt holds ids .*, then pad=9223372036854775808, got 92233"),
    ({"stop": -1}, ValueError, "^stop is an id of the vocabulary, so it is >= 0, got -1"),
    ({"stop": [V]}, ValueError, "^stop is an id from 0 to 3, got 4"),
    ({"stop": 1.0}, DtypeError, "^stop is an integer id or several of them, got 1.0 of float"),
    ({"stop": [[1], [2, 3]]}, ShapeError, "^stop: not a rectangular array"),
    ({"temperature": -1}, ValueError, "^temperature must be a number >= 0, got -1"),
    ({"temperature": 1, "top_k": 0}, ShapeError, "^top_k must be an integer >= 1, got 0"),
    ({"temperature": 1, "top_p": 0}, ValueError, "^top_p is a probability above 0, got 0"),
    ({"temperature": 1, "top_p": 1.5}, ValueError, "^top_p lies between 0 and 1, got 1.5"),
    ({"top_p": 0.5}, ValueError, "^top_k and top_p are for drawing: give a temperature"),
    ({"top_k": 1}, ValueError, "^top_k and top_p are for drawing: give a temperature"),
    ({"num_beams": 0}, ShapeError, "^num_beams must be an integer >= 1, got 0"),
    ({"num_beams": 2, "temperature": 1}, ValueError, "^beam search draws nothing: give num_beams"),
    (
        {"length_penalty": 10},
        ValueError,
        r"^length_penalty must be a number in \[-10, 10\), got 10",
    ),
    ({"length_penalty": -11}, ValueError, r"^length_penalty must be a number in \[-10, 10\)"),
    ({"next_scores": 3}, TypeError, "^next_scores is a function of ids, got int 3"),
]


@pytest.mark.parametrize(("wrong", "error", "said"), WRONG)
def test_a_wrong_argument_is_named_first(wrong, error, said):
    arguments = {"next_scores": uniform, "prompt": [[1]], "max_len": 4} | wrong
    with pytest.raises(error, match=said):
        generate(**arguments)
    if not {"temperature", "top_k", "top_p"} & set(wrong):
        with pytest.raises(error, match=said):
            beam_search(**arguments)


def test_the_number_of_results_is_named():
    with pytest.raises(ShapeError, match=r"^best must be an integer >= 1, got 0"):
        beam_search(uniform, [[1]], 3, best=0)
    with pytest.raises(ValueError, match=r"^best is at most num_beams, 2, got 3"):
        beam_search(uniform, [[1]], 3, num_beams=2, best=3)
    assert len(beam_search(uniform, [[1]], 3, num_beams=2, best=2)[0]) == 2


def test_the_limits_of_options_are_taken():
    generate(uniform, [[1]], 3, num_beams=2, length_penalty=-10)
    generate(uniform, [[1]], 3, num_beams=2, length_penalty=9.9)
    generate(uniform, [[1]], 3, temperature=1, top_k=1, top_p=1.0)
    generate(uniform, [[1]], 3, stop=V - 1)
    generate(uniform, [[1]], 1, pad=-(2**63 - 1))
    check_drawing(0, None, None)


def test_wrong_arguments_of_processors_are_named():
    with pytest.raises(ValueError, match=r"^penalty must be a number >= 1e-09, got 0"):
        repetition_penalty(0)
    with pytest.raises(ShapeError, match=r"^length must be an integer >= 0, got -1"):
        min_length(-1, 1)
    with pytest.raises(ValueError, match=r"^stop is an id of the vocabulary"):
        min_length(1, -1)
    processed = Processed(lambda ids: uniform([0]), min_length(0, 1))
    with pytest.raises(ShapeError, match=r"^ids: not a rectangular array"):
        processed([[1], [2, 3]])


def test_a_small_score_is_divided_and_one_below_zero_multiplied():
    scores = np.array([[0.5, -0.5, 1.5, 0.25, -2.0]])
    found = repetition_penalty(4.0)(np.array([[0, 1, 2, 3, 4]]), scores)
    assert found.tolist() == [[0.125, -2.0, 0.375, 0.0625, -8.0]]


class MaskedPrompts:
    """A model whose prompts have padding on the left, as those of a CausalLM with a mask."""

    def __init__(self, mask):
        self.prompt_mask = None if mask is None else np.array(mask, bool)

    def __call__(self, ids):
        return ta.zeros(len(ids), 9)


@pytest.mark.parametrize("make", [np.array, ta.tensor])
@pytest.mark.parametrize(
    ("mask", "right"),
    [
        (None, [[1, 2, 3, 4], [5, 6, 7, 8]]),
        ([[1, 1, 1], [1, 1, 1]], [[1, 2, 3, 4], [5, 6, 7, 8]]),
        ([[0, 1, 1], [0, 0, 1]], [[2, 2, 3, 4], [7, 7, 7, 8]]),
        ([[0, 0, 1], [1, 1, 1]], [[3, 3, 3, 4], [5, 6, 7, 8]]),
        ([[1, 1, 1], [0, 1, 1]], [[1, 2, 3, 4], [6, 6, 7, 8]]),
    ],
)
def test_processors_read_an_id_of_the_prompt_in_the_place_of_its_padding(mask, right, make):
    """The ids of the caller stay as they are, whether there is padding or not."""
    read, ids = [], make([[1, 2, 3, 4], [5, 6, 7, 8]])

    def note(ids, scores):
        read.append(ids.tolist())
        return scores

    processed = Processed(MaskedPrompts(mask), note, repetition_penalty(2.0), note)
    processed(ids)
    assert read == [right, right]
    assert ids.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]


@pytest.mark.parametrize("length", [0, 1, 2, 3])
def test_a_length_is_reached_with_the_prompt(length):
    scores = np.zeros((1, 3))
    found = min_length(length, [0, 2])(np.array([[1, 1]]), scores)
    excluded = [-math.inf, 0.0, -math.inf] if length == 3 else [0.0, 0.0, 0.0]
    assert found.tolist() == [excluded]
    assert scores.tolist() == [[0.0, 0.0, 0.0]]


def test_scores_of_another_shape_say_what_came():
    with pytest.raises(
        ShapeError, match=r"^next_scores takes .* for ids \(1, 1\) it gave \(2, 4\)"
    ):
        generate(lambda ids: ta.zeros(2, V), [[1]], 4)
    with pytest.raises(ShapeError, match=r"V >= 1: for ids \(1, 1\) it gave \(1, 0\)"):
        generate(lambda ids: ta.zeros(1, 0), [[1]], 4)
    with pytest.raises(ShapeError, match=r"it gave \[\[0\]\]"):
        generate(lambda ids: [[0]], [[1]], 4)


@pytest.mark.parametrize("prompt", [[1], [1, 1, 1]])
def test_a_search_that_prefers_short_texts_goes_on_while_one_more_id_is_better(prompt):
    """Its best beginning is worth more with one more id, and less with two."""
    first = np.log([0.0001, 0.5488, 0.0511, 0.4])
    second = np.log([0.001, 0.001, 0.001, 0.997])

    def scores(ids):
        is_first = ids.shape[1] == len(prompt)
        return ta.tensor(np.tile(first if is_first else second, (len(ids), 1)))

    found = beam_search(scores, [prompt], 9, stop=3, num_beams=2, length_penalty=-2.0)
    ((ids, value),) = found[0]
    assert ids.tolist() == [*prompt, 1, 3]
    exact = (math.log(0.5488) + math.log(0.997)) / (7 / 6) ** -2.0
    assert math.isclose(value, exact, rel_tol=1e-3)
    assert generate(scores, [prompt], 9, 3, num_beams=2, length_penalty=-2.0).tolist() == [
        ids.tolist()
    ]


@pytest.mark.parametrize("top_p", [0.05, 0.3, 0.6, 0.95])
def test_the_fewest_ids_that_have_a_share_are_kept(top_p):
    numbers = np.array([0.02, 0.3, 0.1, 0.25, 0.03, 0.3])
    found = chances(np.log(numbers)[None], 1.0, None, top_p)[0]
    order = sorted(range(6), key=lambda i: -numbers[i])
    kept = next(order[:n] for n in range(1, 7) if numbers[order[:n]].sum() >= top_p - 1e-12)
    expected = np.zeros(6)
    expected[kept] = numbers[kept] / numbers[kept].sum()
    assert np.allclose(found, expected, atol=1e-12)


def test_a_temperature_changes_the_chances_of_the_likeliest_few():
    logs = np.log([[0.1, 0.2, 0.3, 0.4]])
    found = chances(logs, 0.5, 2, None)
    assert np.allclose(found, [[0, 0, 9 / 25, 16 / 25]])
    assert np.allclose(chances(logs, 1.0, 4, None), [[0.1, 0.2, 0.3, 0.4]])
    assert np.allclose(chances(logs, 1.0, 9, 1.0), [[0.1, 0.2, 0.3, 0.4]])


def test_defaults_are_greedy_with_a_pad_of_zero():
    def scores(ids):
        return ta.tensor([[0.0, 3.0, 1.0]] * len(ids))

    assert generate(scores, [[2], [1]], 3).tolist() == [[2, 1, 1], [1, 1, 1]]
    assert generate(scores, [[2, 2], [1, 0]], 3, stop=1).tolist() == [[2, 2, 1], [1, 1, 0]]
    assert generate(scores, np.zeros((0, 1), np.int64), 3).shape == (0, 3)
    ((ids, value),) = beam_search(scores, [[2]], 3)[0]
    assert ids.tolist() == [2, 1, 1]
    assert math.isclose(value, 2 * (3 - math.log(math.exp(3) + math.e + 1)), rel_tol=1e-6)


def test_a_stop_within_a_longer_prompt_ends_nothing():
    """Nor does the id that a sample would choose there, because it chooses none."""

    def scores(ids):  # id 0 is the likeliest after a prompt of two
        return ta.tensor([[9.0, 1.0, 0.0] if ids.shape[1] < 3 else [0.0, 9.0, 1.0]] * len(ids))

    for options in ({}, {"num_beams": 2}, {"temperature": 1e-3}):
        found = generate(scores, [[1, -1, -1], [2, 2, 2]], 5, stop=0, pad=-1, **options)
        assert found.tolist() == [[1, 0, -1, -1, -1], [2, 2, 2, 1, 1]]


@pytest.mark.parametrize("temperature", [1e-300, 1e-9, 1e-3, 0.1, 10.0, 1e300])
def test_each_sample_has_chances_whatever_the_temperature(temperature):
    """A sample that is unsure of all ids stands beside one that is sure of one."""
    logs = np.log([[0.001, 0.998, 0.001], [0.5, 0.25, 0.25], [0.25, 0.35, 0.4]])
    found = chances(logs, temperature, None, None)
    for row, numbers in zip(found, logs, strict=True):
        alone = chances(numbers[None], temperature, None, None)[0]
        np.testing.assert_array_equal(row, alone)
        assert math.isclose(row.sum(), 1.0)
    assert found.argmax(axis=1).tolist() == [1, 0, 2] or temperature > 1e3


def test_without_samples_the_result_holds_integers():
    for options in ({}, {"temperature": 1.0}, {"num_beams": 2}):
        assert generate(uniform, np.zeros((0, 2), np.int8), 3, **options).dtype == np.int64


@pytest.mark.parametrize("stop", [[-1, 2], [2, -1], [3, -2, -1], -5])
def test_the_smallest_of_the_stops_is_named(stop):
    with pytest.raises(ValueError, match=rf"so it is >= 0, got {np.min(stop)}$"):
        generate(uniform, [[1]], 3, stop=stop)
