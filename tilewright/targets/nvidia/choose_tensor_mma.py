"""Selection of `tcgen05.mma` for products that a loop accumulates.

    acc = zeros                                memory = store(allocate(), zeros)
    for k in …:                        →       for k in …:
        acc = dot(load(…), load(…), acc)           memory = product(share(load(…)), …, memory)
                                                   wait for the product
                                               acc = load(memory)

It takes loops whose operands a warp of its own can copy (`copied_loops`): then `specialize_warps`
moves the wait behind the loop. Other products are left to `mma.sync`.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from tilewright.analysis.axis_info import AxisMap, axis_info
from tilewright.analysis.blocks import BlockFinder
from tilewright.ir import types as ir
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.layout import families
from tilewright.ops.control import For
from tilewright.ops.dot import Dot
from tilewright.ops.gpu import PermuteBuffer, Share
from tilewright.ops.memory import Load
from tilewright.ops.shape import Permute
from tilewright.ops.tensor_memory import (
    COLUMNS,
    STEP_COLUMNS,
    AllocateTensor,
    FreeTensor,
    LoadTensor,
    StoreTensor,
    TensorMma,
    TensorWait,
    columns_of,
    fits_rows,
)
from tilewright.passes.assign_layouts import ANCHORS, Demands
from tilewright.targets.nvidia.choose_mma import GROUP_WARPS, shared_operand
from tilewright.targets.nvidia.copied_loops import Scalars, Unsupported, copy_of, require_scalars
from tilewright.targets.nvidia.rewrite_products import step_along_k

FIRST_INIT = 3  # of the operands of a loop
OTHER_BYTES = 2048  # barriers, and the padding of buffers

KINDS = {
    ir.FP16: "f16", ir.BF16: "f16", ir.FP32: "tf32", ir.FP8E4NV: "f8f6f4", ir.FP8E5: "f8f6f4",
}  # fmt: skip
"""The `.kind` of the instruction by the type of operands; those of fp8 may differ."""


class _Product(NamedTuple):
    """A product that a loop accumulates.

    Attributes:
        place: of the accumulator among the loop-carried values.
    """

    loop: For
    dot: Dot
    place: int


@compiler_pass("choose_tensor_mma")
def choose_tensor_mma(fn: Function, ctx: PassContext) -> bool:
    """Compute a product that a loop accumulates in tensor memory.

    Needs: nothing.  Leaves: `nvidia.tensor_mma` on shared operands, each followed by a wait.
    """
    if ctx.gpu.warps % GROUP_WARPS or not ctx.options.get("tensor_copies", True):
        return False
    infos = axis_info(fn)
    for op in [op for op in fn.walk() if type(op) is Dot]:
        product = _product(op, ctx)
        if product is not None and _share_operands(fn, product, infos, ctx):
            _accumulate(fn, product)
            ctx.count("tensor_mma")
            return True  # a program allocates tensor memory once
    return False


def _product(dot: Dot, ctx: PassContext) -> _Product | None:
    loop = dot.parent_op()
    if not isinstance(loop, For) or (loop.num_stages or ctx.options.get("num_stages", 1)) <= 1:
        return None
    if not _fits(dot):
        return None
    acc, end = dot.acc, loop.body.terminator
    if acc.owner is not loop.body or not acc.index or list(acc.users.items()) != [(dot, 1)]:
        return None
    place = acc.index - 1
    only_carried = list(dot.result.users.items()) == [(end, 1)]
    if not only_carried or end.operands[place] is not dot.result:
        return None
    return _Product(loop, dot, place)


def _fits(dot: Dot) -> bool:
    """Whether the instruction computes a product."""
    shape = ir.shape_of(dot.acc.type)
    left, right = ir.dtype_of(dot.lhs.type), ir.dtype_of(dot.rhs.type)
    return (
        len(shape) == 2
        and left in KINDS
        and KINDS.get(left) == KINDS.get(right)
        and (left == right or left.is_fp8())
        and (left != ir.FP32 or dot.precision == "tf32")
        and ir.dtype_of(dot.acc.type) == ir.FP32
        and fits_rows(shape[0])
        and shape[1] % STEP_COLUMNS == 0
        and ir.shape_of(dot.lhs.type)[1] % step_along_k(left) == 0
        and columns_of(dot.acc.type) <= COLUMNS
    )


def _share_operands(fn: Function, product: _Product, infos: AxisMap, ctx: PassContext) -> bool:
    """Share both operands in the loop, if its loads can be tensor copies; whether they can."""
    loop, dot = product.loop, product.dot
    made: list[Value] = []
    try:
        if not all(_is_load(v, loop) for v in (dot.lhs, dot.rhs)):
            raise Unsupported("an operand is computed, or has other uses", dot)
        slot = sum(_bytes_of(v) for v in (dot.lhs, dot.rhs))
        if 2 * slot + OTHER_BYTES > ctx.gpu.shared_bytes:
            raise Unsupported("there is not enough shared memory for two slots", dot)
        finder, scalars = BlockFinder(), Scalars(fn)
        for axis, value in ((1, dot.lhs), (0, dot.rhs)):
            made.append(shared_operand(dot, value, axis, infos))
            share = _share_of(made[-1])
            require_scalars(loop, copy_of(fn, loop, share, finder, only=False), scalars, share)
    except Unsupported as error:
        for value in reversed(made):
            _erase(value)
        ctx.missed("choose_tensor_mma", f"mma.sync: {error}", (error.op or dot).loc)
        return False
    dot.set_operand(0, made[0])
    dot.set_operand(1, made[1])
    return True


def _is_load(value: Value, loop: For) -> bool:
    while len(value.users) == 1 and isinstance(value.op, Permute):
        value = value.op.src
    single = list(value.users.values()) == [1]
    return single and isinstance(value.op, Load) and value.op.parent is loop.body


def _bytes_of(value: Value) -> int:
    return prod(ir.shape_of(value.type)) * ir.dtype_of(value.type).nbytes_in_memory


def _share_of(buffer: Value) -> Share:
    while isinstance(buffer.op, PermuteBuffer):
        buffer = buffer.op.buffer
    assert isinstance(buffer.op, Share)
    return buffer.op


def _erase(buffer: Value) -> None:
    op = buffer.op
    while isinstance(op, PermuteBuffer):
        source = op.buffer.op
        op.erase()
        op = source
    assert op is not None
    op.erase()


def _accumulate(fn: Function, product: _Product) -> None:
    """Carry the accumulator in tensor memory, and load it after the loop."""
    loop, dot, place = product
    kind = dot.acc.type
    b = Builder()
    first, following = fn.body.first, loop.next
    assert first is not None
    assert following is not None
    with b.before(first):
        memory = b.value(AllocateTensor(ir.TensorMemory(ir.shape_of(kind), ir.dtype_of(kind))))
    with b.before(loop):
        start = b.value(StoreTensor(memory, loop.inits[place]))
    loop.set_operand(FIRST_INIT + place, start)
    result = loop.results[place]
    dot.acc.type = result.type = memory.type
    with b.before(dot):
        started = TensorMma(dot.lhs, dot.rhs, dot.acc, dot.precision, dot.max_imprecise)
        dot.result.replace_with(b.value(TensorWait(b.value(started))))
    dot.erase()
    with b.before(following):
        b.loc = loop.loc
        load = b.insert(LoadTensor(start))
    result.replace_with(load.result)
    load.set_operand(0, result)
    with b.before(fn.body.terminator):
        b.insert(FreeTensor(memory))


# -- layouts --------------------------------------------------------------------------------------


@ANCHORS.of(LoadTensor)
def _load_demands(op: LoadTensor, ctx: PassContext) -> Demands:
    layout = families.tensor_memory(ir.shape_of(op.result.type), ctx.gpu.warps)
    return Demands([None], [layout])


@ANCHORS.of(StoreTensor)
def _store_demands(op: StoreTensor, ctx: PassContext) -> Demands:
    layout = families.tensor_memory(ir.shape_of(op.value.type), ctx.gpu.warps)
    return Demands([None, layout], [None])


@ANCHORS.of(TensorMma)
def _product_demands(op: TensorMma, ctx: PassContext) -> Demands:
    return Demands([None, None, None], [None])


@ANCHORS.of(TensorWait)
def _wait_demands(op: TensorWait, ctx: PassContext) -> Demands:
    return Demands([None], [None])
