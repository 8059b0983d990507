"""What is recorded: one node for each operation, and whether anything is recorded at all.

Nodes point only towards inputs and never hold an output's Tensor, so there are no reference
cycles: a graph is freed the moment its last Tensor is dropped, without the garbage collector.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from .backend import Array, namespace

if TYPE_CHECKING:
    from .derivative import Plan
    from .tensor import Tensor


class Leaf:
    """The graph's end at a tensor that requires gradients; the gradient is kept here.

    The tensor owns its leaf and not the other way round, so a graph keeps a leaf's gradient
    alive, never the leaf's array.
    """

    __slots__ = ("dtype", "grad", "hold_grad", "shape")
    plan = None
    parents = ()

    def __init__(self, array: Array) -> None:
        self.shape = array.shape
        self.dtype = array.dtype
        self.grad: Tensor | None = None
        self.hold_grad = True


class Node:
    """One recorded operation. `op.py` fills the slots; a method call here would cost too much.

    plan     what the operation needs and how its gradients are computed
    parents  for each argument its Node or Leaf, or None where no gradient is wanted;
             None as a whole once backward has freed the node
    saved    the arrays and values the derivative asked for, and the locks that protect them
    shape, dtype  of the output, which its gradient must match
    """

    __slots__ = ("dtype", "grad", "hold_grad", "parents", "plan", "saved", "shape")
    plan: Plan
    parents: Any  # tuple[Node | Leaf | None, ...], and the two are None once freed
    saved: Any  # tuple[Any, ...]
    shape: tuple[int, ...]
    dtype: np.dtype
    grad: Tensor | None
    hold_grad: bool


class TensorBase:
    """What recording needs to know of a tensor: its array, and the node that made it.

    `tensor.py` derives Tensor from it, with the ops for operators, so that it can only come after
    them; results are made of the class it leaves in `full`.
    """

    __slots__ = ("__weakref__", "_data", "_node")
    full: ClassVar[Any]
    _data: Array
    _node: Node | Leaf | None


def wrap(array: Array, node: Node | Leaf | None = None) -> Tensor:
    """A Tensor around an array the library has made, without a copy or a check."""
    tensor = object.__new__(TensorBase.full)
    tensor._data = array if type(array) is np.ndarray else namespace(array).asarray(array)
    tensor._node = node
    return tensor


class GradMode(threading.local):
    """Whether operations are recorded, for each thread on its own."""

    enabled = True


grad_mode = GradMode()
Function = TypeVar("Function", bound=Callable[..., Any])


class set_grad_enabled:
    """Switch recording on or off, in a with-block or for a decorated function."""

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled
        self.previous: list[bool] = []  # a stack, so that one object may be entered again inside

    def __enter__(self) -> None:
        self.previous.append(grad_mode.enabled)
        grad_mode.enabled = self.enabled

    def __exit__(self, *_: object) -> None:
        grad_mode.enabled = self.previous.pop()

    def __call__(self, function: Function) -> Function:
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def generator(*args: Any, **kwargs: Any) -> Any:
                # Only while its body runs: between two values the caller is at work.
                values = function(*args, **kwargs)
                while True:
                    with set_grad_enabled(self.enabled):
                        try:
                            value = next(values)
                        except StopIteration:
                            return
                    yield value

            return generator  # type: ignore[return-value]

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with set_grad_enabled(self.enabled):
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]


class no_grad(set_grad_enabled):
    """Record nothing: `with ta.no_grad():` or `@ta.no_grad()`."""

    def __init__(self) -> None:
        super().__init__(False)


class enable_grad(set_grad_enabled):
    """Record again inside a `no_grad` block: `with ta.enable_grad():` or `@ta.enable_grad()`."""

    def __init__(self) -> None:
        super().__init__(True)


def is_grad_enabled() -> bool:
    """Whether operations are being recorded in this thread."""
    return grad_mode.enabled
