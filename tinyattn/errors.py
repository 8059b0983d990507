"""The errors tinyattn raises, each a kind of the built-in error a reader would expect.

Every message says what was expected, what came, and the usual cause. A call that raises one of
these has changed nothing.
"""


class ShapeError(ValueError):
    """Shapes or ranks that do not fit together."""


class DtypeError(TypeError):
    """An array of a kind the operation does not take, such as integers where floats are needed."""


class DeviceError(ValueError):
    """Arrays on different devices in one operation, or a device that is not there."""


class MaskError(ValueError):
    """A mask or `valid_lens` that cannot mean what it would have to mean."""


class GraphError(ValueError, RuntimeError):
    """A misuse of the recorded graph: no graph, a freed one, a missing starting gradient.

    It is a RuntimeError too, which is what PyTorch raises in the same places.
    """


class InPlaceError(GraphError):
    """An attempt to change an array that a live graph still needs."""


class GradcheckError(ValueError):
    """A derivative that disagrees with finite differences; the message names where."""


class CheckpointError(ValueError):
    """A file that is not a whole, undamaged checkpoint."""
