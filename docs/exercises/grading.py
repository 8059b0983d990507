"""What the tests of the exercises share: they say in a sentence what is wrong."""

from __future__ import annotations

import _thread
import ast
import difflib
import functools
import io
import os
import re
import signal
import sys
import threading
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import guard
import numpy as np
import pytest
from written import FUNCTIONS, is_hole, parsed

# These change what they are given, and return nothing.
WITHOUT_RESULT = {"backward", "kernel", "resume", "save"}
FOLDER = Path(os.environ.get("TINYATTN_EXERCISES", Path(__file__).parent))
SECONDS = float(os.environ.get("TINYATTN_SECONDS", 60))  # at most for each test
SECONDS_AFTER_A_LOOP = 5.0
GUARDED = "TINYATTN_GUARDED" in os.environ  # score.py grades the files of students
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So a shell starts what runs in the background. An interrupt would then not stop a loop.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def chinese() -> bool:
    """Whether the variables by which programs choose their language name Chinese."""
    names = ("LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG")
    return next((os.environ[name] for name in names if os.environ.get(name)), "").startswith("zh")


@functools.cache
def catalogue(name: str) -> dict[str, str]:
    """The translations in zh_CN/`name`.po, by their English."""
    text = (Path(__file__).parent / "zh_CN" / f"{name}.po").read_text("utf-8")
    lines = r'((?:".*"\n)+)'
    found = re.findall(rf'^msgid (?!""\nmsgstr){lines}msgstr {lines}', text, re.M)
    return {ast.literal_eval(f"({a})"): ast.literal_eval(f"({b})") for a, b in found}


def print_in_any_encoding() -> None:
    """Print a sign as an escape where stdout or stderr cannot encode it: cp1252 has few signs."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # None in a program without a console
            stream.reconfigure(errors="backslashreplace")


def say(sentence: str) -> str:
    """The sentence in the reader's language. In the catalogue, {0} and {1} stand for values, which
    are translated if they are in the catalogue too."""
    if chinese():
        known = catalogue("messages")
        for english in sorted(known, key=len, reverse=True):
            if not sentence.startswith(english.partition("{")[0]):
                continue  # quicker than to make its pattern
            pattern = re.sub(r"\\{\d\\}", "(.*?)", re.escape(english))
            if found := re.fullmatch(pattern, sentence, re.DOTALL):
                return known[english].format(*(known.get(x, x) for x in found.groups()))
    return sentence


said: set[str] = set()  # what say_once has said


def say_once(sentence: str) -> str:
    """The sentence in the reader's language the first time, and an empty text after that."""
    new = sentence not in said
    said.add(sentence)
    return say(sentence) if new else ""


def missing_folder() -> str:
    """A sentence if the folder of the exercises does not exist, or an empty text."""
    if FOLDER.is_dir():
        return ""
    return f"there is no folder {FOLDER.absolute()}, which TINYATTN_EXERCISES names"


def missing_file(folder: Path, name: str) -> str:
    """A sentence if the folder has no `name`.py, or an empty text."""
    path = folder / f"{name}.py"
    if path.is_file():
        return ""
    others = [x.name for x in folder.glob("*.py") if re.match(r"ex_?\d", x.name, re.I)]
    # A name of another exercise is near to this one, and right.
    others = [x for x in others if not (Path(__file__).parent / x).is_file()]
    names = {other.lower(): other for other in others}
    for near in difflib.get_close_matches(path.name, names, 1, 0.8):
        return say(f"rename {names[near]} to {path.name} in the folder {folder.absolute()}")
    return say(f"there is no file {path.name} in the folder {folder.absolute()}")


def frames_of(error: BaseException) -> list[traceback.FrameSummary]:
    """Those in your files that the error came through."""
    return [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).name.startswith("ex_") and is_beside(frame)
    ]


def is_beside(frame: traceback.FrameSummary) -> bool:
    """Whether it is of a file in your folder."""
    return Path(frame.filename).parent.absolute() == FOLDER.absolute()


def line_of(error: BaseException) -> tuple[int, str]:
    """The last line of your files that the error came through, and its text; or 0."""
    frames = frames_of(error)
    return (frames[-1].lineno or 0, frames[-1].line or "") if frames else (0, "")


def name_of_hole(error: NotImplementedError) -> str:
    """The function of an exercise, or of a file beside yours, that raised it; or an empty text."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    path = Path(last.filename).name
    is_helper = is_beside(last) and not (Path(__file__).parent / path).is_file()
    return last.name if path.startswith("ex_") or is_helper else ""


def is_written(error: NotImplementedError) -> bool:
    """Whether the function that raised it has other lines: then its raise was left there."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    tree = parsed(Path(last.filename).read_text("utf-8-sig")) if last in frames_of(error) else None
    number = last.lineno or 0
    around = [
        node
        for node in (ast.walk(tree) if tree else ())
        if isinstance(node, FUNCTIONS) and node.lineno <= number <= (node.end_lineno or 0)
    ]
    return bool(around) and not is_hole(around[-1])


def place_of(error: BaseException) -> str:
    number, text = line_of(error)
    return say(f", in line {number}: {text}") if number else ""


endless: set[str] = set()  # the graders in which a test did not end


@contextmanager
def limited(name: str) -> Iterator[None]:
    """Stop a loop without end, and say in which line it is. It works on each system, because
    Python itself raises the KeyboardInterrupt, between two of its instructions."""
    seconds = min(SECONDS, SECONDS_AFTER_A_LOOP) if name in endless else SECONDS

    def stop() -> None:
        endless.add(name)
        stopped.set()
        _thread.interrupt_main()

    stopped = threading.Event()
    alarm = threading.Timer(seconds, stop)
    alarm.daemon = True
    alarm.start()
    problem = ""
    try:
        yield
    except KeyboardInterrupt as error:
        if not stopped.is_set():
            raise
        problem = say(f"no end after {seconds:g} seconds (a loop without end?)") + place_of(error)
    finally:
        alarm.cancel()
    if problem:  # "from None", because pytest would show the KeyboardInterrupt too
        raise pytest.fail.Exception(problem, pytrace=False) from None


def exercise(name: str) -> Any:
    """The module that you write, `name`.py: in this folder, or in that of TINYATTN_EXERCISES."""
    said.clear()
    module = types.ModuleType(name)
    path = FOLDER / f"{name}.py"
    expect(FOLDER.is_dir(), missing_folder())
    problem = missing_file(FOLDER, name)
    if problem:
        pytest.fail(problem, pytrace=False)
    text = path.read_bytes()
    if GUARDED:
        guard.close(path)
    if str(FOLDER.absolute()) != sys.path[0]:
        sys.path.insert(0, str(FOLDER.absolute()))  # it may import another file of yours
    try:
        with limited(name):
            exec(compile(text.decode("utf-8-sig"), str(path), "exec"), vars(module))
    except SystemExit:
        problem = say(f"{path.name} ends Python when it is read: remove exit() or quit()")
    except UnicodeDecodeError as error:
        line = text[: error.start].count(b"\n") + 1
        problem = say(
            f"{path.name} is not in UTF-8, see line {line}: save it with this encoding, which the "
            "editor offers at Save As"
        )
    except SyntaxError as error:
        text = (error.text or "").strip()
        problem = say(f"Python cannot read {path.name}, line {error.lineno}: {error.msg}: {text}")
    except Exception as error:
        problem = say(f"{path.name} raised {type(error).__name__} when it was read: {error}")
        problem = asks_for_input(path.name, error) or problem
        problem += place_of(error)
    if problem:
        pytest.fail(problem, pytrace=False)

    def missing(attribute: str) -> None:
        """Python calls it for a name that the module lacks."""
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        kind = "class" if attribute[0].isupper() else "function"
        expect(False, f"{path.name} has no {kind} {attribute}")

    vars(module)["__getattr__"] = missing
    return module


def expect(condition: Any, sentence: str) -> None:
    """The sentence alone is shown, without the lines of the test."""
    if not condition:
        pytest.fail(say(sentence), pytrace=False)


def needs(*tests: Callable[[], None]) -> None:
    """Skip a test if one of these fails, because it would give another cause for the same mistake.
    What is not written yet is said in the later test too, because the score card counts it."""
    try:
        for test in tests:
            test()
    except pytest.fail.Exception as error:
        if say("is not written yet") in str(error):
            raise
        pytest.skip(say("not judged yet, because another test fails: mend that first"))


def close(found: Any, right: Any, tolerance: float = 1e-7) -> bool:
    """Whether two arrays have the same shape, and the same values up to rounding."""
    found = np.asarray(found)
    right = np.asarray(right)
    if found.shape != right.shape:
        return False
    return bool(np.allclose(found, right, rtol=1e-7, atol=tolerance))


def run(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """What your function returns, without NumPy's warnings."""
    name = getattr(function, "__name__", "it")
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            found = function(*args, **options)
        if found is not None or name in WITHOUT_RESULT:
            return found
        problem = say(f"{name} returns nothing: end it with a return")
    except NotImplementedError as error:
        hole = name_of_hole(error) or name
        problem = say(f"{hole} is not written yet")
        if is_written(error):
            problem = say(f"{hole} still raises NotImplementedError: remove that") + place_of(error)
        elif chinese():
            hint = " (`python docs/exercises/in_chinese.py` puts the exercises into Chinese)"
            problem += say_once(hint)
    except SystemExit:
        problem = say(f"{name} ends Python: write return, not exit() or quit()")
    except Exception as error:
        problem = asks_for_input(name, error) or say(
            f"{name} raised {type(error).__name__}: {readable(error)}"
        )
        problem += place_of(error) + hint_at(error)
    pytest.fail(problem, pytrace=False)


def of_copies(function: Callable[..., Any], *args: Any) -> Any:
    """`run` with copies of arrays: another test says if the function changes them."""
    return run(function, *(x.copy() if isinstance(x, np.ndarray) else x for x in args))


def asks_for_input(name: str, error: Exception) -> str:
    """A sentence if the error is that of input() under pytest, or an empty text."""
    if "reading from stdin" in str(error):
        return say(f"{name} calls input(), but nobody answers a test: remove it")
    return ""


def readable(error: Exception) -> str:
    """The message, without NumPy's signature of a matrix product."""
    found = re.search(r"matmul: .*size (\d+) is different from (\d+)", str(error))
    if not found:
        return str(error).strip()
    return say(f"in A @ B, the columns of A are {found[2]} and the rows of B are {found[1]}")


def hint_at(error: Exception) -> str:
    """What to look at, in a sentence after "; ", or an empty text."""
    text, line = str(error), line_of(error)[1]
    if "matmul" in text and "is different from" in text:
        return say("; is a .T missing, or is one too many?")
    if "axes don't match array" in text:
        return say("; transpose of NumPy takes all axes: swapaxes(1, 2) exchanges two of them")
    if isinstance(error, IndexError) and "[targets]" in line:
        return say(
            "; [targets] takes whole rows: p[np.arange(N), targets] takes one number of each row"
        )
    shapes = re.search(r"could not be broadcast .*?\(([\d,]*)\) \(([\d,]*)\)", text)
    if not shapes:
        return ""
    first, second = (tuple(map(int, x.strip(",").split(","))) for x in shapes.groups())
    if re.search(r"np\.(diag|outer)\b", line):
        return say("; np.diag and np.outer are for one row: here are many, so use sums of rows")
    if "lengths" in line:
        return say("; lengths (B,) need axes: write lengths[:, None, None]")
    if len(first) == len(second) == 2 and first == second[::-1]:
        return say("; one has the shape of the other's transpose: is a .T missing, or too many?")
    if len(first) == len(second) == 2 and first[1] == second[0] and re.search(r"\w \* \w", line):
        return say("; * multiplies number by number: the product of matrices is A @ B")
    if len(first) == len(second) == 2 and first[1] == second[1]:
        found = re.search(r"(\w+) [-+*/] \w+", line)
        name = found[1] if found else "a"
        return say(f"; for all pairs of rows, give the first an axis more: {name}[:, None]")
    if abs(len(first) - len(second)) == 1:
        return say("; if one is a sum or a maximum of rows, keep its axis with keepdims=True")
    return ""


def finite_differences(
    function: Callable[[np.ndarray], np.ndarray], x: np.ndarray, cotangent: np.ndarray
) -> np.ndarray:
    """The gradient of sum(cotangent * function(x)) by x, element by element."""
    gradient, step = np.empty_like(x), 1e-6
    for i in np.ndindex(x.shape):
        ends = [x.copy(), x.copy()]
        ends[0][i] += step
        ends[1][i] -= step
        high, low = (float((cotangent * function(end)).sum()) for end in ends)
        gradient[i] = (high - low) / (2 * step)
    return gradient
