"""Random kernels that access several arrays, launched again with arrays that share other memory.

The order of a load and a store matters only if their arrays overlap. A variant that was compiled
for arrays that are apart, or that overlap in another way, must not run for these. Programs of
`program.py` seldom show it: most of their arrays are apart, and each is accessed a few times.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.arrays import aligned, copied
from tests.fuzz.programs.check import Difference, build, compare, load, ops_of
from tests.gpu.programs import EXACT, Program
from tilewright.ir.interpret import interpret

LAUNCHES = 5
SIZES = (4, 7, 8, 16, 24, 32, 64, 100)
TYPES = ("int8", "int16", "int32", "int64", "uint32")

Pattern = list[tuple[int, int]]
"""For each array, the memory it is in, and the index of its first element there."""


def aliased_program(seed: int) -> str:
    """The source of a kernel of two to four arrays, with `N` elements of each accessed at once."""
    rng = random.Random(seed)
    arrays = [f"p{i}" for i in range(rng.randint(2, 4))]
    lines = ["i = tl.arange(0, N)", f"v0 = tl.load({rng.choice(arrays)} + i)"]
    values = ["v0"]
    for _ in range(rng.randint(3, 9)):
        if rng.random() < 0.2:
            lines.append(f"for k in range({rng.randint(2, 4)}):")
            held = [*values]  # what a loop assigns first is not visible after it
            body = [_access(rng, arrays, held, " + k") for _ in range(rng.randint(2, 4))]
            lines += [f"    {line}" for line in body]
        else:
            lines.append(_access(rng, arrays, values, ""))
    lines.append(f"tl.store({rng.choice(arrays)} + i, {values[-1]})")
    body = "\n".join(f"    {line}" for line in lines)
    parameters = ", ".join(arrays)
    return (
        "import tilewright as tw\nimport tilewright.language as tl\n\n\n"
        f"@tw.jit\ndef kernel({parameters}, N: tl.constexpr):\n{body}\n"
    )


def _access(rng: random.Random, arrays: Sequence[str], values: list[str], moved: str) -> str:
    """A load, which adds to `values`, or a store."""
    shift = rng.choice(("", "", " + 1", " + 4", " + 8", " + N // 2"))
    place = rng.choice((f"i{shift}", f"i{shift}", "N - 1 - i", "i * 2"))
    pointer = f"{rng.choice(arrays)} + ({place}{moved})"
    mask = f", i < {rng.randint(1, 64)}" if rng.random() < 0.2 else ""
    if rng.random() < 0.5:
        name = f"v{len(values)}"
        values.append(name)
        return f"{name} = tl.load({pointer}{mask}{', 0' if mask else ''})"
    x, y = rng.choice(values), rng.choice(values[-3:])
    forms = (f"{x}", f"{x} + {y}", f"{x} * 3 - {y}", f"{x} ^ tl.flip({y}, 0)", f"{x} + tl.sum({y})")
    return f"tl.store({pointer}, {rng.choice(forms)}{mask})"


def check_aliased(seed: int) -> set[str]:
    """Launch the kernel with arrays in several alias patterns; compare with the interpreter."""
    text = aliased_program(seed)
    kernel = load(text).kernel
    rng = np.random.default_rng(seed)
    n, type = int(rng.choice(SIZES)), str(rng.choice(TYPES))
    count = len(kernel.arg_names) - 1
    reached: set[str] = set()
    for number in range(LAUNCHES):
        pattern = _pattern(rng, count, n, apart=number == seed % 2)
        args = _arrays(rng, pattern, n, type)
        launch = Program(kernel, args, {"N": n}, (1, 1, 1))
        module, values = build(launch)
        expected = copied(values)
        interpret(module, launch.grid, expected)
        kernel[launch.grid](*args, N=n, **EXACT)
        try:
            compare(args, expected, launch, f"launch {number}")
        except Difference as error:
            raise Difference(f"{error}\nN = {n}, {type}, arrays at {pattern} of:\n{text}") from None
        reached |= ops_of(module)
    return reached


def length_of(n: int) -> int:
    """Elements of an array: more than the last that a kernel accesses."""
    return 2 * n + 16


def _pattern(rng: np.random.Generator, count: int, n: int, apart: bool) -> Pattern:
    """Where the arrays are: all apart, or some in one memory: equal, shifted, or side by side.

    Most shifts keep the alignment, so that nothing but the overlap distinguishes the launches.
    """
    if apart:
        return [(i, 0) for i in range(count)]
    shifts = (0, 0, 16, 16, 32, 1, n // 2, length_of(n) // 16 * 16 + 16)
    memory = [int(rng.integers(0, max(1, count - 1))) for _ in range(count)]
    return [(m, int(rng.choice(shifts))) for m in memory]


def _arrays(rng: np.random.Generator, pattern: Pattern, n: int, type: str) -> list[Any]:
    size = 3 * length_of(n) + 64
    memories = {
        m: aligned(rng.integers(0, 100, size).astype(type)) for m in sorted({m for m, _ in pattern})
    }
    return [memories[m][start : start + length_of(n)] for m, start in pattern]
