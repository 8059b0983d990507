"""Adam, many arrays in one launch: `optimizer.cu`.

The kernel reads the addresses of the arrays from a table on the device.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...base.backend import Array, in_c_order, to_device
from .launch import run

BLOCK_ELEMENTS = 4096  # for one block of threads, as in optimizer.cu
THREADS = 256


def uploaded(*lists: Sequence[Array]) -> tuple[Array, Array]:
    """The addresses of each list in turn, then the sizes of the first list; and for each block of
    threads the number of its array and its first element.

    They come in one piece, and anew in each step, because gradients lie elsewhere each time.
    """
    addresses = [array.data.ptr for arrays in lists for array in arrays]
    sizes = np.array([array.size for array in lists[0]], np.int64)
    counts = -(-sizes // BLOCK_ELEMENTS)  # blocks of threads for each array
    arrays = np.repeat(np.arange(len(sizes)), counts)
    firsts = (np.arange(len(arrays)) - (np.cumsum(counts) - counts)[arrays]) * BLOCK_ELEMENTS
    blocks = np.stack([arrays, firsts], axis=1)
    length = len(addresses) + len(sizes)
    numbers = to_device(np.concatenate([addresses, sizes, blocks.reshape(-1)]), "cuda")
    return numbers[:length], numbers[length:].reshape(-1, 2)


def adam(
    numbers: Any, parameters: Sequence[Array], grads: Sequence[Array], *means: Sequence[Array]
) -> None:
    """A step of Adam for parameters of one dtype in C order, in place on these, m and v."""
    rate, beta1, beta2, eps, decay, decoupled, step = numbers
    grads = [in_c_order(grad) for grad in grads]  # named, because they must live until the launch
    shrink, added = (1 - rate * decay, 0.0) if decoupled else (1.0, decay)
    corrected = rate / (1 - beta1**step), 1 / math.sqrt(1 - beta2**step)
    arguments = map(float, (shrink, *corrected, added, beta1, beta2, eps))
    table, blocks = uploaded(parameters, grads, *means)
    if len(blocks):
        lists = table, blocks, len(parameters)
        run("optimizer", "adam", parameters[0], ((len(blocks),), (THREADS,)), *lists, *arguments)
