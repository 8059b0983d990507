"""The search of the site puts the page first that a reader looks for, in both languages.

docs/search.js orders the pages. V8 runs it here with the index that Sphinx made, as a browser does.
"""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("myst_nb", reason='Sphinx is not installed: pip install -e ".[docs]"')

DOCS = Path(__file__).parents[2] / "docs"
SEARCHED = tomllib.loads((Path(__file__).parent / "searched.toml").read_text("utf-8"))
WORDS = tomllib.loads((DOCS / "search_words.toml").read_text("utf-8"))
# What the scripts of Sphinx need of a browser.
BROWSER = """
var window = globalThis, SPHINX_HIGHLIGHT_ENABLED = false, _ready = () => {}, _ = (text) => text;
var document = { getElementById: () => null, querySelectorAll: () => [] };
"""
FIRST = """(() => {
  const found = Search._performSearch(...Search._parseQuery(%s)).reverse();
  return JSON.stringify(found.slice(0, 5).map((result) => result[0]));
})()"""


@pytest.fixture(scope="module", params=["en", "zh_CN"])
def search(request, tmp_path_factory):
    """The language, and a function that gives the first pages for a query."""
    racer = pytest.importorskip("py_mini_racer", reason="mini-racer is not installed")
    out, language = tmp_path_factory.mktemp(request.param), request.param
    command = [sys.executable, "-m", "sphinx", "-Q", "-b", "html", "-D", f"language={language}"]
    subprocess.run([*command, "-D", "nb_execution_mode=off", str(DOCS), str(out)], check=True)
    engine = racer.MiniRacer()
    (often,) = re.findall(r"const OFTEN = .*?;", (out / "search.html").read_text("utf-8"))
    scripts = [
        (out / "_static" / name).read_text("utf-8")
        for name in ("searchtools.js", "language_data.js")
    ]
    index = (
        (out / "searchindex.js")
        .read_text("utf-8")
        .replace("Search.setIndex(", "Search._index = (", 1)
    )
    for script in (BROWSER, often, *scripts, index):
        engine.eval(script)
    return language, lambda query: json.loads(engine.eval(FIRST % json.dumps(query)))


def test_nine_of_ten_queries_find_their_page_first(search):
    language, find = search
    asked = [
        (query, pages.split()) for pages, found in SEARCHED[language].items() for query in found
    ]
    assert len(asked) >= 80
    wrong = {query: find(query) for query, pages in asked if (find(query) or [""])[0] not in pages}
    assert len(wrong) <= len(asked) / 10, wrong


def test_a_term_of_the_glossary_finds_the_page_that_explains_it(search):
    language, find = search
    terms = runpy.run_path(str(DOCS / "conf.py"))["words_of_pages"](language)
    wrong = {
        (page, word): find(word)
        for page, words in terms.items()
        for word in words
        if page not in find(word)[:2]
    }
    assert not wrong


def test_the_function_that_is_named_comes_first(search):
    _, find = search
    assert {find(name)[0] for name in ("clip_grad_norm_", "F.masked_softmax", "no_grad")} == {"api"}


def test_words_that_no_page_has_find_nothing_or_the_rest(search):
    _, find = search
    assert find("qqqq") == []
    assert find("qqqq dropout") == find("dropout")


def test_words_may_be_joined_parted_or_cut_short(search):
    language, find = search
    if language == "en":
        same = {
            "multihead": "multi-head",
            "feedforward network": "feed-forward network",
            "bytepair encoding": "byte-pair encoding",
            "soft max": "softmax",
            "back propagation": "backpropagation",
            "backpropag": "backpropagation",
        }
        wrong = {
            word: find(word) for word, right in same.items() if find(word)[:1] != find(right)[:1]
        }
        assert not wrong


def test_words_of_a_question_that_its_answer_lacks_hide_no_page(search):
    language, find = search
    if language == "en":
        assert find("positional encoding explained to a beginner")[0] == "course/10_positions"
        assert find("dropout at inference")[0] == "course/08_layer_norm"
        assert find("how to mask padding tokens")[0] == "course/06_masks"


def test_words_of_the_search_belong_to_pages():
    pages = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")}
    assert WORDS.keys() <= pages
    words = [word.lower() for found in WORDS.values() for word in found]
    twice = {word for word in words if words.count(word) > 1}
    assert not twice


def test_what_a_result_shows_begins_with_the_text_of_its_page():
    racer = pytest.importorskip("py_mini_racer", reason="mini-racer is not installed")
    engine = racer.MiniRacer()
    engine.eval("var Search = { htmlToText: (html, anchor) => html + anchor };")
    engine.eval((DOCS / "search.js").read_text("utf-8"))
    template = (DOCS / "_templates" / "page.html").read_text("utf-8")
    nav = re.search(r"<nav .*?>", template)[0]
    page = f"<article>{nav}\n<a>中文</a>\n</nav><h1>Masks</h1>"
    shown = engine.eval(f"Search.htmlToText({json.dumps(page)}, '#here')")
    assert shown == "<article><h1>Masks</h1>#here"
