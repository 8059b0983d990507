"""What the training examples share around their loops: options, checkpoints, Ctrl-C, ranks.

`mpiexec -n 2 python examples/train_encoder.py` trains in two processes, called ranks. Each computes
a part of every batch. Rank 0 alone prints, draws and saves.
"""

from __future__ import annotations

import argparse
import io
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import programs
from programs import at_least_one, complaints, size

import tinyattn as ta
from tinyattn import nn, optim, viz
from tinyattn.training import TrainingLoop
from tinyattn.training.distributed import all_reduce, get_rank, get_world_size

with programs.needs("tqdm"):
    from tqdm import tqdm

# Options that say how a program runs. All others make the run what it is: they are kept in its
# checkpoint, and cannot change when it is resumed.
FREE = ("out", "resume", "overwrite", "device", "predict")
RECENT = 50  # steps whose mean the progress bar shows
VALIDATIONS = 25  # how often in a run the held-out loss is measured


def argument_parser(
    description: str | None, short: int, **defaults: Any
) -> argparse.ArgumentParser:
    """The options of a training example; `short` is how many steps a trial has."""
    parser = argparse.ArgumentParser(
        usage="%(prog)s [options]",
        description=description,
        epilog="The progress bar shows the mean loss and accuracy of the last 50 steps.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # because the command to go on leaves options out by their names
    )

    def add(group: Any, name: str, text: str, **options: Any) -> None:
        default = "" if "action" in options else " (default: %(default)s)"
        group.add_argument(name, help=text + default, **options)

    training = parser.add_argument_group("training")
    length = training.add_mutually_exclusive_group()
    add(length, "--steps", "batches to learn from", type=at_least_one, metavar="N")
    trial = f"a trial, the same as --steps {short}"
    add(length, "--short", trial, action="store_const", dest="steps", const=short)
    add(training, "--batch-size", "examples in a batch", type=size, metavar="B")
    add(training, "--lr", "highest learning rate", type=float)
    add(training, "--dropout", "its probability", type=float, metavar="P")
    add(training, "--seed", "of everything random", type=int)
    encoder = parser.add_argument_group("encoder")
    add(encoder, "--d-model", "width", type=size, metavar="D")
    add(encoder, "--heads", "attention heads in a layer", type=size, metavar="H")
    add(encoder, "--layers", "encoder layers", type=size, metavar="N")
    add(encoder, "--no-positions", "do not tell it what stands where", action="store_true")
    run = parser.add_argument_group("run")
    add(run, "--out", "folder for its files", type=Path)
    again = run.add_mutually_exclusive_group()
    add(again, "--resume", "go on with the run in --out", action="store_true")
    add(again, "--overwrite", "begin anew where --out has a run already", action="store_true")
    add(run, "--device", "where to compute", choices=["cpu", "cuda"], default="cpu")
    parser.set_defaults(seed=0, **defaults)
    return parser


class Run(TrainingLoop):
    """A model in training: all that changes from step to step, and the files it leaves in a folder.

    losses: one number for each step done. held_out: (step, loss) pairs.
    """

    saved: ClassVar[Path | None] = None  # the checkpoint that this program wrote last

    def __init__(self, model: nn.Module, args: argparse.Namespace) -> None:
        programs.need_pictures()
        self.args = args
        self.model: Any = model.to(args.device)  # of any class
        self.parallel = ta.distributed.DistributedDataParallel(self.model)
        self.optimizer = optim.AdamW(model.parameters(), args.lr, (0.9, 0.98), weight_decay=0.1)
        warmup = min(100, args.steps // 10)
        self.schedule = optim.CosineSchedule(self.optimizer, args.steps, warmup)
        self.accuracies: deque[float] = deque(maxlen=RECENT)  # a step alone says little
        self.curve = "training"  # the name of these losses in the picture
        self.bar: tqdm | None = None
        self.began = time.perf_counter()
        parts = {name: getattr(self, name) for name in ("model", "optimizer", "schedule")}
        super().__init__(checkpoint_of(args.out), parts, settings_of(args))

    def save(self) -> None:
        super().save()
        Run.saved = None if get_rank() else self.path

    def train(
        self,
        batches: Iterable[Any],
        loss_of: Callable[[Any], tuple[ta.Tensor, float, int]],
        held_out: Callable[[], ta.Tensor],
    ) -> None:
        """Learn from the batches not learned from yet, with a progress bar, and leave the files.

        Each rank gets its part of a batch. The program of all ranks but 0 ends with the training.

        loss_of: of a batch the loss, the accuracy, and of how many samples or tokens they are the
        means. held_out: the loss on data that nothing is learned from; measured now and then, for
        the picture alone. Ctrl-C ends the training early, never in the middle of a step, and says
        how to go on.
        """
        total = self.args.steps
        if get_rank() == 0 < get_world_size() - 1:
            print(f"{get_world_size()} ranks train, each on its part of a batch")
        self.model.train()
        new = islice(batches, len(self.losses), None)
        with ExitStack() as stack:
            for step in self.steps(total):
                self.learn(*loss_of(part_of(next(new))))
                if self.bar is None:
                    # After the first step, because that may compile kernels: with its seconds the
                    # bar would promise hours.
                    self.bar = stack.enter_context(
                        tqdm(total=total, initial=step + 1, unit="step", disable=get_rank() > 0)
                    )
                else:
                    self.bar.update()
                self.measure(held_out)
        if get_rank() == 0:
            measured = np.array(self.held_out).reshape(-1, 2)
            curves = {self.curve: self.losses, "held out": (measured[:, 0], measured[:, 1])}
            figure = viz.plot_curves(curves, ylabel="Cross-entropy", smooth=50)
            programs.save_picture(figure, self.args.out / "loss.png")
        if len(self.losses) < total:
            advice = f"; {how_to_go_on()}" if "resume" in self.args else ""
            print(f"stopped after {len(self.losses)} of {total} steps{advice}")
            sys.exit(130)
        if get_rank():
            sys.exit()

    def learn(self, loss: ta.Tensor, accuracy: float, number: int) -> None:
        """One step. loss: the mean of `number` samples or tokens on this rank."""
        self.optimizer.zero_grad()
        self.parallel.backward(loss, number)
        optim.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.note(loss, accuracy, number)

    def measure(self, held_out: Callable[[], ta.Tensor]) -> None:
        """The held-out loss, in the first step, in the last, and so often between."""
        step, total = len(self.losses), self.args.steps
        if get_rank() or (step not in (1, total) and step % -(-total // VALIDATIONS)):
            return
        self.model.eval()
        with ta.no_grad():
            self.held_out.append([float(step), held_out().item()])
        self.model.train()

    def note(self, loss: ta.Tensor, accuracy: float, number: int) -> None:
        """Note the loss of a step; now and then, show how it goes."""
        share = number / all_reduce(number)
        mean, accuracy = all_reduce(np.array([loss.item(), accuracy]) * share).tolist()
        self.record(mean)
        self.accuracies.append(accuracy)
        if self.bar is not None and len(self.losses) % 10 == 0:
            recent, right = np.mean(self.losses[-RECENT:]), np.mean(self.accuracies)
            self.bar.set_postfix_str(f"loss {recent:.3f}, accuracy {right:.1%}", refresh=False)

    def introduce(self, learned: int, held_out: int, things: str) -> None:
        size = sum(p.numel() for p in self.model.parameters())
        print(f"{size:,} parameters, {self.args.steps} steps of {self.args.batch_size}; "
              f"{learned:,} {things} to learn from, {held_out:,} held out")  # fmt: skip

    def end(self, pictures: str) -> None:
        print(f"\n{time.perf_counter() - self.began:.0f} seconds; {pictures} and the trained model "
              f"are in {self.args.out}")  # fmt: skip


def part_of(batch: Any) -> Any:
    """The rows of a batch, an array or a tuple of arrays, that this rank computes."""
    if isinstance(batch, tuple):
        return tuple(map(part_of, batch))
    return batch[get_rank() :: get_world_size()]


@complaints()
def start(parser: argparse.ArgumentParser, build: Callable[[argparse.Namespace], nn.Module]) -> Run:
    """A fresh run as the command line asks for, or the one it wants to go on with."""
    for name, value in vars(parser.parse_args()).items():
        if name.startswith("no_") and value:  # a folder of its own; a given --out still wins
            usual: Path = parser.get_default("out")
            parser.set_defaults(out=usual.with_name(f"{usual.name}-{name.replace('_', '-')}"))
    args, state = parser.parse_args(), None
    is_asked = getattr(args, "predict", None)
    if args.resume or is_asked:
        args, state = resumed(parser, args.out)
    else:
        refuse_lost_run(args)
    check_batch(args.batch_size)
    ta.manual_seed(args.seed)
    run = Run(build(args), args)
    args.out.mkdir(parents=True, exist_ok=True)
    go_on(run, state, args.seed)
    if is_asked and get_rank():
        sys.exit()
    return run


def check_batch(size: int) -> None:
    if size < get_world_size():
        raise ValueError(f"a batch of {size} is too small for {get_world_size()} ranks")


def go_on(loop: TrainingLoop, state: dict[str, Any] | None, seed: int) -> None:
    """From a checkpoint if there is one. Dropout then differs between ranks."""
    if state is not None:
        loop.restore(state)
    if get_rank():
        ta.manual_seed(seed + (get_rank() << 32) + len(loop.losses))


def checkpoint_of(folder: Path) -> Path:
    return folder / "checkpoint.safetensors"


def settings_of(args: argparse.Namespace) -> dict[str, Any]:
    """What makes the run what it is."""
    return {name: value for name, value in vars(args).items() if name not in FREE}


def resumed(
    parser: argparse.ArgumentParser, out: Path, changeable: Sequence[str] = ()
) -> tuple[argparse.Namespace, dict[str, Any]]:
    """The options of the run in `out`, and its checkpoint. An option that was given still wins.

    changeable: which of them may be others than they were.
    """
    path = checkpoint_of(out)
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there yet: train first")
    with programs.reading(path):
        state = ta.load(path)
    known = {*vars(parser.parse_intermixed_args([])), "digest"}  # which says what text it was
    if not {*state.get("settings", [None])} <= known:
        raise ValueError(f"{path} was not made by this program")
    parser.set_defaults(**state["settings"])
    args = parser.parse_intermixed_args()
    for name, value in state["settings"].items():
        if name not in changeable and getattr(args, name, value) != value:
            raise ValueError(
                f"the run in {args.out} has {name}={value}, which cannot become "
                f"{getattr(args, name)} on the way: leave that option out, or begin anew "
                "with --overwrite or in another folder (--out)"
            )
    return args, state


def refuse_lost_run(args: argparse.Namespace) -> None:
    """A run that is there would be lost if another began in its folder."""
    path = checkpoint_of(args.out)
    if args.overwrite or not path.exists():
        return
    with programs.reading(path):
        state = ta.load(path)
    done, total = len(state.get("losses", ())), state.get("settings", {}).get("steps")
    whole = f" of {total}" if total else ""  # of a run of minutes it is not known
    going_on = "" if done == total else "--resume goes on with it, "
    raise ValueError(
        f"{args.out} has a run of {done}{whole} steps: {going_on}--overwrite begins anew, "
        "--out names another folder"
    )


def how_to_go_on() -> str:
    arguments = [arg for arg in sys.argv if arg not in ("--resume", "--overwrite")]
    ranks = get_world_size()
    program = f"mpiexec -n {ranks} python" if ranks > 1 else "python"
    return f"go on from there with:\n  {program} {programs.command([*arguments, '--resume'])}"


def what_is_kept() -> str:
    if Run.saved is None and "--resume" in sys.argv:
        return f"stopped before a new step; the run is as it was; {how_to_go_on()}"
    if Run.saved is None:
        return "stopped before the first step; no model was saved"
    return f"stopped; what was learned is in {Run.saved}; {how_to_go_on()}"


def run_program(main: Callable[[], None], stopped: Callable[[], str] = what_is_kept) -> None:
    """`main`, of which rank 0 alone prints. Ctrl-C outside of a training says what is kept."""
    if get_rank():
        sys.stdout = io.StringIO()
    programs.run(main, stopped)
