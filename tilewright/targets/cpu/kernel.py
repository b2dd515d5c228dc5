"""Walks a program and emits it: steps of the plan in order, control flow, entry point.

The entry has the launch ABI: ``void NAME(ptr args, ptr scratch, i64 first, i64 last, ptr grid)``
runs programs first … last - 1 of the flattened grid (x fastest). It reads the argument slots once
and calls ``NAME.program`` for each. There pointers known to be disjoint are `noalias`. A short one
becomes the loop's body.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tilewright.analysis.affine import constant_strides
from tilewright.analysis.axis_info import AxisMap, axis_info
from tilewright.base.lazy import cached_property
from tilewright.ir import types as ir
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.lowering.convert import cast_fp16
from tilewright.lowering.emit import (
    I1,
    I8,
    I32,
    I64,
    PTR,
    VOID,
    Builder,
    LType,
    Module,
    V,
    array,
    const,
)
from tilewright.lowering.lines import Lines
from tilewright.lowering.types import memory_type, number_of, register_type
from tilewright.ops import arith, control, memory
from tilewright.targets.cpu import access, avx512
from tilewright.targets.cpu.access import Buffer
from tilewright.targets.cpu.access_report import AccessReport
from tilewright.targets.cpu.evaluate import evaluate
from tilewright.targets.cpu.level import Level
from tilewright.targets.cpu.loops import emit_group, run_sinks
from tilewright.targets.cpu.machine import Machine
from tilewright.targets.cpu.plan import Group, Plan, Run
from tilewright.targets.cpu.plan_loops import plan_function
from tilewright.targets.cpu.sinks import Copy, Sink
from tilewright.targets.cpu.streaming import is_large, streamed_stores

STACK_BUFFER = 4096  # a buffer of at most so many bytes lives on the stack
ALIGN = 64

Binding = V | Buffer
StepEmitter = Callable[["Kernel", Level, Any], None]
STEPS: dict[type[Op], StepEmitter] = {}

_INLINED = 150
"""Lines of LLVM IR up to which a program is put where it is called. Adding two vectors has 77, and
takes 3 % less then when they come from the L3 cache."""


def emits(*classes: type[Op]) -> Callable[[StepEmitter], StepEmitter]:
    """Register how an op that runs by itself is emitted."""

    def register(fn: StepEmitter) -> StepEmitter:
        for cls in classes:
            STEPS[cls] = fn
        return fn

    return register


class Kernel:
    """The state of emitting one kernel.

    Attributes:
        env: what each value is: an LLVM value for a scalar, a buffer for a kept tile.
        streamed: pointers of stores that may go past the caches; is_large: where they shall.
        lanes: the number of lanes that loops use.
        scratch_bytes: workspace that the kernel needs from its caller.
        lines: the source lines that instructions come from; None where nobody asks for them.
        accesses: what each load and store became, for who asks.

    Args:
        lines: whether the code tells its source lines. It is the same code, but takes LLVM a
            quarter more time.
    """

    def __init__(
        self, fn: Function, machine: Machine, fast_flags: str, *, lines: bool = False
    ) -> None:
        self.fn = fn
        self.machine = machine
        self.lanes = machine.vector_bytes // 4
        self.module = Module(fn.name)
        self.fast_flags = fast_flags
        self.env: dict[Value, Binding] = {}
        self.scratch_bytes = 0
        self.plan: Plan = plan_function(fn)
        self.streamed: frozenset[Value] = streamed_stores(fn, self.plan.forms)
        self.wants_lines = lines
        self.lines: Lines | None = None
        self.accesses = AccessReport()
        self.b: Builder
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

    def lane_axis(self, shape: tuple[int, ...], sinks: list[Sink]) -> int:
        """The axis along which most loads and stores are contiguous; the last where none is."""
        votes = [0] * len(shape)
        for sink in sinks:
            for pointer in sink.pointers():
                strides = constant_strides(pointer, self.plan.forms)
                for axis, stride in enumerate(strides):
                    if len(strides) == len(shape) and stride == 1 and shape[axis] > 1:
                        votes[axis] += 1
        last = len(shape) - 1
        best = max(range(len(shape)), key=lambda a: (votes[a], shape[a] > 1, a))
        return best if votes[best] or shape[last] == 1 else last

    # -- code -----------------------------------------------------------------------------------

    def line_of(self, op: Op | None) -> AbstractContextManager[None]:
        """What is emitted within comes from the line of this op."""
        if self.lines is None or op is None:
            return nullcontext()
        return self.b.located(self.lines.of(op.loc))

    def emit(self) -> str:
        """The LLVM module as text."""
        name = f"{self.fn.name}.program"
        params = [*self._params(), *[(I32, "")] * 6, (PTR, "noalias"), (I1, "")]
        program = self.module.function(
            name, VOID, params, attributes="nounwind", linkage="internal"
        )
        self.b = Builder(program, has_fma=self.machine.has_fma, fast_flags=self.fast_flags)
        if not self.machine.converts_fp16:
            self.b.own_cast = cast_fp16
        elif avx512.converts_bf16(self.machine):
            self.b.own_cast = avx512.cast_bf16
        if avx512.has_scale(self.machine):
            self.b.own_scale = avx512.scale
        if self.wants_lines and self.fn.loc is not None:
            self.lines = Lines(self.module, program, self.fn.loc)
            self.b.location = self.lines.of(self.fn.loc)
        for arg, v in zip(self.fn.args, program.params, strict=False):
            self.env[arg] = v
        n = len(self.fn.args)
        self.program = (program.params[n], program.params[n + 1], program.params[n + 2])
        self.grid = (program.params[n + 3], program.params[n + 4], program.params[n + 5])
        self.scratch = program.params[n + 6]
        self.is_large = program.params[n + 7]
        self.entry = self.b.current
        body = self.b.block("body")
        self.b.at(body)
        self.region(self.fn.body, Level(self, body))
        self.b.ret()
        self.b.at(self.entry)
        self.b.br(body)
        if sum(len(block.lines) for block in program.blocks) < _INLINED:
            program.add_attribute("alwaysinline")
        self._entry_point(name)
        return self.module.text()

    def _params(self) -> list[tuple[LType, str]]:
        """Parameter types; a pointer is `noalias` when no other argument may reach its memory."""
        classes = [
            attrs.get("alias")
            for arg, attrs in zip(self.fn.args, self.fn.arg_attrs, strict=True)
            if ir.is_pointer(arg.type)
        ]
        found: list[tuple[LType, str]] = []
        for arg, attrs in zip(self.fn.args, self.fn.arg_attrs, strict=True):
            alone = None not in classes and classes.count(attrs.get("alias")) == 1
            t = register_type(arg.type)
            found.append((t, "noalias" if t is PTR and alone else ""))
        return found

    def _entry_point(self, program: str) -> None:
        params = [(PTR, ""), (PTR, "noalias"), (I64, ""), (I64, ""), (PTR, "")]
        entry = self.module.function(self.fn.name, VOID, params, attributes="nounwind")
        slots, scratch, first, last, grid = entry.params
        b = Builder(entry)
        args = [self._read_slot(b, slots, i, a.type) for i, a in enumerate(self.fn.args)]
        extents = [b.load(I32, b.gep(I32, grid, i)) for i in range(3)]
        wide = [b.zext(e, I64) for e in extents]
        large = is_large(b, self, wide)
        is_line = b.icmp("eq", b.or_(extents[1], extents[2]), 1)
        with b.loop(first, last) as loop:
            ids = _program_ids(b, loop.index, wide, is_line)
            b.location = self.lines.of_call_in(entry) if self.lines else None
            b.call(program, VOID, [*args, *ids, *extents, scratch, large])
            b.location = None
        if self.streamed:
            fenced, done = b.block("fence"), b.block("done")
            b.cond_br(large, fenced, done)
            b.at(fenced)
            b.fence()
            b.br(done)
            b.at(done)
        b.ret()

    def _read_slot(self, b: Builder, slots: V, i: int, type: ir.Type) -> V:
        at = b.gep(I64, slots, i)
        value = b.load(memory_type(type), at)
        return b.icmp("ne", value, 0) if register_type(type) is I1 else value

    def region(self, region: Region, level: Level) -> None:
        """Emit the steps of a region in order, in straight code below `level`."""
        for step in self.plan.steps[region]:
            self.b.at(level.block)
            if isinstance(step, Group):
                emit_group(self, level, step)
            else:
                self.run(level, step)

    def run(self, level: Level, step: Run) -> None:
        op = step.op
        emitter = STEPS.get(type(op))
        if emitter is not None:
            with self.line_of(op):
                emitter(self, level, op)
            level.block = self.b.current
            return
        assert op.results, f"{op.name} can't run by itself"
        for result in op.results:
            self.env[result] = evaluate(level, result, ()).base
        level.block = self.b.current

    def copy(self, level: Level, pairs: list[tuple[Value, Buffer]]) -> None:
        """Evaluate tile values into buffers, those of one shape in one nest."""
        by_shape: dict[tuple[int, ...], list[Sink]] = {}
        for value, buffer in pairs:
            bound = self.env.get(value)
            if isinstance(bound, Buffer) and bound.ptr is buffer.ptr:
                continue
            by_shape.setdefault(buffer.type.shape, []).append(Copy(self, value, buffer))
        for shape, sinks in by_shape.items():
            self.b.at(level.block)
            run_sinks(self, level, shape, sinks)


def _program_ids(b: Builder, number: V, extents: list[V], is_line: V) -> list[V]:
    """The ids along x, y and z of a program of this number; in a grid along x it is the first.

    There nothing is divided, which the program's first loads would wait for.
    """
    before, divided, known = b.current, b.block("divided"), b.block("known")
    along_x = [b.trunc(number, I32), const(I32, 0), const(I32, 0)]
    b.cond_br(is_line, known, divided)
    b.at(divided)
    x, rest = b.urem(number, extents[0]), b.udiv(number, extents[0])
    found = [b.trunc(v, I32) for v in (x, b.urem(rest, extents[1]), b.udiv(rest, extents[1]))]
    b.br(known)
    b.at(known)
    phis = [b.phi(I32) for _ in found]
    for phi, alone, computed in zip(phis, along_x, found, strict=True):
        phi.add(alone, before)
        phi.add(computed, divided)
    return [phi.value for phi in phis]


@emits(memory.Store)
def _emit_store(kernel: Kernel, level: Level, op: memory.Store) -> None:
    """A store of one scalar."""
    mask = evaluate(level, op.mask, ()) if op.mask is not None else None
    access.store(level, op, (), evaluate(level, op.ptr, ()), evaluate(level, op.value, ()), mask)


@emits(control.ProgramId)
def _emit_program_id(kernel: Kernel, level: Level, op: control.ProgramId) -> None:
    kernel.env[op.result] = kernel.program[op.axis]


@emits(control.NumPrograms)
def _emit_num_programs(kernel: Kernel, level: Level, op: control.NumPrograms) -> None:
    kernel.env[op.result] = kernel.grid[op.axis]


@emits(control.Barrier)
def _emit_barrier(kernel: Kernel, level: Level, op: control.Barrier) -> None:
    """A program is one thread: its own order is enough, which the plan keeps."""
