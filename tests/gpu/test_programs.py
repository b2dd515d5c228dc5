"""Random programs of the whole language leave the same memory on a GPU and in the interpreter.

Other processes write, compile and interpret them; this one runs them:

    pytest tests/gpu/test_programs.py --fuzz-count=300 --fuzz-seed=random    # 3,000 of them
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
import pytest

from tests.fuzz.programs.check import launch_of, load
from tests.fuzz.programs.program import random_program
from tests.gpu.batches import BATCH, batch, batches_ahead, run_all
from tests.gpu.harness import Ahead
from tests.gpu.programs import Prepared, prepare


@dataclass(frozen=True)
class ProgramJob:
    """A random program, with random options."""

    seed: int

    @property
    def name(self) -> str:
        return f"program of seed {self.seed}"

    def prepare(self) -> Prepared:
        rng = np.random.default_rng(self.seed)
        options = {
            "num_warps": int(rng.choice((1, 2, 4, 8))),
            "num_stages": int(rng.integers(1, 5)),
        }
        launch = launch_of(load(random_program(self.seed, aliases=False)))
        return prepare(launch, f"{self.name}, {options}", options)


@pytest.fixture(scope="module")
def ahead(pool: Executor, request: pytest.FixtureRequest) -> Ahead:
    return batches_ahead(ProgramJob, pool, request)


@pytest.mark.gpu
def test_random_programs_agree(fuzz_seed: int, ahead: Ahead) -> None:
    run_all(batch(ProgramJob, fuzz_seed), ahead)


def test_random_programs_compile(fuzz_seed: int) -> None:
    """Without a GPU: what the test above runs compiles, with all its options."""
    prepared = batch(ProgramJob, fuzz_seed)[fuzz_seed % BATCH].prepare()
    assert prepared.kernel.asm["cubin"]
