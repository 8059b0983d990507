"""The names of torch.cuda that a program asks before it uses a GPU.

In tinyattn: ta.cuda_is_available() is there, and devices are strings
"""

from typing import Any

from ..base import random
from ..base.backend import cuda_is_available, module_of
from . import devices

is_available = cuda_is_available


def device_count() -> int:
    """1 or 0, because tinyattn uses the first GPU that it sees."""
    return int(is_available())


def current_device() -> int:
    """0. DeviceError without a GPU."""
    module_of("cuda")
    return 0


def current_accelerator(check_available: bool = False) -> Any:
    """The GPU, or None without one: `torch.accelerator` has this name."""
    return devices.device("cuda") if is_available() else None


def set_device(device: Any) -> None:
    """Nothing happens for the GPU that there is; DeviceError without one, or for another."""
    module_of(devices.device(device))


def get_device_name(device: Any = None) -> str:
    """The name of the GPU. DeviceError without one."""
    return module_of("cuda").cuda.runtime.getDeviceProperties(0)["name"].decode()


def memory_allocated(device: Any = None) -> int:
    """Bytes that tensors use on the GPU; 0 without one."""
    return module_of("cuda").get_default_memory_pool().used_bytes() if is_available() else 0


def memory_reserved(device: Any = None) -> int:
    """Bytes that are taken from the GPU, for tensors that are there or will be; 0 without one."""
    return module_of("cuda").get_default_memory_pool().total_bytes() if is_available() else 0


max_memory_reserved = memory_reserved  # it is given back by `empty_cache` alone


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
