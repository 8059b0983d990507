"""Functions of the windows of a sequence or an image: convolutions and pooling.

x is (B, C, L) or (B, C, H, W); without B it is one sample. All windows become one tensor, and one
product or one reduction follows. So every gradient is that of other functions.
"""

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ... import functional as F
from ...base.checks import check_size
from ...errors import ShapeError
from ...ops.arguments import float_tensor
from ...tensors.tensor import Tensor

__all__ = ["adaptive_avg_pool1d", "adaptive_avg_pool2d", "avg_pool1d", "avg_pool2d", "conv1d"]
__all__ += ["conv2d", "max_pool1d", "max_pool2d"]


def for_dims(dims: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of one dimension or of two behind the channels: conv1d and conv2d of conv."""
    name = f"{function.__name__}{dims}d"

    @wraps(function)
    def call(input: Tensor, *args: Any, **options: Any) -> Tensor:
        if float_tensor(input, "input").ndim not in (dims + 1, dims + 2):
            shape = ("(B, C, L) or (C, L)", "(B, C, H, W) or (C, H, W)")[dims - 1]
            raise ShapeError(f"{name} takes an input {shape}, got {input.shape}")
        if input.ndim == dims + 2:
            return function(input, *args, **options)
        return function(input.unsqueeze(0), *args, **options)[0]

    call.__name__ = call.__qualname__ = name
    return call


def sizes_of(name: str, value: Any, dims: int, least: int = 1) -> tuple[int, ...]:
    """A size for each dimension behind the channels, from one number or from as many."""
    sizes = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    sizes = sizes * dims if len(sizes) == 1 else sizes
    if len(sizes) != dims:
        raise ShapeError(f"{name} is one number or {dims}, got {value}")
    return tuple(check_size(name, n, least) for n in sizes)


def windows(x: Tensor, size: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Any:
    """(B, C, *S) -> (B, C, *O, *K): the K elements that each of O windows sees.

    A view where the windows lie side by side, as the patches of a vision transformer do.
    """
    dims, shape = len(size), x.shape[2:]
    reach = [d * (k - 1) + 1 for k, d in zip(size, dilation, strict=True)]
    count = [(n - r) // s + 1 for n, r, s in zip(shape, reach, stride, strict=True)]
    if min(count) < 1:
        raise ShapeError(f"a window of {tuple(reach)} is larger than the padded input {shape}")
    fits = [o * k for o, k in zip(count, size, strict=True)] == list(shape)
    if fits and list(stride) == list(size):
        pairs = [n for pair in zip(count, size, strict=True) for n in pair]
        order = (*range(2, 2 + 2 * dims, 2), *range(3, 3 + 2 * dims, 2))
        return x.reshape(*x.shape[:2], *pairs).permute(0, 1, *order)
    # Of each element in the row of all elements of a channel: (*O, *K).
    places = sliding_window_view(np.arange(math.prod(shape)).reshape(shape), reach)
    places = places[tuple(slice(None, None, step) for step in (*stride, *dilation))]
    return x.flatten(2)[:, :, places.reshape(-1)].reshape(*x.shape[:2], *places.shape)


def padded(x: Tensor, before: Sequence[int], after: Sequence[int], value: float = 0.0) -> Tensor:
    """x with `value` before and after each dimension behind the channels."""
    pads = [n for pair in zip(reversed(before), reversed(after), strict=True) for n in pair]
    return F.pad(x, pads, value=value) if any(pads) else x


def conv(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """Each window times a weight (out, C / groups, *K), plus a bias: (B, C, *S) -> (B, out, *O).

    padding: zeros on both sides; "same" for an output of the size of the input, "valid" for none.
    groups: the parts into which channels are divided; each part of the outputs sees one of them.
    """
    size, out, dims = weight.shape[2:], len(weight), input.ndim - 2
    if len(size) != dims or input.shape[1] != weight.shape[1] * groups or out % groups:
        raise ShapeError(
            f"{groups} groups of a weight (out, C / groups, *K) {weight.shape} do not fit an input "
            f"(B, C, ...) {input.shape}"
        )
    steps, dilations = sizes_of("stride", stride, dims), sizes_of("dilation", dilation, dims)
    around = [d * (k - 1) for k, d in zip(size, dilations, strict=True)]
    if padding != "same":
        border = sizes_of("padding", 0 if padding == "valid" else padding, dims, 0)
        around = [2 * n for n in border]
    elif max(steps) > 1:
        raise ValueError(f'padding="same" goes with stride 1, got {stride}')
    x = padded(input, [n // 2 for n in around], [n - n // 2 for n in around])
    found = windows(x, size, steps, dilations)
    shape = found.shape[2 : 2 + dims]
    # (groups, B O, C / groups K) times (groups, C / groups K, out / groups)
    found = found.reshape(len(x), groups, weight.shape[1], math.prod(shape), math.prod(size))
    found = found.permute(1, 0, 3, 2, 4).reshape(groups, -1, math.prod(weight.shape[1:]))
    product = found @ weight.reshape(groups, out // groups, -1).mT
    product = product.reshape(groups, len(x), math.prod(shape), out // groups)
    product = product.permute(1, 0, 3, 2).reshape(len(x), out, *shape).contiguous()
    return product if bias is None else product + bias.reshape(-1, *[1] * dims)


def seen(x, size, stride, padding, dilation, value):
    """(B, C, *O, K): the elements of each window of a pool; `value` stands around x."""
    dims = x.ndim - 2
    sizes, border = sizes_of("kernel_size", size, dims), sizes_of("padding", padding, dims, 0)
    if any(2 * n > k for n, k in zip(border, sizes, strict=True)):
        raise ShapeError(f"padding is at most half of the window {sizes}, got {padding}")
    steps = sizes if stride is None else sizes_of("stride", stride, dims)
    around = padded(x, border, border, value)
    return windows(around, sizes, steps, sizes_of("dilation", dilation, dims)).flatten(2 + dims)


def max_pool(
    input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False
):
    """The largest element of each window; windows lie side by side without a stride.

    Raises ValueError for ceil_mode and return_indices.
    """
    if ceil_mode or return_indices:
        raise ValueError("max pooling takes ceil_mode=False and return_indices=False")
    return seen(input, kernel_size, stride, padding, dilation, -math.inf).max(-1).values


def avg_pool(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
    """The mean of each window; zeros around the input count.

    Raises ValueError for ceil_mode, and for count_include_pad=False with padding.
    """
    if ceil_mode or (np.any(padding) and not count_include_pad):
        raise ValueError("average pooling takes ceil_mode=False and count_include_pad=True")
    return seen(input, kernel_size, stride, padding, 1, 0.0).mean(-1)


def adaptive_avg_pool(input, output_size):
    """The means of windows of one size, `output_size` of them; None keeps a size.

    Raises ShapeError for an input whose sizes are no multiples of them.
    """
    shape = input.shape[2:]
    given = [*output_size] if isinstance(output_size, (tuple, list)) else [output_size]
    sizes_of("output_size", [1 if size is None else size for size in given], len(shape))
    sizes = [n if k is None else k for n, k in zip(shape, given * len(shape), strict=False)]
    if any(n % size for n, size in zip(shape, sizes, strict=True)):
        raise ShapeError(f"adaptive_avg_pool takes a multiple of {tuple(sizes)}, got {shape}")
    return avg_pool(input, [n // size for n, size in zip(shape, sizes, strict=True)])


conv1d, conv2d = for_dims(1, conv), for_dims(2, conv)
max_pool1d, max_pool2d = for_dims(1, max_pool), for_dims(2, max_pool)
avg_pool1d, avg_pool2d = for_dims(1, avg_pool), for_dims(2, avg_pool)
adaptive_avg_pool1d = for_dims(1, adaptive_avg_pool)
adaptive_avg_pool2d = for_dims(2, adaptive_avg_pool)
