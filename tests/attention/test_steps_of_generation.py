"""The steps of generation one by one: which beams are kept, which ids are drawn, what is read."""

from __future__ import annotations

import inspect
import itertools
import math

import numpy as np
import pytest
from common import assert_equal, rng_of

import tinyattn as ta
from tinyattn import generation
from tinyattn.errors import DtypeError
from tinyattn.generation import Beams, Processed, beam_search, chances, generate

# Beams


@pytest.mark.parametrize("given", [1, 3, 6])
@pytest.mark.parametrize("alpha", [-1.5, 0.0, 0.7])
def test_beams_begin_with_the_first_and_lengths_count_without_the_prompt(given, alpha):
    prompt = np.arange(given)
    beams = Beams(prompt, 6, 3, alpha, 2)
    assert beams.log_prob.tolist() == [0.0, -math.inf, -math.inf]
    assert (beams.given, beams.max_len) == (given, 6)
    for length in range(given, 9):
        assert math.isclose(beams.divisor(length), ((5 + length - given) / 6) ** alpha)
    if given == 6:
        assert beams.best == 1
        ((ids, value),) = beams.ended
        assert ids is prompt
        assert value == 0.0
    else:
        assert (beams.best, beams.ended) == (2, [])


@pytest.mark.parametrize("alpha", [-2.0, -0.5, 0.0, 0.5, 2.0])
def test_beginnings_may_improve_while_some_length_gives_a_higher_value(alpha):
    for given, t, log in itertools.product((2, 4), (2, 3, 4, 5, 6), (-0.1, -1.0, -5.0)):
        beams = Beams(np.arange(given), 8, 2, alpha, 2)
        beams.log_prob[:] = log, log - 0.1
        lengths = range(max(t, given) + 1, 9)
        highest = max(log / ((5 + n - given) / 6) ** alpha for n in lengths)
        assert beams.may_improve(t)
        for last, is_less in ((highest - 1e-9, True), (highest + 1e-9, False)):
            beams.ended = [(None, 0.0)]
            assert beams.may_improve(t)  # there is room for another
            beams.ended = [(None, 0.0), (None, last)]
            assert beams.may_improve(t) == is_less
    beams.log_prob[:] = -math.inf
    beams.ended = []
    assert not beams.may_improve(t)


@pytest.mark.parametrize("best", [1, 2, 4])
@pytest.mark.parametrize("alpha", [-1.0, 0.0, 1.0])
def test_the_best_that_end_are_kept_in_their_order(best, alpha):
    rng = rng_of(best)
    beams, everything = Beams(np.arange(2), 8, 3, alpha, best), []
    for t in (3, 4, 5):
        ids = rng.randint(0, 9, (3, t))
        candidates = -rng.randint(1, 5, (3, 4)).astype(float)
        candidates[rng.rand(3, 4) < 0.4] = -np.inf
        beams.keep_best(ids, candidates)
        divisor = ((5 + t + 1 - 2) / 6) ** alpha
        for (beam, last), x in np.ndenumerate(candidates):
            if x > -np.inf:
                everything.append(([*ids[beam], last], x / divisor))
        everything = sorted(everything, key=lambda pair: -pair[1])[:best]
        assert [(found.tolist(), x) for found, x in beams.ended] == everything
        assert all(isinstance(x, float) for _, x in beams.ended)


def test_beams_go_on_with_the_likeliest_and_of_equal_ones_with_the_first():
    beams = Beams(np.arange(1), 8, 3, 0.0, 1)
    candidates = np.array([[-3.0, -1.0, -2.0, -9.0], [-2.0, -np.inf, -7.0, -1.5]])
    continued, chosen = beams.go_on(candidates)
    assert continued.tolist() == [0, 1, 0]
    assert chosen.tolist() == [1, 3, 2]
    assert beams.log_prob.tolist() == [-1.0, -1.5, -2.0]


# Which ids may be drawn


@pytest.mark.parametrize("top_k", [None, 1, 2, 4, 5, 6, 9])
@pytest.mark.parametrize("top_p", [None, 1e-9, 0.35, 0.6, 0.999, 1.0])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_of_each_sample_the_likeliest_few_are_drawn_by_their_share(temperature, top_p, top_k):
    """First come the k likeliest, and of these those with the share."""
    logs = np.log(rng_of(3).dirichlet(np.ones(6) * 0.7, 5))
    for row, found in zip(logs, chances(logs, temperature, top_k, top_p), strict=True):
        weights = np.exp(row / temperature)
        kept = sorted(range(6), key=lambda i: -weights[i])[:top_k]
        if top_p is not None:
            total = weights[kept].sum()
            count = next(n for n in range(1, len(kept) + 1)
                         if weights[kept[:n]].sum() / total >= min(top_p, 1 - 1e-12))  # fmt: skip
            kept = kept[:count]
        right = np.zeros(6)
        right[kept] = weights[kept] / weights[kept].sum()
        np.testing.assert_allclose(found, right, rtol=1e-9, atol=0)


@pytest.mark.parametrize("places", [[0], [2, 0], [3], [], [0, 1, 2, 3]])
def test_all_other_weights_become_0(places):
    weights = np.array([1.0, 2.0, 3.0, 4.0])
    generation.keep(weights, np.array(places, int))
    assert weights.tolist() == [x if i in places else 0.0 for i, x in enumerate((1, 2, 3, 4))]


def test_without_a_temperature_the_likeliest_is_taken_and_of_equal_ones_the_first():
    logs = np.log([[0.1, 0.4, 0.4, 0.1], [0.7, 0.1, 0.1, 0.1], [0.1, 0.1, 0.1, 0.7]])
    for temperature in (0, 0.0):
        assert generation.chosen_ids(logs, temperature, None, None).tolist() == [1, 0, 3]
    for seed in range(3):  # the others have no chance
        ta.manual_seed(seed)
        assert generation.chosen_ids(logs[1:], 1.0, 1, None).tolist() == [0, 3]
        assert generation.chosen_ids(logs[1:], 1.0, None, 0.5).tolist() == [0, 3]


# What is read


@pytest.mark.parametrize("read", list(itertools.product([False, True], repeat=3)), ids=str)
def test_scores_of_samples_that_are_not_read_may_be_anything(read):
    scores = np.array([[np.nan, 1.0, 2.0], [np.inf, 0.0, 0.0], [-np.inf, -np.inf, -np.inf]])
    good = np.array([[0.0, 1.0, -np.inf], [3.0, 0.0, 0.5], [-1.0, -np.inf, -np.inf]])
    is_read = np.array(read)
    given = np.where(is_read[:, None], good, scores)
    ids = np.arange(6).reshape(3, 2)
    found = generation.log_probabilities(lambda ids: ta.tensor(given), ids, is_read, [])
    assert found.dtype == np.float64
    right = good - np.log(np.exp(good).sum(1, keepdims=True))
    right[~is_read] = -math.log(3)
    np.testing.assert_allclose(found, right, rtol=1e-12)
    for wrong in np.flatnonzero(is_read):
        given = np.where((is_read & (np.arange(3) != wrong))[:, None], good, scores)
        with pytest.raises(ValueError, match=r"^a score for the next id is NaN or inf, or those"):
            generation.log_probabilities(
                lambda ids, given=given: ta.tensor(given), ids, is_read, []
            )


def test_a_model_may_write_to_the_ids_that_it_gets():
    ids = np.arange(6).reshape(3, 2)

    def scores(given):
        assert_equal(given.numpy(), np.arange(6).reshape(3, 2))
        given._data[...] = 7
        return ta.zeros(3, 4)

    generation.log_probabilities(scores, ids, np.ones(3, bool), [3])
    assert_equal(ids, np.arange(6).reshape(3, 2))


def test_a_column_is_added_where_there_is_none():
    ids = np.array([[1, 2], [3, 4]])
    assert generation.with_column(ids, 0) is generation.with_column(ids, 1) is ids
    assert generation.with_column(ids, 2).tolist() == [[1, 2, 2], [3, 4, 4]]


def test_samples_are_padded_to_the_longest():
    for order in itertools.permutations(([1], [2, 3, 4], [5, 6])):
        found = generation.padded([np.array(x) for x in order], -3)
        assert found.dtype == np.int64
        assert found.tolist() == [x + [-3] * (3 - len(x)) for x in order]


STOPS = [
    (None, []), (3, [3]), (0, [0]), ([], []), ([2, 0], [2, 0]), ((1, 5), [1, 5]), ({4}, [4]),
    (frozenset([2]), [2]), (np.int8(3), [3]), (np.array([[1, 2]], np.uint8), [1, 2]), (set(), []),
    (range(2), [0, 1]), ({7: "a"}.keys(), [7]),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(STOPS)))
def test_stops_are_one_id_or_several_of_any_kind(case):
    given, right = STOPS[case]
    assert generation.checked_stops(given) == right
    if given is not None and not isinstance(given, (set, frozenset)) and case < 6:
        assert generation.checked_stops(ta.tensor(given, dtype=ta.int64)) == right
    for wrong in ([0.5], {1.5}, 2.0, [True], "a"):
        with pytest.raises((DtypeError, TypeError, ValueError)):
            generation.checked_stops(wrong)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, ">i4", "<u8"])
@pytest.mark.parametrize("pad", [0, -1, 9])
def test_prompts_are_as_long_as_their_ids_before_the_padding(pad, dtype):
    lists = [[1, 2, 3], [4, pad, pad], [5, 6, pad]]
    if pad < 0 and np.dtype(dtype).kind == "u":
        lists = [[1, 2, 3]]
    ids, given = generation.checked_prompt(np.array(lists, np.int64).astype(dtype), 3, pad)
    assert ids.dtype == np.int64
    assert ids.dtype.isnative
    assert ids.tolist() == lists
    assert given.tolist() == [3, 1, 2][: len(lists)]
    for wrong in ([pad, 1, 2], [1, pad, 2], [pad, pad, pad]):
        for place in range(3):
            rows = [[1, 2, 3], [4, 5, 6]]
            rows.insert(place, wrong)
            with pytest.raises(ValueError, match=rf"^each prompt has one id .* and pad={pad} only"):
                generation.checked_prompt(rows, 3, pad)


# Processors


def test_only_what_the_model_has_is_passed_on_and_scores_go_through_all():
    calls = []

    class Model:
        def __call__(self, ids):
            return ta.tensor([[1.0, 2.0]] * len(ids))

        def select(self, rows):
            calls.append(rows)

    plus = lambda ids, scores: scores + ids.sum()  # noqa: E731
    double = lambda ids, scores: scores * 2  # noqa: E731
    processed = Processed(Model(), plus, double)
    assert processed([[3], [4]]).tolist() == [[16.0, 18.0]] * 2
    assert Processed(Model(), double, plus)([[3], [4]]).tolist() == [[9.0, 11.0]] * 2
    assert Processed(Model())([[3]]).tolist() == [[1.0, 2.0]]
    assert not hasattr(processed, "start")
    processed.select([1, 0])
    assert calls == [[1, 0]]


@pytest.mark.parametrize("penalty", [0.5, 1.0, 3.0])
def test_a_repetition_costs_in_each_sample_for_its_own_ids(penalty):
    scores = np.array([[2.0, -4.0, 0.0, 6.0], [-1.0, 3.0, 5.0, -2.0]])
    before = scores.copy()
    ids = np.array([[1, 3, 1], [0, 2, 2]])
    found = generation.repetition_penalty(penalty)(ids, scores)
    right = [[2.0, -4.0 * penalty, 0.0, 6.0 / penalty], [-penalty, 3.0, 5.0 / penalty, -2.0]]
    assert_equal(found, np.array(right))
    assert_equal(scores, before)


# Calls


@pytest.mark.parametrize("options", [{}, {"num_beams": 2}, {"temperature": 1e-3}], ids=str)
def test_a_model_starts_once_and_reads_from_the_shortest_prompt_to_the_last_end(options):
    class Model:
        def __init__(self):
            self.starts, self.read = 0, []

        def start(self):
            self.starts += 1

        def __call__(self, ids):
            self.read.append(ids.shape[1])
            is_end = ids.shape[1] >= 4
            return ta.tensor([[-90.0, 0.0, 90.0] if is_end else [-90.0, 90.0, 0.0]] * len(ids))

    model = Model()
    prompt = [[1, 1, -1], [1, -1, -1], [1, 1, 1]]
    found = generate(model, prompt, 9, stop=2, pad=-1, **options)
    assert model.starts == 1
    assert model.read == [1, 2, 3, 4]
    assert found.tolist() == [[1, 1, 1, 1, 2]] * 3


def test_defaults_of_generation():
    def of(function):
        parameters = inspect.signature(function).parameters.values()
        return {x.name: x.default for x in parameters if x.default is not x.empty}

    common = {"stop": None, "pad": 0, "length_penalty": 0.0}
    drawn = {"temperature": 0.0, "top_k": None, "top_p": None}
    assert of(generate) == common | drawn | {"num_beams": 1}
    assert of(beam_search) == common | {"num_beams": 4, "best": 1}
