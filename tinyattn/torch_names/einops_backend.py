"""einops for Tensors: rearrange, reduce, repeat, einsum, pack and unpack, with gradients.

`import tinyattn.torch_names` is enough, if einops is installed. In place of the layers of
`einops.layers.torch` write

    from tinyattn.torch_names.einops_backend import Rearrange, Reduce

einops has no public way to add a library. It asks every subclass of its class AbstractBackend
whether a tensor is of its type. That class, from einops._backends, is all that is used here beside
public names.
"""

from collections.abc import Sequence
from typing import Any

from einops import rearrange, reduce
from einops._backends import AbstractBackend
from einops.layers import RearrangeMixin, ReduceMixin

from .. import nn
from ..ops.einsum import einsum
from ..ops.shapes import cat, stack
from ..tensors.tensor import Tensor


class Backend(AbstractBackend):
    """What einops' functions do with a Tensor. einops finds this class by itself."""

    framework_name = "tinyattn"

    transpose = staticmethod(Tensor.permute)
    tile = staticmethod(Tensor.repeat)
    add_axis = staticmethod(Tensor.unsqueeze)
    stack_on_zeroth_dimension = staticmethod(stack)
    einsum = staticmethod(einsum)
    concat = staticmethod(lambda tensors, axis: cat(tensors, axis))
    is_appropriate_type = staticmethod(lambda x: isinstance(x, Tensor))
    is_float_type = staticmethod(lambda x: x.dtype.kind == "f")
    to_numpy = staticmethod(lambda x: x.detach().numpy())

    def reduce(self, x: Tensor, operation: str, axes: Sequence[int]) -> Tensor:
        if operation == "prod":  # which takes one dimension
            for axis in sorted(axes, reverse=True):
                x = x.prod(axis)
            return x
        return getattr(x, {"max": "amax", "min": "amin"}.get(operation, operation))(tuple(axes))


class Rearrange(RearrangeMixin, nn.Module):
    """`einops.rearrange` with this pattern, as a module.

    >>> from tinyattn.torch_names.einops_backend import Rearrange
    >>> Rearrange("b n (h d) -> b h n d", h=2)(ta.zeros(1, 3, 8)).shape
    (1, 2, 3, 4)
    """

    def forward(self, x: Tensor) -> Any:
        return rearrange(x, self.pattern, **self.axes_lengths)


class Reduce(ReduceMixin, nn.Module):
    """`einops.reduce` with this pattern, as a module.

    >>> from tinyattn.torch_names.einops_backend import Reduce
    >>> Reduce("b n d -> b d", "mean")(ta.zeros(2, 3, 4)).shape
    (2, 4)
    """

    def forward(self, x: Tensor) -> Any:
        return reduce(x, self.pattern, self.reduction, **self.axes_lengths)
