"""The report as one HTML page that needs nothing else: no network, no framework.

What can be read is made here; `page.js` makes the panes of code from the report, which is in the
page as JSON, and links their lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from os.path import basename
from pathlib import Path

from tilewright.layout.draw import corner, whole
from tilewright.layout.linear import OFFSET, WARP, LinearLayout
from tilewright.tools.explain.accesses import Touched
from tilewright.tools.explain.formatting import amount, duration, number, plural, scaled, short
from tilewright.tools.explain.layouts import LayoutUse
from tilewright.tools.explain.report import Report, Said, Taken
from tilewright.tools.explain.roofline import MEMORY
from tilewright.tools.explain.roofline_picture import roofline_picture

HERE = Path(__file__).parent
HINT = "Choose a line: all that was made of it lights up."


def as_page(report: Report, layouts: Sequence[LinearLayout]) -> str:
    """The page.

    Args:
        layouts: those of `report.layouts`, as they are.
    """
    sections = {
        "overview": ("Overview", _overview(report)),
        "remarks": ("Remarks", _remarks(report)),
        "code": ("Code", _code(report)),
        "blocks": ("Blocks", _accesses(report)),
        "cost": ("Cost", _cost(report)),
        "layouts": ("Layouts", _layouts(report, layouts)),
        "passes": ("Passes", _passes(report)),
    }
    shown = {key: value for key, value in sections.items() if value[1]}
    links = "".join(f'<a href="#{key}">{title}</a>' for key, (title, _) in shown.items())
    body = "\n".join(f'<section id="{key}">{text}</section>' for key, (_, text) in shown.items())
    # "</" must not end the script that the data is in.
    data = json.dumps(report.plain(), ensure_ascii=False, separators=(",", ":"))
    data = data.replace("</", "<\\/")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{escape(report.kernel)} for {escape(report.target)}</title>
<style>
{(HERE / "page.css").read_text("utf-8")}</style>
</head>
<body>
{_head(report)}
<nav class="jump" aria-label="Sections"><b>{escape(report.kernel)}</b>{links}\
<button class="quiet" id="theme" type="button">Light or dark</button></nav>
<main>
{body}
</main>
<footer class="foot">Made by <code>python -m tilewright explain</code>. \
{escape(f"Assembled by {report.assembler}." if report.assembler else "")}</footer>
<script type="application/json" id="report">{data}</script>
<script>
{(HERE / "page.js").read_text("utf-8")}</script>
</body>
</html>
"""


def _head(report: Report) -> str:
    arguments = "".join(
        f"<li>{escape(name)}<i>: {escape(short(type))}</i></li>"
        for name, type in report.arguments.items()
    )
    options = "".join(
        f'<li class="option">{escape(name)}<i> = {escape(short(value))}</i></li>'
        for name, value in report.options.items()
    )
    return f"""<header class="top">
<p class="eyebrow"><b>tilewright explain</b><span>{escape(report.place)}</span>\
<span>for <b>{escape(report.target)}</b></span><span>{escape(report.origin)}</span></p>
<h1>{escape(report.kernel)}</h1>
<ul class="chips" aria-label="Arguments and options">{arguments}{options}</ul>
</header>"""


# -- overview -------------------------------------------------------------------------------------


def _overview(report: Report) -> str:
    tiles = "".join([*_speed(report), *map(_tile, report.resources)])
    picture = roofline_picture(report)
    alone = "" if picture else " alone"
    return f"""<h2>At a glance</h2>
<div class="glance{alone}" style="margin-top:1rem"><dl class="tiles">{tiles}</dl>{picture}</div>"""


def _tile(taken: Taken) -> str:
    of = meter = ""
    if taken.limit:
        # The whole of a hundred per cent says nothing.
        of = "" if taken.unit == "%" else f" <small>of {amount(taken.limit, taken.unit)}</small>"
        share = min(100.0, 100 * taken.used / taken.limit)
        meter = f'<div class="meter"><i style="width:{share:.1f}%"></i></div>'
    note = f'<div class="note">{escape(taken.note)}</div>' if taken.note else ""
    return _plain_tile(
        taken.name, amount(taken.used, taken.unit) + of, meter + note, "bad" if taken.missed else ""
    )


def _plain_tile(label: str, big: str, below: str, kind: str = "") -> str:
    return (
        f'<div class="tile {kind}"><dt>{escape(label[:1].upper() + label[1:])}</dt>'
        f'<dd><div class="big">{big}</div>{below}</dd></div>'
    )


def _speed(report: Report) -> Iterator[str]:
    cost, roofline = report.cost, report.roofline
    if cost is None:
        return
    if roofline is not None:
        by = f"bound by {roofline.bound}, on {roofline.device}"
        yield _plain_tile(
            "A launch takes at least",
            duration(roofline.seconds),
            f'<div class="note">{escape(by)}</div>',
            "lead",
        )
    moved = cost.total.loaded + cost.total.stored
    again = f"programs access {scaled(moved, 'B')}: " if moved > 1.02 * cost.least else ""
    note = (
        f"{again}{scaled(cost.total.loaded, 'B')} loaded, {scaled(cost.total.stored, 'B')} stored"
    )
    yield _plain_tile(
        "Memory moves", scaled(cost.least, "B"), f'<div class="note">{escape(note)}</div>'
    )
    work = cost.total.products + cost.total.operations
    kinds = {
        "of matrix products": cost.total.products,
        "of other arithmetic": cost.total.operations,
    }
    parts = ", ".join(f"{scaled(v, 'FLOP')} {what}" for what, v in kinds.items() if v)
    yield _plain_tile(
        "Operations", scaled(work, "FLOP"), f'<div class="note">{escape(parts)}</div>'
    )


# -- remarks --------------------------------------------------------------------------------------


def _remarks(report: Report) -> str:
    missed = [said for said in report.remarks if said.missed]
    done = [said for said in report.remarks if not said.missed]
    parts = _said(report, "What keeps it from being faster", missed, "missed")
    parts += _said(report, "What was done", done, "")
    kind = "" if missed and done else " good"
    return f"""<h2>What the compiler says</h2>
<p class="lede">About loads and stores, loops and products, by source line.</p>
<div class="remarks{kind}">{parts or '<p class="none">Nothing.</p>'}</div>"""


def _said(report: Report, title: str, remarks: Sequence[Said], kind: str) -> str:
    items = "".join(f"<li>{_remark(report, said)}</li>" for said in remarks)
    return f'<div class="{kind}"><h3>{title}</h3><ol>{items}</ol></div>' if items else ""


def _remark(report: Report, said: Said) -> str:
    line = said.place.rpartition(":")[2]
    jump = f' data-line="{said.lines[0]}"' if said.lines else ""
    code = f"<code>{escape(_source(report, said.lines))}</code>" if said.lines else "<span></span>"
    return (
        f'<button type="button" class="remark"{jump} title="{escape(said.by)}">'
        f'<span class="line">{escape(line)}</span>{code}'
        f'<span class="says">{_ticked(said.text)}</span></button>'
    )


def _ticked(text: str) -> str:
    """The text with what stands in backticks as code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(parts))


def _source(report: Report, lines: Sequence[int]) -> str:
    block = next(b for b in reversed(report.sources) if b.number <= lines[0])
    return block.lines[lines[0] - block.number].strip()


def _place(report: Report, lines: Sequence[int]) -> str:
    block = next(b for b in reversed(report.sources) if b.number <= lines[0])
    return f"{basename(block.file)}:{block.first + lines[0] - block.number}"


# -- code -----------------------------------------------------------------------------------------


def _code(report: Report) -> str:
    tabs = "".join(
        f'<button type="button" role="tab" data-key="{listing.key}" aria-selected="false" '
        f'tabindex="-1">{escape(listing.title)}<sup></sup></button>'
        for listing in report.listings
    )
    pane = (
        '<div class="pane code"><div class="tabs" role="tablist" aria-label="Forms of the code">'
        f'{tabs}</div><div class="lines" tabindex="0" role="tabpanel" aria-label="Code"></div>'
        '<div class="ticks" aria-hidden="true"></div></div>'
    )
    return f"""<div class="bar"><div style="flex:1 1 24rem"><h2>From source to machine code</h2>
<p class="lede">Point at a line to see what was made of it, or what it was made of. Click to keep
it; <kbd>↑</kbd> <kbd>↓</kbd> walk through the source, <kbd>Esc</kbd> lets go.</p></div>
<button class="quiet" id="split" type="button" aria-pressed="false">Two forms</button></div>
<div class="explorer">
<div class="pane source"><div class="tabs"><h3>Source</h3></div>\
<div class="lines" id="source" role="listbox" tabindex="0" aria-label="Source"></div></div>
{pane}
{pane}
</div>
<div class="inspect" id="inspect" aria-live="polite" data-hint="{HINT}"></div>
<noscript><p class="none">The code is shown by JavaScript, which is off.</p></noscript>"""


# -- cost -----------------------------------------------------------------------------------------


def _cost(report: Report) -> str:
    cost = report.cost
    if cost is None:
        return f"<h2>Cost of a launch</h2><p class='lede'>Not known: {escape(report.cost_note)}</p>"
    used = max((i for i, extent in enumerate(cost.grid) if extent != 1), default=0)
    grid = " × ".join(number(extent) for extent in cost.grid[: used + 1])
    given = ", ".join(f"{name} = {short(value)}" for name, value in cost.values.items())
    notes = "".join(f"<li>{escape(note)}</li>" for note in cost.notes)
    return f"""<h2>Cost of a launch</h2>
<p class="lede">Counted from the tile IR for a grid of {grid}\
{escape(f" with {given}" if given else "")}. What is computed for masked elements counts too.</p>
<div class="scroll"><table><thead><tr><th>Line</th><th>Loads</th><th>Stores</th>\
<th>Arithmetic</th><th>Products</th><th class="code">Source</th></tr></thead>
<tbody>{"".join(_cost_rows(report))}</tbody></table></div>
{_arguments(report)}{_limits(report)}
{f'<ul class="notes">{notes}</ul>' if notes else ""}"""


def _cost_rows(report: Report) -> Iterator[str]:
    assert report.cost is not None
    lines = report.cost.lines
    names = ("loaded", "stored", "operations", "products")
    most = {n: max((getattr(x.tally, n) for x in lines), default=0) or 1 for n in names}
    for line in lines:
        cells = ""
        for name in names:
            value = getattr(line.tally, name)
            unit = "B" if name in ("loaded", "stored") else "FLOP"
            bar = f'<span class="share" style="width:{3 * value / most[name]:.2f}rem"></span>'
            shown = f"{bar}{scaled(value, unit)}" if value else ""
            cells += f"<td{'' if unit == 'B' else ' class=f'}>{shown}</td>"
        place = escape(_place(report, line.lines))
        calls = "".join(f" ← {escape(_place(report, (n,)))}" for n in line.lines[1:2])
        yield (
            f'<tr><td><button type="button" class="link" data-line="{line.lines[0]}">{place}'
            f"</button><small>{calls}</small></td>{cells}"
            f'<td class="code">{escape(_source(report, line.lines))}</td></tr>'
        )


def _arguments(report: Report) -> str:
    assert report.cost is not None
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{scaled(moved, 'B')}</td>"
        f"<td>{scaled(least, 'B')}</td><td>{_times(moved, least)} ×</td></tr>"
        for name, (moved, least) in report.cost.arguments.items()
    )
    if not rows:
        return ""
    return f"""<div class="scroll"><table style="margin-top:1.6rem;width:auto"><thead><tr>\
<th>Argument</th><th>Accessed</th><th>Minimum traffic</th><th>Each byte</th></tr>\
</thead><tbody>{rows}</tbody></table></div>"""


def _times(moved: float, least: float) -> str:
    times = moved / least if least else 0.0
    return number(round(times)) if times >= 100 else f"{times:.3g}"


def _limits(report: Report) -> str:
    if report.roofline is None:
        return ""
    rows = "".join(
        f"<tr><td>{escape(limit.what)} {escape(limit.element)}</td>"
        f"<td>{duration(limit.seconds)}</td>"
        f"<td>{scaled(limit.rate, 'B/s' if limit.what == MEMORY else 'FLOP/s')}</td></tr>"
        for limit in report.roofline.limits
    )
    return f"""<div class="scroll"><table style="margin-top:1.6rem;width:auto"><thead><tr>\
<th>On {escape(report.roofline.device)}</th><th>At least</th><th>At most</th></tr></thead>\
<tbody>{rows}</tbody></table></div>"""


# -- blocks of memory -----------------------------------------------------------------------------


def _accesses(report: Report) -> str:
    items = "".join(_access(report, touched) for touched in report.accesses)
    if not items:
        return ""
    return f"""<h2>Blocks of memory</h2>
<p class="lede">Where each load and store begins, how it steps through memory, where it ends.</p>
<div class="remarks good"><div><ol>{items}</ol></div></div>"""


def _access(report: Report, touched: Touched) -> str:
    line = _place(report, touched.lines).rpartition(":")[2] if touched.lines else ""
    jump = f' data-line="{touched.lines[0]}"' if touched.lines else ""
    words = "<br>".join(_ticked(text) for text in (touched.text, *touched.axes))
    return (
        f'<li><button type="button" class="remark"{jump} title="{escape(touched.refused)}">'
        f'<span class="line">{escape(line)}</span><span class="says">{words}</span></button></li>'
    )


# -- layouts and passes ---------------------------------------------------------------------------


def _layouts(report: Report, layouts: Sequence[LinearLayout]) -> str:
    if not report.layouts:
        return ""
    cards = "".join(
        _layout(report, use, layout) for use, layout in zip(report.layouts, layouts, strict=True)
    )
    return f"""<h2>Layouts</h2>
<p class="lede">Which thread holds which element of a tile, as <code>thread:register</code>; in
shared memory, the offset of each element. Colours follow the lanes of a warp.</p>
<div class="layouts">{cards}</div>"""


def _layout(report: Report, use: LayoutUse, layout: LinearLayout) -> str:
    pictures = f'<div class="picture">{corner(layout)}</div>' if layout.shape else ""
    if layout.in_bits(WARP) and not layout.in_bits(OFFSET):
        by_warp = whole(layout)
        if by_warp:
            pictures += (
                f'<figure><div class="picture">{by_warp}</div>'
                "<figcaption>The whole tile by warp.</figcaption></figure>"
            )
    where = ", ".join(_jumps(report, use.lines[:6]))
    more = "" if len(use.lines) <= 6 else " …"
    converted = ", ".join(_jumps(report, use.converted))
    moved = f"<p>Moved here from another layout: {converted}</p>" if converted else ""
    return f"""<article class="layout"><header><h3>{escape(use.name or "–")}</h3>\
<span>{plural(use.values, "value")} of {escape(", ".join(use.types[:4]))}</span>\
<span>{where}{more}</span></header>
<p>{escape(use.words)}</p>{moved}<div class="pictures">{pictures}</div>
<details><summary>As a linear map</summary><code>{escape(use.text)}</code></details></article>"""


def _jumps(report: Report, lines: Iterable[int]) -> Iterator[str]:
    for line in lines:
        place = escape(_place(report, (line,)).rpartition(":")[2])
        yield f'<button type="button" class="link" data-line="{line}">{place}</button>'


def _passes(report: Report) -> str:
    items = "".join(
        f'<li class="{"" if done.changed else "idle"}">{escape(done.name)}'
        f"<small>{escape(_what(done.counts) or done.skipped)}</small></li>"
        for done in report.passes
    )
    return f"""<h2>Passes</h2>
<p class="lede">In their order; those in dashes changed nothing.
<code>python -m tilewright show</code> prints what each of them changed.</p>
<ol class="passes">{items}</ol>"""


def _what(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
