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
import runpy
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
            exec(compile(re.sub(r"^(:.*\n)+", "", cell), page, "exec"), namespace)
    return namespace


def after(figure: str, script: str, folder: Path, *options: str) -> str:
    """The page with a figure, after a script has run in it."""
    figure = figure.replace("../_static", (DOCS / "_static").as_uri())
    page = folder / "page.html"
    page.write_text(
        f"<!doctype html><meta charset=utf-8>{figure}<script>{script}</script>", "utf-8"
    )
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
               f"--user-data-dir={folder / 'profile'}", *options, page.as_uri()]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.partition("<script>" + script[:20])[0]


def without_scripts(page: str) -> str:
    return re.sub("<script.*?</script>", "", page, flags=re.DOTALL)


def numbers_of(page: str, step: str) -> np.ndarray:
    table = re.search(rf'<table data-step="{step}".*?</table>', page, re.DOTALL)
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


def figure_of(page: str) -> str:
    """The figure as a cell of the page writes it."""
    names = cells_of(page)
    if page == "steps.md":
        return names["figure"](names["divisor"], names["causal"])._repr_html_()
    if page == "microscope.md":
        return names["microscope"](names["record"]["words"], query=4)._repr_html_()
    return names["moving"]()._repr_html_()


@pytest.mark.parametrize("page", ["steps.md", "microscope.md", "film.md"])
def test_without_scripts_there_is_nothing_to_press(page):
    """But tables or maps to read."""
    figure = without_scripts(figure_of(page))
    assert re.search("<table|<rect", figure)
    assert not re.search("<(button|input|label|output)", figure)


def test_steps_without_scripts():
    page = without_scripts(figure_of("steps.md"))
    check(page, attention(cells_of("steps.md"), 2, CAUSAL))


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
    page = after(figure_of("steps.md"), script, tmp_path)
    expected = attention(cells_of("steps.md"), divisor, visible)
    check(page, expected)
    assert f'<output class="divisor">{divisor:.2f}</output>' in page
    moved = re.findall(r'class="output" transform="translate\(([-.\d]+) ([-.\d]+)\)"', page)
    np.testing.assert_allclose(np.array(moved, float) * [1, -1], expected["output"], atol=1e-9)


@needs_chromium
@pytest.mark.parametrize(
    ("script", "pressed"),
    [
        pytest.param("", ["false", "true", "false"], id="causal at first"),
        pytest.param(BUTTON.format(2), ["false", "false", "true"], id="padding"),
        pytest.param(CLICK.format(0), ["false", "false", "false"], id="a mask of the reader's"),
    ],
)
def test_the_button_of_the_mask_is_pressed(script, pressed, tmp_path):
    page = after(figure_of("steps.md"), script, tmp_path)
    buttons = re.findall(r"<button[^>]*data-mask[^>]*>", page)
    assert [re.search('aria-pressed="(.*?)"', button)[1] for button in buttons] == pressed


def weights_shown(page: str) -> np.ndarray:
    """(layers, heads, T): what the tables of the microscope say of one query."""
    tables = re.findall(r'<table data-layer="\d">.*?</table>', page, re.DOTALL)
    rows = [re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)[1:] for table in tables]
    return np.array([[re.findall(r"<td.*?>(\d+)</td>", row) for row in of] for of in rows], int)


def test_the_recorded_weights_are_weights():
    record = cells_of("film.md")["record"]
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
    monkeypatch.setattr(record_attention, "STATIC", tmp_path)
    monkeypatch.setattr("sys.argv", ["record_attention.py"])
    record_attention.main()
    made = json.loads((tmp_path / "encoder_attention.json").read_text("utf-8"))
    kept = cells_of("microscope.md")["record"]
    assert made.keys() == kept.keys()
    for new, old in zip(made["words"], kept["words"], strict=True):
        assert all(new[name] == old[name] for name in ("word", "phonemes", "truth"))
        assert np.shape(new["weights"]) == np.shape(old["weights"])
        assert np.abs(np.sum(new["weights"], -1) - 100).max() <= len(new["phonemes"]) / 2
    assert [frame["step"] for frame in made["film"]["frames"]] == [1, 2, 3]
    assert made["film"]["frames"][-1]["weights"] == made["words"][0]["weights"]


def test_microscope_without_scripts():
    page = without_scripts(figure_of("microscope.md"))
    expected = np.array(cells_of("microscope.md")["record"]["words"][0]["weights"])[:, :, 4]
    np.testing.assert_array_equal(weights_shown(page), expected)
    assert "The word is" in page


WORD = "document.querySelectorAll('.words button')[{}].click();"
QUERY = "document.querySelectorAll('.queries button')[{}].click();"
TYPE = """document.querySelector('form').elements.text.value = {!r};
document.querySelector('form').requestSubmit();"""


def maps_shown(page: str) -> np.ndarray:
    """(layers, heads, T, T): the blue of all cells of the maps."""
    maps = re.search('<table class="maps">.*?</table>', page, re.DOTALL)[0]
    blue = [re.findall(r'fill-opacity="(.*?)"', svg) for svg in re.findall("<svg.*?</svg>", maps)]
    length = round(len(blue[0]) ** 0.5)
    return np.array(blue, float).reshape(4, 4, length, length)


def parts_shown(page: str, name: str) -> list[str]:
    """The sentences of a group that are not hidden, such as what is wrong with a text."""
    return re.findall(rf'<p data-{name}="(\w+)">', page)


@needs_chromium
@pytest.mark.parametrize(
    ("script", "word", "query"),
    [
        pytest.param("", 0, 4, id="at first"),
        pytest.param(QUERY.format(6), 0, 6, id="query"),
        pytest.param(WORD.format(4) + QUERY.format(9), 4, 9, id="word and query"),
        pytest.param(WORD.format(4) + QUERY.format(9) + WORD.format(1), 1, 5, id="a shorter word"),
        pytest.param(TYPE.format(" Democracy "), 3, 4, id="typed"),
        pytest.param(
            TYPE.format("no word") + TYPE.format("original"), 5, 4, id="typed after a mistake"
        ),
    ],
)
def test_microscope(script, word, query, tmp_path):
    word = cells_of("microscope.md")["record"]["words"][word]
    page = after(figure_of("microscope.md"), script, tmp_path)
    np.testing.assert_array_equal(weights_shown(page), np.array(word["weights"])[:, :, query])
    np.testing.assert_allclose(100 * maps_shown(page), word["weights"], atol=0.5001)
    heads = re.findall(r"<thead>(.*?)</thead>", page)[1:]  # the first one is that of the maps
    assert [re.findall(r"<th>([^<]+)</th>", head) for head in heads] == [word["phonemes"]] * 4
    for axis in ("query", "key"):
        named = re.findall(rf'<text class="{axis}"[^>]*>(\w+)</text>', page)
        assert named == word["phonemes"] * 16
    marks = [("", "ˈ", "ˌ")[stress * (truth >= 0)]
             for stress, truth in zip(word["stress"], word["truth"], strict=True)]  # fmt: skip
    said = " ".join(map("".join, zip(marks, word["phonemes"], strict=True)))
    assert f'<b class="said" lang="en">{said}</b>' in page
    assert re.findall(r'aria-pressed="true">(.*?)<', page)[-1] == word["phonemes"][query]
    assert parts_shown(page, "origin") == ["heldOut"]
    assert not parts_shown(page, "trouble")
    assert "The word is" not in page


@needs_chromium
def test_microscope_reads_phonemes_of_the_readers(tmp_path):
    page = after(figure_of("microscope.md"), TYPE.format("T AY N IY"), tmp_path)
    assert '<b class="said" lang="en">T ˈAY N IY</b>' in page
    assert parts_shown(page, "origin") == ["phonemes"]
    np.testing.assert_allclose(maps_shown(page).sum(-1), 1, atol=1e-9)


@needs_chromium
@pytest.mark.parametrize(
    ("text", "trouble", "what"),
    [
        ("", "empty", ""),
        ("<i>", "sign", "&lt;"),
        ("xyzzyx", "unknown", "xyzzyx"),
        ("the", "unknown", "the"),
        ("K AE T", "single", ""),
        ("S T", "vowel", ""),
    ],
)
def test_microscope_says_what_is_wrong_with_a_text(text, trouble, what, tmp_path):
    """And shows no weights, because they would be those of another word."""
    page = after(figure_of("microscope.md"), TYPE.format(text), tmp_path)
    assert parts_shown(page, "trouble") == [trouble]
    assert f'<b lang="en">{what}</b>' in page or not what
    results = re.findall('<(?:p|div) class="(?:steps )?result"[^>]*>', page)
    assert len(results) == 4
    assert all("hidden" in result for result in results)


def check_film(page: str, frame: dict, layer: int) -> None:
    opacity = re.findall(r'class="cell"[^>]* fill-opacity="([\d.]+)"', page)
    np.testing.assert_allclose(
        np.array(opacity, float), np.ravel(frame["weights"][layer]) / 100, atol=1e-9
    )
    texts = [re.search(rf'<span class="{name}">(.*?)</span>', page)[1] for name in FILM_TEXTS]
    assert texts[:2] == [f"{frame['step']:,}", f"{frame['loss']:.3f}"]
    assert texts[2].count("ˈ") == sum(frame["stress"][i] == 1 for i in VOWELS_OF_HISTORIC)
    place = re.search(r'class="now"[^>]*translate\(([\d.]+) 0\)', page)[1]
    assert float(place) == pytest.approx(420 * frame["step"] / 1300, abs=0.051)


LAYER = "document.querySelectorAll('.layers button')[{}].click();"
PLAY = "document.querySelector('.play').click();"
FILM_TEXTS = ("step", "loss", "said")
VOWELS_OF_HISTORIC = (1, 4, 6)  # HH IH S T AO R IH K


def test_film_without_scripts():
    page = without_scripts(figure_of("film.md"))
    check_film(page, cells_of("film.md")["frames"][-1], 3)


@needs_chromium
@pytest.mark.parametrize(
    ("script", "seconds", "frame", "layer"),
    [
        pytest.param("", 0, -1, 3, id="at first"),
        pytest.param(SLIDE.format(0), 0, 0, 3, id="first step"),
        pytest.param(SLIDE.format(5) + LAYER.format(1), 0, 5, 1, id="step and layer"),
        pytest.param(PLAY, 0.25, 0, 3, id="play begins with the first step"),
        pytest.param(PLAY, 1.25, 2, 3, id="play, a step each half second"),
        pytest.param(SLIDE.format(22) + PLAY, 5, -1, 3, id="play ends with the last step"),
        pytest.param(SLIDE.format(7) + PLAY + PLAY, 5, 7, 3, id="play and stop"),
    ],
)
def test_film(script, seconds, frame, layer, tmp_path):
    wait = [f"--virtual-time-budget={seconds * 1000:.0f}"] if seconds else []
    page = after(figure_of("film.md"), script, tmp_path, *wait)
    frames = cells_of("film.md")["frames"]
    check_film(page, frames[frame], layer)
    plays = re.search(r'class="play" aria-pressed="(\w+)"', page)[1]
    assert plays == ("true" if PLAY in script and seconds < 5 else "false")
    pressed = re.findall(r'aria-pressed="(\w+)">layer', page)
    assert pressed == ["true" if i == layer else "false" for i in range(4)]
    assert f'aria-valuetext="{frames[frame]["step"]:,}"' in page


@needs_chromium
@pytest.mark.parametrize(("option", "display"), [(0, "block"), (1, "none")])
def test_a_reader_who_wants_no_motion_gets_no_play_button(option, display, tmp_path):
    show = """const play = document.querySelector('.play');
    play.dataset.display = getComputedStyle(play).display;"""
    options = ["--force-prefers-reduced-motion"] * option
    page = after(figure_of("film.md"), show, tmp_path, *options)
    assert re.search(r'data-display="(.*?)"', page)[1] == display


def in_chinese(figure: str) -> str:
    """The figure as docs/build.py changes it for the Chinese page."""
    pytest.importorskip("babel", reason='Sphinx is not installed: pip install -e ".[docs]"')
    build = runpy.run_path(str(DOCS / "build.py"))
    known = build["translations"]()
    figure, labels = build["translate_labels"](figure, known)
    assert labels <= set(known)
    return figure


def words_of(page: str) -> str:
    """What a reader sees or hears of a page, but for what is marked as English."""
    page = re.sub(r'<(\w+)[^>]* lang="en".*?</\1>', "", without_scripts(page))
    spoken = re.findall(r'(?:aria-label|aria-valuetext|title)="([^"]*)"', page)
    return " ".join([re.sub("<[^>]*>", "", page), *spoken])


CHINESE = {
    "steps.md": ["1 评分：QKᵀ / 2.00", "2 掩码", "3 softmax：权重", "4 加权平均：权重 · V",
                 "方块是值，圆点是输出：", "画成点的值和输出"],
    "microscope.md": ["第 1 层", "第 4 层", *(f"头 {h}" for h in range(1, 5))],
    "film.md": ["训练中的损失", "第 1,300 步", *(f"头 {h}" for h in range(1, 5))],
}  # fmt: skip


def check_chinese(page: str, expected: list[str]) -> None:
    words = words_of(page)
    for label in expected:
        assert label in words
    assert set(re.findall("[a-z]{2,}", words)) <= {"softmax"}


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("steps.md", []),
        ("microscope.md", ["单词是 ，查询是它的第 5 个音素 AO。运行脚本时，可以输入别的单词。"]),
        ("film.md", ["第 1,300 步之后，留出单词上的损失是 0.309，预测是 HH IH S T ˈAO R IH K。"]),
    ],
)  # fmt: skip
def test_chinese_without_scripts(page, expected):
    check_chinese(in_chinese(figure_of(page)), CHINESE[page] + expected)


@needs_chromium
@pytest.mark.parametrize(
    ("page", "script", "expected"),
    [
        ("steps.md", BUTTON.format(2) + CLICK.format(0),
         ["评分除以", "所有键可见", "因果掩码", "最后一个键是填充",
          "对这个查询隐藏这个键，或重新显示它"]),
        ("microscope.md", WORD.format(4), ["单词：", "查询：", "编码器的预测：", "词典的标注："]),
        ("microscope.md", TYPE.format("xyzzyx"), ["本页没有", "请按上面的说明输入它的音素"]),
        ("film.md", SLIDE.format(5) + LAYER.format(1),
         ["训练 ", "播放", "第 1 层", "第 2 层",
          "第 260 步之后，留出单词上的损失是 0.422，预测是 HH IH S T ˌAO R IH K。"]),
    ],
)  # fmt: skip
def test_chinese_after_a_click(page, script, expected, tmp_path):
    check_chinese(after(in_chinese(figure_of(page)), script, tmp_path), CHINESE[page] + expected)
