"""`check_op`: the tests every op of the library has to pass, for an op of your own."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from . import autograd
from .autograd import wrap
from .errors import GradcheckError, GraphError
from .finite_differences import as_tuple, gradcheck, gradgradcheck, requires, signed
from .nn import Module
from .tensor import Tensor

FULL_CHECK_UP_TO = 64  # elements; above that a random projection instead of the whole Jacobian


def check_op(
    fn: Callable[..., Any],
    samples: Sequence[Sequence[Any]],
    *,
    reference: Callable[..., Any] | None = None,
    second_order: bool = True,
    seed: int = 0,
) -> None:
    """Put a differentiable function to the tests of the library's own ops, in one line.

    fn: a function of Tensors that returns a Tensor, or several: an op made with `@ta.op`, a
        composition; or a Module, whose parameters are differentiated by as well.
    samples: argument lists to try. Float arrays and Tensors among the arguments are
        differentiated by (in float64 whatever their dtype), everything else is passed on.
    reference: the same in plain NumPy, written independently; its values must agree.
    second_order: whether its derivatives shall be right as well.

    Raises GradcheckError naming the sample and the property that failed:

    - the value is that of the reference, if there is one, to 1e-12;
    - the derivative agrees with finite differences, and so does its derivative;
    - it is linear in the upstream gradient: vjp(0) = 0, vjp(2 g) = 2 vjp(g);
    - float32 and float16 inputs give results and gradients of that dtype;
    - arrays that are reversed, strided, transposed or read-only give the same as contiguous ones;
    - inputs and upstream gradient are unchanged, no two gradients share memory, NumPy's global
      random state and error settings are untouched;
    - results are freed with their last reference, without the garbage collector.

        >>> from tinyattn.testing import check_op
        >>> check_op(lambda x, y: x * y.exp(), [([1.0, 2.0], 3.0), (ta.randn(2, 3), ta.randn(3))])
    """
    if isinstance(samples, Tensor) or not all(isinstance(s, (tuple, list)) for s in samples):
        raise TypeError("samples is a list of argument tuples, such as [(x,)] or [(x, y), (z, w)]")
    if not samples:
        raise ValueError("check_op needs at least one sample: with none it would prove nothing")
    rng = np.random.default_rng(seed)
    fn = converted(fn, np.float64)
    for number, sample in enumerate(samples):
        arguments = [differentiable(value) for value in sample]
        try:
            if reference is not None:
                check_value(fn, reference, arguments)
            check_purity(fn, arguments, rng)  # first: what is changed makes all else look wrong
            check_derivatives(fn, arguments, second_order, seed)
            check_linearity(fn, arguments, rng)
            check_dtypes(fn, arguments, rng)
            check_layouts(fn, arguments, rng)
            check_lifetime(fn, arguments, rng)
        except (GradcheckError, GraphError) as error:
            raise GradcheckError(f"sample {number}: {error}") from error


def differentiable(value: Any) -> Any:
    """Floats as a float64 Tensor that requires gradients; anything else as it is."""
    if isinstance(value, Tensor):
        array = value.numpy()
    elif isinstance(value, (float, list, np.ndarray)):
        array = np.asarray(value)
    else:
        return value
    return Tensor(array, np.float64, requires_grad=True) if array.dtype.kind == "f" else value


def converted(fn: Callable[..., Any], dtype: Any) -> Callable[..., Any]:
    """A module in another dtype, as a copy; any other function as it is."""
    return copy.deepcopy(fn).to(dtype) if isinstance(fn, Module) else fn


def run(fn: Callable[..., Any], arguments: Sequence[Any], cotangents: Any) -> list[np.ndarray]:
    """Outputs and gradients, as arrays. `cotangents` makes one for each output's shape."""
    outputs = as_tuple(fn(*arguments))
    wanted = [argument for argument in arguments if requires(argument)]
    given = [wrap(cotangents(output)) for output in outputs]
    found = autograd.grad(outputs, wanted, given, allow_unused=True)
    return [output._data for output in outputs] + [
        np.zeros(t.shape, t.dtype) if g is None else g._data
        for g, t in zip(found, wanted, strict=True)
    ]


def random_cotangents(seed: int) -> Callable[[Tensor], np.ndarray]:
    """The same random signed cotangents for every run with this seed."""
    rng = np.random.default_rng(seed)
    return lambda output: signed(rng, output.shape).astype(output.dtype)


def check_value(
    fn: Callable[..., Any], reference: Callable[..., Any], arguments: Sequence[Any]
) -> None:
    plain = [a.numpy() if isinstance(a, Tensor) else a for a in arguments]
    expected = reference(*plain)
    expected = expected if isinstance(expected, (tuple, list)) else (expected,)
    found = fn(*arguments)
    found = found if isinstance(found, (tuple, list)) else (found,)
    if len(found) != len(expected):
        raise GradcheckError(f"{len(found)} outputs, the reference has {len(expected)}")
    for i, (output, right) in enumerate(zip(found, expected, strict=True)):
        array, right = np.asarray(output), np.asarray(right)
        if array.shape != right.shape:
            raise GradcheckError(f"output {i} is {array.shape}, the reference gives {right.shape}")
        scale = np.abs(right).max(initial=0.0)
        if not np.allclose(array, right, rtol=1e-12, atol=1e-12 * scale, equal_nan=True):
            raise GradcheckError(f"output {i} is not what the reference gives")


def check_derivatives(
    fn: Callable[..., Any], arguments: Sequence[Any], second_order: bool, seed: int
) -> None:
    sizes = sum(argument.numel() for argument in arguments if requires(argument))
    outputs = sum(output.numel() for output in as_tuple(fn(*arguments)))
    fast = sizes > FULL_CHECK_UP_TO or outputs > FULL_CHECK_UP_TO
    gradcheck(fn, arguments, fast=fast, seed=seed)
    if second_order:
        try:
            gradgradcheck(fn, arguments, fast=True, seed=seed)
        except GradcheckError as error:
            raise GradcheckError(f"second order: {error}") from error


def check_linearity(
    fn: Callable[..., Any], arguments: Sequence[Any], rng: np.random.Generator
) -> None:
    seed = int(rng.integers(2**31))
    once = random_cotangents(seed)
    doubled = random_cotangents(seed)
    count = len(as_tuple(fn(*arguments)))
    nothing = run(fn, arguments, lambda output: np.zeros(output.shape, output.dtype))[count:]
    single = run(fn, arguments, once)[count:]
    double = run(fn, arguments, lambda output: 2 * doubled(output))[count:]
    for i, (zero, one, two) in enumerate(zip(nothing, single, double, strict=True)):
        if zero.any():
            raise GradcheckError(f"gradient {i} is not zero for an upstream gradient of zero")
        if not np.allclose(2 * one, two, rtol=1e-12, atol=1e-300):
            raise GradcheckError(f"gradient {i} does not double when the upstream gradient does")


def check_dtypes(
    fn: Callable[..., Any], arguments: Sequence[Any], rng: np.random.Generator
) -> None:
    for dtype in (np.float32, np.float16):
        inputs = [
            Tensor(a.numpy(), dtype, requires_grad=True) if requires(a) else a for a in arguments
        ]
        function = converted(fn, dtype)
        with np.errstate(over="ignore"):
            results = run(function, inputs, random_cotangents(int(rng.integers(2**31))))
        for result in results:
            if result.dtype != dtype:
                raise GradcheckError(
                    f"inputs of {np.dtype(dtype)} gave a result or gradient of {result.dtype}"
                )


def check_layouts(
    fn: Callable[..., Any], arguments: Sequence[Any], rng: np.random.Generator
) -> None:
    seed = int(rng.integers(2**31))
    expected = run(fn, arguments, random_cotangents(seed))
    names = [name for name, _ in layouts(np.zeros(1))]
    for k, name in enumerate(names):
        arranged = []
        for argument in arguments:
            if requires(argument):
                tensor = wrap(list(layouts(argument._data))[k][1])
                tensor.requires_grad = True
                arranged.append(tensor)
            else:
                arranged.append(argument)
        for one, other in zip(expected, run(fn, arranged, random_cotangents(seed)), strict=True):
            # Matrix products may add in another order; nothing else may differ at all.
            if not np.allclose(one, other, rtol=1e-12, atol=1e-12, equal_nan=True):
                raise GradcheckError(f"{name} inputs give another result than contiguous ones")


def layouts(array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """The same numbers in memory orders that code tends to forget."""
    yield "Fortran-ordered", np.asfortranarray(array)
    everywhere = (slice(None, None, -1),) * array.ndim
    yield "reversed", array[everywhere].copy()[everywhere]
    gaps = np.full(tuple(2 * n for n in array.shape), np.nan)  # a stray read would show
    every_second = (slice(None, None, 2),) * array.ndim
    gaps[every_second] = array
    yield "strided", gaps[every_second]
    yield "transposed", array.T.copy().T
    locked = array.copy()
    locked.flags.writeable = False
    yield "read-only", locked
    raw = np.zeros(array.nbytes + 1, np.uint8)
    misaligned = raw[1:].view(array.dtype).reshape(array.shape)
    misaligned[...] = array
    yield "misaligned", misaligned


def check_purity(
    fn: Callable[..., Any], arguments: Sequence[Any], rng: np.random.Generator
) -> None:
    seed = int(rng.integers(2**31))
    before = [argument.numpy() for argument in arguments if requires(argument)]
    random_state = global_random_state()
    settings = np.geterr()
    given: list[tuple[np.ndarray, np.ndarray]] = []

    def remembered(output: Tensor) -> np.ndarray:
        cotangent = random_cotangents(seed)(output)
        given.append((cotangent, cotangent.copy()))
        return cotangent

    outputs = as_tuple(fn(*arguments))
    results = run(fn, arguments, remembered)
    gradients = results[len(outputs) :]
    after = [argument._data for argument in arguments if requires(argument)]
    if not all(np.array_equal(a, b, equal_nan=True) for a, b in zip(before, after, strict=True)):
        raise GradcheckError("an input was changed")
    if not all(np.array_equal(a, b) for a, b in given):
        raise GradcheckError("the upstream gradient was changed")
    held = [*after, *(cotangent for cotangent, _ in given)]
    for i, gradient in enumerate(gradients):
        if any(np.shares_memory(gradient, other) for other in (*gradients[:i], *held)):
            raise GradcheckError(f"gradient {i} shares memory with something else")
    if random_state != global_random_state():
        raise GradcheckError("NumPy's global random state was used")
    if settings != np.geterr():
        raise GradcheckError("NumPy's error settings were changed")


def check_lifetime(
    fn: Callable[..., Any], arguments: Sequence[Any], rng: np.random.Generator
) -> None:
    collecting = gc.isenabled()
    gc.disable()
    try:
        for backward in (False, True):
            given = [Tensor(a, requires_grad=True) if requires(a) else a for a in arguments]
            outputs: Any = as_tuple(fn(*given))
            if backward:
                cotangents = [wrap(signed(rng, output.shape)) for output in outputs]
                wanted = [argument for argument in given if requires(argument)]
                autograd.grad(outputs, wanted, cotangents, allow_unused=True)
            passed_on = {id(argument) for argument in given}
            alive = [weakref.ref(output) for output in outputs if id(output) not in passed_on]
            del outputs
            if any(reference() is not None for reference in alive):
                raise GradcheckError("an output stays alive after its last reference is gone")
    finally:
        if collecting:
            gc.enable()


def global_random_state() -> str:
    return repr(np.random.get_state(legacy=False))
