"""What the scan says of a program is what happens with the names in it."""

from __future__ import annotations

import importlib
import subprocess
import sys
from itertools import permutations
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import pytorch_tables as tables

import tinyattn as ta
import tinyattn.torch_names as port
from tinyattn.torch_names import scan
from tinyattn.torch_names.methods import take_methods
from tinyattn.torch_names.scan import Scan, rewritten

DIFFERS = tables.differences()
take_methods()  # which the table gave

GPT = """
import math
import torch
import torch.nn as nn
from torch.nn import functional as F

class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attn = nn.Linear(config.width, 3 * config.width, bias=config.bias)
        self.drop = nn.Dropout(config.dropout)
        self.register_buffer("bias", torch.tril(torch.ones(8, 8)).view(1, 1, 8, 8))

    def forward(self, x):
        q, k, v = self.attn(x).split(self.width, dim=2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :8, :8] == 0, float("-inf"))
        y = self.drop(F.softmax(att, dim=-1)) @ v
        return y.transpose(1, 2).contiguous().view(x.shape)

    def configure_optimizers(self, rate, betas):
        groups = [{"params": [p for p in self.parameters() if p.dim() >= 2]}]
        return torch.optim.AdamW(groups, lr=rate, betas=betas, fused=True)

    @torch.no_grad()
    def generate(self, idx, top_k=None):
        logits, _ = self(idx)
        v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
        probs = F.softmax(logits, dim=-1)
        return torch.cat((idx, torch.multinomial(probs, num_samples=1)), dim=1)
"""
TRAINING = """
import os, torch
import torch.optim as optim
from torch.utils.data import DataLoader, Dataset
from torch.optim.lr_scheduler import LambdaLR, _LRScheduler
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

def train(model, data, optim_state, log=print):
    optimizer = optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    schedule = LambdaLR(optimizer, lr_lambda=lambda n: min(1.0, n / 400))
    for x, y in DataLoader(data, batch_size=8, shuffle=True, num_workers=2, pin_memory=True):
        loss = F.cross_entropy(model(x), y, ignore_index=0, label_smoothing=0.1)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        log(loss.item(), os.getpid())
"""


def rows(program: str, group: str) -> dict[str, str]:
    return dict([*Scan(program).groups.get(group, {})])


def test_a_program_whose_names_are_all_there() -> None:
    found = Scan(GPT)
    assert "left out" not in found.groups
    works = {name for name, _ in found.groups["works"]}
    assert {"torch.nn.Linear", "torch.tril", "torch.optim.AdamW", "x.transpose"} <= works
    assert "torch.nn.functional.softmax" in works
    little = {name for name, _ in found.groups["differs a little"]}
    assert "x.masked_fill" in little
    assert "differs" not in found.groups
    assert found.groups["works"]["torch.ones", ""] == [12]
    assert [text for *_, text in found.imports] == [
        "import tinyattn.torch_names as torch",
        "import tinyattn.torch_names.nn as nn",
        "from tinyattn.torch_names.nn import functional as F",
    ]


def test_local_names_are_not_pytorchs() -> None:
    program = """
import torch.optim as optim
from torch.nn import functional as F
import numpy as np

def step(optim, loss):
    optim.minimize(loss)
    return [F.nothing() for F in (1, 2)], lambda optim: optim.other

def outer(optim):
    def inner(loss, F=None):
        optim.minimize(loss)
        return lambda nn: (optim.other, F.nothing, nn.nothing)
    return inner

class Net:
    def unfold(self):
        return self.unfold(), self.scale_(), np.linalg.svd(2), np.x_(), "a".title()
    def scale_(self):
        self.svd = 3
        return self.svd()

optim = optim.SGD([])
optim.nothing
"""
    assert rows(program, "left out") == {}
    assert "torch.optim.SGD" in rows(program, "works")


@pytest.mark.parametrize(
    "program",
    [
        "class Config:\n  nn = 'adam'\n  F: int = 3\nnn.Fold(2)",
        "class Config:\n  optim = nn = F = 'a'\ndef f(): return nn.Fold(2)",
        "def f():\n  layers = torch.nn\n  return layers.Fold(2)",
        "def f():\n  nn = torch.nn\n  def inner(): return nn.Fold(2)\n  return inner",
        "class Net:\n  def forward(self, x):\n    nn = torch.nn\n    return nn.Fold(2)(x)",
    ],
)
def test_names_of_a_class_and_of_a_function(program: str) -> None:
    program = f"import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n{program}"
    assert "torch.nn.Fold" in rows(program, "left out")


# A line that uses x, and what of it is left out, with a part of the text.
LEFT_OUT: list[tuple[str, str, str]] = [
    ("nn.Conv3d(1, 2, 3)", "torch.nn.Conv3d", "it is not here"),
    ("nn.NoSuch.thing", "torch.nn.NoSuch", "it is not here"),
    ("x.data.new(3)", "x.new", ""),
    ("F.softmax(x, dim=-1, colour=3)", "torch.nn.functional.softmax()", "argument 'colour'"),
    ("F.softmax(x, 1, 2, 3, 4, 5)", "torch.nn.functional.softmax()", "too many positional"),
    ("torch.zeros_like(x, layout=x)", "torch.zeros_like()", "argument 'layout'"),
    ("x.softmax(dim=-1, colour=3)", "x.softmax()", "argument 'colour'"),
    ("x.T.median()", "x.median", "write np.quantile(x.numpy()"),
    ("for p in x.parameters():\n  p.no_decay = 1", "x.no_decay", "a Tensor takes no attributes"),
    ("for n, p in x.named_parameters(): p.kind = n", "x.kind", "keep them in a dict, by id(x)"),
    ("x.weight.no_decay = True", "x.no_decay", "a Tensor takes no attributes of a program"),
    ("p.require_grad = False", "x.require_grad", "a Tensor takes no attributes of a program"),
    ("with torch.cuda.amp.autocast(): pass", "torch.cuda.amp", "delete autocast and GradScaler"),
    ("x.to(torch.bfloat16)", "torch.bfloat16", "write torch.float32"),
    ("from torch.utils.checkpoint import checkpoint", "torch.utils.checkpoint", "call the functi"),
    ("import torch.distributed as dist", "torch.distributed", "tinyattn.training.distributed"),
    (
        "from torch.utils.data.distributed import DistributedSampler",
        "torch.utils.data.distributed",
        "write Subset(dataset, range(rank, ",
    ),
    ("import einops.layers.torch", "einops.layers.torch", "write from einops.layers.torch import"),
    ("f(x)[0].register_hook(f)", "x.register_hook", "x.retain_grad() keeps"),
    ("x.frobnicate_()", "x.frobnicate_", "methods do not change x"),
    ("def f(y: torch.NoTensor): pass", "torch.NoTensor", "it is not here"),
    ("@torch.jit.script\ndef f(): pass", "torch.jit", "nothing has to be traced"),
    ("f(*x, mode=torch.NoMode)", "torch.NoMode", "it is not here"),
    ("import torchvision.transforms as T", "torchvision", "a package that needs PyTorch"),
    ("from apex import amp", "apex", "a package that needs PyTorch"),
    ("from torch.nn.modules.linear import Linear", "torch.nn.modules.linear", "import it from tor"),
    ("x.size().numel()", "torch.Size.numel", "write x.numel()"),
    ("f(x.shape.numel())", "torch.Size.numel", "write x.numel()"),
    ("torch.Size([2, 3]).numel()", "torch.Size.numel", "write x.numel()"),
    ("x.data.dtype.is_floating_point", "torch.dtype.is_floating_point", "write x.is_floating_p"),
    ("from torch.nn import DataParallel", "torch.nn.DataParallel", "write the module itself"),
    ("from torch.nn.utils.rnn import pack_sequence", "torch.nn.utils.rnn.pack_sequence", "give t"),
    ("torch.autocast('cpu')", "torch.autocast", "delete autocast and GradScaler"),
    ("torch.matmul(x, x, out=x)", "torch.matmul()", "write y = f(x), or y[...] = f(x)"),
    ("nn.GroupNorm(2, 4)", "torch.nn.GroupNorm", "write F.layer_norm of x.reshape"),
    ("torch.func.vmap(x)", "torch.func", "write functions of whole batches"),
    ("x.cosh()", "x.cosh", "numpy.cosh has it, of x.numpy(), and records no gradient"),
    ("torch.det(x)", "torch.det", "numpy.linalg.det has it"),
    ("from torch.ones import x", "torch.ones", "it is no module here"),
    ("import torch.utils.tensorboard", "torch.utils.tensorboard", "print the numbers"),
    ("torch.optim.Adagrad(x)", "torch.optim.Adagrad", "write optim.Adam"),
    ("torch.mean(x, 1, dtype=x)", "torch.mean()", "unexpected keyword argument 'dtype'"),
    ("x.amax(1, where=x)", "x.amax()", "unexpected keyword argument 'where'"),
    ("x.mean(1, dtype=torch.float64)", "x.mean()", "unexpected keyword argument 'dtype'"),
    ("nn.Conv2d(1, 2, 3, padding_mode='reflect')", "torch.nn.Conv2d()", "padding_mode is 'zeros'"),
    ("nn.MaxPool2d(2, ceil_mode=True)", "torch.nn.MaxPool2d()", "ceil_mode is False here"),
    ("nn.AvgPool1d(2, 2, 0, False, False)", "torch.nn.AvgPool1d()", "count_include_pad is True"),
    ("nn.Embedding(3, 2, max_norm=1.0)", "torch.nn.Embedding()", "max_norm is None here"),
    ("torch.optim.Adam(x, amsgrad=True)", "torch.optim.Adam()", "amsgrad is False here: leave it"),
    ("torch.optim.SGD(x, maximize=True)", "torch.optim.SGD()", "maximize is False here: minim"),
    ("nn.Embedding(9, 2, None, 1.0)", "torch.nn.Embedding()", "max_norm is None here"),
    ("nn.Conv1d(3, 4, 3, 1, 0, 1, 1, True, 'same')", "torch.nn.Conv1d()", "padding_mode is 'z"),
    (
        "nn.MultiheadAttention(4, 2, 0.1, True, True)",
        "torch.nn.MultiheadAttention()",
        "add_bias_kv",
    ),
    ("torch.optim.lr_scheduler.CyclicLR", "torch.optim.lr_scheduler.CyclicLR", "write a Lamb"),
]


@pytest.mark.parametrize(("line", "name", "text"), LEFT_OUT)
def test_what_is_left_out(line: str, name: str, text: str) -> None:
    program = f"import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n{line}\n"
    found = Scan(program)
    assert [known for known, _ in found.groups["left out"]] == [name]
    ((_, told), lines), *_ = found.groups["left out"].items()
    assert text in told
    assert set(lines) <= {4, 5}


@pytest.mark.parametrize(
    "line",
    [
        "x.view(*sizes)", "torch.cat(*parts, **options)", "x.split(',', maxsplit=2)",
        "names.sort(key=len)", "F.softmax(*x, dim=-1)", "torch.zeros(2, dtype=torch.float32)",
        "def f(x: 'torch.NoTensor'): pass", "from .torch import x", "import torch.nn.functional",
        "nn.Linear(2, 3)(x)", "torch.optim.SGD(x, 0.1).step()", "x.to(d, non_blocking=True)",
        "torch.rand(2, generator=x, pin_memory=True)", "import torch.utils.data.dataset",
        "x.split(split_size=2, dim=1)", "x.reshape(shape=(2, 3))", "x.softmax(axis=1)",
        "x.mean(axis=1, keepdims=True)", "torch.sum(input=x, dim=1, dtype=torch.float64)",
        "torch.cat(tensors=x, axis=1)", "torch.zeros(size=(2, 3))", "x.bmm(mat2=x)",
        "nn.KLDivLoss(size_average=False)", "F.cross_entropy(input=x, target=x, reduce=False)",
        "torch.pow(input=x, exponent=2)", "nn.init.normal_(x, generator=x)", "x.no_decay = True",
        "torch.zeros_like(x, memory_format=torch.preserve_format)", "self.weights.x = 3",
        "torch.compile(x, mode='max-autotune')", "from torch.optim.optimizer import Optimizer",
        "nn.Embedding(9, 2, None, None)", "nn.Embedding(9, 2, None, x)", "nn.Embedding(*x, 1.0)",
        "nn.MultiheadAttention(4, 2, 0.1, True, False)", "torch.Size([1])", "nn.GRU(3, 4, 1, True)",
        "torch.optim.Adam(x, amsgrad=False)", "nn.Embedding(3, 2, max_norm=None)", "f(max_norm=1)",
        "nn.utils.clip_grad_norm_(x, max_norm=1.0)",
        "nn.Conv2d(1, 2, 3, padding_mode='zeros')", "nn.MaxPool2d(2, ceil_mode=False)",
        "torch.optim.SGD(x, maximize=options)",
        "nn.Linear(**config)", "nn.Linear(3, **config)", "nn.Linear(*sizes)", "x.gather(**options)",
        "self.require = 1", "for p in model.parameters(): p.requires_grad = False", "x.shape()",
        "F.gumbel_softmax(logits=x, tau=0.5)", "torch.tile(x, dims=(2, 2))", "torch = None",
        "torch.split(tensor=x, split_size_or_sections=2)", "nn, other = torch.nn, 3",
        "F.mse_loss(x, x, size_average=False, reduce=True)", "x.norm = torch.norm",
    ],
)  # fmt: skip
def test_what_is_not_left_out(line: str) -> None:
    program = f"import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n{line}\n"
    assert rows(program, "left out") == {}


@pytest.mark.parametrize(
    ("statement", "changed"),
    [
        ("import torch", ["import tinyattn.torch_names as torch"]),
        ("import torch as th", ["import tinyattn.torch_names as th"]),
        ("import os, torch.nn", ["import os; import tinyattn.torch_names as torch"]),
        ("import torch as T, numpy as np",
         ["import numpy as np; import tinyattn.torch_names as T"]),
        ("if True: import torch  # a", ["if True: import tinyattn.torch_names as torch  # a"]),
        ("import torch; import torch.nn as nn; x = 1",
         ["import tinyattn.torch_names as torch; import tinyattn.torch_names.nn as nn; x = 1"]),
        ("import torch.distributed as dist", []),
        ("import einops.layers.torch", []),
        ("import torch.nn.functional as F", ["import tinyattn.torch_names.nn.functional as F"]),
        ("from torch import *", ["from tinyattn.torch_names import *"]),
        ("from torch.nn import (\n  Linear,\n  ReLU as R)",
         ["from tinyattn.torch_names.nn import Linear, ReLU as R"]),
        ("from torch.utils.data import Dataset",
         ["from tinyattn.torch_names.utils.data import Dataset"]),
        ("from torch.nowhere import x", []),
    ],
)  # fmt: skip
def test_import_lines_run_as_they_are_written(statement: str, changed: list[str]) -> None:
    found = Scan(statement)
    assert [text for *_, text in found.imports] == changed
    assert rewritten(statement + "\ny = 2").split("\n")[-1] == "y = 2"
    for line in changed:
        known: dict[str, Any] = {}
        exec(line, known)
        assert known.keys() >= set(found.names)


NAMES = ("torch", "torch.nn as n", "os", "torch.nope as x")


@pytest.mark.parametrize("names", [*permutations(NAMES)])
def test_of_a_statement_with_a_missing_module_no_line_is_advised(names: tuple[str, ...]) -> None:
    """Wherever it stands in it. --write changes it all the same, and the program stops there."""
    statement = f"import {', '.join(names)}"
    found = Scan(f"{statement}\nimport torch.nn as m")
    assert found.imports == [(2, 2, "import tinyattn.torch_names.nn as m")]
    [(name, why)] = found.groups["left out"]
    assert (name, why[:14]) == ("torch.nope", "it is not here")
    places = {"torch": "torch_names as torch", "torch.nn as n": "torch_names.nn as n",
              "torch.nope as x": "torch_names.nope as x"}  # fmt: skip
    parts = [f"import tinyattn.{places[name]}" for name in names if name in places]
    assert rewritten(statement) == "; ".join(["import os", *parts])
    whole = [name for name in names if "nope" not in name]
    parts = [f"import tinyattn.{places[name]}" for name in whole if name in places]
    text = "; ".join(["import os", *parts])
    assert Scan(f"import {', '.join(whole)}").imports == [(1, 1, text)]


@pytest.mark.parametrize(
    "statement",
    [
        "import einops", "import einops as e", "from einops import rearrange",
        "import einops.layers", "from einops.layers import chainer", "import torchlike, torches",
        "import tor", "from torchs.nn import Linear", "from . import torch",
        "from .torch import nn", "import xtorch", "import x.torch", "import x.torch.nn as nn",
    ],
)  # fmt: skip
def test_names_that_begin_alike_are_not_pytorchs(statement: str) -> None:
    found = Scan(statement)
    assert found.imports == []
    assert rewritten(statement) == statement


def test_a_package_that_is_not_installed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As einops may be; the rest of the program is read all the same."""
    monkeypatch.setitem(sys.modules, "tinyattn.torch_names.einops_backend", None)
    program = (
        "import torch\nfrom einops.layers.torch import Rearrange\ntorch.zeros(2)\ntorch.nope(2)"
    )
    assert list(rows(program, "left out")) == ["einops.layers.torch", "torch.nope"]


def test_layers_of_einops() -> None:
    pytest.importorskip("einops", reason="einops is not installed")
    found = Scan("from einops.layers.torch import Rearrange\nRearrange('a b -> b a')")
    assert [text for *_, text in found.imports] == [
        "from tinyattn.torch_names.einops_backend import Rearrange"
    ]
    assert "left out" not in found.groups
    missing = "from einops.layers.torch import EinMix"
    assert list(rows(missing, "left out")) == ["einops.layers.torch.EinMix"]


@pytest.mark.parametrize("program", [GPT, TRAINING])
def test_the_verdict_is_that_of_getattr(program: str) -> None:
    """Each name that works or differs is there, and each that is left out is not."""
    found = Scan(program)
    for group, names in found.groups.items():
        for name, _ in names:
            owner, *parts = name.removesuffix("()").split(".")
            spaces: list[Any] = [port] if owner == "torch" else [*scan.OWNERS]
            there = []
            for space in spaces:
                for part in parts:
                    space = getattr(space, part, None)
                there.append(space is not None)
            if owner in ("torch", "x") and not name.endswith("()"):
                assert any(there) == (group != "left out"), name
    assert found.groups["works"]


def test_differences_are_those_of_the_table() -> None:
    """The table has a short text for each; the docstring, which is shown, says more."""
    spaces = {"ta": ta, "Tensor": ta.Tensor, "nn": ta.nn, "F": ta.functional, "optim": ta.optim}
    take_methods()  # because some are in the place of tinyattn's own
    shown = 0
    for name in DIFFERS:
        owner, _, path = name.partition(".")
        try:
            found = attrgetter(path)(spaces[owner])
        except (AttributeError, KeyError):
            continue  # a name of torch_names, or of another module
        told = scan.difference(found)
        assert told, name
        assert "Differs from PyTorch:" not in told
        assert ">>>" not in told
        shown += 1
    assert shown == 55
    assert scan.difference(ta.exp) == ""


@pytest.mark.parametrize(
    ("call", "group"),
    [
        ("F.cross_entropy(x, y)", "differs a little"),
        ("F.pad(x, (1, 1), value=3)", "differs a little"),
        ("F.pad(x, (1, 1), mode='reflect')", "differs"),
        ("x.softmax(1)", "differs a little"),
        ("x.numpy()", "differs"),
        ("x.numpy(); import numpy as np", "differs"),  # which defines no method of this name
        ("import torch; torch.from_numpy(x)", "differs"),
        ("F.cross_entropy(x, y, ignore_index=0)", "differs a little"),
        ("F.cross_entropy(x, y, None, None, 0)", "differs"),
        ("F.cross_entropy(*x)", "differs"),
        ("F.normalize(x, dim=-1)", "differs a little"),
        ("F.normalize(x, p=1)", "differs"),
        ("F.normalize(x, **options)", "differs"),
        ("x.norm(dim=-1)", "differs a little"),
        ("x.norm(3)", "differs"),
        ("map(F.normalize, x)", "differs"),
        ("x.max()", "differs a little"),
    ],
)
def test_a_difference_has_a_line_where_the_call_meets_it(call: str, group: str) -> None:
    found = Scan(f"from torch.nn import functional as F\n{call}\n").groups
    assert [known for known in found if known != "works"] == [group]
    lines = list(scan.report(Scan(f"from torch.nn import functional as F\n{call}\n")))
    shown = [line for line in lines if line.startswith("    ") and "(line 2)" in line]
    named = [line for line in lines if 'also under "What differs" in docs' in line]
    assert (len(shown), len(named)) == ((1, 0) if group == "differs" else (0, 1))


@pytest.mark.parametrize(
    ("line", "group"),
    [
        ("isinstance(x, torch.Tensor)", "differs a little"),
        ("def f(x: torch.Tensor) -> torch.LongTensor: pass", "differs a little"),
        ("torch.Tensor([1.0, 2.0])", "differs a little"),
        ("torch.FloatTensor(2, 3)", "differs a little"),
        ("torch.Tensor(x.shape)", "differs"),
        ("class Own(torch.nn.Sequential): pass", "differs a little"),
        ("torch.set_default_dtype(torch.float64)", "differs"),
    ],
)
def test_a_class_that_is_only_named_is_met_by_nobody(line: str, group: str) -> None:
    assert [known for known in Scan(f"import torch\n{line}").groups if known != "works"] == [group]


def test_attributes_that_are_set_hide_no_name() -> None:
    program = """
import torch, torch.nn as nn
torch.backends.cudnn.deterministic = True
torch.backends.cudnn.nothing.benchmark = False
x = torch.fft.fft(torch.randn(3, 3))
torch.nn.utils.clip_grad_norm_(nn.Linear(3, 2).parameters(), 1.0)
"""
    left_out = {"torch.fft", "torch.backends.cudnn.nothing"}
    assert rows(program, "left out").keys() == left_out
    assert {"torch.nn.Linear", "torch.randn", "torch.backends.cudnn"} <= rows(
        program, "works"
    ).keys()


def test_names_of_a_program_that_may_run_without_pytorch() -> None:
    program = """
try:
    import torch
    from torch import nn
except ImportError:
    torch = nn = None
F = functional = nn.functional
torch.zeros(2), nn.Linear(2, 3)
torch.svd(x), nn.GroupNorm(2, 4), F.nothing(x), functional.other(x)

def local():
    F = torch.fft
    F.anything
"""
    assert {"torch.zeros", "torch.nn.Linear"} <= rows(program, "works").keys()
    assert rows(program, "left out").keys() == {
        "torch.svd", "torch.nn.GroupNorm", "torch.nn.functional.nothing",
        "torch.nn.functional.other", "torch.fft",
    }  # fmt: skip


def test_imports_hide_no_method() -> None:
    program = "import torch\nimport numpy as np\nfrom math import cosh\nx.numpy()\nx.cosh()\n"
    assert "x.numpy" in rows(program, "differs")
    assert "x.cosh" in rows(program, "left out")


def test_no_import_of_pytorch_stays() -> None:
    """It would mix both libraries: what is not here fails by the name of its module."""
    program = (
        "import torch.distributed as dist\nfrom torch.utils.checkpoint import checkpoint, other\n"
        "import os, torch.profiler as p\ntry: import torch._dynamo\nexcept ImportError: y = 1\n"
    )
    assert rewritten(program).split("\n")[:4] == [
        "import tinyattn.torch_names.distributed as dist",
        "from tinyattn.torch_names.utils.checkpoint import checkpoint, other",
        "import os; import tinyattn.torch_names.profiler as p",
        "try: import tinyattn.torch_names as torch",
    ]
    with pytest.raises(ImportError, match=r"tinyattn\.torch_names"):
        exec(rewritten(program), {})
    assert not [text for *_, text in Scan(program).imports if "distributed" in text]


def test_the_differences_that_programs_meet_are_there() -> None:
    take_methods()
    for name in scan.MET:
        owner, _, method = name.partition(".")
        found = getattr(ta.Tensor, method) if owner == "x" else scan.looked_up(name)[0]
        assert scan.difference(found), name


def test_every_name_of_the_folder_works() -> None:
    for module in ("", ".nn", ".nn.functional", ".optim", ".utils.data"):
        space = importlib.import_module(f"tinyattn.torch_names{module}")
        for name in dir(space):
            if not name.startswith("_"):
                known = f"torch{module}.{name}"
                program = f"import torch{module} as space\nspace.{name}"
                assert known not in rows(program, "left out")


def test_methods_in_the_list_are_pytorchs(torch: Any) -> None:
    theirs = {*dir(torch.Tensor), *dir(torch.nn.Module)}
    assert [name for name in scan.METHODS if name not in theirs] == []
    arrays = {*dir(ta.ones(2).numpy()), *scan.PYTHONS}
    assert [name for name in scan.METHODS if name in arrays] == []


def run(*paths: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tinyattn.torch_names.scan", *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_from_the_command_line(tmp_path: Path) -> None:
    whole, partly, broken = (tmp_path / f"{name}.py" for name in ("whole", "partly", "broken"))
    whole.write_text(GPT)
    partly.write_text("import torch\nx = torch.frobnicate(y.numpy())\nz.quux()\n")
    broken.write_text("import torch as\n")
    done = run(whole)
    assert done.returncode == 0, done.stderr
    assert "  left out: 0 names\n" in done.stdout
    done = run(whole, partly)
    assert done.returncode == 1
    tail = done.stdout.partition(str(partly))[2]
    assert "line 1: import tinyattn.torch_names as torch\n" in tail
    assert "    torch.frobnicate (line 2): it is not here" in tail
    assert "    x.numpy (line 2): " in tail.partition("differs: 1 names")[2]
    assert "2 files: nothing is left out of 1\n  torch.frobnicate is left out of 1\n" in tail
    assert "  not judged: the methods quux\n" in tail
    done = run(broken, tmp_path / "none.py", partly)
    assert done.returncode == 2
    assert done.stdout.count("cannot be read: ") == 2
    assert "torch.frobnicate" in done.stdout
    assert "scan [-h] [--write] PATH" in run().stderr
    assert run().returncode == 2
    assert "uses" in run("--help").stdout


def test_a_statement_of_several_lines_becomes_one(tmp_path: Path) -> None:
    path = tmp_path / "some.py"
    path.write_text(
        "def f():\n    from torch.nn import (\n        Linear,\n    )\n    return Linear\n"
    )
    assert "lines 2-4: from tinyattn.torch_names.nn import Linear\n" in run(path).stdout
    known: dict[str, Any] = {}
    exec(rewritten(path.read_text()), known)
    assert known["f"]().__name__ == "Linear"


def test_what_stands_behind_an_import_stays() -> None:
    """Also behind letters of more than one byte, by which Python counts."""
    line = "x = 'é文'; import torch; y = 'é'  # 文"
    assert rewritten(line) == line.replace("torch", "tinyattn.torch_names as torch")


def test_a_notebook_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "some.ipynb"
    path.write_text('{"cells": [{"source": "import torch"}]}')
    done = run(path)
    assert done.returncode == 2
    assert "cannot be read: it is a notebook" in done.stdout


def test_a_folder_is_searched(tmp_path: Path) -> None:
    for name in ("a.py", "sub/b.py", "sub/text.md", "c.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("import torch\n" + "torch.fft.fft(2)\n" * (name != "a.py"))
    done = run(tmp_path)
    assert done.returncode == 1
    printed = [line for line in done.stdout.split("\n") if line.endswith(".py")]
    assert printed == [str(tmp_path / name) for name in ("a.py", "c.py", "sub/b.py")]
    tail = "3 files: nothing is left out of 1\n  torch.fft is left out of 2\n"
    assert done.stdout.endswith(tail)


@pytest.mark.parametrize("head", ["\ufeff", "# -*- coding: latin-1 -*-\n", ""])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_imports_are_changed_in_the_file(tmp_path: Path, head: str, newline: str) -> None:
    """With its encoding and its line ends."""
    encoding = "latin-1" if "latin" in head else "utf-8"
    path = tmp_path / "some.py"
    text = f"{head}import torch\nfrom torch.nn import (\n    Linear,\n)\nx = 'Müller'\n"
    path.write_bytes(text.replace("\n", newline).encode(encoding))
    assert run(path).returncode == 0
    assert path.read_bytes() == text.replace("\n", newline).encode(encoding)
    assert run("--write", path).returncode == 0
    changed = text.replace("import torch\n", "import tinyattn.torch_names as torch\n", 1)
    changed = changed.replace(
        "from torch.nn import (\n    Linear,\n)", "from tinyattn.torch_names.nn import Linear\n\n"
    )
    assert path.read_bytes() == changed.replace("\n", newline).encode(encoding)
    assert run("--write", path).returncode == 0  # nothing more to change
    assert path.read_bytes() == changed.replace("\n", newline).encode(encoding)


def test_deep_programs(tmp_path: Path) -> None:
    """What Python runs is read; what is too deep for Python is not."""
    long, deep = tmp_path / "long.py", tmp_path / "deep.py"
    chain = "if a: pass\n" + "elif torch.fft: pass\n" * 600
    long.write_text(f"import torch\nx = {'+'.join(['a'] * 900)}\n{chain}")
    deep.write_text("x = " + "+".join(["a"] * 100_000))
    done = run(long)
    assert done.returncode == 1, done.stderr
    assert "torch.fft (line 4" in done.stdout
    done = run(deep)
    assert done.returncode == 2
    assert "cannot be read: it is nested too deeply" in done.stdout
    assert "Traceback" not in done.stderr


def test_the_status_is_that_of_the_worst_file(tmp_path: Path, capsys: Any) -> None:
    """2 if a file cannot be read, else 1 if a name is left out, in whatever order they come."""
    texts = {"clean": "import torch\ntorch.ones(2)", "missing": "import torch\ntorch.nope(2)",
             "broken": "import ("}  # fmt: skip
    status = {"clean": 0, "missing": 1, "broken": 2}
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    for number in (1, 2, 3):
        for names in permutations(texts, number):
            found = scan.main([str(tmp_path / f"{name}.py") for name in names])
            assert found == max(status[name] for name in names), names
    assert scan.main([str(tmp_path)]) == 2
    assert scan.main([]) == 0
    said = capsys.readouterr().out
    assert "3 files: nothing is left out of 1\n  torch.nope is left out of 1\n" in said
