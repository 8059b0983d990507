"""PyTorch's `torch.utils`: what programs use of `data`.

`checkpoint` is not here: call the function itself, because its results would be kept all the same.
"""

from . import data as data
