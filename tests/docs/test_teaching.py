"""What docs/teaching.md offers beside the exercises: an exam, and a page of one's own."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import student_copy

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ANSWERS = DOCS / "exercises" / "solutions" / "exam.md"
PAGE = (DOCS / "own_page.md").read_text("utf-8")


def heads(path: Path) -> list[tuple[int, ...]]:
    """The number, the page and the points of each question."""
    pattern = r"^\*\*(\d+)\*\* \(page (\d+), (\d+) points\)\. \S"
    found = re.findall(pattern, path.read_text("utf-8"), re.MULTILINE)
    return [tuple(map(int, numbers)) for numbers in found]


def test_forty_questions_have_an_answer_each() -> None:
    questions = heads(DOCS / "exam.md")
    assert [number for number, *_ in questions] == list(range(1, 41))
    assert heads(ANSWERS) == questions
    known = {int(path.name[:2]) for path in DOCS.glob("course/[0-9][0-9]_*.md")}
    assert {page for _, page, _ in questions} <= known
    titles = [re.findall("^## .*", p.read_text("utf-8"), re.M) for p in (DOCS / "exam.md", ANSWERS)]
    assert titles[0] == titles[1]


def test_the_answers_are_with_nobody_but_the_lecturer(tmp_path: Path) -> None:
    """Not in the copy for students, on a page of the site, in a notebook, or in a slide."""
    student_copy.copy(tmp_path / "copy")
    places = [tmp_path / "copy", DOCS, ROOT / "tinyattn"]
    answers = re.findall(r"^\*\*\d+\*\* \([^)]*\)\. ([^\n]*)", ANSWERS.read_text("utf-8"), re.M)
    assert len(answers) == 40
    for path in (path for place in places for path in place.rglob("*") if path != ANSWERS):
        if path.suffix in (".md", ".ipynb", ".py", ".po", ".txt", ".html", ".js"):
            text = path.read_text("utf-8", errors="replace")
            assert not [answer for answer in answers if answer in text], path


@pytest.mark.parametrize("page", sorted(DOCS.glob("course/[0-9]*.md")), ids=lambda path: path.stem)
def test_a_page_finds_its_files_in_the_copy(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel has no examples, so nothing is looked for beside the library."""
    text = page.read_text("utf-8")
    assert "ta.__file__).parents" not in text
    if "Path.cwd()" not in text:
        return
    student_copy.copy(tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    monkeypatch.setattr(sys, "path", list(sys.path))
    cells = re.findall(r"^```\{code-cell\}\n(?::.*\n)*(.*?)^```", text, re.M | re.S)
    names: dict[str, Any] = {}
    exec(next(cell for cell in cells if "Path.cwd()" in cell), names)
    assert tmp_path in names["root" if "root" in names else "folder"].parents
    read = re.findall(r'root / "([\w/.]+)"', text)
    assert not [path for path in read if not (tmp_path / "copy" / path).exists()]


def figures() -> list[tuple[str, str, dict[str, str]]]:
    """The file, the page and the options of each figure of a slide."""
    pattern = r"^```{page-figure} (.*)\n((?::.*\n)*)```"
    return [
        (path.stem, page, dict(re.findall(r"^:(\w+): (.*)", options, re.M)))
        for path in sorted(DOCS.glob("slides/*.md"))
        for page, options in re.findall(pattern, path.read_text("utf-8"), re.M)
    ]


def test_slides_of_six_weeks_show_figures_of_the_pages() -> None:
    pytest.importorskip("myst_nb", reason='Sphinx is not installed: pip install -e ".[docs]"')
    figures_of = runpy.run_path(str(DOCS / "slides" / "conf.py"))["figures_of"]
    found = figures()
    assert {week for week, *_ in found} == {f"week_{i}" for i in range(1, 7)}
    for week, page, options in found:
        number = int(options.get("number", 1))
        assert len(figures_of(page, options["under"])) >= number, (week, page)
        assert len(options["alt"]) > 30
    plan = re.findall(r"^\| (\d) \| ([\d, ]+)", (DOCS / "teaching.md").read_text("utf-8"), re.M)
    assert len(plan) == 6
    for week, pages in plan:
        text = (DOCS / "slides" / f"week_{week}.md").read_text("utf-8")
        assert text.count("\n## ") >= 7
        for page in re.findall(r"\d+", pages):
            assert re.search(rf"Page {page}\b", text), f"week {week} has no slide of page {page}"


def test_slides_are_shown_without_a_network(tmp_path: Path) -> None:
    reason = 'sphinx-revealjs is not installed: pip install -e ".[docs]"'
    pytest.importorskip("sphinx_revealjs", reason=reason)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "revealjs"]
    subprocess.run([*command, str(DOCS / "slides"), str(tmp_path)], check=True)
    for week in range(1, 7):
        page = (tmp_path / f"week_{week}.html").read_text("utf-8")
        assert page.count("<section") >= 8
        assert page.count('src="data:image/png') == [x for x, *_ in figures()].count(f"week_{week}")
        for address in re.findall(r'(?:src|rel="stylesheet"[^>]* href)="([^"?]*)', page):
            assert address.startswith("data:") or (tmp_path / address).is_file(), address


@pytest.fixture(scope="module")
def with_own_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository, with the page of docs/template in it, as own_page.md says it."""
    pytest.importorskip("myst_nb", reason='Sphinx is not installed: pip install -e ".[docs]"')
    root = tmp_path_factory.mktemp("own") / "clone"
    leave = shutil.ignore_patterns("_build", "__pycache__", "*.mo")
    for name in ("docs", "tests", "examples"):
        shutil.copytree(ROOT / name, root / name, ignore=leave)
    shutil.copytree(ROOT / "tinyattn", root / "tinyattn")  # with what Numba has compiled
    for path in (*ROOT.glob("*.md"), ROOT / "setup.cfg", ROOT / "pyproject.toml", ROOT / "LICENSE"):
        shutil.copy(path, root)
    add_own_page(root)
    return root


def add_own_page(root: Path) -> None:
    """Steps 1 to 3 of own_page.md. A reader's clone may have taken them already: the `each` of
    step 5 also selects this file, because it stands in "teaching"."""
    shutil.copytree(root / "docs" / "template", root, dirs_exist_ok=True)
    (line,) = re.findall(r"```text\n   (\d\d_\w+)\n", PAGE)
    index, conf = root / "docs" / "course" / "index.md", root / "docs" / "conf.py"
    if f"\n{line}\n" not in index.read_text("utf-8"):
        replace(index, "\nsteps\n", f"\n{line}\nsteps\n")
    (entry,) = re.findall(r"UNTRANSLATED = {\n *(.*)\n", PAGE)
    if entry not in conf.read_text("utf-8"):
        replace(conf, "UNTRANSLATED = {\n", f"UNTRANSLATED = {{\n    {entry}\n")


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), "utf-8")


def called(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "LANGUAGE": "en"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_page_of_ones_own(with_own_page: Path) -> None:
    """The commands of own_page.md, on the files that its tests are about."""
    (name,) = re.findall(r"python docs/notebooks.py (\w+)\n", PAGE)
    run = called(with_own_page, "docs/notebooks.py", name)
    assert run.returncode == 0, run.stderr
    for folder in ("notebooks", "notebooks/zh_CN"):
        assert (with_own_page / "docs" / folder / f"{name}.ipynb").is_file()
    (words,) = re.findall(r'pytest -m "" tests/docs -k "(.*)"', PAGE)
    files = ("docs", "exercises", "exercises_in_chinese", "minutes", "notebooks", "translations")
    paths = [f"tests/docs/test_{file}.py" for file in (*files, "wrong_answers")]
    # What is the same without the page takes long.
    others = ["--deselect=tests/docs/test_docs.py::test_examples_in_docstrings"]
    less = f"({words}) and not catalogue and not holes and not readme"
    run = called(with_own_page, "-m", "pytest", "-q", "-m", "", *paths, *others, "-k", less)
    assert run.returncode == 0, run.stdout
    assert "30_mean" in called(with_own_page, "docs/exercises/score.py").stdout


def test_a_clone_may_have_the_page_already(with_own_page: Path) -> None:
    """Else step 5 fails for everybody who took the steps before it."""
    paths = [with_own_page / "docs" / name for name in ("conf.py", "course/index.md")]
    before = [path.read_text("utf-8") for path in paths]
    add_own_page(with_own_page)
    assert [path.read_text("utf-8") for path in paths] == before
    assert all(text.count("30_mean") == 1 for text in before)


def test_what_is_forgotten_is_named(with_own_page: Path) -> None:
    """Each sentence of the table of own_page.md, from its own fault."""
    mistakes = "tests/docs/wrong_answers/30_mean.txt"
    faults = [
        ("docs/conf.py", '"course/30_mean": ', '"course/31_mean": '),
        ("docs/course/30_mean.md", "one row", "a row"),
        (mistakes, "- axis=0", "- axis=7"),
    ]
    others = [(mistakes, "~ this is the sum", "~ other")]
    more = [(mistakes, "+ words.sum(axis=0)", "+ words.mean(0)")]
    names = ("exercises_in_chinese", "notebooks", "translations", "wrong_answers")
    first = said_with(with_own_page, faults, *names)
    for sentence in ("translate these pages, or", "texts.po in step", "python docs/notebooks.py"):
        assert sentence in first
    assert "the solution has no 'axis=7'" in first
    assert "('the sum', ['this is the sum: divide" in said_with(
        with_own_page, others, "wrong_answers"
    )
    assert "the sum: passed" in said_with(with_own_page, more, "wrong_answers")


def said_with(root: Path, faults: list[tuple[str, str, str]], *names: str) -> str:
    """What the tests of these names print with faults in the files, which are then mended."""
    before = {path: (root / path).read_text("utf-8") for path, *_ in faults}
    for path, old, new in faults:
        replace(root / path, old, new)
    paths = [f"tests/docs/test_{name}.py" for name in names]
    words = "30_mean or every or each_text or are_in_step"
    run = called(root, "-m", "pytest", "-q", "-m", "", *paths, "-k", words)
    for path, text in before.items():
        (root / path).write_text(text, "utf-8")
    assert run.returncode == 1
    return run.stdout


def test_a_mistake_without_a_file_is_named(with_own_page: Path) -> None:
    path = with_own_page / "tests" / "docs" / "wrong_answers" / "30_mean.txt"
    text = path.read_text("utf-8")
    path.unlink()
    run = called(with_own_page, "-m", "pytest", "-q", "tests/docs/test_exercises.py", "-k", "every")
    path.write_text(text, "utf-8")
    assert "wrong_answers has a file for each exercise" in run.stdout
