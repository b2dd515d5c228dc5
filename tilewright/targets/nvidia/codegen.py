"""Tile IR → LLVM IR."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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
from tilewright.lowering.simt import map as _map
from tilewright.lowering.simt import memory as _memory
from tilewright.lowering.simt import reduce as _reduce
from tilewright.lowering.simt import scan as _scan
from tilewright.lowering.simt import shape as _shape
from tilewright.lowering.simt import sort as _sort
from tilewright.lowering.simt.kernel import Kernel
from tilewright.targets.nvidia import arith as _own_arith
from tilewright.targets.nvidia import launches as _launches
from tilewright.targets.nvidia import mma as _mma
from tilewright.targets.nvidia.emit import kernel_attributes
from tilewright.targets.nvidia.features import WARP_SIZE
from tilewright.targets.nvidia.hardware import NvidiaHardware

# Importing these registers how their ops are emitted.
REGISTERED = (
    *(_arith, _asm, _atomic, _buffers, _control, _convert, _debug, _dot, _gather, _histogram, _map),
    *(_memory, _mma, _reduce, _scan, _shape, _sort, _own_arith, _launches),
)

if TYPE_CHECKING:
    from tilewright.targets.nvidia.target import CudaOptions


@dataclass(frozen=True, slots=True)
class Generated:
    """What code generation makes of a module.

    Attributes:
        llvm: LLVM IR as text, with one `ptx_kernel`.
        name: the kernel's symbol.
        laid_out: the tile IR with layouts that the code was made from, as text.
        shared_bytes: dynamic shared memory of a CTA.
        scratch_bytes: global scratch memory of a program.
        ptx_version: the oldest PTX that has its instructions; 0 where the architecture's will do.
        metadata: facts for the launcher that replace the target's own of the same names.
    """

    llvm: str
    name: str
    laid_out: str
    shared_bytes: int = 0
    scratch_bytes: int = 0
    ptx_version: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)


def generate(
    module: Module, options: CudaOptions, features: frozenset[str], ctx: PassContext | None = None
) -> Generated:
    """LLVM IR for a module after the tile passes and those that give layouts; remarks on it go to
    the context."""
    fn = module.entry
    ctx = ctx or PassContext(features)
    threads = options.num_warps * WARP_SIZE
    attributes = kernel_attributes(threads, options.maxnreg)
    kernel = Kernel(
        fn,
        NvidiaHardware(features),
        options.num_warps,
        attributes=attributes,
        calling="ptx_kernel",
        fast_flags="contract" if options.enable_fp_fusion else "",
        lines=not knobs.compilation.disable_line_info or ctx.explain,
        ctx=ctx,
    )
    text = kernel.emit()
    laid_out, version = print_module(module), _mma.ptx_version(fn)
    # Clusters only make programs faster: each program is one CTA yet, whatever was asked for.
    return Generated(
        text,
        fn.name,
        laid_out,
        kernel.shared.bytes,
        ptx_version=version,
        metadata={"num_ctas": 1},
    )
