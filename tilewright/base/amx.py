"""Permission to use AMX, which Linux gives a process only when it asks.

The tile registers make a thread's saved state 8 KB larger, so Linux leaves them off; using one
without permission ends the process with SIGILL. Permission is given once, to all threads and to
forked children. The compiler must know of it to choose instructions, and the device must have it
before it runs them, so both call here.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache

REQUEST = (
    158,  # number of the system call arch_prctl on x86-64
    0x1023,  # ARCH_REQ_XCOMP_PERM, of asm/prctl.h
    18,  # the component of the processor's state: tile data
)
"""The system call that asks, and its arguments."""


@cache
def amx_permitted() -> bool:
    """Ask for permission, the first time; whether this process may use AMX.

    False also where the processor has none, where Linux is older than 5.16, and on other systems.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    syscall = ctypes.CDLL(None).syscall
    arguments = (ctypes.c_long(n) for n in REQUEST)
    return syscall(*arguments) == 0
