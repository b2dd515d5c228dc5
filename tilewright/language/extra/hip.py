"""What AMD's GPUs have beyond the language; `libdevice` is the same for all targets."""

from __future__ import annotations

from typing import Any

from tilewright.language.extra import libdevice
from tilewright.language.extra.threads import num_threads, num_warps
from tilewright.language.values import builtin, tensor

__all__ = ["libdevice", "memrealtime", "num_threads", "num_warps", "smid"]


def _refuse(s: Any, name: str) -> ValueError:
    return ValueError(
        f"tl.extra.hip.{name} reads a register of AMD GPUs, which {s.options.backend_name!r} has "
        "not; ask `tl.target_info.is_hip()` before"
    )


@builtin
def memrealtime(*, _semantic: Any = None) -> tensor:
    """The GPU's clock, int64; of AMD GPUs, so that every present target refuses it."""
    raise _refuse(_semantic, "memrealtime")


@builtin
def smid(*, _semantic: Any = None) -> tensor:
    """Which compute unit runs the program; of AMD GPUs, so that every present target refuses it."""
    raise _refuse(_semantic, "smid")
