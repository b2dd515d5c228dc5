"""The native code of a launch as LLVM IR."""

from __future__ import annotations

from tilewright.runtime.native.bound import freeze, launch_bound
from tilewright.runtime.native.call import bind, launch
from tilewright.runtime.native.routine import text_of


def generate() -> str:
    """The text, for the table of kinds of arguments as it is now."""
    return text_of("launch", (bind, launch, freeze, launch_bound))
