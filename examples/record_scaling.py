"""A scaling law on a laptop, for docs/course/22_own_language_model.md: how loss falls with size.

  python examples/record_scaling.py

trains language models of five sizes on the Python of the standard library, each for the same time,
and writes examples/data/scaling_law.json, which is kept because this takes five minutes. The bytes
of the text are the ids. The largest size is predicted from the four others before it is trained.

Time is that of one thread of the processor, so other programs disturb it little: it is the number
of steps times the median time of a step.
"""

from __future__ import annotations

import argparse
import json
import sysconfig
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import programs
from language_data import standard_library
from programs import complaints, number_in

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn, optim
from tinyattn.models import generate

RECORDED = Path(__file__).parent / "data" / "scaling_law.json"
CONTEXT, BATCH, BYTES = 128, 8, 128  # all files are ASCII, so 128 ids are enough
WIDTHS = {28: 2, 48: 2, 88: 4, 160: 4, 280: 4}  # width: heads


def python_text() -> tuple[np.ndarray, np.ndarray]:
    """The bytes of the standard library's files in ASCII: to learn from, and of one file in 20."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    # Their order is by chance, and the same on every machine.
    names = [path.relative_to(folder).as_posix() for path in standard_library()]
    names.sort(key=lambda name: zlib.crc32(name.encode()))
    texts = [text for name in names if (text := (folder / name).read_bytes()).isascii()]
    held_out = len(texts) // 20
    found = b"".join(texts[held_out:]), b"".join(texts[:held_out])
    return np.frombuffer(found[0], np.uint8), np.frombuffer(found[1], np.uint8)


def new_model(width: int, heads: int, layers: int = 2) -> ta.models.CausalLM:
    """A small Llama of bytes."""
    return ta.models.CausalLM({
        "model_type": "llama", "vocab_size": BYTES, "hidden_size": width,
        "num_hidden_layers": layers, "num_attention_heads": heads,
        "intermediate_size": 4 * round(2 * width / 3), "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": True,
    })  # fmt: skip


def parameters_of(model: nn.Module) -> int:
    return sum(x.numel() for x in model.parameters())


def windows(ids: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pieces of the text (B, CONTEXT), and the id after each of their ids."""
    pieces = ids[starts[:, None] + np.arange(CONTEXT + 1)].astype(np.int64)
    return pieces[:, :-1], pieces[:, 1:]


def loss_of(model: ta.models.CausalLM, ids: np.ndarray, targets: np.ndarray) -> ta.Tensor:
    return F.cross_entropy(model(ids).flatten(0, 1), targets.reshape(-1))


@ta.no_grad()
def bits_of(model: ta.models.CausalLM, text: np.ndarray, pieces: int = 256) -> float:
    """Bits a byte of a text: the mean over pieces at equal distances, the same in each call."""
    starts = np.linspace(0, len(text) - CONTEXT - 1, pieces).astype(np.int64)
    parts = [loss_of(model, *windows(text, part)).item() for part in np.split(starts, pieces // 32)]
    return float(np.mean(parts) / np.log(2))


class Trained:
    """A model in training: its steps, the time of each, and its bits a byte on the way."""

    def __init__(self, model: ta.models.CausalLM, text: np.ndarray, rate: float) -> None:
        self.model, self.text = model, text
        self.optimizer = optim.AdamW(model.parameters(), rate, (0.9, 0.98), weight_decay=0.1)
        self.warmup = optim.LambdaLR(self.optimizer, lambda step: min(1.0, (step + 1) / 50))
        self.rng = np.random.default_rng(0)
        self.seconds: list[float] = []

    def step(self) -> None:
        begin = time.process_time()
        starts = self.rng.integers(len(self.text) - CONTEXT, size=BATCH)
        self.optimizer.zero_grad()
        loss_of(self.model, *windows(self.text, starts)).backward()
        optim.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.warmup.step()
        self.seconds.append(time.process_time() - begin)

    def median(self) -> float:
        return float(np.median(self.seconds[5:]))


def line_through(sizes: list[int], bits: list[float]) -> tuple[float, float]:
    """(slope, log of the factor) of bits = factor * size ** slope, a line in log-log."""
    slope, constant = np.polyfit(np.log(sizes), np.log(bits), 1)
    return float(slope), float(constant)


def bits_at(curve: list[list[float]], tokens: float) -> float:
    """The bits a byte of a curve of (tokens, bits) at so many tokens, from its neighbours."""
    known, bits = np.array(curve).T
    return float(np.interp(np.log(tokens), np.log(known), bits))


def learned(trained: Trained, held_out: np.ndarray, seconds: float) -> list[list[float]]:
    """Train for this time; (tokens, bits a byte) after 16, 23, 32, 45, ... steps and at the end."""
    curve: list[list[float]] = []
    while True:
        step = len(trained.seconds)
        is_last = step >= 16 and step * trained.median() >= seconds
        if is_last or step == round(16 * 2 ** (len(curve) / 2)):
            curve.append([step * BATCH * CONTEXT, round(bits_of(trained.model, held_out), 4)])
        if is_last:
            return curve
        trained.step()


def predicted(runs: list[dict[str, Any]], size: int, tokens: float) -> float:
    """What the line of the last four sizes says of another size at equal tokens."""
    points = [(run["parameters"], bits_at(run["curve"], tokens)) for run in runs[-4:]]
    slope, constant = line_through(*map(list, zip(*points, strict=True)))
    return float(np.exp(slope * np.log(size) + constant))


def longest_copied(sample: bytes, text: bytes) -> bytes:
    """The longest piece of a sample that stands in the text."""
    best = b""
    for end in range(1, len(sample) + 1):
        while (longer := sample[end - len(best) - 1 : end]) in text and len(longer) > len(best):
            best = longer
    return best


def written(model: ta.models.CausalLM, text: np.ndarray) -> list[dict[str, Any]]:
    """What a model writes at several temperatures, and how much of it is copied from the text."""
    found = []
    for temperature, top_p in ((0.0, None), (0.5, None), (1.0, 0.9), (1.0, None), (1.5, None)):
        ta.manual_seed(1)
        prompt = [list(b"    def ")]
        ids = generate(model.next_scores(), prompt, 300, None, -1, temperature, top_p=top_p)
        sample = bytes(ids.numpy()[0].tolist())
        copied = len(longest_copied(sample, text.tobytes()))
        settings = {"temperature": temperature, "top_p": top_p, "copied": copied}
        signs = (c if c.isprintable() or c == "\n" else "?" for c in sample.decode("ascii"))
        found.append({**settings, "text": "".join(signs)})
    return found


@complaints()
def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--seconds", type=number_in(0.001, 1e6), default=50.0, help="for each size (%(default)s)")
    add("--out", type=Path, default=RECORDED, metavar="FILE", help="it replaces this (%(default)s)")
    options = parser.parse_args()
    if options.out.is_dir():
        raise ValueError(f"{options.out} is a folder: name a file with --out")
    programs.make_folder(options.out.parent)  # now, and not after the training
    ta.set_num_threads(1)
    text, held_out = python_text()
    runs: list[dict[str, Any]] = []
    models: dict[float, ta.models.CausalLM] = {}  # by their bits a byte
    prediction: dict[str, float] = {}
    for width, heads in WIDTHS.items():
        ta.manual_seed(0)
        model = new_model(width, heads)
        trained = Trained(model, text, 0.25 / width)
        run: dict[str, Any] = {"width": width, "heads": heads, "parameters": parameters_of(model)}
        if width == max(WIDTHS):  # the first steps say how far it will come
            for _ in range(16):
                trained.step()
            steps = max(16, int(options.seconds / trained.median()))
            prediction = {"tokens": steps * BATCH * CONTEXT}
            prediction["bits"] = predicted(runs, run["parameters"], prediction["tokens"])
            print("predicted for {parameters:,} parameters: {bits:.3f}".format(**run, **prediction))
        run["curve"] = learned(trained, held_out, options.seconds)
        run["seconds_a_step"] = round(trained.median(), 5)
        runs.append(run)
        models[run["curve"][-1][1]] = model
        print(
            f"{run['parameters']:9,} parameters, {1000 * trained.median():.1f} ms a step: "
            f"{run['curve'][-1][1]:.3f} bits a byte after {run['curve'][-1][0]:,} bytes",
            flush=True,
        )
    found = {"tokens_a_step": BATCH * CONTEXT, "runs": runs, "prediction": prediction}
    found["samples"] = written(models[min(models)], text)
    options.out.write_text(json.dumps(found), "utf-8")


if __name__ == "__main__":
    programs.run(main)
