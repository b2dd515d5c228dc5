"""The state of emitting one kernel, which all that emits a part of it shares."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from tilewright.analysis.axis_info import AxisMap, axis_info
from tilewright.base.lazy import cached_property
from tilewright.ir import types as ir
from tilewright.ir.core import Function, Op, Value
from tilewright.lowering.emit import (
    I8,
    I64,
    PTR,
    Block,
    Builder,
    LType,
    Module,
    V,
    array,
    const,
)
from tilewright.lowering.lines import Lines
from tilewright.lowering.types import memory_type, number_of, register_type
from tilewright.ops import arith
from tilewright.targets.cpu.access_report import AccessReport
from tilewright.targets.cpu.buffer import Buffer
from tilewright.targets.cpu.machine import Machine
from tilewright.targets.cpu.plan import Plan

STACK_BUFFER = 4096  # a buffer of at most so many bytes lives on the stack
ALIGN = 64

Binding = V | Buffer


class Kernel:
    """The state of emitting one kernel.

    Attributes:
        env: what each value is: an LLVM value for a scalar, a buffer for a kept tile.
        is_large: whether stores go past the caches where they may.
        lanes: the number of lanes that loops use.
        scratch_bytes: workspace that the kernel needs from its caller.
        lines: the source lines that instructions come from; None where nobody asks for them.
        accesses: what each load and store became, for who asks.

    Args:
        plan: which tiles are kept, and which ops share a loop.
        lines: whether the code names its source lines. It is the same code, but takes LLVM a
            quarter more time.
    """

    def __init__(
        self, fn: Function, plan: Plan, machine: Machine, fast_flags: str, *, lines: bool = False
    ) -> None:
        self.fn = fn
        self.machine = machine
        self.lanes = machine.vector_bytes // 4
        self.module = Module(fn.name)
        self.fast_flags = fast_flags
        self.env: dict[Value, Binding] = {}
        self.scratch_bytes = 0
        self.plan = plan
        self.wants_lines = lines
        self.lines: Lines | None = None
        self.accesses = AccessReport()
        self.b: Builder
        self.entry: Block
        self.scratch: V
        self.program: tuple[V, V, V]
        self.grid: tuple[V, V, V]
        self.is_large: V

    # -- values ---------------------------------------------------------------------------------

    @cached_property
    def facts(self) -> AxisMap:
        """What is known of the numbers in each tile."""
        return axis_info(self.fn)

    def constant(self, op: arith.Constant) -> V:
        element = ir.element_of(op.type)
        t = register_type(element)
        if isinstance(element, ir.Pointer):
            return V(f"inttoptr (i64 {op.value} to ptr)", PTR)
        return const(t, number_of(element, op.value))

    def buffer(self, value: Value) -> Buffer:
        """A buffer for a tile value; it is bound to the value by who fills it."""
        assert isinstance(value.type, ir.Tile)
        return Buffer(self.allocate(memory_type(value.type), value.type.numel), value.type)

    def allocate(self, element: LType, count: int) -> V:
        """Memory for so many elements, for as long as the program runs."""
        size = count * element.bits // 8
        if size <= STACK_BUFFER:
            return self.b.alloca(array(element, count), 1, ALIGN)
        offset = self.scratch_bytes
        self.scratch_bytes += (size + ALIGN - 1) // ALIGN * ALIGN
        return self.at_entry(lambda b: b.gep(I8, self.scratch, const(I64, offset)))

    def at_entry(self, make: Callable[[Builder], V]) -> V:
        """Emit in the function's first block, which stays open until the end."""
        b = self.b
        saved = b.current
        b.at(self.entry)
        made = make(b)
        b.at(saved)
        return made

    def cost(self, value: Value) -> int:
        """The cost of one element, computed from what is bound by now."""
        return self.plan.costs.of(value, self.env)

    # -- code -----------------------------------------------------------------------------------

    def line_of(self, op: Op | None) -> AbstractContextManager[None]:
        """What is emitted within comes from the line of this op."""
        if self.lines is None or op is None:
            return nullcontext()
        return self.b.located(self.lines.of(op.loc))
