"""Call a function of an exercise in another process, which has nothing that the function must not
know: exercise 15 finds out what a black box is, and here the box is a question to the grader.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import grading
import numpy as np
import pytest
from grading import exercise, limited, run, say

Box = Callable[..., np.ndarray]


class Elsewhere:
    """The exercise `name` in a process of its own. `boxes` are those that it may import."""

    def __init__(self, name: str, boxes: dict[str, Box]) -> None:
        self.name = name
        self.boxes = boxes
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> subprocess.Popen[str]:
        """The process; another one if the last one has ended."""
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                [sys.executable, __file__, self.name, *self.boxes],
                env={
                    **os.environ,
                    "TINYATTN_EXERCISES": str(grading.FOLDER),
                    "TINYATTN_SECONDS": str(grading.SECONDS * 0.8),  # so it says itself what hangs
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                encoding="utf-8",
            )
            weakref.finalize(self, end, self.process)
        return self.process

    def ask(self, function: str, box: Box) -> Any:
        """What the function returns for this box."""
        process = self.start()
        write(process.stdin, {"function": function})
        while message := read(process.stdout):
            if "failed" in message:
                raise pytest.fail.Exception(message["failed"], pytrace=False)
            if "answer" in message:
                return message["answer"]
            asked = self.boxes.get(message["box"], box)
            write(process.stdin, called(asked, message["arrays"], message["causal"]))
        raise pytest.fail.Exception(
            say(f"Python ended with code {process.wait()} before this was graded"), pytrace=False
        )


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def write(stream: IO[str] | None, message: dict[str, Any]) -> None:
    """One line, without an error if the other process has ended: the next read finds that."""
    if stream is None:
        return
    try:
        stream.write(json.dumps(message) + "\n")
        stream.flush()
    except BrokenPipeError:
        return


def read(stream: IO[str] | None) -> dict[str, Any]:
    """The next message, or an empty one if the other process has ended."""
    line = stream.readline() if stream else ""
    return json.loads(line) if line else {}


def called(box: Box, arrays: list[Any], causal: bool) -> dict[str, Any]:
    """What a box gives, or its error."""
    try:
        return {"out": box(*map(np.array, arrays), causal=causal).tolist()}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def question(name: str, input: IO[str], output: IO[str]) -> Box:
    """A box that asks the grader. It knows its name at most."""

    def box(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool = False) -> np.ndarray:
        arrays = [np.asarray(x, np.float64).tolist() for x in (q, k, v)]
        write(output, {"box": name, "arrays": arrays, "causal": bool(causal)})
        answer = read(input)
        if "error" in answer:
            raise ValueError(answer["error"])
        return np.array(answer["out"])

    return box


def answer_all(name: str, boxes: list[str]) -> None:
    """The other process: read the exercise, and call what is asked for."""
    input, output = (os.fdopen(os.dup(i), how, encoding="utf-8") for i, how in ((0, "r"), (1, "w")))
    with Path(os.devnull).open("r+b") as nothing:  # print() and input() do not disturb the messages
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
    known = types.ModuleType("black_boxes")
    vars(known)["BOXES"] = {box: question(box, input, output) for box in boxes}
    sys.modules["black_boxes"] = known
    yours = None
    while request := read(input):
        # A loop that no interrupt ends, as with `except: pass`, ends with the process.
        alarm = threading.Timer(grading.SECONDS * 1.2, os._exit, [1])
        alarm.daemon = True
        alarm.start()
        try:
            with limited(name):
                yours = yours or exercise(name)
                answer = run(getattr(yours, request["function"]), question("", input, output))
            write(output, {"answer": answer if isinstance(answer, str) else repr(answer)})
        except pytest.fail.Exception as error:
            write(output, {"failed": str(error)})
        alarm.cancel()


if __name__ == "__main__":
    answer_all(sys.argv[1], sys.argv[2:])
