"""Random loops of products leave the same memory on a GPU and in the interpreter.

pytest tests/gpu/test_products.py --fuzz-count=500 --fuzz-seed=random    # 5,000 of them
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass

import pytest

from tests.fuzz.products import random_options, random_products
from tests.gpu.harness import Ahead, run
from tests.gpu.programs import Prepared, prepare

BATCH = 10  # programs of one fuzz seed
AHEAD = 8  # fuzz seeds whose programs are prepared in advance


@dataclass(frozen=True)
class ProductJob:
    """A random loop of products, with random options."""

    seed: int

    @property
    def name(self) -> str:
        return f"products of seed {self.seed}"

    def prepare(self) -> Prepared:
        options = random_options(self.seed)
        return prepare(random_products(self.seed), f"{self.name}, {options}", options)


def jobs_of(fuzz_seed: int) -> list[ProductJob]:
    return [ProductJob(fuzz_seed * BATCH + i) for i in range(BATCH)]


@pytest.fixture(scope="module")
def ahead(pool: Executor, request: pytest.FixtureRequest) -> Ahead:
    first, count = request.config.option.fuzz_seed, request.config.option.fuzz_count
    jobs = [job for seed in range(first, first + count) for job in jobs_of(seed)]
    return Ahead(pool, jobs, AHEAD * BATCH)


@pytest.mark.gpu
def test_random_products_agree(fuzz_seed: int, ahead: Ahead) -> None:
    """All of a batch run, and failures are reported together."""
    problems: list[str] = []
    for job in jobs_of(fuzz_seed):
        try:
            run(ahead.get(job))
        except AssertionError as error:
            problems.append(str(error))
    assert not problems, "\n".join(problems)


def test_random_products_compile(fuzz_seed: int) -> None:
    """Without a GPU: what the test above runs compiles, with all its options."""
    prepared = jobs_of(fuzz_seed)[fuzz_seed % BATCH].prepare()
    assert prepared.kernel.asm["cubin"]
