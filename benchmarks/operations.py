"""Single operations: on arrays so small that only bookkeeping costs, and at sizes of a layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from .cases import BOTH, FASTER, Case, Run, forward_backward, lengths_of, random

# One operation on 4x4 arrays. The array work is almost nothing, so the time is bookkeeping.

# One link of a chain, and how many operations it holds: y is the chain up to here, x its first
# array, c a constant, w a weight. The links are chosen so that y stays bounded: exp gets -y.
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


def constants() -> tuple[np.ndarray, np.ndarray]:
    """The first array of a chain, and an orthogonal matrix, since it changes no length."""
    return random(4, 4), np.linalg.qr(random(4, 4, seed=2)).Q


def chain(lib: Any, links: int, operations: int, link: Callable[..., Any]) -> Run:
    start, rotation = constants()
    x, c, w = lib.tensor(start, True), lib.tensor(rotation), lib.tensor(rotation, True)

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
    n, inputs, outputs = shape
    shapes = ((n, inputs), (outputs, inputs), (outputs,))
    x, weight, bias = (lib.tensor(random(*s), True) for s in shapes)
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
# By name: the function, the letters of its shapes, and the shapes small, medium and large.
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
                sides=FASTER if attends else BOTH,
                process=name,
            )
