"""Functions specific to NVIDIA GPUs; `libdevice` is the same for all targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.base.lazy_import import lazy_import, lazy_names
from tilewright.ir.types import I32, I64, DType
from tilewright.language import semantic
from tilewright.language.extra.threads import num_threads, num_warps
from tilewright.language.values import builtin, tensor

if TYPE_CHECKING:
    from tilewright.language.extra import libdevice as libdevice
    from tilewright.ops import gpu
else:
    gpu = lazy_import("tilewright.ops.gpu")
    __getattr__ = lazy_names(__name__, {"tilewright.language.extra": ("libdevice",)})

__all__ = [
    "convert_custom_float8_sm70", "convert_custom_float8_sm80", "gdc_launch_dependents", "gdc_wait",
    "globaltimer", "libdevice", "num_threads", "num_warps", "smid",
]  # fmt: skip


def _register(
    s: semantic.Semantic, name: str, code: str, constraint: str, element: DType
) -> tensor:
    """Read a special register of the GPU. Reads are not merged, since the value may change."""
    if s.options.assembly != "PTX":
        raise ValueError(
            f"tl.extra.cuda.{name} reads a register of NVIDIA GPUs, which "
            f"{s.options.backend_name!r} does not have; check `tl.target_info.is_cuda()` first"
        )
    return semantic.asm.inline_asm(s, code, constraint, [], element, False, 1)


@builtin
def globaltimer(*, _semantic: Any = None) -> tensor:
    """The GPU's clock in nanoseconds, int64; NVIDIA GPUs only.

    Raises:
        ValueError: the target is not an NVIDIA GPU.
    """
    return _register(_semantic, "globaltimer", "mov.u64 $0, %globaltimer;", "=l", I64)


@builtin
def smid(*, _semantic: Any = None) -> tensor:
    """The index of the multiprocessor that runs the program, int32; NVIDIA GPUs only.

    Raises:
        ValueError: the target is not an NVIDIA GPU.
    """
    return _register(_semantic, "smid", "mov.u32 $0, %smid;", "=r", I32)


@builtin
def gdc_wait(*, _semantic: Any = None) -> None:
    """Wait until the preceding launches have completed and their writes are visible.

    With the option `launch_pdl` (programmatic dependent launch), a launch may start before the
    preceding ones have completed; this must precede the first access to memory that they write. A
    kernel that calls neither this nor `gdc_launch_dependents` needs no option: the compiler inserts
    a wait before its first memory access, and its launches start early by default. Without the
    option, and on targets other than NVIDIA GPUs from SM90 on, this has no effect.
    """
    if _semantic.options.assembly == "PTX":
        _semantic.builder.insert(gpu.WaitLaunches(implied=False))


@builtin
def gdc_launch_dependents(*, _semantic: Any = None) -> None:
    """Allow the next launch to start before this one completes, once all programs have called this.

    It applies to next launches that may start early (see `gdc_wait`) on NVIDIA GPUs from SM90 on;
    otherwise it has no effect.
    """
    if _semantic.options.assembly == "PTX":
        _semantic.builder.insert(gpu.StartDependents())


@builtin
def convert_custom_float8_sm80(
    arg: Any, dst_ty: Any, fp_downcast_rounding: Any = None, _semantic: Any = None
) -> tensor:
    """Conversion between fp8e4b15 and fp16 or fp32: the same as `tl.cast`."""
    to = semantic.convert.as_dtype(dst_ty)
    return semantic.convert.cast(_semantic, semantic.to_tensor(_semantic, arg), to)


convert_custom_float8_sm70 = convert_custom_float8_sm80
