"""PyTorch's further names, for programs that were written for PyTorch.

    import tinyattn.torch_names as torch
    import tinyattn.torch_names.nn as nn
    from tinyattn.torch_names.nn import functional as F

Each module here has all names of the module of tinyattn beneath it, and more names of PyTorch's.
To import it gives Tensor and Module PyTorch's further methods too. Nothing in the rest of tinyattn
uses this folder: a program that is written for tinyattn needs none of it.
"""

import sys as _sys
import warnings
from typing import TYPE_CHECKING, Any

from numpy import dtype as dtype

import tinyattn as _tinyattn

from ..base.names import OF_TORCH_NAMES, UnknownNameError
from . import autograd, backends, cuda, nn, optim, testing, utils  # noqa: F401 (in __all__)
from .devices import Generator as Generator
from .devices import device as device
from .dtypes import CLASSES, DTYPES
from .functions import FUNCTIONS
from .marks import under_their_names
from .methods import give_methods

if TYPE_CHECKING:  # an editor finds the function of a name
    from .functions import *  # noqa: F403

# The PyTorch that the names were compared with: programs ask whether it is at least "1.5.0".
__version__ = "2.13.0"
Size = tuple
newaxis, accelerator = None, cuda
# How memory is laid out; only memory_format= takes them, and it changes nothing.
preserve_format = contiguous_format = channels_last = None
ADDED = CLASSES | DTYPES | FUNCTIONS
OWN = {n: v for n, v in vars(_tinyattn).items() if n in dir(_tinyattn) and callable(v)}
globals().update({name: under_their_names(x, name) for name, x in (OWN | ADDED).items()})
give_methods()


def give_hints(owner: str) -> None:
    """A name that a module lacks says what to write: `from ... import name` asks for it because
    the module has a __path__, as a package has."""

    def missing(name: str) -> None:
        raise UnknownNameError(owner, name, [])

    module = vars(_sys.modules[f"{__name__}.{owner}"])
    module.update(__getattr__=missing, __path__=module.get("__path__", []))


for _owner in OF_TORCH_NAMES:
    give_hints(_owner)

if not TYPE_CHECKING:  # checkers would take all that is not in it for private
    __all__ = ["Generator", "Size", "autograd", "backends", "cuda", "device", "dtype", "newaxis"]
    __all__ += ["accelerator", "channels_last", "contiguous_format", "preserve_format", "testing"]
    __all__ += [*{*dir(_tinyattn), "nn", "optim", "utils", *ADDED}]

    def __dir__() -> list[str]:
        return sorted({*__all__})


def __getattr__(name: str) -> Any:
    return getattr(_tinyattn, name)


try:  # einops finds the class by itself
    from . import einops_backend as einops_backend
except ImportError as error:
    if error.name != "einops":  # it is installed
        warnings.warn(f"no einops for Tensors: it needs einops 0.6 to 0.8 ({error})", stacklevel=2)
