"""Faults of the disk cache as programs see them: killed processes, full or read-only disks,
modified entries, clocks that go backwards, concurrent processes."""

import errno
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright import knobs
from tilewright.compiler import driver as compiling
from tilewright.runtime import cache as cache_module
from tilewright.runtime.cache import DiskCache, disk_cache, lock_of
from tilewright.runtime.cache_entries import entries
from tilewright.runtime.cache_maintenance import faults

ROOT = Path(__file__).parents[2]
SIZE = 16


def double(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) * 2)


def run() -> list[str]:
    """Launch a kernel that this process has not seen; return "compiled" or "found"."""
    received: list[str] = []
    kernel = tw.jit(double)
    x, out = np.arange(SIZE, dtype=np.float32), np.zeros(SIZE, np.float32)
    with knobs.compilation.scope():
        knobs.compilation.listener = lambda **reported: received.append(
            "found" if reported["cache_hit"] else "compiled"
        )
        kernel[(1,)](x, out, BLOCK=SIZE)
    assert (out == 2 * x).all()
    return received


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with knobs.cache.scope():
        knobs.cache.dir = str(tmp_path / "cache")
        yield tmp_path / "cache"


def start(folder: Path, *words: object, **more: Any) -> "subprocess.Popen[str]":
    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(folder), "TILEWRIGHT_VERIFY": ""}
    command = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "tests.runtime.worker_process",
        *map(str, words),
    ]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, text=True, **more
    )


def outcome(process: "subprocess.Popen[str]") -> str:
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    return out.strip()


# -- processes that are killed --------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_killed_at_any_time_the_cache_verifies_and_the_next_run_is_right(
    folder: Path, request: pytest.FixtureRequest
) -> None:
    """Run it with --kills=200 to be sure."""
    kills: int = request.config.option.kills
    rng = random.Random(kills)
    cache = DiskCache(folder)
    server = start(folder, "serve")
    assert server.stdin is not None
    assert server.stdout is not None
    with server.stdin, server.stdout:
        for turn in range(kills):
            server.stdin.write(f"{rng.choice(['compile', 'tune'])} {turn // 2}\n")
            server.stdin.flush()
            child = int(server.stdout.readline())
            while not list(entries(cache.root)):  # the first one lives until something is kept
                time.sleep(0.01)
            time.sleep(rng.uniform(0.0, 0.5))
            os.kill(child, signal.SIGKILL)
            ended = int(server.stdout.readline())
            assert ended == -signal.SIGKILL, f"the child of turn {turn} found something wrong"
            assert list(faults(cache)) == []
    assert server.wait() == 0
    begin = time.monotonic()
    last = kills // 2 + 5
    outcome(start(folder, "check", 0, last))
    # Locks of dead processes do not block others.
    assert time.monotonic() - begin < cache_module.WAIT_SECONDS + last
    assert list(faults(cache)) == []
    assert outcome(start(folder, "check", 0, last)) == "0", "what was kept is found again"


def test_processes_on_one_folder_compile_and_tune_once(folder: Path) -> None:
    """And a later process compiles nothing and tunes nothing."""
    count = 2
    at_once = [start(folder, "check", 0, count) for _ in range(2)]
    made = sum(int(outcome(process)) for process in at_once)
    # A number: one kernel, a tuned one with two configurations, one tuning.
    assert made == 4 * count
    assert outcome(start(folder, "check", 0, count)) == "0"
    assert list(faults(DiskCache(folder))) == []
    assert list(folder.rglob("*.lock")) == list(folder.rglob("*.tmp")) == []


def test_a_launch_while_another_thread_compiles_the_same_waits_for_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one kernel, and of two made of the same source."""
    built: list[str] = []
    build = compiling.build.build

    def slowly(*args: Any) -> Any:
        built.append("compiled")
        time.sleep(0.2)
        return build(*args)

    monkeypatch.setattr(compiling.build, "build", slowly)
    kernel, twin = tw.jit(double), tw.jit(double)
    x = np.arange(SIZE, dtype=np.float32)
    outs = [np.zeros_like(x) for _ in range(6)]
    together = threading.Barrier(len(outs))

    def launch(kernel: Any, out: Any) -> None:
        together.wait()
        kernel[(1,)](x, out, BLOCK=SIZE)

    threads = [
        threading.Thread(target=launch, args=(twin if n % 3 == 2 else kernel, out))
        for n, out in enumerate(outs)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert built == ["compiled"]
    assert all((out == 2 * x).all() for out in outs)


# -- disks ----------------------------------------------------------------------------------------


def in_child(work: Callable[[], None], user: int | None = None) -> int:
    """The exit status of a forked process that does something, as another user if given."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if user is not None:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_on_a_full_disk_nothing_is_cached_and_all_works(folder: Path) -> None:
    """Files of this process may have 4096 bytes, which a kernel's entry exceeds."""
    program = """
import resource, signal, sys, warnings
from tests.runtime import worker_process
from tilewright import knobs
knobs.autotuning.progress = False
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for number in range(3):
        worker_process.compile(number)
messages = [str(w.message) for w in caught if "not cached" in str(w.message)]
assert len(messages) == 1 and "cannot be written" in messages[0], messages
assert "File too large" in messages[0], messages
"""
    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(folder)}
    command = [sys.executable, "-c", program]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    assert list(folder.rglob("*.tmp")) == []
    assert list(faults(DiskCache(folder))) == []
    assert run() == ["compiled"]
    assert run() == ["found"]


def test_no_space_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At any call that fails: on opening, in the midst of writing, on renaming."""

    def full(*args: Any, **kwargs: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for name in ("open", "replace", "link", "mkdir"):
        with monkeypatch.context() as patch:
            patch.setattr(cache_module.os, name, full)
            # The cache's object is new, as it warns once.
            patch.setattr(cache_module, "_shared", {})
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                assert run() == ["compiled"]
            reported = [str(w.message) for w in caught if issubclass(w.category, RuntimeWarning)]
            assert len(reported) <= 1
            assert all("No space left" in text for text in reported)
        for path in folder.rglob("*.twc"):
            path.unlink()
    assert list(folder.rglob("*.tmp")) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("mode", [0o555, 0o000])
def test_a_read_only_home_directory(mode: int, tmp_path: Path) -> None:
    """Of another user where this one is root, whom modes do not stop."""
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(mode)
    for above in tmp_path.parents:
        if os.access(above, os.W_OK) and above.stat().st_uid == os.geteuid() and above != Path("/"):
            above.chmod(above.stat().st_mode | 0o055)
    tmp_path.chmod(0o755)

    def work() -> None:
        with knobs.cache.scope(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            knobs.cache.home_dir = str(home)
            knobs.cache.dir = None
            assert str(disk_cache().root).startswith(str(home))
            assert run() == ["compiled"]
            assert run() == ["compiled"]
        reported = [str(w.message) for w in caught if issubclass(w.category, RuntimeWarning)]
        assert len(reported) == 1, reported
        assert "Permission denied" in reported[0]
        assert "TILEWRIGHT_CACHE_DIR" in reported[0]

    run()  # so that the child, which has no threads of its parent, finds the compiler loaded
    assert in_child(work, 65534 if os.geteuid() == 0 else None) == 0
    home.chmod(0o755)


# -- entries --------------------------------------------------------------------------------------


def entry_of(folder: Path) -> Path:
    """The entry of the kernel, which is the largest."""
    paths = [Path(entry.path) for entry in entries(str(folder))]
    return max(paths, key=lambda path: b"double" in path.read_bytes())


ALTERED: dict[str, Callable[[Path], Any]] = {
    "changed": lambda path: path.write_bytes(path.read_bytes().replace(b"double", b"treble")),
    "cut": lambda path: os.truncate(path, path.stat().st_size - 1),
    "empty": lambda path: path.write_bytes(b""),
    "writable by all": lambda path: path.chmod(0o666),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a link": lambda path: (
        path.rename(path.with_suffix(".moved")),
        path.symlink_to(path.with_suffix(".moved")),
    ),
}


@pytest.mark.parametrize("how", ALTERED)
def test_a_modified_entry_is_rejected_and_recompiled(how: str, folder: Path) -> None:
    assert run() == ["compiled"]
    assert run() == ["found"]
    path = entry_of(folder)
    ALTERED[how](path)
    assert [entry.path for entry, _ in faults(DiskCache(folder))] == [str(path)]
    if how == "a folder":  # which no file can take the place of
        with pytest.warns(RuntimeWarning, match="cannot be written"):
            assert run() == ["compiled"]
        return
    assert run() == ["compiled"]
    assert run() == ["found"]
    assert list(faults(DiskCache(folder))) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_entry_is_recompiled(folder: Path) -> None:
    assert run() == ["compiled"]
    entry_of(folder).chmod(0o000)
    assert run() == ["compiled"]
    assert run() == ["found"]


@pytest.mark.parametrize("seconds", [-1e6, 1e6])
def test_a_clock_jump_changes_nothing(
    seconds: float, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run() == ["compiled"]
    now = time.time
    monkeypatch.setattr(cache_module.time, "time", lambda: now() + seconds)
    assert run() == ["found"]
    for path in folder.rglob("*.twc"):
        path.unlink()
    path = DiskCache(folder).path("0" * 64)
    assert path is not None
    lock = Path(lock_of(path))
    # A lock that another machine has just created by its own clock does not block for long.
    lock.parent.mkdir(exist_ok=True)
    lock.write_text('{"host": "another", "pid": 1}')
    begin = time.monotonic()
    with DiskCache(folder).compiling("0" * 64):
        assert time.monotonic() - begin < cache_module.WAIT_SECONDS / 2
    assert run() == ["compiled"]
    assert run() == ["found"]
