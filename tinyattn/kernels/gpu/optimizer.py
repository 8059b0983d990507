"""Adam and the clipping of gradients, many arrays in one launch: `optimizer.cu`.

The kernels read the addresses of the arrays from a table on the device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...base.backend import Array, in_c_order, namespace, to_device
from .launch import MOST_THREADS, run

BLOCK_ELEMENTS = 4096  # for one block of threads, as in optimizer.cu
THREADS = 256


class Lists(NamedTuple):
    """Lists of arrays on the device: the first three arguments of each kernel."""

    table: Array  # the addresses of each list in turn, then the sizes of the first list
    blocks: Array  # for each block of threads the number of its array, and its first element
    length: int  # arrays in each list


def lists_of(*lists: Sequence[Array]) -> Lists:
    """Uploaded in one piece, and anew in each step, because gradients lie elsewhere each time."""
    addresses = [array.data.ptr for arrays in lists for array in arrays]
    sizes = np.array([array.size for array in lists[0]], np.int64)
    counts = -(-sizes // BLOCK_ELEMENTS)  # blocks of threads for each array
    arrays = np.repeat(np.arange(len(sizes)), counts)
    firsts = (np.arange(len(arrays)) - (np.cumsum(counts) - counts)[arrays]) * BLOCK_ELEMENTS
    blocks = np.stack([arrays, firsts], axis=1)
    length = len(addresses) + len(sizes)
    numbers = to_device(np.concatenate([addresses, sizes, blocks.reshape(-1)]), "cuda")
    return Lists(numbers[:length], numbers[length:].reshape(-1, 2), len(sizes))


def run_on(lists: Lists, kernel: str, x: Array, *arguments: Any) -> None:
    """Launch a kernel for all arrays of lists, whose elements have the type of x."""
    if blocks := len(lists.blocks):
        run("optimizer", kernel, x, ((blocks,), (THREADS,)), *lists, *arguments)


def adam(
    numbers: Any, parameters: Sequence[Array], grads: Sequence[Array], *means: Sequence[Array]
) -> None:
    """A step of Adam for parameters of one dtype in C order, in place on these, m and v."""
    rate, beta1, beta2, eps, decay, decoupled, step = numbers
    grads = [in_c_order(grad) for grad in grads]  # named, because they must live until the launch
    shrink, added = (1 - rate * decay, 0.0) if decoupled else (1.0, decay)
    corrected = rate / (1 - beta1**step), 1 / math.sqrt(1 - beta2**step)
    arguments = map(float, (shrink, *corrected, added, beta1, beta2, eps))
    run_on(lists_of(parameters, grads, *means), "adam", parameters[0], *arguments)


def clip(grads: Sequence[Array], max_norm: float) -> Array:
    """Scale all gradients in place to a joint norm of at most `max_norm`; the norm before, 0-d."""
    xp = namespace(grads[0])
    by_dtype: dict[np.dtype, list[Array]] = {}
    for grad in grads:
        by_dtype.setdefault(grad.dtype, []).append(grad)
    groups = list(by_dtype.values())
    lists = [lists_of(group) for group in groups]
    total = sum(len(of_dtype.blocks) for of_dtype in lists)
    sums, norm = xp.empty(total, np.float64), xp.empty((), np.float64)  # one sum of each block
    done = 0
    for of_dtype, group in zip(lists, groups, strict=True):
        count = len(of_dtype.blocks)
        run_on(of_dtype, "squares", group[0], sums[done : done + count])
        done += count
    run("optimizer", "norm_of_sums", norm, ((1,), (MOST_THREADS,)), sums, total, norm)
    for of_dtype, group in zip(lists, groups, strict=True):
        run_on(of_dtype, "clip", group[0], norm, float(max_norm))
    return norm
