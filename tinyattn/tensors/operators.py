"""The fourth part of Tensor: its operators. `x * y` is `ops.mul(x, y)`.

`ops/` has the ops, each with its derivative beneath it. Python calls `y.__rmul__(x)` for `x * y` if
x is no Tensor, and `x.__imul__(y)` for `x *= y`; `changed`, at the end, says what that does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Self, TypeVar
from weakref import ref

import numpy as np

from ..base import checks
from ..base.backend import Function, namespace
from ..base.names import hints
from ..engine.autograd import Leaf, grad, wrap
from ..engine.grad_mode import is_grad_enabled
from ..engine.promotion import CATEGORY
from ..engine.versions import UNREACHED, made_by, remade, sharing, views_between
from ..errors import DtypeError, InPlaceError, ShapeError
from ..kernels.range_checks import index_for
from ..ops import arithmetic, elementwise, indexing, products
from ..ops.arguments import Index, Operand
from ..ops.indexing import numbers_first, without_leading_ones
from .conversions import Conversions
from .values import Values

T = TypeVar("T")
LEAF = (
    "a leaf that requires gradients cannot be changed in place while operations are recorded: do "
    "it under ta.no_grad(), or write x = x + y; x = x.clone() can be changed too"
)
# `array + tensor` calls NumPy's function `add`, and that asks the Tensor.
OPERATORS = {
    "add": "__radd__",
    "subtract": "__rsub__",
    "multiply": "__rmul__",
    "divide": "__rtruediv__",
    "floor_divide": "__rfloordiv__",
    "remainder": "__rmod__",
    "power": "__rpow__",
    "matmul": "__rmatmul__",
    "equal": "__eq__",
    "not_equal": "__ne__",
    "less": "__gt__",
    "less_equal": "__ge__",
    "greater": "__lt__",
    "greater_equal": "__le__",
    "bitwise_and": "__and__",
    "bitwise_or": "__or__",
    "bitwise_xor": "__xor__",
}


def numpy_refusal(function: Any) -> TypeError:
    """The error for a function of NumPy that got a Tensor: its result would have no gradient."""
    module, name = getattr(function, "__module__", None) or "numpy", function.__name__
    name = f"{module}.{name}".removeprefix("numpy.")
    instead = hints().from_numpy(name)
    return TypeError(
        f"NumPy's {name} does not take a Tensor, because the result would have no gradient: "
        f"{f'write {instead}, or ' if instead else ''}pass x.numpy(), a copy without a graph"
    )


def reflected(operation: Function) -> Callable[[T, Any], T]:
    """The method for `x + y` where x is no Tensor, of the operation for x + y."""

    def method(self: T, other: Any) -> T:
        return operation(other, self)

    return method


def in_place(operation: Function) -> Callable[[T, Operand], T]:
    """The method for `x += y`, of the operation for x + y."""

    def method(self: T, other: Operand) -> T:
        """x gets the values of x + y, and so do its views and the tensors that it is a view of.

        Where that is recorded, or no other tensor shows the memory of x, the values are in new
        memory, and a graph keeps the old values.
        """
        return changed(self, operation, other)

    return method


class Operators(Conversions):
    """Arithmetic, comparisons and logic, the same in place, and elements by index."""

    __slots__ = ()

    # Arithmetic

    __add__ = arithmetic.add
    __radd__ = reflected(arithmetic.add)

    __sub__ = arithmetic.sub
    __rsub__ = reflected(arithmetic.sub)

    __mul__ = arithmetic.mul

    def __rmul__(self, other: Any) -> Self:
        """other * self; `[0] * n` is a list of n zeros, as it is for an integer of Python."""
        is_sequence = isinstance(other, (list, tuple, str, bytes))
        is_repeated = is_sequence and not self.ndim and self.dtype.kind in "iu"
        return NotImplemented if is_repeated else arithmetic.mul(other, self)

    __truediv__ = arithmetic.div
    __rtruediv__ = reflected(arithmetic.div)

    __floordiv__ = arithmetic.floor_divide
    __rfloordiv__ = reflected(arithmetic.floor_divide)

    __mod__ = arithmetic.remainder
    __rmod__ = reflected(arithmetic.remainder)

    __pow__ = elementwise.pow
    __rpow__ = reflected(elementwise.pow)

    __matmul__ = products.matmul
    __rmatmul__ = reflected(products.matmul)

    __neg__ = arithmetic.neg

    def __pos__(self) -> Self:
        return self

    __abs__ = elementwise.abs

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """`array + tensor`, for which NumPy calls its function `add`, as an operation of ours."""
        name = OPERATORS.get(function.__name__)  # only operators have such a method
        if "out" in options:
            raise TypeError("an array takes no Tensor: write array + x, and w += x for w.data += x")
        if name is None or method != "__call__" or options or hasattr(inputs[0], "_data"):
            raise numpy_refusal(function)
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

    __and__ = __rand__ = arithmetic.logical_and
    __or__ = __ror__ = arithmetic.logical_or
    __xor__ = __rxor__ = arithmetic.logical_xor

    __invert__ = arithmetic.logical_not

    # In place

    __iadd__ = in_place(arithmetic.add)
    __isub__ = in_place(arithmetic.sub)
    __imul__ = in_place(arithmetic.mul)
    __itruediv__ = in_place(arithmetic.div)
    __ifloordiv__ = in_place(arithmetic.floor_divide)
    __imod__ = in_place(arithmetic.remainder)
    __ipow__ = in_place(elementwise.pow)
    __imatmul__ = in_place(products.matmul)
    __iand__ = in_place(arithmetic.logical_and)
    __ior__ = in_place(arithmetic.logical_or)
    __ixor__ = in_place(arithmetic.logical_xor)

    # Elements by index

    def __getitem__(self, index: Index) -> Self:
        """Slices, integers, integer arrays, boolean masks, None and Ellipsis, as in PyTorch.

        Differs from NumPy: x[0, :, rows] is x[0][:, rows], because numbers are taken first.

        Differs from PyTorch: nested lists are one array of indices, not a tuple of several; uint8
        are indices and no mask.
        A row, a slice or an element is a view. So random.shuffle(x) would lose rows of a matrix:
        write x[ta.randperm(len(x))].
        """
        return indexing.getitem(self, checks.checked_index(index))

    def __setitem__(self, index: Index, value: Operand) -> None:
        """Write into the tensor's memory; if that is recorded, into new memory, as `x += y` does.

        It is recorded if x or the value requires gradients. The old values of x at the index then
        have the gradient 0.
        Views of x, and tensors that x is a view of, have the values too.
        Differs from PyTorch: where an index occurs twice, only the value written last has a
        gradient.

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
            checks.check_one_device("x[i] = y", "x", self._data, "y", value._data)
            array = value._data
        else:
            checks.refuse_tensors("x[i] = y: y", value)
            array = checks.as_array(value, self.dtype, self.device)
        index = checks.checked_index(index)
        if recorded:
            written = value.to(self.dtype) if isinstance(value, Operators) else array
            changed(self, partial(indexing.setitem, index=index), written)
            return
        part, position = numbers_first(self._data, index)
        position = index_for(part, position)
        if array.dtype is not self.dtype:
            array = checks.cast_exactly(array, self.dtype)
        version = self._version
        version.begin_change()
        try:
            part[position] = without_leading_ones(array)
        except (IndexError, ValueError) as error:
            version.changes -= 2  # no change: NumPy checks index and shape before it writes
            if isinstance(error, IndexError):
                raise
            raise ShapeError(f"cannot write into a tensor of shape {self.shape}: {error}") from None
        finally:
            version.end_change()

    def __contains__(self, value: Any) -> bool:
        """True if an element equals the number, or one of the Tensor's, which broadcasts."""
        is_number = isinstance(value, (Values, int, float, np.number))
        return is_number and bool(arithmetic.eq(self, value)._data.any())

    def __iter__(self) -> Iterator[Self]:
        return (self[i] for i in range(len(self)))


def changed(tensor: Any, operation: Function, other: Any, in_memory: bool = False) -> Any:
    """`x += y` gives this tensor object the values of x + y, recorded or not.

    A recorded `x[i] = y` gives it those of `ops.setitem`. The values are in new memory, so graphs
    that need the old values stay as they are. Other tensors that show elements of x are given
    theirs. If nothing is recorded, and there are such tensors, or with in_memory, the values are
    written into the memory.
    """
    if is_grad_enabled():
        if tensor.requires_grad and tensor.is_leaf:
            raise InPlaceError(LEAF)
    elif not tensor.is_leaf and tensor._version is None:
        check_writable(tensor)  # raises an error that says why not
    result = operation(tensor, other)
    if result.shape != tensor.shape:
        raise ShapeError(f"an in-place result keeps the shape {tensor.shape}, got {result.shape}")
    if CATEGORY[result.dtype.kind] > CATEGORY[tensor.dtype.kind]:
        raise DtypeError(f"a {result.dtype} result does not fit in place into {tensor.dtype}")
    if tensor.dtype.kind == "f":
        result = result.to(tensor.dtype)
    elif result.dtype != tensor.dtype:
        result = wrap(checks.cast_exactly(result._data, tensor.dtype))
    if is_grad_enabled() and (tensor.requires_grad or result.requires_grad):
        if tensor.requires_grad or not is_detached(tensor):
            give_all(tensor, result)
        else:  # of x.detach(): the memory gets the values; the graph may need a copy of the old
            result = operation(tensor.clone(), other).to(tensor.dtype)
            tensor[...] = result.detach()
            tensor._node = result._node
    elif in_memory or ((v := tensor._view) and v.viewed() is not None) or len(sharing(tensor)) > 1:
        tensor[...] = result
    else:
        tensor._data, tensor._version, tensor._view = result._data, result._version, None
    return tensor


def is_detached(tensor: Any) -> bool:
    """Whether a Tensor shows memory of another without its graph, as x.detach() does.

    InPlaceError if it is a view of the detached one, or has views, because these would not follow.
    What is detached of it again needs no gradient: the memory gives it the values.
    """
    last = last_detach(made_by(tensor, tensor._view))
    for member, made in sharing(tensor).items() if last else ():
        if member is not tensor and last_detach(made) is last:
            raise InPlaceError(UNREACHED)
    return last is not None


def last_detach(made: tuple[Any, ...]) -> Any:
    """The last View of a Tensor that a call of `detach` made, or None."""
    return next((v for v in made[:0:-1] if v.call[0] is Conversions.detach), None)


def give_all(tensor: Any, result: Any) -> None:
    """Give a Tensor the result of a recorded change, and others that show elements theirs."""
    members = sharing(tensor) or {tensor: ()}  # nothing shares the memory of no elements
    (whole, first), *_ = members.items()
    if whole is not tensor:
        result = within(whole, views_between(first, members[tensor]), result)
        members = sharing(whole)
    views = {member: views_between(first, made) for member, made in members.items()}
    for member in views:
        values = remade(whole, views[member]) if views[member] else result
        before, member._data = member._node, values._data
        if values._node is not None or not member.is_leaf:  # a leaf made by detach() stays one
            member._node = values._node
        if before is not None and member._node is not None:
            member._node.grad, member._node.retains_grad = before.grad, before.retains_grad
        member._version, member._view = values._version, values._view
        if member._view is not None:
            member._view.tensor = ref(member)


def within(whole: Any, views: tuple[Any, ...], result: Any) -> Any:
    """The values of `whole`, with `result` in the place of what these views show of it."""
    for i in reversed(range(len(views))):
        part, (function, args, _) = remade(whole, views[:i]), views[i].call
        start = wrap(part._data, Leaf(part._data))
        view = remade(start, views[i : i + 1])
        if whole.requires_grad and whole.is_leaf:
            raise InPlaceError(LEAF)
        if not view.requires_grad or view.numel() > start.numel():  # detach, expand
            raise InPlaceError(UNREACHED)
        if function is indexing.getitem:
            result = indexing.setitem(part, result, *args)
        else:  # the derivative puts them back in their places
            (put,) = grad(view, start, result, create_graph=True)
            (is_put,) = grad(view, start, wrap(namespace(part._data).ones_like(view._data)))
            result = arithmetic.where(is_put != 0, put, part)
    return result


def check_recordable(tensor: Any) -> None:
    """Refuse a recorded `x[i] = value` into an x without a gradient."""
    if tensor.dtype.kind != "f":
        raise DtypeError(
            f"a value that requires gradients is written into floats, got {tensor.dtype}: use "
            "x.to(ta.float32), or value.detach()"
        )


def check_writable(tensor: Any) -> None:
    """Refuse to write to memory that belongs to a recorded result, or to another tensor.

    Where no tensor of a graph shows such a result any more, as after x.clone().detach(), those that
    do get new memory, because the graph may need the old values.
    """
    if type(tensor._data) is np.ndarray and not tensor._data.flags.writeable:
        raise InPlaceError(
            "this is a read-only view of another's memory, as after expand: change a clone()"
        )
    if tensor._version is None:
        members = [*sharing(tensor)] or [tensor]
        if not all(member.is_leaf for member in members):
            raise InPlaceError(
                "this tensor was computed by a recorded operation, or is a view of one that was: a "
                "graph may need it, so under ta.no_grad() write x = x + y, or change a clone()"
            )
        give_all(members[0], wrap(members[0]._data.copy()))
