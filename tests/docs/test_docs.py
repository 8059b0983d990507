"""What README, the docstrings and the docs show is run, and has to come out as written."""

import ast
import configparser
import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest
import reference
from common import HAS_TORCH
from figures import generated_cases
from op_table import ROWS, samples_of
from test_house import WINGS

import tinyattn as ta
from tinyattn import (
    batches,
    distributed,
    functional,
    generation,
    interop,
    masks,
    models,
    nn,
    optim,
    viz,
)

ROOT = Path(__file__).parents[2]
NAMES = {"ta": ta, "F": functional, "nn": nn, "masks": masks, "optim": optim, "viz": viz}
# cpu needs Numba, and its functions have no examples of their own.
MODULES = [
    name
    for _, name, _ in pkgutil.walk_packages(ta.__path__, "tinyattn.")
    if not name.startswith("tinyattn.kernels.cpu")
]


def pages_or_modules(found, key=str):
    """Those of the exchange with PyTorch need it."""
    needs = pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed: nothing to convert")
    needing = ("models", "tinyattn.interop")
    return [pytest.param(x, id=key(x), marks=[needs] * (key(x) in needing)) for x in found]


@pytest.mark.parametrize("name", pages_or_modules(MODULES))
def test_examples_in_docstrings(name):
    module = importlib.import_module(name)
    ta.manual_seed(0)
    finder = doctest.DocTestFinder(exclude_empty=True)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    report: list[str] = []
    for test in finder.find(module, globs={**vars(module), **NAMES}):
        runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)


def python_blocks(path: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)


def test_readme_examples_run(capsys):
    """The blocks of README run one after the other, in one namespace."""
    blocks = python_blocks(ROOT / "README.md")
    assert blocks
    namespace: dict = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), namespace)


PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts)


@pytest.mark.parametrize("path", pages_or_modules(PAGES, lambda path: path.stem))
def test_cells_of_the_docs_run(path, capsys):
    """The cells of a page run one after the other, as they do when the page is built."""
    namespace: dict = {}
    text = path.read_text("utf-8")
    if "import tinyattn.torch_names" in text:  # which gives its methods once in a process
        importlib.import_module("tinyattn.torch_names.methods").give_methods()
    for cell in re.findall(r"```\{code-cell\}\n(.*?)```", text, re.DOTALL):
        code = re.sub(r"^(:.*\n)+", "", cell)  # a cell may begin with options of the page
        exec(compile(code, path.name, "exec"), namespace)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_each_answer_of_a_page_is_closed_before_the_next(path):
    """Else the next questions are hidden in it."""
    tags = re.findall(r"</?details", path.read_text("utf-8"))
    assert tags == ["<details", "</details"] * (len(tags) // 2)


def test_a_whole_name_in_a_text_can_be_imported_as_it_stands():
    """`tinyattn.training.DataLoader` says `from tinyattn.training import DataLoader`."""
    texts = [path.read_text("utf-8") for path in (ROOT / "README.md", *PAGES)]
    found = {n for text in texts for n in re.findall(r"`(tinyattn(?:\.[a-z_]+)+\.\w+)`", text)}
    assert found
    for module, _, name in sorted(whole.rpartition(".") for whole in found):
        assert hasattr(importlib.import_module(module), name), f"{module} has no {name}"


def test_every_pytest_command_selects_a_test():
    """`pytest FOLDER -k WORDS`: the folder exists, and so does a test for one of the words."""
    for page in [ROOT / "README.md", *PAGES]:
        for words in re.findall(r"pytest ((?:tests|docs)/[^`\n#|]*)", page.read_text("utf-8")):
            paths, _, selection = words.replace("-v ", "").partition(" -k ")
            found = ""
            for path in map(ROOT.joinpath, paths.split()):
                assert path.exists(), f"{page.name}: {words}"
                files = [path] if path.is_file() else path.rglob("*.py")
                if path.name == "test_every_op.py":  # whose tests have the names of rows
                    files = [path, *(path.parent / "op_table").glob("*.py")]
                found += "".join(file.read_text("utf-8") for file in files)
            for word in selection.strip(' ".').split(" or "):
                assert word in found, f"{page.name}: {word!r} of {words!r}"


def test_the_reference_lists_the_public_names():
    page = (ROOT / "docs" / "api.md").read_text("utf-8")
    blocks = "".join(block for _, block in reference.BLOCK.findall(page))
    listed = {name.rpartition(".")[2] for name in reference.NAME.findall(blocks)}
    modules = {"batches", "functional", "masks", "models", "nn", "optim", "viz", "errors", "init"}
    modules |= {"checkpoint", "distributed", "generation", "interop", "testing"}
    dtypes = {name for name in ta.__all__ if f"`ta.{name}`" in page}
    public = set(ta.__all__) | set(nn.__all__) | set(functional.__all__) | set(optim.__all__)
    public |= {getattr(masks, name).__name__ for name in masks.__all__}
    assert public - listed - modules - dtypes == set(), "add it to docs/api.md"
    known = vars(ta) | vars(nn) | vars(functional) | vars(masks) | vars(optim) | vars(viz)
    known |= vars(batches) | vars(distributed) | vars(generation) | vars(interop) | vars(models)
    known |= vars(ta.models.chat) | vars(ta.training)
    known |= vars(ta.errors)
    missing = listed - set(known) - set(vars(nn.init)) - set(ta.__all__) - {"check_op"}
    assert not missing


def test_the_reference_has_signatures_and_first_sentences():
    """As they are today, for all methods too; whoever reads it on a code host sees nothing else."""
    page = reference.PAGE.read_text("utf-8")
    assert page == reference.written(page), "run python docs/reference.py"
    assert "class Linear(in_features, out_features, bias=True" in page
    assert "\n  .masked_fill(mask, value)\n" in page
    lines = page.split("\n")
    assert not [line for line in lines if "object at 0x" in line or len(line) > 120]


def test_the_site_has_whole_docstrings_in_place_of_the_first_sentences():
    text = "```{reference} tinyattn\nclass Tensor(data)\n    An array.\n  .abs()\n      |x|.\n"
    assert reference.directives(text + "  .T\n      Other.\nones(*shape)\n    Ones.\n```") == (
        "```{eval-rst}\n.. currentmodule:: tinyattn\n\n.. autoclass:: Tensor\n   :members: abs, T\n"
        "\n.. autofunction:: ones\n```"
    )


def test_the_list_of_examples_has_every_program():
    page = (ROOT / "docs" / "examples.md").read_text("utf-8")
    programs = {path.name for path in (ROOT / "examples").glob("*.py") if is_program(path)}
    assert {name for name in programs if f"`{name}`" not in page} == set(), (
        "add a line to docs/examples.md"
    )


def is_program(path: Path) -> bool:
    """Not a module of functions: it runs something when it is called, and not only imports."""
    return any(
        isinstance(node, (ast.If, ast.For))
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
        for node in ast.parse(path.read_text("utf-8")).body
    )


@pytest.mark.parametrize("name", functional.__all__)
def test_a_function_of_F_shows_an_example_and_its_types(name):
    """`test_examples_in_docstrings` runs the example."""
    function = getattr(functional, name)
    assert f">>> F.{name}(" in function.__doc__ or f"(F.{name}(" in function.__doc__
    parameters = inspect.signature(function).parameters
    assert all(p.annotation is not p.empty for p in parameters.values())


def test_F_offers_only_what_a_user_calls():
    """In completion and in the error for an unknown name, but not what functions are made of."""
    defined = {name for name, value in vars(functional).items() if inspect.isfunction(value)}
    assert set(functional.__all__) < defined
    assert dir(functional) == functional.__all__
    assert not [name for name in functional.__all__ if name.startswith(("check", "_"))]
    with pytest.raises(AttributeError, match=r"tinyattn has no F\.float_tensors$"):
        functional.float_tensors  # noqa: B018
    with pytest.raises(AttributeError, match=r"did you mean softmax\b"):
        functional.sofmax  # noqa: B018


def test_the_map_has_the_wings_in_the_order_of_reading():
    text = (ROOT / "docs" / "map.md").read_text("utf-8")
    code_map = text[text.index("tinyattn/\n  errors.py") : text.index("examples/  tests/  docs/")]
    names = re.findall(r"^  (\w+)(?:\.py|/) ", code_map, re.MULTILINE)
    assert names == [wing for wing in WINGS if wing != "__init__"]


def test_the_map_names_ten_files_to_open_first():
    """`test_links_in_readme_and_docs_exist` looks for the files."""
    text = (ROOT / "docs" / "map.md").read_text("utf-8")
    assert len(re.findall(r"^\| \[\S+\]\(\.\./tinyattn/\S+\.py\) ", text, re.MULTILINE)) == 10


@pytest.mark.parametrize("folder", ["notebooks", "notebooks/zh_CN"])
def test_page_22_counts_the_readmes_as_they_are(folder: str) -> None:
    """It reads both, so its notebooks are written anew after a change of one."""
    notebook = (ROOT / "docs" / folder / "22_own_language_model.ipynb").read_text("utf-8")
    for name in ("README.md", "README_zh.md"):
        text = (ROOT / name).read_text("utf-8")
        counted = f"{len(text):,} characters, {len(set(text))} different ones"
        assert counted in notebook, f"python docs/notebooks.py 22_own_language_model: {counted}"


def test_the_first_screen_of_the_readme_has_code_and_where_to_begin():
    """What a reader sees first; the rest is in docs."""
    for name in ("README.md", "README_zh.md"):
        lines = (ROOT / name).read_text("utf-8").splitlines()
        assert "```python" in lines[:12]
        assert sum(line.startswith("| ") for line in lines[:40]) >= 8
        assert len(lines) <= 120


def test_each_row_of_the_first_screen_says_how_long_it_takes_and_what_to_install():
    for name in ("README.md", "README_zh.md"):
        lines = (ROOT / name).read_text("utf-8").splitlines()
        rows = [line.strip("| ").split(" | ") for line in lines[:40] if line.startswith("| ")][2:]
        assert all(len(row) == 3 and all(row) for row in rows), rows
        for _, begin, _ in rows:
            commands = re.findall("`(.*?)`", begin)
            needs = any(x.startswith(("python ", "pytest ")) for x in commands)
            assert not needs or commands[0].startswith("pip install"), begin


def test_readme_has_the_two_commands():
    commands = re.search(
        r"## Two commands.*?```bash\n(.*?)```",
        (ROOT / "README.md").read_text(encoding="utf-8"),
        re.DOTALL,
    )
    assert commands is not None
    assert [line for line in commands[1].splitlines() if line] == [
        'pip install -e ".[examples]" && python examples/train_encoder.py',
        'pip install -e ".[test]" && pytest -n 2',
    ]


def test_the_two_readmes_have_the_same_code_and_figures():
    english, chinese = ((ROOT / name).read_text("utf-8") for name in ("README.md", "README_zh.md"))
    blocks = [re.findall(r"```.*?```", text, re.DOTALL) for text in (english, chinese)]
    assert blocks[0] == blocks[1]
    # 136,771 and 88.9 %, but not the numbers that are words.
    figures = [set(re.findall(r"\d+(?:[.,]\d+)+", text)) for text in (english, chinese)]
    assert figures[1] == figures[0]
    assert "](README_zh.md)" in english
    assert "](README.md)" in chinese


def test_the_pages_have_the_counts_of_the_table_of_ops():
    """They were those of an older table, and eight ops had no comparison long ago."""
    page = " ".join((ROOT / "docs" / "reliability.md").read_text("utf-8").split())
    sentence = page.partition("figures.py` counts: ")[2].partition("With `--errors`")[0]
    written = [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", sentence)]
    samples = [sample for row in ROWS for sample in samples_of(row)]
    counted = [
        len(ROWS), sum(bool(row.differentiable) for row in ROWS), len(samples),
        sum(bool(sample.edge) for sample in samples), sum(len(row.errors) for row in ROWS),
        generated_cases()[0],
    ]  # fmt: skip
    assert counted[:2] == written[:2]
    for number, least in zip(counted[2:], written[2:], strict=True):
        assert least <= number <= 1.1 * least, (number, sentence)
    assert sum(not callable(row.torch) for row in ROWS) == 1
    assert "| all ops but one, layers |" in (ROOT / "docs" / "compare.md").read_text("utf-8")


def test_links_in_readme_and_docs_exist():
    for page in [ROOT / "README.md", ROOT / "README_zh.md", *PAGES]:
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_wheel_names_its_author_and_no_address_that_nobody_has():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    metadata = setup["metadata"]
    assert metadata["author"] in (ROOT / "LICENSE").read_text("utf-8")
    addresses = [metadata.get(name, "") for name in ("url", "project_urls", "author_email")]
    assert not re.findall(r"example\.|(?i:owner|user|your)[-_/]|localhost", " ".join(addresses))


def test_a_notebook_shows_a_figure_without_pyplot():
    figure = viz.show_heatmaps(ta.eye(2))
    assert figure._repr_png_().startswith(b"\x89PNG")
