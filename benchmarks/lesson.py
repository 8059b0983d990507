"""One attention, written four ways: what each step of docs/performance.md buys.

    python -m benchmarks.lesson [--length 1024] [--repeats 5]

Forward and backward of the same attention with dropout, a quarter of the keys being padding. All
four give the same numbers, which is checked. Times are medians, and the four take turns; memory is
what NumPy holds at most beyond the inputs. With other programs on the cores the times mean little.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tracemalloc
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import tinyattn as ta
from tinyattn import masks, ops

from .processes import KEEP_MEMORY

P, SEED = 0.1, 12345


def elementary(q: Any, k: Any, v: Any, lens: Any) -> Any:
    """Every step an operation of its own, as on the blackboard."""
    seen = masks.from_valid_lens(lens, k.shape[2])[:, None, None]
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    scores = ops.where(seen, scores, -math.inf)
    powers = (scores - scores.amax(dim=-1, keepdim=True).detach()).exp()
    weights = powers / powers.sum(dim=-1, keepdim=True)
    keep = ops.dropout(ta.ones(*weights.shape), p=P, seed=SEED)
    return (weights * keep) @ v


def fused(q: Any, k: Any, v: Any, lens: Any) -> Any:
    """Mask, maximum, exp, sum and quotient in one kernel, with one derivative; so is dropout."""
    shape = (*q.shape[:3], k.shape[2])
    limits, mask = masks.canonical(shape, lens)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    weights = ops.masked_softmax(scores, limits=limits, mask=mask)
    return ops.dropout(weights, p=P, seed=SEED) @ v


def tiled(q: Any, k: Any, v: Any, lens: Any) -> Any:
    """All of it in one kernel, tile by tile, without the padding."""
    limits, mask = masks.canonical((*q.shape[:3], k.shape[2]), lens)
    scale = 1 / math.sqrt(q.shape[-1])
    return ops.attention(q, k, v, limits=limits, mask=mask, scale=scale, p=P, seed=SEED)


def with_threads(function: Callable[..., Any], number: int) -> Callable[..., Any]:
    def limited(*arguments: Any) -> Any:
        ta.set_num_threads(number)
        return function(*arguments)

    return limited


def peak_memory(function: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        function()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def with_memory_kept() -> None:
    """Start again with the variables of malloc, which must be there before the process is."""
    if any(name not in os.environ for name in KEEP_MEMORY):
        command = [sys.executable, "-m", "benchmarks.lesson", *sys.argv[1:]]
        os.execve(sys.executable, command, {**KEEP_MEMORY, **os.environ})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.length < 8 or arguments.repeats < 1:
        parser.error("--length must be at least 8 and --repeats at least 1")
    with_memory_kept()
    rng = np.random.default_rng(0)
    shape = (2, 4, arguments.length, 64)
    q, k, v = (ta.tensor(rng.standard_normal(shape, np.float32), requires_grad=True) for _ in "qkv")
    gradient = ta.tensor(rng.standard_normal(shape, np.float32))
    lens = [arguments.length * 3 // 4] * 2
    threads = ta.get_num_threads()
    ways = {
        "elementary operations": elementary,
        "fused softmax and dropout": fused,
        "tiles, one thread": with_threads(tiled, 1),
        f"tiles, threads: {threads}": with_threads(tiled, threads),
    }

    def run(way: Callable[..., Any]) -> list[np.ndarray]:
        out = way(q, k, v, lens)
        return [out.numpy(), *(g.numpy() for g in ta.grad(out, [q, k, v], gradient))]

    expected = run(elementary)
    times: dict[str, list[float]] = {name: [] for name in ways}
    for name, way in ways.items():
        for actual, exact in zip(run(way), expected, strict=True):
            if np.abs(actual - exact).max() > 1e-4:
                raise SystemExit(f"{name} gives other numbers than elementary operations")
    for _ in range(arguments.repeats):
        for name, way in ways.items():
            start = perf_counter()
            run(way)
            times[name].append(perf_counter() - start)
    first = median(times["elementary operations"])
    print(f"B,H,N,d = {','.join(map(str, shape))}, dropout {P}, a quarter padding")
    for name, way in ways.items():
        seconds, memory = median(times[name]), peak_memory(lambda way=way: run(way))
        print(
            f"{name:28} {1e3 * seconds:8.1f} ms {first / seconds:6.2f}x {memory / 2**20:8.1f} MiB"
        )


if __name__ == "__main__":
    main()
