"""The CUDA kernels against the reference, at sizes and in cases the op table does not have.

On the stand-in, which compiles them for the host, or with `-m gpu` on a GPU.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import numpy as np
import pytest
from common import assert_all_zero, assert_close, assert_same, rng_of, signed
from formulas import by_name, gpu, reference

import tinyattn as ta
from tinyattn import functional as F
from tinyattn.base.random import NO_DROP, Drop
from tinyattn.kernels.gpu.tiled_attention import strided, tile_shape
from tinyattn.kernels.sums import sum_dtype
from tinyattn.kernels.visibility import Visibility, of_padded, samples_of
from tinyattn.ops.attention import rows_to_heads, weighted_sum

DTYPES = [np.float16, np.float32, np.float64]
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
WIDTHS = [1, 2, 31, 32, 33, 100, 1023, 1024, 1025, 5000, 8200]
SEEDS = [0, 1, 2**32 - 1, 2**32, 1234567890123456789, 2**63 - 1]


def check(found, right, dtype, count=4.0):
    """Within `count` roundings of the largest number, of what float64 gives."""
    found = found.get() if hasattr(found, "get") else found
    assert found.shape == right.shape
    if right.size:
        allowed = count * np.finfo(dtype).eps * np.abs(right).max()
        np.testing.assert_allclose(found.astype(np.float64), right, rtol=0, atol=allowed)


def made(dtype, *shapes):
    rng = rng_of(8)
    return [signed(rng, *shape).astype(dtype) for shape in shapes]


def doubled(*arrays):
    return [a.astype(np.float64) for a in arrays]


def real_of(dtype):
    return np.float64 if dtype == np.float64 else np.float32


def hiding(kind, shape):
    """The Visibility of scores (B, H, Q, K). Some query sees no key, unless all see all."""
    batch, heads, queries, keys = shape
    rng = rng_of(5)
    limits = mask = None
    if kind in ("lengths", "all"):
        limits = rng.randint(0, keys + 1, (batch, 1))
        limits[0] = 0
    if kind == "causal":
        limits = np.arange(1, queries + 1)[None]
    if kind in ("mask", "all"):
        mask = rng.uniform(size=(batch, heads, queries, keys)) < 0.6
        mask[0, 0, 0] = False
    if kind == "padding":
        mask = (rng.uniform(size=(batch, 1, 1, keys)) < 0.5).astype(bool)
    return of_padded(shape, limits=limits, mask=mask)


KINDS = ["nothing", "lengths", "causal", "mask", "padding", "all"]


def visible_of(visibility, heads):
    """Which pairs are visible, (B, H, Q, K)."""
    shape, visible = visibility.scores_shape(heads), visibility.visible_pairs(np.empty(0))
    return np.ones(shape, bool) if visible is None else np.broadcast_to(visible, shape)


def send(cuda, *arrays):
    return [None if a is None else cuda.asarray(a) for a in arrays]


def on_device(cuda, visibility):
    """The same Visibility, with its arrays on the device."""
    limits, mask, starts = send(cuda, visibility.limits, visibility.mask, visibility.starts)
    return visibility._replace(limits=limits, mask=mask, starts=starts)


KERNELS = {name: found for name, each in by_name.items() if (found := each.kernels["cuda"])}
ELEMENTWISE = sorted(
    name
    for name, place in KERNELS.items()
    if place.startswith("elementwise.") and name != "dropout"
)


def test_every_cuda_kernel_has_a_test_here():
    """Those of ELEMENTWISE have one for all of them; a forward's test is of its backward too."""
    text = Path(__file__).read_text(encoding="utf-8")
    names = {name.removesuffix("_backward") for name in KERNELS if name not in ELEMENTWISE}
    missing = [name for name in sorted(names) if not re.search(rf"\b{name}\b", text)]
    assert missing == [], "write a test in this file, beside the formula on the CPU"


@every_dtype
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_functions_of_elements(name, dtype, cuda):
    """Each on arrays that need several blocks of threads, and on arrays in another order."""
    formula, kernel = getattr(reference, name), getattr(gpu, name)
    count = len(inspect.signature(formula).parameters)
    for arrays in (made(dtype, *[(3, 700)] * count), [x.T for x in made(dtype, *[(5, 7)] * count)]):
        check(kernel(*send(cuda, *arrays)), formula(*doubled(*arrays)), dtype)


@every_dtype
@pytest.mark.parametrize("columns", WIDTHS)
def test_rows_of_any_length(columns, dtype, cuda):
    """Softmax, its logarithm, cross-entropy and LayerNorm, forward and backward."""
    x, grad, weight, bias = made(dtype, (3, columns), (3, columns), (columns,), (columns,))
    x = (x * 3).astype(dtype)
    on = send(cuda, x, grad, weight, bias)
    # More exact than float64, because in a row of two elements the terms cancel.
    exact = [array.astype(np.longdouble) for array in (x, grad, weight, bias)]
    for name in ("softmax", "log_softmax"):
        right = getattr(reference, name)(exact[0])
        out = getattr(gpu, name)(on[0])
        check(out, right, dtype)
        out = cuda.asarray(right.astype(dtype))  # from equal outputs on
        back = getattr(reference, f"{name}_backward")(exact[1], out.get().astype(np.longdouble))
        check(getattr(gpu, f"{name}_backward")(on[1], out), back, dtype)
    target = np.array([0, -100, columns - 1])
    (device_target,) = send(cuda, target)
    losses, sums = reference.cross_entropy(exact[0], target, -100)
    found, found_sums = gpu.cross_entropy(on[0], device_target, -100)
    assert found_sums.dtype == sum_dtype(np.dtype(dtype))
    check(found, losses, dtype)
    # exp is a float32's, the sum a float64.
    check(cuda.asarray(found_sums.get()[:, ::2]), sums[:, ::2], real_of(dtype), 8)
    back = reference.cross_entropy_backward(exact[1][:, 0], exact[0], target, -100, sums)
    slopes = cuda.asarray(grad[:, 0].copy())
    found = gpu.cross_entropy_backward(slopes, on[0], device_target, -100, found_sums)
    check(found, back, dtype)
    assert_all_zero(found.get()[1])
    right, *saved = reference.layer_norm(exact[0], exact[2], exact[3], 1e-5)
    out, *found_saved = gpu.layer_norm(on[0], on[2], on[3], 1e-5)
    check(out, right, dtype)
    right = reference.layer_norm_backward(exact[1], exact[0], exact[2], 1e-5, tuple(saved))
    found = gpu.layer_norm_backward(on[1], on[0], on[2], 1e-5, tuple(found_saved))
    largest = np.abs(saved[1]).max() * 4  # a row of one element has a std of eps
    allowed = 8 * max(1, largest / np.abs(right[0]).max().clip(1e-3))
    if dtype == np.float64:  # or twice what the reference rounds off, where terms cancel
        arrays = doubled(grad, x, weight), doubled(*saved)
        plain = reference.layer_norm_backward(*arrays[0], 1e-5, tuple(arrays[1]))[0]
        unit = np.finfo(dtype).eps * np.abs(right[0]).max()
        allowed = max(allowed, 2 * np.abs(plain - right[0]).max() / max(unit, 1e-300))
    check(found[0], right[0], dtype, allowed)
    check(found[1], right[1].sum(axis=0), dtype, 8)
    check(found[2], right[2].sum(axis=0), dtype)
    right, inverse = reference.rms_norm(exact[0], exact[2], 1e-5)
    out, found_inverse = gpu.rms_norm(on[0], on[2], 1e-5)
    check(out, right, dtype)
    check(found_inverse, inverse, real_of(dtype), 1)
    right = reference.rms_norm_backward(exact[1], exact[0], exact[2], 1e-5, inverse)
    found = gpu.rms_norm_backward(on[1], on[0], on[2], 1e-5, found_inverse)
    largest = np.abs(inverse).max() * 4  # of the terms, which cancel in a row of one element
    check(found[0], right[0], dtype, 8 * max(1, largest / np.abs(right[0]).max()))
    check(found[1], right[1].sum(axis=0), dtype, 8)
    assert gpu.rms_norm_backward(on[1], on[0], None, 1e-5, found_inverse)[1] is None


@every_dtype
@pytest.mark.parametrize("rows", [1, 31, 129, 4096, 4097, 9000])
def test_sums_over_any_number_of_rows(rows, dtype, cuda):
    """One launch up to 4096 rows, then two."""
    (x,) = made(dtype, (rows, 33))
    if dtype == np.float64:
        grad, weight = made(dtype, x.shape, (33,))
        _, *saved = reference.layer_norm(x, weight, None, 1e-5)
        _, right, _ = reference.layer_norm_backward(grad, x, weight, 1e-5, tuple(saved))
        _, *saved = gpu.layer_norm(*send(cuda, x, weight), None, 1e-5)
        _, found, dbias = gpu.layer_norm_backward(*send(cuda, grad, x, weight), 1e-5, tuple(saved))
        check(found, right.sum(axis=0), dtype, rows)
        check(dbias, grad.sum(axis=0), dtype, rows)
    # Sums of float64 are not wider than it is.
    check(gpu.sum_rows(cuda.asarray(x)), x.astype(np.longdouble).sum(axis=0), dtype,
          max(4, rows / 8) if dtype == np.float64 else 4)  # fmt: skip


def test_sums_are_wide(cuda):
    """A float32 that counts ones stops at 2**24."""
    x = np.ones((5, 1), np.float32)
    x[0] = 2**24
    assert gpu.sum_rows(cuda.asarray(x)).get() == 2**24 + 4
    x[0] = 1e8
    assert gpu.layer_norm(cuda.asarray(x.T.copy()), None, None, 1e-5)[1].get() == x.mean(
        dtype=np.float64
    )


def test_a_large_mean_costs_no_digits(cuda):
    x = (1e5 + np.linspace(0, 1, 64) ** 3).astype(np.float32)[None]
    right, *_ = reference.layer_norm(x.astype(np.float64), None, None, 1e-5)
    check(gpu.layer_norm(cuda.asarray(x), None, None, 1e-5)[0], right, np.float32)


@every_dtype
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 3, 5, 40), (2, 1, 33, 33), (1, 2, 3, 1030)])
def test_masked_softmax(shape, kind, dtype, cuda):
    """Invisible keys get exactly 0, in both directions; so does a row without a visible key."""
    x, grad = made(dtype, shape, shape)
    visibility = hiding(kind, shape)
    visible = visible_of(visibility, shape[1])
    x, grad = (np.where(visible, a, np.nan).astype(dtype) for a in (x, grad))
    sent = on_device(cuda, visibility)
    right = reference.masked_softmax(x.astype(np.float64), visibility)
    found = gpu.masked_softmax(cuda.asarray(x), sent)
    check(found, right, dtype)
    assert not found.get()[~visible].any()
    right = reference.masked_softmax_backward(
        grad.astype(np.float64), found.get().astype(np.float64), visibility
    )
    found = gpu.masked_softmax_backward(cuda.asarray(grad), found, sent)
    check(found, right, dtype)
    assert not found.get()[~visible].any()


def test_limits_past_the_end_are_the_end(cuda):
    """Such a length is an error, but one that is noticed later: until then nothing else is read."""
    (x,) = made(np.float64, (2, 1, 1, 5))
    limits = cuda.asarray(np.array([[9], [10**15]]))
    found = gpu.masked_softmax(cuda.asarray(x), of_padded(x.shape, limits=limits))
    check(found, reference.masked_softmax(x, None), np.float64)
    (rows,) = made(np.float64, (2, 1, 5))  # two samples of one row
    visibility = of_padded((2, 1, 1, 1))
    options = visibility._replace(limits=limits), 1.0, NO_DROP
    out, _ = gpu.attention(*send(cuda, rows, rows, rows), options)
    right, _ = reference.attention(rows, rows, rows, (visibility, 1.0, NO_DROP))
    check(out, right, np.float64)


SPECIAL = [
    [np.nan, 1, 2], [np.inf, 1, 2], [np.inf, np.inf, 0], [-np.inf, 1, 2], [-np.inf] * 3,
    [np.inf, -np.inf, 0], [88, -88, 0], [-np.inf, np.nan, 1],
]  # fmt: skip


@every_dtype
def test_special_numbers(dtype, cuda):
    """NaN and inf in a row, alone and side by side, at either end of a longer one."""
    for row in SPECIAL:
        for pad in (0, 40):
            for x in (row + [0.5] * pad, [0.5] * pad + row):
                array = np.array([x], dtype)
                with np.errstate(all="ignore"):
                    right = reference.masked_softmax(array, None)
                    logs = reference.log_softmax(array)
                for found, expected in (
                    (gpu.masked_softmax(cuda.asarray(array), None), right),
                    (gpu.log_softmax(cuda.asarray(array)), logs),
                ):
                    np.testing.assert_allclose(found.get(), expected, rtol=2e-3, atol=1e-7)


@every_dtype
@pytest.mark.parametrize("p", [0.1, 0.5, 0.999])
def test_dropout_is_that_of_the_cpu(p, dtype, cuda):
    """The same elements for the same seed, bit for bit, however many there are."""
    for seed in SEEDS:
        for size in (1, 255, 257, 1000):
            (x,) = made(dtype, (size,))
            found = gpu.dropout(cuda.asarray(x), p, seed).get()
            np.testing.assert_array_equal(found != 0, reference.keep_mask((size,), p, seed))
            assert_same(found, reference.dropout(x, p, seed))


def test_dropout_at_the_threshold(cuda):
    """An element whose hash is exactly p * 2^32 is kept."""
    low, high = 0, 2**32  # the hash of element 0 with seed 5, by halving
    while high - low > 1:
        middle = (low + high) // 2
        kept = reference.keep_mask((1,), middle / 2**32, 5)[0]
        low, high = (middle, high) if kept else (low, middle)
    assert gpu.dropout(cuda.asarray(np.ones(1)), low / 2**32, 5).get() != 0
    assert gpu.dropout(cuda.asarray(np.ones(1)), high / 2**32, 5).get() == 0


@every_dtype
def test_scatter_rows(dtype, cuda):
    """Ids that occur often, never, or are to be skipped; wide rows; ids out of range."""
    rng = rng_of(6)
    for count, width, rows in ((1, 1, 1), (40, 3, 7), (700, 5, 3), (30, 300, 4), (33, 64, 40)):
        ids = rng.randint(0, rows, (count,))
        (grad,) = made(dtype, (count, width))
        for skip in (None, 0):
            right = reference.scatter_rows(grad.astype(np.longdouble), ids, rows, skip)
            found = gpu.scatter_rows(*send(cuda, grad, ids), rows, skip)
            check(found, right, dtype, 1)
    grad = cuda.asarray(np.ones((2, 3), dtype))
    assert gpu.scatter_rows(grad, cuda.asarray(np.array([-1, 5])), 5, None).get().sum() == 0


def test_scatter_of_many_positions(cuda):
    """A mask has a word for each 64 chunks of 256 positions; most of these ids are out of range."""
    ids = np.full(16_500, -1)
    places = [3, 200, 300, 16_000, 16_390, 16_499]
    ids[places] = [0, 1, 0, 2, 0, 1]
    grad = np.zeros((len(ids), 2), np.float32)
    grad[places] = np.array([[1], [2], [4], [8], [16], [32]])
    found = gpu.scatter_rows(*send(cuda, grad, ids), 4, None).get()
    assert_same(found, np.array([[21, 21], [34, 34], [8, 8], [0, 0]], np.float32))


def test_scatter_loses_nothing(cuda):
    """float64 stays float64, and many small float32 beside a large one still count."""
    grad = np.full((1001, 1), 1e-8)
    grad[0] = 1
    ids = np.zeros(1001, np.int64)
    found = gpu.scatter_rows(*send(cuda, grad, ids), 1, None).get()
    assert_close(found, [[1 + 1e-5]], 1e-13)
    found = gpu.scatter_rows(*send(cuda, grad.astype(np.float32), ids), 1, None).get()
    assert_same(found, np.array([[1 + 1e-5]], np.float32))


LENGTHS = [(1, 1), (3, 70), (33, 32), (40, 17), (65, 65)]


def samples_and_rows(dtype, lengths, key_lengths, heads, width, value_width):
    """Samples of these lengths; and q, k, v and grad as rows (R, H, d) of all of them."""
    samples = samples_of(tuple(lengths)), samples_of(tuple(key_lengths))
    queries, keys = (part.rows for part in samples)
    shapes = (queries, width), (keys, width), (keys, value_width), (queries, value_width)
    return samples, made(dtype, *((rows, heads, columns) for rows, columns in shapes))


@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", LENGTHS)
def test_tiled_attention(lengths, kind, p, cuda):
    """Forward and backward in float64, at lengths around those of a tile."""
    queries, keys = lengths
    arrays = samples_and_rows(np.float64, [queries] * 2, [keys] * 2, 2, 5, 5)[1]
    check_attention(cuda, arrays, hiding(kind, (2, 2, queries, keys)), p, 10)


PACKED = [([3, 0, 33], [40, 7, 1]), ([2, 2, 2], [5, 1, 0]), ([1, 35, 4], [1, 35, 4])]


@pytest.mark.parametrize("width", [5, 1000])
@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", PACKED, ids=str)
def test_attention_of_samples_of_different_lengths(lengths, kind, p, width, cuda):
    """Packed rows, in tiles or in heads that are too wide for them."""
    samples, arrays = samples_and_rows(np.float64, *lengths, 2, width, width)
    padded_samples = hiding(kind, (3, 2, *map(max, lengths)))
    visibility = Visibility(*samples, *padded_samples[2:])
    check_attention(cuda, arrays, visibility, p, 10 + width)


MEMORY = 63 * 1024  # for which a block may ask on any device from compute capability 7.5 on
# The last three are worked on in slices.
WIDTHS = [(1, 1), (8, 33), (33, 8), (64, 64), (128, 128), (96, 3), (300, 300), (700, 20), (20, 700)]


@pytest.mark.parametrize("widths", WIDTHS)
@every_dtype
def test_tiled_attention_of_any_width(widths, dtype, cuda):
    """With fewer rows a block where a row is wide, and slices where not even one fits."""
    head, value = widths
    itemsize = np.dtype(real_of(dtype)).itemsize
    shape = tile_shape(head, value, itemsize, MEMORY)
    assert shape is not None
    assert shape.columns < max(head, value) or max(head, value) < 300
    arrays = samples_and_rows(dtype, [9], [40], 2, head, value)[1]
    # A rounding error for each term of the scores.
    check_attention(cuda, arrays, hiding("causal", (1, 2, 9, 40)), 0.2, 8 + head / 4)


@pytest.mark.parametrize("lengths", [([33, 33], [40, 40]), ([3, 33], [40, 7])])
def test_tiled_attention_with_shared_heads(lengths, cuda):
    """Each head of keys is for three heads of queries; its gradient is the sum over these."""
    samples, (q, k, v, grad) = samples_and_rows(np.float64, *lengths, 6, 5, 7)
    arrays = q, k[:, :2], v[:, :2], grad
    check_attention(cuda, arrays, Visibility(*samples), 0.3, 20)


def check_attention(cuda, arrays, visibility, p, count, seed=98765432109876):
    """Output and gradients are those of the reference in float64."""
    *qkv, grad = arrays
    dtype, rest = grad.dtype, (1 / np.sqrt(arrays[0].shape[-1]), Drop(p, seed))
    on_host = visibility, *rest
    sent = on_device(cuda, visibility), *rest
    right, weights = reference.attention(*doubled(*qkv), on_host)
    found, saved = gpu.attention(*send(cuda, *qkv), sent)
    assert found.dtype == dtype
    check(found, right, dtype, count)
    right = reference.attention_backward(*doubled(grad, *qkv), on_host, None, weights)
    found = gpu.attention_backward(*send(cuda, grad, *qkv), sent, None, saved)
    for one, expected in zip(found, right, strict=True):
        check(one.astype(dtype), expected, dtype, count)


LAYOUTS = {
    "rows": lambda xp, x: xp.asarray(x),
    "heads before rows": lambda xp, x: (
        xp.asarray(np.array(x.swapaxes(0, 1), order="C")).swapaxes(0, 1)
    ),
    "a part of wider rows": lambda xp, x: xp.asarray(np.concatenate([x, x], -1))[..., :5],
    "one head for all": lambda xp, x: xp.broadcast_to(xp.asarray(x[:, :1]), x.shape),
    "columns": lambda xp, x: (
        xp.asarray(np.array(x.swapaxes(-1, -2), order="C")).swapaxes(-1, -2)
    ),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_attention_takes_heads_as_they_lie(layout, cuda):
    """No copy is made, unless the numbers of a row are not neighbours; results are in C order."""
    samples, arrays = samples_and_rows(np.float64, [6, 6], [6, 6], 3, 5, 5)
    options = Visibility(*samples), 0.4, NO_DROP
    q, k, v, grad = (LAYOUTS[layout](cuda, x) for x in arrays)
    view = rows_to_heads(q, samples[0])
    assert (strided(view)[0] is view) == (layout != "columns")
    right, weights = reference.attention(*(x.get() for x in (q, k, v)), options)
    out, saved = gpu.attention(q, k, v, options)
    check(out, right, np.float64, 8)
    assert out.flags.c_contiguous
    found = gpu.attention_backward(grad, q, k, v, options, None, saved)
    right = reference.attention_backward(
        *(x.get() for x in (grad, q, k, v)), options, None, weights
    )
    for one, expected in zip(found, right, strict=True):
        check(one, expected, np.float64, 8)
        assert one.flags.c_contiguous


def test_attention_memory_is_linear_in_length(cuda, monkeypatch):
    """Nothing as large as queries times keys is ever made, causal masks included."""
    sizes = []
    for name in ("empty", "zeros", "full", "arange", "asarray"):
        make = getattr(cuda, name)

        def counted(*args, make=make, **kwargs):
            array = make(*args, **kwargs)
            sizes.append(array.size)
            return array

        monkeypatch.setattr(cuda, name, counted)
    q, k, v = (ta.tensor(x, device="cuda", requires_grad=True)
               for x in made(np.float32, *[(1, 1, 150, 4)] * 3))  # fmt: skip
    out = F.scaled_dot_product_attention(q, k, v, valid_lens=[140], is_causal=True, dropout_p=0.1)
    out.sum().backward()
    assert max(sizes) < 150 * 150 / 8


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("widths", [(300, 300), (20, 700), (700, 20), (1000, 1000)])
def test_wide_heads_do_not_show_what_is_invisible(widths, kind, cuda):
    """In slices of tiles, and in the widest heads without tiles: NaN and inf in all that no query
    may see leave no trace."""
    head, value = widths
    arrays = samples_and_rows(np.float64, [9, 9], [40, 40], 2, head, value)[1]
    visibility = hiding(kind, (2, 2, 9, 40))
    check_attention(cuda, arrays, visibility, 0.3, 8 + head)
    invisible = ~visible_of(visibility, 2).any(axis=2)  # (B, H, K)
    invisible = invisible.swapaxes(1, 2).reshape(80, 2)  # (S, H)
    options = on_device(cuda, visibility), head**-0.5, Drop(0.3, 7)
    q, k, v, grad = arrays
    for special in (np.nan, np.inf):
        bad_k, bad_v = k.copy(), v.copy()
        bad_k[invisible, :: head - 1], bad_v[invisible, :: value - 1] = special, special
        results = []
        for keys, values in ((k, v), (bad_k, bad_v)):
            on = send(cuda, q, keys, values)
            out, saved = gpu.attention(*on, options)
            gradients = gpu.attention_backward(cuda.asarray(grad), *on, options, None, saved)
            results.append([x.get() for x in (out, *gradients)])
        for clean, found in zip(*results, strict=True):
            assert_same(found, clean)


@every_dtype
@pytest.mark.parametrize("kind", KINDS)
def test_the_widest_heads_compute_all_weights(kind, dtype, cuda):
    """A row that fits no tile: the whole array of weights, as on the CPU."""
    assert tile_shape(1500, 1500, np.dtype(real_of(dtype)).itemsize, MEMORY) is None
    arrays = samples_and_rows(dtype, [3, 3], [3, 3], 2, 1500, 1500)[1]
    check_attention(cuda, arrays, hiding(kind, (2, 2, 3, 3)), 0.2, 1700)


def without_xorshift(h, bits):
    """The number from which h ^ (h >> bits) made `h`."""
    found = h
    for _ in range(32 // bits + 1):
        found = h ^ (found >> bits)
    return found


def seed_of_the_largest_hash():
    """A seed with which the hash of element 0 is 2^32 - 1, which no threshold drops."""
    h = without_xorshift(2**32 - 1, 15)
    h = without_xorshift(h * pow(0x735A2D97, -1, 2**32) % 2**32, 15)
    h = without_xorshift(h * pow(0x21F0AAAD, -1, 2**32) % 2**32, 16)
    return h << 32  # the lower half is 0, whose hash is 0


@pytest.mark.parametrize("case", ["p = 1", "no queries", "no keys", "no values"])
def test_attention_of_nothing(case, cuda):
    """Dropout of everything, and arrays without elements."""
    seed = seed_of_the_largest_hash()
    assert reference.keep_mask((1,), 1.0, seed).all()
    queries, keys = 0 if case == "no queries" else 4, 0 if case == "no keys" else 3
    width = 0 if case == "no values" else 5
    samples, arrays = samples_and_rows(np.float32, [queries] * 2, [keys] * 2, 2, 5, width)
    p = 1.0 if case == "p = 1" else 0.0
    check_attention(cuda, arrays, Visibility(*samples), p, 8, seed)


@every_dtype
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_weighted_sum(kind, transposed, dtype, cuda):
    """Invisible values may be NaN."""
    visibility = hiding(kind, (2, 2, 3, 6))
    visible = visible_of(visibility, 2)
    weights, values = made(dtype, (2, 2, 3, 6), (2, 2, 3 if transposed else 6, 5))
    weights = np.where(visible, weights, 0).astype(dtype)
    values[~visible.any(axis=-1 if transposed else -2)] = np.nan
    if transposed:
        weights = weights.swapaxes(-1, -2)
    clean = np.where(np.isnan(values), 0, values)
    right = weights.astype(np.float64) @ clean.astype(np.float64)
    on = send(cuda, weights, values)
    check(gpu.weighted_sum(*on, on_device(cuda, visibility), transposed), right, dtype)


def test_the_gradient_of_a_weighted_sum_hides_by_the_transposed_mask(cuda):
    """NaN that comes back for a query reaches the values that it sees, and no others."""
    mask = np.array([[0, 1, 0, 0], [1, 1, 1, 0], [1, 0, 1, 1], [1, 1, 0, 1]], bool)[None, None]
    weights, values, grad = made(np.float64, (1, 1, 4, 4), (1, 1, 4, 3), (1, 1, 4, 3))
    weights *= mask
    right = weights.swapaxes(-1, -2) @ grad
    grad[0, 0, 0] = np.nan  # of the query that sees the second value alone
    w, v = (ta.tensor(x, device="cuda", requires_grad=True) for x in (weights, values))
    out = weighted_sum(w, v, visibility=of_padded(mask.shape, mask=cuda.asarray(mask)))
    (found,) = ta.grad(out, [v], ta.tensor(grad, device="cuda"))
    found = found.numpy()[0, 0]
    assert np.isnan(found[1]).all()
    assert_close(np.delete(found, 1, axis=0), np.delete(right[0, 0], 1, axis=0), 1e-14)
