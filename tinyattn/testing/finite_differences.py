"""Compare derivatives with finite differences, for any function of Tensors.

The full check compares every element of the Jacobian J of every output by every input. The fast
check compares one number, u^T J v, for random u and v of both signs. u is the cotangent: the
gradient of the output, from which backward starts. It is random, because the gradient of
`softmax(x).sum()` is 0 for every x: a check that sums the output would accept a softmax whose
derivative is 0, halved, or of the wrong sign.

The error of the five-point differences falls with the fourth power of the step. In float64 it is
about 1e-11, a hundredth of the error of central differences.

A function such as relu has kinks. Where a step crosses one, the differences are wrong, and not the
derivative. So a derivative that differs is looked at again:

1. With smaller steps, down to a ten thousandth. They cross no kink, unless the point lies on it. A
   derivative that agrees with the differences of one step is right. If the values bend there, as
   those of abs at 0, the point may still lie at a kink: see 3.
2. Close to the point, where `slopes.py` sees if there is a kink. If not, the derivative is wrong.
   At a kink, each number between the slopes of both sides is right, and between these and 0: at a
   row of zeros relu and the weights after it give 0. Where several kinks are seen to meet, or where
   the value jumps, each number is accepted.
3. After a kink all is checked again at two points close by, one on each side, until there is no
   kink. So what is wrong on one side of a kink is noticed, and no point is only excused.

Only values of the function say where a kink is, so a wrong derivative cannot make one. And only
values count: `relu(x) - relu(-x)` is x, with slope 1 everywhere, but both rules of relu give 0 at
x = 0. That is rejected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..base.backend import quietly
from ..base.checks import check_number, check_type, listed
from ..engine.autograd import grad
from ..errors import DtypeError, GradcheckError, GraphError
from ..tensors.tensor import Tensor
from .slopes import Kinks, Line, moved, random_moves, signed

SMALLER = np.array([1.0, 1e-1, 1e-2, 1e-3, 1e-4])  # the steps, as parts of eps
ALONE = 4  # of many numbers at a kink, how many are checked alone
# Of the points close to a kink, in steps. Many, because each point may lie at another kink.
DISTANCES = (1.0, 2.0, 4.0, 8.0, 16.0, 5.0, 10.0, 20.0)
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
    atol, rtol: |analytic - numeric| <= atol + rtol * |numeric|. Where all values and slopes of an
        output are below 1, atol is as much smaller, down to a thousandth.
    fast: one random projection for each pair of output and input instead of the whole Jacobian.
    seed: of the random cotangents and directions.

    It also checks that a gradient has its input's shape and dtype, that a second run gives the same
    bits, and that inputs and cotangents are not changed.

    At a kink (relu at 0, ties of max) each number between the slopes of both sides and 0 is right.
    Where several kinks meet, any number is accepted. All is then checked again on both sides.

        >>> x = ta.randn(3, 4, dtype=ta.float64, requires_grad=True)
        >>> ta.gradcheck(lambda x: F.softmax(x), [x])
        True

    Differs from PyTorch: there the tolerances are larger (atol 1e-5, rtol 1e-3), and the errors do
    not name the element.
    """
    hint = FAST_HINT if fast else ""
    Checker(fn, inputs, np.random.default_rng(seed), eps, atol, rtol, hint).check(fast)
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
    hint = FAST_HINT if fast else ""
    checker = Checker(fn, inputs, np.random.default_rng(seed + 1), eps, atol, rtol, hint)
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

    `hint` ends each message of the fast check, because a projection cannot name the element.
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
        self.fn = check_type("fn is a function of Tensors, or a module", fn, Callable)
        self.inputs = [inputs] if isinstance(inputs, Tensor) else listed("inputs", inputs)
        check_number("eps", eps, 1e-12)
        self.rng, self.eps, self.atol, self.rtol, self.hint = rng, eps, atol, rtol, hint
        self.named = list(getattr(fn, "named_parameters", list)())
        self.parameters = [parameter for _, parameter in self.named]
        self.checked = [
            (f"input {i}", tensor) for i, tensor in enumerate(self.inputs) if requires(tensor)
        ] + [(f"parameter {name!r}", tensor) for name, tensor in self.named if requires(tensor)]
        self.tensors = [tensor for _, tensor in self.checked]
        if not self.checked:
            raise ValueError("gradcheck needs a float64 input or parameter with requires_grad=True")
        for name, tensor in self.checked:
            if tensor.dtype != np.float64:
                raise DtypeError(
                    f"gradcheck needs float64, {name} is {tensor.dtype}: finite differences lose "
                    "half of the digits there are"
                )

    def outputs(self) -> tuple[Tensor, ...]:
        return floats_in(self.fn(*self.inputs))

    def check(self, fast: bool) -> list[str]:
        """Check the derivatives, element by element or in one random projection.

        Returns the names of those that lie at a kink.
        """
        at_kinks = []
        for o, output in enumerate(self.outputs()):
            if not output.requires_grad:
                raise GradcheckError(
                    f"output {o} depends on no input that requires gradients, or the graph was cut"
                )
            self.check_contract(o, output)
            check = partial(self.check_projection if fast else self.check_jacobian, o, output)
            if kinks := check():
                self.check_beside(check, kinks[0])
            at_kinks += kinks
        return at_kinks

    def check_beside(self, check: Callable[[], list[str]], kink: str) -> None:
        """Check again close by, on both sides of this point, until there is no kink."""
        for distance in DISTANCES:
            moves = random_moves(self.tensors, distance * self.eps, self.rng)
            with moved(self.tensors, moves):
                kinks = check()
            with moved(self.tensors, [-move for move in moves]):
                kinks += check()
            if not kinks:
                return
        raise GradcheckError(
            f"{kink}: finite differences find a kink here and everywhere close by, so they prove "
            "nothing: is fn random or in float32, or are its values large beside its slopes?"
        )

    def cotangents(self) -> list[Tensor]:
        """Random gradients of the outputs, which require gradients themselves."""
        outs, draw = self.outputs(), self.rng.standard_normal
        return [Tensor(draw(o.shape), device=o.device, requires_grad=True) for o in outs]

    def of_the_gradient(self) -> Checker:
        """A Checker of the gradient of `fn`, a function of the inputs and cotangents."""
        count = len(self.inputs)

        def gradient(*arguments: Any) -> tuple[Tensor, ...]:
            outputs = floats_in(self.fn(*arguments[:count]))
            tensors = [t for t in (*arguments[:count], *self.parameters) if requires(t)]
            gradients = grad(
                outputs, tensors, list(arguments[count:]), create_graph=True, allow_unused=True
            )
            # A gradient that is constant has no derivative to check.
            return tuple(g for g in gradients if g is not None and g.requires_grad)

        gradient.named_parameters = lambda: self.named  # type: ignore[attr-defined]
        inputs = [*self.inputs, *self.cotangents()]
        return Checker(gradient, inputs, self.rng, self.eps, self.atol, self.rtol, self.hint)

    def check_recorded(self) -> None:
        """Rules that run on Tensors must give the same as on arrays."""
        cotangents = self.cotangents()
        unrecorded, recorded = (
            grad(self.outputs(), self.tensors, cotangents, create_graph=create, allow_unused=True)
            for create in (False, True)
        )
        largest = max((np.abs(g.numpy()).max(initial=0.0) for g in cotangents), default=0.0)
        for (name, _), one, other in zip(self.checked, unrecorded, recorded, strict=True):
            a, b = (np.zeros(()) if g is None else g.numpy() for g in (one, other))
            scale = np.abs(a[np.isfinite(a)]).max(initial=largest)
            if not np.allclose(a, b, rtol=1e-11, atol=1e-12 * scale, equal_nan=True):
                raise GradcheckError(f"the gradient for {name} is another with create_graph=True")
            if other is not None and not other.requires_grad and b.any():
                raise GradcheckError(
                    f"the gradient for {name} loses its graph when it is recorded "
                    "(create_graph=True): it does not depend on the gradient of the output"
                )

    def gradients(self, o: int, cotangent: np.ndarray) -> list[np.ndarray]:
        """The analytic gradients of output `o`, in the order of `self.checked`."""
        output = self.outputs()[o]
        grad_output = Tensor(cotangent, device=output.device)
        try:
            gradients = grad(output, self.tensors, grad_output, allow_unused=True)
        except GraphError as error:  # a rule that returns nothing, or the wrong shape
            raise GradcheckError(f"output {o}: {error}") from error
        if not np.array_equal(grad_output.numpy(), cotangent):
            raise GradcheckError(f"the derivative of output {o} changed its cotangent")
        return [
            np.zeros(tensor.shape) if g is None else g.numpy()
            for g, tensor in zip(gradients, self.tensors, strict=True)
        ]

    def check_contract(self, o: int, output: Tensor) -> None:
        """Check shapes, dtypes, and that nothing but the result changes."""
        cotangent = self.rng.standard_normal(output.shape)
        before = [tensor.numpy() for tensor in self.tensors]
        first, second = self.gradients(o, cotangent), self.gradients(o, -cotangent)
        for (name, tensor), old, one, two in zip(self.checked, before, first, second, strict=True):
            if one.shape != tensor.shape or one.dtype != tensor.dtype:
                raise GradcheckError(
                    f"the gradient of output {o} for {name} is {one.dtype}{one.shape}, the "
                    f"input {tensor.dtype}{tensor.shape}"
                )
            if not np.array_equal(one, -two, equal_nan=True):
                raise GradcheckError(
                    f"two runs gave different gradients of output {o} for {name}: is something "
                    "random in fn (dropout in training mode), or a rule without grad or not linear?"
                )
            is_noise = np.abs(one).max(initial=0.0) <= self.atol
            if not is_noise and np.array_equal(one, quietly(one.astype, np.float32)):
                raise GradcheckError(
                    f"the gradient of output {o} for {name} has the digits of float32, although "
                    "the input is float64"
                )
            if not np.array_equal(old, tensor.numpy(), equal_nan=True):
                raise GradcheckError(f"{name} was changed by computing output {o} or its gradient")

    def differences(
        self,
        line: Line,
        analytic: np.ndarray,
        weights: Any = None,
        slack: float = 1.0,
        least: Any = 0,
    ) -> Any:
        """Compare derivatives with the slopes of a line, with smaller and smaller steps.

        weights: for one sum of the whole output; without them its numbers are compared one by one.
        slack, least: a factor of atol, and the least number of which rtol is taken.

        Returns which derivatives differ with each step, and which agree where the values bend; and
        the slopes, the tolerance, and the length of the last step, or of a close one if all agree.
        """

        def weighted(numbers: np.ndarray) -> Any:
            return numbers.reshape(-1) if weights is None else np.sum(numbers * weights)

        wrong, bent, last = np.ones(analytic.shape, bool), np.zeros(analytic.shape, bool), None
        for step in self.eps * SMALLER:
            slopes, bends = map(weighted, line.slope(step))
            error: Any = line.rounding(step)
            error = error.reshape(-1) if weights is None else np.linalg.norm(error * weights)
            # Of the smaller one, because where the value jumps the slope is huge.
            size = np.minimum(np.abs(analytic), np.abs(slopes))
            # Beside small values and slopes atol is smaller too, else it would excuse all of them.
            largest = max(np.max(line.largest, initial=1e-3), np.max(np.abs(slopes), initial=0.0))
            tolerance = self.atol * min(1.0, largest) * slack + self.rtol * np.maximum(size, least)
            if last and (error > tolerance)[wrong].any():
                break
            agrees = np.abs(analytic - slopes) <= tolerance
            bends_here = wrong & agrees & (np.abs(bends) > tolerance + error)
            if bends_here.any():  # a kink bends as much with a smaller step, and a curve less
                closer = weighted(line.slope(step / 10)[1])
                bent |= bends_here & (np.abs(closer) > np.abs(bends) / 2)
            wrong &= ~agrees
            last = wrong, bent, slopes, tolerance, step
            if not wrong.any():
                return wrong, bent, slopes, tolerance, self.eps * SMALLER[-1]
        return last

    def projected(self, line: Line, gradient: np.ndarray, weights: np.ndarray) -> tuple[Any, ...]:
        """The derivative of a weighted sum of the output along a line, and its `differences`."""
        analytic = np.asarray((gradient * joined(line.directions)).sum())
        # Errors of n elements have random signs, so their sum grows with sqrt(n).
        inputs, outputs = max(1, gradient.size), max(1, int(np.count_nonzero(weights)))
        least = np.abs(gradient).sum() / math.sqrt(inputs)
        slack = math.sqrt(inputs * outputs)
        return analytic, *self.differences(line, analytic, weights, slack, least)

    def judge(self, pair: str, i: int | None, analytic: Any, slope: Any, kinks: Kinks) -> None:
        """GradcheckError unless number `i` is at a kink, and its derivative between the slopes.

        i: None for the sum of all numbers that are not at a kink.
        """
        given = f"{slope:.7g}, no kink is near"
        if slope == 0:  # the steps are too small for float32
            given += " (or fn computes in float32)"
        if i is None and kinks.here.any():
            given = f"{slope:.7g}, without the numbers at a kink"
        elif i is not None and kinks.here.flat[i]:
            low, high, margin = (bound.flat[i] for bound in kinks[1:])
            if min(low, 0) - margin <= analytic <= max(high, 0) + margin:
                return
            given = f"{low:.7g} to {high:.7g} at a kink"
        raise GradcheckError(
            f"{pair}: the derivative gives {analytic:.7g}, finite differences give {given}"
            f"{self.hint}"
        )

    def check_jacobian(self, o: int, output: Tensor) -> list[str]:
        """Check every element of J: a row for each output element, a column for each input's.

        Returns the names of those at a kink.
        """
        rows: list[list[np.ndarray]] = []
        for i in range(output.numel()):
            # A random factor instead of 1 shows a rule that ignores its cotangent.
            factor = float(self.rng.choice([-1.0, 1.0]) * self.rng.uniform(0.5, 1.5))
            cotangent = np.zeros(output.shape)
            cotangent.flat[i] = factor
            rows.append([g.reshape(-1) / factor for g in self.gradients(o, cotangent)])
        at_kinks = []
        for t, (name, tensor) in enumerate(self.checked):
            analytic = np.array([row[t] for row in rows]).reshape(output.numel(), tensor.numel())
            for j in range(tensor.numel()):
                direction = np.zeros(tensor.shape)
                direction.flat[j] = 1.0
                line = Line(self, o, [tensor], [direction])
                wrong, bent, slopes, tolerance, step = self.differences(line, analytic[:, j])
                if not (wrong | bent).any():
                    continue
                kinks = line.kinks(step, tolerance.reshape(output.shape))
                for i in np.flatnonzero(wrong | (bent & kinks.here.reshape(-1))).tolist():
                    pair = f"d output {o}{index(i, output)} / d {name}{index(j, tensor)}"
                    if wrong[i]:
                        self.judge(pair, i, analytic[i, j], slopes[i], kinks)
                    at_kinks.append(pair)
        # And one full cotangent, because a rule may be wrong only for several elements.
        projected = self.check_projection(o, output)
        return at_kinks or projected

    def check_projection(self, o: int, output: Tensor) -> list[str]:
        """Check one number for each input: u^T J v for random u and v of both signs.

        The sum over many numbers at a kink says little. So those are left out, and some of them are
        checked alone. Then all inputs move together and equally: so do numbers that tie, whose
        gradients each lie between the slopes and add up to a wrong one. Returns the names of those
        at a kink.
        """
        cotangent = signed(self.rng, output.shape)
        of_all, everything = self.gradients(o, cotangent), list(range(len(self.checked)))
        at_kinks: dict[str, None] = {}
        for chosen in [*([t] for t in everything), everything]:
            if chosen is everything and not at_kinks:
                break
            name = " and ".join(self.checked[t][0] for t in chosen)
            tensors = [self.tensors[t] for t in chosen]
            directions = [signed(self.rng, tensor.shape) for tensor in tensors]
            if chosen is everything:
                directions = [np.ones(tensor.shape) for tensor in tensors]
            line = Line(self, o, tensors, directions)
            gradient = joined([of_all[t] for t in chosen])
            _, wrong, bent, _, tolerance, step = self.projected(line, gradient, cotangent)
            if not wrong and not bent:
                continue
            kinks = line.kinks(step, tolerance / math.sqrt(max(1, output.numel())))
            numbers = np.flatnonzero(kinks.here)
            for i in (None, *self.rng.permutation(numbers)[:ALONE].tolist()):
                weights = np.where(kinks.here, 0.0, cotangent)
                pair = f"output {o} by {name}, random projection u^T J v"
                if i is not None:
                    weights = (np.arange(output.numel()) == i).reshape(output.shape) * 1.0
                    pair = f"output {o}{index(i, output)} by {name}, random projection J v"
                of_some = self.gradients(o, weights)
                gradient = joined([of_some[t] for t in chosen])
                analytic, wrong, _, slope, *_ = self.projected(line, gradient, weights)
                if wrong:
                    self.judge(pair, i, analytic, slope, kinks)
            names = [f"output {o}{index(i, output)} by {name}" for i in numbers.tolist()]
            at_kinks |= dict.fromkeys([] if chosen is everything else names)
        return list(at_kinks)


def joined(arrays: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([array.reshape(-1) for array in arrays])


def index(i: int, tensor: Tensor | np.ndarray) -> str:
    """Of element `i`, such as [2, 1]."""
    return str([int(k) for k in np.unravel_index(i, tensor.shape)])
