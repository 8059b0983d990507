"""The kernels of softmax, masked or not, of its logarithm and of cross-entropy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from common import (
    assert_all_zero,
    assert_close,
    assert_equal,
    assert_same,
    rng_of,
    signed,
)
from formulas import reference
from kernel_checks import (
    HAS_NUMBA,
    WIDTHS,
    assert_softmax_close,
    assert_within,
    both_dtypes,
    cpu,
    exact_softmax,
    hiding,
    hidings,
    needs_numba,
    seen_of,
    ulps,
    wide,
)

from tinyattn.kernels.visibility import of_padded

if HAS_NUMBA:
    from tinyattn.kernels.cpu.compiler import jit
    from tinyattn.kernels.cpu.row_functions import exp, largest

    @jit
    def exponentials(x, out):
        """`exp` as kernels see it; called from Python it would not be compiled."""
        for i in range(len(x)):
            out[i] = exp(x[i])


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
            out = function(x, hiding(x, limits, mask))
            assert_same(x, before)
            assert (out.dtype, out.shape) == (dtype, shape)
            assert_softmax_close(out, x, seen)
            empty = ~seen.any(axis=-1)
            assert_all_zero(np.append(out[empty], 0))


@both_dtypes
def test_masked_softmax_of_long_rows(dtype):
    x = (10 * rng_of(1).standard_normal((1, 1, 3, 5000))).astype(dtype)
    for limits in (np.array([[5000, 4999, 0]]), None):
        seen = seen_of(x.shape, limits, None)
        for function in (cpu.masked_softmax, reference.masked_softmax):
            out = function(x, hiding(x, limits, None))
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
        out = function(x, None)[0, 0, 0]
    assert ulps(out, np.array(exact, dtype)) <= 2
    # And hidden behind a limit, the extreme numbers make no difference.
    padded = np.append(np.array([0.5, 0.25], dtype), np.array(scores, dtype)).reshape(1, 1, 1, -1)
    two = function(padded, hiding(padded, np.array([[2]]), None))
    assert_same(two[..., :2], function(padded[..., :2].copy(), None))
    assert_all_zero(two[..., 2:])


@both_dtypes
def test_the_maximum_may_be_anywhere(dtype):
    """Without it exp(1000) overflows, and with one that is too large all of them are 0."""
    for width, least in itertools.product((1, 15, 16, 17, 40), (0, -500, -3000)):
        x = np.full((width, width), least, dtype)
        np.fill_diagonal(x, least + 1000)
        for module in (cpu, reference):
            assert_same(module.softmax(x), np.eye(width, dtype=dtype))
            losses, _ = module.cross_entropy(x, np.arange(width), -100)
            assert_same(losses, np.zeros(width, dtype))
            assert_same(np.diagonal(module.log_softmax(x)), np.zeros(width, dtype))


@needs_numba
def test_the_largest_number_of_any_bits():
    bits = np.random.default_rng(0).integers(-(2**31), 2**31, (2000, 5)).astype(np.int32)
    x = bits.view(np.float32)
    x[:500] = -np.abs(x[:500])
    x[500:700, 1:4] = [0.0, -0.0, -math.inf]
    x[700:800] = -math.inf
    x = x[~np.isnan(x).any(axis=1)]
    largest_of = np.array([largest(row) for row in x], np.float32)
    assert_equal(largest_of, x.max(axis=1))
    assert math.isnan(largest(np.array([1, math.nan, 2], np.float32)))
    assert largest(np.array([1, -math.nan, 2], np.float32)) == 2
    assert largest(np.empty(0, np.float32)) == -math.inf


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
            fast, plain = (m.masked_softmax(x, hiding(x, limits, None)) for m in (cpu, reference))
        for out in (fast, plain):
            assert np.isnan(out[0, 0, 1, : len(scores)]).all()
            assert_all_zero(np.append(out[0, 0, 1, len(scores) :], 0))
            assert_close(out[0, 0, 0], np.full(width, 1 / width), 1e-6)
            assert out[0, 0, 2, 0] == 1


@both_dtypes
def test_masked_softmax_of_visible_nan_leaves_what_is_hidden_zero(dtype):
    x = np.array([np.nan, 1.0, 2.0, 3.0], dtype).reshape(1, 1, 1, 4)
    mask = np.array([True, False, True, False]).reshape(1, 1, 1, 4)
    for module in (cpu, reference):
        with np.errstate(invalid="ignore"):
            out = module.masked_softmax(x, hiding(x, np.array([[3]]), mask))[0, 0, 0]
        assert_equal(out, np.array([np.nan, 0, np.nan, 0], dtype))


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
                    out = module.masked_softmax(scores, hiding(x, limits, mask))
                    upstream = np.where(seen, grad, content).astype(dtype)
                    back = module.masked_softmax_backward(upstream, out, hiding(x, limits, mask))
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
                back = module.masked_softmax_backward(grad, out, hiding(out, limits, mask))
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
    out = np.empty_like(shifted)
    exponentials(shifted, out)
    exact = np.exp(shifted.astype(np.longdouble))
    assert ulps(out, exact) <= 2
    assert out[x == 0].min() == out[x == 0].max() == 1


@needs_numba
def test_exponential_of_what_is_no_number_or_out_of_range():
    x, out = np.array([-np.inf, np.nan, -1e30, -200.0], np.float32), np.empty(4, np.float32)
    exponentials(x, out)
    np.testing.assert_array_equal(out, [exp(value) for value in x])  # as plain Python, too
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
            back = module.log_softmax_backward(grad, exact.astype(dtype))
            total = g.sum(axis=-1, keepdims=True)
            slope = g - np.exp(exact) * total
            size = np.abs(g) + np.exp(exact) * (1 + np.abs(exact)) * (
                np.abs(g).sum(axis=-1, keepdims=True)
            )
            assert_within(back, slope, size, count=6)


@both_dtypes
@pytest.mark.parametrize("low", [-1e5, -2e6, -1e9, -1e30])
def test_visible_scores_may_be_lower_than_any_fill_value(dtype, low):
    x = np.array([low, low, 0.0], dtype).reshape(1, 1, 1, 3)
    mask = np.array([True, True, False]).reshape(1, 1, 1, 3)
    for module in (cpu, reference):
        assert module.masked_softmax(x, hiding(x, None, mask)).ravel().tolist() == [0.5, 0.5, 0.0]


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
@pytest.mark.parametrize("size", [1e17, -1e30])
def test_logits_that_tie_share_the_probability_at_any_size(dtype, size):
    """The logarithm of the sum is not added to a number beside which it is nothing."""
    logits = np.full((1, 4), size, dtype)
    for module in (cpu, reference):
        assert_close(module.log_softmax(logits), np.full((1, 4), -math.log(4)), 1e-6)
        losses, _ = module.cross_entropy(logits, np.array([2]), -100)
        assert_close(losses, [math.log(4)], 1e-6)


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
def test_small_probabilities_of_many_classes_add_up(dtype):
    """exp of each small logit is half of what float32 loses beside 1."""
    logits = np.full((1, 4096), -25 * math.log(2), dtype)
    logits[0, 0] = 0
    for module in (cpu, reference):
        losses, _ = module.cross_entropy(logits, np.array([0]), -100)
        assert_close(losses, [math.log1p(4095 * 2.0**-25)], 1e-5)


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


def test_a_limit_below_0_hides_its_row_and_changes_no_other():
    """The zeros of the hidden keys would be written into the row before."""
    x, grad = signed(rng_of(0), 2, 1, 2, 3, 6).astype(np.float32)
    visibility = of_padded(x.shape, limits=np.array([[6, -9, 6]]))
    weights = cpu.masked_softmax(x, visibility)
    assert_close(weights, reference.masked_softmax(x, visibility), 1e-7)
    found = cpu.masked_softmax_backward(grad, weights, visibility)
    assert_close(found, reference.masked_softmax_backward(grad, weights, visibility), 1e-7)
