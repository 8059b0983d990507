"""Functions of each element by itself: activations, erf, quotients, and `where`.

NumPy needs several passes for a sigmoid. Here functions that are made of exp are one pass in
float64, without branches and calls, so that the compiler can turn it into vector instructions. Each
result is closer to the exact one than one unit in the last place of float32. float64 is for
checking: the formula computes it, and erf, which NumPy lacks, is that of the C library.
"""

import math
from functools import partial
from typing import Any

import numpy as np

from ..sums import is_large
from .compiler import inner, jit
from .layout import broadcast_flat, of_elements

LOG2_E, LN2 = 1 / math.log(2), math.log(2)
ROUND = 1.5 * 2.0**52  # adding it rounds to an integer, which the lowest bits of the sum then are
BIAS, EXPONENT = np.int64(1023), np.int64(52)  # of a float64's bits
# exp(a^2 / 2) (1 - Phi(a)) for a >= 0, a smooth function, as P(a) / Q(a): least maximum relative
# error, 6e-9, on [0, 14.8]. Beyond 14.8, x (1 - Phi(x)) is 0 in float32.
P0, P1, P2 = 0.5000000030667419, 0.43889333596024693, 0.18367914679241074
P3, P4 = 0.040783098675745144, 0.0041386074350526795
Q1, Q2, Q3 = 1.675671668337489, 1.2043458972892669, 0.47064293605595736
Q4, Q5 = 0.10223431326761516, 0.010373835625512579
SQRT_HALF, SQRT_2, INV_SQRT_2PI = math.sqrt(0.5), math.sqrt(2), 1 / math.sqrt(2 * math.pi)
# Taylor's series of erf(x) / x in x^2, the last term first; those left out are below 1e-9 for
# |x| <= 1.
ERF_SERIES = tuple(
    2 / math.sqrt(math.pi) * (-1) ** n / (math.factorial(n) * (2 * n + 1))
    for n in reversed(range(11))
)
GELU_CUBIC, GELU_SCALE = 0.044715, math.sqrt(2 / math.pi)


for_float32 = partial(of_elements, nanoseconds=2.5, only=np.float32)


@inner
def limited(x):
    """x between -700 and 700, where exp of a float64 is finite and not 0; a NaN stays one."""
    return -700.0 if x < -700.0 else (700.0 if x > 700.0 else x)


@inner
def exp_float64(x):
    """exp of a float64 from -700 to 700 with a relative error of 6e-9; a NaN stays one."""
    shifted = x * LOG2_E + ROUND
    r = x - (shifted - ROUND) * LN2  # |r| <= log(2) / 2
    p = 1 / 24 + r * (1 / 120 + r * (1 / 720 + r * (1 / 5040)))  # Taylor's series
    p = r * (1.0 + r * (1 / 2 + r * (1 / 6 + r * p)))
    power = (np.float64(shifted).view(np.int64) + BIAS) << EXPONENT
    return np.int64(power).view(np.float64) * (1.0 + p)


@inner
def sigmoid_float64(x):
    """1 / (1 + exp(-x)); 0 instead of numbers below 1e-304."""
    part = 1.0 / (1.0 + exp_float64(limited(-x)))
    return 0.0 if x < -700.0 else part


@inner
def scaled_tail(a):
    """exp(a^2 / 2) (1 - Phi(a)) for a from 0 to 14.8."""
    p = P0 + a * (P1 + a * (P2 + a * (P3 + a * P4)))
    q = 1.0 + a * (Q1 + a * (Q2 + a * (Q3 + a * (Q4 + a * Q5))))
    return p / q


@jit
def sigmoid_elements(x, out, first, last):
    x, out = x[first:last], out[first:last]
    for i in range(len(x)):
        out[i] = sigmoid_float64(np.float64(x[i]))


@jit
def silu_backward_elements(grad, x, result, first, last):
    grad, x, result = grad[first:last], x[first:last], result[first:last]
    for i in range(len(x)):
        value = np.float64(x[i])
        part = sigmoid_float64(value)
        result[i] = grad[i] * (part + value * part * (1.0 - part))


@jit
def erf_elements(x, out, first, last):
    x, out = x[first:last], out[first:last]
    for i in range(len(x)):
        value = np.float64(x[i])
        a = 6.0 if abs(value) > 6.0 else abs(value)  # from there on erf is 1 in float32
        series = 0.0
        for term in ERF_SERIES:
            series = term + a * a * series
        far = 1.0 - 2.0 * exp_float64(-a * a) * scaled_tail(SQRT_2 * a)
        out[i] = value * series if a < 1.0 else (-far if value < 0.0 else far)


@jit
def exact_erf_elements(x, out, first, last):
    x, out = x[first:last], out[first:last]
    for i in range(len(x)):
        out[i] = math.erf(x[i])


sigmoid = for_float32(sigmoid_elements)
silu_backward = for_float32(silu_backward_elements)
erf_of_float32 = of_elements(erf_elements, 2.5)
erf_of_float64 = of_elements(exact_erf_elements, 10.0)


def erf(x: np.ndarray) -> np.ndarray:
    return erf_of_float32(x) if x.dtype == np.float32 else erf_of_float64(x)


@jit
def relu_elements(grad, out, result, first, last):
    zero = grad.dtype.type(0)
    grad, out, result = grad[first:last], out[first:last], result[first:last]
    for i in range(len(grad)):
        result[i] = zero if out[i] <= zero else grad[i]


@jit
def sigmoid_backward_elements(grad, out, result, first, last):
    one = grad.dtype.type(1)
    grad, out, result = grad[first:last], out[first:last], result[first:last]
    for i in range(len(grad)):
        result[i] = grad[i] * out[i] * (one - out[i])


relu_backward = of_elements(relu_elements, 0.3)
sigmoid_backward = of_elements(sigmoid_backward_elements, 0.3)


def relu(x: np.ndarray) -> Any:
    """The same loop, so that one is compiled. Its call takes longer than NumPy with few numbers."""
    return relu_backward(x, x) if is_large(x) else NotImplemented


# GELU of float32 is computed in float64, in one pass; float64 is for checking: several passes.


@inner
def normal(x):
    """Phi(x) and exp(-x^2 / 2)."""
    a = abs(x)
    is_far = a > 16.0  # a NaN is not
    power = exp_float64(-0.5 * x * x)
    tail = 0.0 if is_far else power * scaled_tail(a)
    return (tail if x < 0.0 else 1.0 - tail), (0.0 if is_far else power)


@inner
def sigmoid_of_gelu(x):
    """sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3)."""
    return sigmoid_float64(2.0 * GELU_SCALE * (x + GELU_CUBIC * x * x * x))


@jit
def gelu_elements(x, out, first, last):
    x, out = x[first:last], out[first:last]
    for i in range(len(x)):
        value = np.float64(x[i])
        cdf, _ = normal(value)
        out[i] = value * cdf


@jit
def gelu_backward_elements(grad, x, result, first, last):
    grad, x, result = grad[first:last], x[first:last], result[first:last]
    for i in range(len(x)):
        value = np.float64(x[i])
        cdf, power = normal(value)
        result[i] = grad[i] * (cdf + value * power * INV_SQRT_2PI)


@jit
def gelu_tanh_elements(x, out, first, last):
    x, out = x[first:last], out[first:last]
    for i in range(len(x)):
        value = np.float64(x[i])
        out[i] = value * sigmoid_of_gelu(value)


@jit
def gelu_tanh_backward_elements(grad, x, result, first, last):
    grad, x, result = grad[first:last], x[first:last], result[first:last]
    for i in range(len(x)):
        value = np.float64(x[i])
        part = sigmoid_of_gelu(value)
        slope = 2.0 * GELU_SCALE * (1.0 + 3.0 * GELU_CUBIC * value * value)
        result[i] = grad[i] * (part + value * part * (1.0 - part) * slope)


@jit
def normal_cdf_elements(x, out, first, last):
    x, out = x[first:last], out[first:last]
    for i in range(len(x)):
        out[i] = 0.5 * math.erfc(-SQRT_HALF * np.float64(x[i]))


normal_cdf = of_elements(normal_cdf_elements, 10.0)

gelu = for_float32(gelu_elements)
gelu_backward = for_float32(gelu_backward_elements)
gelu_tanh = for_float32(gelu_tanh_elements)
gelu_tanh_backward = for_float32(gelu_tanh_backward_elements)


# For a remainder NumPy calls the C library's fmod, which divides bit by bit. In float64 the
# quotient of two float32 numbers is on the right side of every integer, and a whole quotient times
# the divisor is exact, as long as the quotient is below 2^22.
MOST_EXACT = 2.0**22


@jit
def remainder_elements(x, y, out):
    inexact = 0
    for i in range(len(x)):
        a, b = np.float64(x[i]), np.float64(y[i])
        quotient = a / b
        inexact += 0 if abs(quotient) < MOST_EXACT and abs(b) < math.inf else 1  # for NaN 1, too
        rest = np.float32(a - np.trunc(quotient) * b)
        moved = rest + y[i] if (rest < 0.0) != (b < 0.0) else rest
        out[i] = moved if rest != 0.0 else math.copysign(0.0, b)
    return inexact


@jit
def floor_elements(x, y, out):
    inexact = 0
    for i in range(len(x)):
        quotient = np.float64(x[i]) / np.float64(y[i])
        inexact += 0 if abs(quotient) < MOST_EXACT and abs(y[i]) < math.inf else 1
        out[i] = np.floor(quotient)
    return inexact


def of_quotients(elements: Any, x: np.ndarray, y: Any) -> Any:
    """Of float32 numbers, unless a quotient is too large, or a number is infinite or NaN."""
    divisor = np.float32(y) if isinstance(y, (int, float)) else y
    if x.dtype != np.float32 or getattr(divisor, "dtype", None) != np.float32:
        return NotImplemented
    out = np.empty(np.broadcast_shapes(x.shape, divisor.shape), np.float32)
    flat = broadcast_flat(out.shape, x, divisor)
    return NotImplemented if elements(*flat, out.reshape(-1)) else out


remainder = partial(of_quotients, remainder_elements)
floor_divide = partial(of_quotients, floor_elements)


# NumPy's `where` branches at each element, and a branch that the processor cannot foresee costs
# more than ten elements. Here both values are read, and no branch is left.


@jit
def where_elements(condition, x, y, out):
    for i in range(len(out)):
        first, second = x[i], y[i]
        out[i] = first if condition[i] != 0 else second


@jit
def where_or_number(condition, x, number, out):
    for i in range(len(out)):
        value = x[i]
        out[i] = value if condition[i] != 0 else number


def is_number(x: Any) -> bool:
    return isinstance(x, (int, float)) or (x.dtype == np.float32 and not x.ndim)


def where(condition: np.ndarray, x: Any, y: Any) -> Any:
    """Of float32 arrays, of which one may be a number."""
    numbers = is_number(x) + is_number(y)
    dtypes = [a.dtype for a in (x, y) if hasattr(a, "dtype")]
    if numbers == 2 or any(d != np.float32 for d in dtypes) or condition.dtype != np.bool_:
        return NotImplemented
    if is_number(x):
        condition, x, y = ~condition, y, x
    shape = np.broadcast_shapes(condition.shape, x.shape, np.shape(y))
    out = np.empty(shape, np.float32)
    mask, x = broadcast_flat(shape, condition.view(np.uint8), x)
    if is_number(y):
        where_or_number(mask, x, np.float32(y), out.reshape(-1))
    else:
        where_elements(mask, x, *broadcast_flat(shape, y), out.reshape(-1))
    return out
