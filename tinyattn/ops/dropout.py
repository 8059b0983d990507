"""Dropout."""

import math
from typing import Any

import numpy as np

from ..base.backend import Array, namespace
from ..base.checks import checked_probability
from ..base.random import drop_threshold, dropout_seed
from ..engine.autograd import AnyTensor
from ..engine.op import op
from ..kernels import with_kernels
from .arguments import float_tensor


def dropout(x: AnyTensor, p: float = 0.5, training: bool = True) -> AnyTensor:
    """In training, set each element to 0 with probability p, and divide the others by 1 - p.

    So the expectation of each element stays the same. `ta.manual_seed` repeats the choice.
    Raises ValueError if p does not lie between 0 and 1.
    Differs from PyTorch: what is dropped is 0 even if it was NaN or infinite.
    Source: Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting",
    2014.

    >>> sorted(set(F.dropout(ta.ones(100), p=0.5).tolist()))
    [0.0, 2.0]
    >>> F.dropout(ta.ones(3), p=0.5, training=False)
    tensor([1., 1., 1.])
    """
    x = float_tensor(x, "x")
    checked_probability(p)
    if not training or p == 0:
        return x
    return drop(x, p, dropout_seed())


@op
@with_kernels(cpu="dropout.dropout", cuda="elementwise.dropout")
def drop(x: AnyTensor, p: float, seed: int) -> AnyTensor:
    """x / (1 - p) for each element i that hash(seed, i) keeps, else 0; p = 1 gives zeros."""
    if p >= 1:
        return namespace(x).zeros_like(x)
    keep = keep_mask(x.shape, p, seed, namespace(x))
    factor = np.result_type(x.dtype, np.float32).type(1 / (1 - p))  # in float16 it may be inf
    return namespace(x).where(keep, (x * factor).astype(x.dtype, copy=False), x.dtype.type(0))


@drop.vjp("x")
def dx(grad, p, seed):
    return drop(grad, p, seed)  # linear, and the same mask


def keep_mask(shape: tuple[int, ...], p: float, seed: int, xp: Any = np) -> Array:
    """True for the elements that dropout keeps, as `kept` says of their numbers in C order."""
    return kept(xp.arange(math.prod(shape), dtype=xp.uint64), p, seed, xp).reshape(shape)


def kept(numbers: Array, p: float, seed: int, xp: Any = np) -> Array:
    """True where dropout keeps the element of this number i: if hash(seed, i) >= p 2^32.

    The hash is two rounds of a 32-bit integer mixer (multipliers by Chris Wellons, "Prospecting
    for hash functions", 2018). The lower half of the number and of the seed go into the first
    round, the upper halves into the second. It has no state, so a kernel, backward or another
    device can compute any element again.
    """
    x, h = numbers ^ xp.uint64(seed), xp.uint32(0)
    for shift in (0, 32):  # first the lower half
        h = (x >> xp.uint64(shift)).astype(xp.uint32) ^ h
        h = (h ^ (h >> xp.uint32(16))) * xp.uint32(0x21F0AAAD)
        h = (h ^ (h >> xp.uint32(15))) * xp.uint32(0x735A2D97)
        h = h ^ (h >> xp.uint32(15))
    return h >= xp.uint32(drop_threshold(p))
