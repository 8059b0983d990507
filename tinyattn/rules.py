"""How one op differentiates: which rules to run, what they need kept, what comes back."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import numpy as np

from .autograd import Leaf, Node, TensorBase, wrap
from .backend import namespace
from .errors import GraphError, ShapeError
from .kernels import sum_to
from .promotion import describe

ndarray = np.ndarray


class Plan:
    """What one op keeps, and which rules it will run, for one choice of wanted gradients.

    sources  where each saved value comes from: the position of an argument or of the output (which
             counts as the argument after the last), or the name of anything else
    rules    (rule, its places in the saved values, positions of the arguments it covers), where
             places and positions are a number if there is only one
    pick     takes those out of (*arguments, output) that have a position, which come first
    names    the others
    """

    __slots__ = (
        "locked", "locks_first", "locks_second", "name", "names", "pick", "rules", "sources",
    )  # fmt: skip

    def __init__(self, spec: Spec, wanted: int, count: int) -> None:
        """`wanted` has bit i set where argument i, of `count`, wants a gradient."""
        self.name = spec.name
        self.sources = spec.needed(wanted, count)
        self.rules: list[tuple[Callable[..., Any], Any, Any]] = []
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
        self.pick = picker(places)
        self.names = [source for source in self.sources if isinstance(source, str)]

    def pull(self, node: Node, grad: Any, graph: bool) -> list[Any]:
        """The gradients of the arguments of `node`, given the gradient of its output."""
        saved = self.as_tensors(node) if graph else node.saved
        parents = node.parents
        gradients: list[Any] = [None] * len(parents)
        for rule, needed, covered in self.rules:
            if graph:
                result = self.run_on_tensors(rule, grad, needed, saved)
            elif type(needed) is int:
                result = rule(grad, saved[needed])
            else:
                result = rule(grad, *[saved[i] for i in needed]) if needed else rule(grad)
            if type(covered) is int:
                gradients[covered] = result[0] if type(result) is tuple else result
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
            if gradient is None:
                raise GraphError(
                    f"a derivative rule of {self.name} returned None instead of a gradient for "
                    f"argument {i}: is its return missing?"
                )
            if (
                gradient.shape != parent.shape
                or gradient.dtype is not parent.dtype
                or (type(gradient) is not ndarray and not graph)
            ):
                gradients[i] = fit(gradient, parent, self.name)
        gradient = None
        return gradients

    def run_on_tensors(self, rule: Any, grad: Any, needed: Any, saved: list[Any]) -> Any:
        """A rule where a graph of the gradient is wanted, so that it records itself."""
        try:
            return rule(grad, *[saved[i] for i in ([needed] if type(needed) is int else needed)])
        except TypeError as error:
            if "__array_ufunc__" not in str(error):
                raise
            raise GraphError(
                f"a derivative rule of {self.name} uses NumPy functions, which do not record "
                "themselves: for derivatives of second order write it with operators and the "
                "functions of tinyattn.ops (check_op can leave them out with second_order=False)"
            ) from error

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


def one_or_all(numbers: list[int]) -> Any:
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

    def bind(self, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, ...]:
        """All positional arguments: those given by name taken out of `options`, then defaults."""
        for name, default in list(self.arguments.items())[len(args) :]:
            value = options.pop(name, default)
            if value is inspect.Parameter.empty:
                raise TypeError(f"{self.name}() misses its argument {name!r}")
            args += (value,)
        return args


def fit(gradient: Any, parent: Node | Leaf, name: str) -> Any:
    """A rule's gradient in the shape and dtype of what it is the gradient of.

    Whatever was broadcast in the forward is summed here, and nowhere else.
    """
    if isinstance(gradient, TensorBase.full):
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
