"""Build the pages in English and in Chinese, in docs/_build/html: python docs/build.py

Options are Sphinx's, such as -W. The English build runs the code of every page; the Chinese build
takes the outputs from it. They are kept for this one build only, because they depend on the library
and not only on the pages. Figures come as PNG for the English pages, and as SVG for the Chinese
ones. Their labels, and the words of figures that a reader changes, are then put into Chinese.
"""

import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from babel.messages.pofile import read_po

DOCS = Path(__file__).parent
HTML = DOCS / "_build" / "html"
LABELS = DOCS / "locale" / "zh_CN" / "figures.po"
CHINESE = '<svg xml:lang="zh-CN" '  # so that a browser takes the Chinese forms of signs
FIGURE = re.compile(r'<figure class="interactive.*?</figure>', re.DOTALL)
# Where the words of a figure stand.
ELEMENT = re.compile(
    r"(?P<before><(?P<tag>text|p|th|caption|label|button)\b[^>]*>)(?P<label>.*?)(?P<after></(?P=tag)>)",
    re.DOTALL,
)
ATTRIBUTE = re.compile(r'(?P<before>(aria-label|title)=")(?P<label>[^"]*)(?P<after>")')


def build(language: str, out: Path, folder: Path, other: dict[str, str]) -> None:
    """One language; `other` tells the template of the pages about the other one."""
    values = {
        "language": language,
        "nb_execution_mode": "cache",
        "nb_execution_cache_path": str(folder / "outputs"),
    }
    command = [sys.executable, "-m", "sphinx", "-E", "-b", "html", *sys.argv[1:]]
    command += [word for name in values for word in ("-D", f"{name}={values[name]}")]
    command += [word for name in other for word in ("-A", f"{name}={other[name]}")]
    variables = {**os.environ, "IPYTHONDIR": str(folder / "ipython")}
    subprocess.run([*command, str(DOCS), str(out)], env=variables, check=True)


def keep_figures_as_svg(folder: Path) -> None:
    """Make this folder one of IPython's, which it reads before it runs a page."""
    startup = folder / "profile_default" / "startup"
    startup.mkdir(parents=True)
    shutil.copy(DOCS / "figures_as_svg.py", startup)


def translations() -> dict[str, str]:
    """The Chinese labels of figures, by the English ones."""
    with LABELS.open("rb") as file:
        return {message.id: message.string for message in read_po(file) if message.id}


def translate_label(label: str, known: dict[str, str], labels: set[str]) -> str:
    """A label as HTML, in Chinese; its entry in the catalogue goes to `labels`.

    In the catalogue, {0} and {1} stand for values. A label without words stays as it is.
    """
    label = " ".join(label.split())
    for english in sorted(known, key=lambda x: (x.count("{"), -len(x))):
        pattern = re.sub(r"\\{\d\\}", "(.+)", re.escape(html.escape(english, quote=False)))
        if values := re.fullmatch(pattern, label):
            labels.add(english)
            return html.escape(known[english], quote=False).format(*values.groups())
    if re.search("[a-z]{2}", re.sub("<[^>]*>", "", label)):
        labels.add(html.unescape(label))
    return label


def translate_labels(figure: str, known: dict[str, str]) -> tuple[str, set[str]]:
    """A figure, SVG or HTML, with its labels in Chinese, and these labels.

    What has lang="en" is a word that the figure is about, and stays English.
    """
    labels: set[str] = set()

    def translated(found: re.Match[str]) -> str:
        if ' lang="en"' in found["before"]:
            return found[0]
        return found["before"] + translate_label(found["label"], known, labels) + found["after"]

    figure = ELEMENT.sub(translated, figure)
    return ATTRIBUTE.sub(translated, figure), labels


def translate_figures(pages: Path) -> None:
    """Those of the Chinese pages. They show all labels of the catalogue, and no others."""
    known = translations()
    shown: set[str] = set()

    def translated(figure: str) -> str:
        figure, labels = translate_labels(figure, known)
        shown.update(labels)
        return figure

    for path in sorted(pages.glob("_images/*.svg")):
        figure = path.read_text("utf-8")
        if CHINESE not in figure:  # an image of an earlier build may be in Chinese already
            path.write_text(translated(figure).replace("<svg ", CHINESE, 1), "utf-8")
    for path in sorted(pages.rglob("*.html")):
        page = path.read_text("utf-8")
        path.write_text(FIGURE.sub(lambda found: translated(found[0]), page), "utf-8")
    if shown != set(known):
        more, fewer = sorted(shown - set(known)), sorted(set(known) - shown)
        sys.exit(f"{LABELS}: add the labels {more}; no figure has {fewer}")


if __name__ == "__main__":
    chinese = {"other_name": "中文", "other_code": "zh-CN", "other_root": "zh_CN/"}
    english = {"other_name": "English", "other_code": "en", "other_root": "../"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        keep_figures_as_svg(folder / "ipython")
        build("en", HTML, folder, chinese)
        build("zh_CN", HTML / "zh_CN", folder, english)
    translate_figures(HTML / "zh_CN")
