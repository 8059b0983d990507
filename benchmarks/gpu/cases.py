"""The rows of the GPU's table, and the ways to compute them.

An operation is timed many times in a row with one wait at the end, as in a training loop. So the
time holds the launches where these take longer than the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter
from typing import Any

from ..cases import Case, Run, digest, forward_backward, random
from ..encoders import ENCODERS, SHORTEST, training_step
from ..libraries import Encoder
from ..processes import Side

SECONDS = 0.1  # of one repetition
STEPS = ENCODERS | {"large": Encoder(1024, 16, 4096, 12, 32, 512)}
LENGTHS = (512, 1024, 2048, 4096, 8192)
HEADS = (2, 8, 64)  # samples, heads, width of a head
ROWS = ((262144, 128), (65536, 512), (16384, 2048), (4096, 8192))
ROW_OPERATIONS: dict[str, Callable[..., Any]] = {
    "copy": lambda lib, x, w: lib.copy(x),
    "softmax": lambda lib, x, w: lib.F.softmax(x, -1),
    "layer norm": lambda lib, x, w: lib.F.layer_norm(x, x.shape[-1:], w, w),
}


def gpu_sides(dry_run: bool) -> dict[str, Side]:
    """In a dry run tinyattn's kernels run on the host, and so does PyTorch."""
    exact = {"NVIDIA_TF32_OVERRIDE": "0", "CUPY_TF32": "0"}  # float32 proper
    ours: dict[str, Any] = {"device": "cuda", "stand_in": dry_run}
    theirs: dict[str, Any] = {"device": "cpu" if dry_run else "cuda", "attention": "fused"}
    options = {
        "tinyattn": ours,
        "torch": theirs,
        "torch plain": theirs | {"attention": "plain"},
        "torch.compile": theirs | {"compile": True},
    }
    if dry_run:  # compiling for the host proves nothing and takes long
        del options["torch.compile"]
    return {
        name: Side("torch" if name.startswith("torch") else "tinyattn", each, exact)
        for name, each in options.items()
    }


def many(lib: Any, short: bool, build: Callable[[], Run]) -> Run:
    """What build() makes, so often that the wait at the end is short beside it."""
    start_memory = lib.memory_taken(release=True)
    run = build()

    def repeat(count: int) -> None:
        for _ in range(count):
            value = None
            for phase in run.phases.values():
                value = phase(value)
            run.reset()
        lib.wait()

    count = 1
    if not short:
        repeat(3)
        start = perf_counter()
        repeat(3)
        count = max(3, int(SECONDS / ((perf_counter() - start) / 3)))
    # A library keeps the memory that it took, so the last amount is the greatest.
    memory = lambda: lib.memory_taken() - start_memory  # noqa: E731
    return Run({"": lambda _: repeat(count)}, check=run.check, per=count, memory=memory)


def step(lib: Any, sizes: Encoder, short: bool) -> Run:
    """With dropout 0.1; the losses without dropout are the check."""

    def check() -> list[float]:
        twin = training_step(lib, sizes, 0.0, gpu=True)
        for _ in range(3):
            twin.phases[""](None)
        assert twin.check is not None
        return twin.check()

    run = many(lib, short, lambda: training_step(lib, sizes, 0.1, gpu=True))
    run.check = None if sizes == STEPS["large"] else check  # its twin takes memory and minutes
    return run


def attention(lib: Any, shape: tuple[int, ...], short: bool) -> Run:
    q, k, v = (lib.tensor(random(*shape, seed=i), True) for i in range(3))
    return many(
        lib, short, lambda: forward_backward(lib, partial(lib.attention, q, k, v), [q, k, v])
    )


def rows(lib: Any, operation: Callable[..., Any], shape: tuple[int, int], short: bool) -> Run:
    x, weight = lib.tensor(random(*shape)), lib.tensor(random(shape[1]))
    run = Run({"": lambda _: operation(lib, x, weight)})
    many_runs = many(lib, short, lambda: run)
    if operation is not ROW_OPERATIONS["copy"]:
        many_runs.check = lambda: digest([operation(lib, x, weight)[:64]])
    return many_runs


def gpu_cases(short: bool) -> Iterator[Case]:
    """A side has one process a round for a section, because a process starts slowly on a GPU. Steps
    come last, because torch.compile takes minutes for them."""
    for name, operation in ROW_OPERATIONS.items():
        shapes = ((9, 40),) if short else ROWS[-1:] if name == "copy" else ROWS
        for shape in shapes:
            yield Case(
                "forward of rows; also the part of the copy's bandwidth",
                f"gpu {name} {shape[0]} x {shape[1]}",
                f"{8 * shape[0] * shape[1]} bytes",
                partial(rows, operation=operation, shape=shape, short=short),
                parts=("",),
                process="gpu rows",
            )
    samples, heads, width = (1, 2, 8) if short else HEADS
    for length in (40,) if short else LENGTHS:
        # The longest scores and their gradients would take 17 GiB as whole arrays.
        plain = ("torch plain",) if length <= 4096 else ()
        yield Case(
            "attention, forward and backward",
            f"gpu attention {length}",
            f"B,H,N,d = {samples},{heads},{length},{width}",
            partial(attention, shape=(samples, heads, length, width), short=short),
            parts=("",),
            sides=("tinyattn", "torch", *plain),
            process="gpu attention",
            memory=True,
        )
    for name, sizes in {"tiny": SHORTEST}.items() if short else STEPS.items():
        yield Case(
            "training step, dropout 0.1; width, heads, ff, layers, batch, length",
            f"gpu step {name}",
            sizes.detail,
            partial(step, sizes=sizes, short=short),
            parts=("",),
            sides=("tinyattn", "torch", "torch.compile"),
            process="gpu steps",
            memory=True,
        )
