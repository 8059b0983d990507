"""The names of tinyattn.nn, and PyTorch's further modules.

functional.py init.py utils/   the functions of `F`, starting values, gradients of whole models
parameter.py                   Parameter, also before its size is known
modules.py                     constructors with many arguments; activations, losses, Embedding,
                               lazy layers, lists of parameters
convolution.py windows.py      convolutions, pooling, batch norm
recurrent.py                   RNN, LSTM and GRU, and their cells
attention.py transformer.py    attention and Transformer, with PyTorch's arguments and masks
"""

from typing import TYPE_CHECKING, Any

from ... import nn as _nn
from . import functional, init, parameter, utils
from .attention import *  # noqa: F403
from .convolution import *  # noqa: F403
from .modules import *  # noqa: F403
from .parameter import *  # noqa: F403
from .recurrent import *  # noqa: F403
from .transformer import *  # noqa: F403

if TYPE_CHECKING:  # of two names pyright takes the last, and mypy the first
    from ...nn import *  # type: ignore[assignment, no-redef]  # noqa: F403
    from . import functional, init
    from .modules import *  # noqa: F403

__all__ = [*dir(_nn), "functional", "init", "parameter", "utils"]
for file in ("attention", "convolution", "modules", "parameter", "recurrent", "transformer"):
    __all__ += globals()[file].__all__


def __dir__() -> list[str]:
    return sorted({*__all__})


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        return getattr(_nn, name)
