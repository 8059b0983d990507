"""Tensor. Its methods stand in eight classes, each in a file of its own.

Each class inherits from the one before it, and uses nothing of those behind it. Tensor inherits
from the last one, Order:

    values.py       the array: data, shape, dtype, device, item, tolist, numpy, repr
    gradients.py    requires_grad, grad, grad_fn, backward, detach, copies and pickles of leaves
    conversions.py  to, float, double, half, long, bool, cpu, cuda, type_as
    operators.py    + - * / // % ** @, comparisons, logic, and `x += y` (in_place.py)
    elementwise.py  exp, log, sqrt, tanh, relu, pow, clamp, masked_fill, isnan, clone ...
    shapes.py       reshape, permute, expand, x[i], x[i] = y, gather, split, roll, tril ...
    reductions.py   sum, mean, var, max, argmax, any, equal, bmm, prod, norm, softmax ...
    order.py        sort, argsort, topk, multinomial

`Self` in their signatures is Tensor: of a Parameter, too, every method gives a Tensor.
"""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any

from .. import ops
from ..base.backend import register_tensor
from ..base.checks import as_array
from ..base.names import UnknownNameError
from ..engine.autograd import TensorBase
from ..engine.versions import Version
from .order import Order
from .types import DTypeLike
from .values import array_of

# What to write instead of setting an attribute that is only read.
INSTEAD = {
    "T": "write x = x.T",
    "device": "write x = x.to(device)",
    "dtype": "write x = x.to(dtype)",
    "grad_fn": "x.detach() has none",
    "is_leaf": "x.detach() is one",
    "mT": "write x = x.mT",
    "ndim": "write x = x.reshape(...)",
    "shape": "write x = x.reshape(...)",
}


class Tensor(Order):
    """An n-dimensional array that remembers how it was computed.

    Parameters
    ----------
    data: numbers, nested lists, a NumPy or CuPy array, or a Tensor; always copied. Python floats
        become float32 (PyTorch's default), integers int64; an array keeps its dtype.
    dtype: a NumPy dtype, such as `ta.float64`.
    device: "cpu" or "cuda"; the device of `data` by default.
    requires_grad: record the operations on this tensor, so that `backward()` can fill `.grad`.

    Raises DtypeError for data that are not numbers, for integers with requires_grad=True, and for a
    number that an integer dtype cannot hold, such as 300 as uint8 or 1.5 as int64; a float beyond
    the range of a floating dtype becomes inf.

        >>> import tinyattn as ta
        >>> x = ta.tensor([1.0, 2.0, 3.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> x.grad
        tensor([2., 4., 6.])

    Differs from PyTorch: `ta.Tensor` is the same as `ta.tensor`, so integers stay integers.
    """

    __slots__ = ()

    def __init__(
        self,
        data: Any,
        dtype: DTypeLike = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> None:
        self._data = as_array(array_of(data), dtype, device)
        self._node = None
        self._version = Version()
        if requires_grad:
            self.requires_grad = True

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if hasattr(Tensor, name):  # a property, whose own error led here
                return object.__getattribute__(self, name)
            raise UnknownNameError("Tensor", name, Tensor)


def read_only(name: str, getter: property) -> property:
    """The property with an error that says what to write instead. It is put in when the program
    runs, because a type checker would take a setter for leave to set."""

    def refuse(tensor: Tensor, value: Any = None) -> None:
        raise AttributeError(f"{name!r} of a Tensor is only read: {INSTEAD[name]}")

    return property(getter.fget, refuse, refuse, getter.__doc__)


for part in Tensor.__mro__:
    if part not in (TensorBase, object):
        for name, method in list(vars(part).items()):
            if hasattr(method, "spec"):
                continue  # an op, which has a name of its own
            if isinstance(method, FunctionType):  # Python's errors name it, and users know Tensor
                method.__qualname__ = f"Tensor.{method.__name__}"
            elif isinstance(method, property) and method.fset is None:
                setattr(part, name, read_only(name, method))
TensorBase.tensor_class = Tensor  # the class of every result of an op
register_tensor(Tensor, ops)
