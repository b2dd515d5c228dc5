"""Random programs in batches: a test of one fuzz seed runs several, and reports all that fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor

import pytest

from tests.gpu.harness import Ahead, Preparable, run

BATCH = 10  # programs of one fuzz seed
AHEAD = 8  # fuzz seeds whose programs are prepared in advance

JobOf = Callable[[int], Preparable]


def batch(job_of: JobOf, fuzz_seed: int) -> list[Preparable]:
    """The jobs of a fuzz seed, by their own seeds."""
    return [job_of(fuzz_seed * BATCH + i) for i in range(BATCH)]


def batches_ahead(job_of: JobOf, pool: Executor, request: pytest.FixtureRequest) -> Ahead:
    """Prepares the jobs of all fuzz seeds of the session."""
    first, count = request.config.option.fuzz_seed, request.config.option.fuzz_count
    jobs = [job for seed in range(first, first + count) for job in batch(job_of, seed)]
    return Ahead(pool, jobs, AHEAD * BATCH)


def run_all(jobs: Sequence[Preparable], ahead: Ahead) -> None:
    """Raise AssertionError with what failed, after all have run."""
    problems: list[str] = []
    for job in jobs:
        try:
            run(ahead.get(job))
        except AssertionError as error:
            problems.append(str(error))
    assert not problems, "\n".join(problems)
