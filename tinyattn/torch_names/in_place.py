"""Methods that end in `_`: `x.exp_()` changes x.

A recorded x gets new memory and a new node, as with `x += y`. Else the values are written into the
memory of x, and its views have them too, as in PyTorch.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from ..base.backend import namespace
from ..errors import InPlaceError
from ..tensors.operators import changed
from ..tensors.tensor import Tensor


def in_place(function: Callable[..., Any], hint: str = "") -> Callable[..., Any]:
    """The method that gives x the values of `function(x, ...)`. `marks.py` explains hints."""

    def method(self: Tensor, *args: Any, **options: Any) -> Tensor:
        """The method without "_", in place. Returns the tensor.

        Raises InPlaceError for a leaf that requires gradients, unless under `torch.no_grad()`.
        Differs from PyTorch: views of a recorded tensor keep the old values, and a recorded view is
        changed only if no other tensor shows its values.
        """
        twin = copy.copy(self)
        changed(twin, lambda x, _: function(x, *args, **options), 0)
        if twin.is_leaf:
            self[...] = twin.detach()
            return self
        is_part = getattr(self._data.base, "size", 0) > self._data.size
        viewed = [other() for other in getattr(self._node, "viewed", ())]
        share = namespace(self._data).may_share_memory
        if is_part or any(x is not None and share(x._data, self._data) for x in viewed):
            raise InPlaceError(
                "this tensor is a view of another, which would not change, because this is "
                "recorded: write x[i] = y for the part i, y = y * 2 instead of y.mul_(2), or "
                "change a clone()"
            )
        self._data, self._node, self._version = twin._data, twin._node, twin._version
        return self

    return method
