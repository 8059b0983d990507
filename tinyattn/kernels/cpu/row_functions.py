"""Functions of one row: exp of its elements, its maximum, its sum, the product of two rows."""

import math

import numpy as np

from .compiler import FAST_SUMS, inner

# exp for float32, after Cephes' expf: exp(x) = 2^n exp(r) with |r| <= log(2) / 2, and a polynomial
# for exp(r). Unlike the C library's, the compiler can turn it into vector instructions. The factor
# 2^n is built from its bits, in two halves so that results below the smallest normal number come
# out right.
LOG2_E = np.float32(1.44269504088896341)
LN2_HIGH = np.float32(0.693359375)
LN2_LOW = np.float32(-2.12194440e-4)
ROUND = np.float32(12582912.0)  # 1.5 * 2^23: adding and subtracting it rounds to an integer
LOWEST = np.float32(-110.0)  # exp of this is 0 in float32
C0, C1 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3)
C2, C3 = np.float32(8.3334519073e-3), np.float32(4.1665795894e-2)
C4, C5 = np.float32(1.6666665459e-1), np.float32(5.0000001201e-1)
ONE = np.float32(1)
ZERO = np.float32(0)
MINUS_INF = np.float32(-math.inf)
LEAST = np.int32(-0x7F800001)  # `in_order` of the bits of -inf
LANES = 16  # float32 numbers in the widest vector register


@inner
def exp(x):
    """exp of a float32 that is at most 88, beyond which a float32 ends; a NaN stays one."""
    x = LOWEST if x < LOWEST else x  # a NaN is not smaller, and stays
    n = (x * LOG2_E + ROUND) - ROUND
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    p = ((((C0 * r + C1) * r + C2) * r + C3) * r + C4) * r + C5
    power = np.int32(n if n == n else ZERO)  # a NaN has no integer; r keeps it
    first = power >> np.int32(1)
    half = np.int32((first + np.int32(127)) << np.int32(23)).view(np.float32)
    other = np.int32((power - first + np.int32(127)) << np.int32(23)).view(np.float32)
    return ((p * (r * r) + r) + ONE) * half * other


@inner
def in_order(bits):
    """The bits of a float32 as an integer of the same order, and back again: between negative
    numbers the order of the bits is the other way round."""
    return bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF))


@inner
def largest(row):
    """The maximum of a row of float32; with a NaN in it, that NaN or the maximum of the others.

    It compares integers, because the compiler makes vector instructions of that. A maximum of
    floats it computes one by one, because of NaN.
    """
    top = LEAST
    for j in range(len(row)):
        bits = in_order(np.float32(row[j]).view(np.int32))
        top = bits if bits > top else top
    return np.int32(in_order(top)).view(np.float32)


@inner(fastmath=FAST_SUMS)
def sum_of_lanes(lanes):
    """Always LANES of them, so that the compiler's order of adding is always the same."""
    total = 0.0
    for lane in range(LANES):
        total += lanes[lane]
    return total


@inner
def total_of(row, lanes):
    """The sum of a row in float64. Element j always goes to lane j modulo LANES, so that zeros
    behind the end change no bit."""
    for lane in range(LANES):
        lanes[lane] = 0.0
    whole = len(row) // LANES * LANES
    for j in range(0, whole, LANES):
        for lane in range(LANES):
            lanes[lane] += row[j + lane]
    for j in range(whole, len(row)):
        lanes[j - whole] += row[j]
    return sum_of_lanes(lanes)


@inner
def dot(a, b, lanes):
    """The sum of products of two rows, like `total_of`."""
    for lane in range(LANES):
        lanes[lane] = 0.0
    whole = len(a) // LANES * LANES
    for j in range(0, whole, LANES):
        for lane in range(LANES):
            lanes[lane] += np.float64(a[j + lane]) * b[j + lane]
    for j in range(whole, len(a)):
        lanes[j - whole] += np.float64(a[j]) * b[j]
    return sum_of_lanes(lanes)
