"""Loading object code and running grids on the CPU, with kernels written in LLVM IR."""

import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from tilewright.base import knobs
from tilewright.runtime.devices import cpu
from tilewright.runtime.devices.cpu_pool import LAYOUT
from tilewright.runtime.devices.llvm import assemble

ROOT = Path(__file__).parents[2]

# Each kernel adds 1 to the counter of every program it runs, args[0][program], after:
# @count: nothing. @spin: args[1] turns of a loop. @fill: writing args[1] to all of its scratch of
# args[2] words and finding it unchanged, else it does not count. @shape: args[1][0:3] = grid.
# @meet: seeing args[2] programs arrive at args[1][0] while it runs, else it does not count.
# @wait: all programs before it, which args[1][0] counts.
KERNELS = """
declare float @expf(float)

define internal void @mark(ptr %args, i64 %i) {
  %p = load ptr, ptr %args
  %q = getelementptr i32, ptr %p, i64 %i
  %old = atomicrmw add ptr %q, i32 1 monotonic
  ret void
}

define void @count(ptr %args, ptr %s, i64 %first, i64 %last, ptr %grid) {
entry:
  br label %loop
loop:
  %i = phi i64 [ %first, %entry ], [ %j, %loop ]
  call void @mark(ptr %args, i64 %i)
  %j = add i64 %i, 1
  %go = icmp slt i64 %j, %last
  br i1 %go, label %loop, label %end
end:
  ret void
}

define void @shape(ptr %args, ptr %s, i64 %first, i64 %last, ptr %grid) {
  %slot = getelementptr i64, ptr %args, i64 1
  %to = load ptr, ptr %slot
  %g = load <3 x i32>, ptr %grid, align 4
  store <3 x i32> %g, ptr %to, align 4
  call void @count(ptr %args, ptr %s, i64 %first, i64 %last, ptr %grid)
  ret void
}

define void @spin(ptr %args, ptr %s, i64 %first, i64 %last, ptr %grid) {
entry:
  %slot = getelementptr i64, ptr %args, i64 1
  %n = load i64, ptr %slot
  %here = alloca i64
  br label %loop
loop:
  %i = phi i64 [ %first, %entry ], [ %j, %next ]
  br label %turn
turn:
  %k = phi i64 [ 0, %loop ], [ %k2, %turn ]
  store volatile i64 %k, ptr %here
  %k2 = add i64 %k, 1
  %more = icmp slt i64 %k2, %n
  br i1 %more, label %turn, label %next
next:
  call void @mark(ptr %args, i64 %i)
  %j = add i64 %i, 1
  %go = icmp slt i64 %j, %last
  br i1 %go, label %loop, label %end
end:
  ret void
}

define void @wait(ptr %args, ptr %s, i64 %first, i64 %last, ptr %grid) {
entry:
  %slot = getelementptr i64, ptr %args, i64 1
  %place = load ptr, ptr %slot
  br label %loop
loop:
  %i = phi i64 [ %first, %entry ], [ %j, %next ]
  br label %turn
turn:
  %before = load atomic i64, ptr %place seq_cst, align 8
  %all = icmp eq i64 %before, %i
  br i1 %all, label %next, label %turn
next:
  call void @mark(ptr %args, i64 %i)
  %old = atomicrmw add ptr %place, i64 1 seq_cst
  %j = add i64 %i, 1
  %go = icmp slt i64 %j, %last
  br i1 %go, label %loop, label %end
end:
  ret void
}

define void @meet(ptr %args, ptr %s, i64 %first, i64 %last, ptr %grid) {
entry:
  %slot = getelementptr i64, ptr %args, i64 1
  %place = load ptr, ptr %slot
  %slot2 = getelementptr i64, ptr %args, i64 2
  %all = load i64, ptr %slot2
  br label %loop
loop:
  %i = phi i64 [ %first, %entry ], [ %j, %next ]
  %old = atomicrmw add ptr %place, i64 1 seq_cst
  br label %turn
turn:
  %k = phi i64 [ 0, %loop ], [ %k2, %turn ]
  %here = load atomic i64, ptr %place seq_cst, align 8
  %together = icmp sge i64 %here, %all
  %enough = icmp sgt i64 %k, 50000
  %go_on = and i1 %together, %enough
  %k2 = add i64 %k, 1
  %tired = icmp sgt i64 %k2, 2000000000
  %stop = or i1 %go_on, %tired
  br i1 %stop, label %check, label %turn
check:
  br i1 %together, label %good, label %next
good:
  call void @mark(ptr %args, i64 %i)
  br label %next
next:
  %j = add i64 %i, 1
  %go = icmp slt i64 %j, %last
  br i1 %go, label %loop, label %end
end:
  ret void
}

define void @fill(ptr %args, ptr %s, i64 %first, i64 %last, ptr %grid) {
entry:
  %slot2 = getelementptr i64, ptr %args, i64 2
  %n = load i64, ptr %slot2
  %a = ptrtoint ptr %s to i64
  %low = and i64 %a, 63
  %aligned = icmp eq i64 %low, 0
  br label %loop
loop:
  %i = phi i64 [ %first, %entry ], [ %j, %next ]
  br label %write
write:
  %k = phi i64 [ 0, %loop ], [ %k2, %write ]
  %p = getelementptr i64, ptr %s, i64 %k
  store volatile i64 %i, ptr %p
  %k2 = add i64 %k, 1
  %more = icmp slt i64 %k2, %n
  br i1 %more, label %write, label %read
read:
  %m = phi i64 [ 0, %write ], [ %m2, %read ]
  %same = phi i1 [ %aligned, %write ], [ %same2, %read ]
  %q = getelementptr i64, ptr %s, i64 %m
  %v = load volatile i64, ptr %q
  %eq = icmp eq i64 %v, %i
  %same2 = and i1 %same, %eq
  %m2 = add i64 %m, 1
  %more2 = icmp slt i64 %m2, %n
  br i1 %more2, label %read, label %check
check:
  br i1 %same2, label %good, label %next
good:
  call void @mark(ptr %args, i64 %i)
  br label %next
next:
  %j = add i64 %i, 1
  %go = icmp slt i64 %j, %last
  br i1 %go, label %loop, label %end
end:
  ret void
}
"""
NAMES = ["count", "shape", "spin", "fill", "meet", "wait"]


@pytest.fixture(scope="module")
def code() -> cpu.LoadedCode:
    return cpu.LoadedCode(assemble(KERNELS, 1), NAMES)


class PythonTeam:
    """A runtime of threads with the interface of `cpu.Team`: a team of Python threads."""

    def __init__(self) -> None:
        self._here = threading.local()
        self._body: Any = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        run = ctypes.CFUNCTYPE(
            None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32
        )
        self._functions = run(self._run), ctypes.CFUNCTYPE(ctypes.c_int32)(self._number)
        self.sizes: list[int] = []
        """The number of threads of each region."""

    @property
    def team(self) -> cpu.Team:
        return cpu.Team(*(ctypes.cast(f, ctypes.c_void_p).value or 0 for f in self._functions))

    def _run(self, body: int, data: int, threads: int, flags: int) -> None:
        def work(number: int) -> None:
            self._here.number = number
            self._body(body)(data)

        self.sizes.append(threads)
        others = [threading.Thread(target=work, args=(n,)) for n in range(1, threads)]
        for thread in others:
            thread.start()
        work(0)
        for thread in others:
            thread.join()

    def _number(self) -> int:
        return self._here.number


@pytest.fixture
def python_team(monkeypatch: pytest.MonkeyPatch) -> Iterator[PythonTeam]:
    monkeypatch.setattr(cpu, "_pool", None)  # that of other tests has workers
    made = PythonTeam()
    cpu.use_team(made.team)
    yield made
    cpu.use_team(None)


@pytest.fixture(params=["native", "python", "team"])
def pool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[cpu.Pool]:
    """The ways to run a grid: on workers, on Python threads where the platform has no pthreads, and
    on the threads of another runtime."""
    if request.param == "python":
        made = cpu.python_pool.PythonPool()
        monkeypatch.setattr(cpu, "_pool", made)
        yield made
        made.close()
    elif request.param == "team":
        request.getfixturevalue("python_team")
        yield cpu._make_pool()
    else:
        yield cpu._pool or cpu._make_pool()


class Args:
    """Counters for `programs` programs and the argument slots of the kernels above."""

    def __init__(self, programs: int, *more: int) -> None:
        self.counts = np.zeros(programs, np.int32)
        self.slots = np.array([self.counts.ctypes.data, *more], np.int64)
        self.address = self.slots.ctypes.data


# -- loading --------------------------------------------------------------------------------------


def test_code_is_loaded_with_symbols_of_the_process() -> None:
    ir = """
    declare float @expf(float)
    define float @twice(float %x) {
      %e = call float @expf(float %x)
      %r = fadd float %e, %e
      ret float %r
    }"""
    loaded = cpu.LoadedCode(assemble(ir, 1), ["twice"])
    call = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float)(loaded["twice"])
    assert call(0.0) == 2.0
    with pytest.raises(KeyError):
        loaded["other"]


def test_equal_names_of_two_objects_are_separate_and_unload() -> None:
    def returning(value: int) -> cpu.LoadedCode:
        ir = f"define i32 @same() {{\n ret i32 {value}\n}}"
        return cpu.LoadedCode(assemble(ir, 1), ["same"])

    kept = [returning(n) for n in range(5)]
    del kept[1:4]
    gc.collect()
    kept.append(returning(9))
    found = [ctypes.CFUNCTYPE(ctypes.c_int32)(k["same"])() for k in kept]
    assert found == [0, 4, 9]


def test_imported_symbol_is_used() -> None:
    ir = """
    declare i64 @tw_test_outside(i64)
    define i64 @inside(i64 %x) {
      %r = call i64 @tw_test_outside(i64 %x)
      ret i64 %r
    }"""
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
    outside = kind(lambda x: x + 5)
    address = ctypes.cast(outside, ctypes.c_void_p).value
    assert address is not None
    loaded = cpu.LoadedCode(assemble(ir, 1), ["inside"], {"tw_test_outside": address})
    assert kind(loaded["inside"])(37) == 42


def test_bad_objects_and_missing_names_are_errors() -> None:
    with pytest.raises(RuntimeError):
        cpu.LoadedCode(b"no object file", ["f"])
    with pytest.raises(RuntimeError, match="absent"):
        cpu.LoadedCode(assemble("define void @f() {\n ret void\n}", 1), ["absent"])


# -- grids ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 3, 8, 70])  # more than there are ranges, too
@pytest.mark.parametrize("grid", [(1, 1, 1), (2, 1, 1), (7, 3, 2), (1, 1, 5), (1000, 97, 1)])
def test_every_program_runs_once(
    grid: tuple[int, int, int], threads: int, code: cpu.LoadedCode, pool: cpu.Pool
) -> None:
    args = Args(int(np.prod(grid)) + 64)
    shape = np.zeros(3, np.int32)
    args.slots = np.array([args.counts.ctypes.data, shape.ctypes.data], np.int64)
    for _ in range(3):
        cpu.launch(code["shape"], args.slots.ctypes.data, grid, 0, threads)
    assert (args.counts[:-64] == 3).all()
    assert not args.counts[-64:].any()
    assert tuple(shape) == grid


@pytest.mark.parametrize("grid", [(0, 1, 1), (5, 0, 2), (1, 1, 0)])
def test_empty_grid_does_nothing(grid: tuple[int, int, int]) -> None:
    cpu.launch(0, 0, grid)


@pytest.mark.parametrize("grid", [(-1, 1, 1), (-1, -1, 1), (2**31, 1, 1), (2**30, 2**30, 2**30)])
def test_impossible_grid_is_an_error(grid: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="grid"):
        cpu.launch(0, 0, grid)


def test_each_thread_has_its_own_aligned_scratch(code: cpu.LoadedCode, pool: cpu.Pool) -> None:
    for words in (1, 100, 50_000, 3):
        args = Args(200, 0, words)
        cpu.launch(code["fill"], args.address, (200, 1, 1), 8 * words, 4)
        assert (args.counts == 1).all()


@pytest.mark.parametrize("pause", [0.0, 0.002])
def test_programs_run_at_the_same_time_by_workers_awake_and_asleep(
    pause: float, code: cpu.LoadedCode, pool: cpu.Pool
) -> None:
    # The pool measures what the function costs, where other code at its address was cheap before.
    alone = np.zeros(1, np.int64)
    first = Args(3, alone.ctypes.data, 1)
    cpu.launch(code["meet"], first.address, (3, 1, 1), 0, 3)
    for _ in range(20):
        arrived = np.zeros(1, np.int64)
        args = Args(3, arrived.ctypes.data, 3)
        cpu.launch(code["meet"], args.address, (3, 1, 1), 0, 3)
        assert (args.counts == 1).all()
        time.sleep(pause)


def test_launches_that_become_expensive(code: cpu.LoadedCode) -> None:
    for turns in (1, 100_000, 1, 100_000):
        args = Args(16, turns)
        cpu.launch(code["spin"], args.address, (16, 1, 1), 0, 2)
        assert (args.counts == 1).all()


class Shared:
    """Launches of a kernel with a given estimate of their cost.

    The pool counts in its word `state` the launches that it has published for workers.
    """

    programs = 16

    def __init__(self, function: int) -> None:
        pool = cpu.native_pool()
        assert pool is not None
        self._function, self._args = function, Args(self.programs)
        self._state = pool.state
        self._launch()
        costs = (ctypes.c_uint64 * (2 * 512)).from_address(pool.state + LAYOUT["COSTS"])
        self._cost = costs[::2].index(function) * 2 + 1
        self._costs = costs

    def _launch(self) -> None:
        cpu.launch(self._function, self._args.address, (self.programs, 1, 1), 0, 2)

    def _word(self, name: str, kind: Any = ctypes.c_uint64) -> Any:
        return kind.from_address(self._state + LAYOUT[name])

    def wait_until_all_sleep(self) -> None:
        while self._word("SLEEPERS", ctypes.c_int32).value < 1:
            time.sleep(0.001)

    def is_shared(self, us: float, in_series: bool = False) -> bool:
        """Whether a launch of this many microseconds is, after many others or alone."""
        self._costs[self._cost] = int(us * 1000 * 1024) // self.programs
        before = self._word("STATE").value >> 32
        self._word("LAST").value = time.monotonic_ns() if in_series else 0
        self._word("STREAK").value = 100
        self._launch()
        return self._word("STATE").value >> 32 > before


def test_short_launches_wake_no_worker_unless_they_are_many(
    code: cpu.LoadedCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "_pool", None)  # one worker, and no other launches
    shared = Shared(code["count"])
    shared.wait_until_all_sleep()
    assert not any(shared.is_shared(us) for us in (0.5, 3, 7, 19))
    assert not any(shared.is_shared(3, in_series=True) for _ in range(20))
    # The others may have the processor for longer than lies between launches of a series.
    assert any(shared.is_shared(7, in_series=True) for _ in range(200))
    for us in (21, 500, 1e6, 1e12):
        shared.wait_until_all_sleep()
        assert shared.is_shared(us)


def test_teams_run_launches_that_are_worth_it(
    code: cpu.LoadedCode, python_team: PythonTeam
) -> None:
    shared = Shared(code["count"])
    python_team.sizes.clear()
    pool = cpu.native_pool()
    assert pool is not None
    end = ctypes.c_int64.from_address(pool.state + LAYOUT["REGION_END"])
    end.value = 0  # other threads than those of a recent region are asleep
    assert not any(shared.is_shared(us) for us in (0.5, 3, 7, 19))
    assert python_team.sizes == []
    assert shared.is_shared(21)
    assert any(shared.is_shared(7) for _ in range(200))  # soon enough after the region
    assert not any(shared.is_shared(3) for _ in range(20))
    assert set(python_team.sizes) == {2}
    python_team.sizes.clear()
    cpu.use_team(None)
    assert shared.is_shared(21)
    assert python_team.sizes == []
    assert pool.workers == 1


def test_launches_of_a_team_are_continued_after_a_slice(
    code: cpu.LoadedCode, python_team: PythonTeam, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs of the second range wait for those of the first, which the first thread takes in a
    later slice of time, or while the others have not left."""
    monkeypatch.setattr(cpu, "SLICE_NS", 1)
    args = Args(64, 100_000)
    cpu.launch(code["spin"], args.address, (64, 1, 1), 8, 3)
    assert (args.counts == 1).all()
    assert set(python_team.sizes) == {3}
    assert len(python_team.sizes) > 1
    for _ in range(3):
        turn = np.zeros(1, np.int64)
        args = Args(40, turn.ctypes.data)
        cpu.launch(code["wait"], args.address, (40, 1, 1), 0, 2)
        assert (args.counts == 1).all()
        assert turn == 40


def test_cost_of_unloaded_code_is_forgotten() -> None:
    """Another kernel may get the address, and must not be thought as cheap."""

    def addresses_with_a_cost(pool: cpu.NativePool) -> list[int]:
        costs = (ctypes.c_uint64 * (2 * 512)).from_address(pool.state + LAYOUT["COSTS"])
        return [address for address in costs[::2] if address]

    loaded, args = cpu.LoadedCode(assemble(KERNELS, 1), NAMES), Args(16)
    address, pool = loaded["count"], cpu.native_pool()
    assert pool is not None
    cpu.launch(address, args.address, (16, 1, 1), 0, 2)
    assert address in addresses_with_a_cost(pool)
    del loaded
    gc.collect()
    assert address not in addresses_with_a_cost(pool)


def test_code_is_loaded_and_unloaded_by_many_threads_and_after_a_fork() -> None:
    text = assemble(KERNELS, 1)
    faults: list[object] = []

    def work() -> None:
        try:
            for _ in range(30):
                args, loaded = Args(16), cpu.LoadedCode(text, NAMES)
                cpu.launch(loaded["count"], args.address, (16, 1, 1), 0, 2)
                if not (args.counts == 1).all():
                    faults.append(args.counts)
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    mine, args = cpu.LoadedCode(text, NAMES), Args(16)
    for thread in threads:
        thread.start()
    child = os.fork()
    if child == 0:
        work()
        del mine  # the parent's goes on
        os._exit(1 if faults else 0)
    _, status = os.waitpid(child, 0)
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert status == 0
    assert faults == []
    cpu.launch(mine["count"], args.address, (16, 1, 1), 0, 2)
    assert (args.counts == 1).all()


def test_launches_from_several_threads_at_once(code: cpu.LoadedCode, pool: cpu.Pool) -> None:
    faults: list[object] = []

    def work(number: int) -> None:
        try:
            for turn in range(60):
                # Long enough not to be thought cheap, so that they compete for the pool.
                programs, words = 2 + (number * 37 + turn * 11) % 30, 5_000
                args = Args(programs + 8, 0, words)
                cpu.launch(code["fill"], args.address, (programs, 1, 1), 8 * words, 3)
                if not (args.counts[:-8] == 1).all() or args.counts[-8:].any():
                    faults.append((number, turn))
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert faults == []


def test_thread_count_is_the_setting_or_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with knobs.runtime.scope():
        knobs.runtime.cpu_threads = 5
        assert cpu.thread_count() == 5
        knobs.runtime.cpu_threads = 0
        assert 1 <= cpu.thread_count() <= (os.cpu_count() or 1)


# -- signals --------------------------------------------------------------------------------------


class Stop(Exception):
    pass


@pytest.fixture
def alarm() -> Iterator[None]:
    before = signal.getsignal(signal.SIGALRM)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("pool", ["native", "python"], indirect=True)  # the team has Python code
def test_exception_of_a_signal_handler_cancels_the_remaining_programs(
    threads: int, code: cpu.LoadedCode, pool: cpu.Pool
) -> None:
    def stop(number: int, frame: FrameType | None) -> None:
        raise Stop

    signal.signal(signal.SIGALRM, stop)
    # About 30 s of work, in programs of about 3 ms.
    args = Args(20_000, 3_000_000)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    with pytest.raises(Stop):
        cpu.launch(code["spin"], args.address, (10_000, 1, 1), 0, threads)
    ran = int(args.counts.sum())
    time.sleep(0.05)
    assert int(args.counts.sum()) == ran, "a program ran after the launch had ended"
    assert ran < 10_000
    # The pool is as good as new.
    args = Args(500, 1000)
    cpu.launch(code["spin"], args.address, (500, 1, 1), 0, threads)
    assert (args.counts == 1).all()


@pytest.mark.usefixtures("alarm")
def test_signal_handler_may_launch(code: cpu.LoadedCode) -> None:
    inner = Args(100, 0, 64)
    launched: list[int] = []

    def launch(number: int, frame: FrameType | None) -> None:
        cpu.launch(code["fill"], inner.address, (100, 1, 1), 512, 2)
        launched.append(1)

    signal.signal(signal.SIGALRM, launch)
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.06)
    outer = Args(100, 10_000_000)  # about 0.2 s, so that several alarms ring in it
    cpu.launch(code["spin"], outer.address, (100, 1, 1), 64, 2)
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert launched
    assert (outer.counts == 1).all()
    assert (inner.counts == len(launched)).all()


def test_interrupt_key_ends_a_launch_and_the_process(tmp_path: Path) -> None:
    file = tmp_path / "kernels.o"
    file.write_bytes(assemble(KERNELS, 1))
    program = """
import pathlib, signal, sys, threading, numpy as np
from tilewright.runtime.devices import cpu
# A child of a process that ignores the signal, as under nohup, would ignore it, too.
signal.signal(signal.SIGINT, signal.default_int_handler)
code = cpu.LoadedCode(pathlib.Path(sys.argv[1]).read_bytes(), ["spin"])
counts = np.zeros(100_000, np.int32)
slots = np.array([counts.ctypes.data, 1_000_000])

def tell():
    while not counts[0]:
        pass
    print("running", flush=True)

threading.Thread(target=tell, daemon=True).start()
try:
    cpu.launch(code["spin"], slots.ctypes.data, (100_000, 1, 1), 0, 2)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    command = [sys.executable, "-c", program, str(file)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "interrupted\n"
        assert process.wait() == 0


# -- processes ------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_child_of_a_fork_launches_in_a_separate_pool(code: cpu.LoadedCode) -> None:
    args = Args(64, 50_000)
    cpu.launch(code["spin"], args.address, (64, 1, 1), 0, 3)
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # a deadlock ends the child
        cpu.launch(code["spin"], args.address, (64, 1, 1), 0, 3)
        pool = cpu._pool
        good = isinstance(pool, cpu.NativePool) and pool.workers == 2
        os._exit(0 if good and (args.counts == 2).all() else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0
    cpu.launch(code["spin"], args.address, (64, 1, 1), 0, 3)
    assert (args.counts == 2).all()  # the child's counts are its own


def test_process_ends_while_workers_wait(tmp_path: Path) -> None:
    file = tmp_path / "kernels.o"
    file.write_bytes(assemble(KERNELS, 1))
    program = """
import pathlib, signal, sys, threading, numpy as np
from tilewright.runtime.devices import cpu
# A child of a process that ignores the signal, as under nohup, would ignore it, too.
signal.signal(signal.SIGINT, signal.default_int_handler)
code = cpu.LoadedCode(pathlib.Path(sys.argv[1]).read_bytes(), ["spin"])
counts = np.zeros(64, np.int32)
slots = np.array([counts.ctypes.data, 20_000])
cpu.launch(code["spin"], slots.ctypes.data, (64, 1, 1), 0, 3)
def go_on():
    while True:
        cpu.launch(code["spin"], slots.ctypes.data, (64, 1, 1), 0, 3)
if sys.argv[2] == "busy":
    threading.Thread(target=go_on, daemon=True).start()
"""
    for state in ("idle", "busy"):
        for _ in range(3):
            command = [sys.executable, "-W", "error", "-c", program, str(file), state]
            run = subprocess.run(
                command, cwd=ROOT, timeout=30, capture_output=True, text=True, check=False
            )
            assert run.returncode == 0, (state, run.stderr)
            assert run.stderr == ""
