"""The layouts of a kernel's tiles, with the values that have them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.ir.core import Function, Module, Op, Value
from tilewright.ir.types import element_of, text_of
from tilewright.layout.linear import LANE, OFFSET, REGISTER, WARP, LinearLayout
from tilewright.ops.control import For
from tilewright.ops.gpu import ConvertLayout
from tilewright.tools.explain.listings import Listing
from tilewright.tools.explain.sources import SourceMap

MAX_LAYOUTS = 12


@dataclass(frozen=True)
class LayoutUse:
    """A layout and the values that have it.

    Attributes:
        name: its name in the listing, such as ``!0``.
        text: its textual form, which `tilewright.layout` parses.
        shape: of the tile.
        words: a description in a sentence or two.
        values: the number of values that have it.
        types: their element types, in descending order of frequency.
        ops: names of the ops that define them, likewise.
        lines: numbers of their source lines.
        converted: lines at which values are converted to it from another layout.
    """

    name: str
    text: str
    shape: tuple[int, ...]
    words: str
    values: int
    types: list[str]
    ops: list[str]
    lines: tuple[int, ...]
    converted: tuple[int, ...]


def layouts_of(
    module: Module, listing: Listing | None, sources: SourceMap
) -> tuple[list[LayoutUse], list[LinearLayout]]:
    """The MAX_LAYOUTS most used layouts of a module in descending order: their descriptions, and
    the layouts themselves."""
    names = _names(listing)
    values: dict[LinearLayout, list[Value]] = {}
    for value in _values(module.entry):
        if value.layout is not None:
            values.setdefault(value.layout, []).append(value)
    ranked = sorted(values, key=lambda layout: -len(values[layout]))[:MAX_LAYOUTS]
    uses = [_use(layout, values[layout], names, sources) for layout in ranked]
    return uses, ranked


def _names(listing: Listing | None) -> dict[str, str]:
    """The listing's name of each layout, by its text."""
    result: dict[str, str] = {}
    for text, _ in listing.lines if listing else ():
        if text.startswith("layout "):
            name, _, layout = text.removeprefix("layout ").partition(" = ")
            result.setdefault(layout.strip('"'), name)
    return result


def _values(fn: Function) -> Iterator[Value]:
    for op in fn.walk():
        yield from op.results
        for region in op.regions:
            yield from region.args


def _use(
    layout: LinearLayout, values: list[Value], names: dict[str, str], sources: SourceMap
) -> LayoutUse:
    makers = [op for v in values if (op := _maker(v)) is not None]
    lines = dict.fromkeys(n for op in makers for n in sources.of(op.loc))
    moved = [op for op in makers if isinstance(op, ConvertLayout)]
    return LayoutUse(
        names.get(str(layout), ""),
        str(layout),
        layout.shape,
        words(layout),
        len(values),
        _by_frequency([text_of(element_of(v.type)) for v in values]),
        _by_frequency([op.name for op in makers]),
        tuple(lines),
        tuple(dict.fromkeys(n for op in moved for n in sources.of(op.loc)[:1])),
    )


def _maker(value: Value) -> Op | None:
    """The defining op of a value; for a loop-carried value, the loop."""
    if value.op is not None:
        return value.op
    parent = value.region.parent if value.region is not None else None
    return parent if isinstance(parent, For) else None


def _by_frequency(names: list[str]) -> list[str]:
    return sorted(set(names), key=lambda name: (-names.count(name), name))


def words(layout: LinearLayout) -> str:
    """A description of a layout in a sentence or two."""
    extents = " × ".join(map(str, layout.shape))
    if layout.in_bits(OFFSET):
        plain = all(column == 1 << bit for bit, column in enumerate(layout.bases(OFFSET)))
        order = "row-major" if plain else "swizzled to avoid bank conflicts"
        return f"{extents} in shared memory, {order}."
    registers, lanes, warps = (layout.in_size(name) for name in (REGISTER, LANE, WARP))
    if not layout.shape:
        return "One element, replicated in all threads."
    run = layout.num_consecutive()
    each = "1 element" if registers == 1 else f"{registers} elements"
    runs = f", in runs of {run} along the last axis" if run > 1 and registers > 1 else ""
    found = f"{extents}: each of {lanes} lanes in {warps} warp{'s' * (warps > 1)} has {each}{runs}."
    copies = (layout.in_size(REGISTER) * lanes * warps) >> layout.total_out_bits
    return f"{found} Each element is replicated {copies} times." if copies > 1 else found
