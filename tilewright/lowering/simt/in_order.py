"""Reductions with the index of each element, such as `argmin`: in ascending order in a thread.

    least, at = tl.min(x, 1, return_indices=True)       x < best or x == best and i < at

The indices of a thread's elements along the axis are those of the first one plus constants. So the
thread reduces with the constants, which need no registers, and adds the index of the first element
to the result. As it combines each element with those before it, comparisons of their indices are
constants: of equal elements, the left one is selected without further instructions.

Input: a reduction, of which an operand has a constant positive stride along the axis. Output: an
element for each register of the reduced tile, as for other reductions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.analysis.affine import AffineForms
from tilewright.ir.core import Region, Value
from tilewright.ir.types import dtype_of, is_int
from tilewright.layout.linear import REGISTER, LinearLayout
from tilewright.lowering.emit import I1, V, const
from tilewright.lowering.simt.combine import (
    Element,
    axis_bits,
    inline,
    moves_alone,
    rows_of_registers,
)
from tilewright.lowering.simt.kernel import Kernel
from tilewright.ops.arith import Cmp
from tilewright.ops.reduce import Reduce

RUNS = 4
"""Runs of successive elements that a thread combines independently, so that latencies overlap."""

# What a comparison of a smaller integer with a larger one yields.
_OF_SMALLER = {"lt": True, "le": True, "ne": True, "gt": False, "ge": False, "eq": False}


def strides_of_indices(op: Reduce) -> dict[int, int]:
    """The operands that are indices along the axis, with their strides, if the elements of a thread
    differ by register only."""
    layout = op.srcs[0].layout
    assert layout is not None
    if len(op.srcs) == 1 or not axis_bits(layout, REGISTER, op.axis):
        return {}
    if not moves_alone(layout, op.axis):
        return {}
    forms = AffineForms()
    strides = {k: _stride(forms, v, op.axis) for k, v in enumerate(op.srcs)}
    return {k: stride for k, stride in strides.items() if stride > 0}


def _stride(forms: AffineForms, value: Value, axis: int) -> int:
    """The stride of integers along an axis; 0 if it is not known, or if they may wrap."""
    if not is_int(dtype_of(value.type)):
        return 0
    form = forms.exactly(value)
    stride = None if form.assumed else form.stride(axis)
    return (stride.constant if stride is not None else None) or 0


def combined_in_order(kernel: Kernel, op: Reduce, strides: Mapping[int, int]) -> list[Element]:
    """One element for each register of the reduced tile.

    Args:
        strides: see `strides_of_indices`.
    """
    layout = op.srcs[0].layout
    assert layout is not None
    known = _known_comparisons(op.combine, strides)
    return [
        _with_first(kernel, op, row[0], strides, _reduced(kernel, op, elements, known))
        for row, elements in _rows(kernel, op, layout, strides)
    ]


def _rows(
    kernel: Kernel, op: Reduce, layout: LinearLayout, strides: Mapping[int, int]
) -> list[tuple[list[int], list[Element]]]:
    """For each register of the reduced tile, the registers of its elements in the order of their
    indices, and these elements, whose indices count from the first."""
    result: list[tuple[list[int], list[Element]]] = []
    for registers in rows_of_registers(layout, op.axis):
        places = {r: _place(layout, r, op.axis) for r in registers}
        row = sorted(registers, key=places.__getitem__)
        elements: list[Element] = []
        for r in row:
            values = [kernel.env[v][r] for v in op.srcs]
            for k, stride in strides.items():
                values[k] = const(values[k].type, stride * (places[r] - places[row[0]]))
            elements.append(tuple(values))
        result.append((row, elements))
    return result


def _place(layout: LinearLayout, register: int, axis: int) -> int:
    """The index of a register's element along an axis, in the first lane of the first warp."""
    return layout.coordinates(layout.apply_flat(register))[axis]


def _reduced(
    kernel: Kernel, op: Reduce, elements: Sequence[Element], known: Mapping[Value, V]
) -> Element:
    """Successive elements combined in their order; their number is a power of two."""
    length = max(1, len(elements) // RUNS)
    results: list[Element] = []
    for start in range(0, len(elements), length):
        result, *others = elements[start : start + length]
        for element in others:
            result = inline(kernel, op.combine, [*result, *element], known)
        results.append(result)
    while len(results) > 1:
        pairs = zip(results[::2], results[1::2], strict=True)
        results = [inline(kernel, op.combine, [*x, *y], known) for x, y in pairs]
    return results[0]


def _with_first(
    kernel: Kernel, op: Reduce, first: int, strides: Mapping[int, int], element: Element
) -> Element:
    """The element with the indices of the first one added, from which its own count."""
    values = list(element)
    for k in strides:
        values[k] = kernel.b.add(kernel.env[op.srcs[k]][first], values[k])
    return tuple(values)


def _known_comparisons(combine: Region, strides: Mapping[int, int]) -> dict[Value, V]:
    """The results of comparisons of indices, given that the left one is smaller."""
    middle = len(combine.args) // 2
    sides = {combine.args[k]: combine.args[middle + k] for k in strides}
    known: dict[Value, V] = {}
    for test in combine:
        if not isinstance(test, Cmp):
            continue
        if sides.get(test.lhs) is test.rhs:
            known[test.result] = const(I1, _OF_SMALLER[test.predicate])
        elif sides.get(test.rhs) is test.lhs:
            swapped = test.predicate in ("eq", "ne")
            known[test.result] = const(I1, _OF_SMALLER[test.predicate] == swapped)
    return known
