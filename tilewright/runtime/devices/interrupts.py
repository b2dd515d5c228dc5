"""Reports on stderr which kernel is running if Ctrl-C is pressed twice and native code is stuck.

Python runs signal handlers between bytecodes: none runs while a kernel on the main thread is in a
deadlock. Therefore signal numbers are also written to a pipe (`signal.set_wakeup_fd`), which a
thread reads. There is only one such pipe per process: nothing is watched if the program or an
event loop has set one, or if SIGINT has another handler than Python's.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

STUCK_SECONDS = 0.3
"""How long the launch must still run after the second Ctrl-C, in seconds: several time slices,
after each of which Python would have handled the signal."""

Running = Callable[[], tuple[int, int]]
"""Returns the address of the kernel that is running in native code (0 for none), and a counter of
entries into native code."""

_pipe: tuple[int, int] | None = None


def watch(running: Running, report: Callable[[int], None]) -> None:
    """Watch for interrupts that Python cannot handle, once in a process.

    Args:
        running: see `Running`.
        report: called from another thread with the address of the running kernel.
    """
    global _pipe
    on_main_thread = threading.current_thread() is threading.main_thread()
    if _pipe is not None or not on_main_thread or not hasattr(os, "register_at_fork"):
        return
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    read, write = os.pipe()
    os.set_blocking(write, False)
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    if before != -1:
        signal.set_wakeup_fd(before)
        os.close(read)
        os.close(write)
        return
    _pipe = read, write
    thread = threading.Thread(
        target=_read, args=(read, running, report), name="tilewright-interrupts", daemon=True
    )
    thread.start()


def _read(read: int, running: Running, report: Callable[[int], None]) -> None:
    interrupted: tuple[int, int] | None = None
    while numbers := os.read(read, 64):
        for number in numbers:
            if number != signal.SIGINT:
                continue
            now = running()
            if now[0] and now == interrupted:
                time.sleep(STUCK_SECONDS)
                if running() == now:
                    report(now[0])
            interrupted = now


def _after_fork_in_child() -> None:
    """Close the inherited pipe: the thread that reads it exists in the parent only."""
    global _pipe
    if _pipe is None:
        return
    try:
        installed = signal.set_wakeup_fd(-1)
    except ValueError:  # forked by another thread than the main one
        installed = -1
    if installed not in (-1, _pipe[1]):
        signal.set_wakeup_fd(installed)
    for end in _pipe:
        os.close(end)
    _pipe = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
