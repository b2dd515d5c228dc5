"""The run of liger-kernel's operators: errors and failures are recorded, and timing is fair."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.contestants import OURS, TRITON, Contestant
from benchmarks.liger import page
from benchmarks.liger.call import Call, worst_error
from benchmarks.liger.clock import PARTS, HostClock, Timed
from benchmarks.liger.make import Make
from benchmarks.liger.operators import OPERATORS, Operator
from benchmarks.liger.results import Outcome, Results, Row
from benchmarks.liger.steps import CHECK_SECONDS, ROUNDS, Run, Step

LARGE_STEP = Step("cuda", "bfloat16", timed=True)


def _square(x: torch.Tensor) -> torch.Tensor:
    return x * x


SQUARE = Operator("square", "Square", lambda m, *shape: (m(*shape),), _square, (3, 5), (30, 50))


def _make(dtype: torch.dtype) -> Callable[[bool], Make]:
    return lambda exact: Make("cpu", dtype, exact)


# -- errors -------------------------------------------------------------------------------------


def test_error_is_of_the_type_that_was_rounded_to() -> None:
    assert worst_error(SQUARE, _square, (40, 50), _make(torch.float32)) == 0
    assert 1e-4 < worst_error(SQUARE, _square, (40, 50), _make(torch.bfloat16)) < 1e-2


def test_wrong_gradient_of_one_element_is_found() -> None:
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            found = 2 * x * grads[0]
            found[2, 3] += 1
            grads[0].zero_()  # as some operators do; the reference has to see what it was
            return found

    assert worst_error(SQUARE, Wrong.apply, (3, 5), _make(torch.float32)) > 0.05


def test_result_that_is_not_finite_is_infinitely_wrong() -> None:
    def infinite(x: torch.Tensor) -> torch.Tensor:
        return x * x + torch.tensor([torch.inf, 0, 0, 0, 0])

    assert worst_error(SQUARE, infinite, (3, 5), _make(torch.float32)) == float("inf")


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda x: x.label)
def test_reference_takes_the_inputs_in_fp32(operator: Operator) -> None:
    call = Call(
        operator.reference, operator.inputs(Make("cpu", torch.float16, True), *operator.small)
    )
    results = call.forward()
    gradients = call.backward(results, [torch.ones_like(x) for x in results])
    assert all(x.isfinite().all() for x in gradients)
    for x, y in zip(
        operator.inputs(Make("cpu", torch.float16, False), *operator.small), call.args, strict=True
    ):
        if isinstance(x, torch.Tensor):
            torch.testing.assert_close(x, y, check_dtype=False, rtol=0, atol=0)


# -- times --------------------------------------------------------------------------------------


def test_arguments_are_as_they_were_before_each_timed_call() -> None:
    seen: list[float] = []

    def spoil(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.sum().item())
        out = x * 2
        with torch.no_grad():
            x.mul_(3)
        return out

    times = Timed(Call(spoil, [torch.ones(4, requires_grad=True)]), 1, HostClock()).samples(0)
    assert {part: len(found) for part, found in times.items()} == dict.fromkeys(PARTS, 3)
    assert set(seen) == {4.0}


# -- the run ------------------------------------------------------------------------------------


class Fake(Contestant):
    """Returns the given answers; its times are in microseconds."""

    def __init__(self, us: float, answer: dict[str, Any]) -> None:
        self.us, self.answer, self.requested = us, answer, list[str]()

    def send(self, do: str, **request: Any) -> None:
        self.requested.append(do)

    def receive(self, patience: float) -> dict[str, Any]:
        if self.requested[-1] == "samples":
            return {"samples": {part: [self.us] * 3 for part in PARTS}}
        return {} if self.requested[-1] == "drop" else self.answer


def _run(
    tmp_path: Path, ours: Fake, theirs: Fake, *steps: Step, until: float = float("inf")
) -> Run:
    run = Run({OURS: ours, TRITON: theirs}, Results(), tmp_path / "results.json", until)
    for operator, step, row in run.do(steps, "relu_squared"):
        assert operator.name in page.line(operator, step, row)
    return run


def test_ratio_is_the_rivals_time_over_ours(tmp_path: Path) -> None:
    fine = {"error": 1e-3, "launches": 1}
    run = _run(tmp_path, ours := Fake(50, fine), Fake(100, fine), LARGE_STEP)
    (row,) = (row for row in run.results.rows.values() if row.done)
    assert [row.ratio(part) for part in PARTS] == [2, 2, 2]
    assert ours.requested == ["prepare", *["samples"] * ROUNDS, "drop"]
    loaded = Results.load(tmp_path / "results.json")
    assert loaded.rows["relu_squared: LigerReLUSquaredFunction"] == row
    assert next(page.summary(loaded)).startswith("forward: 1 operators, geometric mean 2.000")
    page.write(loaded, tmp_path / "page.md")
    assert "| **2.00** | **2.00** | **2.00** | 1.0e-03 |" in (tmp_path / "page.md").read_text()


def test_failure_is_recorded_and_the_other_is_measured(tmp_path: Path) -> None:
    run = _run(
        tmp_path, Fake(1, {"failure": "oh", "lost": True}), Fake(2, {"error": 0.0}), LARGE_STEP
    )
    (row,) = (row for row in run.results.rows.values() if row.done)
    assert row.times.keys() == {TRITON}
    assert row.ratio("both") is None
    assert row.wrong() == ["cuda bfloat16 large: oh"]


def test_operator_without_a_kernel_is_not_timed(tmp_path: Path) -> None:
    run = _run(
        tmp_path, Fake(1, {"error": 0.0, "launches": 0}), Fake(2, {"error": 0.0}), LARGE_STEP
    )
    assert not any(row.times for row in run.results.rows.values())


def test_finished_work_is_not_repeated_and_nothing_starts_after_the_deadline(
    tmp_path: Path,
) -> None:
    fine = {"error": 1e-3}
    check = Step("cpu", "float16")
    run = _run(tmp_path, ours := Fake(1, fine), theirs := Fake(1, fine), check, check)
    assert (ours.requested, theirs.requested) == (["check"], [])  # Triton has no CPU target
    late = _run(tmp_path, Fake(1, fine), Fake(1, fine), check, until=0)
    assert late.missed == ["relu_squared: LigerReLUSquaredFunction, cpu float16"]
    assert not run.missed


def test_error_as_large_as_tritons_is_right() -> None:
    row = Row({"cuda float32": {OURS: Outcome(1e-3), TRITON: Outcome(6e-4)}})
    assert not row.wrong()
    row.checks["cuda float32"][TRITON] = Outcome(1e-4)
    assert row.wrong() == ["cuda float32: differs by 1.0e-03"]


def test_slack_is_for_16_bits_alone() -> None:
    row = Row(
        {"cpu bfloat16": {OURS: Outcome(7e-2)}, "cpu float32": {OURS: Outcome(5e-5)}}, slack=4
    )
    assert row.wrong() == ["cpu float32: differs by 5.0e-05"]


# -- workers ------------------------------------------------------------------------------------

ANSWERS_ONCE = """
import sys, json
print(json.dumps(json.loads(sys.stdin.readline())), flush=True)
sys.stdin.readline()
"""


def _contestant(text: str) -> Contestant:
    contestant = Contestant("benchmarks.liger.worker", ["any", ""])
    contestant.command = [sys.executable, "-c", text]
    return contestant


def test_worker_that_ends_is_a_failure_and_another_starts() -> None:
    contestant = _contestant(ANSWERS_ONCE)
    try:
        assert contestant.ask(CHECK_SECONDS, "first") == {"do": "first"}
        assert contestant.ask(CHECK_SECONDS, "second") == {
            "failure": "the process ended with status 0"
        }
        assert contestant.ask(CHECK_SECONDS, "third", a=1) == {"do": "third", "a": 1}
    finally:
        contestant.end()


def test_worker_that_hangs_is_a_failure() -> None:
    contestant = _contestant("import time; time.sleep(1000)")
    assert contestant.ask(0.1, "first") == {"failure": "no answer within 0 s"}
    contestant.end()
