"""Says on stderr which kernel runs when Ctrl-C is pressed twice while native code does not return.

Python handles signals between bytecodes: while a program of a launch runs on the main thread, and
waits for something that never comes, no handler runs. So the numbers of signals go to a pipe as
well (`signal.set_wakeup_fd`), which a thread reads. The pipe is for whoever sets it first: nothing
is watched where a program or an event loop has one, or handles SIGINT by itself.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

STUCK_SECONDS = 0.3
"""How long the same launch must run after the second Ctrl-C: several slices, after each of which
Python handles signals."""

Running = Callable[[], tuple[int, int]]
"""Gives the address of the kernel that runs in native code, 0 for none, and a number that changes
whenever a launch enters native code."""

_pipe: tuple[int, int] | None = None


def watch(running: Running, report: Callable[[int], None]) -> None:
    """Watch for interrupts that Python cannot handle, once in a process.

    Args:
        report: is called from another thread, with the address of the kernel that runs.
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
    """The thread is the parent's, and so are the signals that it reads."""
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
