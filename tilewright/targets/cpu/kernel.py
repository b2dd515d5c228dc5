"""The state of emitting one kernel, shared by all emitters."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from tilewright.analysis.axis_info import AxisMap
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

STACK_BUFFER = 4096  # bytes of the largest buffer on the stack; larger ones are in the workspace
STACK_BYTES = 64 * 1024  # bytes of all buffers on the stack; further ones are in the workspace
ALIGN = 64  # bytes, of buffers: a cache line, and the widest vector

Binding = V | Buffer


class Kernel:
    """The state of emitting one kernel.

    Attributes:
        env: bindings of IR values: an LLVM value for a scalar, a buffer for a kept tile.
        is_large: i1, whether streamed stores are to be non-temporal.
        lanes: the number of lanes of loops: 32-bit elements of the widest vector.
        scratch_bytes: bytes of workspace that the caller must provide.
        single_threaded: whether no other thread accesses the memory of a launch.
        lines: source lines of instructions; None without line information.
        accesses: collects the forms of loads and stores, for remarks.

    Args:
        plan: fusion and materialisation.
        lines: whether to emit line information. The code is the same, but LLVM takes a quarter more
            time.
    """

    def __init__(
        self, fn: Function, plan: Plan, machine: Machine, fast_flags: str, *, lines: bool = False
    ) -> None:
        self.fn = fn
        self.machine = machine
        self.lanes = machine.vector_bytes // 4
        self.module = Module(fn.name)
        self.fast_flags = fast_flags
        self.single_threaded = False
        self.env: dict[Value, Binding] = {}
        self.scratch_bytes = 0
        self._stack_bytes = 0
        self.plan = plan
        self.has_lines = lines
        self.lines: Lines | None = None
        self.accesses = AccessReport()
        self.b: Builder
        self.entry: Block
        self.scratch: V
        self.program: tuple[V, V, V]
        self.grid: tuple[V, V, V]
        self.is_large: V

    # -- values ---------------------------------------------------------------------------------

    @property
    def facts(self) -> AxisMap:
        """Axis information of the function."""
        return self.plan.facts

    def constant(self, op: arith.Constant) -> V:
        element = ir.element_of(op.type)
        t = register_type(element)
        if isinstance(element, ir.Pointer):
            return V(f"inttoptr (i64 {op.value} to ptr)", PTR)
        return const(t, number_of(element, op.value))

    def buffer(self, value: Value, inner: int | None = None) -> Buffer:
        """Allocate a buffer for a tile; the caller fills it and binds it to the value."""
        assert isinstance(value.type, ir.Tile)
        return Buffer(self.allocate(memory_type(value.type), value.type.numel), value.type, inner)

    def allocate(self, element: LType, count: int) -> V:
        """Allocate memory for `count` elements, with the lifetime of the program."""
        size = -(-count * element.bits // 8 // ALIGN) * ALIGN
        if size <= min(STACK_BUFFER, STACK_BYTES - self._stack_bytes):
            self._stack_bytes += size
            return self.b.alloca(array(element, count), 1, ALIGN)
        offset = self.scratch_bytes
        self.scratch_bytes += size
        return self.at_entry(lambda b: b.gep(I8, self.scratch, const(I64, offset)))

    def at_entry(self, make: Callable[[Builder], V]) -> V:
        """Emit into the entry block, whose values dominate the whole function."""
        b = self.b
        saved = b.current
        b.at(self.entry)
        made = make(b)
        b.at(saved)
        return made

    def cost(self, value: Value) -> int:
        """The cost of one element, given the values that are bound already."""
        return self.plan.costs.of(value, self.env)

    # -- code -----------------------------------------------------------------------------------

    def line_of(self, op: Op | None) -> AbstractContextManager[None]:
        """Attribute instructions emitted within to the line of this op."""
        if self.lines is None or op is None:
            return nullcontext()
        return self.b.located(self.lines.of(op.loc))
