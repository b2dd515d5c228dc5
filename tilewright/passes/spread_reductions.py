"""Completes reductions of many rows over many warps by all threads, once.

    reduce(x, axis)     →     part = x reduced within each warp
                              part = convert_layout(part), so that no row is shared by warps
                              convert_layout(reduce(part, axis))

Otherwise, each warp reads the partial results of all warps for each of its rows: if 16 warps share
64 rows, each reads 1,024 numbers. This takes one more barrier, and a sixteenth of the reads.

Input: laid-out IR. A reduction qualifies if at least `LEAST_WARPS` warps share each row, and a warp
would read `LEAST_READ` numbers or more. Output: the same elements in the same layout; sums add up
in another order, which is unspecified. Linear in the number of ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import prod
from typing import NamedTuple

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import shape_of
from tilewright.layout.families import row_major
from tilewright.layout.linear import LANE, REGISTER, WARP, LinearLayout, log2
from tilewright.ops.gpu import ConvertLayout
from tilewright.ops.reduce import Reduce
from tilewright.ops.shape import Reshape
from tilewright.passes.layout_rules import derived_demands, result_layout, spread

NAME = "spread_reductions"
LEAST_WARPS = 8  # that share a row
LEAST_READ = 512  # partial results that a warp would read of all warps


class _Run(NamedTuple):
    """Successive bits of the index along an axis, which one of `REGISTER`, `LANE` and `WARP`
    determines."""

    extent: int
    source: str


@compiler_pass(NAME)
def spread_reductions(fn: Function, ctx: PassContext) -> bool:
    """Complete reductions of many rows by all threads; see the module docstring."""
    found = [op for op in fn.walk() if isinstance(op, Reduce) and _reads_much(op)]
    for op in found:
        _rewrite(op)
        ctx.count("reductions completed by all threads")
        ctx.did(NAME, "the partial results of warps are distributed over all threads", op.loc)
    return bool(found)


def _reads_much(op: Reduce) -> bool:
    layout, result = op.srcs[0].layout, op.results[0].layout
    if layout is None or result is None:
        return False
    runs = _runs(layout, op.axis)
    if runs is None:
        return False
    warps = prod(run.extent for run in runs if run.source == WARP)
    columns = {c for name in (REGISTER, LANE) for c in result.bases(name) if c}
    return warps >= LEAST_WARPS and warps << len(columns) >= LEAST_READ


def _runs(layout: LinearLayout, axis: int) -> list[_Run] | None:
    """The runs of an axis, from the most significant; None if a warp moves several bits."""
    low = log2(prod(layout.shape[axis + 1 :]))
    bits = range(low, low + log2(layout.shape[axis]))
    within = sum(1 << bit for bit in bits)
    moved = [column for column in layout.bases(WARP) if column & within]
    others = {c for name in (REGISTER, LANE) for c in layout.bases(name)}
    if any(column.bit_count() > 1 or column in others for column in moved):
        return None
    lanes = layout.bases(LANE)

    def source(bit: int) -> str:
        return WARP if 1 << bit in moved else LANE if 1 << bit in lanes else REGISTER

    return [_Run(1 << len(list(group)), name) for name, group in groupby(reversed(bits), source)]


def _rewrite(op: Reduce) -> None:
    layout = op.srcs[0].layout
    assert layout is not None
    runs = _runs(layout, op.axis)
    assert runs is not None
    b = Builder()
    with b.before(op):
        parts = _within_warps(b, op, runs)
        totals = _reduced(b, op, _spread(b, parts, op.axis), op.axis)
        for old, total in zip(op.results, totals, strict=True):
            _replace(b, old, total)
    op.erase()


def _within_warps(b: Builder, op: Reduce, runs: Sequence[_Run]) -> list[Value]:
    """The operands reduced along the bits of the axis that warps do not determine; the remaining
    ones are the axis. Bits of registers come first, as lanes have fewer elements to exchange
    then."""
    values, left = list(op.srcs), list(runs)
    if len(runs) > 1:
        extents = [run.extent for run in runs]
        values = [_reshaped(b, value, op.axis, 1, extents) for value in values]
    for source in (REGISTER, LANE):
        for i, run in reversed(list(enumerate(left))):
            if run.source == source:
                values = _reduced(b, op, values, op.axis + i)
                del left[i]
    if len(left) > 1:
        rest = prod(run.extent for run in left)
        values = [_reshaped(b, value, op.axis, len(left), [rest]) for value in values]
    return values


def _spread(b: Builder, parts: Sequence[Value], axis: int) -> list[Value]:
    """Partial results distributed over all threads, those of a row within a warp."""
    shape, layout = shape_of(parts[0].type), parts[0].layout
    assert layout is not None
    threads = layout.in_size(LANE) * layout.in_size(WARP)
    order = (axis, *(other for other in row_major(len(shape)) if other != axis))
    each = min(max(prod(shape) // threads, 1), shape[axis])
    return [_converted(b, part, spread(shape, order, each, layout)) for part in parts]


def _reduced(b: Builder, like: Reduce, values: list[Value], axis: int) -> list[Value]:
    layout = values[0].layout
    assert layout is not None
    op = b.insert(Reduce(values, axis=axis, combine=like.combine.clone({})))
    for result in op.results:
        result.layout = derived_demands(op, layout).results[0]
    return list(op.results)


def _reshaped(b: Builder, value: Value, axis: int, count: int, extents: Sequence[int]) -> Value:
    """The value with `count` axes from `axis` on replaced by others."""
    shape = shape_of(value.type)
    op = b.insert(Reshape(value, (*shape[:axis], *extents, *shape[axis + count :])))
    assert value.layout is not None
    op.result.layout = result_layout(op, value.layout)
    return op.result


def _converted(b: Builder, value: Value, layout: LinearLayout) -> Value:
    op = b.insert(ConvertLayout(value))
    op.result.layout = layout
    return op.result


def _replace(b: Builder, old: Value, total: Value) -> None:
    """Use a result instead of another, also in the conversions of the latter, which convert from
    its layout."""
    for user in list(old.users):
        if isinstance(user, ConvertLayout):
            user.set_operand(0, total)
    assert old.layout is not None
    if old.users:
        old.replace_with(_converted(b, total, old.layout))
