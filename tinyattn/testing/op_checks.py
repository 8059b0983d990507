"""`check_op`: the tests that every op of the library passes, for an op of your own."""

import gc
import pickle
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator

from ..base.backend import read_only
from ..base.checks import check_type
from ..engine.autograd import grad, wrap
from ..errors import GradcheckError, GraphError, InPlaceError
from ..nn import Module
from ..nn.module import copied
from ..tensors.tensor import Tensor
from .finite_differences import Checker, index, requires, tensors_in
from .slopes import signed

FULL_CHECK_UP_TO = 64  # elements; a random projection instead of the whole Jacobian above that
HIDDEN = "; check_op asks for that of all floats: of a constant write lambda x: fn(x, constant)"
Function = Callable[..., Any]
Arguments = Sequence[Any]
Cotangents = Callable[[Tensor], np.ndarray]  # makes the cotangent of an output
Layout = Callable[[np.ndarray], np.ndarray]


def check_op(
    fn: Function,
    samples: Sequence[Arguments],
    *,
    reference: Function | None = None,
    smooth: bool = True,
    second_order: bool = True,
    bitwise: bool = False,
    eps: float = 1e-3,
    seed: int = 0,
) -> str:
    """Test a differentiable function as the library tests its own ops.

    fn: a function of Tensors that returns a Tensor, or several, such as an op made with `@ta.op`;
        or a Module, and then gradients of its parameters are checked too.
    samples: argument lists. Gradients of floats, and of arrays and Tensors of floats, among the
        arguments are checked, in float64 whatever their dtype; other arguments are passed on.
    reference: the same function in plain NumPy, written independently, to compare values with.
    smooth: False where finite differences mean nothing, such as for numbers near the largest; all
        the rest is checked. Kinks need no False: `gradcheck` says how they are checked.
    second_order: False leaves out derivatives of second order.
    bitwise: require the same bits for every memory layout. The library's own ops give them; sums
        and products of NumPy do not, because they add in another order.
    eps: the step of finite differences, as in `gradcheck`.

    Returns a line that says what was checked, and how many derivatives lie at a kink. Raises
    GradcheckError, which names the sample and the property that failed:

    - the value is that of the reference, if there is one, to 1e-12;
    - the derivative agrees with finite differences, and so does its derivative;
    - the derivative is the same if a graph of it is recorded, and the graph is not lost;
    - it is linear in the cotangent, exactly: vjp(0) = 0, vjp(-2 g) = -2 vjp(g);
    - float32 and float16 inputs give results and gradients of that dtype;
    - arrays that are reversed, transposed, repeated, with gaps, misaligned or read-only give the
      same as contiguous ones, in float64 and float32;
    - inputs and cotangent do not change, no gradient shares memory with another array, a
      second run gives the same bits, NumPy's global random state and error settings do not change;
    - results are freed with their last reference, without the garbage collector.

        >>> from tinyattn.testing import check_op
        >>> print(check_op(F.softmax, [(ta.randn(2, 3),), (ta.randn(4), 0)]))
        softmax, 2 samples: purity, derivative, second derivative, recorded derivative, linearity,
        dtypes, memory layouts, lifetime
    """
    is_list = isinstance(samples, (tuple, list))
    if not is_list or not all(isinstance(sample, (tuple, list)) for sample in samples):
        raise TypeError("samples is a list of argument tuples, such as [(x,)] or [(x, y), (z, w)]")
    if not samples:
        raise ValueError("check_op needs at least one sample: with none it would prove nothing")
    rng = np.random.default_rng(seed)
    fn = converted(check_type("fn is a function of Tensors, or a module", fn, Callable), np.float64)
    checks = checks_for(reference, smooth, second_order, bitwise, eps)
    kinks: list[str] = []
    for number, sample in enumerate(samples):
        arguments = [differentiable(value) for value in sample]
        try:
            for check in checks.values():
                found = check(fn, arguments, rng)
                kinks += [f"sample {number}, {name}" for name in found or ()]
        except (GradcheckError, GraphError, InPlaceError) as error:
            hint = HIDDEN if "has no derivative with respect to" in str(error) else ""
            raise GradcheckError(f"sample {number}: {error}{hint}") from error
    name = getattr(fn, "__name__", type(fn).__name__)
    count = "1 sample" if len(samples) == 1 else f"{len(samples)} samples"
    at_kinks = f"; {len(kinks)} at a kink, first {kinks[0]}" if kinks else ""
    return f"{name}, {count}: {', '.join(checks)}{at_kinks}"


def checks_for(
    reference: Function | None, smooth: bool, second_order: bool, bitwise: bool, eps: float
) -> dict[str, Callable[[Function, Arguments, Generator], list[str] | None]]:
    """The checks that were asked for, by the name of the property."""
    checks: dict[str, Any] = {
        "value": reference is not None and partial(check_value, reference),
        "purity": check_purity,  # early, because the others fail too if an input changes
        "derivative": smooth and partial(check_derivative, eps),
        "second derivative": smooth and second_order and partial(check_second_derivative, eps),
        "recorded derivative": second_order and (lambda *call: Checker(*call).check_recorded()),
        "linearity": check_linearity,
        "dtypes": check_dtypes,
        "memory layouts": partial(check_layouts, bitwise),
        "lifetime": check_lifetime,
    }
    return {name: check for name, check in checks.items() if check}


# Calling the function


def differentiable(value: Any) -> Any:
    """Floats as a float64 Tensor that requires gradients; other values as they are."""
    if not isinstance(value, (Tensor, float, list, np.ndarray)):
        return value
    array = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
    return Tensor(array, np.float64, requires_grad=True) if array.dtype.kind == "f" else value


def converted(fn: Function, dtype: Any) -> Function:
    """A module in another dtype, as a copy; any other function as it is."""
    return copied(fn).to(dtype) if isinstance(fn, Module) else fn


def in_dtype(arguments: Arguments, dtype: Any) -> list[Any]:
    return [Tensor(a.numpy(), dtype, requires_grad=True) if requires(a) else a for a in arguments]


def tensors_to_check(fn: Function, arguments: Arguments) -> list[Tensor]:
    """The Tensors whose gradients are checked: arguments, and parameters of a module."""
    parameters = fn.parameters() if isinstance(fn, Module) else ()
    return [tensor for tensor in (*arguments, *parameters) if requires(tensor)]


def run(
    fn: Function, arguments: Arguments, cotangents: Cotangents
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Outputs and gradients, as arrays. Outputs without a graph give no gradients."""
    outputs = tensors_in(fn(*arguments))
    recorded = [output for output in outputs if output.requires_grad]
    tensors = tensors_to_check(fn, arguments)
    gradients: Sequence[Any] = [None] * len(tensors)
    if recorded:
        grad_outputs = [wrap(cotangents(output)) for output in recorded]
        gradients = grad(recorded, tensors, grad_outputs, allow_unused=True)
    gradient_arrays = [
        np.zeros(t.shape, t.dtype) if g is None else g._data
        for g, t in zip(gradients, tensors, strict=True)
    ]
    return [output._data for output in outputs], gradient_arrays


def random_cotangents(seed: int) -> Cotangents:
    """The same random signed cotangents for every run with this seed."""
    rng = np.random.default_rng(seed)
    return lambda output: signed(rng, output.shape).astype(output.dtype)


def draw(rng: Generator) -> int:
    return int(rng.integers(2**31))


def bits(array: np.ndarray) -> tuple[Any, ...]:
    """Equal for two arrays that are the same to the last bit, NaN included."""
    return array.shape, array.dtype, array.tobytes()


# The properties


def check_value(reference: Function, fn: Function, arguments: Arguments, rng: Generator) -> None:
    target = reference(*(a.numpy() if isinstance(a, Tensor) else a for a in arguments))
    outputs = [output.numpy() for output in tensors_in(fn(*arguments))]
    expected = list(map(np.asarray, target if isinstance(target, (tuple, list)) else [target]))
    shapes, others = ([array.shape for array in arrays] for arrays in (outputs, expected))
    if shapes != others:
        raise GradcheckError(f"outputs have the shapes {shapes}, those of the reference {others}")
    for i, (output, target) in enumerate(zip(outputs, expected, strict=True)):
        scale = np.abs(target[np.isfinite(target)]).max(initial=0.0)
        near = np.isclose(output, target, rtol=1e-12, atol=1e-12 * scale, equal_nan=True)
        if not near.all():
            k = int(near.argmin())
            values = f"is {output.flat[k]}, the reference gives {target.flat[k]}"
            raise GradcheckError(f"output {i}{index(k, output)} {values}")


def check_purity(fn: Function, arguments: Arguments, rng: Generator) -> None:
    """Nothing but the result changes, and a second run gives the same bits."""
    values = (*arguments, *tensors_to_check(fn, ()))
    inputs = [a._data if isinstance(a, Tensor) else a for a in values]
    inputs = [array for array in inputs if isinstance(array, np.ndarray)]
    before = [(bits(array), array.flags.writeable) for array in inputs]
    random_state, settings = global_random_state(), np.geterr()
    seed = draw(rng)
    cotangents = random_cotangents(seed)
    used_cotangents: list[np.ndarray] = []

    def remembered(output: Tensor) -> np.ndarray:
        used_cotangents.append(cotangents(output))
        return used_cotangents[-1]

    outputs, gradients = run(fn, arguments, remembered)
    again = run(fn, arguments, random_cotangents(seed))
    if [(bits(array), array.flags.writeable) for array in inputs] != before:
        raise GradcheckError("an input was changed, or made read-only")
    if random_state != global_random_state():
        raise GradcheckError("NumPy's global random state was used")
    if settings != np.geterr():
        raise GradcheckError("NumPy's error settings were changed")
    held = [*inputs, *outputs, *used_cotangents]
    for i, gradient in enumerate(gradients):
        if any(np.shares_memory(gradient, other) for other in (*gradients[:i], *held)):
            raise GradcheckError(f"gradient {i} shares memory with something else")
    for one, other in zip((*outputs, *gradients), (*again[0], *again[1]), strict=True):
        if bits(one) != bits(other):
            raise GradcheckError(
                "two runs gave different results: is something random in fn, such as dropout?"
            )


def check_derivative(eps: float, fn: Function, arguments: Arguments, rng: Generator) -> list[str]:
    """Returns the names of the derivatives at a kink."""
    size = sum(tensor.numel() for tensor in tensors_to_check(fn, arguments))
    outputs = sum(output.numel() for output in tensors_in(fn(*arguments)))
    fast = max(size, outputs) > FULL_CHECK_UP_TO
    hint = f"; with at most {FULL_CHECK_UP_TO} numbers in inputs and outputs the element is named"
    return Checker(fn, arguments, rng, eps, hint=hint if fast else "").check(fast)


def check_second_derivative(
    eps: float, fn: Function, arguments: Arguments, rng: Generator
) -> list[str]:
    checker = Checker(fn, arguments, rng, eps, atol=1e-6, rtol=1e-5)
    try:
        return checker.of_the_gradient().check(fast=True)
    except GradcheckError as error:
        raise GradcheckError(f"second order: {error}") from error


def check_linearity(fn: Function, arguments: Arguments, rng: Generator) -> None:
    """Exact, because a number times -2 has the same digits."""
    seed = draw(rng)

    def gradients(factor: float) -> list[np.ndarray]:
        cotangents = random_cotangents(seed)
        return run(fn, arguments, lambda output: factor * cotangents(output))[1]

    of_factors = zip(gradients(0.0), gradients(1.0), gradients(-2.0), strict=True)
    for i, (zero, one, other) in enumerate(of_factors):
        if zero.any():
            raise GradcheckError(f"gradient {i} is not zero for a cotangent of zero")
        if not np.array_equal(-2 * one, other, equal_nan=True):
            raise GradcheckError(f"gradient {i} of -2 times a cotangent is not -2 times its own")


def check_dtypes(fn: Function, arguments: Arguments, rng: Generator) -> None:
    for dtype in (np.float32, np.float16):
        inputs = in_dtype(arguments, dtype)
        outputs, gradients = run(converted(fn, dtype), inputs, random_cotangents(draw(rng)))
        for result in (*outputs, *gradients):
            if result.dtype.kind == "f" and result.dtype != dtype:
                raise GradcheckError(
                    f"inputs of {np.dtype(dtype)} gave a result or gradient of {result.dtype}"
                )


def check_layouts(bitwise: bool, fn: Function, arguments: Arguments, rng: Generator) -> None:
    for dtype in (np.float64, np.float32):
        function, inputs = converted(fn, dtype), in_dtype(arguments, dtype)
        tolerance = 4096 * float(np.finfo(dtype).eps)
        for name, lay in LAYOUTS.items():
            seed = draw(rng)
            results = run_laid_out(function, inputs, [lay], seed)
            expected = run_laid_out(function, inputs, [lay, contiguous], seed)
            for one, other in zip(results, expected, strict=True):
                if bits(one) != bits(other) and (bitwise or not close(one, other, tolerance)):
                    raise GradcheckError(
                        f"arrays in the layout {name!r} give another result than contiguous ones"
                    )


def close(one: np.ndarray, other: np.ndarray, tolerance: float) -> bool:
    """Beside the largest number, because that is what a sum in another order rounds."""
    scale = np.abs(other[np.isfinite(other)]).max(initial=1.0)
    return np.allclose(one, other, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def run_laid_out(
    fn: Function, arguments: Arguments, layouts: list[Layout], seed: int
) -> list[np.ndarray]:
    """Outputs and gradients; Tensors and cotangents are put into each layout in turn."""

    def lay(array: np.ndarray) -> np.ndarray:
        for layout in layouts:
            array = layout(array)
        return array

    cotangents = random_cotangents(seed)
    arranged = [
        wrap(lay(a._data)).requires_grad_(a.requires_grad) if isinstance(a, Tensor) else a
        for a in arguments
    ]
    outputs, gradients = run(fn, arranged, lambda output: lay(cotangents(output)))
    return outputs + gradients


def check_lifetime(fn: Function, arguments: Arguments, rng: Generator) -> None:
    collecting = gc.isenabled()
    gc.disable()
    try:
        for backward in (False, True):
            inputs = [Tensor(a, requires_grad=True) if requires(a) else a for a in arguments]
            outputs: Any = tensors_in(fn(*inputs))
            recorded = [output for output in outputs if output.requires_grad]
            if backward and recorded:
                cotangents = [wrap(signed(rng, output.shape)) for output in recorded]
                grad(recorded, tensors_to_check(fn, inputs), cotangents, allow_unused=True)
            passed_on = {id(argument) for argument in inputs}
            alive = [weakref.ref(output) for output in outputs if id(output) not in passed_on]
            del outputs, recorded
            if any(reference() is not None for reference in alive):
                raise GradcheckError("an output stays alive after its last reference is gone")
    finally:
        if collecting:
            gc.enable()


def global_random_state() -> bytes:
    return pickle.dumps(np.random.get_state(legacy=False))


# Memory layouts


def contiguous(array: np.ndarray) -> np.ndarray:
    return np.array(array, order="C")


def with_gaps(array: np.ndarray) -> np.ndarray:
    """Every second element of a larger array, with NaN between them."""
    fill = np.nan if array.dtype.kind == "f" else np.array(-1).astype(array.dtype)
    larger = np.full([2 * n for n in array.shape], fill, array.dtype)
    every_second = larger[(slice(None, None, 2),) * array.ndim + (...,)]
    every_second[...] = array
    return every_second


def transposed(array: np.ndarray) -> np.ndarray:
    return contiguous(array.swapaxes(-1, -2)).swapaxes(-1, -2) if array.ndim > 1 else array.copy()


def repeated(array: np.ndarray) -> np.ndarray:
    """The first element along the first dimension, repeated with stride 0: these are new values."""
    return np.broadcast_to(array[:1].copy(), array.shape) if array.size and array.ndim else array


def misaligned(array: np.ndarray) -> np.ndarray:
    """The first element lies one byte after a multiple of its size."""
    raw = np.zeros(array.nbytes + 1, np.uint8)
    shifted = raw[1:].view(array.dtype).reshape(array.shape)
    shifted[...] = array
    return shifted


LAYOUTS: dict[str, Layout] = {
    "Fortran": lambda array: np.array(array, order="F"),
    "reversed": lambda array: np.flip(contiguous(np.flip(array))),
    "gaps": with_gaps,
    "transposed": transposed,
    "stride 0": repeated,
    "misaligned": misaligned,
    "read-only": lambda array: read_only(contiguous(array)),
}
