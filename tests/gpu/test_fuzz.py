"""Random kernels leave the same memory on a GPU and in the interpreter.

Other processes make, compile and interpret them; this one runs them, a few thousand in a minute:

    pytest tests/gpu/test_fuzz.py --fuzz-count=200 --fuzz-seed=random
"""

from __future__ import annotations

import tempfile
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.fuzz.assembly import random_assembly
from tests.fuzz.forms.check import FORMS
from tests.fuzz.forms.computation import random_computation
from tests.fuzz.forms.kernel import program_of
from tests.fuzz.ir_generator import GRID, Features, random_args, random_module
from tests.fuzz.programs.check import launch_of, load
from tests.fuzz.programs.program import random_program
from tests.gpu.batches import BATCH, batch, batches_ahead, run_all
from tests.gpu.harness import Ahead
from tests.gpu.programs import EXACT, HOPPER, At, Prepared, prepare
from tilewright.compiler.driver import compile
from tilewright.compiler.source import IRSource
from tilewright.ir.interpret import interpret
from tilewright.ir.memory import Checks
from tilewright.ir.printer import print_module

FEATURES = Features(math=False, float_dot=False, float_sums=False, races=False, aliases=False)


@dataclass(frozen=True)
class FuzzJob:
    """A random kernel, with random options and arguments."""

    seed: int

    @property
    def name(self) -> str:
        return f"kernel of seed {self.seed}"

    def prepare(self) -> Prepared:
        rng = np.random.default_rng(self.seed)
        module = random_module(rng, size=int(rng.integers(5, 60)), features=FEATURES)
        args = random_args(module, rng)
        warps, stages = int(rng.choice((1, 2, 4, 8, 16))), int(rng.integers(1, 6))
        options: dict[str, Any] = {**EXACT, "num_warps": warps, "num_stages": stages}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "kernel.ir"
            path.write_text(print_module(module), "utf-8")
            kernel = compile(IRSource(path), HOPPER, options)
        copies = [a.copy() for a in args]
        interpret(module, GRID, copies, checks=Checks(races=True))
        arrays = [_is_array(a) for a in args]
        prepared = [
            At(a) if is_array else a.item() for a, is_array in zip(args, arrays, strict=True)
        ]
        expected = [c for c, is_array in zip(copies, arrays, strict=True) if is_array]
        return Prepared(f"{self.name}, {options}", kernel, prepared, (GRID,), expected, None)


@dataclass(frozen=True)
class FormJob:
    """A form of a random computation, with random options."""

    seed: int

    @property
    def name(self) -> str:
        return f"form of computation {self.seed}"

    def prepare(self) -> Prepared:
        rng = np.random.default_rng(self.seed)
        made = random_computation(self.seed)
        _, program = program_of(made, int(rng.integers(FORMS)), [m.array for m in made.matrices])
        shift = int(rng.choice((0, 0, 1)))
        args = [At(a, shift) if _is_array(a) else a for a in program.args]
        options = {
            "num_warps": int(rng.choice((1, 2, 4, 8))),
            "num_stages": int(rng.integers(1, 5)),
        }
        return prepare(replace(program, args=args), f"{self.name}, {options}", options)


@dataclass(frozen=True)
class ProgramJob:
    """A random program, with random options."""

    seed: int

    @property
    def name(self) -> str:
        return f"random program {self.seed}"

    def prepare(self) -> Prepared:
        rng = np.random.default_rng(self.seed)
        program = launch_of(load(random_program(self.seed, aliases=False)))
        options = {
            "num_warps": int(rng.choice((1, 2, 4, 8))),
            "num_stages": int(rng.integers(1, 5)),
        }
        return prepare(program, f"{self.name}, {options}", options)


@dataclass(frozen=True)
class AssemblyJob:
    """A random kernel with inline assembly, of so many warps."""

    seed: int

    @property
    def name(self) -> str:
        return f"assembly {self.seed}"

    def prepare(self) -> Prepared:
        options = {"num_warps": (4, 1, 2, 8)[self.seed % 4]}
        return prepare(random_assembly(self.seed), f"{self.name}, {options}", options)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim > 0


@pytest.fixture(scope="module")
def ahead(pool: Executor, request: pytest.FixtureRequest) -> Ahead:
    return batches_ahead(FuzzJob, pool, request)


@pytest.fixture(scope="module")
def forms_ahead(pool: Executor, request: pytest.FixtureRequest) -> Ahead:
    return batches_ahead(FormJob, pool, request)


@pytest.fixture(scope="module")
def programs_ahead(pool: Executor, request: pytest.FixtureRequest) -> Ahead:
    return batches_ahead(ProgramJob, pool, request)


@pytest.fixture(scope="module")
def assembly_ahead(pool: Executor, request: pytest.FixtureRequest) -> Ahead:
    return batches_ahead(AssemblyJob, pool, request)


@pytest.mark.gpu
def test_random_assembly_computes_what_numpy_does(fuzz_seed: int, assembly_ahead: Ahead) -> None:
    run_all(batch(AssemblyJob, fuzz_seed), assembly_ahead)


@pytest.mark.gpu
def test_random_programs_agree(fuzz_seed: int, programs_ahead: Ahead) -> None:
    run_all(batch(ProgramJob, fuzz_seed), programs_ahead)


@pytest.mark.gpu
def test_forms_of_random_computations_agree(fuzz_seed: int, forms_ahead: Ahead) -> None:
    run_all(batch(FormJob, fuzz_seed), forms_ahead)


@pytest.mark.gpu
def test_random_kernels_agree(fuzz_seed: int, ahead: Ahead) -> None:
    run_all(batch(FuzzJob, fuzz_seed), ahead)


def test_random_kernels_compile(fuzz_seed: int) -> None:
    """Without a GPU: what the test above runs compiles, with all its options."""
    prepared = batch(FuzzJob, fuzz_seed)[fuzz_seed % BATCH].prepare()
    assert prepared.kernel.asm["cubin"]


def test_random_assembly_compiles(fuzz_seed: int) -> None:
    """ptxas accepts the text, with registers of the types that it names."""
    prepared = batch(AssemblyJob, fuzz_seed)[fuzz_seed % BATCH].prepare()
    assert prepared.kernel.asm["cubin"]
