"""The fourth part of Tensor: its operators. `x * y` is `ops.mul(x, y)`.

`ops/` has the ops, each with its derivative beneath it. Python calls `y.__rmul__(x)` for `x * y` if
x is no Tensor, and `x.__imul__(y)` for `x *= y`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Self

from ..base.checks import (
    as_array,
    cast_exactly,
    checked_index,
    numpy_refusal,
    reflected_operator,
)
from ..engine.grad_mode import is_grad_enabled
from ..errors import DeviceError, ShapeError
from ..kernels.range_checks import index_for
from ..ops import arithmetic, elementwise, indexing, products
from ..ops.indexing import without_leading_ones
from ..ops.types import Index, Operand
from .conversions import Conversions
from .in_place import changed, check_recordable, check_writable
from .values import Values


class Operators(Conversions):
    """Arithmetic, comparisons and logic, the same in place, and elements by index."""

    __slots__ = ()

    # Arithmetic

    __add__ = arithmetic.add

    def __radd__(self, other: Any) -> Self:
        return arithmetic.add(other, self)

    __sub__ = arithmetic.sub

    def __rsub__(self, other: Any) -> Self:
        return arithmetic.sub(other, self)

    __mul__ = arithmetic.mul

    def __rmul__(self, other: Any) -> Self:
        return arithmetic.mul(other, self)

    __truediv__ = arithmetic.div

    def __rtruediv__(self, other: Any) -> Self:
        return arithmetic.div(other, self)

    __floordiv__ = arithmetic.floor_divide

    def __rfloordiv__(self, other: Any) -> Self:
        return arithmetic.floor_divide(other, self)

    __mod__ = arithmetic.remainder

    def __rmod__(self, other: Any) -> Self:
        return arithmetic.remainder(other, self)

    __pow__ = elementwise.pow

    def __rpow__(self, other: Any) -> Self:
        return elementwise.pow(other, self)

    __matmul__ = products.matmul

    def __rmatmul__(self, other: Any) -> Self:
        return products.matmul(other, self)

    __neg__ = arithmetic.neg

    def __pos__(self) -> Self:
        return self

    __abs__ = elementwise.abs

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """`array + tensor`, for which NumPy calls its function `add`, as an operation of ours."""
        name = reflected_operator(function, method, inputs[0], options)
        return getattr(inputs[1], name)(inputs[0])

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        """NumPy's other functions, such as np.concatenate, are refused: they record nothing."""
        raise numpy_refusal(function)

    # Comparisons; their results are boolean and have no gradient

    def __eq__(self, other: Any) -> Self:  # type: ignore[override]
        if other is None or isinstance(other, str):
            return NotImplemented
        return arithmetic.eq(self, other)

    def __ne__(self, other: Any) -> Self:  # type: ignore[override]
        if other is None or isinstance(other, str):
            return NotImplemented
        return arithmetic.ne(self, other)

    __hash__ = object.__hash__  # by identity, because `==` compares elements

    __lt__ = arithmetic.lt
    __le__ = arithmetic.le
    __gt__ = arithmetic.gt
    __ge__ = arithmetic.ge

    # Logic of booleans, and of the bits of integers

    __and__ = arithmetic.logical_and

    def __rand__(self, other: Any) -> Self:
        return arithmetic.logical_and(other, self)

    __or__ = arithmetic.logical_or

    def __ror__(self, other: Any) -> Self:
        return arithmetic.logical_or(other, self)

    __xor__ = arithmetic.logical_xor

    def __rxor__(self, other: Any) -> Self:
        return arithmetic.logical_xor(other, self)

    __invert__ = arithmetic.logical_not

    # In place

    def __iadd__(self, other: Operand) -> Self:
        """x gets the values of x + y, in new memory. Differs from PyTorch, where views change too.

        All operators in place do so.
        """
        return changed(self, arithmetic.add, other)

    def __isub__(self, other: Operand) -> Self:
        return changed(self, arithmetic.sub, other)

    def __imul__(self, other: Operand) -> Self:
        return changed(self, arithmetic.mul, other)

    def __itruediv__(self, other: Operand) -> Self:
        return changed(self, arithmetic.div, other)

    def __ifloordiv__(self, other: Operand) -> Self:
        return changed(self, arithmetic.floor_divide, other)

    def __imod__(self, other: Operand) -> Self:
        return changed(self, arithmetic.remainder, other)

    def __ipow__(self, other: Operand) -> Self:
        return changed(self, elementwise.pow, other)

    def __imatmul__(self, other: Operand) -> Self:
        return changed(self, products.matmul, other)

    def __iand__(self, other: Operand) -> Self:
        return changed(self, arithmetic.logical_and, other)

    def __ior__(self, other: Operand) -> Self:
        return changed(self, arithmetic.logical_or, other)

    def __ixor__(self, other: Operand) -> Self:
        return changed(self, arithmetic.logical_xor, other)

    # Elements by index

    def __getitem__(self, index: Index) -> Self:
        """Slices, integers, integer arrays, boolean masks, None and Ellipsis, as in NumPy.

        Differs from PyTorch: nested lists are one array of indices, not a tuple of several; uint8
        are indices and no mask.
        A row or a slice is a view. So random.shuffle(x) would lose rows of a matrix: write
        x[ta.randperm(len(x))].
        """
        return indexing.getitem(self, checked_index(index))

    def __setitem__(self, index: Index, value: Operand) -> None:
        """Write into the tensor's memory; if that is recorded, into new memory, as `x += y` does.

        It is recorded if x or the value requires gradients. The old values of x at the index then
        have the gradient 0.
        Differs from PyTorch: views of x keep the old values, and x[i][j] = value is refused. Where
        an index occurs twice, only the value written last has a gradient.

            >>> rows, h = ta.zeros(2, 2), ta.tensor([1.0, 2.0], requires_grad=True)
            >>> rows[0] = h
            >>> rows[1] = 3 * rows[0]
            >>> rows.sum().backward()
            >>> h.grad
            tensor([4., 4.])

        A number or a list takes the dtype of this tensor. DtypeError for what integers or booleans
        cannot hold: 1.5, NaN, 300 in a byte. A float beyond the range of the dtype becomes inf.
        Raises InPlaceError for a leaf that requires gradients, unless under `ta.no_grad()`, and
        there for the result of a recorded op.
        """
        recorded = self.requires_grad or (isinstance(value, Operators) and value.requires_grad)
        recorded = recorded and is_grad_enabled()
        (check_recordable if recorded else check_writable)(self)
        if isinstance(value, Values):
            if value.device != self.device:
                raise DeviceError(
                    f"the tensor is on {self.device}, the values are on {value.device}: "
                    "use .to(device)"
                )
            array = value._data
        else:
            array = as_array(value, self.dtype, self.device)
        index = checked_index(index)
        if recorded:
            written = value.to(self.dtype) if isinstance(value, Operators) else array
            changed(self, partial(indexing.setitem, index=index), written)
            return
        position = index_for(self._data, index)
        if array.dtype is not self.dtype:
            array = cast_exactly(array, self.dtype)
        version = self._version
        version.begin_change()
        try:
            self._data[position] = without_leading_ones(array)
        except (IndexError, ValueError) as error:
            version.changes -= 2  # no change: NumPy checks index and shape before it writes
            if isinstance(error, IndexError):
                raise
            raise ShapeError(f"cannot write into a tensor of shape {self.shape}: {error}") from None
        finally:
            version.end_change()

    def __iter__(self) -> Iterator[Self]:
        if not self.ndim:
            raise TypeError("a 0-d tensor cannot be iterated over")
        return (self[i] for i in range(len(self)))
