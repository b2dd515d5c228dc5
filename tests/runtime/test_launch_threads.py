"""Launches from many threads, and in processes that have forked."""

import faulthandler
import os
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from benchmarks.memory import new_kernel
from tests.threads import in_threads
from tilewright.base import knobs
from tilewright.frontend import source
from tilewright.frontend.dependencies import Dependencies
from tilewright.runtime.async_compile import AsyncCompileMode, FutureKernel
from tilewright.runtime.autotuner import autotune
from tilewright.runtime.config import Config
from tilewright.runtime.devices import cpu
from tilewright.runtime.jit import JITFunction, jit
from tilewright.targets.cpu import plan

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def fill(out, value, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), value)


@pytest.fixture(autouse=True)
def compiles_anew() -> Iterator[None]:
    with knobs.compilation.scope():
        knobs.compilation.always_compile = True
        yield


def child_succeeds(work: Callable[[], None]) -> bool:
    """Whether some work in a forked child ends well within 30 s; if not, stderr has the reason."""
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(30, exit=True, file=2)
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


class Paused:
    """A function that waits in this process, but not in its children, until the block ends.

    Attributes:
        begun: set when the function is called.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.begun = threading.Event()
        self._function, self._process, self._go_on = function, os.getpid(), threading.Event()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if os.getpid() == self._process:
            self.begun.set()
            self._go_on.wait()
        return self._function(*args, **kwargs)

    @contextmanager
    def within(self, work: Callable[[], Any]) -> Generator[None]:
        """A thread does some work, and waits in the function."""
        thread = threading.Thread(target=work)
        thread.start()
        self.begun.wait()
        try:
            yield
        finally:
            self._go_on.set()
            thread.join()


@pytest.mark.parametrize("wrapped", [False, True])
def test_the_first_launches_of_many_threads_compile_once(
    wrapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[Any] = []
    compile_kernel = JITFunction.compile

    def counted(*args: Any, **kwargs: Any) -> Any:
        compiled.append(threading.get_ident())
        return compile_kernel(*args, **kwargs)

    monkeypatch.setattr(JITFunction, "compile", staticmethod(counted))
    kernel: Any = jit(fill)
    if wrapped:
        kernel = autotune([Config({"BLOCK": 8})], key=["value"])(kernel)
    given = {} if wrapped else {"BLOCK": 8}
    kernels: list[Any] = []

    def work(number: int) -> None:
        out = np.zeros(8, np.int32)
        for _ in range(20):
            kernels.append(kernel[(1,)](out, 2 + 16 * number + 1, **given))
            assert (out == 2 + 16 * number + 1).all()

    in_threads(work, 8)
    assert len(compiled) == 1
    assert len(set(map(id, kernels))) == 1


def test_threads_compile_different_kernels_at_once() -> None:
    def work(number: int) -> None:
        for i in range(4):
            factor = 2 + 4 * number + i
            out = np.ones(64, np.float32)
            new_kernel(factor)[(1,)](out, 64, BLOCK=64)
            assert (out == factor + 1).all()

    in_threads(work, 4)


@forks
def test_a_child_compiles_what_a_thread_of_its_parent_was_compiling(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paused = Paused(JITFunction.compile)
    monkeypatch.setattr(JITFunction, "compile", staticmethod(paused))
    kernel = jit(fill)

    def work() -> None:
        out = np.zeros(8, np.int32)
        for _ in range(3):
            kernel[(1,)](out, 7, BLOCK=8)
        assert (out == 7).all()

    with paused.within(lambda: kernel[(1,)](np.zeros(8, np.int32), 5, BLOCK=8)):
        assert child_succeeds(work)


@forks
def test_a_child_compiles_while_a_thread_of_its_parent_plans_another_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paused = Paused(plan.axis_info)
    monkeypatch.setattr(plan, "axis_info", paused)

    def work() -> None:
        out = np.ones(64, np.float32)
        new_kernel(4)[(1,)](out, 64, BLOCK=64)
        assert (out == 5).all()

    with paused.within(lambda: new_kernel(3)[(1,)](np.zeros(64, np.float32), 64, BLOCK=64)):
        assert child_succeeds(work)


@forks
def test_children_of_a_process_whose_threads_compile_and_launch() -> None:
    ready, end = jit(fill), threading.Event()
    out = np.zeros(1024, np.int32)
    ready[(1,)](out, 5, BLOCK=1024)

    def compile_on(number: int) -> None:
        while not end.is_set():
            new_kernel(number)[(1,)](np.zeros(64, np.float32), 64, BLOCK=64)

    def launch_on() -> None:
        mine = np.zeros(1024, np.int32)
        while not end.is_set():
            ready[(4,)](mine, 6, BLOCK=1024)

    threads = [threading.Thread(target=compile_on, args=(5,)), threading.Thread(target=launch_on)]
    for thread in threads:
        thread.start()

    def work() -> None:
        with knobs.runtime.scope():
            knobs.runtime.cpu_threads = 2
            ready[(4,)](out, 9, BLOCK=1024)
            assert (out == 9).all()
            other = np.ones(64, np.float32)
            new_kernel(7)[(1,)](other, 64, BLOCK=64)
            assert (other == 8).all()

    results = [child_succeeds(work) for _ in range(6)]
    end.set()
    for thread in threads:
        thread.join()
    assert all(results)


@forks
def test_a_bound_launch_works_in_a_child() -> None:
    out = np.zeros(8, np.int32)
    again = jit(fill).bind(out, 5, BLOCK=8, grid=(1,))
    again()

    def work() -> None:
        for _ in range(3):
            out[:] = 0
            again()
            assert (out == 5).all()

    assert child_succeeds(work)


def test_a_launch_uses_as_many_threads_as_torch() -> None:
    torch = pytest.importorskip("torch")
    kernel, out = jit(fill), torch.zeros(1024, dtype=torch.int32)
    before = torch.get_num_threads()

    def launch() -> None:
        out.zero_()
        kernel[(4,)](out, 5, BLOCK=1024)
        assert (out == 5).all()

    launch()
    pool = cpu.native_pool()
    assert pool is not None
    try:
        for _ in range(2):  # the first launch by native code looks for torch
            launch()
        for extra in (2, 3):
            threads = pool.workers + 1 + extra
            torch.set_num_threads(threads)
            launch()
            assert pool.workers == threads - 1
            assert cpu.thread_count() == threads
        with knobs.runtime.scope():
            knobs.runtime.cpu_threads = 1
            torch.set_num_threads(threads + 1)
            launch()
            assert pool.workers == threads - 1
    finally:
        torch.set_num_threads(before)


# -- what nothing but locks keeps apart -----------------------------------------------------------


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads change places as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@jit
def first(x, depth: tl.constexpr):
    if depth > 0:
        return second(x, depth - 1)
    return x


@jit
def second(x, depth: tl.constexpr):
    if depth > 0:
        return first(x, depth - 1)
    return x


def test_no_thread_observes_a_partially_computed_key(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, started, go_on = jit(fill), threading.Event(), threading.Event()
    compute = source.dependencies

    def slowly(function: Any) -> Dependencies:
        started.set()
        assert go_on.wait(20)
        return compute(function)

    monkeypatch.setattr(source, "dependencies", slowly)
    keys: list[str] = []
    one = threading.Thread(target=lambda: keys.append(kernel.cache_key))
    other = threading.Thread(target=lambda: keys.append(kernel.cache_key))
    one.start()
    assert started.wait(20)
    other.start()
    other.join(0.05)
    assert keys == []  # it waits
    go_on.set()
    one.join()
    other.join()
    assert keys == [kernel.cache_key] * 2
    assert not keys[0].startswith("recursion")


@pytest.mark.usefixtures("hasty")
def test_keys_are_the_same_in_all_threads() -> None:
    for _ in range(5):
        kernel, keys = new_kernel(7), list[str]()
        in_threads(lambda number, kernel=kernel, keys=keys: keys.append(kernel.cache_key), 8)
        assert len(set(keys)) == 1
    assert len(first.cache_key) == len(second.cache_key) == 64  # they reach each other


@pytest.mark.usefixtures("hasty")
def test_threads_load_a_kernel_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[str] = []
    knobs_hook = knobs.runtime.kernel_load_start_hook
    with knobs.runtime.scope():
        knobs_hook.add(lambda *reported: loads.append(reported[2]))
        for number in range(5):
            kernel = new_kernel(number)
            compiled = kernel.warmup(np.zeros(64, np.float32), 64, BLOCK=64, grid=(1,))
            loaded: list[Any] = []
            in_threads(lambda _, c=compiled, found=loaded: found.append(c.load().handle), 8)
            assert len(set(loaded)) == 1
    assert len(loads) == 5


@pytest.mark.usefixtures("hasty")
def test_threads_that_wait_for_a_future_kernel_finish_it_once() -> None:
    done: list[Any] = []
    with ThreadPoolExecutor(2) as executor:
        for _ in range(20):
            finished: list[Any] = []
            future = FutureKernel(executor.submit(lambda: "kernel"), finished.append)
            in_threads(lambda _, f=future: done.append(f.result()), 6)
            assert finished == ["kernel"]
    assert set(done) == {"kernel"}


@pytest.mark.usefixtures("hasty")
def test_kernels_of_one_text_are_compiled_once_in_a_mode() -> None:
    submitted: list[Any] = []

    class Executor(ThreadPoolExecutor):
        def submit(self, *args: Any, **kwargs: Any) -> Any:
            submitted.append(args)
            return super().submit(*args, **kwargs)

    with Executor(2) as executor:
        mode = AsyncCompileMode(executor)

        def submit(number: int) -> None:
            mode.submit("key", lambda: "kernel", lambda kernel: None)

        in_threads(submit, 8)
    assert len(submitted) == 1


@pytest.mark.usefixtures("hasty")
def test_threads_launch_tune_and_bind_while_kernels_are_freed() -> None:
    """All of it at once: results are right, and nothing raises."""
    shared = jit(fill)
    tuned = autotune([Config({"BLOCK": size}) for size in (8, 16)], ["value"])(jit(fill))

    def work(number: int) -> None:
        out = np.zeros(16, np.float32)
        for step in range(15):
            own = shared if step % 3 else jit(fill)
            own[(1,)](out, float(number), BLOCK=16)
            assert (out == number).all()
            shared.run(out, float(step), BLOCK=8, grid=(2,))
            again = shared.bind(out, number, BLOCK=16, grid=(1,))
            again()
            assert (out == number).all()
            tuned[(2,)](out, step % 2)
            if number == 0:
                shared.device_caches.clear()

    in_threads(work, 4)
