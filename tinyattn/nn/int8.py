"""Weights of whole numbers from -127 to 127, and one scale a row: a quarter of the bytes."""

import numpy as np

from ..base.backend import namespace
from ..engine.autograd import wrap
from ..errors import DtypeError
from ..ops.products import int8_linear
from ..tensors.tensor import Tensor
from .module import Module, Parameter


class Int8Linear(Module):
    """A Linear whose weight does not learn: x (numbers * scale)^T + bias, for x (..., in_features).

    numbers (out_features, in_features) are round(weight / scale), and scale (out_features,) is
    max |weight| / 127 over a row; so each weight differs by half a scale at most. Both are buffers.
    x has the dtype of scale, or is float16: then the layer computes in that of scale.
    The gradient of x goes through it, so what stands before it or beside it, as in a LoRA, learns.
    Raises DtypeError for x of another dtype.
    """

    numbers: Tensor
    scale: Tensor

    def __init__(self, weight: Tensor, bias: Parameter | None = None) -> None:
        super().__init__()
        if weight.dtype not in (np.float32, np.float64):
            raise DtypeError(f"int8 takes float32 or float64, got {weight.dtype}: call .float()")
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

    in_features = property(lambda layer: layer.numbers.shape[1])
    out_features = property(lambda layer: layer.numbers.shape[0])

    def forward(self, input: Tensor) -> Tensor:
        if input.dtype == np.float16:
            return self.forward(input.to(self.scale.dtype)).to(np.float16)
        if input.dtype != self.scale.dtype:
            raise DtypeError(
                "a layer with int8 weights computes in float32 or float64, the dtype of its scale, "
                f"got {input.dtype} and a scale of {self.scale.dtype}"
            )
        out = int8_linear(input, self.numbers, self.scale)
        return out if self.bias is None else out + self.bias

    def converted_buffer(self, name: str, dtype: np.dtype) -> Tensor:
        """The scale stays as it is in a model of float16, where it would lose digits."""
        return self.scale if dtype == np.float16 else super().converted_buffer(name, dtype)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"
