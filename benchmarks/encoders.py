"""Whole training steps, the attention inside them, and the start of a program that takes one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from .cases import ALONE, BUSY, COMPILED, FASTER, Case, Run, forward_backward, lengths_of, random
from .libraries import IGNORE, Encoder

ENCODERS = {
    "tiny": Encoder(32, 4, 64, 2, 32, 24),
    "small": Encoder(64, 4, 256, 2, 32, 32),
    "medium": Encoder(128, 4, 512, 4, 32, 64),
    "full": Encoder(512, 8, 2048, 6, 32, 10),
    "long": Encoder(64, 4, 256, 2, 2, 1024),
}
SHORTEST = Encoder(16, 2, 32, 1, 4, 6)


def token_ids(
    sizes: Encoder, lengths: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Ids (B, N), zero where padded, and the classes to be learned (B*N,)."""
    padding = np.arange(sizes.length) >= lengths[:, None]
    shape = (sizes.batch, sizes.length)
    ids = np.where(padding, 0, rng.integers(1, sizes.words, shape))
    return ids, np.where(padding, IGNORE, rng.integers(0, sizes.classes, shape)).reshape(-1)


def training_step(
    lib: Any, sizes: Encoder, p: float, skip_padding: bool | None = None, gpu: bool = False
) -> Run:
    """Forward, cross-entropy, backward, Adam.

    skip_padding: whether padding is left out; by default where the library has an option for it
    gpu: without padding
    """
    rng = np.random.default_rng(0)
    choice = {} if skip_padding is None else {"skip_padding": skip_padding}
    lengths = lengths_of(sizes.batch, sizes.length)
    if gpu:
        lengths = np.full(sizes.batch, sizes.length)
    step = lib.encoder_step(sizes, p, rng, None if gpu else lengths, **choice)
    ids, target = map(lib.tensor, token_ids(sizes, lengths, rng))
    losses: list[float] = []

    def timed(_: Any) -> None:
        loss = step(ids, target)
        if len(losses) < 3:  # a GPU must not wait in every step
            losses.append(loss.item())

    # The losses of the first steps agree only if forward, gradients and optimizer all do.
    return Run({"": timed}, check=None if p else lambda: losses)


def step_limit(sizes: Encoder) -> Run:
    """The matrix products of a step, and a pass over the arrays that Adam reads and writes."""
    d, ff, n = sizes.width, sizes.ff, sizes.batch * sizes.length

    def threefold(x: np.ndarray, y: np.ndarray) -> list[tuple[np.ndarray, ...]]:
        """x @ y and the two products of its derivative, each with an array for the result."""
        out = x @ y
        pairs = ((x, y), (out, y.swapaxes(-1, -2)), (x.swapaxes(-1, -2), out))
        return [(a, b, np.empty_like(a @ b, order="C")) for a, b in pairs]

    stack = (sizes.batch, sizes.heads, sizes.length)
    q = k = v = random(*stack, d // sizes.heads)
    layer = threefold(q, k.swapaxes(-1, -2)) + threefold(random(*stack, sizes.length), v)
    for outputs, inputs in ((3 * d, d), (d, d), (ff, d), (d, ff)):  # weights are (out, in)
        layer += threefold(random(n, inputs), random(outputs, inputs).T)
    head = threefold(random(n, d), random(sizes.classes, d).T)

    def products(_: Any) -> None:
        for x, y, out in layer * sizes.layers + head:
            np.matmul(x, y, out=out)

    size = sizes.layers * (4 * d * d + 2 * d * ff + 9 * d + ff) + 2 * d
    size += (sizes.words + sizes.classes) * d
    parameter, gradient, m, v = np.zeros((4, size), np.float32)

    def bytes_of_adam(_: Any) -> None:
        np.add(parameter, gradient, out=parameter)
        np.negative(m, out=m)
        np.negative(v, out=v)

    return Run({"products": products, "optimizer": bytes_of_adam})


def steps(short: bool) -> Iterator[Case]:
    for (name, sizes), p in product(ENCODERS.items(), (0.1, 0.0)):
        sizes = SHORTEST if short else sizes
        yield Case(
            "training step; width, heads, ff, layers, batch, length",
            f"step {name} p={p:g}",
            sizes.detail,
            partial(training_step, sizes=sizes, p=p),
            partial(step_limit, sizes),
            parts=("",),
            sides=(*FASTER, *COMPILED, "limit"),
            memory=True,
        )


def steps_alike(short: bool) -> Iterator[Case]:
    """The same steps with padding computed by both libraries, or left out by both."""
    for skip, (name, sizes) in product((False, True), ENCODERS.items()):
        sizes = SHORTEST if short else sizes
        word = "without" if skip else "with"
        for p in (0.1, 0.0):
            yield Case(
                f"training step {word} padding, in both libraries",
                f"step {name} p={p:g} {word} padding",
                sizes.detail,
                partial(training_step, sizes=sizes, p=p, skip_padding=skip),
                parts=("",),
                sides=FASTER,
            )


def busy_machine(short: bool) -> Iterator[Case]:
    """Steps alone, and while another program keeps one core busy; `worker.py` starts it."""
    for name in ("tiny", "medium"):
        sizes = SHORTEST if short else ENCODERS[name]
        yield Case(
            "busy machine: a mean step, dropout 0.1, alone and beside a busy loop",
            f"busy machine {name}",
            sizes.detail,
            partial(training_step, sizes=sizes, p=0.1),
            parts=(ALONE, BUSY),
            sides=FASTER,
        )


# Attention alone


def attention(lib: Any, length: int, kind: str) -> Run:
    q, k, v = (lib.tensor(random(1, 8, length, 64, seed=i), True) for i in range(3))
    lengths = np.array([length * 3 // 4]) if kind == "padded" else None
    forward = partial(lib.attention, q, k, v, lengths, kind == "causal")
    return forward_backward(lib, forward, [q, k, v])


def attentions(short: bool) -> Iterator[Case]:
    for length, kind in product((512, 2048, 4096), ("plain", "causal", "padded")):
        used = length // 64 if short else length
        yield Case(
            "attention alone",
            f"attention {length} {kind}",
            f"B,H,N,d = 1,8,{used},64",
            partial(attention, length=used, kind=kind),
            parts=("forward", "backward", "together"),
            memory=True,
        )


# The start of a program. `worker.py` measures it, because nothing may be imported before it.

START = Case(
    "start of a program; import: over NumPy's; first step: tiny, from nothing; CPU: user + sys",
    "start",
    "",
    partial(training_step, sizes=ENCODERS["tiny"], p=0.1),
    parts=(
        "import",
        "first step, cold cache",
        "first step, cold cache, CPU",
        "first step, warm cache",
    ),
)


def warm_up(lib: Any) -> None:
    """Load everything that a library loads on first use, so that it does not count as memory."""
    for p in (0.1, 0.0):
        step = training_step(lib, SHORTEST, p).phases[""]
        step(None)
    leaf = lib.tensor(random(1, 1, 64, 64), True)
    out = forward_backward(lib, partial(lib.attention, leaf, leaf, leaf, None, True), [leaf])
    out.phases["backward"](out.phases["forward"](None))


# Training steps of which one size grows: `python -m benchmarks.scaling`


@dataclass(frozen=True)
class Axis:
    """encoder(size) for all sizes from least to greatest, each twice the last."""

    least: int
    greatest: int
    encoder: Callable[[int], Encoder]

    def sizes(self, short: bool) -> list[int]:
        sizes = [self.least]
        while sizes[-1] < self.greatest:
            sizes.append(2 * sizes[-1])
        return sizes[:3] if short else sizes


# width, heads, ff, layers, batch, length
AXES = {
    "length": Axis(128, 8192, lambda n: Encoder(64, 4, 256, 2, 1, n)),
    "batch": Axis(1, 128, lambda n: Encoder(64, 4, 256, 2, n, 64)),
    "width": Axis(32, 1024, lambda n: Encoder(n, 4, 4 * n, 2, 8, 64)),
    "depth": Axis(1, 32, lambda n: Encoder(64, 4, 256, n, 8, 64)),
    "vocabulary": Axis(1024, 131072, lambda n: Encoder(64, 4, 256, 2, 8, 64, n, n)),
}


def growing(short: bool) -> Iterator[Case]:
    for name, axis in AXES.items():
        least = axis.encoder(axis.least).detail
        for size in axis.sizes(short):
            sizes = axis.encoder(size)
            yield Case(
                f"the {name} grows from width,heads,ff,layers,batch,length = {least}",
                f"scaling {name} {size}",
                sizes.detail,
                partial(training_step, sizes=sizes, p=0.0),
                parts=("",),
                process=name,
                memory=True,
            )
