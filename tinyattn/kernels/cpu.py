"""The kernels on the CPU, compiled by Numba; each has its plain twin in `reference.py`.

A public function here is a door: it brings arrays into the one layout its loop is compiled for
(C order, native byte order, inputs read-only), then calls the loop. Without the door every new
layout would cost a compilation, and a wrong one would read garbage: jitted code checks nothing.

The loops run on one thread and release the GIL: Numba's parallel mode is unsafe either under
threads or after a fork, depending on the layer it finds. They never use the fast-math flags that
let the compiler assume there are no NaN or inf. Sums are kept in float64.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from . import reference
from .reference import drop_threshold

# Reordering sums lets them use vector instructions; nothing else is relaxed.
FAST_SUMS = {"reassoc", "contract", "nsz"}


def jit(function: Any = None, *, fastmath: Any = frozenset({"contract"})) -> Any:
    """`numba.njit` with our settings, also where no folder for Numba's cache can be written."""
    if function is None:
        return lambda function: jit(function, fastmath=fastmath)
    options = {"error_model": "numpy", "nogil": True, "fastmath": set(fastmath)}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:
        return numba.njit(**options)(function)


def ready(array: np.ndarray) -> np.ndarray:
    """An input as the loops expect it; copied only if it has to be."""
    if not (array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative):
        array = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


def rows(array: np.ndarray) -> np.ndarray:
    """(..., D) -> (N, D), ready."""
    return ready(array).reshape(-1, array.shape[-1])


# exp for float32, after Cephes' expf: exp(x) = 2^n exp(r) with |r| <= log(2) / 2, and a polynomial
# for exp(r). NumPy's exp is as fast, but needs the row in memory twice. The factor 2^n is built
# from its bits, in two halves so that results below the smallest normal number come out right.
LOG2_E = np.float32(1.44269504088896341)
LN2_HIGH = np.float32(0.693359375)
LN2_LOW = np.float32(-2.12194440e-4)
ROUND = np.float32(12582912.0)  # 1.5 * 2^23: adding and subtracting it rounds to an integer
LOWEST = np.float32(-110.0)  # exp of this is 0 in float32
C0, C1, C2, C3, C4, C5 = (
    np.float32(c)
    for c in (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3,
              4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
)  # fmt: skip
ONE = np.float32(1)
ZERO = np.float32(0)
MINUS_INF = np.float32(-math.inf)
LANES = 16


@jit
def exp_shifted(row, shift, out, half, other, half_bits, other_bits):
    """out = exp(row - shift), where shift may be float64. The last four arguments are scratch: two
    rows of floats and their bits."""
    for j in range(len(row)):
        x = np.float32(row[j] - shift)
        x = LOWEST if x < LOWEST else x  # a NaN is not smaller, and stays
        n = (x * LOG2_E + ROUND) - ROUND
        r = (x - n * LN2_HIGH) - n * LN2_LOW
        p = ((((C0 * r + C1) * r + C2) * r + C3) * r + C4) * r + C5
        out[j] = (p * (r * r) + r) + ONE
        power = np.int32(n if n == n else ZERO)  # a NaN has no integer; r keeps it
        first = power >> np.int32(1)
        half_bits[j] = (first + np.int32(127)) << np.int32(23)
        other_bits[j] = (power - first + np.int32(127)) << np.int32(23)
    for j in range(len(row)):
        out[j] = out[j] * half[j] * other[j]


@jit
def largest(row, lanes):
    """The maximum of a row, NaN left out; LANES at a time, which become vector instructions."""
    lanes[:] = MINUS_INF
    whole = len(row) // LANES * LANES
    for j in range(0, whole, LANES):
        for lane in range(LANES):
            value = row[j + lane]
            lanes[lane] = value if value > lanes[lane] else lanes[lane]
    top = MINUS_INF
    for lane in range(LANES):
        top = lanes[lane] if lanes[lane] > top else top
    for j in range(whole, len(row)):
        top = row[j] if row[j] > top else top
    return top


@jit
def total_of(row, sums):
    """The sum of a row in float64. Element j always goes to partial sum j modulo LANES, so that
    zeros behind the end, or leaving them away, change no bit."""
    sums[:] = 0.0
    whole = len(row) // LANES * LANES
    for j in range(0, whole, LANES):
        for lane in range(LANES):
            sums[lane] += row[j + lane]
    for j in range(whole, len(row)):
        sums[j - whole] += row[j]
    total = 0.0
    for lane in range(LANES):
        total += sums[lane]
    return total


@jit
def dot(a, b, sums):
    """The sum of products of two rows, like `total_of`."""
    sums[:] = 0.0
    whole = len(a) // LANES * LANES
    for j in range(0, whole, LANES):
        for lane in range(LANES):
            sums[lane] += np.float64(a[j + lane]) * b[j + lane]
    for j in range(whole, len(a)):
        sums[j - whole] += np.float64(a[j]) * b[j]
    total = 0.0
    for lane in range(LANES):
        total += sums[lane]
    return total


@jit
def softmax_rows(x, limits, mask, use_mask, out):
    """x, out (B, H, Q, K) float32; limits (B|1, Q|1); mask (B|1, H|1, Q|1, K|1) of bytes."""
    batch, heads, queries, keys = x.shape
    half = np.empty(keys, np.float32)
    other = np.empty(keys, np.float32)
    half_bits, other_bits = half.view(np.int32), other.view(np.int32)
    lanes, sums = np.empty(LANES, np.float32), np.empty(LANES)
    for b in range(batch):
        for h in range(heads):
            for q in range(queries):
                row = out[b, h, q]
                n = min(limits[b % limits.shape[0], q % limits.shape[1]], keys)
                source = x[b, h, q]
                seen = n
                if use_mask:
                    keep = mask[b % mask.shape[0], h % mask.shape[1], q % mask.shape[2]]
                    step = 1 if len(keep) > 1 else 0
                    seen = 0
                    for j in range(n):
                        visible = keep[j * step] != 0
                        seen += visible
                        row[j] = source[j] if visible else MINUS_INF
                else:
                    for j in range(n):
                        row[j] = source[j]
                row[n:] = ZERO
                if seen == 0:
                    row[:n] = ZERO
                    continue
                live = row[:n]
                top = largest(live, lanes)
                exp_shifted(live, top, live, half, other, half_bits, other_bits)
                factor = np.float32(1.0 / total_of(live, sums))
                for j in range(n):
                    live[j] *= factor
                if use_mask:
                    for j in range(n):
                        live[j] = live[j] if keep[j * step] != 0 else ZERO


NO_LIMIT = ready(np.full((1, 1), np.iinfo(np.int64).max))
NO_MASK = ready(np.ones((1, 1, 1, 1), np.uint8))


def hidden(limits: Any, mask: Any) -> tuple[np.ndarray, np.ndarray, bool]:
    """limits and mask as the loops take them."""
    return (
        NO_LIMIT if limits is None else ready(np.asarray(limits, np.int64)),
        NO_MASK if mask is None else ready(np.asarray(mask, np.bool_)).view(np.uint8),
        mask is not None,
    )


def four(array: np.ndarray) -> np.ndarray:
    """Any shape as (B, H, Q, K)."""
    array = ready(array)
    return array if array.ndim == 4 else array.reshape(1, 1, -1, array.shape[-1])


def masked_softmax(x: np.ndarray, limits: Any, mask: Any, out: np.ndarray | None = None) -> Any:
    # float64 is for checking, where NumPy's exp serves as well.
    if x.dtype != np.float32 or not x.size:
        return reference.masked_softmax(x, limits, mask)
    out = np.empty(x.shape, x.dtype) if out is None else out
    x = four(x)
    softmax_rows(x, *hidden(limits, mask), out.reshape(x.shape))
    return out


@jit
def softmax_backward_rows(grad, out, result):
    sums = np.empty(LANES)
    for i in range(len(out)):
        inner = dot(grad[i], out[i], sums)
        for j in range(out.shape[1]):
            result[i, j] = out[i, j] * (grad[i, j] - inner)


def softmax_backward(grad: np.ndarray, out: np.ndarray) -> np.ndarray:
    result = np.empty(out.shape, out.dtype)
    if out.size:
        softmax_backward_rows(rows(grad), rows(out), rows_of_new(result))
    return result


def rows_of_new(array: np.ndarray) -> np.ndarray:
    """(..., D) -> (N, D) of an array made here, to be written to."""
    return array.reshape(-1, array.shape[-1])


@jit
def log_softmax_rows(x, out):
    columns = x.shape[1]
    half = np.empty(columns, np.float32)
    other = np.empty(columns, np.float32)
    half_bits, other_bits = half.view(np.int32), other.view(np.int32)
    lanes, sums = np.empty(LANES, np.float32), np.empty(LANES)
    for i in range(len(x)):
        top = largest(x[i], lanes)
        exp_shifted(x[i], top, out[i], half, other, half_bits, other_bits)
        log_sum = math.log(total_of(out[i], sums))
        for j in range(columns):
            out[i, j] = (np.float64(x[i, j]) - top) - log_sum


def log_softmax(x: np.ndarray) -> np.ndarray:
    if x.dtype != np.float32 or not x.size:
        return reference.log_softmax(x)
    out = np.empty(x.shape, x.dtype)
    log_softmax_rows(rows(x), rows_of_new(out))
    return out


@jit
def cross_entropy_rows(logits, target, ignore_index, losses, log_sums):
    columns = logits.shape[1]
    powers = np.empty(columns, np.float32)
    half = np.empty(columns, np.float32)
    other = np.empty(columns, np.float32)
    half_bits, other_bits = half.view(np.int32), other.view(np.int32)
    lanes, sums = np.empty(LANES, np.float32), np.empty(LANES)
    for i in range(len(logits)):
        losses[i] = ZERO
        log_sums[0, i] = log_sums[1, i] = 0.0
        if target[i] == ignore_index:
            continue
        top = largest(logits[i], lanes)
        exp_shifted(logits[i], top, powers, half, other, half_bits, other_bits)
        log_total = math.log(total_of(powers, sums))
        log_sums[0, i], log_sums[1, i] = top, log_total
        losses[i] = log_total - (np.float64(logits[i, target[i]]) - top)


@jit
def cross_entropy_backward_rows(grad, logits, target, ignore_index, log_sums, result):
    columns = logits.shape[1]
    half = np.empty(columns, np.float32)
    other = np.empty(columns, np.float32)
    half_bits, other_bits = half.view(np.int32), other.view(np.int32)
    for i in range(len(logits)):
        if target[i] == ignore_index:
            result[i] = ZERO
            continue
        log_sum = log_sums[0, i] + log_sums[1, i]
        exp_shifted(logits[i], log_sum, result[i], half, other, half_bits, other_bits)
        result[i, target[i]] -= ONE
        for j in range(columns):
            result[i, j] *= grad[i]


def cross_entropy(logits: np.ndarray, target: np.ndarray, ignore_index: int) -> Any:
    if logits.dtype != np.float32 or not logits.size:
        return reference.cross_entropy(logits, target, ignore_index)
    losses, log_sums = np.empty(len(logits), logits.dtype), np.empty((2, len(logits)))
    target = ready(target.astype(np.int64, copy=False))
    cross_entropy_rows(ready(logits), target, ignore_index, losses, log_sums)
    return losses, log_sums


def cross_entropy_backward(
    grad: np.ndarray, logits: np.ndarray, target: np.ndarray, ignore_index: int, log_sums: Any
) -> np.ndarray:
    if logits.dtype != np.float32 or not logits.size:
        return reference.cross_entropy_backward(grad, logits, target, ignore_index, log_sums)
    result = np.empty(logits.shape, logits.dtype)
    target = ready(target.astype(np.int64, copy=False))
    cross_entropy_backward_rows(
        ready(grad), ready(logits), target, ignore_index, ready(log_sums), result
    )
    return result


@jit(fastmath=FAST_SUMS)
def layer_norm_rows(x, weight, bias, eps, out, means, inv_stds):
    columns = x.shape[1]
    for i in range(len(x)):
        total = np.float64(0)  # not 0.0, which NumPy would let a float32 narrow
        for j in range(columns):
            total += x[i, j]
        mean = total / columns
        squares = np.float64(0)
        for j in range(columns):
            distance = x[i, j] - mean
            squares += distance * distance
        inv_std = 1.0 / math.sqrt(squares / columns + eps)
        for j in range(columns):
            out[i, j] = (x[i, j] - mean) * inv_std * weight[j] + bias[j]
        means[i] = mean
        inv_stds[i] = inv_std


@jit(fastmath=FAST_SUMS)
def layer_norm_backward_rows(grad, x, weight, means, inv_stds, dx, dweight, dbias):
    columns = x.shape[1]
    for i in range(len(x)):
        mean, inv_std = means[i], inv_stds[i]
        g_sum = gn_sum = np.float64(0)
        for j in range(columns):
            normal = (x[i, j] - mean) * inv_std
            g = np.float64(grad[i, j]) * weight[j]
            g_sum += g
            gn_sum += g * normal
            dweight[j] += grad[i, j] * normal
            dbias[j] += grad[i, j]
        g_mean, gn_mean = g_sum / columns, gn_sum / columns
        for j in range(columns):
            normal = (x[i, j] - mean) * inv_std
            dx[i, j] = inv_std * (np.float64(grad[i, j]) * weight[j] - g_mean - normal * gn_mean)


def layer_norm(x: np.ndarray, weight: Any, bias: Any, eps: float) -> Any:
    if not x.size:
        return reference.layer_norm(x, weight, bias, eps)
    columns = x.shape[-1]
    out = np.empty(x.shape, x.dtype)
    means, inv_stds = np.empty((2, x.size // columns))
    weight = np.ones(columns, x.dtype) if weight is None else weight
    bias = np.zeros(columns, x.dtype) if bias is None else bias
    layer_norm_rows(rows(x), ready(weight), ready(bias), eps, rows_of_new(out), means, inv_stds)
    shape = (*x.shape[:-1], 1)
    return out, means.reshape(shape), inv_stds.reshape(shape)


def layer_norm_backward(
    grad: np.ndarray, x: np.ndarray, weight: Any, eps: float, saved: Any
) -> Any:
    if not x.size:
        return reference.layer_norm_backward(grad, x, weight, eps, saved)
    columns = x.shape[-1]
    dx = np.empty(x.shape, x.dtype)
    dweight, dbias = np.zeros((2, columns))
    scale = np.ones(columns, x.dtype) if weight is None else weight
    means, inv_stds = (ready(part.reshape(-1)) for part in saved)
    layer_norm_backward_rows(
        rows(grad), rows(x), ready(scale), means, inv_stds, rows_of_new(dx), dweight, dbias
    )
    return dx, None if weight is None else dweight, dbias


LOW_32 = np.uint64(0xFFFFFFFF)
MIXER_1, MIXER_2 = np.uint64(0x21F0AAAD), np.uint64(0x735A2D97)


@jit
def mixed(h):
    # The hash lives on the overflow of 32-bit products. Numba would widen them by itself, and
    # NumPy's scalars, which take over where the compiler is off, would warn.
    h = np.uint32((np.uint64(h ^ (h >> np.uint32(16))) * MIXER_1) & LOW_32)
    h = np.uint32((np.uint64(h ^ (h >> np.uint32(15))) * MIXER_2) & LOW_32)
    return np.uint32(h ^ (h >> np.uint32(15)))


@jit
def hash_of(index, low, high):
    return mixed(np.uint32(mixed(np.uint32(np.uint32(index) ^ low)) ^ high))


@jit
def dropout_flat(x, factor, threshold, low, high, out):
    zero = factor - factor
    for i in range(len(x)):
        out[i] = x[i] * factor if hash_of(i, low, high) >= threshold else zero


def dropout(x: np.ndarray, p: float, seed: int) -> np.ndarray:
    if p >= 1 or not x.size:
        return reference.dropout(x, p, seed)
    out = np.empty(x.shape, x.dtype)
    dropout_flat(
        ready(x).reshape(-1),
        x.dtype.type(1 / (1 - p)),
        np.uint32(drop_threshold(p)),
        np.uint32(seed & 0xFFFFFFFF),
        np.uint32(seed >> 32),
        out.reshape(-1),
    )
    return out


@jit
def scatter_flat(grad, ids, skip, table):
    for i in range(len(ids)):
        row = ids[i]
        if row != skip:
            for j in range(grad.shape[1]):
                table[row, j] += grad[i, j]


def scatter_rows(grad: np.ndarray, ids: np.ndarray, num_rows: int, skip: int | None) -> np.ndarray:
    table = np.zeros((num_rows, grad.shape[-1]))
    if grad.size:
        ids = ready(ids.astype(np.int64, copy=False).reshape(-1))
        scatter_flat(rows(grad), ids, -1 if skip is None else skip, table)
    return table.astype(grad.dtype)


@jit
def sum_columns(x, totals):
    for i in range(len(x)):
        for j in range(x.shape[1]):
            totals[j] += x[i, j]


def sum_rows(x: np.ndarray) -> np.ndarray:
    totals = np.zeros(x.shape[1])
    sum_columns(ready(x), totals)
    return totals.astype(x.dtype)


@jit
def erf_flat(x, out):
    for i in range(len(x)):
        out[i] = math.erf(x[i])


def erf(x: np.ndarray) -> np.ndarray:
    out = np.empty(x.shape, x.dtype)
    erf_flat(ready(x).reshape(-1), out.reshape(-1))
    return out


@jit
def relu_backward_flat(grad, out, result):
    zero = grad.dtype.type(0)
    for i in range(len(grad)):
        result[i] = zero if out[i] <= zero else grad[i]


def relu_backward(grad: np.ndarray, out: np.ndarray) -> np.ndarray:
    result = np.empty(out.shape, out.dtype)
    relu_backward_flat(ready(grad).reshape(-1), ready(out).reshape(-1), result.reshape(-1))
    return result


@jit
def hidden_backward_rows(
    d, weights, limits, mask, use_mask, factor, threshold, low, high, scale, keep_all
):
    """d (B, H, Q, K), in place: dropout's gradient, then masked softmax's, then the scale's."""
    batch, heads, queries, keys = weights.shape
    sums = np.empty(LANES)
    zero = scale - scale
    for b in range(batch):
        for h in range(heads):
            for q in range(queries):
                row, w = d[b, h, q], weights[b, h, q]
                n = min(limits[b % limits.shape[0], q % limits.shape[1]], keys)
                row[n:] = zero
                if not keep_all:
                    start = ((b * heads + h) * queries + q) * keys
                    for j in range(n):
                        kept = hash_of(start + j, low, high) >= threshold
                        row[j] = row[j] * factor if kept else zero
                if use_mask:
                    keep = mask[b % mask.shape[0], h % mask.shape[1], q % mask.shape[2]]
                    step = 1 if len(keep) > 1 else 0
                    for j in range(n):
                        row[j] = row[j] if keep[j * step] != 0 else zero
                inner = dot(row[:n], w[:n], sums)
                for j in range(n):
                    row[j] = w[j] * (row[j] - inner) * scale
                if use_mask:
                    for j in range(n):
                        row[j] = row[j] if keep[j * step] != 0 else zero


def masked_softmax_backward(
    grad: np.ndarray, out: np.ndarray, limits: Any, mask: Any
) -> np.ndarray:
    result = np.array(grad, order="C")
    if result.size:
        one, zero = out.dtype.type(1), np.uint32(0)
        hidden_backward_rows(
            result.reshape(four(result).shape), four(out), *hidden(limits, mask),
            one, zero, zero, zero, one, True,
        )  # fmt: skip
    return result


def attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    limits: Any,
    mask: Any,
    scale: float,
    p: float,
    seed: int,
) -> Any:
    if q.dtype != np.float32 or not q.size or not k.size or not v.size:
        return reference.attention(q, k, v, limits, mask, scale, p, seed)
    # Scaling q is cheaper than scaling the scores: it has d columns instead of K.
    with np.errstate(all="ignore"):  # NaN and inf may stand behind the mask
        weights = np.matmul(q * np.float32(scale), k.swapaxes(-1, -2))
    masked_softmax(weights, limits, mask, out=weights)
    dropped = dropout(weights, p, seed) if p else weights
    return reference.weighted_sum(dropped, v, limits, mask), weights


def attention_backward(
    grad: np.ndarray,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    limits: Any,
    mask: Any,
    scale: float,
    p: float,
    seed: int,
    weights: np.ndarray,
) -> Any:
    if not weights.size or p >= 1:
        return reference.attention_backward(grad, q, k, v, limits, mask, scale, p, seed, weights)
    total = reference.weighted_sum
    dropped = dropout(weights, p, seed) if p else weights
    dv = total(dropped.swapaxes(-1, -2), grad, limits, mask, transposed=True)
    dscores = np.matmul(grad, v.swapaxes(-1, -2))
    number = weights.dtype.type
    hidden_backward_rows(
        dscores,
        ready(weights),
        *hidden(limits, mask),
        number(1 / (1 - p)),
        np.uint32(drop_threshold(p)),
        np.uint32(seed & 0xFFFFFFFF),
        np.uint32(seed >> 32),
        number(scale),
        p == 0,
    )
    dq = total(dscores, k, limits, mask)
    dk = total(dscores.swapaxes(-1, -2), q, limits, mask, transposed=True)
    return dq, dk, dv


@jit
def adam_flat(
    parameter, grad, m, v, shrink, decay, beta1, rest1, beta2, rest2, rate, inv_root, eps
):
    for i in range(len(parameter)):
        w = parameter[i] * shrink
        g = grad[i] + decay * w
        m[i] = m[i] * beta1 + rest1 * g
        v[i] = v[i] * beta2 + rest2 * g * g
        parameter[i] = w - rate * m[i] / (np.sqrt(v[i]) * inv_root + eps)


def adam(
    parameter: np.ndarray,
    grad: np.ndarray,
    m: np.ndarray,
    v: np.ndarray,
    rate: float,
    beta1: float,
    beta2: float,
    eps: float,
    decay: float,
    decoupled: bool,
    step: int,
) -> None:
    in_place = all(a.flags.c_contiguous and a.flags.aligned for a in (parameter, m, v))
    if not (in_place and parameter.dtype == grad.dtype == m.dtype == v.dtype):
        arguments = (rate, beta1, beta2, eps, decay, decoupled, step)
        return reference.adam(parameter, grad, m, v, *arguments)
    numbers = (
        1 - rate * decay if decoupled else 1.0,
        0.0 if decoupled else decay,
        beta1,
        1 - beta1,
        beta2,
        1 - beta2,
        rate / (1 - beta1**step),
        1 / math.sqrt(1 - beta2**step),
        eps,
    )
    adam_flat(
        parameter.reshape(-1),
        ready(grad).reshape(-1),
        m.reshape(-1),
        v.reshape(-1),
        *(parameter.dtype.type(number) for number in numbers),
    )
