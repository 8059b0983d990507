"""What the black boxes of exercise 15 compute, and how they are asked from another process."""

from __future__ import annotations

import gc
import io
import json
import os
import runpy
import sys
import types
from collections.abc import Callable
from typing import Any

import black_boxes
import elsewhere
import grading
import numpy as np
import pytest
from exercises import english  # noqa: F401

X = np.random.default_rng(3).standard_normal((3, 3, 4, 6))  # q, k and v of 3 samples


def by_hand(defect: str, q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool) -> np.ndarray:
    """The formula, head by head; a seed of 5 for the dropout."""
    batch, n, width = q.shape
    d = width // 2
    keep = np.random.default_rng(5).random((batch, 2, n, n)) < 0.9
    out = np.empty((batch, 2, n, d))
    for b in range(batch):
        for h in range(2):
            parts = [x[b][:, h * d : h * d + d] for x in (q, k, v)]
            if defect == "heads split by reshape":
                parts = [x[b].ravel()[h * n * d : (h + 1) * n * d].reshape(n, d) for x in (q, k, v)]
            scores = parts[0] @ parts[1].T / (1 if defect == "no root of d" else np.sqrt(d))
            visible = np.tri(n, k=1 if defect == "causal off by one" else 0) if causal else 1
            late = defect == "mask after softmax"
            e = np.exp(scores) * (1 if late else visible)
            weights = e / e.sum(0 if defect == "softmax over queries" else 1, keepdims=True)
            weights = weights * visible if late else weights
            weights = weights * keep[b, h] / 0.9 if defect == "dropout" else weights
            out[b, h] = weights @ parts[2]
    if defect == "samples mixed":
        out = np.stack([[out.reshape(2, batch, n, d)[h, b] for h in (0, 1)] for b in range(batch)])
    return np.concatenate([out[:, 0], out[:, 1]], -1)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("defect", black_boxes.DEFECTS)
def test_each_defect_is_the_one_that_its_name_says(defect: str, causal: bool) -> None:
    box = black_boxes.attention_of(defect, 5)
    right = by_hand(defect, *X, causal)
    np.testing.assert_allclose(box(*X, causal=causal), right, rtol=1e-12, atol=1e-13)
    again = box(*X, causal=causal)
    assert np.allclose(again, right) is (defect != "dropout")  # a call of its own drops others
    if not causal:
        np.testing.assert_array_equal(
            black_boxes.attention_of(defect)(*X),
            black_boxes.attention_of(defect, 0)(*X, causal=False),
        )
    ones = [[[1, 2], [3, 5]]]  # a list of integers is an array of float64
    assert box(ones, ones, ones).dtype == np.float64


def test_boxes_are_made_with_seeds_that_count_from_0() -> None:
    fresh = runpy.run_path(black_boxes.__file__)  # other tests have asked the ones of the module
    assert list(fresh["BOXES"]) == [f"box_{i}" for i in range(1, 6)]
    assert len(set(fresh["ANSWERS"].values())) == 5
    for seed, (name, defect) in enumerate(fresh["ANSWERS"].items()):
        right = black_boxes.attention_of(defect, seed)(*X, causal=True)
        np.testing.assert_array_equal(fresh["BOXES"][name](*X, causal=True), right)
        assert defect == black_boxes.defect_of(name)


def test_a_box_that_nobody_has_is_forgotten() -> None:
    gc.collect()
    before = len(black_boxes.INSIDE)
    box = black_boxes.attention_of("none")
    assert len(black_boxes.INSIDE) == before + 1
    del box
    gc.collect()
    assert len(black_boxes.INSIDE) == before


class Process:
    """A stand-in for the other process: what it is started with, and what it answers."""

    def __init__(self, command: list[str], **options: Any) -> None:
        self.command, self.options = command, options
        self.code: int | None = None
        self.ended: list[str] = []
        self.stdin, self.stdout = io.StringIO(), io.StringIO()

    def answers(self, *messages: dict[str, Any]) -> None:
        self.stdout = io.StringIO("".join(json.dumps(x) + "\n" for x in messages))

    def poll(self) -> int | None:
        return self.code

    def wait(self) -> int:
        return 7

    def kill(self) -> None:
        self.ended.append("kill")

    def communicate(self) -> None:
        self.ended.append("communicate")


def test_the_other_process_has_a_time_that_ends_before_that_of_the_grader(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it says itself which function hangs. A second one is started if the first has ended, and
    each ends with the object."""
    monkeypatch.setattr(elsewhere.subprocess, "Popen", Process)
    monkeypatch.setattr(grading, "FOLDER", tmp_path)
    monkeypatch.setattr(grading, "SECONDS", 30.0)
    monkeypatch.setenv("SOMETHING_ELSE", "kept")
    there = elsewhere.Elsewhere("ex_1", {"box_2": len, "box_1": len})
    assert there.process is None
    process: Any = there.start()
    assert process.command == [sys.executable, elsewhere.__file__, "ex_1", "box_2", "box_1"]
    env = process.options.pop("env")
    assert env == {**os.environ, "TINYATTN_EXERCISES": str(tmp_path), "TINYATTN_SECONDS": "24.0"}
    pipe = elsewhere.subprocess.PIPE
    assert process.options == {"stdin": pipe, "stdout": pipe, "encoding": "utf-8"}
    assert there.start() is process
    process.code = 0  # it has ended
    other: Any = there.start()
    assert other is not process
    assert other.command == process.command
    assert process.ended == other.ended == []
    del there
    gc.collect()
    assert process.ended == other.ended == ["kill", "communicate"]


def test_a_box_is_asked_by_its_name_and_others_are_the_one_that_is_graded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def box(factor: int) -> Callable[..., np.ndarray]:
        return lambda q, k, v, causal: factor * (q + 2 * k + 3 * v) + causal

    there = elsewhere.Elsewhere("ex_1", {"box_1": box(10), "box_2": box(20)})
    there.process = ended = Process([])
    process = Process([])
    monkeypatch.setattr(there, "start", lambda: process)
    process.answers(
        *(
            {"box": name, "arrays": [[1], [2], [4]], "causal": causal}
            for name, causal in (("box_2", True), ("", False), ("box_1", False))
        ),
        {"answer": "none"},
        {"answer": "too late"},
    )
    assert there.ask("diagnose", box(1)) == "none"
    sent = [json.loads(line) for line in process.stdin.getvalue().splitlines()]
    assert sent == [{"function": "diagnose"}, {"out": [341]}, {"out": [17]}, {"out": [170]}]
    assert ended.stdin.getvalue() == ""
    for messages, sentence in (
        ([{"failed": "f returns nothing"}, {"answer": ""}], "f returns nothing"),
        ([], "Python ended with code 7 before this was graded"),
    ):
        process.answers(*messages)
        with pytest.raises(pytest.fail.Exception) as caught:
            there.ask("diagnose", box(1))
        assert str(caught.value) == sentence
        assert caught.value.pytrace is False


def test_messages_are_lines_and_a_pipe_that_has_ended_gives_none() -> None:
    class Ended(io.StringIO):
        def flush(self) -> None:
            raise BrokenPipeError

    elsewhere.write(None, {})
    elsewhere.write(Ended(), {"a": 1})
    stream = io.StringIO()
    elsewhere.write(stream, {"a": [1, "é"]})
    elsewhere.write(stream, {})
    assert stream.getvalue() == '{"a": [1, "\\u00e9"]}\n{}\n'
    stream.seek(0)
    assert [elsewhere.read(stream) for _ in range(3)] == [{"a": [1, "é"]}, {}, {}]
    assert elsewhere.read(None) == {}


def test_an_error_of_a_box_crosses_as_its_kind_and_its_words() -> None:
    def box(*_: object, causal: bool) -> None:
        raise KeyError(f"{causal}")

    error = elsewhere.called(box, [1, 2, 3], False)
    assert error == {"error": "KeyError: 'False'"}
    asked = io.StringIO()
    ask = elsewhere.question("box_9", io.StringIO(json.dumps(error) + "\n"), asked)
    with pytest.raises(ValueError, match=r"^KeyError: 'False'$"):
        ask(np.int64([1]), [2], 3)
    right = {"box": "box_9", "arrays": [[1.0], [2.0], 3.0], "causal": False}
    assert asked.getvalue() == json.dumps(right) + "\n"


def test_what_the_other_process_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps the pipes for itself, reads the exercise once, gives an alarm to each question, and
    has the names of the boxes, and not what is in them."""
    requests = io.StringIO("".join(json.dumps({"function": f}) + "\n" for f in "ffgh"))
    output, calls, alarms = io.StringIO(), [], []

    def fdopen(number: int, how: str, encoding: str) -> io.StringIO:
        calls.append((number, how, encoding))
        return {"r": requests, "w": output}[how]

    class Timer:
        def __init__(self, seconds: float, function: object, args: list[int]) -> None:
            self.seen: list[object] = [seconds, function, args]
            self.daemon = False
            alarms.append(self)

        def start(self) -> None:
            self.seen.append(("start", self.daemon))

        def cancel(self) -> None:
            self.seen.append("cancel")

    def read_exercise(name: str) -> types.SimpleNamespace:
        calls.append(("read", name))

        def f(box: Callable[..., Any]) -> str:
            return "none"

        def g(box: Callable[..., Any]) -> int:
            return 3

        def h(box: Callable[..., Any]) -> None:
            box(1, 2, 3, causal=True)

        return types.SimpleNamespace(f=f, g=g, h=h)

    monkeypatch.setitem(sys.modules, "black_boxes", black_boxes)
    with monkeypatch.context() as patch:
        patch.setattr(elsewhere.os, "dup", lambda number: number + 40)
        patch.setattr(elsewhere.os, "fdopen", fdopen)
        patch.setattr(elsewhere.os, "dup2", lambda a, b: calls.append(("dup2", b)))
        patch.setattr(elsewhere, "exercise", read_exercise)
        patch.setattr(grading, "SECONDS", 10.0)
        patch.setattr(elsewhere, "threading", types.SimpleNamespace(Timer=Timer))
        elsewhere.answer_all("ex_1", ["box_1", "box_4"])
        known = sys.modules["black_boxes"]
        assert list(vars(known)["BOXES"]) == ["box_1", "box_4"]
        assert not hasattr(known, "ANSWERS")
        pipes = [(40, "r", "utf-8"), (41, "w", "utf-8")]
        assert calls == [*pipes, ("dup2", 0), ("dup2", 1), ("read", "ex_1")]
        seen = [12.0, os._exit, [1], ("start", True), "cancel"]
        assert [alarm.seen for alarm in alarms] == [seen] * 4
        lines = [json.loads(line) for line in output.getvalue().splitlines()]
        assert lines == [
            {"answer": "none"},
            {"answer": "none"},
            {"answer": "3"},
            {"box": "", "arrays": [1.0, 2.0, 3.0], "causal": True},
            {"failed": "h raised KeyError: 'out'"},
        ]
        output.truncate(0)
        output.seek(0)
        with pytest.raises(KeyError):
            known.BOXES["box_4"](1, 2, 3)
        assert json.loads(output.getvalue())["box"] == "box_4"
