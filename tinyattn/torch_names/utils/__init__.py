"""PyTorch's `torch.utils`: what programs use of `data`.

`checkpoint` is not here: call the function itself, because its results would be kept all the same.

In tinyattn: tinyattn.training has DataLoader and pad_sequence; data sets are not here
"""

from . import data as data
