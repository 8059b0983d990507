"""The fifth part of Tensor: functions of each element by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeVar

from .. import ops
from ..base.checks import as_array, check_clamp, check_masked_fill
from ..engine.autograd import TensorBase, wrap
from .operators import Operators
from .types import Operand
from .values import array_of


AnyTensor = TypeVar("AnyTensor", bound=TensorBase)


def of_elements(op: Any) -> Callable[[AnyTensor], AnyTensor]:
    """The op as a method, with its type for type checkers."""
    return op


class Elementwise(Operators):
    """Functions of each element."""

    __slots__ = ()

    # The ops themselves: `x.exp()` is `ops.exp(x)`.
    exp = of_elements(ops.exp)
    expm1 = of_elements(ops.expm1)
    log = of_elements(ops.log)
    log1p = of_elements(ops.log1p)
    sqrt = of_elements(ops.sqrt)
    sin = of_elements(ops.sin)
    cos = of_elements(ops.cos)
    tanh = of_elements(ops.tanh)
    sigmoid = of_elements(ops.sigmoid)
    relu = of_elements(ops.relu)
    erf = of_elements(ops.erf)
    abs = of_elements(ops.abs)
    sign = of_elements(ops.sign)
    isnan = of_elements(ops.isnan)
    isfinite = of_elements(ops.isfinite)
    clone = of_elements(ops.clone)

    def pow(self, exponent: Operand) -> Self:
        """x to the power of the exponent, element by element."""
        return ops.pow(self, exponent)

    def remainder(self, other: Operand) -> Self:
        """x - y floor(x / y), with the sign of y, as % in Python."""
        return ops.remainder(self, other)

    # Without a derivative of their own: recorded as the ops that they call

    def square(self) -> Self:
        """x * x."""
        return self * self

    def rsqrt(self) -> Self:
        """1 / sqrt(x)."""
        return 1 / self.sqrt()

    def reciprocal(self) -> Self:
        """1 / x."""
        return 1 / self

    def clamp(self, min: Operand | None = None, max: Operand | None = None) -> Self:
        """Every element limited to [min, max]: numbers, or Tensors that broadcast.

        Outside of the limits the gradient of x is 0, and a limit that is a Tensor gets it.
        """
        if not isinstance(min, TensorBase) and not isinstance(max, TensorBase):
            check_clamp(min, max, self.dtype)
            return ops.clamp(self, min=min, max=max)
        x = self  # NaN stays NaN, and a limit that is NaN gives NaN
        if min is not None:
            x = ops.where(ops.logical_or(x >= min, x.isnan()), x, min)
        if max is not None:
            x = ops.where(ops.logical_or(x <= max, x.isnan()), x, max)
        return x

    def masked_fill(self, mask: Any, value: Operand) -> Self:
        """`value` wherever `mask` is True. The mask broadcasts: a Tensor, or what makes one.

        Differs from PyTorch: a value that integers or booleans cannot hold is a DtypeError.

        >>> ta.tensor([1.0, 2.0, 3.0]).masked_fill([True, False, False], 0.0)
        tensor([0., 2., 3.])
        """
        if not isinstance(mask, TensorBase):
            mask = wrap(as_array(mask, None, self.device))
        check_masked_fill(self, mask)
        if self.dtype.kind != "f" or not isinstance(value, TensorBase):
            value = as_array(array_of(value), self.dtype, self.device)
        return ops.where(mask, value, self)
