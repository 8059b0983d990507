"""Each grader of docs/exercises is red on the holes, red with the right sentence on wrong
solutions, and green on the solution.

`wrong_solutions` has a file for each exercise of the course, whose pages are translated.
"""

from __future__ import annotations

import ast
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from exercises import EXERCISES, FOLDER, english, sentences  # noqa: F401

LISTS = {
    path.stem: runpy.run_path(str(path))
    for path in sorted((Path(__file__).parent / "wrong_solutions").glob("*.py"))
}
WRONG: dict[str, Any] = {name: x["WRONG"] for name, x in LISTS.items() if "WRONG" in x}
# The pages of docs/own_page.md. conf.py is read and not run, because it needs what builds the docs.
CONF = ast.parse((FOLDER.parent / "conf.py").read_text("utf-8")).body
OF_ONE_CLASS = next(
    ast.literal_eval(line.value)
    for line in CONF
    if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "UNTRANSLATED"
)
ALSO_RIGHT = {name: x["ALSO_RIGHT"] for name, x in LISTS.items() if "ALSO_RIGHT" in x}
WEIGHTED = "        return self.W_o(out"  # in exercise 13, after the line of the attention
BY_HAND = [
    ("queries.shape[2] ** 0.5", -1, "divided by sqrt(size), not by sqrt(d)"),
    ("q.shape[3]", -1, "divide them once by sqrt(d)"),
    ("1", -1, "the scores are not divided by sqrt(d)"),
    ("q.shape[3] ** 0.5", 2, "sum to 1 over the queries"),
    ("q.shape[3] ** 0.5", 1, "sum to 1 over the heads"),
    ("q.shape[3] ** 0.5", 0, "sum to 1 over the samples"),
]


def by_hand(divisor: str, dim: int) -> str:
    """Exercise 13 with softmax in place of the library's attention."""
    return (
        "        scores = q @ k.transpose(2, 3) + self.position_scores(q, k.shape[2])\n"
        f"        self.weights = F.softmax(scores / ({divisor}), dim={dim})\n"
        f"        out = self.weights @ v\n{WEIGHTED}"
    )


def test_every_exercise_has_wrong_solutions() -> None:
    mistakes = {path.stem for path in Path(__file__).parent.glob("wrong_answers/*.txt")}
    assert mistakes == set(EXERCISES), "tests/docs/wrong_answers has a file for each exercise"
    assert set(WRONG) <= set(EXERCISES), "these exercises do not exist"
    numbers = {page.removeprefix("course/")[:2] for page in OF_ONE_CLASS}
    missing = [name for name in set(EXERCISES) - set(WRONG) if name[:2] not in numbers]
    assert missing == [], "tests/docs/wrong_solutions has a file for each exercise of the course"
    assert all(len(changes) >= 3 for changes in WRONG.values())


@pytest.mark.parametrize("name", EXERCISES)
def test_holes_are_not_passed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert any("is not written yet" in text for text in sentences(name, FOLDER, monkeypatch))


@pytest.mark.parametrize("name", EXERCISES)
def test_the_solution_is_passed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sentences(name, FOLDER / "solutions", monkeypatch) == []


@pytest.mark.parametrize(
    ("name", "right", "other"),
    [(name, *change) for name, changes in ALSO_RIGHT.items() for change in changes],
)
def test_another_right_solution_is_passed(
    name: str, right: str, other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    solution = (FOLDER / "solutions" / f"ex_{name}.py").read_text("utf-8")
    assert right in solution
    (tmp_path / f"ex_{name}.py").write_text(solution.replace(right, other), "utf-8")
    assert sentences(name, tmp_path, monkeypatch) == []


@pytest.mark.parametrize(
    ("name", "right", "wrong", "sentence"),
    [(name, *change) for name, changes in WRONG.items() for change in changes],
)
def test_a_wrong_solution_is_told_why(
    name: str,
    right: str,
    wrong: str,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    solution = (FOLDER / "solutions" / f"ex_{name}.py").read_text("utf-8")
    assert right in solution
    (tmp_path / f"ex_{name}.py").write_text(solution.replace(right, wrong), "utf-8")
    found = sentences(name, tmp_path, monkeypatch)
    assert any(sentence in text for text in found), found


@pytest.mark.parametrize(
    ("name", "right", "wrong", "sentence"),
    [
        *((name, *change) for name, x in LISTS.items() for change in x.get("ONCE", ())),
        ("05_softmax", "e.sum(axis=-1, keepdims=True)", "e.sum()", "take the sum of each row"),
        ("06_masks", "keys <= keys[:, None]", "keys[:, None] <= keys", "sees a later key"),
        ("07_scoring", "W_k) @ w_v", "W_k).swapaxes(1, 2) @ w_v", "rows are keys, and columns are"),
        (
            "08_layer_norm",
            "(centred**2).mean(axis=-1, keepdims=True)\n",
            "x.var(axis=-1, ddof=1, keepdims=True)\n",
            "divided by d - 1",
        ),
        ("08_layer_norm", "np.sqrt(variance + eps)", "(variance + eps)", "the root is forgotten"),
        ("08_layer_norm", "variance + eps)", "variance)", "sqrt(variance + eps)"),
        (
            "08_layer_norm",
            "    variance = (centred**2).mean(axis=-1, keepdims=True)",
            "    centred, variance = x - x.mean(), x.var()",
            "the mean is that of the whole array",
        ),
        (
            "08_layer_norm",
            "variance = (centred**2).mean(axis=-1, keepdims=True)",
            "variance = x.var()",
            "of the whole array",
        ),
        (
            "08_layer_norm",
            "variance = (centred**2).mean(axis=-1, keepdims=True)",
            "variance = (centred**2).mean()",
            "of the whole array",
        ),
        ("08_layer_norm", " - y * along_y", "", "subtract y * mean(grad * y)"),
        ("08_layer_norm", "- y * along_y", "+ y * along_y", "subtract y * mean(grad * y)"),
        ("08_layer_norm", "along_y) / sigma", "along_y)", "divide by sqrt(variance + eps)"),
        (
            "08_layer_norm",
            "y * along_y",
            "x * (grad * x).mean(axis=-1, keepdims=True)",
            "x is in place of y",
        ),
        ("08_layer_norm", "= grad.mean(", "= grad.sum(", "means of rows, not sums"),
        ("08_layer_norm", "(grad * y).mean(", "(grad * y).sum(", "means of rows, not sums"),
        (
            "08_layer_norm",
            "grad - ones - y * along_y",
            "grad - 5 * ones - 5 * y * along_y",
            "means of rows, not sums",
        ),
        ("09_heads", " / np.sqrt(q.shape[-1])", "", "the scores are not divided by sqrt(d)"),
        ("09_heads", "queries @ W_q.T", "queries @ W_q", ".T is missing at W_q"),
        ("09_heads", "values @ W_v.T", "values @ W_k.T", "projected by W_k, not by W_v"),
        ("11_encoder", "(y, y, y, mask=mask)", "(y, y, x, mask=mask)", 'norm="pre" is not'),
        ("11_encoder", "(x, x, x, mask=mask)", "(x, x, x)", 'norm="post": padding has influence'),
        ("12_training_loop", "sum(count(targets) for", "sum(len(targets) for", "13 positions"),
        (
            "12_training_loop",
            "        loss += part.item()\n",
            "        loss += part.item()\n        optimizer.step()\n",
            "the optimizer makes 4 steps",
        ),
        *(("13_own_attention", WEIGHTED, by_hand(*how), text) for *how, text in BY_HAND),
        ("13_own_attention", "distance.clip(-farthest, farthest)", "distance", "clip the distance"),
        ("13_own_attention", " + farthest", "", "from the end of r"),
        (
            "13_own_attention",
            "return with_each[:, :, rows, distance_numbers(q.shape[2], keys, self.farthest)]",
            "numbers = distance_numbers(q.shape[2], keys, self.farthest)\n"
            "        return with_each[:, :, rows, numbers] / q.shape[3] ** 0.5",
            "not yet divided by sqrt(d)",
        ),
        (
            "13_own_attention",
            "out.transpose(1, 2).flatten(2)",
            "out.reshape(queries.shape)",
            "joined without transpose(1, 2)",
        ),
        (
            "13_own_attention",
            "self.r.transpose",
            "self.r.detach().transpose",
            "r gets no gradient: something detaches it",
        ),
        (
            "14_decoder",
            "c = np.cumsum(p)\n    return int((c <= u * c[-1]).sum())",
            "c = np.cumsum(p[best])\n    return int(best[(c <= u * c[-1]).sum()])",
            "in the order of the ids",
        ),
        ("16_kernels", "total * shrink + e.sum", "e.sum", "total forgets the tiles before"),
        ("16_kernels", "e.sum(axis=1)", "e.mean(axis=1)", "total of the first tile is not"),
        (
            "16_kernels",
            "    new_top = np",
            "    if top[0] == -np.inf:\n"
            "        e = np.exp(scores)\n"
            "        return scores.max(axis=1), e.sum(axis=1), e @ values\n"
            "    new_top = np",
            "total is the sum of exp(score), not of",
        ),
        (
            "16_kernels",
            "np.where(new_top == -np.inf, 0.0, new_top)",
            "np.maximum(new_top, -100)",
            "scores of -1e10 give a wrong",
        ),
        ("16_kernels", "return out / total[:, None]", "return out", "not divided by total"),
        ("19_learning", "np.sqrt(v_hat)", "np.sqrt(v)", "v is not corrected"),
        ("20_language_model", "i - period + 1]", "i - period]", "of the earlier copy itself"),
        ("20_language_model", " / np.sqrt(q.shape[1])", "", "not divided by sqrt(d)"),
        (
            "20_language_model",
            "(logits - logits.max()) / temperature",
            "logits - logits.max()",
            "the temperature has no influence",
        ),
        (
            "22_own_language_model",
            "(1 + np.cos(np.pi * progress)) / 2",
            "(1 - progress)",
            "this falls along a line",
        ),
    ],
)
def test_one_mistake_is_told_once(
    name: str,
    right: str,
    wrong: str,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No second sentence names another cause."""
    solution = (FOLDER / "solutions" / f"ex_{name}.py").read_text("utf-8")
    assert right in solution
    (tmp_path / f"ex_{name}.py").write_text(solution.replace(right, wrong), "utf-8")
    (found,) = sentences(name, tmp_path, monkeypatch)
    assert sentence in found


def test_the_command_of_the_pages() -> None:
    name = EXERCISES[0]
    for folder, status in ((FOLDER, 1), (FOLDER / "solutions", 0)):
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
        run = subprocess.run(
            [*command, str(FOLDER / f"test_{name}.py")],
            env={**os.environ, "TINYATTN_EXERCISES": str(folder)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == status, run.stdout + run.stderr
