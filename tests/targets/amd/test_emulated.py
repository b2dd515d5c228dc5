"""Programs of the conformance suite, compiled for AMD processors and run on the emulator, leave in
memory what the interpreter leaves; and their code is decoded as LLVM prints it.
"""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.amd_emulator.conformance import emulator
from tests.amd_emulator.launch import launch
from tests.targets.amd.sources import compiled
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
def test_constants_after_the_code_are_loaded(arch: str) -> None:
    (case,) = Selection(levels="1", only=("tl.cos/fp32",)).cases()
    assert run_case(case, emulator(arch)).status == PASSED


@tw.jit
def extrema(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    greater = tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)
    smaller = tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)
    tl.store(out_ptr + i, greater)
    tl.store(out_ptr + BLOCK + i, smaller)


@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "gfx1200"])
def test_extrema_of_pairs(arch: str) -> None:
    numbers = np.array([1.0, -2.0, np.nan, np.inf, -np.inf, 0.5, 65504.0, -1e-7], np.float16)
    x, y = np.repeat(numbers, 32), np.tile(numbers, 32)
    code = compiled(
        extrema, dict.fromkeys(("x_ptr", "y_ptr", "out_ptr"), "*fp16"), arch, BLOCK=256
    ).asm["hsaco"]
    assert isinstance(code, bytes)
    *_, found = launch(code, arch, 1, (1,), [x, y, np.zeros(512, np.float16)])
    np.testing.assert_array_equal(found, np.concatenate([np.maximum(x, y), np.minimum(x, y)]))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("arch", "level"), [(arch, level) for arch, levels in PARTS.items() for level in levels]
)
def test_programs_leave_what_the_interpreter_leaves(arch: str, level: str) -> None:
    parts, part = PARTS[arch][level]
    cases = Selection(levels=level, parts=parts, part=part).cases()
    found = {case.name: run_case(case, emulator(arch)) for case in cases}
    assert PASSED in {outcome.status for outcome in found.values()}
    assert {name: o.detail for name, o in found.items() if o.status == FAILED} == {}
