"""`op`: how a differentiable operation is declared, in the library and in your own code.

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
a flag). The names in the signature of a rule say what it needs, and only that is saved:

    grad           the gradient of the output; always the first; a rule must not change it
    an argument    the array, or the value of an option
    out            the output; often free to save, because the next operation saves it too
    shape, shapes  the shape of the first argument, or of all arguments
    saved          the second result of the forward: with `@op(saves=True)` it returns (out, saved)

A rule for several arguments, `@layer_norm.vjp("x", "weight", "bias")`, returns as many gradients.
If an argument was broadcast, its gradient has the larger shape; `Plan.fit` in `rules.py` sums it,
so no rule has to.

Backward runs the rules on arrays. With `create_graph=True` it runs the same rules on Tensors: their
operators, and the ops they call, are recorded, which gives derivatives of any order. `saved` is
then None, because it is not part of the graph, so the rule computes it again. An op that is called
without any Tensor returns the result of its forward, and records nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .autograd import Node, TensorBase, wrap
from .backend import Array, array_types, is_array, quiet, read_only
from .checks import describe, explain, refuse_foreign
from .errors import DtypeError
from .grad_mode import recording
from .promotion import promoted
from .rules import Spec
from .versions import Version

ndarray = np.ndarray
NUMBERS = (float, int)
NEVER_WRITTEN = (None, 0)  # what `version_of` gives for results of recorded ops, and for numbers
registry: dict[str, Callable[..., Any]] = {}  # the library's own ops by name, for the tests


def op(
    forward: Callable[..., Any] | None = None,
    *,
    promote: bool = False,
    floats: bool = False,
    saves: bool = False,
    differentiable: bool = True,
) -> Any:
    """Declare a differentiable op; see the top of this module, and docs/course/17_make_it_yours.md.

    promote: give the result PyTorch's dtype if two arguments differ in dtype: a float tensor stays
        as precise as it is beside integers, Python numbers and 0-d tensors.
    floats: turn integers into float32 first, for functions such as exp.
    saves: the forward returns (out, saved), and rules may ask for `saved`.
    differentiable: False for results without a gradient, such as comparisons; never recorded.

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
        arrays, parents, versions, wanted = unwrapped(args)
        if floats and arrays[0].dtype.kind != "f":
            arrays[0] = arrays[0].astype(np.float32)
        if not spec.is_builtin:  # a user's forward might write to them
            arrays = [read_only(array) for array in arrays]
        try:
            out = forward(*arrays, **options)
        except RuntimeWarning:  # the user made NumPy's warnings of inf and NaN errors
            out = quiet(forward)(*arrays, **options)
        except Exception as error:
            explain(spec.name, arrays, error)
            raise
        out, saved = out_and_saved(out, spec.name) if saves else (out, None)
        if not wanted and not any(isinstance(arg, TensorBase) for arg in args):
            return out
        if type(out) is not ndarray:
            out = as_array(out, spec.name, arrays)
        if promote:
            out = promoted(out, arrays)
        viewed = viewed_argument(out, args) if out.base is not None or not spec.is_builtin else None
        if viewed is None and not spec.is_builtin:
            out = out.copy()  # because a user's forward may write to it at the next call
        versions.append(NEVER_WRITTEN if viewed is None else versions[viewed])  # of `out`
        node = None
        if wanted and differentiable and recording.get():
            for i, arg in enumerate(args):
                if type(arg) in array_types:
                    arrays[i] = arg.copy()  # because the caller may write to it later
            plan = spec.plan(wanted, len(arrays))
            result = out if spec.is_builtin else read_only(out)  # a user's rule might write to it
            kept = plan.keep((*arrays, result), options, saved)
            node = Node(plan, tuple(parents), kept, plan.watched_versions(versions), out)
        tensor = wrap(out, node)
        if viewed is not None:
            tensor._version = versions[viewed][0]
        return tensor

    def vjp(*covers: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def register(rule: Callable[..., Any]) -> Callable[..., Any]:
            spec.add_rule(covers, rule)
            return rule

        return register

    is_pair = promote and differentiable and count == 2 and not spec.options and spec.is_builtin
    wrapped: Any = functools.wraps(forward)(pair_path(spec, apply) if is_pair else apply)
    wrapped.vjp = vjp
    wrapped.spec = spec
    if spec.is_builtin:
        registry[spec.name] = wrapped
    return wrapped


def pair_path(spec: Spec, apply: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """`apply` again, for two arguments and without its loops. You need not read it.

    It is here because a product of two small arrays takes half the time this way. Delete it, and
    nothing else changes.
    """

    def apply_to_two(x: Any, y: Any) -> Any:
        a, x_node = (x._data, x._node) if isinstance(x, TensorBase) else (x, None)
        b, y_node = (y._data, y._node) if isinstance(y, TensorBase) else (y, None)
        if (a is x and type(a) not in NUMBERS) or (b is y and (a is x or type(b) not in NUMBERS)):
            return apply(x, y)
        versions = [version_of(x), version_of(y), NEVER_WRITTEN]
        try:
            out = spec.forward(a, b)
        except RuntimeWarning:
            out = quiet(spec.forward)(a, b)
        except Exception as error:
            explain(spec.name, (a, b), error)
            raise
        if type(out) is not ndarray:
            out = as_array(out, spec.name, (a, b))
        dtype = out.dtype
        if (a is not x and a.dtype is not dtype) or (b is not y and b.dtype is not dtype):
            out = promoted(out, (a, b))
        wanted = (x_node is not None) + 2 * (y_node is not None)
        if wanted == 0 or not recording.get():
            return wrap(out)
        plan = spec.plan(wanted, 2)
        kept = plan.keep((a, b, out), {}, None)
        return wrap(out, Node(plan, (x_node, y_node), kept, plan.watched_versions(versions), out))

    return apply_to_two


def unwrapped(args: tuple[Any, ...]) -> tuple[list[Any], list[Any], list[Any], int]:
    """The arrays, nodes and versions of the arguments; bit i of the last is set if argument i is a
    Tensor that requires gradients."""
    arrays, parents, versions, wanted = [], [], [], 0
    for i, arg in enumerate(args):
        if isinstance(arg, TensorBase):
            arrays.append(arg._data)
            parents.append(arg._node)
            wanted |= (arg._node is not None) << i
        else:
            arrays.append(arg)
            parents.append(None)
        versions.append(version_of(arg))
    return arrays, parents, versions, wanted


def version_of(argument: Any) -> tuple[Version | None, int]:
    """The Version of a Tensor, and how many changes it has counted so far."""
    version = argument._version if isinstance(argument, TensorBase) else None
    return NEVER_WRITTEN if version is None else (version, version.changes)


def viewed_argument(out: Array, args: tuple[Any, ...]) -> int | None:
    """The position of the argument whose memory `out` is, or is a view of."""
    base = getattr(out, "base", None)
    for i, arg in enumerate(args):
        if isinstance(arg, TensorBase):
            array = arg._data
            if out is array or (base is not None and (base is array or base is array.base)):
                return i
    return None


def out_and_saved(result: Any, name: str) -> tuple[Any, Any]:
    """`result` if it is a pair (out, saved); an array of two rows is not."""
    if type(result) is not tuple or len(result) != 2:
        raise DtypeError(
            f"the forward of {name} is declared with saves=True and must return (out, saved), got "
            f"{describe(result)}"
        )
    return result


def as_array(out: Any, name: str, arguments: Sequence[Any]) -> Array:
    """A result that is no NumPy array: a NumPy scalar, a CuPy array, or an error."""
    if isinstance(out, (ndarray, np.generic)):
        return np.asarray(out)
    if is_array(out):
        return out
    refuse_foreign(name, arguments)  # whose operators may have made the result
    hint = "; (out, saved) needs @op(saves=True)" if type(out) is tuple else ""
    raise DtypeError(f"the forward of {name} must return an array, got {type(out).__name__}{hint}")
