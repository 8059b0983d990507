"""The names of torch.backends that programs set or ask."""

from types import SimpleNamespace

from . import cudnn as cudnn

# A program may allow a faster, less exact product; there is none here.
cuda = SimpleNamespace(matmul=SimpleNamespace(allow_tf32=False))
mps = SimpleNamespace(is_available=lambda: False, is_built=lambda: False)
