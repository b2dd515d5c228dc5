"""`debug.print` and `debug.assert`: calls to functions of the launching process.

A kernel passes a description in JSON, its position in the grid, and the address of the values to
print. The launcher defines the two functions for the linker (`runtime/launchers/host_calls.py`). A
failed assertion ends its program; other programs continue.
"""

from __future__ import annotations

from tilewright.ir import types as ir
from tilewright.ir.core import Module, Value
from tilewright.lowering.emit import I1, I8, I64, VOID, V, const
from tilewright.lowering.types import memory_type
from tilewright.ops.debug import Assert, Assume, Print, label
from tilewright.targets.cpu.buffer import Buffer
from tilewright.targets.cpu.check import FAIL, check, described
from tilewright.targets.cpu.evaluate import evaluate
from tilewright.targets.cpu.kernel import Kernel
from tilewright.targets.cpu.level import Level
from tilewright.targets.cpu.steps import emits

PRINT = "tilewright_print"


def host_calls(module: Module) -> list[str]:
    """The names of the launcher's functions that the module's kernel calls."""
    kinds = {type(op) for op in module.walk()}
    return [name for cls, name in ((Print, PRINT), (Assert, FAIL)) if cls in kinds]


@emits(Print)
def _emit_print(kernel: Kernel, level: Level, op: Print) -> None:
    for i, value in enumerate(op.values):
        facts = {
            "prefix": label(op.prefix, i, len(op.values)),
            "hex": op.hex,
            "type": ir.text_of(ir.element_of(value.type)),
            "shape": ir.shape_of(value.type),
        }
        at = _in_memory(kernel, level, value)
        kernel.b.call(PRINT, VOID, [described(kernel, facts), *kernel.program, at])
    if not op.values:
        facts = {"prefix": op.prefix}
        nothing = const(I64, 0)
        at = kernel.b.inttoptr(nothing)
        kernel.b.call(PRINT, VOID, [described(kernel, facts), *kernel.program, at])


def _in_memory(kernel: Kernel, level: Level, value: Value) -> V:
    """The address of the value's elements, row-major."""
    bound = kernel.env.get(value)
    if isinstance(bound, Buffer):
        return bound.ptr
    scalar = bound if bound is not None else evaluate(level, value, ()).base
    assert not isinstance(value.type, ir.Tile), "the plan keeps tiles that are printed"
    b = kernel.b
    place = b.alloca(memory_type(value.type))
    b.store(b.zext(scalar, I8) if scalar.type is I1 else scalar, place)
    return place


@emits(Assume)
def _emit_assume(kernel: Kernel, level: Level, op: Assume) -> None:
    """Emits nothing: assumptions are used by passes only."""


@emits(Assert)
def _emit_assert(kernel: Kernel, level: Level, op: Assert) -> None:
    """An assertion of a scalar; `sinks.Check` is that of a tile."""
    bound = kernel.env.get(op.condition)
    holds = bound if isinstance(bound, V) else evaluate(level, op.condition, ()).base
    check(kernel, op, holds)
