"""How many launches an op asks of the device, counted without a GPU.

The stand-in for CuPy from tests/gpu counts them: one for each function of CuPy that makes or
changes an array, one for each kernel of tinyattn. The kernels are noted and not run, because the
host never waits for their results. So the numbers in the arrays mean nothing here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import optim
from tinyattn.kernels.gpu import launch

from ..encoders import ENCODERS, training_step
from ..libraries import TinyAttn
from . import use_stand_in

# CuPy's functions that only take memory, or look at it in another way.
NO_LAUNCH = {"empty", "empty_like", "broadcast_to", "moveaxis"}
SHAPE = (32, 64, 128)  # samples, length, width
Blocks = dict[str, tuple[int, int]]  # of each kernel, the threads and the shared memory of a block


class Kernel:
    """cupy.RawKernel, which notes its launches."""

    max_dynamic_shared_size_bytes = 0

    def __init__(self, name: str, tasks: list[str], blocks: Blocks) -> None:
        self.name, self.tasks, self.blocks = name, tasks, blocks

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: tuple[Any, ...],
        *,
        shared_mem: int = 0,
    ) -> None:
        self.tasks.append(self.name)
        self.blocks[self.name] = int(np.prod(block)), shared_mem


@contextmanager
def counted() -> Iterator[tuple[list[str], Blocks]]:
    """The names of all that is asked of the device, and the blocks of the kernels."""
    use_stand_in()
    from stand_in import MODULE
    from stand_in.tasks import State

    tasks, blocks = list[str](), Blocks()

    class Module:
        def __init__(self, *, code: str, options: tuple[str, ...] = ()) -> None: ...

        def get_function(self, name: str) -> Kernel:
            return Kernel(name, tasks, blocks)

    before, MODULE.RawModule, State.names = MODULE.RawModule, Module, tasks
    launch.function.cache_clear()
    try:
        yield tasks, blocks
    finally:
        MODULE.RawModule, State.names = before, None
        launch.function.cache_clear()


def taken(tasks: list[str]) -> Counter[str]:
    """What was counted since the last call."""
    found = Counter(task for task in tasks if task not in NO_LAUNCH)
    tasks.clear()
    return found


def made(*shape: int) -> ta.Tensor:
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return ta.tensor(values, device="cuda", requires_grad=True)


def ops() -> dict[str, tuple[Callable[..., Any], tuple[ta.Tensor, ...]]]:
    """Each op, and its arguments."""
    x, weight, bias = made(*SHAPE), made(SHAPE[-1]), made(SHAPE[-1])
    heads = [made(2, 4, SHAPE[1], 32) for _ in range(3)]
    ids = ta.tensor(np.arange(64) % 7, device="cuda")
    float_mask = ta.tensor(np.zeros((SHAPE[1], SHAPE[1]), np.float32), device="cuda")
    width = (SHAPE[-1],)
    attention = F.scaled_dot_product_attention
    return {
        **{name: (getattr(F, name), (x,)) for name in ("relu", "sigmoid", "silu", "softplus")},
        "gelu": (F.gelu, (x,)),
        "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), (x,)),
        "softmax": (lambda x: F.softmax(x, -1), (x,)),
        "log_softmax": (lambda x: F.log_softmax(x, -1), (x,)),
        "cross_entropy": (F.cross_entropy, (made(64, 50), ids)),
        "layer_norm": (lambda x, w, b: F.layer_norm(x, width, w, b), (x, weight, bias)),
        "rms_norm": (lambda x, w: F.rms_norm(x, width, w), (x, weight)),
        "dropout": (lambda x: F.dropout(x, 0.1, training=True), (x,)),
        "linear": (F.linear, (x, made(512, SHAPE[-1]), made(512))),
        "embedding": (F.embedding, (ids, made(100, SHAPE[-1]))),
        "attention": (attention, tuple(heads)),
        "attention, causal": (lambda *x: attention(*x, is_causal=True), tuple(heads)),
        "attention, float mask": (lambda *x: attention(*x, attn_mask=float_mask), tuple(heads)),
    }


def of_ops(tasks: list[str]) -> Iterator[tuple[str, int, int]]:
    """The name of each op, and its launches forward and backward."""
    for name, (function, arguments) in ops().items():
        taken(tasks)
        out = function(*arguments)
        forward = taken(tasks).total()
        grad = made(*out.shape)
        inputs = [x for x in arguments if x.requires_grad]
        taken(tasks)
        ta.grad(out, inputs, grad)
        yield name, forward, taken(tasks).total()


def of_optimizers(tasks: list[str]) -> Iterator[tuple[str, int]]:
    """The launches of a step of 20 parameters: the second one, when the state is there."""
    parameters = [made(n) for n in range(1, 21)]
    for parameter in parameters:
        parameter.grad = made(*parameter.shape).detach()
    calls = {
        "Adam": optim.Adam(parameters).step,
        "clip_grad_norm_": lambda: optim.clip_grad_norm_(parameters, 1.0),
    }
    for name, call in calls.items():
        for _ in range(2):
            taken(tasks)
            call()
        yield name, taken(tasks).total()


def of_step(tasks: list[str], name: str) -> Counter[str]:
    """A training step of an encoder of the benchmark, with dropout: its second one."""
    library = TinyAttn({"threads": 1, "device": "cuda"})
    run = training_step(library, ENCODERS[name], 0.1, gpu=True)
    for _ in range(2):
        taken(tasks)
        run.phases[""](None)
    return taken(tasks)
