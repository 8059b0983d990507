"""Tensor: an array, the node that made it, and every operator.

An operator here only names an op. `ops/` has the ops, each with its derivative beneath it, and
`autograd.py` computes gradients from the nodes that ops record.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import ops
from ..base import backend
from ..base.backend import Array, read_only
from ..base.checks import (
    Dims,
    as_array,
    cast_exactly,
    check_keepdim,
    check_masked_fill,
    check_size,
    checked_dtype,
    checked_index,
    dims_of,
    from_numpy_names,
    is_integer,
    names_device,
    one_dim,
    reflected_operator,
    require_dims,
    require_float,
    sizes_of,
    split_sizes,
)
from ..base.names import UnknownNameError
from ..engine import autograd
from ..engine.autograd import Leaf, Node, TensorBase, wrap
from ..engine.grad_mode import is_grad_enabled
from ..engine.versions import Version
from ..errors import DeviceError, DtypeError, GraphError, InPlaceError, ShapeError
from ..kernels.range_checks import index_for
from .in_place import check_writable, in_place
from .methods import Methods, ValuesAndIndices, reflected

Bool = bool  # Tensor.bool() takes the name inside the class


class Tensor(Methods, TensorBase):
    """An n-dimensional array that remembers how it was computed.

    Parameters
    ----------
    data: numbers, nested lists, a NumPy or CuPy array, or a Tensor; always copied. Python floats
        become float32 (PyTorch's default), integers int64; an array keeps its dtype.
    dtype: a NumPy dtype, such as `ta.float64`.
    device: "cpu" or "cuda"; the device of `data` by default.
    requires_grad: record the operations on this tensor, so that `backward()` can fill `.grad`.

    Raises DtypeError for data that are not numbers, and for integers with requires_grad=True.

        >>> import tinyattn as ta
        >>> x = ta.tensor([1.0, 2.0, 3.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> x.grad
        tensor([2., 4., 6.])

    Differs from PyTorch: `.data` is read-only, and `x += y` puts its result into new memory.
    """

    __slots__ = ()

    def __init__(
        self,
        data: Any,
        dtype: Any = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> None:
        self._data = as_array(plain(data), dtype, device)
        self._node = None
        self._version = Version()
        if requires_grad:
            self.requires_grad = True

    # Values, shape, dtype, device

    @property
    def data(self) -> Array:
        """The values as a read-only view of the NumPy or CuPy array, without a copy.

        Change values with `x[i] = value` or `x += y` (under `ta.no_grad()` for a leaf), because
        the tensor then counts the change, and `backward` notices it. `x.data = array` replaces
        the array by a copy of the new one, and drops a gradient of another shape or dtype.
        Differs from PyTorch: there a write to `x.data` succeeds, and `backward` does not notice.
        """
        return read_only(self._data)

    @data.setter
    def data(self, value: Any) -> None:
        if self._node is not None and self._node.plan is not None:
            raise GraphError("data of a computed tensor cannot be replaced: use detach() first")
        array = as_array(plain(value), None, None)
        if self._node is not None:
            require_float(array.dtype, "a tensor that requires gradients")
            if self._node.shape != array.shape:
                self._node = Leaf(array)
            elif self._node.dtype != array.dtype:  # recorded results still lead to this leaf
                self._node.dtype, self._node.grad = array.dtype, None
        self._data, self._version = array, Version()

    @property
    def shape(self) -> tuple[int, ...]:
        return self._data.shape

    @property
    def ndim(self) -> int:
        return self._data.ndim

    @property
    def dtype(self) -> np.dtype:
        return self._data.dtype

    @property
    def device(self) -> str:
        return backend.device_of(self._data)

    @property
    def T(self) -> Tensor:
        """All dimensions in reverse order."""
        return self.permute(*reversed(range(self.ndim)))

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one dimension."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """The number of dimensions."""
        return self.ndim

    def numel(self) -> int:
        """The number of elements."""
        return self._data.size

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if hasattr(Tensor, name):  # a property, whose own error led here
                return object.__getattribute__(self, name)
            raise UnknownNameError("Tensor", name, Tensor)

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("a 0-d tensor has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        text = np.array2string(self.cpu()._data, precision=4, separator=", ", prefix="tensor(")
        notes = []
        if self.dtype not in (np.float32, np.int64, np.bool_):
            notes.append(f", dtype={self.dtype}")
        if self.device != "cpu":
            notes.append(f", device='{self.device}'")
        if self._node is not None:
            plan = self._node.plan
            notes.append(", requires_grad=True" if plan is None else f", made_by={plan.name}")
        return f"tensor({text}{''.join(notes)})"

    # Gradients

    @property
    def requires_grad(self) -> bool:
        """True if operations on this tensor are recorded."""
        return self._node is not None

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if value and self._node is None:
            require_float(self.dtype, "a tensor that requires gradients")
            leaf = getattr(self, "_frozen", None)
            if leaf is None or leaf.shape != self.shape or leaf.dtype != self.dtype:
                leaf = Leaf(self._data)
            leaf.grad = None
            self._node = leaf
        elif not value and self._node is not None:
            if not self.is_leaf:
                raise GraphError("only a leaf can stop requiring gradients; use detach()")
            self._frozen, self._node = self._node, None  # a graph may lead to this leaf

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Record operations on this leaf from now on, or not; returns it."""
        self.requires_grad = requires_grad
        return self

    @property
    def is_leaf(self) -> bool:
        """True if no recorded op computed this tensor."""
        return self._node is None or self._node.plan is None

    @property
    def grad_fn(self) -> Node | None:
        """The Node of the recorded op that computed this tensor; None if none did.

        It has `name`, `shape`, `parents`, and `saved_values()`; `viz.show_graph` draws graphs.
        Differs from PyTorch: there parents are `next_functions`, and classes have the names.

            >>> x = ta.tensor([1.0, 2.0], requires_grad=True)
            >>> (x * x).grad_fn.name, (x * 3.0).grad_fn.saved_values()
            ('mul', {'y': 3.0})
        """
        return self._node if isinstance(self._node, Node) else None

    @property
    def grad(self) -> Tensor | None:
        """The sum of the gradients that calls of `backward` have computed, or None."""
        return None if self._node is None else self._node.grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, Tensor):
                raise TypeError(f"grad must be a Tensor or None, got {type(value).__name__}")
            if value.shape != self.shape:
                raise ShapeError(f"grad must have shape {self.shape}, got {value.shape}")
            if value.dtype != self.dtype:
                raise DtypeError(f"grad must have dtype {self.dtype}, got {value.dtype}")
            if self._node is None:
                raise GraphError("a tensor that does not require gradients has no grad")
        if self._node is not None:
            self._node.grad = value

    def retain_grad(self) -> None:
        """Let `backward` fill `.grad` of this tensor too, although an op computed it."""
        if self._node is None:
            raise GraphError("retain_grad: this tensor does not require gradients")
        self._node.hold_grad = True

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
    ) -> None:
        """Add the gradient of this tensor with respect to every leaf to that leaf's `.grad`.

        gradient: the vector of the vector-Jacobian product, in this tensor's shape; 1 by default
            for a tensor of one element.
        retain_graph: do not free the graph; the default is `create_graph`.
        create_graph: record the computation of the gradients, for derivatives of higher order.

        Raises GraphError if nothing was recorded, if the graph has been freed, or if `gradient`
        is missing; ShapeError if it has another shape.

            >>> x = ta.tensor([1.0, 2.0], requires_grad=True)
            >>> (x * 3).backward(ta.tensor([1.0, 10.0]))
            >>> x.grad
            tensor([ 3., 30.])
        """
        autograd.backward(self, gradient, retain_graph, create_graph)

    def detach(self) -> Tensor:
        """The same values in the same memory, without a graph."""
        twin = wrap(self._data)
        twin._version = self._version
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        """An independent leaf with the same values, gradient included."""
        if not self.is_leaf:
            raise GraphError("only leaves can be copied deeply: detach() this tensor first")
        twin = object.__new__(type(self))
        twin._data, twin._version = self._data.copy(), Version()
        twin._node = None if self._node is None else Leaf(twin._data)
        if twin._node is not None and self.grad is not None:
            twin._node.grad = self.grad.detach().clone()
        memo[id(self)] = twin
        return twin

    def __copy__(self) -> Tensor:
        """The same array and the same node."""
        twin = object.__new__(type(self))
        twin._data, twin._node, twin._version = self._data, self._node, self._version
        return twin

    def __reduce_ex__(self, protocol: Any) -> Any:
        if not self.is_leaf:
            raise GraphError("only leaves can be pickled: detach() this tensor first")
        return super().__reduce_ex__(protocol)

    def __setstate__(self, state: tuple[dict[str, Any] | None, dict[str, Any]]) -> None:
        attributes, slots = state
        for name, value in {**(attributes or {}), **slots}.items():
            object.__setattr__(self, name, value)
        # NumPy unpickles a dtype that equals its own but is another object; `is` would say no.
        self._data = self._data.astype(checked_dtype(self._data.dtype))
        self._version = Version()

    # To numbers and other libraries

    def item(self) -> Any:
        """The only element, as a Python number."""
        if self._data.size != 1:
            raise ShapeError(f"item() and float() take one element, got shape {self.shape}")
        return backend.to_device(self._data, "cpu").item()

    def tolist(self) -> Any:
        """The elements as nested lists of numbers of Python."""
        return backend.to_device(self._data, "cpu").tolist()

    def numpy(self) -> np.ndarray:
        """A copy, as a NumPy array. Differs from PyTorch, where the memory is shared."""
        return np.array(backend.to_device(self._data, "cpu"))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(backend.to_device(self._data, "cpu"), dtype=dtype)

    def __dlpack__(self, *, copy: Bool | None = None, **options: Any) -> Any:
        # A copy, because the receiver may write to it, and no Version would count that. With
        # copy=False the receiver gets the memory, marked as read-only.
        array = read_only(self._data) if copy is False else self._data.copy()
        return array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._data.__dlpack_device__()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        if self._data.size != 1:
            raise ShapeError(
                f"the truth of a tensor of shape {self.shape} is ambiguous: use any() or all()"
            )
        return bool(self.item())

    def __index__(self) -> int:
        if self.dtype.kind not in "iu":
            raise DtypeError(f"only an integer tensor can be an index, got {self.dtype}")
        return int(self.item())

    __hash__ = object.__hash__

    def __format__(self, spec: str) -> str:
        """The only element in a format, as in `f"{loss:.3f}"`; without a format, `repr`."""
        return format(self.item(), spec) if spec else repr(self)

    # To another dtype or device

    def to(self, *args: Any, dtype: Any = None, device: str | None = None) -> Tensor:
        """This tensor in another dtype, on another device, or both: `x.to("cuda", ta.float64)`."""
        for argument in args:
            if names_device(argument):
                device = argument
            elif isinstance(argument, Tensor):
                dtype, device = argument.dtype, argument.device
            else:
                dtype = argument
        result = self
        if dtype is not None and (wanted := checked_dtype(dtype)) != self.dtype:
            if wanted.kind == "f":
                result = ops.cast(result, dtype=wanted)
            else:
                result = wrap(result._data.astype(wanted))
        if device is not None and device != self.device:
            backend.module_of(device)
            result = ops.transfer(result, device=device)
        return result

    def cpu(self) -> Tensor:
        """This tensor on the host."""
        return self.to("cpu")

    def cuda(self) -> Tensor:
        """This tensor on the GPU."""
        return self.to("cuda")

    def float(self) -> Tensor:
        """This tensor as float32."""
        return self.to(np.float32)

    def double(self) -> Tensor:
        """This tensor as float64."""
        return self.to(np.float64)

    def half(self) -> Tensor:
        """This tensor as float16."""
        return self.to(np.float16)

    def long(self) -> Tensor:
        """This tensor as int64."""
        return self.to(np.int64)

    def bool(self) -> Tensor:
        """This tensor as booleans."""
        return self.to(np.bool_)

    # Arithmetic

    __add__ = ops.add
    __radd__ = reflected(ops.add)
    __sub__ = ops.sub
    __rsub__ = reflected(ops.sub)
    __mul__ = ops.mul
    __rmul__ = reflected(ops.mul)
    __truediv__ = ops.div
    __rtruediv__ = reflected(ops.div)
    __pow__ = ops.pow
    __rpow__ = reflected(ops.pow)
    __matmul__ = ops.matmul
    __rmatmul__ = reflected(ops.matmul)
    __neg__ = ops.neg

    def __pos__(self) -> Tensor:
        return self

    __abs__ = ops.abs

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """`array + tensor`, for which NumPy calls its function `add`, as an operation of ours."""
        name = reflected_operator(function, method, inputs[0], options)
        return getattr(inputs[1], name)(inputs[0])

    # Comparisons and logic; their results are boolean and have no gradient

    def __eq__(self, other: Any) -> Any:
        return NotImplemented if other is None or isinstance(other, str) else ops.equal(self, other)

    def __ne__(self, other: Any) -> Any:
        foreign = other is None or isinstance(other, str)
        return NotImplemented if foreign else ops.not_equal(self, other)

    __lt__ = ops.less
    __le__ = ops.less_equal
    __gt__ = ops.greater
    __ge__ = ops.greater_equal
    __and__ = __rand__ = ops.logical_and
    __or__ = __ror__ = ops.logical_or
    __xor__ = __rxor__ = ops.logical_xor
    __invert__ = ops.logical_not
    isnan = ops.isnan
    isfinite = ops.isfinite

    def any(self, dim: Dims = None, keepdim: Bool = False, **numpy_names: Any) -> Tensor:
        """True where any element along `dim` is not 0."""
        return self._reduced(ops.any, dim, keepdim, numpy_names)

    def all(self, dim: Dims = None, keepdim: Bool = False, **numpy_names: Any) -> Tensor:
        """True where all elements along `dim` are not 0."""
        return self._reduced(ops.all, dim, keepdim, numpy_names)

    # In place

    __iadd__ = in_place(ops.add)
    __isub__ = in_place(ops.sub)
    __imul__ = in_place(ops.mul)
    __itruediv__ = in_place(ops.div)
    __ipow__ = in_place(ops.pow)
    __imatmul__ = in_place(ops.matmul)
    __iand__ = in_place(ops.logical_and)
    __ior__ = in_place(ops.logical_or)
    __ixor__ = in_place(ops.logical_xor)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Write into the tensor's memory. This cannot be recorded.

        Raises InPlaceError if gradients are recorded here, and for the result of a recorded op.
        """
        recorded = self.requires_grad or (isinstance(value, Tensor) and value.requires_grad)
        if recorded and (is_grad_enabled() or not self.is_leaf):
            raise InPlaceError(
                "writing into a tensor cannot be recorded: build the result with ta.where, "
                "masked_fill or ta.cat, or write under ta.no_grad()"
            )
        check_writable(self)
        if isinstance(value, Tensor):
            if value.device != self.device:
                raise DeviceError(
                    f"the tensor is on {self.device}, what shall be written on {value.device}: "
                    "use .to(device)"
                )
            value = value._data
        else:
            value = as_array(value, None, self.device)
        index = index_for(self._data, checked_index(index))
        if self.dtype.kind != "f" and type(value) is np.ndarray:
            value = cast_exactly(value, self.dtype)
        version = self._version
        version.begin_change()
        try:
            self._data[index] = value
        except (IndexError, ValueError) as error:
            version.changes -= 2  # no change: NumPy checks index and shape before it writes
            if isinstance(error, IndexError):
                raise
            raise ShapeError(f"cannot write into a tensor of shape {self.shape}: {error}") from None
        finally:
            version.end_change()

    # Elementwise

    exp = ops.exp
    log = ops.log
    sqrt = ops.sqrt
    sin = ops.sin
    cos = ops.cos
    tanh = ops.tanh
    sigmoid = ops.sigmoid
    relu = ops.relu
    erf = ops.erf
    abs = ops.abs
    pow = ops.pow
    clone = ops.clone

    def masked_fill(self, mask: Any, value: Any) -> Tensor:
        """`value` wherever `mask` is True."""
        mask = mask if isinstance(mask, Tensor) else Tensor(mask, device=self.device)
        check_masked_fill(self, mask, value)
        # As a boolean, because with the integers 0 and 1 a boolean tensor would become integers.
        value = bool(value) if self.dtype == np.bool_ and value in (0, 1) else value
        return ops.where(mask, value, self)

    # Reductions; NumPy's names `axis` and `keepdims` mean the same as `dim` and `keepdim`

    def _reduced(
        self, operation: Any, dim: Dims, keepdim: Bool, names: dict[str, Any], **options: Any
    ) -> Tensor:
        if names:
            dim, keepdim = from_numpy_names(dim, keepdim, names)
        check_keepdim(keepdim)
        return operation(self, dim=dims_of(self, dim), keepdim=keepdim, **options)

    def sum(
        self, dim: Dims = None, keepdim: Bool = False, *, dtype: Any = None, **numpy_names: Any
    ) -> Tensor:
        """Sum over one dimension, several, or all, in `dtype`."""
        if dtype is not None:
            return self.to(dtype).sum(dim, keepdim, **numpy_names).to(dtype)
        return self._reduced(ops.sum, dim, keepdim, numpy_names)

    def mean(self, dim: Dims = None, keepdim: Bool = False, **numpy_names: Any) -> Tensor:
        """Mean over one dimension, several, or all."""
        require_float(self.dtype, "mean")
        return self._reduced(ops.mean, dim, keepdim, numpy_names)

    def var(
        self,
        dim: Dims = None,
        unbiased: Bool = True,
        keepdim: Bool = False,
        *,
        correction: int | None = None,
        **numpy_names: Any,
    ) -> Tensor:
        """Variance: the squares are divided by n - 1 as in PyTorch, or by n if not `unbiased`.

        correction: an integer to subtract from n instead.
        """
        require_float(self.dtype, "var")
        correction = (
            int(unbiased) if correction is None else check_size("correction", correction, 0)
        )
        return self._reduced(ops.var, dim, keepdim, numpy_names, correction=correction)

    def std(
        self,
        dim: Dims = None,
        unbiased: Bool = True,
        keepdim: Bool = False,
        *,
        correction: int | None = None,
        **numpy_names: Any,
    ) -> Tensor:
        """The root of `var`; its gradient is 0 if the root is 0, as in PyTorch."""
        require_float(self.dtype, "std")
        correction = (
            int(unbiased) if correction is None else check_size("correction", correction, 0)
        )
        return self._reduced(ops.std, dim, keepdim, numpy_names, correction=correction)

    def max(self, dim: Any = None, keepdim: Bool = False, **numpy_names: Any) -> Any:
        """The largest element, or along `dim` a pair (values, indices); with a Tensor, `maximum`.

        Elements that tie share the gradient. Along a dimension the gradient goes to the element at
        the index. `amax` gives the values alone, along one dimension or several.
        """
        return self._extreme(ops.max, ops.argmax, ops.maximum, dim, keepdim, numpy_names)

    def min(self, dim: Any = None, keepdim: Bool = False, **numpy_names: Any) -> Any:
        """The smallest element, or along `dim` a pair (values, indices); see `max`."""
        return self._extreme(ops.min, ops.argmin, ops.minimum, dim, keepdim, numpy_names)

    def _extreme(
        self, over_all: Any, place: Any, of_two: Any, dim: Any, keepdim: Bool, names: dict[str, Any]
    ) -> Any:
        if isinstance(dim, Tensor):
            return of_two(self, dim)
        if names:
            dim, keepdim = from_numpy_names(dim, keepdim, names)
        if dim is None:
            return self._reduced(over_all, dim, keepdim, {})
        check_keepdim(keepdim)
        if isinstance(dim, (tuple, list)):
            raise TypeError(
                f"max and min take one dimension, got {dim}: amax and amin take several"
            )
        dim = one_dim(self, dim)
        indices = place(self, dim=(dim,) if self.ndim else None, keepdim=self.ndim > 0)
        values = self.gather(dim, indices) if self.ndim else self.clone()
        if keepdim or not self.ndim:
            return ValuesAndIndices(values, indices)
        return ValuesAndIndices(values.squeeze(dim), indices.squeeze(dim))

    def amax(self, dim: Dims = None, keepdim: Bool = False, **numpy_names: Any) -> Tensor:
        """The largest values; elements that tie share the gradient."""
        return self._reduced(ops.max, dim, keepdim, numpy_names)

    def amin(self, dim: Dims = None, keepdim: Bool = False, **numpy_names: Any) -> Tensor:
        """The smallest values; elements that tie share the gradient."""
        return self._reduced(ops.min, dim, keepdim, numpy_names)

    def argmax(self, dim: int | None = None, keepdim: Bool = False, **numpy_names: Any) -> Tensor:
        """The index of the largest element along `dim`, the first if several tie."""
        return self._reduced(ops.argmax, dim, keepdim, numpy_names)

    def argmin(self, dim: int | None = None, keepdim: Bool = False, **numpy_names: Any) -> Tensor:
        """The index of the smallest element along `dim`, the first if several tie."""
        return self._reduced(ops.argmin, dim, keepdim, numpy_names)

    def sum_to(self, shape: tuple[int, ...]) -> Tensor:
        """Undo a broadcast: sum over the dimensions that `shape` lacks or has as 1."""
        return ops.sum_to(self, target=tuple(shape))

    # Shape

    def reshape(self, *shape: Any) -> Tensor:
        """The same elements in another shape; one size may be -1. Copies if it must."""
        sizes = sizes_of(shape)
        if any(size < -1 for size in sizes):
            raise ShapeError(f"a size is >= 0, or -1 for the one to be found out, got {sizes}")
        return ops.reshape(self, target=sizes)

    def view(self, *shape: Any) -> Tensor:
        """`reshape` without a copy; ShapeError if the memory order does not allow that."""
        result = self.reshape(*shape)
        base = result._data.base
        if base is None or (base is not self._data and base is not self._data.base):
            raise ShapeError(
                f"view: the elements of this {self.shape} tensor do not lie in memory as "
                f"{result.shape} needs; use reshape, which copies"
            )
        return result

    def permute(self, *dims: Any) -> Tensor:
        """The dimensions in another order: (B, N, D).permute(0, 2, 1) -> (B, D, N)."""
        dims = sizes_of(dims)
        if sorted(one_dim(self, dim) for dim in dims) != list(range(self.ndim)):
            raise ShapeError(f"permute takes each of {self.ndim} dimensions once, got {dims}")
        return ops.permute(self, dims=tuple(one_dim(self, dim) for dim in dims))

    def transpose(self, dim0: int, dim1: int) -> Tensor:
        """This tensor with two dimensions exchanged."""
        a, b = one_dim(self, dim0), one_dim(self, dim1)
        dims = list(range(self.ndim or 1))
        dims[a], dims[b] = dims[b], dims[a]
        return ops.permute(self, dims=tuple(dims[: self.ndim]))

    swapaxes = transpose

    def expand(self, *shape: Any) -> Tensor:
        """Broadcast to `shape`; -1 keeps a size. No memory is copied."""
        sizes = list(sizes_of(shape))
        extra = len(sizes) - self.ndim
        for i, size in enumerate(sizes):
            if size == -1 and i >= extra:
                sizes[i] = self.shape[i - extra]
        return ops.expand(self, target=tuple(sizes))

    def squeeze(self, dim: Dims = None) -> Tensor:
        """This tensor without its dimensions of size 1, or without those in `dim`."""
        drop = range(self.ndim) if dim is None else () if dim == () else dims_of(self, dim) or ()
        return self.reshape([n for i, n in enumerate(self.shape) if not (i in drop and n == 1)])

    def unsqueeze(self, dim: int) -> Tensor:
        """This tensor with a new dimension of size 1 at `dim`."""
        if isinstance(dim, bool) or not hasattr(dim, "__index__"):
            raise TypeError(f"a dimension is an integer, got {dim!r}")
        if not -self.ndim - 1 <= dim <= self.ndim:
            raise IndexError(f"unsqueeze: dim {dim} is out of range for {self.ndim} dimensions")
        dim = dim if dim >= 0 else dim + self.ndim + 1
        return self.reshape([*self.shape[:dim], 1, *self.shape[dim:]])

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Tensor:
        """The dimensions from `start_dim` to `end_dim` merged into one."""
        if not self.ndim:
            return self.reshape(1)
        start, end = one_dim(self, start_dim), one_dim(self, end_dim)
        if start > end:
            raise ShapeError(f"flatten: start_dim {start} lies behind end_dim {end}")
        merged = math.prod(self.shape[start : end + 1])
        return self.reshape([*self.shape[:start], merged, *self.shape[end + 1 :]])

    def __getitem__(self, index: Any) -> Tensor:
        """Slices, integers, integer arrays, boolean masks, None and Ellipsis, as in NumPy."""
        return ops.getitem(self, index=checked_index(index))

    def __iter__(self) -> Iterator[Tensor]:
        if not self.ndim:
            raise TypeError("a 0-d tensor cannot be iterated over")
        return (self[i] for i in range(len(self)))

    def gather(self, dim: int, index: Tensor) -> Tensor:
        """out[i][j][k] = self[index[i][j][k]][j][k] for dim 0, and so on for other dims."""
        if not self.ndim:
            return self.reshape(1).gather(dim, index.reshape(-1)).reshape(index.shape)
        return ops.gather(self, index, dim=one_dim(self, dim))

    def split(self, sizes: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
        """Pieces along `dim`, all of one size (the last may be smaller), or of the given sizes."""
        dim = one_dim(require_dims(self, "split"), dim)
        sizes = split_sizes(self.shape[dim], sizes, dim)
        ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
        before = (slice(None),) * dim
        return tuple(
            self[(*before, slice(end - size, end))] for size, end in zip(sizes, ends, strict=True)
        )

    def chunk(self, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
        """At most `chunks` pieces of equal size along `dim`."""
        if not is_integer(chunks) or chunks <= 0:
            raise ValueError(f"chunk takes a number of pieces > 0, got {chunks!r}")
        total = require_dims(self, "chunk").shape[one_dim(self, dim)]
        return self.split(-(-total // chunks) if total else [0] * chunks, dim)


TensorBase.tensor_class = Tensor  # the class of every result of an op
backend.register_tensor(Tensor, ops)


def plain(value: Any) -> Any:
    """The array of a Tensor; anything else as it is."""
    return value._data if isinstance(value, TensorBase) else value
