"""Every argument that is a list: any iterable gives the same result, or an error that is clear."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np
import pytest
from common import leaf

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import masks, nn, optim, testing
from tinyattn.training.batches import pad_sequence

M = ta.tensor(np.arange(24.0).reshape(2, 3, 4))
A, B = leaf([1.0, 2.0]), leaf([3.0, 5.0])
LAYERS = [nn.Linear(2, 2), nn.Linear(2, 2)]


def steps_of(kind: Any, parameters: Any, **options: Any) -> Any:
    return [[id(p) for p in group["params"]] for group in kind(parameters, **options).param_groups]


# Each with a list that it takes.
CALLS: dict[str, tuple[Callable[[Any], Any], list]] = {
    "cat": (ta.cat, [A, B]),
    "stack": (ta.stack, [A, B]),
    "hstack": (ta.hstack, [A, B]),
    "vstack": (ta.vstack, [A, B]),
    "tensor": (ta.tensor, [1.0, 2.0]),
    "as_tensor": (ta.as_tensor, [1.0, 2.0]),
    "Parameter": (nn.Parameter, [1.0, 2.0]),
    "zeros": (ta.zeros, [2, 3]),
    "ones": (ta.ones, [2, 3]),
    "empty": (ta.empty, [2, 3]),
    "full": (lambda them: ta.full(them, 7.0), [2, 3]),
    "rand": (lambda them: ta.rand(them).shape, [2, 3]),
    "randn": (lambda them: ta.randn(them).shape, [2, 3]),
    "randint": (lambda them: ta.randint(0, 5, them).shape, [2, 3]),
    "randint from 0": (lambda them: ta.randint(5, them).shape, [2, 3]),
    "reshape": (M.reshape, [6, 4]),
    "view": (M.view, [6, 4]),
    "permute": (M.permute, [2, 0, 1]),
    "expand": (ta.tensor([[1.0, 2.0, 3.0]]).expand, [2, 3]),
    "repeat": (M.repeat, [1, 2, 1]),
    "sum": (M.sum, [0, 2]),
    "mean": (M.mean, [0, 2]),
    "var": (M.var, [0, 2]),
    "std": (M.std, [0, 2]),
    "amax": (M.amax, [0, 2]),
    "amin": (M.amin, [0, 2]),
    "any": (M.any, [0, 2]),
    "all": (M.all, [0, 2]),
    "logsumexp": (M.logsumexp, [0, 2]),
    "norm": (lambda them: M.norm(dim=them), [0, 2]),
    "squeeze": (ta.ones(1, 1, 2).squeeze, [0, 1]),
    "flip": (M.flip, [0, 2]),
    "flip dims": (lambda them: M.flip(dims=them), [0, 2]),
    "roll dims": (lambda them: M.roll([1, 2], them), [0, 2]),
    "roll shifts": (lambda them: M.roll(them, [0, 2]), [1, 2]),
    "split": (lambda them: M.split(them, 2)[1], [1, 3]),
    "sum_to": (lambda them: ta.ones(2, 3).sum_to(them), [1, 3]),
    "pad": (lambda them: F.pad(M, them), [1, 2]),
    "layer_norm": (lambda them: F.layer_norm(M, them), [3, 4]),
    "rms_norm": (lambda them: F.rms_norm(M, them), [3, 4]),
    "LayerNorm": (lambda them: nn.LayerNorm(them).double()(M), [3, 4]),
    "x[i]": (lambda them: M[them], [0, 1]),
    "x + y": (lambda them: ta.ones(2) + them, [1.0, 2.0]),
    "maximum": (lambda them: ta.maximum(ta.ones(2), them), [1.0, 2.0]),
    "where": (lambda them: ta.where(them, ta.ones(2), ta.zeros(2)), [True, False]),
    "embedding": (lambda them: F.embedding(them, ta.tensor([[1.0], [2.0]])), [1, 0]),
    "one_hot": (lambda them: F.one_hot(them, 3), [0, 2]),
    "cross_entropy": (lambda them: F.cross_entropy(ta.tensor([[1.0, 2.0]] * 2), them), [0, 1]),
    "from_valid_lens": (lambda them: masks.from_valid_lens(them, 3), [1, 2]),
    "masked_softmax": (lambda them: F.masked_softmax(M[:, :, :3], them), [1, 2]),
    "masked_mean": (lambda them: F.masked_mean(M, valid_lens=them), [1, 2]),
    "attention": (lambda them: nn.DotProductAttention()(M, M, M, them), [1, 2]),
    "grad outputs": (
        lambda them: ta.grad(them, A, [ta.tensor([-2.0, 3.0])] * 2, True), [A * A, A * 3],
    ),
    "grad inputs": (lambda them: ta.grad(A * B, them, ta.tensor([2.0, -1.0])), [A, B]),
    "grad_outputs": (
        lambda them: ta.grad([A * A, A * 3], A, them),
        [ta.tensor([2.0, -1.0]), ta.tensor([-3.0, 5.0])],
    ),
    "SGD": (lambda them: steps_of(optim.SGD, them, lr=0.1), [A, B]),
    "Adam": (lambda them: steps_of(optim.Adam, them), [A, B]),
    "groups": (lambda them: steps_of(optim.Adam, them), [{"params": [A]}, {"params": [B]}]),
    "a group": (lambda them: steps_of(optim.Adam, [{"params": them}]), [A, B]),
    "ModuleList": (lambda them: [id(layer) for layer in nn.ModuleList(them)], LAYERS),
    "extend": (lambda them: [id(layer) for layer in nn.ModuleList().extend(them)], LAYERS),
    "pad_sequence": (pad_sequence, [ta.tensor([1.0, 2.0]), ta.tensor([3.0])]),
    "gradcheck": (
        lambda them: testing.gradcheck(lambda x, y: x * y * y, them),
        [leaf([1.0, 2.0], dtype="float64"), leaf([3.0, 5.0], dtype="float64")],
    ),
}  # fmt: skip
WAYS: dict[str, Callable[[list], Any]] = {
    "tuple": tuple,
    "generator": lambda values: (value for value in values),
    "map": lambda values: map(copy, values) if type(values[0]) is int else iter(values),
    "values": lambda values: dict(enumerate(values)).values(),
}


def comparable(result: Any) -> Any:
    if isinstance(result, (tuple, list)):
        return [comparable(part) for part in result]
    return result.tolist() if isinstance(result, ta.Tensor) else result


@pytest.mark.parametrize("way", ["tuple", "generator", "map", "values"])
@pytest.mark.parametrize("name", [name for name in CALLS if name != "x[i]"])
def test_any_iterable_gives_the_same_or_is_refused(name: str, way: str) -> None:
    call, values = CALLS[name]
    expected, refusal = comparable(call(values)), ""
    try:
        found = comparable(call(WAYS[way](values)))
    except (TypeError, ValueError) as error:
        refusal = str(error)
    if way == "tuple" or not refusal:
        assert found == expected
    else:
        assert "has no len()" not in refusal
        assert "got" in refusal or "does not take" in refusal


@pytest.mark.parametrize("name", CALLS)
def test_a_set_has_no_order(name: str) -> None:
    call, values = CALLS[name]
    wrong = {0, 1} if isinstance(values[0], (dict, float)) else set(values)
    with pytest.raises((TypeError, ValueError, IndexError)):
        call(wrong)


@pytest.mark.parametrize("way", ["generator", "values", "map"])
@pytest.mark.parametrize("name", ["SGD", "Adam", "groups", "a group", "ModuleList", "extend",
                                  "pad_sequence", "layer_norm", "LayerNorm"])  # fmt: skip
def test_these_take_any_iterable(name: str, way: str) -> None:
    call, values = CALLS[name]
    assert comparable(call(WAYS[way](values))) == comparable(call(values))


def test_scaling_takes_any_iterable() -> None:
    for way in ("generator", "map", "values", "tuple"):
        A.grad, B.grad = ta.tensor([3.0, 0.0]), ta.tensor([0.0, 4.0])
        assert optim.clip_grad_norm_(WAYS[way]([A, B]), 1.0) == pytest.approx(5.0)
        np.testing.assert_allclose(B.grad.numpy(), [0, 0.8], rtol=1e-5)
    A.grad = B.grad = None
