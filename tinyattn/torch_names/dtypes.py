"""The dtypes under PyTorch's names, and the classes that are named after them, as LongTensor.

A dtype here is the object that `x.dtype` gives too, one of NumPy's. So `x.dtype is torch.float32`
holds.
"""

from typing import Any

import numpy as np

from .. import hints
from ..base.checks import one_each, rectangular
from ..tensors.create import zeros
from ..tensors.tensor import Tensor as Base

KINDS = {name: np.dtype(kind) for name, kind in hints.DTYPES.items()}
DTYPES = {str(kind): kind for kind in KINDS.values()} | KINDS
del DTYPES["char"], DTYPES["byte"]  # which only methods are called


class OfDtype(type):
    """What LongTensor and the like are: a call makes a Tensor, `isinstance` looks at its dtype.

    `torch.LongTensor([1, 2])` has these numbers, `torch.LongTensor(2, 3)` is all 0.
    Differs from PyTorch: a shape is a tuple of numbers, and is taken for data. For a tensor of
    that shape write torch.zeros(x.shape).
    """

    kind: np.dtype | None

    def __call__(cls, *data: Any, device: Any = None) -> Base:
        kind = cls.kind or np.dtype(np.float32)
        if all(isinstance(size, int) for size in data):
            return zeros(data or (0,), dtype=kind, device=device)
        (values,) = data
        return Base(rectangular(one_each(values), cls.__name__), device=device).to(kind)

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, Base) and (cls.kind is None or cls.kind is value.dtype)

    def __eq__(cls, other: Any) -> bool:  # for `type(x) == torch.Tensor`
        return cls is other or (cls.kind is None and other is Base)

    __hash__ = type.__hash__


KIND_OF = {"Tensor": None} | {f"{name.capitalize()}Tensor": kind for name, kind in KINDS.items()}
CLASSES = {
    name: OfDtype(name, (Base,), {"__slots__": (), "kind": kind, "__doc__": OfDtype.__doc__})
    for name, kind in KIND_OF.items()
}
