"""Reports on stderr which kernel was running when a memory fault ends the process.

An access outside of all memory ends the process by a signal, without an exception. The handler of
that signal is native code (`pool_fault` in cpu_pool.ll), as no Python code may run then. It writes
the report of the kernel that is running, if there is one, restores the previous handler, and
delegates to it: Python's `faulthandler`, for example, or a core dump.
"""

from __future__ import annotations

import ctypes
import signal
import sys
from typing import NamedTuple


class _Action(NamedTuple):
    """The system's `struct sigaction`: its size, the offset of its flags, and those that are set:
    SA_SIGINFO and SA_ONSTACK. The handler is its first field."""

    size: int
    flags_at: int
    flags: int


_ACTIONS = {"linux": _Action(152, 136, 0x0800_0004), "darwin": _Action(16, 12, 0x41)}
_SIGNALS = {"SIGSEGV": "FAULT_SEGV", "SIGBUS": "FAULT_BUS"}

# Offsets into the memory that the handler reads.
LAYOUT = {
    "FAULT_POOL": 0,  # the pool
    "FAULT_REPORTS": 8,  # the first report
    "FAULT_SEGV": 16,  # the action for SIGSEGV before
    "FAULT_BUS": 192,  # and for SIGBUS
}
_SIZE = 384

_memory = (ctypes.c_uint8 * _SIZE)()


class _Report(ctypes.Structure):
    """The text that the handler writes while a function is running: an item of a linked list, which
    is never removed, as the handler may be reading it, but reused for another function."""

    _fields_ = (
        ("following", ctypes.c_void_p),
        ("function", ctypes.c_void_p),
        ("text", ctypes.c_char_p),
        ("length", ctypes.c_int64),
    )


_reports: dict[int, _Report] = {}
_unused: list[_Report] = []
_installed = False


def memory() -> int:
    """The address of the memory that the handler reads."""
    return ctypes.addressof(_memory)


def _word(name: str) -> ctypes.c_void_p:
    return ctypes.c_void_p.from_buffer(_memory, LAYOUT[name])


def watch(pool: int, handler: int) -> None:
    """Report faults of kernels that a pool runs, from now on.

    Args:
        pool: the address of its memory.
        handler: that of `pool_fault`.
    """
    global _installed
    _word("FAULT_POOL").value = pool
    action = _ACTIONS.get(sys.platform)
    if _installed or action is None:
        return
    _installed = True
    ours = (ctypes.c_uint8 * action.size)()
    ctypes.c_void_p.from_buffer(ours).value = handler
    ctypes.c_int32.from_buffer(ours, action.flags_at).value = action.flags
    for name, place in _SIGNALS.items():
        before = ctypes.c_void_p(memory() + LAYOUT[place])
        ctypes.CDLL(None).sigaction(int(signal.Signals[name]), ctypes.byref(ours), before)


def add(function: int, name: str) -> None:
    """Register the report of a kernel, by its address."""
    text = (
        f"tilewright: memory fault in kernel {name}: it probably accesses an element outside of "
        "its arguments. With TILEWRIGHT_INTERPRET=1 the program stops there, with the line.\n"
    ).encode()
    report = _unused.pop() if _unused else _new_report()
    report.text, report.length = text, len(text)
    report.function = function
    _reports[function] = report


def _new_report() -> _Report:
    first = _word("FAULT_REPORTS")
    report = _Report(first.value)
    first.value = ctypes.addressof(report)
    return report


def drop(function: int) -> None:
    """Forget a kernel whose code is being unloaded."""
    report = _reports.pop(function, None)
    if report is not None:
        report.function = None
        _unused.append(report)
