"""tinyattn: an autograd engine and every attention component, small enough to read.

    import tinyattn as ta
    from tinyattn import nn, optim, functional as F, masks, viz

Read the engine first, in the order that `engine/__init__.py` gives. Then read `tensors/tensor.py`,
the other ops, `kernels/reference.py` and `nn/`. These are the core; read the rest after it. With
TINYATTN_JIT=0 in the environment everything runs as plain Python and NumPy, so a print or a
breakpoint is reached in every forward.
"""

from __future__ import annotations

import importlib
from math import inf, nan, pi
from typing import TYPE_CHECKING, Any

import numpy as _np

from . import errors, functional, masks, nn, optim
from .base.backend import cuda_is_available
from .base.names import UnknownNameError
from .base.random import get_rng_state, manual_seed, set_rng_state
from .base.short_names import give_short_names as _give_short_names
from .engine.autograd import grad
from .engine.grad_mode import enable_grad, is_grad_enabled, no_grad, set_grad_enabled
from .engine.op import op
from .kernels.threads import get_num_threads, set_num_threads
from .tensors import functions as _functions
from .tensors.create import (
    arange,
    as_tensor,
    cat,
    empty,
    eye,
    from_dlpack,
    from_numpy,
    full,
    full_like,
    hstack,
    linspace,
    maximum,
    minimum,
    ones,
    ones_like,
    rand,
    rand_like,
    randint,
    randn,
    randn_like,
    randperm,
    stack,
    tensor,
    vstack,
    where,
    zeros,
    zeros_like,
)
from .tensors.einsum import einsum
from .tensors.functions import *  # noqa: F403 (exp, sum, ...: the list is in that file)
from .tensors.tensor import Tensor

__version__ = "0.1.0"

float16, float32, float64 = _np.float16, _np.float32, _np.float64
int8, int16, int32, int64, uint8 = _np.int8, _np.int16, _np.int32, _np.int64, _np.uint8
bool = _np.bool_

# Imported when first used: they are not needed to compute, and cost time or optional packages.
if TYPE_CHECKING:
    from . import models as models
    from . import testing as testing
    from . import viz as viz
    from .models import generation as generation
    from .models import interop as interop
    from .testing import gradcheck as gradcheck
    from .testing import gradgradcheck as gradgradcheck
    from .training import batches as batches
    from .training import checkpoint as checkpoint
    from .training import distributed as distributed
    from .training.captured_step import capture as capture
    from .training.checkpoint import load as load
    from .training.checkpoint import save as save

_LATE_FUNCTIONS = {
    "capture": "training.captured_step",
    "gradcheck": "testing",
    "gradgradcheck": "testing",
    "save": "training.checkpoint",
    "load": "training.checkpoint",
}
_LATE_MODULES = {
    "batches": "training.batches",
    "checkpoint": "training.checkpoint",
    "distributed": "training.distributed",
    "generation": "models.generation",
    "interop": "models.interop",
    "models": "models",
    "testing": "testing",
    "viz": "viz",
}
_give_short_names(__name__, _LATE_MODULES)  # `import tinyattn.batches` works too

__all__ = [
    "Tensor",
    "arange",
    "as_tensor",
    "batches",
    "bool",
    "capture",
    "cat",
    "cuda_is_available",
    "distributed",
    "einsum",
    "empty",
    "enable_grad",
    "errors",
    "eye",
    "float16",
    "float32",
    "float64",
    "from_dlpack",
    "from_numpy",
    "full",
    "full_like",
    "functional",
    "generation",
    "get_num_threads",
    "get_rng_state",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "hstack",
    "inf",
    "int8",
    "int16",
    "int32",
    "int64",
    "interop",
    "is_grad_enabled",
    "linspace",
    "load",
    "manual_seed",
    "masks",
    "maximum",
    "minimum",
    "models",
    "nan",
    "nn",
    "no_grad",
    "ones",
    "ones_like",
    "op",
    "optim",
    "pi",
    "rand",
    "rand_like",
    "randint",
    "randn",
    "randn_like",
    "randperm",
    "save",
    "set_grad_enabled",
    "set_num_threads",
    "set_rng_state",
    "stack",
    "tensor",
    "uint8",
    "viz",
    "vstack",
    "where",
    "zeros",
    "zeros_like",
]
__all__ += _functions.__all__

if not TYPE_CHECKING:  # or every name would be one of ta for a type checker

    def __getattr__(name: str) -> Any:
        if name in _LATE_FUNCTIONS:
            value = getattr(importlib.import_module(f".{_LATE_FUNCTIONS[name]}", __name__), name)
            globals()[name] = value
            return value
        if name in _LATE_MODULES:
            return importlib.import_module(f".{_LATE_MODULES[name]}", __name__)
        raise UnknownNameError("ta", name, __all__)

    def __dir__() -> list[str]:
        return sorted({*__all__, *_LATE_MODULES})
