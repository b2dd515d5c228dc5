"""Functions specific to AMD GPUs; `libdevice` is the same for all targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.base.lazy_import import lazy_names
from tilewright.language.extra.threads import num_threads, num_warps
from tilewright.language.values import builtin, tensor

if TYPE_CHECKING:
    from tilewright.language.extra import libdevice as libdevice
else:
    __getattr__ = lazy_names(__name__, {"tilewright.language.extra": ("libdevice",)})

__all__ = ["libdevice", "memrealtime", "num_threads", "num_warps", "smid"]


def _unsupported(s: Any, name: str) -> ValueError:
    return ValueError(
        f"tl.extra.hip.{name} reads a register of AMD GPUs, which {s.options.backend_name!r} does "
        "not have; check `tl.target_info.is_hip()` first"
    )


@builtin
def memrealtime(*, _semantic: Any = None) -> tensor:
    """The clock of AMD GPUs, int64. No current target supports it."""
    raise _unsupported(_semantic, "memrealtime")


@builtin
def smid(*, _semantic: Any = None) -> tensor:
    """The index of the compute unit that runs the program, on AMD GPUs. No current target supports
    it."""
    raise _unsupported(_semantic, "smid")
