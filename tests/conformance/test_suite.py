"""The conformance suite: the built-in targets pass what they claim, and faults are found.

Here a part of the cases runs in this process; CI runs more of them by the command.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.lowering.simt.harness import run_emulated
from tilewright.base.located import error_at
from tilewright.conformance.case import Case, Failed, Machine, Program
from tilewright.conformance.claims import claims_of
from tilewright.conformance.compare import difference
from tilewright.conformance.elementwise import write_program
from tilewright.conformance.execution import (
    ABSENT,
    COMPILED,
    FAILED,
    PASSED,
    REJECTED,
    UNCLAIMED,
    machine_of,
    run_case,
)
from tilewright.conformance.inputs import zeros
from tilewright.conformance.random_programs import program_text
from tilewright.conformance.report import Results
from tilewright.conformance.suite import Selection
from tilewright.ir.core import Module
from tilewright.ir.interpret import interpret
from tilewright.targets import registry
from tilewright.targets.cpu.target import CpuTarget
from tilewright.targets.protocol import LEVELS, Claims, GPUTarget

CASES = Selection().cases()


def outcomes(cases: Sequence[Case], machine: Machine) -> dict[str, str]:
    """The cases that neither pass nor are absent, with what happened."""
    found = {case.name: run_case(case, machine) for case in cases}
    good = (PASSED, ABSENT)
    return {name: f"{o.status}: {o.detail}" for name, o in found.items() if o.status not in good}


def named(text: str) -> Case:
    return next(case for case in CASES if text in case.name)


def test_names_of_cases_are_distinct() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert {case.level for case in CASES} == set(LEVELS)


@pytest.mark.parametrize(("target", "parts"), [("cpu", 40), ("interpreter", 30)])
def test_target_passes_a_sample_of_all_levels(target: str, parts: int) -> None:
    machine = machine_of(target)
    assert not outcomes(Selection(levels="12345F", part=7, parts=parts).cases(), machine)


@pytest.mark.parametrize("target", ["cpu", "interpreter", "cuda:90"])
def test_target_keeps_to_the_protocol(target: str) -> None:
    machine = replace(machine_of(target), device="")
    assert not outcomes(Selection(levels="0").cases(), machine)


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
def test_runtime_passes(target: str) -> None:
    assert not outcomes(Selection(levels="R").cases(), machine_of(target))


def emulated(module: Module, grid: tuple[int, ...], args: list[Any]) -> None:
    """Run a module as the threads of a GPU, on the emulator."""
    x, y, z = (*grid, 1, 1)[:3]
    if x * y * z:
        run_emulated(module, (x, y, z), args, warps=1, lanes=32)


@pytest.mark.parametrize("part", range(2))
def test_claims_of_gpus_hold_on_the_emulator(part: int) -> None:
    machine = Machine(GPUTarget("cuda", 90, 32), "", emulated)
    # The emulated GPU runs one program after the other, and lacks what only hardware has.
    cases = Selection(levels="123F", part=part, parts=80).cases()
    assert not outcomes(cases, machine)


def test_kernels_for_a_gpu_compile() -> None:
    cases = Selection(levels="123", part=11, parts=400).cases()
    found = {run_case(case, Machine(GPUTarget("cuda", 90, 32), "")).status for case in cases}
    assert found <= {COMPILED, ABSENT}
    assert COMPILED in found


# -- faults are found -----------------------------------------------------------------------------


def broken(change: Any) -> Machine:
    """A machine that changes the arrays after a correct run."""

    def execute(module: Module, grid: tuple[int, ...], args: list[Any]) -> None:
        interpret(module, grid, args)
        change([a for a in args if isinstance(a, np.ndarray)])

    return Machine(GPUTarget("interpreter"), "cpu", execute)


def flip_zero(arrays: list[np.ndarray]) -> None:
    out = arrays[-1]
    zeros = np.flatnonzero((out == 0) & ~np.signbit(out))
    out[zeros[:1]] = -0.0


def write_last(arrays: list[np.ndarray]) -> None:
    arrays[0].reshape(-1)[-1] += 1


@pytest.mark.parametrize(
    ("case", "change"), [("1/x * y/fp32", flip_zero), ("1/copy, with a tail/i32", write_last)]
)
def test_wrong_result_is_found(case: str, change: Any) -> None:
    outcome = run_case(named(case), broken(change))
    assert outcome.status == FAILED
    assert "differ, the first at " in outcome.detail


def test_right_result_passes_on_the_same_machine() -> None:
    assert run_case(named("1/x * y/fp32"), broken(lambda arrays: None)).status == PASSED


def test_difference_is_by_bits_or_last_places() -> None:
    x = np.array([1.0, 0.0, np.nan, np.inf], np.float32)
    assert not difference(x, x.copy())
    y = np.array([1.0, -0.0, np.nan, np.inf], np.float32)
    assert "1 of 4 elements differ" in difference(y, x)
    near = x.copy()
    near[0] = np.nextafter(near[0], np.float32(2))
    assert difference(near, x)
    assert not difference(near, x, ulp=1)
    near[0] = np.nextafter(np.nextafter(near[0], np.float32(2)), np.float32(2))
    assert difference(near, x, ulp=2)
    assert difference(np.zeros(2, np.int32), np.zeros(3, np.int32))


def test_write_outside_of_an_array_is_found() -> None:
    program = Program(write_program, [zeros("i32", 4)], grid=(5,))
    case = Case("1", "grid", "too large", lambda: program)
    outcome = run_case(case, machine_of("cpu"))
    assert (outcome.status, outcome.detail) == (FAILED, "4 bytes behind array 0 were overwritten")


class Limited(CpuTarget):
    """A CPU that claims little."""

    name = "limited"

    def claims(self) -> Claims:
        return Claims(levels=("0", "1"), types=("i32", "i1"), without=("x * y",))


class WrongClaims(CpuTarget):
    name = "limited"

    def claims(self) -> Any:
        return Claims(levels=("0", "9"))


@pytest.fixture
def limited() -> Any:
    registry.register("limited", Limited)
    yield Machine(GPUTarget("limited"), "")
    del registry._REGISTERED["limited"]


def test_what_is_not_claimed_is_listed(limited: Machine) -> None:
    found = [
        run_case(named(text), limited) for text in ("1/x + y/i32", "1/x * y/i32", "1/x + y/i8")
    ]
    statuses = [(outcome.status, outcome.detail) for outcome in found]
    assert statuses == [(COMPILED, ""), (UNCLAIMED, "x * y"), (UNCLAIMED, "type i8")]
    assert run_case(named("2/outer product/i32"), limited).detail == "level 2"


def test_clear_error_is_a_rejection_only_where_nothing_is_claimed(limited: Machine) -> None:
    def reject(self: Any, module: Module, *rest: Any) -> Any:
        raise rejection(module)

    for text, status in (("1/x + y/i32", FAILED), ("1/x * y/i32", REJECTED)):
        target = registry.target("limited")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(target), "compile", reject)
            assert run_case(named(text), limited).status == status


def rejection(module: Module) -> Exception:
    op = module.entry.body.first
    assert op is not None
    return error_at(op.loc, f"{op.name} is not supported")


def test_crash_of_the_compiler_is_a_failure_even_if_nothing_is_claimed(limited: Machine) -> None:
    def crash(self: Any, *rest: Any) -> Any:
        raise KeyError("arith.mul")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Limited, "compile", crash)
        outcome = run_case(named("1/x * y/i32"), limited)
    assert outcome.status == FAILED
    assert "InternalCompilerError" in outcome.detail


def test_wrong_claims_are_named() -> None:
    with pytest.raises(Failed, match="limited claims the level '9'; there are 0, 1, 2"):
        claims_of(WrongClaims())
    with pytest.raises(Failed, match=r"claims\(\) of limited returns 7, not a Claims"):
        claims_of(type("Odd", (Limited,), {"claims": lambda self: 7})())


def test_programs_are_the_same_in_every_run() -> None:
    assert program_text(5) == program_text(5)
    assert program_text(5) != program_text(6)


def test_table_of_results() -> None:
    results = Results("cpu", "cpu", Claims())
    for text in ("1/x + y/i32", "1/x | y/i32"):
        results.outcomes[named(text)] = run_case(named(text), machine_of("cpu"))
    results.outcomes[named("1/x * y/i32")] = run_case(
        named("1/x * y/i32"), broken(lambda arrays: arrays[-1].fill(7))
    )
    text = results.markdown()
    assert "| 1 elementwise | 2 |  |  |  | 1 |" in text
    assert "| `x + y` | i32 |" in text
    assert "| `x \\| y` | i32 |" in text
    assert "- `1/x * y/i32`: array 2: " in text
    plain = results.plain()
    assert plain["levels"] == {"1": {PASSED: 2, FAILED: 1}}
    assert not plain["conformant"]
