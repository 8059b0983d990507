"""Generation against exhaustive search, exact probabilities, and full passes."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from common import assert_close, assert_equal, rng_of, run_python, signed

import tinyattn as ta
from tinyattn import masks, nn
from tinyattn.errors import DtypeError, ShapeError
from tinyattn.generation import Processed, chances, generate, min_length, repetition_penalty

V, STOP, PAD, START, D = 4, 3, 0, 1, 8


def model_of(seed=4):
    """A small EncoderDecoder in float64, whose next id depends on the source and on all ids."""
    ta.manual_seed(seed)
    dropout = 0.0

    def embed():
        return nn.Sequential(nn.Embedding(V, D), nn.PositionalEncoding(D))

    def attention():
        return nn.MultiHeadedAttention(2, D, dropout)

    def feed_forward():
        return nn.PositionwiseFeedForward(D, 12, dropout)

    model = nn.EncoderDecoder(
        nn.Encoder(nn.EncoderLayer(D, attention(), feed_forward(), dropout), 1),
        nn.Decoder(nn.DecoderLayer(D, attention(), attention(), feed_forward(), dropout), 2),
        embed(),
        embed(),
        nn.Linear(D, V),
    ).to(ta.float64)
    with ta.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter *= 3  # so that scores differ, and their order between samples
    return model.eval()


SRC = np.array([[2, 3, 1, 0, 0], [1, 1, 2, 3, 2], [3, 0, 0, 0, 0]])
SRC_MASK = SRC != PAD
PROMPT = np.full((3, 1), START)


def log_chances(model, ids, src=SRC, mask=SRC_MASK):
    """log p(id | ids before it) at all positions by one full pass: (B, T, V)."""
    out = model.generator(model(src, ids, mask))
    return out.log_softmax(-1).numpy()


def full_pass(model, src=SRC, mask=SRC_MASK):
    """The scores of the next id without a cache."""
    memory = model.encode(src, mask)
    return lambda ids: model.generator(model.decode(memory, mask, ids)[:, -1])


# The model's scores


def test_forward_is_encode_and_decode():
    model = model_of()
    tgt = np.array([[1, 2, 3, 0], [1, 3, 2, 2], [1, 1, 0, 0]])
    tgt_mask = masks.combine(masks.padding(tgt), masks.causal(4))
    x = model.encoder(model.src_embed(SRC), mask=SRC_MASK)
    out = model.decoder(model.tgt_embed(tgt), x, SRC_MASK, tgt_mask)
    assert_equal(model(SRC, tgt, SRC_MASK, tgt_mask).numpy(), out.numpy())


@pytest.mark.parametrize("first", [1, 4])
def test_cached_scores_are_those_of_the_full_pass_at_every_position(first):
    model = model_of()
    tgt = rng_of(2).randint(0, V, (3, 9))
    cached, full = model.next_scores(SRC, SRC_MASK), full_pass(model)
    for t in range(first, 10):
        scores = cached(tgt[:, :t])
        assert not scores.requires_grad
        assert_close(scores.numpy(), full(tgt[:, :t]).numpy(), 1e-13)


def test_scores_begin_anew_where_ids_do_not_go_on():
    """One function serves for several calls and generations, also after beams were selected."""
    model = model_of()
    scores, full = model.next_scores(SRC, SRC_MASK), full_pass(model)
    tgt, other = rng_of(2).randint(0, V, (2, 3, 6))
    for ids in (tgt, tgt, other, other[:, :2], tgt[:, :2], tgt, tgt[:, :2], other):
        assert_close(scores(ids).numpy(), full(ids).numpy(), 1e-13)
    buffer = tgt.copy()
    scores(buffer[:, :3])
    buffer[:, 1] = (buffer[:, 1] + 1) % V  # the caller's array, after the call
    assert_close(scores(buffer[:, :4]).numpy(), full(buffer[:, :4]).numpy(), 1e-13)
    for options in ({}, {"num_beams": 3}, {}, {"num_beams": 2}, {"num_beams": 2}):
        fresh = generate(model.next_scores(SRC, SRC_MASK), PROMPT, 8, STOP, **options)
        assert_equal(generate(scores, PROMPT, 8, STOP, **options).numpy(), fresh.numpy())


@pytest.mark.parametrize("wrong", [[[1, 9]] * 3, [[1, 2]] * 2, [1, 2, 3], [[1.5, 2]] * 3, [[]] * 3])
@pytest.mark.parametrize("rows", [[2, 0, 1], np.array([2, 0, 1]), ta.tensor([2, 0, 1])])
def test_a_refused_call_changes_no_scores(wrong, rows):
    """Also after samples were selected, which a new beginning would forget."""
    model = model_of()
    scores, tgt = model.next_scores(SRC, SRC_MASK), rng_of(2).randint(0, V, (3, 5))
    order = np.array([2, 0, 1])
    scores(tgt[:, :2])
    scores.select(rows)
    for _ in range(2):
        with pytest.raises((ValueError, TypeError, IndexError)):
            scores(wrong)
        last, model.generator = model.generator, nn.Linear(3, V).double()
        with pytest.raises(ValueError, match="linear: weight"):
            scores(tgt[order][:, :3])
        model.generator = last
        with pytest.raises(ValueError, match="numbers of samples"):
            scores.select(None)
        with pytest.raises(IndexError):
            scores.select([3])
    full = full_pass(model, SRC[order], SRC_MASK[order])
    for t in (3, 5):
        assert_close(scores(tgt[order][:, :t]).numpy(), full(tgt[order][:, :t]).numpy(), 1e-13)


def test_a_first_call_that_fails_behind_the_decoder_leaves_the_cache_empty():
    """In a model that stays as it is, because after a change all is computed anyway."""
    model, words = model_of(), ["refused"]

    def refuse_once(module, args, out):
        if words:
            raise RuntimeError(words.pop())

    model.generator.register_forward_hook(refuse_once)
    scores, tgt = model.next_scores(SRC, SRC_MASK), rng_of(2).randint(0, V, (3, 4))
    with pytest.raises(RuntimeError, match="refused"):
        scores(tgt[:, :2])
    for t in (1, 4):
        assert_close(scores(tgt[:, :t]).numpy(), full_pass(model)(tgt[:, :t]).numpy(), 1e-13)


def test_a_source_is_read_anew_when_the_model_has_learned():
    """And when the array of the source has other ids."""
    model, source = model_of(), SRC.copy()
    scores = model.next_scores(source, SRC_MASK)

    def learn():
        with ta.no_grad():
            for parameter in model.encoder.parameters():
                parameter *= -2

    results = []
    for change in (lambda: None, learn, lambda: source.fill(2)):
        change()
        for options in ({}, {"num_beams": 2}):
            fresh = generate(model.next_scores(source, SRC_MASK), PROMPT, 8, STOP, **options)
            assert_equal(generate(scores, PROMPT, 8, STOP, **options).numpy(), fresh.numpy())
        results.append(generate(scores, PROMPT, 8, STOP).tolist())
    assert results[0] != results[1] != results[2]


@pytest.mark.parametrize("which", ["encoder", "decoder", "src_embed", "tgt_embed"])
def test_scores_called_by_hand_are_those_of_the_model_as_it_is_now(which):
    """After a step of training the samples that were selected stay."""
    model, rows = model_of(), [2, 0, 0]
    scores = model.next_scores(SRC, SRC_MASK)
    tgt = np.array([[START, 2, 1, 0, 2, 1], [2, 3, 2, 1, 3, 2], [START, 2, 1, 0, 2, 1]])
    scores(tgt[:, :3])
    scores.select([0, 2])
    scores.select([1, 0, 0])
    before = full_pass(model, SRC[rows], SRC_MASK[rows])(tgt[:, :5]).numpy()
    for length in (4, 5):
        for parameter in getattr(model, which).parameters():
            parameter.grad = ta.tensor(signed(rng_of(length), *parameter.shape))
        ta.optim.SGD(getattr(model, which).parameters(), 0.3).step()
        expected = full_pass(model, SRC[rows], SRC_MASK[rows])(tgt[:, :length]).numpy()
        assert_close(scores(tgt[:, :length]).numpy(), expected, 1e-12)
    assert abs(before - expected).max() > 0.01


def test_nothing_is_dropped_while_a_model_in_training_generates():
    """Its parts have their modes again afterwards, also after an error."""
    model = model_of()
    right = generate(model.next_scores(SRC, SRC_MASK), PROMPT, 8, STOP).numpy()
    beams = generate(model.next_scores(SRC, SRC_MASK), PROMPT, 8, STOP, num_beams=2).numpy()
    for module in model.train().modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.9
    model.decoder.layers[0].eval()
    modes = [module.training for module in model.modules()]
    for options, expected in (({}, right), ({"num_beams": 1}, right), ({"num_beams": 2}, beams)):
        scores = model.next_scores(SRC, SRC_MASK)
        assert_equal(generate(scores, PROMPT, 8, STOP, **options).numpy(), expected)
        assert [module.training for module in model.modules()] == modes
    model.generator = nn.Linear(3, V).double()
    with pytest.raises(ShapeError, match="linear: weight"):
        model.next_scores(SRC, SRC_MASK)(PROMPT)
    assert [module.training for module in model.modules()] == modes


def test_each_sample_alone_is_generated_alike():
    """Sources of other lengths beside it, and the padding that they need, change nothing."""
    model = model_of()
    together = generate(model.next_scores(SRC, SRC_MASK), PROMPT, 8, STOP).numpy()
    for b, n in enumerate(SRC_MASK.sum(axis=1)):
        alone = generate(model.next_scores(SRC[b : b + 1, :n]), PROMPT[:1], 8, STOP).numpy()[0]
        assert_equal(together[b, : len(alone)], alone)
        assert (together[b, len(alone) :] == PAD).all()


# Greedy


@pytest.mark.parametrize("seed", [0, 1, 4, 5])
def test_greedy_takes_the_likeliest_id_of_the_full_pass_and_pads_after_the_stop(seed):
    model = model_of(
        seed=seed,
    )
    ids = generate(model.next_scores(SRC, SRC_MASK), PROMPT, 9, STOP).numpy()
    best = log_chances(model, ids).argmax(axis=-1)
    for row, likeliest in zip(ids, best, strict=True):
        ended = False
        for t in range(1, len(row)):
            assert row[t] == (PAD if ended else likeliest[t - 1])
            ended = ended or row[t] == STOP
    ends = (ids == STOP).any(axis=1)
    assert ids.shape[1] == 9 or (ends.all() and (ids[:, -1] == STOP).any())


def test_a_function_of_ids_is_a_model_too():
    seen = []

    def count(ids):
        seen.append(ids.shape)
        return ta.nn.functional.one_hot((ids[:, -1] + 1) % 6, 6).float()

    ids = generate(count, [[1, 2], [4, 0], [3, 4]], max_len=6, stop=5)
    assert ids.tolist() == [[1, 2, 3, 4, 5], [4, 5, 0, 0, 0], [3, 4, 5, 0, 0]]
    assert ids.dtype == np.int64
    assert seen == [(3, 1), (3, 2), (3, 3), (3, 4)]  # and no fifth call: all have ended
    assert generate(count, [[2, 3]], max_len=2).tolist() == [[2, 3]]
    # A prompt that is full already stays as it is beside one that goes on.
    assert generate(count, [[4, 3, 1], [1, 0, 0]], max_len=3).tolist() == [[4, 3, 1], [1, 2, 3]]
    assert generate(count, np.zeros((0, 1), np.int64), max_len=3).shape == (0, 3)


@pytest.mark.parametrize("options", [{}, {"temperature": 0.7}, {"num_beams": 3}])
def test_prompts_of_other_lengths_are_kept_and_each_goes_on_from_its_end(options):
    model = model_of()
    prompt = np.array([[1, 2, 2, 1], [1, 0, 0, 0], [1, 1, 0, 0]])
    ta.manual_seed(1)
    ids = generate(model.next_scores(SRC, SRC_MASK), prompt, 8, **options).numpy()
    assert (ids[:, :4][prompt != PAD] == prompt[prompt != PAD]).all()
    if options != {"temperature": 0.7}:
        for b, n in enumerate((prompt != PAD).sum(axis=1)):
            source = SRC[b : b + 1, : SRC_MASK[b].sum()]
            alone = generate(model.next_scores(source), prompt[b : b + 1, :n], 8, **options)
            assert_equal(ids[b], alone.numpy()[0])


# Drawing


def exact(scores, temperature=1.0, top_k=None, top_p=None):
    """The definition, id by id."""
    weights = [math.exp(s / temperature) for s in scores]
    order = sorted(range(len(weights)), key=lambda i: (-weights[i], i))[:top_k]
    total = sum(weights[i] for i in order)
    kept, mass = [], 0.0
    for i in order:
        if top_p is None or mass < top_p:
            kept.append(i)
        mass += weights[i] / total
    total = sum(weights[i] for i in kept)
    return [weights[i] / total if i in kept else 0.0 for i in range(len(weights))]


CHOICES = [
    {},
    {"temperature": 0.3},
    {"temperature": 3.0},
    {"top_k": 1},
    {"top_k": 3},
    {"top_k": 99},
    {"top_p": 0.5},
    {"top_p": 1e-9},
    {"top_p": 1.0},
    {"temperature": 2.0, "top_k": 4, "top_p": 0.8},
]


@pytest.mark.parametrize("choice", CHOICES)
def test_chances_are_their_definition(choice):
    logs = ta.tensor(2 * signed(rng_of(3), 20, 6)).log_softmax(-1).numpy().copy()
    logs[0] = -math.log(6)  # all equal: the first ids are taken
    logs[1, 2:] = -np.inf
    logs[1, :2] = -math.log(2)
    options = {"temperature": 1.0, "top_k": None, "top_p": None} | choice
    found = chances(logs, **options)
    assert_close(found, [exact(row, **options) for row in logs], 1e-12)
    assert_close(found.sum(axis=-1), np.ones(20), 1e-12)


def test_equally_likely_ids_within_rounding_of_top_p():
    """Four of 0.25: 0.5 is reached by two."""
    logs = np.log(np.full((1, 4), 0.25))
    assert chances(logs, 1.0, None, 0.5).tolist() == [[0.5, 0.5, 0, 0]]
    assert chances(logs, 1e-300, None, None).tolist() == [[0.25] * 4]
    assert chances(np.log([[0.2, 0.8]]), 1e-300, None, None).tolist() == [[0, 1]]


def test_of_many_equally_likely_ids_the_first_are_kept():
    logs = np.log(np.full((1, 300), 1 / 300))
    logs[0, ::2] -= 1
    found = chances(logs, 1.0, 3, None)
    assert found.nonzero()[1].tolist() == [1, 3, 5]
    found = chances(logs, 1.0, None, 3 / 150)
    assert found.nonzero()[1].tolist() == [1, 3, 5, 7, 9]


@pytest.mark.parametrize("spread", [0.1, 1, 5])
@pytest.mark.parametrize("top_p", [0.1, 0.5, 0.9, 0.999])
def test_chances_in_a_large_vocabulary(spread, top_p):
    """Most ids are not sorted; those that are kept are the same."""
    scores = spread * rng_of(5).normal(size=2000)
    logs = ta.tensor(scores).log_softmax(-1).numpy()
    for top_k in (None, 700):
        found = chances(logs[None], 1.0, top_k, top_p)[0]
        assert_close(found, exact(scores.tolist(), 1.0, top_k, top_p), 1e-12)


@pytest.mark.parametrize(
    "choice", [{"temperature": 1.0}, {"temperature": 1.5, "top_k": 3, "top_p": 0.9}]
)
def test_whole_samples_are_drawn_with_their_exact_probabilities(choice):
    """Every sequence of up to three ids, and how often it is drawn, within five deviations."""
    model, count = model_of(), 20000
    source, mask = SRC[:1], SRC_MASK[:1]
    expected = {}
    for tail in itertools.product(range(V), repeat=3):
        ids = (START, *tail)
        if STOP in tail:
            end = ids.index(STOP) + 1
            ids = ids[:end] + (PAD,) * (4 - end)
        logs = log_chances(model, np.array([ids]), source, mask)[0]
        chance = 1.0
        for t in range(1, 4):
            chance *= exact(logs[t - 1], **choice)[ids[t]]
            if ids[t] == STOP:
                break
        expected[ids] = chance
    assert math.isclose(sum(expected.values()), 1.0, rel_tol=1e-12)
    ta.manual_seed(5)
    scores = model.next_scores(source.repeat(count, 0), mask)
    drawn = generate(scores, np.full((count, 1), START), 4, STOP, **choice).numpy()
    found = dict.fromkeys(expected, 0)
    for row in map(tuple, drawn.tolist()):
        found[row] += 1
    for ids, p in expected.items():
        assert abs(found[ids] - count * p) <= 5 * math.sqrt(count * p * (1 - p)), ids


def test_an_id_without_probability_is_not_drawn_by_the_random_number_0(monkeypatch):
    class Zero:
        random = staticmethod(np.zeros)

    monkeypatch.setattr("tinyattn.base.random.generator", Zero)
    row = ta.tensor([[-np.inf, -np.inf, 0.0, 0.0]])
    found = generate(lambda ids: row.expand(len(ids), 4), [[1], [3]], 3, temperature=1.0)
    assert found.tolist() == [[1, 2, 2], [3, 2, 2]]


def test_equal_seeds_draw_equal_ids_and_others_draw_others():
    model = model_of()

    def drawn(seed, scores):
        ta.manual_seed(seed)
        return generate(scores, PROMPT, 12, temperature=1.0).numpy()

    first = drawn(1, model.next_scores(SRC, SRC_MASK))
    assert_equal(drawn(1, model.next_scores(SRC, SRC_MASK)), first)
    assert_equal(drawn(1, full_pass(model)), first)  # the cache changes nothing
    assert (drawn(2, model.next_scores(SRC, SRC_MASK)) != first).any()


def test_another_process_draws_the_same():
    code = """if True:
        import tinyattn as ta
        from tinyattn.generation import Processed, generate, min_length, repetition_penalty
        ta.manual_seed(3)
        scores = lambda ids: (ids[:, -1:] * ta.arange(5.0)[None]).cos()
        print(generate(scores, [[1], [2]], 9, temperature=1.0).tolist())
    """
    assert run_python(code) == run_python(code)


# Beam search


def penalty(n, alpha):
    return ((5 + n) / 6) ** alpha


def all_ends(length):
    """Every continuation of `length` ids at most: it ends with STOP, or has that many."""
    for n in range(1, length + 1):
        for tail in itertools.product([i for i in range(V) if i != STOP], repeat=n - 1):
            yield (*tail, STOP)
            if n == length:
                yield from ((*tail, last) for last in range(V) if last != STOP)


def exhaustive(model, b, length, alpha):
    """The best of all continuations, each scored by a full pass."""
    source = SRC[b : b + 1, : SRC_MASK[b].sum()]
    tails = list(all_ends(length))
    ids = np.full((len(tails), length + 1), PAD)
    for row, tail in zip(ids, tails, strict=True):
        row[: len(tail) + 1] = (START, *tail)
    logs = log_chances(model, ids, source.repeat(len(ids), 0), None)
    values = [
        sum(logs[i, t, id] for t, id in enumerate(tail)) / penalty(len(tail), alpha)
        for i, tail in enumerate(tails)
    ]
    return ids[int(np.argmax(values))]


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("seed", [0, 4, 5])
def test_a_beam_as_wide_as_all_beginnings_is_exhaustive_search(alpha, seed):
    model = model_of(seed=seed)
    length = 4
    options = {"num_beams": V**length, "length_penalty": alpha}
    for scores in (model.next_scores(SRC, SRC_MASK), full_pass_of_beams(model)):
        found = generate(scores, PROMPT, length + 1, STOP, PAD, **options).numpy()
        for b in range(3):
            best = exhaustive(model, b, length, alpha)
            assert_equal(found[b], best[: found.shape[1]])
            assert (best[found.shape[1] :] == PAD).all()


def full_pass_of_beams(model):
    """Without a cache: the beams of a sample follow each other, so its source is repeated."""

    def scores(ids):
        times = len(ids) // len(SRC)
        return full_pass(model, SRC.repeat(times, 0), SRC_MASK.repeat(times, 0))(ids)

    return scores


def test_the_length_penalty_prefers_longer_ends():
    """Each step has 0.6 for the stop, 0.4 for another id: 1 id is likeliest, 6 divide by most."""

    def scores(ids):
        return ta.tensor([[0.0, 0.4, 0.0, 0.6]]).log().expand(len(ids), V)

    for alpha, best in ((0.0, [1, 3]), (5.0, [1, 1, 1, 1, 1, 1, 3])):
        options = {"num_beams": 4, "length_penalty": alpha}
        assert generate(scores, [[1]], 7, STOP, **options).tolist() == [best]


# Errors


def uniform(ids):
    return ta.zeros(len(ids), V)


@pytest.mark.parametrize("kind", [np.array, ta.tensor])
@pytest.mark.parametrize("num_beams", [1, 2])
def test_the_prompt_stays_as_it_was(kind, num_beams):
    """Generated ids stand in the places of its padding, in an array of their own."""
    prompt = kind([[1, 2, 0, 0], [3, 0, 0, 0]])
    assert generate(successor, prompt, 4, num_beams=num_beams).shape == (2, 4)
    assert prompt.tolist() == [[1, 2, 0, 0], [3, 0, 0, 0]]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: generate(uniform, [[1.5]], 4), DtypeError, "prompt holds ids"),
        (lambda: generate(uniform, [1, 2], 4), ShapeError, r"\(B, P\)"),
        (lambda: generate(uniform, [[1, 2]], 1), ShapeError, "P <= max_len=1"),
        (lambda: generate(uniform, [[0, 2]], 4), ValueError, "only after its last id"),
        (lambda: generate(uniform, [[1, 0, 2]], 4), ValueError, "take another pad, such as -1"),
        (lambda: generate(uniform, [[1], [0]], 4), ValueError, "one id at least"),
        (lambda: generate(uniform, [[1]], 4, stop=1.0), DtypeError, "stop is an integer id"),
        (
            lambda: generate(uniform, [[1]], 4, pad=None),
            DtypeError,
            "pad must be an integer, got None",
        ),
        (lambda: generate(uniform, [[1]], 4, temperature=-1), ValueError, "temperature"),
        (lambda: generate(uniform, [[1]], 4, temperature=math.nan), ValueError, "temperature"),
        (lambda: generate(uniform, [[1]], 4, top_k=2), ValueError, "temperature above 0"),
        (lambda: generate(uniform, [[1]], 4, temperature=1, top_k=0), ValueError, "top_k"),
        (lambda: generate(uniform, [[1]], 4, temperature=1, top_p=0), ValueError, "top_p"),
        (lambda: generate(uniform, [[1]], 4, temperature=1, top_p=1.1), ValueError, "top_p"),
        (lambda: generate(uniform, [[1]], 4, num_beams=0), ValueError, "num_beams"),
        (lambda: generate(uniform, [[1]], 4, temperature=1, num_beams=2), ValueError, "not both"),
        (lambda: generate(uniform, [[1]], 4, length_penalty=math.inf), ValueError, "length_pen"),
        (lambda: generate(lambda ids: ta.zeros(2, V), [[1]], 4), ShapeError, r"scores \(B, V\)"),
        (lambda: generate(lambda ids: 3, [[1]], 4), ShapeError, "gave 3"),
        (lambda: generate(lambda ids: uniform(ids) * ta.nan, [[1]], 4), ValueError, "NaN"),
        (lambda: generate(lambda ids: uniform(ids) - ta.inf, [[1]], 4), ValueError, "-inf"),
    ],
)
def test_what_makes_no_sense_is_refused(call, error, words):
    with np.errstate(invalid="ignore"), pytest.raises(error, match=words):
        call()


def never(ids):
    raise AssertionError("the model is not asked")


NOT_NUMBERS = [math.nan, math.inf, -math.inf, True, "1", [1.0], np.array([1.0]), ta.tensor(1.0)]
NOT_IDS = [1.5, math.nan, math.inf, True, "1", None, 1j, 2**70]


@pytest.mark.parametrize(
    ("name", "values", "options"),
    [
        ("temperature", [*NOT_NUMBERS, None, -1, -1e-9], {}),
        ("top_k", [*NOT_NUMBERS, 0, -1, 1.5], {"temperature": 1.0}),
        ("top_p", [*NOT_NUMBERS, 0, -0.1, 1.1, 2], {"temperature": 1.0}),
        ("num_beams", [*NOT_NUMBERS, None, 0, -1, 1.5], {}),
        ("length_penalty", [*NOT_NUMBERS, None, 10, -10.1, 1e308], {}),
        ("length_penalty", [*NOT_NUMBERS, None, 10, -10.1, 1e308], {"num_beams": 2}),
        ("max_len", [*NOT_NUMBERS, None, 0, -1, 2.0], {}),
        ("pad", [*NOT_IDS, [0], 2**63, -(2**64)], {}),
        ("stop", [x for x in NOT_IDS if x is not None], {}),
        ("stop", [-1, [3, -1], [1.0], [True], [None], (i for i in [1]), {1: 2}, [[1], [2, 3]]], {}),
        ("prompt", [*NOT_IDS, 1, [1], [[[1]]], [[1], [2, 3]], [[1, 2, 3, 4, 5]], []], {}),
        ("prompt", [[[x]] for x in NOT_IDS], {}),
        ("prompt", [np.array([[2**63]], np.uint64), np.array([[-2]]), [[-1]], [[]]], {}),
    ],
)
def test_every_argument_is_checked_before_the_model_is_asked(name, values, options):
    ta.manual_seed(4)
    right = ta.rand(3).tolist()
    ta.manual_seed(4)
    for value in values:
        arguments = {"prompt": [[1]], "max_len": 4, **options, name: value}
        with pytest.raises((ValueError, TypeError), match=name):
            generate(never, **arguments)
    assert ta.rand(3).tolist() == right  # no number was drawn


@pytest.mark.parametrize("options", [{}, {"temperature": 0.7}, {"num_beams": 2}])
def test_scores_that_make_no_sense_are_refused(options):
    """Also in a later step, and of one sample of two."""

    def later(wrong):
        def scores(ids):
            return wrong(ids) if ids.shape[1] == 3 else uniform(ids)

        return scores

    def one_row(number):
        def scores(ids):
            out = uniform(ids)
            out[-1 if number == -math.inf else 0, slice(None) if number < 0 else 1] = number
            return out

        return scores

    of_shape = [
        lambda ids: None,
        lambda ids: np.ones((len(ids), V)),
        lambda ids: ta.ones(len(ids), 1, V),
        lambda ids: ta.ones(V),
        lambda ids: ta.ones(len(ids) + 1, V),
        lambda ids: ta.ones(len(ids), 0),
        lambda ids: (uniform(ids),),
    ]
    for wrong in of_shape:
        for scores in (wrong, later(wrong)):
            with pytest.raises(ShapeError, match=r"scores \(B, V\), V >= 1"):
                generate(scores, [[1]], 4, **options)
    for number in (math.nan, math.inf):
        for scores in (one_row(number), later(one_row(number))):
            with pytest.raises(ValueError, match="NaN or inf"):
                generate(scores, [[1], [1]], 4, **options)
    with pytest.raises(ValueError, match="all -inf"):
        generate(lambda ids: uniform(ids) - ta.inf, [[1]], 4, **options)
    for stop in (V, [1, V], np.array([2**63], np.uint64)):
        with pytest.raises(ValueError, match=f"0 to {V - 1}, got"):
            generate(uniform, [[1]], 4, stop=stop, **options)
    with pytest.raises(TypeError, match="next_scores is a function of ids, got int"):
        generate(3, [[1]], 4)


def test_one_sample_without_scores_is_refused_and_only_if_they_are_read():
    def scores(ids):
        """The first sample stops at once; then its scores are NaN."""
        out = ta.tensor([[0.0, -ta.inf, 0.0, -ta.inf]]).expand(len(ids), V).clone()
        half = len(ids) // 2
        out[:half] = ta.nan if ids.shape[1] > 1 else ta.tensor([-ta.inf, -ta.inf, -ta.inf, 1.0])
        return out

    found = generate(scores, [[1], [1]], 3, STOP)
    assert found.tolist() == [[1, 3, 0], [1, 0, 0]]
    assert generate(scores, [[1], [1]], 3, STOP, num_beams=2).tolist() == found.tolist()
    with pytest.raises(ValueError, match="NaN"):
        generate(scores, [[1], [1]], 3)


@pytest.mark.parametrize("options", [{}, {"temperature": 1.0}, {"num_beams": 3}])
def test_nan_beside_a_prompt_and_of_beams_that_do_not_count_is_not_read(options):
    """A prompt is longer than the other; and after one id there are fewer beginnings than beams."""

    def scores(ids):
        out = ta.tensor([[2.0, 1.0]]).expand(len(ids), 2).clone()
        times = len(ids) // 2
        if ids.shape[1] < 3:
            out[times:] = ta.nan
            out[1:times] = ta.nan if ids.shape[1] == 1 else ta.tensor([2.0, 1.0])
        return out

    found = generate(scores, [[1, -1, -1], [0, 1, 0]], 4, pad=-1, **options)
    assert found.shape == (2, 4)
    assert found[:, :3].tolist()[1] == [0, 1, 0]
    assert found[0, 0].item() == 1


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">i4"])
@pytest.mark.parametrize("pad", [0, -1])
def test_ids_of_any_integer_dtype_and_empty_batches(dtype, pad):
    right = [[1, 1, 1], [2, 1, 1]]
    prompt = np.array([[1], [2]], dtype)
    for options in ({}, {"num_beams": 2}):

        def scores(ids):
            assert ids.dtype == np.int64
            return ta.tensor([[0.0, 1.0, 0.0]]).expand(len(ids), 3)

        found = generate(scores, prompt, 3, pad=pad, **options)
        assert found.dtype == np.int64
        assert found.tolist() == right
        assert generate(never, prompt[:0], 3, pad=pad, **options).shape == (0, 3)
    assert prompt.tolist() == [[1], [2]]


def test_scores_of_integers_booleans_and_numbers_near_the_largest():
    for scores in (
        ta.tensor([[0, 5, 0]]),
        ta.tensor([[False, True, False]]),
        ta.tensor([[1e308, 1.5e308, -1.5e308]], dtype=ta.float64),
        ta.tensor([[-ta.inf, 6e4, -6e4]], dtype=ta.float16),
    ):
        for options in ({}, {"num_beams": 2}, {"temperature": 5e-324}):
            found = generate(lambda ids, x=scores: x.expand(len(ids), 3), [[2]], 3, **options)
            assert found.tolist() == [[2, 1, 1]]


# Several stops, and what the model is fed


STOPS = [[3, 5], (5, 3), {3, 5}, np.array([3, 5], np.uint8), [3, 3, 5], range(3, 6, 2)]
STOPS += [frozenset({3, 5}), dict.fromkeys([3, 5]).keys()]


@pytest.mark.parametrize("stop", [*STOPS, ta.tensor([3, 5])], ids=repr)
@pytest.mark.parametrize("options", [{}, {"num_beams": 2}, {"temperature": 1.0}])
def test_each_of_several_ids_ends_a_sample(stop, options):
    prompt = [[1, -1], [4, -1], [3, -1], [2, 5]]  # a stop of a prompt ends nothing
    found = generate(successor, prompt, 7, stop=stop, pad=-1, **options)
    ends = [[1, 2, 3], [4, 5], [3, 4, 5], [2, 5, 6, 7, 8, 0, 1]]
    assert found.tolist() == [end + [-1] * (7 - len(end)) for end in ends]


@pytest.mark.parametrize("options", [{}, {"temperature": 1.0}, {"num_beams": 2}])
def test_a_longer_prompt_ends_first_and_a_model_may_write_to_its_ids(options):
    def writing(ids):
        out = successor(ids)
        ids[:] = 7
        return out

    for scores in (successor, writing):
        found = generate(scores, [[0, -1, -1], [1, 2, 3]], 9, stop=4, pad=-1, **options)
        assert found.tolist() == [[0, 1, 2, 3, 4], [1, 2, 3, 4, -1]]


@pytest.mark.parametrize("stop", [None, [], (), set(), np.zeros(0, np.int64), 8])
def test_without_a_stop_all_go_on(stop):
    for options in ({}, {"num_beams": 2}, {"temperature": 1.0}):
        found = generate(successor, [[1], [4]], 4, stop=stop, **options)
        assert found.tolist() == [[1, 2, 3, 4], [4, 5, 6, 7]]


def test_one_stop_may_be_a_tensor_and_any_max_len_is_allowed():
    def few(ids):
        assert ids.shape[1] < 5
        return successor(ids)

    for stop in (3, np.uint8(3), np.array(3), ta.tensor(3)):
        for options in ({}, {"num_beams": 2, "length_penalty": -1.0}):
            assert generate(few, [[1]], 2**60, stop=stop, **options).tolist() == [[1, 2, 3]]


def successor(ids):
    """The next id is one more."""
    return 1e3 * ta.nn.functional.one_hot((ids[:, -1] + 1) % 9, 9).float()


@pytest.mark.parametrize("pad", [-1, -7, 0, STOP, V, 99])
@pytest.mark.parametrize("options", [{}, {"temperature": 1.0}, {"num_beams": 3}])
@pytest.mark.parametrize("cached", [True, False])
def test_the_model_never_gets_padding(pad, options, cached):
    """With embeddings, which refuse an id out of range; every pad gives the same samples."""
    model, fed = model_of(seed=5), []

    def result(scores, pad):
        ta.manual_seed(2)
        prompt = np.array([[1, 2, 1], [1, pad, pad], [2, pad, pad]])
        return generate(scores, prompt, 9, STOP, pad=pad, **options).numpy()

    def spy(ids):
        fed.append(ids.numpy())
        return scores(ids)

    scores = full_pass_of_beams(model)
    if cached:
        scores = model.next_scores(SRC, SRC_MASK)
        spy.start, spy.select = scores.start, scores.select
    found, right = result(spy, pad), result(full_pass_of_beams(model), -1)
    assert (right == -1).any()
    assert_equal(found, np.where(right == -1, pad, right))
    assert all(((ids >= 0) & (ids < V)).all() for ids in fed)
    if "num_beams" not in options:
        for ids, row in zip(fed[-1], right, strict=True):
            n = min(int((row != -1).sum()), len(ids))
            assert_equal(ids[:n], row[:n])
            assert (ids[n:] == row[n - 1]).all()  # an ended sample gets its last id again


def test_scores_go_through_processors_one_after_another():
    """Those of a model with a cache too, which `generate` starts and whose samples it selects."""
    model = model_of(seed=1)
    seen = []

    def without_two(ids, scores):
        seen.append(ids.shape)
        scores = scores.copy()
        scores[:, 2] = -np.inf
        return scores

    plain = model.next_scores(SRC, SRC_MASK)
    processed = Processed(plain, without_two, min_length(5, STOP))
    for options in ({}, {"num_beams": 2}):
        found = generate(processed, PROMPT, 8, STOP, **options).numpy()

        def by_hand(ids):
            source = np.repeat(SRC, len(ids) // len(SRC), 0)
            mask = np.repeat(SRC_MASK, len(ids) // len(SRC), 0)
            scores = model.generator(model(source, ids, mask)[:, -1]).detach().numpy().copy()
            scores[:, 2] = -np.inf
            if ids.shape[1] < 5:
                scores[:, STOP] = -np.inf
            return ta.tensor(scores)

        assert found.tolist() == generate(by_hand, PROMPT, 8, STOP, **options).tolist()
    assert {shape[0] for shape in seen} == {3, 6}


def test_a_repetition_costs():
    scores = np.array([[1.0, -1.0, 2.0, 0.0]])
    found = repetition_penalty(2.0)(np.array([[0, 1, 1]]), scores)
    assert found.tolist() == [[0.5, -2.0, 2.0, 0.0]]
    assert scores.tolist() == [[1.0, -1.0, 2.0, 0.0]]
    for wrong in (-1, 0.0):
        with pytest.raises(ValueError, match="penalty"):
            repetition_penalty(wrong)


@pytest.mark.parametrize("make", [list, np.array, ta.tensor])
def test_processors_get_arrays_whatever_the_ids_are(make):
    seen = []

    def note(ids, scores):
        seen.append((type(ids), type(scores), ids.tolist()))
        return scores

    scores = Processed(lambda ids: ta.zeros(1, 3), note, repetition_penalty(2.0), note)
    assert scores(make([[1, 2]])).shape == (1, 3)
    assert seen == [(np.ndarray, np.ndarray, [[1, 2]])] * 2
