"""Programs written for PyTorch run on tinyattn with other import lines, and compute the same.

`programs` has a text for each. It runs twice: as it stands, with PyTorch, and with the import lines
that `scan` prints. A program has `make_model(width)`, `train(model, steps, batch)`, which yields
the loss of each step and leaves its gradients, and most have `generate(model)`.
"""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import relative_error

import tinyattn as ta
from tinyattn.torch_names.scan import rewritten

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))
STEPS = 20
TOLERANCE = {"float32": 1e-5, "float64": 1e-10}
programs = pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)


@pytest.fixture
def one_thread(torch: Any) -> Iterator[None]:
    """So small a program takes longer on more, the more so beside other tests."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def both(path: Path, torch: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """The program with PyTorch, and with tinyattn."""
    text = path.read_text("utf-8")
    if "einops" in text:
        pytest.importorskip("einops", reason="einops is not installed: pip install einops")
    modules = types.ModuleType(f"torch {path.stem}"), types.ModuleType(f"tinyattn {path.stem}")
    for module, code in zip(modules, (text, rewritten(text)), strict=True):
        monkeypatch.setitem(sys.modules, module.__name__, module)  # there dataclass looks
        exec(compile(code, path, "exec"), vars(module))
    return modules


def state_of(model: Any) -> dict[str, np.ndarray]:
    return {name: x.detach().numpy().copy() for name, x in model.state_dict().items()}


def take_weights(ours: Any, theirs: Any) -> None:
    """Those of PyTorch's model, and its buffers: cosines differ in their last bits."""
    ours.load_state_dict({name: ta.tensor(x) for name, x in state_of(theirs).items()})
    buffers = dict(theirs.named_buffers())
    assert [name for name, _ in ours.named_buffers()] == list(buffers)
    for name, x in ours.named_buffers():
        if x.dtype.kind == "f":
            x[...] = ta.tensor(buffers[name].numpy())


def compare_gradients(ours: Any, theirs: Any, tolerance: float) -> None:
    """As parts of the largest gradient, since the bias of keys has none but rounding errors."""
    found, expected = (
        {name: None if x.grad is None else x.grad.numpy() for name, x in model.named_parameters()}
        for model in (ours, theirs)
    )
    assert list(found) == list(expected)
    largest = max(np.abs(x).max() for x in expected.values() if x is not None)
    for name, x in expected.items():
        if x is None:
            assert found[name] is None, name
            continue
        assert (found[name].shape, found[name].dtype) == (x.shape, x.dtype), name
        difference = np.abs(found[name] - x).max()
        assert difference <= tolerance * largest, f"{name}: {difference} of {largest}"


@programs
def test_only_import_lines_are_changed(path: Path) -> None:
    text = path.read_text("utf-8")
    lines = zip(text.splitlines(), rewritten(text).splitlines(), strict=True)
    changed = [(old.split(), new.split()) for old, new in lines if old != new]
    assert changed
    assert all(old[0] == new[0] in ("import", "from") for old, new in changed)
    assert not re.findall(r"(?:import|from) (?:torch|einops.layers)\b", rewritten(text))


@programs
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")  # PyTorch, on its own default
def test_a_program_computes_the_same(
    both: tuple[Any, Any], dtype: str, torch: Any, one_thread: None
) -> None:
    torch_program, our_program = both

    def models() -> tuple[Any, Any]:
        made = our_program.make_model(), torch_program.make_model()
        return tuple(model.double() if dtype == "float64" else model for model in made)

    torch.manual_seed(1)
    tolerance = TOLERANCE[dtype]
    ours, theirs = models()
    take_weights(ours, theirs)
    steps = zip(our_program.train(ours, STEPS), torch_program.train(theirs, STEPS), strict=True)
    count = 0
    for our_loss, their_loss in steps:
        assert relative_error(our_loss.detach().numpy(), their_loss.detach().numpy()) <= tolerance
        compare_gradients(ours, theirs, tolerance)
        if dtype == "float32":  # whose rounding errors Adam makes as large as steps
            take_weights(ours, theirs)
        count += 1
    assert count == STEPS
    our_second, their_second = models()
    take_weights(our_second, theirs)
    their_second.load_state_dict({n: torch.from_numpy(x) for n, x in state_of(ours).items()})
    if hasattr(torch_program, "generate"):
        expected = torch_program.generate(theirs)
        assert torch_program.generate(their_second) == expected
        assert our_program.generate(ours) == expected
        assert our_program.generate(our_second) == expected
