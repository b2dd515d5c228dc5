"""The rules of `pad_tiles` for ops whose results or effects would depend on padding.

Each rule replaces or changes an op such that padding elements do not affect it: it masks them off,
or sets them to a neutral element. See `padding.pads`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.ir.core import Op, Region, Value
from tilewright.ir.types import I1, DType, Type, dtype_of, element_of, shape_of
from tilewright.ops import arith
from tilewright.ops.atomic import AtomicCAS, AtomicLoad, AtomicPoll, AtomicRMW, AtomicStore
from tilewright.ops.control import If, Yield
from tilewright.ops.debug import Assert, Print
from tilewright.ops.dot import Dot
from tilewright.ops.histogram import Histogram
from tilewright.ops.map import Map
from tilewright.ops.memory import Load, Store
from tilewright.ops.reduce import Reduce, Scan, simple_combine
from tilewright.ops.shape import Arange, Broadcast, Cat, Flip, Gather, Reshape, Splat
from tilewright.ops.sort import Sort
from tilewright.passes.padding import Padding, is_padded, padded, pads

# -- creation of tiles -----------------------------------------------------------------------------


@pads(arith.Constant)
def pad_constant(p: Padding, op: arith.Constant) -> None:
    if op.value == 0:
        p.zeros.add(op.result)
    p.pad_type(op.result)
    op.type = op.result.type


@pads(Splat, Broadcast)
def pad_shape(p: Padding, op: Splat | Broadcast) -> None:
    op.shape = padded(op.shape)


@pads(Arange)
def pad_arange(p: Padding, op: Arange) -> None:
    """Extend the range. If its end exceeds i32, compute it with an addition that wraps."""
    (count,) = padded((op.end - op.start,))
    if op.start + count <= 2**31:
        op.end = op.start + count
        return
    counted = p.b.value(Arange(0, count))
    p.replace(op, p.b.value(arith.Add(counted, p.constant(op.start, counted.type))))


# -- memory ----------------------------------------------------------------------------------------


@pads(Load)
def pad_load(p: Padding, op: Load) -> None:
    """Mask off the padding, which is 0 if there is no `other`."""
    mask = p.masked(op.mask, p.shape(op.ptr))
    new = Load(op.ptr, mask, op.other, op.cache, op.evict, op.volatile)
    result = p.b.value(new)
    if op.other is None or op.other in p.zeros:
        p.zeros.add(result)
    p.replace(op, result)


@pads(Store)
def pad_store(p: Padding, op: Store) -> None:
    p.b.insert(Store(op.ptr, op.value, p.masked(op.mask, p.shape(op.ptr)), op.cache, op.evict))
    op.erase()


@pads(AtomicRMW)
def pad_rmw(p: Padding, op: AtomicRMW) -> None:
    mask = p.masked(op.mask, p.shape(op.ptr))
    p.replace(op, p.b.value(AtomicRMW(op.ptr, op.value, mask, op.kind, op.sem, op.scope)))


@pads(AtomicCAS)
def pad_cas(p: Padding, op: AtomicCAS) -> None:
    mask = p.masked(op.mask, p.shape(op.ptr))
    new = AtomicCAS(op.ptr, op.expected, op.value, mask, op.sem, op.scope)
    p.replace(op, p.b.value(new))


@pads(AtomicLoad)
def pad_atomic_load(p: Padding, op: AtomicLoad) -> None:
    mask = p.masked(op.mask, p.shape(op.ptr))
    p.replace(op, p.b.value(AtomicLoad(op.ptr, mask, op.sem, op.scope)))


@pads(AtomicStore)
def pad_atomic_store(p: Padding, op: AtomicStore) -> None:
    mask = p.masked(op.mask, p.shape(op.ptr))
    p.b.insert(AtomicStore(op.ptr, op.value, mask, op.sem, op.scope))
    op.erase()


@pads(AtomicPoll)
def pad_poll(p: Padding, op: AtomicPoll) -> None:
    mask = p.masked(op.mask, p.shape(op.ptr))
    p.replace(op, p.b.value(AtomicPoll(op.ptr, op.expected, mask, op.timeout, op.sem, op.scope)))


@pads(Print)
def pad_print(p: Padding, op: Print) -> None:
    """Do not print the padding."""
    op.extents = (*map(p.shape, op.values),)


@pads(Assert)
def pad_assert(p: Padding, op: Assert) -> None:
    """Do not check the padding."""
    mask = p.inside(p.shape(op.condition))
    if mask is not None:
        holds = p.constant(True, op.condition.type)
        op.set_operand(0, p.b.value(arith.Select(mask, op.condition, holds)))


# -- movement of elements --------------------------------------------------------------------------


@pads(Reshape)
def pad_reshape(p: Padding, op: Reshape) -> None:
    found = p.reshaped(op.src, op.shape)
    if found is op.src:  # the two padded shapes are equal
        found = p.b.value(Reshape(found, shape_of(found.type)))
    p.replace(op, found)


@pads(Flip)
def pad_flip(p: Padding, op: Flip) -> None:
    """Gather, since the index is reversed with respect to the extent without padding."""
    shape = p.shape(op.src)
    if is_padded((shape[op.axis],)):
        return
    coordinates = p.coordinates(padded(shape), op.axis)
    last = p.constant(shape[op.axis] - 1, coordinates.type)
    p.replace(op, p.gathered(op.src, p.b.value(arith.Sub(last, coordinates)), op.axis))


@pads(Cat)
def pad_cat(p: Padding, op: Cat) -> None:
    """Gather, unless the two extents are equal powers of two."""
    first, second = (p.shape(v)[op.axis] for v in (op.lhs, op.rhs))
    if first == second and is_padded((first,)):
        return
    shape = padded(shape_of(op.result.type))
    coordinates = p.coordinates(shape, op.axis)
    start = p.constant(first, coordinates.type)
    from_first = p.gathered(op.lhs, coordinates, op.axis)
    from_second = p.gathered(op.rhs, p.b.value(arith.Sub(coordinates, start)), op.axis)
    is_first = p.b.value(arith.Cmp(coordinates, start, "lt"))
    p.replace(op, p.b.value(arith.Select(is_first, from_first, from_second)))


@pads(Gather)
def pad_gather(p: Padding, op: Gather) -> None:
    """Clamp the index to the extent without padding."""
    extent = p.shape(op.src)[op.axis]
    element = dtype_of(op.index.type)
    if is_padded((extent,)) or element.get_int_max_value() < extent:
        return
    index, type = op.index, op.index.type
    if element.is_int_signed():
        index = p.b.value(arith.Max(index, p.constant(0, type), False))
    last = p.constant(extent - 1, type)
    op.set_operand(op.operands.index(op.index, 1), p.b.value(arith.Min(index, last, False)))


# -- reductions and products -----------------------------------------------------------------------


def identity(op: Op, element: DType) -> float | None:
    """The identity element of a combine op for an element type; None if there is none or it is not
    known."""
    if element.is_fp8():
        return None
    floating = element.is_floating()
    infinity = float("inf")
    least, most = (
        (-infinity, infinity)
        if floating
        else (element.get_int_min_value(), element.get_int_max_value())
    )
    match op:
        case arith.Add():
            return -0.0 if floating else 0
        case arith.Mul():
            return 1.0 if floating else 1
        case arith.Max() | arith.Min() if floating and not op.propagate_nan:
            return float("nan")  # the result is the other operand
        case arith.Max():
            return least
        case arith.Min():
            return most
        case arith.Or() | arith.Xor():
            return 0
        case arith.And():
            return -1 if element.is_int_signed() else most
        case _:
            return None


@pads(Reduce, Scan)
def pad_combining(p: Padding, op: Reduce | Scan) -> None:
    """Set the padding along the axis to the identity element. A forward scan does not need it, as
    padding follows the elements."""
    extent = p.shape(op.srcs[0])[op.axis]
    if is_padded((extent,)) or (isinstance(op, Scan) and not op.reverse):
        return
    combine = simple_combine(op)
    element = element_of(op.srcs[0].type)
    neutral = identity(combine, element) if combine and isinstance(element, DType) else None
    if neutral is None:
        _combine_with_flags(p, op)
        return
    if isinstance(element, DType) and element.is_bool():
        neutral = bool(neutral)
    op.set_operand(0, p.filled(op.srcs[0], neutral, op.axis))


def _combine_with_flags(p: Padding, op: Reduce | Scan) -> None:
    """Combine elements together with a flag that is false for padding, where no identity element
    is known."""
    mask = p.inside(p.shape(op.srcs[0]), (op.axis,))
    assert mask is not None
    region = _flagged(p, op)
    srcs = [*op.srcs, mask]
    if isinstance(op, Scan):
        new: Op = p.b.insert(Scan(srcs, op.axis, op.reverse, region))
    else:
        new = p.b.insert(Reduce(srcs, op.axis, region))
    p.replace(op, *new.results[:-1])


def _flagged(p: Padding, op: Reduce | Scan) -> Region:
    """The combine region for elements with flags: combines two elements, and returns the other
    operand if one is padding."""
    elements: list[Type] = [element_of(s.type) for s in op.srcs]
    count = len(elements)
    region = Region([*elements, I1, *elements, I1])
    left, right = region.args[: count + 1], region.args[count + 1 :]
    mapping = dict(zip(op.combine_region.args, [*left[:-1], *right[:-1]], strict=True))
    with p.b.at_end(region):
        for inner in op.combine_region:
            if not inner.terminator:
                p.b.insert(inner.clone(mapping))
        combined = [mapping.get(v, v) for v in op.combine_region.terminator.operands]
        found: list[Value] = []
        for x, y, both in zip(left[:-1], right[:-1], combined, strict=True):
            first = p.b.value(arith.Select(left[-1], both, y))
            found.append(p.b.value(arith.Select(right[-1], first, x)))
        found.append(p.b.value(arith.Or(left[-1], right[-1])))
        p.b.insert(Yield(found))
    return region


@pads(Sort)
def pad_sort(p: Padding, op: Sort) -> None:
    """Set the padding to the value that is sorted to the end."""
    element = dtype_of(op.src.type)
    last = element.get_int_min_value() if op.descending else element.get_int_max_value()
    op.set_operand(0, p.filled(op.src, last, -1))


@pads(Dot)
def pad_dot(p: Padding, op: Dot) -> None:
    """Set the padding of both operands to 0; of one would not suffice, as 0 * NaN is NaN."""
    zero = 0 if dtype_of(op.lhs.type).is_int() else 0.0
    op.set_operand(0, p.filled(op.lhs, zero, -1))
    op.set_operand(1, p.filled(op.rhs, zero, -2))


@pads(Histogram)
def pad_histogram(p: Padding, op: Histogram) -> None:
    mask = p.masked(op.mask, p.shape(op.src))
    p.replace(op, p.b.value(Histogram(op.src, mask, padded((op.bins,))[0])))


@pads(Map)
def pad_map(p: Padding, op: Map) -> None:
    """Do not run the body on padding: it might not terminate."""
    shape = p.shape(op.srcs[0])
    if shape[-1] % op.pack == 0:
        p.replace(op, *_masked_map(p, op, op.srcs, shape))
        return
    flat = (prod(shape),)
    found = _masked_map(p, op, [p.reshaped(s, flat) for s in op.srcs], flat)
    for value in found:
        p.set_shape(value, flat)
    p.replace(op, *(p.reshaped(v, shape) for v in found))


def _masked_map(
    p: Padding, op: Map, srcs: Sequence[Value], shape: tuple[int, ...]
) -> Sequence[Value]:
    """The op on padded tiles with a mask, on which the body is conditional. The mask of the first
    element applies to the whole pack, as no pack extends into the padding."""
    mask = p.inside(shape)
    if mask is None:
        return p.b.insert(Map([*srcs], op.pack, op.body.clone({}))).results
    args = [a.type for a in op.body.args]
    region = Region([*args, *[I1] * op.pack])
    mapping = dict(zip(op.body.args, region.args, strict=False))
    then, otherwise = op.body.clone(mapping), Region()
    for arg, outer in zip(list(then.args), region.args, strict=False):
        arg.replace_with(outer)
    then.args.clear()
    with p.b.at_end(otherwise):
        zeros = [p.constant(_zero(v.type), v.type) for v in then.terminator.operands]
        p.b.insert(Yield(zeros))
    with p.b.at_end(region):
        p.b.insert(Yield(p.b.insert(If(region.args[len(args)], then, otherwise)).results))
    return p.b.insert(Map([*srcs, mask], op.pack, region)).results


def _zero(type: Type) -> float:
    element = element_of(type)
    return 0.0 if isinstance(element, DType) and element.is_floating() else 0
