"""float16 to float32 by the bits, in a twentieth of NumPy's time."""

import numpy as np

from ..threads import parallel_for
from .compiler import jit
from .layout import as_input

SUBNORMAL = np.float32(1e-45)


@jit
def numbers_of(bits, out, first, last):
    """out[i] = the float16 of bits[i], which are a sign, 5 of the exponent and 10 of the fraction.

    A float32 has 8 and 23 of these, so the bits move by 13 places. Its exponent counts from -127
    and not from -15, so the moved bits are a number that is 2^112 times too small. This holds for
    subnormal numbers too. inf and NaN have all bits of the exponent in both.
    """
    bits, out = bits[first:last], out[first:last]
    for i in range(len(bits)):
        moved = np.int32(bits[i] & 0x7FFF) << 13
        number = np.int32(moved).view(np.float32) * np.float32(2.0**112)
        if bits[i] & 0x7C00 == 0x7C00:
            number = np.int32(moved | 0x7F800000).view(np.float32)
        out[i] = -number if bits[i] & 0x8000 else number


def flushes_to_zero() -> bool:
    """Whether a library has set this thread to make 0 of subnormal numbers, as in `numbers_of`."""
    return not SUBNORMAL * 2


def bits_of(x: np.ndarray) -> np.ndarray:
    """float16 in C order as integers, because compiled code has no float16."""
    return as_input(x).view(np.uint16)


def float32_of(x: np.ndarray) -> np.ndarray:
    """An array of float16 in float32, in the same order of memory if it is C's or Fortran's."""
    if flushes_to_zero():
        return x.astype(np.float32)
    if x.flags.fnc:
        return float32_of(x.T).T
    out = np.empty(x.shape, np.float32)
    parallel_for(x.size, 0.25 * x.size, numbers_of, bits_of(x).reshape(-1), out.reshape(-1))
    return out
