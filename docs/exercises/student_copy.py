"""Copy the exercises for students: `python docs/exercises/student_copy.py FOLDER`.

The copy has the files with holes, their graders and the score card, and no solutions.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

EXERCISES = Path(__file__).parent
NOT_FOR_STUDENTS = ("solutions", Path(__file__).name, "__pycache__", ".*")


def copy(folder: Path) -> int:
    """Fill a new or empty folder, and return how many exercises it has."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} exists and is not empty: name a new folder")
    for path in sorted(EXERCISES.glob("ex_*.py")):
        if "raise NotImplementedError" not in path.read_text("utf-8"):
            raise ValueError(f"{path} has no hole: students would get what you have written there")
    ignore = shutil.ignore_patterns(*NOT_FOR_STUDENTS)
    shutil.copytree(EXERCISES, folder, ignore=ignore, dirs_exist_ok=True)
    return len(list(folder.glob("ex_*.py")))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="a folder that does not exist or is empty")
    target = parser.parse_args().folder
    try:
        number = copy(target)
    except (FileExistsError, ValueError) as error:
        sys.exit(str(error))
    print(f"{number} exercises are in {target}; `python {target / 'score.py'}` grades them")
