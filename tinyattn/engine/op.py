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

from ..base.backend import Array, array_types, is_array, quiet
from ..base.checks import describe, explain, refuse_foreign
from ..errors import DtypeError
from .autograd import Node, TensorBase, wrap
from .grad_mode import recording
from .promotion import promoted
from .rules import Spec

ndarray = np.ndarray
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
        try:
            out = spec.forward(*arrays, **options)
        except RuntimeWarning:  # the user made NumPy's warnings of inf and NaN errors
            out = quiet(spec.forward)(*arrays, **options)
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
        viewed = viewed_argument(out, args)
        versions.append(NEVER_WRITTEN if viewed is None else versions[viewed])  # of `out`
        node = None
        if wanted and differentiable and recording.get():
            for i, arg in enumerate(args):
                if type(arg) in array_types:
                    arrays[i] = arg.copy()  # because the caller may write to it later
            plan = spec.plan(wanted, len(arrays))
            kept = plan.keep((*arrays, out), options, saved)
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

    wrapped: Any = functools.wraps(forward)(apply)
    wrapped.vjp = vjp
    wrapped.spec = spec
    if spec.is_builtin:
        registry[spec.name] = wrapped
    return wrapped


def unwrapped(args: tuple[Any, ...]) -> tuple[list[Any], list[Any], list[Any], int]:
    """The arrays, nodes and versions of the arguments; bit i of the last is set if argument i is a
    Tensor that requires gradients."""
    arrays, parents, versions, wanted = [], [], [], 0
    for i, arg in enumerate(args):
        if isinstance(arg, TensorBase):
            arrays.append(arg._data)
            parents.append(arg._node)
            wanted |= (arg._node is not None) << i
            version = arg._version
            versions.append(NEVER_WRITTEN if version is None else (version, version.changes))
        else:
            arrays.append(arg)
            parents.append(None)
            versions.append(NEVER_WRITTEN)
    return arrays, parents, versions, wanted


def viewed_argument(out: Array, args: tuple[Any, ...]) -> int | None:
    """The position of the argument whose memory `out` is, or is a view of."""
    base = out.base
    if base is not None:
        for i, arg in enumerate(args):
            if isinstance(arg, TensorBase) and (base is arg._data or base is arg._data.base):
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
