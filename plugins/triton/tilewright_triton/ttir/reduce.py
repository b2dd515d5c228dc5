"""Reductions, scans and maps: ops whose region computes with scalars."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.core import Op, Region, Value
from tilewright.ir.types import FP16, Type, element_of, with_element
from tilewright.ops.map import Map
from tilewright.ops.reduce import Reduce, Scan
from tilewright_triton.ttir.casts import converted
from tilewright_triton.ttir.writer import EMITTERS, Ref, Writer


@EMITTERS.of(Reduce)
def emit_reduce(w: Writer, op: Reduce) -> None:
    with_region(w, "tt.reduce", op, op.srcs, op.combine, f"axis = {op.axis} : i32")


@EMITTERS.of(Scan)
def emit_scan(w: Writer, op: Scan) -> None:
    reverse = "true" if op.reverse else "false"
    properties = f"axis = {op.axis} : i32, reverse = {reverse}"
    with_region(w, "tt.scan", op, op.srcs, op.combine, properties)


@EMITTERS.of(Map)
def emit_map(w: Writer, op: Map) -> None:
    with_region(w, "tt.map_elementwise", op, op.srcs, op.body, f"pack = {op.pack} : i32")


def with_region(
    w: Writer, name: str, op: Op, operands: Sequence[Value], region: Region, properties: str
) -> None:
    """An op in MLIR's generic form, with one region, which uses no values from outside.

    Triton does not exchange 8-bit floats between threads: outside the region they are fp16, which
    has each of them exactly.
    """
    refs = [_outside(w, ref) for ref in w.uses(operands)]
    types = [_outside_type(v.type) for v in op.results]
    head = f'"{name}"({", ".join(r.name for r in refs)}) <{{{properties}}}> ({{'
    found = w.results(types, head, "")
    with w.region(isolated=True):
        args = [Ref(w.new_name("a"), _outside_type(v.type)) for v in region.args]
        w.line(f"^bb0({', '.join(f'{a.name}: {w.type(a.type)}' for a in args)}):")
        for value, arg in zip(region.args, args, strict=True):
            w.bind(value, converted(w, arg, element_of(value.type)))
        w.body(region)
        values = [_outside(w, ref) for ref in w.uses(region.terminator.operands)]
        names = ", ".join(v.name for v in values)
        w.effect(f"{name}.return {names}", ", ".join(w.type(v.type) for v in values))
    takes = ", ".join(w.type(r.type) for r in refs)
    gives = ", ".join(w.type(t) for t in types)
    w.line(f"}}) : ({takes}) -> {gives if len(types) == 1 else f'({gives})'}")
    for value, ref in zip(op.results, found, strict=True):
        w.bind(value, converted(w, ref, element_of(value.type)))


def _outside_type(type: Type) -> Type:
    return with_element(type, FP16) if element_of(type).is_fp8() else type


def _outside(w: Writer, ref: Ref) -> Ref:
    return converted(w, ref, FP16) if element_of(ref.type).is_fp8() else ref
