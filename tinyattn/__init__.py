"""tinyattn: an autograd engine and every attention component, small enough to read.

    import tinyattn as ta
    from tinyattn import nn, optim, functional as F, masks, viz

Read the engine first, in the order that `engine/__init__.py` gives. Then read the functions in
`ops/`, `tensors/tensor.py` and `nn/`. These are the core; read the rest after it. With
TINYATTN_JIT=0 in the environment everything runs as plain Python and NumPy, so a print or a
breakpoint is reached in every forward.
"""

import importlib as _importlib
from math import inf as inf
from math import nan as nan
from math import pi as pi
from typing import TYPE_CHECKING
from typing import Any as _Any

import numpy as _np

from . import errors as errors
from . import functional as functional
from . import masks as masks
from . import nn as nn
from . import optim as optim
from .base.backend import cuda_is_available as cuda_is_available
from .base.names import UnknownNameError as _UnknownNameError
from .base.random import get_rng_state as get_rng_state
from .base.random import manual_seed as manual_seed
from .base.random import set_rng_state as set_rng_state
from .engine.autograd import grad as grad
from .engine.grad_mode import enable_grad as enable_grad
from .engine.grad_mode import is_grad_enabled as is_grad_enabled
from .engine.grad_mode import no_grad as no_grad
from .engine.grad_mode import set_grad_enabled as set_grad_enabled
from .kernels.threads import get_num_threads as get_num_threads
from .kernels.threads import set_num_threads as set_num_threads
from .ops.activations import relu as relu
from .ops.activations import sigmoid as sigmoid
from .ops.arithmetic import maximum as maximum
from .ops.arithmetic import minimum as minimum
from .ops.arithmetic import remainder as remainder
from .ops.arithmetic import where as where
from .ops.einsum import einsum as einsum
from .ops.elementwise import abs as abs
from .ops.elementwise import clamp as clamp
from .ops.elementwise import clone as clone
from .ops.elementwise import cos as cos
from .ops.elementwise import erf as erf
from .ops.elementwise import exp as exp
from .ops.elementwise import expm1 as expm1
from .ops.elementwise import isfinite as isfinite
from .ops.elementwise import isnan as isnan
from .ops.elementwise import log as log
from .ops.elementwise import log1p as log1p
from .ops.elementwise import masked_fill as masked_fill
from .ops.elementwise import pow as pow
from .ops.elementwise import reciprocal as reciprocal
from .ops.elementwise import rsqrt as rsqrt
from .ops.elementwise import sign as sign
from .ops.elementwise import sin as sin
from .ops.elementwise import sqrt as sqrt
from .ops.elementwise import square as square
from .ops.elementwise import tanh as tanh
from .ops.indexing import chunk as chunk
from .ops.indexing import diagonal as diagonal
from .ops.indexing import flip as flip
from .ops.indexing import gather as gather
from .ops.indexing import split as split
from .ops.indexing import tril as tril
from .ops.indexing import triu as triu
from .ops.indexing import unbind as unbind
from .ops.order import allclose as allclose
from .ops.order import amax as amax
from .ops.order import amin as amin
from .ops.order import argmax as argmax
from .ops.order import argmin as argmin
from .ops.order import argsort as argsort
from .ops.order import equal as equal
from .ops.order import max as max
from .ops.order import min as min
from .ops.order import multinomial as multinomial
from .ops.order import sort as sort
from .ops.order import topk as topk
from .ops.products import bmm as bmm
from .ops.products import dot as dot
from .ops.products import matmul as matmul
from .ops.products import outer as outer
from .ops.reductions import all as all
from .ops.reductions import any as any
from .ops.reductions import cumsum as cumsum
from .ops.reductions import mean as mean
from .ops.reductions import norm as norm
from .ops.reductions import prod as prod
from .ops.reductions import std as std
from .ops.reductions import sum as sum
from .ops.reductions import var as var
from .ops.shapes import cat as cat
from .ops.shapes import flatten as flatten
from .ops.shapes import hstack as hstack
from .ops.shapes import permute as permute
from .ops.shapes import repeat_interleave as repeat_interleave
from .ops.shapes import reshape as reshape
from .ops.shapes import roll as roll
from .ops.shapes import squeeze as squeeze
from .ops.shapes import stack as stack
from .ops.shapes import swapaxes as swapaxes
from .ops.shapes import t as t
from .ops.shapes import transpose as transpose
from .ops.shapes import unsqueeze as unsqueeze
from .ops.shapes import vstack as vstack
from .ops.softmax import log_softmax as log_softmax
from .ops.softmax import logsumexp as logsumexp
from .ops.softmax import softmax as softmax
from .tensors.create import arange as arange
from .tensors.create import as_tensor as as_tensor
from .tensors.create import empty as empty
from .tensors.create import eye as eye
from .tensors.create import from_dlpack as from_dlpack
from .tensors.create import from_numpy as from_numpy
from .tensors.create import full as full
from .tensors.create import full_like as full_like
from .tensors.create import linspace as linspace
from .tensors.create import ones as ones
from .tensors.create import ones_like as ones_like
from .tensors.create import rand as rand
from .tensors.create import rand_like as rand_like
from .tensors.create import randint as randint
from .tensors.create import randn as randn
from .tensors.create import randn_like as randn_like
from .tensors.create import randperm as randperm
from .tensors.create import tensor as tensor
from .tensors.create import zeros as zeros
from .tensors.create import zeros_like as zeros_like
from .tensors.tensor import Tensor as Tensor

__version__ = "0.1.0"

numel = Tensor.numel

float16, float32, float64 = _np.float16, _np.float32, _np.float64
int8, int16, int32, int64, uint8 = _np.int8, _np.int16, _np.int32, _np.int64, _np.uint8
bool = _np.bool_

if TYPE_CHECKING:  # by an assignment, because checkers export no import under another name
    from .tensors.tensor import op_of_user as _op_of_user

    op = _op_of_user
else:
    from .engine.op import op as op

# Imported when first used: they are not needed to compute, and cost time or optional packages.
if TYPE_CHECKING:
    from . import generation as generation
    from . import interop as interop
    from . import models as models
    from . import testing as testing
    from . import viz as viz
    from .testing import gradcheck as gradcheck
    from .testing import gradgradcheck as gradgradcheck
    from .training import batches as batches
    from .training import checkpoint as checkpoint
    from .training import distributed as distributed
    from .training.checkpoint import load as load
    from .training.checkpoint import save as save

_LATE_FUNCTIONS = {
    "gradcheck": "testing",
    "gradgradcheck": "testing",
    "save": "training.checkpoint",
    "load": "training.checkpoint",
}
_LATE_MODULES = {name: name for name in ("generation", "interop", "models", "testing", "viz")}
_LATE_MODULES |= {n: f"training.{n}" for n in ("batches", "checkpoint", "distributed")}

if not TYPE_CHECKING:  # type checkers read the lines above
    # Rooms of the house, which are found by their files.
    _ROOMS = {"annotations", "base", "engine", "kernels", "ops", "tensors", "TYPE_CHECKING"}
    _offered = {name for name in globals() if not name.startswith("_")} - _ROOMS
    __all__ = sorted(_offered | {*_LATE_FUNCTIONS, *_LATE_MODULES})

    def __dir__() -> list[str]:
        return __all__

    def __getattr__(name: str) -> _Any:
        if name in _LATE_FUNCTIONS:
            value = getattr(_importlib.import_module(f".{_LATE_FUNCTIONS[name]}", __name__), name)
            globals()[name] = value
            return value
        if name in _LATE_MODULES:
            return _importlib.import_module(f".{_LATE_MODULES[name]}", __name__)
        raise _UnknownNameError("ta", name, __all__)
