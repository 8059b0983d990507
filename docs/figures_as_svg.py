"""IPython reads this before it runs a page: it keeps each figure as SVG too, with labels as text.

docs/build.py puts these labels into Chinese. The browser has the font, so the machine that builds
the pages needs none.
"""

import io


def svg_of(figure):
    import matplotlib

    file = io.StringIO()
    # Without a date and random names, so that the same figure is the same file.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "tinyattn"}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


formatters = get_ipython().display_formatter.formatters  # noqa: F821
formatters["image/svg+xml"].for_type_by_name("matplotlib.figure", "Figure", svg_of)
