"""Functions of the windows of a sequence or an image: convolutions, pooling, unfold.

x is (B, C, L) or (B, C, H, W); without B it is one sample. All windows become one tensor, and one
product or one reduction follows. So every gradient is that of other functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from ... import functional as F
from ...errors import ShapeError
from ...ops.arguments import float_tensor
from ...tensors.create import ones_like
from ...tensors.tensor import Tensor

__all__ = """adaptive_avg_pool1d adaptive_avg_pool2d avg_pool1d avg_pool2d conv1d conv2d max_pool1d
    max_pool2d unfold""".split()  # noqa: SIM905
Sizes = int | Sequence[int]


def for_dims(dims: int, name: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function of one dimension or of two behind the channels: conv1d and conv2d of conv."""

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


def sizes_of(name: str, value: Any, x: Tensor, least: int = 0) -> tuple[int, ...]:
    """A size for each dimension of x behind the channels, from one number or from as many."""
    dims = x.ndim - 2
    sizes = (value,) * dims if isinstance(value, (int, np.integer)) else tuple(value)
    sizes = sizes * dims if len(sizes) == 1 else sizes
    if len(sizes) != dims or not all(
        isinstance(n, (int, np.integer)) and n >= least for n in sizes
    ):
        raise ShapeError(f"{name} is an integer >= {least}, or {dims} of them, got {value!r}")
    return sizes


def padded(x: Tensor, before: Sequence[int], after: Sequence[int], value: float = 0.0) -> Tensor:
    """x with `value` before and after each dimension behind the channels."""
    pads = [n for pair in zip(reversed(before), reversed(after), strict=True) for n in pair]
    return F.pad(x, pads, value=value) if any(pads) else x


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
    if fits and list(stride) == list(size) == reach:
        pairs = [n for pair in zip(count, size, strict=True) for n in pair]
        order = (*range(2, 2 + 2 * dims, 2), *range(3, 3 + 2 * dims, 2))
        return x.reshape(*x.shape[:2], *pairs).permute(0, 1, *order)
    places: Any = 0  # of each element in the row of all elements of a channel: (*O, *K)
    for i, n in enumerate(shape):
        inside = np.arange(count[i])[:, None] * stride[i] + np.arange(size[i]) * dilation[i]
        ones = [1] * 2 * dims
        ones[i], ones[dims + i] = inside.shape
        places = places * n + inside.reshape(ones)
    return x.flatten(2)[:, :, places.reshape(-1)].reshape(*x.shape[:2], *places.shape)


def conv(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Each window times a weight (out, C / groups, *K), plus a bias: (B, C, *S) -> (B, out, *O).

    padding: zeros on both sides; "same" for an output of the size of the input, "valid" for none.
    groups: the parts into which channels are divided; each part of the outputs sees one of them.
    """
    size, out = weight.shape[2:], len(weight)
    fits = len(size) == input.ndim - 2 and input.shape[1] == weight.shape[1] * groups
    if not fits or out % groups:
        raise ShapeError(
            f"{groups} groups of a weight (out, C / groups, *K) {weight.shape} do not fit an input "
            f"(B, C, ...) {input.shape}"
        )
    steps = sizes_of("stride", stride, input, 1)
    dilations = sizes_of("dilation", dilation, input, 1)
    if padding == "same":
        if max(steps) > 1:
            raise ValueError(f'padding="same" goes with stride 1, got {stride}')
        around = [d * (k - 1) for k, d in zip(size, dilations, strict=True)]
        x = padded(input, [n // 2 for n in around], [n - n // 2 for n in around])
    else:
        border = sizes_of("padding", 0 if padding == "valid" else padding, input)
        x = padded(input, border, border)
    found = windows(x, size, steps, dilations)
    samples, shape = len(x), found.shape[2 : input.ndim]
    # (groups, B O, C / groups K) times (groups, C / groups K, out / groups)
    found = found.reshape(samples, groups, weight.shape[1], math.prod(shape), math.prod(size))
    found = found.permute(1, 0, 3, 2, 4).reshape(groups, samples * math.prod(shape), -1)
    product = found @ weight.reshape(groups, out // groups, -1).mT
    product = product.reshape(groups, samples, math.prod(shape), -1).permute(1, 0, 3, 2)
    product = product.reshape(samples, out, *shape)
    return product if bias is None else product + bias.reshape(-1, *[1] * len(shape))


def seen(
    x: Tensor, size: Sizes, stride: Sizes | None, padding: Sizes, dilation: Sizes, value: float
) -> Tensor:
    """(B, C, *O, K): the elements of each window of a pool; `value` stands around x."""
    sizes, border = sizes_of("kernel_size", size, x, 1), sizes_of("padding", padding, x)
    if any(2 * n > k for n, k in zip(border, sizes, strict=True)):
        raise ShapeError(f"padding is at most half of the window {sizes}, got {padding}")
    steps = sizes if stride is None or stride == [] else sizes_of("stride", stride, x, 1)
    around = padded(x, border, border, value)
    found = windows(around, sizes, steps, sizes_of("dilation", dilation, x, 1))
    return found.flatten(x.ndim)


def refuse(**options: bool) -> None:
    for name, value in options.items():
        if value:
            raise ValueError(f"a pool has no {name}=True here")


def max_pool(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """The largest element of each window; windows lie side by side without a stride.

    Raises ValueError for ceil_mode and return_indices.
    """
    refuse(ceil_mode=ceil_mode, return_indices=return_indices)
    return seen(input, kernel_size, stride, padding, dilation, -math.inf).max(-1).values


def avg_pool(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window; zeros around the input count, if count_include_pad.

    Raises ValueError for ceil_mode.
    """
    refuse(ceil_mode=ceil_mode)
    mean = seen(input, kernel_size, stride, padding, 1, 0.0).mean(-1)
    if count_include_pad:
        return mean
    return mean / seen(ones_like(input), kernel_size, stride, padding, 1, 0.0).mean(-1)


def adaptive_avg_pool(input: Tensor, output_size: int | Sequence[int | None]) -> Tensor:
    """Means of windows that are as equal as they can be, `output_size` of them; None keeps a size.

    In tinyattn: write x.mean(dim), for an output_size of 1
    """
    dims = input.ndim - 2
    sizes = [output_size] * dims if isinstance(output_size, int) else list(output_size)
    given = [input.shape[2 + i] if size is None else size for i, size in enumerate(sizes)]
    out: Any = input
    for i, size in enumerate(sizes_of("output_size", given, input, 1)):
        n = out.shape[2 + i]
        starts, ends = np.arange(size) * n // size, -(-(np.arange(size) + 1) * n // size)
        inside = (starts[:, None] <= np.arange(n)) & (np.arange(n) < ends[:, None])
        means = Tensor(inside / (ends - starts)[:, None], out.dtype, out.device)
        out = (out.transpose(2 + i, -1) @ means.mT).transpose(2 + i, -1)
    return out


def columns(
    input: Tensor, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1
) -> Tensor:
    """The windows of an image as columns: (B, C, H, W) -> (B, C K, O)."""
    border = sizes_of("padding", padding, input)
    found = windows(
        padded(input, border, border),
        sizes_of("kernel_size", kernel_size, input, 1),
        sizes_of("stride", stride, input, 1),
        sizes_of("dilation", dilation, input, 1),
    )
    found = found.permute(0, 1, 4, 5, 2, 3)
    return found.reshape(len(found), math.prod(found.shape[1:4]), -1)


conv1d = for_dims(1, "conv1d", conv)
conv2d = for_dims(2, "conv2d", conv)
max_pool1d = for_dims(1, "max_pool1d", max_pool)
max_pool2d = for_dims(2, "max_pool2d", max_pool)
avg_pool1d = for_dims(1, "avg_pool1d", avg_pool)
avg_pool2d = for_dims(2, "avg_pool2d", avg_pool)
adaptive_avg_pool1d = for_dims(1, "adaptive_avg_pool1d", adaptive_avg_pool)
adaptive_avg_pool2d = for_dims(2, "adaptive_avg_pool2d", adaptive_avg_pool)
unfold = for_dims(2, "unfold", columns)
