"""Cooperative launches on the CPU (`launch_cooperative_grid`): one thread for each program.

The pool of `cpu.py` runs several programs one after the other on each thread; a grid-wide barrier
would deadlock there, because a program could wait for one that is queued after it on its own
thread. Here all programs run concurrently, regardless of the number of cores.

Cost: one thread creation per program and launch (about 10 µs each), and context switches if there
are more programs than cores.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from typing import Any

from tilewright.base.diagnostics import DeviceError
from tilewright.runtime.devices.scratch import SCRATCH

MOST_PROGRAMS = 1024
"""The largest cooperative grid: with more threads a single barrier takes seconds."""

_SLICE_SECONDS = 0.05  # timeout of a wait, after which Python handles pending signals

_KERNEL: Any = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
)


def launch(
    name: str, function: int, args: int | bytes, grid: tuple[int, int, int], scratch_bytes: int = 0
) -> None:
    """Run all programs of a grid at the same time and return when all have ended.

    Args:
        name: the kernel's name, for error messages.
        function, args, grid, scratch_bytes: as for `cpu.launch`.

    Raises:
        DeviceError: there are more programs than `MOST_PROGRAMS`, or the system cannot start that
            many threads.
        KeyboardInterrupt, or an exception of a signal handler: after all programs have ended.
    """
    total = grid[0] * grid[1] * grid[2]
    if total > MOST_PROGRAMS:
        raise _too_many(name, total, f"at most {MOST_PROGRAMS} run at the same time on the CPU")
    kernel, extents = _KERNEL(function), (ctypes.c_int32 * 3)(*grid)
    gate, abandoned = threading.Event(), threading.Event()

    def run(number: int) -> None:
        address, _memory = SCRATCH.reserve(scratch_bytes) if scratch_bytes else (0, None)
        gate.wait()
        if not abandoned.is_set():
            kernel(args, address, number, number + 1, extents)

    # No program begins before all threads have started: if a later thread cannot be started, a
    # barrier in an earlier program would never complete.
    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(total)]
    started: list[threading.Thread] = []
    try:
        for thread in threads:
            thread.start()
            started.append(thread)
    except BaseException as error:
        abandoned.set()
        if isinstance(error, RuntimeError):
            why = f"the system starts no more than {len(started)}"
            raise _too_many(name, total, why) from None
        raise
    finally:
        _wait(name, started, gate)


def _too_many(name: str, total: int, why: str) -> DeviceError:
    return DeviceError(
        f"launching {name} with launch_cooperative_grid: each of its {total} programs needs a "
        f"thread, and {why}"
    )


def _wait(name: str, threads: list[threading.Thread], gate: threading.Event) -> None:
    """Open the gate and join all threads, even after Ctrl-C: the programs use memory of the caller.

    The gate is opened where interrupts are caught: once it is open, programs run.
    """
    interrupts: list[BaseException] = []

    def note(error: BaseException) -> None:
        interrupts.append(error)
        if len(interrupts) > 1:
            report(name)

    joined = False
    while not joined:
        # An interrupt may come at any bytecode, also while another one is noted: twice.
        try:
            while not joined:
                try:
                    gate.set()
                    _join(threads)
                    joined = True
                except BaseException as error:
                    note(error)
        except BaseException as error:
            note(error)
    if interrupts:
        raise interrupts[0]


def _join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        while thread.is_alive():
            thread.join(_SLICE_SECONDS)


def report(name: str) -> None:
    """Print to stderr why a launch cannot be interrupted yet."""
    sys.stderr.write(
        f"tilewright: programs of {name} still run; the launch ends when they do. If they wait for "
        "each other for ever, end the process by SIGQUIT (Ctrl-\\)\n"
    )
    sys.stderr.flush()
