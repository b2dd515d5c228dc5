"""Locks and forks."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tilewright.base.lazy_import import lazy_import
from tilewright.base.locks import LLVM, Lock

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


def in_child(check: Callable[[], bool]) -> bool:
    """Whether a check holds in a forked child, which has 20 s for it."""
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        status = 1
        try:
            status = 0 if check() else 1
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def taken(lock: Lock) -> bool:
    with lock:
        return True


class Holder:
    """A thread that holds a lock until it is released."""

    def __init__(self, lock: Lock) -> None:
        self._has, self._release = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._hold, args=(lock,))
        self._thread.start()
        self._has.wait()

    def _hold(self, lock: Lock) -> None:
        with lock:
            self._has.set()
            self._release.wait()

    def end(self) -> None:
        self._release.set()
        self._thread.join()


def test_lock_of_another_thread_is_free_in_a_child() -> None:
    lock = Lock()
    holder = Holder(lock)
    assert in_child(lambda: taken(lock))
    holder.end()
    assert taken(lock)


def test_lock_of_the_forking_thread_stays_held() -> None:
    lock = Lock()
    with lock, lock:
        assert in_child(lambda: taken(lock))
    assert in_child(lambda: taken(lock))


def test_threads_exclude_each_other() -> None:
    lock, inside, most = Lock(), [0], [0]

    def work() -> None:
        for _ in range(500):
            with lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


def test_a_fork_waits_for_llvm() -> None:
    holder = Holder(LLVM)
    timer = threading.Timer(0.2, holder.end)
    timer.start()
    assert in_child(lambda: taken(LLVM))  # were it copied as it was, its holder would be gone
    assert holder._release.is_set()  # the thread itself may not have ended yet
    timer.join()
    with LLVM:
        assert in_child(lambda: taken(LLVM))


def test_a_fork_waits_for_a_lazy_import_of_another_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = "import time\nbegun = True\ntime.sleep(0.3)\ncount = 1\n"
    (tmp_path / "slow_subject.py").write_text(slow)
    monkeypatch.syspath_prepend(tmp_path)
    lazy: Any = lazy_import("slow_subject")
    thread = threading.Thread(target=lambda: lazy.count)
    thread.start()
    try:
        while not hasattr(sys.modules.get("slow_subject"), "begun"):
            time.sleep(0.001)
        assert in_child(lambda: import_module("slow_subject").count == 1)
    finally:
        thread.join()
        sys.modules.pop("slow_subject", None)
