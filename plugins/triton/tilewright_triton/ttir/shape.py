"""Creation of tiles, changes of shape, and moves of elements by index."""

from __future__ import annotations

from math import prod

from tilewright.ir.types import I32, Type, dtype_of, element_of, shape_of, with_element, with_shape
from tilewright.ops import shape, sort
from tilewright.ops.histogram import Histogram
from tilewright_triton.ttir.casts import converted
from tilewright_triton.ttir.numbers import binary, both, compare, retyped, select
from tilewright_triton.ttir.writer import EMITTERS, Ref, Writer

SMALL = 1024
"""Elements of a tile for which Triton must not choose the layout of a gather: versions 3.6 and 3.7
fail if there are more threads than elements."""


@EMITTERS.of(shape.Arange)
def emit_arange(w: Writer, op: shape.Arange) -> None:
    w.bind(op.result, arange(w, op.start, op.end))


def arange(w: Writer, start: int, end: int) -> Ref:
    """The integers of a range; `tt.make_range` has none below 0."""
    first = max(0, start)
    type = with_shape(I32, (end - start,))
    attributes = {"end": f"{first + end - start} : i32", "start": f"{first} : i32"}
    found = w.op("tt.make_range", result=type, attributes=attributes)
    return binary(w, "arith.addi", found, w.constant(start, type)) if start < 0 else found


@EMITTERS.of(shape.Splat)
def emit_splat(w: Writer, op: shape.Splat) -> None:
    w.bind(op.result, w.cast("tt.splat", w.use(op.src), op.result.type, arrow="->"))


@EMITTERS.of(shape.ExpandDims)
def emit_expand_dims(w: Writer, op: shape.ExpandDims) -> None:
    w.bind(op.result, expanded(w, w.use(op.src), op.axis))


def expanded(w: Writer, x: Ref, axis: int) -> Ref:
    """With an axis of length 1 at a position."""
    extents = shape_of(x.type)
    to = with_shape(x.type, (*extents[:axis], 1, *extents[axis:]))
    return _moved(w, "tt.expand_dims", x, to, {"axis": f"{axis} : i32"})


def _moved(w: Writer, name: str, x: Ref, to: Type, attributes: dict[str, str]) -> Ref:
    return w.op(name, [x], to, types=f"{w.type(x.type)} -> {w.type(to)}", attributes=attributes)


@EMITTERS.of(shape.Broadcast)
def emit_broadcast(w: Writer, op: shape.Broadcast) -> None:
    w.bind(op.result, broadcast(w, w.use(op.src), op.result.type))


def broadcast(w: Writer, x: Ref, to: Type) -> Ref:
    """`tt.broadcast` keeps the rank: leading axes are inserted before."""
    while len(shape_of(x.type)) < len(shape_of(to)):
        x = expanded(w, x, 0)
    return x if x.type == to else w.cast("tt.broadcast", x, to, arrow="->")


@EMITTERS.of(shape.Reshape)
def emit_reshape(w: Writer, op: shape.Reshape) -> None:
    w.bind(op.result, reshaped(w, w.use(op.src), op.result.type))


def reshaped(w: Writer, x: Ref, to: Type) -> Ref:
    if x.type == to:
        return x
    if not shape_of(to):  # of one element
        flat = reshaped(w, x, with_shape(x.type, (1,)))
        return _only_element(w, flat)
    return w.cast("tt.reshape", x, to, arrow="->")


def _only_element(w: Writer, x: Ref) -> Ref:
    return w.op("tt.unsplat", [x], element_of(x.type), types=w.type(x.type))


@EMITTERS.of(shape.Permute)
def emit_permute(w: Writer, op: shape.Permute) -> None:
    w.bind(op.result, permuted(w, w.use(op.src), op.order))


def permuted(w: Writer, x: Ref, order: tuple[int, ...]) -> Ref:
    extents = shape_of(x.type)
    to = with_shape(x.type, tuple(extents[i] for i in order))
    return _moved(w, "tt.trans", x, to, {"order": f"array<i32: {', '.join(map(str, order))}>"})


@EMITTERS.of(shape.Join)
def emit_join(w: Writer, op: shape.Join) -> None:
    """Scalars are joined as tiles of one element."""
    a, b = w.use(op.lhs), w.use(op.rhs)
    w.bind(op.result, reshaped(w, joined(w, a, b), op.result.type))


def joined(w: Writer, a: Ref, b: Ref) -> Ref:
    if not shape_of(a.type):
        one = with_shape(a.type, (1,))
        a, b = (w.cast("tt.splat", x, one, arrow="->") for x in (a, b))
    to = with_shape(a.type, (*shape_of(a.type), 2))
    return w.op("tt.join", [a, b], to, types=f"{w.type(a.type)} -> {w.type(to)}")


@EMITTERS.of(shape.Split)
def emit_split(w: Writer, op: shape.Split) -> None:
    src = w.use(op.src)
    scalar = not shape_of(op.results[0].type)
    if scalar:
        src = reshaped(w, src, with_shape(src.type, (1, 2)))
    for result, part in zip(op.results, halves(w, src), strict=True):
        w.bind(result, _only_element(w, part) if scalar else part)


def halves(w: Writer, x: Ref) -> list[Ref]:
    """The two slices along the last axis, of length 2."""
    half = with_shape(x.type, shape_of(x.type)[:-1])
    return w.results([half, half], f"tt.split {x.name}", f" : {w.type(x.type)} -> {w.type(half)}")


@EMITTERS.of(shape.Cat)
def emit_cat(w: Writer, op: shape.Cat) -> None:
    """A join, whose new axis is moved in front of the concatenated one: `tt.cat` does not keep the
    order of elements."""
    a, b = w.use(op.lhs), w.use(op.rhs)
    if a.type != b.type:
        raise w.unsupported("concatenation of tiles of different extents")
    rank = len(shape_of(a.type))
    order = (*range(op.axis), rank, *range(op.axis, rank))
    w.bind(op.result, reshaped(w, permuted(w, joined(w, a, b), order), op.result.type))


# -- moves by index -------------------------------------------------------------------------------


@EMITTERS.of(shape.Gather)
def emit_gather(w: Writer, op: shape.Gather) -> None:
    src, index = w.use(op.src), w.use(op.index)
    element = dtype_of(index.type)
    last = w.constant(shape_of(src.type)[op.axis] - 1, index.type)
    if element.primitive_bitwidth < 32:
        index = converted(w, index, I32)
        last = w.constant(shape_of(src.type)[op.axis] - 1, index.type)
    if dtype_of(index.type).is_int_signed():
        index = binary(w, "arith.maxsi", index, w.constant(0, index.type))
        index = binary(w, "arith.minsi", index, last)
    else:
        index = binary(w, "arith.minui", index, last)
    w.bind(op.result, gathered(w, src, index, op.axis))


def gathered(w: Writer, src: Ref, index: Ref, axis: int) -> Ref:
    """The elements at indices along an axis, all in range. Bools are moved as integers."""
    element = element_of(src.type)
    if element.is_bool():
        return converted(w, gathered(w, converted(w, src, I32), index, axis), element)
    to = with_shape(src.type, shape_of(index.type))
    attributes = {"axis": f"{axis} : i32"}
    if prod(shape_of(to)) < SMALL:
        attributes["efficient_layout"] = ""
    return w.op(
        f"tt.gather {src.name}[{index.name}]",
        result=to,
        types=f"({w.type(src.type)}, {w.type(index.type)}) -> {w.type(to)}",
        attributes=attributes,
    )


def _along(w: Writer, extents: tuple[int, ...], axis: int) -> Ref:
    """The index of each element along an axis."""
    index = arange(w, 0, extents[axis])
    for other in range(len(extents)):
        if other != axis:
            index = expanded(w, index, min(other, len(shape_of(index.type))))
    return broadcast(w, index, with_shape(I32, extents))


@EMITTERS.of(shape.Flip)
def emit_flip(w: Writer, op: shape.Flip) -> None:
    src = w.use(op.src)
    extents = shape_of(src.type)
    index = _along(w, extents, op.axis)
    last = w.constant(extents[op.axis] - 1, index.type)
    w.bind(op.result, gathered(w, src, binary(w, "arith.subi", last, index), op.axis))


@EMITTERS.of(sort.Sort)
def emit_sort(w: Writer, op: sort.Sort) -> None:
    """The sorting network, a gather for each stage."""
    src = w.use(op.src)
    extents, axis = shape_of(src.type), len(shape_of(src.type)) - 1
    element = dtype_of(src.type)
    if element.is_bool():
        src = converted(w, src, I32)
    letter = "s" if dtype_of(src.type).is_int_signed() else "u"
    index = _along(w, extents, axis)
    zero = w.constant(0, index.type)
    for mask, top in sort.network(extents[-1], op.merge):
        partner = binary(w, "arith.xori", index, w.constant(mask, index.type))
        other = gathered(w, src, partner, axis)
        upper = binary(w, "arith.andi", index, w.constant(top, index.type))
        takes_greater = compare(w, "eq" if op.descending else "ne", upper, zero)
        greater, less = (binary(w, f"arith.{k}{letter}i", src, other) for k in ("max", "min"))
        src = select(w, takes_greater, greater, less)
    w.bind(op.result, converted(w, src, element))


@EMITTERS.of(Histogram)
def emit_histogram(w: Writer, op: Histogram) -> None:
    """`tt.histogram` counts 32-bit integers that are in range: others are masked off."""
    src = w.use(op.src)
    src = reshaped(w, src, with_shape(src.type, (prod(shape_of(src.type)),)))
    element = dtype_of(src.type)
    if element.primitive_bitwidth < 32:
        src = converted(w, src, I32)
    inside = compare(w, "lt", src, w.constant(op.bins, src.type))
    if dtype_of(src.type).is_int_signed():
        inside = both(w, inside, compare(w, "ge", src, w.constant(0, src.type)))
    if op.mask is not None:
        mask = w.use(op.mask)
        inside = both(w, inside, reshaped(w, mask, with_element(src.type, dtype_of(mask.type))))
    src = select(w, inside, src, w.constant(0, src.type))
    src = (
        converted(w, src, I32) if dtype_of(src.type).primitive_bitwidth > 32 else retyped(src, I32)
    )
    types = f"{w.type(src.type)} -> {w.type(op.result.type)}"
    w.bind(op.result, w.op("tt.histogram", [src, inside], op.result.type, types=types))
