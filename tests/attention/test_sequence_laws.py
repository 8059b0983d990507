"""More laws of attention: padding and the future in a sequence, and second derivatives.

In self-attention a padded position is a query as well. What it gives may be anything; what the
others give, and their gradients, must not know of it.
"""

from __future__ import annotations

import numpy as np
import pytest
from common import (
    assert_all_zero,
    assert_close,
    assert_equal,
    assert_same,
    leaf,
    pull,
    rng_of,
    signed,
)
from test_attention_laws import (
    CLOSE,
    CROSS,
    EMPTY,
    SELF,
    B,
    D,
    K,
    both_dtypes,
    every_cross,
    every_self,
    inputs,
    module_of,
)

import tinyattn as ta
from tinyattn import masks, nn

LENS = np.array([6, 2, 4])
REAL = np.arange(K) < LENS[:, None]  # (B, K)


def sequences(module, x, **options):
    """Output, gradients of x and of the parameters; the cotangent is 0 at padded positions."""
    module.zero_grad()
    x = leaf(x)
    out = module(x, **options)
    real = REAL if x.shape[1] == K else np.pad(REAL, ((0, 0), (0, x.shape[1] - K)))
    grad = np.zeros(out.shape)
    grad[:, :K] = signed(rng_of(40), B, K, out.shape[-1])
    pull(out, np.where(real[..., None], grad, 0))
    return out.numpy(), x.grad.numpy(), {n: p.grad.numpy() for n, p in module.named_parameters()}


@every_self
@both_dtypes
@pytest.mark.parametrize("form", ["lens", "mask"])
def test_content_of_padding_changes_no_bit_of_the_rest(kind, dtype, form):
    module = SELF[kind](dtype)
    x = inputs(dtype)[1]
    options = {"valid_lens": LENS} if form == "lens" else {"mask": REAL}
    out, grad, parameters = sequences(module, x, **options)
    garbage = 9 * signed(rng_of(41), B, K, D)
    changed = np.where(REAL[..., None], x, garbage).astype(dtype)
    other, other_grad, other_parameters = sequences(module, changed, **options)
    assert_same(other[REAL], out[REAL])
    assert_equal(other_grad[REAL], grad[REAL])
    for name, value in parameters.items():
        assert_close(other_parameters[name], value, 10 * CLOSE[dtype])
    for value in (np.nan, np.inf):
        changed = np.where(REAL[..., None], x, value).astype(dtype)
        with np.errstate(invalid="ignore"):
            poisoned = module(ta.tensor(changed), **options).numpy()
        assert_same(poisoned[REAL], out[REAL])


@every_self
@both_dtypes
def test_gradients_do_not_change_with_more_padding(kind, dtype):
    module = SELF[kind](dtype)
    x = inputs(dtype)[1]
    _, grad, parameters = sequences(module, x, valid_lens=LENS)
    tail = 7 * signed(rng_of(42), B, 5, D).astype(dtype)
    longer = np.concatenate([x, tail], axis=1)
    _, long_grad, long_parameters = sequences(module, longer, valid_lens=LENS)
    assert_close(long_grad[:, :K], grad, 10 * CLOSE[dtype])
    assert_all_zero(long_grad[:, K:])
    for name, value in parameters.items():
        if not name.endswith(("W_k.bias", "linear_k.bias")):  # zero but for rounding
            assert_close(long_parameters[name], value, 10 * CLOSE[dtype])


@every_cross
@both_dtypes
def test_gradient_of_an_early_query_is_zero_for_later_keys(kind, dtype):
    attention = CROSS[kind](dtype)
    q, k, v = (leaf(a) for a in inputs(dtype, queries=K))
    out = attention(q, k, v, mask=masks.causal(K))
    grad = np.zeros(out.shape)
    grad[:, 2] = signed(rng_of(43), B, out.shape[-1])
    pull(out, grad)
    for tensor in (k, v):
        assert_all_zero(tensor.grad.numpy()[:, 3:])
        assert (np.abs(tensor.grad.numpy()[:, :3]).max(axis=(0, 2)) > 0).all()
    assert_all_zero(np.delete(q.grad.numpy(), 2, axis=1))


@every_cross
@pytest.mark.parametrize("form", EMPTY)
def test_fully_masked_row_is_zero_in_second_order_too(kind, form):
    attention = CROSS[kind](np.float64)
    tensors = [leaf(a) for a in inputs(np.float64)]
    out = attention(*tensors, **EMPTY[form])
    cotangent = leaf(signed(rng_of(44), *out.shape))
    first = ta.grad(out, tensors, cotangent, create_graph=True)
    weighted = [g * ta.tensor(signed(rng_of(45 + i), *g.shape)) for i, g in enumerate(first)]
    total = sum((w.sum() for w in weighted[1:]), weighted[0].sum())
    second = ta.grad(total, [*tensors, cotangent])
    for gradient in (*first, *second):
        assert_all_zero(gradient.numpy()[1])
        assert np.isfinite(gradient.numpy()).all()
        assert (gradient.numpy()[0] != 0).any()


@every_cross
@both_dtypes
def test_sample_of_nan_leaves_the_second_order_of_others(kind, dtype):
    """A whole sample of NaN, queries, keys and values: first and second derivatives of the rest."""
    attention = CROSS[kind](dtype)
    found = []
    for poison in (False, True):
        arrays = inputs(dtype)
        for a in arrays if poison else ():
            a[1] = np.nan
        tensors = [leaf(a) for a in arrays]
        with np.errstate(invalid="ignore"):
            out = attention(*tensors)
            grad = leaf(signed(rng_of(46), *out.shape).astype(dtype))
            first = ta.grad(out, tensors, grad, create_graph=True)
            total = sum(((g * g).sum() for g in first[1:]), (first[0] * first[0]).sum())
            second = ta.grad(total, [*tensors, grad])
        found.append([g.numpy()[[0, 2]] for g in (*first, *second)])
    for clean, beside in zip(*found, strict=True):
        assert_equal(beside, clean)


@both_dtypes
def test_weights_of_a_fully_masked_row_are_zero_after_any_dropout(dtype):
    module = module_of(lambda: nn.MultiHeadedAttention(2, D, 0.5))(dtype)
    arrays = [ta.tensor(a) for a in inputs(dtype)]
    for _ in range(5):
        module(*arrays, valid_lens=np.array([6, 0, 3]))
        assert_all_zero(module.attention_weights.numpy()[1])
