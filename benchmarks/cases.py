"""What is measured. A case is written once and runs on every library of `libraries.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from .libraries import CLASSES, VOCABULARY, Encoder

IGNORE = -100
BOTH = ("torch", "tinyattn")
# Attention as separate products and as PyTorch's one function; the report takes the faster.
ALL = ("torch", "torch plain", "tinyattn", "limit")


@dataclass
class Run:
    """A case that is ready to be timed.

    phases  by the name of the part they measure; each gets what the one before returned
    reset   between repetitions, outside the measured time
    check   numbers that must be equal for all libraries, or None where chance decides
    per     how many operations one repetition holds; times are divided by it
    """

    phases: dict[str, Callable[[Any], Any]]
    reset: Callable[[], None] = lambda: None
    check: Callable[[], list[float]] | None = None
    per: int = 1


@dataclass(frozen=True)
class Case:
    """build(library) makes the Run; limit() the Run of what NumPy needs at least.

    parts    the names of the Run's phases; with `memory` also "peak memory"
    process  cases of one process name are measured one after the other in one process
    """

    section: str
    name: str
    detail: str
    build: Callable[[Any], Run]
    limit: Callable[[], Run] | None = None
    parts: tuple[str, ...] = ("forward", "backward")
    sides: tuple[str, ...] = BOTH
    process: str = ""
    memory: bool = False
    rows: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        parts = (*self.parts, "peak memory") if self.memory else self.parts
        object.__setattr__(self, "rows", tuple(f"{self.name} {part}".strip() for part in parts))


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def digest(tensors: Sequence[Any]) -> list[float]:
    """Two numbers for each tensor, which a wrong value or a wrong place would change."""
    numbers = []
    for tensor in tensors:
        values = np.asarray(tensor.detach().numpy(), np.float64).reshape(-1)
        numbers += [float(values @ np.cos(np.arange(values.size))), float(np.linalg.norm(values))]
    return numbers


def forward_backward(
    lib: Any, forward: Callable[[], Any], leaves: list[Any], deterministic: bool = True
) -> Run:
    """The two phases of a function: its value, and the gradients of its leaves."""
    gradient = lib.tensor(random(*forward().shape, seed=1))

    def reset() -> None:
        for leaf in leaves:
            leaf.grad = None

    def check() -> list[float]:
        out = forward()
        out.backward(gradient)
        numbers = digest([out, *[leaf.grad for leaf in leaves if leaf.grad is not None]])
        reset()
        return numbers

    return Run(
        {"forward": lambda _: forward(), "backward": lambda out: out.backward(gradient)},
        reset,
        check if deterministic else None,
    )


# One operation on 4x4 arrays, where the array work is nothing and the bookkeeping everything


# What one link of a chain does, and how many operations that is: y is the chain so far, x its
# beginning, c a constant, w a weight. All keep y in bounds: -y before exp, for instance.
LINKS: dict[str, tuple[int, Callable[..., Any]]] = {
    "y*c+x": (2, lambda lib, y, x, c, w: y * c + x),
    "exp(-y)": (2, lambda lib, y, x, c, w: (-y).exp()),
    "relu": (1, lambda lib, y, x, c, w: y.relu()),
    "sum": (1, lambda lib, y, x, c, w: y.sum(0, True)),
    "matmul": (1, lambda lib, y, x, c, w: y @ w),
    "softmax": (1, lambda lib, y, x, c, w: lib.F.softmax(y, -1)),
    "layer_norm": (1, lambda lib, y, x, c, w: lib.F.layer_norm(y, (4,))),
    "reshape": (2, lambda lib, y, x, c, w: y.reshape(2, 8).reshape(4, 4)),
    "getitem": (1, lambda lib, y, x, c, w: y[0:4]),
}


def chain(lib: Any, links: int, operations: int, link: Callable[..., Any]) -> Run:
    rotation = np.linalg.qr(random(4, 4, seed=2)).Q
    x, c, w = lib.tensor(random(4, 4), True), lib.tensor(rotation), lib.tensor(rotation, True)

    def forward() -> Any:
        y = x
        for _ in range(links):
            y = link(lib, y, x, c, w)
        return y

    run = forward_backward(lib, forward, [x, w])
    run.per = operations * links
    return run


def operations(short: bool) -> Iterator[Case]:
    links = 5 if short else 2000
    for name, (count, link) in LINKS.items():
        yield Case(
            "one operation on 4x4 arrays",
            f"op {name}",
            f"a chain of {links}",
            partial(chain, links=links, operations=count, link=link),
            process="operations",
        )


# Layers


def lengths_of(batch: int, full: int) -> np.ndarray:
    """Lengths between half and full, the longest of them full."""
    lengths = np.random.default_rng(3).integers(full // 2, full + 1, batch)
    lengths[0] = full
    return lengths


def softmax(lib: Any, shape: tuple[int, ...]) -> Run:
    x = lib.tensor(random(*shape), True)
    return forward_backward(lib, lambda: lib.F.softmax(x, -1), [x])


def masked_softmax(lib: Any, shape: tuple[int, ...]) -> Run:
    x, lengths = lib.tensor(random(*shape), True), lengths_of(shape[0], shape[-1])
    return forward_backward(lib, lambda: lib.masked_softmax(x, lengths), [x])


def layer_norm(lib: Any, shape: tuple[int, ...]) -> Run:
    x, *affine = (lib.tensor(random(*s), True) for s in (shape, shape[-1:], shape[-1:]))
    return forward_backward(lib, lambda: lib.F.layer_norm(x, shape[-1:], *affine), [x, *affine])


def dropout(lib: Any, shape: tuple[int, ...]) -> Run:
    x = lib.tensor(random(*shape), True)
    return forward_backward(lib, lambda: lib.F.dropout(x, 0.1), [x], deterministic=False)


def cross_entropy(lib: Any, shape: tuple[int, ...]) -> Run:
    x = lib.tensor(random(*shape), True)
    target = lib.tensor(np.random.default_rng(1).integers(0, shape[1], shape[0]))
    return forward_backward(lib, lambda: lib.F.cross_entropy(x, target), [x])


def linear(lib: Any, shape: tuple[int, ...]) -> Run:
    n, wide, out = shape
    x, weight, bias = (lib.tensor(random(*s), True) for s in ((n, wide), (out, wide), (out,)))
    return forward_backward(lib, lambda: lib.F.linear(x, weight, bias), [x, weight, bias])


def additive_attention(lib: Any, shape: tuple[int, ...]) -> Run:
    batch, n, size = shape
    weights = tuple(random(*s) for s in ((size, size), (size, size), (1, size)))
    module, parameters = lib.additive(size, tuple(w / size**0.5 for w in weights))
    q, k, v = (lib.tensor(random(*shape, seed=i), True) for i in range(3))
    lengths = lengths_of(batch, n)
    return forward_backward(lib, lambda: module(q, k, v, lengths), [q, k, v, *parameters])


def dot_product_attention(lib: Any, shape: tuple[int, ...]) -> Run:
    q, k, v = (lib.tensor(random(*shape, seed=i), True) for i in range(3))
    lengths = lengths_of(shape[0], shape[2])
    return forward_backward(lib, lambda: lib.attention(q, k, v, lengths), [q, k, v])


ELEMENTWISE = ((64, 32), (2048, 128), (8192, 512))
SCORES = ((8, 4, 16, 16), (32, 4, 64, 64), (4, 8, 512, 512))
HEADS = ((8, 4, 16, 16), (32, 4, 64, 32), (4, 8, 256, 64))
# What stands in the shapes, then small, medium and large.
LAYERS: dict[str, tuple[Callable[..., Run], str, tuple[tuple[int, ...], ...]]] = {
    "softmax": (softmax, "N,D", ELEMENTWISE),
    "masked softmax": (masked_softmax, "B,H,Q,K", SCORES),
    "layer norm": (layer_norm, "N,D", ELEMENTWISE),
    "dropout": (dropout, "N,D", ELEMENTWISE),
    "cross-entropy": (cross_entropy, "N,C", ((64, 8), (2048, 64), (1024, 8192))),
    "linear": (linear, "N,in,out", ((64, 32, 32), (2048, 128, 512), (2048, 512, 2048))),
    "additive attention": (additive_attention, "B,N,D", ((4, 8, 16), (8, 32, 32), (8, 64, 128))),
    "dot-product attention": (dot_product_attention, "B,H,N,d", HEADS),
}  # fmt: skip


def layers(short: bool) -> Iterator[Case]:
    for name, (build, letters, shapes) in LAYERS.items():
        attends = build is dot_product_attention
        for size, shape in zip(("small", "medium", "large"), shapes, strict=True):
            shape = shapes[0] if short else shape
            yield Case(
                "layers",
                f"{name} {size}",
                f"{letters} = {','.join(map(str, shape))}",
                partial(build, shape=shape),
                sides=("torch", "torch plain", "tinyattn") if attends else BOTH,
                process=name,
            )


# Training steps

ENCODERS = {
    "tiny": Encoder(32, 4, 64, 2, 32, 24),
    "small": Encoder(64, 4, 256, 2, 32, 32),
    "medium": Encoder(128, 4, 512, 4, 32, 64),
    "full": Encoder(512, 8, 2048, 6, 32, 10),
    "long": Encoder(64, 4, 256, 2, 2, 1024),
}
SHORTEST = Encoder(16, 2, 32, 1, 4, 6)


def training_step(lib: Any, sizes: Encoder, p: float) -> Run:
    """Forward, cross-entropy, backward, Adam."""
    rng = np.random.default_rng(0)
    model, parameters = lib.encoder(sizes, p, rng)
    optimizer = lib.adam(parameters)
    lengths = lengths_of(sizes.batch, sizes.length)
    padding = np.arange(sizes.length) >= lengths[:, None]
    shape = (sizes.batch, sizes.length)
    ids = lib.tensor(np.where(padding, 0, rng.integers(1, VOCABULARY, shape)))
    target = np.where(padding, IGNORE, rng.integers(0, CLASSES, shape))
    target = lib.tensor(target.reshape(-1))
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


def all_cases(short: bool) -> list[Case]:
    found = [*operations(short), *layers(short), *steps(short), *attentions(short)]
    return [*found, START]
