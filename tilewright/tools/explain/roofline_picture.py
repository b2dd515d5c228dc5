"""Draw the roofline as SVG: peak rate over intensity, with the launch as a point."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from math import ceil, floor, log2, log10

from tilewright.tools.explain.formatting import number, scaled
from tilewright.tools.explain.report import Report

WIDTH, HEIGHT = 440, 230
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 24, 34


class _Axes:
    """Pixel coordinates on logarithmic axes."""

    def __init__(self, low: float, high: float, bottom: float, top: float) -> None:
        self.low, self.high = floor(log2(low)), ceil(log2(high))
        self.bottom, self.top = log2(bottom), log2(top)

    def x(self, intensity: float) -> float:
        share = (log2(intensity) - self.low) / (self.high - self.low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, rate: float) -> float:
        share = (log2(rate) - self.bottom) / (self.top - self.bottom)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def roofline_picture(report: Report) -> str:
    """The figure; "" if the report has no roofline or the launch no operations."""
    roof = report.roofline
    if roof is None or not roof.intensity or not roof.peak:
        return ""
    bandwidth = roof.gbps * 1e9
    low = min(roof.intensity, roof.ridge) / 8
    high = max(roof.intensity, roof.ridge) * 8
    axes = _Axes(low, high, bandwidth * 2 ** floor(log2(low)), roof.peak * 2.2)
    reached = min(roof.peak, bandwidth * roof.intensity)
    start, end = 2.0**axes.low, 2.0**axes.high
    points = [(start, bandwidth * start), (roof.ridge, roof.peak), (end, roof.peak)]
    path = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in points)
    x, y = axes.x(roof.intensity), axes.y(reached)
    ground = HEIGHT - BOTTOM
    side = "end" if x > WIDTH / 2 else "start"
    shift = -10 if side == "end" else 10
    # The label does not overlap the line: below it on the slope, above it on the flat part.
    label_y = y + 18 if roof.intensity < roof.ridge else y - 12
    caption = (
        f"{number(round(roof.intensity, 2))} operations per byte: bound by {roof.bound} "
        f"on {roof.device}, whose ridge point is at {number(round(roof.ridge, 1))}."
    )
    return f"""<figure class="roof"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" \
aria-label="{escape(caption)}">
{"".join(_grid(axes))}
<line class="axis" x1="{LEFT}" y1="{ground}" x2="{WIDTH - RIGHT}" y2="{ground}"/>
<polyline class="roofline" points="{path}"/>
<line class="drop" x1="{x:.1f}" y1="{y:.1f}" x2="{x:.1f}" y2="{ground}"/>
<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="6"/>
<text class="name" x="{x + shift:.1f}" y="{label_y:.1f}" text-anchor="{side}">\
{escape(scaled(reached, "FLOP/s"))} at best</text>
<text x="{LEFT}" y="{TOP - 10}">FLOP/s</text>
<text x="{WIDTH - RIGHT}" y="{HEIGHT - 4}" text-anchor="end">operations per byte</text>
</svg><figcaption>{escape(caption)}</figcaption></figure>"""


def _grid(axes: _Axes) -> Iterator[str]:
    step = max(1, (axes.high - axes.low) // 6)
    for power in range(axes.low, axes.high + 1, step):
        x = axes.x(2.0**power)
        label = str(1 << power) if power >= 0 else f"1/{1 << -power}"
        yield (
            f'<line class="axis" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}"/>'
            f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{label}</text>'
        )
    for power in range(ceil(log10(2) * axes.bottom), floor(log10(2) * axes.top) + 1):
        y = axes.y(10.0**power)
        yield f'<line class="axis" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>'
        yield (
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">'
            f"{escape(scaled(10.0**power, '').strip())}</text>"
        )
