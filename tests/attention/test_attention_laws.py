"""Laws that every attention obeys, whatever its scores: what must not matter does not matter.

Training accuracy shows next to nothing of this (a model that leaks, or mixes samples up, still
learns), so each law is tested on every attention module, on the functions beneath, and in float32
(compiled kernels) as well as float64.
"""

from __future__ import annotations

import contextlib
import warnings

import numpy as np
import pytest
from common import (
    assert_all_zero,
    assert_close,
    assert_equal,
    assert_same,
    leaf,
    pull,
    random_parameters,
    rng_of,
    signed,
)

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import masks, nn

B, H, Q, K, D, E = 3, 2, 4, 6, 6, 6

# Attention of queries, keys and values: how to make it, and the shape of queries.


def scaled_dot_product(dtype):
    return F.scaled_dot_product_attention


def scaled_dot_product_by_heads(dtype):
    """Arrays stay (B, N, D) outside; the function sees (B, H, N, D / H)."""

    def split(x):
        return x.reshape(*x.shape[:2], H, x.shape[2] // H).permute(0, 2, 1, 3)

    def call(q, k, v, **options):
        out = F.scaled_dot_product_attention(split(q), split(k), split(v), **options)
        return out.permute(0, 2, 1, 3).reshape(*q.shape[:2], v.shape[2])

    return call


def module_of(make):
    def build(dtype):
        return random_parameters(make().to(dtype), rng_of(1))

    return build


CROSS = {
    "function": scaled_dot_product,
    "function_heads": scaled_dot_product_by_heads,
    "dot_product": module_of(nn.DotProductAttention),
    "additive": module_of(lambda: nn.AdditiveAttention(D, D, 5)),
    "multi_head": module_of(lambda: nn.MultiHeadAttention(D, D, E, D, H, bias=True)),
    "multi_headed": module_of(lambda: nn.MultiHeadedAttention(H, D, 0.0)),
    "multi_query": module_of(lambda: nn.MultiHeadedAttention(H, D, 0.0, num_kv_heads=1)),
}


def layer(norm):
    return nn.EncoderLayer(
        D,
        nn.MultiHeadedAttention(H, D, 0.0),
        nn.PositionwiseFeedForward(D, 8, 0.0, "gelu"),
        dropout=0.0,
        norm=norm,
    )


# Attention of one sequence to itself.
SELF = {
    "self_attention": module_of(lambda: nn.SelfAttention(D, D)),
    "layer_pre": module_of(lambda: layer("pre")),
    "layer_post": module_of(lambda: layer("post")),
    "encoder_pre": module_of(lambda: nn.Encoder(layer("pre"), 2)),
    "encoder_post": module_of(lambda: nn.Encoder(layer("post"), 2)),
}

DTYPES = [np.float32, np.float64]
# For results that are mathematically, not bitwise, equal.
CLOSE = {np.float32: 3e-5, np.float64: 1e-13}

every_cross = pytest.mark.parametrize("kind", CROSS)
every_self = pytest.mark.parametrize("kind", SELF)
both_dtypes = pytest.mark.parametrize("dtype", DTYPES)


def inputs(dtype, queries=Q, keys=K, seed=2):
    rng = rng_of(seed)
    return [signed(rng, B, n, d).astype(dtype) for n, d in ((queries, D), (keys, D), (keys, E))]


def run(attention, arrays, grad_seed=3, **options):
    """Output, gradients of the arrays and of all parameters, for a random cotangent."""
    tensors = [leaf(a) for a in arrays]
    if isinstance(attention, nn.Module):
        attention.zero_grad()
    out = attention(*tensors, **options)
    pull(out, signed(rng_of(grad_seed), *out.shape))
    grads = [t.grad.numpy() for t in tensors]
    parameters = {}
    if isinstance(attention, nn.Module):
        parameters = {name: p.grad.numpy() for name, p in attention.named_parameters()}
    return out.numpy(), grads, parameters


def all_results(found):
    out, grads, parameters = found
    return {
        "out": out,
        "dq": grads[0],
        **{f"d{i}": g for i, g in enumerate(grads[1:])},
    } | parameters


def same_results(first, second, dtype):
    """Equal outputs and gradients, but for the order in which terms are added."""
    assert_same(first[0], second[0])
    first, second = all_results(first), all_results(second)
    assert set(first) == set(second)
    for name, value in first.items():
        if not name.endswith("W_k.bias"):  # zero but for rounding
            assert_close(second[name], value, CLOSE[dtype])


# What hides keys: each as the options of a call and the array (B, Q, K) of what may be seen.


def hiding(form, rng):
    lens = np.array([6, 2, 3])
    lens_q = rng.randint(1, K + 1, (B, Q))
    keys = rng.uniform(size=(B, K)) < 0.6
    keys[:, 1] = True
    full = rng.uniform(size=(B, Q, K)) < 0.6
    full[..., 2] = True
    steps = np.arange(K)
    forms = {
        "lens": ({"valid_lens": lens}, steps < lens[:, None, None]),
        "lens_2d": ({"valid_lens": lens_q}, steps < lens_q[..., None]),
        "mask_2d": ({"mask": keys}, keys[:, None]),
        "mask_3d": ({"mask": full}, full),
        "mask_3d_shared": ({"mask": full[:1]}, full[:1]),
        "mask_4d": ({"mask": full[:, None]}, full),
        "both": ({"valid_lens": lens, "mask": full | (steps == 0)}, (full | (steps == 0))
                 & (steps < lens[:, None, None])),
    }  # fmt: skip
    options, seen = forms[form]
    return options, np.broadcast_to(seen, (B, Q, K))


FORMS = ["lens", "lens_2d", "mask_2d", "mask_3d", "mask_3d_shared", "mask_4d", "both"]
every_form = pytest.mark.parametrize("form", FORMS)


# Order


@every_cross
@both_dtypes
def test_permuting_keys_with_their_values_changes_nothing(kind, dtype):
    attention = CROSS[kind](dtype)
    q, k, v = inputs(dtype)
    order = rng_of(4).permutation(K)
    mask = np.array([[1, 1, 0, 1, 0, 1], [1] * 6, [0, 0, 1, 0, 0, 0]], bool)
    out, (dq, dk, dv), parameters = run(attention, (q, k, v), mask=mask)
    moved = run(attention, (q, k[:, order], v[:, order]), mask=mask[:, order])
    assert_close(moved[0], out, CLOSE[dtype])
    assert_close(moved[1][0], dq, CLOSE[dtype])
    assert_close(moved[1][1], dk[:, order], CLOSE[dtype])
    assert_close(moved[1][2], dv[:, order], CLOSE[dtype])
    for name, grad in parameters.items():
        if not name.endswith("W_k.bias"):  # zero but for rounding
            assert_close(moved[2][name], grad, CLOSE[dtype])


@every_cross
@both_dtypes
def test_permuting_queries_permutes_the_output(kind, dtype):
    attention = CROSS[kind](dtype)
    q, k, v = inputs(dtype)
    order = [2, 0, 3, 1]
    out = attention(*map(ta.tensor, (q, k, v))).numpy()
    moved = attention(*map(ta.tensor, (q[:, order], k, v))).numpy()
    assert_close(moved, out[:, order], CLOSE[dtype])
    assert np.abs(out[:, order] - out).max() > 0.01


@every_self
@both_dtypes
def test_permuting_a_sequence_permutes_what_comes_out(kind, dtype):
    module = SELF[kind](dtype)
    x = inputs(dtype)[1]
    order = rng_of(6).permutation(K)
    lens = np.array([[1, 1, 0, 1, 0, 1], [1] * 6, [0, 0, 1, 0, 0, 0]], bool)
    out = module(ta.tensor(x), mask=lens).numpy()
    moved = module(ta.tensor(x[:, order]), mask=lens[:, order]).numpy()
    assert_close(moved, out[:, order], 10 * CLOSE[dtype])


# Padding, samples


@every_cross
@both_dtypes
def test_padding_keys_to_a_greater_length_changes_nothing(kind, dtype):
    attention = CROSS[kind](dtype)
    q, k, v = inputs(dtype)
    lens = np.array([6, 2, 4])
    short = run(attention, (q, k, v), valid_lens=lens)
    for extra in (1, 7):
        tail = 7 * signed(rng_of(7), B, extra, D).astype(dtype)
        longer = [np.concatenate([a, tail], axis=1) for a in (k, v)]
        long = run(attention, (q, *longer), valid_lens=lens)
        assert_close(long[0], short[0], CLOSE[dtype])
        assert_close(long[1][0], short[1][0], CLOSE[dtype])
        for i in (1, 2):
            assert_close(long[1][i][:, :K], short[1][i], CLOSE[dtype])
            assert_all_zero(long[1][i][:, K:])
        for name, grad in short[2].items():
            if not name.endswith("W_k.bias"):
                assert_close(long[2][name], grad, CLOSE[dtype])


@every_self
@both_dtypes
def test_padding_a_sequence_to_a_greater_length_changes_nothing(kind, dtype):
    module = SELF[kind](dtype)
    x = inputs(dtype)[1]
    lens = np.array([6, 2, 4])
    short = module(ta.tensor(x), valid_lens=lens).numpy()
    tail = 7 * signed(rng_of(8), B, 5, D).astype(dtype)
    long = module(ta.tensor(np.concatenate([x, tail], axis=1)), valid_lens=lens).numpy()
    assert_close(long[:, :K], short, 10 * CLOSE[dtype])


@every_cross
@both_dtypes
@pytest.mark.parametrize("poison", ["other", "nan"])
def test_samples_do_not_see_each_other(kind, dtype, poison):
    attention = CROSS[kind](dtype)
    arrays = inputs(dtype)
    lens = np.array([6, 3, 5])
    out, grads, _ = run(attention, arrays, valid_lens=lens)
    changed = [a.copy() for a in arrays]
    for a in changed:
        a[1] = np.nan if poison == "nan" else -2 * a[1]
    with np.errstate(invalid="ignore"):
        moved, moved_grads, _ = run(attention, changed, valid_lens=lens)
    for b in (0, 2):
        assert_same(moved[b], out[b])
        for new, old in zip(moved_grads, grads, strict=True):
            assert_same(new[b], old[b])
    assert not np.array_equal(moved[1], out[1])


@every_self
@both_dtypes
def test_sequences_of_a_batch_do_not_see_each_other(kind, dtype):
    module = SELF[kind](dtype)
    x = inputs(dtype)[1]
    out, (grad,), _ = run(module, [x])
    for value in (-3.0, np.nan):
        changed = x.copy()
        changed[1, :, :3] = value
        with np.errstate(invalid="ignore"):
            moved, (moved_grad,), _ = run(module, [changed])
        for b in (0, 2):
            assert_same(moved[b], out[b])
            assert_same(moved_grad[b], grad[b])
        assert not np.array_equal(moved[1], out[1])


@every_cross
@both_dtypes
def test_each_sample_alone_gives_the_same(kind, dtype):
    attention = CROSS[kind](dtype)
    arrays = inputs(dtype)
    lens = np.array([6, 1, 4])
    whole = attention(*map(ta.tensor, arrays), valid_lens=lens).numpy()
    for b in range(B):
        part = [ta.tensor(a[b : b + 1]) for a in arrays]
        alone = attention(*part, valid_lens=lens[b : b + 1]).numpy()
        assert_close(alone[0], whole[b], CLOSE[dtype])


# Under the mask


@every_cross
@both_dtypes
@every_form
@pytest.mark.parametrize("garbage", ["numbers", "huge"])
def test_finite_content_under_the_mask_changes_no_bit(kind, dtype, form, garbage):
    """Nor any gradient, those of the parameters included."""
    attention = CROSS[kind](dtype)
    q, k, v = inputs(dtype)
    options, seen = hiding(form, rng_of(9))
    hidden = ~seen.any(axis=1)  # keys that no query of the sample sees
    if not hidden.any():
        hidden_options = {"mask": np.array([[1, 1, 0, 1, 0, 1]] * B, bool)}
        options = {**options, **hidden_options} if "mask" not in options else hidden_options
        hidden = np.broadcast_to(~hidden_options["mask"], (B, K))
    assert hidden.any()
    before = all_results(run(attention, (q, k, v), **options))
    values = {"numbers": 5 * signed(rng_of(10), B, K, D), "huge": np.full((B, K, D), 1e15)}[garbage]
    other_k, other_v = (np.where(hidden[..., None], values, a).astype(dtype) for a in (k, v))
    after = all_results(run(attention, (q, other_k, other_v), **options))
    for name, value in before.items():
        assert_equal(after[name], value)


# The last two: both infinities at once, and finite numbers whose sum is not.
POISON = [np.nan, np.inf, -np.inf, np.array([np.inf, -np.inf] * (D // 2)), np.full(D, 3e38)]


def poisoned(array, hidden, value):
    changed = array.copy()
    changed[hidden] = value
    return changed


@every_cross
@both_dtypes
@pytest.mark.parametrize("value", POISON)
@pytest.mark.parametrize("where", ["keys", "values", "both"])
def test_nan_and_inf_under_the_mask_change_no_bit(kind, dtype, value, where):
    attention = CROSS[kind](dtype)
    q, k, v = inputs(dtype)
    mask = np.array([[1, 1, 0, 1, 0, 1], [1] * 6, [0, 0, 1, 0, 0, 0]], bool)
    before, grads, _ = run(attention, (q, k, v), mask=mask)
    other_k = poisoned(k, ~mask, value) if where != "values" else k
    other_v = poisoned(v, ~mask, value) if where != "keys" else v
    after, moved, _ = run(attention, (q, other_k, other_v), mask=mask)
    assert_equal(after, before)
    for new, old in zip(moved, grads, strict=True):
        assert_equal(new, old)
    for grad in moved[1:]:
        assert_all_zero(grad[~mask])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_inf_that_all_heads_of_a_group_do_not_see_change_no_bit(value, rng):
    """Two heads of queries share one of keys, and a mask says for each what it sees."""
    q, k, v = (rng.standard_normal((2, heads, 5, 4)) for heads in (4, 2, 2))
    mask = rng.random((2, 4, 5, 5)) < 0.6
    mask[..., 0] = True
    mask[0, :2, :, 3] = mask[1, 2:, :, 4] = False  # of group 0 and of group 1
    hidden = ~mask.reshape(2, 2, 2, 5, 5).any(axis=(2, 3))
    assert hidden[0, 0, 3]
    assert hidden[1, 1, 4]
    results = []
    for keys, values in ((k, v), (poisoned(k, hidden, value), poisoned(v, hidden, value))):
        tensors = [ta.tensor(x, requires_grad=True) for x in (q, keys, values)]
        out = F.scaled_dot_product_attention(*tensors, attn_mask=ta.tensor(mask), enable_gqa=True)
        out.backward(ta.tensor(np.random.default_rng(1).standard_normal(out.shape)))
        results.append([out.numpy(), *(x.grad.numpy() for x in tensors)])
    for new, old in zip(*results, strict=True):
        assert_equal(new, old)


@pytest.mark.parametrize("kind", ["additive", "multi_head", "multi_headed"])
@both_dtypes
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_inf_under_the_mask_do_not_reach_the_parameters(kind, dtype, value):
    attention = CROSS[kind](dtype)
    q, k, v = inputs(dtype)
    mask = np.array([[1, 1, 0, 1, 0, 1], [1] * 6, [0, 0, 1, 0, 0, 0]], bool)
    _, _, before = run(attention, (q, k, v), mask=mask)
    poison = [poisoned(a, ~mask, value) for a in (k, v)]
    _, _, after = run(attention, (q, *poison), mask=mask)
    for name, grad in before.items():
        assert_equal(after[name], grad)


@every_cross
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_inf_under_the_mask_do_not_reach_derivatives_of_second_order(kind, value):
    attention = CROSS[kind](np.float64)
    q, k, v = inputs(np.float64)
    mask = np.array([[1, 1, 0, 1, 0, 1], [1] * 6, [0, 0, 1, 0, 0, 0]], bool)
    found = []
    for content in (0.0, value):
        tensors = [leaf(a) for a in (q, poisoned(k, ~mask, content), poisoned(v, ~mask, content))]
        out = attention(*tensors, mask=mask)
        grad = leaf(signed(rng_of(26), *out.shape))
        first = ta.grad(out, tensors, grad, create_graph=True)
        weighted = [g * ta.tensor(signed(rng_of(27 + i), *g.shape)) for i, g in enumerate(first)]
        total = sum((t.sum() for t in weighted[1:]), weighted[0].sum())
        second = ta.grad(total, [*tensors, grad])
        found.append([g.numpy() for g in (*first, *second)])
    for one, two in zip(*found, strict=True):
        assert np.isfinite(one).all()
        assert_equal(two, one)


@every_cross
@both_dtypes
def test_nan_and_inf_under_the_mask_give_no_warnings(kind, dtype):
    """NumPy's remarks on NaN and inf would reach the user, who sees nothing wrong."""
    attention = CROSS[kind](dtype)
    q, k, v = inputs(dtype)
    mask = np.array([[1, 1, 0, 1, 0, 1], [1] * 6, [0, 0, 1, 0, 0, 0]], bool)
    for value in POISON:
        poison = [poisoned(a, ~mask, value) for a in (k, v)]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run(attention, (q, *poison), mask=mask)
        assert not caught, [str(w.message) for w in caught]


@both_dtypes
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
@pytest.mark.parametrize("kind", ["function", "function_heads", "dot_product"])
def test_key_hidden_from_some_queries_reaches_the_others_only(kind, dtype, value):
    """A key of NaN that query 0 may not see and query 1 may."""
    attention = CROSS[kind](dtype)
    q, k, v = inputs(dtype, queries=2)
    mask = np.ones((1, 2, K), bool)
    mask[0, 0, 3] = False
    before, grads, _ = run(attention, (q, k, v), mask=mask)
    with np.errstate(invalid="ignore", over="ignore"):
        after, moved, _ = run(attention, (q, k, poisoned(v, np.s_[:, 3], value)), mask=mask)
    assert_equal(after[:, 0], before[:, 0])
    assert not np.array_equal(after[:, 1], before[:, 1])
    # Query 0's gradient does not know of the value either.
    assert_equal(moved[0][:, 0], grads[0][:, 0])


@both_dtypes
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
def test_masked_softmax_neither_reads_hidden_scores_nor_hidden_cotangents(dtype, value):
    rng = rng_of(11)
    scores, grad = signed(rng, B, Q, K).astype(dtype), signed(rng, B, Q, K).astype(dtype)
    _, seen = hiding("mask_3d", rng_of(12))
    lens = np.array([6, 0, 4])
    seen = seen & (np.arange(K) < lens[:, None, None])
    results = []
    for content in (0.0, value):
        x = leaf(np.where(seen, scores, content).astype(dtype))
        out = F.masked_softmax(x, lens, mask=np.array(seen))
        pull(out, np.where(seen, grad, content))
        results.append((out.numpy(), x.grad.numpy()))
    assert_equal(results[1][0], results[0][0])
    assert_equal(results[1][1], results[0][1])
    assert_all_zero(results[0][0][~seen])
    assert_all_zero(results[0][1][~seen])


@every_cross
@both_dtypes
@every_form
def test_masked_row_equals_the_row_of_the_visible_keys_alone(kind, dtype, form):
    attention = CROSS[kind](dtype)
    arrays = inputs(dtype)
    options, seen = hiding(form, rng_of(13))
    q, k, v = arrays
    tensors = [leaf(a) for a in arrays]
    out = attention(*tensors, **options)
    for b in range(B):
        for i in range(Q):
            part = [ta.tensor(q[b : b + 1, i : i + 1])]
            part += [ta.tensor(a[b : b + 1, seen[b, i]]) for a in (k, v)]
            assert_close(attention(*part).numpy()[0, 0], out.numpy()[b, i], CLOSE[dtype])


@every_cross
@both_dtypes
@every_form
def test_lengths_and_every_form_of_mask_mean_what_the_full_mask_means(kind, dtype, form):
    attention = CROSS[kind](dtype)
    arrays = inputs(dtype)
    options, seen = hiding(form, rng_of(14))
    same_results(
        run(attention, arrays, **options), run(attention, arrays, mask=np.array(seen)), dtype
    )


@pytest.mark.parametrize("kind", ["function_heads", "multi_head", "multi_headed"])
@both_dtypes
def test_mask_of_four_dimensions_can_differ_by_head(kind, dtype):
    attention = CROSS[kind](dtype)
    arrays = inputs(dtype)
    mask = rng_of(15).uniform(size=(B, H, Q, K)) < 0.6
    mask[..., 0] = True
    whole = attention(*map(ta.tensor, arrays), mask=mask)
    if kind != "function_heads":
        weights = attention.attention_weights.numpy()
        assert (weights[mask] > 0).all()
        assert_all_zero(weights[~mask])
        return
    for h in range(H):
        part = [ta.tensor(a[..., 3 * h : 3 * h + 3]) for a in arrays]
        alone = F.scaled_dot_product_attention(*part, mask=mask[:, h])
        assert_close(alone.numpy(), whole.numpy()[..., 3 * h : 3 * h + 3], CLOSE[dtype])


@pytest.mark.parametrize(
    "shape",
    [
        (B, K),
        (B, Q, K),
        (1, Q, K),
        (B, 1, K),
        (1, 1, K),
        (B, 1, Q, K),
        (B, H, Q, K),
        (1, H, 1, K),
        (1, K),
        (B, 1),
        (B, Q, 1),
        (1, H, Q, 1),
    ],
)
@pytest.mark.parametrize("as_type", ["bool", "uint8", "tensor", "list"])
def test_masks_broadcast_and_come_in_several_types(shape, as_type):
    module = CROSS["multi_head"](np.float64)
    arrays = inputs(np.float64)
    mask = rng_of(16).uniform(size=shape) < 0.7
    full = np.broadcast_to(masks_to_four(mask), (B, H, Q, K))
    given = {
        "bool": mask,
        "uint8": mask.astype(np.uint8),
        "tensor": ta.tensor(mask),
        "list": mask.tolist(),
    }[as_type]
    out = module(*map(ta.tensor, arrays), mask=given).numpy()
    expected = module(*map(ta.tensor, arrays), mask=np.array(full)).numpy()
    assert_same(out, expected)
    assert_all_zero(np.append(module.attention_weights.numpy()[~full], 0))


def masks_to_four(mask):
    """(B, K) -> (B, 1, 1, K); (B, Q, K) -> (B, 1, Q, K)."""
    return {2: mask[:, None, None] if mask.ndim == 2 else mask, 3: mask[:, None], 4: mask}[
        mask.ndim
    ]


# Causality


@every_cross
@both_dtypes
@pytest.mark.parametrize("future", ["other", "nan", "inf"])
def test_causal_output_does_not_move_when_the_future_does(kind, dtype, future):
    attention = CROSS[kind](dtype)
    q, k, v = inputs(dtype, queries=K)
    value = {"other": 3.0, "nan": np.nan, "inf": np.inf}[future]

    def causal(q, k, v):
        return attention(*map(ta.tensor, (q, k, v)), mask=masks.causal(K)).numpy()

    out = causal(q, k, v)
    for t in range(1, K):
        with np.errstate(invalid="ignore"):
            moved = causal(
                q, poisoned(k, np.s_[:, t:, :2], value), poisoned(v, np.s_[:, t:], value)
            )
        assert_same(moved[:, :t], out[:, :t])
        assert not np.array_equal(moved[:, t:], out[:, t:])


@pytest.mark.parametrize("kind", ["function", "function_heads", "multi_head", "multi_headed"])
@both_dtypes
def test_is_causal_is_the_causal_mask(kind, dtype):
    attention = CROSS[kind](dtype)
    for queries, keys in ((K, K), (3, 6), (6, 3)):
        arrays = inputs(dtype, queries, keys)
        mask = np.tri(queries, keys, dtype=bool)[None]
        first, second = (run(attention, arrays, **o) for o in ({"is_causal": True}, {"mask": mask}))
        same_results(first, second, dtype)


@pytest.mark.parametrize("kind", ["function", "function_heads", "multi_head", "multi_headed"])
def test_is_causal_lengths_and_mask_are_anded(kind):
    attention = CROSS[kind](np.float64)
    arrays = inputs(np.float64, queries=K)
    lens, mask = np.array([6, 2, 4]), rng_of(17).uniform(size=(B, K, K)) < 0.7
    first = run(attention, arrays, is_causal=True, valid_lens=lens, mask=mask)
    full = np.tri(K, dtype=bool) & (np.arange(K) < lens[:, None, None]) & mask
    second = run(attention, arrays, mask=full)
    assert_same(first[0], second[0])


@every_self
@both_dtypes
def test_causal_sequence_does_not_move_when_the_future_does(kind, dtype):
    module = SELF[kind](dtype)
    x = inputs(dtype)[1]
    out, (grad,), _ = run(module, [x], mask=masks.causal(K))
    for value in (3.0, np.nan):
        with np.errstate(invalid="ignore"):
            changed = poisoned(x, np.s_[:, 4:, :2], value)
            moved = module(ta.tensor(changed), mask=masks.causal(K)).numpy()
        assert_same(moved[:, :4], out[:, :4])
        assert not np.array_equal(moved[:, 4:], out[:, 4:])
    assert np.isfinite(grad).all()


@every_self
@both_dtypes
def test_gradient_of_an_early_output_is_zero_for_the_future(kind, dtype):
    module = SELF[kind](dtype)
    x = leaf(inputs(dtype)[1])
    out = module(x, mask=masks.causal(K))
    grad = np.zeros(out.shape)
    grad[:, 2] = signed(rng_of(18), B, out.shape[-1])
    pull(out, grad)
    assert_all_zero(x.grad.numpy()[:, 3:])
    assert (np.abs(x.grad.numpy()[:, :3]).max(axis=(0, 2)) > 0).all()


# Rows without any visible key


EMPTY = {
    "lens": {"valid_lens": np.array([6, 0, 3])},
    "lens_2d": {"valid_lens": np.array([[6] * Q, [0] * Q, [3] * Q])},
    "mask_2d": {"mask": np.arange(K) < np.array([6, 0, 3])[:, None]},
    "mask_3d": {"mask": np.broadcast_to(np.arange(K) < np.array([[[6]], [[0]], [[3]]]), (B, Q, K))},
    "disjoint": {
        "valid_lens": np.array([6, 2, 3]),
        "mask": np.array([[1] * 6, [0, 0, 1, 1, 1, 1], [1] * 6], bool),
    },
}


@every_cross
@both_dtypes
@pytest.mark.parametrize("form", EMPTY)
@pytest.mark.parametrize("content", ["numbers", "nan"])
def test_fully_masked_row_is_exactly_zero_with_zero_gradients(kind, dtype, form, content):
    attention = CROSS[kind](dtype)
    arrays = inputs(dtype)
    if content == "nan":
        for a in arrays[1:]:
            a[1] = np.nan
    tensors = [leaf(a) for a in arrays]
    out = attention(*tensors, **EMPTY[form])
    bias = getattr(getattr(attention, "W_o", None), "bias", None)
    row = np.zeros(out.shape[-1], dtype) if bias is None else bias.numpy()
    assert_same(out.numpy()[1] + dtype(0), np.broadcast_to(row, (Q, out.shape[-1])))
    pull(out, signed(rng_of(19), *out.shape))
    for tensor in tensors:
        assert_all_zero(tensor.grad.numpy()[1])
        assert np.isfinite(tensor.grad.numpy()).all()
        assert (tensor.grad.numpy()[0] != 0).any()
    if isinstance(attention, nn.Module):
        assert_all_zero(attention.attention_weights.numpy()[1])


@every_cross
@both_dtypes
def test_everything_masked_gives_zero_gradients_of_all_parameters(kind, dtype):
    attention = CROSS[kind](dtype)
    out, grads, parameters = run(attention, inputs(dtype), valid_lens=np.zeros(B, int))
    for grad in grads:
        assert_all_zero(grad)
    for name, grad in parameters.items():
        if name != "W_o.bias":  # added to the zeros
            assert_all_zero(grad)
    assert np.isfinite(out).all()


@both_dtypes
def test_fully_masked_row_of_masked_softmax(dtype):
    scores = leaf(signed(rng_of(20), 2, 2, 3, 4).astype(dtype))
    mask = np.ones((2, 2, 3, 4), bool)
    mask[1, 0, 2] = False
    out = F.masked_softmax(scores, mask=mask)
    pull(out, signed(rng_of(21), 2, 2, 3, 4))
    assert_all_zero(out.numpy()[1, 0, 2])
    assert_all_zero(scores.grad.numpy()[1, 0, 2])
    others = np.delete(out.numpy().reshape(-1, 4), 8, axis=0)
    assert_close(others.sum(axis=-1), np.ones(11), 4 * np.finfo(dtype).eps)


@every_self
@both_dtypes
def test_empty_sequence_stays_finite(kind, dtype):
    module = SELF[kind](dtype)
    out, (grad,), parameters = run(module, [inputs(dtype)[1]], valid_lens=np.array([6, 0, 3]))
    for array in (out, grad, *parameters.values()):
        assert np.isfinite(array).all()


@pytest.mark.parametrize("shape", [(0, Q, K), (B, 0, K), (B, Q, 0)])
@every_cross
@both_dtypes
def test_empty_batches_queries_and_keys(kind, dtype, shape):
    b, queries, keys = shape
    attention = CROSS[kind](dtype)
    q, k, v = (leaf(np.ones((b, n, D), dtype)) for n in (queries, keys, keys))
    out = attention(q, k, v)
    assert out.shape == (b, queries, D)
    pull(out, np.ones(out.shape))
    assert k.grad.shape == (b, keys, D)
    if keys == 0 and not hasattr(attention, "W_o"):
        assert_all_zero(out.numpy())
        assert_all_zero(q.grad.numpy())


# The recorded weights


WEIGHTED = [
    kind for kind in (*CROSS, *SELF) if not kind.startswith(("function", "layer", "encoder"))
]


def call_weighted(kind, dtype=np.float64, **options):
    module = (CROSS | SELF)[kind](dtype)
    arrays = inputs(dtype)
    given = arrays[1:2] if kind in SELF else arrays
    tensors = [leaf(a) for a in given]
    return module, module(*tensors, **options), tensors


@pytest.mark.parametrize("kind", WEIGHTED)
@both_dtypes
def test_weights_have_their_shape_and_rows_sum_to_one(kind, dtype):
    module, _, _ = call_weighted(kind, dtype, valid_lens=np.array([6, 1, 4]))
    weights = module.attention_weights
    queries = K if kind in SELF else Q
    shape = (B, H, queries, K) if kind.startswith("multi") else (B, queries, K)
    assert weights.shape == shape
    assert weights.dtype == dtype
    assert_close(weights.numpy().sum(axis=-1), np.ones(shape[:-1]), 4 * np.finfo(dtype).eps)
    assert (weights.numpy() >= 0).all()
    assert_all_zero(weights.numpy()[1, ..., 1:])
    # Over keys, not over queries: there the sums are anything.
    assert np.abs(weights.numpy().sum(axis=-2) - 1).max() > 0.01


@pytest.mark.parametrize("kind", WEIGHTED)
def test_weights_are_detached_and_attn_is_another_name_for_them(kind):
    module, out, tensors = call_weighted(kind)
    weights = module.attention_weights
    assert not weights.requires_grad
    assert_same(module.attn.numpy(), weights.numpy())
    before = weights.numpy()
    with contextlib.suppress(ValueError):  # a graph that needs this array refuses, or has its own
        weights.data[...] = 99.0
    pull(out, signed(rng_of(22), *out.shape))
    again, second, others = call_weighted(kind)
    pull(second, signed(rng_of(22), *second.shape))
    for mine, other in zip(tensors, others, strict=True):
        assert_same(mine.grad.numpy(), other.grad.numpy())
    assert_same(again.attention_weights.numpy(), before)


@pytest.mark.parametrize("kind", WEIGHTED)
def test_weights_are_those_of_the_last_call(kind):
    module, _, _ = call_weighted(kind)
    first = module.attention_weights.numpy()
    others = inputs(np.float64, seed=99)
    module(*map(ta.tensor, others[1:2] if kind in SELF else others))
    assert np.abs(module.attention_weights.numpy() - first).max() > 0.01


@pytest.mark.parametrize("kind", WEIGHTED)
def test_weights_do_not_change_when_the_callers_arrays_do(kind):
    """Queries, keys, lengths and mask are the caller's: they may be used for something else."""
    module = (CROSS | SELF)[kind](np.float64)
    arrays = inputs(np.float64)
    tensors = [ta.tensor(a) for a in (arrays[1:2] if kind in SELF else arrays)]
    lens = np.array([6, 2, 4])
    mask = np.array([[1, 1, 0, 1, 0, 1], [1] * 6, [1, 0, 1, 0, 0, 0]], bool)
    module(*tensors, valid_lens=lens, mask=mask)
    expected = module.attention_weights.numpy()
    with ta.no_grad():
        module(*tensors, valid_lens=lens, mask=mask)
    for tensor in tensors:
        tensor[...] = 0.0
    lens[...] = 1
    mask[...] = True
    assert_same(module.attention_weights.numpy(), expected)


@pytest.mark.parametrize("kind", ["dot_product", "additive", "multi_head", "function"])
@pytest.mark.parametrize("create_graph", [False, True])
def test_gradients_do_not_change_when_the_callers_mask_does(kind, create_graph):
    """A mask reused for the next batch must not reach back into a graph that is still alive."""
    found = []
    for change in (False, True):
        attention = CROSS[kind](np.float64)
        tensors = [leaf(a) for a in inputs(np.float64)]
        mask = np.array([[1, 1, 0, 1, 0, 1], [1] * 6, [1, 0, 1, 0, 0, 0]], bool)
        lens = np.array([6, 3, 5])
        out = attention(*tensors, mask=mask, valid_lens=lens)
        if change:
            mask[...] = ~mask
            lens[...] = 1
        grad = ta.tensor(signed(rng_of(23), *out.shape))
        grads = ta.grad(out, tensors, grad, create_graph=create_graph)
        found.append([g.numpy() for g in grads])
    for one, two in zip(*found, strict=True):
        assert_same(two, one)


@pytest.mark.parametrize("size", [(Q, K), (B, H, Q, K)])
def test_gradients_do_not_change_when_an_attn_mask_does(size):
    """As with mask=, of one size for all samples and of the size of the scores."""
    found = []
    for change in (False, True):
        q, k, v = (leaf(signed(rng_of(3), B, H, n, D)) for n in (Q, K, K))
        mask = ta.tensor(rng_of(4).rand(*size) < 0.7)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        if change:
            mask[...] = ~mask
        grads = ta.grad(out, (q, k, v), ta.tensor(signed(rng_of(5), *out.shape)))
        found.append([g.numpy() for g in grads])
    for one, two in zip(*found, strict=True):
        assert_same(two, one)


@pytest.mark.parametrize("kind", WEIGHTED)
def test_weights_before_the_first_call_are_an_error_that_says_so(kind):
    module = (CROSS | SELF)[kind](np.float64)
    for name in ("attention_weights", "attn"):
        with pytest.raises(AttributeError, match="has not been called"):
            getattr(module, name)


@pytest.mark.parametrize("kind", ["dot_product", "additive", "multi_head", "multi_headed"])
@both_dtypes
def test_weights_are_those_from_before_dropout(kind, dtype):
    make = {
        "dot_product": lambda: nn.DotProductAttention(0.5),
        "additive": lambda: nn.AdditiveAttention(D, D, 5, 0.5),
        "multi_head": lambda: nn.MultiHeadAttention(D, D, E, D, H, 0.5, bias=True),
        "multi_headed": lambda: nn.MultiHeadedAttention(H, D, 0.5),
    }[kind]
    module = random_parameters(make().to(dtype), rng_of(1))
    ta.manual_seed(0)
    tensors = [ta.tensor(a) for a in inputs(dtype)]
    first, second = module(*tensors).numpy(), module(*tensors).numpy()
    assert np.abs(first - second).max() > 0.01, "dropout drops"
    recorded = module.attention_weights.numpy()
    plain = module.eval()(*tensors).numpy()
    assert_close(module.attention_weights.numpy(), recorded, 2 * np.finfo(dtype).eps)
    assert np.abs(first - plain).max() > 0.01
    reference, _, _ = call_weighted(kind, dtype)
    assert_close(reference.attention_weights.numpy(), recorded, 2 * np.finfo(dtype).eps)


@both_dtypes
def test_dropout_of_attention_keeps_the_expectation_and_its_gradient_is_exact(dtype):
    ta.manual_seed(1)
    q, k = (signed(rng_of(24), 1, n, 4).astype(dtype) for n in (50, 60))
    tensors = [leaf(a) for a in (q, k, np.eye(60, dtype=dtype)[None])]
    out, weights = F.scaled_dot_product_attention(*tensors, dropout_p=0.25, return_weights=True)
    kept = out.numpy() != 0
    assert abs(kept.mean() - 0.75) < 0.05
    w = weights.numpy().astype(np.float64)
    tolerance = 40 * np.finfo(dtype).eps
    assert_close(out.numpy(), np.where(kept, w / 0.75, 0), tolerance)
    grad = signed(rng_of(25), 1, 50, 60)
    pull(out, grad)
    dw = np.where(kept, grad / 0.75, 0)
    ds = w * (dw - (dw * w).sum(axis=-1, keepdims=True)) / 2
    assert_close(tensors[0].grad.numpy(), ds @ k, tolerance)
    assert_close(tensors[1].grad.numpy(), ds.swapaxes(1, 2) @ q, tolerance)
    assert_close(
        tensors[2].grad.numpy(), (np.where(kept, w / 0.75, 0)).swapaxes(1, 2) @ grad, tolerance
    )


# Scale, heads, refusals


def test_scale_is_one_over_the_root_of_the_width_of_a_head():
    q, k, v = (ta.tensor(a) for a in inputs(np.float64))
    first = F.scaled_dot_product_attention(q, k, v).numpy()
    assert_close(F.scaled_dot_product_attention(q, k, v, scale=D**-0.5).numpy(), first, 1e-15)
    scaled = F.scaled_dot_product_attention(q * 3, k, v, scale=D**-0.5 / 3).numpy()
    assert_close(scaled, first, 1e-14)
    assert np.abs(F.scaled_dot_product_attention(q, k, v, scale=1.0).numpy() - first).max() > 0.01
    uniform = F.scaled_dot_product_attention(q, k, v, scale=0.0).numpy()
    assert_close(uniform, np.broadcast_to(v.numpy().mean(1, keepdims=True), (B, Q, E)), 1e-14)


def test_caller_s_arrays_are_never_written():
    for kind in CROSS:
        attention = CROSS[kind](np.float32)
        arrays = inputs(np.float32)
        tensors = [ta.tensor(a) for a in arrays]
        mask, lens = np.ones((B, K), bool), np.array([6, 0, 3])
        attention(*tensors, mask=mask, valid_lens=lens)
        for tensor, array in zip(tensors, arrays, strict=True):
            assert_same(tensor.numpy(), array)
        assert mask.all()
        assert lens.tolist() == [6, 0, 3]


@every_cross
@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"mask": np.ones((B, K))}, TypeError),
        ({"mask": np.full((B, K), 2)}, ValueError),
        ({"mask": np.ones((B, K + 1), bool)}, ValueError),
        ({"mask": np.ones((B, Q + 1, K), bool)}, ValueError),
        ({"mask": np.ones((B, 7, Q, K), bool)}, ValueError),
        ({"mask": np.ones(K, bool)}, ValueError),
        ({"mask": "all"}, TypeError),
        ({"valid_lens": [1, 2]}, ValueError),
        ({"valid_lens": [2]}, ValueError),  # though it broadcasts
        ({"valid_lens": np.ones((1, Q), int)}, ValueError),
        ({"valid_lens": [1, 2, K + 1]}, ValueError),
        ({"valid_lens": [1, -1, 2]}, ValueError),
        ({"valid_lens": [1.5, 1, 2]}, ValueError),
        ({"valid_lens": [1, 1, float("nan")]}, ValueError),
        ({"valid_lens": [1, 1, float("inf")]}, ValueError),
        ({"valid_lens": [True, True, False]}, TypeError),
        ({"valid_lens": np.ones((B, Q + 1), int)}, ValueError),
        ({"valid_lens": np.ones((B, Q, K), int)}, ValueError),
        ({"valid_lens": 3}, ValueError),
    ],
)
def test_bad_masks_and_lengths_are_refused_by_every_attention(kind, options, error):
    attention = CROSS[kind](np.float64)
    with pytest.raises(error) as caught:
        attention(*map(ta.tensor, inputs(np.float64)), **options)
    assert type(caught.value).__module__ == "tinyattn.errors"


@every_cross
def test_inputs_that_do_not_fit_are_refused_by_every_attention(kind):
    attention = CROSS[kind](np.float64)
    q, k, v = inputs(np.float64)
    wrong = {
        "width": (q, k[..., :4], v),
        "keys": (q, k, v[:, :4]),
        "batch": (q[:2], k, v),
        "rank": (q[0], k[0], v[0]),
        "dtype": (q, k.astype(np.float32), v),
        "value dtype": (q, k, v.astype(np.float32)),
        "integers": (q, k.astype(int), v),
    }
    for name, arrays in wrong.items():
        if name == "rank" and kind.startswith("function"):
            continue  # F.scaled_dot_product_attention takes any number of dimensions from 2 on
        try:
            attention(*map(ta.tensor, arrays))
        except (ValueError, TypeError) as error:
            raised = type(error).__module__
        else:
            raised = None
        assert raised == "tinyattn.errors", f"{raised} for a wrong {name}"
