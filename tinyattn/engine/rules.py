"""The derivative rules of one op: how they are declared, and how they run.

`Spec` is the declaration of an op. `Plan` is the part of it that one call needs: the arguments that
require gradients decide which rules will run, and these rules decide what is saved.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..base.backend import array_types, is_array
from ..base.checks import describe, refuse_tensors
from ..errors import GraphError, ShapeError
from ..kernels.sums import sum_to
from .autograd import Leaf, Node, TensorBase, wrap
from .guard import UNRECORDED, guarded_forward, guarded_rule
from .versions import NotedVersion

ndarray = np.ndarray
# Other names that programs for PyTorch and NumPy give an argument, and those of `*sizes`.
OTHER_NAMES = {"input": "x", "other": "y", "axis": "dim", "keepdims": "keepdim"}
OF_SIZES = ("size", "shape", "dims", "repeats")


def rename(function: str, options: dict[str, Any], other_names: dict[str, str]) -> None:
    """Give each option of a call the name that the argument has here."""
    for other in other_names.keys() & options.keys():
        name = other_names[other]
        if name in options:
            raise TypeError(f"{function}() got {name!r} and {other!r}, names of one argument")
        options[name] = options.pop(other)


def parameters_of(forward: Callable[..., Any]) -> list[tuple[str, inspect.Parameter]]:
    """The arguments of a forward, by name."""
    try:
        return list(inspect.signature(forward).parameters.items())
    except ValueError:  # before NumPy 2.4, functions of NumPy in C have no signature
        if not isinstance(forward, np.ufunc):
            raise
        names = ["x"] if forward.nin == 1 else ["x1", "x2"]
        kind = inspect.Parameter.POSITIONAL_ONLY
        return [(name, inspect.Parameter(name, kind)) for name in names]


class Spec:
    """The declaration of one op: its forward, its arguments, its derivative rules; or of a function
    that is made of ops, which has no rules."""

    def __init__(
        self,
        forward: Callable[..., Any],
        promote: bool = False,
        floats: bool = False,
        saves: bool = False,
        differentiable: bool = True,
    ) -> None:
        self.name = forward.__name__
        self.again: Any = None  # the op itself, which makes a view again; None for one of a user
        self.promote, self.floats = promote, floats
        self.saves, self.differentiable = saves, differentiable
        module = getattr(forward, "__module__", None) or ""
        self.is_builtin = module.startswith("tinyattn.")  # else a user's
        self.forward = forward if self.is_builtin else guarded_forward(forward)
        self.takes_lists = promote or not self.is_builtin  # beside Tensors
        self.arguments: dict[str, Any] = {}  # positional, with their defaults
        self.options: dict[str, Any] = {}  # keyword-only, with their defaults
        self.variadic: str | None = None
        # (rule, needed_names, covered_names): the names in its signature after `grad`, and the
        # arguments whose gradients it returns
        self.rules: list[tuple[Callable[..., Any], list[str], tuple[str, ...]]] = []
        self.plans: dict[tuple[tuple[int, ...], int], Plan] = {}
        for name, parameter in parameters_of(forward):
            if parameter.kind is parameter.KEYWORD_ONLY:
                self.options[name] = parameter.default
            elif parameter.kind is parameter.VAR_POSITIONAL:
                self.variadic = name
            elif parameter.kind is not parameter.VAR_KEYWORD:
                self.arguments[name] = parameter.default
        self.count = len(self.arguments)
        names = self.arguments | self.options if self.is_builtin else {}
        self.other_names = {other: x for other, x in OTHER_NAMES.items() if x in names}
        # True for an op of the library that is no operator, and so takes no array beside Tensors.
        self.wants_tensor = self.is_builtin and not promote and not self.variadic
        self.most = math.inf if self.variadic else self.count
        self.defaults = tuple(self.arguments.values())
        # True: a number must fit the dtype of the integers beside it. None: a number is no element
        # here, but an argument such as `dim`.
        has_numbers = promote or (not differentiable and "dim" not in self.arguments)
        self.must_fit = promote if has_numbers else None
        self.required = sum(default is inspect.Parameter.empty for default in self.defaults)

    def add_rule(self, covered_names: tuple[str, ...], rule: Callable[..., Any]) -> None:
        parameters = list(inspect.signature(rule).parameters)
        needed_names = parameters[1:]
        arguments = [*self.arguments, *([self.variadic] if self.variadic else [])]
        available = [*arguments, *self.options, "options", "out", "shape", "shapes"]
        available += ["saved"] if self.saves else []
        if not covered_names or len({*covered_names} & {*arguments}) < len(covered_names):
            raise TypeError(
                f"@{self.name}.vjp takes names of {arguments}, each once, got {list(covered_names)}"
            )
        if not parameters or parameters[0] in {*available} - {"grad"}:
            raise TypeError(
                f"a derivative rule of {self.name} takes the gradient of the output first, then "
                f"what it needs: def dx(grad, ...), got parameters {parameters}"
            )
        if unknown := [name for name in needed_names if name not in available]:
            hint = ""
            if "saved" in unknown:
                hint = "; a forward that returns (out, saved) is declared with @op(saves=True)"
            if "grad" in unknown:
                hint = "; the gradient of the output is always the first argument of a rule"
            raise TypeError(
                f"a rule of {self.name} asks for {unknown}; it can have {available}{hint}"
            )
        rule = rule if self.is_builtin else guarded_rule(self.name, rule)
        # As when the cell of a notebook runs again. Two rules for one argument would be added.
        replaced = [old for old in self.rules if not set(old[2]).isdisjoint(covered_names)]
        if lost := [name for old in replaced for name in old[2] if name not in covered_names]:
            said = f"this rule of {self.name} replaces one for {lost} too: declare one for {lost}"
            warnings.warn(said, stacklevel=3)
        kept = [old for old in self.rules if old not in replaced]
        self.rules = [*kept, (rule, needed_names, covered_names)]
        self.plans.clear()

    def plan(self, grad_positions: tuple[int, ...], count: int) -> Plan:
        """The plan for `count` arguments; those at `grad_positions` require gradients."""
        plan = self.plans.get((grad_positions, count))
        if plan is None:
            plan = self.plans[grad_positions, count] = Plan(self, grad_positions, count)
        return plan

    def positions(self, name: str, count: int) -> list[int]:
        """The positions of an argument among `count`: several for `*xs`, else one."""
        if name == self.variadic:
            return list(range(len(self.arguments), count))
        return [list(self.arguments).index(name)]

    def values_of(self, name: str, count: int) -> list[int] | list[str]:
        """What a name in the signature of a rule stands for: positions, or a name; see `Plan`.

        For mul, with two arguments, "y" is [1], "out" is [2] and "shape" is ["shape"].
        """
        if name == "out":
            return [count]
        if name in self.arguments or name == self.variadic:
            return self.positions(name, count)
        return [name]

    def argument_at(self, position: int) -> str:
        """The name of an argument: "x", or "xs[2]" of `*xs`."""
        if position < self.count:
            return list(self.arguments)[position]
        return f"{self.variadic}[{position - self.count}]"

    def rules_for(
        self, grad_positions: tuple[int, ...], count: int
    ) -> list[tuple[Callable[..., Any], list[Any], list[int]]]:
        """(rule, needed_values, covered_positions) of those rules that these arguments ask for.

        A needed value is a position, or the name of another value; see `values_of`.
        """
        without_rule, chosen = set(grad_positions), []
        for rule, needed_names, covered_names in self.rules:
            covered = [i for name in covered_names for i in self.positions(name, count)]
            if without_rule.isdisjoint(covered):
                continue
            without_rule.difference_update(covered)
            needed = [value for name in needed_names for value in self.values_of(name, count)]
            chosen.append((rule, needed, covered))
        if without_rule:
            name = self.argument_at(min(without_rule)).partition("[")[0]
            raise GraphError(
                f"{self.name} has no derivative with respect to {name!r}, which requires one: "
                f"detach() it, or add a rule with @{self.name}.vjp({name!r})"
            )
        return chosen

    def bind(self, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, ...]:
        """All positional arguments; those given by name are taken out of `options`."""
        if not options and self.required <= len(args) <= self.most:
            return args + self.defaults[len(args) :]
        rename(self.name, options, self.other_names)
        if len(args) > self.most:
            raise TypeError(
                f"{self.name}() takes {self.count} arguments but {len(args)} were given"
            )
        for i, (name, default) in enumerate(self.arguments.items()):
            if i < len(args):
                if name in options:
                    raise TypeError(f"{self.name}() got multiple values for argument {name!r}")
                continue
            value = options.pop(name, default)
            if value is inspect.Parameter.empty:
                raise TypeError(f"{self.name}() misses its argument {name!r}")
            args += (value,)
        if unknown := options.keys() - self.options.keys():
            args += self.sizes_in(options, unknown)
        if not self.is_builtin:
            refuse_tensors(f"{self.name}: an option", options)
        return args

    def sizes_in(self, options: dict[str, Any], unknown: set[str]) -> tuple[Any, ...]:
        """What options that are no options of the op say about `*sizes`; TypeError for others."""
        takes_sizes = self.is_builtin and self.variadic
        for name in unknown:
            if name not in OF_SIZES or not takes_sizes:
                raise TypeError(f"{self.name}() got an unexpected argument {name!r}")
        return tuple(options.pop(name) for name in OF_SIZES if name in unknown)


class Plan:
    """What one call saves for its derivative, and the rules that will run on it.

    saved_positions      the arguments to save, by position; the position `count` is the output
    saved_names          the other values to save: an option, "options", "shape", "shapes", "saved"
    names                the name of each saved value, for `Node.saved_values`
    rules                (rule, saved_indices, covered_positions): where `Node.saved` has the values
                         that the rule needs, and the arguments whose gradients it returns
    extra_may_be_a_view  True if "saved" may be a view of any argument: in an op of a user

    In `x * w` the arguments of `mul(x, y)` are x and w. If both require gradients, the plan has

        saved_positions [1, 0], names ["y", "x"], rules [(dx, [0], [0]), (dy, [1], [1])]
    """

    def __init__(self, spec: Spec, grad_positions: tuple[int, ...], count: int) -> None:
        self.name, self.option_defaults = spec.name, spec.options
        chosen = spec.rules_for(grad_positions, count)
        # Each value once, also if several rules need it.
        values = list(dict.fromkeys(value for _, needed, _ in chosen for value in needed))
        self.saved_positions = [value for value in values if isinstance(value, int)]
        self.saved_names = [value for value in values if isinstance(value, str)]
        saved = [*self.saved_positions, *self.saved_names]
        self.rules = [
            (rule, [saved.index(value) for value in needed], covered_positions)
            for rule, needed, covered_positions in chosen
        ]
        self.names = [
            "out" if i == count else spec.argument_at(i) for i in self.saved_positions
        ] + self.saved_names
        self.extra_may_be_a_view = "saved" in self.saved_names and not spec.is_builtin

    def save(
        self, arrays: list[Any], versions: list[NotedVersion], options: dict[str, Any], extra: Any
    ) -> tuple[tuple[Any, ...], tuple[NotedVersion, ...]]:
        """The values that a node saves, and the versions that it notes.

        arrays and versions are those of the arguments, and last that of the output. extra is the
        second result of the forward, which rules call "saved".
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
                values.append(extra)
            elif name == "options":
                values.append({**self.option_defaults, **options})
            else:
                values.append(options[name] if name in options else self.option_defaults[name])
        if self.extra_may_be_a_view:
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
        for rule, saved_indices, covered_positions in self.rules:
            result = rule(grad, *[saved[i] for i in saved_indices])
            gradients = result if type(result) is tuple else (result,)
            if len(gradients) != len(covered_positions):
                raise GraphError(
                    f"a derivative rule of {self.name} covers {len(covered_positions)} arguments "
                    f"and returns a tuple of as many, got {len(gradients)}: {describe(result)}"
                )
            for position, gradient in zip(covered_positions, gradients, strict=True):
                parent = node.parents[position]
                if parent is None:
                    continue
                if (
                    type(gradient) is not ndarray
                    or gradient.shape != parent.shape
                    or gradient.dtype is not parent.dtype
                ):
                    gradient = self.in_shape_of(parent, gradient, position)
                if create_graph and not isinstance(gradient, TensorBase):
                    raise GraphError(UNRECORDED.format(self.name))  # an array has no graph
                # Not new: the gradient of the output itself, or a view, which has a base. No rule
                # of the library returns a saved array: tests/gradients/test_new_gradients.py.
                # A Tensor has no `base`. It is not new either, so the default of getattr is a value
                # that is never None.
                is_new = gradient is not grad and getattr(gradient, "base", grad) is None
                parts.append((parent, gradient, is_new))
        return parts

    def saved_tensors(self, node: Node) -> list[Any]:
        """Return what `node` saved. Each array becomes a Tensor with its node, so that the rules
        are recorded."""
        tensors = []
        # The first versions are those of the positions, the others belong to "saved".
        noted = zip(self.saved_positions, node.saved, node.versions, strict=False)
        for position, value, (version, _) in noted:
            if type(value) in array_types:
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
        given, is_tensor = gradient, isinstance(gradient, TensorBase.tensor_class)
        if not (is_tensor or is_array(given)):
            gradient = np.asarray(None if isinstance(given, list) else given)
        if gradient.dtype.kind != "f":
            hint = ": is its return missing?" if given is None else ", which is an array of floats"
            raise GraphError(
                f"a derivative rule of {self.name} returned {describe(given)} instead of a "
                f"gradient for argument {position}{hint}"
            )
        if gradient.shape != parent.shape:
            summed = gradient.sum_to if is_tensor else partial(sum_to, gradient)
            try:
                gradient = summed(parent.shape)
            except ShapeError:
                raise GraphError(
                    f"a derivative rule of {self.name} returned a gradient of shape "
                    f"{gradient.shape} for an argument of shape {parent.shape}"
                ) from None
        cast = gradient.to if is_tensor else gradient.astype
        return gradient if gradient.dtype == parent.dtype else cast(parent.dtype)
