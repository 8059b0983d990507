"""Starting values. Each function fills a Parameter, or a view of one, in place and returns it.

Numbers are drawn in float64 on the CPU and then converted, so that a seed gives the same numbers in
every dtype and on every device.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from ..base.checks import as_array, check_choice, check_type, require_float
from ..base.names import offer, own_names
from ..base.random import generator
from ..engine.autograd import Leaf
from ..engine.grad_mode import no_grad
from ..engine.versions import Version
from ..errors import ShapeError
from ..tensors.operators import check_writable
from ..tensors.tensor import Tensor

is_skipped: ContextVar[bool] = ContextVar("is_skipped", default=False)


@contextmanager
def skipped() -> Iterator[None]:
    """In it, new modules draw no starting values, because those of a file will replace them.

    Parameters then have arbitrary values.
    """
    token = is_skipped.set(True)
    try:
        yield
    finally:
        is_skipped.reset(token)


def unfilled(module: Any) -> dict[int, Tensor]:
    """By id(parameter), a parameter in new memory without values; no entry outside `skipped`."""
    return {id(p): untouched(p) for p in module.parameters()} if is_skipped.get() else {}


def untouched(parameter: Tensor, shape: Any = None) -> Any:
    """A parameter like this one, of this shape if it is given, whose memory nobody has written."""
    twin = object.__new__(type(parameter))
    size = parameter.shape if shape is None else shape
    twin._data, twin._version = np.empty(size, parameter.dtype), Version()
    twin._node, twin._view = None if parameter._node is None else Leaf(twin._data), None
    return twin


def checked(tensor: Tensor) -> Tensor:
    """A Tensor of floats, or an error."""
    check_type("a Tensor is initialized", tensor, Tensor)
    require_float(tensor.dtype, "a starting value")
    return tensor


def fill(tensor: Tensor, values: np.ndarray | float) -> Tensor:
    """Write the values into the memory of `tensor`, in its dtype and on its device."""
    array = as_array(values, tensor.dtype, tensor.device)
    with no_grad():
        check_writable(tensor)
    tensor._version.begin_change()
    tensor._data[...] = array
    tensor._version.end_change()
    return tensor


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    """U(a, b)."""
    if is_skipped.get():
        return tensor
    return fill(tensor, generator().uniform(a, b, checked(tensor).shape))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """N(mean, std^2)."""
    if is_skipped.get():
        return tensor
    return fill(tensor, mean + std * generator().standard_normal(checked(tensor).shape))


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Every element is `val`."""
    return fill(tensor, np.full(checked(tensor).shape, float(val)))


def zeros_(tensor: Tensor) -> Tensor:
    """Every element is 0."""
    return constant_(tensor, 0.0)


def ones_(tensor: Tensor) -> Tensor:
    """Every element is 1."""
    return constant_(tensor, 1.0)


def fans(tensor: Tensor) -> tuple[int, int]:
    """The numbers of inputs and outputs of a weight (out, in, ...), as PyTorch counts them."""
    if checked(tensor).ndim < 2:
        raise ShapeError(f"a weight has at least two dimensions (out, in), got {tensor.shape}")
    outputs, inputs, *window = tensor.shape
    return inputs * math.prod(window), outputs * math.prod(window)


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """U(-a, a) with a = gain sqrt(6 / (in + out)): Glorot and Bengio, 2010."""
    bound = gain * math.sqrt(6 / sum(fans(tensor)))
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Normal with the deviation gain sqrt(2 / (in + out)): Glorot and Bengio, 2010."""
    return normal_(tensor, 0.0, gain * math.sqrt(2 / sum(fans(tensor))))


def calculate_gain(nonlinearity: str, param: float = 0.01) -> float:
    """The gain that goes with an activation; `param` is the slope of leaky_relu."""
    gains = {"relu": 2**0.5, "leaky_relu": math.sqrt(2 / (1 + param * param)), "tanh": 5 / 3}
    gains |= {"linear": 1.0, "sigmoid": 1.0, "selu": 0.75}
    return gains[check_choice("nonlinearity", nonlinearity, *gains)]


def kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    check_choice("mode", mode, "fan_in", "fan_out")
    return calculate_gain(nonlinearity, a) / math.sqrt(max(fans(tensor)[mode == "fan_out"], 1))


def kaiming_uniform_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """U(-b, b) with b = gain sqrt(3 / in), or out with mode="fan_out": He et al., 2015.

    The gain is that of `calculate_gain`, and `a` the slope of leaky_relu.
    """
    bound = math.sqrt(3) * kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound)


def kaiming_normal_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """Normal with the deviation gain / sqrt(in), or out; see kaiming_uniform_."""
    return normal_(tensor, 0.0, kaiming_std(tensor, a, mode, nonlinearity))


def linear_default_(weight: Tensor, bias: Tensor | None) -> None:
    """PyTorch's default for Linear: U(-a, a) with a = 1 / sqrt(in), for weight and bias."""
    bound = 1 / math.sqrt(max(fans(weight)[0], 1))
    uniform_(weight, -bound, bound)
    if bias is not None:
        uniform_(bias, -bound, bound)


offer(globals(), "nn.init", sorted(own_names(globals())))
