"""What the training examples share around their loops: options, checkpoints, Ctrl-C, ranks.

`mpiexec -n 2 python examples/train_encoder.py` trains in two processes, called ranks. Each computes
a part of every batch. Rank 0 alone prints, draws and saves.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
import printing

import tinyattn as ta
from tinyattn import nn, optim, viz
from tinyattn.training import TrainingLoop
from tinyattn.training.distributed import (
    DistributedDataParallel,
    all_reduce,
    get_rank,
    get_world_size,
)

try:
    from tqdm import tqdm
except ModuleNotFoundError:
    sys.exit('tqdm is missing: pip install -e ".[examples]"')

# Options that say how a program runs. All others make the run what it is: they are kept in its
# checkpoint, and cannot change when it is resumed.
FREE = ("out", "resume", "overwrite", "device", "predict")
RECENT = 50  # steps whose mean the progress bar shows
VALIDATIONS = 25  # how often in a run the held-out loss is measured


def at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number, 1 or more, got {text}")
    return int(text)


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

    def add(name: str, text: str, **options: Any) -> None:
        default = "" if "action" in options else " (default: %(default)s)"
        group.add_argument(name, help=text + default, **options)

    group = parser.add_argument_group("training")
    training = group
    group = training.add_mutually_exclusive_group()
    add("--steps", "batches to learn from", type=at_least_one, metavar="N")
    trial = {"action": "store_const", "dest": "steps", "const": short}
    add("--short", f"a trial, the same as --steps {short}", **trial)
    group = training
    add("--batch-size", "examples in a batch", type=at_least_one, metavar="B")
    add("--lr", "highest learning rate", type=float)
    add("--dropout", "its probability", type=float, metavar="P")
    add("--seed", "of everything random", type=int)
    group = parser.add_argument_group("encoder")
    add("--d-model", "width", type=at_least_one, metavar="D")
    add("--heads", "attention heads in a layer", type=at_least_one, metavar="H")
    add("--layers", "encoder layers", type=at_least_one, metavar="N")
    add("--no-positions", "do not tell it what stands where", action="store_true")
    group = run = parser.add_argument_group("run")
    add("--out", "folder for its files", type=Path)
    group = run.add_mutually_exclusive_group()
    add("--resume", "go on with the run in --out", action="store_true")
    add("--overwrite", "begin anew where --out has a run already", action="store_true")
    group = run
    add("--device", "where to compute", choices=["cpu", "cuda"], default="cpu")
    parser.set_defaults(seed=0, **defaults)
    return parser


class Run(TrainingLoop):
    """A model in training: all that changes from step to step, and the files it leaves in a folder.

    losses: one number for each step done. held_out: (step, loss) pairs.
    """

    saved: ClassVar[Path | None] = None  # the checkpoint that this program wrote last

    def __init__(self, model: nn.Module, args: argparse.Namespace) -> None:
        self.args = args
        self.model: Any = model.to(args.device)  # of any class
        self.parallel = DistributedDataParallel(self.model)
        self.optimizer = optim.AdamW(model.parameters(), args.lr, (0.9, 0.98), weight_decay=0.1)
        warmup = min(100, args.steps // 10)
        self.schedule = optim.CosineSchedule(self.optimizer, args.steps, warmup)
        self.accuracies: deque[float] = deque(maxlen=RECENT)  # a step alone says little
        self.curve = "training"  # the name of these losses in the picture
        self.bar: tqdm | None = None
        parts = {name: getattr(self, name) for name in ("model", "optimizer", "schedule")}
        super().__init__(checkpoint_of(args), parts, settings_of(args))

    def save(self) -> None:
        super().save()
        Run.saved = None if get_rank() else self.path

    def steps(  # type: ignore[override]
        self, batches: Iterable[Any], held_out: Callable[[], ta.Tensor]
    ) -> Iterator[Any]:
        """The batches not learned from yet, with a progress bar; leaves the files at the end.

        Each rank gets its part of a batch. The program of all ranks but 0 ends with the training.

        held_out: the loss on data that nothing is learned from; measured now and then, for the
        picture alone. Ctrl-C ends the training early, never in the middle of a step, and says how
        to go on.
        """
        total = self.args.steps
        if get_rank() == 0 < get_world_size() - 1:
            print(f"{get_world_size()} ranks train, each on its part of a batch")
        self.model.train()
        new = islice(batches, len(self.losses), None)
        with ExitStack() as stack:
            for step in super().steps(total):
                yield part_of(next(new))
                if self.bar is None:
                    # After the first step, because that may compile kernels: with its seconds the
                    # bar would promise hours.
                    self.bar = stack.enter_context(
                        tqdm(total=total, initial=step + 1, unit="step", disable=get_rank() > 0)
                    )
                else:
                    self.bar.update()
                self.measure(held_out)
        self.draw_losses()
        if len(self.losses) < total:
            print(f"stopped after {len(self.losses)} of {total} steps; {how_to_go_on()}")
            sys.exit(130)  # what a shell expects of a program ended by Ctrl-C
        if get_rank():
            sys.exit()

    def learn(self, loss: ta.Tensor, accuracy: float, number: int) -> None:
        """One step; number: of the samples or tokens on this rank that the loss is the mean of."""
        self.optimizer.zero_grad()
        self.parallel.backward(loss, number)
        optim.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.record(loss, accuracy, number)

    def measure(self, held_out: Callable[[], ta.Tensor]) -> None:
        """The held-out loss, in the first step, in the last, and so often between."""
        step, total = len(self.losses), self.args.steps
        if get_rank() or (step not in (1, total) and step % -(-total // VALIDATIONS)):
            return
        self.model.eval()
        with ta.no_grad():
            self.held_out.append([float(step), held_out().item()])
        self.model.train()

    def record(  # type: ignore[override]
        self, loss: ta.Tensor, accuracy: float, number: int
    ) -> None:
        """Note the loss of a step; now and then, show how it goes."""
        share = number / all_reduce(number)
        mean, accuracy = all_reduce(np.array([loss.item(), accuracy]) * share).tolist()
        super().record(mean)
        self.accuracies.append(accuracy)
        if self.bar is not None and len(self.losses) % 10 == 0:
            recent, right = np.mean(self.losses[-RECENT:]), np.mean(self.accuracies)
            self.bar.set_postfix_str(f"loss {recent:.3f}, accuracy {right:.1%}", refresh=False)

    def draw_losses(self) -> None:
        if get_rank():
            return
        measured = np.array(self.held_out).reshape(-1, 2)
        curves = {self.curve: self.losses, "held out": (measured[:, 0], measured[:, 1])}
        figure = viz.plot_curves(curves, ylabel="Cross-entropy", smooth=50)
        figure.savefig(self.args.out / "loss.png", dpi=120)


def part_of(batch: Any) -> Any:
    """The rows of a batch, an array or a tuple of arrays, that this rank computes."""
    if isinstance(batch, tuple):
        return tuple(map(part_of, batch))
    return batch[get_rank() :: get_world_size()]


def start(parser: argparse.ArgumentParser, build: Callable[[argparse.Namespace], nn.Module]) -> Run:
    """A fresh run as the command line asks for, or the one it wants to go on with.

    What cannot be done ends the program.
    """
    rank, ranks = get_rank(), get_world_size()
    if rank:
        sys.stdout = io.StringIO()
    for name, value in vars(parser.parse_args()).items():
        if name.startswith("no_") and value:  # a folder of its own; a given --out still wins
            usual: Path = parser.get_default("out")
            parser.set_defaults(out=usual.with_name(f"{usual.name}-{name.replace('_', '-')}"))
    args, state = parser.parse_args(), None
    try:
        if args.resume or getattr(args, "predict", None):
            args, state = resumed(parser, args.out)
        else:
            refuse_lost_run(args)
        if args.batch_size < ranks:
            raise ValueError(f"a batch of {args.batch_size} is too small for {ranks} ranks")
        ta.manual_seed(args.seed)
        run = Run(build(args), args)
        args.out.mkdir(parents=True, exist_ok=True)
        if state is not None:
            run.restore(state)
        if rank:  # so that dropout differs between ranks
            ta.manual_seed(args.seed + (rank << 32) + len(run.losses))
    except (ValueError, KeyError, OSError) as error:
        # The text of a KeyError would come in quotes.
        complain(error.args[0] if isinstance(error, KeyError) else error)
    return run


def checkpoint_of(args: argparse.Namespace) -> Path:
    path: Path = args.out / "checkpoint.safetensors"
    return path


def settings_of(args: argparse.Namespace) -> dict[str, Any]:
    """What makes the run what it is."""
    return {name: value for name, value in vars(args).items() if name not in FREE}


def resumed(
    parser: argparse.ArgumentParser, out: Path, changeable: Sequence[str] = ()
) -> tuple[argparse.Namespace, dict[str, Any]]:
    """The options of the run in `out`, and its checkpoint. An option that was given still wins.

    changeable: which of them may be others than they were.
    """
    path = out / "checkpoint.safetensors"
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there yet: train first")
    state = ta.load(path)
    if "settings" not in state:
        raise ValueError(f"{path} was not made by this program")
    parser.set_defaults(**state["settings"])
    args = parser.parse_args()
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
    path = checkpoint_of(args)
    if args.overwrite or not path.exists():
        return
    state = ta.load(path)
    done, total = len(state.get("losses", ())), state.get("settings", {}).get("steps", 0)
    going_on = "" if done == total else "--resume goes on with it, "
    raise ValueError(
        f"{args.out} has a run of {done} of {total} steps: {going_on}--overwrite begins anew, "
        "--out names another folder"
    )


def how_to_go_on() -> str:
    arguments = [arg for arg in sys.argv if arg not in ("--resume", "--overwrite")]
    ranks = get_world_size()
    program = f"mpiexec -n {ranks} python" if ranks > 1 else "python"
    return f"go on from there with:\n  {program} {printing.command([*arguments, '--resume'])}"


def run_program(main: Callable[[], None]) -> None:
    """`main`, where Ctrl-C outside of the training says what is kept."""
    try:
        main()
    except KeyboardInterrupt:
        if Run.saved is not None:
            print(f"\nstopped; what was learned is in {Run.saved}; {how_to_go_on()}")
        else:
            print("\nstopped before the first step; nothing was saved")
        sys.exit(130)


def complain(reason: object) -> NoReturn:
    """End the program with one line that says why."""
    print(f"{Path(sys.argv[0]).name}: {reason}", file=sys.stderr)
    sys.exit(2)
