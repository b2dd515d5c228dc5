"""The workspace of threads that launch on the CPU."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

SCRATCH_ALIGNMENT = 64


class Scratch(threading.local):
    """Workspace of each thread that launches; it grows to the largest one asked for."""

    def __init__(self) -> None:
        self.size = 0
        self.address = 0
        self.buffer: Any = None

    def reserve(self, size: int) -> tuple[int, object]:
        """An aligned address with `size` bytes behind it, and what keeps them alive."""
        if size > self.size:
            self.buffer = ctypes.create_string_buffer(size + SCRATCH_ALIGNMENT - 1)
            self.address = -(-ctypes.addressof(self.buffer) // SCRATCH_ALIGNMENT)
            self.address *= SCRATCH_ALIGNMENT
            self.size = size
        return self.address, self.buffer


SCRATCH = Scratch()
