"""Every kernel as plain array code, to read, and to test the fast kernels against.

This code also runs without Numba, with `TINYATTN_JIT=0`, and on arrays that a fast kernel does not
take. The backward functions use only operators and methods that arrays and Tensors share. So they
run on Tensors too, and are recorded, which gives derivatives of any order.

`xp` is the module of an array's functions: NumPy, CuPy, or `tinyattn.ops` for a Tensor.

Letters of the shapes of attention: B samples; H heads of queries, G heads of keys and values
(`groups`, fewer where heads share them); R rows of queries and S rows of keys, of all samples
together; Q queries and K keys of the longest sample; a row of a head has d numbers in queries and
keys, and e in values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..base.backend import (
    Array,
    is_array,
    is_finite,
    is_tensor,
    namespace,
    quiet,
    scatter_add,
)
from .float16 import float32_of, in_float32
from .matmul import matrix_product
from .normalization import layer_norm as layer_norm
from .normalization import layer_norm_backward as layer_norm_backward
from .normalization import rms_norm as rms_norm
from .normalization import rms_norm_backward as rms_norm_backward
from .packing import heads_to_rows, repeat_heads, rows_to_heads, sum_heads
from .sums import in_c_order, sum_dtype
from .visibility import Visibility


class Drop(NamedTuple):
    """Dropout inside an operation: the probability, and the seed of the mask."""

    p: float
    seed: int


NO_DROP = Drop(0.0, 0)


@quiet
def masked_softmax(x: Any, visibility: Visibility | None) -> Any:
    """exp(x - max) / sum over the visible keys of the last dimension; the others get 0."""
    xp = namespace(x)
    if is_tensor(x):
        return xp.masked_softmax(x, visibility=visibility)
    if not x.shape[-1]:
        return x.copy()
    visible = None if visibility is None else visibility.visible_pairs(x)
    scores = x.astype(sum_dtype(x.dtype), order="C")
    if visible is not None:
        # No finite fill value is safe, because real scores may be lower. -inf changes neither the
        # maximum nor the sum; a row of only -inf becomes zeros.
        scores = xp.where(visible, scores, -math.inf)
    top = scores.max(axis=-1, keepdims=True)
    if visible is not None:
        empty = ~xp.broadcast_to(visible, x.shape).any(axis=-1, keepdims=True)
        top = xp.where(empty, 0, top)
    powers = xp.exp(scores - top)
    if visible is not None:
        powers = xp.where(visible, powers, 0)
    total = powers.sum(axis=-1, keepdims=True)
    if visible is not None:
        total = xp.where(empty, 1, total)
    weights = powers / total
    if visible is not None:
        weights = xp.where(visible, weights, 0)  # also if a visible score is NaN
    return weights.astype(x.dtype)


def softmax(x: Array) -> Array:
    """exp(x) / sum(exp(x)) over the last dimension."""
    return masked_softmax(x, None)


@in_float32
def softmax_backward(grad: Any, out: Any) -> Any:
    """out * (grad - sum(grad * out)), because the Jacobian of a row is diag(out) - out out^T."""
    return out * (grad - (grad * out).sum(axis=-1, keepdims=True))


def masked_softmax_backward(grad: Any, out: Any, visibility: Visibility | None) -> Any:
    """The same over the visible keys; invisible ones have no influence, even if they are NaN."""
    visible = None if visibility is None else visibility.visible_pairs(out)
    if visible is None:
        return softmax_backward(grad, out)
    where = namespace(grad).where
    return where(visible, softmax_backward(where(visible, grad, 0.0), out), 0.0)


@quiet
def log_softmax(x: Array) -> Array:
    xp = namespace(x)
    if not x.shape[-1]:
        return x.copy()
    scores = x.astype(sum_dtype(x.dtype), order="C")
    shifted = scores - scores.max(axis=-1, keepdims=True)
    total = xp.log(xp.exp(shifted).sum(axis=-1, keepdims=True))
    return (shifted - total).astype(x.dtype)


@in_float32
def log_softmax_backward(grad: Any, out: Any) -> Any:
    return grad - namespace(out).exp(out) * in_c_order(grad).sum(axis=-1, keepdims=True)


@quiet
def cross_entropy(logits: Array, target: Array, ignore_index: int) -> tuple[Array, Array]:
    """The loss of each row (N,); and its maximum and log(sum(exp(row - maximum))), (2, N).

    These two are not added up, because the sum would lose digits of the smaller one.
    """
    xp = namespace(logits)
    if not len(logits):
        return xp.zeros(0, logits.dtype), xp.zeros((2, 0))
    counted = target != ignore_index
    rows = xp.arange(len(target))
    classes = xp.where(counted, target, 0)
    scores = logits.astype(sum_dtype(logits.dtype), order="C")
    top = scores.max(axis=-1)
    log_total = xp.log(xp.exp(scores - top[:, None]).sum(axis=-1))
    losses = xp.where(counted, log_total - (scores[rows, classes] - top), 0)
    return losses.astype(logits.dtype), xp.stack([top, log_total])


def cross_entropy_backward(
    grad: Any, logits: Any, target: Array, ignore_index: int, log_sums: Array | None
) -> Any:
    """(softmax(logits) - one_hot(target)) * grad, row by row."""
    target = getattr(target, "_data", target)
    xp = namespace(target)
    counted = target != ignore_index
    one_hot = xp.zeros(logits.shape, logits.dtype)
    one_hot[xp.arange(len(target)), xp.where(counted, target, 0)] = 1
    if log_sums is None:  # on Tensors, because log_sums is not part of the graph
        probabilities = namespace(logits).softmax(logits)
    else:
        top, log_total = log_sums[:, :, None]
        probabilities = xp.exp((logits - top) - log_total).astype(logits.dtype)
    # `where`, because 0 * NaN is NaN: the logits of an ignored row may be NaN.
    return namespace(logits).where(
        counted[:, None], (probabilities - one_hot) * grad.reshape(len(target), 1), 0.0
    )


def keep_mask(shape: tuple[int, ...], p: float, seed: int, xp: Any = np) -> Array:
    """True for the elements that dropout keeps, as `kept` says of their numbers in C order."""
    return kept(xp.arange(math.prod(shape), dtype=xp.uint64), p, seed, xp).reshape(shape)


def kept(numbers: Array, p: float, seed: int, xp: Any = np) -> Array:
    """True where dropout keeps the element of this number i: if hash(seed, i) >= p 2^32.

    The hash is two rounds of a 32-bit integer mixer (multipliers by Chris Wellons, "Prospecting
    for hash functions", 2018). The lower half of the number and of the seed go into the first
    round, the upper halves into the second. It has no state, so a kernel, backward or another
    device can compute any element again.
    """
    x, h = numbers ^ xp.uint64(seed), xp.uint32(0)
    for shift in (0, 32):  # first the lower half
        h = (x >> xp.uint64(shift)).astype(xp.uint32) ^ h
        h = (h ^ (h >> xp.uint32(16))) * xp.uint32(0x21F0AAAD)
        h = (h ^ (h >> xp.uint32(15))) * xp.uint32(0x735A2D97)
        h = h ^ (h >> xp.uint32(15))
    return h >= xp.uint32(drop_threshold(p))


def halves(seed: int) -> tuple[int, int]:
    """The lower and the upper 32 bits of a seed."""
    return seed & 0xFFFFFFFF, seed >> 32


def drop_threshold(p: float) -> int:
    return min(round(p * 2**32), 2**32 - 1)


def dropout(x: Any, p: float, seed: int) -> Any:
    """x / (1 - p) for kept elements, else 0: the expectation stays the same; p = 1 gives zeros."""
    xp = namespace(x)
    if is_tensor(x):
        return xp.dropout(x, p=p, seed=seed)
    if p >= 1:
        return xp.zeros_like(x)
    keep = keep_mask(x.shape, p, seed, xp)
    factor = np.result_type(x.dtype, np.float32).type(1 / (1 - p))  # in float16 it may be inf
    return xp.where(keep, (x * factor).astype(x.dtype, copy=False), x.dtype.type(0))


def scatter_rows(grad: Array, ids: Array, num_rows: int, skip: int | None) -> Array:
    """Zeros (V, D) with each row of grad (..., D) added at its id."""
    width = grad.shape[-1]
    table = namespace(grad).zeros((num_rows, width), sum_dtype(grad.dtype))
    scatter_add(table, ids.reshape(-1), grad.reshape(ids.size, width))
    if skip is not None:
        table[skip] = 0
    return table.astype(grad.dtype)


@quiet
def weighted_sum(
    weights: Any, values: Any, visibility: Visibility | None, transposed: bool = False
) -> Any:
    """weights @ values, in which an invisible value has no influence, even if it is NaN.

    weights (B, H, Q, K), values (B, H, K, e), or `transposed`: (B, H, K, Q) and (B, H, Q, e).
    """
    xp = namespace(values)
    if is_tensor(values) and not transposed:
        return xp.weighted_sum(weights, values, visibility=visibility)
    product = matrix_product(weights, values)
    # The weight of an invisible value is 0, which is enough if the value is finite: 0 * NaN is NaN.
    if visibility is None or visibility.all_visible or is_finite(values):
        return product
    shape = weights.swapaxes(-1, -2).shape if transposed else weights.shape  # (B, H, Q, K)
    visible = visibility.visible_pairs(weights)
    visible = namespace(visible).broadcast_to(visible, shape)
    visible = visible.swapaxes(-1, -2) if transposed else visible
    finite = xp.isfinite(values)
    product = matrix_product(weights, xp.where(finite, values, 0.0))
    for key in range(values.shape[-2]):
        row = values[..., key : key + 1, :]
        if bool(xp.isfinite(row).all()):
            continue
        bad = xp.where(xp.isfinite(row), 0.0, row)  # (B, H, 1, e)
        part = weights[..., key : key + 1] * bad  # (B, H, Q, e)
        product = product + xp.where(visible[..., key : key + 1], part, 0.0)
    return product


class AttentionKernels(NamedTuple):
    """The kernels that the formula of attention calls."""

    masked_softmax: Callable[..., Any]
    masked_softmax_backward: Callable[..., Any]
    dropout: Callable[..., Any]
    weighted_sum: Callable[..., Any]


OF_REFERENCE = AttentionKernels(masked_softmax, masked_softmax_backward, dropout, weighted_sum)


@quiet  # invisible scores may be NaN or inf
def attention_weights(
    q: Any,
    k: Any,
    visibility: Visibility,
    scale: float,
    bias: Any = None,
    kernels: AttentionKernels = OF_REFERENCE,
) -> Any:
    """softmax(scale * q k^T + bias) over the visible keys: (R, H, d), (S, G, d) -> (B, H, Q, K).

    Arrays or Tensors. The rows of one sample follow those of another; or (B, Q, H, d) and so on.
    kernels: a GPU gives its own.
    """
    keys = in_c_order(rows_to_heads(repeat_heads(k, q.shape[-2]), visibility.keys))  # (B, H, K, d)
    # float, because a float64 of NumPy would make the products float64 too
    queries = in_c_order(rows_to_heads(q, visibility.queries)) * float(scale)  # (B, H, Q, d)
    scores = matrix_product(queries, keys.swapaxes(-1, -2))
    scores = scores if bias is None else scores + bias
    return kernels.masked_softmax(scores, visibility)


def attention(
    q: Any,
    k: Any,
    v: Any,
    visibility: Visibility,
    scale: float,
    drop: Drop = NO_DROP,
    bias: Any = None,
    kernels: AttentionKernels = OF_REFERENCE,
) -> tuple[Any, Any]:
    """dropout(weights) v in each head of each sample, and the weights, before dropout.

    q (R, H, d), k (S, G, d), v (S, G, e) -> (R, H, e) and (B, H, Q, K); see `attention_weights`.
    """
    if q.dtype == np.float16 and is_array(q):  # because rounded scores would lose digits
        q, k, v = map(float32_of, (q, k, v))
        out, weights = attention(q, k, v, visibility, scale, drop, bias, kernels)
        return out.astype(np.float16), weights
    weights = attention_weights(q, k, visibility, scale, bias, kernels)
    dropped = kernels.dropout(weights, *drop) if drop.p else weights
    return attention_output(dropped, v, visibility, kernels), weights


def attention_output(
    weights: Any, v: Any, visibility: Visibility, kernels: AttentionKernels = OF_REFERENCE
) -> Any:
    """weights (B, H, Q, K) times values, rows (S, G, e) -> rows (R, H, e)."""
    values = rows_to_heads(repeat_heads(v, weights.shape[1]), visibility.keys)  # (B, H, K, e)
    out = kernels.weighted_sum(weights, in_c_order(values), visibility)  # (B, H, Q, e)
    return heads_to_rows(out, visibility.queries)


def attention_backward(
    grad: Any,
    q: Any,
    k: Any,
    v: Any,
    visibility: Visibility,
    scale: float,
    drop: Drop,
    weights: Any,
    bias: Any = None,
    kernels: AttentionKernels = OF_REFERENCE,
) -> tuple[Any, ...]:
    """Gradients of q, k and v, and of the bias if there is one: with products = q k^T,

    dv = dropout(weights)^T grad,  dweights = dropout(grad v^T),
    dscores = weights * (dweights - sum(weights * dweights)) = dbias,
    dproducts = dscores * scale,  dq = dproducts k,  dk = dproducts^T q.
    """
    if weights is None:  # on Tensors, because saved weights are not part of the graph
        weights = attention_weights(q, k, visibility, scale, bias, kernels)
    elif q.dtype == np.float16:
        grad, q, k, v = map(float32_of, (grad, q, k, v))
    queries, keys = visibility.queries, visibility.keys
    heads, groups = q.shape[-2], k.shape[-2]
    grad, q = (in_c_order(rows_to_heads(x, queries)) for x in (grad, q))  # (B, H, Q, d)
    k, v = (in_c_order(rows_to_heads(repeat_heads(x, heads), keys)) for x in (k, v))  # (B, H, K, d)
    after_dropout = (lambda x: kernels.dropout(x, *drop)) if drop.p else (lambda x: x)
    dweights = after_dropout(matrix_product(grad, v.swapaxes(-1, -2)))
    dscores = kernels.masked_softmax_backward(dweights, weights, visibility)
    dproducts = dscores * float(scale)
    dq = kernels.weighted_sum(dproducts, k, visibility)
    dk = kernels.weighted_sum(dproducts.swapaxes(-1, -2), q, visibility, transposed=True)
    dropped = after_dropout(weights).swapaxes(-1, -2)
    dv = kernels.weighted_sum(dropped, grad, visibility, transposed=True)
    dk, dv = (sum_heads(heads_to_rows(x, keys), groups) for x in (dk, dv))
    grads = heads_to_rows(dq, queries), dk, dv
    return grads if bias is None else (*grads, dscores)


def where(condition: Array, x: Any, y: Any) -> Array:
    """x where the condition is True, else y."""
    return namespace(condition).where(condition, x, y)


def add_bias(x: Array, bias: Array) -> None:
    """x (N, D) += bias (D,), in place."""
    x += bias


def int8_product(x: Array, numbers: Array, scale: Array) -> Array:
    """x (N, D) times the transpose of numbers * scale, (E, D) int8 and (E,): (N, E)."""
    return matrix_product(x, numbers.astype(x.dtype).T) * scale


def sum_rows(x: Array) -> Array:
    """(N, D) -> (D,)."""
    return in_c_order(x).sum(axis=0, dtype=sum_dtype(x.dtype)).astype(x.dtype)


def cumsum(x: Array, axis: int, reverse: bool) -> Array:
    """The sum of each element and those before it along `axis`; with `reverse`, of those behind."""
    order = (slice(None),) * axis + (slice(None, None, -1 if reverse else 1),)
    dtype = x.dtype if x.dtype.kind == "f" else np.dtype(np.int64)
    total = namespace(x).cumsum(in_c_order(x[order]), axis=axis, dtype=sum_dtype(dtype))
    return total[order].astype(dtype)


def multiply_rows(x: Array) -> Array:
    """(N, D) -> (N,), in `sum_dtype`, because a part may overflow where the whole does not.

    One half of each row is multiplied by the other, until one number is left.
    """
    xp, rows = namespace(x), x.astype(sum_dtype(x.dtype))
    while (n := rows.shape[1]) > 1:
        product = rows[:, : n // 2] * rows[:, n // 2 : n // 2 * 2]
        rows = xp.concatenate([product, rows[:, -1:]], axis=1) if n % 2 else product
    return rows[:, 0] if rows.shape[1] else xp.full(len(rows), 1, rows.dtype)


def sum_squares(x: Array) -> Array:
    """(N, D) -> (N,), in float64, because a float16 overflows at 256."""
    squares = x.astype(np.float64, order="C")
    squares *= squares
    return squares.sum(axis=-1)


def scaled_distances(x: Array, centre: Array, factor: Array) -> Array:
    """(x - centre) * factor in `sum_dtype`, in which centre and factor are; they broadcast to x."""
    distances = (x.astype(sum_dtype(x.dtype)) - centre) * factor
    return distances.astype(x.dtype, copy=False)


def gather(x: Array, index: Array, axis: int) -> Array:
    """out[i, j, k] = x[i, index[i, j, k], k] along the second of three dimensions, for instance."""
    return x.reshape(-1).take(flat_index(index, x.shape, axis), axis=0)


def scatter_along(grad: Array, index: Array, axis: int, shape: tuple[int, ...]) -> Array:
    """The reverse of `gather`: zeros of this shape with each element added where it came from."""
    total = namespace(grad).zeros(math.prod(shape), sum_dtype(grad.dtype))
    values = grad.reshape(-1).astype(total.dtype, copy=False)
    scatter_add(total, flat_index(index, shape, axis).reshape(-1), values)
    return total.reshape(shape).astype(grad.dtype, copy=False)


def flat_index(index: Array, shape: tuple[int, ...], axis: int) -> Array:
    """Where each element that `gather` takes stands in the flattened array of this shape."""
    first = namespace(index).zeros((1,) * index.ndim, np.int64)  # of the line that an index is in
    for i, n in enumerate(index.shape):
        if i != axis:
            steps = namespace(index).arange(n) * math.prod(shape[i + 1 :])
            first = first + steps.reshape(n, *(1,) * (index.ndim - i - 1))
    return first + index * math.prod(shape[axis + 1 :])


class AdamStep(NamedTuple):
    """The numbers of one step of Adam."""

    rate: float
    beta1: float
    beta2: float
    eps: float
    decay: float
    decoupled: bool  # whether decay is subtracted from the weights, or added to the gradient
    step: int  # counted from 1


@quiet
def adam(
    parameters: Sequence[Array],
    grads: Sequence[Array],
    ms: Sequence[Array],
    vs: Sequence[Array],
    current_step: Callable[[], AdamStep],
) -> None:
    """One step of Adam (or AdamW, with `decoupled` decay), in place on parameters, ms and vs.

    m and v are the running means of the gradient and of its square. They start at zero, so they are
    divided by 1 - beta^step (Kingma and Ba, "Adam", 2015; Loshchilov and Hutter, "Decoupled Weight
    Decay Regularization", 2019). The step is computed in the dtype of m and v, which for a float16
    parameter are float32. `current_step` is a function, because a captured step asks again in each
    replay.
    """
    rate, beta1, beta2, eps, decay, decoupled, step = current_step()
    for parameter, grad, m, v in zip(parameters, grads, ms, vs, strict=True):
        w, grad = (array.astype(m.dtype, copy=False) for array in (parameter, grad))
        if decay and decoupled:
            w *= 1 - rate * decay
        elif decay:
            grad = grad + decay * w
        m *= beta1
        m += (1 - beta1) * grad
        v *= beta2
        v += (1 - beta2) * grad * grad
        root = namespace(v).sqrt(v) / math.sqrt(1 - beta2**step) + eps
        w -= (rate / (1 - beta1**step)) * m / root
        if w is not parameter:
            parameter[...] = w
