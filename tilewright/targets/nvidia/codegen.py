"""Tile IR → LLVM IR."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilewright.ir.core import Module
from tilewright.ir.passes import PassContext
from tilewright.targets.gpu.codegen import emit_kernel
from tilewright.targets.nvidia import arith as _arith
from tilewright.targets.nvidia import mma as _mma
from tilewright.targets.nvidia.emit import kernel_attributes
from tilewright.targets.nvidia.hardware import NvidiaHardware

# Importing these registers how their ops are emitted.
REGISTERED = (_arith, _mma)

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
        has_roles: whether warps of a CTA run different code, and hand registers to each other.
        metadata: facts for the launcher that replace the target's own of the same names.
    """

    llvm: str
    name: str
    laid_out: str
    shared_bytes: int = 0
    scratch_bytes: int = 0
    ptx_version: int = 0
    has_roles: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)


def generate(
    module: Module, options: CudaOptions, features: frozenset[str], ctx: PassContext
) -> Generated:
    """LLVM IR for a module after the tile passes and those that give layouts; remarks on it go to
    the context."""
    emitted = emit_kernel(
        module,
        NvidiaHardware(features),
        ctx,
        attributes=kernel_attributes(ctx.gpu.threads, options.maxnreg),
        calling="ptx_kernel",
        fast_flags="contract" if options.enable_fp_fusion else "",
    )
    # Clusters only make programs faster: each program is one CTA yet, whatever was asked for.
    return Generated(
        emitted.llvm,
        emitted.name,
        emitted.laid_out,
        emitted.shared_bytes,
        ptx_version=_mma.ptx_version(module.entry),
        has_roles=any(op.concurrent for op in module.entry.walk()),
        metadata={"num_ctas": 1},
    )
