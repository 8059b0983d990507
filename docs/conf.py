"""Sphinx: the lessons are executed when the docs are built, so what they show is what happens."""

import importlib.util

project = "tinyattn"
author = "the tinyattn authors"
extensions = ["myst_nb", "sphinx.ext.autodoc"]
html_theme = "furo"
smartquotes = False  # because "..." stands in code and in tables of names
html_title = "tinyattn"
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["docstrings.css"]
mathjax_path = "tex-svg.js"  # MathJax 3.2.2 (Apache-2.0), kept here so that pages need no network
exclude_patterns = ["_build", "exercises"]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_excludepatterns = [] if importlib.util.find_spec("torch") else ["interop.md"]
nb_render_markdown_format = "myst"  # with tables
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True  # all lines that a cell prints, in one box
nb_output_stderr = "remove"  # the line that says that kernels are compiled
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_preserve_defaults = True
# Files outside docs are linked from its pages; they open in the repository, not in the site.
suppress_warnings = ["myst.xref_missing"]


def keep_lines(app, what, name, obj, options, lines):
    """Show docstrings line by line, as in an editor, because they are written that way."""
    if any(lines):
        lines[:] = [".. code-block:: text", "", *(f"    {line}" for line in lines), ""]


def setup(app):
    app.connect("autodoc-process-docstring", keep_lines)
