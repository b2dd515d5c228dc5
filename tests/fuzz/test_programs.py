"""Random programs, as their authors would write them, leave the same memory on every target.

Each is a module of Python with a kernel, drawn from the whole language (`programs/program.py`). A
failing one is made smaller and shown as a script. Many at once, by all cores, are run by

    python -m tests.fuzz.run --programs=20000 --processes=16
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable

import pytest

from tests.fuzz.programs.check import (
    build,
    check,
    check_amd,
    check_emulated,
    check_laid_out,
    check_launched,
    failure,
    launch_of,
    load,
)
from tests.fuzz.programs.mutate import mutated
from tests.fuzz.programs.program import random_program
from tests.fuzz.programs.relaunch import check_relaunched
from tests.fuzz.programs.shrink import shrink
from tilewright.base.diagnostics import CompilationError

SHRINKING = 60.0  # seconds


def agrees(text: str, check: Callable[[str], object]) -> None:
    """Check the program; show a small one that fails alike."""
    found = failure(text, check)
    if found is not None:
        small = shrink(text, lambda t: failure(t, check) == found, SHRINKING)
        print(small)
        check(small)
        pytest.fail(f"{found}, which the smaller program does not show every time")


def test_random_program_agrees_on_the_cpu(fuzz_seed: int) -> None:
    agrees(random_program(fuzz_seed), check)


def test_random_program_agrees_when_launched(fuzz_seed: int) -> None:
    if fuzz_seed % 4 == 0:
        agrees(random_program(fuzz_seed), check_launched)


def test_random_program_agrees_on_an_emulated_gpu(fuzz_seed: int) -> None:
    if fuzz_seed % 5 == 0:  # the emulator is slow
        agrees(random_program(fuzz_seed), check_emulated)


def test_random_program_agrees_on_an_emulated_amd_processor(fuzz_seed: int) -> None:
    if fuzz_seed % 5 == 3:
        agrees(random_program(fuzz_seed), check_amd)


def test_random_program_agrees_when_launched_again(fuzz_seed: int) -> None:
    if fuzz_seed % 5 == 1:
        agrees(random_program(fuzz_seed), check_relaunched)


def test_random_program_agrees_after_the_passes_for_gpus(fuzz_seed: int) -> None:
    if fuzz_seed % 5 == 2:
        agrees(random_program(fuzz_seed), check_laid_out)


def test_wrong_program_has_a_clear_error(fuzz_seed: int) -> None:
    """What is not the language any more compiles, or is a CompilationError: nothing else."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of wrong programs many are dubious, too
        text = mutated(random_program(fuzz_seed), fuzz_seed)
        print(text)
        try:
            launch = launch_of(load(text))
        except SyntaxError:
            return
        with contextlib.suppress(CompilationError):
            build(launch)
