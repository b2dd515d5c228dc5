"""Stores of products' results as blocks of tensors, by tensor copies.

    tile = convert_layout(result)               write_buffer result
    store(pointers, tile, mask)       becomes   publish; barrier
                                                store_block                     one thread
                                                ...
                                                wait_stores                     at the end

A result has the layout of the matrix instructions, in which rows are short runs of a thread. So it
goes through shared memory anyway, from which each thread reads it back, computes addresses and
masks, and stores. The hardware does all of that; the warps continue at once. In a loop, they wait
for the copy before they write the buffer again, one iteration later.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.analysis.blocks import BlockFinder
from tilewright.analysis.pointers import may_overlap
from tilewright.analysis.polynomial import Atom
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import Shared, Tile, dtype_of, shape_of
from tilewright.layout.linear import LinearLayout
from tilewright.lowering.simt.shared_memory import SCRATCH, allocated_bytes
from tilewright.ops.arith import IntDiv, Sub
from tilewright.ops.atomic import AnyAtomic
from tilewright.ops.control import Barrier, For, While
from tilewright.ops.gpu import Allocate, ConvertLayout, CopyAsync, Publish, WriteBuffer
from tilewright.ops.memory import Load, Store
from tilewright.ops.nvidia import BlockCopy, StoreBlock, WaitStores
from tilewright.targets.nvidia.scalar_code import ScalarCode
from tilewright.targets.nvidia.tensor_copies import NoTensorCopy, TensorCopy, tensor_store

NAME = "store_blocks"


@compiler_pass(NAME)
def store_blocks(fn: Function, ctx: PassContext) -> bool:
    """Store tiles that would be converted through shared memory as blocks of tensors.

    Needs: layouts, and pipelined loops.  Leaves: `nvidia.store_block`s, each with a buffer of its
    own, and the waits and barriers that they need; or a store as it is, where something else in the
    kernel may access the same memory or publish it, or where fewer programs would be resident.
    """
    if not (ctx.options.get("tensor_copies", True) and ctx.options.get("tensor_stores", True)):
        return False
    refused = 0
    changed = False
    while len(stores := _candidates(fn)) > refused:
        store = stores[refused]
        try:
            planned = _plan(fn, store)
        except NoTensorCopy as error:
            ctx.missed(NAME, str(error), store.loc)
            refused += 1
            continue
        before, saved = allocated_bytes(fn), fn.clone()
        _Rewrite(store, planned).run()
        after = allocated_bytes(fn)
        if after > before and _resident(ctx, after) < max(_resident(ctx, before), 1):
            fn.body = saved.body
            ctx.missed(
                NAME, f"it would take {after - before} bytes more of shared memory", store.loc
            )
            refused += 1
            continue
        ctx.did(NAME, "one thread stores this, as a block of a tensor", store.loc)
        ctx.count("stored blocks")
        changed = True
    return changed


def _resident(ctx: PassContext, bytes: int) -> int:
    """The number of resident programs for which there is shared memory."""
    return ctx.gpu.shared_bytes // max(bytes, 1)


def _candidates(fn: Function) -> list[Store]:
    """The stores of tiles that are converted through shared memory just to be stored."""
    return [op for op in fn.walk() if isinstance(op, Store) and _conversion(op) is not None]


def _conversion(store: Store) -> ConvertLayout | None:
    op = store.value.op
    if not isinstance(op, ConvertLayout) or list(op.result.users) != [store]:
        return None
    return op if SCRATCH[ConvertLayout](op) else None


# -- which stores ---------------------------------------------------------------------------------


class _Planned(NamedTuple):
    copy: TensorCopy
    layout: LinearLayout  # of the buffer


def _plan(fn: Function, store: Store) -> _Planned:
    """The copy that replaces a store.

    Raises:
        NoTensorCopy: there is none.
    """
    copy, layout = tensor_store(fn, BlockFinder(), store)
    if dtype_of(store.value.type).nbytes_in_memory not in (2, 4):
        raise NoTensorCopy("elements have neither 2 nor 4 bytes")
    atoms = [atom for begin in copy.begins for atom in begin.atoms()]
    if any(isinstance(atom, Value) and isinstance(atom.type, Tile) for atom in atoms):
        raise NoTensorCopy("a coordinate depends on tiles")
    _require_alone(fn, store)
    return _Planned(copy, layout)


def _require_alone(fn: Function, store: Store) -> None:
    """Raise `NoTensorCopy` if something else in the kernel may access what a store writes, or may
    publish it to other programs.

    A tensor copy is not ordered with other accesses of memory, and not covered by their fences.
    """
    loop = _outermost_loop(store)
    within = set(loop.walk()) if loop is not None else set[Op]()
    after = False
    for op in fn.walk():
        if op is store:
            after = True
            continue
        pointer = _pointer(op)
        if pointer is not None and may_overlap(fn, store.ptr, pointer):
            raise NoTensorCopy("other accesses of the kernel may overlap this store")
        plain = isinstance(op, Load | Store | BlockCopy) and not (
            isinstance(op, Load) and op.volatile
        )
        if plain or op.local or op.regions or not (op.reads_memory or op.writes_memory):
            continue
        if after or op in within:
            raise NoTensorCopy(f"a later op may let other programs read the memory: {op.name}")


def _pointer(op: Op) -> Value | None:
    """The pointer through which an op accesses memory."""
    if isinstance(op, BlockCopy):
        return op.base
    return op.ptr if isinstance(op, Load | Store | CopyAsync | AnyAtomic) else None


def _outermost_loop(op: Op) -> Op | None:
    """The outermost loop around an op that the same warps execute."""
    found: Op | None = None
    holder = op.parent_op()
    while holder is not None and not holder.concurrent:
        if isinstance(holder, For | While):
            found = holder
        holder = holder.parent_op()
    return found


# -- the rewrite ----------------------------------------------------------------------------------


class _Rewrite:
    """The rewrite of a store."""

    def __init__(self, store: Store, planned: _Planned) -> None:
        self.store = store
        self.planned = planned
        assert store.parent is not None
        self.region: Region = store.parent
        self.code = ScalarCode(self.region, store, store)

    def run(self) -> None:
        store, code = self.store, self.code
        conversion = store.value.op
        assert isinstance(conversion, ConvertLayout)
        loop = _outermost_loop(store)
        home = self.region if loop is None else loop.parent
        assert home is not None
        buffer = self._allocate(ScalarCode(home, store, store if loop is None else loop))
        if loop is not None:
            # Of an earlier iteration. Its writes must be complete, too: they may be to the same
            # place, and copies are not ordered with each other.
            code.add(WaitStores([buffer], self._started_before(), read=False))
            code.add(Barrier())
        code.add(WriteBuffer(conversion.src, buffer))
        code.add(Publish())
        code.add(Barrier())
        code.block_copy(StoreBlock, self.planned.copy, buffer, self._atom)
        # The memory of the program must not go to another one before it is read. Its writes are
        # complete when the launch is.
        end = ScalarCode(home, store, home.terminator)
        end.add(WaitStores([buffer], 0, read=True))
        store.erase()
        conversion.erase()

    def _allocate(self, code: ScalarCode) -> Value:
        tile = self.store.value.type
        buffer = code.value(Allocate(Shared(shape_of(tile), dtype_of(tile))))
        buffer.layout = self.planned.layout
        return buffer

    def _started_before(self) -> int:
        """The copies that the same iteration certainly has started before."""
        count = 0
        op = self.store.prev
        while op is not None:
            count += isinstance(op, StoreBlock)
            op = op.prev
        return count

    def _atom(self, atom: Atom) -> Value:
        if isinstance(atom, Value):
            return atom
        loop, code = atom.loop, self.code
        distance = code.value(Sub(loop.body.args[0], loop.start))
        return code.value(IntDiv(distance, loop.step))
