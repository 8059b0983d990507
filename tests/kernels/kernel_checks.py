"""What the tests of kernels share: which there are, how exact they must be, ways to hide keys."""

from __future__ import annotations

import numpy as np
import pytest
from common import (
    assert_all_zero,
)
from formulas import HAS_NUMBA, cpu, reference  # noqa: F401

from tinyattn.kernels.visibility import of_padded

needs_numba = pytest.mark.skipif(not HAS_NUMBA, reason="Numba is not installed: nothing to compare")

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
        (3 * np.arange(1, queries + 1)[None], None),  # beyond the end, as with causal masks
        (np.arange(-1, batch - 1)[:, None], None),
    ]
    return cases


def hiding(x, limits, mask):
    """The Visibility of scores x (B, H, Q, K)."""
    return of_padded(x.shape, limits=limits, mask=mask)


def seen_of(shape, limits, mask):
    seen = of_padded(shape, limits=limits, mask=mask).visible_pairs(np.empty(0))
    return np.ones(shape, bool) if seen is None else np.broadcast_to(seen, shape)
