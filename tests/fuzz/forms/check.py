"""Compares forms of random computations with each other, and targets with the interpreter.

check_forms(7)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.amd_emulator import conformance as amd
from tests.arrays import aligned
from tests.fuzz.disabled import random_disabled
from tests.fuzz.forms.computation import GUARD, Computation, random_computation
from tests.fuzz.forms.kernel import program_of
from tests.fuzz.programs.check import AMD_PROCESSORS, Difference, build, machine_of, ops_of
from tests.gpu.programs import EXACT, Program
from tests.ir_values import same_bits
from tests.lowering.simt import harness as simt
from tests.targets.cpu.harness import run_compiled
from tilewright.base.diagnostics import OutOfResources
from tilewright.compiler.pipeline import STEPS
from tilewright.ir.core import Module
from tilewright.ir.interpret import interpret
from tilewright.ir.passes import PassContext, run

FORMS = 4

Run = Callable[[Program, Module, list[Any], int], None]


def _rooms(made: Computation, offset: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The arrays with room around them, and without; `offset` elements from an aligned address."""
    rooms: list[np.ndarray] = []
    for m in made.matrices:
        room = aligned(np.zeros(len(m.array) + 2 * GUARD, m.array.dtype), offset * m.array.itemsize)
        room[GUARD : GUARD + len(m.array)] = m.array
        rooms.append(room)
    return rooms, [r[GUARD : len(r) - GUARD] for r in rooms]


def check_computation(seed: int, runs: Sequence[Run]) -> set[str]:
    """Interpret `FORMS` forms, each also on one of the targets: all must leave the same memory."""
    made = random_computation(seed)
    expected: list[np.ndarray] | None = None
    reached: set[str] = set()
    for form in range(FORMS):
        for run_form in (None, runs[form % len(runs)]):
            rooms, arrays = _rooms(made, (0, 0, 1)[(seed + form) % 3])
            text, launch = program_of(made, form, arrays)
            try:
                module, args = build(launch)
                if run_form is None:
                    interpret(module, launch.grid, args)
                    reached |= ops_of(module)
                else:
                    run_form(launch, module, args, seed * FORMS + form)
            except OutOfResources:
                continue
            expected = expected or rooms
            where = f"form {form} of {seed}, {run_form.__name__ if run_form else 'interpreted'}"
            _compare(made, rooms, expected, where, text)
    return reached


def _compare(
    made: Computation, found: list[np.ndarray], expected: list[np.ndarray], where: str, text: str
) -> None:
    for m, x, y in zip(made.matrices, found, expected, strict=True):
        if not same_bits(x, y):
            k = next(k for k in range(len(x)) if not same_bits(x[k : k + 1], y[k : k + 1]))
            raise Difference(
                f"{m.name} differs at {k - GUARD} on {where}: {x[k]!r}, expected {y[k]!r}\n{text}"
            )


# -- targets --------------------------------------------------------------------------------------


def launched(launch: Program, module: Module, args: list[Any], seed: int) -> None:
    """As its author would."""
    kernel: Any = launch.kernel
    kernel[launch.grid](*launch.args, **launch.constants, **EXACT)


def on_cpu(launch: Program, module: Module, args: list[Any], seed: int) -> None:
    lowered = module.clone()
    run(lowered, STEPS, PassContext(disabled=random_disabled(seed, STEPS)), [])
    grid: Any = (*launch.grid, 1, 1)[:3]
    run_compiled(lowered, grid, args, machine=machine_of(seed))


def emulated(launch: Program, module: Module, args: list[Any], seed: int) -> None:
    disabled = random_disabled(seed, (*STEPS, *simt.LAYOUT_STEPS))
    grid: Any = (*launch.grid, 1, 1)[:3]
    ahead = frozenset({"async_copy"} if seed % 3 == 0 else ())
    simt.run_emulated(
        module, grid, args, warps=(1, 2, 4)[seed % 3], lanes=(32, 64, 8)[seed // 3 % 3],
        seed=seed, disabled=disabled, features=ahead,
    )  # fmt: skip


def on_amd(launch: Program, module: Module, args: list[Any], seed: int) -> None:
    arch = AMD_PROCESSORS[seed % len(AMD_PROCESSORS)]
    amd.execute(arch, module, launch.grid, args, num_warps=(4, 1, 2)[seed // 7 % 3])


def check_forms(seed: int) -> set[str]:
    """On the CPU."""
    return check_computation(seed, (on_cpu,))


def check_forms_emulated(seed: int) -> set[str]:
    """On an emulated GPU and an emulated AMD processor."""
    return check_computation(seed, (emulated, on_amd))
