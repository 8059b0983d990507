"""Variants of attention, each with its law: bias, shared heads, rotary positions, ALiBi, windows.

Values, gradients and refused calls on small arrays are those of the rows in the op table. Here are
sizes of several blocks, where the compiled kernel works, and the laws.
"""

from __future__ import annotations

import importlib
import itertools

import numpy as np
import pytest
from common import (
    assert_close,
    assert_same,
    attention_backward_of,
    attention_of,
    leaf,
    needs_torch,
    pull,
    rng_of,
    signed,
)
from formulas import kernels, reference
from test_tiled_attention import compiled, peak, run

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import masks, nn
from tinyattn.errors import ShapeError
from tinyattn.kernels.visibility import Visibility, of_padded, samples_of
from tinyattn.ops.attention import attention
from tinyattn.ops.visibility import visibility_of

B, H, Q, K, D = 2, 4, 150, 170, 6
DTYPES = [np.float32, np.float64]
CLOSE = {np.float32: 2e-5, np.float64: 1e-12}
both_dtypes = pytest.mark.parametrize("dtype", DTYPES)


def arrays(dtype, groups=H, seed=1, queries=Q, keys=K):
    rng = rng_of(seed)
    shapes = (B, H, queries, D), (B, groups, keys, D), (B, groups, keys, D)
    return [signed(rng, *shape).astype(dtype) for shape in shapes]


def found(inputs, bias=None, seed=3, **options):
    """Output and gradients, the bias's last."""
    leaves = [leaf(x) for x in inputs]
    if bias is not None:
        options["bias"] = leaf(bias)
        leaves.append(options["bias"])
    out = F.scaled_dot_product_attention(*leaves[:3], **options)
    pull(out, signed(rng_of(seed), *out.shape))
    return [out.numpy(), *(x.grad.numpy() for x in leaves)]


def assert_near(actual, expected, tolerance):
    for one, right in zip(actual, expected, strict=True):
        assert one.shape == right.shape
        assert np.abs(one - right).max() <= tolerance * max(1, np.abs(right).max())


OPTIONS = {
    "all keys": {},
    "causal": {"is_causal": True},
    "lengths": {"valid_lens": [0, 133]},
    "a mask": {"mask": rng_of(5).uniform(size=(B, Q, K)) < 0.5},
    "dropout": {"dropout_p": 0.3},
    "a window": {"window": 20},
    "a window behind": {"window": 70, "is_causal": True, "dropout_p": 0.2},
    "a window and lengths": {"window": 40, "valid_lens": [30, 170]},  # late queries see nothing
    "a window and a mask": {"window": 40, "mask": rng_of(6).uniform(size=(B, Q, K)) < 0.03},
}
BIASES = [(), (K,), (Q, 1), (H, 1, 1), (H, 1, K), (H, Q, K), (B, 1, Q, K), (B, H, Q, K)]


@compiled
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("groups", [H, 2, 1])
def test_blocks_agree_with_whole_rows_in_float64(option, groups):
    bias = signed(rng_of(7), H, Q, K).astype(np.float32)
    results = []
    for dtype in DTYPES:
        ta.manual_seed(9)
        inputs = [x.astype(dtype) for x in arrays(np.float32, groups)]
        results.append(found(inputs, bias.astype(dtype), **OPTIONS[option], enable_gqa=groups < H))
    assert_near(*results, 4e-6)
    assert all(np.abs(array).max() > 0.01 for array in results[1])


@compiled
@pytest.mark.parametrize("shape", BIASES)
@pytest.mark.parametrize("option", ["all keys", "a window behind"])
def test_a_bias_of_any_shape(shape, option):
    """In float32 as in float64, and there as one bias with all numbers written out."""
    bias = signed(rng_of(7), *shape).astype(np.float32)
    results = []
    for dtype in DTYPES:
        ta.manual_seed(9)
        inputs = [x.astype(dtype) for x in arrays(np.float32)]
        results.append(found(inputs, np.asarray(bias, dtype), **OPTIONS[option]))
    ta.manual_seed(9)
    whole = found(inputs, np.broadcast_to(bias, (B, H, Q, K)).astype(np.float64), **OPTIONS[option])
    right = whole[-1]
    lead = right.ndim - bias.ndim
    axes = [*range(lead), *(lead + i for i, n in enumerate(shape) if n == 1)]
    whole[-1] = right.sum(axis=tuple(axes)).reshape(shape)
    assert_near(results[1], whole, 1e-12)
    assert_near(results[0], results[1], 1e-5)


@both_dtypes
def test_a_number_for_a_whole_row_of_scores_changes_nothing(dtype):
    """A softmax does not notice it; and so its gradient is 0."""
    inputs = arrays(dtype)
    out, *grads, dbias = found(inputs, signed(rng_of(8), B, H, Q, 1).astype(dtype))
    assert_near([out, *grads], found(inputs), CLOSE[dtype])
    assert np.abs(dbias).max() < CLOSE[dtype]


@both_dtypes
def test_a_bias_of_minus_infinity_hides_as_a_mask_does(dtype):
    """As attn_mask it is a mask: an empty row is zero, and NaN of a hidden key has no influence."""
    inputs = arrays(dtype)
    visible = rng_of(9).uniform(size=(Q, K)) < 0.5
    visible[3], visible[:, 7] = False, False
    inputs[1][:, :, 7], inputs[2][:, :, 7] = np.nan, np.nan
    numbers = ta.tensor(np.where(visible, 0, -np.inf).astype(dtype))
    for attn_mask in (numbers, ta.tensor(visible), visible):
        for one, right in zip(
            found(inputs, attn_mask=attn_mask), found(inputs, mask=visible[None]), strict=True
        ):
            assert np.isfinite(one).all()
            np.testing.assert_array_equal(one, right)


@compiled
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"window": 3}])
def test_what_is_not_finite_in_a_bias_goes_where_it_is_seen(value, options):
    """NaN at the pair (4, 2) concerns query 4 and the keys that it sees; all else is as ever."""
    for place in ((4, 2), (1, 8)):  # the second is invisible, unless nothing is
        results = []
        for dtype in DTYPES:
            inputs = [x.astype(dtype) for x in arrays(np.float32, queries=9, keys=9)]
            bias = signed(rng_of(7), 9, 9).astype(np.float32).astype(dtype)
            bias[place] = value
            with np.errstate(all="ignore"):
                results.append(found(inputs, bias, **options))
        for one, right in zip(*results, strict=True):
            np.testing.assert_array_equal(np.isfinite(one), np.isfinite(right))
            fine = np.isfinite(right)
            assert np.abs(one[fine] - right[fine]).max(initial=0) < 1e-5
        if options and place == (1, 8):
            assert all(np.isfinite(array).all() for array in results[0])


# Shared heads of keys


@both_dtypes
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("option", ["all keys", "causal", "lengths", "a window behind"])
def test_shared_heads_equal_repeated_heads(groups, option, dtype):
    """In gradients a shared head has the sum over those that share it."""
    options = OPTIONS[option] | {"dropout_p": 0.0}
    q, k, v = arrays(dtype, groups)
    out, dq, dk, dv = found((q, k, v), **options, enable_gqa=True)
    whole = found((q, *(x.repeat(H // groups, axis=1) for x in (k, v))), **options)
    summed = [x.reshape(B, groups, H // groups, K, D).sum(axis=2) for x in whole[2:]]
    assert_near([out, dq, dk, dv], [*whole[:2], *summed], CLOSE[dtype])


@both_dtypes
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_module_with_shared_heads_is_one_with_equal_heads(groups, dtype):
    shared = nn.MultiHeadAttention(8, 8, 8, 8, H, bias=True, num_kv_heads=groups).to(dtype)
    whole = nn.MultiHeadAttention(8, 8, 8, 8, H, bias=True).to(dtype)
    state = shared.state_dict()
    for name in ("W_k", "W_v"):
        for part in ("weight", "bias"):
            x = state[f"{name}.{part}"].numpy().reshape(groups, 2, -1)
            assert x.size == (16 * groups if part == "weight" else 2 * groups)
            x = x.repeat(H // groups, axis=0)
            state[f"{name}.{part}"] = x.reshape((8, 8) if part == "weight" else 8)
    whole.load_state_dict({name: ta.tensor(x) for name, x in state.items()})
    x = ta.tensor(signed(rng_of(2), 3, 9, 8).astype(dtype))
    options = {"valid_lens": [9, 0, 4], "is_causal": True}
    results = [
        [m(x, x, x, **options).numpy(), m.attention_weights.numpy()] for m in (shared, whole)
    ]
    assert_near(*results, CLOSE[dtype])
    packed = F.pack_padded_sequence(x, [9, 0, 4])
    out = shared(packed, packed, packed, valid_lens=[9, 0, 4], is_causal=True)
    again = F.pack_padded_sequence(ta.tensor(results[0][0]), [9, 0, 4])
    assert_near([out.numpy()], [again.numpy()], CLOSE[dtype])


@pytest.mark.parametrize("groups", [1, 2])
def test_second_derivatives_where_heads_share_keys(groups):
    """(B, N, H d) and (B, N, G d), as a module gives them; keys and values of another width."""
    ta.manual_seed(0)
    module = nn.MultiHeadAttention(3, 3, 3, 8, 4, num_kv_heads=groups).double()
    q, k = (ta.randn(2, n, 3, dtype=ta.float64, requires_grad=True) for n in (2, 3))
    v = ta.randn(2, 3, 3, dtype=ta.float64, requires_grad=True)
    for options in ({}, {"valid_lens": [3, 1]}):
        call = lambda q, k, v, o=options: module(q, k, v, **o)  # noqa: E731
        assert ta.gradgradcheck(call, [q, k, v], fast=True)
    settings = {"heads": (4, groups), "scale": 0.7}
    settings["visibility"] = Visibility(samples_of((3, 3)), samples_of((3, 3)))
    widths = 4 * 2, groups * 2, groups * 3
    rows = [ta.randn(2, 3, n, dtype=ta.float64, requires_grad=True) for n in widths]
    assert ta.gradgradcheck(lambda *rows: attention(*rows, **settings), rows, fast=True)


def test_heads_that_do_not_share_evenly_are_refused():
    for number in (3, 8, 0):
        with pytest.raises(ValueError, match="num_kv_heads"):
            nn.MultiHeadedAttention(4, 8, num_kv_heads=number)


# Rotary positions and ALiBi


@both_dtypes
@pytest.mark.parametrize("shift", [1, 7, 500])
def test_rotary_scores_depend_on_distances_only(shift, dtype):
    q, k, _ = arrays(dtype, queries=20, keys=30)
    results = []
    for first in (0, shift):
        turned = [
            F.rotary_embedding(ta.tensor(x), np.arange(first, first + x.shape[2])) for x in (q, k)
        ]
        results.append((turned[0] @ turned[1].transpose(-2, -1)).numpy())
    assert_near(results[:1], results[1:], {np.float32: 2e-4, np.float64: 1e-11}[dtype])
    still = (ta.tensor(q) @ ta.tensor(k).transpose(-2, -1)).numpy()
    assert np.abs(results[0] - still).max() > 0.1  # they do depend on them


@both_dtypes
def test_rotary_keeps_lengths_and_position_0(dtype):
    x = arrays(dtype)[0]
    turned = nn.RotaryEmbedding(D)(ta.tensor(x)).numpy()
    np.testing.assert_array_equal(turned[:, :, 0], x[:, :, 0])
    lengths = [np.linalg.norm(y.astype(np.float64), axis=-1) for y in (turned, x)]
    assert_near(lengths[:1], lengths[1:], CLOSE[dtype])


def test_rotary_refuses_what_has_no_pairs():
    with pytest.raises(ValueError, match="RotaryEmbedding turns pairs: width is even, got 5"):
        nn.RotaryEmbedding(5)
    with pytest.raises(ValueError, match=r"x \(..., N, 4\), got \(2, 6\)"):
        nn.RotaryEmbedding(4)(ta.ones(2, 6))


def test_alibi_is_the_papers_and_shifts_with_the_sequence():
    """Slopes 1/2, 1/4, ..., 1/256 for eight heads; only distances count."""
    bias = F.alibi_bias(8, 5, 9).numpy()
    assert bias.shape == (8, 5, 9)
    assert bias.dtype == np.float32
    np.testing.assert_array_equal(bias[:, 0, 1], -(0.5 ** np.arange(1, 9)))
    np.testing.assert_array_equal(bias[:, 1:, 1:], bias[:, :-1, :-1])
    np.testing.assert_array_equal(bias[:, :, :5], bias[:, :, :5].swapaxes(1, 2))
    assert F.alibi_bias(2, 3, dtype=ta.float64).dtype == np.float64
    for wrong in ((0, 3), (2, -1), (2, 3, 0.5)):
        with pytest.raises((ValueError, TypeError), match=r"num_heads|queries|keys"):
            F.alibi_bias(*wrong)


# Windows


@both_dtypes
@pytest.mark.parametrize("window", [1, 2, 63, 64, 65, 200])
@pytest.mark.parametrize("is_causal", [False, True])
def test_a_window_is_the_mask_that_says_the_same(window, is_causal, dtype):
    distance = np.arange(Q)[:, None] - np.arange(K)
    near = (distance < window) & (distance > (-1 if is_causal else -window))
    inputs = arrays(dtype)
    bias = signed(rng_of(7), H, Q, K).astype(dtype)
    expected = found(inputs, bias, mask=near[None])
    assert_near(found(inputs, bias, window=window, is_causal=is_causal), expected, CLOSE[dtype])
    out, weights = F.scaled_dot_product_attention(
        *map(ta.tensor, inputs), window=window, is_causal=is_causal, return_weights=True
    )
    assert ((weights.numpy() > 0) == near).all()
    plain = F.scaled_dot_product_attention(*map(ta.tensor, inputs), mask=near[None])
    assert_near([out.numpy()], [plain.numpy()], CLOSE[dtype])


@both_dtypes
def test_what_is_outside_a_window_has_no_influence(dtype):
    """Not even NaN; and its gradient is 0."""
    inputs = arrays(dtype, queries=K)
    clean = found(inputs, window=5)
    far = [x.copy() for x in inputs]
    far[1][:, :, 100:], far[2][:, :, 100:] = np.nan, np.inf
    with np.errstate(all="ignore"):
        out, dq, _, _ = found(far, window=5)
    assert_near([out[:, :, :96], dq[:, :, :96]], [x[:, :, :96] for x in clean[:2]], CLOSE[dtype])
    assert not np.isfinite(out[:, :, 96:]).any()
    leaves = [leaf(x) for x in inputs]
    F.scaled_dot_product_attention(*leaves, window=5)[:, :, :50].sum().backward()
    assert all((x.grad.numpy()[:, :, 54:] == 0).all() for x in leaves[1:])


@both_dtypes
def test_a_window_in_a_module_padded_and_packed(dtype):
    attend = nn.MultiHeadedAttention(2, 8, 0.0, window=3).to(dtype)
    x = ta.tensor(signed(rng_of(4), 3, 90, 8).astype(dtype))
    lens = [90, 5, 70]
    distance = np.abs(np.arange(90)[:, None] - np.arange(90))
    whole = nn.MultiHeadedAttention(2, 8, 0.0).to(dtype)
    whole.load_state_dict(attend.state_dict())
    right = whole(x, x, x, valid_lens=lens, mask=(distance < 3)[None])
    out = attend(x, x, x, valid_lens=lens)
    assert_near([out.numpy()], [right.numpy()], CLOSE[dtype])
    weights = [m.attention_weights.numpy() for m in (attend, whole)]
    assert_near(weights[:1], weights[1:], CLOSE[dtype])
    packed = F.pack_padded_sequence(x, lens)
    packed = attend(packed, packed, packed, valid_lens=lens)
    assert_near([packed.numpy()], [F.pack_padded_sequence(out, lens).numpy()], CLOSE[dtype])


def test_window_limits_after_earlier_positions():
    """The queries of a step come after `past` positions; the last three keys are visible."""
    found = visibility_of((1, 1, 2, 12), is_causal=True, window=3, past=10)
    np.testing.assert_array_equal(found.limits, [[11, 12]])
    np.testing.assert_array_equal(found.starts, [[8, 9]])
    assert visibility_of((1, 1, 2, 12)).starts is None


@compiled
@pytest.mark.parametrize("limits", [None, np.array([[90]])])
def test_starts_of_one_query_or_one_for_all(limits):
    """A step of a decoder: limits and starts have one column."""
    q, k, v = arrays(np.float32, queries=1, keys=90)
    grad = signed(rng_of(3), *q.shape).astype(np.float32)
    hidden = {"limits": limits, "starts": np.array([[84]])}
    settings = of_padded((B, H, 1, 90), **hidden), 0.4, reference.NO_DROP
    rows = [x.swapaxes(1, 2).reshape(-1, H, D) for x in (q, k, v)]
    dout = grad.swapaxes(1, 2).reshape(-1, H, D)
    out, saved = kernels.attention(*rows, settings)
    grads = kernels.attention_backward(dout, *rows, settings, None, saved)
    near = (None, None, 0.4, 0.0, 0)
    right, kept = attention_of(reference, q, k[:, :, 84:], v[:, :, 84:], *near)
    back = attention_backward_of(reference, grad, q, k[:, :, 84:], v[:, :, 84:], *near, kept)
    heads = [x.reshape(B, -1, H, D).swapaxes(1, 2) for x in (out, *grads)]
    assert all((x[:, :, :84] == 0).all() for x in heads[2:])
    assert_near([*heads[:2], *(x[:, :, 84:] for x in heads[2:])], [right, *back], 1e-5)


@compiled
def test_memory_of_a_window_is_linear_in_the_length(same_threads_afterwards):
    ta.set_num_threads(1)
    peaks = []
    for length in (512, 1024, 2048):
        rng = rng_of(1)
        leaves = [leaf(signed(rng, 1, 2, length, 16).astype(np.float32)) for _ in range(3)]
        grad = ta.tensor(signed(rng, 1, 2, length, 16).astype(np.float32))
        peaks.append(peak(lambda x=leaves, g=grad: run(x, g, window=32, is_causal=True)))
    assert peaks[2] < 2.2 * peaks[1] < 4.84 * peaks[0]


@compiled
def test_a_window_computes_few_scores():
    """The kernel multiplies a block of queries by the keys of its window only: time is linear."""
    counted = []
    kernel = importlib.import_module("tinyattn.kernels.cpu.tiled_attention")
    block = importlib.import_module("tinyattn.kernels.cpu.attention_blocks")
    for length in (512, 1024):
        _, _, limits, _, starts, _ = visibility_of((1, 1, length, length), window=20)
        ranges = kernel.ranges_of(limits, starts)
        head = block.Head(0, 0, 0, 0, length, 0, length, block.BLOCK)
        blocks = [block.block_of(head, i, ranges) for i in range(0, length, block.BLOCK)]
        counted.append(sum(b.end - b.begin for b in blocks))
    assert counted[1] < 2.1 * counted[0]
    assert counted[0] < 512 / block.BLOCK * (block.BLOCK + 40)


# A bias and a gate in modules


@both_dtypes
def test_a_module_adds_a_bias_to_its_scores(dtype):
    """A learned bias of distances: output, weights and gradient, padded and packed."""
    attend = nn.MultiHeadedAttention(2, 8, 0.0).to(dtype)
    x = ta.tensor(signed(rng_of(4), 2, 6, 8).astype(dtype))
    table = leaf(signed(rng_of(5), 2, 11).astype(dtype))  # (H, 2 N - 1)
    distance = np.arange(6)[:, None] - np.arange(6) + 5
    grad = ta.tensor(signed(rng_of(6), 2, 6, 8).astype(dtype))
    out = attend(x, x, x, bias=table[:, distance], valid_lens=[6, 4])
    q, k, v = (
        w(x).reshape(2, 6, 2, 4).transpose(1, 2) for w in (attend.W_q, attend.W_k, attend.W_v)
    )
    scores = q @ k.transpose(-2, -1) / 2 + table[:, distance]
    weights = F.masked_softmax(scores, valid_lens=[6, 4])
    right = attend.W_o((weights @ v).transpose(1, 2).flatten(2))
    assert_near([attend.attention_weights.numpy()], [weights.numpy()], CLOSE[dtype])
    grads = [ta.grad(y, [table], grad, retain_graph=True)[0].numpy() for y in (out, right)]
    assert_near([out.numpy(), grads[0]], [right.numpy(), grads[1]], CLOSE[dtype])
    packed = F.pack_padded_sequence(x, [6, 4])
    again = attend(packed, packed, packed, bias=table[:, distance], valid_lens=[6, 4])
    assert_near([again.numpy()], [F.pack_padded_sequence(out, [6, 4]).numpy()], CLOSE[dtype])


def test_recorded_weights_do_not_change_with_the_bias():
    attend = nn.MultiHeadedAttention(1, 4, 0.0)
    bias, x = ta.zeros(3, 3), ta.randn(1, 3, 4)
    attend(x, x, x, bias=bias)
    weights = attend.attention_weights.numpy()
    attend(x, x, x, bias=bias)
    bias[:] = 5 * ta.eye(3)
    assert_same(attend.attention_weights.numpy(), weights)


@both_dtypes
def test_swiglu_is_a_gated_feed_forward(dtype):
    module = nn.SwiGLU(4, 6, 0.0).to(dtype)
    x = signed(rng_of(4), 5, 4).astype(dtype)
    w1, w2, w3 = (getattr(module, name).weight.numpy().astype(np.float64) for name in
                  ("w_1", "w_2", "w_3"))  # fmt: skip
    gate = x @ w1.T
    right = (gate / (1 + np.exp(-gate)) * (x @ w3.T)) @ w2.T
    assert_near([module(ta.tensor(x)).numpy()], [right], CLOSE[dtype])
    assert sum(p.numel() for p in module.parameters()) == 3 * 24
    assert module(ta.zeros(0, 4, dtype=dtype)).shape == (0, 4)


def test_a_key_that_no_query_sees_is_not_called_seen():
    """Only then keys and values need not be searched for NaN that nobody may see."""
    calls = itertools.product((1, 3, 5), (0, 2), (None, [2]), (None, np.eye(5) > 0), (None, 2))
    seen = 0
    for queries, past, lens, mask, window in calls:
        shape = (1, 1, queries, 5)
        mask = None if mask is None else mask[None, :queries]
        visibility = visibility_of(shape, lens, mask, True, window, past=past)
        pairs = visibility.visible_pairs(np.ones(0))
        each = pairs is None or np.broadcast_to(pairs, shape).any(axis=2).all()
        assert each or not visibility.each_key_seen
        assert not visibility.and_mask(np.zeros(shape, np.bool_)).each_key_seen
        seen += visibility.each_key_seen
    assert seen == 3  # of causality alone: 5 queries, 5 after 2 others, and 3 after 2


# Any number of dimensions in front, against PyTorch


def random_attention(rng):
    """Inputs that broadcast in front, some with heads in groups, and a mask, as arrays."""
    sizes = rng.integers(1, 4, rng.integers(0, 5)).tolist()
    (queries, keys, width, out), n = rng.integers(1, 5, 4).tolist(), len(sizes)

    def lead():
        cut = int(rng.integers(0, n + 1)) if rng.random() < 0.3 else 0
        return [1 if rng.random() < 0.25 else size for size in sizes][cut:]

    leads, options = [lead(), lead(), lead()], {"is_causal": bool(rng.random() < 0.2)}
    if leads[0] and leads[1] and rng.random() < 0.25:
        options["enable_gqa"] = True
        leads[2] = leads[1]
        leads[1][-1] = int(rng.integers(1, 3))
        leads[0][-1] = leads[1][-1] * int(rng.integers(1, 3))
    shapes = zip(leads, ((queries, width), (keys, width), (keys, out)), strict=True)
    inputs = [signed(rng, *before, *matrix) for before, matrix in shapes]
    mask = None
    if not options["is_causal"] and rng.random() < 0.7:
        of_mask = [size if rng.random() < 0.6 else 1 for size in (*sizes, queries, keys)]
        mask = signed(rng, *of_mask[int(rng.integers(0, len(of_mask) + 1)) :])
        mask = mask > -0.5 if rng.random() < 0.5 else mask
    return inputs, mask, options


@needs_torch
@pytest.mark.parametrize("seed", range(4))
def test_it_takes_what_pytorchs_takes(seed):
    """(N, d), several dimensions of samples, and samples that broadcast; gradients included."""
    import torch

    rng, compared = np.random.default_rng(seed), 0
    for _ in range(150):
        inputs, mask, options = random_attention(rng)
        theirs = [torch.tensor(x, requires_grad=True) for x in inputs]
        ours = [leaf(x) for x in inputs]
        if mask is not None:
            theirs.append(torch.tensor(mask, requires_grad=mask.dtype != bool))
            ours.append(ta.tensor(mask, requires_grad=mask.dtype != bool))
        try:
            right = torch.nn.functional.scaled_dot_product_attention(*theirs, **options)
        except (RuntimeError, IndexError):
            continue
        named = dict(zip(("query", "key", "value", "attn_mask"), ours, strict=False))
        out = F.scaled_dot_product_attention(**named, **options)
        assert out.shape == tuple(right.shape)
        if right.isnan().any():  # a query without a visible key: zeros here
            continue
        compared += 1
        assert_close(out.numpy(), right.detach().numpy(), 1e-10)
        _, weights = F.scaled_dot_product_attention(**named, **options, return_weights=True)
        assert weights.shape == (*out.shape[:-1], inputs[1].shape[-2])
        grad = signed(rng, *out.shape)
        pull(out, grad)
        right.backward(torch.tensor(grad))
        for x, t in zip(ours, theirs, strict=True):
            if t.requires_grad:
                expected = np.zeros(t.shape) if t.grad is None else t.grad.numpy()
                np.testing.assert_allclose(x.grad.numpy(), expected, atol=1e-10)
    assert compared > 90


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        (((4,), (5, 4), (5, 4)), r"query \(\.\.\., Q, d\)"),
        (((2, 3, 4), (3, 5, 4), (3, 5, 4)), "same samples"),
        (((2, 4, 3, 4), (2, 2, 5, 4), (2, 2, 5, 4)), "enable_gqa=True"),
        (((2, 2, 2, 3, 4), (3, 1, 1, 5, 4), (5, 4)), "or 1 in their place"),
    ],
)
def test_dimensions_in_front_that_do_not_broadcast_are_refused(shapes, words):
    with pytest.raises(ShapeError, match=words):
        F.scaled_dot_product_attention(*(ta.zeros(shape) for shape in shapes))


def test_valid_lens_and_mask_count_samples_of_all_dimensions_in_front():
    rng = rng_of(5)
    q, k, v = (ta.tensor(signed(rng, 2, 3, 2, 4, 4)) for _ in range(3))
    lens = np.array([4, 1, 2, 3, 0, 4])
    flat = [x.reshape(6, 2, 4, 4) for x in (q, k, v)]
    right = F.scaled_dot_product_attention(*flat, valid_lens=lens).reshape(q.shape)
    for options in ({"valid_lens": lens}, {"mask": masks.from_valid_lens(lens, 4)}):
        assert_same(F.scaled_dot_product_attention(q, k, v, **options).numpy(), right.numpy())


@pytest.mark.parametrize("lead", [(), (2,), (2, 4), (3, 2, 4)])
def test_groups_of_one_head_are_as_without_them(lead):
    """Inputs without heads have one."""
    q, k, v = (ta.tensor(signed(rng_of(i), *lead, 5, 3)) for i in range(3))
    right = F.scaled_dot_product_attention(q, k, v)
    found = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    assert found.shape == right.shape
    assert_close(found.numpy(), right.numpy(), 1e-13)


@pytest.mark.parametrize("of_key", [1, 2, 3, 4])
@pytest.mark.parametrize("of_value", [1, 2, 3, 4])
def test_keys_and_values_have_as_many_groups(of_key, of_value):
    """Or 1 and all, which broadcast."""
    q = ta.tensor(signed(rng_of(0), 2, 4, 5, 3))
    k, v = (ta.tensor(signed(rng_of(i), 2, n, 5, 3)) for i, n in ((1, of_key), (2, of_value)))
    if of_key == of_value != 3 or {of_key, of_value} <= {1, 4}:
        repeated = [x.numpy().repeat(4 // n, 1) for x, n in ((k, of_key), (v, of_value))]
        right = F.scaled_dot_product_attention(q, *map(ta.tensor, repeated))
        found = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        assert_close(found.numpy(), right.numpy(), 1e-13)
    else:
        with pytest.raises(ShapeError, match="must have the same samples"):
            F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
