"""The names of torch.cuda that a program asks before it uses a GPU.

In tinyattn: ta.cuda_is_available() is there, and devices are strings
"""

from __future__ import annotations

from ..base import random
from ..base.backend import cuda_is_available, module_of

is_available = cuda_is_available


def device_count() -> int:
    """1 or 0, because tinyattn uses the first GPU that it sees."""
    return int(is_available())


def is_bf16_supported() -> bool:
    """False, also on a GPU that has bfloat16."""
    return False


def manual_seed(seed: int) -> None:
    """Seed tinyattn's one generator, if there is a GPU; without one nothing happens."""
    if is_available():
        random.manual_seed(seed)


manual_seed_all = manual_seed


def empty_cache() -> None:
    """Give the memory that no tensor uses back to the GPU."""
    if is_available():
        module_of("cuda").get_default_memory_pool().free_all_blocks()


def synchronize(device: object = None) -> None:
    """Wait until the GPU has computed all that it was asked for. DeviceError without a GPU."""
    module_of("cuda").cuda.Device().synchronize()


def __getattr__(name: str) -> None:
    raise AttributeError(f"no torch.cuda.{name} here: there is one GPU, and dtypes are explicit")
