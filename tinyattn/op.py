"""`op`: one way to declare a differentiable operation, for the library and for its users alike.

    @op
    def mul(x, y):                 # the forward works on plain arrays
        return x * y

    @mul.vjp("x")                  # from the gradient of the output to the gradient of x
    def dx(grad, y):
        return grad * y

    @mul.vjp("y")
    def dy(grad, x):
        return grad * x

Positional arguments may be Tensors. An argument behind a bare `*` is an option (a number, a shape,
a flag). A derivative rule asks for what it needs by name, and nothing else is kept:

    grad           always the first: the gradient of the output, which a rule must not change
    an argument    the array that was passed, or the value of an option
    out            the output; it is cheaper than an argument where either would do
    shape, shapes  the shape of the first argument, or of all of them
    saved          what the forward kept besides: with `@op(saves=True)` it returns `(out, saved)`

A rule that covers several arguments, `@layer_norm.vjp("x", "weight", "bias")`, returns as many
gradients. If an argument was broadcast, its gradient comes back too large; `Plan.fit` in
`rules.py` sums it, for all ops, so no rule has to.

Rules are run on arrays. If a graph of the gradient is asked for (`create_graph=True`), the same
rule is run on Tensors: overloaded operators and other ops then record themselves, which gives
derivatives of any order. `saved` is None then, because it is no part of the graph, and the rule
must do without it. An op that is called without a Tensor is its forward, on whatever arrays it was
given.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .autograd import Node, TensorBase, Version, grad_mode, wrap
from .backend import Array, is_array, read_only
from .errors import DtypeError
from .promotion import promoted
from .rules import Spec, describe, retry_or_explain

ndarray = np.ndarray
NUMBERS = (float, int)
registry: dict[str, Callable[..., Any]] = {}  # the library's own ops; the tests go through them


def op(
    forward: Callable[..., Any] | None = None,
    *,
    promote: bool = False,
    floats: bool = False,
    saves: bool = False,
    differentiable: bool = True,
) -> Any:
    """Declare a differentiable op; see the top of this module, and docs/own_op.md for a lesson.

    promote: for arithmetic on two arguments of different dtypes. The result has the dtype that
        PyTorch gives it: a float tensor keeps its precision when it meets integers, Python numbers
        or 0-d tensors.
    floats: for a function of one argument that has no meaning in integers; they become float32.
    saves: the forward returns (out, saved), and rules may ask for `saved`.
    differentiable: False for results without a gradient, such as comparisons. They are not
        recorded.

    Returns the op, with a method `vjp(*arguments)` that declares a derivative rule.
    """
    if forward is None:
        return functools.partial(
            op, promote=promote, floats=floats, saves=saves, differentiable=differentiable
        )
    spec = Spec(forward, saves)
    count = len(spec.arguments)

    def apply(*args: Any, **options: Any) -> Any:
        """Run the forward on arrays, and record it if an argument requires gradients."""
        if len(args) < count:
            args = spec.bind(args, options)
        arrays = [arg._data if isinstance(arg, TensorBase) else arg for arg in args]
        parents = tuple([arg._node if isinstance(arg, TensorBase) else None for arg in args])
        versions = [version_of(arg) for arg in args]
        if floats and arrays[0].dtype.kind != "f":
            arrays[0] = arrays[0].astype(np.float32)
        if not spec.is_own:  # a forward that writes to its arguments would change them for all
            arrays = [read_only(array) for array in arrays]
        try:
            out = forward(*arrays, **options)
        except Exception as error:
            out = retry_or_explain(spec, arrays, options, error)
        saved = None
        if saves:
            out, saved = parted(out, spec.name)
        if not any(isinstance(arg, TensorBase) for arg in args):
            return out
        if type(out) is not ndarray:
            out = as_array(out, spec.name)
        if promote:
            out = promoted(out, arrays)
        wanted = sum(1 << i for i, node in enumerate(parents) if node is not None)
        node = None
        if wanted and differentiable and grad_mode.enabled:
            for i, arg in enumerate(args):
                if type(arg) is ndarray:
                    arrays[i] = arg.copy()  # the caller's own, who may write to it again
            plan = spec.plan(wanted, len(arrays))
            kept = plan.keep((*arrays, out), options, saved)
            node = Node(plan, parents, kept, plan.versions(versions), out)
        result = wrap(out, node)
        if getattr(out, "base", None) is not None:
            share_version(result, args)
        return result

    def vjp(*covers: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def register(rule: Callable[..., Any]) -> Callable[..., Any]:
            spec.add_rule(covers, rule)
            return rule

        return register

    is_pair = promote and count == 2 and not spec.options and spec.is_own
    wrapped: Any = functools.wraps(forward)(pair_path(spec, apply) if is_pair else apply)
    wrapped.vjp = vjp
    wrapped.spec = spec
    if spec.is_own:
        registry[spec.name] = wrapped
    return wrapped


def pair_path(spec: Spec, apply: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """A second path, for two arguments: it does what `apply` does, without the loops.

    One path is enough to understand. This one is here because a product of two small arrays then
    takes half the time; delete it, and nothing else changes.
    """

    def apply_to_two(x: Any, y: Any) -> Any:
        a, x_node = (x._data, x._node) if isinstance(x, TensorBase) else (x, None)
        b, y_node = (y._data, y._node) if isinstance(y, TensorBase) else (y, None)
        if (a is x and type(a) not in NUMBERS) or (b is y and (a is x or type(b) not in NUMBERS)):
            return apply(x, y)
        versions = [version_of(x), version_of(y)]
        try:
            out = spec.forward(a, b)
        except Exception as error:
            out = retry_or_explain(spec, (a, b), {}, error)
        if type(out) is not ndarray:
            out = as_array(out, spec.name)
        if getattr(a, "dtype", None) is not out.dtype or getattr(b, "dtype", None) is not out.dtype:
            out = promoted(out, (a, b))
        wanted = (x_node is not None) + 2 * (y_node is not None)
        if wanted == 0 or not grad_mode.enabled:
            return wrap(out)
        plan = spec.plan(wanted, 2)
        kept = plan.keep((a, b, out), {}, None)
        return wrap(out, Node(plan, (x_node, y_node), kept, plan.versions(versions), out))

    return apply_to_two


def version_of(argument: Any) -> tuple[Version, int] | None:
    """The version of a Tensor, and its number of changes until now."""
    version = argument._version if isinstance(argument, TensorBase) else None
    return None if version is None else (version, version.changes)


def share_version(result: Any, args: tuple[Any, ...]) -> None:
    """A view has the version of the tensor whose memory it shows; None if that was computed."""
    base = result._data.base
    for arg in args:
        if isinstance(arg, TensorBase) and (base is arg._data or base is arg._data.base):
            result._version = arg._version


def parted(result: Any, name: str) -> tuple[Any, Any]:
    """(out, saved); an array of two rows is no such pair."""
    if type(result) is not tuple or len(result) != 2:
        raise DtypeError(
            f"the forward of {name} is declared with saves=True and must return (out, saved), got "
            f"{describe(result)}"
        )
    return result


def as_array(out: Any, name: str) -> Array:
    """The result of a forward that is no plain NumPy array: a scalar of NumPy's, an array of
    CuPy's, or a mistake."""
    if isinstance(out, (ndarray, np.generic)):
        return np.asarray(out)
    if is_array(out) and not isinstance(out, TensorBase):
        return out
    hint = "; (out, saved) needs @op(saves=True)" if type(out) is tuple else ""
    raise DtypeError(f"the forward of {name} must return an array, got {type(out).__name__}{hint}")
