"""A thread pool in Python with the interface of `cpu.Pool`, for platforms without pthreads.

Kernels run without the GIL, but each chunk is taken with it; `cpu.NativePool` is faster.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from tilewright.runtime.devices.scratch import SCRATCH


class PythonPool:
    """Runs a grid in chunks of programs, which threads take in ascending order."""

    CHUNKS_PER_THREAD = 8

    def __init__(self) -> None:
        self._kernel_type: Any = ctypes.CFUNCTYPE(
            None,
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_int64,
            ctypes.c_int64,
            ctypes.c_void_p,
        )
        self._executor: ThreadPoolExecutor | None = None
        self._size = 0
        self._lock = threading.Lock()

    def launch(
        self,
        function: int,
        args: int | bytes,
        grid: tuple[int, int, int],
        scratch_bytes: int,
        threads: int,
    ) -> None:
        kernel = self._kernel_type(function)
        extents = (ctypes.c_int32 * 3)(*grid)
        total = grid[0] * grid[1] * grid[2]
        threads = min(threads, total)
        step = max(1, total // (threads * self.CHUNKS_PER_THREAD))
        chunks = iter(range(0, total, step))
        taking = threading.Lock()
        cancelled = threading.Event()

        def drain() -> None:
            address, _memory = SCRATCH.reserve(scratch_bytes)
            while not cancelled.is_set():
                with taking:
                    first = next(chunks, None)
                if first is None:
                    return
                kernel(args, address, first, min(first + step, total), extents)

        futures: list[Future[None]] = []
        try:
            if threads > 1:
                workers = self._workers(threads - 1)
                futures += [workers.submit(drain) for _ in range(threads - 1)]
            drain()
        except BaseException:
            cancelled.set()
            raise
        finally:
            _wait_for_all(futures)

    def close(self) -> None:
        """End the threads; the next launch starts new ones."""
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown()

    def _workers(self, count: int) -> ThreadPoolExecutor:
        with self._lock:
            if self._executor is None or count > self._size:
                # The previous executor still finishes work submitted by other threads.
                self._executor = ThreadPoolExecutor(count, thread_name_prefix="tilewright")
                self._size = count
            return self._executor


def _wait_for_all(futures: Sequence[Future[None]]) -> None:
    """Wait for all threads, even after Ctrl-C: they use memory of the caller."""
    while True:
        try:
            wait(futures)
            return
        except KeyboardInterrupt:
            for future in futures:
                future.cancel()  # has no effect on those that have started
