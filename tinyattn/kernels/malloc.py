"""malloc, which NumPy's arrays come from, keeps freed memory here.

By default glibc gives large freed arrays back to the system. The next step asks for them again, and
the system clears each page first. So at the first kernel malloc gets the highest thresholds that
glibc itself would ever choose: arrays below 32 MiB are kept, and 64 MiB of free memory at the end.

This concerns the whole process. It does not happen where the user has set a variable of glibc's
malloc, nor with another C library: macOS, Windows and musl have no `mallopt` with these meanings.
"""

import ctypes
import os
from contextlib import suppress

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h


def keep_freed_memory() -> None:
    if any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return
    with suppress(AttributeError, OSError, ValueError):  # ValueError: another C library
        if "glibc" in (os.confstr("CS_GNU_LIBC_VERSION") or ""):
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(M_MMAP_THRESHOLD, 32 << 20)
            mallopt(M_TRIM_THRESHOLD, 64 << 20)
