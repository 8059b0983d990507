"""What the tests of the exercises share: they say in a sentence what is wrong."""

from __future__ import annotations

import ast
import functools
import os
import re
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# These change what they are given, and return nothing.
WITHOUT_RESULT = {"backward", "kernel", "resume", "save"}
FOLDER = Path(os.environ.get("TINYATTN_EXERCISES", Path(__file__).parent))


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


def say(sentence: str) -> str:
    """The sentence in the reader's language. In the catalogue, {0} and {1} stand for values, which
    are translated if they are in the catalogue too."""
    if chinese():
        known = catalogue("messages")
        for english in sorted(known, key=len, reverse=True):
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


def exercise(name: str) -> Any:
    """The module that you write, `name`.py: in this folder, or in that of TINYATTN_EXERCISES."""
    said.clear()
    module = types.ModuleType(name)
    path = FOLDER / f"{name}.py"
    expect(FOLDER.is_dir(), missing_folder())
    expect(path.is_file(), f"there is no file {path.name} in the folder {FOLDER.absolute()}")
    problem = ""
    try:
        exec(compile(path.read_text("utf-8"), str(path), "exec"), vars(module))
    except SystemExit:
        problem = f"{path.name} ends Python when it is read: remove exit() or quit()"
    except SyntaxError as error:
        text = (error.text or "").strip()
        problem = f"Python cannot read {path.name}, line {error.lineno}: {error.msg}: {text}"
    except Exception as error:
        problem = f"{path.name} raised {type(error).__name__} when it was read: {error}"
    expect(not problem, problem)

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


def passed(*tests: Callable[[], None]) -> bool:
    """Whether these say nothing. If they do, a later test would give another cause for it. What is
    not written yet is said in the later test too, because the score card counts it."""
    try:
        for test in tests:
            test()
    except pytest.fail.Exception as error:
        if say("is not written yet") in str(error):
            raise
        return False
    return True


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
        problem = f"{name} returns nothing: end it with a return"
    except NotImplementedError:
        problem = say(f"{name} is not written yet")
        if chinese():
            hint = " (`python docs/exercises/in_chinese.py` puts the exercises into Chinese)"
            problem += say_once(hint)
    except SystemExit:
        problem = f"{name} ends Python: write return, not exit() or quit()"
    except Exception as error:
        problem = f"{name} raised {type(error).__name__}: {error}"
        if "could not be broadcast" in problem:
            problem = (
                f"{say(problem)}; if one is a sum or a maximum of rows, keep its axis with "
                "keepdims=True; if one is lengths (B,), write lengths[:, None, None]"
            )
    pytest.fail(say(problem), pytrace=False)


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
