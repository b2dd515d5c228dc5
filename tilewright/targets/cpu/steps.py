"""Emits the steps of a plan in order: a loop nest for a group, the registered emitter for an op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.base.located import error_at
from tilewright.ir.core import Op, Region
from tilewright.ir.op_table import OpTable
from tilewright.ops import control, memory
from tilewright.targets.cpu import access
from tilewright.targets.cpu.evaluate import evaluate
from tilewright.targets.cpu.kernel import Kernel
from tilewright.targets.cpu.level import Level
from tilewright.targets.cpu.lifetimes import RegionLifetimes
from tilewright.targets.cpu.nest import run_sinks
from tilewright.targets.cpu.plan import Group, Run
from tilewright.targets.cpu.prefetch import prefetch_sinks
from tilewright.targets.cpu.sinks import sinks_of
from tilewright.targets.cpu.transposes import emit_transposes

StepEmitter = Callable[[Kernel, Level, Any], None]
STEPS: OpTable[StepEmitter] = OpTable("emitters for the CPU")


def emits(*classes: type[Op]) -> Callable[[StepEmitter], StepEmitter]:
    """Register the emitter of op classes that are steps of their own (`plan.Run`)."""
    return STEPS.of(*classes)


def emit_region(kernel: Kernel, region: Region, level: Level) -> None:
    """Emit the steps of a region in order, as straight-line code of `level`."""
    lifetimes = RegionLifetimes(kernel.live, region)
    for index, step in enumerate(kernel.plan.steps[region]):
        kernel.b.at(level.block)
        if isinstance(step, Group):
            _emit_group(kernel, level, step)
        else:
            _run(kernel, level, step)
        lifetimes.end_step(index)
    lifetimes.end()


def _emit_group(kernel: Kernel, level: Level, group: Group) -> None:
    """Emit the loop nest of a group, and bind its results."""
    if group.transposed is not None:
        emit_transposes(kernel, level, group)
        return
    sinks = [*sinks_of(kernel, group), *prefetch_sinks(kernel, group)]
    run_sinks(kernel, level, group.shape, sinks, group.reduce_axis)


def _run(kernel: Kernel, level: Level, step: Run) -> None:
    op = step.op
    emitter = STEPS.get(type(op))
    if emitter is not None:
        with kernel.line_of(op):
            emitter(kernel, level, op)
        level.block = kernel.b.current
        return
    if not op.results:
        raise error_at(op.loc, f"{op.name} can't be compiled for the CPU")
    for result in op.results:
        kernel.env[result] = evaluate(level, result, ()).base
    level.block = kernel.b.current


@emits(memory.Store)
def _emit_store(kernel: Kernel, level: Level, op: memory.Store) -> None:
    """A store of a scalar."""
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
    """Nothing: a program is one thread, and the plan preserves its order of accesses."""
