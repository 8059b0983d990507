"""Ten mistakes of every exercise of the course, written before anybody looked at its grader, get
their true cause in nine of ten. An exercise that is added has three or more.

wrong_answers has a file for each exercise. A mistake has a title behind `==`, lines of the solution
behind `-`, what stands there instead behind `+`, and words of the true cause behind `~`. Where no
`~` stands, the grader refuses the mistake and does not name it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from exercises import FOLDER, sentences
from test_exercises import WRONG

DATA = Path(__file__).parent / "wrong_answers"
NAMES = sorted(path.stem for path in DATA.glob("*.txt"))
pytestmark = pytest.mark.extended


def mistakes(name: str) -> Iterator[tuple[str, str, str]]:
    """The title, the wrong text and the words of each mistake."""
    solution = (FOLDER / "solutions" / f"ex_{name}.py").read_text("utf-8")
    for block in re.split("^== ", (DATA / f"{name}.txt").read_text("utf-8"), flags=re.M)[1:]:
        title, *lines = block.splitlines()
        changes = "\n".join(line for line in lines if line[0] in "-+")
        text = solution
        for part in re.findall(r"(?:^-.*\n?)+(?:^\+.*\n?)+", changes, re.M):
            old, new = (
                "\n".join(line[2:] for line in part.splitlines() if line[0] == sign)
                for sign in "-+"
            )
            assert old in text, f"{name}, {title}: the solution has no {old!r}"
            text = text.replace(old, new)
        yield title, text, "".join(line[2:] for line in lines if line[0] == "~")


@pytest.mark.parametrize("name", NAMES)
def test_nine_of_ten_mistakes_get_their_true_cause(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANGUAGE", "en")
    found = list(mistakes(name))
    assert len(found) >= (10 if name in WRONG else 3)
    for title, text, words in found:
        (tmp_path / f"ex_{name}.py").write_text(text, "utf-8")
        said = sentences(name, tmp_path, monkeypatch)
        assert said, f"{title}: passed"
        assert any(words in sentence for sentence in said), (title, said)
    assert sum(bool(words) for *_, words in found) >= 0.9 * len(found)
