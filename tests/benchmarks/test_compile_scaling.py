"""The benchmark of compile time over kernel length: measurements, tables and figure."""

import math
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import compile_page, compile_scaling
from benchmarks.compile_forms import FORMS, PARTS, TARGETS, measure


def row(ops: int, seconds: float, target: str = "cpu") -> dict[str, Any]:
    times = {**dict.fromkeys(PARTS, seconds / 5), "total": seconds, "wall": 2 * seconds}
    where = {"form": "chain", "target": target, "size": ops, "steps": ops // 4}
    return {**where, "ops": ops, "seconds": times}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("form", FORMS)
def test_each_form_compiles_for_each_target(form: str, target: str) -> None:
    seconds = measure(form, 1, target)
    parts = [part for part in PARTS if part in seconds]
    assert parts[:4] == list(PARTS[:4])
    assert seconds["total"] == pytest.approx(sum(seconds[part] for part in parts))


def test_a_run_has_a_row_for_each_form_size_and_target() -> None:
    rows = list(compile_scaling.measure_all(["chain"], [4, 8], ["cpu"], each=60, limit=120))
    assert [(r["ops"], r["target"]) for r in rows] == [(4, "cpu"), (8, "cpu")]
    text = "\n".join(compile_page.tables(rows))
    assert "## CPU" in text
    assert "| chain of elementwise ops |" in text


def test_case_that_times_out_is_stopped_and_longer_ones_are_skipped() -> None:
    rows = list(compile_scaling.measure_all(["chain"], [4, 8], ["cpu"], each=0.1, limit=60))
    assert [r["missing"] for r in rows] == ["> 0.1 s"]
    assert list(compile_scaling.measure_all(["chain"], [4], ["cpu"], each=60, limit=0)) == []


def test_exponent_is_the_slope_between_the_two_largest() -> None:
    rows = [row(100, 7.0), row(10_000, 4.0), row(1000, 0.04)]
    power = compile_page.exponent(rows)
    assert power is not None
    assert math.isclose(power, 2.0)
    assert compile_page.exponent([*rows[:1], {"ops": 1, "missing": "> 1 s"}]) is None


def test_growth_compares_the_whole_range_with_n_log_n() -> None:
    # From 100 to 10,000 ops n log n grows by 200.
    growth = compile_page.growth([row(10_000, 4.0), row(100, 0.04), row(1000, 9.0)])
    assert growth is not None
    assert math.isclose(growth, 0.5)
    assert compile_page.growth([row(100, 1.0), {"ops": 200, "missing": "> 1 s"}]) is None


def test_page_has_every_number_and_the_picture_every_line() -> None:
    rows = [row(100, 0.25), row(1000, 2.5), row(100, 0.5, "cuda:90")]
    bars = [{**row(5000, 4.0)}, {**row(5000, 1.0, "cuda:90"), "missing": "> 30 s"}]
    results = {"machine": {"date": "today"}, "rows": rows, "bars": bars, "load": ["1.0", "2.0"]}
    text = "\n".join(compile_page.page(results))
    assert "| chain of elementwise ops | 0.250 | 2.50 | **1.00** | **0.67** |" in text
    assert "| 1,250 | 5,000 | 8.00, **too long** | > 30 s, **too long** |" in text
    image = ElementTree.fromstring(compile_page.picture(rows))
    solid = [e for e in image.iter() if e.get("stroke-width")]
    assert len(solid) == 2
