"""Memory without pauses: the C library keeps large buffers, and the garbage collector looks only at what is new."""

import ctypes
import gc
from typing import Final

# Names and numbers of glibc's <malloc.h>.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
REUSED_BYTES: Final = 4 << 20  # buffers up to this size come from the heap
FEW_CLIENTS: Final = 1_000  # everything is looked at in four milliseconds,
GONE_CLIENTS: Final = 1_000  # when so many have gone since the last time
KEPT_BYTES: Final = 32 << 20  # so much of the heap's end stays when it is free


def keep_buffers() -> bool:
    """A read takes a quarter of a megabyte; fresh pages for it cost more time than the messages in it.

    False: this C library cannot be asked, and nothing has changed.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, REUSED_BYTES)) and bool(mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES))


class Garbage:
    """Collects what is new, and then takes it out of the collector's sight: with 20,000 clients a look at everything
    stops the broker for tens of milliseconds.

    Sessions, connections and messages free themselves when they end, over TLS and WebSocket too. Should something stay
    behind in a circle all the same, it is found by a look at everything, which is taken when there is little to see.
    """

    def __init__(self) -> None:
        self._has_looked = False
        self._looked_at = 0  # disconnects at the last look at everything

    def collect(self, clients: int, disconnects: int) -> None:
        """Now and then; `disconnects` is their number since the start."""
        gone = disconnects - self._looked_at
        if self._has_looked and gone < GONE_CLIENTS and not any(gc.get_count()[1:]):
            return  # too little is new for the collector to have looked at it itself
        self._has_looked = True
        if gone >= GONE_CLIENTS and clients <= FEW_CLIENTS:
            self._looked_at = disconnects
            gc.unfreeze()
        gc.collect()
        gc.freeze()
