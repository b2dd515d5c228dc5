"""A run of the GPU benchmarks detects, records and survives wrong results and failures."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Mapping
from functools import partial
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.gpu import __main__ as command
from benchmarks.gpu import page, report, worker
from benchmarks.gpu.case import Case, Setting, WrongResult, worst_error
from benchmarks.gpu.clock import CudaClock, Run, Timing, turn_orders
from benchmarks.gpu.measure import Bench, DeviceLost, Family, Planned, measure_case
from benchmarks.gpu.options import Options
from benchmarks.gpu.results import Bars, Outcome, Results, Row, misses
from benchmarks.gpu.supervisor import run_all

SMALL = Setting("cpu", "check")


def _ignore(who: str) -> None:
    pass


@pytest.mark.parametrize("count", range(1, 7))
def test_each_contestant_follows_each_other_one_equally_often(count: int) -> None:
    names = [str(i) for i in range(count)]
    orders = list(turn_orders(names, 2 * count))
    assert all(sorted(order) == names for order in orders)
    found = Counter(pair for order in orders for pair in pairwise(order))
    assert found == Counter(dict.fromkeys(permutations(names, 2), 2))


class FakeClock:
    """Returns the given times, by the names of the configurations."""

    def __init__(self, times: Mapping[Run, float]) -> None:
        self.times = times

    def quick(self, run: Run, touched: int) -> float:
        return self.times[run]

    def compare(self, runs: Mapping[str, Run], touched: int) -> dict[str, Timing]:
        return {name: Timing(self.times[run], 0.0) for name, run in runs.items()}


# -- checking -----------------------------------------------------------------------------------


def test_worst_error_finds_one_wrong_element_of_many() -> None:
    right = torch.ones(10_000)
    got = right.clone()
    assert worst_error(got, right) == 0
    got[4321] = 1.5
    assert worst_error(got, right) == pytest.approx(0.25)
    got[4321] = math.nan
    assert worst_error(got, right) == math.inf


def test_worst_error_of_zeros_is_absolute() -> None:
    assert worst_error(torch.tensor([0.0, 0.5]), torch.zeros(2)) == 0.5


def _case(launches: Mapping[str, Run], out: torch.Tensor, right: torch.Tensor) -> Case:
    return Case(
        kernels="elementwise",
        launches=lambda kernels: launches,
        outputs=[out],
        expected=lambda: [right],
        tolerance=1e-3,
        bytes=1,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.bool])
def test_unwritten_element_is_a_wrong_result(dtype: torch.dtype) -> None:
    out, right = torch.zeros(8, dtype=dtype), torch.tensor([0, 1] * 4).to(dtype)

    def all_but_the_last() -> None:
        out[:-2] = right[:-2]

    def everything() -> None:
        out.copy_(right)

    case = _case({}, out, right)
    assert case.run_checked(everything, [right]) == 0
    with pytest.raises(WrongResult):
        case.run_checked(all_but_the_last, [right])


def test_only_right_configurations_are_timed_and_the_fastest_counts() -> None:
    out, right = torch.zeros(4), torch.arange(4.0)

    def wrong() -> None:
        out.fill_(1)

    def slow() -> None:
        out.copy_(right)

    def fast() -> None:
        out.copy_(right)

    def broken() -> None:
        raise RuntimeError("no such instruction")

    launches: dict[str, Run] = {"wrong": wrong, "slow": slow, "fast": fast, "broken": broken}
    clock = FakeClock({wrong: 1.0, slow: 9.0, fast: 5.0})
    row = Row("family", "case")
    bench = Bench(SMALL, ("tilewright",), clock, _ignore)
    measure_case(_case(launches, out, right), bench, row)
    ours = row.outcomes["tilewright"]
    assert (ours.config, ours.us, ours.error) == ("fast", 5.0, 0.0)
    assert ours.failures["wrong"].startswith("wrong result: error")
    assert "no such instruction" in ours.failures["broken"]


def test_close_configurations_are_timed_in_more_turns() -> None:
    """The first turns of one are at a higher clock."""
    times = {"lucky": [4.0] * 3 + [5.0] * 4, "steady": [4.4] * 7, "slow": [9.0] * 3}
    out = torch.zeros(4)
    launches = {name: partial(out.fill_, 1.0) for name in times}

    class Clock(FakeClock):
        def quick(self, run: Run, touched: int) -> float:
            return next(times[name].pop(0) for name in times if launches[name] is run)

    bench = Bench(SMALL, ("tilewright",), Clock(dict.fromkeys(launches.values(), 4.5)), _ignore)
    row = Row("family", "case")
    measure_case(_case(launches, out, torch.ones(4)), bench, row)
    assert row.outcomes["tilewright"].config == "steady"
    assert not any(times.values())


# -- a run --------------------------------------------------------------------------------------


def _works(bench: Bench, row: Row) -> None:
    row.outcomes["tilewright"] = Outcome(error=0.0)


def _raises(bench: Bench, row: Row) -> None:
    raise ValueError("this case is broken")


def _loses_the_device(bench: Bench, row: Row) -> None:
    row.outcomes["tilewright"] = Outcome(failures={"": "illegal address"})
    raise DeviceLost


def _families(**cases: Planned) -> dict[str, Family]:
    return {"family": Family("family", lambda setting: cases)}


def _options(path: Path, until: float | None = None) -> Options:
    return Options(str(path), "", ("tilewright",), "cpu", "check", timed=False, until=until)


def test_failing_case_does_not_stop_the_others(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    families = _families(first=_raises, second=_works)
    worker.Worker(_options(path), families, Results()).run()
    first, second = Results.load(path).rows
    assert "this case is broken" in first.outcomes["case"].failures[""]
    assert second.outcomes["tilewright"].error == 0.0


def test_cases_with_a_row_are_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    earlier = Results(rows=[Row("family", "first")])
    worker.Worker(_options(path), _families(first=_raises, second=_works), earlier).run()
    assert [row.case for row in Results.load(path).rows] == ["first", "second"]
    assert not Results.load(path).rows[0].outcomes


def test_remaining_cases_are_listed_after_the_time_limit(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    options = _options(path, until=time.time() - 1)
    worker.Worker(options, _families(first=_works, second=_works), Results()).run()
    results = Results.load(path)
    assert not results.rows
    assert results.left_out == ["family, first", "family, second"]
    assert "not measured, for lack of time: family, first; family, second" in report.table(results)


def test_row_is_kept_when_the_device_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    families = _families(first=_loses_the_device, second=_works)
    with pytest.raises(DeviceLost):
        worker.Worker(_options(path), families, Results()).run()
    (row,) = Results.load(path).rows
    assert row.outcomes["tilewright"].failures == {"": "illegal address"}


DYING_WORKER = """
import os, sys
from pathlib import Path
from benchmarks.gpu.measure import Family
from benchmarks.gpu.options import Options
from benchmarks.gpu.results import Outcome, Results
from benchmarks.gpu.worker import Worker

def works(bench, row):
    row.outcomes["tilewright"] = Outcome(error=0.0)

def dies(bench, row):
    bench.announce("tilewright")
    os._exit(77)

cases = {"first": works, "second": dies, "third": works}
options = Options.parse(sys.argv[1])
path = Path(options.path)
results = Results.load(path) if path.exists() else Results()
Worker(options, {"family": Family("family", lambda setting: cases)}, results).run()
"""


def test_run_continues_after_the_case_that_crashed_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dying_worker.py").write_text(DYING_WORKER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    results = run_all(_options(tmp_path / "results.json"), worker="dying_worker")
    assert [row.case for row in results.rows] == ["first", "second", "third"]
    (reason,) = results.rows[1].outcomes["tilewright"].failures.values()
    assert "status 77" in reason
    assert results.running is None


def test_worker_that_dies_at_its_start_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stillborn_worker.py").write_text("raise SystemExit(5)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(SystemExit, match="status 5"):
        run_all(_options(tmp_path / "results.json"), worker="stillborn_worker")


def test_command_checks_on_the_cpu(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "results.json"
    arguments = ["--device", "cpu", "--check-only", "--only", "copy", "--module", "tilewright"]
    assert command.main([*arguments, "--json", str(path)]) == 0
    assert "tilewright ok" in capfd.readouterr().out
    (row,) = Results.load(path).rows
    assert row.family == "copy, bf16"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--device", "cpu"],
        ["--write-docs", "--quick"],
        ["--continue"],
        ["--check-only", "--module", "numpy"],
    ],
)
def test_command_rejects_impossible_requests(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(arguments)


# -- results ------------------------------------------------------------------------------------


def _row(ours: float | None, bars: Bars, **rivals: float) -> Row:
    times = {"tilewright": ours, **rivals}
    outcomes = {name: Outcome(us=us, config="a config") for name, us in times.items()}
    return Row("family", "case", bars, bytes=1000, outcomes=outcomes)


@pytest.mark.parametrize(
    ("row", "missed"),
    [
        (_row(10.0, Bars(triton=1.0), triton=10.0), []),
        (_row(10.0, Bars(triton=1.0), triton=9.0), ["triton 0.90 < 1"]),
        (_row(10.0, Bars(torch=0.9), triton=1.0, torch=8.0), ["torch 0.80 < 0.9"]),
        (_row(10.0, Bars(us=6.0)), ["10.0 us > 6 us"]),
        (_row(10.0, Bars(copy=0.85)), ["copy 0.10 < 0.85"]),
        (_row(1.0, Bars(copy=0.85)), []),
        (_row(None, Bars(triton=1.0), triton=9.0), []),
    ],
)
def test_misses_are_the_rows_below_the_bars(row: Row, missed: list[str]) -> None:
    assert misses(row, copy_gb_s=1.0) == missed


def test_failure_of_all_configurations_is_a_miss() -> None:
    row = Row("family", "case", outcomes={"tilewright": Outcome(failures={"all": "why"})})
    assert misses(row, None) == ["tilewright failed"]
    row.outcomes["tilewright"].us = 1.0
    assert misses(row, None) == []


def test_rates_have_the_unit_of_the_limiting_resource() -> None:
    row = _row(10.0, Bars())
    assert (row.rate("tilewright"), row.unit) == (0.1, "GB/s")
    row.flops = 10**9
    assert (row.rate("tilewright"), row.unit) == (100.0, "TFLOP/s")
    assert row.rate("triton") is None


def _results() -> Results:
    failing = Outcome(failures={"64 x 64": "line one\nline two"})
    rows = [
        _row(10.0, Bars(triton=1.0, torch=0.9), triton=9.0, torch=30.0),
        Row("family", "failing case", Bars(us=6.0), outcomes={"tilewright": failing}),
    ]
    machine = {"device": "a device", "copy_gb_s": 4000.0}
    return Results(machine, rows, ("family", "case", "triton"), ["left out"])


def test_results_are_read_back_from_their_file(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    _results().save(path)
    assert Results.load(path) == _results()


def test_table_shows_ratios_and_marks_misses() -> None:
    text = report.table(_results())
    assert "0.90 (1)" in text
    assert "3.00 (0.9)" in text
    assert "MISSED: triton 0.90 < 1" in text
    assert "MISSED: tilewright failed" in text
    assert "2 cases, 2 with a miss or a failure" in text
    assert "line two" in report.line(_results().rows[1], None)


def test_page_has_a_line_for_each_case(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    page.write(_results(), path)
    lines = path.read_text("utf-8").splitlines()
    (measured,) = [line for line in lines if line.startswith("| case | 10")]
    assert "**0.90** | **3.00** | Triton 1, torch 0.9 ✗ | a config |" in measured
    (failed,) = [line for line in lines if line.startswith("| failing case |")]
    assert "| failed |" in failed
    assert "6 µs ✗" in failed
    assert "- copy of device memory: 4000 GB/s, read and written" in lines


@pytest.mark.gpu
def test_clock_distinguishes_a_long_copy_from_a_short_one() -> None:
    clock = CudaClock(block_ms=1, rounds=2)
    small, large = (torch.zeros(n, device="cuda") for n in (2**20, 2**28))
    runs: dict[str, Any] = {"small": small.clone, "large": large.clone}
    times = clock.compare(runs, 2**31)
    assert times["small"].us < times["large"].us
