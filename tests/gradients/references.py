"""What every operation should compute, in plain NumPy, written without looking at the library.

References also take complex arrays: the imaginary part of f(x + ih) / h is the derivative of f to
the last digit, since nothing is subtracted. Of a complex `z` only the real part decides anything,
and only analytic functions act on it. Where a function has a kink the reference says which slope
counts there: of elements that tie for the maximum it takes the mean, so that they share the slope.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray


def real(z: Array) -> Array:
    return z.real if np.iscomplexobj(z) else z


NODES, WEIGHTS = np.polynomial.legendre.leggauss(80)
NODES, WEIGHTS = (NODES + 1) / 2, WEIGHTS / 2  # on [0, 1]


def erf(z: Array) -> Array:
    """2 z / sqrt(pi) times the integral of exp(-z^2 t^2) from 0 to 1; beyond 6 it is +-1."""
    z = np.asarray(z)
    inner = np.where(np.abs(real(z)) < 6, z, 0)
    points = inner[..., None] * NODES
    integral = (np.exp(-points * points) * WEIGHTS).sum(-1)
    return np.where(np.abs(real(z)) < 6, 2 / math.sqrt(math.pi) * inner * integral, np.sign(z.real))


def sigmoid(z: Array) -> Array:
    falling = np.exp(np.where(real(z) >= 0, -z, z))
    return np.where(real(z) >= 0, 1 / (1 + falling), falling / (1 + falling))


def gelu(z: Array, approximate: str = "none") -> Array:
    if approximate == "tanh":
        return z / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z * z * z)))
    return z * (1 + erf(z / math.sqrt(2))) / 2


def pow(x: Array, y: Array) -> Array:
    """x ** y for x >= 0; at x = 0 the power stays where it is while y moves."""
    if not np.iscomplexobj(x):
        return np.power(x, y)
    x, y = np.broadcast_arrays(x, y)
    zero = x.real == 0
    at_zero = np.where(y.real == 0, 1, np.where(y.real == 1, x, 0))
    return np.where(zero, at_zero, np.exp(y * np.log(np.where(zero, 1, x))))


def integer_power(x: Array, n: int) -> Array:
    result = np.ones_like(x)
    for _ in range(abs(n)):
        result = result * x
    return result if n >= 0 else 1 / result


def pow_number(x: Array, n: float) -> Array:
    if isinstance(n, int) or n == int(n):
        return integer_power(x, int(n))
    if np.iscomplexobj(x):
        return np.exp(n * np.log(x))
    return np.sqrt(x) if n == 0.5 else np.power(x, n)  # which is inf for -inf before NumPy 2.3


def pick(first_wins: Callable[..., Array]) -> Callable[[Array, Array], Array]:
    """maximum and minimum; of two that tie the mean."""

    def pick(x: Array, y: Array) -> Array:
        a, b = real(x), real(y)
        if not np.iscomplexobj(x):
            return (np.maximum if first_wins is np.greater else np.minimum)(x, y)
        return np.where(a == b, (x + y) / 2, np.where(first_wins(a, b), x, y))

    return pick


def clamp(x: Array, min: float | None = None, max: float | None = None) -> Array:
    if not np.iscomplexobj(x):
        return np.clip(x, min, max)
    x = x if min is None else np.where(x.real < min, min, x)
    return x if max is None else np.where(x.real > max, max, x)


def clamp_between(x: Array, min: Array, max: Array) -> Array:
    """First the lower limit, then the upper; a limit that is NaN gives NaN."""
    x = np.where((real(x) < real(min)) | np.isnan(real(min)), min, x)
    return np.where((real(x) > real(max)) | np.isnan(real(max)), max, x)


def logarithm(x: Array, base: int) -> Array:
    return np.log(x) / math.log(base)


def log1p(x: Array) -> Array:
    """NumPy's complex log1p loses the real part; the slope is 1 / (1 + x)."""
    if not np.iscomplexobj(x):
        return np.log1p(x)
    return np.log1p(x.real) + 1j * x.imag / (1 + x.real)


def expm1(x: Array) -> Array:
    if not np.iscomplexobj(x):
        return np.expm1(x)
    return np.expm1(x.real) + 1j * x.imag * np.exp(x.real)


def remainder(x: Array, y: Array) -> Array:
    if not np.iscomplexobj(x) and not np.iscomplexobj(y):
        return np.remainder(x, y)
    return x - y * np.floor(real(x) / real(y))


def axes_of(x: Array, dim: Any) -> tuple[int, ...]:
    if dim is None:
        return tuple(range(x.ndim))
    dims = dim if isinstance(dim, tuple) else (dim,)
    return tuple(d % x.ndim for d in dims) if x.ndim else ()


def sum(x: Array, dim: Any = None, keepdim: bool = False) -> Array:
    return np.sum(x, axis=axes_of(x, dim), keepdims=keepdim)


def mean(x: Array, dim: Any = None, keepdim: bool = False) -> Array:
    n = math.prod(x.shape[d] for d in axes_of(x, dim))
    with np.errstate(all="ignore"):
        return sum(x, dim, keepdim) / np.float64(n)


def var(x: Array, dim: Any = None, unbiased: bool = True, keepdim: bool = False) -> Array:
    n = math.prod(x.shape[d] for d in axes_of(x, dim))
    centred = x - mean(x, dim, True)
    with np.errstate(all="ignore"):
        return sum(centred * centred, dim, keepdim) / np.float64(max(0, n - unbiased))


def std(*arguments: Any, **options: Any) -> Array:
    return np.sqrt(var(*arguments, **options))


def extreme(name: str) -> Callable[..., Array]:
    """max and min; of those that tie the mean."""

    def extreme(x: Array, dim: Any = None, keepdim: bool = False) -> Array:
        axes = axes_of(x, dim)
        if not np.iscomplexobj(x):
            return getattr(np, name)(x, axis=axes, keepdims=keepdim)
        ties = x.real == getattr(np, name)(x.real, axis=axes, keepdims=True)
        count = ties.sum(axis=axes, keepdims=keepdim)
        return np.where(ties, x, 0).sum(axis=axes, keepdims=keepdim) / count

    return extreme


def first_extreme(name: str) -> Callable[..., Array]:
    """max and min along one dimension; of those that tie the first."""

    def extreme(x: Array, dim: int, keepdim: bool = False) -> Array:
        if not x.ndim:
            return x
        place = np.expand_dims(getattr(np, f"arg{name}")(x.real, axis=dim), dim)
        found = np.take_along_axis(x, place, dim)
        return found if keepdim else found.squeeze(dim)

    return extreme


def sum_to(x: Array, shape: tuple[int, ...]) -> Array:
    while x.ndim > len(shape):
        x = x.sum(axis=0)
    for axis, n in enumerate(shape):
        if n == 1 and x.shape[axis] != 1:
            x = x.sum(axis=axis, keepdims=True)
    return x


def cumsum(x: Array, dim: int) -> Array:
    return np.cumsum(x, axis=dim) if x.ndim else x


def prod(x: Array, dim: int | None = None, keepdim: bool = False) -> Array:
    return np.prod(x, axis=axes_of(x, dim), keepdims=keepdim)


def logsumexp(x: Array, dim: Any = None, keepdim: bool = False) -> Array:
    axes = axes_of(x, dim)
    largest = real(x).max(axis=axes, keepdims=True, initial=-np.inf)
    largest = np.where(np.isfinite(largest), largest, 0)
    with np.errstate(all="ignore"):
        out = np.log(np.exp(x - largest).sum(axis=axes, keepdims=True)) + largest
    return out if keepdim else out.squeeze(axes)


def norm(x: Array, p: Any = "fro", dim: Any = None, keepdim: bool = False) -> Array:
    size = x * np.sign(real(x))
    if p == 1:
        return sum(size, dim, keepdim)
    if p == np.inf:
        return extreme("max")(size, dim, keepdim)
    squares = sum(x * x, dim, keepdim)
    return np.where(np.abs(squares) < 1e-150, 0, np.sqrt(squares))


def order(x: Array, dim: int = -1, descending: bool = False) -> Array:
    """What NumPy sorts up is sorted down by its negative; NaN is larger than all."""
    x = real(x)
    key = np.where(np.isnan(x), -np.inf, -x) if descending else x
    return np.argsort(key, axis=dim, kind="stable") if x.ndim else np.array(0)


def sort(x: Array, dim: int = -1, descending: bool = False) -> Array:
    return np.take_along_axis(x, order(x, dim, descending), dim) if x.ndim else x


def topk(x: Array, k: int, dim: int = -1, largest: bool = True) -> Array:
    return np.take(sort(x, dim, largest), range(k), dim) if x.ndim else x


def einsum(*xs: Array, equation: str) -> Array:
    """What one operand alone has, and the result has not, is summed before anything else."""
    inputs, arrow, out = equation.partition("->")
    names = inputs.split(",")
    if not arrow or "." in inputs or len(names) > 2 or any(len(set(a)) < len(a) for a in names):
        pairs = ["einsum_path", *[(0, 1)] * (len(xs) - 1)] if len(xs) > 2 else False
        return np.asarray(np.einsum(equation, *xs, optimize=pairs))
    found = []
    for i, (name, x) in enumerate(zip(names, xs, strict=True)):
        others = out + "".join(names[:i] + names[i + 1 :])
        found.append(x.sum(axis=tuple(j for j, a in enumerate(name) if a not in others)))
        names[i] = "".join(a for a in name if a in others)
    return np.asarray(np.einsum(f"{','.join(names)}->{out}", *found))


def softmax(x: Array, dim: int = -1) -> Array:
    if not x.size:
        return x.copy()
    if not x.ndim:
        return softmax(x.reshape(1)).reshape(())
    powers = np.exp(x - real(x).max(axis=dim, keepdims=True))
    return powers / powers.sum(axis=dim, keepdims=True)


def log_softmax(x: Array, dim: int = -1) -> Array:
    if not x.size:
        return x.copy()
    if not x.ndim:
        return log_softmax(x.reshape(1)).reshape(())
    shifted = x - real(x).max(axis=dim, keepdims=True)
    with np.errstate(all="ignore"):
        return shifted - np.log(np.exp(shifted).sum(axis=dim, keepdims=True))


def seen_keys(
    b: int, h: int, q: int, keys: int, valid_lens: Any, mask: Any, is_causal: bool
) -> list[int]:
    """The keys that query q of head h of sample b may attend to, said in the plainest way."""
    lens = None if valid_lens is None else np.asarray(valid_lens)
    mask = None if mask is None else np.asarray(mask) != 0
    found = []
    for k in range(keys):
        allowed = True
        if lens is not None:
            allowed &= k < (lens[b] if lens.ndim == 1 else lens[b, q])
        if mask is not None:
            place = {2: (b, k), 3: (b, q, k), 4: (b, h, q, k)}[mask.ndim]
            allowed &= mask[tuple(i % n for i, n in zip(place, mask.shape, strict=True))]
        if is_causal:
            allowed &= k <= q
        if allowed:
            found.append(k)
    return found


def of_one_sample(shape: Any, valid_lens: Any, mask: Any) -> tuple[Any, Any]:
    """Lengths and mask of scores (Q, K) or (K,) as those of (1, Q, K)."""
    queries = shape[0] if len(shape) == 2 else 1
    if valid_lens is not None:
        valid_lens = np.broadcast_to(valid_lens, (1, queries))
    if mask is not None:
        mask = np.broadcast_to(mask, (1, queries, shape[-1]))
    return valid_lens, mask


def masked_softmax(
    x: Array, valid_lens: Any = None, mask: Any = None, is_causal: bool = False
) -> Array:
    """The softmax of what is left when the hidden keys are taken out of each row."""
    if x.ndim < 3:
        valid_lens, mask = of_one_sample(x.shape, valid_lens, mask)
        batch = x[None] if x.ndim == 2 else x[None, None]
        return masked_softmax(batch, valid_lens, mask, is_causal).reshape(x.shape)
    four = x.reshape(x.shape[0], -1, *x.shape[-2:]) if x.ndim == 4 else x[:, None]
    out = np.zeros(four.shape, x.dtype)
    for b, h, q in np.ndindex(four.shape[:3]):
        keep = seen_keys(b, h, q, x.shape[-1], valid_lens, mask, is_causal)
        if keep:
            out[b, h, q, keep] = softmax(four[b, h, q, keep])
    return out.reshape(x.shape)


def attention(
    q: Array,
    k: Array,
    v: Array,
    bias: Any = 0.0,
    mask: Any = None,
    valid_lens: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    **more: Any,
) -> Array:
    """Each query by itself, over the keys and values it may see."""
    heads = q.ndim == 4
    q, k, v = (x if heads else x[:, None] for x in (q, k, v))
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    out = np.zeros((*q.shape[:3], v.shape[-1]), np.result_type(q, k, v, bias))
    bias = over_scores(bias, heads, (*q.shape[:3], k.shape[2]))
    allowed = over_scores(more.get("attn_mask", True), heads, bias.shape)
    shared = q.shape[1] // max(k.shape[1], 1)
    for b, h, i in np.ndindex(q.shape[:3]):
        keep = seen_keys(b, h, i, k.shape[2], valid_lens, mask, is_causal)
        keep = [j for j in keep if abs(i - j) < more.get("window", np.inf) and allowed[b, h, i, j]]
        if keep:
            g = h // shared
            scores = k[b, g, keep] @ q[b, h, i] * scale + bias[b, h, i, keep]
            out[b, h, i] = softmax(scores) @ v[b, g, keep]
    return out if heads else out[:, 0]


def over_scores(x: Any, heads: bool, shape: tuple[int, ...]) -> Array:
    """What broadcasts to the scores (B, Q, K), or with heads (B, H, Q, K), as (B, H, Q, K)."""
    x = np.asarray(x)
    return np.broadcast_to(x if heads else x[..., None, :, :] if x.ndim > 2 else x, shape)


def rotary_embedding(x: Array, positions: Any = None, base: float = 10000.0) -> Array:
    """Each pair as a complex number, times e^(i angle)."""
    positions = np.arange(x.shape[-2]) if positions is None else np.asarray(positions)
    positions = np.broadcast_to(positions, x.shape[:-1])
    out = x.copy()
    for row in np.ndindex(x.shape[:-1]):
        for j in range(0, x.shape[-1], 2):
            angle = positions[row] / base ** (j / x.shape[-1])
            c, s, (a, b) = math.cos(angle), math.sin(angle), x[row][j : j + 2]
            out[row][j : j + 2] = a * c - b * s, a * s + b * c
    return out


def visible(shape: tuple[int, ...], limits: Any, mask: Any) -> Array:
    """Which of the pairs (B, H, Q, K) are not hidden."""
    lens = None if limits is None else np.broadcast_to(limits, (shape[0], shape[2]))
    seen = np.zeros(shape, bool)
    for b, h, q in np.ndindex(shape[:3]):
        seen[b, h, q, seen_keys(b, h, q, shape[3], lens, mask, False)] = True
    return seen


def weighted_sum(weights: Array, values: Array, limits: Any, mask: Any) -> Array:
    """The values of each query's visible keys, times their weights."""
    seen = visible(weights.shape, limits, mask)
    out = np.zeros((*weights.shape[:3], values.shape[-1]), np.result_type(weights, values))
    for b, h, q in np.ndindex(weights.shape[:3]):
        keep = seen[b, h, q]
        out[b, h, q] = weights[b, h, q, keep] @ values[b, h, keep]
    return out


def layer_norm(
    x: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    normalized_shape: tuple[int, ...] = (),
    eps: float = 1e-5,
) -> Array:
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    centred = x - x.mean(axis=axes, keepdims=True) if x.size else x
    if x.size:
        centred = centred / np.sqrt((centred * centred).mean(axis=axes, keepdims=True) + eps)
    out = centred if weight is None else centred * weight
    return out if bias is None else out + bias


def cross_entropy(
    logits: Array, target: Any = None, ignore_index: int = -100, reduction: str = "mean"
) -> Array:
    target = np.asarray(target)
    losses, count = np.zeros(target.shape, logits.dtype), 0
    for place in np.ndindex(target.shape):
        row = logits if logits.ndim == 1 else logits[(place[0], slice(None), *place[1:])]
        if target[place] != ignore_index:
            losses[place] = -log_softmax(row)[target[place]]
            count += 1
    if reduction == "none":
        return losses
    with np.errstate(all="ignore"):
        return losses.sum() / np.float64(count) if reduction == "mean" else losses.sum()


def class_loss(
    log_probs: Array,
    weight: Any = None,
    target: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Array:
    """A weighted loss of class numbers, target by target."""
    target = np.asarray(target)
    losses, total = np.zeros(target.shape, log_probs.dtype), np.float64(0)
    for place in np.ndindex(target.shape):
        row = log_probs if log_probs.ndim == 1 else log_probs[(place[0], slice(None), *place[1:])]
        factors = np.ones(len(row)) if weight is None else weight
        if (label := target[place]) != ignore_index:
            losses[place] = -(1 - label_smoothing) * factors[label] * row[label]
            if label_smoothing:
                losses[place] -= label_smoothing * (factors * row).mean()
            total += factors[label]
    if reduction == "none":
        return losses
    with np.errstate(all="ignore"):
        return losses.sum() / total if reduction == "mean" else losses.sum()


def over_classes(function: Callable[..., Array]) -> Callable[..., Array]:
    """A function along the dimension of the classes, before the loss."""

    def loss(logits: Array, *weight: Array, **options: Any) -> Array:
        return class_loss(function(logits, min(1, logits.ndim - 1)), *weight, **options)

    return loss


def soft_cross_entropy(
    logits: Array, target: Array, weight: Any = 1.0, reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Array:  # fmt: skip
    axis = min(1, logits.ndim - 1)
    classes = logits.shape[axis]
    if np.ndim(weight):
        weight = weight.reshape(classes, *(1,) * (logits.ndim - 1 - axis))
    target = target * (1 - label_smoothing) + label_smoothing / classes
    losses = -(weight * target * log_softmax(logits, axis)).sum(axis)
    return {"mean": mean, "sum": sum, "none": lambda x: x}[reduction](losses)


def kl_div(x: Array, y: Array, reduction: str = "mean", log_target: bool = False) -> Array:
    is_zero = real(y) == (-np.inf if log_target else 0)
    x = np.where(is_zero & np.isinf(real(x)), 0, x)  # 0, not 0 * inf
    logs = np.where(is_zero, 0, y) if log_target else np.log(np.where(is_zero, 1, y))
    terms = (np.exp(y) if log_target else y) * (logs - x)
    if reduction == "batchmean":
        return sum(terms) / np.float64(len(x) if x.ndim else 1)
    return {"mean": mean, "sum": sum, "none": lambda x: x}[reduction](terms)


def softplus(z: Array) -> Array:
    small = np.exp(np.where(real(z) >= 0, -z, z))
    rest = np.log(1 + small) if np.iscomplexobj(z) else np.log1p(small)
    return np.where(real(z) >= 0, z, 0) + rest


def binary_cross_entropy(x: Array, y: Array, reduction: str = "mean") -> Array:
    losses = y * softplus(-x) + (1 - y) * softplus(x)
    return {"mean": mean, "sum": sum, "none": lambda x: x}[reduction](losses)


def normalize(x: Array, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Array:
    if p == 1:
        norm = np.where(real(x) < 0, -x, x).sum(dim, keepdims=True)
    else:
        total = (x * x).sum(dim, keepdims=True)
        norm = np.sqrt(np.where(real(total) < eps * eps, eps * eps, total))
    with np.errstate(all="ignore"):
        return x / np.where(real(norm) < eps, eps, norm)


def rms_norm(
    x: Array, weight: Any = 1.0, normalized_shape: tuple[int, ...] = (), eps: float = 0.0
) -> Array:
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    return x / np.sqrt((x * x).mean(axis=axes, keepdims=True) + eps) * weight if x.size else x


def pad(x: Array, pad: tuple[int, ...], value: float = 0) -> Array:
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    sizes = [(0, 0)] * (x.ndim - len(pairs)) + pairs[::-1]
    return np.pad(x, sizes, constant_values=value) if x.ndim else x


def one_hot(ids: Array, num_classes: int = -1) -> Array:
    return np.eye(ids.max() + 1 if num_classes < 0 else num_classes, dtype=np.int64)[ids]


def mse_loss(x: Array, y: Array, reduction: str = "mean") -> Array:
    squares = (x - y) * (x - y)
    return {"mean": mean, "sum": sum, "none": lambda x: x}[reduction](squares)


def recurrent_states(
    x: Array, weight: Array, bias: Array | None, first: Array, kind: str = "RNN"
) -> Array:
    states, state = [], first
    for row in x:
        h = state[0] @ weight.T + (0 if bias is None else bias)
        if kind == "GRU":
            (x_r, x_z, x_n), (h_r, h_z, h_n) = np.split(row, 3, -1), np.split(h, 3, -1)
            r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
            state = np.stack([(1 - z) * np.tanh(x_n + r * h_n) + z * state[0]])
        elif kind == "LSTM":
            i, f, g, o = np.split(row + h, 4, -1)
            c = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(g)
            state = np.stack([sigmoid(o) * np.tanh(c), c])
        else:
            function = np.tanh if kind == "RNN" else lambda z: np.maximum(z, 0)
            state = np.stack([function(row + h)])
        states.append(state)
    return np.stack(states)


def keeps(index: int, seed: int, p: float) -> bool:
    """Whether dropout keeps an element: the hash of its index, in Python's own integers."""
    h = index
    for half in (seed & 0xFFFFFFFF, seed >> 32):
        h ^= half
        h = ((h ^ h >> 16) * 0x21F0AAAD) & 0xFFFFFFFF
        h = ((h ^ h >> 15) * 0x735A2D97) & 0xFFFFFFFF
        h ^= h >> 15
    return h >= round(p * 2**32)


def dropout(x: Array, p: float, seed: int) -> Array:
    kept = np.array([keeps(i, seed, p) for i in range(x.size)], bool).reshape(x.shape)
    return np.where(kept, x / (1 - p), 0) if p < 1 else np.zeros_like(x)


def gather(x: Array, index: Array, dim: int) -> Array:
    shape, x, index = index.shape, np.atleast_1d(x), np.atleast_1d(index)
    out = np.empty(index.shape, x.dtype)
    for place in np.ndindex(index.shape):
        source = list(place)
        source[dim] = index[place]
        out[place] = x[tuple(source)]
    return out.reshape(shape)


def scatter_along(x: Array, index: Array, dim: int, target: tuple[int, ...]) -> Array:
    x, index = np.atleast_1d(x), np.atleast_1d(index)
    out = np.zeros(target or (1,), x.dtype)
    for place in np.ndindex(index.shape):
        to = list(place)
        to[dim] = index[place]
        out[tuple(to)] += x[place]
    return out.reshape(target)


def put(x: Array, index: Any, shape: tuple[int, ...]) -> Array:
    out = np.zeros(shape, x.dtype)
    np.add.at(*numbers_first(out, index), x)
    return out


def at(x: Array, index: Any) -> Array:
    part, index = numbers_first(x, index)
    return part[index]


def numbers_first(x: Array, index: Any) -> tuple[Array, Any]:
    """PyTorch takes the number of x[0, ..., rows] first."""
    mixed = isinstance(index, tuple) and len(index) == 3 and index[1] is Ellipsis
    return (x[index[0]], index[1:]) if mixed else (x, index)


def set_at(x: Array, value: Array, index: Any) -> Array:
    out = x.astype(np.result_type(x, value))
    part, index = numbers_first(out, index)
    part[index] = value
    return out


def torch_set_at(x: Any, value: Any, index: Any) -> Any:
    out = x.clone()
    out[torch_index(index)] = value
    return out


def scatter_rows(grad: Array, ids: Array, num_rows: int, skip: int | None) -> Array:
    table = np.zeros((num_rows, grad.shape[-1]), grad.dtype)
    for place in np.ndindex(ids.shape):
        if ids[place] != skip:
            table[ids[place]] += grad[place]
    return table


def flatten(x: Array, start_dim: int = 0, end_dim: int = -1) -> Array:
    if not x.ndim:
        return x.reshape(1)
    start, end = start_dim % x.ndim, end_dim % x.ndim
    return x.reshape(*x.shape[:start], math.prod(x.shape[start : end + 1]), *x.shape[end + 1 :])


def over_axes(function: Callable[..., Array]) -> Callable[..., Array]:
    """A NumPy reduction over `dim`, as any and all are."""

    def reduction(x: Array, dim: Any = None, keepdim: bool = False) -> Array:
        return function(x, axis=axes_of(x, dim), keepdims=keepdim)

    return reduction


def along_one(function: Callable[..., Array]) -> Callable[..., Array]:
    """argmax and argmin: along one dimension, or in the array laid out flat."""

    def place(x: Array, dim: int | None = None, keepdim: bool = False) -> Array:
        return np.asarray(function(x, axis=dim if x.ndim else None, keepdims=keepdim))

    return place


def split(x: Array, sizes: Any, dim: int = 0) -> tuple[Array, ...]:
    if isinstance(sizes, int):
        sizes = [min(sizes, x.shape[dim] - i) for i in range(0, x.shape[dim], sizes)] or [0]
    return tuple(np.split(x, np.cumsum(sizes)[:-1], axis=dim))


def sequence_mask(x: Array, valid_lens: Any, value: float = 0) -> Array:
    out = x.copy()
    for b, n in enumerate(valid_lens):
        out[b, n:] = value
    return out


def masked_mean(x: Array, valid_lens: Any = None, mask: Any = None) -> Array:
    out = np.zeros((x.shape[0], *x.shape[2:]), x.dtype)
    for b in range(len(x)):
        places = range(x.shape[1] if valid_lens is None else valid_lens[b])
        seen = [i for i in places if mask is None or mask[b][i]]
        if seen:
            out[b] = x[b, seen].sum(axis=0) / len(seen)
    return out


def transpose_qkv(x: Array, num_heads: int) -> Array:
    """Sample after sample, and of each its heads one after the other."""
    width = x.shape[-1] // num_heads
    parts = [x[b, :, h * width : (h + 1) * width] for b in range(len(x)) for h in range(num_heads)]
    return np.stack(parts) if parts else np.zeros((0, x.shape[1], width), x.dtype)


def transpose_output(x: Array, num_heads: int) -> Array:
    samples = [
        np.concatenate(list(x[b : b + num_heads]), axis=-1) for b in range(0, len(x), num_heads)
    ]
    return np.stack(samples) if samples else np.zeros((0, x.shape[1], x.shape[2] * num_heads))


DROPOUT_SEED = 20170612


def seeded_dropout(x: Array, p: float = 0.5, training: bool = True) -> Array:
    seed = int(np.random.Generator(np.random.PCG64(DROPOUT_SEED)).integers(0, 2**63))
    return dropout(x, p, seed) if training and p else x


def pack(x: Array, valid_lens: Any) -> Array:
    rows = [x[b, i] for b, n in enumerate(valid_lens) for i in range(int(n))]
    return np.stack(rows) if rows else np.zeros((0, *x.shape[2:]), x.dtype)


def unpack(x: Array, valid_lens: Any, length: int | None = None) -> Array:
    lens = [int(n) for n in valid_lens]
    out = np.zeros(
        (len(lens), max([*lens, 0]) if length is None else length, *x.shape[1:]), x.dtype
    )
    row = iter(x)
    for b, n in enumerate(lens):
        for i in range(n):
            out[b, i] = next(row)
    return out


def attention_over_rows(
    q: Array, k: Array, v: Array, lengths: Any, limits: Any, mask: Any, scale: float, drop: Any
) -> Array:
    """Each query of each head of each sample by itself.

    Dropout counts the weights as if all samples were padded to the longest.
    """
    out = np.zeros((*q.shape[:2], v.shape[2]), np.result_type(q, k, v))
    longest = [max(numbers, default=0) for numbers in lengths]
    limits = None if limits is None else np.broadcast_to(limits, (len(lengths[0]), longest[0]))
    first_row, first_key = 0, 0
    for b, (queries, keys) in enumerate(zip(*lengths, strict=True)):
        for h, i in np.ndindex(q.shape[1], queries):
            visible = seen_keys(b, h, i, keys, limits, mask, False)
            if visible:
                rows = [first_key + j for j in visible]
                weights = softmax(k[rows, h] @ q[first_row + i, h] * scale)
                if drop.p:
                    first = ((b * q.shape[1] + h) * longest[0] + i) * longest[1]
                    kept = [drop.p < 1 and keeps(first + j, drop.seed, drop.p) for j in visible]
                    weights = np.where(kept, weights / max(1 - drop.p, 1e-9), 0)
                out[first_row + i, h] = weights @ v[rows, h]
        first_row, first_key = first_row + queries, first_key + keys
    return out


# PyTorch is imported when a test asks for it.


def torch_nn() -> Any:
    import torch

    return torch.nn.functional


def as_torch(value: Any) -> Any:
    """An array as a torch tensor of its own memory; anything else as it is."""
    import torch

    return torch.tensor(value) if isinstance(value, (np.ndarray, np.generic)) else value


def torch_index(index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(torch_index(part) for part in index)
    return as_torch(index)


def torch_fn(name: str, **renamed: str) -> Callable[..., Any]:
    """`torch.<name>`, with options renamed where PyTorch calls them otherwise."""

    def call(*inputs: Any, **options: Any) -> Any:
        import torch

        return getattr(torch, name)(*inputs, **{renamed.get(k, k): v for k, v in options.items()})

    return call


def torch_reduce(name: str) -> Callable[..., Any]:
    """A PyTorch reduction; over all dimensions if none is named."""

    def call(x: Any, dim: Any = None, keepdim: bool = False, **options: Any) -> Any:
        dim = tuple(range(x.ndim)) if dim is None else dim
        return getattr(x, name)(dim=dim, keepdim=keepdim, **options)

    return call


def torch_logsumexp(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """With gradient 0 where all is -inf, as of a sum of nothing: PyTorch 2.13 gives NaN."""
    nothing = torch_reduce("sum")(x != -math.inf, dim, True) == 0
    out = torch_reduce("logsumexp")(x.masked_fill(nothing, 0.0), dim, True)
    out = out.masked_fill(nothing, -math.inf)
    return out if keepdim else out.reshape(torch_reduce("sum")(x, dim).shape)


def torch_attention(q: Any, k: Any, v: Any, bias: Any = None, **options: Any) -> Any:
    """PyTorch's attention with the mask, boolean or of numbers, that says the same."""
    import torch

    scale, causal = options.get("scale"), options.get("is_causal", False)
    valid_lens, mask = options.get("valid_lens"), options.get("mask")
    heads, shared = q.ndim == 4, options.get("enable_gqa", False)
    q, k, v = (x if heads else x[:, None] for x in (q, k, v))
    shape = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    seen = np.zeros(shape, bool)
    for b, h, i in np.ndindex(shape[:3]):
        seen[b, h, i, seen_keys(b, h, i, shape[3], valid_lens, mask, causal)] = True
    distance = np.abs(np.arange(shape[2])[:, None] - np.arange(shape[3]))
    seen &= distance < options.get("window", np.inf)
    seen &= over_scores(options.get("attn_mask", True), heads, shape)
    if bias is not None and not heads and bias.ndim > 2:
        bias = bias.unsqueeze(-3)
    if seen.all() and not shared:  # with a mask, or in its attention function, NaN may become 0
        scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
        scores = q @ k.transpose(-1, -2) * scale
        out = (scores if bias is None else scores + bias).softmax(-1) @ v
    else:
        # The backend that has derivatives of second order.
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            visible = torch.tensor(seen)
            if bias is not None:
                visible = torch.where(visible, bias, -math.inf)
            out = torch.nn.functional.scaled_dot_product_attention(
                q, k, v, attn_mask=visible, scale=scale, enable_gqa=shared
            )
    return out if heads else out[:, 0]


def torch_masked_softmax(
    x: Any, valid_lens: Any = None, mask: Any = None, is_causal: bool = False
) -> Any:
    """-inf where a key is hidden; rows with nothing to see are set to 0 afterwards."""
    import torch

    if x.ndim < 3:
        valid_lens, mask = of_one_sample(x.shape, valid_lens, mask)
        batch = x[None] if x.ndim == 2 else x[None, None]
        return torch_masked_softmax(batch, valid_lens, mask, is_causal).reshape(x.shape)
    four = x if x.ndim == 4 else x[:, None]
    seen = np.zeros(four.shape, bool)
    for b, h, i in np.ndindex(tuple(four.shape[:3])):
        seen[b, h, i, seen_keys(b, h, i, x.shape[-1], valid_lens, mask, is_causal)] = True
    weights = four.masked_fill(~torch.tensor(seen), -math.inf).softmax(-1)
    return weights.masked_fill(~torch.tensor(seen.any(-1, keepdims=True)), 0).reshape(x.shape)


def torch_scatter_rows(x: Any, ids: Any, num_rows: int, skip: int | None) -> Any:
    ids, rows = ids.reshape(-1), x.reshape(ids.numel(), x.shape[-1])
    kept = ids >= 0 if skip is None else ids != skip
    return x.new_zeros(num_rows, x.shape[-1]).index_add(0, ids[kept], rows[kept])


def torch_put(x: Any, index: Any, target: tuple[int, ...]) -> Any:
    """Each element is added at its place among all elements."""
    places = at(np.arange(math.prod(target)).reshape(target), index)
    out = x.new_zeros(math.prod(target))
    return out.index_add(0, as_torch(places.flatten()), x.reshape(-1)).reshape(target)


def torch_dropout(kept_of: Callable[..., Any]) -> Callable[..., Any]:
    """PyTorch draws other numbers, so it is told what `kept_of` makes of ones."""

    def call(x: Any, **options: Any) -> Any:
        factors = as_torch(kept_of(np.ones(tuple(x.shape)), **options)).to(x)
        return (x * factors).masked_fill(factors == 0, 0)

    return call


def torch_weighted_sum(weights: Any, values: Any, limits: Any, mask: Any) -> Any:
    seen = torch_index(visible(tuple(weights.shape), limits, mask))
    return weights.masked_fill(~seen, 0) @ values


def torch_rotary_embedding(x: Any, positions: Any = None, base: float = 10000.0) -> Any:
    """A pair of numbers is a complex number, and a product with one of length 1 turns it."""
    import torch

    width = x.shape[-1]
    places = torch.arange(x.shape[-2]) if positions is None else torch.tensor(positions)
    rates = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = places[..., None] * rates
    turns = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(x.double().unflatten(-1, (width // 2, 2)))
    return torch.view_as_real(pairs * turns).flatten(-2).to(x)


def torch_masked_mean(x: Any, valid_lens: Any = None, mask: Any = None) -> Any:
    """The sum of what is seen, divided by how many there are."""
    seen = np.ones((x.shape[0], x.shape[1]), bool) if mask is None else np.array(mask, bool)
    if valid_lens is not None:
        seen = seen & (np.arange(x.shape[1]) < np.reshape(valid_lens, (-1, 1)))
    seen = np.broadcast_to(seen, (x.shape[0], x.shape[1]))
    factors = seen / np.maximum(seen.sum(axis=1, keepdims=True), 1)
    factors = as_torch(factors.reshape(*factors.shape, *(1,) * (x.ndim - 2))).to(x)
    return (x * factors).masked_fill(factors == 0, 0).sum(1)


def torch_pack(x: Any, valid_lens: Any) -> Any:
    return x[torch_index(np.arange(x.shape[1]) < np.reshape(valid_lens, (-1, 1)))]


def torch_unpack(x: Any, valid_lens: Any, length: int | None = None) -> Any:
    import torch

    lens = [int(n) for n in valid_lens]
    length = max([*lens, 0]) if length is None else length
    out = torch.zeros(len(lens), length, *x.shape[1:], dtype=x.dtype)
    index = torch_index(np.arange(length) < np.reshape(lens, (-1, 1)))
    return out.index_put((index,), x)


def torch_attention_over_rows(
    q: Any, k: Any, v: Any, lengths: Any, limits: Any, mask: Any, scale: float, drop: Any
) -> Any:
    """PyTorch's attention of one sample after the other, as it does without packing."""
    import torch

    found = []
    longest = max(lengths[0], default=0)
    limits = None if limits is None else np.broadcast_to(limits, (len(lengths[0]), longest))
    parts = [x.split(list(n)) for x, n in ((q, lengths[0]), (k, lengths[1]), (v, lengths[1]))]
    for b, rows in enumerate(zip(*parts, strict=True)):
        heads = [x.transpose(0, 1)[None] for x in rows]  # (1, H, N, d)
        queries, keys = len(rows[0]), len(rows[1])
        own_limits = None if limits is None else np.minimum(limits[b : b + 1, :queries], keys)
        own_mask = None if mask is None else mask[b % len(mask)][None]
        out = torch_attention(*heads, valid_lens=own_limits, mask=own_mask, scale=scale)
        found.append(out[0].transpose(0, 1))
    return torch.cat(found)
