"""The derivative rules of one op: how they are declared, and how they run.

`Spec` is the declaration of an op. `Plan` is the part of it that one call needs: the arguments that
require gradients decide which rules will run, and these rules decide what is saved.
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
from .versions import NotedVersion

ndarray = np.ndarray


class Spec:
    """The declaration of one op: its forward, its arguments, its derivative rules."""

    def __init__(self, forward: Callable[..., Any], saves: bool) -> None:
        self.name = forward.__name__
        self.saves = saves  # the forward returns (out, saved)
        self.is_builtin = (forward.__module__ or "").startswith("tinyattn.")  # else a user's
        self.forward = forward if self.is_builtin else guarded_forward(forward)
        self.arguments: dict[str, Any] = {}  # positional, with their defaults
        self.options: dict[str, Any] = {}  # keyword-only, with their defaults
        self.variadic: str | None = None
        # (rule, the arguments that it covers, the names in its signature after `grad`)
        self.rules: list[tuple[Callable[..., Any], tuple[str, ...], list[str]]] = []
        self.plans: dict[tuple[tuple[int, ...], int], Plan] = {}
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
        available = [*arguments, *self.options, "options", "out", "shape", "shapes"]
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

    def plan(self, required: tuple[int, ...], count: int) -> Plan:
        """The plan for `count` arguments, of which those at `required` require gradients."""
        plan = self.plans.get((required, count))
        if plan is None:
            plan = self.plans[required, count] = Plan(self, required, count)
        return plan

    def positions(self, name: str, count: int) -> list[int]:
        """The positions of an argument among `count`: several for `*xs`, else one."""
        if name == self.variadic:
            return list(range(len(self.arguments), count))
        return [list(self.arguments).index(name)]

    def values_of(self, name: str, count: int) -> list[int] | list[str]:
        """What a name in the signature of a rule stands for: positions, or a name; see `Plan`."""
        if name == "out":
            return [count]
        if name in self.arguments or name == self.variadic:
            return self.positions(name, count)
        return [name]

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
    """What one call saves for its derivative, and the rules that will run on it.

    saved_positions      the arguments to save, by position; the output comes after the last one
    saved_names          the other values to save: an option, "options", "shape", "shapes", "saved"
    names                the name of each saved value, for `Node.saved_values`
    rules                (rule, the indices of its arguments in `Node.saved`, the positions of the
                         arguments that it covers)
    saved_may_be_a_view  True if "saved" may be a view of any argument: in an op of a user
    """

    def __init__(self, spec: Spec, required: tuple[int, ...], count: int) -> None:
        self.name, self.option_defaults = spec.name, spec.options
        without_rule = set(required)
        chosen = []  # (rule, the values that it needs, the positions that it covers)
        for rule, covers, needs in spec.rules:
            covered = [position for name in covers for position in spec.positions(name, count)]
            if without_rule.isdisjoint(covered):
                continue
            without_rule.difference_update(covered)
            needed = [value for name in needs for value in spec.values_of(name, count)]
            chosen.append((rule, needed, covered))
        if without_rule:
            name = spec.argument_at(min(without_rule))
            raise GraphError(
                f"{self.name} has no derivative with respect to {name!r}, which requires one: "
                f"detach() it, or add a rule with @{self.name}.vjp({name!r})"
            )
        values = dict.fromkeys(value for _, needed, _ in chosen for value in needed)  # each once
        self.saved_positions = [value for value in values if isinstance(value, int)]
        self.saved_names = [value for value in values if isinstance(value, str)]
        saved = [*self.saved_positions, *self.saved_names]
        self.rules = [
            (rule, [saved.index(value) for value in needed], covered)
            for rule, needed, covered in chosen
        ]
        variadic = [f"{spec.variadic}[{i}]" for i in range(count - len(spec.arguments))]
        argument_names = [*spec.arguments, *variadic, "out"]
        self.names = [argument_names[i] for i in self.saved_positions] + self.saved_names
        self.saved_may_be_a_view = "saved" in self.saved_names and not spec.is_builtin

    def save(
        self, arrays: list[Any], versions: list[NotedVersion], options: dict[str, Any], saved: Any
    ) -> tuple[tuple[Any, ...], tuple[NotedVersion, ...]]:
        """The values that a node saves, and the versions that it notes.

        arrays and versions are those of the arguments, and last that of the output.
        """
        values, noted = [], []
        for position in self.saved_positions:
            values.append(arrays[position])
            noted.append(versions[position])
        for name in self.saved_names:
            if name == "shape":
                values.append(arrays[0].shape)
            elif name == "shapes":
                values.append([getattr(array, "shape", ()) for array in arrays[:-1]])
            elif name == "saved":
                values.append(saved)
            elif name == "options":
                values.append({**self.option_defaults, **options})
            else:
                values.append(options[name] if name in options else self.option_defaults[name])
        if self.saved_may_be_a_view:
            noted += versions
        return tuple(values), tuple(noted)

    def run_rules(
        self, node: Node, grad: Any, create_graph: bool
    ) -> list[tuple[Node | Leaf, Any, bool]]:
        """(parent, gradient, is_new) for each argument that requires gradients.

        grad is the gradient of the output. A gradient is new if no other object has its array.
        """
        saved = self.saved_tensors(node) if create_graph else node.saved
        parts = []
        for rule, needed, covered in self.rules:
            gradients = rule(grad, *[saved[i] for i in needed])
            if type(gradients) is not tuple:
                gradients = (gradients,)
            if len(gradients) != len(covered):
                raise GraphError(
                    f"a derivative rule of {self.name} covers {len(covered)} arguments and must "
                    f"return a tuple of as many gradients, got {describe(gradients)}"
                )
            for position, gradient in zip(covered, gradients, strict=True):
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
                    gradient = self.in_shape_of(parent, gradient, position)
                parts.append((parent, gradient, is_new))
        return parts

    def saved_tensors(self, node: Node) -> list[Any]:
        """What `node` saved, its arrays as Tensors with their nodes, so that rules are recorded."""
        tensors = []
        # The first versions are those of the positions, the others belong to "saved".
        noted = zip(self.saved_positions, node.saved, node.versions, strict=False)
        for position, value, (version, _) in noted:
            if hasattr(value, "dtype"):
                value = wrap(value, (*node.parents, node)[position])
                value._version = version
            tensors.append(value)
        others = node.saved[len(self.saved_positions) :]
        for name, value in zip(self.saved_names, others, strict=True):
            tensors.append(None if name == "saved" else value)
        return tensors

    def in_shape_of(self, parent: Node | Leaf, gradient: Any, position: int) -> Any:
        """A rule's gradient in the shape and dtype of the argument at `position`.

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
