"""Launches and compilations do not leak memory; `python -m benchmarks.memory` runs many more."""

from collections.abc import Iterator

import pytest

from benchmarks import memory
from tilewright.base import knobs


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with knobs.cache.scope(), knobs.autotuning.scope():
        knobs.cache.dir = str(tmp_path_factory.mktemp("cache"))
        knobs.autotuning.workers = 0
        yield


def test_launches_leak_no_memory() -> None:
    for what, work in memory.launches().items():
        found = memory.growth(work, 200, 4000)
        # An object or a block of 16 bytes for each launch would show.
        assert found.blocks < 400, what
        assert found.kib < 60, what


def test_compilations_leak_no_memory() -> None:
    found = memory.growth(memory.compile_one, 70, 64)
    # 20 KiB for each was what LLVM kept of its passes and of linked code.
    assert found.kib < 640
    assert found.blocks < 64 * 20
