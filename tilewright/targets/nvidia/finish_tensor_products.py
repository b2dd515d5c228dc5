"""Lowers waits for products in tensor memory to waits for barriers."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import types as ir
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Op, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ops.arith import Constant, Xor
from tilewright.ops.control import Barrier, For
from tilewright.ops.gpu import Allocate
from tilewright.ops.roles import DropBarriers, InitBarriers, WaitBarrier
from tilewright.ops.tensor_memory import (
    CommitProducts,
    LoadTensor,
    StoreTensor,
    TensorProduct,
    TensorWait,
    memory_of,
)
from tilewright.rewrites.control import carry_more

BARRIERS = Barrier | StoreTensor  # the code of a store ends with one


@compiler_pass("finish_tensor_products", required=True)
def finish_tensor_products(fn: Function, ctx: PassContext) -> bool:
    """Insert a wait for a barrier at which products arrive before each wait for products, and a
    barrier of all threads before each product that overwrites values that they may still be
    loading.

    Needs: `specialize_warps`.  Leaves: `nvidia.tensor_wait`, for which there is no more to do; it
    ends the live ranges of the operands.

    The waits of a loop have barriers that are initialised before it and dropped after it; the loop
    carries their parity, as each is used once in an iteration. A wait elsewhere initialises a
    barrier and drops it.
    """
    waits = [op for op in fn.walk() if isinstance(op, TensorWait)]
    loops: dict[For, list[TensorWait]] = {}
    b = Builder()
    for op in [op for op in fn.walk() if isinstance(op, TensorProduct) and not op.adds]:
        if _follows_loads(op, memory_of(op.acc)):
            with b.before(op):
                b.insert(Barrier())
    for op in waits:
        loop = op.parent_op()
        if isinstance(loop, For):
            loops.setdefault(loop, []).append(op)
            continue
        with b.before(op):
            barriers = _initialised(b, 1)
            _wait(b, barriers, 0, b.value(Constant(0, ir.I32)))
            _drop(b, barriers)
    for loop, found in loops.items():
        _wait_in_loop(loop, found)
    return bool(waits)


def _follows_loads(product: TensorProduct, memory: Value) -> bool:
    """Whether a load of the memory may come before the product without a barrier in between."""
    op: Op = product
    while True:
        region = op.parent
        assert region is not None
        found = _last_of(op.prev, None, memory)
        around = region.parent
        if found is None and isinstance(around, For):
            found = _last_of(region.last, op, memory)  # of the iteration before
            if not isinstance(found, BARRIERS | None):
                return True
            found = None  # the first iteration may follow others
        if found is not None or not isinstance(around, Op):
            return found is not None and not isinstance(found, BARRIERS)
        op = around


def _last_of(op: Op | None, until: Op | None, memory: Value) -> Op | None:
    """The last op, of those up to this one, that has a barrier or contains a load of the memory."""
    while op is not None and op is not until:
        inside = (o for region in op.regions for o in region.walk())
        if isinstance(op, BARRIERS) or any(_loads(o, memory) for o in (op, *inside)):
            return op
        op = op.prev
    return None


def _loads(op: Op, memory: Value) -> bool:
    return isinstance(op, LoadTensor) and memory_of(op.memory) is memory


def _initialised(b: Builder, count: int) -> Value:
    barriers = b.value(Allocate(ir.Shared((count,), ir.I64)))
    b.insert(InitBarriers(barriers, (1,) * count))
    b.insert(Barrier())
    return barriers


def _wait(b: Builder, barriers: Value, number: int, parity: Value) -> None:
    index = b.value(Constant(number, ir.I32))
    b.insert(CommitProducts(barriers, index))
    b.insert(WaitBarrier(barriers, index, parity))


def _drop(b: Builder, barriers: Value) -> None:
    b.insert(Barrier())
    b.insert(DropBarriers(barriers))


def _wait_in_loop(loop: For, waits: Sequence[TensorWait]) -> None:
    b = Builder()
    with b.before(loop):
        barriers = _initialised(b, len(waits))
        start = b.value(Constant(0, ir.I32))
    parity = loop.body.add_arg(ir.I32)
    for number, op in enumerate(waits):
        with b.before(op):
            _wait(b, barriers, number, parity)
    with b.before(loop.body.terminator):
        following = b.value(Xor(parity, b.value(Constant(1, ir.I32))))
    after = carry_more(loop, [start], [following]).next
    assert after is not None
    with b.before(after):
        _drop(b, barriers)
