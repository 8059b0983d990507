"""PyTorch's module of the class Parameter, and what stands for one before its size is known.

In tinyattn: write nn.Parameter
"""

from ...nn import Parameter

__all__ = ["Parameter", "UninitializedParameter"]


class UninitializedParameter(Parameter):
    """A parameter of a lazy layer that has not been called yet, so it has no shape.

    An optimizer may take it, because the first call makes a Parameter of this object.
    """

    __slots__ = ()

    @property
    def shape(self) -> tuple[int, ...]:
        raise ValueError("a lazy layer has no weight yet: call the model on a batch first")

    def __repr__(self) -> str:
        return "<UninitializedParameter>"
