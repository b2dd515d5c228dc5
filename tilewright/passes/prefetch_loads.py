"""Loads of a loop that nothing else hides are started one iteration ahead, into registers."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import element_of
from tilewright.layout.linear import REGISTER
from tilewright.ops.arith import Add
from tilewright.ops.control import For, Yield
from tilewright.ops.memory import Load
from tilewright.passes.loop_ahead import Ahead, LoopRewrite, ahead_of, stays

NAME = "prefetch_loads"
MAX_BYTES = 128  # of a thread, that loads ahead of their use may bring
PARTS = 4
"""Each thread keeps at most one of so many parts of the registers that it can have for loads ahead,
where a narrow element counts as a register, which it takes when it is used: a loss over two rows of
32 elements of bf16 a thread, in 512 threads, left room for one program on a multiprocessor
otherwise, instead of two."""


@compiler_pass(NAME)
def prefetch_loads(fn: Function, ctx: PassContext) -> bool:
    """Load for the next iteration while this one computes.

    Needs: layouts; what goes through shared memory pipelined already.
    Leaves: loops that carry the tiles of the next iteration.

    For loops with `num_stages` above 1 whose loads do not feed a product: without this, each
    iteration waits for memory from its start.
    """
    stages: int = ctx.options.get("num_stages", 1)
    changed = False
    for op in list(fn.walk()):
        if not isinstance(op, For):
            continue
        if (op.num_stages or stages) <= 1:
            _tell_of_stages(op, ctx)
        else:
            found = _find(fn, op, ctx)
            if found is not None:
                for load in found[1]:
                    ctx.did(NAME, "starts one iteration ahead, into registers", load.loc)
                _Prefetch(op, *found).rewrite()
                ctx.count("prefetched", len(found[1]))
                changed = True
    return changed


def _tell_of_stages(loop: For, ctx: PassContext) -> None:
    if any(isinstance(op, Load) for op in loop.body):
        ctx.missed(NAME, "num_stages is 1: nothing is loaded for later iterations", loop.loc)


def _find(fn: Function, loop: For, ctx: PassContext) -> tuple[Ahead, list[Load]] | None:
    if any(isinstance(op, For) for op in loop.body.walk()):
        return None
    loads = [op for op in loop.body if isinstance(op, Load) and _fits(fn, loop, op, ctx)]
    if not loads:
        return None
    if ctx.gpu.warps == 1:
        # A multiprocessor holds up to 32 such programs, which hide the loads of each other: a loop
        # over 2048 numbers with an exponential of each loses 4 % by loads ahead.
        ctx.missed(NAME, "programs of one warp wait for memory in turns", loop.loc)
        return None
    size = sum(map(_bytes, loads))
    needed, most = sum(map(_registers, loads)), ctx.gpu.registers // ctx.gpu.threads // PARTS
    if size > MAX_BYTES or needed > most:
        ctx.missed(
            NAME,
            f"the tiles loaded in the loop are too large: {size} bytes in {needed} registers of a "
            f"thread, where {MAX_BYTES} in {most} may wait for the next iteration",
            loop.loc,
        )
        return None
    ahead = ahead_of(loop, [v for load in loads for v in load.operands])
    if ahead is None:
        ctx.missed(NAME, "an address depends on memory that the loop reads", loop.loc)
        return None
    return ahead, loads


def _fits(fn: Function, loop: For, load: Load, ctx: PassContext) -> bool:
    if load.volatile or load.result.layout is None:
        return False
    if not stays(fn, loop, load.ptr):
        ctx.missed(NAME, "the loop writes what may be the same memory", load.loc)
        return False
    return True


def _bytes(load: Load) -> int:
    """Of the tile, in a thread."""
    assert load.result.layout is not None
    size = element_of(load.result.type).nbytes_in_memory
    return load.result.layout.in_size(REGISTER) * size


def _registers(load: Load) -> int:
    """Of a thread, that hold the tile."""
    assert load.result.layout is not None
    words = -(-element_of(load.result.type).nbytes_in_memory // 4)
    return load.result.layout.in_size(REGISTER) * words


class _Prefetch(LoopRewrite):
    """The rewrite of one loop."""

    def __init__(self, loop: For, ahead: Ahead, loads: list[Load]) -> None:
        super().__init__(loop, ahead)
        self.loads = loads

    def rewrite(self) -> None:
        start = self.old.start
        values = [self.old.inits[i] for i in self.ahead.carried]
        tiles, following = self._load(start, values, self.inside(start, 0))
        carried = [*tiles, self.value(Add(start, self.old.step)), *following]
        self.replace(carried, self._new_body(carried))
        self.old.erase()

    def _load(
        self, index: Value, values: Sequence[Value], inside: Value
    ) -> tuple[list[Value], list[Value]]:
        """The tiles of an iteration, and the carried values of the next one."""
        mapping, following = self.compute(index, values)
        tiles: list[Value] = []
        for load in self.loads:
            other = load.other and mapping.get(load.other, load.other)
            mask = self.mask(load, mapping, inside)
            early = Load(
                mapping.get(load.ptr, load.ptr), mask, other, load.cache, load.evict, False
            )
            early.loc = load.loc
            tiles.append(self.value(early, load.result.layout))
        return tiles, following

    def _new_body(self, carried: Sequence[Value]) -> Region:
        old = self.old.body
        body, extra = self.body_with(carried)
        tiles, (index, *values) = extra[: len(self.loads)], extra[len(self.loads) :]
        mapping = dict(zip(old.args, body.args, strict=False))
        mapping |= dict(zip((load.result for load in self.loads), tiles, strict=True))
        loads: list[Op] = list(self.loads)
        end = Yield([])
        body.append(end)
        self.anchor = end
        later, following = self._load(index, values, self.inside(body.args[0], 1))
        for op in old:
            if not op.terminator and op not in loads:
                self.add(op.clone(mapping))
        yielded = [mapping.get(v, v) for v in old.terminator.operands]
        next_index = self.value(Add(index, self.old.step))
        end.add_operands([*yielded, *later, next_index, *following])
        end.spans = (len(end.operands),)
        return body
