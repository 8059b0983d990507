"""The derivative rules of one op: how they are declared, and how they run.

`Spec` is the declaration of an op. `Plan` is the part that one call needs: the arguments that
require gradients decide which rules will run, and these decide which arrays are saved.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ..base.backend import namespace
from ..base.checks import describe
from ..errors import GraphError, ShapeError
from ..kernels import sum_to
from .autograd import Leaf, Node, TensorBase, wrap
from .guard import guarded_forward, guarded_rule

ndarray = np.ndarray


class Spec:
    """The declaration of one op: its forward, its arguments, its derivative rules."""

    def __init__(self, forward: Callable[..., Any], saves: bool) -> None:
        self.name = forward.__name__
        self.saves = saves  # the forward returns (out, saved)
        self.is_builtin = (forward.__module__ or "").startswith("tinyattn.")
        self.forward = forward if self.is_builtin else guarded_forward(forward, saves)
        self.arguments: dict[str, Any] = {}  # positional, with their defaults
        self.options: dict[str, Any] = {}  # keyword-only, with their defaults
        self.variadic: str | None = None
        self.rules: list[tuple[Callable[..., Any], tuple[str, ...], list[str]]] = []
        self.plans: dict[tuple[int, int], Plan] = {}
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
        available = [*arguments, *self.options, "out", "shape", "shapes"]
        available += ["saved"] if self.saves else []
        if not covers or any(name not in arguments for name in covers):
            raise TypeError(f"@{self.name}.vjp takes names among {arguments}, got {list(covers)}")
        if unknown := [name for name in needs if name not in available]:
            hint = ""
            if "saved" in unknown:
                hint = "; a forward that returns (out, saved) is declared with @op(saves=True)"
            if "grad" in unknown:
                hint = "; the gradient of the output is always the first argument of a rule"
            raise TypeError(
                f"a derivative rule of {self.name} asks for {unknown}; it can have {available}"
                f"{hint}"
            )
        rule = rule if self.is_builtin else guarded_rule(self.name, rule)
        self.rules.append((rule, covers, needs))
        self.plans.clear()

    def plan(self, wanted: int, count: int) -> Plan:
        """The plan for `count` arguments; bit i of `wanted`: argument i needs a gradient."""
        plan = self.plans.get((wanted, count))
        if plan is None:
            plan = self.plans[wanted, count] = Plan(self, wanted, count)
        return plan

    def positions(self, name: str, count: int) -> list[int]:
        """The positions of an argument among `count`: several for `*xs`, else one."""
        if name == self.variadic:
            return list(range(len(self.arguments), count))
        return [list(self.arguments).index(name)]

    def sources(self, need: str, count: int) -> list[int] | list[str]:
        """The sources of one name in a rule's signature; see `Plan`."""
        if need == "out":
            return [count]
        if need in self.arguments or need == self.variadic:
            return self.positions(need, count)
        return [need]

    def argument_at(self, position: int) -> str:
        names = list(self.arguments)
        return names[position] if position < len(names) else str(self.variadic)

    def bind(self, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, ...]:
        """All positional arguments; those given by name are taken out of `options`."""
        for name, default in list(self.arguments.items())[len(args) :]:
            value = options.pop(name, default)
            if value is inspect.Parameter.empty:
                raise TypeError(f"{self.name}() misses its argument {name!r}")
            args += (value,)
        return args


class Plan:
    """The values that one call saves for its derivative, and the rules that will run on them.

    sources  the values to save: the position of an argument, `count` for the output, or a name
             (an option, "shape", "shapes", "saved")
    watched  the positions of arguments, and of the output, whose memory may be saved
    names    the name of each source, for `Node.saved_values`
    rules    (rule, the indices of its arguments in `sources`, the positions it covers)
    """

    __slots__ = ("defaults", "is_builtin", "name", "names", "rules", "sources", "watched")

    def __init__(self, spec: Spec, wanted: int, count: int) -> None:
        self.name, self.is_builtin, self.defaults = spec.name, spec.is_builtin, spec.options
        self.sources: list[int | str] = []
        self.rules: list[tuple[Callable[..., Any], list[int], list[int]]] = []
        for rule, covers, needs in spec.rules:
            covered = [i for name in covers for i in spec.positions(name, count)]
            if not any(wanted >> i & 1 for i in covered):
                continue
            sources = [source for need in needs for source in spec.sources(need, count)]
            self.sources += [source for source in sources if source not in self.sources]
            self.rules.append((rule, [self.sources.index(s) for s in sources], covered))
            wanted &= ~sum(1 << i for i in covered)
        if wanted:
            name = spec.argument_at(wanted.bit_length() - 1)
            raise GraphError(
                f"{self.name} has no derivative with respect to {name!r}, which requires one: "
                f"detach() it, or add a rule with @{self.name}.vjp({name!r})"
            )
        others = [f"{spec.variadic}[{i}]" for i in range(count - len(spec.arguments))]
        names = [*spec.arguments, *others, "out"]
        self.names = [names[s] if isinstance(s, int) else s for s in self.sources]
        self.watched = [source for source in self.sources if isinstance(source, int)]
        if "saved" in self.sources and not self.is_builtin:  # it may be a view of any argument
            self.watched = list(range(count + 1))

    def keep(self, values: tuple[Any, ...], options: dict[str, Any], saved: Any) -> tuple[Any, ...]:
        """The values that `sources` name; `values` are the arguments and the output."""
        kept: list[Any] = []
        for source in self.sources:
            if isinstance(source, int):
                kept.append(values[source])
            elif source == "shape":
                kept.append(values[0].shape)
            elif source == "shapes":
                kept.append([getattr(value, "shape", ()) for value in values[:-1]])
            elif source == "saved":
                kept.append(saved)
            else:
                kept.append(options[source] if source in options else self.defaults[source])
        return tuple(kept)

    def watched_versions(self, versions: list[Any]) -> tuple[Any, ...]:
        """The versions of the watched arrays, from those of all arguments and the output."""
        return tuple([versions[i] for i in self.watched])

    def pull(self, node: Node, grad: Any, create_graph: bool) -> list[tuple[Any, Any, bool]]:
        """(parent, gradient, is_new) for each argument that needs a gradient, from that of the
        output. `is_new`: nobody else has the array."""
        saved = self.as_tensors(node) if create_graph else node.saved
        pulled: list[tuple[Node | Leaf, Any, bool]] = []
        for rule, needed, covered in self.rules:
            result = rule(grad, *[saved[i] for i in needed])
            if type(result) is not tuple:
                result = (result,)
            if len(result) != len(covered):
                raise GraphError(
                    f"a derivative rule of {self.name} covers {len(covered)} arguments and must "
                    f"return a tuple of as many gradients, got {describe(result)}"
                )
            for position, gradient in zip(covered, result, strict=False):
                parent = node.parents[position]
                if parent is None:
                    continue
                # Not new: the gradient of the output itself, or a view, which has a base. No rule
                # of the library returns a saved array: tests/gradients/test_new_gradients.py.
                is_new = gradient is not grad and getattr(gradient, "base", grad) is None
                if (
                    type(gradient) is not ndarray
                    or gradient.shape != parent.shape
                    or gradient.dtype is not parent.dtype
                ):
                    gradient = self.fit(gradient, parent, position)
                pulled.append((parent, gradient, is_new))
        return pulled

    def as_tensors(self, node: Node) -> list[Any]:
        """The saved arrays of `node` as Tensors with their nodes, so that rules are recorded."""
        versions = dict(zip(self.watched, node.versions, strict=True))
        tensors = []
        for source, value in zip(self.sources, node.saved, strict=False):
            if source == "saved":
                value = None
            elif isinstance(source, int) and hasattr(value, "dtype"):
                value = wrap(value, (*node.parents, node)[source])
                value._version, _ = versions[source]
            tensors.append(value)
        return tensors

    def fit(self, gradient: Any, parent: Node | Leaf, position: int) -> Any:
        """A rule's gradient in the shape and dtype of the argument.

        If the argument was broadcast, its gradient is summed here, unless its rule did so.
        """
        if gradient is None:
            raise GraphError(
                f"a derivative rule of {self.name} returned None instead of a gradient for "
                f"argument {position}: is its return missing?"
            )
        if isinstance(gradient, TensorBase.tensor_class):
            gradient = gradient if gradient.shape == parent.shape else gradient.sum_to(parent.shape)
            return gradient if gradient.dtype == parent.dtype else gradient.to(parent.dtype)
        gradient = namespace(gradient).asarray(gradient)
        if gradient.shape != parent.shape:
            try:
                gradient = sum_to(gradient, parent.shape)
            except ShapeError:
                raise GraphError(
                    f"a derivative rule of {self.name} returned a gradient of shape "
                    f"{gradient.shape} for an argument of shape {parent.shape}"
                ) from None
        return gradient if gradient.dtype == parent.dtype else gradient.astype(parent.dtype)
