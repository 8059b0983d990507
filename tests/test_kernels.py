"""The compiled kernels against their plain twins, and against a computation in float64.

The twins in `kernels/reference.py` are what a reader reads; `kernels/cpu/` is what runs. They may
differ by the order of their sums, never by more than a few units in the last place.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from common import (
    HERE,
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

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import kernels
from tinyattn.kernels import reference

HAS_NUMBA = importlib.util.find_spec("numba") is not None
needs_numba = pytest.mark.skipif(not HAS_NUMBA, reason="Numba is not installed: nothing to compare")

if HAS_NUMBA:
    from tinyattn.kernels import cpu
    from tinyattn.kernels.cpu.rows import exp
else:
    cpu = reference

DTYPES = [np.float32, np.float64]
both_dtypes = pytest.mark.parametrize("dtype", DTYPES)
WIDTHS = [*range(1, 41), 63, 64, 65, 127, 129, 5000]
SEEDS = [0, 1, 2**32 - 1, 2**32, 1234567890123456789, 2**63 - 1]


def ulps(actual, exact):
    """The largest distance in units in the last place of the exact result's dtype."""
    actual = np.asarray(actual)
    exact = np.asarray(exact, np.float64)
    spacing = np.spacing(np.abs(exact).astype(actual.dtype)).astype(np.float64)
    return float((np.abs(actual.astype(np.float64) - exact) / spacing).max(initial=0))


def assert_within(actual, exact, terms, count=4):
    """|actual - exact| <= count * eps * terms, for sums of terms whose sizes add up to `terms`."""
    actual = np.asarray(actual)
    allowed = count * np.finfo(actual.dtype).eps * np.asarray(terms, np.float64)
    tiny = np.finfo(actual.dtype).smallest_subnormal
    worst = (np.abs(actual.astype(np.float64) - exact) - allowed - tiny).max(initial=-1.0)
    assert worst <= 0, f"off by {worst:.3g} more than allowed"


def wide(*arrays):
    return [None if a is None else np.asarray(a, np.longdouble) for a in arrays]


def assert_softmax_close(out, x, seen):
    """As close as float arithmetic on x - max allows: the difference d has a rounding error of
    d * eps / 2, which the exponential turns into a relative one."""
    exact = exact_softmax(x, seen)
    scores = np.where(seen, x.astype(np.longdouble), np.nan)
    with np.errstate(invalid="ignore"):
        distance = np.nan_to_num(np.fmax.reduce(scores, axis=-1, keepdims=True) - scores)
    assert_within(out, exact, exact * (4 + distance), count=0.75)
    assert_all_zero(np.append(out[~seen], 0))


def exact_softmax(x, seen):
    """In extended precision, hidden cells 0, empty rows 0."""
    scores = np.where(seen, x.astype(np.longdouble), -np.inf)
    top = np.where(seen.any(axis=-1, keepdims=True), scores.max(axis=-1, keepdims=True), 0)
    powers = np.where(seen, np.exp(scores - top), 0)
    total = powers.sum(axis=-1, keepdims=True)
    return powers / np.where(total == 0, 1, total)


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


# Softmax


def hidings(rng, shape):
    """Every way to hide: nothing, lengths, lengths of queries, masks of several shapes, both."""
    batch, _, queries, keys = shape
    mask = rng.uniform(size=shape) < 0.6
    cases = [
        (None, None),
        (rng.randint(0, keys + 1, (batch, 1)), None),
        (rng.randint(0, keys + 1, (batch, queries)), None),
        (rng.randint(0, keys + 1, (1, queries)), None),
        (np.zeros((batch, 1), int), None),
        (np.full((1, 1), keys), None),
        (None, mask),
        (None, mask[:1, :1]),
        (None, mask[:, :1, :1]),
        (None, mask[:, :, :, :1]),
        (None, np.zeros((1, 1, 1, 1), bool)),
        (None, np.ones((1, 1, 1, keys), bool)),
        (rng.randint(0, keys + 1, (batch, queries)), mask[:1]),
    ]
    return cases


def seen_of(shape, limits, mask):
    seen = reference.visible(shape, limits, mask)
    return np.ones(shape, bool) if seen is None else np.broadcast_to(seen, shape)


@both_dtypes
@pytest.mark.parametrize("kernel", ["fast", "plain"])
def test_masked_softmax_of_every_width_and_hiding(dtype, kernel):
    function = (cpu if kernel == "fast" else reference).masked_softmax
    rng = rng_of(0)
    for keys in [*range(1, 41), 200]:
        shape = (2, 2, 3, keys)
        x = (4 * signed(rng, *shape)).astype(dtype)
        for limits, mask in hidings(rng, shape):
            seen = seen_of(shape, limits, mask)
            before = x.copy()
            out = function(x, limits, mask)
            assert_same(x, before)
            assert (out.dtype, out.shape) == (dtype, shape)
            assert_softmax_close(out, x, seen)
            empty = ~seen.any(axis=-1)
            assert_all_zero(np.append(out[empty], 0))


@both_dtypes
def test_masked_softmax_of_long_rows(dtype):
    x = (10 * rng_of(1).standard_normal((1, 1, 3, 5000))).astype(dtype)
    limits = np.array([[5000, 4999, 0]])
    seen = seen_of(x.shape, limits, None)
    for function in (cpu.masked_softmax, reference.masked_softmax):
        out = function(x, limits, None)
        assert_softmax_close(out, x, seen)
        assert_close(out.sum(axis=-1, dtype=np.float64)[..., :2], np.ones((1, 1, 2)), 1e-6)


EXTREME = {
    "equal and huge": ([1e30, 1e30, -1e30], [0.5, 0.5, 0.0]),
    "all huge and negative": ([-1e30, -1e30, -1e30, -1e30], [0.25] * 4),
    "farther apart than the largest number": ([3e38, -3e38], [1.0, 0.0]),
    "denormal result": ([0.0, -100.0], [1.0, math.exp(-100)]),
    "least denormal": ([0.0, -103.0], [1.0, math.exp(-103)]),
    "below denormal": ([0.0, -104.5], [1.0, math.exp(-104.5)]),
    "minus infinity beside a number": ([-math.inf, 1.0], [0.0, 1.0]),
    "zeros of both signs": ([0.0, -0.0], [0.5, 0.5]),
    "one": ([7.0], [1.0]),
    "lowest and highest": ([-3.4e38, 3.4e38, 0.0], [0.0, 1.0, 0.0]),
}


@both_dtypes
@pytest.mark.parametrize("name", EXTREME)
@pytest.mark.parametrize("kernel", ["fast", "plain"])
def test_masked_softmax_of_extreme_scores(name, dtype, kernel):
    function = (cpu if kernel == "fast" else reference).masked_softmax
    scores, exact = EXTREME[name]
    x = np.array(scores, dtype).reshape(1, 1, 1, -1)
    with np.errstate(over="ignore"):
        out = function(x, None, None)[0, 0, 0]
    assert ulps(out, np.array(exact, dtype)) <= 2
    # And hidden behind a limit, the extreme numbers make no difference.
    padded = np.append(np.array([0.5, 0.25], dtype), np.array(scores, dtype)).reshape(1, 1, 1, -1)
    two = function(padded, np.array([[2]]), None)
    assert_same(two[..., :2], function(padded[..., :2].copy(), None, None))
    assert_all_zero(two[..., 2:])


@both_dtypes
@pytest.mark.parametrize(
    ("scores", "rows"),
    [
        ([math.nan, 1.0], "nan"),
        ([math.inf, 1.0], "nan"),
        ([math.inf, math.inf], "nan"),
        ([-math.inf, -math.inf], "nan"),
        ([math.nan, math.inf, -math.inf], "nan"),
    ],
)
def test_masked_softmax_of_nan_and_inf_is_pytorchs_nan_in_that_row_only(scores, rows, dtype):
    for width in (len(scores), 20, 33):
        x = np.zeros((1, 1, 3, width), dtype)
        x[0, 0, 1, : len(scores)] = scores
        limits = np.array([[width, len(scores), 1]])
        with np.errstate(invalid="ignore"):
            fast, plain = (m.masked_softmax(x, limits, None) for m in (cpu, reference))
        for out in (fast, plain):
            assert np.isnan(out[0, 0, 1, : len(scores)]).all()
            assert_all_zero(np.append(out[0, 0, 1, len(scores) :], 0))
            assert_close(out[0, 0, 0], np.full(width, 1 / width), 1e-6)
            assert out[0, 0, 2, 0] == 1


@both_dtypes
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e38, -1e38])
def test_masked_softmax_and_its_backward_read_nothing_hidden(dtype, value):
    rng = rng_of(2)
    for keys in (1, 5, 17, 40):
        shape = (2, 2, 3, keys)
        for limits, mask in hidings(rng, shape):
            seen = seen_of(shape, limits, mask)
            x, grad = (signed(rng, *shape).astype(dtype) for _ in range(2))
            for module in (cpu, reference):
                results = []
                for content in (0.0, value):
                    scores = np.where(seen, x, content).astype(dtype)
                    out = module.masked_softmax(scores, limits, mask)
                    upstream = np.where(seen, grad, content).astype(dtype)
                    back = module.masked_softmax_backward(upstream, out, limits, mask)
                    results.append((out, back))
                assert_equal(results[1][0], results[0][0])
                assert_equal(results[1][1], results[0][1])
                assert_all_zero(np.append(results[1][1][~seen], 0))


@both_dtypes
@pytest.mark.parametrize("module", ["fast", "plain"])
def test_softmax_backward_of_every_width(dtype, module):
    function = (cpu if module == "fast" else reference).softmax_backward
    rng = rng_of(3)
    for width in WIDTHS:
        out = exact_softmax(4 * signed(rng, 3, width), np.ones((3, width), bool)).astype(dtype)
        grad = signed(rng, 3, width).astype(dtype)
        before = grad.copy(), out.copy()
        found = function(grad, out)
        assert_same(grad, before[0])
        assert_same(out, before[1])
        g, w = wide(grad, out)
        exact = w * (g - (g * w).sum(axis=-1, keepdims=True))
        size = w * (np.abs(g) + (np.abs(g) * w).sum(axis=-1, keepdims=True))
        # NumPy's float32 product adds pairwise, the loops in float64.
        assert found.dtype == dtype
        assert_within(found, exact, size, count=4 if module == "fast" else 12)


@both_dtypes
def test_masked_softmax_backward_of_every_hiding(dtype):
    rng = rng_of(4)
    for keys in (1, 2, 7, 16, 33):
        shape = (2, 2, 3, keys)
        for limits, mask in hidings(rng, shape):
            seen = seen_of(shape, limits, mask)
            out = exact_softmax(signed(rng, *shape), seen).astype(dtype)
            grad = signed(rng, *shape).astype(dtype)
            g, w = wide(np.where(seen, grad, 0), out)
            exact = w * (g - (g * w).sum(axis=-1, keepdims=True))
            for module in (cpu, reference):
                back = module.masked_softmax_backward(grad, out, limits, mask)
                assert_within(back, exact, 2 * w, count=6)
                assert_all_zero(np.append(back[~seen], 0))


# The exponential inside


@needs_numba
@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_exponential_is_within_two_ulps_over_its_whole_range(shift):
    """The polynomial of the float32 kernels, from where exp is 0 to the largest shifted score."""
    x = np.concatenate([
        np.linspace(-110, 0, 200001),
        np.linspace(-1e-3, 1e-3, 2001),
        [-103.97, -103.9, -87.34, -87.33, -0.0, 0.0],
        np.arange(-150, 1) * math.log(2) / 2,
    ]).astype(np.float32)  # fmt: skip
    row = (x + np.float32(shift)).astype(np.float32)
    shifted = row - np.float32(shift)
    out = np.array([exp(value) for value in shifted], np.float32)
    exact = np.exp(shifted.astype(np.longdouble))
    assert ulps(out, exact) <= 2
    assert out[x == 0].min() == out[x == 0].max() == 1


@needs_numba
def test_exponential_of_what_is_no_number_or_out_of_range():
    out = np.array([exp(np.float32(x)) for x in (-np.inf, np.nan, -1e30, -200.0)])
    assert out[[0, 2, 3]].tolist() == [0, 0, 0]
    assert np.isnan(out[1])


# Logarithms and cross-entropy


@both_dtypes
def test_log_softmax_of_every_width(dtype):
    rng = rng_of(5)
    for width in WIDTHS:
        x = (4 * signed(rng, 3, width)).astype(dtype)
        (w,) = wide(x)
        top = w.max(axis=-1, keepdims=True)
        exact = (w - top) - np.log(np.exp(w - top).sum(axis=-1, keepdims=True))
        grad = signed(rng, 3, width).astype(dtype)
        (g,) = wide(grad)
        for module in (cpu, reference):
            out = module.log_softmax(x)
            assert out.dtype == dtype
            assert_within(out, exact, np.abs(exact) + np.abs(w - top) + 0.5, count=2)
            function = getattr(module, "log_softmax_backward", reference.log_softmax_backward)
            back = function(grad, exact.astype(dtype))
            total = g.sum(axis=-1, keepdims=True)
            slope = g - np.exp(exact) * total
            size = np.abs(g) + np.exp(exact) * (1 + np.abs(exact)) * (
                np.abs(g).sum(axis=-1, keepdims=True)
            )
            assert_within(back, slope, size, count=6)


@both_dtypes
def test_log_softmax_where_softmax_is_zero(dtype):
    x = np.array([[0.0, -1000.0, 500.0], [-1e30, 1e30, 0.0], [-np.inf, 0.0, 0.0]], dtype)
    for module in (cpu, reference):
        out = module.log_softmax(x)
        assert_close(out[0], [-500.0, -1500.0, 0.0], 1e-6)
        assert_close(out[1], [-2e30, 0.0, -1e30], 1e-6)
        assert out[2, 0] == -np.inf
        assert_close(out[2, 1:], [-math.log(2)] * 2, 1e-6)


@both_dtypes
@pytest.mark.parametrize("offset", [0.0, 100.0, 1e4, -1e5])
def test_cross_entropy_of_every_width(dtype, offset):
    """Logits far from 0 cost no precision: only their differences count."""
    rng = rng_of(6)
    for width in WIDTHS[::3]:
        logits = (4 * signed(rng, 6, width) + offset).astype(dtype)
        target = rng.randint(0, width, 6)
        target[2] = -7
        grad = signed(rng, 6).astype(dtype)
        kept = np.arange(6) != 2
        (w,) = wide(logits)
        top = w.max(axis=-1, keepdims=True)
        logs = (w - top) - np.log(np.exp(w - top).sum(axis=-1, keepdims=True))
        losses = np.where(kept, -logs[np.arange(6), np.where(kept, target, 0)], 0)
        slope = np.exp(logs)
        slope[np.arange(6)[kept], target[kept]] -= 1
        slope = np.where(kept[:, None], slope * wide(grad)[0][:, None], 0)
        size = np.abs(grad)[:, None] * np.exp(logs) * (1 + np.abs(logs))
        size[np.arange(6)[kept], target[kept]] += np.abs(grad)[kept]
        for module in (cpu, reference):
            found, log_sums = module.cross_entropy(logits, target, -7)
            assert found.dtype == dtype
            assert_within(found, losses, np.abs(losses) + np.abs(logs).max(axis=-1), count=2)
            assert found[2] == 0
            back = module.cross_entropy_backward(grad, logits, target, -7, log_sums)
            back = back.astype(dtype)  # as the engine does with what comes back wider
            assert_all_zero(back[2])
            assert_within(back, slope, size, count=8)


@both_dtypes
def test_cross_entropy_of_extreme_logits(dtype):
    logits = np.array(
        [[1e30, -1e30, 0], [0, 0, -np.inf], [np.nan, 0, 0], [0, 0, 0], [np.inf, 0, 0]], dtype
    )
    target = np.array([0, 2, 1, -100, 1])
    for module in (cpu, reference):
        with np.errstate(invalid="ignore"):
            losses, log_sums = module.cross_entropy(logits, target, -100)
            grad = np.ones(5, dtype)
            back = module.cross_entropy_backward(grad, logits, target, -100, log_sums)
        assert losses[0] == 0
        assert losses[1] == np.inf
        assert np.isnan(losses[2])
        assert losses[3] == 0
        assert not np.isfinite(losses[4])
        assert_all_zero(back[3])
        assert_close(back[0], [0, 0, 0], 1e-30)
        assert_close(back[1], [0.5, 0.5, -1.0], 1e-6)
        assert np.isnan(back[2]).all()


@both_dtypes
def test_ignored_rows_may_hold_anything(dtype):
    logits = np.array([[np.nan, np.inf], [1.0, 2.0]], dtype)
    target = np.array([-100, 0])
    for module in (cpu, reference):
        losses, log_sums = module.cross_entropy(logits, target, -100)
        grad = np.array([np.nan, 1.0], dtype)
        back = module.cross_entropy_backward(grad, logits, target, -100, log_sums)
        assert losses[0] == 0
        assert_all_zero(back[0])
        assert np.isfinite(back).all()


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


@both_dtypes
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_layer_norm_of_every_width(dtype, offset):
    rng = rng_of(7)
    for width in WIDTHS:
        x = (signed(rng, 5, width) + offset).astype(dtype)
        parts = [signed(rng, width).astype(dtype), signed(rng, width).astype(dtype)]
        grad = signed(rng, 5, width).astype(dtype)
        for weight, bias in (parts, (None, None), (parts[0], None), (None, parts[1])):
            exact, dx, size, dw, dw_size, g, normal = exact_layer_norm(x, weight, bias, 1e-5, grad)
            for module in (cpu, reference):
                out, mean, inv_std = module.layer_norm(x, weight, bias, 1e-5)
                assert (out.dtype, mean.shape) == (dtype, (5, 1))
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
            module.adam(state[0], grad.astype(kind), *state[1:], *settings, step)
            assert_same(grad, before)
        results.append(state)
    for state in results[:2]:
        for array, exact in zip(state, results[2], strict=True):
            assert array.dtype == dtype
            assert_close(array, exact, 60 * np.finfo(dtype).eps)


@both_dtypes
def test_adam_first_step_with_a_zero_gradient_moves_nothing(dtype):
    for module in (cpu, reference):
        parameter, zeros = np.ones(3, dtype), [np.zeros(3, dtype) for _ in range(3)]
        module.adam(parameter, *zeros, 0.1, 0.9, 0.999, 1e-8, 0.0, False, 1)
        assert parameter.tolist() == [1, 1, 1]


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
@pytest.mark.parametrize("layout", ["Fortran", "strided", "reversed", "transposed", "misaligned"])
def test_add_bias_writes_through_any_layout(dtype, layout):
    rng = rng_of(35)
    x, bias = signed(rng, 4, 6).astype(dtype), signed(rng, 6).astype(dtype)
    changed = LAYOUTS[layout](x.copy())
    kernels.add_bias(changed, LAYOUTS[layout](bias))
    assert_same(np.array(changed), x + bias)


@both_dtypes
def test_add_bias_to_what_is_read_only_is_an_error(dtype):
    x = read_only(np.ones((2, 3), dtype))
    for module in (cpu, reference):
        with pytest.raises(ValueError, match="read-only"):
            module.add_bias(x, np.ones(3, dtype))
    assert_same(x, np.ones((2, 3), dtype))


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


# Shapes with nothing in them


@both_dtypes
@pytest.mark.parametrize(
    "shape", [(0, 1, 2, 3), (2, 0, 2, 3), (2, 1, 0, 3), (2, 1, 2, 0), (0, 0, 0, 0)]
)
def test_empty_arrays(dtype, shape):
    x = np.zeros(shape, dtype)
    batch, heads, queries, keys = shape
    for module in (cpu, reference):
        for limits, mask in ((None, None), (np.zeros((batch, 1), int), np.ones(shape, bool))):
            out = module.masked_softmax(x, limits, mask)
            assert (out.shape, out.dtype) == (shape, dtype)
            assert module.masked_softmax_backward(x, out, limits, mask).shape == shape
        assert module.softmax_backward(x, x).shape == shape
        assert module.log_softmax(x).shape == shape
        assert module.dropout(x, 0.5, 1).shape == shape
        assert module.erf(x).shape == shape
        assert module.relu(x).shape == shape
        assert np.asarray(module.relu_backward(x, x)).shape == shape
        qkv = np.zeros((batch, queries, 3 * heads), dtype)
        packed = np.zeros((batch * queries, 3 * heads), dtype)
        for given, lengths in ((qkv, None), (packed, np.full(batch, queries))):
            if not heads:
                break  # there is no width to divide
            out, saved = module.self_attention(given, heads, lengths, None, None, 1.0, 0.0, 0)
            assert (out.shape, out.dtype) == ((*given.shape[:-1], heads), dtype)
            settings = (heads, lengths, None, None, 1.0, 0.0, 0, saved)
            back = module.self_attention_backward(out, given, *settings)
            assert (back.shape, back.dtype) == (given.shape, dtype)
        q, k = np.zeros((batch, heads, queries, 4), dtype), np.zeros((batch, heads, keys, 4), dtype)
        out, saved = module.attention(q, k, k, None, None, 1.0, 0.0, 0)
        assert out.shape == q.shape
        back = module.attention_backward(q, q, k, k, None, None, 1.0, 0.0, 0, saved)
        assert [g.shape for g in back] == [q.shape, k.shape, k.shape]
        if keys:
            out, mean, _ = module.layer_norm(x, None, None, 1e-5)
            assert (out.shape, mean.shape) == (shape, (*shape[:-1], 1))


@both_dtypes
def test_empty_rows_classes_and_tables(dtype):
    for module in (cpu, reference):
        empty = np.zeros((0, 3), dtype)
        losses, log_sums = module.cross_entropy(empty, np.zeros(0, int), -100)
        assert (losses.shape, losses.dtype) == ((0,), dtype)
        back = module.cross_entropy_backward(losses, empty, np.zeros(0, int), -100, log_sums)
        assert back.shape == (0, 3)
        table = module.scatter_rows(np.zeros((0, 3), dtype), np.zeros(0, int), 4, None)
        assert_all_zero(table)
        assert (table.shape, table.dtype) == ((4, 3), dtype)


# Layouts


LAYOUTS = {
    "Fortran": np.asfortranarray,
    "strided": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "reversed": lambda a: np.ascontiguousarray(a[..., ::-1])[..., ::-1],
    "read-only": lambda a: read_only(a),
    "transposed": lambda a: np.ascontiguousarray(a.T).T,
    "byte-swapped": lambda a: a.astype(a.dtype.newbyteorder()) if a.dtype.itemsize > 1 else a,
    "misaligned": lambda a: misaligned(a),
    "broadcast": lambda a: np.broadcast_to(a[None], (3, *a.shape))[1],
}


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def misaligned(array):
    buffer = np.empty(array.nbytes + 1, np.uint8)
    shifted = buffer[1:].view(array.dtype).reshape(array.shape)
    shifted[...] = array
    assert not shifted.flags.aligned or array.dtype.itemsize == 1
    return shifted


def arrays_in(result):
    """All arrays of a kernel's result, those it keeps for backward among them."""
    if not isinstance(result, tuple):
        return [result]
    return [array for part in result for array in arrays_in(part)]


@both_dtypes
@pytest.mark.parametrize("layout", LAYOUTS)
def test_kernels_take_arrays_of_any_layout(dtype, layout):
    """Through the door that the ops use, with every input in that layout."""
    change = LAYOUTS[layout]
    rng = rng_of(16)

    def make(*shape):
        return signed(rng, *shape).astype(dtype)

    x, grad, weights = make(2, 3, 4, 5), make(2, 3, 4, 5), np.abs(make(2, 3, 4, 5))
    limits, mask = np.array([[5, 0, 2, 3], [1, 5, 4, 0]]), rng.uniform(size=(2, 1, 4, 5)) < 0.7
    rows, row_grad, weight, bias = make(6, 5), make(6, 5), make(5), make(5)
    target, ids = np.array([0, 4, -100, 2, 1, 1]), np.array([[0, 2], [1, 2], [0, 0]])
    q, k, v, dout = make(2, 3, 4, 6), make(2, 3, 5, 6), make(2, 3, 5, 7), make(2, 3, 4, 7)
    _, log_sums = reference.cross_entropy(rows, target, -100)
    saved = reference.layer_norm(rows, weight, bias, 1e-5)[1:]
    _, kept = kernels.attention(q, k, v, limits, mask, 0.5, 0.2, 9)
    qkv, reach = make(7, 18), np.arange(1, 5)[None]
    packed = (2, np.array([4, 0, 3]), reach, None, 0.5, 0.2, 9)
    _, kept_packed = kernels.self_attention(qkv, *packed)
    calls = {
        "masked_softmax": (x, limits, mask),
        "softmax_backward": (grad, weights),
        "masked_softmax_backward": (grad, weights, limits, mask),
        "log_softmax": (x,),
        "log_softmax_backward": (grad, x),
        "cross_entropy": (rows, target, -100),
        "cross_entropy_backward": (make(6), rows, target, -100, log_sums),
        "layer_norm": (rows, weight, bias, 1e-5),
        "layer_norm_backward": (row_grad, rows, weight, 1e-5, tuple(saved)),
        "dropout": (x, 0.5, 123),
        "scatter_rows": (make(3, 2, 4), ids, 4, None),
        "attention": (q, k, v, limits, mask, 0.5, 0.2, 9),
        "attention_backward": (dout, q, k, v, limits, mask, 0.5, 0.2, 9, kept),
        "self_attention": (qkv, *packed),
        "self_attention_backward": (make(7, 6), qkv, *packed, kept_packed),
        "weighted_sum": (weights, v, limits, mask),
        "erf": (x,),
        "relu": (x,),
        "relu_backward": (grad, x),
        "sum_rows": (rows,),
    }
    assert {*calls, "adam", "add_bias"} == set(KERNELS)  # which write into what they are given
    for name, arguments in calls.items():
        changed = [change(a) if isinstance(a, np.ndarray) else a for a in arguments]
        if name == "layer_norm_backward":
            changed[-1] = tuple(change(a) for a in saved)
        if name == "attention_backward":
            changed[-1] = kernels.attention(*changed[1:-1])[1]
        if name == "self_attention_backward":
            changed[-1] = kernels.self_attention(*changed[1:-1])[1]
        kernel = getattr(kernels, name)
        try:
            found = arrays_in(kernel(*changed))
        except Exception as error:
            raise AssertionError(f"{name}: {error!r}") from error
        wanted = arrays_in(kernel(*arguments))
        if name in (
            "attention",
            "self_attention",
        ):  # what is kept depends on the loop, which not every layout takes
            found, wanted = found[:1], wanted[:1]
        for actual, expected in zip(found, wanted, strict=True):
            actual = np.asarray(actual)
            if name == "cross_entropy":  # what is kept of ignored rows is nobody's business
                actual, expected = (np.where(target == -100, 0, a) for a in (actual, expected))
            if name == "layer_norm_backward":  # its parts may still be waiting for their sum
                actual = actual.reshape(-1, actual.shape[-1])
                expected = expected.reshape(-1, expected.shape[-1])
                if actual.shape != expected.shape:
                    actual, expected = (a.sum(axis=0) for a in (actual, expected))
            try:
                assert_close(actual, expected, 8 * np.finfo(dtype).eps)
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from None


@both_dtypes
@pytest.mark.parametrize("layout", ["Fortran", "strided", "transposed", "misaligned"])
def test_adam_writes_through_any_layout(dtype, layout):
    rng = rng_of(17)
    arrays = [signed(rng, 3, 4).astype(dtype), signed(rng, 3, 4).astype(dtype)]
    arrays += [np.abs(signed(rng, 3, 4)).astype(dtype) for _ in range(2)]
    changed = [LAYOUTS[layout](a.copy()) for a in arrays]
    expected = [a.copy() for a in arrays]
    settings = (0.01, 0.9, 0.99, 1e-8, 0.1, True, 4)
    kernels.adam(*expected, *settings)
    kernels.adam(*changed, *settings)
    for actual, wanted in zip(changed, expected, strict=True):
        assert_close(actual, wanted, 8 * np.finfo(dtype).eps)
    assert np.abs(expected[0] - arrays[0]).max() > 1e-3


def test_float16_goes_through_the_plain_code():
    x = ta.tensor(signed(rng_of(18), 2, 3, 4).astype(np.float16))
    out = F.masked_softmax(x, [4, 2])
    exact = exact_softmax(x.numpy(), seen_of((2, 3, 4), None, np.arange(4) < [[[4]], [[2]]]))
    assert out.dtype == np.float16
    assert ulps(out.numpy(), exact) <= 2


# Without Numba, without the compiler, without a cache


def compare_tours(actual, expected):
    assert set(actual) == set(expected)
    for name, value in expected.items():
        found = actual[name]
        if name.startswith("dropout"):
            assert_same(found, value)
        else:
            eps = np.finfo(np.float32 if "float32" in name else np.float64).eps
            assert_close(found, value, 30 * eps)


TOUR = """
import sys
import numpy as np
{before}
import common
results = common.kernel_tour()
{after}
np.savez(sys.argv[1], **results)
"""


def tour_elsewhere(tmp_path, before="", after="", env=None, **options):
    path = tmp_path / "tour.npz"
    run_python(TOUR.format(before=before, after=after), env=env, args=[path], **options)
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def test_kernels_agree_with_the_switch_off(tmp_path):
    found = tour_elsewhere(
        tmp_path,
        after="assert 'numba' not in sys.modules",
        env={"TINYATTN_JIT": "0"},
    )
    compare_tours(found, kernel_tour())


def test_kernels_agree_without_numba(tmp_path):
    """As if it were not installed."""
    found = tour_elsewhere(tmp_path, before="sys.modules['numba'] = None")
    compare_tours(found, kernel_tour())


def test_whole_model_trains_without_numba_and_agrees(tmp_path):
    code = """
import sys
sys.modules["numba"] = None
import test_kernels
print(test_kernels.train_a_little())
"""
    assert_close(
        np.array(eval(run_python(code))),
        np.array(train_a_little()),
        1e-4,
    )


def train_a_little():
    """Losses of a tiny encoder with dropout: seeds are the same with and without Numba."""
    from tinyattn import nn, optim

    ta.manual_seed(3)
    attention = nn.MultiHeadedAttention(2, 8, 0.2)
    layer = nn.EncoderLayer(8, attention, nn.PositionwiseFeedForward(8, 16, 0.2, "gelu"), 0.2)
    model = nn.Sequential(nn.Embedding(7, 8), nn.PositionalEncoding(8), nn.Encoder(layer, 1))
    head = nn.Linear(8, 7)
    optimizer = optim.AdamW([*model.parameters(), *head.parameters()], lr=0.02)
    ids = np.array([[1, 2, 3, 4], [5, 6, 0, 0]])
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = F.cross_entropy(head(model(ids)).reshape(8, 7), ids.reshape(8), ignore_index=0)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@needs_numba
def test_kernels_agree_with_numba_s_compiler_disabled(tmp_path):
    """NUMBA_DISABLE_JIT=1 runs the loops as Python: for debugging, and for coverage."""
    found = tour_elsewhere(
        tmp_path,
        after="import numba; assert numba.config.DISABLE_JIT; "
        "assert 'tinyattn.kernels.cpu' in sys.modules",
        env={"NUMBA_DISABLE_JIT": "1", "TINYATTN_JIT": "1"},
    )
    compare_tours(found, kernel_tour())


def copied_package(tmp_path):
    """A copy of the package, so that its folders can be spoiled."""
    source = Path(ta.__file__).parent
    target = tmp_path / "site" / "tinyattn"
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    return target


ONE_KERNEL = """
import sys
import numpy as np
import tinyattn
from tinyattn import kernels
from tinyattn.kernels import cpu
assert tinyattn.__file__.startswith(sys.argv[1]), tinyattn.__file__
x = np.array([[0.0, 0.0, 5.0]], np.float32).reshape(1, 1, 1, 3)
print(kernels.masked_softmax(x, np.array([[2]]), None).tolist())
"""


@needs_numba
def test_kernels_run_where_no_cache_can_be_written(tmp_path):
    """Where __pycache__ and the home folder are files: even root cannot write below them."""
    package = copied_package(tmp_path)
    (package / "kernels" / "__pycache__").write_text("not a folder")
    home = tmp_path / "home"
    home.write_text("not a folder")
    env = {
        "TINYATTN_JIT": "1",
        "NUMBA_DISABLE_JIT": "0",
        "PYTHONPATH": os.pathsep.join([str(package.parent), str(HERE)]),
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "LOCALAPPDATA": str(home),
        "NUMBA_CACHE_DIR": "",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    flags = ("-P", "-W", "error")  # -P: not the folder we are in, but the copy
    out = run_python(ONE_KERNEL, env=env, args=[package.parent], flags=flags)
    assert out.strip() == "[[[[0.5, 0.5, 0.0]]]]"


def test_import_is_lean_and_leaves_no_trace():
    code = """
import os, random, signal, sys, threading, warnings
import numpy as np
def threads():
    return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0
def state():
    return (np.geterr(), np.random.get_state()[1].tolist(), random.getstate(),
            list(warnings.filters), dict(os.environ), np.get_printoptions(),
            sys.getrecursionlimit(), sorted(sys.path), sys.excepthook, os.getcwd(),
            signal.getsignal(signal.SIGINT), threading.active_count(), threads())
np.random.seed(5); random.seed(5)
before = state()
loaded = set(sys.modules)
import tinyattn
heavy = {"numba", "matplotlib", "safetensors", "cupy", "torch", "scipy", "tqdm", "sklearn",
         "hypothesis", "pytest", "tinyattn.viz", "tinyattn.kernels.cpu", "llvmlite"}
assert not heavy & (set(sys.modules) - loaded), heavy & set(sys.modules)
from tinyattn import nn, optim, functional, masks
assert not heavy & (set(sys.modules) - loaded), heavy & set(sys.modules)
x = tinyattn.randn(3, 4)
assert not heavy & (set(sys.modules) - loaded), heavy & set(sys.modules)
after = state()
for one, two in zip(before, after):
    assert one == two, (one, two)
"""
    run_python(code)


def test_computing_leaves_no_trace_either():
    before = np.geterr(), np.random.get_state()[1].tolist(), np.get_printoptions()
    environment = dict(os.environ)
    kernel_tour()
    with contextlib.suppress(ValueError):
        F.masked_softmax(ta.zeros(1, 1, 2), [5])
    F.softmax(ta.tensor([float("inf"), 1.0]))
    F.dropout(ta.ones(100), 0.5)
    after = np.geterr(), np.random.get_state()[1].tolist(), np.get_printoptions()
    assert before == after
    assert environment == dict(os.environ)


@needs_numba
def test_compiled_kernels_run_in_threads_and_give_what_one_thread_gives():
    """They release the GIL and share nothing."""
    from concurrent.futures import ThreadPoolExecutor

    rng = rng_of(19)
    inputs = [signed(rng, 2, 2, 16, 33).astype(np.float32) for _ in range(16)]
    expected = [cpu.masked_softmax(x, None, None) for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            found = list(pool.map(lambda x: cpu.masked_softmax(x, None, None), inputs))
            for one, two in zip(found, expected, strict=True):
                assert_same(one, two)
