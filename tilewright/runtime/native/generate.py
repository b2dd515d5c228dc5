"""Generates the LLVM IR of the fast path."""

from __future__ import annotations

from tilewright.runtime.native import read_parts, read_tensors
from tilewright.runtime.native.bound import freeze, launch_bound
from tilewright.runtime.native.call import bind, launch
from tilewright.runtime.native.call_compiled import launch_compiled, launch_substitute
from tilewright.runtime.native.routine import text_of

REGISTERED = (read_parts, read_tensors)  # readers of arguments


def generate() -> str:
    """The LLVM IR, for the current table of kinds (`runtime/kinds.py`)."""
    entries = (bind, launch, freeze, launch_bound, launch_compiled, launch_substitute)
    return text_of("launch", entries)
