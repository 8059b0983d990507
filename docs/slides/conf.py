"""The slides: python -m sphinx -b revealjs docs/slides docs/_build/html/slides

reveal.js comes with the package sphinx-revealjs, so the slides need no network. Their figures are
those of the pages, out of the notebooks.
"""

import re
from pathlib import Path
from typing import ClassVar

import nbformat
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

DOCS = Path(__file__).parents[1]
project = "tinyattn"
extensions = ["myst_parser", "sphinx_revealjs"]
myst_enable_extensions = ["dollarmath", "amsmath"]
mathjax_path = "tex-svg.js"
revealjs_static_path = ["../_static"]
revealjs_style_theme = "white"
revealjs_css_files = ["slides.css"]


def figures_of(page, heading):
    """The pictures under a heading of a page, as base64."""
    cells = nbformat.read(DOCS / "notebooks" / f"{page}.ipynb", 4).cells
    found, here = [], False
    for cell in cells:
        if headings := re.findall(r"^#+ (.*)$", cell.source, re.M) * (cell.cell_type == "markdown"):
            here = headings[-1] == heading
        outputs = [output.get("data", {}) for output in cell.get("outputs", ())]
        found += [data["image/png"] for data in outputs if here and "image/png" in data]
    return found


class PageFigure(SphinxDirective):
    """A figure of a page: the page, the heading above it, which one under it, what it shows."""

    required_arguments = 1
    option_spec: ClassVar = {
        "under": directives.unchanged_required,
        "number": directives.positive_int,
        "alt": directives.unchanged_required,
    }

    def run(self):
        page, heading = self.arguments[0], self.options["under"]
        number = self.options.get("number", 1)
        found = figures_of(page, heading)
        if len(found) < number:
            raise self.error(f"page {page} has {len(found)} figures under {heading!r}")
        self.env.note_dependency(str(DOCS / "notebooks" / f"{page}.ipynb"))
        uri = "data:image/png;base64," + "".join(found[number - 1].split())
        return [nodes.image(uri=uri, alt=self.options["alt"])]


def setup(app):
    app.add_directive("page-figure", PageFigure)
