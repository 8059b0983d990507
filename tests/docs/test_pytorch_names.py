"""The table of PyTorch's names: what is left out is really missing, and says what to write."""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import re
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import pytest
import pytorch_tables as tables

import tinyattn
import tinyattn as ta
from tinyattn import functional as F
from tinyattn import hints, nn, optim
from tinyattn.base.names import OF_TORCH_NAMES
from tinyattn.hints import ARGUMENTS
from tinyattn.torch_names import scan
from tinyattn.torch_names.methods import take_methods

MISSING, DIFFERS, IN_TORCH_NAMES = tables.missing(), tables.differences(), set(hints.added())
TOLD = {name: text for name, text in MISSING.items() if text}
OF_MODULES = {n.removeprefix("Module."): t for n, t in TOLD.items() if n.startswith("Module.")}
LEFT_OUT = {name: text for name, text in TOLD.items() if not name.startswith("Module.")}
take_methods()  # which the tables gave


def is_expression(text: str) -> bool:
    """Whether a hint is an expression of x and y."""
    try:
        used = {n.id for n in ast.walk(ast.parse(text, mode="eval")) if isinstance(n, ast.Name)}
    except SyntaxError:
        return False
    return "x" in used <= {"x", "y", "np", "ta", "abs"}


# Functions whose hint is an expression of x and y, but which return no tensor, or take other
# arguments.
NOT_EVALUATED = ["cdist", "empty_like", "finfo", "iinfo"]
# Names that torch_names has no longer, and that say what NumPy's functions say.
FROM_NUMPY = "absolute less less_equal logical_xor multiply negative not_equal subtract tan"
EXPRESSIONS = {
    name: text.removeprefix("write ")
    for name in [*FROM_NUMPY.split(), *(n[3:] for n in LEFT_OUT if n.startswith("ta."))]
    if name not in NOT_EVALUATED
    if is_expression((text := hints.instead("ta", name, [])).removeprefix("write "))
}

SPACES = {
    "ta": ta, "Tensor": ta.ones(2), "nn": nn, "nn.init": nn.init, "F": F, "optim": optim,
    **{name: tables.SPACES[name] for name in OF_TORCH_NAMES},
}  # fmt: skip


def beside(torch: Any) -> dict[str, Any]:
    """What PyTorch calls the same."""
    return {
        "ta": torch, "Tensor": torch.ones(2, 2), "nn": torch.nn, "nn.init": torch.nn.init,
        "F": torch.nn.functional,
        "optim": SimpleNamespace(**(vars(torch.optim.lr_scheduler) | vars(torch.optim))),
        **{name: attrgetter(name)(torch) for name in OF_TORCH_NAMES},
    }  # fmt: skip


def split(name: str) -> tuple[Any, str]:
    owner, _, attribute = name.rpartition(".")
    return SPACES[owner], attribute


@pytest.mark.parametrize("name", sorted(LEFT_OUT))
def test_what_is_left_out_says_what_to_write(name: str) -> None:
    space, attribute = split(name)
    assert not hasattr(space, attribute)
    with pytest.raises(AttributeError) as caught:
        getattr(space, attribute)
    where = "; tinyattn.torch_names has it" if name in IN_TORCH_NAMES else ""
    assert str(caught.value) == f"tinyattn has no {name}: {LEFT_OUT[name]}{where}"


# Where PyTorch has a name that another module has here, or what it calls otherwise.
ELSEWHERE = {
    "F.pack_padded_sequence": "nn.utils.rnn.pack_padded_sequence",
    "F.pad_packed_sequence": "nn.utils.rnn.pad_packed_sequence",
    "batches.DataLoader": "utils.data.DataLoader",
    "distributed.DistributedDataParallel": "nn.parallel.DistributedDataParallel",
    "distributed.all_reduce": "distributed.all_reduce",
    "Module.state_dict": "nn.Module.state_dict",
    "nn.DecoderLayer": "nn.TransformerDecoderLayer",
    "nn.MultiHeadAttention": "nn.MultiheadAttention",
    "optim.CosineSchedule": "optim.lr_scheduler.CosineAnnealingLR",
    "optim.LambdaLR": "optim.lr_scheduler.LambdaLR",
    "optim.clip_grad_norm_": "nn.utils.clip_grad_norm_",
    "ta.gradcheck": "autograd.gradcheck",
}


def says_differs(text: Any) -> bool:
    return "differs from pytorch" in " ".join(str(text or "").split()).lower()


def documented() -> Iterator[tuple[str, str]]:
    """Each docstring of the package, with its name: of modules, classes, functions, methods."""
    for info in pkgutil.walk_packages(tinyattn.__path__, "tinyattn."):
        module = importlib.import_module(info.name)
        yield info.name, module.__doc__ or ""
        for name, part in vars(module).items():
            if getattr(part, "__module__", None) != info.name or isinstance(part, TypeVar):
                continue
            yield f"{info.name}.{name}", part.__doc__ or ""
            for member, value in vars(part).items() if isinstance(part, type) else ():
                yield f"{info.name}.{name}.{member}", getattr(value, "__doc__", None) or ""


def test_the_whole_package_is_searched() -> None:
    names = [name for name, _ in documented()]
    for name in (
        "nn.module.Module.state_dict", "tensors.values.Values.data", "ops.losses.kl_div",
        "testing.finite_differences.gradcheck", "training.distributed.all_reduce",
        "optim.schedules.LambdaLR", "viz.show_graph", "interop.torch_names", "masks.causal",
    ):  # fmt: skip
        assert names.count(f"tinyattn.{name}") == 1


def test_what_a_docstring_says_to_differ_is_in_the_table() -> None:
    # A function made from a method has the docstring of the method, and so has its op.
    found = [(name, text) for name, text in documented() if says_differs(text)]
    shown = {text.removesuffix(".") for text in DIFFERS.values()}
    told = {name: scan.difference(SimpleNamespace(__doc__=text)) for name, text in found}
    assert [name for name, text in told.items() if text.removesuffix(".") not in shown] == []
    assert len(DIFFERS) > 60


@pytest.mark.parametrize("name", sorted({*LEFT_OUT, *DIFFERS}))
def test_pytorch_has_the_name(name: str) -> None:
    torch = pytest.importorskip("torch")
    owner, _, path = name.rpartition(".")
    if owner not in beside(torch):
        owner, _, path = name.partition(".")
    space = torch if name in ELSEWHERE else beside(torch)[owner]
    attrgetter(ELSEWHERE.get(name, path))(space)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ta.log2", "write x.log() / np.log(2)"),  # of a row
        ("Tensor.log2", "write x.log() / np.log(2)"),
        ("Tensor.new_ones", "write ta.ones(size, dtype=x.dtype, device=x.device)"),
        ("Tensor.zero_", "write x[...] = 0, under ta.no_grad() if x is a leaf that requires gra"),
        ("ta.unflatten", "write x.reshape(sizes)"),  # of a function
        ("Tensor.index_fill_", "write x[index] = value, or x[:, index] for dimension 1"),
        ("Tensor.type", "write x.to(dtype), or x.dtype"),
        ("F.elu", "write ta.where(x > 0, x, alpha * x.clamp(max=0).expm1())"),
        ("nn.ELU", "write ta.where(x > 0, x, alpha * x.clamp(max=0).expm1())"),
        ("nn.NLLLoss", "write F.nll_loss"),
        ("nn.GRU", "write an nn.Linear in a loop over the positions"),  # of a class
        ("ta.device", 'devices are strings: "cpu" and "cuda"'),
        ("nn.init.trunc_normal_", "write nn.init.normal_(w, mean, std), then w.clamp(a, b) for"),
        ("optim.RMSprop", "write optim.Adam; with betas=(0, beta2) only its first steps are sm"),
        ("optim.lr_scheduler", "the schedules are in optim itself"),  # of a file
        ("nn.utils", "optim.clip_grad_norm_ and tinyattn.training.pad_sequence are there"),
        ("ta.half", "write ta.float16"),
        ("Tensor.byte", "write x.to(ta.uint8)"),
        ("ta.LongTensor", "write ta.tensor(data, dtype=ta.int64), or ta.zeros for sizes"),
        ("Tensor.tile", "write x.repeat(sizes)"),  # of NumPy's function
        ("ta.multiply", "write x * y"),
    ],
)
def test_a_hint_is_read_from_where_it_stands(name: str, text: str) -> None:
    space, attribute = split(name)
    with pytest.raises(AttributeError, match=re.escape(f"no {name}: {text}")):
        getattr(space, attribute)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Tensor.add_", r"write x \+= y, under ta.no_grad\(\) if x is a leaf that requires grad"),
        ("Tensor.exp_", r"write x = x.exp\(...\), or x\[...\] = value, under ta.no_grad\(\) if x"),
        (
            "Tensor.ceil_",
            r"make a new tensor, or write x\[...\] = value, under ta.no_grad\(\) if x",
        ),
        ("Tensor.reshap", "did you mean reshape"),
        ("ta.arrange", "did you mean arange"),
        ("ta.tenosr", r"did you mean Tensor, tensor\?$"),
        ("nn.LayerNrom", "did you mean LayerNorm"),
        ("F.sofmax", "did you mean .*softmax"),
        ("optim.Adma", "did you mean Adam"),
        ("Tensor.gt_of", r"has no Tensor.gt_of$"),
        *[(f"{x}.xyz", f"tinyattn has no {x}.xyz$") for x in ("ta", "F", "nn", "nn.init", "optim")],
        ("ta.arg", "tinyattn has no ta.arg$"),  # a part of the name of a function of NumPy
        ("nn.Layernorm", "did you mean LayerNorm"),
        ("Tensor.", "tinyattn has no Tensor.$"),
    ],
)
def test_other_names_get_those_that_are_close(name: str, message: str) -> None:
    space, attribute = split(name)
    with pytest.raises(AttributeError, match=message):
        getattr(space, attribute)


@pytest.mark.parametrize("owner", SPACES)
def test_no_name_of_pytorch_gets_a_guess_that_means_something_else(owner: str) -> None:
    """It is there, or says what to write, or is simply missing."""
    torch = pytest.importorskip("torch")
    space = ta.ones(2, 2) if owner == "Tensor" else SPACES[owner]
    guessed, walked = [], 0
    for name in dir(beside(torch)[owner]):
        if name.startswith("_") or hasattr(space, name):
            continue
        walked += 1
        with pytest.raises(AttributeError) as caught:
            getattr(space, name)
        # `init.normal` is PyTorch's old name of `init.normal_`.
        if "did you mean" in str(caught.value) and not str(caught.value).endswith(f" {name}_?"):
            guessed.append(str(caught.value))
    assert not guessed
    assert walked > (5 if owner == "nn.init" else 10)


@pytest.mark.parametrize("space", [ta, ta.ones(2), nn, F, nn.Linear(2, 2)], ids=type)
def test_no_guess_is_a_private_name(space: Any) -> None:
    private = [*dir(space), *vars(space)] if hasattr(space, "__dict__") else dir(space)
    names = {name.strip("_") for name in private if name.startswith("_")}
    names = {name for name in names if name and not hasattr(space, name)}
    assert names
    for name in names:
        with pytest.raises(AttributeError) as caught:
            getattr(space, name)
        assert "did you mean _" not in str(caught.value)


def test_a_module_guesses_no_name_of_pytorchs_modules() -> None:
    """`add_module` is not `named_modules`."""
    torch = pytest.importorskip("torch")
    layer = nn.Linear(2, 2)
    for other in dir(torch.nn.Linear(2, 2)):
        if not other.startswith("_") and not hasattr(layer, other):
            with pytest.raises(AttributeError) as caught:
                getattr(layer, other)
            assert "did you mean" not in str(caught.value)


def test_names_of_modules_say_what_to_write() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(2, 2)

    pair, child = Pair(), nn.Linear(2, 2)
    setattr(pair, "second", child)  # noqa: B010
    for space in (ta.ones(2), ta, nn):
        with pytest.raises(AttributeError, match=r"has no .*add_module$"):
            space.add_module  # noqa: B018
    known = {"module": pair, "name": "first", "child": child, "nn": nn, "data": [1.0], "dict": dict}
    assert set(OF_MODULES) >= {"add_module", "register_parameter", "get_submodule"}
    for name, instead in OF_MODULES.items():
        with pytest.raises(AttributeError, match=re.escape(f"no attribute {name!r}: {instead}")):
            getattr(pair, name)
    assert eval(OF_MODULES["get_submodule"].removeprefix("write "), known) is pair.first
    known["name"] = "first.weight"
    found = eval(OF_MODULES["get_parameter"].removeprefix("write "), known)
    assert found is pair.first.weight
    known["name"] = "third"
    exec(OF_MODULES["add_module"].removeprefix("write "), known)
    assert pair.third is child
    exec(OF_MODULES["register_parameter"].removeprefix("write "), known | {"name": "scale"})
    assert "scale" in dict(pair.named_parameters())


# Modules of the library take the two others, which are for attentions of users.
@pytest.mark.parametrize("name", sorted(ARGUMENTS.keys() - {"cache", "is_causal"}))
def test_arguments_of_pytorchs_modules_say_what_to_write(name: str) -> None:
    x = ta.ones(1, 2, 4)
    layers = [nn.MultiHeadedAttention(2, 4), nn.SelfAttention(2, 4), nn.Linear(4, 4)]
    calls = [lambda layer, **o: layer(x, x, x, **o), lambda layer, **o: layer(x, **o)]
    message = rf"forward\(\) got an unexpected keyword argument '{name}': " + re.escape(
        ARGUMENTS[name]
    )
    for layer, call in zip(layers, (*calls, calls[1]), strict=True):
        with pytest.raises(TypeError, match=f"{message}$"):
            call(layer, **{name: None})
        with pytest.raises(TypeError, match=r"unexpected keyword argument 'other'$"):
            call(layer, other=None)


def test_an_attention_of_ones_own_is_told_which_arguments_it_lacks() -> None:
    class Mean(nn.Module):
        def forward(self, q: ta.Tensor, k: ta.Tensor, v: ta.Tensor, **few: Any) -> ta.Tensor:
            def takes(*, valid_lens: Any = None, mask: Any = None) -> ta.Tensor:
                return v.mean(1, keepdim=True).expand_as(q)

            return takes(**few)

    encoder = nn.Encoder(nn.EncoderLayer(8, Mean(), nn.PositionwiseFeedForward(8, 16)), 1)
    x = ta.ones(1, 3, 8)
    assert encoder(x).shape == x.shape
    cache = nn.Encoder(
        nn.EncoderLayer(8, nn.MultiHeadedAttention(2, 8), nn.PositionwiseFeedForward(8, 16)), 1
    ).new_cache()
    for options, text in (
        ({"is_causal": True}, "take is_causal=, and hide later keys"),
        ({"is_causal": True, "cache": cache}, "take (is_causal|cache)=, and "),
    ):
        with pytest.raises(TypeError, match=rf"unexpected keyword argument '\w+': {text}"):
            encoder(x, **options)


def test_numbers_of_pytorchs_namespace_are_here_or_have_a_hint() -> None:
    torch = pytest.importorskip("torch")
    names = [name for name, value in vars(torch).items() if type(value) is float]
    assert {"pi", "inf", "nan", "e"} <= {*names}
    for name in names:
        value = getattr(ta, name, None)
        if value is None:
            with pytest.raises(AttributeError, match=rf"has no ta\.{name}: write np\.{name}$"):
                getattr(ta, name)
            value = getattr(np, name)
        np.testing.assert_equal(value, getattr(torch, name))


def test_the_error_inside_a_forward_stays_as_it_is() -> None:
    class Outer(nn.Module):
        def forward(self, x: ta.Tensor) -> Any:
            return nn.MultiHeadedAttention(2, 4)(x, x, x, need_weights=True)

    message = r"forward\(\) got an unexpected keyword argument 'need_weights': "
    with pytest.raises(TypeError, match=message + re.escape(ARGUMENTS["need_weights"]) + "$"):
        Outer()(ta.ones(1, 2, 4))
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'x'$"):
        Outer()()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("from tinyattn import long", "tinyattn has no ta.long: write ta.int64"),
        ("import tinyattn.jit", "tinyattn has no ta.jit: nothing has to be traced"),
        ("from tinyattn.nn import MultiheadAttention", "has no nn.MultiheadAttention: write nn.Mu"),
        ("from tinyattn.functional import l1_loss", r"has no F.l1_loss: write \(x - y\)"),
        ("from tinyattn.nn.functional import l1_loss", r"has no F.l1_loss: write \(x - y\)"),
        ("from tinyattn.optim import StepLR", "has no optim.StepLR: write optim.LambdaLR"),
        ("from tinyattn.optim.lr_scheduler import StepLR", "has no optim.lr_scheduler: the sched"),
        ("from tinyattn.torch_names import jit", "has no ta.jit: nothing has to be traced"),
        ("from tinyattn.torch_names.nn import Buffer", "has no nn.Buffer: write module.register_b"),
        ("from tinyattn.torch_names.optim import LBFGS", "has no optim.LBFGS: write scipy"),
        ("from tinyattn.torch_names.nn.utils import vector_to_parameters", "write p.copy_"),
        (
            "from tinyattn.torch_names.nn.utils.rnn import pack_sequence",
            "give the layer the padded",
        ),
        ("from tinyattn.torch_names.optim.lr_scheduler import CyclicLR", "write a LambdaLR"),
        ("from tinyattn.torch_names.utils.data import SubsetRandomSampler", "write DataLoader"),
        ("import tinyattn.torch_names.jit", "has no ta.jit: nothing has to be traced"),
        ("from tinyattn import xyz", "cannot import name 'xyz' from 'tinyattn'"),
        ("from tinyattn.optim import xyz", "cannot import name 'xyz'"),
        ("import tinyattn.xyz", r"No module named 'tinyattn\.xyz'"),
    ],
)
def test_an_import_says_what_to_write(statement: str, message: str) -> None:
    with pytest.raises(ImportError, match=message):
        exec(statement)


@pytest.mark.parametrize(
    ("space", "owner", "name"),
    [
        (ta, "ta", "long"),
        (F, "F", "l1_loss"),
        (nn, "nn", "LSTM"),
        (nn.init, "nn.init", "orthogonal_"),
        (optim, "optim", "StepLR"),
        (ta.masks, "masks", "nothing"),
    ],
)
def test_a_module_has_its_name_in_the_error(space: Any, owner: str, name: str) -> None:
    with pytest.raises(AttributeError, match=rf"^tinyattn has no {owner}\.{name}(:|;|$)"):
        getattr(space, name)


def test_names_that_begin_like_ours() -> None:
    for name, message in {"F.mse": "mse_loss", "F.nll": "nll_loss"}.items():
        space, attribute = split(name)
        with pytest.raises(AttributeError, match=rf"did you mean {message}\?$"):
            getattr(space, attribute)


def test_step_lr_by_lambda_lr_is_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    ours = optim.SGD([ta.ones(1, requires_grad=True)], lr=0.4)
    theirs = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.4)
    known = {"optim": optim, "optimizer": ours, "gamma": 0.5, "step_size": 2}
    mine = eval(LEFT_OUT["optim.StepLR"].removeprefix("write "), known)
    right = torch.optim.lr_scheduler.StepLR(theirs, 2, 0.5)
    for _ in range(6):
        mine.step()
        theirs.step()
        right.step()
        assert ours.param_groups[0]["lr"] == pytest.approx(theirs.param_groups[0]["lr"], rel=1e-12)


def test_index_add_by_one_hot_is_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x, source, index = rng.normal(size=(4, 3)), rng.normal(size=(3, 3)), np.array([2, 0, 2])
    text = LEFT_OUT["Tensor.index_add"].removeprefix("write ").partition(", for")[0]
    known = {"x": ta.tensor(x), "source": ta.tensor(source), "index": ta.tensor(index), "F": F}
    expected = torch.tensor(x).index_add(0, torch.tensor(index), torch.tensor(source))
    np.testing.assert_allclose(eval(text, known).numpy(), expected.numpy(), rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("unfold", {"dimension": -1, "size": 3, "step": 2}),
        ("broadcast_to", {"shape": (2, 3, 7)}),
        ("count_nonzero", {}),
        ("diff", {}),
    ],
)
def test_an_expression_in_place_of_a_method_is_pytorchs(name: str, arguments: dict) -> None:
    torch = pytest.importorskip("torch")
    x, y = np.random.default_rng(0).uniform(0.1, 0.9, size=(2, 3, 7)).astype(np.float64)
    theirs = {key: torch.tensor(y) if key == "y" else value for key, value in arguments.items()}
    expected = getattr(torch.tensor(x), name)(*theirs.values())
    text = hints.instead("Tensor", name, []).removeprefix("write ").partition(", for")[0]
    text = text.partition(", which")[0]
    known = {"ta": ta, **arguments, "x": ta.tensor(x), "y": ta.tensor(y)}
    found = eval(text, known)
    assert found.shape == tuple(expected.shape)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12)


def test_meshgrid_by_expand_is_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    x, y = ta.tensor([1, 2, 3]), ta.tensor([4, 5])
    text = LEFT_OUT["ta.meshgrid"].removeprefix("write ")
    found = [eval(part, {"x": x, "y": y}) for part in text.split(" and ")]
    right = torch.meshgrid(torch.tensor(x.tolist()), torch.tensor(y.tolist()), indexing="ij")
    for mine, other in zip(found, right, strict=True):
        assert mine.tolist() == other.tolist()
        assert mine.flatten().tolist() == other.flatten().tolist()


WRITES = {
    "scatter": ("y", lambda x, i, v: x.scatter(1, i, v)),
    "scatter_": ("x", lambda x, i, v: x.scatter(1, i, v)),
    "index_put_": ("x", lambda x, i, v: x.index_put((i[:, 0],), v[:, :1])),
    "index_copy": ("y", lambda x, i, v: x.index_copy(0, i[:, 0], v)),
    "index_copy_": ("x", lambda x, i, v: x.index_copy(0, i[:, 0], v)),
    "index_fill_": ("x", lambda x, i, v: x.index_fill(0, i[:, 0], v[0, 0])),
    "copy_": ("x", lambda x, i, v: x * 0 + v),
    "fill_": ("x", lambda x, i, v: x * 0 + v[0, 0]),
}


@pytest.mark.parametrize("name", WRITES)
def test_what_is_written_instead_has_pytorchs_values_and_gradients(name: str) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(3, 3)) for _ in range(2)]
    index = np.array([[2, 0, 1], [1, 2, 0], [0, 1, 2]])
    (leaf, value), theirs = (
        [space.tensor(array, requires_grad=True) for array in arrays] for space in (ta, torch)
    )
    result, function = WRITES[name]
    known = {"x": leaf * 1, "y": value, "ta": ta, "index": ta.tensor(index), "values": value}
    if name in ("index_put_", "index_copy", "index_copy_", "index_fill_"):
        known |= {"index": ta.tensor(index[:, 0]), "indices": (ta.tensor(index[:, 0]),)}
    known |= {"values": value[:, :1]} if name == "index_put_" else {"value": value[0, 0]}
    text = LEFT_OUT[f"Tensor.{name}"].removeprefix("write ")
    for statement in re.split(r", for | to|, or |; |, with|, under ", text)[0].split(", then "):
        exec(statement, known)
    upstream = rng.normal(size=(3, 3))
    right = function(theirs[0] * 1, torch.tensor(index), theirs[1])
    np.testing.assert_array_equal(known[result].numpy(), right.detach().numpy())
    known[result].backward(ta.tensor(upstream))
    right.backward(torch.tensor(upstream))
    for mine, other in zip((leaf, value), theirs, strict=True):
        np.testing.assert_allclose(mine.grad.numpy(), other.grad.numpy(), rtol=1e-12)


def test_names_that_python_asks_for_are_simply_missing() -> None:
    for space in SPACES.values():
        with pytest.raises(AttributeError, match=r"__xyz__$"):
            getattr(space, "__xyz__")  # noqa: B009


@pytest.mark.parametrize("dtype", ["int64", "float64"])
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expressions_compute_what_pytorch_computes(name: str, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    values = {
        "x": np.array([[2.5, 0, -3.5], [0, 1, 2.5], [2, 0, 4]]).astype(dtype),
        "y": np.array([[1, 2, 2], [3, 3.5, -2.5], [2, 3, 1]]).astype(dtype),
    }
    if name == "mv":
        values["y"] = values["y"][0]
    if name in ("ger", "vdot"):
        values = {key: value[0] for key, value in values.items()}
    if name == "bincount":
        values["x"] = np.array([2, 0, 2])
    used = [letter for letter in "xy" if re.search(rf"\b{letter}\b", EXPRESSIONS[name])]
    theirs = getattr(torch, name)(*(torch.as_tensor(values[letter]) for letter in used))
    ours = {"x": ta.tensor(values["x"]), "y": ta.tensor(values["y"]), "np": np, "ta": ta}
    found = np.asarray(eval(EXPRESSIONS[name], ours))
    np.testing.assert_allclose(found, theirs.numpy(), rtol=1e-6 if dtype == "int64" else 1e-12)


@pytest.mark.parametrize("folder", ["notebooks", "notebooks/zh_CN"])
def test_the_page_has_the_tables(folder: str) -> None:
    """With two columns: `x | y` in a cell would end it."""
    page = Path(__file__).parents[2] / "docs" / folder / "from_pytorch.ipynb"
    outputs = [
        o for c in json.loads(page.read_text("utf-8"))["cells"] for o in c.get("outputs", [])
    ]
    found = [o["data"]["text/markdown"][2:] for o in outputs if "data" in o]
    rows = [[re.split(r"(?<!\\)\|", row.strip()) for row in table] for table in found]
    assert {len(row) for table in rows for row in table} == {4}
    cells = [
        {row[1].strip(" `"): row[2].strip().replace(r"\|", "|") for row in table} for table in rows
    ]
    assert cells[1] == DIFFERS
    there = {name: text for name, text in TOLD.items() if name in IN_TORCH_NAMES}
    assert cells[2] == {name: text for name, text in TOLD.items() if name not in there}
    assert cells[3] == there
    names = {name.rpartition(".")[2] for name in MISSING.keys() & IN_TORCH_NAMES}
    assert set(re.findall(r"`(\w+)`", " ".join(cells[0].values()))) == names


def test_what_is_written_instead_of_layers_is_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    numbers = np.random.default_rng(0).normal(size=(2, 3, 4))
    known = {"x": ta.tensor(numbers[0]), "y": ta.tensor(numbers[1]), "w": ta.ones(3, 3), "ta": ta}
    theirs, other = torch.tensor(numbers[0]), torch.tensor(numbers[1])
    found = eval(LEFT_OUT["F.pairwise_distance"].removeprefix("write "), known)
    expected = torch.nn.functional.pairwise_distance(theirs, other)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12)
    text = LEFT_OUT["F.interpolate"].removeprefix("write ").partition(", then")[0]
    expected = torch.nn.functional.interpolate(theirs[None], scale_factor=2)[0]
    assert eval(text, known).tolist() == expected.tolist()
    known |= {"x": ta.tensor(numbers), "y": ta.tensor(numbers[::-1].copy()), "F": F}
    found = eval(hints.added()["F.cosine_similarity"].removeprefix("write "), known)
    theirs, other = torch.tensor(numbers), torch.tensor(numbers[::-1].copy())
    expected = torch.nn.functional.cosine_similarity(theirs, other, dim=-1)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12)
    exec(LEFT_OUT["nn.init.eye_"].removeprefix("write ").partition(", under")[0], known)
    assert known["w"].tolist() == torch.nn.init.eye_(torch.empty(3, 3)).tolist()


@pytest.mark.parametrize("batch", [(), (2,)])
def test_what_is_written_instead_of_cdist_has_its_gradient_at_distance_0(
    batch: tuple[int, ...],
) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    points, cotangent = rng.normal(size=(*batch, 3, 2)), rng.normal(size=(*batch, 3, 3))
    x, theirs = ta.tensor(points, requires_grad=True), torch.tensor(points, requires_grad=True)
    found = eval(LEFT_OUT["ta.cdist"].removeprefix("write "), {"x": x, "y": x})
    found.backward(ta.tensor(cotangent))
    expected = torch.cdist(theirs, theirs)
    expected.backward(torch.tensor(cotangent))
    np.testing.assert_allclose(found.numpy(), expected.detach().numpy(), rtol=1e-12)
    np.testing.assert_allclose(x.grad.numpy(), theirs.grad.numpy(), rtol=1e-12)
