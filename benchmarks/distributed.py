"""What a second rank gains, and what a thousand ranks would gain.

    python -m benchmarks.distributed

Measured are training steps of the encoders of `benchmarks.encoders` by 1, 2 and 4 ranks of one
thread each, which divide one batch, and all-reduces of 1 KiB to 16 MiB. Times are the least of all
repeats. "alone" is a step without communication; the rest of a step is the share of communication.
"compared" is the part of a step in which the ranks compare what they are about to do.
Efficiency is the time of one rank over that of N ranks times N. Ranks beyond the number of cores
share cores, so their efficiency says nothing; they test the model.

The model: an all-reduce of n bytes takes alpha + beta n seconds. Here alpha and beta are fitted to
the measured all-reduces, and from them and from "alone" the steps of 2 and 4 ranks are predicted.
Beyond one machine these are the assumptions:
  - each rank is a machine, and computes as much as the one rank measured here: the batch grows;
  - an all-reduce among N ranks sends 2 log2(N) messages one after another, and 2 (N - 1) / N n
    bytes from each rank, at the full rate of its link;
  - a message takes the alpha measured here and 10 microseconds on the way;
  - all ranks are equally fast, and no other traffic is on the links;
  - communication is hidden behind none of backward (lower edge) or behind all of it, two thirds of
    the step (upper edge).
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from . import plots, report
from .cases import lengths_of
from .encoders import ENCODERS, IGNORE, SHORTEST, token_ids
from .libraries import Encoder
from .processes import KEEP_MEMORY, ROOT

SIZES = ("small", "medium", "full")
RANKS = (1, 2, 4)
RATES = (10e9, 100e9)  # bits in a second
LATENCY = 10e-6
BACKWARD = 2 / 3  # of a step
Measured = dict[str, Any]


def least(function: Callable[[], Any], repeats: int) -> float:
    """Seconds; all ranks begin together."""
    from tinyattn.training.distributed import all_reduce

    times = []
    for _ in range(repeats + 2):  # the first compile kernels
        all_reduce(0)
        began = perf_counter()
        function()
        times.append(perf_counter() - began)
    return min(times[2:])


def measure(sizes: Encoder, repeats: int) -> Measured:
    """What one rank does: times with an all-reduce and without."""
    import tinyattn as ta
    from tinyattn import nn, optim
    from tinyattn.training.distributed import DistributedDataParallel, world

    rank, ranks = world().rank, world().size
    attention = nn.MultiHeadedAttention(sizes.heads, sizes.width, 0.0)
    feed_forward = nn.PositionwiseFeedForward(sizes.width, sizes.ff, 0.0)
    layer = nn.EncoderLayer(sizes.width, attention, feed_forward, 0.0)
    encoder = nn.Encoder(layer, sizes.layers, skip_padding=True)
    embedding, head = nn.Embedding(sizes.words, sizes.width), nn.Linear(sizes.width, sizes.classes)
    model = nn.ModuleList([embedding, encoder, head])
    optimizer = optim.Adam(model.parameters())
    lengths = lengths_of(sizes.batch, sizes.length)
    ids, target = token_ids(sizes, lengths, np.random.default_rng(0))
    ids, target, lengths = (
        part[rank::ranks] for part in (ids, target.reshape(ids.shape), lengths)
    )  # fmt: skip
    number = int((target != IGNORE).sum())

    def step(parallel: DistributedDataParallel | None) -> None:
        logits = head(encoder(embedding(ids), valid_lens=lengths)).reshape(-1, sizes.classes)
        loss = ta.functional.cross_entropy(logits, target.reshape(-1), ignore_index=IGNORE)
        optimizer.zero_grad()
        if parallel is None:
            loss.backward()
        else:
            parallel.backward(loss, number)
        optimizer.step()

    ways = {
        "alone": None,
        "step": DistributedDataParallel(model),
    }
    found: Measured = dict.fromkeys(ways, math.inf)
    for _ in range(3):  # in turn
        for name, parallel in ways.items():
            seconds = least(lambda way=parallel: step(way), repeats)  # type: ignore[misc]
            found[name] = min(found[name], seconds)
    parallel, parameters = ways["step"], list(model.parameters())

    def compare() -> None:
        with world().together("compare", parallel.numbers(parameters), parallel.words):
            pass

    found["compared"] = least(compare, repeats)
    found["bytes"] = sum(4 * p.numel() for p in model.parameters())
    found["all_reduce"] = {}
    for size in (1 << power for power in range(10, 25, 2)):
        array = np.ones(size // 4, np.float32)
        if ranks > 1:
            found["all_reduce"][size] = least(
                lambda a=array: world().wait([world().begin_sum(a)]),  # type: ignore[misc]
                repeats,
            )
    return found


def find_mpiexec() -> str | None:
    """The one beside this Python, or the first in PATH."""
    beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return shutil.which("mpiexec", path=beside)


def ask(ranks: int, size: str, repeats: int, short: bool) -> Measured:
    """The answer of rank 0 of fresh processes."""
    mpiexec = find_mpiexec()
    if mpiexec is None:
        sys.exit('benchmarks.distributed needs mpiexec and mpi4py: pip install -e ".[mpi]"')
    request = json.dumps([size, repeats, short])
    command = [mpiexec, "-n", str(ranks), sys.executable, "-m", __spec__.name, "--rank", request]
    threads = {"TINYATTN_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment = {**os.environ, **KEEP_MEMORY, **threads}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def fitted(all_reduce: dict[str, float]) -> tuple[float, float]:
    """alpha and beta with the least sum of squares of relative errors."""
    n, seconds = np.array([(float(n), t) for n, t in all_reduce.items()]).T
    rows = np.stack([1 / seconds, n / seconds], axis=1)
    alpha, beta = np.linalg.lstsq(rows, np.ones_like(n))[0]
    return float(alpha), float(beta)


def efficiency(one: Measured, ranks: int, alpha: float, rate: float) -> tuple[float, float]:
    """Of `ranks` machines, by the assumptions above: least and most."""
    messages = 2 * math.log2(ranks)
    traffic = 2 * (ranks - 1) / ranks * one["bytes"]
    seconds = messages * (alpha + LATENCY) + traffic * 8 / rate
    left = max(0.0, seconds - BACKWARD * one["alone"])
    return one["alone"] / (one["alone"] + seconds), one["alone"] / (one["alone"] + left)


def draw(path: Path, found: dict[str, dict[int, Measured]], alpha: float, title: str) -> bool:
    """Below each other, because a page is narrow; `title` says where it was measured."""
    figure = plots.new_figure(5, 1.4 + 2 * len(found))
    if figure is None:
        return False
    counts = [2**power for power in range(1, 11)]
    column = figure.subplots(len(found), 1, squeeze=False, sharex=True)[:, 0]
    for axes, (size, by_ranks) in zip(column, found.items(), strict=True):
        for rate in RATES:
            edges = [efficiency(by_ranks[1], ranks, alpha, rate) for ranks in counts]
            axes.fill_between(counts, *zip(*edges, strict=True), alpha=0.4,
                              label=f"predicted, {rate / 1e9:g} Gbit/s")  # fmt: skip
        measured = by_ranks[1]["alone"] / (2 * by_ranks[2]["step"])
        axes.plot([2], [measured], "ko", label="measured, two ranks of one machine")
        axes.set_xscale("log", base=2)
        axes.set_ylim(0, 1.05)
        axes.set_title(f"{size}, {by_ranks[1]['bytes'] / 2**20:.1f} MiB of gradients", fontsize=10)
        axes.set_ylabel("efficiency")
    column[-1].set_xlabel("ranks")
    column[0].legend(fontsize=9.5, loc="lower left")
    counted = "efficiency: step of one rank / (ranks x step of that many)"
    lines = [part for line in [counted, *title.splitlines()] for part in textwrap.wrap(line, 65)]
    figure.suptitle("\n".join(lines), fontsize=9.5)
    plots.save(figure, path)
    return True


def main() -> int:
    if sys.argv[1:2] == ["--rank"]:
        from tinyattn.training.distributed import get_rank

        size, repeats, short = json.loads(sys.argv[2])
        answer = measure(SHORTEST if short else ENCODERS[size], repeats)
        if get_rank() == 0:
            print(json.dumps(answer))
        return 0
    args, settings = report.parsed(report.parser_of("benchmarks.distributed", __doc__))
    about = report.surroundings(replace(settings, threads=1))
    print(report.heading(about), flush=True)
    found: dict[str, dict[int, Measured]] = {}
    print(f"\n{'':<8}{'ranks':>6}{'step':>11}{'alone':>11}"
          f"{'compared':>11}{'share':>8}{'efficiency':>12}{'alpha':>11}{'GB/s':>7}"
          f"{'predicted':>11}")  # fmt: skip
    for size in SIZES[:1] if args.short else SIZES:
        found[size] = {}
        for ranks in RANKS:
            one = found[size][ranks] = ask(ranks, size, args.repeats, args.short)
            cells = [report.amount(one[name], "s") for name in ("step", "alone", "compared")]
            text = f"{size:<8}{ranks:>6}" + "".join(f"{cell:>11}" for cell in cells)
            if ranks > 1:
                gain = found[size][1]["alone"] / (ranks * one["step"])
                alpha, beta = fitted(one["all_reduce"])
                step = one["alone"] + alpha + beta * one["bytes"]
                text += (f"{1 - one['alone'] / one['step']:>8.0%}{gain:>12.2f}"
                         f"{report.amount(alpha, 's'):>11}{1e-9 / beta:>7.2f}"
                         f"{report.amount(step, 's'):>11}")  # fmt: skip
            print(text, flush=True)
    alpha = min(fitted(by_ranks[2]["all_reduce"])[0] for by_ranks in found.values())
    print("\nefficiency predicted for as many machines, least and most")
    for size, rate in product(found, RATES):
        cells = [f"{ranks}: {low:.2f} - {high:.2f}" for ranks in (2, 16, 128, 1024)
                 for low, high in [efficiency(found[size][1], ranks, alpha, rate)]]  # fmt: skip
        print(f"{size:<8}{rate / 1e9:>4g} Gbit/s   " + "   ".join(cells))
    path, plot = report.files(args, about, "distributed-")
    report.write_json(path, [], about, measured=found)
    print(f"\n{path}")
    if draw(plot, found, alpha, report.heading(about)):
        print(plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
