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
from tilewright.targets.cpu.lifetimes import Bindings, Held, LiveBuffers
from tilewright.targets.cpu.machine import Machine
from tilewright.targets.cpu.plan import Plan

STACK_BUFFER = 4096  # bytes of the largest buffer on the stack; larger ones are in the workspace
STACK_BYTES = 64 * 1024  # bytes of all buffers on the stack; further ones are in the workspace
ALIGN = 64  # bytes, of buffers: a cache line, and the widest vector


class Kernel:
    """The state of emitting one kernel.

    Attributes:
        env: bindings of IR values: an LLVM value for a scalar, a buffer for a kept tile.
        is_large: i1, whether streamed stores are to be non-temporal.
        lanes: the number of lanes of loops: 32-bit elements of the widest vector.
        live: the buffers in the workspace.
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
        self.env = Bindings()
        self.live = LiveBuffers(plan, self.env)
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
        """Axis information of the function that is proven."""
        return self.plan.facts

    def constant(self, op: arith.Constant) -> V:
        element = ir.element_of(op.type)
        t = register_type(element)
        if isinstance(element, ir.Pointer):
            return V(f"inttoptr (i64 {op.value} to ptr)", PTR)
        return const(t, number_of(element, op.value))

    @property
    def scratch_bytes(self) -> int:
        """Bytes of workspace that the caller must provide."""
        return self.live.workspace.bytes

    def buffer(self, value: Value, inner: int | None = None) -> Buffer:
        """Allocate a buffer for a tile; the caller fills it and binds it to the value.

        Its memory is reused after the last step that reads a value bound to it (`lifetimes`).
        """
        assert isinstance(value.type, ir.Tile)
        element, count = memory_type(value.type), value.type.numel
        ptr = self._on_stack(element, count)
        if ptr is None:
            ptr, held = self._in_workspace(element, count)
            self.live.recent.append(held)
        return Buffer(ptr, value.type, inner)

    def allocate(self, element: LType, count: int) -> V:
        """Allocate memory for `count` elements, with the lifetime of the program."""
        return self._on_stack(element, count) or self._in_workspace(element, count)[0]

    def _on_stack(self, element: LType, count: int) -> V | None:
        """Memory on the stack; None if it is too large."""
        size = _size(element, count)
        if size > min(STACK_BUFFER, STACK_BYTES - self._stack_bytes):
            return None
        self._stack_bytes += size
        return self.b.alloca(array(element, count), 1, ALIGN)

    def _in_workspace(self, element: LType, count: int) -> tuple[V, Held]:
        size = _size(element, count)
        offset = self.live.workspace.take(size)
        ptr = self.at_entry(lambda b: b.gep(I8, self.scratch, const(I64, offset)))
        return ptr, Held(ptr.text, offset, size)

    def at_entry(self, make: Callable[[Builder], V]) -> V:
        """Emit into the entry block, whose values dominate the whole function."""
        b = self.b
        saved = b.current
        b.at(self.entry)
        result = make(b)
        b.at(saved)
        return result

    def cost(self, value: Value) -> int:
        """The cost of one element, excluding values that are already bound."""
        return self.plan.costs.of(value, self.env)

    # -- code -----------------------------------------------------------------------------------

    def line_of(self, op: Op | None) -> AbstractContextManager[None]:
        """Attribute instructions emitted within to the line of this op."""
        if self.lines is None or op is None:
            return nullcontext()
        return self.b.located(self.lines.of(op.loc))


def _size(element: LType, count: int) -> int:
    """Bytes of a buffer, in whole cache lines."""
    return -(-count * element.bits // 8 // ALIGN) * ALIGN
