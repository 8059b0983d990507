"""Fonts for the texts of a picture: matplotlib's own have no Chinese, no Thai, no Hindi."""

from __future__ import annotations

import functools
import unicodedata
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

with suppress(ImportError):  # `viz.figure_class` says how to get it
    from matplotlib import font_manager as fonts

if TYPE_CHECKING:
    from matplotlib.text import Text


@contextmanager
def fonts_for(texts: Iterable[Text]) -> Iterator[None]:
    """Give each text fonts of this machine that have its signs, since matplotlib looks for a sign
    only in the fonts that a text names. Warn once of the signs that no font has."""
    missing = {text: missing_in(text) for text in texts}
    families, left = families_with(frozenset().union(*missing.values()))
    for text, signs in missing.items():
        if signs:
            text.set_fontfamily([*text.get_fontfamily(), *families])
    with warnings.catch_warnings():
        if left:
            scripts = {unicodedata.name(sign, "?").split()[0] for sign in left if sign.isalpha()}
            warnings.warn(
                f"no font of this machine has {' '.join(sorted(left)[:9])} "
                f"({', '.join(sorted(scripts)) or 'symbols'}): install one, such as Noto Sans CJK "
                "for Chinese, Japanese and Korean, Noto Emoji, or Noto Sans of another script, and "
                "start Python again",
                stacklevel=3,
            )
            warnings.filterwarnings("ignore", "Glyph .* missing from")
        yield


def missing_in(text: Text) -> frozenset[str]:
    """The signs of a text that its fonts do not have. Spaces and marks of direction need none."""
    shown = text.get_text()
    if shown.isascii():
        return frozenset()
    unseen = ("Cc", "Cf", "Cs", "Zs", "Zl", "Zp")
    signs = frozenset(sign for sign in shown if unicodedata.category(sign) not in unseen)
    own = (
        fonts.findfont(fonts.FontProperties(family=[family])) for family in text.get_fontfamily()
    )
    return signs.difference(*map(signs_of, own))


@functools.cache
def signs_of(path: str) -> str:
    """The signs that a font file has, as one text, because a set of them is ten times as large."""
    with suppress(OSError, RuntimeError):  # a font that was removed, or is damaged
        return "".join(map(chr, fonts.get_font(path).get_charmap()))
    return ""


@functools.cache
def families_with(signs: frozenset[str]) -> tuple[list[str], frozenset[str]]:
    """Few font families that have these signs together, and the signs that none has."""
    if not signs:
        return [], signs
    add_new_fonts()
    # Han is written a little differently in Japan and in China.
    region = "JP" if any("\u3040" <= sign < "\u3100" for sign in signs) else "SC"
    order = sorted(
        (font for font in fonts.fontManager.ttflist if font.style == "normal"),
        key=lambda font: (font.weight != 400, "Sans" not in font.name, region not in font.name),
    )
    found: dict[str, frozenset[str]] = {}
    for font in order:
        if "Last" not in font.name:  # LastResort has boxes for all signs
            found.setdefault(font.name, signs.intersection(signs_of(font.fname)))
    families: list[str] = []
    while any(signs & shown for shown in found.values()):
        families.append(max(found, key=lambda name: len(signs & found[name])))
        signs -= found[families[-1]]
    return families, signs


@functools.cache
def add_new_fonts() -> None:
    """Fonts that were installed after matplotlib wrote its list of them."""
    known = {font.fname for font in fonts.fontManager.ttflist}
    for path in set(fonts.findSystemFonts()) - known:
        with suppress(OSError, RuntimeError, NotImplementedError):  # one without outlines
            fonts.fontManager.addfont(path)
