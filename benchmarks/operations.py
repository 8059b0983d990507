"""Single operations: on arrays so small that only bookkeeping costs, at sizes of a layer, and on a
million numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from .cases import BOTH, FASTER, Case, Run, digest, forward_backward, lengths_of, random

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


# Functions of a million numbers. Those in CHOICES have no derivative.

Function = Callable[[Any, Any], Any]


def million(lib: Any, side: int) -> SimpleNamespace:
    """x, y, and positive p, each (side, side); a mask, and integers i below side; functions of
    the library that are no methods."""
    x, y = random(side, side), random(side, side, seed=1)
    i = np.random.default_rng(2).integers(0, side, (side, side))
    i[0, 0] = side - 1  # one_hot then has as many classes as x has columns
    floats = (lib.tensor(array, True) for array in (x, y, np.abs(x) + 0.1))
    arrays = dict(zip("xyp", floats, strict=True))
    arrays |= {"i": lib.tensor(i), "rows": lib.tensor(i[0]), "mask": lib.tensor(x > 0)}
    return SimpleNamespace(**arrays, where=lib.where, maximum=lib.maximum)


FUNCTIONS: dict[str, Function] = {
    "x + y": lambda F, a: a.x + a.y,
    "x - y": lambda F, a: a.x - a.y,
    "x * y": lambda F, a: a.x * a.y,
    "x / p": lambda F, a: a.x / a.p,
    "x % p": lambda F, a: a.x % a.p,
    "-x": lambda F, a: -a.x,
    "abs": lambda F, a: a.x.abs(),
    "x ** 2": lambda F, a: a.x**2,
    "x ** 3": lambda F, a: a.x**3,
    "x ** 4": lambda F, a: a.x**4,
    "p ** 0.5": lambda F, a: a.p**0.5,
    "p ** -0.5": lambda F, a: a.p**-0.5,
    "p ** -1": lambda F, a: a.p**-1,
    "p ** 1.5": lambda F, a: a.p**1.5,
    "p ** y": lambda F, a: a.p**a.y,
    "2 ** x": lambda F, a: 2**a.x,
    "square": lambda F, a: a.x.square(),
    "sqrt": lambda F, a: a.p.sqrt(),
    "rsqrt": lambda F, a: a.p.rsqrt(),
    "reciprocal": lambda F, a: a.p.reciprocal(),
    "exp": lambda F, a: a.x.exp(),
    "expm1": lambda F, a: a.x.expm1(),
    "log": lambda F, a: a.p.log(),
    "log1p": lambda F, a: a.p.log1p(),
    "sin": lambda F, a: a.x.sin(),
    "cos": lambda F, a: a.x.cos(),
    "tanh": lambda F, a: a.x.tanh(),
    "sigmoid": lambda F, a: a.x.sigmoid(),
    "erf": lambda F, a: a.x.erf(),
    "relu": lambda F, a: F.relu(a.x),
    "gelu": lambda F, a: F.gelu(a.x),
    "gelu tanh": lambda F, a: F.gelu(a.x, approximate="tanh"),
    "silu": lambda F, a: F.silu(a.x),
    "softplus": lambda F, a: F.softplus(a.x),
    "clamp": lambda F, a: a.x.clamp(-1, 1),
    "where": lambda F, a: a.where(a.mask, a.x, a.y),
    "maximum": lambda F, a: a.maximum(a.x, a.y),
    "masked_fill": lambda F, a: a.x.masked_fill(a.mask, 0.0),
    "sum": lambda F, a: a.x.sum(),
    "sum 0": lambda F, a: a.x.sum(0),
    "sum 1": lambda F, a: a.x.sum(1),
    "mean": lambda F, a: a.x.mean(),
    "mean 0": lambda F, a: a.x.mean(0),
    "mean 1": lambda F, a: a.x.mean(1),
    "var": lambda F, a: a.x.var(),
    "var 0": lambda F, a: a.x.var(0),
    "var 1": lambda F, a: a.x.var(1),
    "std": lambda F, a: a.x.std(),
    "norm": lambda F, a: a.x.norm(),
    "norm 1": lambda F, a: a.x.norm(dim=1),
    "prod": lambda F, a: a.p.prod(),
    "prod 1": lambda F, a: a.p.prod(1),
    "max": lambda F, a: a.x.max(),
    "max 0": lambda F, a: a.x.max(0)[0],
    "max 1": lambda F, a: a.x.max(1)[0],
    "amax 0": lambda F, a: a.x.amax(0),
    "amax 1": lambda F, a: a.x.amax(1),
    "cumsum 0": lambda F, a: a.x.cumsum(0),
    "cumsum 1": lambda F, a: a.x.cumsum(1),
    "logsumexp": lambda F, a: a.x.logsumexp(1),
    "softmax": lambda F, a: a.x.softmax(-1),
    "log_softmax": lambda F, a: a.x.log_softmax(-1),
    "mse_loss": lambda F, a: F.mse_loss(a.x, a.y),
    "binary_cross_entropy": lambda F, a: F.binary_cross_entropy_with_logits(a.x, a.mask * 1.0),
    "sort": lambda F, a: a.x.sort(dim=1, stable=True)[0],
    "topk": lambda F, a: a.x.topk(10, 1)[0],
    "gather 0": lambda F, a: a.x.gather(0, a.i),
    "gather 1": lambda F, a: a.x.gather(1, a.i),
    "x[rows]": lambda F, a: a.x[a.rows],
    "x[:, rows]": lambda F, a: a.x[:, a.rows],
    "x[mask]": lambda F, a: a.x[a.mask],
    "repeat_interleave": lambda F, a: a.x[:500].repeat_interleave(2, 0),
    "repeat": lambda F, a: a.x[:500].repeat(2, 1),
    "flip": lambda F, a: a.x.flip(0),
    "roll": lambda F, a: a.x.roll(3, 1),
    "tril": lambda F, a: a.x.tril(),
    "transpose": lambda F, a: a.x.transpose(0, 1).contiguous(),
}
CHOICES: dict[str, Function] = {
    "sign": lambda F, a: a.x.sign(),
    "x // p": lambda F, a: a.x.detach() // a.p.detach(),
    "x > y": lambda F, a: a.x > a.y,
    "x == y": lambda F, a: a.x == a.y,
    "isnan": lambda F, a: a.x.isnan(),
    "isfinite": lambda F, a: a.x.isfinite(),
    "any": lambda F, a: (a.mask).any(1),
    "all": lambda F, a: (a.mask).all(1),
    "argmax": lambda F, a: a.x.argmax(1),
    "argsort": lambda F, a: a.x.argsort(1),
    "one_hot": lambda F, a: F.one_hot(a.rows, 1000),
}


def with_gradient(lib: Any, function: Function, side: int) -> Run:
    arrays = million(lib, side)
    leaves = [arrays.x, arrays.y, arrays.p]
    return forward_backward(lib, lambda: function(lib.F, arrays), leaves)


def without_gradient(lib: Any, function: Function, side: int) -> Run:
    arrays = million(lib, side)

    def forward(_: Any = None) -> Any:
        return function(lib.F, arrays)

    return Run({"forward": forward}, check=lambda: digest([forward()]))


def functions(short: bool) -> Iterator[Case]:
    side = 10 if short else 1000
    for table, build, parts in (
        (FUNCTIONS, with_gradient, ("forward", "backward")),
        (CHOICES, without_gradient, ("forward",)),
    ):
        for name, function in table.items():
            yield Case(
                "functions of a million numbers",
                f"million {name}",
                f"{side} x {side}",
                partial(build, function=function, side=side),
                parts=parts,
                process="functions",
            )
