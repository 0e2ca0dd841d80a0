"""The broker and its core: how often others are given it, and a word with Linux on who goes first."""

import ctypes
import platform
import resource
import struct
import sys
from typing import Final

TURN_NS: Final = 100_000  # the least that Linux takes: a message needs less

# struct sched_attr of <linux/sched/types.h>, as long as it was at first: size, policy, flags, nice, priority, and
# runtime, deadline, period in nanoseconds.
_ATTRIBUTES: Final = struct.Struct("<IIQiIQQQ")
_FOR_US_ALONE: Final = 1  # SCHED_FLAG_RESET_ON_FORK: not for threads and processes that are started later
_ORDINARY: Final = 0  # SCHED_OTHER
# The C library has had no function for it until lately, so that it is called by its number (set, get).
_CALLS: Final = {"x86_64": (314, 315), "aarch64": (274, 275), "riscv64": (274, 275)}
_OF_THIS_THREAD: Final = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)


def times_ousted() -> int:
    """How often so far others were given the core although this thread had not gone to sleep."""
    return resource.getrusage(_OF_THIS_THREAD).ru_nivcsw


def take_short_turns() -> bool:
    """Asks for turns of a tenth of a millisecond, and so to go before those whose turns are longer.

    A broker has something to do often, and little of it. Without this it may wait each time until a process that
    computes has had its whole turn, which is some milliseconds. It gets no more of the processor than before. False:
    this system cannot be asked (Linux before 6.12 says yes, and goes on as before).
    """
    found = _attributes(0)
    if found is None or found[1] != _ORDINARY:  # otherwise somebody has chosen for us
        return False
    _, policy, flags, nice, priority, _, deadline, period = found
    wanted = (_ATTRIBUTES.size, policy, flags | _FOR_US_ALONE, nice, priority, TURN_NS, deadline, period)
    return _syscall(0, 0, _ATTRIBUTES.pack(*wanted), 0)


def turn_ns(thread: int = 0) -> int:
    """How long a thread's turns are, as far as Linux tells; 0: nobody can say."""
    found = _attributes(thread)
    return 0 if found is None else found[5]


def _attributes(thread: int) -> tuple[int, ...] | None:
    data = ctypes.create_string_buffer(_ATTRIBUTES.size)
    return _ATTRIBUTES.unpack(data.raw) if _syscall(1, thread, data, _ATTRIBUTES.size, 0) else None


def _syscall(which: int, *arguments: object) -> bool:
    numbers = _CALLS.get(platform.machine()) if sys.platform == "linux" else None
    return numbers is not None and ctypes.CDLL(None).syscall(numbers[which], *arguments) == 0
