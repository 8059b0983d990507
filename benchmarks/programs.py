"""A training step of each program in tests/port/programs, as its author would write it.

PyTorch runs the text as it stands; tinyattn runs it with the import lines that
`tinyattn.torch_names.scan` prints. Figures that are published come from one thread:

    python -m benchmarks --threads 1 --only "program "
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from functools import partial
from itertools import chain, count
from typing import Any

from .cases import Case, Run, random
from .processes import ROOT

FOLDER = ROOT / "tests" / "port" / "programs"
WIDTH, BATCH, SHORT = 128, 16, (16, 2)
STEPS = 200  # until a program starts again with its first batch


def module_of(lib: Any, name: str) -> Any:
    path = FOLDER / f"{name}.py"
    module = types.ModuleType(f"program {name}")
    sys.modules[module.__name__] = module  # there dataclass looks for the names in annotations
    exec(compile(lib.program(path.read_text("utf-8")), path, "exec"), vars(module))
    return module


def step(lib: Any, name: str, width: int, batch: int) -> Run:
    """The losses of the first steps agree only if forward, gradients and optimizer all do."""
    program = module_of(lib, name)
    model = program.make_model(width)
    arrays = {n: 0.1 * random(*p.shape, seed=len(n)) for n, p in model.named_parameters()}
    model.load_state_dict({n: lib.tensor(x) for n, x in arrays.items()}, strict=False)
    steps = chain.from_iterable(program.train(model, STEPS, batch) for _ in count())
    losses: list[float] = []

    def timed(_: Any) -> None:
        loss = next(steps).item()
        if len(losses) < 3:
            losses.append(loss)

    return Run({"": timed}, check=lambda: losses)


def programs(short: bool) -> Iterator[Case]:
    width, batch = SHORT if short else (WIDTH, BATCH)
    for path in sorted(FOLDER.glob("*.py")):
        yield Case(
            "training step of a program written for PyTorch",
            f"program {path.stem}",
            f"width,batch = {width},{batch}",
            partial(step, name=path.stem, width=width, batch=batch),
            parts=("",),
        )
