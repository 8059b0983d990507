"""The kernels on the CPU, compiled by Numba; each has its plain twin in `kernels/reference.py`
(`encoder_layer` in `ops/encoder_layer.py`).

A public function is a door: it brings arrays into the one layout its loop is compiled for (C order,
native byte order, inputs read-only), then calls the loop. Without the door every new layout would
cost a compilation, and a wrong one would read garbage: jitted code checks nothing.

The loops release the GIL, and `threads.py` divides the larger ones: Numba's own parallel mode is
unsafe either under threads or after a fork, depending on the layer it finds. They never use the
fast-math flags that let the compiler assume there are no NaN or inf. Sums are kept in float64.
"""

from .activation import erf as erf
from .activation import relu as relu
from .activation import relu_backward as relu_backward
from .attention import attention as attention
from .attention import attention_backward as attention_backward
from .cross_entropy import cross_entropy as cross_entropy
from .cross_entropy import cross_entropy_backward as cross_entropy_backward
from .dropout import dropout as dropout
from .layer_norm import layer_norm as layer_norm
from .layer_norm import layer_norm_backward as layer_norm_backward
from .optimizer import adam as adam
from .softmax import log_softmax as log_softmax
from .softmax import masked_softmax as masked_softmax
from .softmax import masked_softmax_backward as masked_softmax_backward
from .softmax import softmax as softmax
from .softmax import softmax_backward as softmax_backward
from .sums import add_bias as add_bias
from .sums import scatter_rows as scatter_rows
from .sums import sum_rows as sum_rows
