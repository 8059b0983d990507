"""What a training keeps beside its model: its losses, its checkpoint, the best model, its end."""

import math
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

from ..base.checks import check_type, type_name
from ..base.random import get_rng_state, set_rng_state
from ..errors import CheckpointError
from ..tensors.create import tensor
from .checkpoint import save
from .distributed import all_reduce, get_rank

LISTS = ("losses", "held_out")


class TrainingLoop:
    """The steps of a training that may be stopped at any time, and goes on bit by bit as before.

    path: its checkpoint. Rank 0 writes it every `save_every` seconds, and when the loop ends.
    parts: what changes from step to step and has a state_dict, by name. One is the "model". None
        has a name that the checkpoint uses for the loop itself, such as "best".
    settings: what else the checkpoint keeps, of numbers, texts, lists and dicts.
    patience: the loop ends after so many held-out losses that are not below the lowest.

    losses: of each step done. held_out: pairs (step, loss). elapsed: seconds, also of earlier
    programs. best: the state of the model at its lowest held-out loss. is_stopped: whether Ctrl-C,
    SIGTERM or a closed terminal has ended the loop, after a whole step, until `restore`; a second
    Ctrl-C interrupts at once.

        >>> import tempfile
        >>> from tinyattn.training import TrainingLoop
        >>> model = nn.Linear(3, 1)
        >>> optimizer = optim.AdamW(model.parameters())
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = f"{folder}/run.safetensors"
        ...     loop = TrainingLoop(path, {"model": model, "optimizer": optimizer})
        ...     for step in loop.steps(2):  # which an empty loop with the same parts continues
        ...         loop.record(model(ta.ones(3)).square().item())
        ...     loop.restore(ta.load(path))
        >>> len(loop.losses)
        2
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        parts: Mapping[str, Any],
        settings: dict[str, Any] | None = None,
        save_every: float = 30.0,
        patience: float = math.inf,
    ) -> None:
        for name, part in check_type("parts is a dict of names to parts", parts, Mapping).items():
            if isinstance(part, type) or not hasattr(part, "state_dict"):
                raise TypeError(f"the part {name!r} has a state_dict(), got {type_name(part)}")
            if name in (*LISTS, "settings", "best", "elapsed", "random"):
                raise ValueError(f"a checkpoint has {name!r} of the loop itself: rename the part")
        self.path, self.parts, self.settings = Path(path), dict(parts), settings or {}
        self.save_every, self.patience = save_every, patience
        self.losses: list[float] = []
        self.held_out: list[list[float]] = []
        self.best: dict[str, Any] | None = None
        self.elapsed = 0.0
        self.is_stopped = False

    def steps(self, total: int, seconds: float = math.inf) -> Iterator[int]:
        """The numbers of the steps that are not done yet, from 0; each must call `record`.

        They end after `total` steps, after `seconds`, those of earlier programs included, with the
        patience, or with a signal; with RuntimeError after a step that did not record one loss.
        A `break` ends them without a checkpoint: call `save` after it.
        """
        with stop_signals() as stop:
            began = saved = time.perf_counter()
            began -= self.elapsed
            while len(self.losses) < total and self.elapsed < seconds:
                if self.is_stopped or self.since_best >= self.patience:
                    break
                yield (step := len(self.losses))
                # Without a loss the same step comes again, and with two the last step is left out.
                if (times := len(self.losses) - step) == 0 or times > 1:
                    raise RuntimeError(f"step {step} calls record(loss) once, not {times} times")
                now = time.perf_counter()
                # Alike on all ranks, because what follows from them must be.
                stopped, elapsed, ranks = all_reduce([stop.is_set(), now - began, 1]).tolist()
                self.is_stopped, self.elapsed = stopped > 0, elapsed / ranks
                if now - saved >= self.save_every:
                    self.save()
                    saved = time.perf_counter()
            self.save()

    def record(self, loss: float) -> None:
        """Note the loss of a step; FloatingPointError if it is not finite, and nothing is saved."""
        if not math.isfinite(loss):
            step = len(self.losses) + 1
            raise FloatingPointError(f"the loss of step {step} is {loss}: lower the learning rate")
        self.losses.append(float(loss))  # because a Tensor would keep its graph

    def measured(self, loss: float) -> None:
        """Note a held-out loss; the model is the best one if it is the lowest."""
        self.held_out.append([float(len(self.losses)), float(loss)])
        if not self.since_best:
            self.best = deepcopy(self.parts["model"].state_dict())

    @property
    def since_best(self) -> int:
        """How many held-out losses came after the lowest."""
        losses = [math.inf if math.isnan(loss) else loss for _, loss in self.held_out] or [0.0]
        return len(losses) - 1 - losses.index(min(losses))

    def save(self) -> None:
        if get_rank():
            return
        state = {name: part.state_dict() for name, part in self.parts.items()}
        numbers = {name: tensor(getattr(self, name), dtype="float64") for name in LISTS}
        more = {"settings": self.settings, "best": self.best, "elapsed": self.elapsed}
        save(state | numbers | more | {"random": get_rng_state()}, self.path)

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint, as `ta.load` reads it.

        CheckpointError for another file; an error of a part's load_state_dict changes no part.
        """
        if missing := {*self.parts, *LISTS, "random"} - {*state}:
            raise CheckpointError(f"a checkpoint of this loop has {[*missing]}, got {[*state]}")
        with ExitStack() as undo:
            for name, part in self.parts.items():
                undo.callback(part.load_state_dict, deepcopy(part.state_dict()))
                part.load_state_dict(state[name])
            set_rng_state(state["random"])
            undo.pop_all()
        self.losses, self.held_out = (state[name].tolist() for name in LISTS)
        self.best, self.elapsed = state.get("best"), state.get("elapsed", 0.0)
        self.is_stopped = False


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C, SIGTERM and SIGHUP set instead of ending the program; a second one ends
    it. A SIGHUP that is ignored stays ignored."""
    event = threading.Event()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def stop(*_: object) -> None:
        event.set()
        restore()

    is_main = threading.current_thread() is threading.main_thread()  # which alone gets signals
    numbers = [signal.SIGINT, signal.SIGTERM]
    hang_up = getattr(signal, "SIGHUP", None)  # of a closed terminal; Windows has none
    if hang_up is not None and signal.getsignal(hang_up) != signal.SIG_IGN:  # as under nohup
        numbers.append(hang_up)
    before = {number: signal.signal(number, stop) for number in numbers if is_main}
    try:
        yield event
    finally:
        restore()
