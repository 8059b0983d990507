"""Sphinx: the lessons are executed when the docs are built, so what they show is what happens."""

import importlib.util
import math
import re
import struct
from pathlib import Path

from docutils import nodes
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

logger = logging.getLogger(__name__)

project = "tinyattn"
author = "the tinyattn authors"
extensions = ["myst_nb", "sphinx.ext.autodoc"]
html_theme = "furo"
smartquotes = False  # because "..." stands in code and in tables of names
html_title = "tinyattn"
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["docstrings.css", "language.css", "figures.css"]
templates_path = ["_templates"]
mathjax_path = "tex-svg.js"  # MathJax 3.2.2 (Apache-2.0), kept here so that pages need no network
exclude_patterns = ["_build", "exercises", "locale", "notebooks"]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_excludepatterns = [] if importlib.util.find_spec("torch") else ["interop.md"]
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
}
html_context = {"untranslated": UNTRANSLATED}
# Files outside docs are linked from its pages; they open in the repository, not in the site.
suppress_warnings = ["myst.xref_missing"]


def keep_lines(app, what, name, obj, options, lines):
    """Show docstrings line by line, as in an editor, because they are written that way."""
    if any(lines):
        lines[:] = [".. code-block:: text", "", *(f"    {line}" for line in lines), ""]


class WordsToTranslate(SphinxTransform):
    """Give the catalogues the words of a page, and nothing else.

    Sphinx does not translate HTML, so the question in <summary> becomes a text of its own.
    Displayed formulas, and cells that hold code alone, have no words.
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
        for node in self.document.findall(nodes.TextElement):
            formula = isinstance(node, nodes.math_block)
            if formula or all(isinstance(x, (nodes.literal, nodes.math)) for x in node.children):
                node["translatable"] = False


def choose_figures(app, config):
    """Where docs/build.py keeps a figure as PNG and as SVG, the Chinese pages take SVG."""
    if config.language != "zh_CN":
        config.nb_mime_priority_overrides = [("html", "image/png", 35)]


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


def choose_search(app, config):
    """Search for Chinese words needs jieba, which finds them; without it, for whole clauses."""
    if config.language == "zh_CN":
        config.html_search_language = "zh" if importlib.util.find_spec("jieba") else "en"
        config.html_search_options = {"dict": str(app.srcdir / "locale" / "terms.txt")}
        app.add_js_file("chinese_search.js")


def setup(app):
    app.add_transform(WordsToTranslate)
    app.connect("config-inited", choose_figures)
    app.connect("doctree-resolved", fit_figures)
    app.connect("config-inited", choose_prompts)
    app.connect("config-inited", choose_search)
    app.connect("autodoc-process-docstring", keep_lines)
