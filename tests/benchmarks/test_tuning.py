"""The benchmark of autotuning counts compilations and measurements, and uses the minimum time."""

from collections.abc import Iterator

import pytest

import tilewright as tw
from benchmarks import tuning
from benchmarks.gpu import dialect
from tilewright.base import knobs


@pytest.fixture(autouse=True)
def own_settings(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    monkeypatch.setitem(tuning.SIZES, "cpu", 128)
    with knobs.cache.scope(), knobs.autotuning.scope(), knobs.compilation.scope():
        knobs.cache.dir = str(tmp_path_factory.mktemp("cache"))
        yield


def test_second_run_compiles_and_measures_nothing() -> None:
    dialect.load.cache_clear()
    cold = tuning.tune("tilewright", "cpu", 2)
    assert (cold["compiled"], cold["measured"], cold["failed"]) == (2, 2, 0)
    dialect.load.cache_clear()  # the kernel as a new process has it
    warm = tuning.tune("tilewright", "cpu", 2)
    assert (warm["compiled"], warm["measured"]) == (0, 0)
    assert warm["best"] == cold["best"]


def test_least_time_of_the_runs_that_ended() -> None:
    runs = [
        {"seconds": 3.0, "warm": {"seconds": 0.2}},
        {"why": "ended", "warm": {"why": "ended"}},
        {"seconds": 2.0, "warm": {"seconds": 0.3}},
    ]
    assert tuning.least(runs) == 2.0
    assert tuning.least(runs, warm=True) == 0.2


def test_configurations_differ() -> None:
    for device in tuning.SIZES:
        assert len(set(map(str, tuning.configurations(device, 24, tw)))) == 24
