"""Vectorised combine regions: each lane executes the region on its own elements.

Input: a region and its arguments as vectors. Elementwise ops become vector ops. Control flow is
predicated: both sides of a branch are executed, and a select chooses by lane; a loop runs as long
as the condition holds in any active lane, and inactive lanes keep their values. The mask of active
lanes is tracked because a loop on arbitrary values of inactive lanes need not terminate.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import types as ir
from tilewright.ir.core import Op, Region, Value
from tilewright.lowering.counted_loop import at_least_one
from tilewright.lowering.emit import I1, I64, Builder, LType, V, const, vector, zero
from tilewright.lowering.registry import lowering_of
from tilewright.lowering.types import number_of, register_type
from tilewright.ops import arith, control
from tilewright.targets.cpu.kernel import Kernel
from tilewright.targets.cpu.lanes import spread
from tilewright.targets.cpu.level import Level
from tilewright.targets.cpu.name import NAME

Env = dict[Value, V]
Conditions = tuple[tuple[V, bool], ...]
"""A lane is active if each of these conditions has the given truth value in it."""


def combine_lanes(
    level: Level, region: Region, args: Sequence[V], active: V | None = None
) -> list[V]:
    """Emit a combine region on vectors, in the block of the level.

    Args:
        active: the lanes whose results are used; None for all.
    """
    env: Env = dict(zip(region.args, args, strict=True))
    run = _Run(level.kernel, args[0].type.lanes)
    result = run.region(region, env, ((active, True),) if active is not None else ())
    level.block = level.b.current
    return result


def lanes_type(element: LType, width: int) -> LType:
    return vector(element, width) if width > 1 else element


def lower(b: Builder, op: Op, args: list[V]) -> V:
    """An elementwise op on vectors or scalars."""
    found = lowering_of(type(op), NAME)
    if found is None:
        raise NotImplementedError(f"{op.name} in a combine function, at {op.loc}")
    return found(b, op, *args)


class _Run:
    def __init__(self, kernel: Kernel, width: int) -> None:
        self.b = kernel.b
        self.kernel = kernel
        self.width = width

    def region(self, region: Region, env: Env, active: Conditions) -> list[V]:
        """Emit the region; returns the operands of its terminator."""
        for op in region:
            if op.terminator:
                return [env[v] for v in op.operands]
            match op:
                case arith.Constant():
                    number = number_of(ir.dtype_of(op.type), op.value)
                    env[op.result] = const(self.lanes(op.type), number)
                case control.ProgramId(axis):
                    env[op.result] = spread(self.b, self.kernel.program[axis], self.width)
                case control.NumPrograms(axis):
                    env[op.result] = spread(self.b, self.kernel.grid[axis], self.width)
                case control.If():
                    self.branch(op, env, active)
                case control.While():
                    self.while_loop(op, env, self.mask(active))
                case control.For():
                    self.counted_loop(op, env, self.mask(active))
                case _:
                    env[op.result] = lower(self.b, op, [env[v] for v in op.operands])
        raise AssertionError("a region without terminator")

    def lanes(self, type: ir.Type) -> LType:
        return lanes_type(register_type(type), self.width)

    def mask(self, active: Conditions) -> V:
        """The lanes for which all conditions hold."""
        b, bits = self.b, lanes_type(I1, self.width)
        result = const(bits, 1)
        for condition, truth in active:
            required = condition if truth else b.xor(condition, const(bits, 1))
            result = b.and_(result, required)
        return result

    def any(self, mask: V) -> V:
        if self.width <= 1:
            return mask
        return self.b.intrinsic("llvm.vector.reduce.or", I1, [mask], overloads=[mask.type])

    def branch(self, op: control.If, env: Env, active: Conditions) -> None:
        condition = env[op.condition]
        then = self.region(op.then, dict(env), (*active, (condition, True)))
        otherwise = self.region(op.otherwise, dict(env), (*active, (condition, False)))
        for result, x, y in zip(op.results, then, otherwise, strict=True):
            env[result] = self.b.select(condition, x, y)

    def while_loop(self, op: control.While, env: Env, mask: V) -> None:
        b = self.b
        kept = [zero(self.lanes(r.type)) for r in op.results]
        state = [env[v] for v in op.inits]
        entry, head, body, done = b.current, b.block("turn"), b.block("go"), b.block("left")
        b.br(head)
        b.at(head)
        active, *phis = [b.phi(v.type) for v in (mask, *state, *kept)]
        carried = [p.value for p in phis]
        inner = env | dict(zip(op.before.args, carried, strict=False))
        condition, *passed = self.region(op.before, inner, ((active.value, True),))
        left = [
            b.select(active.value, new, old)
            for new, old in zip(passed, carried[len(state) :], strict=True)
        ]
        go = b.and_(active.value, condition)
        b.cond_br(self.any(go), body, done)
        b.at(body)
        inner = env | dict(zip(op.body.args, passed, strict=True))
        following = self.region(op.body, inner, ((go, True),))
        for phi, first, later in zip(
            (active, *phis), (mask, *state, *kept), (go, *following, *left), strict=True
        ):
            phi.add(first, entry)
            phi.add(later, b.current)
        b.br(head)
        b.at(done)
        env.update(zip(op.results, left, strict=True))

    def counted_loop(self, op: control.For, env: Env, mask: V) -> None:
        b = self.b
        start, stop, step = (env[v] for v in (op.start, op.stop, op.step))
        count = trip_count(b, ir.dtype_of(op.start.type), start, stop, step)
        # The mask is carried, too: if it is a phi of an enclosing loop, LLVM 22's NewGVN takes its
        # `and` with a value that varies in this loop for a loop invariant.
        state = [mask, start, const(count.type, 0), *(env[v] for v in op.inits)]
        entry, head, body, done = b.current, b.block("turn"), b.block("go"), b.block("left")
        b.br(head)
        b.at(head)
        phis = [b.phi(v.type) for v in state]
        active, i, k, *carried = [p.value for p in phis]
        go = b.and_(active, b.icmp("slt", k, count))
        b.cond_br(self.any(go), body, done)
        b.at(body)
        inner = env | dict(zip(op.body.args, (i, *carried), strict=True))
        following = [
            b.select(go, new, old)
            for new, old in zip(self.region(op.body, inner, ((go, True),)), carried, strict=True)
        ]
        signed = ir.dtype_of(op.start.type).is_int_signed()
        by = at_least_one(b, step, signed=signed)
        ahead = [go, b.add(i, by), b.add(k, const(k.type, 1))]
        for phi, first, later in zip(phis, state, [*ahead, *following], strict=True):
            phi.add(first, entry)
            phi.add(later, b.current)
        b.br(head)
        b.at(done)
        env.update(zip(op.results, carried, strict=True))


def trip_count(b: Builder, element: ir.DType, start: V, stop: V, step: V) -> V:
    """ceil((stop - start) / step) in 64 bits, 0 if negative."""
    signed = element.is_int_signed()
    wide = lanes_type(I64, start.type.lanes)
    if element.primitive_bitwidth < 64:
        extend = b.sext if signed else b.zext
        start, stop, step = extend(start, wide), extend(stop, wide), extend(step, wide)
    one = const(wide, 1)
    less = b.icmp("slt" if signed else "ult", start, stop)
    # As (stop - start - 1) // step + 1, of which no part overflows where start < stop.
    steps = b.udiv(b.sub(b.sub(stop, start), one), at_least_one(b, step, signed=signed))
    return b.select(less, b.add(steps, one), const(wide, 0))
