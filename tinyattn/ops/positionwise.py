"""What an encoder layer does to each position by itself, as two operations.

    norm_linear              before attention: the norm, and the projections to q, k and v
    add_norm_feed_forward    after it: the rest of its sublayer, and the feed-forward sublayer

`steps` is what they compute, one operation after another. For narrow layers there is a kernel that
does all of it (`kernels/cpu/positionwise.py`); `fits` says where. Anywhere else, and in derivatives
of second order, it is the steps that run.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from .. import autograd, kernels
from ..backend import Array
from ..errors import DtypeError, ShapeError
from ..graph import Leaf, TensorBase, set_grad_enabled, wrap
from ..kernels import FLOAT32
from ..op import op
from .activation import relu
from .dropout import dropout
from .elementwise import clone
from .linear import linear
from .normalization import layer_norm

LANES = 16  # what the widths of layers have to be multiples of, for the kernel
LARGEST = 1 << 16  # numbers in the weights together: with more, BLAS is faster
NOTHING = {"rates": (0.0, 0.0, 0.0), "seeds": (0, 0, 0)}  # is dropped


def steps(x: Any, heads: Any, parameters: Sequence[Any], eps: float, rates: Any, seeds: Any) -> Any:
    """Of Tensors, or of arrays; heads is attention's output, or None before attention.

    parameters: weight and bias of the linear layer after attention, of the norm, of the layer into
    the hidden units, of the one out of them. rates and seeds: of the three dropouts, in order.
    """
    weight_o, bias_o, norm_weight, norm_bias, weight_1, bias_1, weight_2, bias_2 = parameters
    if heads is None:
        return linear(layer_norm(x, norm_weight, norm_bias, eps=eps), weight_1, bias_1)
    drop_after, drop_hidden, drop_out = zip(rates, seeds, strict=True)
    x = x + dropped(linear(heads, weight_o, bias_o), *drop_after)
    ahead = linear(layer_norm(x, norm_weight, norm_bias, eps=eps), weight_1, bias_1)
    hidden = dropped(relu(ahead), *drop_hidden)
    return x + dropped(linear(hidden, weight_2, bias_2), *drop_out)


def dropped(x: Any, p: float, seed: int) -> Any:
    return dropout(x, p=p, seed=seed) if p else x


def fits(x: Array, arrays: Sequence[Any], rates: Sequence[float]) -> bool:
    """Whether the kernel takes rows of x with these weights and biases, and is worth it."""
    if type(x) is not np.ndarray or x.dtype is not FLOAT32 or not x.size:
        return False
    for p in rates:
        if type(p) is not float or not 0 <= p < 1:
            return False
    numbers = 0
    for array in arrays:
        if array is None:
            continue
        if type(array) is not np.ndarray or array.dtype is not FLOAT32:
            return False
        for width in array.shape:
            if width % LANES or not width:
                return False
        numbers += array.size
    return numbers <= LARGEST and kernels.jitted() is not None


def check(x: Array, heads: Any, parameters: Sequence[Any]) -> None:
    """All arrays agree in dtype and shape, which the kernel does not look at; or an error."""
    weight_o, bias_o, norm_weight, norm_bias, weight_1, bias_1, weight_2, bias_2 = parameters
    width, hidden = x.shape[-1:], weight_1.shape[:1]
    wanted = [
        ("the norm's weight", norm_weight, width), ("the norm's bias", norm_bias, width),
        ("weight", weight_1, hidden + width), ("bias", bias_1, hidden),
    ]  # fmt: skip
    if heads is not None:
        wanted += [
            ("heads", heads, x.shape[:-1] + heads.shape[-1:]),
            ("weight_o", weight_o, width + heads.shape[-1:]), ("bias_o", bias_o, width),
            ("weight_2", weight_2, width + hidden), ("bias_2", bias_2, width),
        ]  # fmt: skip
    for name, array, shape in wanted:
        if array is None:
            continue
        if array.shape != shape:
            raise ShapeError(f"with x {x.shape}, {name} must be {shape}, got {array.shape}")
        if array.dtype is not x.dtype and array.dtype != x.dtype:
            raise DtypeError(f"x is {x.dtype}, {name} is {array.dtype}: convert one")


def loops() -> ModuleType:
    """Where the kernel is, for arrays that fit it."""
    module = kernels.jitted()
    assert module is not None
    return module


def run(
    x: Array, heads: Any, parameters: Sequence[Any], eps: float, rates: Any, seeds: Any
) -> tuple[Array, Any]:
    """The output, and what the kernel kept for backward: nothing where the steps ran."""
    check(x, heads, parameters)
    if (heads is None or type(heads) is type(x)) and fits(x, parameters, rates):
        return loops().positionwise(x, heads, parameters, eps, rates, seeds)
    return steps(x, heads, parameters, eps, rates, seeds), None


def run_backward(
    grad: Any, x: Any, heads: Any, parameters: Sequence[Any], saved: Any, **settings: Any
) -> tuple[Any, ...]:
    """Gradients of x, heads and the parameters."""
    if saved is not None:
        return loops().positionwise_backward(grad, x, heads, parameters, saved=saved, **settings)
    # On Tensors the graph goes on: from copies, since heads were computed from x, and what is asked
    # for here is how the output depends on each of them alone.
    graph = isinstance(grad, TensorBase)
    twins: list[Any] = [
        value if value is None else clone(value) if graph else wrap(value, Leaf(value))
        for value in (x, heads, *parameters)
    ]
    with set_grad_enabled(True):
        out = steps(twins[0], twins[1], twins[2:], **settings)
    wanted = [i for i, twin in enumerate(twins) if twin is not None and twin._node is not None]
    found: Any = autograd.grad(
        out, [twins[i] for i in wanted], grad if graph else wrap(grad), create_graph=graph
    )
    gradients: list[Any] = [None] * len(twins)
    for i, gradient in zip(wanted, found, strict=True):
        gradients[i] = gradient if graph else gradient._data
    return tuple(gradients)


@op
def norm_linear(
    x: Array,
    norm_weight: Array,
    norm_bias: Array | None,
    weight: Array,
    bias: Array | None,
    *,
    eps: float,
) -> Array:
    """linear(layer_norm(x)): x (..., D), norm_weight and norm_bias (D,), weight (out, D), bias
    (out,) -> (..., out). The biases may be None."""
    parameters = (None, None, norm_weight, norm_bias, weight, bias, None, None)
    return run(x, None, parameters, eps, **NOTHING)


@norm_linear.vjp("x", "norm_weight", "norm_bias", "weight", "bias")
def _(grad, x, norm_weight, norm_bias, weight, bias, eps, saved):
    parameters = (None, None, norm_weight, norm_bias, weight, bias, None, None)
    found = run_backward(grad, x, None, parameters, saved, eps=eps, **NOTHING)
    return found[0], *found[4:8]


@op
def add_norm_feed_forward(
    x: Array,
    heads: Array,
    weight_o: Array,
    bias_o: Array | None,
    norm_weight: Array,
    norm_bias: Array | None,
    weight_1: Array,
    bias_1: Array | None,
    weight_2: Array,
    bias_2: Array | None,
    *,
    eps: float,
    rates: tuple[float, float, float] = (0.0, 0.0, 0.0),
    seeds: tuple[int, int, int] = (0, 0, 0),
) -> Array:
    """From attention's output, heads (..., E), to the end of a pre-norm encoder layer, x (..., D):

        y = x + dropout(linear_o(heads))
        y + dropout(linear_2(dropout(relu(linear_1(layer_norm(y))))))

    weight_o (D, E), weight_1 (hidden, D), weight_2 (D, hidden) -> (..., D). Biases may be None.
    rates and seeds: p and seed of the dropouts, in order.
    """
    parameters = (
        weight_o, bias_o, norm_weight, norm_bias, weight_1, bias_1, weight_2, bias_2
    )  # fmt: skip
    return run(x, heads, parameters, eps, tuple(rates), tuple(seeds))


@add_norm_feed_forward.vjp(
    "x", "heads", "weight_o", "bias_o", "norm_weight", "norm_bias", "weight_1", "bias_1",
    "weight_2", "bias_2",
)  # fmt: skip
def _(
    grad, x, heads, weight_o, bias_o, norm_weight, norm_bias, weight_1, bias_1, weight_2, bias_2,
    eps, rates, seeds, saved,
):  # fmt: skip
    parameters = (
        weight_o, bias_o, norm_weight, norm_bias, weight_1, bias_1, weight_2, bias_2
    )  # fmt: skip
    settings = {"eps": eps, "rates": tuple(rates), "seeds": tuple(seeds)}
    return run_backward(grad, x, heads, parameters, saved, **settings)
