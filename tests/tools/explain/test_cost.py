"""Bytes and operations of launches whose numbers are known."""

import pytest

from tests.tools.explain.conftest import Explain
from tilewright.targets.protocol import GPUTarget
from tilewright.tools.explain.cost import Cost
from tilewright.tools.explain.report import Report
from tilewright.tools.explain.roofline import roofline_of
from tilewright.tools.load import UsageError

ADD = ("--grid", "20", "--arg", "n=10000")


def cost_in(report: Report) -> Cost:
    assert report.cost is not None
    return report.cost


def test_masked_tail_is_not_moved(explain: Explain) -> None:
    """20 programs of 512 cover 10240 elements, of which 10000 exist."""
    cost = cost_in(explain("add", "cpu", *ADD))
    assert cost.total.loaded == pytest.approx(2 * 4 * 10000, rel=0.02)
    assert cost.total.stored == pytest.approx(4 * 10000, rel=0.02)
    assert cost.total.operations == 20 * 512
    assert set(cost.arguments) == {"x", "y", "out"}
    assert cost.least == pytest.approx(3 * 4 * 10000, rel=0.02)
    assert not cost.notes


def test_products_and_repeated_reads(explain: Explain) -> None:
    sizes = ("k=4096", "a_stride=4096", "b_stride=64")
    words = [word for size in sizes for word in ("--arg", size)]
    cost = cost_in(explain("product", "cpu", "--grid", "10", *words))
    assert cost.total.products == pytest.approx(10 * 2 * 64 * 64 * 4096)
    assert cost.products == {"fp16": cost.total.products}
    # All ten programs do the same: each byte is read from memory once.
    moved, least = cost.arguments["a"]
    assert moved == pytest.approx(10 * 64 * 4096 * 2)
    assert least == 64 * 4096 * 2
    assert cost.arguments["out"] == pytest.approx((10 * 64 * 64 * 4, 64 * 64 * 4))


def test_programs_of_different_cost(explain: Explain) -> None:
    cost = cost_in(explain("triangle", "cpu", "--grid", "101"))
    assert cost.total.loaded == pytest.approx(4 * 512 * sum(range(1, 102)))
    assert cost.arguments["x"][1] == 4 * 512 * 101


def test_unknown_quantities_are_reported(explain: Explain) -> None:
    assert explain("total").cost is None
    assert "--grid" in explain("total").cost_note
    cost = cost_in(explain("total", "cpu", "--grid", "1"))
    assert len(cost.notes) == 1
    assert cost.notes[0].endswith("the trip count of the loop is unknown; 1 is assumed")
    chosen = cost_in(explain("positive", "cpu", "--grid", "1"))
    assert "the mask is unknown; all elements are assumed to be active" in chosen.notes[0]
    assert cost_in(explain("looked_up", "cpu", "--grid", "1")).arguments["x"] == (2048, 2048)


def test_lines_of_calls_have_the_callers(explain: Explain) -> None:
    report = explain("calls", "cpu", "--grid", "1")
    (line,) = [line for line in cost_in(report).lines if line.tally.operations]
    names = [next(b.name for b in reversed(report.sources) if b.number <= n) for n in line.lines]
    assert names == ["doubled", "calls"]
    assert line.tally.operations == 512


def test_roofline_of_an_absent_device(explain: Explain) -> None:
    cost, target = cost_in(explain("add", "sm_90", *ADD)), GPUTarget("cuda", 90)
    hopper, older = roofline_of(cost, target), roofline_of(cost, target, "h100")
    assert hopper is not None
    assert older is not None
    assert explain("add", "sm_90", *ADD).roofline == hopper
    assert (hopper.device, older.device) == ("NVIDIA H200", "NVIDIA H100 SXM")
    assert hopper.bound == older.bound == "memory"
    assert hopper.seconds == pytest.approx(hopper.limits[0].amount / 4.8e12)
    assert older.seconds > hopper.seconds
    assert hopper.intensity < 1 < hopper.ridge
    with pytest.raises(UsageError, match="unknown device 'H900' for this target; known: NVID"):
        roofline_of(cost, target, "H900")
    with pytest.raises(UsageError, match="unknown device 'H900' for this target; known: none"):
        roofline_of(None, GPUTarget("interpreter"), "H900")
    assert roofline_of(cost, GPUTarget("cuda", 87)) is None


def test_matrix_products_are_the_limit(explain: Explain) -> None:
    sizes = ("k=65536", "a_stride=0", "b_stride=0")
    words = [word for size in sizes for word in ("--arg", size)]
    roofline = explain("product", "sm_90", "--grid", "500", *words).roofline
    assert roofline is not None
    assert roofline.bound == "matrix products"
    assert roofline.peak == pytest.approx(989e12, rel=0.01)
