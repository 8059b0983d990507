"""Write each page that has code as a notebook with its outputs: python docs/notebooks.py [NAME ...]

The notebooks are in docs/notebooks, where a code host shows them without a build, and in Chinese in
docs/notebooks/zh_CN: the same code, which runs once, and the same outputs. A page is changed in its
.md file, or its Chinese in its catalogue, and this command then writes its notebooks anew. With
--texts no code runs, and the outputs stay. With --check nothing is written: the command says which
notebooks do not have the text and the code of their page, and outputs. With --check-outputs it
compares these with the outputs of the last docs/build.py, which ran all pages.
"""

from __future__ import annotations

import copy
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

try:
    import nbformat
    from chinese import in_chinese, messages_of
    from nbclient import NotebookClient
    from sphinx.config import Config
    from sphinx.directives.code import LiteralInclude, LiteralIncludeReader
except ModuleNotFoundError as error:
    sys.exit(f'{error.name} is missing: pip install -e ".[docs]"')

DOCS = Path(__file__).parent
FOLDER = DOCS / "notebooks"
CHINESE = FOLDER / "zh_CN"
BUILT = DOCS / "_build" / "jupyter_execute"
HEADS = {
    FOLDER: """[中文](zh_CN/README.md)

# Pages with their outputs

You can read them here. To run and change them, write in a clone of this repository:

```bash
pip install -e ".[examples]" jupyterlab
jupyter lab docs/notebooks/01_soft_lookup.ipynb
```

`python docs/notebooks.py` writes them from the pages.""",
    CHINESE: """[English](../README.md)

# 带输出的页面

可以直接在这里阅读。要运行和改动它们，请在本仓库的克隆中输入：

```bash
pip install -e ".[examples]" jupyterlab
jupyter lab docs/notebooks/zh_CN/01_soft_lookup.ipynb
```

`python docs/notebooks.py` 由各个页面写出这些笔记本。代码和输出与英文笔记本相同。""",
}
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


def with_links(page: Path, text: str, folder: Path) -> str:
    """The text with links from a folder of notebooks, to a page's notebook if it has one."""
    known = pages()

    def link(found: re.Match[str]) -> str:
        target, mark, part = found[1].partition("#")
        if not target or "://" in target:
            return found[0]
        if target.endswith(".md") and Path(target).stem in known:
            return f"]({Path(target).stem}.ipynb{mark}{part})"
        return f"]({os.path.relpath(page.parent / target, folder)}{mark}{part})"

    return re.sub(r"\]\(([^)\s]+)\)", link, text)


def source_of(page: Path, folder: Path) -> str:
    """The text of a page, in the language of a folder of notebooks."""
    source = page.read_text("utf-8")
    return in_chinese(source, messages_of(page)) if folder == CHINESE else source


def cells_of(page: Path, folder: Path) -> Iterator[tuple[str, str]]:
    """("markdown" or "code", text) for each cell of a page's notebook in this folder."""
    source = source_of(page, folder)
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
            yield "markdown", with_links(page, text, folder).strip()
        text = ""
        yield "code", code.strip()
    if (text + body[end:]).strip():
        yield "markdown", with_links(page, text + body[end:], folder).strip()


def executed(page: Path) -> nbformat.NotebookNode:
    make = {"markdown": nbformat.v4.new_markdown_cell, "code": nbformat.v4.new_code_cell}
    notebook = nbformat.v4.new_notebook()
    for i, (kind, text) in enumerate(cells_of(page, FOLDER)):
        notebook.cells.append(make[kind](text, id=f"cell-{i}"))
    path = {"metadata": {"path": str(page.parent)}}
    NotebookClient(
        notebook, timeout=300, kernel_name="python3", record_timing=False, resources=path
    ).execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":  # the line that says that kernels are compiled goes to stderr
            cell.outputs = [x for x in cell.outputs if x.get("name") != "stderr"]
    return notebook


def with_text_of(
    page: Path, notebook: nbformat.NotebookNode, folder: Path
) -> nbformat.NotebookNode:
    """A notebook with the page's text as it is now, in the language of the folder."""
    cells = list(cells_of(page, folder))
    codes = [[x.source for x in notebook.cells if x.cell_type == "code"]]
    codes.append([text for kind, text in cells if kind == "code"])
    if codes[0] != codes[1] or len(cells) != len(notebook.cells):
        sys.exit(f"{page.stem}: its code has changed; run python docs/notebooks.py {page.stem}")
    notebook = copy.deepcopy(notebook)
    for cell, (_, text) in zip(notebook.cells, cells, strict=True):
        cell.source = text
    return notebook


def is_in_step(page: Path, folder: Path) -> bool:
    """Whether a notebook has its page's text and code, and the outputs of the English one."""
    paths = [place / f"{page.stem}.ipynb" for place in (folder, FOLDER)]
    if not all(path.is_file() for path in paths):
        return False
    cells, english = (nbformat.read(path, 4).cells for path in paths)
    shown = any(cell.get("outputs") for cell in cells)
    same = [x.get("outputs") for x in cells] == [x.get("outputs") for x in english]
    texts = [(cell.cell_type, cell.source) for cell in cells]
    return shown and same and texts == list(cells_of(page, folder))


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


def changed_outputs(page: Path, folder: Path) -> Iterator[str]:
    """Both texts of each cell that printed another one in the build than in the notebook.

    Cells with the tag `varies` are left out, because what a trained model says may depend on the
    rounding of a processor.
    """
    path = folder / f"{page.stem}.ipynb"
    paths = path, BUILT / page.relative_to(DOCS).with_suffix(".ipynb")
    kept, built = ([c for c in nbformat.read(p, 4).cells if c.cell_type == "code"] for p in paths)
    for old, new in zip(kept, built, strict=True):
        texts = printed(old, is_merged=False), printed(new, is_merged=True)
        if "varies" not in new.metadata.get("tags", ()) and not are_alike(*texts):
            yield "{}: the notebook has\n{}\nthe build has\n{}".format(
                path.relative_to(DOCS), *texts
            )


def index_of(known: dict[str, Path], folder: Path) -> str:
    """The text of a page that leads to all notebooks of a folder, those of the course first."""
    paths = sorted(known.values(), key=lambda path: (path.parent == DOCS, path.name))
    titles = [re.search(r"^# (.*)$", source_of(path, folder), re.MULTILINE)[1] for path in paths]
    rows = [f"- [{title}]({path.stem}.ipynb)" for title, path in zip(titles, paths, strict=True)]
    return "\n".join([HEADS[folder], "", *rows, ""])


def behind(known: dict[str, Path], folder: Path) -> Iterator[str]:
    """The files of a folder that are not what this command writes."""
    yield from (f"{page.stem}.ipynb" for page in known.values() if not is_in_step(page, folder))
    yield from (path.name for path in folder.glob("*.ipynb") if path.stem not in known)
    index = folder / "README.md"
    if not index.is_file() or index.read_text("utf-8") != index_of(known, folder):
        yield index.name


def write(page: Path, runs: bool) -> None:
    """The notebooks of a page in both languages, from one run of its code or with kept outputs."""
    path = FOLDER / f"{page.stem}.ipynb"
    notebook = executed(page) if runs else nbformat.read(path, 4)
    for folder in (FOLDER, CHINESE):
        nbformat.write(with_text_of(page, notebook, folder), folder / path.name)


def main() -> None:
    known, options = pages(), [word for word in sys.argv[1:] if word.startswith("--")]
    if options == ["--check"]:
        paths = [f / name for f in (FOLDER, CHINESE) for name in behind(known, f)]
        names = " ".join(str(path.relative_to(DOCS)) for path in paths)
        sys.exit(f"python docs/notebooks.py writes anew: {names}" if paths else 0)
    if options == ["--check-outputs"]:
        places = [(page, folder) for folder in (FOLDER, CHINESE) for page in known.values()]
        changed = [text for place in places for text in changed_outputs(*place)]
        sys.exit("\n\n".join(changed) if changed else 0)
    if options not in ([], ["--texts"]):
        sys.exit(f"expected --texts, --check, --check-outputs or names of pages, got {options}")
    CHINESE.mkdir(parents=True, exist_ok=True)
    for name in [word for word in sys.argv[1:] if word not in options] or sorted(known):
        print(name, flush=True)
        write(known[name], runs=not options)
    for folder in (FOLDER, CHINESE):
        (folder / "README.md").write_text(index_of(known, folder), "utf-8")


if __name__ == "__main__":
    main()
