"""Prefetching of loads into registers, one iteration ahead.

Input: laid-out IR in which loads through shared memory are already pipelined. Output: loops that
carry the tiles of the next iteration, whose loads start before this iteration's computation, which
hides their latency. It applies to innermost loops with `num_stages` > 1, within a limit on
registers. Linear in the size of the loops, plus loads times stores for the alias analysis.

Without asynchronous copies, tiles that are stored to shared memory are pipelined in this way, too.
Their loads start after the tiles of this iteration are stored there and read, so that both can use
the same registers. If masked accesses are branches, all are under one branch instead, which the
last iteration skips.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from math import inf

from tilewright.analysis.axis_info import AxisMap, axis_info
from tilewright.analysis.buffers import FEATURE as BUFFERS
from tilewright.analysis.buffers import has_free_mask
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import I64, dtype_of, element_of
from tilewright.layout.linear import REGISTER
from tilewright.ops.arith import Add, Cast, IntDiv, Mul, Rem, constant_value
from tilewright.ops.control import For, If, Yield
from tilewright.ops.gpu import ConvertLayout, Fetch, Share
from tilewright.ops.math import MathFunction
from tilewright.ops.memory import Load, Store
from tilewright.ops.view import View
from tilewright.passes.own_copies import adjacent_elements
from tilewright.passes.software_pipelining import (
    FUNCTION_WORK,
    LoopRewrite,
    LoopWrites,
    Slice,
    backward_slice,
    is_unrolled,
    moved,
    stages_of,
)

NAME = "prefetch_loads"
MAX_BYTES = 128  # the maximum number of prefetched bytes per thread
PARTS = 4
"""Prefetched tiles may occupy at most one in `PARTS` of the registers of a thread. Narrow elements
count as one register each, since they are unpacked when they are used. Without this limit, a loss
over two rows of 32 bf16 elements per thread, with 512 threads, ran one program per multiprocessor
instead of two."""
ENOUGH_BYTES = 16
"""Of a thread, in flight: 32 KiB of a multiprocessor with all threads, as memory needs for its
bandwidth at a latency of some 800 ns."""
MAX_ACCESSES = 32
"""Of a thread in an iteration, for which loads are prefetched: with its address and mask, each
takes some 6 instructions, so that 4 warps of a scheduler issue as many for some 800 cycles, the
latency of memory. The gradient of a convolution's weights, which gathers 40 elements of 2 bytes for
a loop of one iteration, had twice as many accesses with its loads ahead, spilled, and took 6.2 ms
on an H200, and Triton's 2.6 ms."""
UNROLLED_ACCESSES = 2
"""The most masked accesses of a thread in a loop that ptxas unrolls: each has a condition and an
address besides what it computes."""
DIVISION_WORK = 20  # instructions of a division by a number that is not a constant, of 32 bits
OTHER_REGISTERS = 24  # of a thread, beside the tiles of the loop: addresses, masks, scalars


@compiler_pass(NAME)
def prefetch_loads(fn: Function, ctx: PassContext) -> bool:
    """Prefetch the loads of innermost loops, one iteration ahead; see the module docstring."""
    infos = cache(lambda: axis_info(fn))  # of loads, which no other loop's rewrite changes
    changed = False
    for op in list(fn.walk()):
        if not isinstance(op, For):
            continue
        if stages_of(op, ctx) <= 1:
            _report_single_stage(op, ctx)
        else:
            found = _find(fn, op, infos, ctx)
            if found is not None:
                for load in found[1]:
                    ctx.did(NAME, "starts one iteration ahead, into registers", load.loc)
                staged = "async_copy" not in ctx.features
                masks = BUFFERS in ctx.features and all(has_free_mask(fn, x) for x in found[1])
                _Prefetch(op, *found, staged=staged, masks=masks).rewrite()
                ctx.count("prefetched", len(found[1]))
                changed = True
    return changed


def _report_single_stage(loop: For, ctx: PassContext) -> None:
    if any(isinstance(op, Load) for op in loop.body):
        ctx.missed(NAME, "num_stages is 1: no loads are prefetched", loop.loc)


def _find(
    fn: Function, loop: For, infos: Callable[[], AxisMap], ctx: PassContext
) -> tuple[Slice, list[Load]] | None:
    if any(isinstance(op, For) for op in loop.body.walk()):
        return None
    loads = _candidates(fn, loop, ctx)
    if not loads:
        return None
    if ctx.gpu.warps == 1:
        # A multiprocessor runs up to 32 such programs, which hide each other's latency: prefetching
        # slowed a loop over 2048 elements with an exponential of each down by 4 %.
        ctx.missed(NAME, "programs of one warp hide each other's latency", loop.loc)
        return None
    if _loads_several(loop, loads, infos, ctx) and _has_enough_in_flight(loop, loads):
        ctx.missed(NAME, "unrolled, the loop has enough loads in flight", loop.loc)
        return None
    work = _work(loop, loads)
    if work < ctx.gpu.prefetch_work:
        ctx.missed(
            NAME,
            f"{work} instructions of an iteration, estimated, hide less of a load than prefetching "
            f"costs; the limit is {ctx.gpu.prefetch_work}",
            loop.loc,
        )
        return None
    loads = _within_limits(loop, loads, ctx)
    if not loads:
        return None
    if (accesses := sum(_accesses(load, infos()) for load in loads)) > MAX_ACCESSES:
        ctx.missed(NAME, f"{accesses} accesses of a thread hide each other's latency", loop.loc)
        return None
    if not _keeps_programs(loop, loads, infos, ctx):
        return None
    ahead = backward_slice(loop, [v for load in loads for v in load.operands], tables_of=fn)
    if ahead is None:
        ctx.missed(NAME, "an address depends on memory that the loop reads", loop.loc)
        return None
    if work < (divided := sum(map(_division_work, ahead.body))):
        ctx.missed(
            NAME,
            f"{work} instructions of an iteration, estimated, hide less of a load than the "
            f"divisions for its address cost, which is computed ahead, too: {divided}",
            loop.loc,
        )
        return None
    if work <= ctx.gpu.unrolled_work and any(isinstance(op, Load) for op in ahead.body):
        # Each iteration would wait for such a number, and one load of a tile be in flight. The
        # product of a sparse matrix took 111 µs on an H200, where unrolled loops take 78.
        ctx.missed(
            NAME,
            "an address depends on a number that the loop loads: once unrolled, it loads for "
            "several iterations at a time",
            loop.loc,
        )
        return None
    return ahead, loads


def _candidates(fn: Function, loop: For, ctx: PassContext) -> list[Load]:
    """The loads of tiles, if the loop writes the memory of none of them. Otherwise each iteration
    waits for some of them anyway: on an H200, the gradient of SwiGLU in place took 196 µs with one
    of three tiles ahead, and 111 with none."""
    tiles = [op for op in loop.body if isinstance(op, Load) and op.result.layout is not None]
    writes = LoopWrites(fn, loop)
    loads = [op for op in tiles if _can_prefetch(writes, op, ctx)]
    if loads and len(loads) < len(tiles):
        ctx.missed(NAME, "each iteration waits for its other loads anyway", loop.loc)
        return []
    return loads


def _within_limits(loop: For, loads: list[Load], ctx: PassContext) -> list[Load]:
    """The loads whose tiles fit within the limits on registers; if not all do, those whose results
    are used soonest, as the latency of the others is hidden by the computation before their use."""
    limit = ctx.gpu.registers // ctx.gpu.threads // PARTS
    places = {op: place for place, op in enumerate(loop.body)}

    def ops_to_use(load: Load) -> int:
        users = (loop.body.find_ancestor(user) for user in load.result.users)
        return min((places[user] for user in users if user), default=len(places)) - places[load]

    size = needed = 0
    chosen: set[Load] = set()
    for load in sorted(loads, key=ops_to_use):
        more, registers = _bytes(load.result), _registers(load.result)
        if size + more <= MAX_BYTES and needed + registers <= limit:
            size, needed = size + more, needed + registers
            chosen.add(load)
        else:
            ctx.missed(
                NAME,
                f"with this tile, {size + more} bytes in {needed + registers} registers per thread "
                f"would be prefetched; the limits are {MAX_BYTES} and {limit}",
                load.loc,
            )
    return [load for load in loads if load in chosen]


def _can_prefetch(writes: LoopWrites, load: Load, ctx: PassContext) -> bool:
    if load.volatile:
        return False
    if not writes.leave(load.ptr):
        ctx.missed(NAME, "the loop may write the same memory", load.loc)
        return False
    return True


def _keeps_programs(
    loop: For, loads: Sequence[Load], infos: Callable[[], AxisMap], ctx: PassContext
) -> bool:
    """Whether more than two thirds of the programs stay resident; else these have hardly more loads
    in flight than all of them without prefetching, and there are fewer to compute meanwhile."""
    live = _live(loop, loads)
    alone = _resident(live, ctx)
    if 3 * _resident(live + sum(_registers(load.result) for load in loads), ctx) > 2 * alone:
        return True
    more = sum(_received(load, infos()) for load in loads)
    beside = _resident(live + more, ctx)
    if 3 * beside > 2 * alone:
        return True
    ctx.missed(
        NAME,
        f"with {more} more registers per thread, {beside} instead of {alone} programs would be "
        "resident",
        loop.loc,
    )
    return False


def _work(loop: For, loads: Sequence[Load]) -> float:
    """An estimate of the instructions of a thread in an iteration that depend on its loads.
    Products, reductions and similar ops also synchronise: they count as unlimited."""
    dependent: set[Value] = {load.result for load in loads}
    work = 0
    for op in loop.body:
        if not dependent & set(op.operands) or isinstance(op, Store | Yield):
            continue
        dependent.update(op.results)
        if isinstance(op, View | ConvertLayout):
            continue
        if not op.elementwise:
            return inf
        each = FUNCTION_WORK if isinstance(op, MathFunction) else 1
        work += each * sum(map(_registers, op.results))
    return work


def _division_work(op: Op) -> int:
    """An estimate of a thread's instructions for a division by a number that is not a constant; 0
    for other ops. The copy of 2048 x 3 rows by tiles of 256 elements, whose number is divided by
    those along each axis, took 172 µs on an H200 with its loads ahead, and Triton's 118 µs."""
    if not isinstance(op, IntDiv | Rem) or constant_value(op.rhs) is not None:
        return 0
    return DIVISION_WORK * _registers(op.result)


def _loads_several(
    loop: For, loads: Sequence[Load], infos: Callable[[], AxisMap], ctx: PassContext
) -> bool:
    """Whether ptxas unrolls a loop. It does so for few masked loads, and if the trip count is
    unknown."""
    if not is_unrolled(loop, ctx):
        return False
    masked = [load for load in loads if load.mask is not None]
    if not masked:
        return True
    counted = all(constant_value(v) is not None for v in (loop.start, loop.stop, loop.step))
    return not counted and sum(_accesses(x, infos()) for x in masked) <= UNROLLED_ACCESSES


def _has_enough_in_flight(loop: For, loads: Sequence[Load]) -> bool:
    """Whether an unrolled loop needs no prefetching. It loads for several iterations at a time;
    prefetched loads are as many, each with a condition and its own registers: on an H200, a loop
    that joins parts of rows took 14.7 instead of 13.5 µs.

    But no load passes a store. A recurrence that loads a few bytes and stores each step took 851
    instead of 659 µs (Triton 870) without loads ahead; one whose threads load 32 bytes a step, 222
    instead of 246 with them.
    """
    stores = any(op.is_write() for op in loop.body)
    return not stores or sum(_bytes(load.result) for load in loads) >= ENOUGH_BYTES


def _accesses(load: Load, infos: AxisMap) -> int:
    """The accesses of a thread by which a tile is loaded."""
    return -(-_registers(load.result) // adjacent_elements(load, infos)[1])


def _received(load: Load, infos: AxisMap) -> int:
    """The registers that receive a tile: only narrow elements of one access are packed."""
    size = element_of(load.result.type).nbytes_in_memory
    packed = size * adjacent_elements(load, infos)[1] >= 4
    return _packed(load.result) if packed else _registers(load.result)


def _resident(registers: int, ctx: PassContext) -> int:
    """An estimate of the programs that are resident on a multiprocessor, at least 1."""
    return max(1, ctx.gpu.registers // (ctx.gpu.threads * (registers + OTHER_REGISTERS)))


def _live(loop: For, loads: Iterable[Load]) -> int:
    """The largest number of registers of a thread that hold tiles at once: loop-carried tiles, and
    those that depend on a load of one. Elementwise ops are computed element by element, so tiles
    used only by them, by stores and by the next iteration are never live as a whole."""
    dependent: set[Value] = {load.result for load in loads}
    last: dict[Value, Op] = {}
    for op in loop.body:
        used = {v for inner in (op, *_inner(op)) for v in inner.operands} & dependent
        if used:
            dependent.update(v for v in op.results if v.layout is not None)
        last.update({v: op for v in used if not _streams(v)})
    freed: dict[Op, int] = {}
    for value, op in last.items():
        freed[op] = freed.get(op, 0) + _packed(value)
    live = most = 0
    for op in loop.body:
        # The results may be in the registers of the operands.
        live += sum(_packed(v) for v in op.results if v in last) - freed.get(op, 0)
        most = max(most, live)
    return most + sum(_packed(v) for v in loop.body.args if v.layout is not None)


def _streams(value: Value) -> bool:
    op = value.op
    return (
        op is not None
        and op.elementwise
        and all(user.elementwise or isinstance(user, Store | Yield) for user in value.users)
    )


def _inner(op: Op) -> Iterable[Op]:
    return (inner for region in op.regions for inner in region.walk())


def _bytes(tile: Value) -> int:
    """The bytes of a tile per thread."""
    assert tile.layout is not None
    return tile.layout.in_size(REGISTER) * element_of(tile.type).nbytes_in_memory


def _packed(tile: Value) -> int:
    """The registers of a thread that hold a tile whose narrow elements are packed."""
    return -(-_bytes(tile) // 4)


def _registers(value: Value) -> int:
    """The registers of a thread that hold a scalar, or a tile of which each element takes at least
    one."""
    words = -(-element_of(value.type).nbytes_in_memory // 4)
    return words if value.layout is None else value.layout.in_size(REGISTER) * words


def _shares(loop: For, load: Load) -> list[Share]:
    """The ops of the body that store a tile to shared memory, if it has no other use."""
    users = list(load.result.users)
    found = [user for user in users if isinstance(user, Share) and user.parent is loop.body]
    return found if len(found) == len(users) else []


def _first_after(shares: Sequence[Share], loop: For) -> Op | None:
    """The first op after all of these that reads shared memory, which the barrier after the stores
    precedes: some GPUs wait for all loads at a barrier. Values read after it need no registers
    while branches load."""
    rest = [op for op in loop.body if op in shares or isinstance(op, Fetch)]
    fetched = [op for share in shares for op in share.result.users if isinstance(op, Fetch)]
    last = next((i for i in reversed(range(len(rest))) if rest[i] in shares), -1)
    return next((op for op in rest[last + 1 :] if op in fetched), rest[last] if shares else None)


def _scaled_index(loop: For, ahead: Slice) -> list[Value]:
    """The extensions of the index to 64 bits that the slice multiplies by unknown values.

    That of the next iteration is carried in 64 bits, so that pointers at such multiples can be
    carried instead: the index itself may wrap after the last iteration, and its extension then is
    no sum.
    """
    index = loop.body.args[0]
    if not dtype_of(index.type).is_int_signed():
        return []
    return [
        op.results[0]
        for op in ahead.body
        if isinstance(op, Cast)
        and op.src is index
        and op.results[0].type == I64
        and any(
            isinstance(user, Mul) and all(constant_value(v) is None for v in user.operands)
            for user in op.results[0].users
        )
    ]


class _Prefetch(LoopRewrite):
    """The rewrite of one loop.

    Args:
        staged: whether tiles that only go to shared memory are loaded once it holds this
            iteration's.
        masks: whether the loads of such tiles are masked where the iteration does not exist,
            instead of under a branch.
    """

    def __init__(
        self, loop: For, ahead: Slice, loads: list[Load], *, staged: bool, masks: bool
    ) -> None:
        super().__init__(loop, ahead)
        self.masks = masks
        shares = {load: _shares(loop, load) if staged else [] for load in loads}
        self.early = [load for load in loads if not shares[load]]
        self.staged = [load for load in loads if shares[load]]
        self.loads = [*self.early, *self.staged]
        self.scaled = _scaled_index(loop, ahead)
        self.last = _first_after([share for found in shares.values() for share in found], loop)

    def rewrite(self) -> None:
        start = self.old.start
        values = [self.old.inits[i] for i in self.ahead.carried]
        exists = self.exists(start, 0)
        mapping, following = self.compute(start, values, exists)
        tiles = [self._load(load, mapping, exists) for load in self.loads]
        wide = [self._wide_sum(self.cast(start, I64)) for _ in self.scaled]
        carried = [*tiles, self.value(Add(start, self.old.step)), *wide, *following]
        self.replace(carried, self._new_body(carried))
        self.old.erase()

    def _load(self, load: Load, mapping: dict[Value, Value], exists: Value) -> Value:
        """The tile of an iteration, whose values are in the mapping, if it exists."""
        mask = self.mask(load, mapping, exists)
        return self.value(moved(load, mapping, mask), load.result.layout)

    def _new_body(self, carried: Sequence[Value]) -> Region:
        old = self.old.body
        body, extra = self.body_with(carried)
        tiles, (index, *values) = extra[: len(self.loads)], extra[len(self.loads) :]
        wide, values = values[: len(self.scaled)], values[len(self.scaled) :]
        mapping = dict(zip(old.args, body.args, strict=False))
        mapping |= dict(zip((load.result for load in self.loads), tiles, strict=True))
        loads: list[Op] = list(self.loads)
        end = Yield([])
        body.append(end)
        self.anchor = end
        exists = self.exists_after(body.args[0], 1)
        known = dict(zip(self.scaled, wide, strict=True))
        ahead, following = self.compute(index, values, exists, known)
        later = [self._load(load, ahead, exists) for load in self.early]
        for op in old:
            if not op.terminator and op not in loads:
                self.add(op.clone(mapping))
            if op is self.last:
                if self.masks:
                    later += [self._load(load, ahead, exists) for load in self.staged]
                else:
                    later += self._guarded(ahead, exists, tiles[len(self.early) :])
        yielded = [mapping.get(v, v) for v in old.terminator.operands]
        next_index = self.value(Add(index, self.old.step))
        next_wide = [self._wide_sum(value) for value in wide]
        end.add_operands([*yielded, *later, next_index, *next_wide, *following])
        end.spans = (len(end.operands),)
        return body

    def _wide_sum(self, index: Value) -> Value:
        """An index of 64 bits plus the step, which does not wrap."""
        return self.value(Add(index, self.cast(self.old.step, I64)))

    def _guarded(
        self, mapping: dict[Value, Value], exists: Value, tiles: Sequence[Value]
    ) -> Sequence[Value]:
        """Load the staged tiles of an iteration if it exists; else keep those of the one before."""
        then, otherwise = Region(), Region()
        loads = [
            moved(load, mapping, load.mask and mapping.get(load.mask, load.mask))
            for load in self.staged
        ]
        for load, old in zip(loads, self.staged, strict=True):
            then.append(load)
            load.result.layout = old.result.layout
        then.append(Yield([load.result for load in loads]))
        otherwise.append(Yield([*tiles]))
        found = self.add(If(exists, then, otherwise)).results
        for result, old in zip(found, self.staged, strict=True):
            result.layout = old.result.layout
        return found
