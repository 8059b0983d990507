"""What README, the docstrings and the docs show is run, and has to come out as written."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import tinyattn as ta
from tinyattn import functional, masks, nn, optim, viz

ROOT = Path(__file__).parents[2]
NAMES = {"ta": ta, "F": functional, "nn": nn, "masks": masks, "optim": optim, "viz": viz}
# cpu needs Numba, and its functions have no examples of their own.
MODULES = [
    name
    for _, name, _ in pkgutil.walk_packages(ta.__path__, "tinyattn.")
    if not name.startswith("tinyattn.kernels.cpu")
]


@pytest.mark.parametrize("name", MODULES)
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


def test_readme_has_the_two_commands():
    commands = re.search(
        r"## Two commands.*?```bash\n(.*?)```",
        (ROOT / "README.md").read_text(encoding="utf-8"),
        re.DOTALL,
    )
    assert commands is not None
    assert [line for line in commands[1].splitlines() if line] == [
        'pip install -e ".[examples]" && python examples/train_encoder.py',
        'pip install -e ".[test]" && pytest',
    ]


def test_links_in_readme_and_docs_exist():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
