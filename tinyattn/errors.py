"""The errors of tinyattn; each is a subclass of a built-in error.

A message says what was expected, what came, and the usual cause. A call that raises one of these
errors has changed no value and no gradient; a `backward` may have freed its graph.
"""


class ShapeError(ValueError, RuntimeError):
    """Shapes or ranks that do not fit together. It is a RuntimeError too, as in PyTorch."""


class DtypeError(TypeError, RuntimeError):
    """An array of a dtype that the operation does not take, such as integers instead of floats.

    It is a RuntimeError too, as in PyTorch.
    """


class DeviceError(ValueError):
    """Arrays on different devices in one operation, or a device that does not exist."""


class MaskError(ValueError):
    """A mask or `valid_lens` with wrong values or a wrong shape."""


class GraphError(ValueError, RuntimeError):
    """A misuse of the recorded graph: no graph, a freed graph, a missing gradient of the output.

    It is a RuntimeError too, because PyTorch raises that.
    """


class InPlaceError(GraphError):
    """A change in place that cannot be recorded, or that changed an array which a graph needs."""


class GradcheckError(ValueError):
    """A derivative that disagrees with finite differences; the message names the element."""


class CheckpointError(ValueError, RuntimeError):
    """A file that is damaged, cut short, or no checkpoint; a state that does not fit.

    It is a RuntimeError too, because PyTorch's load_state_dict raises that.
    """
