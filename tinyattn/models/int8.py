"""Weights of whole numbers from -127 to 127, and one scale a row: a quarter of the bytes."""

from __future__ import annotations

import numpy as np

from .. import nn
from ..base.backend import Array, namespace
from ..engine.autograd import wrap
from ..engine.grad_mode import is_grad_enabled
from ..errors import DtypeError, ShapeError
from ..kernels import with_kernels
from ..kernels.matmul import matrix_product
from ..nn.lora import places_of
from ..ops.products import plus_bias
from ..tensors.tensor import Tensor


class Int8Linear(nn.Module):
    """A Linear for inference: x (numbers * scale)^T + bias, for x (..., in_features).

    numbers (out_features, in_features) are round(weight / scale), and scale (out_features,) is
    max |weight| / 127 over a row; so each weight differs by half a scale at most. Both are buffers.
    Raises DtypeError for x of another dtype than scale, and RuntimeError if x requires a gradient.
    """

    numbers: Tensor
    scale: Tensor

    def __init__(self, weight: Tensor, bias: nn.Parameter | None = None) -> None:
        super().__init__()
        if weight.dtype not in (np.float32, np.float64):
            raise DtypeError(f"int8 weights are made of float32 or float64, got {weight.dtype}")
        array = weight.detach()._data
        xp = namespace(array)
        scale = xp.abs(array).max(1) / 127
        if not xp.isfinite(scale).all():
            raise ValueError("a weight with numbers that are not finite has no int8 numbers")
        numbers = xp.rint(array / xp.where(scale == 0, 1, scale)[:, None])
        numbers = numbers.clip(-127, 127)  # of tiny weights, whose scale is rounded to few digits
        self.register_buffer("numbers", wrap(numbers.astype(np.int8, order="C")))
        self.register_buffer("scale", wrap(scale))
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype != self.scale.dtype or x.dtype == np.float16:
            raise DtypeError(
                "a layer with int8 weights computes in float32 or float64, the dtype of its scale, "
                f"got {x.dtype} and a scale of {self.scale.dtype}"
            )
        if x.shape[-1] != self.numbers.shape[1]:
            raise ShapeError(f"this layer takes (..., {self.numbers.shape[1]}), got {x.shape}")
        if x.requires_grad and is_grad_enabled():
            raise RuntimeError(NOT_TRAINED)
        rows = x._data.reshape(-1, x.shape[-1])
        out = int8_product(rows, self.numbers._data, self.scale._data)
        if self.bias is not None:
            out = plus_bias(out, self.bias._data)
        return wrap(out.reshape(*x.shape[:-1], len(self.scale)))

    def extra_repr(self) -> str:
        outputs, inputs = self.numbers.shape
        return f"{inputs}, {outputs}, bias={self.bias is not None}"


@with_kernels(cpu="few_rows.int8_product")
def int8_product(x: Array, numbers: Array, scale: Array) -> Array:
    """x (N, D) times the transpose of numbers * scale, (E, D) int8 and (E,): (N, E)."""
    return matrix_product(x, numbers.astype(x.dtype).T) * scale


NOT_TRAINED = (
    "a model with int8 weights is for inference, because whole numbers have no gradient: train the "
    "model of floating numbers, and quantize it afterwards"
)


def quantize(model: nn.Module) -> None:
    """Put an Int8Linear in the place of each Linear, and freeze what is left."""
    names = {id(module): name for name, module in model.named_modules()}
    made = []  # all before the first is exchanged, because one may be refused
    for parent, name, linear in places_of(model, nn.Linear):
        try:
            made.append((parent, name, Int8Linear(linear.weight, linear.bias)))
        except ValueError as error:
            raise ValueError(f"{names[id(linear)]}: {error}") from None
    for parent, name, layer in made:
        setattr(parent, name, layer)
    model.requires_grad_(False).eval()
