"""Asks the C library to keep the memory of large buffers instead of giving it back to the system after each message."""

import ctypes
from typing import Final

# Names and numbers of glibc's <malloc.h>.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
REUSED_BYTES: Final = 4 << 20  # buffers up to this size come from the heap
KEPT_BYTES: Final = 32 << 20  # so much of the heap's end stays when it is free


def keep_buffers() -> bool:
    """A read takes a quarter of a megabyte; fresh pages for it cost more time than the messages in it.

    False: this C library cannot be asked, and nothing has changed.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, REUSED_BYTES)) and bool(mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES))
