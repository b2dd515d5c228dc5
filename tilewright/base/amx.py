"""Permission to use AMX, which Linux grants a process only on request.

The tile registers add 8 KB to the saved state of a thread, so Linux disables them by default, and
using one without permission raises SIGILL. The permission applies to all threads and to forked
children. Both the compiler, to select instructions, and the device, before it runs them, call this.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache

REQUEST = (
    158,  # the system call arch_prctl on x86-64
    0x1023,  # ARCH_REQ_XCOMP_PERM, from asm/prctl.h
    18,  # the processor state component: tile data
)
"""The system call that requests the permission, and its arguments."""


@cache
def amx_permitted() -> bool:
    """Whether this process may use AMX. The first call requests the permission.

    False if the processor lacks AMX, on Linux before 5.16, and on other systems.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    syscall = ctypes.CDLL(None).syscall
    arguments = (ctypes.c_long(n) for n in REQUEST)
    return syscall(*arguments) == 0
