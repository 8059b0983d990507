"""Sphinx: the lessons are executed when the docs are built, so what they show is what happens."""

import importlib
import importlib.util
import json
import logging
import math
import posixpath
import re
import struct
import sys
import time
import tomllib
from collections import Counter
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.search.en import SearchEnglish
from sphinx.transforms import SphinxTransform
from sphinx.util.logging import getLogger

logger = getLogger(__name__)

project = "tinyattn"
author = "the tinyattn authors"
extensions = ["myst_nb", "sphinx.ext.autodoc"]
html_theme = "furo"
smartquotes = False  # because "..." stands in code and in tables of names
html_title = "tinyattn"
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["docstrings.css", "language.css", "figures.css", "print.css"]
html_js_files = ["print.js"]
html_favicon = "_static/favicon.svg"
html_extra_path = ["404.html"]
html_search_scorer = str(Path(__file__).parent / "search.js")
templates_path = ["_templates"]
mathjax_path = "tex-svg.js"  # MathJax 3.2.2 (Apache-2.0), kept here so that pages need no network
exclude_patterns = ["_build", "exercises", "locale", "notebooks", "slides", "template"]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_excludepatterns = [] if importlib.util.find_spec("torch") else ["models.md"]
nb_render_markdown_format = "myst"  # with tables
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True  # all lines that a cell prints, in one box
nb_output_stderr = "remove"  # the line that says that kernels are compiled
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_preserve_defaults = True
# The Chinese build takes its texts from one catalogue for each page.
locale_dirs = ["locale"]
gettext_compact = False
gettext_location = False  # a line more in a page changes no catalogue
# Pages without a catalogue, and why; the Chinese build shows them in English and says so.
UNTRANSLATED = {
    "api": "the docstrings are in English, because they are read beside the code",
    "exam": "a lecturer writes an exam in the words of the own lectures",
    "own_page": "it is about pages without Chinese, and the tests that it quotes speak English",
}
# The pages that are notebooks too, which docs/build.py puts beside them.
NOTEBOOKS = sorted(path.stem for path in (Path(__file__).parent / "notebooks").glob("*.ipynb"))
html_context = {"untranslated": UNTRANSLATED, "with_notebook": NOTEBOOKS}
# Files outside docs are linked from its pages; they open in the repository, not in the site.
suppress_warnings = ["myst.xref_missing"]


def keep_lines(app, what, name, obj, options, lines):
    """Show docstrings line by line, as in an editor, because they are written that way."""
    if any(lines):
        lines[:] = [".. code-block:: text", "", *(f"    {line}" for line in lines), ""]


def show_docstrings(app, name, source):
    """In the site the reference has whole docstrings; docs/reference.py says how it is written."""
    if name == "api":
        sys.path.insert(0, str(Path(__file__).parent))
        source[0] = importlib.import_module("reference").directives(source[0])


class WordsToTranslate(SphinxTransform):
    """Give the catalogues the words of a page, and nothing else.

    Sphinx does not translate HTML, so the question in <summary> becomes a text of its own, and the
    alternative text of a figure, which its cell has as an option, too. Displayed formulas, and
    cells that hold code alone, have no words.
    """

    default_priority = 5  # before Sphinx marks what is to be translated

    def apply(self, **kwargs):
        for raw in list(self.document.findall(nodes.raw)):
            before, tag, rest = raw.astext().partition("<summary>")
            words, end, after = rest.partition("</summary>")
            if end:
                text = nodes.inline(words, translatable=True)
                text.source, text.line = raw.source, raw.line
                code = re.sub("`([^`]+)`", r"<code>\1</code>", words)
                text += nodes.raw("", code, format="html")
                raw.replace_self(
                    [
                        nodes.raw("", before + tag, format="html"),
                        nodes.inline("", "", text),  # Sphinx moves words to their parent's end
                        nodes.raw("", end + after, format="html"),
                    ]
                )
        for cell in list(self.document.findall(nodes.container)):
            if alt := cell.get("cell_metadata", {}).get("alt"):
                text = nodes.inline(alt, alt, translatable=True)
                text.source, text.line = cell.source, cell.line
                # Sphinx moves words to their parent's end, so they have one of their own.
                cell.parent.insert(cell.parent.index(cell), nodes.inline("", "", text, alt=True))
        for node in self.document.findall(nodes.TextElement):
            formula = isinstance(node, nodes.math_block)
            if formula or all(isinstance(x, (nodes.literal, nodes.math)) for x in node.children):
                node["translatable"] = False


def choose_figures(app, config):
    """Where docs/build.py keeps a figure as PNG and as SVG, the Chinese pages take SVG."""
    if config.language != "zh_CN":
        config.nb_mime_priority_overrides = [("html", "image/png", 35)]


def set_alternative_texts(app, doctree, name):
    """Move them from before a cell into its figures."""
    if app.builder.name == "gettext":  # it writes down what is to be translated
        return
    for text in [x for x in doctree.findall(nodes.inline) if "alt" in x]:
        cell = text.next_node(nodes.container, descend=False, siblings=True)
        for image in cell.findall(nodes.image):
            image["alt"] = text.astext()
        text.parent.remove(text)


PHONE, SCREEN = 358, 736  # pixels for a figure in a window of 390 and in a wide one
LEAST = 9  # pixels for the letters of a figure


def width_of(path):
    """The width of a PNG or SVG figure in inches."""
    content = path.read_bytes()
    if path.suffix == ".png":
        dots = re.search(rb"pHYs(.{4})", content, re.DOTALL)  # in a metre
        in_an_inch = struct.unpack(">I", dots[1])[0] * 0.0254 if dots else 100
        return struct.unpack(">I", content[16:20])[0] / in_an_inch
    return float(re.search(rb'<svg[^>]* width="([\d.]+)pt"', content)[1]) / 72


def letters_of(path):
    """The height of the smallest letters of an SVG figure in inches, without exponents."""
    texts = re.findall(r"<text.*?</text>", path.read_text("utf-8"), re.DOTALL)
    sizes = [re.findall(r"font-size: ([\d.]+)px", text) for text in texts]
    return min((max(map(float, found)) for found in sizes if found), default=math.inf) / 72


def fit_figures(app, doctree, name):
    """A figure of more than 5 inches links to itself, and a telephone scrolls it: see figures.css.

    Narrower ones shrink to the width of a telephone. Letters that become too small give a warning.
    """
    for image in doctree.findall(nodes.image):
        path = Path(app.srcdir, image["uri"].lstrip("/"))
        width = width_of(path)
        if is_wide := width > 5.05:
            image["width"] = f"{100 * width:.0f}px"  # Sphinx links what has a width
            image["classes"].append("wide-figure")
        if path.suffix == ".svg":
            scale = min(100, (SCREEN if is_wide else PHONE) / width)  # pixels in an inch
            if (shown := scale * letters_of(path)) < LEAST:
                message = "letters of %.1f pixels in a figure of %.1f inches; %s are the least"
                logger.warning(message, shown, width, LEAST, location=name)


def choose_prompts(app, config):
    """What stands above code that is hidden, because myst-nb has it in English alone."""
    if config.language == "zh_CN":
        config.nb_code_prompt_show, config.nb_code_prompt_hide = "显示代码", "隐藏代码"


class SearchInChinese(SearchEnglish):
    """Search in pages that have no spaces between words.

    Each Chinese sign and each pair of neighbours is a term of the index. A word that is searched
    for stands for all pairs in it, so no list of words is needed, and none can lack a word.
    """

    lang = "zh"
    # It divides what a reader types, as `split` divides the pages; a word needs its pairs only.
    # Then it asks for one term at a time, because Sphinx does not require a term of fewer than
    # three signs where there is a longer one.
    # Words of a question, such as "how" and "what is", and words that say no more, are left out,
    # unless nothing else is there.
    js_splitter_code = r"""
const QUESTION = /如何|怎么样?|怎样|为什么|什么是|是什么|什么|的区别|的作用|机制|算法|方法|原理/g;

var splitQuery = (query) => {
  const bare = query.replace(QUESTION, " ");
  const text = /[\p{Letter}\p{Number}]/u.test(bare) ? bare : query;
  const words = text.match(/[一-鿿]+|(?:(?![一-鿿])[\p{Letter}\p{Number}_])+/gu) || [];
  return words.flatMap((word) =>
    /^[一-鿿]{2}/.test(word)
      ? Array.from({ length: word.length - 1 }, (_, i) => word.substr(i, 2))
      : [word],
  );
};

const searchForTerms = Search.performTermsSearch;
Search.performTermsSearch = (terms, excluded) =>
  [...terms]
    .map((term) => searchForTerms(new Set([term]), excluded))
    .reduce(
      (all, found) => all?.filter((page) => found.some((other) => other[0] === page[0])) ?? found,
      null,
    ) ?? [];
"""

    def split(self, text):
        terms = []
        for chinese, other in re.findall(r"([一-鿿]+)|([^\W一-鿿]+)", text):
            pairs = [chinese[i : i + 2] for i in range(len(chinese) - 1)]
            terms += [*chinese, *pairs] if chinese else [other]
        return terms


def words_of_pages(language):
    """By page, the terms that it explains, as the glossary says, and other words for them."""
    folder = Path(__file__).parent
    found = tomllib.loads((folder / "search_words.toml").read_text("utf-8"))
    if language != "zh_CN":
        found = {page: [x for x in words if x.isascii()] for page, words in found.items()}
    glossary = folder / "course/glossary.md"
    glossary = glossary.read_text("utf-8") if glossary.is_file() else ""
    rows = re.findall(
        r"^\| ([^|]+) \| ([^|]+) \| [^|]+ \| \[[^]]+\]\(([^)]+)\.md\)", glossary, re.M
    )
    for english, chinese, name in rows:
        words = found.setdefault(posixpath.normpath(f"course/{name}"), [])
        words += english.split(", ")
        if language == "zh_CN":
            words += chinese.replace("*", "").split("，")
    return found


class WordsOfTheSearch(SphinxTransform):
    """Put the words of a page into the index, where docs/search.js looks first."""

    default_priority = 900

    def apply(self, **kwargs):
        for name in ("search_words.toml", "course/glossary.md"):
            if (path := Path(self.app.srcdir, name)).is_file():
                self.env.note_dependency(str(path))
        words = self.app.config.search_words.get(self.env.docname, [])
        entries = [("single", word, "", "main", None) for word in dict.fromkeys(words)]
        if entries:
            self.document.insert(0, addnodes.index(entries=entries))


def show_files(app, doctree, name):
    """Let links to files outside docs, such as those of the library, open them as pages."""
    for link in list(doctree.findall(addnodes.download_reference)):
        path = Path(app.srcdir, app.env.relfn2path(link["reftarget"], name)[0]).resolve()
        if path.is_file() and not path.is_relative_to(app.srcdir):
            target = f"files/{path.relative_to(Path(app.srcdir).parent).as_posix()}.html"
            reference = nodes.reference("", "", *link.children, internal=True)
            reference["refuri"] = posixpath.relpath(target, posixpath.dirname(name) or ".")
            link.replace_self(reference)


def pages_of_files(app):
    """These pages: a file with its path as the title, coloured like the code of the other pages."""
    root = Path(app.srcdir).parent
    for file in sorted(app.env.dlfiles):
        path = Path(app.srcdir, file).resolve()
        if path.is_relative_to(app.srcdir) or not path.is_file():
            continue
        name = path.relative_to(root).as_posix()
        written = Path(app.outdir, "files", f"{name}.html")
        sources = path, Path(app.confdir, "conf.py")
        if written.is_file() and written.stat().st_mtime > max(x.stat().st_mtime for x in sources):
            continue  # so that a build without changes takes seconds
        language = {".py": "python", ".cu": "cuda", ".h": "c"}.get(path.suffix, "text")
        code = app.builder.highlighter.highlight_block(path.read_text("utf-8"), language)
        title = name.replace("/", "/<wbr>")  # where a telephone may break it
        yield f"files/{name}", {"title": name, "body": f"<h1>{title}</h1>{code}"}, "page.html"


OFTEN = 100  # words of a page whose number the search knows


def count_words(app, doctree):
    """How often the page has its most frequent words; Sphinx's index says only that it has them."""
    kind = SearchInChinese if app.config.language == "zh_CN" else SearchEnglish
    language = kind({})
    words = [x.lower() for x in language.split(doctree.astext())]
    stems = (language.stem(x) for x in words if language.word_filter(x) and not x.isdigit())
    counts = dict(Counter(stems).most_common(OFTEN))
    app.env.metadata[app.env.docname]["often"] = counts


def tell_the_search(app, name, template, context, doctree):
    """Put the counts into the page of the search, for docs/search.js."""
    if name == "search":
        metadata = app.env.metadata
        counts = {
            page: metadata[page]["often"] for page in sorted(metadata) if "often" in metadata[page]
        }
        app.add_js_file(None, body=f"const OFTEN = {json.dumps(counts, ensure_ascii=False)};")


class Contents:
    """Writes all pages if a title or the order of pages has changed: each shows them at its side.

    Sphinx would write the changed pages alone.
    """

    def find(self, env):
        titles = {name: title.astext() for name, title in env.titles.items()}
        return titles, dict(env.toctree_includes)

    def remember(self, app, env, added, changed, removed):
        self.last = self.find(env)
        return []

    def pages_to_write(self, app, env):
        return [] if self.find(env) == self.last else sorted(env.found_docs)


class Progress:
    """Prints a line for each page that has been read, and about how long the others will take.

    A page takes as long as in the last build, of which the file knows, or else as long as the mean
    of those that have been read.
    """

    def __init__(self, file):
        self.file = file
        self.known = json.loads(file.read_text("utf-8")) if file.is_file() else {}
        self.read = {}

    def begin(self, app, env, names):
        self.left = set(names)
        self.last = time.perf_counter()

    def page_is_read(self, app, doctree):
        name, now = app.env.docname, time.perf_counter()
        self.left.discard(name)
        self.read[name] = now - self.last
        self.last = now
        print(self.line(name), flush=True)

    def line(self, name):
        number, spent = len(self.read), sum(self.read.values())
        rest = sum(self.known.get(page, spent / number) for page in self.left)
        total = number + len(self.left)
        return f"[{number}/{total}] {name}: {self.read[name]:.1f} s, about {rest:.0f} s left"

    def end(self, app, env):
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps(self.known | self.read), "utf-8")
        print(
            f"{app.config.language}: {len(self.read)} pages read, now they are written", flush=True
        )


def show_progress(app, config):
    logging.getLogger("traitlets").setLevel(logging.WARNING)  # not one line more for each kernel
    if config.progress_file:
        progress = Progress(Path(config.progress_file))
        app.connect("env-before-read-docs", progress.begin)
        app.connect("doctree-read", progress.page_is_read)
        app.connect("env-updated", progress.end)


def setup(app):
    app.add_config_value("progress_file", "", "")
    app.connect("config-inited", show_progress)
    contents = Contents()
    app.connect("env-get-outdated", contents.remember)
    app.connect("env-updated", contents.pages_to_write)
    app.add_transform(WordsToTranslate)
    app.add_config_value("search_words", {}, "env")
    app.connect(
        "config-inited", lambda app, c: setattr(c, "search_words", words_of_pages(c.language))
    )
    app.add_transform(WordsOfTheSearch)
    app.connect("source-read", show_docstrings)
    app.connect("doctree-read", count_words)
    app.connect("doctree-resolved", show_files)
    app.connect("html-collect-pages", pages_of_files)
    app.connect("html-page-context", tell_the_search)
    app.add_search_language(SearchInChinese)
    app.connect("config-inited", choose_figures)
    app.connect("doctree-resolved", set_alternative_texts)
    app.connect("doctree-resolved", fit_figures)
    app.connect("config-inited", choose_prompts)
    app.connect("autodoc-process-docstring", keep_lines)
