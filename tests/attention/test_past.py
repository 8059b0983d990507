"""Whatever counts positions can be told how many came before: its rows are those of the whole."""

from __future__ import annotations

import importlib
import inspect
import math
import random

import numpy as np
import pytest
from common import assert_close, assert_equal, leaf, pull, rng_of, signed

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import masks, nn
from tinyattn.nn.cache import KeyValueCache

B, H, N, D = 2, 4, 9, 6


def heads(seed):
    return ta.tensor(signed(rng_of(seed), B, H, N, D))


Q, K, V, X = heads(1), heads(2), heads(3), ta.tensor(signed(rng_of(4), B, N, D))
SCORES = ta.tensor(signed(rng_of(5), B, H, N, N))
ENCODINGS = {
    "sinusoids": nn.PositionalEncoding(D, max_len=N).double(),
    "sinusoids in another dtype": nn.PositionalEncoding(D, max_len=N),
    "a learned table": nn.LearnedPositionalEncoding(D, max_len=N).double(),
}


def attend(first, past, q=Q, k=K, v=V, **options):
    """The queries from `first` on see the keys up to their own, after `past` of them."""
    mask = masks.causal(N - first, past)
    q, k, v = q[:, :, first:], k[:, :, : past + N - first], v[:, :, : past + N - first]
    return F.scaled_dot_product_attention(q, k, v, mask=mask, **options)


# A function of (first, past) that gives the rows from `first` on. All rows: (0, 0).
FUNCTIONS = {
    "masks.causal": lambda first, past: masks.causal(N - first, past),
    "F.alibi_bias": lambda first, past: F.alibi_bias(H, N - first, past=past),
    "F.alibi_bias with keys": lambda first, past: F.alibi_bias(H, N - first, 12, past=past),
    "F.masked_softmax": lambda first, past: F.masked_softmax(
        SCORES[:, :, first:], is_causal=True, past=past
    ),
    "F.masked_softmax of a sample": lambda first, past: F.masked_softmax(
        SCORES[0, 0, first:], is_causal=True, past=past
    ),
    "causal attention": attend,
    "a bias of distances": lambda first, past: attend(
        first, past, bias=F.alibi_bias(H, N - first, dtype=ta.float64, past=past)
    ),
    "F.rotary_embedding": lambda first, past: F.rotary_embedding(
        Q[:, :, first:], np.arange(past, past + N - first)
    ),
    **{
        name: lambda first, past, module=module: module(X[:, first:], past)
        for name, module in ENCODINGS.items()
    },
}


@pytest.mark.parametrize("past", [0, 1, 5, 8, 9])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_rows_after_earlier_positions_are_those_of_the_whole(name, past):
    whole, rows = FUNCTIONS[name](0, 0).numpy(), FUNCTIONS[name](past, past).numpy()
    axis = whole.ndim - 2
    right = np.take(whole, np.arange(past, N), axis)
    assert rows.dtype == right.dtype
    assert_close(1.0 * rows, 1.0 * right, 1e-14)
    if past in (1, 5):  # they are not those of queries from 0 on
        assert FUNCTIONS[name](past, 0).shape != rows.shape or (
            abs(FUNCTIONS[name](past, 0).numpy() - 1.0 * rows).max() > 1e-3
        )


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("past", [-1, 1.0, math.nan, True, None, "1", [1]])
def test_a_past_that_is_no_number_of_positions_is_refused(name, past):
    if name == "F.rotary_embedding":
        with pytest.raises((ValueError, TypeError), match="positions"):
            F.rotary_embedding(Q, [past] * N if not isinstance(past, list) else [[1.0]])
        return
    with pytest.raises(ValueError, match="past must be an integer >= 0"):
        FUNCTIONS[name](0, past)


@pytest.mark.parametrize("name", ["sinusoids", "a learned table"])
def test_a_table_ends_for_the_past_too(name):
    with pytest.raises(ValueError, match=r"has 10 positions, .* max_len=9"):
        ENCODINGS[name](X[:, :1], 9)


def test_a_step_in_another_dtype_computes_the_rows_it_adds(monkeypatch):
    """Not the whole table, and a table that was loaded is not replaced by the formula."""
    position = importlib.import_module("tinyattn.nn.position")
    module, asked = nn.PositionalEncoding(D, max_len=500), []

    def counting(length, *args):
        asked.append(length)
        return sinusoids(length, *args)

    sinusoids = position.sinusoids
    monkeypatch.setattr(position, "sinusoids", counting)
    zeros = ta.zeros(1, 2, D, dtype=ta.float64)
    assert_equal(module(zeros, 400).numpy()[0], sinusoids(500, D)[400:402])
    assert asked == [2]
    table = signed(rng_of(9), 1, 500, D).astype(np.float32)
    module.load_state_dict({"P": ta.tensor(table)})
    assert_equal(module(zeros, 400).numpy(), table[:, 400:402].astype(np.float64))


def test_a_learned_table_gets_its_gradient_in_the_rows_it_gave():
    module, grad = nn.LearnedPositionalEncoding(D, max_len=N).double(), signed(rng_of(6), B, 2, D)
    pull(module(X[:, :2], past=3), grad)
    right = np.zeros((N, D))
    right[3:5] = grad.sum(axis=0)
    assert_close(module.weight.grad.numpy(), right, 1e-14)


def test_gradients_after_earlier_positions_are_those_of_the_whole():
    grad = signed(rng_of(7), B, H, N, D)
    grad[:, :, :5] = 0
    results = []
    for first in (0, 5):
        q, k, v = leaf(Q.numpy()[:, :, first:]), leaf(K.numpy()), leaf(V.numpy())
        out = F.scaled_dot_product_attention(q, k, v, mask=masks.causal(N - first, first))
        pull(out, grad[:, :, first:])
        results.append([q.grad.numpy()[:, :, -4:], k.grad.numpy(), v.grad.numpy()])
    for one, other in zip(*results, strict=True):
        assert_close(one, other, 1e-13)


@pytest.mark.parametrize("sizes", [(1,) * N, (4, 1, 4)])
def test_a_bias_of_distances_with_a_cache(sizes):
    module = nn.MultiHeadAttention(*(8,) * 4, H).double()
    x = ta.tensor(signed(rng_of(8), B, N, 8))
    right = module(x, x, x, bias=F.alibi_bias(H, N, dtype=ta.float64), is_causal=True)
    cache, parts = KeyValueCache(grows=True), []
    for size in sizes:
        new = x[:, cache.past : cache.past + size]
        bias = F.alibi_bias(H, size, dtype=ta.float64, past=cache.past)
        parts.append(module(new, new, new, bias=bias, is_causal=True, cache=cache))
    assert_close(ta.cat(parts, 1).numpy(), right.numpy(), 1e-13)


def test_past_is_the_last_argument_so_that_older_calls_mean_the_same():
    for function in (
        F.alibi_bias,
        F.masked_softmax,
        masks.causal,
        nn.PositionalEncoding.forward,
        nn.LearnedPositionalEncoding.forward,
    ):
        assert [*inspect.signature(function).parameters][-1] == "past"


def test_empty_pasts_and_queries():
    assert masks.causal(0, past=3).shape == (1, 0, 3)
    assert F.alibi_bias(H, 0, past=3).shape == (H, 0, 3)
    assert_equal(masks.causal(2, 3).numpy(), np.tri(2, 5, 3, dtype=bool)[None])


def test_rows_of_no_sample_and_a_length_of_one_more_are_refused():
    with pytest.raises(ValueError, match="3 at index 0"):
        F.pack_padded_sequence(ta.ones(1, 2, 1), [3])
    with pytest.raises(ValueError, match="with that sum"):
        F.pad_packed_sequence(ta.ones(3, 1), [2])


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_a_cache_of_any_history_gives_the_rows_of_the_whole(seed: int, recorded: bool) -> None:
    """Several positions a call, samples selected and positions cut off between the calls."""
    draw, rng = random.Random(seed), rng_of(seed)
    layer = nn.EncoderLayer(D, nn.MultiHeadedAttention(2, D, 0.0), nn.PositionwiseFeedForward(D, D))
    model = nn.Encoder(layer, 2).double().eval()
    cache, ids = model.new_cache(), ta.tensor(signed(rng, 3, 0, D))
    with ta.set_grad_enabled(recorded):
        for _ in range(12):
            event = draw.random()
            if event < 0.25:
                rows = [draw.randrange(len(ids)) for _ in range(draw.choice([len(ids)] * 3 + [4]))]
                cache.select(rows)
                ids = ids[rows]
            elif event < 0.45:
                length = draw.randint(0, ids.shape[1] + 2)  # a longer one cuts nothing off
                cache.cut(length)
                ids = ids[:, :length]
            new = ta.tensor(signed(rng, len(ids), draw.choice([1, 1, 2]), D))
            ids = ta.cat([ids, new], 1)
            out = model(new, is_causal=True, cache=cache)
            assert cache.length == ids.shape[1]
            whole = model(ids, is_causal=True)[:, -new.shape[1] :]
            assert_close(out.detach().numpy(), whole.detach().numpy(), 1e-12)


def test_memory_that_is_reserved_holds_all_positions_without_a_copy():
    layer = nn.EncoderLayer(8, nn.MultiHeadedAttention(2, 8), nn.PositionwiseFeedForward(8, 6))
    stack, x = nn.Encoder(layer, 2).eval(), ta.randn(1, 6, 8)
    for length, shared in ((6, True), (5, False), (0, False)):
        cache, stored = stack.new_cache(length), []
        with ta.no_grad():
            for i in range(6):
                stack(x[:, i : i + 1], is_causal=True, cache=cache)
                stored.append([part.stored[which] for part in cache.parts() for which in (0, 1)])
        for first, last in zip(stored[0], stored[-1], strict=True):
            assert np.shares_memory(first._data, last._data) == shared


@pytest.mark.parametrize("recorded", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("length", [0, N])
def test_gradients_reach_the_calls_that_were_recorded(recorded, length):
    """A call after them, under no_grad() or of constants, does not cut them off."""
    cache = KeyValueCache(True, length)
    parts = [leaf(signed(rng_of(i), B, 2, D)) for i in range(3)]
    seen = [
        part if record else part.detach() for part, record in zip(parts, recorded, strict=False)
    ]
    for part in seen:
        cache.store(*cache.joined(part, 2 * part), 2)
    keys, values = cache.joined(parts[2].detach(), parts[2].detach())
    expected = np.concatenate([part.numpy() for part in parts], 1)
    assert_equal(keys.detach().numpy(), expected)
    grad = signed(rng_of(5), B, 6, D)
    pull(keys + values, grad)
    for i, (part, record) in enumerate(zip(parts, recorded, strict=False)):
        if record:
            assert_close(part.grad.numpy(), 3 * grad[:, 2 * i : 2 * i + 2], 1e-14)
        else:
            assert part.grad is None


@pytest.mark.parametrize("which", ["q_norm", "k_norm"])
def test_one_norm_of_heads_works_without_the_other(which):
    """With a cache as in one call, and as the formula says."""
    module = nn.MultiHeadAttention(D, D, D, 8, 2).double()
    norm = nn.RMSNorm(4).double()
    norm.weight = nn.Parameter(ta.tensor(signed(rng_of(7), 4)))
    setattr(module, which, norm)
    q, k, v = (
        layer(X).reshape(B, N, 2, 4).transpose(1, 2)
        for layer in (module.W_q, module.W_k, module.W_v)
    )
    q, k = (norm(q), k) if which == "q_norm" else (q, norm(k))
    heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    right = module.W_o(heads.transpose(1, 2).reshape(B, N, 8)).numpy()
    assert_close(module(X, X, X, is_causal=True).numpy(), right, 1e-13)
    cache = KeyValueCache(True)
    steps = [module(*[X[:, i : i + 3]] * 3, is_causal=True, cache=cache) for i in range(0, N, 3)]
    assert_close(ta.cat(steps, 1).numpy(), right, 1e-13)


@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_the_padding_of_a_first_call_with_a_cache_reaches_no_output_and_no_gradient(grows, number):
    module = nn.MultiHeadAttention(D, D, D, 8, 2).double()
    memory = X.numpy().copy()
    memory[1, 4:] = number
    damaged, lengths, grad = ta.tensor(memory), [N, 4], signed(rng_of(6), B, N, 8)
    outputs, slopes = [], []
    for x, cache in ((X, None), (damaged, KeyValueCache(grows))):
        module.zero_grad()
        outputs.append(module(X, x, x, lengths, cache=cache))
        pull(outputs[-1], grad)
        slopes.append([w.grad.numpy() for w in module.parameters()])
    assert_close(outputs[1].detach().numpy(), outputs[0].detach().numpy(), 1e-13)
    for found, right in zip(slopes[1], slopes[0], strict=True):
        assert_close(found, right, 1e-12)
    if not grows:  # and none of the second call, which takes what was stored
        found = module(X, damaged, damaged, lengths, cache=cache)
        assert_close(found.detach().numpy(), outputs[0].detach().numpy(), 1e-13)
