"""What runs in the package: lines, functions, calls and files, for a few things that users do.

    python tests/engine/tracing.py

prints a table. A traced action has run once before, so that caches are filled and plans are made.
PYTHONPATH says which tree is measured, so two commits can be compared.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
EXAMPLE = Path(__file__).parents[2] / "examples" / "smallest.py"


class Trace(NamedTuple):
    """lines: executed lines, each time counted; distinct: the lines of the source among them;
    calls and functions likewise; files: those in which a line was executed."""

    lines: int
    distinct: int
    calls: int
    functions: int
    files: int


def traced(action: Callable[[], Any]) -> Trace:
    """What `action` runs in tinyattn, in this thread.

    A comprehension is part of its function, not a function of its own: Python 3.12 says so too.
    """
    import tinyattn

    package = str(Path(tinyattn.__file__).parent) + os.sep
    lines: dict[tuple[str, int], int] = {}
    calls: dict[tuple[str, int], int] = {}

    def on_line(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            place = frame.f_code.co_filename, frame.f_lineno
            lines[place] = lines.get(place, 0) + 1
        return on_line

    def on_call(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(package):
            return None
        if frame.f_code.co_name not in COMPREHENSIONS:
            place = frame.f_code.co_filename, frame.f_code.co_firstlineno
            calls[place] = calls.get(place, 0) + 1
        return on_line

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        action()
    finally:
        sys.settrace(before)
    files = {file for file, _ in lines}
    return Trace(sum(lines.values()), len(lines), sum(calls.values()), len(calls), len(files))


def product() -> Callable[[], None]:
    """y = x * w; y.backward(g)"""
    import tinyattn as ta

    x, w = (ta.ones(2, 3, requires_grad=True) for _ in range(2))
    g = ta.ones(2, 3)

    def action() -> None:
        y = x * w
        y.backward(g)
        x.grad = w.grad = None

    return action


def product_forward() -> Callable[[], None]:
    """x * w"""
    import tinyattn as ta

    x, w = (ta.ones(2, 3, requires_grad=True) for _ in range(2))

    def action() -> None:
        x * w

    return action


def softmax() -> Callable[[], None]:
    """F.softmax(x)"""
    import tinyattn as ta
    from tinyattn import functional as F

    x = ta.ones(4, 5, requires_grad=True)
    return lambda: F.softmax(x, -1)


def attention() -> Callable[[], None]:
    """MultiHeadedAttention(x, x, x, mask)"""
    import tinyattn as ta
    from tinyattn import masks, nn

    x, mask = ta.ones(2, 5, 8), masks.padding(ta.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]))
    module = nn.MultiHeadedAttention(2, 8)
    return lambda: module(x, x, x, mask)


def encoder_layer() -> Callable[[], None]:
    """EncoderLayer(x)"""
    import tinyattn as ta
    from tinyattn import nn

    x = ta.ones(2, 5, 8)
    feed_forward = nn.PositionwiseFeedForward(8, 16)
    layer = nn.EncoderLayer(8, nn.MultiHeadedAttention(2, 8), feed_forward)
    return lambda: layer(x)


def adam_step() -> Callable[[], None]:
    """Adam.step"""
    import tinyattn as ta
    from tinyattn import nn, optim

    linear = nn.Linear(3, 4)
    adam = optim.Adam(linear.parameters())
    linear(ta.ones(2, 3)).sum().backward()
    return adam.step


def smallest() -> Callable[[], None]:
    """examples/smallest.py"""

    def action() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            runpy.run_path(str(EXAMPLE))

    return action


ACTIONS: dict[str, Callable[[], Callable[[], Any]]] = {
    action.__doc__ or "": action
    for action in (
        product_forward,
        product,
        softmax,
        attention,
        encoder_layer,
        adam_step,
        smallest,
    )
}


def measured(name: str) -> Trace:
    """The trace of one of ACTIONS, in this process."""
    action = ACTIONS[name]()
    if action is not smallest:
        action()
    return traced(action)


def measured_alone(name: str, jit: bool = True) -> Trace:
    """The same in a new process; without `jit` in the mode in which one reads and debugs."""
    environment = {**os.environ, "TINYATTN_JIT": "1" if jit else "0"}
    command = [sys.executable, __file__, "--json", name]
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return Trace(*json.loads(output.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", metavar="ACTION", help="one action, in this process")
    action = parser.parse_args().json
    if action is not None:
        print(json.dumps(measured(action)))
        return
    print(f"{'':37} {'mode':8}" + "".join(f"{field:>10}" for field in Trace._fields))
    for name in ACTIONS:
        for jit in (True, False):
            numbers = measured_alone(name, jit)
            mode = "default" if jit else "reading"
            print(f"{name:37} {mode:8}" + "".join(f"{number:10,}" for number in numbers))


if __name__ == "__main__":
    main()
