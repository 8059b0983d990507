"""Fonts for the texts of a picture: matplotlib's own have no Chinese, no Thai, no Hindi."""

import functools
import unicodedata
import warnings
from contextlib import suppress

with suppress(ImportError):  # `viz.figure_class` says how to get it
    from matplotlib import font_manager as fonts

OWN = "DejaVu Sans"  # which matplotlib brings


@functools.cache
def families_for(signs: frozenset[str]) -> list[str]:
    """Few font families of this machine that have these signs together.

    matplotlib looks for a sign only in the families that a text names. Warns of signs that no font
    has.
    """
    own, manager = fonts.get_font(fonts.findfont(OWN)), fonts.fontManager
    left = {sign for sign in signs if sign.isprintable() and not own.get_char_index(ord(sign))}
    if not left:
        return [OWN]
    for path in set(fonts.findSystemFonts()) - {font.fname for font in manager.ttflist}:
        with suppress(OSError, RuntimeError, NotImplementedError):  # a font without outlines
            manager.addfont(path)  # installed after matplotlib wrote its list
    # Han is written a little differently in Japan and in China.
    region = "JP" if any("\u3040" <= sign < "\u3100" for sign in signs) else "SC"
    found: dict[str, set[str]] = {}
    for font in sorted(manager.ttflist, key=lambda x: (x.weight != 400, region not in x.name)):
        with suppress(OSError, RuntimeError):  # a font that was removed, or is damaged
            face = fonts.get_font(font.fname)
            found.setdefault(font.name, {x for x in left if face.get_char_index(ord(x))})
    families = [OWN]
    for name in sorted(found, key=lambda name: -len(found[name])):
        if left & found[name] and "Last" not in name:  # LastResort has boxes for all signs
            families.append(name)
            left -= found[name]
    if left:
        scripts = sorted({unicodedata.name(sign).split()[0] for sign in left})
        # Without a line of code, because matplotlib draws far from the user's line.
        warnings.warn_explicit(
            f"no font of this machine has {' '.join(sorted(left)[:9])} ({', '.join(scripts[:9])}): "
            "install one, such as Noto Sans CJK for Chinese, Japanese and Korean, Noto Emoji, or "
            "Noto Sans of another script, and start Python again",
            UserWarning,
            "tinyattn.viz",
            1,
        )
    return families
