"""Op classes that forward and reverse mode handle directly, and those without a derivative."""

from __future__ import annotations

from tilewright.autodiff.registry import Structural, Zero, declare, no_derivative
from tilewright.ir.define import ops_of
from tilewright.ops import (
    amd,
    asm,
    atomic,
    control,
    debug,
    dot_scaled,
    gpu,
    histogram,
    map,
    memory,
    nvidia,
    roles,
    sort,
    tensor_memory,
)

declare(Structural("the derivative is in memory, too"), memory.Load, memory.Store)
declare(Structural("its regions are differentiated"), control.For, control.While, control.If)
declare(Structural("it ends a region"), control.Yield, control.Return, control.Condition)
declare(Structural("it has no results"), control.Barrier, debug.Print, debug.Assert, debug.Assume)
declare(Structural("added up in memory"), atomic.AtomicRMW)
declare(Zero("it does not depend on the inputs"), control.ProgramId)
declare(Zero("it does not depend on the inputs"), control.NumPrograms)
declare(Zero("a pointer is not a number"), memory.AddPtr)
declare(Zero("it takes integers"), sort.Sort, histogram.Histogram)

no_derivative("its function is not inlined", control.Call)
no_derivative("it is not expanded", dot_scaled.DotScaled)
no_derivative("its function may branch on each element", map.Map)
no_derivative("the compiler does not know what the assembly computes", asm.InlineAsm)
no_derivative("the compiler does not know what the assembly does", asm.InlineAsmEffect)
no_derivative(
    "its result depends on the order of programs",
    atomic.AtomicCAS, atomic.AtomicLoad, atomic.AtomicStore, atomic.AtomicPoll,
)  # fmt: skip
for family in (gpu, nvidia, tensor_memory, amd, roles):
    no_derivative("it is created for a GPU, after derivatives", *ops_of(family))
