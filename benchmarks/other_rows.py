"""Rows that the other libraries can compute as well, each as one forward and backward."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from .cases import BOTH, Case, Run, digest, lengths_of, random
from .encoders import ENCODERS, IGNORE, SHORTEST, token_ids, training_step
from .libraries import CLASSES, VOCABULARY, Encoder, layer_weights
from .operations import LINKS, constants

OTHERS = ("torch.compile", "autograd", "MyGrad", "DeZero", "tinygrad")
OPERATIONS = ("y*c+x", "exp(-y)", "relu", "sum", "matmul", "softmax")


def small_operation(lib: Any, name: str, links: int) -> Run:
    """A chain of one operation on 4x4 arrays, its value and its gradients in one go."""
    count, common = LINKS[name]
    link = getattr(lib, "links", {}).get(name, common)
    x, rotation = constants()
    c, end = lib.constant(rotation), lib.constant(random(4, 4, seed=1))

    def value(x: Any, w: Any) -> Any:
        y = x
        for _ in range(links):
            y = link(lib, y, x, c, w)
        return (y * end).sum()

    run = lib.derivative(value, [x, rotation])
    return Run({"": lambda _: run()}, check=lambda: digest(run()[1][:1]), per=count * links)


def encoder(
    lib: Any, sizes: Encoder, p: float, rng: np.random.Generator
) -> tuple[list[np.ndarray], Callable[..., Any]]:
    """Starting values, and the logits as a function of parameters, ids and a mask to be added.

    Rows of tokens stand below one another, so that a Linear is one product of two matrices.
    """
    d, batch, n = sizes.width, sizes.batch, sizes.length
    arrays = [rng.standard_normal((VOCABULARY, d)).astype(np.float32)]
    for _ in range(sizes.layers):
        for kind, array in layer_weights(sizes, rng).items():
            arrays.append(np.ascontiguousarray(array.T) if kind.endswith("weight") else array)
        arrays += [np.ones(d, np.float32), np.zeros(d, np.float32)] * 2
    arrays += [np.ones(d, np.float32), np.zeros(d, np.float32)]
    head = rng.standard_normal((CLASSES, d)).astype(np.float32) / d
    arrays += [np.ascontiguousarray(head.T), np.zeros(CLASSES, np.float32)]
    scale = 1 / math.sqrt(d // sizes.heads)

    def dropped(x: Any) -> Any:
        return lib.dropout(x, p) if p else x

    def split(x: Any) -> Any:
        return lib.permute(x.reshape(batch, n, sizes.heads, d // sizes.heads), (0, 2, 1, 3))

    def logits(parameters: tuple[Any, ...], ids: Any, mask: Any) -> Any:
        following = iter(parameters)

        def linear(x: Any) -> Any:
            return x @ next(following) + next(following)

        table = next(following)
        x = table[ids]  # (B*N, D)
        for _ in range(sizes.layers):
            weights = [next(following) for _ in range(12)]
            first, second = ([next(following), next(following)] for _ in range(2))
            (q, q0, k, k0, v, v0, o, o0, w1, b1, w2, b2) = weights
            y = lib.layer_norm(x, *first)
            q, k, v = (split(y @ w + b) for w, b in ((q, q0), (k, k0), (v, v0)))
            scores = (q * scale) @ lib.permute(k, (0, 1, 3, 2)) + mask
            y = dropped(lib.softmax(scores)) @ v
            y = lib.permute(y, (0, 2, 1, 3)).reshape(batch * n, d)
            x = x + dropped(y @ o + o0)
            y = dropped(lib.relu(lib.layer_norm(x, *second) @ w1 + b1))
            x = x + dropped(y @ w2 + b2)
        x = lib.layer_norm(x, next(following), next(following))
        return linear(x)

    return arrays, logits


def other_step(lib: Any, sizes: Encoder, p: float) -> Run:
    """What training_step does, for a library that has no face of Tensors and modules."""
    rng = np.random.default_rng(0)
    arrays, logits = encoder(lib, sizes, p, rng)
    lengths = lengths_of(sizes.batch, sizes.length)
    ids, target = token_ids(sizes, lengths, rng)
    hidden = np.arange(sizes.length) >= lengths[:, None]
    mask = lib.constant(np.where(hidden, np.float32(-1e9), np.float32(0))[:, None, None])
    flat, kept = lib.constant(ids.reshape(-1)), target != IGNORE

    def loss(*parameters: Any) -> Any:
        return lib.cross_entropy(logits(parameters, flat, mask), target, kept)

    train = lib.training(loss, arrays)
    losses: list[float] = []
    return Run({"": lambda _: losses.append(train())}, check=None if p else lambda: losses[:3])


def step(lib: Any, sizes: Encoder, p: float) -> Run:
    return (training_step if hasattr(lib, "encoder") else other_step)(lib, sizes, p)


def other_cases(short: bool) -> Iterator[Case]:
    links = 5 if short else 30  # tinygrad and torch.compile take a second for each ten
    sides = (*BOTH, *OTHERS)
    for name in OPERATIONS:
        yield Case(
            "other libraries: one operation on 4x4 arrays, forward and backward",
            f"other op {name}",
            f"a chain of {links}",
            partial(small_operation, name=name, links=links),
            parts=("",),
            sides=sides,
            process="other operations",
        )
    for name, p in product(("tiny", "small"), (0.1, 0.0)):
        sizes = SHORTEST if short else ENCODERS[name]
        yield Case(
            "other libraries: training step; width, heads, ff, layers, batch, length",
            f"other step {name} p={p:g}",
            sizes.detail,
            partial(step, sizes=sizes, p=p),
            parts=("",),
            sides=sides,
            process="other steps",
        )
