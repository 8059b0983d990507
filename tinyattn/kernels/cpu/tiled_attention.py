"""Scaled dot-product attention of one block of queries after another.

Forward. For each head of each sample, and for each block q of its queries,

    scores = scale * k q^T + bias^T              (K, block)
    weights = exp(scores - maximum) / sum        over the visible keys of each query
    out = dropout(weights)^T v                   (block, e)

Only maximum and 1 / sum of each query are kept, so memory grows with the length, not its square.
Only keys between the first and the last that a query of the block sees are computed.

Backward, with `grad` the gradient of `out`, computes the weights again, and then

    dweights = dropout(v grad^T)
    dscores = weights * (dweights - sum(weights * dweights))
    dq = scale * dscores^T k,   dk += scale * dscores q,   dv += dropout(weights) grad
    dbias += dscores^T

(Dao et al., "FlashAttention", 2022, which cuts keys into blocks too.) A block is a matrix of keys
by queries, because then the inner loop goes over queries, which do not depend on each other, and
becomes vector instructions. `np.dot` is BLAS, in a compiled function too. BLAS rounds
products of other shapes differently. So all blocks of a sample have one width, where queries of
zeros fill up the last: padded samples then give the same bits as packed ones.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...base.random import Drop
from ..packing import sum_heads
from ..threads import parallel_for
from ..visibility import AttentionOptions, Visibility
from .attention_blocks import (
    BLOCK,
    Rows,
    Visible,
    add_rows,
    add_to_dbias,
    block_of,
    drop_weights,
    dscores_of,
    finish_scores,
    head_of,
    product,
    product_of,
    softmax_columns,
    take,
)
from .compiler import inlined, jit, takes_formula
from .dropout import drop_arguments
from .layout import MOST, as_input, as_mask
from .not_finite import affected, cleaned, needs_formula
from .row_functions import LANES, ONE, ZERO, exp, largest, total_of


class Inputs(NamedTuple):
    """The rows of all samples, one sample after another."""

    q: np.ndarray  # (R, H, d)
    k: np.ndarray  # (S, G, d)
    v: np.ndarray  # (S, G, e)


class Gradients(NamedTuple):
    """That of the output, and what backward fills. All are empty in forward."""

    out: np.ndarray  # (R, H, e)
    q: np.ndarray  # (R, H, d)
    k: np.ndarray  # (S, H, d)
    v: np.ndarray  # (S, H, e)
    bias: np.ndarray  # (B * H, Q|1, K|1)


@inlined
def add_gradients(weights, queries, keys, values, head, block, drop, grads, scale):
    """Those of its queries, and what it gives to those of its keys, values and bias."""
    h, first_key, seen = head.h, head.key_start + block.begin, len(keys)
    dout = take(grads.out, h, block.row, block.length, len(queries), ONE)
    dscores = dscores_of(weights, product(values, dout.T), drop)
    if len(grads.bias):
        add_to_dbias(dscores, grads.bias[block.b * grads.q.shape[1] + h], block)
    add_rows(product(dscores.T, keys), grads.q, h, block.row, block.length, scale)
    add_rows(product(dscores, queries), grads.k, h, first_key, seen, ONE)
    add_rows(product(weights, dout), grads.v, h, first_key, seen, ONE)


@jit
def attention_heads(inputs, rows, visible, scale, drop, out, saved, grads, first, last):
    """Forward of some of the B * H heads of all samples; or backward, if there are gradients.

    Forward fills out (R, H, e) and saved (2, R, H): maximum and 1 / sum of each query, of which the
    latter is 0 where nothing is visible. All else that it fills has zeros at the start. Both are
    one function, because Numba needs less time for it than for two.
    """
    q, k, v = inputs
    heads, groups, is_backward = q.shape[1], k.shape[1], len(grads.out) > 0
    kept, lost = (ONE, -ONE) if is_backward else (drop.factor, ZERO)
    maximum, inverse = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32)
    for number in range(first, last):
        head = head_of(number, heads, groups, rows, visible.ranges)
        all_keys = take(k, head.group, head.key_start, head.keys, head.keys, ONE)
        all_values = take(v, head.group, head.key_start, head.keys, head.keys, ONE)
        for i in range(0, head.queries, head.width):
            block = block_of(head, i, visible.ranges)
            queries = take(q, head.h, block.row, block.length, head.width, scale)
            keys, values = all_keys[block.begin : block.end], all_values[block.begin : block.end]
            weights = product(keys, queries.T)
            finish_scores(weights, block, visible, maximum)
            softmax_columns(weights, maximum, inverse, block, saved, is_backward)
            if drop.threshold > 0:
                drop_weights(weights, kept, lost, block, heads, rows, drop)
            if is_backward:
                add_gradients(weights, queries, keys, values, head, block, drop, grads, scale)
            else:
                outputs = product(weights.T, values)
                add_rows(outputs, out, head.h, block.row, block.length, ONE)


@jit
def attention_of_one_query(inputs, rows, visible, scale, drop, out, saved, _, first, last):
    """As `attention_heads`, where each sample has one query, as in decoding with a cache: without
    the other queries of a block, and without copies of keys and values."""
    q, k, v = inputs
    heads, groups = q.shape[1], k.shape[1]
    scores, maximum = np.empty(rows.longest_keys, np.float32), np.empty(1, np.float32)
    sums = np.empty(LANES)
    total = np.empty(v.shape[2])  # in float64, because many small weights add up
    for number in range(first, last):
        head = head_of(number, heads, groups, rows, visible.ranges)
        block = block_of(head, 0, visible.ranges)
        h, row, first_key = head.h, head.query_start, head.key_start + block.begin
        weights = scores[: block.end - block.begin]
        column = weights.reshape(-1, 1)
        for i in range(len(weights)):
            weights[i] = product_of(q[row, h], k[first_key + i, head.group]) * scale
        finish_scores(column, block, visible, maximum)
        top = max(largest(weights), maximum[0])
        for i in range(len(weights)):
            weights[i] = exp(weights[i] - top)
        weight_sum = total_of(weights, sums)
        inverse = ZERO if weight_sum == 0.0 else np.float32(1.0 / weight_sum)
        saved[0, row, h], saved[1, row, h] = top, inverse
        if drop.threshold > 0:
            drop_weights(column, drop.factor, ZERO, block, heads, rows, drop)
        total[:] = 0.0
        for i in range(len(weights)):
            weight = weights[i] * inverse
            for c in range(len(total)):
                total[c] += weight * v[first_key + i, head.group, c]
        out[row, h] = total


def is_compiled_for(q: np.ndarray, k: np.ndarray, v: np.ndarray, drop: Drop) -> bool:
    return bool(q.dtype == np.float32 and drop.p < 1 and q.size and k.size and v.size)


NO_BIAS = as_input(np.zeros((1, 1, 1, 1), np.float32))
ALL_KEYS = as_input(np.array([0, MOST, MOST]).reshape(3, 1, 1))


def ranges_of(limits: np.ndarray | None, starts: np.ndarray | None) -> np.ndarray:
    """`Visible.ranges` of the limits and starts of a Visibility."""
    if limits is None and starts is None:
        return ALL_KEYS
    limits = ALL_KEYS[1] if limits is None else limits
    starts = ALL_KEYS[0] if starts is None else starts
    ranges = np.empty((3, *np.broadcast(limits, starts).shape), np.int64)
    np.maximum(starts, 0, out=ranges[0])
    np.maximum(limits, 0, out=ranges[1])
    np.maximum.accumulate(ranges[1], axis=1, out=ranges[2])
    return ranges


NONE = np.empty((0, 0, 0), np.float32)
NO_GRADIENTS = Gradients(as_input(NONE), NONE, NONE, NONE, NONE)


def run(kernel: Any, inputs: Any, options: AttentionOptions, results: Any, products: int) -> None:
    """Call a kernel for all heads of all samples, on several threads if it pays.

    inputs: q, k, v, bias. results: the last arguments of the kernel.
    products: how many matrix products the kernel computes for each block.
    """
    (queries, keys, limits, mask, starts, _), scale, drop = options
    *qkv, bias = inputs
    shift = NO_BIAS if bias is None else as_input(bias)
    has = mask is not None, bias is not None
    arguments = (
        Inputs(*map(as_input, qkv)),
        Rows(queries.offsets, keys.offsets, queries.longest, keys.longest),
        Visible(as_input(ranges_of(limits, starts)), as_mask(mask), shift, *has),
        np.float32(scale),
        drop_arguments(drop.p, drop.seed, np.dtype(np.float32)),
    )
    batch, (_, heads, width) = len(queries.lengths), qkv[0].shape
    pairs = float(queries.lengths @ keys.lengths)
    nanoseconds = products * heads * (1000 * batch + pairs * (1 + width / 32))
    parallel_for(batch * heads, nanoseconds, kernel, *arguments, *results)


def is_decoding(visibility: Visibility) -> bool:
    return visibility.queries.longest == 1 and visibility.queries.have_one_length


def forward(
    inputs: Any, options: AttentionOptions, kernel: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """The output of a kernel, and what it saves; without one, of that which suits the queries."""
    q, _, v, _ = inputs
    if kernel is None:
        kernel = attention_of_one_query if is_decoding(options[0]) else attention_heads
    out = np.zeros((*q.shape[:2], v.shape[2]), q.dtype)
    saved = np.empty((2, *q.shape[:2]), q.dtype)
    run(kernel, inputs, options, (out, saved, NO_GRADIENTS), 2)
    return out, saved


@takes_formula
def attention(
    formula: Callable[..., Any],
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    options: AttentionOptions,
    bias: Any = None,
) -> Any:
    """The output, and what backward needs of it."""
    visibility, _, drop = options
    if not is_compiled_for(q, k, v, drop):
        return NotImplemented
    if needs_formula(visibility, bias, q, k, v):
        exact, _ = formula(q, k, v, options, bias)
        out, _ = forward([*map(cleaned, (q, k, v, bias))], options)
        queries, _ = affected(q, k, v, q, visibility, bias)
        return np.where(queries, exact, out), None
    return forward((q, k, v, bias), options)


@takes_formula
def attention_backward(
    formula: Callable[..., Any],
    grad: np.ndarray,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    options: AttentionOptions,
    bias: Any,
    saved: Any,
) -> Any:
    """Gradients of q, k and v, and of the bias if there is one."""
    visibility, _, drop = options
    if not is_compiled_for(q, k, v, drop):
        return NotImplemented
    if not needs_formula(visibility, bias, grad, q, k, v):
        return backward(grad, (q, k, v, bias), saved, options)
    exact = formula(grad, q, k, v, options, bias, None)
    clean = *map(cleaned, (q, k, v)), cleaned(bias)
    _, saved = forward(clean, options)
    grads = backward(cleaned(grad), clean, saved, options)
    queries, keys = affected(q, k, v, grad, visibility, bias)
    mixed = tuple(map(np.where, (queries, keys, keys), exact, grads))
    return mixed if bias is None else (*mixed, exact[3])


def backward(
    grad: np.ndarray, inputs: Any, saved: Any, options: AttentionOptions
) -> tuple[np.ndarray, ...]:
    """Gradients of the inputs (q, k, v, bias), all of which are finite or see the same keys."""
    (q, k, v, bias), visibility = inputs, options[0]
    heads, groups = q.shape[1], k.shape[1]
    dq, dk, dv = (np.zeros((len(x), heads, x.shape[2]), x.dtype) for x in (q, k, v))
    of_heads = len(visibility.queries.lengths) * heads
    dbias = np.zeros((0, 1, 1) if bias is None else (of_heads, *bias.shape[2:]), q.dtype)
    if is_decoding(visibility):  # blocks round its scores in another way
        _, saved = forward(inputs, options, attention_heads)
    results = (NONE, saved, Gradients(as_input(grad), dq, dk, dv, dbias))
    run(attention_heads, inputs, options, results, 5)
    dk, dv = (sum_heads(x, groups) for x in (dk, dv))  # over the heads that share a key
    return (dq, dk, dv) if bias is None else (dq, dk, dv, dbias.reshape(-1, heads, *bias.shape[2:]))
