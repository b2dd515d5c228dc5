"""Code generation: tile IR with layouts → LLVM IR for NVIDIA GPUs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilewright.ir import types as ir
from tilewright.ir.core import Function, Module, Value
from tilewright.ir.passes import PassContext
from tilewright.lowering.simt.kernel import register_count
from tilewright.lowering.types import memory_type
from tilewright.ops.control import For, While
from tilewright.targets.gpu.codegen import emit_kernel
from tilewright.targets.nvidia import arith as _arith
from tilewright.targets.nvidia import mma as _mma
from tilewright.targets.nvidia.emit import kernel_attributes
from tilewright.targets.nvidia.hardware import NvidiaHardware

# Importing these modules registers their emitters and lowerings.
REGISTERED = (_arith, _mma)

if TYPE_CHECKING:
    from tilewright.targets.nvidia.target import CudaOptions


@dataclass(frozen=True, slots=True)
class Generated:
    """The result of code generation.

    Attributes:
        llvm: LLVM IR as text, with one `ptx_kernel`.
        name: the kernel's symbol.
        laid_out: the tile IR with layouts it was generated from, as text.
        shared_bytes: dynamic shared memory of a CTA.
        scratch_bytes: global scratch memory of a program.
        ptx_version: the minimum PTX version of its instructions; 0 for that of the architecture.
        carried: the most 32-bit registers of a thread that the values carried by a loop occupy.
        has_roles: whether warps of a CTA execute different code, and reallocate registers.
        metadata: launch metadata, which overrides entries of the same name.
    """

    llvm: str
    name: str
    laid_out: str
    shared_bytes: int = 0
    scratch_bytes: int = 0
    ptx_version: int = 0
    carried: int = 0
    has_roles: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)


def generate(
    module: Module, options: CudaOptions, features: frozenset[str], ctx: PassContext
) -> Generated:
    """Generate LLVM IR for a module with layouts. Remarks are reported to the context."""
    emitted = emit_kernel(
        module,
        NvidiaHardware(features),
        ctx,
        attributes=kernel_attributes(ctx.gpu.threads, options.maxnreg),
        calling="ptx_kernel",
        fast_flags="contract" if options.enable_fp_fusion else "",
    )
    # Clusters are an optimisation that isn't implemented: each program is one CTA for any num_ctas.
    return Generated(
        emitted.llvm,
        emitted.name,
        emitted.laid_out,
        emitted.shared_bytes,
        ptx_version=_mma.ptx_version(module.entry),
        carried=_carried_registers(module.entry),
        has_roles=any(op.concurrent for op in module.entry.walk()),
        metadata={"num_ctas": 1},
    )


def _carried_registers(fn: Function) -> int:
    """The most 32-bit registers of a thread that the values carried by a loop of `fn` occupy."""

    def of(value: Value) -> int:
        words = -(-memory_type(ir.element_of(value.type)).bits // 32)
        return register_count(value) * words

    loops = [op.regions[-1].args for op in fn.walk() if isinstance(op, For | While)]
    return max((sum(map(of, carried)) for carried in loops), default=0)
