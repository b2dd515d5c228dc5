"""Programs that wait for each other on the CPU: for those of lower number in any launch, for all in
a cooperative one.
"""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.base import knobs
from tilewright.base.diagnostics import DeviceError, InterpreterError
from tilewright.runtime.devices import cooperative, cpu
from tilewright.runtime.jit import InterpretedFunction

ROOT = Path(__file__).parents[2]


@tw.jit
def look_back(flags, sums, turns):
    """Each program adds its number to the sum of those below it."""
    i = tl.program_id(0)
    total = i
    for turn in range(turns):
        total += tl.load(flags + i) * turn
    if i > 0:
        while tl.atomic_add(flags + i - 1, 0, sem="acquire") == 0:
            pass
        total += tl.load(sums + i - 1)
    tl.store(sums + i, total)
    tl.atomic_xchg(flags + i, 1, sem="release")


@tw.jit
def locked(lock, count, turns):
    """Each program adds 1 to a number that is no atomic one, with a lock."""
    while tl.atomic_cas(lock, 0, 1, sem="acquire") > 0:
        pass
    value = tl.load(count, volatile=True)
    for _ in range(turns):
        value += tl.load(lock) * 0
    tl.store(count, value + 1)
    tl.atomic_xchg(lock, 0, sem="release")


@tw.jit
def barriers(arrived, seen, turns):
    """After each of some barriers a program sees that all others came to it."""
    i = tl.program_id(0)
    n = tl.num_programs(0)
    for turn in range(turns):
        tl.atomic_add(arrived, 1, sem="release")
        while tl.atomic_add(arrived, 0, sem="acquire") < n * (turn + 1):
            pass
        tl.atomic_add(seen + i, 1)


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    with knobs.runtime.scope():
        yield


@pytest.mark.parametrize("turns", [0, 20_000])
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("programs", [2, 7, 60])
def test_look_back(programs: int, threads: int, turns: int) -> None:
    knobs.runtime.cpu_threads = threads
    # What a launch takes decides how the next one runs: alone, shared, whole ranges at once.
    for _ in range(4):
        flags, sums = np.zeros(programs, np.int32), np.zeros(programs, np.int32)
        look_back[(programs,)](flags, sums, turns)
        assert (sums == np.cumsum(np.arange(programs))).all()


def test_look_back_of_launches_at_the_same_time() -> None:
    knobs.runtime.cpu_threads = 3

    def work() -> None:
        for _ in range(20):
            flags, sums = np.zeros(50, np.int32), np.zeros(50, np.int32)
            look_back[(50,)](flags, sums, 100)
            good.append(bool((sums == np.cumsum(np.arange(50))).all()))

    good: list[bool] = []
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert good == [True] * 60


@pytest.mark.parametrize("turns", [0, 3000])
def test_a_lock(turns: int) -> None:
    knobs.runtime.cpu_threads = 4
    for _ in range(5):
        lock, count = np.zeros(1, np.int32), np.zeros(1, np.int32)
        locked[(200,)](lock, count, turns)
        assert count[0] == 200


@pytest.mark.parametrize("programs", [1, 2, 12])
def test_barriers_of_a_cooperative_grid(programs: int) -> None:
    knobs.runtime.cpu_threads = 1
    for _ in range(3):
        arrived, seen = np.zeros(1, np.int32), np.zeros(programs, np.int32)
        barriers[(programs,)](arrived, seen, 3, launch_cooperative_grid=True)
        assert (seen == 3).all()


def test_a_cooperative_grid_of_too_many_programs() -> None:
    arrived, seen = np.zeros(1, np.int32), np.zeros(2000, np.int32)
    text = "launching barriers with .* 2000 programs needs a thread, and at most 1024 run"
    with pytest.raises(DeviceError, match=text):
        barriers[(2000,)](arrived, seen, 1, launch_cooperative_grid=True)
    assert not seen.any()


def test_a_cooperative_grid_of_more_threads_than_available(monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = threading.Thread.start, [0]

    def fail(thread: threading.Thread) -> None:
        if started[0] == 5:
            raise RuntimeError("can't start new thread")
        started[0] += 1
        start(thread)

    arrived, seen = np.zeros(1, np.int32), np.zeros(9, np.int32)
    barriers[(1,)](arrived, seen, 1, launch_cooperative_grid=True)
    seen[:] = 0
    monkeypatch.setattr(threading.Thread, "start", fail)
    with pytest.raises(DeviceError, match="the system starts no more than 5"):
        barriers[(9,)](arrived, seen, 1, launch_cooperative_grid=True)
    assert not seen.any()


def test_the_interpreter_rejects_cooperative_grids() -> None:
    kernel: Any = InterpretedFunction(barriers.fn)
    arrived, seen = np.zeros(1, np.int32), np.zeros(2, np.int32)
    kernel[(1,)](arrived, seen, 2, launch_cooperative_grid=True)
    assert seen.tolist() == [2, 0]
    with pytest.raises(InterpreterError, match="sequentially"):
        kernel[(2,)](arrived, seen, 2, launch_cooperative_grid=True)


INTERRUPTED = """
import signal, sys, threading, numpy as np, tilewright as tw, tilewright.language as tl
# A child of a process that ignores the signal, as under nohup, would ignore it, too.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.stderr.reconfigure(line_buffering=True)

@tw.jit
def waits(released, begun):
    tl.atomic_add(begun, 1)
    while tl.atomic_add(released, 0) == 0:
        pass

released, begun = np.zeros(1, np.int32), np.zeros(1, np.int32)

def tell():
    while begun[0] < {programs}:
        pass
    print("begun", flush=True)
    sys.stdin.readline()
    released[0] = 1

threading.Thread(target=tell, daemon=True).start()
try:
    waits[({programs},)](released, begun{options})
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize(
    ("programs", "options"),
    [(3, ", launch_cooperative_grid=True"), (1, "")],
    ids=["in Python", "in native code"],
)
def test_the_second_interrupt_names_the_kernel(programs: int, options: str, tmp_path: Path) -> None:
    """Also where the thread that would handle it runs the program that does not end."""
    file = tmp_path / "program.py"
    file.write_text(INTERRUPTED.format(programs=programs, options=options))
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, str(file)], cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "begun\n"
        # Interrupts that come before the first was handled are one: repeat until it is reported.
        ended = threading.Event()

        def interrupt() -> None:
            for _ in range(1000):
                if ended.wait(0.05):
                    return
                process.send_signal(signal.SIGINT)
            process.kill()  # nothing was reported

        thread = threading.Thread(target=interrupt)
        thread.start()
        line = process.stderr.readline()
        ended.set()
        thread.join()
        assert line.startswith("tilewright: programs of waits still run")
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.read() == "interrupted\n"
        assert process.wait() == 0


def test_names_of_kernels_are_freed_with_their_code() -> None:
    made: Any = tw.jit(locked.fn)
    kernel = made.warmup(np.zeros(1, np.int32), np.zeros(1, np.int32), 1, grid=(1,))
    code = cpu.LoadedCode(kernel.kernel, [kernel.name])
    cpu.name_function(code[kernel.name], "another")
    address = code[kernel.name]
    assert cpu._names[address] == "another"
    del code
    assert cpu._names.get(address) != "another"
    assert cooperative.MOST_PROGRAMS <= 1 << 12
