"""The Chinese pages say what the English pages say today.

Each page of docs has a catalogue of its messages with their translation, or stands in UNTRANSLATED
of docs/conf.py with the reason. Sphinx makes the messages, so the comparison needs Sphinx.
"""

from __future__ import annotations

import importlib.util
import os
import re
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("myst_nb", reason='Sphinx is not installed: pip install -e ".[docs]"')
from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po
from chinese import messages_of
from glossary import forms_of, is_named, terms

DOCS = Path(__file__).parents[2] / "docs"
NO_PAGES = ("_build", "exercises", "notebooks", "slides", "template")  # as in docs/conf.py
CATALOGUES = DOCS / "locale" / "zh_CN" / "LC_MESSAGES"
SPEC = importlib.util.spec_from_file_location("build", DOCS / "build.py")
BUILD = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(BUILD)
THEME = "sphinx"  # the catalogue of the words that are the theme's, such as "Next"
UPDATE = """run
sphinx-build -Q -b gettext -D nb_execution_mode=off docs docs/_build/gettext
sphinx-intl update -p docs/_build/gettext -l zh_CN -d docs/locale --no-obsolete"""


def names_of(folder: Path, ending: str) -> set[str]:
    found = (path.relative_to(folder).with_suffix("") for path in folder.rglob(f"*{ending}"))
    return {path.as_posix() for path in found if path.parts[0] not in NO_PAGES}


def catalogue_of(path: Path) -> Catalog:
    with path.open("rb") as file:
        return read_po(file, abort_invalid=True)


PAGES = names_of(DOCS, ".md")
TRANSLATED = sorted(names_of(CATALOGUES, ".po") - {THEME})
UNTRANSLATED: dict[str, str] = runpy.run_path(str(DOCS / "conf.py"))["UNTRANSLATED"]


@pytest.fixture(scope="module")
def messages(tmp_path_factory) -> Path:
    """The folder with the messages of all pages, as Sphinx finds them."""
    out = tmp_path_factory.mktemp("messages")
    command = [sys.executable, "-m", "sphinx", "-Q", "-b", "gettext", "-D", "nb_execution_mode=off"]
    subprocess.run([*command, str(DOCS), str(out)], check=True)
    return out


def test_every_page_is_translated_or_listed_with_a_reason():
    neither = PAGES - set(TRANSLATED) - set(UNTRANSLATED)
    assert not neither, "translate these pages, or add them to UNTRANSLATED in docs/conf.py"
    assert not set(TRANSLATED) & set(UNTRANSLATED), "these have a catalogue, so take them off"
    assert set(TRANSLATED) | set(UNTRANSLATED) <= PAGES, "these pages do not exist"
    assert all(UNTRANSLATED.values())


@pytest.mark.parametrize("page", TRANSLATED)
def test_a_catalogue_is_in_step_with_its_page(page, messages):
    now = {message.id for message in catalogue_of(messages / f"{page}.pot") if message.id}
    catalogue = catalogue_of(CATALOGUES / f"{page}.po")
    kept = {message.id for message in catalogue if message.id}
    assert kept == now, UPDATE
    assert not catalogue.obsolete
    for message in catalogue:
        assert message.string, f"not translated: {message.id}"
        assert not message.id or not message.fuzzy, f"the English has changed: {message.id}"


def test_a_question_stays_in_its_summary(tmp_path):
    """Where the reader opens it, and not at the end of the section."""
    lines = [
        "# Page",
        "<details><summary>Why `x`, <code>y</code>?</summary>",
        "",
        "Because.",
        "</details>",
    ]
    (tmp_path / "index.md").write_text("\n".join(lines))
    command = [sys.executable, "-m", "sphinx", "-Q", "-b", "html", "-c", str(DOCS)]
    subprocess.run([*command, str(tmp_path), str(tmp_path / "out")], check=True)
    page = (tmp_path / "out" / "index.html").read_text("utf-8")
    summary = page.partition("<summary>")[2].partition("</summary>")[0]
    assert re.sub("<[^>]*>", "", summary) == "Why x, y?"


def fixed_parts(text: str) -> Counter[str]:
    """What is the same in every language: code, formulas, the targets of links, HTML."""
    found = re.findall(r"`[^`]+`", text)
    rest = re.sub(r"`[^`]+`", "", text)
    found += re.findall(r"\$[^$]+\$", rest) + re.findall(r"\]\(([^)]*)\)", rest)
    found += re.findall(r"</?\w[^>]*>", rest)
    return Counter(" ".join(part.split()) for part in found)


@pytest.mark.parametrize("page", TRANSLATED)
def test_code_formulas_and_links_are_not_translated(page):
    for message in catalogue_of(CATALOGUES / f"{page}.po"):
        if message.id:
            assert fixed_parts(message.string) == fixed_parts(message.id), message.string


@pytest.mark.parametrize("page", TRANSLATED)
def test_a_translation_is_chinese(page):
    """Two words or more in lower case have a Chinese sentence, not a copy."""
    for message in catalogue_of(CATALOGUES / f"{page}.po"):
        words = re.sub(r"`[^`]+`|\$[^$]+\$|\([^)]*\)|<[^>]*>", "", message.id)
        if page != "course/glossary" and len(re.findall(r"\b[a-z]{2,}\b", words)) > 1:
            assert re.search("[一-鿿]", message.string), message.id
        # Sphinx would read a list, and show the English.
        assert not re.match(r"(\d+[.)]|[-+*]) ", message.string), f"write 1\\. : {message.id}"


def test_the_chinese_glossary_names_pages_in_chinese():
    messages = catalogue_of(CATALOGUES / "course/glossary.po")
    links = [name for x in messages for name in re.findall(r"\[([^]]+)\]\(", str(x.string))]
    assert len(links) > 20
    assert not [link for link in links if re.search("[a-z]{2}", link)]


def glossary() -> dict[str, str]:
    """The Chinese name of each English term."""
    return {name: term.chinese for name, term in terms().items()}


# Where the words of a term are a part of another term, or of a name in code.
OTHER_MEANINGS = (
    r"[Tt]he head (?:of a model|was trained)|this head cannot|matrices and the head|width % heads|"
    "Gradient Accumulation|vector-Jacobian product|kernel regression|score card|exposure bias|"
    "symbols in view|autograd and attention|mean with the weights|"
    "key, query, value, the call query, key, value|[Tt]he feature is"
)


def terms_of(english: str) -> set[str]:
    """The terms of the glossary in a text, without those in code, formulas, links and quotes."""
    left_out = rf"`[^`]+`|\$[^$]+\$|\]\([^)]*\)|<[^>]*>|\"[^\"]*\"|{OTHER_MEANINGS}"
    text = re.sub(left_out, " ", " ".join(english.split()))
    return {name for name in glossary() if is_named(name, text)}


def test_terms_are_found_in_a_text():
    assert terms_of("Queries in batches") == {"query", "batch"}
    assert terms_of(
        'Dropout of `mask`, "keys" and $key$; the last layers, one kernel regression'
    ) == {"dropout"}
    assert terms_of("attention weights of a query") == {
        *("attention", "attention weights", "weight", "query")
    }


def test_a_chinese_name_belongs_to_one_term():
    """So that a reader of it knows which is meant. The names stand here alone."""
    names = glossary()
    assert len(names) > 80
    assert len(set(names.values())) == len(names)


def texts_in_chinese() -> dict[str, list[tuple[str, str]]]:
    """All that a Chinese reader gets, (English, Chinese), by the file it stands in."""
    paths = {page: CATALOGUES / f"{page}.po" for page in TRANSLATED}
    paths |= {"figures": BUILD.LABELS}
    paths |= {f"exercises/{path.stem}": path for path in (DOCS / "exercises/zh_CN").glob("*.po")}
    return {
        name: [(x.id, x.string) for x in catalogue_of(path) if x.id] for name, path in paths.items()
    }


TEXTS = texts_in_chinese()


@pytest.mark.parametrize("name", sorted({*TEXTS} - {"course/glossary"}))
def test_a_term_has_one_chinese_name(name):
    """That of the glossary, so that a reader finds it there.

    The exercises have names of code without quotes; a sentence that keeps one is right.
    """
    names = glossary()
    for english, chinese in TEXTS[name]:
        for term in terms_of(english):
            is_code = name.startswith("exercises/") and re.search(forms_of(term), chinese)
            assert names[term] in chinese or is_code, f"{term} is {names[term]}: {chinese}"


# Other translations of terms, which a reader would take for other things.
OTHERS = re.compile(
    "遮罩|屏蔽|层归一化|丢弃法|随机失活|令牌|标记化|集束搜索|加法注意力|键值头|雅克比|批归一化|"
    "叶节点|叶子|词汇表|动量(?!法)|隐藏状态|每一位都?相同|逐位一致|已发[表布]|穿过掩码|多头(?!注意力)|"
    r"(?<![A-Za-z])id(?![A-Za-z])"
)


@pytest.mark.parametrize("name", sorted({*TEXTS, "README_zh"}))
def test_terms_are_those_of_the_glossary(name):
    if name == "README_zh":
        text = (DOCS.parent / "README_zh.md").read_text("utf-8")
        text = re.sub("```.*?```", "", text, flags=re.DOTALL)
    else:
        text = "\n".join(chinese for english, chinese in TEXTS[name] if chinese != english)
    if name == "course/glossary":  # it names a usual other translation, so that a search finds it
        text = re.sub("也叫.*", "", text)
    assert not OTHERS.findall(re.sub(r"`[^`]*`|\$[^$]*\$|\]\([^)]*\)", "", text))


def test_labels_of_figures_are_put_into_chinese():
    known = {
        "Keys": "键",
        "a < b": "a < b 时",
        "{0} tiles": "{0} 块",
        "u {0}": "第 {0} 个",
        "u x": "x",
    }
    shown = {
        "Keys": "键",
        "a &lt; b": "a &lt; b 时",
        "28 tiles": "28 块",
        "u 1": "第 1 个",
        "u x": "x",
    }
    shown |= {label: label for label in ("0.5", "Q", "what else")}
    figure = "".join(f'<text x="1">{label}</text>' for label in shown) + "<title>Keys</title>"
    figure, labels = BUILD.translate_labels(figure, known)
    right = "".join(f'<text x="1">{label}</text>' for label in shown.values())
    assert figure == right + "<title>Keys</title>"
    assert labels == {*known, "what else"}


def test_words_of_a_figure_in_html_are_put_into_chinese():
    known = {"step {0} of {1}:": "{1} 步中的第 {0} 步：", "key {0}": "键 {0}", "play": "播放"}
    pairs = {
        "<p>step <b>1</b>\nof <i>2</i>:</p>": "<p><i>2</i> 步中的第 <b>1</b> 步：</p>",
        '<th lang="en">play</th><th>play</th>': '<th lang="en">play</th><th>播放</th>',
        '<button title="play">key <b>2</b></button>': '<button title="播放">键 <b>2</b></button>',
        '<svg aria-label="key 3"><text>Q</text>': '<svg aria-label="键 3"><text>Q</text>',
    }
    others = ["<label>what else</label>", '<p><input type="range"></p>', "<td>play</td>"]
    pairs |= {same: same for same in others}
    figure, labels = BUILD.translate_labels("".join(pairs), known)
    assert figure == "".join(pairs.values())
    assert labels == {*known, "what else"}


def test_figures_show_the_labels_of_the_catalogue_and_no_others(tmp_path, monkeypatch):
    monkeypatch.setattr(BUILD, "translations", lambda: {"Keys": "键", "play": "播放"})
    image, page = tmp_path / "_images" / "a.svg", tmp_path / "course" / "a.html"
    image.parent.mkdir()
    page.parent.mkdir()
    image.write_text('<svg width="1pt"><text>Keys</text></svg>')
    html = '<p>play</p><figure class="interactive"><p>{}</p></figure><p>play</p>'
    page.write_text(html.format("play"))
    BUILD.translate_figures(tmp_path)
    assert image.read_text("utf-8") == '<svg xml:lang="zh-CN" width="1pt"><text>键</text></svg>'
    assert page.read_text("utf-8") == html.format("播放")
    with pytest.raises(SystemExit, match=r"add the labels \[\]; no figure has \['Keys', 'play'\]"):
        BUILD.translate_figures(tmp_path)
    image.write_text('<svg width="1pt"><text>Keys</text><text>other words</text></svg>')
    page.write_text(html.format("more words"))
    more = r"add the labels \['more words', 'other words'\]; no figure has \['play'\]"
    with pytest.raises(SystemExit, match=more):
        BUILD.translate_figures(tmp_path)
    english = next(iter(UNTRANSLATED))  # its figures are in English, as its words are
    page.rename(tmp_path / f"{english}.html")
    other = '<svg width="1pt"><text>Keys</text><text>play</text></svg>'
    (image.parent / "other.svg").write_text(other)
    with (tmp_path / f"{english}.html").open("a") as file:
        file.write('<img src="_images/a.svg"/>')
    before = image.read_text("utf-8")
    BUILD.translate_figures(tmp_path)
    assert image.read_text("utf-8") == before


def test_labels_keep_their_values():
    known = BUILD.translations()
    assert len(known) > 100
    for english, chinese in known.items():
        assert chinese
        assert sorted(re.findall(r"{\d}", english)) == sorted(re.findall(r"{\d}", chinese)), english


@pytest.mark.parametrize(("language", "kind"), [("en", ".png"), ("zh_CN", ".svg")])
def test_a_figure_is_svg_on_the_chinese_pages_alone(language, kind, tmp_path):
    lines = [
        *("---", "file_format: mystnb", "kernelspec:", "  name: python3", "---"),
        *("# Page", "```{code-cell}", "from tinyattn import viz", "figure = viz.figure_class()()"),
        *('figure.subplots().set_xlabel("Keys and more")', "figure", "```"),
    ]
    pages, out = tmp_path / "pages", tmp_path / "out"
    pages.mkdir()
    (pages / "index.md").write_text("\n".join(lines))
    BUILD.keep_figures_as_svg(tmp_path / "ipython")
    command = [sys.executable, "-m", "sphinx", "-Q", "-b", "html", "-c", str(DOCS)]
    command += ["-D", f"language={language}", "-D", "nb_execution_mode=force"]
    variables = {**os.environ, "IPYTHONDIR": str(tmp_path / "ipython")}
    subprocess.run([*command, str(pages), str(out)], env=variables, check=True)
    (image,) = (out / "_images").iterdir()
    assert image.suffix == kind
    assert kind == ".png" or ">Keys and more</text>" in image.read_text("utf-8")


@pytest.mark.parametrize(
    ("inches", "points", "too_small"),
    [(5, 10, []), (5, 8, [8.0]), (6, 10, []), (11, 10, []), (11.6, 10, [8.8]), (4, 7, [8.7])],
)
def test_letters_that_are_too_small_give_a_warning(inches, points, too_small, tmp_path):
    """On a telephone; a figure of more than 5 inches is scrolled there and has a link to itself."""
    lines = [
        *("---", "file_format: mystnb", "kernelspec:", "  name: python3", "---"),
        *("# Page", "```{code-cell}", "from tinyattn import viz"),
        f"figure = viz.figure_class()(figsize=({inches}, 3))",
        f'figure.text(0.5, 0.5, "Keys", fontsize={points})',
        *("figure", "```"),
    ]
    pages, out = tmp_path / "pages", tmp_path / "out"
    pages.mkdir()
    (pages / "index.md").write_text("\n".join(lines))
    BUILD.keep_figures_as_svg(tmp_path / "ipython")
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", "-c", str(DOCS)]
    command += ["-D", "language=zh_CN", "-D", "nb_execution_mode=force"]
    variables = {**os.environ, "IPYTHONDIR": str(tmp_path / "ipython")}
    done = subprocess.run(
        [*command, str(pages), str(out)], env=variables, check=True, capture_output=True, text=True
    )
    found = re.findall(r"letters of ([\d.]+) pixels", done.stderr)
    assert [float(size) for size in found] == too_small
    page = (out / "index.html").read_text("utf-8")
    (image,) = re.findall(r'(?:<a class="[^"]*image-reference[^>]*>)?<img[^>]*_images[^>]*>', page)
    assert (image.startswith("<a"), "wide-figure" in image) == (inches > 5, inches > 5)


@pytest.mark.parametrize(
    ("language", "prompt"), [("en", "Show code cell source"), ("zh_CN", "显示代码")]
)
def test_what_stands_above_hidden_code_is_in_the_language_of_the_page(language, prompt, tmp_path):
    lines = [
        *("---", "file_format: mystnb", "kernelspec:", "  name: python3", "---"),
        *("# Page", "```{code-cell}", ":tags: [hide-input]", "1", "```"),
    ]
    (tmp_path / "index.md").write_text("\n".join(lines))
    command = [sys.executable, "-m", "sphinx", "-Q", "-b", "html", "-c", str(DOCS)]
    command += ["-D", f"language={language}", "-D", "nb_execution_mode=off"]
    subprocess.run([*command, str(tmp_path), str(tmp_path / "out")], check=True)
    assert prompt in (tmp_path / "out" / "index.html").read_text("utf-8")


def test_a_page_without_a_catalogue_has_no_messages() -> None:
    """So docs/notebooks.py writes its notebook in Chinese with the English words."""
    assert messages_of(DOCS / "course" / "99_mine.md") == {}
