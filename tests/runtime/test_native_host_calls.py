"""Native launches of kernels that call Python: they print, or an assertion of theirs may fail."""

import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tests.runtime.native_cases import native, outcome
from tilewright.base.diagnostics import DeviceAssertionError
from tilewright.runtime.jit import jit
from tilewright.runtime.launchers.host_calls import IN_NATIVE, IN_PYTHON, HostCalls

N = 32


@jit
def gather(x, at, out, n, N: tl.constexpr):
    i = tl.arange(0, N)
    place = tl.load(at + i)
    tl.device_assert((place >= 0) & (place < n), "place")
    tl.store(out + i, tl.load(x + place))


@jit
def shown(x):
    tl.device_print("x", tl.load(x + tl.program_id(0)))


@pytest.fixture
def by_python(monkeypatch: pytest.MonkeyPatch) -> list[HostCalls]:
    """The callbacks of each launch that Python makes."""
    assert native()
    seen: list[HostCalls] = []
    real = HostCalls.one_launch

    def recorded(self: HostCalls) -> AbstractContextManager[None]:
        seen.append(self)
        return real(self)

    monkeypatch.setattr(HostCalls, "one_launch", recorded)
    return seen


def arguments(index: int = 0) -> list[Any]:
    at = np.arange(N)[::-1].copy()
    at[5] = index
    return [np.arange(N, dtype=np.float32), at, np.zeros(N, np.float32), N, N]


def launched(index: int = 0) -> Any:
    args = arguments(index)
    kernel = gather[(1,)](*args, debug=True)
    np.testing.assert_array_equal(args[2], args[1])
    return kernel


def callbacks() -> HostCalls:
    return launched().loaded._host


def test_launch_and_failure(by_python: list[HostCalls]) -> None:
    launched()
    expected = outcome(launched, N)
    assert expected[0] is DeviceAssertionError
    launched()
    first = len(by_python)
    for _ in range(3):
        launched()
        assert outcome(launched, N) == expected
    run = launched().run
    with pytest.raises(DeviceAssertionError, match="place"):
        run(1, 1, 1, *[None] * 6, *arguments(-1))
    run(1, 1, 1, *[None] * 6, *arguments())
    assert len(by_python) == first


def test_print(by_python: list[HostCalls], capsys: pytest.CaptureFixture[str]) -> None:
    shown[(2,)](np.arange(3, 5))
    expected, first = capsys.readouterr().out, len(by_python)
    shown[(2,)](np.arange(3, 5))
    assert "4" in expected
    assert capsys.readouterr().out == expected
    assert len(by_python) == first


def test_each_thread_gets_its_own_failures() -> None:
    launched()
    found: dict[int, list[Any]] = {0: [], N: []}

    def launch(index: int) -> None:
        for _ in range(300):
            found[index].append(isinstance(outcome(launched, index), tuple))

    threads = [threading.Thread(target=launch, args=(index,)) for index in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {0: [False] * 300, N: [True] * 300}


def in_thread(function: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=function)
    thread.start()
    return thread


def test_python_waits_for_native_code(by_python: list[HostCalls]) -> None:
    calls = callbacks()
    by_python.clear()
    calls._owners[IN_NATIVE] = 1
    thread = in_thread(launched)
    thread.join(0.05)
    assert thread.is_alive()
    calls._owners[IN_NATIVE] = 0
    thread.join()
    assert by_python == [calls]
    assert list(calls._owners) == [0, 0]


def test_native_code_waits_for_python(by_python: list[HostCalls]) -> None:
    calls = callbacks()
    by_python.clear()
    with calls.one_launch():
        thread = in_thread(launched)
        thread.join(0.05)
        assert thread.is_alive()
    thread.join()
    assert by_python == [calls, calls]


def test_launch_within_one_of_the_same_thread() -> None:
    """By a signal handler: the failures of the outer launch remain."""
    calls = callbacks()
    failure = ValueError("of the outer launch")
    calls.failures.append(failure)
    calls._owners[IN_NATIVE] = threading.get_ident()
    launched()
    assert outcome(launched, N)[0] is DeviceAssertionError
    assert calls.failures == [failure]
    calls._owners[IN_NATIVE] = 0
    launched()  # that one ended by another exception
    assert not calls.failures


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_does_not_wait_for_threads_of_its_parent() -> None:
    calls = callbacks()
    calls._owners[IN_NATIVE] = calls._owners[IN_PYTHON] = 1
    child = os.fork()
    if not child:
        os._exit(0 if list(calls._owners) == [0, 0] and launched() else 1)
    calls._owners[IN_NATIVE] = calls._owners[IN_PYTHON] = 0
    end = time.monotonic() + 30
    while (status := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < end:
        time.sleep(0.01)
    assert status == (child, 0)
