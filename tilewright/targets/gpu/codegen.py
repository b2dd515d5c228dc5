"""Code generation: tile IR with layouts → LLVM IR, for any `Hardware`."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from tilewright.base import knobs
from tilewright.ir.core import Module
from tilewright.ir.passes import PassContext
from tilewright.ir.printer import print_module
from tilewright.lowering import arith as _arith
from tilewright.lowering.simt import asm as _asm
from tilewright.lowering.simt import atomic as _atomic
from tilewright.lowering.simt import buffers as _buffers
from tilewright.lowering.simt import control as _control
from tilewright.lowering.simt import convert as _convert
from tilewright.lowering.simt import debug as _debug
from tilewright.lowering.simt import dot as _dot
from tilewright.lowering.simt import gather as _gather
from tilewright.lowering.simt import histogram as _histogram
from tilewright.lowering.simt import launches as _launches
from tilewright.lowering.simt import map as _map
from tilewright.lowering.simt import memory as _memory
from tilewright.lowering.simt import reduce as _reduce
from tilewright.lowering.simt import roles as _roles
from tilewright.lowering.simt import scan as _scan
from tilewright.lowering.simt import shape as _shape
from tilewright.lowering.simt import sort as _sort
from tilewright.lowering.simt.hardware import Hardware
from tilewright.lowering.simt.kernel import Kernel

# Importing these modules registers their emitters; a target imports its own in addition.
REGISTERED = (
    *(_arith, _asm, _atomic, _buffers, _control, _convert, _debug, _dot, _gather, _histogram, _map),
    *(_launches, _memory, _reduce, _roles, _scan, _shape, _sort),
)


class Emitted(NamedTuple):
    """LLVM IR of a kernel.

    Attributes:
        llvm: the module as text, with one definition of the kernel.
        name: the kernel's symbol.
        laid_out: the tile IR it was generated from, as text.
        shared_bytes: dynamic shared memory of a program, which the launch must provide.
        provided: `Provided.what` of each further parameter that the launch must provide.
    """

    llvm: str
    name: str
    laid_out: str
    shared_bytes: int
    provided: tuple[Hashable, ...]


def emit_kernel(
    module: Module,
    hw: Hardware,
    ctx: PassContext,
    *,
    attributes: str = "",
    calling: str = "",
    fast_flags: str = "",
) -> Emitted:
    """Generate LLVM IR for the entry of a module, after the passes of `steps.py`.

    Args:
        hw: the instructions of the GPU; must have as many lanes as `ctx.gpu`.
        ctx: receives the remarks.
        attributes: LLVM attributes of the kernel's function.
        calling: its calling convention, such as ``ptx_kernel``.
        fast_flags: fast-math flags of floating-point arithmetic, such as ``contract``.
    """
    assert hw.lanes == ctx.gpu.lanes, f"{hw.lanes} lanes are emitted, {ctx.gpu.lanes} laid out"
    kernel = Kernel(
        module.entry,
        hw,
        ctx.gpu.warps,
        attributes=attributes,
        calling=calling,
        fast_flags=fast_flags,
        lines=not knobs.compilation.disable_line_info or ctx.explain,
        ctx=ctx,
    )
    text = kernel.emit()
    provided = tuple(p.what for p in kernel.provided)
    return Emitted(text, module.entry.name, print_module(module), kernel.shared.bytes, provided)
