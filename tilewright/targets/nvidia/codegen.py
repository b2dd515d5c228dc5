"""Code generation: tile IR with layouts → LLVM IR for NVIDIA GPUs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tilewright.ir import types as ir
from tilewright.ir.core import Function, Module, Op, Value
from tilewright.ir.passes import PassContext
from tilewright.lowering.simt.kernel import register_count
from tilewright.lowering.simt.roles import further_warps
from tilewright.lowering.types import memory_type
from tilewright.ops.control import For, While
from tilewright.ops.nvidia import WgmmaWait
from tilewright.ops.roles import Roles, WaitBarrier
from tilewright.targets.gpu.codegen import emit_kernel
from tilewright.targets.nvidia import arith as _arith
from tilewright.targets.nvidia import mma as _mma
from tilewright.targets.nvidia import tma as _tma
from tilewright.targets.nvidia.emit import kernel_attributes
from tilewright.targets.nvidia.hardware import NvidiaHardware
from tilewright.targets.nvidia.options import CudaOptions

# Importing these modules registers their emitters and lowerings.
REGISTERED = (_arith, _mma, _tma)


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
        warps: warps of a CTA, the copying warp included.
        hands_registers: whether warps hand registers to others.
        waits_for_products: whether a copying warp's loop waits for its products in each iteration.
        metadata: launch metadata, which overrides entries of the same name.
    """

    llvm: str
    name: str
    laid_out: str
    shared_bytes: int = 0
    scratch_bytes: int = 0
    ptx_version: int = 0
    carried: int = 0
    warps: int = 0
    hands_registers: bool = False
    waits_for_products: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)


def generate(
    module: Module, options: CudaOptions, features: frozenset[str], ctx: PassContext
) -> Generated:
    """Generate LLVM IR for a module with layouts. Remarks are reported to the context."""
    warps = ctx.gpu.warps + further_warps(module.entry)
    emitted = emit_kernel(
        module,
        NvidiaHardware(features),
        ctx,
        attributes=kernel_attributes(warps * ctx.gpu.lanes, options.maxnreg),
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
        warps=warps,
        hands_registers=any(isinstance(op, Roles) and op.registers for op in module.entry.walk()),
        waits_for_products=any(map(_waits_for_products, module.entry.walk())),
        metadata={
            "num_ctas": 1,
            "launch_warps": warps,
            "tensor_maps": [_tma.facts_of(what) for what in emitted.provided],
        },
    )


def _carried_registers(fn: Function) -> int:
    """The most 32-bit registers of a thread that the values carried by a loop of `fn` occupy."""

    def of(value: Value) -> int:
        words = -(-memory_type(ir.element_of(value.type)).bits // 32)
        return register_count(value) * words

    loops = [op.regions[-1].args for op in fn.walk() if isinstance(op, For | While)]
    return max((sum(map(of, carried)) for carried in loops), default=0)


def _waits_for_products(op: Op) -> bool:
    """Whether an op is a loop over slots that waits for its own products."""
    if not isinstance(op, For):
        return False
    slots = any(isinstance(inner, WaitBarrier) for inner in op.body)
    return slots and any(isinstance(inner, WgmmaWait) and inner.values for inner in op.body)
