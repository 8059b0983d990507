"""The first part of Tensor: its array, and the ways to look at it and out of it."""

from __future__ import annotations

from typing import Any, overload

import numpy as np

from ..base.backend import Array, device_of, read_only, to_device
from ..base.checks import DTypeLike, as_array, has_dtype, require_float, require_integers
from ..base.names import UnknownNameError
from ..engine.autograd import Leaf, TensorBase, array_of
from ..engine.versions import Version
from ..errors import GraphError, InPlaceError, ShapeError
from ..ops.arguments import Number


class ReadOnlyArray(np.ndarray):
    """What `x.data` is on the CPU: an array that answers a change with what to write instead."""

    def __array_ufunc__(  # type: ignore[override]
        self, function: Any, method: str, *inputs: Any, **options: Any
    ) -> Any:
        """NumPy's functions, which `x.data -= y` is one of, give plain arrays."""
        options = {name: plain_array(x) for name, x in options.items()}  # such as where=
        if out := options.get("out"):
            options["out"] = tuple(plain_array(changeable(x)) for x in out)
        if method == "at":  # NumPy itself writes there, read-only or not
            changeable(inputs[0])
        if any(isinstance(x, TensorBase) for x in inputs):
            return NotImplemented  # the Tensor answers
        return getattr(function, method)(*map(plain_array, inputs), **options)

    def __setitem__(self, index: Any, value: Any) -> None:
        super(ReadOnlyArray, changeable(self)).__setitem__(index, value)

    def __repr__(self) -> str:
        return repr(plain_array(self))

    def __reduce_ex__(self, protocol: Any) -> Any:  # a file of pickle can be read without tinyattn
        return plain_array(self).__reduce_ex__(protocol)

    def __getattr__(self, name: str) -> Any:
        if not hasattr(TensorBase.tensor_class, name):
            raise UnknownNameError("Tensor", name, TensorBase.tensor_class)
        raise AttributeError(f"x.data is an array of NumPy: write x.detach().{name}, of a Tensor")


def plain_array(x: Any) -> Any:
    return x.view(np.ndarray) if type(x) is ReadOnlyArray else x


def changeable(x: Any) -> Any:
    """The array; InPlaceError if it shows a Tensor's values. A copy can be changed."""
    if type(x) is ReadOnlyArray and not x.flags.writeable:
        raise InPlaceError(
            "x.data is read-only, because backward() has to notice each change: write x -= y or "
            "x[i] = y under ta.no_grad(), or x.data = array; a gradient ends with x.grad = None"
        )
    return x


class Values(TensorBase):
    """The array of a Tensor: data, shape, dtype, device; as text, numbers, arrays of others."""

    __slots__ = ()

    @property
    def data(self) -> Array:
        """The values as a read-only view of the NumPy or CuPy array, without a copy.

        Change values with `x[i] = value` or `x += y` (under `ta.no_grad()` for a leaf), because
        the tensor then counts the change, and `backward` notices it. For `x.grad.data.zero_()`
        write `x.grad = None`. `x.data = array` replaces
        the array by a copy of the new one, and drops a gradient of another shape or dtype;
        numbers of Python take the dtype that the tensor has.
        Differs from PyTorch: there a write to `x.data` succeeds, and `backward` does not notice;
        and `x.data = y.data` shares the memory of y, where here it copies.
        Here `x.data[0] = 1` and `x.data -= y` end in an InPlaceError that says what to write.
        """
        if type(self._data) is not np.ndarray:
            return self._data  # CuPy has no read-only views
        array = self._data.view(ReadOnlyArray)
        array.setflags(write=False)
        return array

    @data.setter
    def data(self, value: Any) -> None:
        if array_of(value) is self._data:  # `x.data += y` has changed it
            return
        if self._node is not None and self._node.plan is not None:
            raise GraphError("data of a computed tensor cannot be replaced: use detach() first")
        array = as_array(array_of(value), None if has_dtype(value) else self.dtype, None)
        leaf = self._node
        if leaf is None:
            leaf = getattr(self, "_former_leaf", None)  # of a frozen tensor
        else:
            require_float(array.dtype, "a tensor that requires gradients")
            if leaf.shape != array.shape:
                self._node = leaf = Leaf(array)
        if leaf is not None and leaf.shape == array.shape and leaf.dtype != array.dtype:
            leaf.dtype, leaf.grad = array.dtype, None  # recorded results still lead to this leaf
        self._data, self._version = array, Version()

    # Shape, dtype, device

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each dimension."""
        return self._data.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._data.ndim

    @property
    def dtype(self) -> np.dtype:
        """The dtype, one of NumPy's. Differs from PyTorch: compare it with ==, not with `is`."""
        return self._data.dtype

    @property
    def device(self) -> str:
        """ "cpu" or "cuda". Differs from PyTorch, where a device is an object."""
        return device_of(self._data)

    @overload
    def size(self, dim: None = None) -> tuple[int, ...]: ...
    @overload
    def size(self, dim: int) -> int: ...
    def size(self, dim: int | None = None) -> tuple[int, ...] | int:
        """The shape, or the size of one dimension."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """The number of dimensions."""
        return self.ndim

    def numel(self) -> int:
        """The number of elements."""
        return self._data.size

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("a 0-d tensor has no length, and cannot be iterated over")
        return self.shape[0]

    # As text

    def __repr__(self) -> str:
        array, options = to_device(self._data, "cpu"), np.get_printoptions()
        edge = min(options["edgeitems"], 3 if array.ndim < 3 else max(1, 5 - array.ndim))
        text = np.array2string(array, precision=4, separator=", ", prefix="tensor(", edgeitems=edge)
        notes = []
        is_cut = array.size > options["threshold"]
        if is_cut or (not array.size and array.ndim > 1):  # all empty ones are printed as []
            notes.append(f", size={self.shape}")
        if self.dtype not in (np.float32, np.int64, np.bool_):
            notes.append(f", dtype={self.dtype}")
        if self.device != "cpu":
            notes.append(f", device='{self.device}'")
        if self._node is not None:
            plan = self._node.plan
            notes.append(", requires_grad=True" if plan is None else f", made_by={plan.name}")
        return f"tensor({text}{''.join(notes)})"

    def __format__(self, spec: str) -> str:
        """The only element in a format, as in `f"{loss:.3f}"`; without a format, `repr`, or of a
        tensor without dimensions its number, as in PyTorch."""
        return format(self.item(), spec) if spec or not self.ndim else repr(self)

    # As numbers of Python

    def item(self) -> Number:
        """The only element, as a Python number. ShapeError if there are more, or none."""
        if self._data.size != 1:
            raise ShapeError(f"item() and float() take one element, got shape {self.shape}")
        return to_device(self._data, "cpu").item()

    def tolist(self) -> list[Any]:
        """The elements as nested lists of numbers of Python; a 0-d tensor gives a number."""
        return to_device(self._data, "cpu").tolist()

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
        require_integers(self.dtype, "only an integer tensor can be an index")
        return int(self.item())

    # As arrays of other libraries

    def numpy(self) -> np.ndarray:
        """A copy, as a NumPy array. Differs from PyTorch, where the memory is shared."""
        return np.array(to_device(self._data, "cpu"))

    def __array__(self, dtype: DTypeLike = None, copy: bool | None = None) -> np.ndarray:
        """What np.asarray(x) and np.array(x) are, also of Tensors in a list: copies, no graph."""
        return np.array(to_device(self._data, "cpu"), dtype=dtype)

    def __dlpack__(self, *, copy: bool | None = None, **options: Any) -> Any:
        # A copy, because the receiver may write to it, and no Version would count that. With
        # copy=False the receiver gets the memory, marked as read-only.
        array = read_only(self._data) if copy is False else self._data.copy()
        return array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._data.__dlpack_device__()
