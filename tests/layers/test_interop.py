"""Modules from PyTorch and for PyTorch: outputs, gradients, options, and what is refused."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from common import assert_same, rng_of, run_python, signed

import tinyattn as ta
from tinyattn import interop, nn
from tinyattn.errors import CheckpointError, DtypeError, ShapeError

WIDTH, HEADS, INNER = 6, 3, 10
KEEP = np.arange(5) < np.array([5, 2, 3])[:, None]  # (B, K)
# The largest differences, relative to the largest number of an output and of all gradients.
TOLERANCE = {"float32": 1e-6, "float64": 2e-15}


def fill(module, rng):
    """Signed numbers for all parameters of a module of either side."""
    for parameter in module.parameters():
        values = signed(rng, *parameter.shape) / math.sqrt(parameter.shape[-1])
        values = values if parameter.ndim > 1 else signed(rng, *parameter.shape)
        like = parameter.detach().numpy().dtype
        if isinstance(parameter, ta.Tensor):
            parameter.data = values.astype(like)
        else:
            parameter.data.copy_(parameter.new_tensor(values))
    return module


def gradients_by_torch_names(ours):
    own = dict(ours.named_parameters())
    return {
        name: np.concatenate([own[part].grad.numpy() for part in parts])
        for name, parts in interop.torch_names(ours).items()
    }


def compare(torch, theirs, ours, inputs, tolerance, ours_with=None, theirs_with=None):
    """Outputs, and the gradients of all inputs and parameters, for a random cotangent."""
    rng = rng_of(5)
    x = [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in inputs]
    y = [ta.tensor(a, requires_grad=a.dtype.kind == "f") for a in inputs]
    expected, found = theirs(*x, **(theirs_with or {})), ours(*y, **(ours_with or {}))
    expected = expected[0] if isinstance(expected, tuple) else expected
    cotangent = signed(rng, *found.shape).astype(found.dtype)
    expected.backward(torch.tensor(cotangent))
    found.backward(ta.tensor(cotangent))
    wanted = {name: p.grad.numpy() for name, p in theirs.named_parameters()}
    wanted |= {f"input {i}": a.grad.numpy() for i, a in enumerate(x) if a.requires_grad}
    given = gradients_by_torch_names(ours)
    given |= {f"input {i}": a.grad.numpy() for i, a in enumerate(y) if a.requires_grad}
    assert given.keys() == wanted.keys()
    assert {name: a.dtype for name, a in given.items()} == {n: a.dtype for n, a in wanted.items()}
    out = expected.detach().numpy()
    error = np.abs(found.numpy() - out).max() / np.abs(out).max()
    largest = max(np.abs(a).max() for a in wanted.values())
    errors = {name: np.abs(given[name] - a).max() / largest for name, a in wanted.items()}
    ERR.append((str(found.dtype), error, max(errors.values())))
    assert max(error, *errors.values()) <= tolerance, (error, errors)


ERR = []

ENCODERS = list(
    itertools.product(
        ("float32", "float64"), ("pre", "post"), ("relu", "gelu"), (True, False), (True, False)
    )
)


def torch_encoder(torch, dtype, norm, activation, bias, last, **options):
    layer = torch.nn.TransformerEncoderLayer(
        WIDTH, HEADS, INNER, 0.0, activation, 1e-3, True, norm == "pre", bias, **options
    )
    final = torch.nn.LayerNorm(WIDTH, 1e-4, bias=bias) if last else None
    stack = torch.nn.TransformerEncoder(layer, 2, final, enable_nested_tensor=False)
    return fill(stack.to(getattr(torch, dtype)), rng_of(3))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("case", ENCODERS, ids=lambda case: ".".join(map(str, case)))
def test_encoder(torch, case, masked, there):
    theirs = torch_encoder(torch, *case)
    ours = interop.from_torch(theirs)
    if there:
        theirs = interop.to_torch(ours)
    x = signed(rng_of(4), 3, 5, WIDTH).astype(case[0])
    a = {"mask": KEEP} if masked else {}
    b = {"src_key_padding_mask": torch.tensor(~KEEP)} if masked else {}
    compare(torch, theirs, ours, [x], TOLERANCE[case[0]], a, b)


def test_z():
    for d in ("float32", "float64"):
        print(d, [max(e[i] for e in ERR if e[0] == d) for i in (1, 2)])
