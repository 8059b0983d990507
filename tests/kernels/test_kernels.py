"""The compiled kernels against their plain twins, and against a computation in float64.

The twins in `kernels/reference.py` are what a reader reads; `kernels/cpu/` is what runs. They may
differ by the order of their sums, never by more than a few units in the last place.

Softmax and what is made of it are in test_softmax_kernels.py, layouts and empty arrays in
test_kernel_layouts.py, and what runs without Numba or its cache in test_without_numba.py.
"""

from __future__ import annotations

import gc
import math
import os
import re
import threading
import tracemalloc
import warnings

import numpy as np
import pytest
from common import (
    KERNELS,
    assert_all_zero,
    assert_close,
    assert_equal,
    assert_same,
    kernel_tour,
    rng_of,
    run_python,
    signed,
)
from kernel_checks import (
    SEEDS,
    WIDTHS,
    assert_within,
    both_dtypes,
    cpu,
    exact_softmax,
    hidings,
    seen_of,
    ulps,
    wide,
)
from test_tiled_attention import compiled

from tinyattn.kernels import reference


def test_every_kernel_has_a_test_here():
    """A kernel that is added without one is missed by this list."""
    covered = {
        "adam", "add_bias", "attention", "attention_backward", "cross_entropy",
        "cross_entropy_backward", "dropout", "erf", "layer_norm", "layer_norm_backward",
        "log_softmax", "log_softmax_backward", "masked_softmax", "masked_softmax_backward", "relu",
        "relu_backward", "scatter_rows", "self_attention", "self_attention_backward",
        "softmax_backward", "sum_rows", "weighted_sum",
    }  # fmt: skip
    assert set(KERNELS) == covered
    toured = {name.split(".")[0] for name in kernel_tour()}
    assert toured == covered
    doors = {name for name in KERNELS if hasattr(cpu, name)}
    assert len(doors) >= 18


# Layer normalization


def exact_layer_norm(x, weight, bias, eps, grad):
    x, weight, bias, grad = wide(x, weight, bias, grad)
    centred = x - x.mean(axis=-1, keepdims=True)
    inv_std = 1 / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + np.longdouble(eps))
    normal = centred * inv_std
    w = 1 if weight is None else weight
    out = normal * w + (0 if bias is None else bias)
    g = grad * w
    dx = inv_std * (g - g.mean(-1, keepdims=True) - normal * (g * normal).mean(-1, keepdims=True))
    size = inv_std * (np.abs(g) + np.abs(g).mean(-1, keepdims=True)
                      + np.abs(normal) * np.abs(g * normal).mean(-1, keepdims=True))  # fmt: skip
    return (
        out,
        dx,
        size,
        (grad * normal).sum(axis=0),
        np.abs(grad * normal).sum(axis=0),
        grad,
        normal,
    )


def check_layer_norm(x, weight, bias, grad, offset):
    dtype, rows, width = x.dtype, *x.shape
    exact, dx, size, dw, dw_size, g, normal = exact_layer_norm(x, weight, bias, 1e-5, grad)
    for module in (cpu, reference):
        out, mean, inv_std = module.layer_norm(x, weight, bias, 1e-5)
        assert (out.dtype, mean.shape) == (dtype, (rows, 1))
        slack = 1 if dtype == np.float32 else 1 + 4 * offset
        assert_within(out, exact, (1 + np.abs(normal)) * 2 * slack, count=4)
        saved = (mean, inv_std)
        found = module.layer_norm_backward(grad, x, weight, 1e-5, saved)
        rounded = found[0].astype(dtype)
        assert_within(rounded, dx, (size + width**-0.5 + 1) * slack, count=8)
        if weight is None:
            assert found[1] is None
        else:
            dweight = np.asarray(found[1]).reshape(-1, width).sum(axis=0).astype(dtype)
            assert_within(dweight, dw, (dw_size + 5) * slack, count=8)
        dbias = np.asarray(found[2]).reshape(-1, width).sum(axis=0).astype(dtype)
        assert_within(dbias, g.sum(axis=0), np.abs(g).sum(axis=0), count=4)


@both_dtypes
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_layer_norm_of_every_width(dtype, offset):
    rng = rng_of(7)
    for width in WIDTHS:
        x = (signed(rng, 5, width) + offset).astype(dtype)
        parts = [signed(rng, width).astype(dtype), signed(rng, width).astype(dtype)]
        grad = signed(rng, 5, width).astype(dtype)
        for weight, bias in (parts, (None, None), (parts[0], None), (None, parts[1])):
            check_layer_norm(x, weight, bias, grad, offset)


@both_dtypes
@pytest.mark.parametrize("rows", [649, 650, 811])
def test_layer_norm_of_so_many_rows_that_backward_sums_them_in_blocks(dtype, rows):
    rng = rng_of(9)
    x, grad = (signed(rng, rows, 101).astype(dtype) for _ in range(2))
    weight, bias = (signed(rng, 101).astype(dtype) for _ in range(2))
    check_layer_norm(x, weight, bias, grad, 0.0)


def test_layer_norm_backward_of_a_long_row_takes_little_memory():
    """For its sums no more than for the gradients of weight and bias themselves."""
    x = signed(rng_of(10), 1, 10**5).astype(np.float32)
    weight = np.ones(10**5, np.float32)
    _, *saved = cpu.layer_norm(x, weight, weight, 1e-5)
    cpu.layer_norm_backward(x, x, weight, 1e-5, saved)  # compiled before it is looked at
    tracemalloc.start()
    cpu.layer_norm_backward(x, x, weight, 1e-5, saved)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < x.nbytes + 2 * 8 * x.size + 10**5


@both_dtypes
def test_layer_norm_of_constant_and_extreme_rows(dtype):
    x = np.array(
        [[3.3] * 7, [0.0] * 7, [1e15] * 7, [np.nan] + [1.0] * 6, [np.inf] + [1.0] * 6], dtype
    )
    weight, bias = np.full(7, 2.0, dtype), np.full(7, 0.5, dtype)
    for module in (cpu, reference):
        with np.errstate(invalid="ignore"):
            out, mean, inv_std = module.layer_norm(x, weight, bias, 1e-5)
        assert_close(out[:3], np.full((3, 7), 0.5), 1e-6 if dtype == np.float32 else 1e-9)
        assert np.isnan(out[3:]).all()
        back = module.layer_norm_backward(np.ones((3, 7), dtype), x[:3], weight, 1e-5,
                                          (mean[:3], inv_std[:3]))  # fmt: skip
        assert np.abs(back[0]).max() < 1e-9


@both_dtypes
def test_layer_norm_of_large_float32_numbers_does_not_overflow(dtype):
    x = np.array([[1e30, -1e30, 3e30, 2e30]], dtype)
    for module in (cpu, reference):
        out, _, _ = module.layer_norm(x, None, None, 1e-5)
        expected = (x / 1e30 - 1.25) / np.std(x / 1e30)
        assert_close(out, expected, 1e-6)


# Dropout


@both_dtypes
@pytest.mark.parametrize("p", [0.0, 1e-9, 0.1, 0.5, 0.9, 1 - 1e-12, 1.0])
def test_dropout_masks_are_bitwise_equal(dtype, p):
    x = signed(rng_of(8), 7, 11, 13).astype(dtype)
    for seed in SEEDS:
        assert_same(cpu.dropout(x, p, seed), reference.dropout(x, p, seed))


def test_dropout_mask_depends_on_the_whole_seed_and_the_index():
    masks = {seed: reference.keep_mask((4000,), 0.5, seed) for seed in SEEDS}
    seeds = list(masks)
    for i, one in enumerate(seeds):
        for other in seeds[:i]:
            assert 0.45 < (masks[one] == masks[other]).mean() < 0.55
    for seed, mask in masks.items():
        assert 0.45 < mask.mean() < 0.55, seed
        for step in (1, 2, 64):
            assert 0.45 < (mask[step:] == mask[:-step]).mean() < 0.55
        # An element's fate does not depend on the shape around it.
        assert_same(reference.keep_mask((40, 100), 0.5, seed).reshape(-1), mask)


@both_dtypes
@pytest.mark.parametrize("p", [0.25, 0.75])
def test_dropout_share_and_scale(dtype, p):
    x = np.ones((300, 300), dtype)
    for module in (cpu, reference):
        out = module.dropout(x, p, 99)
        assert abs((out == 0).mean() - p) < 5 * math.sqrt(p * (1 - p) / x.size)
        assert set(np.unique(out)) == {dtype(0), dtype(1 / (1 - p))}


@both_dtypes
def test_dropped_elements_are_zero_whatever_they_were(dtype):
    x = np.full(200, np.nan, dtype)
    for module in (cpu, reference):
        out = module.dropout(x, 0.5, 3)
        assert 60 < (out == 0).sum() < 140
        assert_all_zero(module.dropout(x, 1.0, 3))


# Embedding, sums, erf, relu, Adam


@both_dtypes
@pytest.mark.parametrize("skip", [None, 0, 3])
def test_scatter_rows(dtype, skip):
    rng = rng_of(9)
    for width in (1, 2, 5, 16, 33):
        ids = rng.randint(0, 6, (4, 50))
        grad = signed(rng, 4, 50, width).astype(dtype)
        exact = np.zeros((8, width), np.longdouble)
        sizes = np.zeros((8, width))
        for row, value in zip(ids.reshape(-1), grad.reshape(-1, width), strict=True):
            exact[row] += value
            sizes[row] += np.abs(value)
        if skip is not None:
            exact[skip] = 0
        for module in (cpu, reference):
            for kind in (np.int64, np.int32, np.uint8):
                found = module.scatter_rows(grad, ids.astype(kind), 8, skip)
                assert found.dtype == dtype
                count = 1 if dtype == np.float32 else 50
                assert_within(found, exact, sizes, count=count)
                assert_all_zero(found[6:])


def test_sums_of_float32_do_not_stall():
    """A float32 that counts ones stops at 2**24; the accumulators are wider."""
    n = 2**24 + 1000
    ones = np.broadcast_to(np.float32(1), (n, 1))
    assert cpu.sum_rows(ones).tolist() == [float(np.float32(n))]
    assert reference.sum_rows(ones).tolist() == [float(np.float32(n))]


@both_dtypes
def test_sum_rows(dtype):
    rng = rng_of(10)
    for rows, width in ((0, 3), (1, 1), (7, 5), (1000, 33), (3, 0)):
        x = signed(rng, rows, width).astype(dtype)
        for module in (cpu, reference):
            found = module.sum_rows(x)
            assert (found.dtype, found.shape) == (dtype, (width,))
            assert_within(found, wide(x)[0].sum(axis=0), np.abs(x).sum(axis=0) + 1e-300, count=8)


@both_dtypes
def test_erf(dtype):
    x = np.concatenate([np.linspace(-6, 6, 2001), [0.0, -0.0, 1e-30, 30.0, -30.0]]).astype(dtype)
    exact = np.array([math.erf(float(value)) for value in x])
    for module in (cpu, reference):
        found = module.erf(x)
        assert found.dtype == dtype
        assert ulps(found, exact) <= 2
        special = module.erf(np.array([np.inf, -np.inf, np.nan], dtype))
        assert special[:2].tolist() == [1, -1]
        assert np.isnan(special[2])


@both_dtypes
def test_relu_backward(dtype):
    out = np.maximum(signed(rng_of(11), 3, 7), 0).astype(dtype)
    grad = signed(rng_of(12), 3, 7).astype(dtype)
    grad[out == 0] = np.nan
    for module in (cpu, reference):
        assert_equal(np.asarray(module.relu_backward(grad, out)), np.where(out > 0, grad, dtype(0)))


@both_dtypes
@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam(dtype, decay, decoupled):
    rng = rng_of(13)
    start = [signed(rng, 37), 0.1 * signed(rng, 37), np.abs(signed(rng, 37))]
    grads = [signed(rng, 37).astype(dtype) for _ in range(20)]
    settings = (0.01, 0.9, 0.99, 1e-8, decay, decoupled)
    results = []
    for module, kind in ((cpu, dtype), (reference, dtype), (reference, np.longdouble)):
        state = [a.astype(kind) for a in start]
        for step, grad in enumerate(grads, 1):
            before = grad.copy()
            lists = ([array] for array in (state[0], grad.astype(kind), *state[1:]))
            module.adam(*lists, *settings, step)
            assert_same(grad, before)
        results.append(state)
    for state in results[:2]:
        for array, exact in zip(state, results[2], strict=True):
            assert array.dtype == dtype
            assert_close(array, exact, 60 * np.finfo(dtype).eps)


@both_dtypes
def test_adam_first_step_with_a_zero_gradient_moves_nothing(dtype):
    for module in (cpu, reference):
        parameter, zeros = np.ones(3, dtype), [[np.zeros(3, dtype)] for _ in range(3)]
        module.adam([parameter], *zeros, 0.1, 0.9, 0.999, 1e-8, 0.0, False, 1)
        assert parameter.tolist() == [1, 1, 1]


@compiled
@both_dtypes
def test_adam_is_compiled_once_for_each_dtype(dtype):
    """Whatever gradients look like: a read-only one is of another type to Numba."""
    from tinyattn.kernels.cpu.optimizer import adam_flat

    fixed = np.ones((2, 3), dtype)
    fixed.setflags(write=False)
    for grad in (np.ones((2, 3), dtype), fixed, np.ones((3, 2), dtype).T):
        lists = ([a] for a in (np.ones((2, 3), dtype), grad, *np.ones((2, 2, 3), dtype)))
        cpu.adam(*lists, 0.1, 0.9, 0.999, 1e-8, 0.0, False, 1)
    assert sum(types[0].dtype.name == np.dtype(dtype).name for types in adam_flat.signatures) == 1


# Attention


# Queries, keys, widths: several tiles of keys and several blocks of queries backward; then forward
# too. As plain Python these would take minutes.
TILES = [(40, 70, 20, 9), (260, 300, 4, 5)] if os.environ.get("NUMBA_DISABLE_JIT") != "1" else []


def exact_attention(q, k, v, seen, scale, keep):
    q, k, v = wide(q, k, v)
    weights = exact_softmax(q @ k.swapaxes(-1, -2) * scale, seen)
    return (weights * keep) @ v, weights


@both_dtypes
@pytest.mark.parametrize("p", [0.0, 0.3])
def test_attention_and_its_backward(dtype, p):
    rng = rng_of(14)
    tolerance = 60 * np.finfo(dtype).eps
    for queries, keys, width, value_width in (
        (1, 1, 1, 1),
        (3, 5, 4, 7),
        (6, 33, 8, 3),
        (4, 17, 5, 5),
        *TILES,
    ):
        shape = (2, 3, queries, keys)
        q, k = (signed(rng, 2, 3, n, width).astype(dtype) for n in (queries, keys))
        v = signed(rng, 2, 3, keys, value_width).astype(dtype)
        grad = signed(rng, 2, 3, queries, value_width).astype(dtype)
        for limits, mask in hidings(rng, shape):
            seen = seen_of(shape, limits, mask)
            keep = reference.keep_mask(shape, p, 77) / (1 - p) if p else np.ones(shape)
            exact, exact_weights = exact_attention(q, k, v, seen, 0.4, keep)
            dweights = np.where(seen, (wide(grad)[0] @ wide(v)[0].swapaxes(-1, -2)) * keep, 0)
            inner = (dweights * exact_weights).sum(axis=-1, keepdims=True)
            dscores = exact_weights * (dweights - inner) * 0.4
            expected = (
                dscores @ wide(k)[0],
                dscores.swapaxes(-1, -2) @ wide(q)[0],
                (exact_weights * keep).swapaxes(-1, -2) @ wide(grad)[0],
            )
            for module in (cpu, reference):
                out, saved = module.attention(q, k, v, limits, mask, 0.4, p, 77)
                found = module.attention_backward(grad, q, k, v, limits, mask, 0.4, p, 77, saved)
                pairs = [(out, exact), *zip(found, expected, strict=True)]
                if module is reference:  # the tiled loops never have all weights
                    assert_all_zero(np.append(saved[~seen], 0))
                    pairs.append((saved, exact_weights))
                for actual, wanted in pairs:
                    assert actual.dtype == dtype
                    scale = max(1.0, float(np.abs(wanted).max(initial=0)))
                    assert np.abs(actual - wanted).max(initial=0) <= tolerance * scale
                hidden = ~seen.any(axis=2)
                assert_all_zero(np.append(found[1][hidden], 0))
                assert_all_zero(np.append(found[2][hidden], 0))


@both_dtypes
@pytest.mark.parametrize("transposed", [False, True])
def test_weighted_sum_leaves_hidden_nan_out(dtype, transposed):
    rng = rng_of(15)
    function = getattr(cpu, "weighted_sum", reference.weighted_sum)
    weights = rng.uniform(size=(2, 1, 3, 4)).astype(dtype)
    mask = rng.uniform(size=(2, 1, 3, 4)) < 0.6
    mask[0, 0, :, 1] = False
    mask[0, 0, 2] = False
    weights[~mask] = 0
    values = signed(rng, 2, 1, 3 if transposed else 4, 5).astype(dtype)
    given = weights.swapaxes(-1, -2) if transposed else weights
    clean = function(given, values, None, mask, transposed)
    assert_close(clean, given @ values, 1e-6)
    row = 2 if transposed else 1
    for value in (np.nan, np.inf):
        poisoned = values.copy()
        poisoned[0, 0, row] = value
        with np.errstate(invalid="ignore"):  # the ops' business, not the kernel's
            assert_equal(function(given, poisoned, None, mask, transposed), clean)
            visible = values.copy()
            visible[1, 0, 0] = value
            assert not np.isfinite(function(given, visible, None, mask, transposed)).all()


# Self-attention


def parts_of(qkv, heads):
    """(n, 3 D) -> queries, keys and values of one sample (1, H, n, d)."""
    n, width = qkv.shape
    parts = qkv.reshape(1, n, 3, heads, width // (3 * heads))
    return [np.ascontiguousarray(parts[:, :, i].swapaxes(1, 2)) for i in range(3)]


def exact_self_attention(qkv, grad, heads, lengths, limits, scale, keep):
    """Output and gradient of packed samples, one by one, in extended precision."""
    outs, slopes, start = [], [], 0
    for b, n in ((b, n) for b, n in enumerate(lengths) if n):
        rows = slice(start, start + n)
        q, k, v = wide(*parts_of(qkv[rows], heads))
        g = wide(np.moveaxis(grad[rows].reshape(n, heads, -1), 1, 0)[None])[0]
        shape, kept = (1, heads, n, n), keep[b : b + 1, :, :n, :n]
        seen = seen_of(shape, None if limits is None else limits[b % len(limits)][None, :n], None)
        out, weights = exact_attention(q, k, v, seen, scale, kept)
        dweights = np.where(seen, (g @ v.swapaxes(-1, -2)) * kept, 0)
        dscores = weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True)) * scale
        dropped = (weights * kept).swapaxes(-1, -2)
        slope = dscores @ k, dscores.swapaxes(-1, -2) @ q, dropped @ g
        outs.append(np.moveaxis(out[0], 0, 1).reshape(n, -1))
        slopes.append(np.concatenate([np.moveaxis(x[0], 0, 1).reshape(n, -1) for x in slope], -1))
        start += n
    return np.concatenate(outs), np.concatenate(slopes)


PACKED_LENGTHS = [
    [1], [5], [3, 1, 2], [0, 4, 0, 7], [9, 9, 9], [33, 2, 40, 0], [300, 1, 65, 257],
]  # fmt: skip


@both_dtypes
@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize("lengths", PACKED_LENGTHS, ids=str)
def test_self_attention_and_its_backward_of_packed_samples(dtype, p, lengths):
    """Against each sample by itself: widths that fill no vector, several tiles, samples of none."""
    rng = rng_of(31)
    tolerance = 60 * np.finfo(dtype).eps
    longest, total = max(lengths), sum(lengths)
    counts = np.array(lengths)
    for heads, d in ((1, 1), (2, 5), (3, 4), (2, 16)):
        shape = (len(lengths), heads, longest, longest)
        keep = reference.keep_mask(shape, p, 77) / (1 - p) if p else np.ones(shape)
        qkv = signed(rng, total, 3 * heads * d).astype(dtype)
        grad = signed(rng, total, heads * d).astype(dtype)
        before = qkv.copy(), grad.copy()
        causal = np.arange(1, longest + 1)[None]
        for limits in (None, causal, rng.randint(0, longest + 1, (len(lengths), 1))):
            exact = exact_self_attention(qkv, grad, heads, lengths, limits, 0.4, keep)
            for module in (cpu, reference):
                settings = (heads, counts, limits, None, 0.4, p, 77)
                out, saved = module.self_attention(qkv, *settings)
                back = module.self_attention_backward(grad, qkv, *settings, saved)
                for actual, wanted in zip((out, back), exact, strict=True):
                    assert actual.dtype == dtype
                    assert actual.shape == wanted.shape
                    size = max(1.0, float(np.abs(wanted).max(initial=0)))
                    assert np.abs(actual - wanted).max(initial=0) <= tolerance * size
        assert_same(qkv, before[0])
        assert_same(grad, before[1])


@both_dtypes
@pytest.mark.parametrize("p", [0.0, 0.3])
def test_self_attention_is_attention_of_its_parts_bit_by_bit(dtype, p):
    """Padded, with every way to hide: the loops are the same, only the places differ."""
    rng = rng_of(32)
    for batch, n, heads, d in ((2, 3, 2, 5), (3, 33, 2, 4), (1, 70, 1, 8)):
        qkv = signed(rng, batch, n, 3 * heads * d).astype(dtype)
        grad = signed(rng, batch, n, heads * d).astype(dtype)
        q, k, v = (np.concatenate(x) for x in zip(*(parts_of(s, heads) for s in qkv), strict=True))
        upstream = grad.reshape(batch, n, heads, d).swapaxes(1, 2)
        for limits, mask in hidings(rng, (batch, heads, n, n)):
            for module in (cpu, reference):
                settings = (limits, mask, 0.4, p, 77)
                expected, saved = module.attention(q, k, v, *settings)
                slopes = module.attention_backward(upstream, q, k, v, *settings, saved)
                out, kept = module.self_attention(qkv, heads, None, *settings)
                back = module.self_attention_backward(grad, qkv, heads, None, *settings, kept)
                assert_same(out, expected.swapaxes(1, 2).reshape(out.shape))
                flat = [x.swapaxes(1, 2).reshape(out.shape) for x in slopes]
                assert_same(back, np.concatenate(flat, axis=-1))


# Biases and relu


@both_dtypes
@pytest.mark.parametrize("kernel", ["fast", "plain"])
def test_add_bias_in_place_of_every_width(dtype, kernel):
    function = (cpu if kernel == "fast" else reference).add_bias
    rng = rng_of(33)
    for width in (*WIDTHS[:-1], 0):
        for rows in (0, 1, 3, 17):
            x, bias = signed(rng, rows, width).astype(dtype), signed(rng, width).astype(dtype)
            expected, before = x + bias, bias.copy()
            assert function(x, bias) is None
            assert_same(x, expected)
            assert_same(bias, before)


@both_dtypes
def test_add_bias_of_another_shape_or_dtype_broadcasts_as_numpy_does(dtype):
    """The loop would read beside such a bias; and what does not fit is an error, x as it was."""
    rng = rng_of(34)
    x = signed(rng, 4, 6).astype(dtype)
    other = np.float64 if dtype == np.float32 else np.float32
    for bias in (
        signed(rng, 1).astype(dtype), signed(rng, 4, 1).astype(dtype), signed(rng).astype(dtype),
        signed(rng, 4, 6).astype(dtype), signed(rng, 6).astype(other),
        signed(rng, 6).astype(np.dtype(dtype).newbyteorder()),
    ):  # fmt: skip
        for module in (cpu, reference):
            changed, expected = x.copy(), x.copy()
            expected += bias
            module.add_bias(changed, bias)
            assert_same(changed, expected)
    for bias in (signed(rng, 5), signed(rng, 7), signed(rng, 2, 6), signed(rng, 4)):
        for module in (cpu, reference):
            changed = x.copy()
            with pytest.raises(ValueError, match="broadcast"):
                module.add_bias(changed, bias.astype(dtype))
            assert_same(changed, x)


@both_dtypes
@pytest.mark.parametrize("kernel", ["fast", "plain"])
def test_relu_of_every_kind_of_number(dtype, kernel):
    function = (cpu if kernel == "fast" else reference).relu
    tiny = np.finfo(dtype).smallest_subnormal
    x = np.array([-np.inf, -1, -tiny, -0.0, 0.0, tiny, 1.5, np.inf, np.nan, -np.nan], dtype)
    expected = np.array([0, 0, 0, 0, 0, tiny, 1.5, np.inf, np.nan, np.nan], dtype)
    assert_equal(function(x), expected)
    assert_equal(function(x.reshape(2, 5).T), expected.reshape(2, 5).T)
    for width in WIDTHS:
        values = signed(rng_of(width), 3, width).astype(dtype)
        before = values.copy()
        assert_same(function(values), np.where(values > 0, values, dtype(0)))
        assert_same(values, before)
    assert_same(np.asarray(function(np.array(-2.0, dtype))), np.array(0, dtype))


# How they are compiled


@compiled
@pytest.mark.parametrize("collected", [True, False])
def test_the_garbage_collector_rests_only_while_a_kernel_is_compiled(collected, monkeypatch):
    """And stays as the caller left it, also when compiling fails."""
    from numba.core.registry import CPUDispatcher

    from tinyattn.kernels.cpu.compiler import jit

    seen, real = [], CPUDispatcher.compile

    def spy(self, signature):
        seen.append(gc.isenabled())
        return real(self, signature)

    monkeypatch.setattr(CPUDispatcher, "compile", spy)
    fine, wrong = jit(lambda x: x + 1), jit(lambda x: x.there_is_no_such_thing)
    (gc.enable if collected else gc.disable)()
    try:
        assert fine(1) == 2
        assert gc.isenabled() is collected
        with pytest.raises(Exception, match="there_is_no_such_thing"):
            wrong(1)
        assert gc.isenabled() is collected
    finally:
        gc.enable()
    assert seen == [False, False]


@compiled
@pytest.mark.parametrize("ends", ["after the other", "forked meanwhile"])
def test_the_garbage_collector_comes_back_where_several_compile(ends, monkeypatch):
    """Also if the second takes long between asking whether it is on and switching it off."""
    from numba.core.registry import CPUDispatcher

    from tinyattn.kernels.cpu import compiler
    from tinyattn.kernels.cpu.compiler import jit

    real, begun, goes_on = CPUDispatcher.compile, threading.Event(), threading.Event()

    class Collector:
        enable, disable = staticmethod(gc.enable), staticmethod(gc.disable)

        @staticmethod
        def isenabled():
            found = gc.isenabled()
            if threading.current_thread() is threads[1]:
                goes_on.set()
                threads[0].join(20)
            return found

    def slow(self, signature):
        begun.set()
        assert goes_on.wait(20)
        return real(self, signature)

    monkeypatch.setattr(CPUDispatcher, "compile", slow)
    monkeypatch.setattr(compiler, "gc", Collector)
    works = [jit(lambda x: x + 1), jit(lambda x: x + 2)]
    threads = [threading.Thread(target=work, args=(1,)) for work in works]
    threads[0].start()
    assert begun.wait(20)
    if ends == "forked meanwhile" and hasattr(os, "fork"):
        with warnings.catch_warnings():  # of Python 3.12's, about the other thread
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            os._exit(0 if gc.isenabled() else 1)
        goes_on.set()
        assert os.waitpid(child, 0)[1] == 0
    else:
        threads[1].start()
        threads[1].join(20)
    threads[0].join(20)
    found = gc.isenabled()
    gc.enable()  # for the tests that follow
    assert found


@compiled
def test_parts_of_loops_are_compiled_for_arrays_that_do_not_overlap():
    """Unless LLVM knows, `add_product` gets no vector instructions."""
    from numba import float32

    from tinyattn.kernels.cpu.compiler import inner

    # Of no file, so that it is compiled here: into what Numba has kept on the disk it cannot look.
    exec("def add(x, y):\n    for i in range(len(x)):\n        x[i] += y[i]", names := {})
    add = inner(names["add"])
    add.compile((float32[:], float32[:]))
    (llvm,) = add.inspect_llvm().values()
    assert len(re.findall(r"(?:ptr|float\*) noalias [\w() ]*%arg\.[xy]\.4", llvm)) == 2


@compiled
@pytest.mark.parametrize("apart", [False, True])
def test_parts_may_be_kept_apart_in_their_callers(apart):
    """What stands often in a kernel is compiled once, and called."""
    from tinyattn.kernels.cpu.compiler import inner, jit

    exec("def part_of_it(x):\n    for i in range(len(x)):\n        x[i] += 1", names := {})
    names["part_of_it"] = inner(names["part_of_it"], apart=apart)
    exec("def twice(x):\n    part_of_it(x)\n    part_of_it(x)", names)
    twice, x = jit(names["twice"]), np.zeros(3)
    twice(x)
    assert x.tolist() == [2, 2, 2]
    (llvm,) = twice.inspect_llvm().values()
    assert len(re.findall(r"call .*part_of_it", llvm)) == (2 if apart else 0)


@compiled
def test_settings_are_compared_as_numba_does():
    """`KernelFlags` are equal where Numba's own are, and as keys they are the same."""
    from numba.core.compiler import Flags

    from tinyattn.kernels.cpu.compiler import KernelFlags

    changes = ({}, {"nrt": True}, {"nrt": False}, {"noalias": True}, {"nrt": True, "noalias": True})
    every = []
    default = {name: getattr(Flags(), name) for name in Flags.options}
    for kind in (Flags, KernelFlags):
        for change in changes:
            flags = kind()
            for name, value in change.items():
                setattr(flags, name, value)
            every.append((flags, {**default, **change}))
    for flags, values in every:
        for others, other_values in every:
            assert (flags == others) == (values == other_values)
            assert hash(flags) == hash(others) or values != other_values


def jitted(source):
    """The function `run` of a source in which the names of `arrays.py` are known."""
    from tinyattn.kernels.cpu import arrays, compiler

    exec(source, names := {**vars(arrays), "np": np})
    return compiler.jit(names["run"], cache=False)


def test_flat_arrays_hold_others():
    run = jitted(
        "def run(x):\n"
        "    return array_at(x, 1, (2, 3)), array_at(x, 7, (3,)), array_at(x, 0, (2, 1, 5))"
    )
    x = np.arange(10.0)
    matrix, vector, cube = run(x)
    assert np.array_equal(matrix, [[1, 2, 3], [4, 5, 6]])
    assert np.array_equal(vector, [7, 8, 9])
    assert np.array_equal(cube, x.reshape(2, 1, 5))
    matrix[1, 2] = vector[0] = -1
    assert x[6] == x[7] == -1


def test_flat_arrays_hold_several_one_after_another():
    run = jitted(
        "def run(x, n):\n"
        "    shapes = (n, 2), (3,), (1, 1, n)\n"
        "    return size_of(shapes), arrays_in(x, shapes)"
    )
    x = np.arange(20, dtype=np.float32)
    size, (matrix, vector, cube) = run(x, 4)
    assert size == 15
    assert np.array_equal(matrix, np.arange(8).reshape(4, 2))
    assert np.array_equal(vector, [8, 9, 10])
    assert np.array_equal(cube, [[[11, 12, 13, 14]]])
    assert all(array.flags.c_contiguous and array.base is not None for array in (matrix, cube))
    matrix[3, 1], cube[0, 0, 3] = -1, -2
    assert x[7] == -1
    assert x[14] == -2


def test_flat_arrays_hold_numbers_of_other_types():
    run = jitted("def run(x):\n    return viewed_as(x, np.int64), viewed_as(x, np.float32)")
    x = np.array([1.5, -2.0, 0.0])
    for found, dtype in zip(run(x), (np.int64, np.float32), strict=True):
        assert found.dtype == dtype
        assert np.array_equal(found, x.view(dtype))
        assert np.shares_memory(found, x)


def test_rows_of_an_array_and_their_transpose_are_of_one_type():
    run = jitted("def run(x, first, n):\n    return rows_at(x, first, n), rows_at(x, first, n).T")
    x = np.arange(20.0).reshape(5, 4)
    found, transposed = run(x, 1, 3)
    assert np.array_equal(found, x[1:4])
    assert np.array_equal(transposed, x[1:4].T)
    assert np.shares_memory(found, x)
    assert np.shares_memory(transposed, x)
    if hasattr(run, "nopython_signatures"):
        one, other = run.nopython_signatures[0].return_type
        assert one == other


@pytest.mark.parametrize("shape", [(6,), (6, 5), (6, 2, 3)])
@pytest.mark.parametrize(("first", "last"), [(0, 6), (0, 2), (3, 6), (2, 4), (3, 3)])
def test_rows_are_cleared_and_no_others(shape, first, last):
    run = jitted("def run(x, first, last):\n    clear(x, first, last)")
    x = np.arange(1.0, 1 + np.prod(shape)).reshape(shape).astype(np.float32)
    expected = x.copy()
    expected[first:last] = 0
    run(x, first, last)
    assert np.array_equal(x, expected)


def test_a_single_row_is_cleared_whatever_it_was_cut_from():
    run = jitted("def run(x):\n    clear(x, 0, 1)")
    base = np.ones((4, 3))
    run(base[::4])
    assert np.array_equal(base, [[0] * 3] + [[1] * 3] * 3)


@compiled
@pytest.mark.parametrize(
    "call",
    [
        "array_at(x, 0, (2,))",
        "arrays_in(x, ((2,), (1, 1)))",
        "viewed_as(x, np.int64)",
        "as_writeable(x)",
        "rows_at(x, 0, 1)",
        "clear(x, 0, 1)",
    ],
)
@pytest.mark.parametrize("cut", ["x[::2]", "x.reshape(3, 2).T"])
def test_arrays_in_another_order_are_refused(call, cut):
    from numba.core.errors import TypingError

    run = jitted(f"def run(x):\n    {call}")
    with pytest.raises(TypingError, match="an array in C order was expected"):
        run(eval(cut, {"x": np.arange(6.0)}))


@compiled
@pytest.mark.parametrize("returned", ["x", "(1, x)", "(1, (x, 2))"])
def test_parts_of_loops_do_not_return_arrays(returned):
    from numba.core.errors import TypingError

    from tinyattn.kernels.cpu import compiler

    exec(f"def part(x):\n    return {returned}", names := {})
    part = compiler.inner(names["part"])
    run = compiler.jit(lambda x: part(x), cache=False)
    with pytest.raises(TypingError, match="part is part of a loop, and returns an array"):
        run(np.arange(6.0))


def test_read_only_arrays_are_to_functions_what_others_are():
    run = jitted("def run(x, y):\n    return as_writeable(x), as_writeable(y)")
    x, y = np.arange(6.0).reshape(2, 3), np.arange(6.0).reshape(2, 3)
    y.flags.writeable = False
    for found, array in zip(run(x, y), (x, y), strict=True):
        assert np.array_equal(found, array)
        assert np.shares_memory(found, array)
    if hasattr(run, "nopython_signatures"):
        one, other = run.nopython_signatures[0].return_type
        assert one == other


@compiled
def test_parts_of_loops_are_compiled_into_their_callers_and_nowhere_else():
    from tinyattn.kernels.cpu.compiler import inner, jit

    names = {"inner": inner, "jit": jit}
    exec(
        "@inner\ndef twice(x):\n    return 2 * x\n"
        "@inner\ndef next_to(x):\n    return twice(x) + 1\n"
        "def both(x):\n    return next_to(x), twice(x)",
        names,
    )
    both = jit(names["both"])
    # Parts are told apart by the types they were compiled for.
    assert both(3) == (7, 6)
    assert both(0.5) == (2.0, 1.0)
    assert type(both(0.5)[0]) is float

    def has_machine_code(result):
        engine = result.library.codegen._engine
        return engine.is_symbol_defined(result.fndesc.llvm_func_name)

    for part in (names["twice"], names["next_to"]):
        assert len(part.overloads) == 2
        assert not any(map(has_machine_code, part.overloads.values()))
    assert all(map(has_machine_code, both.overloads.values()))


@compiled
def test_parts_of_loops_leave_no_file(tmp_path):
    """Numba keeps on the disk only what Python calls."""
    code = (
        "import numpy as np; from tinyattn.kernels import cpu; "
        "x = np.ones((2, 3), np.float32); cpu.layer_norm(x, None, None, 1e-5)"
    )
    run_python(code, env={"NUMBA_CACHE_DIR": str(tmp_path)})
    kept = {path.name.split("-")[0] for path in tmp_path.rglob("*.nbi")}
    assert kept == {"layer_norm.layer_norm_rows"}
