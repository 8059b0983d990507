"""Where the language is Chinese, the graders speak Chinese, and each text of an exercise can be put
into Chinese."""

from __future__ import annotations

import ast
import inspect
import io
import os
import re
import shutil
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from black_boxes import DEFECTS
from exercises import FOLDER, sentences
from grading import catalogue, chinese, run, say
from in_chinese import in_chinese

MESSAGES, TEXTS = catalogue("messages"), catalogue("texts")
SPEAKING = [FOLDER / name for name in ("conftest.py", "elsewhere.py", "grading.py")]
SPEAKING += [FOLDER / name for name in ("guard.py", "score.py", "written.py")]
# The exercise of a page that stands in UNTRANSLATED is in English, too.
# conf.py is read and not run, because it needs Sphinx.
(PAGES,) = (
    ast.literal_eval(line.value)
    for line in ast.parse((FOLDER.parent / "conf.py").read_text("utf-8")).body
    if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "UNTRANSLATED"
)
ENGLISH = {Path(page).name.partition("_")[0] for page in PAGES}
SPEAKING += sorted(x for x in FOLDER.glob("test_*.py") if x.stem.split("_")[1] not in ENGLISH)
STARTERS = sorted(x for x in FOLDER.glob("ex_*.py") if x.stem.split("_")[1] not in ENGLISH)
# Keys of dicts in graders, and code: these are not shown, or are the same in every language.
NO_SENTENCES = {
    *("no residual", "residual of the norm", "the other norm"),
    *("x + sublayer(norm(x))", "norm(x + sublayer(x))"),
    "reading from stdin",
    "is different from",
    "axes don't match array",
    r"could not be broadcast .*?\(([\d,]*)\) \(([\d,]*)\)",
    r"matmul: .*size (\d+) is different from (\d+)",
    'pytest is missing: pip install -e ".[test]"',  # said before the catalogue can be read
    r'^msgid (?!""\nmsgstr){0}msgstr {1}',
}


def docstrings(tree: ast.AST) -> list[ast.Constant]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = [node for node in ast.walk(tree) if isinstance(node, kinds)]
    return [node.body[0].value for node in nodes if ast.get_docstring(node) is not None]


def template(text: ast.JoinedStr) -> str:
    """An f-string with {0} and {1} for its values."""
    parts = [x.value if isinstance(x, ast.Constant) else None for x in text.values]
    return "".join(
        f"{{{parts[:i].count(None)}}}" if part is None else part for i, part in enumerate(parts)
    )


def strings(source: str) -> set[str]:
    """Every string but docstrings; f-strings as templates."""
    tree = ast.parse(source)
    joined = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    inside = [part for node in joined for part in node.values] + docstrings(tree)
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    whole = {node.value for node in constants if node not in inside and type(node.value) is str}
    return whole | {template(node) for node in joined}


def tokens(source: str) -> Iterator[tokenize.TokenInfo]:
    return tokenize.generate_tokens(io.StringIO(source).readline)


def texts(source: str) -> set[str]:
    """Docstrings, strings and comments."""
    documented = {inspect.cleandoc(node.value) for node in docstrings(ast.parse(source))}
    comments = {x.string.removeprefix("# ") for x in tokens(source) if x.type == tokenize.COMMENT}
    return documented | strings(source) | comments


def test_each_sentence_of_a_grader_is_translated() -> None:
    found = set().union(*(strings(path.read_text("utf-8")) for path in SPEAKING))
    spoken = {text for text in found if " " in text and re.search("[a-z]{2}", text)}
    assert spoken - NO_SENTENCES <= set(MESSAGES), "add these to docs/exercises/zh_CN/messages.po"
    assert set(MESSAGES) <= found - NO_SENTENCES, "nobody says these any more"


def test_each_text_of_an_exercise_is_translated() -> None:
    found = set().union(*(texts(path.read_text("utf-8")) for path in STARTERS))
    words = {text for text in found if re.search("[a-z]{2,},? [a-z]{2,}", text)} - set(DEFECTS)
    assert words == set(TEXTS), "bring docs/exercises/zh_CN/texts.po in step"


@pytest.mark.parametrize("name", ["messages", "texts"])
def test_translations_are_chinese_and_keep_values_and_code(name: str) -> None:
    for english, translated in catalogue(name).items():
        assert re.search("[一-鿿：]", translated), english
        values, code = r"{\d}", r"`[^`]+`|\w+_\w+"
        assert sorted(re.findall(values, english)) == sorted(re.findall(values, translated))
        assert set(re.findall(code, english, re.A)) <= set(re.findall(code, translated, re.A))


def test_a_sentence_with_values_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGUAGE", "zh_CN")
    for english, translated in MESSAGES.items():
        values = [f"<{i}>" for i in range(english.count("{"))]
        assert say(english.format(*values)) == translated.format(*values)
    assert say("ex.py has no class Tensor") == "ex.py 中没有类 Tensor"
    assert say("f raised E: f is not written yet\n") == "f 报错 E：f is not written yet\n"
    assert say("a sentence of nobody") == "a sentence of nobody"


@pytest.mark.parametrize(
    ("variables", "right"),
    [
        ({"LANG": "zh_CN.UTF-8"}, True),
        ({"LANGUAGE": "zh_CN:en", "LANG": "en_US.UTF-8"}, True),
        ({"LANGUAGE": "", "LC_ALL": "en_US.UTF-8", "LC_MESSAGES": "zh_CN", "LANG": "zh_CN"}, False),
        ({"LC_MESSAGES": "zh_CN", "LANG": "C"}, True),
        ({}, False),
    ],
)
def test_the_language(
    variables: dict[str, str], right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert chinese() is right


@pytest.mark.parametrize(
    ("language", "unwritten", "wrong"),
    [
        ("en", "softmax is not written yet", "columns sum to 1: sum over the last axis"),
        ("zh_CN", "softmax 还没有写", "各列之和为 1"),
    ],
)
def test_a_grader_speaks_the_language(
    language: str, unwritten: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANGUAGE", language)
    assert any(text.startswith(unwritten) for text in sentences("05_softmax", FOLDER, monkeypatch))
    solution = (FOLDER / "solutions" / "ex_05_softmax.py").read_text("utf-8")
    (tmp_path / "ex_05_softmax.py").write_text(solution.replace("axis=-1", "axis=0"), "utf-8")
    found = sentences("05_softmax", tmp_path, monkeypatch)
    assert any(text.startswith(wrong) for text in found), found


@pytest.mark.parametrize(("language", "times"), [("en", 0), ("zh_CN", 1)])
def test_how_to_translate_the_exercises_is_said_once(
    language: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANGUAGE", language)
    for _ in range(2):
        found = sentences("05_softmax", FOLDER, monkeypatch)
        assert len(found) > 1
        assert sum("in_chinese.py" in text for text in found) == times


# Each way in which a call fails: its body, and the words that stay as they are.
FAILING = {
    "pass": "f return",
    "raise NotImplementedError": "f `python docs/exercises/in_chinese.py`",
    "exit()": "f Python return exit() quit()",
    "raise ValueError('Wort')": "f ValueError Wort",
    "raise OSError('reading from stdin')": "f input()",
    "return np.ones((2, 3)) @ np.ones((2, 3))": "f ValueError A @ B A 3 B 2 .T",
    "return np.ones((2, 3, 4)).transpose(1, 2)": "f ValueError axes don't match array transpose"
    " NumPy swapaxes(1, 2)",
}


@pytest.mark.parametrize("body", FAILING)
def test_every_way_to_fail_is_said_in_chinese(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGUAGE", "zh_CN")
    monkeypatch.setattr("grading.said", set())
    names: dict[str, Any] = {}
    exec(f"import numpy as np\ndef f():\n    {body}\n", names)
    with pytest.raises(pytest.fail.Exception) as caught:
        run(names["f"])
    said = str(caught.value)
    assert re.search("[一-鿿]", said)
    assert set(re.findall("[A-Za-z]{2,}", said)) <= set(re.findall("[A-Za-z]{2,}", FAILING[body]))
    places = [said.find(word) for word in FAILING[body].split()]
    assert -1 not in places, said


def test_a_long_sentence_is_not_taken_for_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """ "{0} raised {1}: {2}" is a pattern of other sentences, too."""
    monkeypatch.setattr(
        "grading.catalogue",
        lambda name: {"{0} is {1}": "短{0}{1}", "{0} is {1}, not {2}": "长{0}{1}{2}", "one": "一"},
    )
    monkeypatch.setenv("LANGUAGE", "zh_CN")
    assert say("x is one, not 2") == "长x一2"
    assert say("x is one") == "短x一"
    assert say("one") == "一"


def test_values_of_a_sentence_are_translated_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANGUAGE", "zh_CN")
    solution = (FOLDER / "solutions" / "ex_05_softmax.py").read_text("utf-8")
    wrong = solution.replace("keepdims=True", "keepdims=False")
    (tmp_path / "ex_05_softmax.py").write_text(wrong, "utf-8")
    assert "softmax 报错 ValueError：operands" in "".join(
        text for text in sentences("05_softmax", tmp_path, monkeypatch) if "保留那个轴" in text
    )


@pytest.mark.parametrize("path", STARTERS, ids=lambda path: path.stem)
def test_only_texts_of_an_exercise_change(path: Path) -> None:
    english = path.read_text("utf-8")
    translated = in_chinese(english)
    assert texts(translated) == {TEXTS.get(text, text) for text in texts(english)}
    words = (tokenize.STRING, tokenize.COMMENT)
    code = [[x.string for x in tokens(y) if x.type not in words] for y in (english, translated)]
    assert code[0] == code[1]
    assert in_chinese(translated) == translated


def command(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    variables = {"TINYATTN_EXERCISES": str(folder), "LANGUAGE": "zh_CN", "PYTHONUTF8": "1"}
    return subprocess.run(
        [sys.executable, str(FOLDER / name)],
        env={**os.environ, **variables},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def test_the_commands(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    for name in ("in_chinese.py", "score.py"):
        assert f"没有文件夹 {folder}" in command(name, folder).stderr
    shutil.copytree(FOLDER, folder)
    shutil.copy(FOLDER / "solutions" / "ex_01_soft_lookup.py", folder)
    (folder / "ex_08_layer_norm.py").unlink()
    starter = folder / "ex_05_softmax.py"
    hole = "    raise NotImplementedError\n"
    starter.write_text(starter.read_text("utf-8").replace(hole, "    return x\n", 1), "utf-8")
    told = command("in_chinese.py", folder).stdout
    assert told == f"{folder} 中各个练习的说明现在是中文（改了 21 个文件）\n"
    assert "不会上溢的 softmax" in starter.read_text("utf-8")
    assert "    return x\n" in starter.read_text("utf-8")
    run = command("score.py", folder)
    rows = dict(line.split(maxsplit=1) for line in run.stdout.splitlines()[: len(STARTERS)])
    assert rows.pop("01_soft_lookup") == "已通过", run.stderr
    assert rows.pop("08_layer_norm") == "没有这个文件"
    assert re.fullmatch(r"\d 个测试未通过", rows.pop("05_softmax"))
    assert set(rows.values()) == {"未开始"}
    assert run.stdout.endswith(f"\n\n{len(STARTERS)} 个练习中通过了 1 个\n")
