"""Functions of Tensors, without parameters of their own: `from tinyattn import functional as F`.

Each is written once, in the file that its line names, most in `tinyattn/ops`. `F.softmax`,
`x.softmax()` and `ta.softmax` are one object.
"""

from ..base.names import offer as _offer
from ..ops.activations import gelu as gelu
from ..ops.activations import relu as relu
from ..ops.activations import sigmoid as sigmoid
from ..ops.activations import silu as silu
from ..ops.activations import softplus as softplus
from ..ops.dropout import dropout as dropout
from ..ops.elementwise import tanh as tanh
from ..ops.embedding import embedding as embedding
from ..ops.losses import binary_cross_entropy_with_logits as binary_cross_entropy_with_logits
from ..ops.losses import cross_entropy as cross_entropy
from ..ops.losses import kl_div as kl_div
from ..ops.losses import mse_loss as mse_loss
from ..ops.losses import nll_loss as nll_loss
from ..ops.normalization import layer_norm as layer_norm
from ..ops.normalization import normalize as normalize
from ..ops.normalization import rms_norm as rms_norm
from ..ops.positions import rotary_embedding as rotary_embedding
from ..ops.products import linear as linear
from ..ops.scaled_dot_product import scaled_dot_product_attention as scaled_dot_product_attention
from ..ops.scaled_dot_product import transpose_output as transpose_output
from ..ops.scaled_dot_product import transpose_qkv as transpose_qkv
from ..ops.sequences import masked_mean as masked_mean
from ..ops.sequences import pack_padded_sequence as pack_padded_sequence
from ..ops.sequences import pad as pad
from ..ops.sequences import pad_packed_sequence as pad_packed_sequence
from ..ops.sequences import sequence_mask as sequence_mask
from ..ops.softmax import log_softmax as log_softmax
from ..ops.softmax import masked_softmax as masked_softmax
from ..ops.softmax import softmax as softmax
from ..tensors.create import alibi_bias as alibi_bias
from ..tensors.create import one_hot as one_hot

_own = [name for name, value in globals().items() if name[0].islower() and callable(value)]
_offer(globals(), "F", sorted(_own))
