"""Configurations are compiled once each, in parallel, and measured as they become available."""

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from tests.runtime.tuned import SIZE, add_one, blocks, grid, tuned
from tilewright.base import knobs
from tilewright.compiler.build import elsewhere
from tilewright.runtime.clocks import WallClock
from tilewright.runtime.config import Config
from tilewright.runtime.tuning import compile_all
from tilewright.runtime.tuning.compile_all import EARLY_CONFIGS, Compiling

MANY = blocks(*(1 << n for n in range(EARLY_CONFIGS + 2)))


class Crew:
    """A pool whose workers are ready when the test lets them be."""

    def __init__(self) -> None:
        self.idle = 0
        self.started = 0
        self.ready = threading.Event()
        self.lowered: list[Any] = []

    def start(self, device: Any, options: Any) -> None:
        self.started += 1
        assert self.ready.wait(20)

    def lower(self, module: Any, device: Any, options: Any) -> str:
        self.lowered.append(module)
        return "code"


@pytest.fixture
def crew(monkeypatch: pytest.MonkeyPatch) -> Iterator[Crew]:
    made = Crew()
    monkeypatch.setattr(compile_all.workers, "shared_pool", lambda: made)
    monkeypatch.setattr(compile_all, "_cores", lambda: 4)
    with knobs.autotuning.scope():
        knobs.autotuning.workers = -1
        yield made
    made.ready.set()


class Compiler:
    """Records where configurations were compiled, by the process that lowers the module."""

    def __init__(self) -> None:
        self.here: list[Config] = []
        self.there: list[Config] = []

    def __call__(self, config: Config) -> None:
        if config.kwargs["BLOCK"] == 2:
            raise ValueError("two is wrong")
        lower: Any = elsewhere.lower
        there = lower(config, "device", "options") if lower else None
        (self.there if there else self.here).append(config)
        time.sleep(0.01)  # for threads to start meanwhile


def compiled(configs: Sequence[Config], compiler: Compiler, early: bool) -> dict[Config, Any]:
    with Compiling(configs, compiler, early=early) as compiling:
        return dict(compiling)


@pytest.mark.parametrize("early", [False, True])
def test_each_is_compiled_once(crew: Crew, early: bool) -> None:
    compiler = Compiler()
    crew.ready.set()
    done = compiled(MANY, compiler, early)
    assert set(done) == set(MANY)
    assert [type(error) for error in done.values() if error] == [ValueError]
    both = compiler.here + compiler.there
    assert len(both) == len(set(both)) == len(MANY) - 1
    assert crew.lowered == compiler.there


def test_this_process_compiles_until_workers_have_started(crew: Crew) -> None:
    compiler = Compiler()
    with Compiling(MANY, compiler, early=True) as compiling:
        done = list(compiling)
        crew.ready.set()
    assert len(done) == len(MANY)
    assert crew.started == 3  # one core is this process's
    assert compiler.there == []


def test_few_quick_compilations_start_no_process(crew: Crew) -> None:
    for configs, early in ((MANY, False), (MANY[:EARLY_CONFIGS], True)):
        compiled(configs[-4:], Compiler(), early)
    assert crew.started == 0


def test_slow_compilations_start_processes(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_all, "WORTH_SECONDS", 0.0)
    crew.ready.set()
    compiler = Compiler()
    compiled(MANY, compiler, early=False)
    assert compiler.here[0] is MANY[0]
    assert len(compiler.here) >= 2  # the first is not representative: it loads the compiler
    assert crew.started == 3


def test_workers_that_wait_are_not_started_again(crew: Crew) -> None:
    crew.idle = 2
    crew.ready.set()
    compiled(MANY, Compiler(), early=True)
    assert crew.started <= 1


def test_cancellation_starts_no_new_work(crew: Crew) -> None:
    compiler = Compiler()

    def interrupted() -> None:
        with Compiling(MANY, compiler, early=True) as compiling:
            next(iter(compiling))
            crew.ready.set()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(compiler.here + compiler.there) < len(MANY)
    assert not any(thread.name == "tilewright-compile" for thread in threading.enumerate())


# -- measured as they come ------------------------------------------------------------------------


class DeviceClock(WallClock):
    is_devices_own = True


@pytest.mark.parametrize("own", [False, True])
def test_the_device_clock_measures_while_workers_compile(
    own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    clock = DeviceClock() if own else WallClock()
    monkeypatch.setattr("tilewright.runtime.tuning.search.clock_of", lambda device: clock)
    attempt = Compiling._attempt

    def noted(self: Compiling, config: Config) -> Any:
        events.append("compiled")
        return attempt(self, config)

    def measured(*args: Any, **kwargs: Any) -> list[float]:
        events.append("measured")
        return [1.0]

    monkeypatch.setattr(Compiling, "_attempt", noted)
    monkeypatch.setattr("tilewright.runtime.tuning.search.measure", measured)
    with knobs.autotuning.scope():
        knobs.autotuning.workers = 0
        knobs.autotuning.cache = False
        kernel = tuned(add_one, blocks(16, 32))
        kernel[grid](np.zeros(SIZE, np.float32), np.zeros(SIZE, np.float32), SIZE)
    apart = ["compiled", "compiled", "measured", "measured"]
    assert events[:4] == (["compiled", "measured"] * 2 if own else apart)
    assert list(kernel.configs_timings) == kernel.configs


def test_disturbed_measurements_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """If its fastest runs are near the best; a configuration that is far slower is not."""
    monkeypatch.setattr("tilewright.runtime.tuning.search.clock_of", lambda device: DeviceClock())
    monkeypatch.setattr(Compiling, "is_busy", property(lambda self: len(seen) < 3))
    monkeypatch.setattr("tilewright.runtime.tuning.search.CONTENDER", 1.0)
    first = {16: [2.0], 32: [9.0, 2.1, 9.0, 2.1, 9.0, 9.0], 64: [9.0]}
    seen: list[int] = []

    def measured(run: Any, *args: Any, **kwargs: Any) -> list[float]:
        block = run.keywords["BLOCK"]
        seen.append(block)
        return first[block] if seen.count(block) == 1 else [1.0]

    monkeypatch.setattr("tilewright.runtime.tuning.search.measure", measured)
    with knobs.autotuning.scope():
        knobs.autotuning.workers = 0
        knobs.autotuning.cache = False
        kernel = tuned(add_one, blocks(16, 32, 64))
        kernel[grid](np.zeros(SIZE, np.float32), np.zeros(SIZE, np.float32), SIZE)
    assert seen[:3] == [16, 32, 64]
    assert 64 not in seen[3:]
    assert {16, 32} <= set(seen[3:])


def test_a_device_that_slows_down_does_not_change_the_choice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The best configurations are compared alternately: each measurement is 2 % slower than the one
    before, more than the one listed first is slower than the other."""
    monkeypatch.setattr("tilewright.runtime.tuning.search.clock_of", lambda device: DeviceClock())
    monkeypatch.setattr(Compiling, "is_busy", property(lambda self: False))
    times = {16: 1.01, 32: 1.0}
    seen: list[int] = []

    def measured(run: Any, *args: Any, **kwargs: Any) -> list[float]:
        seen.append(run.keywords["BLOCK"])
        return [times[seen[-1]] * 1.02 ** len(seen)]

    monkeypatch.setattr("tilewright.runtime.tuning.search.measure", measured)
    with knobs.autotuning.scope():
        knobs.autotuning.workers = 0
        knobs.autotuning.cache = False
        kernel = tuned(add_one, blocks(16, 32))
        kernel[grid](np.zeros(SIZE, np.float32), np.zeros(SIZE, np.float32), SIZE)
    assert kernel.best_config.kwargs == {"BLOCK": 32}
