"""The kernels on the CPU, compiled by Numba; `kernels/reference.py` has each as array code.

A public function brings arrays into the one layout that its kernel is compiled for (`layout.py`),
then calls the kernel, perhaps on several threads (`../threads.py`). Kernels release the GIL. They
use no fast-math flag that lets the compiler assume there are no NaN or inf. Sums are kept in
float64.

    attention.py      attention, block by block
    softmax.py        softmax over visible keys, and log_softmax
    cross_entropy.py  cross-entropy of rows of logits
    layer_norm.py     layer normalization
    rms_norm.py       RMSNorm
    activation.py     relu, and both forms of gelu
    exponential.py    functions made of exp and log: sigmoid, silu, softplus, erf
    division.py       remainders, whole quotients, 1 / sqrt(x)
    choice.py         where, and the sign
    dropout.py        dropout by a hash
    sums.py           sums over rows: a bias, an embedding; squares; products; running sums
    few_rows.py       products of few rows with a large matrix
    float16.py        float16 to float32
    gather.py         elements along one dimension by index
    optimizer.py      Adam
    row_functions.py  functions of one row, which the kernels above call
    layout.py         the one layout of arrays that kernels take
    compiler.py       how Numba compiles kernels, and keeps their code
"""

import warnings
from collections.abc import Callable
from typing import Any

from . import compiler
from .activation import gelu as gelu
from .activation import gelu_backward as gelu_backward
from .activation import gelu_tanh as gelu_tanh
from .activation import gelu_tanh_backward as gelu_tanh_backward
from .activation import relu as relu
from .activation import relu_backward as relu_backward
from .choice import sign as sign
from .choice import where as where
from .cross_entropy import cross_entropy as cross_entropy
from .cross_entropy import cross_entropy_backward as cross_entropy_backward
from .division import floor_divide as floor_divide
from .division import inverse_root as inverse_root
from .division import remainder as remainder
from .dropout import dropout as dropout
from .exponential import erf as erf
from .exponential import erf_elements
from .exponential import expm1 as expm1
from .exponential import log1p as log1p
from .exponential import sigmoid as sigmoid
from .exponential import sigmoid_backward as sigmoid_backward
from .exponential import silu as silu
from .exponential import silu_backward as silu_backward
from .exponential import softplus as softplus
from .few_rows import few_rows_product as few_rows_product
from .few_rows import int8_product as int8_product
from .float16 import float32_of as float32_of
from .gather import gather as gather
from .gather import scatter_along as scatter_along
from .layer_norm import layer_norm as layer_norm
from .layer_norm import layer_norm_backward as layer_norm_backward
from .optimizer import adam as adam
from .rms_norm import rms_norm as rms_norm
from .rms_norm import rms_norm_backward as rms_norm_backward
from .softmax import log_softmax as log_softmax
from .softmax import log_softmax_backward as log_softmax_backward
from .softmax import masked_softmax as masked_softmax
from .softmax import masked_softmax_backward as masked_softmax_backward
from .softmax import softmax as softmax
from .softmax import softmax_backward as softmax_backward
from .sums import add_bias as add_bias
from .sums import cumsum as cumsum
from .sums import multiply_rows as multiply_rows
from .sums import scaled_distances as scaled_distances
from .sums import scatter_rows as scatter_rows
from .sums import sum_large as sum_large
from .sums import sum_rows as sum_rows
from .sums import sum_squares as sum_squares

try:
    import scipy.linalg.cython_blas  # noqa: F401, what `@` calls in a compiled function
except ImportError as error:
    warnings.warn(
        f"attention is computed with plain NumPy, which is slower: no SciPy ({error})",
        RuntimeWarning,
        stacklevel=4,
    )
else:
    from .attention import attention as attention
    from .attention import attention_backward as attention_backward

compiler.delete_stale_code(erf_elements)


def kernel(name: str, of_reference: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel of this name, or that of the reference if there is none here."""
    compiled = globals().get(name)
    return of_reference if compiled is None else compiler.retrying(compiled)


compiler.let_forks_wait()
compiler.announce_compilation()
