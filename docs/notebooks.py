"""Write each page that has code as a notebook with its outputs: python docs/notebooks.py [NAME ...]

The notebooks are in docs/notebooks, where a code host shows them without a build. A page is changed
in its .md file, and this command then writes its notebook anew. With --check nothing is written:
the command says which notebooks do not have the text and the code of their page, and outputs. With
--check-outputs it compares these with the outputs of the last docs/build.py, which ran all pages.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from sphinx.config import Config
from sphinx.directives.code import LiteralInclude, LiteralIncludeReader

DOCS = Path(__file__).parent
FOLDER = DOCS / "notebooks"
BUILT = DOCS / "_build" / "jupyter_execute"
NUMBER = re.compile(r"\d[\d,]*\.?\d*(?:e[-+]?\d+)?")
TIME = re.compile(rf"{NUMBER.pattern}\s*(?:s|ms|us|seconds|times)\b")
FENCE = re.compile(r"^```\{(code-cell|literalinclude)\}(.*?)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def pages() -> dict[str, Path]:
    """The pages that have code, by name."""
    paths = [*DOCS.glob("*.md"), *DOCS.glob("course/*.md")]
    return {path.stem: path for path in paths if "```{code-cell}" in path.read_text("utf-8")}


def options_of(lines: str) -> tuple[dict[str, str], str]:
    """The lines ":name: value" at the head of a block, and the rest."""
    found = re.match(r"(?:^:.*\n)*", lines, re.MULTILINE)
    head = found.group() if found else ""
    options = re.findall(r'^:([\w-]+): *"?(.*?)"?$', head, re.MULTILINE)
    return dict(options), lines[len(head) :]


def included(page: Path, name: str, options: dict[str, str]) -> str:
    """What `literalinclude` shows, as a block of code."""
    read = {key: LiteralInclude.option_spec[key](value) for key, value in options.items()}
    language = read.pop("language", "")
    text, _ = LiteralIncludeReader(str(page.parent / name), read, Config()).read()
    return f"```{language}\n{text.rstrip()}\n```\n"


def with_links(page: Path, text: str) -> str:
    """The text with links from the folder of the notebooks, to a page's notebook if it has one."""
    known = pages()

    def link(found: re.Match[str]) -> str:
        target, mark, part = found[1].partition("#")
        if not target or "://" in target:
            return found[0]
        if target.endswith(".md") and Path(target).stem in known:
            return f"]({Path(target).stem}.ipynb{mark}{part})"
        return f"]({os.path.relpath(page.parent / target, FOLDER)}{mark}{part})"

    return re.sub(r"\]\(([^)\s]+)\)", link, text)


def cells_of(page: Path) -> Iterator[tuple[str, str]]:
    """("markdown" or "code", text) for each cell of a page's notebook."""
    source = page.read_text("utf-8")
    body = source.split("---\n", 2)[2] if source.startswith("---\n") else source
    text, end = "", 0
    for block in FENCE.finditer(body):
        kind, name, lines = block.groups()
        text += body[end : block.start()]
        end = block.end()
        options, code = options_of(lines)
        if kind == "literalinclude":
            text += included(page, name.strip(), options)
            continue
        if text.strip():
            yield "markdown", with_links(page, text).strip()
        text = ""
        yield "code", code.strip()
    if (text + body[end:]).strip():
        yield "markdown", with_links(page, text + body[end:]).strip()


def executed(page: Path) -> nbformat.NotebookNode:
    make = {"markdown": nbformat.v4.new_markdown_cell, "code": nbformat.v4.new_code_cell}
    notebook = nbformat.v4.new_notebook()
    for i, (kind, text) in enumerate(cells_of(page)):
        notebook.cells.append(make[kind](text, id=f"cell-{i}"))
    path = {"metadata": {"path": str(page.parent)}}
    NotebookClient(
        notebook, timeout=300, kernel_name="python3", record_timing=False, resources=path
    ).execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":  # the line that says that kernels are compiled goes to stderr
            cell.outputs = [x for x in cell.outputs if x.get("name") != "stderr"]
    return notebook


def is_in_step(name: str, page: Path) -> bool:
    path = FOLDER / f"{name}.ipynb"
    if not path.is_file():
        return False
    cells = nbformat.read(path, 4).cells
    shown = any(cell.get("outputs") for cell in cells)
    return shown and [(cell.cell_type, cell.source) for cell in cells] == list(cells_of(page))


def printed(cell: nbformat.NotebookNode, is_merged: bool) -> str:
    """The text under a cell, without pictures and HTML.

    is_merged: the first stream has the text of all streams, as myst-nb leaves it.
    """
    outputs = cell.get("outputs", ())
    streams = [output.text for output in outputs if output.get("name") == "stdout"]
    values = [output.data for output in outputs if set(output.get("data", ())) == {"text/plain"}]
    return "".join(streams[:1] if is_merged else streams) + "".join(x["text/plain"] for x in values)


def are_alike(kept: str, found: str) -> bool:
    """Whether two texts have the same words, and the same numbers up to a tenth.

    A processor rounds in its own way, so a trained model is another one on another machine. Numbers
    below 1e-5 are rounding errors, and times may be any.
    """
    kept, found = TIME.sub("time", kept), TIME.sub("time", found)
    if "".join(NUMBER.sub("#", kept).split()) != "".join(NUMBER.sub("#", found).split()):
        return False
    numbers = [[float(x.replace(",", "")) for x in NUMBER.findall(text)] for text in (kept, found)]
    return all(abs(x - y) <= max(1e-5, 0.1 * max(x, y)) for x, y in zip(*numbers, strict=True))


def changed_outputs(name: str, page: Path) -> Iterator[str]:
    """Both texts of each cell that printed another one in the build than in the notebook.

    Cells with the tag `varies` are left out, because what a trained model says may depend on the
    rounding of a processor.
    """
    paths = FOLDER / f"{name}.ipynb", BUILT / page.relative_to(DOCS).with_suffix(".ipynb")
    kept, built = ([c for c in nbformat.read(p, 4).cells if c.cell_type == "code"] for p in paths)
    for old, new in zip(kept, built, strict=True):
        texts = printed(old, is_merged=False), printed(new, is_merged=True)
        if "varies" not in new.metadata.get("tags", ()) and not are_alike(*texts):
            yield "{}: the notebook has\n{}\nthe build has\n{}".format(name, *texts)


def index_of(known: dict[str, Path]) -> str:
    """The text of a page that leads to all notebooks, those of the course first."""
    paths = sorted(known.values(), key=lambda path: (path.parent == DOCS, path.name))
    titles = [re.search(r"^# (.*)$", path.read_text("utf-8"), re.MULTILINE)[1] for path in paths]
    rows = [f"- [{title}]({path.stem}.ipynb)" for title, path in zip(titles, paths, strict=True)]
    head = "# Pages with their outputs\n\n`python docs/notebooks.py` writes them from the pages."
    return "\n".join([head, "", *rows, ""])


def main() -> None:
    known = pages()
    if sys.argv[1:] == ["--check"]:
        behind = [name for name, page in known.items() if not is_in_step(name, page)]
        behind += [path.stem for path in FOLDER.glob("*.ipynb") if path.stem not in known]
        index = FOLDER / "README.md"
        if not index.is_file() or index.read_text("utf-8") != index_of(known):
            behind.append("README.md")
        sys.exit(f"python docs/notebooks.py writes anew: {' '.join(behind)}" if behind else 0)
    if sys.argv[1:] == ["--check-outputs"]:
        changed = [text for name, page in known.items() for text in changed_outputs(name, page)]
        sys.exit("\n\n".join(changed) if changed else 0)
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or sorted(known):
        print(name, flush=True)
        nbformat.write(executed(known[name]), FOLDER / f"{name}.ipynb")
    (FOLDER / "README.md").write_text(index_of(known), "utf-8")


if __name__ == "__main__":
    main()
