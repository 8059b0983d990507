"""PyTorch's further methods of a Tensor and of a module, and how these classes get them.

Programs call them on every tensor and model, so they are put on the classes themselves.
"""

from collections import UserDict
from collections.abc import Callable
from types import NoneType
from typing import Any

import numpy as np

import tinyattn as ta

from ..base.checks import check_size, check_type, one_dim
from ..errors import ShapeError
from ..nn.module import Module, Parameter
from ..tensors.operators import changed
from ..tensors.tensor import Tensor
from .devices import MAKERS, adapted, adapted_to, device
from .dtypes import CLASSES, KIND_OF, KINDS, OfDtype
from .functions import CHANGING, METHODS, along, bernoulli, movedim, of_dims
from .marks import NAMES, method, under_their_names, with_name

plain: Any = Tensor  # its properties, for which type checkers know no fget
of_data, of_device = plain.data, plain.device


def like(name: str) -> Callable[..., Any]:
    """new_zeros of zeros: with the dtype and the device of the Tensor."""
    return lambda self, *args, **options: MAKERS[name](
        *args, **{"dtype": self.dtype, "device": self.device} | options
    )


def in_place(function: Callable[..., Any], hint: str = "") -> Callable[..., Any]:
    """The method with "_": it gives x the values of `function(x, ...)`. `marks.py` explains hints.

    A recorded x gets new memory and a new node, as with `x += y`. Else the values are written into
    the memory of x. All tensors that show it have them too, as in PyTorch.
    """

    def method(self: Tensor, *args: Any, **options: Any) -> Tensor:
        """The method without "_", in place. Returns the tensor.

        Raises InPlaceError for a leaf that requires gradients, unless under `torch.no_grad()`.
        """
        return changed(self, lambda x, _: function(x, *args, **options), 0, in_memory=True)

    return method


class OfTensors:
    """Methods of a Tensor that are no functions of torch; those with "_" write into its memory."""

    data = property(lambda self: self.detach(), of_data.fset)
    device = property(lambda self: device(of_device.fget(self)))
    is_cuda = property(lambda self: self.device == "cuda")
    is_sparse = is_meta = is_quantized = is_nested = property(lambda self: False)
    to = adapted_to(Tensor.to)
    clone = adapted(Tensor.clone)
    contiguous = adapted(Tensor.contiguous)
    cuda = method(lambda self, device=None, non_blocking=False: self.to("cuda"))
    pin_memory = method(lambda self: self)
    maximum = method(ta.maximum)
    minimum = method(ta.minimum)
    nelement = method(Tensor.numel, "x.numel()")
    new_empty = method(like("empty"))
    new_full = method(like("full"))
    new_ones = method(like("ones"), "ta.ones(size, dtype=x.dtype, device=x.device)")
    new_tensor = method(like("tensor"), "ta.tensor(data, dtype=x.dtype, device=x.device)")
    new_zeros = method(like("zeros"), "ta.zeros(size, dtype=x.dtype, device=x.device)")
    reshape_as = method(lambda self, other: self.reshape(other.shape), "x.reshape(y.shape)")
    view_as = method(lambda self, other: self.view(other.shape), "x.reshape(y.shape)")
    where = method(lambda self, condition, other: ta.where(condition, self, other))
    zero_ = in_place(ta.zeros_like, "x[...] = 0")
    fill_diagonal_ = in_place(
        lambda x, fill_value: of_dims(2, x).masked_fill(ta.eye(*x.shape).to(x).bool(), fill_value),
        "x.diagonal()[...] = value",
    )
    bernoulli_ = in_place(adapted(lambda self, p=0.5: bernoulli(self, p)))
    exponential_ = in_place(adapted(lambda self, lambd=1.0: -(-ta.rand_like(self)).log1p() / lambd))
    normal_ = in_place(
        adapted(lambda self, mean=0.0, std=1.0: mean + std * ta.randn_like(self)),
        "nn.init.normal_(x)",
    )
    uniform_ = in_place(
        adapted(lambda self, low=0.0, to=1.0: low + (to - low) * ta.rand_like(self)),
        "nn.init.uniform_(x)",
    )

    @in_place
    def fill_(self: Any, value: Any) -> Tensor:
        """In tinyattn: write x[...] = value"""
        return ta.as_tensor(value, self.dtype, self.device).expand(self.shape).clone()

    def is_contiguous(self: Any, memory_format: Any = None) -> bool:
        """In tinyattn: write x.numpy().flags.c_contiguous"""
        return self._data.flags.c_contiguous

    @in_place
    def copy_(self: Any, src: Any, non_blocking: bool = False) -> Tensor:
        """In tinyattn: write x[...] = y"""
        return src.to(self).expand(self.shape).clone()

    def detach_(self: Any) -> Tensor:
        """In tinyattn: write x = x.detach()"""
        if not self.is_leaf:
            self._node = None
        return self.requires_grad_(False)

    def unfold(self: Any, dimension: int, size: int, step: int) -> Tensor:
        """The windows of `size` along a dimension, which come last: x.unfold(0, 3, 1)[i] has the
        elements from i to i + 2.

        Differs from PyTorch: they are copied.

        In tinyattn: write ta.stack([x[..., i : i + size] for i in range(0, x.shape[-1] - size + 1,
        step)], -2), for the last dimension
        """
        dim = one_dim(self, dimension)
        size, step = check_size("size", size, 0), check_size("step", step)
        if size > self.shape[dim]:
            raise ShapeError(f"windows of {size} in dimension {dim} of shape {self.shape}")
        places = np.arange(0, self.shape[dim] - size + 1, step)[:, None] + np.arange(size)
        return movedim(self[along(self, dim, places)], dim + 1, -1)

    def type(self: Any, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The class of a Tensor as text, "torch.LongTensor"; or the Tensor in another dtype.

        dtype: a dtype, a class such as `torch.LongTensor`, or its name.

        In tinyattn: write x.to(dtype), or x.dtype
        """
        if dtype is None:
            (name,) = (name for name, kind in KIND_OF.items() if kind is self.dtype)
            return f"torch.{'cuda.' * self.is_cuda}{name}"
        if isinstance(dtype, str):
            dtype = CLASSES.get(dtype.rpartition(".")[2], dtype)
        return self.to(dtype.kind if isinstance(dtype, OfDtype) else dtype)


# tinyattn's own methods that have a form with "_" too.
CHANGED = """abs clamp cos exp log masked_fill pow reciprocal relu rsqrt sigmoid sign sin sqrt tanh
    tril triu"""


def register(module: Any, name: Any, value: Any, kind: Any) -> None:
    """Refuse what would not be found as a part of the module, as PyTorch does; else set it."""
    check_type(f"{name!r} has to be a {kind.__name__} or None", value, (kind, NoneType))
    if not isinstance(name, str) or not name or "." in name:
        raise KeyError(f"the name of a part is a word without dots, got {name!r}")
    if hasattr(module, name) and not isinstance(vars(module).get(name), (kind, NoneType)):
        raise KeyError(f"{type(module).__name__} has an attribute {name!r} already")
    setattr(module, name, value)


def found(named: Any, target: str) -> Any:
    parts = dict(named)
    if target not in parts:
        raise AttributeError(f"this module has no {target!r}, but {[*parts]}")
    return parts[target]


class Parts(UserDict[str, Any]):
    """Parts of a module by name. What is set or deleted here is so in the module too."""

    def __init__(self, module: Any, kind: type) -> None:
        self.module = module
        self.data = {name: x for name, x in vars(module).items() if isinstance(x, kind)}

    def items(self) -> Any:
        return self.data.items()  # of a dict, because every walk over the modules calls it

    def __setitem__(self, name: str, part: Any) -> None:
        setattr(self.module, name, part)
        self.data[name] = part

    def __delitem__(self, name: str) -> None:
        del self.data[name]
        delattr(self.module, name)


class OfModules:
    """Methods of a module."""

    _modules = property(lambda self: Parts(self, Module))
    _parameters = property(lambda self: Parts(self, Parameter))
    to = adapted_to(Module.to)
    cuda = method(lambda self, device=None: self.to("cuda"))
    load_state_dict = under_their_names(Module.load_state_dict, name="load_state_dict")
    register_buffer = under_their_names(Module.register_buffer, name="register_buffer")

    def add_module(self: Any, name: str, module: Module) -> None:
        """In tinyattn: write setattr(module, name, child)"""
        register(self, name, module, Module)

    def register_parameter(self: Any, name: str, param: Any) -> None:
        """In tinyattn: write setattr(module, name, nn.Parameter(data))"""
        register(self, name, param, Parameter)

    def state_dict(self: Any) -> dict[str, Tensor]:
        """All parameters and buffers, by dotted name, in the memory of the module itself."""
        return {name: tensor.detach() for name, tensor in self._named_state()}

    def get_parameter(self: Any, target: str) -> Any:
        """In tinyattn: write dict(module.named_parameters())[name]"""
        return found(self.named_parameters(), target)

    def get_submodule(self: Any, target: str) -> Any:
        """In tinyattn: write dict(module.named_modules())[name]"""
        return found(self.named_modules(), target)


TENSORS: dict[str, Any] = {**METHODS, **vars(OfTensors)}
OWN = {name: x for name, x in {**METHODS, **vars(Tensor)}.items() if name in NAMES}
TENSORS |= {name: under_their_names(x, name) for name, x in OWN.items()}
TENSORS |= {name: lambda self, kind=kind: self.to(kind) for name, kind in KINDS.items()}
TENSORS |= {f"{name}_": in_place(method) for name, method in CHANGING.items()}
TENSORS |= {f"{n}_": in_place(TENSORS.get(n, getattr(Tensor, n))) for n in CHANGED.split()}
GIVEN: dict[type, dict[str, Any]] = {
    kind: {name: with_name(x, name) for name, x in given.items() if not name.startswith("__")}
    for kind, given in ((Tensor, TENSORS), (Module, vars(OfModules)))
}
BEFORE = {kind: {name: vars(kind).get(name) for name in given} for kind, given in GIVEN.items()}


def give_methods() -> None:
    """Put the methods on Tensor and Module; importing tinyattn.torch_names does so."""
    for kind, methods in GIVEN.items():
        for name, value in methods.items():
            setattr(kind, name, value)


def take_methods() -> None:
    """Take them away again, for tests of tinyattn alone."""
    for kind, methods in BEFORE.items():
        for name, value in methods.items():
            if value is not None:
                setattr(kind, name, value)
            elif name in vars(kind):
                delattr(kind, name)
