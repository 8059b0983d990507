"""Train a language model on texts of your own, and let it write.

Without a file it learns the Python of this machine's standard library. A folder stands for all
texts in it. Small texts are cut into characters, large ones into pieces by byte-level BPE.

  python examples/train_language_model.py                                five minutes, Python
  python examples/train_language_model.py FILE FOLDER --out runs/mine    texts of your own, in UTF-8
  python examples/train_language_model.py --out runs/mine --resume       go on after Ctrl-C or worse
  python examples/train_language_model.py --out runs/mine --sample "Once upon" --temperature 0.8
  python examples/train_language_model.py FILE --from FOLDER --lora 8    teach a published model
  mpiexec -n 2 python examples/train_language_model.py FILE              train in two processes

Nothing is learned from a tenth of the text: of 20 files or more it is whole files, if these are a
tenth of the bytes too, else the end of each file.
The loss on it is also given in bits a byte, because these can be compared between vocabularies, and
with compressors. The folder --out has the best model: ta.models.CausalLM.from_pretrained, chat.py
and transformers open it.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import math
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import programs  # first, because Ctrl-C while the others import is its business

# isort: split
import language_data as data
import numpy as np
from programs import at_least_one, complaints, number_in, size
from training import (
    Run,
    check_batch,
    checkpoint_of,
    go_on,
    how_to_go_on,
    part_of,
    refuse_lost_run,
    resumed,
    run_program,
    settings_of,
    tqdm,
)

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn, optim, viz
from tinyattn.generation import generate
from tinyattn.models import CausalLM
from tinyattn.models.settings import read_json
from tinyattn.models.tokenizer_files import checked_text, read_tokenizer_json
from tinyattn.training import TrainingLoop, Windows
from tinyattn.training.atomic_write import write_atomically
from tinyattn.training.distributed import DistributedDataParallel, all_reduce, get_rank

# layers, heads, width, ids of a window, windows of a batch, highest learning rate
SIZES = {
    "tiny": (2, 2, 64, 64, 16, 6e-3),
    "small": (4, 4, 128, 256, 4, 2e-3),
    "medium": (6, 6, 384, 256, 16, 1e-3),
}
NAMES = ("layers", "heads", "width", "context", "batch", "lr")
KINDS = ("llama", "gpt2")
OF_THE_MODEL = ("kind", "dropout", *NAMES[:3], "tokens", "words")  # which --from brings
# What may change when a run goes on: where the text is, how long, and how it writes.
CHANGEABLE = ("texts", "minutes", "steps", "patience", "sample", "temperature", "top_p", "length")
MEASURED = 10  # times that the held-out loss is measured, each time on the same windows
MEASURED_IDS, FINAL_IDS = 16_384, 1_000_000
MOST_SCORES = 1 << 22  # of a batch that is measured, because scores take memory
COUNTED = 1_200_000  # ids that n-grams are counted in, because counting takes memory
ADAPTED = ("W_q", "W_v", "w_2")  # the matrices that get a LoRA
FUNCTIONS = 200


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )  # fmt: skip
    add = parser.add_argument
    whole: Any = {"type": at_least_one, "metavar": "N"}
    add("texts", nargs="*", metavar="FILE", help="files or folders")
    add("--minutes", type=number_in(0.001, 1e6), default=5.0, help="of training (%(default)s)")
    add("--steps", help="how many, in place of --minutes: they are the same on each run", **whole)
    add("--short", action="store_true", help="a trial of 20 steps of a tiny model")
    add("--size", choices=SIZES, default="small", help="(%(default)s)")
    for name in NAMES[:-1]:
        add(f"--{name}", type=size, metavar="N", help="that of --size, if it is not given")
    add("--lr", type=number_in(0, 10), help="highest learning rate")
    add("--kind", choices=KINDS, help=f"({KINDS[0]})")
    add("--dropout", type=number_in(0, 0.99), default=0.0, metavar="P", help="(%(default)s)")
    add("--accumulate", default=1, help="parts of a batch, which need less memory", **whole)
    add("--weight-decay", type=number_in(0, 10), default=0.1, help="(%(default)s)")
    add("--patience", default=5, help="measurements without a lower loss (%(default)s)", **whole)
    add("--tokens", choices=("characters", "bpe"), help="what the text is cut into")
    pieces = number_in(257, 10**6, int)  # because byte-level BPE begins with the 256 bytes
    add("--words", type=pieces, default=1024, metavar="N", help="tokens of bpe (%(default)s)")
    add(
        "--from", dest="start", type=os.path.abspath, metavar="FOLDER", help="go on with this model"
    )
    add("--lora", type=size, metavar="N", help="train a LoRA of this rank alone")
    add("--seed", type=int, default=0, help="(%(default)s)")
    add("--out", type=Path, default=Path("runs/language_model"), help="(%(default)s)")
    again = parser.add_mutually_exclusive_group()
    again.add_argument("--resume", action="store_true", help="go on with the run in --out")
    text = "begin anew where --out has a run already"
    again.add_argument("--overwrite", action="store_true", help=text)
    add("--sample", metavar="TEXT", help="let the model in --out go on with a text; train nothing")
    add("--temperature", type=number_in(0, 100), default=0.8, help="(%(default)s)")
    add("--top-p", type=number_in(0.001, 1), help="draw from the likeliest tokens")
    add("--length", default=500, help="tokens of a sample (%(default)s)", **whole)
    return parser


# The parts of a run


def apart(parts: data.Parts, function: Any, *given: Any) -> Any:
    """What a function returns. That of a large text has its own process, because the memory of a
    process is given back as a whole when it ends."""
    if parts.size < data.FEW:
        return function(*given)
    sys.stdout.flush()  # so that what was printed before stands before what the other prints
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(function, *given).result()


def write_ids(args: argparse.Namespace, parts: data.Parts, tokenizer: Any) -> None:
    """Write the tokens, and the ids of the text. tokenizer: that of --from, or None."""
    folder = folder_of_ids(args)
    folder.mkdir(parents=True, exist_ok=True)  # now, and not after the pieces have been chosen
    tokenizer = tokenizer_of(args, parts) if tokenizer is None else tokenizer
    write_atomically(folder / "tokenizer.json", [tokenizer.to_str().encode()])
    read_text(folder, parts, 0)


def tokenizer_of(args: argparse.Namespace, parts: data.Parts) -> Any:
    if args.resume:
        return read_tokenizer_json((args.out / "tokenizer.json").read_bytes())
    kind = args.tokens or ("characters" if parts.size < data.FEW else "bpe")
    characters = data.characters_of(parts) if kind == "characters" else None
    if characters is not None:
        print(f"its tokens are {len(characters):,} kinds of characters")
        return data.character_tokenizer(characters)
    tokenizer = data.bpe_tokenizer(data.sample(parts.training, 8_000_000), args.words)
    print(f"its tokens are {tokenizer.get_vocab_size():,} pieces of bytes, by byte-level BPE")
    return tokenizer


def new_model(args: argparse.Namespace, words: int) -> CausalLM:
    """A model with random parameters.

    The SwiGLU of Llama has three matrices, and GELU two. Its inner width is two thirds of that of
    GELU, so that both have equally many parameters. A narrow Llama learns more from larger starting
    values: of width 128 the loss on 1.1 MB of Shakespeare is 1.63 after 2,000 steps, and 1.66 with
    a standard deviation of 0.02.
    """
    inner = 4 * args.width if args.kind == "gpt2" else -(-8 * args.width // 3 // 8) * 8
    drops = dict.fromkeys(("attention_dropout", "resid_pdrop", "embd_pdrop"), args.dropout)
    std = 0.02 if args.kind == "gpt2" else round(0.45 / args.width**0.5, 4)
    return CausalLM(drops | {
        "initializer_range": std, "model_type": args.kind, "vocab_size": words,
        "hidden_size": args.width,
        "num_hidden_layers": args.layers, "num_attention_heads": args.heads,
        "intermediate_size": inner, "max_position_embeddings": args.context,
        "tie_word_embeddings": True,
    })  # fmt: skip


def model_and_text(
    args: argparse.Namespace, parts: data.Parts
) -> tuple[CausalLM, data.Encoded, data.Encoded]:
    """The model before its first step, the ids to learn from, and those held out.

    Rank 0 writes the files of ids, and all ranks read them.
    """
    folder, model, tokenizer = folder_of_ids(args), None, None
    if args.start is not None:
        model = CausalLM.from_pretrained(args.start).train()
        tokenizer = model.tokenizer
        data.check_tokens(tokenizer, parts)
    is_new = get_rank() == 0 and not folder.exists()
    failure: Exception | None = None
    try:
        if get_rank() == 0:
            try:
                apart(parts, write_ids, args, parts, tokenizer)
            except (OSError, ValueError) as error:
                failure = error
        if all_reduce(int(failure is not None)):  # the others wait for the files, or end too
            raise failure or SystemExit(2)
        training, held_out = read_text(folder, parts, get_rank())
        all_reduce(0)  # all have them, before the first may take them away
        for name, part in {"text": training, "held-out part": held_out}.items():
            if len(part.ids) <= args.context:
                raise ValueError(
                    f"the {name} is too short: it has {len(part.ids):,} tokens, and a window has "
                    f"{args.context + 1}; give more text, or a smaller --context"
                )
    except ValueError:
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):  # folders that are not empty stay
                folder.parent.rmdir()
                args.out.rmdir()
        raise
    if model is None:
        tokenizer = read_tokenizer_json((folder / "tokenizer.json").read_bytes())
        model = new_model(args, tokenizer.get_vocab_size())
        model.tokenizer = tokenizer
    if args.lora:
        nn.LoRA.insert(model, ADAPTED, args.lora)
    if model.chat_template is None:  # so that chat.py goes on with what one writes
        model.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    return model, training, held_out


def folder_of_ids(args: argparse.Namespace) -> Path:
    """Each text with its tokens has its own, so a run that is refused changes no other run."""
    made_of = repr((args.digest, args.tokens, args.words, args.start)).encode()
    return args.out / "ids" / hashlib.sha256(made_of).hexdigest()[:12]


def read_text(folder: Path, parts: data.Parts, rank: int) -> list[data.Encoded]:
    """The rank is given, because a process of `apart` is no rank: to ask MPI would end it."""
    encoder = data.Encoder(read_tokenizer_json((folder / "tokenizer.json").read_bytes()))
    found = []
    for name, spans in parts._asdict().items():
        with tqdm(
            total=sum(end - begin for _, begin, end in spans), unit="B", unit_scale=True,
            desc=f"reading, {name.replace('_', ' ')}", leave=False, disable=rank > 0 or None,
        ) as bar:  # fmt: skip
            found.append(data.encoded(spans, encoder, folder / f"{name}.bin", bar.update))
    return found


def loss_of(model: CausalLM, ids: np.ndarray, targets: np.ndarray) -> ta.Tensor:
    scores = model(ids)
    return F.cross_entropy(scores.reshape(-1, scores.shape[-1]), targets.reshape(-1))


@ta.no_grad()
def held_out_loss(model: CausalLM, ids: np.ndarray, length: int, most: int) -> float:
    """In nats a token, of windows that follow each other; of many only about `most` ids."""
    windows, starts = Windows(ids, length, 1), np.arange(0, len(ids) - length, length)
    starts = starts[:: max(1, len(starts) * length // most)]
    batch = max(1, min(16, MOST_SCORES // (length * model.config["vocab_size"])))
    batches = np.array_split(starts, -(-len(starts) // batch))
    was_training = model.training
    model.eval()
    losses = [loss_of(model, *windows.at(some)).item() for some in batches]
    model.train(was_training)
    return float(np.average(losses, weights=[len(some) for some in batches]))


def rate_at(args: argparse.Namespace, step: int, progress: float) -> float:
    """It rises in the first hundred steps, and falls as a cosine to a tenth."""
    warmup = 100 if args.steps is None else max(1, min(100, args.steps // 10))
    fall = 0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, progress)))
    return float(args.lr * fall * min(1.0, (step + 1) / warmup))


def memory() -> str:
    try:
        import resource
    except ModuleNotFoundError:  # on Windows
        return ""
    unit = 1 if sys.platform == "darwin" else 1024
    return f", {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6:.0f} MB"


class Trainer(TrainingLoop):
    """The training of a model on the ids of a text."""

    def __init__(
        self, args: argparse.Namespace, model: CausalLM, training: data.Encoded,
        held_out: data.Encoded,
    ) -> None:  # fmt: skip
        self.args, self.model, self.text = args, model, held_out
        self.windows = Windows(training.ids, args.context, args.batch, args.seed)
        groups = optim.decay_groups(model.parameters(), args.weight_decay)
        self.optimizer = optim.AdamW(groups, args.lr, (0.9, 0.99))
        self.parallel = DistributedDataParallel(model)
        parts = {"model": model, "optimizer": self.optimizer}
        texts = [os.path.abspath(name) for name in args.texts]  # so that it goes on anywhere
        settings = settings_of(args) | {"texts": texts}
        super().__init__(checkpoint_of(args.out), parts, settings, patience=args.patience)

    def best_model(self) -> CausalLM:
        """The model at its lowest held-out loss, without LoRA."""
        model = copy.deepcopy(self.model)
        if self.best is not None:
            model.load_state_dict(self.best)
        nn.LoRA.merge_all(model)
        return model.eval()

    @property
    def progress(self) -> float:
        """What is done, from 0 to 1."""
        if self.args.steps is not None:
            return len(self.losses) / self.args.steps
        return self.elapsed / (60 * self.args.minutes)

    @property
    def since_measured(self) -> float:
        """What is done since the last held-out loss, as a part of the whole."""
        new = len(self.losses) - self.held_out[-1][0]
        steps = self.args.steps
        return float(new / steps if steps else self.progress * new / len(self.losses))

    def run(self) -> None:
        args = self.args
        end = math.inf if args.steps else 60 * args.minutes
        if not self.held_out:
            self.measure()
        for step in self.steps(args.steps or sys.maxsize, end):
            self.learn(step)
            if self.since_measured >= 1 / (2 if args.short else MEASURED):
                self.measure()
        if not self.is_stopped and self.held_out[-1][0] < len(self.losses):
            self.measure()
            self.save()

    def learn(self, step: int) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate_at(self.args, step, self.progress)
        rows = [np.array_split(part_of(x), self.args.accumulate) for x in self.windows[step]]
        parts = list(zip(*rows, strict=True))
        self.optimizer.zero_grad()
        loss = self.parallel.accumulate(
            (partial(loss_of, self.model, *part) for part in parts),
            [targets.size for _, targets in parts],
        )
        optim.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.record(loss)

    def measure(self) -> None:
        """Measure the held-out loss, save the model if it is the best, and print how it goes."""
        args, done = self.args, len(self.losses)
        loss = held_out_loss(self.model, self.text.ids, args.context, MEASURED_IDS)
        self.measured(loss)
        if get_rank():
            return
        if not done:  # the run that was in the folder ends here as a whole
            refuse_lost_run(args)  # again, because another program may have begun meanwhile
            self.path.unlink(missing_ok=True)
            for old in {*(args.out / "ids").iterdir()} - {folder_of_ids(args)}:
                shutil.rmtree(old, ignore_errors=True)
        if not self.since_best:
            self.best_model().save_pretrained(args.out)
        if not done:
            self.save()  # so that a model has a checkpoint from the beginning
            Run.saved = self.path
            print(f"before the first step the held-out loss is {loss:.3f}, of a uniform guess "
                  f"{math.log(self.model.config['vocab_size']):.3f} nats a token")  # fmt: skip
            return
        best = "" if self.since_best else ", the best"
        speed = left = ""
        if self.elapsed and self.progress:  # the time is not known before the second step
            tokens = done * args.batch * args.context / self.elapsed
            minutes = max(self.elapsed * (1 / self.progress - 1), 0) / 60
            speed, left = f"; {tokens:,.0f} tokens a second", f", {minutes:.1f} minutes left"
        print(f"step {done:,}: loss {np.mean(self.losses[-50:]):.3f}, held out {loss:.3f}, "
              f"{bits_a_byte(loss, self.text):.3f} bits a byte{speed}{memory()}{left}{best}",
              flush=True)  # fmt: skip
        if len(self.held_out) % 5 == 0:
            print(indented("".join(sampled(self.model, "\n", args, 100))), flush=True)


def bits_a_byte(loss: float, text: data.Encoded) -> float:
    """What nats a token are for a text: comparable, whatever its tokens are."""
    return loss * len(text.ids) / text.bytes / math.log(2)


def indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.strip("\n").splitlines())


# What the model writes


def sampled(model: CausalLM, prompt: str, args: argparse.Namespace, length: int) -> Iterator[str]:
    """The continuation of a text, in pieces; the training's random numbers stay as they are."""
    ids = model.tokenizer.encode(prompt).ids or [0]
    state, was_training = ta.get_rng_state(), model.training
    ta.manual_seed(args.seed)
    choice = {"temperature": args.temperature, "top_p": args.top_p if args.temperature else None}
    scores = model.eval().next_scores()
    try:
        yield from model.pieces(ids, len(ids) + length, scores, (), choice)
    finally:
        ta.set_rng_state(state)
        model.train(was_training)


def write(args: argparse.Namespace) -> None:
    """Go on with a text."""
    checked_text("the text", args.sample)
    model = CausalLM.from_pretrained(args.out)
    checkpoint, weights = checkpoint_of(args.out), args.out / "model.safetensors"
    # A model that is newer than the checkpoint was written by a measurement after it.
    if checkpoint.exists() and checkpoint.stat().st_mtime >= weights.stat().st_mtime:
        state = ta.load(checkpoint)
        step, _ = min(state["held_out"].tolist(), key=lambda pair: pair[1], default=(1, 0))
        if not step and state["settings"].get("start") is None:
            print("this model has learned nothing yet: its training was stopped before a lower "
                  "held-out loss was measured, it writes by chance", file=sys.stderr)  # fmt: skip
    text = data.readable(model.tokenizer, args.sample)
    print(text, end="", flush=True)
    for piece in sampled(model, text, args, args.length):
        print(piece, end="", flush=True)
    print()


def functions(model: CausalLM, args: argparse.Namespace, held_out: np.ndarray) -> None:
    """Print how many functions that the model writes are Python, and how many of real ones, which
    are cut to the same length."""
    begin = model.tokenizer.encode("\ndef").ids
    length, together = min(args.context, 200), 8 if args.short else 25
    number = together if args.short else FUNCTIONS
    ta.manual_seed(args.seed)
    written = [
        row
        for _ in range(number // together)  # because the keys of all at once take much memory
        for row in generate(
            model.next_scores(), [begin] * together, length, pad=-1, temperature=0.5
        ).numpy()
    ]
    held_out = np.asarray(held_out)
    starts = [
        i for i in np.flatnonzero(held_out[: 1 - len(begin)] == begin[0])
        if held_out[i : i + len(begin)].tolist() == begin
    ]  # fmt: skip
    real = [held_out[i : i + length] for i in starts[:: max(1, len(starts) // number)]][:number]
    for name, rows in {"it writes": written, "of real ones, cut alike,": real}.items():
        texts = [model.tokenizer.decode(row.tolist()) for row in rows]
        right = sum(map(is_python, texts))
        print(f"of {len(texts)} functions {name} Python's parser takes {right}")


def is_python(text: str) -> bool:
    """Whether a text up to the next function or class, or to its last whole line, is Python."""
    first, *lines = text.strip("\n").splitlines() or [""]
    ends = [i for i, line in enumerate(lines) if line and line[0] not in " \t)]}#"]
    try:
        ast.parse("\n".join([first, *lines[: ends[0] if ends else -1]]))
    except (SyntaxError, ValueError):
        return False
    return True


# The program


Row = tuple[str, float | None, float]  # a name, nats a token, bits a byte


def rivals(
    texts: list[tuple[str, str, int]], words: int, most: int, parts: data.Parts
) -> list[Row]:
    """What a loss is compared with. texts: a file of ids, their dtype, and the bytes of the text,
    for the training and for what is held out."""
    training, held_out = (data.Encoded(np.memmap(x, dtype, "r"), n) for x, dtype, n in texts)
    parts_of_both = data.spread(training.ids, most), data.spread(held_out.ids, most // 4)
    counted = data.n_grams(*parts_of_both, words)
    losses = {"uniform": math.log(words)} | {f"{i}-grams": x for i, x in enumerate(counted, 1)}
    rows = [(name, loss, bits_a_byte(loss, held_out)) for name, loss in losses.items()]
    return [*rows, *((name, None, bits) for name, bits in data.compressed(parts).items())]


def ladder(
    args: argparse.Namespace, words: int, texts: Sequence[data.Encoded], parts: data.Parts
) -> list[Row]:
    files = [(str(x.ids.filename), x.ids.dtype.str, x.bytes) for x in texts]
    most = COUNTED // 100 if args.short else COUNTED
    return apart(parts, rivals, files, words, most, parts)


def report(args: argparse.Namespace, trainer: Trainer, rows: list[Row]) -> None:
    """The loss of the best model beside those of simpler ones, a picture, and what it writes."""
    model, held_out = trainer.best_model(), trainer.text
    most = MEASURED_IDS if args.short else FINAL_IDS
    loss = held_out_loss(model, held_out.ids, args.context, most)
    print(f"\n{'on the held-out text':<40}{'nats a token':>13}{'bits a byte':>13}")
    for name, nats, bits in [*rows, ("this model", loss, bits_a_byte(loss, held_out))]:
        print(f"{name:<40}{'' if nats is None else f'{nats:.3f}':>13}{bits:>13.3f}")
    steps, losses = np.transpose(trainer.held_out)
    if not steps[losses.argmin()]:
        print("warning: no step made the held-out loss lower, so this is the model from before the "
              "first step; is the held-out text of another kind?")  # fmt: skip
    curves = {"training": trainer.losses, "held out": (steps[1:], losses[1:])}
    figure = viz.plot_curves(curves, ylabel="Nats a token", smooth=50)
    programs.save_picture(figure, args.out / "loss.png")
    print("\nit writes:\n" + indented("".join(sampled(model, "\n", args, args.length))))
    if not args.texts:
        functions(model, args, held_out.ids)
    # Of the text itself, because a model of characters knows no others.
    begin = model.tokenizer.decode(trainer.windows.ids[:100].tolist()).strip().partition("\n")[0]
    asked = [sys.argv[0], "--out", str(args.out), "--sample", begin[:20] or "a text"]
    print(f"\nthe best model and loss.png are in {args.out}; let it write:\n"
          f"  python {programs.command(asked)}")  # fmt: skip


def checked_options(parser: argparse.ArgumentParser) -> tuple[argparse.Namespace, Any]:
    """The options, and the checkpoint of a run that goes on."""
    args, state = parser.parse_intermixed_args(), None  # files may stand before and after options
    if args.sample is not None:
        read = ["sample", "out", "temperature", "top_p", "length", "seed"]
        given = [x for x in vars(args) if getattr(args, x) not in (parser.get_default(x), [])]
        if ignored := [x for x in given if x not in read]:
            name = {"texts": "the files", "start": "--from"}.get(ignored[0], f"--{ignored[0]}")
            raise ValueError(f"--sample trains nothing: leave out {name.replace('_', '-')}")
        return args, None
    if args.resume:
        args, state = resumed(parser, args.out, CHANGEABLE)
    else:
        refuse_lost_run(args)
        for name in ("config.json", "model.safetensors", "tokenizer.json"):
            found = f"a model already, because {name} is there"
            programs.refuse_lost(args.out / name, args.overwrite, found)
    if args.start is None and args.lora:
        raise ValueError("--lora corrects a model that is there: name its folder with --from")
    if args.start is not None and state is None:
        given = [x for x in OF_THE_MODEL if getattr(args, x) != parser.get_default(x)]
        if given:
            raise ValueError(f"--from says what the model is: leave out --{given[0]}")
    args.kind = args.kind or KINDS[0]
    sizes = SIZES["tiny" if args.short else args.size]
    if args.short and state is None:
        args.steps = args.steps or 20
    # Of a run of steps the minutes are None, so that --minutes takes their place when it goes on.
    old = state["settings"] if state else {}
    if old and args.minutes != old.get("minutes") and args.steps == old.get("steps"):
        args.steps = None
    if args.steps:
        args.minutes = None
    for name, value in zip(NAMES, sizes, strict=True):
        if getattr(args, name) is None:
            setattr(args, name, value)
    if args.start is not None:
        config = read_json(Path(args.start, "config.json"))
        most = config.get("max_position_embeddings", config.get("n_positions", args.context))
        args.context = min(args.context, most)
    else:  # sizes that do not fit are refused before a text is read
        new_model(argparse.Namespace(**vars(args) | {"context": 1}), 1)
    check_batch(args.batch)
    return args, state


def train(args: argparse.Namespace, state: dict[str, Any] | None) -> None:
    programs.need_pictures()
    names = [Path(name) for name in args.texts]
    files, others, reasons = data.files_of(names, args.out) if names else ([], 0, list[str]())
    if not names:
        files = data.standard_library()[: 60 if args.short else None]
    files, digest, copies = data.distinct(files)
    parts = data.divided(files)
    borders = [[span[1:] for span in part] for part in parts]  # an older program had others
    digest = hashlib.sha256(repr((digest, borders)).encode()).hexdigest()
    if getattr(args, "digest", digest) != digest:
        raise ValueError("the text is not the one that this run has learned from, or an older "
                         "version of this program held out other parts: bring that text back, "
                         "or begin anew, with --from for the model of this run")  # fmt: skip
    args.digest = digest
    size = sum(path.stat().st_size for path in files)
    if not size:
        raise ValueError(": ".join(["there is no text in " + ", ".join(map(str, names)), *reasons]))
    print(f"{len(files):,} {'file' if len(files) == 1 else 'files'} of text, {size:,} bytes"
          + f"; {others:,} files and folders are left out: no texts, links to folders, or not "
            "readable" * bool(others))  # fmt: skip
    for reason in reasons:
        print(f"  {reason}")
    if copies:
        more = f", and so on of {len(copies):,} copies" if len(copies) > 1 else ""
        print("{} has the contents of {}, so it is left out{}".format(*copies[0], more))
    ta.manual_seed(args.seed)
    model, training, held_out = model_and_text(args, parts)
    words = model.config["vocab_size"]
    rows = [] if get_rank() else ladder(args, words, (training, held_out), parts)
    trainer = Trainer(args, model, training, held_out)
    go_on(trainer, state, args.seed)
    if trainer.progress >= 1:
        print("this run has done all that it was asked for: it goes on with more "
              + ("--steps" if args.steps else "--minutes"))  # fmt: skip
    learned = sum(p.numel() for p in model.parameters() if p.requires_grad)
    print(f"{len(training.ids):,} tokens to learn from, {len(held_out.ids):,} held out; a "
          f"{model.config['model_type']} model, which learns {learned:,} numbers")  # fmt: skip
    try:
        trainer.run()
    except OSError as error:  # such as a full disk
        if error.strerror and (args.out / "model.safetensors").exists():
            error.strerror += f"; the best model until now is in {args.out}"
        raise
    Run.saved = trainer.path
    if trainer.is_stopped:
        print(f"stopped after {len(trainer.losses):,} steps; {how_to_go_on()}")
        sys.exit(130)
    if trainer.since_best >= args.patience and trainer.progress < 1:
        print(f"stopped: {args.patience} times no lower held-out loss")
    if get_rank() == 0:
        report(args, trainer, rows)


@complaints()
def main() -> None:
    began = time.perf_counter()
    args, state = checked_options(options())
    if args.sample is not None:
        write(args)
        return
    train(args, state)
    print(f"{time.perf_counter() - began:.0f} seconds{memory()}")


if __name__ == "__main__":
    run_program(main)
