"""Loop rotation: the second product of a loop overlaps the computations of the next iteration.

    for i in range(n):                       if n > 0:
        s = q @ k[i]                             p = f(q @ k[0])
        p = f(s)              becomes            for i in range(1, n):
        acc = acc + p @ v[i]                         s = q @ k[i]
                                                     acc = acc + p @ v[i - 1]   # while f computes
                                                     p = f(s)
                                                 acc = acc + p @ v[n - 1]

The tensor cores would be idle during `f` (the softmax of attention), as the product after it needs
its result. The rotated loop has a product that does not depend on `f`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tilewright.analysis.dependences import dependent_ops, needed_ops
from tilewright.ir.core import Op, Region, Value
from tilewright.ir.passes import PassContext, optional_part
from tilewright.ir.rewriter import insert_before
from tilewright.ir.types import Shared, Tile, dtype_of
from tilewright.layout.linear import REGISTER
from tilewright.ops.arith import Add, Cmp
from tilewright.ops.control import For, If, Yield
from tilewright.ops.gpu import Fetch, Share
from tilewright.ops.memory import Load
from tilewright.ops.nvidia import Wgmma, WgmmaWait
from tilewright.ops.roles import WaitBarrier
from tilewright.rewrites.control import replace_loop_or_branch
from tilewright.targets.nvidia.buffer_uses import readers

NAME = optional_part("rotate_products")
MAX_CARRIED = 64  # 32-bit registers of a thread that rotation may add to what a loop carries


Guards = Mapping[Op, Sequence[Value]]
"""The waits for slots, and the releases of them, with the views of the slots."""


def rotate_loops(loops: Sequence[For], guards: Guards, ctx: PassContext) -> bool:
    """Rotate the loops in which a product depends on the result of another one.

    Needs: layouts; products with an immediate wait, whose operands a copying warp copies; no other
    writes in the loops.
    Leaves: the same values. The computations before the second product are peeled off the first
    iteration, and the rest off the last one; all of it is predicated on a trip count above 0.
    """
    changed = False
    for loop in loops:
        parts = _parts(loop, guards)
        if isinstance(parts, str):
            if parts:
                ctx.missed(NAME, parts, loop.loc)
            continue
        ctx.did(NAME, "runs while the next iteration computes its operand", parts.second.loc)
        ctx.count("rotated")
        _Rotation(loop, parts).rewrite()
        changed = True
    return changed


def hoist_shares(loops: Sequence[For]) -> None:
    """Hoist the `gpu.share` of operands that are the same in all iterations of a loop: else each
    copy of the body would have one. Loops that follow each other get the same buffer."""
    hoisted: list[Share] = []
    for loop in loops:
        assert loop.parent is not None
        for op in [op for op in loop.body if isinstance(op, Share)]:
            if op.src.region is loop.body:
                continue
            same = next((s for s in hoisted if _are_equal(s, op) and s.parent is loop.parent), None)
            if same is not None:
                op.result.replace_with(same.result)
                op.erase()
            else:
                op.remove()
                loop.parent.insert_before(op, loop)
                hoisted.append(op)


def _are_equal(a: Share, b: Share) -> bool:
    return a.src is b.src and a.result.layout == b.result.layout


class _Parts(NamedTuple):
    """The partition of the ops of a loop's body.

    Attributes:
        first: the product that is independent of the previous iteration, with what it depends on.
        rest: what else the second product depends on.
        late: the second product, what depends on it, and ops that only these use.
        second: the second product.
        crossing: values of the first two parts that the late one uses.
    """

    first: list[Op]
    rest: list[Op]
    late: list[Op]
    second: Wgmma
    crossing: list[Value]


def _parts(loop: For, guards: Guards) -> _Parts | str:
    """The parts of a loop's body; else the reason not to rotate, "" if there is no gain."""
    body = loop.body
    products = [op for op in body if isinstance(op, Wgmma)]
    if len(products) != 2 or not all(isinstance(p.next, WgmmaWait) for p in products):
        return ""
    ops = [op for op in body if not op.terminator]
    if any(op.regions and not op.pure for op in ops):
        return "control flow between the products has effects"
    if any(
        op.writes() and not isinstance(op, Wgmma | WgmmaWait) and op not in guards for op in ops
    ):
        return "the loop writes memory"
    if any(op.reads_memory and not isinstance(op, Load | Fetch) for op in ops):
        return "the loop reads shared memory between the products"
    first, second = products
    ahead = needed_ops(first.operands, body)
    counted = _counted(body)
    if any(v.owner is body and v.index and v not in counted for op in ahead for v in op.operands):
        return "the first product needs what the loop carries"
    from_first = _dependent(first, ops)
    if second not in from_first:
        return ""
    after = _dependent(second, ops)
    carried_or_first = from_first | dependent_ops({*body.args[1:]} - counted, ops)
    fixed, late = carried_or_first | ahead, after | set[Op]([second])
    _add_only_users(late, fixed, ops)
    head = set(ahead)
    head.update(op for op in (first, first.next) if op is not None)
    _place_guards(guards, [op for op in ops if op in guards], head, late)
    _add_only_users(late, fixed, ops)
    rest = [op for op in ops if op not in late and op not in head]
    # Addresses that both parts use are computed by both.
    operands = [v for op in late for v in op.all_operands()]
    both = needed_ops(operands, body, carried_or_first)
    late |= {op for op in both if op.pure and not isinstance(op, Share)}
    parts_late = [op for op in ops if op in late]
    crossing = _crossing(parts_late, body, late)
    if _registers(crossing) > _registers(_replaced(loop, late)) + MAX_CARRIED:
        return "the values between the products are too many for registers"
    if any(isinstance(v.type, Shared) for v in crossing):
        return "the second product's operand in shared memory is used before it, too"
    return _Parts([op for op in ops if op in head], rest, parts_late, second, crossing)


def _add_only_users(late: set[Op], fixed: set[Op], ops: Sequence[Op]) -> None:
    """Add the ops that only the late part uses, except fixed ones."""
    for op in reversed(ops):
        assert op.parent is not None
        users = op.parent.users_of(op)
        if op not in fixed and users and users <= late:
            late.add(op)


def _counted(body: Region) -> set[Value]:
    """The loop-carried values that are computed only from themselves, such as the position in a
    ring."""
    yields = body.terminator.operands
    found = set(body.args[1:])
    before = 0
    while before != len(found):
        before = len(found)
        for arg in list(found):
            value = yields[arg.index - 1]
            ops = needed_ops([value], body)
            used = {v for op in ops for v in op.operands if v.owner is body} | {value}
            carried = {v for v in used if v.owner is body}
            if not all(op.elementwise for op in ops) or not carried <= found:
                found.discard(arg)
    return found


def _place_guards(guards: Guards, ops: Sequence[Op], head: set[Op], late: set[Op]) -> None:
    """Add waits for slots to the part that first reads them, and releases to the part that reads
    them last, with ops on which only they depend; parts are executed in this order: head, rest,
    late."""
    for op in ops:
        views = guards[op]
        reading = [r for view in views for r in readers(view)]
        if isinstance(op, WaitBarrier):
            if any(r in head for r in reading):
                part = head
            elif all(r in late for r in reading):
                part = late
            else:
                continue
        elif any(r in late for r in reading):
            part = late
        elif all(r in head for r in reading):
            part = head
        else:
            continue
        assert op.parent is not None
        part.add(op)
        part.update(needed_ops(op.operands, op.parent) if part is head else ())


def _dependent(root: Op, ops: Sequence[Op]) -> set[Op]:
    """The ops that depend on an op's results."""
    return dependent_ops(root.results, ops)


def _crossing(late: Sequence[Op], body: Region, inside: set[Op]) -> list[Value]:
    """The values of the rest of the iteration, except its index, that the late ops use."""
    used = [v for op in late for v in op.all_operands()]
    yields = list(body.terminator.operands)
    found = [
        v
        for v in (*used, *yields)
        if (v.owner is body and v.index > 0 and v in used)
        or (v.op is not None and v.op.parent is body and v.op not in inside and v in used)
    ]
    return list(dict.fromkeys(found))


def _replaced(loop: For, late: set[Op]) -> list[Value]:
    """The carried values that the late ops compute, which the rotated loop does not carry."""
    yields = loop.body.terminator.operands
    return [arg for arg, v in zip(loop.body.args[1:], yields, strict=True) if v.op in late]


def _registers(values: Sequence[Value]) -> int:
    """The number of 32-bit registers per thread that hold values."""
    total = 0
    for value in values:
        if isinstance(value.type, Tile) and value.layout is not None:
            bits = dtype_of(value.type).primitive_bitwidth
            total += value.layout.in_size(REGISTER) * bits // 32
        else:
            total += 1
    return total


class _Rotation:
    """The rewrite of one loop."""

    def __init__(self, loop: For, parts: _Parts) -> None:
        self.loop = loop
        self.parts = parts
        self.body = loop.body
        self.yields = list(loop.body.terminator.operands)
        late = set(parts.late)
        self.is_late = [v.op is not None and v.op in late for v in self.yields]

    def rewrite(self) -> None:
        loop = self.loop
        runs = Cmp(loop.start, loop.stop, "lt")
        then, otherwise = Region(), Region()
        results = self._rotated(then)
        self._end(then, results)
        self._end(otherwise, loop.inits)
        insert_before(runs, loop)
        replace_loop_or_branch(loop, If(runs.results[0], then, otherwise))

    @staticmethod
    def _end(region: Region, values: Sequence[Value]) -> None:
        region.append(Yield(list(values)))

    def _clone(self, ops: Sequence[Op], region: Region, mapping: dict[Value, Value]) -> None:
        for op in ops:
            region.append(op.clone(mapping))

    def _rotated(self, region: Region) -> list[Value]:
        """Emit the loop, its prologue and epilogue; return the replacements of its results."""
        loop, args = self.loop, self.body.args
        mapping = {args[0]: loop.start, **dict(zip(args[1:], loop.inits, strict=True))}
        self._clone([*self.parts.first, *self.parts.rest], region, mapping)
        early = [k for k, late in enumerate(self.is_late) if not late]
        carried = [mapping.get(self.yields[k], self.yields[k]) for k in early]
        carried += [mapping.get(v, v) for v in self.parts.crossing]
        inner = self._loop(region, [*carried, loop.start], early)
        *now, last = inner.results
        after: dict[Value, Value] = {args[0]: last}
        after.update(zip(self.parts.crossing, now[len(early) :], strict=True))
        self._clone(self.parts.late, region, after)
        found = dict(zip(early, now, strict=False))
        return [found[k] if k in found else after[v] for k, v in enumerate(self.yields)]

    def _loop(self, region: Region, inits: Sequence[Value], early: Sequence[int]) -> For:
        loop, args = self.loop, self.body.args
        body = Region([args[0].type, *(v.type for v in inits)])
        layouts = [self.yields[k].layout for k in early]
        layouts += [v.layout for v in self.parts.crossing]
        index, *now = body.args
        before = now.pop()  # the index of the previous iteration
        for arg, layout in zip(now, layouts, strict=True):
            arg.layout = layout
        mapping = {args[0]: index}
        mapping.update((args[k + 1], now[i]) for i, k in enumerate(early))
        self._clone(self.parts.first, body, mapping)
        after: dict[Value, Value] = {args[0]: before}
        after.update(zip(self.parts.crossing, now[len(early) :], strict=True))
        self._clone(self.parts.late, body, after)
        for k, value in enumerate(self.yields):
            if self.is_late[k]:
                mapping[args[k + 1]] = after[value]
        self._clone(self.parts.rest, body, mapping)
        yielded = [mapping.get(self.yields[k], self.yields[k]) for k in early]
        yielded += [mapping.get(v, v) for v in self.parts.crossing]
        body.append(Yield([*yielded, index]))
        second = Add(loop.start, loop.step)
        inner = loop.rebuilt(inits, body, start=second.results[0])
        for op in (second, inner):
            op.loc = loop.loc
            region.append(op)
        for result, layout in zip(inner.results, layouts, strict=False):
            result.layout = layout
        return inner
