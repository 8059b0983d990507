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

Positional arguments may be Tensors; numbers, shapes and flags among them are saved as they are. An
argument behind a bare `*` is an option, which is given by its name. The names in the signature of a
rule say what it needs, and only that is saved:

    grad           the gradient of the output; always the first; a rule must not change it
    an argument    the array, or the value of an option
    out            the output; often free to save, because the next operation saves it too
    shape, shapes  the shape of the first argument, or of all arguments
    options        all options, as a dict
    saved          the second result of the forward: with `@op(saves=True)` it returns (out, saved)

In the engine this second result is called `extra`, because `Node.saved` holds all saved values.

The name of a rule is free. The library writes `dx` for the gradient of x, and defines `dx` anew
beneath each op.

A rule for several arguments, `@layer_norm.vjp("x", "weight", "bias")`, returns as many gradients.
A rule need not undo a broadcast: `Plan.in_shape_of` in `rules.py` sums the gradient to the shape of
the argument.

Backward runs the rules on arrays. With `create_graph=True` it runs the same rules on Tensors, and
records what they compute, for derivatives of any order. `saved` is then None, because it is not
part of the graph. So the rule computes it again.

Every call of an op goes through `apply`. It runs the forward on arrays. If no argument is a Tensor,
it returns that result. Else it makes a Tensor of it, with a Node if an argument requires gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, TypedDict, Unpack, overload

import numpy as np

from ..base import checks
from ..base.backend import Array, Function, array_types, is_array, is_tensor, quietly
from ..errors import DtypeError
from .autograd import Node, TensorBase, wrap
from .grad_mode import recording
from .guard import copied
from .promotion import check_fit, number_beside, promoted
from .rules import Spec
from .versions import NO_VERSION, NotedVersion, note_view

ndarray = np.ndarray
NUMBERS = int, float, np.integer


def declare(forward: Callable[..., Any], **switches: bool) -> Any:
    """Make an op of a forward; `op`, at the end of this file, describes the switches."""
    if isinstance(forward, type) or not callable(forward) or not hasattr(forward, "__name__"):
        raise TypeError(f"op takes a function with a name, got {forward!r}: write it with def")
    spec = Spec(forward, **switches)

    def apply(*args: Any, **options: Any) -> Any:
        """Run the forward on arrays, and record it if an argument requires gradients."""
        if len(args) != spec.count or options:
            args = spec.bind(args, options)
        call = unwrapped(args, spec, spec.differentiable and recording.get())
        arrays, _, _, _, other_positions = call
        if spec.wants_tensor and 0 in other_positions:
            # Arrays are taken if no argument is a Tensor, because a derivative rule runs on them;
            # and NumPy's numbers, because it makes these of arrays without dimensions.
            is_plain = is_array(arrays[0]) or isinstance(arrays[0], np.generic)
            if not is_plain or len(other_positions) < len(args):
                raise_no_tensor(spec, 0, args)
        try:
            if spec.floats and is_array(arrays[0]) and arrays[0].dtype.kind != "f":
                arrays[0] = arrays[0].astype(np.float32)
            out = spec.forward(*arrays, **options)
        except (RuntimeWarning, FloatingPointError):  # the user lets NumPy raise these for NaN
            out = quietly(spec.forward, *arrays, **options)
        except Exception as error:
            raise_clearer_error_of(spec, args, arrays, error)
            raise
        out, extra = out_and_extra(out, spec.name) if spec.saves else (out, None)
        if len(other_positions) == len(args):  # no argument is a Tensor
            if (spec.is_builtin or spec.rules) and type(args[0]) in (list, tuple):
                raise_no_tensor(spec, 0, args)
            return out
        return result_tensor(spec, args, options, call, out, extra)

    def vjp(*arguments: str) -> Callable[[Function], Function]:
        if not all(isinstance(name, str) for name in arguments):
            raise TypeError(
                f"@{spec.name}.vjp takes names of arguments in brackets, as in "
                f"@{spec.name}.vjp({next(iter(spec.arguments), 'x')!r}), got {arguments}"
            )

        def register(rule: Function) -> Function:
            spec.add_rule(arguments, rule)
            return rule

        return register

    declared: Any = wraps(forward)(apply)
    declared.vjp = vjp
    declared.spec = spec
    if spec.is_builtin:
        registry[spec.name] = spec.again = declared
    return declared


# What `apply` knows of the arguments of a call, position by position: their arrays, and while calls
# are recorded, their nodes and noted versions; then two lists of positions: of the Tensors that are
# recorded because they require gradients, and of the arguments that are no Tensors.
Call = tuple[list[Any], list[Any], list[NotedVersion], list[int], list[int]]


def result_tensor(
    spec: Spec, args: tuple[Any, ...], options: dict[str, Any], call: Call, out: Any, extra: Any
) -> Any:
    """The result of a forward as a Tensor, with a Node if an argument requires gradients."""
    arrays, parents, versions, grad_positions, other_positions = call
    if type(out) is not ndarray:
        out = result_array(out, spec.name, arrays)
    if spec.promote and not all_have(out.dtype, arrays):
        out = promoted(out, args)
    viewed_position = None if out.base is None else position_of_viewed(out, arrays, other_positions)
    if viewed_position is None and not spec.is_builtin:
        # A copy, because the forward may write to it again: see guard.py.
        out = out.astype(checks.checked_dtype(out.dtype), order="C")
    node = None
    if grad_positions and out.dtype.kind == "f":
        # The version of `out`, which comes after those of the arguments.
        versions.append(NO_VERSION if viewed_position is None else versions[viewed_position])
        for i in other_positions:  # copies, because the caller may write to it later
            if not spec.is_builtin:
                arrays[i] = copied(arrays[i])
            elif spec.promote and isinstance(arrays[i], Sequence):  # its rules take no lists
                arrays[i] = np.array(arrays[i])
            elif type(arrays[i]) is list or type(arrays[i]) in array_types:
                arrays[i] = arrays[i].copy()
        if not spec.is_builtin:  # the library's callers give arrays of their own as options
            options, extra = copied((options, extra))
        plan = spec.plan(tuple(grad_positions), len(args))
        saved = plan.save([*arrays, out], versions, options, extra)
        node = Node(plan, tuple(parents), *saved, out.shape, out.dtype)
    tensor = wrap(out, node)
    if viewed_position is not None:
        tensor._version = args[viewed_position]._version
        note_view(tensor, args[viewed_position], spec.again, args[1:], options)
    return tensor


def unwrapped(args: tuple[Any, ...], spec: Spec, is_recording: bool) -> Call:
    """The arguments of a call, looked at one by one."""
    arrays, grad_positions, other_positions = list(args), [], []
    parents: list[Any] = [None] * len(args)
    versions: list[NotedVersion] = [NO_VERSION] * len(args)
    for i, arg in enumerate(args):
        if isinstance(arg, TensorBase):
            arrays[i] = arg._data
            if is_recording:
                node, version = arg._node, arg._version
                parents[i] = node
                versions[i] = NO_VERSION if version is None else (version, version.changes)
                if node is not None:
                    grad_positions.append(i)
        else:
            other_positions.append(i)
            if spec.must_fit is not None and isinstance(arg, NUMBERS):
                arrays[i] = number_beside(arg, args, spec.must_fit)
            elif type(arg) is not ndarray and (spec.takes_lists or isinstance(arg, ndarray)):
                arrays[i] = operand(arg, i, args, spec)
    return arrays, parents, versions, grad_positions, other_positions


def operand(arg: Any, i: int, args: tuple[Any, ...], spec: Spec) -> Any:
    """An argument that may be a list. TypeError for Tensors in it, because they get no gradient."""
    if isinstance(arg, ndarray):  # of a subclass, such as x.data
        checks.refuse_masked(arg)
        return np.asarray(arg)
    checks.refuse_tensors(f"{spec.name}: {spec.argument_at(i)}", arg)
    if spec.must_fit and isinstance(arg, Sequence):
        check_fit(arg, args)
    return arg


def raise_no_tensor(spec: Spec, i: int, args: tuple[Any, ...]) -> None:
    checks.check_tensor(f"{spec.name}: {spec.argument_at(i)}", args[i], TensorBase)


def raise_clearer_error_of(
    spec: Spec, args: tuple[Any, ...], arrays: list[Any], error: Exception
) -> None:
    """TypeError for a list, or Tensors in a tuple or dict, in the place of a Tensor; else
    `raise_clearer_error`."""
    if isinstance(error, AttributeError) or not any(isinstance(x, TensorBase) for x in args):
        for i, arg in enumerate(args):
            if spec.is_builtin and (type(arg) is list or checks.holds(arg, is_tensor)):
                raise_no_tensor(spec, i, args)
    checks.raise_clearer_error(spec.name, arrays, error)


def all_have(dtype: np.dtype, arguments: Sequence[Any]) -> bool:
    """True if every array among the arguments has this dtype; numbers have none."""
    for argument in arguments:  # noqa: SIM110, because a generator takes three times as long
        if getattr(argument, "dtype", dtype) is not dtype:
            return False
    return True


def position_of_viewed(out: Array, arrays: list[Any], other_positions: list[int]) -> int | None:
    """The position of the Tensor of whose memory `out` is a view."""
    for i, array in enumerate(arrays):
        if i not in other_positions and (out.base is array or out.base is array.base):
            return i
    return None


def out_and_extra(result: Any, name: str) -> tuple[Any, Any]:
    """`result` if it is a pair (out, extra); an array of two rows is not."""
    if type(result) is not tuple or len(result) != 2:
        raise DtypeError(
            f"the forward of {name} is declared with saves=True and must return (out, saved), got "
            f"{checks.describe(result)}"
        )
    return result


def result_array(out: Any, name: str, arguments: Sequence[Any]) -> Array:
    """The result of a forward as an array. It may be a NumPy scalar or a CuPy array; any other
    result is an error."""
    if isinstance(out, (ndarray, np.generic)):
        checks.refuse_masked(out)
        return np.asarray(out)
    if is_array(out):
        return out
    checks.refuse_foreign(name, arguments)  # whose operators may have made the result
    hint = "; (out, saved) needs @op(saves=True)" if type(out) is tuple else ""
    raise DtypeError(f"the forward of {name} must return an array, got {type(out).__name__}{hint}")


registry: dict[str, Any] = {}  # the library's own ops by name


class Options(TypedDict, total=False):
    """Those of `op`, for type checkers."""

    promote: bool
    floats: bool
    saves: bool
    differentiable: bool


@overload
def op(forward: Function, **options: Unpack[Options]) -> Function: ...
@overload
def op(**options: Unpack[Options]) -> Callable[[Function], Function]: ...
def op(
    forward: Any = None,
    *,
    promote: bool = False,
    floats: bool = False,
    saves: bool = False,
    differentiable: bool = True,
) -> Any:
    """Declare a differentiable op; see the top of this module, and docs/course/17_make_it_yours.md.

    promote: give a Tensor PyTorch's dtype if two arguments differ in dtype: a float tensor keeps
        its precision together with integers, Python numbers and 0-d tensors. If no argument is a
        Tensor, the result keeps NumPy's dtype. A number beyond the range of the floats beside it
        comes to the forward in a wider dtype, one that does not fit the integers is refused.
    floats: turn integers into float32 first, for functions such as exp.
    saves: the forward returns (out, saved), and rules may ask for `saved`.
    differentiable: False for results without a gradient, such as comparisons; never recorded.

    Returns the op, with a method `vjp(*arguments)` that declares a derivative rule.
    """
    switches = Options(promote=promote, floats=floats, saves=saves, differentiable=differentiable)
    return partial(declare, **switches) if forward is None else declare(forward, **switches)
