"""Whole training steps, the attention inside them, and the start of a program that takes one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from .cases import ALL, Case, Run, forward_backward, lengths_of, random
from .libraries import CLASSES, VOCABULARY, Encoder

IGNORE = -100
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
    """What goes in (B, N), zero where padded, and what shall come out (B*N,)."""
    padding = np.arange(sizes.length) >= lengths[:, None]
    shape = (sizes.batch, sizes.length)
    ids = np.where(padding, 0, rng.integers(1, VOCABULARY, shape))
    return ids, np.where(padding, IGNORE, rng.integers(0, CLASSES, shape)).reshape(-1)


def training_step(lib: Any, sizes: Encoder, p: float, skip_padding: bool | None = None) -> Run:
    """Forward, cross-entropy, backward, Adam.

    skip_padding: whether padding is left out; by default where the library has an option for it.
    """
    rng = np.random.default_rng(0)
    choice = {} if skip_padding is None else {"skip_padding": skip_padding}
    model, parameters = lib.encoder(sizes, p, rng, **choice)
    optimizer = lib.adam(parameters)
    lengths = lengths_of(sizes.batch, sizes.length)
    ids, target = map(lib.tensor, token_ids(sizes, lengths, rng))
    losses: list[float] = []

    def step(_: Any) -> None:
        logits = model(ids, lengths)
        loss = lib.F.cross_entropy(logits.reshape(-1, CLASSES), target, ignore_index=IGNORE)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    # The losses of the first steps agree only if forward, gradients and optimizer all do.
    return Run({"": step}, check=None if p else lambda: losses[:3])


def step_limit(sizes: Encoder) -> Run:
    """The matrix products of a step, and a pass over what Adam reads and writes."""
    d, ff, n = sizes.width, sizes.ff, sizes.batch * sizes.length

    def threefold(x: np.ndarray, y: np.ndarray) -> list[tuple[np.ndarray, ...]]:
        """x @ y and the two products of its derivative, each with a place for the result."""
        out = x @ y
        pairs = ((x, y), (out, y.swapaxes(-1, -2)), (x.swapaxes(-1, -2), out))
        return [(a, b, np.empty_like(a @ b, order="C")) for a, b in pairs]

    stack = (sizes.batch, sizes.heads, sizes.length)
    q = k = v = random(*stack, d // sizes.heads)
    layer = threefold(q, k.swapaxes(-1, -2)) + threefold(random(*stack, sizes.length), v)
    for out, wide in ((3 * d, d), (d, d), (ff, d), (d, ff)):  # weights stand as (out, in)
        layer += threefold(random(n, wide), random(out, wide).T)
    head = threefold(random(n, d), random(CLASSES, d).T)

    def products(_: Any) -> None:
        for x, y, out in layer * sizes.layers + head:
            np.matmul(x, y, out=out)

    size = sizes.layers * (4 * d * d + 2 * d * ff + 9 * d + ff) + 2 * d + (VOCABULARY + CLASSES) * d
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
            sides=ALL,
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
                sides=("torch", "torch plain", "tinyattn"),
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


# The start of a program. `worker.py` measures it, since it must see nothing imported before.

START = Case(
    "start of a program; import: over NumPy's; first step: tiny, from nothing",
    "start",
    "",
    partial(training_step, sizes=ENCODERS["tiny"], p=0.1),
    parts=("import", "first step, cold cache", "first step, warm cache"),
)


def warm_up(lib: Any) -> None:
    """Bring in whatever a library loads on first use, before its memory is looked at."""
    for p in (0.1, 0.0):
        step = training_step(lib, SHORTEST, p).phases[""]
        step(None)
    out = forward_backward(lib, *warm_attention(lib))
    out.phases["backward"](out.phases["forward"](None))


def warm_attention(lib: Any) -> tuple[Callable[[], Any], list[Any]]:
    leaf = lib.tensor(random(1, 1, 64, 64), True)
    return partial(lib.attention, leaf, leaf, leaf, None, True), [leaf]
