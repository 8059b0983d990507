"""The site: what its search finds, and what docs/build.py makes of the pages."""

from __future__ import annotations

import functools
import html
import json
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("myst_nb", reason='Sphinx is not installed: pip install -e ".[docs]"')

DOCS = Path(__file__).parents[2] / "docs"
NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
# Words that a student looks for, and a page where they must be found.
SEARCHED = {
    "残差": "course/11_encoder",
    "嵌入": "course/00_text_to_numbers",
    "因果": "course/14_decoder",
    "保存": "course/12_training_loop",
    "梯度检查": "course/04_trust_no_gradient",
    "键": "course/01_soft_lookup",
    "注意力权重": "attention",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The Chinese pages, without the outputs of their code."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-Q", "-b", "html", "-D", "language=zh_CN"]
    subprocess.run([*command, "-D", "nb_execution_mode=off", str(DOCS), str(out)], check=True)
    return out


def texts_of(site: Path) -> dict[str, str]:
    """What a reader sees on each page."""
    texts = {}
    for path in site.rglob("*.html"):
        if article := re.search(r"<article.*?</article>", path.read_text("utf-8"), re.DOTALL):
            words = re.sub(r"<(script|style).*?</\1>|<[^>]*>", "", article[0], flags=re.DOTALL)
            texts[path.relative_to(site).with_suffix("").as_posix()] = html.unescape(words)
    return {name: text for name, text in texts.items() if name not in ("search", "genindex")}


def found_by(index: dict, terms: list[str]) -> set[str]:
    """The pages that have all these terms in their text or titles, as searchtools.js finds them."""

    def having(term: str) -> set[int]:
        places = [index[kind].get(term, []) for kind in ("terms", "titleterms")]
        return {page for x in places for page in (x if isinstance(x, list) else [x])}

    pages = functools.reduce(set.intersection, map(having, terms))
    return {index["docnames"][page] for page in pages}


@pytest.mark.parametrize("word", SEARCHED)
def test_the_index_knows_the_pages_of_a_chinese_word(word, site):
    text = (site / "searchindex.js").read_text("utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    terms = [word[i : i + 2] for i in range(len(word) - 1)] or [word]
    right = {name for name, text in texts_of(site).items() if word in text}
    assert SEARCHED[word] in right
    assert found_by(index, terms) == right


def test_terms_of_a_text_are_signs_pairs_and_words():
    split = runpy.run_path(str(DOCS / "conf.py"))["SearchInChinese"]({}).split
    assert " ".join(split("梯度，softmax 的值_1x")) == "梯 度 梯度 softmax 的 值 的值 _1x"


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
@pytest.mark.parametrize("word", SEARCHED)
def test_a_browser_finds_the_pages_of_a_chinese_word(word, site, tmp_path):
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=10000"]
    address = (site / "search.html").as_uri() + f"?q={word}"
    done = subprocess.run(
        [*command, address], capture_output=True, text=True, timeout=120, check=True
    )
    results = done.stdout.partition('id="search-results"')[2]
    found = set(re.findall(r'<a href="([^"#]*)[^"]*" data-score', results))
    right = {name for name, text in texts_of(site).items() if word in text}
    assert found == {f"{name}.html" for name in right}
