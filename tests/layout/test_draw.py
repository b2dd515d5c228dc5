"""Pictures name the holder of every element."""

import re
import xml.etree.ElementTree as ET
from itertools import product
from pathlib import Path

from tests.layout.random_layouts import named
from tilewright.layout.draw import CORNER, corner, svg, table, whole
from tilewright.layout.families import (
    blocked,
    mma_m16n8,
    shared_hopper,
    shared_row_major,
    wgmma_accumulator,
)
from tilewright.layout.linear import LANE, REGISTER, WARP, LinearLayout

NAMESPACE = "{http://www.w3.org/2000/svg}"


def test_table_of_memory_shows_offsets() -> None:
    assert table(shared_row_major((4, 4), (0, 1))).splitlines() == [
        "0  4  8  12",
        "1  5  9  13",
        "2  6  10 14",
        "3  7  11 15",
    ]


def test_table_names_the_lowest_holder_and_gaps() -> None:
    assert table(named((2, 0), (1, 1), (1, 1))) == "l0r0 -\nl0r1 -"
    assert table(named((), (0, 0), (0,))) == "0"


def test_table_has_a_cell_for_every_element_where_it_is_held() -> None:
    layout = mma_m16n8((32, 16), (2, 1))
    cells = [line.split() for line in table(layout).splitlines()]
    for warp, lane, register in product(range(2), range(32), range(8)):
        at = layout.apply({REGISTER: register, LANE: lane, WARP: warp})
        assert cells[at["dim0"]][at["dim1"]] == f"w{warp}l{lane}r{register}"


def drawn(layout: LinearLayout) -> tuple[list[str], list[str | None], ET.Element]:
    """The fills, the texts and the whole image."""
    image = ET.fromstring(svg(layout))
    fills = [rect.attrib["fill"] for rect in image.iter(f"{NAMESPACE}rect")]
    return fills, [text.text for text in image.iter(f"{NAMESPACE}text")], image


def test_image_has_the_cells_of_the_table_and_a_colour_per_thread() -> None:
    layout = blocked((4, 8), (1, 2), (2, 2), (2, 1), (1, 0))
    fills, texts, image = drawn(layout)
    assert texts == table(layout).split()
    title = image.find(f"{NAMESPACE}title")
    assert title is not None
    assert title.text == str(layout)
    threads = {str(text).rpartition("r")[0] for text in texts}
    assert len(set(zip(fills, (str(t).rpartition("r")[0] for t in texts), strict=True))) == len(
        threads
    )
    assert len(set(fills)) == len(threads) == 8


def test_pictures_of_the_documentation_are_drawn_by_the_code() -> None:
    page = (Path(__file__).parents[2] / "docs" / "layouts.md").read_text("utf-8")
    shown = blocked((4, 8), (1, 2), (2, 2), (2, 1), (1, 0))
    assert f"```\n{table(shown)}\n```" in page
    for layout in (shown, mma_m16n8((16, 8), (1, 1)), wgmma_accumulator((64, 16), 4, 16)):
        names = [name for name, count in layout.ins if count]
        assert f"{layout.select_ins(*names)}\n" in page
    rows = table(mma_m16n8((16, 8), (1, 1))).splitlines()
    assert all(f"{rows[i].rstrip()}      row {i}\n" in page for i in (0, 1, 8))
    atom = shared_hopper((8, 64), 16, 128)
    assert str(atom) in page
    for i in range(5):
        chunks = (atom.apply({"offset": i * 64 + j * 8})["dim1"] // 8 for j in range(8))
        assert f"\n{' '.join(map(str, chunks))}\n" in page


# -- for pages ------------------------------------------------------------------------------------


def test_corner_names_threads_and_registers() -> None:
    layout = blocked((2, 4), (1, 2), (2, 2), (1, 1), (1, 0))
    text = corner(layout)
    assert re.findall(r">(\d+:\d+)<", text) == [
        "0:0", "0:1", "1:0", "1:1", "2:0", "2:1", "3:0", "3:1",
    ]  # fmt: skip
    assert re.findall(r'data-thread="(\d+)"', text) == ["0", "0", "1", "1", "2", "2", "3", "3"]
    assert ET.fromstring(text).tag == "svg"


def test_corner_of_a_large_tile_is_small() -> None:
    layout = blocked((256, 256), (1, 4), (4, 8), (4, 2), (1, 0))
    assert corner(layout).count("<text") == CORNER[0] * CORNER[1]
    row = blocked((4096,), (4,), (32,), (4,), (0,))
    assert corner(row).count("<text") == CORNER[0] * 16


def test_whole_tile_has_a_cell_for_each_run_of_a_warp() -> None:
    layout = blocked((16, 64), (1, 4), (2, 16), (4, 1), (1, 0))
    cells = ET.fromstring(whole(layout))
    at = [(cell.get("style"), cell.get("height")) for cell in cells]
    assert [style for style, _ in at] == ["--at:0", "--at:0.25", "--at:0.5", "--at:0.75"] * 2
    heights = {int(height or 0) for _, height in at}
    assert len(heights) == 1
    assert int(cells.get("height") or 0) == 8 * heights.pop()


def test_whole_of_a_tile_that_is_too_large_or_too_mixed() -> None:
    assert not whole(blocked((512, 512), (1, 4), (4, 8), (4, 2), (1, 0)))
    assert not whole(blocked((256, 256), (1, 1), (8, 4), (2, 2), (1, 0)))
