"""Build the pages in English and in Chinese, in docs/_build/html: python docs/build.py

Options are Sphinx's, such as -W. The English build runs the code of every page; the Chinese build
takes the outputs from it. They are kept for this one build only, because they depend on the library
and not only on the pages. Figures come as PNG for the English pages, and as SVG for the Chinese
ones, whose labels are then put into Chinese. If jieba is installed, the search of the Chinese pages
finds Chinese words; without it, it finds titles, names, and words of three characters or more.
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


def translate_labels(figure: str, known: dict[str, str]) -> tuple[str, set[str]]:
    """An SVG figure with its labels in Chinese, and these labels.

    In the catalogue, {0} and {1} stand for values. Labels without words stay as they are.
    """
    labels = set()

    def translated(found: re.Match[str]) -> str:
        label = html.unescape(found[1])
        for english in sorted(known, key=lambda x: (x.count("{"), -len(x))):
            pattern = re.sub(r"\\{\d\\}", "(.+)", re.escape(english))
            if values := re.fullmatch(pattern, label):
                labels.add(english)
                label = known[english].format(*values.groups())
                return f">{html.escape(label, quote=False)}</text>"
        if re.search("[a-z]{2}", label):
            labels.add(label)
        return found[0]

    return re.sub(">([^<]*)</text>", translated, figure), labels


def translate_figures(images: Path) -> None:
    """Those of the Chinese pages. They show all labels of the catalogue, and no others."""
    known = translations()
    shown: set[str] = set()
    for path in sorted(images.glob("*.svg")):
        figure = path.read_text("utf-8")
        if CHINESE not in figure:  # an image of an earlier build may be in Chinese already
            figure, labels = translate_labels(figure, known)
            path.write_text(figure.replace("<svg ", CHINESE, 1), "utf-8")
            shown |= labels
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
    translate_figures(HTML / "zh_CN" / "_images")
