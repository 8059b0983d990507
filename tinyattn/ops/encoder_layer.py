"""A whole pre-norm Transformer encoder layer as one operation.

`steps` is what it computes, one operation after another. For narrow layers there is a kernel that
does all of it (`kernels/cpu/encoder_layer.py`); `fits` says where. Anywhere else, and in
derivatives of second order, it is the steps that run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from .. import autograd, kernels
from ..backend import Array, is_finite, read_only
from ..errors import DtypeError, ShapeError
from ..graph import Leaf, TensorBase, set_grad_enabled, wrap
from ..kernels import FLOAT32
from ..op import op
from .activation import relu
from .attention import check_heads, check_hiding, check_lengths, self_attention
from .dropout import dropout
from .elementwise import clone
from .linear import linear
from .normalization import layer_norm
from .shape import cat

LANES = 16  # what the widths of layers have to be multiples of, for the kernel
LARGEST = 1 << 16  # numbers in the weights together: with more, BLAS is faster
# Each has a weight, and a bias that may be None.
PARTS = ("norm_1", "W_q", "W_k", "W_v", "W_o", "norm_2", "w_1", "w_2")


class Settings(NamedTuple):
    """What the layer is told besides its arrays; see `encoder_layer`."""

    heads: int
    lengths: Any
    limits: Any
    mask: Any
    eps: tuple[float, ...]
    rates: tuple[float, ...]
    seeds: tuple[int, ...]

    def queries_differ(self) -> bool:
        """Whether some queries of a sample see keys that others do not."""
        return self.mask is not None or (self.limits is not None and self.limits.shape[1] > 1)


def steps(x: Any, parameters: Sequence[Any], settings: Settings, projections: Any = None) -> Any:
    """Of Tensors, or of arrays."""
    norm_1, q, k, v, o, norm_2, w_1, w_2 = zip(parameters[::2], parameters[1::2], strict=True)
    heads, lengths, limits, mask, eps, rates, seeds = settings
    drop_weights, drop_mixed, drop_hidden, drop_out = zip(rates, seeds, strict=True)
    normed = layer_norm(x, *norm_1, eps=eps[0])
    qkv = cat(linear(normed, *q), linear(normed, *k), linear(normed, *v), dim=x.ndim - 1)
    if projections is not None:
        projections.append(qkv)
    p, seed = drop_weights
    mixed = self_attention(
        qkv, heads=heads, lengths=lengths, limits=limits, mask=mask,
        scale=scale_of(qkv.shape[-1] // 3, heads), p=p, seed=seed,
    )  # fmt: skip
    x = x + dropped(linear(mixed, *o), *drop_mixed)
    hidden = dropped(relu(linear(layer_norm(x, *norm_2, eps=eps[1]), *w_1)), *drop_hidden)
    return x + dropped(linear(hidden, *w_2), *drop_out)


def dropped(x: Any, p: float, seed: int) -> Any:
    return dropout(x, p=p, seed=seed) if p else x


def scale_of(wide: int, heads: int) -> float:
    return 1 / math.sqrt(wide // heads)


def check(x: Array, parameters: Sequence[Any], settings: Settings) -> None:
    """All arrays agree in dtype and shape, which the kernel does not look at; or an error."""
    if len(parameters) != 2 * len(PARTS):
        raise TypeError(
            f"encoder_layer takes a weight and a bias of each of {', '.join(PARTS)}, "
            f"{2 * len(PARTS)} in all, got {len(parameters)}"
        )
    missing = [name for name, weight in zip(PARTS, parameters[::2], strict=True) if weight is None]
    if missing:
        raise TypeError(f"encoder_layer needs a weight of {missing[0]}, got None")
    shapes = shapes_of(x, parameters)
    for i, (array, shape) in enumerate(zip(parameters, shapes, strict=True)):
        if array is None or (array.shape == shape and array.dtype == x.dtype):
            continue
        name = f"{PARTS[i // 2]}.{'bias' if i % 2 else 'weight'}"
        if array.shape != shape:
            raise ShapeError(f"with x {x.shape}, {name} must be {shape}, got {array.shape}")
        raise DtypeError(f"x is {x.dtype}, {name} is {array.dtype}: convert one")
    if x.ndim != (3 if settings.lengths is None else 2):
        raise ShapeError(f"encoder_layer takes x (B, N, D), or with lengths (N, D), got {x.shape}")
    heads, lengths, limits, mask, eps, rates, seeds = settings
    check_heads(shapes[2][0], heads)
    batch, length = check_lengths("encoder_layer", lengths, x.shape)
    check_hiding("encoder_layer", batch, heads, length, limits, mask, lengths is not None)
    if (len(eps), len(rates), len(seeds)) != (2, 4, 4):
        raise ValueError(
            f"encoder_layer takes two eps, four rates and four seeds, got {eps}, {rates}, {seeds}"
        )
    for p in rates:
        if not 0 <= p <= 1:
            raise ValueError(f"rates of dropout lie between 0 and 1, got {rates}")


def shapes_of(x: Array, parameters: Sequence[Any]) -> list[tuple[int, ...]]:
    """What the parameters' shapes must be, by the width of x, and of W_q and w_1."""
    width, wide, hidden = x.shape[-1:], parameters[2].shape[:1], parameters[12].shape[:1]
    return [
        width, width, *[wide + width, wide] * 3, width + wide, width, width, width,
        hidden + width, hidden, width + hidden, width,
    ]  # fmt: skip


def fits(x: Array, parameters: Sequence[Any], rates: Sequence[Any]) -> bool:
    """Whether the kernel takes x and these parameters, and is worth it."""
    if type(x) is not np.ndarray or x.dtype is not FLOAT32 or not x.size:
        return False
    for p in rates:
        if type(p) is not float or not 0 <= p < 1:
            return False
    numbers = 0
    for array in parameters:
        if array is None:
            continue
        if type(array) is not np.ndarray or array.dtype is not FLOAT32:
            return False
        numbers += array.size
    widths = (x.shape[-1], len(parameters[2]), len(parameters[12]))
    return (
        numbers <= LARGEST
        and not any(width % LANES for width in widths)
        and all(widths)
        and kernels.jitted() is not None
    )


def loops() -> ModuleType:
    """Where the kernel is, for arrays that fit it."""
    module = kernels.jitted()
    assert module is not None
    return module


@op
def encoder_layer(
    x: Array,
    *parameters: Any,
    heads: int,
    lengths: np.ndarray | None = None,
    limits: Array | None = None,
    mask: Array | None = None,
    eps: tuple[float, float] = (1e-5, 1e-5),
    rates: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0),
    seeds: tuple[int, int, int, int] = (0, 0, 0, 0),
    projections: list[Any] | None = None,
) -> Array:
    """Self-attention and feed-forward network, each behind a norm and beside the residual path:

        y = x + dropout(linear_o(self_attention(linear_qkv(norm_1(x)))))
        y + dropout(linear_2(dropout(relu(linear_1(norm_2(y))))))

    x (B, N, D), or packed (N, D) with lengths (B,) -> the same shape. lengths, limits, mask and
    heads as in `self_attention`.
    parameters: weight and bias of norm_1 (D,), of W_q, W_k and W_v (E, D), of W_o (D, E), of norm_2
        (D,), of w_1 (hidden, D), of w_2 (D, hidden); a bias may be None.
    eps: of the norms. rates and seeds: p and seed of dropout on attention's weights, behind W_o, on
        the hidden layer, behind w_2.
    projections: a list that gets queries, keys and values, side by side (..., 3 E): for who wants
        to see the weights of attention later.
    """
    settings = Settings(heads, lengths, limits, mask, tuple(eps), tuple(rates), tuple(seeds))
    check(x, parameters, settings)
    if fits(x, parameters, rates):
        scale = scale_of(len(parameters[2]), heads)
        out, saved = loops().encoder_layer(x, parameters, settings, scale)
        qkv = saved.qkv.reshape(*x.shape[:-1], -1)
        # A NaN that only some queries see the kernel would not keep from the others.
        if not settings.queries_differ() or is_finite(qkv):
            if projections is not None:
                projections.append(read_only(qkv))
            return out, saved
    return steps(x, parameters, settings, projections), None


@encoder_layer.vjp("x", "parameters")
def _(grad, x, heads, lengths, limits, mask, eps, rates, seeds, saved, *parameters):
    settings = Settings(heads, lengths, limits, mask, tuple(eps), tuple(rates), tuple(seeds))
    if saved is not None:
        scale = scale_of(len(parameters[2]), heads)
        found = loops().encoder_layer_backward(grad, x, parameters, settings, scale, saved)
        # Whatever is not finite on the way reaches x.
        if not settings.queries_differ() or is_finite(found[0]):
            return tuple(found)
    # On Tensors the graph goes on, from copies: what is asked for here is how the output depends on
    # each of them alone, and one may be computed from another.
    graph = isinstance(grad, TensorBase)
    twins: list[Any] = [
        value if value is None else clone(value) if graph else wrap(value, Leaf(value))
        for value in (x, *parameters)
    ]
    with set_grad_enabled(True):
        out = steps(twins[0], twins[1:], settings)
    wanted = [i for i, twin in enumerate(twins) if twin is not None and twin._node is not None]
    derivatives: Any = autograd.grad(
        out, [twins[i] for i in wanted], grad if graph else wrap(grad), create_graph=graph
    )
    gradients: list[Any] = [None] * len(twins)
    for i, derivative in zip(wanted, derivatives, strict=True):
        gradients[i] = derivative if graph else derivative._data
    return tuple(gradients)
