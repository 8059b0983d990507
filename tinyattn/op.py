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
import inspect
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from .autograd import Leaf, Node, WriteLock, grad_mode
from .backend import Array, device_of, namespace, sum_to
from .errors import DeviceError, DtypeError, GraphError, ShapeError


class TensorBase:
    """What recording needs to know of a tensor: its array, and the node that made it.

    `tensor.py` derives Tensor from it, with the ops for operators, and so has to come after them.
    """

    __slots__ = ("__weakref__", "_data", "_node")
    _data: Array
    _node: Node | Leaf | None


ndarray = np.ndarray
Tensor: Any = TensorBase  # the class of results; `tensor.py` puts its own here
new = object.__new__
living_locks = WriteLock.alive
registry: dict[str, Callable[..., Any]] = {}  # the library's own ops, which the tests go through


NO_OTHERS: dict[str, Any] = {}


class Plan:
    """What one op keeps, and which rules it will run, for one choice of wanted gradients.

    sources  where each saved value comes from: the position of an argument or of the output (which
             counts as the argument after the last), or the name of anything else
    rules    (rule, its places in the saved values, positions of the arguments it covers), where
             places and positions are a number if there is only one
    pick     takes the saved values out of (*arguments, output), if that is all there is to save
    """

    __slots__ = ("locked", "locks_first", "locks_second", "name", "pick", "rules", "sources")

    def __init__(self, spec: Spec, wanted: int, count: int) -> None:
        """`wanted` has bit i set where argument i, of `count`, wants a gradient."""
        self.name = spec.name
        self.sources = spec.needed(wanted, count)
        self.rules: list[tuple[Callable[..., Any], int | list[int], int | list[int]]] = []
        for rule, covers, needs in spec.rules:
            covered = [i for name in covers for i in spec.positions(name, count)]
            if not any(wanted >> i & 1 for i in covered):
                continue
            sources = [source for need in needs for source in spec.sources(need, count)]
            needed = [self.sources.index(source) for source in sources]
            self.rules.append((rule, one_or_all(needed), one_or_all(covered)))
            wanted &= ~sum(1 << i for i in covered)
        if wanted:
            name = spec.argument_at(wanted.bit_length() - 1)
            raise GraphError(
                f"{self.name} has no derivative with respect to {name!r}, which requires one: "
                f"detach() it, or add a rule with @{self.name}.vjp({name!r})"
            )
        places = [source for source in self.sources if isinstance(source, int)]
        self.locked = [place for place in places if place < count]
        self.locks_first, self.locks_second = 0 in self.locked, 1 in self.locked
        self.pick = picker(places) if len(places) == len(self.sources) else None

    def pull(self, node: Node, grad: Any, graph: bool) -> list[Any]:
        """The gradients of the arguments of `node`, given the gradient of its output."""
        saved = self.as_tensors(node) if graph else node.saved
        parents = node.parents
        gradients: list[Any] = [None] * len(parents)
        for rule, needed, covered in self.rules:
            try:
                if type(needed) is int:
                    result = rule(grad, saved[needed])
                else:
                    result = rule(grad, *[saved[i] for i in needed]) if needed else rule(grad)
            except RuntimeWarning:  # where warnings are errors; an inf or a NaN is a value here
                values = [saved[needed]] if type(needed) is int else [saved[i] for i in needed]
                with np.errstate(all="ignore"):
                    result = rule(grad, *values)
            if type(covered) is int:
                gradients[covered] = result
                continue
            if type(result) is not tuple or len(result) != len(covered):
                raise GraphError(
                    f"a derivative rule of {self.name} covers {len(covered)} arguments and must "
                    f"return a tuple of as many gradients, got {describe(result)}"
                )
            for i, position in enumerate(covered):
                gradients[position] = result[i]
        result = None  # the engine counts references to see which arrays are new
        for i, parent in enumerate(parents):
            if parent is None:
                gradients[i] = None
                continue
            gradient = gradients[i]
            if gradient is not None and (
                gradient.shape != parent.shape
                or gradient.dtype is not parent.dtype
                or (type(gradient) is not ndarray and not graph)
            ):
                gradients[i] = fit(gradient, parent, self.name)
        gradient = None
        return gradients

    def as_tensors(self, node: Node) -> list[Any]:
        """The saved arrays of `node` as Tensors that are part of the graph again."""
        tensors = []
        for source, value in zip(self.sources, node.saved, strict=False):
            if source == "saved":
                value = None
            elif isinstance(source, int) and hasattr(value, "dtype"):
                value = wrap(value, (*node.parents, node)[source])
            tensors.append(value)
        return tensors


def one_or_all(numbers: list[int]) -> int | list[int]:
    return numbers[0] if len(numbers) == 1 else numbers


def picker(places: list[int]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """A function that takes the given places out of a tuple, as a tuple."""
    if len(places) < 2:  # itemgetter would not give a tuple; of a slice it does
        return itemgetter(slice(places[0], places[0] + 1) if places else slice(0))
    return itemgetter(*places)


class Spec:
    """The declaration of one op: its forward, its arguments, its derivative rules."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        self.name = forward.__name__
        self.forward = forward
        self.arguments: dict[str, Any] = {}  # positional, with their defaults
        self.options: dict[str, Any] = {}  # keyword-only, with their defaults
        self.variadic: str | None = None
        self.rules: list[tuple[Callable[..., Any], tuple[str, ...], list[str]]] = []
        self.forward_saves = False
        self.plans: dict[tuple[int, int], Plan] = {}
        self.pair_plans: list[Plan | None] = [None] * 4  # those of two arguments, by `wanted`
        for name, parameter in inspect.signature(forward).parameters.items():
            if parameter.kind is parameter.KEYWORD_ONLY:
                self.options[name] = parameter.default
            elif parameter.kind is parameter.VAR_POSITIONAL:
                self.variadic = name
            else:
                self.arguments[name] = parameter.default

    def add_rule(self, covers: tuple[str, ...], rule: Callable[..., Any]) -> None:
        needs = list(inspect.signature(rule).parameters)[1:]
        arguments = [*self.arguments, *([self.variadic] if self.variadic else [])]
        allowed = [*arguments, *self.options, "out", "shape", "shapes", "saved"]
        if not covers or any(name not in arguments for name in covers):
            raise TypeError(f"@{self.name}.vjp takes names among {arguments}, got {list(covers)}")
        if unknown := [name for name in needs if name not in allowed]:
            raise TypeError(
                f"a derivative rule of {self.name} asks for {unknown}; it can have {allowed}"
            )
        self.forward_saves |= "saved" in needs
        self.rules.append((rule, covers, needs))
        self.plans.clear()
        self.pair_plans[:] = [None] * 4

    def plan(self, wanted: int, count: int) -> Plan:
        plan = self.plans.get((wanted, count))
        if plan is None:
            plan = self.plans[wanted, count] = Plan(self, wanted, count)
            if count == 2:
                self.pair_plans[wanted] = plan
        return plan

    def positions(self, name: str, count: int) -> list[int]:
        if name == self.variadic:
            return list(range(len(self.arguments), count))
        return [list(self.arguments).index(name)]

    def needed(self, wanted: int, count: int) -> list[int | str]:
        """What the rules for the wanted gradients ask for, each once."""
        found: dict[int | str, None] = {}
        for _, covers, needs in self.rules:
            if any(wanted >> i & 1 for name in covers for i in self.positions(name, count)):
                found.update((s, None) for need in needs for s in self.sources(need, count))
        return sorted(found, key=lambda source: (isinstance(source, str), source))

    def sources(self, need: str, count: int) -> list[int] | list[str]:
        if need == "out":
            return [count]
        if need in self.arguments or need == self.variadic:
            return self.positions(need, count)
        return [need]

    def argument_at(self, position: int) -> str:
        names = list(self.arguments)
        return names[position] if position < len(names) else str(self.variadic)

    def bind(self, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[list[Any], dict]:
        """Arguments given by name put in their places, and defaults filled in."""
        bound = list(args)
        for name, default in list(self.arguments.items())[len(args) :]:
            value = options.pop(name, default)
            if value is inspect.Parameter.empty:
                raise TypeError(f"{self.name}() misses its argument {name!r}")
            bound.append(value)
        return bound, options


def fit(gradient: Any, parent: Node | Leaf, name: str) -> Any:
    """A rule's gradient in the shape and dtype of what it is the gradient of.

    Whatever was broadcast in the forward is summed here, and nowhere else.
    """
    if isinstance(gradient, TensorBase):
        gradient = gradient.sum_to(parent.shape) if gradient.shape != parent.shape else gradient
        return gradient if gradient.dtype == parent.dtype else gradient.to(parent.dtype)
    gradient = namespace(gradient).asarray(gradient)
    if gradient.shape != parent.shape:
        try:
            gradient = sum_to(gradient, parent.shape)
        except ShapeError:
            raise GraphError(
                f"a derivative rule of {name} returned a gradient of shape {gradient.shape} for "
                f"an argument of shape {parent.shape}"
            ) from None
    return gradient if gradient.dtype == parent.dtype else gradient.astype(parent.dtype)


CATEGORY = {"b": 0, "u": 1, "i": 1, "f": 2}
PYTHON_CATEGORY = {bool: 0, int: 1, float: 2}


def promoted(out: Array, arguments: Sequence[Any]) -> Array:
    """`out` in the dtype PyTorch would give: NumPy lets 0-d arrays and integers widen a float32.

    Among tensors with dimensions, 0-d tensors and Python numbers, only a higher category (bool,
    integer, float) counts against those that come first.
    """
    dimensioned = [a.dtype for a in arguments if hasattr(a, "dtype") and a.ndim]
    scalar = [a.dtype for a in arguments if hasattr(a, "dtype") and not a.ndim]
    kind = CATEGORY.get(out.dtype.kind, 2)
    for dtypes in (dimensioned, scalar):
        same = [dtype for dtype in dtypes if CATEGORY[dtype.kind] == kind]
        if same:
            dtype = functools.reduce(np.promote_types, same)
            return out if out.dtype == dtype else out.astype(dtype)
    return out.astype(np.float32) if kind == 2 else out


def retry_or_explain(
    spec: Spec, arrays: Sequence[Any], options: dict[str, Any], error: Exception
) -> Any:
    """What to do when a forward fails: say which op and which shapes, in tinyattn's errors.

    Where the user has made warnings errors, NumPy's remarks on inf and NaN arrive here too; those
    are values like any other, so the forward is run again without them.
    """
    if isinstance(error, RuntimeWarning):
        with np.errstate(all="ignore"):
            return spec.forward(*arrays, **options)
    if type(error).__module__.startswith(__package__):
        raise error
    came = ", ".join(describe(array) for array in arrays)
    devices = {device_of(array) for array in arrays if hasattr(array, "dtype")}
    if len(devices) > 1:
        raise DeviceError(
            f"{spec.name} got arrays on different devices ({came}): move one with .to(device)"
        ) from None
    kind = {ValueError: ShapeError, TypeError: DtypeError}.get(type(error))
    if kind is None:
        raise error
    raise kind(f"{spec.name} does not take ({came}): {error}") from error


def describe(value: Any) -> str:
    """An argument in an error message: dtype and shape of arrays, the value of anything short."""
    if hasattr(value, "dtype"):
        device = "" if device_of(value) == "cpu" else " on cuda"
        return f"{value.dtype}{list(value.shape)}{device}"
    text = repr(value)
    return text if len(text) < 40 else type(value).__name__


def wrap(array: Array, node: Node | Leaf | None = None) -> Tensor:
    """A Tensor around an array the library has made, without a copy or a check."""
    tensor = new(Tensor)
    tensor._data = array if type(array) is ndarray else namespace(array).asarray(array)
    tensor._node = node
    return tensor


def lock_of(array: Any) -> tuple[Any, ...]:
    """A lock on an array, for the end of a node's saved values; nothing for a number."""
    if type(array) is not ndarray:
        return ()
    reference = living_locks.get(id(array))
    return ((reference is not None and reference()) or WriteLock(array),)


def record(
    plan: Plan, values: tuple[Any, ...], parents: Sequence[Any], others: dict[str, Any]
) -> Tensor:
    """The output as a Tensor, with the graph's memory of the call that made it.

    `values` are the arguments' arrays and, last, the output.
    """
    out = values[-1]
    saved: tuple[Any, ...] = ()
    if plan.pick is not None:
        saved = plan.pick(values)
    else:
        for source in plan.sources:
            if isinstance(source, int):
                saved += (values[source],)
            elif source == "shape":
                saved += (values[0].shape,)
            elif source == "shapes":
                saved += ([getattr(value, "shape", ()) for value in values[:-1]],)
            else:
                saved += (others[source],)
    for place in plan.locked:
        array, parent = values[place], parents[place]
        # Fresh results of recorded ops are out of everybody's reach; anything else is not.
        if (parent is None or parent.plan is None or array.base is not None) and (
            type(array) is ndarray
        ):
            reference = living_locks.get(id(array))
            saved += ((reference is not None and reference()) or WriteLock(array),)
    node = Node()
    node.plan = plan
    node.parents = parents
    node.saved = saved
    node.shape = out.shape
    node.dtype = out.dtype
    node.grad = None
    node.hold_grad = False
    tensor = new(Tensor)
    tensor._data = out
    tensor._node = node
    return tensor


def op(
    forward: Callable[..., Any] | None = None,
    *,
    promote: bool = False,
    differentiable: bool = True,
) -> Any:
    """Declare a differentiable op; see the top of this module, and docs/own_op.md for a lesson.

    `promote=True` is for arithmetic on two arguments of possibly different dtype: the result then
    has the dtype PyTorch gives it (a float tensor keeps its precision when it meets integers,
    Python numbers or 0-d tensors). `differentiable=False` is for results that carry no gradient,
    such as comparisons: they are never recorded.
    """
    if forward is None:
        return functools.partial(op, promote=promote, differentiable=differentiable)
    spec = Spec(forward)
    plans, pair_plans = spec.plans, spec.pair_plans
    count = len(spec.arguments)

    def apply(*args: Any, **options: Any) -> Any:
        if len(args) < count:
            args, options = spec.bind(args, options)
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
            out, kept = out
        if wanted == 0 and not any(isinstance(argument, TensorBase) for argument in args):
            return out
        if promote:
            out = promoted(out, arrays)
        if wanted == 0 or not differentiable or not grad_mode.enabled:
            return wrap(out)
        others = (
            {**spec.options, **options, "saved": kept} if options or spec.options or kept else {}
        )
        plan = plans.get((wanted, len(arrays))) or spec.plan(wanted, len(arrays))
        if type(out) is not ndarray:
            out = namespace(out).asarray(out)
        return record(plan, (*arrays, out), parents, others)

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
        elif isinstance(y, TensorBase) and (type(x) is float or type(x) is int):
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
        dtype = out.dtype
        if array.dtype is not dtype or (type(b) is ndarray and b.dtype is not dtype):
            out = promoted(out, (a, b))
            dtype = out.dtype
        if type(out) is not ndarray:
            out = namespace(out).asarray(out)
        tensor = new(Tensor)
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

    two = promote and count == 2 and not spec.options

    def vjp(*covers: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def register(rule: Callable[..., Any]) -> Callable[..., Any]:
            spec.add_rule(covers, rule)
            return rule

        return register

    wrapped: Any = functools.wraps(forward)(apply_to_two if two else apply)
    wrapped.vjp = vjp
    wrapped.spec = spec
    if forward.__module__.startswith("tinyattn."):
        registry[spec.name] = wrapped
    return wrapped
