"""What NVIDIA's GPUs have beyond the language; `libdevice` is the same for all targets."""

from __future__ import annotations

from typing import Any

from tilewright.ir.types import I32, I64, DType
from tilewright.language.extra import libdevice
from tilewright.language.extra.threads import num_threads, num_warps
from tilewright.language.semantic import asm, convert
from tilewright.language.semantic.context import Semantic
from tilewright.language.values import builtin, tensor
from tilewright.ops.gpu import StartDependents, WaitLaunches

__all__ = [
    "convert_custom_float8_sm70", "convert_custom_float8_sm80", "gdc_launch_dependents", "gdc_wait",
    "globaltimer", "libdevice", "num_threads", "num_warps", "smid",
]  # fmt: skip


def _register(s: Semantic, name: str, code: str, constraint: str, element: DType) -> tensor:
    """A special register of the GPU that runs the program; it may change from read to read."""
    if s.options.assembly != "PTX":
        raise ValueError(
            f"tl.extra.cuda.{name} reads a register of NVIDIA GPUs, which "
            f"{s.options.backend_name!r} has not; ask `tl.target_info.is_cuda()` before"
        )
    return asm.inline_asm(s, code, constraint, [], element, False, 1)


@builtin
def globaltimer(*, _semantic: Any = None) -> tensor:
    """The GPU's clock in nanoseconds, int64; NVIDIA GPUs only.

    Raises:
        ValueError: the target is another.
    """
    return _register(_semantic, "globaltimer", "mov.u64 $0, %globaltimer;", "=l", I64)


@builtin
def smid(*, _semantic: Any = None) -> tensor:
    """Which multiprocessor runs the program, int32; NVIDIA GPUs only.

    Raises:
        ValueError: the target is another.
    """
    return _register(_semantic, "smid", "mov.u32 $0, %smid;", "=r", I32)


@builtin
def gdc_wait(*, _semantic: Any = None) -> None:
    """Wait for the launches before this one to end, and see all that they wrote.

    Of use with the option `launch_pdl`, which lets a launch begin earlier: then this stands before
    the first access to what an earlier launch writes. A kernel that never calls it waits before its
    first access to memory. Where launches never overlap (`launch_pdl` is not set, or another target
    than NVIDIA GPUs from SM90 on) there is nothing to wait for.
    """
    if _semantic.options.assembly == "PTX":
        _semantic.builder.insert(WaitLaunches())


@builtin
def gdc_launch_dependents(*, _semantic: Any = None) -> None:
    """Let the launch after this one begin before this one ends, once all programs have come here.

    It does if it has the option `launch_pdl`, and on NVIDIA GPUs from SM90 on; elsewhere this does
    nothing.
    """
    if _semantic.options.assembly == "PTX":
        _semantic.builder.insert(StartDependents())


@builtin
def convert_custom_float8_sm80(
    arg: Any, dst_ty: Any, fp_downcast_rounding: Any = None, _semantic: Any = None
) -> tensor:
    """fp8e4b15 to and from fp16 and fp32: as `tl.cast`, which needs no help here."""
    to = convert.as_dtype(dst_ty)
    return convert.cast(_semantic, convert.to_tensor(_semantic, arg), to)


convert_custom_float8_sm70 = convert_custom_float8_sm80
