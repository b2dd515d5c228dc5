"""Code generation: tile IR with layouts → LLVM IR, for any `Hardware`."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple, Protocol

from tilewright.base import knobs
from tilewright.base.diagnostics import Loc
from tilewright.ir.core import Module
from tilewright.ir.machine import GpuMachine
from tilewright.ir.passes import PassContext
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
from tilewright.lowering.simt.roles import further_warps

# Importing these modules registers their emitters; a target imports its own in addition.
REGISTERED = (
    *(_arith, _asm, _atomic, _buffers, _control, _convert, _debug, _dot, _gather, _histogram, _map),
    *(_launches, _memory, _reduce, _roles, _scan, _shape, _sort),
)


class Declaration(NamedTuple):
    """The declaration of a kernel in LLVM IR.

    Attributes:
        attributes: of its function, in LLVM's words.
        calling: its calling convention, such as ``ptx_kernel``.
        fast_flags: fast-math flags of floating-point arithmetic, such as ``contract``.
    """

    attributes: str = ""
    calling: str = ""
    fast_flags: str = ""


class ThreadCode(NamedTuple):
    """The code of one thread of a kernel.

    Attributes:
        llvm: an LLVM module as text, with one definition of the kernel.
        name: the kernel's symbol.
        loc: where the kernel is defined.
        parameters: LLVM's types of its parameters.
        tile_warps: warps over which its tiles are laid out.
        warps: warps of a program, those with other roles included.
        shared_bytes: dynamic shared memory of a program, which the launch must provide.
        spare_bytes: further memory, with which a program can hide more latency.
        packs: whether a block may run several programs, each with its own shared memory.
        notes: what emitters state about the code; see `lowering/simt/notes.py`.
        provided: `Provided.what` of each further parameter that the launch must provide.
    """

    llvm: str
    name: str
    loc: Loc | None = None
    parameters: tuple[str, ...] = ()
    tile_warps: int = 1
    warps: int = 1
    shared_bytes: int = 0
    spare_bytes: int = 0
    packs: bool = False
    notes: frozenset[Hashable] = frozenset()
    provided: tuple[Hashable, ...] = ()


class Generator(Protocol):
    """The part of a target that the generation of the code of a thread depends on."""

    def hardware(self, options: Any, gpu: GpuMachine) -> Hardware: ...
    def declaration(self, options: Any, gpu: GpuMachine, threads: int) -> Declaration: ...


def thread_code(module: Module, target: Generator, ctx: PassContext, options: Any) -> ThreadCode:
    """Generate LLVM IR for the entry of a module, after the passes of `steps.py`.

    Args:
        ctx: receives the remarks; its GPU must have as many lanes as the target's hardware.
    """
    hw, warps = target.hardware(options, ctx.gpu), ctx.gpu.warps
    assert hw.lanes == ctx.gpu.lanes, f"{hw.lanes} lanes are emitted, {ctx.gpu.lanes} laid out"
    every = warps + further_warps(module.entry)
    kernel = Kernel(
        module.entry,
        hw,
        warps,
        **target.declaration(options, ctx.gpu, every * hw.lanes)._asdict(),
        lines=not knobs.compilation.disable_line_info or ctx.explain,
        ctx=ctx,
    )
    text = kernel.emit()
    shared, spare = kernel.shared.bytes, kernel.shared.spare_bytes
    if shared + spare > ctx.gpu.shared_bytes:
        spare = 0  # chosen by an estimate of the rest
    return ThreadCode(
        text,
        module.entry.name,
        module.entry.loc,
        tuple(v.type.text for v in kernel.function.params),
        warps,
        every,
        shared,
        spare,
        ctx.gpu.packs,
        frozenset(kernel.notes),
        tuple(p.what for p in kernel.provided),
    )
