"""Pictures of layouts: which register of which lane and warp holds each element, as text or SVG.

>>> from tilewright.layout.families import blocked
>>> print(table(blocked((2, 4), (1, 2), (2, 2), (1, 1), (1, 0))))
l0r0 l0r1 l1r0 l1r1
l2r0 l2r1 l3r0 l3r1
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from tilewright.layout.linear import HARDWARE, LANE, OFFSET, WARP, LinearLayout

CELL_WIDTH, CELL_HEIGHT = 64, 24
# Successive lanes differ most when the hue moves on by the golden angle, in degrees.
HUE_STEP = 137.508


def _holders(layout: LinearLayout) -> Iterator[tuple[int, dict[str, int] | None]]:
    """Each element in row-major order with its lowest holder, or None if it has none."""
    lowest = layout.pseudo_invert()
    for element in range(1 << layout.total_out_bits):
        flat = lowest.apply_flat(element)
        if layout.apply_flat(flat) != element:
            yield element, None
            continue
        indices: dict[str, int] = {}
        for name, count in layout.ins:
            indices[name] = flat & ((1 << count) - 1)
            flat >>= count
        yield element, indices


def _label(layout: LinearLayout, indices: dict[str, int] | None) -> str:
    """`w1l3r0`: initials and indices of the inputs that the layout has, the outermost first."""
    if indices is None:
        return "-"
    if OFFSET in indices:
        return str(indices[OFFSET])
    names = [name for name in reversed(HARDWARE) if layout.in_bits(name)]
    return "".join(f"{name[0]}{indices[name]}" for name in names) or "0"


def _columns(layout: LinearLayout) -> int:
    """The extent of the last dimension; earlier ones are drawn one below the other."""
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
