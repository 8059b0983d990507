"""Copy the exercises for students: `python docs/exercises/student_copy.py FOLDER`.

The copy has the files with holes, their graders, the score card, the examples that pages import
and what page 22 reads, and no solutions. The paths in its files begin at the folder above it. The
graders look first whether all holes are there.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from pathlib import Path

from grading import print_in_any_encoding, say
from score import reports

EXERCISES = Path(__file__).parent
FOR_STUDENTS = ("ex_*.py", "test_*.py", "black_boxes.py", "conftest.py", "grading.py")
FOR_STUDENTS += ("elsewhere.py", "guard.py", "in_chinese.py", "score.py", "written.py")
FOLDERS = ("zh_CN", "induction_model")  # the second has the weights of exercise 20
FOR_PAGE_22 = ("README.md", "README_zh.md")


def copy(folder: Path) -> int:
    """Fill a new or empty folder, and return how many exercises it has."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} exists and is not empty: name a new folder")
    (card,) = reports([EXERCISES], 120)
    if "error" in card:
        raise ValueError(card["error"])
    for name, exercise in card["exercises"].items():
        if exercise["result"] != say("not begun"):
            path = EXERCISES / f"ex_{name}.py"
            raise ValueError(f"{path} is begun: students would get what you have written there")
    folder.mkdir(parents=True, exist_ok=True)
    for path in (path for pattern in FOR_STUDENTS for path in EXERCISES.glob(pattern)):
        shutil.copy(path, folder)
    for name in FOR_PAGE_22:
        shutil.copy(EXERCISES.parents[1] / name, folder)
    for name in FOLDERS:
        shutil.copytree(EXERCISES / name, folder / name)
    shutil.copytree(
        EXERCISES.parents[1] / "examples",
        folder / "examples",
        ignore=shutil.ignore_patterns("__pycache__", "record_attention.py"),  # makes pages
    )
    for path in (path for ending in ("py", "po") for path in folder.rglob(f"*.{ending}")):
        text = re.sub(r"docs/course/(\w+)\.md", r"\1", path.read_text("utf-8"))  # a page's name
        path.write_text(text.replace("docs/exercises", folder.resolve().name), "utf-8")
    return len(list(folder.glob("ex_*.py")))


if __name__ == "__main__":
    print_in_any_encoding()
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="a folder that does not exist or is empty")
    target = parser.parse_args().folder
    try:
        number = copy(target)
    except (FileExistsError, ValueError) as error:
        sys.exit(str(error))
    print(f"{number} exercises are in {target}; `python {target / 'score.py'}` grades them")
