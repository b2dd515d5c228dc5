"""Starts the first product of the next iteration before the result of the last one is added.

    for i in range(n):                        s = k @ q[0]
        s = k @ q[i]                          for i in range(n):
        x = f(s)                                  x = f(s)
        d = share(x) @ k        becomes           e += x @ q[i]
        e += x @ q[i]                             d = share(x) @ k   # stored during the one before
        add_block d                               s = k @ q[min(i + 1, n - 1)]
                                                  add_block d        # during the one before

All warpgroups wait for each other's parts of `share(x)`, so that they are in step: they would also
add `d` at the same time, and begin the next iteration at the same time. The tensor cores would be
idle until the first product starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from tilewright.analysis.dependences import needed_ops
from tilewright.analysis.ranges import value_range
from tilewright.ir import types as ir
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.rewriter import insert_before
from tilewright.layout.linear import REGISTER
from tilewright.ops.arith import Add, Cast, Cmp, Select, Sub
from tilewright.ops.control import For, If, Yield
from tilewright.ops.gpu import Share, whole_buffer
from tilewright.ops.nvidia import AddBlock, Wgmma, WgmmaWait
from tilewright.ops.roles import Arrive, Roles, WaitBarrier
from tilewright.rewrites.control import replace_loop_or_branch
from tilewright.targets.nvidia.scalar_code import ScalarCode
from tilewright.targets.nvidia.schedule_products import started_after

NAME = "advance_products"
MOST_PENDING = 99  # until the products started after each one are counted
OTHER_REGISTERS = 24  # of a thread that computes, for addresses and counters


@compiler_pass(NAME)
def advance_products(fn: Function, ctx: PassContext) -> bool:
    """Start the first product of the next iteration before a block is added, and products whose
    operands are ready before one whose operand is stored to shared memory.

    Needs: the schedule of products, in roles.  Leaves: the same values. The loop carries the first
    product's result. In the last iteration, the product is that of the same iteration, whose
    operands are released after it, and its result is unused.

    The first product must not depend on results of other iterations, nor its operands be released
    before the block is added.
    """
    changed = False
    for roles in [op for op in fn.walk() if isinstance(op, Roles) and op.registers]:
        most = roles.registers[0] - OTHER_REGISTERS
        found = [(op, _parts(op, most)) for op in roles.compute.walk() if isinstance(op, For)]
        for loop, parts in found:
            if parts is not None:
                _Advance(loop, parts).rewrite()
                ctx.did(NAME, "starts while the previous iteration adds a block", parts.product.loc)
                ctx.count("advanced products")
                changed = True
    return changed


class _Parts(NamedTuple):
    """The partition of the ops of a loop's body.

    Attributes:
        product: the first one.
        wait: for its result.
        ahead: what the product depends on, with the waits for its slots.
        before: the ops before the wait for the result that is added.
        early: waits for products started before that one, with releases of their operands.
        after: the ops from the wait for the result that is added on, except `releases`.
        releases: of operands.
    """

    product: Wgmma
    wait: WgmmaWait
    ahead: list[Op]
    before: list[Op]
    early: list[Op]
    after: list[Op]
    releases: list[Op]


def _parts(loop: For, most: int) -> _Parts | None:
    """The parts of a loop's body; None if there is no gain, or the product cannot be advanced.

    Args:
        most: registers of a thread for tiles.
    """
    ops = [op for op in loop.body if not op.terminator]
    products = [op for op in ops if isinstance(op, Wgmma)]
    if any(isinstance(op, WgmmaWait) and len(op.values) != 1 for op in ops):
        return None
    waits = {op.values[0].op: op for op in ops if isinstance(op, WgmmaWait)}
    added = [_origin(op.value, loop.body) for op in ops if isinstance(op, AddBlock)]
    if len(products) < 2 or len(added) != 1 or not all(p in waits for p in products):
        return None
    first, last = products[0], added[0]
    if not isinstance(last, WgmmaWait) or last is waits[first]:
        return None
    # The only wait before it is that for its slots, which are not released before it is complete:
    # in the last iteration, the phase is still the same.
    guards = [op for op in ops[: ops.index(first)] if not op.pure]
    if len(guards) != 1 or not isinstance(guards[0], WaitBarrier):
        return None
    ahead = needed_ops([*first.operands, *guards[0].operands], loop.body)
    if not _is_known_ahead(loop, ahead):
        return None
    ops = _ready_first(ops, last)
    place, counters = ops.index(last), needed_ops(_counters(loop), loop.body)
    read = _slots(first)
    late = {op for op in ops[place:] if op not in counters}
    sooner = [p for p in ops[:place] if isinstance(p, Wgmma) and waits[p] is not last]
    done = [waits[p] for p in sooner if waits[p] in late and not read & _slots(p)]
    early = [op for wait in done for op in _with_releases(wait)]
    after = [op for op in ops if op in late and op not in early]
    if not _keeps_operands(first, waits, after) or not _fits(loop, first, after, most):
        return None
    left = [op for op in ops if op not in (first, waits[first], *guards, *early, *after)]
    return _Parts(
        first,
        waits[first],
        [op for op in ops if op in ahead or op in guards],
        left,
        early,
        [op for op in after if not isinstance(op, Arrive)],
        [op for op in after if isinstance(op, Arrive)],
    )


def _origin(value: Value, body: Region) -> Op | None:
    """The op whose result is added, perhaps multiplied by what the loop does not change."""
    op = value.op
    while op is not None and op.elementwise and op.pure:
        here = [v.op for v in op.operands if v.op is not None and v.op.parent is body]
        op = here[0] if len(here) == 1 else None
    return op


def _ready_first(ops: Sequence[Op], last: WgmmaWait) -> list[Op]:
    """The ops in another order: products that do not depend on a tile that is stored to shared
    memory for the product of `last`, and follow it, precede the store."""
    product = last.values[0].op
    assert product is not None
    roots = {whole_buffer(v).op for v in product.operands if isinstance(v.type, ir.Shared)}
    shares = [op for op in ops if op in roots and isinstance(op, Share)]
    if not shares:
        return list(ops)
    place = ops.index(shares[0])
    before, after = list(ops[:place]), list(ops[place:])
    body = product.parent
    assert body is not None
    for op in takewhile(lambda op: op.pure or isinstance(op, Wgmma), ops[place:]):
        needed = {op, *needed_ops(op.operands, body)} & {*after}
        if isinstance(op, Wgmma) and op is not product and not any(map(_is_stored, needed)):
            before += [o for o in after if o in needed]
            after = [o for o in after if o not in needed]
    return [*before, *after]


def _counters(loop: For) -> list[Value]:
    """The scalars that a loop yields."""
    return [v for v in loop.body.terminator.operands if not isinstance(v.type, ir.Tile)]


def _is_known_ahead(loop: For, ahead: Iterable[Op]) -> bool:
    """Whether ops can be computed for the next iteration: from scalars that the loop counts."""
    ops = {*ahead, *needed_ops(_counters(loop), loop.body)}
    return value_range(loop.step)[0] > 0 and all(
        op.pure
        and not op.regions
        and not isinstance(op, Share)
        and not any(isinstance(v.type, ir.Tile) for v in (*op.operands, *op.results))
        for op in ops
    )


def _with_releases(wait: WgmmaWait) -> list[Op]:
    """A wait and the releases directly after it."""
    found: list[Op] = [wait]
    while isinstance(found[-1].next, Arrive):
        found.append(found[-1].next)
    return found


def _is_stored(op: Op) -> bool:
    return isinstance(op, Share)


def _slots(product: Wgmma) -> set[Value]:
    """The buffers of which a product reads slots that differ between iterations."""
    operands = [v for v in product.operands if isinstance(v.type, ir.Shared)]
    return {whole_buffer(v) for v in operands if v.op is not None and v.op.parent is product.parent}


def _keeps_operands(
    first: Wgmma, waits: Mapping[Op | None, WgmmaWait], after: Sequence[Op]
) -> bool:
    """Whether the slots that the first product reads are released by one of the ops after: another
    product reads them, the wait for which is there."""
    read = [_slots(p) for p, w in waits.items() if isinstance(p, Wgmma) and w in after]
    return _slots(first) <= set().union(*read)


def _fits(loop: For, first: Wgmma, after: Sequence[Op], most: int) -> bool:
    """Whether registers suffice for the first product's result with all that is held when it
    starts: carried tiles, the result that is added, and the operands of products in flight."""
    held = {*loop.body.args, first.result}
    for wait in after:
        if isinstance(wait, WgmmaWait):
            product = wait.values[0].op
            assert isinstance(product, Wgmma)
            held |= {product.lhs} if product.acc in held else {product.lhs, wait.values[0]}
    return sum(map(_registers, held)) <= most


def _registers(value: Value) -> int:
    """The 32-bit registers of a thread for a tile."""
    if not isinstance(value.type, ir.Tile) or value.layout is None:
        return 0
    return value.layout.in_size(REGISTER) * ir.dtype_of(value.type).primitive_bitwidth // 32


class _Advance:
    """The rewrite of one loop."""

    def __init__(self, loop: For, parts: _Parts) -> None:
        self.loop = loop
        self.parts = parts
        self.args = loop.body.args
        self.yields = list(loop.body.terminator.operands)

    def rewrite(self) -> None:
        """The first product of the first iteration is before the loop, if there is an iteration."""
        loop = self.loop
        runs = Cmp(loop.start, loop.stop, "lt")
        then, otherwise = Region(), Region()
        mapping = {self.args[0]: loop.start, **dict(zip(self.args[1:], loop.inits, strict=True))}
        started = self._start(then, mapping)
        inner = self._loop(self._wait(then, started))
        then.append(inner)
        then.append(Yield(list(inner.results[:-1])))
        otherwise.append(Yield(list(loop.inits)))
        for op in (runs, *then, *otherwise):
            op.loc = op.loc or loop.loc
        insert_before(runs, loop)
        replace_loop_or_branch(loop, If(runs.results[0], then, otherwise))

    def _start(self, region: Region, mapping: dict[Value, Value]) -> Value:
        """Append the first product with what it depends on; returns its result."""
        for op in (*self.parts.ahead, self.parts.product):
            region.append(op.clone(mapping))
        return mapping[self.parts.product.result]

    def _wait(self, region: Region, started: Value) -> Value:
        wait = self.parts.wait.clone({self.parts.product.result: started})
        assert isinstance(wait, WgmmaWait)
        wait.pending = 0
        region.append(wait)
        return wait.results[0]

    def _loop(self, first: Value) -> For:
        loop, parts = self.loop, self.parts
        body = Region([*(a.type for a in self.args), first.type])
        for now, before in zip(body.args, self.args, strict=False):
            now.layout = before.layout
        body.args[-1].layout = first.layout
        mapping = dict(zip(self.args, body.args, strict=False))
        mapping[parts.wait.results[0]] = body.args[-1]
        for op in (*parts.before, *parts.early):
            body.append(op.clone(mapping))
        started = self._start(body, self._next(body, mapping))
        for op in parts.after:
            body.append(op.clone(mapping))
        carried = self._wait(body, started)
        for op in parts.releases:
            body.append(op.clone(mapping))
        body.append(Yield([*(mapping.get(v, v) for v in self.yields), carried]))
        for wait in [op for op in body if isinstance(op, WgmmaWait)]:
            wait.pending = MOST_PENDING
        for wait in [op for op in body if isinstance(op, WgmmaWait)]:
            wait.pending = started_after(wait)
        inner = loop.rebuilt([*loop.inits, first], body)
        for result, arg in zip(inner.results, body.args[1:], strict=True):
            result.layout = arg.layout
        for op in (*body, inner):
            op.loc = op.loc or loop.loc
        return inner

    def _next(self, body: Region, mapping: Mapping[Value, Value]) -> dict[Value, Value]:
        """The index and the counters of the next iteration; of this one if it is the last."""
        code = ScalarCode(body, self.loop)
        index, step = body.args[0], self.loop.step
        unsigned = ir.U64 if ir.dtype_of(index.type).primitive_bitwidth > 32 else ir.U32
        left = code.value(Cast(code.value(Sub(self.loop.stop, index)), unsigned, "rtne"))
        more = code.value(Cmp(left, code.value(Cast(step, unsigned, "rtne")), "gt"))
        following = {self.args[0]: code.value(Select(more, code.value(Add(index, step)), index))}
        for arg, value in zip(self.args[1:], self.yields, strict=True):
            if not isinstance(arg.type, ir.Tile):
                now, then = mapping[arg], mapping.get(value, value)
                following[arg] = code.value(Select(more, then, now))
        return following
