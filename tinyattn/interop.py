"""State dicts from PyTorch, and for PyTorch.

    ta.interop.load_torch_state_dict(module, state)  arrays under PyTorch's names into a module
    ta.interop.torch_state_dict(module)              the arrays of a module under PyTorch's names

A state dict holds arrays only. The order of norms, the activation, the number of heads, eps and
dropout are attributes, so both modules are made with the same ones.

`PARTS` says which parts of a layer have other names there. Only this file imports PyTorch, and only
when it makes something of PyTorch's.
"""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import numpy as np

from . import nn
from .base.checks import check_names, check_shapes, check_type, optional_package
from .errors import ShapeError
from .tensors.tensor import Tensor


def parts_of(attentions: dict[str, str]) -> dict[str, str]:
    """The parts of a layer that have arrays: PyTorch's name of each, and its path here."""
    norms = {f"norm{i + 1}": f"sublayer.{i}.norm" for i in range(len(attentions) + 1)}
    return attentions | {"linear1": "feed_forward.w_1", "linear2": "feed_forward.w_2"} | norms


PARTS = {
    "EncoderLayer": parts_of({"self_attn": "self_attn"}),
    "DecoderLayer": parts_of({"self_attn": "self_attn", "multihead_attn": "src_attn"}),
}


def get(module: Any, path: str) -> Any:
    return attrgetter(path)(module)


def put(module: Any, path: str, value: Any) -> None:
    owner, _, name = path.rpartition(".")
    setattr(get(module, owner) if owner else module, name, value)


def torch_state_dict(module: nn.Module) -> dict[str, Any]:
    """The arrays of a module as PyTorch tensors under PyTorch's names; copies, on the CPU.

    PyTorch's module of the same structure loads them. Give it the same options, because no array
    tells the norm order, the activation, the heads, eps, rotary positions or a window.
    A module that PyTorch does not have, as your own class or a layer with SwiGLU, keeps its names;
    the modules inside it get PyTorch's.

        >>> list(ta.interop.torch_state_dict(nn.MultiHeadedAttention(2, 4)))
        ['in_proj_weight', 'in_proj_bias', 'out_proj.weight', 'out_proj.bias']

    Raises TypeError or ShapeError for a module with arrays that have no place in PyTorch's.
    """
    torch = optional_package("torch", "tinyattn.interop needs PyTorch", "torch")
    tensors, names = named_tensors(module)
    arrays = {name: [tensors[part].numpy() for part in parts] for name, parts in names.items()}
    joined = {n: np.concatenate(a) if len(a) > 1 else a[0] for n, a in arrays.items()}
    return {name: torch.from_numpy(array) for name, array in joined.items()}


def load_torch_state_dict(module: nn.Module, state: Mapping[str, Any]) -> None:
    """Copy arrays under PyTorch's names into a module. If one does not fit, nothing is changed.

    state: PyTorch tensors, arrays or Tensors by name, as PyTorch's `state_dict()` or a safetensors
        file has them. They are converted to the dtypes and the device of the module.

    Raises CheckpointError for names, ShapeError and DtypeError for arrays that do not fit. What no
    array tells is not checked: norm order, activation, heads, eps.

        >>> layer = nn.Linear(2, 1)
        >>> ta.interop.load_torch_state_dict(layer, {"weight": [[1.0, 2.0]], "bias": [3.0]})
        >>> layer(ta.ones(2)).item()
        6.0
    """
    tensors, names = named_tensors(module)
    owner = type(module).__name__
    check_type("a state dict is a dict of tensors", state, Mapping)
    check_names(owner, names, state)
    arrays = {name: array_of(state[name]) for name in names}
    shapes = {}
    for name, parts in names.items():
        first = tensors[parts[0]].shape
        shapes[name] = (len(parts) * first[0], *first[1:]) if len(parts) > 1 else first
    check_shapes(owner, shapes, arrays)
    own: dict[str, np.ndarray] = {}
    for name, parts in names.items():
        pieces = np.split(arrays[name], len(parts)) if len(parts) > 1 else [arrays[name]]
        own.update(zip(parts, pieces, strict=True))
    module.load_state_dict(own)


def array_of(value: Any) -> np.ndarray:
    """The numbers of a tensor of PyTorch's, or of anything that a Tensor is made from."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    if str(getattr(value, "dtype", "")) == "torch.bfloat16":
        value = value.float()  # every bfloat16 is a float32, and NumPy has no bfloat16
    return Tensor(value)._data


def named_tensors(module: Any) -> tuple[dict[str, Tensor], dict[str, list[str]]]:
    """The Tensors of a module by their names here, and these names by PyTorch's."""
    check_type("expected a module of tinyattn's", module, nn.Module)
    tensors, names = dict(module._named_state()), torch_names(module)
    if extra := set(tensors) - {part for parts in names.values() for part in parts}:
        raise TypeError(f"{type(module).__name__}: PyTorch's has no place for {sorted(extra)}")
    return tensors, names


def torch_names(module: nn.Module) -> dict[str, list[str]]:
    """PyTorch's name of every array, and the names here of those that are joined in it.

    >>> ta.interop.torch_names(nn.MultiHeadedAttention(2, 4))["in_proj_bias"]
    ['W_q.bias', 'W_k.bias', 'W_v.bias']
    """
    names = {name: [name] for name, _ in module._named_state() if "." not in name}
    inside = {name: name for name in module._modules}
    if isinstance(module, nn.MultiHeadAttention):
        names, inside = projection_names(module), {"out_proj": "W_o"}
    for kind, parts in PARTS.items():
        plain = type(getattr(module, "feed_forward", None)) is nn.PositionwiseFeedForward
        if plain and isinstance(module, getattr(nn, kind)):  # else PyTorch has no such layer
            inside = parts
    for theirs, path in inside.items():
        for name, joined in torch_names(get(module, path)).items():
            names[f"{theirs}.{name}"] = [f"{path}.{part}" for part in joined]
    return names


def projection_names(module: nn.MultiHeadAttention) -> dict[str, list[str]]:
    """PyTorch joins the projections of queries, keys and values if all have one width."""
    projections = ["W_q", "W_k", "W_v"]
    layers = {name: getattr(module, name) for name in (*projections, "W_o")}
    for name, layer in layers.items():
        check_type(f"{name} must be a Linear for PyTorch", layer, nn.Linear)
    width = module.W_q.in_features
    if {layer.out_features for layer in layers.values()} != {width}:
        sizes = ", ".join(f"{name} {layer.extra_repr()}" for name, layer in layers.items())
        raise ShapeError(f"PyTorch has one width for queries and outputs, got {sizes}")
    weights = [f"{name}.weight" for name in projections]
    if module.W_k.in_features == module.W_v.in_features == width:
        names = {"in_proj_weight": weights}
    else:
        names = {f"{name[2]}_proj_weight": [name] for name in weights}
    if all(layer.bias is not None for layer in layers.values()):  # PyTorch has all or none
        names["in_proj_bias"] = [f"{name}.bias" for name in projections]
    return names
