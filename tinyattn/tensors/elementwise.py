"""The fifth part of Tensor: functions of each element by itself."""

from __future__ import annotations

from typing import Any, Self

from .. import ops
from ..base.checks import as_array, check_clamp, check_masked_fill
from ..engine.autograd import TensorBase, wrap
from .operators import Operators
from .types import Operand
from .values import array_of


class Elementwise(Operators):
    """Functions of each element."""

    __slots__ = ()

    def exp(self) -> Self:
        """e to the power of each element."""
        return ops.exp(self)

    def expm1(self) -> Self:
        """exp(x) - 1; near 0 exact."""
        return ops.expm1(self)

    def log(self) -> Self:
        """The natural logarithm of each element."""
        return ops.log(self)

    def log1p(self) -> Self:
        """log(1 + x); near 0 exact, because 1 + x would round x away."""
        return ops.log1p(self)

    def sqrt(self) -> Self:
        """The square root of each element; NaN for negative numbers."""
        return ops.sqrt(self)

    def sin(self) -> Self:
        """The sine of each element, in radians."""
        return ops.sin(self)

    def cos(self) -> Self:
        """The cosine of each element, in radians."""
        return ops.cos(self)

    def tanh(self) -> Self:
        """The hyperbolic tangent of each element."""
        return ops.tanh(self)

    def sigmoid(self) -> Self:
        """1 / (1 + exp(-x)), computed from exp(-|x|), which cannot overflow."""
        return ops.sigmoid(self)

    def relu(self) -> Self:
        """max(x, 0); the gradient at 0 is 0."""
        return ops.relu(self)

    def erf(self) -> Self:
        """The error function: 2 / sqrt(pi) times the integral of exp(-t*t) from 0 to x."""
        return ops.erf(self)

    def abs(self) -> Self:
        """|x|; the gradient at 0 is 0. Differs from PyTorch: the gradient at NaN is NaN."""
        return ops.abs(self)

    def sign(self) -> Self:
        """-1, 0 or 1. Differs from PyTorch: no gradient, where there it is 0."""
        return ops.sign(self)

    def isnan(self) -> Self:
        """True where an element is NaN."""
        return ops.isnan(self)

    def isfinite(self) -> Self:
        """True where an element is no NaN and not infinite."""
        return ops.isfinite(self)

    def clone(self) -> Self:
        """A copy; the gradient passes through."""
        return ops.clone(self)

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
