"""Scaled dot-product attention.

Letters of the shapes: B samples; H heads of queries, G heads of keys and values (fewer where heads
share them); R rows of queries and S rows of keys, of all samples together; Q queries and K keys of
the longest sample; a row of a head has d numbers in queries and keys, and e in values.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..base.backend import Array, device_of, is_finite, is_tensor, namespace, quiet
from ..base.checks import are_groups, check_heads
from ..base.random import NO_DROP, Drop
from ..engine.autograd import AnyTensor, TensorBase, array_of, wrap
from ..engine.op import op
from ..engine.promotion import in_dtype
from ..errors import DtypeError, ShapeError
from ..kernels import with_kernels
from ..kernels.matmul import matrix_product
from ..kernels.packing import as_packed, padded, repeat_heads, sum_heads
from ..kernels.sums import in_c_order
from ..kernels.visibility import AttentionOptions, Samples, Visibility, check_sizes
from .arguments import check_same_dtype_and_device, float_tensor
from .arithmetic import where
from .dropout import drop
from .elementwise import isfinite
from .products import matmul, swap
from .sequences import pack, unpack
from .softmax import softmax_of_visible, visible_softmax, visible_softmax_backward


@op(saves=True)
def attention(
    q: AnyTensor,
    k: AnyTensor,
    v: AnyTensor,
    bias: AnyTensor | None = None,
    *,
    heads: tuple[int, int] = (1, 1),
    visibility: Visibility,
    scale: float,
    drop: Drop = NO_DROP,
) -> Any:
    """dropout(masked_softmax(scale * q k^T + bias)) v, in each head of each sample.

    q (B, Q, H * d), k (B, K, G * d), v (B, K, G * e) -> (B, Q, H * e), as projections give them; or
    packed, (R, H * d) and so on, with the rows of one sample after those of another; or with the
    heads in front, (B, H, Q, d) and so on.
    heads: H and G. With G < H, each head of keys is for H / G heads of queries that follow each
    other. bias (B|1, H|1, Q|1, K|1).
    """
    q_rows, k_rows, v_rows = in_heads(q, heads[0]), in_heads(k, heads[1]), in_heads(v, heads[1])
    check_attention(q_rows, k_rows, v_rows, visibility.queries, visibility.keys)
    visibility.check(visibility.scores_shape(heads[0]))
    if bias is not None:
        check_sizes("bias", bias, visibility.scores_shape(heads[0]))
    out, weights = attention_of_rows(q_rows, k_rows, v_rows, (visibility, scale, drop), bias)
    return in_form_of(q, out), (weights, q_rows, k_rows, v_rows)


@attention.vjp("q", "k", "v", "bias")
def dqkv(grad, q, k, v, bias, heads, visibility, scale, drop, saved):
    if saved is None:  # on Tensors
        saved = None, in_heads(q, heads[0]), in_heads(k, heads[1]), in_heads(v, heads[1])
    weights, q_rows, k_rows, v_rows = saved
    rows, options = (in_heads(grad, heads[0]), q_rows, k_rows, v_rows), (visibility, scale, drop)
    grads = attention_of_rows_backward(*rows, options, bias, weights)
    dq, dk, dv = (in_form_of(x, dx) for x, dx in zip((q, k, v), grads, strict=False))
    return dq, dk, dv, grads[3] if len(grads) > 3 else None


@with_kernels(cpu="tiled_attention.attention", cuda="tiled_attention.attention")
def attention_of_rows(
    q: Any, k: Any, v: Any, options: AttentionOptions, bias: Any = None
) -> tuple[Any, Any]:
    """dropout(weights) v in each head of each sample, and what backward needs.

    q (R, H, d), k (S, G, d), v (S, G, e) -> (R, H, e) and the weights before dropout (B, H, Q, K);
    see `attention_weights`. A kernel never has the weights, and gives its backward other numbers
    in their place.
    """
    if q.dtype == np.float16:  # because rounded scores would lose digits
        q, k, v, bias = (in_dtype(x, np.float32) for x in (q, k, v, bias))
        out, weights = attention_of_rows(q, k, v, options, bias)
        return out.astype(np.float16), weights
    visibility, scale, drop = options
    weights = attention_weights(q, k, visibility, scale, bias)
    return attention_output(dropped(weights, drop), v, visibility), weights


@quiet  # invisible scores may be NaN or inf
def attention_weights(
    q: Any, k: Any, visibility: Visibility, scale: float, bias: Any = None
) -> Any:
    """softmax(scale * q k^T + bias) over the visible keys: (R, H, d), (S, G, d) -> (B, H, Q, K).

    Arrays or Tensors. The rows of one sample follow those of another; or (B, Q, H, d) and so on.
    """
    k = k if k.shape[-2] == q.shape[-2] else repeat_heads(k, q.shape[-2])
    keys = in_c_order(rows_to_heads(k, visibility.keys))  # (B, H, K, d)
    # float, because a float64 of NumPy would make the products float64 too
    queries = in_c_order(rows_to_heads(q, visibility.queries)) * float(scale)  # (B, H, Q, d)
    scores = matrix_product(queries, keys.swapaxes(-1, -2))
    scores = scores if bias is None else scores + bias
    formula = softmax_of_visible if is_tensor(scores) else visible_softmax  # only an op is recorded
    return formula(scores, visibility)


def attention_output(weights: Any, v: Any, visibility: Visibility) -> Any:
    """weights (B, H, Q, K) times values, rows (S, G, e) -> rows (R, H, e)."""
    v = v if v.shape[-2] == weights.shape[1] else repeat_heads(v, weights.shape[1])
    values = in_c_order(rows_to_heads(v, visibility.keys))  # (B, H, K, e)
    formula = weighted_sum if is_tensor(values) else visible_product  # only an op is recorded
    return heads_to_rows(formula(weights, values, visibility), visibility.queries)


def dropped(weights: Any, dropping: Drop) -> Any:
    """Weights, or their gradients, after dropout."""
    return drop(weights, *dropping) if dropping.p else weights


@with_kernels(cpu="tiled_attention.attention_backward", cuda="tiled_attention.attention_backward")
def attention_of_rows_backward(
    grad: Any, q: Any, k: Any, v: Any, options: AttentionOptions, bias: Any, weights: Any
) -> tuple[Any, ...]:
    """Gradients of q, k and v, and of the bias if there is one: with products = q k^T,

    dv = dropout(weights)^T grad,  dweights = dropout(grad v^T),
    dscores = weights * (dweights - sum(weights * dweights)) = dbias,
    dproducts = dscores * scale,  dq = dproducts k,  dk = dproducts^T q.
    """
    if q.dtype == np.float16:
        grad, q, k, v, bias = (in_dtype(x, np.float32) for x in (grad, q, k, v, bias))
        # The forward may have left the numbers of a kernel, which only its backward can read.
        return attention_of_rows_backward(grad, q, k, v, options, bias, weights)
    visibility, scale, drop = options
    if weights is None:  # computed again: on Tensors, because saved ones are not in the graph
        weights = attention_weights(q, k, visibility, scale, bias)
    queries, keys = visibility.queries, visibility.keys
    heads, groups = q.shape[-2], k.shape[-2]
    grad, q = (in_c_order(rows_to_heads(x, queries)) for x in (grad, q))  # (B, H, Q, d)
    if groups != heads:
        k, v = repeat_heads(k, heads), repeat_heads(v, heads)
    k, v = (in_c_order(rows_to_heads(x, keys)) for x in (k, v))  # (B, H, K, d)
    dweights = dropped(matrix_product(grad, v.swapaxes(-1, -2)), drop)
    dscores = visible_softmax_backward(dweights, weights, visibility)
    dproducts = dscores * float(scale)
    dq = weighted_sum(dproducts, k, visibility)
    dk = weighted_sum_of_queries(dproducts, q, visibility)
    dv = weighted_sum_of_queries(dropped(weights, drop), grad, visibility)
    dk, dv = (heads_to_rows(x, keys) for x in (dk, dv))
    if groups != heads:
        dk, dv = sum_heads(dk, groups), sum_heads(dv, groups)
    grads = heads_to_rows(dq, queries), dk, dv
    return grads if bias is None else (*grads, dscores)


def attention_with_weights(
    q: Any,
    k: Any,
    v: Any,
    bias: Any,
    *,
    heads: tuple[int, int],
    visibility: Visibility,
    scale: float,
    drop: Drop = NO_DROP,
    through: Callable[[Any], Any] | None = None,
) -> tuple[Any, Any]:
    """`attention` of Tensors, and the weights (B, H, Q, K). The kernels never make that array.

    through: a module that the weights go through before they meet the values.
    """
    q_rows, k_rows = in_heads(q, heads[0]), in_heads(k, heads[1])
    weights = attention_weights(q_rows, k_rows, visibility, scale, bias)
    used = dropped(weights, drop) if through is None else through(weights)
    return in_form_of(q, attention_output(used, in_heads(v, heads[1]), visibility)), weights


@op
def weighted_sum(weights: AnyTensor, values: AnyTensor, visibility: Visibility | None) -> AnyTensor:
    """weights (B, H, Q, K) @ values (B, H, K, e); invisible values have no influence, even NaN."""
    return visible_product(in_c_order(weights), in_c_order(values), visibility)


@weighted_sum.vjp("weights")
def dweights(grad, values, visibility):
    products = matmul(grad, swap(values))
    visible = None if visibility is None else visibility.visible_pairs(grad)
    return products if visible is None else where(visible, products, 0.0)


@weighted_sum.vjp("values")
def dvalues(grad, weights, visibility):
    return weighted_sum_of_queries(weights, grad, visibility)


def weighted_sum_of_queries(weights: Any, grad: Any, visibility: Visibility | None) -> Any:
    """weights^T (B, H, K, Q) @ (B, H, Q, e), of arrays or Tensors; invisible pairs do not count."""
    return visible_product(swap(in_c_order(weights)), in_c_order(grad), visibility, True)


@with_kernels(cuda="weighted_sum.weighted_sum")
@quiet
def visible_product(
    weights: Any, values: Any, visibility: Visibility | None, transposed: bool = False
) -> Any:
    """weights @ values, in which an invisible value has no influence, even if it is NaN.

    weights (B, H, Q, K), values (B, H, K, e), or `transposed`: (B, H, K, Q) and (B, H, Q, e).
    """
    product = matrix_product(weights, values)
    # The weight of an invisible value is 0, which is enough if the value is finite: 0 * NaN is NaN.
    if visibility is None or visibility.all_visible or is_finite(array_of(values)):
        return product
    shape = weights.swapaxes(-1, -2).shape if transposed else weights.shape  # (B, H, Q, K)
    visible = visibility.visible_pairs(weights)
    visible = namespace(visible).broadcast_to(visible, shape)
    visible = visible.swapaxes(-1, -2) if transposed else visible
    product = matrix_product(weights, where(isfinite(values), values, 0.0))
    for key in range(values.shape[-2]):
        row = values[..., key : key + 1, :]
        finite = isfinite(row)
        if bool(finite.all()):
            continue
        bad = where(finite, 0.0, row)  # (B, H, 1, e)
        part = weights[..., key : key + 1] * bad  # (B, H, Q, e)
        product = product + where(visible[..., key : key + 1], part, 0.0)
    return product


def device_of_inputs(queries: AnyTensor, keys: AnyTensor, values: AnyTensor) -> str:
    """The device of three Tensors of floats, which have one dtype and one device."""
    named = {"queries": queries, "keys": keys, "values": values}
    for name, x in named.items():
        if not isinstance(x, TensorBase) or x._data.dtype.kind != "f":
            float_tensor(x, name)  # raises the error
        if x._data.dtype is not queries._data.dtype or type(x._data) is not type(queries._data):
            check_same_dtype_and_device("attention", **named)
    return queries.device


def clear_invisible(visibility: Visibility, heads: int, keys: Any, values: Any) -> tuple[Any, Any]:
    """Keys and values with zeros for those that no query may see, if these are NaN or inf.

    Tensors (B, K, D), or with heads (B, G, K, d). Finite invisible numbers have no influence. But
    0 * NaN is NaN, and through a projection it would reach the gradients of weights, which all
    samples share.
    """
    if visibility.all_visible or visibility.each_key_seen:
        return keys, values
    # On a GPU always, because a search for NaN would let the host wait.
    on_cuda = keys.device == "cuda"
    clear_keys = on_cuda or not is_finite(keys._data)
    clear_values = clear_keys if values is keys else on_cuda or not is_finite(values._data)
    if not clear_keys and not clear_values:
        return keys, values
    visible: Any = visibility.visible_pairs(keys)  # not None, because some keys are hidden
    visible = visible.any(axis=-2)  # (B|1, H|1, K|1)
    if keys.ndim == 3:
        visible = visible.any(axis=1)  # (B|1, K|1)
    elif 0 < keys.shape[1] < visible.shape[1]:  # (B, G, K): to any head of queries of the group
        groups = keys.shape[1]
        visible = visible.reshape(len(visible), groups, heads // groups, -1).any(axis=2)
    visible = wrap(visible[..., None])  # a Tensor, because an op copies arrays of its caller
    cleared_keys = where(visible, keys, 0.0) if clear_keys else keys
    if values is keys:
        return cleared_keys, cleared_keys
    return cleared_keys, where(visible, values, 0.0) if clear_values else values


def in_heads(x: Any, heads: int) -> Any:
    """The rows of all samples, split into heads: (..., H * d) or (B, H, N, d) -> (R, H, d).

    On a GPU (B, H, N, d) becomes (B, N, H, d), a view, because the kernels there read rows by their
    strides.
    """
    if x.ndim == 4:
        x = x.swapaxes(1, 2)
        return x if device_of(x) == "cuda" else x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])
    check_heads(x.shape[-1], heads)
    return x.reshape(math.prod(x.shape[:-1]), heads, x.shape[-1] // heads)


def in_form_of(x: Any, rows: Any) -> Any:
    """The inverse: (R, H, e) or (B, N, H, e) in the form that x has."""
    if x.ndim == 4:
        return rows.reshape(x.shape[0], x.shape[2], *rows.shape[-2:]).swapaxes(1, 2)
    return rows.reshape(*x.shape[:-1], rows.shape[-2] * rows.shape[-1])


def rows_to_heads(x: Any, samples: Samples) -> Any:
    """Rows of all samples to matrices of each head: (R, H, d) or (B, L, H, d) -> (B, H, L, d)."""
    if samples.have_one_length:
        return x.reshape(len(samples.lengths), samples.longest, *x.shape[-2:]).swapaxes(1, 2)
    return padded(x, samples, unpack).swapaxes(1, 2)


def heads_to_rows(x: Any, samples: Samples) -> Any:
    """The inverse of `rows_to_heads`: (B, H, L, d) -> (R, H, d)."""
    x = x.swapaxes(1, 2)
    if samples.have_one_length:
        return x.reshape(samples.rows, *x.shape[-2:])
    return as_packed(x, samples, pack)


def check_attention(q: Array, k: Array, v: Array, queries: Any, keys: Any) -> None:
    """Checked here, because a compiled kernel checks no index and would read other memory."""
    (*of_q, heads, width), (*of_k, groups, key_width) = q.shape, k.shape
    if width != key_width or (*of_k, groups) != v.shape[:-1] or not are_groups(heads, groups):
        raise ShapeError(
            "attention: q (R, H, d), k (S, G, d) and v (S, G, e), where G is a divisor of H, got "
            f"{q.shape}, {k.shape} and {v.shape}"
        )
    if not q.dtype == k.dtype == v.dtype:
        raise DtypeError(f"attention takes one dtype, got {q.dtype}, {k.dtype} and {v.dtype}")
    if len(queries.lengths) != len(keys.lengths):
        raise ShapeError(
            f"attention: queries of {len(queries.lengths)} samples, keys of {len(keys.lengths)}"
        )
    for name, samples, place in (("queries", queries, of_q), ("keys", keys, of_k)):
        padded = len(place) == 1 or place == [len(samples.lengths), samples.longest]
        if not padded or samples.rows != math.prod(place):
            raise ShapeError(
                f"attention: the lengths of samples add up to the {math.prod(place)} rows of "
                f"{name}, got {samples.lengths.tolist()}"
            )


def default_scale(width: int) -> float:
    """1 / sqrt(d), because q k^T of independent numbers has variance d; 1 for d = 0."""
    return 1 / math.sqrt(width) if width else 1.0
