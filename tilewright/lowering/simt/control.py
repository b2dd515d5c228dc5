"""Programs and structured control flow."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import types as ir
from tilewright.ir.core import Value
from tilewright.lowering.emit import V, const
from tilewright.lowering.simt.kernel import Kernel, Registers, emits, register_count
from tilewright.ops import control


@emits(control.ProgramId)
def emit_program_id(kernel: Kernel, op: control.ProgramId) -> None:
    kernel.bind(op, [kernel.at_entry(lambda b: kernel.hw.program_id(b, op.axis))])


@emits(control.NumPrograms)
def emit_num_programs(kernel: Kernel, op: control.NumPrograms) -> None:
    kernel.bind(op, [kernel.at_entry(lambda b: kernel.hw.num_programs(b, op.axis))])


@emits(control.Barrier)
def emit_barrier(kernel: Kernel, op: control.Barrier) -> None:
    kernel.hw.barrier(kernel.b)


def _flat(kernel: Kernel, values: Sequence[Value]) -> list[V]:
    return [v for value in values for v in kernel.env[value]]


def _split(registers: Sequence[V], values: Sequence[Value]) -> list[Registers]:
    """Registers, taken apart by the values that they belong to."""
    found: list[Registers] = []
    start = 0
    for value in values:
        count = register_count(value)
        found.append(list(registers[start : start + count]))
        start += count
    return found


def _bind_all(kernel: Kernel, values: Sequence[Value], registers: Sequence[V]) -> None:
    for value, part in zip(values, _split(registers, values), strict=True):
        kernel.env[value] = part


@emits(control.For)
def emit_for(kernel: Kernel, op: control.For) -> None:
    """A counted loop that is tested at its end.

    Another iteration follows when `stop - i > step`: as i < stop, the difference is exact as an
    unsigned number of the same width, and the index never runs over the end of its type.
    """
    b = kernel.b
    start, stop = kernel.scalar(op.start), kernel.scalar(op.stop)
    step = _at_least_one(kernel, kernel.scalar(op.step))
    inits = _flat(kernel, op.inits)
    before, body, after = b.current, b.block("for"), b.block("endfor")
    signed = ir.dtype_of(op.start.type).is_int_signed()
    b.cond_br(b.icmp("slt" if signed else "ult", start, stop), body, after)
    b.at(body)
    phis = [b.phi(v.type) for v in (start, *inits)]
    index, *carried = [phi.value for phi in phis]
    kernel.env[op.body.args[0]] = [index]
    _bind_all(kernel, op.body.args[1:], carried)
    kernel.region(op.body)
    yielded = _flat(kernel, op.body.terminator.operands)
    again = b.icmp("ugt", b.sub(stop, index), step)
    following = b.add(index, step)
    latch = b.current
    b.cond_br(again, body, after)
    for phi, first, later in zip(phis, (start, *inits), (following, *yielded), strict=True):
        phi.add(first, before)
        phi.add(later, latch)
    b.at(after)
    results: list[V] = []
    for first, later in zip(inits, yielded, strict=True):
        merged = b.phi(first.type)
        merged.add(first, before)
        merged.add(later, latch)
        results.append(merged.value)
    _bind_all(kernel, op.results, results)


def _at_least_one(kernel: Kernel, step: V) -> V:
    if step.number is not None:
        return const(step.type, max(1, step.number))
    one = const(step.type, 1)
    return kernel.b.intrinsic("llvm.smax", step.type, [step, one], overloads=[step.type])


@emits(control.While)
def emit_while(kernel: Kernel, op: control.While) -> None:
    b = kernel.b
    inits = _flat(kernel, op.inits)
    before, body, after = b.block("while"), b.block("body"), b.block("done")
    entered = b.current
    b.br(before)
    b.at(before)
    phis = [b.phi(v.type) for v in inits]
    for phi, value in zip(phis, inits, strict=True):
        phi.add(value, entered)
    _bind_all(kernel, op.before.args, [phi.value for phi in phis])
    kernel.region(op.before)
    condition, *passed = op.before.terminator.operands
    b.cond_br(kernel.scalar(condition), body, after)
    b.at(body)
    _bind_all(kernel, op.body.args, _flat(kernel, passed))
    kernel.region(op.body)
    for phi, value in zip(phis, _flat(kernel, op.body.terminator.operands), strict=True):
        phi.add(value, b.current)
    b.br(before)
    b.at(after)
    _bind_all(kernel, op.results, _flat(kernel, passed))


@emits(control.If)
def emit_if(kernel: Kernel, op: control.If) -> None:
    b = kernel.b
    branches = [b.block("then"), b.block("else")]
    after = b.block("endif")
    b.cond_br(kernel.scalar(op.condition), branches[0], branches[1])
    ends = []
    for block, region in zip(branches, op.regions, strict=True):
        b.at(block)
        kernel.region(region)
        ends.append((b.current, _flat(kernel, region.terminator.operands)))
        b.br(after)
    b.at(after)
    merged: list[V] = []
    for values in zip(*(registers for _, registers in ends), strict=True):
        phi = b.phi(values[0].type)
        for (block, _), value in zip(ends, values, strict=True):
            phi.add(value, block)
        merged.append(phi.value)
    _bind_all(kernel, op.results, merged)
