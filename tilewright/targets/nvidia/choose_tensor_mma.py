"""Selection of `tcgen05.mma` for the products of loops.

A loop that only adds products to an accumulator keeps it in tensor memory:

    acc = zeros                                memory = store(part, zeros)
    for k in …:                        →       for k in …:
        acc = dot(load(…), load(…), acc)           memory = product(share(load(…)), …, memory)
                                                   wait for the product
                                               acc = load(memory)

Any other result is loaded from there, and the accumulator added in registers:

    acc = dot(p, load(…), acc * scale)  →      memory = product(share(p), share(load(…)), part)
                                               wait for the product
                                               acc = load(memory) + acc * scale

It takes loops whose operands a warp of its own can copy (`copied_loops`), with all of their
products. `specialize_warps` moves waits that nothing in the loop needs behind it. Other products
are left to `mma.sync`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from tilewright.analysis.axis_info import AxisMap, axis_info
from tilewright.analysis.blocks import BlockFinder
from tilewright.ir import types as ir
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.layout import families
from tilewright.ops.arith import Add, constant_value
from tilewright.ops.control import For
from tilewright.ops.dot import Dot
from tilewright.ops.gpu import PermuteBuffer, Share
from tilewright.ops.memory import Load
from tilewright.ops.shape import Permute
from tilewright.ops.tensor_memory import (
    COLUMNS,
    ROWS,
    STEP_COLUMNS,
    AllocateTensor,
    FreeTensor,
    LoadTensor,
    StoreTensor,
    TensorMma,
    TensorPart,
    TensorWait,
    columns_of,
    fits_rows,
)
from tilewright.passes.assign_layouts import ANCHORS, Demands
from tilewright.targets.nvidia.choose_mma import GROUP_WARPS, shared_operand
from tilewright.targets.nvidia.copied_loops import Scalars, Unsupported, copy_of, require_scalars
from tilewright.targets.nvidia.rewrite_products import step_along_k

NAME = "choose_tensor_mma"
FIRST_INIT = 3  # of the operands of a loop
OTHER_BYTES = 2048  # barriers, and the padding of buffers

KINDS = {
    ir.FP16: "f16", ir.BF16: "f16", ir.FP32: "tf32", ir.FP8E4NV: "f8f6f4", ir.FP8E5: "f8f6f4",
    ir.I8: "i8", ir.U8: "i8",
}  # fmt: skip
"""The `.kind` of the instruction by the type of operands; those of fp8 may differ."""

_FEATURES = {"i8": "tcgen05_i8"}
"""The feature that a kind requires; "tcgen05" for all others."""


class _Product(NamedTuple):
    """A product of a loop.

    Attributes:
        place: of the accumulator among the loop-carried values, if the loop does nothing else with
            it than to add this product; None for any other product.
    """

    loop: For
    dot: Dot
    place: int | None


@compiler_pass(NAME)
def choose_tensor_mma(fn: Function, ctx: PassContext) -> bool:
    """Compute the products of loops in tensor memory.

    Needs: nothing.  Leaves: `nvidia.tensor_mma` on shared operands, each followed by a wait.
    """
    if ctx.gpu.warps % GROUP_WARPS or not ctx.options.get("tensor_copies", True):
        return False
    infos = axis_info(fn)
    found: list[_Product] = []
    for loop in [op for op in fn.walk() if isinstance(op, For)]:
        products = _products(loop, ctx)
        if not products:
            continue
        if _places_of([*found, *products]).columns > COLUMNS:
            ctx.missed(NAME, "mma.sync: there are not enough columns of tensor memory", loop.loc)
        elif _share_operands(fn, loop, products, infos, ctx):
            found += products
    if found:
        _compute_in_tensor_memory(fn, found)
    ctx.count("tensor_mma", len(found))
    return bool(found)


def _products(loop: For, ctx: PassContext) -> list[_Product]:
    """The products of a loop, if the instruction computes all of them."""
    if (loop.num_stages or ctx.options.get("num_stages", 1)) <= 1:
        return []
    dots = [op for op in loop.body if type(op) is Dot]
    inner = [op for op in loop.body.walk() if type(op) is Dot]
    if len(dots) != len(inner) or not all(_fits(dot, ctx.features) for dot in dots):
        return []
    return [_Product(loop, dot, _place_of(dot, loop)) for dot in dots]


def _place_of(dot: Dot, loop: For) -> int | None:
    """See `_Product`."""
    acc, end = dot.acc, loop.body.terminator
    if acc.owner is not loop.body or not acc.index or list(acc.users.items()) != [(dot, 1)]:
        return None
    place = acc.index - 1
    only_carried = list(dot.result.users.items()) == [(end, 1)]
    return place if only_carried and end.operands[place] is dot.result else None


class _Places(NamedTuple):
    """Where results are in tensor memory: the first column of each, and the number of columns."""

    firsts: list[int]
    columns: int


def _places_of(products: Sequence[_Product]) -> _Places:
    """Accumulators have columns of their own; results that are loaded at once have those behind
    them, in each loop the same."""
    used = sum(columns_of(p.dot.acc.type) for p in products if p.place is not None)
    firsts, accumulated, loaded = list[int](), 0, dict[For, int]()
    for product in products:
        count = columns_of(product.dot.acc.type)
        if product.place is not None:
            firsts.append(accumulated)
            accumulated += count
        else:
            firsts.append(loaded.get(product.loop, used))
            loaded[product.loop] = firsts[-1] + count
    return _Places(firsts, max([used, *loaded.values()]))


def _fits(dot: Dot, features: frozenset[str]) -> bool:
    """Whether the instruction computes a product."""
    shape = ir.shape_of(dot.acc.type)
    left, right, acc = (ir.dtype_of(v.type) for v in (dot.lhs, dot.rhs, dot.acc))
    kind = KINDS.get(left)
    return (
        len(shape) == 2
        and kind is not None
        and kind == KINDS.get(right)
        and _FEATURES.get(kind, "tcgen05") in features
        and (left == right or left.is_fp8())
        and (left != ir.FP32 or dot.precision == "tf32")
        and acc == (ir.I32 if left.is_int() else ir.FP32)
        and fits_rows(shape[0])
        and shape[1] % STEP_COLUMNS == 0
        and ir.shape_of(dot.lhs.type)[1] % step_along_k(left) == 0
        and columns_of(dot.acc.type) <= COLUMNS
    )


def _share_operands(
    fn: Function, loop: For, products: Sequence[_Product], infos: AxisMap, ctx: PassContext
) -> bool:
    """Share the operands of a loop's products, if all that it loads can be tensor copies; whether
    they can."""
    dots = [product.dot for product in products]
    operands = [(dot, v, axis) for dot in dots for axis, v in ((1, dot.lhs), (0, dot.rhs))]
    made: list[Value] = []
    try:
        _require_memory(loop, [v for _, v, _ in operands], ctx)
        finder, scalars = BlockFinder(), Scalars(fn)
        for dot, value, axis in operands:
            made.append(shared_operand(dot, value, axis, infos))
            share = _share_of(made[-1])
            if _load_in(loop, value) is not None:
                require_scalars(loop, copy_of(fn, loop, share, finder, only=False), scalars, share)
            if any(_share_of(m).src is share.src and not _alike(_share_of(m), share) for m in made):
                raise Unsupported("two products read an operand in different layouts", share.src.op)
    except Unsupported as error:
        for value in reversed(made):
            _erase(value)
        ctx.missed(NAME, f"mma.sync: {error}", (error.op or loop).loc)
        return False
    for (dot, _, axis), value in zip(operands, made, strict=True):
        dot.set_operand(1 - axis, value)
    _merge([_share_of(value) for value in made])
    return True


def _require_memory(loop: For, operands: Sequence[Value], ctx: PassContext) -> None:
    """Raise `Unsupported` unless the loop loads an operand, and shared memory has room for two
    slots of what it loads, and for all other operands."""
    loaded = [v for v in operands if _load_in(loop, v) is not None]
    if not loaded:
        raise Unsupported("no operand of the products is loaded in the loop", loop)
    for value in loaded:
        if any(
            not isinstance(user, Permute | Dot) for v in _path_to_load(value) for user in v.users
        ):
            raise Unsupported("a loaded operand has other uses", value.op)
    size = sum(map(_bytes_of, operands)) + sum(map(_bytes_of, loaded))
    if size + OTHER_BYTES > ctx.gpu.shared_bytes:
        raise Unsupported("there is not enough shared memory for two slots", loop)


def _alike(share: Share, other: Share) -> bool:
    """Whether both are the same buffer."""
    return share.src is other.src and share.result.layout == other.result.layout


def _merge(shares: Sequence[Share]) -> None:
    """Let products read the same buffer of the same operand."""
    kept: list[Share] = []
    for share in shares:
        same = next((s for s in kept if _alike(s, share)), None)
        if same is None:
            kept.append(share)
        else:
            share.result.replace_with(same.result)
            share.erase()


def _path_to_load(value: Value) -> list[Value]:
    """A value, and those that it is a transposition of."""
    path = [value]
    while isinstance(path[-1].op, Permute):
        path.append(path[-1].op.src)
    return path


def _load_in(loop: For, value: Value) -> Load | None:
    """The load of the loop whose tile an operand is, maybe transposed."""
    op = _path_to_load(value)[-1].op
    return op if isinstance(op, Load) and op.parent is loop.body else None


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


def _compute_in_tensor_memory(fn: Function, products: Sequence[_Product]) -> None:
    b = Builder()
    first = fn.body.first
    assert first is not None
    places = _places_of(products)
    parts: dict[tuple[int, ir.Type], Value] = {}
    of_products: list[Value] = []
    with b.before(first):
        memory = b.value(AllocateTensor(ir.TensorMemory((ROWS, places.columns), ir.FP32)))
        for product, column in zip(products, places.firsts, strict=True):
            kind = product.dot.acc.type
            part = ir.TensorMemory(ir.shape_of(kind), ir.dtype_of(kind))
            if (column, part) not in parts:
                parts[column, part] = b.value(TensorPart(memory, column, part))
            of_products.append(parts[column, part])
    for product, part in zip(products, of_products, strict=True):
        if product.place is None:
            _load_result(product, part)
        else:
            _accumulate(product, product.place, part)
    with b.before(fn.body.terminator):
        b.insert(FreeTensor(memory))


def _load_result(product: _Product, part: Value) -> None:
    """Load the product where it is computed, and add the accumulator in registers."""
    dot, b = product.dot, Builder()
    with b.before(dot):
        result = b.value(LoadTensor(_started(b, dot, part, adds=False)))
        if constant_value(dot.acc) != 0:
            result = b.value(Add(result, dot.acc))
    dot.result.replace_with(result)
    dot.erase()


def _accumulate(product: _Product, place: int, part: Value) -> None:
    """Carry the accumulator in tensor memory, and load it after the loop."""
    loop, dot, b = product.loop, product.dot, Builder()
    following = loop.next
    assert following is not None
    with b.before(loop):
        start = b.value(StoreTensor(part, loop.inits[place]))
    loop.set_operand(FIRST_INIT + place, start)
    result = loop.results[place]
    dot.acc.type = result.type = part.type
    with b.before(dot):
        dot.result.replace_with(_started(b, dot, dot.acc, adds=True))
    dot.erase()
    with b.before(following):
        b.loc = loop.loc
        load = b.insert(LoadTensor(start))
    result.replace_with(load.result)
    load.set_operand(0, result)


def _started(b: Builder, dot: Dot, memory: Value, *, adds: bool) -> Value:
    """The result of a product after a wait for it."""
    mma = TensorMma(dot.lhs, dot.rhs, memory, dot.precision, dot.max_imprecise, adds)
    return b.value(TensorWait(b.value(mma)))


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
