"""Native launches: grids, what sends them through Python, references, threads, signals, forks."""

import gc
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tilewright.language as tl
from tests.runtime.native_cases import native, outcome
from tests.threads import in_threads
from tilewright.base import knobs
from tilewright.runtime.devices import cpu
from tilewright.runtime.jit import JITFunction, jit

Array = np.ndarray[Any, Any]


ONE: Any = 1

# -- grids ----------------------------------------------------------------------------------------


def program_ids(out):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    at = (z * tl.num_programs(1) + y) * tl.num_programs(0) + x
    tl.store(out + at, x + 10 * y + 100 * z)


def fill(out, value, BLOCK: tl.constexpr = ONE):
    tl.store(out + tl.program_id(0), value)


@pytest.fixture
def kernel() -> JITFunction:
    """A kernel that native code can launch; see `used`."""
    return jit(fill)


@pytest.fixture
def out() -> Array:
    return np.zeros(4, np.int32)


def runs_of(kernel: JITFunction, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Gets the grid of each launch that Python makes from now on."""
    seen: list[Any] = []
    assert kernel._launcher is not None
    run = JITFunction.run

    def recorded(self: JITFunction, *args: Any, **kwargs: Any) -> Any:
        seen.append(kwargs["grid"])
        return run(self, *args, **kwargs)

    monkeypatch.setattr(JITFunction, "run", recorded)
    return seen


def ready(kernel: JITFunction, *args: Any, **kwargs: Any) -> JITFunction:
    kernel[(1,)](*args, **kwargs)
    kernel[(1,)](*args, **kwargs)
    return kernel


@pytest.mark.parametrize(
    ("grid", "natively"),
    [
        ((3,), True),
        ((2, 2), True),
        ((1, 2, 2), True),
        ([2, 1], True),
        ((np.int64(2),), True),
        ((True, 2), True),
        (lambda meta: (meta["BLOCK"] + 1,), True),
        (lambda meta: [2, 2], True),
        ((0,), True),
        ((2, 0), True),
        ((1, 2**40, 0), True),
    ],
)
def test_grids_run_natively(
    grid: Any, natively: bool, monkeypatch: pytest.MonkeyPatch, out: Array
) -> None:
    def kernel(out, BLOCK: tl.constexpr = ONE):
        at = (tl.program_id(2) * 2 + tl.program_id(1)) * 2 + tl.program_id(0)
        tl.atomic_add(out + at % 4, 1)

    other = ready(jit(kernel), out)
    fresh = jit(kernel)
    fresh.warmup(out, grid=(1,))
    expected, got = np.zeros(4, np.int32), np.zeros(4, np.int32)
    fresh.run(expected, grid=grid)
    seen = runs_of(other, monkeypatch)
    assert other[grid](got) is other[(0,)](got)
    assert got.tolist() == expected.tolist()
    assert bool(seen) != natively


@pytest.mark.parametrize(
    "grid", [4, (), (1, 1, 1, 2), (2.0,), (1, -2), None, (2**31,), (2**70,), lambda meta: 3]
)
def test_wrong_grids_have_the_same_message(kernel: JITFunction, grid: Any, out: Array) -> None:
    ready(kernel, out, 5)
    assert outcome(kernel[grid], out, 5) == outcome(kernel.run, out, 5, grid=grid)
    assert isinstance(outcome(kernel[grid], out, 5)[0], type)


def test_grid_function_is_called_once_with_all_arguments(kernel: JITFunction, out: Array) -> None:
    ready(kernel, out, 5)
    seen: list[Any] = []

    def grid(meta: dict[str, Any]) -> Any:
        seen.append(dict(meta))
        meta["value"] = meta["other"] = 9  # its own to change
        return (np.int32(2),)

    kernel[grid](out, value=5)
    kernel[grid](out, value=6)
    assert seen == [{"out": out, "value": v, "BLOCK": 1} for v in (5, 6)]
    assert out.tolist() == [6, 6, 0, 0]


def test_error_of_a_grid_function_propagates(kernel: JITFunction, out: Array) -> None:
    ready(kernel, out, 5)

    def grid(meta: dict[str, Any]) -> Any:
        raise LookupError("no grid today")

    with pytest.raises(LookupError, match="no grid today"):
        kernel[grid](out, 5)


def test_grid_function_may_drop_the_kernel_being_launched(kernel: JITFunction, out: Array) -> None:
    ready(kernel, out, 5)

    def grid(meta: dict[str, Any]) -> Any:
        kernel.device_caches.clear()
        gc.collect()
        kernel[(1,)](out[1:], 8)
        return (1,)

    kernel[grid](out, 7)
    assert out.tolist() == [7, 8, 0, 0]


# -- what sends a launch through Python -----------------------------------------------------------


def test_evicted_variants_are_recreated(kernel: JITFunction, out: Array) -> None:
    first = ready(kernel, out, 5)[(1,)](out, 5)
    for drop in (
        lambda: kernel.device_caches.clear(),
        lambda: kernel.device_caches.pop("cpu"),
        lambda: kernel.device_caches["cpu"].kernel_cache.clear(),
        lambda: kernel.device_caches["cpu"].kernel_cache.popitem(),
    ):
        drop()
        second = kernel[(1,)](out, 5)
        assert second is not first
        assert kernel[(1,)](out, 5) is second
        first = second


def test_replaced_variant_runs(kernel: JITFunction, out: Array) -> None:
    ready(kernel, out, 5)
    variants = kernel.device_caches["cpu"].kernel_cache
    other = jit(fill)[(1,)](out, 5)
    variants[next(iter(variants))] = other
    assert kernel[(1,)](out, 5) is other
    assert kernel[(1,)](out, 5) is other


def test_hooks_are_called_for_every_launch(kernel: JITFunction, out: Array) -> None:
    ready(kernel, out, 5)
    launch = kernel[(1,)]
    calls: list[Any] = []
    kernel.add_pre_run_hook(lambda *args, **kwargs: calls.append(args[1:]))
    launch(out, 6)
    kernel[(1,)](out, 7)
    kernel.pre_run_hooks = []
    kernel[(1,)](out, 8)
    assert calls == [(6,), (7,)]


def test_run_may_be_replaced(kernel: JITFunction, out: Array) -> None:
    ready(kernel, out, 5)
    replacement: Any = lambda *args, **kwargs: (args, kwargs)  # noqa: E731
    kernel.run = replacement
    assert kernel[(2,)](out, 6, BLOCK=4) == ((out, 6), {"BLOCK": 4, "grid": (2,)})
    del kernel.run
    kernel[(1,)](out, 7)
    assert out[0] == 7


def test_run_of_a_subclass_is_used(out: Array) -> None:
    class Counted(JITFunction):
        count = 0

        def run(self, *args: Any, **kwargs: Any) -> Any:
            self.count += 1
            return super().run(*args, **kwargs)

    kernel = Counted(fill)
    for _ in range(3):
        kernel[(1,)](out, 5)
    assert kernel.count == 3


def test_debug_is_another_variant(
    kernel: JITFunction, out: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain_one = ready(kernel, out, 5)[(1,)](out, 5)
    with knobs.runtime.scope():
        knobs.runtime.debug = True
        for _ in range(3):
            assert kernel[(1,)](out, 5).metadata.debug
        knobs.runtime.debug = False
        assert kernel[(1,)](out, 5) is plain_one
    for name in ("TRITON_DEBUG", "TILEWRIGHT_DEBUG"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "1")
            for _ in range(3):
                assert kernel[(1,)](out, 5).metadata.debug
            patch.setenv(name, "0")
            assert kernel[(1,)](out, 5) is plain_one
    assert kernel[(1,)](out, 5) is plain_one


def test_number_of_threads_is_read_on_each_launch(
    kernel: JITFunction, out: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready(kernel, out, 5)
    pool = cpu.native_pool()
    assert pool is not None
    with knobs.runtime.scope():
        for reference in (1, pool.workers + 2, pool.workers + 3):
            knobs.runtime.cpu_threads = reference
            kernel[(2,)](out, reference)
            assert out[:2].tolist() == [reference] * 2
            assert pool.workers >= reference - 1
    monkeypatch.setenv("TILEWRIGHT_CPU_THREADS", str(pool.workers + 2))
    before = pool.workers
    kernel[(2,)](out, 1)
    assert pool.workers == before + 1
    monkeypatch.setenv("TILEWRIGHT_CPU_THREADS", "many")
    with pytest.raises(ValueError, match="CPU_THREADS='many'"):
        kernel[(2,)](out, 1)


FACTOR = tl.constexpr(3)


def use_global(out):
    tl.store(out, FACTOR)


def test_changed_globals_are_rejected(monkeypatch: pytest.MonkeyPatch, out: Array) -> None:
    kernel = ready(jit(use_global), out)
    seen = runs_of(kernel, monkeypatch)
    kernel[(1,)](out)
    assert not seen
    text = "Global variable FACTOR has changed since we compiled this kernel"
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "FACTOR", tl.constexpr(4))
        with pytest.raises(RuntimeError, match=text):
            kernel[(1,)](out)
    with monkeypatch.context() as patch:
        patch.setattr(FACTOR, "value", 5)
        with pytest.raises(RuntimeError, match=text):
            kernel[(1,)](out)
    kernel[(1,)](out)
    assert out[0] == 3


ELEMENT, MODE, FUNCTION = tl.int16, tl.PropagateNan.NONE, tl.maximum


def use_types_and_functions(out):
    tl.store(out, FUNCTION(tl.full((), 3, ELEMENT), 1, propagate_nan=MODE))


@pytest.mark.parametrize(
    ("name", "value"),
    [("ELEMENT", tl.int8), ("MODE", tl.PropagateNan.ALL), ("FUNCTION", tl.minimum)],
)
def test_changed_types_and_functions_are_rejected(
    name: str, value: Any, monkeypatch: pytest.MonkeyPatch, out: Array
) -> None:
    kernel = ready(jit(use_types_and_functions), out)
    seen = runs_of(kernel, monkeypatch)
    kernel[(1,)](out)
    assert not seen
    assert out[0] == 3
    monkeypatch.setitem(globals(), name, value)
    with pytest.raises(RuntimeError, match=f"Global variable {name} has changed"):
        kernel[(1,)](out)


SHAPE = tl.constexpr((3, 4))


def use_tuple_global(out):
    tl.store(out, SHAPE[1])


def test_mutable_globals_fall_back_to_python(monkeypatch: pytest.MonkeyPatch, out: Array) -> None:
    kernel = ready(jit(use_tuple_global), out)
    seen = runs_of(kernel, monkeypatch)
    kernel[(1,)](out)
    assert seen == [(1,)]


def write_half(out, x: tl.float16):  # pyright: ignore[reportInvalidTypeForm]
    tl.store(out, x.to(tl.float32))


def test_narrow_floats_fall_back_to_python(monkeypatch: pytest.MonkeyPatch) -> None:
    out = np.zeros(1, np.float32)
    kernel = ready(jit(write_half), out, 0.1)
    seen = runs_of(kernel, monkeypatch)
    kernel[(1,)](out, 0.1)
    assert seen == [(1,)]
    assert out[0] == np.float16(0.1)


# -- references, threads, processes ---------------------------------------------------------------


def _launch_often(kernel: JITFunction, args: tuple[Any, ...], count: int) -> None:
    def grid(meta: dict[str, Any]) -> Any:
        return (meta["BLOCK"],)

    for _ in range(count):
        kernel[(1,)](*args)
        kernel[grid](*args, BLOCK=1)
        kernel[(0,)](*args, num_warps=4)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_launches_leak_no_references_or_memory(library: str) -> None:
    kernel, array = jit(fill), np.zeros(4, np.int32)
    first: Any = array if library == "numpy" else torch.from_numpy(array)
    args = (first, 123456789)
    _launch_often(kernel, args, 100)
    launcher = kernel._launcher
    assert launcher is not None
    watched = [first, args[1], kernel, launcher, None, True, int, np.ndarray, "num_warps"]
    watched += [next(iter(launcher.entries.values())), kernel[(1,)](*args), type(first)]
    while gc.collect():  # of other tests: finalizers leave more garbage
        pass
    before = [sys.getrefcount(value) for value in watched], sys.getallocatedblocks()
    _launch_often(kernel, args, 34_000)
    gc.collect()
    after = [sys.getrefcount(value) for value in watched], sys.getallocatedblocks()
    assert all(abs(a - b) <= 20 for a, b in zip(before[0], after[0], strict=True))
    assert abs(after[1] - before[1]) < 500


def test_errors_leak_no_references(kernel: JITFunction, out: Array) -> None:
    ready(kernel, out, 5)
    wrong = object()
    before = sys.getrefcount(out), sys.getrefcount(wrong)
    for _ in range(500):
        for args, grid in (((out, wrong), (1,)), ((out, 5), (1, -1)), ((out, 5), wrong)):
            outcome(kernel[grid], *args)
        outcome(kernel[lambda meta: 1 // 0], out, 5)
    gc.collect()
    assert abs(sys.getrefcount(out) - before[0]) < 10
    assert abs(sys.getrefcount(wrong) - before[1]) < 10


def test_handle_outlives_the_kernel(out: Array) -> None:
    launch = ready(jit(fill), out, 5)[(1,)]
    gc.collect()
    launch(out, 9)
    assert out[0] == 9


def test_unused_kernels_are_freed(out: Array) -> None:
    gc.collect()
    launchers = native()._launchers
    before = len(launchers)
    for _ in range(5):
        ready(jit(fill), out, 5)
    gc.collect()
    assert len(launchers) <= before


def test_threads_launch_while_variants_come_and_go(kernel: JITFunction) -> None:
    def work(number: int) -> None:
        out = np.zeros(2, np.int32)
        for i in range(1500):
            kernel[(2,)](out, i + 2, BLOCK=i % 7)
            assert out.tolist() == [i + 2] * 2
            if number == 0 and i % 100 == 0:
                assert kernel._launcher is not None
                kernel._launcher.forget()

    in_threads(work, 4)


def test_grid_function_receives_its_own_dictionary(kernel: JITFunction, out: Array) -> None:
    """Whatever it does with one, later launches have theirs; and arguments are not kept."""
    ready(kernel, out, 5)
    seen: list[dict[str, Any]] = []

    def grid(meta: dict[str, Any]) -> Any:
        seen.append(dict(meta))
        meta.clear()
        meta["n"] = "changed"
        return (2,)

    before = sys.getrefcount(out)
    values = [5, 123456789, True, 5, 2**40, 0, 5]
    for value in values:
        kernel[grid](out, value)
    names = list(kernel.arg_names)
    assert [list(meta) for meta in seen] == [names] * len(values)
    assert [meta[names[1]] for meta in seen] == values
    assert all(meta[names[0]] is out for meta in seen)
    seen.clear()
    assert sys.getrefcount(out) == before


def one_program(meta: dict[str, Any]) -> Any:
    return (1,)


@pytest.mark.parametrize("grid", [(1,), one_program])
def test_launchers_on_one_grid_are_independent(kernel: JITFunction, out: Array, grid: Any) -> None:
    ready(kernel, out, 5)
    first = id(kernel[grid])
    assert id(kernel[grid]) == first  # no reference was left
    held = [kernel[grid] for _ in range(3)]
    assert len({id(launcher) for launcher in held}) == 3
    other = kernel[(2,)]
    for launcher, programs in ((held[0], 1), (other, 2), (held[1], 1)):
        out[:] = 0
        launcher(out, 6)
        assert out.tolist() == [6] * programs + [0] * (4 - programs)


def test_references_of_a_grid_are_freed(kernel: JITFunction, out: Array) -> None:
    class Held:
        pass

    class Extent(int):
        pass

    def enclosing(held: Held) -> Any:
        return lambda meta: (1 if held else 2,)

    def defaulting(held: Held) -> Any:
        def grid(meta: dict[str, Any], held: Held = held) -> Any:
            return (1,)

        return grid

    def naming(held: Held) -> Any:
        def grid(meta: dict[str, Any], *, held: Held = held) -> Any:
            return (1,)

        return grid

    def extents(held: Held) -> Any:
        extent = Extent(1)
        extent.held = held  # pyright: ignore[reportAttributeAccessIssue]
        return (extent,)

    ready(kernel, out, 5)
    for make in (enclosing, defaulting, naming, extents):
        held = Held()
        gone = weakref.ref(held)
        kernel[make(held)](out, 5)
        del held
        assert gone() is None, make


class LaunchesWhenFreed:
    """An argument's companion whose end launches the same kernel."""

    def __init__(self, kernel: JITFunction, out: Array) -> None:
        self.kernel, self.out = kernel, out

    def __del__(self) -> None:
        self.kernel[(1,)](self.out, 11)


def test_nested_launch(kernel: JITFunction, out: Array) -> None:
    ready(kernel, out, 5)
    inner = np.zeros(4, np.int32)

    def grid(meta: dict[str, Any]) -> Any:
        LaunchesWhenFreed(kernel, inner)
        return (2,)

    kernel[grid](out, 6)
    assert out.tolist() == [6, 6, 0, 0]
    assert inner[0] == 11


def spin(out, count):
    for _ in range(count):
        tl.atomic_add(out, 1)


@pytest.fixture
def alarm() -> Iterator[Callable[[Callable[[], None], float], None]]:
    """Has a function called by a signal handler some seconds from now."""
    before = signal.getsignal(signal.SIGALRM)

    def arm(function: Callable[[], None], seconds: float) -> None:
        signal.signal(signal.SIGALRM, lambda *_: function())
        signal.setitimer(signal.ITIMER_REAL, seconds)

    yield arm
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def _long_count(kernel: JITFunction, out: Array) -> int:
    """Repetitions for which a program takes about 20 ms, of the variant that has been compiled."""
    ready(kernel, out, 1600)
    start = time.perf_counter()
    kernel[(1,)](out, 160_000)
    return 16 * max(100, int(10_000 * 0.02 / (time.perf_counter() - start)))


@pytest.mark.parametrize("threads", [1, 2])
def test_long_launches_let_signal_handlers_launch(
    threads: int, alarm: Callable[[Callable[[], None], float], None]
) -> None:
    kernel, out, inner = jit(spin), np.zeros(1, np.int64), np.zeros(1, np.int64)
    with knobs.runtime.scope():
        knobs.runtime.cpu_threads = threads
        count = _long_count(kernel, out)
        out[0] = 0
        alarm(lambda: kernel[(1,)](inner, 1600) and None, 0.06)
        kernel[(20,)](out, count)
    assert out[0] == 20 * count
    assert inner[0] == 1600


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("seconds", [0.02, 0.06])  # in the first slice, and in a later one
def test_long_launches_can_be_interrupted(
    threads: int, seconds: float, alarm: Callable[[Callable[[], None], float], None]
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    kernel, out = jit(spin), np.zeros(1, np.int64)
    with knobs.runtime.scope():
        knobs.runtime.cpu_threads = threads
        count = _long_count(kernel, out)
        out[0] = 0
        alarm(interrupt, seconds)
        with pytest.raises(KeyboardInterrupt):
            kernel[(100,)](out, count)
        after = out[0]
        assert after < 100 * count
        kernel[(1,)](out, 1600)
        assert out[0] == after + 1600


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_launches(kernel: JITFunction) -> None:
    out = np.zeros(64, np.int32)
    with knobs.runtime.scope():
        knobs.runtime.cpu_threads = 2
        ready(kernel, out, 5)
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # a deadlock ends the child
            status = 1
            try:
                for i in range(3):
                    kernel[(64,)](out, 6 + i)
                    if (out != 6 + i).any():
                        break
                else:
                    status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        kernel[(64,)](out, 7)
    assert (out == 7).all()


BOUND_FIRST = """
import torch
import tilewright as tw
import tilewright.language as tl

@tw.jit
def fill(out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, n, mask=i < n)

out = torch.zeros(16, dtype=torch.int32)
launch = fill.bind(out, 9, BLOCK=16, grid=(1,))
launch()
assert out.tolist() == [9] * 9 + [0] * 7
print(type(launch).__name__)
"""


def test_bound_launch_of_tensors_is_native_though_nothing_was_launched(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(BOUND_FIRST)
    command = [sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == "builtin_function_or_method"
