"""Launches a program several times with other arguments, of which each needs a variant that fits.

A variant is compiled for what its key says of the arguments: which integers are 1 or divisible,
which arrays are aligned, which share memory. What a variant assumes must not be applied to a launch
of another key.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nan
from types import ModuleType
from typing import Any

import numpy as np

from tests.arrays import copied
from tests.fuzz.programs.check import (
    arguments,
    arrays_of,
    as_passed,
    build,
    compare,
    load,
    ops_of,
)
from tests.gpu.programs import EXACT, Program
from tilewright.ir.interpret import interpret

LAUNCHES = 4

VALUES: dict[str, tuple[Any, ...]] = {
    "n": (2, 3, 16, 17, 32, 40),
    "m": (2**33, 2**33 + 16, 2**33 + 1),  # of 64 bits, as the program takes it
    "z": (0, 16, -32, 7, 2**31 - 1),
    "f": (0.5, -3.0, 1.0, 0.0),
    "flag": (True, False),
    "e": (-(2**31), 2**31 - 1, -1, 0, 16),
    "w": (-(2**63), 2**63 - 1, 2**40, 2**40 + 1),
    "g": (inf, nan, -0.0, 1.0),
}
"""Values of the numbers that a program takes; their types stay the same."""


def check_relaunched(text: str) -> set[str]:
    """Launch the program with several sets of arguments, and compare each with the interpreter."""
    # On the CPU a program is one thread, which needs no barriers. They would order accesses,
    # whatever a variant assumes of the arrays.
    program = load(text.replace("tl.debug_barrier()", "pass"))
    rng = np.random.default_rng(program.SEED)
    reached = {*program.REACHED}
    for number, args in enumerate(_argument_sets(program, rng)):
        launch = Program(program.kernel, args, program.CONSTEXPRS, program.GRID)
        module, values = build(launch)
        expected = copied(values)
        interpret(module, launch.grid, expected)
        passed = [as_passed(value) for value in args]
        program.kernel[launch.grid](*passed, **program.CONSTEXPRS, **EXACT)
        compare(arrays_of(args), arrays_of(expected), launch, f"launch {number}")
        reached |= ops_of(module)
    return reached


def _argument_sets(program: ModuleType, rng: np.random.Generator) -> Iterator[list[Any]]:
    yield arguments(program)
    for _ in range(LAUNCHES - 1):
        given = dict(zip(program.ARGS, arguments(program), strict=True))
        for name, value in given.items():
            if isinstance(value, np.ndarray):
                other = program.ARGS[name].partition(" = ")[2].partition("[")[0]
                if other and rng.random() < 0.5:  # still a part of the other array
                    start = len(given[other]) - len(value)
                    given[name] = given[other][start:]
                else:
                    given[name] = _misaligned(value, int(rng.integers(0, 9)))
            elif name in VALUES:
                given[name] = VALUES[name][rng.integers(len(VALUES[name]))]
        yield [*given.values()]


def _misaligned(array: np.ndarray, shift: int) -> np.ndarray:
    """A copy that begins `shift` elements after an aligned address, more or less."""
    room = np.empty(len(array) + shift, array.dtype)
    room[shift:] = array
    return room[shift:]
