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
from ..nn.lora import exchange, places_of
from ..ops.products import plus_bias
from ..tensors.tensor import Tensor


class Int8Linear(nn.Module):
    """A Linear for inference: x (numbers * scale)^T + bias, for x (..., in_features).

    numbers (out_features, in_features) are round(weight / scale), and scale (out_features,) is
    max |weight| / 127 over a row; so each weight differs by half a scale at most. Both are buffers.
    x has the dtype of scale, or is float16: then the layer computes in that of scale.
    Raises DtypeError for x of another dtype, and RuntimeError if x requires a gradient.
    """

    numbers: Tensor
    scale: Tensor

    def __init__(self, weight: Tensor, bias: nn.Parameter | None = None) -> None:
        super().__init__()
        if weight.dtype not in (np.float32, np.float64):
            raise DtypeError(
                f"int8 weights are made of float32 or float64, got {weight.dtype}: call .float()"
            )
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
        if x.dtype == np.float16:
            return self.forward(x.to(self.scale.dtype)).to(np.float16)
        if x.dtype != self.scale.dtype:
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
            out = plus_bias(out, self.bias._data.astype(out.dtype, copy=False))
        return wrap(out.reshape(*x.shape[:-1], len(self.scale)))

    def converted_buffer(self, name: str, dtype: np.dtype) -> Tensor:
        """The scale stays as it is in a model of float16, where it would lose digits."""
        return self.scale if dtype == np.float16 else super().converted_buffer(name, dtype)

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
    """Put an Int8Linear in the place of each Linear, and freeze what is left.

    Raises RuntimeError for a model with a LoRA in it, and TypeError for a Linear with a forward of
    its own; nothing is changed then.
    """
    names = {id(module): name for name, module in model.named_modules()}
    if any(isinstance(module, nn.LoRA) for module in model.modules()):
        raise RuntimeError("LoRA has no int8 weights: call nn.LoRA.merge_all(model) first")

    def int8_of(linear: nn.Linear) -> Int8Linear:
        if type(linear).forward is not nn.Linear.forward:
            text = "has a forward() of its own, which int8 weights do not know"
            raise TypeError(f"{names[id(linear)]}: {type(linear).__name__} {text}")
        try:
            return Int8Linear(linear.weight, linear.bias)
        except (ValueError, DtypeError) as error:
            raise type(error)(f"{names[id(linear)]}: {error}") from None

    exchange(places_of(model, nn.Linear), int8_of)
    model.requires_grad_(False).eval()
