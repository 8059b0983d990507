"""Compare derivatives with finite differences, for any function of Tensors.

The full check compares every element of the Jacobian J of every output by every input. The fast
check compares one number, u^T J v, for random u and v of both signs. u is the cotangent: the
gradient of the output, from which backward starts. It is random, because the gradient of
`softmax(x).sum()` is 0 for every x: a check that sums the output would accept a softmax whose
derivative is 0, halved, or of the wrong sign.

The error of the five-point differences falls with the fourth power of the step. In float64 it is
about 1e-11, a hundredth of the error of central differences.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..base.backend import namespace, quietly, to_device
from ..base.checks import check_type, listed
from ..engine import autograd
from ..engine.grad_mode import enable_grad
from ..errors import DtypeError, GradcheckError, GraphError
from ..tensors.tensor import Tensor

# f'(x) from f(x - 2h), f(x - h), f(x + h), f(x + 2h), each with its weight, divided by 12 h.
FIVE_POINTS = ((-2.0, 1.0), (-1.0, -8.0), (1.0, 8.0), (2.0, -1.0))
FAST_HINT = "; the full check (fast=False) names the element"


def gradcheck(
    fn: Callable[..., Any],
    inputs: Tensor | Sequence[Any] = (),
    *,
    eps: float = 1e-3,
    atol: float = 1e-7,
    rtol: float = 1e-6,
    fast: bool = False,
    seed: int = 0,
) -> bool:
    """True if the derivatives of `fn` agree with finite differences, else GradcheckError.

    fn: a function of Tensors that returns a Tensor or several; or a Module, and then its parameters
        are checked too. It must be deterministic: put a model with dropout in eval mode.
    inputs: its arguments. All that require gradients are checked, and all parameters of a Module.
        They must be float64, because float32 has too few digits for differences.
    eps: the step of the differences, relative to the largest number of an input (at least 1).
    atol, rtol: |analytic - numeric| <= atol + rtol * |numeric|.
    fast: one random projection for each pair of output and input instead of the whole Jacobian.
    seed: of the random cotangents and directions.

    It also checks that a gradient has its input's shape and dtype, that a second run gives the same
    bits, and that inputs and cotangents are not changed.

    At a kink (relu at 0, ties of max) there is no derivative, so inputs must be more than 2 eps
    away from it.

        >>> x = ta.randn(3, 4, dtype=ta.float64, requires_grad=True)
        >>> ta.gradcheck(lambda x: F.softmax(x), [x])
        True

    Differs from PyTorch's gradcheck: its tolerances are larger (atol 1e-5, rtol 1e-3), and its
    errors do not name the element.
    """
    rng = np.random.default_rng(seed)
    Checker(fn, inputs, rng, eps, atol, rtol, FAST_HINT).check(fast)
    return True


def gradgradcheck(
    fn: Callable[..., Any],
    inputs: Tensor | Sequence[Any] = (),
    *,
    eps: float = 1e-3,
    atol: float = 1e-6,
    rtol: float = 1e-5,
    fast: bool = False,
    seed: int = 0,
) -> bool:
    """`gradcheck` of the gradient of `fn`, that is of its second derivatives.

    The gradients for random cotangents are checked as functions of the inputs and of the
    cotangents. Arguments and errors: as in `gradcheck`.
    """
    rng = np.random.default_rng(seed + 1)
    checker = Checker(fn, inputs, rng, eps, atol, rtol, FAST_HINT)
    checker.check_recorded()
    checker.of_the_gradient().check(fast)
    return True


def tensors_in(value: Any) -> tuple[Tensor, ...]:
    """The results of a function as a tuple; it returns one Tensor or several."""
    outputs = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    for i, output in enumerate(outputs):
        check_type(f"output {i} of fn must be a Tensor", output, Tensor)
    return outputs


def floats_in(value: Any) -> tuple[Tensor, ...]:
    """The results that can have a gradient."""
    return tuple(output for output in tensors_in(value) if output.dtype.kind == "f")


def requires(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


class Checker:
    """One function to check, its inputs and its tolerances.

    `hint` ends the message of a random projection, because that cannot name the element.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        inputs: Tensor | Sequence[Any],
        rng: np.random.Generator,
        eps: float = 1e-3,
        atol: float = 1e-7,
        rtol: float = 1e-6,
        hint: str = "",
    ) -> None:
        self.fn = fn
        self.inputs = [inputs] if isinstance(inputs, Tensor) else listed("inputs", inputs)
        self.rng, self.eps, self.atol, self.rtol, self.hint = rng, eps, atol, rtol, hint
        named = getattr(fn, "named_parameters", None)
        self.named = list(named()) if named else list(getattr(fn, "extra_parameters", ()))
        self.parameters = [parameter for _, parameter in self.named]
        self.checked = [
            (f"input {i}", tensor) for i, tensor in enumerate(self.inputs) if requires(tensor)
        ] + [(f"parameter {name!r}", tensor) for name, tensor in self.named if requires(tensor)]
        if not self.checked:
            raise ValueError("gradcheck needs an input or a parameter that requires gradients")
        for name, tensor in self.checked:
            if tensor.dtype != np.float64:
                raise DtypeError(
                    f"gradcheck needs float64, {name} is {tensor.dtype}: finite differences lose "
                    "half of the digits there are"
                )

    def outputs(self) -> tuple[Tensor, ...]:
        return floats_in(self.fn(*self.inputs))

    def check(self, fast: bool) -> None:
        """Check the derivatives, element by element or in one random projection."""
        for o, output in enumerate(self.outputs()):
            if not output.requires_grad:
                raise GradcheckError(
                    f"output {o} does not depend on any input that requires gradients, or the "
                    "graph was cut"
                )
            self.check_contract(o, output)
            if fast:
                self.check_projection(o, output, self.hint)
            else:
                self.check_jacobian(o, output)

    def cotangents(self) -> list[Tensor]:
        return [
            Tensor(self.rng.standard_normal(output.shape), device=output.device)
            for output in self.outputs()
        ]

    def of_the_gradient(self) -> Checker:
        """A Checker of the gradient of `fn`, a function of the inputs and cotangents."""
        count = len(self.inputs)

        def gradient(*arguments: Any) -> tuple[Tensor, ...]:
            outputs = floats_in(self.fn(*arguments[:count]))
            tensors = [t for t in (*arguments[:count], *self.parameters) if requires(t)]
            gradients = autograd.grad(
                outputs, tensors, list(arguments[count:]), create_graph=True, allow_unused=True
            )
            # A gradient that is constant has no derivative to check.
            return tuple(g for g in gradients if g is not None and g.requires_grad)

        gradient.extra_parameters = self.named  # type: ignore[attr-defined]
        cotangents = [cotangent.requires_grad_() for cotangent in self.cotangents()]
        inputs = [*self.inputs, *cotangents]
        return Checker(gradient, inputs, self.rng, self.eps, self.atol, self.rtol, self.hint)

    def check_recorded(self) -> None:
        """Rules that run on Tensors must give the same as on arrays."""
        tensors = [tensor for _, tensor in self.checked]
        cotangents = self.cotangents()
        unrecorded, recorded = (
            autograd.grad(
                self.outputs(), tensors, cotangents, create_graph=create_graph, allow_unused=True
            )
            for create_graph in (False, True)
        )
        largest = max((np.abs(g.numpy()).max(initial=0.0) for g in cotangents), default=0.0)
        for (name, _), one, other in zip(self.checked, unrecorded, recorded, strict=True):
            a, b = (np.zeros(()) if g is None else g.numpy() for g in (one, other))
            scale = max(largest, np.abs(a).max(initial=0.0))
            if not np.allclose(a, b, rtol=1e-11, atol=1e-12 * scale, equal_nan=True):
                raise GradcheckError(
                    f"the gradient for {name} is another when a graph of it is recorded "
                    "(create_graph=True)"
                )

    def gradients(self, o: int, cotangent: np.ndarray) -> list[np.ndarray]:
        """The analytic gradients of output `o`, in the order of `self.checked`."""
        output = self.outputs()[o]
        tensors = [tensor for _, tensor in self.checked]
        grad_output = Tensor(cotangent, device=output.device)
        try:
            gradients = autograd.grad(output, tensors, grad_output, allow_unused=True)
        except GraphError as error:  # a rule that returns nothing, or the wrong shape
            raise GradcheckError(f"output {o}: {error}") from error
        if not np.array_equal(grad_output.numpy(), cotangent, equal_nan=True):
            raise GradcheckError(f"the derivative of output {o} changed its cotangent")
        return [
            np.zeros(tensor.shape) if g is None else g.numpy()
            for g, tensor in zip(gradients, tensors, strict=True)
        ]

    def check_contract(self, o: int, output: Tensor) -> None:
        """Check shapes, dtypes, and that nothing but the result changes."""
        cotangent = self.rng.standard_normal(output.shape)
        before = [tensor.numpy() for _, tensor in self.checked]
        first, second = self.gradients(o, cotangent), self.gradients(o, cotangent)
        for (name, tensor), old, one, two in zip(self.checked, before, first, second, strict=True):
            if one.shape != tensor.shape or one.dtype != tensor.dtype:
                raise GradcheckError(
                    f"the gradient of output {o} for {name} is {one.dtype}{one.shape}, the "
                    f"input {tensor.dtype}{tensor.shape}"
                )
            if not np.array_equal(one, two, equal_nan=True):
                raise GradcheckError(
                    f"two runs gave different gradients of output {o} for {name}: is something "
                    "random in fn (dropout in training mode)?"
                )
            if not np.array_equal(old, tensor.numpy(), equal_nan=True):
                raise GradcheckError(f"{name} was changed by computing output {o} or its gradient")

    def moved(self, o: int, tensor: Tensor, direction: np.ndarray) -> np.ndarray:
        """d output / d step along `direction` of `tensor`, by finite differences."""
        original = tensor._data
        step = self.eps * max(1.0, float(np.abs(tensor.numpy()).max(initial=0.0)))
        values = []
        try:
            for place, _ in FIVE_POINTS:
                move = to_device((place * step) * direction, tensor.device)
                tensor._data = namespace(original).asarray(original + move)  # a sum may be a number
                with enable_grad():  # fn itself may need it
                    values.append(self.outputs()[o].numpy())
        finally:
            tensor._data = original
        stack = np.array(values)
        total = quietly(np.tensordot, [weight for _, weight in FIVE_POINTS], stack, 1)
        # A constant has slope 0, even if it is infinite.
        return np.where((stack == stack[0]).all(axis=0), 0.0, total / (12 * step))

    def check_jacobian(self, o: int, output: Tensor) -> None:
        """Check every element of J: a row for each output element, a column for each input's."""
        rows: list[list[np.ndarray]] = []
        for i in range(output.numel()):
            # A random factor instead of 1 shows a rule that ignores its cotangent.
            factor = float(self.rng.choice([-1.0, 1.0]) * self.rng.uniform(0.5, 1.5))
            cotangent = np.zeros(output.shape)
            cotangent.flat[i] = factor
            rows.append([g.reshape(-1) / factor for g in self.gradients(o, cotangent)])
        for t, (name, tensor) in enumerate(self.checked):
            analytic = np.array([row[t] for row in rows]).reshape(output.numel(), tensor.numel())
            for j in range(tensor.numel()):
                direction = np.zeros(tensor.shape)
                direction.flat[j] = 1.0
                numeric = self.moved(o, tensor, direction).reshape(-1)
                self.compare(o, output.shape, name, tensor.shape, j, analytic[:, j], numeric)
        # And one full cotangent, because a rule may be wrong only for several elements.
        self.check_projection(o, output)

    def compare(
        self,
        o: int,
        output_shape: tuple[int, ...],
        name: str,
        shape: tuple[int, ...],
        j: int,
        analytic: np.ndarray,
        numeric: np.ndarray,
    ) -> None:
        wrong = ~(np.abs(analytic - numeric) <= self.atol + self.rtol * np.abs(numeric))
        if wrong.any():
            i = int(np.flatnonzero(wrong)[0])
            at = tuple(int(k) for k in np.unravel_index(i, output_shape)) if output_shape else ()
            by = tuple(int(k) for k in np.unravel_index(j, shape)) if shape else ()
            raise GradcheckError(
                f"d output {o}{list(at)} / d {name}{list(by)}: the derivative gives "
                f"{analytic[i]:.10g}, finite differences give {numeric[i]:.10g}"
            )

    def check_projection(self, o: int, output: Tensor, hint: str = "") -> None:
        """Check one number for each input: u^T J v for random u and v of both signs."""
        cotangent = signed(self.rng, output.shape)
        for (name, tensor), gradient in zip(
            self.checked, self.gradients(o, cotangent), strict=True
        ):
            direction = signed(self.rng, tensor.shape)
            analytic = float((gradient * direction).sum())
            numeric = float((self.moved(o, tensor, direction) * cotangent).sum())
            # Errors of n elements have random signs, so their sum grows with sqrt(n).
            slack = math.sqrt(max(1, tensor.numel()) * max(1, output.numel()))
            scale = float(np.abs(gradient).sum())
            if not abs(analytic - numeric) <= self.atol * slack + self.rtol * max(
                abs(numeric), scale / math.sqrt(max(1, tensor.numel()))
            ):
                raise GradcheckError(
                    f"output {o} by {name}, random projection u^T J v: the derivative gives "
                    f"{analytic:.10g}, finite differences give {numeric:.10g}{hint}"
                )


def signed(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Random numbers of both signs, none close to 0, so that each element counts."""
    return rng.choice([-1.0, 1.0], shape) * rng.uniform(0.5, 1.5, shape)
