"""Grids whose programs wait for each other: each program has a thread of its own.

The pool of `cpu.py` runs programs one after the other on each of its threads, so a program that
waits for one behind it on its own thread would wait for ever. Here all programs run at the same
time, however many cores there are; the system divides the cores among them.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from typing import Any

from tilewright.base.diagnostics import DeviceError
from tilewright.runtime.devices.scratch import SCRATCH

MOST_PROGRAMS = 1024
"""The largest cooperative grid: beyond it a barrier takes seconds on any processor of today."""

_SLICE_SECONDS = 0.05  # how long the caller waits before it lets Python handle signals

_KERNEL: Any = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
)


def launch(
    name: str, function: int, args: int | bytes, grid: tuple[int, int, int], scratch_bytes: int = 0
) -> None:
    """Run all programs of a grid at the same time and return when all have ended.

    Args:
        name: the kernel's, for errors.
        function, args, grid, scratch_bytes: as for `cpu.launch`.

    Raises:
        DeviceError: more programs than `MOST_PROGRAMS`, or than the system starts threads.
        KeyboardInterrupt, or what a signal handler raises: all programs have ended then.
    """
    total = grid[0] * grid[1] * grid[2]
    if total > MOST_PROGRAMS:
        raise _too_many(name, total, f"at most {MOST_PROGRAMS} run at the same time on the CPU")
    kernel, extents = _KERNEL(function), (ctypes.c_int32 * 3)(*grid)
    gate, refused = threading.Event(), threading.Event()

    def run(number: int) -> None:
        address, _memory = SCRATCH.reserve(scratch_bytes) if scratch_bytes else (0, None)
        gate.wait()
        if not refused.is_set():
            kernel(args, address, number, number + 1, extents)

    # No program begins before all threads are there: it might wait for one that never comes.
    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(total)]
    started: list[threading.Thread] = []
    try:
        for thread in threads:
            thread.start()
            started.append(thread)
    except BaseException as error:
        refused.set()
        if isinstance(error, RuntimeError):
            why = f"the system starts no more than {len(started)}"
            raise _too_many(name, total, why) from None
        raise
    finally:
        gate.set()
        _wait(name, started)


def _too_many(name: str, total: int, why: str) -> DeviceError:
    return DeviceError(
        f"launching {name} with launch_cooperative_grid: each of its {total} programs needs a "
        f"thread, and {why}"
    )


def _wait(name: str, threads: list[threading.Thread]) -> None:
    """Wait whatever happens, for the programs use the caller's memory."""
    interrupts: list[BaseException] = []
    for thread in threads:
        while thread.is_alive():
            try:
                thread.join(_SLICE_SECONDS)
            except BaseException as error:
                interrupts.append(error)
                if len(interrupts) > 1:
                    report(name)
    if interrupts:
        raise interrupts[0]


def report(name: str) -> None:
    """Say on stderr what keeps a launch from being interrupted."""
    sys.stderr.write(
        f"tilewright: programs of {name} still run; the launch ends when they do. If they wait for "
        "each other for ever, end the process by SIGQUIT (Ctrl-\\)\n"
    )
    sys.stderr.flush()
