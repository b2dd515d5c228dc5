"""Code generation as one function: tile IR → text of LLVM IR. Does not load LLVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.base.lazy_import import lazy_import
from tilewright.ir.core import Module
from tilewright.ir.passes import PassContext
from tilewright.lowering import arith as _arith_lowerings
from tilewright.targets.cpu import control as _control_steps
from tilewright.targets.cpu import debug as _debug_steps
from tilewright.targets.cpu import rare_steps as _rare_steps
from tilewright.targets.cpu.kernel import Kernel
from tilewright.targets.cpu.machine import Machine
from tilewright.targets.cpu.plan_loops import plan_function
from tilewright.targets.cpu.program import emit_kernel

if TYPE_CHECKING:
    from tilewright.ir import parser
    from tilewright.targets.cpu import print_plan
else:
    parser = lazy_import("tilewright.ir.parser")
    print_plan = lazy_import("tilewright.targets.cpu.print_plan")

# Importing these modules registers their emitters and lowerings.
REGISTERED = (_arith_lowerings, _control_steps, _debug_steps, _rare_steps)


def generate(
    module: Module,
    machine: Machine,
    *,
    fp_fusion: bool = True,
    single_threaded: bool = False,
    ctx: PassContext | None = None,
) -> tuple[str, int]:
    """Generate LLVM IR for the module's kernel. Returns its text, and its workspace in bytes.

    Args:
        fp_fusion: whether a product and a sum may be contracted.
        single_threaded: whether no other thread accesses the memory of a launch.
        ctx: receives remarks; with `explain`, the code has line information.
    """
    ctx = ctx or PassContext()
    flags = "contract" if fp_fusion else ""
    kernel = Kernel(module.entry, plan_function(module.entry), machine, flags, lines=ctx.explain)
    kernel.single_threaded = single_threaded
    text = emit_kernel(kernel)
    if ctx.explain:
        kernel.accesses.report(module.entry, kernel.plan.hinted, ctx)
    return text, kernel.scratch_bytes


def plan_text(module: str) -> str:
    """The plan of a kernel's tile IR, both as text."""
    fn = parser.parse_module(module).entry
    return print_plan.print_plan(fn, plan_function(fn))
