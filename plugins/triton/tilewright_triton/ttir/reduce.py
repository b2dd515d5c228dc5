"""Reductions, scans and maps: ops whose region computes with scalars."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.ir.core import Region
from tilewright.ir.types import FP16, Type, element_of, shape_of, with_element, with_shape
from tilewright.ops.map import Map
from tilewright.ops.reduce import Reduce, Scan
from tilewright_triton.ttir.casts import converted, narrowed
from tilewright_triton.ttir.shape import halves, joined, reshaped
from tilewright_triton.ttir.writer import EMITTERS, Ref, Writer


@EMITTERS.of(Reduce)
def emit_reduce(w: Writer, op: Reduce) -> None:
    _combining(w, op, "tt.reduce", f"axis = {op.axis} : i32")


@EMITTERS.of(Scan)
def emit_scan(w: Writer, op: Scan) -> None:
    reverse = "true" if op.reverse else "false"
    _combining(w, op, "tt.scan", f"axis = {op.axis} : i32, reverse = {reverse}")


def _combining(w: Writer, op: Reduce | Scan, name: str, properties: str) -> None:
    types = [value.type for value in op.results]
    found = with_region(w, name, w.uses(op.srcs), types, op.combine, properties, straight=True)
    for value, ref in zip(op.results, found, strict=True):
        w.bind(value, ref)


def summed(w: Writer, x: Ref, axis: int) -> Ref:
    """The sum of integers along an axis."""
    return folded(w, "arith.addi", x, axis)


def folded(w: Writer, name: str, x: Ref, axis: int) -> Ref:
    """The elements along an axis, combined by an op of integers."""
    extents = shape_of(x.type)
    to, scalar = with_shape(x.type, extents[:axis] + extents[axis + 1 :]), element_of(x.type)
    (found,) = w.results([to], f'"tt.reduce"({x.name}) <{{axis = {axis} : i32}}> ({{', "")
    with w.region(isolated=True, straight=True):
        a, b = (Ref(w.new_name("a"), scalar) for _ in range(2))
        w.line(f"^bb0({a.name}: {w.type(scalar)}, {b.name}: {w.type(scalar)}):")
        w.effect(f"tt.reduce.return {w.op(name, [a, b]).name}", w.type(scalar))
    w.line(f"}}) : ({w.type(x.type)}) -> {w.type(to)}")
    return found


@EMITTERS.of(Map)
def emit_map(w: Writer, op: Map) -> None:
    """A map of single elements: a pack is an operand for each of its elements, as Triton requires
    that a thread has all elements of a pack."""
    operands = [part for value in op.srcs for part in _parts(w, w.use(value), op.pack)]
    types = [t for value in op.results for t in [_part_type(value.type, op.pack)] * op.pack]
    found = with_region(w, "tt.map_elementwise", operands, types, op.body, "pack = 1 : i32")
    for i, value in enumerate(op.results):
        parts = found[i * op.pack : (i + 1) * op.pack]
        w.bind(value, reshaped(w, _joined_parts(w, parts), value.type))


def _part_type(type: Type, pack: int) -> Type:
    """The type of a tile with one element of each pack."""
    return type if pack == 1 else with_shape(type, (prod(shape_of(type)) // pack,))


def _parts(w: Writer, x: Ref, pack: int) -> list[Ref]:
    """For each place in a pack, the tile of the elements there."""
    if pack == 1:
        return [x]
    pairs = (2,) * (pack.bit_length() - 1)
    tiles = [reshaped(w, x, with_shape(x.type, (prod(shape_of(x.type)) // pack, *pairs)))]
    for _ in pairs:  # from the last axis, which is the lowest bit of the place
        split = [halves(w, tile) for tile in tiles]
        tiles = [pair[0] for pair in split] + [pair[1] for pair in split]
    return tiles


def _joined_parts(w: Writer, parts: Sequence[Ref]) -> Ref:
    """The inverse of `_parts`."""
    tiles = list(parts)
    while len(tiles) > 1:
        middle = len(tiles) // 2
        tiles = [joined(w, a, b) for a, b in zip(tiles[:middle], tiles[middle:], strict=True)]
    return tiles[0]


def with_region(
    w: Writer,
    name: str,
    operands: Sequence[Ref],
    types: Sequence[Type],
    region: Region,
    properties: str,
    *,
    straight: bool = False,
) -> list[Ref]:
    """The results of an op in MLIR's generic form, whose region uses no values from outside.

    Triton does not exchange 8-bit floats between threads: outside the region they are fp16, which
    has each of them exactly.

    Args:
        types: of the results.
        straight: whether the region must not have control flow.
    """
    refs = [_outside(w, ref) for ref in operands]
    outside = [_outside_type(type) for type in types]
    head = f'"{name}"({", ".join(r.name for r in refs)}) <{{{properties}}}> ({{'
    found = w.results(outside, head, "")
    with w.region(isolated=True, straight=straight):
        args = [Ref(w.new_name("a"), _outside_type(v.type)) for v in region.args]
        w.line(f"^bb0({', '.join(f'{a.name}: {w.type(a.type)}' for a in args)}):")
        for value, arg in zip(region.args, args, strict=True):
            w.bind(value, _inside(w, arg, value.type))
        w.body(region)
        values = [_outside(w, ref) for ref in w.uses(region.terminator.operands)]
        names = ", ".join(v.name for v in values)
        w.effect(f"{name}.return {names}", ", ".join(w.type(v.type) for v in values))
    takes = ", ".join(w.type(r.type) for r in refs)
    gives = ", ".join(w.type(t) for t in outside)
    w.line(f"}}) : ({takes}) -> {gives if len(outside) == 1 else f'({gives})'}")
    return [_inside(w, ref, type) for ref, type in zip(found, types, strict=True)]


def _inside(w: Writer, ref: Ref, type: Type) -> Ref:
    """A value as its op has it, from fp16 if that is an 8-bit float."""
    element = element_of(type)
    return narrowed(w, ref, element) if element.is_fp8() else ref


def _outside_type(type: Type) -> Type:
    return with_element(type, FP16) if element_of(type).is_fp8() else type


def _outside(w: Writer, ref: Ref) -> Ref:
    return converted(w, ref, FP16) if element_of(ref.type).is_fp8() else ref
