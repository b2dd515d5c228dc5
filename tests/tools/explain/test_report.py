"""The report in its three forms, and the listings in it."""

import json
import re
from html.parser import HTMLParser
from itertools import takewhile
from pathlib import Path

import pytest

from tests.tools.explain.conftest import KERNELS, TYPES, Explain, explained
from tilewright.tools import cli
from tilewright.tools.explain import listings
from tilewright.tools.explain.listings import code_listing
from tilewright.tools.explain.page import as_page
from tilewright.tools.explain.report import Report
from tilewright.tools.explain.sources import SourceMap

VOID = {"meta", "link", "br", "input", "img", "rect", "line", "circle", "polyline"}
CASES = [("add", "cpu"), ("calls", "cpu"), ("product", "sm_90"), ("looked_up", "sm_80")]


def words(kernel: str, target: str) -> list[str]:
    return ["explain", f"{KERNELS}::{kernel}", "-s", TYPES[kernel], "-t", target, "-c", "BLOCK=512"]


# -- lines ----------------------------------------------------------------------------------------


def lines_of(report: Report, key: str, words: str) -> list[str]:
    """The lines of a listing that come from the source line with these words."""
    numbers = [
        block.number + i
        for block in report.sources
        for i, line in enumerate(block.lines)
        if words in line
    ]
    (listing,) = [x for x in report.listings if x.key == key]
    return [text for text, sources in listing.lines if numbers[0] in sources]


def test_forms_of_each_target(explain: Explain) -> None:
    cpu = [x.key for x in explain("add").listings]
    gpu = [x.key for x in explain("product", "sm_90").listings]
    assert cpu == ["front", "tile", "llir", "asm"]
    assert gpu[:5] == ["front", "tile", "laid_out", "llir", "ptx"]


@pytest.mark.parametrize(
    ("key", "target", "instruction"),
    [
        ("front", "cpu", "mem.store"),
        ("tile", "cpu", "mem.store"),
        ("llir", "cpu", "store <"),
        ("asm", "cpu", "movups"),
        ("laid_out", "sm_90", "mem.store"),
        ("llir", "sm_90", "st.global"),
        ("ptx", "sm_90", "st.global"),
    ],
)
def test_a_store_is_linked_to_its_line(
    explain: Explain, key: str, target: str, instruction: str
) -> None:
    found = lines_of(explain("add", target), key, "tl.store(out + i, tl.load(x + i, inside)")
    assert any(instruction in line for line in found)
    assert not any(instruction in x for x in lines_of(explain("add", target), key, "inside = i"))


@pytest.mark.parametrize(("target", "key"), [("cpu", "asm"), ("cpu", "llir"), ("sm_90", "ptx")])
def test_inlined_code_is_linked_to_both_lines(explain: Explain, target: str, key: str) -> None:
    report = explain("calls", target)
    inner = lines_of(report, key, "return x + x")
    outer = lines_of(report, key, "doubled(tl.load(x + i))")
    assert any(re.search(r"\bv?f?add", line) for line in inner)
    assert set(inner) <= set(outer)
    assert len(outer) > len(inner)


def test_each_form_is_linked(explain: Explain) -> None:
    """Most of the kernel's own code; on the processor a function that calls it follows."""
    for kernel, target in CASES:
        for listing in explain(kernel, target).listings:
            own = takewhile(lambda x: not x[0].startswith((".Lfunc_end", "}")), listing.lines)
            code = [s for text, s in own if re.match(r"\s+[%a-z@v]|/\*", text)]
            linked = sum(bool(sources) for sources in code)
            assert linked > 0.5 * len(code), (kernel, target, listing.key)


def test_large_listings_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(f"\tadd.s32 %r{i}, %r{i}, 1;" for i in range(50_000))
    listing = code_listing("ptx", "PTX", text, SourceMap())
    assert len(listing.lines) == listings.MAX_LINES
    assert listing.left_out == 50_000 - listings.MAX_LINES
    wide = code_listing("ptx", "PTX", "\t" + "x" * 10_000, SourceMap())
    assert len(wide.lines[0][0]) == listings.MAX_WIDTH
    many = code_listing("ptx", "PTX", "\n".join(["\t" + "x" * 390] * 4000), SourceMap())
    assert sum(len(t) for t, _ in many.lines) <= listings.MAX_CHARACTERS


# -- forms ----------------------------------------------------------------------------------------


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    grid = ["--grid", "2", "--arg", "n=1000"]
    assert cli.main([*words("add", "sm_90"), *grid, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["version"] == 1
    assert found["kernel"] == "add"
    assert found["target"] == "cuda:90"
    assert found["arguments"] == {
        "x": "*fp32:16", "y": "*fp32:16", "out": "*fp32:16", "n": "i32", "BLOCK": "512",
    }  # fmt: skip
    assert {r["name"] for r in found["resources"]} >= {"shared memory"}
    assert found["roofline"]["bound"] == "memory"
    assert found["cost"]["grid"] == [2, 1, 1]
    assert found["layouts"][0]["shape"] == [512]
    assert {p["name"] for p in found["passes"]} >= {"cse", "assign_layouts"}
    text, sources = found["listings"][0]["lines"][1]
    assert isinstance(text, str)
    assert all(isinstance(n, int) for n in sources)


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*words("strided", "sm_90"), "--grid", "1", "--arg", "stride=7", "--text"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("strided for cuda:90  (")
    for title in ("Resources", "Cost of a launch", "Missed optimisations", "Layouts"):
        assert f"\n{title}\n─" in text
    assert "adjacent elements have the stride `stride`" in text
    assert "on NVIDIA H200: at least" in text


def test_page_is_written_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "page.html"
    assert cli.main([*words("add", "cpu"), "-O", str(path)]) == 0
    assert capsys.readouterr().out.strip() == str(path)
    assert path.read_text("utf-8").startswith("<!doctype html>")


class _Checker(HTMLParser):
    """Sees that tags nest, ids are used once, and nothing is fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: set[str] = set()
        self.text: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        assert named.get("src") is None
        assert str(named.get("href", "#")).startswith(("#", "data:"))
        if named.get("id"):
            assert named["id"] not in self.ids
            self.ids.add(str(named["id"]))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.text.setdefault("json" if data.startswith("{") else "js", data)


@pytest.mark.parametrize(("kernel", "target"), CASES)
def test_page_is_self_contained(kernel: str, target: str) -> None:
    report, layouts = explained(kernel, target)
    page = as_page(report, layouts)
    assert len(page) < 1_000_000
    checker = _Checker()
    checker.feed(page)
    assert not checker.open
    assert checker.ids >= {"overview", "remarks", "code", "source", "inspect", "report", "passes"}
    assert json.loads(checker.text["json"]) == json.loads(json.dumps(report.plain()))
    assert "http://" not in page
    assert "https://" not in page
    assert "@import" not in page
    assert ("layouts" in checker.ids) == (target != "cpu")


def test_source_that_looks_like_html(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "odd.py"
    script.write_text(
        "import tilewright as tw\nimport tilewright.language as tl\n"
        "@tw.jit\ndef k(x):\n    # </script><b>&amp;\n    tl.store(x, 1.0)\n"
    )
    path = tmp_path / "odd.html"
    assert cli.main(["explain", f"{script}::k", "-s", "x=*fp32", "-O", str(path)]) == 0
    checker = _Checker()
    checker.feed(path.read_text("utf-8"))
    assert not checker.open
    assert "# </script><b>&amp;" in json.loads(checker.text["json"])["sources"][0]["lines"][2]
    capsys.readouterr()
