"""Which fonts a picture takes for its signs, where a machine has fonts of many scripts."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tinyattn import fonts

LATIN = "abcXYZ 123"
HAN = "\u4e2d\u6587\u5b57"
KANA = {
    "first of Hiragana": "\u3041", "last of Hiragana": "\u309f", "a": "\u3042",
    "first of Katakana": "\u30a0", "last of Katakana": "\u30ff", "ka": "\u30ab",
    "long vowel": "\u30fc",
}  # fmt: skip
OTHERS = {
    "nothing else": "", "Latin": "ab", "full stop": "\u3002", "before Hiragana": "\u303f",
    "Bopomofo": "\u3105", "after Katakana": "\u3100", "Hangul": "\ud55c", "wide Latin": "\uff21",
}  # fmt: skip
ALL = HAN + "".join(KANA.values()) + "".join(OTHERS.values())

Install = Callable[..., None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """As if the machine had these fonts alone: (name, weight, signs), or an error to read it."""

    def fake(*of_machine: tuple[str, int, Any]) -> None:
        own = fonts.OWN, 400, LATIN
        table = {
            f"{name} {weight}": (name, weight, signs) for name, weight, signs in (own, *of_machine)
        }

        def get_font(path: str) -> Any:
            signs = table[path][2]
            if isinstance(signs, Exception):
                raise signs
            return types.SimpleNamespace(get_char_index=lambda code: int(chr(code) in signs))

        entries = [
            types.SimpleNamespace(fname=path, name=name, weight=weight)
            for path, (name, weight, _) in table.items()
        ]
        manager = types.SimpleNamespace(ttflist=entries, addfont=lambda path: None)
        replaced = types.SimpleNamespace(
            get_font=get_font, findfont=lambda name: f"{name} 400", fontManager=manager,
            findSystemFonts=list,
        )  # fmt: skip
        monkeypatch.setattr(fonts, "fonts", replaced, raising=False)
        fonts.families_for.cache_clear()

    fonts.families_for.cache_clear()
    yield fake
    fonts.families_for.cache_clear()


ORDERS = [("Noto Sans CJK JP", "Noto Sans CJK SC"), ("Noto Sans CJK SC", "Noto Sans CJK JP")]


@pytest.mark.parametrize("order", ORDERS, ids=["JP first", "SC first"])
@pytest.mark.parametrize("sign", [*KANA, *OTHERS])
def test_han_is_written_as_in_japan_only_beside_kana(
    install: Install, sign: str, order: tuple[str, str]
) -> None:
    """Both fonts have all signs, so the order of a machine's list does not decide."""
    install(*((name, 400, ALL) for name in order))
    text = HAN + (KANA | OTHERS)[sign]
    expected = "Noto Sans CJK JP" if sign in KANA else "Noto Sans CJK SC"
    assert fonts.families_for(frozenset(text)) == [fonts.OWN, expected]


def test_signs_that_matplotlib_has_need_no_font(install: Install) -> None:
    install(("Other", 400, ALL + LATIN))
    for text in ("", "a", LATIN, "a\t\n\x00", "a\u200b"):  # the last ones are not printed
        assert fonts.families_for(frozenset(text)) == [fonts.OWN]


def test_one_font_of_all_signs_is_better_than_two(install: Install) -> None:
    install(("Thai", 400, "\u0e01"), ("Han", 400, HAN), ("Both", 400, HAN + "\u0e01"))
    assert fonts.families_for(frozenset(HAN + "\u0e01")) == [fonts.OWN, "Both"]
    assert fonts.families_for(frozenset("\u0e01a")) == [fonts.OWN, "Thai"]
    assert fonts.families_for(frozenset("\u4e2d")) == [fonts.OWN, "Han"]


def test_several_fonts_together_have_all_signs(install: Install) -> None:
    install(("Thai", 400, "\u0e01"), ("Han", 400, HAN), ("Hindi", 400, "\u0915\u0916"))
    found = fonts.families_for(frozenset(HAN + "\u0e01\u0915\u0916a"))
    assert found == [fonts.OWN, "Han", "Hindi", "Thai"]


def test_a_regular_font_comes_before_a_bold_one(install: Install) -> None:
    install(("Bold", 700, HAN), ("Regular", 400, HAN), ("Thin SC", 100, HAN))
    assert fonts.families_for(frozenset(HAN)) == [fonts.OWN, "Regular"]
    install(("Family", 700, ""), ("Family", 400, HAN))
    assert fonts.families_for(frozenset(HAN)) == [fonts.OWN, "Family"]


def test_a_font_that_cannot_be_read_is_left_out(install: Install) -> None:
    for error in (OSError("gone"), RuntimeError("damaged")):
        install(("Broken SC", 400, error), ("Whole", 400, HAN))
        assert fonts.families_for(frozenset(HAN)) == [fonts.OWN, "Whole"]


def test_boxes_of_a_last_resort_are_no_signs(install: Install) -> None:
    install((".LastResort", 400, ALL), ("Last Resort High-Efficiency", 400, ALL))
    with pytest.warns(UserWarning, match="no font of this machine has \u4e2d"):
        assert fonts.families_for(frozenset("\u4e2d")) == [fonts.OWN]


def test_the_warning_names_the_signs_and_their_scripts_once(install: Install) -> None:
    install(("Thai", 400, "\u0e01"))
    with pytest.warns(UserWarning, match="no font of this machine") as said:
        found = fonts.families_for(frozenset("\u4e2d\u6587\u3042\u0e01a"))
    assert found == [fonts.OWN, "Thai"]
    (one,) = said
    expected = "no font of this machine has \u3042 \u4e2d \u6587 (CJK, HIRAGANA): install one, such"
    assert str(one.message).startswith(expected)
    assert one.filename == "tinyattn.viz"
    many = "".join(map(chr, range(0x4E00, 0x4E20)))
    with pytest.warns(UserWarning, match=f"has {' '.join(many[:9])} \\(CJK\\): install"):
        fonts.families_for(frozenset(many))
