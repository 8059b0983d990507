"""The graph of recorded operations, and how gradients flow back through it.

    y = x * w            Tensor y -> Node(mul) -> Leaf of x
                                               -> Leaf of w
    y.backward(g)        visits each node once, outputs before inputs

A node points to the nodes of its inputs and never to the Tensor of its output. So there are no
reference cycles: a graph is freed with its last Tensor, without the garbage collector.

The algorithm, in the order of this file:

    count_uses      finds every node that the outputs depend on, and counts the users of each
    dependent_on    chooses those that depend on an input of the function `grad`; `backward` takes
                    them all
    users_first     gives the nodes in topological order: each comes after all of its users
    check_versions  refuses a graph if an array that it saved has been changed in place
    propagate       visits the nodes in that order. The gradient of a node is then complete. Its
                    rules compute one part of the gradient of each of its inputs, and `add_part`
                    adds it
    backward        adds the gradients of the leaves to their `.grad`
    grad            returns the gradients of its inputs
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, ValuesView
from dataclasses import dataclass
from threading import get_ident
from typing import Any, ClassVar, TypeVar

import numpy as np

from ..base.backend import Array, array_types, namespace, quiet, read_only
from ..base.checks import check_one_device, check_type
from ..errors import GraphError, InPlaceError, ShapeError
from .grad_mode import recording
from .versions import NotedVersion, Version

# The graph


class Leaf:
    """The end of a graph at a tensor that requires gradients; it holds the gradient.

    The leaf does not point to its tensor. So a graph keeps the gradient of a leaf alive, but not
    its array.
    """

    __slots__ = ("dtype", "grad", "retains_grad", "shape")
    plan = None
    parents = ()
    versions = ()

    def __init__(self, array: Array) -> None:
        self.shape = array.shape
        self.dtype = array.dtype
        self.grad: Any = None
        self.retains_grad = True


@dataclass(slots=True, eq=False, repr=False)
class Node:
    """One recorded operation, which `Tensor.grad_fn` gives; only the library writes to it.

    plan          the derivative rules that will run (`rules.Plan`)
    parents       the Node or Leaf of each argument, or None if it requires no gradients;
                  all of it is None after backward has freed the node
    saved         the arrays and values that the rules need
    versions      for each array that may be saved: its Version, and how many changes it had
    shape, dtype  of the output, and so of its gradient
    grad          the gradient, if `retains_grad` says that backward keeps it
    """

    plan: Any
    parents: Any  # tuple[Node | Leaf | None, ...]
    saved: Any  # tuple[Any, ...]
    versions: tuple[NotedVersion, ...]
    shape: tuple[int, ...]
    dtype: np.dtype
    grad: Any = None
    retains_grad: bool = False

    @property
    def name(self) -> str:
        """The name of the op, such as "matmul"."""
        return self.plan.name

    def saved_values(self) -> dict[str, Any]:
        """What is saved for the rules, by the name that they ask for; arrays are read-only."""
        saved = zip(self.plan.names, self.saved or (), strict=False)
        return {name: read_only(value) for name, value in saved}


def has_array(saved: Any) -> bool:
    """Whether there is an array in what a node saved, or in a part of it: the index of x[rows, 0].

    Backward frees such a node. One that saved only numbers, slices and shapes can stay.
    """
    return type(saved) in array_types or (type(saved) is tuple and any(map(has_array, saved)))


class TensorBase:
    """The part of a Tensor that recording needs: its array, the node that made it, its version.

    `tensor.py` derives Tensor from this class. Tensor needs the ops for its operators, so it is
    defined after them; ops return objects of the class in `tensor_class`: Tensor.
    """

    __slots__ = ("__weakref__", "_data", "_former_leaf", "_node", "_version", "_view")
    tensor_class: ClassVar[Any]
    _data: Array
    _node: Node | Leaf | None
    _version: Any  # a Version, or None for the result of a recorded op, which is read-only
    _view: Any  # its View, or None
    _former_leaf: Any  # its Leaf before it stopped requiring gradients; not set if it never has


AnyTensor = TypeVar("AnyTensor", bound=TensorBase)


def array_of(value: Any) -> Any:
    """The array of a Tensor; anything else as it is."""
    return value._data if isinstance(value, TensorBase) else value


def wrap(array: Array, node: Node | Leaf | None = None) -> Any:
    """A Tensor around an array that the library has made, without a copy or a check."""
    tensor = object.__new__(TensorBase.tensor_class)
    tensor._data = array if type(array) in array_types else np.asarray(array)
    tensor._node, tensor._view = node, None
    tensor._version = Version() if node is None else None
    return tensor


# Gradients


def count_uses(roots: Iterable[Node | Leaf]) -> dict[Node | Leaf, int]:
    """Every node that the roots depend on, and how many recorded ops use its output."""
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
                if parent not in uses:
                    uses[parent] = 0
                    stack.append(parent)
                uses[parent] += 1
    return uses


def dependent_on(targets: Sequence[Node | Leaf], uses: dict[Node | Leaf, int]) -> set[Node | Leaf]:
    """The nodes of `uses` that use a target, also through others; no other node runs its rules."""
    users: dict[Node | Leaf, list[Node | Leaf]] = {}
    for node in uses:
        for parent in node.parents or ():
            if parent is not None:
                users.setdefault(parent, []).append(node)
    useful: set[Node | Leaf] = set()
    stack = list(targets)
    while stack:
        for user in users.get(stack.pop(), ()):
            if user not in useful:
                useful.add(user)
                stack.append(user)
    return useful


def users_first(uses: dict[Node | Leaf, int]) -> Iterator[Node | Leaf]:
    """The nodes in topological order: each comes after all nodes that use its output."""
    left = dict(uses)
    ready = [node for node, number in uses.items() if number == 0]
    while ready:
        node = ready.pop()
        parents = node.parents
        yield node
        for parent in parents:
            if parent is not None:
                left[parent] -= 1
                if left[parent] == 0:
                    ready.append(parent)


def check_versions(nodes: Iterable[Any]) -> None:
    """Raise InPlaceError if an array that the rules need has been changed since the forward."""
    this_thread = get_ident()
    for node in nodes:
        for version, changes in node.versions:
            if version is None:
                continue
            writer = version.writer  # read first: a change that ends now has counted already
            if writer not in (0, this_thread) or version.changes != changes:
                raise InPlaceError(
                    f"an array that {node.name} needs for its gradient has been changed in "
                    "place since: call backward() before the change, or change a clone()"
                )


def propagate(
    roots: Sequence[Node | Leaf],
    gradients: Sequence[Any],
    targets: Sequence[Node | Leaf] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
) -> dict[Node | Leaf, Any]:
    """Gradients of the roots with respect to `targets`, or to every node that retains its `.grad`.

    `gradients` are those of the roots: arrays, or Tensors with `create_graph`. Each node is visited
    once, after all its users, because its gradient is a sum over them. Every gradient that is
    returned is new: no other object has its array.

    `recording` is not reset here. The caller runs this function in a copy of the context, and the
    copy ends with the call.
    """
    recording.set(create_graph)
    retain = create_graph if retain_graph is None else retain_graph
    uses = count_uses(roots)
    useful = uses if targets is None else dependent_on(targets, uses)
    wanted = None if targets is None else set(targets)
    reached = uses if wanted is None else wanted.union(useful)
    check_versions(useful)
    # The gradient of each node so far, and whether it is new.
    sums: dict[Any, tuple[Any, bool]] = {}
    for root, gradient in zip(roots, gradients, strict=True):
        add_part(sums, root, gradient, False)
    results: dict[Node | Leaf, Any] = {}
    node: Any
    for node in users_first(uses):
        gradient, is_new = sums.pop(node, (None, False))
        if gradient is not None and (node.retains_grad if wanted is None else node in wanted):
            results[node] = gradient if is_new else copy_of(gradient)
        if node.plan is not None:  # a Leaf has no plan
            if gradient is not None and node in useful:
                for parent, part, is_new in node.plan.run_rules(node, gradient, create_graph):
                    if parent in reached:
                        add_part(sums, parent, part, is_new)
            if not retain and node in useful and has_array(node.saved):
                node.parents = node.saved = None
    check_versions(useful)  # again: another thread may have changed an array meanwhile
    return results


def add_part(sums: dict[Any, tuple[Any, bool]], node: Any, part: Any, is_new: bool) -> None:
    """Add a part to the gradient of a node. Not in place, because others may have the array."""
    if node in sums:
        part = sums[node][0] + part
        is_new = not isinstance(part, TensorBase)
        part = namespace(part).asarray(part) if is_new else part  # NumPy's 0-d sum is a scalar
    sums[node] = part, is_new


def copy_of(gradient: Any) -> Any:
    return gradient.clone() if isinstance(gradient, TensorBase.tensor_class) else gradient.copy()


@quiet
def backward(tensor: Any, gradient: Any, retain_graph: bool | None, create_graph: bool) -> None:
    """See `Tensor.backward`.

    The setting of recording belongs to the context too, as those of NumPy's warnings. Both are
    changed in the copy that `quiet` makes, which ends with the call, even by an interrupt.
    """
    root = root_of(tensor)
    start = starting_gradient(tensor, gradient, create_graph)
    gradients = propagate([root], [start], None, retain_graph, create_graph)
    # All at the end, so that an interrupt during the walk leaves every `.grad` as it was.
    for node, value in gradients.items():
        value = value if create_graph else wrap(value)
        # Not in place, because the caller may have the gradient of the last call.
        node.grad = value if node.grad is None else node.grad + value


@quiet
def grad(
    outputs: TensorBase | Iterable[TensorBase],
    inputs: AnyTensor | Iterable[AnyTensor],
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> tuple[AnyTensor, ...]:
    """Return the gradients of `outputs` with respect to `inputs`; no `.grad` is changed.

    outputs, inputs: a Tensor or several; inputs may be leaves or computed tensors.
    grad_outputs: the vectors of the vector-Jacobian products, one for each output; 1 by default
        for an output of one element.
    retain_graph: do not free the graph; the default is `create_graph`.
    create_graph: record the computation of the gradients, so that they can be differentiated.
    allow_unused: return None for an input that no output depends on, instead of an error.

    Returns a tuple of Tensors, one for each input. Raises GraphError if an input or output was not
    recorded, if no output depends on an input, or if the graph has been freed.

        >>> x = ta.tensor(2.0, requires_grad=True)
        >>> (slope,) = ta.grad(x**3, x, create_graph=True)
        >>> ta.grad(slope, x)
        (tensor(12.),)
    """
    outs, ins = listed(outputs), listed(inputs)
    if grad_outputs is None or isinstance(grad_outputs, TensorBase):
        grad_outputs = [grad_outputs] * len(outs)
    check_type("grad_outputs is a Tensor or a sequence of Tensors", grad_outputs, (list, tuple))
    if len(grad_outputs) != len(outs):
        raise ValueError(f"grad got {len(outs)} outputs but {len(grad_outputs)} grad_outputs")
    roots = [root_of(output) for output in outs]
    starts = [
        starting_gradient(output, gradient, create_graph)
        for output, gradient in zip(outs, grad_outputs, strict=True)
    ]
    targets: list[Any] = [tensor._node for tensor in ins]
    if None in targets:
        raise GraphError(f"input {targets.index(None)} does not require gradients")
    if not allow_unused:
        uses = count_uses(roots)
        for i, target in enumerate(targets):
            if target not in uses:
                raise GraphError(f"no output depends on input {i}: allow_unused=True gives None")
    gradients = propagate(roots, starts, targets, retain_graph, create_graph)
    results: list[Any] = []
    for i, target in enumerate(targets):
        gradient = gradients.get(target)
        if gradient is not None and target in targets[:i]:
            gradient = copy_of(gradient)
        results.append(gradient if create_graph or gradient is None else wrap(gradient))
    return tuple(results)


def listed(tensors: Any) -> list[Any]:
    if isinstance(tensors, TensorBase):
        return [tensors]
    if isinstance(tensors, (Iterator, ValuesView)):  # as model.parameters(), or of a dict
        tensors = [*tensors]
    is_sequence = isinstance(tensors, (list, tuple))
    if not is_sequence or not all(isinstance(t, TensorBase) for t in tensors):
        kind = type(tensors).__name__
        raise TypeError(f"grad takes a Tensor or a sequence of Tensors, got {kind}: {tensors!r}")
    return list(tensors)


def root_of(tensor: Any) -> Node | Leaf:
    if tensor._node is None:
        raise GraphError(
            "this tensor was not recorded: no input has requires_grad=True, its op has no rule, "
            "no_grad() was on, or it is a copy: ta.tensor(losses) copies, ta.stack(losses) does not"
        )
    return tensor._node


def starting_gradient(tensor: Any, gradient: Any, create_graph: bool) -> Any:
    """The checked gradient of an output: an array, or a Tensor with `create_graph`."""
    data = tensor._data
    if gradient is None:
        if data.size != 1:
            raise GraphError(
                f"a tensor of shape {tensor.shape} has no single gradient: pass gradient= of that "
                "shape, or reduce it first, for instance with sum() or mean()"
            )
        start = namespace(data).ones_like(data)
        return wrap(start) if create_graph else start
    if not isinstance(gradient, TensorBase.tensor_class):
        raise TypeError(f"gradient must be a Tensor, got {type(gradient).__name__}")
    if gradient._data.shape != data.shape:
        raise ShapeError(f"gradient must have shape {tensor.shape}, got {gradient.shape}")
    if type(gradient._data) is not type(data):
        check_one_device("backward", "gradient", gradient._data, "the tensor", data)
    if gradient._data.dtype != data.dtype:
        gradient = gradient.to(data.dtype)
    return gradient if create_graph else gradient._data
