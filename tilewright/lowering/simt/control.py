"""Program indices and structured control flow.

Loops and conditionals become basic blocks with a phi for each register that is carried or merged.
Conditions and loop bounds are scalars, hence uniform in a program, so barriers within are valid.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import types as ir
from tilewright.ir.core import Value
from tilewright.lowering.counted_loop import at_least_one, known_bound
from tilewright.lowering.emit import Block, Builder, V, const
from tilewright.lowering.simt.kernel import Kernel, emits, register_count
from tilewright.lowering.simt.words import Words, whole_words
from tilewright.ops import control
from tilewright.ops.arith import Sub
from tilewright.passes.software_pipelining import is_unrolled


@emits(control.ProgramId)
def emit_program_id(kernel: Kernel, op: control.ProgramId) -> None:
    kernel.bind(op, [kernel.at_entry(lambda b: kernel.hw.program_id(b, op.axis))])


@emits(control.NumPrograms)
def emit_num_programs(kernel: Kernel, op: control.NumPrograms) -> None:
    kernel.bind(op, [kernel.at_entry(lambda b: kernel.hw.num_programs(b, op.axis))])


@emits(control.Barrier)
def emit_barrier(kernel: Kernel, op: control.Barrier) -> None:
    kernel.barrier()


class _Passage:
    """The form in which tiles pass from block to block: packed words if possible, else registers.

    A narrow element that was loaded is a part of a 32-bit word (`V.part`). As a phi of its own it
    would occupy a whole register, and need an instruction to be extracted.
    """

    def __init__(self, kernel: Kernel, *sources: Sequence[Value]) -> None:
        """Values are passed as words if all of their `sources` consist of whole words.

        For a loop these are the initial values. A value that the body yields may be in registers
        instead: `take` packs it, as the phis have the type of the initial value.
        """
        self.kernel = kernel
        self.types = [value.type for value in sources[0]]
        self.by_words = [
            all(whole_words(kernel.env[value]) for value in values)
            for values in zip(*sources, strict=True)
        ]

    def take(self, values: Sequence[Value]) -> list[V]:
        """The words or registers to pass for the values."""
        result: list[V] = []
        for value, type, by_words in zip(values, self.types, self.by_words, strict=True):
            registers = self.kernel.env[value]
            if by_words:
                registers = Words(self.kernel.b, type, len(registers)).pack(registers)
            result += registers
        return result

    def give(self, values: Sequence[Value], passed: Sequence[V]) -> None:
        """Bind values to the words or registers that were passed for them."""
        start = 0
        for value, type, by_words in zip(values, self.types, self.by_words, strict=True):
            count = register_count(value)
            if by_words:
                access = Words(self.kernel.b, type, count)
                self.kernel.env[value] = access.unpack(passed[start : start + access.count])
                start += access.count
            else:
                self.kernel.env[value] = list(passed[start : start + count])
                start += count


@emits(control.For)
def emit_for(kernel: Kernel, op: control.For) -> None:
    """A rotated loop: a guard before the first iteration, and the test at its end.

    The index of an iteration that executes never overflows its type.
    """
    b = kernel.b
    start, stop = kernel.scalar(op.start), kernel.scalar(op.stop)
    signed = ir.dtype_of(op.start.type).is_int_signed()
    step = at_least_one(b, kernel.scalar(op.step), signed=signed)
    passage = _Passage(kernel, op.inits)
    inits = passage.take(op.inits)
    bounds = start, stop, step
    origin, end = start, _end(bounds, signed)
    if end is None and _may_be_unrolled(kernel, op):
        end = _rounded_distance(b, bounds, signed)
        origin = start if end is None else const(start.type, 0)
    before, body, after = b.current, b.block("for"), b.block("endfor")
    b.cond_br(b.icmp("slt" if signed else "ult", start, stop), body, after)
    b.at(body)
    phis = [b.phi(v.type) for v in (origin, *inits)]
    counter, *carried = [phi.value for phi in phis]
    index = counter if origin is start else b.add(counter, start)
    kernel.carry(op.body.args)
    kernel.env[op.body.args[0]] = [index]
    passage.give(op.body.args[1:], carried)
    kernel.region(op.body)
    yielded = passage.take(op.body.terminator.operands)
    following = b.add(counter, step)
    if end is not None:
        again = b.icmp("ne", following, end)
    else:
        again = b.icmp("ugt", b.sub(stop, index), step)
    latch = b.current  # not `body`, if the region has branches or loops
    b.cond_br(again, body, after)
    for phi, first, later in zip(phis, (origin, *inits), (following, *yielded), strict=True):
        phi.add(first, before)
        phi.add(later, latch)
    b.at(after)
    passage.give(op.results, b.merge((before, inits), (latch, yielded)))


def _end(bounds: tuple[V, V, V], signed: bool) -> V | None:
    """The index after the last iteration, modulo 2^n, if it is known.

    The test of the loop is then `following != end`. An inequality holds modulo 2^n, so it stays
    correct however compilers rewrite it in terms of another value of the induction variable.
    Ordered comparisons do not: ptxas 13.0 rewrites `index >u c` as `following >u c + step`, which
    is wrong if `following` wraps, as in range(-2, 1): it counted one iteration of range(1, 2**64 -
    1, 2**62 + 1) instead of four. An index that wraps after the last iteration is less than `step`
    above the least number, so that no index before it is equal.

    Else it is `stop - index >u step`: the difference is exact as an unsigned number of the same
    width, whereas the sum may overflow.
    """
    _, stop, step = bounds
    if step.number == 1:
        return stop
    first, last, by = (known_bound(v, signed=signed) for v in bounds)
    if first is None or last is None or by is None:
        return None
    return const(stop.type, control.index_after(first, last, by))


MOST_UNROLLED = 32
"""The most iterations, about, that assemblers do at once in a loop that they unroll."""


def _rounded_distance(b: Builder, bounds: tuple[V, V, V], signed: bool) -> V | None:
    """The distance from the start to the index after the last iteration, if it is cheap to compute.

    The loop then counts from 0 to it, as an unsigned number. ptxas does not find the number of
    iterations in `stop - index >u step`, and does not unroll such a loop if the body, too, uses the
    index, as masks do: a product of a matrix and a vector had the loads of one iteration in flight
    instead of four. Of a loop that it unrolls, the last test is `following >= end - 3 * step`, of
    signed numbers. It never ended one of 120 iterations from 135691199 by 2**24, whose end wraps.
    From 0, no iteration but the last can pass the largest number, unless 3 * step does.
    """
    start, stop, step = bounds
    by = known_bound(step, signed=signed)
    if by is None or by & (by - 1) or by * MOST_UNROLLED >= 1 << (step.type.bits - 1):
        return None
    return b.and_(b.add(b.sub(stop, start), by - 1), -by)  # exact modulo 2^n


def _may_be_unrolled(kernel: Kernel, loop: control.For) -> bool:
    """Whether an assembler unrolls a loop if it finds the number of its iterations."""
    if kernel.ctx.machine is None or not is_unrolled(loop, kernel.ctx):
        return False
    return not _counts_down(loop)


def _counts_down(loop: control.For) -> bool:
    """Whether the body computes the distance to the end, which the test of the loop shares."""
    index = loop.body.args[0]
    return any(
        isinstance(op, Sub) and op.lhs is loop.stop and op.rhs is index for op in index.users
    )


@emits(control.While)
def emit_while(kernel: Kernel, op: control.While) -> None:
    """A loop whose header evaluates the condition.

    Only the header has phis: it dominates the body and the exit, which use its registers.
    """
    b = kernel.b
    passage = _Passage(kernel, op.inits)
    inits = passage.take(op.inits)
    before, body, after = b.block("while"), b.block("body"), b.block("done")
    entered = b.current
    b.br(before)
    b.at(before)
    phis = [b.phi(v.type) for v in inits]
    for phi, value in zip(phis, inits, strict=True):
        phi.add(value, entered)
    passage.give(op.before.args, [phi.value for phi in phis])
    kernel.region(op.before)
    condition, *passed = op.before.terminator.operands
    b.cond_br(kernel.scalar(condition), body, after)
    b.at(body)
    kernel.carry(op.body.args)
    _pass_on(kernel, passed, op.body.args)
    kernel.region(op.body)
    for phi, value in zip(phis, passage.take(op.body.terminator.operands), strict=True):
        phi.add(value, b.current)
    b.br(before)
    b.at(after)
    _pass_on(kernel, passed, op.results)


def _pass_on(kernel: Kernel, values: Sequence[Value], to: Sequence[Value]) -> None:
    """Bind values to the registers of others, which are defined in a dominating block."""
    for old, new in zip(values, to, strict=True):
        kernel.env[new] = kernel.env[old]


@emits(control.If)
def emit_if(kernel: Kernel, op: control.If) -> None:
    b = kernel.b
    branches = [b.block("then"), b.block("else")]
    after = b.block("endif")
    b.cond_br(kernel.scalar(op.condition), branches[0], branches[1])
    ends: list[Block] = []
    for block, region in zip(branches, op.regions, strict=True):
        b.at(block)
        kernel.region(region)
        ends.append(b.current)
        b.br(after)
    b.at(after)
    yields = [region.terminator.operands for region in op.regions]
    passage = _Passage(kernel, *yields)
    sides = zip(ends, map(passage.take, yields), strict=True)
    passage.give(op.results, b.merge(*sides))
