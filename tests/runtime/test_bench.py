"""Measuring: the loop with a clock that is made up, real time on the CPU, events of a driver that
only records."""

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.runtime.fake_cuda import FakeCuda, Gpu
from tilewright.runtime import bench, driver
from tilewright.runtime.bench import clock_of, default_device, do_bench, do_bench_cudagraph
from tilewright.runtime.clocks import WallClock
from tilewright.runtime.drivers.cuda import CudaDriver
from tilewright.runtime.measure import HICCUP_MS, LOOK_MS, measure, quantile, summarize


class FakeClock:
    """A clock on which a function takes the times of a list, the last of them from then on."""

    is_devices_own = True

    def __init__(self, *times: float) -> None:
        self.times = list(times)
        self.now = 0.0
        self.runs = self.flushes = 0

    def run(self) -> None:
        at = min(self.runs, len(self.times) - 1)
        self.now += self.times[at]
        self.runs += 1

    def is_capturing(self) -> bool:
        return False

    def mark(self) -> float:
        return self.now

    def elapsed(self, start: float, end: float) -> float:
        return end - start

    def synchronize(self) -> None: ...

    def flush(self) -> None:
        self.flushes += 1


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    made = FakeCuda([Gpu(), Gpu()])
    made.install(monkeypatch)
    yield made
    assert not made.faults


def test_first_run_does_not_count() -> None:
    clock = FakeClock(1000.0, 2.0)
    times = measure(clock.run, clock, 0, 0)
    assert times == [2.0]
    assert clock.runs == 2


def test_each_counted_run_finds_the_cache_cleared() -> None:
    clock = FakeClock(0.5)
    times = measure(clock.run, clock, 0.5, 1.0)
    assert set(times) == {0.5}
    assert clock.flushes >= len(times)


@pytest.mark.parametrize(
    ("times", "runs"),
    [
        ((1.0, HICCUP_MS + 1), 2),  # one run that is far too slow
        ((1.0, LOOK_MS + 1), 3),  # two that are too slow
        ((1.0, 2.0), 6),  # five runs that are too slow, and long enough to be believed
    ],
)
def test_slow_function_is_abandoned(times: tuple[float, ...], runs: int) -> None:
    clock = FakeClock(*times)
    measure(clock.run, clock, 25, 100, limit=1.0)
    assert clock.runs == runs


def test_one_slow_run_is_not_conclusive() -> None:
    clock = FakeClock(0.1, 2 * LOOK_MS, 0.1)
    times = measure(clock.run, clock, 1, 4, limit=0.1)
    assert len(times) > 6
    assert max(times) == pytest.approx(0.1)


@pytest.mark.parametrize("times", [(0.1, 50.0, 0.1), (0.1, 0.2)])
def test_disturbed_or_short_function_is_not_abandoned(times: tuple[float, ...]) -> None:
    clock = FakeClock(*times)
    measure(clock.run, clock, 0.01, 0.01, limit=0.1)
    assert clock.runs == 2 or clock.runs > 6


def test_setup_is_called_for_each_run_and_not_measured() -> None:
    clock = FakeClock(2.0)
    calls: list[int] = []

    def before() -> None:
        calls.append(1)
        clock.now += 100.0

    assert set(measure(clock.run, clock, 0.1, 5.0, before=before)) == {2.0}
    assert len(calls) == clock.runs - 1


def test_statistics() -> None:
    times = [3.0, 1.0, 2.0, 10.0]
    assert summarize(times, (0.5, 0.0, 1.0)) == [2.5, 1.0, 10.0]
    assert summarize(times, [0.5]) == 2.5
    modes = {mode: summarize(times, None, mode) for mode in ("min", "max", "mean", "median", "all")}
    assert modes == {"min": 1.0, "max": 10.0, "mean": 4.0, "median": 2.5, "all": times}


@pytest.mark.parametrize("q", [0.0, 0.2, 0.37, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("count", [1, 2, 5, 100])
def test_quantiles_equal_those_of_numpy(q: float, count: int) -> None:
    times = np.random.default_rng(count).exponential(size=count).tolist()
    assert quantile(times, q) == pytest.approx(float(np.quantile(times, q)), rel=1e-12)


def test_cpu_time_is_wall_clock_time() -> None:
    ms = do_bench(lambda: time.sleep(0.004), warmup=4, rep=40, return_mode="min", device="cpu")
    assert 4 <= ms < 4000  # milliseconds, however busy the machine is


def test_unknown_mode_is_rejected() -> None:
    with pytest.raises(AssertionError):
        do_bench(lambda: None, return_mode="average")


def test_gradients_are_cleared() -> None:
    tensor = SimpleNamespace(grad=1)
    seen: list[Any] = []

    def run() -> None:
        seen.append(tensor.grad)
        tensor.grad = 2

    do_bench(run, warmup=0, rep=0, grad_to_none=[tensor])
    assert seen == [1, None]


def test_graphs_on_the_cpu_are_plain_runs() -> None:
    assert do_bench_cudagraph(lambda: None, rep=1, return_mode="median") < 1


# -- GPUs -----------------------------------------------------------------------------------------


def test_events_measure_on_the_device(fake: FakeCuda) -> None:
    times = do_bench(lambda: None, warmup=1, rep=2, return_mode="all", device="cuda:1")
    assert set(times) == {0.5}
    assert not fake.events  # all are destroyed
    flushes = fake.calls.count("cuMemsetD32Async")
    assert flushes >= len(times)
    assert fake.freed == list(fake.allocated)
    assert list(fake.allocated.values()) == [256 << 20]


def test_failing_function_leaks_nothing(fake: FakeCuda) -> None:
    def fail() -> None:
        if fake.calls.count("cuEventCreate") > 4:
            raise ArithmeticError("run")

    with pytest.raises(ArithmeticError, match="run"):
        do_bench(fail, warmup=1, rep=50, device="cuda:0")
    assert not fake.events
    assert fake.freed == list(fake.allocated)


def test_saved_bytes_are_restored(fake: FakeCuda) -> None:
    tensor = np.arange(64, dtype=np.uint8)
    fake.memory[0x9000] = tensor
    saved = CudaDriver().save_memory(1, 0x9010, 16)
    tensor[:] = 0
    saved.restore()
    saved.free()
    assert tensor.tolist() == [0] * 16 + list(range(16, 32)) + [0] * 32
    assert fake.freed == [address for address in fake.allocated]
    assert CudaDriver().free_memory(0) == 100 << 30


def test_device_is_that_of_the_active_driver(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert default_device() == "cpu"
    cuda = SimpleNamespace(is_initialized=lambda: True, current_device=lambda: 1)
    monkeypatch.setattr(
        bench, "sys", SimpleNamespace(modules={"torch": SimpleNamespace(cuda=cuda)})
    )
    assert default_device() == "cuda:1"
    driver.set_active(driver.driver_of("cpu"))  # explicit, so it counts
    try:
        assert default_device() == "cpu"
        driver.set_active(CudaDriver())
        assert default_device() == "cuda:0"
    finally:
        driver.reset_active()


def test_driver_of_a_plug_in_is_synchronized(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []
    interface = SimpleNamespace(synchronize=lambda: waits.append(1))
    other: Any = SimpleNamespace(
        device_type="other", get_current_device=lambda: 0, get_device_interface=lambda: interface
    )
    driver.set_active(other)
    try:
        clock = clock_of("other:0")
        assert isinstance(clock, WallClock)
        with clock as entered:
            entered.elapsed(entered.mark(), entered.mark())
        assert len(waits) == 2
    finally:
        driver.reset_active()
