"""Programs of the conformance suite, compiled for AMD processors and run on the emulator, leave in
memory what the interpreter leaves; and their code is decoded as LLVM prints it.
"""

from __future__ import annotations

import pytest

from tests.amd_emulator.conformance import emulator
from tilewright.conformance.execution import FAILED, PASSED, run_case
from tilewright.conformance.suite import Selection

# Every how many cases of a level one runs; the first of them.
PARTS = {
    "gfx942": {"1": (60, 7), "2": (60, 11), "3": (60, 5), "4": (60, 3), "5": (25, 3), "F": (25, 2)},
    "gfx1100": {
        "1": (90, 11),
        "2": (90, 5),
        "3": (60, 31),
        "4": (90, 7),
        "5": (25, 7),
        "F": (25, 9),
    },
    "gfx1200": {"1": (200, 3), "2": (200, 7), "3": (150, 17), "5": (50, 7)},
    "gfx950": {"1": (300, 5), "2": (400, 3), "3": (150, 2)},
    "gfx90a": {"1": (300, 9), "2": (400, 21), "3": (150, 11)},
}


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_constants_behind_the_code_are_loaded(arch: str) -> None:
    (case,) = Selection(levels="1", only=("tl.cos/fp32",)).cases()
    assert run_case(case, emulator(arch)).status == PASSED


@pytest.mark.parametrize(
    ("arch", "level"), [(arch, level) for arch, levels in PARTS.items() for level in levels]
)
def test_programs_leave_what_the_interpreter_leaves(arch: str, level: str) -> None:
    parts, part = PARTS[arch][level]
    cases = Selection(levels=level, parts=parts, part=part).cases()
    found = {case.name: run_case(case, emulator(arch)) for case in cases}
    assert PASSED in {outcome.status for outcome in found.values()}
    assert {name: o.detail for name, o in found.items() if o.status == FAILED} == {}
