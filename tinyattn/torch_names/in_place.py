"""Methods that end in `_`: `x.exp_()` changes x.

A recorded x gets new memory and a new node, as with `x += y`. Else the values are written into the
memory of x, and its views have them too, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..tensors.operators import changed
from ..tensors.tensor import Tensor


def in_place(function: Callable[..., Any], hint: str = "") -> Callable[..., Any]:
    """The method that gives x the values of `function(x, ...)`. `marks.py` explains hints."""

    def method(self: Tensor, *args: Any, **options: Any) -> Tensor:
        """The method without "_", in place. Returns the tensor.

        Raises InPlaceError for a leaf that requires gradients, unless under `torch.no_grad()`.
        """
        return changed(self, lambda x, _: function(x, *args, **options), 0, in_memory=True)

    return method
