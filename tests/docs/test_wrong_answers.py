"""Ten mistakes of every exercise of the course, written before anybody looked at its grader, get
their true cause in nine of ten. An exercise that is added has three or more. All that graders say
of them is in `verdicts`, as it was approved: a changed verdict is read before it is kept.

wrong_answers has a file for each exercise. A mistake has a title behind `==`, lines of the solution
behind `-`, what stands there instead behind `+`, and words of the true cause behind `~`. Where no
`~` stands, the grader refuses the mistake and does not name it.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from exercises import FOLDER, sentences
from test_exercises import WRONG, test_one_mistake_is_told_once
from test_exercises_in_chinese import NO_SENTENCES, strings

DATA = Path(__file__).parent / "wrong_answers"
VERDICTS = Path(__file__).parent / "verdicts"
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


def wrong_texts(name: str) -> dict[str, str]:
    """By a title, the file of each mistake that the tests have, in wrong_solutions and in
    wrong_answers."""
    solution = (FOLDER / "solutions" / f"ex_{name}.py").read_text("utf-8")
    (mark,) = test_one_mistake_is_told_once.pytestmark
    once = [change for other, *change in mark.args[1] if other == name]
    texts = {
        f"{right} -> {wrong}": solution.replace(right, wrong)
        for right, wrong, _ in (*WRONG.get(name, ()), *once)
    }
    return texts | {title: text for title, text, _ in mistakes(name)}


def verdicts(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """All that the grader says of each mistake."""
    monkeypatch.setenv("LANGUAGE", "en")
    found = {}
    for title, text in wrong_texts(name).items():
        (folder / f"ex_{name}.py").write_text(text, "utf-8")
        found[title] = sentences(name, folder, monkeypatch)
    return found


def approvable(found: dict[str, list[str]]) -> dict[str, list[str]]:
    """Fractions are "#", because rounding changes them, and so are words of NumPy and Python,
    because other versions write others."""
    fraction = r"-?\d+\.\d*(e[-+]\d+)?|-?\d+e[-+]\d+|\d+(?= KiB)"
    words = r"(raised \w+: ).*"
    return {
        title: [re.sub(fraction, "#", re.sub(words, r"\1#", text, flags=re.S)) for text in said]
        for title, said in found.items()
    }


# No test makes these mistakes: they take seconds, or they end other tests of the grader, or an
# earlier sentence names them.
NOBODY = {
    "11_encoder": {"forward returns a Tensor, not {0}"},
    "13_own_attention": {"an encoder gives (2, 5, {0}), not {1}"},
    "15_bugs_that_train": {"nothing tells {0} from this box"},
    "17_make_it_yours": {"gives its gradient on unchanged"},
}


@pytest.mark.parametrize("name", NAMES)
def test_nine_of_ten_mistakes_get_their_true_cause(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`PYTHONPATH=docs/exercises python tests/docs/test_wrong_answers.py` writes verdicts/ anew."""
    found = verdicts(name, tmp_path, monkeypatch)
    causes = [(title, words) for title, _, words in mistakes(name)]
    assert len(dict(causes)) == len(causes) >= (10 if name in WRONG else 3)
    for title, words in causes:
        assert found[title], f"{title}: passed"
        assert any(words in sentence for sentence in found[title]), (title, found[title])
    assert sum(bool(words) for _, words in causes) >= 0.9 * len(causes)
    if name not in WRONG:  # a page of one's own
        return
    approved = json.loads((VERDICTS / f"{name}.json").read_text("utf-8"))
    for title, said in approvable(found).items():
        assert said == approved.pop(title, None), title
    assert not approved
    # A sentence that no mistake gets is one that a line before it hides, or that nobody tried.
    texts = strings((FOLDER / f"test_{name}.py").read_text("utf-8")) - NO_SENTENCES
    all_said = "\n".join(text for said in found.values() for text in said)
    left = set()
    for text in texts:
        pattern = re.sub(r"\\{\d\\}", "(.*?)", re.escape(text))
        is_sentence = " " in text and re.search("[a-z]{2}", text)
        if is_sentence and not re.search(pattern, all_said, re.DOTALL):
            left.add(text)
    assert left == NOBODY.get(name, set())


if __name__ == "__main__":
    VERDICTS.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        for name in WRONG:
            said = approvable(verdicts(name, Path(folder), patch))
            text = json.dumps(said, ensure_ascii=False, indent=1)
            (VERDICTS / f"{name}.json").write_text(text + "\n", "utf-8")
