"""The fourth part of Tensor: its operators. Each calls an op, `x * y` calls `ops.mul(x, y)`.

`ops/` has the ops, each with its derivative beneath it. Python calls `y.__rmul__(x)` for `x * y` if
x is no Tensor, and `x.__imul__(y)` for `x *= y`.
"""

from __future__ import annotations

from typing import Any, Self

from .. import ops
from ..base.checks import numpy_refusal, reflected_operator
from .conversions import Conversions
from .in_place import changed
from .types import Operand


class Operators(Conversions):
    """Arithmetic, comparisons and logic, and the same in place."""

    __slots__ = ()

    # Arithmetic

    def __add__(self, other: Operand) -> Self:
        return ops.add(self, other)

    def __radd__(self, other: Operand) -> Self:
        return ops.add(other, self)

    def __sub__(self, other: Operand) -> Self:
        return ops.sub(self, other)

    def __rsub__(self, other: Operand) -> Self:
        return ops.sub(other, self)

    def __mul__(self, other: Operand) -> Self:
        return ops.mul(self, other)

    def __rmul__(self, other: Operand) -> Self:
        return ops.mul(other, self)

    def __truediv__(self, other: Operand) -> Self:
        return ops.div(self, other)

    def __rtruediv__(self, other: Operand) -> Self:
        return ops.div(other, self)

    def __floordiv__(self, other: Operand) -> Self:
        return ops.floor_divide(self, other)

    def __rfloordiv__(self, other: Operand) -> Self:
        return ops.floor_divide(other, self)

    def __mod__(self, other: Operand) -> Self:
        return ops.remainder(self, other)

    def __rmod__(self, other: Operand) -> Self:
        return ops.remainder(other, self)

    def __pow__(self, other: Operand) -> Self:
        return ops.pow(self, other)

    def __rpow__(self, other: Operand) -> Self:
        return ops.pow(other, self)

    def __matmul__(self, other: Operand) -> Self:
        return ops.matmul(self, other)

    def __rmatmul__(self, other: Operand) -> Self:
        return ops.matmul(other, self)

    def __neg__(self) -> Self:
        return ops.neg(self)

    def __pos__(self) -> Self:
        return self

    def __abs__(self) -> Self:
        return ops.abs(self)

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """`array + tensor`, for which NumPy calls its function `add`, as an operation of ours."""
        name = reflected_operator(function, method, inputs[0], options)
        return getattr(inputs[1], name)(inputs[0])

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        """NumPy's other functions, such as np.concatenate, are refused: they record nothing."""
        raise numpy_refusal(function)

    # Comparisons; their results are boolean and have no gradient

    def __eq__(self, other: object) -> Self:  # type: ignore[override]
        if other is None or isinstance(other, str):
            return NotImplemented
        return ops.equal(self, other)

    def __ne__(self, other: object) -> Self:  # type: ignore[override]
        if other is None or isinstance(other, str):
            return NotImplemented
        return ops.not_equal(self, other)

    __hash__ = object.__hash__  # by identity, because `==` compares elements

    def __lt__(self, other: Operand) -> Self:
        return ops.less(self, other)

    def __le__(self, other: Operand) -> Self:
        return ops.less_equal(self, other)

    def __gt__(self, other: Operand) -> Self:
        return ops.greater(self, other)

    def __ge__(self, other: Operand) -> Self:
        return ops.greater_equal(self, other)

    # Logic of booleans, and of the bits of integers

    def __and__(self, other: Operand) -> Self:
        return ops.logical_and(self, other)

    def __rand__(self, other: Operand) -> Self:
        return ops.logical_and(other, self)

    def __or__(self, other: Operand) -> Self:
        return ops.logical_or(self, other)

    def __ror__(self, other: Operand) -> Self:
        return ops.logical_or(other, self)

    def __xor__(self, other: Operand) -> Self:
        return ops.logical_xor(self, other)

    def __rxor__(self, other: Operand) -> Self:
        return ops.logical_xor(other, self)

    def __invert__(self) -> Self:
        return ops.logical_not(self)

    # In place

    def __iadd__(self, other: Operand) -> Self:
        """x gets the values of x + y, in new memory. Differs from PyTorch, where views change too.

        All operators in place do so.
        """
        return changed(self, ops.add, other)

    def __isub__(self, other: Operand) -> Self:
        return changed(self, ops.sub, other)

    def __imul__(self, other: Operand) -> Self:
        return changed(self, ops.mul, other)

    def __itruediv__(self, other: Operand) -> Self:
        return changed(self, ops.div, other)

    def __ifloordiv__(self, other: Operand) -> Self:
        return changed(self, ops.floor_divide, other)

    def __imod__(self, other: Operand) -> Self:
        return changed(self, ops.remainder, other)

    def __ipow__(self, other: Operand) -> Self:
        return changed(self, ops.pow, other)

    def __imatmul__(self, other: Operand) -> Self:
        return changed(self, ops.matmul, other)

    def __iand__(self, other: Operand) -> Self:
        return changed(self, ops.logical_and, other)

    def __ior__(self, other: Operand) -> Self:
        return changed(self, ops.logical_or, other)

    def __ixor__(self, other: Operand) -> Self:
        return changed(self, ops.logical_xor, other)
