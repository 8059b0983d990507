"""Each grader of docs/exercises is red on the holes, red with the right sentence on wrong
solutions, and green on the solution."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import grading
import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "exercises"
# What a wrong solution has instead of the right lines, and what the grader says of it.
WRONG = {
    "01_soft_lookup": [
        (" / np.sqrt(d)", "", "not divided by sqrt(d)"),
        ("np.sqrt(d)", "d", "divided by d, not by sqrt(d)"),
        ("axis=-1", "axis=0", "over the queries"),
        (" - scores.max(axis=-1, keepdims=True)", "", "subtract the maximum"),
        ("return weights @", "return (weights / 2) @", "not those of softmax"),
        ("e = np", "scores += np.arange(len(keys)) / 9\n    e = np", "in another order"),
        ("return weights @ values", "return weights", "give (3, 2), not (3, 5)"),
    ],
    "02_an_engine": [
        ("g @ b.T", "b @ g.T", "backward raised ValueError"),
        ("a.T @ g", "(g.T @ a).T * 2", "A.T @ G"),
        ("parent.grad + fit(", "fit(", "each use must be added"),
        ("order[::-1]", "order", "yours"),
        ("if id(node) not in found", "if True", "before it is complete, or twice"),
        ("if size == 1 and", "if False and", "gives shape"),
        ("grad.sum(0)", "grad[0]", "sum over what was broadcast"),
        ("fit(rule(node.grad), parent.data.shape)", "rule(node.grad)", "has a gradient (3,)"),
        ("self.grad = grad\n", "self.grad = grad\n        grad *= 1.5\n", "yours"),
    ],
    "04_gradcheck": [
        (
            "standard_normal(np.shape(function(x)))",
            "random(np.shape(function(x))) * 0 + 1",
            "plain mean",
        ),
        ("1e-6 * np.abs(slopes).max() + 1e-9", "1e-6", "make the tolerance relative"),
        ("1e-6 * np.abs(slopes).max() + 1e-9", "1e-4", "1e-5 sin(x)"),
        ("1e-6 * np.abs", "1e-2 * np.abs", "1 in 1,000"),
        ("x.astype(np.float64)", "x.copy()", "at a float32 x"),
        ("    x = x.astype(np.float64)\n", "    x += 1\n", "is_right changed x"),
        (".max()\n", ".min()\n", "in one element"),
        ("return bool", "return float", "True or False"),
    ],
    "05_softmax": [
        (" - x.max(axis=-1, keepdims=True)", "", "a score of 1000 gives nan: subtract the maximum"),
        ("x.max(axis=-1, keepdims=True)", "x.max()", "not that of the array"),
        ("e.sum(axis=-1, keepdims=True)", "e.sum()", "take the sum of each row"),
        ("e.sum(axis=-1, keepdims=True)", "e.sum(axis=0)", "columns sum to 1"),
        ("np.exp(x - x", "np.exp2(x - x", "are not exp(x) / sum(exp(x))"),
        ("    e = np", "    x -= 1\n    e = np", "softmax changed its argument"),
        ("(grad - (grad * out).sum(axis=-1, keepdims=True))", "grad", "must give 0: subtract"),
        ("grad * out).sum", "grad).mean", "a cotangent of ones cannot see it"),
    ],
    "06_masks": [
        ("keys <= keys", "keys < keys", "k <= i, not k < i"),
        ("keys <= keys[:, None]", "keys[:, None] <= keys", "sees a key behind it"),
        (
            "return no_padding[:, None, :] & no_future",
            "return ~(no_padding[:, None, :] & no_future)",
            "the mask is inverted",
        ),
        ("    shown = np", "    scores[~visible] = 0\n    shown = np", "changed its scores"),
        ("no_padding[:, None, :]", "no_padding", "visible_keys raised ValueError"),
        ("keys < lengths", "keys <= lengths", "length 0 has a visible key"),
        ("no_padding[:, None, :]", "no_padding[:, :, None]", "not queries"),
        ("np.where(total == 0, 1.0, total)", "total", "without visible keys gives nan"),
        ("scores, -np.inf", "scores, -1e9", "-1e9 get wrong weights"),
        ("    return e /", "    e = np.exp(scores) * visible\n    return e /", "NaN has influence"),
    ],
    "08_layer_norm": [
        (
            "(centred**2).mean(axis=-1, keepdims=True)\n",
            "x.var(axis=-1, ddof=1, keepdims=True)\n",
            "divided by d - 1",
        ),
        ("np.sqrt(variance + eps)", "(np.sqrt(variance) + eps)", "belongs under the root"),
        ("variance + eps", "variance", "sqrt(variance + eps)"),
        ("axis=-1", "axis=0", "take the mean of each row"),
        ("grad - ones - y", "grad - y", "points along ones"),
        (" - y * along_y", "", "points along x - mean"),
        (" / sigma\n    ones", "\n    ones", "points along x - mean"),
        ("along_y) / sigma", "along_y)", "divide by sqrt(variance + eps)"),
        ("y = centred / sigma", "y = layer_norm(x)", "with eps=0.5"),
    ],
    "18_published": [
        (" / np.maximum(norm, 1e-12)", "", "divide each by its norm"),
        ("np.arange(hidden.shape[1]) < lengths[:, None]", "hidden[..., 0] < 9", "takes in padding"),
        ("< lengths", "<= lengths", "not the means of the texts"),
        ("np.where(keep[:, :, None], hidden, 0)", "(keep[:, :, None] * hidden)", "0 * NaN is NaN"),
        ("np.maximum(lengths, 1)", "lengths", "length 0 has the point 0"),
        ("np.maximum(norm, 1e-12)", "norm", "length 0 has the point 0"),
        ("sum(axis=-1, keepdims=True)", "sum(keepdims=True)", "do not have norm 1"),
        ("(mean**2)", "(mean**4)", "do not have norm 1"),
        ("for name, ours in wanted.items()}", "for ours, name in zip(own, file)}", "is not"),
        ("return {ours: file", "return {name: file", "the names are"),
        (" and name not in IGNORED", "", "fitted raised ValueError"),
        ("if missing or unknown", "if missing", "a seventh layer is passed over"),
        ("if missing or unknown", "if unknown", "instead of a ValueError"),
        ("shape != own[ours].shape", "ndim != own[ours].ndim", "compare the shapes"),
        ("shape != own[ours].shape", "size != own[ours].size", "compare the shapes"),
    ],
}
EXERCISES = sorted(path.stem.removeprefix("test_") for path in FOLDER.glob("test_*.py"))


def sentences(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the grader says of the solution in this folder: one sentence for each failed test."""
    monkeypatch.setattr(grading, "FOLDER", folder)
    found = []
    for test, function in runpy.run_path(str(FOLDER / f"test_{name}.py")).items():
        if test.startswith("test_"):
            try:
                function()
            except pytest.fail.Exception as error:
                found.append(str(error))
    return found


def test_every_exercise_has_wrong_solutions() -> None:
    assert set(WRONG) == set(EXERCISES)
    assert all(len(changes) >= 3 for changes in WRONG.values())


@pytest.mark.parametrize("name", EXERCISES)
def test_holes_are_not_passed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert any("is not written yet" in text for text in sentences(name, FOLDER, monkeypatch))


@pytest.mark.parametrize("name", EXERCISES)
def test_the_solution_is_passed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sentences(name, FOLDER / "solutions", monkeypatch) == []


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


def test_the_score_card() -> None:
    run = subprocess.run(
        [sys.executable, str(FOLDER / "score.py")], capture_output=True, text=True, check=False
    )
    assert f"0 of {len(EXERCISES)} exercises are passed" in run.stdout, run.stderr
