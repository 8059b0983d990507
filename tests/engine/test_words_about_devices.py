"""What is said of devices: that one is missing, where a tensor is, and that two are on two."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import functional as F
from tinyattn.base import backend
from tinyattn.errors import DeviceError


def test_a_device_without_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tinyattn.base.backend._cuda_module", None)
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(DeviceError, match=r'^device "cuda" needs CuPy, which is not installed'):
        ta.zeros(2, device="cuda")
    assert ta.cuda_is_available() is False


@pytest.mark.parametrize("has_driver", [True, False])
def test_the_library_of_a_device_is_imported_when_it_is_needed(
    monkeypatch: pytest.MonkeyPatch, has_driver: bool
) -> None:
    library: Any = ModuleType("cupy")
    library.ndarray = type("ndarray", (), {})
    library.cuda = SimpleNamespace(is_available=lambda: has_driver)
    monkeypatch.setattr(backend, "_cuda_module", None)
    monkeypatch.setattr(backend, "array_types", dict(backend.array_types))
    monkeypatch.setitem(sys.modules, "cupy", library)
    assert ta.cuda_is_available() is has_driver
    if not has_driver:
        with pytest.raises(DeviceError, match="CuPy is installed but finds no usable NVIDIA GPU"):
            backend.module_of("cuda")
        return
    assert backend.module_of("cuda") is backend.module_of("cuda:0") is library
    assert backend.device_of(library.ndarray()) == "cuda"
    assert backend.namespace(library.ndarray()) is library


def test_without_a_name_the_device_is_the_processor() -> None:
    for device in (None, "cpu", "cpu:0"):
        assert backend.module_of(device) is np
        assert ta.zeros(2, device=device).device == "cpu"


def test_a_tensor_on_a_device_says_so(cuda: Any) -> None:
    assert ta.cuda_is_available() is True
    x = ta.tensor(np.ones(2, np.float32), device="cuda")
    assert x.device == "cuda"
    assert repr(x) == "tensor([1., 1.], device='cuda')"
    assert ta.from_dlpack(x._data, copy=False).device == "cuda"


def test_waiting_for_a_device_is_announced(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    x = ta.ones(2, device="cuda")
    monkeypatch.setattr("tinyattn.base.backend.when_waiting", lambda: calls.append(1))
    assert x.tolist() == [1.0, 1.0]
    assert calls == [1]


def test_tensors_on_two_devices_are_refused_by_name(cuda: Any) -> None:
    here, there = ta.ones(2, 2), ta.ones(2, 2, device="cuda")
    with pytest.raises(DeviceError, match=r"add got arrays on different devices .*: move one with"):
        here + there
    with pytest.raises(DeviceError, match=r"^x\[i\] = y: x is on cpu, y on cuda: move one with"):
        here[0] = there[0]
    weight = ta.ones(2, 2, requires_grad=True)
    with pytest.raises(DeviceError, match=r"^backward: gradient is on cuda, the tensor on cpu"):
        (weight * 2.0).backward(there)
    with pytest.raises(DeviceError, match=r"is on cpu, .* on cuda: move one"):
        F.linear(here, there)


def test_a_gradient_on_a_device_is_summed_where_an_argument_was_broadcast(cuda: Any) -> None:
    x = ta.tensor([[1.0, 2.0], [3.0, 4.0]], device="cuda")
    bias = ta.tensor([0.5, -2.0], device="cuda", requires_grad=True)
    (x * bias).backward(ta.tensor([[1.0, -1.0], [2.0, 0.5]], device="cuda"))
    assert bias.grad.tolist() == [7.0, 0.0]


@pytest.mark.parametrize("error", ["ImportError('libcudart')", "ModuleNotFoundError('fastrlock')"])
def test_a_library_that_cannot_be_loaded_is_as_if_it_were_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    """Such as a CuPy whose CUDA is missing."""
    (tmp_path / "cupy.py").write_text(f"raise {error}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(backend, "_cuda_module", None)
    assert ta.cuda_is_available() is False
    with pytest.raises(DeviceError, match=r'^device "cuda" needs CuPy'):
        ta.ones(2).cuda()
    layer = ta.nn.Linear(2, 2)
    for move in (layer.cuda, lambda: layer.to("cuda"), lambda: layer.to(device="cuda")):
        with pytest.raises(DeviceError, match=r'^device "cuda" needs CuPy'):
            move()
    assert layer.weight.device == "cpu"
