"""Printing and assertions.

Each element is printed once, on a line of its own, by the first thread that holds it. The order of
the lines is unspecified.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import reduce

from tilewright.ir import types as ir
from tilewright.ir.core import Value
from tilewright.layout.linear import REGISTER, dim_name
from tilewright.lowering.convert import cast
from tilewright.lowering.emit import I32, I64, V, int_type
from tilewright.lowering.simt.kernel import Kernel, Registers, emits
from tilewright.ops.debug import Assert, Assume, Print, label, source_position


@emits(Print)
def emit_print(kernel: Kernel, op: Print) -> None:
    b = kernel.b
    program = [kernel.hw.program_id(b, axis) for axis in range(3)]
    place = "pid (%d, %d, %d)"
    if not op.values:
        with kernel.only_if(b.icmp("eq", kernel.thread, 0)):
            kernel.hw.printf(b, f"{place}{_literal(op.prefix)}\n", program)
    for i, (value, extents) in enumerate(zip(op.values, op.shapes(), strict=True)):
        text = _literal(label(op.prefix, i, len(op.values)))
        _print_value(kernel, value, extents, f"{place} idx (%s){text}", program, op.hex)


def _literal(text: str) -> str:
    return text.replace("%", "%%")


def _print_value(
    kernel: Kernel,
    value: Value,
    extents: Sequence[int],
    form: str,
    program: Registers,
    hex: bool,
) -> None:
    """Print the elements of a value that are within the extents; the rest is padding."""
    b, layout = kernel.b, value.layout
    indices: list[Registers] = []
    if layout is None:
        owner = b.icmp("eq", kernel.thread, 0)
        own = [0]
    else:
        owner = kernel.is_first_holder(layout)
        copies = layout.free_variables(REGISTER)
        own = [r for r in range(layout.in_size(REGISTER)) if not r & copies]
        indices = [kernel.coordinates(layout, dim_name(a)) for a in range(len(layout.shape))]
    places = form.replace("%s", ", ".join(["%d"] * len(indices)), 1)
    with kernel.only_if(owner):
        for register in own:
            at = [along[register] for along in indices]
            with _within(kernel, at, extents, ir.shape_of(value.type)):
                spec, shown = _shown(kernel, value, kernel.env[value][register], hex)
                kernel.hw.printf(b, f"{places}{spec}\n", [*program, *at, shown])


def _within(
    kernel: Kernel, at: Sequence[V], extents: Sequence[int], shape: Sequence[int]
) -> AbstractContextManager[None]:
    """A region that executes only if the element at these coordinates is within the extents."""
    checks = [
        kernel.b.icmp("slt", place, extent)
        for place, extent, size in zip(at, extents, shape, strict=True)
        if extent < size
    ]
    return kernel.only_if(reduce(kernel.b.and_, checks)) if checks else nullcontext()


def _shown(kernel: Kernel, value: Value, held: V, hex: bool) -> tuple[str, V]:
    """The conversion specifier of `printf` for the value, and the value as a variadic argument."""
    b, element = kernel.b, ir.element_of(value.type)
    if isinstance(element, ir.Pointer):
        return "0x%016llx", b.ptrtoint(held, I64)
    bits = element.primitive_bitwidth
    if hex:
        word = held if held.type.is_int else b.bitcast(held, int_type(bits))
        digits = max(1, bits // 4) if bits > 1 else 2
        form = f"0x%0{digits}{'llx' if bits == 64 else 'x'}"
        return form, word if bits >= 32 else b.zext(word, I32)
    if element.is_floating():
        return "%f", cast(b, held, element, ir.FP64)
    if bits == 64:
        return ("%lld" if element.is_int_signed() else "%llu"), held
    if element.is_int_signed():
        return "%d", held if bits == 32 else b.sext(held, I32)
    return "%u", held if bits == 32 else b.zext(held, I32)


@emits(Assume)
def emit_assume(kernel: Kernel, op: Assume) -> None:
    """Emits nothing: assumptions are used by passes only."""


@emits(Assert)
def emit_assert(kernel: Kernel, op: Assert) -> None:
    b = kernel.b
    first, *others = kernel.env[op.condition]
    holds = first
    for other in others:
        holds = b.and_(holds, other)
    file, line, function = source_position(op.loc)
    with kernel.only_if(b.not_(holds)):
        kernel.hw.fail(b, op.message, file, line, function)
