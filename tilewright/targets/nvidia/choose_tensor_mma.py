"""Selection of `tcgen05.mma` for the products of loops.

A loop that only adds products to an accumulator keeps it in tensor memory:

    acc = zeros                                memory = store(part, zeros)
    for k in …:                        →       for k in …:
        acc = dot(load(…), load(…), acc)           memory = product(share(load(…)), …, memory)
                                                   wait for the product
                                               acc = load(memory)

Any other result is loaded from tensor memory, and the accumulator is added in registers:

    acc = dot(p, load(…), acc * scale)  →      memory = product(share(p), share(load(…)), part)
                                               wait for the product
                                               acc = load(memory) + acc * scale

Scales of block-scaled products are stored to tensor memory by the threads that load them, in each
iteration, after the wait for the product of the one before.

It applies to all products of loops whose operands a dedicated warp can copy (`copied_loops`).
`specialize_warps` sinks waits that the loop does not need below it. Other products are left to
`mma.sync`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple, TypeGuard

from tilewright.analysis.axis_info import AxisMap, axis_info
from tilewright.analysis.blocks import BlockFinder
from tilewright.ir import types as ir
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Op, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.layout import families
from tilewright.ops.arith import Add, constant_value
from tilewright.ops.control import For
from tilewright.ops.dot import Dot
from tilewright.ops.dot_scaled import DotScaled
from tilewright.ops.gpu import PermuteBuffer, Share, unpermuted
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
    TensorProduct,
    TensorScaledMma,
    TensorWait,
    columns_of,
    fits_rows,
    fits_tensor_memory,
    fits_warps,
    is_scales,
)
from tilewright.passes.layout_choice import ANCHORS
from tilewright.passes.layout_rules import Demands
from tilewright.passes.software_pipelining import stages_of
from tilewright.targets.gpu.operands import multiplies_product
from tilewright.targets.nvidia.choose_mma import GROUP_WARPS, shared_operand
from tilewright.targets.nvidia.copied_loops import copy_of
from tilewright.targets.nvidia.copied_scalars import Scalars, Unsupported, require_scalars
from tilewright.targets.nvidia.rewrite_products import step_along_k
from tilewright.targets.nvidia.scaled_kinds import scales_of, scales_type, tensor_kind_of

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


AnyDot = Dot | DotScaled


class _Product(NamedTuple):
    """A product of a loop.

    Attributes:
        place: of the accumulator among the loop-carried values, if the loop does nothing else with
            it than to add this product; None for any other product.
        stored: whether the left operand is in tensor memory, too.
    """

    loop: For
    dot: AnyDot
    place: int | None
    stored: bool

    @property
    def weights(self) -> list[ir.TensorMemory]:
        """The type of the left operand in tensor memory, if it is there."""
        type = self.dot.lhs.type
        return [ir.TensorMemory(ir.shape_of(type), ir.dtype_of(type))] if self.stored else []

    @property
    def scales(self) -> list[ir.TensorMemory]:
        """The types of the scales of both operands in tensor memory."""
        if isinstance(self.dot, Dot):
            return []
        kind = tensor_kind_of(self.dot)
        assert kind is not None
        tiles = [scales_type(side, kind) for side in self.dot.sides]
        return [ir.TensorMemory(tile.shape, kind.scale) for tile in tiles]


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
            products = [product._replace(stored=False) for product in products]
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
    if stages_of(loop, ctx) <= 1:
        return []
    dots = [op for op in loop.body if _is_product(op)]
    inner = [op for op in loop.body.walk() if _is_product(op)]
    if len(dots) != len(inner) or not all(_fits(dot, ctx) for dot in dots):
        return []
    return [_Product(loop, dot, _place_of(dot, loop), _may_be_stored(dot, loop)) for dot in dots]


def _is_product(op: Op) -> TypeGuard[AnyDot]:
    """Whether it is a product without an instruction yet."""
    return type(op) in (Dot, DotScaled)


def _place_of(dot: AnyDot, loop: For) -> int | None:
    """See `_Product`."""
    acc, end = dot.acc, loop.body.terminator
    if acc.owner is not loop.body or not acc.index or list(acc.users.items()) != [(dot, 1)]:
        return None
    place = acc.index - 1
    only_carried = list(dot.result.users.items()) == [(end, 1)]
    return place if only_carried and end.operands[place] is dot.result else None


def _may_be_stored(dot: AnyDot, loop: For) -> bool:
    """Whether a left operand may be stored to tensor memory in each iteration: the loop computes it
    for this product alone, from the result of another one, so that threads hold its rows."""
    value = dot.lhs
    return (
        isinstance(dot, Dot)
        and fits_tensor_memory(value.type)
        and _is_in(value, loop)
        and list(value.users.items()) == [(dot, 1)]
        and multiplies_product(dot)
    )


class _Places(NamedTuple):
    """The locations of results, left operands and scales in tensor memory.

    Attributes:
        results: the first column of each product's.
        weights: that of the left operand of each product that has it there.
        scales: the first columns of both operands' scales of each product.
        columns: the number of columns.
    """

    results: list[int]
    weights: list[list[int]]
    scales: list[list[int]]
    columns: int


def _places_of(products: Sequence[_Product]) -> _Places:
    """Accumulators have separate columns; operands and results that are loaded immediately share
    the columns after those, in each loop."""
    used = sum(columns_of(p.dot.acc.type) for p in products if p.place is not None)
    places = _Places([], [], [], 0)
    accumulated, others = 0, dict[For, int]()
    for product in products:

        def take(type: ir.Type, loop: For = product.loop) -> int:
            first = others.get(loop, used)
            others[loop] = first + columns_of(type)
            return first

        if product.place is not None:
            places.results.append(accumulated)
            accumulated += columns_of(product.dot.acc.type)
        else:
            places.results.append(take(product.dot.acc.type))
        places.weights.append([take(type) for type in product.weights])
        places.scales.append([take(type) for type in product.scales])
    return places._replace(columns=max([used, *others.values()]))


def _fits(dot: AnyDot, ctx: PassContext) -> bool:
    """Whether the instruction computes a product."""
    if isinstance(dot, DotScaled):
        return tensor_kind_of(dot) is not None
    shape = ir.shape_of(dot.acc.type)
    left, right, acc = (ir.dtype_of(v.type) for v in (dot.lhs, dot.rhs, dot.acc))
    kind = KINDS.get(left)
    return (
        len(shape) == 2
        and kind is not None
        and kind == KINDS.get(right)
        and _FEATURES.get(kind, "tcgen05") in ctx.features
        and (left == right or left.is_fp8())
        and (left != ir.FP32 or dot.precision == "tf32")
        and acc == (ir.I32 if left.is_int() else ir.FP32)
        and fits_rows(shape[0])
        and fits_warps(shape, ctx.gpu.warps // GROUP_WARPS)
        and shape[1] % STEP_COLUMNS == 0
        and ir.shape_of(dot.lhs.type)[1] % step_along_k(left) == 0
        and columns_of(dot.acc.type) <= COLUMNS
    )


def _share_operands(
    fn: Function, loop: For, products: Sequence[_Product], infos: AxisMap, ctx: PassContext
) -> bool:
    """Share the operands of a loop's products, if all that it loads can be tensor copies; whether
    they can."""
    operands = [
        (product.dot, value, axis)
        for product in products
        for axis, value in ((1, product.dot.lhs), (0, product.dot.rhs))
        if not (product.stored and axis)
    ]
    made: list[Value] = []
    try:
        _require_memory(loop, [v for _, v, _ in operands], ctx)
        finder, scalars = BlockFinder(), Scalars(fn)
        for dot, value, axis in operands:
            made.append(shared_operand(dot, value, axis, infos))
            share = _share_of(made[-1])
            if _load_in(loop, value) is not None:
                require_scalars(loop, copy_of(fn, loop, share, finder, only=False), scalars, share)
            if any(
                _share_of(m).src is share.src and not _is_same_buffer(_share_of(m), share)
                for m in made
            ):
                raise Unsupported("two products read an operand in different layouts", share.src.op)
    except Unsupported as error:
        for value in reversed(made):
            _erase(value)
        ctx.missed(NAME, f"mma.sync: {error}", (error.op or loop).loc)
        return False
    for (dot, _, axis), value in zip(operands, made, strict=True):
        dot.set_operand(0 if axis else _right_index(dot), value)
    _merge([_share_of(value) for value in made])
    return True


def _right_index(dot: AnyDot) -> int:
    """The number of the right operand."""
    return 2 if isinstance(dot, DotScaled) and dot.lhs_scale is not None else 1


def _require_memory(loop: For, operands: Sequence[Value], ctx: PassContext) -> None:
    """Raise `Unsupported` unless the loop loads an operand, and shared memory has room for two
    slots of its loads, and for all other operands."""
    loaded = [v for v in operands if _load_in(loop, v) is not None]
    if not loaded:
        raise Unsupported("no operand of the products is loaded in the loop", loop)
    for value in loaded:
        if any(
            not isinstance(user, Permute | AnyDot) for v in _path_to_load(value) for user in v.users
        ):
            raise Unsupported("a loaded operand has other uses", value.op)
    size = sum(map(_bytes_of, operands)) + sum(map(_bytes_of, loaded))
    if size + OTHER_BYTES > ctx.gpu.shared_bytes:
        raise Unsupported("there is not enough shared memory for two slots", loop)


def _is_same_buffer(share: Share, other: Share) -> bool:
    """Whether both are the same buffer."""
    return share.src is other.src and share.result.layout == other.result.layout


def _merge(shares: Sequence[Share]) -> None:
    """Let products read the same buffer of the same operand."""
    kept: list[Share] = []
    for share in shares:
        same = next((s for s in kept if _is_same_buffer(s, share)), None)
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
    share = unpermuted(buffer).op
    assert isinstance(share, Share)
    return share


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
    with b.before(first):
        memory = b.value(AllocateTensor(ir.TensorMemory((ROWS, places.columns), ir.FP32)))

        def part(column: int, type: ir.Type) -> Value:
            kind = ir.TensorMemory(ir.shape_of(type), ir.dtype_of(type))
            if (column, kind) not in parts:
                parts[column, kind] = b.value(TensorPart(memory, column, kind))
            return parts[column, kind]

        results = [
            part(column, product.dot.acc.type)
            for product, column in zip(products, places.results, strict=True)
        ]
        weights = [
            [part(column, type) for column, type in zip(columns, product.weights, strict=True)]
            for product, columns in zip(products, places.weights, strict=True)
        ]
        scales = [
            [part(column, type) for column, type in zip(columns, product.scales, strict=True)]
            for product, columns in zip(products, places.scales, strict=True)
        ]
    for product, result, *operands in zip(products, results, weights, scales, strict=True):
        _store_weights(product, operands[0])
        started = _Started(product, _stored_scales(product, operands[1]))
        if product.place is None:
            _load_result(started, result)
        else:
            _accumulate(started, product.place, result)
    with b.before(fn.body.terminator):
        b.insert(FreeTensor(memory))


def _store_weights(product: _Product, parts: Sequence[Value]) -> None:
    """Store the left operand to tensor memory, if it is placed there, as late as possible."""
    dot, b = product.dot, Builder()
    for part in parts:
        with b.before(dot):
            dot.set_operand(0, b.value(StoreTensor(part, dot.lhs)))


def _stored_scales(product: _Product, parts: Sequence[Value]) -> list[Value]:
    """The scales of both operands in tensor memory, stored before the loop if that changes none."""
    dot, b = product.dot, Builder()
    if isinstance(dot, Dot):
        return []
    kind = tensor_kind_of(dot)
    assert kind is not None
    found: list[Value] = []
    for side, part in zip(dot.sides, parts, strict=True):
        changes = side.scale is not None and _is_in(side.scale, product.loop)
        with b.before(dot if changes else product.loop):
            b.loc = dot.loc
            found.append(b.value(StoreTensor(part, scales_of(b, side, kind))))
    return found


def _is_in(value: Value, loop: For) -> bool:
    """Whether a loop's body, of which all products are direct ops, defines a value."""
    return value.owner is loop.body or (value.op is not None and value.op.parent is loop.body)


class _Started(NamedTuple):
    """A product to be started, with its scales in tensor memory.

    Attributes:
        scales: of both operands; none of a product without.
    """

    product: _Product
    scales: list[Value]

    def after_wait(self, b: Builder, memory: Value, *, adds: bool) -> Value:
        """The result after a wait for it."""
        dot = self.product.dot
        if isinstance(dot, Dot):
            mma: TensorProduct = TensorMma(
                dot.lhs, dot.rhs, memory, dot.precision, dot.max_imprecise, adds
            )
        else:
            left, right = self.scales
            mma = TensorScaledMma(
                dot.lhs, left, dot.rhs, right, memory, dot.lhs_format, dot.rhs_format,
                dot.lhs_k_pack, dot.rhs_k_pack, dot.fast_math, adds,
            )  # fmt: skip
        return b.value(TensorWait(b.value(mma)))


def _load_result(started: _Started, part: Value) -> None:
    """Load the product where it is computed, and add the accumulator in registers."""
    dot, b = started.product.dot, Builder()
    with b.before(dot):
        result = b.value(LoadTensor(started.after_wait(b, part, adds=False)))
        if constant_value(dot.acc) != 0:
            result = b.value(Add(result, dot.acc))
    dot.result.replace_with(result)
    dot.erase()


def _accumulate(started: _Started, place: int, part: Value) -> None:
    """Carry the accumulator in tensor memory, and load it after the loop."""
    loop, dot, b = started.product.loop, started.product.dot, Builder()
    following = loop.next
    assert following is not None
    with b.before(loop):
        start = b.value(StoreTensor(part, loop.inits[place]))
    loop.set_operand(FIRST_INIT + place, start)
    result = loop.results[place]
    dot.acc.type = result.type = part.type
    with b.before(dot):
        dot.result.replace_with(started.after_wait(b, dot.acc, adds=True))
    dot.erase()
    with b.before(following):
        b.loc = loop.loc
        load = b.insert(LoadTensor(start))
    result.replace_with(load.result)
    load.set_operand(0, result)


# -- layouts --------------------------------------------------------------------------------------


@ANCHORS.of(LoadTensor)
def _load_demands(op: LoadTensor, ctx: PassContext) -> Demands:
    layout = families.tensor_memory(ir.shape_of(op.result.type), ctx.gpu.warps)
    return Demands([None], [layout])


@ANCHORS.of(StoreTensor)
def _store_demands(op: StoreTensor, ctx: PassContext) -> Demands:
    family = families.tensor_scales if is_scales(op.value.type) else families.tensor_memory
    return Demands([None, family(ir.shape_of(op.value.type), ctx.gpu.warps)], [None])


@ANCHORS.of(TensorMma, TensorScaledMma)
def _product_demands(op: TensorProduct, ctx: PassContext) -> Demands:
    return Demands([None] * len(op.operands), [None])


@ANCHORS.of(TensorWait)
def _wait_demands(op: TensorWait, ctx: PassContext) -> Demands:
    return Demands([None], [None])
