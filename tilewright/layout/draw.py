"""Visualisation of layouts as text or SVG: the register, lane and warp that hold each element.

>>> from tilewright.layout.families import blocked
>>> print(table(blocked((2, 4), (1, 2), (2, 2), (1, 1), (1, 0))))
l0r0 l0r1 l1r0 l1r1
l2r0 l2r1 l3r0 l3r1
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import groupby

from tilewright.layout.linear import HARDWARE, LANE, OFFSET, REGISTER, WARP, LinearLayout

CELL_WIDTH, CELL_HEIGHT = 64, 24
# The golden angle, in degrees, makes the hues of successive lanes most distinct.
HUE_STEP = 137.508


def _holders(layout: LinearLayout) -> Iterator[tuple[int, dict[str, int] | None]]:
    """Each element in row-major order, with the lowest indices that hold it, or None."""
    lowest = layout.pseudo_invert()
    for element in range(1 << layout.total_out_bits):
        yield element, _indices(layout, lowest, element)


def _label(layout: LinearLayout, indices: dict[str, int] | None) -> str:
    """The label of a cell, such as `w1l3r0`: initials and indices of the inputs, outermost
    first."""
    if indices is None:
        return "-"
    if OFFSET in indices:
        return str(indices[OFFSET])
    names = [name for name in reversed(HARDWARE) if layout.in_bits(name)]
    return "".join(f"{name[0]}{indices[name]}" for name in names) or "0"


def _columns(layout: LinearLayout) -> int:
    """The extent of the last dimension; all others are drawn as rows."""
    return layout.shape[-1] if layout.shape else 1


def table(layout: LinearLayout) -> str:
    """One cell per element: its lowest holder, or its offset in memory; `-` if there is none."""
    cells = [_label(layout, indices) for _, indices in _holders(layout)]
    width = max(map(len, cells))
    columns = _columns(layout)
    rows = (cells[i : i + columns] for i in range(0, len(cells), columns))
    return "\n".join(" ".join(cell.ljust(width) for cell in row).rstrip() for row in rows)


def _colour(indices: dict[str, int] | None) -> str:
    """The hue is the lane (or the offset), the lightness the warp."""
    if indices is None:
        return "hsl(0 0% 100%)"
    hue = indices.get(LANE, indices.get(OFFSET, 0)) * HUE_STEP % 360
    return f"hsl({hue:.0f} 70% {85 - 10 * (indices.get(WARP, 0) % 4)}%)"


def svg(layout: LinearLayout) -> str:
    """A standalone SVG image: the table, coloured by lane and warp, with the layout as title."""
    columns = _columns(layout)
    rows = (1 << layout.total_out_bits) // columns
    width, height = columns * CELL_WIDTH, rows * CELL_HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="monospace" font-size="11" '
        'text-anchor="middle">',
        f"<title>{escape(str(layout))}</title>",
    ]
    for element, indices in _holders(layout):
        x, y = element % columns * CELL_WIDTH, element // columns * CELL_HEIGHT
        parts.append(
            f'<rect x="{x}" y="{y}" width="{CELL_WIDTH}" height="{CELL_HEIGHT}" '
            f'fill="{_colour(indices)}" stroke="#666" stroke-width="0.5"/>'
            f'<text x="{x + CELL_WIDTH // 2}" y="{y + CELL_HEIGHT * 2 // 3}">'
            f"{_label(layout, indices)}</text>"
        )
    return "\n".join((*parts, "</svg>\n"))


# -- inline SVG for HTML pages --------------------------------------------------------------------

CORNER = (16, 24)  # the maximum number of rows and columns of `corner`
WHOLE_BITS, WHOLE_CELLS = 16, 1500  # log2 of the largest tile, and the maximum cells, of `whole`
WHOLE_WIDTH, WHOLE_HEIGHT = 560, 240  # pixels
WIDE_CELL, LINE_CELL = 46, 22


def corner(layout: LinearLayout) -> str:
    """Inline SVG of the leading elements of a tile, each with its thread and register, or its
    offset in memory. A tile of one dimension is folded into rows.

    The page defines the colours: a cell has the class ``cell``, the property ``--at`` (its lane as
    a fraction of all lanes) and the attribute ``data-thread``.
    """
    columns = min(_columns(layout), CORNER[1])
    count = 1 << layout.total_out_bits
    rows = min(count // _columns(layout), CORNER[0])
    if len(layout.shape) == 1:
        columns = min(columns, 16)
        rows = min(count // columns, CORNER[0])
    stride = columns if len(layout.shape) == 1 else _columns(layout)
    lowest = layout.pseudo_invert()
    lanes = max(1, layout.in_size(LANE))
    parts = [_open(columns * WIDE_CELL, rows * LINE_CELL, f"the first elements of {layout}")]
    for row in range(rows):
        for column in range(columns):
            parts.append(_cell(layout, lowest, row * stride + column, row, column, lanes))
    return "".join((*parts, "</svg>"))


def _cell(
    layout: LinearLayout, lowest: LinearLayout, element: int, row: int, column: int, lanes: int
) -> str:
    x, y = column * WIDE_CELL, row * LINE_CELL
    indices = _indices(layout, lowest, element)
    if indices is None:
        return f'<rect class="cell none" x="{x}" y="{y}" width="{WIDE_CELL}" height="{LINE_CELL}"/>'
    if OFFSET in indices:
        at, thread = indices[OFFSET] / (1 << layout.total_in_bits), ""
        label = str(indices[OFFSET])
    else:
        lane = indices.get(LANE, 0)
        number = indices.get(WARP, 0) * lanes + lane
        at, thread = lane / lanes, f' data-thread="{number}"'
        label = f"{number}:{indices.get(REGISTER, 0)}"
    place = f'x="{x}" y="{y}" width="{WIDE_CELL}" height="{LINE_CELL}"'
    return (
        f'<g{thread}><rect class="cell" style="--at:{at:.3g}" {place}/>'
        f'<text x="{x + WIDE_CELL // 2}" y="{y + 15}">{label}</text></g>'
    )


def whole(layout: LinearLayout) -> str:
    """Inline SVG of a whole tile by warp; "" if it is too large.

    Adjacent elements of a warp are one cell, with the class ``cell`` and the property ``--at`` (the
    warp as a fraction of all warps).
    """
    if layout.total_out_bits > WHOLE_BITS:
        return ""
    columns = _columns(layout)
    if len(layout.shape) == 1:
        columns = min(columns, 1 << (layout.total_out_bits + 2) // 2)
    warps, shift = max(1, layout.in_size(WARP)), _starts(layout)[WARP]
    owners = [flat >> shift & (warps - 1) for flat in _all_of(layout.pseudo_invert())]
    rows = [tuple(owners[i : i + columns]) for i in range(0, len(owners), columns)]
    side = max(2, min(12, WHOLE_WIDTH // columns, WHOLE_HEIGHT // len(rows)))
    parts = [_open(columns * side, len(rows) * side, f"the warps of {layout}")]
    top = 0
    for row, same in groupby(rows):
        height = len(list(same))
        left = 0
        for warp, run in groupby(row):
            width = len(list(run))
            parts.append(
                f'<rect class="cell" style="--at:{warp / warps:.3g}" x="{left * side}" '
                f'y="{top * side}" width="{width * side}" height="{height * side}"/>'
            )
            left += width
        top += height
    return "".join((*parts, "</svg>")) if len(parts) <= WHOLE_CELLS else ""


def _starts(layout: LinearLayout) -> dict[str, int]:
    """The position of the lowest bit of each input in a flat index."""
    starts: dict[str, int] = {}
    place = 0
    for name, count in layout.ins:
        starts[name] = place
        place += count
    return starts


def _all_of(layout: LinearLayout) -> list[int]:
    """The image of each flat index, in order."""
    result = [0]
    for column in layout.columns:
        result += [value ^ column for value in result]
    return result


def _open(width: int, height: int, title: str) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{escape(title, quote=True)}">'
    )


def _indices(layout: LinearLayout, lowest: LinearLayout, element: int) -> dict[str, int] | None:
    """The lowest indices that hold an element, by input; None if it is not held."""
    flat = lowest.apply_flat(element)
    if layout.apply_flat(flat) != element:
        return None
    indices: dict[str, int] = {}
    for name, count in layout.ins:
        indices[name] = flat & ((1 << count) - 1)
        flat >>= count
    return indices
