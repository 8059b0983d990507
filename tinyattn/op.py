"""`op`: one way to declare a differentiable operation, for the library and for its users alike.

    @op
    def mul(x, y):                 # the forward works on plain arrays
        return x * y

    @mul.vjp("x")                  # how a gradient of the output becomes one of x
    def _(grad, y):
        return grad * y

    @mul.vjp("y")
    def _(grad, x):
        return grad * x

Positional arguments may be Tensors; what stands behind a bare `*` is an option (a number, a shape,
a flag). A derivative rule asks for what it needs by name, and nothing else is kept:

    grad           first, always: the gradient of the output, which a rule must not change
    an argument    the array that was passed, or an option's value
    out            the output; cheaper than an argument where either would do
    shape, shapes  the shape of the first argument, or of all of them
    saved          what the forward kept besides: a forward whose rule asks for `saved` returns
                   `(out, saved)`

A rule that covers several arguments, `@layer_norm.vjp("x", "weight", "bias")`, returns as many
gradients. A gradient of an argument that was broadcast comes back too large; `pull` below reduces
it, in this one place, so that no rule needs to.

Rules are run on arrays. When a graph of the gradient is asked for (`create_graph=True`) the same
rule is run on Tensors: overloaded operators and other ops then record themselves, which gives
derivatives of any order. `saved` is None in that case, since it is no part of the graph, and the
rule must do without. An op called with no Tensor among its arguments is simply its forward, on
whatever arrays it was given.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .autograd import Node, TensorBase, grad_mode, wrap
from .backend import Array, array_types, is_array
from .errors import DtypeError
from .locks import WriteLock, alive
from .promotion import describe, promoted, retry_or_explain
from .rules import Plan, Spec

if TYPE_CHECKING:
    from .tensor import Tensor

ndarray = np.ndarray
new = object.__new__
registry: dict[str, Callable[..., Any]] = {}  # the library's own ops, which the tests go through
NO_OTHERS: dict[str, Any] = {}
ONE = (1, 1)  # the plan of one argument that wants a gradient


def lock_of(array: Any) -> tuple[Any, ...]:
    """A lock on an array, for the end of a node's saved values; nothing for a number."""
    if type(array) not in array_types:
        return ()
    reference = alive.get(id(array))
    return ((reference is not None and reference()) or WriteLock(array),)


def protect(out: Any, array: Any, node: Any) -> None:
    """Make `out` read-only if it is a view of a computed array, which a graph may need."""
    base = getattr(out, "base", None)
    if base is None or node is None or node.plan is None or type(out) is not ndarray:
        return
    if base is array or base is array.base:
        out.setflags(write=False)


def as_array(out: Any, name: str) -> Array:
    """What a forward returned, where it is no plain NumPy array: a scalar of NumPy's, an array of
    CuPy's, or a mistake."""
    if isinstance(out, (ndarray, np.generic)):
        return np.asarray(out)
    if is_array(out) and not isinstance(out, TensorBase):
        return out
    hint = "; (out, saved) is for a rule that asks for `saved`" if type(out) is tuple else ""
    raise DtypeError(f"the forward of {name} must return an array, got {type(out).__name__}{hint}")


def parted(result: Any, name: str) -> tuple[Any, Any]:
    """(out, saved), which an array of two rows is not."""
    if type(result) is not tuple or len(result) != 2:
        raise DtypeError(
            f"the forward of {name} must return (out, saved), since a rule asks for `saved`, got "
            f"{describe(result)}"
        )
    return result


def record(
    plan: Plan, values: tuple[Any, ...], parents: tuple[Any, ...], others: dict[str, Any]
) -> Tensor:
    """The output as a Tensor, with the graph's memory of the call that made it.

    `values` are the arguments' arrays and, last, the output.
    """
    out = values[-1]
    saved = plan.pick(values) if plan.sources else ()
    for name in plan.names:
        if name == "shape":
            saved += (values[0].shape,)
        elif name == "shapes":
            saved += ([getattr(value, "shape", ()) for value in values[:-1]],)
        else:
            saved += (others[name],)
    for place in plan.locked:
        array, parent = values[place], parents[place]
        # Fresh results of recorded ops are out of everybody's reach; anything else is not.
        if (parent is None or parent.plan is None or array.base is not None) and (
            type(array) in array_types
        ):
            reference = alive.get(id(array))
            saved += ((reference is not None and reference()) or WriteLock(array),)
    node = Node()
    node.plan = plan
    node.parents = parents
    node.saved = saved
    node.shape = out.shape
    node.dtype = out.dtype
    node.grad = None
    node.hold_grad = False
    tensor = new(TensorBase.full)
    tensor._data = out
    tensor._node = node
    return tensor


def op(
    forward: Callable[..., Any] | None = None,
    *,
    promote: bool = False,
    floats: bool = False,
    differentiable: bool = True,
) -> Any:
    """Declare a differentiable op; see the top of this module, and docs/own_op.md for a lesson.

    `promote=True` is for arithmetic on two arguments of possibly different dtype: the result then
    has the dtype PyTorch gives it (a float tensor keeps its precision when it meets integers,
    Python numbers or 0-d tensors). `floats=True` is for functions of one argument that have no
    meaning in integers, which become float32 first. `differentiable=False` is for results that
    carry no gradient, such as comparisons: they are never recorded.
    """
    if forward is None:
        return functools.partial(op, promote=promote, floats=floats, differentiable=differentiable)
    spec = Spec(forward)
    plans, pair_plans = spec.plans, spec.pair_plans
    count = len(spec.arguments)

    def plain(*args: Any, **options: Any) -> Any:
        """The forward alone, on arguments of which none is a Tensor: what rules mostly do."""
        out = forward(*args, **options)
        return out[0] if spec.forward_saves else out

    def apply(*args: Any, **options: Any) -> Any:
        if len(args) < count:
            args = spec.bind(args, options)
        arrays: list[Any] = []
        parents: list[Any] = []
        wanted = 0
        bit = 1
        for argument in args:
            if isinstance(argument, TensorBase):
                node = argument._node
                arrays.append(argument._data)
                parents.append(node)
                if node is not None:
                    wanted |= bit
            else:
                arrays.append(argument)
                parents.append(None)
            bit <<= 1
        try:
            out = forward(*arrays, **options)
        except Exception as error:
            out = retry_or_explain(spec, arrays, options, error)
        kept = None
        if spec.forward_saves:
            out, kept = parted(out, spec.name)
        if wanted == 0 and not any(isinstance(argument, TensorBase) for argument in args):
            return out
        if type(out) is not ndarray:
            out = as_array(out, spec.name)
        if promote:
            out = promoted(out, arrays)
        if wanted == 0 or not differentiable or not grad_mode.enabled:
            for array, node in zip(arrays, parents, strict=True):
                protect(out, array, node)
            return wrap(out)
        plan = plans.get((wanted, len(arrays))) or spec.plan(wanted, len(arrays))
        others = {**spec.options, **options, "saved": kept} if plan.names else NO_OTHERS
        for i, argument in enumerate(args):
            if type(argument) is ndarray:
                arrays[i] = argument.copy()  # the caller's own, who may write to it again
        return record(plan, (*arrays, out), tuple(parents), others)

    def apply_to_two(x: Any, y: Any) -> Any:
        """`apply` for two arguments, without its loops: most of the time a small op takes."""
        if isinstance(x, TensorBase):
            a = array = x._data
            x_node = x._node
            if isinstance(y, TensorBase):
                b = y._data
                y_node = y._node
            elif type(y) is float or type(y) is int:
                b = y
                y_node = None
            else:
                return apply(x, y)
        elif not isinstance(y, TensorBase):
            return plain(x, y)
        elif type(x) is float or type(x) is int:
            a = x
            x_node = None
            b = array = y._data
            y_node = y._node
        else:
            return apply(x, y)
        try:
            out = forward(a, b)
        except Exception as error:
            out = retry_or_explain(spec, (a, b), {}, error)
        if type(out) is not ndarray:
            out = as_array(out, spec.name)
        dtype = out.dtype
        if array.dtype is not dtype or (type(b) is ndarray and b.dtype is not dtype):
            out = promoted(out, (a, b))
            dtype = out.dtype
        tensor = new(TensorBase.full)
        tensor._data = out
        wanted = (x_node is not None) + 2 * (y_node is not None)
        if wanted == 0 or not grad_mode.enabled:
            tensor._node = None
            return tensor
        plan = pair_plans[wanted] or spec.plan(wanted, 2)
        saved: tuple[Any, ...] = ()
        if plan.sources:
            saved = plan.pick((a, b, out))
            if plan.locks_first and (x_node is None or x_node.plan is None or a.base is not None):
                saved += lock_of(a)
            if plan.locks_second and (y_node is None or y_node.plan is None or b.base is not None):
                saved += lock_of(b)
        tensor._node = node = Node()
        node.plan = plan
        node.parents = (x_node, y_node)
        node.saved = saved
        node.shape = out.shape
        node.dtype = dtype
        node.grad = None
        node.hold_grad = False
        return tensor

    def apply_to_one(*args: Any, **options: Any) -> Any:
        """`apply` for one argument."""
        if len(args) != 1:  # given by name, or a mistake
            return apply(*args, **options)
        (x,) = args
        if not isinstance(x, TensorBase):
            return plain(x, **options)
        a, node = x._data, x._node
        if node is None and floats and a.dtype.kind != "f":
            a = a.astype(np.float32)
        try:
            out = forward(a, **options)
        except Exception as error:
            out = retry_or_explain(spec, (a,), options, error)
        kept = None
        if spec.forward_saves:
            out, kept = parted(out, spec.name)
        if type(out) is not ndarray:
            out = as_array(out, spec.name)
        if node is None or not grad_mode.enabled:
            protect(out, a, node)
            tensor = new(TensorBase.full)
            tensor._data = out
            tensor._node = None
            return tensor
        plan = plans.get(ONE) or spec.plan(*ONE)
        others = {**spec.options, **options, "saved": kept} if plan.names else NO_OTHERS
        return record(plan, (a, out), (node,), others)

    lane = apply
    if promote and count == 2 and not spec.options:
        lane = apply_to_two
    elif count == 1 and differentiable and spec.variadic is None:
        lane = apply_to_one

    def vjp(*covers: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def register(rule: Callable[..., Any]) -> Callable[..., Any]:
            spec.add_rule(covers, rule)
            return rule

        return register

    wrapped: Any = functools.wraps(forward)(lane)
    wrapped.vjp = vjp
    wrapped.spec = spec
    if (forward.__module__ or "").startswith("tinyattn."):
        registry[spec.name] = wrapped
    return wrapped
