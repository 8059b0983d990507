"""Reverse-mode differentiation: how gradients flow back through what was recorded.

    y = x * w            Tensor y -> Node(mul) -> Leaf of x
                                               -> Leaf of w
    y.backward(g)        visits each node once, outputs before inputs

`propagate` is the whole algorithm; around it stand the search for what it has to visit, and the
two ways to ask for gradients, `backward` and `grad`.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from .backend import Array, namespace
from .errors import DeviceError, GraphError, ShapeError

if TYPE_CHECKING:
    from .rules import Plan
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


def reachable(roots: Iterable[Node | Leaf]) -> dict[Node | Leaf, int]:
    """Every node the roots depend on, with the number of recorded uses of its output."""
    uses: dict[Node | Leaf, int] = dict.fromkeys(roots, 0)
    stack = list(uses)
    while stack:
        parents = stack.pop().parents
        if parents is None:
            raise GraphError(
                "this graph has been freed: a first backward() or grad() went through it; "
                "pass retain_graph=True there, or compute the outputs again"
            )
        for parent in parents:
            if parent is not None:
                if parent in uses:
                    uses[parent] += 1
                else:
                    uses[parent] = 1
                    stack.append(parent)
    return uses


def leading_to(targets: Sequence[Node | Leaf], uses: dict[Node | Leaf, int]) -> set[Node | Leaf]:
    """Those nodes of `uses` through which a gradient must pass to arrive at a target."""
    users: dict[Node | Leaf, list[Node | Leaf]] = {}
    for node in uses:
        for parent in node.parents or ():
            if parent is not None:
                users.setdefault(parent, []).append(node)
    useful = {target for target in targets if target in uses}
    stack = list(useful)
    while stack:
        for user in users.get(stack.pop(), ()):
            if user not in useful:
                useful.add(user)
                stack.append(user)
    return useful


def propagate(
    roots: Sequence[Node | Leaf],
    gradients: Sequence[Any],
    targets: Sequence[Node | Leaf] | None = None,
    retain_graph: bool = False,
    create_graph: bool = False,
) -> dict[Node | Leaf, Any]:
    """Gradients of the roots with respect to `targets`, or to every node that holds a `.grad`.

    `gradients` are arrays, or Tensors when a graph of the gradients is wanted. A node is worked on
    once, after all its users, so a tensor used twice adds up before its gradient goes on:
    the order is topological, found by counting down uses, without recursion.

    The arrays returned belong to the caller alone.
    """
    uses = reachable(roots)
    useful = None if targets is None else leading_to(targets, uses)
    wanted = None if targets is None else set(targets)
    pending: dict[Any, Any] = {}
    owned: set[Any] = set()  # whose pending array was made here and is held nowhere else
    found: dict[Node | Leaf, Any] = {}
    node: Any

    for root, gradient in zip(roots, gradients, strict=True):
        pending[root] = gradient if root not in pending else pending[root] + gradient
    ready = [root for root in dict.fromkeys(roots) if uses[root] == 0]
    while ready:
        node = ready.pop()
        gradient = pending.pop(node, None)
        if gradient is not None and (node.hold_grad if wanted is None else node in wanted):
            if create_graph:
                found[node] = gradient.clone()  # another leaf may be given the same Tensor
            else:
                found[node] = gradient if node in owned else gradient.copy()
        plan, parents = node.plan, node.parents
        if plan is None:
            continue
        arrived: list[Any] | None = None
        if gradient is not None and (useful is None or node in useful):
            arrived = plan.pull(node, gradient, create_graph)
        if not retain_graph:
            node.parents = node.saved = None
        for i, parent in enumerate(parents):
            if parent is None:
                continue
            uses[parent] = left = uses[parent] - 1
            if left == 0:
                ready.append(parent)
            if arrived is None or (useful is not None and parent not in useful):
                continue
            gradient, arrived[i] = arrived[i], None
            if gradient is None:
                continue
            if parent not in pending:
                # A rule may hand on the gradient it was given, a view, or something it saved. An
                # array that owns its memory and that only this frame refers to is new.
                if not create_graph and sys.getrefcount(gradient) == 2 and gradient.base is None:
                    owned.add(parent)
                pending[parent] = gradient
            elif parent in owned:
                pending[parent] += gradient
            else:
                pending[parent] = pending[parent] + gradient
                if not create_graph:
                    owned.add(parent)
    return found


def backward(
    tensor: Tensor, gradient: Tensor | None, retain_graph: bool | None, create_graph: bool
) -> None:
    """`Tensor.backward`, which has the documentation."""
    root = root_of(tensor)
    start = starting_gradient(tensor, gradient, create_graph)
    retain = create_graph if retain_graph is None else retain_graph
    with set_grad_enabled(create_graph), np.errstate(all="ignore"):
        found = propagate([root], [start], None, retain, create_graph)
        # All at the end: an interrupt on the way leaves every `.grad` as it was.
        for node, value in found.items():
            value = value if create_graph else wrap(value)
            # Never in place: somebody may be holding the gradient of the last call.
            node.grad = value if node.grad is None else node.grad + value


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> tuple[Tensor | None, ...]:
    """Gradients of `outputs` with respect to `inputs`, returned instead of kept in `.grad`.

    outputs, inputs: a Tensor or several; inputs may be leaves or computed tensors.
    grad_outputs: for each output what its derivative is multiplied with; 1 for a single element.
    retain_graph: keep the graph for another call; by default only with `create_graph`.
    create_graph: record the gradients' own computation, so that they can be differentiated.
    allow_unused: None for an input the outputs do not depend on, instead of an error.

        >>> x = ta.tensor(2.0, requires_grad=True)
        >>> (slope,) = ta.grad(x**3, x, create_graph=True)
        >>> ta.grad(slope, x)
        (tensor(12.),)
    """
    outputs, inputs = listed(outputs), listed(inputs)
    if grad_outputs is None or isinstance(grad_outputs, TensorBase):
        grad_outputs = [grad_outputs] * len(outputs)
    if len(grad_outputs) != len(outputs):
        raise ValueError(f"grad got {len(outputs)} outputs but {len(grad_outputs)} grad_outputs")
    roots = [root_of(output) for output in outputs]
    starts = [
        starting_gradient(output, gradient, create_graph)
        for output, gradient in zip(outputs, grad_outputs, strict=True)
    ]
    targets: list[Any] = [tensor._node for tensor in inputs]
    if None in targets:
        raise GraphError(f"input {targets.index(None)} does not require gradients")
    if not allow_unused:
        uses = reachable(roots)
        for i, target in enumerate(targets):
            if target not in uses:
                raise GraphError(
                    f"no output depends on input {i}: pass allow_unused=True to get None for it"
                )
    retain = create_graph if retain_graph is None else retain_graph
    with set_grad_enabled(create_graph), np.errstate(all="ignore"):
        found = propagate(roots, starts, targets, retain, create_graph)
    results: list[Tensor | None] = []
    for i, target in enumerate(targets):
        gradient = found.get(target)
        if gradient is not None and target in targets[:i]:
            gradient = gradient.clone() if create_graph else gradient.copy()
        results.append(gradient if create_graph or gradient is None else wrap(gradient))
    return tuple(results)


def listed(tensors: Any) -> list[Any]:
    found = [tensors] if isinstance(tensors, TensorBase) else tensors
    if not isinstance(found, (list, tuple)) or not all(isinstance(t, TensorBase) for t in found):
        kind = type(tensors).__name__
        raise TypeError(f"grad takes a Tensor or a sequence of Tensors, got {kind}: {tensors!r}")
    return list(found)


def root_of(tensor: Tensor) -> Node | Leaf:
    if tensor._node is None:
        raise GraphError(
            "this tensor was not recorded: none of its inputs requires gradients, or it was "
            "computed under no_grad(); make a leaf with requires_grad=True"
        )
    return tensor._node


def starting_gradient(tensor: Tensor, gradient: Tensor | None, create_graph: bool) -> Any:
    """The gradient the walk begins with, checked: an array, or a Tensor with `create_graph`."""
    data = tensor._data
    if gradient is None:
        if data.size != 1:
            raise GraphError(
                f"a tensor of shape {tensor.shape} has no single gradient: pass gradient= of that "
                "shape, or reduce it first, for instance with sum() or mean()"
            )
        start = namespace(data).ones_like(data)
        return wrap(start) if create_graph else start
    if not isinstance(gradient, TensorBase):
        raise TypeError(f"gradient must be a Tensor, got {type(gradient).__name__}")
    if gradient.shape != tensor.shape:
        raise ShapeError(f"gradient must have shape {tensor.shape}, got {gradient.shape}")
    if gradient.device != tensor.device:
        raise DeviceError(f"gradient is on {gradient.device}, the tensor on {tensor.device}")
    gradient = gradient.to(tensor.dtype)
    return gradient if create_graph else gradient._data
