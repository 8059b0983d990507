"""The notebooks of the pages, in English and in Chinese, and what counts as another output."""

from __future__ import annotations

import importlib.util
import re
import sys
import types
from pathlib import Path

import pytest

pytest.importorskip("myst_nb", reason='Sphinx is not installed: pip install -e ".[docs]"')

import nbformat

DOCS = Path(__file__).parents[2] / "docs"
sys.path.append(str(DOCS))  # where docs/notebooks.py finds its neighbour
SPEC = importlib.util.spec_from_file_location("notebooks", DOCS / "notebooks.py")
NOTEBOOKS = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(NOTEBOOKS)
FOLDERS = NOTEBOOKS.FOLDER, NOTEBOOKS.CHINESE


@pytest.mark.parametrize(
    ("kept", "found"),
    [
        ("loss 0.456, 82.5% right", "loss 0.450, 82.4% right"),
        ("relative error 2e-16", "relative error 4.1e-15"),
        ("[ 2.  3. 13.]", "[ 2.        3.       13.000001]"),
        ("one by one 0.7 ms, 2.1 times as long", "one by one 30 ms, 1.4 times as long"),
        ("91,777 words", "91,777 words\n"),
    ],
)
def test_alike(kept, found):
    assert NOTEBOOKS.are_alike(kept, found)


@pytest.mark.parametrize(
    ("kept", "found"),
    [
        ("loss 0.456", "loss 0.52"),
        ("right: True", "right: False"),
        ("(32, 10, 512)", "(32, 10, 64)"),
        ("[1.0, 2.0]", "[1.0, 2.0, 3.0]"),
        ("error 2e-16", "error 2e-3"),
        ("91,777 words", "9,177 words"),
        ("selling", "sterman"),
        ("sum 1", "sum -1"),
        ("memory 3 MiB", "memory 4 MiB"),
    ],
)
def test_not_alike(kept, found):
    assert not NOTEBOOKS.are_alike(kept, found)


def test_streams_of_a_build_are_printed_once():
    def stream(text):
        return types.SimpleNamespace(text=text, get={"name": "stdout"}.get)

    parts = {"outputs": [stream("a\n"), stream("b\n")]}
    merged = {"outputs": [stream("a\nb\n"), stream("b\n")]}
    assert NOTEBOOKS.printed(parts, is_merged=False) == "a\nb\n"
    assert NOTEBOOKS.printed(merged, is_merged=True) == "a\nb\n"


def test_a_text_in_chinese_keeps_everything_but_its_messages():
    english = """# Title

A paragraph of
two lines, with `code`.

- item
- item that
  goes on

  and a text in it

| a | b | a |
| --- | --- | --- |
| `b` | b | a |

> quoted

![a picture](a.png)

<details><summary>Why
so?</summary>

Because.
</details>

```{code-cell}
a = "a"
# Title
```

unknown
"""
    messages = {
        "Title": "标题",
        "A paragraph of two lines, with `code`.": "一段，有 `code`。",
        "item": "项",
        "item that goes on": "一项",
        "and a text in it": "其中的文字",
        "a": "甲",
        "b": "乙",
        "quoted": "引用",
        "a picture": "图",
        "Why so?": "为什么？",
        "Because.": "因为。",
    }
    chinese = """# 标题

一段，有 `code`。

- 项
- 一项

  其中的文字

| 甲 | 乙 | 甲 |
| --- | --- | --- |
| `b` | 乙 | 甲 |

> 引用

![图](a.png)

<details><summary>为什么？</summary>

因为。
</details>

```{code-cell}
a = "a"
# Title
```

unknown
"""
    assert NOTEBOOKS.in_chinese(english, messages) == chinese


@pytest.mark.parametrize("name", sorted(NOTEBOOKS.pages()))
def test_a_chinese_notebook_has_all_words_of_its_page(name):
    page = NOTEBOOKS.pages()[name]
    text = NOTEBOOKS.source_of(page, NOTEBOOKS.CHINESE)
    # Alternative texts are options of cells, which a notebook has no place for.
    lines = re.findall(r"^:(?:alt:)?\s+(.*)$", page.read_text("utf-8"), re.MULTILINE)
    for english, chinese in NOTEBOOKS.messages_of(page).items():
        assert chinese in text or english in " ".join(lines), english


@pytest.mark.parametrize("folder", FOLDERS, ids=("en", "zh_CN"))
def test_the_notebooks_are_in_step_with_their_pages(folder):
    assert list(NOTEBOOKS.behind(NOTEBOOKS.pages(), folder)) == [], "python docs/notebooks.py"


SOFTMAX = NOTEBOOKS.pages()["05_softmax"]


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.parametrize(
    "change",
    [
        lambda notebook: notebook.cells[0].update(source="# other words"),
        lambda notebook: code_cells(notebook)[0].update(source="other = code"),
        lambda notebook: code_cells(notebook)[0].update(outputs=[]),
        lambda notebook: notebook.cells.pop(),
    ],
    ids=["words", "code", "outputs", "cells"],
)
def test_a_chinese_notebook_that_is_not_in_step_is_noticed(change, monkeypatch):
    read = nbformat.read

    def changed(path, version):
        notebook = read(path, version)
        if path.parent == NOTEBOOKS.CHINESE:
            change(notebook)
        return notebook

    assert NOTEBOOKS.is_in_step(SOFTMAX, NOTEBOOKS.CHINESE)
    monkeypatch.setattr(nbformat, "read", changed)
    assert not NOTEBOOKS.is_in_step(SOFTMAX, NOTEBOOKS.CHINESE)
    assert NOTEBOOKS.is_in_step(SOFTMAX, NOTEBOOKS.FOLDER)


@pytest.mark.parametrize("runs", [True, False])
def test_one_run_makes_both_notebooks(runs, monkeypatch):
    english = nbformat.read(NOTEBOOKS.FOLDER / "05_softmax.ipynb", 4)
    made, written = [], {}
    monkeypatch.setattr(NOTEBOOKS, "executed", lambda page: made.append(page) or english)
    monkeypatch.setattr(nbformat, "write", lambda notebook, path: written.update({path: notebook}))
    NOTEBOOKS.write(SOFTMAX, runs=runs)
    assert made == ([SOFTMAX] if runs else [])
    assert list(written) == [folder / "05_softmax.ipynb" for folder in FOLDERS]
    ours, theirs = written.values()
    assert [x.outputs for x in code_cells(ours)] == [x.outputs for x in code_cells(theirs)]
    assert "导数" in theirs.cells[0].source
    assert "derivative" in ours.cells[0].source


def test_outputs_are_not_kept_under_other_code():
    notebook = nbformat.read(NOTEBOOKS.FOLDER / "05_softmax.ipynb", 4)
    code_cells(notebook)[0].source += "\n1"
    with pytest.raises(SystemExit, match="05_softmax: its code has changed"):
        NOTEBOOKS.with_text_of(SOFTMAX, notebook, NOTEBOOKS.CHINESE)


@pytest.mark.parametrize("name", sorted(NOTEBOOKS.pages()))
def test_each_figure_has_an_alternative_text(name):
    """A sentence of its own that says what it shows, as the option :alt: of its cell."""
    page = NOTEBOOKS.pages()[name]
    cells = nbformat.read(NOTEBOOKS.FOLDER / f"{name}.ipynb", 4).cells
    draws = [
        any("image/png" in x.get("data", ()) for x in cell.outputs)
        for cell in cells
        if cell.cell_type == "code"
    ]
    fences = NOTEBOOKS.FENCE.finditer(page.read_text("utf-8"))
    code = [x[3] for x in fences if x[1] == "code-cell"]
    texts = [re.findall(r"^:alt: (.*\n(?::  .*\n)*)", lines, re.MULTILINE) for lines in code]
    assert [bool(text) for text in texts] == draws
    shown = [text[0] for text in texts if text]
    assert all(text.endswith(".\n") and len(text) > 60 for text in shown)
    assert len(set(shown)) == len(shown)
