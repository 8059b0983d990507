"""One attention, written four ways: the gain of each step in docs/performance.md.

    python -m benchmarks.lesson [--length 1024] [--repeats 5]

Forward and backward of the same attention with dropout; a quarter of the keys is padding. All four
give the same numbers, and the program checks this. Times are medians, and the four take turns.
Memory is the most that NumPy holds beyond the inputs. Times mean little while other programs run.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import masks

from .processes import KEEP_MEMORY

P = 0.1


def elementary(q: Any, k: Any, v: Any, lens: Any) -> Any:
    """Every step of the formula is an operation of its own."""
    visible = masks.from_valid_lens(lens, k.shape[2])[:, None, None]  # (B, 1, 1, K)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    scores = ta.where(visible, scores, -math.inf)
    powers = (scores - scores.amax(dim=-1, keepdim=True).detach()).exp()
    weights = powers / powers.sum(dim=-1, keepdim=True)
    return (weights * F.dropout(ta.ones(*weights.shape), P)) @ v


def fused(q: Any, k: Any, v: Any, lens: Any) -> Any:
    """Mask, maximum, exp, sum and quotient are one kernel with one derivative; dropout another."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return F.dropout(F.masked_softmax(scores, lens), P) @ v


def tiled(q: Any, k: Any, v: Any, lens: Any) -> Any:
    """One kernel computes everything, tile by tile, and leaves out the padding."""
    return F.scaled_dot_product_attention(q, k, v, valid_lens=lens, dropout_p=P)


def with_threads(function: Callable[..., Any], number: int) -> Callable[..., Any]:
    def limited(*arguments: Any) -> Any:
        ta.set_num_threads(number)
        return function(*arguments)

    return limited


def peak_memory(function: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        start = tracemalloc.get_traced_memory()[0]
        function()
        return tracemalloc.get_traced_memory()[1] - start
    finally:
        tracemalloc.stop()


def with_memory_reused() -> None:
    """Start again with the variables of malloc, because a process reads them when it starts."""
    if any(name not in os.environ for name in KEEP_MEMORY):
        command = [sys.executable, "-m", "benchmarks.lesson", *sys.argv[1:]]
        os.execve(sys.executable, command, {**KEEP_MEMORY, **os.environ})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.length < 8 or arguments.repeats < 1:
        parser.error("--length must be at least 8 and --repeats at least 1")
    with_memory_reused()
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
        ta.manual_seed(0)  # all drop the same weights
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
        seconds, memory = median(times[name]), peak_memory(partial(run, way))
        print(
            f"{name:28} {1e3 * seconds:8.1f} ms {first / seconds:6.2f}x {memory / 2**20:8.1f} MiB"
        )


if __name__ == "__main__":
    main()
