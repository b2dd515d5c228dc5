"""Workspaces for kernels on the CPU: one per thread, kept between launches."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

SCRATCH_ALIGNMENT = 64


class Scratch(threading.local):
    """The calling thread's workspace, which grows to the largest size that was reserved."""

    def __init__(self) -> None:
        self.size = 0
        self.address = 0
        self.buffer: Any = None

    def reserve(self, size: int) -> tuple[int, object]:
        """The 64-byte aligned address of at least `size` bytes, and the object that owns them."""
        if size > self.size:
            self.buffer = ctypes.create_string_buffer(size + SCRATCH_ALIGNMENT - 1)
            self.address = -(-ctypes.addressof(self.buffer) // SCRATCH_ALIGNMENT)
            self.address *= SCRATCH_ALIGNMENT
            self.size = size
        return self.address, self.buffer


SCRATCH = Scratch()
