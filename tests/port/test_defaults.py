"""An argument that is left out means what it means in PyTorch."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np

import tinyattn
import tinyattn.torch_names as ours

REQUIRED = object()
# Classes and functions that PyTorch writes in Python, whose defaults differ from those there.
OTHER_DEFAULTS = {
    ("ModuleList", "modules"): (),  # PyTorch has None for nothing
    ("ModuleDict", "modules"): (),
    ("Softmax", "dim"): -1,  # for None PyTorch guesses, and warns
    ("softmax", "dim"): -1,
    ("log_softmax", "dim"): -1,
    ("calculate_gain", "param"): 0.01,  # PyTorch has None, and then 0.01
    ("Transformer", "activation"): "relu",  # PyTorch has the function of this name
    ("TransformerEncoderLayer", "activation"): "relu",
    ("TransformerDecoderLayer", "activation"): "relu",
}
# Functions that PyTorch writes in C++, where it has no default, or writes it another way.
OTHER_DEFAULTS_OF_OPS = {
    ("amax", "dim"): None,  # PyTorch has [] for all dimensions
    ("amin", "dim"): None,
    ("roll", "dims"): None,
    ("flip", "dims"): (),  # as many as are given
    ("sort", "stable"): True,
    ("argsort", "stable"): True,
    ("softmax", "dim"): -1,
    ("log_softmax", "dim"): -1,
    ("norm", "p"): "fro",  # with dim=None it is the 2-norm of all elements, as there
    ("normal", "mean"): 0.0,
    ("meshgrid", "indexing"): "ij",  # what PyTorch does without the argument
    ("randint", "low"): 0,
    ("dropout", "p"): 0.5,  # of torch.nn.functional
    ("embedding", "padding_idx"): None,  # -1 in C++ is None in Python
    ("eye", "dtype"): np.float32, ("randint", "dtype"): np.int64,
    **dict.fromkeys([(name, "reduction") for name in (
        "binary_cross_entropy_with_logits", "kl_div", "mse_loss", "nll_loss"
    )], "mean"),  # 1 in C++ is "mean" in Python
    **dict.fromkeys([(name, "dtype") for name in (
        "empty", "linspace", "ones", "rand", "randn", "zeros"
    )], np.float32),
}  # fmt: skip


def defaults_of(function: Any) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def public(owner: Any) -> Iterator[tuple[str, Any]]:
    for name in dir(owner):
        value = None if name.startswith("_") else getattr(owner, name, None)
        if callable(value):
            yield name, value


def test_defaults_of_classes_and_functions_of_nn_and_optim(torch: Any) -> None:
    nn, optim = tinyattn.nn, tinyattn.optim
    pairs = [
        (nn, torch.nn), (nn.init, torch.nn.init), (tinyattn.functional, torch.nn.functional),
        (optim, torch.optim), (ours.nn, torch.nn), (ours.nn.functional, torch.nn.functional),
        (ours.optim, torch.optim), (ours.optim.lr_scheduler, torch.optim.lr_scheduler),
    ]  # fmt: skip
    wrong, walked = [], 0
    for owner, there in pairs:
        for name, value in public(owner):
            try:
                expected = defaults_of(getattr(there, name))
                found = defaults_of(value)
            except (AttributeError, TypeError, ValueError):  # not there, or in C++
                continue
            for argument in found.keys() & expected.keys():
                right = [OTHER_DEFAULTS.get((name, argument), expected[argument])]
                if "torch_names" in owner.__name__:  # which has PyTorch's own defaults too
                    right.append(expected[argument])
                walked += 1
                if not any(found[argument] is x or found[argument] == x for x in right):
                    wrong.append((name, argument, found[argument], right))
    assert not wrong
    assert walked > 300


def test_defaults_of_functions_and_methods(torch: Any) -> None:
    """Of those in C++, which have several forms. An argument that PyTorch always asks for may be
    left out here only for None."""

    def defaults_there(name: str, argument: str) -> list[Any]:
        return [
            part.default_value if part.has_default_value() else REQUIRED
            for form in torch._C._jit_get_schemas_for_operator(f"aten::{name}")
            if "out" not in form.overload_name
            for part in form.arguments
            if part.name == argument
        ]

    wrong, walked = [], 0
    owners = (tinyattn, tinyattn.functional, tinyattn.Tensor, ours)
    for name, value in (pair for owner in owners for pair in public(owner)):
        if isinstance(value, type):
            continue
        for argument, found in defaults_of(value).items():
            there = defaults_there(name, {"y": "other"}.get(argument, argument))
            if not there:
                continue
            if (name, argument) in OTHER_DEFAULTS_OF_OPS:
                there = [OTHER_DEFAULTS_OF_OPS[name, argument]]
            elif all(default is REQUIRED for default in there):
                there = [None]
            walked += 1
            if not any(found is x or found == x for x in there):
                wrong.append((name, argument, found, there))
    assert not wrong
    assert walked > 350
