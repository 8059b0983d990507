"""Beam search against plain searches on lists, one sample after the other."""

from __future__ import annotations

import math

import numpy as np
import pytest
from common import rng_of
from test_generation import PAD, PROMPT, SRC, SRC_MASK, START, STOP, V, log_chances, model_of

import tinyattn as ta
from tinyattn.generation import beam_search, generate


def penalty(n, alpha):
    return ((5 + n) / 6) ** alpha


def search(logs, prompt, max_len, stops, width, alpha):
    """The best of `all_ended`."""
    ended = all_ended(logs, prompt, max_len, stops, width, alpha)
    return max(ended, default=(0.0, prompt), key=lambda end: end[0])


def all_ended(logs, prompt, max_len, stops, width, alpha):
    """Every continuation that ends is kept in a list; the others fill the beam. To the very end.

    logs: a function of a tuple of ids that gives log p of each next id. -> (value, ids) of each
    """
    live, ended = [(0.0, prompt)], []
    for length in range(len(prompt) + 1, max_len + 1):
        grown = [(total + log, (*ids, i)) for total, ids in live for i, log in enumerate(logs(ids))]
        done = {ids for _, ids in grown if ids[-1] in stops or length == max_len}
        divide_by = penalty(length - len(prompt), alpha)
        ended += [(total / divide_by, ids) for total, ids in grown if ids in done]
        live = [beam for beam in grown if beam[1] not in done]
        live = sorted(live, key=lambda beam: -beam[0])[:width]
    return ended


def list_of_the_best_only(logs, prompt, max_len, stops, width, alpha):
    """As in many libraries: what ends is kept if it is one of the `width` best of its step."""
    live, values = [(0.0, prompt)], []
    for length in range(len(prompt) + 1, max_len + 1):
        grown = [(total + log, (*ids, i)) for total, ids in live for i, log in enumerate(logs(ids))]
        grown.sort(key=lambda beam: -beam[0])
        divide_by = penalty(length - len(prompt), alpha)
        values += [total / divide_by for total, ids in grown[:width] if ids[-1] in stops]
        live = [beam for beam in grown if beam[1][-1] not in stops][:width]
    values += [total / penalty(max_len - len(prompt), alpha) for total, _ in live]
    return max(values, default=0.0)


def beams_with_ended_ones(logs, prompt, max_len, stops, width, alpha):
    """Ended beams keep their place in the beam, and are kept in a list as well."""
    beams, values = [(0.0, prompt, False)], []

    def value(beam):
        return beam[0] / penalty(len(beam[1]) - len(prompt), alpha)

    for _ in range(len(prompt), max_len):
        grown = []
        for total, ids, is_done in beams:
            if is_done:
                grown.append((total, ids, True))
                continue
            grown += [(total + log, (*ids, i), i in stops) for i, log in enumerate(logs(ids))]
        beams = sorted(grown, key=value, reverse=True)[:width]
        values += [value(beam) for beam in beams if beam[2]]
    return max([*values, *map(value, beams)])


def random_models(count, vocabulary, concentration):
    """log p (V,) of a sample's ids so far; equal ids have equal numbers."""
    tables = [{} for _ in range(count)]

    def logs(b, ids):
        if ids not in tables[b]:
            seed = [b, *ids]
            rng = np.random.RandomState(seed)
            p = rng.dirichlet(np.full(vocabulary, concentration)) + 1e-12
            tables[b][ids] = np.log(p / p.sum())
        return tables[b][ids]

    return logs


@pytest.mark.extended
@pytest.mark.parametrize(
    ("stops", "width", "alpha", "concentration"),
    [
        ([4], 2, 1.0, 0.5),
        ([4], 3, 0.0, 1.0),
        ([0, 4], 4, 0.6, 1.0),
        ([1], 2, -1.0, 0.5),
        ([], 3, 0.8, 1.0),
    ],
)
def test_never_worse_than_a_search_with_a_list_on_800_random_models(
    stops, width, alpha, concentration
):
    """The same as the first search, and as good as the two others at least, for every prompt."""
    count, vocabulary, longest = 800, 5, 7
    logs = random_models(count, vocabulary, concentration)
    rng = rng_of(3)
    prompts = [tuple(rng.randint(0, vocabulary, rng.randint(1, 5))) for _ in range(count)]
    padded = np.full((count, 4), -1)
    for row, prompt in zip(padded, prompts, strict=True):
        row[: len(prompt)] = prompt

    def scores(ids):
        rows = [logs(r // width, tuple(row)) for r, row in enumerate(ids.tolist())]
        return ta.tensor(np.stack(rows))

    found = generate(
        scores, padded, longest, stops, pad=-1, num_beams=width, length_penalty=alpha
    ).tolist()
    better = 0
    for b, (row, prompt) in enumerate(zip(found, prompts, strict=True)):
        settings = (lambda ids, b=b: logs(b, ids)), prompt, longest, stops, width, alpha
        best, ids = search(*settings)
        assert tuple(row) == ids + (-1,) * (len(row) - len(ids))
        for other in (list_of_the_best_only(*settings), beams_with_ended_ones(*settings)):
            assert best >= other - 1e-12
            better += best > other + 1e-12
    assert better or not stops


@pytest.mark.parametrize("best", [1, 2, 4])
@pytest.mark.parametrize("alpha", [0.0, 0.8, -1.0])
def test_the_best_of_each_sample_come_with_their_values(best, alpha):
    count, width, longest = 60, 4, 6
    logs = random_models(count, 5, 0.7)
    prompts = [(b % 5,) for b in range(count)]

    def scores(ids):
        rows = [logs(r // width, tuple(row)) for r, row in enumerate(ids.tolist())]
        return ta.tensor(np.stack(rows))

    found = beam_search(scores, prompts, longest, [1, 4], -1, width, alpha, best)
    for b, prompt in enumerate(prompts):
        ended = all_ended(lambda ids, b=b: logs(b, ids), prompt, longest, [1, 4], width, alpha)
        right = sorted(ended, key=lambda end: -end[0])[:best]
        assert [tuple(ids.tolist()) for ids, _ in found[b]] == [ids for _, ids in right]
        np.testing.assert_allclose([value for _, value in found[b]], [value for value, _ in right])


def test_best_is_checked_and_a_full_prompt_is_all_there_is():
    with pytest.raises(ValueError, match="best is at most num_beams, 2, got 3"):
        beam_search(lambda ids: ids, [[1]], 3, num_beams=2, best=3)
    ((found,),) = beam_search(lambda ids: ids, [[1, 2]], 2, num_beams=3, best=3)
    assert (found[0].tolist(), found[1]) == ([1, 2], 0.0)


def test_a_prompt_that_goes_on_in_one_way_only_has_one_continuation():
    """The prompt alone is none of the best, because it has not ended."""
    only_two = ta.tensor([[-np.inf, -np.inf, 0.0]])
    (found,) = beam_search(lambda ids: only_two.repeat(len(ids), 1), [[1]], 3, num_beams=3, best=2)
    assert [(ids.tolist(), value) for ids, value in found] == [([1, 2, 2], 0.0)]


class Remembering:
    """Scores of somebody's own model, which keeps the ids of each row itself."""

    def start(self):
        self.kept = None

    def select(self, rows):
        if self.kept is not None:
            self.kept = self.kept[rows]

    def __call__(self, ids):
        now = ids.numpy()
        if self.kept is not None:
            np.testing.assert_array_equal(now[:, :-1], self.kept)
        self.kept = now
        return ta.tensor(rng_of(now.shape[1]).normal(size=(len(now), V)))


@pytest.mark.parametrize("width", [2, 5])
def test_a_model_that_keeps_its_state_is_told_which_beams_go_on(width):
    scores = Remembering()
    generate(scores, [[1, 2, 0], [2, 0, 0], [1, 2, 1]], 9, STOP, num_beams=width)
    assert scores.kept.shape[1] > 4


@pytest.mark.parametrize("width", [2, 3])
@pytest.mark.parametrize("alpha", [0.0, 0.8, -2.0])
def test_with_a_model_its_beams_are_those_of_the_plain_search(width, alpha):
    """Each beginning by a full pass, without a cache."""
    max_len = 6
    for seed in (0, 4):
        model = model_of(seed=seed)
        options = {"num_beams": width, "length_penalty": alpha}
        found = generate(model.next_scores(SRC, SRC_MASK), PROMPT, max_len, STOP, **options).numpy()
        for b in range(3):
            source = SRC[b : b + 1, : SRC_MASK[b].sum()]

            def logs(ids, model=model, source=source):
                return log_chances(model, np.array([ids]), source, None)[0, -1]

            _, best = search(logs, (START,), max_len, [STOP], width, alpha)
            assert tuple(found[b, : len(best)].tolist()) == best
            assert (found[b, len(best) :] == PAD).all()


def steps_of(alpha, stop_chance, max_len, prompt=(1,)):
    """How often the model is asked, and the ids; id 1 has 0.9 of what the stop leaves."""
    asked = []
    going = (1 - stop_chance) * np.array([0.05, 0.9, 0.05])
    numbers = ta.tensor(np.log([*going, stop_chance]))

    def scores(ids):
        asked.append(ids.shape)
        return numbers.expand(len(ids), V)

    options = {"num_beams": 2, "length_penalty": alpha, "stop": STOP}
    found = generate(scores, [list(prompt)], max_len, **options).tolist()[0]
    return len(asked), found


def test_the_search_stops_where_nothing_better_can_come_and_not_before():
    """Of the ids 1, ..., 1, stop the value is known for each length; so is the best beginning."""
    for alpha in (-2.0, -0.5, 0.0, 0.5, 1.0, 3.0):
        for chance in (0.02, 0.3, 0.7):
            for max_len in (2, 3, 9, 14):
                goes, ends = math.log(0.9 * (1 - chance)), math.log(chance)
                whole = max_len - 1
                values = [((n - 1) * goes + ends) / penalty(n, alpha) for n in range(1, whole + 1)]
                last = max(whole * goes, (whole - 1) * goes + ends) / penalty(whole, alpha)
                values[-1] = last
                best, steps = -math.inf, 0
                for n in range(1, whole + 1):
                    reach = max(penalty(n, alpha), penalty(whole, alpha))
                    if (n - 1) * goes / reach <= best:
                        break
                    best, steps = max(best, values[n - 1]), n
                asked, found = steps_of(alpha, chance, max_len)
                assert asked == steps, (alpha, chance, max_len)
                written = found[1:]
                n = written.index(STOP) + 1 if STOP in written else len(written)
                total = (n - 1) * goes + (ends if STOP in written else goes)
                assert math.isclose(total / penalty(n, alpha), best, rel_tol=1e-5)


def test_a_prompt_of_max_len_needs_no_step_and_does_not_keep_others_waiting():
    asked = []

    def scores(ids):
        asked.append(ids.tolist())
        return ta.tensor([[-9.0, -9.0, -9.0, 0.0]]).expand(len(ids), V)

    prompt = [[1, 2, 1, 1, 2], [1, 0, 0, 0, 0]]
    for options in ({}, {"num_beams": 2}):
        asked.clear()
        found = generate(scores, prompt, 5, STOP, **options)
        assert found.tolist() == [[1, 2, 1, 1, 2], [1, 3, 0, 0, 0]]
        assert len(asked) == 1
    assert generate(scores, [[1, 2]], 2, STOP, num_beams=2).tolist() == [[1, 2]]


def test_of_equal_beginnings_the_first_are_kept():
    def scores(ids):  # the best are 7, 17, 27 and so on
        return (ta.arange(97) * 7 % 10).float().expand(len(ids), 97)

    assert generate(scores, [[5]], 4, num_beams=3).tolist() == [[5, 7, 7, 7]]


def test_more_beams_than_continuations_and_a_vocabulary_of_stops():
    def scores(ids):
        return ta.zeros(len(ids), 2)

    for stops, right in (([0, 1], [[1, 0]]), ([0], [[1, 0]])):
        found = generate(scores, [[1]], 4, stops, pad=-1, num_beams=9)
        assert found.tolist() == right
    assert generate(lambda ids: ta.zeros(len(ids), 1), [[0]], 3, pad=-1, num_beams=4).tolist() == [
        [0] * 3
    ]
