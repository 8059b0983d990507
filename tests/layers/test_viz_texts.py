"""Every text in a picture is drawn as it is, and every list may come from any iterable."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.text import Text

import tinyattn as ta
from tinyattn import fonts, nn, viz
from tinyattn.errors import ShapeError

TEXTS = {
    "formula": "$\\x$", "half a formula": "$", "two": "a$b$c", "underscore": "_name",
    "index": "a_1",

    "power": "10^3", "backslash": "\\", "escaped": "\\$", "lines": "one\ntwo", "empty": "",
    "braces": "{0} {", "percent": "100 %", "long": "word " * 40, "Chinese": "注意力", "emoji": "🙂",
    "accent": "e\u0301", "HTML": "<b>&amp;", "number": 3, "fraction": 0.123, "zero": 0,
}  # fmt: skip
PICTURES: dict[str, Callable[[Any], Figure]] = {
    "xticks": lambda text: viz.show_heatmaps(np.ones((2, 2)), xticks=["a", text]),
    "yticks": lambda text: viz.show_heatmaps(np.ones((2, 2)), yticks=["a", text]),
    "lists": lambda text: viz.show_heatmaps(np.ones((2, 1, 2, 2)), xticks=[["a"], ["b", text]]),
    "titles": lambda text: viz.show_heatmaps(np.ones((2, 2)), titles=[text]),
    "xlabel": lambda text: viz.show_heatmaps(np.ones((2, 2)), xlabel=text),
    "ylabel": lambda text: viz.show_heatmaps(np.ones((2, 2)), ylabel=text),
    "curve": lambda text: viz.plot_curves({"a": [1, 2], text: [2, 1]}),
    "curve xlabel": lambda text: viz.plot_curves({"a": [1, 2]}, xlabel=text),
    "curve ylabel": lambda text: viz.plot_curves({"a": [1, 2]}, ylabel=text),
    "box": lambda text: viz.show_shapes((text, 2, 2)),
}
WITH_STRINGS_ONLY: dict[str, Callable[[str], Figure]] = {
    "between boxes": lambda text: viz.show_shapes(("Q", 2, 2), text),
    "leaf": lambda text: viz.show_graph(*named_graph(text, "x")),
    "op": lambda text: viz.show_graph(*named_graph(text, "out")),
}


def trained_layer() -> nn.Linear:
    layer = nn.Linear(2, 2)
    layer(ta.randn(1, 2)).backward(ta.randn(1, 2))
    return layer


def named_graph(text: str, which: str) -> tuple[ta.Tensor, dict[str, ta.Tensor]]:
    x = ta.ones(2, requires_grad=True)
    out = x.exp()
    return out, {text: x if which == "x" else out}


def texts_of(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text)]


@pytest.mark.filterwarnings("ignore:Glyph", "ignore:constrained_layout", "ignore:Tight layout")
@pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))
@pytest.mark.parametrize("place", [*PICTURES, *WITH_STRINGS_ONLY])
def test_a_text_is_drawn_as_it_is(place: str, text: Any) -> None:
    text = str(text) if place in WITH_STRINGS_ONLY else text
    figure = (PICTURES | WITH_STRINGS_ONLY)[place](text)
    if "$" in str(text):  # where matplotlib would look for a formula
        figure.draw_without_rendering()
    if place == "leaf" and not text:
        text = "leaf"
    found = [drawn for drawn in figure.findobj(Text) if str(text) in drawn.get_text()]
    assert found
    if len(str(text)) > 1:  # numbers at an axis are formulas
        assert not any(drawn.get_parse_math() for drawn in found)


def test_the_numbers_of_a_logarithmic_axis_stay_formulas() -> None:
    figure = viz.plot_gradient_norms({"$": [trained_layer()]})
    figure.canvas.draw()
    assert any(label.get_parse_math() for label in figure.axes[0].get_yticklabels())


def test_every_curve_is_in_the_legend() -> None:
    """matplotlib leaves out a line whose label begins with "_"."""
    legend = viz.plot_curves({"_a": [1, 2], "b": [3, 4], "__": [5, 6]}).axes[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["_a", "b", "__"]


def test_a_label_that_is_none_draws_nothing() -> None:
    panel = viz.show_heatmaps(np.ones((2, 3)), xticks=["a", None, 0], titles=[None]).axes[0]
    assert [label.get_text() for label in panel.get_xticklabels()] == ["a", "", "0"]
    assert panel.get_title() == ""


def test_titles_may_be_numbers() -> None:
    panels = viz.show_heatmaps(np.ones((1, 3, 2, 2)), titles=range(3)).axes[:3]
    assert [panel.get_title() for panel in panels] == ["0", "1", "2"]


def test_titles_of_columns_stand_in_the_first_row() -> None:
    panels = viz.show_heatmaps(np.ones((2, 2, 1, 1)), titles=["a", "b"]).axes[:4]
    assert [panel.get_title() for panel in panels] == ["a", "b", "", ""]
    panels = viz.show_heatmaps(np.ones((2, 2, 1, 1)), titles="abcd").axes[:4]
    assert [panel.get_title() for panel in panels] == ["a", "b", "c", "d"]


# Iterables

WAYS: dict[str, Callable[[list], Any]] = {
    "generator": lambda values: (value for value in values),
    "map": lambda values: map(copy, values),
    "values": lambda values: dict(enumerate(values)).values(),
    "tuple": tuple,
    "iterator": iter,
}
LISTS: dict[str, tuple[Callable[[Any], Figure], list]] = {
    "xticks": (lambda them: viz.show_heatmaps(np.ones((2, 2)), xticks=them), ["a", "b"]),
    "yticks": (lambda them: viz.show_heatmaps(np.ones((2, 2)), yticks=them), ["a", "b"]),
    "lists": (
        lambda them: viz.show_heatmaps(np.ones((2, 1, 1, 1)), xticks=them), [["a"], ["b"]],
    ),
    "titles": (lambda them: viz.show_heatmaps(np.ones((1, 2, 1, 1)), titles=them), ["a", "b"]),
    "matrices": (viz.show_heatmaps, [np.eye(2), np.full((2, 2), 0.5)]),
    "curve": (lambda them: viz.plot_curves({"a": them}), [1.0, 3.0, 2.0]),
    "x and y": (
        lambda them: viz.plot_curves({"a": ([1, 2], them)}), [1.0, 3.0],
    ),
}  # fmt: skip


def drawn(figure: Figure) -> list[Any]:
    figure.canvas.draw()
    lines = [line.get_xydata().tolist() for line in figure.axes[0].lines]
    return [
        texts_of(figure),
        lines,
        [i.get_array().tolist() for a in figure.axes for i in a.images],
    ]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", LISTS)
def test_a_list_may_be_any_iterable(name: str, way: str) -> None:
    picture, values = LISTS[name]
    assert drawn(picture(WAYS[way](values))) == drawn(picture(values))


@pytest.mark.parametrize("name", LISTS)
def test_what_has_no_order_is_refused(name: str) -> None:
    picture, values = LISTS[name]
    wrong = {1.0, 2.0} if name in ("curve", "x and y") else {"a", "b"}
    with pytest.raises(TypeError, match="takes a list, got set"):
        picture(wrong)
    with pytest.raises(TypeError, match="takes a list, got int"):
        picture(5)
    assert values


def test_layers_may_come_from_any_iterable_but_a_set() -> None:
    layers = [trained_layer(), trained_layer()]
    expected = drawn(viz.plot_gradient_norms({"a": layers}))
    assert drawn(viz.plot_gradient_norms({"a": (layer for layer in layers)})) == expected
    with pytest.raises(TypeError, match="the stack 'a' takes a list, got set"):
        viz.plot_gradient_norms({"a": set(layers)})


@pytest.mark.parametrize("wrong", [[1.0, 2.0], None, "a"])
def test_curves_are_a_dict(wrong: Any) -> None:
    with pytest.raises(TypeError, match="plot_curves takes a dict of names to values, got"):
        viz.plot_curves(wrong)


def test_names_in_a_graph_are_texts() -> None:
    x = ta.ones(2, requires_grad=True)
    with pytest.raises(TypeError, match="a name of a tensor is a text, got int"):
        viz.show_graph(x.exp(), {0: x})


# What is drawn


def test_invisible_cells_have_no_colour_and_are_hatched() -> None:
    weights = np.arange(8).reshape(2, 1, 2, 2) / 8
    mask = np.array([[[[True, False], [True, True]]], [[[False, True], [True, False]]]])
    for given in (mask, ta.tensor(mask)):
        figure = viz.show_heatmaps(weights, mask=given)
        for number, panel in enumerate(figure.axes[:2]):
            shown = panel.images[0].get_array()
            np.testing.assert_array_equal(np.ma.getmaskarray(shown), ~mask[number, 0])
            np.testing.assert_array_equal(
                shown.filled(-1)[mask[number, 0]], weights[number][0][mask[number, 0]]
            )
            (hatched,) = panel.collections
            assert hatched.get_hatch() == "////"
            assert len(hatched.get_paths()) == (~mask[number, 0]).sum()
    assert not viz.show_heatmaps(weights).axes[0].collections


def test_matrices_of_samples_stand_in_one_row() -> None:
    weights = np.arange(6).reshape(3, 1, 2) / 6
    figure = viz.show_heatmaps(weights, mask=np.array([[True, True], [True, False], [False, True]]))
    panels = figure.axes[:3]
    assert [panel.images[0].get_array().tolist() for panel in panels] == [
        [[0, 1 / 6]], [[2 / 6, None]], [[None, 5 / 6]],
    ]  # fmt: skip
    assert [panel.get_ylabel() for panel in panels] == ["Queries", "", ""]
    assert [panel.get_xlabel() for panel in panels] == ["Keys"] * 3


def test_labels_stand_at_the_outer_panels() -> None:
    panels = viz.show_heatmaps(np.ones((2, 2, 1, 1)), "below", "left").axes[:4]
    assert [panel.get_xlabel() for panel in panels] == ["", "", "below", "below"]
    assert [panel.get_ylabel() for panel in panels] == ["left", "", "left", ""]


def test_means_of_a_curve_are_drawn_in_the_middle_of_their_window() -> None:
    y = np.random.default_rng(0).normal(size=20)
    pale, means = viz.plot_curves({"a": y}, smooth=3).axes[0].lines
    np.testing.assert_array_equal(pale.get_xydata(), np.stack([np.arange(1, 21), y], 1))
    np.testing.assert_allclose(means.get_ydata(), [y[i : i + 3].mean() for i in range(18)])
    np.testing.assert_array_equal(means.get_xdata(), np.arange(2, 20))
    assert pale.get_color() == means.get_color()
    (line,) = viz.plot_curves({"a": (np.arange(20.0), y)}, smooth=3).axes[0].lines
    np.testing.assert_array_equal(line.get_ydata(), y)


def test_all_panels_have_the_scale_that_is_given() -> None:
    weights = np.array([[[[0.2, 0.4]], [[-3.0, 0.9]]]])
    mask = np.array([[[[True, True]], [[False, True]]]])  # -3 is invisible
    panels = viz.show_heatmaps(weights, mask=mask).axes[:2]
    assert [panel.images[0].get_clim() for panel in panels] == [(0, 1)] * 2
    panels = viz.show_heatmaps(weights, vmin=-4, vmax=2).axes[:2]
    assert [panel.images[0].get_clim() for panel in panels] == [(-4, 2)] * 2
    with pytest.raises(ValueError, match=r"got values from -3 to 0\.9"):
        viz.show_heatmaps(weights)


def test_symbols_are_those_of_all_of_a_row_or_of_a_panel() -> None:
    weights = np.ones((2, 3, 1, 2))
    for given, expected in (
        (["a", "b"], ["ab"] * 6),
        ([["a", "b"], ["c", "d"]], ["ab"] * 3 + ["cd"] * 3),
        ([[letter, "x"] for letter in "abcdef"], ["ax", "bx", "cx", "dx", "ex", "fx"]),
    ):
        panels = viz.show_heatmaps(weights, xticks=given).axes[:6]
        found = [[label.get_text() for label in panel.get_xticklabels()] for panel in panels]
        assert ["".join(texts) for texts in found] == expected
    for wrong in ([["a"], ["b"], ["c"]], [["a"]] * 5):
        with pytest.raises(ShapeError, match="2 x 3 panels take 1 or 2 or 6, got"):
            viz.show_heatmaps(weights, xticks=wrong)
    with pytest.raises(ShapeError, match="xticks: 2 cells take at most as many, got 3"):
        viz.show_heatmaps(weights, xticks=["a", "b", "c"])
    with pytest.raises(ShapeError, match="xticks: 2 cells take at most as many, got 3"):
        viz.show_heatmaps(weights, xticks=[["a", "b"], ["a", "b", "c"]])
    for titles in (["a", "b"], ["a"] * 5):
        with pytest.raises(ShapeError, match="titles: 2 x 3 panels take 3 or 6, got"):
            viz.show_heatmaps(weights, titles=titles)


def test_only_long_symbols_of_keys_are_turned() -> None:
    words = ["animal", "cross"]
    panel = viz.show_heatmaps(np.ones((2, 2)), xticks=words, yticks=["street"] * 2).axes[0]
    assert {label.get_rotation() for label in panel.get_xticklabels()} == {0}
    panel = viz.show_heatmaps(np.ones((4, 4)), xticks=words * 2, yticks=["street"] * 4).axes[0]
    assert {label.get_rotation() for label in panel.get_xticklabels()} == {90}
    assert {label.get_rotation() for label in panel.get_yticklabels()} == {0}


def test_few_values_are_not_drawn_as_one_mean() -> None:
    for count, lines in ((3, 1), (4, 1), (5, 2), (10, 2)):
        drawn_lines = viz.plot_curves({"a": np.arange(float(count))}, smooth=10).axes[0].lines
        assert len(drawn_lines) == lines
    means = viz.plot_curves({"a": np.arange(10.0)}, smooth=10).axes[0].lines[1]
    np.testing.assert_allclose(means.get_ydata(), np.arange(1.0, 9.0))  # of three values each


def test_formulas_of_boxes_have_their_sizes() -> None:
    panel = viz.show_shapes(("Q", 3, 2), "=", ("R", 1, 9)).axes[0]
    boxes = [patch.get_xy() for patch in panel.patches]
    sizes = [np.ptp(box, axis=0).tolist() for box in boxes]
    assert np.array(sizes) / 0.25 == pytest.approx(np.array([[2, 3], [9, 1]]))
    assert all(box[:, 0].max() < panel.get_xlim()[1] for box in boxes)
    assert all(box[:, 1].max() < panel.get_ylim()[1] for box in boxes)
    assert boxes[0][:, 0].max() < boxes[1][:, 0].min()
    assert [text.get_text() for text in panel.texts] == ["Q", "2", "3", "=", "R", "9", "1"]


@pytest.mark.parametrize("parts", [(), ("=",), ("a", "b"), (("Q", 1, 1),), ("-", ("Q", 2, 3))])
def test_a_formula_has_any_parts(parts: Any) -> None:
    figure = viz.show_shapes(*parts, scale=0.5)
    boxes = [part for part in parts if not isinstance(part, str)]
    rows, columns = (sum(box[i] for box in boxes) for i in (1, 2))
    width, height = figure.get_size_inches()
    assert width == pytest.approx(0.2 * (len(boxes) + len(parts) + 1) + 0.5 * columns)
    assert height == pytest.approx(0.6 + 0.5 * rows)
    names = [part if isinstance(part, str) else part[0] for part in parts]
    shown = [text.get_text() for text in figure.axes[0].texts]
    assert [text for text in shown if not text.isdecimal()] == names


@pytest.mark.parametrize("size", [(5.0, 3.2), (2.0, 4.0)])
def test_a_notebook_shows_a_figure_in_its_whole_size(size: tuple[float, float]) -> None:
    """A PNG begins with 16 bytes, and then with its width and height in pixels."""
    figures = [
        viz.plot_curves({"a": [1.0, 2.0]}, figsize=size),
        viz.show_heatmaps(np.ones((2, 2)), figsize=size),
        viz.plot_gradient_norms({"a": [trained_layer()]}, figsize=size),
    ]
    for figure in figures:
        png = figure._repr_png_()
        assert png.startswith(b"\x89PNG")
        assert np.frombuffer(png[16:24], ">u4").tolist() == [figure.dpi * x for x in size]


def test_gradient_norms_name_the_axes_and_large_numbers_stay() -> None:
    panel = viz.plot_gradient_norms({"a": [trained_layer()]}).axes[0]
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("Layer", "Gradient norm")
    panel = viz.plot_curves({"a": [1e300, 1.0]}, "x", "y").axes[0]
    assert panel.lines[0].get_ydata().tolist() == [1e300, 1]
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("x", "y")


def test_what_a_node_saves_stands_in_its_box() -> None:
    x = ta.ones(2, 3, requires_grad=True)
    texts = "\n".join(text.get_text() for text in viz.show_graph((x * 0.0).sum()).axes[0].texts)
    assert "saves y 0.0" in texts
    assert "saves x (2, 3)" in "\n".join(
        text.get_text() for text in viz.show_graph(x * x).axes[0].texts
    )


def test_boxes_that_are_none_are_refused() -> None:
    for part in (ta.nn.Linear(2, 3), ("Q", 3), 5):
        with pytest.raises(TypeError, match=r"\(name, rows, columns\), got .*model"):
            viz.show_shapes("=", part)  # type: ignore[arg-type]


def test_what_is_no_number_is_drawn_in_orange() -> None:
    weights = np.array([[0.5, np.nan], [np.inf, 1.0]])
    panel, bar = viz.show_heatmaps(weights).axes
    shown = np.ma.getmaskarray(panel.images[0].get_array())
    np.testing.assert_array_equal(shown, ~np.isfinite(weights))
    assert panel.get_facecolor() == to_rgba(viz.NOT_FINITE)
    assert bar.get_ylabel() == "Weight (orange: NaN or infinite)"
    assert viz.show_heatmaps(np.eye(2)).axes[1].get_ylabel() == "Weight"
    with pytest.raises(ValueError, match="got values from 0 to 2"):
        viz.show_heatmaps(np.array([[np.nan, 2.0, 0.0]]))


def test_signs_that_no_font_has_are_named_in_one_warning(monkeypatch: Any) -> None:
    """As if the machine had no fonts but those that matplotlib brings."""
    brought = Path(fonts.fonts.findfont("DejaVu Sans")).parent
    kept = [f for f in fonts.fonts.fontManager.ttflist if Path(f.fname).parent == brought]
    monkeypatch.setattr(fonts.fonts.fontManager, "ttflist", kept)
    monkeypatch.setattr(fonts.fonts, "findSystemFonts", list)
    fonts.families_for.cache_clear()
    figure = viz.show_heatmaps(np.eye(2), xticks=["\u6211", "\t"])
    with pytest.warns(UserWarning, match=r"no font of this machine has \u6211 \(CJK\)") as said:
        figure.draw_without_rendering()
    assert not [one for one in said if "missing from" in str(one.message)]
    shown = warnings.formatwarning(said[0].message, UserWarning, said[0].filename, said[0].lineno)
    assert shown.count("\n") == 1  # and no line of code, which would be one of the library
    assert figure.axes[0].get_xticklabels()[1].get_text() == "\\t"
    fonts.families_for.cache_clear()


def test_a_font_that_has_the_signs_is_found(monkeypatch: Any) -> None:
    """As if matplotlib brought no font with an arrow but its font of symbols."""
    path = fonts.fonts.findfont("STIXGeneral")
    kept = [font for font in fonts.fonts.fontManager.ttflist if font.fname == path]
    others = Path(path).with_name("cmb10.ttf")
    monkeypatch.setattr(fonts.fonts, "findfont", lambda name: str(others))
    monkeypatch.setattr(fonts.fonts.fontManager, "ttflist", kept)
    monkeypatch.setattr(fonts.fonts, "findSystemFonts", list)
    assert fonts.families_for(frozenset("a\u27f6")) == [fonts.OWN, "STIXGeneral"]


def test_only_texts_that_need_it_get_more_fonts(monkeypatch: Any) -> None:
    monkeypatch.setattr(fonts, "families_for", lambda signs: ["serif"] * ("\u6211" in signs))
    viz.figure_class.cache_clear()
    figure = viz.show_heatmaps(np.eye(2), xticks=["\u6211", "b"])
    viz.figure_class.cache_clear()
    for _ in range(2):
        figure.draw_without_rendering()
        one, other = figure.axes[0].get_xticklabels()
        assert one.get_fontfamily() == [*other.get_fontfamily(), "serif"]


def test_a_text_is_as_wide_as_its_signs():
    widths = {"": 0, "ab": 2, "é": 1, "e\u0301": 1, "中文": 4, "中a": 3, "ש\u05b8": 1}
    # One sign of each width that Unicode knows; a halfwidth kana and a Greek letter are narrow.
    widths |= {"Ａ": 2, "ｱ": 1, "α": 1, "←": 1, "ア": 2}
    assert {text: viz.letters(text) for text in widths} == widths


def test_ids_in_tensors_are_symbols() -> None:
    """The error said that NumPy's ndim does not take a Tensor."""
    ids = ta.tensor([[4, 7], [5, 6]])
    weights = np.full((2, 1, 2, 2), 0.5)
    for given in (ids, list(ids), [list(row) for row in ids.tolist()]):
        panels = viz.show_heatmaps(weights, xticks=given).axes[:2]
        shown = [[label.get_text() for label in panel.get_xticklabels()] for panel in panels]
        assert shown == [["4", "7"], ["5", "6"]]
    panel = viz.show_heatmaps(weights[0], xticks=ids[0]).axes[0]
    assert [label.get_text() for label in panel.get_xticklabels()] == ["4", "7"]


def test_each_sign_that_no_font_can_draw_is_written_as_python_writes_it() -> None:
    """All control signs but the end of a line, and both halves of pairs in UTF-16."""
    for i in (*range(34), 0xD7FF, 0xD800, 0xDBFF, 0xDC00, 0xDFFF, 0xE000):
        is_unseen = (i < 32 and i != 10) or 0xD800 <= i < 0xE000
        shown = ascii(chr(i))[1:-1] if is_unseen else chr(i)
        assert f"a{chr(i)}b".translate(viz.UNSEEN) == f"a{shown}b"
