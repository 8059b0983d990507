"""Build the pages in English and in Chinese, in docs/_build/html: python docs/build.py [--serve]

With --serve a browser can open them afterwards, at an address that is printed. Other options are
Sphinx's, such as -W; with -q nothing is said meanwhile. The English build runs the code of the
pages; the Chinese build takes the outputs from it. The next build keeps the outputs, and reads the
pages alone that have changed. When the library has changed, or other files that pages read, or an
installed package, all pages run again. Figures come as PNG for the English pages, and as SVG for
the Chinese ones. Their labels, and the words of figures that a reader changes, are then put into
Chinese. The pages need no other folder and no server, so any host of static files can show them.
"""

import argparse
import functools
import hashlib
import html
import importlib.metadata
import importlib.util
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

try:
    from babel.messages.pofile import read_po
except ModuleNotFoundError:
    sys.exit('babel is missing: pip install -e ".[docs]"')

DOCS = Path(__file__).parent
BUILD = DOCS / "_build"
HTML = BUILD / "html"
KEPT = (
    BUILD / "kept"
)  # the outputs of the code, and in a folder of it the pages as Sphinx reads them
# What the code of the pages reads, beside itself: a change of it means that all pages run again.
RUN = (
    *("tinyattn", "examples", "docs/exercises/induction_model"),
    *("docs/_static/encoder_attention.json", "docs/figures_as_svg.py"),
)
# A change of this means that all pages are read again; their outputs are kept.
READ = ("docs/conf.py", "docs/_templates", "docs/_static", "docs/search.js")
LABELS = DOCS / "locale" / "zh_CN" / "figures.po"
CHINESE = '<svg xml:lang="zh-CN" '  # so that a browser takes the Chinese forms of signs
FIGURE = re.compile(r'<figure class="interactive.*?</figure>', re.DOTALL)
# Where the words of a figure stand.
ELEMENT = re.compile(
    r"(?P<before><(?P<tag>text|p|th|caption|label|button)\b[^>]*>)(?P<label>.*?)(?P<after></(?P=tag)>)",
    re.DOTALL,
)
ATTRIBUTE = re.compile(r'(?P<before>(aria-label|title)=")(?P<label>[^"]*)(?P<after>")')


def fingerprint(root: Path, names: Iterable[str]) -> str:
    """A number that changes with these files and folders, and with what is installed."""
    found = hashlib.sha256(sys.version.encode())
    packages = {f"{x.name} {x.version}" for x in importlib.metadata.distributions()}
    found.update("\n".join(sorted(packages)).encode())
    for name in names:
        paths = [root / name] if (root / name).is_file() else sorted((root / name).rglob("*"))
        for path in paths:
            # A cache changes as soon as a page runs.
            if path.is_file() and "__pycache__" not in path.parts:
                found.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return found.hexdigest()


def keep_results(kept: Path, now: str) -> bool:
    """Empty a folder of kept results if they belong to other files. Returns whether it has any."""
    file = kept / "fingerprint"
    is_same = file.is_file() and file.read_text("utf-8") == now
    if not is_same:
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        file.write_text(now, "utf-8")
    return is_same


def build(
    language: str,
    out: Path,
    folder: Path,
    other: dict[str, str],
    options: list[str],
    seconds: Path | None = None,
) -> None:
    """One language; `other` tells the template of the pages about the other one.

    With a file for the seconds that each page takes, the pages are named as they are read.
    """
    values = {
        "language": language,
        "nb_execution_mode": "cache",
        "nb_execution_cache_path": str(KEPT / "outputs"),
    }
    if seconds is not None:
        values["progress_file"] = str(seconds)
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html"]
    command += ["-d", str(KEPT / "pages" / language)]
    command += [*options, *(word for name in values for word in ("-D", f"{name}={values[name]}"))]
    command += [word for name in other for word in ("-A", f"{name}={other[name]}")]
    variables = {**os.environ, "IPYTHONDIR": str(folder / "ipython")}
    subprocess.run([*command, str(DOCS), str(out)], env=variables, check=True)


class Pages(SimpleHTTPRequestHandler):
    """Files of a folder, and its 404.html for an address that is not there."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        page = Path(self.directory, "404.html")
        if code != 404 or not page.is_file():
            return super().send_error(code, message, explain)
        self.send_response(code)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page.read_bytes())


def serve(folder: Path, port: int) -> None:
    """Show a folder to browsers on this machine, until Ctrl+C."""
    try:
        server = ThreadingHTTPServer(
            ("127.0.0.1", port), functools.partial(Pages, directory=folder)
        )
    except OSError as error:
        sys.exit(f"port {port} cannot be used ({error}): name another one, --serve {port + 1}")
    print(f"http://127.0.0.1:{server.server_port}/ and /zh_CN/; Ctrl+C ends it", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()


def keep_figures_as_svg(folder: Path) -> None:
    """Make this folder one of IPython's, which it reads before it runs a page."""
    startup = folder / "profile_default" / "startup"
    startup.mkdir(parents=True)
    shutil.copy(DOCS / "figures_as_svg.py", startup)
    # Not that a kernel uses TCP without encryption, as it does on every machine.
    (startup.parent / "ipython_kernel_config.py").write_text("c.IPKernelApp.log_level = 'ERROR'")


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


def english_pages(pages: Path) -> tuple[set[Path], set[Path]]:
    """The pages of UNTRANSLATED, and their figures, which stay as they are."""
    names = runpy.run_path(str(DOCS / "conf.py"))["UNTRANSLATED"]
    found = {path for name in names if (path := pages / f"{name}.html").is_file()}
    texts = "".join(path.read_text("utf-8") for path in sorted(found))
    return found, {pages / "_images" / name for name in re.findall(r'_images/([^"]*\.svg)', texts)}


def translate_figures(pages: Path) -> None:
    """Those of the Chinese pages. They show all labels of the catalogue, and no others."""
    known = translations()
    shown: set[str] = set()
    english, images = english_pages(pages)

    def translated(figure: str) -> str:
        figure, labels = translate_labels(figure, known)
        shown.update(labels)
        return figure

    for path in sorted(set(pages.glob("_images/*.svg")) - images):
        figure = translated(path.read_text("utf-8"))
        path.write_text(figure.replace("<svg ", CHINESE, 1), "utf-8")
    for path in sorted(set(pages.rglob("*.html")) - english):
        page = path.read_text("utf-8")
        path.write_text(FIGURE.sub(lambda found: translated(found[0]), page), "utf-8")
    if shown != set(known):
        more, fewer = sorted(shown - set(known)), sorted(set(known) - shown)
        sys.exit(f"{LABELS}: add the labels {more}; no figure has {fewer}")


def build_slides(out: Path, options: list[str]) -> None:
    """The slides of docs/slides, if the package with reveal.js is installed."""
    if importlib.util.find_spec("sphinx_revealjs") is None:
        print('No slides: sphinx-revealjs is missing, pip install -e ".[docs]"', flush=True)
        return
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "revealjs"]
    command += ["-d", str(KEPT / "pages" / "slides")]
    subprocess.run([*command, *options, str(DOCS / "slides"), str(out)], check=True)


def build_all(options: list[str]) -> None:
    chinese = {"other_name": "中文", "other_code": "zh-CN", "other_root": "zh_CN/"}
    english = {"other_name": "English", "other_code": "en", "other_root": "../"}
    chinese |= {"notebook_name": "Notebook", "notebooks": "notebooks/"}
    english |= {"notebook_name": "笔记本", "notebooks": "../notebooks/zh_CN/"}
    start = time.perf_counter()
    is_kept = keep_results(KEPT, fingerprint(DOCS.parent, RUN))
    keep_results(KEPT / "pages", fingerprint(DOCS.parent, READ))
    # A page whose outputs are kept takes another time than one that runs.
    kind = "kept" if is_kept else "run"
    seconds = {name: BUILD / f"seconds_{name}_{kind}.json" for name in ("en", "zh_CN")}
    if "-q" in options:
        seconds = {}
    elif not is_kept:
        print(
            "All pages run, in three to ten minutes; the next build keeps their outputs", flush=True
        )
    # The labels are put into Chinese in a copy, so that Sphinx finds its pages as it left them.
    pages = BUILD / "pages" / "zh_CN"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        keep_figures_as_svg(folder / "ipython")
        build("en", HTML, folder, chinese, options, seconds.get("en"))
        build("zh_CN", pages, folder, english, options, seconds.get("zh_CN"))
    for copied, out in ((pages, HTML / "zh_CN"), (DOCS / "notebooks", HTML / "notebooks")):
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(copied, out)
    translate_figures(HTML / "zh_CN")
    build_slides(HTML / "slides", options)
    (HTML / ".nojekyll").touch()  # GitHub Pages would leave out folders such as _static
    if "-q" not in options:
        print(f"{time.perf_counter() - start:.0f} s: {HTML}/index.html, {HTML}/zh_CN/index.html")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    message = "show the pages to browsers on this machine; 8000 if no PORT is named"
    parser.add_argument("--serve", nargs="?", type=int, const=8000, metavar="PORT", help=message)
    known, others = parser.parse_known_args()
    build_all(others)
    if known.serve is not None:
        serve(HTML, known.serve)
