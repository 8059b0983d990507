"""Tensor. What it holds and its operators stand in four classes, each in a file of its own.

Each class inherits from the one before it, and uses nothing of those behind it. Tensor inherits
from the last one, Operators. Its other methods are functions of `tinyattn/ops`.

    values.py       the array: data, shape, dtype, device, item, tolist, numpy, repr
    gradients.py    requires_grad, grad, grad_fn, backward, detach, copies and pickles of leaves
    conversions.py  to, float, double, half, long, bool, cpu, cuda, type_as
    operators.py    + - * / // % ** @, comparisons, logic, x[i], `x += y`, x[i] = y

A function gives a Tensor, also where its type says that a Parameter gives a Parameter.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, Protocol, Self, Unpack, overload

from ..base.backend import Function, register_tensor
from ..base.checks import DTypeLike, as_array
from ..base.names import UnknownNameError
from ..engine.autograd import TensorBase, array_of
from ..engine.op import Options
from ..engine.rules import Spec
from ..engine.versions import Version
from ..ops import (
    activations,
    arithmetic,
    elementwise,
    indexing,
    order,
    products,
    reductions,
    shapes,
)
from ..ops.softmax import log_softmax, logsumexp, softmax
from .operators import Operators


class Tensor(Operators):
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
        self._node = self._view = None
        self._version = Version()
        if requires_grad:
            self.requires_grad = True

    @property
    def T(self) -> Self:
        """All dimensions in reverse order."""
        return shapes.permute(self, *reversed(range(self.ndim)))

    @property
    def mT(self) -> Self:
        """This tensor with its last two dimensions exchanged: a matrix, or each of a stack."""
        return shapes.transpose(self, -1, -2)

    def contiguous(self) -> Self:
        """This tensor if its elements lie in memory one after another, else a copy that does."""
        return self if self._data.flags.c_contiguous else self.clone()

    # Functions as methods: `x.exp()` is `elementwise.exp(x)`.

    abs = elementwise.abs
    clamp = elementwise.clamp
    clone = elementwise.clone
    cos = elementwise.cos
    erf = elementwise.erf
    exp = elementwise.exp
    expm1 = elementwise.expm1
    isfinite = elementwise.isfinite
    isnan = elementwise.isnan
    log = elementwise.log
    log1p = elementwise.log1p
    masked_fill = elementwise.masked_fill
    pow = elementwise.pow
    reciprocal = elementwise.reciprocal
    relu = activations.relu
    remainder = arithmetic.remainder
    rsqrt = elementwise.rsqrt
    sigmoid = activations.sigmoid
    sign = elementwise.sign
    sin = elementwise.sin
    sqrt = elementwise.sqrt
    square = elementwise.square
    tanh = elementwise.tanh

    all = reductions.all
    allclose = order.allclose
    amax = order.amax
    amin = order.amin
    any = reductions.any
    argmax = order.argmax
    argmin = order.argmin
    cumsum = reductions.cumsum
    equal = order.equal
    log_softmax = log_softmax
    logsumexp = logsumexp
    max = order.max
    mean = reductions.mean
    min = order.min
    norm = reductions.norm
    prod = reductions.prod
    softmax = softmax
    std = reductions.std
    sum = reductions.sum
    var = reductions.var

    bmm = products.bmm
    dot = products.dot
    matmul = products.matmul
    outer = products.outer

    argsort = order.argsort
    multinomial = order.multinomial
    sort = order.sort
    topk = order.topk

    chunk = indexing.chunk
    diagonal = indexing.diagonal
    expand = shapes.expand
    expand_as = shapes.expand_as
    flatten = shapes.flatten
    flip = indexing.flip
    gather = indexing.gather
    permute = shapes.permute
    repeat = shapes.repeat
    repeat_interleave = shapes.repeat_interleave
    reshape = shapes.reshape
    roll = shapes.roll
    split = indexing.split
    squeeze = shapes.squeeze
    sum_to = shapes.sum_to
    swapaxes = shapes.swapaxes
    t = shapes.t
    transpose = shapes.transpose
    tril = indexing.tril
    triu = indexing.triu
    unbind = indexing.unbind
    unsqueeze = shapes.unsqueeze
    view = shapes.view

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if hasattr(Tensor, name):  # a property, whose own error led here
                return object.__getattribute__(self, name)
            raise UnknownNameError("Tensor", name, Tensor)


for part in Tensor.__mro__:
    if part not in (TensorBase, object):
        for name, method in list(vars(part).items()):
            if isinstance(method, FunctionType) and method.__module__.startswith(__package__):
                method.__qualname__ = f"Tensor.{name}"  # Python's errors name it
TensorBase.tensor_class = Tensor  # the class of every result of an op
register_tensor(Tensor)

if TYPE_CHECKING:

    class OpOfUser(Protocol):
        """What `ta.op` makes, to type checkers: a function on Tensors, with its derivative rules.

        An op of the library has the type of its function, because it is a method of Tensor too.
        """

        __name__: str
        spec: Spec

        def __call__(self, *args: Any, **options: Any) -> Tensor: ...

        def vjp(self, *arguments: str) -> Callable[[Function], Function]:
            """Declare the function below as the derivative rule for these arguments."""

    @overload
    def op_of_user(forward: Callable[..., Any], **options: Unpack[Options]) -> OpOfUser: ...
    @overload
    def op_of_user(**options: Unpack[Options]) -> Callable[[Callable[..., Any]], OpOfUser]: ...
    def op_of_user(forward: Any = None, **options: Unpack[Options]) -> Any: ...
