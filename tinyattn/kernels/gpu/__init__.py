"""The kernels on a GPU: CUDA C++ in `../cuda/*.cu`, compiled at run time and launched through CuPy.

A public function here is a door, like those of `cpu`: it brings arrays into the layout its kernel
takes, chooses how many threads work on what, and launches. Each has its plain twin in
`reference.py`, which also runs for what a kernel does not take. Nothing here waits for the device.
"""

from . import optimizer as optimizer
from .attention import attention as attention
from .attention import attention_backward as attention_backward
from .attention import tile_shape as tile_shape
from .attention import weighted_sum as weighted_sum
from .checks import check_range as check_range
from .checks import visible_keys as visible_keys
from .elementwise import dropout as dropout
from .elementwise import erf as erf
from .elementwise import relu_backward as relu_backward
from .elementwise import scatter_rows as scatter_rows
from .elementwise import take_rows as take_rows
from .launch import FOLDER as FOLDER
from .launch import source as source
from .layer_norm import layer_norm as layer_norm
from .layer_norm import layer_norm_backward as layer_norm_backward
from .layer_norm import sum_rows as sum_rows
from .softmax import cross_entropy as cross_entropy
from .softmax import cross_entropy_backward as cross_entropy_backward
from .softmax import log_softmax as log_softmax
from .softmax import log_softmax_backward as log_softmax_backward
from .softmax import masked_softmax as masked_softmax
from .softmax import masked_softmax_backward as masked_softmax_backward
from .softmax import softmax as softmax
from .softmax import softmax_backward as softmax_backward
