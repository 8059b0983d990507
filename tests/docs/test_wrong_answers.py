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
from test_exercises import WRONG, test_one_mistake_is_told_once
from test_exercises_in_chinese import NO_SENTENCES, strings

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


def wrong_texts(name: str) -> Iterator[str]:
    """The file of each mistake that the tests have, in wrong_solutions and in wrong_answers."""
    solution = (FOLDER / "solutions" / f"ex_{name}.py").read_text("utf-8")
    (mark,) = test_one_mistake_is_told_once.pytestmark
    once = [change for other, *change in mark.args[1] if other == name]
    for right, wrong, _ in (*WRONG[name], *once):
        yield solution.replace(right, wrong)
    for _, text, _ in mistakes(name):
        yield text


# No test makes these mistakes: they take seconds, or they end other tests of the grader, or an
# earlier sentence names them.
NOBODY = {
    "02_an_engine": {"18 additions took {0} s: visit each node once"},
    "11_encoder": {"forward returns a Tensor, not {0}"},
    "13_own_attention": {"an encoder gives (2, 5, {0}), not {1}"},
    "15_bugs_that_train": {"nothing tells {0} from this box"},
    "17_make_it_yours": {"gives its gradient on unchanged"},
    "20_language_model": {"with top_p {0} the wrong ids stay"},
}


@pytest.mark.parametrize("name", WRONG)
def test_each_sentence_of_a_grader_is_said_to_somebody(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sentence that no mistake gets is one that a line before it hides, or that nobody tried."""
    monkeypatch.setenv("LANGUAGE", "en")
    texts = strings((FOLDER / f"test_{name}.py").read_text("utf-8")) - NO_SENTENCES
    left = {text for text in texts if " " in text and re.search("[a-z]{2}", text)}
    for wrong in wrong_texts(name):
        if left == NOBODY.get(name, set()):
            break
        (tmp_path / f"ex_{name}.py").write_text(wrong, "utf-8")
        said = "\n".join(sentences(name, tmp_path, monkeypatch))
        patterns = {text: re.sub(r"\\{\d\\}", "(.*?)", re.escape(text)) for text in left}
        left -= {text for text in left if re.search(patterns[text], said, re.DOTALL)}
    assert left == NOBODY.get(name, set())
