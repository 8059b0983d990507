"""The pages of the course use a term after the page that explains it, or with a link to this page.

The terms are those of docs/course/glossary.md, which names the pages that explain each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from glossary import DOCS, is_named, terms

PATHS = [*sorted(DOCS.glob("course/[0-9]*.md")), DOCS / "course/deep_encoders.md"]
PAGES = {path.name: path.read_text("utf-8") for path in PATHS}
# The order in which course/index.md says that they are read, where it is not that of the numbers.
PLACES = {"19_learning.md": 7.5, "deep_encoders.md": 11.5}
ORDER = sorted(PAGES, key=lambda name: PLACES.get(name) or int(name[:2]))
# The words have another meaning in these phrases.
OTHER_MEANINGS = re.compile("kernel regression")
# A page may use these terms before the page that explains them.
EXCEPTIONS: dict[tuple[str, str], str] = {}
# What is in italics because it is spoken louder, and is no term.
LOUD = {
    *("cat", "bird", "sum", "learns", "added", "second reading", "add", "adds", "any", "visible"),
    *("each", "one", "every", "column", "connecting", "very long", "this", "distance", "vector"),
    *("walk", "walking", "true", "last", "better", "unknown", "feeling", "you", "positions"),
    *("your", "equally many bytes of text"),
}
# What a page explains for itself, and what is an ordinary word elsewhere.
OF_ONE_PAGE = {
    *("rule", "path", "memory", "rescales", "reference", "character", "byte", "bits"),
    *("arithmetic coding", "overfits", "underfits"),
}


def prose(page: str) -> Iterator[str]:
    """The paragraphs, rows and points of a page, without code, answers and sources."""
    body = page.split("---\n", 2)[2]
    left_out = r"^```.*?^```$|<details>.*?</details>|\$\$.*?\$\$|^## Sources.*"
    body = re.sub(left_out, "", body, flags=re.DOTALL | re.MULTILINE)
    for paragraph in re.split(r"\n\n|\n(?=[-|] )", body):
        yield " ".join(paragraph.split())


def words_of(paragraph: str) -> str:
    """A paragraph without code, formulas, quotes, and links, of which the words lead elsewhere."""
    text = re.sub(r"`[^`]+`|\$[^$]+\$|\[[^\]]*\]\([^)]*\)|\"[^\"]*\"", "~", paragraph)
    return OTHER_MEANINGS.sub("~", text.lstrip("|-# "))


def used_early(name: str, text: str) -> Iterator[str]:
    """The terms that a page uses before the page that explains them, with their sentence."""
    for paragraph in prose(text):
        words = words_of(paragraph)
        links = {link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", paragraph)}
        for term, found in terms().items():
            first = found.pages[0]
            is_later = first not in PAGES or ORDER.index(first) > ORDER.index(name)
            if is_later and not links & {*found.pages} and is_named(term, words):
                yield f"{term} ({first}): {words}"


@pytest.mark.parametrize("name", ORDER)
def test_a_term_is_used_after_it_is_explained(name):
    known = [term for page, term in EXCEPTIONS if page == name]
    early = [x for x in used_early(name, PAGES[name]) if x.partition(" (")[0] not in known]
    assert not early, "explain the term, link to the page that does, or write it in other words"


@pytest.mark.parametrize("term", terms())
def test_the_pages_of_a_term_explain_it(term):
    for page in terms()[term].pages:
        text = (DOCS / "course" / page).read_text("utf-8")
        answers = re.sub("</?details>|<summary>", "", text)  # an answer may explain a term
        start = "" if text.startswith("---\n") else "---\n---\n"
        assert any(is_named(term, re.sub("[`*]", "", x)) for x in prose(start + answers)), page


@pytest.mark.parametrize("name", ORDER)
def test_a_word_in_italics_is_a_term(name):
    """A page puts a word in italics where it explains it, so the glossary has it."""
    text = " ".join(re.sub(r"`[^`]+`|\$[^$]+\$", "~", " ".join(prose(PAGES[name]))).split())
    words = re.findall(r"(?<![*\w])\*([^*]+)\*(?![*\w])", text)
    words = [x for x in words if x not in LOUD | OF_ONE_PAGE]
    assert not [x for x in words if not any(is_named(term, x) for term in terms())]


def test_a_term_that_comes_too_early_is_noticed():
    page = "---\n---\n# Page\n\n{}\n"
    assert [*used_early(ORDER[0], page.format("Two causal masks, and a beam search."))] == [
        "mask (06_masks.md): Two causal masks, and a beam search.",
        "causal mask (06_masks.md): Two causal masks, and a beam search.",
        "beam search (../decoder.md): Two causal masks, and a beam search.",
    ]
    for right in ("A [mask](06_masks.md).", "`mask`", "kernel regression", "The [mask](x.md)."):
        assert not [*used_early(ORDER[0], page.format(right))]
    assert not [*used_early("06_masks.md", page.format("A mask."))]
