"""einops' functions and layers on Tensors. einops' own tests: see einops_suite.py and .ci/run."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
import tinyattn.torch_names
from tinyattn import nn

einops = pytest.importorskip("einops", reason="einops is not installed")


CALLS = {
    "heads": lambda e, x: e.rearrange(x, "b n (h d) -> b h n d", h=4),
    "patches": lambda e, x: e.rearrange(x, "b (h p) (w q) -> b (h w) (p q)", p=2, q=4),
    "a list": lambda e, x: e.rearrange([x, x * 2], "k b n d -> b n (k d)"),
    "repeat": lambda e, x: e.repeat(x, "b n d -> (r b) n c d", r=2, c=3),
    "einsum": lambda e, x: e.einsum(x, x, "b n d, b m d -> b n m"),
    "prod of three": lambda e, x: e.reduce(x, "b (n k) d -> n", "prod", k=2),
    "pack": lambda e, x: e.pack([x, x[:, :1] * 3], "b * d")[0],
    "unpack": lambda e, x: e.unpack(x, [[2], [4]], "b * d")[1] * 2,
} | {
    name: lambda e, x, name=name: e.reduce(x, "b (n k) d -> b d n", name, k=2)
    for name in ("sum", "mean", "max", "min", "prod")
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_values_and_gradients_are_pytorchs(torch: Any, rng: Any, call: Any) -> None:
    values = rng.normal(size=(2, 6, 8))
    ours = ta.tensor(values, requires_grad=True)
    theirs = torch.tensor(values, requires_grad=True)
    mine, right = call(einops, ours), call(einops, theirs)
    np.testing.assert_allclose(mine.detach().numpy(), right.detach().numpy(), rtol=1e-10)
    cotangent = rng.normal(size=mine.shape)
    mine.backward(ta.tensor(cotangent))
    right.backward(torch.tensor(cotangent))
    assert ours.grad is not None
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-10, atol=1e-12)


def test_booleans_and_integers_keep_their_dtype() -> None:
    mask = ta.tensor([[True, False], [True, True]])
    assert einops.repeat(mask, "b n -> b h n", h=3).dtype == ta.bool
    assert einops.reduce(mask, "b n -> b", "all").tolist() == [False, True]
    assert einops.rearrange(ta.arange(6), "(a b) -> b a", a=2).dtype == ta.int64
    with pytest.raises(einops.EinopsError):
        einops.rearrange(mask, "b n d -> n b d")


def test_layers_are_modules(rng: Any) -> None:
    from tinyattn.torch_names.einops_backend import Rearrange, Reduce

    x = ta.tensor(rng.normal(size=(2, 6, 8)))
    split = Rearrange("b n (h d) -> b h n d", h=2)
    model = nn.Sequential(split, Reduce("b h n d -> b d", "mean"), nn.Linear(4, 1).to(ta.float64))
    assert list(model.state_dict()) == ["2.weight", "2.bias"]
    np.testing.assert_array_equal(
        split(x).numpy(), einops.rearrange(x.numpy(), "b n (h d) -> b h n d", h=2)
    )
    np.testing.assert_array_equal(copy.deepcopy(model)(x).numpy(), model(x).numpy())
    assert "Rearrange('b n (h d) -> b h n d', h=2)" in repr(model)
    with pytest.raises(einops.EinopsError):
        Rearrange("b n (h d -> b h n d")


@pytest.mark.parametrize(
    ("prepare", "expected"),
    [
        ("sys.modules['einops'] = None", "none"),
        ("import einops._backends as b; del b.AbstractBackend", "warned"),
        ("import einops", "there"),
    ],
)
def test_einops_may_be_missing_or_without_its_class(prepare: str, expected: str) -> None:
    program = f"""
import sys, warnings
{prepare}
with warnings.catch_warnings(record=True) as caught:
    import tinyattn.torch_names as torch
texts = [str(w.message) for w in caught]
there = hasattr(torch, "einops_backend")
print("warned" if texts else "there" if there else "none", *texts)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == expected
    assert (expected == "warned") == ("needs einops 0.6 to 0.8" in done.stdout)
