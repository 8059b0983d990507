"""Updates of many arrays in one launch: Adam over all parameters, gradients scaled together.

The kernels read the arrays' addresses from a table on the device. Gradients come to lie in the
same places step after step, so the table is made anew only when an address has changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ... import backend
from ...backend import Array, namespace, to_device
from .launch import MOST_THREADS, SCALARS, function, in_c_order

CHUNK = 4096  # elements of a block, as in optimizer.cu
THREADS = 256

# Both caches are told `xp` as well: memory of one library is none for another.


@lru_cache(maxsize=64)
def table(xp: Any, addresses: tuple[int, ...]) -> Array:
    return to_device(np.array(addresses, np.int64), "cuda")


@lru_cache(maxsize=64)
def places(xp: Any, sizes: tuple[int, ...]) -> Array:
    """For every block the number of its array and its first element there: (blocks, 2)."""
    blocks = [(i, first) for i, size in enumerate(sizes) for first in range(0, size, CHUNK)]
    return to_device(np.array(blocks, np.int64).reshape(-1, 2), "cuda")


def held(*arrays: Array) -> tuple[Array, ...]:
    """The arrays, which a captured step needs even when the caches above have dropped them."""
    if backend.capture is not None:
        backend.capture.kept.extend(arrays)
    return arrays


def addresses(*lists: Sequence[Array]) -> tuple[int, ...]:
    """The table of several lists of arrays, with the sizes of the first at its end."""
    found = [array.data.ptr for arrays in lists for array in arrays]
    return (*found, *(array.size for array in lists[0]))


def adam(
    parameters: Sequence[Array], grads: Sequence[Array], ms: Sequence[Array], vs: Sequence[Array],
    numbers: Callable[[], tuple[float, float, float]], beta1: float, beta2: float, eps: float,
    decay: float,
) -> None:  # fmt: skip
    """Adam on all parameters, of one dtype and all in C order, in one launch. `numbers` gives those
    that change from step to step; see `step_numbers`."""
    xp = namespace(parameters[0])
    grads = [in_c_order(grad) for grad in grads]
    where = places(xp, tuple(array.size for array in parameters))
    if not len(where):
        return
    kernel = function(xp, "optimizer", "adam", SCALARS[parameters[0].dtype])
    kernel((len(where),), (THREADS,), (
        *held(table(xp, addresses(parameters, grads, ms, vs)), where), len(parameters),
        *map(float, numbers()), 0 if backend.capture is None else backend.capture.numbers(numbers),
        float(decay), float(beta1), float(beta2), float(eps),
    ))  # fmt: skip


def step_numbers(
    rate: float, beta1: float, beta2: float, decay: float, decoupled: bool, step: int
) -> tuple[float, float, float]:
    """What changes from step to step: the weights' shrinking, the rate, and v's correction."""
    return (
        1 - rate * decay if decoupled else 1.0,
        rate / (1 - beta1**step),
        1 / math.sqrt(1 - beta2**step),
    )


def clip(grads: Sequence[Array], max_norm: float) -> Array:
    """Scale all gradients in place to a joint norm of at most `max_norm`; the norm before, 0-d."""
    xp = namespace(grads[0])
    norm = xp.zeros((), np.float64)
    groups: dict[Any, list[Array]] = {}
    for grad in grads:
        if grad.size:
            groups.setdefault(grad.dtype, []).append(grad)
    lists = [
        (dtype, len(found), *held(table(xp, addresses(found)),
                                  places(xp, tuple(array.size for array in found))))
        for dtype, found in groups.items()
    ]  # fmt: skip
    total = sum(len(where) for *_, where in lists)
    sums = xp.empty(total, np.float64)
    done = 0
    for dtype, count, where_from, where in lists:
        kernel = function(xp, "optimizer", "squares", SCALARS[dtype])
        part = sums[done : done + len(where)]
        kernel((len(where),), (THREADS,), (where_from, where, count, part))
        done += len(where)
    if lists:
        kernel = function(xp, "optimizer", "norm_of_sums", SCALARS[np.dtype(np.float64)])
        kernel((1,), (MOST_THREADS,), (sums, total, norm))
    for dtype, count, where_from, where in lists:
        kernel = function(xp, "optimizer", "clip", SCALARS[dtype])
        kernel((len(where),), (THREADS,),
               (where_from, where, count, norm, float(max_norm)))  # fmt: skip
    return norm
