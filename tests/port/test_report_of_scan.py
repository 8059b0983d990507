"""What `tinyattn.torch_names.scan` prints of a program, word for word, and the lines it changes."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import pytest

from tinyattn.torch_names import scan
from tinyattn.torch_names.scan import Scan, report, rewritten

PROGRAM = """\
import os, torch; from torch.nn import (
    Linear,
)
import torch.fft, einops.layers.torch
import torch.nn.ReLU
import torchvision
for self.p in model.parameters():
    p.quux().append(1)
    p.frob()
x = torch.zeros(size=(2, 3), generator=g)
torch.abs(*a, *b, *c), torch.matmul(*a, input=x)
F = torch.nn.functional
F.max_pool2d(x, *a, 1, 0, 1, True)
F.max_pool2d(x, 2, 1, 0, 1, True)
torch.relu(x, size=2)
x.view(2, other=3)
x.numpy()
x.numpy(), x.numpy()
x.masked_fill(y, 2)
torch.svd(x)
torch.svd(y)
torch.add(x, y, out=z, need_weights=True)
"""
REPORT = """\
  imports to change:
    lines 1-3: import os; import tinyattn.torch_names as torch; \
from tinyattn.torch_names.nn import Linear
  works: 12 names
  differs: 1 names
    x.numpy (line 17, 18): Differs from PyTorch, where the memory is shared.
  left out: 9 names
    einops.layers.torch (line 4): write from einops.layers.torch import
    torch.add() (line 22): got an unexpected keyword argument 'out': \
write y = f(x), or y[...] = f(x)
    torch.fft (line 4): write np.fft or np.linalg with x.numpy(), which records no gradient
    torch.nn.ReLU (line 5): it is no module here
    torch.nn.functional.max_pool2d() (line 14): ceil_mode is False here: no other value is taken
    torch.relu() (line 15): got an unexpected keyword argument 'size'
    torch.svd (line 20, 21): numpy.linalg.svd has it, of x.numpy(), and records no gradient
    torchvision (line 6): a package that needs PyTorch
    x.view() (line 16): got an unexpected keyword argument 'other'
  also under "What differs" in docs/from_pytorch.md: x.masked_fill
  not judged: the methods frob, quux
"""


def test_the_report_of_a_program() -> None:
    assert "".join(f"{line}\n" for line in report(Scan(PROGRAM))) == REPORT


def test_a_program_without_pytorch_has_a_short_report() -> None:
    lines = ["  works: 0 names", "  differs: 0 names", "  left out: 0 names"]
    assert list(report(Scan("import os\nx = 3\n"))) == lines


def test_each_file_has_its_name_above_its_report(tmp_path: Path, capsys: Any) -> None:
    names = ("b.py", "a.py", "c.py")
    paths = [tmp_path / name for name in names]
    paths[0].write_text(PROGRAM)
    paths[1].write_text("import torch\ntorch.svd(x)\ntorch.fft.fft(x)\n")
    paths[2].write_text("import (\n")
    assert scan.main([str(path) for path in paths[:2]]) == 1
    said = capsys.readouterr().out
    assert said.startswith(f"{paths[0]}\n{REPORT}{paths[1]}\n  imports to change:\n    line 1: ")
    first, *counts = said.partition("2 files: ")[2].splitlines()
    assert first == "nothing is left out of 0"
    names = {name for name, _ in Scan(PROGRAM).groups["left out"]} | {"torch.fft"}
    assert {line.split(" is left out of ")[0].strip() for line in counts} == names
    assert sorted(counts[:2]) == [f"  torch.{name} is left out of 2" for name in ("fft", "svd")]
    assert all(line.endswith(" is left out of 1") for line in counts[2:])
    assert scan.main([str(paths[2])]) == 2
    assert capsys.readouterr().out.startswith(f"{paths[2]}\n  cannot be read: ")


def test_a_scan_leaves_the_recursion_limit_of_the_process(tmp_path: Path) -> None:
    before = sys.getrecursionlimit()
    try:
        for name, text in (("right.py", "import torch\n"), ("wrong.py", "import torch as\n")):
            (tmp_path / name).write_text(text)
            sys.setrecursionlimit(1234)
            scan.scanned(tmp_path / name, write=False)
            assert sys.getrecursionlimit() == 1234
    finally:
        sys.setrecursionlimit(before)


def test_the_files_of_a_folder_come_in_order(tmp_path: Path, capsys: Any) -> None:
    names = [f"{name}.py" for name in "qwertyuiopasdfgh"]
    for name in names:
        (tmp_path / name).write_text("import torch\n")
    (tmp_path / "text.md").write_text("import (")
    assert scan.main([str(tmp_path)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if line.endswith(".py")] == [
        str(tmp_path / name) for name in sorted(names)
    ]
    assert said[-1] == "16 files: nothing is left out of 16"


def test_only_write_changes_a_file(tmp_path: Path, capsys: Any) -> None:
    path, other = tmp_path / "some.py", tmp_path / "other.py"
    path.write_bytes(b"import torch\r\nx = torch.ones(2)\r\n")
    other.write_bytes(b"import os\r\n")
    assert scan.main([str(path), str(other)]) == 0
    assert path.read_bytes() == b"import torch\r\nx = torch.ones(2)\r\n"
    assert scan.main([str(path), str(other)], write=True) == 0
    assert path.read_bytes() == (b"import tinyattn.torch_names as torch\r\nx = torch.ones(2)\r\n")
    assert other.read_bytes() == b"import os\r\n"
    assert "  imports to change:\n    line 1: import tinyattn.torch_names as torch\n" in (
        capsys.readouterr().out
    )


def test_what_cannot_be_read_says_why(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook, broken, missing = (tmp_path / name for name in ("a.ipynb", "b.py", "none.py"))
    notebook.write_text("{}")
    broken.write_text("import (\n")
    for path, text in [
        (notebook, "it is a notebook: `jupyter nbconvert --to script` makes a .py"),
        (broken, "line 1"),
        (missing, "No such file"),
    ]:
        assert scan.main([str(path)]) == 2
        said = capsys.readouterr().out
        assert said.startswith(f"{path}\n  cannot be read: ")
        assert text in said

    def too_deep(text: str) -> None:
        raise RecursionError

    monkeypatch.setattr(scan, "Scan", too_deep)
    broken.write_text("x = 1\n")
    assert scan.main([str(broken)]) == 2
    assert capsys.readouterr().out == f"{broken}\n  cannot be read: it is nested too deeply\n"


def test_several_imports_of_one_line_become_one_line() -> None:
    text = "import os, torch; from torch.nn import (\n    Linear,\n)\nx = 1\n"
    assert rewritten(text) == (
        "import os; import tinyattn.torch_names as torch; "
        "from tinyattn.torch_names.nn import Linear\n\n\nx = 1\n"
    )
    text = "from torch.nn import (\n    Linear,\n); import torch\nx = 1\n"
    assert rewritten(text).endswith("\nx = 1\n")
    assert rewritten(text).count("\n") == text.count("\n")


def groups_of(program: str, group: str) -> dict[str, str]:
    return dict([*Scan(f"import torch\nF = torch.nn.functional\n{program}").groups.get(group, {})])


@pytest.mark.parametrize(
    ("line", "name", "text"),
    [
        ("F.relu(x, size=2)", "torch.nn.functional.relu()", "unexpected keyword argument 'size'"),
        ("F.relu(x, y, z, a)", "torch.nn.functional.relu()", "too many positional arguments"),
        ("torch.zeros(2, quux=3)", "torch.zeros()", "unexpected keyword argument 'quux'"),
        ("torch.nn.Linear()", "torch.nn.Linear()", "missing a required argument: 'in_features'"),
        ("torch.nn.LSTM(2, 3, proj_size=4)", "torch.nn.LSTM()", "argument 'proj_size'"),
        ("torch.optim.SGD(p, 0.1, maximize=True)", "torch.optim.SGD()",
         "maximize is False here: minimize -loss"),
        ("torch.nn.Conv2d(1, 2, 3, padding_mode='circular')", "torch.nn.Conv2d()",
         "padding_mode is 'zeros' here: no other value is taken"),
        ("x.sum(quux=1)", "x.sum()", "unexpected keyword argument 'quux'"),
        ("x.svd()", "x.svd", "numpy.linalg.svd"),
        ("x.frobnicate_()", "x.frobnicate_", ""),
    ],
)  # fmt: skip
def test_a_call_that_is_refused_says_why(line: str, name: str, text: str) -> None:
    assert text in groups_of(line, "left out")[name]


@pytest.mark.parametrize("line", [
    "torch.randperm(4, generator=g)", "x.to('cpu', non_blocking=True, copy=True)",
    "torch.ones(size=(2,))", "x.view(size=(2,))", "x.permute(dims=(0, 1))", "torch.zeros(*sizes)",
    "torch.matmul(*pair, input=x)", "torch.matmul(*a, *b, *c)", "torch.nn.Linear(*a, *b, *c, *d)",
    "F.max_pool2d(x, *a, 1, 0, 1, True)", "torch.nn.Linear(**options)",
    "torch.optim.SGD(p, 0.1, maximize=False)", "torch.nn.Conv2d(1, 2, 3, padding_mode='zeros')",
    "F.max_pool2d(x, 2, ceil_mode=False)", "F.max_pool2d(x, 2, ceil_mode=mode)",
    "x.append(1, 2, 3)", "x.update(quux=3)", "x._own(2)",
    "for self.p in model.parameters(): pass", "for a, self.b in model.named_parameters(): pass",
])  # fmt: skip
def test_a_call_that_may_fit_is_left_alone(line: str) -> None:
    assert groups_of(line, "left out") == {}
    assert groups_of(line, "not known") == {}


def test_methods_of_python_are_not_listed_as_unknown() -> None:
    assert groups_of("x.append(1)\nx.quux()\ny.keys()\nx.frob()", "not known").keys() == {
        "quux", "frob",
    }  # fmt: skip


def test_a_parameter_takes_no_attribute_of_a_program() -> None:
    for line in (
        "for p in model.parameters():\n    p.mine = 3",
        "for name, p in model.named_parameters():\n    p.mine = 3",
        "layer.weight.mine = 3",
    ):
        name = "x.mine"
        assert "takes no attributes of a program" in groups_of(line, "left out")[name]
    assert groups_of("for p in rows():\n    p.mine = 3", "left out") == {}
    assert "x.require_grad" in groups_of("q.require_grad = False", "left out")


@pytest.mark.parametrize(
    ("statement", "name", "text"),
    [
        ("import torch.nn.ReLU", "torch.nn.ReLU", "it is no module here"),
        ("import einops.layers.torch", "einops.layers.torch",
         "write from einops.layers.torch import"),
        ("from torch.nn import Frob", "torch.nn.Frob", ""),
        ("import timm", "timm", "a package that needs PyTorch"),
        ("from torchvision import models", "torchvision", "a package that needs PyTorch"),
    ],
)  # fmt: skip
def test_an_import_that_is_left_out_says_why(statement: str, name: str, text: str) -> None:
    found = Scan(statement)
    assert text in dict([*found.groups["left out"]])[name]
    assert [line for lines in found.groups["left out"].values() for line in lines] == [1]


def test_a_relative_import_is_the_programs_own() -> None:
    for statement in ("from .torch import nn", "from . import torch", "from ..timm import x"):
        found = Scan(f"{statement}\ntorch.frob()\nnn.frob()")
        assert found.groups.get("left out", {}) == {}
        assert found.changes == []


@pytest.mark.parametrize(
    "sign", ["\f", "\v", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"], ids=ascii
)
def test_lines_are_those_of_python(sign: str) -> None:
    """A sign at which `str.splitlines` ends a line, and Python none, moves no import."""
    text = f"# one{sign}two\nnote = 'a{sign}b'\nimport torch\nx = torch.svd('{sign}')\n"
    found = Scan(text)
    assert found.imports == [(3, 3, "import tinyattn.torch_names as torch")]
    assert list(found.groups["left out"].values()) == [[4]]
    assert rewritten(text) == text.replace("import torch", "import tinyattn.torch_names as torch")


def test_a_page_begins_with_a_form_feed() -> None:
    text = "import os\n\fimport torch\n\f\nx = torch.svd(2)\n"
    assert Scan(text).imports[0][:2] == (2, 2)
    assert rewritten(text) == text.replace("import torch", "import tinyattn.torch_names as torch")


# A program has a name of PyTorch at {}.
PLACES = """
x = {} | x += {} | x: {} | x: int = {} | x[{}] | {}[0] | x[{}:] | x[:{}] | x[0, {}] | x.y[{}] = 1
f({}) | f(a={}) | f(0, {}, a=1) | f(*{}) | f(**{}) | f(a=1, b={}) | f(x)(a={}) | f(g(a={}))
x.view({}) | x.view(a={}) | x.quux(a={}) | x.y.view(0, a={}) | torch.ones({}) | torch.ones(a={})
torch.ones(2).view(a={}) | torch.nn.Linear(2, 2)(a={}) | f"{{{}}}" | f"{{1:{{{}}}}}"
[{}] | ({},) | {{{}}} | {{{}: 1}} | {{1: {}}} | {{**{}}} | [*{}] | -{} | {} + 1 | 1 + {} | not {}
{} and x | x or {} | {} < 1 | 1 < {} | x if {} else y | {} if x else y | x if y else {} | (z := {})
[{} for x in y] | [x for x in {}] | [x for x in y if {}] | {{x: {} for x in y}} | ({} for x in y)
lambda: {} | lambda a={}: a | lambda *, a={}: a | assert {} | assert x, {} | raise {}
raise x from {} | del x[{}] | return {} | return x, {} | yield {} | yield from {} | await {}
if {}: pass | while {}: pass | for x in {}: pass | with {}: pass | with {} as x: pass
with x, {} as y: pass | class A({}): pass | class A(metaclass={}): pass | class A: x = {}
class A: x: {} | def g(a={}): pass | def g(*, a={}): pass | def g(a: {}): pass
def g(*a: {}): pass | def g(**a: {}): pass | def g() -> {}: pass | def g(): return {}
async def g(a={}): pass | async def g(): return {}
"""
LINES = [line.strip() for row in PLACES.strip().split("\n") for line in row.split(" | ")]


@pytest.mark.parametrize("line", LINES)
def test_a_name_is_found_wherever_it_stands(line: str) -> None:
    """A value, a call and a method."""
    outside = f"import torch\n{'async ' * ('await' in line)}def f(x):\n  "
    for name, known in [
        ("torch.NoName", "torch.NoName"), ("torch.nn.Fold(2)", "torch.nn.Fold"),
        ("x.svd()", "x.svd"),
    ]:  # fmt: skip
        found = Scan(outside + line.format(name)).groups["left out"]
        assert known in {key for key, _ in found}
        assert {n for lines in found.values() for n in lines} == {3}


def test_a_name_is_found_in_a_decorator_and_a_handler() -> None:
    for line in (
        "@torch.NoName\ndef g(): pass", "@torch.NoName(2)\nclass A: pass",
        "@f(a=torch.NoName)\nasync def g(): pass",
        "try: pass\nexcept torch.NoName: pass", "try: f(torch.NoName)\nfinally: pass",
        "try: pass\nfinally: f(a=torch.NoName)", "match x:\n  case torch.NoName: pass",
        "match torch.NoName:\n  case 1: pass", "match x:\n  case 1 if torch.NoName: pass",
        "match x:\n  case [torch.NoName, *_]: pass", "match x:\n  case A(a=torch.NoName): pass",
    ):  # fmt: skip
        assert groups_of(line, "left out").keys() == {"torch.NoName"}, line


@pytest.mark.parametrize(
    ("line", "is_own"),
    [
        ("self.view = f", True), ("self.view: int = 1", True), ("self.view += 1", True),
        ("a, self.view = 1, 2", True), ("for self.view in y: pass", True),
        ("with f as self.view: pass", True), ("def view(self): pass", True),
        ("class view: pass", True),
        ("del self.view", False), ("self.view", False), ("f(self.view)", False),
        ("import view", False), ("from a import b as view", False),
        ("a = self.view", False), ("if self.view: pass", False), ("view = 1", False),
    ],
)  # fmt: skip
def test_only_what_a_program_defines_is_its_own_method(line: str, is_own: bool) -> None:
    """A call x.view(...) is not judged where the program itself gives something that name."""
    found = groups_of(f"{line}\nx.view(2, quux=3)", "left out")
    assert found.keys() == (set() if is_own else {"x.view()"})


@pytest.mark.parametrize("name", ["weight", "bias"])
@pytest.mark.parametrize("layer", ["layer", "self.layer", "f(x)", "layers[0]", "model.norm.inner"])
def test_a_weight_or_bias_takes_no_attribute(layer: str, name: str) -> None:
    for change in ("{}.frozen = True", "{}.frozen += 1", "{}.frozen: int = 3", "a, {}.frozen = y",
                   "for {}.frozen in y: pass"):  # fmt: skip
        found = groups_of(change.format(f"{layer}.{name}"), "left out")
        assert found == {"x.frozen": scan.NO_ATTRIBUTE}
    for fine in (f"{layer}.{name}.grad = None", f"{layer}.{name}.requires_grad = False",
                 f"{layer}.{name} = 3", f"{layer}.other.frozen = True",
                 f"y = {layer}.{name}.frozen", f"{layer}.frozen = {layer}.{name}"):  # fmt: skip
        assert groups_of(fine, "left out") == {}, fine


@pytest.mark.parametrize(
    "package",
    ["apex", "fairscale", "fairseq", "flash_attn", "lightning", "pytorch_lightning", "timm",
     "triton", "pytorch_metric_learning", "xformers", "torchvision", "torchaudio", "torchtext"],
)  # fmt: skip
def test_a_package_that_needs_pytorch_is_left_out_of_every_import(package: str) -> None:
    for statement in (
        "import {}", "import {}.models", "import {} as x", "import {}.models as x", "import os, {}",
        "from {} import x", "from {} import x as y, z", "from {}.models import x",
    ):  # fmt: skip
        line = statement.format(package)
        found = Scan(f"import os\n{line}\n")
        assert {**found.groups["left out"]}.keys() == {(package, "a package that needs PyTorch")}, (
            line
        )
        assert set(*found.groups["left out"].values()) == {2}
        assert rewritten(line) == line
    for line in (f"from .{package} import x", f"from . import {package}", f"import my.{package}",
                 f"import my_{package}", f"from my.{package} import x"):  # fmt: skip
        assert "left out" not in Scan(line).groups, line


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "cp1252"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_changed_file_keeps_its_encoding_and_its_newlines(
    tmp_path: Path, encoding: str, newline: str
) -> None:
    lines = [f"# -*- coding: {encoding} -*-", 'x = "ä"; import torch  # ü', "y = 1", ""]
    path = tmp_path / "program.py"
    path.write_bytes(newline.join(lines).encode(encoding))
    assert scan.main([str(path)], write=True) == 0
    lines[1] = 'x = "ä"; import tinyattn.torch_names as torch  # ü'
    assert path.read_bytes() == newline.join(lines).encode(encoding)


def test_a_file_with_both_newlines_gets_those_of_windows(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_bytes(b"import torch\nx = 1\r\n")
    assert scan.main([str(path)], write=True) == 0
    assert path.read_bytes() == b"import tinyattn.torch_names as torch\r\nx = 1\r\n"


@pytest.mark.parametrize(
    ("arguments", "group"),
    [
        ("x", "differs a little"),
        ("x, dim=1", "differs a little"),
        ("x, p=1.0", "differs"),
        ("x, 1.0", "differs"),
        ("x, **options", "differs"),
        ("*xs", "differs"),
    ],
)
def test_an_option_that_may_be_hidden_counts_as_given(arguments: str, group: str) -> None:
    groups = Scan(f"import torch.nn.functional as F\nF.normalize({arguments})\n").groups
    assert "torch.nn.functional.normalize" in {name for name, _ in groups[group]}


def test_a_method_is_left_out_only_if_no_class_takes_its_arguments() -> None:
    """Nobody knows whether y is a tensor, a module, an optimizer or a schedule."""
    fits: dict[str, set[str]] = {}
    for owner in scan.OWNERS:
        for name, method in inspect.getmembers(owner, inspect.isfunction):
            is_static = isinstance(inspect.getattr_static(owner, name), staticmethod)
            if name.startswith("_") or is_static:
                continue
            own = list(inspect.signature(method).parameters.values())[1:]
            names = {x.name for x in own if x.kind in (x.POSITIONAL_OR_KEYWORD, x.KEYWORD_ONLY)}
            fits.setdefault(name, set()).update(names - {"function"})
    assert fits["step"] == {"closure", "epoch"}  # of an optimizer, and of a schedule
    lines = [f"y.{name}({x}=z)" for name, names in fits.items() for x in sorted(names)]
    assert {"y.load_state_dict(strict=z)", "y.to(device=z)", "y.zero_grad(set_to_none=z)"} <= {
        *lines
    }
    found = Scan("\n".join(lines)).groups.get("left out", {})
    assert {lines[n - 1]: text for (_, text), at in found.items() for n in at} == {}
    wrong = [f"y.{name}(z, quux=z)" for name in ("step", "to", "load_state_dict", "zero_grad")]
    found = Scan("\n".join(wrong)).groups["left out"]
    assert found == {
        (f"{line.partition('(')[0].replace('y', 'x', 1)}()",
         "got an unexpected keyword argument 'quux'"): [n]
        for n, line in enumerate(wrong, 1)
    }  # fmt: skip
