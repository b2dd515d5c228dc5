"""Worker processes that compile and interpret while this process runs kernels."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor

import pytest

from tests.gpu.harness import processes


@pytest.fixture(scope="session")
def pool() -> Iterator[Executor]:
    """A pool of fresh processes: a forked one could not use what this one has loaded."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes(), mp_context=context) as made:
        yield made
        made.shutdown(cancel_futures=True)
