"""The names that `tinyattn.torch_names` adds: the table has just these, and errors say so."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import make_hints
import numpy as np
import pytest
import pytorch_tables as tables

import tinyattn as ta
from tinyattn import hints, torch_names
from tinyattn.base.names import OF_TORCH_NAMES
from tinyattn.errors import ShapeError
from tinyattn.torch_names import methods, nn, scan
from tinyattn.torch_names.nn import functional as F

LEFT_OUT, DIFFERS = tables.missing(), tables.differences()
IN_TORCH_NAMES = LEFT_OUT.keys() & hints.added().keys()
methods.take_methods()  # which the tables gave

OWN = tuple(f"{owner}." for owner in OF_TORCH_NAMES)  # parts that only torch_names has
MODULES = {"ta": "", "nn": "nn", "nn.init": "nn.init", "F": "nn.functional", "optim": "optim"}


def module_of(package: str, owner: str) -> Any:
    return importlib.import_module(f"{package}.{MODULES[owner]}".rstrip("."))


def lacks(space: Any, name: str) -> bool:
    return not hasattr(space, name)


@pytest.fixture
def added() -> set[str]:
    """What the folder adds, by owner."""
    methods.take_methods()
    found = {
        f"{owner}.{name}"
        for owner, path in MODULES.items()
        if owner == "ta" or find_spec(f"tinyattn.torch_names.{path}")
        for name in getattr(module_of("tinyattn.torch_names", owner), "__all__", ())
        if lacks(module_of("tinyattn", owner), name)
    }
    for owner, kind in (("Tensor", ta.Tensor), ("Module", ta.nn.Module)):
        found |= {f"{owner}.{name}" for name in methods.GIVEN[kind] if lacks(kind, name)}
    return found


def test_the_table_has_what_the_folder_adds(added: set[str]) -> None:
    assert added == IN_TORCH_NAMES <= hints.added().keys()


def test_the_file_of_hints_says_what_the_code_says() -> None:
    assert json.loads(make_hints.text()) == hints.added(), "python tests/make_hints.py writes it"


def test_a_hint_names_what_tinyattn_has() -> None:
    """`write F.glu` would send to a function that only torch_names has."""
    spaces: dict[str, Any] = {"ta": ta, "F": ta.functional, "nn": ta.nn, "optim": ta.optim}
    spaces |= {"np": np, "x": ta.Tensor}
    for name, text in hints.added().items():
        for owner, attribute in re.findall(r"write (\w+)\.(\w+)", text):
            assert hasattr(spaces[owner], attribute), f"{name}: {text}"


def there(torch: Any, name: str) -> Any:
    """PyTorch's of this name."""
    owner, _, path = name.rpartition(".")
    spaces = {
        "ta": torch, "Tensor": torch.Tensor, "Module": torch.nn.Module, "nn": torch.nn,
        "nn.init": torch.nn.init, "F": torch.nn.functional, "optim": torch.optim,
    }  # fmt: skip
    return attrgetter(path)(spaces[owner])


@pytest.mark.parametrize("name", sorted(IN_TORCH_NAMES))
def test_pytorch_has_the_name(torch: Any, name: str) -> None:
    there(torch, name)


@pytest.mark.parametrize("name", sorted(IN_TORCH_NAMES))
def test_the_error_of_tinyattn_says_where_the_name_is(name: str) -> None:
    methods.take_methods()
    owner, _, attribute = name.rpartition(".")
    space: Any = {"Tensor": ta.ones(2), "Module": ta.nn.Linear(1, 1)}.get(owner)
    with pytest.raises(AttributeError) as caught:
        getattr(module_of("tinyattn", owner) if space is None else space, attribute)
    text = str(caught.value)
    assert text.endswith("; tinyattn.torch_names has it")
    assert "did you mean" not in text
    if LEFT_OUT[name]:
        assert f": {LEFT_OUT[name]}; " in text


@pytest.mark.parametrize("name", ["isin", "finfo", "int", "cuda"])
def test_an_import_says_where_the_name_is(name: str) -> None:
    with pytest.raises(ImportError, match=r"; tinyattn\.torch_names has it$"):
        exec(f"from tinyattn import {name}")


@pytest.mark.parametrize(
    "name", ["nn.ParameterDict", "optim.Adagrad", *(n for n in LEFT_OUT if n.startswith(OWN))]
)
def test_an_import_from_torch_names_says_what_to_write(name: str) -> None:
    owner, _, last = name.rpartition(".")
    with pytest.raises(ImportError, match=re.escape(f"no {name}: {LEFT_OUT[name]}")):
        exec(f"from tinyattn.torch_names.{owner} import {last}")


def test_what_is_written_instead_of_a_name_of_torch_names(torch: Any) -> None:
    results = []
    for library in (torch_names, torch):
        parameters = [library.ones(2, 3), library.tensor([[1.0], [-2.0]])]
        if library is torch:
            made = torch.nn.utils.parameters_to_vector(parameters)
        else:
            text = LEFT_OUT["nn.utils.parameters_to_vector"].removeprefix("write ")
            made = eval(text, {"parameters": parameters, "torch": library})
        results.append(made.tolist())
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("jit", "nothing has to be traced"),
        ("bfloat16", "NumPy has no bfloat16"), ("autocast", "dtypes are explicit"),
        ("amp", "dtypes are explicit"), ("complex64", "no complex numbers"),
        ("polar", "no complex numbers"), ("view_as_complex", "no complex numbers"),
    ],
)  # fmt: skip
def test_what_is_not_here_says_so_in_a_sentence(name: str, message: str) -> None:
    with pytest.raises(AttributeError, match=message):
        getattr(torch_names, name)


def test_no_tensor_is_sparse() -> None:
    """Optimizers of others ask each gradient."""
    x = torch_names.ones(2, requires_grad=True)
    x.sum().backward()
    for tensor in x, x.grad:
        for name in ("is_sparse", "is_meta", "is_quantized", "is_nested"):
            assert getattr(tensor, name) is False
    with pytest.raises(AttributeError):
        x.is_sparse = True


@pytest.mark.parametrize(
    "call",
    [
        lambda n: F.one_hot(ta.tensor([1, 2]), n),
        lambda n: ta.arange(5.0).topk(n).values,
        lambda n: nn.Linear(n, n).weight,
        lambda n: nn.Embedding(n, 2).weight,
        lambda n: ta.linspace(0, 1, n),
        lambda n: ta.randperm(n),
        lambda n: ta.ones(6).multinomial(n),
        lambda n: F.max_pool1d(ta.arange(9.0).reshape(1, 1, 9), n),
    ],
)
def test_an_integer_tensor_may_be_a_size(call: Any) -> None:
    found = call(ta.tensor(3))
    assert found.shape == call(3).shape
    for wrong in (ta.tensor(3.0), ta.tensor(True), ta.tensor([3, 3]), ta.tensor(-2)):
        with pytest.raises((ShapeError, TypeError)):
            call(wrong)


def test_methods_are_taken_away() -> None:
    assert ta.ones(2).add_(1).tolist() == [2, 2]
    assert type(ta.ones(2).data) is ta.Tensor
    methods.take_methods()
    methods.take_methods()
    assert lacks(ta.Tensor, "add_")
    assert lacks(ta.nn.Module, "add_module")
    assert ta.nn.Linear(1, 1).to("cpu").training
    assert type(ta.ones(2).device) is str
    assert isinstance(ta.ones(2).data, np.ndarray)
    with pytest.raises(TypeError, match="non_blocking"):
        ta.ones(2).to("cpu", non_blocking=True)  # type: ignore[call-arg]
    methods.give_methods()
    assert ta.ones(2).add_(1).tolist() == [2, 2]


def test_an_import_gives_the_methods() -> None:
    program = "import tinyattn.torch_names as t; print(t.ones(2).add_(1).device.type)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout == "cpu\n", run.stderr


def test_the_version_is_that_of_a_pytorch() -> None:
    """Programs take a branch by it: `padding = 1 if torch.__version__ >= "1.5.0" else 2`."""
    assert torch_names.__version__ >= "1.5.0"
    assert int(torch_names.__version__.split(".")[0]) == 2
    assert torch_names.__version__ != ta.__version__


def test_dir_lists_what_there_is() -> None:
    """An editor completes these; torch has the names of tinyattn and its own."""
    for space in (torch_names, torch_names.nn, torch_names.nn.functional, torch_names.optim):
        listed = dir(space)
        assert listed == sorted(set(listed))
        assert [name for name in listed if not hasattr(space, name)] == []
        assert set(getattr(space, "__all__", ())) <= set(listed)
    assert {"isin", "zeros", "finfo", "nn"} <= set(dir(torch_names))


def test_no_function_is_called_lambda() -> None:
    """Its name is in the error for a wrong argument and in a traceback."""
    methods.give_methods()
    for space in (torch_names, torch_names.nn.functional, ta.Tensor, ta.nn.Module):
        found = {name: getattr(space, name, None) for name in dir(space)}
        codes = {name: getattr(x, "__code__", None) for name, x in found.items()}
        names = {n: (found[n].__name__, code.co_name) for n, code in codes.items() if code}
        assert len(names) > 10
        assert {n: pair for n, pair in names.items() if "<" in "".join(pair)} == {}
    with pytest.raises(TypeError, match=r"^isnan\(\)|isnan\(\) missing|isnan\(\) misses"):
        torch_names.isnan()


# Second names of a function, which has the first one; and Python's names of operators.
SECOND_NAMES = {
    "clip": "clamp", "concat": "cat", "concatenate": "cat", "divide": "div", "true_divide": "div",
    "empty": "zeros", "empty_like": "zeros_like", "eq": "__eq__", "ne": "__ne__", "greater": "gt",
    "inference_mode": "no_grad", "swapaxes": "transpose", "nelement": "numel",
    "tensor_class": "Tensor", "_LRScheduler": "LRScheduler",
}  # fmt: skip


def test_functions_and_classes_have_their_names() -> None:
    """A repr shows that of a module, an error that of a function, and help() both."""
    methods.give_methods()
    spaces = [torch_names, nn, F, nn.init, torch_names.optim, torch_names.optim.lr_scheduler]
    spaces += [torch_names.utils.data, nn.utils, ta.Tensor, ta.nn.Module]
    walked = 0
    for space in spaces:
        for name in dir(space):
            found = inspect.getattr_static(space, name, None) or getattr(space, name)
            is_own = isinstance(found, type) and found.__module__.startswith("tinyattn")
            if name.startswith("__") or not (inspect.isfunction(found) or is_own):
                continue
            if not isinstance(space, type) and name.startswith("_"):
                continue
            walked += 1
            assert found.__name__ in (name, SECOND_NAMES.get(name)), (space, name)
    assert walked > 500


def says_differs(text: str | None) -> bool:
    return "Differs from PyTorch" in " ".join((text or "").split())


def documented() -> Iterator[str]:
    """Each docstring of the folder: of modules, classes, functions, methods."""
    for info in pkgutil.walk_packages(torch_names.__path__, "tinyattn.torch_names."):
        module = importlib.import_module(info.name)
        yield module.__doc__ or ""
        for part in vars(module).values():
            if getattr(part, "__module__", None) == info.name:
                members = vars(part).values() if isinstance(part, type) else ()
                yield from (getattr(x, "__doc__", None) or "" for x in (part, *members))


def test_what_differs_is_in_the_table() -> None:
    found = [scan.difference(SimpleNamespace(__doc__=t)) for t in documented() if says_differs(t)]
    assert [text for text in found if text.removesuffix(".") not in DIFFERS.values()] == []
    assert {"ta.device", "ta.LongTensor", "Tensor.unfold"} <= DIFFERS.keys()


def test_hints_do_not_depend_on_what_was_imported() -> None:
    """Tensor stays as it is when the text of an error is read, and says where the name is."""
    program = """
import sys, tinyattn
for owner, name in (tinyattn, "isin"), (tinyattn.ones(2), "add_"), (tinyattn.nn, "GRU"):
    assert "tinyattn.hints" in sys.modules or owner is tinyattn
    try:
        getattr(owner, name)
    except AttributeError as error:
        assert str(error).endswith("; tinyattn.torch_names has it")
assert "tinyattn.torch_names" not in sys.modules
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(
    "call",
    [
        "torch.softmax(input=x, dim=0)", "torch.matmul(input=x, other=x)", "torch.exp(input=x)",
        "torch.zeros_like(input=x)", "torch.scatter(input=x, dim=0, index=i, value=1.0)",
        "torch.maximum(input=x, other=-x)", "torch.minimum(x, other=-x)",
        "torch.gather(input=x, dim=1, index=i)", "torch.mm(input=x, mat2=x)",
        "F.cross_entropy(input=x, target=i[0])", "F.embedding(input=i, weight=x)",
        "F.relu(input=x)", "F.nll_loss(input=x, target=i[0])", "F.linear(input=x, weight=x)",
    ],
)  # fmt: skip
def test_the_first_argument_is_called_input(torch: Any, call: str) -> None:
    """As in PyTorch, whatever tinyattn calls it."""
    texts = []
    for space in (torch_names, torch):
        known = {"torch": space, "F": space.nn.functional, "i": space.tensor([[1, 0], [1, 1]])}
        texts.append(eval(call, known | {"x": space.tensor([[1.0, 2.0], [3.0, 5.0]])}).tolist())
    np.testing.assert_allclose(texts[0], texts[1], rtol=1e-6)
