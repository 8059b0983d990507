"""How long the pages of the course take, where they say it: 49 words of text and code a minute."""

from __future__ import annotations

import importlib.util
import re
import runpy
import sys
from pathlib import Path

import pytest

pytest.importorskip("nbclient", reason='nbclient is not installed: pip install -e ".[docs]"')
DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS))
SPEC = importlib.util.spec_from_file_location("notebooks", DOCS / "notebooks.py")
NOTEBOOKS = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(NOTEBOOKS)
WORDS_A_MINUTE = 49  # of students who run the code and change it
# On page 2 the engine is typed, line by line.
MORE = {"02": 25}
SECOND_PARTS = {"11": "deep_encoders.md"}
# The plan of a course does not name the pages of one class, which docs/own_page.md is about.
OWN = runpy.run_path(str(DOCS / "conf.py"))["UNTRANSLATED"]
PAGES = [x for x in sorted(DOCS.glob("course/[0-9]*.md")) if f"course/{x.stem}" not in OWN]
TEXT = {path.name[:2]: path.read_text("utf-8") for path in PAGES}


def measured(path: Path) -> float:
    """The minutes of a page, with the code that it shows of other files."""
    words = sum(len(text.split()) for _, text in NOTEBOOKS.cells_of(path, NOTEBOOKS.FOLDER))
    return words / WORDS_A_MINUTE + MORE.get(path.name[:2], 0)


def said(page: str) -> tuple[int, int]:
    """The minutes of a page and of its exercise, as the page says them."""
    found = re.search(r"^(\d+) minutes, and (\d+) for the exercise", TEXT[page], re.MULTILINE)
    assert found, "write how long it takes: 40 minutes, and 20 for the exercise"
    return int(found[1]), int(found[2])


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_says_how_long_it_takes(path):
    page = path.name[:2]
    reading, exercise = said(page)
    assert abs(reading - measured(path)) <= 4, measured(path)
    assert reading % 5 == 0
    index = (DOCS / "course/index.md").read_text("utf-8")
    row = re.search(rf"\({path.name}\)[^|]*\| (\d+) \| .*, (\d+) minutes \|", index)
    assert row, "docs/course/index.md has no row of this page with the minutes of both"
    assert (int(row[1]), int(row[2])) == (reading, exercise)
    teaching = (DOCS / "teaching.md").read_text("utf-8")
    assert re.search(rf"^\| {int(page)} .* \| {exercise} \|$", teaching, re.MULTILINE), (
        "docs/teaching.md has no row of this exercise with its minutes"
    )


@pytest.mark.parametrize("page", SECOND_PARTS)
def test_a_second_part_says_how_long_it_takes(page):
    path = DOCS / "course" / SECOND_PARTS[page]
    reading = both(page)[0] - said(page)[0]
    assert abs(reading - measured(path)) <= 4, measured(path)
    index = (DOCS / "course/index.md").read_text("utf-8")
    assert re.search(rf"\({path.name}\) \| {reading} \|", index)


def both(page: str) -> tuple[int, int]:
    """The minutes of a page with its second part, and of the exercise."""
    reading, exercise = said(page)
    if page in SECOND_PARTS:
        text = (DOCS / "course" / SECOND_PARTS[page]).read_text("utf-8")
        reading += int(re.search(r"^(\d+) minutes; the exercise is", text, re.MULTILINE)[1])
    return reading, exercise


def hours(minutes: int) -> str:
    return f"{minutes / 60 + 1e-9:.1f}"


def test_the_hours_of_the_six_weeks_are_sums_of_the_minutes():
    teaching = (DOCS / "teaching.md").read_text("utf-8")
    total = [sum(both(page)[i] for page in TEXT) for i in (0, 1)]
    assert (
        f"Reading all pages takes {hours(total[0])} hours, and the exercises {hours(total[1])}."
        in teaching
    )
    rows = re.findall(r"^\| \d \| ([^|]+) \| ([^|]+) h \| ([^|]+) h \|", teaching, re.MULTILINE)
    assert len(rows) == 6
    for pages, *stated in rows:
        always, _, one_of = pages.partition(", and ")
        fixed = re.findall(r"\d+", always)
        choices = re.findall(r"\d+", one_of) or [None]
        for i, text in enumerate(stated):
            sums = [
                sum(both(f"{int(page):02d}")[i] for page in [*fixed, *filter(None, [choice])])
                for choice in choices
            ]
            lowest, highest = hours(min(sums)), hours(max(sums))
            assert text == (lowest if lowest == highest else f"{lowest} to {highest}")
