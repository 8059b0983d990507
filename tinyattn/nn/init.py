"""Starting values. Each function fills a Parameter in place and returns it.

Numbers are drawn in float64 on the CPU and then converted, so that a seed gives the same numbers in
every dtype and on every device.
"""

from __future__ import annotations

import math

from ..backend import to_device
from ..errors import ShapeError
from ..random import generator
from ..tensor import Tensor


def fill(tensor: Tensor, values: object) -> Tensor:
    """The values, in the dtype and on the device of `tensor`."""
    tensor.data = to_device(values.astype(tensor.dtype), tensor.device)  # type: ignore[attr-defined]
    return tensor


def uniform_(tensor: Tensor, low: float, high: float) -> Tensor:
    return fill(tensor, generator().uniform(low, high, tensor.shape))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    return fill(tensor, mean + std * generator().standard_normal(tensor.shape))


def fans(tensor: Tensor) -> tuple[int, int]:
    """The numbers of inputs and outputs of a weight (out, in, ...), as PyTorch counts them."""
    if tensor.ndim < 2:
        raise ShapeError(f"a weight has at least two dimensions (out, in), got {tensor.shape}")
    outputs, inputs, *window = tensor.shape
    return inputs * math.prod(window), outputs * math.prod(window)


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """U(-a, a) with a = gain sqrt(6 / (in + out)): Glorot and Bengio, 2010."""
    bound = gain * math.sqrt(6 / sum(fans(tensor)))
    return uniform_(tensor, -bound, bound)


def linear_default_(weight: Tensor, bias: Tensor | None) -> None:
    """PyTorch's default for Linear: U(-a, a) with a = 1 / sqrt(in), for weight and bias."""
    bound = 1 / math.sqrt(max(fans(weight)[0], 1))
    uniform_(weight, -bound, bound)
    if bias is not None:
        uniform_(bias, -bound, bound)
