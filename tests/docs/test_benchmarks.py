"""docs/benchmarks.md and the table of the README are what the benchmark writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import page
from benchmarks.cases import FAMILIES
from benchmarks.compile_time import BARS_MS

ROOT = Path(__file__).parents[2]

NEED_A_PROCESSOR = {"matmul, bf16"}
"""Families that the page lacks where the machine it was written on could not measure them."""

ADD: dict[str, Any] = {"family": "add", "case": "2^14", "aim": 1.0, "rival": "torch, out="}
RESULTS: dict[str, Any] = {
    "machine": {"processor": "a processor", "date": "2020-02-02"},
    "results": [
        {**ADD, "threads": 1, "ours_us": 10.0, "rival_us": 20.0, "ratio": 2.0},
        {**ADD, "threads": 2, "ours_us": 12345.6, "rival_us": 6172.8, "ratio": 0.5},
        {**ADD, "case": "2^16", "threads": 1, "ours_us": 9.0, "rival_us": 72.0, "ratio": 8.0},
        {**ADD, "case": "2^16", "threads": 2, "ours_us": 1e6, "rival_us": 1e6, "ratio": 1.0},
        {
            "family": "launch", "case": "NumPy arrays", "threads": 1, "ours_us": 7.123,
            "rival": "torch.add", "rival_us": 1.0, "limit_us": 10,
        },
        {
            "family": "first compile", "case": "add", "threads": 1, "ours_us": 17000.0,
            "limit_us": 60000, "parts_ms": {"LLVM": 12.0, "LLVM loaded": 17.0, "process": 390.0},
        },
    ],
}  # fmt: skip


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(page, "DOCS", tmp_path / "benchmarks.md")
    monkeypatch.setattr(page, "README", tmp_path / "README.md")
    (tmp_path / "README.md").write_text("a\n<!-- benchmarks -->\nold\n<!-- end -->\nz\n")
    page.write(RESULTS)
    return tmp_path


def test_page_has_a_table_for_each_family(written: Path) -> None:
    lines = (written / "benchmarks.md").read_text().splitlines()
    assert [line for line in lines if line.startswith("## ")] == [
        "## add", "## launch", "## first compile",
    ]  # fmt: skip
    assert "- processor: a processor" in lines
    assert "| 2^14 | 10 µs | 20 µs | **2.00** | 12.3 ms | 6.17 ms | **0.50** | 1.0 |" in lines
    assert "| 2^16 | 9 µs | 72 µs | **8.00** | 1000 ms | 1000 ms | **1.00** | 1.0 |" in lines
    assert "| three NumPy arrays, two ints | 7.12 µs | 1 µs | 10 µs |" in lines
    assert "| add | 12 ms | 17 ms | 390 ms | 60 ms |" in lines


def test_readme_contains_the_range_of_the_ratios(written: Path) -> None:
    assert (written / "README.md").read_text().splitlines() == [
        "a",
        "<!-- benchmarks -->",
        "| workload | speedup over torch: min, **mean**, max |",
        "|---|---|",
        "| add, 1 thread | 2.00, **4.00**, 8.00 |",
        "| add, 2 threads | 0.50, **0.71**, 1.00 |",
        "<!-- end -->",
        "z",
    ]


def test_pages_of_the_project_have_all_families() -> None:
    text = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    readme = (ROOT / "README.md").read_text("utf-8")
    for family in FAMILIES.values():
        if family.title not in NEED_A_PROCESSOR:
            assert f"## {family.title}\n" in text
            assert f"| {family.title}, " in readme
    for kernel in BARS_MS:
        assert f"\n| {kernel} | " in text
