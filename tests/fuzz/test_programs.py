"""Random programs, as their authors would write them, leave the same memory on CPU and interpreter.

Each is a module of Python with a kernel, drawn from the whole language (`programs/program.py`). A
failing one is made smaller and shown as a script. Many at once, by all cores, are run by

    python -m tests.fuzz.programs.run --count=20000 --processes=16
"""

from __future__ import annotations

from tests.fuzz.programs.check import check, failure
from tests.fuzz.programs.program import random_program
from tests.fuzz.programs.shrink import shrink


def test_random_program_agrees(fuzz_seed: int) -> None:
    text = random_program(fuzz_seed)
    found = failure(text)
    if found is None:
        return
    small = shrink(text, lambda t: failure(t) == found, seconds=30)
    print(small)
    check(small)
    check(text)


def test_program_is_a_function_of_its_seed(fuzz_seed: int) -> None:
    assert random_program(fuzz_seed) == random_program(fuzz_seed)
