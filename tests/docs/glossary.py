"""The terms of docs/course/glossary.md: their Chinese names, and the pages that explain them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


@dataclass(frozen=True)
class Term:
    chinese: str
    pages: tuple[str, ...]  # paths from docs/course, that which explains it first in front


def terms() -> dict[str, Term]:
    """The terms by their English name."""
    page = (DOCS / "course/glossary.md").read_text("utf-8")
    found = {}
    for en, zh, links in re.findall(
        r"^\| ([^|]+) \| ([^|]+) \| [^|]+ \| (\[[^|]+) \|$", page, re.M
    ):
        pages = tuple(re.findall(r"\]\(([^)]+)\)", links))
        for name, chinese in zip(en.split(", "), zh.split("，"), strict=True):
            found[name] = Term(chinese.rstrip("*"), pages)
    return found


def forms_of(name: str) -> str:
    """A pattern of a term and its plural: keys, queries, batches."""
    stem, ending = re.fullmatch("(.*?)(y|s|x|ch|)", name).groups()
    plural = stem + "ies" if ending == "y" else name + ("es" if ending else "s")
    return f"{re.escape(name)}|{re.escape(name)}s|{re.escape(plural)}"


def is_named(name: str, text: str) -> bool:
    """Whether a text has a term or its plural as words of their own.

    With a capital letter it begins a sentence: elsewhere "Tensor" is the name of a class.
    """
    forms = forms_of(name)
    pattern = rf"(?<![\w-])(?:{forms})(?![\w-])"
    if name[0].islower():
        capital = "|".join(form[0].upper() + form[1:] for form in forms.split("|"))
        pattern += rf"|(?:^|[.:?!] )\W*(?:{capital})(?![\w-])"
    return re.search(pattern, text) is not None
