"""The kernels on a GPU: CUDA C++, compiled when first launched, through CuPy.

Each `.cu` file stands beside the Python of the same name that launches it. A function here takes
the arguments of its plain form in `../reference.py`. It brings the arrays into the layout of the
kernel, chooses how many threads work on what, and launches. It never waits for the device.

    attention     attention, tile by tile
    softmax       softmax, its logarithm, and cross-entropy
    weighted_sum  weights times values, without invisible pairs
    layer_norm    layer normalization, and RMSNorm
    elementwise   activations and dropout
    embedding     rows of a table
    sums          sums over rows
    optimizer     Adam, and the clipping of gradients
    checks        checks of integers, and which keys are visible at all
    launch.py     how a kernel is compiled, and gets its arguments
    common.cu     functions that all kernels use
    cublas.py     matrix products of a captured step
"""

from . import optimizer as optimizer
from .attention import attention as attention
from .attention import attention_backward as attention_backward
from .attention import tile_shape as tile_shape
from .checks import check_range as check_range
from .checks import visible_to_any as visible_to_any
from .elementwise import dropout as dropout
from .elementwise import erf as erf
from .elementwise import floor_divide as floor_divide
from .elementwise import gelu as gelu
from .elementwise import gelu_backward as gelu_backward
from .elementwise import gelu_tanh as gelu_tanh
from .elementwise import gelu_tanh_backward as gelu_tanh_backward
from .elementwise import relu as relu
from .elementwise import relu_backward as relu_backward
from .elementwise import remainder as remainder
from .elementwise import sigmoid as sigmoid
from .elementwise import sigmoid_backward as sigmoid_backward
from .elementwise import silu as silu
from .elementwise import silu_backward as silu_backward
from .elementwise import softplus as softplus
from .embedding import scatter_rows as scatter_rows
from .embedding import take_rows as take_rows
from .launch import FOLDER as FOLDER
from .launch import source as source
from .layer_norm import layer_norm as layer_norm
from .layer_norm import layer_norm_backward as layer_norm_backward
from .layer_norm import rms_norm as rms_norm
from .layer_norm import rms_norm_backward as rms_norm_backward
from .softmax import cross_entropy as cross_entropy
from .softmax import cross_entropy_backward as cross_entropy_backward
from .softmax import log_softmax as log_softmax
from .softmax import log_softmax_backward as log_softmax_backward
from .softmax import masked_softmax as masked_softmax
from .softmax import masked_softmax_backward as masked_softmax_backward
from .softmax import softmax as softmax
from .softmax import softmax_backward as softmax_backward
from .sums import sum_rows as sum_rows
from .weighted_sum import weighted_sum as weighted_sum
