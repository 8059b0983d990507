"""The third part of Tensor: to another dtype or device.

These methods have a file to themselves, because `float` and `bool` mean the methods in this class.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from ..base.backend import converted, module_of, namespace
from ..base.checks import DTypeLike, checked_dtype, names_device
from ..engine.autograd import wrap
from ..ops import arithmetic, shapes
from ..ops.arguments import any_tensor
from .gradients import Gradients
from .values import Values


class Conversions(Gradients):
    """To another dtype or device."""

    __slots__ = ()

    def to(
        self, *args: Values | DTypeLike, dtype: DTypeLike = None, device: str | None = None
    ) -> Self:
        """This tensor in another dtype, on another device, or both: `x.to("cuda", ta.float64)`.

        A Tensor as argument stands for its dtype and its device. A tensor that has this dtype and
        device is returned as it is.
        To integers, fractions are cut off, and numbers out of range wrap.
        """
        for argument in args:
            if isinstance(argument, str) and names_device(argument):
                device = argument
            elif isinstance(argument, Values):
                dtype, device = argument.dtype, argument.device
            else:
                dtype = argument
        result = self
        if dtype is not None and (target := checked_dtype(dtype)) != self.dtype:
            if target.kind == "f":
                result = arithmetic.cast(result, target)
            else:
                result = wrap(converted(result._data, target))
        if device is not None and module_of(device) is not namespace(self._data):
            result = shapes.transfer(result, "cpu" if self.device == "cuda" else "cuda")
        return result

    def type_as(self, other: Values) -> Self:
        """This tensor in the dtype, and on the device, of `other`."""
        return self.to(any_tensor(other, "other"))

    def cpu(self) -> Self:
        """This tensor on the host."""
        return self.to("cpu")

    def cuda(self) -> Self:
        """This tensor on the GPU."""
        return self.to("cuda")

    def float(self) -> Self:
        """This tensor as float32."""
        return self.to(np.float32)

    def double(self) -> Self:
        """This tensor as float64."""
        return self.to(np.float64)

    def half(self) -> Self:
        """This tensor as float16."""
        return self.to(np.float16)

    def long(self) -> Self:
        """This tensor as int64."""
        return self.to(np.int64)

    def bool(self) -> Self:
        """This tensor as booleans."""
        return self.to(np.bool_)
