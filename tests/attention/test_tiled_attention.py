"""Attention in tiles: whole rows in float64 agree, and memory grows with the length only."""

from __future__ import annotations

import os
import tracemalloc

import numpy as np
import pytest
from common import attention_backward_of, attention_of, signed
from formulas import kernels, reference

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn
from tinyattn.base.random import Drop
from tinyattn.kernels.compiled import cpu_kernels
from tinyattn.ops.visibility import visibility_of

compiled = pytest.mark.skipif(
    cpu_kernels() is None or os.environ.get("NUMBA_DISABLE_JIT") == "1",
    reason="the tiled loops are not compiled here; as plain Python they would take minutes",
)


def inputs(batch, heads, queries, keys, width, seed=0):
    rng = np.random.default_rng(seed)
    shapes = [(batch, heads, n, width) for n in (queries, keys, keys)]
    leaves = [ta.tensor(signed(rng, *s).astype(np.float32), requires_grad=True) for s in shapes]
    return leaves, ta.tensor(signed(rng, *shapes[0]).astype(np.float32))


def run(leaves, gradient, seed=None, **options):
    """The output and the three gradients."""
    if seed is not None:
        ta.manual_seed(seed)
    out = F.scaled_dot_product_attention(*leaves, **options)
    return [out.numpy(), *(g.numpy() for g in ta.grad(out, leaves, gradient))]


CASES = {
    "plain": {},
    "causal": {"is_causal": True},
    "padded": {"valid_lens": [3, 130, 0]},
    "dropout": {"dropout_p": 0.3, "seed": 5},
    "a length per query": {
        "valid_lens": np.random.default_rng(1).integers(0, 301, (3, 290)),
        "is_causal": True,
    },
    "mask": {"mask": np.random.default_rng(2).uniform(size=(3, 290, 300)) < 0.4},
    "mask of keys, and dropout": {
        "mask": np.random.default_rng(3).uniform(size=(3, 300)) < 0.4, "dropout_p": 0.2, "seed": 6,
    },
}  # fmt: skip


@compiled
@pytest.mark.parametrize("case", CASES)
def test_tiles_agree_with_whole_rows_in_float64(case):
    """Sizes of several tiles in every direction, none of them full at the end."""
    leaves, gradient = inputs(3, 2, 290, 300, 6)
    wide = [ta.tensor(x.numpy().astype(np.float64), requires_grad=True) for x in leaves]
    found = run(leaves, gradient, **CASES[case])
    expected = run(wide, ta.tensor(gradient.numpy().astype(np.float64)), **CASES[case])
    for actual, exact in zip(found, expected, strict=True):
        assert np.abs(actual - exact).max() <= 4e-6 * max(1, np.abs(exact).max())
        assert np.abs(exact).max() > 0.01


ONE_QUERY = {
    "plain": {},
    "padded": {"valid_lens": [3, 40, 0]},
    "mask": {"mask": np.random.default_rng(2).uniform(size=(3, 40)) < 0.4},
    "nothing": {"mask": np.arange(3)[:, None] > np.arange(2, 42) % 2},
    "window": {"is_causal": True, "window": 7, "past": 39},
    "window and mask": {
        "is_causal": True, "window": 20, "past": 39,
        "mask": np.random.default_rng(3).uniform(size=(3, 4, 1, 40)) < 0.4,
    },
}  # fmt: skip


@compiled
@pytest.mark.parametrize("p", [0.0, 0.4])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("case", ONE_QUERY)
def test_one_query_of_each_sample_sees_what_it_should(case, has_bias, p):
    """It has a kernel of its own; backward is that of blocks. Two heads share keys."""
    rng = np.random.default_rng(4)
    shapes = (3, 4, 6), (120, 2, 6), (120, 2, 5), (3, 4, 1, 40), (3, 4, 5)
    arrays = [signed(rng, *shape).astype(np.float32) for shape in shapes]
    wide = [x.astype(np.float64) for x in arrays]
    options = visibility_of((3, 4, 1, 40), **ONE_QUERY[case]), 0.5, Drop(p, 9)
    found, exact = [], []
    for (*qkv, bias, grad), results in ((arrays, found), (wide, exact)):
        bias = bias if has_bias else None
        out, saved = kernels.attention(*qkv, options, bias)
        results += [out, *kernels.attention_backward(grad, *qkv, options, bias, saved)]
    for one, right in zip(found, exact, strict=True):
        assert np.abs(one - right).max() <= 4e-6 * max(1, np.abs(right).max())


@compiled
def test_the_weight_of_a_key_alone_has_no_gradient():
    """It is 1, but only if backward computes the same scores as forward, to the last bit."""
    rng = np.random.default_rng(5)
    q, k, v, grad = (ta.tensor(signed(rng, 9, 4, 1, 48).astype(np.float32)) for _ in range(4))
    q.requires_grad = k.requires_grad = True
    F.scaled_dot_product_attention(q, k, v).backward(grad)
    assert not q.grad.any()
    assert not k.grad.any()


@compiled
def test_padding_of_the_keys_changes_no_bit():
    """A block of another width would add up the gradients of five keys in another order."""
    leaves, gradient = inputs(2, 2, 40, 60, 16)
    q, k, v = leaves
    short = [q, *(ta.tensor(x.numpy()[:, :, :5], requires_grad=True) for x in (k, v))]
    padded, cut = (run(x, gradient, valid_lens=[5, 3]) for x in (leaves, short))
    for one, other in zip(padded, cut, strict=True):
        np.testing.assert_array_equal(one[:, :, : other.shape[2]], other)


@compiled
@pytest.mark.parametrize("queries", [1, 3])  # one query has a kernel of its own
def test_small_weights_of_many_keys_add_up(queries):
    """Each small exponential is half of what float32 loses beside 1; 4,095 of them are not."""
    scores = np.full((1, 4096, 1), -25 * np.log(2), np.float32)
    scores[0, 0] = 0
    ones = np.ones((1, queries, 1), np.float32)
    q, k, v = (ta.tensor(x) for x in (ones, scores, np.ones_like(scores)))
    out = F.scaled_dot_product_attention(q, k, v).numpy()
    assert np.abs(out - 1).max() < 1e-6


@compiled
@pytest.mark.parametrize("level", [-3000.0, 3000.0])
def test_a_number_added_to_all_scores_changes_nothing(level):
    """As in softmax, where the maximum is subtracted: exp(-3000) alone is 0, exp(3000) is inf."""
    rng = np.random.default_rng(7)
    scores = (rng.integers(-8, 9, (1, 1, 20, 1)) / 4).astype(np.float32)
    keys = np.concatenate([scores, np.ones_like(scores)], axis=-1)
    values = ta.tensor(signed(rng, 1, 1, 20, 3).astype(np.float32))
    for options in ({}, {"valid_lens": [7]}, {"mask": [[True, False] * 10]}):
        found = []
        for added in (0.0, level):
            leaves = ta.tensor([[[[1.0, added]]]]), ta.tensor(keys), values
            found.append(F.scaled_dot_product_attention(*leaves, scale=1.0, **options).numpy())
        np.testing.assert_array_equal(*found)


def peak(function):
    """The most bytes that NumPy held for a call, beyond what it held before."""
    function()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        function()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@compiled
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"dropout_p": 0.1}])
def test_memory_is_linear_in_the_length(options, same_threads_afterwards):
    """Forward and backward, graph, scratch and all: no array of queries by keys is made."""
    ta.set_num_threads(1)  # each has scratch of its own
    peaks = []
    for length in (512, 1024, 2048):
        leaves, gradient = inputs(1, 2, length, length, 16)
        peaks.append(peak(lambda x=leaves, g=gradient: run(x, g, seed=1, **options)))
    one_array = leaves[0].numpy().nbytes
    assert peaks[2] < 16 * one_array  # of which there are 128 in the two heads' scores
    assert peaks[2] < 2.2 * peaks[1] < 4.84 * peaks[0]


@compiled
def test_memory_of_a_module_is_linear_in_the_length():
    ta.set_num_threads(1)
    attention = nn.MultiHeadAttention(16, 16, 16, 16, 2, dropout=0.1)
    peaks = []
    for length in (512, 1024, 2048):
        x = ta.randn(1, length, 16, requires_grad=True)
        gradient = ta.randn(1, length, 16)

        def step(x=x, gradient=gradient, length=length):
            attention(x, x, x, valid_lens=[length - 3], is_causal=True).backward(gradient)

        peaks.append(peak(step))
    assert peaks[2] < 2.2 * peaks[1] < 4.84 * peaks[0]
    assert attention.attention_weights.shape == (1, 2, 2048, 2048)  # computed when read


@compiled
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("which", range(4))
def test_nan_and_inf_go_exactly_where_they_are_seen(which, value):
    """In queries, keys, values or the gradient: as the float64 reference has it."""
    rng = np.random.default_rng(4)
    q, k, v, grad = (signed(rng, 1, 2, 9, 5) for _ in range(4))
    for limits, mask in (
        (np.arange(1, 10)[None], None),
        (None, rng.uniform(size=(1, 1, 9, 9)) < 0.5),
    ):
        arrays = [q.copy(), k.copy(), v.copy(), grad.copy()]
        arrays[which][0, 0, 4, 2] = value
        settings = (limits, mask, 0.7, 0.0, 0)
        results = []
        with np.errstate(all="ignore"):
            for dtype in (np.float32, np.float64):
                q_, k_, v_, grad_ = (a.astype(dtype) for a in arrays)
                out, saved = attention_of(kernels, q_, k_, v_, *settings)
                back = attention_backward_of(kernels, grad_, q_, k_, v_, *settings, saved)
                results.append((out, *back))
        for actual, exact in zip(*results, strict=True):
            assert (np.isfinite(actual) == np.isfinite(exact)).all()
            sound = np.isfinite(exact)
            assert np.abs(actual[sound] - exact[sound]).max() < 1e-5
        assert any(not np.isfinite(array).all() for array in results[0])


@compiled
def test_a_row_of_nothing_but_minus_infinity_is_undefined_and_an_empty_row_zero():
    q = np.ones((1, 1, 3, 4), np.float32)
    k, v = np.full((1, 1, 2, 4), -np.inf, np.float32), np.ones((1, 1, 2, 4), np.float32)
    for module in (kernels, reference):
        with np.errstate(all="ignore"):
            settings = (np.array([[2, 0, 1]]), None, 1.0, 0.0, 0)
            out, saved = attention_of(module, q, k, v, *settings)
            dq, dk, dv = attention_backward_of(module, q, q, k, v, *settings, saved)
        assert np.isnan(out[0, 0, [0, 2]]).all()
        assert (out[0, 0, 1] == 0).all()
        assert np.isnan(dq[0, 0, [0, 2]]).all()
        assert (dq[0, 0, 1] == 0).all()
        assert np.isnan(dk).all()
        assert np.isnan(dv).all()
