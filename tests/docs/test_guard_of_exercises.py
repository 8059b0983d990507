"""While the file of a student is graded, solutions cannot be reached and other exercises cannot be
forged; a file that is the solution is recognised."""

from __future__ import annotations

import ast
import base64
import inspect
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import black_boxes
import elsewhere
import guard
import numpy as np
import pytest
import written

FOLDER = Path(__file__).parents[2] / "docs" / "exercises"
SOLUTION = FOLDER / "solutions" / "ex_05_softmax.py"
NAME = "05_softmax"
LINUX = sys.platform == "linux"
# Each tries to get the text of the solution.
READING = {
    "open": "text = open(SOLUTION).read()",
    "pathlib": "text = pathlib.Path(SOLUTION).read_text()",
    "bytes": "text = open(os.fsencode(SOLUTION), 'rb').read().decode()",
    "around": "text = open(FOLDER + '/../exercises/./solutions/ex_05_softmax.py').read()",
    "os.open": "text = os.read(os.open(SOLUTION, os.O_RDONLY), 9999).decode()",
    "change of folder": "os.chdir(FOLDER + '/solutions'); text = open('ex_05_softmax.py').read()",
    "folder above": "os.chdir(FOLDER); text = open('solutions/ex_05_softmax.py').read()",
    "copy": "import shutil; shutil.copy(SOLUTION, HERE + '/s'); text = open(HERE + '/s').read()",
    "rename": "os.rename(FOLDER + '/solutions', HERE + '/s'); "
    "text = open(HERE + '/s/ex_05_softmax.py').read()",
    "loader": "import runpy; globals().update(runpy.run_path(SOLUTION)); text = ''",
    "import": "sys.path.append(FOLDER + '/solutions'); sys.modules.pop('ex_05_softmax', 0); "
    "from ex_05_softmax import *; text = ''",
    "namespace": "sys.path.append(FOLDER); from solutions.ex_05_softmax import *; text = ''",
    "linecache": "import linecache; text = ''.join(linecache.getlines(SOLUTION))",
    "numpy": "import numpy as np; text = np.fromfile(SOLUTION, np.uint8).tobytes().decode()",
    "mmap": "import mmap; f = open(SOLUTION, 'rb'); text = mmap.mmap(f.fileno(), 0, access=1)[:]",
    "process": "import subprocess; text = subprocess.check_output([sys.executable, '-c', "
    "'print(open(%r).read())' % SOLUTION], text=True)",
    "multiprocessing": "import multiprocessing as m; text = m.get_context('spawn').Pool(1)"
    ".map(pathlib.Path.read_text, [pathlib.Path(SOLUTION)])[0]",
    "tests": "text = open(FOLDER + '/../../tests/docs/test_exercises.py').read()",
    "grader": "text = open(FOLDER + '/test_05_softmax.py').read()",
}
ON_LINUX = {
    "system": "os.system(f'cp {SOLUTION} {HERE}/s.py'); text = open(HERE + '/s.py').read()",
    "fork": "os.fork() or os.execv('/bin/true', ['true']); text = ''",
    "hard link": "os.link(SOLUTION, HERE + '/s.py'); text = open(HERE + '/s.py').read()",
    "link": "os.symlink(SOLUTION, HERE + '/s.py'); text = open(HERE + '/s.py').read()",
    "linked folder": "os.symlink(FOLDER, HERE + '/s'); "
    "text = open(HERE + '/s/solutions/ex_05_softmax.py').read()",
    "open folder": "fd = os.open(FOLDER, os.O_RDONLY); "
    "text = os.read(os.open('solutions/ex_05_softmax.py', os.O_RDONLY, dir_fd=fd), 9999).decode()",
    "proc": "text = open('/proc/self/root' + SOLUTION).read()",
    "ctypes": "import ctypes as c; f = c.CDLL(None).open(SOLUTION.encode(), 0); "
    "text = os.read(f, 9999).decode()",
    "history": "text = open(FOLDER + '/../../.git/HEAD').read()",
}
# Each tries to change what other exercises, or other students, are graded by.
CHANGING = {
    "grader": "open(FOLDER + '/test_06_masks.py', 'a').write('#')",
    "its compiled form": "open(FOLDER + '/__pycache__/test_06_masks.py', 'w').write('#')",
    "helper": "os.rename(HERE + '/new.py', FOLDER + '/grading.py')",
    "folder": "os.rename(FOLDER, FOLDER + '2')",
    "library": "open(sys.modules['importlib.util'].find_spec('tinyattn').origin, 'a').write('#')",
    "removed": "os.remove(FOLDER + '/test_06_masks.py')",
    "own other": "open(HERE + '/ex_06_masks.py', 'w').write('#')",
    "another student": "open(HERE + '/../ben/ex_06_masks.py', 'w').write('#')",
    "mode": "os.chmod(FOLDER + '/test_06_masks.py', 0)",
}
RIGHT = SOLUTION.read_text("utf-8")


def graded(folders: list[Path]) -> list[dict[str, Any]]:
    command = [sys.executable, str(FOLDER / "score.py"), "--json"]
    run = subprocess.run(
        [*command, *map(str, folders)],
        env={**os.environ, "LANGUAGE": "en"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout, run.stderr
    return json.loads(run.stdout)


def write(folder: Path, text: str, name: str = NAME) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"ex_{name}.py").write_text(text, "utf-8")
    return folder


def head(folder: Path) -> str:
    return (
        "import importlib.util, os, pathlib, sys\n"
        f"SOLUTION, FOLDER, HERE = {str(SOLUTION)!r}, {str(FOLDER)!r}, {str(folder)!r}\n"
    )


def test_solutions_cannot_be_read(tmp_path: Path) -> None:
    attacks = READING | (ON_LINUX if LINUX else {})
    folders = [
        write(tmp_path / name, head(tmp_path / name) + attack + "\nexec(text)\n")
        for name, attack in attacks.items()
    ]
    for name, card in zip(attacks, graded(folders), strict=True):
        says = card["exercises"][NAME]["says"]
        assert not card["exercises"][NAME]["passed"], name
        # A file that imports itself has no end.
        ends = "out of reach|read: No module|has no function|not written yet|RecursionError when"
        assert re.search(ends, says[0]), (name, says)
    assert SOLUTION.read_text("utf-8") == RIGHT


def test_other_exercises_cannot_be_forged(tmp_path: Path) -> None:
    write(tmp_path / "ben", "", "06_masks")
    (before,) = {(FOLDER / "test_06_masks.py").read_bytes()}
    folders = [
        write(tmp_path / name, head(tmp_path / name) + attack + "\n" + RIGHT)
        for name, attack in CHANGING.items()
    ]
    for name, card in zip(CHANGING, graded(folders), strict=True):
        (sentence,) = card["exercises"][NAME]["says"]
        assert "out of reach" in sentence or "No such file" in sentence, name
    assert (FOLDER / "test_06_masks.py").read_bytes() == before
    assert (tmp_path / "ben" / "ex_06_masks.py").read_text() == ""


def test_graders_and_the_library_and_all_folders_around_them_are_kept() -> None:
    """To rename a folder around them would put others in their place."""
    for folder in (guard.GRADERS, guard.LIBRARY):
        places = [folder, *(x.as_posix() for x in [*Path(folder).parents][:-1])]
        assert [place for place in places if not guard.is_kept(place)] == []
        assert guard.is_kept(f"{folder}/new.py")
        assert not guard.is_kept(f"{folder}2")
        assert not guard.is_kept(f"{Path(folder).parent.as_posix()}/other/new.py")
    for name, is_kept in {
        f"{guard.LIBRARY}/ops/softmax.py": True,
        f"{guard.LIBRARY}/ops/__pycache__/softmax.nbi": False,  # where Numba writes
        f"{guard.GRADERS}/__pycache__/test_06_masks.pyc": True,
        "/home/ann/ex_06_masks.py": True,
        "/home/ann/mine_ex_06_masks.py": False,
        "/home/ann/ex_06_masks.txt": False,
        "/home/ann": False,
    }.items():
        assert guard.is_kept(name) is is_kept, name


def test_graders_boxes_and_solutions_are_secret() -> None:
    """All of them, and of the other files of the folder none, because Python reads them."""
    for path in (*FOLDER.rglob("*.py"), FOLDER / "zh_CN" / "messages.po"):
        secret = path.name.startswith("test_") or path.name == "black_boxes.py"
        secret |= path.parent.name == "solutions"
        assert guard.is_secret(str(path), guard.place_of(path)) is secret, path


@pytest.mark.parametrize(
    "forged",
    [
        "import __main__\n__main__.graded = lambda name: __main__.Card([], 1)\n",
        "import os\nos.write(1, b'{\"passed\": 5}')\nos._exit(0)\n",
        "import sys, pytest\npytest.main = lambda *_, plugins: vars(plugins[0]).update(passed=9)\n",
        "import grading\ngrading.expect = grading.run = lambda *_: None\n",
    ],
)
def test_a_forged_file_passes_no_other_exercise(tmp_path: Path, forged: str) -> None:
    """Nor its own one, if a hole is left in it."""
    for path in FOLDER.glob("ex_*.py"):
        shutil.copy(path, tmp_path)
    half = (FOLDER / "ex_05_softmax.py").read_text("utf-8")
    half = half.replace("raise NotImplementedError", "return x", 1)
    write(tmp_path, forged + half)
    write(tmp_path, forged + (FOLDER / "ex_06_masks.py").read_text("utf-8"), "06_masks")
    (card,) = graded([tmp_path])
    assert card["passed"] == 0
    results = {name: exercise["result"] for name, exercise in card["exercises"].items()}
    assert "fail" in results.pop(NAME)
    assert set(results.values()) == {"not begun"}


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("def f(x):\n    raise NotImplementedError\n", ["f"]),
        ("def f(x):\n    '''Words.'''\n    raise NotImplementedError('later')\n", ["f"]),
        ("class A:\n    def f(self):\n        raise NotImplementedError()\n", ["A.f"]),
        ("class A:\n    def f(self):\n        f()\n        raise NotImplementedError\n", []),
        ("def f(x):\n    if x:\n        raise NotImplementedError\n    return x\n", []),
        ("def f(x):\n    raise ValueError\n", []),
        ("def f(:\n", []),
        ("x = '\0'\n", []),
    ],
)  # fmt: skip
def test_holes(text: str, right: list[str]) -> None:
    assert written.holes(text) == right


@pytest.mark.parametrize("path", sorted(FOLDER.glob("ex_*.py")), ids=lambda path: path.stem)
def test_the_text_of_a_solution_is_recognised(path: Path) -> None:
    """With other names and comments, too; the file with holes is not, nor is another solution."""
    solution = (FOLDER / "solutions" / path.name).read_text("utf-8")
    assert written.is_the_solution(path.name, [solution])
    hidden = re.sub(r"^( +)(\w+) = (.*)$", r"\1# mine\n\1\2 = \3", solution, flags=re.M)
    assert written.is_the_solution(path.name, ["x = 1\n" + hidden])
    untyped = ast.parse(solution)
    for node in ast.walk(untyped):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            for argument in node.args.args:
                argument.annotation = None
    assert written.is_the_solution(path.name, [ast.unparse(untyped)])
    assert not written.is_the_solution(path.name, [path.read_text("utf-8"), "def f(:"])
    others = set(FOLDER.glob("solutions/*.py")) - {FOLDER / "solutions" / path.name}
    assert not written.is_the_solution(path.name, [other.read_text("utf-8") for other in others])


def test_a_solution_is_named_however_it_is_hidden(tmp_path: Path) -> None:
    names = re.sub(r"\be\b", "powers", RIGHT.replace("grad", "upstream"))
    coded = f"import base64\nexec(base64.b64decode({base64.b64encode(RIGHT.encode())!r}))\n"
    own = RIGHT.replace("e / e.sum(axis=-1", "np.divide(1, 1 / e) / e.sum(axis=-1")
    texts = {"copied": RIGHT, "renamed": names, "coded": coded, "own": own}
    folders = [write(tmp_path / name, text) for name, text in texts.items()]
    cards = graded(folders)
    assert [card["exercises"][NAME]["passed"] for card in cards] == [True] * 4
    assert [card["as_in_the_solution"] for card in cards] == [[NAME]] * 3 + [[]]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("import pytest\npytest.fail = lambda *_: 0", ["pytest", "pytest.fail"]),
        ("from _pytest import runner as r\nr.call = 0", ["_pytest", "r.call"]),
        ("def f():\n    from grading import close", ["grading"]),
        ("from . import test_05_softmax", ["."]),
        ("import numpy as np\nnp.allclose = lambda *_: True", ["np.allclose"]),
        ("import numpy as np\nnp.linalg.norm = 0", ["np.linalg.norm"]),
        ("import numpy as np\nsetattr(np, 'allclose', 0)", ["setattr"]),
        ("import numpy as np\nnp.__dict__['allclose'] = 0", ["np.__dict__"]),
        ("import tinyattn as ta\nta.backend.sys.modules", ["ta.backend.sys"]),
        ("eval(open(p).read(), __builtins__)", ["__builtins__", "eval", "open"]),
        ("def f(x):\n    return f.__globals__", ["f.__globals__"]),
        ("from os import write", ["os"]),
        ("class A:\n    def f(self):\n        self.score = 1\n        self.eval().open()", []),
        ("import numpy as np\nscore, guard, test = np.zeros(3)\nscore[0] = 1", []),
        ("from __future__ import annotations\nimport numpy.random as r\nr.seed(0)", []),
        ("def f(:", []),
    ],
)
def test_what_reaches_the_grader_is_named(text: str, names: list[str]) -> None:
    assert written.reaching(text) == names


@pytest.mark.parametrize("path", sorted(FOLDER.glob("**/ex_*.py")), ids=lambda path: path.stem)
def test_no_exercise_reaches_its_grader(path: Path) -> None:
    assert written.reaching(path.read_text("utf-8")) == []


def test_a_forged_exercise_is_to_be_read(tmp_path: Path) -> None:
    """It is passed, because the file has changed pytest, and the card names it."""
    wrong = "def softmax(x):\n    return x\n\n\ndef softmax_backward(grad, out):\n    return out\n"
    forged = "import _pytest.python\n_pytest.python.Function.runtest = lambda self: None\n"
    write(tmp_path, forged + wrong)
    write(tmp_path, (FOLDER / "solutions" / "ex_06_masks.py").read_text("utf-8"), "06_masks")
    (card,) = graded([tmp_path])
    assert card["to_read"] == {NAME: ["_pytest", "_pytest.python.Function.runtest"]}


def test_a_black_box_tells_nothing() -> None:
    for box in (*black_boxes.BOXES.values(), black_boxes.attention_of("dropout")):
        assert not hasattr(box, "__closure__")
        assert not hasattr(box, "__dict__")
        told = repr(inspect.getmembers(box))
        assert not [defect for defect in black_boxes.DEFECTS[1:] if defect in told]


BOX = "15_bugs_that_train"
ASKING = [
    "return attention.__closure__[0].cell_contents",
    "return next(c.cell_contents for c in attention.__closure__ if type(c.cell_contents) is str)",
    "import black_boxes\n    return black_boxes.ANSWERS['box_1']",
    "import black_boxes\n    return black_boxes.INSIDE[attention].__closure__[0].cell_contents",
    "import sys\n    return sys._getframe(2).f_locals['right']",
    "import sys\n    return sys.modules['test_15_bugs_that_train'].ANSWERS['box_1']",
    "import sys\n    sys.modules.pop('black_boxes')\n    import black_boxes\n    return ''",
    "import gc\n    found = [x for x in gc.get_objects() if type(x) is dict and 'box_1' in x]\n"
    "    return next(x['box_1'] for x in found if type(x['box_1']) is str)",
]


def test_a_function_cannot_ask_what_a_box_is(tmp_path: Path) -> None:
    folders = [
        write(tmp_path / str(i), f"def diagnose(attention):\n    {attack}\n", BOX)
        for i, attack in enumerate(ASKING)
    ]
    for attack, card in zip(ASKING, graded(folders), strict=True):
        says = card["exercises"][BOX]["says"]
        assert card["exercises"][BOX]["result"] == "6 tests fail", attack
        assert re.match(r"diagnose raised|diagnose returns one of .*, not ", says[0]), says


def test_the_boxes_can_be_tried_in_the_file(tmp_path: Path) -> None:
    """What the exercise tells to try may stay in the file, and print() does no harm."""
    text = (FOLDER / "solutions" / f"ex_{BOX}.py").read_text("utf-8")
    tried = (
        "\nfrom black_boxes import BOXES\nprint('tried')\n"
        "X = np.random.default_rng(0).standard_normal((3, 3, 5, 8))\n"
        "assert differ(BOXES['box_1'](*X, causal=True), BOXES['box_2'](*X, causal=True))\n"
    )
    tried += (
        "_first = diagnose\ndef diagnose(attention):\n    print(1)\n    return _first(attention)\n"
    )
    write(tmp_path, text + tried, BOX)
    (card,) = graded([tmp_path])
    assert card["exercises"][BOX]["says"] == []
    assert card["exercises"][BOX]["passed"]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("exit()", "ends Python"),
        ("import os; os._exit(3)", "Python ended with code 3"),
        ("return attention(1, 2, 3)", "diagnose raised ValueError"),
        ("return 3", "not '3'"),
    ],
)
def test_what_goes_wrong_elsewhere_has_a_sentence(tmp_path: Path, body: str, sentence: str) -> None:
    write(tmp_path, f"def diagnose(attention):\n    {body}\n", BOX)
    (card,) = graded([tmp_path])
    says = card["exercises"][BOX]["says"]
    assert any(re.search(sentence, text) for text in says), says


@pytest.mark.parametrize("number", [0.1, -0.0, 1e300, np.inf, -np.inf, np.nan])
def test_a_box_gets_and_gives_every_number(number: float) -> None:
    """Also those that JSON has not: a box that is asked about a mask gets infinite scores."""
    stream, asked = io.StringIO(), []

    def box(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool) -> np.ndarray:
        asked.append((q, k, v, causal))
        return q + k

    elsewhere.write(stream, elsewhere.called(box, [[[number]], [[0.0]], [[1.0]]], True))
    stream.seek(0)
    answer = elsewhere.read(stream)
    np.testing.assert_array_equal(answer["out"], [[number]])
    ((q, k, v, causal),) = asked
    np.testing.assert_array_equal([q[0, 0], k[0, 0], v[0, 0], causal], [number, 0, 1, True])
    asking = io.StringIO()
    stream.seek(0)
    found = elsewhere.question("box_1", stream, asking)(q, k, v, causal=True)
    np.testing.assert_array_equal(found, [[number]])
    asking.seek(0)
    asked_for = elsewhere.read(asking)
    assert (asked_for["box"], asked_for["causal"]) == ("box_1", True)
    np.testing.assert_array_equal(asked_for["arrays"], [[[number]], [[0.0]], [[1.0]]])


@pytest.mark.parametrize(
    "loop", ["        pass", "        try: time.sleep(9)\n        except: pass"]
)
def test_a_loop_without_end_elsewhere_is_stopped(tmp_path: Path, loop: str) -> None:
    write(tmp_path, f"import time\ndef diagnose(attention):\n    while True:\n{loop}\n", BOX)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [*command, str(FOLDER / f"test_{BOX}.py"), "-k", "box_1"],
        env={**os.environ, "TINYATTN_EXERCISES": str(tmp_path), "TINYATTN_SECONDS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert re.search("no end after .* seconds|Python ended with code 1", run.stdout), run.stdout
