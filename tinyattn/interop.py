"""Modules and state dicts from PyTorch, and for PyTorch.

    ta.interop.from_torch(module)                    a module of PyTorch's -> one of tinyattn's
    ta.interop.load_torch_state_dict(module, state)  arrays under PyTorch's names into a module
    ta.interop.torch_state_dict(module)              the arrays of a module under PyTorch's names

A state dict holds arrays only. The order of norms, the activation, the number of heads, eps and
dropout are attributes of modules, so `from_torch` reads the modules too.

The tables below say what corresponds: `SAME` has the modules of one name and the same options on
both sides; layers and stacks have parts with other names. Anything else is refused. Only this file
imports PyTorch, and only when it makes or reads something of PyTorch's.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import numpy as np

from . import nn
from .base import random
from .base.checks import check_names, check_shapes, check_type, optional_package
from .errors import ShapeError
from .tensors.tensor import Tensor

# Options are attributes of a module on both sides. Two of them are True if there is an array.
SAME: dict[str, tuple[str, ...]] = {
    "Dropout": ("p",),
    "Embedding": ("num_embeddings", "embedding_dim", "padding_idx"),
    "GELU": ("approximate",),
    "Identity": (),
    "LayerNorm": ("normalized_shape", "eps", "elementwise_affine", "bias"),
    "Linear": ("in_features", "out_features", "bias"),
    "RMSNorm": ("normalized_shape", "eps", "elementwise_affine"),
    "ReLU": (),
    "SiLU": (),
    "Sigmoid": (),
    "Softmax": ("dim",),
    "Tanh": (),
}
ARRAY_OF = {"bias": "bias", "elementwise_affine": "weight"}
ATTENTION = "MultiheadAttention"
# A layer of PyTorch's: the class here, and the names of its attentions, PyTorch's and ours.
LAYERS = {
    "TransformerEncoderLayer": ("EncoderLayer", {"self_attn": "self_attn"}),
    "TransformerDecoderLayer": (
        "DecoderLayer",
        {"self_attn": "self_attn", "multihead_attn": "src_attn"},
    ),
}
STACKS = {"TransformerEncoder": "Encoder", "TransformerDecoder": "Decoder"}
KNOWN = sorted((*SAME, "Sequential", ATTENTION, *LAYERS, *STACKS))  # PyTorch's classes
# Options that tinyattn does not have. They are None or False if they are not used.
REFUSED = {
    "Embedding": ("max_norm", "scale_grad_by_freq", "sparse"),
    ATTENTION: ("bias_k", "bias_v", "add_zero_attn"),
}


def parts_of(attentions: dict[str, str]) -> dict[str, tuple[str, str]]:
    """The parts of a layer: PyTorch's name, its path here, and PyTorch's class."""
    sublayers = range(len(attentions) + 1)
    return {
        **{theirs: (ours, ATTENTION) for theirs, ours in attentions.items()},
        "linear1": ("feed_forward.w_1", "Linear"),
        "dropout": ("feed_forward.dropout", "Dropout"),
        "linear2": ("feed_forward.w_2", "Linear"),
        **{f"norm{i + 1}": (f"sublayer.{i}.norm", "LayerNorm") for i in sublayers},
        **{f"dropout{i + 1}": (f"sublayer.{i}.dropout", "Dropout") for i in sublayers},
    }


PARTS = {ours: parts_of(attentions) for ours, attentions in LAYERS.values()}


# Modules


def from_torch(module: Any) -> nn.Module:
    """The module here that computes what a module of PyTorch's does, on copies of its arrays.

    module: Linear, LayerNorm, RMSNorm, Embedding, Dropout, an activation, MultiheadAttention,
        TransformerEncoderLayer, TransformerEncoder, their decoders, or a Sequential of these.

    Options, dtypes (bfloat16 becomes float32), modes, and frozen and shared parameters are kept.
    Hooks are left out. The result is on the CPU. True in PyTorch's masks of these modules means
    "ignored", and here "may attend"; attention here returns its output only. A decoder here is
    causal without a mask, so PyTorch's computes the same with the causal tgt_mask.

    Raises TypeError for a class or an option that tinyattn does not have, and says where it is. A
    subclass is another class, because its forward may be another. batch_first=False is refused,
    because modules here take (B, N, D).

        >>> import torch
        >>> ta.interop.from_torch(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU("tanh")))
        Sequential(
          (0): Linear(3, 4, bias=True)
          (1): GELU(approximate='tanh')
        )
    """
    torch = import_torch()
    check_type("from_torch takes a module of PyTorch's", module, torch.nn.Module)
    state = random.get_rng_state()
    try:
        return FromTorch(torch).convert(module, "")
    finally:
        random.set_rng_state(state)  # because new modules draw starting values


class FromTorch:
    """One call of `from_torch`. It keeps what a parameter became, because modules may share one."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.made: dict[int, Any] = {}

    def convert(self, theirs: Any, where: str) -> Any:
        name = type(theirs).__name__
        if type(theirs) is not getattr(self.torch.nn, name, None) or name not in KNOWN:
            kind = f"{type(theirs).__module__}.{type(theirs).__qualname__}"
            raise TypeError(f"{place(where)} is a {kind}, and from_torch takes {', '.join(KNOWN)}")
        refuse_options(theirs, name, where)
        if "forward" in vars(theirs):
            raise TypeError(f"{place(where)} has a forward of its own, which cannot be converted")
        if name == "Sequential":
            parts = [self.convert(part, f"{where}.{i}") for i, part in enumerate(theirs)]
            ours: Any = nn.Sequential(*parts)
        elif name in STACKS:
            ours = self.stack(theirs, name, where)
        elif name in LAYERS:
            ours = self.layer(theirs, name, where)
        else:
            ours = self.with_arrays(theirs, name, where)
        ours.training = theirs.training
        return ours

    def stack(self, theirs: Any, name: str, where: str) -> Any:
        for i, layer in enumerate(theirs.layers):
            check_part(layer, f"{name}Layer", f"{where}.layers.{i}")
        layers = [self.convert(x, f"{where}.layers.{i}") for i, x in enumerate(theirs.layers)]
        if not layers:
            raise TypeError(f"{place(where)} has no layers")
        ours = getattr(nn, STACKS[name])(layers[0], 1).train(theirs.training)
        ours.layers[:] = layers
        ours.norm = None if theirs.norm is None else self.convert(theirs.norm, f"{where}.norm")
        return ours

    def layer(self, theirs: Any, name: str, where: str) -> Any:
        kind, attentions = LAYERS[name]
        for key, (_, expected) in PARTS[kind].items():
            check_part(getattr(theirs, key), expected, f"{where}.{key}")
        blanks = [nn.Identity() for _ in attentions]
        feed_forward = nn.PositionwiseFeedForward(1, 1)
        feed_forward.activation = self.activation(theirs.activation, where)
        width, norm = theirs.linear1.in_features, "pre" if theirs.norm_first else "post"
        ours = getattr(nn, kind)(width, *blanks, feed_forward, norm=norm).train(theirs.training)
        for key, (path, _) in PARTS[kind].items():
            put(ours, path, self.convert(getattr(theirs, key), f"{where}.{key}"))
        return ours

    def activation(self, function: Any, where: str) -> Any:
        """A layer has a function or a module as its activation."""
        F = self.torch.nn.functional
        known = {F.relu: nn.ReLU, self.torch.relu: nn.ReLU, F.gelu: nn.GELU}
        if isinstance(function, self.torch.nn.Module):
            return self.convert(function, f"{where}.activation")
        if function not in known:
            raise TypeError(
                f"{place(where)}.activation is {function!r}, and from_torch takes relu, gelu and "
                "modules such as torch.nn.GELU"
            )
        return known[function]()

    def with_arrays(self, theirs: Any, name: str, where: str) -> Any:
        if name == ATTENTION:
            width, bias = theirs.embed_dim, theirs.in_proj_bias is not None
            sizes = (theirs.kdim, width, theirs.vdim, width)
            ours = nn.MultiHeadAttention(*sizes, theirs.num_heads, theirs.dropout, bias)
        else:
            ours = getattr(nn, name)(**options_of(theirs, name))
        ours.train(theirs.training)
        state, (tensors, names) = theirs.state_dict(keep_vars=True), named_tensors(ours)
        arrays = checked_arrays(f"{place(where)} ({name})", tensors, names, state)
        for key, parts in names.items():
            for part in parts:
                tensors[part].data = arrays[part]
                tensors[part].requires_grad = state[key].requires_grad
            first = self.made.setdefault(id(state[key]), [tensors[part] for part in parts])
            if len(first) != len(parts):
                raise TypeError(f"{place(where)}.{key} shares its array with another kind of layer")
            for part, parameter in zip(parts, first, strict=True):
                put(ours, part, parameter)
        return ours


def import_torch() -> Any:
    """PyTorch, imported here because the rest of tinyattn does not need it."""
    return optional_package("torch", "tinyattn.interop needs PyTorch", "torch")


def options_of(theirs: Any, name: str) -> dict[str, Any]:
    options = {option: getattr(theirs, ARRAY_OF.get(option, option)) for option in SAME[name]}
    return options | {option: options[option] is not None for option in ARRAY_OF.keys() & options}


def refuse_options(theirs: Any, name: str, where: str) -> None:
    for option in REFUSED.get(name, ()):
        value = getattr(theirs, option)
        if value is not None and value is not False:
            raise TypeError(f"{place(where)} has {option}, and tinyattn's does not")
    if name == ATTENTION and not theirs.batch_first:
        raise TypeError(
            f"{place(where)} has batch_first=False, and modules here take (B, N, D): set "
            "batch_first = True on it, and pass x in this order"
        )
    if name == "Softmax" and theirs.dim is None:
        raise TypeError(f"{place(where)} has dim=None: set the dimension")


def check_part(theirs: Any, expected: str, where: str) -> None:
    """A module of PyTorch's inside a layer or a stack has one class."""
    if type(theirs).__name__ != expected:
        raise TypeError(
            f"{place(where)}: PyTorch has a {expected} there, got {type(theirs).__name__}"
        )


def place(where: str) -> str:
    return f"module {where[1:]}" if where else "the module"


def get(module: Any, path: str) -> Any:
    return attrgetter(path)(module)


def put(module: Any, path: str, value: Any) -> None:
    owner, _, name = path.rpartition(".")
    setattr(get(module, owner) if owner else module, name, value)


# State dicts


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
    torch = import_torch()
    tensors, names = named_tensors(module)
    arrays = {name: [tensors[part].numpy() for part in parts] for name, parts in names.items()}
    joined = {n: np.concatenate(a) if len(a) > 1 else a[0] for n, a in arrays.items()}
    return {name: torch.from_numpy(array) for name, array in joined.items()}


def load_torch_state_dict(module: nn.Module, state: Mapping[str, Any]) -> None:
    """Copy arrays under PyTorch's names into a module. If one does not fit, nothing is changed.

    state: PyTorch tensors, arrays or Tensors by name, as PyTorch's `state_dict()` or a safetensors
        file has them. They are converted to the dtypes and the device of the module.

    Raises CheckpointError for names, ShapeError and DtypeError for arrays that do not fit. What no
    array tells is not checked: norm order, activation, heads, eps. `from_torch` reads these.

        >>> layer = nn.Linear(2, 1)
        >>> ta.interop.load_torch_state_dict(layer, {"weight": [[1.0, 2.0]], "bias": [3.0]})
        >>> layer(ta.ones(2)).item()
        6.0
    """
    tensors, names = named_tensors(module)
    module.load_state_dict(checked_arrays(type(module).__name__, tensors, names, state))


def checked_arrays(
    owner: str, tensors: dict[str, Tensor], names: dict[str, list[str]], state: Any
) -> dict[str, np.ndarray]:
    """The arrays of a state dict of PyTorch's, by the names here, after all checks."""
    check_type("a state dict is a dict of tensors", state, Mapping)
    check_names(owner, names, state)
    arrays = {name: array_of(state[name]) for name in names}
    shapes = {}
    for name, parts in names.items():
        first = tensors[parts[0]].shape
        shapes[name] = (len(parts) * first[0], *first[1:]) if len(parts) > 1 else first
    check_shapes(owner, shapes, arrays)
    by_part: dict[str, np.ndarray] = {}
    for name, parts in names.items():
        pieces = np.split(arrays[name], len(parts)) if len(parts) > 1 else [arrays[name]]
        by_part.update(zip(parts, pieces, strict=True))
    return by_part


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
            inside = {theirs: path for theirs, (path, _) in parts.items()}
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
        raise ShapeError(
            f"PyTorch's {ATTENTION} has one width for queries and outputs, got {sizes}"
        )
    biases = [name for name, layer in layers.items() if layer.bias is not None]
    if 0 < len(biases) < len(layers):
        raise TypeError(f"PyTorch's {ATTENTION} has all biases or none, got those of {biases}")
    weights = [f"{name}.weight" for name in projections]
    if module.W_k.in_features == module.W_v.in_features == width:
        names = {"in_proj_weight": weights}
    else:
        names = {f"{name[2]}_proj_weight": [name] for name in weights}
    if biases:
        names["in_proj_bias"] = [f"{name}.bias" for name in projections]
    return names
