"""Adam, SGD and the clipping of gradients, many arrays in one launch: `optimizer.cu`.

The kernels read the addresses of the arrays from a table on the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...base import backend
from ...base.backend import Array, namespace, to_device
from .. import reference
from ..reference import AdamStep
from ..sums import in_c_order
from .launch import MOST_THREADS, SCALARS, function

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


def adam(
    parameters: Sequence[Array],
    grads: Sequence[Array],
    ms: Sequence[Array],
    vs: Sequence[Array],
    current_step: Callable[[], AdamStep],
) -> None:
    """One launch for all parameters of one dtype. A parameter in another order than C is moved by
    the reference."""
    groups: dict[np.dtype, list[tuple[Array, ...]]] = {}
    for arrays in zip(parameters, grads, ms, vs, strict=True):
        parameter, grad, m, v = arrays
        if parameter.flags.c_contiguous:
            groups.setdefault(parameter.dtype, []).append(arrays)
        else:
            reference.adam([parameter], [grad], [m], [v], current_step)
    for dtype, group in groups.items():
        launch_adam(dtype, [list(arrays) for arrays in zip(*group, strict=True)], current_step)


def launch_adam(
    dtype: np.dtype, lists: list[list[Array]], current_step: Callable[[], AdamStep]
) -> None:
    parameters, grads, ms, vs = lists
    grads = [in_c_order(grad) for grad in grads]  # named, because they must live until the launch
    on_device = lists_of(parameters, grads, ms, vs)
    if not len(on_device.blocks):
        return
    # A captured step keeps its arguments, so it reads the numbers from memory instead.
    factors = lambda: step_factors(current_step())  # noqa: E731
    changing = 0 if backend.capturing.step is None else backend.capturing.step.numbers(factors)
    kernel = function(namespace(parameters[0]), "optimizer", "adam", SCALARS[dtype])
    now = current_step()
    decay = 0.0 if now.decoupled else now.decay
    constants = map(float, (decay, now.beta1, now.beta2, now.eps))
    arguments = (*on_device, *map(float, factors()), changing, *constants)
    kernel((len(on_device.blocks),), (THREADS,), arguments)


def step_factors(adam_step: AdamStep) -> tuple[float, float, float]:
    """Three factors that change from step to step: of the weights, of m, and of the root of v."""
    rate, beta1, beta2, _, decay, decoupled, step = adam_step
    return (
        1 - rate * decay if decoupled else 1.0,
        rate / (1 - beta1**step),
        1 / math.sqrt(1 - beta2**step),
    )


def sgd(
    parameters: Sequence[Array],
    grads: Sequence[Array],
    velocities: Sequence[Array] | None,
    numbers: tuple[float, float, float, float, bool],
) -> None:
    """A step of SGD for parameters of one dtype, in place: `numbers` are the rate, the momentum,
    the part of the gradient that goes into the velocity, weight decay, and Nesterov's choice."""
    grads = [in_c_order(grad) for grad in grads]  # named, because they must live until the launch
    on_device = lists_of(parameters, grads, parameters if velocities is None else velocities)
    if len(on_device.blocks):
        *floats, nesterov = numbers
        xp, dtype = namespace(parameters[0]), parameters[0].dtype
        kernel = function(xp, "optimizer", "sgd", SCALARS[dtype])
        arguments = *on_device, *map(float, floats), int(nesterov)
        kernel((len(on_device.blocks),), (THREADS,), arguments)


def clip(grads: Sequence[Array], max_norm: float) -> Array:
    """Scale all gradients in place to a joint norm of at most `max_norm`; the norm before, 0-d."""
    xp = namespace(grads[0])
    norm = xp.zeros((), np.float64)
    groups: dict[Any, list[Array]] = {}
    for grad in grads:
        if grad.size:
            groups.setdefault(grad.dtype, []).append(grad)
    if not groups:
        return norm
    lists = {dtype: lists_of(group) for dtype, group in groups.items()}
    total = sum(len(of_dtype.blocks) for of_dtype in lists.values())
    sums = xp.empty(total, np.float64)  # one of each block
    done = 0
    for dtype, of_dtype in lists.items():
        count = len(of_dtype.blocks)
        kernel = function(xp, "optimizer", "squares", SCALARS[dtype])
        kernel((count,), (THREADS,), (*of_dtype, sums[done : done + count]))
        done += count
    kernel = function(xp, "optimizer", "norm_of_sums", SCALARS[np.dtype(np.float64)])
    kernel((1,), (MOST_THREADS,), (sums, total, norm))
    for dtype, of_dtype in lists.items():
        kernel = function(xp, "optimizer", "clip", SCALARS[dtype])
        kernel((len(of_dtype.blocks),), (THREADS,), (*of_dtype, norm, float(max_norm)))
    return norm
