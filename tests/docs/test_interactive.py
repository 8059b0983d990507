"""The figures that a reader changes show the right numbers, with scripts and without.

Chromium opens a figure as a page, a small script clicks in it, and the page that results is read.
"""

from __future__ import annotations

import argparse
import contextlib
import html
import io
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

DOCS = Path(__file__).parents[2] / "docs"
NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")


def cells_of(page: str) -> dict:
    """The names that the cells of a page leave."""
    namespace: dict = {}
    text = (DOCS / "course" / page).read_text("utf-8")
    for cell in re.findall(r"```\{code-cell\}\n(.*?)```", text, re.DOTALL):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(re.sub(r"^:.*\n", "", cell), page, "exec"), namespace)
    return namespace


def after(figure: str, script: str, folder: Path) -> str:
    """The page with a figure, after a script has run in it."""
    figure = figure.replace("../_static", (DOCS / "_static").as_uri())
    page = folder / "page.html"
    page.write_text(
        f"<!doctype html><meta charset=utf-8>{figure}<script>{script}</script>", "utf-8"
    )
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
               f"--user-data-dir={folder / 'profile'}", page.as_uri()]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.partition("<script>" + script[:20])[0]


def numbers_of(page: str, step: str) -> np.ndarray:
    table = re.search(rf'<table data-step="{step}">.*?</table>', page, re.DOTALL)
    assert table, f"no table of {step}"
    rows = re.findall(r"<tr>(.*?)</tr>", table[0], re.DOTALL)[1:]
    cells = [[re.sub("<.*?>", "", td) for td in re.findall("<td.*?</td>", row)] for row in rows]
    plain = [[html.unescape(x).replace("−", "-").replace("∞", "inf") for x in row] for row in cells]
    return np.array(plain, float)


def attention(names: dict, divisor: float, visible: np.ndarray) -> dict[str, np.ndarray]:
    """The four steps in NumPy; a row without visible keys has weights of 0."""
    scores = names["queries"] @ names["keys"].T / divisor
    e = np.where(visible, np.exp(scores), 0)
    weights = e / np.where(visible.any(-1, keepdims=True), e.sum(-1, keepdims=True), 1)
    masked = np.where(visible, scores, -np.inf)
    output = weights @ names["values"]
    return {"scores": scores, "masked": masked, "weights": weights, "output": output}


def check(page: str, expected: dict[str, np.ndarray]) -> None:
    for step, numbers in expected.items():
        # Two decimals are shown.
        np.testing.assert_allclose(numbers_of(page, step), numbers, atol=0.00501, err_msg=step)


CAUSAL = np.tril(np.ones((4, 4), bool))


def test_steps_without_scripts():
    names = cells_of("steps.md")
    page = names["figure"](names["divisor"], names["causal"])._repr_html_()
    check(page, attention(names, 2, CAUSAL))


def hidden(*places: tuple[int, int]) -> np.ndarray:
    visible = np.ones((4, 4), bool)
    visible[tuple(np.transpose(places))] = False
    return visible


CLICK = "document.querySelectorAll('[data-step=masked] td button')[{}].click();"
BUTTON = "document.querySelectorAll('.controls button')[{}].click();"
SLIDE = """const slider = document.querySelector('input');
slider.value = {}; slider.dispatchEvent(new Event('input'));"""


@needs_chromium
@pytest.mark.parametrize(
    ("script", "divisor", "visible"),
    [
        pytest.param("", 2, CAUSAL, id="at first"),
        pytest.param(SLIDE.format(0.75), 0.75, CAUSAL, id="slider"),
        pytest.param(BUTTON.format(0), 2, np.ones((4, 4), bool), id="every key visible"),
        pytest.param(BUTTON.format(0) + BUTTON.format(1), 2, CAUSAL, id="causal"),
        pytest.param(BUTTON.format(2), 2, hidden(*((i, 3) for i in range(4))), id="padding"),
        pytest.param(
            BUTTON.format(0) + "".join(map(CLICK.format, [2, 13, 2])) + SLIDE.format(5),
            5, hidden((3, 1)), id="clicks and slider",
        ),
        pytest.param(CLICK.format(0), 2, CAUSAL & hidden((0, 0)), id="a row without keys"),
    ],
)  # fmt: skip
def test_steps(script, divisor, visible, tmp_path):
    names = cells_of("steps.md")
    figure = names["figure"](names["divisor"], names["causal"])._repr_html_()
    page = after(figure, script, tmp_path)
    expected = attention(names, divisor, visible)
    check(page, expected)
    assert f'<output class="divisor">{divisor:.2f}</output>' in page
    moved = re.findall(r'class="output" transform="translate\(([-.\d]+) ([-.\d]+)\)"', page)
    np.testing.assert_allclose(np.array(moved, float) * [1, -1], expected["output"], atol=1e-9)


def weights_shown(page: str) -> np.ndarray:
    """(layers, heads, T): what the tables of the microscope say of one query."""
    tables = re.findall(r'<table data-layer="\d">.*?</table>', page, re.DOTALL)
    rows = [re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)[1:] for table in tables]
    return np.array([[re.findall(r"<td.*?>(\d+)</td>", row) for row in of] for of in rows], int)


def test_the_recorded_weights_are_weights():
    record = cells_of("microscope.md")["record"]
    for word in [*record["words"], *record["film"]["frames"]]:
        weights = np.array(word["weights"])
        assert weights.shape[:2] == (4, 4)
        assert weights.shape[2] == weights.shape[3]
        # Each weight is rounded by half a hundredth at most.
        assert np.abs(weights.sum(-1) - 100).max() <= weights.shape[3] / 2
    steps = [frame["step"] for frame in record["film"]["frames"]]
    assert steps == sorted(set(steps))
    assert (steps[0], steps[-1]) == (1, record["steps"])
    last = record["film"]["frames"][-1]["weights"]
    assert (
        last == next(w for w in record["words"] if w["word"] == record["film"]["word"])["weights"]
    )


def test_the_recorder_writes_what_the_page_reads(tmp_path, monkeypatch):
    """Three steps, instead of minutes of training."""
    pytest.importorskip("tqdm", reason="the examples need tqdm")
    monkeypatch.syspath_prepend(str(DOCS.parent / "examples"))
    import record_attention

    settings = {**vars(record_attention.SETTINGS), "steps": 3, "out": tmp_path, "d_model": 16}
    monkeypatch.setattr(record_attention, "SETTINGS", argparse.Namespace(**settings))
    monkeypatch.setattr(record_attention, "RECORD", tmp_path / "record.json")
    record_attention.main()
    made = json.loads((tmp_path / "record.json").read_text("utf-8"))
    kept = cells_of("microscope.md")["record"]
    assert made.keys() == kept.keys()
    for new, old in zip(made["words"], kept["words"], strict=True):
        assert all(new[name] == old[name] for name in ("word", "phonemes", "truth"))
        assert np.shape(new["weights"]) == np.shape(old["weights"])
        assert np.abs(np.sum(new["weights"], -1) - 100).max() <= len(new["phonemes"]) / 2
    assert [frame["step"] for frame in made["film"]["frames"]] == [1, 2, 3]
    assert made["film"]["frames"][-1]["weights"] == made["words"][0]["weights"]


def test_microscope_without_scripts():
    names = cells_of("microscope.md")
    page = names["microscope"](names["record"]["words"], query=4)._repr_html_()
    expected = np.array(names["record"]["words"][0]["weights"])[:, :, 4]
    np.testing.assert_array_equal(weights_shown(page), expected)


def both_figures(names: dict) -> str:
    """As they stand on the page, one after the other, because one script serves both."""
    figures = names["microscope"](names["record"]["words"], query=4), names["moving"]()
    return "".join(figure._repr_html_() for figure in figures)


@needs_chromium
@pytest.mark.parametrize(
    ("clicks", "word", "query"),
    [
        pytest.param([], 0, 4, id="at first"),
        pytest.param([(1, 6)], 0, 6, id="query"),
        pytest.param([(0, 4), (1, 9)], 4, 9, id="word and query"),
        pytest.param([(0, 4), (1, 9), (0, 1)], 1, 5, id="a shorter word"),
    ],
)
def test_microscope(clicks, word, query, tmp_path):
    names = cells_of("microscope.md")
    words = names["record"]["words"]
    click = "document.querySelectorAll('.controls')[{}].querySelectorAll('button')[{}].click();"
    script = "".join(click.format(*where) for where in clicks)
    page = after(both_figures(names), script, tmp_path)
    expected = np.array(words[word]["weights"])[:, :, query]
    np.testing.assert_array_equal(weights_shown(page), expected)
    pressed = re.findall(r'aria-pressed="true">(.*?)<', page)[:2]
    assert pressed == [words[word]["word"], words[word]["phonemes"][query]]


def check_film(page: str, frame: dict, layer: int) -> None:
    opacity = re.findall(r'class="cell"[^>]* fill-opacity="([\d.]+)"', page)
    np.testing.assert_allclose(
        np.array(opacity, float), np.ravel(frame["weights"][layer]) / 100, atol=1e-9
    )
    texts = [re.search(rf'<span class="{name}">(.*?)</span>', page)[1] for name in FILM_TEXTS]
    assert texts[:2] == [str(frame["step"]), f"{frame['loss']:.3f}"]
    assert texts[2].count("ˈ") == sum(frame["stress"][i] == 1 for i in VOWELS_OF_HISTORIC)
    assert texts[3] == str(layer + 1)
    place = re.search(r'class="now"[^>]*translate\(([\d.]+) 0\)', page)[1]
    assert float(place) == pytest.approx(600 * frame["step"] / 1300, abs=0.051)


LAYER = "document.querySelectorAll('.film .controls button')[{}].click();"
FILM_TEXTS = ("step", "loss", "said", "layer")
VOWELS_OF_HISTORIC = (1, 4, 6)  # HH IH S T AO R IH K


def test_film_without_scripts():
    names = cells_of("microscope.md")
    check_film(names["moving"]()._repr_html_(), names["frames"][-1], 3)


@needs_chromium
@pytest.mark.parametrize(
    ("script", "frame", "layer"),
    [
        pytest.param("", -1, 3, id="at first"),
        pytest.param(SLIDE.format(0), 0, 3, id="first step"),
        pytest.param(SLIDE.format(5) + LAYER.format(1), 5, 1, id="step and layer"),
    ],
)
def test_film(script, frame, layer, tmp_path):
    names = cells_of("microscope.md")
    page = after(both_figures(names), script, tmp_path)
    check_film(page, names["frames"][frame], layer)
